//! What a thread of a load counts, and what others see of it meanwhile.
//!
//! Latencies belong to the window in which something was due, throughput to the one in which it was
//! done. Times are nanoseconds since the start of the load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::report::histogram;

/// Steps of series at most; a longer load has longer steps.
const STEPS_MAX: u64 = 600;
const SECOND_NS: u64 = 1_000_000_000;
/// Due records are counted in slots of a hundredth of a second, in longer ones where a load is long.
const SLOT_NS: u64 = SECOND_NS / 100;
const SLOTS_MAX: u64 = 1 << 16;
/// How often a thread lets others see its latest latencies.
const PUBLISH_NS: u64 = SECOND_NS / 4;

/// Nanoseconds since the start of a load.
#[derive(Debug, Clone, Copy)]
pub struct Clock(pub Instant);

impl Clock {
    pub fn now(self) -> u64 {
        let since = Instant::now().saturating_duration_since(self.0);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What is measured of a load: from the end of its warm-up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub until: u64,
    /// Of series.
    pub step: u64,
}

impl Window {
    pub fn new(warmup_seconds: f64, seconds: f64) -> Self {
        let from = (warmup_seconds * 1e9) as u64;
        let length = (seconds * 1e9) as u64;
        let steps = length.div_ceil(SECOND_NS).max(1);
        Window { from, until: from + length, step: SECOND_NS * steps.div_ceil(STEPS_MAX).max(1) }
    }

    pub fn holds(&self, at: u64) -> bool {
        (self.from..self.until).contains(&at)
    }

    fn step_of(&self, at: u64) -> Option<usize> {
        let since = at.checked_sub(self.from).filter(|_| at < self.until)?;
        usize::try_from(since / self.step).ok()
    }

    pub fn steps(&self) -> usize {
        usize::try_from((self.until - self.from).div_ceil(self.step)).unwrap_or(1)
    }
}

/// Seen by the thread that shows progress, and told by it when to end.
#[derive(Debug)]
pub struct Live {
    stop: AtomicBool,
    pub acked_records: AtomicU64,
    pub acked_bytes: AtomicU64,
    pub read_records: AtomicU64,
    pub read_bytes: AtomicU64,
    /// Threads whose producers have nothing left to send or to hear.
    pub drained: AtomicU64,
    pub latest: Mutex<Histogram<u64>>,
}

impl Default for Live {
    fn default() -> Self {
        Live {
            stop: AtomicBool::new(false),
            acked_records: AtomicU64::new(0),
            acked_bytes: AtomicU64::new(0),
            read_records: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            latest: Mutex::new(coarse()),
        }
    }
}

impl Live {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Two digits: for series and for what is shown while a load runs.
fn coarse() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 600 * SECOND_NS, 2)
        .unwrap_or_else(|_| unreachable!("constant bounds"))
}

/// One step of the series.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub acked_records: u64,
    pub acked_bytes: u64,
    pub read_records: u64,
    pub read_bytes: u64,
    pub backlog_bytes: u64,
    pub produced: Option<Histogram<u64>>,
    pub consumed: Option<Histogram<u64>>,
}

/// Counts of one thread, or of all of them.
#[derive(Debug, Clone)]
pub struct Recorder {
    pub window: Window,
    /// From due to acknowledged.
    pub produced: Histogram<u64>,
    /// From due to consumed.
    pub consumed: Histogram<u64>,
    /// From the first record's being due to the commit's being answered.
    pub transactions: Histogram<u64>,
    /// From due, or from when the broker made room, to taken up: what the client itself was late.
    pub slip: Histogram<u64>,
    pub steps: Vec<Step>,
    pub committed: u64,
    /// Due in the window and not done when the load ended; their latencies are what they had by
    /// then.
    pub unfinished: u64,
    /// Not consumed when the load ended, with as much waiting time as they had by then.
    pub unread: u64,
    /// Transactions whose commit was not answered when the load ended, likewise.
    pub uncommitted: u64,
    pub tried_again: u64,
    /// Where records are followed from due to consumed.
    owed: Option<Owed>,
    recent: Histogram<u64>,
    published: u64,
}

/// What consumers have still to read, by when it was due: producers add, consumers take away, on
/// whatever thread they are. Only the sum over all threads says anything.
#[derive(Debug, Clone)]
struct Owed {
    from: u64,
    slot: u64,
    slots: Vec<i64>,
    /// Of a record that is produced.
    times: i64,
    /// When the last thread ended.
    ended: u64,
}

impl Owed {
    fn new(window: Window, times: usize) -> Self {
        let length = window.until - window.from;
        let slot = SLOT_NS.max(length.div_ceil(SLOTS_MAX));
        let slots = vec![0; usize::try_from(length.div_ceil(slot)).unwrap_or(0)];
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        Owed { from: window.from, slot, slots, times, ended: 0 }
    }

    fn count(&mut self, due: u64, by: i64) {
        let at =
            due.checked_sub(self.from).and_then(|since| usize::try_from(since / self.slot).ok());
        if let Some(count) = at.and_then(|at| self.slots.get_mut(at)) {
            *count += by;
        }
    }
}

impl Recorder {
    /// Every record that is produced is to be read so many times; what is not counts too, once
    /// [`Recorder::settle`] was called.
    pub fn followed(mut self, times: usize) -> Self {
        self.owed = Some(Owed::new(self.window, times));
        self
    }

    fn produced(&mut self, due: u64) {
        if let Some(owed) = &mut self.owed {
            owed.count(due, owed.times);
        }
    }

    pub fn new(window: Window) -> Self {
        Recorder {
            window,
            produced: histogram::new(),
            consumed: histogram::new(),
            transactions: histogram::new(),
            slip: coarse(),
            steps: vec![Step::default(); window.steps()],
            committed: 0,
            unfinished: 0,
            unread: 0,
            uncommitted: 0,
            tried_again: 0,
            owed: None,
            recent: coarse(),
            published: 0,
        }
    }

    /// Records were acknowledged. Those of a closed loop were due at no time.
    pub fn acked(&mut self, live: &Live, dues: &[u64], records: u64, bytes: u64, now: u64) {
        live.acked_records.fetch_add(records, Ordering::Relaxed);
        live.acked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(step) = self.window.step_of(now).and_then(|at| self.steps.get_mut(at)) {
            step.acked_records += records;
            step.acked_bytes += bytes;
        }
        for due in dues {
            let took = now.saturating_sub(*due);
            self.recent.saturating_record(took);
            self.produced(*due);
            let Some(at) = self.window.step_of(*due) else { continue };
            self.produced.saturating_record(took);
            if let Some(step) = self.steps.get_mut(at) {
                step.produced.get_or_insert_with(coarse).saturating_record(took);
            }
        }
    }

    /// Records were read by a consumer that follows what is produced.
    pub fn read(&mut self, live: &Live, records: u64, bytes: u64, now: u64) {
        live.read_records.fetch_add(records, Ordering::Relaxed);
        live.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(step) = self.window.step_of(now).and_then(|at| self.steps.get_mut(at)) {
            step.read_records += records;
            step.read_bytes += bytes;
        }
    }

    /// By a reader of what was written before.
    pub fn read_backlog(&mut self, bytes: u64, now: u64) {
        if let Some(step) = self.window.step_of(now).and_then(|at| self.steps.get_mut(at)) {
            step.backlog_bytes += bytes;
        }
    }

    pub fn arrived(&mut self, due: u64, now: u64) {
        let took = now.saturating_sub(due);
        self.recent.saturating_record(took);
        if let Some(owed) = &mut self.owed {
            owed.count(due, -1);
        }
        let Some(at) = self.window.step_of(due) else { return };
        self.consumed.saturating_record(took);
        if let Some(step) = self.steps.get_mut(at) {
            step.consumed.get_or_insert_with(coarse).saturating_record(took);
        }
    }

    pub fn slipped(&mut self, due: u64, by: u64) {
        if self.window.holds(due) {
            self.slip.saturating_record(by);
        }
    }

    pub fn committed(&mut self, first_due: Option<u64>, now: u64) {
        if self.window.holds(now) {
            self.committed += 1;
        }
        if let Some(due) = first_due.filter(|due| self.window.holds(*due)) {
            self.transactions.saturating_record(now.saturating_sub(due));
        }
    }

    /// Will not be done any more.
    pub fn gave_up(&mut self, due: u64, now: u64) {
        self.produced(due);
        if self.window.holds(due) {
            self.unfinished += 1;
            self.produced.saturating_record(now.saturating_sub(due));
        }
    }

    /// Will not be committed any more.
    pub fn gave_up_commit(&mut self, first_due: u64, now: u64) {
        if self.window.holds(first_due) {
            self.uncommitted += 1;
            self.transactions.saturating_record(now.saturating_sub(first_due));
        }
    }

    pub fn ended(&mut self, now: u64) {
        if let Some(owed) = &mut self.owed {
            owed.ended = now;
        }
    }

    /// Of all threads: what was due and did not come to its consumers counts with the time it had
    /// waited when the load ended. Otherwise a consumer that is far behind would lose its worst
    /// records and look fast.
    pub fn settle(&mut self) {
        let Some(owed) = self.owed.take() else { return };
        for (due, count) in (owed.from..).step_by(owed.slot as usize).zip(owed.slots) {
            let Some(count) = u64::try_from(count).ok().filter(|count| *count > 0) else {
                continue;
            };
            let waited = owed.ended.saturating_sub(due);
            self.unread += count;
            self.consumed.saturating_record_n(waited, count);
            let step = self.window.step_of(due).and_then(|at| self.steps.get_mut(at));
            if let Some(step) = step {
                step.consumed.get_or_insert_with(coarse).saturating_record_n(waited, count);
            }
        }
    }

    /// Lets others see the latest latencies, now and then.
    pub fn publish(&mut self, live: &Live, now: u64) {
        if now < self.published + PUBLISH_NS || self.recent.is_empty() {
            return;
        }
        if let Ok(mut latest) = live.latest.try_lock() {
            // Both have the same bounds.
            let _ = latest.add(&self.recent);
            self.recent.reset();
            self.published = now;
        }
    }

    pub fn add(&mut self, other: &Recorder) {
        // All have the same bounds.
        let _ = self.produced.add(&other.produced);
        let _ = self.consumed.add(&other.consumed);
        let _ = self.transactions.add(&other.transactions);
        let _ = self.slip.add(&other.slip);
        self.committed += other.committed;
        self.unfinished += other.unfinished;
        self.unread += other.unread;
        self.uncommitted += other.uncommitted;
        if let Some((mine, theirs)) = self.owed.as_mut().zip(other.owed.as_ref()) {
            mine.ended = mine.ended.max(theirs.ended);
            mine.slots.iter_mut().zip(&theirs.slots).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.tried_again += other.tried_again;
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.acked_records += theirs.acked_records;
            mine.acked_bytes += theirs.acked_bytes;
            mine.read_records += theirs.read_records;
            mine.read_bytes += theirs.read_bytes;
            mine.backlog_bytes += theirs.backlog_bytes;
            for (mine, theirs) in
                [(&mut mine.produced, &theirs.produced), (&mut mine.consumed, &theirs.consumed)]
            {
                if let Some(theirs) = theirs {
                    let _ = mine.get_or_insert_with(coarse).add(theirs);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_in_the_warm_up_is_not_measured() {
        let window = Window::new(1.0, 2.0);
        assert_eq!((window.from, window.until, window.step), (SECOND_NS, 3 * SECOND_NS, SECOND_NS));
        let (mut recorder, live) = (Recorder::new(window), Live::default());
        // Due before, done inside: throughput, no latency.
        recorder.acked(&live, &[SECOND_NS / 2], 1, 100, SECOND_NS + 5);
        assert_eq!((recorder.produced.len(), recorder.steps[0].acked_bytes), (0, 100));
        // Due inside, done after: latency, no throughput.
        recorder.acked(&live, &[2 * SECOND_NS + 1], 1, 100, 4 * SECOND_NS);
        assert_eq!(recorder.produced.len(), 1);
        assert_eq!((recorder.steps[1].acked_bytes, recorder.steps.len()), (0, 2));
        assert_eq!(live.acked_bytes.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn long_loads_have_long_steps() {
        let window = Window::new(0.0, 3_600.0);
        assert_eq!((window.step, window.steps()), (6 * SECOND_NS, 600));
        assert_eq!(Window::new(0.0, 0.5).steps(), 1);
    }

    #[test]
    fn recorders_add_up() {
        let window = Window::new(0.0, 2.0);
        let live = Live::default();
        let (mut one, mut two) = (Recorder::new(window), Recorder::new(window));
        one.acked(&live, &[0, 1], 2, 20, 1_000);
        two.acked(&live, &[SECOND_NS], 1, 10, SECOND_NS + 5);
        two.arrived(5, 10);
        two.gave_up(7, 9);
        one.add(&two);
        assert_eq!((one.produced.len(), one.consumed.len(), one.unfinished), (4, 1, 1));
        let bytes: Vec<u64> = one.steps.iter().map(|step| step.acked_bytes).collect();
        assert_eq!(bytes, [20, 10]);
        assert!(one.steps[1].produced.is_some());
    }

    #[test]
    fn what_was_not_read_counts_with_the_time_it_waited() {
        let live = Live::default();
        let recorder = || Recorder::new(Window::new(1.0, 2.0)).followed(2);
        let (mut producing, mut reading) = (recorder(), recorder());
        // One in the warm-up, and three that two groups are to read; one is never acknowledged.
        let dues = [SECOND_NS / 2, SECOND_NS, 2 * SECOND_NS + 1];
        producing.acked(&live, &dues, 3, 30, 2 * SECOND_NS + 2);
        producing.gave_up(3 * SECOND_NS - 1, 12 * SECOND_NS);
        producing.ended(12 * SECOND_NS);
        for due in [SECOND_NS / 2, SECOND_NS, SECOND_NS, 2 * SECOND_NS + 1] {
            reading.arrived(due, due + 1_000_000);
        }
        reading.ended(13 * SECOND_NS);
        reading.add(&producing);
        reading.settle();
        assert_eq!((reading.unread, reading.consumed.len()), (3, 6));
        // One of a second and two of the next one.
        assert!(reading.consumed.value_at_percentile(100.0) >= 11 * SECOND_NS - 1_000_000);
        assert!(reading.consumed.value_at_percentile(60.0) >= 10 * SECOND_NS);
        assert!(reading.consumed.value_at_percentile(50.0) < 2_000_000);
        assert!(reading.steps[1].consumed.as_ref().is_some_and(|step| step.len() == 4));
    }

    #[test]
    fn a_commit_that_did_not_come_counts_with_the_time_it_waited() {
        let mut recorder = Recorder::new(Window::new(1.0, 2.0));
        recorder.gave_up_commit(SECOND_NS / 2, 9 * SECOND_NS);
        recorder.gave_up_commit(SECOND_NS, 9 * SECOND_NS);
        assert_eq!((recorder.uncommitted, recorder.transactions.len()), (1, 1));
        assert!(recorder.transactions.max() >= 7 * SECOND_NS);
    }
}
