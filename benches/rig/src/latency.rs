//! Open-loop produce latency: requests leave at a fixed rate whatever the answers do.
//!
//! A request's latency runs from the moment at which it was due, not from when it left, so a broker
//! that stalls is charged for every request that had to wait (no coordinated omission). On each
//! connection one thread sends and one receives; the moments due are computed, never stored.

use std::io::IoSlice;
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cluster::{Lane, Topic};
use crate::connection::{Connection, send_slices};
use crate::error::{Error, Result};
use crate::payload::{Batch, Envelope};
use crate::produce::accepted;

/// More than this on the way on one connection means that the broker does not sustain the rate.
const UNANSWERED_MAX: u64 = 2_000;
const LONGEST_MICROS: u64 = 60_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
/// The kernel may otherwise wake a sleeper 50 microseconds late.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

#[derive(Debug)]
pub struct Load<'a> {
    pub topic: &'a Topic,
    pub batch: &'a Batch,
    pub connections: usize,
    /// Over all connections.
    pub requests_per_second: f64,
    pub warmup: Duration,
    pub length: Duration,
}

/// Microseconds, of the requests that were due after the warm-up.
pub fn run(load: &Load<'_>) -> Result<Histogram<u64>> {
    let lanes = load.topic.lanes(load.connections);
    let pace = Pace::new(load, lanes.len());
    let mut all = new_histogram()?;
    let outcomes: Vec<Result<Histogram<u64>>> = thread::scope(|scope| {
        let start = |(number, lane)| scope.spawn(move || run_lane(load, lane, &pace, number));
        let threads: Vec<_> = lanes.iter().enumerate().map(|(n, l)| start((n, l))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(end).collect()
    });
    for histogram in outcomes {
        all.add(histogram?).map_err(|error| Error::Unreadable(error.to_string()))?;
    }
    Ok(all)
}

pub fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_MICROS, SIGNIFICANT_DIGITS)
        .map_err(|error| Error::Usage(error.to_string()))
}

/// When each request is due: connections take turns, evenly spaced.
#[derive(Debug, Clone, Copy)]
struct Pace {
    start: Instant,
    /// Between two requests of one connection.
    interval: Duration,
    /// Between the first requests of two connections.
    shift: Duration,
    warmup: u64,
    /// Requests of one connection, warm-up included.
    count: u64,
}

impl Pace {
    fn new(load: &Load<'_>, lanes: usize) -> Self {
        let lanes = lanes.max(1) as f64;
        let interval = Duration::from_secs_f64(lanes / load.requests_per_second);
        let requests = |length: Duration| (length.as_secs_f64() / interval.as_secs_f64()) as u64;
        let warmup = requests(load.warmup);
        Pace {
            // Time for the threads to start and connect.
            start: Instant::now() + Duration::from_millis(50),
            interval,
            shift: interval.div_f64(lanes),
            warmup,
            count: warmup + requests(load.length).max(1),
        }
    }

    fn due(&self, lane: usize, request: u64) -> Instant {
        let nanos =
            self.interval.as_nanos() as u64 * request + self.shift.as_nanos() as u64 * lane as u64;
        self.start + Duration::from_nanos(nanos)
    }
}

fn run_lane(load: &Load<'_>, lane: &Lane, pace: &Pace, number: usize) -> Result<Histogram<u64>> {
    let envelope = |&partition| Envelope::build(load.topic, partition, load.batch);
    let envelopes: Vec<_> = lane.partitions.iter().map(envelope).collect::<Result<_>>()?;
    let (sender, receiver) = Connection::open(lane.leader)?.split()?;
    let answered = AtomicU64::new(0);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(sender, envelopes, load.batch, pace, number, &answered));
        let received = receive(receiver, pace, number, &answered);
        if received.is_err() {
            // Lets the sender see it: it goes by the answers.
            answered.store(u64::MAX, Ordering::Relaxed);
        }
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and(received)
    })
}

fn send(
    mut stream: TcpStream,
    mut envelopes: Vec<Envelope>,
    batch: &Batch,
    pace: &Pace,
    lane: usize,
    answered: &AtomicU64,
) -> Result<()> {
    // Only accuracy is lost without it.
    let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
    let width = envelopes.len().max(1) as u64;
    for request in 0..pace.count {
        thread::sleep(pace.due(lane, request).saturating_duration_since(Instant::now()));
        let done = answered.load(Ordering::Relaxed);
        if done == u64::MAX {
            return Ok(());
        }
        let outcome = if request - done > UNANSWERED_MAX {
            Err(Error::FallsBehind { requests: request - done })
        } else {
            let turn = (request % width) as usize;
            match envelopes.get_mut(turn) {
                Some(envelope) => send_one(&mut stream, envelope, batch, request),
                None => Ok(()),
            }
        };
        if outcome.is_err() {
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
    pace: &Pace,
    lane: usize,
    answered: &AtomicU64,
) -> Result<Histogram<u64>> {
    let mut histogram = new_histogram()?;
    for request in 0..pace.count {
        accepted(connection.receive()?, correlation_id(request))?;
        let late = Instant::now().saturating_duration_since(pace.due(lane, request));
        answered.store(request + 1, Ordering::Relaxed);
        if request >= pace.warmup {
            histogram.saturating_record(late.as_micros() as u64);
        }
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
        let topic = Topic { name: "t".to_owned(), id: Uuid::ZERO, leaders: vec![leader; 2] };
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
