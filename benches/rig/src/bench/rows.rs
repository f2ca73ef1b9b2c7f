//! A row of a report from what was measured, and whether it says anything.

use hdrhistogram::Histogram;

use super::measure::{Recorder, Step};
use super::run::Measured;
use super::workload::Workload;
use crate::error::Result;
use crate::report::{
    Better, Curve, Folder, LatencyHistogram, Loop, Measure, Row, Series, Subject, histogram,
};

/// A thread that runs, or waits for a processor, for more of its time has none left.
const BUSY_MAX: f64 = 0.95;
/// Beyond that many times the p99 of the lowest rate, a curve has taken off.
const KNEE_TIMES: f64 = 3.0;
/// Below that share of the rate, the broker has not kept up.
const KEPT_UP: f64 = 0.98;
/// Of how many records come by chance, so many standard deviations are no lack.
const CHANCE: f64 = 3.0;
const MEBIBYTE: f64 = 1_048_576.0;

pub struct Source<'a> {
    /// No other row of the report has it.
    pub id: String,
    pub workload: &'a Workload,
    pub rate: Option<f64>,
    pub durability: String,
    /// One for each repeat.
    pub measured: &'a [Measured],
}

/// What a row is called unless there is one of that name.
pub fn id(workload: &Workload, rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{}-{}", workload.name, crate::report::row::number(rate)),
        None => format!("{}-max", workload.name),
    }
}

/// `None` if nothing was measured at all.
pub fn row(source: &Source<'_>, folder: &Folder) -> Result<Option<Row>> {
    let Source { workload, rate, measured, .. } = source;
    let Some(last) = measured.last() else { return Ok(None) };
    let title = match rate {
        Some(rate) => format!("{}, {rate} records/s", workload.shown()),
        None => format!("{}, maximum (closed loop)", workload.shown()),
    };
    let mut row = Row::new(source.id.clone(), title, Subject::Broker("broker".to_owned()));
    row.kind = if rate.is_some() { Loop::Open } else { Loop::Closed };
    row.durability.clone_from(&source.durability);
    row.repeats = measured.len();
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(workload) {
        row.workload = fields;
        let rate = rate.map_or_else(|| "max".into(), serde_json::Value::from);
        row.workload.insert("rate".to_owned(), rate);
    }
    row.void_reason = void(source);
    throughput(&mut row, source);
    latencies(&mut row, measured, folder)?;
    processes(&mut row, measured);
    row.series = series(&last.recorder, workload);
    let unfinished: u64 = measured.iter().map(|one| one.recorder.unfinished).sum();
    if unfinished > 0 || measured.iter().any(|one| one.overrun) {
        row.labels.push(format!(
            "the broker did not keep up: {unfinished} records were not acknowledged when the load \
             ended, and count with the time they had waited by then"
        ));
    }
    row.labels.extend(behind(measured));
    if measured.iter().any(|one| one.stopped && !one.overrun) {
        row.labels.push("stopped early".to_owned());
    }
    if let Some(rate) = rate {
        let name = format!("{}: latency versus load", workload.name);
        row.curve = Some(Curve { name, x: *rate, unit: "records/s".to_owned(), knee: false });
    }
    Ok(Some(row))
}

/// What consumers and coordinators had not done by the end.
fn behind(measured: &[Measured]) -> Vec<String> {
    let sum = |of: fn(&Recorder) -> u64| measured.iter().map(|one| of(&one.recorder)).sum::<u64>();
    let (unread, uncommitted) = (sum(|one| one.unread), sum(|one| one.uncommitted));
    let label = |count: u64, what: &str| {
        (count > 0).then(|| {
            format!(
                "{count} {what} when the load ended, and count with the time they had waited by then"
            )
        })
    };
    let unread = label(unread, "records were not consumed");
    let uncommitted = label(uncommitted, "transactions were not committed");
    unread.into_iter().chain(uncommitted).collect()
}

/// Why the figures would be the client's.
fn void(source: &Source<'_>) -> Option<String> {
    let measured = source.measured;
    let slip = |one: &Measured| one.recorder.slip.value_at_percentile(99.0) as f64 / 1e6;
    let slip = measured.iter().map(slip).fold(0.0, f64::max);
    if source.rate.is_some() && slip > source.workload.slip_ms {
        return Some(format!(
            "the client was late by itself: 1 % of records were taken up {slip:.1} ms or more after \
             they were due (bound: {} ms)",
            source.workload.slip_ms
        ));
    }
    let busiest = measured.iter().map(|one| one.busiest).fold(0.0, f64::max);
    (busiest > BUSY_MAX).then(|| {
        format!(
            "the client was at its limit: a thread of it ran or waited for a processor {:.0} % of the \
             time (bound: {:.0} %)",
            busiest * 100.0,
            BUSY_MAX * 100.0
        )
    })
}

fn seconds(recorder: &Recorder) -> f64 {
    (recorder.window.until.saturating_sub(recorder.window.from)) as f64 / 1e9
}

fn per_second(one: &Measured, of: fn(&Step) -> u64) -> f64 {
    one.recorder.steps.iter().map(of).sum::<u64>() as f64 / seconds(&one.recorder)
}

fn add(row: &mut Row, name: &str, unit: &str, better: Better, samples: &[f64]) {
    row.measures.extend(Measure::new(name, unit, better, samples));
}

fn throughput(row: &mut Row, source: &Source<'_>) {
    let measured = source.measured;
    let of = |step: fn(&Step) -> u64, by: f64| -> Vec<f64> {
        measured.iter().map(|one| per_second(one, step) / by).collect()
    };
    if source.workload.kind.produces() {
        add(row, "throughput", "MB/s", Better::Higher, &of(|step| step.acked_bytes, 1e6));
        add(row, "records", "records/s", Better::Higher, &of(|step| step.acked_records, 1.0));
    }
    if source.workload.kind.follows() {
        add(row, "consumed", "MB/s", Better::Higher, &of(|step| step.read_bytes, 1e6));
        add(
            row,
            "records consumed",
            "records/s",
            Better::Higher,
            &of(|step| step.read_records, 1.0),
        );
    }
    let backlog = of(|step| step.backlog_bytes, 1e6);
    if backlog.iter().any(|speed| *speed > 0.0) {
        add(row, "read from the backlog", "MB/s", Better::Higher, &backlog);
    }
    if source.workload.transactional() {
        let commits = |one: &Measured| one.recorder.committed as f64 / seconds(&one.recorder);
        let commits: Vec<f64> = measured.iter().map(commits).collect();
        add(row, "transactions", "transactions/s", Better::Higher, &commits);
        let again = |one: &Measured| one.recorder.tried_again as f64;
        let again: Vec<f64> = measured.iter().map(again).collect();
        add(row, "answers to try again", "", Better::Neither, &again);
    }
}

type Pick = fn(&Recorder) -> &Histogram<u64>;

fn latencies(row: &mut Row, measured: &[Measured], folder: &Folder) -> Result<()> {
    if row.kind != Loop::Open {
        return Ok(());
    }
    let kinds: [(&str, Pick); 3] = [
        ("produce latency", |one| &one.produced),
        ("end-to-end latency", |one| &one.consumed),
        ("transaction latency", |one| &one.transactions),
    ];
    for (name, of) in kinds {
        let each: Vec<&Histogram<u64>> = measured.iter().map(|one| of(&one.recorder)).collect();
        if each.iter().all(|one| one.is_empty()) {
            continue;
        }
        let short = name.trim_end_matches(" latency");
        for percentile in [50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            let values: Vec<f64> = each
                .iter()
                .filter(|one| !one.is_empty())
                .map(|one| value(one, percentile) as f64 / 1e6)
                .collect();
            let called = match percentile {
                100.0 => format!("{short} max"),
                _ => format!("{short} p{percentile}"),
            };
            add(row, &called, "ms", Better::Lower, &values);
        }
        let mut all = histogram::new();
        for one in each {
            // All have the same bounds.
            let _ = all.add(one);
        }
        let mut kept = LatencyHistogram::of(name, &all);
        folder.keep(&row.id, &mut kept, &all)?;
        row.histograms.push(kept);
    }
    Ok(())
}

fn value(histogram: &Histogram<u64>, percentile: f64) -> u64 {
    match percentile {
        100.0 => histogram.max(),
        _ => histogram.value_at_percentile(percentile),
    }
}

fn processes(row: &mut Row, measured: &[Measured]) {
    let of = |value: fn(&Measured) -> f64| measured.iter().map(value).collect::<Vec<f64>>();
    add(row, "client CPU", "cores", Better::Neither, &of(|one| one.client_cores));
    add(row, "busiest client thread", "%", Better::Neither, &of(|one| one.busiest * 100.0));
    if row.kind == Loop::Open {
        let slip = |one: &Measured| one.recorder.slip.value_at_percentile(99.0) as f64 / 1e6;
        add(row, "client late p99", "ms", Better::Neither, &of(slip));
    }
    add(row, "connections", "", Better::Neither, &of(|one| one.connections as f64));
    let cpu = |one: &Measured| {
        let bytes = |step: &Step| step.acked_bytes.max(step.backlog_bytes);
        let bytes = one.recorder.steps.iter().map(bytes).sum::<u64>() as f64;
        one.broker_cpu_seconds.filter(|_| bytes > 0.0).map(|seconds| seconds / (bytes / 1e9))
    };
    let cpu: Vec<f64> = measured.iter().filter_map(cpu).collect();
    add(row, "broker CPU", "s/GB", Better::Lower, &cpu);
    let memory = measured.iter().filter_map(|one| one.broker_memory);
    let (now, peak): (Vec<f64>, Vec<f64>) =
        memory.map(|memory| (memory.now / MEBIBYTE, memory.peak / MEBIBYTE)).unzip();
    add(row, "broker memory", "MiB", Better::Lower, &now);
    add(row, "broker memory, peak since its start", "MiB", Better::Lower, &peak);
}

fn series(recorder: &Recorder, workload: &Workload) -> Vec<Series> {
    let every_seconds = recorder.window.step as f64 / 1e9;
    let mut all = Vec::new();
    let mut push = |name: &str, unit: &str, values: Vec<Option<f64>>| {
        if values.iter().any(|value| value.is_some_and(|value| value > 0.0)) {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            all.push(Series { name, unit, every_seconds, values });
        }
    };
    // A load that was stopped has no steps after its end.
    let steps = recorder.steps.get(..recorder.window.steps()).unwrap_or(&recorder.steps);
    let speed = |of: fn(&Step) -> u64| -> Vec<Option<f64>> {
        steps.iter().map(|step| Some(of(step) as f64 / every_seconds / 1e6)).collect()
    };
    push("throughput", "MB/s", speed(|step| step.acked_bytes));
    push("consumed", "MB/s", speed(|step| step.read_bytes));
    push("read from the backlog", "MB/s", speed(|step| step.backlog_bytes));
    if !workload.rate.is_max() {
        let p99 = |of: fn(&Step) -> &Option<Histogram<u64>>| -> Vec<Option<f64>> {
            let value = |one: &Histogram<u64>| one.value_at_percentile(99.0) as f64 / 1e6;
            steps.iter().map(|step| of(step).as_ref().map(value)).collect()
        };
        push("produce p99", "ms", p99(|step| &step.produced));
        push("end-to-end p99", "ms", p99(|step| &step.consumed));
    }
    all
}

/// Marks the knee of every curve with several rows: the highest rate up to which the broker kept up
/// and the p99 stayed near that of the lowest. A knee that was marked before is so no longer: this
/// may be called again whenever there is another row.
pub fn mark_knees(rows: &mut [Row]) {
    for curve in rows.iter_mut().filter_map(|row| row.curve.as_mut()) {
        curve.knee = false;
    }
    let mut names: Vec<String> = Vec::new();
    for curve in rows.iter().filter_map(|row| row.curve.as_ref()) {
        if !names.contains(&curve.name) {
            names.push(curve.name.clone());
        }
    }
    for name in names {
        let mut points: Vec<(f64, f64, f64, usize)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let Some(curve) = row.curve.as_ref().filter(|curve| curve.name == name) else {
                continue;
            };
            let p99 = row.measure("end-to-end p99").or_else(|| row.measure("produce p99"));
            let Some((p99, records)) = p99.zip(row.measure("records")) else { continue };
            points.push((curve.x, p99.value, records.value + by_chance(row, curve.x), at));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(lowest) = points.first().map(|point| point.1).filter(|_| points.len() > 1) else {
            continue;
        };
        let kept = points.iter().take_while(|(rate, p99, records, _)| {
            *p99 <= KNEE_TIMES * lowest && *records >= KEPT_UP * rate
        });
        if let Some((.., at)) = kept.last()
            && let Some(curve) = rows.get_mut(*at).and_then(|row| row.curve.as_mut())
        {
            curve.knee = true;
        }
    }
}

/// How many records a second a Poisson schedule may fall short of its rate; a short one by much.
fn by_chance(row: &Row, rate: f64) -> f64 {
    let is_poisson = row.workload.get("arrivals").is_some_and(|arrivals| arrivals == "poisson");
    let seconds = row.workload.get("seconds").and_then(serde_json::Value::as_f64);
    match seconds.filter(|seconds| is_poisson && *seconds > 0.0) {
        Some(seconds) => CHANCE * (rate * seconds).sqrt() / seconds,
        None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::Window;

    fn measured(busiest: f64, slip_ms: u64) -> Measured {
        let mut recorder = Recorder::new(Window::new(0.0, 1.0));
        recorder.slipped(0, slip_ms * 1_000_000);
        Measured {
            recorder,
            client_cores: 1.0,
            busiest,
            threads: 1,
            connections: 1,
            broker_cpu_seconds: None,
            broker_memory: None,
            overrun: false,
            stopped: false,
        }
    }

    #[test]
    fn a_row_is_void_where_the_client_was_the_limit() {
        let why = |rate, busiest, slip_ms| {
            let (workload, all) =
                (Workload::default(), [measured(0.1, 0), measured(busiest, slip_ms)]);
            let durability = String::new();
            let id = String::new();
            void(&Source { id, workload: &workload, rate, durability, measured: &all })
        };
        assert_eq!(why(Some(1.0), 0.9, 4), None);
        assert!(why(Some(1.0), 0.9, 6).unwrap().contains("late by itself"));
        assert!(why(Some(1.0), 0.97, 0).unwrap().contains("processor 97 %"));
        // A closed loop has no schedule to be late for.
        assert_eq!(why(None, 0.9, 6), None);
        assert!(why(None, 0.97, 0).is_some());
    }

    fn point(rate: f64, p99: f64, records: f64) -> Row {
        let subject = Subject::Broker("b".to_owned());
        let mut row = Row::new(rate.to_string(), "x", subject);
        row.curve = Some(Curve { name: "c".to_owned(), x: rate, unit: String::new(), knee: false });
        add(&mut row, "produce p99", "ms", Better::Lower, &[p99]);
        add(&mut row, "records", "records/s", Better::Higher, &[records]);
        row
    }

    #[test]
    fn a_curve_that_grows_has_one_knee() {
        let mut rows = Vec::new();
        for (rate, p99, knee) in [
            (100.0, 1.0, None),
            (200.0, 1.0, Some(200.0)),
            (300.0, 1.0, Some(300.0)),
            (400.0, 9.0, Some(300.0)),
        ] {
            rows.push(point(rate, p99, rate));
            mark_knees(&mut rows);
            let curves = rows.iter().filter_map(|row| row.curve.as_ref());
            let knees: Vec<f64> = curves.filter(|curve| curve.knee).map(|curve| curve.x).collect();
            assert_eq!(knees, knee.into_iter().collect::<Vec<_>>(), "after {rate}");
        }
    }

    #[test]
    fn a_schedule_that_is_short_by_chance_has_kept_up() {
        let knee = |arrivals: &str| {
            let mut rows = [point(100.0, 1.0, 100.0), point(200.0, 1.0, 190.0)];
            for row in &mut rows {
                row.workload.insert("arrivals".to_owned(), arrivals.into());
                row.workload.insert("seconds".to_owned(), 10.0.into());
            }
            mark_knees(&mut rows);
            rows.iter().position(|row| row.curve.as_ref().is_some_and(|curve| curve.knee))
        };
        assert_eq!((knee("constant"), knee("poisson")), (Some(0), Some(1)));
    }

    #[test]
    fn the_knee_is_the_last_rate_before_latency_takes_off() {
        let mut rows =
            [point(100.0, 1.0, 100.0), point(200.0, 2.0, 200.0), point(300.0, 9.0, 300.0)];
        mark_knees(&mut rows);
        let knees = rows.each_ref().map(|row| row.curve.as_ref().is_some_and(|curve| curve.knee));
        assert_eq!(knees, [false, true, false]);
        let mut rows = [point(100.0, 1.0, 100.0), point(200.0, 1.0, 150.0)];
        mark_knees(&mut rows);
        assert!(rows[0].curve.as_ref().unwrap().knee);
    }
}
