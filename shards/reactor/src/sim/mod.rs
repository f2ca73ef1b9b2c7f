//! The simulated backend: one thread, virtual time, a seeded schedule, a disk and a network that
//! fail on request.

use std::future::Future;
use std::time::Duration;

/// What the machine will do to the program; all off by default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub disk: DiskFaults,
    pub net: NetFaults,
}

#[derive(Clone, Debug, Default)]
pub struct DiskFaults {
    /// Fails every file operation after that many with EIO.
    pub eio_after: Option<u64>,
    pub latency: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct NetFaults {
    pub delay: Duration,
}

/// How a run ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The process dies: completed writes survive, those in flight land wholly, partly or not.
    Process,
    /// The machine dies: what was not synced survives wholly, partly or not.
    Power,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome<T> {
    Finished(T),
    Crashed(Crash),
    /// Nothing is left that could wake a task.
    Stuck,
}

/// A machine whose disk survives from run to run.
pub struct World {
    faults: Faults,
}

impl World {
    pub fn new(_seed: u64) -> World {
        World { faults: Faults::default() }
    }

    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    pub fn run<F, Fut, T>(&mut self, main: F) -> Outcome<T>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        drop(main);
        Outcome::Stuck
    }

    pub fn crash_after(&mut self, _ops: u64, _kind: Crash) {}

    pub fn trace_hash(&self) -> u64 {
        0
    }
}
