//! What shards ask each other about transactions: coordinators and leaders live on different cores.
//!
//! An answer has one code for each partition of the question, in its order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ahash::AHashMap;
use coord::Producer;
use coord::txn::{TxnReply, TxnRequest};
use log::{EndedBy, TransactionMarker};
use meta::NodeId;
use meta::controller::TRANSACTION_STATE_TOPIC;
use reactor::sync::{OneshotSender, oneshot};
use wire::ErrorCode;
use wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};

use crate::fetch_session::TopicRef;
use crate::markers::{self, WRITTEN_AT_ONCE};
use crate::mesh::ShardMessage;
use crate::shard::Shard;

/// The version of AddPartitionsToTxn that leaders speak.
const LEADERS_VERSION: i16 = 5;

/// A question about partitions.
#[derive(Clone, Debug)]
pub struct ShardAsk {
    pub partitions: Vec<(String, i32)>,
    pub asked: Asked,
}

#[derive(Clone, Debug)]
pub enum Asked {
    /// The coordinator has the marker written into partitions that are led there.
    WriteMarkers {
        marker: TransactionMarker,
        /// Its partition of `__transaction_state`.
        coordinator: i32,
    },
    /// The leader of partitions asks the coordinator to make them part of a transaction, or whether
    /// they are part of it.
    AddPartitions { transactional_id: String, producer: Producer, verify_only: bool },
}

/// Questions to other shards that wait for their answers; bounded by what asks: requests of
/// connections, and one marker a partition of an ending transaction.
#[derive(Default)]
pub(crate) struct Asks {
    waiting: RefCell<AHashMap<u64, OneshotSender<Vec<ErrorCode>>>>,
    next_token: Cell<u64>,
}

impl Asks {
    /// An answer has come.
    pub fn finish(&self, token: u64, codes: Vec<ErrorCode>) {
        if let Some(sender) = self.waiting.borrow_mut().remove(&token) {
            // Who asked may have left.
            let _ = sender.send(codes);
        }
    }
}

/// Asks the shard of a node. One that cannot be reached is not the leader, or coordinator, any
/// more.
pub(super) async fn ask_node(shard: &Rc<Shard>, node: i32, ask: ShardAsk) -> Vec<ErrorCode> {
    let count = ask.partitions.len();
    let gone = || vec![ErrorCode::NotLeaderOrFollower; count];
    let node = NodeId(node);
    if node.0 == shard.node_id() {
        return serve(shard, ask).await;
    }
    let number = usize::from(node.shard());
    if node.broker() != shard.broker_id() || number >= shard.mesh.shards() {
        return gone();
    }
    let asks = &shard.transactions.asks;
    let token = asks.next_token.get();
    asks.next_token.set(token.wrapping_add(1));
    let (sender, receiver) = oneshot();
    asks.waiting.borrow_mut().insert(token, sender);
    let message = ShardMessage::Ask { token, ask: Box::new(ask) };
    if shard.mesh.send(number, message).await.is_err() {
        asks.waiting.borrow_mut().remove(&token);
        return gone();
    }
    receiver.await.unwrap_or_else(|_| gone())
}

/// Answers a question that concerns this shard.
pub(crate) async fn serve(shard: &Rc<Shard>, ask: ShardAsk) -> Vec<ErrorCode> {
    let ShardAsk { partitions, asked } = ask;
    match asked {
        Asked::WriteMarkers { marker, coordinator } => {
            let marker = TransactionMarker { by: standing(shard, coordinator, &marker), ..marker };
            write_markers(shard, &partitions, marker).await
        }
        Asked::AddPartitions { transactional_id, producer, verify_only } => {
            add_partitions(shard, &partitions, &transactional_id, producer, verify_only).await
        }
    }
}

/// Whether the coordinator that sends a marker is the one of now. A higher epoch in a log is then
/// none that a coordinator ever had, and must not keep the transaction from ending. There is no
/// other at work: one begins when the markers of the one before are answered
/// (`coordinators/errands`).
fn standing(shard: &Shard, coordinator: i32, marker: &TransactionMarker) -> EndedBy {
    let image = shard.image();
    let partition = image.partition(TRANSACTION_STATE_TOPIC, coordinator);
    let is_current = partition.is_some_and(|it| it.leader_epoch == marker.end.coordinator_epoch);
    if is_current { EndedBy::CurrentCoordinator } else { EndedBy::Coordinator }
}

async fn write_markers(
    shard: &Rc<Shard>,
    partitions: &[(String, i32)],
    marker: TransactionMarker,
) -> Vec<ErrorCode> {
    let mut codes = Vec::with_capacity(partitions.len());
    for some in partitions.chunks(WRITTEN_AT_ONCE) {
        let writes = some.iter().map(|(topic, index)| async move {
            let topic = TopicRef::Name(topic.as_str().into());
            let written = markers::write(shard, &topic, *index, marker).await;
            written.err().unwrap_or(ErrorCode::None)
        });
        codes.extend(reactor::join_all(writes).await);
    }
    codes
}

async fn add_partitions(
    shard: &Rc<Shard>,
    partitions: &[(String, i32)],
    transactional_id: &str,
    producer: Producer,
    verify_only: bool,
) -> Vec<ErrorCode> {
    let topics: Vec<AddPartitionsToTxnTopic<'_>> = partitions
        .iter()
        .map(|(topic, index)| AddPartitionsToTxnTopic {
            name: topic.as_str().into(),
            partitions: vec![*index].into(),
        })
        .collect();
    let request = AddPartitionsToTxnTransaction {
        transactional_id: transactional_id.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        verify_only,
        topics: topics.into(),
    };
    let reply = super::ask(shard, LEADERS_VERSION, TxnRequest::AddPartitions(&request)).await;
    let TxnReply::AddPartitions(answer) = reply else {
        unreachable!("a coordinator answers a request with its own kind");
    };
    let codes = answer.topic_results.iter().flat_map(|topic| {
        let results: Vec<i16> =
            topic.results_by_partition.iter().map(|it| it.partition_error_code).collect();
        results
    });
    codes.map(|code| ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)).collect()
}
