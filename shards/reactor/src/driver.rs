//! The contract between the executor and a backend.
//!
//! A driver takes owned operations, gives each back exactly once with its result, and sleeps
//! until something happens. It never calls into the executor, and never drops an operation inside
//! its own methods once it has accepted it (destructors of handles come back to the driver).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::op::{Handle, Op};
use crate::time::Instant;
use crate::uring::{BellWire, JobDone};

/// Names an operation in flight: its slot in the executor's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Token(u32);

impl Token {
    pub(crate) fn new(index: usize) -> Self {
        debug_assert!(index < crate::exec::OPS_IN_FLIGHT_MAX + 1);
        Self(index as u32)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn raw(self) -> u32 {
        self.0
    }
}

/// The end of an operation: a count, a descriptor or zero, or a negated errno; and the operation
/// itself with its buffers and outputs.
pub(crate) struct Completion {
    pub(crate) result: i32,
    pub(crate) op: Op,
}

/// May a turn sleep?
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    No,
    /// Until a completion, a wake from elsewhere, or this instant.
    Until(Option<Instant>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Write,
    Both,
}

pub(crate) trait Driver {
    fn now(&mut self) -> Instant;
    fn wall_clock_ms(&mut self) -> i64;
    fn fill_random(&mut self, b: &mut [u8]);
    fn boot_id(&mut self) -> Option<[u8; 16]>;

    /// Accepts `op`; its completion comes out of a later turn, never from inside this call.
    fn submit(&mut self, token: Token, op: Op);
    /// Asks to end `token` early; it still completes exactly once.
    fn cancel(&mut self, token: Token);
    /// Closes a descriptor in the background.
    fn close(&mut self, raw: i32);

    /// Pushes what was submitted, collects what is done, sleeps if it may and nothing is there.
    fn turn(&mut self, wait: Wait, out: &mut Vec<(Token, Completion)>) -> io::Result<()>;
    /// Turns results of helper threads into completions.
    fn finish_jobs(&mut self, jobs: &mut Vec<JobDone>, out: &mut Vec<(Token, Completion)>);
    /// One step of the shutdown; true once nothing is in flight any more.
    fn drain(&mut self, out: &mut Vec<(Token, Completion)>) -> bool;

    fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<(Handle, SocketAddr)>;
    fn socket(&mut self, peer: &SocketAddr) -> io::Result<Handle>;
    fn local_addr(&mut self, socket: &Handle) -> io::Result<SocketAddr>;
    fn shutdown(&mut self, socket: &Handle, half: Half) -> io::Result<()>;
    /// Wraps a descriptor that an operation returned.
    fn adopt(&mut self, raw: i32) -> Handle;
    /// The number of the device that holds the file or directory behind a descriptor.
    fn device(&mut self, raw: i32) -> u64;

    /// A termination signal came for a wait that was given up: the next wait gets it.
    fn keep_signal(&mut self);

    /// Wakes another shard through this one's ring; false = not possible, ring the bell directly.
    fn ring_peer(&mut self, _bell: &Arc<BellWire>) -> bool {
        false
    }

    /// Does this driver schedule ready tasks itself (through `pick`)?
    fn shuffles(&self) -> bool {
        false
    }
    fn pick(&mut self, _ready: usize) -> usize {
        0
    }
    /// Calls into the kernel for submission and completion so far.
    fn enters(&self) -> u64 {
        0
    }
    /// Takes note of a scheduling decision, for the trace.
    fn observe(&mut self, _event: u64) {}
    /// Has the simulation ended the run?
    fn halted(&self) -> bool {
        false
    }
}
