//! The log on a simulated machine: crashes at random points, over many seeds.
//!
//! A ledger outside of the machine knows what was acknowledged and what a reader saw. After every
//! crash the log must hold all of that at the same offsets, and the producers' state with it.
//! `CORELANE_SEEDS=n` runs more seeds; `CORELANE_SEED=n` runs one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::*;
use log::{
    AppendError, Log, LogConfig, LogState, OpenHint, Preallocate, Promise, SharedOptions, Vouched,
};
use reactor::sim::{Crash, Delay, Outcome, World, with_faults};
use reactor::{File, OpenOptions, fs};

const DIR: &str = "/data/sim-0";
const PRODUCERS: i64 = 3;

/// A batch that a producer sent.
#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    values: Vec<Vec<u8>>,
    /// Its first offset, once acknowledged.
    acked: Option<i64>,
}

/// What the world outside knows.
#[derive(Default)]
struct Ledger {
    /// Acknowledged or seen by a reader.
    records: BTreeMap<i64, Vec<u8>>,
    /// The newest batch of each producer.
    last: BTreeMap<i64, Sent>,
    sequences: BTreeMap<i64, i32>,
    /// DeleteRecords that returned, and the furthest that was asked for.
    start: i64,
    asked_start: i64,
    /// The furthest visible end anyone was told.
    visible: i64,
    /// A flush that returned has made everything below durable, whatever the topic promises.
    flushed: i64,
    /// What the data folder's own file says of the log: never more than there is.
    vouched: Vouched,
    /// Producers of the life before are not heard of again: what they knew may be lost.
    lives: i64,
    numbers: u64,
}

impl Ledger {
    fn note(&mut self, offset: i64, value: &[u8]) {
        let known = self.records.entry(offset).or_insert_with(|| value.to_vec());
        assert_eq!(known, value, "offset {offset} was given to another record");
    }
}

#[derive(Clone)]
struct Plan {
    config: LogConfig,
    /// Bytes of the records' values. All the same: what a torn write leaves fits exactly behind
    /// what is written over it.
    sizes: &'static [usize],
    cache_bytes: usize,
    crash: Crash,
    /// The topic promises that its acknowledgements survive such a crash.
    promised: bool,
    runs: u64,
}

impl Plan {
    /// The machine that this plan runs on: its disk is more or less fond of the log.
    fn world(&self, seed: u64, dice: &mut Dice) -> World {
        let mut world = World::new(seed);
        let disk = &mut world.faults().disk;
        disk.sector_bytes = dice.pick(&[512, 4_096]);
        disk.unordered_names = dice.below(2) == 0;
        disk.short_per_million = dice.pick(&[0, 0, 20_000]);
        disk.interrupt_per_million = dice.pick(&[0, 0, 5_000]);
        world
    }
}

fn plan(dice: &mut Dice) -> Plan {
    let synced = dice.below(2) == 0;
    let config = LogConfig {
        segment_bytes: dice.pick(&[6_000, 20_000, 70_000]),
        index_interval_bytes: dice.pick(&[0, 300, 4_096]),
        flush_messages: if synced { 1 } else { dice.pick(&[u64::MAX, 7]) },
        write_caching: dice.below(6) == 0,
        flush_ms: dice.pick(&[u64::MAX, u64::MAX, 3]),
        preallocate: dice.pick(&[Preallocate::Auto, Preallocate::ZeroFill, Preallocate::Reserve]),
        retention_bytes: dice.pick(&[-1, -1, 60_000]),
        retention_ms: -1,
        file_delete_delay_ms: 5,
        ..LogConfig::default()
    };
    let crash = dice.pick(&[Crash::Power, Crash::Process]);
    let promised = match config.promise() {
        Promise::Synced => true,
        Promise::Written => crash == Crash::Process,
        Promise::Memory => false,
    };
    let sizes: &[usize] = dice.pick(&[&[20, 21, 100, 1_000, 1_800], &[1_000]]);
    let cache_bytes = dice.pick(&[32 << 10, 256 << 10]);
    Plan { config, sizes, cache_bytes, crash, promised, runs: 4 }
}

/// All runs of one seed; the digest of its history.
fn history(seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let plan = plan(&mut dice);
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let mut world = plan.world(seed, &mut dice);
    if std::env::var_os("CORELANE_SEED").is_some() {
        eprintln!(
            "{:?} {:?} promised {} {:?}",
            plan.config,
            plan.crash,
            plan.promised,
            world.faults().disk
        );
    }
    for run in 0..plan.runs {
        let last = run + 1 == plan.runs;
        if !last {
            world.crash_after(10 + dice.below(400), plan.crash);
        }
        let (ledger, plan, seed) = (Rc::clone(&ledger), plan.clone(), dice.roll());
        let outcome = world.run(move || async move { life(plan, ledger, Dice(seed), last).await });
        match outcome {
            Outcome::Finished(()) => {}
            Outcome::Crashed(_) if !last => {}
            other => panic!("run {run} of seed {seed} ended with {other:?}"),
        }
    }
    world.trace_hash()
}

/// One life of the process: recover, check, go on producing until the crash or the end.
async fn life(plan: Plan, ledger: Rc<RefCell<Ledger>>, mut dice: Dice, last: bool) {
    let options = SharedOptions { cache_bytes: plan.cache_bytes, ..SharedOptions::default() };
    let shared = log::LogShared::new(options);
    let vouched = match (ledger.borrow().vouched, plan.crash) {
        (vouched, Crash::Power) => Vouched { written_end: 0, ..vouched },
        // What is only in memory is not in files.
        (vouched, Crash::Process) => vouched,
    };
    let (path, hint) = (PathBuf::from(DIR), OpenHint { vouched, ..OpenHint::default() });
    // The data folder was made durable when it was formatted.
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let opened = Log::open(&shared, path.clone(), plan.config.clone(), hint, NOW_MS).await;
    let (log, _) = opened.unwrap();
    if !plan.promised {
        forget_what_a_crash_may_take(&log, &ledger);
    }
    check_recovered(&log, &ledger).await;
    let reader = reactor::spawn(reader(log.clone(), Rc::clone(&ledger)));
    let keeper = reactor::spawn(upkeep(log.clone(), Rc::clone(&ledger), Dice(dice.roll())));
    let first = ledger.borrow().lives * PRODUCERS;
    let producers = (first..first + PRODUCERS).map(|id| {
        let (log, ledger, dice) = (log.clone(), Rc::clone(&ledger), Dice(dice.roll()));
        reactor::spawn(producer(log, ledger, dice, id, plan.sizes, if last { 5 } else { 200 }))
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await;
    }
    drop((reader, keeper));
    log.acknowledged(log.log_end_offset()).await.unwrap();
    let closed = match dice.below(2) {
        0 => log.close().await.unwrap(),
        _ => log.close_with_many().await.unwrap(),
    };
    assert_eq!(shared.unwritten_bytes(), 0);
    let clean = OpenHint { clean: true, recovery_point: closed.recovery_point, ..hint };
    let opened = Log::open(&shared, path, plan.config, clean, NOW_MS).await;
    let (log, recovered) = opened.unwrap();
    assert_eq!((recovered.bytes_scanned, recovered.truncated_bytes), (0, 0));
    assert_eq!(log.log_end_offset(), closed.log_end_offset);
    check_recovered(&log, &ledger).await;
    log.close().await.unwrap();
}

/// Where the topic does not promise it, a crash may take the end of the log, but nothing that was
/// flushed, and nothing from the middle.
fn forget_what_a_crash_may_take(log: &Log, ledger: &Rc<RefCell<Ledger>>) {
    let end = log.log_end_offset();
    let mut ledger = ledger.borrow_mut();
    assert!(end >= ledger.flushed, "the log ends at {end}, {} was flushed", ledger.flushed);
    ledger.records.split_off(&end);
    ledger.visible = ledger.visible.min(end);
    ledger.last.clear();
    ledger.lives += 1;
}

/// Everything acknowledged or seen is there, and repetitions are recognised.
async fn check_recovered(log: &Log, ledger: &Rc<RefCell<Ledger>>) {
    let start = log.log_start_offset();
    let there: BTreeMap<i64, Vec<u8>> = read_all(log, 5_000).await.into_iter().collect();
    {
        let ledger = ledger.borrow();
        assert!(log.visible_end_offset() >= ledger.visible, "a visible end went back");
        assert!(start >= ledger.start, "deleted records came back");
        for (offset, value) in ledger.records.range(start..) {
            assert_eq!(there.get(offset), Some(value), "offset {offset}");
        }
        let expected: Vec<i64> = (start..log.log_end_offset()).collect();
        assert_eq!(there.keys().copied().collect::<Vec<_>>(), expected, "offsets are dense");
        let once: HashSet<&Vec<u8>> = there.values().collect();
        assert_eq!(once.len(), there.len(), "a record is there twice");
    }
    let sent: Vec<(i64, Sent)> =
        ledger.borrow().last.iter().map(|(id, sent)| (*id, sent.clone())).collect();
    for (id, sent) in sent {
        let appended = append(log, &sent.bytes).await;
        match sent.acked {
            Some(offset) => {
                assert!(appended.duplicate, "the batch of producer {id} at {offset} is forgotten");
                assert_eq!(appended.base_offset, offset);
            }
            // It was in flight: it landed before the crash, or it does now.
            None => note_acknowledged(log, ledger, id, &sent, appended).await,
        }
    }
}

async fn note_acknowledged(
    log: &Log,
    ledger: &Rc<RefCell<Ledger>>,
    id: i64,
    sent: &Sent,
    appended: log::Appended,
) {
    log.acknowledged(appended.last_offset + 1).await.unwrap();
    let mut ledger = ledger.borrow_mut();
    assert!(log.visible_end_offset() > appended.last_offset);
    assert_eq!(appended.last_offset - appended.base_offset + 1, sent.values.len() as i64);
    for (i, value) in sent.values.iter().enumerate() {
        ledger.note(appended.base_offset + i as i64, value);
    }
    let last = ledger.last.entry(id).or_insert_with(|| sent.clone());
    last.acked = Some(appended.base_offset);
}

async fn producer(
    log: Log,
    ledger: Rc<RefCell<Ledger>>,
    mut dice: Dice,
    id: i64,
    sizes: &'static [usize],
    batches: u64,
) {
    for _ in 0..batches {
        let sent = {
            let mut ledger = ledger.borrow_mut();
            let count = if sizes.len() == 1 { 1 } else { 1 + dice.below(3) as usize };
            let values: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    ledger.numbers += 1;
                    value(ledger.numbers, dice.pick(sizes))
                })
                .collect();
            let sequence = ledger.sequences.entry(id).or_default();
            let bytes = producer_batch(&values, id, 0, *sequence);
            *sequence += count as i32;
            let sent = Sent { bytes, values, acked: None };
            ledger.last.insert(id, sent.clone());
            sent
        };
        let appended = append(&log, &sent.bytes).await;
        assert!(!appended.duplicate);
        note_acknowledged(&log, &ledger, id, &sent, appended).await;
        if dice.below(4) == 0 {
            reactor::sleep(Duration::from_micros(dice.below(2_000))).await;
        }
    }
}

/// Follows the visible end like a consumer and remembers what it saw.
async fn reader(log: Log, ledger: Rc<RefCell<Ledger>>) {
    let mut next = log.log_start_offset();
    loop {
        let changed = log.changed();
        next = next.max(log.log_start_offset());
        let visible = log.visible_end_offset();
        ledger.borrow_mut().visible = visible;
        let plan = log.plan_read(next, i64::MAX, 3_000, true);
        match plan.map(|plan| (plan.is_empty(), plan)) {
            Ok((false, plan)) => match plan.execute().await {
                Ok(parts) => next = remember(&ledger, &parts.concat(), next),
                Err(log::LogError::Trimmed { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            _ => changed.await,
        }
    }
}

fn remember(ledger: &Rc<RefCell<Ledger>>, bytes: &[u8], mut next: i64) -> i64 {
    let from = next;
    for batch in wire::records::batches(bytes) {
        let batch = batch.unwrap();
        batch.verify_crc().unwrap();
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            if record.offset >= from {
                assert_eq!(record.offset, next, "no offset is left out");
                ledger.borrow_mut().note(record.offset, record.value.unwrap());
                next = record.offset + 1;
            }
        }
    }
    next
}

async fn upkeep(log: Log, ledger: Rc<RefCell<Ledger>>, mut dice: Dice) {
    loop {
        reactor::sleep(Duration::from_micros(dice.below(20_000))).await;
        match dice.below(4) {
            0 => {
                let end = log.log_end_offset();
                log.flush().await.unwrap();
                let mut ledger = ledger.borrow_mut();
                ledger.flushed = ledger.flushed.max(end);
            }
            1 => {
                log.enforce_retention(NOW_MS).await.unwrap();
            }
            2 => {
                let span = log.visible_end_offset() - log.log_start_offset();
                let to = log.log_start_offset() + dice.below(1 + span as u64 / 4) as i64;
                let asked = ledger.borrow().asked_start.max(to);
                ledger.borrow_mut().asked_start = asked;
                log.advance_log_start(to).await.unwrap();
                let mut ledger = ledger.borrow_mut();
                ledger.start = ledger.start.max(to);
            }
            _ => {
                let vouched = Vouched {
                    log_start: log.log_start_offset(),
                    synced_end: log.recovery_point(),
                    written_end: log.written_end_offset(),
                };
                // As the making of that file does it.
                fs::sync_dir(Path::new("/data")).await.unwrap();
                ledger.borrow_mut().vouched = vouched;
            }
        }
    }
}

/// Seeds that once found something: a batch that passes the end of its segment was taken for the
/// end of the log (79), removed segments came back after a second power cut (176), a snapshot was
/// removed with its segment and then read (436), DeleteRecords in a folder whose name was not
/// synced (798).
const FOUND: [u64; 4] = [79, 176, 436, 798];

fn seeds(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("CORELANE_SEED"), number("CORELANE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (0..count.unwrap_or(default)).chain(FOUND).collect(),
    }
}

#[test]
fn nothing_acknowledged_or_seen_is_lost_in_a_crash() {
    for seed in seeds(60) {
        let run = std::panic::catch_unwind(|| history(seed));
        assert!(run.is_ok(), "seed {seed} failed; run it alone with CORELANE_SEED={seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in [3, 4, 5] {
        assert_eq!(history(seed), history(seed));
    }
    assert_ne!(history(3), history(4));
}

/// Errors of the disk: whoever waits is told, nothing acknowledged before is lost, and nothing is
/// acknowledged afterwards.
fn failing(seed: u64) {
    let mut dice = Dice(seed ^ 0xfa11);
    let mut plan = Plan { crash: Crash::Process, ..plan(&mut dice) };
    plan.config.write_caching = false;
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let mut world = World::new(seed);
    let fault = dice.below(3);
    let after = 5 + dice.below(200);
    let disk = &mut world.faults().disk;
    match fault {
        0 => disk.eio_after = Some(after),
        1 => disk.capacity = Some(50_000 + after * 1_000),
        _ => disk.sync_eio_per_million = 100_000,
    }
    let (in_run, config) = (Rc::clone(&ledger), plan.clone());
    let outcome = world.run(move || async move { until_failure(config, in_run, dice).await });
    assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    let disk = &mut world.faults().disk;
    (disk.eio_after, disk.capacity, disk.sync_eio_per_million) = (None, None, 0);
    let outcome = world.run(move || async move {
        let shared = shared(256 << 10);
        let (path, hint) = (PathBuf::from(DIR), OpenHint::default());
        let (log, _) = Log::open(&shared, path, plan.config, hint, NOW_MS).await.unwrap();
        check_recovered(&log, &ledger).await;
        log.close().await.unwrap();
    });
    assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
}

async fn until_failure(plan: Plan, ledger: Rc<RefCell<Ledger>>, mut dice: Dice) {
    let shared = shared(plan.cache_bytes);
    let (path, hint) = (PathBuf::from(DIR), OpenHint::default());
    let Ok((log, _)) = Log::open(&shared, path, plan.config, hint, NOW_MS).await else { return };
    for n in 0..400u64 {
        let values = vec![value(n, dice.pick(&[10, 500, 3_000]))];
        let bytes = producer_batch(&values, 1, 0, n as i32);
        let sent = Sent { bytes, values, acked: None };
        let appended = loop {
            match log.append(&view(&sent.bytes), 0, NOW_MS) {
                Ok(appended) => break appended,
                Err(AppendError::Full) => log.room().await,
                Err(_) => return check_poisoned(&log, &shared).await,
            }
        };
        ledger.borrow_mut().last.insert(1, sent.clone());
        match log.acknowledged(appended.last_offset + 1).await {
            Ok(()) => note_acknowledged(&log, &ledger, 1, &sent, appended).await,
            Err(_) => return check_poisoned(&log, &shared).await,
        }
        if n % 50 == 49 && log.flush().await.is_err() && !matches!(log.state(), LogState::Online) {
            return check_poisoned(&log, &shared).await;
        }
    }
}

async fn check_poisoned(log: &Log, shared: &log::LogShared) {
    let LogState::Poisoned(error) = log.state() else { panic!("it is {:?}", log.state()) };
    assert!(error.to_string().contains(" failed on "), "{error}");
    let bytes = batch(&[value(0, 10)], NOW_MS);
    assert!(matches!(log.append(&view(&bytes), 0, NOW_MS), Err(AppendError::Poisoned(_))));
    assert!(log.acknowledged(log.visible_end_offset()).await.is_ok());
    assert!(log.acknowledged(log.visible_end_offset() + 1).await.is_err());
    assert_eq!(shared.unwritten_bytes(), 0);
    assert!(log.clone().close().await.is_err());
}

#[test]
fn a_failing_disk_takes_the_log_offline_and_loses_nothing_acknowledged() {
    for seed in seeds(60) {
        let run = std::panic::catch_unwind(|| failing(seed));
        assert!(run.is_ok(), "seed {seed} failed; run it alone with CORELANE_SEED={seed}");
    }
}

/// A medium that rots while it is read: what is served is what was written, and what is not says
/// so.
fn rotting(seed: u64) -> usize {
    let mut world = World::new(seed);
    let config =
        LogConfig { segment_bytes: 30_000, index_interval_bytes: 500, ..LogConfig::default() };
    let written = config.clone();
    let made = world.run(move || async move {
        let (log, _) = open(&shared(1 << 20), PathBuf::from(DIR), written).await;
        for n in 0..200 {
            append(&log, &batch(&[value(n, 700)], NOW_MS + n as i64)).await;
        }
        log.acknowledged(200).await.unwrap();
        log.close().await.unwrap();
    });
    assert!(matches!(made, Outcome::Finished(())), "seed {seed}: {made:?}");
    let outcome = world.run(move || async move {
        let (log, _) = open_clean(&shared(16 << 10), PathBuf::from(DIR), config).await;
        with_faults(|faults| faults.disk.rot_per_million = 30_000);
        let (mut dice, mut refused, mut served) = (Dice(seed), 0, 0);
        for _ in 0..400 {
            let from = dice.below(200) as i64;
            let plan = log.plan_read(from, i64::MAX, dice.pick(&[1, 3_000]), true).unwrap();
            match plan.execute().await {
                Ok(parts) => served += check_served(&parts.concat(), from),
                Err(log::LogError::Corrupt { file, problem, .. }) => {
                    assert!(file.ends_with(".log") && !problem.is_empty());
                    refused += 1;
                }
                Err(error) => panic!("at {from}: {error}"),
            }
        }
        (refused, served)
    });
    let (refused, served) = outcome.finished().unwrap_or_else(|| panic!("seed {seed}: no end"));
    assert!(served > 100, "seed {seed}: {refused} refused, {served} served");
    refused
}

/// The records from an offset on, as they were written; how many.
fn check_served(bytes: &[u8], from: i64) -> usize {
    let mut next = from;
    for batch in wire::records::batches(bytes) {
        let batch = batch.unwrap();
        batch.verify_crc().unwrap();
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            assert_eq!(record.offset, next, "no offset is left out");
            assert_eq!(record.value.unwrap(), value(next as u64, 700), "offset {next}");
            next += 1;
        }
    }
    (next - from) as usize
}

#[test]
fn a_medium_that_rots_is_never_served_as_if_it_were_sound() {
    let mut refused = 0;
    for seed in seeds(60) {
        let run = std::panic::catch_unwind(|| rotting(seed));
        let run = run.unwrap_or_else(|_| {
            panic!("seed {seed} failed; run it alone with CORELANE_SEED={seed}")
        });
        refused += run;
    }
    assert!(refused > 0, "nothing rotted where it was read");
}

#[test]
fn a_full_disk_takes_a_log_offline_until_retention_made_room_and_it_is_opened_anew() {
    let mut world = World::new(11);
    world.faults().disk.capacity = Some(400_000);
    let outcome = world.run(|| async {
        let config = LogConfig {
            segment_bytes: 50_000,
            retention_bytes: 100_000,
            file_delete_delay_ms: 10,
            ..LogConfig::default()
        };
        let memory = shared(256 << 10);
        let (log, _) = open(&memory, PathBuf::from(DIR), config.clone()).await;
        let mut acked = 0;
        for n in 0.. {
            let Ok(appended) = log.append(&view(&batch(&[value(n, 5_000)], NOW_MS)), 0, NOW_MS)
            else {
                break;
            };
            if log.acknowledged(appended.last_offset + 1).await.is_err() {
                break;
            }
            acked = n + 1;
        }
        assert!(acked > 50, "{acked}");
        assert!(matches!(log.state(), LogState::Poisoned(_)));
        assert_eq!(read_all(&log, 20_000).await.len() as u64, acked);
        let outcome = log.enforce_retention(NOW_MS).await.unwrap();
        assert!(outcome.segments_deleted > 2);
        assert_eq!(read_all(&log, 20_000).await.last().unwrap().0 as u64, acked - 1);
        reactor::sleep(Duration::from_secs(1)).await;
        // The simulated disk gives the room of unlinked files back only after the run.
        with_faults(|faults| faults.disk.capacity = None);
        assert!(log.close().await.is_err());
        let (log, recovered) = open(&memory, PathBuf::from(DIR), config).await;
        assert_eq!(recovered.log_end_offset as u64, acked);
        assert_eq!(log.log_start_offset(), outcome.log_start_offset);
        let next = append(&log, &batch(&[value(1, 5_000)], NOW_MS)).await;
        log.acknowledged(next.last_offset + 1).await.unwrap();
        assert_eq!(next.base_offset as u64, acked);
        log.close().await.unwrap();
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

#[test]
fn a_reader_that_goes_on_in_order_does_not_wait_for_the_disk() {
    let mut world = World::new(12);
    world.faults().disk.latency = Delay::exactly(Duration::from_millis(1));
    let outcome = world.run(|| async {
        let memory = shared(32 << 10);
        let (log, _) = open(&memory, PathBuf::from(DIR), LogConfig::default()).await;
        for n in 0..300 {
            append(&log, &batch(&[value(n, 10_000)], NOW_MS)).await;
        }
        log.acknowledged(300).await.unwrap();
        let (mut next, mut waited) = (0, Vec::new());
        while next < 250 {
            let plan = log.plan_read(next, i64::MAX, 64 << 10, true).unwrap();
            assert!(!plan.is_cached());
            let start = reactor::now();
            let bytes = plan.execute().await.unwrap().concat();
            waited.push(reactor::now() - start);
            for batch in wire::records::batches(&bytes) {
                next = batch.unwrap().header().next_offset();
            }
            reactor::sleep(Duration::from_millis(5)).await;
        }
        // The first read finds its place, the second shows that it goes on in order.
        assert!(waited[0] >= Duration::from_millis(1) && waited[1] >= Duration::from_millis(1));
        assert!(waited[2..].iter().all(|wait| *wait < Duration::from_millis(1)), "{waited:?}");
        log.close().await.unwrap();
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// A first life makes the folder and ends with nothing in it; the second has it all acknowledged
/// when the power goes. The folder's own name must have been synced by then.
#[test]
fn a_folder_from_an_earlier_life_survives_a_power_cut() {
    for seed in 0..40 {
        let closed = seed % 2 == 0;
        let mut world = World::new(seed);
        let made = world.run(move || async move {
            let log = open_in_data().await;
            if closed {
                log.close().await.unwrap();
            }
        });
        assert!(matches!(made, Outcome::Finished(())), "{made:?}");

        let acknowledged = Rc::new(RefCell::new(0));
        world.crash_after(200, Crash::Power);
        let count = Rc::clone(&acknowledged);
        let produced = world.run(move || async move {
            let log = open_in_data().await;
            for n in 0.. {
                let appended = append(&log, &batch(&[value(n, 100)], NOW_MS)).await;
                log.acknowledged(appended.last_offset + 1).await.unwrap();
                *count.borrow_mut() += 1;
            }
        });
        assert!(matches!(produced, Outcome::Crashed(Crash::Power)), "{produced:?}");

        let there = world.run(|| async { read_all(&open_in_data().await, 5_000).await.len() });
        let (there, acknowledged) = (there.finished().unwrap(), *acknowledged.borrow());
        assert!(acknowledged > 0, "seed {seed}: the crash came too early");
        assert!(there >= acknowledged, "seed {seed}: {there} of {acknowledged} records");
    }
}

async fn open_in_data() -> Log {
    open_as(LogConfig { flush_messages: 1, ..LogConfig::default() }).await
}

/// Logs that close together are synced as well as those that close alone: after a power cut nothing
/// is missing, also of new folders and of segments that were rolled just before.
#[test]
fn logs_that_close_together_survive_a_power_cut() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        let config = LogConfig { segment_bytes: 3_000, ..LogConfig::default() };
        let written = config.clone();
        let closed = world.run(move || async move {
            fs::create_dir_all(Path::new("/data")).await.unwrap();
            fs::sync_dir(Path::new("/")).await.unwrap();
            let shared = shared(1 << 20);
            let mut closing = Vec::new();
            for number in 0..5 {
                let dir = PathBuf::from(format!("/data/t-{number}"));
                let (log, _) = open(&shared, dir, written.clone()).await;
                for n in 0..20 {
                    append(&log, &batch(&[value(n, 300)], NOW_MS)).await;
                }
                closing.push(reactor::spawn(async move { log.close_with_many().await }));
            }
            for log in closing {
                assert_eq!(log.await.unwrap().recovery_point, 20);
            }
        });
        assert!(matches!(closed, Outcome::Finished(())), "seed {seed}: {closed:?}");
        world.crash_after(1, Crash::Power);
        let cut = world.run(|| async { fs::exists(Path::new("/data")).await.unwrap() });
        assert!(matches!(cut, Outcome::Crashed(Crash::Power)), "{cut:?}");
        let there = world.run(move || async move {
            let shared = shared(1 << 20);
            for number in 0..5 {
                let dir = PathBuf::from(format!("/data/t-{number}"));
                let (log, _) = open(&shared, dir, config.clone()).await;
                assert_eq!(log.log_end_offset(), 20, "seed {seed}, log {number}");
                assert_eq!(read_all(&log, 5_000).await.len(), 20, "seed {seed}, log {number}");
            }
        });
        assert!(matches!(there, Outcome::Finished(())), "seed {seed}: {there:?}");
    }
}

/// A topic that begins to ask for syncs when its file is there already: the names of the file and
/// of its folder must be synced as well before that counts.
#[test]
fn a_topic_that_asks_for_syncs_later_keeps_what_they_cover() {
    for seed in 0..40 {
        let every = 1 + seed % 2;
        let mut world = World::new(seed);
        world.crash_after(60, Crash::Power);
        let covered = Rc::new(RefCell::new(0));
        let count = Rc::clone(&covered);
        let produced = world.run(move || async move {
            let log = open_as(LogConfig::default()).await;
            let mut next = 0;
            for n in 0.. {
                if n == 1 {
                    log.reconfigure(LogConfig { flush_messages: every, ..LogConfig::default() });
                }
                let appended = append(&log, &batch(&[value(n, 100)], NOW_MS)).await;
                log.acknowledged(appended.last_offset + 1).await.unwrap();
                next += 1;
                if n > 0 {
                    *count.borrow_mut() = next - usize::from(every == 2);
                }
            }
        });
        assert!(matches!(produced, Outcome::Crashed(Crash::Power)), "{produced:?}");
        let there = world
            .run(|| async { read_all(&open_as(LogConfig::default()).await, 5_000).await.len() });
        let (there, covered) = (there.finished().unwrap(), *covered.borrow());
        assert!(covered > 0, "seed {seed}: the crash came too early");
        assert!(there >= covered, "seed {seed}: {there} of {covered} records");
    }
}

/// Something cut the file below a checkpoint that vouches for nothing, as earlier releases wrote
/// it. When the log has grown past it again, the position in it is in the middle of another batch.
#[test]
fn a_checkpoint_that_the_log_fell_short_of_is_not_trusted_later() {
    let mut world = World::new(1);
    let cut = world.run(|| async {
        let log = open_as(LogConfig::default()).await;
        let mut half = 0;
        for n in 0..20 {
            if n == 10 {
                half = log.size_bytes();
            }
            let appended = append(&log, &batch(&[value(n, 100)], NOW_MS)).await;
            log.acknowledged(appended.last_offset + 1).await.unwrap();
        }
        log.close().await.unwrap();
        let path = Path::new(DIR).join("00000000000000000000.log");
        let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
        file.set_len(half).await.unwrap();
        file.close().await.unwrap();
        let path = Path::new(DIR).join("corelane.checkpoint");
        let checkpoint = fs::read(&path).await.unwrap();
        fs::write_atomic(&path, of_version_1(checkpoint)).await.unwrap();
    });
    assert!(matches!(cut, Outcome::Finished(())), "{cut:?}");
    let grown = world.run(|| async {
        let log = open_as(LogConfig::default()).await;
        assert_eq!(log.log_end_offset(), 10);
        for n in 10..40 {
            let appended = append(&log, &batch(&[value(n, 137)], NOW_MS)).await;
            log.acknowledged(appended.last_offset + 1).await.unwrap();
        }
    });
    assert!(matches!(grown, Outcome::Finished(())), "{grown:?}");
    let there = world.run(|| async { read_all(&open_as(LogConfig::default()).await, 5_000).await });
    let there = there.finished().unwrap();
    assert_eq!(there.len(), 40);
    let sent = |n: u64| value(n, if n < 10 { 100 } else { 137 });
    assert!(
        there.iter().zip(0..).all(|((offset, read), n)| *offset == n as i64 && *read == sent(n))
    );
}

/// Retention on a disk without one free byte, where the start of the log cannot be written down:
/// what its checkpoint vouched for goes, and a crash at any step of that leaves nothing to miss.
#[test]
fn what_goes_from_a_full_disk_is_not_missed_after_a_crash_at_any_step() {
    let config = || LogConfig {
        segment_bytes: 3_000,
        retention_bytes: 9_000,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    for kind in [Crash::Process, Crash::Power] {
        let (mut forgotten, mut deleted) = (0, 0);
        for step in 0.. {
            let mut world = World::new(step);
            world.faults().disk.unordered_names = step % 2 == 1;
            let made = world.run(move || async move {
                let log = open_as(LogConfig { retention_bytes: -1, ..config() }).await;
                for n in 0..60 {
                    append(&log, &batch(&[value(n, 300)], NOW_MS)).await;
                }
                log.close().await.unwrap();
                // The mark of a clean shutdown is written behind this.
                fs::sync_disk(Path::new("/data")).await.unwrap();
            });
            assert!(matches!(made, Outcome::Finished(())), "{made:?}");
            let used: u64 = world.disk().files().into_iter().map(|(_, size)| size).sum();
            world.faults().disk.capacity = Some(used);
            world.crash_after(step, kind);
            let ran = world.run(move || async move {
                let log = open_as(config()).await;
                let outcome = log.enforce_retention(NOW_MS).await.unwrap();
                assert!(outcome.segments_deleted > 3, "{outcome:?}");
                // They go while nobody waits for it.
                reactor::sleep(Duration::from_secs(1)).await;
                outcome.log_start_offset
            });
            world.crash_after(u64::MAX / 2, kind);
            world.faults().disk.capacity = None;
            let names: Vec<PathBuf> =
                world.disk().files().into_iter().map(|(path, _)| path).collect();
            let is_there = |name: &str| names.contains(&Path::new(DIR).join(name));
            forgotten += u64::from(!is_there("corelane.checkpoint"));
            deleted += u64::from(!is_there("00000000000000000000.log"));
            let there = world.run(move || async move {
                let log = open_as(config()).await;
                let read = read_all(&log, 5_000).await;
                let offsets: Vec<i64> = read.into_iter().map(|(offset, _)| offset).collect();
                (offsets, log.log_start_offset())
            });
            let Outcome::Finished((offsets, start)) = there else { panic!("{step}: {there:?}") };
            assert_eq!(offsets, (start..60).collect::<Vec<_>>(), "{kind:?} at step {step}");
            if let Outcome::Finished(told) = ran {
                assert!(start >= told && told > 0, "{start} of {told}");
                assert!(step > 20, "only {step} steps");
                break;
            }
        }
        assert!(forgotten > 5 && deleted > 5, "{forgotten} forgotten, {deleted} deleted");
    }
}

/// Damage below the recovery point that a recovery happens to meet: the log ends there, a segment
/// behind it is set aside, and a crash at any step leaves a log that opens.
#[test]
fn damage_that_recovery_cuts_is_not_missed_after_a_crash_at_any_step() {
    let config =
        || LogConfig { segment_bytes: 8_000, index_interval_bytes: 300, ..LogConfig::default() };
    for kind in [Crash::Process, Crash::Power] {
        for step in 0.. {
            let mut world = World::new(step);
            world.faults().disk.unordered_names = step % 2 == 1;
            let made = world.run(move || async move {
                let log = open_as(config()).await;
                for n in 0..40 {
                    append(&log, &batch(&[value(n, 300)], NOW_MS)).await;
                }
                log.close().await.unwrap();
                // As if the walk had to begin in the first segment, and something had been there.
                for entry in fs::read_dir(Path::new(DIR)).await.unwrap() {
                    if entry.name.ends_with(".snapshot") {
                        fs::remove_file(&Path::new(DIR).join(entry.name)).await.unwrap();
                    }
                }
                let path = Path::new(DIR).join("corelane.checkpoint");
                let checkpoint = without_producers(fs::read(&path).await.unwrap());
                fs::write_atomic(&path, checkpoint).await.unwrap();
                let path = Path::new(DIR).join("00000000000000000000.log");
                let mut bytes = fs::read(&path).await.unwrap();
                bytes[2_000] ^= 1;
                fs::write_atomic(&path, bytes).await.unwrap();
                fs::sync_disk(Path::new("/data")).await.unwrap();
            });
            assert!(matches!(made, Outcome::Finished(())), "{made:?}");
            world.crash_after(step, kind);
            let ran = world.run(move || async move { open_as(config()).await.log_end_offset() });
            world.crash_after(u64::MAX / 2, kind);
            for time in 0..2 {
                let there = world.run(move || async move {
                    let log = open_as(config()).await;
                    read_all(&log, 5_000).await.len()
                });
                let Outcome::Finished(count) = there else { panic!("{step}: {there:?}") };
                assert_eq!(count, 5, "{kind:?} at step {step}, opening {time}");
            }
            let files = world.disk().files();
            let aside = files.iter().filter(|(path, _)| path.to_str().unwrap().contains(".aside-"));
            assert!(aside.count() > 0, "{kind:?} at step {step}: what was safe is gone");
            if let Outcome::Finished(end) = ran {
                assert_eq!(end, 5);
                assert!(step > 10, "only {step} steps");
                break;
            }
        }
    }
}

/// A checkpoint that leaves its producers, of whom there are none, to the `.snapshot` file.
fn without_producers(mut checkpoint: Vec<u8>) -> Vec<u8> {
    let known = log::inspect::describe_checkpoint(&checkpoint).unwrap();
    let behind = 4 + 24 * known.listed_segments + 4 + known.earlier_batches_bytes;
    let empty = [1, 0, 0, 0, 10, 0, 1];
    let at = checkpoint.len() - behind - (5 + 10);
    assert_eq!(checkpoint[at..at + 7], empty);
    checkpoint.splice(at..at + 15, [0]);
    let crc = crc32c::crc32c(&checkpoint[10..]);
    checkpoint[6..10].copy_from_slice(&crc.to_be_bytes());
    checkpoint
}

/// A checkpoint without its list of one segment and its producers' batches, of which there are
/// none.
fn of_version_1(mut checkpoint: Vec<u8>) -> Vec<u8> {
    let listed = checkpoint.split_off(checkpoint.len() - (4 + 24 + 4));
    assert_eq!((&listed[..4], &listed[28..]), (&[0, 0, 0, 1][..], &[0; 4][..]));
    checkpoint[4..6].copy_from_slice(&1u16.to_be_bytes());
    let crc = crc32c::crc32c(&checkpoint[10..]);
    checkpoint[6..10].copy_from_slice(&crc.to_be_bytes());
    checkpoint
}

async fn open_as(config: LogConfig) -> Log {
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    open(&shared(256 << 10), PathBuf::from(DIR), config).await.0
}
