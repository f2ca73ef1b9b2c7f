//! Copying a log to a folder on another disk while it is written and read.
//!
//! Owns: the copy until it is whole. Passes copy what is in files, a window at a time: sealed
//! segments once, of the active one what is new. Then the log is closed and [`Relocation::finish`]
//! makes the copy equal to the folder and durable. No batch is looked at. Whoever calls decides
//! when the copy takes the log's place; until then the log knows nothing of it. Lives on the log's
//! shard.
//!
//! Files of the log only grow, but for the oldest segments that go: then their copies go in the
//! end. Compaction would replace segments, so that there is none as long as a copy is in the
//! making.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use reactor::{ALIGN, AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;

use crate::checkpoints::PARTITION_METADATA;
use crate::core::Core;
use crate::error::LogError;
use crate::files::check_room;
use crate::log::Log;
use crate::names::{FileKind, Found, classify, file_path};
use crate::tail::block_floor;

/// What is read and written at once.
const WINDOW: usize = 1 << 20;
/// The other files of a segment.
const BESIDE: [FileKind; 4] =
    [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex, FileKind::Snapshot];

/// A copy in the making.
pub struct Relocation {
    log: Log,
    target: PathBuf,
    /// By base offset of the segment.
    copied: BTreeMap<i64, Copied>,
    keep_free_bytes: u64,
    _copying: Copying,
    /// See `State::replaced`.
    replaced: u64,
}

/// Keeps compaction away until it is dropped.
struct Copying(Rc<Core>);

impl Copying {
    /// Returns when no pass goes on any more: each looks often at whether it is wanted.
    async fn begin(core: &Rc<Core>) -> Self {
        core.state.borrow_mut().copies += 1;
        let copying = Copying(Rc::clone(core));
        loop {
            let ended = core.filled.notified();
            if !core.state.borrow().cleaning {
                return copying;
            }
            ended.await;
        }
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.0.state.borrow_mut().copies -= 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    bytes: u64,
    /// With everything beside it; nothing of it changes any more.
    whole: bool,
    /// Everything below is in the copy.
    next_offset: i64,
}

/// A segment as a pass finds it.
struct Source {
    base: i64,
    sealed: bool,
    bytes: u64,
    next_offset: i64,
}

/// Bytes a second that may be copied; `None` is no limit. Asked again for every window.
pub type Pace<'p> = &'p dyn Fn() -> Option<u64>;

impl Relocation {
    /// Begins a copy in `target`, a folder that is not there yet. Its passes fail, as on a full
    /// disk, before they leave fewer bytes free there than `keep_free_bytes`. A pass of compaction
    /// ends first.
    pub async fn begin(log: Log, target: PathBuf, keep_free_bytes: u64) -> io::Result<Self> {
        let copying = Copying::begin(&log.0).await;
        fs::create_dir_all(&target).await?;
        let replaced = log.0.replaced();
        let copied = BTreeMap::new();
        Ok(Relocation { log, target, copied, keep_free_bytes, _copying: copying, replaced })
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Bytes in the copy.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.values().map(|copied| copied.bytes).sum()
    }

    /// Records below are in the copy.
    pub fn next_offset(&self) -> i64 {
        self.copied.values().map(|copied| copied.next_offset).max().unwrap_or(0)
    }

    /// Copies what is in files and not in the copy. Returns how many bytes that were: few, and it
    /// is time to close the log.
    pub async fn pass(&mut self, pace: Pace<'_>) -> Result<u64, LogError> {
        self.log.0.check_open()?;
        let mut total = 0;
        for source in self.sources() {
            let done = self.copied.get(&source.base).copied();
            if done.is_some_and(|done| done.whole) {
                continue;
            }
            let from = done.map_or(0, |done| done.bytes);
            match self.copy_segment(&source, from, pace).await {
                Ok(bytes) => total += bytes,
                // Retention took it.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.copied.remove(&source.base);
                }
                Err(error) => {
                    return Err(self.log.0.storage_error("copying to another disk", error).into());
                }
            }
        }
        Ok(total)
    }

    fn sources(&self) -> Vec<Source> {
        let state = self.log.0.state.borrow();
        let segments = state.segments.iter().filter(|s| s.exists);
        let source = |s: &crate::segment::Segment| {
            let bytes = if s.sealed { s.size } else { block_floor(s.written) };
            let all = s.sealed || s.written == s.size;
            let next_offset = if all { s.next_offset } else { state.written_end.max(s.base) };
            Source { base: s.base, sealed: s.sealed, bytes: bytes.into(), next_offset }
        };
        segments.map(source).collect()
    }

    async fn copy_segment(
        &mut self,
        source: &Source,
        from: u64,
        pace: Pace<'_>,
    ) -> io::Result<u64> {
        let dir = self.log.dir();
        let path = |dir: &Path| file_path(dir, FileKind::Log, source.base);
        let (old, new) = (path(&dir), path(&self.target));
        let mut at = from / ALIGN as u64 * ALIGN as u64;
        let begin = at;
        while at < source.bytes {
            let to = (at + WINDOW as u64).min(source.bytes);
            check_room(&self.target, to - at, self.keep_free_bytes).await?;
            copy_range(&old, &new, at, to).await?;
            // What a pass has done is told while it goes on: a segment may take minutes.
            let so_far = Copied { bytes: to, whole: false, next_offset: source.base };
            self.copied.insert(source.base, so_far);
            if let Some(rate) = pace() {
                reactor::sleep(Duration::from_secs_f64((to - at) as f64 / rate.max(1) as f64))
                    .await;
            }
            at = to;
        }
        if source.sealed {
            finish_file(&new, source.bytes).await?;
            for kind in BESIDE {
                let (old, new) = (
                    file_path(&dir, kind, source.base),
                    file_path(&self.target, kind, source.base),
                );
                match copy_small(&old, &new).await {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        let copied =
            Copied { bytes: source.bytes, whole: source.sealed, next_offset: source.next_offset };
        self.copied.insert(source.base, copied);
        Ok(source.bytes.saturating_sub(begin))
    }

    /// Makes the copy of a log that was closed whole and durable. Whatever a crash leaves, the copy
    /// is either the same as the log or not used.
    pub async fn finish(self) -> io::Result<()> {
        let dir = self.log.dir();
        if self.log.0.replaced() != self.replaced {
            return Err(io::Error::other("segments were replaced while they were copied"));
        }
        let mut wanted = BTreeSet::new();
        for entry in fs::read_dir(&dir).await? {
            let found = classify(&entry.name);
            if entry.is_dir || found == Found::Leftover {
                continue;
            }
            if entry.name == PARTITION_METADATA {
                wanted.insert(entry.name);
                continue;
            }
            let (old, new) = (dir.join(&entry.name), self.target.join(&entry.name));
            wanted.insert(entry.name);
            let size = fs::metadata(&old).await?.size;
            let there = match fs::metadata(&new).await {
                Ok(there) => Some(there.size),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let copied = match found {
                Found::Of(_, base) => self.copied.get(&base).copied(),
                Found::Other | Found::Leftover => None,
            };
            if copied.is_some_and(|copied| copied.whole) && there == Some(size) {
                continue;
            }
            // A segment that was set aside is as large as any.
            if !matches!(found, Found::Of(FileKind::Log, _)) && size <= WINDOW as u64 {
                copy_small(&old, &new).await?;
                continue;
            }
            let from = copied.map_or(0, |copied| copied.bytes.min(size));
            let mut at = from / ALIGN as u64 * ALIGN as u64;
            while at < size {
                let to = (at + WINDOW as u64).min(size);
                copy_range(&old, &new, at, to).await?;
                at = to;
            }
            finish_file(&new, size).await?;
        }
        for entry in fs::read_dir(&self.target).await? {
            if !wanted.contains(&entry.name) {
                fs::remove_file(&self.target.join(&entry.name)).await?;
            }
        }
        fs::sync_dir(&self.target).await?;
        // Last of all: a copy that says whose it is is whole.
        if wanted.contains(PARTITION_METADATA) {
            let (old, new) = (dir.join(PARTITION_METADATA), self.target.join(PARTITION_METADATA));
            copy_small(&old, &new).await?;
            fs::sync_dir(&self.target).await?;
        }
        match self.target.parent() {
            Some(parent) => fs::sync_dir(parent).await,
            None => Ok(()),
        }
    }
}

/// Copies the bytes of a range that starts at a block. What is written behind it, to the end of its
/// last block, is cut off in the end or written over.
async fn copy_range(old: &Path, new: &Path, from: u64, to: u64) -> io::Result<()> {
    let reading = OpenOptions { direct: true, ..OpenOptions::for_reading() };
    let writing = OpenOptions { write: true, create: true, direct: true, ..OpenOptions::default() };
    let old = File::open(old, reading).await?;
    let new = File::open(new, writing).await?;
    let blocks = usize::try_from(to - from).unwrap_or(WINDOW).next_multiple_of(ALIGN);
    let (read, mut data) = old.read_at(AlignedBuf::with_capacity(blocks), from).await;
    if (read? as u64) < to - from {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "a segment became shorter"));
    }
    data.set_len(blocks);
    new.write_at(smallvec![WriteBuf::Aligned(data)], from, Durability::Written).await
}

async fn finish_file(path: &Path, size: u64) -> io::Result<()> {
    let file = File::open(path, OpenOptions::for_writing()).await?;
    file.set_len(size).await?;
    file.sync_all().await
}

async fn copy_small(old: &Path, new: &Path) -> io::Result<()> {
    let bytes = fs::read(old).await?;
    let options = OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let file = File::open(new, options).await?;
    if !bytes.is_empty() {
        let bytes = smallvec![WriteBuf::Bytes(Bytes::from(bytes))];
        file.write_at(bytes, 0, Durability::Written).await?;
    }
    file.sync_all().await
}
