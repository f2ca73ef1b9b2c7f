//! What was measured, as text for a terminal.

use std::fmt::Write as _;

use hardware::format_size;

use crate::ceiling::{Ceilings, Together};
use crate::facts::Place;
use crate::probe::Figures;

/// `label` says of an emulated disk that it is one.
pub fn ceilings_text(place: &Place, found: &Ceilings, label: Option<&str>) -> String {
    let mut out = String::new();
    let mark = label.map_or(String::new(), |label| format!("  [emulated: {label}]"));
    // Writing into a String cannot fail.
    let _ = writeln!(out, "{}{mark}", place.words());
    let _ = writeln!(out, "file {}, written in full before", format_size(found.file_bytes));
    table(&mut out, "sequential write", &found.sequential_write);
    table(&mut out, "sequential read", &found.sequential_read);
    table(&mut out, "random read", &found.random_read);
    for (write, read) in &found.mixed {
        let size = format_size(write.request_bytes);
        let _ = writeln!(
            out,
            "{size} writes and random reads, {} each: write {}, p99 {}; read {}, p99 {}",
            write.depth,
            rate(write),
            time(write.micros(99.0)),
            rate(read),
            time(read.micros(99.0))
        );
    }
    if let Some(synced) = &found.synced_append {
        let percentiles = [50.0, 90.0, 99.0, 99.9, 99.99]
            .map(|percentile| format!("p{percentile} {}", time(synced.micros(percentile))));
        let _ = writeln!(
            out,
            "{} overwrites, each synced: {:.0} a second; {}, max {}",
            format_size(synced.request_bytes),
            synced.per_second(),
            percentiles.join(", "),
            time(synced.max_micros())
        );
    }
    let (write, read) = (found.write(), found.read());
    let _ = writeln!(out, "ceiling{mark}: write {write:.0} MB/s, read {read:.0} MB/s");
    if found.stopped {
        let _ = writeln!(out, "stopped by a signal: the rest was not measured");
    }
    out
}

/// MB/s and the p99, a line for each size and a column for each depth. A star: the asking thread
/// used its core up, so the core may be the limit.
fn table(out: &mut String, name: &str, figures: &[Figures]) {
    const WIDTH: usize = 17;
    let mut sizes: Vec<u64> = figures.iter().map(|cell| cell.request_bytes).collect();
    sizes.dedup();
    if sizes.is_empty() {
        return;
    }
    let of = |size: u64| figures.iter().filter(move |cell| cell.request_bytes == size);
    let _ = write!(out, "\n{name}, MB/s and p99 at depth\n{:>10}", "");
    for cell in of(sizes[0]) {
        let _ = write!(out, "{:>WIDTH$}", cell.depth);
    }
    for size in sizes {
        let _ = write!(out, "\n{:>10}", format_size(size));
        for cell in of(size) {
            let star = if cell.cpu_percent() >= BUSY_PERCENT { "*" } else { "" };
            let p99 = time(cell.micros(99.0));
            let text = format!("{:.0}{star} {p99}", cell.megabytes_per_second());
            let _ = write!(out, "{text:>WIDTH$}");
        }
    }
    out.push('\n');
}

/// A core that is as busy as this does nothing else.
pub const BUSY_PERCENT: f64 = 90.0;

fn rate(figures: &Figures) -> String {
    format!("{:.0} MB/s", figures.megabytes_per_second())
}

pub fn time(micros: f64) -> String {
    match micros {
        _ if micros >= 1e6 => format!("{:.1} s", micros / 1e6),
        _ if micros >= 1e4 => format!("{:.0} ms", micros / 1e3),
        _ if micros >= 1e3 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{micros:.0} µs"),
    }
}

pub fn together_text(places: &[Place], found: &Together, label: Option<&str>) -> String {
    let mark = label.map_or(String::new(), |label| format!("  [emulated: {label}]"));
    let mut out = format!("\nsequential write of 1 MiB, alone and at the same time{mark}\n");
    for ((place, alone), together) in places.iter().zip(&found.alone).zip(&found.together) {
        let part = together.megabytes_per_second() / alone.megabytes_per_second() * 100.0;
        let _ = writeln!(
            out,
            "  {}: {} alone, {} together ({part:.0} %)",
            place.dir.display(),
            rate(alone),
            rate(together)
        );
    }
    let _ = writeln!(
        out,
        "  all: {:.0} MB/s, {:.2} of the sum of each alone; skew {:.2} (1.00: all alike)",
        found.together_sum(),
        found.scaling(),
        found.skew()
    );
    let shared = places.iter().enumerate().any(|(number, place)| {
        places.iter().skip(number + 1).any(|other| place.shares_disk_with(other))
    });
    if shared {
        out.push_str(
            "  directories that share a disk share its speed: no scaling is to be seen here\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(bytes: u64, depth: u32, cpu_seconds: f64) -> Figures {
        let mut latency = rig::report::histogram::new();
        latency.saturating_record(150_000);
        Figures { request_bytes: bytes, depth, seconds: 1.0, requests: 1000, cpu_seconds, latency }
    }

    #[test]
    fn a_table_has_a_line_for_each_size_and_stars_for_busy_cores() {
        let mut out = String::new();
        let cells = [
            figures(4096, 1, 0.1),
            figures(4096, 8, 0.95),
            figures(1 << 20, 1, 0.1),
            figures(1 << 20, 8, 0.1),
        ];
        table(&mut out, "sequential write", &cells);
        let lines: Vec<&str> = out.trim().lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["1", "8"]);
        assert!(lines[2].contains("4 KiB") && lines[2].contains("4* 150 µs"), "{}", lines[2]);
        assert!(lines[3].contains("1 MiB") && lines[3].contains("1049 150 µs"), "{}", lines[3]);
    }

    #[test]
    fn scaling_and_skew() {
        let mut slow = figures(1 << 20, 8, 0.1);
        slow.requests = 500;
        let found = Together {
            dirs: Vec::new(),
            alone: vec![figures(1 << 20, 8, 0.1), figures(1 << 20, 8, 0.1)],
            together: vec![figures(1 << 20, 8, 0.1), slow],
        };
        assert!((found.scaling() - 0.75).abs() < 1e-9);
        assert!((found.skew() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn times_read_well() {
        let table = [(12.3, "12 µs"), (1234.0, "1.2 ms"), (45_000.0, "45 ms"), (2.5e6, "2.5 s")];
        for (micros, text) in table {
            assert_eq!(time(micros), text);
        }
    }
}
