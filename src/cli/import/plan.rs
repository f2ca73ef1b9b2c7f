//! Which topics the named folders make, and whether they are whole.
//!
//! Reads names and small files only; what is in the segments is checked later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use log::checkpoints::{self, LOG_START_OFFSETS, RECOVERY_POINTS};
use log::inspect::{FileName, OWN_CHECKPOINT, describe_checkpoint};
use reactor::fs;
use wire::Uuid;

use crate::cli::dump::{in_use, list, unreadable};
use crate::error::{Error, Result};
use crate::process::data_dir::random_id;

/// A topic to take over.
pub struct Topic {
    pub name: String,
    pub id: Uuid,
    /// From 0 on, without a gap.
    pub partitions: Vec<Partition>,
}

pub struct Partition {
    pub number: i32,
    pub source: PathBuf,
    pub first_base: i64,
    /// Nothing below may be read.
    pub log_start: i64,
    pub recovery_point: Option<i64>,
}

/// Groups folders by topic.
pub async fn topics(folders: &[PathBuf], data_dirs: &[PathBuf]) -> Result<Vec<Topic>> {
    let mut found: BTreeMap<String, BTreeMap<i32, PathBuf>> = BTreeMap::new();
    for folder in folders {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((topic, number)) = log::parse_partition_dir_name(name) else {
            return Err(Error::config(
                format!("{} is no folder of a partition", folder.display()),
                "name folders such as /kafka/orders-0",
            ));
        };
        if data_dirs.iter().any(|dir| folder.starts_with(dir)) {
            return Err(Error::config(
                format!("{} is in a data directory of this broker", folder.display()),
                "name folders of another broker",
            ));
        }
        if let Some(dir) = in_use(folder) {
            return Err(Error::data_dir(
                format!("{} is in use by a running broker", dir.display()),
                "stop that broker first",
            ));
        }
        let partitions = found.entry(topic).or_default();
        if let Some(other) = partitions.insert(number, folder.clone()) {
            return Err(Error::config(
                format!("{} and {} are the same partition", other.display(), folder.display()),
                "name only one of them",
            ));
        }
    }
    let mut topics = Vec::new();
    for (name, partitions) in found {
        topics.push(topic(name, partitions).await?);
    }
    Ok(topics)
}

async fn topic(name: String, folders: BTreeMap<i32, PathBuf>) -> Result<Topic> {
    let missing = (0..).zip(folders.keys()).find(|(expected, number)| expected != *number);
    if let Some((expected, number)) = missing {
        return Err(Error::config(
            format!("{name}-{number} is named, {name}-{expected} is not"),
            "name every partition of a topic, from 0 on",
        ));
    }
    let mut id: Option<(Uuid, PathBuf)> = None;
    let mut partitions = Vec::new();
    for (number, source) in folders {
        let stored = checkpoints::read_partition_metadata(&source).await;
        let stored = stored.map_err(|error| Error::data_dir(error, "nothing was imported"))?;
        match (stored, &id) {
            (Some(stored), Some((known, first))) if stored != *known => {
                return Err(Error::data_dir(
                    format!(
                        "{} is of topic id {stored}, {} of {known}",
                        source.display(),
                        first.display()
                    ),
                    "name partitions of one and the same topic",
                ));
            }
            (Some(stored), None) => id = Some((stored, source.clone())),
            _ => {}
        }
        partitions.push(partition(&name, number, (source, stored)).await?);
    }
    let id = match id {
        Some((id, _)) => id,
        // Kafka before 2.8 gave topics no ids.
        None => random_id().parse().map_err(|_| Error::internal("a random id is no id"))?,
    };
    Ok(Topic { name, id, partitions })
}

async fn partition(
    topic: &str,
    number: i32,
    (source, topic_id): (PathBuf, Option<Uuid>),
) -> Result<Partition> {
    let entries = list(&source).await?;
    let bases = entries.iter().filter_map(|entry| match FileName::of(&entry.name) {
        FileName::Segment(base) => Some(base),
        _ => None,
    });
    let first_base = bases.min().unwrap_or(0);
    let beside = |file: &'static str| offset_beside(&source, file, topic, number);
    let recovery_point = beside(RECOVERY_POINTS).await;
    let start_beside = beside(LOG_START_OFFSETS).await.unwrap_or(0);
    let own = own_start(&source, topic_id).await?;
    let log_start = first_base.max(start_beside).max(own);
    Ok(Partition { number, source, first_base, log_start, recovery_point })
}

/// What the data directory around a folder has for it.
async fn offset_beside(folder: &Path, file: &str, topic: &str, number: i32) -> Option<i64> {
    let lines = checkpoints::read_offsets(folder.parent()?, file).await.ok()?;
    lines.iter().find(|l| l.topic == topic && l.partition == number).map(|l| l.offset)
}

/// The start that a Corelane partition has in its own folder. What is left of a time when it was
/// one, and of another topic, says nothing any more.
async fn own_start(folder: &Path, topic_id: Option<Uuid>) -> Result<i64> {
    let path = folder.join(OWN_CHECKPOINT);
    let mut start = 0;
    if fs::exists(&path).await.map_err(|error| unreadable(&path, &error))? {
        let bytes = fs::read(&path).await.map_err(|error| unreadable(&path, &error))?;
        if let Ok(own) = describe_checkpoint(&bytes) {
            if !own.topic_id.is_zero() && topic_id.is_some_and(|id| id != own.topic_id) {
                return Ok(0);
            }
            start = own.log_start;
        }
    }
    let beside = checkpoints::read_offsets(folder, LOG_START_OFFSETS).await.unwrap_or_default();
    Ok(beside.first().map_or(start, |line| line.offset.max(start)))
}
