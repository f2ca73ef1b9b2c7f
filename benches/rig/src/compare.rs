//! A run: the legs of its plan one after the other, and where their figures go.
//!
//! Results are written after every leg, so that a run that is ended early leaves what it has. A leg
//! that fails is noted in them and the run goes on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use corelane_tests::repository;

use crate::comparison::{self, Conditions};
use crate::comparison_report;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::legs::Leg;
use crate::legs::speed::{Paces, SpeedLeg};
use crate::peers::{Peer, Peers};
use crate::plan::{self, Group, Part, Pass, plan};
use crate::report::{self, Folder};
use crate::results::Results;
use crate::scale::Scale;
use crate::{disk, procfs, summary};

#[derive(Args)]
pub struct CompareArgs {
    /// A short run for a first look
    #[arg(long)]
    quick: bool,
    /// What to measure, several separated by commas
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', default_value = "loads,speed")]
    only: Vec<Group>,
    /// One broker alone, for a look while working at it: no comparison
    #[arg(long, value_name = "BROKER")]
    broker: Option<Contender>,
    /// Other brokers in `speed`; each is installed where it is not yet
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Start nothing new after so many minutes: repetitions come last, so those are left out
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Where the results go [default: benches/results/<date>-<commit>]
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(args: &CompareArgs) -> Result<()> {
    let scale = if args.quick { Scale::quick() } else { Scale::full() };
    let mut conditions = conditions(&scale)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&conditions));
    let mut results = Results::default();
    let started = Instant::now();
    let limit = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (peers, left_out) = Peers::install(&args.peers);
    conditions.left_out = left_out;
    conditions.peers = peers;
    let passes = plan(&args.only, &scale, args.broker, &conditions.peers);
    conditions.order = plan::order(&passes);
    let (mut paces, mut out_of_it) = (Paces::default(), Vec::new());
    for Pass { part, contenders } in passes {
        // Either all brokers are measured or none.
        if limit.is_some_and(|limit| started.elapsed() > limit) {
            eprintln!("out of time: the rest is left out");
            break;
        }
        for who in contenders {
            if out_of_it.contains(&who) {
                continue;
            }
            let before = procfs::load_average();
            let begun = Instant::now();
            let peers = &conditions.peers;
            match measure(who, part, &scale, &mut results, &mut paces, peers) {
                Ok(()) => {}
                // A peer that does not get through has no second try, and spoils no run.
                Err(error) if who.target().is_none() => {
                    eprintln!("rig: {} is left out: {error}", who.name());
                    conditions.left_out.push(format!("{}: {error}", who.name()));
                    out_of_it.push(who);
                }
                Err(error) => results.fail(who, &part.to_string(), &error),
            }
            conditions.legs.push(comparison::LegRun {
                broker: who.name(),
                part: part.to_string(),
                seconds: begun.elapsed().as_secs_f64(),
                load_before: before,
                load_after: procfs::load_average(),
            });
            write_results(&out, &results, &conditions, &scale)?;
        }
    }
    println!("{}", comparison::table(&results, &conditions, &scale));
    eprintln!("written to {}", out.display());
    match results.failures.len() {
        0 => Ok(()),
        count => Err(Error::Usage(format!("{count} measurements failed"))),
    }
}

fn measure(
    who: Contender,
    part: Part,
    scale: &Scale,
    results: &mut Results,
    paces: &mut Paces,
    peers: &Peers,
) -> Result<()> {
    if part == Part::Speed {
        return SpeedLeg { who, scale, results, paces, peers }.run();
    }
    let no_part = || Error::Usage("a peer has no part in that".to_owned());
    let mut leg = Leg { target: who.target().ok_or_else(no_part)?, scale, results };
    match part {
        Part::Speed | Part::Loads => leg.loads(),
        Part::Restart(held) => leg.restart(held),
        Part::Backfill => leg.backfill(),
        Part::Partitions => leg.partitions(),
        Part::Groups => leg.groups(),
        Part::IdleGroups => leg.idle_groups(),
        Part::Transactions => leg.transactions(),
        Part::ProducerIds => leg.producer_ids(),
    }
}

fn write_results(out: &Path, r: &Results, c: &Conditions, scale: &Scale) -> Result<()> {
    let folder = Folder::create(out)?;
    folder.write("table.md", &comparison::table(r, c, scale))?;
    folder.write("summary.md", &summary::table(r))?;
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
        order: String::new(),
        left_out: Vec::new(),
        peers: Peers::default(),
        legs: Vec::new(),
    })
}

/// The first line that a command prints.
fn say(command: &mut Command) -> Result<String> {
    let text = repository::run_quietly(command)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
