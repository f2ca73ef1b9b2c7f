//! `corelane bench` as its users have it: against a stub that stalls, and every kind of workload
//! against Corelane. Lower bounds only where the stub is told to be slow; no speed is asserted.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod stub;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::{Args as _, FromArgMatches as _};
use corelane_tests::{Broker, BrokerOptions, Target, repository};
use rig::bench::{self, BenchArgs};
use rig::report::{Loop, Report, Row, schema};
use rustix::process::{Pid, Signal, kill_process};

use stub::Stub;

fn arguments(text: &[&str]) -> BenchArgs {
    let command = BenchArgs::augment_args(clap::Command::new("bench"));
    let matches = command.try_get_matches_from([&["bench"], text].concat()).unwrap();
    BenchArgs::from_arg_matches(&matches).unwrap()
}

/// Runs in this process and gives the report, which has to be as its schema says.
fn run(at: &str, out: &Path, flags: &[&str]) -> Report {
    let out_text = out.display().to_string();
    let args = arguments(&[flags, &["--bootstrap", at, "--out", &out_text]].concat());
    let command = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let done = bench::run(&args, command, &AtomicBool::new(false)).unwrap();
    let report = read(out);
    assert_eq!(report.failures, Vec::<String>::new(), "{flags:?}");
    assert!(done.text.contains("| what | loop | measure |"));
    report
}

fn read(out: &Path) -> Report {
    let text = std::fs::read_to_string(out.join("report.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(schema::violations(&value), Vec::<String>::new());
    assert!(out.join("report.md").exists());
    serde_json::from_value(value).unwrap()
}

fn value(row: &Row, name: &str) -> f64 {
    let measure = row.measure(name);
    measure.unwrap_or_else(|| panic!("no {name} in {:?}", row.title)).value
}

#[test]
fn a_stall_of_a_second_is_charged_for_all_that_was_due_in_it() {
    let second = Duration::from_secs(1);
    let stub = Stub::start(Some((Duration::from_millis(500), second)));
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--rate=1000",
        "--partitions=4",
        "--idempotence=false",
        "--warmup-seconds=0",
        "--seconds=3",
        "--slip-ms=10000",
    ];
    let report = run(&stub.address.to_string(), folder.path(), &flags);
    let row = &report.rows[0];
    assert_eq!((row.kind, &row.void_reason), (Loop::Open, &None));
    let latency = &row.histograms[0];
    // The schedule was fixed in advance: nothing that was due during the stall is left out.
    assert_eq!(latency.count, 3_000);
    assert!(latency.max >= 1_000_000_000, "{latency:?}");
    // A tenth of a second into the stall nine tenths of its records wait longer than that.
    let waited: u64 = latency
        .buckets
        .iter()
        .filter(|(value, _)| *value > 100_000_000)
        .map(|(_, count)| count)
        .sum();
    assert!(waited >= 850, "{waited} records waited");
    assert!(value(row, "produce p99.9") >= 950.0);
    assert!(value(row, "produce p99") >= 900.0);
    // And it ended: most records were not held up by it.
    assert!(value(row, "produce p50") < 900.0);
    let file = folder.path().join(latency.file.as_ref().unwrap());
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("Total count    =         3000]"), "{text}");
}

#[test]
fn a_client_that_is_late_by_itself_makes_its_row_void() {
    let stub = Stub::start(None);
    let folder = tempfile::tempdir().unwrap();
    // No client takes up a record within a microsecond of its being due.
    let flags = [
        "--rate=500",
        "--partitions=4",
        "--idempotence=false",
        "--warmup-seconds=0",
        "--seconds=0.5",
        "--slip-ms=0.001",
    ];
    let report = run(&stub.address.to_string(), folder.path(), &flags);
    let why = report.rows[0].void_reason.as_ref().unwrap();
    assert!(why.starts_with("the client was late by itself"), "{why}");
    let page = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
    assert!(page.contains("**Void**") && page.contains("~~"), "{page}");
}

#[test]
fn ctrl_c_leaves_a_report_of_what_there_is() {
    let stub = Stub::start(None);
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(repository::corelane_binary().unwrap())
        .args(["bench", "--rate", "200,400", "--partitions", "4", "--idempotence", "false"])
        .args(["--warmup-seconds", "0", "--seconds", "3600"])
        .args(["--bootstrap", &stub.address.to_string()])
        .arg("--out")
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while stub.produces() < 20 {
        assert!(Instant::now() < deadline, "no load within a minute");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("**Ended early: Ctrl-C.**"));
    let report = read(folder.path());
    assert_eq!(report.ended_early.as_deref(), Some("Ctrl-C"));
    let row = &report.rows[0];
    assert_eq!((report.rows.len(), row.labels.as_slice()), (1, &["stopped early".to_owned()][..]));
    assert!(row.histograms[0].count > 0 && value(row, "records") > 0.0);
}

#[test]
fn every_kind_of_workload_measures_something_on_corelane() {
    every_kind_measures_something(Target::Corelane, "direct I/O");
}

#[test]
#[ignore = "by hand: needs Maven and Java, and a minute or two"]
fn every_kind_of_workload_measures_something_on_apache_kafka() {
    every_kind_measures_something(Target::ApacheKafka, "in the page cache");
}

fn every_kind_measures_something(target: Target, durability: &str) {
    let options = BrokerOptions { shards: 2, ..BrokerOptions::new(target) };
    let options = options.with("group.initial.rebalance.delay.ms", 0);
    let broker = Broker::start_new(options).unwrap();
    let at = broker.bootstrap();
    let pid = format!("--broker-pid={}", broker.pid().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let short =
        ["--warmup-seconds=0.2", "--seconds=0.5", "--partitions=4", "--slip-ms=10000", &pid];
    let measured = |name: &str, flags: &[&str]| -> Report {
        let report = run(&at, &folder.path().join(name), &[&short[..], flags].concat());
        assert_eq!(report.brokers[0].name, target.name());
        assert!(report.rows.iter().all(|row| row.durability.contains(durability)), "{name}");
        report
    };
    let rate = |report: &Report| value(&report.rows[0], "records");
    let all_of = |report: &Report, count: u64| {
        let row = &report.rows[0];
        assert_eq!(row.histograms[0].count, count, "{}", row.title);
        assert!(row.labels.is_empty(), "{:?}", row.labels);
    };

    let max = measured("max", &["--rate=max"]);
    assert_eq!(max.rows[0].kind, Loop::Closed);
    assert!(max.rows[0].histograms.is_empty() && rate(&max) > 0.0);
    assert!(value(&max.rows[0], "broker CPU") > 0.0 && value(&max.rows[0], "broker memory") > 0.0);
    let keyed = measured("keyed", &["--rate=max", "--keys=100", "--record-bytes=10-200"]);
    assert!(rate(&keyed) > 0.0);
    let steady = ["--rate=1000", "--kind=end-to-end"];
    let with = |name: &str, flags: &[&str]| measured(name, &[&steady[..], flags].concat());
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let codec = format!("--codec={codec}");
        let report = with(&codec, &[&codec, "--value=text"]);
        all_of(&report, 500);
        // Every record came to the consumer, once.
        assert_eq!(report.rows[0].histograms[1].name, "end-to-end latency");
        assert_eq!(report.rows[0].histograms[1].count, 500);
    }
    for protocol in ["classic", "consumer"] {
        let flag = format!("--group-protocol={protocol}");
        let report = with(protocol, &[&flag, "--groups=2", "--consumers=2", "--topics=2"]);
        all_of(&report, 500);
        assert_eq!(report.rows[0].histograms[1].count, 1_000);
    }
    let transactions = with("txn", &["--transaction-records=50", "--producers=2"]);
    all_of(&transactions, 500);
    let names: Vec<&str> =
        transactions.rows[0].histograms.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["produce latency", "end-to-end latency", "transaction latency"]);
    assert!(value(&transactions.rows[0], "transactions") > 0.0);
    for acks in ["0", "1"] {
        let acks = format!("--acks={acks}");
        let report = run(
            &at,
            &folder.path().join(&acks),
            &[&short[..], &["--rate=1000", &acks, "--idempotence=false"]].concat(),
        );
        all_of(&report, 500);
    }
    let mixed = measured("mixed", &["--kind=mixed", "--rate=500", "--backlog-mib=4"]);
    assert!(value(&mixed.rows[0], "read from the backlog") > 0.0);
    let consume = measured("consume", &["--kind=consume", "--backlog-mib=4"]);
    assert!(value(&consume.rows[0], "read from the backlog") > 0.0);
    let many = measured("many", &["--rate=1000", "--producers=200", "--arrivals=poisson"]);
    assert!(value(&many.rows[0], "connections") >= 200.0);
    let curve = measured("curve", &["--rate=200,400", "--repeats=2", "--linger-ms=0"]);
    assert_eq!(curve.rows.len(), 2);
    assert_eq!(curve.rows[1].measure("produce p99").unwrap().samples.len(), 2);
    assert_eq!(curve.rows[1].curve.as_ref().unwrap().x, 400.0);
}

#[test]
fn what_a_consumer_has_not_read_by_the_end_counts() {
    let options = BrokerOptions { shards: 1, ..BrokerOptions::new(Target::Corelane) };
    let broker = Broker::start_new(options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A consumer that gets its first answer long after the load has ended.
    let flags = [
        "--kind=end-to-end",
        "--rate=1000",
        "--partitions=1",
        "--idempotence=false",
        "--warmup-seconds=0",
        "--seconds=0.5",
        "--slip-ms=10000",
        "--fetch-min-bytes=50000000",
        "--fetch-max-wait-ms=60000",
    ];
    let report = run(&broker.bootstrap(), folder.path(), &flags);
    let row = &report.rows[0];
    let label = "500 records were not consumed when the load ended";
    assert!(row.labels.iter().any(|one| one.starts_with(label)), "{:?}", row.labels);
    assert_eq!(row.histograms[1].count, 500);
    // As long as the load waits for what is on the way.
    assert!(value(row, "end-to-end p50") >= 9_000.0);
}

#[test]
fn a_rate_that_is_measured_twice_has_two_histograms() {
    let stub = Stub::start(None);
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--rate=500,500",
        "--partitions=4",
        "--idempotence=false",
        "--warmup-seconds=0",
        "--seconds=0.2",
    ];
    let report = run(&stub.address.to_string(), folder.path(), &flags);
    let files: Vec<_> =
        report.rows.iter().filter_map(|row| row.histograms[0].file.as_deref()).collect();
    assert!(files.len() == 2 && files[0] != files[1], "{files:?}");
    assert!(files.iter().all(|file| folder.path().join(file).exists()), "{files:?}");
}

#[test]
fn a_broker_whose_process_is_not_there_is_refused() {
    // Larger than any process id.
    let args = arguments(&["--bootstrap=127.0.0.1:1", "--broker-pid=99999999", "--seconds=3600"]);
    let error = bench::run(&args, Vec::new(), &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("--broker-pid 99999999"), "{error}");
}

#[test]
fn a_broker_that_goes_away_ends_the_load() {
    let stub = Stub::start(None);
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Command::new("sleep").arg("1").spawn().unwrap();
    let pid = format!("--broker-pid={}", broker.id());
    std::thread::spawn(move || broker.wait());
    let begun = Instant::now();
    let (at, out) = (stub.address.to_string(), folder.path().display().to_string());
    let args = arguments(&[
        "--rate=500",
        "--partitions=4",
        "--idempotence=false",
        "--warmup-seconds=3",
        "--seconds=120",
        "--bootstrap",
        &at,
        "--out",
        &out,
        &pid,
    ]);
    bench::run(&args, Vec::new(), &AtomicBool::new(false)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "it went on to its end");
    assert_eq!(read(folder.path()).failures.len(), 1);
}
