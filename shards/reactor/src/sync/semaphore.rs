//! A counted budget: permits are granted first come, first served, so that a big request is not
//! starved by small ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A budget of `capacity` units; clones share it.
#[derive(Clone)]
pub struct Semaphore(Rc<Inner>);

struct Inner {
    capacity: Cell<usize>,
    /// Below zero after the capacity was lowered under what is out, or more was taken than there was.
    available: Cell<isize>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Waiter {
    /// What was asked for; once granted, what was taken.
    amount: Cell<usize>,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Semaphore {
    pub fn new(capacity: usize) -> Self {
        Self(Rc::new(Inner {
            capacity: Cell::new(capacity),
            available: Cell::new(signed(capacity)),
            waiting: RefCell::default(),
        }))
    }

    /// Waits for `amount` units. A request above the whole budget takes the whole budget, so that
    /// it passes alone rather than never.
    pub fn acquire(&self, amount: usize) -> Acquire {
        Acquire { semaphore: self.clone(), amount, waiter: None }
    }

    /// The units now, unless someone waits for them already.
    pub fn try_acquire(&self, amount: usize) -> Option<Permit> {
        let amount = amount.min(self.0.capacity.get());
        let free = self.0.waiting.borrow().is_empty() && self.0.available.get() >= signed(amount);
        free.then(|| {
            self.0.available.set(self.0.available.get() - signed(amount));
            Permit { semaphore: self.clone(), amount }
        })
    }

    /// The units, whether or not they are there: what was made already. Others wait until they are back.
    pub fn take(&self, amount: usize) -> Permit {
        self.0.available.set(self.0.available.get() - signed(amount));
        Permit { semaphore: self.clone(), amount }
    }

    pub fn available(&self) -> usize {
        self.0.available.get().max(0) as usize
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity.get()
    }

    /// Changes the whole budget; units that are out stay out.
    pub fn set_capacity(&self, capacity: usize) {
        let change = signed(capacity) - signed(self.0.capacity.replace(capacity));
        self.0.available.set(self.0.available.get() + change);
        self.grant();
    }

    fn release(&self, amount: usize) {
        self.0.available.set(self.0.available.get() + signed(amount));
        self.grant();
    }

    fn grant(&self) {
        loop {
            let mut waiting = self.0.waiting.borrow_mut();
            let Some(first) = waiting.front() else { return };
            let amount = first.amount.get().min(self.0.capacity.get());
            if self.0.available.get() < signed(amount) {
                return;
            }
            self.0.available.set(self.0.available.get() - signed(amount));
            first.amount.set(amount);
            first.granted.set(true);
            let first = waiting.pop_front();
            drop(waiting);
            let waker = first.and_then(|w| w.waker.borrow_mut().take());
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// Future of [`Semaphore::acquire`].
pub struct Acquire {
    semaphore: Semaphore,
    amount: usize,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        if let Some(waiter) = &self.waiter {
            if !waiter.granted.get() {
                *waiter.waker.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let amount = waiter.amount.get();
            self.waiter = None;
            return Poll::Ready(Permit { semaphore: self.semaphore.clone(), amount });
        }
        if let Some(permit) = self.semaphore.try_acquire(self.amount) {
            return Poll::Ready(permit);
        }
        let waiter = Rc::new(Waiter {
            amount: Cell::new(self.amount),
            granted: Cell::new(false),
            waker: RefCell::new(Some(cx.waker().clone())),
        });
        self.semaphore.0.waiting.borrow_mut().push_back(Rc::clone(&waiter));
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.granted.get() {
            self.semaphore.release(waiter.amount.get());
        } else {
            self.semaphore.0.waiting.borrow_mut().retain(|w| !Rc::ptr_eq(w, &waiter));
            // It may have been what the others waited behind.
            self.semaphore.grant();
        }
    }
}

/// Units taken from the budget; given back on drop.
pub struct Permit {
    semaphore: Semaphore,
    amount: usize,
}

impl Permit {
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Gives back all but `amount` units at once.
    pub fn shrink_to(&mut self, amount: usize) {
        if amount < self.amount {
            let surplus = self.amount - amount;
            self.amount = amount;
            self.semaphore.release(surplus);
        }
    }

    /// Takes over the units of another permit of the same budget.
    pub fn merge(&mut self, other: Permit) {
        assert!(Rc::ptr_eq(&self.semaphore.0, &other.semaphore.0), "permits of two budgets");
        let mut other = other;
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.semaphore.release(self.amount);
        }
    }
}
