//! One pass over one log.
//!
//! Owns: the order of the steps (see [`super`]), the counts, and the cleaner point's move at the
//! end. It awaits often and holds no borrow over it; retention may take segments away meanwhile,
//! and then the pass ends early, having done no harm. Files are replaced under `Core::upkeep`,
//! everything else is done without, so that seals and flushes go on.

use std::cell::Cell;
use std::rc::Rc;

use wire::records::BatchView;
use wire::records::control::EndTransaction;

use super::CleanOptions;
use super::batches::{Batches, Fault};
use super::group::{self, Most, Piece};
use super::key_map::KeyMap;
use super::output::{self, Output};
use super::rewrite::{self, Counts, Fate, LastBatches, Left, Rules};
use super::select::Cleanable;
use super::sip::SipKey;
use super::swap;
use super::transactions::{Ended, Transactions};
use crate::checkpoints::{CLEANER_POINTS, encode_own_offset};
use crate::core::Core;
use crate::error::LogError;
use crate::index::ENTRY_BYTES as OFFSET_ENTRY;
use crate::names::{FileKind, file_path};
use crate::time_index::ENTRY_BYTES as TIME_ENTRY;
use crate::{files, indexes, txn_index};
use reactor::fs;
use reactor::sync::oneshot;

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CleanOutcome {
    /// The cleaner point before and after.
    pub from: i64,
    pub to: i64,
    /// The pass reached the end of what could be cleaned. If not, the map of keys was full.
    pub complete: bool,
    pub keys: usize,
    pub segments_before: usize,
    pub segments_after: usize,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub records: u64,
    pub records_kept: u64,
    pub records_without_key: u64,
    /// Batches that stay as they are because they are too large when decompressed.
    pub batches_unopened: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Cleans once, as `look` has found it.
pub(crate) async fn clean(
    core: &Rc<Core>,
    found: &Cleanable,
    options: &CleanOptions,
    now_ms: i64,
) -> Result<CleanOutcome, LogError> {
    let Some(working) = Working::begin(core)? else {
        // The swap of a pass that nobody waits for any longer.
        return Ok(CleanOutcome {
            from: found.first_dirty,
            to: found.first_dirty,
            ..Default::default()
        });
    };
    let outcome =
        CleanOutcome { from: found.first_dirty, to: found.first_dirty, ..Default::default() };
    let mut pass = Pass { core, options, outcome, working };
    pass.run(found, now_ms).await?;
    Ok(pass.outcome)
}

/// Says that a pass goes on, until it is dropped: closing waits for it.
pub(crate) struct Working {
    core: Rc<Core>,
}

impl Working {
    /// `None`: one is going on already.
    fn begin(core: &Rc<Core>) -> Result<Option<Rc<Self>>, LogError> {
        core.check_open()?;
        let mut state = core.state.borrow_mut();
        if state.copies > 0 {
            return Err(LogError::Copied(core.name.clone()));
        }
        if std::mem::replace(&mut state.cleaning, true) {
            return Ok(None);
        }
        Ok(Some(Rc::new(Working { core: Rc::clone(core) })))
    }

    /// Closing holds the upkeep and waits for passes: one that waits for the upkeep does not count.
    pub(super) fn waits(&self, waits: bool) {
        self.core.state.borrow_mut().cleaning_waits = waits;
        self.core.filled.notify_all();
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.core.state.borrow_mut().cleaning = false;
        self.core.filled.notify_all();
    }
}

struct Pass<'a> {
    core: &'a Rc<Core>,
    options: &'a CleanOptions,
    outcome: CleanOutcome,
    working: Rc<Working>,
}

/// A sealed segment as it was when the pass looked.
#[derive(Clone, Copy, Debug)]
struct Old {
    base: i64,
    next: i64,
    size: u32,
}

impl Pass<'_> {
    async fn run(&mut self, found: &Cleanable, now_ms: i64) -> Result<(), LogError> {
        let core = self.core;
        let start = core.state.borrow().log_start;
        let aborted = txn_index::overlapping(core, start, found.clean_end).await?;
        let map = self.map_keys(found, aborted.clone()).await?;
        let to = map.end();
        self.outcome.keys = map.len();
        if to == found.first_dirty {
            return Ok(());
        }
        let (producers, delete_retention_ms) = {
            let state = core.state.borrow();
            (LastBatches(state.producers.producers.clone()), state.config.delete_retention_ms)
        };
        let rules = Rules {
            map,
            producers,
            clean_end: found.clean_end,
            now_ms,
            delete_retention_ms,
            batch_bytes: self.options.batch_bytes,
            unopened: Cell::new(0),
        };
        let old: Vec<Old> = self.segments(|old| old.base < to && old.next <= found.clean_end);
        let mut transactions = Transactions::new(aborted);
        for group in self.groups(&old).await? {
            let group = old.get(group).unwrap_or_default();
            self.clean_group(group, &rules, &mut transactions).await?;
        }
        self.outcome.batches_unopened = rules.unopened.get();
        if self.outcome.batches_unopened > 0 {
            tracing::warn!(log = %core.name, batches = self.outcome.batches_unopened,
                limit = self.options.batch_bytes, "batches that are larger than the limit when \
                 decompressed stay as they are, and so do the tombstones behind them; more memory \
                 for requests raises it");
        }
        self.outcome.to = to;
        self.outcome.complete = to >= found.clean_end;
        self.note_cleaner_point(to).await
    }

    fn segments(&self, wanted: impl Fn(&Old) -> bool) -> Vec<Old> {
        let state = self.core.state.borrow();
        let olds = state.segments.iter().filter(|s| s.sealed);
        olds.map(|s| Old { base: s.base, next: s.next_offset, size: s.size })
            .filter(wanted)
            .collect()
    }

    /// Reads what is dirty and notes the latest offset of each key.
    async fn map_keys(
        &mut self,
        found: &Cleanable,
        aborted: Vec<txn_index::AbortedTxn>,
    ) -> Result<KeyMap, LogError> {
        let secret = SipKey(reactor::random_u64(), reactor::random_u64());
        let (bytes, load) = (self.options.key_map_bytes, self.options.load_factor);
        let from = found.first_dirty;
        let mut map = KeyMap::new(bytes, load, secret, from);
        let mut transactions = Transactions::new(aborted);
        let dirty = self.segments(|old| old.next > from && old.next <= found.clean_end);
        for old in dirty {
            let start = match old.base < from {
                true => {
                    let indexes = indexes::load(self.core, old.base).await?;
                    indexes.offsets.position_for((from - old.base) as u32)
                }
                false => 0,
            };
            if !self.map_segment(old, start, &mut map, &mut transactions).await? {
                return Ok(map);
            }
            map.reach(old.next);
        }
        Ok(map)
    }

    /// `false`: the map is full.
    async fn map_segment(
        &mut self,
        old: Old,
        start: u32,
        map: &mut KeyMap,
        transactions: &mut Transactions,
    ) -> Result<bool, LogError> {
        let mut walk = self.walk(old, start).await?;
        while let Some(batch) = walk.next(self.core).await? {
            let header = *batch.header();
            if met(&batch, transactions).0 == Fate::ByKey && header.next_offset() > map.end() {
                let read = map_batch(&batch, map, self.options.batch_bytes);
                match read.map_err(|error| walk.damage(self.core, &error.to_string()))? {
                    true => map.reach(header.next_offset()),
                    false => return Ok(false),
                }
            } else {
                map.reach(header.next_offset());
            }
            self.pause(&mut walk).await?;
        }
        Ok(true)
    }

    async fn groups(&self, old: &[Old]) -> Result<Vec<std::ops::Range<usize>>, LogError> {
        let mut pieces = Vec::with_capacity(old.len());
        for old in old {
            let (offsets, times) = self.index_bytes(old.base).await?;
            pieces.push(Piece {
                base: old.base,
                next: old.next,
                bytes: u64::from(old.size),
                offset_index_bytes: offsets,
                time_index_bytes: times,
            });
        }
        let most = {
            let config = &self.core.state.borrow().config;
            Most {
                segment_bytes: u64::from(config.segment_bytes),
                index_bytes: u64::from(config.segment_index_bytes),
            }
        };
        Ok(group::groups(&pieces, most))
    }

    async fn index_bytes(&self, base: i64) -> Result<(u64, u64), LogError> {
        let held = self.core.state.borrow().segment(base).and_then(|s| s.indexes.clone());
        if let Some(held) = held {
            let (offsets, times) = (held.offsets.len(), held.times.len());
            return Ok(((offsets * OFFSET_ENTRY) as u64, (times * TIME_ENTRY) as u64));
        }
        let dir = self.core.dir();
        let size = async |kind| match fs::metadata(&file_path(&dir, kind, base)).await {
            Ok(metadata) => Ok(metadata.size),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(self.core.storage_error("looking at an index", error)),
        };
        Ok((size(FileKind::OffsetIndex).await?, size(FileKind::TimeIndex).await?))
    }

    /// Makes one segment of several and puts it in their place.
    async fn clean_group(
        &mut self,
        group: &[Old],
        rules: &Rules,
        transactions: &mut Transactions,
    ) -> Result<(), LogError> {
        let Some(first) = group.first() else { return Ok(()) };
        let core = self.core;
        let interval = core.state.borrow().config.index_interval_bytes;
        let keep_free = self.options.keep_free_bytes;
        let output = Output::create(&core.dir(), first.base, interval, keep_free).await;
        let mut output = output.map_err(|error| failed(core, error))?;
        let changed = match self.fill(group, rules, transactions, &mut output).await {
            Ok(changed) => changed || group.len() > 1,
            Err(error) => {
                drop(output);
                output::remove_quietly(&core.dir(), first.base).await;
                return Err(error);
            }
        };
        let before: u64 = group.iter().map(|old| u64::from(old.size)).sum();
        self.outcome.segments_before += group.len();
        self.outcome.segments_after += 1;
        self.outcome.bytes_before += before;
        self.outcome.bytes_after += output.bytes();
        if !changed {
            return output.discard().await.map_err(|error| failed(core, error));
        }
        let dir = core.dir();
        let finished = async {
            let has_txn_index =
                fs::exists(&file_path(&dir, FileKind::TxnIndex, first.base)).await?;
            output.finish(has_txn_index).await
        };
        let made = match finished.await {
            Ok(made) => made,
            Err(error) => {
                output::remove_quietly(&dir, first.base).await;
                return Err(failed(core, error));
            }
        };
        self.count(Counts::default(), made.moved);
        let old: Vec<i64> = group.iter().map(|old| old.base).collect();
        // Finished even if nobody waits for the pass any more: half a swap must not be.
        let (done, outcome) = oneshot();
        let (core, working) = (Rc::clone(core), Rc::clone(&self.working));
        let name = core.name.clone();
        reactor::spawn(async move {
            // The pass may be gone.
            let _ = done.send(swap::replace_segments(&core, &working, &old, made).await);
        })
        .detach();
        outcome.await.unwrap_or(Err(LogError::Closed(name)))
    }

    /// Copies what stays. Returns whether anything does not.
    async fn fill(
        &mut self,
        group: &[Old],
        rules: &Rules,
        transactions: &mut Transactions,
        output: &mut Output,
    ) -> Result<bool, LogError> {
        let core = self.core;
        let mut changed = false;
        for old in group {
            let mut walk = self.walk(*old, 0).await?;
            while let Some(batch) = walk.next(core).await? {
                let header = *batch.header();
                let (fate, aborted) = met(&batch, transactions);
                let rewritten = rules.rewrite(&batch, fate);
                let added = match &rewritten {
                    Ok((Left::Whole, _)) => output.add(&header, batch.bytes()).await,
                    Ok((Left::Part(bytes), _)) => match BatchView::parse(bytes) {
                        Ok(part) => output.add(part.header(), bytes).await,
                        Err(error) => Err(std::io::Error::other(error)),
                    },
                    Ok((Left::Nothing, _)) | Err(_) => Ok(0),
                };
                let written = added.map_err(|error| failed(core, error))?;
                let (left, counts) =
                    rewritten.map_err(|error| walk.damage(core, &error.to_string()))?;
                changed |= left != Left::Whole;
                if let Some(txn) = aborted.filter(|_| left != Left::Nothing) {
                    output.note_aborted(txn);
                }
                self.count(counts, written);
                self.pause(&mut walk).await?;
            }
        }
        Ok(changed)
    }

    fn count(&mut self, counts: Counts, written: usize) {
        self.outcome.records += counts.records;
        self.outcome.records_kept += counts.kept;
        self.outcome.records_without_key += counts.keyless;
        self.outcome.bytes_written += written as u64;
        if written > 0 {
            self.options.io.spend(written, reactor::now());
        }
    }

    async fn walk(&self, old: Old, start: u32) -> Result<Walk, LogError> {
        let file = files::for_reading(self.core, old.base).await?;
        let batches = Batches::new(file, start, old.size, self.options.batch_bytes);
        Ok(Walk { base: old.base, batches, next_offset: old.base, position: start.into() })
    }

    /// Pays for what was read, lets others run, and ends the pass if the log is closing or copied.
    async fn pause(&mut self, walk: &mut Walk) -> Result<(), LogError> {
        let read = walk.batches.take_read();
        if read > 0 {
            self.outcome.bytes_read += read as u64;
            self.options.io.spend(read, reactor::now());
        }
        while let Some(debt) = self.options.io.debt(reactor::now()) {
            reactor::sleep(debt).await;
            self.check_wanted()?;
        }
        // A batch may be a lot of work to open: never two of them without a look at the clock.
        reactor::yield_if_due().await;
        self.check_wanted()
    }

    fn check_wanted(&self) -> Result<(), LogError> {
        self.core.check_open()?;
        let state = self.core.state.borrow();
        match (state.closing, state.copies) {
            (true, _) => Err(LogError::Closed(self.core.name.clone())),
            (false, 0) => Ok(()),
            (false, _) => Err(LogError::Copied(self.core.name.clone())),
        }
    }

    /// The point in memory follows the one on the device.
    async fn note_cleaner_point(&self, to: i64) -> Result<(), LogError> {
        self.check_wanted()?;
        let dir = self.core.dir();
        fs::write_atomic(&dir.join(CLEANER_POINTS), encode_own_offset(&dir, to))
            .await
            .map_err(|error| failed(self.core, error))?;
        self.core.state.borrow_mut().cleaner_point = Some(to);
        Ok(())
    }
}

fn failed(core: &Core, error: std::io::Error) -> LogError {
    core.storage_error("cleaning", error).into()
}

/// What the transactions say of the next batch, and the aborted one whose marker it is.
fn met(
    batch: &BatchView<'_>,
    transactions: &mut Transactions,
) -> (Fate, Option<txn_index::AbortedTxn>) {
    let header = batch.header();
    let (producer_id, last_offset) = (header.producer_id, header.last_offset());
    if !header.attributes.is_control() {
        let transactional = header.attributes.is_transactional();
        return match transactions.meet_batch(producer_id, last_offset, transactional) {
            true => (Fate::Aborted, None),
            false => (Fate::ByKey, None),
        };
    }
    let end = EndTransaction::read(batch).ok().flatten().map(|end| end.committed);
    match transactions.meet_marker(producer_id, last_offset, end) {
        Ended::WithData(aborted) => (Fate::Marker, aborted),
        Ended::Empty => (Fate::MarkerOfNothing, None),
    }
}

/// Notes the records of a batch; `Ok(false)`: the map is full.
fn map_batch(
    batch: &BatchView<'_>,
    map: &mut KeyMap,
    most: usize,
) -> Result<bool, wire::records::BatchError> {
    let last = batch.header().last_offset();
    let mut records = match rewrite::open(batch, most) {
        // It stays as it is, whatever keys it has.
        Err(wire::records::BatchError::TooLarge { .. }) => return Ok(true),
        opened => opened?,
    };
    let mut index = 0;
    while let Some(record) = records.next_record()? {
        index += 1;
        let (key, offset) = (record.key, record.offset);
        let Some(key) = key.filter(|_| offset >= map.end()) else { continue };
        if offset > last {
            let reason = "its offset lies behind its batch";
            return Err(wire::records::BatchError::Record { index, reason });
        }
        if map.put(key, offset).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The batches of one segment, which must come in order.
struct Walk {
    base: i64,
    batches: Batches,
    next_offset: i64,
    /// Where the batch at hand starts.
    position: u64,
}

impl Walk {
    async fn next(&mut self, core: &Core) -> Result<Option<BatchView<'_>>, LogError> {
        self.position = self.batches.position();
        let (base, position, expected) = (self.base, self.position, self.next_offset);
        match self.batches.next().await {
            Ok(None) => Ok(None),
            Ok(Some(batch)) => {
                let header = batch.header();
                let span = header.last_offset() - base;
                let in_order = header.base_offset >= expected && header.last_offset_delta >= 0;
                if !in_order || span > i64::from(i32::MAX) {
                    let problem = format!("a batch has offset {}", header.base_offset);
                    return Err(corrupt(core, base, position, problem));
                }
                self.next_offset = header.next_offset();
                Ok(Some(batch))
            }
            Err(Fault::Io(error)) => Err(core.storage_error("reading a segment", error).into()),
            Err(Fault::Damaged { position, problem }) => {
                Err(corrupt(core, base, position, problem))
            }
        }
    }

    fn damage(&self, core: &Core, problem: &str) -> LogError {
        corrupt(core, self.base, self.position, problem.to_owned())
    }
}

fn corrupt(core: &Core, base: i64, position: u64, problem: String) -> LogError {
    LogError::Corrupt { file: format!("{}/{base:020}.log", core.name), position, problem }
}
