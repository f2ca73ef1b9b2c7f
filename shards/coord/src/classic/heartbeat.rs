//! Heartbeat: a sign of life, answered with whether to join again.

use wire::ErrorCode;
use wire::messages as m;

use super::{ClassicGroup, State, Step};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::request::{Decision, Reply};

impl Coordinator {
    pub(crate) fn heartbeat(
        &mut self,
        request: &m::HeartbeatRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let id = &*request.group_id;
        let code = match self.groups.get(id) {
            _ if id.is_empty() => ErrorCode::InvalidGroupId,
            None => ErrorCode::UnknownMemberId,
            Some(Group::Consumer(_)) => self.heartbeat_in_consumer_group(request, ctx),
            Some(Group::Classic(_)) => match self.classic(id, ctx.now_ms, out) {
                Some((group, mut step)) => group.heartbeat(request, &mut step),
                None => ErrorCode::UnknownMemberId,
            },
        };
        let reply = m::HeartbeatResponse { throttle_time_ms: 0, error_code: code.code() };
        out.reply(ctx.token, Reply::Heartbeat(reply));
    }
}

impl ClassicGroup {
    fn heartbeat(&mut self, request: &m::HeartbeatRequest<'_>, step: &mut Step<'_>) -> ErrorCode {
        let instance = request.group_instance_id.as_deref();
        if let Err(code) = self.check_member(&request.member_id, instance) {
            return code;
        }
        if request.generation_id != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        match self.state {
            State::Empty => ErrorCode::UnknownMemberId,
            State::Preparing => {
                self.prolong(&request.member_id, step);
                ErrorCode::RebalanceInProgress
            }
            State::Completing | State::Stable => {
                self.prolong(&request.member_id, step);
                ErrorCode::None
            }
        }
    }
}
