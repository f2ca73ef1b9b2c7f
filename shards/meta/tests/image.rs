//! The image: what deltas change, what a damaged log is answered, and how topics are found.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use meta::config::Resource;
use meta::controller::{ConfigOp, DeleteTopic, IncrementalAlter, OpKind};
use meta::{Delta, Image, MetaError, MetadataRecord};
use support::Cluster;
use wire::Uuid;
use wire::messages as m;

const ID: Uuid = Uuid([5; 16]);

fn topic(name: &'static str, topic_id: Uuid) -> MetadataRecord {
    m::TopicRecord { name: name.into(), topic_id }.into()
}

fn partition(topic_id: Uuid, partition_id: i32) -> MetadataRecord {
    m::PartitionRecord {
        partition_id,
        topic_id,
        replicas: vec![0].into(),
        isr: vec![0].into(),
        leader: 0,
        leader_epoch: 0,
        partition_epoch: 0,
        ..Default::default()
    }
    .into()
}

fn delta(image: &Image, records: Vec<MetadataRecord>) -> Delta {
    Delta { base_offset: image.offset() + 1, records: Arc::from(records) }
}

#[test]
fn a_damaged_log_is_an_error() {
    let other = Uuid([6; 16]);
    let cases: Vec<(MetadataRecord, MetaError)> = vec![
        (topic("t", other), MetaError::TopicTaken { name: "t".into(), id: other }),
        (topic("u", ID), MetaError::TopicTaken { name: "u".into(), id: ID }),
        (partition(other, 0), MetaError::NoTopic(other)),
        (partition(ID, 2), MetaError::NoPartition { topic: ID, partition: 2, count: 1 }),
        (partition(ID, -1), MetaError::NoPartition { topic: ID, partition: -1, count: 1 }),
        (
            m::PartitionChangeRecord { topic_id: ID, partition_id: 1, ..Default::default() }.into(),
            MetaError::NoPartition { topic: ID, partition: 1, count: 1 },
        ),
        (m::RemoveTopicRecord { topic_id: other }.into(), MetaError::NoTopic(other)),
        (m::FenceBrokerRecord { id: 4, epoch: 0 }.into(), MetaError::NoNode(4)),
        (m::UnregisterBrokerRecord { broker_id: 4, broker_epoch: 0 }.into(), MetaError::NoNode(4)),
        (
            m::ConfigRecord { resource_type: 9, ..Default::default() }.into(),
            MetaError::ResourceType(9),
        ),
    ];
    let mut image = Image::default();
    image.apply_delta(&delta(&image, vec![topic("t", ID), partition(ID, 0)])).unwrap();
    for (record, error) in cases {
        let mut copy = image.clone();
        assert_eq!(copy.apply(&record), Err(error.clone()));
        let mut copy = image.clone();
        assert_eq!(copy.apply_delta(&delta(&copy, vec![record])), Err(error));
    }
    let gap = Delta { base_offset: 7, records: Arc::from(vec![]) };
    assert_eq!(image.apply_delta(&gap), Err(MetaError::Gap { expected: 2, found: 7 }));
}

#[test]
fn a_delta_says_what_a_shard_has_to_do() {
    let mut image = Image::default();
    let first = vec![topic("a", ID), partition(ID, 0)];
    let changes = image.apply_delta(&delta(&image, first)).unwrap();
    assert_eq!(changes.created, [(ID, 0)]);
    assert!(changes.leadership.is_empty() && changes.deleted.is_empty() && !changes.nodes);

    // Created and deleted in one delta: nothing to do. A new partition of an old topic that goes
    // with the topic: only the topic.
    let short = Uuid([8; 16]);
    let records = vec![
        topic("short", short),
        partition(short, 0),
        m::RemoveTopicRecord { topic_id: short }.into(),
        partition(ID, 1),
        m::PartitionChangeRecord { topic_id: ID, partition_id: 0, leader: 1, ..Default::default() }
            .into(),
        m::RemoveTopicRecord { topic_id: ID }.into(),
    ];
    let changes = image.apply_delta(&delta(&image, records)).unwrap();
    let deleted: Vec<_> = changes.deleted.iter().map(|t| (t.id, t.partitions.len())).collect();
    assert_eq!(deleted, [(ID, 2)]);
    assert!(changes.created.is_empty() && changes.leadership.is_empty());
    assert_eq!(image.topic_count(), 0);
    assert_eq!(image.offset(), 7);

    let nothing = image.apply_delta(&delta(&image, vec![m::NoOpRecord {}.into()])).unwrap();
    assert!(nothing.is_empty());
}

#[test]
fn a_topic_that_comes_again_under_its_name_is_another() {
    let mut cluster = Cluster::single(1, "");
    let old = cluster.create("t", 2, 1);
    let delete = DeleteTopic { name: Some("t".into()), id: Uuid::ZERO };
    let mut records = cluster.controller().delete_topics(&[delete]).records;
    let new = Uuid([3; 16]);
    records.extend([topic("t", new), partition(new, 0)]);
    cluster.commit(records);
    let changes = &cluster.last_changes;
    assert_eq!(changes.deleted.iter().map(|t| t.id).collect::<Vec<_>>(), [old]);
    assert_eq!(changes.created, [(new, 0)]);
    assert_eq!(cluster.image.topic_by_name("t").unwrap().id, new);
    assert!(cluster.image.topic_by_id(old).is_none());
}

#[test]
fn config_changes_are_named_once() {
    let mut cluster = Cluster::single(1, "");
    cluster.create("t", 1, 1);
    let set = |key: &str, value: &str| ConfigOp {
        key: key.into(),
        kind: OpKind::Set,
        value: Some(value.into()),
    };
    let request = IncrementalAlter {
        resource_type: 2,
        resource_name: "t".into(),
        ops: vec![set("retention.ms", "1"), set("flush.ms", "2")],
    };
    cluster.decide(|c, _| c.incremental_alter_configs(&[request], false))[0].clone().unwrap();
    assert_eq!(cluster.last_changes.configs, [Resource::topic("t")]);
    assert_eq!(cluster.image.configs(&Resource::topic("t")).unwrap().len(), 2);
}

#[test]
fn topics_are_listed_by_name_and_paged() {
    let mut cluster = Cluster::single(1, "");
    for name in ["m", "a.x", "z", "b"] {
        cluster.create(name, 1, 1);
    }
    let names = |topics: &mut dyn Iterator<Item = &meta::Topic>| -> Vec<String> {
        topics.map(|topic| topic.name.to_string()).collect()
    };
    assert_eq!(names(&mut cluster.image.topics()), ["a.x", "b", "m", "z"]);
    assert_eq!(names(&mut cluster.image.topics_from("b")), ["b", "m", "z"]);
    assert_eq!(names(&mut cluster.image.topics_from("c")), ["m", "z"]);
    assert_eq!(names(&mut cluster.image.topics_from("zz")), [""; 0]);
    assert_eq!(cluster.image.colliding_topic("a_x"), Some("a.x"));
    assert_eq!(cluster.image.colliding_topic("a.x"), None);
    assert_eq!(cluster.image.colliding_topic("m"), None);
}
