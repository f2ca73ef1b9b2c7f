//! Starts, produce, consume, latency, recovery of a small log: the loads that a run has by default.
//!
//! Before each load everything written so far is on the device; after it the topic is deleted.

use std::thread;
use std::time::Duration;

use corelane_tests::Broker;

use super::{Leg, MEBIBYTE, MEMORY, create, delete, on_new_broker, pid};
use crate::cluster::{self, Topic};
use crate::error::Result;
use crate::payload::Batch;
use crate::results::{DRAIN, MEBIBYTES, OTHER_CORES, SECONDS, Section};
use crate::sample::{Mark, Progress, Windows};
use crate::scale::{CONNECTIONS, IN_FLIGHT, MANY, Scale, Workload};
use crate::{consume, disk, first, latency, procfs, produce};

impl Leg<'_> {
    pub fn loads(&mut self) -> Result<()> {
        on_new_broker(self.target, MEMORY, |broker| self.steps(broker))
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
        delete(broker, &topic)
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
        delete(broker, &topic)
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
        self.add_latencies(Section::Latency, &row, &histogram);
        let spent = from.until(&Mark::now(&idle, pid(broker)?)?);
        self.add(Section::Latency, &row, OTHER_CORES, spent.other_cores());
        delete(broker, &topic)
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
}

pub(super) fn load<'a>(topic: &'a Topic, batch: &'a Batch) -> produce::Load<'a> {
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
