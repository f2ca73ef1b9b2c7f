//! The broker on a disk: how much goes through it, what the disk does for that, and how latency
//! follows load.
//!
//! Two closed loops say how much goes through; an open loop at rising parts of the second one's rate
//! gives the curve, timed from the moment at which each request was due. The disk's counters run over
//! the same stretch. Every load has a topic of its own that is deleted after it.
//!
//! | load | partitions | batch | in flight |
//! |---|---|---|---|
//! | large | 1 | 256 KiB | 4 on one connection: 1 MiB |
//! | spread | 4 | 64 KiB | 4 on each of four connections: 1 MiB |

mod knee;
mod process;
mod rows;
mod text;

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

use hdrhistogram::Histogram;
use rig::cluster::{self, Topic};
use rig::payload::Batch;
use rig::sample::{Sample, Windows};
use rig::{latency, procfs, produce};

use crate::device::{Activity, Counters};
use crate::error::{Error, Result};
use crate::facts::Place;
use crate::stop::Stop;

use knee::{Step, knee};
use process::Process;
pub use process::Setup;
pub use rows::{add_to, add_together};
pub use text::{on_disk_text, side_by_side_text};

const RECORD_BYTES: usize = 1024;
/// Before the part of an open loop that counts.
const WARM_UP: Duration = Duration::from_millis(500);
/// A segment at most; retention deletes whole ones.
const SEGMENT_BYTES: u64 = 256 << 20;

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    Written,
    Synced,
}

impl Promise {
    pub const BOTH: [Promise; 2] = [Promise::Written, Promise::Synced];

    pub fn name(self) -> &'static str {
        match self {
            Promise::Written => "default",
            Promise::Synced => "flush.messages=1",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Promise::Written => {
                "acks=all: the direct write completed; the device's own cache may still hold it"
            }
            Promise::Synced => "acks=all and flush.messages=1: on the device, its cache flushed",
        }
    }

    fn configs(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Promise::Written => Vec::new(),
            Promise::Synced => vec![("flush.messages", "1")],
        }
    }
}

/// The shape of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub name: &'static str,
    pub partitions: i32,
    pub batch_bytes: usize,
    pub connections: usize,
    /// On each connection.
    pub in_flight: usize,
}

pub const LARGE: Shape =
    Shape { name: "large", partitions: 1, batch_bytes: 256 << 10, connections: 1, in_flight: 4 };
pub const SPREAD: Shape =
    Shape { name: "spread", partitions: 4, batch_bytes: 64 << 10, connections: 4, in_flight: 4 };

/// How long, and at which loads.
#[derive(Debug, Clone)]
pub struct Loads {
    pub window: Duration,
    /// Parts of the closed loop's rate, rising.
    pub steps: Vec<f64>,
    /// Sent before anything is measured, so that segments are there and everything is warm.
    pub warm_bytes: u64,
}

impl Loads {
    pub fn full(window: Duration) -> Self {
        let steps = vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        Loads { window, steps, warm_bytes: 64 << 20 }
    }

    pub fn quick(window: Duration) -> Self {
        Loads { window, steps: vec![0.2, 0.4, 0.6, 0.8], warm_bytes: 16 << 20 }
    }
}

/// A closed loop's outcome.
#[derive(Debug, Clone)]
pub struct Closed {
    pub shape: Shape,
    pub sample: Sample,
    pub activity: Activity,
}

impl Closed {
    /// Which end was reached, as far as counters tell.
    pub fn limit(&self, shards: u16) -> Limit {
        let Sample { seconds, broker_cpu_seconds, client_cpu_seconds, other_cpu_seconds, .. } =
            self.sample;
        let all = broker_cpu_seconds + client_cpu_seconds + other_cpu_seconds;
        let short = short_of(
            self.shape.connections,
            client_cpu_seconds / seconds,
            all / seconds,
            machine_cores(),
        );
        match short {
            _ if broker_cpu_seconds / seconds >= BUSY * f64::from(shards) => Limit::Broker,
            Some(Short::Client) => Limit::Client,
            _ if self.activity.busy_percent >= BUSY * 100.0 => Limit::Disk,
            Some(Short::Machine) => Limit::Machine,
            None => Limit::Unknown,
        }
    }

    /// Why it says nothing of broker or disk, if so.
    pub fn void(&self, shards: u16) -> Option<&'static str> {
        match self.limit(shards) {
            Limit::Client => Some(Short::Client.words()),
            Limit::Machine => Some(Short::Machine.words()),
            _ => None,
        }
    }
}

/// The end that a closed loop reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Broker,
    Client,
    Disk,
    Machine,
    Unknown,
}

impl Limit {
    pub fn words(self) -> &'static str {
        match self {
            Limit::Broker => "the broker's core",
            Limit::Client => "the client",
            Limit::Disk => "the disk, or waiting for each write",
            Limit::Machine => "the machine's cores, others' work included",
            Limit::Unknown => "none of broker core, client, disk and machine: waiting in between",
        }
    }
}

/// What a load may have lacked itself, so that its figures are not the broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Short {
    Client,
    Machine,
}

impl Short {
    fn words(self) -> &'static str {
        match self {
            Short::Client => "the client used up its cores",
            Short::Machine => "all cores of the machine were in use, so the client waited for one",
        }
    }
}

/// A core, or a disk, of which that part is used has no time left that counts.
const BUSY: f64 = 0.9;

/// `client` and `all` are cores in use. More threads than cores use no more than the cores.
fn short_of(threads: usize, client: f64, all: f64, cores: f64) -> Option<Short> {
    if client >= BUSY * (threads as f64).min(cores) {
        Some(Short::Client)
    } else if all >= BUSY * cores {
        Some(Short::Machine)
    } else {
        None
    }
}

fn machine_cores() -> f64 {
    // Of the machine, as the counter of all work is, and not only those that this program may use.
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match text.lines().filter(is_core).count() {
        0 => std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64),
        count => count as f64,
    }
}

/// One load of the curve.
#[derive(Debug, Clone)]
pub struct Point {
    /// Offered, in MB/s of values.
    pub load: f64,
    /// Microseconds; `None` where the broker fell behind.
    pub latency: Option<Histogram<u64>>,
    pub activity: Activity,
    /// In use by this program.
    pub client_cores: f64,
    /// Why its latency is not the broker's, if so.
    pub void: Option<&'static str>,
}

/// The broker on one disk under one promise.
#[derive(Debug, Clone)]
pub struct OnDisk {
    pub promise: Promise,
    pub shards: u16,
    pub closed: Vec<Closed>,
    pub curve: Vec<Point>,
    pub knee: Option<usize>,
}

/// Starts a broker on the disk, loads it and ends it. What was begun when a signal came is left out.
pub fn measure(
    place: &Place,
    setup: &Setup,
    loads: &Loads,
    stop: &Stop,
    tell: &dyn Fn(&str),
) -> Result<Vec<OnDisk>> {
    let broker = Process::start(&place.dir, setup)?;
    let mut found = Vec::new();
    for promise in Promise::BOTH {
        if stop.requested() {
            break;
        }
        let mut here = OnDisk {
            promise,
            shards: setup.shards,
            closed: Vec::new(),
            curve: Vec::new(),
            knee: None,
        };
        for shape in [LARGE, SPREAD] {
            tell(&format!("broker, {}, {} batches as fast as they go", promise.name(), shape.name));
            let closed =
                with_topic(&broker, shape, promise, (setup, loads.warm_bytes), |topic, batch| {
                    closed(&broker, place, shape, topic, batch, loads.window)
                })?;
            here.closed.push(closed);
        }
        let most = here.closed.last().map_or(0.0, |closed| closed.sample.megabytes_per_second());
        if most <= 0.0 {
            return Err(Error::Broker("acknowledged nothing in the time given".into()));
        }
        for part in &loads.steps {
            if stop.requested() {
                break;
            }
            let load = most * part;
            tell(&format!("broker, {}, {load:.0} MB/s", promise.name()));
            let point =
                with_topic(&broker, SPREAD, promise, (setup, loads.warm_bytes), |topic, batch| {
                    open(place, topic, batch, load, loads.window)
                })?;
            here.curve.push(point);
        }
        let p99 = |latency: &Histogram<u64>| latency.value_at_percentile(99.0) as f64;
        // One that says nothing of the broker is no knee of it.
        let step = |point: &Point| Step {
            p99: point.latency.as_ref().filter(|_| point.void.is_none()).map(p99),
        };
        here.knee = knee(&here.curve.iter().map(step).collect::<Vec<_>>());
        found.push(here);
    }
    Ok(found)
}

/// Runs a load on a new topic, which is warm and then deleted.
fn with_topic<T>(
    broker: &Process,
    shape: Shape,
    promise: Promise,
    (setup, warm_bytes): (&Setup, u64),
    load: impl FnOnce(&Topic, &Batch) -> Result<T>,
) -> Result<T> {
    let batch = Batch::build(RECORD_BYTES, shape.batch_bytes)?;
    let partition = setup.room / shape.partitions.max(1) as u64;
    let (kept, segment) = (partition.to_string(), SEGMENT_BYTES.min(partition / 2).to_string());
    let mut configs = promise.configs();
    // Old records go while new ones come, so that no load fills the disk.
    configs.extend([("retention.bytes", kept.as_str()), ("segment.bytes", segment.as_str())]);
    let name = format!("bench-{}-{}", shape.name, promise.name().replace('=', "-"));
    let topic = cluster::create(broker.address, &name, shape.partitions, &configs)?;
    let warm = produce::Load {
        topic: &topic,
        batch: &batch,
        connections: shape.connections,
        in_flight: shape.in_flight,
    };
    produce::run_volume(&warm, warm_bytes)?;
    let outcome = load(&topic, &batch);
    cluster::delete(broker.address, &topic)?;
    broker.wait_until_gone(&topic.name)?;
    outcome
}

fn closed(
    broker: &Process,
    place: &Place,
    shape: Shape,
    topic: &Topic,
    batch: &Batch,
    window: Duration,
) -> Result<Closed> {
    let load =
        produce::Load { topic, batch, connections: shape.connections, in_flight: shape.in_flight };
    let windows = Windows { warmup: Duration::ZERO, length: window, count: 1 };
    let (before, began) = (Counters::now(&place.disks), std::time::Instant::now());
    let samples = produce::run_windows(&load, broker.pid(), &windows)?;
    // Longer than the sample: requests in flight come back before this.
    let seconds = began.elapsed().as_secs_f64();
    let after = Counters::now(&place.disks);
    let sample = samples.into_iter().next();
    let sample = sample.ok_or_else(|| Error::Broker("took nothing in the time given".into()))?;
    Ok(Closed { shape, sample, activity: before.until(&after, seconds) })
}

fn open(
    place: &Place,
    topic: &Topic,
    batch: &Batch,
    megabytes_per_second: f64,
    window: Duration,
) -> Result<Point> {
    let load = latency::Load {
        topic,
        batch,
        connections: SPREAD.connections,
        requests_per_second: megabytes_per_second * 1e6 / batch.value_bytes as f64,
        warmup: WARM_UP,
        length: window,
    };
    let used = || -> Result<(f64, f64)> {
        Ok((procfs::cpu_seconds(std::process::id())?, procfs::machine_cpu_seconds()?))
    };
    let before = Counters::now(&place.disks);
    let (began, cpu) = (std::time::Instant::now(), used()?);
    let latency = match latency::run(&load) {
        Ok(latency) => Some(latency),
        Err(rig::error::Error::FallsBehind { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let seconds = began.elapsed().as_secs_f64();
    let (client, all) = used()?;
    let (client_cores, all_cores) = ((client - cpu.0) / seconds, (all - cpu.1) / seconds);
    let activity = before.until(&Counters::now(&place.disks), seconds);
    // One that sends and one that receives on each connection.
    let short = short_of(2 * SPREAD.connections, client_cores, all_cores, machine_cores());
    let void = short.map(Short::words);
    Ok(Point { load: megabytes_per_second, latency, activity, client_cores, void })
}

/// Large batches on every disk: each broker alone, then all at the same time.
#[derive(Debug, Clone)]
pub struct SideBySide {
    pub dirs: Vec<PathBuf>,
    /// MB/s.
    pub alone: Vec<f64>,
    pub together: Vec<f64>,
}

impl SideBySide {
    pub fn scaling(&self) -> f64 {
        self.together.iter().sum::<f64>() / self.alone.iter().sum::<f64>()
    }

    /// As of the disks themselves: the slowest share of what it does alone beside the largest.
    pub fn skew(&self) -> f64 {
        let shares =
            self.together.iter().zip(&self.alone).map(|(together, alone)| together / alone);
        let (least, most) = shares.fold((f64::INFINITY, 0.0_f64), |(least, most), share| {
            (least.min(share), most.max(share))
        });
        least / most
    }
}

pub fn side_by_side(
    places: &[Place],
    setup: &Setup,
    loads: &Loads,
    tell: &dyn Fn(&str),
) -> Result<SideBySide> {
    let brokers = places.iter().map(|place| Process::start(&place.dir, setup));
    let brokers = brokers.collect::<Result<Vec<_>>>()?;
    let one = |place: &Place, broker: &Process, gate: &Barrier| {
        let mut waited = false;
        let rate = with_topic(
            broker,
            LARGE,
            Promise::Written,
            (setup, loads.warm_bytes),
            |topic, batch| {
                gate.wait();
                waited = true;
                let closed = closed(broker, place, LARGE, topic, batch, loads.window)?;
                Ok(closed.sample.megabytes_per_second())
            },
        );
        if !waited {
            // The others wait for as many as there are brokers.
            gate.wait();
        }
        rate
    };
    let mut alone = Vec::new();
    for (place, broker) in places.iter().zip(&brokers) {
        tell(&format!("broker alone on {}", place.dir.display()));
        alone.push(one(place, broker, &Barrier::new(1))?);
    }
    tell("all brokers at the same time");
    let gate = Barrier::new(brokers.len());
    let together = std::thread::scope(|scope| {
        let (one, gate) = (&one, &gate);
        let start = |(place, broker)| scope.spawn(move || one(place, broker, gate));
        let threads: Vec<_> = places.iter().zip(&brokers).map(start).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
            thread.join().unwrap_or(Err(Error::Thread))
        };
        threads.into_iter().map(end).collect::<Result<Vec<f64>>>()
    })?;
    let dirs = places.iter().map(|place| place.dir.clone()).collect();
    Ok(SideBySide { dirs, alone, together })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_client_without_cores_is_told_however_many_threads_it_has() {
        // On two cores, of which a broker has one, four connections never use 3.6.
        assert_eq!(short_of(4, 1.9, 2.0, 2.0), Some(Short::Client));
        assert_eq!(short_of(4, 0.9, 1.95, 2.0), Some(Short::Machine));
        assert_eq!(short_of(4, 0.9, 1.95, 16.0), None);
        assert_eq!(short_of(1, 0.95, 2.0, 16.0), Some(Short::Client));
        assert!(machine_cores() >= 1.0);
    }

    const MIB: u64 = 1 << 20;
    /// Less than what Kafka's default lets deleted files lie.
    const SOON: Duration = Duration::from_secs(30);

    fn used(dir: &Path) -> u64 {
        // What vanishes meanwhile takes no room.
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
            .map(|(path, data)| if data.is_dir() { used(&path) } else { data.blocks() * 512 })
            .sum()
    }

    #[test]
    fn a_broker_keeps_little_and_a_deleted_topic_nothing() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/run");
        std::fs::create_dir_all(&run).unwrap();
        let folder = tempfile::tempdir_in(run).unwrap();
        let binary = corelane_tests::repository::corelane_binary().unwrap();
        let setup = Setup { binary, shards: 1, port: None, room: 16 * MIB };
        let broker = Process::start(folder.path(), &setup).unwrap();
        let written = 128 * MIB;
        with_topic(&broker, LARGE, Promise::Written, (&setup, written), |_, _| {
            let began = Instant::now();
            while used(folder.path()) > written / 2 {
                assert!(began.elapsed() < SOON, "{} bytes are used", used(folder.path()));
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })
        .unwrap();
        // The broker's own logs stay.
        assert!(used(folder.path()) < written / 4, "{} bytes are left", used(folder.path()));
    }
}
