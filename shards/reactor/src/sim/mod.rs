//! The simulated backend: one thread, virtual time, a seeded schedule, a disk and a network that
//! fail on request.
//!
//! Drives the same executor as the real one. A [`World`] is a machine; its disk survives from run
//! to run, so that a crash in one run is recovered from in the next. Everything random comes from
//! the world's seed: the same seed and the same program give the same history, which
//! [`World::trace_hash`] shows. Programs that want that must not iterate randomly seeded maps.

mod content;
mod disk;
mod driver;
mod faults;
mod files;
mod net;
mod rng;
mod state;

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::exec::shared::{ShardShared, Unpark};
use crate::exec::{Halt, Runtime};

pub use faults::{Delay, DiskFaults, Faults, NetFaults};
pub use rng::Choices;
use state::State;

/// How a run ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The process dies: completed writes survive, those in flight land wholly, partly or not.
    Process,
    /// The machine dies: what was not synced survives wholly, partly or not.
    Power,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    Finished(T),
    Crashed(Crash),
    /// Nothing is left that could wake a task, or the run's virtual time is used up.
    Stuck,
}

impl<T> Outcome<T> {
    /// The output of a run that must have finished.
    pub fn finished(self) -> Option<T> {
        match self {
            Outcome::Finished(output) => Some(output),
            Outcome::Crashed(_) | Outcome::Stuck => None,
        }
    }
}

/// A machine with a disk, a network, a clock and dice.
pub struct World {
    state: Rc<RefCell<State>>,
    faults: Faults,
}

impl World {
    pub fn new(seed: u64) -> World {
        World { state: Rc::new(RefCell::new(State::new(seed))), faults: Faults::default() }
    }

    /// What goes wrong, to be changed between runs; within one there is [`with_faults`].
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Runs `main` as a program started afresh on this machine: no descriptor, task or connection
    /// survives an earlier run, files do.
    pub fn run<F, Fut, T>(&mut self, main: F) -> Outcome<T>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        self.state.borrow_mut().start(&self.faults);
        let _active = Active::set(&self.state);
        let driver = driver::SimDriver::new(Rc::clone(&self.state));
        let runtime = Runtime::new(ShardShared::new(Box::new(NoBell)), Box::new(driver));
        let outcome = runtime.block_on(main);
        self.faults = self.state.borrow_mut().end();
        match outcome {
            Ok(output) => Outcome::Finished(output),
            Err(Halt::Simulated | Halt::Failed(_)) => match self.state.borrow().crashed {
                Some(kind) => Outcome::Crashed(kind),
                None => Outcome::Stuck,
            },
        }
    }

    /// Crashes during the `ops`-th file operation from now on (1 = the next).
    pub fn crash_after(&mut self, ops: u64, kind: Crash) {
        self.state.borrow_mut().plan_crash(ops, kind);
    }

    /// File operations done so far, in all runs: where a crash can be placed.
    pub fn file_ops(&self) -> u64 {
        self.state.borrow().file_ops
    }

    /// Delivers SIGTERM to the program `after` that much virtual time of the next run.
    pub fn terminate_after(&mut self, after: Duration) {
        self.state.borrow_mut().terminate_after = Some(after);
    }

    /// Virtual time a run may take before it counts as stuck; a day at first.
    pub fn limit_time(&mut self, limit: Duration) {
        self.state.borrow_mut().time_limit = limit;
    }

    /// A digest of everything that happened: schedule, results, times.
    pub fn trace_hash(&self) -> u64 {
        self.state.borrow().trace
    }

    /// The files, for assertions.
    pub fn disk(&self) -> DiskView<'_> {
        DiskView { world: self }
    }

    /// Flips bits of one byte of a file, on the device too.
    pub fn corrupt(&mut self, path: &Path, offset: u64, xor: u8) -> std::io::Result<()> {
        let disk = &mut self.state.borrow_mut().disk;
        let corrupted = disk.lookup(path).and_then(|ino| disk.corrupt(ino, offset, xor));
        corrupted.map_err(std::io::Error::from_raw_os_error)
    }

    /// What the program reads from its standard input in later runs.
    pub fn set_stdin(&mut self, input: &[u8]) {
        self.state.borrow_mut().stdin = input.to_vec();
    }

    /// What the program has written to its standard output, in all runs.
    pub fn stdout(&self) -> Vec<u8> {
        self.state.borrow().stdout.clone()
    }
}

/// A look at the disk of a world between runs.
pub struct DiskView<'w> {
    world: &'w World,
}

impl DiskView<'_> {
    /// Every file with its size, sorted by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.world.state.borrow();
        let size = |ino| state.disk.metadata(ino).map(|m| m.size).unwrap_or(0);
        state.disk.walk().into_iter().map(|(path, ino)| (path, size(ino))).collect()
    }

    /// What a program would read.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = &self.world.state.borrow().disk;
        disk.live(disk.lookup(path).ok()?)
    }

    /// What of the file survives a power cut for certain.
    pub fn durable(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = &self.world.state.borrow().disk;
        disk.durable(disk.lookup(path).ok()?)
    }
}

/// Changes what goes wrong, from inside a run. `None` outside of a simulation.
pub fn with_faults<R>(change: impl FnOnce(&mut Faults) -> R) -> Option<R> {
    let state = active()?;
    let mut state = state.borrow_mut();
    Some(change(&mut state.faults))
}

/// As [`World::crash_after`], from inside a run. False outside of a simulation.
pub fn crash_after(ops: u64, kind: Crash) -> bool {
    active().is_some_and(|state| {
        state.borrow_mut().plan_crash(ops, kind);
        true
    })
}

/// Cuts every connection that was made through that server port, from inside a run: both ends see
/// a reset. False outside of a simulation.
pub fn cut_connections(port: u16) -> bool {
    active().is_some_and(|state| {
        state.borrow_mut().cut(port);
        true
    })
}

/// The caller keeps its shard busy for so long: time passes, and nothing is looked at meanwhile.
/// False outside of a simulation.
pub fn stand_still(time: Duration) -> bool {
    active().is_some_and(|state| {
        state.borrow_mut().clock += time;
        true
    })
}

thread_local! {
    static ACTIVE: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

fn active() -> Option<Rc<RefCell<State>>> {
    ACTIVE.with(|a| a.borrow().clone())
}

struct Active;

impl Active {
    fn set(state: &Rc<RefCell<State>>) -> Self {
        ACTIVE.with(|a| *a.borrow_mut() = Some(Rc::clone(state)));
        Self
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.with(|a| *a.borrow_mut() = None);
    }
}

/// A simulated shard never sleeps for real, so nobody has to wake it.
struct NoBell;

impl Unpark for NoBell {
    fn unpark(&self) {}
}
