//! Which plots of lines a report's rows give: percentiles of latencies, latency versus load, figures
//! over time.

use super::axis::{Axis, Kind, nines};
use super::plot::{Line, Marker, Plot};
use super::text::{duration, nanoseconds, short_number};
use crate::report::layout::{Section, distinct, name_of};
use crate::report::row::number;
use crate::report::{LatencyHistogram, Report, Row, Series, Subject};

/// Points of a curve of percentiles at most; more are closer than a screen shows.
const MOST_POINTS: f64 = 300.0;
/// Lines of one plot at most.
pub const MOST_LINES: usize = 6;

/// A line of a plot: a row, and what it is called beside the others.
pub struct Named<'a> {
    pub row: &'a Row,
    pub name: String,
    pub kind: usize,
}

/// Every subject looks the same all over the page.
pub fn kind_of(report: &Report, subject: &Subject) -> usize {
    let all = distinct(report.rows.iter().map(|row| &row.subject));
    all.iter().position(|known| *known == subject).unwrap_or(0)
}

/// Rows of different subjects, by their names.
pub fn by_subject<'a>(report: &Report, rows: &[&'a Row]) -> Vec<Named<'a>> {
    let named = |row: &&'a Row| Named {
        row,
        name: name_of(report, &row.subject),
        kind: kind_of(report, &row.subject),
    };
    rows.iter().map(named).collect()
}

/// A plot for each kind of histogram that the rows have.
pub fn percentiles(id: &str, about: &str, rows: &[Named<'_>]) -> Vec<Plot> {
    let all = rows.iter().flat_map(|named| &named.row.histograms);
    let kinds = distinct(all.map(|histogram| histogram.name.as_str()));
    let plot = |(at, kind): (usize, &&str)| {
        let found = |named: &Named<'_>| {
            let mut all = named.row.histograms.iter();
            let kept = all.find(|histogram| histogram.name == *kind && histogram.count > 0)?;
            Some((kept.count, one_of_percentiles(named, kept)))
        };
        let (counts, lines): (Vec<u64>, Vec<Line>) =
            rows.iter().filter_map(found).take(MOST_LINES).unzip();
        (!lines.is_empty()).then(|| Plot {
            id: format!("{id}p{at}"),
            title: format!("{kind} by percentile{about}"),
            description: described(&lines),
            x: Axis::nines(counts.into_iter().max().unwrap_or(0)),
            y: Axis::log(&all_y(&lines), Kind::Duration),
            x_label: "percentile".to_owned(),
            lines,
            notes: Vec::new(),
            remark: None,
        })
    };
    kinds.iter().enumerate().filter_map(plot).collect()
}

fn one_of_percentiles(named: &Named<'_>, kept: &LatencyHistogram) -> Line {
    let void = if named.row.void_reason.is_some() { " (void)" } else { "" };
    Line {
        name: format!("{}{void}", named.name),
        figures: main_figures(kept),
        colour: named.kind,
        dash: named.kind,
        pieces: vec![curve(kept)],
        markers: Vec::new(),
    }
}

fn main_figures(histogram: &LatencyHistogram) -> String {
    // Of fewer values a percentile would be the maximum under another name.
    let named =
        [(50.0, "p50", 2), (99.0, "p99", 100), (99.99, "p99.99", 10_000), (100.0, "max", 1)];
    let named = named.into_iter().filter(|(.., fewest)| histogram.count >= *fewest);
    let figure = |(percentile, name, _): (f64, &str, u64)| {
        Some(format!("{name} {}", duration(histogram.at(percentile)? as f64)))
    };
    named.filter_map(figure).collect::<Vec<_>>().join(", ")
}

/// Nines and nanoseconds, from the counts; ends at the maximum.
fn curve(histogram: &LatencyHistogram) -> Vec<(f64, f64)> {
    let total: u64 = histogram.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
    let end = (total.max(1) as f64).log10();
    let apart = end.max(1.0) / MOST_POINTS;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0u64;
    for (number, (value, count)) in histogram.buckets.iter().enumerate() {
        below = below.saturating_add(*count);
        let is_last = number + 1 == histogram.buckets.len();
        let x = if is_last { end } else { nines(below as f64 / total as f64).min(end) };
        if is_last || points.last().is_none_or(|last| x - last.0 >= apart) {
            points.push((x, *value as f64));
        }
    }
    // From its smallest value on; one that is all alike is a level line.
    match points.first().copied() {
        Some((x, value)) if x > 0.0 => {
            points.insert(0, (0.0, if histogram.min > 0 { histogram.min as f64 } else { value }));
        }
        Some((_, value)) if points.len() == 1 => points.push((end.max(1.0), value)),
        _ => {}
    }
    points
}

/// Latency versus load: a plot for each curve that rows of the section lie on, and each kind of latency.
pub fn loads(report: &Report, section: &Section<'_>, id: &str) -> Vec<Plot> {
    let names = section.rows.iter().filter_map(|row| row.curve.as_ref());
    let names = distinct(names.map(|curve| curve.name.as_str()));
    let mut plots = Vec::new();
    for name in names {
        let mut rows = section.rows.clone();
        rows.retain(|row| row.curve.as_ref().is_some_and(|curve| curve.name == name));
        // One load alone is no curve.
        if distinct(rows.iter().map(|row| load_of(row))).len() < 2 {
            continue;
        }
        let kinds = rows.iter().flat_map(|row| &row.histograms).map(|kept| kept.name.as_str());
        let mut kinds: Vec<Option<&str>> = distinct(kinds).into_iter().map(Some).collect();
        if kinds.is_empty() {
            kinds.push(None);
        }
        for kind in kinds {
            let id = format!("{id}l{}", plots.len());
            let title = match kind {
                Some(kind) => format!("{name}, {kind}"),
                None => name.to_owned(),
            };
            plots.extend(load(report, &rows, kind, (id, title)));
        }
    }
    plots
}

fn load(
    report: &Report,
    rows: &[&Row],
    latency_kind: Option<&str>,
    (id, title): (String, String),
) -> Option<Plot> {
    let subjects = distinct(rows.iter().map(|row| &row.subject));
    // Of many subjects the tail alone.
    let wanted: &[f64] = if subjects.len() > 2 { &[99.0] } else { &[50.0, 99.0, 99.9] };
    let unit = rows.first()?.curve.as_ref()?.unit.clone();
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for subject in subjects {
        let mut steps: Vec<&Row> =
            rows.iter().filter(|row| row.subject == *subject).copied().collect();
        steps.sort_by(|a, b| load_of(a).total_cmp(&load_of(b)));
        let kind = kind_of(report, subject);
        let is_knee = |row: &&&Row| row.curve.as_ref().is_some_and(|curve| curve.knee);
        if let Some(knee) = steps.iter().find(is_knee) {
            let what = format!("knee {}", short_number(load_of(knee)));
            notes.push((load_of(knee), what, kind));
        }
        let who = name_of(report, subject);
        for (dash, percentile) in wanted.iter().enumerate() {
            let look = Look { colour: kind, dash: if wanted.len() == 1 { kind } else { dash } };
            let of = |row: &Row| latency(row, latency_kind, *percentile);
            let label = format!("p{percentile}");
            lines.extend(one_of_loads((&who, &label, &unit), &steps, of, look));
        }
    }
    if lines.is_empty() {
        return None;
    }
    let hollow = lines.iter().flat_map(|line| &line.markers).any(|marker| marker.void);
    let knees = notes.iter().map(|(_, what, _)| format!(" A {what} {unit}.")).collect::<String>();
    let loads: Vec<f64> = rows.iter().map(|row| load_of(row)).collect();
    Some(Plot {
        id,
        title,
        description: format!("{}{knees}", described(&lines)),
        x: Axis::linear(&loads, Kind::Number),
        x_label: unit.clone(),
        y: Axis::log(&all_y(&lines), Kind::Duration),
        lines,
        notes,
        remark: hollow.then(|| "Hollow: a void row, which says nothing of the subject.".to_owned()),
    })
}

struct Look {
    colour: usize,
    dash: usize,
}

fn load_of(row: &Row) -> f64 {
    row.curve.as_ref().map_or(0.0, |curve| curve.x)
}

fn one_of_loads(
    (who, label, unit): (&str, &str, &str),
    steps: &[&Row],
    of: impl Fn(&Row) -> Option<f64>,
    look: Look,
) -> Option<Line> {
    let marker = |row: &&Row| {
        let (x, y) = (load_of(row), of(row)?);
        let words = format!("{who}, {} {unit}: {label} {}", number(x), duration(y));
        Some(Marker { x, y, words, void: row.void_reason.is_some() })
    };
    let markers: Vec<Marker> = steps.iter().filter_map(marker).collect();
    let points = markers.iter().map(|marker| (marker.x, marker.y)).collect();
    (!markers.is_empty()).then(|| Line {
        name: format!("{who}, {label}"),
        figures: String::new(),
        colour: look.colour,
        dash: look.dash,
        pieces: vec![points],
        markers,
    })
}

/// In nanoseconds, from the row's histogram of that kind, or without one from a measure of that name.
fn latency(row: &Row, kind: Option<&str>, percentile: f64) -> Option<f64> {
    if let Some(kind) = kind {
        let kept = row.histograms.iter().find(|histogram| histogram.name == kind)?;
        return (kept.count > 0).then_some(kept.at(percentile)? as f64);
    }
    let name = format!("p{percentile}");
    let is_it = |text: &str| text.split(' ').any(|word| word == name);
    let measure = row.measures.iter().find(|measure| is_it(&measure.name))?;
    Some(measure.value * nanoseconds(&measure.unit)?)
}

/// Figures over time: a plot for each kind of series that the rows have.
pub fn times(id: &str, about: &str, rows: &[Named<'_>]) -> Vec<Plot> {
    let all = rows.iter().flat_map(|named| &named.row.series);
    let kinds = distinct(all.map(|series| (series.name.as_str(), series.unit.as_str())));
    let plot = |(at, (name, unit)): (usize, &(&str, &str))| {
        let found = |named: &Named<'_>| {
            let all = named.row.series.iter();
            let series = all.into_iter().find(|s| s.name == *name && s.unit == *unit)?;
            over_time(named, series)
        };
        let lines: Vec<Line> = rows.iter().take(MOST_LINES).filter_map(found).collect();
        let last = lines.iter().flat_map(|line| line.pieces.iter().flatten()).map(|(x, _)| *x);
        let seconds: Vec<f64> = last.collect();
        let values = all_y(&lines);
        let is_time = nanoseconds(unit).is_some();
        let in_unit = if is_time { String::new() } else { format!(", {unit},") };
        // One moment alone is no course of time.
        distinct(seconds.iter()).get(1)?;
        Some(Plot {
            id: format!("{id}s{at}"),
            title: format!("{name}{in_unit} over time{about}"),
            description: described(&lines),
            x: Axis::linear(&seconds, Kind::Number),
            x_label: "seconds".to_owned(),
            y: match is_time {
                true => Axis::log(&values, Kind::Duration),
                false => Axis::linear(&values, Kind::Number),
            },
            lines,
            notes: Vec::new(),
            remark: None,
        })
    };
    kinds.iter().enumerate().filter_map(plot).collect()
}

fn over_time(named: &Named<'_>, series: &Series) -> Option<Line> {
    let scale = nanoseconds(&series.unit).unwrap_or(1.0);
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut open = false;
    for (number, value) in series.values.iter().enumerate() {
        // Of a stretch of time, its end.
        let x = series.every_seconds * (number + 1) as f64;
        match (value, pieces.last_mut()) {
            (Some(value), Some(piece)) if open => piece.push((x, value * scale)),
            (Some(value), _) => pieces.push(vec![(x, value * scale)]),
            (None, _) => {}
        }
        open = value.is_some();
    }
    let values: Vec<f64> = series.values.iter().flatten().copied().collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    let figure = |value: f64| match nanoseconds(&series.unit) {
        Some(scale) => duration(value * scale),
        None => format!("{} {}", number(value), series.unit),
    };
    Some(Line {
        name: named.name.clone(),
        figures: format!("{} to {}", figure(low), figure(high)),
        colour: named.kind,
        dash: named.kind,
        pieces,
        markers: Vec::new(),
    })
}

fn all_y(lines: &[Line]) -> Vec<f64> {
    let all = lines.iter().flat_map(|line| line.pieces.iter().flatten());
    all.map(|(_, y)| *y).collect()
}

fn described(lines: &[Line]) -> String {
    let words = |line: &Line| match (line.figures.is_empty(), line.markers.len()) {
        (false, _) => format!("{}: {}.", line.name, line.figures),
        (true, 0) => format!("{}.", line.name),
        (true, _) => {
            let all = line.markers.iter().map(|m| format!("{} at {}", duration(m.y), number(m.x)));
            format!("{}: {}.", line.name, all.collect::<Vec<_>>().join(", "))
        }
    };
    lines.iter().map(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::histogram;

    #[test]
    fn a_curve_of_percentiles_ends_at_the_maximum() {
        let mut recorded = histogram::new();
        for value in 1..=100_000u64 {
            recorded.saturating_record(value * 100);
        }
        let kept = LatencyHistogram::of("produce latency", &recorded);
        let curve = curve(&kept);
        assert!(curve.len() <= MOST_POINTS as usize + 2, "{}", curve.len());
        let (x, y) = *curve.last().unwrap();
        assert!((x - 5.0).abs() < 1e-9 && (y - kept.max as f64).abs() < 1.0, "{x} {y}");
        assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
        let p99 = curve.iter().find(|(x, _)| *x >= 2.0).unwrap().1;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 0.03, "{p99}");
    }

    #[test]
    fn one_value_alone_is_a_line_too() {
        let mut recorded = histogram::new();
        recorded.saturating_record(1_000_000);
        let curve = curve(&LatencyHistogram::of("x", &recorded));
        assert_eq!(curve.len(), 2);
    }

    #[test]
    fn nothing_in_a_series_is_a_gap() {
        let row = Row::new("a", "a", Subject::Broker("k".to_owned()));
        let series = Series {
            name: "p99".to_owned(),
            unit: "ms".to_owned(),
            every_seconds: 2.0,
            values: vec![Some(1.0), None, Some(2.0), Some(3.0)],
        };
        let named = Named { row: &row, name: "k".to_owned(), kind: 0 };
        let line = over_time(&named, &series).unwrap();
        assert_eq!(line.pieces, [vec![(2.0, 1e6)], vec![(6.0, 2e6), (8.0, 3e6)]]);
        assert_eq!(line.figures, "1.00 ms to 3.00 ms");
    }
}
