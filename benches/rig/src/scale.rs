//! What is measured and for how long: the full run and the quick one.

use std::time::Duration;

use crate::legs::restart::Held;
use crate::sample::Windows;

/// Connections of every load, and requests on the way on each: a producer's default of five.
pub const CONNECTIONS: usize = 2;
pub const IN_FLIGHT: usize = 5;
/// Partitions of the topics with many.
pub const MANY: i32 = 12;
pub const BACKFILL_READERS: i32 = 4;
const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub record_bytes: usize,
    pub batch_bytes: usize,
    pub partitions: i32,
    /// flush.messages=1: synced to the device before the acknowledgement.
    pub synced: bool,
}

impl Workload {
    const fn new(record_bytes: usize, batch_bytes: usize, partitions: i32) -> Self {
        Workload { record_bytes, batch_bytes, partitions, synced: false }
    }

    const fn synced(self) -> Self {
        Workload { synced: true, ..self }
    }

    pub fn title(&self) -> String {
        let record = match self.record_bytes {
            bytes if bytes % KIB == 0 => format!("{} KiB", bytes / KIB),
            bytes => format!("{bytes} B"),
        };
        let partitions = match self.partitions {
            1 => "1 partition".to_owned(),
            many => format!("{many} partitions"),
        };
        format!("{record} records, {} KiB batches, {partitions}", self.batch_bytes / KIB)
    }

    /// Fit for a topic name.
    pub fn name(&self) -> String {
        let synced = if self.synced { "-synced" } else { "" };
        format!("{}-{}-{}{synced}", self.record_bytes, self.batch_bytes, self.partitions)
    }
}

#[derive(Debug)]
pub struct Scale {
    pub name: &'static str,
    /// Clean starts measured in each leg.
    pub starts: usize,
    pub idle: Duration,
    /// Load before anything is measured: a virtual machine compiles its code only then.
    pub exercise: Duration,
    pub produce: Vec<Workload>,
    pub produce_windows: Windows,
    pub consume_partitions: Vec<i32>,
    /// Small enough to stay in both brokers' memory.
    pub consume_hot_bytes: u64,
    pub consume_windows: Windows,
    /// Of the log that is recovered after SIGKILL, and read cold after that.
    pub recover_bytes: u64,
    pub latency_warmup: Duration,
    pub latency_length: Duration,
    pub latency_per_second: f64,
    pub disk_probe: Duration,
    /// Measured by every leg, and those that only one leg of each broker measures.
    pub held: Vec<Held>,
    pub held_once: Vec<Held>,
    /// Kafka's heap and Corelane's `--memory` beside backfill readers, as both write it.
    pub backfill_memory: &'static str,
    /// Four times as much and some more.
    pub backfill_bytes: u64,
    /// Of one reader that does not go as fast as it can.
    pub backfill_rate: f64,
    pub backfill_length: Duration,
    pub many_partitions: i32,
    pub many_per_second: f64,
    pub many_length: Duration,
    pub groups: GroupScale,
    pub txn: TxnScale,
    pub speed: SpeedScale,
    /// Whether each part is measured once more by both brokers, the other way round.
    pub twice: bool,
}

/// Of consumer groups.
#[derive(Debug, Clone, Copy)]
pub struct GroupScale {
    /// From join to first record: before anything is measured, and measured.
    pub unmeasured_joins: usize,
    pub joins: usize,
    /// That rebalance: members before one more joins, and partitions.
    pub members: usize,
    pub partitions: i32,
    /// Rebalances of each kind with short intervals between heartbeats, and with the usual ones.
    pub short_rounds: usize,
    pub usual_rounds: usize,
    /// Of commits, where there is more than one.
    pub commit_connections: usize,
    pub commit_windows: Windows,
    /// Before any are measured: a virtual machine compiles its code only then.
    pub unmeasured_commits: Duration,
    pub idle_groups: usize,
    /// Before memory is looked at.
    pub idle: Duration,
}

impl GroupScale {
    const fn full() -> Self {
        GroupScale {
            unmeasured_joins: 200,
            joins: 200,
            members: 100,
            partitions: 1_000,
            short_rounds: 10,
            usual_rounds: 4,
            commit_connections: 16,
            commit_windows: Windows {
                warmup: Duration::from_secs(1),
                length: Duration::from_millis(1500),
                count: 3,
            },
            unmeasured_commits: Duration::from_secs(12),
            idle_groups: 10_000,
            idle: Duration::from_secs(5),
        }
    }

    const fn quick() -> Self {
        GroupScale {
            unmeasured_joins: 50,
            joins: 50,
            short_rounds: 3,
            usual_rounds: 1,
            commit_windows: Windows {
                warmup: Duration::from_millis(500),
                length: Duration::from_secs(1),
                count: 2,
            },
            unmeasured_commits: Duration::from_secs(5),
            ..Self::full()
        }
    }

    /// So little that a test has time for it.
    #[cfg(test)]
    pub const fn smoke() -> Self {
        GroupScale {
            unmeasured_joins: 1,
            joins: 2,
            members: 5,
            partitions: 23,
            short_rounds: 2,
            usual_rounds: 0,
            commit_connections: 3,
            commit_windows: Windows {
                warmup: Duration::from_millis(50),
                length: Duration::from_millis(100),
                count: 1,
            },
            unmeasured_commits: Duration::from_millis(50),
            idle_groups: 60,
            idle: Duration::ZERO,
        }
    }
}

/// Of transactions and idempotence.
#[derive(Debug, Clone, Copy)]
pub struct TxnScale {
    /// Transactional ids that are used at once, where there is more than one.
    pub ids: usize,
    /// Before any are measured: a virtual machine compiles its code only then.
    pub unmeasured: Duration,
    pub windows: Windows,
    /// Open loop: transactions a second over all ids.
    pub paced_per_second: f64,
    pub paced_warmup: Duration,
    pub paced_length: Duration,
    /// Of produce with and without idempotence, each twice.
    pub produce_windows: Windows,
    pub producer_ids: usize,
    /// Before memory is looked at.
    pub idle: Duration,
}

impl TxnScale {
    const fn full() -> Self {
        TxnScale {
            ids: 16,
            unmeasured: Duration::from_secs(12),
            windows: Windows {
                warmup: Duration::from_secs(1),
                length: Duration::from_millis(1500),
                count: 3,
            },
            paced_per_second: 100.0,
            paced_warmup: Duration::from_secs(2),
            paced_length: Duration::from_secs(15),
            produce_windows: Windows {
                warmup: Duration::from_secs(1),
                length: Duration::from_millis(1500),
                count: 2,
            },
            producer_ids: 100_000,
            idle: Duration::from_secs(5),
        }
    }

    const fn quick() -> Self {
        let (warmup, length) = (Duration::from_millis(500), Duration::from_secs(1));
        TxnScale {
            unmeasured: Duration::from_secs(5),
            windows: Windows { warmup, length, count: 2 },
            paced_warmup: Duration::from_secs(1),
            paced_length: Duration::from_secs(5),
            produce_windows: Windows { warmup, length, count: 1 },
            idle: Duration::from_secs(3),
            ..Self::full()
        }
    }

    /// So little that a test has time for it.
    #[cfg(test)]
    pub const fn smoke() -> Self {
        let (warmup, length) = (Duration::from_millis(50), Duration::from_millis(300));
        TxnScale {
            ids: 3,
            unmeasured: Duration::from_millis(50),
            windows: Windows { warmup, length, count: 1 },
            paced_per_second: 20.0,
            paced_warmup: Duration::from_millis(50),
            paced_length: Duration::from_millis(500),
            produce_windows: Windows { warmup, length, count: 1 },
            producer_ids: 400,
            idle: Duration::ZERO,
        }
    }
}

/// Of the rows that the project is judged by.
#[derive(Debug, Clone, Copy)]
pub struct SpeedScale {
    /// Load before anything is measured: a virtual machine compiles its code only then.
    pub exercise: Duration,
    pub windows: Windows,
    pub producers: usize,
    /// Of a producer with little to send at a time.
    pub small_batch_records: usize,
    pub partitions: i32,
    pub open_warmup: Duration,
    pub open_length: Duration,
    /// What the disk takes by itself, before and after the broker's part.
    pub disk_probe: Duration,
}

impl SpeedScale {
    const fn full() -> Self {
        SpeedScale {
            exercise: Duration::from_secs(12),
            windows: Windows {
                warmup: Duration::from_secs(1),
                length: Duration::from_millis(1500),
                count: 3,
            },
            producers: 50,
            small_batch_records: 10,
            partitions: 1_000,
            open_warmup: Duration::from_secs(2),
            open_length: Duration::from_secs(15),
            disk_probe: Duration::from_secs(2),
        }
    }

    const fn quick() -> Self {
        SpeedScale {
            exercise: Duration::from_secs(4),
            windows: Windows {
                warmup: Duration::from_millis(500),
                length: Duration::from_secs(1),
                count: 2,
            },
            open_warmup: Duration::from_secs(1),
            open_length: Duration::from_secs(5),
            disk_probe: Duration::from_secs(1),
            ..Self::full()
        }
    }

    /// So little that a test has time for it.
    #[cfg(test)]
    pub const fn smoke() -> Self {
        let (warmup, length) = (Duration::from_millis(50), Duration::from_millis(200));
        SpeedScale {
            exercise: warmup,
            windows: Windows { warmup, length, count: 2 },
            producers: 5,
            small_batch_records: 3,
            partitions: 20,
            open_warmup: warmup,
            open_length: length,
            disk_probe: warmup,
        }
    }
}

impl Scale {
    pub fn full() -> Self {
        let windows = |warmup, length, count| Windows { warmup, length, count };
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        let mut produce = Vec::new();
        for record_bytes in [100, KIB] {
            for batch_bytes in [16 * KIB, 256 * KIB] {
                for partitions in [1, MANY] {
                    produce.push(Workload::new(record_bytes, batch_bytes, partitions));
                }
            }
        }
        produce.push(Workload::new(KIB, 16 * KIB, MANY).synced());
        produce.push(Workload::new(KIB, 256 * KIB, MANY).synced());
        Scale {
            name: "full",
            starts: 2,
            idle: s(3),
            exercise: s(12),
            produce,
            produce_windows: windows(s(1), ms(1500), 3),
            consume_partitions: vec![1, MANY],
            consume_hot_bytes: 128 * MIB,
            consume_windows: windows(s(1), ms(1500), 3),
            recover_bytes: 1024 * MIB,
            latency_warmup: s(2),
            latency_length: s(15),
            latency_per_second: 400.0,
            disk_probe: s(3),
            held: vec![Held::Partitions(10_000), Held::Mebibytes(10 << 10)],
            held_once: vec![
                Held::Mebibytes(20 << 10),
                Held::Mebibytes(1 << 10),
                Held::Partitions(1_000),
            ],
            backfill_memory: "512M",
            backfill_bytes: 2304 * MIB,
            backfill_rate: 100e6,
            backfill_length: s(12),
            many_partitions: 10_000,
            many_per_second: 1000.0,
            many_length: s(15),
            groups: GroupScale::full(),
            txn: TxnScale::full(),
            speed: SpeedScale::full(),
            twice: true,
        }
    }

    pub fn quick() -> Self {
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        let windows = Windows { warmup: ms(500), length: s(1), count: 2 };
        Scale {
            name: "quick",
            starts: 1,
            idle: s(2),
            exercise: s(3),
            produce: vec![
                Workload::new(100, 16 * KIB, MANY),
                Workload::new(KIB, 16 * KIB, 1),
                Workload::new(KIB, 16 * KIB, MANY),
                Workload::new(KIB, 256 * KIB, MANY),
            ],
            produce_windows: windows,
            consume_partitions: vec![MANY],
            consume_windows: windows,
            recover_bytes: 256 * MIB,
            latency_warmup: s(1),
            latency_length: s(5),
            disk_probe: s(1),
            held: vec![Held::Mebibytes(256), Held::Partitions(200)],
            held_once: Vec::new(),
            backfill_memory: "256M",
            backfill_bytes: 1100 * MIB,
            backfill_length: s(3),
            many_partitions: 200,
            many_length: s(3),
            groups: GroupScale::quick(),
            txn: TxnScale::quick(),
            speed: SpeedScale::quick(),
            twice: false,
            ..Self::full()
        }
    }

    /// Of every load but the table's produce rows.
    pub fn usual() -> Workload {
        Workload::new(KIB, 16 * KIB, MANY)
    }
}
