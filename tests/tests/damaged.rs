//! A bit of a batch flips on the disk, and Java's consumer meets it: on Corelane and on Apache
//! Kafka the application sees the records before it, then an error, and never what the bit made of
//! a record. Behind the damage everything can be read.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Cluster, numbers};
use corelane_tests::repository::{root, run_quietly};
use corelane_tests::{BrokerOptions, Target};

/// Records of one `produce`, in a batch or a few of their own.
const PART: u32 = 100;

/// Kafka's console consumer, from an offset of the one partition on, until it fails or has read so
/// many.
fn consume(cluster: &Cluster, from: u32, most: u32) -> Output {
    let jars = run_quietly(&mut Command::new(root().join("tests/kafka/resolve")));
    let jars = format!("{}/*", jars.expect("Kafka's jars").trim());
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &jars]);
    command.arg("org.apache.kafka.tools.consumer.ConsoleConsumer");
    command.args(["--bootstrap-server", &cluster.broker.bootstrap(), "--topic", "t"]);
    command.args(["--partition", "0", "--offset", &from.to_string()]);
    command.args(["--max-messages", &most.to_string(), "--timeout-ms", "60000"]);
    command.stdin(Stdio::null()).output().expect("java starts")
}

/// Flips a bit amid the records of the batch that begins at this offset.
fn flip(segment: &Path, offset: i64) {
    let mut bytes = std::fs::read(segment).expect("a segment");
    let (mut at, mut place) = (0, None);
    for batch in wire::records::batches(&bytes) {
        let batch = batch.expect("whole batches");
        if batch.header().base_offset == offset {
            place = Some(at + batch.bytes().len() / 2);
        }
        at += batch.bytes().len();
    }
    bytes[place.expect("a batch begins there")] ^= 1;
    std::fs::write(segment, bytes).expect("it can be written");
}

fn a_consumer_meets_damage(target: Target) {
    let options = BrokerOptions { shards: 1, ..BrokerOptions::new(target) };
    let mut cluster = Cluster::start_with(options);
    cluster.run(&["topic", "create", "t", "-p", "1"]).done();
    for part in 0..3 {
        let lines = numbers(part * PART + 1..=(part + 1) * PART);
        cluster.feed(&["produce", "t"], lines.as_bytes()).done();
    }
    let all = consume(&cluster, 0, 3 * PART);
    assert_eq!(String::from_utf8_lossy(&all.stdout), numbers(1..=3 * PART), "{all:?}");
    cluster.broker.stop().expect("it stops");
    flip(&cluster.broker.data_dir().join("t-0/00000000000000000000.log"), i64::from(PART));
    cluster.broker.start().expect("it starts again");

    let met = consume(&cluster, 0, 3 * PART);
    let (seen, told) = (String::from_utf8_lossy(&met.stdout), String::from_utf8_lossy(&met.stderr));
    assert_eq!(seen, numbers(1..=PART), "{}: {told}", target.name());
    let told = told.to_lowercase();
    assert!(told.contains("corrupt"), "{}: nobody is told: {told}", target.name());
    // A timeout would mean that the consumer has tried again and again in silence.
    assert!(!told.contains("timeoutexception"), "{}: {told}", target.name());

    let behind = consume(&cluster, 2 * PART, PART);
    let seen = String::from_utf8_lossy(&behind.stdout);
    assert_eq!(seen, numbers(2 * PART + 1..=3 * PART), "{}: behind it", target.name());
}

#[test]
fn a_damaged_batch_on_corelane_is_an_error_for_the_application() {
    a_consumer_meets_damage(Target::Corelane);
}

#[test]
fn a_damaged_batch_on_apache_kafka_is_the_same() {
    a_consumer_meets_damage(Target::ApacheKafka);
}
