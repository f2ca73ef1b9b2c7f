//! Reassigning partitions: which nodes have their replicas.
//!
//! On one host a partition moves from core to core; its files stay where they are. First nobody
//! leads it, so that the old core closes its log, then the new core does:
//!
//! | step | record | replicas | adding, removing | leader |
//! |---|---|---|---|---|
//! | release | change | old | new, old | none |
//! | lead | change | new | – | new |
//!
//! A crash in between leaves the partition where it was (`cluster.rs` takes the marks away).

use wire::messages as m;
use wire::{ErrorCode, Uuid};

use super::topics::unknown_topic;
use super::{Controller, Failure, Outcome};
use crate::image::{NO_LEADER, Partition, Replicas, Topic};
use crate::record::MetadataRecord;

/// A request to put partitions on other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassign {
    pub allow_replication_factor_change: bool,
    pub partitions: Vec<ReassignPartition>,
}

/// One partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassignPartition {
    pub topic: String,
    pub partition: i32,
    /// `None`: give up the reassignment under way.
    pub replicas: Option<Vec<i32>>,
}

/// The records of a reassignment, in two steps, each to be true on every shard before the next.
#[derive(Clone, Debug, Default)]
pub struct Reassigned {
    pub release: Vec<MetadataRecord>,
    pub lead: Vec<MetadataRecord>,
    /// One answer a partition, in the order of the request.
    pub outcome: Vec<Outcome<()>>,
}

/// What is done about one partition.
enum Plan {
    Nothing,
    /// The same nodes in another order.
    Reorder(Replicas),
    Move(Replicas),
}

impl Controller<'_> {
    /// Decides a request; each partition stands or falls alone.
    pub fn reassign(&self, request: &Reassign) -> Reassigned {
        let mut decided = Reassigned::default();
        for asked in &request.partitions {
            let planned = self.plan_reassignment(asked, request.allow_replication_factor_change);
            decided.outcome.push(planned.map(|(topic, partition, plan)| match plan {
                Plan::Nothing => {}
                Plan::Reorder(replicas) => {
                    let record = lead(topic.id, asked.partition, &replicas, partition, false);
                    decided.lead.push(record);
                }
                Plan::Move(replicas) => {
                    decided.release.push(release(topic.id, asked.partition, &replicas, partition));
                    decided.lead.push(lead(topic.id, asked.partition, &replicas, partition, true));
                }
            }));
        }
        decided
    }

    fn plan_reassignment(
        &self,
        asked: &ReassignPartition,
        factor_may_change: bool,
    ) -> Outcome<(&Topic, &Partition, Plan)> {
        let topic = self.image.topic_by_name(&asked.topic).ok_or_else(unknown_topic)?;
        let partition = topic.partition(asked.partition).ok_or_else(unknown_topic)?;
        let Some(nodes) = &asked.replicas else {
            if !partition.is_reassigning() {
                let code = ErrorCode::NoReassignmentInProgress;
                return Err(Failure::new(code, "No partition reassignment is in progress."));
            }
            let before = partition.replicas.clone();
            return Ok((topic, partition, Plan::Move(before)));
        };
        let has = partition.replicas.len();
        if !factor_may_change && nodes.len() != has {
            let message =
                format!("The replication factor is changed from {has} to {}", nodes.len());
            return Err(Failure::new(ErrorCode::InvalidReplicationFactor, message));
        }
        let replicas = self.manual_replicas(asked.partition, nodes, None)?;
        let known: Vec<i32> = partition.replicas.iter().map(|node| node.broker()).collect();
        if let Some(new) = replicas.iter().find(|node| !known.contains(&node.broker())) {
            let message = format!(
                "Replica {new} is on another host than the partition; moving between hosts needs \
                 replication, which this version does not have."
            );
            return Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
        }
        let same = replicas.len() == has && replicas.iter().all(|n| partition.replicas.contains(n));
        let plan = match same && !partition.is_reassigning() {
            true if replicas == partition.replicas => Plan::Nothing,
            true => Plan::Reorder(replicas),
            false => Plan::Move(replicas),
        };
        Ok((topic, partition, plan))
    }
}

fn release(topic_id: Uuid, id: i32, replicas: &Replicas, partition: &Partition) -> MetadataRecord {
    let without = |these: &Replicas, those: &Replicas| {
        these.iter().filter(|node| !those.contains(node)).map(|node| node.0).collect()
    };
    m::PartitionChangeRecord {
        partition_id: id,
        topic_id,
        adding_replicas: Some(without(replicas, &partition.replicas)),
        removing_replicas: Some(without(&partition.replicas, replicas)),
        leader: NO_LEADER.0,
        ..Default::default()
    }
    .into()
}

fn lead(
    topic_id: Uuid,
    id: i32,
    replicas: &Replicas,
    partition: &Partition,
    moved: bool,
) -> MetadataRecord {
    let nodes = || replicas.iter().map(|node| node.0).collect();
    // Each replica keeps its directory: the disks are its host's.
    let directories = replicas.iter().map(|node| partition.directory_on(node.broker()));
    let directories: Vec<Uuid> = directories.map(|id| id.unwrap_or(Uuid::ZERO)).collect();
    let mut record = m::PartitionChangeRecord {
        partition_id: id,
        topic_id,
        replicas: Some(nodes()),
        directories: Some(directories.into()),
        ..Default::default()
    };
    if moved {
        record.isr = Some(nodes());
        record.adding_replicas = Some(Vec::new().into());
        record.removing_replicas = Some(Vec::new().into());
        record.leader = replicas.first().map_or(NO_LEADER.0, |node| node.0);
    }
    record.into()
}
