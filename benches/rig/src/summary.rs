//! The few rows of a run that a front page has room for, as a table in Markdown: `summary.md`.
//!
//! Each line is of one pair with the same promise. A row that was not measured is left out.

use std::fmt::Write as _;

use crate::contender::Contender;
use crate::legs::speed::{END_TO_END, MAXIMUM, OPEN, PARTITIONS, PEAK, PRODUCERS, SMALL};
use crate::report::row::number;
use crate::results::{
    BROKER_CPU, Line, MEBIBYTES, MEGABYTES, Measure, P50, P99, P999, RECORDS, Results, SECONDS,
    Section, median,
};

const DEFAULT: [Contender; 2] = [Contender::Kafka, Contender::Corelane];
const FLUSHING: [Contender; 2] = [Contender::KafkaFlush, Contender::CorelaneFlush];

struct Entry {
    label: &'static str,
    pair: [Contender; 2],
    section: Section,
    /// What the row's name begins or ends with.
    row: &'static str,
    measures: &'static [Measure],
    unit: &'static str,
}

const fn entry(
    label: &'static str,
    pair: [Contender; 2],
    (section, row): (Section, &'static str),
    measures: &'static [Measure],
    unit: &'static str,
) -> Entry {
    Entry { label, pair, section, row, measures, unit }
}

const START: (Section, &str) = (Section::Process, "clean start to the first accepted produce");
const IDLE: (Section, &str) = (Section::Process, "idle memory");
const KILLED: (Section, &str) = (Section::Process, "start after SIGKILL");
const HOT: (Section, &str) = (
    Section::Consume,
    "just written, again and again; 1 KiB records, 16 KiB batches, 12 partitions",
);
const COLD: (Section, &str) = (Section::Consume, "once, after a restart, page cache dropped");
const fn speed(row: &'static str) -> (Section, &'static str) {
    (Section::Speed, row)
}

const LATENCIES: &[Measure] = &[P50, P99, P999];

const ENTRIES: [Entry; 17] = [
    entry("start to the first accepted produce", DEFAULT, START, &[SECONDS], "s"),
    entry("idle memory", DEFAULT, IDLE, &[MEBIBYTES], "MiB"),
    entry("restart after SIGKILL with some log", DEFAULT, KILLED, &[SECONDS], "s"),
    entry("produce, 1 KiB records, 12 partitions", DEFAULT, speed(MAXIMUM), &[MEGABYTES], "MB/s"),
    entry("the same, broker CPU", DEFAULT, speed(MAXIMUM), &[BROKER_CPU], "s/GB"),
    entry("the same, every batch flushed", FLUSHING, speed(MAXIMUM), &[MEGABYTES], "MB/s"),
    entry("produce, 100 B, 3 producers", DEFAULT, speed(SMALL), &[RECORDS], "records/s"),
    entry(
        "small keyed batches of 50 producers",
        DEFAULT,
        speed(PRODUCERS),
        &[RECORDS],
        "records/s",
    ),
    entry("produce to 1,000 partitions", DEFAULT, speed(PARTITIONS), &[MEGABYTES], "MB/s"),
    entry("peak memory of that", DEFAULT, speed(PEAK), &[MEBIBYTES], "MiB"),
    entry(
        "produce at half of Kafka's maximum, p50 / p99 / p99.9",
        DEFAULT,
        speed(OPEN),
        LATENCIES,
        "ms",
    ),
    entry("until a consumer has it", DEFAULT, speed(END_TO_END), LATENCIES, "ms"),
    entry("produce, every batch flushed", FLUSHING, speed(OPEN), LATENCIES, "ms"),
    entry("until a consumer has it, flushed", FLUSHING, speed(END_TO_END), LATENCIES, "ms"),
    entry("consume what was just written", DEFAULT, HOT, &[MEGABYTES], "MB/s"),
    entry("the same, broker CPU", DEFAULT, HOT, &[BROKER_CPU], "s/GB"),
    entry("catch-up read from the disk", DEFAULT, COLD, &[MEGABYTES], "MB/s"),
];

pub fn table(results: &Results) -> String {
    let mut text = String::from("| | Apache Kafka | Corelane | ratio |\n|---|---:|---:|---:|\n");
    for entry in &ENTRIES {
        if let Some([kafka, corelane, ratio]) = cells(results, entry) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {} | {kafka} | {corelane} | {ratio} |", entry.label);
        }
    }
    text
}

fn cells(results: &Results, entry: &Entry) -> Option<[String; 3]> {
    let [first, second] = entry.pair;
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for &measure in entry.measures {
        let line = results.lines.iter().find(|line| is_of(line, entry, measure))?;
        let [kafka, corelane, ratio] = &mut figures;
        kafka.push(number(median(line.of(first))?));
        corelane.push(number(median(line.of(second))?));
        ratio.push(format!("{}×", number(line.times_better_than(first, second)?)));
    }
    let [kafka, corelane, ratio] = figures.map(|figures| figures.join(" / "));
    Some([format!("{kafka} {}", entry.unit), format!("{corelane} {}", entry.unit), ratio])
}

fn is_of(line: &Line, entry: &Entry, measure: Measure) -> bool {
    let named = line.row.starts_with(entry.row) || line.row.ends_with(entry.row);
    // A pair's open loop is not the only one of its name.
    let whole = entry.pair.iter().all(|who| !line.of(*who).is_empty());
    line.section == entry.section && line.measure == measure && named && whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_its_own_line_and_what_is_missing_none() {
        let mut results = Results::default();
        let mut add = |who: Contender, half_of: &str, p99| {
            let row = format!("{OPEN}; at half of the maximum of {half_of}");
            for (measure, value) in [(P50, 1.0), (P99, p99), (P999, 10.0)] {
                results.add(who, Section::Speed, &row, measure, value);
            }
        };
        add(Contender::Kafka, "Apache Kafka", 3.0);
        add(Contender::Corelane, "Apache Kafka", 6.0);
        add(Contender::KafkaFlush, "Apache Kafka, flushing", 8.0);
        add(Contender::CorelaneFlush, "Apache Kafka, flushing", 2.0);
        add(Contender::Nats, "NATS JetStream", 1.0);
        let text = table(&results);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "| produce at half of Kafka's maximum, p50 / p99 / p99.9 | 1.00 / 3.00 / 10.0 ms | 1.00 / \
             6.00 / 10.0 ms | 1.00× / 0.500× / 1.00× |",
            "| produce, every batch flushed | 1.00 / 8.00 / 10.0 ms | 1.00 / 2.00 / 10.0 ms | 1.00× / \
             4.00× / 1.00× |",
        ];
        assert_eq!(lines, expected);
    }
}
