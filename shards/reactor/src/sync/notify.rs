//! "Something changed": wakes everyone who listens.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// A change that can be listened to; clones are the same change.
#[derive(Clone, Default)]
pub struct Notify(Rc<Inner>);

#[derive(Default)]
struct Inner {
    generation: Cell<u64>,
    waiters: RefCell<Slab<Waker>>,
}

impl Notify {
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every [`Notified`] made before this call.
    pub fn notify_all(&self) {
        self.0.generation.set(self.0.generation.get() + 1);
        if self.0.waiters.borrow().is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut *self.0.waiters.borrow_mut());
        for (_, waker) in waiters {
            waker.wake();
        }
    }

    /// Listens from this call on (not from the first poll): make the listener, check the
    /// condition, then await, and no change is missed.
    pub fn notified(&self) -> Notified {
        Notified { notify: self.clone(), seen: self.0.generation.get(), key: None }
    }
}

/// Future of [`Notify::notified`].
pub struct Notified {
    notify: Notify,
    seen: u64,
    key: Option<usize>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = Rc::clone(&self.notify.0);
        if inner.generation.get() != self.seen {
            // The waiters of that generation were taken all at once.
            self.key = None;
            return Poll::Ready(());
        }
        let mut waiters = inner.waiters.borrow_mut();
        match self.key {
            Some(key) => waiters[key].clone_from(cx.waker()),
            None => self.key = Some(waiters.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && self.notify.0.generation.get() == self.seen
        {
            let waker = self.notify.0.waiters.borrow_mut().try_remove(key);
            drop(waker);
        }
    }
}
