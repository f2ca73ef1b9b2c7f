//! The shards' threads. The broker room is not there yet: what is decided is refused.

use std::net::SocketAddr;

use crate::config::{Resolved, Settings};
use crate::error::{Error, Result};

/// Everything that is decided before the first shard runs.
pub struct Plan {
    pub broker_id: i32,
    pub cluster_id: String,
    /// Where each shard listens.
    pub addresses: Vec<SocketAddr>,
    pub resolved: Resolved,
    pub settings: Settings,
}

pub fn run(plan: Plan) -> Result<()> {
    let Plan { broker_id, cluster_id, addresses, resolved, settings } = plan;
    let pinned = settings.cpus.is_some();
    let keys = resolved.keys.iter().count();
    Err(Error::internal(format!(
        "broker {broker_id} of cluster {cluster_id} cannot serve {addresses:?} yet \
         (pinned {pinned}, spin {:?}, {keys} keys, {} partitions by default)",
        settings.spin, resolved.broker.num_partitions
    )))
}
