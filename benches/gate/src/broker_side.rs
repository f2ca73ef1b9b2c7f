//! A broker of one shard inside this process, on either backend of the reactor.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use broker::{BrokerError, DataDirStart, MESH_CAPACITY, ShardMessage, ShardStart};
use meta::config::{BrokerConfig, StaticConfig};
use reactor::Task;
use wire::Uuid;

use crate::error::Error;

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
const DIRECTORY_ID: Uuid = Uuid([1; 16]);
/// Tails must hold whatever a shape writes and reads again.
const MEMORY_BYTES: usize = 1 << 30;

/// Starts the broker as a task of the current executor; `ready` is set once it serves.
pub async fn start(
    listen: SocketAddr,
    dir: &Path,
    ready: Arc<AtomicBool>,
) -> Result<Task<Result<(), BrokerError>>, Error> {
    let properties =
        format!("cluster.id={CLUSTER_ID}\ndirectory.id={DIRECTORY_ID}\nnode.id=1\nversion=1\n");
    reactor::fs::create_dir_all(dir).await.map_err(Error::io("making the data directory"))?;
    reactor::fs::write_atomic(&dir.join("meta.properties"), properties.into_bytes())
        .await
        .map_err(Error::io("writing meta.properties"))?;
    let mut fixed = StaticConfig::default();
    fixed.set("admin.port", "0").map_err(|error| Error::Broker(error.to_string()))?;
    let config =
        BrokerConfig::from_static(&fixed).map_err(|error| Error::Broker(error.to_string()))?;
    let mesh = reactor::mesh::<ShardMessage>(1, MESH_CAPACITY).pop();
    let mesh = mesh.ok_or_else(|| Error::Broker("no mesh of one shard".to_owned()))?;
    let start = ShardStart {
        shard: 0,
        shards: 1,
        broker_id: 1,
        cluster_id: CLUSTER_ID.to_owned(),
        listen,
        advertised: vec![(listen.ip().to_string(), listen.port())],
        data_dirs: vec![DataDirStart {
            path: dir.to_path_buf(),
            id: Some(DIRECTORY_ID),
            failure: None,
        }],
        config: Arc::new(config),
        static_config: Arc::new(fixed),
        memory_bytes: MEMORY_BYTES,
        mesh,
        ready: Box::new(move || ready.store(true, Ordering::SeqCst)),
    };
    Ok(reactor::spawn(broker::run(start)))
}
