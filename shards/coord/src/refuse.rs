//! The answer to a request that no coordinator looked at: it is loading, has moved, or failed.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::consumer_group_describe_response as consumers;
use wire::messages::leave_group_response::MemberResponse;
use wire::messages::offset_commit_response as committed;
use wire::messages::offset_fetch_response::OffsetFetchResponseGroup;
use wire::messages::txn_offset_commit_response as txn_committed;
use wire::messages::{delete_groups_response, describe_groups_response};
use wire::{Text, Uuid};

use crate::classic::{join_error, sync_error};
use crate::request::{Reply, Request};

fn text(text: &str) -> Text<'static> {
    String::from(text).into()
}

impl Request<'_, '_> {
    /// The group a request is for; none for a list of all.
    pub fn group(&self) -> Option<&str> {
        Some(match self {
            Request::JoinGroup(request) => &request.group_id,
            Request::SyncGroup(request) => &request.group_id,
            Request::Heartbeat(request) => &request.group_id,
            Request::LeaveGroup(request) => &request.group_id,
            Request::OffsetCommit(request) => &request.group_id,
            Request::TxnOffsetCommit(request) => &request.group_id,
            Request::OffsetFetch { group, .. } => &group.group_id,
            Request::OffsetDelete(request) => &request.group_id,
            Request::DescribeGroup(id)
            | Request::DeleteGroup(id)
            | Request::ConsumerGroupDescribe(id) => id,
            Request::ConsumerGroupHeartbeat(request) => &request.group_id,
            Request::ListGroups(_) => return None,
        })
    }

    /// Refuses the whole request, in the shape that its API has for that.
    pub fn refused(&self, code: ErrorCode, version: i16) -> Reply {
        let error_code = code.code();
        match self {
            Request::JoinGroup(request) => join_error(&request.member_id, code, version),
            Request::SyncGroup(_) => sync_error(code),
            Request::Heartbeat(_) => {
                // A member need not join again because its coordinator moved.
                let loading = code == ErrorCode::CoordinatorLoadInProgress;
                let error_code = if loading { ErrorCode::None.code() } else { error_code };
                Reply::Heartbeat(m::HeartbeatResponse { throttle_time_ms: 0, error_code })
            }
            Request::LeaveGroup(_) => Reply::LeaveGroup(m::LeaveGroupResponse {
                error_code,
                members: Vec::<MemberResponse<'_>>::new().into(),
                ..Default::default()
            }),
            Request::OffsetCommit(request) => refused_commit(request, error_code),
            Request::TxnOffsetCommit(request) => refused_txn_commit(request, error_code),
            Request::OffsetFetch { group, .. } => Reply::OffsetFetch(OffsetFetchResponseGroup {
                group_id: text(&group.group_id),
                topics: Default::default(),
                error_code,
            }),
            Request::OffsetDelete(_) => {
                Reply::OffsetDelete(m::OffsetDeleteResponse { error_code, ..Default::default() })
            }
            Request::DescribeGroup(id) => {
                Reply::DescribeGroup(describe_groups_response::DescribedGroup {
                    group_id: text(id),
                    error_code,
                    ..Default::default()
                })
            }
            Request::ListGroups(_) => {
                Reply::ListGroups(m::ListGroupsResponse { error_code, ..Default::default() })
            }
            Request::DeleteGroup(id) => {
                Reply::DeleteGroup(delete_groups_response::DeletableGroupResult {
                    group_id: text(id),
                    error_code,
                    error_message: None,
                })
            }
            Request::ConsumerGroupHeartbeat(_) => {
                Reply::ConsumerGroupHeartbeat(m::ConsumerGroupHeartbeatResponse {
                    error_code,
                    error_message: Some(code.message().into()),
                    ..Default::default()
                })
            }
            Request::ConsumerGroupDescribe(id) => {
                Reply::ConsumerGroupDescribe(consumers::DescribedGroup {
                    group_id: text(id),
                    error_code,
                    ..Default::default()
                })
            }
        }
    }
}

fn refused_commit(request: &m::OffsetCommitRequest<'_>, error_code: i16) -> Reply {
    let topics = request.topics.iter().map(|topic| committed::OffsetCommitResponseTopic {
        name: text(&topic.name),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|part| committed::OffsetCommitResponsePartition {
                partition_index: part.partition_index,
                error_code,
            })
            .collect(),
    });
    let topics = topics.collect();
    Reply::OffsetCommit(m::OffsetCommitResponse { throttle_time_ms: 0, topics })
}

fn refused_txn_commit(request: &m::TxnOffsetCommitRequest<'_>, error_code: i16) -> Reply {
    let topics = request.topics.iter().map(|topic| txn_committed::TxnOffsetCommitResponseTopic {
        name: text(&topic.name),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|part| txn_committed::TxnOffsetCommitResponsePartition {
                partition_index: part.partition_index,
                error_code,
            })
            .collect(),
    });
    let topics = topics.collect();
    Reply::TxnOffsetCommit(m::TxnOffsetCommitResponse { throttle_time_ms: 0, topics })
}

/// The groups that an OffsetFetch asks for, in the shape of version 8 and later.
pub fn split_fetch<'a>(
    request: &m::OffsetFetchRequest<'a>,
    version: i16,
) -> Vec<m::offset_fetch_request::OffsetFetchRequestGroup<'a>> {
    use m::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    if version >= FETCH_GROUPS_FROM {
        return request.groups.to_vec();
    }
    let topics = request.topics.as_ref().map(|topics| {
        let topics = topics.iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            topic_id: Uuid::ZERO,
            partition_indexes: topic.partition_indexes,
        });
        topics.collect()
    });
    let group_id = request.group_id.clone();
    vec![OffsetFetchRequestGroup { group_id, member_id: None, member_epoch: -1, topics }]
}

/// The response made of the groups' answers. Before version 8 there is one, and before version 2
/// its error stands at each partition that was asked for.
pub fn join_fetch(
    request: &m::OffsetFetchRequest<'_>,
    groups: Vec<OffsetFetchResponseGroup<'static>>,
    version: i16,
) -> m::OffsetFetchResponse<'static> {
    use m::offset_fetch_response::{OffsetFetchResponsePartition, OffsetFetchResponseTopic};
    if version >= FETCH_GROUPS_FROM {
        return m::OffsetFetchResponse { groups: groups.into(), ..Default::default() };
    }
    let Some(group) = groups.into_iter().next() else { return Default::default() };
    if version < FETCH_ERROR_FROM && group.error_code != 0 {
        let error_code = group.error_code;
        let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
            name: text(&topic.name),
            partitions: topic
                .partition_indexes
                .iter()
                .map(|partition_index| OffsetFetchResponsePartition {
                    partition_index,
                    committed_offset: -1,
                    committed_leader_epoch: -1,
                    metadata: Some("".into()),
                    error_code,
                })
                .collect(),
        });
        let topics = topics.collect();
        return m::OffsetFetchResponse { topics, ..Default::default() };
    }
    let topics = group.topics.into_vec().into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_vec()
            .into_iter()
            .map(|part| OffsetFetchResponsePartition {
                partition_index: part.partition_index,
                committed_offset: part.committed_offset,
                committed_leader_epoch: part.committed_leader_epoch,
                metadata: part.metadata,
                error_code: part.error_code,
            })
            .collect(),
    });
    m::OffsetFetchResponse {
        topics: topics.collect(),
        error_code: group.error_code,
        ..Default::default()
    }
}

/// From these versions on an OffsetFetch has an error of its own, and several groups.
const FETCH_ERROR_FROM: i16 = 2;
const FETCH_GROUPS_FROM: i16 = 8;
