//! ListOffsets: where partitions begin and end, and what stood there at a time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use wire::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::Cluster;
use super::error::ClientError;
use super::metadata::TopicMetadata;

const VERSIONS: RangeInclusive<i16> = 1..=9;

/// The special times of the protocol.
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;

/// Only what is decided, or everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    Uncommitted,
    Committed,
}

impl Isolation {
    pub fn code(self) -> i8 {
        match self {
            Isolation::Uncommitted => 0,
            Isolation::Committed => 1,
        }
    }
}

/// The offset at `time` in each of `partitions`; `None` where no record is that young. Leaders are
/// looked up anew, so that a retry follows a move.
pub async fn offsets_at(
    cluster: &mut Cluster,
    topic: &str,
    partitions: &[i32],
    time: i64,
    isolation: Isolation,
) -> Result<BTreeMap<i32, Option<i64>>, ClientError> {
    let metadata = cluster.topic(topic).await?;
    let mut found = BTreeMap::new();
    for (leader, partitions) in by_leader(&metadata, partitions)? {
        let wanted = partitions.iter().map(|&partition_index| ListOffsetsPartition {
            partition_index,
            timestamp: time,
            ..ListOffsetsPartition::default()
        });
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: isolation.code(),
            topics: vec![ListOffsetsTopic { name: topic.into(), partitions: wanted.collect() }]
                .into(),
            ..ListOffsetsRequest::default()
        };
        let reply = cluster.call_node(leader, &request, VERSIONS).await?;
        let response: ListOffsetsResponse<'_> = reply.decode()?;
        for part in response.topics.iter().flat_map(|topic| topic.partitions.to_vec()) {
            let what = format!("offsets of {topic}-{}", part.partition_index);
            ClientError::check(what, part.error_code, None)?;
            found.insert(part.partition_index, Some(part.offset).filter(|&offset| offset >= 0));
        }
    }
    Ok(found)
}

/// Partitions by the node that leads them; one without a leader is an error to retry.
pub fn by_leader(
    topic: &TopicMetadata,
    partitions: &[i32],
) -> Result<BTreeMap<i32, Vec<i32>>, ClientError> {
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for &index in partitions {
        let what = || format!("{}-{index}", topic.name);
        let partition = topic.partition(index).ok_or_else(|| {
            let code = wire::ErrorCode::UnknownTopicOrPartition.code();
            ClientError::broker(what(), code, Some("the topic has no such partition"))
        })?;
        let leader = partition.leader.ok_or_else(|| {
            let code = wire::ErrorCode::LeaderNotAvailable.code();
            ClientError::broker(what(), code, None)
        })?;
        by_leader.entry(leader).or_default().push(index);
    }
    Ok(by_leader)
}
