//! Cluster metadata: image, deltas, controller managers and the configuration registry.
//!
//! Everything here is pure: no I/O, no clock, no random numbers; what is needed of them is an argument.

#![forbid(unsafe_code)]

pub mod config;
mod node;

pub use node::{NodeId, SHARDS_PER_BROKER};
