//! Broker keys: groups, offsets and transactions.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, read_only};

pub(super) const OFFSETS: Section = Section { title: "Groups and offsets", keys: &[
    read_only("offsets.topic.num.partitions", Kind::Int).honoured()
        .default("50")
        .at_least(1)
        .doc("Partitions of the topic that holds group offsets."),
    read_only("offsets.topic.segment.bytes", Kind::Int).honoured()
        .default("104857600")
        .at_least(1)
        .doc("Segment size of the topic that holds group offsets."),
    read_only("offsets.topic.replication.factor", Kind::Short).honoured()
        .default("3")
        .at_least(1)
        .doc(
            "Replicas of the topic that holds group offsets, at most as many as brokers are \
             alive.",
        ),
    read_only("offsets.topic.compression.codec", Kind::Int)
        .default("0")
        .doc("Compression of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    read_only("offsets.load.buffer.size", Kind::Int).honoured()
        .default("5242880")
        .at_least(1)
        .doc("Bytes read at a time while group offsets are loaded."),
    read_only("offsets.commit.timeout.ms", Kind::Int)
        .default("5000")
        .at_least(1)
        .doc("Longest wait until a commit is on all its replicas."),
    read_only("offset.metadata.max.bytes", Kind::Int).honoured()
        .default("4096")
        .doc("Longest metadata text that may accompany a committed offset."),
    read_only("offsets.retention.minutes", Kind::Int).honoured()
        .default("10080")
        .at_least(1)
        .doc("How long the offsets of a group without members are kept."),
    read_only("offsets.retention.check.interval.ms", Kind::Long).honoured()
        .default("600000")
        .at_least(1)
        .doc("Time between two looks for offsets that may go."),
    read_only("group.min.session.timeout.ms", Kind::Int).honoured()
        .default("6000")
        .doc("Shortest session timeout that a member may ask for."),
    read_only("group.max.session.timeout.ms", Kind::Int).honoured()
        .default("1800000")
        .doc("Longest session timeout that a member may ask for."),
    read_only("group.initial.rebalance.delay.ms", Kind::Int).honoured()
        .default("3000")
        .doc("How long a new group waits for more members before its first assignment."),
    read_only("group.max.size", Kind::Int).honoured()
        .default("2147483647")
        .at_least(1)
        .doc("Members that a classic group may have."),
    read_only("group.coordinator.threads", Kind::Int)
        .default("4")
        .at_least(1)
        .doc("Kafka's coordinator threads. Corelane's shards coordinate their own groups."),
    read_only("group.coordinator.background.threads", Kind::Int)
        .default("2")
        .at_least(1)
        .doc("Kafka's coordinator background threads."),
    read_only("group.coordinator.append.linger.ms", Kind::Int)
        .default("-1")
        .at_least(-1)
        .doc("Time for which group records are gathered before a write; -1: adaptive."),
    cluster_wide("group.coordinator.cached.buffer.max.bytes", Kind::Int)
        .default("1048588")
        .at_least(524288)
        .doc("Largest write buffer that Kafka's coordinator keeps for reuse."),
    read_only("group.coordinator.rebalance.protocols", Kind::List).honoured()
        .default("classic,consumer,streams")
        .each_of(&["consumer", "classic", "share", "streams"])
        .doc("Rebalance protocols that are offered."),
    read_only("group.consumer.session.timeout.ms", Kind::Int).honoured()
        .default("45000")
        .at_least(1)
        .doc("Session timeout of consumer group members."),
    read_only("group.consumer.min.session.timeout.ms", Kind::Int).honoured()
        .default("45000")
        .at_least(1)
        .doc("Smallest session timeout that a consumer group may set."),
    read_only("group.consumer.max.session.timeout.ms", Kind::Int).honoured()
        .default("60000")
        .at_least(1)
        .doc("Largest session timeout that a consumer group may set."),
    read_only("group.consumer.heartbeat.interval.ms", Kind::Int).honoured()
        .default("5000")
        .at_least(1)
        .doc("Heartbeat interval of consumer group members."),
    read_only("group.consumer.min.heartbeat.interval.ms", Kind::Int).honoured()
        .default("5000")
        .at_least(1)
        .doc("Smallest heartbeat interval that a consumer group may set."),
    read_only("group.consumer.max.heartbeat.interval.ms", Kind::Int).honoured()
        .default("15000")
        .at_least(1)
        .doc("Largest heartbeat interval that a consumer group may set."),
    cluster_wide("group.consumer.assignment.interval.ms", Kind::Int).honoured()
        .default("1000")
        .at_least(0)
        .doc("Least time between two assignments of a consumer group."),
    read_only("group.consumer.min.assignment.interval.ms", Kind::Int).honoured()
        .default("0")
        .at_least(0)
        .doc("Smallest assignment interval that a consumer group may set."),
    read_only("group.consumer.max.assignment.interval.ms", Kind::Int).honoured()
        .default("15000")
        .at_least(0)
        .doc("Largest assignment interval that a consumer group may set."),
    read_only("group.consumer.max.size", Kind::Int).honoured()
        .default("2147483647")
        .at_least(1)
        .doc("Members that a consumer group may have."),
    read_only("group.consumer.assignors", Kind::List).honoured()
        .default("uniform,range")
        .doc("Server-side assignors; the first is the default."),
    read_only("group.consumer.migration.policy", Kind::String).honoured()
        .default("bidirectional")
        .one_of_any_case(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"])
        .doc("Which groups may change between the classic and the consumer protocol while in use."),
    cluster_wide("group.consumer.assignor.offload.enable", Kind::Bool)
        .default("true")
        .doc("Compute assignments on a background thread.")
        .hidden(),
    read_only("group.consumer.regex.refresh.interval.ms", Kind::Int).honoured()
        .default("600000")
        .at_least(10000)
        .doc("Time between two matches of pattern subscriptions against the topics.")
        .hidden(),
]};

pub(super) const TRANSACTIONS: Section = Section {
    title: "Transactions",
    keys: &[
        read_only("transaction.state.log.num.partitions", Kind::Int)
            .honoured()
            .default("50")
            .at_least(1)
            .doc("Partitions of the transaction state topic."),
        read_only("transaction.state.log.replication.factor", Kind::Short)
            .honoured()
            .default("3")
            .at_least(1)
            .doc("Replicas of the transaction state topic, at most as many as brokers are alive."),
        read_only("transaction.state.log.min.isr", Kind::Int)
            .honoured()
            .default("2")
            .at_least(1)
            .doc(
                "Least in-sync replicas of the transaction state topic, at most as many as it has \
                 replicas.",
            ),
        read_only("transaction.state.log.segment.bytes", Kind::Int)
            .honoured()
            .default("104857600")
            .at_least(1)
            .doc("Segment size of the transaction state topic."),
        read_only("transaction.state.log.load.buffer.size", Kind::Int)
            .honoured()
            .default("5242880")
            .at_least(1)
            .doc("Bytes read at a time while transaction state is loaded."),
        read_only("transaction.max.timeout.ms", Kind::Int)
            .honoured()
            .default("900000")
            .at_least(1)
            .doc("Longest transaction timeout that a producer may ask for."),
        read_only("transactional.id.expiration.ms", Kind::Int)
            .honoured()
            .default("604800000")
            .at_least(1)
            .doc("A transactional id unused for this long is forgotten."),
        read_only("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind::Int)
            .default("10000")
            .at_least(1)
            .doc(
                "Time between two looks for transactions that timed out, in Kafka. Here each is \
                 aborted when its own time is up.",
            ),
        read_only("transaction.remove.expired.transaction.cleanup.interval.ms", Kind::Int)
            .honoured()
            .default("3600000")
            .at_least(1)
            .doc("Time between two looks for transactional ids to forget."),
        cluster_wide("transaction.partition.verification.enable", Kind::Bool)
            .honoured()
            .default("true")
            .doc("Check with the coordinator before a transaction writes to a partition."),
        read_only("transaction.two.phase.commit.enable", Kind::Bool).default("false").doc(
            "Allow transactions that an outside coordinator prepares. Always off: the requests \
                 for it are not stable in Kafka either.",
        ),
        read_only("add.partitions.to.txn.retry.backoff.ms", Kind::Int)
            .honoured()
            .default("20")
            .at_least(1)
            .doc(
                "Longest wait of a leader before it asks again to add a partition to the \
                 transaction of a producer whose last one is just ending; the first is 1 ms.",
            ),
        read_only("add.partitions.to.txn.retry.backoff.max.ms", Kind::Int)
            .honoured()
            .default("100")
            .at_least(0)
            .doc("How long a leader goes on asking; then the client is told to try again."),
    ],
};
