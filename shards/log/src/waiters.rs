//! Tasks of this shard that wait for something about a log.
//!
//! Owns: a list of wakers, each with the offset that it waits for
//! or with none. It decides nothing: a woken task looks again, so a spurious wake is harmless
//! and a lost one is impossible as long as whoever changes the state wakes afterwards.
//! Bound: one slot per waiting future, freed when the future is dropped.

use std::task::Waker;

/// A place in a list; given back when the future is dropped.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<usize>);

#[derive(Debug)]
struct Slot {
    waker: Option<Waker>,
    /// Wakes when this is reached.
    at: i64,
}

/// Wakers by the offset they wait for; `i64::MIN` waits for anything.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    waiting: usize,
}

impl Waiters {
    /// Puts or keeps `waker` in the list until `at` is reached.
    pub(crate) fn register(&mut self, ticket: &mut Ticket, at: i64, waker: &Waker) {
        let known = ticket.0.and_then(|i| self.slots.get_mut(i)).and_then(Option::as_mut);
        if let Some(slot) = known {
            if slot.waker.is_none() {
                self.waiting += 1;
            }
            if !slot.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
                slot.waker = Some(waker.clone());
            }
            slot.at = at;
            return;
        }
        let slot = Some(Slot { waker: Some(waker.clone()), at });
        self.waiting += 1;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        if let Some(free) = self.slots.get_mut(place) {
            *free = slot;
        }
        ticket.0 = Some(place);
    }

    /// Gives a place back.
    pub(crate) fn release(&mut self, ticket: &mut Ticket) {
        let Some(place) = ticket.0.take() else { return };
        let Some(slot) = self.slots.get_mut(place).and_then(Option::take) else { return };
        if slot.waker.is_some() {
            self.waiting -= 1;
        }
        self.free.push(place);
    }

    /// Wakes those who wait for `reached` or less. They keep their place until they are dropped.
    pub(crate) fn wake_reached(&mut self, reached: i64) {
        if self.waiting == 0 {
            return;
        }
        for slot in self.slots.iter_mut().flatten() {
            if slot.at <= reached
                && let Some(waker) = slot.waker.take()
            {
                self.waiting -= 1;
                waker.wake();
            }
        }
    }

    pub(crate) fn wake_all(&mut self) {
        self.wake_reached(i64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counter() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn only_reached_offsets_wake_and_only_once() {
        let mut list = Waiters::default();
        let (near, near_waker) = counter();
        let (far, far_waker) = counter();
        let (mut a, mut b) = (Ticket::default(), Ticket::default());
        list.register(&mut a, 10, &near_waker);
        list.register(&mut a, 10, &near_waker);
        list.register(&mut b, 20, &far_waker);
        list.wake_reached(9);
        assert_eq!(near.0.load(Ordering::Relaxed), 0);
        list.wake_reached(10);
        list.wake_reached(10);
        assert_eq!(near.0.load(Ordering::Relaxed), 1);
        assert_eq!(far.0.load(Ordering::Relaxed), 0);
        list.register(&mut a, 15, &near_waker);
        list.wake_all();
        assert_eq!(near.0.load(Ordering::Relaxed), 2);
        assert_eq!(far.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn places_are_used_again() {
        let mut list = Waiters::default();
        let (_, waker) = counter();
        for _ in 0..1_000 {
            let mut ticket = Ticket::default();
            list.register(&mut ticket, 0, &waker);
            list.release(&mut ticket);
            list.release(&mut ticket);
        }
        assert_eq!(list.slots.len(), 1);
        assert_eq!(list.waiting, 0);
    }
}
