//! Waiting for each other within one shard: no atomics, no locks, no other thread.

mod channel;
mod notify;
mod oneshot;
mod semaphore;

pub use channel::{Receiver, Sender, TrySendError, channel};
pub use notify::{Notified, Notify};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use semaphore::{Acquire, Permit, Semaphore};

use std::fmt;

/// A budget of bytes: the same thing as a semaphore, named for its unit.
pub type ByteBudget = Semaphore;

/// The other end is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end is gone")
    }
}

impl std::error::Error for Closed {}
