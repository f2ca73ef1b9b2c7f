//! Consumer groups on this shard: a coordinator (`coord`) for each partition of `__consumer_offsets`
//! that is led and open here.
//!
//! Owns: which partitions have one, and the way of a request to it. A coordinator comes with its
//! partition (a task compares whenever one comes or goes), is loaded from the log in the background,
//! and goes with the partition. What one does once it is there is `seat`'s matter.
//!
//! ```text
//! partition opens ──► loading (14) ──► active ──► gone with the partition (16)
//!                        ▲                │ an append failed, the log is whole
//!                        └────────────────┘
//! ```

mod ask;
mod load;
mod metrics;
mod seat;
mod settings;
mod topics;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use coord::GroupConfig;
use log::TransactionMarker;
use meta::Changes;
use meta::config::ResourceKind;
use meta::controller::GROUP_OFFSETS_TOPIC;
use reactor::sync::Semaphore;
use wire::{ErrorCode, Uuid, hash};

pub(crate) use ask::{Begun, ask, ask_all, ask_each, begin};
pub(crate) use metrics::samples;

use crate::partition::Partition;
use crate::shard::Shard;
use metrics::Counted;
use seat::{Ended, Seat};

/// Coordinators of one shard that read their logs at the same time.
const LOADING_MAX: usize = 2;

/// The coordinators of one shard.
pub(crate) struct Groups {
    /// By number of the partition.
    seats: RefCell<BTreeMap<i32, Rc<Seat>>>,
    /// Offset of the last metadata record that changed topics or nodes.
    topics_version: Cell<i64>,
    loading: Semaphore,
    counted: Counted,
}

impl Default for Groups {
    fn default() -> Self {
        Groups {
            seats: RefCell::default(),
            topics_version: Cell::new(-1),
            loading: Semaphore::new(LOADING_MAX),
            counted: Counted::default(),
        }
    }
}

impl Groups {
    /// The coordinator of a group.
    ///
    /// # Errors
    /// `NOT_COORDINATOR` if another node leads its partition, `COORDINATOR_LOAD_IN_PROGRESS` if it
    /// is still to come.
    fn seat_of(&self, shard: &Shard, group: &str) -> Result<Rc<Seat>, ErrorCode> {
        let image = shard.image();
        let topic = image.topic_by_name(GROUP_OFFSETS_TOPIC).ok_or(ErrorCode::NotCoordinator)?;
        let index = partition_of(group, topic.partitions.len());
        if let Some(seat) = self.seats.borrow().get(&index) {
            return Ok(seat.clone());
        }
        let is_led_here = topic.partition(index).is_some_and(|p| p.leader.0 == shard.node_id());
        let is_coming = is_led_here && shard.partitions.is_coming(&(topic.id, index));
        Err(match is_coming {
            true => ErrorCode::CoordinatorLoadInProgress,
            false => ErrorCode::NotCoordinator,
        })
    }

    /// Whether a partition that is led here is still to get its coordinator.
    fn some_are_coming(&self, shard: &Shard) -> bool {
        let image = shard.image();
        let Some(topic) = image.topic_by_name(GROUP_OFFSETS_TOPIC) else { return false };
        let seats = self.seats.borrow();
        (0i32..).zip(&topic.partitions).any(|(index, partition)| {
            partition.leader.0 == shard.node_id()
                && !seats.contains_key(&index)
                && shard.partitions.is_coming(&(topic.id, index))
        })
    }

    fn all(&self) -> Vec<Rc<Seat>> {
        self.seats.borrow().values().cloned().collect()
    }

    fn topics_version(&self) -> i64 {
        self.topics_version.get()
    }
}

/// The partition of `__consumer_offsets` that a group belongs to.
fn partition_of(group: &str, partitions: usize) -> i32 {
    hash::coordinator_partition(group, i32::try_from(partitions).unwrap_or(i32::MAX))
}

/// Gives each open partition of `__consumer_offsets` its coordinator, for as long as the shard runs.
pub(crate) fn start(shard: &Rc<Shard>) {
    let shard = shard.clone();
    reactor::spawn(async move {
        while !shard.is_stopping() {
            let changed = shard.partitions.internal_changed();
            settle(&shard);
            changed.await;
        }
    })
    .detach();
}

/// Compares the coordinators that are there with the partitions that are open.
fn settle(shard: &Rc<Shard>) {
    let open = open_partitions(shard);
    let mut seats = shard.groups.seats.borrow_mut();
    seats.retain(|index, seat| {
        let stays = open.get(index).is_some_and(|partition| seat.is_of(partition));
        if !stays {
            seat.leave(ErrorCode::NotCoordinator);
        }
        stays
    });
    for (index, partition) in open {
        seats.entry(index).or_insert_with(|| Seat::take(shard, partition));
    }
}

fn open_partitions(shard: &Shard) -> BTreeMap<i32, Rc<Partition>> {
    let image = shard.image();
    let Some(topic) = image.topic_by_name(GROUP_OFFSETS_TOPIC) else { return BTreeMap::new() };
    let id = topic.id;
    let indexes = (0i32..).take(topic.partitions.len());
    indexes.filter_map(|index| Some((index, shard.partitions.get(&(id, index))?))).collect()
}

/// The metadata has been taken over as it stands.
pub(crate) fn take_over(shard: &Shard) {
    shard.groups.topics_version.set(shard.image().offset());
}

/// The image has changed: topics that are gone lose their offsets, and settings are taken over.
pub(crate) fn take_in(shard: &Rc<Shard>, changes: &Changes) {
    let groups = &shard.groups;
    let of_topics = !changes.created.is_empty()
        || !changes.deleted.is_empty()
        || !changes.leadership.is_empty()
        || changes.nodes;
    if of_topics {
        groups.topics_version.set(shard.image().offset());
    }
    if !changes.deleted.is_empty() {
        let name_and_id = |topic: &meta::Topic| (topic.name.to_string(), topic.id);
        let deleted: Vec<(String, Uuid)> = changes.deleted.iter().map(name_and_id).collect();
        for seat in groups.all() {
            seat.topics_deleted(shard, &deleted);
        }
    }
    for resource in changes.configs.iter().filter(|it| it.kind == ResourceKind::Group) {
        let config = group_config(shard, &resource.name);
        if let Ok(seat) = groups.seat_of(shard, &resource.name) {
            seat.set_group_config(&resource.name, config);
        }
    }
}

/// The broker's settings have changed.
pub(crate) fn reconfigure(shard: &Shard) {
    let config = settings::coordinator(&shard.config().groups);
    for seat in shard.groups.all() {
        seat.set_config(config.clone());
    }
}

/// What a group sets for itself; none if it sets nothing that matters here.
fn group_config(shard: &Shard, group: &str) -> Option<GroupConfig> {
    settings::group(shard.image().overrides().of(ResourceKind::Group, group)?)
}

/// The groups of one partition that set something for themselves.
fn group_configs(shard: &Shard, partition: &Partition) -> Vec<(String, GroupConfig)> {
    let image = shard.image();
    let Some(topic) = image.topic_by_id(partition.topic_id) else { return Vec::new() };
    let (overrides, partitions) = (image.overrides(), topic.partitions.len());
    let names = overrides.names(ResourceKind::Group).into_iter();
    let here = names.filter(|name| partition_of(name, partitions) == partition.index);
    here.filter_map(|name| {
        Some((name.to_owned(), settings::group(overrides.of(ResourceKind::Group, name)?)?))
    })
    .collect()
}

/// Whether the groups of a coordinator are in this partition.
pub(crate) fn has_groups(partition: &Partition) -> bool {
    &*partition.topic == GROUP_OFFSETS_TOPIC
}

/// Appends the marker that ends a producer's transaction to a partition of `__consumer_offsets`. Returns
/// where the log ends then.
///
/// # Errors
/// What its sender is told; while the groups are loaded, to try again.
pub(crate) async fn end_transaction(
    shard: &Shard,
    partition: &Rc<Partition>,
    marker: TransactionMarker,
) -> Result<i64, ErrorCode> {
    loop {
        let seat = shard.groups.seats.borrow().get(&partition.index).cloned();
        let Some(seat) = seat.filter(|seat| seat.is_of(partition)) else {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        };
        match seat.end_transaction(marker) {
            Ended::Appended(end) => return Ok(end),
            Ended::Waits(shorter) => shorter.await,
            Ended::NoMemory => partition.log.room().await,
            Ended::Refused(code) => return Err(code),
        }
    }
}

/// Offsets of that many partitions were committed and acknowledged.
pub(crate) fn note_commits(shard: &Shard, partitions: usize) {
    shard.groups.counted.note_commits(partitions);
}
