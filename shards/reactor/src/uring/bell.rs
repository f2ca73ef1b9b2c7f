//! Waking a parked shard from another thread.
//!
//! Another shard sends a message from its own ring (it goes out with that shard's next
//! submission, no extra system call); any other thread writes the eventfd that the parked shard
//! reads.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::exec::context;
use crate::exec::shared::Unpark;

/// The two ways in. Holds the ring open, so that its descriptor cannot come to mean another.
pub(crate) struct BellWire {
    ring: OwnedFd,
    event: OwnedFd,
}

impl BellWire {
    pub(super) fn new(ring: BorrowedFd<'_>) -> io::Result<Self> {
        // Blocking, so that a read through the ring waits without polling.
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { ring: ring.try_clone_to_owned()?, event })
    }

    pub(super) fn ring(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(super) fn strike(&self) {
        // Fails only if the counter is full, and then the shard is being woken already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

pub(crate) struct Bell(pub(super) Arc<BellWire>);

impl Unpark for Bell {
    fn unpark(&self) {
        let rung = context::try_with(|rt| {
            rt.driver.try_borrow_mut().is_ok_and(|mut driver| driver.ring_peer(&self.0))
        });
        if rung != Some(true) {
            self.0.strike();
        }
    }
}
