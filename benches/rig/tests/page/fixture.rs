//! A report with every kind of row that there is: two and three brokers beside each other, a curve with
//! a knee, disks, emulated and void ones, very large and very small numbers, and names that mean harm.

use rig::report::{
    Better, Broker, Comparison, Curve, Disk, Expectation, LatencyHistogram, Leg, Loop, Machine,
    Measure, Named, Report, Row, Series, Subject, Tool, histogram,
};

pub const HOSTILE: &str =
    "\"'><script>window.hostile=1</script><img src=x onerror=\"window.hostile=1\">&lt;";
const IN_CACHE: &str = "acks=all: copied to the page cache; a crash of the machine loses it";
const WRITTEN: &str =
    "acks=all: written to the device by direct I/O; the device's own cache is not flushed";
const FLUSHED: &str = "acks=all, flush.messages=1: on the device, its cache flushed";

/// How many plots and bars the page has at the least.
pub const PLOTS: usize = 18;
pub const BARS: usize = 20;

pub fn report() -> Report {
    let mut report = Report::new(
        Tool::here("corelane bench"),
        "Corelane beside Apache Kafka, and two disks",
        ["rig", "compare", "--only", "loads", "--title", HOSTILE].map(str::to_owned).to_vec(),
        machine(),
    );
    report.seconds = 912.4;
    report.ended_early = Some("Ctrl-C".to_owned());
    report.brokers = brokers();
    report.conditions = vec![
        Named::new("limits", "open files 1048576, locked memory unlimited"),
        Named::new(HOSTILE, HOSTILE),
        Named::new("one long word", "x".repeat(300)),
    ];
    for (broker, part) in [("kafka", "loads"), ("corelane", "loads"), ("corelane", HOSTILE)] {
        report.legs.push(Leg {
            broker: broker.to_owned(),
            part: part.to_owned(),
            seconds: 123.4,
            load_before: "0.12 0.34 0.56".to_owned(),
            load_after: "2.12 1.34 0.56".to_owned(),
        });
    }
    beside(&mut report);
    three(&mut report);
    ramp(&mut report);
    numbers(&mut report);
    disks(&mut report);
    on_disks(&mut report);
    report.expectations = vec![
        expectation("produce 1 KiB, max: at least 2× Kafka's MB/s", "2.35×", true),
        expectation("p99 with every batch synced at most a third", "0.41", false),
    ];
    report.failures = vec![format!("Corelane, restart: the topic {HOSTILE} is gone")];
    report
}

fn expectation(what: &str, measured: &str, met: bool) -> Expectation {
    Expectation { what: what.to_owned(), measured: measured.to_owned(), met }
}

fn machine() -> Machine {
    let disk = Disk {
        path: "/mnt/nvme0".to_owned(),
        device: Some("/dev/nvme0n1p2".to_owned()),
        model: Some("Example NVMe 960GB".to_owned()),
        bytes: Some(960_197_124_096),
        rotational: Some(false),
        file_system: Some("xfs".to_owned()),
        mount_options: Some("rw,noatime,attr2,inode64,logbufs=8,logbsize=32k,noquota".to_owned()),
        scheduler: Some("none".to_owned()),
        write_cache: Some("write through".to_owned()),
        power_loss_protection: Some(true),
        emulated: None,
    };
    let emulated = Disk {
        path: "/mnt/emulated-hdd".to_owned(),
        emulated: Some("HDD, 7200 rpm (io.max 180 MB/s, 120 IOPS)".to_owned()),
        power_loss_protection: None,
        ..disk.clone()
    };
    Machine {
        kernel: "6.12.0-example".to_owned(),
        cpu: "Example 16-Core Processor".to_owned(),
        cores: 32,
        memory_bytes: 137_438_953_472,
        disks: vec![disk, emulated],
    }
}

fn brokers() -> Vec<Broker> {
    let broker = |id: &str, name: &str, version: &str| Broker {
        id: id.to_owned(),
        name: name.to_owned(),
        version: Some(version.to_owned()),
        addresses: vec!["127.0.0.1:9092".to_owned()],
        configs: vec![
            Named::new("flush.messages", "9223372036854775807"),
            Named::new("min.insync.replicas", "1"),
        ],
        notes: vec!["at most 2 cores, 1 GiB of heap".to_owned()],
    };
    let mut hostile = broker("twin", "Kafka twin", "4.4.0");
    hostile.name = format!("Kafka twin {HOSTILE}");
    vec![broker("kafka", "Apache Kafka", "4.4.0"), broker("corelane", "Corelane", "0.1.0"), hostile]
}

/// Latencies around a middle with a tail, the same at every call.
fn latencies(name: &str, middle_ns: u64, count: u64) -> LatencyHistogram {
    let mut recorded = histogram::new();
    for number in 0..count {
        let part = (number as f64 + 0.5) / count as f64;
        let value = middle_ns as f64 * (0.6 + 0.5 * part + 0.02 / (1.0 - part).powf(0.62));
        recorded.saturating_record(value as u64);
    }
    LatencyHistogram::of(name, &recorded)
}

fn series(row: &mut Row, throughput: f64, p99_ms: f64) {
    let wave = |number: usize, by: f64| 1.0 + by * (number as f64 * 0.7).sin();
    let values = |of: &dyn Fn(usize) -> f64| (0..30).map(|n| (n != 17).then(|| of(n))).collect();
    row.series = vec![
        Series {
            name: "throughput".to_owned(),
            unit: "MB/s".to_owned(),
            every_seconds: 1.0,
            values: values(&|number| throughput * wave(number, 0.08)),
        },
        Series {
            name: "produce p99".to_owned(),
            unit: "ms".to_owned(),
            every_seconds: 1.0,
            values: values(&|number| p99_ms * wave(number, 0.5)),
        },
    ];
}

fn row(group: &str, title: &str, subject: Subject, number: usize) -> Row {
    let mut row = Row::new(format!("row-{number}"), title, subject);
    row.group = Some(group.to_owned());
    row.durability = WRITTEN.to_owned();
    row
}

fn broker(id: &str) -> Subject {
    Subject::Broker(id.to_owned())
}

fn measure(row: &mut Row, name: &str, unit: &str, better: Better, samples: &[f64]) {
    row.measures.extend(Measure::new(name, unit, better, samples));
}

fn compare(report: &mut Report, first: &Row, second: &Row) {
    for measure in &first.measures {
        let Some(other) = second.measure(&measure.name) else { continue };
        let times_better = match measure.better {
            Better::Lower => measure.value / other.value,
            Better::Higher => other.value / measure.value,
            Better::Neither => continue,
        };
        report.comparisons.push(Comparison {
            first: first.id.clone(),
            second: second.id.clone(),
            measure: measure.name.clone(),
            times_better,
        });
    }
}

/// Kafka and Corelane: open loop, closed loop, void, worse.
fn beside(report: &mut Report) {
    let group = "Produce and consume";
    let cases: [(&str, Loop, f64, [u64; 2]); 4] = [
        ("1 KiB records, 12 partitions, 40,000 a second", Loop::Open, 41.0, [2_400_000, 600_000]),
        ("100 B records, 3 producers, 3 partitions, maximum", Loop::Closed, 267.0, [0, 0]),
        ("1 KiB records, client at its limit", Loop::Open, 900.0, [1_800_000, 900_000]),
        (HOSTILE, Loop::Open, 12.0, [900_000, 1_300_000]),
    ];
    for (case, (title, kind, speed, middles)) in cases.into_iter().enumerate() {
        let mut rows = Vec::new();
        for (side, id) in ["kafka", "corelane"].into_iter().enumerate() {
            let mut row = row(group, title, broker(id), report.rows.len() + side);
            row.kind = kind;
            row.repeats = 3;
            row.durability = if side == 0 { IN_CACHE } else { WRITTEN }.to_owned();
            row.workload.insert("topic".to_owned(), HOSTILE.into());
            row.workload.insert("record-bytes".to_owned(), 1024.into());
            let speed = speed * if side == 0 { 1.0 } else { 1.003 + case as f64 };
            let three = [speed, speed * 0.96, speed * 1.02];
            measure(&mut row, "throughput", "MB/s", Better::Higher, &three);
            let records = three.map(|mb| mb * 1e4);
            measure(&mut row, "records", "records/s", Better::Higher, &records);
            let cpu = if side == 0 { 2.84 } else { 0.31 };
            measure(&mut row, "broker CPU", "s/GB", Better::Lower, &[cpu, cpu * 1.1]);
            measure(&mut row, "client CPU", "cores", Better::Neither, &[0.4]);
            if let Some(&middle @ 1..) = middles.get(side) {
                let kept = latencies("produce latency", middle, 120_000);
                let p99 = kept.at(99.0).unwrap_or_default() as f64 / 1e6;
                measure(&mut row, "produce p99", "ms", Better::Lower, &[p99, p99 * 1.2]);
                series(&mut row, speed, p99);
                row.histograms = vec![kept];
            }
            rows.push(row);
        }
        if case == 2
            && let Some(row) = rows.first_mut()
        {
            row.void_reason = Some(
                "the client was at its limit: a thread of it was busy 99 % of \
                                    the time (bound: 95 %)"
                    .to_owned(),
            );
        }
        if case == 0
            && let Some(kept) = rows.first_mut().and_then(|row| row.histograms.first_mut())
        {
            kept.file = Some("javascript:window.hostile=1".to_owned());
        }
        if case == 2
            && let Some(kept) = rows.last_mut().and_then(|row| row.histograms.first_mut())
        {
            kept.file = Some("row-5-produce-latency.hgrm".to_owned());
        }
        if let [first, second] = rows.as_slice() {
            compare(report, first, second);
        }
        report.rows.extend(rows);
    }
}

/// A broker more, under the same flushes.
fn three(report: &mut Report) {
    let mut rows = Vec::new();
    for (side, id) in ["kafka", "twin", "corelane"].into_iter().enumerate() {
        let mut row = row("Every batch synced", "1 KiB, synced", broker(id), 100 + side);
        row.kind = Loop::Open;
        row.durability = FLUSHED.to_owned();
        let middle = [9_000_000, 12_000_000, 1_000_000].get(side).copied().unwrap_or(1);
        let kept = latencies("produce latency", middle, 3_000);
        let p99 = kept.at(99.0).unwrap_or_default() as f64 / 1e6;
        measure(&mut row, "produce p99", "ms", Better::Lower, &[p99]);
        row.histograms = vec![kept];
        rows.push(row);
    }
    if let [kafka, twin, corelane] = rows.as_slice() {
        compare(report, kafka, corelane);
        compare(report, twin, corelane);
    }
    report.rows.extend(rows);
}

/// Ten rates, the last of them too much.
fn ramp(report: &mut Report) {
    for (side, id) in ["kafka", "corelane"].into_iter().enumerate() {
        let most = [90_000.0, 210_000.0].get(side).copied().unwrap_or(1.0);
        for step in 1..=10usize {
            let rate = step as f64 * 20_000.0;
            let title = format!("1 KiB, {rate} records/s");
            let mut row = row("Latency versus load", &title, broker(id), 200 + 20 * side + step);
            row.kind = Loop::Open;
            row.durability = if side == 0 { IN_CACHE } else { WRITTEN }.to_owned();
            let crowded = 1.0 / (1.0 - (rate / most).min(0.985));
            let middle = [1_500_000.0, 400_000.0].get(side).copied().unwrap_or(1.0) * crowded;
            for (name, times) in [("produce latency", 1.0), ("end-to-end latency", 1.7)] {
                let kept = latencies(name, (middle * times) as u64, 20_000);
                for percentile in [50.0, 99.0] {
                    let short = format!("{} p{percentile}", name.trim_end_matches(" latency"));
                    let ms = kept.at(percentile).unwrap_or_default() as f64 / 1e6;
                    measure(&mut row, &short, "ms", Better::Lower, &[ms]);
                }
                row.histograms.push(kept);
            }
            row.curve = Some(Curve {
                name: "1-topic-12-partitions-1kb".to_owned(),
                x: rate,
                unit: "records/s".to_owned(),
                knee: rate == [80_000.0, 180_000.0].get(side).copied().unwrap_or(0.0),
            });
            if step == 10 {
                row.void_reason = Some("the client was late by itself".to_owned());
            }
            report.rows.push(row);
        }
    }
}

fn numbers(report: &mut Report) {
    let all = [
        ("next to nothing", 0.000_000_123, 0.000_04),
        ("nothing", 0.0, 0.0),
        ("billions", 12_345_678_901.0, 98_765_432_109.0),
    ];
    for (number, (title, first, second)) in all.into_iter().enumerate() {
        let mut rows = Vec::new();
        for (side, value) in [first, second].into_iter().enumerate() {
            let id = if side == 0 { "kafka" } else { "corelane" };
            let mut row =
                row("Small and large numbers", title, broker(id), 300 + 2 * number + side);
            row.durability = String::new();
            let samples = [value, value * 0.5, value * 2.0];
            measure(
                &mut row,
                "a measure with a rather long name",
                "records/s",
                Better::Higher,
                &samples,
            );
            measure(&mut row, "bytes", "", Better::Lower, &[value]);
            rows.push(row);
        }
        if let [a, b] = rows.as_slice()
            && first > 0.0
        {
            compare(report, a, b);
        }
        report.rows.extend(rows);
    }
}

fn disks(report: &mut Report) {
    for (side, path) in ["/mnt/nvme0", "/mnt/emulated-hdd"].into_iter().enumerate() {
        for (at, size) in ["4 KiB", "64 KiB", "1 MiB"].into_iter().enumerate() {
            for (deep, depth) in [1, 8, 32].into_iter().enumerate() {
                let title = format!("{size}, {depth} in flight");
                let number = 400 + 20 * side + 3 * at + deep;
                let mut row =
                    row("Sequential write", &title, Subject::Disk(path.to_owned()), number);
                row.kind = Loop::Closed;
                row.durability =
                    "direct write completed; the device's own cache may still hold it".to_owned();
                if side == 1 {
                    row.labels.push("emulated: HDD, 7200 rpm".to_owned());
                }
                let speed = 90.0 * (at + 1) as f64 * (deep + 2) as f64 / (1.0 + 9.0 * side as f64);
                measure(&mut row, "throughput", "MB/s", Better::Higher, &[speed]);
                measure(&mut row, "requests", "1/s", Better::Higher, &[speed * 244.0]);
                measure(&mut row, "p99", "µs", Better::Lower, &[45.0 * (deep + 1) as f64]);
                measure(&mut row, "core used", "%", Better::Neither, &[3.0]);
                let middle = 40_000 * (deep as u64 + 1) * (at as u64 + 1) * (1 + 60 * side as u64);
                row.histograms = vec![latencies("request latency", middle, 5_000)];
                report.rows.push(row);
            }
        }
    }
}

fn on_disks(report: &mut Report) {
    for (number, (path, speed, part)) in
        [("/mnt/nvme0", 2411.0, 86.1), ("/mnt/emulated-hdd", 171.0, 95.0)].into_iter().enumerate()
    {
        let subject = Subject::Disk(path.to_owned());
        let mut row = row("The broker on each disk", "1 KiB, maximum", subject, 500 + number);
        row.kind = Loop::Closed;
        measure(&mut row, "throughput", "MB/s", Better::Higher, &[speed]);
        measure(&mut row, "of the disk's ceiling", "%", Better::Higher, &[part]);
        measure(&mut row, "write amplification", "×", Better::Lower, &[1.02]);
        if number == 1 {
            row.labels.push("emulated: HDD, 7200 rpm".to_owned());
        }
        report.rows.push(row);
    }
}
