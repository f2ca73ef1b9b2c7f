//! Topics: creating and deleting. Checks, their order and their messages are Kafka's.

use ahash::AHashSet;
use wire::messages as m;
use wire::{ErrorCode, Uuid};

use super::names::{CLUSTER_METADATA_TOPIC, topic_name_problem};
use super::placement::Placer;
use super::{
    Controller, Decision, Entropy, Failure, Outcome, PARTITIONS_PER_REQUEST_MAX, repeated,
};
use crate::config::{Entry, ResourceKind, Settings, resolve_new_topic};
use crate::image::{NO_LEADER, Replicas};
use crate::node::NodeId;
use crate::record::MetadataRecord;

/// One topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopic {
    pub name: String,
    /// -1: the broker's default, and with `assignments`.
    pub num_partitions: i32,
    /// -1: the broker's default, and with `assignments`.
    pub replication_factor: i16,
    /// Partition ids with the node ids of their replicas; empty: the controller chooses.
    pub assignments: Vec<(i32, Vec<i32>)>,
    pub configs: Vec<(String, Option<String>)>,
}

impl CreateTopic {
    /// A topic with the broker's defaults.
    pub fn with_defaults(name: impl Into<String>) -> Self {
        CreateTopic {
            name: name.into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
        }
    }
}

/// A topic that was created, or would be.
#[derive(Clone, Debug)]
pub struct CreatedTopic {
    /// Zero if the request only asked whether it would work.
    pub id: Uuid,
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub configs: Vec<Entry>,
}

/// One topic to delete: by name, or by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTopic {
    pub name: Option<String>,
    /// Zero: not given.
    pub id: Uuid,
}

/// A topic that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub name: String,
    pub id: Uuid,
}

/// A topic whose records are there already: brought in from another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptTopic {
    pub name: String,
    /// Zero: it gets a new one.
    pub id: Uuid,
    /// Of each partition in order: the node that holds it, and the epoch it begins to lead under,
    /// later than all that its records were written under.
    pub partitions: Vec<(NodeId, i32)>,
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic's layout and settings after all checks.
struct Plan {
    partitions: Vec<Replicas>,
    replication_factor: i16,
    settings: Settings,
}

impl Controller<'_> {
    /// Creates topics. One answer a name, in the order of the request; each topic stands or falls
    /// alone.
    pub fn create_topics(
        &self,
        requests: &[CreateTopic],
        validate_only: bool,
        entropy: Entropy<'_>,
    ) -> Decision<Vec<(String, Outcome<CreatedTopic>)>> {
        let twice = repeated(requests.iter().map(|request| request.name.as_str()));
        let too_many = self.requested_partitions(requests) > PARTITIONS_PER_REQUEST_MAX;
        let mut placer = Placer::new(self.image, entropy);
        let mut records = Vec::new();
        let mut outcome: Vec<(String, Outcome<CreatedTopic>)> = Vec::new();
        let mut answered = AHashSet::new();
        let mut new_names = AHashSet::new();
        for request in requests {
            let name = request.name.as_str();
            if !answered.insert(name) {
                continue;
            }
            let created = if twice.contains(name) {
                Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
            } else if too_many {
                let message = "Excessively large number of partitions per request.";
                Err(Failure::new(ErrorCode::PolicyViolation, message))
            } else {
                self.check_new_name(name, &mut new_names)
                    .and_then(|()| self.plan_topic(request, &mut placer))
                    .map(|plan| {
                        let id = match validate_only {
                            true => Uuid::ZERO,
                            false => self.new_topic_id(entropy),
                        };
                        if !validate_only {
                            push_topic(&mut records, self, id, name, &plan);
                        }
                        CreatedTopic {
                            id,
                            num_partitions: plan.partitions.len() as i32,
                            replication_factor: plan.replication_factor,
                            configs: resolve_new_topic(self.layers(), &plan.settings),
                        }
                    })
            };
            outcome.push((name.to_string(), created));
        }
        Decision { records, outcome }
    }

    /// Makes a topic of partitions that are there. The nodes need not be alive: they lead once
    /// their broker starts.
    pub fn adopt_topic(
        &self,
        topic: &AdoptTopic,
        entropy: Entropy<'_>,
    ) -> Outcome<(Uuid, Vec<MetadataRecord>)> {
        self.check_new_name(&topic.name, &mut AHashSet::new())?;
        if let Some(other) = self.image.topic_by_id(topic.id).filter(|_| !topic.id.is_zero()) {
            let message = format!("Topic id {} is taken by topic {}.", topic.id, other.name);
            return Err(Failure::new(ErrorCode::TopicAlreadyExists, message));
        }
        let count = topic.partitions.len();
        if count == 0 || count > PARTITIONS_PER_REQUEST_MAX {
            let message = format!("A topic has 1 to {PARTITIONS_PER_REQUEST_MAX} partitions.");
            return Err(Failure::new(ErrorCode::InvalidPartitions, message));
        }
        let settings = self.new_topic_settings(&topic.configs)?;
        let id = if topic.id.is_zero() { self.new_topic_id(entropy) } else { topic.id };
        let plan = Plan { partitions: Vec::new(), replication_factor: 1, settings };
        let mut records = Vec::new();
        push_topic(&mut records, self, id, &topic.name, &plan);
        for (partition, (node, leader_epoch)) in (0..).zip(&topic.partitions) {
            let record = m::PartitionRecord {
                partition_id: partition,
                topic_id: id,
                replicas: vec![node.0].into(),
                isr: vec![node.0].into(),
                leader: node.0,
                leader_epoch: *leader_epoch,
                ..Default::default()
            };
            records.push(record.into());
        }
        Ok((id, records))
    }

    /// Deletes topics. One answer an item, in the order of the request.
    pub fn delete_topics(&self, requests: &[DeleteTopic]) -> Decision<Vec<Outcome<DeletedTopic>>> {
        let names = requests.iter().filter_map(|request| request.name.as_deref());
        let twice = repeated(names);
        let ids = requests.iter().map(|request| request.id).filter(|id| !id.is_zero());
        let ids_twice = repeated(ids);
        let mut records: Vec<MetadataRecord> = Vec::new();
        let mut gone = AHashSet::new();
        let mut outcome = Vec::with_capacity(requests.len());
        for request in requests {
            let deleted = if request.name.as_deref().is_some_and(|name| twice.contains(name)) {
                Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
            } else if ids_twice.contains(&request.id) {
                Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic id."))
            } else {
                self.find_to_delete(request)
            };
            if let Ok(topic) = &deleted
                // The same topic may be named once by name and once by id.
                && gone.insert(topic.id)
            {
                records.push(m::RemoveTopicRecord { topic_id: topic.id }.into());
            }
            outcome.push(deleted);
        }
        Decision { records, outcome }
    }

    fn find_to_delete(&self, request: &DeleteTopic) -> Outcome<DeletedTopic> {
        let bad = |message: &str| Err(Failure::new(ErrorCode::InvalidRequest, message));
        let topic = match (&request.name, request.id.is_zero()) {
            (Some(_), false) => return bad("You may not specify both topic name and topic id."),
            (None, true) => return bad("Neither topic name nor id were specified."),
            _ if !self.config.delete_topics => {
                let code = ErrorCode::TopicDeletionDisabled;
                return Err(Failure::new(code, "Topic deletion is disabled."));
            }
            (Some(name), true) => self.image.topic_by_name(name).ok_or_else(unknown_topic),
            (None, false) => self.image.topic_by_id(request.id).ok_or_else(|| {
                let code = ErrorCode::UnknownTopicId;
                Failure::new(code, "This server does not host this topic ID.")
            }),
        }?;
        Ok(DeletedTopic { name: topic.name.to_string(), id: topic.id })
    }

    /// How many partitions a whole request asks for; what is not a count counts as one.
    fn requested_partitions(&self, requests: &[CreateTopic]) -> usize {
        let count = |request: &CreateTopic| match request.num_partitions {
            _ if !request.assignments.is_empty() => request.assignments.len(),
            -1 => usize::try_from(self.config.num_partitions).unwrap_or(1),
            n => usize::try_from(n).unwrap_or(1),
        };
        requests.iter().map(count).fold(0, usize::saturating_add)
    }

    /// Rules of names, then whether the name or one too like it is taken.
    fn check_new_name(&self, name: &str, new_names: &mut AHashSet<String>) -> Outcome<()> {
        if name == CLUSTER_METADATA_TOPIC {
            return Err(Failure::new(
                ErrorCode::InvalidRequest,
                format!("Creation of internal topic {name} is prohibited."),
            ));
        }
        if let Some(problem) = topic_name_problem(name) {
            return Err(Failure::new(ErrorCode::InvalidTopicException, problem));
        }
        if self.image.topic_by_name(name).is_some() {
            let message = format!("Topic '{name}' already exists.");
            return Err(Failure::new(ErrorCode::TopicAlreadyExists, message));
        }
        if let Some(other) = self.image.colliding_topic(name) {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            return Err(Failure::new(ErrorCode::InvalidTopicException, message));
        }
        if !new_names.insert(name.replace('.', "_")) {
            let message = format!("Topic '{name}' collides with another topic of this request.");
            return Err(Failure::new(ErrorCode::InvalidTopicException, message));
        }
        Ok(())
    }

    fn plan_topic(&self, request: &CreateTopic, placer: &mut Placer) -> Outcome<Plan> {
        let settings = self.new_topic_settings(&request.configs)?;
        placer.begin_topic(None);
        if !request.assignments.is_empty() {
            let partitions = self.assigned_partitions(request)?;
            let replication_factor = partitions.first().map_or(0, |r| r.len() as i16);
            return Ok(Plan { partitions, replication_factor, settings });
        }
        let replication_factor = match request.replication_factor {
            -1 => self.config.default_replication_factor,
            factor if factor > 0 => factor,
            _ => {
                return Err(Failure::new(
                    ErrorCode::InvalidReplicationFactor,
                    "Replication factor must be larger than 0, or -1 to use the default value.",
                ));
            }
        };
        let count = match request.num_partitions {
            -1 => self.config.num_partitions,
            count if count > 0 => count,
            _ => {
                let message = "Number of partitions was set to an invalid non-positive value.";
                return Err(Failure::new(ErrorCode::InvalidPartitions, message));
            }
        };
        let partitions = placer.place(usize::try_from(count).unwrap_or(0), replication_factor)?;
        Ok(Plan { partitions, replication_factor, settings })
    }

    fn new_topic_settings(&self, configs: &[(String, Option<String>)]) -> Outcome<Settings> {
        let nulls: Vec<&str> =
            configs.iter().filter(|(_, value)| value.is_none()).map(|(k, _)| k.as_str()).collect();
        if !nulls.is_empty() {
            let message =
                format!("Null value not supported for topic configs: {}", nulls.join(","));
            return Err(Failure::new(ErrorCode::InvalidConfig, message));
        }
        let pairs = configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        let settings: Settings = pairs.collect();
        self.check_settings(ResourceKind::Topic, "", &settings)?;
        Ok(settings)
    }

    fn assigned_partitions(&self, request: &CreateTopic) -> Outcome<Vec<Replicas>> {
        let bad = |message: &str| Err(Failure::new(ErrorCode::InvalidRequest, message));
        if request.replication_factor != -1 {
            return bad(
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            );
        }
        if request.num_partitions != -1 {
            return bad(
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            );
        }
        let wrong = |message: String| Failure::new(ErrorCode::InvalidReplicaAssignment, message);
        let mut assignments: Vec<&(i32, Vec<i32>)> = request.assignments.iter().collect();
        assignments.sort_by_key(|(id, _)| *id);
        if let Some(pair) = assignments.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let id = pair[0].0;
            return Err(wrong(format!(
                "Found multiple manual partition assignments for partition {id}"
            )));
        }
        let mut factor = None;
        let mut partitions = Vec::with_capacity(assignments.len());
        for (id, nodes) in &assignments {
            partitions.push(self.manual_replicas(*id, nodes, factor)?);
            factor = Some(nodes.len());
        }
        if (0..).zip(&assignments).any(|(at, (id, _)): (i32, _)| at != *id) {
            return Err(wrong(
                "partitions should be a consecutive 0-based integer sequence".into(),
            ));
        }
        Ok(partitions)
    }

    /// Checks one manual assignment: known nodes, no two on one broker, the same count as others,
    /// and somebody alive to lead.
    pub(super) fn manual_replicas(
        &self,
        partition: i32,
        nodes: &[i32],
        factor: Option<usize>,
    ) -> Outcome<Replicas> {
        let fail =
            |message: String| Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
        let begin = "The manual partition assignment includes";
        if nodes.is_empty() {
            return fail(format!("{begin} an empty replica list."));
        }
        let mut brokers = AHashSet::new();
        for (at, id) in nodes.iter().enumerate() {
            let node = NodeId(*id);
            if self.image.node(node).is_none() {
                return fail(format!("{begin} broker {id}, but no such broker is registered."));
            }
            if nodes[..at].contains(id) {
                return fail(format!("{begin} the broker {id} more than once."));
            }
            if !brokers.insert(node.broker()) {
                return fail(format!(
                    "{begin} two replicas on the same host: broker {id} is a shard of a host that \
                     has one already."
                ));
            }
        }
        if let Some(factor) = factor.filter(|factor| *factor != nodes.len()) {
            return fail(format!(
                "{begin} a partition with {} replica(s), but this is not consistent with previous \
                 partitions, which have {factor} replica(s).",
                nodes.len()
            ));
        }
        if !nodes.iter().any(|id| self.image.is_alive(NodeId(*id))) {
            return fail(format!(
                "All brokers specified in the manual partition assignment for partition {partition} \
                 are fenced or in controlled shutdown."
            ));
        }
        Ok(nodes.iter().map(|id| NodeId(*id)).collect())
    }

    /// The record of a new partition: everybody alive is in sync, the first of them leads.
    pub(super) fn new_partition(
        &self,
        topic: Uuid,
        id: i32,
        replicas: &Replicas,
    ) -> m::PartitionRecord<'static> {
        let isr: Vec<i32> =
            replicas.iter().filter(|node| self.image.is_alive(**node)).map(|node| node.0).collect();
        m::PartitionRecord {
            partition_id: id,
            topic_id: topic,
            replicas: replicas.iter().map(|node| node.0).collect(),
            leader: isr.first().copied().unwrap_or(NO_LEADER.0),
            isr: isr.into(),
            leader_epoch: 0,
            partition_epoch: 0,
            ..Default::default()
        }
    }

    fn new_topic_id(&self, entropy: Entropy<'_>) -> Uuid {
        loop {
            let id = random_uuid(entropy);
            // A leading dash looks like an option on command lines; Kafka avoids it too.
            if !id.to_string().starts_with('-') && self.image.topic_by_id(id).is_none() {
                return id;
            }
        }
    }
}

/// A random (version 4) UUID.
pub(super) fn random_uuid(entropy: Entropy<'_>) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&entropy().to_be_bytes());
    bytes[8..].copy_from_slice(&entropy().to_be_bytes());
    Uuid::from_random(bytes)
}

pub(super) fn unknown_topic() -> Failure {
    let code = ErrorCode::UnknownTopicOrPartition;
    Failure::new(code, "This server does not host this topic-partition.")
}

fn push_topic(
    records: &mut Vec<MetadataRecord>,
    controller: &Controller<'_>,
    id: Uuid,
    name: &str,
    plan: &Plan,
) {
    records.push(m::TopicRecord { name: name.to_string().into(), topic_id: id }.into());
    for (key, value) in &plan.settings {
        let record = m::ConfigRecord {
            resource_type: ResourceKind::Topic.code(),
            resource_name: name.to_string().into(),
            name: key.clone().into(),
            value: Some(value.clone().into()),
        };
        records.push(record.into());
    }
    for (partition, replicas) in (0..).zip(&plan.partitions) {
        records.push(controller.new_partition(id, partition, replicas).into());
    }
}
