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
use log::inspect::{PartitionContext, Severity};
use meta::controller::AdoptTopic;
use reactor::fs;
use wire::Uuid;

use super::args::ImportArgs;
use super::{print, settings};
use crate::error::{Error, Result, plain, warn};
use crate::process::data_dir::DataDirs;
use crate::process::import_journal::{Journal, STAGING};
use plan::{Partition, Topic};

pub async fn run(args: ImportArgs) -> Result<()> {
    print(run_quietly(&args).await?).await
}

/// All of it; what is to be said in the end.
async fn run_quietly(args: &ImportArgs) -> Result<String> {
    let configs = settings(&args.set)?;
    let data_dirs = absolute(&args.data_dir)?;
    let folders = absolute(&args.folders)?;
    let dirs = DataDirs::open(&data_dirs, None).await?;
    let metadata = Metadata::open(&data_dirs, &dirs.cluster_id, dirs.broker_id).await;
    let metadata = metadata.map_err(|error| Error::data_dir(error, ""))?;
    let done = import(args, &data_dirs, &folders, configs, &metadata).await;
    let closed = metadata.close().await.map_err(|error| Error::data_dir(error, ""));
    drop(dirs);
    closed.and(done)
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
) -> Result<String> {
    let settled = settle_pending(data_dirs, metadata).await?;
    if folders.is_empty() {
        return Ok(settled.to_owned());
    }
    let topics = plan::topics(folders, data_dirs).await?;
    // The names and settings, before much is read.
    decide(&topics, &configs, metadata, |_| 0)?;
    check(&topics).await?;
    let entries = transfer::entries(&topics, data_dirs, args.move_).await?;
    let first = topics.first().ok_or_else(|| Error::internal("no topic"))?;
    let journal = Journal { topic_id: first.id.to_string(), entries };
    let Some(home) = data_dirs.first() else { return Err(Error::internal("no directory")) };
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
    // A topic of the same id may have been here, and may have gone further.
    let ids: Vec<Uuid> = topics.iter().map(|topic| topic.id).collect();
    for dir in data_dirs {
        let forgotten = broker::offsets::forget(dir, &ids).await;
        forgotten.map_err(|error| transfer::failed(dir, "write to", &error))?;
    }
    // If this fails, only the log itself can say, the next time, whether it has them.
    metadata.commit(&records).await.map_err(|error| Error::data_dir(error, ""))?;
    finish(&journal, data_dirs).await?;
    Ok(report)
}

/// Checks every folder as `dump --verify` does. What a crash leaves is fine, damage is not.
async fn check(topics: &[Topic]) -> Result<()> {
    for partition in topics.iter().flat_map(|topic| &topic.partitions) {
        let recovery_point = partition.recovery_point;
        let context =
            PartitionContext { recovery_point, foreign: true, ..PartitionContext::default() };
        let (_, found) = super::dump::verify::partition(&partition.source, context).await?;
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
            configs: settings_of(&topic.name, configs),
        })
        .collect();
    let planned = metadata.plan(&adopt);
    planned.map(|(_, records)| records).map_err(|reason| Error::refused(reason, ""))
}

/// The settings of a topic that is taken over. What the system itself keeps in a topic must never go by
/// age: such a topic is compacted, as one that the broker makes.
fn settings_of(topic: &str, configs: &[(String, String)]) -> Vec<(String, Option<String>)> {
    let mut all: Vec<_> = configs.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
    if meta::controller::is_internal(topic) {
        all.retain(|(key, _)| !INTERNAL.iter().any(|(own, _)| own == key));
        all.extend(INTERNAL.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))));
    }
    all
}

/// What the broker gives to a topic of its own.
const INTERNAL: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "producer"),
    ("segment.bytes", "104857600"),
];

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

/// Takes back an import that was cut off, or finishes it if its topics exist; says which.
async fn settle_pending(data_dirs: &[PathBuf], metadata: &Metadata) -> Result<&'static str> {
    if let Some((_, journal)) = Journal::find(data_dirs).await? {
        let id: Uuid = journal
            .topic_id
            .parse()
            .map_err(|_| Error::data_dir("the journal of an import names no topic", ""))?;
        if metadata.has_topic(id) {
            finish(&journal, data_dirs).await?;
            return Ok("finished an import that was cut off\n");
        }
        for entry in &journal.entries {
            transfer::take_back(entry).await?;
        }
        remove_staging(data_dirs, Some(&journal)).await?;
        return Ok("took back an import that was cut off\n");
    }
    remove_staging(data_dirs, None).await?;
    Ok("nothing was left of an earlier import\n")
}

/// The topics exist: what is left of the import goes.
async fn finish(journal: &Journal, data_dirs: &[PathBuf]) -> Result<()> {
    for entry in journal.entries.iter().filter(|entry| entry.remove_source) {
        transfer::remove_dir(&entry.source).await?;
    }
    remove_staging(data_dirs, Some(journal)).await
}

/// Removes the staging folders, the journal last. A folder that was moved is never emptied here: a
/// power cut on a file system without a journal may leave it under two names.
async fn remove_staging(data_dirs: &[PathBuf], journal: Option<&Journal>) -> Result<()> {
    for dir in data_dirs.iter().rev() {
        let staging = dir.join(STAGING);
        if !exists(&staging).await? {
            continue;
        }
        let copies = |path: &Path| {
            let entries = journal.iter().flat_map(|journal| &journal.entries);
            entries.into_iter().any(|entry| entry.staged == path && !entry.moved)
        };
        let mut kept = false;
        let listed = fs::read_dir(&staging).await;
        for child in listed.map_err(|error| transfer::failed(&staging, "list", &error))? {
            let path = staging.join(&child.name);
            if child.is_dir && copies(&path) {
                transfer::remove_dir(&path).await?;
            } else if child.is_dir {
                kept = true;
                warn(format_args!("{} is left as it is: look what is in it", path.display()));
            }
        }
        sync(&staging).await?;
        Journal::remove(dir).await.map_err(|error| transfer::failed(&staging, "empty", &error))?;
        if !kept {
            let removed = fs::remove_dir(&staging).await;
            removed.map_err(|error| transfer::failed(&staging, "remove", &error))?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use log::{Log, LogConfig, LogShared, OpenHint, SharedOptions};
    use reactor::sim::{Crash, Outcome, World};
    use wire::records::{BatchBuilder, BatchView};

    use super::*;

    const SOURCES: [&str; 2] = ["/kafka/orders-0", "/kafka/orders-1"];
    const DATA: [&str; 2] = ["/data/a", "/data/b"];

    fn args(moving: bool, folders: &[&str]) -> ImportArgs {
        ImportArgs {
            data_dir: DATA.iter().map(PathBuf::from).collect(),
            folders: folders.iter().map(PathBuf::from).collect(),
            set: Vec::new(),
            copy: false,
            move_: moving,
        }
    }

    fn open(dir: &Path) -> impl Future<Output = Log> {
        let config = LogConfig { segment_bytes: 2_000, ..LogConfig::default() };
        let (shared, dir) = (LogShared::new(SharedOptions::default()), dir.to_path_buf());
        async move { Log::open(&shared, dir, config, OpenHint::default(), 0).await.unwrap().0 }
    }

    /// Both partitions, as another broker left them.
    async fn write_sources() {
        for source in SOURCES {
            let path = Path::new(source);
            fs::create_dir_all(path.parent().unwrap()).await.unwrap();
            let log = open(path).await;
            for n in 0..20i64 {
                let mut batch = BatchBuilder::new();
                batch.append(n, Some(source.as_bytes()), Some(&[b'x'; 200]));
                let bytes = batch.build().unwrap();
                log.append(&BatchView::parse(&bytes).unwrap(), 3, 0).unwrap();
            }
            log.record_topic_id("8V3tlLmzQ1mWjXyv6Wqz4w".parse().unwrap()).await.unwrap();
            log.close().await.unwrap();
            for dir in [path, path.parent().unwrap(), Path::new("/")] {
                fs::sync_dir(dir).await.unwrap();
            }
        }
    }

    /// The bytes of the segments in a folder; `None` if it is not there.
    async fn batches(folder: &Path) -> Option<BTreeMap<String, Vec<u8>>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(folder).await.ok()? {
            if entry.name.ends_with(".log") {
                let bytes = fs::read(&folder.join(&entry.name)).await.unwrap();
                all.insert(entry.name, bytes);
            }
        }
        Some(all)
    }

    /// Where a partition of this name is, over the data directories.
    async fn place(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        for dir in DATA {
            let found = batches(&Path::new(dir).join(name)).await;
            if found.is_some() {
                return found;
            }
        }
        None
    }

    type Both = (Option<BTreeMap<String, Vec<u8>>>, Option<BTreeMap<String, Vec<u8>>>);

    fn sizes(both: &Both) -> Vec<Option<Vec<(String, usize)>>> {
        let of = |files: &BTreeMap<String, Vec<u8>>| {
            files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
        };
        vec![both.0.as_ref().map(of), both.1.as_ref().map(of)]
    }

    async fn has_topic() -> bool {
        let dirs: Vec<PathBuf> = DATA.iter().map(PathBuf::from).collect();
        let taken = DataDirs::open(&dirs, None).await.unwrap();
        let metadata = Metadata::open(&dirs, &taken.cluster_id, taken.broker_id).await.unwrap();
        let has = metadata.has_topic("8V3tlLmzQ1mWjXyv6Wqz4w".parse().unwrap());
        metadata.close().await.unwrap();
        has
    }

    #[test]
    fn an_import_that_is_cut_off_anywhere_is_taken_back_or_finished() {
        for (kind, moving) in [
            (Crash::Process, false),
            (Crash::Power, false),
            (Crash::Process, true),
            (Crash::Power, true),
        ] {
            let (mut taken_back, mut finished) = (0, 0);
            for operations in (0..).step_by(7) {
                let mut world = World::new(operations);
                let before = world.run(|| async {
                    write_sources().await;
                    run_quietly(&args(false, &[])).await.unwrap();
                    (batches(Path::new(SOURCES[0])).await, batches(Path::new(SOURCES[1])).await)
                });
                let before = before.finished().unwrap();
                world.crash_after(operations, kind);
                let ended = world.run(move || async move {
                    run_quietly(&args(moving, &SOURCES)).await.unwrap();
                });
                let crashed = matches!(ended, Outcome::Crashed(_));
                world.crash_after(u64::MAX / 2, kind);
                let after = world.run(move || async move {
                    let said = run_quietly(&args(false, &[])).await.unwrap();
                    let dirs: Vec<PathBuf> = DATA.iter().map(PathBuf::from).collect();
                    assert!(crate::process::import_journal::refuse_pending(&dirs).await.is_ok());
                    // The simulated disk may give a moved folder two names at a power cut.
                    for dir in DATA.iter().filter(|_| !(moving && kind == Crash::Power)) {
                        assert!(!fs::exists(&Path::new(dir).join(STAGING)).await.unwrap());
                    }
                    let sources = (
                        batches(Path::new(SOURCES[0])).await,
                        batches(Path::new(SOURCES[1])).await,
                    );
                    let places = (place("orders-0").await, place("orders-1").await);
                    (said, has_topic().await, sources, places)
                });
                let (said, has, sources, places) = after.finished().unwrap();
                if has {
                    finished += 1;
                    assert_eq!(places, before, "{kind:?} {moving} {operations}: {said}");
                    let left = if moving { (None, None) } else { before };
                    assert_eq!(sources, left, "{kind:?} {moving} {operations}: {said}");
                } else {
                    taken_back += 1;
                    assert_eq!(places, (None, None), "{kind:?} {moving} {operations}: {said}");
                    assert_eq!(
                        sizes(&sources),
                        sizes(&before),
                        "{kind:?} {moving} {operations}: {said}"
                    );
                    assert_eq!(sources, before, "{kind:?} {moving} {operations}: {said}");
                }
                if !crashed {
                    assert!(has);
                    break;
                }
            }
            assert!(taken_back > 10 && finished > 0, "{taken_back} and {finished}");
        }
    }

    /// Folders that were ours, and another broker's topic since: it keeps our files and ignores them.
    #[test]
    fn a_folder_that_comes_back_is_what_the_other_broker_made_of_it() {
        const THERE: &str = "fBbgnKyoS1WXPCeI0XqCNg";
        let ran = World::new(5).run(|| async {
            write_sources().await;
            for source in SOURCES.map(Path::new) {
                let log = open(source).await;
                log.advance_log_start(8).await.unwrap();
                log.close().await.unwrap();
                assert!(fs::exists(&source.join("corelane.checkpoint")).await.unwrap());
                let id = THERE.parse().unwrap();
                log::checkpoints::write_partition_metadata(source, id).await.unwrap();
            }
            run_quietly(&args(false, &SOURCES)).await.unwrap()
        });
        let said = ran.finished().expect("the import works");
        // Segments below offset 8 went with DeleteRecords; the rest is the other broker's again.
        assert!(said.contains("orders-0: offsets 7 to 20"), "{said}");
    }
}
