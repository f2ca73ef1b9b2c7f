//! Deadlines by key, in the order they fall due; groups' keys are below, transactions have their
//! own.
//!
//! A member's session is put off with every heartbeat, so a deadline that moves later costs one
//! write: the heap keeps the earlier entry, and when it comes up it is put back with the time that
//! holds. Entries that no longer mean anything are skipped, and thrown out together once they
//! outnumber the live ones. One live deadline a key; memory is bounded by the number of keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use ahash::AHashMap;

use crate::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A member must be heard of, by heartbeat or otherwise.
    Session,
    /// The group's members must have joined (classic).
    Join,
    /// The group's members must have asked for their assignment (classic).
    Sync,
    /// A member must give up the partitions it was asked for.
    Revoke,
    /// A classic member of a consumer group must join again.
    MemberJoin,
    /// A classic member of a consumer group must ask for its assignment.
    MemberSync,
}

/// Whose deadline; the member is empty where it is the group's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub kind: Kind,
    pub group: Name,
    pub member: Option<Name>,
}

impl Key {
    pub fn group(kind: Kind, group: &Name) -> Self {
        Key { kind, group: group.clone(), member: None }
    }

    pub fn member(kind: Kind, group: &Name, member: &Name) -> Self {
        Key { kind, group: group.clone(), member: Some(member.clone()) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    due_ms: i64,
    /// When the one heap entry that counts comes up; never after `due_ms`.
    armed_ms: i64,
}

#[derive(Debug)]
pub(crate) struct Timers<K = Key> {
    live: AHashMap<K, Timer>,
    heap: BinaryHeap<Reverse<(i64, K)>>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers { live: AHashMap::new(), heap: BinaryHeap::new() }
    }
}

/// Below this many entries a heap is not worth cleaning.
const HEAP_SLACK: usize = 64;

impl<K: Clone + Ord + Hash> Timers<K> {
    /// Sets the deadline of a key, in place of the one it had.
    pub fn set(&mut self, key: K, due_ms: i64) {
        match self.live.get_mut(&key) {
            Some(timer) if timer.armed_ms <= due_ms => {
                timer.due_ms = due_ms;
                return;
            }
            Some(timer) => *timer = Timer { due_ms, armed_ms: due_ms },
            None => {
                self.live.insert(key.clone(), Timer { due_ms, armed_ms: due_ms });
            }
        }
        self.heap.push(Reverse((due_ms, key)));
        if self.heap.len() > 2 * self.live.len() + HEAP_SLACK {
            self.rebuild();
        }
    }

    /// Sets a deadline unless the key has one.
    pub fn set_if_absent(&mut self, key: K, due_ms: i64) {
        if !self.live.contains_key(&key) {
            self.set(key, due_ms);
        }
    }

    pub fn cancel(&mut self, key: &K) {
        self.live.remove(key);
    }

    /// When to look again: at or before the next deadline.
    pub fn next_due(&mut self) -> Option<i64> {
        while let Some(Reverse((at, key))) = self.heap.peek() {
            match self.live.get(key) {
                Some(timer) if timer.armed_ms == *at => return Some(*at),
                _ => self.heap.pop(),
            };
        }
        None
    }

    /// Takes the next key whose deadline has passed.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<K> {
        while self.next_due()? <= now_ms {
            let Reverse((_, key)) = self.heap.pop()?;
            let timer = self.live.get_mut(&key)?;
            if timer.due_ms <= now_ms {
                self.live.remove(&key);
                return Some(key);
            }
            timer.armed_ms = timer.due_ms;
            self.heap.push(Reverse((timer.due_ms, key)));
        }
        None
    }

    #[cfg(test)]
    pub fn entries(&self) -> (usize, usize) {
        (self.live.len(), self.heap.len())
    }

    fn rebuild(&mut self) {
        let live = self.live.iter_mut().map(|(key, timer)| {
            timer.armed_ms = timer.due_ms;
            Reverse((timer.due_ms, key.clone()))
        });
        self.heap = live.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str) -> Key {
        Key::group(Kind::Join, &Name::from(group))
    }

    #[test]
    fn keys_come_up_in_order_and_only_once() {
        let mut timers = Timers::default();
        timers.set(key("b"), 20);
        timers.set(key("a"), 10);
        timers.set(key("gone"), 5);
        timers.cancel(&key("gone"));
        assert_eq!(timers.next_due(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(30), Some(key("a")));
        assert_eq!(timers.pop_due(30), Some(key("b")));
        assert_eq!(timers.pop_due(30), None);
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn a_deadline_moves_both_ways() {
        let mut timers = Timers::default();
        timers.set(key("g"), 10);
        timers.set(key("g"), 50);
        assert_eq!(timers.pop_due(49), None);
        assert_eq!(timers.next_due(), Some(50));
        timers.set(key("g"), 20);
        assert_eq!(timers.next_due(), Some(20));
        assert_eq!(timers.pop_due(20), Some(key("g")));
        assert_eq!(timers.pop_due(100), None, "the entry of 50 means nothing any more");
        timers.set_if_absent(key("g"), 5);
        timers.set_if_absent(key("g"), 1);
        assert_eq!(timers.next_due(), Some(5));
    }

    #[test]
    fn heartbeats_leave_no_trail() {
        let mut timers = Timers::default();
        for now in 0..10_000 {
            for group in ["a", "b", "c"] {
                timers.set(key(group), now + 45_000);
            }
            timers.set(key("d"), 100_000 - now);
            while timers.pop_due(now).is_some() {}
        }
        let (live, heap) = timers.entries();
        assert_eq!(live, 4);
        assert!(heap <= 2 * live + HEAP_SLACK + 1, "{heap} entries");
    }
}
