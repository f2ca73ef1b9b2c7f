//! The controller's decisions: a request and the image in, records and answers out.
//!
//! One manager a family of records: topics and partitions, configs, nodes and features, producer
//! ids. Nothing here changes the image. The caller appends the records of a decision to the
//! metadata log and applies them before it asks for the next decision; an answer may be sent once
//! its records are durable. The controller lives on one shard at a time.

mod auto_create;
mod cluster;
mod config_checks;
mod configs;
mod features;
mod names;
mod partitions;
mod placement;
mod producer_ids;
mod reassign;
mod topics;

use wire::ErrorCode;

pub use cluster::{
    GROUP_VERSION, METADATA_VERSION, Registration, Restart, TRANSACTION_VERSION, new_cluster_id,
};
pub use configs::{AlterConfigs, ConfigOp, IncrementalAlter, OpKind};
pub use features::FeatureUpdate;
pub use names::{
    CLUSTER_METADATA_TOPIC, GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC,
    is_internal, topic_name_problem,
};
pub use partitions::{CreatePartitions, assign_directory};
pub use producer_ids::{PRODUCER_ID_BLOCK_LEN, ProducerIdBlock};
pub use reassign::{Reassign, ReassignPartition, Reassigned};
pub use topics::{AdoptTopic, CreateTopic, CreatedTopic, DeleteTopic, DeletedTopic};

use crate::config::{BrokerConfig, Layers, StaticConfig};
use crate::image::Image;
use crate::node::NodeId;
use crate::record::MetadataRecord;

/// Most partitions that one request may create, so that its records stay one bounded batch.
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// A source of random numbers, given by the caller.
pub type Entropy<'e> = &'e mut dyn FnMut() -> u64;

/// What to append to the metadata log, and what to answer once it is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<T> {
    pub records: Vec<MetadataRecord>,
    pub outcome: T,
}

/// Why one item of a request was refused. The message is for the client, in Kafka's words where
/// tools know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
}

/// The answer to one item of a request.
pub type Outcome<T> = Result<T, Failure>;

/// A message quotes what the client sent, which may be as long as the protocol's strings get; with
/// the words around it the answer would be too long to encode.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push_str("...");
        }
        Failure { code, message }
    }
}

/// What decisions are made from. Cheap: made anew for each request.
#[derive(Clone, Copy, Debug)]
pub struct Controller<'a> {
    pub image: &'a Image,
    pub config: &'a BrokerConfig,
    pub fixed: &'a StaticConfig,
    /// The node that decides.
    pub node: NodeId,
}

impl<'a> Controller<'a> {
    fn layers(&self) -> Layers<'a> {
        self.image.layers(self.fixed, self.node)
    }
}

/// Positions of the items whose key occurs more than once.
fn repeated<K: Eq + std::hash::Hash + Clone>(keys: impl Iterator<Item = K>) -> ahash::AHashSet<K> {
    let mut seen = ahash::AHashSet::new();
    let mut twice = ahash::AHashSet::new();
    for key in keys {
        if !seen.insert(key.clone()) {
            twice.insert(key);
        }
    }
    twice
}
