//! Rolling, retention, deletion, time look-ups, epochs, and what idle partitions cost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use log::{LogConfig, OffsetAt, OpenHint};
use wire::records::BatchBuilder;

const HOUR_MS: i64 = 3_600_000;

fn files(dir: &Path, suffix: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(suffix))
        .collect();
    names.sort();
    names
}

fn segment_names(bases: &[i64], suffix: &str) -> Vec<String> {
    bases.iter().map(|base| format!("{base:020}{suffix}")).collect()
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("topic-3");
    (dir, path)
}

#[test]
fn a_segment_ends_by_size_by_time_and_when_its_index_is_full() {
    let by_size = LogConfig { segment_bytes: 10_000, ..LogConfig::default() };
    let by_time = LogConfig { segment_ms: HOUR_MS, ..LogConfig::default() };
    let by_index =
        LogConfig { index_interval_bytes: 0, segment_index_bytes: 24, ..LogConfig::default() };
    let table: [(LogConfig, i64, &[i64]); 3] = [
        (by_size, 0, &[0, 3, 6]),
        (by_time, HOUR_MS / 2 - 1, &[0, 3, 6]),
        (by_index, 1, &[0, 2, 4, 6]),
    ];
    for (config, step_ms, expected) in table {
        let (_dir, path) = temp();
        on_uring(move || async move {
            let (log, _) = open(&shared(1 << 20), path.clone(), config).await;
            for n in 0..8 {
                let bytes = batch(&[value(n, 3_000)], NOW_MS + n as i64 * step_ms);
                append(&log, &bytes).await;
            }
            let all = read_when_visible(&log).await;
            assert_eq!(all.len(), 8);
            log.close().await.unwrap();
            assert_eq!(files(&path, ".log"), segment_names(expected, ".log"));
            assert_eq!(files(&path, ".index"), segment_names(expected, ".index"));
            assert_eq!(files(&path, ".timeindex"), segment_names(expected, ".timeindex"));
        });
    }
}

async fn read_when_visible(log: &log::Log) -> Vec<(i64, Vec<u8>)> {
    log.acknowledged(log.log_end_offset()).await.unwrap();
    read_all(log, 1 << 20).await
}

#[test]
fn a_closed_segment_has_kafkas_files_and_no_padding() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let config = LogConfig {
            segment_bytes: 20_000,
            index_interval_bytes: 1_000,
            flush_messages: 1,
            ..LogConfig::default()
        };
        let (log, _) = open(&shared(1 << 20), path.clone(), config).await;
        let mut sizes = 0;
        for n in 0..30 {
            let bytes = producer_batch(&[value(n, 1_900)], 5, 0, n as i32);
            sizes += bytes.len() as u64;
            append(&log, &bytes).await;
        }
        log.acknowledged(30).await.unwrap();
        assert_eq!(log.size_bytes(), sizes);
        log.close().await.unwrap();
        let bases: Vec<i64> = vec![0, 10, 20];
        let mut on_disk = 0;
        for base in &bases {
            let stem = path.join(format!("{base:020}"));
            let bytes = std::fs::read(stem.with_extension("log")).unwrap();
            on_disk += bytes.len() as u64;
            let batches: Vec<_> = wire::records::batches(&bytes).map(|b| b.unwrap()).collect();
            assert_eq!(batches.len(), 10);
            assert!(batches.iter().all(|batch| batch.verify_crc().is_ok()));
            // Every second batch of 1,969 bytes passes the interval; the entry names its last
            // offset and its start.
            let index = std::fs::read(stem.with_extension("index")).unwrap();
            let first = (bytes.len() / 10) as u32;
            assert_eq!(&index[..4], &1u32.to_be_bytes());
            assert_eq!(&index[4..8], &first.to_be_bytes());
            assert!(!std::fs::read(stem.with_extension("timeindex")).unwrap().is_empty());
        }
        assert_eq!(on_disk, sizes);
        assert_eq!(files(&path, ".snapshot"), segment_names(&[10, 20, 30], ".snapshot"));
        assert!(files(&path, ".prepared").is_empty());
        let epochs = std::fs::read_to_string(path.join("leader-epoch-checkpoint")).unwrap();
        assert_eq!(epochs, "0\n1\n0 0\n");
    });
}

#[test]
fn retention_by_size_and_time_takes_whole_oldest_segments() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let config = LogConfig {
            segment_bytes: 10_000,
            retention_bytes: 20_000,
            retention_ms: HOUR_MS,
            file_delete_delay_ms: 30,
            ..LogConfig::default()
        };
        let (log, _) = open(&shared(1 << 20), path.clone(), config.clone()).await;
        for n in 0..30 {
            append(&log, &batch(&[value(n, 3_000)], NOW_MS + n as i64)).await;
        }
        log.acknowledged(30).await.unwrap();
        // 3,069 bytes a batch, three a segment: 92,070 in all. Deleting stops where the rest
        // would be less than asked for.
        let before = log.size_bytes();
        let changed = log.changed();
        let outcome = log.enforce_retention(NOW_MS).await.unwrap();
        changed.await;
        assert_eq!(outcome.segments_deleted, 7);
        assert_eq!(log.log_start_offset(), 21);
        assert_eq!(log.size_bytes(), before - outcome.bytes_deleted);
        assert!(log.size_bytes() >= 20_000);
        assert_eq!(read_all(&log, 1 << 20).await.first().unwrap().0, 21);
        assert!(log.plan_read(20, i64::MAX, 100, true).is_err());
        assert!(!files(&path, ".deleted").is_empty(), "renamed first");
        assert_eq!(files(&path, ".log"), segment_names(&[21, 24, 27], ".log"));
        wait_until(|| files(&path, ".deleted").is_empty()).await;

        // All of it is old now, the active segment too: it is rolled, then removed.
        let outcome = log.enforce_retention(NOW_MS + 2 * HOUR_MS).await.unwrap();
        assert_eq!(outcome.segments_deleted, 3);
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (30, 30));
        assert_eq!(log.size_bytes(), 0);
        assert_eq!(files(&path, ".log"), segment_names(&[30], ".log"));
        let next = append(&log, &batch(&[value(0, 10)], NOW_MS)).await;
        assert_eq!(next.base_offset, 30);
        log.close().await.unwrap();
        let (log, _) = open_clean(&shared(1 << 20), path, config).await;
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (30, 31));
        log.close().await.unwrap();
    });
}

async fn wait_until(done: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        reactor::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen within five seconds");
}

#[test]
fn an_emptied_log_goes_on_at_its_end_even_after_a_crash() {
    let (_dir, path) = temp();
    let again = path.clone();
    on_uring(move || async move {
        let config = LogConfig { retention_ms: HOUR_MS, ..LogConfig::default() };
        let (log, _) = open(&shared(1 << 20), path, config).await;
        for n in 0..5 {
            append(&log, &batch(&[value(n, 100)], NOW_MS)).await;
        }
        log.acknowledged(5).await.unwrap();
        log.enforce_retention(NOW_MS + 2 * HOUR_MS).await.unwrap();
        assert_eq!(log.log_start_offset(), 5);
    });
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), again, LogConfig::default()).await;
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (5, 5));
        log.close().await.unwrap();
    });
}

#[test]
fn deleted_records_stay_deleted_and_their_segments_go() {
    let (_dir, path) = temp();
    let config =
        LogConfig { segment_bytes: 10_000, file_delete_delay_ms: 0, ..LogConfig::default() };
    let (again, same) = (path.clone(), config.clone());
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path.clone(), config).await;
        for n in 0..10 {
            append(&log, &batch(&[value(n, 3_000)], NOW_MS)).await;
        }
        log.acknowledged(10).await.unwrap();
        assert!(log.advance_log_start(11).await.is_err());
        log.advance_log_start(7).await.unwrap();
        log.advance_log_start(4).await.unwrap();
        assert_eq!(log.log_start_offset(), 7);
        assert!(log.plan_read(6, i64::MAX, 100, true).is_err());
        let read = read_all(&log, 1 << 20).await;
        assert_eq!(read, (7..10).map(|n| (n, value(n as u64, 3_000))).collect::<Vec<_>>());
        assert_eq!(files(&path, ".log"), segment_names(&[6, 9], ".log"));
    });
    // A crash right after: the start was durable before the call returned.
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), again.clone(), same.clone()).await;
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (7, 10));
        log.advance_log_start(10).await.unwrap();
        log.close().await.unwrap();
        let (log, _) = open_clean(&shared(1 << 20), again, same).await;
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (10, 10));
        log.close().await.unwrap();
    });
}

#[test]
fn a_deleted_topics_folder_is_renamed_at_once_and_removed_later() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_path_buf();
    on_uring(move || async move {
        let path = data_dir.join("topic-3");
        let config = LogConfig { file_delete_delay_ms: 50, ..LogConfig::default() };
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, path.clone(), config.clone()).await;
        append(&log, &batch(&[value(0, 100)], NOW_MS)).await;
        log.acknowledged(1).await.unwrap();
        append(&log, &batch(&[value(0, 100)], NOW_MS)).await;
        let other = log.clone();
        log.delete().await.unwrap();
        assert!(!path.exists());
        assert!(other.acknowledged(2).await.is_err(), "was never written");
        assert_eq!(memory.unwritten_bytes(), 0);
        let name = other.dir().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(log::is_deleted_dir_name(&name), "{name}");
        let (fresh, _) = open(&memory, path.clone(), config).await;
        assert_eq!(fresh.log_end_offset(), 0);
        fresh.close().await.unwrap();
        let gone = other.dir();
        wait_until(|| !gone.exists()).await;
        std::fs::create_dir(data_dir.join(&name)).unwrap();
        assert_eq!(log::remove_deleted_dirs(&data_dir).await.unwrap(), 1);
        assert!(path.exists());
    });
}

#[test]
fn offsets_are_found_by_time_like_in_a_list_of_all_records() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let config =
            LogConfig { segment_bytes: 6_000, index_interval_bytes: 300, ..LogConfig::default() };
        let memory = shared(64 << 10);
        let (log, _) = open(&memory, path.clone(), config.clone()).await;
        let mut all: Vec<(i64, i64)> = Vec::new();
        let mut x = 7u64;
        for n in 0..200u64 {
            let mut builder = BatchBuilder::new();
            for i in 0..3 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let time = 1_000 + n as i64 * 10 + (x >> 60) as i64 * 5;
                builder.append(time, None, Some(&value(n, 30)));
                all.push((n as i64 * 3 + i, time));
            }
            append(&log, &builder.build().unwrap()).await;
        }
        log.acknowledged(600).await.unwrap();
        assert!(log.segment_count() > 4);
        for closed in [false, true] {
            let log = if closed {
                log.clone().close().await.unwrap();
                open_clean(&memory, path.clone(), config.clone()).await.0
            } else {
                log.clone()
            };
            for time in (0..3_300).step_by(13) {
                let expected = all.iter().find(|(_, t)| *t >= time).copied();
                let found = log.offset_for_timestamp(time, i64::MAX).await.unwrap();
                assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected, "time {time}");
            }
            let most = all.iter().map(|(_, t)| *t).max().unwrap();
            let expected = all.iter().find(|(_, t)| *t == most).copied();
            let found = log.offset_of_max_timestamp(i64::MAX).await.unwrap();
            assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected);
            let found = log.offset_for_timestamp(0, 0).await.unwrap();
            assert_eq!(found, None, "nothing below the bound");
        }
    });
}

#[test]
fn append_time_answers_with_the_batchs_time() {
    let (_dir, path) = temp();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, LogConfig::default()).await;
        for time in [5_000, 6_000] {
            let mut builder = BatchBuilder::new().log_append_time(time);
            builder.append(1, None, Some(b"a")).append(2, None, Some(b"b"));
            append(&log, &builder.build().unwrap()).await;
        }
        log.acknowledged(4).await.unwrap();
        let found = log.offset_for_timestamp(5_001, i64::MAX).await.unwrap();
        assert_eq!(found, Some(OffsetAt { offset: 2, timestamp: 6_000, epoch: 0 }));
        assert_eq!(log.offset_for_timestamp(6_001, i64::MAX).await.unwrap(), None);
        log.close().await.unwrap();
    });
}

#[test]
fn epochs_are_remembered_and_rebuilt() {
    let (_dir, path) = temp();
    let again = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, LogConfig::default()).await;
        for epoch in [0, 0, 2, 5] {
            log.append(&view(&batch(&[value(0, 10)], NOW_MS)), epoch, NOW_MS).unwrap();
        }
        log.acknowledged(4).await.unwrap();
    });
    on_uring(move || async move {
        for clean in [false, true] {
            let hint = OpenHint { clean, ..OpenHint::default() };
            let memory = shared(1 << 20);
            let opened = log::Log::open(&memory, again.clone(), LogConfig::default(), hint, NOW_MS);
            let (log, _) = opened.await.unwrap();
            assert_eq!(log.end_offset_for_epoch(0), (0, 2));
            assert_eq!(log.end_offset_for_epoch(3), (2, 3));
            assert_eq!(log.end_offset_for_epoch(5), (5, 4));
            assert_eq!(log.end_offset_for_epoch(6), (-1, -1));
            assert_eq!(log.epoch_of_offset(2), 2);
            assert_eq!(log.latest_epoch().map(|e| (e.epoch, e.start_offset)), Some((5, 3)));
            log.close().await.unwrap();
        }
    });
}

/// Blocks that a folder takes, as `du` counts.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        sum += metadata.blocks() * 512;
        if metadata.is_dir() {
            sum += disk_bytes(&entry.path());
        }
    }
    sum
}

#[test]
fn a_thousand_idle_partitions_cost_kilobytes_each() {
    for flush_messages in [u64::MAX, 1] {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().to_path_buf();
        on_uring(move || async move {
            let memory = shared(64 << 20);
            let config = LogConfig { flush_messages, ..LogConfig::default() };
            let mut logs = Vec::new();
            let names: Vec<i32> = (0..1_000).collect();
            for some in names.chunks(100) {
                let opening = some.iter().map(|p| {
                    let path = data_dir.join(log::partition_dir_name("idle", *p));
                    open(&memory, path, config.clone())
                });
                logs.extend(reactor::join_all(opening).await.into_iter().map(|o| o.0));
            }
            assert_eq!(memory.cache_used_bytes(), 0);
            assert!(disk_bytes(&data_dir) < 10 << 20, "{}", disk_bytes(&data_dir));
            for log in &logs {
                append(log, &batch(&[value(0, 100)], NOW_MS)).await;
            }
            for log in &logs {
                log.acknowledged(1).await.unwrap();
            }
            assert!(memory.cache_used_bytes() <= 16_000 * 1_024);
            let disk = disk_bytes(&data_dir);
            assert!(disk < 1_000 * (128 << 10), "{disk}");
            while memory.unwritten_bytes() > 0 {
                reactor::sleep(std::time::Duration::from_millis(1)).await;
            }
            memory.free_idle_tails().await;
            assert!(memory.cache_used_bytes() > 0, "they were written just now");
            append(&logs[7], &batch(&[value(1, 100)], NOW_MS)).await;
            memory.free_idle_tails().await;
            let one = memory.cache_used_bytes();
            assert!((1..=16_000).contains(&one), "{one} bytes: only one log was written since");
            append(&logs[8], &batch(&[value(1, 100)], NOW_MS)).await;
            logs[7].acknowledged(2).await.unwrap();
            logs[8].acknowledged(2).await.unwrap();
            for (log, batches) in [(&logs[7], 2), (&logs[8], 2), (&logs[9], 1)] {
                let plan = log.plan_read(0, batches, 1 << 20, true).unwrap();
                let bytes = plan.execute().await.unwrap().concat();
                let found = wire::records::batches(&bytes).filter(|b| b.is_ok()).count();
                assert_eq!(found as i64, batches);
            }
            for some in logs.chunks(100) {
                let closing = some.iter().map(|log| log.clone().close());
                for closed in reactor::join_all(closing).await {
                    let closed = closed.unwrap();
                    assert_eq!(closed.recovery_point, closed.log_end_offset);
                }
            }
        });
    }
}

/// A close does not sync what it writes: the snapshot before stays until a flush has made a new one
/// durable, over as many restarts as there are.
#[test]
fn a_close_keeps_the_snapshot_before_its_own() {
    let (_dir, path) = temp();
    let folder = path.clone();
    on_uring(move || async move {
        let snapshots = |folder: &Path| files(folder, ".snapshot");
        let names = |offsets: &[i64]| segment_names(offsets, ".snapshot");
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, path.clone(), LogConfig::default()).await;
        append(&log, &batch(&[value(1, 10)], NOW_MS)).await;
        log.flush().await.unwrap();
        append(&log, &batch(&[value(2, 10)], NOW_MS)).await;
        log.close().await.unwrap();
        assert_eq!(snapshots(&folder), names(&[1, 2]));
        let (log, _) = open(&memory, path.clone(), LogConfig::default()).await;
        assert_eq!(snapshots(&folder), names(&[1, 2]));
        append(&log, &batch(&[value(3, 10)], NOW_MS)).await;
        log.close().await.unwrap();
        let (log, _) = open(&memory, path, LogConfig::default()).await;
        assert_eq!(snapshots(&folder), names(&[2, 3]));
        append(&log, &batch(&[value(4, 10)], NOW_MS)).await;
        log.flush().await.unwrap();
        assert_eq!(snapshots(&folder), names(&[4]));
    });
}
