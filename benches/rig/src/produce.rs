//! Closed-loop produce: every connection keeps a fixed number of requests on the way.
//!
//! One thread a lane. Each answer is decoded and must be without error; as many requests are sent
//! again as answers came in one read, in one system call.

use std::io::IoSlice;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::messages::ProduceResponse;
use wire::{ApiKey, Message, Reader};

use crate::cluster::{Lane, Topic};
use crate::connection::{Connection, body_of};
use crate::error::{Error, Result};
use crate::payload::{Batch, Envelope, PRODUCE_VERSION};
use crate::sample::{Progress, Sample, Windows, measure};

#[derive(Debug)]
pub struct Load<'a> {
    pub topic: &'a Topic,
    pub batch: &'a Batch,
    pub connections: usize,
    /// Requests on the way on each connection.
    pub in_flight: usize,
}

/// Produces for as long as the windows last and gives what was measured in each.
pub fn run_windows(load: &Load<'_>, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    run_windows_on(load.topic.lanes(load.connections), load, broker, windows)
}

/// The same on these lanes, however many connections the load names.
pub fn run_windows_on(
    lanes: Vec<Lane>,
    load: &Load<'_>,
    broker: u32,
    windows: &Windows,
) -> Result<Vec<Sample>> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let lanes = start(scope, lanes, load, u64::MAX, &progress);
        let samples = measure(&progress, broker, windows);
        join(lanes)?;
        samples
    })
}

/// Produces at least `bytes` of values, the same to every partition; gives batches a partition.
pub fn run_volume(load: &Load<'_>, bytes: u64) -> Result<u64> {
    let partitions = load.topic.leaders.len() as u64;
    let batches = bytes.div_ceil(load.batch.value_bytes * partitions).max(1);
    let progress = Progress::default();
    let lanes = load.topic.lanes(load.connections);
    thread::scope(|scope| join(start(scope, lanes, load, batches, &progress)))?;
    Ok(batches)
}

const LONGEST_NANOS: u64 = 60_000_000_000;

/// One request after the other on the first lane's connection, for so long; gives how long each took,
/// in nanoseconds.
pub fn one_at_a_time(load: &Load<'_>, length: Duration) -> Result<Histogram<u64>> {
    let unusable = |error: hdrhistogram::CreationError| Error::Usage(error.to_string());
    let mut histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, 3).map_err(unusable)?;
    let Some(lane) = load.topic.lanes(1).into_iter().next() else { return Ok(histogram) };
    let mut pump = Pump::open(load, &lane)?;
    let end = Instant::now() + length;
    let mut begun = Instant::now();
    while begun < end {
        pump.send(1)?;
        pump.receive()?;
        let answered = Instant::now();
        let took = answered.duration_since(begun).as_nanos();
        histogram.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
        begun = answered;
    }
    Ok(histogram)
}

type LaneThread<'scope> = thread::ScopedJoinHandle<'scope, Result<()>>;

fn start<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    lanes: Vec<Lane>,
    load: &'env Load<'env>,
    batches_a_partition: u64,
    progress: &'env Progress,
) -> Vec<LaneThread<'scope>> {
    let lanes = lanes.into_iter().map(|lane| {
        scope.spawn(move || {
            let outcome = Pump::open(load, &lane)
                .and_then(|mut pump| pump.run(batches_a_partition, progress));
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
struct Pump<'a> {
    connection: Connection,
    batch: &'a Batch,
    /// One a partition, used in turn.
    envelopes: Vec<Envelope>,
    in_flight: usize,
    version: i16,
    sent: i32,
    answered: i32,
}

impl<'a> Pump<'a> {
    fn open(load: &Load<'a>, lane: &Lane) -> Result<Self> {
        let partitions = lane.partitions.iter();
        let envelope = |&partition| Envelope::build(load.topic, partition, load.batch);
        Ok(Pump {
            connection: Connection::open(lane.leader)?,
            batch: load.batch,
            envelopes: partitions.map(envelope).collect::<Result<_>>()?,
            in_flight: load.in_flight,
            version: load.topic.produce_version,
            sent: 0,
            answered: 0,
        })
    }

    fn run(&mut self, batches_a_partition: u64, progress: &Progress) -> Result<()> {
        let mut left = batches_a_partition.saturating_mul(self.envelopes.len() as u64);
        let mut free = self.in_flight;
        loop {
            let count = if progress.stopped() { 0 } else { left.min(free as u64) as usize };
            self.send(count)?;
            left -= count as u64;
            free -= count;
            if free == self.in_flight {
                return Ok(());
            }
            let answers = self.receive()?;
            free += answers;
            let (records, bytes) = (self.batch.records, self.batch.value_bytes);
            progress.add(records * answers as u64, bytes * answers as u64);
        }
    }

    /// The next `count` requests, each to the partition whose turn it is.
    fn send(&mut self, count: usize) -> Result<()> {
        let mut rest = count;
        while rest > 0 {
            // One envelope holds one correlation id, so a call sends each at most once.
            let turn = self.sent as usize % self.envelopes.len();
            let ready = self.envelopes.get_mut(turn..).unwrap_or_default();
            let now = rest.min(ready.len());
            let ready = ready.get_mut(..now).unwrap_or_default();
            for envelope in ready.iter_mut() {
                self.sent += 1;
                envelope.set_correlation(self.sent);
            }
            let parts = ready.iter().flat_map(|envelope| envelope.parts(self.batch));
            let mut slices: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
            self.connection.send_slices(&mut slices)?;
            rest -= now;
        }
        Ok(())
    }

    /// Waits for one answer, then takes all that came with it.
    fn receive(&mut self) -> Result<usize> {
        let mut answers = 0;
        while answers == 0 || self.connection.has_received() {
            let frame = self.connection.receive()?;
            self.answered += 1;
            accepted_in(self.version, frame, self.answered)?;
            answers += 1;
        }
        Ok(answers)
    }
}

/// Checks that a produce was answered in turn and without error; gives the base offset.
pub fn accepted(frame: &[u8], expected: i32) -> Result<i64> {
    accepted_in(PRODUCE_VERSION, frame, expected)
}

/// The same of a request in this version.
pub fn accepted_in(version: i16, frame: &[u8], expected: i32) -> Result<i64> {
    let body = body_of(frame, ApiKey::Produce, version, expected)?;
    let answer = ProduceResponse::decode(&mut Reader::new(body), version)?;
    let mut base_offset = None;
    for topic in &answer.responses {
        for partition in &topic.partition_responses {
            let index = partition.index;
            Error::check(|| format!("produce to partition {index}"), partition.error_code)?;
            base_offset = Some(partition.base_offset);
        }
    }
    base_offset.ok_or_else(|| Error::Unreadable("the answer to a produce".to_owned()))
}
