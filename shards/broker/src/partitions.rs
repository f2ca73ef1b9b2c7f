//! The partitions that this shard leads: opening, open, or offline with a reason.
//!
//! Opening happens in the background, a bounded number at a time; requests for a partition that
//! is still opening wait for it and bring it to the front of the queue (`opening`). A partition that
//! cannot be opened is offline; others go on.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ahash::{AHashMap, RandomState};
use log::{Log, LogConfig, LogError, OpenHint, Recovered};
use reactor::sync::{Notified, Notify, Permit, Semaphore};
use reactor::{Class, Either, race};
use tracing::{debug, error, info, warn};
use wire::Uuid;

use crate::data_dirs::settle;
use crate::mesh::{CheckpointEntry, Closed, FoundLog};
use crate::opening::{OPENING_MAX, Opening, Queue};
use crate::partition::Partition;
use crate::recovery::Recovery;
use crate::shard::Shard;
use crate::{disk, settings};

/// Keys are the broker's own, so a fixed hash is safe; it makes a simulated run repeatable.
fn fixed_order() -> RandomState {
    RandomState::with_seeds(1, 2, 3, 4)
}

/// Checkpoint lines that are gathered without a break for requests.
const ENTRIES_AT_ONCE: usize = 256;

/// What a log is told that must not be written any more.
const DIR_HAS_FAILED: &str = "the data directory has failed";

/// Partitions of a data directory that close at the same time.
const CLOSING_MAX: usize = 1024;
/// From so many on they are synced together with all else on the disk.
const TOGETHER_FROM: usize = 256;

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

    /// Opens a partition that is offline.
    pub fn open_again(&self, shard: &Rc<Shard>, mut assignment: Assignment) {
        let key = (assignment.topic_id, assignment.index);
        if assignment.found.is_none() {
            let known = self.unopened.borrow().get(&key).copied();
            assignment.found = known.filter(|known| assignment.home == Ok(known.dir_number));
        }
        let before = match self.slots.borrow_mut().get_mut(&key) {
            Some(Slot::Offline(before)) => before.take(),
            _ => return,
        };
        self.open_after(shard, assignment, before);
    }

    /// Marks the partition as opening at once and opens it in the background.
    pub fn open(&self, shard: &Rc<Shard>, assignment: Assignment) {
        self.open_after(shard, assignment, None);
    }

    fn open_after(&self, shard: &Rc<Shard>, assignment: Assignment, before: Option<Rc<Partition>>) {
        let key = (assignment.topic_id, assignment.index);
        let dir_number = match &assignment.home {
            Ok(number) => *number,
            Err(reason) => {
                debug!(topic = %assignment.topic, partition = assignment.index, "offline: {reason}");
                self.set(key, Slot::Offline(before));
                return;
            }
        };
        let Some(queue) = self.queues.get(dir_number) else {
            self.set(key, Slot::Offline(before));
            return;
        };
        let opening = Opening::new(assignment, dir_number, before);
        self.set(key, Slot::Opening(opening.clone()));
        if queue.push(opening) {
            reactor::spawn(open_next(shard.clone(), dir_number)).detach();
        }
    }

    /// Opens a partition again whose log had failed.
    pub fn reopen(&self, shard: &Rc<Shard>, partition: &Rc<Partition>) {
        if self.serves(partition) {
            let again = assignment_again(partition, partition.dir_number, false);
            self.open_after(shard, again, Some(partition.clone()));
        }
    }

    /// Whether requests for the partition go to this one.
    pub fn serves(&self, partition: &Rc<Partition>) -> bool {
        self.with_slot(
            &(partition.topic_id, partition.index),
            |slot| matches!(slot, Some(Slot::Online(current)) if Rc::ptr_eq(current, partition)),
        )
    }

    /// Takes an open partition out of service for a moment: requests wait until it is resumed. None
    /// if it is not the one that is served. The caller closes the log and resumes, whatever happens,
    /// also if the pause is cancelled because the partition goes elsewhere.
    pub fn pause(&self, partition: &Rc<Partition>) -> Option<Rc<Opening>> {
        let number = partition.dir_number;
        let paused = self
            .serves(partition)
            .then(|| Opening::under_way(assignment_again(partition, number, true), number))?;
        let key = (partition.topic_id, partition.index);
        self.set(key, Slot::Opening(paused.clone()));
        Some(paused)
    }

    /// Opens a paused partition, whose log is closed, in this data directory; `None` leaves it
    /// offline. One whose pause was cancelled is left alone.
    pub fn resume(
        &self,
        shard: &Rc<Shard>,
        paused: &Rc<Opening>,
        partition: &Rc<Partition>,
        dir_number: Option<usize>,
    ) {
        let key = (partition.topic_id, partition.index);
        let is_ours = self.with_slot(
            &key,
            |slot| matches!(slot, Some(Slot::Opening(current)) if Rc::ptr_eq(current, paused)),
        );
        match dir_number {
            Some(number) if is_ours => {
                let again = assignment_again(partition, number, false);
                self.open_after(shard, again, Some(partition.clone()));
            }
            None if is_ours => self.set(key, Slot::Offline(None)),
            _ => {}
        }
        paused.end();
    }

    /// Takes a partition out of service; what is left of it is to be deleted.
    pub fn withdraw(&self, key: Key) -> Option<Slot> {
        self.unmade.borrow_mut().remove(&key);
        self.unopened.borrow_mut().remove(&key);
        self.replace(key, None)
    }

    /// Deletes the logs of partitions that are out of service; returns when their directories
    /// have been renamed, so that a topic of the same name can be created. One that is still being
    /// recovered is given up first, which takes a moment.
    pub async fn delete(&self, shard: &Rc<Shard>, withdrawn: Vec<Slot>) {
        let mut dirs = BTreeSet::new();
        let mut left = withdrawn.into_iter();
        loop {
            let some = left.by_ref().take(OPENING_MAX);
            let some: Vec<_> = some.map(|slot| self.delete_one(shard, slot)).collect();
            if some.is_empty() {
                break;
            }
            dirs.extend(reactor::join_all(some).await.into_iter().flatten());
        }
        for number in dirs {
            let Some(data_dir) = shard.data_dirs().get(number) else { continue };
            let synced = race(reactor::fs::sync_dir(data_dir), shard.dirs.failed(number)).await;
            if let Either::Left(Err(error)) = synced {
                warn!("{}: the names of deleted partitions: {error}", data_dir.display());
            }
        }
    }

    /// Returns the number of the data directory that has to be synced.
    async fn delete_one(&self, shard: &Rc<Shard>, slot: Slot) -> Option<usize> {
        match slot {
            Slot::Online(partition) => {
                let number = partition.dir_number;
                let deleting = async {
                    let _permit = self.permit(number).await;
                    delete_log(partition.log.clone()).await;
                };
                // Metadata must not wait for a disk that hangs; what stays there is set aside later.
                match race(deleting, shard.dirs.failed(number)).await {
                    Either::Left(()) => Some(number),
                    Either::Right(()) => {
                        partition.log.fail(DIR_HAS_FAILED);
                        None
                    }
                }
            }
            Slot::Opening(opening) => {
                opening.give_up().await;
                close_before(&opening).await;
                let data_dir = shard.data_dirs().get(opening.dir_number)?;
                let dir = data_dir.join(opening.assignment.dir_name());
                let delay_ms = shard.config().topic_defaults.file_delete_delay_ms;
                let delay = Duration::from_millis(delay_ms.unsigned_abs());
                match shard.log_shared.delete_dir(&dir, delay).await {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        warn!("could not delete {}: {error}", dir.display());
                    }
                    // It may never have been made.
                    _ => {}
                }
                Some(opening.dir_number)
            }
            Slot::Offline(_) => None,
        }
    }

    /// Hands the partition over to another shard of this host: closes its log. When this returns,
    /// nobody here is at its files any more, unless their directory has failed.
    pub async fn release(&self, shard: &Shard, key: Key) {
        let slot = self.replace(key, None);
        let unmade = self.unmade.borrow_mut().remove(&key);
        match slot {
            Some(Slot::Opening(opening)) => {
                opening.give_up().await;
                if let Some(before) = opening.take_before() {
                    close_for_another(shard, before).await;
                }
                if unmade {
                    make_for_another(shard, &opening).await;
                }
            }
            Some(Slot::Online(partition)) | Some(Slot::Offline(Some(partition))) => {
                close_for_another(shard, partition).await;
            }
            Some(Slot::Offline(None)) | None => {}
        }
    }

    /// Waits until no partition is opening any more.
    pub async fn settled(&self) {
        while self.opening.get() > 0 {
            self.settled.notified().await;
        }
    }

    /// Gives up what is still opening: a stop does not wait for a recovery. Returns the lines that
    /// are known of those partitions, and whether they need no recovery at the next start.
    async fn give_up_opening(&self) -> (Vec<CheckpointEntry>, bool) {
        let mut opening: Vec<Rc<Opening>> = Vec::new();
        for slot in self.slots.borrow().values() {
            if let Slot::Opening(one) = slot {
                opening.push(one.clone());
            }
        }
        opening.sort_by(|a, b| {
            let (a, b) = (&a.assignment, &b.assignment);
            (&a.topic, a.index).cmp(&(&b.topic, b.index))
        });
        let mut clean = true;
        let mut entries = Vec::new();
        for one in opening {
            let assignment = &one.assignment;
            self.replace((assignment.topic_id, assignment.index), None);
            one.give_up().await;
            close_before(&one).await;
            let Some(found) = assignment.found else { continue };
            clean &= found.clean;
            entries.push(CheckpointEntry {
                dir_number: one.dir_number,
                topic_id: assignment.topic_id,
                topic: assignment.topic.to_string(),
                partition: assignment.index,
                recovery_point: found.recovery_point.max(found.vouched.synced_end),
                log_start_offset: found.log_start_offset.max(found.vouched.log_start),
                high_watermark: found.recovery_point,
                written_end: found.vouched.written_end,
                cleaner_point: found.cleaner_point,
            });
        }
        (entries, clean)
    }

    /// Closes every log, a bounded number at a time. Returns the final checkpoint lines too.
    pub async fn close_all(&self) -> (Vec<CheckpointEntry>, Closed) {
        let (mut entries, mut clean) = self.give_up_opening().await;
        // One that could not be opened was not recovered either.
        clean &= self.counts().offline == 0;
        while self.deleting.count.get() > 0 {
            self.deleting.ended.notified().await;
        }
        let closing: Vec<_> = self.online();
        self.slots.borrow_mut().clear();
        self.sorted.replace(None);
        let mut by_dir: BTreeMap<usize, Vec<Rc<Partition>>> = BTreeMap::new();
        for partition in closing {
            by_dir.entry(partition.dir_number).or_default().push(partition);
        }
        let dirs: Vec<_> = by_dir.into_values().map(|all| reactor::spawn(close_dir(all))).collect();
        let mut failed = 0;
        for dir in dirs {
            for (entry, closed) in dir.await {
                entries.push(entry);
                failed += usize::from(!closed);
            }
        }
        (entries, Closed { clean: clean && failed == 0, failed })
    }

    /// One line a partition, gathered with breaks for requests.
    pub async fn checkpoint_entries(&self) -> Vec<CheckpointEntry> {
        let online = self.online();
        let mut entries = Vec::with_capacity(online.len());
        for some in online.chunks(ENTRIES_AT_ONCE) {
            entries.extend(some.iter().map(|partition| checkpoint_entry(partition)));
            reactor::yield_now().await;
        }
        entries
    }
}

/// Closes the partitions of a data directory; says of each whether that worked.
async fn close_dir(partitions: Vec<Rc<Partition>>) -> Vec<(CheckpointEntry, bool)> {
    let together = partitions.len() >= TOGETHER_FROM;
    let mut closed = Vec::with_capacity(partitions.len());
    for some in partitions.chunks(CLOSING_MAX) {
        let mut tasks = Vec::with_capacity(some.len());
        for partition in some {
            reactor::yield_if_due().await;
            tasks.push(reactor::spawn(close(Rc::clone(partition), together)));
        }
        for task in tasks {
            closed.push(task.await);
        }
    }
    closed
}

async fn close(partition: Rc<Partition>, together: bool) -> (CheckpointEntry, bool) {
    let log = partition.log.clone();
    let closed = match together {
        true => log.close_with_many().await,
        false => log.close().await,
    };
    if let Err(error) = &closed {
        let index = partition.index;
        warn!(topic = %partition.topic, partition = index, "close failed: {error}");
    }
    (checkpoint_entry(&partition), closed.is_ok())
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

fn checkpoint_entry(partition: &Partition) -> CheckpointEntry {
    CheckpointEntry {
        dir_number: partition.dir_number,
        topic_id: partition.topic_id,
        topic: partition.topic.to_string(),
        partition: partition.index,
        recovery_point: partition.log.recovery_point(),
        log_start_offset: partition.log.log_start_offset(),
        high_watermark: partition.high_watermark(),
        written_end: partition.log.written_end_offset(),
        cleaner_point: partition.log.cleaner_point(),
    }
}

/// Closes the log of a partition that another shard will open. What a close that fails leaves behind
/// is what a crash would: the next opening recovers it, and a probe tells whether its disk works.
async fn close_for_another(shard: &Shard, partition: Rc<Partition>) {
    let number = partition.dir_number;
    let (topic, index) = (partition.topic.clone(), partition.index);
    match race(partition.log.clone().close(), shard.dirs.failed(number)).await {
        Either::Left(Ok(_) | Err(LogError::Closed(_))) => {}
        Either::Left(Err(error)) => {
            warn!(%topic, partition = index, "close failed, its next opening recovers it: {error}");
            match &error {
                LogError::Storage(failed) if log::is_out_of_space(&failed.cause) => {
                    shard.dirs.note_full(number);
                }
                _ => shard.dirs.suspect(number),
            }
        }
        // It is in no slot: nobody else tells it. What it has not written it never writes.
        Either::Right(()) => {
            partition.log.fail(DIR_HAS_FAILED);
            warn!(%topic, partition = index, "not closed, its directory has failed");
        }
    }
}

/// A new partition whose folder was to be made: who opens it next expects one.
async fn make_for_another(shard: &Shard, opening: &Opening) {
    let Some(data_dir) = shard.data_dirs().get(opening.dir_number) else { return };
    let dir = data_dir.join(opening.assignment.dir_name());
    let making = reactor::fs::create_dir_all(&dir);
    match race(making, shard.dirs.failed(opening.dir_number)).await {
        Either::Left(Err(error)) => {
            warn!("{} could not be made: {error}", dir.display());
            shard.dirs.suspect(opening.dir_number);
        }
        Either::Left(Ok(())) | Either::Right(()) => {}
    }
}

/// What could not be written is gone with the close; its producers were told so.
async fn close_before(opening: &Opening) {
    let Some(before) = opening.before() else { return };
    if let Err(error) = before.log.clone().close().await {
        debug!(topic = %before.topic, partition = before.index, "closed: {error}");
    }
    opening.take_before();
}

/// Opens one partition of a data directory after the other, until none waits.
async fn open_next(shard: Rc<Shard>, dir_number: usize) {
    while let Some(opening) = shard.partitions.queues.get(dir_number).and_then(Queue::next) {
        open_one(&shard, &opening).await;
        opening.end();
    }
}

async fn open_one(shard: &Rc<Shard>, opening: &Rc<Opening>) {
    let (assignment, dir_number) = (&opening.assignment, opening.dir_number);
    let known_at = Cell::new(0);
    let class = match assignment.found {
        Some(found) if !found.clean => Class::Background,
        _ => Class::Produce,
    };
    let work = async {
        close_before(opening).await;
        let _permit = shard.partitions.permit(dir_number).await;
        known_at.set(shard.image().offset());
        reactor::with_class(class, open(shard, opening)).await
    };
    let opened = match race(work, shard.dirs.failed(dir_number)).await {
        Either::Left(opened) => opened,
        Either::Right(()) => {
            if let Some(before) = opening.before() {
                before.log.fail(DIR_HAS_FAILED);
            }
            Err("its data directory has failed".to_owned())
        }
    };
    let key = (assignment.topic_id, assignment.index);
    let partitions = &shard.partitions;
    let is_wanted = partitions.with_slot(
        &key,
        |slot| matches!(slot, Some(Slot::Opening(current)) if Rc::ptr_eq(current, opening)),
    );
    match opened {
        Ok(partition) if !is_wanted => {
            if let Err(error) = partition.log.close().await {
                debug!(topic = %partition.topic, partition = partition.index, "closed: {error}");
            }
        }
        // Nobody waits for a close at a disk that has failed.
        Err(_) if !is_wanted => drop(opening.take_before()),
        Ok(partition) => {
            if shard.image().offset() != known_at.get() {
                catch_up(shard, &partition);
            }
            let partition = Rc::new(partition);
            partitions.unmade.borrow_mut().remove(&key);
            partitions.unopened.borrow_mut().remove(&key);
            let slot = if shard.dirs.is_failed(dir_number) {
                partition.log.fail(DIR_HAS_FAILED);
                Slot::Offline(Some(partition))
            } else {
                Slot::Online(partition)
            };
            partitions.set(key, slot);
        }
        Err(reason) => {
            error!(
                topic = %assignment.topic, partition = assignment.index,
                "partition is offline: {reason}"
            );
            if let Some(found) = assignment.found {
                // What a clean shutdown says of its files is not taken for granted again.
                let known = FoundLog { clean: false, ..found };
                partitions.unopened.borrow_mut().insert(key, known);
            }
            // One that could not be closed: the next try closes it before it opens anything.
            partitions.set(key, Slot::Offline(opening.take_before()));
        }
    }
}

/// What opening the partition again takes.
fn assignment_again(partition: &Partition, dir_number: usize, clean: bool) -> Assignment {
    let found = FoundLog {
        dir_number,
        clean,
        recovery_point: partition.log.recovery_point(),
        log_start_offset: partition.log.log_start_offset(),
        cleaner_point: partition.log.cleaner_point(),
        is_noted: dir_number == partition.dir_number,
        ..FoundLog::UNKNOWN
    };
    Assignment {
        topic_id: partition.topic_id,
        topic: partition.topic.clone(),
        index: partition.index,
        leader_epoch: partition.leader_epoch(),
        found: Some(found),
        home: Ok(dir_number),
    }
}

async fn delete_log(log: Log) {
    let dir = log.dir().to_owned();
    if let Err(error) = log.delete_unsynced().await {
        warn!("could not delete {}: {error}", dir.display());
    }
}

/// Takes over what changed while the partition was opening: changes go to open partitions only.
fn catch_up(shard: &Shard, partition: &Partition) {
    partition.reconfigure(shard.topic_config(&partition.topic), shard.partition_limits());
    let image = shard.image();
    let topic = image.topic_by_id(partition.topic_id);
    if let Some(state) = topic.and_then(|topic| topic.partition(partition.index)) {
        partition.become_leader(state.leader_epoch);
    }
}

async fn open(shard: &Rc<Shard>, opening: &Opening) -> Result<Partition, String> {
    let (assignment, dir_number) = (&opening.assignment, opening.dir_number);
    let Some(data_dir) = shard.data_dirs().get(dir_number) else {
        return Err(format!("data directory number {dir_number} is gone"));
    };
    let dir: PathBuf = data_dir.join(assignment.dir_name());
    let config = shard.topic_config(&assignment.topic);
    let limits = shard.partition_limits();
    let options = settings::log_config(&config, &limits);
    let (log, recovered) = open_log(shard, opening, &dir, &options).await?;
    shard.partitions.recovery.note(&recovered);
    if assignment.found.is_none_or(|found| !found.is_noted) {
        let key = (assignment.topic_id, assignment.index);
        shard.dirs.note_made(dir_number, key).await;
    }
    if recovered.truncated_bytes > 0 {
        info!(
            "recovered {}: {} bytes scanned, {} cut off after the last whole batch",
            dir.display(),
            recovered.bytes_scanned,
            recovered.truncated_bytes
        );
    }
    Ok(Partition::new(
        (assignment.topic_id, assignment.topic.clone(), assignment.index),
        dir_number,
        log,
        assignment.leader_epoch,
        config,
        (limits, shard.metrics.traffic.of_topic(&assignment.topic)),
    ))
}

/// Whether the folder of another topic is not there because that topic had the name before: somebody
/// has put it there, or its id is damaged. The partition's own records are elsewhere, or in it.
fn is_out_of_place(shard: &Shard, assignment: &Assignment, found: Uuid) -> bool {
    let was_here = assignment.found.is_some_and(|found| found.is_noted);
    was_here || found.is_zero() || shard.image().topic_by_id(found).is_some()
}

async fn open_log(
    shard: &Rc<Shard>,
    opening: &Opening,
    dir: &Path,
    options: &LogConfig,
) -> Result<(Log, Recovered), String> {
    let assignment = &opening.assignment;
    let key = (assignment.topic_id, assignment.index);
    let may_begin = || shard.partitions.unmade.borrow().contains(&key);
    // Of a folder that nobody vouches for, what lies behind its checkpoint is looked at.
    let unknown = OpenHint {
        clean: false,
        leader_epoch: assignment.leader_epoch,
        topic_id: Some(assignment.topic_id),
        expected: !may_begin(),
        ..OpenHint::default()
    };
    let hint = assignment.found.map_or(unknown, |found| OpenHint {
        clean: found.clean,
        recovery_point: found.recovery_point,
        log_start_offset: found.log_start_offset,
        cleaner_point: found.cleaner_point,
        expected: true,
        vouched: found.vouched,
        ..unknown
    });
    let now_ms = reactor::wall_clock_ms();
    let try_open = |hint| {
        let options = options.clone();
        let dir = dir.to_owned();
        Log::open_unless(&shard.log_shared, dir, options, hint, now_ms, &opening.cancel)
    };
    let mut opened = try_open(hint).await;
    if let Err(LogError::Foreign { found, .. }) = opened
        && !is_out_of_place(shard, assignment, found)
    {
        // Left by an earlier topic of the same name.
        let aside = disk::set_aside(dir).await;
        let aside = aside.map_err(|error| format!("an older folder is in the way: {error}"))?;
        warn!("{} is of a deleted topic; set aside as {}", dir.display(), aside.display());
        opened = try_open(unknown).await;
    }
    if let Err(LogError::Missing(_)) = opened
        && settle::finish_move(dir, assignment.topic_id).await?
    {
        opened = try_open(unknown).await;
    }
    opened.map_err(|error| {
        if let LogError::Storage(failed) = &error
            && log::is_out_of_space(&failed.cause)
        {
            shard.dirs.note_full(opening.dir_number);
        }
        error.to_string()
    })
}
