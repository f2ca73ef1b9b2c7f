//! A producer that repeats a batch gets the answer of its first time, for the last five of its batches:
//! also after a clean restart, a move, a crash.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};

use common::*;
use log::{AppendError, Log, LogConfig, LogShared, OpenHint, Relocation};

const PRODUCER: i64 = 77;
/// Kafka's clients keep so many in flight.
const KNOWN: u64 = 5;
const RECORDS: i64 = 2;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 6_000, index_interval_bytes: 400, ..LogConfig::default() }
}

fn nth(producer: i64, n: u64) -> Vec<u8> {
    producer_batch(&[value(n, 300), value(n, 300)], producer, 0, n as i32 * RECORDS as i32)
}

/// Batches from two producers in turn: where the n-th of the first one lies.
fn offset_of(n: u64) -> i64 {
    n as i64 * 2 * RECORDS
}

async fn append_both(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        for producer in [PRODUCER, PRODUCER + 1] {
            assert!(!append(log, &nth(producer, n)).await.duplicate);
        }
    }
    log.acknowledged(log.log_end_offset()).await.unwrap();
}

/// The last five of `count` batches are answered as they were at first, and those before are refused.
async fn check(log: &Log, count: u64, what: &str) {
    assert_eq!(log.log_end_offset(), offset_of(count), "{what}");
    for n in count.saturating_sub(KNOWN)..count {
        for (producer, offset) in [(PRODUCER, offset_of(n)), (PRODUCER + 1, offset_of(n) + RECORDS)]
        {
            let again = log.append(&view(&nth(producer, n)), 0, NOW_MS);
            let again = again.unwrap_or_else(|error| panic!("{what}, {n} of {count}: {error}"));
            assert!(again.duplicate, "{what}: batch {n} of {count} was taken again");
            assert_eq!((again.base_offset, again.last_offset), (offset, offset + RECORDS - 1));
        }
    }
    if let Some(older) = count.checked_sub(KNOWN + 1) {
        let refused = log.append(&view(&nth(PRODUCER, older)), 0, NOW_MS);
        assert!(matches!(refused, Err(AppendError::Producer(_))), "{what}");
    }
    assert_eq!(log.log_end_offset(), offset_of(count), "{what}");
}

async fn open_as(memory: &LogShared, path: &Path, clean: bool) -> Log {
    open_with(memory, path, clean, config()).await
}

async fn open_with(memory: &LogShared, path: &Path, clean: bool, config: LogConfig) -> Log {
    let hint = OpenHint { clean, ..OpenHint::default() };
    Log::open(memory, path.to_path_buf(), config, hint, NOW_MS).await.unwrap().0
}

#[test]
fn after_a_clean_restart_the_last_five_batches_are_known() {
    for (count, clean, many) in
        [(1, true, false), (3, true, true), (5, false, false), (40, true, false), (41, true, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        on_uring(move || async move {
            let memory = shared(1 << 20);
            let log = open_as(&memory, &path, false).await;
            append_both(&log, 0..count).await;
            match many {
                true => log.close_with_many().await.unwrap(),
                false => log.close().await.unwrap(),
            };
            // Twice: what is known from the file only must go there again.
            for time in 0..2 {
                let log = open_as(&memory, &path, clean).await;
                check(&log, count + time, &format!("restart {time}")).await;
                append_both(&log, count + time..count + time + 1).await;
                check(&log, count + time + 1, &format!("restart {time}, one more")).await;
                log.close().await.unwrap();
            }
        });
    }
}

#[test]
fn after_a_move_the_last_five_batches_are_known() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, target) = (dir.path().join("a/orders-0"), dir.path().join("b/orders-0"));
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let log = open_as(&memory, &path, false).await;
        append_both(&log, 0..30).await;
        let mut relocation = Relocation::begin(log.clone(), target.clone(), 0).await.unwrap();
        relocation.pass(&|| None).await.unwrap();
        append_both(&log, 30..33).await;
        log.close().await.unwrap();
        relocation.finish().await.unwrap();
        let log = open_as(&memory, &target, false).await;
        check(&log, 33, "moved").await;
        log.close().await.unwrap();
    });
}

/// Killed at any number of batches behind a flush or a roll: some of the last five lie before the
/// snapshot that the walk begins with, some behind it.
#[test]
fn after_a_crash_batches_before_and_behind_the_snapshot_are_known() {
    for behind in 0..12 {
        for flushed in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("orders-0");
            let written = path.clone();
            on_uring(move || async move {
                let log = open_as(&shared(1 << 20), &written, false).await;
                append_both(&log, 0..20).await;
                if flushed {
                    log.flush().await.unwrap();
                }
                append_both(&log, 20..20 + behind).await;
                // Until the keeper has sealed what is full.
                while !flushed && log.recovery_point() + 20 < log.log_end_offset() {
                    reactor::sleep(std::time::Duration::from_millis(1)).await;
                }
            });
            on_uring(move || async move {
                let log = open_as(&shared(1 << 20), &path, false).await;
                check(&log, 20 + behind, &format!("{behind} behind, flushed {flushed}")).await;
            });
        }
    }
}

/// So many producers that the snapshot is in its own file only.
#[test]
fn with_many_producers_those_that_wrote_last_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("orders-0");
    on_uring(move || async move {
        let memory = shared(4 << 20);
        let config = LogConfig::default;
        let log = open_with(&memory, &path, false, config()).await;
        for id in 1_000..3_000 {
            append(&log, &nth(id, 0)).await;
            append(&log, &nth(id, 1)).await;
        }
        log.close().await.unwrap();
        let log = open_with(&memory, &path, true, config()).await;
        let size = std::fs::metadata(path.join("corelane.checkpoint")).unwrap().len();
        assert!(size < 80 << 10, "{size}");
        for id in [2_999, 2_000, 1_900] {
            assert!(log.append(&view(&nth(id, 0)), 0, NOW_MS).unwrap().duplicate, "{id}");
        }
        for id in 1_000..3_000 {
            assert!(log.append(&view(&nth(id, 1)), 0, NOW_MS).unwrap().duplicate, "{id}");
        }
        log.close().await.unwrap();
    });
}

/// Retention by age takes all records: what is known of those who wrote them stays, whatever was flushed
/// before and however the log ends.
#[test]
fn after_retention_has_emptied_the_log_the_last_five_batches_are_known() {
    let ends = [(true, true), (true, false), (false, false)];
    for (flushed_at, closes, clean) in
        [0, 7, 12].into_iter().flat_map(|at| ends.map(|(closes, clean)| (at, closes, clean)))
    {
        let what = format!("flushed at {flushed_at}, closed {closes}, clean {clean}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        let written = path.clone();
        on_uring(move || async move {
            let short = LogConfig { retention_ms: 1_000, file_delete_delay_ms: 0, ..config() };
            let log = open_with(&shared(1 << 20), &written, false, short).await;
            append_both(&log, 0..flushed_at).await;
            log.flush().await.unwrap();
            append_both(&log, flushed_at..12).await;
            log.enforce_retention(NOW_MS + 2_000).await.unwrap();
            assert_eq!(log.log_start_offset(), log.log_end_offset());
            if closes {
                log.close().await.unwrap();
            }
        });
        on_uring(move || async move {
            // Twice: the first one leaves nothing more than it has found.
            for _ in 0..2 {
                let log = open_as(&shared(1 << 20), &path, clean).await;
                check(&log, 12, &what).await;
            }
            let log = open_as(&shared(1 << 20), &path, false).await;
            append_both(&log, 12..13).await;
            check(&log, 13, &what).await;
        });
    }
}
