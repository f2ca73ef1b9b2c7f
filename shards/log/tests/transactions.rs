//! Aborted transactions against an oracle that reads every batch: over rolls, clean and unclean
//! ends of the process, power cuts and damaged index files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::*;
use log::{
    AbortedTxn, AppendError, EndedBy, Log, LogConfig, OpenHint, ProducerRejection,
    TransactionMarker, txn_index,
};
use reactor::fs;
use reactor::sim::{Crash, Outcome, World};
use wire::records::control::EndTransaction;
use wire::records::{BatchBuilder, batches};

const DIR: &str = "/data/txn-0";
const PRODUCERS: i64 = 4;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 1_500, index_interval_bytes: 300, ..LogConfig::default() }
}

fn data(producer: i64, sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(producer, 0, sequence).transactional(true);
    builder.append(NOW_MS, None, Some(&[7; 40]));
    builder.build().unwrap()
}

fn end(producer: i64, committed: bool) -> Vec<u8> {
    EndTransaction { committed, coordinator_epoch: 0 }.batch(producer, 0, NOW_MS).unwrap()
}

/// Every aborted transaction, read off the batches; and where the open part begins.
async fn oracle(log: &Log) -> (Vec<AbortedTxn>, i64, BTreeMap<i64, i32>) {
    let (mut open, mut aborted) = (BTreeMap::new(), Vec::new());
    let mut sequences = BTreeMap::new();
    let mut next = log.log_start_offset();
    while next < log.visible_end_offset() {
        let bytes = log.plan_read(next, i64::MAX, 10_000, true).unwrap().execute().await.unwrap();
        for batch in batches(&bytes.concat()) {
            let batch = batch.unwrap();
            let header = batch.header();
            next = header.next_offset();
            let Some(end) = EndTransaction::read(&batch).unwrap() else {
                open.entry(header.producer_id).or_insert(header.base_offset);
                sequences.insert(header.producer_id, header.base_sequence + 1);
                continue;
            };
            let first = open.remove(&header.producer_id);
            if let Some(first_offset) = first.filter(|_| !end.committed) {
                aborted.push(AbortedTxn {
                    producer_id: header.producer_id,
                    first_offset,
                    last_offset: header.base_offset,
                    last_stable_offset: open.values().copied().min().unwrap_or(next),
                });
            }
        }
    }
    (aborted, open.values().copied().min().unwrap_or(next), sequences)
}

async fn compare(log: &Log, dice: &mut Dice) -> BTreeMap<i64, i32> {
    let (aborted, stable, sequences) = oracle(log).await;
    assert_eq!(log.last_stable_offset(), stable);
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    for round in 0..12 {
        let from = start + dice.below((end - start + 1) as u64) as i64;
        let upper = from + dice.below((end - from + 2) as u64) as i64;
        let (from, upper) = if round == 0 { (start, i64::MAX) } else { (from, upper) };
        let found = log.aborted_transactions(from, upper).await.unwrap();
        let overlaps = |txn: &&AbortedTxn| txn.last_offset >= from && txn.first_offset < upper;
        let expected: Vec<AbortedTxn> = aborted.iter().filter(overlaps).copied().collect();
        assert_eq!(found, expected, "from {from} to {upper}");
        assert!(found.is_empty() || log.has_aborted_transactions(from));
    }
    sequences
}

async fn write_some(log: &Log, dice: &mut Dice, mut sequences: BTreeMap<i64, i32>) -> Option<()> {
    let mut begun: Vec<i64> = (0..PRODUCERS).collect();
    for _ in 0..dice.below(120) {
        let producer = dice.below(PRODUCERS as u64) as i64;
        let bytes = match dice.below(3) {
            0 => end(producer, dice.below(3) == 0),
            _ => {
                let sequence = sequences.entry(producer).or_default();
                *sequence += 1;
                data(producer, *sequence - 1)
            }
        };
        match log.append(&view(&bytes), 0, NOW_MS) {
            Ok(_) => {}
            Err(AppendError::Full) => log.room().await,
            Err(error) => panic!("{error}"),
        }
        begun.push(producer);
        if dice.below(30) == 0 {
            log.flush().await.ok()?;
        }
        if dice.below(10) == 0 {
            log.acknowledged(log.log_end_offset()).await.ok()?;
        }
    }
    log.acknowledged(log.log_end_offset()).await.ok()
}

/// One life of the process: open, compare, write, compare, maybe close.
async fn life(mut dice: Dice, clean: bool, close: bool) {
    let hint = OpenHint { clean, ..OpenHint::default() };
    let dir = PathBuf::from(DIR);
    // The data folder was made durable when it was formatted.
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let (log, _) = Log::open(&shared(1 << 20), dir, config(), hint, NOW_MS).await.unwrap();
    let sequences = compare(&log, &mut dice).await;
    if write_some(&log, &mut dice, sequences).await.is_none() {
        return;
    }
    compare(&log, &mut dice).await;
    if close {
        log.close().await.unwrap();
    }
}

#[test]
fn after_any_crash_the_index_says_what_the_batches_say() {
    let seeds = std::env::var("CORELANE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let crash = if dice.below(2) == 0 { Crash::Power } else { Crash::Process };
        let mut world = World::new(seed);
        let mut clean = false;
        for _ in 0..5 {
            let close = dice.below(3) == 0;
            if !close {
                world.crash_after(10 + dice.below(150), crash);
            }
            let seed = dice.below(u64::MAX);
            let outcome = world.run(move || life(Dice(seed), clean, close));
            clean = match outcome {
                Outcome::Finished(()) => close,
                Outcome::Crashed(_) => false,
                Outcome::Stuck => panic!("seed {seed} is stuck"),
            };
        }
    }
}

/// Writes until there are several segments with entries; the names of their index files.
async fn several_segments(dir: &Path) -> Vec<PathBuf> {
    let (log, _) = open(&shared(1 << 20), dir.to_path_buf(), config()).await;
    for n in 0..40 {
        for producer in 0..PRODUCERS {
            append(&log, &data(producer, n)).await;
        }
        append(&log, &end(i64::from(n) % PRODUCERS, n % 3 == 0)).await;
    }
    log.acknowledged(log.log_end_offset()).await.unwrap();
    compare(&log, &mut Dice(1)).await;
    log.close().await.unwrap();
    let mut names: Vec<PathBuf> = fs::read_dir(dir)
        .await
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name.ends_with(".txnindex"))
        .map(|entry| dir.join(entry.name))
        .collect();
    names.sort();
    assert!(names.len() > 3, "{names:?}");
    names
}

#[test]
fn a_damaged_index_is_made_anew_from_the_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let files = several_segments(&path).await;
        for (n, file) in files.iter().enumerate() {
            let mut bytes = std::fs::read(file).unwrap();
            match n % 3 {
                0 => bytes.truncate(bytes.len() - 1),
                1 => bytes[1] = 9,
                _ => bytes.extend_from_within(..txn_index::ENTRY_BYTES),
            }
            std::fs::write(file, bytes).unwrap();
        }
        let (log, _) = open_clean(&shared(1 << 20), path.clone(), config()).await;
        let mut dice = Dice(2);
        let sequences = compare(&log, &mut dice).await;
        write_some(&log, &mut dice, sequences).await.unwrap();
        compare(&log, &mut dice).await;
        log.close().await.unwrap();
        for file in &files {
            let base = file.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            assert!(!txn_index::load(&path, base).await.unwrap().is_empty());
        }
    });
}

#[test]
fn the_index_goes_with_its_segment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        let files = several_segments(&path).await;
        let (log, _) = open_clean(&shared(1 << 20), path.clone(), config()).await;
        let end = log.log_end_offset();
        log.advance_log_start(end).await.unwrap();
        assert_eq!(log.aborted_transactions(end, i64::MAX).await.unwrap(), []);
        let left = files.iter().filter(|file| file.exists()).count();
        assert!(left <= 1, "{left} of {} are left", files.len());
        log.close().await.unwrap();
    });
}

/// A coordinator's marker ends what is open, once; late ones change nothing.
/// DeleteRecords may move the start into an open transaction, or past it.
#[test]
fn the_last_stable_offset_is_never_below_the_start() {
    let outcome = World::new(1).run(|| async {
        let shared = shared(1 << 20);
        let (log, _) = open(&shared, PathBuf::from(DIR), config()).await;
        append(&log, &batch(&[value(0, 40)], NOW_MS)).await;
        for sequence in 0..60 {
            append(&log, &data(1, sequence)).await;
        }
        log.acknowledged(61).await.unwrap();
        assert_eq!(log.last_stable_offset(), 1);
        log.advance_log_start(50).await.unwrap();
        assert_eq!((log.last_stable_offset(), log.log_end_offset()), (50, 61));
        log.close().await.unwrap();
        let (log, _) = open(&shared, PathBuf::from(DIR), config()).await;
        assert_eq!((log.log_start_offset(), log.last_stable_offset()), (50, 50));
        log.advance_log_start(61).await.unwrap();
        assert_eq!(log.last_stable_offset(), 61);
        append(&log, &end(1, false)).await;
        log.acknowledged(62).await.unwrap();
        assert_eq!(log.last_stable_offset(), 62);
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// An administrator ends only what is open, and cannot claim what a coordinator might be refused
/// for.
#[test]
fn by_hand_a_transaction_can_only_be_aborted_as_it_is_known() {
    let outcome = World::new(1).run(|| async {
        fs::create_dir_all(Path::new("/data")).await.unwrap();
        let (shared, dir) = (shared(64 << 10), PathBuf::from(DIR));
        let opened = Log::open(&shared, dir, config(), OpenHint::default(), NOW_MS).await;
        let log = opened.unwrap().0;
        let put = |committed, producer_epoch, coordinator_epoch, by| {
            let end = EndTransaction { committed, coordinator_epoch };
            let (producer_id, raises_epoch) = (7, false);
            let marker = TransactionMarker { producer_id, producer_epoch, end, raises_epoch, by };
            log.append_marker(marker, 0, NOW_MS).map_err(|error| match error {
                AppendError::Producer(rejection) => rejection,
                other => panic!("{other}"),
            })
        };
        let (admin, coordinator) = (EndedBy::Admin, EndedBy::Coordinator);
        let refused = Err(ProducerRejection::OnlyByCoordinator { producer_id: 7 });
        // Of a producer that is not known nothing is open; nothing is remembered of it either.
        let idle = put(false, i16::MAX, i32::MAX, admin).unwrap();
        assert_eq!((idle.last_offset, idle.duplicate, log.log_end_offset()), (-1, true, 0));
        append(&log, &data(7, 0)).await;
        assert_eq!(put(true, 0, 0, admin), refused);
        assert_eq!(put(false, 1, 0, admin), refused);
        assert_eq!(put(false, 0, 1, admin), refused);
        assert_eq!(put(false, 0, i32::MAX, admin), refused);
        assert_eq!((log.last_stable_offset(), log.log_end_offset()), (0, 1));
        let ended = put(false, 0, 0, admin).unwrap();
        log.acknowledged(ended.last_offset + 1).await.unwrap();
        assert_eq!((log.last_stable_offset(), log.log_end_offset()), (2, 2));
        assert_eq!(put(false, 0, 0, admin).unwrap().last_offset, 1, "nothing is open any more");
        assert_eq!(log.log_end_offset(), 2);
        // A coordinator is known now, of an epoch that no coordinator has: the one of now is not
        // fenced.
        put(false, 0, i32::MAX, coordinator).unwrap();
        let fenced = put(true, 0, 2, coordinator);
        assert!(matches!(fenced, Err(ProducerRejection::CoordinatorFenced { .. })), "{fenced:?}");
        put(true, 0, 2, EndedBy::CurrentCoordinator).unwrap();
        assert_eq!(log.producer(7).unwrap().coordinator_epoch, 2);
        put(true, 0, 2, coordinator).unwrap();
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
#[test]
fn a_marker_ends_its_transaction_and_a_late_one_is_refused() {
    let outcome = World::new(1).run(|| async {
        fs::create_dir_all(Path::new("/data")).await.unwrap();
        let (shared, dir) = (shared(64 << 10), PathBuf::from(DIR));
        let opened = Log::open(&shared, dir, config(), OpenHint::default(), NOW_MS).await;
        let log = opened.unwrap().0;
        append(&log, &data(7, 0)).await;
        assert_eq!(log.producer(7).unwrap().open_since, Some(0));
        assert_eq!(log.last_stable_offset(), 0);
        let marker = |producer_epoch, coordinator_epoch, raises_epoch| TransactionMarker {
            producer_id: 7,
            producer_epoch,
            end: EndTransaction { committed: false, coordinator_epoch },
            raises_epoch,
            by: EndedBy::Coordinator,
        };
        let put = |marker| log.append_marker(marker, 0, NOW_MS);
        // With transaction.version 2 the marker's epoch is above that of the batches.
        let rejected = |answer: Result<_, AppendError>| match answer {
            Err(AppendError::Producer(rejection)) => rejection,
            other => panic!("{other:?}"),
        };
        let same = rejected(put(marker(0, 3, true)));
        assert!(matches!(same, ProducerRejection::InvalidEpoch { current: 0, got: 0, .. }));
        assert_eq!(log.log_end_offset(), 1);
        let ended = put(marker(1, 3, true)).unwrap();
        log.acknowledged(ended.last_offset + 1).await.unwrap();
        assert_eq!((log.last_stable_offset(), log.log_end_offset()), (2, 2));
        // Sent again, as its answer was lost: harmless.
        let again = put(marker(1, 3, true)).unwrap();
        log.acknowledged(again.last_offset + 1).await.unwrap();
        let older = rejected(put(marker(1, 2, true)));
        assert!(matches!(older, ProducerRejection::CoordinatorFenced { current: 3, got: 2, .. }));
        let late = rejected(put(marker(0, 3, false)));
        assert!(matches!(late, ProducerRejection::InvalidEpoch { current: 1, got: 0, .. }));
        let aborted = log.aborted_transactions(0, 2).await.unwrap();
        assert_eq!(aborted.len(), 1);
        assert_eq!((aborted[0].first_offset, aborted[0].last_offset), (0, 1));
        assert_eq!(log.producers().map(|p| p.producer_id).collect::<Vec<_>>(), [7]);
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
