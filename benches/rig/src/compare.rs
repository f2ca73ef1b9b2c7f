//! A run: which legs, in which order, and where their figures go.
//!
//! The order lets a drift of the machine hit both brokers: the first pass runs each part on Kafka
//! and then on Corelane, the second pass the other way round and from the last part to the first.
//! Results are written after every leg, so that a run that is ended early leaves what it has. A leg
//! that fails is noted in them and the run goes on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use corelane_tests::{Target, repository};

use crate::comparison::{self, Conditions};
use crate::comparison_report;
use crate::error::{Error, Result};
use crate::legs::Leg;
use crate::legs::restart::Held;
use crate::report::{self, Folder};
use crate::results::Results;
use crate::scale::Scale;
use crate::{disk, procfs};

#[derive(Args)]
pub struct CompareArgs {
    /// A short run for a first look
    #[arg(long)]
    quick: bool,
    /// What to measure, several separated by commas
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', default_value = "loads")]
    only: Vec<Group>,
    /// One broker alone, for a look while working at it: no comparison
    #[arg(long, value_name = "BROKER", value_parser = broker)]
    broker: Option<Target>,
    /// Start nothing new after so many minutes: repetitions come last, so those are left out
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Where the results go [default: benches/results/<date>-<commit>]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Start, produce, consume, latency, memory
    Loads,
    /// Restart with gigabytes and with thousands of partitions, killed and stopped
    Restart,
    /// Latency beside readers of an old log
    Backfill,
    /// Ten partitions and ten thousand
    Partitions,
    /// Consumer groups: joins, rebalances, commits, idle groups and their loading
    Groups,
    /// Transactions, idempotence, a hundred thousand producer ids
    Txn,
}

/// What one leg measures.
#[derive(Debug, Clone, Copy)]
enum Part {
    Loads,
    Restart(Held),
    Backfill,
    Partitions,
    Groups,
    IdleGroups,
    Transactions,
    ProducerIds,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Loads => f.write_str("loads"),
            Part::Restart(held) => write!(f, "restart with {held}"),
            Part::Backfill => f.write_str("backfill readers"),
            Part::Partitions => f.write_str("many partitions"),
            Part::Groups => f.write_str("consumer groups"),
            Part::IdleGroups => f.write_str("idle groups"),
            Part::Transactions => f.write_str("transactions"),
            Part::ProducerIds => f.write_str("producer ids"),
        }
    }
}

pub fn run(args: &CompareArgs) -> Result<()> {
    let scale = if args.quick { Scale::quick() } else { Scale::full() };
    let mut conditions = conditions(&scale)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&conditions));
    let mut results = Results::default();
    let started = Instant::now();
    let limit = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let legs = plan(&args.only, &scale).into_iter();
    let legs = legs.filter(|(target, _)| args.broker.is_none_or(|only| *target == only));
    for (number, (target, part)) in legs.enumerate() {
        // Legs come in pairs: either both brokers are measured or neither.
        if number % 2 == 0 && limit.is_some_and(|limit| started.elapsed() > limit) {
            eprintln!("out of time: the rest is left out");
            break;
        }
        let before = procfs::load_average();
        let begun = Instant::now();
        let mut leg = Leg { target, scale: &scale, results: &mut results };
        let outcome = match part {
            Part::Loads => leg.loads(),
            Part::Restart(held) => leg.restart(held),
            Part::Backfill => leg.backfill(),
            Part::Partitions => leg.partitions(),
            Part::Groups => leg.groups(),
            Part::IdleGroups => leg.idle_groups(),
            Part::Transactions => leg.transactions(),
            Part::ProducerIds => leg.producer_ids(),
        };
        conditions.legs.push(comparison::LegRun {
            broker: target.name(),
            part: part.to_string(),
            seconds: begun.elapsed().as_secs_f64(),
            load_before: before,
            load_after: procfs::load_average(),
        });
        if let Err(error) = outcome {
            results.fail(target, &part.to_string(), &error);
        }
        write_results(&out, &results, &conditions, &scale)?;
    }
    println!("{}", comparison::table(&results, &conditions, &scale));
    eprintln!("written to {}", out.display());
    match results.failures.len() {
        0 => Ok(()),
        count => Err(Error::Usage(format!("{count} measurements failed"))),
    }
}

fn broker(name: &str) -> std::result::Result<Target, String> {
    match name {
        "corelane" => Ok(Target::Corelane),
        "kafka" => Ok(Target::ApacheKafka),
        _ => Err("corelane or kafka".to_owned()),
    }
}

fn plan(groups: &[Group], scale: &Scale) -> Vec<(Target, Part)> {
    let wanted = |group| groups.contains(&group);
    let (mut parts, mut once) = (Vec::new(), Vec::new());
    // What takes longest comes first, so that its repetition is what a time limit leaves out.
    if wanted(Group::Partitions) {
        parts.push(Part::Partitions);
    }
    if wanted(Group::Restart) {
        parts.extend(scale.held.iter().copied().map(Part::Restart));
        once.extend(scale.held_once.iter().copied().map(Part::Restart));
    }
    if wanted(Group::Backfill) {
        parts.push(Part::Backfill);
    }
    if wanted(Group::Groups) {
        parts.extend([Part::Groups, Part::IdleGroups]);
    }
    if wanted(Group::Txn) {
        parts.extend([Part::Transactions, Part::ProducerIds]);
    }
    let (kafka, corelane) = (Target::ApacheKafka, Target::Corelane);
    let mut legs = Vec::new();
    if wanted(Group::Loads) {
        legs.extend([kafka, corelane, corelane, kafka].map(|target| (target, Part::Loads)));
    }
    for &part in parts.iter().chain(&once) {
        legs.extend([(kafka, part), (corelane, part)]);
    }
    if scale.twice {
        for &part in parts.iter().rev() {
            legs.extend([(corelane, part), (kafka, part)]);
        }
    }
    legs
}

fn write_results(out: &Path, r: &Results, c: &Conditions, scale: &Scale) -> Result<()> {
    let folder = Folder::create(out)?;
    folder.write("table.md", &comparison::table(r, c, scale))?;
    folder.write_report(&comparison_report::report(r, c, scale, &data_folder()))
}

/// Where brokers keep their data, or what is nearest to it.
fn data_folder() -> PathBuf {
    let run = std::env::var_os("CORELANE_RUN_DIR").map(PathBuf::from);
    run.unwrap_or_else(repository::root)
}

fn default_folder(conditions: &Conditions) -> PathBuf {
    let name = format!("{}-{}", conditions.date, conditions.commit);
    repository::root().join("benches/results").join(name)
}

fn conditions(scale: &Scale) -> Result<Conditions> {
    let folder = repository::temporary_folder("disk-")?;
    eprintln!("probing the disk");
    disk::drain();
    let ceiling = disk::measure(folder.path(), scale.disk_probe)?;
    let commit = say(Command::new("git").current_dir(repository::root()).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=10",
        "--exclude=*",
    ]))?;
    Ok(Conditions {
        started: report::conditions::now(),
        date: say(Command::new("date").args(["-u", "+%Y-%m-%d"]))?,
        commit,
        machine: procfs::machine(folder.path())?,
        limits: procfs::limits(),
        java: say(Command::new("java").args(["--version"]))?,
        ceiling,
        legs: Vec::new(),
    })
}

/// The first line that a command prints.
fn say(command: &mut Command) -> Result<String> {
    let text = repository::run_quietly(command)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_measured_as_often_on_both_and_the_second_pass_goes_back() {
        let scale = Scale::full();
        let groups =
            [Group::Restart, Group::Backfill, Group::Partitions, Group::Groups, Group::Txn];
        let legs = plan(&groups, &scale);
        let of = |target| legs.iter().filter(|(leg, _)| *leg == target).count();
        let parts = scale.held.len() + 6;
        assert_eq!(of(Target::ApacheKafka), 2 * parts + scale.held_once.len());
        assert_eq!(of(Target::Corelane), of(Target::ApacheKafka));
        let shown: Vec<String> = legs.iter().map(|(_, part)| part.to_string()).collect();
        assert_eq!(shown.first(), shown.last());
        assert_eq!(legs.first().map(|leg| leg.0), legs.last().map(|leg| leg.0));
    }

    #[test]
    fn loads_alone_run_kafka_first_and_last() {
        let legs = plan(&[Group::Loads], &Scale::quick());
        let targets: Vec<Target> = legs.into_iter().map(|(target, _)| target).collect();
        let (kafka, corelane) = (Target::ApacheKafka, Target::Corelane);
        assert_eq!(targets, [kafka, corelane, corelane, kafka]);
    }
}
