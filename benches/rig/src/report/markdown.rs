//! A report as a page of Markdown, made from nothing but the report.

use std::fmt::Write as _;

use super::layout::{self, Section, Titled};
use super::{Disk, Report, Row, Subject};

pub fn text(report: &Report) -> String {
    let mut text = format!("# {}\n\n", report.title);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} {} (commit {}), {}, {:.0} s. Medians; where there are several, lowest and highest in \
         brackets.\n",
        report.tool.name, report.tool.version, report.tool.commit, report.started, report.seconds
    );
    if let Some(why) = &report.ended_early {
        let _ = writeln!(text, "**Ended early: {why}.** The rows are those that there are.\n");
    }
    for section in layout::sections(report) {
        if let Some(heading) = section.heading {
            let _ = writeln!(text, "## {heading}\n");
        }
        durabilities(&mut text, &section);
        table(&mut text, report, &section);
        voids(&mut text, &section.rows);
    }
    if !report.expectations.is_empty() {
        text.push_str("## Expected\n\n| expected | measured | met |\n|---|---:|---|\n");
        for line in &report.expectations {
            let met = if line.met { "yes" } else { "no" };
            let _ = writeln!(text, "| {} | {} | {met} |", cell(&line.what), cell(&line.measured));
        }
        text.push('\n');
    }
    conditions(&mut text, report);
    text
}

/// What is the same for all is said once.
fn durabilities(text: &mut String, section: &Section<'_>) {
    let said = section.durabilities();
    for (words, titles) in &said {
        let _ = match said.len() {
            1 => writeln!(text, "Durability: {words}\n"),
            _ => writeln!(text, "Durability of {}: {words}\n", titles.join("; ")),
        };
    }
}

/// A line a row and measure; subjects stand beside each other where there are several.
fn table(text: &mut String, report: &Report, section: &Section<'_>) {
    let subjects = section.subjects();
    let names = subjects.iter().map(|subject| cell(&layout::name_of(report, subject)));
    let names: Vec<String> = names.collect();
    let _ = writeln!(text, "| what | loop | measure | {} | |", names.join(" | "));
    let _ = writeln!(text, "|---|---|---|{}---|", "---:|".repeat(names.len()));
    for titled in section.titles() {
        one_title(text, report, &titled, &subjects);
    }
    text.push('\n');
}

fn one_title(text: &mut String, report: &Report, titled: &Titled<'_>, all: &[&Subject]) {
    let kind = titled.rows.first().map_or("-", |row| row.kind.words());
    let labels = layout::distinct(titled.rows.iter().flat_map(|row| &row.labels));
    let labels: String = labels.iter().map(|label| format!(" ({label})")).collect();
    let title = cell(&format!("{}{}{labels}", titled.title, knees(report, titled, all.len())));
    for (number, measure) in titled.measures().iter().enumerate() {
        let (title, kind) = if number == 0 { (title.as_str(), kind) } else { ("", "") };
        let figure = |subject: &&Subject| {
            let row = titled.row_of(subject)?;
            let figures = row.measure(&measure.name)?.figures();
            Some(if row.void_reason.is_some() { format!("~~{figures}~~") } else { figures })
        };
        let figures = all.iter().map(|at| figure(at).unwrap_or_else(|| "-".to_owned()));
        let figures: Vec<String> = figures.collect();
        let unit = if measure.unit.is_empty() { "" } else { ", " };
        let _ = writeln!(
            text,
            "| {title} | {kind} | {}{unit}{} | {} | {} |",
            cell(&measure.name),
            cell(&measure.unit),
            figures.join(" | "),
            verdicts(report, titled, &measure.name),
        );
    }
}

/// Where latency takes off, of one subject or of those that are named.
fn knees(report: &Report, titled: &Titled<'_>, subjects: usize) -> String {
    let is_knee = |row: &&&Row| row.curve.as_ref().is_some_and(|curve| curve.knee);
    let each = titled.rows.iter().filter(is_knee).map(|row| match subjects {
        1 => ", the knee".to_owned(),
        _ => format!(", the knee of {}", layout::name_of(report, &row.subject)),
    });
    each.collect()
}

fn verdicts(report: &Report, titled: &Titled<'_>, measure: &str) -> String {
    let all = titled.beside(report, measure);
    let words = all.iter().map(|beside| match all.len() {
        1 => beside.verdict.words(),
        _ => {
            let (first, second) = (&beside.first.subject, &beside.second.subject);
            let name = |subject| cell(&layout::name_of(report, subject));
            format!("{} beside {}: {}", name(second), name(first), beside.verdict.words())
        }
    });
    let words: Vec<String> = words.collect();
    words.join("; ")
}

/// What would end a cell of a table does not.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn voids(text: &mut String, rows: &[&Row]) {
    for row in rows {
        if let Some(why) = &row.void_reason {
            let _ = writeln!(text, "**Void**: {}: {why}.\n", row.title);
        }
    }
}

fn conditions(text: &mut String, report: &Report) {
    let machine = &report.machine;
    let _ = writeln!(
        text,
        "## Conditions\n\n- command: `{}`\n- machine: {}, {} cores, {:.1} GiB memory; Linux {}",
        report.command.join(" "),
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
    );
    for disk in &machine.disks {
        let _ = writeln!(text, "- disk: {}", describe(disk));
    }
    for broker in &report.brokers {
        let configs = broker.configs.iter().map(|each| format!("{}={}", each.name, each.value));
        let configs: Vec<String> = configs.chain(broker.notes.iter().cloned()).collect();
        let at = broker.addresses.join(", ");
        let _ = writeln!(text, "- {} at {at}: {}", broker.title(), configs.join(", "));
    }
    for each in &report.conditions {
        let _ = writeln!(text, "- {}: {}", each.name, each.value);
    }
    for leg in &report.legs {
        let _ = writeln!(
            text,
            "- a leg of {:.0} s, {}, {}: load averages {} → {}",
            leg.seconds, leg.broker, leg.part, leg.load_before, leg.load_after
        );
    }
    for failure in &report.failures {
        let _ = writeln!(text, "- **failed**: {failure}");
    }
}

fn describe(disk: &Disk) -> String {
    let kind = disk.rotational.map(|yes| if yes { "rotating" } else { "not rotating" }.to_owned());
    let size = disk.bytes.map(|bytes| format!("{:.0} GB", bytes as f64 / 1e9));
    let protection = disk.power_loss_protection.map(|yes| {
        if yes { "power-loss protection" } else { "no power-loss protection" }.to_owned()
    });
    let named = |name: &str, value: &Option<String>| value.as_ref().map(|v| format!("{name} {v}"));
    let parts = [
        disk.emulated.as_ref().map(|as_what| format!("**emulated** {as_what}")),
        disk.device.clone(),
        disk.model.clone(),
        size,
        kind,
        disk.file_system.clone(),
        named("mounted", &disk.mount_options),
        named("scheduler", &disk.scheduler),
        named("write cache", &disk.write_cache),
        protection,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", disk.path, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Comparison, Curve, Machine, Measure, Tool};

    fn row(id: &str, broker: &str, value: f64) -> Row {
        let mut row = Row::new(id, "1 KiB", Subject::Broker(broker.to_owned()));
        row.measures.extend(Measure::new("throughput", "MB/s", Better::Higher, &[value]));
        row.durability = "in the page cache".to_owned();
        row
    }

    #[test]
    fn two_brokers_stand_beside_each_other() {
        let mut report = Report::new(Tool::here("rig"), "Two", Vec::new(), Machine::default());
        report.rows = vec![row("k", "kafka", 100.0), row("c", "corelane", 250.0)];
        report.comparisons = vec![Comparison {
            first: "k".to_owned(),
            second: "c".to_owned(),
            measure: "throughput".to_owned(),
            times_better: 2.5,
        }];
        let text = text(&report);
        let line = "| 1 KiB | - | throughput, MB/s | 100 | 250 | 2.50× better |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| what | loop | measure | kafka | corelane | |"), "{text}");
        assert_eq!(text.matches("Durability: in the page cache").count(), 1, "{text}");
    }

    #[test]
    fn the_knee_is_named() {
        let mut report = Report::new(Tool::here("rig"), "One", Vec::new(), Machine::default());
        let mut row = row("k", "kafka", 100.0);
        let name = "latency versus load".to_owned();
        row.curve = Some(Curve { name, x: 1.0, unit: String::new(), knee: true });
        report.rows = vec![row];
        assert!(text(&report).contains("| 1 KiB, the knee | - | throughput"));
    }

    #[test]
    fn a_void_row_is_struck_and_says_why() {
        let mut report = Report::new(Tool::here("rig"), "One", Vec::new(), Machine::default());
        let mut row = row("k", "kafka", 100.0);
        row.void_reason = Some("the client was busy".to_owned());
        report.rows = vec![row];
        let text = text(&report);
        assert!(text.contains("~~100~~") && text.contains("**Void**: 1 KiB: the client was busy."));
    }
}
