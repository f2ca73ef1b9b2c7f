//! The load rig: measures Corelane beside Apache Kafka, or puts a load on a broker that runs.
//!
//! A client, not a broker: plain threads and blocking sockets, loopback only. Every load is bounded
//! in time or volume. It asserts nothing about speed; it writes down what it saw.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use rig::compare::CompareArgs;
use rig::error::Result;
use rig::groups::{Group, commits};
use rig::payload::Batch;
use rig::report::pages::{self, PagesArgs};
use rig::sample::{Sample, Windows};
use rig::variants::VariantsArgs;
use rig::{cluster, compare, consume, latency, produce, scale, variants};

/// Load for a Kafka broker, and the comparison of Corelane with Apache Kafka.
///
/// Example: rig compare --quick
#[derive(Parser)]
#[command(name = "rig", version)]
struct Arguments {
    #[command(subcommand)]
    command: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Measure both brokers, print the table, write table.md and report.json
    Compare(CompareArgs),
    /// Measure Corelane beside itself with other flags: backends, busy polling
    Variants(VariantsArgs),
    /// Put one load on a broker that already runs, for instance under a profiler
    Load(LoadArgs),
    /// Make the pages of a report.json again, HTML and Markdown
    Report(PagesArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Produce,
    Consume,
    /// Open-loop produce at a fixed rate
    Latency,
    /// Offset commits, a group a connection, each for all partitions
    Commits,
}

#[derive(Args)]
struct LoadArgs {
    kind: Kind,
    /// The broker, HOST:PORT on this machine
    #[arg(long, default_value = "127.0.0.1:9092")]
    at: SocketAddr,
    /// The broker's process, for its processor time [default: this client's own]
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    #[arg(long, default_value_t = 16 << 10)]
    batch_bytes: usize,
    #[arg(long, default_value_t = 12)]
    partitions: i32,
    #[arg(long, default_value_t = scale::CONNECTIONS)]
    connections: usize,
    #[arg(long, default_value_t = scale::IN_FLIGHT)]
    in_flight: usize,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// What `consume` writes first, then reads over and over
    #[arg(long, default_value_t = 128)]
    mebibytes: u64,
    /// Requests a second of `latency`, over all connections
    #[arg(long, default_value_t = 400.0)]
    rate: f64,
    /// flush.messages=1
    #[arg(long)]
    synced: bool,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Step::Compare(args) => compare::run(&args),
        Step::Variants(args) => variants::run(&args),
        Step::Load(args) => put_load(&args),
        Step::Report(args) => make_pages(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rig: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_pages(args: &PagesArgs) -> Result<()> {
    for path in pages::write(args)? {
        println!("{}", path.display());
    }
    Ok(())
}

fn put_load(args: &LoadArgs) -> Result<()> {
    let configs: &[_] = if args.synced { &[("flush.messages", "1")] } else { &[] };
    let name = format!("rig-load-{}", std::process::id());
    let topic = cluster::create(args.at, &name, args.partitions, configs)?;
    consume::await_readable(&topic)?;
    let batch = Batch::build(args.record_bytes, args.batch_bytes)?;
    let broker = args.pid.unwrap_or_else(std::process::id);
    let length = Duration::from_secs(1);
    let count = usize::try_from(args.seconds).unwrap_or(usize::MAX);
    let windows = Windows { warmup: Duration::from_millis(500), length, count };
    let connections = args.connections;
    let load =
        produce::Load { topic: &topic, batch: &batch, connections, in_flight: args.in_flight };
    let samples = match args.kind {
        Kind::Latency => {
            let histogram = latency::run(&latency::Load {
                topic: &topic,
                batch: &batch,
                connections,
                requests_per_second: args.rate,
                warmup: windows.warmup,
                length: length * count as u32,
            })?;
            for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
                let micros = histogram.value_at_quantile(quantile);
                println!("{:5.1} % within {micros} µs", quantile * 100.0);
            }
            Vec::new()
        }
        Kind::Commits => {
            let names = (0..connections).map(|number| format!("{name}-{number}"));
            let groups: Result<Vec<_>> =
                names.map(|name| Group::find(args.at, &name, &topic)).collect();
            let load =
                commits::Load { groups: &groups?, member: None, partitions: args.partitions };
            commits::run_windows(&load, broker, &windows)?
        }
        Kind::Produce => produce::run_windows(&load, broker, &windows)?,
        Kind::Consume => {
            let batches = produce::run_volume(&load, args.mebibytes << 20)?;
            let load = consume::Load {
                topic: &topic,
                connections,
                records_a_partition: i64::try_from(batches * batch.records).unwrap_or(i64::MAX),
                record_bytes: batch.value_bytes / batch.records,
            };
            consume::run_windows(&load, broker, &windows)?
        }
    };
    match args.kind {
        Kind::Commits => samples.iter().for_each(print_commits),
        _ => samples.iter().for_each(print),
    }
    cluster::delete(args.at, &topic)
}

fn print_commits(sample: &Sample) {
    println!(
        "{:.0} commits/s, broker {:.1} CPU µs each, {:.2} cores busy elsewhere",
        sample.records_per_second(),
        sample.broker_cpu_seconds * 1e6 / sample.records,
        sample.other_cores(),
    );
}

fn print(sample: &Sample) {
    println!(
        "{:.0} MB/s, {:.0} records/s, broker {:.2} CPU s/GB, client {:.2} CPU s/GB, {:.2} cores busy elsewhere",
        sample.megabytes_per_second(),
        sample.records_per_second(),
        sample.broker_cpu_per_gigabyte(),
        sample.client_cpu_per_gigabyte(),
        sample.other_cores(),
    );
}
