//! Transactional producers as the rig plays them: a thread and a few connections each, which say
//! what a real producer says and nothing else.
//!
//! A transaction is one batch to one partition, whose turn it is, and the commit. The new protocol
//! (KIP-890) leaves it to the partition's leader to make it part of the transaction, and has a new
//! epoch with every commit; the old one asks the coordinator first and keeps its epoch.

pub mod idempotent;
pub mod ids;
pub mod rates;

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::records::BatchBuilder;
use wire::{ErrorCode, Records};

use crate::cluster::{self, Topic};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::payload::{ACKS, TIMEOUT_MS};

/// Of FindCoordinator.
const TRANSACTION_KEY: i8 = 1;
const INIT_VERSION: i16 = 5;
/// The last that clients send.
const ADD_VERSION: i16 = 3;
const TRANSACTION_TIMEOUT_MS: i32 = 60_000;
const FOUND_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// As long as Kafka's client waits for a transaction that is just ending; a shorter wait than it
/// has after other answers of this kind, and the same for both brokers.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);
const TRY_FOR: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// AddPartitionsToTxn before a batch; the epoch stays.
    Old,
    /// KIP-890.
    New,
}

impl Protocol {
    fn produce_version(self) -> i16 {
        match self {
            Protocol::Old => 11,
            Protocol::New => 13,
        }
    }

    fn end_version(self) -> i16 {
        match self {
            Protocol::Old => 4,
            Protocol::New => 5,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Old => "old protocol",
            Protocol::New => "KIP-890",
        })
    }
}

/// The records of one transaction, all alike.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    pub records: usize,
    pub record_bytes: usize,
}

impl Content {
    fn batch(&self, producer: i64, epoch: i16, sequence: i32) -> Result<Vec<u8>> {
        let mut builder =
            BatchBuilder::new().producer(producer, epoch, sequence).transactional(true);
        let (now_ms, value) = (now_ms(), vec![b'v'; self.record_bytes]);
        for _ in 0..self.records {
            builder.append(now_ms, None, Some(&value));
        }
        builder.build().map_err(|error| Error::Batch(error.to_string()))
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// How long a transaction took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// From its first request to the answer to its commit.
    pub whole: Duration,
    /// The commit alone, without what had to be tried again.
    pub commit: Duration,
}

/// The owner of one transactional id.
pub struct Producer {
    id: String,
    protocol: Protocol,
    topic: Topic,
    coordinator: Connection,
    /// One a node.
    leaders: Vec<(SocketAddr, Connection)>,
    producer: i64,
    epoch: i16,
    /// Of each partition, the next one.
    sequences: Vec<i32>,
    turn: usize,
    /// Answers that said to try again.
    pub tried_again: u64,
}

impl Producer {
    /// Takes a transactional id. The first that is asked for has the broker make its internal
    /// topic.
    pub fn open(at: SocketAddr, id: &str, topic: &Topic, protocol: Protocol) -> Result<Self> {
        let begun = Instant::now();
        loop {
            match Self::open_once(at, id, topic, protocol) {
                Ok(producer) => return Ok(producer),
                Err(error) if begun.elapsed() > FOUND_WITHIN => {
                    let what = format!("transactional id {id} has no coordinator");
                    let last = error.to_string();
                    return Err(Error::TooLate { what, within: FOUND_WITHIN, last });
                }
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn open_once(at: SocketAddr, id: &str, topic: &Topic, protocol: Protocol) -> Result<Self> {
        let found = cluster::coordinators(at, TRANSACTION_KEY, &[id.to_owned()])?;
        let coordinator = *found.first().ok_or_else(|| Error::NoLeader(id.to_owned()))?;
        let mut coordinator = Connection::open(coordinator)?;
        let (producer, epoch) = init_producer_id(&mut coordinator, Some(id))?;
        let mut leaders: Vec<(SocketAddr, Connection)> = Vec::new();
        for leader in &topic.leaders {
            if !leaders.iter().any(|(known, _)| known == leader) {
                leaders.push((*leader, Connection::open(*leader)?));
            }
        }
        Ok(Producer {
            id: id.to_owned(),
            protocol,
            topic: topic.clone(),
            coordinator,
            leaders,
            producer,
            epoch,
            sequences: vec![0; topic.leaders.len()],
            turn: 0,
            tried_again: 0,
        })
    }

    /// Begins the turns elsewhere, so that many producers do not go through the partitions in step.
    pub fn starting_at(mut self, turn: usize) -> Self {
        self.turn = turn;
        self
    }

    /// One transaction.
    pub fn transact(&mut self, content: &Content) -> Result<Took> {
        let begun = Instant::now();
        let partition = self.turn % self.sequences.len().max(1);
        self.turn += 1;
        if self.protocol == Protocol::Old {
            self.add(partition)?;
        }
        self.produce(partition, content)?;
        let commit = self.commit()?;
        Ok(Took { whole: begun.elapsed(), commit })
    }

    fn add(&mut self, partition: usize) -> Result<()> {
        let topic = AddPartitionsToTxnTopic {
            name: self.topic.name.clone().into(),
            partitions: vec![number(partition)].into(),
        };
        let request = m::AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.clone().into(),
            v3_and_below_producer_id: self.producer,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![topic].into(),
            ..m::AddPartitionsToTxnRequest::default()
        };
        self.patiently("add a partition", |producer| {
            let reply = producer.coordinator.call(&request, ADD_VERSION)?;
            let answer: m::AddPartitionsToTxnResponse<'_> = reply.decode()?;
            let topic = answer.results_by_topic_v3_and_below.first();
            let result = topic.and_then(|topic| topic.results_by_partition.first());
            result.map(|result| result.partition_error_code).ok_or_else(unreadable)
        })
    }

    fn produce(&mut self, partition: usize, content: &Content) -> Result<()> {
        let sequence = self.sequences.get(partition).copied().unwrap_or(0);
        let bytes = content.batch(self.producer, self.epoch, sequence)?;
        let data = PartitionProduceData {
            index: number(partition),
            records: Some(Records::Borrowed(&bytes)),
        };
        let data = TopicProduceData {
            name: self.topic.name.clone().into(),
            topic_id: self.topic.id,
            partition_data: vec![data].into(),
        };
        let request = m::ProduceRequest {
            transactional_id: Some(self.id.clone().into()),
            acks: ACKS,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![data].into(),
        };
        let version = self.protocol.produce_version();
        let leader = self.topic.leaders.get(partition).copied();
        self.patiently("produce", |producer| {
            let mut leaders = producer.leaders.iter_mut();
            let connection = leaders.find(|(at, _)| Some(*at) == leader);
            let (_, connection) = connection.ok_or_else(unreadable)?;
            let reply = connection.call(&request, version)?;
            let answer: m::ProduceResponse<'_> = reply.decode()?;
            let topic = answer.responses.first();
            let result = topic.and_then(|topic| topic.partition_responses.first());
            result.map(|result| result.error_code).ok_or_else(unreadable)
        })?;
        if let Some(next) = self.sequences.get_mut(partition) {
            *next = sequence + number(content.records);
        }
        Ok(())
    }

    /// Gives how long the answer took that ended the transaction.
    fn commit(&mut self) -> Result<Duration> {
        let request = m::EndTxnRequest {
            transactional_id: self.id.clone().into(),
            producer_id: self.producer,
            producer_epoch: self.epoch,
            committed: true,
        };
        let (mut took, mut goes_on) = (Duration::ZERO, (self.producer, self.epoch));
        self.patiently("commit", |producer| {
            let asked = Instant::now();
            let reply = producer.coordinator.call(&request, producer.protocol.end_version())?;
            let answer: m::EndTxnResponse = reply.decode()?;
            took = asked.elapsed();
            goes_on = (answer.producer_id, answer.producer_epoch);
            Ok(answer.error_code)
        })?;
        if self.protocol == Protocol::New {
            if goes_on == (self.producer, self.epoch) {
                return Err(Error::Unreadable("a commit without a new epoch".to_owned()));
            }
            (self.producer, self.epoch) = goes_on;
            self.sequences.fill(0);
        }
        Ok(took)
    }

    /// Asks until the answer is not to try again.
    fn patiently(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Result<i16>,
    ) -> Result<()> {
        let begun = Instant::now();
        loop {
            let code = ask(self)?;
            if !says_try_again(code) || begun.elapsed() > TRY_FOR {
                return Error::check(|| format!("{what} of {}", self.id), code);
            }
            self.tried_again += 1;
            thread::sleep(TRY_AGAIN_AFTER);
        }
    }
}

/// Producer id and epoch; without a transactional id one for idempotence alone.
pub fn init_producer_id(connection: &mut Connection, id: Option<&str>) -> Result<(i64, i16)> {
    let begun = Instant::now();
    loop {
        let reply = connection.call(&init_request(id), INIT_VERSION)?;
        let answer: m::InitProducerIdResponse = reply.decode()?;
        // The next block of ids may be on its way.
        if !says_try_again(answer.error_code) || begun.elapsed() > TRY_FOR {
            Error::check(|| "producer id".to_owned(), answer.error_code)?;
            return Ok((answer.producer_id, answer.producer_epoch));
        }
        thread::sleep(TRY_AGAIN_AFTER);
    }
}

fn init_request(id: Option<&str>) -> m::InitProducerIdRequest<'_> {
    m::InitProducerIdRequest {
        transactional_id: id.map(Into::into),
        transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
        ..m::InitProducerIdRequest::default()
    }
}

/// A transaction that is just ending, or a coordinator that is not there yet.
fn says_try_again(code: i16) -> bool {
    matches!(
        ErrorCode::from_code(code),
        Some(
            ErrorCode::ConcurrentTransactions
                | ErrorCode::NotEnoughReplicas
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
        )
    )
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn unreadable() -> Error {
    Error::Unreadable("an answer about a transaction".to_owned())
}

#[cfg(test)]
mod tests {
    use wire::records::BatchView;

    use super::*;

    #[test]
    fn a_transactions_batch_has_its_producer_and_its_records() {
        let bytes = Content { records: 3, record_bytes: 10 }.batch(7, 2, 30).unwrap();
        let view = BatchView::parse(&bytes).unwrap();
        view.verify_crc().unwrap();
        let header = view.header();
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 2, 30));
        assert_eq!(header.record_count, 3);
        assert!(header.attributes.is_transactional());
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        assert!(says_try_again(ErrorCode::ConcurrentTransactions.code()));
        assert!(!says_try_again(ErrorCode::None.code()));
        assert!(!says_try_again(ErrorCode::ProducerFenced.code()));
    }
}
