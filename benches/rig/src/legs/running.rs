//! A broker while it runs, whoever made it, and topics on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;

use corelane_tests::Broker;

use super::{DELETED_AFTER, MEMORY, options};
use crate::cluster::{self, Topic};
use crate::consume;
use crate::contender::Contender;
use crate::error::Result;
use crate::peers::{Peers, Server};

/// A broker while it runs.
pub enum Running {
    Broker(Broker),
    Peer(Server),
}

impl Running {
    /// On an empty folder; with as many shards as there are cores unless it says otherwise.
    pub fn start(who: Contender, peers: &Peers, shards: Option<u16>) -> Result<Self> {
        let Some(target) = who.target() else { return Ok(Running::Peer(peers.start(who)?)) };
        let mut options = options(target, MEMORY);
        options.shards = shards.unwrap_or(options.shards);
        for (key, value) in who.settings() {
            options = options.with(key, value);
        }
        Ok(Running::Broker(Broker::start_new(options)?))
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Running::Broker(broker) => broker.address(),
            Running::Peer(server) => server.address(),
        }
    }

    pub fn pid(&self) -> Result<u32> {
        match self {
            Running::Broker(broker) => super::pid(broker),
            Running::Peer(server) => Ok(server.pid()),
        }
    }

    /// On the file system of its data.
    pub fn folder(&self) -> PathBuf {
        match self {
            Running::Broker(broker) => {
                let data = broker.data_dir();
                data.parent().map_or(data.clone(), Path::to_path_buf)
            }
            Running::Peer(server) => server.folder().to_path_buf(),
        }
    }

    pub fn log_tail(&self) -> String {
        match self {
            Running::Broker(broker) => broker.log_tail(),
            Running::Peer(server) => server.log_tail(),
        }
    }

    /// A topic of a broker that speaks Kafka's protocol.
    pub fn create(&self, name: &str, partitions: i32) -> Result<Topic> {
        let mut topic = cluster::create(self.address(), name, partitions, &[])?;
        if let Running::Peer(server) = self {
            topic.produce_version = server.produce_version();
        }
        consume::await_readable(&topic)?;
        Ok(topic)
    }

    pub fn delete(&self, topic: &Topic) -> Result<()> {
        cluster::delete(self.address(), topic)?;
        thread::sleep(DELETED_AFTER);
        Ok(())
    }
}
