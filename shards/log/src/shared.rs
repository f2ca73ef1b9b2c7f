//! What all logs of one shard share.
//!
//! Owns: the memory budget for tails, and the bounds on open files and loaded indexes of sealed
//! segments. Lives on one shard; `Clone` shares it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use reactor::sync::{Permit, Semaphore};

use crate::ahead::WINDOWS;
use crate::budget::Budget;
use crate::core::Core;
use crate::open_files::OpenFiles;

/// Bounds of one shard's logs.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Bytes for the tails of all logs: what is not yet written, then the newest that is.
    pub cache_bytes: usize,
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
            index_bytes: 8 << 20,
            open_files: 256,
            written_files: 2048,
        }
    }
}

/// Background flushes of one shard that may run at the same time.
const FLUSHES_AT_ONCE: usize = 2;
/// Logs of one shard that may be scanned at the same time; each holds a few windows of memory.
const SCANS_AT_ONCE: usize = 8;

/// Per shard.
#[derive(Clone)]
pub struct LogShared(Rc<Inner>);

struct Inner {
    options: SharedOptions,
    budget: Rc<Budget>,
    /// Logs that read ahead, oldest first, each with its number.
    ahead: RefCell<VecDeque<(u64, Weak<Core>)>>,
    next_ahead: Cell<u64>,
    /// Flushes in the background take turns, or a round of retention would start a thousand.
    flushes: Semaphore,
    /// Logs that are scanned at the same time.
    scans: Semaphore,
    scanned_bytes: Cell<u64>,
    written: OpenFiles,
    /// Sealed segments whose file or indexes are held in memory, oldest first.
    warm: RefCell<VecDeque<Warm>>,
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
        let flushes = Semaphore::new(FLUSHES_AT_ONCE);
        let written = OpenFiles::new(options.written_files.max(1));
        LogShared(Rc::new(Inner {
            options,
            budget,
            ahead: RefCell::default(),
            next_ahead: Cell::new(0),
            flushes,
            scans: Semaphore::new(SCANS_AT_ONCE),
            scanned_bytes: Cell::new(0),
            written,
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

    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.0.written
    }

    /// Lets go of the files and index entries of logs that were not written since the last call. To
    /// be called now and then; costs what is open, not what there is.
    pub fn cool_idle(&self) {
        self.0.written.sweep();
    }

    /// Files of segments that are written, open now or closed since the last look.
    pub fn written_files(&self) -> usize {
        self.0.written.len()
    }

    pub(crate) async fn scan_turn(&self) -> Permit {
        self.0.scans.acquire(1).await
    }

    pub(crate) fn budget(&self) -> &Rc<Budget> {
        &self.0.budget
    }

    pub(crate) async fn flush_turn(&self) -> Permit {
        self.0.flushes.acquire(1).await
    }

    /// Numbers a window that is about to be read ahead; the oldest go while there are too many.
    pub(crate) fn note_ahead(&self, log: Weak<Core>) -> u64 {
        let number = self.0.next_ahead.get();
        self.0.next_ahead.set(number + 1);
        let mut ahead = self.0.ahead.borrow_mut();
        ahead.push_back((number, log));
        let mut gone = Vec::new();
        while ahead.len() > WINDOWS {
            let Some((oldest, log)) = ahead.pop_front() else { break };
            let Some(core) = log.upgrade() else { continue };
            let Ok(mut state) = core.state.try_borrow_mut() else { continue };
            gone.push(state.ahead.take_if(|ahead| ahead.number == oldest));
        }
        drop(ahead);
        drop(gone);
        number
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
