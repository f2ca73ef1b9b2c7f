//! Readers of an old log: each reads a partition from its start over and over, as a new consumer
//! that catches up does, at a bounded rate or as fast as it is served.
//!
//! They are there to disturb, so they must not themselves take the processor from the client that
//! measures: their threads have the lowest priority. So that the log cannot live in the kernel's
//! page cache, which belongs to no broker's budget, another thread drops the log's pages all along.

use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Lane, Topic};
use crate::consume::{self, MAX_WAIT_MS, Reading};
use crate::disk::Files;
use crate::error::Result;
use crate::sample::Progress;

pub const FORGET_EVERY: Duration = Duration::from_millis(250);
const LOWEST_PRIORITY: i32 = 19;
/// Bounds how late a paced reader sees that it has to stop.
const PAUSE_MAX: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Backfill<'a> {
    /// One reader a partition.
    pub topic: &'a Topic,
    pub records_a_partition: i64,
    pub record_bytes: u64,
    /// Of values, each reader. `None`: as fast as it goes.
    pub bytes_per_second: Option<f64>,
    /// Of the topic.
    pub files: &'a Files,
}

impl Backfill<'_> {
    /// Reads while `during` runs; gives what that gives, and the bytes of values read a second.
    pub fn beside<T>(&self, during: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let progress = Progress::default();
        let started = Instant::now();
        thread::scope(|scope| {
            let lanes = self.topic.lanes(self.topic.leaders.len());
            let read = |lane| scope.spawn(|| self.read(lane, &progress));
            let readers: Vec<_> = lanes.into_iter().map(read).collect();
            let forgetting = scope.spawn(|| self.forget(&progress));
            let outcome = during();
            let bytes = progress.bytes() as f64 / started.elapsed().as_secs_f64();
            progress.stop();
            end(forgetting);
            for reader in readers {
                end(reader)?;
            }
            Ok((outcome?, bytes))
        })
    }

    fn read(&self, lane: Lane, progress: &Progress) -> Result<()> {
        // Without it the client disturbs more than it should; the figures stay true.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        let load = consume::Load {
            topic: self.topic,
            connections: 1,
            records_a_partition: self.records_a_partition,
            record_bytes: self.record_bytes,
        };
        let mut reading = Reading::open(&load, &lane)?;
        let started = Instant::now();
        let mut bytes = 0;
        while !progress.stopped() {
            if reading.at_end() {
                reading.rewind();
            }
            let records = reading.fetch(MAX_WAIT_MS)?;
            progress.add(records, records * self.record_bytes);
            bytes += records * self.record_bytes;
            self.pause(started, bytes, progress);
        }
        Ok(())
    }

    /// Until the bytes that were read are due, or the load ends.
    fn pause(&self, started: Instant, bytes: u64, progress: &Progress) {
        let Some(rate) = self.bytes_per_second else { return };
        let due = Duration::from_secs_f64(bytes as f64 / rate);
        while !progress.stopped() {
            let left = due.saturating_sub(started.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(PAUSE_MAX));
        }
    }

    fn forget(&self, progress: &Progress) {
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        while !progress.stopped() {
            self.files.forget();
            thread::sleep(FORGET_EVERY);
        }
    }
}

fn end<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
