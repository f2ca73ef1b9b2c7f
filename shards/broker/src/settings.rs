//! Turns the typed configuration of meta into what the log, the validator and the shard are given.

use std::time::Duration;

use log::{LogConfig, LogShared, Preallocate, SharedOptions};
use meta::Image;
use meta::config::{RecordValidation, TimestampType, TopicCompression, TopicConfig};
use meta::controller::{GROUP_VERSION, TRANSACTION_VERSION};
use reactor::buf;
use wire::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use wire::records::validate::{Rules, TopicCompression as Stored, UNLIMITED_RECORD_BYTES};
use wire::records::{Codec, TimestampType as Stamp};

use crate::shard::Features;

/// Share of a shard's memory, in percent, for requests that are being received or answered.
const REQUESTS_PERCENT: usize = 21;
/// Share for what they are answered, until clients have taken it.
const ANSWERS_PERCENT: usize = 4;
/// Share for the tails of the logs.
const CACHE_PERCENT: usize = 50;
/// Share for reading what is no longer in the tails, what clients have not taken of it included.
const BACKFILL_PERCENT: usize = 10;
/// Share for what fetch sessions remember.
const SESSIONS_PERCENT: usize = 5;
/// Share for compaction's map of keys, while a pass runs.
const CLEANER_PERCENT: usize = 10;
/// Less than this and a shard could not hold one request of the default size limit.
const SHARD_BYTES_MIN: usize = 16 * 1024 * 1024;
/// The lowest metadata version that Kafka still speaks of (3.3-IV3) and ours (4.4-IV2).
const METADATA_VERSIONS: (i16, i16) = (7, 33);

/// One shard's memory, in bytes. What is left is for connections, images and indexes.
pub(crate) struct Memory {
    pub requests_bytes: usize,
    pub answers_bytes: usize,
    pub cache_bytes: usize,
    pub backfill_bytes: usize,
    pub sessions_bytes: usize,
    pub cleaner_bytes: usize,
}

impl Memory {
    pub fn split(total_bytes: usize, shards: usize) -> Self {
        let shard = (total_bytes / shards.max(1)).max(SHARD_BYTES_MIN);
        Memory {
            requests_bytes: shard / 100 * REQUESTS_PERCENT,
            answers_bytes: shard / 100 * ANSWERS_PERCENT,
            cache_bytes: shard / 100 * CACHE_PERCENT,
            backfill_bytes: shard / 100 * BACKFILL_PERCENT,
            sessions_bytes: shard / 100 * SESSIONS_PERCENT,
            cleaner_bytes: shard / 100 * CLEANER_PERCENT,
        }
    }
}

/// On the shard's thread: what one log's tail frees the next one takes, so no page is faulted in twice.
pub(crate) fn log_shared(memory: &Memory) -> LogShared {
    buf::retain_at_most(buf::RETAINED_BYTES_MAX + memory.cache_bytes);
    LogShared::new(SharedOptions {
        cache_bytes: memory.cache_bytes,
        backfill_bytes: memory.backfill_bytes,
        ..SharedOptions::default()
    })
}

/// A configured number of milliseconds; negative means never.
pub(crate) fn interval(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What the broker, not the topic, sets for a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLimits {
    pub producer_id_expiration_ms: i64,
    /// No batch is opened beyond this, whatever its topic allows: the shard's memory is finite.
    pub decompressed_bytes_max: usize,
}

pub(crate) fn log_config(topic: &TopicConfig, limits: &PartitionLimits) -> LogConfig {
    LogConfig {
        segment_bytes: topic.segment_bytes,
        segment_ms: topic.segment_ms,
        segment_jitter_ms: topic.segment_jitter_ms,
        index_interval_bytes: topic.index_interval_bytes,
        segment_index_bytes: topic.segment_index_bytes,
        retention_ms: topic.retention_ms,
        retention_bytes: topic.retention_bytes,
        timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms.unsigned_abs(),
        write_caching: topic.write_caching,
        max_message_bytes: topic.max_message_bytes,
        file_delete_delay_ms: topic.file_delete_delay_ms.unsigned_abs(),
        preallocate: if topic.preallocate { Preallocate::ZeroFill } else { Preallocate::Auto },
        producer_id_expiration_ms: limits.producer_id_expiration_ms,
        delete: topic.delete,
        compact: topic.compact,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        delete_retention_ms: topic.delete_retention_ms,
    }
}

pub(crate) fn produce_rules(
    topic: &TopicConfig,
    limits: &PartitionLimits,
    produce_version: i16,
) -> Rules {
    Rules {
        max_message_bytes: topic.max_message_bytes as usize,
        timestamp_type: match topic.message_timestamp_type {
            TimestampType::CreateTime => Stamp::Create,
            TimestampType::LogAppendTime => Stamp::LogAppend,
        },
        before_max_ms: topic.message_timestamp_before_max_ms,
        after_max_ms: topic.message_timestamp_after_max_ms,
        compression: match topic.compression {
            TopicCompression::Producer => Stored::Producer,
            TopicCompression::Uncompressed => Stored::Codec(Codec::None, None),
            TopicCompression::Gzip { level } => Stored::Codec(Codec::Gzip, Some(level)),
            TopicCompression::Snappy => Stored::Codec(Codec::Snappy, None),
            TopicCompression::Lz4 { level } => Stored::Codec(Codec::Lz4, Some(level)),
            TopicCompression::Zstd { level } => Stored::Codec(Codec::Zstd, Some(level)),
        },
        compacted: topic.compact,
        strict: topic.record_validation == RecordValidation::Strict,
        produce_version,
        decompressed_limit: limits.decompressed_bytes_max,
        max_record_bytes: i32::try_from(topic.max_decompressed_message_bytes)
            .unwrap_or(UNLIMITED_RECORD_BYTES),
    }
}

/// What is supported is what is implemented.
pub(crate) fn features(image: &Image) -> Features {
    let (min_version, max_version) = METADATA_VERSIONS;
    let (group_version, max_group_version) = GROUP_VERSION;
    let supported = vec![
        SupportedFeatureKey {
            name: group_version.into(),
            min_version: 0,
            max_version: max_group_version,
        },
        SupportedFeatureKey { name: "metadata.version".into(), min_version, max_version },
        SupportedFeatureKey {
            name: TRANSACTION_VERSION.0.into(),
            min_version: 0,
            max_version: TRANSACTION_VERSION.1,
        },
    ];
    let finalized = image.features().iter().map(|(name, level)| FinalizedFeatureKey {
        name: name.clone().into(),
        max_version_level: *level,
        min_version_level: *level,
    });
    Features { supported, finalized: finalized.collect(), finalized_epoch: image.offset().max(0) }
}
