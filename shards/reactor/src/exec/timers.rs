//! Timers of one shard, ordered by deadline, then by the order they were armed in.
//!
//! A tree rather than a heap: most timers (long polls, request timeouts) are dropped long before
//! they fire, and must not stay behind. Bounded by the number of live `Sleep` futures.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::time::Instant;

/// Identity of an armed timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TimerKey {
    deadline: Instant,
    serial: u64,
}

#[derive(Default)]
pub(crate) struct Timers {
    armed: BTreeMap<TimerKey, Waker>,
    next_serial: u64,
}

impl Timers {
    /// Arms a timer, or only renews the waker of `key` if that is still armed.
    pub(crate) fn arm(
        &mut self,
        key: Option<TimerKey>,
        deadline: Instant,
        waker: &Waker,
    ) -> TimerKey {
        if let Some(key) = key
            && let Some(armed) = self.armed.get_mut(&key)
        {
            armed.clone_from(waker);
            return key;
        }
        let key = TimerKey { deadline, serial: self.next_serial };
        self.next_serial += 1;
        self.armed.insert(key, waker.clone());
        key
    }

    /// Returns the waker so that the caller drops it outside the borrow.
    pub(crate) fn disarm(&mut self, key: TimerKey) -> Option<Waker> {
        self.armed.remove(&key)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.armed.first_key_value().map(|(key, _)| key.deadline)
    }

    /// The waker of the earliest timer that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.armed.first_entry()?;
        (first.key().deadline <= now).then(|| first.remove())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }
}
