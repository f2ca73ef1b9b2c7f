//! The memory that one shard spends on tails of logs.
//!
//! Owns: one number of bytes, given out as [`Charge`]s that return themselves when dropped, the
//! order in which chunks are evicted over all partitions (oldest first), and the tasks that wait
//! for room. A chunk that is evicted while answers still hold its bytes stays paid for, beyond a
//! part ([`PINNED_PART`]) that is meant for answers on their way. Lives on one shard. It never
//! looks into a log: evicting is asked of an [`Evict`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use reactor::Chunk;

use crate::waiters::{Ticket, Waiters};

/// Something that holds chunks.
pub(crate) trait Evict {
    /// Frees a chunk if all its bytes are on the device and nobody is at it.
    fn evict(&self, segment: i64, chunk: u64) -> bool;

    /// As `evict`, if nothing was added to any chunk of it since the last round of this.
    fn evict_idle(&self, segment: i64, chunk: u64, round: u64) -> bool;
}

struct Candidate {
    owner: Weak<dyn Evict>,
    segment: i64,
}

pub(crate) struct Budget {
    limit: usize,
    used: Cell<usize>,
    /// Bytes of batches that no device has yet.
    unwritten: Cell<usize>,
    /// Grows with every write that completed and every charge that came back.
    progress: Cell<u64>,
    next_chunk: Cell<u64>,
    idle_round: Cell<u64>,
    /// By chunk number, which grows: the first is the oldest.
    chunks: RefCell<BTreeMap<u64, Candidate>>,
    waiting: RefCell<Waiters>,
    /// Evicted chunks whose bytes are in answers that have not left, oldest first.
    pinned: RefCell<VecDeque<(Chunk, Charge)>>,
    pinned_bytes: Cell<usize>,
}

/// The part of the budget that evicted chunks in answers may take on top of it.
const PINNED_PART: usize = 8;

/// Bytes taken from the budget for one chunk; dropping it gives them back.
pub(crate) struct Charge {
    budget: Rc<Budget>,
    bytes: usize,
    chunk: u64,
}

impl Charge {
    /// The chunk's number: unique on this shard, younger is larger.
    pub(crate) fn chunk(&self) -> u64 {
        self.chunk
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back an evicted chunk, once no answer holds bytes of it.
    pub(crate) fn retire(self, chunk: Chunk) {
        if chunk.is_shared() {
            let budget = Rc::clone(&self.budget);
            budget.chunks.borrow_mut().remove(&self.chunk);
            budget.pinned_bytes.set(budget.pinned_bytes.get() + self.bytes);
            budget.pinned.borrow_mut().push_back((chunk, self));
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.chunks.borrow_mut().remove(&self.chunk);
        self.budget.used.set(self.budget.used.get() - self.bytes);
        self.budget.note_progress();
    }
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Budget {
            limit,
            used: Cell::new(0),
            unwritten: Cell::new(0),
            progress: Cell::new(0),
            next_chunk: Cell::new(0),
            idle_round: Cell::new(0),
            chunks: RefCell::default(),
            waiting: RefCell::default(),
            pinned: RefCell::default(),
            pinned_bytes: Cell::new(0),
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.release_pinned();
        self.used.get()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.get()
    }

    /// Takes `bytes` for a new chunk, evicting what it must. `None`: everything that is held waits
    /// to be written. When nothing waits, even more than the limit is given, or a batch larger
    /// than the whole budget would wait forever.
    pub(crate) fn take(
        self: &Rc<Self>,
        bytes: usize,
        owner: Weak<dyn Evict>,
        segment: i64,
    ) -> Option<Charge> {
        let fits = || self.counted() + bytes <= self.limit;
        if !fits() {
            self.release_pinned();
        }
        while !fits() && self.evict_oldest() {}
        if !fits() && self.unwritten.get() > 0 {
            return None;
        }
        self.used.set(self.used.get() + bytes);
        let chunk = self.next_chunk.get();
        self.next_chunk.set(chunk + 1);
        self.chunks.borrow_mut().insert(chunk, Candidate { owner, segment });
        Some(Charge { budget: Rc::clone(self), bytes, chunk })
    }

    /// What counts against the limit.
    fn counted(&self) -> usize {
        self.used.get() - self.pinned_bytes.get().min(self.limit / PINNED_PART)
    }

    /// Bytes of evicted chunks that answers hold.
    pub(crate) fn pinned(&self) -> usize {
        self.release_pinned();
        self.pinned_bytes.get()
    }

    /// Whether answers hold more than is meant for them.
    pub(crate) fn is_pinned_down(&self) -> bool {
        self.pinned() > self.limit / PINNED_PART
    }

    fn release_pinned(&self) {
        let free: Vec<(Chunk, Charge)> = {
            let mut pinned = self.pinned.borrow_mut();
            let (kept, free) = pinned.drain(..).partition(|(chunk, _)| chunk.is_shared());
            *pinned = kept;
            free.into_iter().collect::<Vec<_>>()
        };
        let bytes: usize = free.iter().map(|(_, charge)| charge.bytes).sum();
        self.pinned_bytes.set(self.pinned_bytes.get() - bytes);
    }

    pub(crate) fn note_unwritten(&self, bytes: usize) {
        self.unwritten.set(self.unwritten.get() + bytes);
    }

    /// `bytes` reached the device, or their log went offline.
    pub(crate) fn note_settled(&self, bytes: usize) {
        self.unwritten.set(self.unwritten.get() - bytes);
        self.note_progress();
    }

    /// Resolves when something was written or freed since the call, or nothing waits to be.
    pub(crate) fn room(self: &Rc<Self>) -> impl Future<Output = ()> + 'static {
        let before = self.progress.get();
        let mut place = Place { budget: Rc::clone(self), ticket: Ticket::default() };
        poll_fn(move |cx| {
            if place.budget.progress.get() != before || place.budget.unwritten.get() == 0 {
                return Poll::Ready(());
            }
            let budget = Rc::clone(&place.budget);
            budget.waiting.borrow_mut().register(&mut place.ticket, 0, cx.waker());
            Poll::Pending
        })
    }

    fn note_progress(&self) {
        self.progress.set(self.progress.get() + 1);
        self.waiting.borrow_mut().wake_all();
    }

    /// Frees the chunks of logs that fell idle, oldest first.
    pub(crate) async fn free_idle(&self) {
        let round = self.idle_round.get() + 1;
        self.idle_round.set(round);
        let end = self.next_chunk.get();
        let mut from = 0;
        while from < end {
            let (chunk, segment, owner) = {
                let chunks = self.chunks.borrow();
                let Some((chunk, candidate)) = chunks.range(from..end).next() else { return };
                (*chunk, candidate.segment, candidate.owner.upgrade())
            };
            if let Some(owner) = owner {
                owner.evict_idle(segment, chunk, round);
            }
            from = chunk + 1;
            reactor::yield_if_due().await;
        }
    }

    /// Frees the oldest chunk that can be freed; `false` if none can.
    fn evict_oldest(&self) -> bool {
        let mut from = 0;
        loop {
            let (chunk, segment, owner) = {
                let chunks = self.chunks.borrow();
                let Some((chunk, candidate)) = chunks.range(from..).next() else { return false };
                (*chunk, candidate.segment, candidate.owner.upgrade())
            };
            if owner.is_some_and(|owner| owner.evict(segment, chunk)) {
                return true;
            }
            from = chunk + 1;
        }
    }
}

struct Place {
    budget: Rc<Budget>,
    ticket: Ticket,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.budget.waiting.borrow_mut().release(&mut self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Holder {
        charges: RefCell<Vec<Charge>>,
        busy: Cell<u64>,
    }

    impl Evict for Holder {
        fn evict(&self, _segment: i64, chunk: u64) -> bool {
            if self.busy.get() == chunk {
                return false;
            }
            let at = self.charges.borrow().iter().position(|c| c.chunk() == chunk);
            let freed = at.map(|at| self.charges.borrow_mut().remove(at));
            freed.is_some()
        }

        fn evict_idle(&self, segment: i64, chunk: u64, _round: u64) -> bool {
            self.evict(segment, chunk)
        }
    }

    fn holder() -> Rc<Holder> {
        Rc::new(Holder { charges: RefCell::default(), busy: Cell::new(u64::MAX) })
    }

    fn hold(budget: &Rc<Budget>, holder: &Rc<Holder>, bytes: usize) -> bool {
        let owner: Rc<dyn Evict> = holder.clone();
        let Some(charge) = budget.take(bytes, Rc::downgrade(&owner), 0) else { return false };
        holder.charges.borrow_mut().push(charge);
        true
    }

    #[test]
    fn the_oldest_goes_first_and_busy_ones_stay() {
        let (budget, holder) = (Budget::new(100), holder());
        for _ in 0..4 {
            assert!(hold(&budget, &holder, 25));
        }
        holder.busy.set(0);
        assert!(hold(&budget, &holder, 40));
        let ids: Vec<u64> = holder.charges.borrow().iter().map(Charge::chunk).collect();
        assert_eq!(ids, [0, 3, 4]);
        assert_eq!(budget.used(), 90);
    }

    #[test]
    fn an_evicted_chunk_is_paid_for_while_an_answer_holds_it() {
        let (budget, holder) = (Budget::new(800), holder());
        let take = |bytes| {
            let owner: Rc<dyn Evict> = holder.clone();
            budget.take(bytes, Rc::downgrade(&owner), 0).unwrap_or_else(|| panic!("no room"))
        };
        let answers: Vec<_> = (0..3)
            .map(|_| {
                let (charge, chunk) = (take(80), Chunk::new(80));
                let answer = chunk.slice(0..0);
                charge.retire(chunk);
                answer
            })
            .collect();
        assert_eq!((budget.pinned(), budget.used()), (240, 240));
        // A part of the budget is meant for answers, the rest counts.
        assert_eq!(budget.counted(), 140);
        assert!(budget.is_pinned_down());
        drop(answers);
        assert_eq!((budget.pinned(), budget.used(), budget.counted()), (0, 0, 0));
        assert!(!budget.is_pinned_down());
        take(80).retire(Chunk::new(80));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_waits_to_be_written_makes_it_full_and_an_empty_budget_takes_anything() {
        let (budget, holder) = (Budget::new(100), holder());
        assert!(hold(&budget, &holder, 500));
        holder.busy.set(0);
        budget.note_unwritten(10);
        assert!(!hold(&budget, &holder, 1));
        budget.note_settled(10);
        assert!(hold(&budget, &holder, 1));
        holder.charges.borrow_mut().clear();
        assert_eq!(budget.used(), 0);
        assert!(budget.chunks.borrow().is_empty());
    }
}
