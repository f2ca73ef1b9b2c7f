//! Which partitions' coordinators have had others do something that is not done yet.
//!
//! Owns: the count of such errands, by partition and not by coordinator. The next coordinator of a
//! partition may speak under the same leader epoch: nobody could tell a late errand of the former
//! from one of its own. So it is not begun before the last one is done, whatever became of the
//! former meanwhile. Bounded by what coordinators send.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use wire::Uuid;

use super::Machine;
use crate::partition::Partition;
use crate::shard::Shard;

/// A partition by its topic's id and its number.
type Key = (Uuid, i32);

fn key_of(partition: &Partition) -> Key {
    (partition.topic_id, partition.index)
}

#[derive(Default)]
struct Out {
    count: usize,
    /// A coordinator of the partition is to begin when they are done.
    awaited: bool,
}

/// The errands of one kind of coordinator. A partition without any is not in here.
#[derive(Default)]
pub(super) struct Errands(RefCell<BTreeMap<Key, Out>>);

impl Errands {
    /// Whether some of the partition are out. If so, the coordinators are looked at again when the
    /// last one is done.
    pub fn holds_up(&self, partition: &Partition) -> bool {
        let mut all = self.0.borrow_mut();
        let out = all.get_mut(&key_of(partition));
        out.map(|out| out.awaited = true).is_some()
    }

    fn begin(&self, key: Key) {
        self.0.borrow_mut().entry(key).or_default().count += 1;
    }

    /// Returns whether it was the last one, and somebody waits for that.
    fn end(&self, key: Key) -> bool {
        let mut all = self.0.borrow_mut();
        let Some(out) = all.get_mut(&key) else { return false };
        out.count -= 1;
        let is_awaited = out.awaited;
        out.count == 0 && all.remove(&key).is_some() && is_awaited
    }
}

/// An errand that is out, until this is dropped.
pub(super) struct ErrandOut<M: Machine> {
    shard: Rc<Shard>,
    key: Key,
    kind: PhantomData<M>,
}

impl<M: Machine> ErrandOut<M> {
    pub fn begin(shard: &Rc<Shard>, partition: &Partition) -> Self {
        let key = key_of(partition);
        M::seats(shard).errands.begin(key);
        ErrandOut { shard: shard.clone(), key, kind: PhantomData }
    }
}

impl<M: Machine> Drop for ErrandOut<M> {
    fn drop(&mut self) {
        if M::seats(&self.shard).errands.end(self.key) {
            self.shard.partitions.note_internal_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_tells_those_who_wait() {
        let (errands, one, other) = (Errands::default(), (Uuid::ZERO, 1), (Uuid::ZERO, 2));
        errands.begin(one);
        errands.begin(one);
        errands.begin(other);
        errands.0.borrow_mut().get_mut(&one).unwrap().awaited = true;
        assert!(!errands.end(one), "one more is out");
        assert!(!errands.end(other), "nobody waits");
        assert!(errands.end(one));
        assert!(errands.0.borrow().is_empty());
    }
}
