//! What is in the data directories: a survey at start, Kafka's checkpoint files while running.
//!
//! Runs on shard 0, before the shards open their partitions and after they have closed them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use log::checkpoints::{self, CLEANER_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS};
use meta::Image;
use reactor::fs;
use reactor::sync::Semaphore;
use tracing::warn;
use wire::Uuid;

use crate::BrokerError;
use crate::mesh::{CheckpointEntry, FoundLog};
use crate::metadata_log;

/// The broker epoch of a single node; a clean-shutdown marker carries it.
const BROKER_EPOCH: i64 = 1;

/// Partition directories by name, with what is known of each.
pub(crate) type Found = BTreeMap<String, FoundLog>;

/// Looks through the data directories: which partitions are there, and were they closed cleanly.
/// What was being deleted when the last process ended is deleted now. The flag says whether every
/// directory was closed cleanly.
pub(crate) async fn survey(data_dirs: &[PathBuf]) -> Result<(Found, bool), BrokerError> {
    let mut found = Found::new();
    let mut all_clean = true;
    for (dir_number, data_dir) in data_dirs.iter().enumerate() {
        let in_dir = |source| BrokerError::DataDir { dir: data_dir.clone(), source };
        let clean = checkpoints::take_clean_shutdown(data_dir).await.map_err(in_dir)?;
        all_clean &= clean;
        // A process that died may have made partition directories whose names a power cut would still
        // take; from here on what is found is there for good.
        fs::sync_dir(data_dir).await.map_err(in_dir)?;
        let (recovery_points, log_starts, cleaner_points) = match clean {
            true => (
                offsets(data_dir, RECOVERY_POINTS).await,
                offsets(data_dir, LOG_START_OFFSETS).await,
                offsets(data_dir, CLEANER_POINTS).await,
            ),
            // After a crash a line may be of a deleted topic whose name is in use again. What a
            // log must not lose is in its own folder as well.
            false => Default::default(),
        };
        for entry in fs::read_dir(data_dir).await.map_err(in_dir)? {
            if !entry.is_dir || entry.name == metadata_log::DIR_NAME {
                continue;
            }
            if log::is_deleted_dir_name(&entry.name) {
                remove_later(data_dir.join(&entry.name));
                continue;
            }
            let Some(key) = log::parse_partition_dir_name(&entry.name) else { continue };
            let log = FoundLog {
                dir_number,
                clean,
                recovery_point: recovery_points.get(&key).copied().unwrap_or(0),
                log_start_offset: log_starts.get(&key).copied().unwrap_or(0),
                cleaner_point: cleaner_points.get(&key).copied(),
            };
            if let Some(other) = found.insert(entry.name.clone(), log) {
                let first = data_dirs.get(other.dir_number).cloned().unwrap_or_default();
                let second = data_dir.clone();
                return Err(BrokerError::FoundTwice { name: entry.name, first, second });
            }
        }
    }
    Ok((found, all_clean))
}

/// The data directory that holds the metadata log: where it is already, in whatever order the
/// directories are named; on a first start the first of them. To begin a new log beside partitions
/// would set every one of them aside.
pub(crate) async fn metadata_dir<'a>(
    data_dirs: &'a [PathBuf],
    found: &Found,
) -> Result<&'a PathBuf, BrokerError> {
    let mut holders = Vec::new();
    for dir in data_dirs {
        let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
        if fs::exists(&dir.join(metadata_log::DIR_NAME)).await.map_err(in_dir)? {
            holders.push(dir);
        }
    }
    let refused = |reason| Err(BrokerError::DataDirs(reason));
    match (holders.as_slice(), data_dirs.first(), found.keys().next()) {
        ([holder], _, _) => Ok(holder),
        ([one, other, ..], _, _) => refused(format!(
            "{} is in {} and in {}; move the wrong one away",
            metadata_log::DIR_NAME,
            one.display(),
            other.display()
        )),
        ([], _, Some(partition)) => refused(format!(
            "there are partitions ({partition}), but no {}; name the directory that holds it with \
             --data-dir as well",
            metadata_log::DIR_NAME
        )),
        ([], Some(first), None) => Ok(first),
        ([], None, None) => refused("no data directory is configured".to_owned()),
    }
}

/// Says which partitions begin empty: right after their topic was created, or because the directory
/// that holds them was not named.
pub(crate) fn warn_of_missing(found: &Found, image: &Image) {
    let names = image.topics().flat_map(|topic| {
        (0..topic.partitions.len()).map(move |index| format!("{}-{index}", topic.name))
    });
    let missing: Vec<String> = names.filter(|name| !found.contains_key(name)).collect();
    if let Some(first) = missing.first() {
        warn!(
            "{} partitions are in no data directory and begin empty, {first} the first; if a \
             directory was left out, stop now and name it with --data-dir",
            missing.len()
        );
    }
}

/// The lines of one checkpoint file; a damaged one only costs a longer recovery.
async fn offsets(data_dir: &Path, file: &str) -> HashMap<(String, i32), i64> {
    match checkpoints::read_offsets(data_dir, file).await {
        Ok(lines) => {
            lines.into_iter().map(|line| ((line.topic, line.partition), line.offset)).collect()
        }
        Err(error) => {
            warn!("{}: {error}; partitions are scanned from their start", data_dir.display());
            HashMap::new()
        }
    }
}

fn remove_later(dir: PathBuf) {
    reactor::spawn(async move {
        if let Err(error) = fs::remove_dir_all(&dir).await {
            warn!("could not remove {}: {error}", dir.display());
        }
    })
    .detach();
}

/// Sets aside what belongs to no topic of the image, or to an earlier topic of the same name, so
/// that a new topic cannot take it for its own.
pub(crate) async fn set_strays_aside(data_dirs: &[PathBuf], found: &mut Found, image: &Image) {
    let names: Vec<String> = found.keys().cloned().collect();
    for name in names {
        let Some(log) = found.get(&name).copied() else { continue };
        let Some(data_dir) = data_dirs.get(log.dir_number) else { continue };
        let dir = data_dir.join(&name);
        if !is_stray(&dir, &name, image).await {
            continue;
        }
        found.remove(&name);
        match set_aside(&dir).await {
            Ok(aside) => warn!("{name} belongs to no topic; set aside as {}", aside.display()),
            Err(error) => warn!("{name} belongs to no topic and could not be renamed: {error}"),
        }
    }
}

/// Sets aside what an earlier topic of the same name has left where a new partition is to be: its
/// folder stays if it was offline when its topic was deleted.
pub(crate) async fn set_foreign_aside(dir: &Path, topic_id: Uuid) -> std::io::Result<()> {
    match checkpoints::read_partition_metadata(dir).await {
        Ok(Some(id)) if id != topic_id => {
            let aside = set_aside(dir).await?;
            warn!("{} is of a deleted topic; set aside as {}", dir.display(), aside.display());
            Ok(())
        }
        // Nothing there, or nothing that says whose it is.
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn set_aside(dir: &Path) -> std::io::Result<PathBuf> {
    let name = dir.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let aside = dir.with_file_name(format!("{name}.{:016x}-stray", reactor::random_u64()));
    fs::rename(dir, &aside).await?;
    Ok(aside)
}

async fn is_stray(dir: &Path, name: &str, image: &Image) -> bool {
    let Some((topic, partition)) = log::parse_partition_dir_name(name) else { return true };
    let Some(topic) = image.topic_by_name(&topic) else { return true };
    if topic.partition(partition).is_none() {
        return true;
    }
    match checkpoints::read_partition_metadata(dir).await {
        Ok(Some(id)) => id != topic.id,
        // Created just before a crash, or damaged: the name is all there is to go by.
        Ok(None) | Err(_) => false,
    }
}

/// Writes the four checkpoint files of every data directory. Returns whether all are written.
async fn write_checkpoints(data_dirs: &[PathBuf], entries: &[CheckpointEntry]) -> bool {
    type Pick = fn(&CheckpointEntry) -> Option<i64>;
    let files: [(&str, Pick); 4] = [
        (RECOVERY_POINTS, |entry| Some(entry.recovery_point)),
        (LOG_START_OFFSETS, |entry| Some(entry.log_start_offset)),
        (HIGH_WATERMARKS, |entry| Some(entry.high_watermark)),
        (CLEANER_POINTS, |entry| entry.cleaner_point),
    ];
    let mut written = true;
    for (dir_number, data_dir) in data_dirs.iter().enumerate() {
        for (file, pick) in files {
            let lines = entries
                .iter()
                .filter(|entry| entry.dir_number == dir_number)
                .filter_map(|entry| Some((entry.topic.as_str(), entry.partition, pick(entry)?)));
            if let Err(error) = checkpoints::write_offsets(data_dir, file, lines).await {
                warn!("could not write {file} in {}: {error}", data_dir.display());
                written = false;
            }
        }
    }
    written
}

/// Leaves the marker that nothing has to be recovered next time.
pub(crate) async fn mark_clean(data_dirs: &[PathBuf]) {
    for data_dir in data_dirs {
        if let Err(error) = checkpoints::write_clean_shutdown(data_dir, BROKER_EPOCH).await {
            warn!("could not mark {} as clean: {error}", data_dir.display());
        }
    }
}

/// The last checkpoint lines of every shard.
pub(crate) struct Checkpoints {
    by_shard: RefCell<BTreeMap<usize, Vec<CheckpointEntry>>>,
    /// One writer at a time: the newest lines must not be overtaken by older ones.
    writing: Semaphore,
}

impl Checkpoints {
    pub fn new() -> Self {
        Checkpoints { by_shard: RefCell::default(), writing: Semaphore::new(1) }
    }

    pub fn note(&self, shard: usize, entries: Vec<CheckpointEntry>) {
        self.by_shard.borrow_mut().insert(shard, entries);
    }

    /// Returns whether all files are written.
    pub async fn write(&self, data_dirs: &[PathBuf]) -> bool {
        let _alone = self.writing.acquire(1).await;
        let entries: Vec<CheckpointEntry> =
            self.by_shard.borrow().values().flatten().cloned().collect();
        write_checkpoints(data_dirs, &entries).await
    }
}
