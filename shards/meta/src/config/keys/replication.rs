//! Broker keys: fetches, producer ids, replication, cluster metadata.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, per_broker, read_only};

pub(super) const FETCH: Section = Section {
    title: "Fetch, requests that wait, producer ids",
    keys: &[
        read_only("fetch.max.bytes", Kind::Int)
            .default("57671680")
            .at_least(1024)
            .doc("Most record bytes that one Fetch answer holds.")
            .honoured(),
        read_only("max.incremental.fetch.session.cache.slots", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Incremental fetch sessions that one shard remembers.")
            .honoured(),
        read_only("fetch.purgatory.purge.interval.requests", Kind::Int)
            .default("1000")
            .doc("Kafka's clean-up interval for waiting fetches. Nothing to clean up here."),
        read_only("producer.purgatory.purge.interval.requests", Kind::Int)
            .default("1000")
            .doc("Kafka's clean-up interval for waiting produces. Nothing to clean up here."),
        read_only("delete.records.purgatory.purge.interval.requests", Kind::Int).default("1").doc(
            "Kafka's clean-up interval for waiting record deletions. Nothing to clean up here.",
        ),
        read_only("share.fetch.purgatory.purge.interval.requests", Kind::Int)
            .default("1000")
            .doc("Kafka's clean-up interval for waiting share fetches. Nothing to clean up here."),
        cluster_wide("producer.id.expiration.ms", Kind::Int)
            .default("86400000")
            .at_least(1)
            .doc("An idempotent producer that wrote nothing for this long is forgotten.")
            .honoured(),
        read_only("producer.id.expiration.check.interval.ms", Kind::Int)
            .default("600000")
            .at_least(1)
            .doc(
                "Time between two looks for forgotten producers, in Kafka. Here they go with \
                 retention, every log.retention.check.interval.ms.",
            )
            .hidden(),
    ],
};

pub(super) const REPLICATION: Section = Section {
    title: "Replication and leadership",
    keys: &[
        read_only("replica.lag.time.max.ms", Kind::Long)
            .default("30000")
            .doc("A follower that has not caught up for this long leaves the in-sync set."),
        read_only("replica.fetch.max.bytes", Kind::Int)
            .default("1048576")
            .at_least(0)
            .doc("Most bytes of one partition in a follower's fetch."),
        read_only("replica.fetch.response.max.bytes", Kind::Int)
            .default("10485760")
            .at_least(0)
            .doc("Most bytes of a follower's whole fetch."),
        read_only("replica.fetch.min.bytes", Kind::Int)
            .default("1")
            .doc("Bytes that a follower's fetch waits for."),
        read_only("replica.fetch.wait.max.ms", Kind::Int)
            .default("500")
            .doc("Longest wait of a follower's fetch."),
        read_only("replica.fetch.backoff.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Wait of a follower after a failed fetch."),
        cluster_wide("num.replica.fetchers", Kind::Int)
            .default("1")
            .at_least(1)
            .doc("Kafka's fetcher threads per source broker."),
        read_only("replica.high.watermark.checkpoint.interval.ms", Kind::Long)
            .default("5000")
            .doc("Time between two writes of the high watermark checkpoint."),
        read_only("replica.socket.timeout.ms", Kind::Int)
            .default("30000")
            .doc("Time limit of a follower's requests."),
        read_only("replica.socket.receive.buffer.bytes", Kind::Int)
            .default("65536")
            .doc("Socket receive buffer of a follower."),
        read_only("replica.selector.class", Kind::String)
            .doc("Java class that picks the replica for a consumer."),
        read_only("auto.leader.rebalance.enable", Kind::Bool)
            .default("true")
            .doc("Move leadership back to the preferred replicas by itself."),
        read_only("leader.imbalance.check.interval.seconds", Kind::Long)
            .default("300")
            .at_least(1)
            .doc("Time between two looks for leaders that are not the preferred ones."),
        read_only("unclean.leader.election.interval.ms", Kind::Long)
            .default("300000")
            .at_least(1)
            .doc("Time between two tries to elect a leader outside the in-sync set.")
            .hidden(),
        per_broker("leader.replication.throttled.rate", Kind::Long)
            .default("9223372036854775807")
            .at_least(0)
            .doc("Bytes a second that throttled leader replicas may send."),
        per_broker("follower.replication.throttled.rate", Kind::Long)
            .default("9223372036854775807")
            .at_least(0)
            .doc("Bytes a second that throttled follower replicas may fetch."),
        per_broker("replica.alter.log.dirs.io.max.bytes.per.second", Kind::Long)
            .default("9223372036854775807")
            .at_least(0)
            .doc("Bytes a second of moves between data directories, for each shard.")
            .honoured(),
        read_only("leader.imbalance.per.broker.percentage", Kind::Int)
            .default("10")
            .doc("Gone from Kafka 4; still read from old files.")
            .hidden(),
    ],
};

pub(super) const QUORUM: Section = Section {
    title: "Cluster metadata and quorum",
    keys: &[
        read_only("broker.heartbeat.interval.ms", Kind::Int)
            .default("2000")
            .doc("Time between two heartbeats of a broker to the controller."),
        read_only("broker.session.timeout.ms", Kind::Int)
            .default("9000")
            .doc("A broker without heartbeats for this long counts as gone."),
        read_only("initial.broker.registration.timeout.ms", Kind::Int)
            .default("60000")
            .doc("Longest wait for the first registration with the controller."),
        read_only("controller.socket.timeout.ms", Kind::Int)
            .default("30000")
            .doc("Time limit of requests to the controller."),
        read_only("controller.quorum.voters", Kind::List)
            .default("")
            .doc("Kafka's fixed list of controllers, id@host:port."),
        read_only("controller.quorum.bootstrap.servers", Kind::List)
            .default("")
            .doc("Where a controller quorum that can change is found."),
        read_only("controller.quorum.auto.join.enable", Kind::Bool)
            .default("false")
            .doc("Let a new controller join the quorum by itself."),
        read_only("controller.quorum.election.timeout.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Longest time without a leader before an election begins."),
        read_only("controller.quorum.election.backoff.max.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .doc("Longest wait before an election is tried again."),
        read_only("controller.quorum.fetch.timeout.ms", Kind::Int)
            .default("2000")
            .at_least(0)
            .doc("Longest time without an answer from the quorum's leader."),
        read_only("controller.quorum.fetch.max.bytes", Kind::Int)
            .default("1048576")
            .at_least(1)
            .doc("Most bytes of one metadata fetch."),
        read_only("controller.quorum.fetch.snapshot.max.bytes", Kind::Int)
            .default("1048576")
            .at_least(1)
            .doc("Most bytes of one metadata snapshot fetch."),
        read_only("controller.quorum.append.linger.ms", Kind::Int)
            .default("25")
            .at_least(0)
            .doc("Time for which metadata records are gathered before a write."),
        read_only("controller.quorum.request.timeout.ms", Kind::Int)
            .default("2000")
            .at_least(0)
            .doc("Time limit of requests inside the quorum."),
        read_only("controller.quorum.retry.backoff.ms", Kind::Int)
            .default("20")
            .at_least(0)
            .doc("Wait before a request inside the quorum is sent again."),
        read_only("metadata.log.dir", Kind::String)
            .doc("Data directory of the metadata log; not set: the first of log.dirs."),
        read_only("metadata.log.segment.bytes", Kind::Int)
            .default("1073741824")
            .at_least(8388608)
            .doc("Size of one segment of the metadata log."),
        read_only("metadata.log.segment.ms", Kind::Long)
            .default("604800000")
            .doc("Age at which a segment of the metadata log is closed."),
        read_only("metadata.log.max.record.bytes.between.snapshots", Kind::Long)
            .default("20971520")
            .at_least(1)
            .honoured()
            .doc("Bytes of metadata records after which a snapshot is written."),
        read_only("metadata.log.max.snapshot.interval.ms", Kind::Long)
            .default("3600000")
            .at_least(0)
            .doc("Longest time between two metadata snapshots; 0: no limit."),
        read_only("metadata.max.retention.bytes", Kind::Long)
            .default("104857600")
            .doc("Size of the metadata log above which old parts go."),
        read_only("metadata.max.retention.ms", Kind::Long)
            .default("604800000")
            .doc("Age above which old parts of the metadata log go."),
        read_only("metadata.max.idle.interval.ms", Kind::Int)
            .default("500")
            .at_least(0)
            .doc("Time between two no-op records in an idle metadata log."),
    ],
};
