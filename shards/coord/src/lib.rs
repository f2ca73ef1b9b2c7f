//! Consumer groups and transactions as pure machines.
//!
//! A [`Coordinator`] owns the groups of one partition of `__consumer_offsets`: the classic
//! protocol, KIP-848 and committed offsets. A [`txn::TxnCoordinator`] owns the transactional ids of
//! one partition of `__transaction_state`. Each lives on the shard that leads its partition. They
//! do no I/O and know no clock, executor or source of random numbers: requests and the time go in,
//! records and answers come out.

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
mod pattern;
mod record;
mod refuse;
mod replay;
mod request;
mod sweep;
mod timers;
pub mod txn;

use std::sync::Arc;

pub use config::{Config, GroupConfig, Migration};
pub use context::{Context, Token, TopicInfo, Topics};
pub use coordinator::Coordinator;
pub use error::CoordError;
pub use record::Record;
pub use refuse::{join_fetch, split_fetch};
pub use request::{Decision, Producer, Reply, Request};

/// A group, a member, a topic, a transactional id: shared, since each is named in several places.
pub(crate) type Name = Arc<str>;

/// The protocol type of Kafka's own consumers.
pub(crate) const CONSUMER_PROTOCOL: &str = "consumer";
