//! Producer ids: blocks that no other node ever gets, also after a crash.

use wire::ErrorCode;
use wire::messages as m;

use super::{Controller, Decision, Failure, Outcome};
use crate::node::NodeId;

/// Ids in a block. Losing the rest of one at a crash costs nothing: there are 2^63.
pub const PRODUCER_ID_BLOCK_LEN: i64 = 1000;

/// A run of ids that one shard hands out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    next: i64,
    end: i64,
}

impl ProducerIdBlock {
    /// A block without ids, for a shard that has none yet.
    pub const EMPTY: ProducerIdBlock = ProducerIdBlock { next: 0, end: 0 };

    /// Takes the next id; `None`: the block is used up and the next must be asked for.
    pub fn take(&mut self) -> Option<i64> {
        let id = self.next;
        (id < self.end).then(|| {
            self.next += 1;
            id
        })
    }

    pub fn first(&self) -> i64 {
        self.next
    }

    pub fn remaining(&self) -> i64 {
        self.end - self.next
    }
}

impl Controller<'_> {
    /// Gives a node the next block. Its ids may be used once the record is durable.
    pub fn allocate_producer_ids(&self, node: NodeId) -> Decision<Outcome<ProducerIdBlock>> {
        let first = self.image.next_producer_id();
        let Some(end) = first.checked_add(PRODUCER_ID_BLOCK_LEN) else {
            let failure = Failure::new(
                ErrorCode::UnknownServerError,
                format!("all producer ids up to {first} are used"),
            );
            return Decision { records: Vec::new(), outcome: Err(failure) };
        };
        let epoch = self.image.node(node).map_or(-1, |node| node.epoch);
        let record =
            m::ProducerIdsRecord { broker_id: node.0, broker_epoch: epoch, next_producer_id: end };
        Decision { records: vec![record.into()], outcome: Ok(ProducerIdBlock { next: first, end }) }
    }
}
