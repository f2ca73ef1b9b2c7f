//! A partition's own checkpoint: all that opening it needs besides the names and sizes of its
//! files.
//!
//! Owns: the bytes of `corelane.checkpoint`, written whenever the recovery point moves. Pure. Where
//! the last segment ends exactly at `position`, nothing of the log is read when it is opened, after
//! a clean shutdown or a crash; where it goes on behind it, only that is scanned.
//!
//! ```text
//! big-endian
//! 0       4         6     10         26          34               42
//! | "CLCP" | version | crc | topic id | log start | recovery point |
//! 42     50         54             62              70           78
//! | base | position | newest time | its offset   | first time   | bytes since index entry u32 |
//! 82                90
//! | entries of .index u32, of .timeindex u32 |
//! | u8 1 | last .index entry u32 u32 |  or  | u8 0 |
//! | u8 1 | last .timeindex entry i64 u32 |  or  | u8 0 |
//! | u32 n | n leader epochs: i32 epoch, i64 start |
//! | u32 n | n bytes of the last partial block below position |
//! | u8 1 | u32 n | n bytes of a producer snapshot |  or  | u8 0 | (it is in `.snapshot`)
//! | u32 n | n segments: see `listed` |
//! | u32 n | n bytes of earlier batches of producers: see `earlier` |
//! ```
//! `crc` is a CRC-32C of all that follows it. The last two lines are new in version 2; a checkpoint
//! of version 1 vouches for no segment.

use bytes::{Buf, BufMut};
use thiserror::Error;
use wire::Uuid;

use crate::earlier::{EARLIER_BYTES_MAX, ProducersAt};
use crate::epochs::EpochStart;
use crate::index;
use crate::listed::{Listed, SEGMENTS_MAX};
use crate::segment::{Entries, Newest};
use crate::tail::{BLOCK, block_floor};
use crate::time_index;

/// In a partition's folder.
pub(crate) const FILE: &str = "corelane.checkpoint";

const MAGIC: [u8; 4] = *b"CLCP";
const VERSION: u16 = 2;
/// Without the list of segments and the earlier batches.
const FIRST_VERSION: u16 = 1;
/// Magic, version and checksum.
const HEAD: usize = 10;
/// A snapshot of more bytes is read from its own file.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 64 << 10;

/// The state of a log at its recovery point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) topic_id: Uuid,
    pub(crate) log_start: i64,
    pub(crate) recovery_point: i64,
    pub(crate) end: SegmentEnd,
    pub(crate) epochs: Vec<EpochStart>,
    /// `None`: too large, it is in the `.snapshot` file of the recovery point.
    pub(crate) producers: Option<Vec<u8>>,
    /// The segments below the recovery point, by growing base offset: the newest of them.
    pub(crate) segments: Vec<Listed>,
    /// Batches of producers before the last ones, as `earlier` has them.
    pub(crate) earlier: Vec<u8>,
}

/// What is known of the last segment up to the recovery point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    pub(crate) base: i64,
    /// Where the recovery point lies in the file.
    pub(crate) position: u32,
    pub(crate) newest: Newest,
    pub(crate) first_timestamp: i64,
    pub(crate) bytes_since_entry: u32,
    /// Entries in the index files.
    pub(crate) entries: Entries,
    pub(crate) last_offset_entry: Option<index::Entry>,
    pub(crate) last_time_entry: Option<time_index::Entry>,
    /// The bytes of the block that holds the position, which the next write repeats.
    pub(crate) seed: Vec<u8>,
}

/// Why a checkpoint is not used; the remedy is a longer scan.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Damage {
    #[error("it is too short")]
    Short,
    #[error("its first bytes or its version are not known")]
    Version,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("its fields contradict each other")]
    Contradiction,
}

impl Checkpoint {
    /// The same with these producers.
    pub(crate) fn with_producers(mut self, producers: &ProducersAt) -> Self {
        let ProducersAt { snapshot, earlier } = producers;
        self.producers = (snapshot.len() <= SNAPSHOT_BYTES_MAX).then(|| snapshot.clone());
        self.earlier = earlier.clone();
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.end.seed.len() + self.segments.len() * 24);
        out.put_slice(&MAGIC);
        out.put_u16(VERSION);
        out.put_u32(0);
        out.put_slice(&self.topic_id.0);
        out.put_i64(self.log_start);
        out.put_i64(self.recovery_point);
        let end = &self.end;
        out.put_i64(end.base);
        out.put_u32(end.position);
        out.put_i64(end.newest.timestamp);
        out.put_i64(end.newest.offset);
        out.put_i64(end.first_timestamp);
        out.put_u32(end.bytes_since_entry);
        out.put_u32(end.entries.offsets as u32);
        out.put_u32(end.entries.times as u32);
        out.put_u8(u8::from(end.last_offset_entry.is_some()));
        if let Some(entry) = end.last_offset_entry {
            out.put_u32(entry.offset);
            out.put_u32(entry.position);
        }
        out.put_u8(u8::from(end.last_time_entry.is_some()));
        if let Some(entry) = end.last_time_entry {
            out.put_i64(entry.timestamp);
            out.put_u32(entry.offset);
        }
        out.put_u32(self.epochs.len() as u32);
        for entry in &self.epochs {
            out.put_i32(entry.epoch);
            out.put_i64(entry.start_offset);
        }
        out.put_u32(end.seed.len() as u32);
        out.put_slice(&end.seed);
        out.put_u8(u8::from(self.producers.is_some()));
        if let Some(snapshot) = &self.producers {
            out.put_u32(snapshot.len() as u32);
            out.put_slice(snapshot);
        }
        out.put_u32(self.segments.len() as u32);
        for listed in &self.segments {
            listed.encode(&mut out);
        }
        out.put_u32(self.earlier.len() as u32);
        out.put_slice(&self.earlier);
        let crc = crc32c::crc32c(out.get(HEAD..).unwrap_or_default());
        if let Some(field) = out.get_mut(HEAD - 4..HEAD) {
            field.copy_from_slice(&crc.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut input = bytes;
        let mut magic = [0; 4];
        input.try_copy_to_slice(&mut magic).map_err(short)?;
        let version = input.try_get_u16().map_err(short)?;
        if magic != MAGIC || !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(Damage::Version);
        }
        let crc = input.try_get_u32().map_err(short)?;
        if crc32c::crc32c(input) != crc {
            return Err(Damage::Checksum);
        }
        let mut topic_id = [0; 16];
        input.try_copy_to_slice(&mut topic_id).map_err(short)?;
        let log_start = input.try_get_i64().map_err(short)?;
        let recovery_point = input.try_get_i64().map_err(short)?;
        let mut end = decode_end(&mut input)?;
        let count = input.try_get_u32().map_err(short)? as usize;
        let mut epochs = Vec::new();
        for _ in 0..count {
            let epoch = input.try_get_i32().map_err(short)?;
            let start_offset = input.try_get_i64().map_err(short)?;
            epochs.push(EpochStart { epoch, start_offset });
        }
        end.seed = take(&mut input)?;
        let producers = match input.try_get_u8().map_err(short)? {
            0 => None,
            _ => Some(take(&mut input)?),
        };
        let (mut segments, mut earlier) = (Vec::new(), Vec::new());
        if version > FIRST_VERSION {
            segments = decode_segments(&mut input)?;
            earlier = take(&mut input)?;
        }
        let whole = Checkpoint {
            topic_id: Uuid(topic_id),
            log_start,
            recovery_point,
            end,
            epochs,
            producers,
            segments,
            earlier,
        };
        if whole.is_consistent() { Ok(whole) } else { Err(Damage::Contradiction) }
    }

    fn is_consistent(&self) -> bool {
        let end = &self.end;
        let partial = end.position - block_floor(end.position);
        let shown = |last: bool, count: usize| last == (count > 0);
        end.base >= 0
            && self.recovery_point >= end.base
            && (self.recovery_point == end.base) == (end.position == 0)
            && end.seed.len() == partial as usize
            && partial < BLOCK
            && shown(end.last_offset_entry.is_some(), end.entries.offsets)
            && shown(end.last_time_entry.is_some(), end.entries.times)
            && self.segments.is_sorted_by(|a, b| a.base < b.base)
            && self.segments.last().is_none_or(|last| last.base < self.recovery_point)
            && self.earlier.len() <= EARLIER_BYTES_MAX
    }
}

fn decode_end(input: &mut &[u8]) -> Result<SegmentEnd, Damage> {
    let base = input.try_get_i64().map_err(short)?;
    let position = input.try_get_u32().map_err(short)?;
    let timestamp = input.try_get_i64().map_err(short)?;
    let newest = Newest { timestamp, offset: input.try_get_i64().map_err(short)? };
    let first_timestamp = input.try_get_i64().map_err(short)?;
    let bytes_since_entry = input.try_get_u32().map_err(short)?;
    let offsets = input.try_get_u32().map_err(short)? as usize;
    let times = input.try_get_u32().map_err(short)? as usize;
    let last_offset_entry = match input.try_get_u8().map_err(short)? {
        0 => None,
        _ => {
            let offset = input.try_get_u32().map_err(short)?;
            Some(index::Entry { offset, position: input.try_get_u32().map_err(short)? })
        }
    };
    let last_time_entry = match input.try_get_u8().map_err(short)? {
        0 => None,
        _ => {
            let timestamp = input.try_get_i64().map_err(short)?;
            Some(time_index::Entry { timestamp, offset: input.try_get_u32().map_err(short)? })
        }
    };
    Ok(SegmentEnd {
        base,
        position,
        newest,
        first_timestamp,
        bytes_since_entry,
        entries: Entries { offsets, times },
        last_offset_entry,
        last_time_entry,
        seed: Vec::new(),
    })
}

fn decode_segments(input: &mut &[u8]) -> Result<Vec<Listed>, Damage> {
    let count = input.try_get_u32().map_err(short)? as usize;
    if count > SEGMENTS_MAX {
        return Err(Damage::Contradiction);
    }
    (0..count).map(|_| Listed::decode(input).map_err(short)).collect()
}

fn take(input: &mut &[u8]) -> Result<Vec<u8>, Damage> {
    let len = input.try_get_u32().map_err(short)? as usize;
    let (taken, rest) = input.split_at_checked(len).ok_or(Damage::Short)?;
    *input = rest;
    Ok(taken.to_vec())
}

fn short(_: bytes::TryGetError) -> Damage {
    Damage::Short
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample() -> Checkpoint {
        Checkpoint {
            topic_id: Uuid([7; 16]),
            log_start: 3,
            recovery_point: 120,
            end: SegmentEnd {
                base: 100,
                position: 4096 + 5,
                newest: Newest { timestamp: 1_000, offset: 119 },
                first_timestamp: 900,
                bytes_since_entry: 77,
                entries: Entries { offsets: 2, times: 1 },
                last_offset_entry: Some(index::Entry { offset: 9, position: 4000 }),
                last_time_entry: Some(time_index::Entry { timestamp: 1_000, offset: 9 }),
                seed: vec![1, 2, 3, 4, 5],
            },
            epochs: vec![EpochStart { epoch: 2, start_offset: 50 }],
            producers: Some(vec![9; 30]),
            segments: vec![
                Listed { base: 40, bytes: 800, newest: None },
                Listed {
                    base: 100,
                    bytes: 4096 + 5,
                    newest: Some(Newest { timestamp: 1_000, offset: 119 }),
                },
            ],
            earlier: vec![3; 35],
        }
    }

    #[test]
    fn it_reads_back_and_any_flip_or_cut_is_refused() {
        let mut without = sample();
        without.producers = None;
        without.end.entries = Entries::default();
        without.end.last_offset_entry = None;
        without.end.last_time_entry = None;
        without.segments.clear();
        without.earlier.clear();
        for checkpoint in [sample(), without] {
            let bytes = checkpoint.encode();
            assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x20;
                assert!(Checkpoint::decode(&flipped).is_err(), "byte {at}");
                assert!(Checkpoint::decode(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_refused() {
        let broken: [fn(&mut Checkpoint); 8] = [
            |c| c.end.seed.clear(),
            |c| c.recovery_point = 99,
            |c| c.end.entries.offsets = 0,
            |c| c.end.position = 0,
            |c| c.segments.reverse(),
            |c| c.segments[1].base = 120,
            |c| c.earlier = vec![0; EARLIER_BYTES_MAX + 1],
            |c| {
                let listed = |base| Listed { base, bytes: 1, newest: None };
                (c.recovery_point, c.end.base) = (1 << 20, 1 << 19);
                c.segments = (0..=SEGMENTS_MAX as i64).map(listed).collect();
            },
        ];
        for (n, change) in broken.into_iter().enumerate() {
            let mut checkpoint = sample();
            change(&mut checkpoint);
            let read = Checkpoint::decode(&checkpoint.encode());
            assert_eq!(read, Err(Damage::Contradiction), "change {n}");
        }
    }

    /// As earlier releases wrote it: everything up to the two new parts.
    #[test]
    fn version_1_is_read_and_vouches_for_nothing() {
        let mut old = sample();
        let mut bytes = old.encode();
        bytes.truncate(bytes.len() - (4 + 2 * 24) - (4 + old.earlier.len()));
        bytes[4..6].copy_from_slice(&FIRST_VERSION.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[HEAD..]);
        bytes[HEAD - 4..HEAD].copy_from_slice(&crc.to_be_bytes());
        old.segments.clear();
        old.earlier.clear();
        assert_eq!(Checkpoint::decode(&bytes), Ok(old));
        bytes[4..6].copy_from_slice(&(VERSION + 1).to_be_bytes());
        assert_eq!(Checkpoint::decode(&bytes), Err(Damage::Version));
    }

    proptest! {
        #[test]
        fn any_body_under_a_right_checksum_reads_without_a_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let mut bytes = sample().encode()[..HEAD].to_vec();
            bytes.extend_from_slice(&body);
            let crc = crc32c::crc32c(&body);
            bytes[HEAD - 4..HEAD].copy_from_slice(&crc.to_be_bytes());
            let _ = Checkpoint::decode(&bytes);
        }
    }
}
