//! The batches of producers that a `.snapshot` has no room for.
//!
//! Owns: the section of `corelane.checkpoint` with the batches before each producer's last one.
//! Kafka's snapshot keeps the last one only, but a client has up to five in flight: without these
//! its repetitions would be out of order after a clean restart or a move. Pure.
//!
//! ```text
//! one producer after the other, those that wrote last first
//! 0            8       10      11
//! | producer id | epoch | u8 n | n batches of 24 bytes, the oldest first
//! 0              8                    12               16          24
//! | first offset | last - first u32 | first sequence | timestamp |
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::{Buf, BufMut, TryGetError};

use crate::producer_map::Slot;
#[cfg(test)]
use crate::producer_snapshot::Encoder;
use crate::producer_state::{BATCHES_KEPT, BatchMeta, NONE, Producer, ProducerStates};

/// Most bytes of the section: some 600 producers. Those that were silent longest are left out, and
/// their repetitions are known as far as Kafka's snapshot goes.
pub(crate) const EARLIER_BYTES_MAX: usize = 64 << 10;

const PRODUCER_BYTES: usize = 11;
const BATCH_BYTES: usize = 24;
/// No more than these fit, each with one earlier batch.
const PRODUCERS_MAX: usize = EARLIER_BYTES_MAX / (PRODUCER_BYTES + BATCH_BYTES);

/// Producers as of an offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducersAt {
    /// The bytes of a `.snapshot`.
    pub(crate) snapshot: Vec<u8>,
    /// The batches before the last ones.
    pub(crate) earlier: Vec<u8>,
}

/// Those of the producers met so far that wrote last, of the ones that wrote several batches.
#[derive(Default)]
pub(crate) struct Earlier {
    /// The last offset, and where the producer is; the one to go first is on top.
    kept: BinaryHeap<Reverse<(i64, Place)>>,
}

/// Page and slot.
type Place = (usize, usize);

impl Earlier {
    pub(crate) fn offer(&mut self, producer: &Producer, place: Place) {
        let [_, .., last] = producer.batches() else { return };
        self.kept.push(Reverse((last.last_offset, place)));
        if self.kept.len() > PRODUCERS_MAX {
            self.kept.pop();
        }
    }

    pub(crate) fn encode<'a>(&mut self, at: impl Fn(Place) -> Option<&'a Slot>) -> Vec<u8> {
        let mut out = Vec::new();
        for Reverse((_, place)) in std::mem::take(&mut self.kept).into_sorted_vec() {
            let Some((id, producer)) = at(place) else { continue };
            let Some((_, earlier)) = producer.batches().split_last() else { continue };
            if out.len() + PRODUCER_BYTES + earlier.len() * BATCH_BYTES > EARLIER_BYTES_MAX {
                break;
            }
            out.put_i64(*id);
            out.put_i16(producer.epoch);
            out.put_u8(earlier.len() as u8);
            for batch in earlier {
                out.put_i64(batch.base_offset);
                out.put_u32(batch.last_offset.saturating_sub(batch.base_offset) as u32);
                out.put_i32(batch.first_sequence);
                out.put_i64(batch.timestamp);
            }
        }
        out
    }
}

impl ProducerStates {
    /// All there is to keep of the producers as they are.
    #[cfg(test)]
    fn at_this_offset(&self) -> ProducersAt {
        let mut encoder = Encoder::new(self.producers.clone());
        while encoder.step() {}
        encoder.finish()
    }

    /// Puts earlier batches before what a snapshot knew of their producers, where they belong to
    /// it: it may be an older one. Bytes that cannot be read end the section.
    pub(crate) fn restore_earlier(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Ok((id, epoch, earlier)) = decode_one(&mut bytes) else { return };
            let known = self.producers.get_mut(id).filter(|known| known.epoch == epoch);
            if let Some(producer) = known {
                producer.put_before(&earlier);
            }
        }
    }
}

impl Producer {
    fn put_before(&mut self, earlier: &[BatchMeta]) {
        let Some(first) = self.batches().first().copied() else { return };
        let mut known = self.clone();
        known.forget_batches();
        let fits = |batch: &&BatchMeta| batch.last_offset < first.base_offset;
        for batch in earlier.iter().filter(fits).chain(self.batches()) {
            known.push(*batch);
        }
        *self = known;
    }
}

fn decode_one(input: &mut &[u8]) -> Result<(i64, i16, Vec<BatchMeta>), TryGetError> {
    let (id, epoch) = (input.try_get_i64()?, input.try_get_i16()?);
    let count = input.try_get_u8()?;
    let mut batches = Vec::with_capacity(BATCHES_KEPT);
    for _ in 0..count {
        let base_offset = input.try_get_i64()?;
        let delta = input.try_get_u32()?;
        let first_sequence = input.try_get_i32()?;
        let timestamp = input.try_get_i64()?;
        if batches.len() < BATCHES_KEPT {
            batches.push(BatchMeta {
                first_sequence,
                last_sequence: sequence_behind(first_sequence, delta),
                base_offset,
                last_offset: base_offset.saturating_add(delta.into()),
                timestamp,
            });
        }
    }
    Ok((id, epoch, batches))
}

/// The sequence `delta` behind `sequence` on the circle; batches without one have none.
fn sequence_behind(sequence: i32, delta: u32) -> i32 {
    if sequence == NONE {
        return NONE;
    }
    (i64::from(sequence) + i64::from(delta)).rem_euclid(1 << 31) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer_state::{ProducerBatch, Sequenced};
    use proptest::prelude::*;

    fn batch(producer_id: i64, sequence: i32, offset: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id,
            epoch: 1,
            first_sequence: sequence,
            last_sequence: sequence_behind(sequence, 2),
            base_offset: offset,
            last_offset: offset + 2,
            max_timestamp: 1_000 + offset,
            transactional: false,
        }
    }

    fn read_back(states: &ProducerStates) -> ProducerStates {
        let ProducersAt { snapshot, earlier } = states.at_this_offset();
        let mut read = ProducerStates::decode(&snapshot).unwrap();
        read.restore_earlier(&earlier);
        read
    }

    #[test]
    fn the_last_five_batches_read_back_also_over_the_end_of_sequences() {
        let mut states = ProducerStates::default();
        let first = i32::MAX - 7;
        let sent: Vec<_> =
            (0..7).map(|n| batch(4, sequence_behind(first, n * 3), i64::from(n) * 10)).collect();
        for (n, batch) in sent.iter().enumerate() {
            states.update(batch);
            assert_eq!(read_back(&states), states, "after {n}");
        }
        let read = read_back(&states);
        for batch in &sent[2..] {
            match read.check(batch) {
                Ok(Sequenced::Duplicate(meta)) => {
                    assert_eq!(
                        (meta.base_offset, meta.timestamp),
                        (batch.base_offset, batch.max_timestamp)
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(read.check(&sent[1]).is_err());
    }

    #[test]
    fn batches_of_another_epoch_or_behind_the_snapshot_are_left_out() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 0, 0));
        states.update(&batch(1, 3, 10));
        let older = states.encode();
        states.update(&batch(1, 6, 20));
        states.update(&batch(1, 9, 30));
        let earlier = states.at_this_offset().earlier;
        let mut read = ProducerStates::decode(&older).unwrap();
        read.restore_earlier(&earlier);
        assert!(matches!(read.check(&batch(1, 0, 0)), Ok(Sequenced::Duplicate(_))));
        assert!(matches!(read.check(&batch(1, 3, 0)), Ok(Sequenced::Duplicate(_))));
        assert_eq!(read.check(&batch(1, 6, 0)), Ok(Sequenced::Next));
        let mut raised = ProducerStates::default();
        raised.update(&ProducerBatch { epoch: 2, ..batch(1, 0, 40) });
        let before = raised.clone();
        raised.restore_earlier(&earlier);
        assert_eq!(raised, before);
    }

    #[test]
    fn the_section_is_bounded_and_keeps_those_that_wrote_last() {
        let mut states = ProducerStates::default();
        for id in 0..2_000 {
            for n in 0..5 {
                states.update(&batch(id, n * 3, id * 100 + i64::from(n) * 10));
            }
        }
        let earlier = states.at_this_offset().earlier;
        let one = PRODUCER_BYTES + 4 * BATCH_BYTES;
        assert!(earlier.len() <= EARLIER_BYTES_MAX && earlier.len() + one > EARLIER_BYTES_MAX);
        let read = read_back(&states);
        let knows = |id| matches!(read.check(&batch(id, 0, 0)), Ok(Sequenced::Duplicate(_)));
        let known = (earlier.len() / one) as i64;
        assert!((2_000 - known..2_000).all(knows));
        assert!(!(0..2_000 - known).any(knows));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut states = ProducerStates::default();
            states.update(&batch(0, 0, 0));
            states.restore_earlier(&bytes);
            prop_assert_eq!(states.len(), 1);
        }
    }
}
