//! What is left of a batch, as text: records are `key=value`, `-` for none; a batch is its records
//! by offset, holes left out.

use super::*;
use crate::compaction::sip::SipKey;
use crate::producer_state::{BatchMeta, Producer};
use wire::records::Codec;
use wire::records::control::EndTransaction;

const NOW_MS: i64 = 1_000_000;
const KEEP_MS: i64 = 500;
const BASE: i64 = 100;

fn rules(map: &str, end: i64) -> Rules {
    let mut keys = KeyMap::new(1 << 16, 0.9, SipKey(1, 2), 0);
    let mut entries: Vec<(i64, &str)> = map
        .split_whitespace()
        .map(|entry| entry.split_once(':').map(|(key, at)| (at.parse().unwrap(), key)).unwrap())
        .collect();
    entries.sort_unstable();
    for (offset, key) in entries {
        keys.put(key.as_bytes(), offset).unwrap();
    }
    keys.reach(end);
    Rules {
        map: keys,
        producers: LastBatches::default(),
        clean_end: 10_000,
        now_ms: NOW_MS,
        delete_retention_ms: KEEP_MS,
        batch_bytes: 1 << 20,
        unopened: Cell::new(0),
    }
}

fn field(text: &str) -> Option<&[u8]> {
    (text != "-").then_some(text.as_bytes())
}

fn batch_from(records: &str, builder: BatchBuilder) -> Vec<u8> {
    let mut builder = builder;
    for (i, record) in records.split_whitespace().enumerate() {
        let (key, value) = record.split_once('=').unwrap();
        builder.append(1_000 + i as i64, field(key), field(value));
    }
    builder.build().unwrap()
}

fn batch(records: &str) -> Vec<u8> {
    batch_from(records, BatchBuilder::new().base_offset(BASE))
}

fn text(bytes: &[u8]) -> String {
    let batch = BatchView::parse(bytes).unwrap();
    batch.verify_crc().unwrap();
    let part = |bytes: Option<&[u8]>| match bytes {
        Some(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        None => "-".to_owned(),
    };
    let records = batch.records(1 << 20).unwrap();
    let texts = records.iter().map(|record| {
        let record = record.unwrap();
        assert_eq!(record.timestamp, 1_000 + (record.offset - BASE), "times stay");
        format!("{}:{}={}", record.offset - BASE, part(record.key), part(record.value))
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// records | map | end of the map | what is left
const BY_KEY: &str = "
    a=1 b=2     |             | 200 | whole
    a=1 b=2     | a:100 b:101 | 200 | whole
    a=1 a=2     | a:101       | 200 | 1:a=2
    a=1 b=2     | a:150       | 200 | 1:b=2
    a=1 b=2     | a:150 b:151 | 200 | nothing
    a=1 a=2 a=3 | a:101       | 102 | 1:a=2 2:a=3
    a=1 -=2     |             | 200 | 0:a=1
    -=1         |             | 200 | nothing
    -=1         |             | 50  | whole
    a=- b=2     |             | 200 | 0:a=- 1:b=2 horizon
    a=- b=2     | a:150       | 200 | 1:b=2
    a=1 b=- c=3 | c:150       | 200 | 0:a=1 1:b=- horizon
    a=- b=2     |             | 50  | 0:a=- 1:b=2 horizon";

#[test]
fn the_latest_record_of_a_key_stays() {
    for line in BY_KEY.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [records, map, end, expected] = columns[..] else { panic!("{line}") };
        let rules = rules(map, end.parse().unwrap());
        for codec in Codec::ALL {
            let bytes =
                batch_from(records, BatchBuilder::new().base_offset(BASE).codec(codec, None));
            let view = BatchView::parse(&bytes).unwrap();
            let (left, counts) = rules.rewrite(&view, Fate::ByKey).unwrap();
            assert_eq!(counts.records as usize, records.split_whitespace().count());
            let left = match &left {
                Left::Whole => "whole".to_owned(),
                Left::Nothing => "nothing".to_owned(),
                Left::Part(bytes) => {
                    let part = BatchView::parse(bytes).unwrap();
                    check_frame(view.header(), part.header());
                    let horizon = part.header().attributes.has_delete_horizon();
                    assert!(!horizon || part.header().base_timestamp == NOW_MS + KEEP_MS);
                    format!("{}{}", text(bytes), if horizon { " horizon" } else { "" })
                }
            };
            assert_eq!(left, expected, "{line} with {codec}");
        }
    }
}

fn check_frame(before: &BatchHeader, after: &BatchHeader) {
    assert_eq!(before.base_offset, after.base_offset);
    assert_eq!(before.last_offset(), after.last_offset());
    assert_eq!(before.partition_leader_epoch, after.partition_leader_epoch);
    assert_eq!(before.producer_id, after.producer_id);
    assert_eq!(before.producer_epoch, after.producer_epoch);
    assert_eq!(before.base_sequence, after.base_sequence);
    assert_eq!(before.last_sequence(), after.last_sequence());
    assert_eq!(before.attributes.is_transactional(), after.attributes.is_transactional());
    assert_eq!(before.attributes.is_control(), after.attributes.is_control());
    assert_eq!(before.attributes.timestamp_type(), after.attributes.timestamp_type());
    if after.record_count > 0 {
        assert_eq!(before.attributes.codec(), after.attributes.codec());
    }
}

#[test]
fn a_tombstone_stays_until_its_horizon() {
    for (horizon, expected) in [(NOW_MS + 1, "whole"), (NOW_MS, "1:b=2"), (1, "1:b=2")] {
        let builder = BatchBuilder::new().base_offset(BASE).delete_horizon(horizon);
        let bytes = batch_from("a=- b=2", builder);
        let (left, _) = rules("", 200).rewrite(&view(&bytes), Fate::ByKey).unwrap();
        match left {
            Left::Whole => assert_eq!(expected, "whole", "{horizon}"),
            Left::Part(bytes) => {
                assert_eq!(text(&bytes), expected);
                // The horizon stays, and the times with it.
                assert_eq!(view(&bytes).header().base_timestamp, horizon);
            }
            Left::Nothing => panic!("{horizon}"),
        }
    }
    // Behind the end of the map nothing is dropped yet.
    let builder = BatchBuilder::new().base_offset(BASE).delete_horizon(1);
    let bytes = batch_from("a=- b=2", builder);
    assert_eq!(rules("", 50).rewrite(&view(&bytes), Fate::ByKey).unwrap().0, Left::Whole);
}

/// Producer 7 is known by this batch, or by a marker alone.
fn know(rules: &mut Rules, last: LastBatch) {
    let mut producer = Producer::new(last.epoch);
    if let Some(last_offset) = last.last_offset {
        producer.push(BatchMeta { last_offset, ..BatchMeta::default() });
    }
    rules.producers.0.insert(7, producer);
}

fn view(bytes: &[u8]) -> BatchView<'_> {
    BatchView::parse(bytes).unwrap()
}

#[test]
fn the_last_batch_of_a_live_producer_stays_empty() {
    let producer = |builder: BatchBuilder| builder.base_offset(BASE).producer(7, 3, i32::MAX);
    let bytes = batch_from("a=1 b=2", producer(BatchBuilder::new()).codec(Codec::Zstd, None));
    let known = |epoch, last_offset| {
        let mut rules = rules("a:150 b:151", 200);
        know(&mut rules, LastBatch { epoch, last_offset });
        rules
    };
    let left = |rules: &Rules| rules.rewrite(&view(&bytes), Fate::ByKey).unwrap().0;
    assert_eq!(left(&known(3, Some(150))), Left::Nothing);
    assert_eq!(left(&known(3, None)), Left::Nothing);
    let Left::Part(empty) = left(&known(3, Some(101))) else { panic!("it must stay") };
    let header = *view(&empty).header();
    check_frame(view(&bytes).header(), &header);
    assert_eq!((header.record_count, header.size_in_bytes()), (0, 61));
    assert_eq!((header.base_timestamp, header.max_timestamp), (-1, 1_001));
    assert_eq!(header.last_sequence(), 0);
    assert_eq!(header.attributes.codec(), Ok(Codec::None));
    view(&empty).verify_crc().unwrap();
    // The next time it is as it was, and it goes once the producer has gone on.
    let again = |rules: &Rules| rules.rewrite(&view(&empty), Fate::ByKey).unwrap().0;
    assert_eq!(again(&known(3, Some(101))), Left::Whole);
    assert_eq!(again(&known(3, Some(150))), Left::Nothing);
}

#[test]
fn the_last_batch_of_what_is_cleaned_stays_empty() {
    let bytes = batch("a=1 b=2");
    let mut rules = rules("a:150 b:151", 200);
    rules.clean_end = BASE + 2;
    let Left::Part(empty) = rules.rewrite(&view(&bytes), Fate::ByKey).unwrap().0 else {
        panic!("it must stay")
    };
    assert_eq!(view(&empty).header().next_offset(), BASE + 2);
}

#[test]
fn aborted_records_go_whatever_their_keys() {
    let builder = BatchBuilder::new().base_offset(BASE).producer(7, 3, 0).transactional(true);
    let bytes = batch_from("a=1 b=2", builder);
    let mut rules = rules("", 50);
    assert_eq!(rules.rewrite(&view(&bytes), Fate::Aborted).unwrap().0, Left::Nothing);
    know(&mut rules, LastBatch { epoch: 3, last_offset: Some(BASE + 1) });
    let Left::Part(empty) = rules.rewrite(&view(&bytes), Fate::Aborted).unwrap().0 else {
        panic!("it must stay")
    };
    assert!(view(&empty).header().attributes.is_transactional());
    assert_eq!(view(&empty).header().record_count, 0);
}

#[test]
fn a_marker_goes_after_its_transaction_and_its_horizon() {
    let marker = EndTransaction { committed: true, coordinator_epoch: 9 };
    let mut bytes = marker.batch(7, 3, 5_000).unwrap();
    wire::records::stamp(&mut bytes, BASE, 4);
    let mut rules = rules("", 200);
    assert_eq!(rules.rewrite(&view(&bytes), Fate::Marker).unwrap().0, Left::Whole);
    let Left::Part(timed) = rules.rewrite(&view(&bytes), Fate::MarkerOfNothing).unwrap().0 else {
        panic!("it gets a horizon")
    };
    let header = *view(&timed).header();
    check_frame(view(&bytes).header(), &header);
    assert_eq!((header.base_timestamp, header.max_timestamp), (NOW_MS + KEEP_MS, 5_000));
    assert_eq!(EndTransaction::read(&view(&timed)), Ok(Some(marker)));
    assert_eq!(rules.rewrite(&view(&timed), Fate::MarkerOfNothing).unwrap().0, Left::Whole);
    rules.now_ms = NOW_MS + KEEP_MS;
    assert_eq!(rules.rewrite(&view(&timed), Fate::Marker).unwrap().0, Left::Whole);
    assert_eq!(rules.rewrite(&view(&timed), Fate::MarkerOfNothing).unwrap().0, Left::Nothing);
    // It is all that says which epoch the producer has.
    know(&mut rules, LastBatch { epoch: 3, last_offset: None });
    let Left::Part(empty) = rules.rewrite(&view(&timed), Fate::MarkerOfNothing).unwrap().0 else {
        panic!("it must stay")
    };
    assert!(view(&empty).header().attributes.is_control());
    assert_eq!(view(&empty).header().record_count, 0);
}

#[test]
fn the_times_of_the_broker_stay() {
    let builder = BatchBuilder::new().base_offset(BASE).log_append_time(77_000);
    let bytes = batch_from("a=1 b=- c=3", builder);
    let Left::Part(part) = rules("a:150", 200).rewrite(&view(&bytes), Fate::ByKey).unwrap().0
    else {
        panic!("a part stays")
    };
    let records = view(&part).records(1 << 20).unwrap();
    let times: Vec<i64> = records.iter().map(|record| record.unwrap().timestamp).collect();
    assert_eq!(times, [77_000, 77_000]);
    assert_eq!(view(&part).header().max_timestamp, 77_000);
}

/// Nobody knows what is in it: it stays, and no tombstone behind it goes, for that may hide a value
/// in it.
#[test]
fn a_batch_that_grows_beyond_the_bound_stays_and_so_do_tombstones_behind_it() {
    let value = "x".repeat(100_000);
    let mut builder = BatchBuilder::new().codec(Codec::Zstd, None);
    builder.append(1, Some(b"a"), Some(value.as_bytes()));
    let large = builder.build().unwrap();
    let passed = BatchBuilder::new().base_offset(BASE).delete_horizon(NOW_MS - 1);
    let tombstone = batch_from("a=-", passed);
    let mut rules = rules("a:100", 200);
    rules.batch_bytes = 10_000;
    let (left, counts) = rules.rewrite(&view(&tombstone), Fate::ByKey).unwrap();
    assert_eq!((left, counts.kept), (Left::Nothing, 0), "before it, one goes");
    let (left, counts) = rules.rewrite(&view(&large), Fate::ByKey).unwrap();
    assert_eq!((left, counts.kept, rules.unopened.get()), (Left::Whole, 1, 1));
    let (left, counts) = rules.rewrite(&view(&tombstone), Fate::ByKey).unwrap();
    assert_eq!((left, counts.kept), (Left::Whole, 1));
    // Of an aborted transaction nothing is looked at.
    let (left, _) = rules.rewrite(&view(&large), Fate::Aborted).unwrap();
    assert_eq!(left, Left::Nothing);
}
