//! The registry against what a real Apache Kafka 4.4.0 answered to DescribeConfigs (`facts/*.tsv`).
//! Every key, its type, its default, where the value comes from and the order of its synonyms.

#![allow(clippy::unwrap_used)]

use meta::config::{
    Entry, Key, Layers, Overrides, Resource, ResourceKind, StaticConfig, broker_keys,
    resolve_group, resolve_topic,
};

const TOPIC: &str = include_str!("facts/kafka-4.4.0-topic-configs.tsv");
const BROKER: &str = include_str!("facts/kafka-4.4.0-broker-configs.tsv");
const GROUP: &str = include_str!("facts/kafka-4.4.0-group-configs.tsv");

#[test]
fn topic_configs_are_described_as_kafka_does() {
    let fixed = StaticConfig::default();
    let mut dynamic = Overrides::default();
    dynamic.set(&Resource::topic("t1"), "retention.ms", Some("5000"));
    let ours = resolve_topic(Layers { dynamic: &dynamic, fixed: &fixed, node: 0 }, "t1");
    // Kafka with the feature "eligible leader replicas" stores the default of this key as a dynamic
    // one. Corelane does not have that feature.
    let kafka = TOPIC.replace(
        "DYNAMIC_DEFAULT_BROKER_CONFIG\tmin.insync.replicas=1@DYNAMIC_DEFAULT_BROKER_CONFIG|",
        "DEFAULT_CONFIG\t",
    );
    compare(&kafka, &ours, &["write.caching", "record.validation"]);
}

#[test]
fn group_configs_are_described_as_kafka_does() {
    let (fixed, dynamic) = (StaticConfig::default(), Overrides::default());
    let ours = resolve_group(Layers { dynamic: &dynamic, fixed: &fixed, node: 0 }, "g1");
    compare(GROUP, &ours, &[]);
}

#[test]
fn broker_keys_are_kafkas() {
    // Keys whose default is deliberately another one: zero configuration on loopback.
    let own_default =
        ["listeners", "node.id", "process.roles", "log.dir", "controller.listener.names"];
    // Keys that only Corelane has, and keys that Kafka describes only once they are set.
    let own = [
        "shards",
        "memory.bytes",
        "admin.host",
        "admin.port",
        "log.write.caching",
        "record.validation",
    ];
    let elsewhere = [
        "super.users",
        "allow.everyone.if.no.acl.found",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ];
    let ours = broker_keys().iter().filter(|key| !key.hidden);
    let ours = ours.filter(|key| !own.contains(&key.name) && !elsewhere.contains(&key.name));
    let ours: Vec<String> = ours
        .map(|key| line_of(key, if own_default.contains(&key.name) { "own" } else { default(key) }))
        .collect();
    let kafka: Vec<String> = rows(BROKER)
        .map(|cells| {
            let default = if own_default.contains(&cells[0]) { "own" } else { cells[2] };
            // A running shard does not change its address.
            let update = if cells[0] == "listeners" { "read-only" } else { cells[3] };
            [cells[0], cells[1], default, update, cells[4]].join(" ")
        })
        .collect();
    assert_eq!(ours.len(), 350);
    for (ours, kafka) in ours.iter().zip(&kafka) {
        assert_eq!(ours, kafka);
    }
    assert_eq!(ours.len(), kafka.len());
}

#[test]
fn a_value_in_hours_is_shown_with_its_source() {
    let mut fixed = StaticConfig::default();
    fixed.set("log.roll.ms", "7200000").unwrap();
    fixed.set("log.retention.hours", "100").unwrap();
    let mut dynamic = Overrides::default();
    let describe = |dynamic: &Overrides, key: &str| {
        let all = resolve_topic(Layers { dynamic, fixed: &fixed, node: 1 }, "t");
        shown(all.iter().find(|entry| entry.key.name == key).unwrap())
    };
    // Kafka's own answers to the same settings.
    assert_eq!(
        describe(&dynamic, "segment.ms"),
        "segment.ms LONG 7200000 STATIC_BROKER_CONFIG \
         log.roll.ms=7200000@STATIC_BROKER_CONFIG|log.roll.hours=168@DEFAULT_CONFIG"
    );
    // Kafka answers source DEFAULT_CONFIG without synonyms here; Corelane says where it comes from.
    assert_eq!(
        describe(&dynamic, "retention.ms"),
        "retention.ms LONG 360000000 STATIC_BROKER_CONFIG \
         log.retention.hours=100@STATIC_BROKER_CONFIG|log.retention.hours=168@DEFAULT_CONFIG"
    );
    dynamic.set(&Resource::new(ResourceKind::Broker, ""), "log.retention.ms", Some("123456"));
    dynamic.set(&Resource::new(ResourceKind::Broker, "1"), "log.retention.ms", Some("6666666"));
    assert_eq!(
        describe(&dynamic, "retention.ms"),
        "retention.ms LONG 6666666 DYNAMIC_BROKER_CONFIG \
         log.retention.ms=6666666@DYNAMIC_BROKER_CONFIG|\
         log.retention.ms=123456@DYNAMIC_DEFAULT_BROKER_CONFIG|\
         log.retention.hours=100@STATIC_BROKER_CONFIG|log.retention.hours=168@DEFAULT_CONFIG"
    );
}

fn compare(facts: &str, ours: &[Entry], only_ours: &[&str]) {
    let ours: Vec<String> =
        ours.iter().filter(|e| !only_ours.contains(&e.key.name)).map(shown).collect();
    let kafka: Vec<String> =
        rows(facts).map(|cells| cells.join(" ").trim_end().to_string()).collect();
    assert!(kafka.len() > 20);
    for (ours, kafka) in ours.iter().zip(&kafka) {
        assert_eq!(ours, kafka);
    }
    assert_eq!(ours.len(), kafka.len());
}

fn shown(entry: &Entry) -> String {
    let synonyms: Vec<String> = entry
        .synonyms
        .iter()
        .map(|s| format!("{}={}@{}", s.name, s.value.as_deref().unwrap_or("\\N"), s.source.name()))
        .collect();
    let (key, value) = (entry.key, entry.value.as_deref().unwrap_or("\\N"));
    let line =
        [key.name, key.kind.name(), value, entry.source.name(), &synonyms.join("|")].join(" ");
    line.trim_end().to_string()
}

fn line_of(key: &Key, default: &str) -> String {
    let sensitive = if key.sensitive { "sensitive" } else { "-" };
    [key.name, key.kind.name(), default, key.update.name(), sensitive].join(" ")
}

fn default(key: &Key) -> &str {
    key.default.unwrap_or("\\N")
}

fn rows(facts: &str) -> impl Iterator<Item = Vec<&str>> {
    facts.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}
