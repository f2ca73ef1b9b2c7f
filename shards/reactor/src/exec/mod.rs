//! The executor of one shard: ready queue, tasks, timers and operations in flight.
//!
//! Lives on the shard's thread, reached through a thread-local. Wakes on the same thread push to
//! the ready queue; wakes from elsewhere go through [`shared::ShardShared`]. Knows no system call:
//! all of those are in the [`Driver`].

mod class;
mod combine;
pub(crate) mod context;
mod ready;
mod runtime;
pub(crate) mod shared;
mod task;
mod timers;
mod usage;

pub(crate) use class::CLASSES;
pub use class::{Class, current_class, spawn_in, with_class, yield_if_due};
pub use combine::{Either, join_all, race, yield_now};
#[cfg(feature = "glommio")]
pub(crate) use runtime::Batch;
pub(crate) use runtime::{Halt, OPS_IN_FLIGHT_MAX, Runtime};
pub use task::{Task, spawn};
pub(crate) use timers::TimerKey;
pub use usage::{ClassUsage, DiskUsage, Usage, usage};
