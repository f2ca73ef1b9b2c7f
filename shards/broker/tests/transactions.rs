//! Transactions at the leader of a partition, asked by raw requests in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Crash, Outcome, World};
use support::{BASE_PORT, Client, Gone, batch, batch_within, start_shards, to_produce_within};
use wire::messages::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use wire::messages::describe_producers_response::{DescribeProducersResponse, ProducerState};
use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use wire::messages::write_txn_markers_response::WriteTxnMarkersResponse;
use wire::messages::{
    EndTxnRequest, EndTxnResponse, FetchRequest, FetchResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse, ProduceResponse,
};
use wire::records::control::EndTransaction;
use wire::{ApiKey, ErrorCode, Records};

const DATA_DIR: &str = "/data";
const TOPIC: &str = "t";

crate::response!(Markers, WriteTxnMarkersResponse, borrows);
crate::response!(Producers, DescribeProducersResponse, borrows);

async fn start() -> Client {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    let mut started = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    started.ready().await;
    let mut client = Client::connect(started.addresses[0]).await.unwrap();
    assert_eq!(client.create_topic(TOPIC, 2, &[]).await.unwrap(), 0);
    std::mem::forget(started);
    client
}

fn marker(producer_epoch: i16, coordinator_epoch: i32, version: i8) -> WritableTxnMarker<'static> {
    let topic = WritableTxnMarkerTopic { name: TOPIC.into(), partition_indexes: vec![0, 7].into() };
    WritableTxnMarker {
        producer_id: 9,
        producer_epoch,
        coordinator_epoch,
        transaction_version: version,
        topics: vec![topic].into(),
        ..Default::default()
    }
}

/// The answers for partitions 0, which is there, and 7, which is not.
async fn write(client: &mut Client, marker: WritableTxnMarker<'_>) -> [i16; 2] {
    let request = WriteTxnMarkersRequest { markers: vec![marker].into() };
    let answer = client.call::<_, Markers>(ApiKey::WriteTxnMarkers, 2, &request).await.unwrap();
    let result = answer.markers.first().unwrap();
    assert_eq!(result.producer_id, 9);
    let partitions = result.topics.first().unwrap().partitions.to_vec();
    [partitions[0].error_code, partitions[1].error_code]
}

async fn producers(client: &mut Client, partition: i32) -> (i16, Vec<ProducerState>) {
    let topic = TopicRequest { name: TOPIC.into(), partition_indexes: vec![partition].into() };
    let request = DescribeProducersRequest { topics: vec![topic].into() };
    let answer = client.call::<_, Producers>(ApiKey::DescribeProducers, 0, &request).await.unwrap();
    let topic = answer.topics.first().unwrap();
    let partition = topic.partitions.first().unwrap();
    (partition.error_code, partition.active_producers.to_vec())
}

/// What a client cannot end it does not leave a trace of: not in the log, nor of a producer.
#[test]
fn a_clients_markers_of_nothing_are_not_written() {
    let outcome = World::new(1).run(|| async {
        let mut client = start().await;
        let now_ms = reactor::wall_clock_ms();
        assert_eq!(client.produce(TOPIC, 0, &batch(&[b"v"], now_ms)).await.unwrap(), (0, 0));
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        for version in [0, 2] {
            assert_eq!(write(&mut client, marker(3, 5, version)).await, [0, unknown]);
            assert_eq!(write(&mut client, marker(i16::MAX, i32::MAX, version)).await, [0, unknown]);
            let commit = WritableTxnMarker { transaction_result: true, ..marker(3, 5, version) };
            let refused = ErrorCode::ClusterAuthorizationFailed.code();
            assert_eq!(write(&mut client, commit).await, [refused, unknown]);
        }
        assert_eq!(producers(&mut client, 0).await, (0, vec![]));
        assert_eq!(producers(&mut client, 7).await.0, unknown);
        assert_eq!(client.produce(TOPIC, 0, &batch(&[b"v"], now_ms)).await.unwrap(), (0, 1));
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

crate::response!(Found, FindCoordinatorResponse, borrows);
crate::response!(Initialised, InitProducerIdResponse);
crate::response!(Ended, EndTxnResponse);
crate::response!(Produced, ProduceResponse, borrows);
crate::response!(Fetched, FetchResponse, borrows);

const ID: &str = "tx";
const PARTITIONS: i32 = 4;
/// Still being loaded, or a transaction is just ending.
const TRY_AGAIN: [i16; 6] = [14, 15, 16, 19, 51, 5];
const NOT_LEADER: i16 = 6;
const PATIENCE: Duration = Duration::from_secs(300);

/// A producer that speaks KIP-890: leaders make partitions part of its transactions.
struct Producer {
    clients: Vec<Client>,
    id: i64,
    epoch: i16,
    /// The next sequence of each partition, in this epoch.
    sequences: BTreeMap<i32, i32>,
}

async fn clients(shards: u16) -> Vec<Client> {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_shards(shards, BASE_PORT, DATA_DIR, &[]);
    started.ready().await;
    let mut clients = Vec::new();
    for address in &started.addresses {
        clients.push(Client::connect(*address).await.unwrap());
    }
    std::mem::forget(started);
    clients
}

impl Producer {
    /// Takes the transactional id over, whatever its last owner left open.
    async fn begin(clients: Vec<Client>) -> Result<Self, Gone> {
        let mut producer = Producer { clients, id: -1, epoch: -1, sequences: BTreeMap::new() };
        let begin = reactor::now();
        loop {
            let node = producer.coordinator().await?;
            let request = InitProducerIdRequest {
                transactional_id: Some(ID.into()),
                transaction_timeout_ms: 60_000,
                ..Default::default()
            };
            let client = &mut producer.clients[node];
            let call = client.call::<_, Initialised>(ApiKey::InitProducerId, 4, &request);
            let answer = call.await?;
            if answer.error_code == 0 {
                (producer.id, producer.epoch) = (answer.producer_id, answer.producer_epoch);
                return Ok(producer);
            }
            assert!(TRY_AGAIN.contains(&answer.error_code), "{answer:?}");
            assert!(reactor::now() - begin < PATIENCE, "no producer id: {answer:?}");
            reactor::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The shard that coordinates the id.
    async fn coordinator(&mut self) -> Result<usize, Gone> {
        loop {
            let request = FindCoordinatorRequest {
                key_type: 1,
                coordinator_keys: vec![ID.into()].into(),
                ..Default::default()
            };
            let call = self.clients[0].call::<_, Found>(ApiKey::FindCoordinator, 4, &request);
            let answer = call.await?;
            let found = answer.coordinators.first().unwrap();
            if found.error_code == 0 {
                return Ok((found.node_id % 1000) as usize);
            }
            reactor::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Error code of the partition's leader.
    async fn write(&mut self, partition: i32, value: &[u8]) -> Result<i16, Gone> {
        let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let bytes = batch_within((self.id, self.epoch), sequence, value);
        let begin = reactor::now();
        loop {
            let mut code = NOT_LEADER;
            for client in &mut self.clients {
                let request = to_produce_within(ID, (TOPIC, partition), &bytes);
                let answer = client.call::<_, Produced>(ApiKey::Produce, 12, &request).await?;
                let topic = answer.responses.first().unwrap();
                code = topic.partition_responses.first().unwrap().error_code;
                if code != NOT_LEADER {
                    break;
                }
            }
            if code == 0 {
                self.sequences.insert(partition, sequence + 1);
            }
            if !TRY_AGAIN.contains(&code) && code != NOT_LEADER {
                return Ok(code);
            }
            assert!(reactor::now() - begin < PATIENCE, "{partition} answers {code}");
            reactor::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn end(&mut self, committed: bool) -> Result<i16, Gone> {
        let begin = reactor::now();
        loop {
            let node = self.coordinator().await?;
            let request = EndTxnRequest {
                transactional_id: ID.into(),
                producer_id: self.id,
                producer_epoch: self.epoch,
                committed,
            };
            let call = self.clients[node].call::<_, Ended>(ApiKey::EndTxn, 5, &request);
            let answer = call.await?;
            if answer.error_code == 0 {
                (self.id, self.epoch) = (answer.producer_id, answer.producer_epoch);
                self.sequences.clear();
            }
            if !TRY_AGAIN.contains(&answer.error_code) {
                return Ok(answer.error_code);
            }
            assert!(reactor::now() - begin < PATIENCE, "the end answers {answer:?}");
            reactor::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a read_committed consumer makes of a partition, once nothing of it is open any more.
async fn committed(clients: &mut [Client], partition: i32) -> Result<Vec<Vec<u8>>, Gone> {
    let begin = reactor::now();
    loop {
        let mut found = None;
        for client in clients.iter_mut() {
            let wanted =
                FetchPartition { partition, partition_max_bytes: 8 << 20, ..Default::default() };
            let topic = FetchTopic {
                topic: TOPIC.into(),
                partitions: vec![wanted].into(),
                ..Default::default()
            };
            let request = FetchRequest {
                max_bytes: 8 << 20,
                isolation_level: 1,
                session_epoch: -1,
                topics: vec![topic].into(),
                ..Default::default()
            };
            let answer = client.call::<_, Fetched>(ApiKey::Fetch, 12, &request).await?;
            let topic = answer.responses.first().unwrap();
            let fetched = topic.partitions.first().unwrap();
            if fetched.error_code == 0 {
                found = Some(fetched);
                break;
            }
        }
        if let Some(fetched) = found
            && fetched.last_stable_offset == fetched.high_watermark
        {
            let Some(Records::Owned(bytes)) = &fetched.records else { return Ok(Vec::new()) };
            let aborted = fetched.aborted_transactions.unwrap_or_default();
            let mut aborted: Vec<(i64, i64)> =
                aborted.iter().map(|it| (it.first_offset, it.producer_id)).collect();
            aborted.sort_unstable_by(|a, b| b.cmp(a));
            return Ok(visible(bytes, aborted));
        }
        assert!(reactor::now() - begin < PATIENCE, "{partition} stays open");
        reactor::sleep(Duration::from_millis(50)).await;
    }
}

/// The algorithm of Kafka's consumers. `aborted`: first offsets and producers, the last one first.
fn visible(bytes: &[u8], mut aborted: Vec<(i64, i64)>) -> Vec<Vec<u8>> {
    let (mut values, mut skipped) = (Vec::new(), BTreeSet::new());
    for batch in wire::records::batches(bytes) {
        let batch = batch.unwrap();
        let header = batch.header();
        while aborted.last().is_some_and(|(first, _)| *first <= header.last_offset()) {
            skipped.extend(aborted.pop().map(|(_, producer)| producer));
        }
        if let Some(end) = EndTransaction::read(&batch).unwrap() {
            if !end.committed {
                skipped.remove(&header.producer_id);
            }
            continue;
        }
        if skipped.contains(&header.producer_id) {
            continue;
        }
        for record in &batch.records(1 << 20).unwrap() {
            values.push(record.unwrap().value.unwrap().to_vec());
        }
    }
    values
}

#[test]
fn what_is_committed_is_seen_what_is_aborted_is_not_and_a_zombie_changes_nothing() {
    for seed in 0..10 {
        let outcome = World::new(seed).run(|| async {
            let mut first = clients(2).await;
            assert_eq!(first[0].create_topic(TOPIC, PARTITIONS, &[]).await.unwrap(), 0);
            let mut producer = Producer::begin(first).await.unwrap();
            for (value, commits) in [(b"a", true), (b"b", false), (b"c", true)] {
                for partition in 0..PARTITIONS {
                    assert_eq!(producer.write(partition, value).await.unwrap(), 0);
                }
                assert_eq!(producer.end(commits).await.unwrap(), 0);
            }
            assert_eq!(producer.write(0, b"d").await.unwrap(), 0);
            let mut others = Vec::new();
            for port in 0..2 {
                let address = support::addresses(2, BASE_PORT)[port];
                others.push(Client::connect(address).await.unwrap());
            }
            let mut next = Producer::begin(others).await.unwrap();
            // Its epoch is an old one now, at the partition and at the coordinator.
            assert_eq!(producer.write(0, b"d").await.unwrap(), 47);
            assert_eq!(producer.write(1, b"d").await.unwrap(), 47);
            assert_eq!(producer.end(true).await.unwrap(), 90);
            assert_eq!(next.write(2, b"e").await.unwrap(), 0);
            assert_eq!(next.end(true).await.unwrap(), 0);
            for partition in 0..PARTITIONS {
                let seen = committed(&mut next.clients, partition).await.unwrap();
                let expected: &[&[u8]] =
                    if partition == 2 { &[b"a", b"c", b"e"] } else { &[b"a", b"c"] };
                assert_eq!(seen, expected, "partition {partition}");
            }
        });
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Numbers of transactions whose end was asked for, and answered, and with what.
#[derive(Default, Debug)]
struct Ledger {
    committed: Vec<u8>,
    aborted: Vec<u8>,
}

async fn transactions_until_the_crash(ledger: Rc<RefCell<Ledger>>) -> Result<(), Gone> {
    let mut first = clients(2).await;
    let created = first[0].create_topic(TOPIC, PARTITIONS, &[]).await?;
    assert!(created == 0 || created == 36);
    let mut producer = Producer::begin(first).await?;
    for number in 0..u8::MAX {
        for partition in [number % 4, (number / 4 + 1) % 4] {
            assert_eq!(producer.write(i32::from(partition), &[number]).await?, 0);
        }
        let commits = number % 3 != 0;
        assert_eq!(producer.end(commits).await?, 0);
        let mut ledger = ledger.borrow_mut();
        if commits { ledger.committed.push(number) } else { ledger.aborted.push(number) }
    }
    Ok(())
}

/// The process dies at any operation, between any two steps of a transaction: afterwards each is there as
/// a whole or not at all, what was answered stays so, and nothing is left open.
#[test]
fn a_crash_at_any_step_leaves_whole_transactions() {
    let mut seen_commits = 0;
    for seed in 0..60 {
        let ledger: Rc<RefCell<Ledger>> = Rc::default();
        let mut world = World::new(seed);
        world.crash_after(400 + seed * 23, Crash::Process);
        let told = ledger.clone();
        let ran = world.run(move || async move {
            let _ = transactions_until_the_crash(told).await;
            reactor::sleep(Duration::from_secs(60)).await;
        });
        assert!(matches!(ran, Outcome::Crashed(_)), "seed {seed}: {ran:?}");
        let ran = world.run(|| async {
            let mut producer = Producer::begin(clients(2).await).await.unwrap();
            let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
            for partition in 0..PARTITIONS {
                for value in committed(&mut producer.clients, partition).await.unwrap() {
                    *seen.entry(value[0]).or_default() += 1;
                }
            }
            seen
        });
        let Outcome::Finished(seen) = ran else { panic!("seed {seed}: {ran:?}") };
        let ledger = ledger.borrow();
        for (number, count) in &seen {
            assert_eq!(*count, 2, "seed {seed}: a part of transaction {number}");
            assert!(!ledger.aborted.contains(number), "seed {seed}: {number} was aborted");
        }
        for number in &ledger.committed {
            assert!(seen.contains_key(number), "seed {seed}: {number} was committed: {seen:?}");
        }
        seen_commits += seen.len();
    }
    assert!(seen_commits > 100, "{seen_commits}");
}
