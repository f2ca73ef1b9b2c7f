//! The handles of segments that are still written, over all logs of a shard.
//!
//! Owns: the order in which they were opened and the bound on their number. A log that was not
//! written between two sweeps loses its handle and the index entries that its files hold; so does
//! the one opened longest ago when there are too many. It opens nothing and syncs nothing itself:
//! `files` opens a handle again when the next write needs it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
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
    /// Logs whose handle is closed and that still have space reserved, by address: each once.
    reserved: RefCell<BTreeMap<usize, Weak<Core>>>,
}

/// What became of a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    Gone,
    InUse,
    Closed { unflushed: bool, reserved: bool },
}

impl OpenFiles {
    pub(crate) fn new(limit: usize) -> Self {
        OpenFiles { limit, queue: RefCell::default(), reserved: RefCell::default() }
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
            match meet(&oldest, spared + 1 < SPARED_MAX) {
                Met::InUse => {
                    queue.push_back(oldest);
                    spared += 1;
                }
                Met::Closed { reserved: true, .. } => self.give_back_later(oldest.log),
                Met::Closed { .. } | Met::Gone => {}
            }
        }
    }

    fn give_back_later(&self, log: Weak<Core>) {
        self.reserved.borrow_mut().insert(log.as_ptr().addr(), log);
    }

    /// Has those that lost their handle before and were not written since give back what they have
    /// reserved. Returns how many began to.
    fn give_back(&self) -> usize {
        let mut begun = 0;
        for (_, log) in std::mem::take(&mut *self.reserved.borrow_mut()) {
            let Some(core) = log.upgrade() else { continue };
            let (holds, open, used) = {
                let mut state = core.state.borrow_mut();
                let open = state.segments.back().is_some_and(|s| s.file.is_some());
                let used = !open && std::mem::take(&mut state.used_lately);
                (state.holds_reserved(), open, used)
            };
            // One that is open is met again where the open ones are.
            if !holds || open {
                continue;
            }
            if used || begun >= FLUSHES_PER_SWEEP {
                self.give_back_later(log);
                continue;
            }
            begun += 1;
            keeper::start_idle_flush(&core);
        }
        begun
    }

    /// Closes what was not written since the last sweep.
    pub(crate) fn sweep(&self) {
        let mut flushes = self.give_back();
        let all = std::mem::take(&mut *self.queue.borrow_mut());
        let mut kept = VecDeque::new();
        for open in all {
            match meet(&open, true) {
                Met::InUse => kept.push_back(open),
                Met::Closed { unflushed, reserved }
                    if (unflushed || reserved) && flushes < FLUSHES_PER_SWEEP =>
                {
                    flushes += 1;
                    if let Some(core) = open.log.upgrade() {
                        keeper::start_idle_flush(&core);
                    }
                }
                Met::Closed { reserved: true, .. } => self.give_back_later(open.log),
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
    let reserved = state.holds_reserved();
    let Some(segment) = state.segment_mut(open.segment) else { return Met::Gone };
    if segment.sealed || segment.file.is_none() {
        return Met::Gone;
    }
    if busy || (used && spare) || !segment.is_at_rest() {
        return Met::InUse;
    }
    segment.file = None;
    segment.forget_saved_entries();
    Met::Closed { unflushed, reserved }
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
