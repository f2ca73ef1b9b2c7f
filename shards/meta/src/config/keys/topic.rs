//! Every topic key, with the broker keys that give its default, nearest first.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; Corelane's own keys are at the
//! end.

use super::super::key::{Kind, Section, topic};

pub(super) const TOPIC: Section = Section { title: "Topic keys", keys: &[
    topic("cleanup.policy", Kind::List)
        .default("delete")
        .each_of(&["compact", "delete"])
        .synonyms(&["log.cleanup.policy"])
        .doc(
            "What happens to old records: `delete` removes whole segments by age and size, \
             `compact` keeps the last value of each key. Both may be given, and none: then \
             everything is kept. A compacted topic refuses records without a key.",
        )
        .honoured(),
    topic("compression.type", Kind::String)
        .default("producer")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .synonyms(&["compression.type"])
        .doc(
            "How batches are stored: `producer` keeps them as they were sent; any other value \
             makes the broker recompress what was sent otherwise.",
        )
        .honoured(),
    topic("compression.gzip.level", Kind::Int)
        .default("-1")
        .between_or(1, 9, -1)
        .synonyms(&["compression.gzip.level"])
        .doc("Level when the broker compresses with gzip; -1: the library's own default.")
        .honoured(),
    topic("compression.lz4.level", Kind::Int)
        .default("9")
        .between(1, 17)
        .synonyms(&["compression.lz4.level"])
        .doc("Level when the broker compresses with lz4.")
        .honoured(),
    topic("compression.zstd.level", Kind::Int)
        .default("3")
        .between(-131072, 22)
        .synonyms(&["compression.zstd.level"])
        .doc("Level when the broker compresses with zstd.")
        .honoured(),
    topic("retention.ms", Kind::Long)
        .default("604800000")
        .at_least(-1)
        .synonyms(&["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
        .doc("Segments whose newest record is older than this are deleted; -1: never by age.")
        .honoured(),
    topic("retention.bytes", Kind::Long)
        .default("-1")
        .synonyms(&["log.retention.bytes"])
        .doc("Size of a partition above which its oldest segments are deleted; -1: no limit.")
        .honoured(),
    topic("segment.bytes", Kind::Int)
        .default("1073741824")
        .at_least(1048576)
        .synonyms(&["log.segment.bytes"])
        .doc("Size at which a segment file is closed and the next one begins.")
        .honoured(),
    topic("segment.ms", Kind::Long)
        .default("604800000")
        .at_least(1)
        .synonyms(&["log.roll.ms", "log.roll.hours"])
        .doc(
            "Age at which a segment is closed even if it is not full, counted from its first \
             batch.",
        )
        .honoured(),
    topic("segment.jitter.ms", Kind::Long)
        .default("0")
        .at_least(0)
        .synonyms(&["log.roll.jitter.ms", "log.roll.jitter.hours"])
        .doc("Random time taken off segment.ms so that not all partitions roll at once.")
        .honoured(),
    topic("segment.index.bytes", Kind::Int)
        .default("10485760")
        .at_least(4)
        .synonyms(&["log.index.size.max.bytes"])
        .doc("Largest index file of a segment; a full index closes the segment.")
        .honoured(),
    topic("index.interval.bytes", Kind::Int)
        .default("4096")
        .at_least(0)
        .synonyms(&["log.index.interval.bytes"])
        .doc("Bytes of records between two index entries.")
        .honoured(),
    topic("flush.messages", Kind::Long)
        .default("9223372036854775807")
        .at_least(1)
        .synonyms(&["log.flush.interval.messages"])
        .doc(
            "Sync the file after this many records. 1: no record is acknowledged before it is \
             synced.",
        )
        .honoured(),
    topic("flush.ms", Kind::Long)
        .default("9223372036854775807")
        .at_least(0)
        .synonyms(&["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
        .doc("Sync the file at least this often.")
        .honoured(),
    topic("max.message.bytes", Kind::Int)
        .default("1048588")
        .at_least(0)
        .synonyms(&["message.max.bytes"])
        .doc("Largest batch of records, as it is sent (after compression).")
        .honoured(),
    topic("max.decompressed.message.bytes", Kind::Int)
        .default("2147483639")
        .between(1, 2147483639)
        .synonyms(&["max.decompressed.message.bytes"])
        .doc("Largest record, decompressed, in a compressed batch that the broker has to open.")
        .honoured(),
    topic("message.timestamp.type", Kind::String)
        .default("CreateTime")
        .one_of(&["CreateTime", "LogAppendTime"])
        .synonyms(&["log.message.timestamp.type"])
        .doc(
            "Whose clock stamps the records: CreateTime, the producer's; LogAppendTime, the \
             broker's.",
        )
        .honoured(),
    topic("message.timestamp.before.max.ms", Kind::Long)
        .default("9223372036854775807")
        .at_least(0)
        .synonyms(&["log.message.timestamp.before.max.ms"])
        .doc("How far a producer's timestamp may lie in the past.")
        .honoured(),
    topic("message.timestamp.after.max.ms", Kind::Long)
        .default("3600000")
        .at_least(0)
        .synonyms(&["log.message.timestamp.after.max.ms"])
        .doc("How far a producer's timestamp may lie in the future.")
        .honoured(),
    topic("min.insync.replicas", Kind::Int)
        .default("1")
        .at_least(1)
        .synonyms(&["min.insync.replicas"])
        .doc("Replicas, the leader included, that must have a record before acks=all is answered.")
        .honoured(),
    topic("unclean.leader.election.enable", Kind::Bool)
        .default("false")
        .synonyms(&["unclean.leader.election.enable"])
        .doc("Allow a replica that may lack records to become leader when no other is alive."),
    topic("min.cleanable.dirty.ratio", Kind::Double)
        .default("0.5")
        .real_between(0.0, 1.0)
        .synonyms(&["log.cleaner.min.cleanable.ratio"])
        .doc("Part of a log that must be new before it is compacted again, 0 to 1.").honoured(),
    topic("min.compaction.lag.ms", Kind::Long)
        .default("0")
        .at_least(0)
        .synonyms(&["log.cleaner.min.compaction.lag.ms"])
        .doc("Time for which a record is certain not to be compacted away.").honoured(),
    topic("max.compaction.lag.ms", Kind::Long)
        .default("9223372036854775807")
        .at_least(1)
        .synonyms(&["log.cleaner.max.compaction.lag.ms"])
        .doc("Time after which a record is compacted even if little else is new.").honoured(),
    topic("delete.retention.ms", Kind::Long)
        .default("86400000")
        .at_least(0)
        .synonyms(&["log.cleaner.delete.retention.ms"])
        .doc("How long deletion markers stay visible in a compacted topic.").honoured(),
    topic("file.delete.delay.ms", Kind::Long)
        .default("60000")
        .at_least(0)
        .synonyms(&["log.segment.delete.delay.ms"])
        .doc(
            "Time between the removal of a segment from the log and that of its files from the \
             disk.",
        )
        .honoured(),
    topic("preallocate", Kind::Bool)
        .default("false")
        .synonyms(&["log.preallocate"])
        .doc("Allocate a segment's whole size on the disk when it is begun.")
        .honoured(),
    topic("leader.replication.throttled.replicas", Kind::List)
        .default("")
        .throttled_replicas()
        .doc("Replicas whose leader side is throttled, as partition:broker pairs, or `*` for all."),
    topic("follower.replication.throttled.replicas", Kind::List)
        .default("")
        .throttled_replicas()
        .doc(
            "Replicas whose follower side is throttled, as partition:broker pairs, or `*` for \
             all.",
        ),
    topic("remote.storage.enable", Kind::Bool)
        .default("false")
        .doc(
            "Keep old segments of this topic in remote storage. Refused while tiered storage is \
             off.",
        ),
    topic("local.retention.ms", Kind::Long)
        .default("-2")
        .at_least(-2)
        .synonyms(&["log.local.retention.ms"])
        .doc(
            "Age up to which segments stay local when older ones are in remote storage; -2: as \
             retention.ms.",
        ),
    topic("local.retention.bytes", Kind::Long)
        .default("-2")
        .at_least(-2)
        .synonyms(&["log.local.retention.bytes"])
        .doc(
            "Size up to which segments stay local when older ones are in remote storage; -2: as \
             retention.bytes.",
        ),
    topic("remote.log.copy.disable", Kind::Bool)
        .default("false")
        .doc("Stop copying this topic's segments to remote storage."),
    topic("remote.log.delete.on.disable", Kind::Bool)
        .default("false")
        .doc("Delete the remote segments when remote storage is turned off for this topic."),
    topic("remote.copy.lag.ms", Kind::Long)
        .default("0")
        .at_least(-1)
        .synonyms(&["log.remote.copy.lag.ms"])
        .doc("Age at which a closed segment is copied to remote storage; -1: by local retention."),
    topic("remote.copy.lag.bytes", Kind::Long)
        .default("-1")
        .at_least(-1)
        .synonyms(&["log.remote.copy.lag.bytes"])
        .doc(
            "Bytes behind the log's end at which a segment is copied to remote storage; -1: by \
             local retention.",
        ),
    topic("errors.deadletterqueue.group.enable", Kind::Bool)
        .default("false")
        .doc("Allow share groups to use this topic for records that they gave up."),
    topic("internal.segment.bytes", Kind::Int)
        .doc("Overrides segment.bytes without its lower bound, for tests.")
        .honoured()
        .hidden(),
    topic("write.caching", Kind::Bool)
        .default("false")
        .synonyms(&["log.write.caching"])
        .doc(
            "Corelane's own: acknowledge from memory, before the record is written. The fastest, and a \
             crash of the process loses what was not yet written.",
        )
        .honoured(),
    topic("record.validation", Kind::String)
        .default("relaxed")
        .one_of(&["relaxed", "strict"])
        .synonyms(&["record.validation"])
        .doc(
            "Corelane's own: `relaxed` checks compressed batches by header and checksum, `strict` opens \
             each of them and checks every record.",
        )
        .honoured(),
]};
