//! What Corelane has to reach beside Apache Kafka, row by row, held against a run.
//!
//! A row of throughput that is missed says how busy processors and device were: where broker and
//! client together kept all cores busy, the client took its share of what was to be had.

use crate::contender::Contender;
use crate::expected::{Row, measured};
use crate::legs::speed::{END_TO_END, MAXIMUM, ONE_LOG, OPEN, PARTITIONS, PEAK, PRODUCERS, SMALL};
use crate::report::row::number;
use crate::results::{
    BROKER_CORES, BROKER_CPU, CLIENT_CORES, DEVICE_BUSY, DISK_ALONE, Line, MEBIBYTES, MEGABYTES,
    Measure, P50, P99, P999, RECORDS, Results, SECONDS, Section, median,
};

/// By default, and where every batch is flushed.
const DEFAULT: (Contender, Contender) = (Contender::Kafka, Contender::Corelane);
const FLUSHING: (Contender, Contender) = (Contender::KafkaFlush, Contender::CorelaneFlush);
/// A shard that is busier than this has no time left.
const BUSY_CORES: f64 = 0.95;
/// Of what the disk takes by itself.
const DISK_SHARE: f64 = 0.8;

pub fn rows(results: &Results) -> Vec<Row> {
    let mut rows = speed(results);
    rows.extend(one_log(results));
    rows.extend(loads(results));
    rows
}

fn speed(results: &Results) -> Vec<Row> {
    let aims = [
        (DEFAULT, MAXIMUM, MEGABYTES, 2.0),
        (DEFAULT, SMALL, RECORDS, 2.0),
        (DEFAULT, MAXIMUM, BROKER_CPU, 4.0),
        (DEFAULT, OPEN, P50, 2.0),
        (DEFAULT, OPEN, P99, 3.0),
        (DEFAULT, OPEN, P999, 5.0),
        (DEFAULT, END_TO_END, P99, 3.0),
        (FLUSHING, MAXIMUM, MEGABYTES, 2.0),
        (FLUSHING, OPEN, P99, 3.0),
        (FLUSHING, END_TO_END, P99, 3.0),
        (DEFAULT, PRODUCERS, RECORDS, 2.0),
        (DEFAULT, PARTITIONS, MEGABYTES, 2.0),
        (DEFAULT, PEAK, MEBIBYTES, 4.0),
    ];
    let row = |((first, second), row, measure, least): ((Contender, Contender), _, _, _)| {
        let line = find(results, Section::Speed, measure, |line| {
            line.row.starts_with(row) && line.times_better_than(first, second).is_some()
        })?;
        let flushing = if second.flushes() { ", every batch flushed" } else { "" };
        let what =
            format!("to reach: ≥ {least}× as good: {} ({}{flushing})", line.row, measure.name);
        let times = line.times_better_than(first, second);
        let mut row = Row::times(&what, times, least)?;
        if !row.met && [MEGABYTES, RECORDS].contains(&measure) {
            row.measured += &busy(results, &line.row, second);
        }
        Some(row)
    };
    aims.into_iter().filter_map(row).collect()
}

/// What other groups of a run measure.
fn loads(results: &Results) -> Vec<Row> {
    let aims = [
        (Section::Consume, "just written", MEGABYTES, 1.5),
        (Section::Consume, "just written", BROKER_CPU, 4.0),
        (Section::Consume, "once, after a restart", MEGABYTES, 1.5),
        (Section::Process, "idle memory", MEBIBYTES, 10.0),
        (Section::Process, "clean start to the first accepted produce", SECONDS, 20.0),
    ];
    let mut rows = Vec::new();
    for (section, part, measure, least) in aims {
        for line in measured(results, section, measure).filter(|line| line.row.contains(part)) {
            let what = format!("to reach: ≥ {least}× as good: {} ({})", line.row, measure.name);
            rows.extend(Row::times(&what, line.times_better(), least));
        }
    }
    rows
}

/// The disk's own pace, or a shard that has no time left.
fn one_log(results: &Results) -> Option<Row> {
    let of = |measure| {
        let line = find(results, Section::Speed, measure, |line| line.row == ONE_LOG)?;
        median(line.of(Contender::Corelane))
    };
    let (broker, disk) = (of(MEGABYTES)?, of(DISK_ALONE)?);
    let cores = of(BROKER_CORES).unwrap_or(0.0);
    let share = broker / disk;
    Some(Row {
        what: format!("to reach: ≥ 80 % of the disk alone, or its core is busy: {ONE_LOG}"),
        measured: format!(
            "{:.0} % ({} of {} MB/s), {} of its core busy",
            share * 100.0,
            number(broker),
            number(disk),
            number(cores)
        ),
        met: share >= DISK_SHARE || cores >= BUSY_CORES,
    })
}

fn busy(results: &Results, row: &str, who: Contender) -> String {
    let of = |measure| {
        let line = find(results, Section::Speed, measure, |line| line.row == row)?;
        median(line.of(who))
    };
    let (Some(broker), Some(client)) = (of(BROKER_CORES), of(CLIENT_CORES)) else {
        return String::new();
    };
    let device = of(DEVICE_BUSY).map(|busy| format!("; the device {busy:.0} % of the time"));
    let (broker, client) = (number(broker), number(client));
    format!(" (cores busy: broker {broker}, client {client}{})", device.unwrap_or_default())
}

fn find(
    results: &Results,
    section: Section,
    measure: Measure,
    wanted: impl Fn(&&Line) -> bool,
) -> Option<&Line> {
    measured(results, section, measure).find(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(results: &Results) -> Vec<(String, bool)> {
        let all = rows(results).into_iter();
        all.map(|row| (format!("{} = {}", row.what, row.measured), row.met)).collect()
    }

    #[test]
    fn flushing_is_held_against_flushing() {
        let mut results = Results::default();
        let mut add = |who, value| {
            results.add(who, Section::Speed, MAXIMUM, MEGABYTES, value);
            results.add(who, Section::Speed, MAXIMUM, BROKER_CORES, 0.9);
            results.add(who, Section::Speed, MAXIMUM, CLIENT_CORES, 1.05);
            results.add(who, Section::Speed, MAXIMUM, DEVICE_BUSY, 97.2);
        };
        add(Contender::Kafka, 200.0);
        add(Contender::KafkaFlush, 40.0);
        add(Contender::CorelaneFlush, 100.0);
        add(Contender::Corelane, 380.0);
        let shown = shown(&results);
        let [default, flushing] = shown.as_slice() else { panic!("{shown:?}") };
        assert!(default.0.ends_with("(MB/s) = 1.90× (cores busy: broker 0.900, client 1.05; the device 97 % of the time)"), "{shown:?}");
        assert!(flushing.0.ends_with("(MB/s, every batch flushed) = 2.50×"), "{}", flushing.0);
        assert_eq!([default.1, flushing.1], [false, true]);
    }

    #[test]
    fn a_log_may_miss_the_disk_if_its_core_is_busy() {
        for (broker, cores, met) in [(790.0, 0.5, false), (790.0, 0.99, true), (801.0, 0.5, true)] {
            let mut results = Results::default();
            let who = Contender::Corelane;
            results.add(who, Section::Speed, ONE_LOG, MEGABYTES, broker);
            results.add(who, Section::Speed, ONE_LOG, BROKER_CORES, cores);
            for disk in [900.0, 1100.0] {
                results.add(who, Section::Speed, ONE_LOG, DISK_ALONE, disk);
            }
            assert_eq!(shown(&results).first().map(|row| row.1), Some(met), "{broker} {cores}");
        }
    }

    #[test]
    fn latency_and_memory_are_better_when_lower() {
        let mut results = Results::default();
        let open = format!("{OPEN}; at half of the maximum of Apache Kafka");
        let peak = format!("{PEAK}1 KiB records");
        for (who, p99, memory) in
            [(Contender::Kafka, 9.0, 1600.0), (Contender::Corelane, 3.0, 401.0)]
        {
            results.add(who, Section::Speed, &open, P99, p99);
            results.add(who, Section::Speed, &peak, MEBIBYTES, memory);
        }
        let met: Vec<bool> = shown(&results).into_iter().map(|row| row.1).collect();
        assert_eq!(met, [true, false]);
    }
}
