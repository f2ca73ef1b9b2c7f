//! Members of the classic protocol in a consumer group: join, sync, heartbeat, leave.

use ahash::{AHashMap, AHashSet};
use wire::ErrorCode;
use wire::messages as m;
use wire::messages::leave_group_request::MemberIdentity;
use wire::messages::leave_group_response::MemberResponse;

use super::embedded::{read_subscription, write_assignment};
use crate::classic::{
    MEMBER_ID_REQUIRED_FROM, Protocols, join_error, protocols_of, rebalance_timeout_ms,
};
use crate::classic::{leave_answer, sync_error};
use crate::config::Migration;
use crate::consumer::{ClassicFace, ConsumerGroup, Member, MemberState, Opening, Update};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::request::{Decision, Reply};
use crate::timers::{Key, Kind};
use crate::{CONSUMER_PROTOCOL, Name};

/// Records that a member leaves behind, and bytes of each beside the names of group and member.
const LEAVE_RECORDS_MAX: usize = 3;
const LEAVE_RECORD_BYTES: usize = 64;

impl Coordinator {
    pub(crate) fn join_consumer_group(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let joined = self.join_as_classic(request, ctx, out);
        let reply = joined
            .unwrap_or_else(|refusal| join_error(&request.member_id, refusal.code, ctx.version));
        out.reply(ctx.token, reply);
    }

    fn join_as_classic(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<Reply, Refusal> {
        let id = &*request.group_id;
        let Some(Group::Consumer(group)) = self.groups.get(id) else {
            return Err(ErrorCode::UnknownMemberId.into());
        };
        if self.config.migration == Migration::Disabled {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let protocols = protocols_of(request);
        let known = group.knows_one_of(&protocols);
        if *request.protocol_type != *CONSUMER_PROTOCOL || !known {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let nameless = request.member_id.is_empty();
        if nameless && request.group_instance_id.is_none() && ctx.version >= MEMBER_ID_REQUIRED_FROM
        {
            let id = wire::Uuid::from_random(ctx.fresh_id.0).to_string();
            return Ok(join_error(&id, ErrorCode::MemberIdRequired, ctx.version));
        }
        let member = match nameless {
            true => Name::from(wire::Uuid::from_random(ctx.fresh_id.0).to_string()),
            false => Name::from(&*request.member_id),
        };
        let (protocol, metadata) = protocols.first().ok_or(ErrorCode::InconsistentGroupProtocol)?;
        let protocol = protocol.clone();
        let subscription = read_subscription(metadata, ctx.topics)
            .ok_or(Refusal::from(ErrorCode::InconsistentGroupProtocol))?;
        let timeout_ms = rebalance_timeout_ms(request, ctx.version);
        let update = Update {
            group: id,
            member,
            epoch: -1,
            joins: request.group_instance_id.is_none() || nameless,
            instance: request.group_instance_id.as_deref(),
            rack: subscription.rack.as_deref(),
            rebalance_timeout_ms: Some(timeout_ms),
            topics: Some(subscription.topics),
            regex: Some(""),
            assignor: None,
            owned: Some(subscription.owned),
            classic: Some(ClassicFace {
                session_timeout_ms: request.session_timeout_ms,
                protocols,
            }),
        };
        let updated = self.update_member(&update, Opening::AsItIs, ctx, out)?;
        let member = &updated.after;
        let session_ms = request.session_timeout_ms;
        self.expect_sync(id, &member.id, session_ms, timeout_ms, ctx.now_ms);
        if updated.replaced.is_some() {
            self.downgrade(id, ctx.topics, ctx.now_ms, out);
        }
        Ok(Reply::JoinGroup(m::JoinGroupResponse {
            generation_id: member.epoch,
            protocol_type: Some(CONSUMER_PROTOCOL.into()),
            protocol_name: Some(String::from(&*protocol).into()),
            member_id: String::from(&*member.id).into(),
            ..Default::default()
        }))
    }

    /// The member has joined: it must be heard of, and ask for its assignment.
    fn expect_sync(
        &mut self,
        group: &str,
        member: &Name,
        session_ms: i32,
        sync_ms: i32,
        now_ms: i64,
    ) {
        let Some((group, _)) = self.groups.get_key_value(group) else { return };
        let key = |kind| Key::member(kind, group, member);
        self.timers.cancel(&key(Kind::MemberJoin));
        self.timers.set(key(Kind::Session), now_ms + i64::from(session_ms));
        self.timers.set(key(Kind::MemberSync), now_ms + i64::from(sync_ms));
    }

    pub(crate) fn sync_in_consumer_group(
        &mut self,
        request: &m::SyncGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let reply =
            self.sync_as_classic(request, ctx).unwrap_or_else(|refusal| sync_error(refusal.code));
        out.reply(ctx.token, reply);
    }

    fn sync_as_classic(
        &mut self,
        request: &m::SyncGroupRequest<'_>,
        ctx: &Context<'_>,
    ) -> Result<Reply, Refusal> {
        let instance = request.group_instance_id.as_deref();
        let Some((name, Group::Consumer(group))) = self.groups.get_key_value(&*request.group_id)
        else {
            return Err(ErrorCode::UnknownMemberId.into());
        };
        let (member, face) = group.classic_member(&request.member_id, instance)?;
        if member.epoch != request.generation_id {
            return Err(ErrorCode::IllegalGeneration.into());
        }
        let (protocol, metadata) =
            face.protocols.first().ok_or(ErrorCode::InconsistentGroupProtocol)?;
        let other_type = request.protocol_type.as_deref().is_some_and(|it| it != CONSUMER_PROTOCOL);
        let other_name = request.protocol_name.as_deref().is_some_and(|it| *it != **protocol);
        if other_type || other_name {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let join = Key::member(Kind::MemberJoin, name, &member.id);
        if group.epoch > member.epoch && member.state != MemberState::Unrevoked {
            let due_ms = ctx.now_ms + i64::from(member.rebalance_timeout_ms);
            self.timers.set_if_absent(join, due_ms);
            return Err(ErrorCode::RebalanceInProgress.into());
        }
        let parts = member.assigned.parts();
        let assignment = write_assignment(&parts, metadata, ctx.topics);
        self.timers.cancel(&Key::member(Kind::MemberSync, name, &member.id));
        let due_ms = ctx.now_ms + i64::from(face.session_timeout_ms);
        self.timers.set(Key::member(Kind::Session, name, &member.id), due_ms);
        let text =
            |text: &Option<wire::Text<'_>>| text.as_deref().map(|it| String::from(it).into());
        Ok(Reply::SyncGroup(m::SyncGroupResponse {
            protocol_type: text(&request.protocol_type),
            protocol_name: text(&request.protocol_name),
            assignment: assignment.into(),
            ..Default::default()
        }))
    }

    pub(crate) fn heartbeat_in_consumer_group(
        &mut self,
        request: &m::HeartbeatRequest<'_>,
        ctx: &Context<'_>,
    ) -> ErrorCode {
        let instance = request.group_instance_id.as_deref();
        let Some((name, Group::Consumer(group))) = self.groups.get_key_value(&*request.group_id)
        else {
            return ErrorCode::UnknownMemberId;
        };
        let (member, face) = match group.classic_member(&request.member_id, instance) {
            Ok(found) => found,
            Err(refusal) => return refusal.code,
        };
        if member.epoch != request.generation_id {
            return ErrorCode::IllegalGeneration;
        }
        let due_ms = |ms: i32| ctx.now_ms + i64::from(ms);
        let session = Key::member(Kind::Session, name, &member.id);
        self.timers.set(session, due_ms(face.session_timeout_ms));
        let must_join = member.epoch < group.epoch
            || member.state == MemberState::Unrevoked
            || member.state == MemberState::Unreleased && !group.waits_for_others(member);
        if !must_join {
            return ErrorCode::None;
        }
        let join = Key::member(Kind::MemberJoin, name, &member.id);
        self.timers.set_if_absent(join, due_ms(member.rebalance_timeout_ms));
        ErrorCode::RebalanceInProgress
    }

    pub(crate) fn leave_consumer_group(
        &mut self,
        id: &str,
        members: &[MemberIdentity<'_>],
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Vec<MemberResponse<'static>> {
        let (mut gone, mut seen): (Vec<Name>, AHashSet<Name>) = Default::default();
        let answers = members.iter().map(|member| {
            let left = match self.groups.get(id) {
                Some(Group::Consumer(group)) => group.leaving(member),
                _ => Err(ErrorCode::UnknownMemberId.into()),
            };
            match left {
                Ok(name) => {
                    if seen.insert(name.clone()) {
                        gone.push(name);
                    }
                    leave_answer(member, ErrorCode::None)
                }
                Err(refusal) => leave_answer(member, refusal.code),
            }
        });
        let answers = answers.collect();
        if !gone.is_empty() {
            self.remove_in_portions(id, &gone, ctx, out);
            self.downgrade(id, ctx.topics, ctx.now_ms, out);
        }
        answers
    }

    /// Takes any number of members out, with as many at a time as fit into a batch with ease.
    fn remove_in_portions(
        &mut self,
        id: &str,
        members: &[Name],
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let mut left = members;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = left.iter().take_while(|member| {
                bytes += LEAVE_RECORDS_MAX * (id.len() + member.len() + LEAVE_RECORD_BYTES);
                bytes <= self.config.record_bytes_max
            });
            let (some, later) = left.split_at(fits.count().max(1));
            self.remove_members(id, some, ctx.topics, ctx.now_ms, out);
            out.cut();
            left = later;
        }
    }
}

impl ConsumerGroup {
    /// A member of the classic protocol, and what makes it one.
    fn classic_member(
        &self,
        id: &str,
        instance: Option<&str>,
    ) -> Result<(&Member, &ClassicFace), Refusal> {
        let member = match instance {
            None => self.member(id)?,
            Some(instance) => self.of_instance(id, instance)?,
        };
        let face = member.classic.as_ref().ok_or(Refusal::from(ErrorCode::UnknownMemberId))?;
        Ok((member, face))
    }

    /// The member that leaves. An administrator may send away any, whatever its protocol.
    fn leaving(&self, identity: &MemberIdentity<'_>) -> Result<Name, Refusal> {
        let instance = identity.group_instance_id.as_deref();
        let id = match (&*identity.member_id, instance) {
            ("", Some(instance)) => {
                let known = self.statics.get(instance);
                known.cloned().ok_or(Refusal::from(ErrorCode::UnknownMemberId))?
            }
            (id, _) => Name::from(id),
        };
        let member = match instance {
            None => self.member(&id)?,
            Some(instance) => self.of_instance(&id, instance)?,
        };
        Ok(member.id.clone())
    }

    fn of_instance(&self, id: &str, instance: &str) -> Result<&Member, Refusal> {
        let member = self.static_member(instance);
        let member = member.ok_or(Refusal::from(ErrorCode::UnknownMemberId))?;
        match *member.id == *id {
            true => Ok(member),
            false => Err(ErrorCode::FencedInstanceId.into()),
        }
    }

    /// Whether all classic members know one of these protocols.
    fn knows_one_of(&self, protocols: &Protocols) -> bool {
        let mut votes: AHashMap<&str, usize> =
            protocols.iter().map(|(name, _)| (&**name, 0)).collect();
        let faces = self.members.values().filter_map(|member| member.classic.as_ref());
        let mut voters = 0;
        for face in faces {
            voters += 1;
            for (name, _) in &face.protocols {
                if let Some(votes) = votes.get_mut(&**name) {
                    *votes += 1;
                }
            }
        }
        votes.values().any(|votes| *votes == voters)
    }
}
