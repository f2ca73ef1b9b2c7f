//! Compaction on a simulated machine against a ledger of all that was ever appended: random keyed
//! records, tombstones, transactions, codecs and rolls; passes with maps large and small; crashes
//! at any file operation, and readers all along; on half of the machines transfers end short, calls
//! are interrupted, sectors are large and names survive a power cut in any order.
//!
//! Whatever happened, a reader from offset 0 sees of every key the latest value, at its offset and
//! in order; nothing that was never there, nothing that must be gone, no tombstone before its time.
//! `CORELANE_SEEDS=n` runs more seeds; `CORELANE_SEED=n` runs one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::*;
use log::{AbortedTxn, CleanOptions, Log, LogConfig, LogShared, OpenHint, SharedOptions};
use reactor::fs;
use reactor::sim::{Crash, Outcome, World};
use wire::records::control::EndTransaction;
use wire::records::{BatchBuilder, BatchView, Codec, batches};

const DIR: &str = "/data/keys-0";
const KEYS: u64 = 12;
/// 0 and 1 write outside of transactions, the others within.
const PRODUCERS: i64 = 4;
const RETENTION_MS: i64 = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    key: String,
    value: Option<String>,
    timestamp: i64,
}

/// A record as it was appended.
#[derive(Clone, Debug)]
struct Known {
    record: Record,
    producer: i64,
    /// The transaction it belongs to.
    txn: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Ended { committed: bool },
}

/// The batch that a producer sent last.
#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    records: Vec<Record>,
    txn: Option<usize>,
    acked: Option<i64>,
}

/// A marker that was sent and not acknowledged.
#[derive(Clone, Copy)]
struct Marker {
    producer: i64,
    txn: usize,
    committed: bool,
    offset: i64,
}

#[derive(Default)]
struct Ledger {
    records: BTreeMap<i64, Known>,
    acked_end: i64,
    txns: Vec<Fate>,
    open: BTreeMap<i64, usize>,
    last: BTreeMap<i64, Sent>,
    sequences: BTreeMap<i64, i32>,
    marker: Option<Marker>,
    now_ms: i64,
    numbers: u64,
    /// Nothing at or behind this offset was ever cleaned.
    cleaned_to: i64,
    passes: u64,
    dropped: u64,
}

type Shared = Rc<RefCell<Ledger>>;

#[derive(Clone)]
struct Plan {
    config: LogConfig,
    cache_bytes: usize,
    crash: Crash,
    runs: u64,
}

fn plan(dice: &mut Dice) -> Plan {
    let synced = dice.below(2) == 0;
    let config = LogConfig {
        segment_bytes: dice.pick(&[700, 1_500, 6_000]),
        index_interval_bytes: dice.pick(&[0, 200, 4_096]),
        flush_messages: if synced { 1 } else { u64::MAX },
        file_delete_delay_ms: 1,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        min_compaction_lag_ms: dice.pick(&[0, 0, 100]),
        delete_retention_ms: RETENTION_MS,
        ..LogConfig::default()
    };
    let crash = if synced && dice.below(2) == 0 { Crash::Power } else { Crash::Process };
    Plan { config, cache_bytes: dice.pick(&[16 << 10, 256 << 10]), crash, runs: 5 }
}

fn history(seed: u64) -> (u64, u64, u64) {
    let mut dice = Dice(seed);
    let plan = plan(&mut dice);
    let ledger = Shared::default();
    ledger.borrow_mut().now_ms = NOW_MS;
    let mut world = World::new(seed);
    if seed % 2 == 1 {
        trouble(&mut world, seed);
    }
    for run in 0..plan.runs {
        let last = run + 1 == plan.runs;
        if !last {
            world.crash_after(10 + dice.below(900), plan.crash);
        }
        let (ledger, plan, seed) = (Rc::clone(&ledger), plan.clone(), dice.roll());
        let outcome = world.run(move || async move { life(plan, ledger, Dice(seed), last).await });
        match outcome {
            Outcome::Finished(()) => {}
            Outcome::Crashed(_) if !last => {}
            other => panic!("run {run} of seed {seed} ended with {other:?}"),
        }
    }
    let ledger = ledger.borrow();
    (world.trace_hash(), ledger.passes, ledger.dropped)
}

/// What every machine may do to a log, none of it an error: see the table of the simulated disk.
fn trouble(world: &mut World, seed: u64) {
    let mut dice = Dice(seed ^ 0xd15c);
    let disk = &mut world.faults().disk;
    disk.sector_bytes = dice.pick(&[512, 4_096]);
    disk.unordered_names = dice.below(2) == 0;
    disk.short_per_million = dice.pick(&[0, 20_000]);
    disk.interrupt_per_million = dice.pick(&[0, 5_000]);
}

async fn open_log(memory: &LogShared, config: LogConfig, clean: bool) -> Log {
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let hint = OpenHint { clean, ..OpenHint::default() };
    let opened = Log::open(memory, PathBuf::from(DIR), config, hint, NOW_MS).await;
    opened.unwrap().0
}

async fn life(plan: Plan, ledger: Shared, mut dice: Dice, last: bool) {
    let options = SharedOptions { cache_bytes: plan.cache_bytes, ..SharedOptions::default() };
    let memory = LogShared::new(options);
    let log = open_log(&memory, plan.config.clone(), false).await;
    settle(&log, &ledger).await;
    check(&log, &ledger, 3_000).await;
    let reader = {
        let (log, ledger) = (log.clone(), Rc::clone(&ledger));
        let bytes = dice.pick(&[1, 400, 5_000]);
        reactor::spawn(async move {
            loop {
                check(&log, &ledger, bytes).await;
                reactor::sleep(Duration::from_micros(300)).await;
            }
        })
    };
    let cleaner = reactor::spawn(cleaner(log.clone(), Rc::clone(&ledger), Dice(dice.roll())));
    for _ in 0..if last { 20 } else { 400 } {
        step(&log, &ledger, &mut dice).await;
    }
    drop((reader, cleaner));
    log.flush().await.unwrap();
    // The end of every run that gets here: passes until nothing is left to do.
    for _ in 0..3 {
        pass(&log, &ledger, &CleanOptions::default()).await;
    }
    check(&log, &ledger, 3_000).await;
    check_every_offset(&log).await;
    log.close().await.unwrap();
    let log = open_log(&memory, plan.config, true).await;
    check(&log, &ledger, 3_000).await;
    log.close().await.unwrap();
}

/// After a crash: what was in flight either landed or is sent again, like clients do.
async fn settle(log: &Log, ledger: &Shared) {
    let end = log.log_end_offset();
    let (sent, marker) = {
        let mut ledger = ledger.borrow_mut();
        assert!(end >= ledger.acked_end, "{end} is below what was acknowledged");
        ledger.records.retain(|offset, _| *offset < end);
        ledger.acked_end = end;
        (ledger.last.clone(), ledger.marker.take())
    };
    if let Some(marker) = marker {
        match marker.offset < end {
            true => {
                ledger.borrow_mut().txns[marker.txn] = Fate::Ended { committed: marker.committed }
            }
            false => end_transaction(log, ledger, marker).await,
        }
    }
    for (producer, sent) in sent {
        let appended = append(log, &sent.bytes).await;
        match sent.acked {
            Some(offset) => {
                assert!(appended.duplicate, "the batch of {producer} at {offset} is forgotten");
                assert_eq!(appended.base_offset, offset);
            }
            None => acknowledge(log, ledger, producer, &sent, appended).await,
        }
    }
}

async fn acknowledge(
    log: &Log,
    ledger: &Shared,
    producer: i64,
    sent: &Sent,
    appended: log::Appended,
) {
    note_appended(&mut ledger.borrow_mut(), producer, sent, appended.base_offset);
    log.acknowledged(appended.last_offset + 1).await.unwrap();
    let mut ledger = ledger.borrow_mut();
    ledger.acked_end = ledger.acked_end.max(appended.last_offset + 1);
    ledger.last.get_mut(&producer).unwrap().acked = Some(appended.base_offset);
}

fn note_appended(ledger: &mut Ledger, producer: i64, sent: &Sent, base: i64) {
    for (i, record) in sent.records.iter().enumerate() {
        let known = Known { record: record.clone(), producer, txn: sent.txn };
        ledger.records.insert(base + i as i64, known);
    }
}

async fn step(log: &Log, ledger: &Shared, dice: &mut Dice) {
    ledger.borrow_mut().now_ms += dice.below(40) as i64;
    match dice.below(20) {
        0 => log.flush().await.unwrap(),
        1 => reactor::sleep(Duration::from_micros(dice.below(3_000))).await,
        2..=4 => {
            let open: Vec<(i64, usize)> =
                ledger.borrow().open.iter().map(|(producer, txn)| (*producer, *txn)).collect();
            if !open.is_empty() {
                let (producer, txn) = dice.pick(&open);
                let committed = dice.below(2) == 0;
                end_transaction(log, ledger, Marker { producer, txn, committed, offset: 0 }).await;
            }
        }
        _ => produce(log, ledger, dice).await,
    }
}

async fn end_transaction(log: &Log, ledger: &Shared, marker: Marker) {
    let now_ms = ledger.borrow().now_ms;
    let end = EndTransaction { committed: marker.committed, coordinator_epoch: 0 };
    let bytes = end.batch(marker.producer, 0, now_ms).unwrap();
    let appended = append(log, &bytes).await;
    {
        let mut ledger = ledger.borrow_mut();
        ledger.open.remove(&marker.producer);
        ledger.marker = Some(Marker { offset: appended.base_offset, ..marker });
        // It shows at once, acknowledged or not.
        ledger.txns[marker.txn] = Fate::Ended { committed: marker.committed };
    }
    log.acknowledged(appended.last_offset + 1).await.unwrap();
    let mut ledger = ledger.borrow_mut();
    ledger.acked_end = ledger.acked_end.max(appended.last_offset + 1);
    ledger.marker = None;
}

async fn produce(log: &Log, ledger: &Shared, dice: &mut Dice) {
    let producer = dice.below(PRODUCERS as u64) as i64;
    let sent = {
        let mut ledger = ledger.borrow_mut();
        let within = producer >= 2;
        let txn = within.then(|| match ledger.open.get(&producer) {
            Some(txn) => *txn,
            None => {
                ledger.txns.push(Fate::Open);
                let txn = ledger.txns.len() - 1;
                ledger.open.insert(producer, txn);
                txn
            }
        });
        let records: Vec<Record> = (0..1 + dice.below(4))
            .map(|_| {
                ledger.numbers += 1;
                let value = format!("{}-{}", ledger.numbers, "x".repeat(dice.below(60) as usize));
                Record {
                    key: format!("key-{}", dice.below(KEYS)),
                    value: (dice.below(5) > 0).then_some(value),
                    timestamp: ledger.now_ms,
                }
            })
            .collect();
        let sequence = ledger.sequences.entry(producer).or_default();
        let mut builder = BatchBuilder::new()
            .codec(dice.pick(&Codec::ALL), None)
            .producer(producer, 0, *sequence)
            .transactional(within);
        *sequence += records.len() as i32;
        for record in &records {
            let value = record.value.as_ref().map(String::as_bytes);
            builder.append(record.timestamp, Some(record.key.as_bytes()), value);
        }
        let sent = Sent { bytes: builder.build().unwrap(), records, txn, acked: None };
        ledger.last.insert(producer, sent.clone());
        sent
    };
    let appended = append(log, &sent.bytes).await;
    assert!(!appended.duplicate);
    acknowledge(log, ledger, producer, &sent, appended).await;
}

async fn cleaner(log: Log, ledger: Shared, mut dice: Dice) {
    loop {
        reactor::sleep(Duration::from_micros(dice.below(6_000))).await;
        let key_map_bytes = dice.pick(&[0, 8 << 10]);
        // With the least map a pass ends after a handful of keys.
        let load_factor = if key_map_bytes == 0 { 0.1 } else { 0.9 };
        pass(&log, &ledger, &CleanOptions { key_map_bytes, load_factor, ..Default::default() })
            .await;
    }
}

async fn pass(log: &Log, ledger: &Shared, options: &CleanOptions) {
    let now_ms = ledger.borrow().now_ms;
    let found = log.cleanable(now_ms).await.unwrap().unwrap();
    {
        let mut ledger = ledger.borrow_mut();
        ledger.cleaned_to = ledger.cleaned_to.max(found.clean_end);
    }
    let cleaned = log.clean(&found, options, now_ms).await;
    match cleaned {
        Ok(outcome) => {
            assert!(outcome.to > outcome.from || found.dirty_bytes == 0, "{outcome:?}");
            let mut ledger = ledger.borrow_mut();
            ledger.passes += 1;
            ledger.dropped += outcome.records - outcome.records_kept;
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads everything up to the end and holds it against the ledger.
async fn check(log: &Log, ledger: &Shared, max_bytes: usize) {
    let mut next = 0;
    let mut seen: BTreeMap<i64, Record> = BTreeMap::new();
    // As of every fetch: an entry may go as soon as nothing of its transaction is left.
    let mut aborted: Vec<AbortedTxn> = Vec::new();
    // Until the comparison nothing more may have become visible.
    loop {
        let end = log.visible_end_offset();
        for txn in log.aborted_transactions(next, i64::MAX).await.unwrap() {
            if !aborted.contains(&txn) {
                aborted.push(txn);
            }
        }
        let more = next < log.visible_end_offset();
        if more {
            next = fetch(log, next, max_bytes, &mut seen).await;
        }
        if !more && log.visible_end_offset() == end {
            break;
        }
    }
    let ledger = ledger.borrow();
    for (offset, record) in &seen {
        let known = ledger.records.get(offset).map(|known| &known.record);
        assert_eq!(Some(record), known, "offset {offset}");
    }
    let end = log.visible_end_offset();
    for (offset, known) in ledger.records.range(ledger.cleaned_to..end) {
        assert!(seen.contains_key(offset), "offset {offset} ({known:?}) is not cleaned but gone");
    }
    let hides = |offset: i64, producer: i64| {
        aborted.iter().any(|txn| {
            txn.producer_id == producer && (txn.first_offset..=txn.last_offset).contains(&offset)
        })
    };
    let mut latest: BTreeMap<&str, i64> = BTreeMap::new();
    for (offset, known) in ledger.records.range(..end) {
        match known.txn.map(|txn| ledger.txns[txn]) {
            Some(Fate::Open) => {
                assert!(seen.contains_key(offset), "{offset} is of an open transaction");
            }
            Some(Fate::Ended { committed: false }) => {
                let shown = seen.contains_key(offset) && !hides(*offset, known.producer);
                // A marker in flight is known here before it is in the index.
                assert!(
                    !shown || ledger.marker.is_some(),
                    "aborted record {offset} of {} is shown; known are {aborted:?}",
                    known.producer
                );
            }
            _ => {
                assert!(!hides(*offset, known.producer), "{offset} is hidden but not aborted");
                latest.insert(&known.record.key, *offset);
            }
        }
    }
    check_latest(&ledger, &seen, &latest);
}

fn check_latest(ledger: &Ledger, seen: &BTreeMap<i64, Record>, latest: &BTreeMap<&str, i64>) {
    let committed = |offset: &i64| {
        let fate = ledger.records[offset].txn.map(|txn| ledger.txns[txn]);
        matches!(fate, None | Some(Fate::Ended { committed: true }))
    };
    for (key, offset) in latest {
        let record = &ledger.records[offset].record;
        let of_key = seen.iter().filter(|(at, record)| record.key == *key && committed(at));
        let last_seen = of_key.map(|(at, _)| *at).next_back();
        if record.value.is_some() || ledger.now_ms < record.timestamp + RETENTION_MS {
            assert_eq!(last_seen, Some(*offset), "the latest record of {key}: {record:?}");
        } else {
            // The tombstone may have gone, but nothing comes back.
            assert!(last_seen.is_none_or(|at| at == *offset), "{key} is back at {last_seen:?}");
        }
    }
}

/// One fetch. Returns where the next one starts.
async fn fetch(log: &Log, from: i64, max_bytes: usize, seen: &mut BTreeMap<i64, Record>) -> i64 {
    let plan = log.plan_read(from, i64::MAX, max_bytes, true).unwrap();
    assert!(plan.len_hint() > 0, "a fetch at {from} would not be read");
    let bytes = match plan.execute().await {
        Ok(parts) => parts.concat(),
        Err(error) => panic!("at {from}: {error}"),
    };
    assert!(!bytes.is_empty(), "nothing at {from} of {}", log.visible_end_offset());
    let mut next = from;
    for batch in batches(&bytes) {
        let batch: BatchView<'_> = batch.unwrap();
        batch.verify_crc().unwrap();
        let header = batch.header();
        assert!(header.last_offset() >= next, "batches come in order");
        if !header.attributes.is_control() {
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let (key, value) = (text(record.key.unwrap()), record.value.map(text));
                if record.offset >= from {
                    seen.insert(record.offset, Record { key, value, timestamp: record.timestamp });
                }
            }
        }
        next = header.next_offset();
    }
    next
}

/// From any offset a reader gets what a reader from 0 gets from there on.
async fn check_every_offset(log: &Log) {
    let mut all = BTreeMap::new();
    let (mut next, mut stops) = (0, BTreeSet::new());
    while next < log.visible_end_offset() {
        next = fetch(log, next, 1, &mut all).await;
        stops.insert(next);
    }
    for from in 0..log.visible_end_offset() {
        let mut some = BTreeMap::new();
        let next = fetch(log, from, 1, &mut some).await;
        assert_eq!(Some(&next), stops.range(from + 1..).next(), "a fetch at {from}");
        assert!(some.iter().eq(all.range(from..next)), "a fetch at {from}");
    }
}

fn seeds(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("CORELANE_SEED"), number("CORELANE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (0..count.unwrap_or(default)).collect(),
    }
}

#[test]
fn the_latest_value_of_every_key_survives_passes_and_crashes() {
    let (mut passes, mut dropped) = (0, 0);
    for seed in seeds(25) {
        let run = std::panic::catch_unwind(|| history(seed));
        let Ok((_, more_passes, more_dropped)) = run else {
            panic!("seed {seed} failed; run it alone with CORELANE_SEED={seed}");
        };
        passes += more_passes;
        dropped += more_dropped;
    }
    assert!(passes > 5 && dropped > 100, "{passes} passes dropped {dropped} records");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    assert_eq!(history(7), history(7));
}
