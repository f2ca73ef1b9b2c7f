//! `corelane tune`: what would be set on this host, setting it, and the files that keep it.
//!
//! Owns how it is shown. What is to be set the doctor's findings say; `hardware` sets it. Writes to
//! the kernel's own files only, and only with `--apply`.

use std::fmt::Write as _;

use hardware::{Applied, Finding, Level, PrintedFile, Rooted};
use serde_json::json;

use super::args::TuneArgs;
use super::doctor;
use super::shown::{Copied, Shown};
use crate::error::{Error, Result, say};

pub fn run(args: &TuneArgs) -> Result<()> {
    let mut findings = doctor::look(&args.host)?;
    if !args.only.is_empty() {
        findings.retain(|finding| args.only.iter().any(|id| selects(id, finding.id)));
        if findings.is_empty() {
            let what = format!("no finding is called {}", args.only.join(" or "));
            return Err(Error::config(what, "`corelane doctor` lists the ids"));
        }
    }
    if args.print_files {
        return show(args, &as_files(&hardware::files(&findings)), || {
            json!(
                hardware::files(&findings)
                    .iter()
                    .map(|f| json!({"path": f.path, "text": f.text}))
                    .collect::<Vec<_>>()
            )
        });
    }
    if !args.apply {
        return show(args, &plan(&findings), || json!({ "plan": wanting(&findings) }));
    }
    let applied = hardware::apply(&Rooted::here(), &findings);
    show(args, &outcome(&applied, &findings), || json!({ "applied": applied_json(&applied) }))?;
    match applied.iter().filter(|one| one.refused.is_some()).count() {
        0 => Ok(()),
        refused => {
            let what = format!("{refused} of {} values could not be set", applied.len());
            Err(Error::refused(what, "the lines above say why"))
        }
    }
}

/// `disk` selects `disk.scheduler`, not `disks.other`.
fn selects(wanted: &str, id: &str) -> bool {
    id.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn show(args: &TuneArgs, text: &str, value: impl FnOnce() -> serde_json::Value) -> Result<()> {
    if args.host.json {
        let text = serde_json::to_string_pretty(&value()).map_err(Error::internal)?;
        say(&(text + "\n"));
    } else {
        say(text);
    }
    Ok(())
}

fn wanting(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.level > Level::Unknown).collect()
}

fn applied_json(applied: &[Applied]) -> Vec<serde_json::Value> {
    let one = |one: &Applied| json!({ "fix": one.fix, "set": one.refused.is_none(), "refused": one.refused });
    applied.iter().map(one).collect()
}

/// Without `--apply`: what would be written, and what nobody but the operator can do.
fn plan(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|finding| finding.level != Level::Ok) {
        for fix in &finding.fixes {
            let _ = writeln!(
                out,
                "would set  {} = {}   (now {})",
                Shown(&fix.path),
                Shown(&fix.value),
                Shown(&finding.present)
            );
        }
    }
    let count = hardware::fixes(findings).count();
    out.push_str(&by_hand(findings));
    let _ = writeln!(out, "{count} values would be set; `corelane tune --apply` does it, as root");
    out
}

fn by_hand(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|f| f.level != Level::Ok && f.fixes.is_empty()) {
        let Finding { id, subject, present, wanted, commands, .. } = finding;
        let what = if wanted.is_empty() { present } else { wanted };
        let subject =
            if subject.is_empty() { String::new() } else { format!(" {}:", Shown(subject)) };
        let _ = writeln!(out, "by hand    {id}{subject} {}", Shown(what));
        for command in commands {
            let _ = writeln!(out, "           {}", Copied(command));
        }
    }
    out
}

fn outcome(applied: &[Applied], findings: &[Finding]) -> String {
    let mut out = String::new();
    for Applied { fix, refused } in applied {
        let _ = match refused {
            None => writeln!(out, "set        {} = {}", Shown(&fix.path), Shown(&fix.value)),
            Some(why) => {
                let (path, value) = (Shown(&fix.path), Shown(&fix.value));
                writeln!(out, "not set    {path} = {value}: {}", Shown(why))
            }
        };
    }
    out.push_str(&by_hand(findings));
    out.push_str("until the next boot; `corelane tune --print-files` has what keeps it\n");
    out
}

fn as_files(files: &[PrintedFile]) -> String {
    let mut out = String::new();
    for file in files {
        let _ = writeln!(out, "# {}\n{}", file.path, file.text);
    }
    out
}

#[cfg(test)]
mod tests {
    use hardware::{Fix, Persist};

    use super::*;

    fn fix() -> Fix {
        let persist = Persist::Sysctl("vm.swappiness".into());
        Fix { path: "/proc/sys/vm/swappiness".into(), value: "1".into(), persist }
    }

    fn finding(level: Level, fixes: Vec<Fix>) -> Finding {
        Finding {
            id: "memory.swap",
            subject: String::new(),
            level,
            why: "it waits",
            present: "60".into(),
            wanted: "1".into(),
            commands: vec!["sysctl -w vm.swappiness=1".into()],
            fixes,
        }
    }

    #[test]
    fn ids_select_by_whole_words() {
        assert!(selects("memory", "memory.swap") && selects("memory.swap", "memory.swap"));
        assert!(!selects("mem", "memory.swap") && !selects("memory.swap.x", "memory.swap"));
    }

    #[test]
    fn the_plan_names_what_would_be_set_and_what_is_left_to_people() {
        let text = plan(&[
            finding(Level::Advice, vec![fix()]),
            finding(Level::Advice, Vec::new()),
            finding(Level::Ok, vec![fix()]),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "would set  /proc/sys/vm/swappiness = 1   (now 60)");
        assert_eq!(lines[1], "by hand    memory.swap 1");
        assert!(lines[3].starts_with("1 values would be set"));
    }

    #[test]
    fn what_was_refused_is_listed_with_the_reason() {
        let applied = [Applied { fix: fix(), refused: Some("not permitted".into()) }];
        let text = outcome(&applied, &[]);
        assert!(text.starts_with("not set    /proc/sys/vm/swappiness = 1: not permitted\n"));
        assert_eq!(applied_json(&applied)[0]["set"], false);
    }
}
