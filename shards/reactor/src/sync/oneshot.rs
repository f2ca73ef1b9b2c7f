//! One value from one task to another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Closed;

/// A channel for one value.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let state = Rc::new(RefCell::new(State { value: None, waker: None }));
    (OneshotSender(Rc::clone(&state)), OneshotReceiver(state))
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

pub struct OneshotSender<T>(Rc<RefCell<State<T>>>);

impl<T> OneshotSender<T> {
    /// Delivers `value`, or gives it back if nobody waits any more.
    pub fn send(self, value: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(value);
        }
        self.0.borrow_mut().value = Some(value);
        // Dropping the sender wakes the receiver.
        Ok(())
    }

    /// Is the receiver gone?
    pub fn is_closed(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = self.0.borrow_mut().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Future of the value; [`Closed`] if the sender was dropped without sending.
pub struct OneshotReceiver<T>(Rc<RefCell<State<T>>>);

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if Rc::strong_count(&self.0) == 1 {
            return Poll::Ready(Err(Closed));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
