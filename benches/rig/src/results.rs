//! Figures by row and measure, as they come in from the legs of a run.

use crate::contender::Contender;
use crate::error::Error;
use crate::sample::Sample;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Process,
    Produce,
    Synced,
    Consume,
    Latency,
    Restart,
    Backfill,
    Partitions,
    Groups,
    Transactions,
    Speed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// Says something of the conditions, not of the broker.
    Neither,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    pub name: &'static str,
    pub better: Better,
}

const fn measure(name: &'static str, better: Better) -> Measure {
    Measure { name, better }
}

pub const MEGABYTES: Measure = measure("MB/s", Better::Higher);
pub const RECORDS: Measure = measure("records/s", Better::Higher);
pub const BROKER_CPU: Measure = measure("broker CPU s/GB", Better::Lower);
pub const CLIENT_CPU: Measure = measure("client CPU s/GB", Better::Neither);
pub const OTHER_CORES: Measure = measure("cores busy elsewhere", Better::Neither);
/// Broker and client together have no more than the machine's: near that, processors are the limit.
pub const BROKER_CORES: Measure = measure("cores busy in the broker", Better::Neither);
pub const CLIENT_CORES: Measure = measure("cores busy in the client", Better::Neither);
/// Of the data's device, by whomever.
pub const DEVICE_WRITTEN: Measure = measure("MB/s written by the device", Better::Neither);
pub const DEVICE_BUSY: Measure = measure("% of the time the device was busy", Better::Neither);
/// Of an open loop: what is due whatever the broker does.
pub const OFFERED: Measure = measure("MB/s due", Better::Neither);
/// What the disk takes by itself with as much on the way.
pub const DISK_ALONE: Measure = measure("MB/s of the disk alone", Better::Neither);
pub const DRAIN: Measure = measure("sync afterwards, s", Better::Neither);
pub const SECONDS: Measure = measure("s", Better::Lower);
pub const MEBIBYTES: Measure = measure("MiB", Better::Lower);
pub const MEGABYTES_READ: Measure = measure("MB/s read", Better::Higher);
pub const DISK_READ: Measure = measure("MB/s from the disk", Better::Neither);
pub const KIBIBYTES: Measure = measure("KiB", Better::Lower);
/// Nothing to be better at: some scan, some look only.
pub const READ: Measure = measure("MiB read until then", Better::Neither);
pub const SCANNED: Measure = measure("MiB scanned, it says", Better::Neither);
/// From the start of the process.
pub const CPU_SECONDS: Measure = measure("broker CPU s until then", Better::Lower);
pub const COUNT: Measure = measure("number", Better::Lower);
pub const COMMITS: Measure = measure("commits/s", Better::Higher);
pub const TRANSACTIONS: Measure = measure("transactions/s", Better::Higher);
pub const TRIED_AGAIN: Measure = measure("answers to try again, each", Better::Neither);
pub const BYTES: Measure = measure("bytes", Better::Lower);
/// Of a virtual machine, whose resident memory says little of what it holds.
pub const LIVE_HEAP: Measure = measure("MiB of live heap", Better::Neither);
pub const CPU_MICROS: Measure = measure("broker CPU µs", Better::Lower);
pub const CPU_MILLIS: Measure = measure("broker CPU ms", Better::Lower);
pub const P50: Measure = measure("p50 ms", Better::Lower);
pub const P99: Measure = measure("p99 ms", Better::Lower);
pub const P999: Measure = measure("p99.9 ms", Better::Lower);
pub const MAX: Measure = measure("max ms", Better::Lower);

/// One measure of one row, of all that were measured.
#[derive(Debug)]
pub struct Line {
    pub section: Section,
    pub row: String,
    pub measure: Measure,
    values: Vec<(Contender, Vec<f64>)>,
}

impl Line {
    pub fn of(&self, contender: impl Into<Contender>) -> &[f64] {
        let contender = contender.into();
        let found = self.values.iter().find(|(of, _)| *of == contender);
        found.map_or(&[], |(_, values)| values)
    }

    /// How many times better Corelane's median is than Kafka's; below 1 is worse. `None` if either is
    /// missing.
    pub fn times_better(&self) -> Option<f64> {
        self.times_better_than(Contender::Kafka, Contender::Corelane)
    }

    /// How many times better the second one's median is.
    pub fn times_better_than(&self, first: Contender, second: Contender) -> Option<f64> {
        let (first, second) = (median(self.of(first))?, median(self.of(second))?);
        let ratio = match self.measure.better {
            Better::Lower => first / second,
            Better::Higher => second / first,
            Better::Neither => return None,
        };
        ratio.is_finite().then_some(ratio)
    }

    fn add(&mut self, contender: Contender, value: f64) {
        match self.values.iter_mut().find(|(of, _)| *of == contender) {
            Some((_, values)) => values.push(value),
            None => self.values.push((contender, vec![value])),
        }
    }
}

#[derive(Debug, Default)]
pub struct Results {
    pub lines: Vec<Line>,
    /// Legs or single measurements that did not get to their end, and why.
    pub failures: Vec<String>,
}

impl Results {
    pub fn fail(&mut self, who: impl Into<Contender>, what: &str, why: &Error) {
        let failure = format!("{}, {what}: {why}", who.into().name());
        eprintln!("rig: {failure}");
        self.failures.push(failure);
    }

    pub fn add(
        &mut self,
        who: impl Into<Contender>,
        section: Section,
        row: &str,
        m: Measure,
        value: f64,
    ) {
        let same = |l: &Line| l.section == section && l.row == row && l.measure == m;
        let line = match self.lines.iter().position(same) {
            Some(at) => at,
            None => {
                let (row, values) = (row.to_owned(), Vec::new());
                self.lines.push(Line { section, row, measure: m, values });
                self.lines.len() - 1
            }
        };
        if let Some(line) = self.lines.get_mut(line) {
            line.add(who.into(), value);
        }
    }

    /// What every sample of a load says.
    pub fn add_samples(
        &mut self,
        who: impl Into<Contender>,
        section: Section,
        row: &str,
        samples: &[Sample],
    ) {
        let t = who.into();
        for sample in samples {
            self.add(t, section, row, MEGABYTES, sample.megabytes_per_second());
            self.add(t, section, row, RECORDS, sample.records_per_second());
            self.add(t, section, row, BROKER_CPU, sample.broker_cpu_per_gigabyte());
            self.add(t, section, row, CLIENT_CPU, sample.client_cpu_per_gigabyte());
            self.add(t, section, row, OTHER_CORES, sample.other_cores());
        }
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle - 1)? + upper) / 2.0),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests {
    use corelane_tests::Target;

    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn better_is_more_speed_and_less_time() {
        let mut results = Results::default();
        for (target, speed, time) in
            [(Target::ApacheKafka, 100.0, 8.0), (Target::Corelane, 200.0, 2.0)]
        {
            results.add(target, Section::Produce, "a", MEGABYTES, speed);
            results.add(target, Section::Produce, "a", SECONDS, time);
            results.add(target, Section::Produce, "a", OTHER_CORES, time);
        }
        let better: Vec<_> = results.lines.iter().map(Line::times_better).collect();
        assert_eq!(better, [Some(2.0), Some(4.0), None]);
    }

    #[test]
    fn twins_are_held_against_each_other_alone() {
        let mut results = Results::default();
        let flushing = [(Contender::KafkaFlush, 30.0), (Contender::CorelaneFlush, 90.0)];
        for (who, speed) in flushing.into_iter().chain([(Contender::Kafka, 300.0)]) {
            results.add(who, Section::Speed, "a", MEGABYTES, speed);
        }
        let line = &results.lines[0];
        let times = line.times_better_than(Contender::KafkaFlush, Contender::CorelaneFlush);
        assert_eq!((times, line.times_better()), (Some(3.0), None));
        assert_eq!(line.of(Contender::Kafka), [300.0]);
        assert!(line.of(Contender::Corelane).is_empty());
    }
}
