//! Harness that starts Corelane or Apache Kafka, and the suites that run against either.
//!
//! Owns: broker processes on a temporary directory and free ports (`brokers`), Apache Kafka's jars
//! (`kafka`), and what the client programs under `tests/clients/` have agreed on (`families`).
//! Never does: speak the Kafka protocol beyond one readiness probe; real clients do that.

pub mod brokers;
mod error;
pub mod families;
pub mod kafka;
mod probe;
pub mod repository;

pub use brokers::{Broker, BrokerOptions, Target};
pub use error::{Error, Result};
