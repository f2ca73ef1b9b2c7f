//! Operations: everything a shard asks the machine to do, as owned values.
//!
//! An operation carries its buffers and its descriptor; the driver gives it back with the result.
//! [`run`] is the one way to await one: if its future is dropped, the operation stays with the
//! driver until it completes, so the kernel never writes to memory that was given away.

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::buf::AlignedBuf;
use crate::disk_queue::DiskId;
use crate::driver::{Completion, Token};
use crate::exec::{Runtime, context};
use crate::file::{Allocate, OpenOptions, WriteBuf};
use crate::fs::{DirEntry, Metadata, Space};

/// Times an operation that ends with EINTR, EAGAIN or not begun is submitted again before the error
/// stands: at once for a start, then every millisecond.
const RESUBMIT_MAX: u32 = 1_000;
const RESUBMIT_AT_ONCE: u32 = 8;
const RESUBMIT_PAUSE: Duration = Duration::from_millis(1);

pub(crate) enum Op {
    Open { path: OpPath, options: OpenOptions },
    OpenDir { path: OpPath },
    Close { handle: Raw },
    Read { file: Handle, buf: AlignedBuf, filled: usize, offset: u64 },
    Write { file: Handle, bufs: SmallVec<[WriteBuf; 2]>, done: usize, offset: u64, sync: bool },
    Sync { file: Handle, data_only: bool },
    SetLen { file: Handle, len: u64 },
    Allocate { file: Handle, offset: u64, len: u64, mode: Allocate },
    StatFile { file: Handle, out: Option<Metadata> },
    StatPath { path: OpPath, out: Option<Metadata> },
    Rename { from: OpPath, to: OpPath },
    Remove { path: OpPath, directory: bool },
    MakeDir { path: OpPath },
    ReadDir { path: OpPath, out: Vec<DirEntry> },
    Space { path: OpPath, out: Option<Space> },
    SyncDisk { path: OpPath, watch: Option<Handle> },
    Lock { path: OpPath },
    Resolve { host: String, port: u16, out: Vec<SocketAddr> },
    Accept { listener: Handle, peer: Option<SocketAddr> },
    Connect { socket: Handle, addr: SocketAddr },
    Receive { socket: Handle, buf: BytesMut },
    Send { socket: Handle, bufs: Vec<Bytes>, done: usize },
    Readable { socket: Handle },
    Input { buf: BytesMut },
    Output { buf: Bytes, done: usize },
    Termination,
}

/// A bare descriptor number, owned by whoever holds the value.
pub(crate) type Raw = i32;

impl Op {
    /// Operations that may last forever are cancelled with their future; others run to their end.
    pub(crate) fn is_cancellable(&self) -> bool {
        matches!(
            self,
            Op::Accept { .. }
                | Op::Connect { .. }
                | Op::Receive { .. }
                | Op::Send { .. }
                | Op::Readable { .. }
                | Op::Input { .. }
                | Op::Output { .. }
                | Op::Termination
        )
    }

    /// Does this result only ask to try again?
    fn resubmits(&self, result: i32) -> bool {
        match -result {
            libc::EINTR => !matches!(self, Op::Close { .. }),
            // A lock that is taken, or an input opened as non-blocking, is an answer.
            libc::EAGAIN => !matches!(self, Op::Lock { .. } | Op::Input { .. } | Op::Output { .. }),
            // Nobody here cancels these. The kernel gives back what it has not begun when it cannot
            // make a worker thread for it, as when a signal comes at that moment.
            libc::ECANCELED => !(self.is_cancellable() || matches!(self, Op::Close { .. })),
            _ => false,
        }
    }

    /// Is a non-negative result a descriptor that someone must close?
    pub(crate) fn gives_descriptor(&self) -> bool {
        matches!(self, Op::Open { .. } | Op::OpenDir { .. } | Op::Lock { .. } | Op::Accept { .. })
    }
}

/// A path that can go to the kernel.
#[derive(Clone, Debug)]
pub(crate) struct OpPath(CString);

impl OpPath {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        CString::new(path.as_os_str().as_bytes()).map(Self).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("path {} contains a zero byte", path.display()),
            )
        })
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.as_bytes()))
    }

    pub(crate) fn as_c_str(&self) -> &std::ffi::CStr {
        &self.0
    }
}

/// A shared descriptor; closed in the background when the last holder (operations in flight
/// included) lets go.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Descriptor>);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    Kernel,
    Simulated,
}

struct Descriptor {
    raw: Raw,
    world: World,
    disk: Cell<DiskId>,
}

impl Handle {
    pub(crate) fn new(raw: Raw, world: World) -> Self {
        Self(Rc::new(Descriptor { raw, world, disk: Cell::default() }))
    }

    /// Wraps the descriptor of a file or directory that was just opened.
    pub(crate) fn of_file(raw: Raw) -> Self {
        context::with(|rt| {
            let (handle, device) = {
                let mut driver = rt.driver.borrow_mut();
                (driver.adopt(raw), driver.device(raw))
            };
            handle.0.disk.set(rt.disks.borrow_mut().of_device(device));
            handle
        })
    }

    /// Whose queue its operations go through.
    pub(crate) fn disk(&self) -> DiskId {
        self.0.disk.get()
    }

    pub(crate) fn raw(&self) -> Raw {
        self.0.raw
    }

    /// The bare descriptor if nobody else holds it, with the duty to close it.
    pub(crate) fn into_raw(self) -> Option<Raw> {
        let descriptor = Rc::try_unwrap(self.0).ok()?;
        let raw = descriptor.raw;
        mem::forget(descriptor);
        Some(raw)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let closed = context::try_with(|rt| rt.driver.borrow_mut().close(self.raw));
        if closed.is_none() && self.world == World::Kernel {
            // No shard runs here any more, so nothing can be held up.
            crate::uring::close_now(self.raw);
        }
    }
}

/// Submits `op` and awaits its end; what the kernel asks to try again is, here, once for all.
pub(crate) async fn run(op: Op) -> (io::Result<u32>, Op) {
    let mut op = op;
    for attempt in 0..RESUBMIT_MAX {
        let completion = InFlight::new(op).await;
        match completion.result {
            r if completion.op.resubmits(r) => {
                op = completion.op;
                if attempt < RESUBMIT_AT_ONCE {
                    crate::exec::yield_now().await;
                } else {
                    crate::time::sleep(RESUBMIT_PAUSE).await;
                }
            }
            r if r < 0 => return (Err(io::Error::from_raw_os_error(-r)), completion.op),
            r => return (Ok(r as u32), completion.op),
        }
    }
    (Err(io::Error::from_raw_os_error(libc::EAGAIN)), op)
}

struct InFlight {
    runtime: Rc<Runtime>,
    cancellable: bool,
    state: State,
}

enum State {
    Waiting(Token),
    Refused(Op),
    Finished,
}

impl InFlight {
    fn new(op: Op) -> Self {
        let runtime = context::current();
        let cancellable = op.is_cancellable();
        let state = match runtime.submit(op) {
            Ok(token) => State::Waiting(token),
            Err(op) => State::Refused(op),
        };
        Self { runtime, cancellable, state }
    }
}

impl Future for InFlight {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        match mem::replace(&mut self.state, State::Finished) {
            State::Refused(op) => Poll::Ready(Completion { result: -libc::ENOBUFS, op }),
            State::Finished => panic!("an operation was polled after its end"),
            State::Waiting(token) => {
                let mut ops = self.runtime.ops.borrow_mut();
                let entry = &mut ops[token.index()];
                if let Some(completion) = entry.done.take() {
                    ops.remove(token.index());
                    return Poll::Ready(completion);
                }
                match &mut entry.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                drop(ops);
                self.state = State::Waiting(token);
                Poll::Pending
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let State::Waiting(token) = self.state {
            self.runtime.abandon(token, self.cancellable);
        }
    }
}
