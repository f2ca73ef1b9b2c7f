//! One segment of a log: what is known of its file, its newest bytes, its indexes.
//!
//! Owns: sizes and offsets of one `.log` file, its tail in memory, the index entries while they
//! are made. Pure bookkeeping: the appender writes the file, the keeper seals it.
//!
//! ```text
//! 0 ........... synced ... visible = written ........ size ........ prepared_end ........ reserved_end
//!   on the device          in the file                in memory     zeros or reserved     reserved
//! ```
//! `written` and `visible` always lie on a batch boundary. With `write.caching` `visible` runs
//! ahead of `written`; with a sync pending it lags behind.

use std::cell::Cell;
use std::rc::Rc;

use reactor::File;
use wire::records::BatchHeader;

use crate::checkpoint::Checkpoint;
use crate::config::LogConfig;
use crate::index::{self, OffsetIndex};
use crate::listed::Listed;
use crate::producer_map::ProducerMap;
use crate::tail::Tail;
use crate::time_index::{self, TimeIndex};
use crate::txn_index::Aborted;

pub(crate) const NO_TIMESTAMP: i64 = -1;

/// Both indexes of a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) offsets: OffsetIndex,
    pub(crate) times: TimeIndex,
}

impl Indexes {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.offsets.memory_bytes() + self.times.memory_bytes()
    }
}

/// How many entries of each index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) offsets: usize,
    pub(crate) times: usize,
}

/// What the index files of a segment lack.
pub(crate) struct Unsaved {
    pub(crate) base: i64,
    pub(crate) held: Rc<Indexes>,
    /// Entries of the files that are not in memory.
    pub(crate) below: Entries,
    /// Entries that the files hold, those not in memory included.
    pub(crate) saved: Entries,
}

impl Unsaved {
    /// Entries that the files hold once this is written.
    pub(crate) fn total(&self) -> Entries {
        Entries {
            offsets: self.below.offsets + self.held.offsets.len(),
            times: self.below.times + self.held.times.len(),
        }
    }
}

/// The largest record timestamp of a segment and the last offset of the batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
}

thread_local! {
    static NEXT_NUMBER: Cell<u64> = const { Cell::new(0) };
}

pub(crate) struct Segment {
    pub(crate) base: i64,
    /// Of this shard's segments since its start, also of those that came to the same place: what
    /// was read of one file must not pass for another's.
    pub(crate) number: u64,
    /// Offset after the last batch.
    pub(crate) next_offset: i64,
    pub(crate) size: u32,
    pub(crate) written: u32,
    pub(crate) visible: u32,
    pub(crate) synced: u32,
    pub(crate) tail: Tail,
    /// `None` for a sealed segment whose indexes are on disk and not in memory.
    pub(crate) indexes: Option<Rc<Indexes>>,
    /// Entries that lie before those in memory and are in the files only: of a segment that is
    /// still written but was idle or opened lately. The last entry always is in memory.
    pub(crate) below: Entries,
    /// How much of the indexes the files hold.
    pub(crate) saved: Entries,
    pub(crate) bytes_since_entry: u32,
    /// `None` until it is read from the time index of a sealed segment.
    pub(crate) newest: Option<Newest>,
    /// It comes from an index file: a help, never the truth.
    pub(crate) newest_is_indexed: bool,
    /// The first batch's timestamp; rolling by time counts from it.
    pub(crate) first_timestamp: i64,
    pub(crate) created_ms: i64,
    pub(crate) jitter_ms: i64,
    /// Open handle, if any.
    pub(crate) file: Option<File>,
    /// The file is there.
    pub(crate) exists: bool,
    /// The file was made ready to here ahead of the writes.
    pub(crate) prepared_end: u32,
    /// Space was reserved to here, of which the rest gets zeros when the writes come near; 0 if there is
    /// no rest.
    pub(crate) reserved_end: u32,
    /// Someone extends or cuts the file now.
    pub(crate) filling: bool,
    /// Whoever extends it has no write under way: appends go on behind the end of what is prepared.
    pub(crate) passable: bool,
    /// Extending failed; it is not tried again.
    pub(crate) fill_refused: bool,
    /// No more batches will come.
    pub(crate) full: bool,
    /// Trimmed, synced, indexes and snapshot written.
    pub(crate) sealed: bool,
    /// Aborted transactions whose marker is in this segment.
    pub(crate) aborted: Aborted,
    /// Producer state as of this segment's base offset, until it is written to a file.
    pub(crate) snapshot: Option<ProducerMap>,
}

impl Segment {
    /// A segment that will get its first batch at `base`.
    pub(crate) fn new(base: i64, now_ms: i64, jitter_ms: i64) -> Self {
        Segment {
            base,
            number: NEXT_NUMBER.replace(NEXT_NUMBER.get() + 1),
            next_offset: base,
            size: 0,
            written: 0,
            visible: 0,
            synced: 0,
            tail: Tail::default(),
            indexes: Some(Rc::default()),
            below: Entries::default(),
            saved: Entries::default(),
            bytes_since_entry: 0,
            newest: Some(Newest { timestamp: NO_TIMESTAMP, offset: base }),
            newest_is_indexed: false,
            first_timestamp: NO_TIMESTAMP,
            created_ms: now_ms,
            jitter_ms,
            file: None,
            exists: false,
            prepared_end: 0,
            reserved_end: 0,
            filling: false,
            passable: false,
            fill_refused: false,
            full: false,
            sealed: false,
            aborted: Aborted::default(),
            snapshot: None,
        }
    }

    /// A segment found on disk, complete and closed; its indexes are read when asked for.
    pub(crate) fn on_disk(base: i64, next_offset: i64, size: u32) -> Self {
        Segment {
            next_offset,
            size,
            written: size,
            visible: size,
            synced: size,
            tail: Tail::after(0, Vec::new()),
            indexes: None,
            newest: None,
            exists: true,
            prepared_end: size,
            full: true,
            sealed: true,
            aborted: Aborted::unknown(),
            ..Segment::new(base, 0, 0)
        }
    }

    /// What a checkpoint says of it up to `bytes`, below its recovery point.
    pub(crate) fn listed(&self, bytes: u32) -> Listed {
        let newest = self.newest.filter(|_| !self.newest_is_indexed && bytes == self.size);
        Listed { base: self.base, bytes, newest }
    }

    /// Takes over what a checkpoint knows of the segment up to its recovery point.
    pub(crate) fn resume(&mut self, checkpoint: &Checkpoint) {
        let end = &checkpoint.end;
        let mut held = Indexes::default();
        if let Some(entry) = end.last_offset_entry {
            held.offsets.push(entry);
        }
        if let Some(entry) = end.last_time_entry {
            held.times.push_if_later(entry);
        }
        self.next_offset = checkpoint.recovery_point;
        self.newest = Some(end.newest);
        self.first_timestamp = end.first_timestamp;
        self.bytes_since_entry = end.bytes_since_entry;
        self.below = Entries {
            offsets: end.entries.offsets - held.offsets.len(),
            times: end.entries.times - held.times.len(),
        };
        self.saved = end.entries;
        self.indexes = Some(Rc::new(held));
    }

    /// Says that the file ends at `size`, all of it written and synced, with `seed` in its last
    /// partial block.
    pub(crate) fn close_at(&mut self, size: u32, seed: Vec<u8>) {
        self.size = size;
        self.written = size;
        self.visible = size;
        self.synced = size;
        self.note_cut(size);
        self.exists = true;
        self.tail = Tail::after(size, seed);
    }

    /// Says that the file was cut to `size`, with whatever was behind.
    pub(crate) fn note_cut(&mut self, size: u32) {
        self.prepared_end = size;
        self.reserved_end = 0;
    }

    /// Whether the file is longer than `size`.
    pub(crate) fn is_longer_than(&self, size: u32) -> bool {
        self.prepared_end.max(self.reserved_end) > size
    }

    /// An offset of this segment relative to its base.
    pub(crate) fn relative(&self, offset: i64) -> u32 {
        u32::try_from(offset.saturating_sub(self.base).max(0)).unwrap_or(u32::MAX)
    }

    /// Whether a batch has to go to a new segment.
    pub(crate) fn must_roll(&self, batch: &BatchHeader, config: &LogConfig, now_ms: i64) -> bool {
        let span = self.next_offset - self.base + i64::from(batch.last_offset_delta);
        if self.size == 0 {
            return span > i64::from(i32::MAX);
        }
        let size = u64::from(self.size) + batch.size_in_bytes() as u64;
        size > u64::from(config.segment_bytes)
            || span > i64::from(i32::MAX)
            || self.is_too_old(batch.max_timestamp, config, now_ms)
            || self.index_is_full(config)
    }

    /// Kafka counts in record time where records have times, else in wall-clock time.
    fn is_too_old(&self, timestamp: i64, config: &LogConfig, now_ms: i64) -> bool {
        let age = if self.first_timestamp >= 0 && timestamp >= 0 {
            timestamp.saturating_sub(self.first_timestamp)
        } else {
            now_ms.saturating_sub(self.created_ms)
        };
        age > config.roll_ms().saturating_sub(self.jitter_ms)
    }

    fn index_is_full(&self, config: &LogConfig) -> bool {
        let Some(indexes) = &self.indexes else { return false };
        let bytes = config.segment_index_bytes as usize;
        // One entry of the time index is kept free for the last one, which is forced at the roll.
        indexes.offsets.len() + self.below.offsets >= (bytes / index::ENTRY_BYTES).max(1)
            || indexes.times.len() + self.below.times + 1
                >= (bytes / time_index::ENTRY_BYTES).max(2)
    }

    /// Notes a batch that starts at `position`; its base offset is assigned already.
    pub(crate) fn note_batch(&mut self, batch: &BatchHeader, position: u32, interval: u32) {
        let last = batch.last_offset();
        if self.first_timestamp < 0 {
            self.first_timestamp = batch.max_timestamp;
        }
        let mut newest = self.newest.unwrap_or(Newest { timestamp: NO_TIMESTAMP, offset: last });
        if batch.max_timestamp > newest.timestamp {
            newest = Newest { timestamp: batch.max_timestamp, offset: last };
        }
        self.newest = Some(newest);
        if self.bytes_since_entry > interval {
            let offset = self.relative(last);
            let time = time_index::Entry {
                timestamp: newest.timestamp,
                offset: self.relative(newest.offset),
            };
            if let Some(indexes) = &mut self.indexes {
                let indexes = Rc::make_mut(indexes);
                indexes.offsets.push(index::Entry { offset, position });
                indexes.times.push_if_later(time);
            }
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry =
            self.bytes_since_entry.saturating_add(batch.size_in_bytes() as u32);
        self.next_offset = last + 1;
    }

    /// The time index gets the largest timestamp as its last entry.
    pub(crate) fn finish_times(&mut self) {
        let Some(newest) = self.newest else { return };
        let entry =
            time_index::Entry { timestamp: newest.timestamp, offset: self.relative(newest.offset) };
        if let Some(indexes) = &mut self.indexes {
            Rc::make_mut(indexes).times.push_if_later(entry);
        }
    }

    /// Where the cached batch that contains `offset` starts (in a hole that compaction left: the
    /// batch behind it); `None` if it is not in memory. `hint` is a known batch start.
    pub(crate) fn cached_position_of(&self, offset: i64, hint: Option<u32>) -> Option<u32> {
        let from = self.tail.cached_from();
        let indexed = match (hint, &self.indexes) {
            (Some(hint), _) => hint,
            (None, Some(indexes)) => indexes.offsets.position_for(self.relative(offset)),
            (None, None) => 0,
        };
        let by_index = indexed >= from;
        let mut at = if by_index { indexed } else { self.tail.anchor()? };
        let mut header = self.tail.header_at(at)?;
        if !by_index && header.base_offset > offset {
            return None;
        }
        while header.last_offset() < offset {
            at += header.size_in_bytes() as u32;
            header = self.tail.header_at(at)?;
        }
        Some(at)
    }

    /// The end of the last whole batch at or below `limit`, for a read that starts at `from`.
    pub(crate) fn cached_boundary(&self, from: u32, limit: u32) -> u32 {
        let indexed = self.indexes.as_ref().map_or(0, |i| i.offsets.floor_position(limit));
        let mut at = if indexed >= from { indexed } else { from };
        while let Some(header) = self.tail.header_at(at) {
            let end = at + header.size_in_bytes() as u32;
            if end > limit {
                break;
            }
            at = end;
        }
        at
    }

    /// The start of the first cached batch at or behind `from` whose base offset reaches `offset`.
    pub(crate) fn cached_end_before(&self, from: u32, offset: i64) -> u32 {
        let indexed =
            self.indexes.as_ref().map_or(0, |i| i.offsets.position_for(self.relative(offset)));
        let mut at = if indexed >= from { indexed } else { from };
        while let Some(header) = self.tail.header_at(at) {
            if header.base_offset >= offset {
                break;
            }
            at += header.size_in_bytes() as u32;
        }
        at
    }

    /// Takes indexes that were made from the file up to `position`; what was noted behind stays.
    pub(crate) fn replace_indexes(&mut self, read: &Indexes, position: u32) {
        let old = self.indexes.take().unwrap_or_default();
        let mut indexes = read.clone();
        for entry in old.offsets.entries_from(position) {
            indexes.offsets.push(*entry);
        }
        let behind = read.offsets.last().map_or(0, |e| e.offset);
        let last = indexes.times.last().map_or(0, |e| e.offset).max(behind);
        for entry in old.times.entries_behind(last) {
            indexes.times.push_if_later(*entry);
        }
        let indexed = indexes.times.last().map(|entry| Newest {
            timestamp: entry.timestamp,
            offset: self.base + i64::from(entry.offset),
        });
        let noted = self.newest.filter(|newest| self.relative(newest.offset) > last);
        let none = Newest { timestamp: NO_TIMESTAMP, offset: self.base };
        self.newest =
            [indexed, noted].into_iter().flatten().max_by_key(|n| n.timestamp).or(Some(none));
        self.newest_is_indexed = false;
        self.below = Entries::default();
        self.saved = Entries::default();
        self.indexes = Some(Rc::new(indexes));
    }

    /// What the index files lack; `None` if the indexes are not in memory.
    pub(crate) fn unsaved(&self) -> Option<Unsaved> {
        let held = self.indexes.clone()?;
        Some(Unsaved { base: self.base, held, below: self.below, saved: self.saved })
    }

    /// Whether all entries of its indexes are in memory, or none.
    pub(crate) fn is_wholly_indexed(&self) -> bool {
        self.below == Entries::default()
    }

    /// Whether the index files lack entries, or were never made.
    pub(crate) fn lacks_index_files(&self) -> bool {
        self.unsaved().is_some_and(|unsaved| {
            let total = unsaved.total();
            let behind = total.offsets > self.saved.offsets || total.times > self.saved.times;
            behind || self.saved == Entries::default()
        })
    }

    /// Lets go of the entries that the files hold, up to the last one of each index. Returns
    /// whether there was anything to let go of.
    pub(crate) fn forget_saved_entries(&mut self) -> bool {
        let Some(unsaved) = self.unsaved() else { return false };
        let total = unsaved.total();
        if total != self.saved || unsaved.held.offsets.len() <= 1 {
            return false;
        }
        let mut kept = (*unsaved.held).clone();
        kept.offsets.keep_last();
        kept.times.keep_last();
        self.below = Entries {
            offsets: total.offsets - kept.offsets.len(),
            times: total.times - kept.times.len(),
        };
        self.indexes = Some(Rc::new(kept));
        true
    }

    /// Of a sealed segment the index is whole in memory or not at all. Returns its bytes in memory.
    pub(crate) fn settle_indexes(&mut self) -> usize {
        let saved = self.unsaved().is_some_and(|unsaved| unsaved.total() == self.saved);
        if saved && self.below != Entries::default() {
            self.below = Entries::default();
            self.indexes = None;
        }
        self.indexes.as_ref().map_or(0, |indexes| indexes.memory_bytes())
    }

    /// Puts entries read from the files before those in memory. `false`: they do not fit.
    pub(crate) fn restore_entries(&mut self, read: &Indexes) -> bool {
        let Some(held) = self.indexes.clone() else { return false };
        let mut whole = read.clone();
        whole.offsets.keep_first(self.below.offsets);
        whole.times.keep_first(self.below.times);
        if whole.offsets.len() != self.below.offsets || whole.times.len() != self.below.times {
            return false;
        }
        let joins = match (whole.offsets.last(), held.offsets.first()) {
            (Some(last), Some(next)) => last.offset < next.offset && last.position < next.position,
            _ => true,
        };
        if !joins {
            return false;
        }
        for entry in held.offsets.entries_from(0) {
            whole.offsets.push(*entry);
        }
        for entry in held.times.all() {
            whole.times.push_if_later(*entry);
        }
        self.below = Entries::default();
        self.indexes = Some(Rc::new(whole));
        true
    }

    /// Frees a chunk of the tail that is no longer needed; `false` if it is.
    pub(crate) fn evict(&mut self, chunk: u64, even_current: bool) -> bool {
        if !self.tail.can_evict(chunk, self.written, even_current) {
            return false;
        }
        let anchor = self.first_batch_from(self.tail.cached_from_after_eviction());
        self.tail.evict(anchor);
        if self.full {
            self.tail.forget_seed();
        }
        true
    }

    /// The first cached batch that starts at or behind `position`.
    fn first_batch_from(&self, position: u32) -> Option<u32> {
        let indexed = self.indexes.as_ref().map_or(0, |i| i.offsets.floor_position(position));
        let mut at =
            if indexed >= self.tail.cached_from() { indexed } else { self.tail.anchor()? };
        while at < position {
            at += self.tail.header_at(at)?.size_in_bytes() as u32;
        }
        Some(at).filter(|at| *at < self.tail.end())
    }

    /// How far the file may be read by those who wait for the topic's promise.
    pub(crate) fn readable(&self) -> u32 {
        self.visible.min(self.written)
    }

    /// Nothing of the segment waits to be written, and nobody extends its file.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.written == self.size && !self.filling
    }

    /// Lets go of what can be had again from disk.
    pub(crate) fn cool(&mut self, file: bool, indexes: bool) {
        if file {
            self.file = None;
        }
        if indexes && self.below == Entries::default() {
            self.indexes = None;
        }
    }
}
