//! Broker keys: topic defaults and the log, with every broker synonym of a topic key.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, read_only};

pub(super) const TOPICS: Section = Section {
    title: "Topic defaults and topic management",
    keys: &[
        read_only("auto.create.topics.enable", Kind::Bool)
            .default("true")
            .doc("Create a missing topic when a client asks for its metadata and allows it.")
            .honoured(),
        read_only("num.partitions", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Partitions of a topic that is created without a count.")
            .honoured(),
        read_only("default.replication.factor", Kind::Int)
            .default("1")
            .doc("Replicas of a topic that is created without a factor.")
            .honoured(),
        read_only("delete.topic.enable", Kind::Bool)
            .default("true")
            .doc("Allow topics to be deleted.")
            .honoured(),
        cluster_wide("message.max.bytes", Kind::Int)
            .default("1048588")
            .at_least(0)
            .doc("Default of max.message.bytes.")
            .honoured(),
        cluster_wide("max.decompressed.message.bytes", Kind::Int)
            .default("2147483639")
            .between(1, 2147483639)
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("compression.type", Kind::String)
            .default("producer")
            .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("compression.gzip.level", Kind::Int)
            .default("-1")
            .between_or(1, 9, -1)
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("compression.lz4.level", Kind::Int)
            .default("9")
            .between(1, 17)
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("compression.zstd.level", Kind::Int)
            .default("3")
            .between(-131072, 22)
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("min.insync.replicas", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Default of the topic key of the same name.")
            .honoured(),
        cluster_wide("unclean.leader.election.enable", Kind::Bool)
            .default("false")
            .doc("Default of the topic key of the same name."),
        read_only("create.topic.policy.class.name", Kind::Class)
            .doc("Java class that may refuse new topics. Not loaded here."),
        read_only("alter.config.policy.class.name", Kind::Class)
            .doc("Java class that may refuse config changes. Not loaded here."),
        cluster_wide("errors.deadletterqueue.auto.create.topics.enable", Kind::Bool)
            .default("false")
            .doc("Create dead letter topics of share groups when they are missing."),
        cluster_wide("errors.deadletterqueue.topic.name.prefix", Kind::String)
            .default("dlq.")
            .doc("How the names of automatically created dead letter topics begin."),
        read_only("log.message.downconversion.enable", Kind::Bool)
            .default("true")
            .doc("Gone from Kafka 4; still read from old files.")
            .hidden(),
    ],
};

pub(super) const LOG: Section = Section {
    title: "Storage and log",
    keys: &[
        read_only("log.dirs", Kind::List)
            .synonyms(&["log.dirs", "log.dir"])
            .doc("Data directories, separated by commas. Overrides log.dir.")
            .honoured(),
        read_only("log.dir", Kind::List)
            .default("./corelane-data")
            .doc("Data directory, used when log.dirs is not set.")
            .honoured(),
        cluster_wide("log.cleanup.policy", Kind::List)
            .default("delete")
            .each_of(&["compact", "delete"])
            .doc("Default of cleanup.policy.")
            .honoured(),
        cluster_wide("log.retention.ms", Kind::Long)
            .synonyms(&["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
            .doc("Default of retention.ms. Overrides log.retention.minutes.")
            .honoured(),
        read_only("log.retention.minutes", Kind::Int)
            .doc("Default of retention.ms in minutes. Overrides log.retention.hours.")
            .honoured(),
        read_only("log.retention.hours", Kind::Int)
            .default("168")
            .doc("Default of retention.ms in hours; -1: keep for ever.")
            .honoured(),
        cluster_wide("log.retention.bytes", Kind::Long)
            .default("-1")
            .doc("Default of retention.bytes.")
            .honoured(),
        read_only("log.retention.check.interval.ms", Kind::Long)
            .default("300000")
            .at_least(1)
            .doc("Time between two checks for segments that may be deleted.")
            .honoured(),
        cluster_wide("log.segment.bytes", Kind::Int)
            .default("1073741824")
            .at_least(1048576)
            .doc("Default of segment.bytes.")
            .honoured(),
        cluster_wide("log.segment.delete.delay.ms", Kind::Long)
            .default("60000")
            .at_least(0)
            .doc("Default of file.delete.delay.ms.")
            .honoured(),
        cluster_wide("log.roll.ms", Kind::Long)
            .synonyms(&["log.roll.ms", "log.roll.hours"])
            .doc("Default of segment.ms. Overrides log.roll.hours.")
            .honoured(),
        read_only("log.roll.hours", Kind::Int)
            .default("168")
            .at_least(1)
            .doc("Default of segment.ms in hours.")
            .honoured(),
        cluster_wide("log.roll.jitter.ms", Kind::Long)
            .synonyms(&["log.roll.jitter.ms", "log.roll.jitter.hours"])
            .doc("Default of segment.jitter.ms. Overrides log.roll.jitter.hours.")
            .honoured(),
        read_only("log.roll.jitter.hours", Kind::Int)
            .default("0")
            .at_least(0)
            .doc("Default of segment.jitter.ms in hours.")
            .honoured(),
        cluster_wide("log.index.size.max.bytes", Kind::Int)
            .default("10485760")
            .at_least(4)
            .doc("Default of segment.index.bytes.")
            .honoured(),
        cluster_wide("log.index.interval.bytes", Kind::Int)
            .default("4096")
            .at_least(0)
            .doc("Default of index.interval.bytes.")
            .honoured(),
        cluster_wide("log.preallocate", Kind::Bool)
            .default("false")
            .doc("Default of preallocate.")
            .honoured(),
        cluster_wide("log.flush.interval.messages", Kind::Long)
            .default("9223372036854775807")
            .at_least(1)
            .doc("Default of flush.messages.")
            .honoured(),
        cluster_wide("log.flush.interval.ms", Kind::Long)
            .synonyms(&["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
            .doc("Default of flush.ms. If it is not set, log.flush.scheduler.interval.ms counts.")
            .honoured(),
        read_only("log.flush.scheduler.interval.ms", Kind::Long)
            .default("9223372036854775807")
            .doc("Default of flush.ms when log.flush.interval.ms is not set.")
            .honoured(),
        read_only("log.flush.offset.checkpoint.interval.ms", Kind::Int)
            .default("60000")
            .at_least(0)
            .doc("Time between two writes of the recovery point checkpoint.")
            .honoured(),
        read_only("log.flush.start.offset.checkpoint.interval.ms", Kind::Int)
            .default("60000")
            .at_least(0)
            .doc("Time between two writes of the log start offset checkpoint.")
            .honoured(),
        cluster_wide("log.message.timestamp.type", Kind::String)
            .default("CreateTime")
            .one_of(&["CreateTime", "LogAppendTime"])
            .doc("Default of message.timestamp.type.")
            .honoured(),
        cluster_wide("log.message.timestamp.before.max.ms", Kind::Long)
            .default("9223372036854775807")
            .at_least(0)
            .doc("Default of message.timestamp.before.max.ms.")
            .honoured(),
        cluster_wide("log.message.timestamp.after.max.ms", Kind::Long)
            .default("3600000")
            .at_least(0)
            .doc("Default of message.timestamp.after.max.ms.")
            .honoured(),
        cluster_wide("log.local.retention.ms", Kind::Long)
            .default("-2")
            .at_least(-2)
            .doc("Default of local.retention.ms."),
        cluster_wide("log.local.retention.bytes", Kind::Long)
            .default("-2")
            .at_least(-2)
            .doc("Default of local.retention.bytes."),
        cluster_wide("log.remote.copy.lag.ms", Kind::Long)
            .default("0")
            .at_least(-1)
            .doc("Default of remote.copy.lag.ms."),
        cluster_wide("log.remote.copy.lag.bytes", Kind::Long)
            .default("-1")
            .at_least(-1)
            .doc("Default of remote.copy.lag.bytes."),
        read_only("log.initial.task.delay.ms", Kind::Long)
            .default("30000")
            .at_least(0)
            .doc("Wait after the start before Kafka's log tasks run for the first time.")
            .hidden(),
        read_only("log.dir.failure.timeout.ms", Kind::Long)
            .default("30000")
            .at_least(1)
            .doc("A broker that cannot report a failed data directory for this long stops."),
        cluster_wide("num.recovery.threads.per.data.dir", Kind::Int)
            .default("2")
            .at_least(1)
            .doc("Kafka's recovery threads. Corelane's shards recover their own partitions."),
        read_only("num.replica.alter.log.dirs.threads", Kind::Int)
            .doc("Kafka's threads that move replicas between data directories."),
        read_only("log.cleaner.enable", Kind::Bool)
            .default("true")
            .doc("Run log compaction.")
            .honoured(),
        cluster_wide("log.cleaner.threads", Kind::Int)
            .default("1")
            .at_least(0)
            .doc("Kafka's compaction threads."),
        cluster_wide("log.cleaner.backoff.ms", Kind::Long)
            .default("15000")
            .at_least(0)
            .doc("Wait between two looks for something to compact.")
            .honoured(),
        cluster_wide("log.cleaner.dedupe.buffer.size", Kind::Long)
            .default("134217728")
            .doc("Memory for the offset maps of compaction.")
            .honoured(),
        cluster_wide("log.cleaner.io.buffer.size", Kind::Int)
            .default("524288")
            .at_least(0)
            .doc("Memory for the read and write buffers of compaction."),
        cluster_wide("log.cleaner.io.buffer.load.factor", Kind::Double)
            .default("0.9")
            .doc("How full the offset map of compaction may get, 0 to 1.")
            .honoured(),
        cluster_wide("log.cleaner.io.max.bytes.per.second", Kind::Double)
            .default("1.7976931348623157E308")
            .doc("Bytes a second that compaction may read and write.")
            .honoured(),
        cluster_wide("log.cleaner.delete.retention.ms", Kind::Long)
            .default("86400000")
            .at_least(0)
            .doc("Default of delete.retention.ms.")
            .honoured(),
        cluster_wide("log.cleaner.min.cleanable.ratio", Kind::Double)
            .default("0.5")
            .real_between(0.0, 1.0)
            .doc("Default of min.cleanable.dirty.ratio.")
            .honoured(),
        cluster_wide("log.cleaner.min.compaction.lag.ms", Kind::Long)
            .default("0")
            .at_least(0)
            .doc("Default of min.compaction.lag.ms.")
            .honoured(),
        cluster_wide("log.cleaner.max.compaction.lag.ms", Kind::Long)
            .default("9223372036854775807")
            .at_least(1)
            .doc("Default of max.compaction.lag.ms.")
            .honoured(),
    ],
};
