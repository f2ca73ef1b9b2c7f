//! The marker that ends a producer's transaction, in a partition that is led here.
//!
//! Owns: the way of a marker into a log, whoever asks: an operator who ends a transaction that hangs, or
//! the coordinator of its transactional id. In `__consumer_offsets` it goes through the coordinator of
//! the groups, whose offsets of the transaction count from then on, or are gone.

use std::rc::Rc;

use log::{AppendError, TransactionMarker};
use wire::ErrorCode;

use crate::fetch_session::TopicRef;
use crate::partition::Partition;
use crate::shard::Shard;
use crate::{errors, groups};

/// From this transaction.version on (KIP-890) a marker has a higher epoch than the batches it ends.
pub(crate) const RAISES_EPOCH: i16 = 2;
/// Partitions of one marker that wait for it at the same time.
pub(crate) const WRITTEN_AT_ONCE: usize = 256;

/// Appends the marker and waits until it is as safe as a produce with acks=all.
///
/// # Errors
/// `INVALID_PRODUCER_EPOCH` or `TRANSACTION_COORDINATOR_FENCED`: it is late, and must not be sent again.
/// `KAFKA_STORAGE_ERROR`: there is no space for it now.
pub(crate) async fn write(
    shard: &Rc<Shard>,
    topic: &TopicRef,
    index: i32,
    marker: TransactionMarker,
) -> Result<(), ErrorCode> {
    let open = shard.partition_when_open(topic, index).await;
    let partition = open.map_err(|not_here| not_here.error)?;
    let end = append(shard, &partition, marker).await?;
    partition.log.acknowledged(end).await.map_err(|error| errors::of_log(&error))
}

/// Returns where the log ends then.
async fn append(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    marker: TransactionMarker,
) -> Result<i64, ErrorCode> {
    // A write that finds no space would take the partition from its readers.
    if shard.dirs.is_exhausted(partition.dir_number) {
        return Err(ErrorCode::KafkaStorageError);
    }
    if groups::has_groups(partition) {
        return groups::end_transaction(shard, partition, marker).await;
    }
    loop {
        let now_ms = reactor::wall_clock_ms();
        match partition.log.append_marker(marker, partition.leader_epoch(), now_ms) {
            Ok(done) => return Ok(done.last_offset + 1),
            Err(AppendError::Full) => partition.log.room().await,
            Err(error) => return Err(errors::of_append(&error)),
        }
    }
}
