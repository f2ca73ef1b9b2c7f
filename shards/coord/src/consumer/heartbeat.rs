//! ConsumerGroupHeartbeat: join, go on, or leave; all of the protocol is in this one request.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};

use super::member::{JOIN_EPOCH, LEAVE_EPOCH, Member, STATIC_LEAVE_EPOCH};
use super::{Opening, Update};
use crate::Name;
use crate::assign::Assignor;
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::parts::Parts;
use crate::request::{Decision, Reply};

/// From this version on members name themselves (KIP-1082).
const MEMBER_ID_FROM: i16 = 1;

type HeartbeatRequest<'a> = m::ConsumerGroupHeartbeatRequest<'a>;
type HeartbeatResponse = m::ConsumerGroupHeartbeatResponse<'static>;

impl Coordinator {
    pub(crate) fn consumer_group_heartbeat(
        &mut self,
        request: &HeartbeatRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let beaten =
            self.check_heartbeat(request, ctx.version).and_then(|()| match request.member_epoch {
                LEAVE_EPOCH | STATIC_LEAVE_EPOCH => self.leave_by_heartbeat(request, ctx, out),
                _ => self.beat(request, ctx, out),
            });
        let reply = beaten.unwrap_or_else(|refusal| m::ConsumerGroupHeartbeatResponse {
            error_code: refusal.code.code(),
            error_message: Some(
                refusal.message.unwrap_or_else(|| refusal.code.message().into()).into(),
            ),
            ..Default::default()
        });
        out.reply(ctx.token, Reply::ConsumerGroupHeartbeat(reply));
    }

    fn check_heartbeat(&self, request: &HeartbeatRequest<'_>, version: i16) -> Result<(), Refusal> {
        let invalid = |message: &str| Err(Refusal::new(ErrorCode::InvalidRequest, message));
        let empty = |text: &Option<wire::Text<'_>>| {
            text.as_deref().is_some_and(|text| text.trim().is_empty())
        };
        if request.group_id.trim().is_empty() {
            return invalid("GroupId can't be empty.");
        }
        if empty(&request.instance_id) {
            return invalid("InstanceId can't be empty.");
        }
        if empty(&request.rack_id) {
            return invalid("RackId can't be empty.");
        }
        let nameless = request.member_id.trim().is_empty();
        if nameless && version >= MEMBER_ID_FROM {
            return invalid("MemberId can't be empty.");
        }
        match request.member_epoch {
            JOIN_EPOCH if request.rebalance_timeout_ms == -1 => {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            JOIN_EPOCH if request.topic_partitions.as_ref().is_none_or(|it| !it.is_empty()) => {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            JOIN_EPOCH => {
                let names = request.subscribed_topic_names.is_some();
                let regex = request.subscribed_topic_regex.is_some();
                if !names && !regex {
                    return invalid(
                        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
                         (re-)joining.",
                    );
                }
            }
            STATIC_LEAVE_EPOCH if request.instance_id.is_none() => {
                return invalid("InstanceId can't be null.");
            }
            1.. | LEAVE_EPOCH | STATIC_LEAVE_EPOCH if nameless => {
                return invalid("MemberId can't be empty.");
            }
            1.. | LEAVE_EPOCH | STATIC_LEAVE_EPOCH => {}
            _ => return invalid("MemberEpoch is invalid."),
        }
        self.check_assignor(request)
    }

    fn check_assignor(&self, request: &HeartbeatRequest<'_>) -> Result<(), Refusal> {
        let Some(name) = request.server_assignor.as_deref() else { return Ok(()) };
        let known = Assignor::from_name(name).is_some_and(|it| self.config.assignors.contains(&it));
        if known {
            return Ok(());
        }
        let names: Vec<&str> = self.config.assignors.iter().map(|it| it.name()).collect();
        Err(Refusal::new(
            ErrorCode::UnsupportedAssignor,
            format!(
                "ServerAssignor {name} is not supported. Supported assignors: {}.",
                names.join(", ")
            ),
        ))
    }

    /// Joins, or goes on.
    fn beat(
        &mut self,
        request: &HeartbeatRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<HeartbeatResponse, Refusal> {
        let joins = request.member_epoch == JOIN_EPOCH;
        let group = &*request.group_id;
        let opening = self.opening(group, &request.member_id, joins, ctx)?;
        // Clients of version 0 leave it to us to name them.
        let member = match &*request.member_id {
            "" => Name::from(wire::Uuid::from_random(ctx.fresh_id.0).to_string()),
            id => Name::from(id),
        };
        let owned = request
            .topic_partitions
            .as_ref()
            .map(|owned| Parts::from_lists(owned.iter().map(|it| (it.topic_id, it.partitions))));
        let update = Update {
            group,
            member,
            epoch: request.member_epoch,
            joins,
            instance: request.instance_id.as_deref(),
            rack: request.rack_id.as_deref(),
            rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|ms| *ms != -1),
            topics: request
                .subscribed_topic_names
                .as_ref()
                .map(|names| names.iter().map(|name| Name::from(&*name)).collect()),
            regex: request.subscribed_topic_regex.as_deref(),
            assignor: request.server_assignor.as_deref(),
            owned,
            classic: None,
        };
        let updated = self.update_member(&update, opening, ctx, out)?;
        if updated.replaced.is_some() {
            self.downgrade(group, ctx.topics, ctx.now_ms, out);
        }
        let tells_all = request.rebalance_timeout_ms != -1
            && (request.subscribed_topic_names.is_some()
                || request.subscribed_topic_regex.is_some())
            && request.topic_partitions.is_some();
        let changed = updated.before.assigned.parts() != updated.after.assigned.parts();
        let with_assignment = joins || tells_all || changed;
        Ok(m::ConsumerGroupHeartbeatResponse {
            member_id: Some(String::from(&*updated.after.id).into()),
            member_epoch: updated.after.epoch,
            heartbeat_interval_ms: self.heartbeat_interval_ms(group),
            assignment: with_assignment.then(|| assignment(&updated.after)),
            ..Default::default()
        })
    }

    /// What has to happen for the group to be a consumer group, if it may become one.
    fn opening(
        &self,
        id: &str,
        member: &str,
        joins: bool,
        ctx: &Context<'_>,
    ) -> Result<Opening, Refusal> {
        match self.groups.get(id) {
            Some(Group::Consumer(_)) => Ok(Opening::AsItIs),
            None if joins => Ok(Opening::AsItIs),
            None => Err(Refusal::new(
                ErrorCode::GroupIdNotFound,
                format!("Consumer group {id} not found."),
            )),
            Some(Group::Classic(group)) if joins && group.is_empty() => Ok(Opening::InPlaceOfEmpty),
            Some(Group::Classic(group)) if joins => {
                let upgraded = self.upgraded(id, group, member, ctx)?;
                Ok(Opening::Upgrade(Box::new(upgraded)))
            }
            Some(Group::Classic(_)) => Err(Refusal::new(
                ErrorCode::GroupIdNotFound,
                format!("Group {id} is not a consumer group."),
            )),
        }
    }
}

fn assignment(member: &Member) -> Assignment<'static> {
    let parts = member.assigned.parts();
    let topics = parts.topics().map(|(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.to_vec().into(),
    });
    Assignment { topic_partitions: topics.collect() }
}
