//! Transactions: listing and describing them, and ending those that hang. One function a request;
//! retries and printing are the caller's.

use std::ops::RangeInclusive;

use wire::ErrorCode;
use wire::messages::describe_producers_request::TopicRequest;
use wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use wire::messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest,
    ListTransactionsResponse, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::Cluster;
use super::error::ClientError;
use super::groups::TopicPartition;

/// From version 4 on many are asked at once.
const FIND_VERSIONS: RangeInclusive<i16> = 1..=3;
const KEY_TYPE_TRANSACTION: i8 = 1;
const LIST_VERSIONS: RangeInclusive<i16> = 0..=2;
const DESCRIBE_VERSIONS: RangeInclusive<i16> = 0..=0;
const PRODUCERS_VERSIONS: RangeInclusive<i16> = 0..=0;
const INIT_VERSIONS: RangeInclusive<i16> = 0..=5;
const MARKERS_VERSIONS: RangeInclusive<i16> = 1..=2;
/// Of a producer that comes only to fence others.
const FENCING_TIMEOUT_MS: i32 = 1;

/// A line of a list of transactions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub id: String,
    pub state: String,
    pub producer_id: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub state: String,
    pub coordinator: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub timeout_ms: i32,
    /// When the transaction began, in ms since 1970.
    pub since_ms: Option<i64>,
    pub partitions: Vec<TopicPartition>,
}

/// A transaction that is open in a partition, as its leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
}

/// Every transactional id of the cluster.
pub async fn list(cluster: &mut Cluster) -> Result<Vec<Listed>, ClientError> {
    let nodes: Vec<i32> = cluster.metadata(Some(&[])).await?.nodes.keys().copied().collect();
    let mut transactions = Vec::new();
    for node in nodes {
        let request = ListTransactionsRequest { duration_filter: -1, ..Default::default() };
        let reply = cluster.call_node(node, &request, LIST_VERSIONS).await?;
        let listed: ListTransactionsResponse<'_> = reply.decode()?;
        ClientError::check(format!("transactions of node {node}"), listed.error_code, None)?;
        transactions.extend(listed.transaction_states.iter().map(|it| Listed {
            id: it.transactional_id.into_owned(),
            state: it.transaction_state.into_owned(),
            producer_id: it.producer_id,
        }));
    }
    transactions.sort();
    Ok(transactions)
}

pub async fn describe(cluster: &mut Cluster, id: &str) -> Result<Described, ClientError> {
    let coordinator = coordinator(cluster, id).await?;
    let request = DescribeTransactionsRequest { transactional_ids: vec![id.into()].into() };
    let reply = cluster.call_node(coordinator, &request, DESCRIBE_VERSIONS).await?;
    let answer: DescribeTransactionsResponse<'_> = reply.decode()?;
    let what = format!("transactional id {id}");
    let Some(found) = answer.transaction_states.iter().next() else {
        let code = ErrorCode::TransactionalIdNotFound.code();
        return Err(ClientError::broker(what, code, None));
    };
    ClientError::check(what, found.error_code, None)?;
    let partitions = found.topics.iter().flat_map(|topic| {
        let name = topic.topic.to_string();
        topic.partitions.iter().map(move |index| (name.clone(), index)).collect::<Vec<_>>()
    });
    Ok(Described {
        state: found.transaction_state.to_string(),
        coordinator,
        producer_id: found.producer_id,
        producer_epoch: found.producer_epoch,
        timeout_ms: found.transaction_timeout_ms,
        since_ms: Some(found.transaction_start_time_ms).filter(|ms| *ms >= 0),
        partitions: partitions.collect(),
    })
}

/// Fences whoever has the id, which aborts what it has open.
pub async fn fence(cluster: &mut Cluster, id: &str) -> Result<(), ClientError> {
    let coordinator = coordinator(cluster, id).await?;
    let request = InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: FENCING_TIMEOUT_MS,
        ..Default::default()
    };
    let reply = cluster.call_node(coordinator, &request, INIT_VERSIONS).await?;
    let answer: InitProducerIdResponse = reply.decode()?;
    ClientError::check(format!("transactional id {id}"), answer.error_code, None)
}

/// The transaction that is open in a partition since this offset.
pub async fn open_since(
    cluster: &mut Cluster,
    (topic, index): (&str, i32),
    offset: i64,
) -> Result<Option<Open>, ClientError> {
    let leader = leader(cluster, topic, index).await?;
    let asked = TopicRequest { name: topic.into(), partition_indexes: vec![index].into() };
    let request = DescribeProducersRequest { topics: vec![asked].into() };
    let reply = cluster.call_node(leader, &request, PRODUCERS_VERSIONS).await?;
    let answer: DescribeProducersResponse<'_> = reply.decode()?;
    let topics = answer.topics.iter().next();
    let Some(found) = topics.and_then(|topic| topic.partitions.iter().next()) else {
        return Ok(None);
    };
    let message = found.error_message.as_deref();
    ClientError::check(format!("{topic}-{index}"), found.error_code, message)?;
    let mut producers = found.active_producers.iter();
    let open = producers.find(|producer| producer.current_txn_start_offset == offset);
    Ok(open.map(|producer| Open {
        producer_id: producer.producer_id,
        producer_epoch: i16::try_from(producer.producer_epoch).unwrap_or(i16::MAX),
        coordinator_epoch: producer.coordinator_epoch,
    }))
}

/// Writes the marker that aborts it.
pub async fn abort(
    cluster: &mut Cluster,
    (topic, index): (&str, i32),
    open: Open,
) -> Result<(), ClientError> {
    let leader = leader(cluster, topic, index).await?;
    let topics =
        WritableTxnMarkerTopic { name: topic.into(), partition_indexes: vec![index].into() };
    let marker = WritableTxnMarker {
        producer_id: open.producer_id,
        producer_epoch: open.producer_epoch,
        coordinator_epoch: open.coordinator_epoch.max(0),
        topics: vec![topics].into(),
        ..Default::default()
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker].into() };
    let reply = cluster.call_node(leader, &request, MARKERS_VERSIONS).await?;
    let answer: WriteTxnMarkersResponse<'_> = reply.decode()?;
    let markers = answer.markers.iter().flat_map(|marker| {
        marker.topics.iter().flat_map(|topic| topic.partitions.to_vec()).collect::<Vec<_>>()
    });
    for partition in markers {
        ClientError::check(format!("{topic}-{index}"), partition.error_code, None)?;
    }
    Ok(())
}

async fn coordinator(cluster: &mut Cluster, id: &str) -> Result<i32, ClientError> {
    let request = FindCoordinatorRequest {
        key: id.into(),
        key_type: KEY_TYPE_TRANSACTION,
        ..Default::default()
    };
    let reply = cluster.call_any(&request, FIND_VERSIONS).await?;
    let found: FindCoordinatorResponse<'_> = reply.decode()?;
    let message = found.error_message.as_deref();
    ClientError::check(format!("coordinator of {id}"), found.error_code, message)?;
    if !cluster.knows(found.node_id) {
        cluster.metadata(Some(&[])).await?;
    }
    Ok(found.node_id)
}

async fn leader(cluster: &mut Cluster, topic: &str, index: i32) -> Result<i32, ClientError> {
    let found = cluster.topic(topic).await?;
    let leader = found.partitions.iter().find(|partition| partition.index == index);
    let leader = leader.and_then(|partition| partition.leader);
    let unknown = || {
        let code = ErrorCode::UnknownTopicOrPartition.code();
        ClientError::broker(format!("{topic}-{index}"), code, None)
    };
    leader.ok_or_else(unknown)
}
