//! The range assignor: each topic's partitions in order, in one run a member.
//!
//! Members go by instance id where they have one, else by member id, so that a static member gets
//! the same run again. Topics with as many partitions and the same members are split alike, so
//! equal partition numbers of them meet in one member.

use std::collections::{BTreeMap, BTreeSet};

use wire::Uuid;

use super::{Candidate, Shares, TopicParts, finished};
use crate::parts::Parts;

pub(super) fn assign(
    members: &[Candidate<'_>],
    topics: &BTreeMap<Uuid, TopicParts<'_>>,
) -> Vec<Parts> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    // Static members first, then the others; each by their names.
    order.sort_by_key(|at| {
        let member = &members[*at];
        (member.instance.is_none(), member.instance.unwrap_or(member.id), member.id)
    });
    let mut shares: Shares = vec![BTreeSet::new(); members.len()];
    for (id, topic) in topics {
        let subscribed: Vec<usize> =
            order.iter().copied().filter(|at| members[*at].topics.contains(id)).collect();
        let Ok(count) = i32::try_from(subscribed.len()) else { continue };
        if count == 0 {
            continue;
        }
        let (each, extra) = (topic.partitions / count, topic.partitions % count);
        let mut next = 0;
        for (place, at) in (0..).zip(subscribed) {
            let end = next + each + i32::from(place < extra);
            shares[at].extend((next..end).map(|partition| (*id, partition)));
            next = end;
        }
    }
    finished(shares)
}
