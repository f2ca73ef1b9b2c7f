//! The durable log of cluster metadata: `__cluster_metadata-0` in the first data directory.
//!
//! An ordinary log with `flush.messages=1`, owned by shard 0, whose records are Kafka's metadata
//! records, so that `kafka-dump-log --cluster-metadata-decoder` reads it. With a single voter the
//! log is the whole consensus: what is synced here has happened. Now and then a snapshot
//! (`snapshot`) takes the place of what lies below.

mod snapshot;

use std::cell::Cell;
use std::rc::Rc;

use std::path::Path;

use log::{Log, LogConfig, LogShared, OpenHint};
use meta::{Delta, Image, MetadataRecord};
use reactor::Class;
use tracing::{info, warn};
use wire::records::{BatchBuilder, BatchView};

use crate::BrokerError;

pub(crate) const DIR_NAME: &str = "__cluster_metadata-0";
/// The epoch of the single voter.
const EPOCH: i32 = 1;
const SEGMENT_BYTES: u32 = 64 * 1024 * 1024;
/// One read of the replay at start.
const REPLAY_READ_BYTES: usize = 1024 * 1024;
/// The most records that one batch carries (they take effect together).
const BATCH_RECORDS_MAX: usize = 1_000_000;

pub(crate) struct MetadataLog {
    log: Log,
    /// Bytes of records behind the newest snapshot.
    behind: Cell<u64>,
    writing: Rc<Cell<bool>>,
}

impl MetadataLog {
    /// Opens the log, creating it on the first start, and reads back what it adds up to.
    pub async fn open(
        shared: &LogShared,
        data_dir: &Path,
        cluster_id: &str,
        now_ms: i64,
    ) -> Result<(Self, Image), BrokerError> {
        let dir = data_dir.join(DIR_NAME);
        let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
        let snapshots = snapshot::list(&dir).await.map_err(in_dir)?;
        let snapshot = snapshot::load(&dir, &snapshots, cluster_id).await?;
        let config = LogConfig {
            segment_bytes: SEGMENT_BYTES,
            flush_messages: 1,
            retention_ms: -1,
            retention_bytes: -1,
            max_message_bytes: SEGMENT_BYTES,
            ..LogConfig::default()
        };
        // Without some of its metadata the broker would set topics aside and create them anew.
        let hint = OpenHint { leader_epoch: EPOCH, whole: true, ..OpenHint::default() };
        let (log, recovered) = Log::open(shared, dir.clone(), config, hint, now_ms).await?;
        if recovered.truncated_bytes > 0 {
            warn!(
                "{}: the last {} bytes were a write that a crash cut short; they were never \
                 acknowledged and are gone",
                dir.display(),
                recovered.truncated_bytes
            );
        }
        let metadata = MetadataLog { log, behind: Cell::new(0), writing: Rc::default() };
        let mut image = snapshot.unwrap_or_else(|| Image::new(cluster_id));
        metadata.replay(&mut image).await?;
        Ok((metadata, image))
    }

    /// Applies what the log holds behind the image.
    async fn replay(&self, image: &mut Image) -> Result<(), BrokerError> {
        let (start, end) = (self.log.log_start_offset(), self.log.visible_end_offset());
        let mut next = image.offset() + 1;
        if start > next || next > end {
            let reason = format!(
                "the records from offset {next} on are missing, the log holds {start} to {end}; \
                 put its folder back from a copy"
            );
            return Err(BrokerError::MetadataLog(reason));
        }
        while next < end {
            let plan = self.log.plan_read(next, end, REPLAY_READ_BYTES, true)?;
            let pieces = plan.execute().await?;
            let bytes = pieces.concat();
            let before = next;
            let mut records = Vec::new();
            let base_offset = next;
            for batch in wire::records::batches(&bytes) {
                let batch = batch.map_err(corrupt)?;
                self.behind.set(self.behind.get() + batch.bytes().len() as u64);
                let mut all = batch.records(usize::MAX).map_err(corrupt)?;
                while let Some(record) = all.next_record().map_err(corrupt)? {
                    if record.offset < base_offset {
                        continue;
                    }
                    let value = record.value.unwrap_or_default();
                    records.push(MetadataRecord::from_bytes(value).map_err(corrupt)?);
                }
                next = batch.header().last_offset() + 1;
            }
            if next == before {
                return Err(corrupt("a read returned no batch"));
            }
            image.apply_delta(&Delta { base_offset, records: records.into() })?;
        }
        Ok(())
    }

    /// Starts to write a snapshot of the image if more than `every` bytes of records have gathered
    /// since the last one; then the log below can go. Costs one copy of the image here, the rest is
    /// done in the background. A failure is a warning: the log stays as it is.
    pub fn snapshot_if_due(&self, image: &Image, every: u64) {
        if self.behind.get() < every || self.writing.replace(true) {
            return;
        }
        self.behind.set(0);
        let (image, log, writing) = (image.clone(), self.log.clone(), self.writing.clone());
        reactor::spawn_in(Class::Background, async move {
            if let Err(error) = write_snapshot(&image, &log).await {
                warn!("no snapshot of the metadata: {error}");
            }
            writing.set(false);
        })
        .detach();
    }

    /// Makes the records durable, all or none; returns the offset of the first.
    pub async fn commit(
        &self,
        records: &[MetadataRecord],
        now_ms: i64,
    ) -> Result<i64, BrokerError> {
        assert!(!records.is_empty() && records.len() <= BATCH_RECORDS_MAX);
        let mut builder = BatchBuilder::new();
        for record in records {
            builder.append(now_ms, None, Some(&record.to_bytes()?));
        }
        let bytes = builder.build().map_err(corrupt)?;
        let batch = BatchView::parse(&bytes).map_err(corrupt)?;
        let appended = loop {
            match self.log.append(&batch, EPOCH, now_ms) {
                Ok(appended) => break appended,
                Err(log::AppendError::Full) => self.log.room().await,
                Err(error) => return Err(BrokerError::MetadataLog(error.to_string())),
            }
        };
        self.log.acknowledged(appended.last_offset + 1).await?;
        self.behind.set(self.behind.get() + bytes.len() as u64);
        Ok(appended.base_offset)
    }

    pub async fn close(self) -> Result<(), BrokerError> {
        self.log.close().await?;
        Ok(())
    }
}

async fn write_snapshot(image: &Image, log: &Log) -> Result<(), BrokerError> {
    let dir = log.dir();
    let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
    snapshot::write(&dir, image, EPOCH, reactor::wall_clock_ms()).await?;
    if let Some(end) = snapshot::prune(&dir).await.map_err(in_dir)? {
        log.advance_log_start(end).await?;
        info!("the metadata log begins at offset {}", log.log_start_offset());
    }
    Ok(())
}

fn corrupt(reason: impl std::fmt::Display) -> BrokerError {
    BrokerError::MetadataLog(format!("unreadable record: {reason}"))
}
