//! More partitions for existing topics.

use ahash::AHashSet;
use wire::messages as m;
use wire::{ErrorCode, Uuid};

use super::placement::Placer;
use super::topics::unknown_topic;
use super::{
    Controller, Decision, Entropy, Failure, Outcome, PARTITIONS_PER_REQUEST_MAX, repeated,
};
use crate::image::{Replicas, Topic};
use crate::record::MetadataRecord;

/// One topic to give more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitions {
    pub topic: String,
    /// Partitions that the topic shall have then.
    pub count: i32,
    /// Node ids of each new partition's replicas; `None`: the controller chooses.
    pub assignments: Option<Vec<Vec<i32>>>,
}

impl Controller<'_> {
    /// Adds partitions. One answer a topic, in the order of the request.
    pub fn create_partitions(
        &self,
        requests: &[CreatePartitions],
        validate_only: bool,
        entropy: Entropy<'_>,
    ) -> Decision<Vec<(String, Outcome<()>)>> {
        let twice = repeated(requests.iter().map(|request| request.topic.as_str()));
        let mut placer = Placer::new(self.image, entropy);
        let mut records: Vec<MetadataRecord> = Vec::new();
        let mut outcome: Vec<(String, Outcome<()>)> = Vec::new();
        let mut answered = AHashSet::new();
        for request in requests {
            if !answered.insert(request.topic.as_str()) {
                continue;
            }
            let added = if twice.contains(request.topic.as_str()) {
                Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
            } else {
                self.plan_partitions(request, records.len(), &mut placer)
            };
            outcome.push((
                request.topic.clone(),
                added.map(|(topic, partitions)| {
                    for (id, replicas) in (topic.partitions.len() as i32..).zip(&partitions) {
                        records.push(self.new_partition(topic.id, id, replicas).into());
                    }
                }),
            ));
        }
        if validate_only {
            records.clear();
        }
        Decision { records, outcome }
    }

    fn plan_partitions(
        &self,
        request: &CreatePartitions,
        planned: usize,
        placer: &mut Placer,
    ) -> Outcome<(&Topic, Vec<Replicas>)> {
        let topic = self.image.topic_by_name(&request.topic).ok_or_else(unknown_topic)?;
        let has = topic.partitions.len();
        let more = match usize::try_from(request.count).unwrap_or(0) {
            count if count == has => {
                let message = format!("Topic already has {has} partition(s).");
                return Err(Failure::new(ErrorCode::InvalidPartitions, message));
            }
            count if count < has => {
                let message = format!(
                    "The topic {} currently has {has} partition(s); {} would not be an increase.",
                    request.topic, request.count
                );
                return Err(Failure::new(ErrorCode::InvalidPartitions, message));
            }
            count => count - has,
        };
        if planned.saturating_add(more) > PARTITIONS_PER_REQUEST_MAX {
            let message = "Excessively large number of additional partitions per request.";
            return Err(Failure::new(ErrorCode::PolicyViolation, message));
        }
        let factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
        let partitions = match &request.assignments {
            None => {
                placer.begin_topic(Some(topic));
                placer.place(more, i16::try_from(factor).unwrap_or(i16::MAX))?
            }
            Some(given) if given.len() != more => {
                let message = format!(
                    "Attempted to add {more} additional partition(s), but only {} assignment(s) \
                     were specified.",
                    given.len()
                );
                return Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
            }
            Some(given) => {
                let ids = has as i32..;
                let checked =
                    ids.zip(given).map(|(id, nodes)| self.manual_replicas(id, nodes, Some(factor)));
                checked.collect::<Outcome<_>>()?
            }
        };
        Ok((topic, partitions))
    }
}

/// The record that puts a broker's replica of a partition into a data directory; none if the broker
/// has no replica, or it is there already.
pub fn assign_directory(
    topic: &Topic,
    index: i32,
    broker_id: i32,
    directory: Uuid,
) -> Option<MetadataRecord> {
    let partition = topic.partition(index)?;
    let at = partition.replicas.iter().position(|node| node.broker() == broker_id)?;
    let mut directories = partition.directories.to_vec();
    directories.resize(partition.replicas.len(), Uuid::ZERO);
    let recorded = directories.get_mut(at)?;
    if std::mem::replace(recorded, directory) == directory {
        return None;
    }
    let record = m::PartitionChangeRecord {
        partition_id: index,
        topic_id: topic.id,
        directories: Some(directories.into()),
        ..Default::default()
    };
    Some(record.into())
}
