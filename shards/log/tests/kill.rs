//! kill -9 on real files: a child process appends and reports what was acknowledged through a
//! pipe; it is killed at some moment; everything it reported must be there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use common::*;
use log::{Log, LogConfig};

const CHILD_DIR: &str = "CORELANE_KILL_TEST_DIR";
const CHILD_ROUND: &str = "CORELANE_KILL_TEST_ROUND";
const ROUNDS: u64 = 12;
const PRODUCERS: u64 = 8;

fn config(round: u64) -> LogConfig {
    LogConfig {
        segment_bytes: 300_000,
        flush_messages: if round.is_multiple_of(3) { 1 } else { u64::MAX },
        ..LogConfig::default()
    }
}

/// Runs only as the child of the test below.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let round: u64 = std::env::var(CHILD_ROUND).unwrap().parse().unwrap();
    on_uring(move || async move {
        let (log, recovered) = open(&shared(1 << 20), PathBuf::from(dir), config(round)).await;
        report(&format!("opened {}", recovered.log_end_offset));
        let log = Rc::new(log);
        let producers = (0..PRODUCERS).map(|p| {
            let log = Rc::clone(&log);
            reactor::spawn(async move {
                for n in 0.. {
                    let number = (round * PRODUCERS + p) * 1_000_000 + n;
                    let value = value(number, 50 + (number as usize * 37) % 3_000);
                    let appended = append(&log, &batch(&[value], NOW_MS)).await;
                    log.acknowledged(appended.last_offset + 1).await.unwrap();
                    report(&format!("acked {} {number}", appended.base_offset));
                }
            })
        });
        reactor::join_all(producers.collect::<Vec<_>>()).await;
    });
}

/// One write, so that a line is reported whole or not at all.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[test]
fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kill-0");
    let mut acked: BTreeMap<i64, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let lines = run_and_kill(&path, round, Duration::from_millis(120 + (round * 83) % 300));
        let mut count = 0;
        for line in &lines {
            let mut words = line.split(' ');
            if words.next() == Some("acked") {
                let offset = words.next().unwrap().parse().unwrap();
                let number = words.next().unwrap().parse().unwrap();
                let before = acked.insert(offset, number);
                assert_eq!(before, None, "offset {offset} was given twice");
                count += 1;
            }
        }
        assert!(count > 0, "the child of round {round} acknowledged nothing: {lines:?}");
    }
    let expected = acked.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, config(0)).await;
        check(&log, &expected).await;
        log.close().await.unwrap();
    });
}

async fn check(log: &Log, acked: &BTreeMap<i64, u64>) {
    let there: BTreeMap<i64, Vec<u8>> = read_all(log, 200_000).await.into_iter().collect();
    for (offset, number) in acked {
        let expected = value(*number, 50 + (*number as usize * 37) % 3_000);
        assert_eq!(there.get(offset), Some(&expected), "offset {offset}");
    }
    assert!(log.log_end_offset() > *acked.keys().next_back().unwrap());
}

fn run_and_kill(dir: &Path, round: u64, after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_appends_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    let mut line = String::new();
    // The clock starts when it is at work, however long the machine took to start it.
    while !line.starts_with("acked") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the child of round {round} ended");
        lines.push(line.trim().to_owned());
    }
    let collect = std::thread::spawn(move || {
        let mut lines = Vec::new();
        let mut rest = Vec::new();
        while reader.read_until(b'\n', &mut rest).unwrap() > 0 {
            if rest.ends_with(b"\n") {
                lines.push(String::from_utf8(rest.clone()).unwrap().trim().to_owned());
            }
            rest.clear();
        }
        lines
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.extend(collect.join().unwrap());
    lines
}
