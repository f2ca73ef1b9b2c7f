//! A snapshot of an image: the shortest run of records that builds it again, so that the metadata
//! log can be cut off before it.

use wire::messages as m;

use super::Image;
use super::topics::{Partition, Topic};
use crate::error::MetaError;
use crate::node::NodeId;
use crate::record::MetadataRecord;

impl Image {
    /// Records that build this image from an empty one, always in the same order: features, nodes,
    /// topics with their partitions by name, settings, producer ids.
    pub fn records(&self) -> Vec<MetadataRecord> {
        self.record_iter().collect()
    }

    /// The same one by one, for a snapshot that is written in pieces.
    pub fn record_iter(&self) -> impl Iterator<Item = MetadataRecord> + '_ {
        let features = self.features.iter().map(|(name, level)| {
            let name = name.clone().into();
            m::FeatureLevelRecord { name, feature_level: *level }.into()
        });
        let nodes = self.nodes.values().map(|node| node.to_record().into());
        let topics = self.topics().flat_map(|topic| {
            let partitions = (0..)
                .zip(&topic.partitions)
                .map(|(id, partition)| partition_record(topic, id, partition).into());
            std::iter::once(topic_record(topic).into()).chain(partitions)
        });
        let settings = self.overrides.all().map(|(kind, resource, key, value)| {
            MetadataRecord::from(m::ConfigRecord {
                resource_type: kind.code(),
                resource_name: resource.to_string().into(),
                name: key.to_string().into(),
                value: Some(value.to_string().into()),
            })
        });
        let ids = (self.next_producer_id > 0).then(|| {
            let next_producer_id = self.next_producer_id;
            m::ProducerIdsRecord { next_producer_id, broker_id: -1, broker_epoch: -1 }.into()
        });
        features.chain(nodes).chain(topics).chain(settings).chain(ids)
    }

    /// An image from the records of a snapshot that ends with `offset`.
    pub fn from_snapshot<'r>(
        cluster_id: impl Into<String>,
        offset: i64,
        records: impl IntoIterator<Item = &'r MetadataRecord>,
    ) -> Result<Self, MetaError> {
        let mut image = Image::new(cluster_id);
        for record in records {
            image.apply(record)?;
        }
        image.offset = offset;
        Ok(image)
    }
}

pub(crate) fn topic_record(topic: &Topic) -> m::TopicRecord<'static> {
    m::TopicRecord { name: topic.name.to_string().into(), topic_id: topic.id }
}

pub(crate) fn partition_record(
    topic: &Topic,
    id: i32,
    partition: &Partition,
) -> m::PartitionRecord<'static> {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    m::PartitionRecord {
        partition_id: id,
        topic_id: topic.id,
        replicas: ids(&partition.replicas),
        isr: ids(&partition.isr),
        adding_replicas: ids(&partition.adding),
        removing_replicas: ids(&partition.removing),
        directories: partition.directories.iter().copied().collect(),
        leader: partition.leader.0,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        ..Default::default()
    }
}
