//! What the leader remembers of idempotent producers, and the `.snapshot` file of it.
//!
//! Owns: the last five batches of each producer, the decision whether a batch is the next one, a
//! repetition or out of order (KIP-98), expiry, and Kafka's snapshot format. Pure: the time is an
//! argument.
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

use std::collections::VecDeque;

use ahash::AHashMap;
use thiserror::Error;

/// Kafka's clients keep at most five produce requests in flight, so a retry is among these.
const BATCHES_KEPT: usize = 5;
const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER: usize = 10;
const SNAPSHOT_ENTRY: usize = 46;
/// Bytes of the header that the checksum does not cover.
const UNCHECKED: usize = 6;

/// The producer's part of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    pub producer_id: i64,
    pub epoch: i16,
    pub first_sequence: i32,
    /// Wraps from `i32::MAX` to 0.
    pub last_sequence: i32,
    pub base_offset: i64,
    pub last_offset: i64,
    pub max_timestamp: i64,
}

/// A batch as remembered: enough to answer its repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: i64,
    pub last_offset: i64,
    pub timestamp: i64,
}

/// A batch that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    Next,
    /// Taken before: answer with what was answered then.
    Duplicate(BatchMeta),
}

/// Why a batch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProducerRejection {
    #[error(
        "producer {producer_id} sent sequence {got} where {expected} is next; it lost a batch and must reset"
    )]
    OutOfOrder { producer_id: i64, expected: i32, got: i32 },
    #[error(
        "producer {producer_id} sent epoch {got} but epoch {current} is known; a newer instance took over"
    )]
    InvalidEpoch { producer_id: i64, current: i16, got: i16 },
    #[error(
        "producer {producer_id} repeated sequence {first_sequence}, which is older than the last five batches"
    )]
    DuplicateTooOld { producer_id: i64, first_sequence: i32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    batches: VecDeque<BatchMeta>,
    last_timestamp: i64,
    coordinator_epoch: i32,
    /// First offset of the open transaction.
    open_txn: Option<i64>,
}

/// Every producer of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    producers: AHashMap<i64, Producer>,
}

impl ProducerStates {
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Whether `batch` may be appended. Offsets of `batch` are not looked at.
    pub fn check(&self, batch: &ProducerBatch) -> Result<Sequenced, ProducerRejection> {
        let producer_id = batch.producer_id;
        let Some(known) = self.producers.get(&producer_id) else {
            // The log may have been trimmed past this producer's batches: any sequence will do.
            return Ok(Sequenced::Next);
        };
        if batch.epoch < known.epoch {
            let (current, got) = (known.epoch, batch.epoch);
            return Err(ProducerRejection::InvalidEpoch { producer_id, current, got });
        }
        let out_of_order = |expected| {
            let got = batch.first_sequence;
            Err(ProducerRejection::OutOfOrder { producer_id, expected, got })
        };
        if batch.epoch > known.epoch {
            return if batch.first_sequence == 0 { Ok(Sequenced::Next) } else { out_of_order(0) };
        }
        let Some(last) = known.batches.back() else { return Ok(Sequenced::Next) };
        let repeated = known.batches.iter().rev().find(|meta| {
            meta.first_sequence == batch.first_sequence && meta.last_sequence == batch.last_sequence
        });
        if let Some(meta) = repeated {
            return Ok(Sequenced::Duplicate(*meta));
        }
        let expected = next_sequence(last.last_sequence);
        if batch.first_sequence == expected {
            return Ok(Sequenced::Next);
        }
        let oldest = known.batches.front().map_or(0, |meta| meta.first_sequence);
        if is_before(batch.last_sequence, oldest) {
            let first_sequence = batch.first_sequence;
            return Err(ProducerRejection::DuplicateTooOld { producer_id, first_sequence });
        }
        out_of_order(expected)
    }

    /// Remembers a batch that was appended, or that recovery read.
    pub fn update(&mut self, batch: &ProducerBatch) {
        let producer = self.producers.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.epoch,
            batches: VecDeque::new(),
            last_timestamp: batch.max_timestamp,
            coordinator_epoch: -1,
            open_txn: None,
        });
        if producer.epoch != batch.epoch {
            producer.epoch = batch.epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == BATCHES_KEPT {
            producer.batches.pop_front();
        }
        producer.batches.push_back(BatchMeta {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence,
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            timestamp: batch.max_timestamp,
        });
        producer.last_timestamp = batch.max_timestamp;
    }

    /// Forgets producers that were silent for `expiration_ms` and have no open transaction.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, producer| {
            producer.open_txn.is_some()
                || now_ms.saturating_sub(producer.last_timestamp) < expiration_ms
        });
        before - self.producers.len()
    }

    /// The bytes of a `.snapshot` file; producers by growing id, so equal states give equal files.
    pub fn encode(&self) -> Vec<u8> {
        let mut ids: Vec<i64> = self.producers.keys().copied().collect();
        ids.sort_unstable();
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEADER + ids.len() * SNAPSHOT_ENTRY);
        bytes.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(ids.len() as i32).to_be_bytes());
        for id in ids {
            let Some(producer) = self.producers.get(&id) else { continue };
            encode_entry(id, producer, &mut bytes);
        }
        let crc = crc32c::crc32c(bytes.get(UNCHECKED..).unwrap_or_default());
        if let Some(field) = bytes.get_mut(2..UNCHECKED) {
            field.copy_from_slice(&crc.to_be_bytes());
        }
        bytes
    }

    /// Reads a `.snapshot` file.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotDamage> {
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
        let mut producers = AHashMap::with_capacity(body / SNAPSHOT_ENTRY);
        while !input.0.is_empty() {
            let (id, producer) = decode_entry(&mut input)?;
            producers.insert(id, producer);
        }
        Ok(ProducerStates { producers })
    }
}

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

fn next_sequence(sequence: i32) -> i32 {
    if sequence == i32::MAX { 0 } else { sequence + 1 }
}

/// Whether `a` lies before `b` on the circle of sequences (half of it counts as before).
fn is_before(a: i32, b: i32) -> bool {
    let distance = (i64::from(b) - i64::from(a)).rem_euclid(1 << 31);
    distance != 0 && distance < 1 << 30
}

fn encode_entry(id: i64, producer: &Producer, out: &mut Vec<u8>) {
    let last = producer.batches.back();
    let (sequence, offset, delta) = last.map_or((-1, -1, 0), |meta| {
        (meta.last_sequence, meta.last_offset, (meta.last_offset - meta.base_offset) as i32)
    });
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&producer.epoch.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&delta.to_be_bytes());
    out.extend_from_slice(&producer.last_timestamp.to_be_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&producer.open_txn.unwrap_or(-1).to_be_bytes());
}

fn decode_entry(input: &mut Input<'_>) -> Result<(i64, Producer), SnapshotDamage> {
    let id = i64::from_be_bytes(input.take()?);
    let epoch = i16::from_be_bytes(input.take()?);
    let last_sequence = i32::from_be_bytes(input.take()?);
    let last_offset = i64::from_be_bytes(input.take()?);
    let delta = i32::from_be_bytes(input.take()?);
    let timestamp = i64::from_be_bytes(input.take()?);
    let coordinator_epoch = i32::from_be_bytes(input.take()?);
    let open_txn = i64::from_be_bytes(input.take()?);
    let mut batches = VecDeque::new();
    if last_sequence >= 0 {
        let first = (i64::from(last_sequence) - i64::from(delta)).rem_euclid(1 << 31);
        batches.push_back(BatchMeta {
            first_sequence: first as i32,
            last_sequence,
            base_offset: last_offset.saturating_sub(i64::from(delta)),
            last_offset,
            timestamp,
        });
    }
    let open_txn = (open_txn >= 0).then_some(open_txn);
    Ok((id, Producer { epoch, batches, last_timestamp: timestamp, coordinator_epoch, open_txn }))
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
    use proptest::prelude::*;

    fn batch(id: i64, epoch: i16, first: i32, last: i32, offset: i64) -> ProducerBatch {
        let count = (i64::from(last) - i64::from(first)).rem_euclid(1 << 31);
        ProducerBatch {
            producer_id: id,
            epoch,
            first_sequence: first,
            last_sequence: last,
            base_offset: offset,
            last_offset: offset + count,
            max_timestamp: 1_000 + offset,
        }
    }

    #[test]
    fn sequences_follow_on_and_repetitions_get_the_first_answer() {
        let mut states = ProducerStates::default();
        for i in 0..7 {
            let next = batch(1, 0, i * 10, i * 10 + 9, i64::from(i) * 10);
            assert_eq!(states.check(&next), Ok(Sequenced::Next));
            states.update(&next);
        }
        match states.check(&batch(1, 0, 30, 39, 999)) {
            Ok(Sequenced::Duplicate(meta)) => {
                assert_eq!((meta.base_offset, meta.last_offset, meta.timestamp), (30, 39, 1_030));
            }
            other => panic!("{other:?}"),
        }
        let too_old = ProducerRejection::DuplicateTooOld { producer_id: 1, first_sequence: 0 };
        assert_eq!(states.check(&batch(1, 0, 0, 9, 0)), Err(too_old));
        let gap = ProducerRejection::OutOfOrder { producer_id: 1, expected: 70, got: 71 };
        assert_eq!(states.check(&batch(1, 0, 71, 79, 0)), Err(gap));
        let cut = ProducerRejection::OutOfOrder { producer_id: 1, expected: 70, got: 60 };
        assert_eq!(states.check(&batch(1, 0, 60, 64, 0)), Err(cut));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 0, i32::MAX - 1, i32::MAX, 0));
        assert_eq!(states.check(&batch(1, 0, 0, 4, 2)), Ok(Sequenced::Next));
        let mut states = ProducerStates::default();
        let wrapping = batch(1, 0, i32::MAX, 1, 0);
        states.update(&wrapping);
        assert_eq!(states.check(&batch(1, 0, 2, 2, 3)), Ok(Sequenced::Next));
        let read = ProducerStates::decode(&states.encode()).unwrap();
        assert!(matches!(read.check(&wrapping), Ok(Sequenced::Duplicate(_))));
    }

    #[test]
    fn epochs_fence_and_start_anew() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 3, 0, 9, 0));
        let fenced = ProducerRejection::InvalidEpoch { producer_id: 1, current: 3, got: 2 };
        assert_eq!(states.check(&batch(1, 2, 10, 19, 0)), Err(fenced));
        let not_zero = ProducerRejection::OutOfOrder { producer_id: 1, expected: 0, got: 10 };
        assert_eq!(states.check(&batch(1, 4, 10, 19, 0)), Err(not_zero));
        assert_eq!(states.check(&batch(1, 4, 0, 9, 0)), Ok(Sequenced::Next));
        states.update(&batch(1, 4, 0, 4, 10));
        assert_eq!(states.check(&batch(1, 4, 5, 9, 15)), Ok(Sequenced::Next));
        assert_eq!(states.check(&batch(2, 0, 77, 78, 0)), Ok(Sequenced::Next));
    }

    #[test]
    fn silent_producers_are_forgotten() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 0, 0, 0, 0));
        states.update(&batch(2, 0, 0, 0, 500));
        assert_eq!(states.expire(2_000, 600), 1);
        assert_eq!(states.check(&batch(1, 0, 5, 5, 0)), Ok(Sequenced::Next));
        assert!(states.check(&batch(2, 0, 5, 5, 0)).is_err());
    }

    #[test]
    fn the_snapshot_reads_back_and_damage_is_refused() {
        let mut states = ProducerStates::default();
        states.update(&batch(7, 1, 0, 9, 100));
        states.update(&batch(3, 0, 5, 5, 110));
        let bytes = states.encode();
        assert_eq!(bytes.len(), SNAPSHOT_HEADER + 2 * SNAPSHOT_ENTRY);
        assert_eq!(ProducerStates::decode(&bytes).unwrap(), states);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(ProducerStates::decode(&flipped).is_err(), "byte {at}");
            assert!(ProducerStates::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(ProducerStates::decode(&ProducerStates::default().encode()).unwrap().len(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..120)
        ) {
            let _ = ProducerStates::decode(&bytes);
        }
    }
}
