//! Figures by row and measure, as they come in from the legs of a run.

use corelane_tests::Target;

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

/// One measure of one row, of both brokers.
#[derive(Debug)]
pub struct Line {
    pub section: Section,
    pub row: String,
    pub measure: Measure,
    pub kafka: Vec<f64>,
    pub corelane: Vec<f64>,
}

impl Line {
    /// How many times better Corelane's median is; below 1 is worse. `None` if either is missing.
    pub fn times_better(&self) -> Option<f64> {
        let (kafka, corelane) = (median(&self.kafka)?, median(&self.corelane)?);
        let ratio = match self.measure.better {
            Better::Lower => kafka / corelane,
            Better::Higher => corelane / kafka,
            Better::Neither => return None,
        };
        ratio.is_finite().then_some(ratio)
    }
}

#[derive(Debug, Default)]
pub struct Results {
    pub lines: Vec<Line>,
    /// Legs or single measurements that did not get to their end, and why.
    pub failures: Vec<String>,
}

impl Results {
    pub fn fail(&mut self, target: Target, what: &str, why: &Error) {
        let failure = format!("{}, {what}: {why}", target.name());
        eprintln!("rig: {failure}");
        self.failures.push(failure);
    }

    pub fn add(&mut self, target: Target, section: Section, row: &str, m: Measure, value: f64) {
        let same = |l: &Line| l.section == section && l.row == row && l.measure == m;
        let line = match self.lines.iter().position(same) {
            Some(at) => at,
            None => {
                let row = row.to_owned();
                let (kafka, corelane) = (Vec::new(), Vec::new());
                self.lines.push(Line { section, row, measure: m, kafka, corelane });
                self.lines.len() - 1
            }
        };
        if let Some(line) = self.lines.get_mut(line) {
            match target {
                Target::ApacheKafka => line.kafka.push(value),
                Target::Corelane => line.corelane.push(value),
            }
        }
    }

    /// What every sample of a load says.
    pub fn add_samples(&mut self, t: Target, section: Section, row: &str, samples: &[Sample]) {
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
}
