//! What a transaction that is open keeps: segments that retention would have removed, or compaction
//! looked at.
//!
//! Owns: which transaction that is, and that it is said once, when it has lasted longer than
//! transactions are allowed to by default: then it hangs, and only an operator ends it. Pure;
//! retention and the look before a pass of compaction tell what they found.

use crate::core::State;

/// After this time it is said: Kafka's default of `transaction.max.timeout.ms`.
const TOLD_AFTER_MS: i64 = 15 * 60 * 1_000;

/// How many segments, and from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    FromRetention(usize),
    FromCompaction(usize),
}

/// An open transaction that keeps segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Segments that would be gone without it.
    pub from_retention: usize,
    /// Sealed segments that compaction leaves as they are.
    pub from_compaction: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    current: Option<Undecided>,
    since_ms: i64,
    told: bool,
}

impl Held {
    pub fn current(&self) -> Option<Undecided> {
        self.current.filter(|it| it.from_retention > 0 || it.from_compaction > 0)
    }

    /// Takes in what was found. Returns what is to be said now.
    fn note(&mut self, oldest: Option<(i64, i64)>, kept: Kept, now_ms: i64) -> Option<Undecided> {
        let Some((first_offset, producer_id)) = oldest else {
            *self = Held::default();
            return None;
        };
        let fresh = Undecided { producer_id, first_offset, from_retention: 0, from_compaction: 0 };
        let is_same = |known: &Undecided| {
            (known.producer_id, known.first_offset) == (producer_id, first_offset)
        };
        let known = self.current.filter(is_same);
        let held_before = self.current().is_some_and(|it| is_same(&it));
        let mut now = known.unwrap_or(fresh);
        match kept {
            Kept::FromRetention(segments) => now.from_retention = segments,
            Kept::FromCompaction(segments) => now.from_compaction = segments,
        }
        self.current = Some(now);
        if known.is_none() {
            self.told = false;
        }
        if !held_before {
            self.since_ms = now_ms;
        }
        let is_due = now_ms.saturating_sub(self.since_ms) >= TOLD_AFTER_MS;
        let tells = self.current().is_some() && is_due && !self.told;
        self.told |= tells;
        tells.then_some(now)
    }
}

impl State {
    pub(crate) fn note_undecided(&mut self, name: &str, kept: Kept, now_ms: i64) {
        let oldest = self.producers.oldest_open();
        let Some(it) = self.undecided.note(oldest, kept, now_ms) else { return };
        let Undecided { producer_id, first_offset, from_retention, from_compaction } = it;
        tracing::warn!(log = %name, producer_id, first_offset, from_retention, from_compaction,
            "a transaction that is open since this offset keeps segments from retention or compaction: \
             if it hangs, end it with `corelane txn abort --partition` or `kafka-transactions abort`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;

    #[test]
    fn what_lasts_is_said_once_and_what_ends_is_forgotten() {
        let mut held = Held::default();
        let (first, second) = (Some((5, 70)), Some((9, 80)));
        let retention = Kept::FromRetention(2);
        // Open, and in nobody's way.
        assert_eq!(held.note(first, Kept::FromRetention(0), 0), None);
        assert_eq!(held.current(), None);
        assert_eq!(held.note(first, Kept::FromCompaction(0), 20 * MINUTE_MS), None);
        // From now on it is.
        assert_eq!(held.note(first, retention, 20 * MINUTE_MS), None);
        assert_eq!(held.note(first, Kept::FromCompaction(1), 34 * MINUTE_MS), None);
        let all =
            Undecided { producer_id: 70, first_offset: 5, from_retention: 2, from_compaction: 1 };
        assert_eq!(held.current(), Some(all));
        assert_eq!(held.note(first, retention, 35 * MINUTE_MS), Some(all));
        assert_eq!(held.note(first, retention, 99 * MINUTE_MS), None);
        // Another one takes its place: its time begins.
        assert_eq!(held.note(second, retention, 100 * MINUTE_MS), None);
        assert_eq!(held.current().map(|it| (it.producer_id, it.from_compaction)), Some((80, 0)));
        assert!(held.note(second, retention, 115 * MINUTE_MS).is_some());
        assert_eq!(held.note(None, Kept::FromRetention(0), 116 * MINUTE_MS), None);
        assert_eq!(held.current(), None);
    }
}
