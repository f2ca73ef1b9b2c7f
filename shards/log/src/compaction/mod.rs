//! Compaction: of every key its latest record stays, at its offset, and older ones go.
//!
//! Lives on the log's shard, in the background. The rules are those of Kafka's cleaner, so that
//! what is left is what Kafka would leave. One pass over one log:
//!
//! 1. [`select`]: from where on keys are not looked at yet (the cleaner point), up to where
//!    batches may be cleaned, and whether it is worth it.
//! 2. [`key_map`]: reads the part that is new and notes the latest offset of each key, within a
//!    bound of memory. If the bound is reached the pass ends at that record; the next goes on.
//! 3. [`group`]: puts segments together whose batches will fit into one.
//! 4. [`rewrite`], batch by batch: which records stay. A batch that keeps all of them is copied as
//!    it is; of others offsets, sequences and producer fields stay as they were.
//! 5. [`output`]: writes the new segment and its indexes as `.cleaned` files, synced.
//! 6. [`swap`]: puts it in the place of the old ones, whole or not at all, whatever crashes.
//! 7. The cleaner point moves, durably: last, so a crash repeats work and loses none.
//!
//! The active segment, undecided transactions and what is younger than `min.compaction.lag.ms`
//! stay as they are. Appends, reads, seals and flushes go on meanwhile; only the swap of a finished
//! group keeps other upkeep waiting. A pass that fails leaves the log as it was, and removes what
//! it has made: nothing here takes a log offline but a failed rename or sync in the middle of a
//! swap. While a log is copied to another disk there is no pass, and one that goes on ends: the
//! copy would begin anew.

mod batches;
mod clean;
mod group;
mod io_budget;
mod key_map;
mod output;
mod rewrite;
mod select;
mod sip;
pub(crate) mod swap;
mod transactions;

pub use clean::CleanOutcome;
pub(crate) use clean::clean;
pub use io_budget::IoBudget;
pub use select::Cleanable;
pub(crate) use select::look;

use std::rc::Rc;

/// The bounds of one pass.
#[derive(Clone)]
pub struct CleanOptions {
    /// Bytes for the map of keys.
    pub key_map_bytes: usize,
    /// How full the map may get, from 0 to 1.
    pub load_factor: f64,
    /// Bytes that one batch may have. One that is stored with more ends the pass with an error; one
    /// that has more when decompressed stays as it is.
    pub batch_bytes: usize,
    /// What all passes of a shard may read and write in a time.
    pub io: Rc<IoBudget>,
    /// The pass fails, as on a full disk, before it leaves fewer bytes free there.
    pub keep_free_bytes: u64,
}

impl Default for CleanOptions {
    fn default() -> Self {
        CleanOptions {
            key_map_bytes: 8 << 20,
            load_factor: 0.9,
            batch_bytes: 64 << 20,
            io: Rc::new(IoBudget::unlimited()),
            keep_free_bytes: 0,
        }
    }
}
