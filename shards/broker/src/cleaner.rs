//! Compaction over the partitions of a shard: which one is next, how often, and what became of it.
//!
//! Lives on each shard, as background work, one task for each data directory: one that hangs must
//! not end the others' cleaning. Every `log.cleaner.backoff.ms` it looks at all compacted
//! partitions and cleans those that are worth it, the dirtiest first, one at a time. A partition
//! that cannot be cleaned is left alone for a while, longer each time, and shows in metrics and in
//! the log; others go on. A disk with little space is not filled by it (`data_dirs/space.rs`). What
//! one pass does is the log's matter.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use log::{CleanOptions, CleanOutcome, Cleanable, IoBudget, LogError};
use reactor::{Class, Instant};
use tracing::{debug, info, warn};
use wire::Uuid;

use crate::background;
use crate::data_dirs::space::Level;
use crate::metrics::Samples;
use crate::partition::Partition;
use crate::settings;
use crate::shard::Shard;

/// The look-round is never more frequent, and a failed partition not tried again before.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// A partition that fails again and again is tried this often at least.
const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
/// Passes over one partition in a row, before others are looked at.
const PASSES_IN_A_ROW: usize = 16;

/// What a shard knows of its cleaning.
pub(crate) struct Cleaner {
    io: Rc<IoBudget>,
    /// Bytes that the maps of keys may take of the shard's memory.
    memory_bytes: usize,
    failed: RefCell<BTreeMap<(Uuid, i32), Failed>>,
    /// By data directory.
    dirtiest: RefCell<BTreeMap<usize, f64>>,
    passes: Cell<u64>,
    bytes_read: Cell<u64>,
    bytes_written: Cell<u64>,
    bytes_freed: Cell<u64>,
    records_dropped: Cell<u64>,
    last_seconds: Cell<f64>,
}

/// A partition whose last pass failed.
struct Failed {
    topic: Rc<str>,
    wait: Duration,
    retry_at: Instant,
    /// There was no space for it while its directory was at this level: it is tried at once at
    /// another.
    short_at: Option<Level>,
}

impl Cleaner {
    pub fn new(memory_bytes: usize) -> Self {
        Cleaner {
            io: Rc::new(IoBudget::unlimited()),
            memory_bytes,
            failed: RefCell::default(),
            dirtiest: RefCell::default(),
            passes: Cell::new(0),
            bytes_read: Cell::new(0),
            bytes_written: Cell::new(0),
            bytes_freed: Cell::new(0),
            records_dropped: Cell::new(0),
            last_seconds: Cell::new(0.0),
        }
    }

    fn options(&self, shard: &Shard, dir_number: usize) -> CleanOptions {
        let config = shard.config();
        let shards = shard.mesh.shards().max(1);
        self.io.set(config.log_cleaner_io_max_bytes_per_second / shards as f64);
        let wanted = config.log_cleaner_dedupe_buffer_bytes / shards as u64;
        let most = usize::try_from(wanted).unwrap_or(usize::MAX).min(self.memory_bytes);
        CleanOptions {
            key_map_bytes: most / shard.dirs.len().max(1),
            load_factor: config.log_cleaner_load_factor,
            // What producers may send is also what can be opened here.
            batch_bytes: shard.partition_limits().decompressed_bytes_max,
            io: self.io.clone(),
            keep_free_bytes: shard.dirs.kept_by_compaction(dir_number),
        }
    }

    fn is_resting(&self, partition: &Partition, level: Level) -> bool {
        let key = (partition.topic_id, partition.index);
        let rests = |failed: &Failed| {
            reactor::now() < failed.retry_at && failed.short_at.is_none_or(|at| at == level)
        };
        self.failed.borrow().get(&key).is_some_and(rests)
    }

    fn note_success(&self, partition: &Partition, outcome: &CleanOutcome, took: Duration) {
        self.failed.borrow_mut().remove(&(partition.topic_id, partition.index));
        let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get() + more);
        add(&self.passes, 1);
        add(&self.bytes_read, outcome.bytes_read);
        add(&self.bytes_written, outcome.bytes_written);
        add(&self.bytes_freed, outcome.bytes_before.saturating_sub(outcome.bytes_after));
        add(&self.records_dropped, outcome.records - outcome.records_kept);
        self.last_seconds.set(took.as_secs_f64());
        info!(
            topic = %partition.topic, partition = partition.index, ?took, ?outcome, "compacted"
        );
    }

    fn note_failure(
        &self,
        partition: &Partition,
        error: &LogError,
        (backoff, level): (Duration, Level),
    ) {
        let mut failed = self.failed.borrow_mut();
        let entry = failed.entry((partition.topic_id, partition.index)).or_insert(Failed {
            topic: partition.topic.clone(),
            wait: Duration::ZERO,
            retry_at: reactor::now(),
            short_at: None,
        });
        entry.wait = (entry.wait * 2).clamp(backoff.min(RETRY_MAX), RETRY_MAX);
        entry.retry_at = reactor::now() + entry.wait;
        entry.short_at = match error {
            LogError::Storage(failed) if log::is_out_of_space(&failed.cause) => Some(level),
            _ => None,
        };
        warn!(
            topic = %partition.topic, partition = partition.index, retry_in = ?entry.wait,
            "cannot be compacted and grows: {error}"
        );
    }

    /// Forgets failures of partitions that are not here any longer.
    fn forget_gone(&self, here: &[Rc<Partition>]) {
        let is_here = |key: &(Uuid, i32)| here.iter().any(|p| (p.topic_id, p.index) == *key);
        self.failed.borrow_mut().retain(|key, _| is_here(key));
    }
}

/// Starts the periodic work; it ends with the shard.
pub(crate) fn start(shard: &Rc<Shard>) {
    if shard.config().log_cleaner_enable {
        for number in 0..shard.dirs.len() {
            reactor::spawn_in(Class::Background, run(shard.clone(), number)).detach();
        }
    }
}

async fn run(shard: Rc<Shard>, dir_number: usize) {
    loop {
        reactor::sleep(backoff(&shard)).await;
        let mut here = shard.open_partitions();
        shard.cleaner.forget_gone(&here);
        here.retain(|partition| partition.dir_number == dir_number && partition.is_compacted());
        shard.cleaner.dirtiest.borrow_mut().insert(dir_number, 0.0);
        for (partition, _) in due(&shard, &here).await {
            clean(&shard, &partition).await;
        }
        for partition in here.iter().filter(|partition| partition.is_compacted_and_deleted()) {
            if shard.is_stopping() {
                return;
            }
            background::retain(partition).await;
        }
        if shard.is_stopping() {
            return;
        }
    }
}

fn backoff(shard: &Shard) -> Duration {
    let ms = shard.config().log_cleaner_backoff_ms;
    settings::interval(ms).unwrap_or(PERIOD_MIN).max(PERIOD_MIN)
}

/// The partitions worth a pass, the dirtiest first.
async fn due(shard: &Shard, here: &[Rc<Partition>]) -> Vec<(Rc<Partition>, f64)> {
    let mut due = Vec::new();
    for partition in here {
        if shard.is_stopping() {
            return Vec::new();
        }
        // One that could not even be looked at is not looked at again either.
        let level = shard.dirs.level(partition.dir_number);
        if shard.cleaner.is_resting(partition, level) {
            continue;
        }
        if let Some(found) = look(shard, partition).await {
            let mut dirtiest = shard.cleaner.dirtiest.borrow_mut();
            let dirtiest = dirtiest.entry(partition.dir_number).or_default();
            *dirtiest = dirtiest.max(found.ratio());
            if found.is_due() {
                due.push((partition.clone(), found.ratio()));
            }
        }
        reactor::yield_now().await;
    }
    due.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    due
}

async fn look(shard: &Shard, partition: &Partition) -> Option<Cleanable> {
    match partition.log.cleanable(reactor::wall_clock_ms()).await {
        Ok(found) => found,
        Err(error) => {
            note_error(shard, partition, &error);
            None
        }
    }
}

/// Cleans one partition, in several passes if its keys do not fit into the memory for them.
async fn clean(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    for _ in 0..PASSES_IN_A_ROW {
        if shard.is_stopping() {
            return;
        }
        let Some(found) = look(shard, partition).await.filter(Cleanable::is_due) else { return };
        let (start, options) = (reactor::now(), shard.cleaner.options(shard, partition.dir_number));
        match partition.log.clean(&found, &options, reactor::wall_clock_ms()).await {
            Ok(outcome) => {
                shard.cleaner.note_success(partition, &outcome, start.elapsed());
                if outcome.complete || outcome.to == outcome.from {
                    return;
                }
            }
            Err(error) => return note_error(shard, partition, &error),
        }
    }
}

fn note_error(shard: &Shard, partition: &Partition, error: &LogError) {
    match error {
        // It was closed, deleted, moved or cut at its start meanwhile: no failure of compaction.
        LogError::Closed(_) | LogError::Copied(_) | LogError::Trimmed { .. } => {
            debug!(topic = %partition.topic, partition = partition.index, "not compacted: {error}");
        }
        _ => {
            let level = shard.dirs.level(partition.dir_number);
            shard.cleaner.note_failure(partition, error, (backoff(shard), level));
        }
    }
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let cleaner = &shard.cleaner;
    let number = shard.id().to_string();
    let label = [("shard", number.as_str())];
    let failed = cleaner.failed.borrow();
    let help = "Compacted partitions whose last pass failed; the broker's log says why.";
    out.gauge("corelane_compaction_uncleanable_partitions", help, &label, failed.len() as f64);
    for ((_, index), failed) in failed.iter() {
        let index = index.to_string();
        let labels = [("topic", failed.topic.as_ref()), ("partition", index.as_str())];
        let help = "1 for a partition whose last pass of compaction failed.";
        out.gauge("corelane_compaction_uncleanable", help, &labels, 1.0);
    }
    let help = "Largest share of bytes not yet looked at among the compacted partitions.";
    let dirtiest = cleaner.dirtiest.borrow().values().copied().fold(0.0, f64::max);
    out.gauge("corelane_compaction_max_dirty_ratio", help, &label, dirtiest);
    let help = "How long the last pass took.";
    out.gauge("corelane_compaction_last_pass_seconds", help, &label, cleaner.last_seconds.get());
    let counters = [
        ("corelane_compaction_passes_total", "Passes of compaction.", &cleaner.passes),
        (
            "corelane_compaction_read_bytes_total",
            "Bytes that compaction has read.",
            &cleaner.bytes_read,
        ),
        (
            "corelane_compaction_written_bytes_total",
            "Bytes that compaction has written.",
            &cleaner.bytes_written,
        ),
        (
            "corelane_compaction_freed_bytes_total",
            "Bytes by which logs became smaller through compaction.",
            &cleaner.bytes_freed,
        ),
        (
            "corelane_compaction_dropped_records_total",
            "Records that compaction has dropped.",
            &cleaner.records_dropped,
        ),
    ];
    for (name, help, value) in counters {
        out.counter(name, help, &label, value.get() as f64);
    }
}
