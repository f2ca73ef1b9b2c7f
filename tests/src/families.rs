//! What the runner knows of the client programs: the scenario list, the families, and how a
//! program is started and its lines are read. `tests/clients/README.md` is the contract's text;
//! a test here keeps the two lists the same.
//!
//! Never does: know anything of one particular client. That lives in its folder.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::repository::{root, run_quietly};
use crate::{Error, Result};

/// In the order in which they run.
pub const FAMILIES: [&str; 9] = [
    "java",
    "python-confluent",
    "python-kafka",
    "python-aiokafka",
    "go-franz",
    "go-sarama",
    "node-kafkajs",
    "rust-rdkafka",
    "tools",
];

pub const SCENARIOS: [&str; 58] = [
    "create-topic",
    "produce-sync",
    "produce-async",
    "codec-none",
    "codec-gzip",
    "codec-snappy",
    "codec-lz4",
    "codec-zstd",
    "acks-0",
    "acks-1",
    "acks-all",
    "idempotent",
    "large-record",
    "oversize-record",
    "empty-and-null",
    "headers",
    "many-partitions",
    "consume-earliest",
    "consume-latest",
    "consume-timestamp",
    "consume-offset",
    "long-poll",
    "delete-recreate",
    "unknown-topic",
    "admin",
    "compact",
    "compact-delete",
    "retention-size",
    "retention-time",
    "delete-records",
    "offsets-for-times",
    "times-in-batches",
    "times-log-append",
    "times-and-delete-records",
    "move-between-dirs",
    "group-classic",
    "group-cooperative",
    "group-consumer",
    "group-rolling",
    "group-rolling-cooperative",
    "group-rolling-consumer",
    "group-handover",
    "group-static",
    "group-static-consumer",
    "group-regex",
    "group-migration",
    "group-admin",
    "group-offsets",
    "group-configs",
    "offsets-topic",
    "txn-commit-abort",
    "txn-fencing",
    "txn-consume-transform",
    "txn-timeout",
    "txn-broker-kill",
    "txn-client-kill",
    "streams-word-count",
    "txn-old-protocol",
];

/// What the family `tools` has instead: a scenario for each of Kafka's own tools.
pub const TOOLS: [&str; 29] = [
    "kafka-topics",
    "kafka-configs",
    "kafka-get-offsets",
    "kafka-producer-perf-test",
    "kafka-delete-records",
    "kafka-log-dirs",
    "kafka-reassign-partitions",
    "kafka-reassign-log-dirs",
    "kafka-cluster",
    "kafka-storage",
    "kafka-console-producer",
    "kafka-console-consumer",
    "kafka-console-consumer-group",
    "kafka-consumer-groups",
    "kafka-consumer-groups-reset",
    "kafka-consumer-groups-delete",
    "kafka-groups",
    "kafka-verifiable-consumer",
    "kafka-consumer-perf-test",
    "kafka-features",
    "kafka-dump-log-offsets",
    "kafka-transactions",
    "kafka-transactions-abort",
    "kafka-transactions-hanging",
    "corelane-txn",
    "kafka-producer-perf-test-transactional",
    "kafka-console-consumer-isolation",
    "kafka-dump-log",
    "kafka-dump-log-compacted",
];

/// A program that prints no result for this long is given up. Every scenario ends itself before.
const SILENCE: Duration = Duration::from_secs(120);
/// Lines a program may be ahead of the runner.
const LINES_AHEAD: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub scenario: String,
    /// The reason, if it failed.
    pub failure: Option<String>,
}

impl Outcome {
    /// Reads `ok <scenario>` or `not ok <scenario>: <reason>`; nothing else is a result.
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some(scenario) = line.strip_prefix("ok ") {
            return Some(Self { scenario: scenario.trim().to_owned(), failure: None });
        }
        let (scenario, reason) = line.strip_prefix("not ok ")?.split_once(':')?;
        Some(Self { scenario: scenario.trim().to_owned(), failure: Some(reason.trim().to_owned()) })
    }

    fn failed(scenario: &str, reason: impl Into<String>) -> Self {
        Self { scenario: scenario.to_owned(), failure: Some(reason.into()) }
    }
}

/// What a program says on its stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Outcome(Outcome),
    /// The broker is to be killed and started again, while the program goes on.
    KillBroker,
}

impl Said {
    fn parse(line: &str) -> Option<Self> {
        if line.trim() == "kill broker" {
            return Some(Self::KillBroker);
        }
        Outcome::parse(line).map(Self::Outcome)
    }
}

#[derive(Debug)]
pub struct Family {
    pub name: String,
    script: PathBuf,
}

impl Family {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), script: root().join("tests/clients").join(name).join("run") }
    }

    pub fn exists(&self) -> bool {
        self.script.is_file()
    }

    /// Builds the program and gives the scenarios it has. `Error::Missing` if a toolchain is not
    /// there.
    pub fn build(&self) -> Result<Vec<String>> {
        let listed = run_quietly(Command::new(&self.script).arg("--list"))?;
        Ok(listed.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect())
    }

    /// Runs `expected` scenarios (`only` one of them, if named), and tells `report` of each in
    /// turn, whatever the program does, and of what else the program wants. `corelane` is the
    /// binary whose client commands some scenarios run.
    pub fn run(
        &self,
        broker: (&str, &str),
        corelane: &Path,
        only: Option<&str>,
        expected: &[String],
        mut report: impl FnMut(Said),
    ) -> Result<()> {
        let (bootstrap, data_dirs) = broker;
        let mut command = Command::new(&self.script);
        command.args(["--bootstrap", bootstrap, "--data-dir", data_dirs]);
        command.env("CORELANE_BIN", corelane);
        if let Some(scenario) = only {
            command.args(["--only", scenario]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child =
            command.spawn().map_err(Error::io(format!("start {}", self.script.display())))?;
        let lines = lines_of(&mut child);
        let mut waiting: Vec<&String> = expected.iter().collect();
        let why = loop {
            match lines.recv_timeout(SILENCE) {
                Ok(line) => match Said::parse(&line) {
                    Some(said) => {
                        if let Said::Outcome(outcome) = &said {
                            waiting.retain(|name| **name != outcome.scenario);
                        }
                        report(said);
                    }
                    None => report(Said::Outcome(Outcome::failed(
                        "contract",
                        format!("a line on stdout that is no result: {line}"),
                    ))),
                },
                Err(RecvTimeoutError::Timeout) => break format!("no result for {SILENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => break "the program ended".to_owned(),
            }
        };
        kill_group(&child);
        let status = child.wait().map_err(Error::io("wait for the client program"))?;
        for scenario in waiting {
            let failed = Outcome::failed(scenario, format!("no result: {why} ({status})"));
            report(Said::Outcome(failed));
        }
        Ok(())
    }
}

/// The program's stdout, line by line. Disconnects when every process that holds it is gone.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_AHEAD);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Ends the program and what it started; they share a process group of their own.
fn kill_group(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that the group is already gone.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_and_other_lines_are_not() {
        let passed = Outcome { scenario: "headers".into(), failure: None };
        assert_eq!(Outcome::parse("ok headers\n"), Some(passed));
        assert_eq!(
            Outcome::parse("not ok acks-1: offsets: 0, 2"),
            Some(Outcome::failed("acks-1", "offsets: 0, 2"))
        );
        for line in ["", "okay headers", "not ok headers", "warning: ok headers"] {
            assert_eq!(Outcome::parse(line), None, "{line}");
        }
        assert_eq!(Said::parse("kill broker\n"), Some(Said::KillBroker));
    }

    #[test]
    fn the_readme_lists_the_same_scenarios_and_families() {
        let text = std::fs::read_to_string(root().join("tests/clients/README.md")).unwrap();
        let headings = [
            "## Scenarios",
            "## Deleting",
            "## Offsets by timestamp",
            "## Directories",
            "## Groups",
            "## Transactions",
        ];
        assert_eq!(headings.map(|heading| first_cells(&text, heading)).concat(), SCENARIOS);
        assert_eq!(first_cells(&text, "## Tools"), TOOLS);
        assert_eq!(first_cells(&text, "## Families"), FAMILIES);
    }

    /// The back-quoted names in the first cells of the table under a heading.
    fn first_cells(text: &str, heading: &str) -> Vec<String> {
        let section = text.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
        let cells = section.lines().filter(|line| line.starts_with("| `"));
        cells
            .flat_map(|line| line.split('|').nth(1).unwrap().split(','))
            .map(|name| name.trim().trim_matches('`').to_owned())
            .collect()
    }
}
