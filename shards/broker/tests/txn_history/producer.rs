//! One producer for scenarios that are told step by step, and what can be asked about its transactions.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use wire::messages::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use wire::messages::describe_producers_response::ProducerState;
use wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use wire::messages::{
    DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    ListOffsetsRequest, ListOffsetsResponse, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use wire::{ApiKey, ErrorCode};

use super::calls::{Answer, Call, Caller, ELSEWHERE, INPUT, Links, NOBODY, SHARDS, TOPIC};
use super::end::coordinator;
use crate::support::{BASE_PORT, Client, batch_within, start_on};

crate::response!(Offsets, ListOffsetsResponse, borrows);
crate::response!(Producers, DescribeProducersResponse, borrows);
crate::response!(Transactions, DescribeTransactionsResponse, borrows);
crate::response!(Markers, WriteTxnMarkersResponse, borrows);

/// Moments in which nothing is decided yet.
const NOT_YET: [i16; 6] = [5, 14, 15, 19, 51, 88];
/// Longer than anything takes by itself.
pub const LONG: Duration = Duration::from_secs(300);
pub const UNCOMMITTED: i8 = 0;
pub const COMMITTED: i8 = 1;

/// A broker with the topics, and a connection to each of its shards.
pub async fn start(dirs: &[&str], settings: &[&str]) -> Vec<Client> {
    for dir in dirs {
        reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
    }
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut shards = start_on(SHARDS, BASE_PORT, dirs, settings);
    shards.ready().await;
    let mut clients = Vec::new();
    for address in &shards.addresses {
        clients.push(Client::connect(*address).await.unwrap());
    }
    std::mem::forget(shards);
    for (topic, partitions) in [(TOPIC, 3), (INPUT, 1)] {
        let created = clients[0].create_topic(topic, partitions, &[]).await.unwrap();
        assert!(created == 0 || created == 36, "{topic}: {created}");
    }
    for (key_type, key) in [(0, "g"), (1, "t")] {
        let begin = reactor::now();
        while coordinator(&mut clients[0], key_type, key).await.unwrap().is_none() {
            assert!(reactor::now() - begin < LONG, "no coordinator");
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }
    clients
}

pub struct Producer {
    pub caller: Caller,
    links: Links,
    sequences: BTreeMap<usize, i32>,
}

impl Producer {
    pub fn new(id: &'static str, new: bool) -> Self {
        let caller = Caller { id, producer: NOBODY, new };
        Producer { caller, links: Links::default(), sequences: BTreeMap::new() }
    }

    /// Asks each shard, once.
    pub async fn ask_once(&mut self, call: &Call) -> Answer {
        let mut last = Answer { code: 6, offset: 0, producer: NOBODY };
        for shard in 0..usize::from(SHARDS) {
            last = self.links.ask(shard, self.caller, call, true).await.unwrap();
            if !ELSEWHERE.contains(&last.code) {
                break;
            }
        }
        last
    }

    /// Asks until the answer is one.
    pub async fn ask(&mut self, call: &Call) -> Answer {
        let begin = reactor::now();
        loop {
            let answer = self.ask_once(call).await;
            if !NOT_YET.contains(&answer.code) && !ELSEWHERE.contains(&answer.code) {
                return answer;
            }
            assert!(reactor::now() - begin < LONG, "{call:?} is answered {answer:?}");
            reactor::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn init(&mut self) -> i16 {
        let answer = self.ask(&Call::Init).await;
        if answer.code == 0 {
            self.caller.producer = answer.producer;
            self.sequences.clear();
        }
        answer.code
    }

    pub fn batch(&self, partition: usize, value: &[u8]) -> Vec<u8> {
        let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        batch_within(self.caller.producer, sequence, value)
    }

    /// Error code and offset. With the old protocol the partition is added before.
    pub async fn write(&mut self, partition: usize, value: &[u8]) -> (i16, i64) {
        if !self.caller.new {
            let added = self.ask(&Call::Add(vec![partition])).await;
            if added.code != 0 {
                return (added.code, -1);
            }
        }
        self.write_only(partition, value).await
    }

    pub async fn write_only(&mut self, partition: usize, value: &[u8]) -> (i16, i64) {
        let batch = self.batch(partition, value);
        let answer = self.ask(&Call::Write { partition, batch }).await;
        if answer.code == 0 {
            *self.sequences.entry(partition).or_default() += 1;
        }
        (answer.code, answer.offset)
    }

    pub async fn commit_offsets(&mut self, upto: i64) -> i16 {
        if !self.caller.new {
            let added = self.ask(&Call::AddGroup).await;
            if added.code != 0 {
                return added.code;
            }
        }
        self.ask(&Call::Offsets { upto }).await.code
    }

    pub async fn end(&mut self, commit: bool) -> i16 {
        let answer = self.ask(&Call::End { commit }).await;
        if answer.code == 0 && answer.producer != NOBODY && answer.producer != self.caller.producer
        {
            self.caller.producer = answer.producer;
            self.sequences.clear();
        }
        answer.code
    }

    pub async fn position(&mut self) -> i64 {
        self.ask(&Call::Position).await.offset
    }
}

/// ListOffsets of the latest offset.
pub async fn latest(clients: &mut [Client], partition: usize, isolation_level: i8) -> i64 {
    let begin = reactor::now();
    loop {
        for client in clients.iter_mut() {
            let wanted = ListOffsetsPartition {
                partition_index: partition as i32,
                timestamp: -1,
                ..Default::default()
            };
            let topic = ListOffsetsTopic { name: TOPIC.into(), partitions: vec![wanted].into() };
            let request = ListOffsetsRequest {
                isolation_level,
                topics: vec![topic].into(),
                ..Default::default()
            };
            let answer = client.call::<_, Offsets>(ApiKey::ListOffsets, 7, &request).await.unwrap();
            let topic = answer.topics.first().unwrap();
            let found = topic.partitions.first().unwrap();
            if found.error_code == 0 {
                return found.offset;
            }
        }
        assert!(reactor::now() - begin < LONG, "nobody tells the end of {partition}");
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns when readers of read_committed see all there is.
pub async fn until_stable(clients: &mut [Client], partition: usize) {
    let begin = reactor::now();
    loop {
        let stable = latest(clients, partition, COMMITTED).await;
        let end = latest(clients, partition, UNCOMMITTED).await;
        if stable == end {
            return;
        }
        assert!(reactor::now() - begin < LONG, "{partition} is stuck at {stable} of {end}");
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

/// What the leader remembers of its producers.
pub async fn producers(clients: &mut [Client], partition: usize) -> Vec<ProducerState> {
    for client in clients {
        let index = partition as i32;
        let asked = TopicRequest { name: TOPIC.into(), partition_indexes: vec![index].into() };
        let request = DescribeProducersRequest { topics: vec![asked].into() };
        let answer = client.call::<_, Producers>(ApiKey::DescribeProducers, 0, &request).await;
        let answer = answer.unwrap();
        let described = answer.topics.first().unwrap().partitions.first().unwrap();
        if described.error_code == 0 {
            return described.active_producers.to_vec();
        }
    }
    panic!("nobody leads {partition}");
}

/// Error code and state.
pub async fn state(clients: &mut [Client], id: &'static str) -> (i16, String) {
    let shard = coordinator(&mut clients[0], 1, id).await.unwrap().unwrap();
    let request = DescribeTransactionsRequest { transactional_ids: vec![id.into()].into() };
    let api = ApiKey::DescribeTransactions;
    let answer = clients[shard].call::<_, Transactions>(api, 0, &request).await.unwrap();
    let state = answer.transaction_states.first().unwrap();
    (state.error_code, state.transaction_state.to_string())
}

/// As an admin client ends what hangs.
pub async fn abort(
    clients: &mut [Client],
    partition: usize,
    (producer_id, producer_epoch): (i64, i16),
    coordinator_epoch: i32,
) -> i16 {
    let marker =
        WritableTxnMarker { producer_id, producer_epoch, coordinator_epoch, ..Default::default() };
    send_marker(clients, (TOPIC, partition), marker).await
}

/// As any client may send one.
pub async fn send_marker(
    clients: &mut [Client],
    (topic, partition): (&'static str, usize),
    marker: WritableTxnMarker<'static>,
) -> i16 {
    let not_leader = ErrorCode::NotLeaderOrFollower.code();
    for client in clients {
        let topic = WritableTxnMarkerTopic {
            name: topic.into(),
            partition_indexes: vec![partition as i32].into(),
        };
        let marker = WritableTxnMarker { topics: vec![topic].into(), ..marker.clone() };
        let request = WriteTxnMarkersRequest { markers: vec![marker].into() };
        let answer = client.call::<_, Markers>(ApiKey::WriteTxnMarkers, 1, &request).await.unwrap();
        let topic = answer.markers.first().unwrap().topics.first().unwrap();
        let code = topic.partitions.first().unwrap().error_code;
        if code != not_leader {
            return code;
        }
    }
    not_leader
}
