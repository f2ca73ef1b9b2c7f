//! `corelane group` and `corelane consume --group` against a running broker, Corelane's or, with
//! `AGAINST=kafka`, Apache Kafka's.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, binary, numbers, sorted};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_group_goes_on_where_it_was_and_is_shown_reset_and_deleted() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "orders", "-p", "4"]).done();
    cluster.feed(&["produce", "orders"], numbers(1..=200).as_bytes()).done();
    assert_eq!(lines(&cluster, &["group", "list"]), Vec::<String>::new());

    let first = cluster.run(&["consume", "orders", "--group", "billing", "-n", "50"]).done();
    assert_eq!(first.lines().count(), 50);
    let rest = cluster.run(&["consume", "orders", "-g", "billing"]).done();
    assert_eq!(sorted(&format!("{first}{rest}")), numbers(1..=200), "each once");
    assert_eq!(cluster.run(&["consume", "orders", "-g", "billing"]).done(), "");

    assert_eq!(lines(&cluster, &["group", "list"]), ["billing  consumer  empty"]);
    assert_eq!(lines(&cluster, &["group", "list", "--state", "stable"]), Vec::<String>::new());
    let shown = cluster.run(&["group", "describe", "billing"]).done();
    assert!(
        shown.starts_with("billing  consumer  empty  members 0  lag 0  coordinator "),
        "{shown}"
    );

    let to = ["group", "reset", "billing", "orders", "--to", "earliest"];
    let dry = cluster.run(&[&to[..], &["--dry-run"]].concat()).done();
    assert!(dry.ends_with("nothing was changed (--dry-run)\n"), "{dry}");
    assert!(cluster.run(&["group", "describe", "billing"]).done().contains("  lag 0  "));
    let reset = cluster.run(&to).done();
    assert_eq!(reset.lines().filter(|line| line.ends_with(" -> 0")).count(), 4, "{reset}");
    assert!(cluster.run(&["group", "describe", "billing"]).done().contains("  lag 200  "));
    let again = cluster.run(&["consume", "orders", "-g", "billing"]).done();
    assert_eq!(sorted(&again), numbers(1..=200), "everything once more");
    cluster.run(&["group", "reset", "billing", "orders:0", "--to", "999"]).refused(1, &["999"]);

    assert_eq!(cluster.run(&["group", "delete", "billing"]).done(), "billing deleted\n");
    cluster.run(&["group", "delete", "billing"]).refused(1, &["no group billing"]);
    cluster.run(&["group", "describe", "billing"]).refused(1, &["no group billing", "group list"]);
    cluster.run(&["consume", "orders:1", "-g", "billing"]).refused(2, &["--group"]);
}

#[test]
fn members_share_the_partitions_and_leave_when_they_are_interrupted() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "orders", "-p", "4"]).done();
    let follow = ["consume", "orders", "-g", "billing", "--follow", "--from", "earliest"];
    let mut first = Following::start(&cluster, &follow);
    until("one member", || members(&cluster).as_deref() == Some("1"));
    let mut second = Following::start(&cluster, &follow);
    until("two members with two partitions each", || {
        let shown = cluster.run(&["group", "describe", "billing"]).stdout;
        shown.contains("  stable  ") && shown.matches("  partitions 2\n").count() == 2
    });
    cluster.feed(&["produce", "orders"], numbers(1..=400).as_bytes()).done();
    until("everything to be committed", || committed(&cluster) == 400);
    cluster.run(&["group", "delete", "billing"]).refused(1, &["has members", "stop its consumers"]);
    let to = ["group", "reset", "billing", "orders", "--to", "latest"];
    cluster.run(&to).refused(1, &["has members", "stop its consumers"]);
    let first = first.interrupt();
    until("one member", || members(&cluster).as_deref() == Some("1"));
    let second = second.interrupt();
    until("no member", || members(&cluster).as_deref() == Some("0"));
    let both: BTreeSet<&str> = first.lines().chain(second.lines()).collect();
    assert_eq!(both.len(), 400, "everything was read");
    assert_eq!(first.lines().count() + second.lines().count(), 400, "and nothing twice");
}

/// Kills the broker again and again while members read and commit.
#[test]
fn commits_that_were_acknowledged_survive_a_killed_broker() {
    const RECORDS: u32 = 3_000;
    let mut cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "orders", "-p", "4"]).done();
    let follow = ["consume", "orders", "-g", "billing", "--follow", "--from", "earliest"];
    let mut first = Following::start(&cluster, &follow);
    let mut second = Following::start(&cluster, &follow);
    until("two members", || members(&cluster).as_deref() == Some("2"));
    let mut before = 0;
    for round in 0..3 {
        let from = round * RECORDS / 3;
        for part in 0..10 {
            let begin = from + part * RECORDS / 30;
            let some = numbers(begin + 1..=begin + RECORDS / 30);
            cluster.feed(&["produce", "orders"], some.as_bytes()).done();
        }
        until("something to be committed", || committed(&cluster) > before);
        before = committed(&cluster);
        cluster.broker.kill();
        cluster.broker.start().expect("the broker comes back");
        let after = committed(&cluster);
        assert!(after >= before, "round {round}: {before} were committed, {after} are");
        before = after;
    }
    until("everything to be committed", || committed(&cluster) == u64::from(RECORDS));
    let read = first.interrupt() + &second.interrupt();
    let distinct: BTreeSet<u32> =
        read.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(distinct.into_iter().eq(1..=RECORDS), "every record was read");
}

/// Everything that the group has committed.
fn committed(cluster: &Cluster) -> u64 {
    let shown = cluster.run(&["group", "describe", "billing"]).done();
    let offset =
        |line: &str| line.split("  committed ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    shown.lines().filter_map(offset).sum()
}

fn members(cluster: &Cluster) -> Option<String> {
    let shown = cluster.run(&["group", "describe", "billing"]).stdout;
    Some(shown.split("  members ").nth(1)?.split(' ').next()?.to_owned())
}

fn lines(cluster: &Cluster, arguments: &[&str]) -> Vec<String> {
    cluster.run(arguments).done().lines().map(str::to_owned).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A command that runs until it is interrupted.
struct Following(Option<Child>);

impl Following {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let child = Command::new(binary())
            .args(arguments)
            .args(["--bootstrap", &cluster.broker.bootstrap()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        Following(Some(child))
    }

    /// As Ctrl-C does; gives what it printed.
    fn interrupt(&mut self) -> String {
        let child = self.0.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // A test that failed leaves nothing running.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
