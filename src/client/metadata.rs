//! A cluster's metadata as owned values. Pure.

use std::collections::BTreeMap;

use wire::messages::MetadataResponse;
use wire::messages::metadata_response::MetadataResponseTopic;

use crate::config::endpoint::Endpoint;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    pub nodes: BTreeMap<i32, Endpoint>,
    pub controller: Option<i32>,
    /// By name.
    pub topics: Vec<TopicMetadata>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    pub error_code: i16,
    pub name: String,
    /// 22 characters, empty from a broker before Kafka 2.8.
    pub id: String,
    pub internal: bool,
    /// By index.
    pub partitions: Vec<PartitionMetadata>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMetadata {
    pub index: i32,
    /// `None` while there is no leader.
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
    pub offline: Vec<i32>,
}

impl Metadata {
    pub fn from_response(response: &MetadataResponse<'_>) -> Self {
        let nodes = response.brokers.iter().filter_map(|broker| {
            let port = u16::try_from(broker.port).ok()?;
            Some((broker.node_id, Endpoint { host: broker.host.into_owned(), port }))
        });
        let controller = Some(response.controller_id).filter(|&node| node >= 0);
        let mut topics: Vec<_> = response.topics.iter().map(TopicMetadata::from_response).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Metadata { nodes: nodes.collect(), controller, topics }
    }
}

impl TopicMetadata {
    fn from_response(topic: MetadataResponseTopic<'_>) -> Self {
        let partitions = topic.partitions.iter().map(|partition| PartitionMetadata {
            index: partition.partition_index,
            leader: Some(partition.leader_id).filter(|&node| node >= 0),
            replicas: partition.replica_nodes.to_vec(),
            in_sync: partition.isr_nodes.to_vec(),
            offline: partition.offline_replicas.to_vec(),
        });
        let mut partitions: Vec<_> = partitions.collect();
        partitions.sort_by_key(|partition| partition.index);
        let has_id = topic.topic_id != wire::Uuid::ZERO;
        TopicMetadata {
            error_code: topic.error_code,
            name: topic.name.unwrap_or_default().into_owned(),
            id: if has_id { topic.topic_id.to_string() } else { String::new() },
            internal: topic.is_internal,
            partitions,
        }
    }

    pub fn partition(&self, index: i32) -> Option<&PartitionMetadata> {
        self.partitions.iter().find(|partition| partition.index == index)
    }
}
