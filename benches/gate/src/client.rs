//! The client side of a shape: prepares it, sends its requests, and checks every answer.
//!
//! Runs on the reactor, in the simulator as the broker's neighbour and on io_uring on a thread of its
//! own. Between the two marks of [`Marks`] it only clones frames, and keeps the answers: they are
//! read when the counting is over.

use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use reactor::{TcpListener, TcpStream, spawn};
use wire::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::messages::create_topics_response::CreateTopicsResponse;
use wire::messages::fetch_response::FetchResponse;
use wire::messages::produce_response::ProduceResponse;
use wire::{ApiKey, Message, Reader, Records, frame};

use crate::error::Error;
use crate::shape::{
    FETCH_VERSION, Kind, PRODUCE_VERSION, PRODUCES_IN_FLIGHT, Session, Shape, Topic, batch, fetch,
    produce, records_of, request,
};

const CREATE_TOPICS_VERSION: i16 = 7;
const TOPIC: &str = "gate";
/// Requests of the same kind before the counting starts: caches, pools and chunks have their size.
const WARM_UP: usize = 40;
const SIZE_BYTES: usize = 4;
/// A producer's id that no broker has given out.
const PRODUCER_ID: i64 = 4711;
const READ_BYTES: usize = 64 * 1024;
const ECHO_ANSWER_BYTES: usize = 60;
const ECHO_PORT_OFFSET: u16 = 50;

/// Called where the counting starts and ends.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    pub begin: fn(),
    pub end: fn(),
}

/// Runs a shape against the broker at `address`, counting `requests` of it.
pub async fn run(
    shape: &Shape,
    address: SocketAddr,
    requests: usize,
    marks: Marks,
) -> Result<(), Error> {
    if shape.kind == Kind::Echo {
        return echo(shape, address, requests, marks).await;
    }
    let mut client = Client::connect(address).await?;
    let topic = client.create_topic(shape.partitions).await?;
    match shape.kind {
        Kind::Fetch => fetch_all(shape, topic, client, requests, marks).await,
        Kind::LongPoll => follow(shape, topic, client, requests, marks).await,
        _ => produce_all(shape, topic, client, requests, marks).await,
    }
}

async fn produce_all(
    shape: &Shape,
    topic: Topic,
    mut client: Client,
    requests: usize,
    marks: Marks,
) -> Result<(), Error> {
    let frames = produces(shape, topic, WARM_UP + requests)?;
    let (warm_up, counted) = frames.split_at(WARM_UP.min(frames.len()));
    let mut answers = Vec::with_capacity(frames.len());
    client.exchange(warm_up, PRODUCES_IN_FLIGHT, &mut answers).await?;
    (marks.begin)();
    client.exchange(counted, PRODUCES_IN_FLIGHT, &mut answers).await?;
    (marks.end)();
    answers.iter().try_for_each(accepted)
}

/// Reads what was written just before, a batch a request, within a fetch session.
async fn fetch_all(
    shape: &Shape,
    topic: Topic,
    mut client: Client,
    requests: usize,
    marks: Marks,
) -> Result<(), Error> {
    let written = produces(shape, topic, WARM_UP + requests + 1)?;
    let mut answers = Vec::with_capacity(written.len());
    client.exchange(&written, PRODUCES_IN_FLIGHT, &mut answers).await?;
    answers.iter().try_for_each(accepted)?;
    answers.clear();
    let bytes = batch(shape.batch_bytes, None)?.len();
    let first = fetch(topic, Session::default(), &[(0, 0)], bytes)?;
    client.exchange(&[first], 1, &mut answers).await?;
    let mut session = fetched(&answers, bytes)?;
    let mut frames = Vec::with_capacity(WARM_UP + requests);
    for number in 1..=WARM_UP + requests {
        session.epoch += 1;
        let offset = (number * records_of(shape.batch_bytes)) as i64;
        frames.push(fetch(topic, session, &[(0, offset)], bytes)?);
    }
    let (warm_up, counted) = frames.split_at(WARM_UP);
    client.exchange(warm_up, 1, &mut answers).await?;
    (marks.begin)();
    client.exchange(counted, 1, &mut answers).await?;
    (marks.end)();
    fetched(&answers, bytes).map(drop)
}

/// One connection waits for data of all partitions, another one brings it, to each in turn.
async fn follow(
    shape: &Shape,
    topic: Topic,
    mut producer: Client,
    requests: usize,
    marks: Marks,
) -> Result<(), Error> {
    let mut consumer = Client::connect(producer.stream.peer_addr()).await?;
    let batches = produces(shape, topic, WARM_UP + requests)?;
    let bytes = batch(shape.batch_bytes, None)?.len();
    let mut accepts = Vec::with_capacity(batches.len());
    let mut answers = Vec::with_capacity(batches.len());
    let mut offsets: Vec<(i32, i64)> = (0..shape.partitions).map(|index| (index, 0)).collect();
    let first = fetch(topic, Session::default(), &offsets, bytes)?;
    consumer.send(vec![first]).await?;
    producer.exchange(batches.get(..1).unwrap_or_default(), 1, &mut accepts).await?;
    answers.push(consumer.receive().await?);
    let mut session = fetched(&answers, bytes)?;
    let mut fetches = Vec::with_capacity(batches.len());
    for turn in 0..batches.len().saturating_sub(1) {
        session.epoch += 1;
        let place = turn % offsets.len();
        let Some((index, offset)) = offsets.get_mut(place) else { continue };
        *offset += records_of(shape.batch_bytes) as i64;
        fetches.push(fetch(topic, session, &[(*index, *offset)], bytes)?);
    }
    for (number, (fetch, batch)) in fetches.iter().zip(batches.iter().skip(1)).enumerate() {
        if number + 1 == WARM_UP {
            (marks.begin)();
        }
        consumer.send(vec![fetch.clone()]).await?;
        producer.exchange(std::slice::from_ref(batch), 1, &mut accepts).await?;
        answers.push(consumer.receive().await?);
    }
    (marks.end)();
    accepts.iter().try_for_each(accepted)?;
    fetched(&answers, bytes).map(drop)
}

/// Frames to a task that answers each: what the harness and the executor take by themselves.
async fn echo(
    shape: &Shape,
    address: SocketAddr,
    requests: usize,
    marks: Marks,
) -> Result<(), Error> {
    let mut address = address;
    address.set_port(address.port() + ECHO_PORT_OFFSET);
    let listener = TcpListener::bind(address, 8).map_err(Error::io("listening"))?;
    let _server = spawn(async move {
        let Ok((stream, _)) = listener.accept().await else { return };
        let mut server = Client { stream, buffer: BytesMut::new() };
        let mut answer = BytesMut::from(&(ECHO_ANSWER_BYTES as i32).to_be_bytes()[..]);
        answer.resize(SIZE_BYTES + ECHO_ANSWER_BYTES, 0);
        let answer = answer.freeze();
        while server.receive().await.is_ok() {
            if server.send(vec![answer.clone()]).await.is_err() {
                return;
            }
        }
    });
    let mut client = Client::connect(address).await?;
    let mut frame = BytesMut::from(&(shape.batch_bytes as i32).to_be_bytes()[..]);
    frame.resize(SIZE_BYTES + shape.batch_bytes, 7);
    let frames = vec![frame.freeze(); WARM_UP + requests];
    let (warm_up, counted) = frames.split_at(WARM_UP);
    let mut answers = Vec::with_capacity(frames.len());
    client.exchange(warm_up, PRODUCES_IN_FLIGHT, &mut answers).await?;
    (marks.begin)();
    client.exchange(counted, PRODUCES_IN_FLIGHT, &mut answers).await?;
    (marks.end)();
    Ok(())
}

/// Requests that write a batch to each partition in turn, or to all of them at once.
fn produces(shape: &Shape, topic: Topic, count: usize) -> Result<Vec<Bytes>, Error> {
    let plain = batch(shape.batch_bytes, None)?;
    let all: Vec<i32> = (0..topic.partitions).collect();
    let mut different = Vec::with_capacity(all.len());
    for chosen in &all {
        different.push(match shape.kind {
            Kind::ProduceToAll => produce(topic, &all, &plain)?,
            _ => produce(topic, &[*chosen], &plain)?,
        });
    }
    let repeated = different.iter().cycle().take(count);
    if shape.kind != Kind::IdempotentProduce {
        return Ok(repeated.cloned().collect());
    }
    let numbered = repeated.enumerate().map(|(number, _)| {
        let sequence = (number * records_of(shape.batch_bytes)) as i32;
        produce(topic, &[0], &batch(shape.batch_bytes, Some((PRODUCER_ID, sequence)))?)
    });
    numbered.collect()
}

struct Client {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await.map_err(Error::io("connecting"))?;
        Ok(Client { stream, buffer: BytesMut::new() })
    }

    /// Sends all frames, at most so many without an answer; the answers are appended to `answers`.
    async fn exchange(
        &mut self,
        frames: &[Bytes],
        in_flight: usize,
        answers: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let due = answers.len() + frames.len();
        let mut rest = frames;
        let mut free = in_flight;
        while answers.len() < due {
            let (now, later) = rest.split_at(free.min(rest.len()));
            if !now.is_empty() {
                self.send(now.to_vec()).await?;
            }
            free -= now.len();
            rest = later;
            answers.push(self.receive().await?);
            free += 1;
            while let Some(answer) = self.received() {
                answers.push(answer);
                free += 1;
            }
        }
        Ok(())
    }

    async fn send(&mut self, frames: Vec<Bytes>) -> Result<(), Error> {
        self.stream.write_all(frames).await.map_err(Error::io("sending"))
    }

    /// The next frame, without its size.
    async fn receive(&mut self) -> Result<Bytes, Error> {
        loop {
            if let Some(frame) = self.received() {
                return Ok(frame);
            }
            self.buffer.reserve(self.missing().max(READ_BYTES));
            let (read, buffer) = self.stream.read(std::mem::take(&mut self.buffer)).await;
            self.buffer = buffer;
            if read.map_err(Error::io("receiving"))? == 0 {
                return Err(Error::Broker("it closed the connection".to_owned()));
            }
        }
    }

    /// A frame that has come already.
    fn received(&mut self) -> Option<Bytes> {
        let size = self.size()?;
        if self.buffer.len() < SIZE_BYTES + size {
            return None;
        }
        self.buffer.advance(SIZE_BYTES);
        Some(self.buffer.split_to(size).freeze())
    }

    fn size(&self) -> Option<usize> {
        let mut prefix = self.buffer.get(..SIZE_BYTES)?;
        Some(prefix.get_i32() as usize)
    }

    fn missing(&self) -> usize {
        self.size().map_or(0, |size| (SIZE_BYTES + size).saturating_sub(self.buffer.len()))
    }

    async fn create_topic(&mut self, partitions: i32) -> Result<Topic, Error> {
        let topic = CreatableTopic {
            name: TOPIC.into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let body = CreateTopicsRequest {
            topics: vec![topic].into(),
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        };
        self.send(vec![request(ApiKey::CreateTopics, CREATE_TOPICS_VERSION, &body)?]).await?;
        let answer = self.receive().await?;
        let mut reader = body_of(&answer, ApiKey::CreateTopics, CREATE_TOPICS_VERSION)?;
        let answer = CreateTopicsResponse::decode(&mut reader, CREATE_TOPICS_VERSION)?;
        let made = answer.topics.first().map(|topic| (topic.error_code, topic.topic_id));
        match made {
            Some((0, id)) => Ok(Topic { id, partitions }),
            Some((code, _)) => Err(Error::Refused { what: "creating the topic", code }),
            None => Err(wrong("creating the topic", "an answer without a topic")),
        }
    }
}

fn body_of(answer: &Bytes, api: ApiKey, version: i16) -> Result<Reader<'_>, Error> {
    let mut reader = Reader::new(answer);
    frame::decode_response_header(&mut reader, api, version)?;
    Ok(reader)
}

fn wrong(what: &'static str, detail: impl Into<String>) -> Error {
    Error::Wrong { what, detail: detail.into() }
}

/// Checks that every batch of a produce was taken.
fn accepted(answer: &Bytes) -> Result<(), Error> {
    let mut reader = body_of(answer, ApiKey::Produce, PRODUCE_VERSION)?;
    let answer = ProduceResponse::decode(&mut reader, PRODUCE_VERSION)?;
    for topic in &answer.responses {
        for partition in &topic.partition_responses {
            if partition.error_code != 0 {
                return Err(Error::Refused { what: "a produce", code: partition.error_code });
            }
        }
    }
    Ok(())
}

/// Checks that every fetch brought one batch of that size; gives the session of the first one.
fn fetched(answers: &[Bytes], bytes: usize) -> Result<Session, Error> {
    let mut session = None;
    for answer in answers {
        let mut reader = body_of(answer, ApiKey::Fetch, FETCH_VERSION)?;
        let answer = FetchResponse::decode(&mut reader, FETCH_VERSION)?;
        if answer.error_code != 0 {
            return Err(Error::Refused { what: "a fetch", code: answer.error_code });
        }
        let mut came = 0;
        for topic in &answer.responses {
            for partition in &topic.partitions {
                if partition.error_code != 0 {
                    return Err(Error::Refused { what: "a fetch", code: partition.error_code });
                }
                came += match &partition.records {
                    Some(Records::Borrowed(records)) => records.len(),
                    Some(Records::Owned(records)) => records.len(),
                    Some(Records::Detached(_)) | None => 0,
                };
            }
        }
        if came != bytes {
            return Err(wrong("a fetch", format!("it brought {came} bytes, not {bytes}")));
        }
        session = session.or(Some(Session { id: answer.session_id, epoch: 0 }));
    }
    session.ok_or_else(|| wrong("a fetch", "no answer"))
}
