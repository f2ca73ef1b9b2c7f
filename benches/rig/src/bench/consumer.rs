//! One consumer: fetches, one on the way to each node, in a fetch session as Kafka's own have.
//!
//! Offsets have to follow one another, checksums are checked, and where values say when they were
//! due every record is opened; otherwise headers of batches say how many there are. Nothing is
//! committed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::{FetchRequest, FetchResponse};
use wire::records::{BatchView, batches};
use wire::{ApiKey, ErrorCode, Message, Reader, Uuid};

use super::link::Link;
use super::measure::{Live, Recorder};
use super::workload::Workload;
use crate::cluster::Topic;
use crate::connection::body_of;
use crate::error::{Error, Result};

/// The first version that names topics by id.
const TOPIC_ID_VERSION: i16 = 13;
/// The first version with sessions.
const SESSION_VERSION: i16 = 7;
const NO_SESSION: i32 = 0;
/// Asks for a new session.
const FIRST_EPOCH: i32 = 0;
/// Without one.
const NO_EPOCH: i32 = -1;
const READ_COMMITTED: i8 = 1;
/// Decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// What a consumer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What is being produced.
    Follow,
    /// What was written before, over and over.
    Again { records_a_partition: i64 },
}

pub struct Shop<'a> {
    pub workload: &'a Workload,
    pub version: i16,
    pub topics: &'a [Arc<Topic>],
    pub links: &'a mut [Link],
    pub recorder: &'a mut Recorder,
    pub live: &'a Live,
    /// Of one value, where records are not opened.
    pub mean_bytes: f64,
    pub now: u64,
}

#[derive(Debug)]
pub struct Consumer {
    role: Role,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    link: usize,
    readings: Vec<Reading>,
    /// Where a topic's partition stands in `readings`.
    places: HashMap<(usize, i32), usize>,
    session: i32,
    epoch: i32,
    flying: Option<i32>,
}

#[derive(Debug)]
struct Reading {
    topic: usize,
    partition: i32,
    next: i64,
    /// The broker does not know the position yet.
    moved: bool,
}

impl Consumer {
    /// `links` are to the nodes that lead its partitions.
    pub fn new(
        role: Role,
        topics: &[Arc<Topic>],
        partitions: &[(usize, i32)],
        links: &[(SocketAddr, usize)],
    ) -> Self {
        let mut lanes: Vec<Lane> = Vec::new();
        for &(node, link) in links {
            let led = |&&(topic, partition): &&(usize, i32)| {
                let index = usize::try_from(partition).unwrap_or(usize::MAX);
                topics.get(topic).and_then(|topic| topic.leaders.get(index)) == Some(&node)
            };
            let reading = |&(topic, partition): &(usize, i32)| Reading {
                topic,
                partition,
                next: 0,
                moved: true,
            };
            let readings: Vec<Reading> = partitions.iter().filter(led).map(reading).collect();
            let place = |(at, one): (usize, &Reading)| ((one.topic, one.partition), at);
            let places = readings.iter().enumerate().map(place).collect();
            let (session, epoch) = (NO_SESSION, FIRST_EPOCH);
            lanes.push(Lane { link, readings, places, session, epoch, flying: None });
        }
        Consumer { role, lanes }
    }

    pub fn start(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        (0..self.lanes.len()).try_for_each(|at| self.fetch(at, shop))
    }

    fn fetch(&mut self, at: usize, shop: &mut Shop<'_>) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| !lane.readings.is_empty()) else {
            return Ok(());
        };
        let sessions = shop.version >= SESSION_VERSION;
        let all = !sessions || lane.epoch == FIRST_EPOCH;
        let mut topics: Vec<(usize, Vec<FetchPartition>)> = Vec::new();
        for reading in lane.readings.iter_mut().filter(|reading| all || reading.moved) {
            reading.moved = false;
            let wanted = FetchPartition {
                partition: reading.partition,
                fetch_offset: reading.next,
                partition_max_bytes: shop.workload.fetch_partition_bytes,
                ..FetchPartition::default()
            };
            match topics.iter_mut().find(|(topic, _)| *topic == reading.topic) {
                Some((_, partitions)) => partitions.push(wanted),
                None => topics.push((reading.topic, vec![wanted])),
            }
        }
        let by_id = shop.version >= TOPIC_ID_VERSION;
        let named = |(at, partitions): (usize, Vec<FetchPartition>)| {
            let topic = shop.topics.get(at)?;
            Some(FetchTopic {
                topic: if by_id { "".into() } else { topic.name.as_str().into() },
                topic_id: if by_id { topic.id } else { Uuid::ZERO },
                partitions: partitions.into(),
            })
        };
        let transactional = shop.workload.transactional();
        let request = FetchRequest {
            max_wait_ms: shop.workload.fetch_max_wait_ms,
            min_bytes: shop.workload.fetch_min_bytes,
            max_bytes: shop.workload.fetch_max_bytes,
            isolation_level: if transactional { READ_COMMITTED } else { 0 },
            session_id: if sessions { lane.session } else { NO_SESSION },
            session_epoch: if sessions { lane.epoch } else { NO_EPOCH },
            topics: topics.into_iter().filter_map(named).collect(),
            ..FetchRequest::default()
        };
        let Some(link) = shop.links.get_mut(lane.link) else { return Ok(()) };
        lane.flying = Some(link.request(&request, shop.version)?);
        Ok(())
    }

    /// A broker answers; the next fetch goes out at once.
    pub fn answered(&mut self, at: usize, frame: &[u8], shop: &mut Shop<'_>) -> Result<()> {
        let role = self.role;
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let Some(expected) = lane.flying.take() else {
            return Err(Error::Unreadable("an answer to no fetch".to_owned()));
        };
        let body = body_of(frame, ApiKey::Fetch, shop.version, expected)?;
        let answer = FetchResponse::decode(&mut Reader::new(body), shop.version)?;
        if has_lost_session(answer.error_code) {
            (lane.session, lane.epoch) = (NO_SESSION, FIRST_EPOCH);
            return self.fetch(at, shop);
        }
        Error::check(|| "fetch".to_owned(), answer.error_code)?;
        for topic in &answer.responses {
            let topic_at = place(shop, topic.topic_id, &topic.topic)?;
            for data in &topic.partitions {
                let index = data.partition_index;
                Error::check(|| format!("fetch partition {index}"), data.error_code)?;
                let reading = lane.places.get(&(topic_at, index)).copied();
                let Some(reading) = reading.and_then(|at| lane.readings.get_mut(at)) else {
                    return Err(Error::Unreadable(format!("partition {index} was not asked for")));
                };
                let bytes = data.records.as_ref().and_then(wire::Records::bytes);
                take(reading, bytes.unwrap_or_default(), role, shop)?;
            }
        }
        if lane.epoch == FIRST_EPOCH && answer.session_id != NO_SESSION {
            (lane.session, lane.epoch) = (answer.session_id, 1);
        } else if lane.session != NO_SESSION {
            lane.epoch = lane.epoch.checked_add(1).unwrap_or(1);
        }
        self.rewind(at);
        self.fetch(at, shop)
    }

    /// Begins again what was read to its end.
    fn rewind(&mut self, at: usize) {
        let Role::Again { records_a_partition } = self.role else { return };
        let Some(lane) = self.lanes.get_mut(at) else { return };
        if lane.readings.iter().all(|reading| reading.next >= records_a_partition) {
            for reading in &mut lane.readings {
                (reading.next, reading.moved) = (0, true);
            }
        }
    }
}

fn has_lost_session(code: i16) -> bool {
    matches!(
        ErrorCode::from_code(code),
        Some(ErrorCode::FetchSessionIdNotFound | ErrorCode::InvalidFetchSessionEpoch)
    )
}

fn place(shop: &Shop<'_>, id: Uuid, name: &str) -> Result<usize> {
    let by_id = shop.version >= TOPIC_ID_VERSION;
    let is = |topic: &Arc<Topic>| if by_id { topic.id == id } else { topic.name == name };
    let unknown = || Error::Unreadable("a topic that was not asked for".to_owned());
    shop.topics.iter().position(is).ok_or_else(unknown)
}

/// Takes the batches of one partition; the last one may be cut.
fn take(reading: &mut Reading, bytes: &[u8], role: Role, shop: &mut Shop<'_>) -> Result<()> {
    let broken = |error: wire::records::BatchError| Error::Batch(error.to_string());
    for batch in batches(bytes) {
        let batch = batch.map_err(broken)?;
        let header = batch.header();
        if header.next_offset() <= reading.next {
            continue;
        }
        if header.base_offset > reading.next {
            let (base, due) = (header.base_offset, reading.next);
            return Err(Error::Batch(format!("a batch at offset {base} where {due} was due")));
        }
        if shop.workload.check_crc {
            batch.verify_crc().map_err(broken)?;
        }
        (reading.next, reading.moved) = (header.next_offset(), true);
        if header.attributes.is_control() {
            continue;
        }
        let records = u64::try_from(header.record_count).unwrap_or(0);
        let mean = (records as f64 * shop.mean_bytes) as u64;
        match role {
            Role::Again { .. } => shop.recorder.read_backlog(mean, shop.now),
            Role::Follow if shop.workload.stamps() => {
                let bytes = arrivals(&batch, shop)?;
                shop.recorder.read(shop.live, records, bytes, shop.now);
            }
            Role::Follow => shop.recorder.read(shop.live, records, mean, shop.now),
        }
    }
    Ok(())
}

/// Opens every record for when it was due; gives the bytes of their values.
fn arrivals(batch: &BatchView<'_>, shop: &mut Shop<'_>) -> Result<u64> {
    let broken = |error: wire::records::BatchError| Error::Batch(error.to_string());
    let records = batch.records(BATCH_BYTES_MAX).map_err(broken)?;
    let mut bytes = 0;
    for record in &records {
        let value = record.map_err(broken)?.value.unwrap_or_default();
        bytes += value.len() as u64;
        let stamp = value
            .first_chunk()
            .ok_or_else(|| Error::Unreadable("a record that another client wrote".to_owned()))?;
        shop.recorder.arrived(u64::from_be_bytes(*stamp), shop.now);
    }
    Ok(bytes)
}
