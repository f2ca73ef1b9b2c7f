//! Deltas: a run of records for every shard, and what a shard has to do about it.

use std::ops::Range;
use std::sync::Arc;

use wire::Uuid;

use super::Image;
use super::topics::Topic;
use crate::config::{Resource, ResourceKind};
use crate::error::MetaError;
use crate::record::MetadataRecord;

/// Records of the metadata log from an offset on. Cheap to clone and to send to other shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    pub base_offset: i64,
    pub records: Arc<[MetadataRecord]>,
}

/// What a delta changed, for the shard to act on its local logs and waiting requests. Partitions
/// are named by topic id and partition id; each is named once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New partitions.
    pub created: Vec<(Uuid, i32)>,
    /// Topics that are gone, as they were.
    pub deleted: Vec<Topic>,
    /// Older partitions with another leader, leader epoch or set of replicas.
    pub leadership: Vec<(Uuid, i32)>,
    /// Resources with other settings. A topic that was deleted is not named.
    pub configs: Vec<Resource>,
    /// Whether a node came, went, or changed.
    pub nodes: bool,
    pub features: bool,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Image {
    /// Applies every record of a delta and says what that changed. The delta must begin where the
    /// image ends.
    pub fn apply_delta(&mut self, delta: &Delta) -> Result<Changes, MetaError> {
        let mut changes = Changes::default();
        self.apply_part(delta, 0..delta.records.len(), &mut changes)?;
        changes.settle();
        Ok(changes)
    }

    /// Applies some of the records, which begin where the image ends. For a large delta in steps,
    /// on a copy that nobody sees before it is whole; call [`Changes::settle`] after the last one.
    pub fn apply_part(
        &mut self,
        delta: &Delta,
        part: Range<usize>,
        changes: &mut Changes,
    ) -> Result<(), MetaError> {
        let expected = self.offset + 1;
        let found = delta.base_offset + part.start as i64;
        if found != expected {
            return Err(MetaError::Gap { expected, found });
        }
        for record in delta.records.get(part).unwrap_or_default() {
            self.note(record, changes);
            match record {
                // Deleting hands out the topic, so that the shard knows what it had.
                MetadataRecord::RemoveTopic(r) => {
                    let topic = self.remove_topic(r.topic_id)?;
                    self.offset += 1;
                    changes.forget(topic);
                }
                _ => self.apply(record)?,
            }
        }
        Ok(())
    }

    /// Notes what a record is about to change.
    fn note(&self, record: &MetadataRecord, changes: &mut Changes) {
        match record {
            MetadataRecord::Partition(r) => {
                let known = self.topic_by_id(r.topic_id).and_then(|t| t.partition(r.partition_id));
                let list = match known {
                    Some(_) => &mut changes.leadership,
                    None => &mut changes.created,
                };
                list.push((r.topic_id, r.partition_id));
            }
            MetadataRecord::PartitionChange(r) => {
                changes.leadership.push((r.topic_id, r.partition_id));
            }
            MetadataRecord::Config(r) => {
                if let Some(kind) = ResourceKind::from_code(r.resource_type) {
                    changes.configs.push(Resource::new(kind, r.resource_name.as_ref()));
                }
            }
            MetadataRecord::RegisterBroker(_)
            | MetadataRecord::UnregisterBroker(_)
            | MetadataRecord::FenceBroker(_)
            | MetadataRecord::UnfenceBroker(_) => changes.nodes = true,
            MetadataRecord::FeatureLevel(_) => changes.features = true,
            MetadataRecord::Topic(_)
            | MetadataRecord::RemoveTopic(_)
            | MetadataRecord::ProducerIds(_)
            | MetadataRecord::NoOp(_) => {}
        }
    }
}

impl Changes {
    /// Brings them into order and names each once.
    pub fn settle(&mut self) {
        self.created.sort_unstable();
        self.leadership.sort_unstable();
        self.leadership.dedup();
        self.configs.sort_unstable();
        self.configs.dedup();
    }

    /// A topic is deleted: nothing else about it needs doing. One that was also created in this
    /// delta never was there for the shard.
    fn forget(&mut self, topic: Topic) {
        let of_topic = |(id, _): &(Uuid, i32)| *id == topic.id;
        let born_here = self.created.iter().filter(|p| of_topic(p)).count();
        self.created.retain(|p| !of_topic(p));
        self.leadership.retain(|p| !of_topic(p));
        self.configs.retain(|r| r.kind != ResourceKind::Topic || r.name != *topic.name);
        if topic.partitions.is_empty() || born_here < topic.partitions.len() {
            self.deleted.push(topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_may_be_sent_to_other_shards() {
        fn sendable<T: Send + Sync>() {}
        sendable::<Delta>();
        sendable::<Image>();
    }
}
