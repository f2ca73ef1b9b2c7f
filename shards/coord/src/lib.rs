//! Consumer groups as a pure machine: the classic protocol, KIP-848 and committed offsets.
//!
//! A [`Coordinator`] owns the groups of one partition of `__consumer_offsets` and lives on the shard
//! that leads it. It does no I/O and knows no clock, executor or source of random numbers: requests
//! and the time go in, records and answers come out.

#![forbid(unsafe_code)]

mod admin;
pub mod assign;
mod classic;
mod config;
mod consumer;
mod context;
mod coordinator;
mod error;
mod hash;
mod migrate;
mod offsets;
mod parts;
mod record;
mod refuse;
mod replay;
mod request;
mod timers;

use std::sync::Arc;

pub use config::{Config, GroupConfig, Migration};
pub use context::{Context, Token, TopicInfo, Topics};
pub use coordinator::Coordinator;
pub use error::CoordError;
pub use record::Record;
pub use refuse::{join_fetch, split_fetch};
pub use request::{Decision, Producer, Reply, Request};

/// A group, a member, a topic: shared, since each is named in several places.
pub(crate) type Name = Arc<str>;

/// The protocol type of Kafka's own consumers.
pub(crate) const CONSUMER_PROTOCOL: &str = "consumer";
