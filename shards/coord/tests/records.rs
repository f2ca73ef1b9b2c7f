//! Our record bytes against those that Apache Kafka 4.4.0 makes of the same facts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use coord::{CoordError, Record};
use wire::Uuid;
use wire::messages as m;
use wire::messages::consumer_group_current_member_assignment_value::TopicPartitions;
use wire::messages::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};

const FACTS: &str = include_str!("facts/kafka-4.4.0-group-records.tsv");
const A: Uuid = Uuid([1; 16]);
const B: Uuid = Uuid([2; 16]);

fn ours(name: &str) -> Record<'static> {
    let gone = name.ends_with("-gone");
    let some = !gone;
    match name.trim_end_matches("-gone") {
        "offset" | "offset-plain" | "offset-expiring" => offset(name, some),
        "classic" => classic(some),
        "member" => Record::ConsumerMember(
            m::ConsumerGroupMemberMetadataKey { group_id: "g".into(), member_id: "m1".into() },
            some.then(member),
        ),
        "member-classic" => classic_member(),
        "epoch" | "epoch-zero" => {
            let metadata_hash = if name == "epoch" { -123_456_789 } else { 0 };
            Record::ConsumerGroup(
                m::ConsumerGroupMetadataKey { group_id: "g".into() },
                some.then_some(m::ConsumerGroupMetadataValue { epoch: 7, metadata_hash }),
            )
        }
        "partitions" => Record::ConsumerPartitions(
            m::ConsumerGroupPartitionMetadataKey { group_id: "g".into() },
            None,
        ),
        "target" => target(some),
        "target-epoch" => Record::ConsumerTargetEpoch(
            m::ConsumerGroupTargetAssignmentMetadataKey { group_id: "g".into() },
            some.then_some(m::ConsumerGroupTargetAssignmentMetadataValue {
                assignment_epoch: 7,
                assignment_timestamp: 1000,
            }),
        ),
        "current" => current(some),
        "regex" => Record::ConsumerRegex(
            m::ConsumerGroupRegularExpressionKey {
                group_id: "g".into(),
                regular_expression: "t.*".into(),
            },
            some.then(|| m::ConsumerGroupRegularExpressionValue {
                topics: vec!["t".into()].into(),
                version: 12,
                timestamp: 1000,
            }),
        ),
        other => panic!("no record {other}"),
    }
}

fn offset(name: &str, some: bool) -> Record<'static> {
    let mut value = m::OffsetCommitValue {
        offset: 77,
        leader_epoch: -1,
        metadata: "".into(),
        commit_timestamp: 1000,
        expire_timestamp: -1,
        topic_id: Uuid::ZERO,
    };
    match name {
        "offset" => {
            value.leader_epoch = 5;
            value.metadata = "meta".into();
            value.topic_id = A;
        }
        "offset-expiring" => value.expire_timestamp = 2000,
        _ => {}
    }
    let key = m::OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
    Record::OffsetCommit(key, some.then_some(value))
}

fn classic(some: bool) -> Record<'static> {
    let member = m::group_metadata_value::MemberMetadata {
        member_id: "m1".into(),
        group_instance_id: Some("i1".into()),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout: 60_000,
        session_timeout: 10_000,
        subscription: vec![1, 2].into(),
        assignment: vec![3, 4, 5].into(),
    };
    let value = m::GroupMetadataValue {
        protocol_type: "consumer".into(),
        generation: 4,
        protocol: Some("range".into()),
        leader: Some("m1".into()),
        current_state_timestamp: 1000,
        members: vec![member].into(),
    };
    Record::GroupMetadata(m::GroupMetadataKey { group: "g".into() }, some.then_some(value))
}

fn member() -> m::ConsumerGroupMemberMetadataValue<'static> {
    m::ConsumerGroupMemberMetadataValue {
        instance_id: Some("i1".into()),
        rack_id: Some("r1".into()),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        subscribed_topic_names: vec!["t".into()].into(),
        subscribed_topic_regex: Some("t.*".into()),
        rebalance_timeout_ms: 60_000,
        server_assignor: Some("uniform".into()),
        classic_member_metadata: None,
    }
}

fn classic_member() -> Record<'static> {
    let protocol = ClassicProtocol { name: "range".into(), metadata: vec![1, 2].into() };
    let value = m::ConsumerGroupMemberMetadataValue {
        instance_id: None,
        rack_id: None,
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        subscribed_topic_names: vec!["t".into()].into(),
        subscribed_topic_regex: Some("".into()),
        server_assignor: None,
        rebalance_timeout_ms: 1,
        classic_member_metadata: Some(ClassicMemberMetadata {
            session_timeout_ms: 10_000,
            supported_protocols: vec![protocol].into(),
        }),
    };
    let key = m::ConsumerGroupMemberMetadataKey { group_id: "g".into(), member_id: "m2".into() };
    Record::ConsumerMember(key, Some(value))
}

fn target(some: bool) -> Record<'static> {
    let parts = m::consumer_group_target_assignment_member_value::TopicPartition {
        topic_id: A,
        partitions: vec![1, 2].into(),
    };
    let value =
        m::ConsumerGroupTargetAssignmentMemberValue { topic_partitions: vec![parts].into() };
    let key =
        m::ConsumerGroupTargetAssignmentMemberKey { group_id: "g".into(), member_id: "m1".into() };
    Record::ConsumerTarget(key, some.then_some(value))
}

fn current(some: bool) -> Record<'static> {
    let held = |topic_id, partitions: Vec<i32>, epochs: Vec<i32>| TopicPartitions {
        topic_id,
        partitions: partitions.into(),
        assignment_epochs: Some(epochs.into()),
    };
    let value = m::ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: 7,
        previous_member_epoch: 6,
        state: 1,
        assigned_partitions: vec![held(A, vec![1, 2], vec![5, 7])].into(),
        partitions_pending_revocation: vec![held(B, vec![0], vec![3])].into(),
    };
    let key =
        m::ConsumerGroupCurrentMemberAssignmentKey { group_id: "g".into(), member_id: "m1".into() };
    Record::ConsumerCurrent(key, some.then_some(value))
}

type Fact = (&'static str, Vec<u8>, Option<Vec<u8>>);

fn facts() -> Vec<Fact> {
    let lines = FACTS.lines().filter(|line| !line.starts_with('#'));
    let facts = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[0], bytes(fields[1]), (fields[2] != "-").then(|| bytes(fields[2])))
    });
    facts.collect()
}

#[test]
fn records_are_written_and_read_as_kafka_does() {
    let facts = facts();
    assert_eq!(facts.len(), 21);
    for (name, key, value) in &facts {
        let record = ours(name);
        assert_eq!(record.to_bytes().unwrap(), (key.clone(), value.clone()), "{name}");
        assert_eq!(Record::read(key, value.as_deref()).unwrap(), Some(record), "{name}");
    }
}

#[test]
fn older_values_are_read() {
    let key = bytes("000100016700017400000003");
    // Version 0: offset, metadata, timestamp; version 3 adds the leader epoch.
    for (value, leader_epoch) in [
        ("0000000000000000004d000000000000000003e8", -1),
        ("0003000000000000004d00000005000000000000000003e8", 5),
    ] {
        let value = bytes(value);
        let Some(Record::OffsetCommit(_, Some(read))) = Record::read(&key, Some(&value)).unwrap()
        else {
            panic!("not an offset");
        };
        assert_eq!(
            (read.offset, read.leader_epoch, read.commit_timestamp),
            (77, leader_epoch, 1000)
        );
    }
    let mut oldest = key.clone();
    oldest[1] = 0;
    let value = bytes("0000000000000000004d000000000000000003e8");
    assert!(matches!(
        Record::read(&oldest, Some(&value)).unwrap(),
        Some(Record::OffsetCommit(key, Some(_))) if key.partition == 3
    ));
}

#[test]
fn other_kinds_of_groups_are_passed_over_and_damage_is_not() {
    for kind in [10_i16, 15, 17, 23, 99] {
        let mut key = kind.to_be_bytes().to_vec();
        key.extend(b"\0\x01g");
        assert_eq!(Record::read(&key, None).unwrap(), None);
    }
    for (_, key, value) in facts() {
        for end in 0..key.len() {
            assert!(Record::read(&key[..end], value.as_deref()).is_err(), "{key:?} {end}");
        }
        let Some(value) = value else { continue };
        for end in 0..value.len() {
            assert!(Record::read(&key, Some(&value[..end])).is_err(), "{value:?} {end}");
        }
        let mut longer = value.clone();
        longer.push(0);
        assert_eq!(Record::read(&key, Some(&longer)), Err(CoordError::Trailing(1)));
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
