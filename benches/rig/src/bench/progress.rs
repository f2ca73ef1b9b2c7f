//! The line that shows how a load goes, while it goes; only where stderr is a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::measure::{Live, Window};
use super::workload::Workload;
use crate::report::row::number;

const EVERY: Duration = Duration::from_millis(500);
const BAR: usize = 20;

#[derive(Debug)]
pub struct Progress {
    shown: bool,
    what: String,
    last: Instant,
    /// Records and bytes that were acknowledged, and read, when it was shown last.
    before: [u64; 4],
    wrote: bool,
}

impl Progress {
    pub fn new() -> Self {
        let shown = std::io::stderr().is_terminal();
        Progress { shown, what: String::new(), last: Instant::now(), before: [0; 4], wrote: false }
    }

    /// What is measured from now on.
    pub fn begin(&mut self, what: String) {
        self.end();
        self.before = [0; 4];
        self.what = what;
        if !self.shown {
            eprintln!("{}", self.what);
        }
    }

    pub fn say(&mut self, step: &str) {
        self.write(&format!("{}: {step}", self.what));
    }

    pub fn show(&mut self, live: &Live, workload: &Workload, now: u64, window: Window) {
        let since = self.last.elapsed();
        if !self.shown || since < EVERY {
            return;
        }
        self.last = Instant::now();
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let counts = [
            read(&live.acked_records),
            read(&live.acked_bytes),
            read(&live.read_records),
            read(&live.read_bytes),
        ];
        let speed = |at: usize| {
            let (now, before) = (counts.get(at), self.before.get(at));
            let grown = now.zip(before).map_or(0, |(now, before)| now.saturating_sub(*before));
            grown as f64 / since.as_secs_f64()
        };
        let mut text = format!("{} {}", self.what, bar(now, window));
        if workload.kind.produces() {
            text += &format!(", {} records/s, {} MB/s", number(speed(0)), number(speed(1) / 1e6));
        }
        if workload.kind.follows() {
            text += &format!(", read {} MB/s", number(speed(3) / 1e6));
        }
        if let Ok(mut latest) = live.latest.lock()
            && !latest.is_empty()
        {
            let ms = |percentile| latest.value_at_percentile(percentile) as f64 / 1e6;
            text += &format!(", p50 {} ms, p99 {} ms", number(ms(50.0)), number(ms(99.0)));
            latest.reset();
        }
        self.before = counts;
        self.write(&text);
    }

    /// The line stays as it is.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.wrote) {
            eprintln!();
        }
    }

    fn write(&mut self, text: &str) {
        if self.shown {
            // A terminal that went away is no reason to end.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            self.wrote = true;
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn bar(now: u64, window: Window) -> String {
    if now < window.from {
        return "warming up".to_owned();
    }
    let (done, all) = (now.min(window.until) - window.from, window.until - window.from);
    let full = usize::try_from(done * BAR as u64 / all.max(1)).unwrap_or(0);
    format!("[{}{}] {} s", "#".repeat(full), ".".repeat(BAR - full), done / 1_000_000_000)
}
