//! Consumer groups: finding their coordinator, listing, describing and deleting them, and their
//! committed offsets. One function a request; retries and printing are the caller's.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest,
    DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use wire::{ErrorCode, Reader};

use super::Cluster;
use super::error::ClientError;

/// From version 4 on many are asked at once.
const FIND_VERSIONS: RangeInclusive<i16> = 0..=3;
const LIST_VERSIONS: RangeInclusive<i16> = 0..=5;
const DESCRIBE_VERSIONS: RangeInclusive<i16> = 0..=5;
const DESCRIBE_CONSUMER_VERSIONS: RangeInclusive<i16> = 0..=1;
const DELETE_VERSIONS: RangeInclusive<i16> = 0..=3;
/// From version 8 on many groups are asked at once, from 10 on topics by id.
const FETCH_VERSIONS: RangeInclusive<i16> = 2..=7;
const COMMIT_VERSIONS: RangeInclusive<i16> = 2..=9;

/// A topic and the number of a partition.
pub type TopicPartition = (String, i32);

/// A line of a list of groups; what an old broker does not tell is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub name: String,
    pub kind: String,
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub kind: &'static str,
    pub state: String,
    pub coordinator: i32,
    pub members: Vec<DescribedMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    pub id: String,
    /// Of a static member.
    pub instance: Option<String>,
    pub client: String,
    pub host: String,
    pub partitions: Vec<TopicPartition>,
}

/// On whose behalf offsets are committed; nobody's from outside the group.
#[derive(Debug, Clone, Copy)]
pub struct Committer<'a> {
    pub member: &'a str,
    pub epoch: i32,
}

pub const NOBODY: Committer<'static> = Committer { member: "", epoch: -1 };

/// The node that coordinates a group.
pub async fn coordinator(cluster: &mut Cluster, group: &str) -> Result<i32, ClientError> {
    let request = FindCoordinatorRequest { key: group.into(), ..Default::default() };
    let reply = cluster.call_any(&request, FIND_VERSIONS).await?;
    let found: FindCoordinatorResponse<'_> = reply.decode()?;
    let message = found.error_message.as_deref();
    ClientError::check(format!("coordinator of {group}"), found.error_code, message)?;
    if !cluster.knows(found.node_id) {
        cluster.metadata(Some(&[])).await?;
    }
    Ok(found.node_id)
}

/// Every group of the cluster, by name.
pub async fn list(cluster: &mut Cluster) -> Result<Vec<Listed>, ClientError> {
    let nodes: Vec<i32> = cluster.metadata(Some(&[])).await?.nodes.keys().copied().collect();
    let mut groups = Vec::new();
    for node in nodes {
        let reply = cluster.call_node(node, &ListGroupsRequest::default(), LIST_VERSIONS).await?;
        let listed: ListGroupsResponse<'_> = reply.decode()?;
        ClientError::check(format!("groups of node {node}"), listed.error_code, None)?;
        groups.extend(listed.groups.iter().map(|group| Listed {
            name: group.group_id.into_owned(),
            kind: group.group_type.into_owned(),
            state: group.group_state.into_owned(),
        }));
    }
    groups.sort();
    Ok(groups)
}

/// A group of either protocol.
pub async fn describe(cluster: &mut Cluster, group: &str) -> Result<Described, ClientError> {
    let node = coordinator(cluster, group).await?;
    match describe_consumer(cluster, node, group).await {
        Err(ClientError::Version { .. }) => {}
        Err(error) if matches!(error.code(), Some(NOT_THAT_KIND | UNSUPPORTED)) => {}
        described => return described,
    }
    let request = DescribeGroupsRequest { groups: vec![group.into()].into(), ..Default::default() };
    let reply = cluster.call_node(node, &request, DESCRIBE_VERSIONS).await?;
    let answer: DescribeGroupsResponse<'_> = reply.decode()?;
    let what = format!("group {group}");
    let Some(found) = answer.groups.iter().next() else {
        return Err(ClientError::broker(what, ErrorCode::GroupIdNotFound.code(), None));
    };
    ClientError::check(what.clone(), found.error_code, None)?;
    if found.group_state == DEAD {
        return Err(ClientError::broker(what, ErrorCode::GroupIdNotFound.code(), None));
    }
    let members = found.members.iter().map(|member| DescribedMember {
        id: member.member_id.to_string(),
        instance: member.group_instance_id.as_deref().map(str::to_owned),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
        partitions: assigned(&member.member_assignment).unwrap_or_default(),
    });
    Ok(Described {
        kind: "Classic",
        state: found.group_state.to_string(),
        coordinator: node,
        members: members.collect(),
    })
}

const NOT_THAT_KIND: ErrorCode = ErrorCode::GroupIdNotFound;
const UNSUPPORTED: ErrorCode = ErrorCode::UnsupportedVersion;
/// The state of a group that is not there.
const DEAD: &str = "Dead";

async fn describe_consumer(
    cluster: &mut Cluster,
    node: i32,
    group: &str,
) -> Result<Described, ClientError> {
    let request =
        ConsumerGroupDescribeRequest { group_ids: vec![group.into()].into(), ..Default::default() };
    let reply = cluster.call_node(node, &request, DESCRIBE_CONSUMER_VERSIONS).await?;
    let answer: ConsumerGroupDescribeResponse<'_> = reply.decode()?;
    let what = format!("group {group}");
    let Some(found) = answer.groups.iter().next() else {
        return Err(ClientError::broker(what, NOT_THAT_KIND.code(), None));
    };
    ClientError::check(what, found.error_code, found.error_message.as_deref())?;
    let members = found.members.iter().map(|member| {
        let topics = member.assignment.topic_partitions.to_vec();
        let partitions = topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| (topic.topic_name.to_string(), partition))
        });
        DescribedMember {
            id: member.member_id.to_string(),
            instance: member.instance_id.as_deref().map(str::to_owned),
            client: member.client_id.to_string(),
            host: member.client_host.to_string(),
            partitions: partitions.collect(),
        }
    });
    Ok(Described {
        kind: "Consumer",
        state: found.group_state.to_string(),
        coordinator: node,
        members: members.collect(),
    })
}

/// The partitions in an assignment of Kafka's own consumers; `None` if it is of another kind.
fn assigned(bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    let mut reader = Reader::new(bytes);
    let _version = reader.i16().ok()?;
    let mut partitions = Vec::new();
    for _ in 0..reader.i32().ok()? {
        let topic = reader.nullable_text(false).ok()??.to_owned();
        for _ in 0..reader.i32().ok()? {
            partitions.push((topic.clone(), reader.i32().ok()?));
        }
    }
    partitions.sort();
    Some(partitions)
}

/// Everything that a group has committed.
pub async fn committed(
    cluster: &mut Cluster,
    group: &str,
) -> Result<BTreeMap<TopicPartition, i64>, ClientError> {
    let node = coordinator(cluster, group).await?;
    let request = OffsetFetchRequest { group_id: group.into(), topics: None, ..Default::default() };
    let reply = cluster.call_node(node, &request, FETCH_VERSIONS).await?;
    let fetched: OffsetFetchResponse<'_> = reply.decode()?;
    let what = format!("offsets of group {group}");
    ClientError::check(what.clone(), fetched.error_code, None)?;
    let mut offsets = BTreeMap::new();
    for topic in fetched.topics.iter() {
        for partition in topic.partitions.iter() {
            ClientError::check(what.clone(), partition.error_code, None)?;
            if partition.committed_offset >= 0 {
                let key = (topic.name.to_string(), partition.partition_index);
                offsets.insert(key, partition.committed_offset);
            }
        }
    }
    Ok(offsets)
}

/// Commits offsets of one topic.
pub async fn commit(
    cluster: &mut Cluster,
    group: &str,
    who: Committer<'_>,
    topic: &str,
    offsets: &BTreeMap<i32, i64>,
) -> Result<(), ClientError> {
    let node = coordinator(cluster, group).await?;
    let partitions =
        offsets.iter().map(|(&partition_index, &committed_offset)| OffsetCommitRequestPartition {
            partition_index,
            committed_offset,
            committed_metadata: Some("".into()),
            ..Default::default()
        });
    let topic = OffsetCommitRequestTopic {
        name: topic.into(),
        partitions: partitions.collect(),
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: who.epoch,
        member_id: who.member.into(),
        topics: vec![topic].into(),
        ..Default::default()
    };
    let reply = cluster.call_node(node, &request, COMMIT_VERSIONS).await?;
    let answer: OffsetCommitResponse<'_> = reply.decode()?;
    for topic in answer.topics.iter() {
        for partition in topic.partitions.iter() {
            let what = format!("offset of {}-{}", topic.name, partition.partition_index);
            ClientError::check(what, partition.error_code, None)?;
        }
    }
    Ok(())
}

pub async fn delete(cluster: &mut Cluster, group: &str) -> Result<(), ClientError> {
    let node = coordinator(cluster, group).await?;
    let request = DeleteGroupsRequest { groups_names: vec![group.into()].into() };
    let reply = cluster.call_node(node, &request, DELETE_VERSIONS).await?;
    let answer: DeleteGroupsResponse<'_> = reply.decode()?;
    for result in answer.results.iter() {
        let what = format!("group {group}");
        ClientError::check(what, result.error_code, result.error_message.as_deref())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_of_kafkas_consumers_are_read_and_others_are_not() {
        let bytes = [0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0];
        let expected = vec![("t".to_owned(), 3), ("t".to_owned(), 7)];
        assert_eq!(assigned(&bytes), Some(expected));
        assert_eq!(assigned(&bytes[..12]), None);
        assert_eq!(assigned(b""), None);
    }
}
