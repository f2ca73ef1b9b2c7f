//! Random sequences of commands: the invariants of the metadata hold after each, a snapshot builds
//! the same image, and so does replaying every record from the beginning.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use meta::config::{Scope, TopicConfig, find};
use meta::controller::{
    ConfigOp, CreatePartitions, CreateTopic, DeleteTopic, IncrementalAlter, OpKind, Restart,
};
use meta::{Image, MetadataRecord, NO_LEADER, NodeId, NodeLoad};
use proptest::prelude::*;
use support::{Cluster, registration};
use wire::Uuid;

#[derive(Clone, Debug)]
enum Command {
    Create { name: String, partitions: i32, factor: i16, config: Option<(String, String)> },
    Delete { name: String },
    Grow { name: String, count: i32 },
    Configure { resource: (i8, String), kind: OpKind, key: String, value: String },
    Register { broker: i32, shards: u16, rack: bool, unclean: bool },
    Fence { broker: i32 },
    Unregister { broker: i32 },
    Ids { node: i32 },
    Feature { level: i16 },
}

fn command(brokers: i32) -> impl Strategy<Value = Command> {
    let name = || "[ab][._][xy]?|[a-c]|bad name";
    let setting = || {
        prop::sample::select(vec![
            ("retention.ms", "5"),
            ("retention.ms", "x"),
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "delete"),
            ("min.compaction.lag.ms", "10"),
            ("max.compaction.lag.ms", "9"),
            ("no.such.key", "1"),
            ("log.retention.ms", "7"),
            ("num.partitions", "3"),
            ("consumer.session.timeout.ms", "50000"),
        ])
        .prop_map(|(key, value)| (key.to_string(), value.to_string()))
    };
    let resource = prop_oneof![
        name().prop_map(|name| (2, name)),
        Just((4, String::new())),
        (0..4i32).prop_map(|node| (4, node.to_string())),
        Just((32, "group".to_string())),
    ];
    let kind =
        prop::sample::select(vec![OpKind::Set, OpKind::Delete, OpKind::Append, OpKind::Subtract]);
    prop_oneof![
        4 => (name(), -1..6i32, -1..4i16, prop::option::of(setting())).prop_map(
            |(name, partitions, factor, config)| Command::Create { name, partitions, factor, config }
        ),
        1 => name().prop_map(|name| Command::Delete { name }),
        1 => (name(), 0..8i32).prop_map(|(name, count)| Command::Grow { name, count }),
        3 => (resource, kind, setting()).prop_map(|(resource, kind, (key, value))| {
            Command::Configure { resource, kind, key, value }
        }),
        2 => (0..brokers, 1..5u16, any::<bool>(), any::<bool>()).prop_map(
            |(broker, shards, rack, unclean)| Command::Register { broker, shards, rack, unclean }
        ),
        // The only broker cannot leave.
        1 => (0..brokers).prop_map(move |broker| match brokers {
            1 => Command::Ids { node: 0 },
            _ => Command::Fence { broker },
        }),
        1 => (0..brokers).prop_map(move |broker| match brokers {
            1 => Command::Feature { level: 1 },
            _ => Command::Unregister { broker },
        }),
        1 => (0..3i32).prop_map(|node| Command::Ids { node }),
        1 => (0..3i16).prop_map(|level| Command::Feature { level }),
    ]
}

fn run(cluster: &mut Cluster, command: Command) {
    match command {
        Command::Create { name, partitions, factor, config } => {
            let request = CreateTopic {
                name,
                num_partitions: partitions,
                replication_factor: factor,
                assignments: vec![],
                configs: config.into_iter().map(|(k, v)| (k, Some(v))).collect(),
            };
            cluster.decide(|c, e| c.create_topics(&[request], false, e));
        }
        Command::Delete { name } => {
            let request = DeleteTopic { name: Some(name), id: Uuid::ZERO };
            cluster.decide(|c, _| c.delete_topics(&[request]));
        }
        Command::Grow { name, count } => {
            let request = CreatePartitions { topic: name, count, assignments: None };
            cluster.decide(|c, e| c.create_partitions(&[request], false, e));
        }
        Command::Configure { resource, kind, key, value } => {
            let request = IncrementalAlter {
                resource_type: resource.0,
                resource_name: resource.1,
                ops: vec![ConfigOp { key, kind, value: Some(value) }],
            };
            cluster.decide(|c, _| c.incremental_alter_configs(&[request], false));
        }
        Command::Register { broker, shards, rack, unclean } => {
            let restart = if unclean { Restart::Unclean } else { Restart::Clean };
            let registration = registration(broker, shards, rack.then_some("r"), restart);
            cluster.decide(|c, _| c.register_broker(&registration)).unwrap();
        }
        Command::Fence { broker } => {
            let _ = cluster.decide(|c, _| c.fence_broker(broker));
        }
        Command::Unregister { broker } => {
            let _ = cluster.decide(|c, _| c.unregister_broker(broker));
        }
        Command::Ids { node } => {
            cluster.decide(|c, _| c.allocate_producer_ids(NodeId(node))).unwrap();
        }
        Command::Feature { level } => cluster.decide(|c, _| c.set_features(&[("f", level)])),
    }
}

fn check(cluster: &Cluster, single: bool) {
    let image = &cluster.image;
    let mut ids = BTreeSet::new();
    let mut names = Vec::new();
    let mut loads: BTreeMap<NodeId, NodeLoad> = BTreeMap::new();
    for topic in image.topics() {
        assert!(ids.insert(topic.id), "topic id twice");
        names.push(topic.name.to_string());
        assert_eq!(image.topic_by_name(&topic.name), Some(topic));
        assert_eq!(image.topic_by_id(topic.id), Some(topic));
        assert!(image.colliding_topic(&topic.name).is_none(), "{} collides", topic.name);
        assert!(!topic.partitions.is_empty());
        for partition in &topic.partitions {
            let brokers: BTreeSet<i32> = partition.replicas.iter().map(|n| n.broker()).collect();
            assert_eq!(brokers.len(), partition.replicas.len(), "two replicas on one broker");
            assert!(!partition.isr.is_empty());
            assert!(partition.isr.iter().all(|node| partition.replicas.contains(node)));
            let able = partition.isr.iter().any(|node| image.is_alive(*node));
            if single {
                assert_ne!(partition.leader, NO_LEADER);
            }
            match partition.leader {
                NO_LEADER => assert!(!able, "somebody could lead {}", topic.name),
                leader => {
                    assert!(image.is_alive(leader), "{leader} leads {} but is gone", topic.name);
                    assert!(partition.isr.contains(&leader));
                    loads.entry(leader).or_default().leaders += 1;
                }
            }
            for replica in &partition.replicas {
                loads.entry(*replica).or_default().replicas += 1;
            }
        }
    }
    assert!(names.is_sorted());
    assert_eq!(names.len(), image.topic_count());
    for node in 0..3000 {
        let node = NodeId(node);
        assert_eq!(image.load(node), loads.get(&node).copied().unwrap_or_default());
    }
    for (kind, name, key, value) in image.overrides().all() {
        let scope = match kind.code() {
            2 => Scope::Topic,
            4 => Scope::Broker,
            _ => Scope::Group,
        };
        let found = find(scope, key).unwrap_or_else(|| panic!("unknown key {key} is stored"));
        assert_eq!(found.validate(value), Ok(()));
        if scope == Scope::Topic {
            assert!(image.topic_by_name(name).is_some(), "settings of a topic that is gone");
            let config = TopicConfig::resolve(image.layers(&cluster.fixed, NodeId(0)), name);
            assert!(config.min_compaction_lag_ms <= config.max_compaction_lag_ms);
        }
    }
}

fn check_replay(cluster: &Cluster) {
    let image = &cluster.image;
    let snapshot: Vec<MetadataRecord> = image
        .records()
        .iter()
        .map(|record| MetadataRecord::from_bytes(&record.to_bytes().unwrap()).unwrap())
        .collect();
    let again = Image::from_snapshot("cluster", image.offset(), &snapshot).unwrap();
    assert_eq!(&again, image);
    assert_eq!(again.records(), snapshot, "a snapshot of a snapshot is the same");
    let mut replayed = Image::new("cluster");
    for record in &cluster.log {
        replayed.apply(record).unwrap();
    }
    assert_eq!(&replayed, image);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn one_broker(commands in prop::collection::vec(command(1), 1..40)) {
        let mut cluster = Cluster::single(2, "num.partitions=2");
        for command in commands {
            run(&mut cluster, command);
            check(&cluster, true);
        }
        check_replay(&cluster);
    }

    #[test]
    fn three_brokers(commands in prop::collection::vec(command(3), 1..40)) {
        let mut cluster = Cluster::single(2, "");
        for command in commands {
            run(&mut cluster, command);
            check(&cluster, false);
        }
        check_replay(&cluster);
    }
}
