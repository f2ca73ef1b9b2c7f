//! The metadata image: what the records of the metadata log, applied in order, add up to.
//!
//! Every shard has its own copy and applies the same deltas. Applying one costs what the delta
//! holds, never what the image holds; a copy costs what there are topics, and shares their
//! partitions. Topics are found by name and by id in O(1) and listed by name.

mod delta;
mod nodes;
mod partitions;
mod snapshot;
mod topics;

use std::collections::BTreeMap;

use wire::Uuid;
use wire::messages as m;

pub use delta::{Changes, Delta};
pub use nodes::{Endpoint, Node};
pub use partitions::Partitions;
pub use topics::{NO_LEADER, NodeLoad, Partition, Replicas, Topic};

use crate::config::{Layers, Overrides, Resource, ResourceKind, Settings, StaticConfig};
use crate::error::MetaError;
use crate::node::NodeId;
use crate::record::MetadataRecord;
use topics::Topics;

/// Metadata of the cluster at one offset of the metadata log.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    cluster_id: String,
    /// Offset of the last record applied, -1 before the first.
    offset: i64,
    nodes: BTreeMap<NodeId, Node>,
    topics: Topics,
    overrides: Overrides,
    features: BTreeMap<String, i16>,
    next_producer_id: i64,
}

/// An empty cluster, before the first record.
impl Default for Image {
    fn default() -> Self {
        Image {
            cluster_id: String::new(),
            offset: -1,
            nodes: BTreeMap::new(),
            topics: Topics::default(),
            overrides: Overrides::default(),
            features: BTreeMap::new(),
            next_producer_id: 0,
        }
    }
}

impl Image {
    /// An empty image of a cluster. The id comes from `meta.properties`: no record holds it.
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Image { cluster_id: cluster_id.into(), ..Image::default() }
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Offset of the last record applied, -1 before the first.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Registered shard nodes by id, also those that are fenced.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Whether a node is registered and not fenced.
    pub fn is_alive(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| !node.fenced)
    }

    /// Broker ids with at least one node that is alive, ascending.
    pub fn alive_brokers(&self) -> Vec<i32> {
        let alive = self.nodes.values().filter(|node| !node.fenced);
        let mut brokers: Vec<i32> = alive.map(|node| node.id.broker()).collect();
        brokers.dedup();
        brokers
    }

    pub fn topic_by_name(&self, name: &str) -> Option<&Topic> {
        self.topics.by_name(name)
    }

    pub fn topic_by_id(&self, id: Uuid) -> Option<&Topic> {
        self.topics.by_id(id)
    }

    /// Every topic, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.iter()
    }

    /// Topics from this name on, by name: where a paged listing goes on.
    pub fn topics_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Topic> {
        self.topics.iter_from(name)
    }

    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    pub fn partition(&self, topic: &str, partition: i32) -> Option<&Partition> {
        self.topic_by_name(topic)?.partition(partition)
    }

    /// An existing topic whose name is the same once `.` and `_` are not told apart.
    pub fn colliding_topic(&self, name: &str) -> Option<&str> {
        self.topics.colliding(name)
    }

    /// How many replicas and leaders a node has.
    pub fn load(&self, node: NodeId) -> NodeLoad {
        self.topics.load(node)
    }

    /// How many replicas are recorded in a data directory, by node.
    pub fn in_directory(&self, id: Uuid) -> BTreeMap<NodeId, u32> {
        self.topics.in_directory(id).cloned().unwrap_or_default()
    }

    /// Dynamic settings of a resource, if it has any.
    pub fn configs(&self, resource: &Resource) -> Option<&Settings> {
        self.overrides.of(resource.kind, &resource.name)
    }

    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// What a config look-up by this node needs.
    pub fn layers<'a>(&'a self, fixed: &'a StaticConfig, node: NodeId) -> Layers<'a> {
        Layers { dynamic: &self.overrides, fixed, node: node.0 }
    }

    /// Finalised feature levels, by name.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// The first producer id that no block holds yet.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Applies one record.
    ///
    /// An error means that the log is damaged or not ours. The image is then of no further use.
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<(), MetaError> {
        match record {
            MetadataRecord::RegisterBroker(r) => {
                let node = Node::from_record(r);
                self.nodes.insert(node.id, node);
            }
            MetadataRecord::UnregisterBroker(r) => {
                let id = NodeId(r.broker_id);
                self.nodes.remove(&id).ok_or(MetaError::NoNode(id.0))?;
            }
            MetadataRecord::FenceBroker(r) => self.fence(r.id, true)?,
            MetadataRecord::UnfenceBroker(r) => self.fence(r.id, false)?,
            MetadataRecord::Topic(r) => self.topics.create(r.topic_id, &r.name)?,
            MetadataRecord::Partition(r) => self.topics.set_partition(r)?,
            MetadataRecord::PartitionChange(r) => self.topics.change_partition(r)?,
            MetadataRecord::RemoveTopic(r) => {
                self.remove_topic(r.topic_id)?;
            }
            MetadataRecord::Config(r) => self.set_config(r)?,
            MetadataRecord::FeatureLevel(r) if r.feature_level == 0 => {
                self.features.remove(r.name.as_ref());
            }
            MetadataRecord::FeatureLevel(r) => {
                self.features.insert(r.name.to_string(), r.feature_level);
            }
            MetadataRecord::ProducerIds(r) => self.next_producer_id = r.next_producer_id,
            MetadataRecord::NoOp(_) => {}
        }
        self.offset += 1;
        Ok(())
    }

    fn fence(&mut self, id: i32, fenced: bool) -> Result<(), MetaError> {
        let node = self.nodes.get_mut(&NodeId(id)).ok_or(MetaError::NoNode(id))?;
        node.fenced = fenced;
        Ok(())
    }

    fn remove_topic(&mut self, id: Uuid) -> Result<Topic, MetaError> {
        let topic = self.topics.remove(id)?;
        self.overrides.remove(ResourceKind::Topic, &topic.name);
        Ok(topic)
    }

    fn set_config(&mut self, record: &m::ConfigRecord<'static>) -> Result<(), MetaError> {
        let kind = ResourceKind::from_code(record.resource_type)
            .ok_or(MetaError::ResourceType(record.resource_type))?;
        let resource = Resource::new(kind, record.resource_name.as_ref());
        self.overrides.set(&resource, &record.name, record.value.as_deref());
        Ok(())
    }
}
