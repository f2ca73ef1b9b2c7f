//! Reads everything back and compares it with what the producers know.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use corelane_tests::Broker;

use crate::address_of;
use crate::client::Client;
use crate::load::{self, Kept, Producer};

/// While a partition is opened it answers with these.
const OPENING: [i16; 2] = [6, 5];
const PATIENCE: Duration = Duration::from_secs(60);
const BATCH_BYTES_MAX: usize = 16 << 20;

/// What a partition holds: producer and number of each record, by offset.
type Found = BTreeMap<i64, (u64, u64)>;

pub fn everything(broker: &Broker, producers: &mut [Producer]) {
    let mut client = Client::connect(broker.address()).expect("a connection");
    let mut leaders: HashMap<&str, Vec<usize>> = HashMap::new();
    for producer in producers {
        let topic = producer.topic.name;
        let leaders =
            leaders.entry(topic).or_insert_with(|| client.leaders(topic).expect("metadata"));
        let leader = leaders[usize::try_from(producer.partition).unwrap()];
        let mut client = Client::connect(address_of(broker, leader)).expect("a connection");
        let (start, found) = read(&mut client, topic, producer.partition);
        check(producer, start, &found);
    }
}

/// Everything from the log's start to the high watermark.
fn read(client: &mut Client, topic: &str, partition: i32) -> (i64, Found) {
    let (mut next, mut found) = (-1, Found::new());
    let give_up = Instant::now() + PATIENCE;
    let mut start = 0;
    loop {
        assert!(Instant::now() < give_up, "{topic}-{partition} is not read to its end");
        let fetched = client.fetch(topic, partition, next.max(0)).expect("an answer");
        match fetched.error {
            0 => {}
            1 if fetched.log_start > next => {
                // Retention went on meanwhile; what it took is not looked for.
                (start, next) = (fetched.log_start, fetched.log_start);
                found.clear();
                continue;
            }
            error if OPENING.contains(&error) => {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            error => panic!("{topic}-{partition} at {next}: error {error}"),
        }
        // Retention goes on: what it takes of what was read is no hole.
        if next < 0 {
            (start, next) = (fetched.log_start, 0);
        }
        if next >= fetched.high_watermark {
            return (start, found);
        }
        next = note(topic, &fetched.bytes, next, &mut found);
    }
}

fn note(topic: &str, bytes: &[u8], from: i64, found: &mut Found) -> i64 {
    let mut next = from;
    for batch in wire::records::batches(bytes) {
        let Ok(batch) = batch else { break };
        batch.verify_crc().unwrap_or_else(|error| panic!("{topic} at {next}: {error}"));
        let records = batch.records(BATCH_BYTES_MAX).expect("records that can be read");
        for record in &records {
            let record = record.expect("a whole record");
            let value = record.value.expect("a value");
            let field = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().unwrap());
            let (producer, number) = (field(0), field(8));
            assert_eq!(value, load::value(producer, number), "{topic}: an invented value");
            if record.offset >= from {
                found.insert(record.offset, (producer, number));
            }
        }
        next = batch.header().next_offset();
    }
    next
}

fn check(producer: &mut Producer, start: i64, found: &Found) {
    let what = format!("{}-{}", producer.topic.name, producer.partition);
    // One producer a partition: its numbers are in order, and none is there twice.
    let mut last = None;
    for (offset, (by, number)) in found {
        assert_eq!(*by, producer.number, "{what}: offset {offset} is from another producer");
        assert!(last.is_none_or(|last| last < *number), "{what}: {number} at {offset} repeats");
        last = Some(*number);
    }
    let kept = producer.topic.kept;
    if kept == Kept::Prefix {
        // What a kill took is forgotten; its offsets are given again.
        let end = found.keys().next_back().map_or(0, |last| last + 1);
        producer.acked.retain(|base, (_, count)| base + *count as i64 <= end);
    }
    if kept != Kept::NewestOfKeys {
        let dense = found.keys().copied().eq((start..).take(found.len()));
        assert!(dense, "{what}: offsets from {start} on have holes");
    }
    producer.acked = producer.acked.split_off(&start);
    let mut newest: HashMap<String, i64> = HashMap::new();
    for (offset, (_, number)) in found {
        newest.insert(load::key(*number), *offset);
    }
    for (base, (first, count)) in &producer.acked {
        for (offset, number) in (*base..).zip(*first..first + count) {
            let superseded = || newest.get(&load::key(number)).is_some_and(|at| *at > offset);
            match found.get(&offset) {
                Some((_, there)) => assert_eq!(*there, number, "{what}: offset {offset}"),
                None if kept == Kept::NewestOfKeys && superseded() => {}
                None => panic!("{what}: record {number} at offset {offset} is lost"),
            }
        }
    }
}
