//! Produce validation against what Apache Kafka's own classes answered to the same bytes.

use std::collections::BTreeMap;
use wire::ErrorCode;
use wire::records::validate::{Accepted, Rules, TopicCompression, validate};
use wire::records::{BatchHeader, BatchView, Codec, TimestampType};

const GOLDEN: &str = include_str!("../../../../tests/golden/records/produce-validation.txt");
const NOW: i64 = 1_700_000_000_000;
const LIMIT: usize = 1 << 20;
/// Where the bytes begin that no leader stamps.
const CRC_AT: usize = 17;

/// Where Corelane answers otherwise on purpose: start of the case name, Kafka's code (0 for
/// stored), and ours. Kafka's -1 are exceptions that nobody planned; a producer gets a reason
/// instead.
const DIFFERENCES: &[(&str, i16, i16)] = &[
    // Kafka stores a transaction of nobody, a producer without epoch, and wrong inner offsets.
    ("transactional-without-producer", 0, 87),
    ("pid-seq-no-epoch", 0, 87),
    ("deltas-shifted", 0, 87),
    ("deltas-swapped", 0, 87),
    ("deltas-negative", 0, 87),
    // The same offsets inside a compressed block.
    ("deltas-", -1, 87),
    ("length-varint-over-long", -1, 87),
    ("length-2147483647", -1, 87),
    ("empty-payload", -1, 2),
    // No bytes are no zstd frame; Kafka's reader takes them for an empty one.
    ("empty-payload-zstd", 87, 2),
    ("garbage-payload", -1, 2),
    ("block-", -1, 2),
    ("codec-", -1, 76),
    // A timestamp below -1 is taken by Kafka too, unless it has to recompress.
    ("time-minus-two-to-gzip", -1, 0),
];

struct Case<'a> {
    name: &'a str,
    rules: Rules,
    payload: Vec<u8>,
    expected: Expected<'a>,
}

enum Expected<'a> {
    Stored { append_time: i64, batch: Option<Vec<u8>> },
    Refused { code: i16, records: &'a str },
}

fn cases() -> Vec<Case<'static>> {
    GOLDEN.lines().filter(|line| !line.starts_with('#')).map(case).collect()
}

fn case(line: &str) -> Case<'_> {
    let columns: Vec<&str> = line.split(' ').collect();
    let [name, version, configs, payload, verdict, first, second] = columns[..] else {
        panic!("seven columns: {line}");
    };
    let expected = match verdict {
        "ok" => Expected::Stored {
            append_time: first.parse().unwrap(),
            batch: (second != "=").then(|| unhex(second)),
        },
        _ => Expected::Refused { code: first.parse().unwrap(), records: second },
    };
    let (_, name) = name.split_once('-').unwrap();
    let rules = Rules { produce_version: version.parse().unwrap(), ..rules(configs) };
    Case { name, rules, payload: unhex(payload), expected }
}

fn rules(configs: &str) -> Rules {
    let mut rules = Rules { strict: true, decompressed_limit: LIMIT, ..Rules::default() };
    for (key, value) in configs.split(',').filter_map(|config| config.split_once('=')) {
        match (key, value) {
            ("cleanup.policy", "compact") => rules.compacted = true,
            ("message.timestamp.type", "LogAppendTime") => {
                rules.timestamp_type = TimestampType::LogAppend;
            }
            ("message.timestamp.before.max.ms", ms) => rules.before_max_ms = ms.parse().unwrap(),
            ("max.decompressed.message.bytes", bytes) => {
                rules.max_record_bytes = bytes.parse().unwrap();
            }
            ("max.message.bytes", bytes) => rules.max_message_bytes = bytes.parse().unwrap(),
            ("compression.type", "uncompressed") => {
                rules.compression = TopicCompression::Codec(Codec::None, None);
            }
            ("compression.type", name) => {
                rules.compression = TopicCompression::Codec(Codec::from_name(name).unwrap(), None);
            }
            _ => panic!("unknown config {key}={value}"),
        }
    }
    rules
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim_matches('-').as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn difference(name: &str, kafka: i16) -> Option<i16> {
    DIFFERENCES
        .iter()
        .find(|(start, theirs, _)| name.starts_with(start) && *theirs == kafka)
        .map(|(.., ours)| *ours)
}

/// Every field and record of a batch but the checksum, the length and the leader epoch.
fn content(bytes: &[u8]) -> (BatchHeader, Vec<String>) {
    let view = BatchView::parse(bytes).unwrap();
    assert_eq!(view.verify_crc(), Ok(()));
    let records = view.records(LIMIT).unwrap();
    let records = records.iter().map(|record| format!("{:?}", record.unwrap())).collect();
    let header =
        BatchHeader { crc: 0, batch_length: 0, partition_leader_epoch: 0, ..*view.header() };
    (header, records)
}

#[test]
fn strict_validation_answers_as_kafka_does() {
    let mut failures = BTreeMap::new();
    for case in cases() {
        if let Err(reason) = check(&case) {
            failures.insert(case.name, reason);
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn check(case: &Case<'_>) -> Result<(), String> {
    let outcome = validate(&case.payload, &case.rules, NOW);
    let kafka = match case.expected {
        Expected::Stored { .. } => 0,
        Expected::Refused { code, .. } => code,
    };
    if let Some(code) = difference(case.name, kafka) {
        let got = outcome.map_or_else(|rejection| rejection.error.code(), |_| 0);
        return if got == code { Ok(()) } else { Err(format!("{got}, not {code}")) };
    }
    match (&case.expected, outcome) {
        (Expected::Refused { code, records }, Err(rejection)) => {
            let indices: Vec<String> =
                rejection.record_errors.iter().map(|(index, _)| index.to_string()).collect();
            let indices = if indices.is_empty() { "-".to_owned() } else { indices.join(",") };
            if rejection.error.code() == *code && indices == *records {
                Ok(())
            } else {
                Err(format!("{rejection:?}, not {code} {records}"))
            }
        }
        (Expected::Stored { append_time, batch }, Ok(validated)) => {
            if validated.log_append_time.unwrap_or(-1) != *append_time {
                return Err(format!("append time {:?}", validated.log_append_time));
            }
            let stored = validated.view().unwrap().bytes();
            let kafka = batch.as_deref().unwrap_or(&case.payload);
            let kafka = BatchView::parse(kafka).unwrap().bytes();
            if content(stored) != content(kafka) {
                return Err(format!("{:#?}\nnot\n{:#?}", content(stored), content(kafka)));
            }
            let as_sent = matches!(validated.batch, Accepted::AsSent(_));
            if as_sent != case.payload[CRC_AT..].starts_with(&kafka[CRC_AT..]) {
                return Err(format!("as sent: {as_sent}"));
            }
            Ok(())
        }
        (Expected::Refused { code, records }, Ok(_)) => Err(format!("ok, not {code} {records}")),
        (Expected::Stored { .. }, Err(rejection)) => Err(format!("{rejection:?}, not ok")),
    }
}

/// What relaxed validation lets through unseen must be faults inside compressed blocks only.
#[test]
fn relaxed_validation_skips_only_the_inside_of_blocks() {
    const UNSEEN: &[&str] = &[
        "count-and-delta-",
        "count-huge",
        "deltas-",
        "trailing-bytes",
        "record-",
        "header",
        "varint-",
        "length-varint",
        "key-",
        "empty-payload",
        "garbage-payload",
        "block-",
        "max-time-lies",
    ];
    let mut skipped = 0;
    for case in cases() {
        let rules = Rules { strict: false, ..case.rules };
        let relaxed = validate(&case.payload, &rules, NOW).map_err(|rejection| rejection.error);
        let strict = validate(&case.payload, &case.rules, NOW).map_err(|rejection| rejection.error);
        if relaxed != strict {
            let compressed = !case.name.ends_with("-none");
            assert!(
                compressed && UNSEEN.iter().any(|start| case.name.starts_with(start)),
                "{}: {relaxed:?} but strict {strict:?}",
                case.name
            );
            assert!(relaxed.is_ok(), "{}: {relaxed:?}", case.name);
            skipped += 1;
        }
    }
    assert!(skipped > 20, "the relaxed mode looked into blocks: {skipped}");
}

#[test]
fn codes_of_the_golden_file_are_known() {
    for case in cases() {
        if let Expected::Refused { code, .. } = case.expected {
            assert!(ErrorCode::from_code(code).is_some(), "{}", case.name);
        }
    }
}
