//! One pass of compaction on a simulated machine, with a fault at every single file operation of it
//! in turn: the process dies, the power goes, or that one operation fails and all others work.
//!
//! Afterwards, and again after the next opening and the next pass, a reader sees the latest value
//! of every key at its offset, and nothing that was never written.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::*;
use log::{CleanOptions, IoBudget, Log, LogConfig, LogError, LogState, OpenHint, Relocation};
use reactor::fs;
use reactor::sim::{Crash, Outcome, World, with_faults};
use wire::records::{BatchBuilder, batches};

const DIR: &str = "/data/keys-0";
const KEYS: u64 = 5;
const RECORDS: u64 = 40;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_500,
        index_interval_bytes: 200,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

fn key_of(n: u64) -> String {
    format!("k{}", n % KEYS)
}

fn value_of(n: u64) -> Vec<u8> {
    value(n, 60 + (n as usize * 37) % 200)
}

async fn open_log(clean: bool) -> Log {
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let hint = OpenHint { clean, ..OpenHint::default() };
    Log::open(&shared(64 << 10), PathBuf::from(DIR), config(), hint, NOW_MS).await.unwrap().0
}

/// Sealed segments with old values of every key; all of it flushed.
async fn write_log() {
    let log = open_log(false).await;
    for n in 0..RECORDS {
        let mut batch = BatchBuilder::new();
        batch.append(NOW_MS, Some(key_of(n).as_bytes()), Some(&value_of(n)));
        append(&log, &batch.build().unwrap()).await;
    }
    log.flush().await.unwrap();
    log.close().await.unwrap();
    fs::sync_dir(Path::new("/data")).await.unwrap();
}

/// A world in which that was done.
fn written(seed: u64) -> World {
    let mut world = World::new(seed);
    let ran = world.run(write_log);
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
    world.faults().disk.unordered_names = seed % 2 == 1;
    world
}

/// The offsets of the records that can be read, each checked against what was written there.
async fn readable(log: &Log) -> Result<Vec<u64>, LogError> {
    let (mut next, mut offsets) = (0, Vec::new());
    while next < log.visible_end_offset() {
        let bytes = log.plan_read(next, i64::MAX, 700, true).unwrap().execute().await?.concat();
        let before = next;
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let n = record.offset as u64;
                assert_eq!(record.key, Some(key_of(n).as_bytes()), "key at {n}");
                assert_eq!(record.value, Some(&value_of(n)[..]), "value at {n}");
                offsets.push(n);
            }
            next = batch.header().next_offset();
        }
        assert!(next > before, "nothing is served at {before}");
    }
    Ok(offsets)
}

/// Every key's latest value is among them, each offset once and in order.
fn check(offsets: &[u64], when: &str) {
    assert!(offsets.is_sorted_by(|a, b| a < b), "{when}: {offsets:?}");
    let latest: BTreeMap<u64, u64> = offsets.iter().map(|n| (n % KEYS, *n)).collect();
    let expected: BTreeMap<u64, u64> = (0..RECORDS).map(|n| (n % KEYS, n)).collect();
    assert_eq!(latest, expected, "{when}");
}

async fn pass(log: &Log) -> Result<bool, LogError> {
    match log.cleanable(NOW_MS).await? {
        Some(found) => {
            let outcome = log.clean(&found, &CleanOptions::default(), NOW_MS).await?;
            Ok(outcome.complete || outcome.from == outcome.to)
        }
        None => Ok(true),
    }
}

/// Another opening, another pass: how many records are left then.
async fn settle(when: &str) -> usize {
    let log = open_log(false).await;
    assert_eq!(log.log_end_offset() as u64, RECORDS, "{when}");
    check(&readable(&log).await.unwrap(), when);
    assert!(pass(&log).await.unwrap(), "{when}: the next pass");
    let left = readable(&log).await.unwrap();
    check(&left, when);
    log.close().await.unwrap();
    assert_eq!(half_made().await, Vec::<String>::new(), "{when}");
    left.len()
}

/// What passes have left in the folder.
async fn half_made() -> Vec<String> {
    let entries = fs::read_dir(Path::new(DIR)).await.unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".swap") || name.ends_with(".cleaned")).collect()
}

#[test]
fn a_crash_at_any_step_of_a_pass_loses_nothing() {
    for kind in [Crash::Process, Crash::Power] {
        let mut left = usize::MAX;
        for step in 0.. {
            let mut world = written(step);
            world.crash_after(step, kind);
            let ran = world.run(|| async {
                let log = open_log(true).await;
                assert!(pass(&log).await.unwrap());
                log.close().await.unwrap();
            });
            world.crash_after(u64::MAX / 2, kind);
            let when = format!("{kind:?} at step {step}");
            let settled = world.run(move || async move { settle(&when).await });
            let Outcome::Finished(count) = settled else { panic!("{kind:?} {step}: {settled:?}") };
            left = left.min(count);
            if matches!(ran, Outcome::Finished(())) {
                assert!(step > 60, "only {step} steps");
                break;
            }
        }
        // The active segment keeps what it has.
        assert!(left < RECORDS as usize / 2, "{left} records are left of {RECORDS}");
    }
}

#[test]
fn one_operation_that_fails_at_any_step_of_a_pass_loses_nothing() {
    let (mut failed, mut offline) = (0, 0);
    let removed = Rc::new(Cell::new(0));
    for step in 0.. {
        let mut world = written(step);
        let removed = removed.clone();
        let ran = world.run(move || async move {
            let log = open_log(true).await;
            with_faults(|faults| faults.disk.eio_once = Some(step));
            let done = pass(&log).await;
            let left = with_faults(|faults| faults.disk.eio_once.take());
            let struck = left.flatten().is_none();
            let when = format!("EIO at step {step}");
            // What is served is right, on a log that was taken offline too.
            if let Ok(offsets) = readable(&log).await {
                check(&offsets, &when);
            }
            let online = matches!(log.state(), LogState::Online);
            if online {
                // But for the one that could not be removed.
                let left = half_made().await.len();
                assert!(left <= 1, "{when}: {left} files are left");
                removed.set(removed.get() + usize::from(done.is_err() && left == 0));
                assert!(pass(&log).await.unwrap(), "{when}: it is tried again");
                check(&readable(&log).await.unwrap(), &when);
                log.close().await.unwrap();
            } else {
                assert!(done.is_err(), "{when}: offline, and nobody was told");
                assert!(log.close().await.is_err());
            }
            settle(&when).await;
            (struck, done.is_err(), online)
        });
        let Outcome::Finished((struck, told, online)) = ran else { panic!("{step}: {ran:?}") };
        failed += usize::from(told);
        offline += usize::from(!online);
        if !struck {
            assert!(step > 60, "only {step} steps");
            break;
        }
        // The power goes after a fault of which nobody was told, or that was put right.
        world.crash_after(1, Crash::Power);
        world.run(|| async { while fs::exists(Path::new(DIR)).await.is_ok() {} });
        world.crash_after(u64::MAX / 2, Crash::Power);
        let settled = world.run(move || async move { settle(&format!("cut {step}")).await });
        assert!(matches!(settled, Outcome::Finished(_)), "{step}: {settled:?}");
    }
    assert!(failed > 30 && offline > 0, "{failed} failed, {offline} offline");
    assert!(removed.get() + offline > failed * 9 / 10, "{} of {failed} removed", removed.get());
}

/// A copy for another disk is asked for while a pass of compaction goes on: that one ends, none
/// begins until the copy is made or given up, and every byte is copied once.
async fn copy_amid_a_pass(after: u64) -> Vec<u64> {
    const TARGET: &str = "/other/keys-0";
    let log = open_log(true).await;
    let cleaning = log.clone();
    let passing = reactor::spawn(async move {
        let found = cleaning.cleanable(NOW_MS).await.unwrap().unwrap();
        let io = Rc::new(IoBudget::new(2_000.0));
        let options = CleanOptions { io, ..CleanOptions::default() };
        cleaning.clean(&found, &options, NOW_MS).await
    });
    reactor::sleep(Duration::from_millis(after)).await;
    let asked = reactor::now();
    let mut copy = Relocation::begin(log.clone(), PathBuf::from(TARGET), 0).await.unwrap();
    assert!(reactor::now() - asked < Duration::from_secs(1), "it waits for all of the pass");
    assert!(matches!(passing.await, Err(LogError::Copied(_))), "after {after} ms");
    assert_eq!(half_made().await, Vec::<String>::new(), "after {after} ms");
    let size = log.size_bytes();
    let mut copied = 0;
    for _ in 0..3 {
        // Slow enough for a pass between two of its windows.
        copied += copy.pass(&|| Some(5_000)).await.unwrap();
        assert_eq!(log.cleanable(NOW_MS).await.unwrap(), None);
    }
    // Of the segment that is written the last block is copied again.
    assert!(copied <= size + 3 * 4096, "{copied} bytes copied of {size}");
    log.close().await.unwrap();
    copy.finish().await.unwrap();
    let hint = OpenHint { clean: true, ..OpenHint::default() };
    let opened = Log::open(&shared(64 << 10), PathBuf::from(TARGET), config(), hint, NOW_MS).await;
    let copied = readable(&opened.unwrap().0).await.unwrap();
    settle("where it was").await;
    copied
}

#[test]
fn nothing_is_compacted_while_it_is_copied_to_another_disk() {
    for after in (250..3000).step_by(250) {
        let outcome = written(after).run(move || copy_amid_a_pass(after));
        let Outcome::Finished(copied) = outcome else { panic!("after {after} ms: {outcome:?}") };
        check(&copied, "in the copy");
    }
}

#[test]
fn a_copy_that_is_given_up_keeps_compaction_away_no_longer() {
    let outcome = written(1).run(|| async {
        let log = open_log(true).await;
        let copy = Relocation::begin(log.clone(), PathBuf::from("/other/keys-0"), 0).await;
        assert_eq!(log.cleanable(NOW_MS).await.unwrap(), None);
        drop(copy);
        assert!(log.cleanable(NOW_MS).await.unwrap().is_some());
        assert!(pass(&log).await.unwrap());
        log.close().await.unwrap();
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

const CAPACITY: u64 = 1 << 20;

/// What a pass has made and a copy has copied must not take the last space of a disk.
async fn leave_space() {
    let log = open_log(true).await;
    let found = log.cleanable(NOW_MS).await.unwrap().unwrap();
    // What is replaced gives its own space back.
    let options = CleanOptions { keep_free_bytes: CAPACITY, ..CleanOptions::default() };
    let cleaned = log.clean(&found, &options, NOW_MS).await;
    let Err(LogError::Storage(failed)) = cleaned else { panic!("{cleaned:?}") };
    assert!(log::is_out_of_space(&failed.cause), "{failed}");
    assert_eq!(half_made().await, Vec::<String>::new());
    let target = PathBuf::from("/other/keys-0");
    let mut copy = Relocation::begin(log.clone(), target, CAPACITY).await.unwrap();
    let Err(LogError::Storage(failed)) = copy.pass(&|| None).await else {
        panic!("it takes what it should leave");
    };
    assert!(log::is_out_of_space(&failed.cause), "{failed}");
    drop(copy);
    assert!(matches!(log.state(), LogState::Online));
    assert!(pass(&log).await.unwrap(), "there is space for whoever may take it");
    log.close().await.unwrap();
}

#[test]
fn passes_and_copies_leave_the_space_that_they_are_told_to() {
    let mut world = written(2);
    world.faults().disk.capacity = Some(CAPACITY);
    let outcome = world.run(leave_space);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
