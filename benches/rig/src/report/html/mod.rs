//! A report as one HTML page that needs nothing else: made from the report alone, no script, style
//! sheet, font or picture from elsewhere, plots as inline SVG.
//!
//! The page has no script at all, and a policy in it forbids any: names from brokers and command
//! lines are text ([`text::Text`]) and stay so even if that were ever forgotten.

mod about;
mod axis;
mod bars;
mod figures;
mod lines;
mod plot;
mod sections;
mod text;

use std::fmt::Write as _;

use self::text::Text;
use super::layout::{self, Beside, Section, Verdict};
use super::{Measure, Report, row::number};

const STYLE: &str = include_str!("page.css");
/// Nothing from anywhere; styles stand in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

pub fn page(report: &Report) -> String {
    let mut out = String::with_capacity(64 << 10);
    let sections = layout::sections(report);
    head(&mut out, report);
    summary(&mut out, report, &sections);
    contents(&mut out, report, &sections);
    out.push_str("<main>\n");
    expected(&mut out, report);
    worse(&mut out, report, &sections);
    for (number, section) in sections.iter().enumerate() {
        sections::write(&mut out, report, section, number);
    }
    about::write(&mut out, report);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn head(out: &mut String, report: &Report) {
    let title = Text(&report.title);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}<header class=\"top\">\n\
         <h1>{title}</h1>\n<p>{} {}, commit {}, {}{}</p>\n",
        plot::MARKERS,
        Text(&report.tool.name),
        Text(&report.tool.version),
        Text(&report.tool.commit),
        Text(&report.started),
        Text(&lasted(report.seconds)),
    );
}

fn lasted(seconds: f64) -> String {
    match seconds {
        // It was not kept.
        seconds if seconds <= 0.0 => String::new(),
        seconds if seconds < 120.0 => format!(", {seconds:.0} s"),
        seconds => format!(", {:.0} min", seconds / 60.0),
    }
}

/// How it went, in a few lines, what went wrong first.
fn summary(out: &mut String, report: &Report, sections: &[Section<'_>]) {
    if let Some(why) = &report.ended_early {
        let _ = writeln!(
            out,
            "<p class=\"alert\"><b>Ended early</b>: {}. The rows are those that there are.</p>",
            Text(why)
        );
    }
    for failure in &report.failures {
        let _ = writeln!(out, "<p class=\"alert\"><b>Failed</b>: {}</p>", Text(failure));
    }
    let void = report.rows.iter().filter(|row| row.void_reason.is_some()).count();
    let mut facts = vec![counted(report.rows.len(), "row", "rows")];
    if void > 0 {
        facts.push(format!("<b>{void} void</b>"));
    }
    let all = compared(report, sections);
    if !all.is_empty() {
        let count = |is: fn(Verdict) -> bool| all.iter().filter(|(_, b)| is(b.verdict)).count();
        let better = count(|verdict| matches!(verdict, Verdict::Better(_)));
        let worse = count(|verdict| matches!(verdict, Verdict::Worse(_)));
        let same = count(|verdict| verdict == Verdict::Same);
        let seconds = all.iter().map(|(_, beside)| &beside.second.subject);
        let who = match layout::distinct(seconds).as_slice() {
            [one] => format!("{} is", Text(&layout::name_of(report, one))),
            _ => "the second one is".to_owned(),
        };
        facts.push(format!(
            "of {} {who} better in {better}, worse in {worse}, the same in {same}",
            counted(all.len(), "compared figure", "compared figures")
        ));
    }
    if !report.expectations.is_empty() {
        let met = report.expectations.iter().filter(|line| line.met).count();
        let all = counted(report.expectations.len(), "expectation", "expectations");
        facts.push(format!("{met} of {all} met"));
    }
    let _ = writeln!(out, "<p class=\"facts\">{}.</p>\n</header>", facts.join("; "));
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Every comparison with the place of its title on the page.
fn compared<'a>(
    report: &'a Report,
    sections: &[Section<'a>],
) -> Vec<((String, &'a str, &'a Measure), Beside<'a>)> {
    let mut all = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        for (at, titled) in section.titles().iter().enumerate() {
            for measure in titled.measures() {
                let place = sections::place(number, at);
                let here = titled.beside(report, &measure.name).into_iter();
                all.extend(here.map(|beside| ((place.clone(), titled.title, measure), beside)));
            }
        }
    }
    all
}

fn contents(out: &mut String, report: &Report, sections: &[Section<'_>]) {
    out.push_str("<nav aria-label=\"Contents\"><ul>\n");
    if !report.expectations.is_empty() {
        out.push_str("<li><a href=\"#expected\">Expected</a></li>\n");
    }
    for (number, section) in sections.iter().enumerate() {
        let heading = Text(section.heading.unwrap_or("Results"));
        let _ = writeln!(out, "<li><a href=\"#s{number}\">{heading}</a></li>");
    }
    out.push_str("<li><a href=\"#conditions\">Conditions</a></li>\n");
    out.push_str("<li><a href=\"#reading\">How to read this</a></li>\n</ul></nav>\n");
}

fn expected(out: &mut String, report: &Report) {
    if report.expectations.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"expected\">\n<h2>Expected</h2>\n<div class=\"scroll\" tabindex=\"0\" \
         role=\"region\" aria-label=\"Expected\"><table class=\"expected\">\n<thead><tr>\
         <th scope=\"col\">expected</th><th scope=\"col\">measured</th><th scope=\"col\">met</th>\
         </tr></thead>\n<tbody>\n",
    );
    let (met, missed): (Vec<_>, Vec<_>) = report.expectations.iter().partition(|line| line.met);
    for line in missed.into_iter().chain(met) {
        let (class, met) = if line.met { ("better", "✓ met") } else { ("worse", "✗ missed") };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"verdict {class}\">{met}</td></tr>",
            Text(&line.what),
            Text(&line.measured)
        );
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

/// What is worse stands first of all figures: nobody should have to look for it.
fn worse(out: &mut String, report: &Report, sections: &[Section<'_>]) {
    let mut all = compared(report, sections);
    all.retain(|(_, beside)| matches!(beside.verdict, Verdict::Worse(_)));
    if all.is_empty() {
        return;
    }
    out.push_str("<section id=\"worse\">\n<h2>Where it is worse</h2>\n<ul class=\"worse-list\">\n");
    for ((place, title, measure), beside) in &all {
        let figure = |row: &super::Row| {
            let value = row.measure(&measure.name).map_or(f64::NAN, |measure| measure.value);
            let who = layout::name_of(report, &row.subject);
            let unit = if measure.unit.is_empty() { "" } else { " " };
            format!("{} {}{unit}{}", Text(&who), number(value), Text(&measure.unit))
        };
        let _ = writeln!(
            out,
            "<li><a href=\"#{place}\">{}</a>, {}: {}, {} <span class=\"verdict worse\">▼ {}</span>\
             </li>",
            Text(title),
            Text(&measure.name),
            figure(beside.second),
            figure(beside.first),
            beside.verdict.words()
        );
    }
    out.push_str("</ul>\n</section>\n");
}
