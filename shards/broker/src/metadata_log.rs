//! The durable log of cluster metadata: `__cluster_metadata-0` in the first data directory.
//!
//! An ordinary log with `flush.messages=1`, owned by shard 0, whose records are Kafka's metadata
//! records, so that `kafka-dump-log --cluster-metadata-decoder` reads it. With a single voter the
//! log is the whole consensus: what is synced here has happened.

use std::path::Path;

use log::{Log, LogConfig, LogShared, OpenHint};
use meta::MetadataRecord;
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
}

impl MetadataLog {
    /// Opens the log, creating it on the first start, and reads back every record.
    pub async fn open(
        shared: &LogShared,
        data_dir: &Path,
        now_ms: i64,
    ) -> Result<(Self, Vec<MetadataRecord>), BrokerError> {
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
        let (log, _) = Log::open(shared, data_dir.join(DIR_NAME), config, hint, now_ms).await?;
        let metadata = MetadataLog { log };
        let records = metadata.replay().await?;
        Ok((metadata, records))
    }

    async fn replay(&self) -> Result<Vec<MetadataRecord>, BrokerError> {
        let mut records = Vec::new();
        let end = self.log.visible_end_offset();
        let mut next = self.log.log_start_offset();
        while next < end {
            let plan = self.log.plan_read(next, end, REPLAY_READ_BYTES, true)?;
            let pieces = plan.execute().await?;
            let bytes = pieces.concat();
            let before = next;
            for batch in wire::records::batches(&bytes) {
                let batch = batch.map_err(corrupt)?;
                let mut all = batch.records(usize::MAX).map_err(corrupt)?;
                while let Some(record) = all.next_record().map_err(corrupt)? {
                    let value = record.value.unwrap_or_default();
                    records.push(MetadataRecord::from_bytes(value).map_err(corrupt)?);
                }
                next = batch.header().last_offset() + 1;
            }
            if next == before {
                return Err(corrupt("a read returned no batch"));
            }
        }
        Ok(records)
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
        Ok(appended.base_offset)
    }

    pub async fn close(self) -> Result<(), BrokerError> {
        self.log.close().await?;
        Ok(())
    }
}

fn corrupt(reason: impl std::fmt::Display) -> BrokerError {
    BrokerError::MetadataLog(format!("unreadable record: {reason}"))
}
