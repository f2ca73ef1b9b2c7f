//! `corelane import`: takes over partitions that another broker wrote, while ours is stopped.
//!
//! ```text
//! lock the data directories → take back or finish an import that was cut off
//! → check every folder (`dump --verify`) → journal → copy or move into `.import/`
//! → recover each as after a crash, close it → rename into place
//! → one commit to the metadata log: now the topics exist → remove the journal
//! ```
//!
//! Until the commit nothing of it is a topic, and no broker starts while the journal is there; after
//! it everything is in place. A cut anywhere leaves one of the two.

mod plan;
mod transfer;

use std::path::{Path, PathBuf};

use broker::adopt::{Adopted, Metadata, recover_partition};
use log::inspect::Severity;
use meta::controller::AdoptTopic;
use reactor::fs;
use wire::Uuid;

use super::args::ImportArgs;
use super::{print, settings};
use crate::error::{Error, Result, plain};
use crate::process::data_dir::DataDirs;
use crate::process::import_journal::{Journal, STAGING};
use plan::{Partition, Topic};

pub async fn run(args: ImportArgs) -> Result<()> {
    let configs = settings(&args.config)?;
    let data_dirs = absolute(&args.data_dir)?;
    let folders = absolute(&args.folders)?;
    let dirs = DataDirs::open(&data_dirs, None).await?;
    let metadata = Metadata::open(&data_dirs, &dirs.cluster_id, dirs.broker_id).await;
    let metadata = metadata.map_err(|error| Error::data_dir(error, ""))?;
    let done = import(&args, &data_dirs, &folders, configs, &metadata).await;
    let closed = metadata.close().await.map_err(|error| Error::data_dir(error, ""));
    drop(dirs);
    done.and(closed)
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let all = paths.iter().map(std::path::absolute);
    let all: std::io::Result<Vec<PathBuf>> = all.collect();
    all.map_err(|error| Error::machine(format!("no current directory: {}", plain(&error)), ""))
}

async fn import(
    args: &ImportArgs,
    data_dirs: &[PathBuf],
    folders: &[PathBuf],
    configs: Vec<(String, String)>,
    metadata: &Metadata,
) -> Result<()> {
    settle_pending(data_dirs, metadata).await?;
    if folders.is_empty() {
        return print("nothing is left of an earlier import\n").await;
    }
    let topics = plan::topics(folders, data_dirs).await?;
    // The names and settings, before much is read.
    decide(&topics, &configs, metadata, |_| 0)?;
    check(&topics).await?;
    let entries = transfer::entries(&topics, data_dirs, args.move_).await?;
    let first = topics.first().ok_or_else(|| Error::internal("no topic"))?;
    let journal = Journal { topic_id: first.id.to_string(), entries };
    let Some(home) = data_dirs.first() else { return Ok(()) };
    for dir in data_dirs {
        transfer::make_staging(dir).await?;
    }
    journal.write(home).await.map_err(|error| transfer::failed(home, "write to", &error))?;
    let (records, report) = match take_over(&topics, &journal, &configs, metadata).await {
        Ok(ready) => ready,
        Err(error) => {
            settle_pending(data_dirs, metadata).await?;
            return Err(error);
        }
    };
    // If this fails, only the log itself can say, the next time, whether it has them.
    metadata.commit(&records).await.map_err(|error| Error::data_dir(error, ""))?;
    finish(&journal, data_dirs).await?;
    print(report).await
}

/// Checks every folder as `dump --verify` does. What a crash leaves is fine, damage is not.
async fn check(topics: &[Topic]) -> Result<()> {
    for partition in topics.iter().flat_map(|topic| &topic.partitions) {
        let (_, found) =
            super::dump::verify::partition(&partition.source, partition.recovery_point).await?;
        let mut damage = found.iter().filter(|finding| finding.severity == Severity::Damage);
        if let Some(first) = damage.next() {
            let more = damage.count();
            let at = first.position.map_or(String::new(), |at| format!(" at {at}"));
            return Err(Error::data_dir(
                format!(
                    "{}{at}: {} ({more} more problems); nothing was imported",
                    first.file.display(),
                    first.text
                ),
                format!("`corelane dump --verify {}` lists all", partition.source.display()),
            ));
        }
    }
    Ok(())
}

/// The metadata records of the topics, whose partitions begin to lead under the epoch behind
/// `latest_epoch`.
fn decide(
    topics: &[Topic],
    configs: &[(String, String)],
    metadata: &Metadata,
    latest_epoch: impl Fn(&Partition) -> i32,
) -> Result<Vec<meta::MetadataRecord>> {
    let mut n = 0;
    let mut place = |partition: &Partition| {
        n += 1;
        (metadata.node(n - 1), latest_epoch(partition).saturating_add(1))
    };
    let adopt: Vec<AdoptTopic> = topics
        .iter()
        .map(|topic| AdoptTopic {
            name: topic.name.clone(),
            id: topic.id,
            partitions: topic.partitions.iter().map(&mut place).collect(),
            configs: configs.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
        })
        .collect();
    let planned = metadata.plan(&adopt);
    planned.map(|(_, records)| records).map_err(|reason| Error::refused(reason, ""))
}

/// Everything between the journal and the commit.
async fn take_over(
    topics: &[Topic],
    journal: &Journal,
    configs: &[(String, String)],
    metadata: &Metadata,
) -> Result<(Vec<meta::MetadataRecord>, String)> {
    let partitions = || topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (t, p)));
    let mut adopted: Vec<(PathBuf, Adopted)> = Vec::new();
    let mut report = String::new();
    for ((topic, partition), entry) in partitions().zip(&journal.entries) {
        transfer::stage(entry).await?;
        let (base, start) = (partition.first_base, partition.log_start);
        let recovered = recover_partition(&entry.staged, (base, start), topic.id).await;
        let done = recovered.map_err(|error| Error::data_dir(error, "nothing was imported"))?;
        let cut = match done.truncated_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} bytes of a torn end were cut off"),
        };
        report += &format!(
            "{}-{}: offsets {} to {}{cut}\n",
            topic.name, partition.number, done.log_start_offset, done.log_end_offset
        );
        adopted.push((partition.source.clone(), done));
    }
    transfer::put_in_place(&journal.entries).await?;
    let epoch = |partition: &Partition| {
        let of = adopted.iter().find(|(source, _)| *source == partition.source);
        of.map_or(-1, |(_, done)| done.leader_epoch)
    };
    Ok((decide(topics, configs, metadata, epoch)?, report))
}

/// Takes back an import that was cut off, or finishes it if its topics exist.
async fn settle_pending(data_dirs: &[PathBuf], metadata: &Metadata) -> Result<()> {
    if let Some((_, journal)) = Journal::find(data_dirs).await? {
        let id: Uuid = journal
            .topic_id
            .parse()
            .map_err(|_| Error::data_dir("the journal of an import names no topic", ""))?;
        if metadata.has_topic(id) {
            return finish(&journal, data_dirs).await;
        }
        for entry in &journal.entries {
            transfer::take_back(entry).await?;
        }
        remove_staging(data_dirs).await?;
        return print("took back an import that was cut off\n").await;
    }
    remove_staging(data_dirs).await
}

/// The topics exist: what is left of the import goes.
async fn finish(journal: &Journal, data_dirs: &[PathBuf]) -> Result<()> {
    for entry in journal.entries.iter().filter(|entry| entry.remove_source) {
        transfer::remove_dir(&entry.source).await?;
    }
    remove_staging(data_dirs).await
}

async fn remove_staging(data_dirs: &[PathBuf]) -> Result<()> {
    for dir in data_dirs {
        let staging = dir.join(STAGING);
        let there = fs::exists(&staging).await;
        if there.map_err(|error| transfer::failed(&staging, "look at", &error))? {
            transfer::remove_dir(&staging).await?;
            sync(dir).await?;
        }
    }
    Ok(())
}

async fn sync(dir: &Path) -> Result<()> {
    fs::sync_dir(dir).await.map_err(|error| transfer::failed(dir, "sync", &error))
}

async fn exists(path: &Path) -> Result<bool> {
    fs::exists(path).await.map_err(|error| transfer::failed(path, "look at", &error))
}
