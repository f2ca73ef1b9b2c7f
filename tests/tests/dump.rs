//! `corelane dump` on files that are kept here: the whole text and JSON, line for line.
//!
//! `CORELANE_GOLDEN=write cargo test -p corelane-tests --test dump` writes the expected texts anew;
//! read the difference before it is committed.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};

use common::corelane;
use corelane_tests::repository::{root, temporary_folder};

fn golden(name: &str) -> PathBuf {
    root().join("tests/golden").join(name)
}

/// A partition's folder with a file of every kind.
fn folder(at: &Path) -> PathBuf {
    let dir = at.join("orders-0");
    std::fs::create_dir_all(&dir).expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("a file");
    let batches = std::fs::read(golden("records/java-none.bin")).expect("batches of a Java client");
    let mut segment = batches;
    segment.truncate(600);
    write("00000000000000000000.log", &segment);
    let mut index = Vec::new();
    for (offset, position) in [(4i32, 0i32), (9, 186)] {
        index.extend(offset.to_be_bytes());
        index.extend(position.to_be_bytes());
    }
    index.extend([0; 16]);
    write("00000000000000000000.index", &index);
    let mut times = 1_700_000_300_000i64.to_be_bytes().to_vec();
    times.extend(4i32.to_be_bytes());
    write("00000000000000000000.timeindex", &times);
    let mut aborted = vec![0, 0];
    for field in [4000i64, 10, 14, 15] {
        aborted.extend(field.to_be_bytes());
    }
    write("00000000000000000000.txnindex", &aborted);
    write("00000000000000000000.snapshot", &[0, 1, 0xef, 0xbe, 0xad, 0xde, 0, 0, 0, 0]);
    write("leader-epoch-checkpoint", b"0\n2\n0 0\n3 5\n");
    write("partition.metadata", b"version: 0\ntopic_id: 8V3tlLmzQ1mWjXyv6Wqz4w\n");
    write("recovery-point-offset-checkpoint", b"0\n1\norders 0 10\n");
    write("log-start-offset-checkpoint", b"0\n2\norders 0 0\ncrc32c 0 2426013393\n");
    dir
}

#[track_caller]
fn compare(name: &str, arguments: &[&str], code: i32) {
    let temporary = temporary_folder("dump-").expect("a folder");
    let dir = folder(temporary.path());
    let mut all = vec!["dump"];
    all.extend(arguments);
    let path = dir.to_str().expect("UTF-8");
    all.push(path);
    hold_against(name, temporary.path(), &all, code);
}

#[track_caller]
fn hold_against(name: &str, temporary: &Path, arguments: &[&str], code: i32) {
    let ended = corelane(arguments, b"");
    assert_eq!(ended.code, Some(code), "{}\n{}", ended.stdout, ended.stderr);
    let shown = ended.stdout.replace(temporary.to_str().expect("UTF-8"), "DIR");
    let file = golden("dump").join(name);
    if std::env::var("CORELANE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(golden("dump")).expect("a folder");
        std::fs::write(&file, &shown).expect("a file");
    }
    let expected = std::fs::read_to_string(&file).expect("the expected text");
    for (number, (expected, shown)) in expected.lines().zip(shown.lines()).enumerate() {
        assert_eq!(expected, shown, "line {} of {name}", number + 1);
    }
    assert_eq!(expected.lines().count(), shown.lines().count(), "{name}");
}

#[test]
fn batches_indexes_and_checkpoints_as_text() {
    compare("batches.txt", &[], 0);
}

#[test]
fn records_too() {
    compare("records.txt", &["--records"], 0);
}

#[test]
fn the_same_as_json() {
    compare("records.json", &["--records", "--json"], 0);
}

#[test]
fn what_does_not_fit_together() {
    compare("verify.txt", &["--verify"], 4);
    compare("verify.json", &["--verify", "--json"], 4);
}

/// Internal topics as Apache Kafka 4.4.0 wrote them, and its metadata log. What no version is known
/// of stays base64, with the version.
#[test]
fn internal_topics_as_json() {
    let facts = root().join("shards/coord/tests/facts");
    let read = |name: &str| std::fs::read(facts.join(name)).expect("a log of Apache Kafka");
    let logs = [
        ("__consumer_offsets-0", read("kafka-4.4.0-consumer-offsets.log")),
        ("__transaction_state-0", read("kafka-4.4.0-transaction-state-v2.log")),
        ("__cluster_metadata-0", metadata_log()),
    ];
    for (folder, bytes) in logs {
        let temporary = temporary_folder("dump-").expect("a folder");
        let dir = temporary.path().join(folder);
        std::fs::create_dir_all(&dir).expect("a folder");
        let log = dir.join("00000000000000000000.log");
        std::fs::write(&log, bytes).expect("a file");
        let name = format!("{}.json", folder.trim_start_matches('_').trim_end_matches("-0"));
        let path = log.to_str().expect("UTF-8");
        hold_against(&name, temporary.path(), &["dump", "--records", "--json", path], 0);
    }
}

/// A record of each kind that a broker of one node writes, one of a version and one of a type that
/// nobody knows, a value that is cut and none at all.
fn metadata_log() -> Vec<u8> {
    let mut builder = wire::records::BatchBuilder::new();
    let values: [&[u8]; 7] = [
        // The feature `metadata.version` at level 30.
        b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00",
        // Topic `ab`.
        b"\x01\x02\x00\x03ab\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x00",
        // Without its records.
        b"\x01\x02\x00\x03ab",
        b"\x01\x02\x09\x03ab",
        b"\x01\x63\x02x",
        b"\x02\x02\x00",
        b"",
    ];
    for value in values {
        builder.append(1_700_000_000_000, None, Some(value));
    }
    builder.append(1_700_000_000_000, None, None);
    builder.build().expect("a small batch")
}
