//! Producer states against a model that keeps every batch ever appended and reads the answer off
//! that history.

// Clippy lets tests unwrap, but does not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

use log::producer_state::{EndedBy, Marker, ProducerBatch, ProducerStates, Sequenced};
use proptest::prelude::*;

const SEQUENCES: i64 = 1 << 31;

#[derive(Clone, Debug)]
enum Operation {
    /// A batch: producer, how the epoch and the sequence stand to what would be right, size.
    Data {
        producer: usize,
        epoch: i16,
        sequence: i64,
        records: i64,
        transactional: bool,
    },
    /// Once more what was sent so many batches ago.
    Again {
        producer: usize,
        ago: usize,
    },
    End {
        producer: usize,
        epoch: i16,
    },
    Advance {
        by: i64,
    },
    /// Snapshot and restart: only the last batch of each producer is remembered.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Batch(ProducerBatch),
    Marker(Marker),
}

/// Everything in the log, and since when repetitions are remembered.
#[derive(Default)]
struct History {
    entries: Vec<Entry>,
    end: i64,
    high_watermark: i64,
    restarted_at: usize,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Next,
    Duplicate(i64),
    Refused,
}

impl History {
    fn of(&self, id: i64) -> impl DoubleEndedIterator<Item = (usize, Entry)> + '_ {
        self.entries.iter().copied().enumerate().filter(move |(_, entry)| match entry {
            Entry::Batch(batch) => batch.producer_id == id,
            Entry::Marker(marker) => marker.producer_id == id,
        })
    }

    fn epoch(&self, id: i64) -> Option<i16> {
        self.of(id).next_back().map(|(_, entry)| match entry {
            Entry::Batch(batch) => batch.epoch,
            Entry::Marker(marker) => marker.epoch,
        })
    }

    /// Batches since the producer's epoch last changed, the newest first.
    fn current(&self, id: i64) -> Vec<(usize, ProducerBatch)> {
        let epoch = self.epoch(id);
        let mut batches = Vec::new();
        for (index, entry) in self.of(id).rev() {
            match entry {
                Entry::Batch(batch) if Some(batch.epoch) == epoch => batches.push((index, batch)),
                Entry::Marker(marker) if Some(marker.epoch) == epoch => {}
                _ => break,
            }
        }
        batches
    }

    fn open_since(&self, id: i64) -> Option<i64> {
        let mut since = None;
        for (_, entry) in self.of(id) {
            match entry {
                Entry::Batch(batch) if batch.transactional => {
                    since = since.or(Some(batch.base_offset));
                }
                Entry::Batch(_) => {}
                Entry::Marker(_) => since = None,
            }
        }
        since
    }

    fn verdict(&self, batch: &ProducerBatch) -> Verdict {
        let id = batch.producer_id;
        let Some(epoch) = self.epoch(id) else { return Verdict::Next };
        let current = self.current(id);
        if batch.epoch == epoch {
            // Five are kept while running; a snapshot kept the last one of its time.
            let since_restart =
                current.iter().filter(|(index, _)| *index >= self.restarted_at).count();
            let kept = current.iter().take(5.min(since_restart + 1));
            for (_, known) in kept {
                if (known.first_sequence, known.last_sequence)
                    == (batch.first_sequence, batch.last_sequence)
                {
                    return Verdict::Duplicate(known.base_offset);
                }
            }
        }
        let expected = match current.first() {
            Some((_, last)) if batch.epoch == epoch => {
                (i64::from(last.last_sequence) + 1) % SEQUENCES
            }
            _ => 0,
        };
        let outside = self.open_since(id).is_some() && !batch.transactional;
        if batch.epoch < epoch || i64::from(batch.first_sequence) != expected || outside {
            return Verdict::Refused;
        }
        Verdict::Next
    }

    /// Lowest first offset of a transaction that is open, or whose marker is not visible.
    fn first_unstable(&self) -> Option<i64> {
        let mut ids: Vec<i64> = self
            .entries
            .iter()
            .map(|entry| match entry {
                Entry::Batch(batch) => batch.producer_id,
                Entry::Marker(marker) => marker.producer_id,
            })
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let mut unstable = Vec::new();
        for id in ids {
            unstable.extend(self.open_since(id));
            let mut since = None;
            for (index, entry) in self.of(id) {
                match entry {
                    Entry::Batch(batch) if batch.transactional => {
                        since = since.or(Some(batch.base_offset));
                    }
                    Entry::Batch(_) => {}
                    Entry::Marker(marker) => {
                        let hidden =
                            marker.offset >= self.high_watermark && index >= self.restarted_at;
                        unstable.extend(since.take().filter(|_| hidden));
                    }
                }
            }
        }
        unstable.into_iter().min()
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let producer = 0..3usize;
    prop_oneof![
        8 => (producer.clone(), 0..8i16, 0..8i64, 1..4i64, any::<bool>()).prop_map(
            |(producer, epoch, sequence, records, transactional)| Operation::Data {
                producer,
                // Mostly the right epoch and sequence.
                epoch: if epoch < 6 { 0 } else { epoch - 6 + i16::from(epoch == 7) - i16::from(epoch == 6) },
                sequence: if sequence < 6 { 0 } else { sequence * 2 - 13 },
                records,
                transactional,
            }
        ),
        3 => (producer.clone(), 0..9usize).prop_map(|(producer, ago)| Operation::Again { producer, ago }),
        3 => (producer, 0..2i16).prop_map(|(producer, epoch)| Operation::End { producer, epoch }),
        2 => (0..9i64).prop_map(|by| Operation::Advance { by }),
        1 => Just(Operation::Restart),
    ]
}

/// Sends a batch to both; they must agree on the verdict.
fn send(history: &mut History, states: &mut ProducerStates, batch: ProducerBatch) {
    let expected = history.verdict(&batch);
    let verdict = match states.check(&batch) {
        Ok(Sequenced::Next) => Verdict::Next,
        Ok(Sequenced::Duplicate(meta)) => Verdict::Duplicate(meta.base_offset),
        Err(_) => Verdict::Refused,
    };
    assert_eq!(verdict, expected, "{batch:?}");
    if verdict == Verdict::Next {
        states.update(&batch);
        history.entries.push(Entry::Batch(batch));
        history.end = batch.last_offset + 1;
    }
}

fn apply(history: &mut History, states: &mut ProducerStates, operation: &Operation) {
    let id = |producer: usize| 100 + producer as i64;
    match *operation {
        Operation::Data { producer, epoch, sequence, records, transactional } => {
            let id = id(producer);
            let known = history.epoch(id);
            let last = history.current(id).first().map(|(_, batch)| batch.last_sequence);
            // One producer begins just before the sequences wrap.
            let begin = if producer == 2 && known.is_none() { SEQUENCES - 3 } else { 0 };
            let next = last.map_or(begin, |last| i64::from(last) + 1);
            let first = (next + sequence).rem_euclid(SEQUENCES);
            let batch = ProducerBatch {
                producer_id: id,
                epoch: (known.unwrap_or(3) + epoch).max(0),
                first_sequence: first.try_into().unwrap(),
                last_sequence: ((first + records - 1) % SEQUENCES).try_into().unwrap(),
                base_offset: history.end,
                last_offset: history.end + records - 1,
                max_timestamp: history.end,
                transactional,
            };
            send(history, states, batch);
        }
        Operation::Again { producer, ago } => {
            let sent = history.of(id(producer)).rev().filter_map(|(_, entry)| match entry {
                Entry::Batch(batch) => Some(batch),
                Entry::Marker(_) => None,
            });
            let sent: Vec<ProducerBatch> = sent.collect();
            let Some(batch) = sent.get(ago).copied() else { return };
            let length = batch.last_offset - batch.base_offset;
            let (base_offset, last_offset) = (history.end, history.end + length);
            send(history, states, ProducerBatch { base_offset, last_offset, ..batch });
        }
        Operation::End { producer, epoch } => {
            let id = id(producer);
            let marker = Marker {
                producer_id: id,
                epoch: history.epoch(id).unwrap_or(0) + epoch,
                coordinator_epoch: 0,
                committed: true,
                offset: history.end,
                timestamp: history.end,
                raises_epoch: epoch == 1,
            };
            assert_eq!(states.check_marker(&marker, EndedBy::Coordinator), Ok(()));
            let since = history.open_since(id);
            let ended = states.end_transaction(&marker);
            assert_eq!(ended.map(|ended| ended.first_offset), since);
            history.entries.push(Entry::Marker(marker));
            history.end += 1;
        }
        Operation::Advance { by } => {
            history.high_watermark = history.end.min(history.high_watermark + by);
            states.advance_high_watermark(history.high_watermark);
        }
        Operation::Restart => {
            *states = ProducerStates::decode(&states.encode()).unwrap();
            history.restarted_at = history.entries.len();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn states_answer_as_the_whole_history_would(
        operations in proptest::collection::vec(operation(), 1..80)
    ) {
        let (mut history, mut states) = (History::default(), ProducerStates::default());
        for operation in &operations {
            apply(&mut history, &mut states, operation);
            prop_assert_eq!(states.first_unstable_offset(), history.first_unstable());
        }
    }
}
