//! SyncGroup: the leader brings the assignment, the members fetch their part of it.

use ahash::AHashMap;
use wire::ErrorCode;
use wire::messages as m;

use super::rebalance::Reason;
use super::{ClassicGroup, State, Step, sync_error};
use crate::Name;
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::record::record_bytes;
use crate::request::{Decision, Reply};
use crate::timers::{Key, Kind};

/// From this version on a member must say which protocol it means.
const PROTOCOL_FROM: i16 = 5;

impl Coordinator {
    pub(crate) fn sync_group(
        &mut self,
        request: &m::SyncGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let id = &*request.group_id;
        if id.is_empty() {
            return out.reply(ctx.token, sync_error(ErrorCode::InvalidGroupId));
        }
        let names = (&request.protocol_type, &request.protocol_name);
        if ctx.version >= PROTOCOL_FROM && !matches!(names, (Some(_), Some(_))) {
            return out.reply(ctx.token, sync_error(ErrorCode::InconsistentGroupProtocol));
        }
        match self.groups.get(id) {
            Some(Group::Consumer(group)) if !group.is_empty() => {
                self.sync_in_consumer_group(request, ctx, out);
            }
            Some(Group::Classic(group)) if !group.is_empty() => {
                if let Some((group, mut step)) = self.classic(id, ctx.now_ms, out) {
                    group.sync(request, ctx, &mut step);
                }
            }
            _ => out.reply(ctx.token, sync_error(ErrorCode::UnknownMemberId)),
        }
    }
}

impl ClassicGroup {
    fn sync(&mut self, request: &m::SyncGroupRequest<'_>, ctx: &Context<'_>, step: &mut Step<'_>) {
        let id = &*request.member_id;
        if let Err(code) = self.check_sync(request) {
            return step.out.reply(ctx.token, sync_error(code));
        }
        match self.state {
            State::Empty => step.out.reply(ctx.token, sync_error(ErrorCode::UnknownMemberId)),
            State::Preparing => {
                step.out.reply(ctx.token, sync_error(ErrorCode::RebalanceInProgress));
            }
            State::Completing => {
                self.answer_sync(id, ErrorCode::RebalanceInProgress, step.out);
                if let Some(member) = self.members.get_mut(id) {
                    member.sync = Some(ctx.token);
                }
                self.synced(id, step);
                if self.is_leader(id) {
                    self.assign(request, step);
                }
            }
            State::Stable => {
                self.synced(id, step);
                let reply = self.sync_answer(id);
                step.out.reply(ctx.token, reply);
            }
        }
    }

    fn check_sync(&self, request: &m::SyncGroupRequest<'_>) -> Result<(), ErrorCode> {
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<wire::Text<'_>>, ours: &Option<Name>| match (asked, ours) {
            (Some(asked), Some(ours)) => **asked != **ours,
            _ => false,
        };
        match differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            true => Err(ErrorCode::InconsistentGroupProtocol),
            false => Ok(()),
        }
    }

    /// Makes the generation's record from what the leader says, and answers everyone who waits.
    /// Members that it forgot get nothing, and those it invented do not exist.
    fn assign(&mut self, request: &m::SyncGroupRequest<'_>, step: &mut Step<'_>) {
        let mut parts: AHashMap<_, _> =
            request.assignments.iter().map(|part| (part.member_id, part.assignment)).collect();
        for member in self.members.values_mut() {
            member.assignment = parts
                .remove(&*member.id)
                .map_or_else(Box::default, |part| part.into_owned().into_boxed_slice());
        }
        let record = self.record(&step.id);
        if record_bytes(&record) > step.config.record_bytes_max {
            return self.refuse_assignment(step);
        }
        step.out.records.push(record);
        let ids: Vec<Name> = self.members.keys().cloned().collect();
        for id in ids {
            let token = self.members.get_mut(&id).and_then(|member| member.sync.take());
            if let Some(token) = token {
                let reply = self.sync_answer(&id);
                step.out.reply(token, reply);
                self.prolong(&id, step);
            }
        }
    }

    /// The group as a whole is too large for a record: its members are told, as Kafka does, and may
    /// try again with less.
    fn refuse_assignment(&mut self, step: &mut Step<'_>) {
        let ids: Vec<Name> = self.members.keys().cloned().collect();
        for id in ids {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = Box::default();
            }
            self.answer_sync_and_prolong(&id, ErrorCode::UnknownServerError, step);
        }
        self.rebalance(Reason::Member, step);
    }

    fn synced(&mut self, id: &str, step: &mut Step<'_>) {
        self.unsynced.remove(id);
        if self.unsynced.is_empty() {
            step.timers.cancel(&Key::group(Kind::Sync, &step.id));
        }
    }

    fn sync_answer(&self, id: &str) -> Reply {
        let text = |name: &Option<Name>| name.as_deref().map(|name| String::from(name).into());
        let assignment = self.members.get(id).map(|member| member.assignment.to_vec());
        Reply::SyncGroup(m::SyncGroupResponse {
            protocol_type: text(&self.protocol_type),
            protocol_name: text(&self.protocol),
            assignment: assignment.unwrap_or_default().into(),
            ..Default::default()
        })
    }
}
