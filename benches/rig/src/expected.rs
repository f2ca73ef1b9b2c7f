//! What the project expects of itself, held against what a run measured.
//!
//! Some expectations are ratios to Apache Kafka, others are about Corelane alone; of those Kafka's
//! figure is shown beside. A line whose rows were not measured is left out.

use std::fmt::Write as _;

use crate::contender::Contender;
use crate::legs::txn::{WITH, WITHOUT};
use crate::report::Expectation;
use crate::report::row::number;
use crate::results::{
    BROKER_CPU, BYTES, COMMITS, CPU_MICROS, CPU_MILLIS, CPU_SECONDS, KIBIBYTES, Line, MEBIBYTES,
    Measure, P50, P99, Results, SCANNED, SECONDS, Section, TRANSACTIONS, median,
};
use crate::to_reach;

/// `disk_read`: MB/s that large direct reads get from the disk alone.
pub fn table(results: &Results, disk_read: f64) -> String {
    let mut text = String::from("| expected | measured | met |\n|---|---:|---|\n");
    for Expectation { what, measured, met } in lines(results, disk_read) {
        let met = if met { "yes" } else { "no" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {measured} | {met} |");
    }
    text
}

/// The same for a report.
pub fn lines(results: &Results, disk_read: f64) -> Vec<Expectation> {
    let mut rows = to_reach::rows(results);
    rows.extend(against_kafka(results));
    rows.extend(restart(results, disk_read));
    rows.extend(disturbed(results));
    rows.extend(many(results));
    rows.extend(groups(results));
    rows.extend(transactions(results));
    let expectation = |Row { what, measured, met }| Expectation { what, measured, met };
    rows.into_iter().map(expectation).collect()
}

pub struct Row {
    pub what: String,
    pub measured: String,
    pub met: bool,
}

impl Row {
    /// Corelane's figure must not exceed `most`.
    fn at_most(what: &str, both: Both, unit: &str, most: f64) -> Option<Self> {
        let own = both.corelane?;
        let other = both.kafka.map_or_else(|| "-".to_owned(), number);
        Some(Row {
            what: what.to_owned(),
            measured: format!("{}{unit} (Apache Kafka {other}{unit})", number(own)),
            met: own <= most,
        })
    }

    /// Corelane must be this many times better than Kafka.
    pub fn times(what: &str, times_better: Option<f64>, least: f64) -> Option<Self> {
        let times = times_better?;
        let measured = format!("{}×", number(times));
        Some(Row { what: what.to_owned(), measured, met: times >= least })
    }
}

/// A figure of each broker.
#[derive(Debug, Clone, Copy, Default)]
struct Both {
    kafka: Option<f64>,
    corelane: Option<f64>,
}

impl Both {
    fn of(line: Option<&Line>) -> Self {
        line.map_or_else(Both::default, |line| Both {
            kafka: median(line.of(Contender::Kafka)),
            corelane: median(line.of(Contender::Corelane)),
        })
    }

    fn over(self, other: Self) -> Self {
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?).filter(|r| r.is_finite());
        Both {
            kafka: ratio(self.kafka, other.kafka),
            corelane: ratio(self.corelane, other.corelane),
        }
    }
}

pub fn measured(
    results: &Results,
    section: Section,
    measure: Measure,
) -> impl Iterator<Item = &Line> {
    let lines = results.lines.iter();
    lines.filter(move |line| line.section == section && line.measure == measure)
}

fn against_kafka(results: &Results) -> Vec<Row> {
    let process = |row: &str, measure| {
        let line = measured(results, Section::Process, measure).find(|l| l.row.starts_with(row));
        line.and_then(Line::times_better)
    };
    let starts = Row::times("starts ≥ 20× sooner", process("clean start", SECONDS), 20.0);
    let memory = Row::times("idle memory ≤ 1/8", process("idle memory", MEBIBYTES), 8.0);
    let mut rows: Vec<Row> = starts.into_iter().chain(memory).collect();
    for (section, promise) in [(Section::Produce, ""), (Section::Synced, ", flush.messages=1")] {
        rows.extend(measured(results, section, BROKER_CPU).filter_map(|line| {
            let what = format!("CPU per GB ≤ 1/2: produce, {}{promise}", line.row);
            Row::times(&what, line.times_better(), 2.0)
        }));
    }
    rows
}

/// What the scan adds to a start, by comparison with the start after a clean stop: of the broker's
/// time on its cores, and of the clock, where the disk may be what it waits for.
fn restart(results: &Results, disk_read: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in measured(results, Section::Restart, SCANNED) {
        let clean = line.row.replace("after SIGKILL", "after a clean stop");
        let extra = |measure| {
            let of = |row: &str| {
                let line =
                    measured(results, Section::Restart, measure).find(|line| line.row == row);
                Both::of(line).corelane
            };
            Some(of(&line.row)? - of(&clean)?).filter(|extra| *extra > 0.0)
        };
        let scanned = median(line.of(Contender::Corelane)).unwrap_or(0.0) * 1_048_576.0;
        // Too little to time.
        if scanned < 500e6 || !line.row.contains("SIGKILL") {
            continue;
        }
        if let Some(seconds) = extra(CPU_SECONDS) {
            let rate = scanned / 1e9 / seconds;
            rows.push(Row {
                what: format!("scans ≥ 1 GB a second of CPU: {}", line.row),
                measured: format!("{} GB/s", number(rate)),
                met: rate >= 1.0,
            });
        }
        if let Some(seconds) = extra(SECONDS) {
            let part = scanned / 1e6 / seconds / disk_read;
            rows.push(Row {
                what: format!("scans at ≥ 2/3 of what the disk gives: {}", line.row),
                measured: format!("{} of {} MB/s", number(part), number(disk_read)),
                met: part >= 2.0 / 3.0,
            });
        }
    }
    rows
}

fn disturbed(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for what in ["produce", "tail fetch"] {
        let alone = format!("{what} alone");
        let beside = format!("{what} beside ");
        let alone = Both::of(measured(results, Section::Backfill, P99).find(|l| l.row == alone));
        for line in measured(results, Section::Backfill, P99).filter(|l| l.row.starts_with(&beside))
        {
            let what = format!("p99 ≤ 2× that alone: {}", line.row);
            rows.extend(Row::at_most(&what, Both::of(Some(line)).over(alone), "×", 2.0));
        }
    }
    rows
}

fn many(results: &Results) -> Vec<Row> {
    let mut latencies =
        measured(results, Section::Partitions, P99).filter(|l| l.row.starts_with("produce of"));
    let (few, many) = (latencies.next(), latencies.next());
    let mut rows = Vec::new();
    if let Some(line) = many {
        let what = format!("p99 ≤ 2× that of few partitions: {}", line.row);
        rows.extend(Row::at_most(&what, Both::of(many).over(Both::of(few)), "×", 2.0));
    }
    let idle = measured(results, Section::Partitions, KIBIBYTES).next();
    rows.extend(Row::at_most("an idle partition ≤ 16 KiB", Both::of(idle), " KiB", 16.0));
    for line in measured(results, Section::Partitions, SECONDS)
        .filter(|l| l.row.ends_with("a Fetch") || l.row.ends_with("renamed or gone"))
    {
        let what = format!("seconds (≤ 10): {}", line.row);
        rows.extend(Row::at_most(&what, Both::of(Some(line)), " s", 10.0));
    }
    rows
}

/// Rebalances are as long as the interval between heartbeats makes them, on any broker.
fn groups(results: &Results) -> Vec<Row> {
    let of = |measure| measured(results, Section::Groups, measure);
    let costs = [P50, COMMITS, CPU_MILLIS, KIBIBYTES].into_iter().flat_map(of);
    let costs = costs.map(|line| (line, "≥ 1× as good", 1.0));
    let times = of(SECONDS).map(|line| match line.row.contains("until all have theirs") {
        true => (line, "as soon, within a fifth", 0.8),
        false => (line, "≥ 1× as good", 1.0),
    });
    let rows = costs.chain(times);
    rows.filter_map(|(line, aim, least)| {
        Row::times(
            &format!("{aim}: {} ({})", line.row, line.measure.name),
            line.times_better(),
            least,
        )
    })
    .collect()
}

/// Idempotence is held against the same broker without it, the rest against Kafka.
fn transactions(results: &Results) -> Vec<Row> {
    let of = |measure| measured(results, Section::Transactions, measure);
    let costs = [TRANSACTIONS, CPU_MICROS, P50, P99, BYTES, SECONDS].into_iter().flat_map(of);
    let mut rows: Vec<Row> = costs
        .filter_map(|line| {
            let what = format!("≥ 1× as good: {} ({})", line.row, line.measure.name);
            Row::times(&what, line.times_better(), 1.0)
        })
        .collect();
    for line in of(BROKER_CPU) {
        let Some(load) = line.row.strip_suffix(&format!(": {WITH}")) else { continue };
        let without = format!("{load}: {WITHOUT}");
        let without = Both::of(of(BROKER_CPU).find(|line| line.row == without));
        let what = format!("CPU per GB ≤ 1.1× that without idempotence: {load}");
        rows.extend(Row::at_most(&what, Both::of(Some(line)).over(without), "×", 1.1));
    }
    rows
}

#[cfg(test)]
mod tests {
    use corelane_tests::Target;

    use super::*;

    fn add(results: &mut Results, section: Section, row: &str, m: Measure, both: [f64; 2]) {
        results.add(Target::ApacheKafka, section, row, m, both[0]);
        results.add(Target::Corelane, section, row, m, both[1]);
    }

    #[test]
    fn ratios_to_itself_show_both_brokers() {
        let mut results = Results::default();
        add(&mut results, Section::Backfill, "produce alone", P99, [2.0, 1.0]);
        add(&mut results, Section::Backfill, "produce beside 4 readers", P99, [8.0, 1.5]);
        let text = table(&results, 1000.0);
        let line = "| p99 ≤ 2× that alone: produce beside 4 readers | 1.50× (Apache Kafka 4.00×) \
                    | yes |";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("starts"), "{text}");
    }

    #[test]
    fn a_doubled_latency_and_a_fat_partition_are_not_met() {
        let mut results = Results::default();
        let partitions = Section::Partitions;
        add(&mut results, partitions, "produce of 16 MB/s to 10 partitions", P99, [1.0, 1.0]);
        add(&mut results, partitions, "produce of 16 MB/s to 10000 partitions", P99, [1.0, 2.5]);
        add(&mut results, partitions, "memory of one idle partition", KIBIBYTES, [9.0, 17.0]);
        let text = table(&results, 1000.0);
        assert_eq!(text.matches("| no |").count(), 2, "{text}");
    }

    #[test]
    fn a_rebalance_may_be_a_little_later_and_a_commit_may_not() {
        let mut results = Results::default();
        let joins = "classic: one joins, until all have theirs";
        add(&mut results, Section::Groups, joins, SECONDS, [0.9, 1.0]);
        add(&mut results, Section::Groups, "commits", COMMITS, [1000.0, 990.0]);
        let text = table(&results, 2_000.0);
        assert!(
            text.contains(&format!("as soon, within a fifth: {joins} (s) | 0.900× | yes")),
            "{text}"
        );
        assert!(text.contains("commits (commits/s) | 0.990× | no"), "{text}");
    }

    #[test]
    fn idempotence_is_held_against_its_absence() {
        let mut results = Results::default();
        let section = Section::Transactions;
        add(&mut results, section, "produce, a: not idempotent", BROKER_CPU, [4.0, 1.0]);
        add(&mut results, section, "produce, a: idempotent", BROKER_CPU, [6.0, 1.2]);
        add(&mut results, section, "one id", TRANSACTIONS, [50.0, 100.0]);
        let text = table(&results, 1000.0);
        let line = "without idempotence: produce, a | 1.20× (Apache Kafka 1.50×) | no |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("one id (transactions/s) | 2.00× | yes"), "{text}");
    }

    #[test]
    fn the_scan_is_timed_against_a_clean_start() {
        let mut results = Results::default();
        let killed = "after SIGKILL, 10 GiB: every partition";
        let clean = "after a clean stop, 10 GiB: every partition";
        add(&mut results, Section::Restart, killed, SECONDS, [9.0, 1.5]);
        add(&mut results, Section::Restart, clean, SECONDS, [5.0, 0.5]);
        results.add(Target::Corelane, Section::Restart, killed, SCANNED, 4000.0);
        results.add(Target::Corelane, Section::Restart, killed, CPU_SECONDS, 4.5);
        results.add(Target::Corelane, Section::Restart, clean, CPU_SECONDS, 0.3);
        let text = table(&results, 6000.0);
        assert!(text.contains("0.999 GB/s | no"), "{text}");
        assert!(text.contains("0.699 of 6000 MB/s | yes"), "{text}");
    }
}
