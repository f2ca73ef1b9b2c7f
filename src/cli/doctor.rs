//! `corelane doctor`: what this host gives a broker, each finding with its reason and its remedy.
//!
//! Owns how findings are shown. What is looked at, and the verdicts, are in `hardware`. Needs no
//! ring and no broker; changes nothing.

use std::fmt::Write as _;
use std::path::PathBuf;

use hardware::{Finding, Level, Preflight, Request, Rooted};
use serde_json::json;

use super::args::{DoctorArgs, HostArgs};
use super::shown::{Copied, Shown};
use crate::config;
use crate::error::{Error, Result, say};

pub fn run(args: &DoctorArgs) -> Result<()> {
    let mut findings = look(&args.host)?;
    if args.brief {
        findings.retain(|finding| finding.level != Level::Ok);
    }
    match args.host.json {
        true => say(&as_json(&findings)?),
        false => say(&as_text(&findings)),
    }
    match count(&findings, Level::Problem) {
        0 => Ok(()),
        problems => {
            let what = format!("this host has problems: {problems}");
            Err(Error::machine(what, "their `do` lines say what helps"))
        }
    }
}

/// The checks of a start but for its ports, which a running broker holds, and those of the host.
pub fn look(args: &HostArgs) -> Result<Vec<Finding>> {
    let unknown = |error: hardware::HardwareError| Error::machine(error, "");
    let cpus = hardware::usable_cpus().map_err(unknown)?;
    let memory = hardware::memory().map_err(unknown)?;
    let shards = args.shards.unwrap_or(cpus.parallelism());
    let checks = hardware::preflight(&Preflight {
        data_dirs: &args.data_dir,
        addresses: &[],
        shards,
        memory_bytes: config::default_memory_bytes(memory, shards),
        cpus: &cpus,
        memory,
        ring: reactor::uring::probe(),
    });
    // One that cannot be looked at is among the checks.
    let dirs: Vec<PathBuf> =
        args.data_dir.iter().filter_map(|dir| hardware::place_of(dir).ok()).collect();
    Ok(hardware::examine(&Rooted::here(), &Request { data_dirs: &dirs, checks: &checks }))
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

/// The worst first, in the order of looking within a level.
fn as_text(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let mut out = String::new();
    for finding in sorted {
        let subject = match finding.subject.as_str() {
            "" => String::new(),
            subject => format!("{}: ", Shown(subject)),
        };
        let (level, id) = (finding.level.name(), finding.id);
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{level:<8} {id:<19} {subject}{}", Shown(&finding.present));
        if finding.level == Level::Ok {
            continue;
        }
        let _ = writeln!(out, "         why   {}", finding.why);
        if !finding.wanted.is_empty() {
            let _ = writeln!(out, "         want  {}", Shown(&finding.wanted));
        }
        for command in &finding.commands {
            let _ = writeln!(out, "         do    {}", Copied(command));
        }
    }
    let _ = writeln!(
        out,
        "{} problems, {} advice, {} unknown, {} ok",
        count(findings, Level::Problem),
        count(findings, Level::Advice),
        count(findings, Level::Unknown),
        count(findings, Level::Ok)
    );
    out
}

fn as_json(findings: &[Finding]) -> Result<String> {
    let value = json!({
        "problems": count(findings, Level::Problem),
        "advice": count(findings, Level::Advice),
        "unknown": count(findings, Level::Unknown),
        "findings": findings,
    });
    let text = serde_json::to_string_pretty(&value).map_err(Error::internal)?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, wanted: &str) -> Finding {
        Finding {
            id: "disk.scheduler",
            subject: "sda".into(),
            level,
            why: "it sorts",
            present: "none".into(),
            wanted: wanted.into(),
            commands: vec!["echo a > b".into()],
            fixes: Vec::new(),
        }
    }

    #[test]
    fn the_worst_comes_first_and_only_it_is_explained() {
        let findings = [finding(Level::Ok, ""), finding(Level::Problem, "mq-deadline")];
        let text = as_text(&findings);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "problem  disk.scheduler      sda: none");
        assert_eq!(lines[1].trim(), "why   it sorts");
        assert_eq!(lines[2].trim(), "want  mq-deadline");
        assert_eq!(lines[3].trim(), "do    echo a > b");
        assert_eq!(lines[4], "ok       disk.scheduler      sda: none");
        assert_eq!(lines[5], "1 problems, 0 advice, 0 unknown, 1 ok");
    }

    #[test]
    fn what_others_named_commands_no_terminal() {
        let mut odd = finding(Level::Problem, "w\u{1b}[1m");
        odd.subject = "/mnt/\u{1b}[2J\nok       all is well".into();
        odd.present = "\u{9b}1m".into();
        odd.commands = vec!["mount '\u{7}' \\".into()];
        let text = as_text(&[odd]);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("do    mount '\\x07' \\\n"), "{text}");
    }

    #[test]
    fn json_has_every_field() {
        let text = as_json(&[finding(Level::Advice, "x")]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["advice"], 1);
        assert_eq!(value["findings"][0]["level"], "advice");
        assert_eq!(value["findings"][0]["commands"][0], "echo a > b");
    }
}
