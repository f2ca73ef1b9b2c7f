//! Produce and tail-fetch latency, alone and beside backfill readers of a log four times as large
//! as the memory that the broker was given.

use std::time::Instant;

use corelane_tests::Broker;

use super::loads::load;
use super::{Leg, create, delete, on_new_broker, pid, tolerate};
use crate::backfill::Backfill;
use crate::disk::Files;
use crate::error::{Error, Result};
use crate::latency::Latencies;
use crate::payload::Batch;
use crate::results::{DISK_READ, MEGABYTES_READ, OTHER_CORES, Section};
use crate::sample::{Mark, Progress, Sample};
use crate::scale::{BACKFILL_READERS, CONNECTIONS, Scale};
use crate::{disk, latency, procfs, produce};

/// Of the log that is read again.
const TOPIC: &str = "old";

impl Leg<'_> {
    pub fn backfill(&mut self) -> Result<()> {
        on_new_broker(self.target, self.scale.backfill_memory, |broker| self.disturb(broker))
    }

    fn disturb(&mut self, broker: &Broker) -> Result<()> {
        self.say("writing the log that is read again");
        let old = create(broker, TOPIC, BACKFILL_READERS, &[])?;
        let batch = Batch::build(1024, 256 << 10)?;
        let batches = produce::run_volume(&load(&old, &batch), self.scale.backfill_bytes)?;
        disk::forget_cached(&broker.data_dir())?;
        let prefix = format!("{TOPIC}-");
        let files = Files::under(&broker.data_dir(), |name| name.starts_with(&prefix))?;
        let backfill = |bytes_per_second| Backfill {
            topic: &old,
            records_a_partition: i64::try_from(batches * batch.records).unwrap_or(i64::MAX),
            record_bytes: batch.value_bytes / batch.records,
            bytes_per_second,
            files: &files,
        };
        self.say("warming up");
        let rate = self.scale.backfill_rate;
        let warming = backfill(Some(rate)).beside(|| Ok(self.latencies(broker, "warm-up")));
        tolerate(warming?.0)?;
        self.say("latency alone");
        let alone = self.latencies(broker, "alone");
        self.add_both("alone", alone)?;
        let paced = format!("{BACKFILL_READERS} backfill readers of {:.0} MB/s", rate / 1e6);
        let unpaced = format!("{BACKFILL_READERS} backfill readers as fast as they go");
        for (case, rate) in [(paced, Some(rate)), (unpaced, None)] {
            self.say(&format!("latency beside {case}"));
            let name = if rate.is_some() { "paced" } else { "unpaced" };
            let (before, since) = (procfs::device_bytes_read(pid(broker)?)?, Instant::now());
            let measured = backfill(rate).beside(|| Ok(self.latencies(broker, name)));
            let from_disk = procfs::device_bytes_read(pid(broker)?)? - before;
            let from_disk = from_disk / since.elapsed().as_secs_f64();
            let (latencies, read) = measured?;
            self.add_both(&format!("beside {case}"), latencies)?;
            self.add(Section::Backfill, &case, MEGABYTES_READ, read / 1e6);
            self.add(Section::Backfill, &case, DISK_READ, from_disk / 1e6);
        }
        Ok(())
    }

    /// On a new topic, which the consumers need.
    fn latencies(&self, broker: &Broker, name: &str) -> Result<(Latencies, Sample)> {
        disk::drain();
        let workload = Scale::usual();
        let topic = create(broker, name, workload.partitions, &[])?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let idle = Progress::default();
        let from = Mark::now(&idle, pid(broker)?)?;
        let latencies = latency::run_followed(&latency::Load {
            topic: &topic,
            batch: &batch,
            connections: CONNECTIONS,
            requests_per_second: self.scale.latency_per_second,
            warmup: self.scale.latency_warmup,
            length: self.scale.backfill_length,
        })?;
        let spent = from.until(&Mark::now(&idle, pid(broker)?)?);
        delete(broker, &topic)?;
        Ok((latencies, spent))
    }

    fn add_both(&mut self, case: &str, measured: Result<(Latencies, Sample)>) -> Result<()> {
        let produce = format!("produce {case}");
        let tail = format!("tail fetch {case}");
        match measured {
            Ok((latencies, spent)) => {
                self.add_latencies(Section::Backfill, &produce, &latencies.produced);
                self.add_latencies(Section::Backfill, &tail, &latencies.fetched);
                self.add(Section::Backfill, &tail, OTHER_CORES, spent.other_cores());
            }
            // There is more to measure.
            Err(error @ Error::FallsBehind { .. }) => {
                self.results.fail(self.target, &produce, &error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
