//! rust-rdkafka runs the client scenarios of ../README.md with the rdkafka crate. This file owns
//! the command line and the running of scenarios; they are in `scenarios`, what they say to rdkafka
//! in `client`.

mod client;
mod groups;
mod scenarios;
mod txns;

use std::process::{ExitCode, exit};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use client::{Client, Result};
use scenarios::SCENARIOS;

const SCENARIO_LIMIT: Duration = Duration::from_secs(100);

#[derive(Default)]
struct Arguments {
    bootstrap: String,
    only: Option<String>,
    list: bool,
    /// For the program's own use: topic and protocol of a member to be killed.
    member: Option<String>,
}

fn main() -> ExitCode {
    let arguments = arguments().unwrap_or_else(|complaint| {
        eprintln!("rust-rdkafka: {complaint}");
        exit(2);
    });
    if arguments.list {
        SCENARIOS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if let Some((topic, protocol)) = arguments.member.as_deref().and_then(|it| it.split_once(',')) {
        let ended = groups::serve(&arguments.bootstrap, topic, protocol);
        eprintln!("rust-rdkafka: a member ends: {ended:?}");
        return ExitCode::FAILURE;
    }
    let mut failed = 0;
    for (name, body) in SCENARIOS {
        if arguments.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        match run(&arguments.bootstrap, name, body) {
            Ok(()) => println!("ok {name}"),
            Err(reason) => {
                failed += 1;
                println!("not ok {name}: {}", reason.replace('\n', " "));
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments() -> std::result::Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--bootstrap" => parsed.bootstrap = value()?,
            "--only" => parsed.only = Some(value()?),
            "--member" => parsed.member = Some(value()?),
            "--list" => parsed.list = true,
            "--data-dir" => drop(value()?), // no scenario here reads the broker's files
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    if !parsed.list && parsed.bootstrap.is_empty() {
        return Err("--bootstrap HOST:PORT is required".to_owned());
    }
    if let Some(only) = &parsed.only
        && SCENARIOS.iter().all(|(name, _)| name != only)
    {
        return Err(format!("no scenario is called {only}"));
    }
    Ok(parsed)
}

/// Runs one scenario on a thread of its own, so that one that hangs can be given up.
fn run(
    bootstrap: &str,
    name: &'static str,
    body: fn(&Client) -> Result<()>,
) -> std::result::Result<(), String> {
    let began = Instant::now();
    let (done, outcome) = mpsc::channel();
    let bootstrap = bootstrap.to_owned();
    std::thread::spawn(move || {
        let result = Client::open(&bootstrap, name).and_then(|client| body(&client));
        // Nobody listens any more if the scenario was given up.
        let _ = done.send(result.map_err(|error| error.to_string()));
    });
    let result = match outcome.recv_timeout(SCENARIO_LIMIT) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("no end after {SCENARIO_LIMIT:?}")),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("the scenario panicked".to_owned()),
    };
    eprintln!("rust-rdkafka: {name} took {:?}", began.elapsed());
    result
}
