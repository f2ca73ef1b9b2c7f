//! A consumer group (KIP-848): the coordinator assigns, members reconcile one by one.
//!
//! | state | means |
//! |---|---|
//! | Empty | no members |
//! | Assigning | the group's epoch is ahead of the target assignment's |
//! | Reconciling | a member has not reached the target assignment |
//! | Stable | all have |
//!
//! Everything but deadlines and what was last seen of the cluster's topics comes from records.

mod describe;
mod heartbeat;
mod leave;
mod member;
mod reconcile;
mod records;
mod regex;
mod subscription;
mod target;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use ahash::AHashMap;
use wire::{ErrorCode, Uuid};

pub(crate) use member::{ClassicFace, Held, Member, MemberState};
pub(crate) use records::read_target;
pub(crate) use update::{Opening, Update};

use crate::Name;
use crate::error::Refusal;
use crate::offsets::{Committer, Retention};
use crate::parts::Parts;

/// Members of the consumer protocol commit with their epoch from this version on.
const EPOCH_COMMITS_FROM: i16 = 9;

/// A regular expression of the group's members, and the topics it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub topics: BTreeSet<Name>,
    /// Version of the cluster's topics it was resolved with.
    pub version: i64,
    pub resolved_ms: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ConsumerGroup {
    pub epoch: i32,
    /// What the subscribed topics looked like at that epoch.
    pub metadata_hash: i64,
    /// Epoch of the target assignment, and when it was made.
    pub assignment_epoch: i32,
    pub assignment_ms: i64,
    pub members: BTreeMap<Name, Member>,
    /// Member ids by instance id.
    pub statics: BTreeMap<Name, Name>,
    pub targets: BTreeMap<Name, Parts>,
    pub regexes: BTreeMap<Name, Resolved>,
    /// Who holds a partition, be it only until it is given up.
    pub owners: AHashMap<(Uuid, i32), Name>,
    pub looked: Looked,
}

/// What the group has seen of the cluster's topics since it was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// Version that the group's own topics were compared with.
    pub topics_version: Option<i64>,
    /// Version and time at which expressions were resolved.
    pub regexes: Option<(i64, i64)>,
}

impl ConsumerGroup {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(|member| member.has_reached(self.assignment_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// The member that holds a partition.
    pub fn owner(&self, topic: Uuid, partition: i32) -> Option<&Name> {
        self.owners.get(&(topic, partition))
    }

    /// The member as it is now, in place of what it was.
    pub fn put_member(&mut self, member: Member) {
        let old = self.members.remove(&member.id);
        if let Some(old) = &old {
            self.release(old);
        }
        for (topic, partition, _) in member.assigned.iter().chain(member.revoking.iter()) {
            self.owners.insert((topic, partition), member.id.clone());
        }
        if let Some(instance) = &member.instance {
            self.statics.insert(instance.clone(), member.id.clone());
        }
        self.members.insert(member.id.clone(), member);
    }

    pub fn remove_member(&mut self, id: &str) {
        let Some(old) = self.members.remove(id) else { return };
        self.release(&old);
        if let Some(instance) = &old.instance
            && self.statics.get(instance).is_some_and(|known| **known == *id)
        {
            self.statics.remove(instance);
        }
    }

    fn release(&mut self, member: &Member) {
        for (topic, partition, _) in member.assigned.iter().chain(member.revoking.iter()) {
            if self.owners.get(&(topic, partition)).is_some_and(|owner| *owner == member.id) {
                self.owners.remove(&(topic, partition));
            }
        }
    }

    pub fn classic_members(&self) -> usize {
        self.members.values().filter(|member| member.classic.is_some()).count()
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.members.values().any(|member| {
            member.topics.contains(topic)
                || member
                    .regex
                    .as_ref()
                    .and_then(|regex| self.regexes.get(regex))
                    .is_some_and(|resolved| resolved.topics.contains(topic))
        })
    }

    pub fn retention(&self) -> Retention {
        Retention::FromCommit
    }

    /// Whether partitions of the member's target are still with others.
    pub fn waits_for_others(&self, member: &Member) -> bool {
        let target = self.targets.get(&member.id);
        member.state == MemberState::Unreleased
            && target.is_some_and(|target| {
                target.iter().any(|(topic, partition)| {
                    !member.assigned.contains(topic, partition)
                        && self.owner(topic, partition).is_some()
                })
            })
    }

    pub fn may_commit(&self, committer: &Committer<'_>) -> Result<(), Refusal> {
        if committer.epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let nameless = committer.member.is_empty() && committer.instance.is_none();
        if committer.transactional && committer.epoch == -1 && nameless {
            return Ok(());
        }
        let member = self.member(committer.member)?;
        let classic = member.classic.is_some();
        if !committer.transactional && !classic && committer.version < EPOCH_COMMITS_FROM {
            return Err(ErrorCode::UnsupportedVersion.into());
        }
        if committer.epoch > member.epoch {
            return Err(stale(classic).into());
        }
        Ok(())
    }

    /// With an epoch of before, a member may still commit what it has held since then (KIP-1251).
    pub fn may_commit_partitions(
        &self,
        committer: &Committer<'_>,
        mut partitions: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), Refusal> {
        let Some(member) = self.members.get(committer.member) else { return Ok(()) };
        if committer.epoch == member.epoch || committer.epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let held_since = |(topic, partition)| {
            let since = member.assigned.epoch(topic, partition);
            since.or_else(|| member.revoking.epoch(topic, partition))
        };
        let all_held =
            partitions.all(|part| held_since(part).is_some_and(|it| it <= committer.epoch));
        match all_held {
            true => Ok(()),
            false => Err(stale(member.classic.is_some()).into()),
        }
    }

    pub fn may_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), Refusal> {
        if member.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = self.member(member.unwrap_or_default())?;
        match member.epoch == epoch {
            true => Ok(()),
            false => Err(stale(member.classic.is_some()).into()),
        }
    }

    pub fn member(&self, id: &str) -> Result<&Member, Refusal> {
        self.members.get(id).ok_or_else(|| {
            Refusal::new(
                ErrorCode::UnknownMemberId,
                format!("Member {id} is not a member of the group."),
            )
        })
    }

    pub fn static_member(&self, instance: &str) -> Option<&Member> {
        self.statics.get(instance).and_then(|id| self.members.get(id))
    }
}

fn stale(classic: bool) -> ErrorCode {
    if classic { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch }
}
