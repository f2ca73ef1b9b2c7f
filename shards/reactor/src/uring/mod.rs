//! The default backend: one ring per shard thread.
//!
//! Submission and completion happen only on the shard's own thread (SINGLE_ISSUER), completions
//! only when we ask for them (DEFER_TASKRUN), so nothing interrupts a task. Needs Linux 6.1.

mod bell;
mod driver;
mod helper;
mod ring;
mod signals;
mod slot;
mod sockets;

use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::thread::JoinHandle;

use crate::ShardSpec;
use crate::exec::{Halt, Runtime};

pub(crate) use bell::BellWire;
pub(crate) use helper::JobDone;

/// Runs `main` as a shard on the calling thread, which is pinned if the spec says so. Returns
/// when `main` does; tasks that still run are dropped.
pub fn run<F, Fut, T>(spec: &ShardSpec, main: F) -> io::Result<T>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    if let Some(cpu) = spec.cpu {
        pin(cpu)?;
    }
    let (driver, shared) = driver::UringDriver::new(spec)?;
    let runtime = Runtime::new(shared, Box::new(driver));
    runtime.block_on(main).map_err(|halt| match halt {
        Halt::Failed(e) => e,
        Halt::Simulated => io::ErrorKind::Interrupted.into(),
    })
}

/// Starts a shard on a thread of its own.
pub fn spawn_shard<F, Fut, T>(spec: ShardSpec, main: F) -> io::Result<JoinHandle<io::Result<T>>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(spec.name.clone()).spawn(move || run(&spec, main))
}

/// Can this process use io_uring as we need it? The error says what to change.
pub fn probe() -> io::Result<()> {
    ring::create(ring::ENTRIES_MIN).map(drop)
}

fn pin(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no cpu {cpu}")));
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot pin a shard to cpu {cpu}: {e}")))
}

/// Closes a descriptor whose shard is gone.
pub(crate) fn close_now(raw: i32) {
    // SAFETY: the caller owns the descriptor and gives it up.
    drop(unsafe { OwnedFd::from_raw_fd(raw) });
}
