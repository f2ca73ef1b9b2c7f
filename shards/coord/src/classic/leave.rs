//! LeaveGroup: one member, or a list of them by id or by instance.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::leave_group_request::MemberIdentity;
use wire::messages::leave_group_response::MemberResponse;

use super::rebalance::Reason;
use super::{ClassicGroup, State, Step};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::request::{Decision, Reply};
use crate::timers::{Key, Kind};

/// From this version on a request names several members, and each has its own answer.
const BATCH_FROM: i16 = 3;

impl Coordinator {
    pub(crate) fn leave_group(
        &mut self,
        request: &m::LeaveGroupRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let id = &*request.group_id;
        let members = leaving(request, ctx.version);
        let answers = match self.groups.get(id) {
            _ if id.is_empty() => Err(ErrorCode::InvalidGroupId),
            None => Ok(members
                .iter()
                .map(|member| answer(member, ErrorCode::UnknownMemberId))
                .collect()),
            Some(Group::Consumer(_)) => Ok(self.leave_consumer_group(id, &members, ctx, out)),
            Some(Group::Classic(_)) => match self.classic(id, ctx.now_ms, out) {
                Some((group, mut step)) => Ok(group.leave(&members, &mut step)),
                None => Ok(Vec::new()),
            },
        };
        let mut reply = m::LeaveGroupResponse::default();
        match answers {
            Err(code) => reply.error_code = code.code(),
            Ok(answers) if ctx.version < BATCH_FROM => {
                reply.error_code = answers.first().map_or(0, |answer| answer.error_code);
            }
            Ok(answers) => reply.members = answers.into(),
        }
        out.reply(ctx.token, Reply::LeaveGroup(reply));
    }
}

/// The members a request names, in whatever version.
fn leaving<'a>(request: &m::LeaveGroupRequest<'a>, version: i16) -> Vec<MemberIdentity<'a>> {
    match version {
        ..BATCH_FROM => {
            let member_id = request.member_id.clone();
            vec![MemberIdentity { member_id, group_instance_id: None, reason: None }]
        }
        _ => request.members.to_vec(),
    }
}

pub(crate) fn answer(member: &MemberIdentity<'_>, code: ErrorCode) -> MemberResponse<'static> {
    let text = |text: &wire::Text<'_>| text.clone().into_owned().into();
    MemberResponse {
        member_id: text(&member.member_id),
        group_instance_id: member.group_instance_id.as_ref().map(text),
        error_code: code.code(),
    }
}

impl ClassicGroup {
    fn leave(
        &mut self,
        members: &[MemberIdentity<'_>],
        step: &mut Step<'_>,
    ) -> Vec<MemberResponse<'static>> {
        let mut any = false;
        let answers = members.iter().map(|member| {
            let left = self.leave_one(member, step);
            any |= left.is_ok();
            answer(member, left.err().unwrap_or(ErrorCode::None))
        });
        let answers = answers.collect();
        if any {
            match self.state {
                State::Stable | State::Completing => self.rebalance(Reason::Member, step),
                State::Preparing => self.complete_if_all_joined(step),
                State::Empty => {}
            }
        }
        answers
    }

    fn leave_one(
        &mut self,
        member: &MemberIdentity<'_>,
        step: &mut Step<'_>,
    ) -> Result<(), ErrorCode> {
        let instance = member.group_instance_id.as_deref();
        let id = match (&*member.member_id, instance) {
            // An administrator takes a static member out by its instance alone.
            ("", Some(instance)) => {
                self.statics.get(instance).cloned().ok_or(ErrorCode::UnknownMemberId)?
            }
            ("", None) => return Err(ErrorCode::UnknownMemberId),
            (id, _) if self.pending.contains(id) => {
                self.pending.remove(id);
                step.timers.cancel(&Key::member(Kind::Session, &step.id, &id.into()));
                return Ok(());
            }
            (id, instance) => {
                self.check_member(id, instance)?;
                id.into()
            }
        };
        self.answer_join(&id, ErrorCode::UnknownMemberId, step.out);
        self.answer_sync(&id, ErrorCode::UnknownMemberId, step.out);
        step.timers.cancel(&Key::member(Kind::Session, &step.id, &id));
        self.remove(&id);
        Ok(())
    }
}
