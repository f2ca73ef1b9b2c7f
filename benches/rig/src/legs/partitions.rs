//! What many partitions cost: making and deleting them, their memory and descriptors when idle, and
//! produce latency at the same rate over ten partitions and over thousands.

use std::thread;
use std::time::{Duration, Instant};

use corelane_tests::Broker;
use hdrhistogram::Histogram;

use super::loads::load;
use super::{Leg, MEBIBYTE, MEMORY, create, delete, on_new_broker, pid, tolerate};
use crate::admin::{self, Layout, Left};
use crate::cluster::Topic;
use crate::error::{Error, Result};
use crate::payload::Batch;
use crate::results::{COUNT, KIBIBYTES, MEBIBYTES, OTHER_CORES, SECONDS, Section};
use crate::sample::{Mark, Progress, Sample};
use crate::scale::{CONNECTIONS, Scale};
use crate::sweep::Sweep;
use crate::{disk, latency, procfs, produce};

const FEW: i32 = 10;
const PARTITIONS_A_TOPIC: i32 = 10;
const IDLE: Duration = Duration::from_secs(5);

impl Leg<'_> {
    pub fn partitions(&mut self) -> Result<()> {
        on_new_broker(self.target, MEMORY, |broker| self.many(broker))
    }

    fn many(&mut self, broker: &Broker) -> Result<()> {
        let many = self.scale.many_partitions;
        self.say("idle");
        thread::sleep(IDLE);
        let empty = procfs::memory(pid(broker)?)?.now;
        let small = Layout { count: many / PARTITIONS_A_TOPIC, partitions: PARTITIONS_A_TOPIC };
        let topics = self.make(broker, "small", small)?;
        self.idle(broker, many, empty)?;
        self.unmake(broker, "small", small, &topics)?;

        let few = create(broker, "few", FEW, &[])?;
        self.say("warming up");
        tolerate(self.steady(broker, &few, self.scale.exercise))?;
        let length = self.scale.many_length;
        self.say(&format!("open-loop produce to {FEW} partitions"));
        self.measure(broker, &few, length)?;
        delete(broker, &few)?;
        let large = Layout { count: 1, partitions: many };
        let topics = self.make(broker, "large", large)?;
        if let Some(topic) = topics.first() {
            self.say(&format!("open-loop produce to {many} partitions"));
            self.measure(broker, topic, length)?;
            let row = format!("open files with {many} partitions, after produce to each");
            self.add(Section::Partitions, &row, COUNT, procfs::open_files(pid(broker)?)?);
        }
        self.unmake(broker, "large", large, &topics)
    }

    fn make(&mut self, broker: &Broker, name: &str, layout: Layout) -> Result<Vec<Topic>> {
        self.say(&format!("creating {}", layout.title()));
        disk::drain();
        let since = Instant::now();
        admin::create(broker.address(), name, layout)?;
        let answered = since.elapsed().as_secs_f64();
        let topics = admin::await_leaders(broker.address(), name, layout)?;
        let batch = Batch::build(100, 1)?;
        let usable = Sweep { topics: &topics, batch: &batch, least_end: 1 }.run(since)?;
        let row = format!("create {}", layout.title());
        self.add(Section::Partitions, &format!("{row}: answered"), SECONDS, answered);
        let row = format!("{row}: every partition has answered a Produce and a Fetch");
        self.add(Section::Partitions, &row, SECONDS, usable.all.as_secs_f64());
        Ok(topics)
    }

    fn idle(&mut self, broker: &Broker, partitions: i32, empty: f64) -> Result<()> {
        thread::sleep(IDLE);
        let now = procfs::memory(pid(broker)?)?.now;
        let row = format!("memory with {partitions} idle partitions of one record");
        self.add(Section::Partitions, &row, MEBIBYTES, now / MEBIBYTE);
        let each = (now - empty) / f64::from(partitions) / 1024.0;
        let row = "memory of one idle partition: growth since the empty broker";
        self.add(Section::Partitions, row, KIBIBYTES, each);
        let row = format!("open files with {partitions} idle partitions of one record");
        self.add(Section::Partitions, &row, COUNT, procfs::open_files(pid(broker)?)?);
        Ok(())
    }

    fn unmake(&mut self, b: &Broker, name: &str, layout: Layout, topics: &[Topic]) -> Result<()> {
        self.say(&format!("deleting {}", layout.title()));
        let row = format!("delete {}", layout.title());
        let since = Instant::now();
        let done = |leg: &mut Self, until: &str| {
            let row = format!("{row}: {until}");
            leg.add(Section::Partitions, &row, SECONDS, since.elapsed().as_secs_f64());
        };
        admin::delete(b.address(), topics)?;
        done(self, "answered");
        admin::await_gone(&b.data_dir(), name, Left::Renamed)?;
        done(self, "every folder renamed or gone");
        admin::await_gone(&b.data_dir(), name, Left::Nothing)?;
        done(self, "nothing left on the disk (1 s of it by configuration)");
        Ok(())
    }

    fn measure(&mut self, broker: &Broker, topic: &Topic, length: Duration) -> Result<()> {
        let partitions = topic.leaders.len();
        let megabytes = self.scale.many_per_second * usual_batch()?.value_bytes as f64 / 1e6;
        let row = format!("produce of {megabytes:.1} MB/s to {partitions} partitions");
        match self.steady(broker, topic, length) {
            Ok((latencies, spent)) => {
                self.add_latencies(Section::Partitions, &row, &latencies);
                self.add(Section::Partitions, &row, OTHER_CORES, spent.other_cores());
            }
            // There is more to measure.
            Err(error @ Error::FallsBehind { .. }) => self.results.fail(self.target, &row, &error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Open-loop produce of the same requests at the same rate, whatever the number of partitions.
    /// Two such requests to each come before: the first pages of files and indexes are made then.
    fn steady(
        &self,
        broker: &Broker,
        topic: &Topic,
        length: Duration,
    ) -> Result<(Histogram<u64>, Sample)> {
        let batch = usual_batch()?;
        let partitions = topic.leaders.len() as u64;
        produce::run_volume(&load(topic, &batch), 2 * partitions * batch.value_bytes)?;
        disk::drain();
        let idle = Progress::default();
        let from = Mark::now(&idle, pid(broker)?)?;
        let histogram = latency::run(&latency::Load {
            topic,
            batch: &batch,
            connections: CONNECTIONS,
            requests_per_second: self.scale.many_per_second,
            warmup: self.scale.latency_warmup,
            length,
        })?;
        Ok((histogram, from.until(&Mark::now(&idle, pid(broker)?)?)))
    }
}

fn usual_batch() -> Result<Batch> {
    let workload = Scale::usual();
    Batch::build(workload.record_bytes, workload.batch_bytes)
}
