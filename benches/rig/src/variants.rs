//! Two ways to run Corelane beside each other: the same binary, other flags, A B B A.
//!
//! For backends (`--backend glommio`) and busy polling (`--poll`). Every leg starts on an empty directory.
//! What is written down is each figure of each window and, as the result, medians and their ratio.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use corelane_tests::{Broker, Target, repository};
use serde_json::json;

use crate::cluster::{self, Topic};
use crate::error::{Error, Result};
use crate::legs::{self, MEMORY};
use crate::payload::Batch;
use crate::report::row::{median, number};
use crate::sample::{Mark, Progress, Sample, Windows};
use crate::scale::{CONNECTIONS, IN_FLIGHT, Scale, Workload};
use crate::{consume, disk, latency, procfs, produce};

#[derive(Debug, Args)]
pub struct VariantsArgs {
    /// What is compared
    of: Pair,
    /// Short windows, for a first look
    #[arg(long)]
    quick: bool,
    /// Shards of the broker [default: one for each core; of `poll` one]
    #[arg(long)]
    shards: Option<u16>,
    /// A word on the conditions, for the head of the table
    #[arg(long, default_value = "nothing else running")]
    note: String,
    /// Where the results go [default: benches/results/<date>-<commit>-<what>]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pair {
    /// The ring of our own, and glommio
    Backends,
    /// Shards that sleep when idle, and shards that spin for 100 µs first
    Poll,
}

struct Variant {
    name: &'static str,
    flags: &'static [&'static str],
}

impl Pair {
    fn name(self) -> &'static str {
        match self {
            Pair::Backends => "backends",
            Pair::Poll => "poll",
        }
    }

    fn variants(self) -> [Variant; 2] {
        match self {
            Pair::Backends => [
                Variant { name: "uring", flags: &["--backend=uring"] },
                Variant { name: "glommio", flags: &["--backend=glommio"] },
            ],
            Pair::Poll => [
                Variant { name: "sleeping", flags: &[] },
                Variant { name: "--poll 100", flags: &["--poll=100"] },
            ],
        }
    }
}

/// How long everything takes.
struct Lengths {
    idle: Duration,
    exercise: Duration,
    windows: Windows,
    hot_bytes: u64,
    one_at_a_time: Duration,
    open_loop: Duration,
}

impl Lengths {
    fn of(quick: bool) -> Self {
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        if quick {
            return Lengths {
                idle: s(2),
                exercise: s(1),
                windows: Windows { warmup: ms(500), length: s(1), count: 2 },
                hot_bytes: 64 << 20,
                one_at_a_time: s(2),
                open_loop: s(3),
            };
        }
        Lengths {
            idle: s(5),
            exercise: s(3),
            windows: Windows { warmup: s(1), length: s(2), count: 4 },
            hot_bytes: 128 << 20,
            one_at_a_time: s(8),
            open_loop: s(15),
        }
    }
}

/// One figure of one row: of each variant, every value that was measured.
struct Line {
    row: String,
    measure: &'static str,
    values: [Vec<f64>; 2],
}

#[derive(Default)]
struct Figures(Vec<Line>);

impl Figures {
    fn add(&mut self, variant: usize, row: &str, measure: &'static str, value: f64) {
        let is_it = |line: &&mut Line| line.row == row && line.measure == measure;
        if let Some(line) = self.0.iter_mut().find(is_it) {
            line.values[variant].push(value);
            return;
        }
        let mut values = [Vec::new(), Vec::new()];
        values[variant].push(value);
        self.0.push(Line { row: row.to_owned(), measure, values });
    }

    fn add_samples(&mut self, variant: usize, row: &str, samples: &[Sample]) {
        for sample in samples {
            self.add(variant, row, "MB/s", sample.megabytes_per_second());
            self.add(variant, row, "broker CPU s/GB", sample.broker_cpu_per_gigabyte());
            self.add(variant, row, "cores busy elsewhere", sample.other_cores());
        }
    }
}

pub fn run(args: &VariantsArgs) -> Result<()> {
    let lengths = Lengths::of(args.quick);
    let variants = args.of.variants();
    let mut figures = Figures::default();
    let (date, commit) = date_and_commit()?;
    let folder = format!("benches/results/{date}-{commit}-{}", args.of.name());
    let out = args.out.clone().unwrap_or_else(|| repository::root().join(folder));
    let mut head = head(args, &date, &commit)?;
    // The order lets a drift of the machine hit both.
    for number in [0, 1, 1, 0] {
        let variant = &variants[number];
        eprintln!("{}: load average {}", variant.name, procfs::load_average());
        let _ =
            writeln!(head, "- {}: load average before {}", variant.name, procfs::load_average());
        leg(args, variant, number, &lengths, &mut figures)?;
        write(&out, args.of, &variants, &figures, &head)?;
    }
    println!("{}", table(&variants, &figures, &head));
    eprintln!("written to {}", out.display());
    Ok(())
}

fn leg(
    args: &VariantsArgs,
    variant: &Variant,
    number: usize,
    lengths: &Lengths,
    figures: &mut Figures,
) -> Result<()> {
    let mut options = legs::options(Target::Corelane, MEMORY);
    options.flags.extend(variant.flags.iter().map(|flag| (*flag).to_owned()));
    if args.of == Pair::Poll {
        options.shards = 1;
    }
    options.shards = args.shards.unwrap_or(options.shards);
    disk::drain();
    let mut broker = Broker::start_new(options)?;
    let mut at_work = AtWork { broker: &mut broker, number, lengths, figures };
    let outcome = at_work.steps();
    if outcome.is_err() {
        eprintln!("the end of the log of {}:\n{}", variant.name, broker.log_tail());
    }
    outcome
}

/// One variant in one leg.
struct AtWork<'a> {
    broker: &'a mut Broker,
    number: usize,
    lengths: &'a Lengths,
    figures: &'a mut Figures,
}

impl AtWork<'_> {
    fn steps(&mut self) -> Result<()> {
        self.idle()?;
        let usual = Scale::usual();
        let (warmup, length) = (self.lengths.exercise, Duration::ZERO);
        self.produce(&usual, &Windows { warmup, length, count: 0 })?;
        for synced in [false, true] {
            for batch_bytes in [16 << 10, 256 << 10] {
                let workload = Workload { batch_bytes, synced, ..usual };
                self.produce(&workload, &self.lengths.windows.clone())?;
            }
        }
        self.fetch(&usual)?;
        for synced in [false, true] {
            self.one_at_a_time(synced)?;
        }
        self.open_loop(&usual)?;
        self.broker.stop().map(drop).map_err(Into::into)
    }

    fn pid(&self) -> Result<u32> {
        legs::pid(self.broker)
    }

    fn spent(&self, from: &Mark) -> Result<Sample> {
        Ok(from.until(&Mark::now(&Progress::default(), self.pid()?)?))
    }

    fn mark(&self) -> Result<Mark> {
        Mark::now(&Progress::default(), self.pid()?)
    }

    fn add(&mut self, row: &str, measure: &'static str, value: f64) {
        self.figures.add(self.number, row, measure, value);
    }

    fn idle(&mut self) -> Result<()> {
        thread::sleep(Duration::from_secs(1));
        let from = self.mark()?;
        thread::sleep(self.lengths.idle);
        let spent = self.spent(&from)?;
        let row = "idle, no connection";
        self.add(row, "broker CPU, % of a core", spent.broker_cpu_seconds / spent.seconds * 100.0);
        Ok(())
    }

    fn produce(&mut self, workload: &Workload, windows: &Windows) -> Result<()> {
        disk::drain();
        let topic = self.create("produce", workload)?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let load = produce::Load {
            topic: &topic,
            batch: &batch,
            connections: CONNECTIONS,
            in_flight: IN_FLIGHT,
        };
        let samples = produce::run_windows(&load, self.pid()?, windows)?;
        let row = format!("produce{}; {}", synced_word(workload.synced), workload.title());
        self.figures.add_samples(self.number, &row, &samples);
        legs::delete(self.broker, &topic)
    }

    fn fetch(&mut self, workload: &Workload) -> Result<()> {
        disk::drain();
        let topic = self.create("fetch", workload)?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let load = produce::Load {
            topic: &topic,
            batch: &batch,
            connections: CONNECTIONS,
            in_flight: IN_FLIGHT,
        };
        let batches = produce::run_volume(&load, self.lengths.hot_bytes)?;
        let reading = consume::Load {
            topic: &topic,
            connections: CONNECTIONS,
            records_a_partition: i64::try_from(batches * batch.records).unwrap_or(i64::MAX),
            record_bytes: batch.value_bytes / batch.records,
        };
        let samples = consume::run_windows(&reading, self.pid()?, &self.lengths.windows)?;
        let row = format!("fetch what was just written; {}", workload.title());
        self.figures.add_samples(self.number, &row, &samples);
        legs::delete(self.broker, &topic)
    }

    /// One connection, one request on the way, closed loop.
    fn one_at_a_time(&mut self, synced: bool) -> Result<()> {
        disk::drain();
        let workload = Workload { record_bytes: 1024, batch_bytes: 1024, partitions: 1, synced };
        let topic = self.create("one", &workload)?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let load = produce::Load { topic: &topic, batch: &batch, connections: 1, in_flight: 1 };
        produce::one_at_a_time(&load, self.lengths.exercise)?;
        let from = self.mark()?;
        let histogram = produce::one_at_a_time(&load, self.lengths.one_at_a_time)?;
        let spent = self.spent(&from)?;
        let requests = histogram.len() as f64;
        let row = format!("produce{}, one request at a time; 1 KiB", synced_word(synced));
        self.add(&row, "p50 µs", histogram.value_at_quantile(0.5) as f64 / 1e3);
        self.add(&row, "p99 µs", histogram.value_at_quantile(0.99) as f64 / 1e3);
        self.add(&row, "requests/s", requests / spent.seconds);
        self.add(&row, "broker CPU µs each", spent.broker_cpu_seconds * 1e6 / requests);
        self.add(&row, "broker CPU, % of a core", spent.broker_cpu_seconds / spent.seconds * 100.0);
        self.add(&row, "cores busy elsewhere", spent.other_cores());
        legs::delete(self.broker, &topic)
    }

    fn open_loop(&mut self, workload: &Workload) -> Result<()> {
        disk::drain();
        let topic = self.create("latency", workload)?;
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        let from = self.mark()?;
        let rate = 400.0;
        let histogram = latency::run(&latency::Load {
            topic: &topic,
            batch: &batch,
            connections: CONNECTIONS,
            requests_per_second: rate,
            warmup: self.lengths.exercise,
            length: self.lengths.open_loop,
        })?;
        let spent = self.spent(&from)?;
        let row = format!("produce, open loop, {rate} requests/s; {}", workload.title());
        for (measure, quantile) in [("p50 µs", 0.5), ("p99 µs", 0.99), ("p99.9 µs", 0.999)] {
            self.add(&row, measure, histogram.value_at_quantile(quantile) as f64);
        }
        self.add(&row, "broker CPU, % of a core", spent.broker_cpu_seconds / spent.seconds * 100.0);
        self.add(&row, "cores busy elsewhere", spent.other_cores());
        legs::delete(self.broker, &topic)
    }

    fn create(&self, what: &str, workload: &Workload) -> Result<Topic> {
        let configs: &[_] = if workload.synced { &[("flush.messages", "1")] } else { &[] };
        let name = format!("{what}-{}", workload.name());
        let topic = cluster::create(self.broker.address(), &name, workload.partitions, configs)?;
        consume::await_readable(&topic)?;
        Ok(topic)
    }
}

fn synced_word(synced: bool) -> &'static str {
    if synced { ", every batch synced" } else { "" }
}

fn head(args: &VariantsArgs, date: &str, commit: &str) -> Result<String> {
    let folder = repository::temporary_folder("disk-")?;
    let machine = procfs::machine(folder.path())?;
    let length = if args.quick { "short" } else { "full" };
    let mut head = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(head, "- {date}, commit {commit}, {length} legs; {}", args.note);
    let _ = writeln!(
        head,
        "- {}, {} cores, Linux {}, {}",
        machine.processor, machine.cores, machine.kernel, machine.file_system
    );
    Ok(head)
}

fn table(variants: &[Variant; 2], figures: &Figures, head: &str) -> String {
    let [a, b] = variants;
    let mut text = format!("# {} and {}\n\n{head}\n", a.name, b.name);
    let _ = writeln!(
        text,
        "Medians over all windows of both legs (lowest–highest); the last column is {} over {}.\n",
        b.name, a.name
    );
    let _ = writeln!(text, "| load | measure | {} | {} | ratio |", a.name, b.name);
    text.push_str("|---|---|---:|---:|---:|\n");
    for Line { row, measure, values: [of_a, of_b] } in &figures.0 {
        let ratio = match (median(of_a), median(of_b)) {
            (Some(a), Some(b)) if a > 0.0 => format!("{:.2}", b / a),
            _ => "-".to_owned(),
        };
        let (of_a, of_b) = (spread(of_a), spread(of_b));
        let _ = writeln!(text, "| {row} | {measure} | {of_a} | {of_b} | {ratio} |");
    }
    text
}

fn spread(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("**{}** ({}–{})", number(middle), number(lowest), number(highest))
}

fn write(
    out: &Path,
    of: Pair,
    variants: &[Variant; 2],
    figures: &Figures,
    head: &str,
) -> Result<()> {
    let put = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
    };
    std::fs::create_dir_all(out).map_err(Error::io(format!("create {}", out.display())))?;
    put(&format!("{}.md", of.name()), &table(variants, figures, head))?;
    let lines = figures.0.iter().map(|line| {
        json!({
            "row": line.row,
            "measure": line.measure,
            (variants[0].name): line.values[0],
            (variants[1].name): line.values[1],
        })
    });
    let all = json!({ "conditions": head.lines().collect::<Vec<_>>(), "lines": lines.collect::<Vec<_>>() });
    put(&format!("{}.json", of.name()), &format!("{all:#}\n"))
}

fn date_and_commit() -> Result<(String, String)> {
    let say = |command: &mut Command| -> Result<String> {
        let text = repository::run_quietly(command)?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let commit = ["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"];
    Ok((
        say(Command::new("date").args(["-u", "+%Y-%m-%d"]))?,
        say(Command::new("git").current_dir(repository::root()).args(commit))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_both_and_their_ratio() {
        let mut figures = Figures::default();
        for (variant, value) in [(0, 10.0), (1, 30.0), (1, 20.0), (0, 10.0)] {
            figures.add(variant, "load", "MB/s", value);
        }
        let text = table(&Pair::Backends.variants(), &figures, "- here\n");
        assert!(
            text.contains("| load | MB/s | **10.0** (10.0–10.0) | **25.0** (20.0–30.0) | 2.50 |")
        );
    }
}
