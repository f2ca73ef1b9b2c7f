//! Scheduling classes: who waits when the core or a disk has more to do than it can.
//!
//! A class is a share, not a rank: under contention each gets core time and disk time in
//! proportion, so the lowest is slow but never starves. Alone, any class gets everything.
//!
//! A task belongs to the class it was spawned in; while it waits inside [`with_class`] it wakes,
//! spawns and reads or writes files in that one. A task has one class at a time: parts of a join
//! or a race that belong to different classes want tasks of their own.

use std::future::{Future, poll_fn};
use std::pin::pin;

use super::context;
use super::task::{Task, spawn};

/// What a task or a file operation is for, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// Producers, connections, the controller: everything that nobody said otherwise of.
    Produce,
    /// Consumers at the end of a log.
    TailFetch,
    /// Copies of records, and lookups that may be long.
    Replication,
    /// Consumers that read what is no longer in memory.
    Backfill,
    /// Compaction, recovery, retention, moves, flushes.
    Background,
}

impl Class {
    pub const ALL: [Class; CLASSES] =
        [Class::Produce, Class::TailFetch, Class::Replication, Class::Backfill, Class::Background];

    /// Weight beside the other classes.
    pub fn share(self) -> u32 {
        match self {
            Class::Produce => 1000,
            Class::TailFetch => 500,
            Class::Replication => 250,
            Class::Backfill => 100,
            Class::Background => 50,
        }
    }

    /// For logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Produce => "produce",
            Class::TailFetch => "tail_fetch",
            Class::Replication => "replication",
            Class::Backfill => "backfill",
            Class::Background => "background",
        }
    }

    /// Polls in a row between two looks at the clock. Urgent classes have short polls; the others
    /// are looked at after each one.
    pub(super) fn polls_per_slice(self) -> usize {
        match self {
            Class::Produce | Class::TailFetch => 8,
            Class::Replication | Class::Backfill | Class::Background => 1,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn from_index(index: u8) -> Class {
        Class::ALL.get(usize::from(index)).copied().unwrap_or(Class::Background)
    }

    /// How far `cost` moves the class along: a small share makes a long way of it.
    pub(crate) fn weighted(self, cost: u64) -> u64 {
        cost.saturating_mul(u64::from(Class::Produce.share() / self.share()))
    }
}

pub(crate) const CLASSES: usize = 5;

/// As [`spawn`], in a class of its own; plain [`spawn`] inherits that of the spawning task.
pub fn spawn_in<T: 'static>(class: Class, f: impl Future<Output = T> + 'static) -> Task<T> {
    let _inside = Inside::enter(class);
    spawn(f)
}

/// Runs `f` in another class than the rest of its task.
pub async fn with_class<F: Future>(class: Class, f: F) -> F::Output {
    let mut f = pin!(f);
    poll_fn(|cx| {
        let inside = Inside::enter(class);
        let polled = f.as_mut().poll(cx);
        if polled.is_pending() {
            inside.stay();
        }
        polled
    })
    .await
}

/// The class of what runs now.
pub fn current_class() -> Class {
    context::with(|rt| rt.class.get())
}

/// Lets others run if this poll has taken its time: for loops over much data, often.
pub async fn yield_if_due() {
    if context::with(|rt| rt.slice_is_over()) {
        super::combine::yield_now().await;
    }
}

/// The current class until it is dropped.
struct Inside {
    class: Class,
    before: Class,
}

impl Inside {
    fn enter(class: Class) -> Inside {
        Inside { class, before: context::with(|rt| rt.class.replace(class)) }
    }

    /// The task that is being polled goes on waiting in here.
    fn stay(&self) {
        context::with(|rt| rt.wakes_in.set(self.class));
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        context::try_with(|rt| rt.class.set(self.before));
    }
}
