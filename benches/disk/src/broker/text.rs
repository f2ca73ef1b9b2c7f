//! What the broker made of each disk, as text for a terminal.

use std::fmt::Write as _;

use hardware::format_size;

use super::knee::RULE;
use super::{Closed, OnDisk, SideBySide};
use crate::ceiling::Ceilings;
use crate::facts::Place;
use crate::show::time;

/// Counters of a busier machine hold others' work too.
const COUNTED: &str =
    "device figures are the kernel's counters: all that the disk did meanwhile, whoever asked";

pub fn on_disk_text(
    place: &Place,
    ceilings: &Ceilings,
    found: &[OnDisk],
    label: Option<&str>,
) -> String {
    let mark = label.map_or(String::new(), |label| format!("  [emulated: {label}]"));
    let mut out = format!("\nbroker on {}{mark}\n", place.dir.display());
    for here in found {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "\n {}  ({})", here.promise.name(), here.promise.words());
        for closed in &here.closed {
            closed_lines(&mut out, closed, ceilings.write(), here.shards);
        }
        curve_lines(&mut out, here);
    }
    let _ = writeln!(out, "\n {RULE}\n {COUNTED}");
    out
}

fn closed_lines(out: &mut String, closed: &Closed, ceiling: f64, shards: u16) {
    let Closed { shape, sample, activity } = closed;
    let rate = sample.megabytes_per_second();
    let _ = writeln!(
        out,
        "  {}: {} partitions, {} batches, closed loop: {rate:.0} MB/s, {:.0} % of the disk's {ceiling:.0}; \
         limit: {}",
        shape.name,
        shape.partitions,
        format_size(shape.batch_bytes as u64),
        rate / ceiling * 100.0,
        closed.limit(shards).words()
    );
    if let Some(why) = closed.void(shards) {
        let _ = writeln!(out, "    void: {why}");
    }
    let cores = |cpu: f64| cpu / sample.seconds;
    let _ = writeln!(
        out,
        "    cores: broker {:.2}, client {:.2}, elsewhere {:.2}; broker {:.2} s a GB",
        cores(sample.broker_cpu_seconds),
        cores(sample.client_cpu_seconds),
        sample.other_cores(),
        sample.broker_cpu_per_gigabyte()
    );
    if !activity.known {
        out.push_str("    the kernel has no counters for this disk\n");
        return;
    }
    let per_flush = activity.payload_per_flush(sample.bytes);
    let per_flush = per_flush.map_or("-".to_owned(), |bytes| format_size(bytes as u64));
    let _ = writeln!(
        out,
        "    device: {:.0} MB/s written, {:.0} requests/s of {} on average, busy {:.0} %, {:.0} flushes/s, \
         {per_flush} a flush, {:.2} bytes written a byte of payload",
        activity.megabytes_per_second(),
        activity.requests_per_second,
        format_size(activity.mean_write_bytes as u64),
        activity.busy_percent,
        activity.flushes / activity.seconds,
        activity.amplification(sample.bytes)
    );
}

fn curve_lines(out: &mut String, here: &OnDisk) {
    if here.curve.is_empty() {
        return;
    }
    let _ = writeln!(out, "  latency by load, open loop, 64 KiB batches over 4 partitions");
    let columns = ["MB/s", "p50", "p99", "p99.9", "max", "busy"];
    let _ = writeln!(out, "    {}", columns.map(|name| format!("{name:>9}")).concat());
    for (number, point) in here.curve.iter().enumerate() {
        let load = format!("{:.0}", point.load);
        let knee = if here.knee == Some(number) { "  <- knee" } else { "" };
        let void = point.void.map_or(String::new(), |why| format!("  void: {why}"));
        let Some(latency) = &point.latency else {
            let _ = writeln!(out, "    {load:>9}  fell behind: more than it can take");
            continue;
        };
        let at = |percentile: f64| time(latency.value_at_percentile(percentile) as f64);
        let busy = format!("{:.0} %", point.activity.busy_percent);
        let figures = [load, at(50.0), at(99.0), at(99.9), time(latency.max() as f64), busy];
        let line = figures.map(|figure| format!("{figure:>9}")).concat();
        let _ = writeln!(out, "    {line}{knee}{void}");
    }
    if here.knee.is_none() {
        out.push_str("    no knee: not even the lowest load holds, or it is void\n");
    }
}

pub fn side_by_side_text(found: &SideBySide, label: Option<&str>) -> String {
    let mark = label.map_or(String::new(), |label| format!("  [emulated: {label}]"));
    let mut out = format!("\nbrokers side by side, large batches, default durability{mark}\n");
    for ((dir, alone), together) in found.dirs.iter().zip(&found.alone).zip(&found.together) {
        let part = together / alone * 100.0;
        let dir = dir.display();
        let _ = writeln!(
            out,
            "  {dir}: {alone:.0} MB/s alone, {together:.0} MB/s together ({part:.0} %)"
        );
    }
    let _ = writeln!(
        out,
        "  all: {:.0} MB/s, {:.2} of the sum of each alone; skew {:.2}; brokers and clients share the \
         machine's cores",
        found.together.iter().sum::<f64>(),
        found.scaling(),
        found.skew()
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::{LARGE, Point, Promise};
    use super::*;
    use crate::device::Activity;
    use hdrhistogram::Histogram;
    use rig::sample::Sample;

    #[test]
    fn every_figure_that_is_promised_is_there() {
        let sample = Sample {
            seconds: 2.0,
            records: 2e6,
            bytes: 1e9,
            broker_cpu_seconds: 1.9,
            client_cpu_seconds: 1.0,
            other_cpu_seconds: 0.5,
            device: None,
        };
        let activity = Activity {
            known: true,
            written_bytes: 1.1e9,
            writes: 2000.0,
            requests_per_second: 1000.0,
            mean_write_bytes: 550_000.0,
            busy_percent: 97.0,
            flushes: 100.0,
            seconds: 2.0,
            read_bytes: 0.0,
        };
        let mut latency: Histogram<u64> = Histogram::new(3).unwrap();
        latency.record(2_500).unwrap();
        let closed = Closed { shape: LARGE, sample, activity };
        let here = OnDisk {
            promise: Promise::Synced,
            shards: 1,
            closed: vec![closed],
            curve: vec![
                Point {
                    load: 100.0,
                    latency: Some(latency),
                    activity,
                    client_cores: 0.5,
                    void: None,
                },
                Point { load: 900.0, latency: None, activity, client_cores: 0.5, void: None },
            ],
            knee: Some(0),
        };
        let mut out = String::new();
        closed_lines(&mut out, &here.closed[0], 1000.0, 1);
        curve_lines(&mut out, &here);
        for words in [
            "500 MB/s, 50 % of the disk's 1000; limit: the broker's core",
            "device: 550 MB/s written",
            "1000 requests/s of 537.1 KiB",
            "50 flushes/s, 9.5 MiB a flush, 1.10 bytes written a byte of payload",
            "<- knee",
            "fell behind",
            "2.5 ms",
        ] {
            assert!(out.contains(words), "{words}\n{out}");
        }
    }
}
