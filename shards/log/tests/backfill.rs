//! Reading what is no longer in memory: holes, read-ahead, budgets, who shares and who disturbs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption fails the test")]

mod common;

use std::path::{Path, PathBuf};

use common::{append, batch, on_uring, open, open_clean, read_from, value};
use log::{Log, LogConfig, LogShared, SharedOptions};
use reactor::{Class, join_all, usage, with_class};
use wire::records::batches;

const KIB: usize = 1 << 10;

fn shared(cache_bytes: usize, backfill_bytes: usize) -> LogShared {
    LogShared::new(SharedOptions { cache_bytes, backfill_bytes, ..SharedOptions::default() })
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("topic-0");
    (dir, path)
}

/// Bytes and number of the reads that this shard has made in this class.
fn reads(class: Class) -> (u64, u64) {
    let of_class = usage().disks.into_iter().filter(|d| d.class == class && d.device.is_some());
    of_class.fold((0, 0), |(bytes, ops), disk| (bytes + disk.bytes, ops + disk.ops))
}

/// One step of a consumer: the offset after what came, or `None` at the end.
async fn step(log: &Log, from: i64, max_bytes: usize) -> Option<i64> {
    let plan = log.plan_read(from, i64::MAX, max_bytes, true).unwrap();
    let hint = plan.len_hint();
    let bytes = with_class(Class::Backfill, plan.execute()).await.unwrap().concat();
    if from < log.visible_end_offset() {
        assert!(hint > 0, "a consumer at {from} is told that there is nothing");
        assert!(!bytes.is_empty(), "a consumer at {from} gets nothing, for ever");
    }
    let last = batches(&bytes).last()?.unwrap();
    last.verify_crc().unwrap();
    Some(last.header().next_offset())
}

/// All offsets at which a consumer arrives.
async fn consume(log: &Log, from: i64, max_bytes: usize) -> Vec<i64> {
    let mut at = vec![from];
    while let Some(next) = step(log, at[at.len() - 1], max_bytes).await {
        at.push(next);
    }
    at
}

fn segment(dir: &Path, base: i64) -> PathBuf {
    dir.join(format!("{base:020}.log"))
}

/// Thirty batches of one record, three a segment.
async fn thirty(path: &Path) {
    let config = LogConfig { segment_bytes: 10_000, ..LogConfig::default() };
    let (log, _) = open(&shared(1 << 20, 1 << 20), path.to_owned(), config).await;
    for n in 0..30 {
        append(&log, &batch(&[value(n, 3_000)], common::NOW_MS)).await;
    }
    log.close().await.unwrap();
}

#[test]
fn a_consumer_gets_past_a_segment_that_was_emptied_or_taken_away() {
    for removed in [false, true] {
        let (_dir, path) = temp();
        on_uring(move || async move {
            thirty(&path).await;
            for base in [9, 12, 21] {
                match removed {
                    true => std::fs::remove_file(segment(&path, base)).unwrap(),
                    false => std::fs::write(segment(&path, base), b"").unwrap(),
                }
            }
            // Nobody vouches for them any longer: the operator goes on without them.
            std::fs::remove_file(path.join("corelane.checkpoint")).unwrap();
            let config = LogConfig { segment_bytes: 10_000, ..LogConfig::default() };
            let (log, _) = open_clean(&shared(1 << 20, 1 << 20), path, config).await;
            assert_eq!(log.log_end_offset(), 30);
            // In order, with and without a memory of where it stopped.
            let expected: Vec<i64> = (0..=9).chain(16..=21).chain(25..=30).collect();
            for _ in 0..2 {
                assert_eq!(consume(&log, 0, 3_100).await, expected, "removed: {removed}");
            }
            for from in 0..30 {
                let records = read_from(&log, from, 3_100).await;
                let first = if (9..15).contains(&from) {
                    15
                } else if (21..24).contains(&from) {
                    24
                } else {
                    from
                };
                assert_eq!(records.first().unwrap().0, first);
            }
            log.close().await.unwrap();
        });
    }
}

/// A log of `count` batches of about 16 KiB of which only the newest are in memory.
async fn cold_log(shared: &LogShared, path: &Path, count: u64) -> Log {
    let config = LogConfig { segment_bytes: 3 << 20, ..LogConfig::default() };
    let (log, _) = open(shared, path.to_owned(), config).await;
    for n in 0..count {
        append(&log, &batch(&[value(n, 16 * KIB)], common::NOW_MS)).await;
    }
    log.acknowledged(count as i64).await.unwrap();
    log
}

#[test]
fn a_reader_in_order_is_read_ahead_of_in_few_large_reads() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let shared = shared(512 * KIB, 8 << 20);
        let log = cold_log(&shared, &path, 1_000).await;
        let size = log.size_bytes();
        let before = reads(Class::Backfill);
        // Three batches a step.
        let steps = consume(&log, 0, 50 * KIB).await;
        assert_eq!(*steps.last().unwrap(), 1_000);
        let (bytes, ops) = reads(Class::Backfill);
        let (bytes, ops) = (bytes - before.0, ops - before.1);
        assert!(bytes < size + size / 8, "{bytes} bytes read of {size}");
        assert!(ops < size / (256 << 10) * 5 / 4 + 16, "{ops} reads for {} steps", steps.len());
        log.close().await.unwrap();
    });
}

#[test]
fn a_reader_that_jumps_is_not_read_ahead_of() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let shared = shared(512 * KIB, 8 << 20);
        let log = cold_log(&shared, &path, 1_000).await;
        // The indexes of all segments are in memory.
        for from in (0..900).step_by(150) {
            step(&log, from, 1).await;
        }
        let before = reads(Class::Backfill);
        let mut from = 7;
        for _ in 0..200 {
            from = (from * 7_919 + 13) % 900;
            step(&log, from, 1).await;
        }
        let (bytes, _) = reads(Class::Backfill);
        let each = (bytes - before.0) / 200;
        // The batch, what lies between it and its index entry, and whole blocks.
        assert!(each < 64 << 10, "{each} bytes read for a batch of 16 KiB");
        log.close().await.unwrap();
    });
}

#[test]
fn readers_at_different_places_each_keep_their_own_and_share_what_they_have_in_common() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let shared = shared(512 * KIB, 16 << 20);
        let log = cold_log(&shared, &path, 1_000).await;
        let size = log.size_bytes();
        let before = reads(Class::Backfill);
        let apart = [0, 250, 500, 750].map(|from| consume(&log, from, 40 * KIB));
        let ends = join_all(apart).await;
        assert!(ends.iter().all(|steps| *steps.last().unwrap() == 1_000));
        let (bytes, _) = reads(Class::Backfill);
        // Together they go over the log two and a half times.
        let (bytes, due) = (bytes - before.0, size * 5 / 2);
        assert!(bytes < due + due / 6, "{bytes} bytes read where {due} were asked for");
        let before = reads(Class::Backfill);
        join_all((0..4).map(|_| consume(&log, 0, 40 * KIB))).await;
        let (bytes, _) = reads(Class::Backfill);
        let bytes = bytes - before.0;
        assert!(bytes < size * 3 / 2, "{bytes} bytes read for four readers of the same {size}");
        log.close().await.unwrap();
    });
}

#[test]
fn cold_reads_stay_in_their_budget_and_leave_the_tail_alone() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let shared = shared(1 << 20, 1 << 20);
        let log = cold_log(&shared, &path, 600).await;
        let newest: Vec<i64> = (0..600)
            .filter(|from| log.plan_read(*from, i64::MAX, 1, true).unwrap().is_cached())
            .collect();
        assert!(newest.len() > 10 && newest.len() < 100);
        let tail_bytes = shared.cache_used_bytes();
        let readers = (0..8).map(|i| {
            let (log, shared) = (log.clone(), shared.clone());
            reactor::spawn(async move {
                let mut from = i * 60;
                while from < 500 {
                    // The answer is held for a while, as by a client that is slow to take it.
                    let plan = log.plan_read(from, i64::MAX, 100 * KIB, true).unwrap();
                    let held = plan.execute().await.unwrap();
                    // A read that has begun may take a batch more.
                    let limit = shared.backfill_limit_bytes() + 8 * 28 * KIB;
                    assert!(shared.backfill_used_bytes() <= limit);
                    reactor::yield_now().await;
                    from = batches(&held.concat()).last().unwrap().unwrap().header().next_offset();
                }
            })
        });
        join_all(readers.collect::<Vec<_>>()).await;
        assert_eq!(shared.cache_used_bytes(), tail_bytes);
        for from in newest {
            assert!(log.plan_read(from, i64::MAX, 1, true).unwrap().is_cached(), "offset {from}");
        }
        log.close().await.unwrap();
    });
}

#[test]
fn a_batch_larger_than_the_budget_and_answers_nobody_takes() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let shared = shared(256 * KIB, 64 * KIB);
        let (log, _) = open(&shared, path, LogConfig::default()).await;
        for n in 0..20 {
            let len = if n == 5 { 3 << 20 } else { 100 * KIB };
            append(&log, &batch(&[value(n, len)], common::NOW_MS)).await;
        }
        log.acknowledged(20).await.unwrap();
        assert_eq!(*consume(&log, 0, 100).await.last().unwrap(), 20);
        // Answers that are not taken use the budget up; the next reader waits until they are.
        let plan = log.plan_read(0, 1, 100, true).unwrap();
        let held = plan.execute().await.unwrap();
        assert!(shared.backfill_used_bytes() > 100 * KIB);
        let plan = log.plan_read(5, i64::MAX, 100, true).unwrap();
        let waits = reactor::spawn(async move { plan.execute().await.unwrap().concat().len() });
        while !shared.backfill_is_scarce() {
            assert!(!waits.is_finished(), "it took what others hold");
            reactor::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(!waits.is_finished());
        let plan = log.plan_read(6, i64::MAX, 100, true).unwrap();
        assert!(plan.execute_if_room().await.unwrap().is_empty(), "it does not wait");
        drop(held);
        assert!(waits.await > 3 << 20);
        log.close().await.unwrap();
    });
}
