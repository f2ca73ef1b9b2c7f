//! Tasks: spawning, waking, awaiting the result, cancelling by drop.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::class::Class;
use super::context;
use super::shared::ShardShared;

/// Starts `f` on the current shard, in the class of the task that runs now; it runs from the next
/// turn on, until it ends or the returned [`Task`] is dropped.
pub fn spawn<T: 'static>(f: impl Future<Output = T> + 'static) -> Task<T> {
    let join = Rc::new(Join { output: RefCell::new(None), waiter: RefCell::new(None) });
    let sink = Rc::clone(&join);
    let reference = context::with(|rt| {
        rt.insert_task(
            type_name_of(&f),
            Box::pin(async move {
                let output = f.await;
                *sink.output.borrow_mut() = Some(output);
                let waiter = sink.waiter.borrow_mut().take();
                if let Some(waiter) = waiter {
                    waiter.wake();
                }
            }),
        )
    });
    Task { join, reference, owned: Cell::new(true) }
}

fn type_name_of<F>(_: &F) -> &'static str {
    std::any::type_name::<F>()
}

/// Handle of a spawned task. Awaiting it gives the output; dropping it cancels the task.
#[must_use = "dropping a task cancels it; use detach() to let it run"]
pub struct Task<T> {
    join: Rc<Join<T>>,
    reference: Arc<TaskRef>,
    owned: Cell<bool>,
}

impl<T> Task<T> {
    /// Lets the task run on its own.
    pub fn detach(self) {
        self.owned.set(false);
    }

    /// Has the task produced its output?
    pub fn is_finished(&self) -> bool {
        self.join.output.borrow().is_some()
    }

    pub(crate) fn take_output(&self) -> Option<T> {
        self.join.output.borrow_mut().take()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(output) = self.take_output() {
            return Poll::Ready(output);
        }
        *self.join.waiter.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if self.owned.get() {
            // Outside its runtime the task is gone already, with the runtime itself.
            context::try_with(|rt| rt.cancel_task(&self.reference));
        }
    }
}

struct Join<T> {
    output: RefCell<Option<T>>,
    waiter: RefCell<Option<Waker>>,
}

/// What a waker points to: which shard, which task, and whether it is queued already.
pub(crate) struct TaskRef {
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) key: usize,
    pub(crate) queued: AtomicBool,
    /// The class it was spawned in.
    pub(crate) spawned_in: Class,
    /// The class it wakes in; written by its own shard only.
    wakes_in: AtomicU8,
}

impl TaskRef {
    pub(crate) fn new(shared: Arc<ShardShared>, key: usize, class: Class) -> Arc<TaskRef> {
        Arc::new(TaskRef {
            shared,
            key,
            queued: AtomicBool::new(true),
            spawned_in: class,
            wakes_in: AtomicU8::new(class as u8),
        })
    }

    pub(crate) fn class(&self) -> Class {
        Class::from_index(self.wakes_in.load(Ordering::Relaxed))
    }

    pub(crate) fn wake_in(&self, class: Class) {
        self.wakes_in.store(class as u8, Ordering::Relaxed);
    }
}

impl Wake for TaskRef {
    fn wake(self: Arc<Self>) {
        // Once queued, the poll to come sees everything that happened before this wake.
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.shared.is_local() {
            context::try_with(|rt| rt.ready.borrow_mut().push(self));
        } else {
            let shared = Arc::clone(&self.shared);
            shared.push_task(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The shortcut is for this thread only: a plain load could miss the clearing on another.
        if self.shared.is_local() && self.queued.load(Ordering::Relaxed) {
            return;
        }
        Arc::clone(self).wake();
    }
}
