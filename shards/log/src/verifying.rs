//! Between a leader's question to the coordinator and the batch it was asked for.
//!
//! Owns: which producers were asked about whose batch has not come yet. While an answer is on its
//! way the transaction may end: its marker voids the question, so that a batch which comes late
//! does not open a transaction that nobody ends (KIP-890). Several questions of one producer may be
//! open; they hold together. Where the producer is not known, the lowest sequence that was asked
//! for is the next one, also after an answer of "not now": otherwise a batch that was sent behind
//! it would take its place, and its repetition would be out of order for good. Bounded by the
//! requests that wait for an answer and by
//! [`KEPT_MAX`].

use std::rc::Rc;

use ahash::AHashMap;

use crate::core::Core;

/// Producers without an open question that are remembered.
const KEPT_MAX: usize = 16_384;
/// Sequences wrap from `i32::MAX` to 0; what is less than half the way round ahead comes later.
const SEQUENCES: i64 = 1 << 31;

/// By producer id.
#[derive(Debug, Default)]
pub(crate) struct Verifying {
    asked: AHashMap<i64, Asked>,
    numbers: u64,
}

#[derive(Debug)]
struct Asked {
    /// Tells it from what was asked before the last marker or batch.
    number: u64,
    epoch: i16,
    /// Of this epoch.
    lowest_sequence: i32,
    /// Questions without an answer.
    open: usize,
    last_ms: i64,
}

impl Verifying {
    fn begin(&mut self, producer_id: i64, epoch: i16, sequence: i32, now_ms: i64) -> u64 {
        if self.asked.len() >= KEPT_MAX && !self.asked.contains_key(&producer_id) {
            self.asked.retain(|_, asked| asked.open > 0);
        }
        let numbers = &mut self.numbers;
        let asked = self.asked.entry(producer_id).or_insert_with(|| {
            *numbers += 1;
            Asked { number: *numbers, epoch, lowest_sequence: sequence, open: 0, last_ms: now_ms }
        });
        let is_lower = asked.epoch == epoch && is_after(asked.lowest_sequence, sequence);
        if asked.epoch < epoch || is_lower {
            (asked.epoch, asked.lowest_sequence) = (epoch, sequence);
        }
        asked.open += 1;
        asked.last_ms = now_ms;
        asked.number
    }

    /// A marker of the producer was appended, or a batch of its transaction: that is what counts
    /// now.
    pub(crate) fn void(&mut self, producer_id: i64) {
        if !self.asked.is_empty() {
            self.asked.remove(&producer_id);
        }
    }

    /// Whether any question waits for its answer.
    pub(crate) fn is_open(&self) -> bool {
        self.asked.values().any(|asked| asked.open > 0)
    }

    fn holds(&self, producer_id: i64, number: u64) -> bool {
        self.asked.get(&producer_id).is_some_and(|asked| asked.number == number)
    }

    fn answered(&mut self, producer_id: i64, number: u64) {
        if let Some(asked) = self.asked.get_mut(&producer_id)
            && asked.number == number
        {
            asked.open -= 1;
        }
    }

    /// The sequence that a producer which the log does not know has to begin with, if it is known
    /// to have sent one before this.
    pub(crate) fn first_sequence(&self, producer_id: i64, epoch: i16, got: i32) -> Option<i32> {
        if self.asked.is_empty() {
            return None;
        }
        let asked = self.asked.get(&producer_id).filter(|asked| asked.epoch == epoch)?;
        is_after(got, asked.lowest_sequence).then_some(asked.lowest_sequence)
    }

    /// Forgets what nobody has asked about for that time.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        let is_kept =
            |asked: &Asked| asked.open > 0 || now_ms.saturating_sub(asked.last_ms) < expiration_ms;
        self.asked.retain(|_, asked| is_kept(asked));
    }
}

/// Whether a producer sends `sequence` after `other`. What the broker writes itself has none.
fn is_after(sequence: i32, other: i32) -> bool {
    if sequence < 0 || other < 0 {
        return false;
    }
    let ahead = (i64::from(sequence) - i64::from(other)).rem_euclid(SEQUENCES);
    (1..SEQUENCES / 2).contains(&ahead)
}

/// A question to the coordinator, until it is dropped.
pub struct Verification {
    core: Rc<Core>,
    producer_id: i64,
    number: u64,
}

impl Verification {
    pub(crate) fn begin(
        core: &Rc<Core>,
        producer_id: i64,
        (epoch, sequence): (i16, i32),
        now_ms: i64,
    ) -> Self {
        let verifying = &mut core.state.borrow_mut().verifying;
        let number = verifying.begin(producer_id, epoch, sequence, now_ms);
        Verification { core: core.clone(), producer_id, number }
    }

    /// Whether an answer that has come now still says something: neither a marker of the producer
    /// was appended since, nor a batch of its transaction.
    pub fn holds(&self) -> bool {
        self.core.state.borrow().verifying.holds(self.producer_id, self.number)
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.core.state.borrow_mut().verifying.answered(self.producer_id, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_one_producer_hold_together_until_a_marker() {
        let mut verifying = Verifying::default();
        let first = verifying.begin(1, 0, 0, 0);
        let second = verifying.begin(1, 0, 1, 0);
        let other = verifying.begin(2, 0, 0, 0);
        assert!(verifying.holds(1, first) && verifying.holds(1, second));
        verifying.void(1);
        assert!(!verifying.holds(1, first) && !verifying.holds(1, second));
        assert!(verifying.holds(2, other));
        let third = verifying.begin(1, 0, 7, 0);
        verifying.answered(1, first);
        assert!(verifying.holds(1, third) && !verifying.holds(1, first));
        assert_eq!(verifying.first_sequence(1, 0, 8), Some(7), "the first were of another time");
    }

    #[test]
    fn the_lowest_sequence_comes_first_also_after_a_refusal() {
        let mut verifying = Verifying::default();
        for sequence in [5, 4, 6] {
            let number = verifying.begin(1, 3, sequence, 0);
            verifying.answered(1, number);
        }
        assert_eq!(verifying.first_sequence(1, 3, 4), None);
        assert_eq!(verifying.first_sequence(1, 3, 5), Some(4));
        assert_eq!(verifying.first_sequence(1, 2, 5), None, "of another epoch nothing is known");
        assert_eq!(verifying.first_sequence(1, 3, -1), None, "of the broker itself");
        assert_eq!(verifying.first_sequence(2, 3, 5), None);
        verifying.begin(1, 4, 9, 0);
        assert_eq!(verifying.first_sequence(1, 4, 9), None);
        assert_eq!(verifying.first_sequence(1, 4, 10), Some(9));
        verifying.begin(1, 3, 0, 0);
        assert_eq!(verifying.first_sequence(1, 4, 10), Some(9), "a late one of an old epoch");
    }

    #[test]
    fn sequences_wrap() {
        let mut verifying = Verifying::default();
        verifying.begin(1, 0, i32::MAX, 0);
        verifying.begin(1, 0, 0, 0);
        assert_eq!(verifying.first_sequence(1, 0, i32::MAX), None);
        assert_eq!(verifying.first_sequence(1, 0, 0), Some(i32::MAX));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends() {
        let mut verifying = Verifying::default();
        let open = verifying.begin(-1, 0, 0, 0);
        for id in 0..3 * KEPT_MAX as i64 {
            let number = verifying.begin(id, 0, 0, id);
            verifying.answered(id, number);
            assert!(verifying.asked.len() <= KEPT_MAX);
        }
        let last_ms = 3 * KEPT_MAX as i64 - 1;
        verifying.expire(last_ms + 9, 10);
        assert_eq!(verifying.asked.len(), 2);
        verifying.expire(last_ms + 10, 10);
        assert!(verifying.holds(-1, open) && verifying.asked.len() == 1);
    }
}
