//! The partitions that this shard leads: opening, open, or offline with a reason.
//!
//! Opening happens in the background, a bounded number at a time; requests for a partition that
//! is still opening wait for it. A partition that cannot be opened is offline; others go on.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use ahash::{AHashMap, RandomState};
use log::{Log, OpenHint};
use reactor::sync::{Notify, Permit, Semaphore};
use tracing::{debug, error, info, warn};
use wire::Uuid;

use crate::mesh::{CheckpointEntry, FoundLog};
use crate::partition::Partition;
use crate::shard::Shard;
use crate::{disk, settings};

/// Keys are the broker's own, so a fixed hash is safe; it makes a simulated run repeatable.
fn fixed_order() -> RandomState {
    RandomState::with_seeds(1, 2, 3, 4)
}

/// Partitions of one data directory that one shard may be opening or closing at the same time.
const OPENING_MAX: usize = 64;

pub(crate) enum Slot {
    Opening,
    Online(Rc<Partition>),
    /// Its data directory has failed or is missing, or it could not be opened. What was open before
    /// may still be at work on its files: it is closed before they are opened again.
    Offline(Option<Rc<Partition>>),
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
    fn dir_name(&self) -> String {
        log::partition_dir_name(&self.topic, self.index)
    }
}

pub(crate) struct LocalPartitions {
    slots: RefCell<AHashMap<(Uuid, i32), Slot>>,
    slot_changed: Notify,
    /// By data directory: one that hangs must not keep the others' partitions waiting.
    permits: Vec<Semaphore>,
}

impl LocalPartitions {
    pub fn new(data_dirs: usize) -> Self {
        LocalPartitions {
            slots: RefCell::new(AHashMap::with_hasher(fixed_order())),
            slot_changed: Notify::new(),
            permits: (0..data_dirs).map(|_| Semaphore::new(OPENING_MAX)).collect(),
        }
    }

    pub fn with_slot<T>(&self, key: &(Uuid, i32), read: impl FnOnce(Option<&Slot>) -> T) -> T {
        read(self.slots.borrow().get(key))
    }

    /// Resolves at the next change of any slot.
    pub async fn slot_changed(&self) {
        self.slot_changed.notified().await;
    }

    /// The open partitions, by topic and number: what is done to all of them has an order that
    /// does not depend on a hash.
    pub fn online(&self) -> Vec<Rc<Partition>> {
        let slots = self.slots.borrow();
        let online = slots.values().filter_map(|slot| match slot {
            Slot::Online(partition) => Some(partition.clone()),
            Slot::Opening | Slot::Offline(_) => None,
        });
        let mut online: Vec<Rc<Partition>> = online.collect();
        online.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        online
    }

    pub fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts::default();
        for slot in self.slots.borrow().values() {
            match slot {
                Slot::Opening => counts.opening += 1,
                Slot::Online(_) => counts.online += 1,
                Slot::Offline(_) => counts.offline += 1,
            }
        }
        counts
    }

    fn set(&self, key: (Uuid, i32), slot: Slot) {
        self.slots.borrow_mut().insert(key, slot);
        self.slot_changed.notify_all();
    }

    /// Partitions that are offline, in order.
    pub fn offline(&self) -> Vec<(Uuid, i32)> {
        let slots = self.slots.borrow();
        let offline = slots.iter().filter(|(_, slot)| matches!(slot, Slot::Offline(_)));
        let mut keys: Vec<(Uuid, i32)> = offline.map(|(key, _)| *key).collect();
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
            partition.log.fail("the data directory has failed");
        }
        here.len()
    }

    /// Opens a partition that is offline.
    pub fn open_again(&self, shard: &Rc<Shard>, assignment: Assignment) {
        let key = (assignment.topic_id, assignment.index);
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
        self.set(key, Slot::Opening);
        let shard = shard.clone();
        reactor::spawn(async move {
            // What could not be written is gone with the close; its producers were told so.
            if let Some(before) = before
                && let Err(error) = before.log.clone().close().await
            {
                debug!(topic = %before.topic, partition = before.index, "closed: {error}");
            }
            let permit = shard.partitions.permit(dir_number).await;
            let known_at = shard.image().offset();
            let slot = match open(&shard, &assignment, dir_number).await {
                Ok(partition) => {
                    if shard.image().offset() != known_at {
                        catch_up(&shard, &partition);
                    }
                    Slot::Online(Rc::new(partition))
                }
                Err(reason) => {
                    error!(
                        topic = %assignment.topic, partition = assignment.index,
                        "partition is offline: {reason}"
                    );
                    Slot::Offline(None)
                }
            };
            drop(permit);
            let partitions = &shard.partitions;
            let still_wanted = partitions.slots.borrow().contains_key(&key);
            if still_wanted {
                let fell = match &slot {
                    Slot::Online(partition) if shard.dirs.is_failed(dir_number) => {
                        partition.log.fail("the data directory has failed");
                        Some(partition.clone())
                    }
                    _ => None,
                };
                partitions.set(key, fell.map_or(slot, |partition| Slot::Offline(Some(partition))));
            } else if let Slot::Online(partition) = slot {
                // Deleted while it was opening.
                delete_log(partition.log.clone()).await;
            }
        })
        .detach();
    }

    /// Opens a partition again whose log had failed.
    pub fn reopen(&self, shard: &Rc<Shard>, partition: &Rc<Partition>) {
        let key = (partition.topic_id, partition.index);
        let is_same = self.with_slot(
            &key,
            |slot| matches!(slot, Some(Slot::Online(current)) if Rc::ptr_eq(current, partition)),
        );
        if !is_same {
            return;
        }
        let found = FoundLog {
            dir_number: partition.dir_number,
            clean: false,
            recovery_point: partition.log.recovery_point(),
            log_start_offset: partition.log.log_start_offset(),
            cleaner_point: partition.log.cleaner_point(),
        };
        let assignment = Assignment {
            topic_id: partition.topic_id,
            topic: partition.topic.clone(),
            index: partition.index,
            leader_epoch: partition.leader_epoch(),
            found: Some(found),
            home: Ok(partition.dir_number),
        };
        self.open_after(shard, assignment, Some(partition.clone()));
    }

    /// Takes the partition out of service and deletes its log; returns when its directory has
    /// been renamed, so that a topic of the same name can be created.
    pub async fn delete(&self, key: (Uuid, i32)) {
        while self.with_slot(&key, |slot| matches!(slot, Some(Slot::Opening))) {
            self.slot_changed().await;
        }
        let slot = self.slots.borrow_mut().remove(&key);
        self.slot_changed.notify_all();
        let Some(Slot::Online(partition)) = slot else { return };
        let permit = self.permit(partition.dir_number).await;
        delete_log(partition.log.clone()).await;
        drop(permit);
    }

    /// Hands the partition over to another shard of this host: closes its log.
    pub async fn release(&self, key: (Uuid, i32)) {
        while self.with_slot(&key, |slot| matches!(slot, Some(Slot::Opening))) {
            self.slot_changed().await;
        }
        let slot = self.slots.borrow_mut().remove(&key);
        self.slot_changed.notify_all();
        if let Some(Slot::Online(partition)) = slot
            && let Err(error) = partition.log.clone().close().await
        {
            warn!(topic = %partition.topic, partition = partition.index, "close failed: {error}");
        }
    }

    /// Waits until no partition is opening any more.
    pub async fn settled(&self) {
        while self.slots.borrow().values().any(|slot| matches!(slot, Slot::Opening)) {
            self.slot_changed().await;
        }
    }

    /// Closes every log, a bounded number at a time. Returns the final checkpoint lines and
    /// whether everything was closed cleanly.
    pub async fn close_all(&self) -> (Vec<CheckpointEntry>, bool) {
        self.settled().await;
        let closing: Vec<_> = self.online();
        self.slots.borrow_mut().clear();
        let mut tasks = Vec::with_capacity(closing.len());
        for partition in closing {
            let permit = self.permit(partition.dir_number).await;
            tasks.push(reactor::spawn(async move {
                let closed = partition.log.clone().close().await;
                drop(permit);
                if let Err(error) = &closed {
                    let index = partition.index;
                    warn!(topic = %partition.topic, partition = index, "close failed: {error}");
                }
                (checkpoint_entry(&partition), closed.is_ok())
            }));
        }
        let mut entries = Vec::with_capacity(tasks.len());
        let mut clean = true;
        for task in tasks {
            let (entry, closed) = task.await;
            entries.push(entry);
            clean &= closed;
        }
        (entries, clean)
    }

    pub fn checkpoint_entries(&self) -> Vec<CheckpointEntry> {
        self.online().iter().map(|partition| checkpoint_entry(partition)).collect()
    }
}

fn checkpoint_entry(partition: &Partition) -> CheckpointEntry {
    CheckpointEntry {
        dir_number: partition.dir_number,
        topic: partition.topic.to_string(),
        partition: partition.index,
        recovery_point: partition.log.recovery_point(),
        log_start_offset: partition.log.log_start_offset(),
        high_watermark: partition.high_watermark(),
        cleaner_point: partition.log.cleaner_point(),
    }
}

async fn delete_log(log: Log) {
    let dir = log.dir().to_owned();
    if let Err(error) = log.delete().await {
        warn!("could not delete {}: {error}", dir.display());
    }
}

/// Takes over what changed while the partition was opening: changes go to open partitions only.
fn catch_up(shard: &Shard, partition: &Partition) {
    partition.reconfigure(shard.topic_config(&partition.topic));
    let image = shard.image();
    let topic = image.topic_by_id(partition.topic_id);
    if let Some(state) = topic.and_then(|topic| topic.partition(partition.index)) {
        partition.become_leader(state.leader_epoch);
    }
}

async fn open(
    shard: &Rc<Shard>,
    assignment: &Assignment,
    dir_number: usize,
) -> Result<Partition, String> {
    let Some(data_dir) = shard.data_dirs().get(dir_number) else {
        return Err(format!("data directory number {dir_number} is gone"));
    };
    let dir: PathBuf = data_dir.join(assignment.dir_name());
    if assignment.found.is_none() {
        let clear = disk::set_foreign_aside(&dir, assignment.topic_id).await;
        clear.map_err(|error| format!("an older folder is in the way: {error}"))?;
    }
    let config = shard.topic_config(&assignment.topic);
    let hint = match assignment.found {
        Some(found) => OpenHint {
            clean: found.clean,
            recovery_point: found.recovery_point,
            log_start_offset: found.log_start_offset,
            cleaner_point: found.cleaner_point,
            leader_epoch: assignment.leader_epoch,
            whole: false,
            topic_id: Some(assignment.topic_id),
        },
        None => OpenHint {
            clean: true,
            leader_epoch: assignment.leader_epoch,
            topic_id: Some(assignment.topic_id),
            ..OpenHint::default()
        },
    };
    let limits = shard.partition_limits();
    let options = settings::log_config(&config, &limits);
    let now_ms = reactor::wall_clock_ms();
    let (log, recovered) = Log::open(&shard.log_shared, dir.clone(), options, hint, now_ms)
        .await
        .map_err(|error| error.to_string())?;
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
