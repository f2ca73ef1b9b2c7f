//! Transactions of many transactional ids at once: as fast as their answers come, and at a fixed
//! rate.
//!
//! A thread an id. At a fixed rate a transaction's latency runs from the moment at which it was
//! due, so a broker that holds one up is charged for all that have to wait behind it.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Content, Producer};
use crate::error::{Error, Result};
use crate::groups::idle::in_threads;
use crate::latency::new_histogram;
use crate::sample::{Progress, Sample, Windows, measure};

/// The kernel may otherwise wake a sleeper 50 microseconds late.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);
/// Time for the threads to start.
const BEGIN_AFTER: Duration = Duration::from_millis(50);

/// What a closed loop gives. In the samples a record is a transaction.
#[derive(Debug)]
pub struct Figures {
    pub samples: Vec<Sample>,
    /// Of what ended after the warm-up, in microseconds.
    pub whole: Histogram<u64>,
    pub commit: Histogram<u64>,
    /// Answers that said to try again, of each transaction.
    pub tried_again: f64,
}

/// One transaction after the other by each producer, for as long as the windows last.
pub fn run_windows(
    producers: &mut [Producer],
    content: &Content,
    broker: u32,
    windows: &Windows,
) -> Result<Figures> {
    let progress = Progress::default();
    let from = Instant::now() + windows.warmup;
    thread::scope(|scope| {
        let start = |producer| {
            let progress = &progress;
            scope.spawn(move || {
                let outcome = repeat(producer, content, from, progress);
                if outcome.is_err() {
                    progress.stop();
                }
                outcome
            })
        };
        let threads: Vec<_> = producers.iter_mut().map(start).collect();
        let samples = measure(&progress, broker, windows);
        let mut all = Counted::new()?;
        for thread in threads {
            let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.add(one)?;
        }
        let tried_again = all.tried_again as f64 / (all.done.max(1)) as f64;
        Ok(Figures { samples: samples?, whole: all.whole, commit: all.commit, tried_again })
    })
}

/// Of one thread, or of all.
struct Counted {
    whole: Histogram<u64>,
    commit: Histogram<u64>,
    done: u64,
    tried_again: u64,
}

impl Counted {
    fn new() -> Result<Self> {
        let (whole, commit) = (new_histogram()?, new_histogram()?);
        Ok(Counted { whole, commit, done: 0, tried_again: 0 })
    }

    fn add(&mut self, other: Self) -> Result<()> {
        let unreadable = |error: hdrhistogram::AdditionError| Error::Unreadable(error.to_string());
        self.whole.add(other.whole).map_err(unreadable)?;
        self.commit.add(other.commit).map_err(unreadable)?;
        self.done += other.done;
        self.tried_again += other.tried_again;
        Ok(())
    }
}

fn repeat(
    producer: &mut Producer,
    content: &Content,
    from: Instant,
    progress: &Progress,
) -> Result<Counted> {
    let mut counted = Counted::new()?;
    let before = producer.tried_again;
    while !progress.stopped() {
        let took = producer.transact(content)?;
        counted.done += 1;
        if Instant::now() >= from {
            counted.whole.saturating_record(micros(took.whole));
            counted.commit.saturating_record(micros(took.commit));
        }
        progress.add(1, (content.records * content.record_bytes) as u64);
    }
    counted.tried_again = producer.tried_again - before;
    Ok(counted)
}

/// When transactions are due.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Over all producers.
    pub per_second: f64,
    pub warmup: Duration,
    pub length: Duration,
}

/// From the moments at which transactions were due to the answers to their commits, in
/// microseconds.
pub fn run_paced(
    producers: &mut [Producer],
    content: &Content,
    pace: &Pace,
) -> Result<Histogram<u64>> {
    let count = producers.len().max(1) as f64;
    let interval = Duration::from_secs_f64(count / pace.per_second);
    let shift = interval.div_f64(count);
    let start = Instant::now() + BEGIN_AFTER;
    let work = producers.iter_mut().zip(0u32..).map(|(producer, lane)| {
        move || follow(producer, content, pace, interval, start + shift * lane)
    });
    let mut all = new_histogram()?;
    for one in in_threads(work)? {
        all.add(one).map_err(|error| Error::Unreadable(error.to_string()))?;
    }
    Ok(all)
}

fn follow(
    producer: &mut Producer,
    content: &Content,
    pace: &Pace,
    interval: Duration,
    start: Instant,
) -> Result<Histogram<u64>> {
    // Only accuracy is lost without it.
    let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
    let mut histogram = new_histogram()?;
    let (from, end) = (start + pace.warmup, start + pace.warmup + pace.length);
    let mut due = start;
    while due < end {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        producer.transact(content)?;
        if due >= from {
            histogram.saturating_record(micros(due.elapsed()));
        }
        due += interval;
    }
    Ok(histogram)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
