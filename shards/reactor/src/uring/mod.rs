//! The default backend: one ring per shard thread.
//!
//! Submission and completion happen only on the shard's own thread (SINGLE_ISSUER), completions
//! only when we ask for them (DEFER_TASKRUN), so nothing interrupts a task. Needs Linux 6.1.

mod bell;
mod driver;
pub(crate) mod helper;
pub(crate) mod host;
mod ring;
pub(crate) mod signals;
mod slot;
pub(crate) mod sockets;

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

pub(crate) fn pin(cpu: usize) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::driver::UringDriver;
    use crate::exec::Runtime;
    use crate::{File, OpenOptions, ShardSpec, sleep, spawn};

    /// Runs with what an old kernel lacks switched off.
    fn on_an_old_kernel(spec: &ShardSpec, test: impl AsyncFnOnce() + 'static) {
        let (mut driver, shared) = UringDriver::new(spec).unwrap();
        driver.pretend_old_kernel();
        let runtime = Runtime::new(shared, Box::new(driver));
        assert!(runtime.block_on(|| async move { test().await }).is_ok());
    }

    #[test]
    fn truncation_falls_back_to_the_helper_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        on_an_old_kernel(&ShardSpec::default(), async move || {
            let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
            file.set_len(12_345).await.unwrap();
            assert_eq!(file.size().await.unwrap(), 12_345);
            // Dropped while the helper still works with the descriptor.
            let last = spawn(async move { file.set_len(54_321).await });
            crate::yield_now().await;
            drop(last);
        });
        assert_eq!(std::fs::metadata(dir.path().join("f")).unwrap().len(), 54_321);
    }

    #[test]
    fn peers_are_woken_by_eventfd_where_rings_cannot() {
        let mut handles = crate::mesh::<u32>(2, 1).into_iter();
        let (a, b) = (handles.next().unwrap(), handles.next().unwrap());
        let echo = std::thread::spawn(move || {
            on_an_old_kernel(&ShardSpec::default(), async move || {
                while let Some((from, i)) = b.recv().await {
                    let _ = b.send(from, i).await;
                }
            });
        });
        on_an_old_kernel(&ShardSpec::default(), async move || {
            for i in 0..1_000 {
                a.send(1, i).await.unwrap();
                assert_eq!(a.recv().await, Some((1, i)));
                if i % 100 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
        echo.join().unwrap();
    }
}
