//! The run loop of one shard and the tables it works on.
//!
//! Turn: run up to [`READY_BATCH`] ready tasks, fire due timers, take the inbox, let the driver
//! submit and collect (and sleep if nothing is ready), hand completions to their futures. A turn
//! costs what is ready, never what merely exists.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::{io, mem};

use slab::Slab;

use super::context;
use super::shared::ShardShared;
use super::task::{Task, TaskRef, spawn};
use super::timers::Timers;
use crate::driver::{Completion, Driver, Token, Wait};
use crate::op::Op;
use crate::uring::JobDone;

/// Ready tasks that run before the driver gets its turn.
const READY_BATCH: usize = 256;

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
}

/// An operation between submission and the moment its future takes the result.
pub(crate) struct OpEntry {
    pub(crate) waker: Option<Waker>,
    pub(crate) done: Option<Completion>,
    /// The future is gone; the result is dropped (and descriptors closed) when it comes.
    pub(crate) abandoned: bool,
}

pub(crate) struct Runtime {
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) driver: RefCell<Box<dyn Driver>>,
    pub(crate) ready: RefCell<VecDeque<Arc<TaskRef>>>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) ops: RefCell<Slab<OpEntry>>,
    tasks: RefCell<Slab<TaskEntry>>,
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
            self.run_ready();
            if let Some(output) = main.take_output() {
                return Ok(output);
            }
            self.fire_timers();
            self.turn(&mut batch)?;
        }
    }

    fn run_ready(&self) {
        for _ in 0..READY_BATCH {
            let Some(reference) = self.next_ready() else { return };
            // Pairs with the swap in `wake`: whoever found the flag set happened before this.
            reference.queued.swap(false, Ordering::AcqRel);
            let runnable = match self.tasks.borrow_mut().get_mut(reference.key) {
                Some(entry) if Arc::ptr_eq(&entry.reference, &reference) => entry.runnable.take(),
                _ => None,
            };
            let Some((mut task, waker)) = runnable else { continue };
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => {
                    drop(task);
                    self.remove_task(&reference);
                }
                Poll::Pending => self.put_back(&reference, (task, waker)),
            }
            if self.driver.borrow().halted() {
                return;
            }
        }
    }

    fn next_ready(&self) -> Option<Arc<TaskRef>> {
        let mut ready = self.ready.borrow_mut();
        if self.shuffled && !ready.is_empty() {
            let chosen = self.driver.borrow_mut().pick(ready.len());
            ready.swap(0, chosen);
            let reference = ready.pop_front();
            if let Some(reference) = &reference {
                self.driver.borrow_mut().observe(reference.key as u64);
            }
            return reference;
        }
        ready.pop_front()
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

    fn turn(&self, batch: &mut Batch) -> Result<(), Halt> {
        self.take_inbox(batch);
        let wait = if self.ready.borrow().is_empty() {
            Wait::Until(self.timers.borrow().next_deadline())
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
        if !batch.tasks.is_empty() {
            self.ready.borrow_mut().extend(batch.tasks.drain(..));
        }
    }

    fn deliver(&self, completions: &mut Vec<(Token, Completion)>) {
        for (token, completion) in completions.drain(..) {
            let mut ops = self.ops.borrow_mut();
            let Some(entry) = ops.get_mut(token.index()) else {
                debug_assert!(false, "a completion without an operation");
                continue;
            };
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
        let key = ops.insert(OpEntry { waker: None, done: None, abandoned: false });
        drop(ops);
        let token = Token::new(key);
        self.driver.borrow_mut().submit(token, op);
        Ok(token)
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

    pub(crate) fn insert_task(&self, task: BoxedTask) -> Arc<TaskRef> {
        let reference = |key| {
            let (shared, queued) = (Arc::clone(&self.shared), AtomicBool::new(true));
            Arc::new(TaskRef { shared, key, queued })
        };
        if self.stopping.get() {
            // A destructor during the shutdown spawned it; it never runs.
            return reference(usize::MAX);
        }
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.vacant_entry();
        let reference = reference(slot.key());
        let waker = Waker::from(Arc::clone(&reference));
        slot.insert(TaskEntry { runnable: Some((task, waker)), reference: Arc::clone(&reference) });
        drop(tasks);
        self.ready.borrow_mut().push_back(Arc::clone(&reference));
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
        let mut completions = Vec::new();
        let mut jobs = Vec::new();
        let mut tasks = Vec::new();
        loop {
            self.shared.take(&mut tasks, &mut jobs);
            tasks.clear();
            let mut driver = self.driver.borrow_mut();
            driver.finish_jobs(&mut jobs, &mut completions);
            let drained = driver.drain(&mut completions);
            drop(driver);
            // What is delivered may close descriptors, which is one more round.
            let quiet = completions.is_empty();
            self.deliver(&mut completions);
            if drained && quiet {
                break;
            }
        }
        self.shared.close();
    }
}

/// Scratch space of the loop, kept between turns.
#[derive(Default)]
struct Batch {
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
