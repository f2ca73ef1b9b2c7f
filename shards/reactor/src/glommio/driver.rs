//! The driver over glommio: an operation is a small state machine that is polled when glommio wakes it.
//!
//! Lives inside the one glommio task that is its shard. A turn never sleeps: it says in its [`Seat`] how
//! long the shard may rest, and the loop around it (`mod.rs`) awaits that. Descriptors belong to
//! glommio's own objects; the handles above name them by number.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::board::{Bell, Board, OpWaker};
use super::files::{self, Answer, Errno, File, Running, Settled};
use super::sockets::{self, Listener, Stream};
use super::streams::{self, Signal};
use crate::driver::{Completion, Driver, Half, Token, Wait};
use crate::exec::shared::ShardShared;
use crate::op::{Handle, Op, World};
use crate::time::Instant;
use crate::uring::helper::{self, Job, JobDone, Request};
use crate::uring::host::{self, monotonic_now};
use crate::uring::{close_now, sockets as raw_sockets};

/// How long a shutdown waits for operations that do not end (a device that hangs).
const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// Number of the waker that only wakes the shard.
const NO_SLOT: usize = usize::MAX;

/// What the driver leaves for the loop around it.
#[derive(Default)]
pub(super) struct Seat {
    /// Nothing is ready: the shard may rest, until this instant if there is one.
    pub(super) rest: Cell<Option<Option<Instant>>>,
    /// Operations did not end; glommio's memory must stay.
    pub(super) leaked: Cell<bool>,
}

pub(super) struct GlommioDriver {
    seat: Rc<Seat>,
    board: Arc<Board>,
    shared: Arc<ShardShared>,
    /// By token.
    slots: Vec<Option<Box<Slot>>>,
    /// What is open, by descriptor.
    open: Vec<Option<Open>>,
    settled: Settled,
    /// Operations that ended otherwise than by being polled.
    finished: Vec<(Token, Completion)>,
    woken: Vec<usize>,
    /// Listeners that are closed, but for a wait of glommio's.
    closing: Vec<Rc<Listener>>,
    signal: Signal,
    /// Wakes the shard, for what is polled every turn.
    any_wake: Arc<OpWaker>,
    random: host::Random,
    draining_since: Option<Instant>,
}

struct Slot {
    op: Option<Op>,
    work: Work,
    generation: u32,
    wake: Arc<OpWaker>,
    waker: Waker,
}

enum Work {
    Nothing,
    /// At a helper thread.
    Job,
    Running(Running),
    Receive(Rc<Stream>),
    Send(Rc<Stream>, Cell<usize>),
    Accept(Rc<Listener>),
    Termination,
}

/// What a descriptor is to glommio.
enum Open {
    File(File),
    Stream(Rc<Stream>),
    Listener(Rc<Listener>),
    /// A socket that is not connected yet.
    Bare,
}

impl GlommioDriver {
    pub(super) fn new(seat: Rc<Seat>, board: Arc<Board>) -> (Self, Arc<ShardShared>) {
        let shared = ShardShared::new(Box::new(Bell(Arc::clone(&board))));
        let driver = Self {
            seat,
            shared: Arc::clone(&shared),
            slots: Vec::new(),
            open: Vec::new(),
            settled: Rc::new(RefCell::new(HashSet::new())),
            finished: Vec::new(),
            woken: Vec::new(),
            closing: Vec::new(),
            signal: Signal::default(),
            any_wake: OpWaker::new(&board, NO_SLOT),
            board,
            random: host::Random::default(),
            draining_since: None,
        };
        (driver, shared)
    }

    fn file(&self, handle: &Handle) -> Result<File, Errno> {
        match self.at(handle.raw()) {
            Some(Open::File(file)) => Ok(file.clone()),
            _ => Err(-libc::EBADF),
        }
    }

    fn stream(&self, handle: &Handle) -> Result<Rc<Stream>, Errno> {
        match self.at(handle.raw()) {
            Some(Open::Stream(stream)) => Ok(Rc::clone(stream)),
            Some(Open::Bare) => Err(-libc::ENOTCONN),
            _ => Err(-libc::ENOTSOCK),
        }
    }

    fn at(&self, raw: i32) -> Option<&Open> {
        usize::try_from(raw).ok().and_then(|i| self.open.get(i)).and_then(Option::as_ref)
    }

    fn keep(&mut self, raw: i32, open: Open) {
        let Ok(index) = usize::try_from(raw) else { return };
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(open);
    }

    fn give_up(&mut self, raw: i32) -> Option<Open> {
        usize::try_from(raw).ok().and_then(|i| self.open.get_mut(i)).and_then(Option::take)
    }

    /// Asks glommio for what `op` wants.
    fn begin(&mut self, op: &Op) -> Result<Work, Errno> {
        Ok(match op {
            Op::Receive { socket, .. } => Work::Receive(self.stream(socket)?),
            Op::Send { socket, .. } => Work::Send(self.stream(socket)?, Cell::new(0)),
            Op::Accept { listener, .. } => match self.at(listener.raw()) {
                Some(Open::Listener(listener)) => Work::Accept(Rc::clone(listener)),
                _ => return Err(-libc::ENOTSOCK),
            },
            Op::Readable { socket } => Work::Running(sockets::readable(socket.raw())?),
            Op::Connect { addr, .. } => Work::Running(sockets::connect(*addr)),
            Op::Termination => {
                self.signal.arm()?;
                Work::Termination
            }
            Op::Input { buf } => Work::Running(streams::input(buf.capacity() - buf.len())?),
            Op::Output { buf, done } => Work::Running(streams::output(&buf[*done..])?),
            _ => Work::Running(self.begin_file(op)?),
        })
    }

    fn begin_file(&mut self, op: &Op) -> Result<Running, Errno> {
        Ok(match op {
            Op::Open { path, options } => files::open(path, *options, &self.settled),
            Op::OpenDir { path } => files::open_directory(path),
            Op::Close { handle } => match self.give_up(*handle) {
                Some(Open::File(file)) => files::close(file),
                other => {
                    self.drop_open(*handle, other);
                    Box::pin(async { Answer::Number(Ok(0)) })
                }
            },
            Op::Read { file, buf, filled, offset } => {
                files::read(self.file(file)?, *offset, buf.capacity() - *filled)
            }
            Op::Write { file, bufs, done, offset, sync } => {
                files::write(self.file(file)?, bufs, *done, *offset, *sync)
            }
            Op::Sync { file, data_only } => files::sync(self.file(file)?, *data_only),
            Op::SetLen { file, len } => files::set_len(self.file(file)?, *len),
            Op::Allocate { file, offset, len, mode } => {
                files::allocate(self.file(file)?, *offset, *len, *mode)
            }
            Op::StatFile { file, .. } => {
                let answer = files::stat_file(&self.file(file)?);
                Box::pin(async { answer })
            }
            Op::StatPath { path, .. } => files::stat_path(path),
            Op::Rename { from, to } => files::rename(from, to),
            Op::Remove { path, directory } => files::remove(path, *directory),
            Op::MakeDir { path } => files::make_directory(path),
            _ => return Err(-libc::ENOSYS),
        })
    }

    fn occupy(&mut self, token: Token, op: Op, work: Work) -> &mut Slot {
        let index = token.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let board = &self.board;
        let slot = self.slots[index].get_or_insert_with(|| {
            let wake = OpWaker::new(board, index);
            let waker = Waker::from(Arc::clone(&wake));
            Box::new(Slot { op: None, work: Work::Nothing, generation: 0, wake, waker })
        });
        debug_assert!(slot.op.is_none());
        slot.op = Some(op);
        slot.work = work;
        slot.generation = slot.generation.wrapping_add(1);
        slot
    }

    /// Polls the operation in a slot, if there is one that goes on by being polled.
    fn advance(&mut self, index: usize, out: &mut Vec<(Token, Completion)>) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        slot.wake.clear();
        let Some(mut op) = slot.op.take() else { return };
        let mut work = mem::replace(&mut slot.work, Work::Nothing);
        let waker = slot.waker.clone();
        let polled = self.poll(&mut op, &mut work, &mut Context::from_waker(&waker));
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        match polled {
            Poll::Ready(result) => out.push((Token::new(index), Completion { result, op })),
            Poll::Pending => {
                slot.op = Some(op);
                slot.work = work;
            }
        }
    }

    fn poll(&mut self, op: &mut Op, work: &mut Work, cx: &mut Context<'_>) -> Poll<i32> {
        match (work, op) {
            (Work::Receive(stream), Op::Receive { buf, .. }) => {
                stream.receive(cx, buf).map(as_result)
            }
            (Work::Send(stream, sent), Op::Send { bufs, done, .. }) => {
                stream.send(cx, bufs, *done, sent).map(as_result)
            }
            (Work::Accept(listener), Op::Accept { peer, .. }) => {
                listener.accept(cx).map(|accepted| match accepted {
                    Ok((stream, addr)) => {
                        let raw = stream.as_raw_fd();
                        *peer = Some(addr);
                        self.keep(raw, Open::Stream(Stream::new(stream)));
                        raw
                    }
                    Err(errno) => errno,
                })
            }
            (Work::Termination, _) => self.signal.poll(cx),
            (Work::Running(running), op) => {
                running.as_mut().poll(cx).map(|answer| self.conclude(op, answer))
            }
            // A helper thread's result comes through the inbox.
            (Work::Job | Work::Nothing, _) => Poll::Pending,
            _ => unreachable!("an operation keeps its kind"),
        }
    }

    /// Puts an answer of glommio's into the operation that asked.
    fn conclude(&mut self, op: &mut Op, answer: Answer) -> i32 {
        match (answer, op) {
            (Answer::Bytes(read), Op::Read { buf, filled, .. }) => as_result(read.map(|bytes| {
                let end = *filled + bytes.len();
                buf.whole_mut()[*filled..end].copy_from_slice(&bytes);
                buf.set_len(end.max(buf.len()));
                bytes.len() as u32
            })),
            (Answer::Bytes(read), Op::Input { buf }) => as_result(read.map(|bytes| {
                streams::advance_input(bytes.len());
                buf.extend_from_slice(&bytes);
                bytes.len() as u32
            })),
            (Answer::Opened(opened), _) => match opened {
                Ok(file) => {
                    let raw = file.raw();
                    self.keep(raw, Open::File(file));
                    raw
                }
                Err(errno) => errno,
            },
            (Answer::Connected(connected), Op::Connect { socket, .. }) => {
                match connected.and_then(|connected| connected.settle_at(socket.raw())) {
                    Ok(stream) => {
                        self.keep(socket.raw(), Open::Stream(stream));
                        0
                    }
                    Err(errno) => errno,
                }
            }
            (Answer::Metadata(found), Op::StatFile { out, .. } | Op::StatPath { out, .. }) => {
                as_result(found.map(|metadata| {
                    *out = Some(metadata);
                    0
                }))
            }
            (Answer::Number(result), _) => as_result(result),
            _ => unreachable!("an answer is of its operation's kind"),
        }
    }

    fn advance_all(&mut self, out: &mut Vec<(Token, Completion)>) {
        out.append(&mut self.finished);
        let mut woken = mem::take(&mut self.woken);
        self.board.take(&mut woken);
        for index in woken.drain(..) {
            self.advance(index, out);
        }
        // Nothing was woken into the field meanwhile but by `submit`, which is not called in here.
        self.woken = woken;
        if !self.closing.is_empty() {
            self.any_wake.clear();
            let waker = Waker::from(Arc::clone(&self.any_wake));
            let mut cx = Context::from_waker(&waker);
            self.closing.retain(|listener| listener.accept(&mut cx).is_pending());
        }
    }

    fn start_job(&mut self, token: Token, op: Op, job: Job) {
        let generation = self.occupy(token, op, Work::Job).generation;
        let shared = Arc::clone(&self.shared);
        if !helper::submit(Request { shared, token, generation, job }) {
            self.finish_early(token, libc::EBUSY);
        }
    }

    fn finish_early(&mut self, token: Token, errno: i32) {
        let Some(slot) = self.slots.get_mut(token.index()).and_then(Option::as_mut) else { return };
        slot.work = Work::Nothing;
        if let Some(op) = slot.op.take() {
            self.finished.push((token, Completion { result: -errno, op }));
        }
    }

    fn drop_open(&mut self, raw: i32, open: Option<Open>) {
        match open {
            Some(Open::Listener(listener)) if listener.is_accepting() => {
                // Ends glommio's wait, which holds the socket and might still take a connection.
                let _ = raw_sockets::end(raw, Half::Both);
                self.closing.push(listener);
            }
            Some(Open::Bare) | None => close_now(raw),
            other => drop(other),
        }
    }

    /// Gives back every operation that waits for a peer, or for a helper that owns what it needs.
    fn stop(&mut self) {
        self.draining_since = Some(monotonic_now());
        self.signal.disarm();
        for index in 0..self.slots.len() {
            let Some(slot) = &self.slots[index] else { continue };
            let is_job = matches!(slot.work, Work::Job);
            if slot.op.as_ref().is_some_and(|op| is_job || op.is_cancellable()) {
                self.finish_early(Token::new(index), libc::ECANCELED);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        let idle = self.slots.iter().flatten().all(|slot| slot.op.is_none());
        idle && self.closing.is_empty() && self.finished.is_empty()
    }
}

impl Driver for GlommioDriver {
    fn now(&mut self) -> Instant {
        monotonic_now()
    }

    fn wall_clock_ms(&mut self) -> i64 {
        host::wall_clock_ms()
    }

    fn fill_random(&mut self, b: &mut [u8]) {
        self.random.fill(b);
    }

    fn boot_id(&mut self) -> Option<[u8; 16]> {
        host::boot_id()
    }

    fn submit(&mut self, token: Token, op: Op) {
        // glommio truncates by itself.
        if let Some(job) = Job::of(&op, true) {
            self.start_job(token, op, job);
            return;
        }
        match self.begin(&op) {
            Ok(work) => {
                self.occupy(token, op, work);
                self.woken.push(token.index());
            }
            Err(result) => self.finished.push((token, Completion { result, op })),
        }
    }

    fn cancel(&mut self, token: Token) {
        self.finish_early(token, libc::ECANCELED);
    }

    fn close(&mut self, raw: i32) {
        let open = self.give_up(raw);
        self.drop_open(raw, open);
    }

    fn turn(&mut self, wait: Wait, out: &mut Vec<(Token, Completion)>) -> io::Result<()> {
        self.advance_all(out);
        if let Wait::Until(deadline) = wait
            && out.is_empty()
        {
            self.seat.rest.set(Some(deadline));
        }
        Ok(())
    }

    fn finish_jobs(&mut self, jobs: &mut Vec<JobDone>, out: &mut Vec<(Token, Completion)>) {
        for JobDone { token, generation, result } in jobs.drain(..) {
            let slot = self.slots.get_mut(token.index()).and_then(Option::as_mut);
            let slot = slot.filter(|slot| slot.generation == generation);
            // Without a taker the output is dropped, a descriptor in it closed.
            let Some((slot, op)) = slot.and_then(|slot| slot.op.take().map(|op| (slot, op))) else {
                continue;
            };
            slot.work = Work::Nothing;
            out.push((token, helper::conclude(op, result)));
        }
    }

    fn drain(&mut self, out: &mut Vec<(Token, Completion)>) -> bool {
        if self.draining_since.is_none() {
            self.stop();
        }
        self.advance_all(out);
        if self.is_quiet() {
            return true;
        }
        let since = *self.draining_since.get_or_insert_with(monotonic_now);
        if monotonic_now() - since > DRAIN_WAIT {
            // The kernel may still write there: give the memory up rather than reuse it.
            tracing::error!("operations did not end; leaking them");
            mem::forget(mem::take(&mut self.slots));
            mem::forget(mem::take(&mut self.closing));
            self.seat.leaked.set(true);
            return true;
        }
        false
    }

    fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<(Handle, SocketAddr)> {
        let (raw, local) = raw_sockets::listener(addr, backlog)?;
        self.keep(raw, Open::Listener(Listener::new(raw)));
        Ok((Handle::new(raw, World::Kernel), local))
    }

    fn socket(&mut self, peer: &SocketAddr) -> io::Result<Handle> {
        let raw = raw_sockets::client(peer)?;
        self.keep(raw, Open::Bare);
        Ok(Handle::new(raw, World::Kernel))
    }

    fn local_addr(&mut self, socket: &Handle) -> io::Result<SocketAddr> {
        raw_sockets::local_addr(socket.raw())
    }

    fn shutdown(&mut self, socket: &Handle, half: Half) -> io::Result<()> {
        raw_sockets::end(socket.raw(), half)
    }

    fn adopt(&mut self, raw: i32) -> Handle {
        Handle::new(raw, World::Kernel)
    }

    fn device(&mut self, raw: i32) -> u64 {
        host::device(raw)
    }

    fn keep_signal(&mut self) {
        crate::uring::signals::repeat();
    }
}

impl Drop for GlommioDriver {
    fn drop(&mut self) {
        // What is still open belongs to handles that live on, and that close it by its number.
        mem::take(&mut self.open).into_iter().for_each(mem::forget);
    }
}

fn as_result(result: Result<u32, Errno>) -> i32 {
    match result {
        Ok(n) => n as i32,
        Err(errno) => errno,
    }
}
