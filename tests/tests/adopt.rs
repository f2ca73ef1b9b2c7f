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
    let seen = program(&arguments);
    // Where the cleaner has emptied a segment, Kafka takes the file's age for its largest timestamp
    // and finds nothing in it for any time before: of that topic times are not compared.
    let quirk = |line: &&str| line.contains(" adopt-compacted-0 at ");
    seen.lines().filter(|line| !quirk(line)).map(|line| format!("{line}\n")).collect()
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

/// A copy of folders, in a folder of its own.
fn set_aside(folders: &[PathBuf], to: &Path) -> Vec<PathBuf> {
    std::fs::create_dir_all(to).expect("a folder");
    let copy = |folder: &PathBuf| {
        let target = to.join(folder.file_name().expect("a name"));
        copy_folder(folder, &target);
        target
    };
    folders.iter().map(copy).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// `name: value` of a line of a dump.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let name = format!("{name}: ");
    let start = line.find(&name).map(|at| at + name.len());
    let rest = start.and_then(|at| line.get(at..)).unwrap_or_default();
    rest.split_whitespace().next().unwrap_or_default()
}

/// The fields of every batch or entry, of our dump and of Kafka's, must be the same.
fn compare_dumps(file: &Path) -> usize {
    let class_path = corelane_tests::kafka::class_path().expect("Kafka's jars");
    let mut tool = corelane_tests::kafka::java(&class_path);
    tool.args(["org.apache.kafka.tools.DumpLogSegments", "--files", text(file)]);
    let theirs = run_quietly(&mut tool).expect("the tool runs");
    let ours = run(&["dump", text(file)]).done();
    let (start, names): (&str, &[&str]) = match file.extension().and_then(|e| e.to_str()) {
        Some("log") => (
            "baseOffset: ",
            &[
                "baseOffset",
                "lastOffset",
                "count",
                "baseSequence",
                "lastSequence",
                "producerId",
                "producerEpoch",
                "partitionLeaderEpoch",
                "isTransactional",
                "isControl",
                "position",
                "CreateTime",
                "size",
                "magic",
                "compresscodec",
                "crc",
                "isvalid",
            ],
        ),
        Some("index") => ("offset: ", &["offset", "position"]),
        Some("timeindex") => ("timestamp: ", &["timestamp", "offset"]),
        Some("txnindex") => (
            "version: ",
            &["version", "producerId", "firstOffset", "lastOffset", "lastStableOffset"],
        ),
        Some("snapshot") => (
            "producerId: ",
            &[
                "producerId",
                "producerEpoch",
                "coordinatorEpoch",
                "lastTimestamp",
                "lastSequence",
                "lastOffset",
            ],
        ),
        _ => return 0,
    };
    let rows = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| line.starts_with(start));
        let row = |line: &str| names.iter().map(|name| field(line, name).to_owned()).collect();
        let mut rows: Vec<Vec<String>> = lines.map(row).collect();
        if start == "producerId: " {
            // Where a producer has no batch the tool says nothing and we say -1.
            for value in rows.iter_mut().flatten().filter(|value| *value == "-1") {
                value.clear();
            }
            rows.sort();
        }
        rows
    };
    let (ours, mut theirs) = (rows(&ours), rows(&theirs));
    if start == "offset: " || start == "timestamp: " {
        // The tool shows one entry of zeros for an index that has none.
        theirs.retain(|row| row.iter().any(|value| value != "0") || ours.contains(row));
    }
    for row in &mut theirs {
        for value in row {
            *value = value.trim_end_matches(',').to_lowercase();
        }
    }
    assert_eq!(ours, theirs, "{}", file.display());
    ours.len()
}

fn files_of(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

/// Differences of two texts, shortened: whole ones are megabytes.
#[track_caller]
fn assert_same(expected: &str, found: &str, what: &str) {
    if expected == found {
        return;
    }
    let mut differ = expected.lines().zip(found.lines()).filter(|(a, b)| a != b);
    let first = differ.next();
    let (lines, others) = (expected.lines().count(), found.lines().count());
    panic!("{what}: {lines} lines and {others}, {} differ, first {first:?}", differ.count() + 1);
}

/// Brings folders into a fresh Corelane, starts it and reads everything.
fn adopted(folders: &[PathBuf], how: &str, expected: &str) {
    let options = BrokerOptions { shards: 2, ..BrokerOptions::new(Target::Corelane) };
    let mut broker = Broker::start_new(options).expect("Corelane starts");
    let data = broker.data_dir();
    let mut arguments = vec!["import", "--data-dir", text(&data), "--set", "retention.ms=-1"];
    arguments.extend(how.split_whitespace());
    arguments.extend(folders.iter().map(|folder| text(folder)));
    run(&arguments).refused(4, &["in use by another process"]);
    broker.stop().expect("it stops");
    println!("{}", run(&arguments).done());
    println!("{}", run(&["dump", "--verify", text(&data)]).done());
    broker.start().expect("it starts with what was brought in");
    assert_same(expected, &read(&broker, &TOPICS), "Kafka and Corelane");
    // What is brought in goes on as any other topic, over a crash too.
    broker.kill();
    broker.start().expect("it starts after a crash");
    assert_same(expected, &read(&broker, &TOPICS), "after a crash");
    let bootstrap = broker.bootstrap();
    let more = ["produce", "adopt-codecs", "--partition", "0", "--bootstrap", &bootstrap];
    corelane(&more, b"more\n").done();
    let id = std::fs::read(folders[0].join("partition.metadata"));
    if let Ok(id) = id {
        let name = folders[0].file_name().expect("a name");
        let kept = std::fs::read(data.join(name).join("partition.metadata"));
        assert_eq!(kept.expect("it has an id"), id, "the topic id is kept");
    }
}

#[test]
fn what_kafka_wrote_is_checked_and_served_as_it_is() {
    let mut kafka = kafka();
    program(&["write", &kafka.bootstrap()]);
    let expected = read(&kafka, &TOPICS);
    assert!(expected.lines().count() > 10_000);
    let data = kafka.data_dir();
    let beside = run(&["dump", "--verify", text(&data)]);
    assert!(beside.stderr.contains("in use by a running broker"), "{}", beside.stderr);
    beside.done();
    kafka.kill();
    run(&["dump", "--verify", text(&data)]).done();
    let folder = temporary_folder("adopt-").expect("a folder");
    let killed = set_aside(&partitions(&data, &TOPICS), &folder.path().join("killed"));
    assert_eq!(killed.len(), 4, "{killed:?}");
    for kind in ["log", "index", "timeindex", "txnindex", "snapshot"] {
        let files: Vec<PathBuf> = killed.iter().flat_map(|f| files_of(f, kind)).collect();
        // Starting the tool takes a while; a few of each kind tell enough.
        let lines: usize = files.iter().take(2).map(|file| compare_dumps(file)).sum();
        assert!(lines > 0, "no {kind} has anything");
    }
    kafka.start().expect("Kafka starts again");
    kafka.stop().expect("Kafka stops");
    run(&["dump", "--verify", text(&data)]).done();
    let stopped = set_aside(&partitions(&data, &TOPICS), &folder.path().join("stopped"));
    drop(kafka);
    adopted(&killed, "--copy", &expected);
    assert!(killed.iter().all(|folder| folder.exists()), "a copy leaves the folders");
    adopted(&stopped, "--move", &expected);
    assert!(!stopped.iter().any(|folder| folder.exists()), "a move takes them");
}

#[test]
fn what_corelane_wrote_is_served_by_kafka_as_it_is() {
    let topic = &TOPICS[..1];
    let options = BrokerOptions { shards: 2, ..BrokerOptions::new(Target::Corelane) };
    let mut broker = Broker::start_new(options).expect("Corelane starts");
    program(&["write-plain", &broker.bootstrap()]);
    let expected = read(&broker, topic);
    let data = broker.data_dir();
    run(&["dump", "--verify", text(&data)]).done();
    broker.kill();
    run(&["dump", "--verify", text(&data)]).done();
    let folder = temporary_folder("return-").expect("a folder");
    let killed = set_aside(&partitions(&data, topic), &folder.path().join("killed"));
    broker.start().expect("Corelane starts again");
    broker.stop().expect("Corelane stops");
    run(&["dump", "--verify", text(&data)]).done();
    let stopped = set_aside(&partitions(&data, topic), &folder.path().join("stopped"));
    drop(broker);
    for ours in [killed, stopped] {
        let mut kafka = kafka();
        program(&["create", &kafka.bootstrap(), "adopt-codecs:2"]);
        kafka.stop().expect("Kafka stops");
        for folder in &ours {
            let place = kafka.data_dir().join(folder.file_name().expect("a name"));
            let id = std::fs::read(place.join("partition.metadata")).expect("Kafka's topic id");
            std::fs::remove_dir_all(&place).expect("Kafka's own folder goes");
            copy_folder(folder, &place);
            std::fs::write(place.join("partition.metadata"), id).expect("the id is Kafka's");
        }
        // Without the mark Kafka looks at every batch.
        std::fs::remove_file(kafka.data_dir().join(".kafka_cleanshutdown")).expect("the mark");
        kafka.start().expect("Kafka starts with our folders");
        assert_same(&expected, &read(&kafka, topic), "Corelane and Kafka");
        kafka.stop().expect("Kafka stops");
    }
}
