//! What is in the data directories: a survey at start, Kafka's checkpoint files while running.
//!
//! Runs on shard 0, before the shards open their partitions and after they have closed them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use log::checkpoints::{self, CLEANER_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS};
use meta::Image;
use reactor::sync::Semaphore;
use reactor::{Class, fs, timeout, timeout_at};
use tracing::{info, warn};
use wire::Uuid;

use crate::BrokerError;
use crate::data_dirs::identity::META_PROPERTIES;
use crate::data_dirs::made::{self, Made};
use crate::data_dirs::offsets::{self, Offsets};
use crate::data_dirs::{DataDirs, DirState};
use crate::mesh::{CheckpointEntry, FoundLog};
use crate::metadata_log;
use crate::shard::Shard;

/// The broker epoch of a single node; a clean-shutdown marker carries it.
const BROKER_EPOCH: i64 = 1;

/// Partition directories by name, with what is known of each.
pub type Found = BTreeMap<String, FoundLog>;

const STRAY_SUFFIX: &str = "-stray";
/// Checkpoint files that take longer are left to themselves.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// A directory that has not been looked through by then has failed.
const SURVEY_WAIT: Duration = Duration::from_secs(120);

/// What one data directory holds.
pub(crate) struct DirSurvey {
    pub number: usize,
    /// It was closed cleanly.
    pub clean: bool,
    /// Partition directories by name.
    pub logs: Vec<(String, FoundLog)>,
    /// Directory names of partitions that a clean shutdown left here with something in them; not
    /// known after a crash.
    pub written: BTreeSet<String>,
    /// Copies that were being made by a move: the partition's directory name, and their own.
    pub futures: Vec<(String, String)>,
    /// Partitions that have had a folder here.
    pub made: Made,
    /// How far partitions have gone here.
    pub offsets: Offsets,
    /// Folders that were set aside because they belonged to no topic.
    pub strays: Vec<String>,
}

/// Looks through the data directories, side by side: which partitions are there, and were they
/// closed cleanly. A directory that cannot be looked through has failed. What was being deleted
/// when the last process ended is deleted now.
pub(crate) async fn survey(dirs: &DataDirs) -> Vec<DirSurvey> {
    let looks: Vec<_> = dirs
        .usable()
        .filter_map(|number| Some((number, dirs.path(number)?.to_owned())))
        .map(|(number, path)| {
            let look = async move { survey_dir(&path, number).await };
            (number, reactor::spawn(timeout(SURVEY_WAIT, look)))
        })
        .collect();
    let mut surveys = Vec::with_capacity(looks.len());
    for (number, look) in looks {
        let reason = match look.await {
            Ok(Ok(survey)) => {
                surveys.push(survey);
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it has not answered for {} s", SURVEY_WAIT.as_secs()),
        };
        dirs.fail(number, &reason);
    }
    surveys
}

/// Looks through one data directory.
pub(crate) async fn survey_dir(data_dir: &Path, number: usize) -> io::Result<DirSurvey> {
    let clean = checkpoints::take_clean_shutdown(data_dir).await?;
    // A process that died may have made partition directories whose names a power cut would still
    // take; from here on what is found is there for good.
    fs::sync_dir(data_dir).await?;
    let (recovery_points, log_starts, cleaner_points) = match clean {
        true => (
            kafkas(data_dir, RECOVERY_POINTS).await,
            kafkas(data_dir, LOG_START_OFFSETS).await,
            kafkas(data_dir, CLEANER_POINTS).await,
        ),
        // After a crash a line may be of a deleted topic whose name is in use again. What a
        // log must not lose is in its own folder as well.
        // (`corelane.offsets` goes by the topic's id.)
        false => Default::default(),
    };
    let written = recovery_points.iter().filter(|(_, point)| **point > 0);
    let written = written.map(|((topic, index), _)| log::partition_dir_name(topic, *index));
    let mut survey = DirSurvey {
        number,
        clean,
        logs: Vec::new(),
        written: written.collect(),
        futures: Vec::new(),
        made: Made::default(),
        offsets: offsets::read(data_dir).await?,
        strays: Vec::new(),
    };
    let mut deleted = Vec::new();
    let mut made_files = Vec::new();
    for entry in fs::read_dir(data_dir).await? {
        if !entry.is_dir || entry.name == metadata_log::DIR_NAME {
            if !entry.is_dir && made::is_file(&entry.name) {
                made_files.push(entry.name);
            }
            continue;
        }
        if log::is_deleted_dir_name(&entry.name) {
            deleted.push(data_dir.join(&entry.name));
            continue;
        }
        if let Some(partition) = log::parse_future_dir_name(&entry.name) {
            survey.futures.push((partition.to_owned(), entry.name));
            continue;
        }
        if entry.name.ends_with(STRAY_SUFFIX) {
            survey.strays.push(entry.name);
            continue;
        }
        let Some(key) = log::parse_partition_dir_name(&entry.name) else { continue };
        let log = FoundLog {
            dir_number: number,
            clean,
            recovery_point: recovery_points.get(&key).copied().unwrap_or(0),
            log_start_offset: log_starts.get(&key).copied().unwrap_or(0),
            cleaner_point: cleaner_points.get(&key).copied(),
            ..FoundLog::UNKNOWN
        };
        survey.logs.push((entry.name, log));
        reactor::yield_if_due().await;
    }
    survey.made = Made::read(data_dir, made_files).await?;
    remove_later(deleted);
    Ok(survey)
}

/// The data directory that holds the metadata log: where it is already, in whatever order the
/// directories are named; on a first start the first of them. To begin a new log beside partitions
/// would set every one of them aside.
pub(crate) async fn metadata_dir(
    dirs: &DataDirs,
    surveys: &[DirSurvey],
) -> Result<usize, BrokerError> {
    let mut holders = Vec::new();
    for number in dirs.usable() {
        let Some(dir) = dirs.path(number) else { continue };
        let in_dir = |source| BrokerError::DataDir { dir: dir.to_owned(), source };
        if fs::exists(&dir.join(metadata_log::DIR_NAME)).await.map_err(in_dir)? {
            holders.push((number, dir));
        }
    }
    let refused = |reason| Err(BrokerError::DataDirs(reason));
    let failed: Vec<String> = (0..dirs.len())
        .filter_map(|number| match (dirs.state(number), dirs.path(number)) {
            (DirState::Failed(reason), Some(path)) => {
                Some(format!("{} ({reason})", path.display()))
            }
            _ => None,
        })
        .collect();
    let first_partition = surveys.iter().flat_map(|survey| &survey.logs).next();
    match (holders.as_slice(), dirs.usable().next(), first_partition) {
        ([(number, _)], _, _) => Ok(*number),
        ([(_, one), (_, other), ..], _, _) => refused(format!(
            "{} is in {} and in {}; move the wrong one away",
            metadata_log::DIR_NAME,
            one.display(),
            other.display()
        )),
        ([], _, _) if !failed.is_empty() => refused(format!(
            "no data directory that can be used holds {}; it may be in one that cannot: {}; make \
             that directory usable, or bring its {} into another one",
            metadata_log::DIR_NAME,
            failed.join(", "),
            metadata_log::DIR_NAME,
        )),
        ([], _, Some((partition, _))) => refused(format!(
            "there are partitions ({partition}), but no {}; name the directory that holds it with \
             --data-dir as well",
            metadata_log::DIR_NAME
        )),
        ([], Some(first), None) => Ok(first),
        ([], None, None) => refused("no data directory is configured".to_owned()),
    }
}

/// The lines of one checkpoint file; a damaged one only costs a longer recovery.
async fn kafkas(data_dir: &Path, file: &str) -> HashMap<(String, i32), i64> {
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

/// Removes folders in the background, one after the other.
pub(crate) fn remove_later(dirs: Vec<PathBuf>) {
    if dirs.is_empty() {
        return;
    }
    reactor::spawn_in(Class::Background, async move {
        for dir in dirs {
            if let Err(error) = fs::remove_dir_all(&dir).await {
                warn!("could not remove {}: {error}", dir.display());
            }
        }
    })
    .detach();
}

pub(crate) async fn set_aside(dir: &Path) -> std::io::Result<PathBuf> {
    let name = dir.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let aside = dir.with_file_name(format!("{name}.{:016x}{STRAY_SUFFIX}", reactor::random_u64()));
    fs::rename(dir, &aside).await?;
    Ok(aside)
}

/// Whether the image has no such partition.
pub(crate) fn is_unknown(name: &str, image: &Image) -> bool {
    let Some((topic, partition)) = log::parse_partition_dir_name(name) else { return true };
    image.partition(&topic, partition).is_none()
}

/// Whether a partition's directory belongs to no topic of the image, or to an earlier topic of the
/// same name, so that a new topic cannot take it for its own.
pub(crate) async fn is_stray(dir: &Path, name: &str, image: &Image) -> bool {
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

/// Writes the four checkpoint files of a data directory, each even if another fails.
///
/// # Errors
/// The first that was not written, and why.
async fn write_checkpoints(
    data_dir: &Path,
    entries: &[CheckpointEntry],
) -> Result<(), (&'static str, io::Error)> {
    type Pick = fn(&CheckpointEntry) -> Option<i64>;
    let files: [(&str, Pick); 4] = [
        (RECOVERY_POINTS, |entry| Some(entry.recovery_point)),
        (LOG_START_OFFSETS, |entry| Some(entry.log_start_offset)),
        (HIGH_WATERMARKS, |entry| Some(entry.high_watermark)),
        (CLEANER_POINTS, |entry| entry.cleaner_point),
    ];
    let mut all = Ok(());
    for (file, pick) in files {
        let lines = entries
            .iter()
            .filter_map(|entry| Some((entry.topic.as_str(), entry.partition, pick(entry)?)));
        let written = checkpoints::write_offsets(data_dir, file, lines).await;
        all = all.and(written.map_err(|error| (file, error)));
    }
    all
}

/// Leaves the marker that nothing has to be recovered next time.
pub(crate) async fn mark_clean(dirs: &DataDirs) {
    for data_dir in dirs.usable().filter_map(|number| dirs.path(number)) {
        if let Err(error) = checkpoints::write_clean_shutdown(data_dir, BROKER_EPOCH).await {
            warn!("could not mark {} as clean: {error}", data_dir.display());
        }
    }
}

/// The last checkpoint lines of every shard.
pub(crate) struct Checkpoints {
    by_shard: RefCell<BTreeMap<usize, Vec<CheckpointEntry>>>,
    /// The files lack something.
    changed: Cell<bool>,
    of_dirs: RefCell<Vec<Rc<OfDir>>>,
}

/// How writing in one directory goes, until that fails: what hung then may hang for ever, and is no
/// reason not to write on the disk that came back.
struct OfDir {
    /// How often the directory had failed when this began.
    failures: u64,
    /// One writer at a time in a directory: the newest lines must not be overtaken by older ones.
    writing: Semaphore,
    /// A write hangs. It still has the files, and nobody else may touch them.
    hangs: Cell<bool>,
    /// That it fails was said.
    fails: Cell<bool>,
}

impl OfDir {
    fn new(failures: u64, fails: bool) -> Rc<Self> {
        Rc::new(OfDir {
            failures,
            writing: Semaphore::new(1),
            hangs: Cell::new(false),
            fails: Cell::new(fails),
        })
    }

    /// Says that a directory's files cannot be written, once, and when they are again.
    fn tell(&self, path: &Path, written: Result<(), String>) {
        let failed_before = self.fails.replace(written.is_err());
        match written {
            Err(error) if !failed_before => {
                warn!("no checkpoints written in {} from now on: {error}", path.display());
            }
            Ok(()) if failed_before => info!("checkpoints are written in {} again", path.display()),
            Ok(()) | Err(_) => {}
        }
    }
}

impl Checkpoints {
    pub fn new(data_dirs: usize) -> Self {
        let of_dirs = (0..data_dirs).map(|_| OfDir::new(0, false)).collect();
        let of_dirs = RefCell::new(of_dirs);
        Checkpoints { by_shard: RefCell::default(), changed: Cell::new(true), of_dirs }
    }

    /// Of a directory that has failed since, a new one.
    fn of_dir(&self, number: usize, failures: u64) -> Option<Rc<OfDir>> {
        let mut of_dirs = self.of_dirs.borrow_mut();
        let of_dir = of_dirs.get_mut(number)?;
        if of_dir.failures != failures {
            *of_dir = OfDir::new(failures, of_dir.fails.get());
        }
        Some(Rc::clone(of_dir))
    }

    pub fn note(&self, shard: usize, entries: Vec<CheckpointEntry>) {
        self.by_shard.borrow_mut().insert(shard, entries);
        self.changed.set(true);
    }

    /// As [`write`](Self::write), if a shard had something new to say since.
    pub async fn write_if_changed(self: &Rc<Self>, shard: &Rc<Shard>) {
        if self.changed.replace(false) && !self.write(shard).await {
            self.changed.set(true);
        }
    }

    /// Writes the files of every directory that can be used, side by side. Returns whether all are
    /// written; one that hangs is left to itself, and to the write that hangs until that has ended.
    pub async fn write(self: &Rc<Self>, shard: &Rc<Shard>) -> bool {
        let mut tasks = Vec::new();
        let mut written = true;
        for number in shard.dirs.usable() {
            let Some(path) = shard.dirs.path(number) else { continue };
            let Some(of_dir) = self.of_dir(number, shard.dirs.failures(number)) else { continue };
            if of_dir.hangs.get() {
                written = false;
                continue;
            }
            let (checkpoints, shard, its) = (self.clone(), shard.clone(), of_dir.clone());
            let task = reactor::spawn(async move {
                let written = checkpoints.write_in(&shard, number, &its).await;
                its.hangs.set(false);
                written
            });
            tasks.push((path, of_dir, task));
        }
        let give_up = reactor::now() + WRITE_WAIT;
        for (path, of_dir, mut task) in tasks {
            match timeout_at(give_up, &mut task).await {
                Ok(done) => written &= done,
                Err(_) => {
                    of_dir.hangs.set(true);
                    of_dir.tell(path, Err("it takes too long".to_owned()));
                    task.detach();
                    written = false;
                }
            }
        }
        written
    }

    async fn write_in(&self, shard: &Shard, number: usize, of_dir: &OfDir) -> bool {
        let Some(path) = shard.dirs.path(number) else { return false };
        let _alone = of_dir.writing.acquire(1).await;
        // Of another file system, as after a mount went away, nothing is said: a start would take it for
        // a directory that has lost what it is.
        if !fs::exists(&path.join(META_PROPERTIES)).await.unwrap_or(false) {
            of_dir.tell(path, Err(format!("it has no {META_PROPERTIES}")));
            return false;
        }
        let entries: Vec<CheckpointEntry> = {
            let by_shard = self.by_shard.borrow();
            let all = by_shard.values().flatten();
            all.filter(|entry| entry.dir_number == number).cloned().collect()
        };
        let kafkas = write_checkpoints(path, &entries).await;
        if shard.dirs.failures(number) != of_dir.failures {
            // It hung, and others may write here by now.
            return false;
        }
        let is_here = |(topic, index): &(Uuid, i32)| {
            let (home, image) = (shard.dirs.id(number), shard.image());
            let partition = image.topic_by_id(*topic).and_then(|topic| topic.partition(*index));
            let recorded = partition.and_then(|p| p.directory_on(shard.broker_id()));
            home.is_some() && recorded == home
        };
        let own = offsets::write(path, is_here, &entries).await;
        let all = kafkas.and(own.map_err(|error| (offsets::FILE, error)));
        let is_written = all.is_ok();
        of_dir.tell(path, all.map_err(|(file, error)| format!("{file}: {error}")));
        is_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_hangs_keeps_nobody_from_the_disk_that_came_back() {
        let checkpoints = Checkpoints::new(1);
        let of_dir = |failures| checkpoints.of_dir(0, failures).unwrap_or_else(|| panic!("none"));
        let hung = of_dir(0);
        hung.hangs.set(true);
        hung.fails.set(true);
        let turn = hung.writing.try_acquire(1);
        assert!(turn.is_some() && of_dir(0).hangs.get());
        let back = of_dir(1);
        assert!(!back.hangs.get() && back.writing.try_acquire(1).is_some());
        assert!(back.fails.get(), "that it is written again is told");
        assert!(Rc::ptr_eq(&back, &of_dir(1)));
    }
}
