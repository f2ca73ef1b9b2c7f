//! A comparison as the shared `report.json`: a row for each broker, with how many times better the
//! second one is.

use std::collections::BTreeMap;
use std::path::Path;

use corelane_tests::Target;

use crate::comparison::{Conditions, heading};
use crate::contender::{self, Contender};
use crate::expected;
use crate::legs::groups::GROUP_SETTINGS;
use crate::legs::{KAFKA_JAVA, MEMORY, SETTINGS};
use crate::procfs;
use crate::report::{
    self, Broker, Comparison, Leg, Loop, Machine, Measure, Named, Report, Row, Subject, Tool,
};
use crate::results::{
    BROKER_CORES, BROKER_CPU, Better, CLIENT_CORES, CLIENT_CPU, COMMITS, COUNT, DEVICE_BUSY,
    DEVICE_WRITTEN, DISK_ALONE, DISK_READ, DRAIN, KIBIBYTES, LIVE_HEAP, Line, MAX, MEBIBYTES,
    MEGABYTES, MEGABYTES_READ, OFFERED, OTHER_CORES, P50, P99, P999, READ, RECORDS, Results,
    SCANNED, SECONDS, Section, TRANSACTIONS,
};
use crate::scale::{CONNECTIONS, IN_FLIGHT, Scale};

pub fn report(results: &Results, c: &Conditions, scale: &Scale, data: &Path) -> Report {
    let command = std::env::args().collect();
    let title = format!("Corelane beside Apache Kafka 4.4.0 ({} run)", scale.name);
    let tool = Tool { commit: c.commit.clone(), ..Tool::here("rig compare") };
    let mut report = Report::new(tool, &title, command, Machine::here(&[data]));
    report.started.clone_from(&c.started);
    report.seconds = c.legs.iter().map(|leg| leg.seconds).sum();
    report.brokers = brokers(results, c, scale);
    report.conditions = conditions(c, scale);
    for left_out in &c.left_out {
        report.conditions.push(Named::new("left out", left_out.clone()));
    }
    for section in sections(results) {
        let (title, meaning) = heading(section);
        report.conditions.push(Named::new(title, meaning));
    }
    report.legs = c.legs.iter().map(leg).collect();
    for (number, lines) in by_row(results).into_iter().enumerate() {
        add_row(&mut report, number + 1, &lines);
    }
    report.expectations = expected::lines(results, c.ceiling.read_megabytes_per_second);
    report.failures.clone_from(&results.failures);
    report
}

fn brokers(results: &Results, c: &Conditions, scale: &Scale) -> Vec<Broker> {
    let measured = |who: &Contender| results.lines.iter().any(|line| !line.of(*who).is_empty());
    contender::ALL.into_iter().filter(measured).map(|who| broker(who, c, scale)).collect()
}

fn broker(who: Contender, c: &Conditions, scale: &Scale) -> Broker {
    let besides = &scale.backfill_memory;
    let (version, notes) = match who.target() {
        Some(Target::ApacheKafka) => {
            let heap = format!(
                "KRaft, one process, a heap of {MEMORY} ({besides} beside backfill readers)"
            );
            (Some("4.4.0".to_owned()), vec![heap, c.java.clone(), KAFKA_JAVA.join(" ")])
        }
        Some(Target::Corelane) => {
            let memory = format!("--memory {MEMORY} ({besides} beside backfill readers)");
            (Some(c.commit.clone()), vec![format!("--shards {}", c.machine.cores), memory])
        }
        None => (c.peers.version(who).map(str::to_owned), Vec::new()),
    };
    let common = SETTINGS.iter().chain(&GROUP_SETTINGS).filter(|_| who.target().is_some());
    let configs = common.chain(who.settings());
    Broker {
        id: who.id().to_owned(),
        name: who.name().to_owned(),
        version,
        addresses: vec!["127.0.0.1".to_owned()],
        configs: configs.map(|(key, value)| Named::new(*key, *value)).collect(),
        notes,
    }
}

fn conditions(c: &Conditions, scale: &Scale) -> Vec<Named> {
    let ceiling = &c.ceiling;
    let disk = format!(
        "{:.0} MB/s (512 KiB direct writes, 4 at a time), {:.0} MB/s (1 MiB direct reads, likewise); \
         4 KiB synced write {:.0} µs p50, {:.0} µs p99",
        ceiling.large_megabytes_per_second,
        ceiling.read_megabytes_per_second,
        ceiling.small_synced_p50_micros,
        ceiling.small_synced_p99_micros,
    );
    let client = format!(
        "{CONNECTIONS} connections (1 where there is 1 partition), {IN_FLIGHT} requests on the way on \
         each, one uncompressed batch a request"
    );
    vec![
        Named::new("scale", scale.name),
        Named::new("the disk alone, same file system, same day", disk),
        Named::new("client", client),
        Named::new("cores", procfs::cores_allowed()),
        Named::new("order", c.order.clone()),
        Named::new("limits", c.limits.clone()),
        Named::new("backfill bytes", scale.backfill_bytes.to_string()),
    ]
}

fn leg(leg: &crate::comparison::LegRun) -> Leg {
    Leg {
        broker: leg.broker.to_owned(),
        part: leg.part.clone(),
        seconds: leg.seconds,
        load_before: leg.load_before.clone(),
        load_after: leg.load_after.clone(),
    }
}

fn sections(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    for line in &results.lines {
        if !sections.contains(&line.section) {
            sections.push(line.section);
        }
    }
    sections
}

/// The lines of each row together, in the order of sections and then of rows.
fn by_row(results: &Results) -> Vec<Vec<&Line>> {
    let mut rows: Vec<Vec<&Line>> = Vec::new();
    for section in sections(results) {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for line in results.lines.iter().filter(|line| line.section == section) {
            let at = *places.entry(&line.row).or_insert_with(|| {
                rows.push(Vec::new());
                rows.len() - 1
            });
            if let Some(row) = rows.get_mut(at) {
                row.push(line);
            }
        }
    }
    rows
}

/// One row for each broker that has figures in it.
fn add_row(report: &mut Report, number: usize, lines: &[&Line]) {
    let Some(first) = lines.first() else { return };
    let id = |who: Contender| format!("{number:03}-{}", who.id());
    for who in contender::ALL {
        let subject = Subject::Broker(who.id().to_owned());
        let mut row = Row::new(id(who), first.row.clone(), subject);
        row.group = Some(heading(first.section).0.to_owned());
        row.kind = kind(lines);
        row.durability = durability(first.section, who).to_owned();
        for line in lines {
            let (name, unit) = name(line.measure);
            let samples = line.of(who);
            row.repeats = row.repeats.max(samples.len());
            row.measures.extend(Measure::new(name, unit, better(line.measure.better), samples));
        }
        if !row.measures.is_empty() {
            report.rows.push(row);
        }
    }
    for line in lines {
        for (first, second) in contender::PAIRS {
            if let Some(times_better) = line.times_better_than(first, second) {
                let measure = name(line.measure).0.to_owned();
                let (first, second) = (id(first), id(second));
                report.comparisons.push(Comparison { first, second, measure, times_better });
            }
        }
    }
}

fn better(better: Better) -> report::Better {
    match better {
        Better::Lower => report::Better::Lower,
        Better::Higher => report::Better::Higher,
        Better::Neither => report::Better::Neither,
    }
}

fn kind(lines: &[&Line]) -> Loop {
    let has = |measure| lines.iter().any(|line| line.measure == measure);
    let says = |words: &str| lines.iter().any(|line| line.row.contains(words));
    let in_open = |line: &&Line| {
        matches!(
            line.section,
            Section::Latency | Section::Backfill | Section::Partitions | Section::Speed
        )
    };
    let open = has(P99) && lines.iter().any(in_open);
    let closed = [MEGABYTES, RECORDS, COMMITS, TRANSACTIONS].into_iter().any(has);
    match () {
        () if open || says("open loop") => Loop::Open,
        () if closed || says("closed loop") => Loop::Closed,
        () => Loop::None,
    }
}

fn durability(section: Section, who: Contender) -> &'static str {
    match section {
        Section::Process | Section::Consume | Section::Restart => "",
        Section::Synced => Contender::KafkaFlush.durability(),
        _ => who.durability(),
    }
}

/// A measure's name and its unit.
fn name(measure: crate::results::Measure) -> (&'static str, &'static str) {
    let known = [
        (MEGABYTES, ("throughput", "MB/s")),
        (RECORDS, ("records", "records/s")),
        (BROKER_CPU, ("broker CPU", "s/GB")),
        (CLIENT_CPU, ("client CPU", "s/GB")),
        (OTHER_CORES, ("cores busy elsewhere", "cores")),
        (BROKER_CORES, ("cores busy in the broker", "cores")),
        (CLIENT_CORES, ("cores busy in the client", "cores")),
        (DEVICE_WRITTEN, ("written by the device", "MB/s")),
        (DEVICE_BUSY, ("device busy", "%")),
        (OFFERED, ("due", "MB/s")),
        (DISK_ALONE, ("the disk alone", "MB/s")),
        (DRAIN, ("sync afterwards", "s")),
        (SECONDS, ("time", "s")),
        (MEBIBYTES, ("memory", "MiB")),
        (KIBIBYTES, ("memory of each", "KiB")),
        (MEGABYTES_READ, ("read", "MB/s")),
        (DISK_READ, ("read from the disk", "MB/s")),
        (READ, ("read until then", "MiB")),
        (SCANNED, ("scanned, it says", "MiB")),
        (COUNT, ("number", "")),
        (COMMITS, ("commits", "commits/s")),
        (TRANSACTIONS, ("transactions", "transactions/s")),
        (LIVE_HEAP, ("live heap", "MiB")),
        (P50, ("p50", "ms")),
        (P99, ("p99", "ms")),
        (P999, ("p99.9", "ms")),
        (MAX, ("max", "ms")),
    ];
    let found = known.into_iter().find(|(known, _)| *known == measure);
    // The others say it themselves.
    found.map_or((measure.name, ""), |(_, named)| named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Ceiling;
    use crate::report::schema;

    #[test]
    fn a_comparison_is_as_the_schema_says_with_a_row_for_each_broker() {
        let mut results = Results::default();
        for (target, speed) in [(Target::ApacheKafka, 100.0), (Target::Corelane, 300.0)] {
            for more in [0.0, 10.0] {
                results.add(target, Section::Produce, "1 KiB", MEGABYTES, speed + more);
                results.add(target, Section::Latency, "400 a second", P99, 600.0 / speed);
            }
        }
        results.add(Target::Corelane, Section::Restart, "after SIGKILL", SCANNED, 5.0);
        let ceiling = Ceiling {
            large_megabytes_per_second: 1.0,
            read_megabytes_per_second: 1.0,
            small_synced_p50_micros: 1.0,
            small_synced_p99_micros: 1.0,
        };
        let conditions = Conditions {
            date: "2026-11-30".to_owned(),
            started: "2026-11-30T00:00:00Z".to_owned(),
            commit: "abc".to_owned(),
            machine: procfs::machine(Path::new("/")).unwrap(),
            limits: String::new(),
            java: String::new(),
            ceiling,
            order: String::new(),
            left_out: Vec::new(),
            peers: crate::peers::Peers::default(),
            legs: Vec::new(),
        };
        let report = report(&results, &conditions, &Scale::quick(), Path::new("/"));
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(schema::violations(&value), Vec::<String>::new());
        let rows: Vec<_> = report.rows.iter().map(|row| (row.title.as_str(), row.kind)).collect();
        let expected = [
            ("1 KiB", Loop::Closed),
            ("1 KiB", Loop::Closed),
            ("400 a second", Loop::Open),
            ("400 a second", Loop::Open),
            ("after SIGKILL", Loop::None),
        ];
        assert_eq!(rows, expected);
        assert_eq!(report.rows[1].measures[0].samples, [300.0, 310.0]);
        assert!(report.rows[0].durability.contains("page cache"));
        let times: Vec<f64> = report.comparisons.iter().map(|line| line.times_better).collect();
        assert_eq!(times.len(), 2);
        assert!((times[0] - 305.0 / 105.0).abs() < 1e-9 && (times[1] - 3.0).abs() < 1e-9);
        let page = report::markdown::text(&report);
        assert!(
            page.contains("| 1 KiB | closed | throughput, MB/s | 105 (100–110) | 305"),
            "{page}"
        );
    }
}
