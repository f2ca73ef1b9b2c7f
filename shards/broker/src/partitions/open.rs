//! How a slot gets its partition: in the background, a bounded number at a time for each data
//! directory (`crate::opening`), the asked-for ones first. One that cannot be opened is offline;
//! others go on. Never begins a partition empty whose folder was there once.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use log::{Log, LogConfig, LogError, OpenHint, Recovered};
use reactor::{Class, Either, race};
use tracing::{debug, error, info, warn};
use wire::Uuid;

use super::{Assignment, DIR_HAS_FAILED, LocalPartitions, Slot};
use crate::data_dirs::settle;
use crate::mesh::FoundLog;
use crate::opening::{Opening, Queue};
use crate::partition::Partition;
use crate::shard::Shard;
use crate::{disk, settings};

impl LocalPartitions {
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
    /// Takes an open partition out of service for a moment: requests wait until it is resumed. None
    /// if it is not the one that is served. The caller closes the log and resumes, whatever
    /// happens, also if the pause is cancelled because the partition goes elsewhere.
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
}

/// What could not be written is gone with the close; its producers were told so.
pub(super) async fn close_before(opening: &Opening) {
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

/// Whether the folder of another topic is not there because that topic had the name before:
/// somebody has put it there, or its id is damaged. The partition's own records are elsewhere, or
/// in it.
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
