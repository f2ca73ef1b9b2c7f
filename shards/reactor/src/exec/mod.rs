//! The executor of one shard: ready queue, tasks, timers and operations in flight.
//!
//! Lives on the shard's thread, reached through a thread-local. Wakes on the same thread push to
//! the ready queue; wakes from elsewhere go through [`shared::ShardShared`]. Knows no system call:
//! all of those are in the [`Driver`].

mod combine;
pub(crate) mod context;
mod runtime;
pub(crate) mod shared;
mod task;
mod timers;

pub use combine::{Either, join_all, race, yield_now};
pub(crate) use runtime::{Halt, OPS_IN_FLIGHT_MAX, Runtime};
pub use task::{Task, spawn};
pub(crate) use timers::TimerKey;
