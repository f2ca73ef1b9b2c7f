//! The rows that the project is judged by: how much goes through, latency at half of what Kafka
//! can do, memory with a thousand partitions, and one log against the disk's own pace.
//!
//! Every contender goes through them, twins that flush included. Rates of the open loops come from
//! the first leg of the run: half of what Kafka took in it, or its twin for those that flush.

use std::time::Duration;

use corelane_tests::Broker;

use super::loads::load;
use super::{MEBIBYTE, MEMORY, create, delete, on, options};
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::latency::{self, Latencies};
use crate::payload::Batch;
use crate::results::{
    BROKER_CORES, CLIENT_CORES, DISK_ALONE, DRAIN, MAX, MEBIBYTES, OFFERED, OTHER_CORES, P50, P99,
    P999, Results, Section, median,
};
use crate::sample::{Mark, Progress, Sample, Windows};
use crate::scale::{CONNECTIONS, Scale, SpeedScale};
use crate::{cluster, disk, procfs, produce};

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

/// Rates of the open loops, in requests a second: by default, and where every batch is flushed.
#[derive(Debug, Default)]
pub struct Paces {
    default: Option<(f64, Contender)>,
    flushing: Option<(f64, Contender)>,
}

impl Paces {
    fn of(&mut self, who: Contender) -> &mut Option<(f64, Contender)> {
        if who.flushes() { &mut self.flushing } else { &mut self.default }
    }
}

#[derive(Debug)]
pub struct SpeedLeg<'a> {
    pub who: Contender,
    pub scale: &'a Scale,
    pub results: &'a mut Results,
    pub paces: &'a mut Paces,
}

impl SpeedLeg<'_> {
    pub fn run(&mut self) -> Result<()> {
        self.on_new(None, |leg, broker| leg.steps(broker))?;
        self.on_new(None, |leg, broker| leg.many(broker))?;
        if self.who.flushes() {
            return Ok(());
        }
        self.on_new(Some(1), |leg, broker| leg.one_log(broker))
    }

    fn on_new(
        &mut self,
        shards: Option<u16>,
        steps: impl FnOnce(&mut Self, &Broker) -> Result<()>,
    ) -> Result<()> {
        let mut options = options(self.who.target(), MEMORY);
        options.shards = shards.unwrap_or(options.shards);
        for (key, value) in self.who.settings() {
            options = options.with(key, value);
        }
        on(self.who.target(), options, |broker| steps(self, broker))
    }

    fn steps(&mut self, broker: &Broker) -> Result<()> {
        let SpeedScale { exercise, windows, producers, small_batch_records, .. } = self.scale.speed;
        let usual = Scale::usual();
        let batch = Batch::build(usual.record_bytes, usual.batch_bytes)?;
        self.say("warming up");
        let unmeasured = Windows { warmup: exercise, length: Duration::ZERO, count: 0 };
        self.produce(broker, usual.partitions, Producers::Usual, &batch, &unmeasured)?;

        self.say(MAXIMUM);
        let samples = self.produce(broker, usual.partitions, Producers::Usual, &batch, &windows)?;
        self.add_samples(MAXIMUM, &samples);
        self.pace(&samples, &batch);

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
        broker: &Broker,
        partitions: i32,
        producers: Producers,
        batch: &Batch,
        windows: &Windows,
    ) -> Result<Vec<Sample>> {
        disk::drain();
        let topic =
            create(broker, &format!("speed-{producers}-{}", windows.count), partitions, &[])?;
        let lanes = match producers {
            Producers::Usual => topic.lanes(CONNECTIONS),
            Producers::Split(count) => topic.lanes(count),
            Producers::Share(count) => topic.shared_lanes(count),
        };
        let load = load(&topic, batch);
        let samples = produce::run_windows_on(lanes, &load, super::pid(broker)?, windows)?;
        delete(broker, &topic)?;
        Ok(samples)
    }

    /// The first of its kind sets the pace of all.
    fn pace(&mut self, samples: &[Sample], batch: &Batch) {
        let rates: Vec<f64> = samples.iter().map(|sample| sample.bytes / sample.seconds).collect();
        if let Some(rate) = median(&rates) {
            let requests = rate / batch.value_bytes as f64;
            let who = self.who;
            self.paces.of(who).get_or_insert((requests / 2.0, who));
        }
    }

    /// A broker that does not keep up has no figures in this row, and a line among the failures.
    fn open(&mut self, broker: &Broker, batch: &Batch, what: &str, followed: bool) -> Result<()> {
        let Some((rate, of)) = *self.paces.of(self.who) else { return Ok(()) };
        let row = format!("{what}; at half of the maximum of {}", of.name());
        self.say(&format!("{row}, {rate:.0} requests/s"));
        disk::drain();
        let topic = create(
            broker,
            if followed { "followed" } else { "open" },
            Scale::usual().partitions,
            &[],
        )?;
        let idle = Progress::default();
        let from = Mark::now(&idle, super::pid(broker)?)?;
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
        let spent = from.until(&Mark::now(&idle, super::pid(broker)?)?);
        match measured {
            Ok(histogram) => {
                for (measure, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999), (MAX, 1.0)] {
                    let micros = histogram.value_at_quantile(quantile) as f64;
                    self.add(&row, measure, micros / 1e3);
                }
                self.add(&row, OFFERED, rate * batch.value_bytes as f64 / 1e6);
                self.add_cores(&row, &spent);
            }
            Err(error @ Error::FallsBehind { .. }) => self.results.fail(self.who, &row, &error),
            Err(error) => return Err(error),
        }
        delete(broker, &topic)
    }

    fn many(&mut self, broker: &Broker) -> Result<()> {
        let SpeedScale { partitions, exercise, windows, .. } = self.scale.speed;
        let usual = Scale::usual();
        let load = format!("1 KiB records, 16 KiB batches, {partitions} partitions");
        let row = format!("{PARTITIONS}{load}");
        self.say(&row);
        disk::drain();
        let topic = cluster::create(broker.address(), "many", partitions, &[])?;
        crate::consume::await_readable(&topic)?;
        let batch = Batch::build(usual.record_bytes, usual.batch_bytes)?;
        let reading = super::loads::load(&topic, &batch);
        let each = u64::try_from(partitions).unwrap_or(1) * batch.value_bytes;
        produce::run_volume(&reading, ROUNDS * each)?;
        let pid = super::pid(broker)?;
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
    fn one_log(&mut self, broker: &Broker) -> Result<()> {
        let SpeedScale { exercise, windows, disk_probe, .. } = self.scale.speed;
        self.say(ONE_LOG);
        let folder = broker.data_dir();
        let folder = folder.parent().unwrap_or(&folder);
        let alone = || {
            disk::drain();
            disk::sequential(folder, STREAM_BYTES, STREAM_DEPTH as u64, disk_probe)
        };
        let topic = create(broker, "stream", 1, &[])?;
        let batch = Batch::build(1024, STREAM_BYTES)?;
        let load =
            produce::Load { topic: &topic, batch: &batch, connections: 1, in_flight: STREAM_DEPTH };
        let pid = super::pid(broker)?;
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

    fn add(&mut self, row: &str, measure: crate::results::Measure, value: f64) {
        self.results.add(self.who, Section::Speed, row, measure, value);
    }

    fn add_samples(&mut self, row: &str, samples: &[Sample]) {
        self.results.add_samples(self.who, Section::Speed, row, samples);
        for sample in samples {
            self.add_busy(row, sample);
        }
    }

    fn add_cores(&mut self, row: &str, spent: &Sample) {
        self.add_busy(row, spent);
        self.add(row, OTHER_CORES, spent.other_cores());
    }

    fn add_busy(&mut self, row: &str, sample: &Sample) {
        self.add(row, BROKER_CORES, sample.broker_cpu_seconds / sample.seconds);
        self.add(row, CLIENT_CORES, sample.client_cpu_seconds / sample.seconds);
    }

    fn say(&self, step: &str) {
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
        for who in [Contender::Corelane, Contender::CorelaneFlush] {
            let (scale, results, paces) = (&scale, &mut results, &mut paces);
            SpeedLeg { who, scale, results, paces }.run().unwrap();
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
        let [default, flushing] = [paces.default.unwrap(), paces.flushing.unwrap()];
        assert_eq!([default.1, flushing.1], [Contender::Corelane, Contender::CorelaneFlush]);
    }
}
