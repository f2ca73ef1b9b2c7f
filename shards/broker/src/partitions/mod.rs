//! The partitions that this shard leads: opening, open, or offline with a reason.
//!
//! Owns: the slot of each, who waits for one, and which are open. How a slot gets its partition is
//! in `open.rs`, how one loses it to a deletion or to another shard in `leave.rs`, and what a stop
//! and the checkpoints take of all of them in `close.rs`.
//!
//! ```text
//!               open                        failed, cannot be opened
//! (no slot) ─────────► Opening ──► Online ──────────────► Offline ──► Opening ...
//!     ▲                   │          │                       │
//!     └───────────────────┴──────────┴───────────────────────┘ deleted, handed over, closed
//! ```

mod close;
mod leave;
mod open;

pub(crate) use close::CLOSE_WAIT;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ahash::{AHashMap, RandomState};
use reactor::sync::{Notified, Notify, Permit, Semaphore};
use wire::Uuid;

use crate::mesh::FoundLog;
use crate::opening::{OPENING_MAX, Opening, Queue};
use crate::partition::Partition;
use crate::recovery::Recovery;

/// Keys are the broker's own, so a fixed hash is safe; it makes a simulated run repeatable.
fn fixed_order() -> RandomState {
    RandomState::with_seeds(1, 2, 3, 4)
}

/// What a log is told that must not be written any more.
const DIR_HAS_FAILED: &str = "the data directory has failed";

/// A partition by its topic's id and its number.
type Key = (Uuid, i32);

pub(crate) enum Slot {
    Opening(Rc<Opening>),
    Online(Rc<Partition>),
    /// Its data directory has failed or is missing, or it could not be opened. What was open before
    /// may still be at work on its files: it is closed before they are opened again.
    Offline(Option<Rc<Partition>>),
}

impl Slot {
    /// Whether it is an open partition of an internal topic.
    fn is_internal(&self) -> bool {
        matches!(self, Slot::Online(partition) if partition.is_internal)
    }
}

/// How many slots are in which state.
#[derive(Default)]
pub(crate) struct SlotCounts {
    pub opening: usize,
    pub online: usize,
    pub offline: usize,
}

/// A partition to open.
pub(crate) struct Assignment {
    pub topic_id: Uuid,
    pub topic: Rc<str>,
    pub index: i32,
    pub leader_epoch: i32,
    pub found: Option<FoundLog>,
    /// The number of its data directory, or why that cannot be used.
    pub home: Result<usize, String>,
}

impl Assignment {
    pub fn dir_name(&self) -> String {
        log::partition_dir_name(&self.topic, self.index)
    }
}

pub(crate) struct LocalPartitions {
    slots: RefCell<AHashMap<Key, Slot>>,
    /// The open ones in order, until one comes or goes.
    sorted: RefCell<Option<Vec<Rc<Partition>>>>,
    opening: Cell<usize>,
    settled: Notify,
    /// An open partition of an internal topic has come or gone.
    internal_changed: Notify,
    /// Partitions that the image names are still to get their slots.
    registering: Rc<Pending>,
    /// Those that may have no folder yet: new ones, and those of which a start found nothing though
    /// it could look everywhere. Any other whose folder is not there is offline, never begun empty.
    unmade: RefCell<BTreeSet<Key>>,
    /// What the start found of those that could not be opened: the next try must not know less.
    unopened: RefCell<BTreeMap<Key, FoundLog>>,
    /// Deleted ones whose folders still have their names.
    deleting: Rc<Pending>,
    pub recovery: Recovery,
    queues: Vec<Queue>,
    /// By data directory: one that hangs must not keep the others' partitions waiting.
    permits: Vec<Semaphore>,
}

impl LocalPartitions {
    pub fn new(data_dirs: usize) -> Self {
        LocalPartitions {
            slots: RefCell::new(AHashMap::with_hasher(fixed_order())),
            sorted: RefCell::default(),
            opening: Cell::new(0),
            settled: Notify::new(),
            internal_changed: Notify::new(),
            registering: Rc::default(),
            unmade: RefCell::default(),
            unopened: RefCell::default(),
            deleting: Rc::default(),
            recovery: Recovery::default(),
            queues: (0..data_dirs).map(|_| Queue::default()).collect(),
            permits: (0..data_dirs).map(|_| Semaphore::new(OPENING_MAX)).collect(),
        }
    }

    pub fn with_slot<T>(&self, key: &Key, read: impl FnOnce(Option<&Slot>) -> T) -> T {
        read(self.slots.borrow().get(key))
    }

    /// If the partition is opening: brings it to the front, and resolves when that has ended.
    pub fn ask_for(&self, key: &Key) -> Option<Notified> {
        let slots = self.slots.borrow();
        let Some(Slot::Opening(opening)) = slots.get(key) else { return None };
        if let Some(queue) = self.queues.get(opening.dir_number) {
            queue.ask_for(opening);
        }
        Some(opening.ended())
    }

    /// The partition may have no folder yet.
    pub fn note_unmade(&self, key: Key) {
        self.unmade.borrow_mut().insert(key);
    }

    /// Until the guard is dropped, partitions without a slot may be about to get one.
    pub fn register(&self) -> PendingGuard {
        self.registering.begin()
    }

    /// Whether any partition is opening, or still to get its slot.
    pub fn are_opening(&self) -> bool {
        self.opening.get() > 0 || self.registering.count.get() > 0
    }

    /// If partitions are still to get their slots: resolves when they have.
    pub fn registered(&self) -> Option<Notified> {
        (self.registering.count.get() > 0).then(|| self.registering.ended.notified())
    }

    /// A stop waits until the guard is dropped.
    pub fn deleting(&self) -> PendingGuard {
        self.deleting.begin()
    }

    pub fn get(&self, key: &Key) -> Option<Rc<Partition>> {
        self.with_slot(key, |slot| match slot {
            Some(Slot::Online(partition)) => Some(partition.clone()),
            _ => None,
        })
    }

    /// The open partitions, by topic and number: what is done to all of them has an order that
    /// does not depend on a hash.
    pub fn online(&self) -> Vec<Rc<Partition>> {
        if let Some(sorted) = &*self.sorted.borrow() {
            return sorted.clone();
        }
        let slots = self.slots.borrow();
        let online = slots.values().filter_map(|slot| match slot {
            Slot::Online(partition) => Some(partition.clone()),
            Slot::Opening(_) | Slot::Offline(_) => None,
        });
        let mut online: Vec<Rc<Partition>> = online.collect();
        // Names of one topic are mostly one string, which need not be compared with itself.
        online.sort_unstable_by(|a, b| match Rc::ptr_eq(&a.topic, &b.topic) {
            true => a.index.cmp(&b.index),
            false => (&a.topic, a.index).cmp(&(&b.topic, b.index)),
        });
        self.sorted.replace(Some(online.clone()));
        online
    }

    pub fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts::default();
        for slot in self.slots.borrow().values() {
            match slot {
                Slot::Opening(_) => counts.opening += 1,
                // Its log has failed: it is not written, whatever can still be read of it.
                Slot::Online(partition) if partition.has_failed() => counts.offline += 1,
                Slot::Online(_) => counts.online += 1,
                Slot::Offline(_) => counts.offline += 1,
            }
        }
        counts
    }

    fn set(&self, key: Key, slot: Slot) {
        self.replace(key, Some(slot));
    }

    fn replace(&self, key: Key, slot: Option<Slot>) -> Option<Slot> {
        let is_opening = |slot: &Option<Slot>| matches!(slot, Some(Slot::Opening(_)));
        let is_online = |slot: &Option<Slot>| matches!(slot, Some(Slot::Online(_)));
        let mut sorts_anew = is_online(&slot);
        let is_internal = slot.as_ref().is_some_and(Slot::is_internal);
        let mut opening = self.opening.get() + usize::from(is_opening(&slot));
        let before = match slot {
            Some(slot) => self.slots.borrow_mut().insert(key, slot),
            None => self.slots.borrow_mut().remove(&key),
        };
        sorts_anew |= is_online(&before);
        opening -= usize::from(is_opening(&before));
        if sorts_anew {
            self.sorted.replace(None);
        }
        if is_internal || before.as_ref().is_some_and(Slot::is_internal) {
            self.internal_changed.notify_all();
        }
        if self.opening.replace(opening) > 0 && opening == 0 {
            self.settled.notify_all();
        }
        before
    }

    /// Resolves when an open partition of an internal topic comes or goes.
    pub fn internal_changed(&self) -> Notified {
        self.internal_changed.notified()
    }

    /// Has whoever listens for that look again.
    pub fn note_internal_change(&self) {
        self.internal_changed.notify_all();
    }

    /// Whether a partition that is led here is open, opening, or about to.
    pub fn is_coming(&self, key: &Key) -> bool {
        self.with_slot(key, |slot| match slot {
            Some(slot) => !matches!(slot, Slot::Offline(_)),
            None => self.registering.count.get() > 0,
        })
    }

    /// How many partitions are opening.
    pub fn opening(&self) -> usize {
        self.opening.get()
    }

    /// Partitions that are offline, in order.
    pub fn offline(&self) -> Vec<Key> {
        let slots = self.slots.borrow();
        let offline = slots.iter().filter(|(_, slot)| matches!(slot, Slot::Offline(_)));
        let mut keys: Vec<Key> = offline.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    async fn permit(&self, dir_number: usize) -> Option<Permit> {
        Some(self.permits.get(dir_number)?.acquire(1).await)
    }

    /// Takes every partition of a data directory offline and tells everyone who waits for one.
    /// Returns how many.
    pub fn take_offline(&self, dir_number: usize) -> usize {
        let here: Vec<Rc<Partition>> =
            self.online().into_iter().filter(|p| p.dir_number == dir_number).collect();
        for partition in &here {
            let key = (partition.topic_id, partition.index);
            self.set(key, Slot::Offline(Some(partition.clone())));
            partition.log.fail(DIR_HAS_FAILED);
        }
        here.len()
    }
    /// Whether requests for the partition go to this one.
    pub fn serves(&self, partition: &Rc<Partition>) -> bool {
        self.with_slot(
            &(partition.topic_id, partition.index),
            |slot| matches!(slot, Some(Slot::Online(current)) if Rc::ptr_eq(current, partition)),
        )
    }
    /// Waits until no partition is opening any more.
    pub async fn settled(&self) {
        while self.opening.get() > 0 {
            self.settled.notified().await;
        }
    }
}

/// Something that others wait for until nobody is at it any more.
#[derive(Default)]
struct Pending {
    count: Cell<usize>,
    ended: Notify,
}

impl Pending {
    fn begin(self: &Rc<Self>) -> PendingGuard {
        self.count.set(self.count.get() + 1);
        PendingGuard(self.clone())
    }
}

pub(crate) struct PendingGuard(Rc<Pending>);

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let left = self.0.count.get() - 1;
        self.0.count.set(left);
        if left == 0 {
            self.0.ended.notify_all();
        }
    }
}
