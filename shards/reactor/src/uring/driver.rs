//! The driver over one ring: submission with a backlog, completion, spinning, sleeping, shutdown.
//!
//! Lives on its shard's thread. Memory that the kernel may touch is in `slots`, and stays there
//! until the completion has come, also when the shard unwinds.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{EnterFlags, opcode, squeue, types};
use slab::Slab;

use super::bell::{Bell, BellWire};
use super::helper::{self, Job, JobDone, Request};
use super::host::{self, monotonic_now};
use super::ring::{self, Ring};
use super::slot::Slot;
use super::{signals, sockets};
use crate::ShardSpec;
use crate::driver::{Completion, Driver, Half, Token, Wait};
use crate::exec::shared::ShardShared;
use crate::op::{Handle, Op, World};
use crate::time::Instant;

/// How long a shutdown waits for operations that do not end (a device that hangs).
const DRAIN_WAIT: Duration = Duration::from_secs(30);
const DRAIN_STEP: Duration = Duration::from_millis(50);

/// Longest sleep in one go; the kernel's own arithmetic overflows on "for ever".
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// The user data of an entry: a kind in the top byte, a generation, a number.
const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 32;
pub(super) const GENERATION_MASK: u32 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Op = 0,
    /// Our own read of the eventfd.
    Bell = 1,
    /// A message that a peer's ring posted into ours.
    Rung = 2,
    /// A message of ours to a peer's ring.
    Peer = 3,
    Close = 4,
    Cancel = 5,
}

pub(super) struct UringDriver {
    ring: Ring,
    shared: Arc<ShardShared>,
    wire: Arc<BellWire>,
    bell_word: Box<[u8; 8]>,
    bell_armed: bool,
    /// By token. Boxed: the kernel keeps addresses in them.
    slots: Vec<Option<Box<Slot>>>,
    /// Entries that found the submission queue full, oldest first. Bounded by the operations in
    /// flight, plus a close for each descriptor and a cancel for each operation.
    backlog: VecDeque<squeue::Entry>,
    /// Peers whose bell is on its way.
    peers: Slab<Arc<BellWire>>,
    /// Entries given to the ring or the backlog whose completion has not come, the bell excepted.
    in_flight: usize,
    /// Synced writes among them: the kernel's threads need the core to finish those.
    syncs_in_flight: usize,
    /// Operations that ended before they reached the kernel.
    refused: Vec<(Token, Completion)>,
    enters: u64,
    /// A sleeping shard is idle, not waiting for a disk, in the kernel's statistics.
    sleep_flags: EnterFlags,
    spin: Duration,
    random: host::Random,
    draining_since: Option<Instant>,
    stopping: bool,
}

impl UringDriver {
    pub(super) fn new(spec: &ShardSpec) -> io::Result<(Self, Arc<ShardShared>)> {
        let entries = match spec.ring_entries {
            0 => crate::DEFAULT_RING_ENTRIES,
            entries => entries,
        };
        let ring = ring::create(entries)?;
        let sleep_flags = if ring.uring.params().is_feature_no_iowait() {
            EnterFlags::NO_IOWAIT
        } else {
            EnterFlags::empty()
        };
        // SAFETY: the ring outlives this borrow.
        let wire = BellWire::new(unsafe { BorrowedFd::borrow_raw(ring.uring.as_raw_fd()) })?;
        let wire = Arc::new(wire);
        let shared = ShardShared::new(Box::new(Bell(Arc::clone(&wire))));
        let driver = Self {
            ring,
            shared: Arc::clone(&shared),
            wire,
            bell_word: Box::new([0; 8]),
            bell_armed: false,
            slots: Vec::new(),
            backlog: VecDeque::new(),
            peers: Slab::new(),
            in_flight: 0,
            syncs_in_flight: 0,
            refused: Vec::new(),
            enters: 0,
            sleep_flags,
            spin: spec.spin,
            random: host::Random::default(),
            draining_since: None,
            stopping: false,
        };
        Ok((driver, shared))
    }

    #[cfg(test)]
    pub(super) fn pretend_old_kernel(&mut self) {
        self.ring.supports = ring::Supports { set_len: false, peer_wake: false };
    }

    fn push(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        // SAFETY: what the entry points to is in a slot (or `bell_word`), which stays where it is
        // until the completion has come.
        let pushed = unsafe { self.ring.uring.submission().push(&entry) };
        if pushed.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Moves the backlog into the submission queue, as far as there is room.
    fn refill(&mut self) {
        let mut queue = self.ring.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// One call into the kernel: submits what is queued, runs deferred work, and waits for a
    /// completion for at most `wait` (`None` = do not wait).
    fn enter(&mut self, wait: Option<Option<Duration>>) -> io::Result<()> {
        self.enters += 1;
        let queued = self.ring.uring.submission().len();
        let submitter = self.ring.uring.submitter();
        let entered = match wait {
            None => {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no signal mask is passed.
                unsafe { submitter.enter::<libc::sigset_t>(queued as u32, 0, flags, None) }
            }
            Some(None) => {
                submitter.submit_with_args_and_flags(1, &types::SubmitArgs::new(), self.sleep_flags)
            }
            Some(Some(limit)) => {
                let limit = types::Timespec::from(limit);
                let args = types::SubmitArgs::new().timespec(&limit);
                submitter.submit_with_args_and_flags(1, &args, self.sleep_flags)
            }
        };
        match entered.map_err(|e| (e.raw_os_error(), e)) {
            Ok(_) => Ok(()),
            // Interrupted, out of time, or short of memory or completion space for now: whoever
            // called looks at the completions and comes again.
            Err((Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, e)) => Err(e),
        }
    }

    /// Takes what is in the completion queue; true = there was something.
    fn collect(&mut self, out: &mut Vec<(Token, Completion)>) -> bool {
        let mut any = false;
        if !self.refused.is_empty() {
            out.append(&mut self.refused);
            any = true;
        }
        loop {
            let next = self.ring.uring.completion().next();
            let Some(entry) = next else { return any };
            any = true;
            self.completed(entry.user_data(), entry.result(), out);
        }
    }

    fn completed(&mut self, user_data: u64, result: i32, out: &mut Vec<(Token, Completion)>) {
        let number = user_data as u32;
        match (user_data >> KIND_SHIFT) as u8 {
            k if k == Kind::Op as u8 => {
                self.in_flight -= 1;
                let generation = (user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
                let slot = self.slots.get_mut(number as usize).and_then(Option::as_mut);
                let Some(slot) = slot.filter(|s| s.generation == generation) else {
                    debug_assert!(false, "a completion for an operation that ended before");
                    return;
                };
                if slot.op().is_some_and(waits_for_device) {
                    self.syncs_in_flight -= 1;
                }
                out.push((Token::new(number as usize), slot.finish(result)));
            }
            k if k == Kind::Bell as u8 => {
                // The next turn arms it again.
                self.bell_armed = false;
            }
            k if k == Kind::Peer as u8 => {
                self.in_flight -= 1;
                let peer = self.peers.remove(number as usize);
                if result < 0 {
                    peer.strike();
                }
            }
            k if k == Kind::Close as u8 => {
                self.in_flight -= 1;
                if result < 0 {
                    tracing::warn!(error = %io::Error::from_raw_os_error(-result), "close failed");
                }
            }
            k if k == Kind::Cancel as u8 => self.in_flight -= 1,
            // A peer rang: that we woke is all it wanted.
            _ => {}
        }
    }

    fn arm_bell(&mut self) {
        let fd = types::Fd(self.wire.event());
        let entry = opcode::Read::new(fd, self.bell_word.as_mut_ptr(), 8).build();
        self.bell_armed = true;
        self.push(entry.user_data(user_data(Kind::Bell, 0, 0)));
    }

    fn idle(
        &mut self,
        deadline: Option<Instant>,
        out: &mut Vec<(Token, Completion)>,
    ) -> io::Result<()> {
        if !self.spin.is_zero() && self.syncs_in_flight == 0 {
            if self.has_submissions() {
                self.enter(None)?;
            }
            if self.spin_until(deadline, out)? {
                return Ok(());
            }
        }
        let limit = deadline.map(|d| (d - monotonic_now()).min(SLEEP_MAX));
        if limit == Some(Duration::ZERO) {
            return if self.has_submissions() { self.enter(None) } else { Ok(()) };
        }
        if !self.shared.prepare_park() {
            return Ok(());
        }
        let entered = self.enter(Some(limit));
        self.shared.finish_park();
        entered
    }

    /// Watches for work without a system call; true = there is some.
    fn spin_until(
        &mut self,
        deadline: Option<Instant>,
        out: &mut Vec<(Token, Completion)>,
    ) -> io::Result<bool> {
        let end = monotonic_now() + self.spin;
        loop {
            if self.shared.has_pending() || self.collect(out) {
                return Ok(true);
            }
            if self.must_enter() {
                self.enter(None)?;
                continue;
            }
            let now = monotonic_now();
            if deadline.is_some_and(|d| now >= d) {
                return Ok(true);
            }
            if now >= end {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    fn has_submissions(&mut self) -> bool {
        !self.ring.uring.submission().is_empty()
    }

    /// Does the kernel hold completions that only a call brings out?
    fn must_enter(&mut self) -> bool {
        let queue = self.ring.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn start_job(&mut self, token: Token, job: Job) {
        let Some(slot) = self.slots[token.index()].as_mut() else { return };
        let generation = slot.generation;
        let shared = Arc::clone(&self.shared);
        if !helper::submit(Request { shared, token, generation, job }) {
            self.refuse(token, libc::EBUSY);
        }
    }

    fn refuse(&mut self, token: Token, errno: i32) {
        let slot = self.slots[token.index()].as_mut();
        if let Some(op) = slot.and_then(|s| s.take()) {
            self.refused.push((token, Completion { result: -errno, op }));
        }
    }

    fn occupy(&mut self, token: Token, op: Op) -> &mut Slot {
        if self.slots.len() <= token.index() {
            self.slots.resize_with(token.index() + 1, || None);
        }
        let slot = self.slots[token.index()].get_or_insert_with(Slot::new);
        slot.occupy(op);
        slot
    }

    /// Cancels everything that would otherwise wait for a peer that may never come.
    fn stop(&mut self) {
        self.stopping = true;
        self.draining_since = Some(monotonic_now());
        let waiting: Vec<Token> = (0..self.slots.len())
            .filter(|&i| {
                let op = self.slots[i].as_ref().and_then(|slot| slot.op());
                op.is_some_and(Op::is_cancellable)
            })
            .map(Token::new)
            .collect();
        for token in waiting {
            self.cancel(token);
        }
        if self.bell_armed {
            let bell = user_data(Kind::Bell, 0, 0);
            self.in_flight += 1;
            let cancel = opcode::AsyncCancel::new(bell).build();
            self.push(cancel.user_data(user_data(Kind::Cancel, 0, 0)));
        }
    }

    /// Jobs on helper threads own what they need; only their result is not waited for.
    fn abandon_jobs(&mut self, out: &mut Vec<(Token, Completion)>) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots[index].as_mut() else { continue };
            // A truncation uses the descriptor: that one must be waited for.
            if slot.op().is_some_and(Job::is_independent)
                && let Some(op) = slot.take()
            {
                out.push((Token::new(index), Completion { result: -libc::ECANCELED, op }));
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.in_flight == 0
            && !self.bell_armed
            && self.backlog.is_empty()
            && self.slots.iter().flatten().all(|slot| slot.op().is_none())
    }
}

impl Driver for UringDriver {
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
        let supports = self.ring.supports;
        if let Some(job) = Job::of(&op, supports.set_len) {
            if matches!(op, Op::SetLen { .. }) {
                ring::note_fallback("ftruncate");
            }
            self.occupy(token, op);
            self.start_job(token, job);
            return;
        }
        let mut signal_event = -1;
        if matches!(op, Op::Termination) {
            match signals::event() {
                Ok(raw) => signal_event = raw,
                Err(e) => {
                    self.occupy(token, op);
                    self.refuse(token, e.raw_os_error().unwrap_or(libc::EIO));
                    return;
                }
            }
        }
        if waits_for_device(&op) {
            self.syncs_in_flight += 1;
        }
        let slot = self.occupy(token, op);
        let entry = slot.prepare(signal_event);
        let data = user_data(Kind::Op, slot.generation, token.raw());
        self.in_flight += 1;
        self.push(entry.user_data(data));
    }

    fn cancel(&mut self, token: Token) {
        let slot = self.slots.get(token.index()).and_then(Option::as_ref);
        let Some(slot) = slot.filter(|s| s.op().is_some()) else { return };
        let target = user_data(Kind::Op, slot.generation, token.raw());
        self.in_flight += 1;
        let entry = opcode::AsyncCancel::new(target).build();
        self.push(entry.user_data(user_data(Kind::Cancel, 0, 0)));
    }

    fn close(&mut self, raw: i32) {
        self.in_flight += 1;
        let entry = opcode::Close::new(types::Fd(raw)).build();
        self.push(entry.user_data(user_data(Kind::Close, 0, 0)));
    }

    fn enters(&self) -> u64 {
        self.enters
    }

    fn turn(&mut self, wait: Wait, out: &mut Vec<(Token, Completion)>) -> io::Result<()> {
        if !self.bell_armed && !self.stopping {
            self.arm_bell();
        }
        self.refill();
        while !self.backlog.is_empty() {
            self.enter(None)?;
            let before = self.backlog.len();
            self.refill();
            if self.backlog.len() == before {
                // The kernel takes no more until completions are collected.
                self.collect(out);
                return Ok(());
            }
        }
        if self.collect(out) || !out.is_empty() {
            return if self.has_submissions() { self.enter(None) } else { Ok(()) };
        }
        match wait {
            Wait::Until(deadline) => self.idle(deadline, out)?,
            Wait::No => {
                if self.has_submissions() || self.must_enter() {
                    self.enter(None)?;
                }
            }
        }
        self.collect(out);
        Ok(())
    }

    fn finish_jobs(&mut self, jobs: &mut Vec<JobDone>, out: &mut Vec<(Token, Completion)>) {
        for JobDone { token, generation, result } in jobs.drain(..) {
            let slot = self.slots.get_mut(token.index()).and_then(Option::as_mut);
            let op = slot.filter(|s| s.generation == generation).and_then(|s| s.take());
            // Without a taker the output is dropped, a descriptor in it closed.
            let Some(op) = op else { continue };
            out.push((token, helper::conclude(op, result)));
        }
    }

    fn drain(&mut self, out: &mut Vec<(Token, Completion)>) -> bool {
        if !self.stopping {
            self.stop();
        }
        self.abandon_jobs(out);
        self.refill();
        self.collect(out);
        if self.is_quiet() {
            return true;
        }
        let since = self.draining_since.get_or_insert_with(monotonic_now);
        if monotonic_now() - *since > DRAIN_WAIT {
            // The kernel may still write there: give the memory up rather than reuse it.
            tracing::error!(in_flight = self.in_flight, "operations did not end; leaking them");
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.bell_word));
            self.in_flight = 0;
            return true;
        }
        if let Err(e) = self.enter(Some(Some(DRAIN_STEP))) {
            tracing::error!(error = %e, "the ring failed during shutdown");
        }
        self.collect(out);
        false
    }

    fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<(Handle, SocketAddr)> {
        let (raw, local) = sockets::listener(addr, backlog)?;
        Ok((Handle::new(raw, World::Kernel), local))
    }

    fn socket(&mut self, peer: &SocketAddr) -> io::Result<Handle> {
        Ok(Handle::new(sockets::client(peer)?, World::Kernel))
    }

    fn local_addr(&mut self, socket: &Handle) -> io::Result<SocketAddr> {
        sockets::local_addr(socket.raw())
    }

    fn shutdown(&mut self, socket: &Handle, half: Half) -> io::Result<()> {
        sockets::end(socket.raw(), half)
    }

    fn adopt(&mut self, raw: i32) -> Handle {
        Handle::new(raw, World::Kernel)
    }

    fn device(&mut self, raw: i32) -> u64 {
        host::device(raw)
    }

    fn keep_signal(&mut self) {
        signals::repeat();
    }

    fn ring_peer(&mut self, peer: &Arc<BellWire>) -> bool {
        if !self.ring.supports.peer_wake || self.stopping {
            return false;
        }
        let key = self.peers.insert(Arc::clone(peer));
        self.in_flight += 1;
        let rung = user_data(Kind::Rung, 0, 0);
        let entry = opcode::MsgRingData::new(types::Fd(peer.ring()), 0, rung, None).build();
        self.push(entry.user_data(user_data(Kind::Peer, 0, key as u32)));
        true
    }
}

fn user_data(kind: Kind, generation: u32, number: u32) -> u64 {
    u64::from(kind as u8) << KIND_SHIFT
        | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
        | u64::from(number)
}

/// Does it end only when the device has answered?
fn waits_for_device(op: &Op) -> bool {
    matches!(op, Op::Write { sync: true, .. } | Op::Sync { .. })
}
