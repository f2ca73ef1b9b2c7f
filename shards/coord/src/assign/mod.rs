//! Assignors: who gets which partitions. Pure functions of members, topics and what members had.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use wire::Uuid;

use crate::parts::Parts;

/// The assignors that the coordinator offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Even shares, and as few moves as even shares allow.
    Uniform,
    /// Neighbouring partitions; members with the same topics get the same numbers of each.
    Range,
}

impl Assignor {
    /// The assignor by the name that clients and configuration give it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Assignor::Uniform),
            "range" => Some(Assignor::Range),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// Parts for each member, in the order the members are given.
    pub(crate) fn assign(
        self,
        members: &[Candidate<'_>],
        topics: &BTreeMap<Uuid, TopicParts<'_>>,
    ) -> Vec<Parts> {
        match self {
            Assignor::Uniform => uniform::assign(members, topics),
            Assignor::Range => range::assign(members, topics),
        }
    }
}

/// A member as assignors see it.
pub(crate) struct Candidate<'a> {
    pub id: &'a str,
    pub instance: Option<&'a str>,
    pub rack: Option<&'a str>,
    pub topics: BTreeSet<Uuid>,
    /// What it has, which it should keep where it can.
    pub current: &'a Parts,
}

/// A topic as assignors see it.
pub(crate) struct TopicParts<'a> {
    pub partitions: i32,
    /// Racks of each partition's replicas.
    pub racks: &'a [Vec<String>],
}

impl TopicParts<'_> {
    fn is_in(&self, partition: i32, rack: Option<&str>) -> bool {
        let racks = usize::try_from(partition).ok().and_then(|at| self.racks.get(at));
        rack.is_some_and(|rack| racks.is_some_and(|racks| racks.iter().any(|it| it == rack)))
    }
}

/// Partitions per member while an assignment is made.
pub(crate) type Shares = Vec<BTreeSet<(Uuid, i32)>>;

pub(crate) fn finished(shares: Shares) -> Vec<Parts> {
    shares.into_iter().map(|share| share.into_iter().collect()).collect()
}
