//! The kernel's counters of disks, and what they say about a stretch of time.
//!
//! They count everything the disk did, whoever asked for it. Fields are those of
//! `/proc/diskstats`: after the name reads, merged, sectors, ms; the same of writes; in flight,
//! busy ms, weighted ms; the same four of discards; flushes, ms.

use hardware::{Disk, Host as _, Rooted};

/// The unit of the counters, whatever the disk's own blocks are.
const SECTOR: u64 = 512;

/// Of all disks below one directory together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub busy_ms: u64,
    pub flushes: u64,
    /// How many disks.
    pub disks: u64,
}

impl Counters {
    pub fn now(disks: &[Disk]) -> Counters {
        let table = Rooted::here().read("/proc/diskstats").unwrap_or_default();
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        Self::parse(&table, &names)
    }

    fn parse(table: &str, names: &[&str]) -> Counters {
        let mut sum = Counters::default();
        for line in table.lines() {
            let mut words = line.split_whitespace().skip(2);
            if !words.next().is_some_and(|name| names.contains(&name)) {
                continue;
            }
            let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let field = |index: usize| fields.get(index).copied().unwrap_or(0);
            sum.reads += field(0);
            sum.read_bytes += field(2) * SECTOR;
            sum.writes += field(4);
            sum.written_bytes += field(6) * SECTOR;
            sum.busy_ms += field(9);
            // Not before Linux 5.5.
            sum.flushes += field(15);
            sum.disks += 1;
        }
        sum
    }

    pub fn until(&self, later: &Counters, seconds: f64) -> Activity {
        let since = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64;
        let writes = since(later.writes, self.writes);
        let written = since(later.written_bytes, self.written_bytes);
        let busy = since(later.busy_ms, self.busy_ms) / 1e3;
        Activity {
            known: later.disks > 0,
            written_bytes: written,
            read_bytes: since(later.read_bytes, self.read_bytes),
            writes,
            requests_per_second: (writes + since(later.reads, self.reads)) / seconds,
            mean_write_bytes: if writes > 0.0 { written / writes } else { 0.0 },
            busy_percent: busy / seconds / later.disks.max(1) as f64 * 100.0,
            flushes: since(later.flushes, self.flushes),
            seconds,
        }
    }
}

/// What the disks did in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    /// There are counters at all.
    pub known: bool,
    pub written_bytes: f64,
    pub read_bytes: f64,
    pub writes: f64,
    pub requests_per_second: f64,
    pub mean_write_bytes: f64,
    /// Of the time in which at least one request was in flight; a disk that takes many at once is
    /// not at its end at 100.
    pub busy_percent: f64,
    pub flushes: f64,
    pub seconds: f64,
}

impl Activity {
    pub fn megabytes_per_second(&self) -> f64 {
        self.written_bytes / 1e6 / self.seconds
    }

    /// Device bytes a byte of payload.
    pub fn amplification(&self, payload: f64) -> f64 {
        self.written_bytes / payload
    }

    /// `None` where nothing was flushed.
    pub fn payload_per_flush(&self, payload: f64) -> Option<f64> {
        (self.flushes > 0.0).then(|| payload / self.flushes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_named_disks() {
        let table = " 254 0 vda 10 1 80 5 20 2 400 9 0 70 90 0 0 0 0 7 3\n \
                      254 1 vda1 99 9 99 9 99 9 99 9 0 99 99 0 0 0 0 99 9\n \
                      259 0 nvme0n1 1 0 8 0 2 0 16 0 0 5 5\n";
        let counters = Counters::parse(table, &["vda", "nvme0n1"]);
        let expected = Counters {
            reads: 11,
            read_bytes: 88 * 512,
            writes: 22,
            written_bytes: 416 * 512,
            busy_ms: 75,
            flushes: 7,
            disks: 2,
        };
        assert_eq!(counters, expected);
        assert_eq!(Counters::parse(table, &["sda"]).disks, 0);
    }

    #[test]
    fn activity_is_the_difference() {
        let before = Counters { disks: 1, ..Counters::default() };
        let after =
            Counters { writes: 100, written_bytes: 1_000_000, busy_ms: 500, flushes: 50, ..before };
        let activity = before.until(&after, 2.0);
        assert!((activity.megabytes_per_second() - 0.5).abs() < 1e-9);
        assert!((activity.mean_write_bytes - 10_000.0).abs() < 1e-9);
        assert!((activity.busy_percent - 25.0).abs() < 1e-9);
        assert!((activity.amplification(500_000.0) - 2.0).abs() < 1e-9);
        assert_eq!(activity.payload_per_flush(500_000.0), Some(10_000.0));
        assert_eq!(Activity::default().payload_per_flush(1.0), None);
    }
}
