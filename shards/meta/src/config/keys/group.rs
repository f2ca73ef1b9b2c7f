//! Keys of the dynamic group resource and of client metrics subscriptions.
//! Those of consumer groups have an effect; all others are checked and stored.

use super::super::key::{Kind, Section, client_metrics, group};

pub(super) const GROUP: Section = Section {
    title: "Group keys",
    keys: &[
        group("consumer.session.timeout.ms", Kind::Int)
            .honoured()
            .default("45000")
            .at_least(1)
            .synonyms(&["group.consumer.session.timeout.ms"])
            .doc("Session timeout of this group's members."),
        group("consumer.heartbeat.interval.ms", Kind::Int)
            .honoured()
            .default("5000")
            .at_least(1)
            .synonyms(&["group.consumer.heartbeat.interval.ms"])
            .doc("Heartbeat interval of this group's members."),
        group("consumer.assignment.interval.ms", Kind::Int)
            .honoured()
            .default("1000")
            .at_least(0)
            .synonyms(&["group.consumer.assignment.interval.ms"])
            .doc("Least time between two assignments of this group."),
        group("consumer.assignor.offload.enable", Kind::Bool)
            .default("true")
            .synonyms(&["group.consumer.assignor.offload.enable"])
            .doc("Compute this group's assignments on a background thread.")
            .hidden(),
        group("share.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .synonyms(&["group.share.session.timeout.ms"])
            .doc("Session timeout of this share group's members."),
        group("share.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .synonyms(&["group.share.heartbeat.interval.ms"])
            .doc("Heartbeat interval of this share group's members."),
        group("share.record.lock.duration.ms", Kind::Int)
            .default("30000")
            .at_least(1000)
            .synonyms(&["group.share.record.lock.duration.ms"])
            .doc("How long a record delivered to this share group stays locked."),
        group("share.delivery.count.limit", Kind::Int)
            .default("5")
            .at_least(2)
            .synonyms(&["group.share.delivery.count.limit"])
            .doc("Deliveries of one record before this share group gives it up."),
        group("share.partition.max.record.locks", Kind::Int)
            .default("2000")
            .at_least(100)
            .synonyms(&["group.share.partition.max.record.locks"])
            .doc("Records of one partition that this share group may lock at a time."),
        group("share.auto.offset.reset", Kind::String).default("latest").offset_reset().doc(
            "Where this share group starts: latest, earliest or by_duration:<ISO 8601 duration>.",
        ),
        group("share.isolation.level", Kind::String)
            .default("read_uncommitted")
            .one_of(&["read_committed", "read_uncommitted"])
            .doc("Whether this share group sees records of open transactions."),
        group("share.renew.acknowledge.enable", Kind::Bool)
            .default("true")
            .doc("Allow consumers of this share group to renew their locks."),
        group("share.assignment.interval.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .synonyms(&["group.share.assignment.interval.ms"])
            .doc("Least time between two assignments of this share group."),
        group("share.assignor.offload.enable", Kind::Bool)
            .default("true")
            .synonyms(&["group.share.assignor.offload.enable"])
            .doc("Compute this share group's assignments on a background thread.")
            .hidden(),
        group("streams.session.timeout.ms", Kind::Int)
            .default("45000")
            .at_least(1)
            .synonyms(&["group.streams.session.timeout.ms"])
            .doc("Session timeout of this streams group's members."),
        group("streams.heartbeat.interval.ms", Kind::Int)
            .default("5000")
            .at_least(1)
            .synonyms(&["group.streams.heartbeat.interval.ms"])
            .doc("Heartbeat interval of this streams group's members."),
        group("streams.num.standby.replicas", Kind::Int)
            .default("0")
            .at_least(0)
            .synonyms(&["group.streams.num.standby.replicas"])
            .doc("Standby copies of each task's state."),
        group("streams.num.warmup.replicas", Kind::Int)
            .default("2")
            .at_least(0)
            .synonyms(&["group.streams.num.warmup.replicas"])
            .doc("Extra copies that may warm up at a time.")
            .hidden(),
        group("streams.initial.rebalance.delay.ms", Kind::Int)
            .default("3000")
            .at_least(0)
            .synonyms(&["group.streams.initial.rebalance.delay.ms"])
            .doc("How long this new group waits for more members."),
        group("streams.assignment.interval.ms", Kind::Int)
            .default("1000")
            .at_least(0)
            .synonyms(&["group.streams.assignment.interval.ms"])
            .doc("Least time between two assignments of this streams group."),
        group("streams.assignor.name", Kind::String)
            .synonyms(&["group.streams.assignors"])
            .doc("Assignor of this streams group."),
        group("streams.rack.aware.assignment.tags", Kind::List)
            .default("")
            .synonyms(&["group.streams.rack.aware.assignment.tags"])
            .doc("Client tags by which standby copies are spread."),
        group("streams.task.offset.interval.ms", Kind::Int)
            .default("60000")
            .at_least(1)
            .synonyms(&["group.streams.task.offset.interval.ms"])
            .doc("Time between two reports of task offsets.")
            .hidden(),
        group("streams.acceptable.recovery.lag", Kind::Long)
            .default("10000")
            .at_least(0)
            .synonyms(&["group.streams.acceptable.recovery.lag"])
            .doc("Offsets that a task may lag behind and still count as caught up.")
            .hidden(),
        group("streams.assignor.offload.enable", Kind::Bool)
            .default("true")
            .synonyms(&["group.streams.assignor.offload.enable"])
            .doc("Compute this streams group's assignments on a background thread.")
            .hidden(),
        group("errors.deadletterqueue.topic.name", Kind::String)
            .default("")
            .doc("Topic that takes the records that this share group gave up."),
        group("errors.deadletterqueue.copy.record.enable", Kind::Bool)
            .default("false")
            .doc("Copy the whole record to the dead letter topic, not only its position."),
    ],
};

pub(super) const CLIENT_METRICS: Section = Section {
    title: "Client metrics keys",
    keys: &[
        client_metrics("metrics", Kind::List)
            .default("")
            .doc("Prefixes of the metrics that clients shall push; `*`: all."),
        client_metrics("interval.ms", Kind::Int)
            .default("300000")
            .between(100, 3600000)
            .doc("Time between two pushes of a client."),
        client_metrics("match", Kind::List)
            .default("")
            .doc("Which clients this is for, as selector=pattern; empty: all."),
    ],
};
