//! The workloads of `benches/workloads/`, in the program.

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../workloads/", $name, ".toml")))),*]
    };
}

/// By name.
pub const BUILT_IN: &[(&str, &str)] = built_in![
    "1-topic-1-partition-100b",
    "1-topic-1-partition-1kb",
    "1-topic-100-partitions-1kb-4p-4c",
    "1-topic-16-partitions-1kb",
    "1-topic-3-partitions-100b-3producers",
    "1000-connections-100b",
    "backlog-1-topic-1-partition-1kb",
    "groups-4x4-1kb",
    "keyed-50-producers-1000-partitions",
    "latency-curve-1kb",
    "max-rate-1-topic-1-partition-1p-1c-100b",
    "max-rate-1-topic-1-partition-1p-1c-1kb",
    "max-rate-1-topic-3-partitions-100b-3producers",
    "max-rate-produce-12-partitions-1kb",
    "max-rate-produce-12-partitions-1kb-synced",
    "mixed-backlog-1kb",
    "text-zstd-1kb",
    "transactions-100-records",
];
