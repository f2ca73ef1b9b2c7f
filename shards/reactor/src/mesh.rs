//! Channels between shards: one bounded single-producer queue per ordered pair.
//!
//! A full queue makes its sender wait (nothing is dropped); a wake crosses to the other thread only
//! if somebody waits there, and interrupts its sleep only if it sleeps. Control messages only.
//! Dropping a handle closes its queues.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::sync::Closed;

/// Handles for `shards` shards, whose queues hold `capacity` messages each; handle `i` moves to
/// the thread of shard `i`.
pub fn mesh<M: Send + 'static>(shards: usize, capacity: usize) -> Vec<Mesh<M>> {
    assert!(shards > 0 && capacity > 0, "a mesh needs shards and room for a message");
    let endpoints: Arc<[Endpoint]> = (0..shards)
        .map(|_| Endpoint { inbound: Waiting::default(), room: Waiting::default() })
        .collect();
    let alive = Arc::new(AtomicUsize::new(shards));
    let mut outbound: Vec<Vec<_>> = (0..shards).map(|_| Vec::with_capacity(shards)).collect();
    let mut inbound: Vec<Vec<_>> = (0..shards).map(|_| Vec::with_capacity(shards)).collect();
    for from in &mut outbound {
        for to in &mut inbound {
            let (producer, consumer) = rtrb::RingBuffer::new(capacity);
            from.push(RefCell::new(producer));
            to.push(RefCell::new(consumer));
        }
    }
    outbound
        .into_iter()
        .zip(inbound)
        .enumerate()
        .map(|(me, (outbound, inbound))| Mesh {
            me,
            outbound,
            inbound,
            next: Cell::new(0),
            endpoints: Arc::clone(&endpoints),
            alive: Arc::clone(&alive),
        })
        .collect()
}

/// One shard's handle. Takes `&self`; put it in an `Rc` to share it between tasks.
pub struct Mesh<M> {
    me: usize,
    /// By destination.
    outbound: Vec<RefCell<rtrb::Producer<M>>>,
    /// By source.
    inbound: Vec<RefCell<rtrb::Consumer<M>>>,
    /// Source to look at first, so that none is starved.
    next: Cell<usize>,
    endpoints: Arc<[Endpoint]>,
    alive: Arc<AtomicUsize>,
}

/// Who waits on one shard.
struct Endpoint {
    /// Its receiver, for a message.
    inbound: Waiting,
    /// Its senders, for room in some queue.
    room: Waiting,
}

impl<M: Send + 'static> Mesh<M> {
    pub fn me(&self) -> usize {
        self.me
    }

    pub fn shards(&self) -> usize {
        self.outbound.len()
    }

    /// Queues `m` for shard `to` (which may be this one), waiting for room. Messages from one
    /// shard to another arrive in the order in which their sends got room.
    pub async fn send(&self, to: usize, m: M) -> Result<(), Closed> {
        let mut message = Some(m);
        poll_fn(|cx| {
            // Looks twice: a pop between the first look and the registration wakes nobody.
            for registered in [false, true] {
                let Some(m) = message.take() else { return Poll::Ready(Ok(())) };
                match self.try_push(to, m) {
                    Ok(()) => return Poll::Ready(Ok(())),
                    Err(None) => return Poll::Ready(Err(Closed)),
                    Err(Some(back)) => message = Some(back),
                }
                if !registered {
                    self.endpoints[self.me].room.register(cx.waker());
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Queues `m` if there is room now. `Err(Some(m))` = full, `Err(None)` = the shard is gone.
    fn try_push(&self, to: usize, m: M) -> Result<(), Option<M>> {
        let mut producer = self.outbound[to].borrow_mut();
        if producer.is_abandoned() {
            return Err(None);
        }
        match producer.push(m) {
            Ok(()) => {
                drop(producer);
                self.endpoints[to].inbound.wake();
                Ok(())
            }
            Err(rtrb::PushError::Full(m)) => Err(Some(m)),
        }
    }

    /// The next message and the shard it came from; `None` once every other shard's handle is
    /// gone and nothing is queued. One task at a time may receive.
    pub async fn recv(&self) -> Option<(usize, M)> {
        poll_fn(|cx| {
            for registered in [false, true] {
                // Read before the queues: what was sent before the last one left is still seen.
                let alone = self.shards() > 1 && self.alive.load(Ordering::Acquire) == 1;
                if let Some(found) = self.try_recv() {
                    return Poll::Ready(Some(found));
                }
                if alone {
                    return Poll::Ready(None);
                }
                if !registered {
                    self.endpoints[self.me].inbound.register(cx.waker());
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next message if there is one now.
    pub fn try_recv(&self) -> Option<(usize, M)> {
        let shards = self.shards();
        for i in 0..shards {
            let from = (self.next.get() + i) % shards;
            let popped = self.inbound[from].borrow_mut().pop();
            if let Ok(m) = popped {
                self.next.set((from + 1) % shards);
                self.endpoints[from].room.wake();
                return Some((from, m));
            }
        }
        None
    }
}

impl<M> Drop for Mesh<M> {
    fn drop(&mut self) {
        // Close the queues first: who is woken must find them closed.
        self.outbound.clear();
        self.inbound.clear();
        self.alive.fetch_sub(1, Ordering::AcqRel);
        for endpoint in self.endpoints.iter() {
            endpoint.inbound.wake();
            endpoint.room.wake();
        }
    }
}

/// Wakers of tasks that wait for one thing; bounded by the tasks of one shard.
#[derive(Default)]
struct Waiting {
    any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Waiting {
    fn register(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|w| w.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        drop(wakers);
        self.any.store(true, Ordering::Release);
        // Pairs with the fence in `wake`: either we see the change when we look again, or the
        // other side sees that we wait.
        fence(Ordering::SeqCst);
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::Relaxed) || !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let wakers = {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }
}
