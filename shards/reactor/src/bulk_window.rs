//! How much bulk data may be on its way to or from a disk that producers write to.
//!
//! Owns: one number of bytes for one shard and one disk, moved by how long the producers' own small
//! writes take: those that take much longer than the quickest of late narrow it, the others let it
//! grow by a little while bulk data waits for it. So a disk's own queue stays short whatever the
//! disk is: one that carries much at a time, one that is slow, one whose host lets only so many
//! bytes a second through. Below one operation the window becomes a pause after each. Never stops
//! bulk data altogether: at the worst it gets 16 MiB a second.
//!
//! What a write waits for the core counts too: a shard that has too much to do carries less bulk
//! data.
//!
//! Pure: the queue (`disk_queue.rs`) tells it what began and ended, and when.

use std::time::Duration;

use crate::time::Instant;

/// Writes up to this size tell how long the disk makes others wait; larger ones take their time
/// anyway.
pub(crate) const SMALL_WRITE: u32 = 128 << 10;

/// Of the window, in bytes.
const FIRST: u64 = 512 << 10;
const LEAST: u64 = 16 << 10;
const MOST: u64 = 2 << 20;
/// Added with each write that did not take long.
const STEP: u64 = 16 << 10;

/// A write may take so many times as long as the quickest, and so much more.
const SLOWER: u32 = 3;
const SLACK: Duration = Duration::from_micros(400);

/// For how long a quickest write counts at least; twice that at most.
const REMEMBERED: Duration = Duration::from_secs(10);

const PAUSE_MAX: Duration = Duration::from_millis(100);
/// What bulk data gets in a second however long writes take: a consumer that catches up, retention
/// and compaction must come to an end.
const RATE_LEAST: f64 = (16 << 20) as f64;

pub(crate) struct BulkWindow {
    bytes: u64,
    in_flight: u64,
    /// Something had to wait for it since it grew last.
    is_tight: bool,
    /// Plain writes and synced ones, which are another matter on most disks.
    quickest: [Quickest; 2],
    narrowed: Instant,
    last_end: Instant,
    resume: Instant,
}

/// The least of this period and the one before.
#[derive(Default)]
struct Quickest {
    before: Option<Duration>,
    present: Option<Duration>,
    since: Instant,
}

impl Default for BulkWindow {
    fn default() -> Self {
        Self {
            bytes: FIRST,
            in_flight: 0,
            is_tight: false,
            quickest: Default::default(),
            narrowed: Instant::default(),
            last_end: Instant::default(),
            resume: Instant::default(),
        }
    }
}

impl BulkWindow {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether an operation may begin; the only one may always, after its pause.
    pub(crate) fn admits(&self, cost: u64, now: Instant) -> bool {
        match self.in_flight {
            0 => now >= self.resume,
            in_flight => in_flight + cost <= self.bytes,
        }
    }

    /// An operation waits that was not admitted.
    pub(crate) fn note_wait(&mut self) {
        self.is_tight = true;
    }

    /// When the pause ends that keeps everything waiting; `None` if none does.
    pub(crate) fn resumes(&self, now: Instant) -> Option<Instant> {
        (self.in_flight == 0 && self.resume > now).then_some(self.resume)
    }

    pub(crate) fn begin(&mut self, cost: u64) {
        self.in_flight += cost;
    }

    pub(crate) fn end(&mut self, cost: u64, began: Instant, now: Instant) {
        self.in_flight -= cost;
        self.last_end = now;
        if cost > self.bytes {
            // Over operation and pause together the window is kept.
            let more = (cost - self.bytes) as f64 / self.bytes as f64;
            let most = PAUSE_MAX.min(Duration::from_secs_f64(cost as f64 / RATE_LEAST));
            self.resume = self.resume.max(now + (now - began).mul_f64(more).min(most));
        }
    }

    /// A small write of a producer ended.
    pub(crate) fn note_write(&mut self, synced: bool, began: Instant, now: Instant) {
        let took = now - began;
        let quickest = self.quickest[usize::from(synced)].note(took, now);
        if took <= quickest * SLOWER + SLACK {
            // A window that nothing fills says nothing about a wider one.
            if std::mem::take(&mut self.is_tight) {
                self.bytes = (self.bytes + STEP).min(MOST);
            }
            return;
        }
        let is_ours = self.in_flight > 0 || self.last_end > began;
        // What began before the last change says nothing about it.
        if is_ours && began >= self.narrowed {
            self.bytes = (self.bytes - self.bytes / 4).max(LEAST);
            self.narrowed = now;
        }
    }
}

impl Quickest {
    fn note(&mut self, took: Duration, now: Instant) -> Duration {
        if now - self.since >= REMEMBERED {
            self.before = self.present.take();
            self.since = now;
        }
        let present = self.present.map_or(took, |least| least.min(took));
        self.present = Some(present);
        self.before.map_or(present, |before| before.min(present))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PIECE: u64 = 256 << 10;

    /// Runs small writes that take `took` each, beside pieces that take a millisecond.
    fn writes(window: &mut BulkWindow, now: &mut Instant, took: Duration, count: usize) {
        for _ in 0..count {
            let began = *now;
            let admitted = window.admits(PIECE, began);
            if admitted {
                window.begin(PIECE);
            }
            window.note_wait();
            *now += took;
            window.note_write(false, began, *now);
            if admitted {
                window.end(PIECE, began, *now);
            }
        }
    }

    #[test]
    fn slow_writes_beside_bulk_data_close_it_and_quick_ones_open_it() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        writes(&mut window, &mut now, MS / 10, 1);
        writes(&mut window, &mut now, 5 * MS, 300);
        assert_eq!(window.bytes, LEAST);
        writes(&mut window, &mut now, MS / 10, 300);
        assert_eq!(window.bytes, MOST);
    }

    #[test]
    fn a_window_that_nothing_fills_does_not_grow() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        for _ in 0..300 {
            let began = now;
            now += MS / 10;
            window.note_write(false, began, now);
        }
        assert_eq!(window.bytes, FIRST);
    }

    #[test]
    fn a_disk_that_is_slow_by_itself_does_not_close_it() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        writes(&mut window, &mut now, 20 * MS, 300);
        assert_eq!(window.bytes, MOST);
        // Nor does anything that happens while there is no bulk data.
        for _ in 0..50 {
            let began = now;
            now += 500 * MS;
            window.note_write(false, began, now);
        }
        assert_eq!(window.bytes, MOST);
    }

    #[test]
    fn a_window_below_one_operation_is_a_pause_after_it() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        writes(&mut window, &mut now, MS / 10, 1);
        writes(&mut window, &mut now, 5 * MS, 300);
        while !window.admits(PIECE, now) {
            now += MS;
        }
        window.begin(PIECE);
        assert!(!window.admits(PIECE, now), "one at a time");
        let began = now;
        now += 2 * MS;
        window.end(PIECE, began, now);
        let resumes = window.resumes(now).unwrap();
        assert_eq!(resumes - now, MS * 125 / 8, "16 MiB a second at least");
        assert!(!window.admits(PIECE, now));
        assert!(window.admits(PIECE, resumes));
        assert_eq!(window.resumes(resumes), None);
    }

    #[test]
    fn synced_writes_are_not_taken_for_slow_plain_ones() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        for _ in 0..300 {
            for (synced, took) in [(false, MS / 10), (true, 5 * MS)] {
                let began = now;
                window.begin(PIECE);
                window.note_wait();
                now += took;
                window.note_write(synced, began, now);
                window.end(PIECE, began, now);
            }
        }
        assert_eq!(window.bytes, MOST);
    }

    #[test]
    fn the_quickest_write_is_forgotten_when_the_disk_has_changed() {
        let (mut window, mut now) = (BulkWindow::default(), Instant::from_nanos(1 << 40));
        writes(&mut window, &mut now, MS / 10, 10);
        writes(&mut window, &mut now, 10 * MS, 1000);
        assert_eq!(window.bytes, LEAST);
        writes(&mut window, &mut now, 10 * MS, 2000);
        assert_eq!(window.bytes, MOST, "this is how fast the disk is now");
    }
}
