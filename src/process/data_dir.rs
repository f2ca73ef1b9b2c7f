//! Data directories: created and marked at the first start, checked at every other, and locked as
//! long as the process lives.
//!
//! Owns who may use a directory. Runs before the shards, on the main thread's ring. The order is
//! lock, read, decide, write: nothing is written before every directory is locked and understood.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use broker::DataDirStart;
use reactor::fs::{self, DirLock};
use reactor::timeout;

use super::meta_properties::{FILE_NAME, MAX_BYTES, MetaProperties};
use super::{AFTERLIFE, AFTERLIFE_PAUSE};
use crate::error::{Error, Result, plain};

const LOCK_FILE: &str = ".lock";
/// A directory that has not answered by then has failed.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// What a first start that was cut off, or the making of a file system, leaves behind.
const HARMLESS: [&str; 3] = [LOCK_FILE, "lost+found", "meta.properties.tmp"];

/// The directories of this process. Dropping it gives them up.
pub struct DataDirs {
    pub cluster_id: String,
    pub broker_id: i32,
    /// The cluster was made just now.
    pub new: bool,
    /// In the order of the configuration, also those that cannot be used.
    pub dirs: Vec<DataDirStart>,
    _locks: Vec<DirLock>,
}

impl DataDirs {
    /// Takes all directories for this broker, making them if they are not there. One of several
    /// that cannot be made, locked, read or marked has failed: the others serve without it.
    pub async fn open(paths: &[PathBuf], broker_id: Option<i32>) -> Result<Self> {
        let mut dirs = Vec::with_capacity(paths.len());
        let mut locks = Vec::with_capacity(paths.len());
        let mut found = Vec::with_capacity(paths.len());
        for path in paths {
            let path = absolute(path)?;
            let failure = match taken(&path).await {
                Ok((lock, meta)) => {
                    locks.push(lock);
                    found.push((path.clone(), meta));
                    None
                }
                Err(error) => Some(failed_alone(error, paths.len())?),
            };
            dirs.push(DataDirStart { path, id: None, failure });
        }
        if let Some(first) = dirs.iter().find_map(|dir| dir.failure.as_ref())
            && found.iter().all(|(_, meta)| meta.is_none())
        {
            // Whose broker this is stands in a directory that cannot be read.
            let what = format!("no data directory that can be used has a {FILE_NAME}: {first}");
            return Err(Error::data_dir(what, "mend that directory, or leave it out"));
        }
        let new = found.iter().all(|(_, meta)| meta.is_none());
        let decided = decide(&found, broker_id, &mut random_id)?;
        for ((path, before), after) in found.iter().zip(&decided) {
            let Some(dir) = dirs.iter_mut().find(|dir| dir.path == *path) else { continue };
            dir.id = after.directory_id.as_ref().and_then(|id| id.parse().ok());
            if before.as_ref() == Some(after) {
                continue;
            }
            let file = path.join(FILE_NAME);
            if let Err(error) = fs::write_atomic(&file, after.to_string().into_bytes()).await {
                let error = unusable(&file, "write", &error);
                // Nobody could tell this broker again by the directories that are left.
                dir.failure = Some(failed_alone(error, if new { 1 } else { paths.len() })?);
            }
        }
        let first = decided.into_iter().next();
        let first = first.ok_or_else(|| Error::internal("no data directory was named"))?;
        Ok(DataDirs {
            cluster_id: first.cluster_id,
            broker_id: first.broker_id,
            new,
            dirs,
            _locks: locks,
        })
    }
}

/// Clients and tools name a directory by its whole path.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| unusable(path, "find", &error))
}

async fn taken(dir: &Path) -> Result<(DirLock, Option<MetaProperties>)> {
    let take = async {
        fs::create_dir_all(dir).await.map_err(|error| unusable(dir, "create", &error))?;
        let lock = lock(dir).await?;
        let meta = read(dir).await?;
        if meta.is_none() {
            sync_ancestors(dir).await?;
        }
        Ok((lock, meta))
    };
    match timeout(ANSWER_WAIT, take).await {
        Ok(taken) => taken,
        Err(_) => Err(Error::machine(
            format!("{} has not answered for {} s", dir.display(), ANSWER_WAIT.as_secs()),
            "look at that disk, or name another directory with --data-dir",
        )),
    }
}

/// A directory that was made just now must be there after a power cut: what it will hold is nowhere
/// else.
async fn sync_ancestors(dir: &Path) -> Result<()> {
    for ancestor in dir.ancestors().skip(1) {
        match fs::sync_dir(ancestor).await {
            // Whoever may not even list it has made nothing in it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            // A file system that is only read has nothing new either; some know no sync of a
            // folder.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::InvalidInput
                ) => {}
            synced => synced.map_err(|error| unusable(ancestor, "sync", &error))?,
        }
    }
    Ok(())
}

/// What a failed directory is remembered with, if there are others. One that is somebody else's is
/// no failure of a disk but of the command line.
fn failed_alone(error: Error, dirs: usize) -> Result<String> {
    match error {
        Error::Machine(line) if dirs > 1 => Ok(line.to_string()),
        error => Err(error),
    }
}

async fn lock(dir: &Path) -> Result<DirLock> {
    let path = dir.join(LOCK_FILE);
    let deadline = reactor::now() + AFTERLIFE;
    loop {
        match fs::lock(&path).await {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                return Err(unusable(&path, "lock", &error));
            }
            Err(_) if reactor::now() < deadline => reactor::sleep(AFTERLIFE_PAUSE).await,
            Err(_) => {
                return Err(Error::data_dir(
                    format!("{} is in use by another process", dir.display()),
                    "stop that process, or name another directory with --data-dir",
                ));
            }
        }
    }
}

/// In the folder of its metadata log an Apache Kafka keeps who voted for whom; Corelane has no such
/// file.
const OF_KAFKA: &str = "__cluster_metadata-0/quorum-state";

async fn read(dir: &Path) -> Result<Option<MetaProperties>> {
    if fs::exists(&dir.join(OF_KAFKA)).await.map_err(|error| unusable(dir, "read", &error))? {
        return Err(Error::data_dir(
            format!("{} is the data directory of an Apache Kafka ({OF_KAFKA})", dir.display()),
            "name another one with --data-dir, and take its topics over with `corelane import`",
        ));
    }
    let path = dir.join(FILE_NAME);
    let size = match fs::metadata(&path).await {
        Ok(found) => found.size,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return check_empty(dir).await.map(|()| None);
        }
        Err(error) => return Err(unusable(&path, "read", &error)),
    };
    if size > MAX_BYTES as u64 {
        return Err(damaged(&path, &format!("it has {size} bytes")));
    }
    let bytes = fs::read(&path).await.map_err(|error| unusable(&path, "read", &error))?;
    let parsed = MetaProperties::parse(&bytes);
    parsed.map(Some).map_err(|error| damaged(&path, &error.to_string()))
}

/// A directory with other things in it is not taken: it may be somebody's home, or records whose
/// `meta.properties` got lost.
async fn check_empty(dir: &Path) -> Result<()> {
    let entries = fs::read_dir(dir).await.map_err(|error| unusable(dir, "list", &error))?;
    let foreign = entries.iter().find(|entry| !HARMLESS.contains(&entry.name.as_str()));
    match foreign {
        None => Ok(()),
        Some(entry) => Err(Error::data_dir(
            format!("{} has no {FILE_NAME} but is not empty ({})", dir.display(), entry.name),
            "name an empty or new directory with --data-dir, or put the file back",
        )),
    }
}

/// What every directory's `meta.properties` should say, or why they do not belong together.
fn decide(
    found: &[(PathBuf, Option<MetaProperties>)],
    broker_id: Option<i32>,
    random_id: &mut dyn FnMut() -> String,
) -> Result<Vec<MetaProperties>> {
    let known = found.iter().find_map(|(dir, meta)| meta.as_ref().map(|meta| (dir, meta)));
    let (cluster_id, known_id) = match known {
        Some((_, meta)) => (meta.cluster_id.clone(), Some(meta.broker_id)),
        None => (random_id(), None),
    };
    let broker_id = broker_id.or(known_id).unwrap_or(0);
    let mut decided: Vec<MetaProperties> = Vec::with_capacity(found.len());
    for (dir, meta) in found {
        let path = dir.join(FILE_NAME);
        if let (Some(meta), Some((first, first_meta))) = (meta, known) {
            if meta.cluster_id != first_meta.cluster_id {
                return Err(Error::data_dir(
                    format!(
                        "{} is of cluster {}, {} of cluster {}",
                        path.display(),
                        meta.cluster_id,
                        first.display(),
                        first_meta.cluster_id
                    ),
                    "name directories of one cluster with --data-dir",
                ));
            }
            if meta.broker_id != broker_id {
                return Err(Error::data_dir(
                    format!("{} is of broker {}, not {broker_id}", path.display(), meta.broker_id),
                    format!(
                        "start with --broker-id {}, or name another directory with --data-dir",
                        meta.broker_id
                    ),
                ));
            }
        }
        let directory_id = meta.as_ref().and_then(|meta| meta.directory_id.clone());
        let twin = directory_id.as_ref().and_then(|id| {
            decided.iter().position(|other| other.directory_id.as_ref() == Some(id))
        });
        if let Some((twin, _)) = twin.and_then(|at| found.get(at)) {
            return Err(Error::data_dir(
                format!("{} is a copy of {}", path.display(), twin.join(FILE_NAME).display()),
                "use only one of the two directories",
            ));
        }
        decided.push(MetaProperties {
            cluster_id: cluster_id.clone(),
            broker_id,
            directory_id: Some(directory_id.unwrap_or_else(&mut *random_id)),
        });
    }
    Ok(decided)
}

/// A random UUID (version 4) as Kafka writes it. Kafka avoids a leading hyphen, which command lines
/// take for a flag.
pub fn random_id() -> String {
    loop {
        let mut bytes = [0; 16];
        reactor::fill_random(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = wire::Uuid(bytes).to_string();
        if !id.starts_with('-') {
            return id;
        }
    }
}

fn damaged(path: &Path, reason: &str) -> Error {
    Error::data_dir(
        format!("{} is damaged: {reason}", path.display()),
        "put the file back from a copy, or name another directory with --data-dir",
    )
}

fn unusable(path: &Path, what: &str, error: &io::Error) -> Error {
    let remedy = match log::is_out_of_space(error) {
        true => {
            "free some space there (a first start writes less than 1 MiB), or name another directory \
             with --data-dir"
        }
        false => {
            "give the user of this process access to it, or name another directory with --data-dir"
        }
    };
    Error::machine(format!("cannot {what} {}: {}", path.display(), plain(error)), remedy)
}

#[cfg(test)]
mod tests {
    use reactor::sim::{Crash, Outcome, World};

    use super::*;

    fn meta(cluster: &str, broker_id: i32, directory: Option<&str>) -> Option<MetaProperties> {
        Some(MetaProperties {
            cluster_id: cluster.into(),
            broker_id,
            directory_id: directory.map(Into::into),
        })
    }

    /// The whole of it on a simulated disk.
    fn open(world: &mut World, dirs: &[&str], broker_id: Option<i32>) -> Outcome<Result<String>> {
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        world.run(move || async move {
            DataDirs::open(&dirs, broker_id).await.map(|dirs| dirs.cluster_id)
        })
    }

    #[test]
    fn a_first_start_that_is_cut_off_anywhere_is_made_good_by_the_next() {
        let dirs = ["/data/a", "/data/b"];
        for kind in [Crash::Process, Crash::Power] {
            let mut crashes = 0;
            for operations in 0.. {
                let mut world = World::new(operations);
                world.crash_after(operations, kind);
                if !matches!(open(&mut world, &dirs, Some(3)), Outcome::Crashed(_)) {
                    break;
                }
                crashes += 1;
                let cluster = open(&mut world, &dirs, None).finished().unwrap().unwrap();
                let again = open(&mut world, &dirs, None).finished().unwrap().unwrap();
                assert_eq!(cluster, again, "{kind:?} after {operations}");
            }
            assert!(crashes > 4, "only {crashes} places to crash at");
        }
    }

    #[test]
    fn a_new_directory_is_there_after_a_power_cut() {
        let dir = "/srv/corelane/a";
        for seed in 0..8 {
            let mut world = World::new(seed);
            let made = open(&mut world, &[dir], Some(3)).finished().unwrap().unwrap();
            world.crash_after(1, Crash::Power);
            let cut = world.run(|| async {
                loop {
                    let _ = fs::exists(Path::new("/srv")).await;
                }
            });
            assert!(matches!(cut, Outcome::Crashed(_)), "{cut:?}");
            assert!(world.disk().read(&Path::new(dir).join(FILE_NAME)).is_some());
            let again = open(&mut world, &[dir], None).finished().unwrap().unwrap();
            assert_eq!(made, again, "it was begun anew");
        }
    }

    #[test]
    fn a_directory_of_somebody_else_stays_as_it_is() {
        let mut world = World::new(1);
        world.run(|| async {
            fs::create_dir_all(Path::new("/home")).await.unwrap();
            fs::write_atomic(Path::new("/home/thesis"), b"all of it".to_vec()).await.unwrap();
        });
        let refused = open(&mut world, &["/home"], None).finished().unwrap().unwrap_err();
        assert!(refused.to_string().contains("is not empty (thesis)"), "{refused}");
        assert!(world.disk().read(Path::new("/home/meta.properties")).is_none());
    }

    #[test]
    fn a_directory_of_apache_kafka_stays_as_it_is() {
        let mut world = World::new(1);
        world.run(|| async {
            let metadata = Path::new("/kafka/__cluster_metadata-0");
            fs::create_dir_all(metadata).await.unwrap();
            fs::write_atomic(&metadata.join("quorum-state"), b"{}".to_vec()).await.unwrap();
            let marker = Path::new("/kafka/.kafka_cleanshutdown");
            fs::write_atomic(marker, b"{}".to_vec()).await.unwrap();
        });
        let refused = open(&mut world, &["/kafka"], None).finished().unwrap().unwrap_err();
        assert!(refused.to_string().contains("corelane import"), "{refused}");
        assert!(world.disk().read(Path::new("/kafka/.kafka_cleanshutdown")).is_some());
    }

    fn decide_all(
        found: &[Option<MetaProperties>],
        broker_id: Option<i32>,
    ) -> Result<Vec<MetaProperties>> {
        let found: Vec<_> = found
            .iter()
            .enumerate()
            .map(|(at, meta)| (PathBuf::from(format!("/d{at}")), meta.clone()))
            .collect();
        let mut next = 0;
        decide(&found, broker_id, &mut || {
            next += 1;
            format!("random-{next}")
        })
    }

    #[test]
    fn a_first_start_marks_every_directory_with_its_own_id() {
        let decided = decide_all(&[None, None], None).unwrap();
        assert_eq!(decided[0].cluster_id, decided[1].cluster_id);
        assert_ne!(decided[0].directory_id, decided[1].directory_id);
        assert_eq!((decided[0].broker_id, decided[1].broker_id), (0, 0));
        assert_eq!(decide_all(&[None], Some(3)).unwrap()[0].broker_id, 3);
    }

    #[test]
    fn a_formatted_directory_knows_cluster_and_broker_and_a_new_disk_joins() {
        let known = meta("c", 7, Some("a"));
        let decided = decide_all(&[None, known.clone()], None).unwrap();
        assert_eq!(Some(decided[1].clone()), known);
        assert_eq!((decided[0].cluster_id.as_str(), decided[0].broker_id), ("c", 7));
        let old = decide_all(&[meta("c", 7, None)], None).unwrap();
        assert!(old[0].directory_id.is_some());
    }

    #[test]
    fn directories_that_do_not_belong_together_are_refused() {
        let refused = |found: &[_], id| decide_all(found, id).unwrap_err().to_string();
        let text = refused(&[meta("c", 7, Some("a"))], Some(8));
        assert!(text.contains("/d0/meta.properties") && text.contains("--broker-id 7"), "{text}");
        let text = refused(&[meta("c", 7, Some("a")), meta("d", 7, Some("b"))], None);
        assert!(text.contains("/d1/meta.properties") && text.contains("cluster d"), "{text}");
        let text = refused(&[meta("c", 7, Some("a")), meta("c", 8, Some("b"))], None);
        assert!(text.contains("broker 8, not 7"), "{text}");
        let text = refused(&[meta("c", 7, Some("a")), meta("c", 7, Some("a"))], None);
        assert!(text.contains("/d1/meta.properties is a copy of /d0/meta.properties"), "{text}");
    }
}
