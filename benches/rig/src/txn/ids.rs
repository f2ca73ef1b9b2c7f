//! Thousands of producer ids that have written to one partition: made, and asked for what they
//! wrote.
//!
//! Each has written one batch of one small record. Whether the broker still knows it shows when the
//! batch is sent again: the answer must be the offset of the first time, and nothing may be
//! appended.

use std::thread;
use std::time::Instant;

use wire::messages as m;
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::records::BatchBuilder;
use wire::{ApiKey, Message, Reader, Records};

use super::{
    INIT_VERSION, TRY_AGAIN_AFTER, TRY_FOR, init_producer_id, init_request, now_ms, number,
    says_try_again, unreadable,
};
use crate::cluster::Topic;
use crate::connection::{Connection, body_of};
use crate::error::{Error, Result};
use crate::groups::idle::in_threads;
use crate::payload::{ACKS, PRODUCE_VERSION, TIMEOUT_MS};
use crate::produce::accepted;

/// Connections that make them.
pub const MAKERS: usize = 8;
/// Requests on the way on each.
const AT_ONCE: usize = 32;
const VALUE: &[u8] = b"ten bytes.";

/// A producer, and where its batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    pub producer: i64,
    pub epoch: i16,
    pub offset: i64,
}

/// That many producers, each with one batch in the topic's first partition.
pub fn make(topic: &Topic, count: usize) -> Result<Vec<Made>> {
    let share = |maker: usize| count / MAKERS + usize::from(maker < count % MAKERS);
    let work = (0..MAKERS).map(|maker| {
        move || {
            let mut connection = open(topic)?;
            let ids = producer_ids(&mut connection, share(maker))?;
            let offsets = produce(&mut connection, topic, ids.iter().map(|id| (*id, 0)))?;
            let made = ids.into_iter().zip(offsets);
            Ok(made.map(|((producer, epoch), offset)| Made { producer, epoch, offset }).collect())
        }
    });
    let made: Vec<Vec<Made>> = in_threads(work)?;
    Ok(made.concat())
}

/// The same number of batches by no more producers than connections: what it takes without the ids.
pub fn make_by_few(topic: &Topic, count: usize) -> Result<()> {
    let share = |maker: usize| count / MAKERS + usize::from(maker < count % MAKERS);
    let work = (0..MAKERS).map(|maker| {
        move || {
            let mut connection = open(topic)?;
            let id = init_producer_id(&mut connection, None)?;
            let batches = (0..share(maker)).map(|sequence| (id, number(sequence)));
            produce(&mut connection, topic, batches).map(|_| ())
        }
    });
    in_threads(work).map(|_| ())
}

/// Sends the batches once more.
///
/// # Errors
/// `Forgotten` if the broker takes one for a new one.
pub fn check_known(topic: &Topic, made: &[Made]) -> Result<()> {
    let mut connection = open(topic)?;
    let again = made.iter().map(|made| ((made.producer, made.epoch), 0));
    let offsets = produce(&mut connection, topic, again)?;
    for (made, offset) in made.iter().zip(offsets) {
        if made.offset != offset {
            let (producer, first) = (made.producer, made.offset);
            return Err(Error::Forgotten { producer, first, again: offset });
        }
    }
    Ok(())
}

fn open(topic: &Topic) -> Result<Connection> {
    let leader = topic.leaders.first().ok_or_else(|| Error::NoLeader(topic.name.clone()))?;
    Connection::open(*leader)
}

fn producer_ids(connection: &mut Connection, count: usize) -> Result<Vec<(i64, i16)>> {
    let (request, begun) = (init_request(None), Instant::now());
    let mut ids = Vec::with_capacity(count);
    while ids.len() < count {
        let mut sent = Vec::with_capacity(AT_ONCE);
        for _ in 0..AT_ONCE.min(count - ids.len()) {
            sent.push(connection.send(&request, INIT_VERSION)?);
        }
        for correlation in sent {
            let frame = connection.receive()?;
            let body = body_of(frame, ApiKey::InitProducerId, INIT_VERSION, correlation)?;
            let answer = m::InitProducerIdResponse::decode(&mut Reader::new(body), INIT_VERSION)?;
            // The next block of ids is on its way; who asks again gets one.
            if says_try_again(answer.error_code) && begun.elapsed() < TRY_FOR {
                thread::sleep(TRY_AGAIN_AFTER);
                continue;
            }
            Error::check(|| "producer id".to_owned(), answer.error_code)?;
            ids.push((answer.producer_id, answer.producer_epoch));
        }
    }
    Ok(ids)
}

/// One batch after the other, of the producer and with the sequence given; gives their offsets.
fn produce(
    connection: &mut Connection,
    topic: &Topic,
    mut batches: impl Iterator<Item = ((i64, i16), i32)>,
) -> Result<Vec<i64>> {
    let mut offsets = Vec::new();
    loop {
        let mut sent = Vec::with_capacity(AT_ONCE);
        for ((producer, epoch), sequence) in batches.by_ref().take(AT_ONCE) {
            let mut builder = BatchBuilder::new().producer(producer, epoch, sequence);
            builder.append(now_ms(), None, Some(VALUE));
            let bytes = builder.build().map_err(|error| Error::Batch(error.to_string()))?;
            let data = PartitionProduceData { index: 0, records: Some(Records::Borrowed(&bytes)) };
            let data = TopicProduceData {
                topic_id: topic.id,
                partition_data: vec![data].into(),
                ..TopicProduceData::default()
            };
            let request = m::ProduceRequest {
                transactional_id: None,
                acks: ACKS,
                timeout_ms: TIMEOUT_MS,
                topic_data: vec![data].into(),
            };
            sent.push(connection.send(&request, PRODUCE_VERSION)?);
        }
        if sent.is_empty() {
            return Ok(offsets);
        }
        for correlation in sent {
            offsets.push(accepted(connection.receive()?, correlation)?);
        }
    }
}

/// A few from the beginning, the middle and the end.
pub fn some_of(made: &[Made]) -> Result<Vec<Made>> {
    const EACH: usize = 100;
    let mut by_offset = made.to_vec();
    by_offset.sort_unstable_by_key(|made| made.offset);
    let middle = by_offset.len() / 2;
    let starts = [0, middle, by_offset.len().saturating_sub(EACH)];
    let some = starts.into_iter().flat_map(|at| by_offset.iter().skip(at).take(EACH).copied());
    let some: Vec<Made> = some.collect();
    if some.is_empty() { Err(unreadable()) } else { Ok(some) }
}
