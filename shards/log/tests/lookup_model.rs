//! Look-ups by time against a brute-force list of records: any codec, timestamps out of order and
//! in the future, LogAppendTime, offsets that batches skip; and how much of the log one look-up
//! reads.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod common;

use common::{append, on_uring, open, open_clean, shared, value};
use log::{CleanOptions, Log, LogConfig};
use reactor::usage;
use wire::records::control::EndTransaction;
use wire::records::{BatchBuilder, Codec, TimestampType, batches};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Every record: offset and timestamp.
type Records = Vec<(i64, i64)>;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const FUTURE: i64 = 1_000_000_000;

/// Appends a random batch and notes its records.
async fn one(log: &Log, dice: &mut Dice, clock: &mut i64, records: &mut Records) {
    *clock += dice.below(50) as i64;
    let mut builder = BatchBuilder::new().codec(CODECS[dice.below(5) as usize], None);
    let stamped = (dice.below(6) == 0).then_some(*clock);
    if let Some(time) = stamped {
        builder = builder.log_append_time(time);
    }
    let count = 1 + dice.below(6);
    let skipped = if dice.below(4) == 0 { dice.below(5) as i32 } else { 0 };
    builder = builder.reach(count as i32 - 1 + skipped);
    let base = log.log_end_offset();
    for n in 0..count {
        let time = match dice.below(40) {
            0 => *clock + FUTURE,
            1..=8 => *clock - dice.below(400) as i64,
            // Ties.
            9..=14 => *clock,
            _ => *clock + dice.below(20) as i64,
        };
        let len = 20 + dice.below(900) as usize;
        builder.append(time, None, Some(&value(dice.below(1 << 30), len)));
        records.push((base + n as i64, stamped.unwrap_or(time)));
    }
    append(log, &builder.build().unwrap()).await;
}

async fn compare(log: &Log, records: &Records, dice: &mut Dice, clock: i64) {
    let end = log.visible_end_offset();
    for _ in 0..60 {
        let time = match dice.below(4) {
            0 => records[dice.below(records.len() as u64) as usize].1,
            1 => clock + FUTURE - dice.below(2_000) as i64,
            _ => dice.below(clock as u64 + 500) as i64,
        };
        let upper = if dice.below(3) == 0 { dice.below(end as u64 + 1) as i64 } else { end };
        let start = log.log_start_offset();
        let seen = records.iter().filter(|(offset, _)| (start..upper).contains(offset));
        let expected = seen.copied().find(|(_, t)| *t >= time);
        let found = log.offset_for_timestamp(time, upper).await.unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected, "time {time}, upper {upper}");
    }
    // The first of several with the largest timestamp, as Kafka has it.
    let largest = records.iter().map(|(_, t)| *t).max().unwrap();
    let expected = records.iter().copied().find(|(_, t)| *t == largest);
    let found = log.offset_of_max_timestamp(end).await.unwrap();
    assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected);
}

#[test]
fn look_ups_by_time_find_what_a_list_of_all_records_has() {
    for seed in 0..10 {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("topic-0");
        on_uring(move || async move {
            let mut dice = Dice(seed * 7_919 + 3);
            let config = LogConfig {
                segment_bytes: 40_000,
                index_interval_bytes: 1_000 + 500 * (seed as u32 % 4),
                ..LogConfig::default()
            };
            let cache = shared(if seed % 2 == 0 { 64 << 10 } else { 4 << 20 });
            let (log, _) = open(&cache, path.clone(), config.clone()).await;
            let (mut records, mut clock) = (Records::new(), 1_000);
            for _ in 0..6 {
                for _ in 0..40 {
                    one(&log, &mut dice, &mut clock, &mut records).await;
                }
                log.acknowledged(log.log_end_offset()).await.unwrap();
                compare(&log, &records, &mut dice, clock).await;
            }
            log.close().await.unwrap();
            // From the files alone; then with records deleted in front.
            let (log, _) = open_clean(&cache, path, config).await;
            compare(&log, &records, &mut dice, clock).await;
            let start = dice.below(log.log_end_offset() as u64 / 2) as i64;
            let before = log.offset_of_max_timestamp(i64::MAX).await.unwrap().unwrap();
            log.advance_log_start(start).await.unwrap();
            records.retain(|(offset, _)| *offset >= start);
            // Kafka names the largest of what the files still have, deleted or not.
            let found = log.offset_of_max_timestamp(i64::MAX).await.unwrap().unwrap();
            let left = records.iter().copied().map(|(_, t)| t).max().unwrap();
            assert!(found.timestamp >= left, "{found:?}, {left} is left");
            if before.offset >= start {
                assert_eq!(found, before);
            }
            let largest = records.iter().map(|(_, t)| *t).max().unwrap();
            records.push((log.log_end_offset(), largest + 1));
            one_more(&log, largest + 1).await;
            compare(&log, &records, &mut dice, clock).await;
            log.close().await.unwrap();
        });
    }
}

/// A record that is newer than all others.
async fn one_more(log: &Log, time: i64) {
    append(log, &common::batch(&[value(1, 50)], time)).await;
    log.acknowledged(log.log_end_offset()).await.unwrap();
}

/// Bytes that this shard has asked its disks for.
fn bytes_asked() -> u64 {
    usage().disks.iter().filter(|d| d.device.is_some()).map(|d| d.bytes).sum()
}

#[test]
fn a_look_up_reads_the_same_little_of_a_small_and_of_a_large_log() {
    for batches in [200, 3_000] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("topic-0");
        on_uring(move || async move {
            let config = LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() };
            let (log, _) = open(&shared(64 << 10), path, config).await;
            for n in 0..batches {
                append(&log, &common::batch(&[value(n, 8 << 10)], 1_000 + n as i64 * 10)).await;
            }
            log.acknowledged(log.log_end_offset()).await.unwrap();
            // Every index is in memory.
            log.offset_of_max_timestamp(i64::MAX).await.unwrap();
            let mut most = 0;
            for n in (1..batches).step_by(37) {
                let before = bytes_asked();
                let found = log.offset_for_timestamp(996 + n as i64 * 10, i64::MAX).await.unwrap();
                assert_eq!(found.unwrap().offset, n as i64);
                most = most.max(bytes_asked() - before);
            }
            let before = bytes_asked();
            let newest = log.offset_of_max_timestamp(i64::MAX).await.unwrap().unwrap();
            assert_eq!(newest.offset, batches as i64 - 1);
            most = most.max(bytes_asked() - before);
            // The batch that the index names, to check it, and a window behind it.
            assert!(most < 768 << 10, "{most} bytes read for one look-up");
            log.close().await.unwrap();
        });
    }
}

/// The first look-up after an opening asks every segment for its largest time: the checkpoint has
/// it. Without one it is read from the end of each time index, and no whole index is read.
#[test]
fn the_first_look_up_after_an_opening_reads_nothing_of_most_segments() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("topic-0");
    on_uring(move || async move {
        let config =
            LogConfig { segment_bytes: 1 << 20, index_interval_bytes: 0, ..LogConfig::default() };
        let (log, _) = open(&shared(1 << 20), path.clone(), config.clone()).await;
        let batches = 120_000;
        for n in 0..batches {
            append(&log, &common::batch(&[value(n, 20)], 1_000 + n as i64 * 10)).await;
        }
        let segments = log.segment_count() as u64;
        let size = log.size_bytes();
        log.close().await.unwrap();
        let indexes: u64 = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_string_lossy().ends_with("index"))
            .map(|entry| entry.metadata().unwrap().len())
            .sum();
        assert!(segments > 8 && indexes > size / 6, "{segments} segments, {indexes} of {size}");
        for listed in [true, false] {
            if !listed {
                std::fs::remove_file(path.join("corelane.checkpoint")).unwrap();
            }
            let (log, _) = open_clean(&shared(1 << 20), path.clone(), config.clone()).await;
            let mut asked = [0; 2];
            // The second time everything about the indexes is known.
            for asked in &mut asked {
                let before = bytes_asked();
                let time = 1_000 + (batches as i64 - 5) * 10;
                let found = log.offset_for_timestamp(time, i64::MAX).await.unwrap();
                assert_eq!(found.unwrap().offset, batches as i64 - 5);
                let newest = log.offset_of_max_timestamp(i64::MAX).await.unwrap().unwrap();
                assert_eq!(newest.offset, batches as i64 - 1);
                *asked = bytes_asked() - before;
            }
            let first = asked[0].saturating_sub(asked[1]);
            // Of the records two places are read, of two segments the indexes, and where the
            // largest times are not known, of each segment the end of one: opening, asking for the
            // size and reading count as 16 KiB each.
            let bound = match listed {
                true => 192 << 10,
                false => segments * (52 << 10) + 2 * indexes / segments + (768 << 10),
            };
            assert!(first < bound, "{first} bytes read of {indexes} in {segments} segments");
            assert!(!listed || bound < segments * (32 << 10), "the test can fail");
            assert!(bound < indexes, "the test can fail");
            log.close().await.unwrap();
        }
    });
}

#[test]
fn the_largest_timestamp_is_that_of_the_files_even_where_records_were_deleted() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("topic-0");
    on_uring(move || async move {
        let config = LogConfig { segment_bytes: 40_000, ..LogConfig::default() };
        let (log, _) = open(&shared(64 << 10), path, config).await;
        for time in [10, 90, 20, 30] {
            append(&log, &common::batch(&[value(1, 50)], time)).await;
        }
        log.acknowledged(log.log_end_offset()).await.unwrap();
        for start in [1, 2, 4] {
            log.advance_log_start(start).await.unwrap();
            let newest = log.offset_of_max_timestamp(i64::MAX).await.unwrap().unwrap();
            assert_eq!((newest.offset, newest.timestamp), (1, 90), "start {start}");
            // By time only what is left is found.
            let found = log.offset_for_timestamp(20, i64::MAX).await.unwrap();
            assert_eq!(found.map(|f| f.offset), (start < 4).then_some(start));
        }
        log.close().await.unwrap();
    });
}

/// A keyed batch, of a transaction or not, or the marker that ends one.
async fn one_keyed(log: &Log, dice: &mut Dice, clock: &mut i64, open_txns: &mut [Option<i32>; 2]) {
    *clock += dice.below(30) as i64;
    let producer = dice.below(4) as i64;
    // The first two write within transactions.
    let txn = open_txns.get(producer as usize).copied();
    if txn.flatten().is_some_and(|sequence| sequence > 0) && dice.below(4) == 0 {
        let end = EndTransaction { committed: dice.below(2) == 0, coordinator_epoch: 0 };
        // Its time is that of the coordinator's machine.
        let time = *clock + dice.below(60) as i64 - 30;
        append(log, &end.batch(producer, 0, time).unwrap()).await;
        open_txns[producer as usize] = open_txns[producer as usize].map(|sequence| -sequence);
        return;
    }
    let mut builder = BatchBuilder::new().codec(CODECS[dice.below(5) as usize], None);
    if let Some(sequence) = txn.map(|txn| txn.unwrap_or(0).abs()) {
        builder = builder.producer(producer, 0, sequence).transactional(true);
    }
    if dice.below(6) == 0 {
        builder = builder.log_append_time(*clock);
    }
    let count = 1 + dice.below(5);
    for _ in 0..count {
        let time = *clock + dice.below(50) as i64 - 25;
        let key = format!("key-{}", dice.below(9));
        let kept = dice.below(6) > 0;
        let data = value(dice.below(1 << 30), 20 + dice.below(200) as usize);
        builder.append(time, Some(key.as_bytes()), kept.then_some(&data));
    }
    append(log, &builder.build().unwrap()).await;
    if let Some(txn) = txn {
        open_txns[producer as usize] = Some(txn.unwrap_or(0).abs() + count as i32);
    }
}

/// What is in the log: every record with its time, markers too, and the largest time of any batch.
async fn all_of(log: &Log) -> (Records, i64) {
    let (mut records, mut largest, mut next) = (Records::new(), i64::MIN, log.log_start_offset());
    while next < log.visible_end_offset() {
        let plan = log.plan_read(next, i64::MAX, 64 << 10, true).unwrap();
        let bytes = plan.execute().await.unwrap().concat();
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            let header = *batch.header();
            largest = largest.max(header.max_timestamp);
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let stamped = header.attributes.timestamp_type() == TimestampType::LogAppend;
                let time = if stamped { header.max_timestamp } else { record.timestamp };
                records.push((record.offset, time));
            }
            next = header.next_offset();
        }
    }
    (records, largest)
}

/// Look-ups of readers of everything, of committed records, and with any other bound.
async fn compare_bounded(log: &Log, dice: &mut Dice, clock: i64) -> usize {
    let (records, largest) = all_of(log).await;
    let (end, stable) = (log.visible_end_offset(), log.last_stable_offset());
    let mut found_some = 0;
    for round in 0..120 {
        let upper = match round % 3 {
            0 => end,
            1 => stable,
            _ => dice.below(end as u64 + 1) as i64,
        };
        let time = match dice.below(3) {
            0 => records[dice.below(records.len() as u64) as usize].1,
            _ => 900 + dice.below(clock as u64 - 800) as i64,
        };
        // As Kafka has it: the first in the log, or nothing if that lies behind the bound.
        let expected = records.iter().copied().find(|(_, t)| *t >= time);
        let expected = expected.filter(|(offset, _)| *offset < upper);
        let found = log.offset_for_timestamp(time, upper).await.unwrap();
        let found = found.map(|found| (found.offset, found.timestamp));
        assert_eq!(found, expected, "time {time} below {upper} of {stable} and {end}");
        found_some += usize::from(found.is_some());
    }
    for upper in [end, stable] {
        let expected = records.iter().copied().find(|(_, t)| *t == largest);
        let expected = expected.filter(|(offset, _)| *offset < upper);
        let found = log.offset_of_max_timestamp(upper).await.unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected, "the largest, below {upper}");
    }
    found_some
}

/// Segments that compaction has made and joined, batches with holes and without a record, markers
/// of transactions, open ones at the end: before and after passes, and from the files alone.
#[test]
fn look_ups_by_time_in_a_compacted_log_with_transactions_find_what_is_there() {
    let mut holes = 0;
    for seed in 0..12 {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("topic-0");
        holes += on_uring(move || async move {
            let mut dice = Dice(seed * 6_007 + 11);
            let config = LogConfig {
                segment_bytes: 6_000,
                index_interval_bytes: 300 + 400 * (seed as u32 % 4),
                compact: true,
                delete: false,
                min_cleanable_dirty_ratio: 0.0,
                delete_retention_ms: 300,
                file_delete_delay_ms: 0,
                ..LogConfig::default()
            };
            let cache = shared(if seed % 2 == 0 { 64 << 10 } else { 4 << 20 });
            let (log, _) = open(&cache, path.clone(), config.clone()).await;
            let (mut clock, mut open_txns) = (1_000, [None, None]);
            let mut found = 0;
            for _ in 0..5 {
                for _ in 0..60 {
                    one_keyed(&log, &mut dice, &mut clock, &mut open_txns).await;
                }
                log.flush().await.unwrap();
                found += compare_bounded(&log, &mut dice, clock).await;
                let due = log.cleanable(clock).await.unwrap().unwrap();
                log.clean(&due, &CleanOptions::default(), clock).await.unwrap();
                found += compare_bounded(&log, &mut dice, clock).await;
            }
            assert!(found > 300, "only {found} look-ups found something");
            let end = log.log_end_offset();
            let there = all_of(&log).await.0.len() as i64;
            log.close().await.unwrap();
            let (log, _) = open_clean(&cache, path, config).await;
            compare_bounded(&log, &mut dice, clock).await;
            log.close().await.unwrap();
            end - there
        });
    }
    assert!(holes > 1_000, "compaction took out {holes} records only");
}
