//! The settings of one topic as numbers and switches, ready for log and broker.
//! Values were checked when they were set; one that cannot be read (a foreign metadata log) falls
//! back to the built-in default.

use super::key::{Key, Scope};
use super::keys;
use super::overrides::{Overrides, ResourceKind, Settings};
use super::resolve::Layers;
use super::static_config::StaticConfig;
use super::value::{boolean, list, number};

/// Whether and how the broker recompresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCompression {
    /// Batches stay as they were sent.
    Producer,
    Uncompressed,
    Gzip {
        level: i32,
    },
    Snappy,
    Lz4 {
        level: i32,
    },
    Zstd {
        level: i32,
    },
}

/// Whose clock stamps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// How closely compressed batches are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordValidation {
    Relaxed,
    Strict,
}

/// Every topic key that Corelane knows, typed. Times are in ms, sizes in bytes; -1 and `i64::MAX`
/// mean what the key's documentation says.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub delete: bool,
    pub compact: bool,
    pub compression: TopicCompression,
    pub retention_ms: i64,
    pub retention_bytes: i64,
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    pub flush_messages: u64,
    pub flush_ms: i64,
    pub max_message_bytes: u32,
    pub max_decompressed_message_bytes: u32,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_after_max_ms: i64,
    pub min_insync_replicas: u32,
    pub unclean_leader_election: bool,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub preallocate: bool,
    pub write_caching: bool,
    pub record_validation: RecordValidation,
}

impl TopicConfig {
    /// The settings of a topic as a node sees them.
    pub fn resolve(layers: Layers<'_>, topic: &str) -> Self {
        TopicConfig::read(layers, layers.dynamic.of(ResourceKind::Topic, topic))
    }

    /// The settings that a topic with these overrides would have.
    pub fn with_overrides<'a>(layers: Layers<'a>, own: &'a Settings) -> Self {
        TopicConfig::read(layers, Some(own))
    }

    /// What a topic without overrides gets.
    pub fn defaults(layers: Layers<'_>) -> Self {
        TopicConfig::read(layers, None)
    }

    fn read<'a>(layers: Layers<'a>, own: Option<&'a Settings>) -> Self {
        let r = Reader { layers, own };
        let policy = r.text("cleanup.policy");
        let has_policy = |name: &str| list(&policy).contains(&name);
        let segment_bytes = match own.and_then(|o| o.get("internal.segment.bytes")) {
            Some(_) => r.u32("internal.segment.bytes"),
            None => r.u32("segment.bytes"),
        };
        TopicConfig {
            delete: has_policy("delete"),
            compact: has_policy("compact"),
            compression: r.compression(),
            retention_ms: r.i64("retention.ms"),
            retention_bytes: r.i64("retention.bytes"),
            segment_bytes,
            segment_ms: r.i64("segment.ms"),
            segment_jitter_ms: r.i64("segment.jitter.ms"),
            segment_index_bytes: r.u32("segment.index.bytes"),
            index_interval_bytes: r.u32("index.interval.bytes"),
            flush_messages: r.i64("flush.messages").unsigned_abs(),
            flush_ms: r.i64("flush.ms"),
            max_message_bytes: r.u32("max.message.bytes"),
            max_decompressed_message_bytes: r.u32("max.decompressed.message.bytes"),
            message_timestamp_type: match r.text("message.timestamp.type").as_ref() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            message_timestamp_before_max_ms: r.i64("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms: r.i64("message.timestamp.after.max.ms"),
            min_insync_replicas: r.u32("min.insync.replicas"),
            unclean_leader_election: r.bool("unclean.leader.election.enable"),
            min_cleanable_dirty_ratio: r.f64("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: r.i64("min.compaction.lag.ms"),
            max_compaction_lag_ms: r.i64("max.compaction.lag.ms"),
            delete_retention_ms: r.i64("delete.retention.ms"),
            file_delete_delay_ms: r.i64("file.delete.delay.ms"),
            preallocate: r.bool("preallocate"),
            write_caching: r.bool("write.caching"),
            record_validation: match r.text("record.validation").as_ref() {
                "strict" => RecordValidation::Strict,
                _ => RecordValidation::Relaxed,
            },
        }
    }
}

/// Kafka's defaults with Corelane's own keys at theirs.
impl Default for TopicConfig {
    fn default() -> Self {
        let (dynamic, fixed) = (Overrides::default(), StaticConfig::default());
        TopicConfig::defaults(Layers { dynamic: &dynamic, fixed: &fixed, node: 0 })
    }
}

struct Reader<'a> {
    layers: Layers<'a>,
    own: Option<&'a Settings>,
}

impl<'a> Reader<'a> {
    fn text(&self, name: &str) -> std::borrow::Cow<'a, str> {
        match key(name) {
            Some(key) => self.layers.topic_value(key, self.own),
            None => "".into(),
        }
    }

    /// The value, or the built-in default if it cannot be read.
    fn parsed<T: Default>(&self, name: &str, read: impl Fn(&Key, &str) -> Option<T>) -> T {
        let Some(key) = key(name) else { return T::default() };
        let text = self.layers.topic_value(key, self.own);
        let default = || key.default.and_then(|text| read(key, text));
        read(key, text.as_ref()).or_else(default).unwrap_or_default()
    }

    fn i64(&self, name: &str) -> i64 {
        self.parsed(name, |key, text| number(key.kind, text))
    }

    fn u32(&self, name: &str) -> u32 {
        self.parsed(name, |key, text| number(key.kind, text).and_then(|n| u32::try_from(n).ok()))
    }

    fn f64(&self, name: &str) -> f64 {
        self.parsed(name, |_, text| text.trim().parse().ok())
    }

    fn bool(&self, name: &str) -> bool {
        self.parsed(name, |_, text| boolean(text))
    }

    fn compression(&self) -> TopicCompression {
        let level = |name: &str| self.parsed(name, |key, text| number(key.kind, text)) as i32;
        match self.text("compression.type").trim() {
            "uncompressed" => TopicCompression::Uncompressed,
            "gzip" => TopicCompression::Gzip { level: level("compression.gzip.level") },
            "snappy" => TopicCompression::Snappy,
            "lz4" => TopicCompression::Lz4 { level: level("compression.lz4.level") },
            "zstd" => TopicCompression::Zstd { level: level("compression.zstd.level") },
            _ => TopicCompression::Producer,
        }
    }
}

fn key(name: &str) -> Option<&'static Key> {
    let found = keys::find(Scope::Topic, name);
    debug_assert!(found.is_some(), "{name} is not in the registry");
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Resource;

    #[test]
    fn defaults_are_kafkas() {
        let config = TopicConfig::default();
        assert!(config.delete && !config.compact);
        assert_eq!(config.compression, TopicCompression::Producer);
        assert_eq!(config.retention_ms, 604_800_000);
        assert_eq!(config.segment_bytes, 1 << 30);
        assert_eq!(config.segment_ms, 604_800_000);
        assert_eq!(config.flush_messages, i64::MAX as u64);
        assert_eq!(config.flush_ms, i64::MAX);
        assert_eq!(config.max_message_bytes, 1_048_588);
        assert_eq!(config.message_timestamp_after_max_ms, 3_600_000);
        assert!(!config.write_caching);
        assert_eq!(config.record_validation, RecordValidation::Relaxed);
    }

    #[test]
    fn the_nearest_source_counts() {
        let mut fixed = StaticConfig::default();
        let mut dynamic = Overrides::default();
        let retention = |dynamic: &Overrides, fixed: &StaticConfig| {
            TopicConfig::resolve(Layers { dynamic, fixed, node: 3 }, "t").retention_ms
        };
        fixed.set("log.retention.hours", "2").unwrap();
        assert_eq!(retention(&dynamic, &fixed), 7_200_000);
        fixed.set("log.retention.minutes", "3").unwrap();
        assert_eq!(retention(&dynamic, &fixed), 180_000);
        fixed.set("log.retention.ms", "4").unwrap();
        assert_eq!(retention(&dynamic, &fixed), 4);
        dynamic.set(&Resource::new(ResourceKind::Broker, ""), "log.retention.ms", Some("5"));
        assert_eq!(retention(&dynamic, &fixed), 5);
        dynamic.set(&Resource::new(ResourceKind::Broker, "4"), "log.retention.ms", Some("6"));
        assert_eq!(retention(&dynamic, &fixed), 5, "another node's setting does not count");
        dynamic.set(&Resource::new(ResourceKind::Broker, "3"), "log.retention.ms", Some("7"));
        assert_eq!(retention(&dynamic, &fixed), 7);
        dynamic.set(&Resource::topic("t"), "retention.ms", Some("8"));
        assert_eq!(retention(&dynamic, &fixed), 8);
        fixed.set("log.retention.hours", "-1").unwrap();
        assert_eq!(retention(&Overrides::default(), &fixed), 4);
    }

    #[test]
    fn odd_overrides_are_read() {
        let fixed = StaticConfig::default();
        let mut dynamic = Overrides::default();
        let topic = Resource::topic("t");
        for (key, value) in [
            ("cleanup.policy", ""),
            ("internal.segment.bytes", "1000"),
            ("compression.type", "zstd"),
            ("compression.zstd.level", "7"),
            ("retention.ms", "not a number"),
            ("preallocate", "TRUE"),
        ] {
            dynamic.set(&topic, key, Some(value));
        }
        let config =
            TopicConfig::resolve(Layers { dynamic: &dynamic, fixed: &fixed, node: 0 }, "t");
        assert!(!config.delete && !config.compact && config.preallocate);
        assert_eq!(config.segment_bytes, 1000);
        assert_eq!(config.compression, TopicCompression::Zstd { level: 7 });
        assert_eq!(config.retention_ms, 604_800_000);
    }
}
