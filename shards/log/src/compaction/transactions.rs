//! What a pass knows of the transactions it walks through.
//!
//! Pure. Below the last stable offset every transaction has ended, so whether a batch was aborted
//! is known before its marker is reached. Aborted data goes at once. A marker stays while any batch
//! of its transaction was met in this pass, and then until its delete horizon.
//!
//! | met | what becomes of it |
//! |---|---|
//! | a data batch of an aborted transaction | its records go |
//! | any other batch | its keys decide |
//! | a marker whose transaction had batches | stays as it is |
//! | a marker without any batch | gets a delete horizon; goes when that has passed |

use std::collections::VecDeque;

use ahash::{AHashMap, AHashSet};

use crate::txn_index::AbortedTxn;

#[derive(Default)]
pub(crate) struct Transactions {
    /// Not reached yet, by first offset.
    ahead: VecDeque<AbortedTxn>,
    /// Reached and not yet ended, by producer; whether a batch of it was met.
    aborted: AHashMap<i64, (AbortedTxn, bool)>,
    /// Producers whose current transaction was met and will be committed.
    committed: AHashSet<i64>,
}

/// What a marker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Batches of the transaction were met. An aborted one must stay in the transaction index.
    WithData(Option<AbortedTxn>),
    /// Nothing of it is left.
    Empty,
}

impl Transactions {
    pub(crate) fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_by_key(|txn| txn.first_offset);
        Transactions { ahead: aborted.into(), ..Transactions::default() }
    }

    /// Meets a data batch. `true`: it was aborted.
    pub(crate) fn meet_batch(
        &mut self,
        producer_id: i64,
        last_offset: i64,
        transactional: bool,
    ) -> bool {
        self.reach(last_offset);
        if !transactional {
            return false;
        }
        match self.aborted.get_mut(&producer_id) {
            Some((_, met)) => {
                *met = true;
                true
            }
            None => {
                self.committed.insert(producer_id);
                false
            }
        }
    }

    /// Meets a control batch: `committed` says how a transaction ended, `None` for one that was
    /// emptied before or that ends no transaction.
    pub(crate) fn meet_marker(
        &mut self,
        producer_id: i64,
        last_offset: i64,
        committed: Option<bool>,
    ) -> Ended {
        self.reach(last_offset);
        match committed {
            Some(true) if self.committed.remove(&producer_id) => Ended::WithData(None),
            Some(false) => match self.aborted.remove(&producer_id) {
                Some((txn, true)) => Ended::WithData(Some(txn)),
                _ => Ended::Empty,
            },
            _ => Ended::Empty,
        }
    }

    fn reach(&mut self, offset: i64) {
        while let Some(txn) = self.ahead.pop_front_if(|txn| txn.first_offset <= offset) {
            self.aborted.entry(txn.producer_id).or_insert((txn, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
        AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset: last_offset + 1 }
    }

    #[test]
    fn aborted_batches_go_and_their_marker_stays_while_some_were_met() {
        let txn = aborted(1, 10, 20);
        let mut all = Transactions::new(vec![aborted(1, 30, 40), txn]);
        assert!(!all.meet_batch(1, 5, true), "an earlier transaction");
        assert_eq!(all.meet_marker(1, 8, Some(true)), Ended::WithData(None));
        assert!(all.meet_batch(1, 12, true));
        assert!(!all.meet_batch(2, 13, true), "another producer");
        assert!(!all.meet_batch(1, 14, false));
        assert_eq!(all.meet_marker(1, 20, Some(false)), Ended::WithData(Some(txn)));
        assert_eq!(all.meet_marker(2, 21, Some(true)), Ended::WithData(None));
        // Its batches went in an earlier pass.
        assert_eq!(all.meet_marker(1, 40, Some(false)), Ended::Empty);
        assert_eq!(all.meet_marker(1, 50, Some(true)), Ended::Empty);
        assert_eq!(all.meet_marker(1, 51, None), Ended::Empty);
    }

    #[test]
    fn a_batch_that_reaches_into_an_aborted_transaction_is_part_of_it() {
        let mut all = Transactions::new(vec![aborted(1, 10, 20)]);
        assert!(!all.meet_batch(1, 9, true));
        assert!(all.meet_batch(1, 10, true));
    }
}
