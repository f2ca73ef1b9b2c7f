//! Windows of time over a running load: how much got done, and what processor time it took.
//!
//! The load counts into a `Progress`; the main thread reads it at the ends of equal windows after a
//! warm-up, together with the processor time of the broker, of this client and of the machine. What
//! the machine spent beyond the two is other work (the kernel's own writers, or a neighbour): it is
//! reported, since it says how far a figure can be trusted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::{disk, procfs};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the threads of a load share with the thread that measures them.
#[derive(Debug, Default)]
pub struct Progress {
    records: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    pub fn add(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Windows {
    pub warmup: Duration,
    pub length: Duration,
    pub count: usize,
}

/// One window.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub seconds: f64,
    pub records: f64,
    /// Of the records' values.
    pub bytes: f64,
    pub broker_cpu_seconds: f64,
    pub client_cpu_seconds: f64,
    pub other_cpu_seconds: f64,
    /// Of the data's device, by anyone.
    pub device: Option<disk::Counted>,
}

impl Sample {
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes / 1e6 / self.seconds
    }

    pub fn records_per_second(&self) -> f64 {
        self.records / self.seconds
    }

    pub fn broker_cpu_per_gigabyte(&self) -> f64 {
        self.broker_cpu_seconds / (self.bytes / 1e9)
    }

    pub fn client_cpu_per_gigabyte(&self) -> f64 {
        self.client_cpu_seconds / (self.bytes / 1e9)
    }

    /// What the device took, for whomever.
    pub fn device_megabytes_per_second(&self) -> Option<f64> {
        Some(self.device?.bytes_written / 1e6 / self.seconds)
    }

    /// Percent of the time with a request on the way at the device.
    pub fn device_busy(&self) -> Option<f64> {
        Some(100.0 * self.device?.busy_seconds / self.seconds)
    }

    /// Cores kept busy by neither broker nor client.
    pub fn other_cores(&self) -> f64 {
        self.other_cpu_seconds / self.seconds
    }
}

/// What the counters were at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    at: Instant,
    records: u64,
    bytes: u64,
    broker: f64,
    client: f64,
    machine: f64,
    device: Option<disk::Counted>,
}

impl Mark {
    pub fn now(progress: &Progress, broker: u32) -> Result<Self> {
        Ok(Mark {
            at: Instant::now(),
            records: progress.records.load(Ordering::Relaxed),
            bytes: progress.bytes.load(Ordering::Relaxed),
            broker: procfs::cpu_seconds(broker)?,
            client: procfs::cpu_seconds(std::process::id())?,
            machine: procfs::machine_cpu_seconds()?,
            device: disk::counted(),
        })
    }

    pub fn until(&self, later: &Self) -> Sample {
        let broker_cpu_seconds = later.broker - self.broker;
        let client_cpu_seconds = later.client - self.client;
        let machine = later.machine - self.machine;
        Sample {
            seconds: later.at.duration_since(self.at).as_secs_f64(),
            records: (later.records - self.records) as f64,
            bytes: (later.bytes - self.bytes) as f64,
            broker_cpu_seconds,
            client_cpu_seconds,
            device: self.device.zip(later.device).map(|(from, to)| disk::Counted {
                bytes_written: to.bytes_written - from.bytes_written,
                busy_seconds: to.busy_seconds - from.busy_seconds,
            }),
            other_cpu_seconds: (machine - broker_cpu_seconds - client_cpu_seconds).max(0.0),
        }
    }
}

/// Measures a load that other threads run, then tells them to stop. Ends early, with the windows
/// it has, if one of them stops by itself: its own error says why.
pub fn measure(progress: &Progress, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let outcome = measure_windows(progress, broker, windows);
    progress.stop();
    outcome
}

fn measure_windows(progress: &Progress, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let mut samples = Vec::with_capacity(windows.count);
    let mut end = Instant::now() + windows.warmup;
    sleep_until(end, progress);
    let mut from = Mark::now(progress, broker)?;
    for _ in 0..windows.count {
        end += windows.length;
        sleep_until(end, progress);
        if progress.stopped() {
            break;
        }
        let to = Mark::now(progress, broker)?;
        samples.push(from.until(&to));
        from = to;
    }
    Ok(samples)
}

fn sleep_until(end: Instant, progress: &Progress) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || progress.stopped() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_was_done_in_it() {
        let progress = Progress::default();
        let me = std::process::id();
        progress.add(5, 500);
        let from = Mark::now(&progress, me).unwrap();
        progress.add(7, 700);
        let sample = from.until(&Mark::now(&progress, me).unwrap());
        assert!((sample.records - 7.0).abs() < 1e-9);
        assert!((sample.bytes - 700.0).abs() < 1e-9);
    }

    #[test]
    fn a_load_that_stops_by_itself_ends_the_measuring() {
        let progress = Progress::default();
        progress.stop();
        let hour = Duration::from_secs(3600);
        let windows = Windows { warmup: hour, length: hour, count: 3 };
        let samples = measure(&progress, std::process::id(), &windows).unwrap();
        assert!(samples.is_empty());
    }
}
