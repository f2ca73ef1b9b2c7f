//! The log on real files: append, acknowledge, read, reopen.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use log::{AppendError, LogConfig, OpenHint, ReadError};

fn small_segments() -> LogConfig {
    LogConfig { segment_bytes: 64 << 10, index_interval_bytes: 512, ..LogConfig::default() }
}

#[test]
fn what_is_acknowledged_can_be_read_and_is_there_after_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let crashed = path.clone();
    let expected = on_uring(move || async move {
        let shared = shared(8 << 20);
        let (log, _) = open(&shared, path.clone(), small_segments()).await;
        let mut expected = Vec::new();
        for n in 0..500u64 {
            let values: Vec<_> =
                (0..=n % 3).map(|i| value(n * 10 + i, 20 + (n as usize % 700))).collect();
            let appended = append(&log, &batch(&values, NOW_MS)).await;
            for (i, value) in values.into_iter().enumerate() {
                expected.push((appended.base_offset + i as i64, value));
            }
            if n % 7 == 0 {
                log.acknowledged(appended.last_offset + 1).await.unwrap();
                assert!(log.visible_end_offset() > appended.last_offset);
            }
        }
        log.acknowledged(log.log_end_offset()).await.unwrap();
        assert!(log.segment_count() > 2, "{}", log.segment_count());
        assert_eq!(read_all(&log, 10_000).await, expected);
        assert_eq!(read_all(&log, 1).await, expected);
        let closed = log.close().await.unwrap();
        assert_eq!(closed.recovery_point, closed.log_end_offset);

        let (log, recovered) = open_clean(&shared, path.clone(), small_segments()).await;
        assert_eq!(recovered.bytes_scanned, 0);
        assert_eq!(log.log_end_offset(), closed.log_end_offset);
        assert_eq!(read_all(&log, 10_000).await, expected);
        let more = append(&log, &batch(&[value(1, 10)], NOW_MS)).await;
        assert_eq!(more.base_offset, closed.log_end_offset);
        log.acknowledged(more.last_offset + 1).await.unwrap();
        expected.push((more.base_offset, value(1, 10)));
        assert_eq!(read_all(&log, 10_000).await, expected);
        expected
    });
    // Without a close, as after a crash: everything is scanned from the recovery point.
    on_uring(move || async move {
        let (log, recovered) = open(&shared(8 << 20), crashed, small_segments()).await;
        assert!(recovered.bytes_scanned > 0);
        assert_eq!(recovered.truncated_bytes, 0);
        assert_eq!(read_all(&log, 10_000).await, expected);
        log.close().await.unwrap();
    });
}

#[test]
fn reads_stay_inside_the_log_and_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let shared = shared(1 << 20);
        let (log, _) = open(&shared, path, LogConfig::default()).await;
        assert!(log.plan_read(0, i64::MAX, 100, true).unwrap().is_empty());
        let outside = ReadError::OutOfRange { offset: 1, start: 0, end: 0 };
        assert_eq!(log.plan_read(1, i64::MAX, 100, true).err(), Some(outside));
        let big = batch(&[value(0, 5_000), value(1, 5_000)], NOW_MS);
        let appended = append(&log, &big).await;
        assert!(log.plan_read(0, i64::MAX, 100, true).unwrap().is_empty(), "not visible yet");
        log.acknowledged(appended.last_offset + 1).await.unwrap();
        assert!(log.plan_read(0, i64::MAX, 100, false).unwrap().is_empty());
        let plan = log.plan_read(1, i64::MAX, 100, true).unwrap();
        assert!(plan.is_cached());
        assert_eq!(plan.len_hint(), big.len());
        assert_eq!(plan.execute().await.unwrap().concat().len(), big.len());
        assert!(log.plan_read(0, 0, 1_000_000, true).unwrap().is_empty());
        log.close().await.unwrap();
    });
}

#[test]
fn a_full_memory_holds_producers_back_and_lets_them_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let shared = shared(64 << 10);
        let (log, _) = open(&shared, path, LogConfig::default()).await;
        let (mut expected, mut full) = (Vec::new(), 0);
        for n in 0..200u64 {
            let bytes = batch(&[value(n, 10_000)], NOW_MS);
            let appended = loop {
                match log.append(&view(&bytes), 0, NOW_MS) {
                    Ok(appended) => break appended,
                    Err(AppendError::Full) => {
                        full += 1;
                        log.room().await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            expected.push((appended.base_offset, value(n, 10_000)));
        }
        assert!(full > 0, "the budget was never full");
        assert!(shared.cache_used_bytes() <= 64 << 10);
        log.acknowledged(log.log_end_offset()).await.unwrap();
        assert_eq!(shared.unwritten_bytes(), 0);
        assert_eq!(read_all(&log, 50_000).await, expected);
        // Larger than all of the memory: taken when nothing else waits.
        let large = batch(&[value(7, 200_000)], NOW_MS);
        let appended = append(&log, &large).await;
        log.acknowledged(appended.last_offset + 1).await.unwrap();
        expected.push((appended.base_offset, value(7, 200_000)));
        assert_eq!(read_all(&log, 50_000).await, expected);
        log.close().await.unwrap();
    });
}

#[test]
fn each_promise_is_kept_by_its_own_means() {
    let configs = [
        LogConfig { write_caching: true, ..small_segments() },
        LogConfig { flush_messages: 1, ..small_segments() },
        LogConfig { flush_messages: 10, ..small_segments() },
        LogConfig { flush_ms: 1, ..small_segments() },
    ];
    for config in configs {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        let before = on_uring(move || async move {
            let shared = shared(8 << 20);
            let (log, _) = open(&shared, path.clone(), config.clone()).await;
            let mut expected = Vec::new();
            for n in 0..300u64 {
                let appended = append(&log, &batch(&[value(n, 900)], NOW_MS)).await;
                if config.write_caching {
                    assert_eq!(log.visible_end_offset(), appended.last_offset + 1);
                }
                log.acknowledged(appended.last_offset + 1).await.unwrap();
                expected.push((appended.base_offset, value(n, 900)));
            }
            assert_eq!(read_all(&log, 20_000).await, expected);
            log.flush().await.unwrap();
            assert_eq!(log.recovery_point(), 300);
            (config, expected)
        });
        let path = dir.path().join("t-0");
        on_uring(move || async move {
            let (config, expected) = before;
            let (log, recovered) = open(&shared(8 << 20), path, config).await;
            assert_eq!(recovered.log_end_offset, 300);
            assert!(recovered.bytes_scanned < 20_000, "{recovered:?}");
            assert_eq!(read_all(&log, 20_000).await, expected);
            log.close().await.unwrap();
        });
    }
}

#[test]
fn a_change_between_look_and_await_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let shared = shared(1 << 20);
        let (log, _) = open(&shared, path, LogConfig::default()).await;
        let changed = log.changed();
        let appended = append(&log, &batch(&[value(0, 10)], NOW_MS)).await;
        log.acknowledged(appended.last_offset + 1).await.unwrap();
        reactor::timeout(Duration::from_secs(5), changed).await.unwrap();
        let quiet = log.changed();
        assert!(reactor::timeout(Duration::from_millis(20), quiet).await.is_err());
        log.close().await.unwrap();
    });
}

#[test]
fn a_producer_that_repeats_itself_gets_the_first_answer_even_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let batches: Vec<Vec<u8>> = (0..6)
        .map(|i| producer_batch(&[value(i, 30_000), value(i, 10)], 9, 0, i as i32 * 2))
        .collect();
    let (crashed, sent) = (path.clone(), batches.clone());
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), crashed, small_segments()).await;
        for bytes in &sent {
            append(&log, bytes).await;
        }
        log.acknowledged(12).await.unwrap();
        assert!(log.segment_count() > 1);
        let repeated = append(&log, &sent[3]).await;
        assert!(repeated.duplicate);
        assert_eq!((repeated.base_offset, repeated.last_offset), (6, 7));
    });
    on_uring(move || async move {
        for clean in [false, true] {
            let hint = OpenHint { clean, ..OpenHint::default() };
            let memory = shared(1 << 20);
            let opened = log::Log::open(&memory, path.clone(), small_segments(), hint, NOW_MS);
            let (log, _) = opened.await.unwrap();
            let repeated = append(&log, &batches[5]).await;
            assert!(repeated.duplicate);
            assert_eq!((repeated.base_offset, repeated.last_offset), (10, 11));
            let gap = producer_batch(&[value(0, 10)], 9, 0, 99);
            assert!(matches!(log.append(&view(&gap), 0, NOW_MS), Err(AppendError::Producer(_))));
            log.close().await.unwrap();
        }
    });
}

#[test]
fn a_closed_log_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let shared = shared(1 << 20);
        let (log, _) = open(&shared, path, LogConfig::default()).await;
        let other = log.clone();
        let changed = other.changed();
        log.close().await.unwrap();
        changed.await;
        let bytes = batch(&[value(0, 10)], NOW_MS);
        assert!(matches!(other.append(&view(&bytes), 0, NOW_MS), Err(AppendError::Closed(_))));
        assert!(other.acknowledged(1).await.is_err());
        assert!(other.flush().await.is_err());
    });
}
