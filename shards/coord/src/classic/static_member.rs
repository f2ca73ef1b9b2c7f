//! A static member that comes back without its id: it takes the place of what it was before, and in
//! a stable group nothing else happens.

use wire::ErrorCode;
use wire::messages as m;

use super::rebalance::Reason;
use super::{ClassicGroup, Protocols, State, Step, join_error};
use crate::Name;
use crate::context::Context;
use crate::record::record_bytes;
use crate::timers::{Key, Kind};

/// From this version on a leader can be told to leave the assignment as it is.
const SKIP_ASSIGNMENT_FROM: i16 = 9;

impl ClassicGroup {
    pub(super) fn replace_static(
        &mut self,
        request: &m::JoinGroupRequest<'_>,
        protocols: Protocols,
        old: &Name,
        new: Name,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
    ) {
        if self.state == State::Stable && !self.would_fit(&new, &protocols, step) {
            let refused =
                join_error(&request.member_id, ErrorCode::UnknownServerError, ctx.version);
            return step.out.reply(ctx.token, refused);
        }
        let old_leader = self.leader.clone();
        self.rename_static(old, &new, step);
        self.update(&new, request, protocols, ctx, step);
        self.prolong(&new, step);
        match self.state {
            State::Stable if self.elect_protocol() == self.protocol => {
                // The new id must be in the log before it is told (KAFKA-10284).
                let record = self.record(&step.id);
                step.out.records.push(record);
                self.take_join(&new);
                let leads = self.is_leader(&new);
                let mut reply = match ctx.version >= SKIP_ASSIGNMENT_FROM {
                    true => self.join_answer(&new, leads, leads, ctx.version),
                    false => self.join_answer(&new, false, false, ctx.version),
                };
                // Older clients would assign anew if they learned that they lead: they are told
                // the leader of before, which is themselves under the old id.
                if let (crate::Reply::JoinGroup(answer), true) =
                    (&mut reply, ctx.version < SKIP_ASSIGNMENT_FROM)
                {
                    answer.leader = String::from(old_leader.as_deref().unwrap_or_default()).into();
                }
                step.out.reply(ctx.token, reply);
            }
            State::Stable | State::Completing => self.rebalance(Reason::Member, step),
            State::Preparing => self.complete_if_all_joined(step),
            // A group with static members is not empty; were it, a new member starts it anew.
            State::Empty => self.rebalance(Reason::Member, step),
        }
    }

    /// Whether the group's record would fit into the log with this member in place of one of its
    /// own.
    fn would_fit(&self, new: &Name, protocols: &Protocols, step: &Step<'_>) -> bool {
        // The id stands there twice if the member leads.
        let said: usize = protocols.iter().map(|(_, metadata)| metadata.len()).max().unwrap_or(0);
        let grown = record_bytes(&self.record(&step.id)).saturating_add(2 * new.len() + said);
        grown <= step.config.record_bytes_max
    }

    /// Puts a static member under its new id; whatever waits under the old one is fenced.
    fn rename_static(&mut self, old: &Name, new: &Name, step: &mut Step<'_>) {
        if let Some((token, version)) = self.take_join(old) {
            step.out.reply(token, join_error(old, ErrorCode::FencedInstanceId, version));
        }
        self.answer_sync(old, ErrorCode::FencedInstanceId, step.out);
        step.timers.cancel(&Key::member(Kind::Session, &step.id, old));
        let Some(mut member) = self.members.remove(old) else { return };
        member.id = new.clone();
        member.is_new = false;
        self.by_arrival.insert(member.arrival, new.clone());
        if let Some(instance) = &member.instance {
            self.statics.insert(instance.clone(), new.clone());
        }
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if self.unsynced.remove(old) {
            self.unsynced.insert(new.clone());
        }
        self.members.insert(new.clone(), member);
    }
}
