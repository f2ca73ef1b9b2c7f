//! The settings of one log, under Kafka's names, and what is handed to it when it is opened.
//!
//! Plain values; no text is parsed here and nothing is looked up.

use wire::Uuid;

/// How much of a segment file is made before it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preallocate {
    /// Zero-filled ahead for topics that sync every write; for others space is reserved once a segment
    /// has a megabyte. Steps grow with the segment, so a small log stays a small file.
    #[default]
    Auto,
    /// Nothing is made ahead; the file grows with the writes.
    Off,
    /// Zero-filled ahead whatever the topic promises.
    ZeroFill,
    /// Space is reserved ahead (not written), in growing steps.
    Reserve,
}

/// What an acknowledgement of this log means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The batch is in memory.
    Memory,
    /// The direct write completed: a crash of the process loses nothing.
    Written,
    /// The data is synced to the device: a power cut loses nothing.
    Synced,
}

/// Topic settings that a log obeys. `Default` has Kafka's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`
    pub segment_bytes: u32,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    /// `retention.ms`, -1 for none
    pub retention_ms: i64,
    /// `retention.bytes`, -1 for none
    pub retention_bytes: i64,
    /// `message.timestamp.after.max.ms`: no record holds its segment as if it were from later than
    /// this after it was appended
    pub timestamp_after_max_ms: i64,
    /// `flush.messages`; 1 makes every acknowledgement wait for the sync
    pub flush_messages: u64,
    /// `flush.ms`
    pub flush_ms: u64,
    /// `write.caching`: acknowledge from memory
    pub write_caching: bool,
    /// `max.message.bytes`; known here so that the memory for one batch can be judged
    pub max_message_bytes: u32,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: u64,
    /// `preallocate`
    pub preallocate: Preallocate,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// `cleanup.policy` has `delete`
    pub delete: bool,
    /// `cleanup.policy` has `compact`
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
}

impl Default for LogConfig {
    fn default() -> Self {
        const HOUR_MS: i64 = 60 * 60 * 1000;
        const DAY_MS: i64 = 24 * HOUR_MS;
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            timestamp_after_max_ms: HOUR_MS,
            flush_messages: i64::MAX as u64,
            flush_ms: i64::MAX as u64,
            write_caching: false,
            max_message_bytes: 1_048_588,
            file_delete_delay_ms: 60_000,
            preallocate: Preallocate::Auto,
            producer_id_expiration_ms: DAY_MS,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: DAY_MS,
        }
    }
}

impl LogConfig {
    /// How old an active segment may get: of a compacted log no older than its records may stay
    /// uncompacted.
    pub(crate) fn roll_ms(&self) -> i64 {
        match self.max_compaction_lag_ms {
            lag if self.compact && lag > 0 => self.segment_ms.min(lag),
            _ => self.segment_ms,
        }
    }

    pub fn promise(&self) -> Promise {
        match (self.write_caching, self.flush_messages) {
            (true, _) => Promise::Memory,
            (false, 0..=1) => Promise::Synced,
            (false, _) => Promise::Written,
        }
    }
}

/// What the data folder's checkpoints say about a log that is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHint {
    /// The last shutdown was clean: nothing needs to be scanned.
    pub clean: bool,
    /// Everything below this offset is on the device.
    pub recovery_point: i64,
    /// Nothing below this offset may be read any more.
    pub log_start_offset: i64,
    /// Below this offset compaction has looked at every key, if it ever ran.
    pub cleaner_point: Option<i64>,
    /// The epoch this log will be written under.
    pub leader_epoch: i32,
    /// Nothing below the recovery point can be done without: where something of it is damaged or
    /// gone, opening fails and leaves the files as they are, instead of cutting the log there.
    pub whole: bool,
    /// The log was opened before: if its folder is not there, opening fails instead of making an
    /// empty one.
    pub expected: bool,
    /// The topic that the log is of: the folder of another one is refused, a new one is marked.
    pub topic_id: Option<Uuid>,
    /// What is known of this very log from outside of its folder.
    pub vouched: Vouched,
}

/// How far a log has gone, as something outside of its folder vouches for it, by the topic's id and with
/// a checksum: what ends before that is not all of it. Zeros if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vouched {
    /// Nothing below may be read any more.
    pub log_start: i64,
    /// Everything below was synced.
    pub synced_end: i64,
    /// Everything below was written, on this start of the machine.
    pub written_end: i64,
}

/// What opening a log found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes of segments that were read and checked.
    pub bytes_scanned: u64,
    /// Bytes of batches that were cut off because they were damaged or incomplete; the zeros that
    /// were prepared ahead do not count.
    pub truncated_bytes: u64,
    /// Whole segments removed because they lay behind a damaged one.
    pub segments_removed: u32,
    /// Index files that were missing or damaged and were made anew.
    pub indexes_rebuilt: u32,
    /// The offset the next batch will get.
    pub log_end_offset: i64,
}

/// Where a log stands after it was closed; the data folder's checkpoints want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedAt {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub recovery_point: i64,
}
