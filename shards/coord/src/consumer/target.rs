//! The target assignment: who should have what, once all have moved.

use std::collections::BTreeMap;

use wire::Uuid;

use super::subscription::View;
use crate::Name;
use crate::assign::{Assignor, Candidate, TopicParts};
use crate::context::TopicInfo;
use crate::parts::Parts;

/// The assignor that most members ask for, or the default one.
pub(crate) fn preferred(view: &View<'_>, offered: &[Assignor]) -> Assignor {
    let default = offered.first().copied().unwrap_or(Assignor::Uniform);
    let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
    for member in view.members.values() {
        let wanted = member.assignor.as_deref().and_then(Assignor::from_name);
        if let Some(at) = wanted.and_then(|it| offered.iter().position(|known| *known == it)) {
            *votes.entry(at).or_default() += 1;
        }
    }
    // Of equals, the one that is offered first.
    let best = votes.into_iter().max_by_key(|(at, votes)| (*votes, usize::MAX - at));
    best.and_then(|(at, _)| offered.get(at)).copied().unwrap_or(default)
}

/// Assigns the topics' partitions to the members, near to what they had.
pub(crate) fn compute(
    view: &View<'_>,
    before: &BTreeMap<&str, &Parts>,
    topics: &BTreeMap<Name, TopicInfo>,
    assignor: Assignor,
) -> BTreeMap<Name, Parts> {
    let parts: BTreeMap<Uuid, TopicParts<'_>> = topics
        .values()
        .map(|info| (info.id, TopicParts { partitions: info.partitions, racks: &info.racks }))
        .collect();
    let nothing = Parts::default();
    let candidates: Vec<Candidate<'_>> = view
        .members
        .values()
        .map(|member| Candidate {
            id: &member.id,
            instance: member.instance.as_deref(),
            rack: member.rack.as_deref(),
            topics: view
                .topics_of(member)
                .filter_map(|name| topics.get(name).map(|info| info.id))
                .collect(),
            current: before.get(&*member.id).copied().unwrap_or(&nothing),
        })
        .collect();
    let assigned = assignor.assign(&candidates, &parts);
    view.members.values().map(|member| member.id.clone()).zip(assigned).collect()
}
