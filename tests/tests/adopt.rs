//! Topics of Apache Kafka in Corelane and back, and `dump` beside Kafka's own tool: with the real
//! broker, the real clients and the real kafka-dump-log.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, corelane};
use corelane_tests::repository::{root, run_quietly, temporary_folder};
use corelane_tests::{Broker, BrokerOptions, Target};

const TOPICS: [&str; 3] = ["adopt-codecs", "adopt-transactions", "adopt-compacted"];

/// The Java program that writes and reads.
fn program(arguments: &[&str]) -> String {
    let mut command = Command::new(root().join("tests/clients/adopt/run"));
    run_quietly(command.args(arguments)).expect("the program ends well")
}

fn read(broker: &Broker, topics: &[&str]) -> String {
    let bootstrap = broker.bootstrap();
    let mut arguments = vec!["read", bootstrap.as_str()];
    arguments.extend(topics);
    program(&arguments)
}

fn kafka() -> Broker {
    let options = BrokerOptions::new(Target::ApacheKafka)
        .with("log.cleaner.backoff.ms", 200)
        .with("log.retention.check.interval.ms", 500);
    Broker::start_new(options).expect("Kafka starts")
}

/// The partitions' folders of a data directory, the broker's own topics aside.
fn partitions(data_dir: &Path, topics: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data_dir).expect("a data directory");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let of_topics = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.rsplit_once('-').is_some_and(|(topic, _)| topics.contains(&topic))
    };
    found.retain(of_topics);
    found.sort();
    found
}

fn run(arguments: &[&str]) -> Ended {
    corelane(arguments, b"")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn what_kafka_wrote_is_verified_without_alarms() {
    let mut kafka = kafka();
    program(&["write", &kafka.bootstrap()]);
    let data = kafka.data_dir();
    let live = run(&["dump", "--verify", text(&data)]);
    println!("{}", live.stdout);
    kafka.kill();
    let killed = run(&["dump", "--verify", text(&data)]);
    println!("{}", killed.stdout);
    kafka.start().expect("it starts again");
    kafka.stop().expect("it stops");
    let stopped = run(&["dump", "--verify", text(&data)]);
    println!("{}", stopped.stdout);
    live.done();
    killed.done();
    stopped.done();
}
