//! Group requests that are short to write, in the versions that current clients use.

#![allow(dead_code, reason = "each test file uses its own part")]

use wire::messages as m;
use wire::messages::{
    offset_commit_request as commit, offset_fetch_request as fetch, sync_group_request as sync,
};
use wire::{ApiKey, Uuid};

use crate::response;
use crate::support::{Client, Gone};

response!(FindCoordinator, FindCoordinatorResponse, borrows);
response!(JoinGroup, JoinGroupResponse, borrows);
response!(SyncGroup, SyncGroupResponse, borrows);
response!(Heartbeat, HeartbeatResponse);
response!(LeaveGroup, LeaveGroupResponse, borrows);
response!(OffsetCommit, OffsetCommitResponse, borrows);
response!(OffsetFetch, OffsetFetchResponse, borrows);
response!(OffsetDelete, OffsetDeleteResponse, borrows);
response!(DescribeGroups, DescribeGroupsResponse, borrows);
response!(ListGroups, ListGroupsResponse, borrows);
response!(DeleteGroups, DeleteGroupsResponse, borrows);
response!(ConsumerHeartbeat, ConsumerGroupHeartbeatResponse, borrows);
response!(ConsumerDescribe, ConsumerGroupDescribeResponse, borrows);

use m::{
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, DeleteGroupsResponse,
    DescribeGroupsResponse, FindCoordinatorResponse, HeartbeatResponse, JoinGroupResponse,
    LeaveGroupResponse, ListGroupsResponse, OffsetCommitResponse, OffsetDeleteResponse,
    OffsetFetchResponse, SyncGroupResponse,
};

/// Errors that a client answers by asking again.
pub const LOADING: i16 = 14;
pub const NOT_COORDINATOR: i16 = 16;

/// A member of a classic group.
pub struct Member {
    pub id: String,
    pub generation: i32,
    pub leader: String,
    /// As the leader is told them.
    pub members: Vec<String>,
}

impl Client {
    /// The node of a group's coordinator.
    pub async fn coordinator(&mut self, group: &str) -> Result<(i16, i32), Gone> {
        let request = m::FindCoordinatorRequest {
            coordinator_keys: vec![group.into()].into(),
            ..Default::default()
        };
        let found: FindCoordinatorResponse<'static> =
            self.call::<_, FindCoordinator>(ApiKey::FindCoordinator, 6, &request).await?;
        let node = found.coordinators.first().ok_or(Gone("no coordinator".to_owned()))?;
        Ok((node.error_code, node.node_id))
    }

    /// Waits until the coordinators of a shard have read their logs.
    pub async fn groups_loaded(&mut self) -> Result<(), Gone> {
        while self.list_groups().await?.0 == LOADING {
            reactor::sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Error, and names with states.
    pub async fn list_groups(&mut self) -> Result<(i16, Vec<(String, String)>), Gone> {
        let request = m::ListGroupsRequest::default();
        let listed: ListGroupsResponse<'static> =
            self.call::<_, ListGroups>(ApiKey::ListGroups, 5, &request).await?;
        let groups = listed.groups.iter();
        let named = groups.map(|it| (it.group_id.to_string(), it.group_state.to_string()));
        Ok((listed.error_code, named.collect()))
    }

    /// Sends a join without waiting for its answer.
    pub async fn send_join(&mut self, group: &str, member: &str) -> Result<(), Gone> {
        self.send(ApiKey::JoinGroup, 9, &join_request(group, member, b"metadata")).await
    }

    /// The same with a subscription of that many bytes.
    pub async fn send_large_join(
        &mut self,
        group: &str,
        member: &str,
        bytes: usize,
    ) -> Result<(), Gone> {
        let metadata = vec![0; bytes];
        self.send(ApiKey::JoinGroup, 9, &join_request(group, member, &metadata)).await
    }

    pub async fn join(&mut self, group: &str, member: &str) -> Result<(i16, Member), Gone> {
        let request = join_request(group, member, b"metadata");
        let joined: JoinGroupResponse<'static> =
            self.call::<_, JoinGroup>(ApiKey::JoinGroup, 9, &request).await?;
        let member = Member {
            id: joined.member_id.to_string(),
            generation: joined.generation_id,
            leader: joined.leader.to_string(),
            members: joined.members.iter().map(|member| member.member_id.to_string()).collect(),
        };
        Ok((joined.error_code, member))
    }

    /// An id for a new member.
    pub async fn new_member(&mut self, group: &str) -> Result<String, Gone> {
        loop {
            match self.join(group, "").await? {
                (79, member) => return Ok(member.id),
                (LOADING, _) => reactor::sleep(std::time::Duration::from_millis(10)).await,
                (error, _) => return Err(Gone(format!("a join without id: {error}"))),
            }
        }
    }

    /// Error and assignment. The leader gives one to each member: its id.
    pub async fn sync(&mut self, group: &str, member: &Member) -> Result<(i16, Vec<u8>), Gone> {
        let assigned = member.members.iter().map(|id| sync::SyncGroupRequestAssignment {
            member_id: id.as_str().into(),
            assignment: id.as_bytes().into(),
        });
        let request = m::SyncGroupRequest {
            group_id: group.into(),
            generation_id: member.generation,
            member_id: member.id.as_str().into(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assigned.collect::<Vec<_>>().into(),
            ..Default::default()
        };
        let synced: SyncGroupResponse<'static> =
            self.call::<_, SyncGroup>(ApiKey::SyncGroup, 5, &request).await?;
        Ok((synced.error_code, synced.assignment.to_vec()))
    }

    pub async fn heartbeat(&mut self, group: &str, member: &Member) -> Result<i16, Gone> {
        let request = m::HeartbeatRequest {
            group_id: group.into(),
            generation_id: member.generation,
            member_id: member.id.as_str().into(),
            ..Default::default()
        };
        let beat: HeartbeatResponse =
            self.call::<_, Heartbeat>(ApiKey::Heartbeat, 4, &request).await?;
        Ok(beat.error_code)
    }

    pub async fn leave(&mut self, group: &str, member: &str) -> Result<i16, Gone> {
        let identity = m::leave_group_request::MemberIdentity {
            member_id: member.into(),
            ..Default::default()
        };
        let request = m::LeaveGroupRequest {
            group_id: group.into(),
            members: vec![identity].into(),
            ..Default::default()
        };
        let left: LeaveGroupResponse<'static> =
            self.call::<_, LeaveGroup>(ApiKey::LeaveGroup, 5, &request).await?;
        let of_member = left.members.first().map_or(0, |member| member.error_code);
        Ok(if left.error_code == 0 { of_member } else { left.error_code })
    }

    /// Commits one offset. Nobody's, if the member's id is empty.
    pub async fn commit(
        &mut self,
        group: &str,
        (member, epoch): (&str, i32),
        (topic, partition): (&str, i32),
        offset: i64,
    ) -> Result<i16, Gone> {
        let partition = commit::OffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: offset,
            committed_metadata: Some("m".into()),
            ..Default::default()
        };
        let topic = commit::OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![partition].into(),
            ..Default::default()
        };
        let request = m::OffsetCommitRequest {
            group_id: group.into(),
            generation_id_or_member_epoch: epoch,
            member_id: member.into(),
            topics: vec![topic].into(),
            ..Default::default()
        };
        let done: OffsetCommitResponse<'static> =
            self.call::<_, OffsetCommit>(ApiKey::OffsetCommit, 9, &request).await?;
        let topic = done.topics.first().ok_or(Gone("no topic".to_owned()))?;
        Ok(topic.partitions.to_vec().first().map_or(-1, |it| it.error_code))
    }

    /// Commits to the first partition of a topic, this often in one request with this metadata;
    /// gives the distinct errors.
    pub async fn commit_often(
        &mut self,
        group: &str,
        topic: &str,
        (times, metadata): (usize, &str),
    ) -> Result<Vec<i16>, Gone> {
        let partition = commit::OffsetCommitRequestPartition {
            committed_offset: 1,
            committed_metadata: Some(metadata.into()),
            ..Default::default()
        };
        let topic = commit::OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![partition; times].into(),
            ..Default::default()
        };
        let request = m::OffsetCommitRequest {
            group_id: group.into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let done: OffsetCommitResponse<'static> =
            self.call::<_, OffsetCommit>(ApiKey::OffsetCommit, 9, &request).await?;
        let partitions = done.topics.iter().flat_map(|topic| topic.partitions.to_vec());
        let mut errors: Vec<i16> = partitions.map(|partition| partition.error_code).collect();
        errors.dedup();
        Ok(errors)
    }

    /// All offsets of groups, in one request: how many of each the answer has.
    pub async fn committed_by(&mut self, groups: &[&str]) -> Result<Vec<(String, usize)>, Gone> {
        let asked = groups.iter().map(|group| fetch::OffsetFetchRequestGroup {
            group_id: (*group).into(),
            topics: None,
            ..Default::default()
        });
        let request = m::OffsetFetchRequest { groups: asked.collect(), ..Default::default() };
        let found: OffsetFetchResponse<'static> =
            self.call::<_, OffsetFetch>(ApiKey::OffsetFetch, 9, &request).await?;
        let counted = found.groups.iter().map(|group| {
            let offsets = group.topics.iter().map(|topic| topic.partitions.len()).sum();
            (group.group_id.to_string(), offsets)
        });
        Ok(counted.collect())
    }

    /// Deletes groups in one request: names and errors as they are answered.
    pub async fn delete_groups(&mut self, groups: &[&str]) -> Result<Vec<(String, i16)>, Gone> {
        let request = m::DeleteGroupsRequest {
            groups_names: groups.iter().map(|group| (*group).into()).collect(),
        };
        let done: DeleteGroupsResponse<'static> =
            self.call::<_, DeleteGroups>(ApiKey::DeleteGroups, 2, &request).await?;
        let results = done.results.iter();
        Ok(results.map(|result| (result.group_id.to_string(), result.error_code)).collect())
    }

    /// Commits an offset to each of these partitions, with metadata of this length; gives the
    /// distinct errors.
    pub async fn commit_many(
        &mut self,
        group: &str,
        topic_id: Uuid,
        (partitions, metadata_bytes): (i32, usize),
    ) -> Result<Vec<i16>, Gone> {
        let metadata = "m".repeat(metadata_bytes);
        let partitions = (0..partitions).map(|index| commit::OffsetCommitRequestPartition {
            partition_index: index,
            committed_offset: 1,
            committed_metadata: Some(metadata.as_str().into()),
            ..Default::default()
        });
        let topic = commit::OffsetCommitRequestTopic {
            topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        };
        let request = m::OffsetCommitRequest {
            group_id: group.into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let done: OffsetCommitResponse<'static> =
            self.call::<_, OffsetCommit>(ApiKey::OffsetCommit, 10, &request).await?;
        let mut errors: Vec<i16> = Vec::new();
        for topic in done.topics.iter() {
            errors.extend(topic.partitions.iter().map(|partition| partition.error_code));
        }
        errors.sort_unstable();
        errors.dedup();
        Ok(errors)
    }

    /// Error, and everything that a group has committed: topic, partition, offset.
    pub async fn committed(&mut self, group: &str) -> Result<(i16, Vec<(String, i32, i64)>), Gone> {
        let asked = fetch::OffsetFetchRequestGroup { group_id: group.into(), ..Default::default() };
        let asked = fetch::OffsetFetchRequestGroup { topics: None, ..asked };
        let request = m::OffsetFetchRequest { groups: vec![asked].into(), ..Default::default() };
        let fetched: OffsetFetchResponse<'static> =
            self.call::<_, OffsetFetch>(ApiKey::OffsetFetch, 9, &request).await?;
        let group = fetched.groups.first().ok_or(Gone("no group".to_owned()))?;
        let mut all = Vec::new();
        for topic in group.topics.iter() {
            for partition in topic.partitions.iter() {
                let (index, offset) = (partition.partition_index, partition.committed_offset);
                all.push((topic.name.to_string(), index, offset));
            }
        }
        all.sort();
        Ok((group.error_code, all))
    }

    pub async fn delete_group(&mut self, group: &str) -> Result<i16, Gone> {
        let request = m::DeleteGroupsRequest { groups_names: vec![group.into()].into() };
        let deleted: DeleteGroupsResponse<'static> =
            self.call::<_, DeleteGroups>(ApiKey::DeleteGroups, 3, &request).await?;
        Ok(deleted.results.first().map_or(-1, |result| result.error_code))
    }

    /// State, and members with their addresses.
    pub async fn describe_group(
        &mut self,
        group: &str,
    ) -> Result<(i16, String, Vec<(String, String)>), Gone> {
        let request =
            m::DescribeGroupsRequest { groups: vec![group.into()].into(), ..Default::default() };
        let described: DescribeGroupsResponse<'static> =
            self.call::<_, DescribeGroups>(ApiKey::DescribeGroups, 6, &request).await?;
        let group = described.groups.first().ok_or(Gone("no group".to_owned()))?;
        let members = group.members.iter();
        let members =
            members.map(|it| (it.member_id.to_string(), it.client_host.to_string())).collect();
        Ok((group.error_code, group.group_state.to_string(), members))
    }

    /// A heartbeat of a KIP-848 member; with topics it says everything anew.
    pub async fn consumer_heartbeat(
        &mut self,
        group: &str,
        (member, epoch): (&str, i32),
        topics: Option<&[&str]>,
        owned: Option<Vec<(Uuid, Vec<i32>)>>,
    ) -> Result<ConsumerGroupHeartbeatResponse<'static>, Gone> {
        use m::consumer_group_heartbeat_request::TopicPartitions;
        let owned = owned.map(|owned| {
            let topics = owned.into_iter().map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions: partitions.into(),
            });
            topics.collect::<Vec<_>>().into()
        });
        let names = |topics: &[&str]| {
            topics.iter().map(|topic| wire::Text::from(String::from(*topic))).collect::<Vec<_>>()
        };
        let request = m::ConsumerGroupHeartbeatRequest {
            group_id: group.into(),
            member_id: member.into(),
            member_epoch: epoch,
            rebalance_timeout_ms: if topics.is_some() { 60_000 } else { -1 },
            subscribed_topic_names: topics.map(|topics| names(topics).into()),
            topic_partitions: owned,
            ..Default::default()
        };
        self.call::<_, ConsumerHeartbeat>(ApiKey::ConsumerGroupHeartbeat, 1, &request).await
    }
}

fn join_request<'a>(
    group: &'a str,
    member: &'a str,
    metadata: &'a [u8],
) -> m::JoinGroupRequest<'a> {
    let protocol = m::join_group_request::JoinGroupRequestProtocol {
        name: "range".into(),
        metadata: metadata.into(),
    };
    m::JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member.into(),
        protocol_type: "consumer".into(),
        protocols: vec![protocol].into(),
        ..Default::default()
    }
}

/// Partitions of an assignment that a KIP-848 member was given.
pub fn assigned(beat: &ConsumerGroupHeartbeatResponse<'static>) -> Option<Vec<(Uuid, Vec<i32>)>> {
    let topics = &beat.assignment.as_ref()?.topic_partitions;
    let mut all: Vec<(Uuid, Vec<i32>)> =
        topics.iter().map(|topic| (topic.topic_id, topic.partitions.to_vec())).collect();
    all.sort();
    Some(all)
}
