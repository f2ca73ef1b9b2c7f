//! Publishes to JetStream: a closed loop with so many on the way, and an open loop at a fixed rate.
//!
//! Each message names an inbox that ends in its number, so an acknowledgement says which one it
//! answers, whatever order they come in. One that is an error ends the load. In the open loop one
//! thread sends and one receives, and a third may follow the streams (`pull.rs`).

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Connection, Event, Message, Stream, pull};
use crate::error::{Error, Result};
use crate::latency::{Latencies, Pace, new_histogram};
use crate::sample::{Progress, Sample, Windows, measure};

/// More than this on the way on one connection means that the server does not sustain the rate.
const UNANSWERED_MAX: u64 = 50_000;
/// Messages in one system call of the open loop.
const AT_ONCE: u64 = 256;
/// The number of their subscription.
const ACKNOWLEDGEMENTS: u64 = 1;
/// Of a number in an inbox and in a payload.
pub const DIGITS: usize = 12;
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    pub at: SocketAddr,
    /// Dealt out over the connections.
    pub streams: &'a [Stream],
    pub record_bytes: usize,
    pub connections: usize,
    /// Messages on the way on each connection, of the closed loop.
    pub in_flight: usize,
}

impl Load<'_> {
    fn streams_of(&self, connection: usize) -> Vec<&Stream> {
        self.streams.iter().skip(connection).step_by(self.connections.max(1)).collect()
    }
}

/// Publishes for as long as the windows last and gives what was measured in each.
pub fn run_windows(load: &Load<'_>, server: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let start = |number| {
            let progress = &progress;
            scope.spawn(move || {
                let outcome = Publisher::open(load, number).and_then(|mut it| it.run(progress));
                if outcome.is_err() {
                    progress.stop();
                }
                outcome
            })
        };
        let threads: Vec<_> = (0..load.connections).map(start).collect();
        let samples = measure(&progress, server, windows);
        for thread in threads {
            end(thread)?;
        }
        samples
    })
}

fn end<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// One connection at work.
struct Publisher {
    connection: Connection,
    templates: Templates,
    in_flight: usize,
    record_bytes: usize,
}

impl Publisher {
    fn open(load: &Load<'_>, number: usize) -> Result<Self> {
        let mut connection = Connection::open(load.at)?;
        let inbox = format!("_INBOX.ack.{}", connection.port());
        connection.subscribe(&format!("{inbox}.*"), ACKNOWLEDGEMENTS)?;
        let templates = Templates::new(&load.streams_of(number), &inbox, load.record_bytes);
        let (in_flight, record_bytes) = (load.in_flight, load.record_bytes);
        Ok(Publisher { connection, templates, in_flight, record_bytes })
    }

    fn run(&mut self, progress: &Progress) -> Result<()> {
        let (mut sent, mut free) = (0, self.in_flight);
        let mut out = Vec::new();
        loop {
            out.clear();
            if !progress.stopped() {
                for _ in 0..std::mem::take(&mut free) {
                    self.templates.append(sent, &mut out);
                    sent += 1;
                }
                self.connection.send(&out)?;
            } else if free == self.in_flight {
                return Ok(());
            }
            let acknowledged = self.acknowledgements()?;
            free += acknowledged;
            progress.add(acknowledged as u64, (acknowledged * self.record_bytes) as u64);
        }
    }

    /// Waits for one, then takes all that came with it.
    fn acknowledgements(&mut self) -> Result<usize> {
        let (mut count, mut ping) = (0, false);
        while count == 0 || self.connection.has_more() {
            match self.connection.receive()? {
                Event::Message(message) => {
                    acknowledged(&message)?;
                    count += 1;
                }
                Event::Ping => ping = true,
                Event::Other => {}
            }
        }
        if ping {
            self.connection.send(b"PONG\r\n")?;
        }
        Ok(count)
    }
}

/// The number of the message that was stored.
fn acknowledged(message: &Message<'_>) -> Result<u64> {
    let number = message.subject.rsplit('.').next().and_then(|digits| digits.parse().ok());
    let holds = |what: &[u8]| message.payload.windows(what.len()).any(|part| part == what);
    match number {
        Some(number) if message.status == 0 && holds(b"\"seq\"") && !holds(b"\"error\"") => {
            Ok(number)
        }
        _ => {
            let said = String::from_utf8_lossy(message.payload).into_owned();
            Err(Error::Peer(format!("publish: status {}, {said}", message.status)))
        }
    }
}

/// A message for each stream, used in turn; only its number changes.
struct Templates(Vec<Template>);

struct Template {
    bytes: Vec<u8>,
    inbox_digits: usize,
    payload_digits: usize,
}

impl Templates {
    fn new(streams: &[&Stream], inbox: &str, record_bytes: usize) -> Self {
        let size = record_bytes.max(DIGITS);
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut payload = Vec::with_capacity(size);
        for _ in 0..size {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            payload.push((seed >> 56) as u8);
        }
        let template = |stream: &&Stream| {
            let mut bytes = format!("PUB {} {inbox}.", stream.name).into_bytes();
            let inbox_digits = bytes.len();
            bytes.extend([b'0'; DIGITS]);
            bytes.extend(format!(" {size}\r\n").into_bytes());
            let payload_digits = bytes.len();
            bytes.extend(&payload);
            bytes.extend(super::END);
            Template { bytes, inbox_digits, payload_digits }
        };
        Templates(streams.iter().map(template).collect())
    }

    fn append(&mut self, number: u64, out: &mut Vec<u8>) {
        let turn = (number % self.0.len().max(1) as u64) as usize;
        let Some(template) = self.0.get_mut(turn) else { return };
        let digits = format!("{number:0DIGITS$}");
        for at in [template.inbox_digits, template.payload_digits] {
            if let Some(room) = template.bytes.get_mut(at..at + DIGITS) {
                room.copy_from_slice(digits.as_bytes());
            }
        }
        out.extend(&template.bytes);
    }
}

/// An open loop.
#[derive(Debug, Clone, Copy)]
pub struct Open<'a> {
    pub load: Load<'a>,
    /// Over all connections.
    pub per_second: f64,
    pub warmup: Duration,
    pub length: Duration,
    /// Whether consumers follow the streams, one connection beside each publisher's.
    pub followed: bool,
}

/// What the threads of one connection tell each other.
#[derive(Debug, Default)]
pub struct Shared {
    answered: AtomicU64,
    ping: AtomicBool,
    failed: AtomicBool,
}

impl Shared {
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn watch<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

pub fn run_open(open: &Open<'_>) -> Result<Latencies> {
    let connections = open.load.connections;
    let pace = Pace::at(open.per_second, open.warmup, open.length, connections);
    let mut all = Latencies { produced: new_histogram()?, fetched: new_histogram()? };
    let outcomes: Vec<Result<Latencies>> = thread::scope(|scope| {
        let pace = &pace;
        let start = |number| scope.spawn(move || run_one(open, pace, number));
        let threads: Vec<_> = (0..connections).map(start).collect();
        threads.into_iter().map(end).collect()
    });
    for one in outcomes {
        let one = one?;
        let unreadable = |error: hdrhistogram::AdditionError| Error::Unreadable(error.to_string());
        all.produced.add(one.produced).map_err(unreadable)?;
        all.fetched.add(one.fetched).map_err(unreadable)?;
    }
    Ok(all)
}

fn run_one(open: &Open<'_>, pace: &Pace, number: usize) -> Result<Latencies> {
    let Publisher { connection, templates, .. } = Publisher::open(&open.load, number)?;
    let streams = open.load.streams_of(number);
    let follower = match open.followed {
        true => Some(pull::Follower::open(open.load.at, &streams)?),
        false => None,
    };
    let (sender, receiver) = connection.split()?;
    let shared = Shared::default();
    thread::scope(|scope| {
        let shared = &shared;
        let sending =
            scope.spawn(move || shared.watch(send(sender, templates, pace, number, shared)));
        let following = follower.map(|mut follower| {
            scope.spawn(move || shared.watch(follower.follow(pace, number, shared)))
        });
        let produced = shared.watch(receive(receiver, pace, number, shared));
        end(sending)?;
        let fetched = following.map_or_else(new_histogram, end)?;
        Ok(Latencies { produced: produced?, fetched })
    })
}

/// What is due goes out together, up to a bound.
fn send(
    mut stream: TcpStream,
    mut templates: Templates,
    pace: &Pace,
    lane: usize,
    shared: &Shared,
) -> Result<()> {
    // Only accuracy is lost without it.
    let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
    let (mut next, mut out) = (0, Vec::new());
    while next < pace.count {
        thread::sleep(pace.due(lane, next).saturating_duration_since(Instant::now()));
        out.clear();
        if shared.ping.swap(false, Ordering::Relaxed) {
            out.extend(b"PONG\r\n");
        }
        let now = Instant::now();
        let end = (next + AT_ONCE).min(pace.count);
        while next < end && pace.due(lane, next) <= now {
            templates.append(next, &mut out);
            next += 1;
        }
        let unanswered = next.saturating_sub(shared.answered.load(Ordering::Relaxed));
        let outcome = if unanswered > UNANSWERED_MAX {
            Err(Error::FallsBehind { requests: unanswered })
        } else {
            stream.write_all(&out).map_err(Error::io("send to NATS"))
        };
        if outcome.is_err() || shared.failed() {
            // Ends the receiver's wait.
            let _ = stream.shutdown(Shutdown::Both);
            return outcome;
        }
    }
    Ok(())
}

fn receive(
    mut connection: Connection,
    pace: &Pace,
    lane: usize,
    shared: &Shared,
) -> Result<Histogram<u64>> {
    let mut histogram = new_histogram()?;
    let mut answered = 0;
    while answered < pace.count {
        match connection.receive()? {
            Event::Message(message) => {
                pace.record(lane, acknowledged(&message)?, &mut histogram);
                answered += 1;
                shared.answered.store(answered, Ordering::Relaxed);
            }
            Event::Ping => shared.ping.store(true, Ordering::Relaxed),
            Event::Other => {}
        }
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_number_where_acknowledgements_and_consumers_look() {
        let streams = [Stream { name: "a".to_owned() }, Stream { name: "b".to_owned() }];
        let refs: Vec<&Stream> = streams.iter().collect();
        let mut templates = Templates::new(&refs, "_INBOX.ack.7", 20);
        let mut out = Vec::new();
        templates.append(41, &mut out);
        let head = b"PUB b _INBOX.ack.7.000000000041 20\r\n000000000041";
        assert_eq!(out.get(..head.len()), Some(head.as_slice()));
        assert_eq!(out.len(), head.len() + 8 + 2);
    }

    #[test]
    fn only_a_stored_message_is_acknowledged() {
        let message = |payload: &'static str, status| Message {
            subject: "_INBOX.ack.7.000000000041",
            sid: ACKNOWLEDGEMENTS,
            status,
            payload: payload.as_bytes(),
        };
        assert_eq!(acknowledged(&message(r#"{"stream":"a","seq":9}"#, 0)).unwrap(), 41);
        let refused = message(r#"{"error":{"code":503},"stream":"a","seq":0}"#, 0);
        assert!(matches!(acknowledged(&refused), Err(Error::Peer(_))));
        assert!(matches!(acknowledged(&message("", 503)), Err(Error::Peer(_))));
    }
}
