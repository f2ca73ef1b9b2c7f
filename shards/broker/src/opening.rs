//! The queue of partitions that are to be opened, one for each data directory of a shard.
//!
//! Owns: who is next. A partition that is asked for goes before those that are not; a bounded
//! number is under way at a time, and no task exists for one that waits. What is no longer wanted
//! is given up where it stands.
//!
//! ```text
//! waiting ──► asked for ──► under way ──► ended
//!    └───────────────────────►│ cancelled: ended, and its slot is somebody else's
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use log::Cancel;
use reactor::sync::{Notified, Notify};

use crate::partition::Partition;
use crate::partitions::Assignment;

/// Partitions of one data directory that one shard may be opening or closing at the same time.
pub(crate) const OPENING_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    AskedFor,
    UnderWay,
    Ended,
}

/// A partition that is not open yet.
pub(crate) struct Opening {
    pub assignment: Assignment,
    pub dir_number: usize,
    pub cancel: Cancel,
    /// What was open before may still be at work on its files.
    before: RefCell<Option<Rc<Partition>>>,
    stage: Cell<Stage>,
    ended: Notify,
}

impl Opening {
    pub fn new(
        assignment: Assignment,
        dir_number: usize,
        before: Option<Rc<Partition>>,
    ) -> Rc<Self> {
        Rc::new(Opening {
            assignment,
            dir_number,
            cancel: Cancel::new(),
            before: RefCell::new(before),
            stage: Cell::new(Stage::Waiting),
            ended: Notify::new(),
        })
    }

    /// One that is at its files already, and in no queue: a partition that is taken out of service
    /// for a moment.
    pub fn under_way(assignment: Assignment, dir_number: usize) -> Rc<Self> {
        let opening = Opening::new(assignment, dir_number, None);
        opening.stage.set(Stage::UnderWay);
        opening
    }

    pub fn before(&self) -> Option<Rc<Partition>> {
        self.before.borrow().clone()
    }

    pub fn take_before(&self) -> Option<Rc<Partition>> {
        self.before.borrow_mut().take()
    }

    /// Resolves when it is open or offline, or was given up.
    pub fn ended(&self) -> Notified {
        self.ended.notified()
    }

    pub fn end(&self) {
        self.stage.set(Stage::Ended);
        self.ended.notify_all();
    }

    /// Gives it up; when this returns, nobody is at its files any more.
    pub async fn give_up(&self) {
        self.cancel.cancel();
        let ended = self.ended();
        if self.stage.get() == Stage::UnderWay {
            ended.await;
        } else {
            self.end();
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: RefCell<VecDeque<Rc<Opening>>>,
    asked_for: RefCell<VecDeque<Rc<Opening>>>,
    workers: Cell<usize>,
}

impl Queue {
    /// Adds one. Returns whether one more worker should start.
    pub fn push(&self, opening: Rc<Opening>) -> bool {
        self.waiting.borrow_mut().push_back(opening);
        let more = self.workers.get() < OPENING_MAX;
        self.workers.set(self.workers.get() + usize::from(more));
        more
    }

    /// Puts it before all that nobody has asked for.
    pub fn ask_for(&self, opening: &Rc<Opening>) {
        if opening.stage.get() == Stage::Waiting {
            opening.stage.set(Stage::AskedFor);
            self.asked_for.borrow_mut().push_back(opening.clone());
        }
    }

    /// The next one to open; `None` ends the worker that asks.
    pub fn next(&self) -> Option<Rc<Opening>> {
        let is_left = |opening: &Opening, stage| opening.stage.get() == stage;
        loop {
            let asked = self.asked_for.borrow_mut().pop_front();
            let next = match asked {
                Some(opening) if is_left(&opening, Stage::AskedFor) => opening,
                Some(_) => continue,
                None => {
                    let Some(opening) = self.waiting.borrow_mut().pop_front() else { break };
                    if !is_left(&opening, Stage::Waiting) {
                        continue;
                    }
                    opening
                }
            };
            next.stage.set(Stage::UnderWay);
            return Some(next);
        }
        // Ten thousand places are not needed again.
        self.waiting.borrow_mut().shrink_to_fit();
        self.workers.set(self.workers.get() - 1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Uuid;

    fn opening(index: i32) -> Rc<Opening> {
        let assignment = Assignment {
            topic_id: Uuid([1; 16]),
            topic: "t".into(),
            index,
            leader_epoch: 0,
            found: None,
            home: Ok(0),
        };
        Opening::new(assignment, 0, None)
    }

    #[test]
    fn what_is_asked_for_comes_first_and_what_is_given_up_never() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let queue = Queue::default();
            let all: Vec<Rc<Opening>> = (0..6).map(opening).collect();
            for one in &all {
                assert!(queue.push(one.clone()), "there is room for another worker");
            }
            queue.ask_for(&all[4]);
            queue.ask_for(&all[2]);
            queue.ask_for(&all[4]);
            all[1].give_up().await;
            all[2].give_up().await;
            let order: Vec<i32> =
                std::iter::from_fn(|| queue.next()).map(|one| one.assignment.index).collect();
            assert_eq!(order, [4, 0, 3, 5]);
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn giving_up_what_is_under_way_waits_for_its_end() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let queue = Queue::default();
            queue.push(opening(0));
            let one = queue.next().expect("one waits");
            let giving_up = one.clone();
            let given_up = reactor::spawn(async move { giving_up.give_up().await });
            while !one.cancel.is_cancelled() {
                reactor::yield_now().await;
            }
            reactor::yield_now().await;
            assert!(!given_up.is_finished(), "somebody may still be at its files");
            one.end();
            given_up.await;
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn workers_are_bounded() {
        let queue = Queue::default();
        let started = (0..200).filter(|index| queue.push(opening(*index))).count();
        assert_eq!(started, OPENING_MAX);
    }
}
