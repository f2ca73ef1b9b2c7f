//! The settings a coordinator obeys, under Kafka's names and with Kafka's defaults, and what one
//! group may set otherwise.
//!
//! The registry of keys and their checks belong to `meta`; these are the values it resolved.

use crate::assign::Assignor;

/// Which conversions `group.consumer.migration.policy` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    Disabled,
    Upgrade,
    Downgrade,
    Bidirectional,
}

impl Migration {
    /// The policy by its name in the configuration, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let policies = [
            ("disabled", Migration::Disabled),
            ("upgrade", Migration::Upgrade),
            ("downgrade", Migration::Downgrade),
            ("bidirectional", Migration::Bidirectional),
        ];
        policies.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, it)| it)
    }

    pub(crate) fn may_upgrade(self) -> bool {
        matches!(self, Migration::Upgrade | Migration::Bidirectional)
    }

    pub(crate) fn may_downgrade(self) -> bool {
        matches!(self, Migration::Downgrade | Migration::Bidirectional)
    }
}

/// Times in milliseconds, sizes in members or bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `group.min.session.timeout.ms`, `group.max.session.timeout.ms`
    pub session_timeout_min_ms: i32,
    pub session_timeout_max_ms: i32,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub classic_members_max: usize,
    /// `offset.metadata.max.bytes`, counted in UTF-16 units as Kafka does
    pub offset_metadata_max: usize,
    /// `max.message.bytes` of `__consumer_offsets`: what one client makes of it at most with one
    /// request, be it one record or several
    pub record_bytes_max: usize,
    /// What the partition takes in one batch; of a decision that cannot be divided
    pub batch_bytes_max: usize,
    /// `offsets.retention.minutes`, `offsets.retention.check.interval.ms`
    pub offsets_retention_ms: i64,
    pub offsets_check_interval_ms: i64,
    /// `group.consumer.session.timeout.ms`, `group.consumer.heartbeat.interval.ms`
    pub consumer_session_timeout_ms: i32,
    pub consumer_heartbeat_interval_ms: i32,
    /// `group.consumer.max.size`
    pub consumer_members_max: usize,
    /// `group.consumer.assignors`: those on offer, the first one is the default
    pub assignors: Vec<Assignor>,
    /// `group.consumer.assignment.interval.ms`: least time between two target assignments
    pub assignment_interval_ms: i32,
    /// `group.consumer.regex.refresh.interval.ms`
    pub regex_refresh_interval_ms: i64,
    /// `group.consumer.migration.policy`
    pub migration: Migration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            classic_members_max: i32::MAX as usize,
            offset_metadata_max: 4_096,
            record_bytes_max: 1_048_588,
            batch_bytes_max: 4 << 20,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_check_interval_ms: 600_000,
            consumer_session_timeout_ms: 45_000,
            consumer_heartbeat_interval_ms: 5_000,
            consumer_members_max: i32::MAX as usize,
            assignors: vec![Assignor::Uniform, Assignor::Range],
            assignment_interval_ms: 1_000,
            regex_refresh_interval_ms: 600_000,
            migration: Migration::Bidirectional,
        }
    }
}

/// What one group sets for itself (config resource type 32); `None` where the broker's value holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupConfig {
    pub session_timeout_ms: Option<i32>,
    pub heartbeat_interval_ms: Option<i32>,
    pub assignment_interval_ms: Option<i32>,
}
