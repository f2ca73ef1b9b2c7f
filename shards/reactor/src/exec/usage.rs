//! What a shard has done so far: core time and disk operations by class, and stalls.
//!
//! Plain counters in their owner, read when somebody asks. A stall is a poll (or a slice of a few
//! short ones) that kept everything else on the core waiting for [`STALL`] or longer.

use std::cell::Cell;
use std::time::Duration;

use super::class::{CLASSES, Class};
use super::context;

/// A poll that takes longer is reported.
const STALL: Duration = Duration::from_millis(50);

/// After as many warnings only every so many-th stall is one: a stalling shard must not drown in
/// its own log.
const WARNINGS_APART: u64 = 16;

#[derive(Default)]
pub(crate) struct Meter {
    polls: [Cell<u64>; CLASSES],
    busy: [Cell<u64>; CLASSES],
    stalls: Cell<u64>,
    longest: Cell<Duration>,
    /// The future that was polled last.
    last: Cell<&'static str>,
}

impl Meter {
    pub(crate) fn note_poll(&self, name: &'static str) {
        self.last.set(name);
    }

    pub(crate) fn note_slice(&self, class: Class, polls: usize, took: Duration) {
        let (count, busy) = (&self.polls[class.index()], &self.busy[class.index()]);
        count.set(count.get() + polls as u64);
        busy.set(busy.get() + took.as_nanos() as u64);
        if took >= STALL {
            self.note_stall(class, polls, took);
        }
    }

    #[cold]
    fn note_stall(&self, class: Class, polls: usize, took: Duration) {
        let stalls = self.stalls.get() + 1;
        self.stalls.set(stalls);
        self.longest.set(self.longest.get().max(took));
        if stalls <= WARNINGS_APART || stalls.is_multiple_of(WARNINGS_APART) {
            let (class, task, millis) = (class.name(), self.last.get(), took.as_millis());
            tracing::warn!(class, task, millis, polls, stalls, "the shard stood still");
        }
    }
}

/// One class since the start of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    pub class: Class,
    pub polls: u64,
    pub busy: Duration,
}

/// One class at one disk: totals since the start, and what waits or runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Device number; `None` for names outside of every known disk.
    pub device: Option<u64>,
    pub class: Class,
    pub ops: u64,
    pub bytes: u64,
    /// Operations that had to wait for others.
    pub delayed: u64,
    /// Time from their admission to their end.
    pub took: Duration,
    pub waiting: u64,
    pub in_flight: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub classes: Vec<ClassUsage>,
    pub disks: Vec<DiskUsage>,
    /// By device number: bytes of bulk data that may be on their way beside producers.
    pub bulk_windows: Vec<(Option<u64>, u64)>,
    /// Calls into the ring to submit, collect or sleep; 0 on other backends.
    pub enters: u64,
    pub stalls: u64,
    pub longest_stall: Duration,
}

/// What the current shard has done so far.
pub fn usage() -> Usage {
    context::with(|rt| {
        let class_usage = |class: Class| ClassUsage {
            class,
            polls: rt.meter.polls[class.index()].get(),
            busy: Duration::from_nanos(rt.meter.busy[class.index()].get()),
        };
        let disks = rt.disks.borrow().counts().into_iter().flat_map(|(device, lanes)| {
            Class::ALL.into_iter().zip(lanes).map(move |(class, lane)| DiskUsage {
                device,
                class,
                ops: lane.ops,
                bytes: lane.bytes,
                delayed: lane.delayed,
                took: lane.took,
                waiting: lane.waiting,
                in_flight: lane.in_flight,
            })
        });
        Usage {
            classes: Class::ALL.map(class_usage).to_vec(),
            disks: disks.collect(),
            bulk_windows: rt.disks.borrow().windows(),
            enters: rt.driver.borrow().enters(),
            stalls: rt.meter.stalls.get(),
            longest_stall: rt.meter.longest.get(),
        }
    })
}
