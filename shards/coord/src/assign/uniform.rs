//! The uniform assignor: no member has two partitions more than another that could have taken one,
//! and what can stay where it is stays.
//!
//! 1. Every member keeps what it has and still subscribes to; where all subscribe alike, up to its
//!    share.
//! 2. What is left goes to the members with the least, those in a rack of the partition first.
//! 3. While a member has two more than another that could take one of its partitions, it gives one
//!    away.
//!
//! Step 3 ends because every move makes the sum of squares smaller; it has nothing to do where all
//! subscribe alike.

use std::collections::{BTreeMap, BTreeSet};

use ahash::AHashMap;
use wire::Uuid;

use super::{Candidate, Shares, TopicParts, finished};
use crate::parts::Parts;

pub(super) fn assign(
    members: &[Candidate<'_>],
    topics: &BTreeMap<Uuid, TopicParts<'_>>,
) -> Vec<Parts> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut work = Work::new(members, topics);
    work.keep();
    work.hand_out();
    work.balance();
    finished(work.shares)
}

struct Work<'a> {
    members: &'a [Candidate<'a>],
    topics: &'a BTreeMap<Uuid, TopicParts<'a>>,
    /// Members that subscribe to a topic.
    subscribers: BTreeMap<Uuid, Vec<usize>>,
    shares: Shares,
    owners: AHashMap<(Uuid, i32), usize>,
}

impl<'a> Work<'a> {
    fn new(members: &'a [Candidate<'a>], topics: &'a BTreeMap<Uuid, TopicParts<'a>>) -> Self {
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            for topic in member.topics.iter().filter(|topic| topics.contains_key(topic)) {
                subscribers.entry(*topic).or_default().push(at);
            }
        }
        let shares = vec![BTreeSet::new(); members.len()];
        Work { members, topics, subscribers, shares, owners: AHashMap::new() }
    }

    fn is_alike(&self) -> bool {
        self.subscribers.values().all(|members| members.len() == self.members.len())
    }

    fn total(&self) -> usize {
        let counts = self.subscribers.keys().filter_map(|topic| self.topics.get(topic));
        counts.map(|topic| usize::try_from(topic.partitions).unwrap_or(0)).sum()
    }

    /// Step 1. Of the members with more than the even share, as many keep one more as there is
    /// remainder; the rest of theirs is handed out.
    fn keep(&mut self) {
        let alike = self.is_alike();
        let (each, mut extra) =
            (self.total() / self.members.len(), self.total() % self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            let valid = member.current.iter().filter(|(topic, partition)| {
                let exists =
                    self.topics.get(topic).is_some_and(|it| (0..it.partitions).contains(partition));
                exists
                    && member.topics.contains(topic)
                    && !self.owners.contains_key(&(*topic, *partition))
            });
            let mut kept: Vec<(Uuid, i32)> = valid.collect();
            if alike && kept.len() > each {
                // Those in its own rack are kept rather than others.
                kept.sort_by_key(|(topic, partition)| {
                    !self.topics[topic].is_in(*partition, member.rack)
                });
                let more = usize::from(extra > 0);
                kept.truncate(each + more);
                extra -= more;
            }
            for part in kept {
                self.owners.insert(part, at);
                self.shares[at].insert(part);
            }
        }
    }

    /// Step 2. Topics that few subscribe to come first, as they have the least choice.
    fn hand_out(&mut self) {
        let mut order: Vec<(usize, Uuid)> =
            self.subscribers.iter().map(|(topic, members)| (members.len(), *topic)).collect();
        order.sort_unstable();
        for (_, topic) in order {
            let parts = &self.topics[&topic];
            // By load: the candidates for the next partition, always the least loaded.
            let mut by_load: BTreeSet<(usize, usize)> =
                self.subscribers[&topic].iter().map(|at| (self.shares[*at].len(), *at)).collect();
            for partition in 0..parts.partitions {
                if self.owners.contains_key(&(topic, partition)) {
                    continue;
                }
                let Some((least, first)) = by_load.first().copied() else { break };
                let equals = by_load.iter().take_while(|(load, _)| *load == least);
                let near = equals
                    .map(|(_, at)| *at)
                    .find(|at| parts.is_in(partition, self.members[*at].rack));
                let taker = near.unwrap_or(first);
                by_load.remove(&(least, taker));
                by_load.insert((least + 1, taker));
                self.owners.insert((topic, partition), taker);
                self.shares[taker].insert((topic, partition));
            }
        }
    }

    /// Step 3. A pass goes over the topics; it is repeated until nothing moves.
    fn balance(&mut self) {
        loop {
            let mut moved = false;
            for (topic, subscribers) in &self.subscribers {
                let mut by_load: BTreeSet<(usize, usize)> =
                    subscribers.iter().map(|at| (self.shares[*at].len(), *at)).collect();
                while let Some((least, taker)) = by_load.first().copied() {
                    // The most loaded one that has a partition of this topic to give.
                    let giver = by_load.iter().rev().find_map(|(load, at)| {
                        let given = self.given(*at, *topic, taker)?;
                        Some((*load, *at, given))
                    });
                    let Some((load, giver, part)) = giver else { break };
                    if load < least + 2 {
                        break;
                    }
                    self.shares[giver].remove(&part);
                    self.shares[taker].insert(part);
                    self.owners.insert(part, taker);
                    by_load.remove(&(load, giver));
                    by_load.remove(&(least, taker));
                    by_load.insert((load - 1, giver));
                    by_load.insert((least + 1, taker));
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// A partition of the topic that a member would give to another: what it did not have before,
    /// or what the other had, rather than what it keeps from before.
    fn given(&self, giver: usize, topic: Uuid, taker: usize) -> Option<(Uuid, i32)> {
        let mine = self.shares[giver].range((topic, i32::MIN)..=(topic, i32::MAX));
        let cost = |part: &&(Uuid, i32)| {
            let (topic, partition) = **part;
            let had = self.members[giver].current.contains(topic, partition);
            let comes_home = self.members[taker].current.contains(topic, partition);
            u8::from(had) + u8::from(!comes_home)
        };
        mine.min_by_key(cost).copied()
    }
}
