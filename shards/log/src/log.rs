//! The handle on one partition's log: what the rooms above see.
//!
//! Owns nothing but a shared reference; every method delegates to the file that owns the matter.
//! Lives on one shard and is never sent to another.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use wire::Uuid;
use wire::records::BatchView;

use crate::append::{Appended, TransactionMarker};
use crate::cancel::Cancel;
use crate::compaction::{CleanOptions, CleanOutcome, Cleanable};
use crate::config::{ClosedAt, LogConfig, OpenHint, Promise, Recovered};
use crate::core::{Core, LogState};
use crate::epochs::EpochStart;
use crate::error::{AppendError, LogError, ReadError};
use crate::producer_state::ProducerView;
use crate::read::ReadPlan;
use crate::retention::{Hold, RetentionOutcome};
use crate::shared::LogShared;
use crate::timestamps::OffsetAt;
use crate::txn_index::AbortedTxn;
use crate::undecided::Undecided;
use crate::verifying::Verification;
use crate::{checkpoints, compaction, keeper, recovery, retention, timestamps, txn_index};

/// One partition's log. Clones share it.
#[derive(Clone)]
pub struct Log(pub(crate) Rc<Core>);

impl Log {
    /// Opens the log in `dir`, which is created if it is not there, and recovers what a crash
    /// left. `now_ms` is wall-clock time.
    pub async fn open(
        shared: &LogShared,
        dir: PathBuf,
        config: LogConfig,
        hint: OpenHint,
        now_ms: i64,
    ) -> Result<(Log, Recovered), LogError> {
        Log::open_unless(shared, dir, config, hint, now_ms, &Cancel::new()).await
    }

    /// As [`open`](Self::open); ends early, with [`LogError::Closed`], once it is cancelled.
    pub async fn open_unless(
        shared: &LogShared,
        dir: PathBuf,
        config: LogConfig,
        hint: OpenHint,
        now_ms: i64,
        cancel: &Cancel,
    ) -> Result<(Log, Recovered), LogError> {
        let (core, recovered) =
            recovery::open(shared, dir, config, hint, now_ms, cancel.clone()).await?;
        Ok((Log(core), recovered))
    }

    /// Takes a batch: checks its sequence, gives it the next offsets, copies it once into memory
    /// and sees to it that it is written. Synchronous. The batch was validated before.
    pub fn append(
        &self,
        batch: &BatchView<'_>,
        epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.0.append(batch, epoch, now_ms)
    }

    /// Ends a producer's transaction: appends the marker, as the producer's coordinator asks. One that
    /// is late changes nothing.
    pub fn append_marker(
        &self,
        marker: TransactionMarker,
        epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.0.append_marker(marker, epoch, now_ms)
    }

    /// The coordinator is about to be asked whether the producer has a transaction that this log is
    /// part of. `first`: epoch and sequence of the batch that is to begin it.
    pub fn begin_verification(
        &self,
        producer_id: i64,
        first: (i16, i32),
        now_ms: i64,
    ) -> Verification {
        Verification::begin(&self.0, producer_id, first, now_ms)
    }

    /// Whether one transaction more may be open here. A batch of a client is refused otherwise.
    pub fn may_open_transaction(&self) -> bool {
        self.0.state.borrow().producers.may_open_transaction()
    }

    /// Resolves when an append that was refused as `Full` may fit; call it before anything else
    /// is awaited.
    pub async fn room(&self) {
        self.0.shared.budget().room().await;
    }

    /// Until every byte below `next_offset` is as durable as the topic promises.
    pub async fn acknowledged(&self, next_offset: i64) -> Result<(), LogError> {
        self.0.acknowledged(next_offset).await
    }

    /// Resolves at the next change of the visible end, the start or the state of the log. Changes
    /// count from this call on, so: listen, then look, then await.
    pub fn changed(&self) -> impl Future<Output = ()> + Unpin + use<> {
        self.0.changed()
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.0.state.borrow().log_start
    }

    /// The offset that the next batch gets.
    pub fn log_end_offset(&self) -> i64 {
        self.0.state.borrow().log_end()
    }

    /// Everything below is as durable as the topic promises and may be shown to consumers: the
    /// high watermark of a partition with one replica.
    pub fn visible_end_offset(&self) -> i64 {
        self.0.state.borrow().visible_end
    }

    /// Everything below belongs to no open transaction, or is gone: the log may start within one.
    pub fn last_stable_offset(&self) -> i64 {
        let mut state = self.0.state.borrow_mut();
        let (start, visible_end) = (state.log_start, state.visible_end);
        state.producers.advance_high_watermark(visible_end);
        let first_unstable = state.producers.first_unstable_offset();
        first_unstable.map_or(visible_end, |first| first.max(start).min(visible_end))
    }

    /// Everything below is synced with its indexes and producer state.
    pub fn recovery_point(&self) -> i64 {
        self.0.state.borrow().recovery_point
    }

    /// Bytes of batches in all segments.
    pub fn size_bytes(&self) -> u64 {
        self.0.state.borrow().segments.iter().map(|s| u64::from(s.size)).sum()
    }

    /// Everything below is in files.
    pub fn written_end_offset(&self) -> i64 {
        self.0.state.borrow().written_end
    }

    /// Bytes of records that lay behind damage and were set aside.
    pub fn set_aside_bytes(&self) -> u64 {
        self.0.state.borrow().aside.iter().map(|aside| aside.bytes).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.0.state.borrow().segments.len()
    }

    pub fn producer_count(&self) -> usize {
        self.0.state.borrow().producers.len()
    }

    /// About the memory that they take.
    pub fn producer_bytes(&self) -> usize {
        self.0.state.borrow().producers.memory_bytes()
    }

    /// Whether a coordinator is being asked about a transaction here.
    pub fn is_verifying(&self) -> bool {
        self.0.state.borrow().verifying.is_open()
    }

    /// What is known of a producer.
    pub fn producer(&self, producer_id: i64) -> Option<ProducerView> {
        self.0.state.borrow().producers.view(producer_id)
    }

    /// What is known of every producer now, in no order. There may be a hundred thousand: who looks
    /// at all of them lets others run in between, and still sees what was known at first.
    pub fn producers(&self) -> impl Iterator<Item = ProducerView> + use<> {
        self.0.state.borrow().producers.snapshot_views()
    }

    /// The folder, which changes when the log is deleted.
    pub fn dir(&self) -> PathBuf {
        self.0.dir()
    }

    pub fn state(&self) -> LogState {
        self.0.state.borrow().phase.clone()
    }

    /// What an acknowledgement of this log means.
    pub fn promise(&self) -> Promise {
        self.0.state.borrow().promise()
    }

    /// Plans a read of whole batches from the one that contains `from` up to `upper` or the
    /// visible end. `whole_first_batch`: the first batch comes even if it is larger than
    /// `max_bytes`. Synchronous; execute the plan afterwards.
    pub fn plan_read(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
        whole_first_batch: bool,
    ) -> Result<ReadPlan, ReadError> {
        self.0.plan_read(from, upper, max_bytes, whole_first_batch)
    }

    /// The first record below `upper` whose timestamp is at least `timestamp`.
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
        upper: i64,
    ) -> Result<Option<OffsetAt>, LogError> {
        timestamps::first_at_or_after(&self.0, timestamp, upper).await
    }

    /// The first record with the largest timestamp of the log, if it lies below `upper`. It may lie
    /// before the start of the log, if its segment has not gone yet.
    pub async fn offset_of_max_timestamp(&self, upper: i64) -> Result<Option<OffsetAt>, LogError> {
        timestamps::of_newest(&self.0, upper).await
    }

    /// Whether there may be any aborted transaction that ended at or behind `from`. Synchronous,
    /// and almost always `false`.
    pub fn has_aborted_transactions(&self, from: i64) -> bool {
        txn_index::may_overlap(&self.0, from)
    }

    /// The aborted transactions that have records in `from..upper`, by growing abort marker: what
    /// a reader of committed records leaves out.
    pub async fn aborted_transactions(
        &self,
        from: i64,
        upper: i64,
    ) -> Result<Vec<AbortedTxn>, LogError> {
        loop {
            let replaced = self.0.replaced();
            let found = txn_index::overlapping(&self.0, from, upper).await;
            // An index whose segment was replaced meanwhile may have been looked for in vain.
            if self.0.replaced() == replaced {
                return found;
            }
        }
    }

    /// Where the latest epoch at or below `epoch` ends: `(that epoch, end offset)`, -1 for none.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        let state = self.0.state.borrow();
        state.epochs.end_offset_for(epoch, state.log_end())
    }

    /// The leader epoch under which `offset` was written, -1 if unknown.
    pub fn epoch_of_offset(&self, offset: i64) -> i32 {
        self.0.state.borrow().epochs.epoch_of(offset)
    }

    /// The latest leader epoch that wrote to this log.
    pub fn latest_epoch(&self) -> Option<EpochStart> {
        self.0.state.borrow().epochs.latest()
    }

    /// Moves the start of the log up to `to`, durably (DeleteRecords), and removes segments that
    /// lie below.
    pub async fn advance_log_start(&self, to: i64) -> Result<(), LogError> {
        retention::advance_log_start(&self.0, to).await
    }

    /// Removes segments past retention and producers that were silent too long; starts a flush if
    /// a crash would leave much to scan. To be called every few minutes.
    pub async fn enforce_retention(&self, now_ms: i64) -> Result<RetentionOutcome, LogError> {
        retention::enforce(&self.0, now_ms).await
    }

    /// The record whose timestamp keeps segments past retention, as the last round found it.
    pub fn retention_hold(&self) -> Option<Hold> {
        self.0.state.borrow().hold
    }

    /// The open transaction that keeps segments past retention, or from compaction, as they last
    /// looked.
    pub fn undecided_hold(&self) -> Option<Undecided> {
        self.0.state.borrow().undecided.current()
    }

    /// What a pass of compaction would do; `None` if the log is not compacted, or is being copied to
    /// another disk.
    pub async fn cleanable(&self, now_ms: i64) -> Result<Option<Cleanable>, LogError> {
        compaction::look(&self.0, now_ms).await
    }

    /// One pass of compaction, as [`Log::cleanable`] has found it. One at a time.
    pub async fn clean(
        &self,
        found: &Cleanable,
        options: &CleanOptions,
        now_ms: i64,
    ) -> Result<CleanOutcome, LogError> {
        compaction::clean(&self.0, found, options, now_ms).await
    }

    /// Below this offset compaction has looked at every key; `None` if it never ran.
    pub fn cleaner_point(&self) -> Option<i64> {
        self.0.state.borrow().cleaner_point
    }

    /// Makes everything appended so far durable and recovered state cheap: data, indexes, producer
    /// snapshot, epochs. Moves the recovery point.
    pub async fn flush(&self) -> Result<(), LogError> {
        keeper::flush(&self.0).await.map(drop)
    }

    /// New settings, from the next append on.
    pub fn reconfigure(&self, config: LogConfig) {
        self.0.reconfigure(config);
    }

    /// Sees to it that `partition.metadata` names this topic id. Cheap if it does already.
    pub async fn record_topic_id(&self, topic_id: Uuid) -> Result<(), LogError> {
        self.0.state.borrow_mut().topic_id = topic_id;
        let dir = self.0.dir();
        if let Ok(Some(known)) = checkpoints::read_partition_metadata(&dir).await
            && known == topic_id
        {
            return Ok(());
        }
        let written = checkpoints::write_partition_metadata(&dir, topic_id).await;
        written.map_err(|error| self.0.storage_error("writing partition.metadata", error).into())
    }

    /// Flushes, trims and closes the files. Other handles find the log closed.
    pub async fn close(self) -> Result<ClosedAt, LogError> {
        keeper::close(&self.0).await
    }

    /// As [`close`](Self::close), for hundreds of logs that are closed at the same time: they are
    /// synced together, with all else that is on their disk.
    pub async fn close_with_many(self) -> Result<ClosedAt, LogError> {
        self.0.state.borrow_mut().closing_with_many = true;
        keeper::close(&self.0).await
    }

    /// Takes the log offline because its disk does not work: everyone who waits is told. Synchronous.
    pub fn fail(&self, reason: &str) {
        let cause = std::io::Error::other(reason.to_owned());
        self.0.poison(self.0.storage_error("using its data directory", cause));
    }

    /// Takes the log out of service and renames its folder; files are removed after
    /// `file.delete.delay.ms`.
    pub async fn delete(self) -> Result<(), LogError> {
        let parent = self.dir().parent().map(Path::to_path_buf);
        let core = self.0.clone();
        self.delete_unsynced().await?;
        let synced = match parent {
            Some(parent) => reactor::fs::sync_dir(&parent).await,
            None => Ok(()),
        };
        let during = "syncing the folder of a deleted partition";
        synced.map_err(|error| core.storage_error(during, error).into())
    }

    /// As [`delete`](Self::delete), for many at once: the caller syncs the data folder afterwards.
    pub async fn delete_unsynced(self) -> Result<(), LogError> {
        keeper::delete(&self.0).await
    }
}
