//! What was measured as rows of a report, in the format that loads and comparisons share.

use hdrhistogram::Histogram;
use rig::report::{
    Better, Disk, LatencyHistogram, Loop, Machine, Measure, Named, Report, Row, Subject, Tool,
};

use crate::ceiling::{Ceilings, Together};
use crate::facts::Place;
use crate::probe::Figures;

const WRITTEN: &str = "direct write completed; the device's own cache may still hold it";
const SYNCED: &str = "on the device, its cache flushed (RWF_DSYNC)";
const NOTHING: &str = "nothing is written";

/// One disk's part: where it is, what came of it, the emulation's label.
pub struct Part<'a> {
    pub place: &'a Place,
    pub found: &'a Ceilings,
    pub label: Option<&'a str>,
}

/// A report without the rows of brokers.
pub fn report(command: Vec<String>, parts: &[Part<'_>], together: Option<&Together>) -> Report {
    let dirs: Vec<_> = parts.iter().map(|part| part.place.dir.as_path()).collect();
    let mut machine = Machine::here(&dirs);
    for (disk, part) in machine.disks.iter_mut().zip(parts) {
        disk.emulated = part.label.map(str::to_owned);
        // The table of mounts that is read here knows RAID and device mapper as well.
        let known = part.place.disks.first();
        *disk = Disk {
            model: disk.model.take().or_else(|| known?.model.clone()),
            scheduler: disk.scheduler.take().or_else(|| known?.scheduler.clone()),
            write_cache: disk.write_cache.take().or_else(|| known?.write_cache.clone()),
            ..std::mem::take(disk)
        };
    }
    let tool = Tool::here("corelane bench disk");
    let mut report = Report::new(tool, "Disks through Corelane's reactor", command, machine);
    for part in parts {
        report.rows.extend(rows(part));
        let name = format!("file on {}", part.place.dir.display());
        report.conditions.push(Named::new(name, hardware::format_size(part.found.file_bytes)));
        if part.found.stopped {
            report.ended_early = Some("stopped by a signal".to_owned());
        }
    }
    if let Some(together) = together {
        report.rows.extend(together_rows(parts, together));
    }
    report
}

fn rows(part: &Part<'_>) -> Vec<Row> {
    let found = part.found;
    let mut rows = Vec::new();
    let groups = [
        ("sequential write", WRITTEN, &found.sequential_write),
        ("sequential read", NOTHING, &found.sequential_read),
        ("random read", NOTHING, &found.random_read),
    ];
    for (group, durability, cells) in groups {
        rows.extend(cells.iter().map(|cell| row(part, group, durability, cell)));
    }
    for (write, read) in &found.mixed {
        rows.push(row(part, "write beside random reads", WRITTEN, write));
        rows.push(row(part, "random read beside writes", NOTHING, read));
    }
    if let Some(synced) = &found.synced_append {
        rows.push(row(part, "synced overwrite", SYNCED, synced));
    }
    rows
}

fn row(part: &Part<'_>, group: &str, durability: &str, figures: &Figures) -> Row {
    let size = hardware::format_size(figures.request_bytes);
    let dir = part.place.dir.display();
    let title = format!("{size}, {} in flight", figures.depth);
    let id = format!("{dir} {group} {} {}", figures.request_bytes, figures.depth);
    let mut row = Row::new(fit(&id), title, Subject::Disk(dir.to_string()));
    row.group = Some(group.to_owned());
    row.kind = Loop::Closed;
    row.durability = durability.to_owned();
    row.labels = part.label.map(|label| format!("emulated: {label}")).into_iter().collect();
    row.measures = measures(figures);
    row.histograms = vec![kept(&figures.latency)];
    row
}

fn kept(latency: &Histogram<u64>) -> LatencyHistogram {
    LatencyHistogram::of("request latency", latency)
}

fn measures(figures: &Figures) -> Vec<Measure> {
    let one = |name, unit, better, value: f64| Measure::new(name, unit, better, &[value]);
    let all = [
        one("throughput", "MB/s", Better::Higher, figures.megabytes_per_second()),
        one("requests", "1/s", Better::Higher, figures.per_second()),
        one("p50", "µs", Better::Lower, figures.micros(50.0)),
        one("p99", "µs", Better::Lower, figures.micros(99.0)),
        one("p99.9", "µs", Better::Lower, figures.micros(99.9)),
        one("max", "µs", Better::Lower, figures.max_micros()),
        one("core used", "%", Better::Neither, figures.cpu_percent()),
    ];
    all.into_iter().flatten().collect()
}

fn together_rows(parts: &[Part<'_>], together: &Together) -> Vec<Row> {
    let mut rows = Vec::new();
    let kinds = [("alone", &together.alone), ("at the same time", &together.together)];
    for (how, cells) in kinds {
        for (part, cell) in parts.iter().zip(cells) {
            rows.push(row(part, &format!("several disks, {how}"), WRITTEN, cell));
        }
    }
    rows
}

/// Fit for a file name, and of its own kind as long as paths differ in more than signs.
pub fn fit(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    text.chars().map(keep).collect::<String>().trim_matches('-').to_owned()
}
