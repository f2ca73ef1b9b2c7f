//! The rows that the project is judged by: how much goes through, latency at half of what Kafka
//! can do, memory with a thousand partitions, and one log against the disk's own pace.
//!
//! Every contender goes through them, twins that flush included. Rates of the open loops come from
//! the first leg of the run: half of what Kafka took in it, or its twin for those that flush.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::MEBIBYTE;
use super::loads::load;
use super::running::Running;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::latency::{self, Latencies};
use crate::payload::Batch;
use crate::peers::Peers;
use crate::results::{
    BROKER_CORES, CLIENT_CORES, DEVICE_BUSY, DEVICE_WRITTEN, DISK_ALONE, DRAIN, MAX, MEBIBYTES,
    OFFERED, OTHER_CORES, P50, P99, P999, Results, Section, median,
};
use crate::sample::{Mark, Progress, Sample, Windows};
use crate::scale::{CONNECTIONS, Scale, SpeedScale};
use crate::{disk, procfs, produce};

const THREE: i32 = 3;
const SMALL_RECORD_BYTES: usize = 100;
/// Of the one log: four of them make 1 MiB on the way.
const STREAM_BYTES: usize = 256 << 10;
const STREAM_DEPTH: usize = 4;
/// To every partition of the many, before anything is measured.
const ROUNDS: u64 = 2;

pub const MAXIMUM: &str = "1 KiB records, 16 KiB batches, 12 partitions";
pub const SMALL: &str = "100 B records, 16 KiB batches, 3 producers, 3 partitions";
pub const ONE_LOG: &str = "one log: 1 partition, 1 connection, 256 KiB batches, 1 MiB on the way";
/// How the rows begin whose numbers depend on the scale.
pub const PRODUCERS: &str = "small keyed batches: ";
pub const PARTITIONS: &str = "many partitions: ";
pub const PEAK: &str = "peak memory of that load on a new broker: ";
pub const OPEN: &str = "open loop, produce until acknowledged";
pub const END_TO_END: &str = "open loop, produce until a consumer has it";

/// Rates of the open loops in requests a second (of NATS: messages), by whose they are.
#[derive(Debug, Default)]
pub struct Paces(Vec<Pace>);

#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pacemaker: Contender,
    pub per_second: f64,
    /// Whose maximum it is half of: the pacemaker's, unless that one was not measured.
    pub of: Contender,
}

impl Paces {
    /// The first of its kind sets the pace of all.
    fn set(&mut self, of: Contender, maximum_per_second: f64) {
        if self.of(of).is_none() {
            let (pacemaker, per_second) = (of.pacemaker(), maximum_per_second / 2.0);
            self.0.push(Pace { pacemaker, per_second, of });
        }
    }

    pub(super) fn of(&self, who: Contender) -> Option<Pace> {
        self.0.iter().copied().find(|pace| pace.pacemaker == who.pacemaker())
    }
}

#[derive(Debug)]
pub struct SpeedLeg<'a> {
    pub who: Contender,
    pub scale: &'a Scale,
    pub results: &'a mut Results,
    pub paces: &'a mut Paces,
    pub peers: &'a Peers,
}

impl SpeedLeg<'_> {
    pub fn run(&mut self) -> Result<()> {
        if matches!(self.who, Contender::Nats | Contender::NatsFlush) {
            return self.on_new(None, |leg, server| leg.nats(server));
        }
        self.on_new(None, |leg, broker| leg.steps(broker))?;
        if self.who.target().is_none() {
            return Ok(());
        }
        self.on_new(None, |leg, broker| leg.many(broker))?;
        if self.who.flushes() {
            return Ok(());
        }
        self.on_new(Some(1), |leg, broker| leg.one_log(broker))
    }

    fn on_new(
        &mut self,
        shards: Option<u16>,
        steps: impl FnOnce(&mut Self, &Running) -> Result<()>,
    ) -> Result<()> {
        disk::drain();
        let running = Running::start(self.who, self.peers, shards)?;
        let outcome = steps(self, &running);
        if outcome.is_err() {
            eprintln!("the end of the log of {}:\n{}", self.who.name(), running.log_tail());
        }
        outcome
    }

    fn steps(&mut self, broker: &Running) -> Result<()> {
        let SpeedScale { exercise, windows, producers, small_batch_records, .. } = self.scale.speed;
        let usual = Scale::usual();
        let batch = Batch::build(usual.record_bytes, usual.batch_bytes)?;
        self.say("warming up");
        let unmeasured = Windows { warmup: exercise, length: Duration::ZERO, count: 0 };
        self.produce(broker, usual.partitions, Producers::Usual, &batch, &unmeasured)?;

        self.say(MAXIMUM);
        let samples = self.produce(broker, usual.partitions, Producers::Usual, &batch, &windows)?;
        self.add_samples(MAXIMUM, &samples);
        self.pace(&samples, batch.value_bytes);

        self.say(SMALL);
        let small = Batch::build(SMALL_RECORD_BYTES, usual.batch_bytes)?;
        let samples = self.produce(broker, THREE, Producers::Split(3), &small, &windows)?;
        self.add_samples(SMALL, &samples);

        let row = format!(
            "{PRODUCERS}{producers} producers, {small_batch_records} records of 100 B a batch, 12 \
             partitions"
        );
        self.say(&row);
        let keyed = Batch::keyed(small_batch_records, SMALL_RECORD_BYTES)?;
        let sharing = Producers::Share(producers);
        let samples = self.produce(broker, usual.partitions, sharing, &keyed, &windows)?;
        self.add_samples(&row, &samples);

        self.open(broker, &batch, OPEN, false)?;
        self.open(broker, &batch, END_TO_END, true)
    }

    fn produce(
        &mut self,
        broker: &Running,
        partitions: i32,
        producers: Producers,
        batch: &Batch,
        windows: &Windows,
    ) -> Result<Vec<Sample>> {
        disk::drain();
        let topic = broker.create(&format!("speed-{producers}-{}", windows.count), partitions)?;
        let lanes = match producers {
            Producers::Usual => topic.lanes(CONNECTIONS),
            Producers::Split(count) => topic.lanes(count),
            Producers::Share(count) => topic.shared_lanes(count),
        };
        let load = load(&topic, batch);
        let samples = produce::run_windows_on(lanes, &load, broker.pid()?, windows)?;
        broker.delete(&topic)?;
        Ok(samples)
    }

    pub(super) fn pace(&mut self, samples: &[Sample], bytes_a_request: u64) {
        let rates: Vec<f64> = samples.iter().map(|sample| sample.bytes / sample.seconds).collect();
        if let Some(rate) = median(&rates) {
            self.paces.set(self.who, rate / bytes_a_request as f64);
        }
    }

    fn open(&mut self, broker: &Running, batch: &Batch, what: &str, followed: bool) -> Result<()> {
        let Some(Pace { per_second: rate, of, .. }) = self.paces.of(self.who) else {
            return Ok(());
        };
        let row = format!("{what}; at half of the maximum of {}", of.name());
        self.say(&format!("{row}, {rate:.0} requests/s"));
        disk::drain();
        let name = if followed { "followed" } else { "open" };
        let topic = broker.create(name, Scale::usual().partitions)?;
        let idle = Progress::default();
        let from = Mark::now(&idle, broker.pid()?)?;
        let load = latency::Load {
            topic: &topic,
            batch,
            connections: CONNECTIONS,
            requests_per_second: rate,
            warmup: self.scale.speed.open_warmup,
            length: self.scale.speed.open_length,
        };
        let measured = match followed {
            true => latency::run_followed(&load).map(|Latencies { fetched, .. }| fetched),
            false => latency::run(&load),
        };
        let spent = from.until(&Mark::now(&idle, broker.pid()?)?);
        self.add_open(&row, measured, rate * batch.value_bytes as f64 / 1e6, &spent)?;
        broker.delete(&topic)
    }

    /// A broker that does not keep up has no figures in this row, and a line among the failures.
    pub(super) fn add_open(
        &mut self,
        row: &str,
        measured: Result<Histogram<u64>>,
        due: f64,
        spent: &Sample,
    ) -> Result<()> {
        match measured {
            Ok(histogram) => {
                for (measure, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999), (MAX, 1.0)] {
                    let micros = histogram.value_at_quantile(quantile) as f64;
                    self.add(row, measure, micros / 1e3);
                }
                self.add(row, OFFERED, due);
                self.add_busy(row, spent);
                self.add(row, OTHER_CORES, spent.other_cores());
            }
            Err(error @ Error::FallsBehind { .. }) => self.results.fail(self.who, row, &error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn many(&mut self, broker: &Running) -> Result<()> {
        let SpeedScale { partitions, exercise, windows, .. } = self.scale.speed;
        let usual = Scale::usual();
        let load = format!("1 KiB records, 16 KiB batches, {partitions} partitions");
        let row = format!("{PARTITIONS}{load}");
        self.say(&row);
        disk::drain();
        let topic = broker.create("many", partitions)?;
        let batch = Batch::build(usual.record_bytes, usual.batch_bytes)?;
        let reading = super::loads::load(&topic, &batch);
        let each = u64::try_from(partitions).unwrap_or(1) * batch.value_bytes;
        produce::run_volume(&reading, ROUNDS * each)?;
        let pid = broker.pid()?;
        let unmeasured = Windows { warmup: exercise / 2, length: Duration::ZERO, count: 0 };
        produce::run_windows(&reading, pid, &unmeasured)?;
        disk::drain();
        let samples = produce::run_windows(&reading, pid, &windows)?;
        self.add_samples(&row, &samples);
        let peak = procfs::memory(pid)?.peak / MEBIBYTE;
        self.add(&format!("{PEAK}{load}"), MEBIBYTES, peak);
        Ok(())
    }

    /// The disk alone before and after, in the same folder.
    fn one_log(&mut self, broker: &Running) -> Result<()> {
        let SpeedScale { exercise, windows, disk_probe, .. } = self.scale.speed;
        self.say(ONE_LOG);
        let folder = broker.folder();
        let alone = || {
            disk::drain();
            disk::sequential(&folder, STREAM_BYTES, STREAM_DEPTH as u64, disk_probe)
        };
        let topic = broker.create("stream", 1)?;
        let batch = Batch::build(1024, STREAM_BYTES)?;
        let load =
            produce::Load { topic: &topic, batch: &batch, connections: 1, in_flight: STREAM_DEPTH };
        let pid = broker.pid()?;
        let unmeasured = Windows { warmup: exercise / 3, length: Duration::ZERO, count: 0 };
        produce::run_windows(&load, pid, &unmeasured)?;
        let before = alone()?;
        let samples = produce::run_windows(&load, pid, &windows)?;
        self.add_samples(ONE_LOG, &samples);
        self.add(ONE_LOG, DRAIN, disk::drain());
        self.add(ONE_LOG, DISK_ALONE, before);
        self.add(ONE_LOG, DISK_ALONE, alone()?);
        Ok(())
    }

    pub(super) fn add(&mut self, row: &str, measure: crate::results::Measure, value: f64) {
        self.results.add(self.who, Section::Speed, row, measure, value);
    }

    pub(super) fn add_samples(&mut self, row: &str, samples: &[Sample]) {
        self.results.add_samples(self.who, Section::Speed, row, samples);
        for sample in samples {
            self.add_busy(row, sample);
        }
    }

    fn add_busy(&mut self, row: &str, sample: &Sample) {
        self.add(row, BROKER_CORES, sample.broker_cpu_seconds / sample.seconds);
        self.add(row, CLIENT_CORES, sample.client_cpu_seconds / sample.seconds);
        for (measure, value) in [
            (DEVICE_WRITTEN, sample.device_megabytes_per_second()),
            (DEVICE_BUSY, sample.device_busy()),
        ] {
            if let Some(value) = value {
                self.add(row, measure, value);
            }
        }
    }

    pub(super) fn say(&self, step: &str) {
        eprintln!("{}: {step}", self.who.name());
    }
}

/// How many, and whether they share partitions.
#[derive(Debug, Clone, Copy)]
enum Producers {
    /// As many as in every other load.
    Usual,
    /// So many connections, each with partitions of its own.
    Split(usize),
    /// So many connections that share all partitions of a leader.
    Share(usize),
}

impl std::fmt::Display for Producers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Producers::Usual => f.write_str("usual"),
            Producers::Split(count) => write!(f, "{count}-apart"),
            Producers::Share(count) => write!(f, "{count}-together"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{MEGABYTES, RECORDS};

    /// Every step against Corelane and its twin, with a handful of everything.
    #[test]
    fn a_leg_measures_every_row() {
        let scale = Scale { speed: SpeedScale::smoke(), ..Scale::quick() };
        let (mut results, mut paces) = (Results::default(), Paces::default());
        let peers = Peers::default();
        for who in [Contender::Corelane, Contender::CorelaneFlush] {
            let (results, paces) = (&mut results, &mut paces);
            SpeedLeg { who, scale: &scale, results, paces, peers: &peers }.run().unwrap();
        }
        assert!(results.failures.is_empty(), "{:?}", results.failures);
        let count = |who, row: &str, measure| {
            let line =
                results.lines.iter().find(|l| l.row.starts_with(row) && l.measure == measure);
            let line = line.unwrap_or_else(|| panic!("no line {row}"));
            assert!(line.of(who).iter().all(|value| value.is_finite() && *value > 0.0), "{line:?}");
            line.of(who).len()
        };
        for who in [Contender::Corelane, Contender::CorelaneFlush] {
            for row in [MAXIMUM, SMALL, PRODUCERS, PARTITIONS] {
                assert_eq!(count(who, row, RECORDS), 2, "{row}");
            }
            assert_eq!(count(who, PEAK, MEBIBYTES), 1);
            for row in [OPEN, END_TO_END] {
                let row = format!("{row}; at half of the maximum of {}", who.name());
                assert_eq!(count(who, &row, P99), 1);
            }
        }
        assert_eq!(count(Contender::Corelane, ONE_LOG, MEGABYTES), 2);
        assert_eq!(count(Contender::Corelane, ONE_LOG, DISK_ALONE), 2);
        let of: Vec<_> = paces.0.iter().map(|pace| (pace.pacemaker, pace.of)).collect();
        let expected = [
            (Contender::Kafka, Contender::Corelane),
            (Contender::KafkaFlush, Contender::CorelaneFlush),
        ];
        assert_eq!(of, expected);
    }

    #[test]
    fn kafka_sets_the_pace_of_corelane_and_peers_their_own() {
        let mut paces = Paces::default();
        for (who, maximum) in
            [(Contender::Kafka, 100.0), (Contender::Nats, 30.0), (Contender::Corelane, 300.0)]
        {
            paces.set(who, maximum);
        }
        let of = |who| paces.of(who).map(|pace| (pace.per_second, pace.of));
        assert_eq!(of(Contender::Corelane), Some((50.0, Contender::Kafka)));
        assert_eq!(of(Contender::Nats), Some((15.0, Contender::Nats)));
        assert_eq!(of(Contender::CorelaneFlush), None);
    }
}
