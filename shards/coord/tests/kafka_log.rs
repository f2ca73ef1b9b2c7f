//! A partition of `__consumer_offsets` that Apache Kafka 4.4.0 wrote while the lives of
//! `consumer.rs` and `migration.rs` ran against it (see `support/kafka.rs`): read, and written
//! again to the byte.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;

use coord::{Config, Record, Reply, Request};
use support::Rig;
use wire::messages as m;
use wire::records::batches;

const LOG: &[u8] = include_bytes!("facts/kafka-4.4.0-consumer-offsets.log");
const STATES: &str = include_str!("facts/kafka-4.4.0-group-states.tsv");
const RECORD_BYTES_MAX: usize = 1 << 20;

type Entry = (Vec<u8>, Option<Vec<u8>>);

fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for batch in batches(LOG) {
        let batch = batch.unwrap();
        if batch.header().attributes.is_control() {
            continue;
        }
        let mut records = batch.records(RECORD_BYTES_MAX).unwrap();
        while let Some(record) = records.next_record().unwrap() {
            entries.push((record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    entries
}

#[test]
fn every_record_is_understood_and_written_the_same() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, value) in entries() {
        let record = Record::read(&key, value.as_deref()).unwrap().expect("a kind we know");
        assert_eq!(record.to_bytes().unwrap(), (key.clone(), value.clone()), "{record:?}");
        *kinds.entry(record.name()).or_default() += 1;
    }
    assert_eq!(kinds.len(), 8, "every kind but expressions: {kinds:?}");
}

#[test]
fn the_groups_are_those_that_kafka_had() {
    let mut rig = Rig::new(Config::default());
    rig.log = entries().into_iter().map(|(key, value)| (key, value, None)).collect();
    rig.reload();
    let request = m::ListGroupsRequest::default();
    let token = rig.send(Request::ListGroups(&request), 5);
    let Reply::ListGroups(reply) = rig.reply(token) else { panic!("not a list") };
    let ours: BTreeMap<String, String> = reply
        .groups
        .iter()
        .map(|it| (it.group_id.into_owned(), it.group_state.into_owned()))
        .collect();
    let lines = STATES.lines().filter(|line| !line.starts_with('#'));
    let theirs: BTreeMap<&str, &str> = lines.map(|line| line.split_once('\t').unwrap()).collect();
    assert_eq!(
        ours.keys().map(String::as_str).collect::<Vec<_>>(),
        Vec::from_iter(theirs.keys().copied())
    );
    for (group, state) in theirs {
        // What a classic group does between two generations is not in the log.
        let logged = if state.ends_with("Rebalance") { "Stable" } else { state };
        assert_eq!(ours[group], logged, "{group}");
    }
}
