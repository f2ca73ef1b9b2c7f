//! Broker keys: quotas, metrics and tiered storage.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, read_only};

pub(super) const QUOTAS: Section = Section {
    title: "Quotas and metrics",
    keys: &[
        read_only("client.quota.callback.class", Kind::Class)
            .doc("Java class that computes quotas. Not loaded here."),
        read_only("quota.window.num", Kind::Int)
            .default("11")
            .at_least(1)
            .doc("Samples kept for client quotas."),
        read_only("quota.window.size.seconds", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Length of one sample for client quotas."),
        read_only("controller.quota.window.num", Kind::Int)
            .default("11")
            .at_least(1)
            .doc("Samples kept for the controller mutation quota."),
        read_only("controller.quota.window.size.seconds", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Length of one sample for the controller mutation quota."),
        read_only("replication.quota.window.num", Kind::Int)
            .default("11")
            .at_least(1)
            .doc("Samples kept for replication quotas."),
        read_only("replication.quota.window.size.seconds", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Length of one sample for replication quotas."),
        read_only("alter.log.dirs.replication.quota.window.num", Kind::Int)
            .default("11")
            .at_least(1)
            .doc("Samples kept for moves between data directories."),
        read_only("alter.log.dirs.replication.quota.window.size.seconds", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Length of one sample for moves between data directories."),
        cluster_wide("metric.reporters", Kind::List)
            .default("org.apache.kafka.common.metrics.JmxReporter")
            .doc("Java classes that report metrics. Not loaded here."),
        read_only("metrics.num.samples", Kind::Int)
            .default("2")
            .at_least(1)
            .doc("Samples kept for Kafka's metrics."),
        read_only("metrics.sample.window.ms", Kind::Long)
            .default("30000")
            .at_least(1)
            .doc("Length of one sample for Kafka's metrics."),
        read_only("metrics.recording.level", Kind::String)
            .default("INFO")
            .doc("Level of detail of Kafka's metrics."),
        read_only("kafka.metrics.reporters", Kind::List)
            .default("")
            .doc("Java classes that report Kafka's old metrics. Not loaded here."),
        read_only("kafka.metrics.polling.interval.secs", Kind::Int)
            .default("10")
            .at_least(1)
            .doc("Interval of Kafka's old metrics reporters."),
        read_only("telemetry.max.bytes", Kind::Int)
            .default("1048576")
            .at_least(1)
            .doc("Largest metrics push of a client."),
    ],
};

pub(super) const TIERED: Section = Section { title: "Tiered storage", keys: &[
    read_only("remote.log.storage.system.enable", Kind::Bool)
        .default("false")
        .doc("Keep old segments in remote storage."),
    read_only("remote.log.storage.manager.class.name", Kind::String)
        .doc("Java class of the remote storage. Not loaded here."),
    read_only("remote.log.storage.manager.class.path", Kind::String)
        .doc("Class path of the remote storage class."),
    read_only("remote.log.storage.manager.impl.prefix", Kind::String)
        .default("rsm.config.")
        .doc("Prefix of the remote storage class's own keys."),
    read_only("remote.log.metadata.manager.class.name", Kind::String)
        .default("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager")
        .doc("Java class of the remote metadata. Not loaded here."),
    read_only("remote.log.metadata.manager.class.path", Kind::String)
        .doc("Class path of the remote metadata class."),
    read_only("remote.log.metadata.manager.impl.prefix", Kind::String)
        .default("rlmm.config.")
        .doc("Prefix of the remote metadata class's own keys."),
    read_only("remote.log.metadata.manager.listener.name", Kind::String)
        .doc("Listener that the remote metadata class connects to."),
    read_only("remote.log.metadata.custom.metadata.max.bytes", Kind::Int)
        .default("128")
        .at_least(0)
        .doc("Longest custom metadata of one remote segment."),
    cluster_wide("remote.log.index.file.cache.total.size.bytes", Kind::Long)
        .default("1073741824")
        .at_least(1)
        .doc("Disk space for index files fetched from remote storage."),
    read_only("remote.log.manager.task.interval.ms", Kind::Long)
        .default("30000")
        .at_least(1)
        .doc("Time between two runs of the remote storage tasks."),
    read_only("remote.log.manager.thread.pool.size", Kind::Int)
        .default("2")
        .at_least(1)
        .doc("Kafka's threads for remote storage tasks."),
    cluster_wide("remote.log.manager.copier.thread.pool.size", Kind::Int)
        .default("10")
        .at_least(1)
        .doc("Kafka's threads that copy segments to remote storage."),
    cluster_wide("remote.log.manager.expiration.thread.pool.size", Kind::Int)
        .default("10")
        .at_least(1)
        .doc("Kafka's threads that delete remote segments."),
    cluster_wide("remote.log.manager.follower.thread.pool.size", Kind::Int)
        .default("2")
        .at_least(1)
        .doc("Kafka's threads for remote tasks of followers."),
    cluster_wide("remote.log.manager.copy.max.bytes.per.second", Kind::Long)
        .default("9223372036854775807")
        .at_least(1)
        .doc("Bytes a second that may be copied to remote storage."),
    read_only("remote.log.manager.copy.quota.window.num", Kind::Int)
        .default("11")
        .at_least(1)
        .doc("Samples kept for the copy limit."),
    read_only("remote.log.manager.copy.quota.window.size.seconds", Kind::Int)
        .default("1")
        .at_least(1)
        .doc("Length of one sample for the copy limit."),
    cluster_wide("remote.log.manager.fetch.max.bytes.per.second", Kind::Long)
        .default("9223372036854775807")
        .at_least(1)
        .doc("Bytes a second that may be read from remote storage."),
    read_only("remote.log.manager.fetch.quota.window.num", Kind::Int)
        .default("11")
        .at_least(1)
        .doc("Samples kept for the remote read limit."),
    read_only("remote.log.manager.fetch.quota.window.size.seconds", Kind::Int)
        .default("1")
        .at_least(1)
        .doc("Length of one sample for the remote read limit."),
    cluster_wide("remote.log.reader.threads", Kind::Int)
        .default("10")
        .at_least(1)
        .doc("Kafka's threads that read from remote storage."),
    read_only("remote.log.reader.max.pending.tasks", Kind::Int)
        .default("100")
        .at_least(1)
        .doc("Reads from remote storage that may wait."),
    cluster_wide("remote.fetch.max.wait.ms", Kind::Int)
        .default("500")
        .at_least(1)
        .doc("Longest wait of a fetch for remote storage."),
    cluster_wide("remote.list.offsets.request.timeout.ms", Kind::Long)
        .default("30000")
        .at_least(1)
        .doc("Time limit of an offset look-up in remote storage."),
    cluster_wide("follower.fetch.last.tiered.offset.enable", Kind::Bool)
        .default("false")
        .doc("Let new followers start at the end of what is in remote storage."),
]};
