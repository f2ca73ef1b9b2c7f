//! Between a leader's question to the coordinator and the batch it was asked for.
//!
//! Owns: which producers such questions are open for. While an answer is on its way the transaction may
//! end: its marker voids the question, so that a batch which comes late does not open a transaction
//! that nobody ends (KIP-890). Bounded by the requests that wait for an answer.

use std::rc::Rc;

use ahash::AHashMap;

use crate::core::Core;

/// By producer id: the last question's number.
#[derive(Debug, Default)]
pub(crate) struct Verifying {
    open: AHashMap<i64, u64>,
    asked: u64,
}

impl Verifying {
    fn begin(&mut self, producer_id: i64) -> u64 {
        self.asked += 1;
        self.open.insert(producer_id, self.asked);
        self.asked
    }

    /// A marker of the producer was appended.
    pub(crate) fn void(&mut self, producer_id: i64) {
        self.open.remove(&producer_id);
    }

    fn holds(&self, producer_id: i64, number: u64) -> bool {
        self.open.get(&producer_id) == Some(&number)
    }
}

/// A question to the coordinator, until it is dropped.
pub struct Verification {
    core: Rc<Core>,
    producer_id: i64,
    number: u64,
}

impl Verification {
    pub(crate) fn begin(core: &Rc<Core>, producer_id: i64) -> Self {
        let number = core.state.borrow_mut().verifying.begin(producer_id);
        Verification { core: core.clone(), producer_id, number }
    }

    /// Whether an answer that has come now still says something: no marker of the producer was appended
    /// since, and nobody has asked again.
    pub fn holds(&self) -> bool {
        self.core.state.borrow().verifying.holds(self.producer_id, self.number)
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        let verifying = &mut self.core.state.borrow_mut().verifying;
        if verifying.holds(self.producer_id, self.number) {
            verifying.void(self.producer_id);
        }
    }
}
