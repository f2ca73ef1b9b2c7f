//! A report as a page of Markdown, made from nothing but the report.

use std::fmt::Write as _;

use super::row::number;
use super::{Broker, Disk, Measure, Report, Row, Subject};

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
    for (group, rows) in groups(&report.rows) {
        if let Some(group) = group {
            let _ = writeln!(text, "## {group}\n");
        }
        durabilities(&mut text, &rows);
        table(&mut text, report, &rows);
        voids(&mut text, &rows);
    }
    if !report.expectations.is_empty() {
        text.push_str("## Expected\n\n| expected | measured | met |\n|---|---:|---|\n");
        for line in &report.expectations {
            let met = if line.met { "yes" } else { "no" };
            let _ = writeln!(text, "| {} | {} | {met} |", line.what, line.measured);
        }
        text.push('\n');
    }
    conditions(&mut text, report);
    text
}

/// Rows under their headings, both in the order in which they come.
fn groups(rows: &[Row]) -> Vec<(Option<&str>, Vec<&Row>)> {
    let mut groups: Vec<(Option<&str>, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = row.group.as_deref();
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

/// What is the same for all is said once.
fn durabilities(text: &mut String, rows: &[&Row]) {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.durability.is_empty()) {
        match said.iter_mut().find(|(words, _)| *words == row.durability) {
            Some((_, titles)) => titles.push(&row.title),
            None => said.push((&row.durability, vec![&row.title])),
        }
    }
    for (words, mut titles) in said.clone() {
        titles.dedup();
        let _ = match said.len() {
            1 => writeln!(text, "Durability: {words}\n"),
            _ => writeln!(text, "Durability of {}: {words}\n", titles.join("; ")),
        };
    }
}

/// A line a row and measure; subjects stand beside each other where there are several.
fn table(text: &mut String, report: &Report, rows: &[&Row]) {
    let mut subjects: Vec<&Subject> = Vec::new();
    for row in rows {
        if !subjects.contains(&&row.subject) {
            subjects.push(&row.subject);
        }
    }
    let names: Vec<String> = subjects.iter().map(|subject| name(report, subject)).collect();
    let _ = writeln!(text, "| what | loop | measure | {} | |", names.join(" | "));
    let _ = writeln!(text, "|---|---|---|{}---|", "---:|".repeat(names.len()));
    let mut titles: Vec<&str> = Vec::new();
    for row in rows {
        if !titles.contains(&row.title.as_str()) {
            titles.push(&row.title);
        }
    }
    for title in titles {
        let same: Vec<&Row> = rows.iter().copied().filter(|row| row.title == title).collect();
        one_title(text, report, title, &same, &subjects);
    }
    text.push('\n');
}

fn one_title(text: &mut String, report: &Report, title: &str, rows: &[&Row], all: &[&Subject]) {
    let mut measures: Vec<&Measure> = Vec::new();
    for measure in rows.iter().flat_map(|row| &row.measures) {
        if !measures.iter().any(|known| known.name == measure.name) {
            measures.push(measure);
        }
    }
    let kind = rows.first().map_or("-", |row| row.kind.words());
    for (number, measure) in measures.iter().enumerate() {
        let (title, kind) = if number == 0 { (title, kind) } else { ("", "") };
        let figure = |subject: &&Subject| {
            let row = rows.iter().find(|row| row.subject == **subject)?;
            let figures = row.measure(&measure.name)?.figures();
            Some(if row.void_reason.is_some() { format!("~~{figures}~~") } else { figures })
        };
        let figures = all.iter().map(|at| figure(at).unwrap_or_else(|| "-".to_owned()));
        let figures: Vec<String> = figures.collect();
        let unit = if measure.unit.is_empty() { "" } else { ", " };
        let verdict = verdict(report, rows, &measure.name);
        let _ = writeln!(
            text,
            "| {title} | {kind} | {}{unit}{} | {} | {verdict} |",
            measure.name,
            measure.unit,
            figures.join(" | ")
        );
    }
}

fn verdict(report: &Report, rows: &[&Row], measure: &str) -> String {
    let is_here = |id: &str| rows.iter().any(|row| row.id == id);
    let found = report
        .comparisons
        .iter()
        .find(|line| line.measure == measure && is_here(&line.first) && is_here(&line.second));
    match found.map(|line| line.times_better) {
        Some(times) if times >= 1.0 => format!("{}× better", number(times)),
        Some(times) if times > 0.0 => format!("{}× worse", number(1.0 / times)),
        _ => String::new(),
    }
}

fn voids(text: &mut String, rows: &[&Row]) {
    for row in rows {
        if let Some(why) = &row.void_reason {
            let _ = writeln!(text, "**Void**: {}: {why}.\n", row.title);
        }
    }
}

fn name(report: &Report, subject: &Subject) -> String {
    match subject {
        Subject::Disk(path) => path.clone(),
        Subject::Broker(id) => {
            report.brokers.iter().find(|broker| broker.id == *id).map_or_else(|| id.clone(), title)
        }
    }
}

fn title(broker: &Broker) -> String {
    match &broker.version {
        Some(version) => format!("{} {version}", broker.name),
        None => broker.name.clone(),
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
        let _ = writeln!(text, "- {} at {at}: {}", title(broker), configs.join(", "));
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
    use crate::report::{Better, Comparison, Machine, Tool};

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
    fn a_void_row_is_struck_and_says_why() {
        let mut report = Report::new(Tool::here("rig"), "One", Vec::new(), Machine::default());
        let mut row = row("k", "kafka", 100.0);
        row.void_reason = Some("the client was busy".to_owned());
        report.rows = vec![row];
        let text = text(&report);
        assert!(text.contains("~~100~~") && text.contains("**Void**: 1 KiB: the client was busy."));
    }
}
