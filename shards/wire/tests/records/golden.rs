//! Batches written by Kafka's Java classes are read as Java reads them, and ours were read by Java.
//!
//! `RecordBatches.java` wrote the `java-*.bin` files and, for each file of either side, the listing
//! that [`listing`] must reproduce.

use std::fmt::Write;
use wire::records::control::EndTransaction;
use wire::records::{BatchBuilder, BatchView, Codec, Record, TimestampType, batches};

const NOW: i64 = 1_700_000_000_000;
const LIMIT: usize = 4 << 20;

struct Files {
    codec: Codec,
    java: &'static [u8],
    ours: &'static [u8],
}

macro_rules! files {
    ($codec:ident, $name:literal) => {
        Files {
            codec: Codec::$codec,
            java: include_bytes!(concat!("../../../../tests/golden/records/java-", $name, ".bin")),
            ours: include_bytes!(concat!(
                "../../../../tests/golden/records/corelane-",
                $name,
                ".bin"
            )),
        }
    };
}

const FILES: [Files; 5] = [
    files!(Gzip, "gzip"),
    files!(Lz4, "lz4"),
    files!(None, "none"),
    files!(Snappy, "snappy"),
    files!(Zstd, "zstd"),
];
const JAVA_READS_JAVA: &str = include_str!("../../../../tests/golden/records/java-batches.txt");
const JAVA_READS_OURS: &str = include_str!("../../../../tests/golden/records/corelane-batches.txt");

#[test]
fn reads_what_java_wrote_as_java_reads_it() {
    let mut text = String::new();
    for file in FILES {
        writeln!(text, "file java-{}.bin", file.codec).unwrap();
        listing(file.java, &mut text);
    }
    assert_eq!(text, JAVA_READS_JAVA);
}

#[test]
fn java_read_what_we_wrote() {
    let mut text = String::new();
    for file in FILES {
        writeln!(text, "file corelane-{}.bin", file.codec).unwrap();
        listing(file.ours, &mut text);
    }
    assert_eq!(text, JAVA_READS_OURS);
}

/// Our recorded files hold what the builder writes today, byte for byte where no codec is at work.
#[test]
fn builds_what_java_read() {
    for file in FILES {
        let built = built(file.codec);
        let (mut now, mut then) = (String::new(), String::new());
        listing(&built, &mut now);
        listing(file.ours, &mut then);
        assert_eq!(now, then, "{}", file.codec);
    }
}

/// Without a codec there is one way to write a batch, and both sides found it.
#[test]
fn writes_the_same_bytes_as_java() {
    let [_, _, none, ..] = FILES;
    assert_eq!(built(Codec::None), none.java);
    assert_eq!(none.ours, none.java);
}

#[test]
fn end_markers_of_java_are_understood() {
    let [_, _, none, ..] = FILES;
    let markers: Vec<_> = batches(none.java)
        .filter_map(|batch| EndTransaction::read(&batch.unwrap()).unwrap())
        .map(|marker| (marker.committed, marker.coordinator_epoch))
        .collect();
    assert_eq!(markers, [(true, 55), (false, -1)]);
}

/// The batches of `RecordBatches.java`, built by us.
pub fn built(codec: Codec) -> Vec<u8> {
    let new = || BatchBuilder::new().codec(codec, None);
    let mut out = small(new().base_offset(0).leader_epoch(0));
    out.extend(small(new().base_offset(5).leader_epoch(3).producer(4000, 7, i32::MAX - 2)));
    let appended = new().base_offset(10).leader_epoch(3).producer(4000, 8, 0).transactional(true);
    out.extend(small(appended.log_append_time(NOW + 777)));
    let count = if codec == Codec::None { 40 } else { 2000 };
    let mut large = new().base_offset(20).leader_epoch(4);
    for i in 0..count {
        let key = format!("key-{}", i % 97);
        let value = format!("value {i} {}", "abcdefgh".repeat(i % 30));
        let timestamp = NOW + i64::try_from(i).unwrap() * 7;
        large.append(timestamp, Some(key.as_bytes()), Some(value.as_bytes()));
    }
    out.extend(large.build().unwrap());
    if codec == Codec::None {
        for (offset, committed, coordinator_epoch, producer, epoch) in
            [(60, true, 55, 4000, 8), (61, false, -1, 4001, 0)]
        {
            let marker = EndTransaction { committed, coordinator_epoch };
            let mut batch = marker.batch(producer, epoch, NOW + offset - 59).unwrap();
            wire::records::stamp(&mut batch, offset, 4);
            out.extend(batch);
        }
        let empty = new().base_offset(62).leader_epoch(4).producer(4000, 8, 5);
        out.extend(empty.build_empty(8, NOW + 9).unwrap());
    }
    out
}

fn small(mut batch: BatchBuilder) -> Vec<u8> {
    batch.append(NOW, Some(b"k0"), Some(b"v0"));
    batch.append(NOW + 1, None, Some(b"no key"));
    batch.append(NOW - 5, Some(b"tombstone"), None);
    batch.append(NOW + 300_000, Some(b""), Some(b""));
    let headers: [(&str, Option<&[u8]>); 5] = [
        ("h", Some(b"1")),
        ("h", Some(b"2")),
        ("ключ", Some("значение".as_bytes())),
        ("", None),
        ("empty", Some(b"")),
    ];
    batch.append_with_headers(NOW + 2, Some(b"headers"), Some(b"x"), &headers);
    batch.build().unwrap()
}

/// One line a batch, one a record; the records of a large batch as a checksum over their lines.
fn listing(bytes: &[u8], text: &mut String) {
    let mut walk = batches(bytes);
    for batch in walk.by_ref() {
        let batch = batch.unwrap();
        assert_eq!(batch.verify_crc(), Ok(()));
        batch_line(&batch, text);
        let records = batch.records(LIMIT).unwrap();
        let mut lines = String::new();
        let mut count = 0;
        for record in &records {
            record_line(&record.unwrap(), &mut lines);
            count += 1;
        }
        if count <= 6 {
            text.push_str(&lines);
        } else {
            let crc = crc32c::crc32c(lines.as_bytes());
            writeln!(text, "records {count} crc32c {crc}").unwrap();
        }
    }
    assert_eq!(walk.position(), bytes.len());
}

fn batch_line(batch: &BatchView<'_>, text: &mut String) {
    let header = batch.header();
    writeln!(
        text,
        "batch {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence(),
        batch.codec().unwrap(),
        header.attributes.timestamp_type() == TimestampType::LogAppend,
        header.attributes.is_transactional(),
        header.attributes.is_control(),
        header.base_timestamp,
        header.max_timestamp,
        header.partition_leader_epoch,
    )
    .unwrap();
}

fn record_line(record: &Record<'_>, text: &mut String) {
    let (key, value) = (hex(record.key), hex(record.value));
    write!(text, "record {} {} {key} {value}", record.offset, record.timestamp).unwrap();
    for header in record.headers {
        write!(text, " {}={}", hex(Some(header.key)), hex(header.value)).unwrap();
    }
    text.push('\n');
}

fn hex(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some([]) => "-".to_owned(),
        Some(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
