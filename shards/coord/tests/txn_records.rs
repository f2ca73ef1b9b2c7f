//! Partitions of `__transaction_state` that Apache Kafka 4.4.0 wrote while the lives of
//! `txn_lives.rs` ran against it, one for each level of `transaction.version`: read, written again
//! to the byte, and made again by this coordinator from the same requests. The long climbs to the
//! last epoch are left out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod txn_support;

use std::collections::BTreeMap;

use coord::txn::{TransactionVersion, TxnRecord};
use coord::{CoordError, Producer};
use txn_support::{ADD, Add, ID, INIT, Init, Rig};
use wire::ErrorCode;
use wire::messages as m;
use wire::records::batches;

const LOGS: [&[u8]; 3] = [
    include_bytes!("facts/kafka-4.4.0-transaction-state-v0.log"),
    include_bytes!("facts/kafka-4.4.0-transaction-state-v1.log"),
    include_bytes!("facts/kafka-4.4.0-transaction-state-v2.log"),
];
const RECORD_BYTES_MAX: usize = 1 << 20;
const STATES: [&str; 6] =
    ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"];

type Value = m::TransactionLogValue<'static>;

fn entries(log: &'static [u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    for batch in batches(log) {
        let batch = batch.unwrap();
        let mut records = batch.records(RECORD_BYTES_MAX).unwrap();
        while let Some(record) = records.next_record().unwrap() {
            entries.push((record.key.unwrap().to_vec(), record.value.unwrap().to_vec()));
        }
    }
    entries
}

#[test]
fn every_record_is_understood_and_written_the_same() {
    for (level, log) in LOGS.into_iter().enumerate() {
        let mut kinds: BTreeMap<i8, usize> = BTreeMap::new();
        for (key, value) in entries(log) {
            let record = TxnRecord::read(&key, Some(&value)).unwrap().expect("our type");
            assert_eq!(record.version, i16::from(level > 0));
            assert_eq!(record.to_bytes().unwrap(), (key.clone(), Some(value.clone())));
            *kinds.entry(record.value.unwrap().transaction_status).or_default() += 1;
        }
        assert_eq!(kinds.len(), STATES.len(), "every state that is logged: {kinds:?}");
    }
}

/// One transactional id that takes the steps of Kafka's records.
struct Again {
    rig: Rig,
    last: Value,
    /// What the producer had when it last asked for an ending or for another epoch.
    expected: Producer,
}

fn owner(value: &Value) -> Producer {
    Producer { id: value.producer_id, epoch: value.producer_epoch }
}

/// Kafka's sets have no order that means anything.
fn sorted(mut value: Value) -> Value {
    value.transaction_partitions = value.transaction_partitions.map(|topics| {
        let mut topics = topics.to_vec();
        for topic in &mut topics {
            let mut ids = topic.partition_ids.to_vec();
            ids.sort();
            topic.partition_ids = ids.into();
        }
        topics.sort_by_key(|topic| topic.topic.to_string());
        topics.into()
    });
    value
}

impl Again {
    /// From a record on, as the next coordinator would.
    fn from(level: i16, value: Value, key: &[u8], bytes: &[u8]) -> Self {
        let mut rig = Rig::new(TransactionVersion(level));
        rig.leaders_answer = false;
        rig.now_ms = value.transaction_last_update_timestamp_ms;
        rig.log.push((key.to_vec(), Some(bytes.to_vec())));
        rig.coordinator = rig.read_log();
        rig.coordinator.loaded(rig.now_ms);
        Again { rig, expected: owner(&value), last: value }
    }

    /// Asks for what must have led to the next record.
    fn step(&mut self, next: &Value) {
        let (from, to) = (owner(&self.last), owner(next));
        self.rig.now_ms = next.transaction_last_update_timestamp_ms;
        self.rig.cluster.next_id.set(next.next_producer_id.max(to.id));
        match STATES[usize::try_from(next.transaction_status).unwrap()] {
            "Empty" => {
                // The same again is what a producer is told that missed the answer.
                if to != from {
                    self.expected = from;
                }
                let init = Init { id: "id", expected: self.expected, ..INIT };
                let init = Init { timeout_ms: next.transaction_timeout_ms, ..init };
                assert_eq!(self.rig.init(&init), (ErrorCode::None, to));
            }
            "Ongoing" => {
                let topics = next.transaction_partitions.clone().unwrap().to_vec();
                let all: Vec<(&str, i32)> = topics
                    .iter()
                    .flat_map(|topic| topic.partition_ids.iter().map(|id| (&*topic.topic, id)))
                    .collect();
                let version = if next.client_transaction_version == 2 { 5 } else { 3 };
                let add = Add { id: "id", producer: from, version, partitions: &all, ..ADD };
                let codes = self.rig.add(&add);
                assert!(codes.iter().all(|code| *code == ErrorCode::None), "{codes:?}");
            }
            "PrepareCommit" | "PrepareAbort" => {
                let commit = next.transaction_status == 2;
                let old = next.client_transaction_version < 2;
                self.expected = from;
                if old && to != from {
                    let init = Init { id: "id", ..INIT };
                    assert_eq!(self.rig.init(&init).0, ErrorCode::ConcurrentTransactions);
                } else {
                    let request = m::EndTxnRequest {
                        transactional_id: "id".into(),
                        producer_id: from.id,
                        producer_epoch: from.epoch,
                        committed: commit,
                    };
                    let request = coord::txn::TxnRequest::EndTxn(&request);
                    self.rig.ask(request, if old { 4 } else { 5 });
                }
            }
            _ => {
                for marker in std::mem::take(&mut self.rig.markers) {
                    self.rig.answer(&marker, ErrorCode::None);
                }
            }
        }
    }
}

#[test]
fn the_same_requests_make_the_same_records() {
    for (level, log) in (0_i16..).zip(LOGS) {
        let mut ids: BTreeMap<Vec<u8>, Again> = BTreeMap::new();
        let mut made = 0;
        for (key, bytes) in entries(log) {
            let record = TxnRecord::read(&key, Some(&bytes)).unwrap().unwrap().into_owned();
            let value = record.value.clone().unwrap();
            let climbs = |it: &Again| value.producer_epoch - it.last.producer_epoch > 1;
            if ids.get(&key).is_none_or(climbs) {
                let own = TxnRecord {
                    key: m::TransactionLogKey { transactional_id: "id".into() },
                    ..record
                };
                let (own_key, own_bytes) = own.to_bytes().unwrap();
                let again = Again::from(level, value, &own_key, &own_bytes.unwrap());
                ids.insert(key, again);
                continue;
            }
            let again = ids.get_mut(&key).unwrap();
            let at = again.rig.log.len();
            // An ending of nothing is one step here, and two in Kafka.
            let done = again.last.transaction_status == 3
                && again.last.transaction_partitions.as_ref().unwrap().is_empty();
            if !done {
                again.step(&value);
            }
            let (own_key, own) = again.rig.log[if done { at - 1 } else { at }].clone();
            let own = own.unwrap();
            let own = TxnRecord::read(&own_key, Some(&own)).unwrap().unwrap().into_owned();
            let mut own = TxnRecord { key: record.key.clone(), value: own.value, ..own };
            if done {
                let at = value.transaction_last_update_timestamp_ms;
                own.value.as_mut().unwrap().transaction_last_update_timestamp_ms = at;
            }
            let theirs = TxnRecord { value: Some(sorted(value.clone())), ..record };
            assert_eq!(own.to_bytes().unwrap(), theirs.to_bytes().unwrap(), "{own:?}, {theirs:?}");
            again.last = value;
            made += 1;
        }
        assert!(made > 35, "{made} records made again");
    }
}

#[test]
fn the_next_coordinator_knows_what_kafkas_would() {
    for log in LOGS {
        let mut rig = Rig::new(TransactionVersion::V2);
        let mut last = BTreeMap::new();
        for (key, value) in entries(log) {
            last.insert(key.clone(), value.clone());
            rig.log.push((key, Some(value)));
        }
        rig.coordinator = rig.read_log();
        let list = m::ListTransactionsRequest { duration_filter: -1, ..Default::default() };
        let listed = rig.list(&list);
        let ours: Vec<(i64, String)> = listed
            .transaction_states
            .iter()
            .map(|it| (it.producer_id, it.transaction_state.into_owned()))
            .collect();
        let theirs: Vec<(i64, String)> = last
            .iter()
            .map(|(key, value)| {
                let record = TxnRecord::read(key, Some(value)).unwrap().unwrap();
                let value = record.value.unwrap();
                let state = STATES[usize::try_from(value.transaction_status).unwrap()];
                (value.producer_id, state.into())
            })
            .collect();
        assert_eq!(ours, theirs);
    }
}

proptest::proptest! {
    /// Whatever stands in a log: it is refused, or the coordinator lives on with it.
    #[test]
    fn any_log_is_survived(
        producer_id: i64, previous_producer_id: i64, next_producer_id: i64,
        producer_epoch: i16, transaction_timeout_ms: i32, transaction_status in -1_i8..9,
        parts in proptest::option::of(proptest::collection::vec(-1_i32..6, 0..4)),
        updated: i64, started: i64, client_transaction_version: i16, level in 0_i16..3,
        commit: bool, noise in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
    ) {
        let mut rig = Rig::new(TransactionVersion(level));
        let _ = rig.coordinator.replay(&noise, Some(&noise));
        let _ = rig.coordinator.replay(&[0, 0, 0, 2, b't', b'x'], Some(&noise));
        let transaction_partitions = parts.map(|ids| {
            let schema = m::transaction_log_value::PartitionsSchema {
                topic: "t".into(),
                partition_ids: ids.into(),
            };
            vec![schema].into()
        });
        let value = m::TransactionLogValue {
            producer_id, previous_producer_id, next_producer_id, producer_epoch,
            next_producer_epoch: -1, transaction_timeout_ms, transaction_status,
            transaction_partitions, transaction_last_update_timestamp_ms: updated,
            transaction_start_timestamp_ms: started, client_transaction_version,
        };
        let key = m::TransactionLogKey { transactional_id: ID.into() };
        let (key, value) = TxnRecord { key, value: Some(value), version: 1 }.to_bytes().unwrap();
        let known = rig.coordinator.replay(&key, value.as_deref()).is_ok();
        proptest::prop_assert_eq!(known, (0..6).contains(&transaction_status));
        rig.coordinator.loaded(rig.now_ms);
        rig.pass(100);
        let producer = Producer { id: producer_id, epoch: producer_epoch };
        for version in [4, 5] {
            rig.add(&Add { producer, version, ..ADD });
            rig.add(&Add { producer, verify: true, ..ADD });
            rig.end(producer, commit, version);
            rig.init(&Init { expected: producer, ..INIT });
        }
        // Nothing in it keeps a new instance out.
        rig.owner();
    }
}

#[test]
fn what_no_coordinator_writes() {
    let key = [0, 0, 0, 2, b't', b'x'];
    let mut value = entries(LOGS[0])[0].1.clone();
    assert_eq!(TxnRecord::read(&[0, 1, 0, 1, b'g'], None), Ok(None), "another type");
    assert!(matches!(TxnRecord::read(&key[..4], None), Err(CoordError::Decode(_))));
    assert!(matches!(TxnRecord::read(&[], None), Err(CoordError::Decode(_))));
    for cut in 0..value.len() {
        assert!(TxnRecord::read(&key, Some(&value[..cut])).is_err(), "cut at {cut}");
    }
    let status = 2 + 8 + 2 + 4;
    for (code, known) in [(0, true), (5, true), (6, false), (7, false), (-1, false)] {
        value[status] = i8::to_be_bytes(code)[0];
        let mut rig = Rig::new(TransactionVersion::V2);
        let read = rig.coordinator.replay(&key, Some(&value));
        assert_eq!(read.is_ok(), known, "{code}: {read:?}");
    }
    value[1] = 2;
    assert!(TxnRecord::read(&key, Some(&value)).is_err(), "a version of the future");
    value[1] = 0;
    value.push(0);
    assert_eq!(TxnRecord::read(&key, Some(&value)), Err(CoordError::Trailing(1)));
}
