//! Topics that are created because somebody asked for them: by a client's Metadata request, or by a
//! coordinator that needs its internal topic.

use super::names::{GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use super::{Controller, CreateTopic, CreatedTopic, Decision, Entropy, Outcome};
use crate::config::{Scope, find};

/// Most topics that one Metadata request may create.
const TOPICS_PER_REQUEST_MAX: usize = 1_000;

impl Controller<'_> {
    /// What to do about names of a Metadata request: those that exist are left out, the others are
    /// created with the broker's defaults or refused. The caller has checked that both the client
    /// and `auto.create.topics.enable` allow it. Names past a bound are left out as well: clients
    /// ask again.
    pub fn auto_create(
        &self,
        names: &[&str],
        entropy: Entropy<'_>,
    ) -> Decision<Vec<(String, Outcome<CreatedTopic>)>> {
        let mut missing: Vec<&str> =
            names.iter().copied().filter(|name| self.image.topic_by_name(name).is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.truncate(TOPICS_PER_REQUEST_MAX);
        let requests: Vec<CreateTopic> = missing
            .into_iter()
            .map(|name| self.internal_topic(name).unwrap_or(CreateTopic::with_defaults(name)))
            .collect();
        self.create_topics(&requests, false, entropy)
    }

    /// How an internal topic is to be created; `None` for other names.
    ///
    /// The replication factor is at most the number of brokers that are alive: with Kafka's default
    /// of 3, groups and transactions would not work on one broker.
    pub fn internal_topic(&self, name: &str) -> Option<CreateTopic> {
        let prefix = match name {
            GROUP_OFFSETS_TOPIC => "offsets.topic",
            TRANSACTION_STATE_TOPIC => "transaction.state.log",
            SHARE_STATE_TOPIC => "share.coordinator.state.topic",
            _ => return None,
        };
        let brokers = self.image.alive_brokers().len().max(1);
        let number = |suffix: &str, otherwise: i64| -> i64 {
            let key = find(Scope::Broker, &format!("{prefix}.{suffix}"));
            let text = key.and_then(|key| self.layers().broker_value(key));
            text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
        };
        let factor = number("replication.factor", 3).min(brokers as i64);
        let min_isr = number("min.isr", 1).min(factor);
        let mut configs = vec![
            ("cleanup.policy", "compact".to_string()),
            ("compression.type", "producer".to_string()),
            ("segment.bytes", number("segment.bytes", 104_857_600).max(1 << 20).to_string()),
        ];
        if name != GROUP_OFFSETS_TOPIC {
            configs.push(("min.insync.replicas", min_isr.to_string()));
        }
        Some(CreateTopic {
            name: name.into(),
            num_partitions: number("num.partitions", 50) as i32,
            replication_factor: factor as i16,
            assignments: Vec::new(),
            configs: configs.into_iter().map(|(k, v)| (k.into(), Some(v))).collect(),
        })
    }
}
