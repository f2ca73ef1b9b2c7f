//! One shard of the broker: listener, connections, one file per API, and the wiring of the rooms
//! below (reactor, wire, log, meta, coord).
//!
//! A shard lives on one core and owns everything it touches; other shards are reached through the
//! mesh, with the messages of [`ShardMessage`] and nothing else. No file here names a socket, a
//! file or a clock of the operating system: that is the reactor's business.

#![forbid(unsafe_code)]

pub mod adopt;
mod answers;
mod api;
mod background;
mod boot;
mod changes;
mod cleaner;
mod connection;
mod control;
mod controller;
mod coordinators;
mod data_dirs;
mod disk;
mod errors;
mod fetch_session;
mod frame_reader;
mod groups;
mod listener;
mod markers;
mod mesh;
mod metadata_log;
mod metrics;
mod opening;
mod partition;
mod partitions;
mod pump;
mod recovery;
mod reply;
mod settings;
mod shard;
mod transactions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use meta::config::{BrokerConfig, StaticConfig};
use reactor::Mesh;

pub use api::{ApiSupport, api_table};
pub use boot::run;
pub use data_dirs::{DataDirStart, made, offsets, paths};
pub use mesh::{MESH_CAPACITY, ShardMessage};
pub use transactions::{Asked, ShardAsk};

/// Everything a shard is given when it starts.
pub struct ShardStart {
    /// This shard's number, from 0.
    pub shard: u16,
    /// Shards of this host.
    pub shards: u16,
    pub broker_id: i32,
    /// 22 characters of URL-safe base64.
    pub cluster_id: String,
    /// This shard's own address.
    pub listen: SocketAddr,
    /// Host and port that clients are told, of every shard in order.
    pub advertised: Vec<(String, u16)>,
    /// Formatted and locked by the process; some may have failed.
    pub data_dirs: Vec<DataDirStart>,
    pub config: Arc<BrokerConfig>,
    pub static_config: Arc<StaticConfig>,
    /// Memory for all shards together, in bytes.
    pub memory_bytes: usize,
    pub mesh: Mesh<ShardMessage>,
    /// Called on shard 0 when every shard serves.
    pub ready: Box<dyn FnOnce() + Send>,
}

/// Why a shard could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot listen on {address} for metrics: {source}; choose another --admin-port")]
    AdminListen { address: String, source: std::io::Error },
    #[error("data directory {dir}: {source}")]
    DataDir { dir: PathBuf, source: std::io::Error },
    #[error(
        "partition {name} is in two data directories, {first} and {second}: move the copy that is \
         not wanted elsewhere",
        first = first.display(), second = second.display()
    )]
    FoundTwice { name: String, first: PathBuf, second: PathBuf },
    /// They do not hold what they should, together.
    #[error("{0}")]
    DataDirs(String),
    #[error("metadata log: {0}")]
    MetadataLog(String),
    #[error("metadata: {0}")]
    Metadata(#[from] meta::MetaError),
    #[error(transparent)]
    Log(#[from] log::LogError),
    #[error(transparent)]
    Read(#[from] log::ReadError),
    #[error("cannot listen for SIGTERM and SIGINT: {0}")]
    Signals(std::io::Error),
    #[error("{0} partitions could not be closed")]
    NotClosed(usize),
    #[error("another shard of this process has ended")]
    MeshClosed,
}

impl BrokerError {
    /// Only the lack of space was in the way: the same may work later.
    pub(crate) fn is_out_of_space(&self) -> bool {
        match self {
            BrokerError::Log(log::LogError::Storage(error)) => log::is_out_of_space(&error.cause),
            BrokerError::DataDir { source, .. } => log::is_out_of_space(source),
            _ => false,
        }
    }
}
