//! AddPartitionsToTxn and AddOffsetsToTxn: partitions become part of a transaction before anything
//! is written to them, or are found to be part of it.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;

use super::TxnCoordinator;
use super::context::{TransactionVersion, TxnContext};
use super::partitions::Partitions;
use super::refuse::{added, added_each, fenced_before};
use super::request::{TxnDecision, TxnReply};
use super::state::{State, Txn};
use crate::request::Producer;

/// From this version on clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// From this version on AddPartitionsToTxn comes from a leader, for a client that speaks KIP-890.
const FROM_LEADERS: i16 = 4;
const OFFSETS_TOPIC: &str = "__consumer_offsets";

impl TxnCoordinator {
    pub(super) fn add_partitions(
        &mut self,
        request: &AddPartitionsToTxnTransaction<'_>,
        version: i16,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> TxnReply {
        let exists = |topic: &str, partition| ctx.cluster.has_partition(topic, partition);
        let all_exist = request
            .topics
            .iter()
            .all(|topic| topic.partitions.iter().all(|partition| exists(&topic.name, partition)));
        if !all_exist {
            // One that is missing keeps the others out as well.
            return added_each(request, |topic, partition| match exists(topic, partition) {
                true => ErrorCode::OperationNotAttempted,
                false => ErrorCode::UnknownTopicOrPartition,
            });
        }
        let (id, producer) = (&*request.transactional_id, producer_of(request));
        if request.verify_only {
            return match self.verifiable(id, producer) {
                Ok(txn) => added_each(request, |topic, partition| {
                    match txn.partitions.contains(topic, partition) {
                        true => ErrorCode::None,
                        false => ErrorCode::TransactionAbortable,
                    }
                }),
                Err(code) => added(request, code),
            };
        }
        let protocol = TransactionVersion::spoken(version >= FROM_LEADERS);
        let topics: Vec<_> = request.topics.iter().collect();
        let partitions = topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (&*topic.name, partition)));
        let result = self.add(id, producer, partitions, protocol, ctx, out);
        added(request, fenced_before(FENCED_FROM, version, code_of(result)))
    }

    pub(super) fn add_offsets(
        &mut self,
        request: &m::AddOffsetsToTxnRequest<'_>,
        partition: i32,
        version: i16,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> TxnReply {
        let id = &*request.transactional_id;
        let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
        // With KIP-890 the group's coordinator asks, by AddPartitionsToTxn.
        let partitions = [(OFFSETS_TOPIC, partition)];
        let result = self.add(id, producer, partitions, TransactionVersion::V0, ctx, out);
        let code = fenced_before(FENCED_FROM, version, code_of(result));
        TxnReply::AddOffsets(m::AddOffsetsToTxnResponse {
            error_code: code.code(),
            ..Default::default()
        })
    }

    fn add<'p>(
        &mut self,
        id: &str,
        producer: Producer,
        partitions: impl IntoIterator<Item = (&'p str, i32)>,
        protocol: TransactionVersion,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> Result<(), ErrorCode> {
        let txn = self.known(id)?;
        // Before the epoch is looked at: the producer may already have the one that comes next.
        if txn.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        owned_by(txn, producer)?;
        let partitions = Partitions::from_iter(partitions);
        if txn.state == State::Ongoing && txn.partitions.contains_all(&partitions) {
            return Ok(());
        }
        let next = txn.with_partitions(&partitions, protocol, ctx.now_ms);
        if id.len() + next.partitions.bytes() > self.config.partitions_bytes_max {
            // The record would not fit; so Kafka's answer when an append finds that out.
            return Err(ErrorCode::UnknownServerError);
        }
        let name = self.name(id);
        self.take(&name, next, ctx, out);
        Ok(())
    }

    fn verifiable(&self, id: &str, producer: Producer) -> Result<&Txn, ErrorCode> {
        let txn = self.known(id)?;
        owned_by(txn, producer)?;
        if txn.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        Ok(txn)
    }

    /// The state of an id that a producer claims to have.
    pub(super) fn known(&self, id: &str) -> Result<&Txn, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.entries.get(id).map(|entry| &entry.txn).ok_or(ErrorCode::InvalidProducerIdMapping)
    }
}

pub(super) fn owned_by(txn: &Txn, producer: Producer) -> Result<(), ErrorCode> {
    if txn.producer.id != producer.id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if txn.producer.epoch != producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    Ok(())
}

fn producer_of(request: &AddPartitionsToTxnTransaction<'_>) -> Producer {
    Producer { id: request.producer_id, epoch: request.producer_epoch }
}

fn code_of(result: Result<(), ErrorCode>) -> ErrorCode {
    result.err().unwrap_or(ErrorCode::None)
}
