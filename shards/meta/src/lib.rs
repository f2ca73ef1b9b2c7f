//! Cluster metadata: image, deltas, controller managers and the configuration registry.
//!
//! Everything here is pure: no I/O, no clock, no random numbers; what is needed of them is an
//! argument.

#![forbid(unsafe_code)]

pub mod config;
pub mod controller;
mod error;
mod image;
mod node;
mod record;

pub use controller::{Controller, Decision, Entropy, Failure, Outcome};
pub use error::MetaError;
pub use image::{
    Changes, Delta, Endpoint, Image, NO_LEADER, Node, NodeLoad, Partition, Partitions, Replicas,
    Topic,
};
pub use node::{NodeId, SHARDS_PER_BROKER};
pub use record::MetadataRecord;
