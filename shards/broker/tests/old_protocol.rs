//! Transactions of clients from before KIP-890, asked by raw requests in the simulator: their epoch stays
//! from one transaction to the next, so what comes late is told from what comes in time by nothing else.
//! And what their coordinator does when its partition moves, cannot be read, or finds no space.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::sim::{Delay, Outcome, World, with_faults};
use reactor::{Durability, File, OpenOptions, WriteBuf};
use smallvec::smallvec;
use support::{BASE_PORT, Client, batch_within, start_on, to_produce_within};
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::messages::alter_replica_log_dirs_response::AlterReplicaLogDirsResponse;
use wire::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse, ProduceResponse,
};
use wire::{ApiKey, Text, hash};

crate::response!(Altered, AlterReplicaLogDirsResponse, borrows);
crate::response!(Found, FindCoordinatorResponse, borrows);
crate::response!(Initialised, InitProducerIdResponse);
crate::response!(Added, AddPartitionsToTxnResponse, borrows);
crate::response!(Produced, ProduceResponse, borrows);
crate::response!(Ended, EndTxnResponse);
crate::response!(Described, DescribeTransactionsResponse, borrows);

const DIRS: [&str; 2] = ["/disk1", "/disk2"];
const TOPIC: &str = "t";
const ID: &str = "tx";
const LOADING: i16 = 14;
const NOT_COORDINATOR: i16 = 16;
const ENDING: i16 = 51;
const OUT_OF_ORDER: i16 = 45;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const PATIENCE: Duration = Duration::from_secs(120);
const MOMENT: Duration = Duration::from_millis(20);

/// One producer of one partition, and the broker.
struct Producer {
    client: Client,
    id: i64,
    epoch: i16,
}

impl Producer {
    async fn start() -> Self {
        for dir in DIRS {
            reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
        }
        let mut started = start_on(1, BASE_PORT, &DIRS, &[]);
        started.ready().await;
        let mut client = Client::connect(started.addresses[0]).await.unwrap();
        std::mem::forget(started);
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
        let request = FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![ID.into()].into(),
            ..Default::default()
        };
        client.call::<_, Found>(ApiKey::FindCoordinator, 4, &request).await.unwrap();
        let mut producer = Producer { client, id: -1, epoch: -1 };
        producer.take_over().await;
        producer
    }

    async fn init_of(&mut self, id: &str) -> InitProducerIdResponse {
        let request = InitProducerIdRequest {
            transactional_id: Some(id.into()),
            transaction_timeout_ms: 600_000,
            ..Default::default()
        };
        self.client.call::<_, Initialised>(ApiKey::InitProducerId, 1, &request).await.unwrap()
    }

    async fn init(&mut self) -> i16 {
        let answer = self.init_of(ID).await;
        if answer.error_code == 0 {
            (self.id, self.epoch) = (answer.producer_id, answer.producer_epoch);
        }
        answer.error_code
    }

    async fn take_over(&mut self) {
        let begin = reactor::now();
        loop {
            match self.init().await {
                0 => return,
                // No coordinator yet, or the transaction before is just ending.
                LOADING | 15 | NOT_COORDINATOR | ENDING => {}
                code => panic!("InitProducerId answers {code}"),
            }
            assert!(reactor::now() - begin < PATIENCE, "no producer id");
            reactor::sleep(MOMENT).await;
        }
    }

    async fn add(&mut self) -> i16 {
        let topic = AddPartitionsToTxnTopic { name: TOPIC.into(), partitions: vec![0].into() };
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: ID.into(),
            v3_and_below_producer_id: self.id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![topic].into(),
            ..Default::default()
        };
        let call = self.client.call::<_, Added>(ApiKey::AddPartitionsToTxn, 3, &request);
        let answer = call.await.unwrap();
        let topic = answer.results_by_topic_v3_and_below.first().unwrap();
        topic.results_by_partition.first().unwrap().partition_error_code
    }

    /// One record.
    async fn write(&mut self, sequence: i32) -> i16 {
        let bytes = batch_within((self.id, self.epoch), sequence, b"v");
        let request = to_produce_within(ID, (TOPIC, 0), &bytes);
        let call = self.client.call::<_, Produced>(ApiKey::Produce, 11, &request);
        let answer = call.await.unwrap();
        let topic = answer.responses.first().unwrap();
        topic.partition_responses.first().unwrap().error_code
    }

    async fn commit(&mut self) -> i16 {
        let request = EndTxnRequest {
            transactional_id: ID.into(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            committed: true,
        };
        self.client.call::<_, Ended>(ApiKey::EndTxn, 3, &request).await.unwrap().error_code
    }

    async fn high_watermark(&mut self) -> i64 {
        let (error, end, _) = self.client.fetch(TOPIC, 0, 0, 0).await.unwrap();
        assert_eq!(error, 0);
        end
    }

    /// Has the coordinator's partition moved to that disk.
    async fn begin_move(&mut self, dir: &str) {
        let (name, partition) = (coordinators_topic(), coordinators_partition());
        let topic =
            AlterReplicaLogDirTopic { name: name.into(), partitions: vec![partition].into() };
        let dir = AlterReplicaLogDir { path: dir.to_owned().into(), topics: vec![topic].into() };
        let request = AlterReplicaLogDirsRequest { dirs: vec![dir].into() };
        let call = self.client.call::<_, Altered>(ApiKey::AlterReplicaLogDirs, 2, &request);
        let answer = call.await.unwrap();
        let topic = answer.results.first().unwrap();
        assert_eq!(topic.partitions.first().unwrap().error_code, 0);
    }

    /// Until the coordinator, which has just been moved, serves.
    async fn coordinator_is_back(&mut self) {
        let begin = reactor::now();
        loop {
            match self.add().await {
                0 => return,
                LOADING => {}
                code => panic!("AddPartitionsToTxn answers {code}"),
            }
            assert!(reactor::now() - begin < PATIENCE, "the coordinator is not loaded");
            reactor::sleep(MOMENT).await;
        }
    }

    async fn move_coordinator(&mut self, dir: &str) {
        self.begin_move(dir).await;
        let begin = reactor::now();
        while !reactor::fs::exists(&coordinators_folder(dir)).await.unwrap() {
            assert!(reactor::now() - begin < PATIENCE, "it is not moved to {dir}");
            reactor::sleep(MOMENT).await;
        }
    }
}

fn coordinators_topic() -> &'static str {
    "__transaction_state"
}

fn coordinators_partition() -> i32 {
    hash::coordinator_partition(ID, 50)
}

fn coordinators_folder(dir: &str) -> PathBuf {
    Path::new(dir).join(format!("{}-{}", coordinators_topic(), coordinators_partition()))
}

fn slow_down(folder: PathBuf, delay: Duration) {
    with_faults(|faults| faults.disk.slow.insert(folder, Delay::exactly(delay)));
}

/// The coordinator's partition is opened anew, under the same leader epoch, while a marker is on its way.
async fn the_next_coordinator_waits() {
    let mut producer = Producer::start().await;
    assert_eq!(producer.add().await, 0);
    assert_eq!(producer.write(0).await, 0);
    producer.move_coordinator(DIRS[0]).await;
    producer.coordinator_is_back().await;
    for dir in DIRS {
        slow_down(Path::new(dir).join(format!("{TOPIC}-0")), Duration::from_secs(5));
    }
    assert_eq!(producer.commit().await, 0);
    producer.move_coordinator(DIRS[1]).await;
    let mut asked = 0;
    loop {
        let code = producer.init().await;
        // The record and the marker.
        if producer.high_watermark().await >= 2 {
            break;
        }
        assert_eq!(code, LOADING, "another coordinator is there while a marker is out");
        asked += 1;
        reactor::sleep(MOMENT).await;
    }
    assert!(asked > 10, "the marker was not held up: {asked}");
    with_faults(|faults| faults.disk.slow.clear());
    producer.take_over().await;
    assert_eq!(producer.add().await, 0);
    assert_eq!(producer.write(0).await, 0);
    assert_eq!(producer.commit().await, 0);
    producer.take_over().await;
}

#[test]
fn no_coordinator_is_loaded_while_the_markers_of_the_one_before_are_out() {
    for seed in 0..5 {
        let outcome = World::new(seed).run(the_next_coordinator_waits);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Two batches are on their way when the coordinator is loaded anew: the first is told to come again, the
/// second comes when it is there.
async fn the_first_batch_comes_first() {
    let mut producer = Producer::start().await;
    producer.move_coordinator(DIRS[0]).await;
    producer.coordinator_is_back().await;
    slow_down(coordinators_folder(DIRS[1]), Duration::from_millis(300));
    producer.begin_move(DIRS[1]).await;
    let begin = reactor::now();
    while producer.add().await != LOADING {
        assert!(reactor::now() - begin < PATIENCE, "the coordinator stays");
        reactor::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(producer.write(0).await, NOT_ENOUGH_REPLICAS);
    with_faults(|faults| faults.disk.slow.clear());
    producer.coordinator_is_back().await;
    assert_eq!(producer.write(1).await, OUT_OF_ORDER, "its place is behind the first");
    assert_eq!(producer.write(0).await, 0);
    assert_eq!(producer.write(1).await, 0);
    assert_eq!(producer.commit().await, 0);
    producer.take_over().await;
    assert_eq!(producer.high_watermark().await, 3);
}

#[test]
fn a_batch_does_not_take_the_place_of_one_that_has_to_come_again() {
    for seed in 0..5 {
        let outcome = World::new(seed).run(the_first_batch_comes_first);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// A small request must not ask for an answer of any size.
async fn an_id_is_described_once() {
    let mut producer = Producer::start().await;
    assert_eq!(producer.add().await, 0);
    let ids: Vec<Text<'_>> = [ID, "unknown", ID, ID].map(Text::from).into();
    let request = DescribeTransactionsRequest { transactional_ids: ids.into() };
    let call = producer.client.call::<_, Described>(ApiKey::DescribeTransactions, 0, &request);
    let answer = call.await.unwrap();
    let states = answer.transaction_states.iter();
    let states: Vec<_> =
        states.map(|it| (it.transactional_id.to_string(), it.error_code)).collect();
    assert_eq!(states, [(ID.to_owned(), 0), ("unknown".to_owned(), 105)]);
}

#[test]
fn an_id_that_is_named_several_times_is_described_once() {
    let outcome = World::new(1).run(an_id_is_described_once);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// From the disk under the coordinator's log a byte is read wrongly, or rightly again.
async fn flip_a_byte(dir: &str) {
    const AT: u64 = 70;
    let path = coordinators_folder(dir).join("00000000000000000000.log");
    let before = reactor::fs::read(&path).await.unwrap()[AT as usize];
    let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
    let flipped = WriteBuf::Bytes(vec![before ^ 1].into());
    file.write_at(smallvec![flipped], AT, Durability::Written).await.unwrap();
    file.close().await.unwrap();
}

async fn a_log_that_could_not_be_read_is_read_again() {
    let mut producer = Producer::start().await;
    producer.move_coordinator(DIRS[0]).await;
    producer.coordinator_is_back().await;
    flip_a_byte(DIRS[0]).await;
    producer.move_coordinator(DIRS[1]).await;
    let begin = reactor::now();
    while producer.add().await != NOT_COORDINATOR {
        assert!(reactor::now() - begin < PATIENCE, "a damaged log is loaded");
        reactor::sleep(MOMENT).await;
    }
    flip_a_byte(DIRS[1]).await;
    let begin = reactor::now();
    loop {
        match producer.add().await {
            0 => break,
            LOADING | NOT_COORDINATOR => {}
            code => panic!("AddPartitionsToTxn answers {code}"),
        }
        assert!(reactor::now() - begin < PATIENCE, "the coordinator does not come back");
        reactor::sleep(MOMENT).await;
    }
    assert_eq!(producer.write(0).await, 0);
    assert_eq!(producer.commit().await, 0);
    producer.take_over().await;
}

#[test]
fn a_coordinator_whose_log_could_not_be_read_comes_back() {
    let outcome = World::new(1).run(a_log_that_could_not_be_read_is_read_again);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// What is decided then is not safe, and nobody is told that it is; with space again it is decided anew.
async fn the_coordinators_disk_is_full() {
    let mut producer = Producer::start().await;
    producer.move_coordinator(DIRS[0]).await;
    producer.coordinator_is_back().await;
    assert_eq!(producer.write(0).await, 0);
    with_faults(|faults| faults.disk.full.insert(DIRS[0].into()));
    // Another id of the same coordinator takes what is left of its last block.
    let mine = coordinators_partition();
    let same = |id: &String| hash::coordinator_partition(id, 50) == mine;
    let other = (0..).map(|n| format!("other-{n}")).find(same).unwrap();
    let begin = reactor::now();
    while producer.init_of(&other).await.error_code == 0 {
        assert!(reactor::now() - begin < PATIENCE, "a full disk takes everything");
    }
    let begin = reactor::now();
    while reactor::now() - begin < Duration::from_secs(10) {
        let code = producer.commit().await;
        assert!([LOADING, 15, NOT_COORDINATOR].contains(&code), "EndTxn answers {code}");
        reactor::sleep(MOMENT).await;
    }
    assert_eq!(producer.high_watermark().await, 1, "a marker without a decision");
    with_faults(|faults| faults.disk.full.clear());
    let begin = reactor::now();
    while producer.commit().await != 0 || producer.high_watermark().await < 2 {
        assert!(reactor::now() - begin < PATIENCE, "the transaction does not end");
        reactor::sleep(MOMENT).await;
    }
    producer.take_over().await;
}

#[test]
fn a_transaction_outlives_a_full_disk_of_its_coordinator() {
    for seed in 0..5 {
        let outcome = World::new(seed).run(the_coordinators_disk_is_full);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}
