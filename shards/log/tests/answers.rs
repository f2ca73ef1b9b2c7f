//! Producer states and leader epochs against what Apache Kafka's own classes answered to the same
//! operations, recorded in `tests/golden/log/`.

// Clippy lets tests unwrap, but does not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

use log::epochs::LeaderEpochs;
use log::producer_state::{
    EndedBy, Marker, ProducerBatch, ProducerRejection, ProducerStates, Sequenced,
};

const PRODUCERS: &str = include_str!("../../../tests/golden/log/producers.txt");
const EPOCHS: &str = include_str!("../../../tests/golden/log/epochs.txt");
const EXPIRATION_MS: i64 = 60_000;

fn lines(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(" = ").unwrap())
}

fn numbers(fields: &[&str]) -> Vec<i64> {
    fields.iter().map(|field| field.parse().unwrap()).collect()
}

/// A log that keeps offsets only.
#[derive(Default)]
struct Model {
    states: ProducerStates,
    end: i64,
    high_watermark: i64,
    /// Kafka writes a snapshot only if the log has grown since the last.
    snapshot: (i64, String),
}

impl Model {
    fn answer(&mut self, operation: &str) -> String {
        let fields: Vec<&str> = operation.split(' ').collect();
        let (kind, fields) = fields.split_first().unwrap();
        let n = numbers(fields);
        let answer = match *kind {
            "data" => self.data(&n),
            "end" => self.end_transaction(&n),
            "high-watermark" => {
                self.high_watermark = self.end.min(self.high_watermark + n[0]);
                self.states.advance_high_watermark(self.high_watermark);
                self.high_watermark.to_string()
            }
            "expire" => {
                self.states.expire(n[0], EXPIRATION_MS);
                self.states.len().to_string()
            }
            _ => self.snapshot(),
        };
        let unstable = self.states.first_unstable_offset();
        let stable = unstable.map_or(self.high_watermark, |first| first.min(self.high_watermark));
        format!("{answer} | {stable} {}", unstable.unwrap_or(-1))
    }

    fn data(&mut self, n: &[i64]) -> String {
        let (sequence, records) = (n[2], n[3]);
        let batch = ProducerBatch {
            producer_id: n[0],
            epoch: n[1].try_into().unwrap(),
            first_sequence: sequence.try_into().unwrap(),
            last_sequence: ((sequence + records - 1) % (1 << 31)).try_into().unwrap(),
            base_offset: self.end,
            last_offset: self.end + records - 1,
            max_timestamp: n[5],
            transactional: n[4] == 1,
        };
        match self.states.check(&batch) {
            Ok(Sequenced::Next) => {
                self.states.update(&batch);
                self.end += records;
                format!("ok {}", batch.base_offset)
            }
            Ok(Sequenced::Duplicate(meta)) => {
                format!("duplicate {} {} {}", meta.base_offset, meta.last_offset, meta.timestamp)
            }
            Err(rejection) => refused(rejection),
        }
    }

    fn end_transaction(&mut self, n: &[i64]) -> String {
        let marker = Marker {
            producer_id: n[0],
            epoch: n[1].try_into().unwrap(),
            coordinator_epoch: n[2].try_into().unwrap(),
            committed: n[3] == 1,
            offset: self.end,
            timestamp: n[5],
            raises_epoch: n[4] == 2,
        };
        if let Err(rejection) = self.states.check_marker(&marker, EndedBy::Coordinator) {
            return refused(rejection);
        }
        self.states.end_transaction(&marker);
        self.end += 1;
        format!("ok {}", marker.offset)
    }

    fn snapshot(&mut self) -> String {
        let bytes = self.states.encode();
        let read = ProducerStates::decode(&bytes).unwrap();
        assert_eq!(read.encode(), bytes);
        if self.snapshot.0 < self.end {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            self.snapshot = (self.end, hex);
        }
        self.snapshot.1.clone()
    }
}

fn refused(rejection: ProducerRejection) -> String {
    let code = match rejection {
        ProducerRejection::OutOfOrder { .. } => 45,
        ProducerRejection::InvalidEpoch { .. } => 47,
        ProducerRejection::NotTransactional { .. } => 48,
        ProducerRejection::CoordinatorFenced { .. } => 52,
        ProducerRejection::OnlyByCoordinator { .. } => 31,
        ProducerRejection::TooManyOpen { .. } => 19,
    };
    format!("error {code}")
}

#[test]
fn producers_are_answered_as_by_kafka() {
    let mut model = Model::default();
    let mut seen = std::collections::BTreeMap::new();
    for (number, (operation, expected)) in lines(PRODUCERS).enumerate() {
        assert_eq!(model.answer(operation), expected, "{number}: {operation}");
        *seen.entry(expected.split([' ', '|']).next().unwrap()).or_insert(0) += 1;
    }
    for kind in ["ok", "duplicate", "error"] {
        assert!(seen.get(kind).is_some_and(|count| *count > 20), "{kind}: {seen:?}");
    }
}

#[test]
fn epochs_are_answered_as_by_kafka() {
    let mut epochs = LeaderEpochs::default();
    let mut seen = 0;
    for (number, (operation, expected)) in lines(EPOCHS).enumerate() {
        let fields: Vec<&str> = operation.split(' ').collect();
        let (kind, fields) = fields.split_first().unwrap();
        let n = numbers(fields);
        let epoch = i32::try_from(n[0]).unwrap();
        let listed = |epochs: &LeaderEpochs| {
            let entries = epochs.entries().iter();
            let entries = entries.map(|entry| format!("{}:{}", entry.epoch, entry.start_offset));
            entries.collect::<Vec<_>>().join(" ")
        };
        let answer = match *kind {
            "assign" => {
                epochs.assign(epoch, n[1]);
                listed(&epochs)
            }
            "truncate-end" => {
                epochs.truncate_end(n[0]);
                listed(&epochs)
            }
            "truncate-start" => {
                epochs.truncate_start(n[0]);
                listed(&epochs)
            }
            "end-of" => {
                let (epoch, end) = epochs.end_offset_for(epoch, n[1]);
                format!("{epoch} {end}")
            }
            _ => epochs.epoch_of(n[0]).to_string(),
        };
        assert_eq!(answer, expected, "{number}: {operation}");
        seen += 1;
    }
    assert!(seen > 500);
}
