//! Metadata (3): the shard nodes, and which of them leads each partition. Creates a topic that a
//! client asks for by name where both the client and the broker allow it.

use std::collections::HashSet;

use ahash::AHashMap;
use meta::Image;
use wire::messages::metadata_request::MetadataRequest;
use wire::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use wire::{ErrorCode, Uuid};

use super::{REQUEST_ITEMS_MAX, Request, check_items, owned};
use crate::control::ControlRequest;
use crate::reply::Handled;
use crate::shard::Shard;

/// In version 0 an empty list asks for every topic; later null does.
const NULL_MEANS_ALL_VERSION: i16 = 1;
/// From this version on an answer may leave the name out (a topic asked by an unknown id).
const NULL_NAME_VERSION: i16 = 12;

/// One topic as the client asked for it.
enum Asked {
    Name(String),
    Id(Uuid),
}

pub(crate) async fn handle(request: Request) -> Handled {
    let body: MetadataRequest<'_> = request.body()?;
    check_items(body.topics.as_ref().map_or(0, |topics| topics.len()), REQUEST_ITEMS_MAX)?;
    // A topic named a thousand times is answered once, or a small request could ask for an answer
    // of any size.
    let mut seen = HashSet::new();
    let asked: Option<Vec<Asked>> = body.topics.as_ref().map(|topics| {
        let once = topics.iter().filter(|topic| seen.insert((topic.name.clone(), topic.topic_id)));
        let asked = once.map(|topic| match topic.name {
            // Java's consumer names the topic by its id and leaves an empty name beside it.
            Some(name) if topic.topic_id.is_zero() || request.version < NULL_NAME_VERSION => {
                Asked::Name(name.into_owned())
            }
            _ => Asked::Id(topic.topic_id),
        });
        asked.collect()
    });
    let wants_all =
        asked.as_ref().is_none_or(|a| a.is_empty() && request.version < NULL_MEANS_ALL_VERSION);
    let may_create = body.allow_auto_topic_creation;
    drop(seen);
    drop(body);
    let shard = &request.shard;
    let topics = if wants_all {
        every_topic(shard).await
    } else {
        let asked = asked.unwrap_or_default();
        let not_created = match may_create {
            true => create_missing(shard, &asked).await,
            false => AHashMap::new(),
        };
        let mut topics = Vec::with_capacity(asked.len());
        for one in &asked {
            topics.push(named_topic(shard, &request, one, &not_created).await);
        }
        topics
    };
    let brokers: Vec<MetadataResponseBroker<'_>> = shard
        .endpoints()
        .into_iter()
        .map(|node| MetadataResponseBroker {
            node_id: node.node_id,
            host: node.host.to_string().into(),
            port: node.port.into(),
            rack: node.rack.map(|rack| rack.to_string().into()),
        })
        .collect();
    request.reply(&MetadataResponse {
        brokers: brokers.into(),
        cluster_id: Some(owned(shard.cluster_id())),
        controller_id: shard.controller_node_id(),
        topics: topics.into(),
        ..Default::default()
    })
}

/// Whether the answer names every topic.
pub(super) fn asks_for_all(request: &Request) -> bool {
    let Ok(body) = request.body::<MetadataRequest<'_>>() else { return false };
    let is_all = request.version < NULL_MEANS_ALL_VERSION;
    body.topics.is_none_or(|topics| is_all && topics.is_empty())
}

async fn every_topic(shard: &Shard) -> Vec<MetadataResponseTopic<'static>> {
    // A copy: describing ten thousand partitions lets others run in between.
    let image: Image = shard.image().clone();
    let mut topics = Vec::with_capacity(image.topic_count());
    for topic in image.topics() {
        topics.push(described(shard, topic).await);
    }
    topics
}

async fn named_topic(
    shard: &Shard,
    request: &Request,
    asked: &Asked,
    not_created: &AHashMap<String, ErrorCode>,
) -> MetadataResponseTopic<'static> {
    let topic = {
        let image = shard.image();
        match asked {
            Asked::Name(name) => image.topic_by_name(name).cloned(),
            Asked::Id(id) => image.topic_by_id(*id).cloned(),
        }
    };
    if let Some(topic) = topic {
        return described(shard, &topic).await;
    }
    let mut missing = MetadataResponseTopic::default();
    match asked {
        Asked::Name(name) => {
            let failed = not_created.get(name).copied();
            let error = failed.unwrap_or(match meta::controller::topic_name_problem(name) {
                None => ErrorCode::UnknownTopicOrPartition,
                Some(_) => ErrorCode::InvalidTopicException,
            });
            missing.error_code = error.code();
            missing.name = Some(owned(name));
        }
        Asked::Id(id) => {
            missing.error_code = ErrorCode::UnknownTopicId.code();
            missing.topic_id = *id;
            missing.name = (request.version < NULL_NAME_VERSION).then(|| owned(""));
        }
    }
    missing
}

/// Creates the named topics that do not exist, with the broker's defaults. Returns what could not
/// be created and why.
async fn create_missing(shard: &Shard, asked: &[Asked]) -> AHashMap<String, ErrorCode> {
    if !shard.config().auto_create_topics {
        return AHashMap::new();
    }
    let missing: Vec<String> = {
        let image = shard.image();
        asked
            .iter()
            .filter_map(|one| match one {
                Asked::Name(name) if image.topic_by_name(name).is_none() => Some(name.clone()),
                Asked::Name(_) | Asked::Id(_) => None,
            })
            .collect()
    };
    if missing.is_empty() {
        return AHashMap::new();
    }
    let request = ControlRequest::AutoCreate { names: missing.clone() };
    match shard.control(request).await.created() {
        Ok(outcomes) => outcomes
            .into_iter()
            .filter_map(|(name, outcome)| outcome.err().map(|failure| (name, failure.code)))
            .collect(),
        Err(failure) => missing.into_iter().map(|name| (name, failure.code)).collect(),
    }
}

async fn described(shard: &Shard, topic: &meta::Topic) -> MetadataResponseTopic<'static> {
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for (index, partition) in (0i32..).zip(&topic.partitions) {
        let offline = shard.offline_replicas(partition);
        let (leader_id, error) = leader(partition, &offline);
        partitions.push(MetadataResponsePartition {
            error_code: error.code(),
            partition_index: index,
            leader_id,
            leader_epoch: partition.leader_epoch,
            replica_nodes: node_ids(&partition.replicas).into(),
            isr_nodes: node_ids(&partition.isr).into(),
            offline_replicas: offline.into(),
        });
        reactor::yield_if_due().await;
    }
    MetadataResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(owned(&topic.name)),
        topic_id: topic.id,
        is_internal: meta::controller::is_internal(&topic.name),
        partitions: partitions.into(),
        ..Default::default()
    }
}

/// The leader as clients are told, and with which error. One whose data directory cannot be used
/// leads for nobody, as in Apache Kafka: clients look again until there is one.
pub(crate) fn leader(partition: &meta::Partition, offline: &[i32]) -> (i32, ErrorCode) {
    if partition.leader == meta::NO_LEADER || offline.contains(&partition.leader.0) {
        (meta::NO_LEADER.0, ErrorCode::LeaderNotAvailable)
    } else {
        (partition.leader.0, ErrorCode::None)
    }
}

pub(crate) fn node_ids(nodes: &[meta::NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.0).collect()
}
