//! Reading a partition of an internal topic into a new coordinator.
//!
//! In large pieces, with breaks for requests; records are read where they lie.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use coord::CoordError;
use log::{LogError, ReadError};
use wire::records::control::EndTransaction;
use wire::records::{BatchError, BatchView};

use super::Machine;
use crate::partition::Partition;

/// Records read without a break for requests.
const RECORDS_AT_ONCE: usize = 1_000;

/// Why a coordinator could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("unreadable batch: {0}")]
    Batch(#[from] BatchError),
    #[error("at offset {offset}: {error}")]
    Record { offset: i64, error: CoordError },
}

/// What loading came to.
pub(super) struct Loaded<M> {
    pub machine: M,
    pub records: u64,
    pub took: Duration,
}

/// Reads the log as it stands into a new `machine`. `decompressed_max`: bytes that one batch may
/// take when it is opened.
pub(super) async fn load<M: Machine>(
    partition: &Partition,
    mut machine: M,
    piece_bytes: usize,
    decompressed_max: usize,
) -> Result<Loaded<M>, LoadError> {
    let began = reactor::now();
    let log = &partition.log;
    let end = log.log_end_offset();
    // What an earlier coordinator appended may be on its way to the device.
    log.acknowledged(end).await?;
    let mut records = 0;
    let mut next = log.log_start_offset();
    while next < end {
        let plan = match log.plan_read(next, end, piece_bytes, true) {
            // The start moves when segments are deleted.
            Err(ReadError::OutOfRange { start, .. }) if start > next => {
                next = start;
                continue;
            }
            plan => plan?,
        };
        let pieces = plan.execute().await?;
        let bytes = joined(&pieces);
        let before = next;
        for batch in wire::records::batches(&bytes) {
            let batch = batch?;
            records += replay(&mut machine, &batch, decompressed_max).await?;
            next = next.max(batch.header().last_offset() + 1);
        }
        if next == before {
            // Compaction has left a hole up to the end.
            break;
        }
    }
    Ok(Loaded { machine, records, took: began.elapsed() })
}

fn joined(pieces: &[Bytes]) -> Cow<'_, [u8]> {
    match pieces {
        [one] => Cow::Borrowed(one),
        several => Cow::Owned(several.concat()),
    }
}

async fn replay<M: Machine>(
    machine: &mut M,
    batch: &BatchView<'_>,
    decompressed_max: usize,
) -> Result<u64, LoadError> {
    let header = batch.header();
    if header.attributes.is_control() {
        if let Some(end) = EndTransaction::read(batch)? {
            machine.replay_marker(header.producer_id, end.committed);
        }
        return Ok(1);
    }
    let producer = header.attributes.is_transactional().then_some(header.producer_id);
    let mut records = batch.records(decompressed_max)?;
    let mut count = 0;
    while let Some(record) = records.next_record()? {
        let replayed = match record.key {
            Some(key) => machine.replay(key, record.value, producer),
            // Nothing that a coordinator wrote.
            None => Ok(()),
        };
        let offset = record.offset;
        replayed.map_err(|error| LoadError::Record { offset, error })?;
        count += 1;
        if count % RECORDS_AT_ONCE == 0 {
            reactor::yield_if_due().await;
        }
    }
    reactor::yield_if_due().await;
    Ok(count as u64)
}
