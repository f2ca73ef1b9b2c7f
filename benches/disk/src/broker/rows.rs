//! The broker on each disk as rows of the report, with the points of its curve.

use rig::report::{
    Better, Broker, Comparison, Curve, LatencyHistogram, Loop, Measure, Named, Report, Row,
    Subject, histogram,
};

use super::knee::RULE;
use super::{Closed, OnDisk, Point, SPREAD, Shape, SideBySide};
use crate::ceiling::Ceilings;
use crate::facts::Place;
use crate::rows::fit;

/// What the rows say of their load.
fn workload(shape: Shape) -> serde_json::Map<String, serde_json::Value> {
    let value = serde_json::json!({
        "partitions": shape.partitions,
        "connections": shape.connections,
        "batch_bytes": shape.batch_bytes,
        "record_bytes": super::RECORD_BYTES,
        "in_flight": shape.in_flight,
    });
    match value {
        serde_json::Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

fn measure(name: &str, unit: &str, better: Better, value: f64) -> Option<Measure> {
    Measure::new(name, unit, better, &[value])
}

/// Adds one disk's broker.
pub fn add_to(
    report: &mut Report,
    place: &Place,
    ceilings: &Ceilings,
    found: &[OnDisk],
    label: Option<&str>,
) {
    let id = format!("corelane on {}", place.dir.display());
    for here in found {
        let mut rows: Vec<Row> = Vec::new();
        for closed in &here.closed {
            rows.push(closed_row(&id, here, closed, ceilings.write()));
        }
        for (number, point) in here.curve.iter().enumerate() {
            rows.push(point_row(&id, here, point, here.knee == Some(number)));
        }
        for mut row in rows {
            row.labels = label.map(|label| format!("emulated: {label}")).into_iter().collect();
            report.rows.push(row);
        }
    }
    add_broker(report, id, format!("{} shards", found.first().map_or(0, |here| here.shards)));
    if !report.conditions.iter().any(|named| named.name == "knee") {
        report.conditions.push(Named::new("knee", RULE));
    }
}

fn add_broker(report: &mut Report, id: String, note: String) {
    if report.brokers.iter().any(|known| known.id == id) {
        return;
    }
    report.brokers.push(Broker {
        id,
        name: "Corelane".to_owned(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        addresses: vec!["127.0.0.1, while it was measured".to_owned()],
        notes: vec![note, "started by this run on the directory named".to_owned()],
        ..Broker::default()
    });
}

fn closed_row(id: &str, here: &OnDisk, closed: &Closed, ceiling: f64) -> Row {
    let Closed { shape, sample, activity } = closed;
    let title = format!("as fast as it goes, {} batches, {}", shape.name, here.promise.name());
    let row_id = fit(&format!("{id} {} {}", here.promise.name(), shape.name));
    let mut row = Row::new(row_id, title, Subject::Broker(id.to_owned()));
    row.group = Some("broker on each disk".to_owned());
    row.kind = Loop::Closed;
    row.durability = here.promise.words().to_owned();
    row.workload = workload(*shape);
    let rate = sample.megabytes_per_second();
    let cores = |cpu: f64| cpu / sample.seconds * 100.0;
    let mut all = vec![
        measure("throughput", "MB/s", Better::Higher, rate),
        measure("of the disk's ceiling", "%", Better::Higher, rate / ceiling * 100.0),
        measure("broker cores", "%", Better::Neither, cores(sample.broker_cpu_seconds)),
        measure("client cores", "%", Better::Neither, cores(sample.client_cpu_seconds)),
        measure("other cores", "%", Better::Neither, cores(sample.other_cpu_seconds)),
        measure("broker CPU", "s/GB", Better::Lower, sample.broker_cpu_per_gigabyte()),
    ];
    if activity.known {
        let flushes = activity.flushes / activity.seconds;
        let per_flush = activity.payload_per_flush(sample.bytes);
        all.extend([
            measure("device written", "MB/s", Better::Neither, activity.megabytes_per_second()),
            measure("device requests", "1/s", Better::Neither, activity.requests_per_second),
            measure("mean write", "B", Better::Neither, activity.mean_write_bytes),
            measure("device busy", "%", Better::Neither, activity.busy_percent),
            measure("flushes", "1/s", Better::Neither, flushes),
            per_flush.and_then(|bytes| measure("payload a flush", "B", Better::Neither, bytes)),
            measure("written a byte", "", Better::Lower, activity.amplification(sample.bytes)),
        ]);
    }
    row.measures = all.into_iter().flatten().collect();
    row.void_reason = closed.void(here.shards).map(str::to_owned);
    row
}

fn point_row(id: &str, here: &OnDisk, point: &Point, knee: bool) -> Row {
    let (promise, load) = (here.promise, point.load);
    let title = format!("latency at {load:.0} MB/s, {}", promise.name());
    let row_id = fit(&format!("{id} {} at {load:.1}", promise.name()));
    let mut row = Row::new(row_id, title, Subject::Broker(id.to_owned()));
    row.group = Some("latency by load".to_owned());
    row.kind = Loop::Open;
    row.durability = promise.words().to_owned();
    row.workload = workload(SPREAD);
    let name = format!("{id}, {}", promise.name());
    row.curve = Some(Curve { name, x: load, unit: "MB/s".to_owned(), knee });
    let Some(latency) = &point.latency else {
        row.void_reason = Some("the broker fell behind this load".to_owned());
        return row;
    };
    let mut nanos = histogram::new();
    for step in latency.iter_recorded() {
        nanos.saturating_record_n(step.value_iterated_to() * 1_000, step.count_at_value());
    }
    let kept = LatencyHistogram::of("produce latency", &nanos);
    let micros = |percentile: f64| latency.value_at_percentile(percentile) as f64;
    let all = [
        measure("p50", "µs", Better::Lower, micros(50.0)),
        measure("p99", "µs", Better::Lower, micros(99.0)),
        measure("p99.9", "µs", Better::Lower, micros(99.9)),
        measure("max", "µs", Better::Lower, latency.max() as f64),
        measure("device busy", "%", Better::Neither, point.activity.busy_percent),
        measure("client cores", "%", Better::Neither, point.client_cores * 100.0),
    ];
    row.void_reason = point.void.map(str::to_owned);
    row.measures = all.into_iter().flatten().collect();
    row.histograms = vec![kept];
    row
}

/// Adds the brokers side by side, each held against itself alone.
pub fn add_together(report: &mut Report, found: &SideBySide, label: Option<&str>) {
    for (number, dir) in found.dirs.iter().enumerate() {
        let id = format!("corelane on {}", dir.display());
        let mut add = |how: &str, rate: Option<&f64>| {
            let row_id = fit(&format!("{id} side by side {how}"));
            let mut row = Row::new(row_id.clone(), how, Subject::Broker(id.clone()));
            row.group = Some("brokers side by side".to_owned());
            row.kind = Loop::Closed;
            row.durability = super::Promise::Written.words().to_owned();
            row.workload = workload(super::LARGE);
            row.labels = label.map(|label| format!("emulated: {label}")).into_iter().collect();
            let rate = rate.copied().unwrap_or(0.0);
            row.measures =
                measure("throughput", "MB/s", Better::Higher, rate).into_iter().collect();
            report.rows.push(row);
            (row_id, rate)
        };
        let (first, alone) = add("alone", found.alone.get(number));
        let (second, together) = add("together", found.together.get(number));
        report.comparisons.push(Comparison {
            first,
            second,
            measure: "throughput".to_owned(),
            times_better: together / alone,
        });
        add_broker(report, id, "one of several at the same time".to_owned());
    }
}
