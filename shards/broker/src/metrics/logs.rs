//! Partitions and their logs, summed up by topic, and the memory that a shard works with.

use std::collections::BTreeMap;

use super::Samples;
use crate::partition::Partition;
use crate::partitions::SlotCounts;
use crate::shard::Shard;

#[derive(Default)]
struct Sum {
    partitions: u64,
    segments: u64,
    bytes: u64,
}

/// Gauge whose sum over all shards must be 0 for the broker to be ready.
pub(super) const OPENING: &str = "corelane_partitions_opening";
/// The broker is ready whatever this says, and tells it.
pub(super) const OFFLINE: &str = "corelane_partitions_offline";

const RETENTION_HELD: (&str, &str) = (
    "corelane_retention_held_segments",
    "Segments that retention would have removed but for one record's timestamp, or a transaction that is \
     open; the broker's log names it.",
);
const COMPACTION_HELD: (&str, &str) = (
    "corelane_compaction_held_segments",
    "Segments that compaction leaves as they are because of a transaction that is open.",
);

fn labels<'a>(
    partition: &'a Partition,
    index: &'a str,
    reason: &'static str,
) -> [(&'static str, &'a str); 3] {
    [("topic", partition.topic.as_ref()), ("partition", index), ("reason", reason)]
}

pub(super) fn samples(shard: &Shard, out: &mut Samples) {
    let mut topics: BTreeMap<&str, Sum> = BTreeMap::new();
    let open = shard.open_partitions();
    for partition in &open {
        let sum = topics.entry(&partition.topic).or_default();
        sum.partitions += 1;
        sum.segments += partition.log.segment_count() as u64;
        sum.bytes += partition.log.size_bytes();
        let index = || partition.index.to_string();
        let aside = partition.log.set_aside_bytes();
        if aside > 0 {
            let index = index();
            let labels = [("topic", partition.topic.as_ref()), ("partition", index.as_str())];
            let help = "Bytes of records that lay behind damage, in files that are set aside.";
            out.gauge("corelane_partition_set_aside_bytes", help, &labels, aside as f64);
        }
        if let Some(hold) = partition.log.retention_hold() {
            let index = index();
            let labels = labels(partition, &index, "timestamp");
            out.gauge(RETENTION_HELD.0, RETENTION_HELD.1, &labels, hold.segments as f64);
        }
        if let Some(hold) = partition.log.undecided_hold() {
            let index = index();
            let labels = labels(partition, &index, "transaction");
            let (retention, compaction) = (hold.from_retention, hold.from_compaction);
            if retention > 0 {
                out.gauge(RETENTION_HELD.0, RETENTION_HELD.1, &labels, retention as f64);
            }
            if compaction > 0 {
                out.gauge(COMPACTION_HELD.0, COMPACTION_HELD.1, &labels, compaction as f64);
            }
        }
    }
    for (topic, sum) in topics {
        let label = [("topic", topic)];
        let help = "Partitions of the topic that are open.";
        out.gauge("corelane_topic_partitions", help, &label, sum.partitions as f64);
        let help = "Segments of the topic's logs.";
        out.gauge("corelane_topic_segments", help, &label, sum.segments as f64);
        let help = "Bytes of batches in the topic's logs.";
        out.gauge("corelane_topic_log_bytes", help, &label, sum.bytes as f64);
    }
    let SlotCounts { opening, online, offline } = shard.partitions.counts();
    let help = "Partitions that are being opened or recovered.";
    out.gauge(OPENING, help, &[], opening as f64);
    out.gauge("corelane_partitions_online", "Partitions that are served.", &[], online as f64);
    let help = "Partitions that take no records: they could not be opened, their data directory has \
                failed or was not named, or a write failed; the broker's log says why.";
    out.gauge(OFFLINE, help, &[], offline as f64);
}

pub(super) fn memory(shard: &Shard, out: &mut Samples) {
    let number = shard.id().to_string();
    let logs = &shard.log_shared;
    let requests = &shard.request_budget;
    let pools = [
        ("tails", logs.cache_used_bytes(), logs.cache_limit_bytes()),
        ("backfill", logs.backfill_used_bytes(), logs.backfill_limit_bytes()),
        ("requests", requests.used(), requests.capacity()),
        ("answers", shard.answers.held(), shard.answers.capacity()),
    ];
    for (pool, used, limit) in pools {
        let labels = [("shard", number.as_str()), ("pool", pool)];
        let help = "Memory in use, by shard and purpose.";
        out.gauge("corelane_memory_used_bytes", help, &labels, used as f64);
        let help = "The most that this shard may use for this purpose.";
        out.gauge("corelane_memory_limit_bytes", help, &labels, limit as f64);
    }
    out.gauge(
        "corelane_pinned_bytes",
        "Bytes of evicted tails that replies hold which clients have not taken.",
        &[("shard", &number)],
        logs.pinned_bytes() as f64,
    );
    out.gauge(
        "corelane_unwritten_bytes",
        "Bytes of batches that no device has yet.",
        &[("shard", &number)],
        logs.unwritten_bytes() as f64,
    );
}
