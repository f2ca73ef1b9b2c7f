//! Compaction on real files: what stays, what readers see, in memory, from disk and after a restart.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use common::*;
use log::{CleanOptions, CleanOutcome, IoBudget, Log, LogConfig, LogError};
use wire::records::{BatchBuilder, Codec, batches};

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 100,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 1_000,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

type Seen = BTreeMap<i64, (Vec<u8>, Option<Vec<u8>>)>;

fn keyed(records: &[(&str, Option<&str>)], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new().codec(codec, None);
    for (key, value) in records {
        builder.append(NOW_MS, Some(key.as_bytes()), value.map(str::as_bytes));
    }
    builder.build().unwrap()
}

async fn put(log: &Log, key: &str, value: Option<&str>) -> i64 {
    append(log, &keyed(&[(key, value)], Codec::None)).await.base_offset
}

/// Appends until the segment that is written now is no longer the active one.
async fn roll(log: &Log) {
    let before = log.segment_count();
    let mut n = 0;
    while log.segment_count() == before {
        put(log, &format!("filler-{n}"), Some(&"x".repeat(300))).await;
        n += 1;
    }
    log.flush().await.unwrap();
}

async fn clean(log: &Log, now_ms: i64) -> CleanOutcome {
    clean_with(log, now_ms, &CleanOptions::default()).await
}

async fn clean_with(log: &Log, now_ms: i64, options: &CleanOptions) -> CleanOutcome {
    let found = log.cleanable(now_ms).await.unwrap().unwrap();
    log.clean(&found, options, now_ms).await.unwrap()
}

/// Every record from `from` on, asked for like a consumer does.
async fn seen_from(log: &Log, from: i64, max_bytes: usize) -> Seen {
    let (mut next, mut seen) = (from, Seen::new());
    while next < log.visible_end_offset() {
        let plan = log.plan_read(next, i64::MAX, max_bytes, true).unwrap();
        assert!(plan.len_hint() > 0, "a fetch at {next} is not read");
        let bytes = plan.execute().await.unwrap().concat();
        assert!(!bytes.is_empty(), "nothing at {next} of {}", log.visible_end_offset());
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            assert!(batch.header().last_offset() >= next, "batches come in order");
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                if record.offset >= from {
                    let value = record.value.map(<[u8]>::to_vec);
                    seen.insert(record.offset, (record.key.unwrap().to_vec(), value));
                }
            }
            next = batch.header().next_offset();
        }
    }
    seen
}

fn values(seen: &Seen) -> BTreeMap<String, Option<String>> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    seen.values().map(|(key, value)| (text(key), value.as_ref().map(text))).collect()
}

#[test]
fn only_the_latest_value_of_a_key_stays() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, dir.path().join("t-0"), config()).await;
        for n in 0..200 {
            put(&log, &format!("k{}", n % 7), Some(&format!("value {n}"))).await;
        }
        roll(&log).await;
        let before = seen_from(&log, 0, 1 << 20).await;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let outcome = clean(&log, NOW_MS).await;
        assert!(outcome.complete && outcome.bytes_after < outcome.bytes_before / 3, "{outcome:?}");
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (start, end));
        let after = seen_from(&log, 0, 1 << 20).await;
        assert_eq!(values(&after), values(&before));
        for key in 0..7 {
            let key = format!("k{key}");
            assert_eq!(after.values().filter(|(k, _)| *k == key.as_bytes()).count(), 1, "{key}");
        }
        assert!(after.iter().all(|(offset, record)| before.get(offset) == Some(record)));
        // What is small now fits together in the next pass.
        roll(&log).await;
        let again = clean(&log, NOW_MS).await;
        assert!(again.segments_before > 5 && again.segments_after <= 3, "{again:?}");
        assert_eq!(log.segment_count(), again.segments_after + 1);
        let merged = values(&seen_from(&log, 0, 1 << 20).await);
        assert!(values(&after).iter().all(|(key, value)| merged.get(key) == Some(value)));
        let outcome = again;
        let nothing = log.cleanable(NOW_MS).await.unwrap().unwrap();
        assert_eq!((nothing.dirty_bytes, nothing.is_due()), (0, false));
        assert_eq!(log.cleaner_point(), Some(outcome.to));
    });
}

/// The whole point of a log with holes: whatever offset a reader asks for, it gets what comes next.
#[test]
fn a_fetch_at_any_offset_gives_the_next_batch() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        for cache in [4 << 10, 1 << 20] {
            let memory = shared(cache);
            let (log, _) = open(&memory, path.clone(), config()).await;
            for n in 0..150 {
                // Whole segments of one key, so that segments end in holes.
                put(&log, &format!("k{}", n / 40), Some(&format!("value {n}"))).await;
            }
            roll(&log).await;
            clean(&log, NOW_MS).await;
            check_every_offset(&log).await;
            log.close().await.unwrap();
            let (log, _) = open(&memory, path.clone(), config()).await;
            check_every_offset(&log).await;
            log.close().await.unwrap();
            let (log, _) = open_clean(&memory, path.clone(), config()).await;
            check_every_offset(&log).await;
            log.close().await.unwrap();
        }
    });
}

async fn check_every_offset(log: &Log) {
    let all = seen_from(log, log.log_start_offset(), 1 << 20).await;
    for from in log.log_start_offset()..log.log_end_offset() {
        for max_bytes in [1, 300] {
            // Twice: the second reader finds what the first one left behind.
            for _ in 0..2 {
                let seen = seen_from(log, from, max_bytes).await;
                assert!(seen.iter().eq(all.range(from..)), "from {from} with {max_bytes}");
            }
        }
    }
    // By time as well: all have the same, the first one answers.
    let first = all.keys().next().copied();
    let found = log.offset_for_timestamp(NOW_MS, i64::MAX).await.unwrap();
    assert_eq!(found.map(|found| found.offset), first);
}

#[test]
fn tombstones_go_one_pass_after_their_time() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, dir.path().join("t-0"), config()).await;
        put(&log, "gone", Some("once")).await;
        put(&log, "stays", Some("here")).await;
        let tombstone = put(&log, "gone", None).await;
        roll(&log).await;
        clean(&log, NOW_MS).await;
        let seen = seen_from(&log, 0, 1 << 20).await;
        assert_eq!(seen.get(&tombstone), Some(&(b"gone".to_vec(), None)));
        assert_eq!(values(&seen).get("stays"), Some(&Some("here".to_owned())));
        for (later, there) in [(999, true), (1_000, false)] {
            // Only new records make another pass worth it.
            roll(&log).await;
            clean(&log, NOW_MS + later).await;
            let seen = seen_from(&log, 0, 1 << 20).await;
            assert_eq!(seen.contains_key(&tombstone), there, "{later} ms later");
            assert_eq!(values(&seen).get("stays"), Some(&Some("here".to_owned())));
            assert_eq!(values(&seen).contains_key("gone"), there);
        }
    });
}

#[test]
fn a_small_map_takes_several_passes() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, dir.path().join("t-0"), config()).await;
        for n in 0..400 {
            let records: Vec<(String, String)> =
                (0..3).map(|i| (format!("k{}", (n * 3 + i) % 150), format!("v{n}"))).collect();
            let records: Vec<(&str, Option<&str>)> =
                records.iter().map(|(k, v)| (k.as_str(), Some(v.as_str()))).collect();
            append(&log, &keyed(&records, Codec::Lz4)).await;
        }
        roll(&log).await;
        let before = values(&seen_from(&log, 0, 1 << 20).await);
        // The least map: 57 keys.
        let options = CleanOptions { key_map_bytes: 0, ..CleanOptions::default() };
        let (mut passes, mut to) = (0, 0);
        loop {
            let outcome = clean_with(&log, NOW_MS, &options).await;
            assert!(outcome.to > to && outcome.keys <= 57, "{outcome:?}");
            to = outcome.to;
            passes += 1;
            assert_eq!(values(&seen_from(&log, 0, 1 << 20).await), before);
            if outcome.complete {
                break;
            }
        }
        assert!(passes > 3, "{passes}");
    });
}

#[test]
fn what_is_young_undecided_or_active_stays() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let memory = shared(1 << 20);
        let config = LogConfig { min_compaction_lag_ms: 5_000, ..config() };
        let (log, _) = open(&memory, dir.path().join("t-0"), config.clone()).await;
        put(&log, "k", Some("1")).await;
        roll(&log).await;
        let found = log.cleanable(NOW_MS + 4_999).await.unwrap().unwrap();
        assert_eq!((found.dirty_bytes, found.is_due()), (0, false), "{found:?}");
        let found = log.cleanable(NOW_MS + 5_000).await.unwrap().unwrap();
        assert!(found.is_due(), "{found:?}");
        // A transaction that is open holds back its segment and what follows.
        let within = BatchBuilder::new().producer(5, 0, 0).transactional(true);
        let mut within = within;
        within.append(NOW_MS, Some(b"k"), Some(b"2"));
        let open_since = append(&log, &within.build().unwrap()).await.base_offset;
        roll(&log).await;
        roll(&log).await;
        let found = log.cleanable(NOW_MS + 5_000).await.unwrap().unwrap();
        assert!(found.clean_end <= open_since, "{found:?}");
        let held = log.undecided_hold().unwrap();
        assert_eq!((held.producer_id, held.first_offset), (5, open_since));
        assert!(held.from_compaction >= 1 && held.from_retention == 0, "{held:?}");
        // By ratio it need not be cleaned, by age it must.
        let lazy =
            LogConfig { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: 60_000, ..config };
        log.reconfigure(lazy);
        let found = log.cleanable(NOW_MS + 60_000).await.unwrap().unwrap();
        assert!(!found.is_due(), "{found:?}");
        let found = log.cleanable(NOW_MS + 60_001).await.unwrap().unwrap();
        assert!(found.overdue && found.is_due(), "{found:?}");
        log.reconfigure(LogConfig::default());
        assert_eq!(log.cleanable(NOW_MS).await.unwrap(), None);
    });
}

#[test]
fn producers_are_known_after_compaction_and_a_crash() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, path.clone(), config()).await;
        let batch = |sequence: i32| {
            let mut builder = BatchBuilder::new().producer(9, 2, sequence);
            builder.append(NOW_MS, Some(b"k"), Some(format!("{sequence}").as_bytes()));
            builder.append(NOW_MS, Some(b"l"), Some(format!("{sequence}").as_bytes()));
            builder.build().unwrap()
        };
        let mut last = 0;
        for n in 0..20 {
            last = append(&log, &batch(n * 2)).await.base_offset;
        }
        put(&log, "k", Some("other")).await;
        put(&log, "l", Some("other")).await;
        roll(&log).await;
        clean(&log, NOW_MS).await;
        let seen = seen_from(&log, 0, 1 << 20).await;
        assert!(
            seen.values().all(|(key, value)| key != b"k" || value.as_deref() == Some(b"other"))
        );
        // Without any snapshot the log alone must tell.
        log.close().await.unwrap();
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap().path();
            if entry.extension().is_some_and(|e| e == "snapshot") {
                std::fs::remove_file(entry).unwrap();
            }
        }
        let (log, _) = open(&memory, path, config()).await;
        let repeated = append(&log, &batch(38)).await;
        assert!(repeated.duplicate);
        assert_eq!(repeated.base_offset, last);
        assert!(!append(&log, &batch(40)).await.duplicate);
        log.close().await.unwrap();
    });
}

#[test]
fn a_reader_goes_on_while_segments_are_replaced() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        // Little memory: everything is read from files.
        let memory = shared(8 << 10);
        let (log, _) = open(&memory, dir.path().join("t-0"), config()).await;
        for n in 0..600 {
            put(&log, &format!("k{}", n % 50), Some(&format!("value {n}"))).await;
        }
        roll(&log).await;
        let before = values(&seen_from(&log, 0, 1 << 20).await);
        let reader = {
            let log = log.clone();
            reactor::spawn(async move {
                let mut all = Vec::new();
                for _ in 0..30 {
                    all.push(values(&seen_from(&log, 0, 200).await));
                }
                all
            })
        };
        for n in 0..12 {
            for i in 0..40 {
                put(&log, &format!("new-{}", i % 5), Some(&format!("{n}"))).await;
            }
            log.flush().await.unwrap();
            clean(&log, NOW_MS).await;
        }
        for seen in reader.await {
            for (key, value) in &before {
                assert_eq!(seen.get(key), Some(value), "{key}");
            }
        }
    });
}

/// A batch may have come before the topic was compacted, when nobody opened it, or from another broker
/// with more memory. The rest of the log is cleaned all the same.
#[test]
fn a_batch_that_is_too_large_to_be_opened_stays_and_the_rest_is_cleaned() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let memory = shared(1 << 20);
        let options = CleanOptions { batch_bytes: 20_000, ..CleanOptions::default() };
        let (log, _) = open(&memory, dir.path().join("t-0"), config()).await;
        for n in 0..60 {
            put(&log, &format!("k{}", n % 5), Some(&format!("value {n}"))).await;
        }
        let zeros = "0".repeat(50_000);
        append(&log, &keyed(&[("gone", Some(&zeros)), ("large", Some(&zeros))], Codec::Zstd)).await;
        put(&log, "gone", None).await;
        for n in 60..120 {
            put(&log, &format!("k{}", n % 5), Some(&format!("value {n}"))).await;
        }
        // The second pass comes when tombstones may go.
        for now_ms in [NOW_MS, NOW_MS + 10_000] {
            roll(&log).await;
            let before = values(&seen_from(&log, 0, 1 << 20).await);
            let end = log.log_end_offset();
            let outcome = clean_with(&log, now_ms, &options).await;
            assert_eq!(outcome.batches_unopened, 1, "{outcome:?}");
            assert_eq!(log.log_end_offset(), end);
            let seen = seen_from(&log, 0, 1 << 20).await;
            assert!(values(&seen) == before, "the latest of every key, and nothing comes back");
            assert_eq!(values(&seen)["gone"], None);
            assert!(seen.len() < 60, "{} records are left", seen.len());
        }
        log.close().await.unwrap();
    });
}

#[test]
fn a_damaged_batch_ends_the_pass_and_harms_nothing() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        let memory = shared(8 << 10);
        let (log, _) = open(&memory, path.clone(), config()).await;
        for n in 0..100 {
            put(&log, &format!("k{}", n % 5), Some(&format!("value {n}"))).await;
        }
        roll(&log).await;
        let end = log.log_end_offset();
        log.close().await.unwrap();
        let first = path.join("00000000000000000000.log");
        let mut bytes = std::fs::read(&first).unwrap();
        bytes[200] ^= 1;
        std::fs::write(&first, &bytes).unwrap();
        let (log, _) = open_clean(&memory, path.clone(), config()).await;
        let found = log.cleanable(NOW_MS).await.unwrap().unwrap();
        let failed = log.clean(&found, &CleanOptions::default(), NOW_MS).await;
        assert!(matches!(failed, Err(LogError::Corrupt { .. })), "{failed:?}");
        assert_eq!(std::fs::read(&first).unwrap(), bytes, "it is as it was");
        assert_eq!(names(&path, ".cleaned"), Vec::<String>::new());
        assert_eq!(log.log_end_offset(), end);
        put(&log, "k", Some("it goes on")).await;
        log.close().await.unwrap();
    });
}

fn names(dir: &Path, suffix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(suffix)).collect()
}

#[test]
fn a_pass_ends_when_its_log_closes() {
    on_uring(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        let memory = shared(1 << 20);
        let (log, _) = open(&memory, path.clone(), config()).await;
        for n in 0..300 {
            put(&log, &format!("k{}", n % 5), Some(&format!("value {n}"))).await;
        }
        roll(&log).await;
        // So slow that it would not end.
        let io = Rc::new(IoBudget::new(10.0));
        let options = CleanOptions { io, ..CleanOptions::default() };
        let found = log.cleanable(NOW_MS).await.unwrap().unwrap();
        let pass = {
            let log = log.clone();
            reactor::spawn(async move { log.clean(&found, &options, NOW_MS).await })
        };
        reactor::yield_now().await;
        log.close().await.unwrap();
        assert!(matches!(pass.await, Err(LogError::Closed(_))));
        assert_eq!(names(&path, ".cleaned"), Vec::<String>::new());
        assert_eq!(names(&path, ".swap"), Vec::<String>::new());
    });
}
