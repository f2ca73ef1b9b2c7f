//! At start: what was found in the directories against what the metadata says.
//!
//! The metadata log is the authority on where a partition is.
//!
//! | recorded directory | found | then |
//! |---|---|---|
//! | usable | there | served |
//! | usable | a finished copy of a move there | the copy gets the partition's name, and is served |
//! | usable | elsewhere only | somebody moved it by hand: recorded anew, with a warning |
//! | usable | there and elsewhere | the other is what a move left behind: removed if it says so, else set aside |
//! | failed | anywhere | offline; nothing is touched |
//! | not configured, all others work | elsewhere | as moved by hand |
//! | not configured | nowhere | offline; never begun empty |
//! | none (an older log) | somewhere | recorded |
//! | none (an older log) | nowhere | placed, unless a directory has failed: it may be there |
//! | usable | nowhere, and nothing says that it ever was | begun empty: a crash came before it was made |
//! | usable | nowhere, but it was there, or a directory has failed | offline, never begun empty |
//!
//! That a partition was there is known from what each shard wrote down when it made it (`made.rs`),
//! from a copy that could not take its place, and from the checkpoints that a clean shutdown
//! leaves. While the broker runs only a new partition begins empty
//! (`LocalPartitions::note_unmade`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use log::{checkpoints, partition_dir_name};
use meta::{Image, MetadataRecord};
use reactor::fs;
use tracing::{error, info, warn};
use wire::Uuid;

use super::placement::Placer;
use super::strays::Strays;
use super::{DataDirs, DirState, moves};
use crate::BrokerError;
use crate::disk::{self, DirSurvey, Found};
use crate::mesh::FoundLog;
use crate::metadata_log::MetadataLog;

/// What a start makes of the surveys.
pub(crate) struct Settled {
    /// What is served, by directory name.
    pub found: Found,
    /// What was somewhere and was not found, by directory name.
    pub lost: BTreeSet<String>,
    /// Where partitions are that the metadata did not say.
    pub records: Vec<MetadataRecord>,
}

/// # Errors
/// A partition is in two directories and nothing says which copy counts.
pub(crate) async fn at_start(
    dirs: &DataDirs,
    surveys: &[DirSurvey],
    image: &Image,
    log: &MetadataLog,
    broker_id: i32,
) -> Result<Settled, BrokerError> {
    let mut copies: BTreeMap<String, Vec<FoundLog>> = BTreeMap::new();
    let mut unfinished = BTreeSet::new();
    for survey in surveys {
        for (name, log) in &survey.logs {
            copies.entry(name.clone()).or_default().push(*log);
        }
        let Some(path) = dirs.path(survey.number) else { continue };
        for (name, own_name) in &survey.futures {
            let recorded = recorded(image, name, broker_id);
            let here = recorded.is_some() && recorded == dirs.id(survey.number);
            let is_there = survey.logs.iter().any(|(found, _)| found == name);
            let sure = recorded.is_none_or(|id| dirs.usable_with_id(id).is_ok());
            if !here && !sure {
                continue;
            }
            match settle_copy((path, own_name), name, here && !is_there, image).await {
                Copy::TookItsPlace => {
                    copies.entry(name.clone()).or_default().push(moved_here(survey.number));
                }
                Copy::Left => drop(unfinished.insert(name.clone())),
                Copy::Removed => {}
            }
        }
    }
    let mut strays = Strays::new(log, image);
    for survey in surveys {
        let Some(path) = dirs.path(survey.number) else { continue };
        for name in &survey.strays {
            strays.look_at(&path.join(name)).await;
        }
    }
    let mut found = Found::new();
    for (name, mut logs) in copies {
        reactor::yield_if_due().await;
        put_strays_away(dirs, &name, &mut logs, &mut strays, image).await;
        if let Some(log) = choose(dirs, &name, logs, recorded(image, &name, broker_id)).await? {
            found.insert(name, log);
        }
    }
    strays.end();
    let records = record(dirs, image, &found, broker_id).await;
    let was_there = |name: &str, partition: (Uuid, i32), home: usize| {
        let of_home = surveys.iter().find(|survey| survey.number == home);
        unfinished.contains(name)
            || of_home.is_some_and(|s| {
                s.written.contains(name)
                    || s.made.partitions.contains(&partition)
                    || s.offsets.contains_key(&partition)
            })
    };
    let lost = missing(dirs, image, (&found, was_there), broker_id).await;
    for survey in surveys {
        let Some(path) = dirs.path(survey.number) else { continue };
        let home = dirs.id(survey.number);
        note_known(&mut found, survey, image).await;
        survey.made.gather(path, home, broker_id, image).await;
    }
    Ok(Settled { found, lost, records })
}

/// Notes what a data directory has written down of the partitions that were found in it.
async fn note_known(found: &mut Found, survey: &DirSurvey, image: &Image) {
    for (topic, index) in &survey.made.partitions {
        reactor::yield_if_due().await;
        let Some(topic) = image.topic_by_id(*topic) else { continue };
        if let Some(log) = found.get_mut(&partition_dir_name(&topic.name, *index)) {
            log.is_noted |= log.dir_number == survey.number;
        }
    }
    for ((topic, index), vouched) in &survey.offsets {
        reactor::yield_if_due().await;
        let Some(topic) = image.topic_by_id(*topic) else { continue };
        let log = found.get_mut(&partition_dir_name(&topic.name, *index));
        if let Some(log) = log.filter(|log| log.dir_number == survey.number) {
            log.vouched = *vouched;
        }
    }
}

/// The directory that the metadata names for this partition.
fn recorded(image: &Image, dir_name: &str, broker_id: i32) -> Option<Uuid> {
    let (topic, index) = log::parse_partition_dir_name(dir_name)?;
    image.partition(&topic, index)?.directory_on(broker_id)
}

/// What became of a copy that a move was making.
enum Copy {
    TookItsPlace,
    Removed,
    /// It could not be renamed or removed, or is not whole though the metadata names it.
    Left,
}

/// Gives a finished copy its name, or removes one that was never finished.
async fn settle_copy(
    (data_dir, own_name): (&Path, &str),
    name: &str,
    counts: bool,
    image: &Image,
) -> Copy {
    let copy = data_dir.join(own_name);
    let topic = log::parse_partition_dir_name(name).and_then(|(t, _)| image.topic_by_name(&t));
    if counts && !is_whole(&copy, topic.map(|topic| topic.id)).await {
        warn!("{} is no whole copy of {name}; it is left alone", copy.display());
        return Copy::Left;
    }
    let done = async {
        if counts {
            fs::rename(&copy, &data_dir.join(name)).await?;
        } else {
            fs::remove_dir_all(&copy).await?;
        }
        fs::sync_dir(data_dir).await
    };
    match done.await {
        Ok(()) if counts => {
            info!("finished the move of {name} to {}", data_dir.display());
            Copy::TookItsPlace
        }
        Ok(()) => {
            info!("removed {}: the move was not finished", copy.display());
            Copy::Removed
        }
        Err(error) => {
            warn!("{} could not be settled: {error}", copy.display());
            Copy::Left
        }
    }
}

/// A copy says last of all whose it is.
async fn is_whole(copy: &Path, topic_id: Option<Uuid>) -> bool {
    let said = checkpoints::read_partition_metadata(copy).await.ok().flatten();
    said.is_some() && said == topic_id
}

fn moved_here(dir_number: usize) -> FoundLog {
    FoundLog { dir_number, clean: true, ..FoundLog::UNKNOWN }
}

/// The copies of a partition that moves have left in a data directory.
async fn copies_of(data_dir: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    let mut copies = Vec::new();
    for entry in fs::read_dir(data_dir).await? {
        if entry.is_dir && log::parse_future_dir_name(&entry.name) == Some(name) {
            copies.push(data_dir.join(&entry.name));
        }
        reactor::yield_if_due().await;
    }
    Ok(copies)
}

/// Before a new copy of a partition is made: no other one may be taken for it.
pub(crate) async fn remove_copies(data_dir: &Path, name: &str) -> io::Result<()> {
    for copy in copies_of(data_dir, name).await? {
        fs::remove_dir_all(&copy).await?;
        info!("removed {}: an earlier move was not finished", copy.display());
    }
    Ok(())
}

/// The metadata says that a partition is in `dir`, which is not there: the copy of a move that
/// could not take its place may be. Returns whether it has its place now.
///
/// # Errors
/// There is one, and it still cannot take its place.
pub(crate) async fn finish_move(dir: &Path, topic_id: Uuid) -> Result<bool, String> {
    let name = dir.file_name().and_then(|name| name.to_str());
    let (Some(data_dir), Some(name)) = (dir.parent(), name) else { return Ok(false) };
    let copies = copies_of(data_dir, name).await.map_err(|error| error.to_string())?;
    let mut whole = Vec::new();
    for copy in &copies {
        if is_whole(copy, Some(topic_id)).await {
            whole.push(copy);
        }
    }
    let [copy] = whole.as_slice() else {
        return match whole.len() {
            0 => Ok(false),
            n => Err(format!("{} is not there, but {n} copies of it are", dir.display())),
        };
    };
    let named = async {
        fs::rename(copy, dir).await?;
        fs::sync_dir(data_dir).await
    };
    named.await.map_err(|error| format!("{} cannot take its place: {error}", copy.display()))?;
    info!("finished the move of {name} to {}", data_dir.display());
    Ok(true)
}

async fn put_strays_away(
    dirs: &DataDirs,
    name: &str,
    logs: &mut Vec<FoundLog>,
    strays: &mut Strays<'_>,
    image: &Image,
) {
    let mut kept = Vec::with_capacity(logs.len());
    let alone = logs.len() == 1;
    for log in logs.drain(..) {
        let Some(data_dir) = dirs.path(log.dir_number) else { continue };
        let dir = data_dir.join(name);
        // Whose folder it is, is looked at when it is opened: here it would be ten thousand small
        // reads before the first connection.
        let is_stray = match alone {
            true => disk::is_unknown(name, image),
            false => disk::is_stray(&dir, name, image).await,
        };
        match is_stray {
            true => strays.put_away(&dir).await,
            false => kept.push(log),
        }
    }
    *logs = kept;
}

/// The copy that counts, if one does.
async fn choose(
    dirs: &DataDirs,
    name: &str,
    logs: Vec<FoundLog>,
    recorded: Option<Uuid>,
) -> Result<Option<FoundLog>, BrokerError> {
    let home = recorded.map(|id| dirs.usable_with_id(id));
    if let Some(Ok(home)) = home
        && let Some(log) = logs.iter().find(|log| log.dir_number == home).copied()
    {
        for other in logs.iter().filter(|log| log.dir_number != home) {
            let Some(data_dir) = dirs.path(other.dir_number) else { continue };
            let dir = data_dir.join(name);
            if is_left_by_a_move(dirs, home, &dir).await {
                remove_left(&dir).await;
                continue;
            }
            match disk::set_aside(&dir).await {
                Ok(aside) => {
                    warn!("a move left {} behind; set aside as {}", dir.display(), aside.display());
                }
                Err(error) => warn!("{} could not be renamed: {error}", dir.display()),
            }
        }
        return Ok(Some(log));
    }
    // Recorded where nothing can be read now: what is elsewhere may be older.
    if matches!(home, Some(Err(_))) && any_failed(dirs) {
        return Ok(None);
    }
    match logs.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        [one, other, ..] => {
            let dir = |log: &FoundLog| dirs.path(log.dir_number).map(Path::to_owned);
            Err(BrokerError::FoundTwice {
                name: name.to_owned(),
                first: dir(one).unwrap_or_default(),
                second: dir(other).unwrap_or_default(),
            })
        }
    }
}

/// Whether a move from this folder has brought the partition to its home, whole.
async fn is_left_by_a_move(dirs: &DataDirs, home: usize, folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    let to = moves::moved_to(folder).await;
    let said = checkpoints::read_partition_metadata(folder).await.ok().flatten();
    match dirs.path(home) {
        Some(data_dir) if to.is_some() && to == dirs.id(home) && said.is_some() => {
            is_whole(&data_dir.join(name), said).await
        }
        _ => false,
    }
}

/// The name goes first, so that a crash amid the removal leaves nothing that looks whole.
async fn remove_left(dir: &Path) {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let unique = [reactor::random_u64(), reactor::random_u64()];
    let to = dir.with_file_name(log::deleted_dir_name(name, unique));
    match fs::rename(dir, &to).await {
        Ok(()) => {
            info!("{} was moved to another data directory; it is removed", dir.display());
            disk::remove_later(vec![to]);
        }
        Err(error) => warn!("{}, left by a move, stays: {error}", dir.display()),
    }
}

fn any_failed(dirs: &DataDirs) -> bool {
    (0..dirs.len()).any(|number| dirs.is_failed(number))
}

/// The records that say where each partition is, for those of which the metadata did not.
async fn record(
    dirs: &DataDirs,
    image: &Image,
    found: &Found,
    broker_id: i32,
) -> Vec<MetadataRecord> {
    let mut placer = Placer::new(dirs.candidates(image));
    let mut records = Vec::new();
    for topic in image.topics() {
        for (index, partition) in (0i32..).zip(&topic.partitions) {
            reactor::yield_if_due().await;
            let own = partition.replicas.iter().find(|node| node.broker() == broker_id);
            let Some(own) = own.copied() else { continue };
            let name = partition_dir_name(&topic.name, index);
            let recorded = partition.directory_on(broker_id);
            let actual = found.get(&name).and_then(|log| dirs.id(log.dir_number));
            let next = match (recorded, actual) {
                (Some(recorded), Some(actual)) if recorded != actual => {
                    warn!("{name} was moved by hand; it is recorded in its new directory");
                    Some(actual)
                }
                (Some(_), _) => None,
                (None, Some(actual)) => Some(actual),
                (None, None) if any_failed(dirs) => None,
                (None, None) => placer.next(own),
            };
            records.extend(
                next.and_then(|id| meta::controller::assign_directory(topic, index, broker_id, id)),
            );
        }
    }
    records
}

/// Says which partitions are offline or begin empty. Returns those that were somewhere, and must
/// not.
async fn missing(
    dirs: &DataDirs,
    image: &Image,
    (found, was_there): (&Found, impl Fn(&str, (Uuid, i32), usize) -> bool),
    broker_id: i32,
) -> BTreeSet<String> {
    let mut offline: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut empty: Option<(usize, String)> = None;
    let mut lost = BTreeSet::new();
    let some_failed = any_failed(dirs);
    let note = |one: &mut (usize, String)| one.0 += 1;
    for topic in image.topics() {
        for (index, partition) in (0i32..).zip(&topic.partitions) {
            reactor::yield_if_due().await;
            let name = partition_dir_name(&topic.name, index);
            let Some(id) = partition.directory_on(broker_id) else { continue };
            match dirs.usable_with_id(id) {
                _ if found.contains_key(&name) => {}
                Err(reason) => note(offline.entry(reason).or_insert((0, name))),
                Ok(home) if was_there(&name, (topic.id, index), home) => {
                    let dir = dirs.path(home).unwrap_or(Path::new("")).join(&name);
                    error!(
                        "{} is not there, though it was; it is offline until it is put back or its \
                         topic is deleted",
                        dir.display()
                    );
                    lost.insert(name);
                }
                Ok(_) if some_failed => {
                    let reason = "they are not in their data directory, and another has failed";
                    note(offline.entry(reason.to_owned()).or_insert((0, name)));
                }
                Ok(_) => note(empty.get_or_insert((0, name))),
            }
        }
    }
    for (reason, (count, first)) in offline {
        warn!("{count} partitions are offline ({first} the first): {reason}");
    }
    if let Some((count, first)) = empty {
        warn!(
            "{count} partitions are not in their data directory and begin empty, {first} the first"
        );
    }
    for number in 0..dirs.len() {
        if let (DirState::Failed(reason), Some(path)) = (dirs.state(number), dirs.path(number)) {
            warn!("starting without data directory {}: {reason}", path.display());
        }
    }
    lost
}

impl DirSurvey {
    /// The same for a directory that works again while the broker runs: what it holds of what the
    /// metadata says is there.
    pub async fn settled_alone(
        mut self,
        dirs: &DataDirs,
        id: Uuid,
        image: &Image,
        broker_id: i32,
    ) -> Found {
        let mut found: Found = std::mem::take(&mut self.logs).into_iter().collect();
        note_known(&mut found, &self, image).await;
        let Some(data_dir) = dirs.path(self.number) else { return found };
        for (name, own_name) in &self.futures {
            let recorded = recorded(image, name, broker_id);
            let here = recorded == Some(id);
            if !here && recorded.is_some_and(|other| dirs.usable_with_id(other).is_err()) {
                continue;
            }
            let counts = here && !found.contains_key(name);
            let settled = settle_copy((data_dir, own_name), name, counts, image).await;
            if matches!(settled, Copy::TookItsPlace) {
                found.insert(name.clone(), moved_here(self.number));
            }
        }
        let names: Vec<String> = found.keys().cloned().collect();
        for name in names {
            let dir = data_dir.join(&name);
            let elsewhere = recorded(image, &name, broker_id).filter(|other| *other != id);
            if elsewhere.is_none() && !disk::is_stray(&dir, &name, image).await {
                continue;
            }
            found.remove(&name);
            if let Some(home) = elsewhere
                && !is_in(dirs, home, &name).await
            {
                warn!("{name} is not where it should be, but here; the next start sees to it");
                continue;
            }
            if let Some(Ok(home)) = elsewhere.map(|home| dirs.usable_with_id(home))
                && is_left_by_a_move(dirs, home, &dir).await
            {
                remove_left(&dir).await;
                continue;
            }
            match disk::set_aside(&dir).await {
                Ok(aside) => warn!("{name} is not wanted here; set aside as {}", aside.display()),
                Err(error) => warn!("{name} is not wanted here but stays: {error}"),
            }
        }
        found
    }
}

async fn is_in(dirs: &DataDirs, id: Uuid, name: &str) -> bool {
    let home = dirs.usable_with_id(id).ok().and_then(|number| dirs.path(number));
    match home {
        Some(home) => fs::exists(&home.join(name)).await.unwrap_or(false),
        None => false,
    }
}
