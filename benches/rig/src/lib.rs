//! Loads on Kafka-protocol brokers: `corelane bench` and the comparison of Corelane with Apache
//! Kafka.
//!
//! A client, not a broker: no `unsafe`, every load bounded in time or volume. It asserts nothing
//! about speed; it writes down what it saw (`report/`).

#![forbid(unsafe_code)]

pub mod admin;
pub mod backfill;
pub mod bench;
pub mod cluster;
#[cfg(feature = "compare")]
pub mod compare;
#[cfg(feature = "compare")]
pub mod comparison;
#[cfg(feature = "compare")]
pub mod comparison_report;
pub mod connection;
pub mod consume;
#[cfg(feature = "compare")]
pub mod contender;
pub mod disk;
pub mod error;
#[cfg(feature = "compare")]
pub mod expected;
pub mod first;
pub mod groups;
pub mod latency;
#[cfg(feature = "compare")]
pub mod legs;
#[cfg(feature = "compare")]
pub mod nats;
pub mod payload;
#[cfg(feature = "compare")]
pub mod peers;
#[cfg(feature = "compare")]
pub mod plan;
pub mod procfs;
pub mod produce;
pub mod report;
#[cfg(feature = "compare")]
pub mod results;
pub mod sample;
#[cfg(feature = "compare")]
pub mod scale;
pub mod scanned;
#[cfg(feature = "compare")]
pub mod summary;
pub mod sweep;
pub mod tail;
#[cfg(feature = "compare")]
pub mod to_reach;
pub mod txn;
#[cfg(feature = "compare")]
pub mod variants;
