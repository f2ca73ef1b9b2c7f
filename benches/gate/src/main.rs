//! Counts what a request costs the broker and fails when it costs more than the baseline says.
//!
//! Counts, not times: instructions under valgrind in the simulator, allocations and calls into the
//! kernel on io_uring. They are the same on a busy machine. What each leaves out is said where it is
//! counted, and in the README.

#![forbid(unsafe_code)]

mod baseline;
mod broker_side;
mod client;
mod error;
mod real;
mod shape;
mod simulated;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use crate::baseline::{Baseline, Figure, Unit};
use crate::error::Error;
use crate::shape::{SHAPES, Shape};

/// Where the figures are stored, beside this crate's sources.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.txt");

#[derive(Parser)]
#[command(about = "Counts what a request costs and compares it with a stored baseline")]
struct Cli {
    #[command(subcommand)]
    command: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Counts everything and compares it with the baseline.
    Check {
        /// Stores the figures instead (as UPDATE_BASELINE=1 does).
        #[arg(long)]
        update: bool,
        /// Goes on without instructions if valgrind is not installed.
        #[arg(long)]
        without_valgrind: bool,
        /// Only shapes whose name contains this; nothing is stored then.
        #[arg(long)]
        only: Option<String>,
        /// Where callgrind's files are kept (for callgrind_annotate).
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// Runs shapes in the simulator: what `check` has valgrind run.
    #[command(hide = true)]
    Simulate { shapes: Vec<String> },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Mode::Check { update, without_valgrind, only, keep } => {
            let update = update || std::env::var("UPDATE_BASELINE").is_ok_and(|on| on == "1");
            check(update, without_valgrind, only.as_deref(), keep.as_deref())
        }
        Mode::Simulate { shapes } => {
            let chosen = chosen(|shape| shapes.iter().any(|name| name == shape.name));
            simulated::simulate(&chosen).map(|()| true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(wanted: impl Fn(&Shape) -> bool) -> Vec<Shape> {
    SHAPES.into_iter().filter(wanted).collect()
}

/// Whether nothing grew.
fn check(
    update: bool,
    without_valgrind: bool,
    only: Option<&str>,
    keep: Option<&Path>,
) -> Result<bool, Error> {
    let shapes = chosen(|shape| only.is_none_or(|part| shape.name.contains(part)));
    let valgrind = simulated::valgrind_version();
    if valgrind.is_none() && (!without_valgrind || update) {
        return Err(Error::NoValgrind);
    }
    // Beside the program: a temporary directory may be on a file system without direct I/O.
    let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let scratch = tempfile::tempdir_in(beside).map_err(Error::io("making a scratch directory"))?;
    let figures = count(&shapes, valgrind.is_some(), scratch.path(), keep)?;
    let tools = format!("{}, {}", rustc(), valgrind.as_deref().unwrap_or("no valgrind"));
    let path = Path::new(BASELINE);
    let stored = if path.exists() { Baseline::read(path)? } else { Baseline::default() };
    let verdict = stored.compare(&figures, &tools);
    print!("{}", verdict.table);
    if valgrind.is_none() {
        println!("{}", Error::NoValgrind);
    }
    if update && only.is_none() {
        let text = stored.renewed(&figures, &tools);
        std::fs::write(path, text).map_err(Error::io("storing the baseline"))?;
        println!("stored in {BASELINE}");
        return Ok(true);
    }
    println!("{} passed, {} failed", figures.len() - verdict.failures, verdict.failures);
    Ok(verdict.failures == 0)
}

fn count(
    shapes: &[Shape],
    instructions: bool,
    scratch: &Path,
    keep: Option<&Path>,
) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    if instructions {
        let dir = keep.unwrap_or(scratch);
        for (shape, value) in simulated::count(shapes, dir)? {
            figures.push(Figure { shape, unit: Unit::Instructions, value });
        }
    }
    for shape in shapes {
        let Some(calls) = real::count(shape, scratch)? else { continue };
        let of = |unit, value| Figure { shape: shape.name, unit, value };
        figures.push(of(Unit::Allocations, calls.allocations));
        figures.push(of(Unit::Kilobytes, calls.allocated_bytes.max(0.0) / 1e3));
        figures.push(of(Unit::Enters, calls.enters));
    }
    figures.sort_by_key(|figure| figure.unit);
    Ok(figures)
}

/// The compiler's version, as cargo would use it now.
fn rustc() -> String {
    let ran = Command::new("rustc").arg("--version").output().ok();
    let version = ran.and_then(|ran| String::from_utf8(ran.stdout).ok()).unwrap_or_default();
    let words: Vec<&str> = version.split_whitespace().take(2).collect();
    if words.is_empty() { "rustc unknown".to_owned() } else { words.join(" ") }
}
