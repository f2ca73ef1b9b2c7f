//! A section of the page: rows of one group. Where subjects stand beside each other, every title is a
//! card with a table and its plots; many titles without a comparison are one table for all.

use std::fmt::Write as _;

use serde_json::Value;

use super::lines::{self, Named};
use super::plot::Plot;
use super::text::Text;
use super::{bars, figures};
use crate::report::layout::{self, Section, Titled, name_of};
use crate::report::{Loop, Report, Row};

/// So many titles without a comparison share a table.
const FEWEST_OF_A_TABLE: usize = 4;

/// The id of a title on the page.
pub fn place(section: usize, title: usize) -> String {
    format!("s{section}t{title}")
}

pub fn write(out: &mut String, report: &Report, section: &Section<'_>, number: usize) {
    let titles = section.titles();
    let heading = Text(section.heading.unwrap_or("Results"));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<section id=\"s{number}\">\n<h2>{heading}</h2>");
    let id = format!("s{number}");
    let mut plots = String::new();
    lines::loads(report, section, &id).iter().for_each(|plot| plot.write(&mut plots));
    bars::write(&mut plots, report, section, &id);
    let one_table = titles.len() >= FEWEST_OF_A_TABLE && !is_compared(report, &titles);
    if one_table {
        for plot in plots_of_many(report, section, &id) {
            plot.write(&mut plots);
        }
    }
    put_plots(out, &plots);
    if one_table {
        figures::of_many(out, report, &titles, number);
        hgrm_of_many(out, section);
    } else {
        for (at, titled) in titles.iter().enumerate() {
            card(out, report, section, titled, &place(number, at));
        }
    }
    out.push_str("</section>\n");
}

fn is_compared(report: &Report, titles: &[Titled<'_>]) -> bool {
    titles.iter().any(|titled| {
        let measures = titled.measures();
        measures.iter().any(|measure| !titled.beside(report, &measure.name).is_empty())
    })
}

fn put_plots(out: &mut String, plots: &str) {
    if !plots.is_empty() {
        let _ = writeln!(out, "<div class=\"plots\">\n{plots}</div>");
    }
}

/// Each subject's rows in one plot, a few of them where they are many.
fn plots_of_many(report: &Report, section: &Section<'_>, id: &str) -> Vec<Plot> {
    let subjects = section.subjects();
    let mut plots = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        let mut all: Vec<&Row> = section.rows.clone();
        all.retain(|row| row.subject == **subject);
        all.retain(|row| !row.histograms.is_empty() || !row.series.is_empty());
        let few = spread(&all, lines::MOST_LINES);
        let named: Vec<Named<'_>> = few
            .iter()
            .enumerate()
            .map(|(kind, row)| Named { row, name: row.title.clone(), kind })
            .collect();
        let who = name_of(report, subject);
        let about = if subjects.len() > 1 { format!(", {who}") } else { String::new() };
        let id = format!("{id}m{number}");
        let mut made = lines::percentiles(&id, &about, &named);
        made.extend(lines::times(&id, &about, &named));
        if few.len() < all.len() {
            let remark =
                format!("{} of {} rows are drawn; the table has all.", few.len(), all.len());
            made.iter_mut().for_each(|plot| plot.remark = Some(remark.clone()));
        }
        plots.extend(made);
    }
    plots
}

/// At most so many, from the first to the last.
fn spread<'a>(rows: &[&'a Row], most: usize) -> Vec<&'a Row> {
    if rows.len() <= most || most < 2 {
        return rows.iter().take(most.max(1)).copied().collect();
    }
    let at = |number: usize| rows.get(number * (rows.len() - 1) / (most - 1)).copied();
    (0..most).filter_map(at).collect()
}

fn card(
    out: &mut String,
    report: &Report,
    section: &Section<'_>,
    titled: &Titled<'_>,
    place: &str,
) {
    let _ = write!(
        out,
        "<article class=\"card\" id=\"{place}\">\n<h3>{}</h3>\n<ul class=\"chips\">",
        Text(titled.title)
    );
    for (class, chip) in chips(report, &titled.rows) {
        let _ = write!(out, "<li class=\"{class}\">{}</li>", Text(&chip));
    }
    out.push_str("</ul>\n");
    durabilities(out, report, titled);
    for row in &titled.rows {
        if let Some(why) = &row.void_reason {
            let who = name_of(report, &row.subject);
            let (who, why) = (Text(&who), Text(why));
            let _ = writeln!(out, "<p class=\"alert\"><b>Void</b>, {who}: {why}.</p>");
        }
    }
    let subjects = section.subjects();
    // Figures of one alone are narrow: its plots stand beside them.
    let alone = subjects.len() == 1 && titled.rows.iter().any(|row| !row.histograms.is_empty());
    out.push_str(if alone { "<div class=\"split\">\n" } else { "" });
    figures::of_one(out, report, titled, &subjects);
    let named = lines::by_subject(report, &titled.rows);
    let mut plots = String::new();
    let mut made = lines::percentiles(place, "", &named);
    made.extend(lines::times(place, "", &named));
    made.iter().for_each(|plot| plot.write(&mut plots));
    put_plots(out, &plots);
    out.push_str(if alone { "</div>\n" } else { "" });
    more(out, report, titled);
    out.push_str("</article>\n");
}

/// What has to be known before the figures are: class and words, with a name where it is not so of all.
pub fn chips(report: &Report, rows: &[&Row]) -> Vec<(&'static str, String)> {
    let mut chips = Vec::new();
    let mut add = |class, words: &str, is_so: &dyn Fn(&Row) -> bool| {
        let so: Vec<&&Row> = rows.iter().filter(|row| is_so(row)).collect();
        if so.len() == rows.len() {
            chips.push((class, words.to_owned()));
        } else if !so.is_empty() {
            let names: Vec<String> = so.iter().map(|row| name_of(report, &row.subject)).collect();
            chips.push((class, format!("{words} ({})", names.join(", "))));
        }
    };
    add("chip bad", "void", &|row| row.void_reason.is_some());
    add("chip", "open loop", &|row| row.kind == Loop::Open);
    add("chip warn", "closed loop", &|row| row.kind == Loop::Closed);
    for label in layout::distinct(rows.iter().flat_map(|row| &row.labels)) {
        add("chip warn", label, &|row| row.labels.contains(label));
    }
    for repeats in layout::distinct(rows.iter().map(|row| row.repeats)) {
        if repeats > 1 {
            add("chip", &format!("{repeats} repeats"), &|row| row.repeats == repeats);
        }
    }
    chips
}

/// Of each subject, once where they have the same.
fn durabilities(out: &mut String, report: &Report, titled: &Titled<'_>) {
    let words = layout::distinct(titled.rows.iter().map(|row| row.durability.as_str()));
    for said in &words {
        let who = match words.len() {
            1 => String::new(),
            _ => {
                let same = titled.rows.iter().filter(|row| row.durability == *said);
                let names = same.map(|row| name_of(report, &row.subject));
                format!(", {}", names.collect::<Vec<_>>().join(" and "))
            }
        };
        let _ = writeln!(
            out,
            "<p class=\"durability\"><b>Durability{}</b>: {}</p>",
            Text(&who),
            Text(durability(said))
        );
    }
}

pub fn durability(said: &str) -> &str {
    if said.is_empty() { "nothing is acknowledged, or it is not said" } else { said }
}

/// The load as it was resolved, and the files with all of the recorded precision.
fn more(out: &mut String, report: &Report, titled: &Titled<'_>) {
    let loads = titled.rows.iter().map(|row| &row.workload).filter(|load| !load.is_empty());
    for load in layout::distinct(loads) {
        out.push_str("<details><summary>Workload</summary>\n<dl>\n");
        for (name, value) in load {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", Text(name), Text(&text));
        }
        out.push_str("</dl></details>\n");
    }
    let mut links = Vec::new();
    for row in &titled.rows {
        let who = name_of(report, &row.subject);
        links.extend(hgrm(row).into_iter().map(|link| format!("{link} ({})", Text(&who))));
    }
    if !links.is_empty() {
        let _ =
            writeln!(out, "<p class=\"remark\">All that was recorded: {}</p>", links.join(", "));
    }
}

fn hgrm_of_many(out: &mut String, section: &Section<'_>) {
    let all: Vec<String> = section.rows.iter().flat_map(|row| hgrm(row)).collect();
    if !all.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>All that was recorded</summary>\n<p class=\"remark\">{}</p></details>",
            all.join(", ")
        );
    }
}

/// To the files beside the report; a name that is no plain one is no link.
fn hgrm(row: &Row) -> Vec<String> {
    let is_plain = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        name.chars().all(plain) && !name.starts_with('.')
    };
    let files = row.histograms.iter().filter_map(|histogram| histogram.file.as_deref());
    let link = |name: &str| match is_plain(name) {
        true => format!("<a href=\"{name}\">{name}</a>"),
        false => Text(name).to_string(),
    };
    files.map(link).collect()
}
