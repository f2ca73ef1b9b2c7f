//! The Kafka APIs of a shard: which versions it speaks, and the way from a frame to its handler.
//!
//! One file an API (or a pair that belongs together). The table below is the only place that says
//! what is supported: ApiVersions answers from it, requests are checked against it and
//! `docs/protocol.md` is generated from it.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::frame::{self, RequestHeader};
use wire::{ApiKey, Message, Reader};

use crate::frame_reader::{Grant, SMALL_FRAME_BYTES};
use crate::reply::{Close, Handled, Pending, Reply};
use crate::shard::Shard;

mod aborted;
mod add_to_txn;
mod alter_configs;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod api_versions;
mod consumer_group_heartbeat;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod end_txn;
mod fetch;
mod fetch_round;
mod find_coordinator;
mod init_producer_id;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod membership;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
pub(crate) mod produce;
mod too_many;
mod txn_offset_commit;
mod update_features;
mod write_txn_markers;

/// One API and the versions that work.
#[derive(Clone, Copy, Debug)]
pub struct ApiSupport {
    pub key: ApiKey,
    pub min: i16,
    pub max: i16,
    /// What ApiVersions says the lowest version is: librdkafka before 2.11 switches compression
    /// off unless it sees Produce 0 there (KAFKA-18659), though versions 0 to 2 are refused.
    pub advertised_min: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> ApiSupport {
    ApiSupport { key, min, max, advertised_min: min }
}

static TABLE: [ApiSupport; 43] = [
    ApiSupport { key: ApiKey::Produce, min: 3, max: 13, advertised_min: 0 },
    api(ApiKey::Fetch, 4, 18),
    api(ApiKey::ListOffsets, 1, 11),
    api(ApiKey::Metadata, 0, 13),
    api(ApiKey::OffsetCommit, 2, 10),
    api(ApiKey::OffsetFetch, 1, 10),
    api(ApiKey::FindCoordinator, 0, 6),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::ApiVersions, 0, 5),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4),
    api(ApiKey::AddPartitionsToTxn, 0, 5),
    api(ApiKey::AddOffsetsToTxn, 0, 4),
    api(ApiKey::EndTxn, 0, 5),
    api(ApiKey::WriteTxnMarkers, 1, 2),
    api(ApiKey::TxnOffsetCommit, 0, 6),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::AlterReplicaLogDirs, 1, 2),
    api(ApiKey::DescribeLogDirs, 1, 5),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 3),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::AlterPartitionReassignments, 0, 1),
    api(ApiKey::ListPartitionReassignments, 0, 0),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::UpdateFeatures, 0, 2),
    api(ApiKey::DescribeCluster, 0, 2),
    api(ApiKey::DescribeProducers, 0, 0),
    api(ApiKey::DescribeTransactions, 0, 0),
    api(ApiKey::ListTransactions, 0, 2),
    api(ApiKey::ConsumerGroupHeartbeat, 0, 1),
    api(ApiKey::ConsumerGroupDescribe, 0, 1),
    api(ApiKey::ListConfigResources, 0, 1),
    api(ApiKey::DescribeTopicPartitions, 0, 0),
];

/// Every API that a shard serves.
pub fn api_table() -> &'static [ApiSupport] {
    &TABLE
}

fn support(key: ApiKey) -> Option<&'static ApiSupport> {
    TABLE.iter().find(|support| support.key == key)
}

/// A permit for memory that ends with the answer, or earlier.
pub(crate) type SharedPermit = Rc<Cell<Option<Grant>>>;

/// A request whose header was understood; its body is decoded by the handler, from the frame.
pub(crate) struct Request {
    pub shard: Rc<Shard>,
    pub api: ApiKey,
    pub version: i16,
    pub correlation_id: i32,
    /// The client's address.
    pub peer: SocketAddr,
    /// Its part of the shard's memory for requests, if it may have to wait for long.
    memory: Option<SharedPermit>,
    /// False for an ApiVersions request of a version that is not served.
    pub version_is_supported: bool,
    frame: Bytes,
    body_at: usize,
}

/// A request that names as many topics as one client uses, and not all that there are.
const FEW_TOPICS_BYTES: usize = 2 << 10;

/// Their answers may be long.
const LISTING: [ApiKey; 11] = [
    ApiKey::ListTransactions,
    ApiKey::DescribeTransactions,
    ApiKey::ListGroups,
    ApiKey::DescribeGroups,
    ApiKey::ConsumerGroupDescribe,
    ApiKey::DescribeProducers,
    ApiKey::DescribeConfigs,
    ApiKey::ListConfigResources,
    ApiKey::DescribeLogDirs,
    ApiKey::DescribeTopicPartitions,
    ApiKey::ListPartitionReassignments,
];

impl Request {
    /// Reads the header and checks api and version against the table.
    ///
    /// # Errors
    /// The connection has to close: the header is malformed, or the api or its version is not
    /// served (only ApiVersions has an answer for that case).
    pub fn parse(shard: Rc<Shard>, frame: Bytes, peer: SocketAddr) -> Result<Self, Close> {
        let mut reader = Reader::new(&frame);
        let header: RequestHeader<'_> = frame::decode_request_header(&mut reader)?;
        let (api_key, version) = (header.api_key, header.api_version);
        let correlation_id = header.correlation_id;
        let unsupported = Close::Unsupported { api_key, api_version: version };
        let Some(api) = ApiKey::from_code(api_key) else { return Err(unsupported) };
        let Some(support) = support(api) else { return Err(unsupported) };
        let version_is_supported = (support.min..=support.max).contains(&version);
        if !version_is_supported && api != ApiKey::ApiVersions {
            return Err(unsupported);
        }
        let body_at = frame.len() - reader.remaining();
        Ok(Request {
            shard,
            api,
            version,
            correlation_id,
            peer,
            memory: None,
            version_is_supported,
            frame,
            body_at,
        })
    }

    /// Whether the answer may have to wait for other clients.
    pub fn may_wait_long(&self) -> bool {
        matches!(self.api, ApiKey::JoinGroup | ApiKey::SyncGroup)
    }

    /// Whether the answer may be long though the request is short, or is so because the request is. One
    /// that may have to wait for others is not held up with the long ones.
    pub fn is_answered_at_length(&self) -> bool {
        if self.may_wait_long() || matches!(self.api, ApiKey::Produce | ApiKey::Fetch) {
            return false;
        }
        // Who changes something may wait for a disk or the controller, and is answered as long as it asks.
        if self.frame.len() > SMALL_FRAME_BYTES {
            return self.is_lookup();
        }
        match self.api {
            // A topic's name or id may stand for thousands of partitions.
            ApiKey::Metadata => metadata::asks_for_all(self) || self.frame.len() > FEW_TOPICS_BYTES,
            ApiKey::OffsetFetch => offset_fetch::asks_for_all(self),
            api => LISTING.contains(&api),
        }
    }

    /// Whether it only looks up what there is, and perhaps much of it.
    pub fn is_lookup(&self) -> bool {
        match self.api {
            ApiKey::Metadata
            | ApiKey::OffsetFetch
            | ApiKey::ListOffsets
            | ApiKey::OffsetForLeaderEpoch => true,
            api => LISTING.contains(&api),
        }
    }

    /// Gives the request the permit to hold its memory; it is shared with who sends the answer.
    pub fn share_memory(&mut self, permit: SharedPermit) {
        self.memory = Some(permit);
    }

    /// Gives the memory of the request back. Its body is gone then; what is left is for the answer.
    pub fn let_go(&mut self) {
        self.frame = Bytes::new();
        self.body_at = 0;
        if let Some(permit) = self.memory.take() {
            permit.take();
        }
    }

    /// What the client calls itself; empty if it does not.
    pub fn client_id(&self) -> Cow<'_, str> {
        let header = frame::decode_request_header(&mut Reader::new(&self.frame));
        header.ok().and_then(|header| header.client_id).unwrap_or_default()
    }

    /// Decodes the body; it borrows from the frame.
    pub fn body<'a, M: Message<'a>>(&'a self) -> Result<M, Close> {
        let bytes = self.frame.get(self.body_at..).unwrap_or_default();
        Ok(M::decode(&mut Reader::new(bytes), self.version)?)
    }

    /// Encodes the response.
    pub fn reply<'a, M: Message<'a>>(&self, response: &M) -> Handled {
        self.reply_with_records(response, Vec::new())
    }

    /// Encodes a response whose `Records::Detached` fields are sent as the given pieces, in order.
    pub fn reply_with_records<'a, M: Message<'a>>(
        &self,
        response: &M,
        records: Vec<Vec<Bytes>>,
    ) -> Handled {
        let mut writer = frame::begin_response(self.api, self.version, self.correlation_id);
        response.encode(&mut writer, self.version)?;
        let output = frame::finish_response(writer);
        let mut rest: Bytes = output.bytes.into();
        if records.is_empty() {
            return Ok(Reply::encoded(rest));
        }
        let encoded = rest.len();
        assert_eq!(output.splices.len(), records.len(), "one place in the response a field");
        let mut pieces: SmallVec<[Bytes; 4]> = SmallVec::new();
        let mut taken = 0;
        for (splice, records) in output.splices.iter().zip(records) {
            assert_eq!(splice.len, records.iter().map(Bytes::len).sum::<usize>());
            pieces.push(rest.split_to(splice.at - taken));
            taken = splice.at;
            pieces.extend(records);
        }
        if !rest.is_empty() {
            pieces.push(rest);
        }
        Ok(Reply::Send { pieces, encoded })
    }
}

/// Takes a request in, in the order of arrival. A produce is appended before this returns;
/// everything else takes effect when its turn to answer comes.
pub(crate) async fn take(request: Request) -> Result<Pending, Close> {
    let whole = too_many::Whole::of(&request);
    macro_rules! later {
        ($handler:path) => {
            Ok(Pending::Later(Box::pin(async move { whole.or_refused($handler(request).await) })))
        };
    }
    request.shard.metrics.traffic.note_request(request.api);
    match request.api {
        ApiKey::Produce => produce::take(request).await,
        ApiKey::Fetch => later!(fetch::handle),
        ApiKey::ListOffsets => later!(list_offsets::handle),
        ApiKey::Metadata => later!(metadata::handle),
        ApiKey::FindCoordinator => later!(find_coordinator::handle),
        ApiKey::OffsetCommit => later!(offset_commit::handle),
        ApiKey::OffsetFetch => later!(offset_fetch::handle),
        ApiKey::OffsetDelete => later!(offset_delete::handle),
        ApiKey::JoinGroup => later!(membership::handle_join),
        ApiKey::SyncGroup => later!(membership::handle_sync),
        ApiKey::Heartbeat => later!(membership::handle_heartbeat),
        ApiKey::LeaveGroup => later!(membership::handle_leave),
        ApiKey::ConsumerGroupHeartbeat => later!(consumer_group_heartbeat::handle),
        ApiKey::ConsumerGroupDescribe => later!(describe_groups::handle_consumer),
        ApiKey::DescribeGroups => later!(describe_groups::handle),
        ApiKey::ListGroups => later!(list_groups::handle),
        ApiKey::DeleteGroups => later!(delete_groups::handle),
        ApiKey::ApiVersions => Ok(Pending::Ready(api_versions::handle(&request))),
        ApiKey::CreateTopics => later!(create_topics::handle),
        ApiKey::DeleteTopics => later!(delete_topics::handle),
        ApiKey::DeleteRecords => later!(delete_records::handle),
        ApiKey::InitProducerId => later!(init_producer_id::handle),
        ApiKey::OffsetForLeaderEpoch => later!(offset_for_leader_epoch::handle),
        ApiKey::AddPartitionsToTxn => later!(add_to_txn::handle_partitions),
        ApiKey::AddOffsetsToTxn => later!(add_to_txn::handle_offsets),
        ApiKey::EndTxn => later!(end_txn::handle),
        ApiKey::TxnOffsetCommit => later!(txn_offset_commit::handle),
        ApiKey::DescribeTransactions => later!(list_transactions::handle_describe),
        ApiKey::ListTransactions => later!(list_transactions::handle),
        ApiKey::WriteTxnMarkers => later!(write_txn_markers::handle),
        ApiKey::DescribeProducers => later!(describe_producers::handle),
        ApiKey::DescribeConfigs => later!(describe_configs::handle),
        ApiKey::AlterConfigs => later!(alter_configs::handle_replace),
        ApiKey::IncrementalAlterConfigs => later!(alter_configs::handle_incremental),
        ApiKey::AlterReplicaLogDirs => later!(alter_replica_log_dirs::handle),
        ApiKey::DescribeLogDirs => later!(describe_log_dirs::handle),
        ApiKey::AlterPartitionReassignments => later!(alter_partition_reassignments::handle),
        ApiKey::CreatePartitions => later!(create_partitions::handle),
        ApiKey::ListPartitionReassignments => later!(list_partition_reassignments::handle),
        ApiKey::UpdateFeatures => later!(update_features::handle),
        ApiKey::DescribeCluster => later!(describe_cluster::handle),
        ApiKey::ListConfigResources => later!(list_config_resources::handle),
        ApiKey::DescribeTopicPartitions => later!(describe_topic_partitions::handle),
        _ => Err(Close::Unsupported { api_key: request.api.code(), api_version: request.version }),
    }
}

/// Items (partitions, topics, resources) that one request may name. An answer takes a hundred times
/// the few bytes that name an item, so a frame's size alone is no bound for the memory.
const REQUEST_ITEMS_MAX: usize = 200_000;
/// The same where every item is answered with all its settings.
const DESCRIBED_ITEMS_MAX: usize = 10_000;

/// Items of a request that names them in lists by topic, or in others: each list is one as well, as
/// an empty one is answered too.
fn items_in(lists: impl Iterator<Item = usize>) -> usize {
    lists.fold(0, |items, list| items.saturating_add(list).saturating_add(1))
}

/// # Errors
/// The request names more than its answer could hold: it is refused as a whole, or the connection
/// has to close (`too_many`).
fn check_items(items: usize, most: usize) -> Result<(), Close> {
    if items > most { Err(Close::TooManyItems { items, most }) } else { Ok(()) }
}

/// A coordinator answers a request with its own kind.
fn other_kind(answer: &coord::Reply) -> Handled {
    unreachable!("a coordinator answered with another kind: {answer:?}")
}

/// The same for a coordinator of transactions.
fn other_transaction_kind(answer: &coord::txn::TxnReply) -> Handled {
    unreachable!("a coordinator answered with another kind: {answer:?}")
}

/// A name in a response that was copied out of the frame or the image.
pub(crate) fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}
