//! At start: what was found in the directories against what the metadata says.
//!
//! The metadata log is the authority on where a partition is.
//!
//! | recorded directory | found | then |
//! |---|---|---|
//! | usable | there | served |
//! | usable | a finished copy of a move there | the copy gets the partition's name, and is served |
//! | usable | elsewhere only | somebody moved it by hand: recorded anew, with a warning |
//! | usable | there and elsewhere | the other is what a move left behind: set aside |
//! | failed | anywhere | offline; nothing is touched |
//! | not configured, all others work | elsewhere | as moved by hand |
//! | not configured | nowhere | offline; never begun empty |
//! | none (an older log) | somewhere | recorded |
//! | none (an older log) | nowhere | placed, unless a directory has failed: it may be there |

use std::collections::BTreeMap;
use std::path::Path;

use log::partition_dir_name;
use meta::{Image, MetadataRecord};
use reactor::fs;
use tracing::{info, warn};
use wire::Uuid;

use super::placement::Placer;
use super::{DataDirs, DirState};
use crate::BrokerError;
use crate::disk::{self, DirSurvey, Found};
use crate::mesh::FoundLog;

/// What a start makes of the surveys.
pub(crate) struct Settled {
    /// What is served, by directory name.
    pub found: Found,
    /// Where partitions are that the metadata did not say.
    pub records: Vec<MetadataRecord>,
}

/// # Errors
/// A partition is in two directories and nothing says which copy counts.
pub(crate) async fn at_start(
    dirs: &DataDirs,
    surveys: &[DirSurvey],
    image: &Image,
    broker_id: i32,
) -> Result<Settled, BrokerError> {
    let mut copies: BTreeMap<String, Vec<FoundLog>> = BTreeMap::new();
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
            if finish_future(path, own_name, name, here && !is_there).await {
                let log = FoundLog { dir_number: survey.number, clean: true, ..FoundLog::UNKNOWN };
                copies.entry(name.clone()).or_default().push(log);
            }
        }
    }
    let mut found = Found::new();
    for (name, mut logs) in copies {
        reactor::yield_if_due().await;
        set_strays_aside(dirs, &name, &mut logs, image).await;
        if let Some(log) = choose(dirs, &name, logs, recorded(image, &name, broker_id)).await? {
            found.insert(name, log);
        }
    }
    let records = record(dirs, image, &found, broker_id).await;
    warn_of_missing(dirs, image, &found, broker_id).await;
    Ok(Settled { found, records })
}

/// The directory that the metadata names for this partition.
fn recorded(image: &Image, dir_name: &str, broker_id: i32) -> Option<Uuid> {
    let (topic, index) = log::parse_partition_dir_name(dir_name)?;
    image.partition(&topic, index)?.directory_on(broker_id)
}

/// Gives a finished copy its name, or removes one that was never finished. Returns whether it is a
/// partition now.
async fn finish_future(data_dir: &Path, own_name: &str, name: &str, finished: bool) -> bool {
    let copy = data_dir.join(own_name);
    let done = async {
        if finished {
            fs::rename(&copy, &data_dir.join(name)).await?;
        } else {
            fs::remove_dir_all(&copy).await?;
        }
        fs::sync_dir(data_dir).await
    };
    match done.await {
        Ok(()) if finished => info!("finished the move of {name} to {}", data_dir.display()),
        Ok(()) => info!("removed {}: the move was not finished", copy.display()),
        Err(error) => {
            warn!("{} could not be settled: {error}", copy.display());
            return false;
        }
    }
    finished
}

async fn set_strays_aside(dirs: &DataDirs, name: &str, logs: &mut Vec<FoundLog>, image: &Image) {
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
        if !is_stray {
            kept.push(log);
            continue;
        }
        match disk::set_aside(&dir).await {
            Ok(aside) => warn!("{name} belongs to no topic; set aside as {}", aside.display()),
            Err(error) => warn!("{name} belongs to no topic and could not be renamed: {error}"),
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

/// Says which partitions are offline or begin empty.
async fn warn_of_missing(dirs: &DataDirs, image: &Image, found: &Found, broker_id: i32) {
    let mut offline: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut empty: Option<(usize, String)> = None;
    let note = |one: &mut (usize, String)| one.0 += 1;
    for topic in image.topics() {
        for (index, partition) in (0i32..).zip(&topic.partitions) {
            reactor::yield_if_due().await;
            let name = partition_dir_name(&topic.name, index);
            let Some(id) = partition.directory_on(broker_id) else { continue };
            match dirs.usable_with_id(id) {
                _ if found.contains_key(&name) => {}
                Err(reason) => note(offline.entry(reason).or_insert((0, name))),
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
}

impl DirSurvey {
    /// The same for a directory that works again while the broker runs: what it holds of what the
    /// metadata says is there.
    pub async fn settled_alone(
        self,
        data_dir: &Path,
        id: Uuid,
        image: &Image,
        broker_id: i32,
    ) -> Found {
        let mut found: Found = self.logs.into_iter().collect();
        for (name, own_name) in &self.futures {
            let here = recorded(image, name, broker_id) == Some(id);
            if finish_future(data_dir, own_name, name, here && !found.contains_key(name)).await {
                let log = FoundLog { dir_number: self.number, clean: true, ..FoundLog::UNKNOWN };
                found.insert(name.clone(), log);
            }
        }
        let names: Vec<String> = found.keys().cloned().collect();
        for name in names {
            let dir = data_dir.join(&name);
            let elsewhere = recorded(image, &name, broker_id).is_some_and(|other| other != id);
            if !elsewhere && !disk::is_stray(&dir, &name, image).await {
                continue;
            }
            found.remove(&name);
            match disk::set_aside(&dir).await {
                Ok(aside) => warn!("{name} is not wanted here; set aside as {}", aside.display()),
                Err(error) => warn!("{name} is not wanted here but stays: {error}"),
            }
        }
        found
    }
}
