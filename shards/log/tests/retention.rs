//! Retention by time, size and start, on a simulated machine whose clock the tests turn.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use log::{EndedBy, Log, LogConfig, LogShared, TransactionMarker};
use reactor::fs;
use reactor::sim::{Delay, Outcome, World, with_faults};
use wire::records::BatchBuilder;
use wire::records::control::EndTransaction;

const DIR: &str = "/data/kept-0";
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;
/// Each batch of the tests fills a segment.
const SEGMENT_BYTES: u32 = 4_000;

fn on_sim<F, Fut>(seed: u64, main: F)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let outcome = world(seed).run(main);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// A machine on which years may pass.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    world.limit_time(Duration::from_millis(50 * YEAR_MS as u64));
    world
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT_BYTES,
        retention_ms: 7 * DAY_MS,
        file_delete_delay_ms: 60_000,
        ..LogConfig::default()
    }
}

async fn fresh(config: LogConfig) -> Log {
    open(&memory(), PathBuf::from(DIR), config).await.0
}

fn memory() -> LogShared {
    shared(1 << 20)
}

/// Appends a batch of one record with this timestamp that fills a segment.
async fn put(log: &Log, n: u64, timestamp: i64) {
    let appended = append(log, &batch(&[value(n, 3_000)], timestamp)).await;
    log.acknowledged(appended.last_offset + 1).await.unwrap();
}

async fn pass(ms: i64) {
    reactor::sleep(Duration::from_millis(ms as u64)).await;
}

async fn retain(log: &Log) -> usize {
    log.enforce_retention(reactor::wall_clock_ms()).await.unwrap().segments_deleted
}

async fn names(suffix: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(DIR)).await.unwrap();
    let mut names: Vec<String> =
        entries.into_iter().map(|e| e.name).filter(|name| name.ends_with(suffix)).collect();
    names.sort();
    names
}

#[test]
fn a_timestamp_from_the_future_holds_its_segment_no_longer_than_the_topic_allows() {
    on_sim(1, || async {
        let log = fresh(config()).await;
        let start = reactor::wall_clock_ms();
        put(&log, 0, start + YEAR_MS).await;
        for n in 1..4 {
            put(&log, n, start + n as i64).await;
        }
        pass(7 * DAY_MS + HOUR_MS / 2).await;
        assert_eq!(retain(&log).await, 0, "within the hour that a record may be early");
        let hold = log.retention_hold().unwrap();
        assert_eq!((hold.segment, hold.offset), (0, 0));
        assert_eq!((hold.timestamp, hold.segments), (start + YEAR_MS, 4));
        pass(HOUR_MS).await;
        assert_eq!(retain(&log).await, 4);
        assert_eq!(log.retention_hold(), None);
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (4, 4));
        log.close().await.unwrap();
    });
}

#[test]
fn what_holds_the_log_without_such_a_bound_is_named_until_the_topic_is_changed() {
    on_sim(2, || async {
        let log = fresh(LogConfig { timestamp_after_max_ms: i64::MAX, ..config() }).await;
        let start = reactor::wall_clock_ms();
        put(&log, 0, start).await;
        put(&log, 1, start + YEAR_MS).await;
        put(&log, 2, start).await;
        pass(4 * DAY_MS).await;
        put(&log, 3, reactor::wall_clock_ms()).await;
        pass(4 * DAY_MS).await;
        assert_eq!(retain(&log).await, 1, "what lies before it goes");
        let hold = log.retention_hold().unwrap();
        assert_eq!((hold.segment, hold.offset, hold.segments), (1, 1, 2));
        log.reconfigure(config());
        assert_eq!(retain(&log).await, 2);
        assert_eq!(log.retention_hold(), None);
        assert_eq!(log.log_start_offset(), 3);
        log.close().await.unwrap();
    });
}

/// The broker's time stands in the batch; what the client claimed does not count.
#[test]
fn log_append_time_counts_from_the_append() {
    on_sim(3, || async {
        let log = fresh(config()).await;
        let start = reactor::wall_clock_ms();
        for n in 0..3u64 {
            let mut builder = BatchBuilder::new().log_append_time(start);
            builder.append(start - YEAR_MS, None, Some(&value(n, 3_000)));
            let appended = append(&log, &builder.build().unwrap()).await;
            log.acknowledged(appended.last_offset + 1).await.unwrap();
        }
        pass(6 * DAY_MS).await;
        assert_eq!(retain(&log).await, 0);
        pass(2 * DAY_MS).await;
        assert_eq!(retain(&log).await, 3);
        log.close().await.unwrap();
    });
}

#[test]
fn limits_of_nothing_and_everything_and_their_change_at_run_time() {
    on_sim(4, || async {
        let keep = LogConfig { retention_ms: -1, ..config() };
        let log = fresh(keep.clone()).await;
        let start = reactor::wall_clock_ms();
        for n in 0..3 {
            put(&log, n, start).await;
        }
        pass(10 * YEAR_MS).await;
        assert_eq!(retain(&log).await, 0, "retention.ms=-1 keeps everything");
        log.reconfigure(LogConfig { retention_bytes: 7_000, ..keep.clone() });
        assert_eq!(retain(&log).await, 0, "the rest would be less than was asked for");
        log.reconfigure(LogConfig { retention_bytes: 6_000, ..keep.clone() });
        assert_eq!(retain(&log).await, 1);
        log.reconfigure(LogConfig {
            delete: false,
            compact: true,
            retention_bytes: 0,
            ..keep.clone()
        });
        assert_eq!(retain(&log).await, 0, "a compacted topic is not cut");
        log.reconfigure(LogConfig { compact: true, retention_bytes: 0, ..keep.clone() });
        assert_eq!(
            retain(&log).await,
            2,
            "compact,delete is; the active segment is rolled and goes"
        );
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (3, 3));
        put(&log, 3, reactor::wall_clock_ms()).await;
        log.reconfigure(LogConfig { retention_ms: 0, ..keep });
        pass(1).await;
        assert_eq!(retain(&log).await, 1, "retention.ms=0 keeps what is from this very moment");
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (4, 4));
        put(&log, 4, reactor::wall_clock_ms()).await;
        assert_eq!(log.log_end_offset(), 5);
        log.close().await.unwrap();
    });
}

#[test]
fn nothing_above_the_visible_end_goes() {
    on_sim(5, || async {
        let synced = LogConfig { retention_ms: 0, flush_messages: 1, ..config() };
        let log = fresh(synced).await;
        put(&log, 0, 1_000).await;
        with_faults(|faults| {
            faults.disk.sync_latency = Delay::exactly(Duration::from_secs(60));
        });
        let bytes = batch(&[value(1, 3_000)], 1_000);
        append(&log, &bytes).await;
        // Time enough for the write, not for its sync.
        pass(10_000).await;
        assert_eq!(log.visible_end_offset(), 1);
        with_faults(|faults| faults.disk.sync_latency = Delay::exactly(Duration::ZERO));
        let deleted = retain(&log).await;
        assert_eq!((deleted, log.log_start_offset()), (1, 1));
        log.acknowledged(2).await.unwrap();
        assert_eq!(read_all(&log, 1 << 20).await.len(), 1);
        log.close().await.unwrap();
    });
}

/// A flipped bit in a time index must neither delete records early nor keep them for good.
#[test]
fn a_damaged_time_index_is_found_before_it_deletes_anything() {
    // Less than nothing, ages ahead, decades back, years back.
    for (byte, bit) in [(0, 0x80), (1, 0x40), (2, 0x01), (3, 0x80)] {
        let mut world = world(6 + byte);
        let made = world.run(|| async {
            let log = fresh(config()).await;
            for n in 0..3 {
                put(&log, n, reactor::wall_clock_ms()).await;
            }
            log.close().await.unwrap();
        });
        assert!(matches!(made, Outcome::Finished(())), "{made:?}");
        let path = Path::new(DIR).join("00000000000000000000.timeindex");
        world.corrupt(&path, byte, bit).unwrap();
        let outcome = world.run(|| async {
            let (log, _) = open_clean(&memory(), PathBuf::from(DIR), config()).await;
            assert_eq!(retain(&log).await, 0);
            assert_eq!(read_all(&log, 1 << 20).await.len(), 3);
            pass(9 * DAY_MS).await;
            assert_eq!(retain(&log).await, 3);
            log.close().await.unwrap();
        });
        assert!(matches!(outcome, Outcome::Finished(())), "byte {byte}: {outcome:?}");
    }
}

#[test]
fn files_go_after_the_delay_and_a_reader_that_has_one_goes_on() {
    on_sim(9, || async {
        let log = fresh(config()).await;
        for n in 0..4 {
            put(&log, n, reactor::wall_clock_ms()).await;
        }
        log.flush().await.unwrap();
        let (log, small) = {
            log.close().await.unwrap();
            let small = shared(8 << 10);
            (open_clean(&small, PathBuf::from(DIR), config()).await.0, small)
        };
        let plan = log.plan_read(0, i64::MAX, 1 << 20, true).unwrap();
        assert!(!plan.is_cached(), "{}", small.cache_used_bytes());
        log.advance_log_start(3).await.unwrap();
        assert_eq!(names(".log").await, ["00000000000000000003.log"]);
        let gone = names(".log.deleted").await.len();
        assert_eq!(gone, 3, "renamed at once, unlinked later");
        // The plan was made before: it is served or refused, never with other records.
        if let Ok(parts) = plan.execute().await {
            let bytes = parts.concat();
            assert_eq!(
                wire::records::batches(&bytes).next().unwrap().unwrap().header().base_offset,
                0
            );
        }
        pass(59_000).await;
        assert_eq!(names(".log.deleted").await.len(), 3);
        pass(2_000).await;
        assert_eq!(names(".deleted").await, Vec::<String>::new());
        log.close().await.unwrap();
    });
}

/// Appends a batch of a transaction that fills a segment.
async fn put_within(log: &Log, producer: i64, sequence: i32) -> i64 {
    let builder = BatchBuilder::new().producer(producer, 0, sequence).transactional(true);
    let mut builder = builder;
    builder.append(reactor::wall_clock_ms(), None, Some(&value(9, 3_000)));
    let appended = append(log, &builder.build().unwrap()).await;
    log.acknowledged(appended.last_offset + 1).await.unwrap();
    appended.base_offset
}

async fn end(log: &Log, producer: i64) {
    let marker = TransactionMarker {
        producer_id: producer,
        producer_epoch: 0,
        end: EndTransaction { committed: true, coordinator_epoch: 0 },
        raises_epoch: false,
        by: EndedBy::Coordinator,
    };
    let ended = log.append_marker(marker, 0, reactor::wall_clock_ms()).unwrap();
    log.acknowledged(ended.last_offset + 1).await.unwrap();
}

/// What a transaction may still commit stays, however old, and what lies behind it; what lies before goes.
#[test]
fn an_open_transaction_keeps_its_segments_until_it_ends() {
    let by_size = LogConfig { retention_bytes: 0, retention_ms: -1, ..config() };
    for config in [config(), by_size] {
        on_sim(1, move || async move {
            let log = fresh(config).await;
            for n in 0..3 {
                put(&log, n, reactor::wall_clock_ms()).await;
            }
            let begin = put_within(&log, 7, 0).await;
            for n in 3..6 {
                put(&log, n, reactor::wall_clock_ms()).await;
            }
            pass(8 * DAY_MS).await;
            assert_eq!(retain(&log).await, 3);
            assert_eq!((log.log_start_offset(), log.last_stable_offset()), (begin, begin));
            assert_eq!(retain(&log).await, 0);
            let held = log.undecided_hold().unwrap();
            assert_eq!((held.producer_id, held.first_offset), (7, begin));
            assert!(held.from_retention >= 3 && held.from_compaction == 0, "{held:?}");
            assert_eq!(read_all(&log, 1 << 20).await.len(), 4);
            end(&log, 7).await;
            pass(8 * DAY_MS).await;
            assert!(retain(&log).await >= 4);
            assert_eq!(log.undecided_hold(), None);
            assert_eq!(log.last_stable_offset(), log.log_end_offset());
            assert_eq!(log.log_start_offset(), log.log_end_offset());
            log.close().await.unwrap();
        });
    }
}

/// An operator may: then the stable offset is where the log begins, and the marker is still waited for.
#[test]
fn delete_records_takes_the_beginning_of_an_open_transaction() {
    on_sim(1, || async {
        let log = fresh(config()).await;
        for sequence in 0..3 {
            put_within(&log, 7, sequence).await;
        }
        log.advance_log_start(2).await.unwrap();
        assert_eq!((log.log_start_offset(), log.last_stable_offset()), (2, 2));
        log.advance_log_start(3).await.unwrap();
        assert_eq!((log.last_stable_offset(), log.visible_end_offset()), (3, 3));
        let open = log.producer(7).unwrap().open_since;
        assert_eq!(open, Some(0), "it can be found and ended");
        end(&log, 7).await;
        assert_eq!((log.last_stable_offset(), log.visible_end_offset()), (4, 4));
        log.close().await.unwrap();
    });
}

/// `producer.id.expiration.ms` by Kafka's rule: since the newest timestamp that the producer has given, and
/// never inside a transaction; after a restart as well. Then any sequence begins anew.
#[test]
fn silent_producers_are_forgotten_with_a_round_of_retention() {
    on_sim(1, || async {
        let config = LogConfig { producer_id_expiration_ms: HOUR_MS, ..config() };
        let log = fresh(config.clone()).await;
        let idempotent = |id, sequence| {
            let mut builder = BatchBuilder::new().producer(id, 0, sequence);
            builder.append(reactor::wall_clock_ms(), None, Some(b"v"));
            builder.build().unwrap()
        };
        append(&log, &idempotent(1, 0)).await;
        put_within(&log, 2, 0).await;
        let expired = |log: &Log| {
            let log = log.clone();
            async move {
                let now_ms = reactor::wall_clock_ms();
                log.enforce_retention(now_ms).await.unwrap().producers_expired
            }
        };
        pass(HOUR_MS - 1_000).await;
        append(&log, &idempotent(3, 0)).await;
        assert_eq!(expired(&log).await, 0);
        pass(1_000).await;
        assert_eq!(expired(&log).await, 1);
        let mut known: Vec<i64> = log.producers().map(|it| it.producer_id).collect();
        known.sort_unstable();
        assert_eq!(known, [2, 3]);
        append(&log, &idempotent(1, 77)).await;
        // The setting may change while the log is open.
        log.reconfigure(LogConfig { producer_id_expiration_ms: 1_000, ..config.clone() });
        pass(1_000).await;
        assert_eq!(expired(&log).await, 2);
        log.close().await.unwrap();
        let (log, _) = open(&memory(), PathBuf::from(DIR), config).await;
        assert_eq!(log.producers().count(), 1, "only what is open");
        assert_eq!(log.producer(2).unwrap().open_since, Some(1));
        log.close().await.unwrap();
    });
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Retention,
    Delete,
}

/// Who asked is gone after so many microseconds: what has begun goes on, and no file stays that the log
/// knows nothing of.
async fn nobody_waits(asked: Asked, full: bool, after: u64) -> bool {
    let log = fresh(config()).await;
    for n in 0..6 {
        put(&log, n, reactor::wall_clock_ms()).await;
    }
    log.flush().await.unwrap();
    pass(8 * DAY_MS).await;
    put(&log, 6, reactor::wall_clock_ms()).await;
    if full {
        with_faults(|faults| faults.disk.full.insert(DIR.into()));
    }
    let ours = log.clone();
    let asking = reactor::spawn(async move {
        match asked {
            Asked::Retention => drop(ours.enforce_retention(reactor::wall_clock_ms()).await),
            Asked::Delete => drop(ours.advance_log_start(6).await),
        }
    });
    reactor::sleep(Duration::from_micros(after)).await;
    let ended = asking.is_finished();
    drop(asking);
    pass(10 * 60_000).await;
    assert_eq!(names(".deleted").await, Vec::<String>::new(), "after {after} us");
    assert_eq!(names(".log").await.len(), log.segment_count(), "after {after} us");
    with_faults(|faults| faults.disk.full.clear());
    let start = log.log_start_offset();
    // A write that found no space has taken it out of service.
    let _ = log.close().await;
    let log = fresh(config()).await;
    assert_eq!(log.log_start_offset(), start, "the start moved, after {after} us");
    log.close().await.unwrap();
    ended
}

#[test]
fn retention_and_deletes_end_what_they_began_though_nobody_waits_any_more() {
    for (asked, full) in
        [(Asked::Retention, false), (Asked::Retention, true), (Asked::Delete, false)]
    {
        let mut amid = 0;
        for after in (0..).map(|step| step * 70) {
            let outcome = world(after).run(move || nobody_waits(asked, full, after));
            match outcome {
                Outcome::Finished(true) => break,
                Outcome::Finished(false) => amid += 1,
                _ => panic!("{asked:?}, full: {full}: {outcome:?}"),
            }
        }
        assert!(amid > 10, "{asked:?}, full: {full}: only {amid} left amid it");
    }
}

/// A crash comes before anything else says that all was removed.
#[test]
fn a_start_that_found_no_room_is_written_once_files_are_unlinked() {
    on_sim(1, || async {
        let log = fresh(config()).await;
        for n in 0..6 {
            put(&log, n, reactor::wall_clock_ms()).await;
        }
        log.flush().await.unwrap();
        pass(8 * DAY_MS).await;
        with_faults(|faults| faults.disk.full.insert(DIR.into()));
        let outcome = log.enforce_retention(reactor::wall_clock_ms()).await.unwrap();
        assert_eq!(outcome.log_start_offset, 6);
        let file = Path::new(DIR).join("log-start-offset-checkpoint");
        assert!(!fs::exists(&file).await.unwrap(), "there was room");
        with_faults(|faults| faults.disk.full.clear());
        pass(2 * 60_000).await;
        drop(log);
        let vouched = log::Vouched { synced_end: 6, ..log::Vouched::default() };
        let hint = log::OpenHint { vouched, ..log::OpenHint::default() };
        let opened = Log::open(&memory(), DIR.into(), config(), hint, NOW_MS).await;
        let (log, _) = opened.unwrap();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (6, 6));
        log.close().await.unwrap();
    });
}

#[test]
fn a_seal_that_finds_no_room_is_made_later_and_the_log_goes_on() {
    on_sim(1, || async {
        let log = fresh(config()).await;
        for n in 0..3 {
            put(&log, n, reactor::wall_clock_ms()).await;
        }
        pass(8 * DAY_MS).await;
        with_faults(|faults| faults.disk.no_room_for_names.insert(DIR.into()));
        for n in 3..6 {
            put(&log, n, reactor::wall_clock_ms()).await;
            pass(1_000).await;
        }
        assert!(matches!(log.state(), log::LogState::Online));
        with_faults(|faults| faults.disk.no_room_for_names.clear());
        let outcome = log.enforce_retention(reactor::wall_clock_ms()).await.unwrap();
        assert_eq!((outcome.segments_deleted, outcome.log_start_offset), (3, 3));
        log.close().await.unwrap();
    });
}
