//! What opening a log costs: nothing where its checkpoint says where it ends, else only what lies
//! behind; and that an opening can be given up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};

use common::*;
use log::{AppendError, Cancel, Log, LogConfig, LogError, OpenHint};

const PRODUCER: i64 = 77;
const EPOCH: i32 = 0;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 12_000, index_interval_bytes: 400, ..LogConfig::default() }
}

fn nth(n: u64) -> Vec<u8> {
    producer_batch(&[value(n, 400)], PRODUCER, 0, n as i32)
}

async fn append_all(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        append(log, &nth(n)).await;
    }
    log.acknowledged(log.log_end_offset()).await.unwrap();
}

fn remove(dir: &Path, suffixes: &[&str]) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if suffixes.iter().any(|suffix| path.to_str().unwrap().ends_with(suffix)) {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Everything is known: records, the producer's sequence, the epoch, where times are.
async fn check(log: &Log, end: u64) {
    let expected: Vec<(i64, Vec<u8>)> = (0..end).map(|n| (n as i64, value(n, 400))).collect();
    assert_eq!(read_all(log, 1_000).await, expected);
    assert_eq!(log.epoch_of_offset(end as i64 - 1), EPOCH);
    assert!(append(log, &nth(end - 1)).await.duplicate, "the last batch is forgotten");
    let gap = nth(end + 5);
    assert!(matches!(log.append(&view(&gap), 0, NOW_MS), Err(AppendError::Producer(_))));
    let found = log.offset_of_max_timestamp(i64::MAX).await.unwrap();
    assert_eq!(found.map(|found| found.timestamp), Some(NOW_MS));
}

/// Nothing but the checkpoint is needed: what else it could be read from is gone.
#[test]
fn a_log_that_ends_where_its_checkpoint_says_is_opened_without_a_read() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        let first = path.clone();
        on_uring(move || async move {
            let (log, _) = open(&shared(1 << 20), first, config()).await;
            append_all(&log, 0..60).await;
            match clean {
                true => drop(log.close().await.unwrap()),
                false => log.flush().await.unwrap(),
            }
        });
        remove(&path, &["leader-epoch-checkpoint", ".snapshot"]);
        on_uring(move || async move {
            let hint = OpenHint { clean, ..OpenHint::default() };
            let memory = shared(1 << 20);
            let opened = Log::open(&memory, path.clone(), config(), hint, NOW_MS).await;
            let (log, recovered) = opened.unwrap();
            assert_eq!((recovered.bytes_scanned, memory.scanned_bytes()), (0, 0), "clean {clean}");
            assert_eq!(memory.written_files(), 0, "no file was opened");
            assert_eq!((log.log_end_offset(), log.recovery_point()), (60, 60));
            check(&log, 60).await;
            // The segment goes on where it was, and its index with it.
            append_all(&log, 60..90).await;
            check(&log, 90).await;
            log.close().await.unwrap();
            let (log, recovered) = open_clean(&memory, path, config()).await;
            assert_eq!(recovered.bytes_scanned, 0);
            check(&log, 90).await;
        });
    }
}

#[test]
fn after_a_crash_only_what_lies_behind_the_checkpoint_is_scanned() {
    for behind in [1, 3, 30] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        let first = path.clone();
        on_uring(move || async move {
            let (log, _) = open(&shared(1 << 20), first, config()).await;
            append_all(&log, 0..40).await;
            log.flush().await.unwrap();
            append_all(&log, 40..40 + behind).await;
        });
        on_uring(move || async move {
            let memory = shared(1 << 20);
            let (log, recovered) = open(&memory, path, config()).await;
            let most = behind * nth(0).len() as u64;
            assert!((1..=most).contains(&recovered.bytes_scanned), "{recovered:?} of {most}");
            assert_eq!(recovered.truncated_bytes, 0);
            check(&log, 40 + behind).await;
        });
    }
}

#[test]
fn a_damaged_checkpoint_costs_a_longer_scan_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    let first = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), first, config()).await;
        append_all(&log, 0..60).await;
        log.flush().await.unwrap();
    });
    let file = path.join("corelane.checkpoint");
    let sound = std::fs::read(&file).unwrap();
    for at in [0, 5, 20, 45, 60, sound.len() - 1] {
        let mut damaged = sound.clone();
        damaged[at] ^= 8;
        std::fs::write(&file, damaged).unwrap();
        let path = path.clone();
        on_uring(move || async move {
            let (log, recovered) = open(&shared(1 << 20), path, config()).await;
            assert!(recovered.bytes_scanned > 0, "byte {at}");
            check(&log, 60).await;
        });
    }
}

#[test]
fn a_folder_of_another_topic_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("orders-0");
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let of = |byte| OpenHint { topic_id: Some(wire::Uuid([byte; 16])), ..OpenHint::default() };
        let opened = Log::open(&memory, path.clone(), config(), of(1), NOW_MS).await;
        let (log, _) = opened.unwrap();
        append_all(&log, 0..3).await;
        log.close().await.unwrap();
        for _ in 0..2 {
            let refused = Log::open(&memory, path.clone(), config(), of(2), NOW_MS).await;
            assert!(matches!(refused, Err(LogError::Foreign { .. })));
            // Without the checkpoint, partition.metadata says the same.
            remove(&path, &["corelane.checkpoint"]);
        }
        let (log, _) = Log::open(&memory, path, config(), of(1), NOW_MS).await.unwrap();
        check(&log, 3).await;
    });
}

/// A crash while a new folder was marked: it is whose name it has.
#[test]
fn a_mark_of_a_folder_that_a_crash_has_cut_is_made_anew() {
    for kept in [0, 11] {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().join("orders-0");
        on_uring(move || async move {
            let memory = shared(1 << 20);
            let topic_id = Some(wire::Uuid([1; 16]));
            let hint = OpenHint { topic_id, ..OpenHint::default() };
            let opened = Log::open(&memory, path.clone(), config(), hint, NOW_MS).await;
            opened.unwrap().0.close().await.unwrap();
            let mark = path.join("partition.metadata");
            let whole = std::fs::read(&mark).unwrap();
            std::fs::write(&mark, &whole[..kept]).unwrap();
            remove(&path, &["corelane.checkpoint"]);
            let (log, _) = Log::open(&memory, path, config(), hint, NOW_MS).await.unwrap();
            append_all(&log, 0..3).await;
            assert_eq!(std::fs::read(&mark).unwrap(), whole);
            log.close().await.unwrap();
        });
    }
}

#[test]
fn an_opening_that_is_given_up_ends_and_leaves_the_files_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    // In a process of its own, so to say: what seals segments in the background ends with it.
    let written = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), written, config()).await;
        append_all(&log, 0..60).await;
    });
    on_uring(move || async move {
        let memory = shared(1 << 20);
        remove(&path, &["checkpoint", ".snapshot"]);
        let sizes = |path: &Path| {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
            let mut all: Vec<_> =
                entries.map(|e| (e.file_name(), e.metadata().unwrap().len())).collect();
            all.sort();
            all
        };
        let before = sizes(&path);
        let cancel = Cancel::new();
        cancel.cancel();
        let hint = OpenHint::default();
        let given_up =
            Log::open_unless(&memory, path.clone(), config(), hint, NOW_MS, &cancel).await;
        assert!(matches!(given_up, Err(LogError::Closed(_))));
        assert_eq!(sizes(&path), before);
        let (log, _) = open(&memory, path, config()).await;
        check(&log, 60).await;
    });
}
