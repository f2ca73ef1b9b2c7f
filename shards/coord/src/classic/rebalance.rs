//! The rebalance itself: from the first reason for one to the new generation, and what runs out.

use wire::ErrorCode;

use super::{ClassicGroup, Initial, State, Step, join_error};
use crate::Name;
use crate::timers::{Key, Kind};

/// A member that has not been in a generation is given up after this, even if it waits.
pub(super) const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60_000;

/// Why a rebalance is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A member came, changed or went: the group goes on with the rebalance it is in, if any.
    Member,
    /// Members never asked for their assignment.
    SyncTimeout,
}

impl ClassicGroup {
    /// Starts a rebalance, or goes on with the one that is under way.
    pub(crate) fn rebalance(&mut self, reason: Reason, step: &mut Step<'_>) {
        if self.state == State::Preparing && reason == Reason::Member {
            return self.complete_if_all_joined(step);
        }
        self.prepare(step);
    }

    /// Sends everyone to join again. An empty group waits a while for more members to come.
    pub(crate) fn prepare(&mut self, step: &mut Step<'_>) {
        if self.state == State::Completing {
            let ids: Vec<Name> = self.members.keys().cloned().collect();
            for id in ids {
                if let Some(member) = self.members.get_mut(&id) {
                    member.assignment = Box::default();
                }
                self.answer_sync_and_prolong(&id, ErrorCode::RebalanceInProgress, step);
            }
        }
        self.unsynced.clear();
        step.timers.cancel(&Key::group(Kind::Sync, &step.id));
        let was_empty = self.state == State::Empty;
        self.turn(State::Preparing, step.wall_ms);
        if was_empty {
            let delay_ms = i64::from(step.config.initial_rebalance_delay_ms);
            let left_ms = (self.rebalance_timeout_ms() - delay_ms).max(0);
            self.initial = Initial { newcomer: false, step_ms: delay_ms, left_ms };
            step.timers.set(Key::group(Kind::Join, &step.id), step.now_ms + delay_ms);
        } else if self.all_joined() {
            self.complete(step);
        } else {
            let due_ms = step.now_ms + self.rebalance_timeout_ms();
            step.timers.set(Key::group(Kind::Join, &step.id), due_ms);
        }
    }

    /// Goes on to the next generation if nobody is missing; the initial delay is waited out.
    pub(super) fn complete_if_all_joined(&mut self, step: &mut Step<'_>) {
        if self.state == State::Preparing && !self.from_empty && self.all_joined() {
            self.complete(step);
        }
    }

    /// The time to join is over.
    pub(crate) fn join_timeout(&mut self, step: &mut Step<'_>) {
        if self.state != State::Preparing {
            return;
        }
        let Initial { newcomer, step_ms, left_ms } = self.initial;
        if self.from_empty && newcomer && left_ms > 0 {
            let next_ms = i64::from(step.config.initial_rebalance_delay_ms).min(left_ms);
            let left_ms = (left_ms - step_ms).max(0);
            self.initial = Initial { newcomer: false, step_ms: next_ms, left_ms };
            step.timers.set(Key::group(Kind::Join, &step.id), step.now_ms + next_ms);
        } else {
            self.complete(step);
        }
    }

    /// Begins the next generation with those who joined. Static members stay even if they did not.
    fn complete(&mut self, step: &mut Step<'_>) {
        step.timers.cancel(&Key::group(Kind::Join, &step.id));
        let missing: Vec<Name> = self
            .members
            .values()
            .filter(|member| member.join.is_none() && member.instance.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in missing {
            self.remove(&id);
            step.timers.cancel(&Key::member(Kind::Session, &step.id, &id));
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members are left, and none of them is here: wait for another round.
            let due_ms = step.now_ms + self.rebalance_timeout_ms();
            step.timers.set(Key::group(Kind::Join, &step.id), due_ms);
            return;
        }
        self.generation = self.generation.wrapping_add(1);
        self.unsynced.clear();
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.subscribed = self.read_subscriptions();
            self.turn(State::Empty, step.wall_ms);
            let record = self.record(&step.id);
            return step.out.records.push(record);
        }
        self.protocol = self.elect_protocol();
        self.subscribed = self.read_subscriptions();
        self.turn(State::Completing, step.wall_ms);
        self.tell_generation(step);
    }

    /// Answers the joins, the leader's with all members; then everyone must ask for its part.
    fn tell_generation(&mut self, step: &mut Step<'_>) {
        let ids: Vec<Name> = self.members.keys().cloned().collect();
        for id in ids {
            if let Some((token, version)) = self.take_join(&id) {
                let reply = self.join_answer(&id, self.is_leader(&id), false, version);
                step.out.reply(token, reply);
            }
            self.prolong(&id, step);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
            self.unsynced.insert(id);
        }
        let due_ms = step.now_ms + self.rebalance_timeout_ms();
        step.timers.set(Key::group(Kind::Sync, &step.id), due_ms);
    }

    /// Keeps the leader if it joined, else takes the first who did.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |member: &&super::Member| member.join.is_some();
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        if leader.as_ref().is_some_and(joined) {
            return true;
        }
        let first = self.members.values().filter(joined).min_by_key(|member| member.arrival);
        match first.map(|member| member.id.clone()) {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    /// The time to ask for assignments is over: those who did not are out.
    pub(crate) fn sync_timeout(&mut self, step: &mut Step<'_>) {
        if !matches!(self.state, State::Completing | State::Stable) || self.unsynced.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.unsynced) {
            self.remove(&id);
            step.timers.cancel(&Key::member(Kind::Session, &step.id, &id));
        }
        self.rebalance(Reason::SyncTimeout, step);
    }

    /// A member, or an id that never joined, has not been heard of in time.
    pub(crate) fn session_timeout(&mut self, id: &str, step: &mut Step<'_>) {
        if self.pending.remove(id) {
            return self.complete_if_all_joined_late(step);
        }
        if self.members.get(id).is_none_or(super::Member::is_excused) {
            return;
        }
        if let Some((token, version)) = self.take_join(id) {
            step.out.reply(token, join_error("", ErrorCode::UnknownMemberId, version));
        }
        self.answer_sync(id, ErrorCode::UnknownMemberId, step.out);
        self.remove(id);
        match self.state {
            State::Stable | State::Completing => self.rebalance(Reason::Member, step),
            State::Preparing => self.complete_if_all_joined_late(step),
            State::Empty => {}
        }
    }

    /// As after a session has run out: also the initial delay ends if nobody is left to wait for.
    fn complete_if_all_joined_late(&mut self, step: &mut Step<'_>) {
        if self.state == State::Preparing && self.all_joined() {
            self.complete(step);
        }
    }

    /// The member was heard of, or gets an answer it must react to.
    pub(crate) fn prolong(&self, id: &str, step: &mut Step<'_>) {
        if let Some(member) = self.members.get(id) {
            let due_ms = step.now_ms + i64::from(member.session_timeout_ms);
            step.timers.set(Key::member(Kind::Session, &step.id, &member.id), due_ms);
        }
    }

    pub(super) fn answer_sync_and_prolong(
        &mut self,
        id: &str,
        code: ErrorCode,
        step: &mut Step<'_>,
    ) {
        if self.members.get(id).is_some_and(|member| member.sync.is_some()) {
            self.answer_sync(id, code, step.out);
            self.prolong(id, step);
        }
    }
}
