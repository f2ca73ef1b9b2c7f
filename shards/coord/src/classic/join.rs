//! JoinGroup: who may join, and whether that starts a rebalance.

use ahash::AHashSet;
use wire::ErrorCode;
use wire::messages as m;

use super::rebalance::{NEW_MEMBER_JOIN_TIMEOUT_MS, Reason};
use super::{ClassicGroup, Member, Protocols, State, Step, absent_protocol, join_error};
use crate::Name;
use crate::context::{Context, hyphenated};
use crate::coordinator::{Coordinator, Group};
use crate::request::{Decision, Reply};
use crate::timers::{Key, Kind};

/// From this version on a member is told its id before it may join.
pub(crate) const MEMBER_ID_REQUIRED_FROM: i16 = 4;
/// Most ids of a group that were given out and have not joined; each expires with its session.
const PENDING_MAX: usize = 10_000;

impl Coordinator {
    pub(crate) fn join_group(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let (id, member) = (&*request.group_id, &*request.member_id);
        let sessions = self.config.session_timeout_min_ms..=self.config.session_timeout_max_ms;
        if id.is_empty() {
            return out
                .reply(ctx.token, join_error(member, ErrorCode::InvalidGroupId, ctx.version));
        }
        if !sessions.contains(&request.session_timeout_ms) {
            let code = ErrorCode::InvalidSessionTimeout;
            return out.reply(ctx.token, join_error(member, code, ctx.version));
        }
        let is_new_group = match self.groups.get(id) {
            Some(Group::Consumer(group)) if !group.is_empty() => {
                return self.join_consumer_group(request, ctx, out);
            }
            Some(Group::Classic(_)) => false,
            // An empty consumer group makes room.
            Some(Group::Consumer(_)) | None => true,
        };
        if is_new_group && !member.is_empty() {
            let code = ErrorCode::UnknownMemberId;
            return out.reply(ctx.token, join_error(member, code, ctx.version));
        }
        if is_new_group {
            self.drop_group(id, ctx.now_ms, out);
        }
        let Some((group, mut step)) = self.classic_or_new(id, ctx.now_ms, out) else { return };
        group.join(request, ctx, &mut step);
        if is_new_group && step.out.records.iter().all(|record| !persists(record)) {
            // So that the group is there after a restart, before its first generation.
            let record = group.record_without_members(&step.id);
            step.out.records.push(record);
        }
    }
}

fn persists(record: &crate::Record<'_>) -> bool {
    matches!(record, crate::Record::GroupMetadata(_, Some(_)))
}

impl ClassicGroup {
    fn join(&mut self, request: &m::JoinGroupRequest<'_>, ctx: &Context<'_>, step: &mut Step<'_>) {
        let member = &*request.member_id;
        let protocols = protocols_of(request);
        if !self.has_room_for(member, step) {
            self.remove(member);
            let reply = join_error("", ErrorCode::GroupMaxSizeReached, ctx.version);
            step.out.reply(ctx.token, reply);
            return self.complete_if_all_joined(step);
        }
        let names = protocols.iter().map(|(name, _)| name.clone());
        if !self.supports(&request.protocol_type, names) {
            let reply = join_error(member, ErrorCode::InconsistentGroupProtocol, ctx.version);
            return step.out.reply(ctx.token, reply);
        }
        if member.is_empty() {
            self.join_without_id(request, protocols, ctx, step);
        } else {
            self.join_with_id(request, protocols, ctx, step);
        }
    }

    fn has_room_for(&self, member: &str, step: &Step<'_>) -> bool {
        let known = self.members.get(member);
        match self.state {
            State::Empty => true,
            State::Preparing => {
                known.is_some_and(|member| member.join.is_some())
                    || self.joined < step.config.classic_members_max
            }
            State::Completing | State::Stable => {
                known.is_some() || self.members.len() < step.config.classic_members_max
            }
        }
    }

    fn join_without_id(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        protocols: Protocols,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
    ) {
        let prefix = request.group_instance_id.as_deref().unwrap_or(ctx.client_id);
        let id = Name::from(format!("{prefix}-{}", hyphenated(ctx.fresh_id)));
        let instance = request.group_instance_id.as_deref();
        let known = instance.and_then(|instance| self.statics.get(instance)).cloned();
        if let Some(old) = known {
            return self.replace_static(request, protocols, &old, id, ctx, step);
        }
        if instance.is_none() && ctx.version >= MEMBER_ID_REQUIRED_FROM {
            if self.pending.len() >= PENDING_MAX {
                let reply = join_error("", ErrorCode::GroupMaxSizeReached, ctx.version);
                return step.out.reply(ctx.token, reply);
            }
            self.pending.insert(id.clone());
            let due_ms = step.now_ms + i64::from(request.session_timeout_ms);
            step.timers.set(Key::member(Kind::Session, &step.id, &id), due_ms);
            let reply = join_error(&id, ErrorCode::MemberIdRequired, ctx.version);
            return step.out.reply(ctx.token, reply);
        }
        self.admit(request, protocols, id, ctx, step);
    }

    fn join_with_id(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        protocols: Protocols,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
    ) {
        let id = &*request.member_id;
        let instance = request.group_instance_id.as_deref();
        if let (Some(pending), None) = (self.pending.get(id).cloned(), instance) {
            return self.admit(request, protocols, pending, ctx, step);
        }
        if let Err(code) = self.check_member(id, instance) {
            return step.out.reply(ctx.token, join_error(id, code, ctx.version));
        }
        let same = self.members.get(id).is_some_and(|member| member.matches(&protocols));
        let joins_again = match self.state {
            State::Preparing => true,
            State::Completing => !same,
            State::Stable => !same || self.is_leader(id),
            State::Empty => {
                let reply = join_error(id, ErrorCode::UnknownMemberId, ctx.version);
                return step.out.reply(ctx.token, reply);
            }
        };
        if joins_again {
            self.update(id, request, protocols, ctx, step);
            return self.rebalance(Reason::Member, step);
        }
        // The answer was lost, or the client joins too eagerly: tell it what holds.
        let with_members = self.state == State::Completing && self.is_leader(id);
        let reply = self.join_answer(id, with_members, false, ctx.version);
        step.out.reply(ctx.token, reply);
    }

    /// Takes a new member in.
    fn admit(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        protocols: Protocols,
        id: Name,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
    ) {
        if self.state == State::Preparing && self.from_empty {
            self.initial.newcomer = true;
        }
        self.add(Member {
            id: id.clone(),
            instance: request.group_instance_id.as_deref().map(Name::from),
            client_id: ctx.client_id.into(),
            client_host: ctx.client_host.into(),
            rebalance_timeout_ms: rebalance_timeout_ms(request, ctx.version),
            session_timeout_ms: request.session_timeout_ms,
            protocol_type: Name::from(&*request.protocol_type),
            protocols,
            assignment: Box::default(),
            join: Some(ctx.token),
            sync: None,
            version: ctx.version,
            is_new: true,
            arrival: 0,
        });
        let due_ms = step.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS;
        step.timers.set(Key::member(Kind::Session, &step.id, &id), due_ms);
        self.rebalance(Reason::Member, step);
    }

    /// A known member joins again, perhaps with other protocols.
    pub(super) fn update(
        &mut self,
        id: &str,
        request: &m::JoinGroupRequest<'_>,
        protocols: Protocols,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        let old = std::mem::replace(&mut member.protocols, protocols.clone());
        member.rebalance_timeout_ms = rebalance_timeout_ms(request, ctx.version);
        member.session_timeout_ms = request.session_timeout_ms;
        self.count_votes(&old, false);
        self.count_votes(&protocols, true);
        self.park_join(id, ctx.token, step.out);
        if let Some(member) = self.members.get_mut(id) {
            member.version = ctx.version;
        }
    }

    /// What a member of the current generation is told.
    pub(super) fn join_answer(
        &self,
        id: &str,
        with_members: bool,
        skip_assignment: bool,
        version: i16,
    ) -> Reply {
        let protocol = self.protocol.as_deref();
        let member_answer = |member: &Member| m::join_group_response::JoinGroupResponseMember {
            member_id: String::from(&*member.id).into(),
            group_instance_id: member.instance.as_deref().map(|it| String::from(it).into()),
            metadata: member.metadata(protocol.unwrap_or_default()).to_vec().into(),
        };
        let members = match with_members {
            true => self.members.values().map(member_answer).collect(),
            false => Default::default(),
        };
        Reply::JoinGroup(m::JoinGroupResponse {
            generation_id: self.generation,
            protocol_type: self.protocol_type.as_deref().map(|it| String::from(it).into()),
            protocol_name: protocol
                .map(|name| String::from(name).into())
                .or_else(|| absent_protocol(version)),
            leader: String::from(self.leader.as_deref().unwrap_or_default()).into(),
            skip_assignment,
            member_id: String::from(id).into(),
            members,
            ..Default::default()
        })
    }
}

/// The protocols of a join; of one that is named twice the first counts.
pub(crate) fn protocols_of(request: &m::JoinGroupRequest<'_>) -> Protocols {
    let mut seen = AHashSet::new();
    let protocols = request.protocols.iter().map(|it| (Name::from(&*it.name), it.metadata));
    protocols
        .filter(|(name, _)| seen.insert(name.clone()))
        .map(|(name, metadata)| (name, Box::from(&*metadata)))
        .collect()
}

/// Version 0 knows one timeout for both.
pub(crate) fn rebalance_timeout_ms(request: &m::JoinGroupRequest<'_>, version: i16) -> i32 {
    match version {
        0 => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    }
}
