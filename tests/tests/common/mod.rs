//! Runs the `corelane` binary as a person would: arguments and stdin in; code, stdout, stderr out.

#![allow(dead_code, reason = "each suite uses its own part")]
#![allow(clippy::expect_used, reason = "helpers of tests")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use corelane_tests::repository::corelane_binary;
use corelane_tests::{Broker, BrokerOptions, Target};

/// What a run ended with.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Failed with this code and one line on stderr that has these words; gives the line.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        let is_error = |line: &&str| !line.starts_with("corelane: warning: ");
        let lines: Vec<&str> = self.stderr.lines().filter(is_error).collect();
        assert_eq!(lines.len(), 1, "more than one line: {}", self.stderr);
        assert!(lines[0].starts_with("corelane: "), "{}", lines[0]);
        for word in words {
            assert!(lines[0].contains(word), "`{word}` is not in: {}", lines[0]);
        }
        lines[0].to_owned()
    }
}

pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| corelane_binary().expect("the binary builds"))
}

/// Runs to the end.
pub fn corelane(arguments: &[&str], stdin: &[u8]) -> Ended {
    let mut child = Command::new(binary())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut input = child.stdin.take().expect("a pipe");
    let stdin = stdin.to_vec();
    // On a thread of its own, as the output may fill its pipe first. A program that stops reading
    // is the business of the assertions.
    let feeding = std::thread::spawn(move || drop(input.write_all(&stdin)));
    let output = child.wait_with_output().expect("it ends");
    feeding.join().expect("the input is written");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A broker and the client commands that talk to it.
pub struct Cluster {
    pub broker: Broker,
}

impl Cluster {
    /// Corelane, or Apache Kafka if `AGAINST=kafka` asks for it.
    pub fn start(shards: u16) -> Self {
        let against = std::env::var("AGAINST").unwrap_or_default();
        let target = if against == "kafka" { Target::ApacheKafka } else { Target::Corelane };
        Self::start_with(BrokerOptions { shards, ..BrokerOptions::new(target) })
    }

    pub fn start_with(options: BrokerOptions) -> Self {
        Cluster { broker: Broker::start_new(options).expect("the broker starts") }
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.feed(arguments, b"")
    }

    pub fn feed(&self, arguments: &[&str], stdin: &[u8]) -> Ended {
        let bootstrap = self.broker.bootstrap();
        let mut all = arguments.to_vec();
        all.extend(["--bootstrap", &bootstrap]);
        corelane(&all, stdin)
    }
}

/// `1\n2\n...n\n`
pub fn numbers(range: std::ops::RangeInclusive<u32>) -> String {
    range.map(|n| format!("{n}\n")).collect()
}

/// The lines in numeric order: partitions come in any order.
pub fn sorted(text: &str) -> String {
    let mut all: Vec<u32> = text.lines().map(|l| l.parse().expect("a number")).collect();
    all.sort_unstable();
    all.iter().map(|n| format!("{n}\n")).collect()
}
