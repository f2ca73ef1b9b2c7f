//! The client commands against a running broker: what goes in comes out, and what is refused says
//! why. The same suite passes on Apache Kafka:
//! `AGAINST=kafka cargo test -p corelane-tests --test cli`.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use common::{Cluster, binary, corelane, numbers, sorted};

#[test]
fn topics_are_created_listed_described_altered_and_deleted() {
    let cluster = Cluster::start(4);
    let create = ["topic", "create", "orders", "-p", "3", "--set", "retention.ms=3600000"];
    assert_eq!(cluster.run(&create).done(), "orders created\n");
    cluster.run(&create).refused(1, &["TOPIC_ALREADY_EXISTS", "--if-not-exists"]);
    let again = ["topic", "create", "orders", "--if-not-exists"];
    assert_eq!(cluster.run(&again).done(), "orders is there already\n");
    let dry = ["topic", "create", "dry", "--dry-run"];
    assert_eq!(cluster.run(&dry).done(), "dry could be created\n");
    assert_eq!(cluster.run(&["topic", "list"]).done(), "orders\n");

    let shown = cluster.run(&["topic", "describe", "orders", "--configs"]).done();
    assert!(shown.starts_with("orders  partitions 3  replicas 1  id "), "{shown}");
    for partition in 0..3 {
        assert!(shown.contains(&format!("\n  {partition}  leader ")), "{shown}");
    }
    assert!(shown.contains("\n  retention.ms=3600000  (topic)\n"), "{shown}");

    let alter = ["topic", "alter", "orders", "-p", "6", "--set", "max.message.bytes=5000"];
    cluster.run(&[&alter[..], &["--unset", "retention.ms"]].concat()).done();
    let shown = cluster.run(&["topic", "describe", "orders", "--configs"]).done();
    assert!(shown.starts_with("orders  partitions 6 "), "{shown}");
    assert!(shown.contains("max.message.bytes=5000  (topic)"), "{shown}");
    assert!(!shown.contains("retention.ms="), "{shown}");
    let all = cluster.run(&["topic", "describe", "orders", "--all-configs"]).done();
    assert!(all.contains("\n  retention.ms=604800000  (default)\n"), "{all}");
    cluster.run(&["topic", "alter", "orders", "-p", "2"]).refused(1, &["INVALID_PARTITIONS"]);

    let delete = ["topic", "delete", "orders"];
    assert_eq!(cluster.run(&delete).done(), "orders deleted\n");
    cluster.run(&delete).refused(1, &["UNKNOWN_TOPIC_OR_PARTITION", "topic list"]);
    let content = ["topic", "delete", "orders", "--if-exists"];
    assert_eq!(cluster.run(&content).done(), "orders is not there\n");
}

#[test]
fn topics_that_cannot_be_are_refused_with_a_reason() {
    let cluster = Cluster::start(1);
    let create = |more: &[&str]| cluster.run(&[&["topic", "create", "t"], more].concat());
    create(&["-p", "0"]).refused(1, &["INVALID_PARTITIONS"]);
    create(&["-r", "3"]).refused(1, &["INVALID_REPLICATION_FACTOR"]);
    create(&["--set", "retention.mss=1"]).refused(1, &["INVALID_CONFIG", "retention.mss"]);
    create(&["--set", "retention.ms=soon"]).refused(1, &["INVALID_CONFIG"]);
    cluster.run(&["topic", "create", "no spaces"]).refused(1, &["INVALID_TOPIC_EXCEPTION"]);
    assert_eq!(cluster.run(&["topic", "list"]).done(), "");
}

#[test]
fn every_codec_and_acknowledgement_brings_every_record_back() {
    let cluster = Cluster::start(4);
    let sent = numbers(1..=3000);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("codec-{codec}");
        cluster.run(&["topic", "create", &topic, "-p", "4"]).done();
        cluster.feed(&["produce", &topic, "-z", codec], sent.as_bytes()).done();
        assert_eq!(sorted(&cluster.run(&["consume", &topic]).done()), sent, "{codec}");
    }
    for acks in ["0", "1", "all"] {
        let topic = format!("acks-{acks}");
        cluster.run(&["topic", "create", &topic, "-p", "4"]).done();
        cluster.feed(&["produce", &topic, "--acks", acks], sent.as_bytes()).done();
        let count = ["consume", &topic, "--count", "3000", "--follow", "--from", "earliest"];
        assert_eq!(sorted(&cluster.run(&count).done()), sent, "acks {acks}");
    }
}

#[test]
fn keys_headers_partitions_and_nulls_survive_the_round_trip() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "t", "-p", "2"]).done();
    let produce = ["produce", "t", "-k", ":", "--null", "-", "-H", "h=1", "-H", "g=", "-p", "1"];
    let note = cluster.feed(&produce, b"a:1\nb:\n-:-\n:x:y\n");
    assert_eq!((note.code, note.stderr.as_str()), (Some(0), "4 records sent to t\n"));
    let pattern = "%T %p:%o [%k]=[%v] {%h}";
    let shown = cluster.run(&["consume", "t:1", "-o", pattern, "--null", "NULL"]).done();
    assert_eq!(
        shown,
        "t 1:0 [a]=[1] {h=1,g=}\nt 1:1 [b]=[] {h=1,g=}\n\
         t 1:2 [NULL]=[NULL] {h=1,g=}\nt 1:3 []=[x:y] {h=1,g=}\n"
    );
    assert_eq!(cluster.run(&["consume", "t:0"]).done(), "");

    cluster.run(&["topic", "create", "copy", "-p", "2"]).done();
    let json = cluster.run(&["consume", "t", "-o", "json"]).done();
    cluster.feed(&["produce", "copy", "-f", "json"], json.as_bytes()).done();
    let copied = cluster.run(&["consume", "copy", "-o", "json"]).done();
    assert_eq!(copied, json.replace("\"topic\":\"t\"", "\"topic\":\"copy\""));
}

#[test]
fn keys_go_where_kafkas_own_clients_send_them() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "t", "-p", "4"]).done();
    cluster.feed(&["produce", "t", "-k", "="], b"21=x\nfoobar=x\nabc=x\n").done();
    let shown = cluster.run(&["consume", "t", "-o", "%k %p"]).done();
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    // murmur2("21") = -973932308, ("abc") = 479470107, ("foobar") = -790332482; & 0x7fffffff mod 4.
    assert_eq!(lines, ["21 0", "abc 3", "foobar 2"]);
}

#[test]
fn reading_starts_where_it_is_told() {
    let cluster = Cluster::start(1);
    cluster.run(&["topic", "create", "t", "-p", "1"]).done();
    let line = |n: i64| format!("{{\"value\":\"{n}\",\"timestamp\":{}}}\n", 1_700_000_000_000 + n);
    let records: String = (0..100).map(line).collect();
    cluster.feed(&["produce", "t", "-f", "json"], records.as_bytes()).done();
    let read = |from: &str, count: &str| {
        cluster.run(&["consume", "t", "--from", from, "--count", count]).done()
    };
    assert_eq!(read("earliest", "2"), "0\n1\n");
    assert_eq!(read("37", "1"), "37\n");
    assert_eq!(read("-3", "9"), "97\n98\n99\n");
    assert_eq!(read("latest", "1"), "");
    assert_eq!(read("@1700000000050", "1"), "50\n");
    assert_eq!(read("2023-11-14T22:13:20.010Z", "1"), "10\n");
    assert_eq!(read("1m", "1"), "");
    let beyond = cluster.run(&["consume", "t", "--from", "101"]);
    beyond.refused(1, &["t-0 has no offset 101", "0 to 100"]);
    cluster.run(&["consume", "t:7"]).refused(1, &["t has no partition 7"]);
}

#[test]
fn large_and_binary_values_come_back_byte_for_byte() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "t", "-p", "2"]).done();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("value.bin");
    // Not compressible: a small xorshift stream.
    let mut state = 0x9e37_79b9_u32;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    let value: Vec<u8> = (0..900 * 1024).map(|_| step()).collect();
    std::fs::write(&file, &value).expect("written");
    let path = file.to_str().expect("a plain name");
    cluster.run(&["produce", "t", "-f", "file", path]).done();
    let output = Command::new(binary())
        .args(["consume", "t", "--terminator", "", "--bootstrap", &cluster.broker.bootstrap()])
        .output()
        .expect("it runs");
    assert!(output.stdout == value, "{} bytes came back", output.stdout.len());

    cluster.run(&["topic", "create", "small", "--set", "max.message.bytes=10000"]).done();
    let over = cluster.run(&["produce", "small", "-f", "file", path, "--quiet"]);
    assert_eq!(over.code, Some(1));
    assert!(over.stderr.contains("MESSAGE_TOO_LARGE"), "{}", over.stderr);
    // Many small records in one batch that is too large are sent in parts.
    let sent = numbers(1..=5000);
    cluster.feed(&["produce", "small"], sent.as_bytes()).done();
    assert_eq!(cluster.run(&["consume", "small"]).done(), sent);
}

#[test]
fn following_shows_records_as_they_come() {
    let cluster = Cluster::start(2);
    cluster.run(&["topic", "create", "t", "-p", "2"]).done();
    cluster.feed(&["produce", "t"], b"old\n").done();
    let mut reader = Command::new(binary())
        .args(["consume", "t", "--follow", "--from", "-1", "--count", "3"])
        .args(["--bootstrap", &cluster.broker.bootstrap()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(reader.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "old");
    // A writer that stays open: what it has said so far must not wait for the rest.
    let mut writer = Command::new(binary())
        .args(["produce", "t", "--bootstrap", &cluster.broker.bootstrap()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = writer.stdin.take().expect("a pipe");
    for text in ["first", "second"] {
        writeln!(input, "{text}").expect("written");
        input.flush().expect("flushed");
        assert_eq!(next(), text);
    }
    drop(input);
    assert!(writer.wait().expect("it ends").success());
    assert!(reader.wait().expect("it ends").success());
}

#[test]
fn a_reader_of_the_output_that_goes_away_is_no_error() {
    let cluster = Cluster::start(1);
    cluster.run(&["topic", "create", "t", "-p", "1"]).done();
    cluster.feed(&["produce", "t"], numbers(1..=200_000).as_bytes()).done();
    let mut child = Command::new(binary())
        .args(["consume", "t", "--bootstrap", &cluster.broker.bootstrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((line.as_str(), output.status.code()), ("1\n", Some(0)));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn unreachable_brokers_and_unknown_topics_are_told_apart() {
    let nobody = ["topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "1"];
    corelane(&nobody, b"").refused(5, &["127.0.0.1:1", "refused", "--bootstrap"]);
    let cluster = Cluster::start(1);
    let unknown = ["UNKNOWN_TOPIC_OR_PARTITION", "topic list"];
    cluster.run(&["consume", "nowhere"]).refused(1, &unknown);
    cluster.run(&["topic", "describe", "nowhere", "--timeout", "1"]).refused(1, &unknown);
    assert_eq!(cluster.run(&["topic", "list"]).done(), "", "asking has created a topic");
    corelane(&["consume", "t", "-o", "%q"], b"").refused(2, &["%q", "%k key"]);
    corelane(&["produce", "t", "-f", "file"], b"").refused(2, &["no file", "name files"]);
}
