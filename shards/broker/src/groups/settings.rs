//! From the broker's settings to those of a coordinator.

use coord::assign::Assignor;
use coord::{Config, Coordinator, GroupConfig, Migration};
use meta::config::{GroupsConfig, Settings};
use meta::controller::GROUP_OFFSETS_TOPIC;

use crate::coordinators::batch_bytes_max;
use crate::shard::Shard;

/// Kafka's own classes may be named in full.
const CLASS_PREFIX: &str = "org.apache.kafka.coordinator.group.assignor.";

pub(super) fn of_shard(shard: &Shard) -> Config {
    let most = shard.topic_config(GROUP_OFFSETS_TOPIC).max_message_bytes as usize;
    let batch_bytes_max = batch_bytes_max::<Coordinator>(shard);
    let record_bytes_max = most.min(batch_bytes_max);
    Config { record_bytes_max, batch_bytes_max, ..coordinator(&shard.config().groups) }
}

fn coordinator(config: &GroupsConfig) -> Config {
    let count = |most: u32| usize::try_from(most).unwrap_or(usize::MAX);
    let mut assignors: Vec<Assignor> =
        config.assignors.iter().filter_map(|name| assignor(name)).collect();
    if assignors.is_empty() {
        // None of those that are named is known here.
        assignors = Config::default().assignors;
    }
    Config {
        session_timeout_min_ms: config.session_timeout_min_ms,
        session_timeout_max_ms: config.session_timeout_max_ms,
        initial_rebalance_delay_ms: config.initial_rebalance_delay_ms,
        classic_members_max: count(config.classic_members_max),
        offset_metadata_max: count(config.offset_metadata_max),
        offsets_retention_ms: config.offsets_retention_ms,
        offsets_check_interval_ms: config.offsets_check_interval_ms,
        consumer_session_timeout_ms: config.consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms: config.consumer_heartbeat_interval_ms,
        consumer_members_max: count(config.consumer_members_max),
        assignors,
        assignment_interval_ms: config.assignment_interval_ms,
        regex_refresh_interval_ms: config.regex_refresh_interval_ms,
        migration: Migration::from_name(&config.migration_policy)
            .unwrap_or(Migration::Bidirectional),
        ..Config::default()
    }
}

fn assignor(name: &str) -> Option<Assignor> {
    let short = name.strip_prefix(CLASS_PREFIX).and_then(|class| class.strip_suffix("Assignor"));
    Assignor::from_name(&short.map_or_else(|| name.to_owned(), str::to_lowercase))
}

/// What a group sets for itself; none if it sets nothing that matters to a coordinator.
pub(super) fn group(settings: &Settings) -> Option<GroupConfig> {
    let number = |key: &str| settings.get(key)?.trim().parse::<i32>().ok();
    let config = GroupConfig {
        session_timeout_ms: number("consumer.session.timeout.ms"),
        heartbeat_interval_ms: number("consumer.heartbeat.interval.ms"),
        assignment_interval_ms: number("consumer.assignment.interval.ms"),
    };
    (config != GroupConfig::default()).then_some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_coordinators_own() {
        assert_eq!(coordinator(&meta::config::BrokerConfig::default().groups), Config::default());
    }

    #[test]
    fn assignors_go_by_their_name_or_class() {
        assert_eq!(assignor("range"), Some(Assignor::Range));
        let class = "org.apache.kafka.coordinator.group.assignor.UniformAssignor";
        assert_eq!(assignor(class), Some(Assignor::Uniform));
        assert_eq!(assignor("com.example.MyAssignor"), None);
    }
}
