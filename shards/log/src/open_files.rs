//! The handles of segments that are still written, over all logs of a shard.
//!
//! Owns: the order in which they were opened and the bound on their number. A log that was not
//! written between two sweeps loses its handle and the index entries that its files hold; so does
//! the one opened longest ago when there are too many. It opens nothing and syncs nothing itself:
//! `files` opens a handle again when the next write needs it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::core::Core;
use crate::keeper;

/// Idle logs that one sweep flushes, so that their index entries can go and a crash finds nothing
/// to scan: a thousand logs that fall idle at once must not keep the device busy.
const FLUSHES_PER_SWEEP: usize = 64;
/// Handles in use that are passed over before one is closed all the same.
const SPARED_MAX: usize = 16;

struct Open {
    log: Weak<Core>,
    segment: i64,
}

pub(crate) struct OpenFiles {
    limit: usize,
    /// Opened longest ago first. A handle that was closed otherwise stays until it is met.
    queue: RefCell<VecDeque<Open>>,
}

/// What became of a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    Gone,
    InUse,
    Closed { unflushed: bool },
}

impl OpenFiles {
    pub(crate) fn new(limit: usize) -> Self {
        OpenFiles { limit, queue: RefCell::default() }
    }

    /// Handles that are open, or were when they were last looked at.
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Notes a handle that was opened; closes older ones while there are too many.
    pub(crate) fn note(&self, log: Weak<Core>, segment: i64) {
        let mut queue = self.queue.borrow_mut();
        queue.push_back(Open { log, segment });
        let mut spared = 0;
        while queue.len() > self.limit && spared < SPARED_MAX.min(self.limit) {
            let Some(oldest) = queue.pop_front() else { return };
            if meet(&oldest, spared + 1 < SPARED_MAX) == Met::InUse {
                queue.push_back(oldest);
                spared += 1;
            }
        }
    }

    /// Closes what was not written since the last sweep.
    pub(crate) fn sweep(&self) {
        let mut flushes = 0;
        let all = std::mem::take(&mut *self.queue.borrow_mut());
        let mut kept = VecDeque::new();
        for open in all {
            match meet(&open, true) {
                Met::InUse => kept.push_back(open),
                Met::Closed { unflushed: true } if flushes < FLUSHES_PER_SWEEP => {
                    flushes += 1;
                    if let Some(core) = open.log.upgrade() {
                        keeper::start_idle_flush(&core);
                    }
                }
                Met::Closed { .. } | Met::Gone => {}
            }
        }
        let mut queue = self.queue.borrow_mut();
        kept.append(&mut queue);
        *queue = kept;
    }
}

/// Closes the handle unless it is needed; with `spare`, also unless it was used lately.
fn meet(open: &Open, spare: bool) -> Met {
    let Some(core) = open.log.upgrade() else { return Met::Gone };
    let Ok(mut state) = core.state.try_borrow_mut() else { return Met::InUse };
    let used = std::mem::take(&mut state.used_lately);
    let busy = state.appender_runs || state.closing;
    let unflushed = state.changed_since_flush && state.is_online();
    let Some(segment) = state.segment_mut(open.segment) else { return Met::Gone };
    if segment.sealed || segment.file.is_none() {
        return Met::Gone;
    }
    if busy || (used && spare) || !segment.is_at_rest() {
        return Met::InUse;
    }
    segment.file = None;
    segment.forget_saved_entries();
    Met::Closed { unflushed }
}

/// Lets go of the handle and the saved index entries of a log that is idle and was just flushed.
pub(crate) fn cool(core: &Rc<Core>) {
    let Some(base) = core.state.borrow().segments.back().map(|s| s.base) else { return };
    meet(&Open { log: core.me.clone(), segment: base }, true);
    let mut state = core.state.borrow_mut();
    if let Some(segment) = state.segment_mut(base).filter(|s| s.file.is_none()) {
        segment.forget_saved_entries();
    }
}
