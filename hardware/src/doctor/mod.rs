//! What a host that is given to Corelane should look like, and what this one looks like.
//!
//! Owns the list of findings: each with what it is about, why it matters, what is and what should
//! be, and the command or the kernel file that changes it. The checks of the preflight are part of
//! it, not repeated. Never: changes anything (`tune.rs` does), prints, hides what could not be
//! read.
//!
//! | level | meaning |
//! |---|---|
//! | ok | as it should be, or nothing that can be changed here |
//! | advice | works; what is wanted is faster, steadier or safer |
//! | problem | a promise of Corelane's does not hold, or it cannot start |
//! | unknown | could not be read; the reason stands in `present` |

mod cpus;
mod disks;
mod interrupts;
mod limits;
mod machine;
mod memory;
mod network;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::cpu::cpus_of;
use crate::host::{Host, parse_list};
use crate::preflight::{Check, Status};

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Unknown,
    Advice,
    Problem,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Unknown => "unknown",
            Level::Advice => "advice",
            Level::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `disk.scheduler`; the same on every machine and in every version.
    pub id: &'static str,
    /// The disk, interface, directory or process; empty where it is the host.
    pub subject: String,
    pub level: Level,
    pub why: &'static str,
    pub present: String,
    /// Empty where nothing better is known.
    pub wanted: String,
    /// What an operator would type or write; several lines in order.
    pub commands: Vec<String>,
    /// What `corelane tune --apply` sets; of a finding that is ok, what only has to stay as it is.
    pub fixes: Vec<Fix>,
}

/// One value for one file of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub path: String,
    pub value: String,
    pub persist: Persist,
}

/// What makes a value come back after a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Persist {
    /// A line of sysctl.d with this key.
    Sysctl(String),
    /// A udev rule for the disk: its attribute.
    Udev { disk: Known, attribute: String },
    /// A line of tmpfiles.d.
    Tmpfiles,
    /// Its path is another one after a boot.
    Nowhere,
}

/// How a udev rule knows a disk again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Names move from disk to disk over boots: it is used where the kernel shows nothing better.
    pub name: String,
    /// An attribute of the disk or of its device, and its value there: `wwid`, `serial`.
    pub identity: Option<(&'static str, String)>,
}

/// What is to be looked at.
#[derive(Debug)]
pub struct Request<'a> {
    /// Absolute and without links; where a directory is not there yet, its nearest parent.
    pub data_dirs: &'a [PathBuf],
    /// What the preflight said of the same machine.
    pub checks: &'a [Check],
}

/// Looks at everything. The order is that of the report.
pub fn examine(host: &dyn Host, request: &Request<'_>) -> Vec<Finding> {
    let setting = machine::Setting::of(host);
    let mut findings: Vec<Finding> = request.checks.iter().map(of_check).collect();
    findings.extend(machine::findings(host, &setting));
    findings.extend(disks::findings(host, request.data_dirs));
    let cpus = cpus_of(host).map_or_else(Vec::new, |cpus| cpus.ids);
    // Interrupts are the machine's: those of whoever looks under taskset do not bound them.
    let online = host.read("/sys/devices/system/cpu/online").ok();
    let all = online.and_then(|text| parse_list(&text)).filter(|all| !all.is_empty());
    findings.extend(interrupts::findings(host, request.data_dirs, all.as_ref().unwrap_or(&cpus)));
    findings.extend(cpus::findings(host, &setting, &cpus));
    findings.extend(memory::findings(host));
    findings.extend(network::findings(host));
    findings.extend(limits::findings(host));
    findings
}

/// A check of the preflight as a finding.
fn of_check(check: &Check) -> Finding {
    let (id, why) = match check.name {
        "io_uring" => ("start.io_uring", "every shard does its input and output through a ring"),
        "cpus" => ("start.cpus", "a shard is one thread that wants a CPU of its own"),
        "memory" => ("start.memory", "tails of logs are served from the broker's own memory"),
        "open files" => ("start.open_files", "each client and each active segment holds one"),
        "locked memory" => ("start.locked_memory", "a ring may count against it"),
        "data directory" => ("start.data_dir", "records are kept there"),
        "direct I/O" => ("start.direct_io", "logs are written and read past the page cache"),
        "free space" => ("start.free_space", "near the end of it producers are refused"),
        "port" => ("start.port", "shard N listens on the first port plus N"),
        _ => ("start.other", "a check before the start"),
    };
    let level = match check.status {
        Status::Ok => Level::Ok,
        Status::Warn => Level::Advice,
        Status::Fail => Level::Problem,
    };
    Finding {
        level,
        wanted: check.remedy.clone().unwrap_or_default(),
        ..Finding::ok(id, "", why, check.finding.clone())
    }
}

impl Finding {
    fn ok(
        id: &'static str,
        subject: impl Into<String>,
        why: &'static str,
        present: impl Into<String>,
    ) -> Self {
        Finding {
            id,
            subject: subject.into(),
            level: Level::Ok,
            why,
            present: present.into(),
            wanted: String::new(),
            commands: Vec::new(),
            fixes: Vec::new(),
        }
    }

    /// What could not be read, with the reason.
    fn unknown(
        id: &'static str,
        subject: impl Into<String>,
        why: &'static str,
        what: &str,
        error: &io::Error,
    ) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "this kernel does not show it here".to_owned(),
            _ => crate::preflight::plain(error),
        };
        let present = format!("cannot read {what}: {reason}");
        Finding { level: Level::Unknown, ..Finding::ok(id, subject, why, present) }
    }

    fn advice(self, wanted: impl Into<String>) -> Self {
        Finding { level: Level::Advice, wanted: wanted.into(), ..self }
    }

    fn problem(self, wanted: impl Into<String>) -> Self {
        Finding { level: Level::Problem, wanted: wanted.into(), ..self }
    }

    /// A value that is fine, so that it is still there after the next boot.
    fn keep(mut self, path: impl Into<String>, value: impl Into<String>, persist: Persist) -> Self {
        self.fixes.push(Fix { path: path.into(), value: value.into(), persist });
        self
    }

    fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// A fix, and the command that does the same by hand.
    fn fix(mut self, path: impl Into<String>, value: impl Into<String>, persist: Persist) -> Self {
        let (path, value) = (path.into(), value.into());
        self.commands.push(match &persist {
            Persist::Sysctl(key) => format!("sysctl -w {key}={}", quoted(&value)),
            _ => format!("echo {} > {path}", quoted(&value)),
        });
        self.fixes.push(Fix { path, value, persist });
        self
    }
}

/// As one word of a shell, whatever it holds: nothing in it is run, and no line is broken.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    if !value.contains(char::is_control) {
        return format!("'{}'", value.replace('\'', "'\\''"));
    }
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", value.chars().map(escaped).collect::<String>())
}
