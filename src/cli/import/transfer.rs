//! The folders of an import: into the staging folder, into place, and back.
//!
//! Every step can be told from what exists on the disk, so that taking back needs no more than the
//! journal.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs};

use super::exists;
use super::plan::Topic;
use crate::error::{Error, Result, plain};
use crate::process::import_journal::{Entry, STAGING};

/// One read of a file that is copied.
const COPY_BYTES: usize = 1 << 20;
/// Space that an import leaves free on a disk.
const SPARE_BYTES: u64 = 64 << 20;
/// What an opening would remove. Of what compaction had in the making a `.cleaned` file is wanted:
/// it tells that the `.swap` files beside it do not count.
const LEFT_OUT: [&str; 2] = [".deleted", ".tmp"];

/// Where each partition comes from and goes to. Moves within a file system are renames.
pub(super) async fn entries(
    topics: &[Topic],
    data_dirs: &[PathBuf],
    moving: bool,
) -> Result<Vec<Entry>> {
    let mut free = Vec::new();
    for dir in data_dirs {
        let space = fs::space(dir).await.map_err(|error| failed(dir, "look at", &error))?;
        free.push((space.available.saturating_sub(SPARE_BYTES), dir));
    }
    let mut entries = Vec::new();
    for topic in topics {
        for partition in &topic.partitions {
            let name = log::partition_dir_name(&topic.name, partition.number);
            let bytes = size_of(&partition.source).await?;
            let most = free.iter_mut().max_by_key(|(free, _)| *free);
            let Some((free, dir)) = most else { return Err(Error::internal("no data directory")) };
            let place = dir.join(&name);
            if exists(&place).await? {
                return Err(Error::refused(
                    format!("{} is there already", place.display()),
                    "delete or rename the topic that has it",
                ));
            }
            let renames = moving && same_disk(&partition.source, dir).await?;
            if !renames {
                *free = free.checked_sub(bytes).ok_or_else(|| {
                    Error::machine(
                        format!("{} has too little space for {name}", dir.display()),
                        "free some, or use --move within one file system",
                    )
                })?;
            }
            entries.push(Entry {
                source: partition.source.clone(),
                staged: dir.join(STAGING).join(&name),
                place,
                moved: renames,
                remove_source: moving && !renames,
            });
        }
    }
    Ok(entries)
}

async fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).await.map_err(|error| failed(folder, "list", &error))? {
        let path = folder.join(&entry.name);
        let found = fs::metadata(&path).await.map_err(|error| failed(&path, "look at", &error))?;
        bytes += found.size;
    }
    Ok(bytes)
}

/// Whether a folder can be renamed into a directory; tried with an empty one.
async fn same_disk(folder: &Path, dir: &Path) -> Result<bool> {
    let Some(parent) = folder.parent() else { return Ok(false) };
    let from = parent.join(format!("{STAGING}.probe"));
    let to = dir.join(format!("{STAGING}.probe"));
    fs::create_dir_all(&from).await.map_err(|error| failed(&from, "create", &error))?;
    let renamed = fs::rename(&from, &to).await;
    let gone = match &renamed {
        Ok(()) => fs::remove_dir(&to).await,
        Err(_) => fs::remove_dir(&from).await,
    };
    gone.map_err(|error| failed(&to, "remove", &error))?;
    match renamed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::CrossesDevices => Ok(false),
        Err(error) => Err(failed(&to, "rename into", &error)),
    }
}

pub(super) async fn make_staging(dir: &Path) -> Result<()> {
    let staging = dir.join(STAGING);
    fs::create_dir_all(&staging).await.map_err(|error| failed(&staging, "create", &error))?;
    super::sync(dir).await
}

/// Copies or moves a folder into the staging folder.
pub(super) async fn stage(entry: &Entry) -> Result<()> {
    let fail = |error| failed(&entry.source, "copy", &error);
    if entry.moved {
        fs::rename(&entry.source, &entry.staged).await.map_err(fail)?;
        for dir in [&entry.staged, &entry.source] {
            if let Some(parent) = dir.parent() {
                super::sync(parent).await?;
            }
        }
    } else {
        fs::create_dir_all(&entry.staged).await.map_err(fail)?;
        for file in fs::read_dir(&entry.source).await.map_err(fail)? {
            if file.is_dir || LEFT_OUT.iter().any(|suffix| file.name.ends_with(suffix)) {
                continue;
            }
            let (from, to) = (entry.source.join(&file.name), entry.staged.join(&file.name));
            copy(&from, &to).await.map_err(|error| failed(&from, "copy", &error))?;
        }
    }
    super::sync(&entry.staged).await
}

async fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from, OpenOptions::for_reading()).await?;
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let target = File::open(to, options).await?;
    let mut at = 0;
    loop {
        let (result, buf) = source.read_at(AlignedBuf::with_capacity(COPY_BYTES), at).await;
        let n = result?;
        if n == 0 {
            break;
        }
        let bufs = std::iter::once(WriteBuf::Aligned(buf)).collect();
        target.write_at(bufs, at, Durability::Written).await?;
        at += n as u64;
    }
    target.sync_all().await?;
    target.close().await?;
    source.close().await
}

/// Gives the staged folders their names. They are no topics yet.
pub(super) async fn put_in_place(entries: &[Entry]) -> Result<()> {
    for entry in entries {
        fs::rename(&entry.staged, &entry.place)
            .await
            .map_err(|error| failed(&entry.place, "rename to", &error))?;
    }
    for entry in entries {
        for dir in [&entry.place, &entry.staged] {
            if let Some(parent) = dir.parent() {
                super::sync(parent).await?;
            }
        }
    }
    Ok(())
}

/// Undoes what was done to one folder, wherever it stands.
pub(super) async fn take_back(entry: &Entry) -> Result<()> {
    for path in [&entry.place, &entry.staged] {
        if !exists(path).await? {
            continue;
        }
        if entry.moved {
            fs::rename(path, &entry.source)
                .await
                .map_err(|error| failed(&entry.source, "move back to", &error))?;
            if let Some(parent) = entry.source.parent() {
                super::sync(parent).await?;
            }
        } else {
            remove_dir(path).await?;
        }
        if let Some(parent) = path.parent() {
            super::sync(parent).await?;
        }
    }
    Ok(())
}

pub(super) async fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(dir, "remove", &error)),
        _ => Ok(()),
    }
}

pub(super) fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::machine(
        format!("cannot {what} {}: {}", path.display(), plain(error)),
        "free space or give this user access to it; `corelane import` without folders cleans up",
    )
}
