//! What all logs of one shard share.
//!
//! Owns: the memory budgets for tails and for reading old segments, and the bounds on open files
//! and loaded indexes of sealed segments. Lives on one shard; `Clone` shares it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use reactor::sync::{Acquire, Notify, Permit, Semaphore};
use reactor::{Chunk, ChunkSlice, race};

use crate::backfill::Backfill;
use crate::budget::Budget;
use crate::core::Core;
use crate::graveyard::{self, Graveyard};
use crate::group_sync::GroupSyncs;
use crate::open_files::OpenFiles;

/// Bounds of one shard's logs.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Bytes for the tails of all logs: what is not yet written, then the newest that is.
    pub cache_bytes: usize,
    /// Bytes for reading what is no longer in the tails, those in unsent answers included.
    pub backfill_bytes: usize,
    /// Bytes for indexes of sealed segments that were read lately.
    pub index_bytes: usize,
    /// Open files of sealed segments that were read lately.
    pub open_files: usize,
    /// Open files of segments that are written: those of more logs are opened for each write.
    pub written_files: usize,
}

impl Default for SharedOptions {
    fn default() -> Self {
        SharedOptions {
            cache_bytes: 64 << 20,
            backfill_bytes: 16 << 20,
            index_bytes: 8 << 20,
            open_files: 256,
            written_files: 2048,
        }
    }
}

/// Background flushes of one shard to one data folder that may run at the same time.
const FLUSHES_AT_ONCE: usize = 2;
/// Logs of one shard in one data folder that may be scanned at the same time; each holds a few
/// windows of memory.
const SCANS_AT_ONCE: usize = 8;

/// Per shard.
#[derive(Clone)]
pub struct LogShared(Rc<Inner>);

struct Inner {
    options: SharedOptions,
    budget: Rc<Budget>,
    backfill: Rc<Backfill>,
    /// Logs that are scanned at the same time, by data folder.
    scans: Turns,
    scanned_bytes: Cell<u64>,
    written: OpenFiles,
    /// Flushes in the background take turns, or a round of retention would start a thousand; by
    /// data folder, so that a disk that hangs holds up its own only.
    flushes: Turns,
    /// Told of every failed write.
    on_failure: RefCell<Option<Rc<FailureListener>>>,
    /// Data folders where deleted files are to go at once.
    short_of_space: RefCell<BTreeSet<PathBuf>>,
    space_changed: Notify,
    /// Data folders on file systems that reserve no space.
    cannot_reserve: RefCell<BTreeSet<PathBuf>>,
    graveyard: Rc<Graveyard>,
    group_syncs: GroupSyncs,
    /// What is written to make files ready; made when first needed.
    zeros: OnceCell<ChunkSlice>,
    /// Sealed segments whose file or indexes are held in memory, oldest first.
    warm: RefCell<VecDeque<Warm>>,
}

/// Gets the folder of the log and what failed.
type FailureListener = dyn Fn(&Path, &io::Error, Failing);

/// What failed at a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// A write or a sync.
    Writing,
    Reading,
}

/// Turns at something, by data folder.
struct Turns {
    at_once: usize,
    by_data_dir: RefCell<BTreeMap<PathBuf, Semaphore>>,
}

impl Turns {
    fn new(at_once: usize) -> Self {
        Turns { at_once, by_data_dir: RefCell::default() }
    }

    /// A turn for the log in `dir`.
    fn take(&self, dir: &Path) -> Acquire {
        let data_dir = dir.parent().unwrap_or(dir).to_owned();
        let mut turns = self.by_data_dir.borrow_mut();
        turns.entry(data_dir).or_insert_with(|| Semaphore::new(self.at_once)).acquire(1)
    }
}

struct Warm {
    log: Weak<Core>,
    segment: i64,
    index_bytes: usize,
    open: bool,
}

impl LogShared {
    pub fn new(options: SharedOptions) -> Self {
        let budget = Budget::new(options.cache_bytes);
        let backfill = Backfill::new(options.backfill_bytes);
        let written = OpenFiles::new(options.written_files.max(1));
        LogShared(Rc::new(Inner {
            options,
            budget,
            backfill,
            scans: Turns::new(SCANS_AT_ONCE),
            scanned_bytes: Cell::new(0),
            written,
            flushes: Turns::new(FLUSHES_AT_ONCE),
            on_failure: RefCell::default(),
            short_of_space: RefCell::default(),
            space_changed: Notify::new(),
            cannot_reserve: RefCell::default(),
            graveyard: Rc::default(),
            group_syncs: GroupSyncs::default(),
            zeros: OnceCell::new(),
            warm: RefCell::default(),
        }))
    }

    /// Bytes held for tails now.
    pub fn cache_used_bytes(&self) -> usize {
        self.0.budget.used()
    }

    pub fn cache_limit_bytes(&self) -> usize {
        self.0.budget.limit()
    }

    /// Bytes of batches that no device has yet.
    pub fn unwritten_bytes(&self) -> usize {
        self.0.budget.unwritten()
    }

    /// Bytes of segments that recoveries have read and checked since the start.
    pub fn scanned_bytes(&self) -> u64 {
        self.0.scanned_bytes.get()
    }

    pub(crate) fn note_scanned(&self, bytes: u64) {
        self.0.scanned_bytes.set(self.0.scanned_bytes.get() + bytes);
    }

    pub(crate) fn graveyard(&self) -> &Rc<Graveyard> {
        &self.0.graveyard
    }

    /// Deletes the folder of a partition that is not open, as [`Log::delete`](crate::Log::delete)
    /// does: renamed now (the caller syncs the data folder), removed after `delay`.
    pub async fn delete_dir(&self, dir: &Path, delay: Duration) -> io::Result<()> {
        graveyard::bury(self, dir, delay).await.map(drop)
    }

    /// Removes a folder that has the name of a deleted partition, in the background.
    pub fn remove_deleted(&self, dir: PathBuf) {
        graveyard::remove_later(self, dir, Duration::ZERO);
    }

    /// Another disk may be in the place of this data folder: what the old one lost is its own.
    pub fn forget_disk(&self, data_dir: &Path) {
        self.0.group_syncs.forget(data_dir);
        self.0.cannot_reserve.borrow_mut().remove(data_dir);
    }

    /// The same `bytes` zeros for everybody.
    pub(crate) fn zeros(&self, bytes: usize) -> &ChunkSlice {
        self.0.zeros.get_or_init(|| {
            let mut chunk = Chunk::new(bytes);
            chunk.append(&vec![0; bytes]);
            chunk.slice(0..bytes)
        })
    }

    pub(crate) fn group_syncs(&self) -> &GroupSyncs {
        &self.0.group_syncs
    }

    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.0.written
    }

    /// Lets go of the files and index entries of logs that were not written since the last call. To
    /// be called now and then; costs what is open, not what there is.
    pub fn cool_idle(&self) {
        self.0.written.sweep();
    }

    /// Frees the tails of logs that were not written since the last call, but for the bytes that
    /// their next write repeats. To be called now and then.
    pub async fn free_idle_tails(&self) {
        self.0.budget.free_idle().await;
    }

    /// Files of segments that are written, open now or closed since the last look.
    pub fn written_files(&self) -> usize {
        self.0.written.len()
    }

    pub(crate) async fn scan_turn(&self, dir: &Path) -> Permit {
        self.0.scans.take(dir).await
    }

    /// Bytes of evicted chunks that answers hold which clients have not taken.
    pub fn pinned_bytes(&self) -> usize {
        self.0.budget.pinned()
    }

    /// Whether answers that clients do not take hold memory that others need.
    pub fn is_held_up(&self) -> bool {
        self.backfill_is_scarce() || self.0.budget.is_pinned_down()
    }

    /// Bytes held now for reading old segments, those in unsent answers included.
    pub fn backfill_used_bytes(&self) -> usize {
        self.0.backfill.used()
    }

    pub fn backfill_limit_bytes(&self) -> usize {
        self.0.backfill.limit()
    }

    /// Whether a reader of old segments waits for memory that others hold.
    pub fn backfill_is_scarce(&self) -> bool {
        self.0.backfill.is_scarce()
    }

    pub(crate) fn backfill(&self) -> &Rc<Backfill> {
        &self.0.backfill
    }

    pub(crate) fn budget(&self) -> &Rc<Budget> {
        &self.0.budget
    }

    /// Calls this whenever a write, a sync or the read of an old segment has failed. Synchronous;
    /// it must not touch the log.
    pub fn on_failure(&self, listener: impl Fn(&Path, &io::Error, Failing) + 'static) {
        self.0.on_failure.replace(Some(Rc::new(listener)));
    }

    pub(crate) fn note_failure(&self, dir: &Path, error: &io::Error, failing: Failing) {
        let listener = self.0.on_failure.borrow().clone();
        if let Some(listener) = listener {
            listener(dir, error, failing);
        }
    }

    /// Says whether deleted files in this data folder are to be unlinked at once, not after
    /// `file.delete.delay.ms`.
    pub fn set_short_of_space(&self, data_dir: &Path, short: bool) {
        let mut dirs = self.0.short_of_space.borrow_mut();
        match short {
            true if dirs.insert(data_dir.to_owned()) => self.0.space_changed.notify_all(),
            true => {}
            false => drop(dirs.remove(data_dir)),
        }
    }

    /// Whether the disk of the log in `dir` has little space.
    pub(crate) fn is_short_of_space(&self, dir: &Path) -> bool {
        let short = self.0.short_of_space.borrow();
        !short.is_empty() && dir.parent().is_some_and(|data_dir| short.contains(data_dir))
    }

    /// Whether the file system of the log in `dir` is known to reserve no space.
    pub(crate) fn cannot_reserve(&self, dir: &Path) -> bool {
        let dirs = self.0.cannot_reserve.borrow();
        !dirs.is_empty() && dir.parent().is_some_and(|data_dir| dirs.contains(data_dir))
    }

    /// Told once: it is the same for every log there.
    pub(crate) fn note_cannot_reserve(&self, dir: &Path, error: &io::Error) {
        let data_dir = dir.parent().unwrap_or(dir).to_owned();
        if self.0.cannot_reserve.borrow_mut().insert(data_dir.clone()) {
            tracing::warn!(
                "{} reserves no space for segments, they grow with the writes: {error}",
                data_dir.display()
            );
        }
    }

    /// Until deleted files of the log in `dir` are to go.
    pub(crate) async fn delete_delay(&self, dir: &Path, delay: Duration) {
        let until = reactor::now() + delay;
        loop {
            let changed = self.0.space_changed.notified();
            if self.is_short_of_space(dir) || reactor::now() >= until {
                return;
            }
            race(reactor::sleep_until(until), changed).await;
        }
    }

    pub(crate) async fn flush_turn(&self, dir: &Path) -> Permit {
        self.0.flushes.take(dir).await
    }

    /// Notes that a sealed segment was warmed up and lets older ones go while a bound is passed.
    pub(crate) fn note_warm(&self, log: Weak<Core>, segment: i64, index_bytes: usize, open: bool) {
        let mut warm = self.0.warm.borrow_mut();
        warm.push_back(Warm { log, segment, index_bytes, open });
        loop {
            let files = warm.iter().filter(|w| w.open).count();
            let bytes: usize = warm.iter().map(|w| w.index_bytes).sum();
            let options = &self.0.options;
            if warm.len() <= 1 || (files <= options.open_files && bytes <= options.index_bytes) {
                return;
            }
            let Some(oldest) = warm.pop_front() else { return };
            let Some(core) = oldest.log.upgrade() else { continue };
            let Ok(mut state) = core.state.try_borrow_mut() else { continue };
            if let Some(segment) = state.segment_mut(oldest.segment).filter(|s| s.sealed) {
                segment.cool(oldest.open, oldest.index_bytes > 0);
            }
        }
    }
}
