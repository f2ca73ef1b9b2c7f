//! Consumer groups as the rig plays them: light members that speak the protocol themselves, since a
//! hundred real consumers do not fit on a machine beside the broker they load.
//!
//! A member is a thread with one connection to its group's coordinator. It says what a real one
//! says and when (it heartbeats in the interval of its group, answers a rebalance at once, gives up
//! partitions before it says so), but for reading records: only `first_record` does.

pub mod board;
pub mod classic;
pub mod commits;
pub mod consumer;
pub mod crowd;
pub mod first_record;
pub mod idle;

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use crate::cluster::{self, Topic};
use crate::connection::Connection;
use crate::error::{Error, Result};

const CONFIGS_VERSION: i16 = 1;
/// Of FindCoordinator.
const GROUP_KEY: i8 = 0;
/// Of IncrementalAlterConfigs.
const GROUP_RESOURCE: i8 = 32;
const SET: i8 = 0;
const FOUND_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A consumer's default, max.poll.interval.ms: how long others wait for a member that rebalances.
const REBALANCE_TIMEOUT_MS: i32 = 300_000;
/// A consumer's default.
const SESSION_TIMEOUT_MS: i32 = 45_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Eager, the leader assigns.
    Classic,
    /// KIP-848, the broker assigns.
    Consumer,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Classic => "classic",
            Protocol::Consumer => "KIP-848",
        })
    }
}

/// A group, where it is coordinated, and what its members subscribe to.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub coordinator: SocketAddr,
    pub topic: Topic,
}

impl Group {
    /// Finds the coordinator, and waits until it is loaded. The first that is asked for has the
    /// broker make its internal topic.
    pub fn find(at: SocketAddr, name: &str, topic: &Topic) -> Result<Self> {
        let deadline = Instant::now() + FOUND_WITHIN;
        loop {
            match Self::find_loaded(at, name, topic) {
                Ok(group) => return Ok(group),
                Err(error) if Instant::now() > deadline => {
                    let what = format!("group {name} has no coordinator");
                    let last = error.to_string();
                    return Err(Error::TooLate { what, within: FOUND_WITHIN, last });
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn find_loaded(at: SocketAddr, name: &str, topic: &Topic) -> Result<Self> {
        let names = [name.to_owned()];
        let found = coordinators(at, &names)?;
        let coordinator = *found.first().ok_or_else(|| Error::NoLeader(name.to_owned()))?;
        for (_, offsets) in idle::committed(&mut Connection::open(coordinator)?, &names, topic)? {
            offsets?;
        }
        Ok(Group { name: name.to_owned(), coordinator, topic: topic.clone() })
    }
}

/// The coordinators of groups, in the order asked for; asks once.
pub fn coordinators(at: SocketAddr, groups: &[String]) -> Result<Vec<SocketAddr>> {
    cluster::coordinators(at, GROUP_KEY, groups)
}

/// How often members of one group heartbeat by the new protocol.
pub fn set_heartbeat_interval(at: SocketAddr, group: &str, interval: Duration) -> Result<()> {
    let config = AlterableConfig {
        name: "consumer.heartbeat.interval.ms".into(),
        config_operation: SET,
        value: Some(interval.as_millis().to_string().into()),
    };
    let resource = AlterConfigsResource {
        resource_type: GROUP_RESOURCE,
        resource_name: group.into(),
        configs: vec![config].into(),
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource].into(), validate_only: false };
    let reply = Connection::open(at)?.call(&request, CONFIGS_VERSION)?;
    let answer: IncrementalAlterConfigsResponse<'_> = reply.decode()?;
    for response in &answer.responses {
        Error::check(|| format!("settings of group {group}"), response.error_code)?;
    }
    Ok(())
}
