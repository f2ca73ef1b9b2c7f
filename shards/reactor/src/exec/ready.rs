//! Ready tasks, one queue a class, and whose turn it is.
//!
//! Virtual time: a class pays for the core time it takes, weighted by its share, and the class
//! that has paid least runs next. A class that was idle comes back at the present, not with credit
//! from the past. No allocation beyond the queues', bounded by the tasks that exist.

use std::collections::VecDeque;
use std::sync::Arc;

use super::class::{CLASSES, Class};
use super::task::TaskRef;

#[derive(Default)]
pub(crate) struct ReadyQueues {
    queues: [VecDeque<Arc<TaskRef>>; CLASSES],
    /// Weighted nanoseconds.
    paid: [u64; CLASSES],
    /// Where the class that ran last stood; never goes back.
    present: u64,
    len: usize,
}

impl ReadyQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len_of(&self, class: Class) -> usize {
        self.queues[class.index()].len()
    }

    pub(crate) fn push(&mut self, task: Arc<TaskRef>) {
        let at = task.class().index();
        if self.queues[at].is_empty() {
            self.paid[at] = self.paid[at].max(self.present);
        }
        self.queues[at].push_back(task);
        self.len += 1;
    }

    /// The class whose turn it is; of equals the most urgent.
    pub(crate) fn choose(&mut self) -> Option<Class> {
        if self.len == 0 {
            return None;
        }
        let waiting = Class::ALL.into_iter().filter(|c| !self.queues[c.index()].is_empty());
        let class = waiting.min_by_key(|c| self.paid[c.index()])?;
        self.present = self.present.max(self.paid[class.index()]);
        Some(class)
    }

    pub(crate) fn pop(&mut self, class: Class) -> Option<Arc<TaskRef>> {
        let task = self.queues[class.index()].pop_front()?;
        self.len -= 1;
        Some(task)
    }

    /// As `pop`, of any place in the queue.
    pub(crate) fn pop_at(&mut self, class: Class, place: usize) -> Option<Arc<TaskRef>> {
        self.queues[class.index()].swap(0, place);
        self.pop(class)
    }

    pub(crate) fn charge(&mut self, class: Class, nanos: u64) {
        let paid = &mut self.paid[class.index()];
        *paid = paid.saturating_add(class.weighted(nanos));
    }

    pub(crate) fn clear(&mut self) {
        // Dropping a reference to a task runs nothing.
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.len = 0;
    }
}
