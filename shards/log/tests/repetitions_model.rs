//! Idempotent producers on a simulated machine that send their last batches again after every crash, as
//! clients do that got no answer: what was acknowledged is a duplicate with its offset, what was not is
//! that or is taken. Never out of order, whatever retention, rolls, flushes and crashes left of the log.
//! Only on a disk so full that nothing at all can be written, retention must go on without what is known
//! of producers; even then no log is taken for one that has lost records.
//! `CORELANE_SEEDS=n` runs more seeds; `CORELANE_SEED=n` runs one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::*;
use log::{AppendError, Log, LogConfig, LogShared, OpenHint, SharedOptions, Vouched};
use reactor::fs;
use reactor::sim::{Crash, Outcome, World, with_faults};
use wire::records::BatchBuilder;

const DIR: &str = "/data/orders-0";
const DATA_DIR: &str = "/data";
const PRODUCERS: i64 = 3;
/// Kafka's clients keep so many in flight, and so many are known here.
const KNOWN: usize = 5;
const RETENTION_MS: i64 = 1_000;

#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    /// Where it is, once that was acknowledged or told.
    offset: Option<i64>,
    /// It may be gone with a crash, and with it all behind it.
    is_acked: bool,
}

#[derive(Default)]
struct Ledger {
    /// What each producer has sent.
    sent: Vec<Vec<Sent>>,
    epochs: [i16; PRODUCERS as usize],
    now_ms: i64,
    vouched: Vouched,
    /// How often a batch was sent again, and how often that was taken for new though it was acknowledged.
    again: u64,
    retaken: u64,
    /// How often a producer had to begin anew.
    begun: u64,
    emptied: u64,
    what: Vec<String>,
}

type Shared = Rc<RefCell<Ledger>>;

impl Ledger {
    fn next(&mut self, producer: i64, dice: &mut Dice) -> usize {
        let of = &mut self.sent[producer as usize];
        let first: i32 = of.iter().map(|sent| view(&sent.bytes).header().record_count).sum();
        let epoch = self.epochs[producer as usize];
        let mut builder = BatchBuilder::new().producer(100 + producer, epoch, first);
        for _ in 0..1 + dice.below(3) {
            self.now_ms += 1;
            builder.append(self.now_ms, None, Some(&value(self.now_ms as u64, 60)));
        }
        of.push(Sent { bytes: builder.build().unwrap(), offset: None, is_acked: false });
        of.len() - 1
    }

    fn in_flight(&self, producer: i64) -> usize {
        self.sent[producer as usize].iter().filter(|sent| !sent.is_acked).count()
    }

    fn note(&mut self, what: impl Into<String>) {
        self.what.push(what.into());
    }
}

#[derive(Clone)]
struct Plan {
    config: LogConfig,
    full_disks: bool,
    runs: u64,
}

fn plan(dice: &mut Dice) -> Plan {
    let config = LogConfig {
        segment_bytes: dice.pick(&[500, 1_200, 1 << 20]),
        index_interval_bytes: dice.pick(&[0, 4_096]),
        retention_ms: RETENTION_MS,
        file_delete_delay_ms: dice.pick(&[0, 1, 60_000]),
        ..LogConfig::default()
    };
    Plan { config, full_disks: dice.below(3) == 0, runs: 6 }
}

/// How often batches were sent again, taken twice, producers began anew, and the log was emptied.
fn history(seed: u64) -> [u64; 4] {
    let mut dice = Dice(seed);
    let plan = plan(&mut dice);
    let ledger = Shared::default();
    ledger.borrow_mut().now_ms = NOW_MS;
    ledger.borrow_mut().sent = vec![Vec::new(); PRODUCERS as usize];
    let mut world = World::new(seed);
    for run in 0..plan.runs {
        let last = run + 1 == plan.runs;
        let steps = if last { u64::MAX >> 2 } else { 20 + dice.below(500) };
        world.crash_after(steps, Crash::Process);
        let (ledger, plan, dice) = (Rc::clone(&ledger), plan.clone(), Dice(dice.roll()));
        let told = Rc::clone(&ledger);
        let outcome = world.run(move || async move { life(plan, ledger, dice, last).await });
        match outcome {
            Outcome::Finished(()) => {}
            Outcome::Crashed(_) if !last => told.borrow_mut().note("crash"),
            other => {
                let what = told.borrow().what.join("\n");
                panic!("run {run} of seed {seed} ended with {other:?} after\n{what}");
            }
        }
    }
    let ledger = ledger.borrow();
    [ledger.again, ledger.retaken, ledger.begun, ledger.emptied]
}

async fn life(plan: Plan, ledger: Shared, mut dice: Dice, last: bool) {
    set_full(false);
    fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let memory = LogShared::new(SharedOptions { cache_bytes: 1 << 20, ..Default::default() });
    note_files(&ledger).await;
    let vouched = match dice.below(2) {
        0 => Vouched::default(),
        _ => ledger.borrow().vouched,
    };
    let hint = OpenHint { vouched, ..OpenHint::default() };
    let opened = Log::open(&memory, PathBuf::from(DIR), plan.config.clone(), hint, NOW_MS).await;
    let told = || ledger.borrow().what.join("\n");
    let (log, recovered) =
        opened.unwrap_or_else(|error| panic!("{error}, {vouched:?}, after\n{}", told()));
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    ledger.borrow_mut().note(format!("open {start}..{end} {recovered:?}"));
    repeat_all(&log, &ledger, &mut dice, plan.full_disks).await;
    for _ in 0..if last { 10 } else { 200 } {
        step(&log, &memory, &ledger, &mut dice, &plan).await;
        if !matches!(log.state(), log::LogState::Online) {
            // A full disk: the broker would open it again.
            return;
        }
    }
    set_full(false);
    repeat_all(&log, &ledger, &mut dice, plan.full_disks).await;
    log.close().await.unwrap();
    ledger.borrow_mut().note("closed");
}

/// What the folder holds.
async fn note_files(ledger: &Shared) {
    let mut files = Vec::new();
    for entry in fs::read_dir(Path::new(DIR)).await.unwrap_or_default() {
        let size = fs::metadata(&Path::new(DIR).join(&entry.name)).await.unwrap().size;
        files.push(format!("{} {size}", entry.name));
    }
    ledger.borrow_mut().note(files.join(", "));
}

fn set_full(full: bool) {
    with_faults(|faults| {
        faults.disk.full.clear();
        if full {
            faults.disk.full.insert(DATA_DIR.into());
        }
    });
}

/// Each producer sends its last batches once more.
async fn repeat_all(log: &Log, ledger: &Shared, dice: &mut Dice, full_disks: bool) {
    for producer in 0..PRODUCERS {
        let count = ledger.borrow().sent[producer as usize].len();
        // Those that were not acknowledged have to be sent, in order.
        let unacked = {
            let ledger = ledger.borrow();
            let of = &ledger.sent[producer as usize];
            of.iter().position(|sent| !sent.is_acked).unwrap_or(count)
        };
        let some = count.saturating_sub(1 + dice.below(KNOWN as u64) as usize);
        for at in some.min(unacked).max(count.saturating_sub(KNOWN))..count {
            if !send(log, ledger, (producer, at), true, full_disks).await {
                break;
            }
        }
    }
}

/// Sends the batch, for the first time or again. Whether it was taken.
async fn send(
    log: &Log,
    ledger: &Shared,
    (producer, at): (i64, usize),
    again: bool,
    may_be_retaken: bool,
) -> bool {
    let sent = ledger.borrow().sent[producer as usize][at].clone();
    let what = format!("producer {producer}, batch {at}, at {:?}, again {again}", sent.offset);
    let appended = log.append(&view(&sent.bytes), 0, ledger.borrow().now_ms);
    let appended = match appended {
        Ok(appended) => appended,
        Err(AppendError::Full | AppendError::Poisoned(_)) => return false,
        Err(AppendError::Producer(_)) if may_be_retaken => {
            // Nothing of what was known could be written: it begins anew, as clients do.
            let mut ledger = ledger.borrow_mut();
            ledger.sent[producer as usize].clear();
            ledger.epochs[producer as usize] += 1;
            ledger.begun += 1;
            return false;
        }
        Err(error) => panic!("{what}: {error}, after\n{}", ledger.borrow().what.join("\n")),
    };
    let was_new = !appended.duplicate;
    {
        let mut ledger = ledger.borrow_mut();
        ledger.note(format!("{what}: {} new {was_new}", appended.base_offset));
        ledger.again += u64::from(again);
        if sent.is_acked && was_new {
            let told = ledger.what.join("\n");
            assert!(may_be_retaken, "taken again, after\n{told}");
            ledger.retaken += 1;
        }
        if sent.is_acked && !was_new {
            assert_eq!(Some(appended.base_offset), sent.offset, "{what}");
        }
        ledger.sent[producer as usize][at].offset = Some(appended.base_offset);
    }
    true
}

async fn acknowledge(log: &Log, ledger: &Shared) {
    let end = log.log_end_offset();
    let counts: Vec<usize> = ledger.borrow().sent.iter().map(Vec::len).collect();
    if log.acknowledged(end).await.is_err() {
        return;
    }
    let mut ledger = ledger.borrow_mut();
    for (of, count) in ledger.sent.iter_mut().zip(counts) {
        for sent in of[..count].iter_mut().filter(|sent| sent.offset.is_some()) {
            sent.is_acked = true;
        }
    }
    ledger.vouched.written_end = end;
}

async fn step(log: &Log, memory: &LogShared, ledger: &Shared, dice: &mut Dice, plan: &Plan) {
    match dice.below(20) {
        0..8 => {
            let producer = dice.below(PRODUCERS as u64) as i64;
            let count = 1 + dice.below(KNOWN as u64) as usize;
            if ledger.borrow().in_flight(producer) + count > KNOWN {
                acknowledge(log, ledger).await;
            }
            for _ in 0..count {
                let at = ledger.borrow_mut().next(producer, dice);
                if !send(log, ledger, (producer, at), false, plan.full_disks).await {
                    // It is not in flight either: the client has it for later.
                    ledger.borrow_mut().sent[producer as usize].pop();
                    break;
                }
            }
            if dice.below(4) != 0 {
                acknowledge(log, ledger).await;
            }
        }
        8..11 => {
            let now_ms = ledger.borrow().now_ms + 1 + RETENTION_MS;
            acknowledge(log, ledger).await;
            let outcome = log.enforce_retention(now_ms).await;
            let emptied = log.log_start_offset() == log.log_end_offset();
            let mut ledger = ledger.borrow_mut();
            ledger.emptied += u64::from(emptied);
            ledger.note(format!("retention of all: {outcome:?}"));
        }
        11..13 => {
            // Of the older half.
            let back = dice.below(40) as i64;
            let now_ms = ledger.borrow().now_ms + 1 + RETENTION_MS - back;
            let outcome = log.enforce_retention(now_ms).await;
            ledger.borrow_mut().note(format!("retention but {back} ms: {outcome:?}"));
        }
        13 => {
            let end = log.visible_end_offset();
            let done = log.advance_log_start(end).await;
            ledger.borrow_mut().note(format!("records below {end} deleted: {done:?}"));
        }
        14 => {
            let done = log.flush().await;
            ledger.borrow_mut().note(format!("flush: {done:?}"));
        }
        15 => {
            memory.cool_idle();
            memory.cool_idle();
            ledger.borrow_mut().note("cool");
        }
        16 => {
            let mut ledger = ledger.borrow_mut();
            ledger.vouched = Vouched {
                log_start: log.log_start_offset(),
                synced_end: log.recovery_point(),
                written_end: log.written_end_offset(),
            };
            ledger.note("vouched");
        }
        17 if plan.full_disks => {
            let full = dice.below(2) == 0;
            set_full(full);
            ledger.borrow_mut().note(format!("full {full}"));
        }
        18 => repeat_all(log, ledger, dice, plan.full_disks).await,
        _ => reactor::sleep(Duration::from_micros(dice.below(3_000))).await,
    }
}

fn seeds(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    match number("CORELANE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("CORELANE_SEEDS").unwrap_or(default)).collect(),
    }
}

#[test]
fn a_batch_that_is_sent_again_after_a_crash_is_never_out_of_order() {
    let mut sums = [0; 4];
    for seed in seeds(100) {
        let of = history(seed);
        for (sum, of) in sums.iter_mut().zip(of) {
            *sum += of;
        }
    }
    let [again, retaken, begun, emptied] = sums;
    println!(
        "{again} sent again, {retaken} taken twice, {begun} began anew, {emptied} times emptied"
    );
    if std::env::var_os("CORELANE_SEED").is_none() {
        assert!(again > 1_000 && emptied > 100, "nothing happened");
    }
}
