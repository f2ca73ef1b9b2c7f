//! Bars: how much a disk, or a broker on it, gets through, and how much of the disk's ceiling that is.

use std::fmt::Write as _;

use super::plot::KINDS;
use super::text::Text;
use crate::report::layout::{Section, name_of};
use crate::report::row::number;
use crate::report::{Better, Measure, Report, Row, Subject};

/// Bars of one chart at most.
const MOST: usize = 48;
/// More take the whole width, in columns.
const LONG: usize = 8;

/// One chart for throughput, one for the part of the ceiling; none where nothing is about disks.
pub fn write(out: &mut String, report: &Report, section: &Section<'_>, id: &str) {
    let is_disk = |row: &&Row| matches!(row.subject, Subject::Disk(_));
    let of_ceiling = of(section, |measure| measure.unit == "%" && measure.name.contains("ceiling"));
    if !section.rows.iter().any(is_disk) && of_ceiling.is_empty() {
        return;
    }
    let is_speed = |measure: &Measure| measure.unit == "MB/s" && measure.better == Better::Higher;
    let speed = of(section, is_speed);
    let charts = [(speed, "MB/s", None), (of_ceiling, "%", Some(100.0))];
    for (number, (bars, unit, whole)) in charts.into_iter().enumerate() {
        chart(out, report, &bars, unit, whole, &format!("{id}b{number}"));
    }
}

/// The first measure of that kind of each row.
fn of<'a>(section: &Section<'a>, is_it: impl Fn(&Measure) -> bool) -> Vec<(&'a Row, &'a Measure)> {
    let first = |row: &&'a Row| Some((*row, row.measures.iter().find(|measure| is_it(measure))?));
    section.rows.iter().filter_map(first).collect()
}

fn chart(
    out: &mut String,
    report: &Report,
    bars: &[(&Row, &Measure)],
    unit: &str,
    whole: Option<f64>,
    id: &str,
) {
    let Some((_, first)) = bars.first() else { return };
    let most = bars.iter().map(|(_, measure)| measure.value).fold(whole.unwrap_or(0.0), f64::max);
    let title = match whole {
        Some(_) => format!("{}; the whole width is 100 %", first.name),
        None => format!("{}, {unit}", first.name),
    };
    let long = if bars.len() > LONG { " long" } else { "" };
    let _ = writeln!(
        out,
        "<figure class=\"plot bars{long}\" aria-labelledby=\"{id}\"><figcaption id=\"{id}\">{}\
         </figcaption>\n<ul>",
        Text(&title)
    );
    for (row, measure) in bars.iter().take(MOST) {
        let part = if most > 0.0 { (100.0 * measure.value / most).clamp(0.0, 100.0) } else { 0.0 };
        let name = name_of(report, &row.subject);
        let kind = super::lines::kind_of(report, &row.subject) % KINDS;
        let void = if row.void_reason.is_some() { " void" } else { "" };
        let mut notes: Vec<&str> = row.labels.iter().map(String::as_str).collect();
        if row.void_reason.is_some() {
            notes.push("void");
        }
        let notes: String = notes.iter().map(|note| format!(" ({note})")).collect();
        let _ = writeln!(
            out,
            "<li><span class=\"what\">{} <small>{}{}</small></span><span class=\"value\">{} {unit}\
             </span><svg class=\"bar\" aria-hidden=\"true\"><rect class=\"c{kind}{void}\" \
             width=\"{part:.2}%\" height=\"100%\"/></svg></li>",
            Text(&row.title),
            Text(&name),
            Text(&notes),
            number(measure.value)
        );
    }
    out.push_str("</ul>\n");
    if let Some(more) = bars.len().checked_sub(MOST).filter(|more| *more > 0) {
        let _ = writeln!(out, "<p class=\"remark\">{more} more are in the table only.</p>");
    }
    out.push_str("</figure>\n");
}
