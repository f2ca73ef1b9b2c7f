//! Brokers that come, go and change their number of shards; features; producer ids.

#![allow(clippy::unwrap_used)]

mod support;

use meta::controller::{
    FeatureUpdate, GROUP_VERSION, METADATA_VERSION, PRODUCER_ID_BLOCK_LEN, Restart, new_cluster_id,
};
use meta::{MetadataRecord, NO_LEADER, NodeId};
use support::{Cluster, next_random, registration, shown};

fn epochs(cluster: &Cluster, topic: &str) -> Vec<(i32, i32)> {
    let topic = cluster.image.topic_by_name(topic).unwrap();
    topic.partitions.iter().map(|p| (p.leader_epoch, p.partition_epoch)).collect()
}

#[test]
fn every_shard_is_a_node() {
    let cluster = Cluster::single(3, "");
    let nodes: Vec<_> = cluster
        .image
        .nodes()
        .map(|node| (node.id.0, node.epoch, node.endpoint("PLAINTEXT").unwrap().port, node.fenced))
        .collect();
    // The epoch of a registration is the offset of its record.
    assert_eq!(nodes, [(0, 0, 9092, false), (1, 1, 9093, false), (2, 2, 9094, false)]);
    assert_eq!(cluster.image.alive_brokers(), [0]);
    assert!(cluster.last_changes.nodes);
}

#[test]
fn partitions_stay_where_they_are_across_restarts() {
    let mut cluster = Cluster::single(4, "");
    cluster.create("t", 8, 1);
    let before = cluster.leaders("t");
    cluster.register(0, 4, None, Restart::Clean);
    assert_eq!(cluster.leaders("t"), before);
    assert_eq!(epochs(&cluster, "t"), [(0, 0); 8]);
    cluster.register(0, 6, None, Restart::Clean);
    assert_eq!(cluster.leaders("t"), before);
    assert!(cluster.last_changes.leadership.is_empty());
    // New partitions use the new shards.
    cluster.create("u", 6, 1);
    let mut leaders = cluster.leaders("u");
    leaders.sort_unstable();
    assert_eq!(leaders, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn fewer_shards_take_over_by_remainder() {
    let mut cluster = Cluster::single(4, "");
    let id = cluster.create("t", 8, 1);
    assert_eq!(cluster.leaders("t"), [0, 1, 2, 3, 0, 1, 2, 3]);
    let gone = {
        let registration = registration(0, 3, None, Restart::Clean);
        cluster.decide(|c, _| c.register_broker(&registration)).unwrap()
    };
    assert_eq!(gone, [NodeId(3)]);
    assert_eq!(cluster.leaders("t"), [0, 1, 2, 0, 0, 1, 2, 0]);
    assert_eq!(cluster.last_changes.leadership, [(id, 3), (id, 7)]);
    // A new leader is a new epoch; partitions that did not move keep theirs.
    let moved = (1, 1);
    let stayed = (0, 0);
    let expected = [stayed, stayed, stayed, moved, stayed, stayed, stayed, moved];
    assert_eq!(epochs(&cluster, "t"), expected);
    let partition = cluster.image.partition("t", 3).unwrap();
    assert_eq!((&partition.replicas[..], &partition.isr[..]), (&[NodeId(0)][..], &[NodeId(0)][..]));
    assert!(cluster.image.node(NodeId(3)).is_none());
    assert_eq!(cluster.image.load(NodeId(3)), Default::default());
    // Back to four: the new shard gets its share from the one that has more.
    cluster.register(0, 4, None, Restart::Clean);
    assert_eq!(cluster.leaders("t"), [0, 1, 2, 0, 3, 1, 2, 3]);
    cluster.register(0, 1, None, Restart::Clean);
    assert_eq!(cluster.leaders("t"), [0; 8]);
    cluster.register(0, 3, None, Restart::Clean);
    let mut leaders = cluster.leaders("t");
    leaders.sort_unstable();
    assert_eq!(leaders, [0, 0, 0, 1, 1, 1, 2, 2]);
}

#[test]
fn a_crash_begins_new_leader_epochs() {
    let mut cluster = Cluster::single(2, "");
    cluster.create("t", 2, 1);
    cluster.register(0, 2, None, Restart::Unclean);
    assert_eq!(cluster.leaders("t"), [0, 1]);
    assert_eq!(epochs(&cluster, "t"), [(1, 1), (1, 1)]);
}

#[test]
fn a_broker_that_leaves_gives_up_leadership_and_gets_what_only_it_has() {
    let mut cluster = Cluster::empty("");
    cluster.register(1, 2, None, Restart::Clean);
    cluster.register(2, 2, None, Restart::Clean);
    cluster.create("two", 4, 2);
    cluster.create("one", 4, 1);
    let lonely: Vec<i32> = cluster.leaders("one");
    cluster.decide(|c, _| c.fence_broker(1)).unwrap();
    assert_eq!(cluster.image.alive_brokers(), [2]);
    for partition in &cluster.image.topic_by_name("two").unwrap().partitions {
        assert_eq!(partition.leader.broker(), 2);
        assert!(partition.isr.iter().all(|node| node.broker() == 2));
        assert_eq!(partition.replicas.len(), 2);
    }
    for (partition, leader) in
        cluster.image.topic_by_name("one").unwrap().partitions.iter().zip(&lonely)
    {
        let expected = if leader / 1000 == 1 { NO_LEADER } else { NodeId(*leader) };
        assert_eq!(partition.leader, expected);
        assert_eq!(&partition.isr[..], &[NodeId(*leader)], "the last member stays");
    }
    cluster.register(1, 2, None, Restart::Clean);
    assert_eq!(cluster.leaders("one"), lonely);
    assert!(cluster.leaders("two").iter().all(|leader| leader / 1000 == 2));
    let failure = cluster.decide(|c, _| c.unregister_broker(9)).unwrap_err();
    assert_eq!(shown(&failure), "BROKER_ID_NOT_REGISTERED No broker with id 9 found.");
    cluster.decide(|c, _| c.unregister_broker(1)).unwrap();
    assert_eq!(cluster.image.nodes().count(), 2);
}

#[test]
fn a_registration_has_shards() {
    let mut cluster = Cluster::empty("");
    for shards in [0, 1001] {
        let registration = registration(0, shards, None, Restart::Clean);
        let failure = cluster.decide(|c, _| c.register_broker(&registration)).unwrap_err();
        let expected = format!("INVALID_REQUEST a broker has 1 to 1000 shards, not {shards}");
        assert_eq!(shown(&failure), expected);
    }
    assert!(cluster.log.is_empty());
}

#[test]
fn features_are_written_once() {
    let mut cluster = Cluster::single(1, "");
    cluster.decide(|c, _| c.set_features(&[METADATA_VERSION]));
    assert!(cluster.last_changes.features);
    assert_eq!(cluster.image.features().get("metadata.version"), Some(&33));
    let before = cluster.log.len();
    cluster.decide(|c, _| c.set_features(&[METADATA_VERSION]));
    assert_eq!(cluster.log.len(), before);
    cluster.decide(|c, _| c.set_features(&[("metadata.version", 0)]));
    assert!(cluster.image.features().is_empty());
}

#[test]
fn feature_updates_are_checked_and_take_effect_together() {
    let mut cluster = Cluster::single(1, "");
    cluster.decide(|c, _| c.set_features(&[GROUP_VERSION, METADATA_VERSION]));
    let update = |feature: &str, level, upgrade_type| FeatureUpdate {
        feature: feature.into(),
        level,
        upgrade_type,
    };
    for (refused, reason) in [
        (update("group.version", 0, 1), "without setting the upgrade type"),
        (update("group.version", 2, 1), "only supports versions 0-1"),
        (update("group.version", -1, 3), "cannot be less than 0"),
        (update("group.version", 1, 4), "does not support the given upgrade type"),
        (update("metadata.version", 32, 3), "only supports versions 33-33"),
        (update("kraft.version", 1, 1), "does not support this feature"),
    ] {
        let both = [update("group.version", 0, 2), refused];
        let failure = cluster.decide(|c, _| c.update_features(&both, false)).unwrap_err();
        assert!(shown(&failure).contains(reason), "{failure:?}");
        assert_eq!(cluster.image.features().get("group.version"), Some(&1));
    }
    let lower = [update("group.version", 0, 2)];
    cluster.decide(|c, _| c.update_features(&lower, true)).unwrap();
    assert_eq!(cluster.image.features().get("group.version"), Some(&1), "only validated");
    cluster.decide(|c, _| c.update_features(&lower, false)).unwrap();
    assert_eq!(cluster.image.features().get("group.version"), None);
    cluster.decide(|c, _| c.update_features(&[update("group.version", 1, 1)], false)).unwrap();
    assert_eq!(cluster.image.features().get("group.version"), Some(&1));
}

#[test]
fn producer_ids_come_in_blocks_that_never_repeat() {
    let mut cluster = Cluster::single(2, "");
    let mut seen = std::collections::BTreeSet::new();
    for node in [0, 1, 0] {
        let mut block = cluster.decide(|c, _| c.allocate_producer_ids(NodeId(node))).unwrap();
        assert_eq!(block.remaining(), PRODUCER_ID_BLOCK_LEN);
        while let Some(id) = block.take() {
            assert!(seen.insert(id), "{id} twice");
        }
        assert_eq!(block.remaining(), 0);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..3000).collect::<Vec<_>>());
    assert_eq!(cluster.image.next_producer_id(), 3000);
    let Some(MetadataRecord::ProducerIds(record)) = cluster.log.last() else { panic!() };
    assert_eq!((record.broker_id, record.broker_epoch, record.next_producer_id), (0, 0, 3000));
}

#[test]
fn the_last_producer_id_is_not_passed() {
    let mut cluster = Cluster::single(1, "");
    let record = wire::messages::ProducerIdsRecord {
        broker_id: 0,
        broker_epoch: 0,
        next_producer_id: i64::MAX - 5,
    };
    cluster.commit(vec![record.into()]);
    assert!(cluster.decide(|c, _| c.allocate_producer_ids(NodeId(0))).is_err());
}

#[test]
fn cluster_ids_are_22_characters() {
    let mut seed = 3;
    for _ in 0..100 {
        let id = new_cluster_id(&mut || next_random(&mut seed));
        assert_eq!(id.len(), 22);
        assert!(!id.starts_with('-'));
    }
}
