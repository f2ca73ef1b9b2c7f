//! Consume: every connection keeps one fetch on the way, as consumers do.
//!
//! One thread a lane, whose requests ask for all its partitions with a consumer's default limits.
//! Headers of batches are read, and offsets must follow one another without a gap; the checksum of
//! the first batch of each answer is checked, the others are not, to keep the client cheap.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::{FetchRequest, FetchResponse};
use wire::records::{BatchHeader, BatchView};
use wire::{ApiKey, Message, Reader};

use crate::cluster::{Lane, Topic};
use crate::connection::{Connection, body_of};
use crate::error::{Error, Result};
use crate::sample::{Mark, Progress, Sample, Windows, measure};

pub const FETCH_VERSION: i16 = 17;
/// A consumer's defaults: fetch.max.bytes, max.partition.fetch.bytes, fetch.max.wait.ms.
const MAX_BYTES: i32 = 50 << 20;
const PARTITION_MAX_BYTES: i32 = 1 << 20;
pub const MAX_WAIT_MS: i32 = 500;
/// An answer to a fetch outside any fetch session.
pub const NO_SESSION_EPOCH: i32 = -1;
const ONCE_WITHIN: Duration = Duration::from_secs(120);
const READABLE_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A topic whose partitions all hold the same number of records.
#[derive(Debug)]
pub struct Load<'a> {
    pub topic: &'a Topic,
    pub connections: usize,
    pub records_a_partition: i64,
    /// Of one record's value.
    pub record_bytes: u64,
}

/// Reads the topic over and over until the windows have passed.
pub fn run_windows(load: &Load<'_>, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let lanes = start(scope, load, true, &progress);
        let samples = measure(&progress, broker, windows);
        join(lanes)?;
        samples
    })
}

/// Reads the topic once, from start to end.
pub fn run_once(load: &Load<'_>, broker: u32) -> Result<Sample> {
    let progress = Progress::default();
    let from = Mark::now(&progress, broker)?;
    thread::scope(|scope| join(start(scope, load, false, &progress)))?;
    Ok(from.until(&Mark::now(&progress, broker)?))
}

/// Waits until the leaders that Metadata names know it themselves: a broker may say so earlier.
pub fn await_readable(topic: &Topic) -> Result<()> {
    let deadline = Instant::now() + READABLE_WITHIN;
    let load = Load { topic, connections: 1, records_a_partition: 1, record_bytes: 0 };
    for lane in topic.lanes(1) {
        let attempt = || Reading::open(&load, &lane).and_then(|mut reading| reading.fetch(0));
        while let Err(error) = attempt() {
            if Instant::now() > deadline {
                let what = format!("topic {} does not become readable", topic.name);
                let last = error.to_string();
                return Err(Error::TooLate { what, within: READABLE_WITHIN, last });
            }
            thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

type LaneThread<'scope> = thread::ScopedJoinHandle<'scope, Result<()>>;

fn start<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    load: &'env Load<'env>,
    again: bool,
    progress: &'env Progress,
) -> Vec<LaneThread<'scope>> {
    let lanes = load.topic.lanes(load.connections).into_iter();
    let lanes = lanes.map(|lane| {
        scope.spawn(move || {
            let outcome =
                Reading::open(load, &lane).and_then(|mut reading| reading.run(again, progress));
            if outcome.is_err() {
                progress.stop();
            }
            outcome
        })
    });
    lanes.collect()
}

fn join(lanes: Vec<LaneThread<'_>>) -> Result<()> {
    let mut outcome = Ok(());
    for lane in lanes {
        let ended = lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome = outcome.and(ended);
    }
    outcome
}

/// One lane at work.
pub struct Reading<'a> {
    load: &'a Load<'a>,
    connection: Connection,
    /// Partition and the next offset to read.
    positions: Vec<(i32, i64)>,
}

impl<'a> Reading<'a> {
    pub fn open(load: &'a Load<'a>, lane: &Lane) -> Result<Self> {
        let positions = lane.partitions.iter().map(|&partition| (partition, 0)).collect();
        Ok(Reading { load, connection: Connection::open(lane.leader)?, positions })
    }

    fn run(&mut self, again: bool, progress: &Progress) -> Result<()> {
        let deadline = Instant::now() + ONCE_WITHIN;
        while !progress.stopped() {
            if self.at_end() {
                if !again {
                    return Ok(());
                }
                self.rewind();
            }
            let records = self.fetch(MAX_WAIT_MS)?;
            progress.add(records, records * self.load.record_bytes);
            if !again && Instant::now() > deadline {
                let what = "the topic was not read to its end".to_owned();
                let last = format!("{:?}", self.positions);
                return Err(Error::TooLate { what, within: ONCE_WITHIN, last });
            }
        }
        Ok(())
    }

    pub fn at_end(&self) -> bool {
        self.positions.iter().all(|&(_, next)| next >= self.load.records_a_partition)
    }

    pub fn rewind(&mut self) {
        self.positions.iter_mut().for_each(|(_, next)| *next = 0);
    }

    /// One request for the partitions that are not at their end; gives the records that came.
    pub fn fetch(&mut self, max_wait_ms: i32) -> Result<u64> {
        self.fetch_each(max_wait_ms, &mut |_, _| ())
    }

    /// The same, and tells the partition and offsets of each batch.
    pub fn fetch_each(&mut self, max_wait_ms: i32, each: &mut Each<'_>) -> Result<u64> {
        let end = self.load.records_a_partition;
        let open = self.positions.iter().filter(|(_, next)| *next < end);
        let partitions: Vec<_> = open.map(|&(partition, next)| wanted(partition, next)).collect();
        let topic = FetchTopic {
            topic_id: self.load.topic.id,
            partitions: partitions.into(),
            ..FetchTopic::default()
        };
        let request = FetchRequest {
            max_wait_ms,
            min_bytes: 1,
            max_bytes: MAX_BYTES,
            session_epoch: NO_SESSION_EPOCH,
            topics: vec![topic].into(),
            ..FetchRequest::default()
        };
        let sent = self.connection.send(&request, FETCH_VERSION)?;
        let frame = self.connection.receive()?;
        let body = body_of(frame, ApiKey::Fetch, FETCH_VERSION, sent)?;
        take(body, &mut self.positions, each)
    }
}

fn wanted(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: PARTITION_MAX_BYTES,
        ..FetchPartition::default()
    }
}

/// Is told the partition of a batch and the offsets in it.
pub type Each<'a> = dyn FnMut(i32, Range<i64>) + 'a;

/// Moves the positions behind what an answer holds.
fn take(body: &[u8], positions: &mut [(i32, i64)], each: &mut Each<'_>) -> Result<u64> {
    let answer = FetchResponse::decode(&mut Reader::new(body), FETCH_VERSION)?;
    Error::check(|| "fetch".to_owned(), answer.error_code)?;
    let (mut records, mut check) = (0, true);
    for topic in &answer.responses {
        for data in &topic.partitions {
            let index = data.partition_index;
            Error::check(|| format!("fetch partition {index}"), data.error_code)?;
            let Some((_, next)) = positions.iter_mut().find(|(partition, _)| *partition == index)
            else {
                return Err(Error::Unreadable(format!("partition {index} was not asked for")));
            };
            let bytes = data.records.as_ref().and_then(wire::Records::bytes).unwrap_or_default();
            if check && !bytes.is_empty() {
                check = !check_first(bytes)?;
            }
            records += advance(bytes, next, |offsets| each(index, offsets))?;
        }
    }
    Ok(records)
}

/// Whether there was a whole batch to check.
fn check_first(bytes: &[u8]) -> Result<bool> {
    let header = BatchHeader::parse(bytes).map_err(|error| Error::Batch(error.to_string()))?;
    let Some(batch) = bytes.get(..header.size_in_bytes()) else { return Ok(false) };
    let view = BatchView::parse(batch).map_err(|error| Error::Batch(error.to_string()))?;
    view.verify_crc().map_err(|error| Error::Batch(error.to_string()))?;
    Ok(true)
}

/// Goes from header to header; the last batch may be cut.
fn advance(mut bytes: &[u8], next: &mut i64, mut each: impl FnMut(Range<i64>)) -> Result<u64> {
    let mut records = 0;
    while let Ok(header) = BatchHeader::parse(bytes) {
        let Some(rest) = bytes.get(header.size_in_bytes()..) else { break };
        if header.base_offset != *next {
            let (base, due) = (header.base_offset, *next);
            return Err(Error::Batch(format!("a batch at offset {base} where {due} was due")));
        }
        each(header.base_offset..header.next_offset());
        *next = header.next_offset();
        records += u64::try_from(header.record_count).unwrap_or(0);
        bytes = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use wire::records::{BatchBuilder, stamp};

    use super::*;

    fn batch(base_offset: i64, count: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            builder.append(1, None, Some(b"value"));
        }
        let mut bytes = builder.build().unwrap();
        stamp(&mut bytes, base_offset, 0);
        bytes
    }

    #[test]
    fn whole_batches_count_and_a_cut_one_does_not() {
        let mut bytes = [batch(10, 3), batch(13, 2), batch(15, 4)].concat();
        bytes.truncate(bytes.len() - 1);
        let (mut next, mut bases) = (10, Vec::new());
        assert_eq!(advance(&bytes, &mut next, |offsets| bases.push(offsets.start)).unwrap(), 5);
        assert_eq!((next, bases), (15, vec![10, 13]));
    }

    #[test]
    fn a_gap_is_an_error() {
        let bytes = [batch(0, 3), batch(4, 1)].concat();
        assert!(matches!(advance(&bytes, &mut 0, |_| ()), Err(Error::Batch(_))));
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut bytes = batch(0, 3);
        assert!(check_first(&bytes).unwrap());
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(matches!(check_first(&bytes), Err(Error::Batch(_))));
    }
}
