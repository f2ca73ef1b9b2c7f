//! The log: lines to stderr that never hold up a shard.
//!
//! Owns a thread that writes and a bounded queue to it. When stderr is slower than the log, lines
//! are dropped and counted rather than waited for. The guard writes out what is queued at the end.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::error::{Error, Result};

/// Lines on their way to stderr.
const QUEUE_LINES: usize = 4096;
/// How long the end of the process waits for a slow stderr.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// Starts the log. `level` wins over RUST_LOG, which wins over `default`.
pub fn start(level: Option<&str>, default: &str) -> Result<Guard> {
    let from_env = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let text = level.map(str::to_owned).or(from_env).unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&text).map_err(|_| {
        let what = format!("`{text}` is not a log level");
        Error::config(
            what,
            "use error, warn, info, debug, trace or a filter such as info,broker=debug",
        )
    })?;
    let (sender, receiver) = sync_channel(QUEUE_LINES);
    let thread = std::thread::Builder::new().name("log".to_owned());
    thread
        .spawn(move || write_out(&receiver))
        .map_err(|error| Error::machine(format!("cannot start a thread: {error}"), ""))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_thread_names(true)
        .with_writer(Queue(sender.clone()))
        .init();
    Ok(Guard(sender))
}

/// Writes what is queued when it is dropped.
pub struct Guard(SyncSender<Message>);

impl Drop for Guard {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        // A full queue or a dead thread means that stderr is lost; the exit code still tells.
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_WAIT);
        }
    }
}

fn write_out(receiver: &Receiver<Message>) {
    let mut stderr = io::stderr();
    // Nothing can be done about a broken stderr, least of all logged.
    for message in receiver {
        match message {
            Message::Line(line) => {
                let _ = stderr.write_all(&line);
            }
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let _ = writeln!(stderr, "{dropped} log lines dropped: stderr is too slow");
        }
    }
}

#[derive(Clone)]
struct Queue(SyncSender<Message>);

impl Write for Queue {
    /// The formatter hands over one whole line a call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.try_send(Message::Line(line.to_vec())).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Queue {
        self.clone()
    }
}
