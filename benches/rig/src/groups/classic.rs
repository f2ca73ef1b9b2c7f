//! A member by the classic protocol with an eager range assignor: every rebalance, it gives up all
//! that it has, joins again, and the leader deals out the partitions.

use wire::messages as m;
use wire::messages::join_group_request::JoinGroupRequestProtocol;
use wire::messages::leave_group_request::MemberIdentity;
use wire::messages::sync_group_request::SyncGroupRequestAssignment;
use wire::{ErrorCode, Message, Reader, Writer};

use super::{Group, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS};
use crate::cluster::Topic;
use crate::connection::Connection;
use crate::error::{Error, Result};

const JOIN_VERSION: i16 = 9;
const SYNC_VERSION: i16 = 5;
const HEARTBEAT_VERSION: i16 = 4;
const LEAVE_VERSION: i16 = 5;
const PROTOCOL_TYPE: &str = "consumer";
const ASSIGNOR: &str = "range";
/// Of the subscription's and the assignment's own layout.
const EMBEDDED_VERSION: i16 = 3;

#[derive(Debug)]
pub struct Member {
    group: Group,
    connection: Connection,
    id: String,
    generation: i32,
}

/// What a heartbeat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    Stable,
    /// To be joined again.
    Rebalance,
}

impl Member {
    pub fn open(group: &Group) -> Result<Self> {
        let connection = Connection::open(group.coordinator)?;
        Ok(Member { group: group.clone(), connection, id: String::new(), generation: -1 })
    }

    pub fn identity(&self) -> (&str, i32) {
        (&self.id, self.generation)
    }

    /// Joins, or joins again, until a generation stands; gives the partitions.
    pub fn join(&mut self) -> Result<Vec<i32>> {
        loop {
            let assignments = self.join_once()?;
            if let Some(partitions) = self.sync(&assignments)? {
                return Ok(partitions);
            }
        }
    }

    /// The assignment of everyone, if this member leads; else nothing.
    fn join_once(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let metadata = subscription(&self.group.topic.name)?;
        loop {
            let protocol =
                JoinGroupRequestProtocol { name: ASSIGNOR.into(), metadata: metadata[..].into() };
            let request = m::JoinGroupRequest {
                group_id: self.group.name.as_str().into(),
                session_timeout_ms: SESSION_TIMEOUT_MS,
                rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
                member_id: self.id.as_str().into(),
                protocol_type: PROTOCOL_TYPE.into(),
                protocols: vec![protocol].into(),
                ..m::JoinGroupRequest::default()
            };
            let reply = self.connection.call(&request, JOIN_VERSION)?;
            let answer: m::JoinGroupResponse<'_> = reply.decode()?;
            match ErrorCode::from_code(answer.error_code) {
                Some(ErrorCode::MemberIdRequired) => self.id = answer.member_id.to_string(),
                // The group moved on while the answer was on its way.
                Some(ErrorCode::RebalanceInProgress) => {}
                _ => {
                    Error::check(|| format!("join {}", self.group.name), answer.error_code)?;
                    self.id = answer.member_id.to_string();
                    self.generation = answer.generation_id;
                    let members = answer.members.iter().map(|member| member.member_id.to_string());
                    return deal(&self.group.topic, members.collect());
                }
            }
        }
    }

    /// The member's partitions; `None` if a further rebalance has begun.
    fn sync(&mut self, assignments: &[(String, Vec<u8>)]) -> Result<Option<Vec<i32>>> {
        let assignments = assignments.iter().map(|(member, bytes)| SyncGroupRequestAssignment {
            member_id: member.as_str().into(),
            assignment: bytes[..].into(),
        });
        let request = m::SyncGroupRequest {
            group_id: self.group.name.as_str().into(),
            generation_id: self.generation,
            member_id: self.id.as_str().into(),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(ASSIGNOR.into()),
            assignments: assignments.collect(),
            ..m::SyncGroupRequest::default()
        };
        let reply = self.connection.call(&request, SYNC_VERSION)?;
        let answer: m::SyncGroupResponse<'_> = reply.decode()?;
        if answer.error_code == ErrorCode::RebalanceInProgress.code() {
            return Ok(None);
        }
        Error::check(|| format!("sync {}", self.group.name), answer.error_code)?;
        partitions(&answer.assignment).map(Some)
    }

    pub fn heartbeat(&mut self) -> Result<Beat> {
        let request = m::HeartbeatRequest {
            group_id: self.group.name.as_str().into(),
            generation_id: self.generation,
            member_id: self.id.as_str().into(),
            ..m::HeartbeatRequest::default()
        };
        let reply = self.connection.call(&request, HEARTBEAT_VERSION)?;
        let answer: m::HeartbeatResponse = reply.decode()?;
        if answer.error_code == ErrorCode::RebalanceInProgress.code() {
            return Ok(Beat::Rebalance);
        }
        Error::check(|| format!("heartbeat of {}", self.group.name), answer.error_code)?;
        Ok(Beat::Stable)
    }

    pub fn leave(&mut self) -> Result<()> {
        let member =
            MemberIdentity { member_id: self.id.as_str().into(), ..MemberIdentity::default() };
        let request = m::LeaveGroupRequest {
            group_id: self.group.name.as_str().into(),
            members: vec![member].into(),
            ..m::LeaveGroupRequest::default()
        };
        let reply = self.connection.call(&request, LEAVE_VERSION)?;
        let answer: m::LeaveGroupResponse<'_> = reply.decode()?;
        Error::check(|| format!("leave {}", self.group.name), answer.error_code)
    }
}

/// Every member's run of partitions, as Kafka's range assignor deals one topic.
fn deal(topic: &Topic, mut members: Vec<String>) -> Result<Vec<(String, Vec<u8>)>> {
    members.sort_unstable();
    let count = topic.leaders.len();
    let (each, more) = (count / members.len().max(1), count % members.len().max(1));
    let mut next = 0;
    let mut dealt = Vec::with_capacity(members.len());
    for (place, member) in members.into_iter().enumerate() {
        let end = next + each + usize::from(place < more);
        let partitions = (next..end).filter_map(|index| i32::try_from(index).ok()).collect();
        dealt.push((member, assignment(&topic.name, partitions)?));
        next = end;
    }
    Ok(dealt)
}

fn subscription(topic: &str) -> Result<Vec<u8>> {
    let subscription = m::ConsumerProtocolSubscription {
        topics: vec![topic.into()].into(),
        ..m::ConsumerProtocolSubscription::default()
    };
    embedded(&subscription)
}

fn assignment(topic: &str, partitions: Vec<i32>) -> Result<Vec<u8>> {
    let assigned = m::consumer_protocol_assignment::TopicPartition {
        topic: topic.into(),
        partitions: partitions.into(),
    };
    let assignment = m::ConsumerProtocolAssignment {
        assigned_partitions: vec![assigned].into(),
        ..m::ConsumerProtocolAssignment::default()
    };
    embedded(&assignment)
}

fn embedded<'a>(message: &impl Message<'a>) -> Result<Vec<u8>> {
    let mut writer = Writer::new();
    writer.i16(EMBEDDED_VERSION);
    message.encode(&mut writer, EMBEDDED_VERSION)?;
    Ok(writer.finish().bytes.to_vec())
}

fn partitions(assignment: &[u8]) -> Result<Vec<i32>> {
    let mut reader = Reader::new(assignment);
    let version = reader.i16()?;
    let read = m::ConsumerProtocolAssignment::decode(&mut reader, version)?;
    Ok(read.assigned_partitions.iter().flat_map(|topic| topic.partitions.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn assignments_read_back() {
        assert_eq!(partitions(&assignment("t", vec![3, 1]).unwrap()).unwrap(), [3, 1]);
        assert!(partitions(&[0]).is_err());
    }

    #[test]
    fn the_leader_deals_every_partition_once() {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let topic = Topic {
            name: "t".to_owned(),
            id: wire::Uuid::ZERO,
            leaders: vec![at; 7],
            produce_version: crate::payload::PRODUCE_VERSION,
        };
        let dealt = deal(&topic, ["c", "a", "b"].map(str::to_owned).to_vec()).unwrap();
        let read =
            |(member, bytes): &(String, Vec<u8>)| (member.clone(), partitions(bytes).unwrap());
        let dealt: Vec<_> = dealt.iter().map(read).collect();
        let expected = [("a", vec![0, 1, 2]), ("b", vec![3, 4]), ("c", vec![5, 6])];
        assert_eq!(dealt, expected.map(|(member, partitions)| (member.to_owned(), partitions)));
    }
}
