//! The new segment of a group, while it is made: `.cleaned` files that count for nothing yet.
//!
//! Owns: the block-aligned writes of the `.log.cleaned` file and the indexes that grow with it.
//! When it is finished, everything is on the device; only names are missing. A crash leaves files
//! that the next opening removes.

use std::io;
use std::path::{Path, PathBuf};

use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf};
use smallvec::smallvec;
use wire::records::BatchHeader;

use crate::files::{check_room, remove_if_there, write_small};
use crate::names::{CLEANED_SUFFIX, FileKind, file_path, with_suffix};
use crate::segment::{Newest, Segment};
use crate::tail::BLOCK;
use crate::txn_index::{self, AbortedTxn};

/// One write.
const BUFFER: usize = 1 << 20;
/// Positions in the indexes are `i32`.
const MOST_BYTES: u64 = i32::MAX as u64;

pub(crate) struct Output {
    dir: PathBuf,
    file: File,
    /// `None` while the device takes it.
    buffer: Option<AlignedBuf>,
    filled: usize,
    written: u64,
    /// Sizes, offsets and indexes as batches come.
    segment: Segment,
    interval: u32,
    keep_free_bytes: u64,
    aborted: Vec<AbortedTxn>,
}

/// A new segment whose files are made and synced, under their `.cleaned` names.
pub(crate) struct Made {
    /// Bytes of the last write.
    pub(crate) moved: usize,
    pub(crate) base: i64,
    pub(crate) size: u32,
    pub(crate) newest: Option<Newest>,
    pub(crate) first_timestamp: i64,
}

impl Output {
    pub(crate) async fn create(
        dir: &Path,
        base: i64,
        interval: u32,
        keep_free_bytes: u64,
    ) -> io::Result<Output> {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            truncate: true,
            direct: true,
            ..OpenOptions::default()
        };
        let file = File::open(&cleaned(dir, FileKind::Log, base), options).await?;
        Ok(Output {
            dir: dir.to_path_buf(),
            file,
            buffer: Some(AlignedBuf::zeroed(BUFFER)),
            filled: 0,
            written: 0,
            segment: Segment::new(base, 0, 0),
            interval,
            keep_free_bytes,
            aborted: Vec::new(),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Adds a batch. Returns the bytes that went to the device.
    pub(crate) async fn add(&mut self, header: &BatchHeader, batch: &[u8]) -> io::Result<usize> {
        let position = self.bytes();
        if position + batch.len() as u64 > MOST_BYTES {
            return Err(io::Error::other("a compacted segment would pass 2 GiB"));
        }
        self.segment.note_batch(header, position as u32, self.interval);
        let (mut rest, mut moved) = (batch, 0);
        while !rest.is_empty() {
            let n = rest.len().min(BUFFER - self.filled);
            let (now, later) = rest.split_at(n);
            let room = self.buffer.as_mut().and_then(|b| b.get_mut(self.filled..self.filled + n));
            if let Some(room) = room {
                room.copy_from_slice(now);
            }
            self.filled += n;
            rest = later;
            if self.filled == BUFFER {
                moved += self.write(BUFFER).await?;
            }
        }
        Ok(moved)
    }

    /// An aborted transaction whose marker stays.
    pub(crate) fn note_aborted(&mut self, txn: AbortedTxn) {
        self.aborted.push(txn);
    }

    async fn write(&mut self, bytes: usize) -> io::Result<usize> {
        check_room(&self.dir, bytes as u64, self.keep_free_bytes).await?;
        let mut buffer = self.buffer.take().unwrap_or_else(|| AlignedBuf::zeroed(BUFFER));
        buffer.set_len(bytes);
        let bufs = smallvec![WriteBuf::Aligned(buffer)];
        self.file.write_at(bufs, self.written, Durability::Written).await?;
        self.written += self.filled as u64;
        self.filled = 0;
        self.buffer = Some(AlignedBuf::zeroed(BUFFER));
        Ok(bytes)
    }

    /// Writes what is left and the indexes, and syncs all of it. `replaces_txn_index`: the old
    /// segment has a transaction index, so the new one must have a file, even an empty one.
    pub(crate) async fn finish(mut self, replaces_txn_index: bool) -> io::Result<Made> {
        let size = self.bytes();
        let mut moved = 0;
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(BLOCK as usize);
            moved = self.write(padded).await?;
        }
        self.file.set_len(size).await?;
        self.file.sync_all().await?;
        self.file.close().await?;
        self.segment.finish_times();
        let base = self.segment.base;
        let indexes = self.segment.indexes.take().unwrap_or_default();
        let offsets = indexes.offsets.encode_from(0);
        write_small(&cleaned(&self.dir, FileKind::OffsetIndex, base), offsets, true).await?;
        let times = indexes.times.encode_from(0);
        write_small(&cleaned(&self.dir, FileKind::TimeIndex, base), times, true).await?;
        if replaces_txn_index || !self.aborted.is_empty() {
            let entries = txn_index::encode(&self.aborted);
            write_small(&cleaned(&self.dir, FileKind::TxnIndex, base), entries, true).await?;
        }
        Ok(Made {
            moved,
            base,
            size: size as u32,
            newest: self.segment.newest,
            first_timestamp: self.segment.first_timestamp,
        })
    }

    /// Removes what was made.
    pub(crate) async fn discard(self) -> io::Result<()> {
        let (dir, base) = (self.dir, self.segment.base);
        self.file.close().await?;
        remove(&dir, base).await
    }
}

/// Removes what a pass that fails has made of a segment: on a disk that is full, it is what the
/// next one needs. What cannot be removed now goes when the log is opened the next time.
pub(super) async fn remove_quietly(dir: &Path, base: i64) {
    if let Err(error) = remove(dir, base).await {
        tracing::warn!("{} not removed: {error}", cleaned(dir, FileKind::Log, base).display());
    }
}

/// Removes the `.cleaned` files of a segment.
pub(crate) async fn remove(dir: &Path, base: i64) -> io::Result<()> {
    for kind in FileKind::OF_SEGMENT {
        remove_if_there(&cleaned(dir, kind, base)).await?;
    }
    Ok(())
}

fn cleaned(dir: &Path, kind: FileKind, base: i64) -> PathBuf {
    with_suffix(&file_path(dir, kind, base), CLEANED_SUFFIX)
}
