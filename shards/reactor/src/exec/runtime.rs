//! The run loop of one shard and the tables it works on.
//!
//! Turn: run ready tasks by the shares of their classes (up to [`READY_BATCH`], for at most about
//! [`TURN_TIME`]), fire due timers, take the inbox, let the driver submit and collect (and sleep if
//! nothing is ready), hand completions to their futures and freed disk slots to operations that
//! wait. A turn costs what is ready, never what merely exists.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, mem};

use slab::Slab;

use super::class::Class;
use super::context;
use super::ready::ReadyQueues;
use super::shared::ShardShared;
use super::task::{Task, TaskRef, spawn};
use super::timers::Timers;
use super::usage::Meter;
use crate::disk_queue::{DiskQueues, Ticket};
use crate::driver::{Completion, Driver, Token, Wait};
use crate::op::Op;
use crate::time::Instant;
use crate::uring::JobDone;

/// Ready tasks that run before the driver gets its turn.
const READY_BATCH: usize = 256;

/// Core time after which the driver gets its turn whatever is still ready, so that completions and
/// packets are not kept waiting.
const TURN_TIME: Duration = Duration::from_micros(500);

/// How long one poll should run before it lets others go first, see [`super::yield_if_due`].
const POLL_TIME: Duration = Duration::from_micros(200);

/// Operations one shard may have in flight; the next one fails with ENOBUFS.
pub(crate) const OPS_IN_FLIGHT_MAX: usize = 1 << 18;

/// Why the loop ended before the main future did.
pub(crate) enum Halt {
    Failed(io::Error),
    /// The simulation stopped it; its driver knows the cause.
    Simulated,
}

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct TaskEntry {
    /// Absent while the task is being polled.
    runnable: Option<(BoxedTask, Waker)>,
    reference: Arc<TaskRef>,
    /// The type of its future, for the log.
    name: &'static str,
}

/// An operation between submission and the moment its future takes the result.
pub(crate) struct OpEntry {
    pub(crate) waker: Option<Waker>,
    pub(crate) done: Option<Completion>,
    /// The future is gone; the result is dropped (and descriptors closed) when it comes.
    pub(crate) abandoned: bool,
    /// Its place in the queue of a disk.
    ticket: Option<Ticket>,
}

pub(crate) struct Runtime {
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) driver: RefCell<Box<dyn Driver>>,
    pub(crate) ready: RefCell<ReadyQueues>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) ops: RefCell<Slab<OpEntry>>,
    tasks: RefCell<Slab<TaskEntry>>,
    pub(crate) disks: RefCell<DiskQueues>,
    pub(crate) meter: Meter,
    /// The class of what runs now.
    pub(crate) class: Cell<Class>,
    /// The class in which the task that is being polled will wake.
    pub(crate) wakes_in: Cell<Class>,
    /// When the current slice of polls started: the present, but for one slice.
    slice_start: Cell<Instant>,
    /// Does the driver choose which ready task runs next?
    shuffled: bool,
    stopping: Cell<bool>,
}

impl Runtime {
    pub(crate) fn new(shared: Arc<ShardShared>, driver: Box<dyn Driver>) -> Rc<Self> {
        let shuffled = driver.shuffles();
        Rc::new(Self {
            shared,
            driver: RefCell::new(driver),
            ready: RefCell::default(),
            timers: RefCell::default(),
            ops: RefCell::default(),
            tasks: RefCell::default(),
            disks: RefCell::default(),
            meter: Meter::default(),
            class: Cell::new(Class::Produce),
            wakes_in: Cell::new(Class::Produce),
            slice_start: Cell::default(),
            shuffled,
            stopping: Cell::new(false),
        })
    }

    /// Runs `main` on this thread until it ends; then drops every other task and waits until the
    /// kernel holds none of our memory.
    pub(crate) fn block_on<F, Fut, T>(self: Rc<Self>, main: F) -> Result<T, Halt>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        let entered = context::enter(&self);
        // Dropped on unwinding too, so that buffers outlive the kernel's use of them.
        let teardown = Teardown(&self);
        let main = spawn(main());
        let outcome = self.drive(&main);
        drop(main);
        drop(teardown);
        drop(entered);
        outcome
    }

    fn drive<T: 'static>(&self, main: &Task<T>) -> Result<T, Halt> {
        let mut batch = Batch::default();
        loop {
            if let Some(output) = self.step(main, &mut batch)? {
                return Ok(output);
            }
        }
    }

    /// One turn; the output of `main` once it has ended.
    pub(crate) fn step<T: 'static>(
        &self,
        main: &Task<T>,
        batch: &mut Batch,
    ) -> Result<Option<T>, Halt> {
        self.run_ready();
        if let Some(output) = main.take_output() {
            return Ok(Some(output));
        }
        self.fire_timers();
        self.turn(batch)?;
        Ok(None)
    }

    fn run_ready(&self) {
        if self.ready.borrow().is_empty() {
            return;
        }
        let start = self.now();
        let mut left = READY_BATCH;
        self.slice_start.set(start);
        while left > 0 {
            let Some(class) = self.ready.borrow_mut().choose() else { return };
            let polls = self.run_slice(class, class.polls_per_slice().min(left));
            left -= polls;
            let now = self.now();
            let took = now - self.slice_start.replace(now);
            self.ready.borrow_mut().charge(class, took.as_nanos() as u64);
            self.meter.note_slice(class, polls, took);
            if self.driver.borrow().halted() || now - start >= TURN_TIME {
                return;
            }
        }
    }

    /// Polls up to `most` tasks of a class; returns how many.
    fn run_slice(&self, class: Class, most: usize) -> usize {
        for polls in 0..most {
            let Some(reference) = self.next_ready(class) else { return polls.max(1) };
            self.poll_task(&reference);
            if self.driver.borrow().halted() {
                return polls + 1;
            }
        }
        most
    }

    fn poll_task(&self, reference: &Arc<TaskRef>) {
        // Pairs with the swap in `wake`: whoever found the flag set happened before this.
        reference.queued.swap(false, Ordering::AcqRel);
        let runnable = match self.tasks.borrow_mut().get_mut(reference.key) {
            Some(entry) if Arc::ptr_eq(&entry.reference, reference) => {
                self.meter.note_poll(entry.name);
                entry.runnable.take()
            }
            _ => None,
        };
        let Some((mut task, waker)) = runnable else { return };
        self.class.set(reference.spawned_in);
        self.wakes_in.set(reference.spawned_in);
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(()) => {
                drop(task);
                self.remove_task(reference);
            }
            Poll::Pending => {
                reference.wake_in(self.wakes_in.get());
                self.put_back(reference, (task, waker));
            }
        }
        self.class.set(Class::Produce);
    }

    fn next_ready(&self, class: Class) -> Option<Arc<TaskRef>> {
        let mut ready = self.ready.borrow_mut();
        let len = ready.len_of(class);
        if self.shuffled && len > 0 {
            let chosen = self.driver.borrow_mut().pick(len);
            let reference = ready.pop_at(class, chosen);
            if let Some(reference) = &reference {
                self.driver.borrow_mut().observe(reference.key as u64);
            }
            return reference;
        }
        ready.pop(class)
    }

    fn now(&self) -> Instant {
        self.driver.borrow_mut().now()
    }

    /// Has the poll that runs now used up its time?
    pub(crate) fn slice_is_over(&self) -> bool {
        self.now() - self.slice_start.get() >= POLL_TIME
    }

    fn put_back(&self, reference: &Arc<TaskRef>, runnable: (BoxedTask, Waker)) {
        let dropped = match self.tasks.borrow_mut().get_mut(reference.key) {
            Some(entry) if Arc::ptr_eq(&entry.reference, reference) => {
                entry.runnable = Some(runnable);
                None
            }
            // It was cancelled while it ran.
            _ => Some(runnable),
        };
        drop(dropped);
    }

    fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.driver.borrow_mut().now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timer = self.timers.borrow().next_deadline();
        let disk = self.disks.borrow().resumes();
        [timer, disk].into_iter().flatten().min()
    }

    fn turn(&self, batch: &mut Batch) -> Result<(), Halt> {
        self.take_inbox(batch);
        let wait = if self.ready.borrow().is_empty() {
            Wait::Until(self.next_deadline())
        } else {
            Wait::No
        };
        let turned = {
            let mut driver = self.driver.borrow_mut();
            driver.finish_jobs(&mut batch.jobs, &mut batch.completions);
            let wait = if batch.completions.is_empty() { wait } else { Wait::No };
            driver.turn(wait, &mut batch.completions)
        };
        self.deliver(&mut batch.completions);
        turned.map_err(Halt::Failed)?;
        if self.driver.borrow().halted() {
            return Err(Halt::Simulated);
        }
        Ok(())
    }

    fn take_inbox(&self, batch: &mut Batch) {
        self.shared.take(&mut batch.tasks, &mut batch.jobs);
        let mut ready = self.ready.borrow_mut();
        batch.tasks.drain(..).for_each(|task| ready.push(task));
    }

    fn deliver(&self, completions: &mut Vec<(Token, Completion)>) {
        let mut freed = self.disks.borrow().is_paused();
        if freed || !completions.is_empty() {
            self.slice_start.set(self.now());
        }
        let now = self.slice_start.get();
        for (token, completion) in completions.drain(..) {
            let mut ops = self.ops.borrow_mut();
            let Some(entry) = ops.get_mut(token.index()) else {
                debug_assert!(false, "a completion without an operation");
                continue;
            };
            if let Some(ticket) = entry.ticket.take() {
                freed |= self.disks.borrow_mut().release(ticket, now);
            }
            if entry.abandoned {
                ops.remove(token.index());
                drop(ops);
                self.discard(completion);
                continue;
            }
            entry.done = Some(completion);
            let waker = entry.waker.take();
            drop(ops);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        if freed {
            self.admit_waiting();
        }
    }

    /// Hands operations that waited for a place at a disk to the driver.
    fn admit_waiting(&self) {
        loop {
            let next = self.disks.borrow_mut().next(self.slice_start.get());
            let Some((token, op, ticket)) = next else { return };
            // A read that nobody waits for any more need not be made.
            let mut ops = self.ops.borrow_mut();
            let given_up = ops.get(token.index()).is_some_and(|entry| entry.abandoned);
            if given_up && matches!(op, Op::Read { .. }) {
                ops.remove(token.index());
                drop(ops);
                self.disks.borrow_mut().release(ticket, ticket.began());
                drop(op);
                continue;
            }
            if let Some(entry) = ops.get_mut(token.index()) {
                entry.ticket = Some(ticket);
            }
            drop(ops);
            self.driver.borrow_mut().submit(token, op);
        }
    }

    /// Drops a result nobody waits for; a descriptor in it is closed.
    pub(crate) fn discard(&self, completion: Completion) {
        if completion.op.gives_descriptor() && completion.result >= 0 {
            self.driver.borrow_mut().close(completion.result);
        }
        if matches!(completion.op, Op::Termination) && completion.result > 0 {
            self.driver.borrow_mut().keep_signal();
        }
        drop(completion);
    }

    /// Hands `op` to the driver; `Err` gives it back when too many are in flight.
    pub(crate) fn submit(&self, op: Op) -> Result<Token, Op> {
        let mut ops = self.ops.borrow_mut();
        if ops.len() >= OPS_IN_FLIGHT_MAX || self.stopping.get() {
            return Err(op);
        }
        let mut disks = self.disks.borrow_mut();
        let now = self.slice_start.get();
        let ticket = disks.ticket(&op, self.class.get(), now);
        let key = ops.insert(OpEntry { waker: None, done: None, abandoned: false, ticket });
        drop(ops);
        let token = Token::new(key);
        let admitted = match ticket {
            Some(ticket) => disks.admit(ticket, token, op, now),
            None => Some(op),
        };
        drop(disks);
        match admitted {
            Some(op) => self.driver.borrow_mut().submit(token, op),
            None => {
                if let Some(entry) = self.ops.borrow_mut().get_mut(token.index()) {
                    entry.ticket = ticket.map(Ticket::waiting);
                }
            }
        }
        Ok(token)
    }

    /// The age of the oldest operation at the disk of a directory, of those that do not take long on
    /// one that works.
    pub(crate) fn oldest_at(&self, dir: &Path) -> Option<Duration> {
        let disk = self.disks.borrow().disk_of_path(dir);
        let ops = self.ops.borrow();
        let oldest = ops.iter().filter_map(|(_, entry)| entry.ticket?.due_at(disk)).min()?;
        Some(self.now().saturating_duration_since(oldest))
    }

    /// The future of `token` is dropped: forget it if it is done, else leave the buffers with the
    /// kernel and ask it to stop where that is possible.
    pub(crate) fn abandon(&self, token: Token, cancellable: bool) {
        let mut ops = self.ops.borrow_mut();
        let Some(entry) = ops.get_mut(token.index()) else { return };
        if entry.done.is_some() {
            let entry = ops.remove(token.index());
            drop(ops);
            if let Some(completion) = entry.done {
                self.discard(completion);
            }
            return;
        }
        entry.abandoned = true;
        let waker = entry.waker.take();
        drop(ops);
        drop(waker);
        if cancellable {
            self.driver.borrow_mut().cancel(token);
        }
    }

    pub(crate) fn insert_task(&self, name: &'static str, task: BoxedTask) -> Arc<TaskRef> {
        let reference = |key| TaskRef::new(Arc::clone(&self.shared), key, self.class.get());
        if self.stopping.get() {
            // A destructor during the shutdown spawned it; it never runs.
            return reference(usize::MAX);
        }
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.vacant_entry();
        let reference = reference(slot.key());
        let waker = Waker::from(Arc::clone(&reference));
        let runnable = Some((task, waker));
        slot.insert(TaskEntry { runnable, reference: Arc::clone(&reference), name });
        drop(tasks);
        self.ready.borrow_mut().push(Arc::clone(&reference));
        reference
    }

    pub(crate) fn cancel_task(&self, reference: &Arc<TaskRef>) {
        self.remove_task(reference);
    }

    fn remove_task(&self, reference: &Arc<TaskRef>) {
        let mut tasks = self.tasks.borrow_mut();
        let removed = match tasks.get(reference.key) {
            Some(entry) if Arc::ptr_eq(&entry.reference, reference) => {
                Some(tasks.remove(reference.key))
            }
            _ => None,
        };
        drop(tasks);
        // Its destructors may spawn, cancel and close: outside the borrow.
        drop(removed);
    }

    fn stop(&self) {
        self.begin_stop();
        while !self.stop_step() {}
    }

    /// Drops every task; what is in flight then is for [`Runtime::stop_step`].
    pub(crate) fn begin_stop(&self) {
        // Destructors may spawn again; those tasks are dropped too, unrun.
        loop {
            let tasks = mem::take(&mut *self.tasks.borrow_mut());
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        self.stopping.set(true);
        self.ready.borrow_mut().clear();
        // What waits for a disk was promised to run to its end.
        for (token, op) in self.disks.borrow_mut().open_up() {
            self.driver.borrow_mut().submit(token, op);
        }
    }

    /// Waits a little for what is in flight; true once nothing is, and the shard is closed.
    pub(crate) fn stop_step(&self) -> bool {
        let mut batch = Batch::default();
        self.shared.take(&mut batch.tasks, &mut batch.jobs);
        let drained = {
            let mut driver = self.driver.borrow_mut();
            driver.finish_jobs(&mut batch.jobs, &mut batch.completions);
            driver.drain(&mut batch.completions)
        };
        // What is delivered may close descriptors, which is one more round.
        let ended = drained && batch.completions.is_empty();
        self.deliver(&mut batch.completions);
        if ended {
            self.shared.close();
        }
        ended
    }
}

/// Scratch space of the loop, kept between turns.
#[derive(Default)]
pub(crate) struct Batch {
    tasks: Vec<Arc<TaskRef>>,
    jobs: Vec<JobDone>,
    completions: Vec<(Token, Completion)>,
}

struct Teardown<'a>(&'a Runtime);

impl Drop for Teardown<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
