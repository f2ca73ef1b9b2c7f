//! How long a restart takes, after SIGKILL and after a clean stop, until every partition has
//! answered a Produce and a Fetch: with much data in few partitions, and with many partitions.
//!
//! The broker is killed right after the last acknowledgement: nothing is flushed first, and the
//! page cache stays as the kill leaves it. Each amount has a broker and a directory of its own,
//! which is gone afterwards.

use std::fmt;
use std::time::Instant;

use corelane_tests::{Broker, Target};

use super::loads::load;
use super::{Leg, MEBIBYTE, MEMORY, create, on_new_broker, pid};
use crate::admin::{self, Layout};
use crate::cluster::Topic;
use crate::error::{Error, Result};
use crate::payload::Batch;
use crate::results::{CPU_SECONDS, READ, SCANNED, SECONDS, Section};
use crate::scale::MANY;
use crate::sweep::{Sweep, await_known};
use crate::{disk, procfs, produce, scanned};

const TOPIC: &str = "held";
/// Files beside the records, and what others must keep to go on.
const SPARE_BYTES: u64 = 6 << 30;
/// Records in each of many partitions.
const FEW_RECORDS: usize = 4;
const FEW_RECORD_BYTES: usize = 100;

/// What the broker has on disk when it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// MiB of values in one topic of a few partitions.
    Mebibytes(u64),
    /// This many partitions in one topic, with a few records each.
    Partitions(i32),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Mebibytes(mib) if mib % 1024 == 0 => {
                write!(f, "{} GiB in {MANY} partitions", mib / 1024)
            }
            Held::Mebibytes(mib) => write!(f, "{mib} MiB in {MANY} partitions"),
            Held::Partitions(count) => write!(f, "{count} partitions of {FEW_RECORDS} records"),
        }
    }
}

impl Leg<'_> {
    pub fn restart(&mut self, held: Held) -> Result<()> {
        on_new_broker(self.target, MEMORY, |broker| self.restarts(broker, held))
    }

    fn restarts(&mut self, broker: &mut Broker, held: Held) -> Result<()> {
        self.say(&format!("writing {held}"));
        let (names, records) = match held {
            Held::Mebibytes(mib) => write_volume(broker, mib << 20)?,
            Held::Partitions(count) => write_few(broker, count)?,
        };
        self.say("restart after SIGKILL");
        broker.kill();
        self.start(broker, &names, records, &format!("after SIGKILL, {held}"))?;
        self.say("clean stop and restart");
        let stopping = Instant::now();
        broker.stop()?;
        let row = format!("clean stop, {held}");
        self.add(Section::Restart, &row, SECONDS, stopping.elapsed().as_secs_f64());
        self.start(broker, &names, records + 1, &format!("after a clean stop, {held}"))
    }

    /// Starts the broker and adds one record to each partition.
    fn start(&mut self, broker: &mut Broker, names: &[String], held: i64, row: &str) -> Result<()> {
        let said = std::fs::metadata(broker.log_file()).map_or(0, |file| file.len());
        let launched = broker.launch()?;
        let topics = await_known(broker.address(), names, launched)?;
        let batch = Batch::build(FEW_RECORD_BYTES, 1)?;
        let sweep = Sweep { topics: &topics, batch: &batch, least_end: held + 1 };
        let reached = sweep.run(launched)?;
        let cpu_seconds = procfs::cpu_seconds(pid(broker)?)?;
        let read = procfs::bytes_read(pid(broker)?)? / MEBIBYTE;
        let first = format!("{row}: a first partition");
        self.add(Section::Restart, &first, SECONDS, reached.first.as_secs_f64());
        let all = format!("{row}: every partition");
        self.add(Section::Restart, &all, SECONDS, reached.all.as_secs_f64());
        self.add(Section::Restart, &all, CPU_SECONDS, cpu_seconds);
        self.add(Section::Restart, &all, READ, read);
        if let Some(scanned) = self.scanned(broker, said)? {
            self.add(Section::Restart, &all, SCANNED, scanned / MEBIBYTE);
        }
        Ok(())
    }

    fn scanned(&self, broker: &Broker, said: u64) -> Result<Option<f64>> {
        if self.target == Target::ApacheKafka {
            return Ok(None);
        }
        match scanned::by_metrics(broker.admin_address()) {
            Some(bytes) => Ok(Some(bytes)),
            None => scanned::by_log(&broker.log_file(), said),
        }
    }
}

/// The topics' names, and how many records each partition has.
fn write_volume(broker: &Broker, bytes: u64) -> Result<(Vec<String>, i64)> {
    let free = disk::free_bytes(&broker.data_dir())?;
    // A broker may keep a little more than the values.
    if free < bytes + bytes / 10 + SPARE_BYTES {
        let mebibytes = free >> 20;
        return Err(Error::Usage(format!("left out: only {mebibytes} MiB of disk are free")));
    }
    let topic = create(broker, TOPIC, MANY, &[])?;
    let batch = Batch::build(1024, 256 << 10)?;
    let batches = produce::run_volume(&load(&topic, &batch), bytes)?;
    let records = i64::try_from(batches * batch.records).unwrap_or(i64::MAX - 2);
    Ok((vec![topic.name], records))
}

fn write_few(broker: &Broker, partitions: i32) -> Result<(Vec<String>, i64)> {
    let layout = Layout { count: 1, partitions };
    admin::create(broker.address(), TOPIC, layout)?;
    let topics = admin::await_leaders(broker.address(), TOPIC, layout)?;
    let batch = Batch::build(FEW_RECORD_BYTES, FEW_RECORDS * (FEW_RECORD_BYTES + 12))?;
    let records = i64::try_from(batch.records).unwrap_or(i64::MAX);
    Sweep { topics: &topics, batch: &batch, least_end: records }.run(Instant::now())?;
    Ok((topics.into_iter().map(|Topic { name, .. }| name).collect(), records))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_reads_well() {
        assert_eq!(Held::Mebibytes(20 << 10).to_string(), "20 GiB in 12 partitions");
        assert_eq!(Held::Mebibytes(300).to_string(), "300 MiB in 12 partitions");
        assert_eq!(Held::Partitions(1000).to_string(), "1000 partitions of 4 records");
    }
}
