//! Open-loop produce latency: requests leave at a fixed rate whatever the answers do.
//!
//! A request's latency runs from the moment at which it was due, not from when it left, so a broker
//! that stalls is charged for every request that had to wait (no coordinated omission). On each
//! connection one thread sends and one receives; the moments due are computed, never stored. A
//! third thread may follow what they write (`tail.rs`).

use std::io::IoSlice;
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cluster::{Lane, Topic};
use crate::connection::{Connection, send_slices};
use crate::error::{Error, Result};
use crate::payload::{Batch, Envelope};
use crate::produce::accepted_in;
use crate::tail;

/// More than this on the way on one connection means that the broker does not sustain the rate.
const UNANSWERED_MAX: u64 = 2_000;
const LONGEST_MICROS: u64 = 60_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
/// The kernel may otherwise wake a sleeper 50 microseconds late.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

#[derive(Debug)]
pub struct Load<'a> {
    /// New, if the tail is followed.
    pub topic: &'a Topic,
    pub batch: &'a Batch,
    pub connections: usize,
    /// Over all connections.
    pub requests_per_second: f64,
    pub warmup: Duration,
    pub length: Duration,
}

/// In microseconds, of the requests that were due after the warm-up.
#[derive(Debug)]
pub struct Latencies {
    /// From the moment due to the acknowledgement.
    pub produced: Histogram<u64>,
    /// From the moment due to the arrival at a consumer that follows the topic's end.
    pub fetched: Histogram<u64>,
}

pub fn run(load: &Load<'_>) -> Result<Histogram<u64>> {
    run_lanes(load, false).map(|latencies| latencies.produced)
}

/// With one consumer beside each producing connection, which follows the same partitions.
pub fn run_followed(load: &Load<'_>) -> Result<Latencies> {
    run_lanes(load, true)
}

fn run_lanes(load: &Load<'_>, followed: bool) -> Result<Latencies> {
    let lanes = load.topic.lanes(load.connections);
    let pace = Pace::new(load, lanes.len());
    let mut all = Latencies { produced: new_histogram()?, fetched: new_histogram()? };
    let outcomes: Vec<Result<Latencies>> = thread::scope(|scope| {
        let start =
            |(number, lane)| scope.spawn(move || run_lane(load, lane, &pace, number, followed));
        let threads: Vec<_> = lanes.iter().enumerate().map(start).collect();
        threads.into_iter().map(end).collect()
    });
    for lane in outcomes {
        let lane = lane?;
        let unreadable = |error: hdrhistogram::AdditionError| Error::Unreadable(error.to_string());
        all.produced.add(lane.produced).map_err(unreadable)?;
        all.fetched.add(lane.fetched).map_err(unreadable)?;
    }
    Ok(all)
}

fn end<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_MICROS, SIGNIFICANT_DIGITS)
        .map_err(|error| Error::Usage(error.to_string()))
}

/// When each request is due: connections take turns, evenly spaced.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    /// Between two requests of one connection.
    interval: Duration,
    /// Between the first requests of two connections.
    shift: Duration,
    warmup: u64,
    /// Requests of one connection, warm-up included.
    pub count: u64,
}

impl Pace {
    fn new(load: &Load<'_>, lanes: usize) -> Self {
        Self::at(load.requests_per_second, load.warmup, load.length, lanes)
    }

    /// `per_second` over all lanes.
    pub fn at(per_second: f64, warmup: Duration, length: Duration, lanes: usize) -> Self {
        let lanes = lanes.max(1) as f64;
        let interval = Duration::from_secs_f64(lanes / per_second);
        let requests = |length: Duration| (length.as_secs_f64() / interval.as_secs_f64()) as u64;
        let warmup = requests(warmup);
        Pace {
            // Time for the threads to start and connect.
            start: Instant::now() + Duration::from_millis(50),
            interval,
            shift: interval.div_f64(lanes),
            warmup,
            count: warmup + requests(length).max(1),
        }
    }

    pub fn due(&self, lane: usize, request: u64) -> Instant {
        let nanos =
            self.interval.as_nanos() as u64 * request + self.shift.as_nanos() as u64 * lane as u64;
        self.start + Duration::from_nanos(nanos)
    }

    /// That a request is done now, unless it belongs to the warm-up.
    pub fn record(&self, lane: usize, request: u64, histogram: &mut Histogram<u64>) {
        if request >= self.warmup {
            let late = Instant::now().saturating_duration_since(self.due(lane, request));
            histogram.saturating_record(late.as_micros() as u64);
        }
    }
}

/// What the threads of one lane tell each other.
#[derive(Debug, Default)]
pub struct Shared {
    answered: AtomicU64,
    failed: AtomicBool,
}

impl Shared {
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// An error ends all of a lane's threads; it is the one worth telling.
    fn watch<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

fn run_lane(
    load: &Load<'_>,
    lane: &Lane,
    pace: &Pace,
    number: usize,
    followed: bool,
) -> Result<Latencies> {
    let envelope = |&partition| Envelope::build(load.topic, partition, load.batch);
    let envelopes: Vec<_> = lane.partitions.iter().map(envelope).collect::<Result<_>>()?;
    let (sender, receiver) = Connection::open(lane.leader)?.split()?;
    let shared = Shared::default();
    thread::scope(|scope| {
        let sending = scope
            .spawn(|| shared.watch(send(sender, envelopes, load.batch, pace, number, &shared)));
        let following = followed
            .then(|| scope.spawn(|| shared.watch(tail::follow(load, lane, pace, number, &shared))));
        let version = load.topic.produce_version;
        let produced = shared.watch(receive(receiver, version, pace, number, &shared));
        end(sending)?;
        let fetched = following.map_or_else(new_histogram, end)?;
        Ok(Latencies { produced: produced?, fetched })
    })
}

fn send(
    mut stream: TcpStream,
    mut envelopes: Vec<Envelope>,
    batch: &Batch,
    pace: &Pace,
    lane: usize,
    shared: &Shared,
) -> Result<()> {
    // Only accuracy is lost without it.
    let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
    let width = envelopes.len().max(1) as u64;
    for request in 0..pace.count {
        thread::sleep(pace.due(lane, request).saturating_duration_since(Instant::now()));
        let unanswered = request.saturating_sub(shared.answered.load(Ordering::Relaxed));
        let outcome = if unanswered > UNANSWERED_MAX {
            Err(Error::FallsBehind { requests: unanswered })
        } else {
            let turn = (request % width) as usize;
            match envelopes.get_mut(turn) {
                Some(envelope) => send_one(&mut stream, envelope, batch, request),
                None => Ok(()),
            }
        };
        if outcome.is_err() || shared.failed() {
            // Ends the receiver's wait.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return outcome;
        }
    }
    Ok(())
}

fn send_one(stream: &mut TcpStream, e: &mut Envelope, batch: &Batch, request: u64) -> Result<()> {
    e.set_correlation(correlation_id(request));
    send_slices(stream, &mut e.parts(batch).map(IoSlice::new))
}

fn receive(
    mut connection: Connection,
    version: i16,
    pace: &Pace,
    lane: usize,
    shared: &Shared,
) -> Result<Histogram<u64>> {
    let mut histogram = new_histogram()?;
    for request in 0..pace.count {
        accepted_in(version, connection.receive()?, correlation_id(request))?;
        shared.answered.store(request + 1, Ordering::Relaxed);
        pace.record(lane, request, &mut histogram);
    }
    Ok(histogram)
}

fn correlation_id(request: u64) -> i32 {
    (request & 0x7fff_ffff) as i32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use wire::Uuid;

    use super::*;

    #[test]
    fn connections_take_turns_at_the_wanted_rate() {
        let leader = SocketAddr::from(([127, 0, 0, 1], 1));
        let topic = Topic {
            name: "t".to_owned(),
            id: Uuid::ZERO,
            leaders: vec![leader; 2],
            produce_version: crate::payload::PRODUCE_VERSION,
        };
        let load = Load {
            topic: &topic,
            batch: &Batch::build(10, 100).unwrap(),
            connections: 2,
            requests_per_second: 100.0,
            warmup: Duration::from_secs(1),
            length: Duration::from_secs(3),
        };
        let pace = Pace::new(&load, 2);
        assert_eq!((pace.warmup, pace.count), (50, 200));
        let due = |lane, request| pace.due(lane, request).duration_since(pace.start).as_millis();
        assert_eq!([due(0, 0), due(1, 0), due(0, 1), due(1, 1)], [0, 10, 20, 30]);
        assert_eq!(due(0, 199), 3980);
    }
}
