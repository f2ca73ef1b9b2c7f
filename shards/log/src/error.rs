//! What can go wrong with a log.

use std::io;
use std::rc::Rc;

use thiserror::Error;
use wire::Uuid;

use crate::producer_state::ProducerRejection;

/// Whether an operation failed only because there is no space: what is there is sound.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A failure at the disk, of which some take the log out of service. Cheap to clone: every waiter
/// gets it.
#[derive(Clone, Debug, Error)]
#[error("{during} failed on {dir}: {cause}")]
pub struct StorageError {
    pub dir: Rc<str>,
    /// What was being done.
    pub during: &'static str,
    pub cause: Rc<io::Error>,
}

/// Any operation on a log but `append`.
#[derive(Clone, Debug, Error)]
pub enum LogError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the log in {0} is closed")]
    Closed(Rc<str>),
    /// By compaction only: it waits until the copy is made, or given up.
    #[error("the log in {0} is being copied to another disk")]
    Copied(Rc<str>),
    #[error("{file} is damaged at position {position}: {problem}")]
    Corrupt { file: String, position: u64, problem: String },
    /// A log that was there before.
    #[error("{0} is not there, though the log was opened before; put it back from a copy")]
    Missing(Rc<str>),
    /// The folder is of an earlier topic of the same name.
    #[error("{dir} is of the topic with id {found}, not of {expected}; move it away")]
    Foreign { dir: Rc<str>, found: Uuid, expected: Uuid },
    /// Retention or DeleteRecords took it between the plan and its execution.
    #[error("offset {offset} is gone, the log starts at {start}")]
    Trimmed { offset: i64, start: i64 },
    #[error("offset {offset} is asked for but the log ends at {end}")]
    BeyondEnd { offset: i64, end: i64 },
}

#[derive(Clone, Debug, Error)]
pub enum AppendError {
    #[error(transparent)]
    Producer(#[from] ProducerRejection),
    /// Every byte of the shard's memory for logs waits to be written. Await `Log::room`, retry.
    #[error("the memory for batches that are not yet written is full")]
    Full,
    #[error(transparent)]
    Poisoned(#[from] StorageError),
    #[error("the log in {0} is closed")]
    Closed(Rc<str>),
    /// Offsets are used up. Unreachable in practice, but never wrapped.
    #[error("offset {0} is the last one there is")]
    OffsetsExhausted(i64),
    /// A marker that cannot be made into a batch. Unreachable: it always has one small record.
    #[error("the marker of a transaction cannot be written: {0}")]
    Marker(#[from] wire::records::BatchError),
    /// No segment can hold the batch.
    #[error("a batch of {size} bytes is larger than a segment ({segment_bytes} bytes)")]
    LargerThanSegment { size: usize, segment_bytes: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("offset {offset} is outside the log, which has {start} to {end}")]
    OutOfRange { offset: i64, start: i64, end: i64 },
}
