//! One pass of compaction on a simulated machine, with a fault at every single file operation of it in
//! turn: the process dies, the power goes, or that one operation fails and all others work.
//!
//! Afterwards, and again after the next opening and the next pass, a reader sees the latest value of
//! every key at its offset, and nothing that was never written.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use log::{ALL_AGAIN, CleanOptions, Log, LogConfig, LogError, LogState, OpenHint, Relocation};
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
    for entry in fs::read_dir(Path::new(DIR)).await.unwrap() {
        let half = [".swap", ".cleaned"].iter().any(|suffix| entry.name.ends_with(suffix));
        assert!(!half, "{when}: {} is left", entry.name);
    }
    left.len()
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
    for step in 0.. {
        let mut world = written(step);
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
}

/// A copy for another disk is in the making while a pass of compaction replaces what it copies.
async fn copy_while_it_is_cleaned() -> Vec<u64> {
    const TARGET: &str = "/other/keys-0";
    let log = open_log(true).await;
    let mut copy = Relocation::begin(log.clone(), PathBuf::from(TARGET)).await.unwrap();
    let cleaning = log.clone();
    // In the pause after the first bytes.
    let cleaned = reactor::spawn(async move {
        reactor::sleep(Duration::from_secs(1)).await;
        pass(&cleaning).await
    });
    let slow = || Some(100);
    assert_eq!(copy.pass(&slow).await.unwrap(), ALL_AGAIN);
    assert!(cleaned.await.unwrap());
    assert_ne!(copy.pass(&|| None).await.unwrap(), ALL_AGAIN);
    log.close().await.unwrap();
    copy.finish().await.unwrap();
    let hint = OpenHint { clean: true, ..OpenHint::default() };
    let opened = Log::open(&shared(64 << 10), PathBuf::from(TARGET), config(), hint, NOW_MS).await;
    readable(&opened.unwrap().0).await.unwrap()
}

#[test]
fn a_copy_begins_anew_when_compaction_replaces_its_segments() {
    for seed in 0..10 {
        let outcome = written(seed).run(copy_while_it_is_cleaned);
        let Outcome::Finished(copied) = outcome else { panic!("seed {seed}: {outcome:?}") };
        check(&copied, "in the copy");
        assert!(copied.len() < RECORDS as usize, "seed {seed}: nothing was cleaned");
    }
}
