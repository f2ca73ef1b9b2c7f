//! The coordinator of transactions as a kind of [`Machine`]; its errands are the markers above all.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use coord::CoordError;
use coord::txn::{Marker, TxnCoordinator, TxnDecision, TxnRecord, TxnReply};
use log::{EndedBy, TransactionMarker};
use meta::controller::TRANSACTION_STATE_TOPIC;
use tracing::warn;
use wire::ErrorCode;
use wire::records::control::EndTransaction;

use super::between::{Asked, ShardAsk, ask_node};
use super::metrics::Cause;
use super::{config, with_context};
use crate::coordinators::{Decided, Machine, Seat, Seats};
use crate::markers::RAISES_EPOCH;
use crate::partition::Partition;
use crate::shard::Shard;

/// Answers that wait for space look for some again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What the coordinator has others do.
pub(crate) enum Errand {
    Send(Marker),
    /// Something that nobody asked for just now waits for one.
    HoldProducerIds,
}

impl From<TxnDecision> for Decided<TxnCoordinator> {
    fn from(decision: TxnDecision) -> Self {
        let TxnDecision { records, replies, markers, lacks_producer_id, .. } = decision;
        let mut errands: Vec<Errand> = markers.into_iter().map(Errand::Send).collect();
        errands.extend(lacks_producer_id.then_some(Errand::HoldProducerIds));
        Decided { records, cuts: Vec::new(), producer: None, replies, errands }
    }
}

impl Machine for TxnCoordinator {
    const WHAT: &'static str = "transaction coordinator";
    const TOPIC: &'static str = TRANSACTION_STATE_TOPIC;
    type Record = TxnRecord<'static>;
    type Reply = TxnReply;
    type Errand = Errand;

    fn seats(shard: &Shard) -> &Seats<Self> {
        &shard.transactions.seats
    }

    fn begin(shard: &Shard, partition: &Partition) -> Self {
        TxnCoordinator::new(config(shard), partition.leader_epoch())
    }

    /// The wall clock: how old a transaction is counts from what stands in the log.
    fn clock_ms(_shard: &Shard) -> i64 {
        reactor::wall_clock_ms()
    }

    fn load_piece_bytes(shard: &Shard) -> usize {
        usize::try_from(shard.config().transactions.load_buffer_bytes).unwrap_or(usize::MAX)
    }

    fn replay(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        _producer: Option<i64>,
    ) -> Result<(), CoordError> {
        TxnCoordinator::replay(self, key, value)
    }

    /// Nobody writes to this topic in a transaction.
    fn replay_marker(&mut self, _producer_id: i64, _committed: bool) {}

    fn loaded(&mut self, shard: &Shard, _partition: &Partition, now_ms: i64) -> Decided<Self> {
        self.set_config(config(shard));
        TxnCoordinator::loaded(self, now_ms);
        TxnDecision::default().into()
    }

    fn next_deadline(&mut self) -> Option<i64> {
        TxnCoordinator::next_deadline(self)
    }

    /// Each record is about an id of its own, or a step that stands for itself, so they may be appended apart.
    fn on_time(&mut self, shard: &Shard, now_ms: i64) -> Decided<Self> {
        let decision =
            with_context(shard, now_ms, |context| TxnCoordinator::on_time(self, context));
        shard.transactions.counted.note(&decision, Cause::Time);
        Decided { cuts: (1..decision.records.len()).collect(), ..decision.into() }
    }

    fn to_bytes(record: &Self::Record) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError> {
        record.to_bytes()
    }

    async fn run(shard: Rc<Shard>, seat: Rc<Seat<Self>>, errand: Errand) {
        match errand {
            Errand::Send(marker) => send(&shard, &seat, &marker).await,
            Errand::HoldProducerIds => {
                if let Err(code) = shard.hold_producer_ids().await {
                    warn!("no producer ids for what waits for one: {code:?}");
                }
            }
        }
    }
}

/// Has the leaders of the partitions write the marker, and tells the coordinator what became of it, each
/// leader's answer as it comes: one that waits for a partition does not hold up what others refused.
async fn send(shard: &Rc<Shard>, seat: &Seat<TxnCoordinator>, marker: &Marker) {
    let mut by_leader: BTreeMap<Option<i32>, Vec<(String, i32)>> = BTreeMap::new();
    for (topic, partition) in marker.partitions.iter() {
        let leader = shard.leader_of(topic, partition);
        by_leader.entry(leader).or_default().push((topic.to_owned(), partition));
    }
    let sends = by_leader
        .into_iter()
        .map(|(leader, partitions)| send_to(shard, seat, marker, leader, partitions));
    reactor::join_all(sends).await;
}

async fn send_to(
    shard: &Rc<Shard>,
    seat: &Seat<TxnCoordinator>,
    marker: &Marker,
    leader: Option<i32>,
    partitions: Vec<(String, i32)>,
) {
    let written = TransactionMarker {
        producer_id: marker.producer.id,
        producer_epoch: marker.producer.epoch,
        end: EndTransaction {
            committed: marker.commit,
            coordinator_epoch: marker.coordinator_epoch,
        },
        raises_epoch: marker.transaction_version >= RAISES_EPOCH,
        by: EndedBy::Coordinator,
    };
    let coordinator = seat.partition_index();
    let codes = match leader {
        Some(leader) => {
            let partitions = partitions.clone();
            let asked = Asked::WriteMarkers { marker: written, coordinator };
            ask_node(shard, leader, ShardAsk { partitions, asked }).await
        }
        None => vec![ErrorCode::LeaderNotAvailable; partitions.len()],
    };
    let written = codes.iter().filter(|code| **code == ErrorCode::None).count();
    shard.transactions.counted.note_markers(written);
    until_it_can_write(shard, seat).await;
    let results = partitions.iter().zip(codes).map(|((topic, n), code)| (&**topic, *n, code));
    seat.decide(shard, |machine, now_ms| {
        let decision = with_context(shard, now_ms, |context| {
            machine.markers_written(&marker.transactional_id, marker.round, results, context)
        });
        shard.transactions.counted.note(&decision, Cause::Request);
        decision.into()
    });
}

/// What the answers bring about is written down: a coordinator without space would be lost to
/// everybody by it. They wait here, one each of the markers that are out, until there is some, or
/// the coordinator is gone.
async fn until_it_can_write(shard: &Shard, seat: &Seat<TxnCoordinator>) {
    while seat.is_out_of_space(shard) && seat.is_at_work() && !shard.is_stopping() {
        reactor::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_that_waits_for_a_producer_id_has_some_fetched() {
        let mut decision = TxnDecision::default();
        decision.lacks_producer_id = true;
        let decided = Decided::from(decision);
        assert!(matches!(decided.errands[..], [Errand::HoldProducerIds]));
        assert!(Decided::from(TxnDecision::default()).errands.is_empty());
    }
}
