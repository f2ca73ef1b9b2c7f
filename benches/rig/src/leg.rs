//! One leg of a run: one broker, from its first start on an empty directory to its end.
//!
//! Both brokers go through the same steps in the same order. Before each load everything written so
//! far is on the device; after it the topic is deleted.

use std::thread;
use std::time::Duration;

use corelane_tests::{Broker, BrokerOptions, Target};

use crate::cluster::{self, Topic};
use crate::error::{Error, Result};
use crate::payload::Batch;
use crate::results::{
    DRAIN, MAX, MEBIBYTES, OTHER_CORES, P50, P99, P999, Results, SECONDS, Section,
};
use crate::sample::{Mark, Progress, Windows};
use crate::scale::{CONNECTIONS, IN_FLIGHT, MANY, Scale, Workload};
use crate::{consume, disk, first, latency, procfs, produce};

/// As Kafka's own start script has them by default.
pub const KAFKA_JAVA: [&str; 8] = [
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// As much as the other's heap.
pub const CORELANE_MEMORY: &str = "1G";
/// So that deleted topics leave the disk between loads; otherwise both keep their defaults.
pub const SETTINGS: [(&str, &str); 1] = [("log.segment.delete.delay.ms", "1000")];
/// Deleted files are gone after their delay and some time to do it.
const DELETED_AFTER: Duration = Duration::from_millis(1500);
const MEBIBYTE: f64 = 1_048_576.0;

/// A broker's options for every leg.
pub fn options(target: Target) -> BrokerOptions {
    let mut options = BrokerOptions::new(target);
    for (key, value) in SETTINGS {
        options = options.with(key, value);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    options.shards = u16::try_from(cores).unwrap_or(1);
    options.flags = vec!["--memory".to_owned(), CORELANE_MEMORY.to_owned()];
    options.java = Some(KAFKA_JAVA.map(str::to_owned).to_vec());
    options
}

#[derive(Debug)]
pub struct Leg<'a> {
    pub target: Target,
    pub scale: &'a Scale,
    pub results: &'a mut Results,
}

impl Leg<'_> {
    pub fn run(&mut self) -> Result<()> {
        disk::drain();
        let mut broker = Broker::start_new(options(self.target))?;
        let outcome = self.steps(&mut broker);
        if outcome.is_err() {
            eprintln!("the end of {}'s log:\n{}", self.target.name(), broker.log_tail());
        }
        outcome
    }

    fn steps(&mut self, broker: &mut Broker) -> Result<()> {
        self.say("idle memory, then clean starts");
        thread::sleep(self.scale.idle);
        self.add(Section::Process, "idle memory after the first start", MEBIBYTES, {
            procfs::memory(pid(broker)?)?.now / MEBIBYTE
        });
        self.starts(broker)?;
        self.say("warming up");
        let usual = Scale::usual();
        let windows = Windows { warmup: self.scale.exercise, length: Duration::ZERO, count: 0 };
        self.produce(broker, &usual, &windows)?;
        for workload in &self.scale.produce {
            self.say(&format!("produce, {}", workload.title()));
            self.produce(broker, workload, &self.scale.produce_windows)?;
        }
        for &partitions in &self.scale.consume_partitions {
            self.say(&format!("consume what was just written, {partitions} partition(s)"));
            self.consume(broker, &Workload { partitions, ..usual })?;
        }
        self.say("open-loop produce latency");
        self.latency(broker, &usual)?;
        self.say("recovery after SIGKILL, then a cold read");
        self.recover(broker)
    }

    /// Time from a start after a clean stop to the first accepted produce.
    fn starts(&mut self, broker: &mut Broker) -> Result<()> {
        let topic = create(broker, "starts", 1, &[])?;
        for _ in 0..self.scale.starts {
            broker.stop()?;
            let launched = broker.launch()?;
            let accepted = first::accepted_produces(broker.address(), &topic.name, launched)?;
            let [first, _] = accepted.map(|time| time.as_secs_f64());
            self.add(Section::Process, "clean start to the first accepted produce", SECONDS, first);
        }
        Ok(())
    }

    fn produce(&mut self, broker: &Broker, workload: &Workload, w: &Windows) -> Result<()> {
        disk::drain();
        let configs: &[_] = if workload.synced { &[("flush.messages", "1")] } else { &[] };
        let name = format!("produce-{}-{}", workload.name(), w.count);
        let topic = create(broker, &name, workload.partitions, configs)?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let load = load(&topic, &batch);
        let samples = produce::run_windows(&load, pid(broker)?, w)?;
        let section = if workload.synced { Section::Synced } else { Section::Produce };
        self.results.add_samples(self.target, section, &workload.title(), &samples);
        if w.count > 0 {
            self.add(section, &workload.title(), DRAIN, disk::drain());
        }
        cluster::delete(broker.address(), &topic)?;
        thread::sleep(DELETED_AFTER);
        Ok(())
    }

    fn consume(&mut self, broker: &Broker, workload: &Workload) -> Result<()> {
        disk::drain();
        let name = format!("consume-{}", workload.name());
        let topic = create(broker, &name, workload.partitions, &[])?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let batches = produce::run_volume(&load(&topic, &batch), self.scale.consume_hot_bytes)?;
        let reading = reading(&topic, &batch, batches);
        let samples = consume::run_windows(&reading, pid(broker)?, &self.scale.consume_windows)?;
        let row = format!("just written, again and again; {}", workload.title());
        self.results.add_samples(self.target, Section::Consume, &row, &samples);
        cluster::delete(broker.address(), &topic)?;
        thread::sleep(DELETED_AFTER);
        Ok(())
    }

    fn latency(&mut self, broker: &Broker, workload: &Workload) -> Result<()> {
        disk::drain();
        let topic = create(broker, "latency", workload.partitions, &[])?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let idle = Progress::default();
        let from = Mark::now(&idle, pid(broker)?)?;
        let histogram = latency::run(&latency::Load {
            topic: &topic,
            batch: &batch,
            connections: CONNECTIONS,
            requests_per_second: self.scale.latency_per_second,
            warmup: self.scale.latency_warmup,
            length: self.scale.latency_length,
        })?;
        let rate = self.scale.latency_per_second;
        let row = format!("{rate} requests/s; {}", workload.title());
        for (measure, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999), (MAX, 1.0)] {
            let micros = histogram.value_at_quantile(quantile) as f64;
            self.add(Section::Latency, &row, measure, micros / 1e3);
        }
        let spent = from.until(&Mark::now(&idle, pid(broker)?)?);
        self.add(Section::Latency, &row, OTHER_CORES, spent.other_cores());
        cluster::delete(broker.address(), &topic)?;
        thread::sleep(DELETED_AFTER);
        Ok(())
    }

    fn recover(&mut self, broker: &mut Broker) -> Result<()> {
        disk::drain();
        let volume = self.scale.recover_bytes;
        let mebibytes = volume >> 20;
        let topic = create(broker, "recovery", MANY, &[])?;
        let batch = Batch::build(1024, 256 << 10)?;
        let batches = produce::run_volume(&load(&topic, &batch), volume)?;
        self.add(Section::Process, "peak memory over all loads", MEBIBYTES, {
            procfs::memory(pid(broker)?)?.peak / MEBIBYTE
        });
        broker.kill();
        let launched = broker.launch()?;
        let accepted = first::accepted_produces(broker.address(), &topic.name, launched)?;
        let [one, all] = accepted.map(|time| time.as_secs_f64());
        let row = format!("start after SIGKILL with {mebibytes} MiB of log, to the first accepted");
        self.add(Section::Process, &row, SECONDS, one);
        let row = format!("the same, to one accepted on each of {MANY} partitions");
        self.add(Section::Process, &row, SECONDS, all);
        self.cold(broker, &topic, &batch, batches)
    }

    /// After a clean restart, with nothing in the page cache. Knows nothing of the records that
    /// `recover` added to each partition's end.
    fn cold(&mut self, broker: &mut Broker, topic: &Topic, b: &Batch, batches: u64) -> Result<()> {
        broker.stop()?;
        disk::forget_cached(&broker.data_dir())?;
        broker.start()?;
        let topic = cluster::await_leaders(broker.address(), &topic.name, MANY)?;
        consume::await_readable(&topic)?;
        let sample = consume::run_once(&reading(&topic, b, batches), pid(broker)?)?;
        let row = format!("{} MiB once, after a restart, page cache dropped", {
            self.scale.recover_bytes >> 20
        });
        self.results.add_samples(self.target, Section::Consume, &row, &[sample]);
        broker.stop()?;
        Ok(())
    }

    fn add(&mut self, section: Section, row: &str, measure: crate::results::Measure, value: f64) {
        self.results.add(self.target, section, row, measure, value);
    }

    fn say(&self, step: &str) {
        eprintln!("{}: {step}", self.target.name());
    }
}

fn create(b: &Broker, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<Topic> {
    let topic = cluster::create(b.address(), name, partitions, configs)?;
    consume::await_readable(&topic)?;
    Ok(topic)
}

fn load<'a>(topic: &'a Topic, batch: &'a Batch) -> produce::Load<'a> {
    produce::Load { topic, batch, connections: CONNECTIONS, in_flight: IN_FLIGHT }
}

fn reading<'a>(topic: &'a Topic, batch: &Batch, batches: u64) -> consume::Load<'a> {
    let records = batches * batch.records;
    consume::Load {
        topic,
        connections: CONNECTIONS,
        records_a_partition: i64::try_from(records).unwrap_or(i64::MAX),
        record_bytes: batch.value_bytes / batch.records,
    }
}

fn pid(broker: &Broker) -> Result<u32> {
    broker.pid().ok_or_else(|| Error::Usage("the broker has ended".to_owned()))
}
