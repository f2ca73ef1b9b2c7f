//! A member by the KIP-848 protocol: it heartbeats, and the answers say what it shall have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::Uuid;
use wire::messages as m;
use wire::messages::consumer_group_heartbeat_request::TopicPartitions;

use super::{Group, REBALANCE_TIMEOUT_MS};
use crate::connection::Connection;
use crate::error::{Error, Result};

const HEARTBEAT_VERSION: i16 = 1;
const JOIN: i32 = 0;
const LEAVE: i32 = -1;

#[derive(Debug)]
pub struct Member {
    group: Group,
    connection: Connection,
    id: String,
    epoch: i32,
    owned: Vec<i32>,
    /// The broker does not know yet what is owned.
    untold: bool,
    /// What the broker wants between two heartbeats.
    pub interval: Duration,
}

/// What an answer changed. Whatever is given up is given up before the next heartbeat.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub given_up: Vec<i32>,
    pub got: Vec<i32>,
}

impl Change {
    pub fn is_none(&self) -> bool {
        self.given_up.is_empty() && self.got.is_empty()
    }

    fn between(owned: &[i32], target: &[i32]) -> Self {
        let without = |of: &[i32], other: &[i32]| {
            of.iter().copied().filter(|partition| !other.contains(partition)).collect()
        };
        Change { given_up: without(owned, target), got: without(target, owned) }
    }
}

impl Member {
    pub fn open(group: &Group) -> Result<Self> {
        Ok(Member {
            group: group.clone(),
            connection: Connection::open(group.coordinator)?,
            id: fresh_id(),
            epoch: JOIN,
            owned: Vec::new(),
            untold: true,
            interval: Duration::ZERO,
        })
    }

    pub fn identity(&self) -> (&str, i32) {
        (&self.id, self.epoch)
    }

    pub fn owned(&self) -> &[i32] {
        &self.owned
    }

    /// Joins by the first call, and takes what it is given. After a change the next heartbeat is
    /// due at once: it says so.
    pub fn heartbeat(&mut self) -> Result<Change> {
        let joins = self.epoch == JOIN;
        let owned = TopicPartitions {
            topic_id: self.group.topic.id,
            partitions: self.owned.clone().into(),
        };
        let owned = if self.owned.is_empty() { Vec::new() } else { vec![owned] };
        let request = m::ConsumerGroupHeartbeatRequest {
            rebalance_timeout_ms: if joins { REBALANCE_TIMEOUT_MS } else { -1 },
            subscribed_topic_names: joins
                .then(|| vec![self.group.topic.name.as_str().into()].into()),
            topic_partitions: self.untold.then(|| owned.into()),
            ..self.request(self.epoch)
        };
        let reply = self.connection.call(&request, HEARTBEAT_VERSION)?;
        let answer: m::ConsumerGroupHeartbeatResponse<'_> = reply.decode()?;
        Error::check(|| format!("heartbeat of {}", self.group.name), answer.error_code)?;
        self.epoch = answer.member_epoch;
        self.interval =
            Duration::from_millis(answer.heartbeat_interval_ms.max(1).unsigned_abs().into());
        self.untold = false;
        let Some(assignment) = &answer.assignment else { return Ok(Change::default()) };
        let topics = assignment.topic_partitions.iter();
        let target: Vec<i32> = topics.flat_map(|topic| topic.partitions.to_vec()).collect();
        let change = Change::between(&self.owned, &target);
        self.owned = target;
        self.untold = !change.is_none();
        Ok(change)
    }

    pub fn leave(&mut self) -> Result<()> {
        let reply = self.connection.call(&self.request(LEAVE), HEARTBEAT_VERSION)?;
        let answer: m::ConsumerGroupHeartbeatResponse<'_> = reply.decode()?;
        Error::check(|| format!("leave {}", self.group.name), answer.error_code)
    }

    fn request(&self, epoch: i32) -> m::ConsumerGroupHeartbeatRequest<'static> {
        m::ConsumerGroupHeartbeatRequest {
            group_id: self.group.name.clone().into(),
            member_id: self.id.clone().into(),
            member_epoch: epoch,
            ..m::ConsumerGroupHeartbeatRequest::default()
        }
    }
}

/// Unlike any other of this run, which is all that a broker can tell.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Uuid::from_halves(u64::from(std::process::id()), number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_what_goes_and_what_comes() {
        let change = Change::between(&[1, 2, 3], &[3, 4]);
        assert_eq!(change, Change { given_up: vec![1, 2], got: vec![4] });
        assert!(Change::between(&[1, 2], &[2, 1]).is_none());
    }
}
