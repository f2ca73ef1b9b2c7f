//! How a member goes: by its own word, or because it was not heard of or did not give up in time.

use wire::messages as m;

use super::member::{LEAVE_EPOCH, STATIC_LEAVE_EPOCH};
use super::subscription::{View, metadata_hash};
use super::update::check_instance;
use super::{ConsumerGroup, Held, records};
use crate::Name;
use crate::context::{Context, Topics};
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::request::Decision;
use crate::timers::{Key, Kind};
use wire::ErrorCode;

impl Coordinator {
    pub(crate) fn leave_by_heartbeat(
        &mut self,
        request: &m::ConsumerGroupHeartbeatRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<m::ConsumerGroupHeartbeatResponse<'static>, Refusal> {
        let id = &*request.group_id;
        let refuse = |message: String| Err(Refusal::new(ErrorCode::GroupIdNotFound, message));
        let group = match self.groups.get(id) {
            Some(Group::Consumer(group)) => group,
            Some(Group::Classic(_)) => {
                return refuse(format!("Group {id} is not a consumer group."));
            }
            None => return refuse(format!("Group {id} not found.")),
        };
        let member = match request.instance_id.as_deref() {
            None => group.member(&request.member_id)?,
            Some(instance) => {
                let member = group.static_member(instance).ok_or_else(|| {
                    Refusal::new(
                        ErrorCode::UnknownMemberId,
                        format!("Instance id {instance} is unknown."),
                    )
                })?;
                check_instance(member, &request.member_id, instance)?;
                member
            }
        };
        let mut epoch = LEAVE_EPOCH;
        let name = member.id.clone();
        if request.member_epoch == STATIC_LEAVE_EPOCH {
            // It will be back: what it has stays its own until its session runs out.
            epoch = STATIC_LEAVE_EPOCH;
            let mut away = member.clone();
            away.epoch = STATIC_LEAVE_EPOCH;
            away.revoking = Held::default();
            away.forget_epochs();
            out.records.push(records::current(id, &away));
            self.apply_new(out, ctx.now_ms);
            // There is nobody to give anything up: only its session counts.
            if let Some((group, _)) = self.groups.get_key_value(id) {
                self.timers.cancel(&Key::member(Kind::Revoke, group, &name));
            }
        } else {
            self.remove_members(id, std::slice::from_ref(&name), ctx.topics, ctx.now_ms, out);
            self.downgrade(id, ctx.topics, ctx.now_ms, out);
        }
        Ok(m::ConsumerGroupHeartbeatResponse {
            member_id: Some(String::from(&*name).into()),
            member_epoch: epoch,
            ..Default::default()
        })
    }

    /// Takes members out of a group; the others are assigned anew with their next heartbeats.
    pub(crate) fn remove_members(
        &mut self,
        id: &str,
        members: &[Name],
        topics: &dyn Topics,
        now_ms: i64,
        out: &mut Decision,
    ) {
        let Some((name, Group::Consumer(group))) = self.groups.get_key_value(id) else { return };
        let name = name.clone();
        group.leave_records(&name, members, topics, now_ms, out);
        self.apply_new(out, now_ms);
        for member in members {
            self.cancel_member(&name, member);
        }
    }
}

impl ConsumerGroup {
    fn leave_records(
        &self,
        id: &str,
        members: &[Name],
        topics: &dyn Topics,
        now_ms: i64,
        out: &mut Decision,
    ) {
        let mut view = View::of(self);
        for member in members {
            records::no_member(id, member, &mut out.records);
            view.members.remove(&**member);
        }
        for regex in self.regexes.keys() {
            let used = view.members.values().any(|member| member.regex.as_ref() == Some(regex));
            if !used {
                out.records.push(records::no_regex(id, regex));
            }
        }
        let hash = metadata_hash(&view.topics(topics));
        let epoch = self.epoch + 1;
        out.records.push(records::epoch(id, epoch, hash));
        if view.members.is_empty() {
            // Nobody is left to assign to, so the group is settled.
            out.records.push(records::target_epoch(id, epoch, now_ms));
        }
    }
}
