//! Tables of figures: measures of one title with the subjects beside each other, or many titles with a
//! column for each measure.

use std::fmt::Write as _;

use super::sections::{chips, durability, place};
use super::text::Text;
use crate::report::layout::{self, Beside, Titled, Verdict, direction, name_of};
use crate::report::row::number;
use crate::report::{Measure, Report, Row, Subject};

/// A bar of a ratio that goes to its end: a hundred times.
const MOST_DECADES: f64 = 2.0;

/// A line a measure.
pub fn of_one(out: &mut String, report: &Report, titled: &Titled<'_>, subjects: &[&Subject]) {
    let measures = titled.measures();
    let beside: Vec<Vec<Beside<'_>>> =
        measures.iter().map(|measure| titled.beside(report, &measure.name)).collect();
    let pairs = beside.iter().flatten().map(|b| (&b.first.subject, &b.second.subject));
    let pairs = layout::distinct(pairs);
    let verdicts = match pairs.as_slice() {
        [] => None,
        [(_, second)] => Some(format!("{} is", name_of(report, second))),
        _ => Some("beside each other".to_owned()),
    };
    let many = match subjects.len() {
        1 => " single",
        2 => "",
        _ => " many",
    };
    let columns = subjects.len() + usize::from(verdicts.is_some());
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of {}\">\
         <table class=\"one{many}\" style=\"--columns:{columns}\">\n<thead><tr><th scope=\"col\">measure</th>",
        Text(titled.title)
    );
    for subject in subjects {
        let name = name_of(report, subject);
        let _ = write!(out, "<th scope=\"col\" class=\"figure\">{}</th>", Text(&name));
    }
    if let Some(words) = &verdicts {
        let _ = write!(out, "<th scope=\"col\" class=\"verdict\">{}</th>", Text(words));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (measure, beside) in measures.iter().zip(&beside) {
        out.push_str("<tr>");
        out.push_str("<th scope=\"row\">");
        name(out, measure);
        out.push_str("</th>");
        for subject in subjects {
            cell(out, titled.row_of(subject), measure);
        }
        if verdicts.is_some() {
            verdict(out, report, beside, pairs.len() > 1);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn name(out: &mut String, measure: &Measure) {
    let (name, unit) = (measure.name.as_str(), measure.unit.as_str());
    let _ = match unit {
        "" => write!(out, "{}", Text(name)),
        // "records, records/s" says no more.
        _ if unit.strip_suffix("/s") == Some(name) => write!(out, "{}", Text(unit)),
        _ => write!(out, "{}, {}", Text(name), Text(unit)),
    };
    if let Some(words) = direction(measure.better) {
        let _ = write!(out, " <small>{words}</small>");
    }
}

fn cell(out: &mut String, row: Option<&Row>, measure: &Measure) {
    let Some((row, found)) = row.and_then(|row| Some((row, row.measure(&measure.name)?))) else {
        out.push_str("<td class=\"figure\">-</td>");
        return;
    };
    let value = breakable(found.value);
    let value = match row.void_reason {
        Some(_) => format!("<s>{value}</s> <small>void</small>"),
        None => format!("<b>{value}</b>"),
    };
    let _ = write!(out, "<td class=\"figure\">{value}");
    if found.samples.len() > 1 {
        let (low, high) = (breakable(found.low), breakable(found.high));
        let _ = write!(out, " <small class=\"range\">{low} – {high}</small>");
    }
    out.push_str("</td>");
}

/// Between thousands, where there is no room for all of it.
fn breakable(value: f64) -> String {
    number(value).replace(',', ",<wbr>")
}

fn verdict(out: &mut String, report: &Report, all: &[Beside<'_>], named: bool) {
    out.push_str("<td class=\"verdict\">");
    for beside in all {
        let class = class(beside.verdict);
        let _ = write!(out, "<div class=\"{class}\">");
        let sign = match beside.verdict {
            Verdict::Better(_) => "▲ ",
            Verdict::Worse(_) => "▼ ",
            Verdict::Same => "= ",
            Verdict::Void => "",
        };
        let _ = write!(out, "{sign}{}", beside.verdict.words());
        if named {
            let name = |row: &Row| name_of(report, &row.subject);
            let (first, second) = (name(beside.first), name(beside.second));
            let _ = write!(out, " <small>{} beside {}</small>", Text(&second), Text(&first));
        }
        bar(out, beside.verdict);
        out.push_str("</div>");
    }
    out.push_str("</td>");
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better(_) => "better",
        Verdict::Worse(_) => "worse",
        Verdict::Same | Verdict::Void => "",
    }
}

/// From the middle to the right as far as it is better, to the left as far as it is worse.
fn bar(out: &mut String, verdict: Verdict) {
    let part = |times: f64| (50.0 * times.log10() / MOST_DECADES).clamp(0.0, 50.0);
    let (from, width) = match verdict {
        Verdict::Better(times) => (50.0, part(times)),
        Verdict::Worse(times) => (50.0 - part(times), part(times)),
        Verdict::Same => (50.0, 0.0),
        Verdict::Void => return,
    };
    let _ = write!(
        out,
        "<svg class=\"ratio\" aria-hidden=\"true\"><line x1=\"50%\" x2=\"50%\" y1=\"0\" y2=\"100%\"/>\
         <rect x=\"{from:.1}%\" y=\"25%\" width=\"{width:.1}%\" height=\"50%\"/></svg>"
    );
}

/// A line a row, a column a measure.
pub fn of_many(out: &mut String, report: &Report, titles: &[Titled<'_>], section: usize) {
    let measures = layout::one_of_each_name(titles.iter().flat_map(|titled| titled.measures()));
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\">\
         <table class=\"many\">\n<thead><tr><th scope=\"col\">what</th>",
    );
    for measure in &measures {
        out.push_str("<th scope=\"col\" class=\"figure\">");
        name(out, measure);
        out.push_str("</th>");
    }
    out.push_str("<th scope=\"col\" class=\"words\">durability</th></tr></thead>\n<tbody>\n");
    for (at, titled) in titles.iter().enumerate() {
        for (number, row) in titled.rows.iter().enumerate() {
            match number {
                0 => _ = write!(out, "<tr id=\"{}\">", place(section, at)),
                _ => out.push_str("<tr>"),
            }
            what(out, report, titled, row);
            for measure in &measures {
                cell(out, Some(row), measure);
            }
            let words = Text(durability(&row.durability));
            let _ = writeln!(out, "<td class=\"words\">{words}</td></tr>");
        }
    }
    out.push_str("</tbody></table></div>\n");
}

fn what(out: &mut String, report: &Report, titled: &Titled<'_>, row: &Row) {
    let who = name_of(report, &row.subject);
    let (title, who) = (Text(titled.title), Text(&who));
    let _ = write!(out, "<th scope=\"row\"><b>{title}</b> <small>{who}");
    for (_, chip) in chips(report, &[row]) {
        let _ = write!(out, ", {}", Text(&chip));
    }
    if row.curve.as_ref().is_some_and(|curve| curve.knee) {
        out.push_str(", the knee");
    }
    out.push_str("</small>");
    if let Some(why) = &row.void_reason {
        let _ = write!(out, "<span class=\"alert\"><b>Void</b>: {}.</span>", Text(why));
    }
    out.push_str("</th>");
}
