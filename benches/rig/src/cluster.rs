//! What a load needs to know of a cluster: create and delete topics, find the leaders.
//!
//! A topic's partitions are dealt out over lanes. A lane is one connection to one leader; a broker
//! with fewer nodes than wanted connections gets several lanes to the same node, so that both
//! brokers are loaded over as many connections.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use wire::Uuid;
use wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use wire::messages::delete_topics_request::DeleteTopicState;
use wire::messages::metadata_request::MetadataRequestTopic;
use wire::messages::metadata_response::MetadataResponseTopic;
use wire::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
};

use crate::connection::Connection;
use crate::error::{Error, Result};

const METADATA_VERSION: i16 = 12;
const FIND_VERSION: i16 = 6;
/// Keys that one FindCoordinator names.
const KEYS_A_REQUEST: usize = 1_000;
pub const CREATE_VERSION: i16 = 7;
pub const DELETE_VERSION: i16 = 6;
pub const ADMIN_TIMEOUT_MS: i32 = 30_000;
const LEADERS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct Topic {
    pub name: String,
    pub id: Uuid,
    /// By partition index.
    pub leaders: Vec<SocketAddr>,
    /// That its broker is spoken to in; from 13 on a topic is its id, before that its name.
    pub produce_version: i16,
}

/// One connection's share of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub leader: SocketAddr,
    pub partitions: Vec<i32>,
}

/// Creates a topic and waits until every partition has a leader.
pub fn create(
    at: SocketAddr,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<Topic> {
    create_replicated(at, name, partitions, 1, configs)
}

/// The same with more replicas than one of each partition.
pub fn create_replicated(
    at: SocketAddr,
    name: &str,
    partitions: i32,
    replication_factor: i16,
    configs: &[(&str, &str)],
) -> Result<Topic> {
    let configs: Vec<_> = configs
        .iter()
        .map(|&(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) })
        .collect();
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor,
        configs: configs.into(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic].into(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        validate_only: false,
    };
    let reply = Connection::open(at)?.call(&request, CREATE_VERSION)?;
    let answer: CreateTopicsResponse<'_> = reply.decode()?;
    for topic in &answer.topics {
        Error::check(|| format!("create topic {name}"), topic.error_code)?;
    }
    await_leaders(at, name, partitions)
}

/// Waits until every partition of a topic has a leader, as after a restart.
pub fn await_leaders(at: SocketAddr, name: &str, partitions: i32) -> Result<Topic> {
    let deadline = Instant::now() + LEADERS_WITHIN;
    loop {
        let last = match look_up(at, name) {
            Ok(topic) if i32::try_from(topic.leaders.len()) == Ok(partitions) => return Ok(topic),
            Ok(topic) => format!("{} of {partitions} partitions", topic.leaders.len()),
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            let what = format!("topic {name} has no leaders");
            return Err(Error::TooLate { what, within: LEADERS_WITHIN, last });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

pub fn delete(at: SocketAddr, topic: &Topic) -> Result<()> {
    let state = DeleteTopicState { name: None, topic_id: topic.id };
    let request = DeleteTopicsRequest {
        topics: vec![state].into(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        ..DeleteTopicsRequest::default()
    };
    let reply = Connection::open(at)?.call(&request, DELETE_VERSION)?;
    let answer: DeleteTopicsResponse<'_> = reply.decode()?;
    for result in &answer.responses {
        Error::check(|| format!("delete topic {}", topic.name), result.error_code)?;
    }
    Ok(())
}

/// The topic as the broker knows it now.
///
/// # Errors
/// `Refused` if the topic is not known, `NoLeader` if a partition has none.
pub fn look_up(at: SocketAddr, name: &str) -> Result<Topic> {
    let topics = look_up_all(at, &[name.to_owned()])?;
    topics.into_iter().next().ok_or_else(|| Error::NoLeader(name.to_owned()))
}

/// Several topics at once, in the order asked for.
///
/// # Errors
/// As `look_up`, for any of them.
pub fn look_up_all(at: SocketAddr, names: &[String]) -> Result<Vec<Topic>> {
    let asked = names.iter().map(|name| MetadataRequestTopic {
        topic_id: Uuid::ZERO,
        name: Some(name.as_str().into()),
    });
    let request = MetadataRequest {
        topics: Some(asked.collect::<Vec<_>>().into()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let reply = Connection::open(at)?.call(&request, METADATA_VERSION)?;
    let answer: MetadataResponse<'_> = reply.decode()?;
    let mut nodes = Vec::new();
    for broker in &answer.brokers {
        nodes.push((broker.node_id, address(&broker.host, broker.port)?));
    }
    let mut found = HashMap::with_capacity(names.len());
    for topic in &answer.topics {
        let name = topic.name.as_ref().map(ToString::to_string).unwrap_or_default();
        Error::check(|| format!("look up topic {name}"), topic.error_code)?;
        let leaders = leaders(&topic, &nodes).ok_or_else(|| Error::NoLeader(name.clone()))?;
        found.insert(
            name.clone(),
            Topic {
                name,
                id: topic.topic_id,
                leaders,
                produce_version: crate::payload::PRODUCE_VERSION,
            },
        );
    }
    let take = |name: &String| found.remove(name).ok_or_else(|| Error::NoLeader(name.clone()));
    names.iter().map(take).collect()
}

/// By partition index; `None` if one has no leader.
fn leaders(
    topic: &MetadataResponseTopic<'_>,
    nodes: &[(i32, SocketAddr)],
) -> Option<Vec<SocketAddr>> {
    let mut leaders = Vec::new();
    for partition in &topic.partitions {
        let leader = nodes.iter().find(|(node, _)| *node == partition.leader_id)?;
        leaders.push((partition.partition_index, leader.1));
    }
    leaders.sort_by_key(|(index, _)| *index);
    Some(leaders.into_iter().map(|(_, leader)| leader).collect())
}

/// The coordinators of groups or transactional ids, in the order asked for; asks once.
pub fn coordinators(at: SocketAddr, key_type: i8, keys: &[String]) -> Result<Vec<SocketAddr>> {
    let mut connection = Connection::open(at)?;
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_A_REQUEST) {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: keys.iter().map(|key| key.as_str().into()).collect(),
            ..FindCoordinatorRequest::default()
        };
        let reply = connection.call(&request, FIND_VERSION)?;
        let answer: FindCoordinatorResponse<'_> = reply.decode()?;
        // Answers come in the order of the keys.
        for (key, coordinator) in keys.iter().zip(&answer.coordinators) {
            Error::check(|| format!("coordinator of {key}"), coordinator.error_code)?;
            if *coordinator.key != **key {
                return Err(Error::Unreadable(format!("coordinator of {key}: {coordinator:?}")));
            }
            found.push(address(&coordinator.host, coordinator.port)?);
        }
    }
    if found.len() < keys.len() {
        return Err(Error::Unreadable("too few coordinators".to_owned()));
    }
    Ok(found)
}

/// Of a node, as it advertises itself; a name is looked up.
pub fn address(host: &str, port: i32) -> Result<SocketAddr> {
    let unusable = || Error::Unreadable(format!("the broker's address {host}:{port}"));
    let port = u16::try_from(port).map_err(|_| unusable())?;
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(unusable)
}

impl Topic {
    /// One lane a leader, or more until there are `connections` (or as many as partitions).
    pub fn lanes(&self, connections: usize) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = Vec::new();
        for (partition, &leader) in (0..).zip(&self.leaders) {
            match lanes.iter_mut().find(|lane| lane.leader == leader) {
                Some(lane) => lane.partitions.push(partition),
                None => lanes.push(Lane { leader, partitions: vec![partition] }),
            }
        }
        while lanes.len() < connections {
            let Some(widest) = lanes.iter_mut().max_by_key(|lane| lane.partitions.len()) else {
                break;
            };
            let half = widest.partitions.len().div_ceil(2);
            let partitions = widest.partitions.split_off(half);
            if partitions.is_empty() {
                break;
            }
            let leader = widest.leader;
            lanes.push(Lane { leader, partitions });
        }
        lanes
    }

    /// One lane a producer, dealt out evenly over the leaders; each writes to all partitions of its
    /// leader, so that many producers share them.
    pub fn shared_lanes(&self, producers: usize) -> Vec<Lane> {
        self.lanes(1).into_iter().cycle().take(producers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(ports: &[u16]) -> Topic {
        let leaders = ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        Topic {
            name: "t".to_owned(),
            id: Uuid::ZERO,
            leaders,
            produce_version: crate::payload::PRODUCE_VERSION,
        }
    }

    fn shares(topic: &Topic, connections: usize) -> Vec<(u16, Vec<i32>)> {
        let lanes = topic.lanes(connections).into_iter();
        lanes.map(|lane| (lane.leader.port(), lane.partitions)).collect()
    }

    #[test]
    fn one_lane_a_leader_and_more_where_leaders_are_few() {
        assert_eq!(shares(&topic(&[1, 2, 1, 2]), 2), [(1, vec![0, 2]), (2, vec![1, 3])]);
        assert_eq!(shares(&topic(&[1, 1, 1]), 2), [(1, vec![0, 1]), (1, vec![2])]);
        assert_eq!(shares(&topic(&[1]), 2), [(1, vec![0])]);
        assert_eq!(shares(&topic(&[1, 2, 3]), 2).len(), 3);
    }

    #[test]
    fn producers_share_the_partitions_of_their_leader() {
        let lanes = topic(&[1, 2, 1]).shared_lanes(3);
        let shares: Vec<_> =
            lanes.into_iter().map(|lane| (lane.leader.port(), lane.partitions)).collect();
        assert_eq!(shares, [(1, vec![0, 2]), (2, vec![1]), (1, vec![0, 2])]);
    }
}
