//! Topics and partitions, with the indexes that make look-ups O(1).
//!
//! A partition's position in its topic is its id: records create them in order, without gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use ahash::AHashMap;
use smallvec::SmallVec;
use wire::Uuid;
use wire::messages as m;

use super::partitions::Partitions;
use crate::error::MetaError;
use crate::node::NodeId;

/// The node ids of a partition's replicas, the preferred leader first.
pub type Replicas = SmallVec<[NodeId; 2]>;

/// "Nobody" where a leader's node id stands.
pub const NO_LEADER: NodeId = NodeId(-1);

/// In a change record: the leader stays.
const SAME_LEADER: i32 = -2;

/// A topic and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub id: Uuid,
    pub name: Arc<str>,
    pub partitions: Partitions,
}

impl Topic {
    pub fn partition(&self, id: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(id).ok()?)
    }
}

/// One partition: who has it and who leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub replicas: Replicas,
    pub isr: Replicas,
    pub adding: Replicas,
    pub removing: Replicas,
    /// The data directory of each replica, in their order; empty or zero where none is recorded.
    pub directories: SmallVec<[Uuid; 1]>,
    pub leader: NodeId,
    /// One more at each change of the leader.
    pub leader_epoch: i32,
    /// One more at each change.
    pub partition_epoch: i32,
}

impl Partition {
    /// The recorded data directory of this broker's replica.
    pub fn directory_on(&self, broker_id: i32) -> Option<Uuid> {
        let at = self.replicas.iter().position(|node| node.broker() == broker_id)?;
        self.directories.get(at).copied().filter(|id| !id.is_zero())
    }

    /// Whether replicas are on their way from one node to another.
    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }
}

/// What a node carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeLoad {
    pub leaders: u32,
    pub replicas: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Topics {
    /// Copies of an image share what has not changed since.
    by_id: AHashMap<Uuid, Arc<Topic>>,
    by_name: AHashMap<Arc<str>, Uuid>,
    ordered: BTreeMap<Arc<str>, Uuid>,
    /// Names with `.` or `_`, by their form with `_` only.
    collisions: AHashMap<String, BTreeSet<Arc<str>>>,
    load: AHashMap<NodeId, NodeLoad>,
    /// Replicas in each data directory, by node.
    in_directory: AHashMap<Uuid, BTreeMap<NodeId, u32>>,
}

impl Topics {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn by_id(&self, id: Uuid) -> Option<&Topic> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Topic> {
        self.by_id(*self.by_name.get(name)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.ordered.values().filter_map(|id| self.by_id(*id))
    }

    pub(super) fn iter_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Topic> {
        let range = self.ordered.range::<str, _>((Bound::Included(name), Bound::Unbounded));
        range.filter_map(|(_, id)| self.by_id(*id))
    }

    pub(super) fn colliding(&self, name: &str) -> Option<&str> {
        let names = self.collisions.get(&collision_form(name)?)?;
        names.iter().map(|known| known.as_ref()).find(|known| *known != name)
    }

    pub(super) fn load(&self, node: NodeId) -> NodeLoad {
        self.load.get(&node).copied().unwrap_or_default()
    }

    pub(super) fn in_directory(&self, id: Uuid) -> Option<&BTreeMap<NodeId, u32>> {
        self.in_directory.get(&id)
    }

    pub(super) fn create(&mut self, id: Uuid, name: &str) -> Result<(), MetaError> {
        if self.by_id.contains_key(&id) || self.by_name.contains_key(name) {
            return Err(MetaError::TopicTaken { name: name.into(), id });
        }
        let name: Arc<str> = name.into();
        if let Some(form) = collision_form(&name) {
            self.collisions.entry(form).or_default().insert(name.clone());
        }
        self.by_name.insert(name.clone(), id);
        self.ordered.insert(name.clone(), id);
        self.by_id.insert(id, Arc::new(Topic { id, name, partitions: Partitions::default() }));
        Ok(())
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Result<Topic, MetaError> {
        let topic = Arc::unwrap_or_clone(self.by_id.remove(&id).ok_or(MetaError::NoTopic(id))?);
        self.by_name.remove(&topic.name);
        self.ordered.remove(&topic.name);
        if let Some(form) = collision_form(&topic.name)
            && let Some(names) = self.collisions.get_mut(&form)
        {
            names.remove(&topic.name);
            if names.is_empty() {
                self.collisions.remove(&form);
            }
        }
        for partition in &topic.partitions {
            count(&mut self.load, partition, false);
            count_directories(&mut self.in_directory, partition, false);
        }
        Ok(topic)
    }

    pub(super) fn set_partition(&mut self, r: &m::PartitionRecord<'_>) -> Result<(), MetaError> {
        let topic = self.by_id.get_mut(&r.topic_id).ok_or(MetaError::NoTopic(r.topic_id))?;
        let topic = Arc::make_mut(topic);
        let partition = Partition {
            replicas: r.replicas.iter().map(NodeId).collect(),
            isr: r.isr.iter().map(NodeId).collect(),
            adding: r.adding_replicas.iter().map(NodeId).collect(),
            removing: r.removing_replicas.iter().map(NodeId).collect(),
            directories: r.directories.iter().collect(),
            leader: NodeId(r.leader),
            leader_epoch: r.leader_epoch,
            partition_epoch: r.partition_epoch,
        };
        let at = usize::try_from(r.partition_id).unwrap_or(usize::MAX);
        count(&mut self.load, &partition, true);
        count_directories(&mut self.in_directory, &partition, true);
        if let Some(known) = topic.partitions.get_mut(at) {
            count(&mut self.load, known, false);
            count_directories(&mut self.in_directory, known, false);
            *known = partition;
            Ok(())
        } else if at == topic.partitions.len() {
            topic.partitions.push(partition);
            Ok(())
        } else {
            Err(no_partition(topic, r.partition_id))
        }
    }

    pub(super) fn change_partition(
        &mut self,
        r: &m::PartitionChangeRecord<'_>,
    ) -> Result<(), MetaError> {
        let topic = self.by_id.get_mut(&r.topic_id).ok_or(MetaError::NoTopic(r.topic_id))?;
        let topic = Arc::make_mut(topic);
        let at = usize::try_from(r.partition_id).unwrap_or(usize::MAX);
        let Some(partition) = topic.partitions.get_mut(at) else {
            return Err(no_partition(topic, r.partition_id));
        };
        count(&mut self.load, partition, false);
        count_directories(&mut self.in_directory, partition, false);
        let replace = |replicas: &mut Replicas, changed: &Option<wire::Array<'_, i32>>| {
            if let Some(changed) = changed {
                *replicas = changed.iter().map(NodeId).collect();
            }
        };
        replace(&mut partition.replicas, &r.replicas);
        replace(&mut partition.isr, &r.isr);
        replace(&mut partition.adding, &r.adding_replicas);
        replace(&mut partition.removing, &r.removing_replicas);
        if let Some(directories) = &r.directories {
            partition.directories = directories.iter().collect();
        }
        if r.leader != SAME_LEADER {
            partition.leader = NodeId(r.leader);
            partition.leader_epoch = partition.leader_epoch.wrapping_add(1);
        }
        partition.partition_epoch = partition.partition_epoch.wrapping_add(1);
        count(&mut self.load, partition, true);
        count_directories(&mut self.in_directory, partition, true);
        Ok(())
    }
}

fn no_partition(topic: &Topic, partition: i32) -> MetaError {
    MetaError::NoPartition { topic: topic.id, partition, count: topic.partitions.len() }
}

/// Adds a partition to the load of its nodes, or takes it off.
fn count(load: &mut AHashMap<NodeId, NodeLoad>, partition: &Partition, add: bool) {
    let step = |n: &mut u32| *n = if add { *n + 1 } else { n.saturating_sub(1) };
    for node in &partition.replicas {
        let carried = load.entry(*node).or_default();
        step(&mut carried.replicas);
        if *node == partition.leader {
            step(&mut carried.leaders);
        }
        if *carried == NodeLoad::default() {
            load.remove(node);
        }
    }
}

fn count_directories(
    load: &mut AHashMap<Uuid, BTreeMap<NodeId, u32>>,
    partition: &Partition,
    add: bool,
) {
    for (id, node) in partition.directories.iter().zip(&partition.replicas) {
        if id.is_zero() {
            continue;
        }
        let nodes = load.entry(*id).or_default();
        let carried = nodes.entry(*node).or_default();
        *carried = if add { *carried + 1 } else { carried.saturating_sub(1) };
        if *carried == 0 {
            nodes.remove(node);
        }
        if nodes.is_empty() {
            load.remove(id);
        }
    }
}

/// The name with `_` for `.`, if it has either: such names share file and metric names.
fn collision_form(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}
