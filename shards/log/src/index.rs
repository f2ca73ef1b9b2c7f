//! The sparse offset index of one segment, in Kafka's `.index` format.
//!
//! Owns: entries in memory, the file's bytes, the check that a file read from disk can be
//! trusted, and the look-up. Pure: it never touches a disk.
//!
//! ```text
//! 8 bytes an entry, big-endian, offsets strictly growing
//! 0        4        8
//! | offset | position |
//!   offset   = last offset of the batch, minus the segment's base offset (i32, >= 0)
//!   position = where that batch starts in the .log file (i32, >= 0)
//! ```
//! A batch gets an entry when more than `index.interval.bytes` were written since the last one.

use thiserror::Error;

pub(crate) const ENTRY_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Last offset of the batch, relative to the segment's base offset.
    pub(crate) offset: u32,
    /// Start of that batch in the segment file.
    pub(crate) position: u32,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct OffsetIndex {
    entries: Vec<Entry>,
}

/// Why an index file cannot be trusted; the remedy is always to rebuild it from the segment.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum IndexDamage {
    #[error("its size {0} is not a multiple of an entry")]
    Size(usize),
    #[error("entry {0} does not grow on the one before it")]
    Order(usize),
    #[error("entry {0} is negative or beyond the end of the segment")]
    Bounds(usize),
    #[error("it is missing")]
    Missing,
}

impl OffsetIndex {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn last(&self) -> Option<Entry> {
        self.entries.last().copied()
    }

    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    /// Only the last entry, which says what may come next.
    pub(crate) fn keep_last(&mut self) {
        let keep = self.entries.pop();
        self.entries = keep.into_iter().collect();
    }

    /// Adds an entry. Entries that do not grow are a programmer's error.
    pub(crate) fn push(&mut self, entry: Entry) {
        if let Some(last) = self.entries.last() {
            assert!(entry.offset > last.offset && entry.position > last.position);
        }
        self.entries.push(entry);
    }

    /// Where to start looking for `offset` (relative): the start of the last indexed batch that
    /// ends at or before it, else the start of the segment.
    pub(crate) fn position_for(&self, offset: u32) -> u32 {
        self.entry_for(offset).map_or(0, |e| e.position)
    }

    /// The entry that says so; `None` for the start of the segment.
    pub(crate) fn entry_for(&self, offset: u32) -> Option<Entry> {
        let after = self.entries.partition_point(|e| e.offset <= offset);
        after.checked_sub(1).and_then(|i| self.entries.get(i)).copied()
    }

    /// The last indexed batch start at or below `position`.
    pub(crate) fn floor_position(&self, position: u32) -> u32 {
        let after = self.entries.partition_point(|e| e.position <= position);
        after.checked_sub(1).and_then(|i| self.entries.get(i)).map_or(0, |e| e.position)
    }

    /// Entries of batches that start at or behind `position`.
    pub(crate) fn entries_from(&self, position: u32) -> &[Entry] {
        let at = self.entries.partition_point(|e| e.position < position);
        self.entries.get(at..).unwrap_or_default()
    }

    /// Forgets entries of batches that end at or beyond a relative offset.
    pub(crate) fn truncate_offsets(&mut self, offset: u32) {
        let keep = self.entries.partition_point(|e| e.offset < offset);
        self.entries.truncate(keep);
    }

    /// Only the first `count` entries.
    pub(crate) fn keep_first(&mut self, count: usize) {
        self.entries.truncate(count);
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The file's bytes from entry `from` on.
    pub(crate) fn encode_from(&self, from: usize) -> Vec<u8> {
        let entries = self.entries.get(from..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        for entry in entries {
            bytes.extend_from_slice(&entry.offset.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// Reads a file's bytes; `segment_bytes` bounds the positions. Zeros at the end (Kafka sizes
    /// an active index ahead) are no entries.
    pub(crate) fn decode(bytes: &[u8], segment_bytes: u32) -> Result<Self, IndexDamage> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(IndexDamage::Size(bytes.len()));
        }
        let (raw, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let used = raw.iter().rposition(|e| *e != [0; ENTRY_BYTES]).map_or(0, |i| i + 1);
        let mut entries = Vec::with_capacity(used);
        for (at, [a, b, c, d, e, f, g, h]) in raw.iter().take(used).copied().enumerate() {
            let entry = Entry {
                offset: u32::from_be_bytes([a, b, c, d]),
                position: u32::from_be_bytes([e, f, g, h]),
            };
            if entry.offset > i32::MAX as u32 || entry.position >= segment_bytes {
                return Err(IndexDamage::Bounds(at));
            }
            let grows = entries.last().is_none_or(|last: &Entry| {
                entry.offset > last.offset && entry.position > last.position
            });
            if !grows {
                return Err(IndexDamage::Order(at));
            }
            entries.push(entry);
        }
        Ok(OffsetIndex { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> OffsetIndex {
        let mut index = OffsetIndex::default();
        for (offset, position) in [(9, 4_200), (19, 8_400), (49, 20_000)] {
            index.push(Entry { offset, position });
        }
        index
    }

    #[test]
    fn look_up_finds_the_last_batch_that_ends_at_or_before() {
        let index = sample();
        let table = [(0, 0), (8, 0), (9, 4_200), (18, 4_200), (19, 8_400), (1_000, 20_000)];
        for (offset, position) in table {
            assert_eq!(index.position_for(offset), position, "offset {offset}");
        }
        assert_eq!(index.floor_position(8_399), 4_200);
        assert_eq!(index.floor_position(8_400), 8_400);
    }

    #[test]
    fn the_file_reads_back_with_and_without_room_ahead() {
        let index = sample();
        let mut bytes = index.encode_from(0);
        assert_eq!(&bytes[..8], &[0, 0, 0, 9, 0, 0, 0x10, 0x68]);
        assert_eq!(OffsetIndex::decode(&bytes, 20_001).unwrap(), index);
        bytes.resize(bytes.len() + 8 * 100, 0);
        assert_eq!(OffsetIndex::decode(&bytes, 20_001).unwrap(), index);
        assert_eq!(index.encode_from(2).len(), 8);
        assert_eq!(index.encode_from(4).len(), 0);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let index = sample();
        let bytes = index.encode_from(0);
        assert_eq!(OffsetIndex::decode(&bytes[..23], 20_001), Err(IndexDamage::Size(23)));
        assert_eq!(OffsetIndex::decode(&bytes, 20_000), Err(IndexDamage::Bounds(2)));
        let mut swapped = bytes.clone();
        swapped[3] = 30;
        assert_eq!(OffsetIndex::decode(&swapped, 20_001), Err(IndexDamage::Order(1)));
        let mut hole = bytes;
        hole[8..16].fill(0);
        assert_eq!(OffsetIndex::decode(&hole, 20_001), Err(IndexDamage::Order(1)));
    }

    #[test]
    fn truncation_forgets_what_lies_beyond() {
        let mut index = sample();
        index.truncate_offsets(19);
        assert_eq!(index.last(), Some(Entry { offset: 9, position: 4_200 }));
        index.truncate_offsets(0);
        assert_eq!(index.len(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_give_a_usable_index(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), end in any::<u32>()
        ) {
            if let Ok(index) = OffsetIndex::decode(&bytes, end) {
                for offset in 0..100 {
                    prop_assert!(index.position_for(offset) <= end);
                }
            }
        }
    }
}
