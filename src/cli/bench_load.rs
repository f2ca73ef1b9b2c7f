//! `corelane bench` without a further word, and `corelane bench report`: hands over to the load tool
//! (`benches/rig`), and turns Ctrl-C into its wish to end.
//!
//! Lives on the main thread; one more thread waits for signals on a ring of its own. Without
//! io_uring the tool works as well, but Ctrl-C then ends it without a report.

use std::sync::atomic::{AtomicBool, Ordering};

use rig::bench::{self, BenchArgs};
use rig::report::pages::{self, PagesArgs};

use crate::error::{Error, Exit, Result, note, say};

static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(args: &BenchArgs) -> Result<()> {
    if args.list {
        say(&bench::list().map_err(refused)?);
        return Ok(());
    }
    listen_for_signals();
    let command = std::env::args().collect();
    let done = bench::run(args, command, &STOP).map_err(refused)?;
    say(&done.text);
    note(format_args!("written to {}", done.folder.display()));
    let what = match (done.failures, done.ended_early) {
        (0, false) => return Ok(()),
        (0, true) => "ended early".to_owned(),
        (count, _) => format!("{count} measurements failed"),
    };
    Err(Error::refused(what, "the report says what there is"))
}

/// Pages of a report that was written before.
pub fn report(args: &PagesArgs) -> Result<()> {
    for path in pages::write(args).map_err(refused)? {
        note(format_args!("written to {}", path.display()));
    }
    Ok(())
}

/// The first signal has the report written, the second one ends at once.
fn listen_for_signals() {
    let wait = || async {
        while reactor::signal::termination().await.is_ok() {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
        }
    };
    let listen = move || {
        let spec =
            reactor::ShardSpec { name: "signals".to_owned(), ..reactor::ShardSpec::default() };
        // Only the report of a run that is ended by hand is lost without it.
        let _ = reactor::uring::run(&spec, wait);
    };
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
}

fn refused(error: rig::error::Error) -> Error {
    match error {
        rig::error::Error::Usage(what) => Error::config(what, ""),
        rig::error::Error::Io { .. } | rig::error::Error::Closed => Error::unreachable(error, ""),
        other => Error::refused(other, ""),
    }
}
