//! The shapes of answers, also to requests that no coordinator looked at: it is loading, has moved,
//! or failed.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;
use wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use wire::messages::describe_transactions_response::TransactionState;

use super::admin::unknown_states;
use super::request::{TxnReply, TxnRequest};
use crate::request::Producer;

impl TxnRequest<'_, '_> {
    /// The transactional id a request is for; none for a list of all, and where the client has
    /// none.
    pub fn transactional_id(&self) -> Option<&str> {
        match self {
            TxnRequest::InitProducerId(request) => request.transactional_id.as_deref(),
            TxnRequest::AddPartitions(request) => Some(&request.transactional_id),
            TxnRequest::AddOffsets { request, .. } => Some(&request.transactional_id),
            TxnRequest::EndTxn(request) => Some(&request.transactional_id),
            TxnRequest::Describe(id) => Some(id),
            TxnRequest::List { .. } => None,
        }
    }

    /// Refuses the whole request, in the shape that its API has for that.
    pub fn refused(&self, code: ErrorCode) -> TxnReply {
        let error_code = code.code();
        match self {
            TxnRequest::InitProducerId(_) => init_reply(Err(code)),
            TxnRequest::AddPartitions(request) => added(request, code),
            TxnRequest::AddOffsets { .. } => TxnReply::AddOffsets(m::AddOffsetsToTxnResponse {
                error_code,
                ..Default::default()
            }),
            TxnRequest::EndTxn(_) => end_reply(Err(code)),
            TxnRequest::Describe(id) => TxnReply::Describe(TransactionState {
                transactional_id: String::from(*id).into(),
                error_code,
                ..Default::default()
            }),
            TxnRequest::List { .. } => TxnReply::List {
                list: m::ListTransactionsResponse { error_code, ..Default::default() },
                goes_on_after: None,
            },
        }
    }
}

/// What clients older than `since` are told in place of PRODUCER_FENCED, which they do not know.
pub(super) fn fenced_before(since: i16, version: i16, code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if version < since => ErrorCode::InvalidProducerEpoch,
        other => other,
    }
}

pub(super) fn init_reply(result: Result<Producer, ErrorCode>) -> TxnReply {
    let (producer, code) = parts(result);
    TxnReply::InitProducerId(m::InitProducerIdResponse {
        error_code: code.code(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        ..Default::default()
    })
}

pub(super) fn end_reply(result: Result<Producer, ErrorCode>) -> TxnReply {
    let (producer, code) = parts(result);
    TxnReply::EndTxn(m::EndTxnResponse {
        throttle_time_ms: 0,
        error_code: code.code(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
    })
}

fn parts(result: Result<Producer, ErrorCode>) -> (Producer, ErrorCode) {
    match result {
        Ok(producer) => (producer, ErrorCode::None),
        Err(code) => (Producer { id: -1, epoch: -1 }, code),
    }
}

/// The same answer for each partition.
pub(super) fn added(request: &AddPartitionsToTxnTransaction<'_>, code: ErrorCode) -> TxnReply {
    added_each(request, |_, _| code)
}

pub(super) fn added_each(
    request: &AddPartitionsToTxnTransaction<'_>,
    code: impl Fn(&str, i32) -> ErrorCode,
) -> TxnReply {
    let topics = request.topics.iter().map(|topic| AddPartitionsToTxnTopicResult {
        name: String::from(&*topic.name).into(),
        results_by_partition: topic
            .partitions
            .iter()
            .map(|partition_index| AddPartitionsToTxnPartitionResult {
                partition_index,
                partition_error_code: code(&topic.name, partition_index).code(),
            })
            .collect(),
    });
    TxnReply::AddPartitions(AddPartitionsToTxnResult {
        transactional_id: String::from(&*request.transactional_id).into(),
        topic_results: topics.collect(),
    })
}

/// From this version on an AddPartitionsToTxn names several transactions.
const ADD_BATCHED_FROM: i16 = 4;

/// The transactions of an AddPartitionsToTxn, in the shape of version 4 and later.
pub fn split_add_partitions<'a>(
    request: &m::AddPartitionsToTxnRequest<'a>,
    version: i16,
) -> Vec<AddPartitionsToTxnTransaction<'a>> {
    if version >= ADD_BATCHED_FROM {
        return request.transactions.to_vec();
    }
    vec![AddPartitionsToTxnTransaction {
        transactional_id: request.v3_and_below_transactional_id.clone(),
        producer_id: request.v3_and_below_producer_id,
        producer_epoch: request.v3_and_below_producer_epoch,
        verify_only: false,
        topics: request.v3_and_below_topics.clone(),
    }]
}

/// The response made of the transactions' answers.
pub fn join_add_partitions(
    results: Vec<AddPartitionsToTxnResult<'static>>,
    version: i16,
) -> m::AddPartitionsToTxnResponse<'static> {
    if version >= ADD_BATCHED_FROM {
        return m::AddPartitionsToTxnResponse {
            results_by_transaction: results.into(),
            ..Default::default()
        };
    }
    let results = results.into_iter().next().unwrap_or_default();
    m::AddPartitionsToTxnResponse {
        results_by_topic_v3_and_below: results.topic_results,
        ..Default::default()
    }
}

/// The response to a request made of the pieces of several coordinators' lists, in their order. One
/// that fails fails the whole.
pub fn join_lists(
    request: &m::ListTransactionsRequest<'_>,
    lists: Vec<m::ListTransactionsResponse<'static>>,
) -> m::ListTransactionsResponse<'static> {
    let mut whole = m::ListTransactionsResponse::default();
    let mut states = Vec::new();
    for list in lists {
        if list.error_code != ErrorCode::None.code() {
            let error_code = list.error_code;
            return m::ListTransactionsResponse { error_code, ..Default::default() };
        }
        states.extend(list.transaction_states.into_vec());
    }
    whole.unknown_state_filters = unknown_states(request).collect();
    whole.transaction_states = states.into();
    whole
}
