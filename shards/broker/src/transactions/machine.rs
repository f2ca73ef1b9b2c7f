//! The coordinator of transactions as a kind of [`Machine`]; its errands are the markers.

use std::collections::BTreeMap;
use std::rc::Rc;

use coord::CoordError;
use coord::txn::{Marker, TxnCoordinator, TxnDecision, TxnRecord, TxnReply};
use log::TransactionMarker;
use meta::controller::TRANSACTION_STATE_TOPIC;
use wire::ErrorCode;
use wire::records::control::EndTransaction;

use super::between::{Asked, ShardAsk, ask_node};
use super::{config, with_context};
use crate::coordinators::{Decided, Machine, Seat, Seats};
use crate::partition::Partition;
use crate::shard::Shard;

/// From this transaction.version on (KIP-890) a marker has a higher epoch than the batches it ends.
pub(crate) const RAISES_EPOCH: i16 = 2;

impl From<TxnDecision> for Decided<TxnCoordinator> {
    fn from(decision: TxnDecision) -> Self {
        let TxnDecision { records, replies, markers } = decision;
        Decided { records, producer: None, replies, errands: markers }
    }
}

impl Machine for TxnCoordinator {
    const WHAT: &'static str = "transaction coordinator";
    const TOPIC: &'static str = TRANSACTION_STATE_TOPIC;
    type Record = TxnRecord<'static>;
    type Reply = TxnReply;
    type Errand = Marker;

    fn seats(shard: &Shard) -> &Seats<Self> {
        &shard.transactions.seats
    }

    fn begin(shard: &Shard, partition: &Partition) -> Self {
        TxnCoordinator::new(config(shard), partition.leader_epoch())
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

    fn on_time(&mut self, shard: &Shard, now_ms: i64) -> Decided<Self> {
        with_context(shard, now_ms, |context| TxnCoordinator::on_time(self, context)).into()
    }

    fn to_bytes(record: &Self::Record) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError> {
        record.to_bytes()
    }

    fn run(shard: &Rc<Shard>, seat: &Rc<Seat<Self>>, marker: Marker) {
        reactor::spawn(send(shard.clone(), seat.clone(), marker)).detach();
    }
}

/// Has the leaders of the partitions write the marker, and tells the coordinator what became of it.
async fn send(shard: Rc<Shard>, seat: Rc<Seat<TxnCoordinator>>, marker: Marker) {
    let written = TransactionMarker {
        producer_id: marker.producer.id,
        producer_epoch: marker.producer.epoch,
        end: EndTransaction {
            committed: marker.commit,
            coordinator_epoch: marker.coordinator_epoch,
        },
        raises_epoch: marker.transaction_version >= RAISES_EPOCH,
    };
    let mut by_leader: BTreeMap<Option<i32>, Vec<(Rc<str>, i32)>> = BTreeMap::new();
    for (topic, partition) in marker.partitions.iter() {
        let leader = shard.leader_of(topic, partition);
        by_leader.entry(leader).or_default().push((topic.into(), partition));
    }
    let asks = by_leader.into_iter().map(|(leader, partitions)| {
        let shard = shard.clone();
        async move {
            let codes = match leader {
                Some(leader) => {
                    let partitions =
                        partitions.iter().map(|(topic, n)| (topic.to_string(), *n)).collect();
                    let ask = ShardAsk { partitions, asked: Asked::WriteMarkers(written) };
                    ask_node(&shard, leader, ask).await
                }
                None => vec![ErrorCode::LeaderNotAvailable; partitions.len()],
            };
            (partitions, codes)
        }
    });
    let answers = reactor::join_all(asks).await;
    let results = answers.iter().flat_map(|(partitions, codes)| {
        partitions.iter().zip(codes).map(|((topic, partition), code)| (&**topic, *partition, *code))
    });
    seat.decide(&shard, |machine, now_ms| {
        with_context(&shard, now_ms, |context| {
            machine.markers_written(&marker.transactional_id, marker.round, results, context)
        })
        .into()
    });
}
