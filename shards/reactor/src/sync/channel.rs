//! A bounded queue between tasks of one shard.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::{Closed, Notify};

/// A queue of at most `bound` values; any number of senders, one receiver.
pub fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel needs room for one value");
    let queue = Rc::new(Queue {
        bound,
        state: RefCell::new(State {
            values: VecDeque::new(),
            senders: 1,
            receiver_gone: false,
            waker: None,
        }),
        room: Notify::new(),
    });
    (Sender(Rc::clone(&queue)), Receiver(queue))
}

struct Queue<T> {
    bound: usize,
    state: RefCell<State<T>>,
    room: Notify,
}

struct State<T> {
    values: VecDeque<T>,
    senders: usize,
    receiver_gone: bool,
    waker: Option<Waker>,
}

pub struct Sender<T>(Rc<Queue<T>>);

/// Why [`Sender::try_send`] gave the value back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrySendError<T> {
    Full(T),
    Closed(T),
}

impl<T> Sender<T> {
    /// Waits for room, then queues `value`. The value is lost if the receiver is gone.
    pub async fn send(&self, value: T) -> Result<(), Closed> {
        let mut value = value;
        loop {
            let room = self.0.room.notified();
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(Closed),
                Err(TrySendError::Full(back)) => value = back,
            }
            room.await;
        }
    }

    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.borrow_mut();
        if state.receiver_gone {
            return Err(TrySendError::Closed(value));
        }
        if state.values.len() == self.0.bound {
            return Err(TrySendError::Full(value));
        }
        state.values.push_back(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.borrow_mut().senders += 1;
        Self(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.senders -= 1;
        let waker = if state.senders == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub struct Receiver<T>(Rc<Queue<T>>);

impl<T> Receiver<T> {
    /// The next value; `None` once every sender is gone and the queue is empty.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(value) = self.try_recv() {
                return Poll::Ready(Some(value));
            }
            let mut state = self.0.state.borrow_mut();
            if state.senders == 0 {
                return Poll::Ready(None);
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The next value if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.0.state.borrow_mut().values.pop_front()?;
        self.0.room.notify_all();
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.0.state.borrow().values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.receiver_gone = true;
        let values = std::mem::take(&mut state.values);
        drop(state);
        drop(values);
        self.0.room.notify_all();
    }
}
