//! Taking over topics that another broker wrote, while no shard runs: the broker's side of
//! `corelane import`.
//!
//! Owns: the recovery of a brought-in partition, so that it is one of ours in every file, and the
//! one commit to the metadata log that makes the topics exist. Where folders come from and how they
//! are put in place is the command's business.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use log::checkpoints::{self, CLEANER_POINTS, GIVEN_UP, LOG_START_OFFSETS, RECOVERY_POINTS};
use log::inspect::OWN_CHECKPOINT;
use log::{Log, LogConfig, LogShared, OpenHint, SharedOptions};
use meta::config::{BrokerConfig, StaticConfig};
use meta::controller::{AdoptTopic, Controller};
use meta::{Delta, Image, MetadataRecord, NodeId};
use reactor::fs;
use wire::Uuid;

use crate::BrokerError;
use crate::metadata_log::{DIR_NAME, MetadataLog};

/// Shards that partitions are spread over if the broker has never run: at its start they move to
/// shard number modulo shards.
const SHARDS_UNKNOWN: u16 = 256;

/// A partition after its recovery.
#[derive(Clone, Copy, Debug)]
pub struct Adopted {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// Bytes at the end that were no whole batch.
    pub truncated_bytes: u64,
    /// The latest leader epoch of its records, -1 for none.
    pub leader_epoch: i32,
}

/// Reads a partition's folder whole, as after a crash, and leaves it cleanly closed.
///
/// # Errors
/// Something else than its end is damaged: nothing is cut off then.
pub async fn recover_partition(
    dir: &Path,
    (first_base, log_start): (i64, i64),
    topic_id: Uuid,
) -> Result<Adopted, BrokerError> {
    let in_dir = |source| BrokerError::DataDir { dir: dir.to_path_buf(), source };
    let shared = LogShared::new(SharedOptions::default());
    // Holes are what compaction leaves; nothing is removed here, whatever its age.
    let config =
        LogConfig { compact: true, delete: false, retention_ms: -1, ..LogConfig::default() };
    forget_positions(dir, (first_base, log_start)).await.map_err(in_dir)?;
    // Up to the first segment there is nothing to be read, but maybe a snapshot of producers.
    let hint = OpenHint {
        recovery_point: first_base,
        log_start_offset: log_start,
        whole: true,
        expected: true,
        ..OpenHint::default()
    };
    let now_ms = reactor::wall_clock_ms();
    let (log, recovered) = Log::open(&shared, dir.to_path_buf(), config, hint, now_ms).await?;
    let leader_epoch = log.latest_epoch().map_or(-1, |latest| latest.epoch);
    let closed = log.close().await?;
    if checkpoints::read_partition_metadata(dir).await.ok().flatten() != Some(topic_id) {
        checkpoints::write_partition_metadata(dir, topic_id).await.map_err(in_dir)?;
    }
    fs::sync_dir(dir).await.map_err(in_dir)?;
    Ok(Adopted {
        log_start_offset: closed.log_start_offset,
        log_end_offset: closed.log_end_offset,
        truncated_bytes: recovered.truncated_bytes,
        leader_epoch,
    })
}

/// Where a broker stood, ours too, says nothing of the files as they are now. Only the start of the
/// log is kept, in the folder itself: this may be cut off and done again.
async fn forget_positions(dir: &Path, (first_base, log_start): (i64, i64)) -> std::io::Result<()> {
    let mut stale = vec![OWN_CHECKPOINT, RECOVERY_POINTS, CLEANER_POINTS, GIVEN_UP];
    if log_start > first_base {
        checkpoints::write_own_log_start(dir, log_start).await?;
    } else {
        stale.push(LOG_START_OFFSETS);
    }
    for name in stale {
        match fs::remove_file(&dir.join(name)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::sync_dir(dir).await
}

/// The metadata of a broker that does not run.
pub struct Metadata {
    log: MetadataLog,
    image: RefCell<Image>,
    broker_id: i32,
}

impl Metadata {
    /// The directories are locked by the caller.
    pub async fn open(
        data_dirs: &[PathBuf],
        cluster_id: &str,
        broker_id: i32,
    ) -> Result<Self, BrokerError> {
        let dir = metadata_dir(data_dirs).await?;
        let shared = LogShared::new(SharedOptions::default());
        let now_ms = reactor::wall_clock_ms();
        let (log, image) = MetadataLog::open(&shared, dir, cluster_id, now_ms).await?;
        Ok(Metadata { log, image: RefCell::new(image), broker_id })
    }

    pub fn has_topic(&self, id: Uuid) -> bool {
        self.image.borrow().topic_by_id(id).is_some()
    }

    /// The node that gets the `n`th partition of those that are brought in.
    pub fn node(&self, n: usize) -> NodeId {
        let image = self.image.borrow();
        let shards = image.nodes().filter(|node| node.id.broker() == self.broker_id).count();
        let shards = u16::try_from(shards).ok().filter(|n| *n > 0).unwrap_or(SHARDS_UNKNOWN);
        NodeId::of(self.broker_id, (n % usize::from(shards)) as u16)
    }

    /// The records that make the topics; the reason if one of them cannot be. Topics without an id
    /// get one.
    pub fn plan(&self, topics: &[AdoptTopic]) -> Result<(Vec<Uuid>, Vec<MetadataRecord>), String> {
        let (config, fixed) = (BrokerConfig::default(), StaticConfig::default());
        let mut image = self.image.borrow().clone();
        let (mut ids, mut all) = (Vec::new(), Vec::new());
        for topic in topics {
            let controller = Controller {
                image: &image,
                config: &config,
                fixed: &fixed,
                node: NodeId::of(self.broker_id, 0),
            };
            let adopted = controller.adopt_topic(topic, &mut reactor::random_u64);
            let (id, records) =
                adopted.map_err(|failure| format!("{}: {}", topic.name, failure.message))?;
            for record in &records {
                image.apply(record).map_err(|error| error.to_string())?;
            }
            ids.push(id);
            all.extend(records);
        }
        Ok((ids, all))
    }

    /// From here on the topics exist: all of them or none.
    pub async fn commit(&self, records: &[MetadataRecord]) -> Result<(), BrokerError> {
        let base_offset = self.log.commit(records, reactor::wall_clock_ms()).await?;
        let delta = Delta { base_offset, records: records.to_vec().into() };
        self.image.borrow_mut().apply_delta(&delta)?;
        Ok(())
    }

    pub async fn close(self) -> Result<(), BrokerError> {
        self.log.close().await.map(drop)
    }
}

/// The directory with the metadata log, or that gets one because nothing is there yet.
async fn metadata_dir(data_dirs: &[PathBuf]) -> Result<&PathBuf, BrokerError> {
    let (mut holders, mut partition) = (Vec::new(), None);
    for dir in data_dirs {
        let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
        for entry in fs::read_dir(dir).await.map_err(in_dir)? {
            if entry.name == DIR_NAME {
                holders.push(dir);
            } else if log::parse_partition_dir_name(&entry.name).is_some() {
                partition = Some(entry.name);
            }
        }
    }
    let refused = |reason| Err(BrokerError::DataDirs(reason));
    match (holders.as_slice(), data_dirs.first(), partition) {
        ([holder], _, _) => Ok(holder),
        ([one, other, ..], _, _) => refused(format!(
            "{DIR_NAME} is in {} and in {}; move the wrong one away",
            one.display(),
            other.display()
        )),
        ([], _, Some(partition)) => refused(format!(
            "there are partitions ({partition}), but no {DIR_NAME}; name the directory that holds \
             it with --data-dir as well"
        )),
        ([], Some(first), None) => Ok(first),
        ([], None, None) => refused("no data directory is named".to_owned()),
    }
}
