//! Where new partitions go.
//!
//! A host is the failure domain: a replication factor counts brokers, and no broker gets two
//! replicas of a partition. Brokers take turns, racks first; within a broker the shard is taken
//! that leads the fewest partitions of this topic, then the fewest of all.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ahash::AHashMap;
use wire::ErrorCode;

use super::{Entropy, Failure, Outcome};
use crate::image::{Image, NodeLoad, Replicas, Topic};
use crate::node::NodeId;

/// Places the partitions of one request; remembers what it placed.
pub(super) struct Placer {
    /// Brokers with their alive shards, racks taking turns.
    brokers: Vec<Host>,
    /// What each node would carry after the request.
    load: AHashMap<NodeId, NodeLoad>,
    /// The same for the topic at hand.
    topic: AHashMap<NodeId, NodeLoad>,
    /// Which broker leads the next partition.
    turn: usize,
}

struct Host {
    rack: Option<String>,
    shards: Vec<NodeId>,
}

impl Placer {
    pub(super) fn new(image: &Image, entropy: Entropy<'_>) -> Self {
        let brokers = hosts(image);
        // A random start, so that many one-partition topics do not all go to the first broker.
        let turn = match brokers.len() {
            0 | 1 => 0,
            n => (entropy() % n as u64) as usize,
        };
        let nodes = brokers.iter().flat_map(|host| &host.shards);
        let load = nodes.map(|node| (*node, image.load(*node))).collect();
        Placer { brokers, load, topic: AHashMap::new(), turn }
    }

    /// Begins with another topic, counting the partitions that it already has.
    pub(super) fn begin_topic(&mut self, existing: Option<&Topic>) {
        self.topic.clear();
        for partition in existing.into_iter().flat_map(|topic| &topic.partitions) {
            for replica in &partition.replicas {
                let carried = self.topic.entry(*replica).or_default();
                carried.replicas += 1;
                carried.leaders += u32::from(partition.leader == *replica);
            }
        }
    }

    /// Replicas for `count` partitions, the preferred leader of each first.
    pub(super) fn place(&mut self, count: usize, factor: i16) -> Outcome<Vec<Replicas>> {
        let fail = |reason: String| {
            Err(Failure::new(
                ErrorCode::InvalidReplicationFactor,
                format!("Unable to replicate the partition {factor} time(s): {reason}"),
            ))
        };
        if self.brokers.is_empty() {
            return fail("All brokers are currently fenced.".into());
        }
        let wanted = usize::try_from(factor).unwrap_or(0);
        if wanted > self.brokers.len() {
            return fail(format!(
                "The target replication factor of {factor} cannot be reached because only {} \
                 broker(s) are registered.",
                self.brokers.len()
            ));
        }
        Ok((0..count).map(|_| self.place_one(wanted)).collect())
    }

    fn place_one(&mut self, factor: usize) -> Replicas {
        let mut replicas = Replicas::new();
        for at in self.pick_brokers(factor) {
            let leads = replicas.is_empty();
            let Some(node) = self.pick_shard(at, leads) else { continue };
            for load in [&mut self.load, &mut self.topic] {
                let carried = load.entry(node).or_default();
                carried.replicas += 1;
                carried.leaders += u32::from(leads);
            }
            replicas.push(node);
        }
        self.turn = (self.turn + 1) % self.brokers.len().max(1);
        replicas
    }

    /// Brokers from the current turn on, one of each rack before any rack's second.
    fn pick_brokers(&self, factor: usize) -> Vec<usize> {
        let n = self.brokers.len();
        let mut chosen: Vec<usize> = Vec::with_capacity(factor);
        let in_turn = || (0..n).map(|step| (self.turn + step) % n);
        for at in in_turn() {
            let new_rack = chosen.iter().all(|c| self.brokers[*c].rack != self.brokers[at].rack);
            if chosen.len() < factor && new_rack {
                chosen.push(at);
            }
        }
        for at in in_turn() {
            if chosen.len() < factor && !chosen.contains(&at) {
                chosen.push(at);
            }
        }
        chosen
    }

    fn pick_shard(&self, broker: usize, leads: bool) -> Option<NodeId> {
        let of = |load: &AHashMap<NodeId, NodeLoad>, node: &NodeId| {
            let carried = load.get(node).copied().unwrap_or_default();
            if leads { (carried.leaders, carried.replicas) } else { (carried.replicas, 0) }
        };
        let shards = self.brokers.get(broker)?.shards.iter();
        shards.min_by_key(|node| (of(&self.topic, node), of(&self.load, node), **node)).copied()
    }
}

/// Alive brokers in an order in which neighbours are on different racks as far as possible.
fn hosts(image: &Image) -> Vec<Host> {
    let mut brokers: BTreeMap<i32, Host> = BTreeMap::new();
    for node in image.nodes().filter(|node| !node.fenced) {
        let host = brokers
            .entry(node.id.broker())
            .or_insert_with(|| Host { rack: node.rack.clone(), shards: Vec::new() });
        host.shards.push(node.id);
    }
    let mut racks: BTreeMap<Option<String>, Vec<Host>> = BTreeMap::new();
    for host in brokers.into_values().rev() {
        racks.entry(host.rack.clone()).or_default().push(host);
    }
    // Largest rack first: the leftovers of uneven racks then meet at the end.
    let mut racks: Vec<Vec<Host>> = racks.into_values().collect();
    racks.sort_by_key(|hosts| Reverse(hosts.len()));
    let mut order = Vec::new();
    while racks.iter().any(|hosts| !hosts.is_empty()) {
        order.extend(racks.iter_mut().filter_map(Vec::pop));
    }
    order
}
