//! A second backend: the same executor as one task of glommio's, files and sockets through glommio.
//!
//! glommio's executor runs the loop below as its only task but a heartbeat, submits and collects
//! operations, keeps the clock for sleeps, and wakes the shard from other threads. Tasks, classes, disk
//! queues and mesh stay ours, so that the conformance tests mean the same here. Optional, see
//! docs/adr/0008; README.md lists what glommio does not offer and what happens instead.

mod board;
mod driver;
mod files;
mod sockets;
mod streams;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use glommio::timer::Timer;
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};

use self::board::Board;
use self::driver::{GlommioDriver, Seat};
use crate::ShardSpec;
use crate::exec::shared::ShardShared;
use crate::exec::{Batch, Halt, Runtime, Task, context, spawn};
use crate::time::Instant;
use crate::uring::host::monotonic_now;

/// Threads of glommio's for calls that wait, per shard.
const BLOCKING_THREADS: usize = 4;

const RING_ENTRIES_MIN: u32 = 32;
const RING_ENTRIES_MAX: u32 = 4096;

/// How long the shard runs before glommio gets to submit and collect.
const SLICE: Duration = Duration::from_micros(500);

/// glommio can sleep with tasks that are ready: its loop takes a stray event of its own for "nothing to
/// run". The first of these bounds that; the others are for the case that the first is what it forgets.
const HEARTBEATS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100)];

/// How often a shutdown looks whether the rest has ended.
const DRAIN_STEP: Duration = Duration::from_millis(50);

/// Rounds in which glommio submits the closes and cancellations of a shard that has ended.
const LAST_ROUNDS: usize = 3;

/// Longer than any rest.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

type Panic = Box<dyn Any + Send>;

/// As [`crate::uring::run`], on glommio.
pub fn run<F, Fut, T>(spec: &ShardSpec, main: F) -> io::Result<T>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let executor = executor(spec)?;
    let seat = Rc::new(Seat::default());
    let ended = executor.run(shard(Rc::clone(&seat), main));
    if seat.leaked.get() {
        mem::forget(executor);
    }
    match ended {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// As [`crate::uring::spawn_shard`], on glommio.
pub fn spawn_shard<F, Fut, T>(spec: ShardSpec, main: F) -> io::Result<JoinHandle<io::Result<T>>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(spec.name.clone()).spawn(move || run(&spec, main))
}

/// Can this process use glommio? The error says what to change.
pub fn probe() -> io::Result<()> {
    // glommio ends the process on a kernel without io_uring: ask ourselves first.
    crate::uring::probe()?;
    executor(&ShardSpec { ring_entries: RING_ENTRIES_MIN, ..ShardSpec::default() }).map(drop)
}

fn executor(spec: &ShardSpec) -> io::Result<LocalExecutor> {
    let entries = match spec.ring_entries {
        0 => crate::DEFAULT_RING_ENTRIES,
        entries => entries.clamp(RING_ENTRIES_MIN, RING_ENTRIES_MAX).next_power_of_two(),
    };
    if let Some(cpu) = spec.cpu {
        // glommio would bind it too, but with an error that does not say what is wrong.
        crate::uring::pin(cpu)?;
    }
    crate::workers::allow_here()?;
    let placement = spec.cpu.map_or(Placement::Unbound, Placement::Fixed);
    let builder = LocalExecutorBuilder::new(placement)
        .name(&spec.name)
        .ring_depth(entries as usize)
        .spin_before_park(spec.spin)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(BLOCKING_THREADS));
    builder.make().map_err(|e| {
        let remedy = "glommio cannot start: it wants io_uring, three rings a shard and 512 KiB of \
                      locked memory (ulimit -l)";
        io::Error::other(format!("{remedy}: {e}"))
    })
}

/// The glommio task that is the shard.
async fn shard<F, Fut, T>(seat: Rc<Seat>, main: F) -> Result<io::Result<T>, Panic>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let board = Arc::new(Board::default());
    board.attach(poll_fn(|cx| Poll::Ready(cx.waker().clone())).await);
    glommio::spawn_local(heartbeat()).detach();
    let (driver, shared) = GlommioDriver::new(Rc::clone(&seat), Arc::clone(&board));
    let life = Life { runtime: Runtime::new(shared, Box::new(driver)), seat, board };
    let entered = context::enter(&life.runtime);
    let ended = life.live(main).await;
    life.end().await;
    life.board.detach();
    drop(entered);
    ended
}

struct Life {
    runtime: Rc<Runtime>,
    seat: Rc<Seat>,
    board: Arc<Board>,
}

impl Life {
    async fn live<F, Fut, T>(&self, main: F) -> Result<io::Result<T>, Panic>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        let main: Task<T> = catch_unwind(AssertUnwindSafe(|| spawn(main())))?;
        let mut batch = Batch::default();
        let mut since = monotonic_now();
        loop {
            // glommio must go on until our operations have ended, so a panic waits until then.
            let step = AssertUnwindSafe(|| self.runtime.step(&main, &mut batch));
            match catch_unwind(step)? {
                Ok(Some(output)) => return Ok(Ok(output)),
                Ok(None) => {}
                Err(Halt::Failed(e)) => return Ok(Err(e)),
                Err(Halt::Simulated) => return Ok(Err(io::ErrorKind::Interrupted.into())),
            }
            let rested = match self.seat.rest.take() {
                Some(until) => rest(&self.runtime.shared, &self.board, until).await,
                None => false,
            };
            if rested {
                since = monotonic_now();
            } else if monotonic_now() - since >= SLICE {
                let_glommio_run().await;
                since = monotonic_now();
            }
        }
    }

    /// Drops what still runs and waits until the kernel holds none of our memory.
    async fn end(&self) {
        self.runtime.begin_stop();
        while !self.runtime.stop_step() {
            let until = monotonic_now() + DRAIN_STEP;
            rest(&self.runtime.shared, &self.board, Some(until)).await;
        }
        for _ in 0..LAST_ROUNDS {
            let_glommio_run().await;
        }
    }
}

/// Sleeps until something is woken, in the inbox, or due; false = it was so already.
async fn rest(shared: &Arc<ShardShared>, board: &Arc<Board>, until: Option<Instant>) -> bool {
    if !shared.prepare_park() {
        return false;
    }
    let mut timer = None;
    let mut slept = false;
    poll_fn(|cx| {
        let left = until.map(|until| (until - monotonic_now()).min(SLEEP_MAX));
        if board.has_woken() || shared.has_pending() || left == Some(Duration::ZERO) {
            return Poll::Ready(());
        }
        slept = true;
        let Some(left) = left else { return Poll::Pending };
        Pin::new(timer.insert(Timer::new(left))).poll(cx).map(drop)
    })
    .await;
    shared.finish_park();
    slept
}

/// Gives glommio one round of its loop. Its own yield only goes to other tasks, and with a task ready it
/// does no I/O before its preemption timer fires: so this waits for a timer that is due already.
async fn let_glommio_run() {
    let mut timer = Timer::new(SLEEP_MAX);
    let mut armed = false;
    poll_fn(|cx| {
        if mem::replace(&mut armed, true) {
            return Poll::Ready(());
        }
        let _ = Pin::new(&mut timer).poll(cx);
        timer.reset(Duration::ZERO);
        Poll::Pending
    })
    .await;
}

async fn heartbeat() {
    let mut timers = Vec::with_capacity(HEARTBEATS.len());
    poll_fn(move |cx: &mut Context<'_>| {
        timers.clear();
        timers.extend(HEARTBEATS.map(Timer::new));
        for timer in &mut timers {
            let _ = Pin::new(timer).poll(cx);
        }
        Poll::<()>::Pending
    })
    .await;
}
