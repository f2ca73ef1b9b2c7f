//! One partition's log: segments, indexes, appender, cache, recovery, retention.
//!
//! Lives on one shard. The files are Kafka's (see `docs/format.md`); the README of this crate
//! tells the life of an append, of a read and of a recovery.

#![forbid(unsafe_code)]

mod ahead;
mod append;
mod appender;
mod aside;
mod backfill;
mod budget;
mod cancel;
mod checkpoint;
pub mod checkpoints;
mod cold;
mod compaction;
mod config;
mod core;
mod earlier;
pub mod epochs;
mod error;
mod files;
mod graveyard;
mod group_sync;
mod index;
mod indexes;
pub mod inspect;
mod keeper;
mod listed;
mod log;
mod names;
mod open_files;
mod prepare;
mod producer_map;
mod producer_snapshot;
pub mod producer_state;
mod read;
mod recovery;
mod relocate;
mod retention;
mod scan;
mod segment;
mod shared;
mod sound;
mod span;
mod tail;
mod time_index;
mod timestamps;
pub mod txn_index;
mod undecided;
mod verifying;
mod waiters;
mod waits;

pub use append::{Appended, TransactionMarker};
pub use cancel::Cancel;
pub use compaction::{CleanOptions, CleanOutcome, Cleanable, IoBudget};
pub use config::{ClosedAt, LogConfig, OpenHint, Preallocate, Promise, Recovered, Vouched};
pub use core::LogState;
pub use error::{AppendError, LogError, ReadError, StorageError, is_out_of_space};
pub use log::Log;
pub use names::{
    deleted_dir_name, future_dir_name, is_deleted_dir_name, parse_future_dir_name,
    parse_partition_dir_name, partition_dir_name,
};
pub use producer_snapshot::SnapshotDamage;
pub use producer_state::{EndedBy, ProducerRejection, ProducerView};
pub use read::ReadPlan;
pub use recovery::remove_deleted_dirs;
pub use relocate::{Pace, Relocation};
pub use retention::{Hold, RetentionOutcome};
pub use shared::{Failing, LogShared, SharedOptions};
pub use timestamps::OffsetAt;
pub use txn_index::AbortedTxn;
pub use undecided::Undecided;
pub use verifying::Verification;
