//! The `corelane` program: parses the command line, runs one command, turns its end into an exit
//! code. What a command does is in `cli/`, what the broker process does in `process/`.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod config;
mod error;
mod logging;
mod process;

use std::process::ExitCode;

use clap::Parser as _;

use cli::args::{Arguments, BenchCommand, BenchLine, Command};
use error::{Error, Exit, Result, note, plain, say};

fn main() -> ExitCode {
    end_on_panic();
    let arguments = Arguments::parse();
    let serving = matches!(arguments.command, Command::Serve(_));
    // Nobody waits for the ring of a client command while it computes.
    let default = if serving { "info" } else { "warn,reactor::exec::usage=error" };
    let ended = logging::start(arguments.log.as_deref(), default).and_then(|log| {
        let ended = run(arguments.command);
        // What was logged comes before the reason.
        drop(log);
        ended
    });
    let Err(error) = ended else { return ExitCode::SUCCESS };
    let Some(exit) = error.exit() else { return ExitCode::SUCCESS };
    note(format_args!("corelane: {error}"));
    exit.into()
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(args) => process::serve::run(args),
        Command::Topic(command) => on_a_ring(|| cli::topic::run(command)),
        Command::Group(command) => on_a_ring(|| cli::group::run(command)),
        Command::Txn(command) => on_a_ring(|| cli::txn::run(command)),
        Command::Produce(args) => on_a_ring(|| cli::produce::run(args)),
        Command::Consume(args) => on_a_ring(|| cli::consume::run(args)),
        Command::Import(args) => on_a_ring(|| cli::import::run(args)),
        Command::Dump(args) => on_a_ring(|| cli::dump::run(args)),
        Command::Bench(BenchLine { what: Some(BenchCommand::Disk(args)), .. }) => {
            cli::bench::disk(&args)
        }
        Command::Bench(BenchLine { what: Some(BenchCommand::Report(args)), .. }) => {
            cli::bench_load::report(&args)
        }
        Command::Bench(BenchLine { what: None, load }) => cli::bench_load::run(&load),
        Command::Doctor(args) => cli::doctor::run(&args),
        Command::Tune(args) => cli::tune::run(&args),
        Command::Version => {
            let backends = reactor::Backend::ALL.into_iter().filter(|backend| backend.is_in());
            let backends: Vec<_> = backends.map(reactor::Backend::name).collect();
            let version = env!("CARGO_PKG_VERSION");
            say(&format!("corelane {version}\nbackends {}\n", backends.join(", ")));
            Ok(())
        }
    }
}

/// Client commands need one thread and one ring.
fn on_a_ring<F: Future<Output = Result<()>> + 'static>(main: impl FnOnce() -> F) -> Result<()> {
    let spec = reactor::ShardSpec { name: "main".to_owned(), ..reactor::ShardSpec::default() };
    match reactor::uring::run(&spec, main) {
        Ok(result) => result,
        Err(error) => Err(Error::machine(
            format!("no io_uring here: {}", plain(&error)),
            "`corelane serve --check` says what is missing",
        )),
    }
}

/// A panic on any thread is a fault of the program and ends the whole process at once: half a
/// broker never serves. Nothing acknowledged is lost by that, as by any crash.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let place = info.location().map_or(String::new(), |place| format!(" at {place}"));
        let words = info.payload_as_str().unwrap_or("no reason given");
        let error = Error::internal(format!("fault on thread {name}{place}: {words}"));
        note(format_args!("corelane: {error}; please report it"));
        std::process::exit(i32::from(Exit::Internal.code()));
    }));
}
