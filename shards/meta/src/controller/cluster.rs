//! Brokers and their shards: registering, going away, and what that does to partitions; feature
//! levels; the cluster's id.
//!
//! | event                              | partitions                                                    |
//! |------------------------------------|---------------------------------------------------------------|
//! | broker comes with as many shards   | stay where they are                                           |
//! | broker comes with fewer shards     | replicas of shard s move to shard s mod shards; data does not |
//! | broker comes with more shards      | the new shards get their share; data does not move            |
//! | broker comes after a crash         | leaders keep their place in a new leader epoch                |
//! | broker comes amid a core-to-core move | stays on the old core                                     |
//! | broker is fenced or goes           | leaves the in-sync sets, except where it is the last member   |

use wire::messages as m;
use wire::{ErrorCode, Uuid};

use super::topics::random_uuid;
use super::{Controller, Decision, Entropy, Failure, Outcome};
use crate::image::{Endpoint, NO_LEADER, Node, Partition, Replicas, Topic};
use crate::node::{NodeId, SHARDS_PER_BROKER};
use crate::record::MetadataRecord;

/// Level of the feature `metadata.version` whose records Corelane writes: Kafka's 4.4-IV2.
pub const METADATA_VERSION: (&str, i16) = ("metadata.version", 33);

/// Level of the feature `group.version` that this software brings: with it members may use the
/// KIP-848 protocol.
pub const GROUP_VERSION: (&str, i16) = ("group.version", 1);

/// Level of the feature `transaction.version` that this software brings: with 2 a producer gets a
/// new epoch with every transaction (KIP-890).
pub const TRANSACTION_VERSION: (&str, i16) = ("transaction.version", 2);

/// How the broker's previous run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Clean,
    /// It may have lost records that were not yet as durable as promised: leaders begin a new
    /// epoch, so that clients and followers notice.
    Unclean,
}

/// A broker with all its shards, as it registers at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub broker_id: i32,
    /// New at each start.
    pub incarnation: Uuid,
    pub rack: Option<String>,
    /// The endpoints of each shard; shard s is at position s.
    pub shards: Vec<Vec<Endpoint>>,
    pub restart: Restart,
}

/// A new cluster's id, as `meta.properties` holds it: 22 characters.
pub fn new_cluster_id(entropy: Entropy<'_>) -> String {
    loop {
        let id = random_uuid(entropy).to_string();
        if !id.starts_with('-') {
            return id;
        }
    }
}

impl Controller<'_> {
    /// Sets feature levels that differ from what is set; 0 takes a feature away.
    pub fn set_features(&self, levels: &[(&str, i16)]) -> Decision<()> {
        let set = |name: &str| self.image.features().get(name).copied().unwrap_or(0);
        let changed = levels.iter().filter(|(name, level)| set(name) != *level);
        let records = changed.map(|(name, level)| {
            m::FeatureLevelRecord { name: name.to_string().into(), feature_level: *level }.into()
        });
        Decision { records: records.collect(), outcome: () }
    }

    /// Registers every shard of a broker, moves the replicas of shards that it no longer has, and
    /// takes those shards away. The answer holds the nodes that went.
    pub fn register_broker(&self, r: &Registration) -> Decision<Outcome<Vec<NodeId>>> {
        let shards = r.shards.len();
        if shards == 0 || shards > SHARDS_PER_BROKER as usize {
            let message = format!("a broker has 1 to {SHARDS_PER_BROKER} shards, not {shards}");
            let outcome = Err(Failure::new(ErrorCode::InvalidRequest, message));
            return Decision { records: Vec::new(), outcome };
        }
        let mut records: Vec<MetadataRecord> = Vec::new();
        for (shard, endpoints) in (0..).zip(&r.shards) {
            let node = Node {
                id: NodeId::of(r.broker_id, shard),
                // The offset that this record will have.
                epoch: self.image.offset() + 1 + i64::from(shard),
                incarnation: r.incarnation,
                endpoints: endpoints.clone(),
                rack: r.rack.clone(),
                fenced: false,
            };
            records.push(node.to_record().into());
        }
        let alive = |node: NodeId| node.broker() == r.broker_id || self.image.is_alive(node);
        let mut spread = self.spread(r.broker_id, shards as u16);
        for (topic, id, partition) in self.partitions_of(r.broker_id) {
            let here = partition.replicas.iter().find(|node| node.broker() == r.broker_id);
            let place = spread.place(here.map_or(0, |node| node.shard()));
            let moved = |node: NodeId| match node.broker() == r.broker_id {
                true => NodeId::of(r.broker_id, place),
                false => node,
            };
            let mut next = partition.clone();
            next.replicas = mapped(&partition.replicas, moved);
            next.isr = mapped(&partition.isr, moved);
            // A move from core to core that a crash has ended: the partition is where it was.
            next.adding = mapped(&partition.adding, moved);
            next.removing = mapped(&partition.removing, moved);
            if next.adding.iter().all(|node| node.broker() == r.broker_id) {
                next.adding.clear();
                next.removing.clear();
            }
            next.leader = match partition.leader {
                NO_LEADER => elect(&next, alive),
                leader => moved(leader),
            };
            let led_here = next.leader.broker() == r.broker_id && next.leader != NO_LEADER;
            let new_epoch = r.restart == Restart::Unclean && led_here;
            records.extend(change_record(topic.id, id, partition, &next, new_epoch));
        }
        let vanished: Vec<&Node> = self
            .image
            .nodes()
            .filter(|n| n.id.broker() == r.broker_id && usize::from(n.id.shard()) >= shards)
            .collect();
        records.extend(vanished.iter().map(|node| unregister_record(node)));
        Decision { records, outcome: Ok(vanished.iter().map(|node| node.id).collect()) }
    }

    /// Stops giving a broker to clients, for instance because it does not answer.
    pub fn fence_broker(&self, broker_id: i32) -> Decision<Outcome<()>> {
        self.take_out(broker_id, |node| {
            m::FenceBrokerRecord { id: node.id.0, epoch: node.epoch }.into()
        })
    }

    /// Takes a broker out of the cluster. Its replicas stay in the partitions' lists.
    pub fn unregister_broker(&self, broker_id: i32) -> Decision<Outcome<()>> {
        self.take_out(broker_id, unregister_record)
    }

    fn take_out(
        &self,
        broker_id: i32,
        record: impl Fn(&Node) -> MetadataRecord,
    ) -> Decision<Outcome<()>> {
        let nodes: Vec<&Node> =
            self.image.nodes().filter(|node| node.id.broker() == broker_id).collect();
        if nodes.is_empty() {
            let message = format!("No broker with id {broker_id} found.");
            let outcome = Err(Failure::new(ErrorCode::BrokerIdNotRegistered, message));
            return Decision { records: Vec::new(), outcome };
        }
        let mut records: Vec<MetadataRecord> = nodes.into_iter().map(record).collect();
        let alive = |node: NodeId| node.broker() != broker_id && self.image.is_alive(node);
        for (topic, id, partition) in self.partitions_of(broker_id) {
            let mut next = partition.clone();
            next.isr.retain(|node| node.broker() != broker_id);
            if next.isr.is_empty() {
                // The last one that has every record: nobody may lead until it is back.
                next.isr = partition.isr.clone();
            }
            if !alive(partition.leader) {
                next.leader = elect(&next, alive);
            }
            records.extend(change_record(topic.id, id, partition, &next, false));
        }
        Decision { records, outcome: Ok(()) }
    }

    fn spread(&self, broker_id: i32, shards: u16) -> Spread {
        let nodes = self.image.nodes().filter(|node| node.id.broker() == broker_id);
        let before = u16::try_from(nodes.count()).unwrap_or(shards);
        let partitions = self.partitions_of(broker_id).count();
        let grew = before > 0 && before < shards;
        Spread {
            shards,
            share: if grew { partitions.div_ceil(usize::from(shards)) } else { usize::MAX },
            old: before.min(shards),
            load: vec![0; usize::from(shards)],
        }
    }

    fn partitions_of(&self, broker_id: i32) -> impl Iterator<Item = (&Topic, i32, &Partition)> {
        let all = self.image.topics().flat_map(|topic| {
            (0..).zip(&topic.partitions).map(move |(id, partition)| (topic, id, partition))
        });
        all.filter(move |(_, _, partition)| {
            partition.replicas.iter().any(|node| node.broker() == broker_id)
        })
    }
}

/// Where a broker's partitions go when its number of shards may have changed.
struct Spread {
    shards: u16,
    /// What a shard keeps of its own; the rest goes to the new shards.
    share: usize,
    /// Shards below this one were there before.
    old: u16,
    load: Vec<usize>,
}

impl Spread {
    fn place(&mut self, shard: u16) -> u16 {
        let load = |spread: &Spread, shard: u16| {
            spread.load.get(usize::from(shard)).copied().unwrap_or(usize::MAX)
        };
        let mut place = shard % self.shards;
        if load(self, place) >= self.share {
            let emptiest = (self.old..self.shards).min_by_key(|new| load(self, *new));
            place = emptiest.unwrap_or(place);
        }
        if let Some(count) = self.load.get_mut(usize::from(place)) {
            *count += 1;
        }
        place
    }
}

/// The first replica in the partition's order that is in sync and alive.
fn elect(partition: &Partition, alive: impl Fn(NodeId) -> bool) -> NodeId {
    let mut able = partition.replicas.iter().filter(|r| partition.isr.contains(r) && alive(**r));
    able.next().copied().unwrap_or(NO_LEADER)
}

fn mapped(replicas: &Replicas, to: impl Fn(NodeId) -> NodeId) -> Replicas {
    let mut result = Replicas::new();
    for node in replicas.iter().map(|node| to(*node)) {
        if !result.contains(&node) {
            result.push(node);
        }
    }
    result
}

/// The record that turns a partition into its next state; none if that is the same.
fn change_record(
    topic: Uuid,
    id: i32,
    now: &Partition,
    next: &Partition,
    new_epoch: bool,
) -> Option<MetadataRecord> {
    if now == next && !new_epoch {
        return None;
    }
    let changed = |from: &Replicas, to: &Replicas| {
        (from != to).then(|| to.iter().map(|node| node.0).collect())
    };
    let mut record = m::PartitionChangeRecord {
        partition_id: id,
        topic_id: topic,
        isr: changed(&now.isr, &next.isr),
        replicas: changed(&now.replicas, &next.replicas),
        adding_replicas: changed(&now.adding, &next.adding),
        removing_replicas: changed(&now.removing, &next.removing),
        ..Default::default()
    };
    if now.leader != next.leader || new_epoch {
        record.leader = next.leader.0;
    }
    Some(record.into())
}

fn unregister_record(node: &Node) -> MetadataRecord {
    m::UnregisterBrokerRecord { broker_id: node.id.0, broker_epoch: node.epoch }.into()
}
