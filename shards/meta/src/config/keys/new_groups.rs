//! Broker keys: share groups and streams groups.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, read_only};

pub(super) const NEWGROUPS: Section = Section {
    title: "Share groups and streams groups",
    keys: &[
        read_only("group.share.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .doc("Session timeout of share group members."),
        read_only("group.share.min.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .doc("Smallest session timeout that a share group may set."),
        read_only("group.share.max.session.timeout.ms", Kind::Int)
            .default("60000")
            .at_least(1)
            .doc("Largest session timeout that a share group may set."),
        read_only("group.share.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .doc("Heartbeat interval of share group members."),
        read_only("group.share.min.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .doc("Smallest heartbeat interval that a share group may set."),
        read_only("group.share.max.heartbeat.interval.ms", Kind::Int)
            .default("15000")
            .at_least(1)
            .doc("Largest heartbeat interval that a share group may set."),
        cluster_wide("group.share.assignment.interval.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Least time between two assignments of a share group."),
        read_only("group.share.min.assignment.interval.ms", Kind::Int)
            .default("0")
            .at_least(0)
            .doc("Smallest assignment interval that a share group may set."),
        read_only("group.share.max.assignment.interval.ms", Kind::Int)
            .default("15000")
            .at_least(0)
            .doc("Largest assignment interval that a share group may set."),
        read_only("group.share.max.size", Kind::Int)
            .default("200")
            .between(1, 1000)
            .doc("Members that a share group may have."),
        read_only("group.share.assignors", Kind::List)
            .default("simple")
            .doc("Server-side assignors of share groups."),
        read_only("group.share.initialize.retry.interval.ms", Kind::Int)
            .default("30000")
            .at_least(1)
            .doc("Wait before a share partition that could not be initialised is tried again.")
            .hidden(),
        read_only("group.share.record.lock.duration.ms", Kind::Int)
            .default("30000")
            .between(1000, 3600000)
            .doc("How long a delivered record stays locked to its consumer."),
        read_only("group.share.min.record.lock.duration.ms", Kind::Int)
            .default("15000")
            .between(1000, 30000)
            .doc("Smallest lock duration that a share group may set."),
        read_only("group.share.max.record.lock.duration.ms", Kind::Int)
            .default("60000")
            .between(30000, 3600000)
            .doc("Largest lock duration that a share group may set."),
        read_only("group.share.delivery.count.limit", Kind::Int)
            .default("5")
            .between(2, 10)
            .doc("Deliveries of one record before it is given up."),
        read_only("group.share.min.delivery.count.limit", Kind::Int)
            .default("2")
            .between(2, 5)
            .doc("Smallest delivery limit that a share group may set."),
        read_only("group.share.max.delivery.count.limit", Kind::Int)
            .default("10")
            .between(5, 25)
            .doc("Largest delivery limit that a share group may set."),
        read_only("group.share.partition.max.record.locks", Kind::Int)
            .default("2000")
            .between(100, 10000)
            .doc("Records of one partition that may be locked at a time."),
        read_only("group.share.min.partition.max.record.locks", Kind::Int)
            .default("100")
            .between(100, 2000)
            .doc("Smallest lock count that a share group may set."),
        read_only("group.share.max.partition.max.record.locks", Kind::Int)
            .default("4000")
            .between(2000, 10000)
            .doc("Largest lock count that a share group may set."),
        read_only("group.share.max.share.sessions", Kind::Int)
            .default("2000")
            .at_least(1)
            .doc("Share sessions that one broker remembers."),
        cluster_wide("group.share.assignor.offload.enable", Kind::Bool)
            .default("true")
            .doc("Compute share assignments on a background thread.")
            .hidden(),
        read_only("share.coordinator.state.topic.num.partitions", Kind::Int)
            .default("50")
            .at_least(1)
            .doc("Partitions of the share state topic."),
        read_only("share.coordinator.state.topic.replication.factor", Kind::Short)
            .default("3")
            .at_least(1)
            .doc("Replicas of the share state topic."),
        read_only("share.coordinator.state.topic.min.isr", Kind::Short)
            .default("2")
            .at_least(1)
            .doc("Least in-sync replicas of the share state topic."),
        read_only("share.coordinator.state.topic.segment.bytes", Kind::Int)
            .default("104857600")
            .at_least(1)
            .doc("Segment size of the share state topic."),
        read_only("share.coordinator.state.topic.compression.codec", Kind::Int)
            .default("0")
            .doc("Compression of the share state topic, as in offsets.topic.compression.codec."),
        read_only("share.coordinator.load.buffer.size", Kind::Int)
            .default("5242880")
            .at_least(1)
            .doc("Bytes read at a time while share state is loaded."),
        read_only("share.coordinator.snapshot.update.records.per.snapshot", Kind::Int)
            .default("500")
            .between(0, 500)
            .doc("Update records between two snapshots of share state."),
        read_only("share.coordinator.threads", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Kafka's share coordinator threads."),
        read_only("share.coordinator.write.timeout.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .doc("Longest wait until a write of share state is on all its replicas."),
        read_only("share.coordinator.append.linger.ms", Kind::Int)
            .default("-1")
            .at_least(-1)
            .doc("Time for which share records are gathered before a write; -1: adaptive."),
        cluster_wide("share.coordinator.cached.buffer.max.bytes", Kind::Int)
            .default("1048588")
            .at_least(524288)
            .doc("Largest write buffer that Kafka's share coordinator keeps for reuse."),
        read_only("group.streams.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .doc("Session timeout of streams group members."),
        read_only("group.streams.min.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .doc("Smallest session timeout that a streams group may set."),
        read_only("group.streams.max.session.timeout.ms", Kind::Int)
            .default("60000")
            .at_least(1)
            .doc("Largest session timeout that a streams group may set."),
        read_only("group.streams.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .doc("Heartbeat interval of streams group members."),
        read_only("group.streams.min.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .doc("Smallest heartbeat interval that a streams group may set."),
        read_only("group.streams.max.heartbeat.interval.ms", Kind::Int)
            .default("15000")
            .at_least(1)
            .doc("Largest heartbeat interval that a streams group may set."),
        cluster_wide("group.streams.assignment.interval.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Least time between two assignments of a streams group."),
        read_only("group.streams.min.assignment.interval.ms", Kind::Int)
            .default("0")
            .at_least(0)
            .doc("Smallest assignment interval that a streams group may set."),
        read_only("group.streams.max.assignment.interval.ms", Kind::Int)
            .default("15000")
            .at_least(0)
            .doc("Largest assignment interval that a streams group may set."),
        read_only("group.streams.max.size", Kind::Int)
            .default("2147483647")
            .at_least(1)
            .doc("Members that a streams group may have."),
        read_only("group.streams.assignors", Kind::List)
            .default("sticky")
            .doc("Server-side assignors of streams groups; the first is the default."),
        read_only("group.streams.num.standby.replicas", Kind::Int)
            .default("0")
            .at_least(0)
            .doc("Standby copies of each task's state."),
        read_only("group.streams.max.standby.replicas", Kind::Int)
            .default("2")
            .at_least(0)
            .doc("Most standby copies that a streams group may set."),
        read_only("group.streams.num.warmup.replicas", Kind::Int)
            .default("2")
            .at_least(0)
            .doc("Extra copies that may warm up at a time.")
            .hidden(),
        read_only("group.streams.max.warmup.replicas", Kind::Int)
            .default("20")
            .at_least(0)
            .doc("Most warm-up copies that a streams group may set.")
            .hidden(),
        read_only("group.streams.initial.rebalance.delay.ms", Kind::Int)
            .default("3000")
            .at_least(0)
            .doc("How long a new streams group waits for more members."),
        read_only("group.streams.task.offset.interval.ms", Kind::Int)
            .default("60000")
            .at_least(1)
            .doc("Time between two reports of task offsets.")
            .hidden(),
        read_only("group.streams.min.task.offset.interval.ms", Kind::Int)
            .default("15000")
            .at_least(1)
            .doc("Smallest task offset interval that a streams group may set.")
            .hidden(),
        read_only("group.streams.acceptable.recovery.lag", Kind::Long)
            .default("10000")
            .at_least(0)
            .doc("Offsets that a task may lag behind and still count as caught up.")
            .hidden(),
        read_only("group.streams.rack.aware.assignment.tags", Kind::List)
            .default("")
            .doc("Client tags by which standby copies are spread."),
        cluster_wide("group.streams.assignor.offload.enable", Kind::Bool)
            .default("true")
            .doc("Compute streams assignments on a background thread.")
            .hidden(),
        read_only("group.streams.topology.description.plugin.class", Kind::Class)
            .doc("Java class that receives topology descriptions. Not loaded here."),
    ],
};
