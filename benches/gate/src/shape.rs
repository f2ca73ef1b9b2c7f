//! The shapes of load that are counted, each with the requests it is made of.
//!
//! All requests are encoded before anything is counted: the client must cost next to nothing beside
//! the broker. Versions are those of today's Java client.

use bytes::Bytes;
use wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::records::BatchBuilder;
use wire::{ApiKey, Message, Records, Uuid, frame};

use crate::error::Error;

pub const PRODUCE_VERSION: i16 = 13;
pub const FETCH_VERSION: i16 = 18;
const ACKS_ALL: i16 = -1;
const TIMEOUT_MS: i32 = 30_000;
const CLIENT_ID: &str = "gate";
/// Requests on the way on the connection of a producer, as the Java client has by default.
pub const PRODUCES_IN_FLIGHT: usize = 5;
/// Lengths, offset and timestamp around a value; an upper bound.
const RECORD_OVERHEAD_BYTES: usize = 12;
const RECORD_BYTES: usize = 100;
/// Just before the simulator's clock begins: in nobody's future.
const TIMESTAMP_MS: i64 = 1_735_689_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No broker: a task that answers every frame. The floor of all figures: harness and executor.
    Echo,
    Produce,
    IdempotentProduce,
    /// One request with a batch for each partition.
    ProduceToAll,
    Fetch,
    /// A fetch that waits, and the produce that ends its wait.
    LongPoll,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub kind: Kind,
    pub batch_bytes: usize,
    pub partitions: i32,
    /// Requests that are counted under valgrind.
    pub requests: usize,
}

const fn shape(
    name: &'static str,
    kind: Kind,
    batch_kib: usize,
    partitions: i32,
    requests: usize,
) -> Shape {
    Shape { name, kind, batch_bytes: batch_kib * 1024, partitions, requests }
}

pub const SHAPES: [Shape; 10] = [
    shape("echo-16k", Kind::Echo, 16, 1, 400),
    shape("produce-16k", Kind::Produce, 16, 1, 400),
    shape("produce-256k", Kind::Produce, 256, 1, 100),
    shape("produce-16k-idempotent", Kind::IdempotentProduce, 16, 1, 400),
    shape("produce-16k-100-partitions", Kind::Produce, 16, 100, 400),
    shape("produce-100-batches-of-1k", Kind::ProduceToAll, 1, 100, 40),
    shape("fetch-16k", Kind::Fetch, 16, 1, 400),
    shape("fetch-256k", Kind::Fetch, 256, 1, 100),
    shape("long-poll-16k", Kind::LongPoll, 16, 1, 200),
    shape("long-poll-16k-100-partitions", Kind::LongPoll, 16, 100, 200),
];

/// The partitions that a shape writes to or reads from.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    pub id: Uuid,
    pub partitions: i32,
}

/// An uncompressed batch of records of 100 bytes that fills `batch_bytes`; with a producer, its id
/// and the first sequence.
pub fn batch(batch_bytes: usize, producer: Option<(i64, i32)>) -> Result<Vec<u8>, Error> {
    let count = (batch_bytes / (RECORD_BYTES + RECORD_OVERHEAD_BYTES)).max(1);
    let mut builder = BatchBuilder::new();
    if let Some((id, sequence)) = producer {
        builder = builder.producer(id, 0, sequence);
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut value = [0; RECORD_BYTES];
    for _ in 0..count {
        for byte in &mut value {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 56) as u8;
        }
        builder.append(TIMESTAMP_MS, None, Some(&value));
    }
    builder.build().map_err(|error| Error::Request(error.to_string()))
}

/// Records in such a batch.
pub fn records_of(batch_bytes: usize) -> usize {
    (batch_bytes / (RECORD_BYTES + RECORD_OVERHEAD_BYTES)).max(1)
}

/// A frame with any request.
pub fn request<'a, M: Message<'a>>(api: ApiKey, version: i16, body: &M) -> Result<Bytes, Error> {
    let mut writer = frame::begin_request(api, version, 0, Some(CLIENT_ID))?;
    body.encode(&mut writer, version)?;
    Ok(frame::finish_request(writer).bytes.into())
}

/// A produce of one batch to each of these partitions.
pub fn produce(topic: Topic, partitions: &[i32], batch: &[u8]) -> Result<Bytes, Error> {
    let data = partitions
        .iter()
        .map(|&index| PartitionProduceData { index, records: Some(Records::Borrowed(batch)) });
    let data = TopicProduceData {
        topic_id: topic.id,
        partition_data: data.collect::<Vec<_>>().into(),
        ..TopicProduceData::default()
    };
    let body = ProduceRequest {
        acks: ACKS_ALL,
        timeout_ms: TIMEOUT_MS,
        topic_data: vec![data].into(),
        ..ProduceRequest::default()
    };
    request(ApiKey::Produce, PRODUCE_VERSION, &body)
}

/// The state of a fetch session as its client knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    pub id: i32,
    pub epoch: i32,
}

/// A fetch of at most `bytes` of each of these partitions, from these offsets on.
pub fn fetch(
    topic: Topic,
    session: Session,
    from: &[(i32, i64)],
    bytes: usize,
) -> Result<Bytes, Error> {
    let partitions = from.iter().map(|&(partition, fetch_offset)| FetchPartition {
        partition,
        fetch_offset,
        current_leader_epoch: -1,
        partition_max_bytes: bytes as i32,
        ..FetchPartition::default()
    });
    let wanted = FetchTopic {
        topic_id: topic.id,
        partitions: partitions.collect::<Vec<_>>().into(),
        ..FetchTopic::default()
    };
    let body = FetchRequest {
        max_wait_ms: TIMEOUT_MS,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_id: session.id,
        session_epoch: session.epoch,
        topics: vec![wanted].into(),
        ..FetchRequest::default()
    };
    request(ApiKey::Fetch, FETCH_VERSION, &body)
}
