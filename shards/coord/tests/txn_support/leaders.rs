//! The leader of a partition, as far as transactions go: which are open, and how each ended.
//!
//! It keeps the rules that Kafka's leaders keep: no write with an old epoch, no marker with an old
//! epoch or from an old coordinator, and none with the epoch of what is open once endings bring new
//! epochs.

use std::collections::{BTreeMap, BTreeSet};

use coord::Producer;
use coord::txn::Marker;
use wire::ErrorCode;

/// One transaction of one instance.
pub type Label = (usize, u64);

#[derive(Clone, Debug, Default)]
pub struct AtLeader {
    pub epoch: i16,
    pub coordinator_epoch: i32,
    pub open: Vec<Label>,
    /// Grows with every marker: what was asked of the coordinator before is out of date.
    pub guard: u64,
}

#[derive(Default)]
pub struct Leader {
    pub producers: BTreeMap<i64, AtLeader>,
    pub outcomes: BTreeMap<Label, BTreeSet<bool>>,
}

impl Leader {
    /// Takes a write of a transaction that it knows to be open. Otherwise gives the guard under
    /// which the coordinator is to be asked.
    pub fn write(&mut self, producer: Producer, label: Label) -> Result<ErrorCode, u64> {
        let there = self.producers.entry(producer.id).or_default();
        if producer.epoch < there.epoch {
            return Ok(ErrorCode::InvalidProducerEpoch);
        }
        if producer.epoch == there.epoch && !there.open.is_empty() {
            there.open.push(label);
            return Ok(ErrorCode::None);
        }
        Err(there.guard)
    }

    /// Takes the write that the coordinator was asked about, unless something has ended since.
    pub fn verified(
        &mut self,
        producer: Producer,
        label: Label,
        guard: u64,
        answer: ErrorCode,
    ) -> ErrorCode {
        let there = self.producers.entry(producer.id).or_default();
        match answer {
            ErrorCode::None if there.guard != guard => ErrorCode::ConcurrentTransactions,
            ErrorCode::None if producer.epoch < there.epoch => ErrorCode::InvalidProducerEpoch,
            ErrorCode::None => {
                there.epoch = producer.epoch;
                there.open.push(label);
                ErrorCode::None
            }
            code => code,
        }
    }

    pub fn end(&mut self, marker: &Marker) -> ErrorCode {
        let there = self.producers.entry(marker.producer.id).or_default();
        if marker.coordinator_epoch < there.coordinator_epoch {
            return ErrorCode::TransactionCoordinatorFenced;
        }
        let same_as_open = marker.producer.epoch == there.epoch && !there.open.is_empty();
        if marker.producer.epoch < there.epoch || marker.transaction_version == 2 && same_as_open {
            return ErrorCode::InvalidProducerEpoch;
        }
        there.epoch = marker.producer.epoch;
        there.coordinator_epoch = marker.coordinator_epoch;
        there.guard += 1;
        for label in there.open.drain(..) {
            self.outcomes.entry(label).or_default().insert(marker.commit);
        }
        ErrorCode::None
    }
}
