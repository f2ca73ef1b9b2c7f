//! One member of a consumer group, and the partitions it holds.

use std::collections::{BTreeMap, BTreeSet};

use wire::Uuid;

use crate::Name;
use crate::classic::Protocols;
use crate::parts::Parts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// Has what its epoch gives it.
    Stable,
    /// Must give partitions up first.
    Unrevoked,
    /// Waits for partitions that others still hold.
    Unreleased,
    /// Read from a log of something newer.
    Unknown,
}

impl MemberState {
    pub fn code(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::Unrevoked => 1,
            MemberState::Unreleased => 2,
            MemberState::Unknown => 127,
        }
    }

    pub fn from_code(code: i8) -> Self {
        match code {
            0 => MemberState::Stable,
            1 => MemberState::Unrevoked,
            2 => MemberState::Unreleased,
            _ => MemberState::Unknown,
        }
    }
}

/// Partitions, each with the epoch in which the member got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(BTreeMap<(Uuid, i32), i32>);

impl Held {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, topic: Uuid, partition: i32) -> bool {
        self.0.contains_key(&(topic, partition))
    }

    pub fn epoch(&self, topic: Uuid, partition: i32) -> Option<i32> {
        self.0.get(&(topic, partition)).copied()
    }

    pub fn insert(&mut self, topic: Uuid, partition: i32, epoch: i32) {
        self.0.insert((topic, partition), epoch);
    }

    pub fn iter(&self) -> impl Iterator<Item = (Uuid, i32, i32)> + '_ {
        self.0.iter().map(|((topic, partition), epoch)| (*topic, *partition, *epoch))
    }

    pub fn parts(&self) -> Parts {
        self.0.keys().copied().collect()
    }

    /// By topic: partitions and their epochs.
    pub fn by_topic(&self) -> BTreeMap<Uuid, (Vec<i32>, Vec<i32>)> {
        let mut topics: BTreeMap<Uuid, (Vec<i32>, Vec<i32>)> = BTreeMap::new();
        for (topic, partition, epoch) in self.iter() {
            let (partitions, epochs) = topics.entry(topic).or_default();
            partitions.push(partition);
            epochs.push(epoch);
        }
        topics
    }
}

impl FromIterator<(Uuid, i32, i32)> for Held {
    fn from_iter<I: IntoIterator<Item = (Uuid, i32, i32)>>(items: I) -> Self {
        Held(items.into_iter().map(|(topic, part, epoch)| ((topic, part), epoch)).collect())
    }
}

/// What makes a member one of the classic protocol inside a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassicFace {
    pub session_timeout_ms: i32,
    pub protocols: Protocols,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub id: Name,
    pub instance: Option<Name>,
    pub rack: Option<Name>,
    pub client_id: Box<str>,
    pub client_host: Box<str>,
    pub topics: BTreeSet<Name>,
    pub regex: Option<Name>,
    pub rebalance_timeout_ms: i32,
    /// Name of the assignor that the member asks for.
    pub assignor: Option<Name>,
    pub classic: Option<ClassicFace>,
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: MemberState,
    pub assigned: Held,
    pub revoking: Held,
}

/// Epoch with which a member joins, leaves, and a static one leaves for a while.
pub(crate) const JOIN_EPOCH: i32 = 0;
pub(crate) const LEAVE_EPOCH: i32 = -1;
pub(crate) const STATIC_LEAVE_EPOCH: i32 = -2;

impl Member {
    pub fn new(id: Name) -> Self {
        Member {
            id,
            instance: None,
            rack: None,
            client_id: Box::default(),
            client_host: Box::default(),
            topics: BTreeSet::new(),
            regex: None,
            rebalance_timeout_ms: -1,
            assignor: None,
            classic: None,
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            assigned: Held::default(),
            revoking: Held::default(),
        }
    }

    /// Whether it is a static member that will be back.
    pub fn is_away(&self) -> bool {
        self.epoch == STATIC_LEAVE_EPOCH
    }

    /// Whether the member has all that the target assignment of an epoch gives it.
    pub fn has_reached(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Another incarnation will hold the partitions: since when is not known of it.
    pub fn forget_epochs(&mut self) {
        let parts = self.assigned.parts();
        self.assigned = parts.iter().map(|(topic, part)| (topic, part, 0)).collect();
    }

    /// The same fields that the member's own record holds.
    pub fn says_the_same(&self, other: &Member) -> bool {
        self.instance == other.instance
            && self.rack == other.rack
            && self.client_id == other.client_id
            && self.client_host == other.client_host
            && self.topics == other.topics
            && self.regex == other.regex
            && self.rebalance_timeout_ms == other.rebalance_timeout_ms
            && self.assignor == other.assignor
            && self.classic == other.classic
    }

    /// The same fields that the record of the member's assignment holds.
    pub fn stands_the_same(&self, other: &Member) -> bool {
        self.epoch == other.epoch
            && self.previous_epoch == other.previous_epoch
            && self.state == other.state
            && self.assigned == other.assigned
            && self.revoking == other.revoking
    }
}
