//! Records change the state, and nothing else does.

use crate::Name;
use crate::classic::ClassicGroup;
use crate::consumer::{ConsumerGroup, Member, MemberState, Resolved, read_target};
use crate::coordinator::{Coordinator, Group};
use crate::error::CoordError;
use crate::record::Record;
use crate::request::Decision;
use crate::timers::{Key, Kind};

impl Coordinator {
    /// Reads one record of the log, in its order; `producer` if it lies in a transactional batch.
    /// Records of other kinds of groups are passed over.
    pub fn replay(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        producer: Option<i64>,
    ) -> Result<(), CoordError> {
        if let Some(record) = Record::read(key, value)? {
            self.apply(&record, producer, 0);
        }
        Ok(())
    }

    /// A transaction marker: from the log, or just appended to it.
    pub fn replay_marker(&mut self, producer: i64, commit: bool) {
        self.offsets.replay_marker(producer, commit);
    }

    /// The log has been read: from now on members are expected to be heard of, and old offsets to
    /// go. The clocks are those of a [`Context`](crate::Context).
    pub fn loaded(&mut self, now_ms: i64, wall_ms: i64) -> Decision {
        self.loaded = true;
        self.wall_ahead_ms = wall_ms.saturating_sub(now_ms);
        self.sweep.start(now_ms + self.config.offsets_check_interval_ms);
        let mut out = Decision::default();
        let ids: Vec<Name> = self.groups.keys().cloned().collect();
        for id in ids {
            match self.groups.get(&id) {
                Some(Group::Classic(group)) if !group.members.is_empty() => {
                    self.wake_classic(&id, now_ms, &mut out);
                }
                Some(Group::Consumer(group)) if !group.members.is_empty() => {
                    self.wake_consumer(&id, now_ms);
                }
                _ => {}
            }
        }
        self.apply_new(&mut out, now_ms);
        out
    }

    fn wake_classic(&mut self, id: &Name, now_ms: i64, out: &mut Decision) {
        let Some((group, mut step)) = self.classic(id, now_ms, out) else { return };
        let members: Vec<Name> = group.members.keys().cloned().collect();
        for member in &members {
            group.prolong(member, &mut step);
        }
        if members.len() > step.config.classic_members_max {
            // The limit was lowered: who joins first may stay.
            group.prepare(&mut step);
        }
    }

    fn wake_consumer(&mut self, id: &Name, now_ms: i64) {
        let session_ms = self.session_timeout_ms(id);
        let Some(Group::Consumer(group)) = self.groups.get(id) else { return };
        for member in group.members.values() {
            let timeout_ms =
                member.classic.as_ref().map_or(session_ms, |face| face.session_timeout_ms);
            let due_ms = now_ms + i64::from(timeout_ms);
            self.timers.set(Key::member(Kind::Session, id, &member.id), due_ms);
            let must_revoke = member.state == MemberState::Unrevoked && !member.is_away();
            if must_revoke && member.classic.is_none() {
                let due_ms = now_ms + i64::from(member.rebalance_timeout_ms);
                self.timers.set(Key::member(Kind::Revoke, id, &member.id), due_ms);
            }
        }
    }

    /// Applies the records of a decision that have not been applied.
    pub(crate) fn apply_new(&mut self, out: &mut Decision, now_ms: i64) {
        let producer = out.producer.map(|producer| producer.id);
        let wall_ms = now_ms.saturating_add(self.wall_ahead_ms);
        for record in &out.records[out.applied..] {
            self.apply(record, producer, wall_ms);
        }
        out.applied = out.records.len();
    }

    fn apply(&mut self, record: &Record<'_>, producer: Option<i64>, wall_ms: i64) {
        match record {
            Record::OffsetCommit(key, value) => {
                if value.is_some() && !self.groups.contains_key(&*key.group) {
                    // A commit without members makes a simple group.
                    let group = Group::Classic(Box::new(ClassicGroup::new(None)));
                    self.groups.insert(Name::from(&*key.group), group);
                }
                self.offsets.replay(key, value.as_ref(), producer);
            }
            Record::GroupMetadata(key, None) => self.forget_classic(&key.group),
            Record::GroupMetadata(key, Some(value)) => match self.groups.get_mut(&*key.group) {
                Some(Group::Classic(group)) if self.loaded => group.confirm(value, wall_ms),
                _ => {
                    let group = Group::Classic(Box::new(ClassicGroup::from_record(value)));
                    self.groups.insert(Name::from(&*key.group), group);
                }
            },
            Record::ConsumerGroup(key, None) => {
                if let Some(Group::Consumer(_)) = self.groups.get(&*key.group_id) {
                    self.groups.remove(&*key.group_id);
                }
            }
            Record::ConsumerGroup(key, Some(value)) => {
                let group = self.consumer_or_new(&key.group_id);
                group.epoch = value.epoch;
                group.metadata_hash = value.metadata_hash;
            }
            // Nothing that is written any more, and nothing that is needed.
            Record::ConsumerPartitions(..) => {}
            _ => self.apply_in_group(record),
        }
    }

    fn apply_in_group(&mut self, record: &Record<'_>) {
        match record {
            Record::ConsumerMember(key, value) => match value {
                Some(value) => {
                    let group = self.consumer_or_new(&key.group_id);
                    let mut member = group.take_or_new(&key.member_id);
                    member.read(value);
                    group.put_member(member);
                }
                None => {
                    if let Some(group) = self.consumer_mut(&key.group_id) {
                        group.remove_member(&key.member_id);
                    }
                }
            },
            Record::ConsumerCurrent(key, value) => match value {
                Some(value) => {
                    let group = self.consumer_or_new(&key.group_id);
                    let mut member = group.take_or_new(&key.member_id);
                    member.read_current(value);
                    group.put_member(member);
                }
                None => {
                    if let Some(group) = self.consumer_mut(&key.group_id) {
                        group.clear_member(&key.member_id);
                    }
                }
            },
            Record::ConsumerTarget(key, value) => match value {
                Some(value) => {
                    let parts = read_target(value);
                    let group = self.consumer_or_new(&key.group_id);
                    group.targets.insert(Name::from(&*key.member_id), parts);
                }
                None => {
                    if let Some(group) = self.consumer_mut(&key.group_id) {
                        group.targets.remove(&*key.member_id);
                    }
                }
            },
            Record::ConsumerTargetEpoch(key, value) => match value {
                Some(value) => {
                    let group = self.consumer_or_new(&key.group_id);
                    group.assignment_epoch = value.assignment_epoch;
                    group.assignment_ms = value.assignment_timestamp;
                }
                None => {
                    if let Some(group) = self.consumer_mut(&key.group_id) {
                        group.assignment_epoch = 0;
                        group.assignment_ms = 0;
                    }
                }
            },
            Record::ConsumerRegex(key, value) => match value {
                Some(value) => {
                    let topics = value.topics.iter().map(|topic| Name::from(&*topic)).collect();
                    let group = self.consumer_or_new(&key.group_id);
                    let resolved =
                        Resolved { topics, version: value.version, resolved_ms: value.timestamp };
                    group.regexes.insert(Name::from(&*key.regular_expression), resolved);
                }
                None => {
                    if let Some(group) = self.consumer_mut(&key.group_id) {
                        group.regexes.remove(&*key.regular_expression);
                    }
                }
            },
            _ => {}
        }
    }

    fn forget_classic(&mut self, id: &str) {
        if let Some(Group::Classic(_)) = self.groups.get(id) {
            self.groups.remove(id);
        }
    }

    fn consumer_mut(&mut self, id: &str) -> Option<&mut ConsumerGroup> {
        match self.groups.get_mut(id) {
            Some(Group::Consumer(group)) => Some(group),
            _ => None,
        }
    }

    /// The consumer group of that name. What stands in its place is a group that was made by
    /// commits alone, or one whose tombstone the cleaner took before its records.
    fn consumer_or_new(&mut self, id: &str) -> &mut ConsumerGroup {
        let group =
            self.groups.entry(Name::from(id)).or_insert_with(|| Group::Consumer(Box::default()));
        if let Group::Classic(_) = group {
            *group = Group::Consumer(Box::default());
        }
        match group {
            Group::Consumer(group) => group,
            Group::Classic(_) => unreachable!("replaced above"),
        }
    }
}

impl ConsumerGroup {
    fn take_or_new(&mut self, id: &str) -> Member {
        match self.members.get(id) {
            Some(member) => member.clone(),
            None => Member::new(Name::from(id)),
        }
    }

    /// The member holds nothing and is about to go.
    fn clear_member(&mut self, id: &str) {
        if let Some(mut member) = self.members.get(id).cloned() {
            member.assigned = Default::default();
            member.revoking = Default::default();
            self.put_member(member);
        }
    }
}
