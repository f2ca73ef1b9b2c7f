//! Names in the file system: create, list, rename, remove, sync, lock.
//!
//! Ring operations where they exist, else the helper thread; never blocks the shard. A created,
//! renamed or removed name is durable only after [`sync_dir`] of its directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;

use crate::buf::AlignedBuf;
use crate::exec::context;
use crate::file::{Durability, File, OpenOptions, WriteBuf};
use crate::op::{Handle, Op, OpPath, run};

/// How deep [`remove_dir_all`] descends.
const DEPTH_MAX: usize = 64;

/// Largest file that [`read`] takes: it is for small files (checkpoints, properties).
pub const READ_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub size: u64,
    pub is_dir: bool,
    /// Milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// Bytes of the file system that holds a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total: u64,
    /// What an unprivileged process may still use.
    pub available: u64,
}

/// Creates the directory and what is missing above it.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = Some(path);
    while let Some(dir) = at.filter(|d| !d.as_os_str().is_empty()) {
        match make_dir(dir).await {
            Ok(()) => break,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !metadata(dir).await?.is_dir {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                break;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(dir),
            Err(e) => return Err(e),
        }
        at = dir.parent();
    }
    for dir in missing.into_iter().rev() {
        match make_dir(dir).await {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Creates the directory. One that is there already is AlreadyExists.
pub async fn create_dir(path: &Path) -> io::Result<()> {
    make_dir(path).await
}

async fn make_dir(path: &Path) -> io::Result<()> {
    run(Op::MakeDir { path: OpPath::new(path)? }).await.0.map(drop)
}

/// Entries of the directory, sorted by name. A name that is not UTF-8 is an error.
pub async fn read_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    let (result, op) = run(Op::ReadDir { path: OpPath::new(path)?, out: Vec::new() }).await;
    result?;
    let Op::ReadDir { mut out, .. } = op else { unreachable!("a listing stays a listing") };
    out.sort();
    Ok(out)
}

/// Atomically gives `from` the name `to`, replacing a file of that name.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    run(Op::Rename { from: OpPath::new(from)?, to: OpPath::new(to)? }).await.0.map(drop)
}

pub async fn remove_file(path: &Path) -> io::Result<()> {
    run(Op::Remove { path: OpPath::new(path)?, directory: false }).await.0.map(drop)
}

/// Removes an empty directory.
pub async fn remove_dir(path: &Path) -> io::Result<()> {
    run(Op::Remove { path: OpPath::new(path)?, directory: true }).await.0.map(drop)
}

/// Removes a directory with everything in it.
pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    let mut stack = vec![(path.to_path_buf(), false)];
    while let Some((dir, emptied)) = stack.pop() {
        if emptied {
            remove_dir(&dir).await?;
            continue;
        }
        if stack.len() > DEPTH_MAX * 1024 || dir.components().count() > DEPTH_MAX {
            return Err(io::Error::other(format!("{} is nested too deep", path.display())));
        }
        let entries = read_dir(&dir).await?;
        stack.push((dir.clone(), true));
        for entry in entries {
            let child = dir.join(&entry.name);
            if entry.is_dir {
                stack.push((child, false));
            } else {
                remove_file(&child).await?;
            }
        }
    }
    Ok(())
}

/// Makes names created, renamed or removed in this directory durable.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    let (result, _) = run(Op::OpenDir { path: OpPath::new(path)? }).await;
    let file = Handle::of_file(result? as i32);
    run(Op::Sync { file, data_only: false }).await.0.map(drop)
}

/// Makes all that was written and all names that were changed before the call durable, in the
/// whole file system of this directory: for many files at once, where one sync of all costs less
/// than one of each. It covers what other programs wrote there, too.
pub async fn sync_disk(dir: &Path) -> io::Result<()> {
    run(Op::SyncDisk { path: OpPath::new(dir)?, watch: None }).await.0.map(drop)
}

/// Remembers what a disk has lost: the kernel tells of a write that failed behind everybody's back
/// once to each that had the disk open then, whoever else was told.
pub struct DiskWatch(Handle);

impl DiskWatch {
    /// From now on.
    pub async fn begin(dir: &Path) -> io::Result<Self> {
        let (result, _) = run(Op::OpenDir { path: OpPath::new(dir)? }).await;
        Ok(DiskWatch(Handle::of_file(result? as i32)))
    }

    /// As [`sync_disk`]; fails, once, also if anything there was lost since the last call.
    pub async fn sync_disk(&self, dir: &Path) -> io::Result<()> {
        let watch = Some(self.0.clone());
        run(Op::SyncDisk { path: OpPath::new(dir)?, watch }).await.0.map(drop)
    }
}

/// Lets operations on names in this directory (open, rename, remove, list) wait in the queue of
/// its disk, not in the one that names share. For data directories, once a shard.
pub async fn keep_apart(dir: &Path) -> io::Result<()> {
    let (result, _) = run(Op::OpenDir { path: OpPath::new(dir)? }).await;
    let opened = Handle::of_file(result? as i32);
    context::with(|rt| rt.disks.borrow_mut().add_root(dir, opened.disk()));
    Ok(())
}

/// For how long the oldest operation has been under way at the disk of a directory that is kept apart;
/// syncs of the whole disk, which may take long, left out. Other directories count with the first that is
/// not. For a look now and then: it goes through all that the shard has in flight.
pub fn oldest_operation(dir: &Path) -> Option<Duration> {
    context::with(|rt| rt.oldest_at(dir))
}

pub async fn metadata(path: &Path) -> io::Result<Metadata> {
    let (result, op) = run(Op::StatPath { path: OpPath::new(path)?, out: None }).await;
    result?;
    match op {
        Op::StatPath { out: Some(metadata), .. } => Ok(metadata),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub async fn exists(path: &Path) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The whole of a file of at most [`READ_BYTES_MAX`].
pub async fn read(path: &Path) -> io::Result<Vec<u8>> {
    const STEP: usize = 256 << 10;
    let file = File::open(path, OpenOptions::for_reading()).await?;
    let size = file.size().await?;
    if size > READ_BYTES_MAX {
        return Err(io::Error::other(format!("{} has {size} bytes", path.display())));
    }
    let mut whole = Vec::with_capacity(size as usize);
    let mut buf = AlignedBuf::with_capacity((size as usize + 1).min(STEP));
    loop {
        let (result, back) = file.read_at(buf, whole.len() as u64).await;
        buf = back;
        let n = result?;
        whole.extend_from_slice(&buf);
        if whole.len() as u64 > READ_BYTES_MAX {
            return Err(io::Error::other(format!("{} grows too big", path.display())));
        }
        if n < buf.capacity() {
            file.close().await?;
            return Ok(whole);
        }
    }
}

/// Replaces the file durably: after a crash it holds either the old contents or all of `data`.
pub async fn write_atomic(path: &Path, data: Vec<u8>) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let options = OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let file = File::open(&temporary, options).await?;
    let bufs = smallvec![WriteBuf::Bytes(Bytes::from(data))];
    file.write_at(bufs, 0, Durability::Written).await?;
    file.sync_all().await?;
    file.close().await?;
    rename(&temporary, path).await?;
    match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => sync_dir(parent).await,
        None => sync_dir(Path::new(".")).await,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub async fn space(path: &Path) -> io::Result<Space> {
    let (result, op) = run(Op::Space { path: OpPath::new(path)?, out: None }).await;
    result?;
    match op {
        Op::Space { out: Some(space), .. } => Ok(space),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Takes an exclusive lock on the file at `path` (created if absent), or fails with WouldBlock if
/// another process holds it.
pub async fn lock(path: &Path) -> io::Result<DirLock> {
    let (result, _) = run(Op::Lock { path: OpPath::new(path)? }).await;
    let raw = result? as i32;
    Ok(DirLock { _handle: context::with(|rt| rt.driver.borrow_mut().adopt(raw)) })
}

/// An exclusive lock between processes, held until it is dropped or the process ends.
pub struct DirLock {
    _handle: Handle,
}
