//! The `.snapshot` file of a partition's producers, byte for byte Kafka's.
//!
//! ```text
//! 0         2     6       10
//! | version | crc | count | count entries of 46 bytes         (version = 1, big-endian)
//!             crc = CRC-32C of everything behind it
//! 0    8       10              14            22            26          34
//! | id | epoch | last sequence | last offset | offset delta | timestamp | ...
//!      34                  38                            46
//!   ...| coordinator epoch | first offset of the open txn | (-1 = none)
//! ```
//!
//! Only the last batch of a producer is kept. A snapshot is made and read in steps, since it may
//! have a hundred thousand producers and a shard does nothing else meanwhile. Pure; reading and
//! writing files is the log's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

use crate::earlier::{Earlier, ProducersAt};
use crate::producer_map::{ProducerMap, Slot};
use crate::producer_state::{BatchMeta, NONE, Producer, ProducerStates};

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER: usize = 10;
const SNAPSHOT_ENTRY: usize = 46;
/// Producers written or read in one step: some 100 µs.
pub(crate) const PRODUCERS_A_STEP: usize = 1_000;
/// Bytes of the header that the checksum does not cover.
const UNCHECKED: usize = 6;

/// Why a snapshot cannot be used; the remedy is an older one and a longer replay.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SnapshotDamage {
    #[error("it ends early")]
    Short,
    #[error("its version {0} is unknown")]
    Version(i16),
    #[error("its checksum is {stored:#010x} but its bytes give {actual:#010x}")]
    Checksum { stored: u32, actual: u32 },
    #[error("it announces {count} producers in {body} bytes")]
    Length { count: i32, body: usize },
}

impl ProducerStates {
    /// The bytes of a `.snapshot` file; producers by growing id, so equal states give equal files.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(self.producers.clone());
        while encoder.step() {}
        encoder.finish().snapshot
    }

    /// Reads a `.snapshot` file.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotDamage> {
        let mut decoder = Decoder::new(bytes)?;
        while decoder.step()? {}
        Ok(decoder.finish())
    }
}

/// Makes the bytes of a snapshot, and of what a checkpoint keeps beside it, some producers at a
/// time.
pub(crate) struct Encoder {
    producers: ProducerMap,
    /// Where each page has come to: id, page, slot. Pages are sorted, so the lowest id is the next
    /// one.
    next: BinaryHeap<Reverse<(i64, usize, usize)>>,
    earlier: Earlier,
    bytes: Vec<u8>,
    /// Of what is covered so far.
    crc: u32,
}

impl Encoder {
    /// `producers` may be changed meanwhile: this is a copy that shares what stays the same.
    pub(crate) fn new(producers: ProducerMap) -> Self {
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEADER + producers.len() * SNAPSHOT_ENTRY);
        bytes.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(producers.len() as i32).to_be_bytes());
        let crc = crc32c::crc32c(bytes.get(UNCHECKED..).unwrap_or_default());
        let pages = producers.pages().iter().enumerate();
        let firsts = pages.filter_map(|(page, slots)| Some(Reverse((slots.first()?.0, page, 0))));
        let next = firsts.collect();
        Encoder { producers, next, earlier: Earlier::default(), bytes, crc }
    }

    /// Returns whether there is more to do.
    pub(crate) fn step(&mut self) -> bool {
        let from = self.bytes.len();
        for _ in 0..PRODUCERS_A_STEP {
            let Some(Reverse((id, page, at))) = self.next.pop() else { break };
            let slots = self.producers.pages().get(page).map(|slots| &slots[..]);
            let Some([(_, producer), rest @ ..]) = slots.and_then(|slots| slots.get(at..)) else {
                continue;
            };
            encode_entry(id, producer, &mut self.bytes);
            self.earlier.offer(producer, (page, at));
            if let Some((id, _)) = rest.first() {
                self.next.push(Reverse((*id, page, at + 1)));
            }
        }
        self.crc = crc32c::crc32c_append(self.crc, self.bytes.get(from..).unwrap_or_default());
        !self.next.is_empty()
    }

    pub(crate) fn finish(mut self) -> ProducersAt {
        assert!(self.next.is_empty(), "a snapshot has all producers");
        if let Some(field) = self.bytes.get_mut(2..UNCHECKED) {
            field.copy_from_slice(&self.crc.to_be_bytes());
        }
        let at = |(page, at): (usize, usize)| -> Option<&Slot> {
            self.producers.pages().get(page)?.get(at)
        };
        let earlier = self.earlier.encode(at);
        ProducersAt { snapshot: self.bytes, earlier }
    }
}

/// Reads a snapshot some producers at a time.
pub(crate) struct Decoder<'a> {
    input: Input<'a>,
    states: ProducerStates,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, SnapshotDamage> {
        let mut input = Input(bytes);
        let version = i16::from_be_bytes(input.take()?);
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotDamage::Version(version));
        }
        let crc = u32::from_be_bytes(input.take()?);
        let actual = crc32c::crc32c(input.0);
        if crc != actual {
            return Err(SnapshotDamage::Checksum { stored: crc, actual });
        }
        let count = i32::from_be_bytes(input.take()?);
        let body = input.0.len();
        let whole = usize::try_from(count).ok().and_then(|n| n.checked_mul(SNAPSHOT_ENTRY));
        if whole != Some(body) {
            return Err(SnapshotDamage::Length { count, body });
        }
        Ok(Decoder { input, states: ProducerStates::default() })
    }

    /// Returns whether there is more to do.
    pub(crate) fn step(&mut self) -> Result<bool, SnapshotDamage> {
        for _ in 0..PRODUCERS_A_STEP {
            if self.input.0.is_empty() {
                return Ok(false);
            }
            let (id, producer) = decode_entry(&mut self.input)?;
            self.states.restore(id, producer);
        }
        Ok(true)
    }

    pub(crate) fn finish(self) -> ProducerStates {
        self.states
    }
}

fn encode_entry(id: i64, producer: &Producer, out: &mut Vec<u8>) {
    let last = producer.last();
    let (sequence, offset, delta) = last.map_or((NONE, i64::from(NONE), 0), |meta| {
        (meta.last_sequence, meta.last_offset, (meta.last_offset - meta.base_offset) as i32)
    });
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&producer.epoch.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&delta.to_be_bytes());
    out.extend_from_slice(&producer.last_timestamp.to_be_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&producer.open_since.unwrap_or(i64::from(NONE)).to_be_bytes());
}

fn decode_entry(input: &mut Input<'_>) -> Result<(i64, Producer), SnapshotDamage> {
    let id = i64::from_be_bytes(input.take()?);
    let mut producer = Producer::new(i16::from_be_bytes(input.take()?));
    let last_sequence = i32::from_be_bytes(input.take()?);
    let last_offset = i64::from_be_bytes(input.take()?);
    let delta = i32::from_be_bytes(input.take()?);
    producer.last_timestamp = i64::from_be_bytes(input.take()?);
    producer.coordinator_epoch = i32::from_be_bytes(input.take()?);
    let open_since = i64::from_be_bytes(input.take()?);
    producer.open_since = (open_since >= 0).then_some(open_since);
    if last_offset >= 0 {
        producer.push(BatchMeta {
            first_sequence: sequence_before(last_sequence, delta),
            last_sequence,
            base_offset: last_offset.saturating_sub(i64::from(delta)),
            last_offset,
            timestamp: producer.last_timestamp,
        });
    }
    Ok((id, producer))
}

/// The sequence `delta` before `sequence` on the circle; batches without one have none.
fn sequence_before(sequence: i32, delta: i32) -> i32 {
    if sequence == NONE {
        return NONE;
    }
    (i64::from(sequence) - i64::from(delta)).rem_euclid(1 << 31) as i32
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotDamage> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(SnapshotDamage::Short)?;
        self.0 = rest;
        Ok(*head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer_state::{Marker, ProducerBatch};
    use proptest::prelude::*;

    fn batch(producer_id: i64, sequence: i32, offset: i64, transactional: bool) -> ProducerBatch {
        ProducerBatch {
            producer_id,
            epoch: 1,
            first_sequence: sequence,
            last_sequence: sequence + 4,
            base_offset: offset,
            last_offset: offset + 4,
            max_timestamp: 1_000,
            transactional,
        }
    }

    #[test]
    fn the_snapshot_reads_back_and_damage_is_refused() {
        let mut states = ProducerStates::default();
        states.update(&batch(7, 0, 100, false));
        states.update(&batch(3, 5, 110, true));
        states.end_transaction(&Marker {
            producer_id: 9,
            epoch: 4,
            coordinator_epoch: 2,
            committed: false,
            offset: 115,
            timestamp: 1_001,
            raises_epoch: true,
        });
        let bytes = states.encode();
        assert_eq!(bytes.len(), SNAPSHOT_HEADER + 3 * SNAPSHOT_ENTRY);
        let read = ProducerStates::decode(&bytes).unwrap();
        assert_eq!(read, states);
        assert_eq!(read.first_unstable_offset(), Some(110));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(ProducerStates::decode(&flipped).is_err(), "byte {at}");
            assert!(ProducerStates::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(ProducerStates::decode(&ProducerStates::default().encode()).unwrap().len(), 0);
    }

    #[test]
    fn many_producers_are_written_and_read_in_steps_whatever_comes_meanwhile() {
        let mut states = ProducerStates::default();
        let count = 20_000;
        for id in 0..count {
            states.update(&batch(id * 3, 0, id * 10, id % 5 == 0));
        }
        let expected = states.encode();
        let mut encoder = Encoder::new(states.producers.clone());
        let (mut steps, mut written) = (0, encoder.bytes.len());
        loop {
            let more = encoder.step();
            let step = (encoder.bytes.len() - written) / SNAPSHOT_ENTRY;
            assert!(step <= PRODUCERS_A_STEP);
            (steps, written) = (steps + 1, encoder.bytes.len());
            if !more {
                break;
            }
            states.update(&batch(steps as i64 * 7, 5, 1_000_000, false));
        }
        assert!(steps >= count as usize / PRODUCERS_A_STEP);
        let bytes = encoder.finish().snapshot;
        assert!(bytes == expected, "what comes meanwhile is not in it");
        let mut decoder = Decoder::new(&bytes).unwrap();
        let mut read = 0;
        loop {
            let more = decoder.step().unwrap();
            assert!(decoder.states.len() - read <= PRODUCERS_A_STEP);
            read = decoder.states.len();
            if !more {
                break;
            }
        }
        assert_eq!(decoder.finish().encode(), expected);
    }

    #[test]
    fn counts_that_lie_are_refused() {
        let mut bytes = ProducerStates::default().encode();
        for count in [-1, 1, i32::MAX] {
            bytes[6..10].copy_from_slice(&count.to_be_bytes());
            let crc = crc32c::crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            let damage = SnapshotDamage::Length { count, body: 0 };
            assert_eq!(ProducerStates::decode(&bytes), Err(damage));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..120)
        ) {
            let _ = ProducerStates::decode(&bytes);
        }

        #[test]
        fn any_entries_under_a_right_checksum_read_without_a_panic(
            body in proptest::collection::vec(any::<u8>(), SNAPSHOT_ENTRY * 3)
        ) {
            let mut bytes = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 3];
            bytes.extend_from_slice(&body);
            let crc = crc32c::crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            let states = ProducerStates::decode(&bytes).unwrap();
            prop_assert!(states.len() <= 3);
        }
    }
}
