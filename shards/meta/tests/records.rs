//! Our record bytes against those that Apache Kafka 4.4.0 writes for the same records.

#![allow(clippy::unwrap_used)]

use meta::MetadataRecord;
use wire::Uuid;
use wire::messages as m;

const FACTS: &str = include_str!("facts/kafka-4.4.0-records.tsv");

fn records() -> Vec<MetadataRecord> {
    let topic_id = Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    let endpoint = m::register_broker_record::BrokerEndpoint {
        name: "PLAINTEXT".into(),
        host: "host".into(),
        port: 9094,
        security_protocol: 0,
    };
    vec![
        m::RegisterBrokerRecord {
            broker_id: 1002,
            incarnation_id: topic_id,
            broker_epoch: 77,
            end_points: vec![endpoint].into(),
            rack: Some("r1".into()),
            fenced: false,
            ..Default::default()
        }
        .into(),
        m::UnregisterBrokerRecord { broker_id: 1002, broker_epoch: 77 }.into(),
        m::TopicRecord { name: "orders".into(), topic_id }.into(),
        m::PartitionRecord {
            partition_id: 3,
            topic_id,
            replicas: vec![0, 1000].into(),
            isr: vec![0].into(),
            leader: 0,
            leader_epoch: 4,
            partition_epoch: 9,
            ..Default::default()
        }
        .into(),
        config(2, "orders", "retention.ms", Some("5000")),
        config(4, "", "log.retention.ms", None),
        m::PartitionChangeRecord {
            partition_id: 3,
            topic_id,
            isr: Some(vec![1].into()),
            leader: 1,
            replicas: Some(vec![1].into()),
            ..Default::default()
        }
        .into(),
        m::PartitionChangeRecord { partition_id: 0, topic_id, leader: -1, ..Default::default() }
            .into(),
        m::FenceBrokerRecord { id: 1, epoch: 5 }.into(),
        m::UnfenceBrokerRecord { id: 1, epoch: 5 }.into(),
        m::RemoveTopicRecord { topic_id }.into(),
        m::FeatureLevelRecord { name: "metadata.version".into(), feature_level: 33 }.into(),
        m::ProducerIdsRecord { broker_id: 0, broker_epoch: 12, next_producer_id: 3000 }.into(),
        m::NoOpRecord {}.into(),
    ]
}

fn config(
    kind: i8,
    resource: &'static str,
    key: &'static str,
    value: Option<&'static str>,
) -> MetadataRecord {
    m::ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: key.into(),
        value: value.map(Into::into),
    }
    .into()
}

#[test]
fn records_are_written_and_read_as_kafka_does() {
    let ours = records();
    let kafka: Vec<(&str, Vec<u8>)> = FACTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, hex)| (name, bytes(hex)))
        .collect();
    assert_eq!(ours.len(), kafka.len());
    for (record, (name, bytes)) in ours.iter().zip(&kafka) {
        assert_eq!(record.name(), *name);
        assert_eq!(&record.to_bytes().unwrap(), bytes, "{name}");
        assert_eq!(&MetadataRecord::from_bytes(bytes).unwrap(), record);
    }
}

#[test]
fn cut_records_are_refused() {
    for record in records() {
        let bytes = record.to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(MetadataRecord::from_bytes(&bytes[..end]).is_err(), "{} {end}", record.name());
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
