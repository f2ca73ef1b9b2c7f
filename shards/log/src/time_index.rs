//! The sparse time index of one segment, in Kafka's `.timeindex` format.
//!
//! Owns: entries in memory, the file's bytes, the check of a file and the look-up. Pure.
//!
//! ```text
//! 12 bytes an entry, big-endian, timestamps strictly growing, offsets not falling
//! 0           8        12
//! | timestamp | offset |
//!   timestamp = largest record timestamp of the segment so far (i64)
//!   offset    = last offset of the batch that holds it, minus the segment's base offset (i32)
//! ```
//! An entry goes with each entry of the offset index; a last one is forced when the segment
//! closes, so the last entry names the largest timestamp of a closed segment.

use crate::index::IndexDamage;

pub(crate) const ENTRY_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) timestamp: i64,
    /// Relative to the segment's base offset.
    pub(crate) offset: u32,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TimeIndex {
    entries: Vec<Entry>,
}

impl TimeIndex {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn last(&self) -> Option<Entry> {
        self.entries.last().copied()
    }

    pub(crate) fn all(&self) -> &[Entry] {
        &self.entries
    }

    /// Only the last entry, which says what may come next.
    pub(crate) fn keep_last(&mut self) {
        let keep = self.entries.pop();
        self.entries = keep.into_iter().collect();
    }

    /// Only the first `count` entries.
    pub(crate) fn keep_first(&mut self, count: usize) {
        self.entries.truncate(count);
    }

    /// Adds an entry if its timestamp is larger than the last one's; records without a timestamp
    /// (-1) make none.
    pub(crate) fn push_if_later(&mut self, entry: Entry) {
        match self.entries.last() {
            Some(last) if entry.timestamp <= last.timestamp => {}
            Some(last) => {
                assert!(entry.offset >= last.offset);
                self.entries.push(entry);
            }
            None if entry.timestamp < 0 => {}
            None => self.entries.push(entry),
        }
    }

    /// The last entry below `timestamp`: every batch up to its offset is too old.
    pub(crate) fn entry_before(&self, timestamp: i64) -> Option<Entry> {
        let after = self.entries.partition_point(|e| e.timestamp < timestamp);
        after.checked_sub(1).and_then(|i| self.entries.get(i)).copied()
    }

    /// Entries behind a relative offset.
    pub(crate) fn entries_behind(&self, offset: u32) -> &[Entry] {
        let at = self.entries.partition_point(|e| e.offset <= offset);
        self.entries.get(at..).unwrap_or_default()
    }

    /// Forgets entries at or beyond a relative offset.
    pub(crate) fn truncate(&mut self, offset: u32) {
        let keep = self.entries.partition_point(|e| e.offset < offset);
        self.entries.truncate(keep);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The file's bytes from entry `from` on.
    pub(crate) fn encode_from(&self, from: usize) -> Vec<u8> {
        let entries = self.entries.get(from..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        for entry in entries {
            bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
            bytes.extend_from_slice(&entry.offset.to_be_bytes());
        }
        bytes
    }

    /// Reads a file's bytes; `offsets` is one past the last relative offset of the segment.
    pub(crate) fn decode(bytes: &[u8], offsets: u32) -> Result<Self, IndexDamage> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(IndexDamage::Size(bytes.len()));
        }
        let (raw, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let used = raw.iter().rposition(|e| *e != [0; ENTRY_BYTES]).map_or(0, |i| i + 1);
        let mut entries: Vec<Entry> = Vec::with_capacity(used);
        for (at, raw) in raw.iter().take(used).enumerate() {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *raw;
            let entry = Entry {
                timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
                offset: u32::from_be_bytes([i, j, k, l]),
            };
            if entry.offset >= offsets {
                return Err(IndexDamage::Bounds(at));
            }
            let grows = entries
                .last()
                .is_none_or(|last| entry.timestamp > last.timestamp && entry.offset >= last.offset);
            if !grows {
                return Err(IndexDamage::Order(at));
            }
            entries.push(entry);
        }
        Ok(TimeIndex { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> TimeIndex {
        let mut index = TimeIndex::default();
        for (timestamp, offset) in [(1_000, 4), (1_500, 9), (1_500, 12), (1_400, 15), (9_000, 20)] {
            index.push_if_later(Entry { timestamp, offset });
        }
        index
    }

    #[test]
    fn only_growing_timestamps_make_entries() {
        assert_eq!(sample().len(), 3);
        assert_eq!(sample().last(), Some(Entry { timestamp: 9_000, offset: 20 }));
    }

    #[test]
    fn look_up_starts_at_or_before_the_wanted_batch() {
        let index = sample();
        let table = [
            (0, None),
            (1_000, None),
            (1_001, Some(4)),
            (1_500, Some(4)),
            (1_501, Some(9)),
            (10_000, Some(20)),
        ];
        for (timestamp, offset) in table {
            let entry = index.entry_before(timestamp);
            assert_eq!(entry.map(|e| e.offset), offset, "timestamp {timestamp}");
        }
    }

    #[test]
    fn the_file_reads_back_and_damage_is_refused() {
        let index = sample();
        let mut bytes = index.encode_from(0);
        assert_eq!(bytes.len(), 36);
        assert_eq!(&bytes[..12], &[0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 4]);
        assert_eq!(TimeIndex::decode(&bytes, 21).unwrap(), index);
        assert_eq!(TimeIndex::decode(&bytes, 20), Err(IndexDamage::Bounds(2)));
        assert_eq!(TimeIndex::decode(&bytes[..35], 21), Err(IndexDamage::Size(35)));
        bytes.resize(36 + 12 * 9, 0);
        assert_eq!(TimeIndex::decode(&bytes, 21).unwrap(), index);
        bytes[12..20].fill(0);
        assert_eq!(TimeIndex::decode(&bytes, 21), Err(IndexDamage::Order(1)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_give_a_usable_index(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), end in any::<u32>()
        ) {
            if let Ok(index) = TimeIndex::decode(&bytes, end) {
                prop_assert!(index.entry_before(i64::MAX).is_none_or(|e| e.offset < end));
            }
        }
    }
}
