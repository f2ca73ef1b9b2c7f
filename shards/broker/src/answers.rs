//! The memory of one shard for answers that clients have not taken.
//!
//! Owns: how many bytes of encoded answers wait to be sent, and when another long one may be made. The
//! records of a fetch leave as they are stored and lie in the budgets of the logs; only what is encoded
//! around them counts here. Closes nothing: that is the listener's sweep, which looks at
//! [`AnswerBudget::is_scarce`].
//!
//! ```text
//! an answer that                      waits, before it is made,
//! is about as long as its request     never: the request is paid for until the answer has left
//! lists what the shard has            until there is room for one as long as the last of its kind
//! ```
//! What a connection holds is bounded by its outbox: what is sent together, and one answer more. As long
//! as it does not take that, none of its other requests is answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use reactor::sync::{ByteBudget, Permit};
use wire::ApiKey;

/// Until it is known better, so many long answers are made at once.
const MADE_AT_ONCE: usize = 16;
/// Answers of one kind have this share of the budget, in percent: clients that ask for one list and do
/// not read it leave the rest to those that everybody asks for.
const OF_ONE_KIND_PERCENT: usize = 50;

/// A shard's budget for answers; `Rc` because what is granted outlives the request.
pub(crate) struct AnswerBudget {
    bytes: ByteBudget,
    of_kinds: RefCell<BTreeMap<i16, Kind>>,
    waiting: Cell<usize>,
    /// May be over the budget: what did not wait counts as well.
    held: Cell<usize>,
    /// Connections that were closed for what they did not take.
    closed: Cell<u64>,
}

/// Answers to one API.
struct Kind {
    bytes: ByteBudget,
    /// The length of the latest, but never less than half of that of the one before.
    expected: usize,
}

/// The memory of one answer, from before it is made until it has left; given back on drop.
pub(crate) struct Held {
    budget: Rc<AnswerBudget>,
    bytes: usize,
    /// None for one that did not wait.
    of_kind: Option<(ByteBudget, Permit)>,
    of_all: Permit,
}

impl AnswerBudget {
    pub fn new(bytes: usize) -> Rc<Self> {
        Rc::new(AnswerBudget {
            bytes: ByteBudget::new(bytes),
            of_kinds: RefCell::default(),
            waiting: Cell::new(0),
            held: Cell::new(0),
            closed: Cell::new(0),
        })
    }

    /// Room for a long answer, once there is some.
    pub async fn long(self: &Rc<Self>, api: ApiKey) -> Held {
        let _waiting = Waiting::new(self);
        let (kind, expected) = self.kind(api);
        let of_kind = kind.acquire(expected).await;
        // Somebody always holds a little: who asks for all of it waits for ever, and everybody behind.
        let of_all = self.bytes.acquire(expected.min(kind.capacity())).await;
        Held { budget: self.clone(), bytes: 0, of_kind: Some((kind, of_kind)), of_all }
    }

    /// The same for an answer that does not wait.
    pub fn short(self: &Rc<Self>) -> Held {
        Held { budget: self.clone(), bytes: 0, of_kind: None, of_all: self.bytes.take(0) }
    }

    fn kind(&self, api: ApiKey) -> (ByteBudget, usize) {
        let most = self.bytes.capacity();
        let mut kinds = self.of_kinds.borrow_mut();
        let kind = kinds.entry(api.code()).or_insert_with(|| Kind {
            bytes: ByteBudget::new(most / 100 * OF_ONE_KIND_PERCENT),
            expected: 0,
        });
        (kind.bytes.clone(), kind.expected.max(most / MADE_AT_ONCE))
    }

    /// Bytes of the budget.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of answers that have not left; may be more than the budget.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether answers that are not taken keep others from being made, or take more than they may.
    pub fn is_scarce(&self) -> bool {
        self.waiting.get() > 0 || self.held.get() > self.bytes.capacity()
    }

    /// Bytes that have to be given back before others go on.
    pub fn to_free(&self) -> usize {
        match self.is_scarce() {
            true => self.held.get().saturating_sub(self.bytes.capacity() / 4),
            false => 0,
        }
    }

    pub fn note_closed(&self) {
        self.closed.set(self.closed.get() + 1);
    }

    pub fn closed(&self) -> u64 {
        self.closed.get()
    }
}

impl Held {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The answer is made, and so long.
    pub fn settle(&mut self, api: ApiKey, bytes: usize) {
        let budget = &self.budget;
        budget.held.set(budget.held.get() - self.bytes + bytes);
        self.bytes = bytes;
        adjust(&budget.bytes, &mut self.of_all, bytes);
        let Some((kind, permit)) = &mut self.of_kind else { return };
        adjust(kind, permit, bytes);
        if let Some(kind) = budget.of_kinds.borrow_mut().get_mut(&api.code()) {
            kind.expected = bytes.max(kind.expected / 2);
        }
    }
}

/// What is made already takes its memory whether or not it is there: others wait until it is.
fn adjust(budget: &ByteBudget, permit: &mut Permit, bytes: usize) {
    match bytes.checked_sub(permit.amount()) {
        Some(more) => permit.merge(budget.take(more)),
        None => permit.shrink_to(bytes),
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.set(self.budget.held.get() - self.bytes);
    }
}

struct Waiting<'a>(&'a AnswerBudget);

impl<'a> Waiting<'a> {
    fn new(budget: &'a AnswerBudget) -> Self {
        budget.waiting.set(budget.waiting.get() + 1);
        Waiting(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reactor::sim::World;

    use super::*;

    const API: ApiKey = ApiKey::ListTransactions;

    fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + 'static) {
        assert!(World::new(1).run(test).finished().is_some());
    }

    async fn waits(budget: &Rc<AnswerBudget>, api: ApiKey) -> bool {
        reactor::timeout(Duration::from_millis(10), budget.long(api)).await.is_err()
    }

    #[test]
    fn what_is_not_taken_keeps_others_of_its_kind_from_being_made() {
        run(|| async {
            let budget = AnswerBudget::new(1_000);
            let mut first = budget.long(API).await;
            first.settle(API, 400);
            assert_eq!((budget.held(), budget.is_scarce()), (400, false));
            // Another as long would not fit into the share of its kind.
            assert!(waits(&budget, API).await);
            let mut other = budget.long(ApiKey::Metadata).await;
            other.settle(ApiKey::Metadata, 10);
            assert_eq!(budget.held(), 410);
            drop(first);
            let mut second = budget.long(API).await;
            second.settle(API, 10);
            assert_eq!(budget.held(), 20);
        });
    }

    #[test]
    fn one_that_is_longer_than_expected_is_waited_for() {
        run(|| async {
            let budget = AnswerBudget::new(1_000);
            let mut long = budget.long(API).await;
            long.settle(API, 5_000);
            assert!(budget.is_scarce());
            assert_eq!(budget.to_free(), 5_000 - 250);
            assert!(waits(&budget, ApiKey::Metadata).await);
            // One as long is made alone.
            drop(long);
            let mut alone = budget.long(API).await;
            alone.settle(API, 5_000);
            assert!(waits(&budget, API).await);
            drop(alone);
            assert_eq!((budget.held(), budget.is_scarce()), (0, false));
        });
    }

    /// Somebody always has an answer on its way.
    #[test]
    fn one_as_long_as_the_budget_does_not_wait_for_the_last_byte_of_it() {
        run(|| async {
            let budget = AnswerBudget::new(1_000);
            let mut lagging = budget.short();
            lagging.settle(ApiKey::Fetch, 1);
            budget.long(API).await.settle(API, 5_000);
            assert!(!waits(&budget, API).await);
            assert!(!waits(&budget, ApiKey::Metadata).await);
            drop(lagging);
        });
    }

    #[test]
    fn what_does_not_wait_counts_all_the_same() {
        run(|| async {
            let budget = AnswerBudget::new(1_000);
            let mut short = budget.short();
            short.settle(ApiKey::Produce, 990);
            assert!(waits(&budget, API).await);
            let mut more = budget.short();
            more.settle(ApiKey::Produce, 30);
            assert!(budget.is_scarce());
            drop((short, more));
            assert!(!waits(&budget, API).await);
            assert_eq!((budget.held(), budget.is_scarce()), (0, false));
        });
    }

    /// An answer that is shorter than its kind was is soon not taken for a long one any more.
    #[test]
    fn what_is_expected_goes_down_again() {
        run(|| async {
            let budget = AnswerBudget::new(1_000);
            budget.long(API).await.settle(API, 500);
            for _ in 0..4 {
                budget.long(API).await.settle(API, 1);
            }
            let held: Vec<Held> = {
                let mut held = Vec::new();
                for _ in 0..8 {
                    held.push(budget.long(API).await);
                }
                held
            };
            assert!(waits(&budget, API).await);
            drop(held);
        });
    }
}
