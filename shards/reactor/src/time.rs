//! The shard's clock: monotonic instants, the wall clock, timers and random numbers.
//!
//! Real on the `uring` backend, virtual and seeded under `sim`. Lives on the shard; never blocks.

use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::exec::context;
use crate::exec::{Runtime, TimerKey};

/// A point on the shard's monotonic clock, in nanoseconds. Comparable only within one process
/// (one [`crate::sim::World`] under simulation).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn saturating_duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time that has passed since this instant.
    pub fn elapsed(self) -> Duration {
        now() - self
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Saturates at the end of time, so that `now() + Duration::MAX` means never.
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The current instant of the shard's monotonic clock.
pub fn now() -> Instant {
    context::with(|rt| rt.driver.borrow_mut().now())
}

/// Milliseconds since the Unix epoch, from the wall clock (may step backwards).
pub fn wall_clock_ms() -> i64 {
    context::with(|rt| rt.driver.borrow_mut().wall_clock_ms())
}

/// Fills `b` with random bytes fit for identifiers (seeded under simulation).
pub fn fill_random(b: &mut [u8]) {
    context::with(|rt| rt.driver.borrow_mut().fill_random(b));
}

/// A random number fit for identifiers (seeded under simulation).
pub fn random_u64() -> u64 {
    let mut b = [0; 8];
    fill_random(&mut b);
    u64::from_le_bytes(b)
}

/// Which start of the machine this is: while it stays the same, no name and no byte that the kernel
/// has taken is lost. `None` if the kernel does not say.
pub fn boot_id() -> Option<[u8; 16]> {
    context::with(|rt| rt.driver.borrow_mut().boot_id())
}

/// Resolves once `d` has passed.
pub fn sleep(d: Duration) -> Sleep {
    let runtime = context::current();
    let deadline = runtime.driver.borrow_mut().now() + d;
    Sleep { runtime, deadline, key: None }
}

/// Resolves at `deadline`, at once if it has passed.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { runtime: context::current(), deadline, key: None }
}

/// Future of [`sleep`] and [`sleep_until`]; dropping it removes the timer.
pub struct Sleep {
    runtime: Rc<Runtime>,
    deadline: Instant,
    key: Option<TimerKey>,
}

impl Sleep {
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.runtime.driver.borrow_mut().now();
        if now >= self.deadline {
            return Poll::Ready(());
        }
        let mut timers = self.runtime.timers.borrow_mut();
        let key = timers.arm(self.key, self.deadline, cx.waker());
        drop(timers);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.runtime.timers.borrow_mut().disarm(key);
            drop(waker);
        }
    }
}

/// The time given to [`timeout`] passed before the future was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for TimedOut {}

impl From<TimedOut> for std::io::Error {
    fn from(_: TimedOut) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Runs `f` for at most `d`, then drops it.
pub async fn timeout<F: Future>(d: Duration, f: F) -> Result<F::Output, TimedOut> {
    within(sleep(d), f).await
}

/// Runs `f` until `deadline` at the latest, then drops it.
pub async fn timeout_at<F: Future>(deadline: Instant, f: F) -> Result<F::Output, TimedOut> {
    within(sleep_until(deadline), f).await
}

async fn within<F: Future>(limit: Sleep, f: F) -> Result<F::Output, TimedOut> {
    match crate::exec::race(f, limit).await {
        crate::exec::Either::Left(output) => Ok(output),
        crate::exec::Either::Right(()) => Err(TimedOut),
    }
}
