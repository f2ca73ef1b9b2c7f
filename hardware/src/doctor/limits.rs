//! The limits under which a broker runs that is running now: a service's are not those of a shell.

use super::{Finding, Level};
use crate::host::Host;
use crate::limits::Limit;
use crate::preflight::{Check, Status, locked_memory, open_files};

/// Processes looked at.
const PROCESSES_MAX: usize = 1 << 16;

/// Number and name of every process that can be seen.
pub(super) fn processes(host: &dyn Host) -> impl Iterator<Item = (u32, String)> {
    let names = host.list("/proc").unwrap_or_default();
    let numbers = names.into_iter().filter_map(|name| name.parse::<u32>().ok());
    numbers.take(PROCESSES_MAX).filter_map(|number| {
        let name = host.read(&format!("/proc/{number}/comm")).ok()?;
        Some((number, name))
    })
}

pub(super) fn findings(host: &dyn Host) -> Vec<Finding> {
    const WHY: &str = "what a service manager allows a broker differs from what this shell may do";
    let serving = |number: u32| {
        let line = host.read(&format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.split('\0').any(|word| word == "serve")
    };
    // The threads of the broker have names of their own; the process has the program's.
    let brokers = processes(host).filter(|(number, name)| name == "corelane" && serving(*number));
    let mut findings = Vec::new();
    for (number, _) in brokers {
        let subject = format!("broker {number}");
        let path = format!("/proc/{number}/limits");
        let text = match host.read(&path) {
            Ok(text) => text,
            Err(error) => {
                findings.push(Finding::unknown("service.limits", subject, WHY, &path, &error));
                continue;
            }
        };
        for check in of_broker(&text) {
            findings.push(finding(&subject, WHY, &check));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("service.limits", "", WHY, "no broker runs"));
    }
    findings
}

fn finding(subject: &str, why: &'static str, check: &Check) -> Finding {
    let present = format!("{}: {}", check.name, check.finding);
    let finding = Finding::ok("service.limits", subject, why, present);
    if check.status == Status::Ok {
        return finding;
    }
    let wanted = check.remedy.clone().unwrap_or_default();
    // It runs, so nothing is lost yet.
    let finding = Finding { level: Level::Advice, wanted, ..finding };
    finding.command("corelane tune --print-files   # has a drop-in for the systemd unit")
}

fn of_broker(text: &str) -> Vec<Check> {
    let limit = |name: &str| -> Option<Limit> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split_whitespace();
        let mut value = || match words.next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Limit { soft: value()?, hard: value()? })
    };
    let files = limit("Max open files").map(open_files);
    let memory = limit("Max locked memory").map(|limit| locked_memory(limit, 1));
    files.into_iter().chain(memory).collect()
}
