//! Legs of a run: in each, one broker does one part of what is measured, from its first start on an
//! empty directory to its end. Both brokers go through the same steps in the same order.

pub mod backfill;
pub mod groups;
pub mod loads;
pub mod nats;
pub mod partitions;
pub mod restart;
pub mod running;
pub mod speed;
pub mod txn;

use std::thread;
use std::time::Duration;

use corelane_tests::{Broker, BrokerOptions, Target};
use hdrhistogram::Histogram;

use crate::cluster::{self, Topic};
use crate::error::{Error, Result};
use crate::results::{MAX, Measure, P50, P99, P999, Results, Section};
use crate::scale::Scale;
use crate::{consume, disk};

/// As Kafka's own start script has them by default, after the heap.
pub const KAFKA_JAVA: [&str; 6] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// Kafka's heap and Corelane's `--memory`, where nothing else is said: the script's default.
pub const MEMORY: &str = "1G";
/// So that deleted topics leave the disk between loads; otherwise both keep their defaults.
pub const SETTINGS: [(&str, &str); 1] = [("log.segment.delete.delay.ms", "1000")];
/// Deleted files are gone after their delay and some time to do it.
const DELETED_AFTER: Duration = Duration::from_millis(1500);
const MEBIBYTE: f64 = 1_048_576.0;

/// A broker's options; `memory` as both write it, for instance "512M".
pub fn options(target: Target, memory: &str) -> BrokerOptions {
    let mut options = BrokerOptions::new(target);
    for (key, value) in SETTINGS {
        options = options.with(key, value);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    options.shards = u16::try_from(cores).unwrap_or(1);
    options.flags = vec!["--memory".to_owned(), memory.to_owned()];
    let heap = [format!("-Xms{memory}"), format!("-Xmx{memory}")];
    options.java = Some(heap.into_iter().chain(KAFKA_JAVA.map(str::to_owned)).collect());
    options
}

/// Runs a leg's steps on a new broker; if they fail, shows the end of what the broker said.
fn on_new_broker(
    target: Target,
    memory: &str,
    steps: impl FnOnce(&mut Broker) -> Result<()>,
) -> Result<()> {
    on(target, options(target, memory), steps)
}

fn on(
    target: Target,
    options: BrokerOptions,
    steps: impl FnOnce(&mut Broker) -> Result<()>,
) -> Result<()> {
    disk::drain();
    let mut broker = Broker::start_new(options)?;
    let outcome = steps(&mut broker);
    if outcome.is_err() {
        eprintln!("the end of {}'s log:\n{}", target.name(), broker.log_tail());
    }
    outcome
}

#[derive(Debug)]
pub struct Leg<'a> {
    pub target: Target,
    pub scale: &'a Scale,
    pub results: &'a mut Results,
}

impl Leg<'_> {
    fn add(&mut self, section: Section, row: &str, measure: Measure, value: f64) {
        self.results.add(self.target, section, row, measure, value);
    }

    /// Quantiles of a histogram of microseconds, in milliseconds.
    fn add_latencies(&mut self, section: Section, row: &str, histogram: &Histogram<u64>) {
        for (measure, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999), (MAX, 1.0)] {
            let micros = histogram.value_at_quantile(quantile) as f64;
            self.add(section, row, measure, micros / 1e3);
        }
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

pub fn delete(broker: &Broker, topic: &Topic) -> Result<()> {
    cluster::delete(broker.address(), topic)?;
    thread::sleep(DELETED_AFTER);
    Ok(())
}

/// A broker that does not keep up while it warms up may do so later.
fn tolerate<T>(warming: Result<T>) -> Result<()> {
    match warming {
        Ok(_) | Err(Error::FallsBehind { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

pub fn pid(broker: &Broker) -> Result<u32> {
    broker.pid().ok_or_else(|| Error::Usage("the broker has ended".to_owned()))
}
