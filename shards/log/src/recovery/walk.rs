//! Walking one segment from a trusted position to its end.

use std::io;
use std::rc::Rc;

use reactor::{ALIGN, AlignedBuf, File};

use super::Opening;
use super::inventory::OnDisk;
use crate::checkpoint::Checkpoint;
use crate::error::LogError;
use crate::indexes;
use crate::scan::{Found, Scanner};
use crate::segment::{Indexes, Newest, Segment};
use crate::tail::{BLOCK, block_floor};
use crate::txn_index;

/// How a walk through a segment ended.
pub(super) enum Ending {
    /// Exactly at the end of the file.
    Complete,
    /// At zeros: the prepared end of the last segment, or of one that a crash kept from its trim.
    Zeros,
    /// At something else that is no batch of this log.
    Cut(String),
}

/// What a walk takes for granted.
#[derive(Clone, Copy)]
pub(super) struct Trust {
    /// Check the checksum of every batch.
    pub(super) verify: bool,
    /// Offsets may leave holes (compaction).
    pub(super) holes: bool,
    /// Batches that start below are part of the loaded producer state.
    pub(super) producers_from: i64,
}

/// Where a walk through a segment starts, with what is known of the part before.
pub(super) struct Start<'c> {
    pub(super) position: u32,
    /// The offset of the batch there, if it must be that one.
    pub(super) expected: Option<i64>,
    before: Before<'c>,
}

/// What is known of the part of a segment before the start of a walk.
enum Before<'c> {
    Indexes(Indexes),
    Checkpoint(&'c Checkpoint),
}

/// Scans of more bytes than this take turns.
const LONG_SCAN: u32 = 1 << 20;

impl<'c> Start<'c> {
    pub(super) fn beginning(base: i64) -> Self {
        let before = Before::Indexes(Indexes::default());
        Start { position: 0, expected: Some(base), before }
    }

    /// At the recovery point.
    fn after(checkpoint: &'c Checkpoint) -> Self {
        let before = Before::Checkpoint(checkpoint);
        let expected = Some(checkpoint.recovery_point);
        Start { position: checkpoint.end.position, expected, before }
    }
}

impl Ending {
    pub(super) fn problem(&self) -> &str {
        match self {
            Ending::Complete => "nothing is wrong",
            Ending::Zeros => "zeros where a batch should be",
            Ending::Cut(problem) => problem,
        }
    }

    /// A segment is complete only if the next one goes on where it ends.
    pub(super) fn before(self, read: &Segment, next: Option<OnDisk>, holes: bool) -> Ending {
        let Some(next) = next else { return self };
        let end = read.next_offset;
        match self {
            Ending::Zeros if end == next.base => Ending::Complete,
            Ending::Complete if end == next.base || (holes && end < next.base) => self,
            Ending::Complete | Ending::Zeros => Ending::Cut(format!(
                "it ends at offset {end} but the next segment starts at {}",
                next.base
            )),
            Ending::Cut(_) => self,
        }
    }
}

/// Whether a segment is the one that a checkpoint ends in, and goes at least as far.
pub(super) fn reaches(segment: OnDisk, checkpoint: &Checkpoint) -> bool {
    segment.base == checkpoint.end.base && segment.size >= checkpoint.end.position
}

impl Opening {
    /// The recovery point of a checkpoint, where the segment reaches it and its index files do too.
    pub(super) async fn checkpointed_start<'c>(
        &self,
        segment: OnDisk,
        checkpoint: Option<&'c Checkpoint>,
    ) -> Option<Start<'c>> {
        let checkpoint = checkpoint.filter(|c| reaches(segment, c))?;
        let entries = checkpoint.end.entries;
        match indexes::cut(&self.dir, segment.base, entries).await {
            Ok(true) => Some(Start::after(checkpoint)),
            Ok(false) => None,
            Err(error) => {
                tracing::warn!(log = %self.name, segment = segment.base, "index not cut: {error}");
                None
            }
        }
    }

    /// The last index entry for batches below `limit`, if the files can be trusted that far.
    pub(super) async fn trusted_start(
        &self,
        segment: OnDisk,
        limit: i64,
    ) -> Result<Start<'static>, LogError> {
        let beginning = Start::beginning(segment.base);
        let read = indexes::read(&self.dir, segment.base, segment.size, i64::MAX).await;
        let read = read.map_err(|error| self.fail("reading an index", error))?;
        let mut indexes = match read {
            Ok(indexes) => indexes,
            Err(damage) => {
                if segment.size > 0 {
                    tracing::debug!(log = %self.name, segment = segment.base,
                        "index not used: {damage}");
                }
                return Ok(beginning);
            }
        };
        let span = u32::try_from(limit.saturating_sub(segment.base).max(0)).unwrap_or(u32::MAX);
        indexes.offsets.truncate_offsets(span);
        let Some(entry) = indexes.offsets.last() else { return Ok(beginning) };
        indexes.times.truncate(entry.offset + 1);
        let file = self.open_file(segment.base, false).await?;
        let mut scanner = Scanner::new(file, entry.position, segment.size);
        let found = scanner.next(false).await;
        let found = found.map_err(|error| self.fail("reading a segment", error))?;
        match found {
            Found::Batch(header, position)
                if header.last_offset() - segment.base == i64::from(entry.offset) =>
            {
                Ok(Start { position, expected: None, before: Before::Indexes(indexes) })
            }
            _ => {
                tracing::warn!(log = %self.name, segment = segment.base,
                    "index not used: its last entry does not point at its batch");
                Ok(beginning)
            }
        }
    }

    /// Reads batches from `start` to the end of the file or of what is good.
    pub(super) async fn walk(
        &mut self,
        on_disk: OnDisk,
        start: Start<'_>,
        trust: Trust,
    ) -> Result<(Segment, Ending), LogError> {
        let file = self.open_file(on_disk.base, false).await?;
        let mut segment = Segment::new(on_disk.base, self.now_ms, 0);
        match start.before {
            Before::Checkpoint(checkpoint) => segment.resume(checkpoint),
            Before::Indexes(indexes) => {
                if let Some(entry) = indexes.times.last() {
                    let offset = segment.base + i64::from(entry.offset);
                    segment.newest = Some(Newest { timestamp: entry.timestamp, offset });
                    segment.newest_is_indexed = true;
                }
                segment.indexes = Some(Rc::new(indexes));
                if start.position > 0 {
                    segment.first_timestamp = self.first_timestamp(&file, on_disk.size).await?;
                }
            }
        }
        let _turn = match trust.verify && on_disk.size - start.position > LONG_SCAN {
            true => Some(self.scan_turn().await?),
            false => None,
        };
        let mut scanner = Scanner::new(file.clone(), start.position, on_disk.size);
        let mut expected = start.expected;
        let ending = loop {
            self.check_wanted()?;
            let found = scanner.next(trust.verify).await;
            let found = found.map_err(|error| self.fail("reading a segment", error))?;
            let (header, position) = match found {
                Found::Batch(header, position) => (header, position),
                Found::End => break Ending::Complete,
                Found::Zeros => break Ending::Zeros,
                Found::Damage(problem) => break Ending::Cut(problem),
            };
            let base = header.base_offset;
            let follows = expected.is_none_or(|e| base == e || (trust.holes && base > e));
            let span = header.last_offset() - segment.base;
            if !follows || !(0..=i64::from(i32::MAX)).contains(&span) {
                let expected = expected.unwrap_or(segment.base);
                break Ending::Cut(format!("a batch has offset {base} where {expected} is next"));
            }
            segment.note_batch(&header, position, self.config.index_interval_bytes);
            segment.size = position + header.size_in_bytes() as u32;
            expected = Some(header.next_offset());
            if trust.verify {
                self.shared.note_scanned(header.size_in_bytes() as u64);
            }
            if base >= trust.producers_from {
                let ended = scanner.replay_producer(&header, position, &mut self.producers).await;
                let ended = ended.map_err(|error| self.fail("reading a segment", error))?;
                if let Some(entry) = ended.as_ref().and_then(txn_index::entry_of) {
                    segment.aborted.push(entry);
                }
            }
            self.epochs.replay(header.partition_leader_epoch, base);
        };
        self.report.bytes_scanned += u64::from(segment.size.max(start.position) - start.position);
        let size = segment.size.max(start.position);
        let seed = self.last_block(&file, size).await?;
        segment.close_at(size, seed);
        segment.file = Some(file);
        Ok((segment, ending))
    }

    /// The timestamp from which the segment's age counts.
    pub(super) async fn first_timestamp(&self, file: &File, size: u32) -> Result<i64, LogError> {
        let mut scanner = Scanner::new(file.clone(), 0, size.min(2 * BLOCK));
        match scanner.next(false).await {
            Ok(Found::Batch(header, _)) => Ok(header.max_timestamp),
            Ok(_) => Ok(crate::segment::NO_TIMESTAMP),
            Err(error) => Err(self.fail("reading a segment", error)),
        }
    }

    /// The bytes of the last partial block, which the next write repeats.
    pub(super) async fn last_block(&self, file: &File, size: u32) -> Result<Vec<u8>, LogError> {
        let from = block_floor(size);
        if from == size {
            return Ok(Vec::new());
        }
        let (result, buf) = file.read_at(AlignedBuf::with_capacity(ALIGN), u64::from(from)).await;
        result.map_err(|error| self.fail("reading the last block of a segment", error))?;
        match buf.get(..(size - from) as usize) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => {
                let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                Err(self.fail("reading the last block of a segment", short))
            }
        }
    }
}
