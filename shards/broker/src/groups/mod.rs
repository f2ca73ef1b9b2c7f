//! Consumer groups on this shard: a coordinator (`coord`) for each partition of
//! `__consumer_offsets` that is led and open here (`coordinators`).
//!
//! Owns: the way of a request to the coordinator of its group, what the metadata means to groups,
//! and their settings.

mod ask;
mod machine;
mod metrics;
mod settings;
mod topics;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use coord::{Coordinator, Decision, GroupConfig};
use log::TransactionMarker;
use meta::Changes;
use meta::config::{Resource, ResourceKind};
use meta::controller::GROUP_OFFSETS_TOPIC;
use reactor::Instant;
use wire::{ErrorCode, Uuid};

pub(crate) use ask::{Begun, ask, ask_all, ask_each, begin};
pub(crate) use metrics::samples;

use crate::coordinators::{self, Ended, Seats, partition_of};
use crate::partition::Partition;
use crate::shard::Shard;
use metrics::Counted;

/// Topics that coordinators may have missed the end of, the latest. Offsets of any more stay until
/// they expire.
pub(crate) const MISSED_MAX: usize = 10_000;

/// The groups of one shard.
pub(crate) struct Groups {
    seats: Seats<Coordinator>,
    /// Offset of the last metadata record that changed topics or nodes.
    topics_version: Cell<i64>,
    /// Topics that went while some coordinator was not at work, since all were, or shortly before
    /// the start: one that has read its log is told of them. It may know of them already.
    missed: RefCell<Vec<(String, Uuid)>>,
    counted: Counted,
    clock: Clock,
}

/// The time since 1970 as it was at the start, and what has passed since: it runs evenly.
struct Clock {
    wall_ms: i64,
    at: Instant,
}

impl Clock {
    fn begin() -> Self {
        Clock { wall_ms: reactor::wall_clock_ms(), at: reactor::now() }
    }

    fn now_ms(&self) -> i64 {
        let passed_ms = i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.wall_ms.saturating_add(passed_ms)
    }
}

impl Default for Groups {
    fn default() -> Self {
        Groups {
            seats: Seats::default(),
            topics_version: Cell::new(-1),
            missed: RefCell::default(),
            counted: Counted::default(),
            clock: Clock::begin(),
        }
    }
}

impl Groups {
    fn topics_version(&self) -> i64 {
        self.topics_version.get()
    }
}

/// Gives each open partition of `__consumer_offsets` its coordinator, for as long as the shard
/// runs.
pub(crate) fn start(shard: &Rc<Shard>) {
    coordinators::start::<Coordinator>(shard);
}

/// The metadata has been taken over as it stands. `deleted`: topics that went last, the end of
/// which the broker may have missed to tell the coordinators.
pub(crate) fn take_over(shard: &Shard, deleted: &[(String, Uuid)]) {
    shard.groups.topics_version.set(shard.image().offset());
    shard.groups.missed.replace(deleted.to_vec());
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
        for seat in groups.seats.all() {
            seat.decide(shard, |machine, _| {
                machine.topics_deleted(&deleted);
                Decision::default().into()
            });
        }
        let mut missed = groups.missed.borrow_mut();
        match groups.seats.all_are_at_work(shard) {
            true => missed.clear(),
            false => {
                missed.extend(deleted);
                let too_many = missed.len().saturating_sub(MISSED_MAX);
                missed.drain(..too_many);
            }
        }
    }
    let is_own_topic =
        |it: &Resource| it.kind == ResourceKind::Topic && it.name == GROUP_OFFSETS_TOPIC;
    if changes.configs.iter().any(is_own_topic) {
        reconfigure(shard);
    }
    for resource in changes.configs.iter().filter(|it| it.kind == ResourceKind::Group) {
        let config = group_config(shard, &resource.name);
        if let Ok(seat) = groups.seats.of_key(shard, &resource.name) {
            seat.set(|machine| machine.set_group_config(&resource.name, config));
        }
    }
}

/// The broker's settings have changed, or those of the groups' topic.
pub(crate) fn reconfigure(shard: &Shard) {
    let config = settings::of_shard(shard);
    for seat in shard.groups.seats.all() {
        seat.set(|machine| machine.set_config(config.clone()));
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

/// Appends the marker that ends a producer's transaction to a partition of `__consumer_offsets`.
/// Returns where the log ends then.
///
/// # Errors
/// What its sender is told; while the groups are loaded, to try again.
pub(crate) async fn end_transaction(
    shard: &Shard,
    partition: &Rc<Partition>,
    marker: TransactionMarker,
) -> Result<i64, ErrorCode> {
    loop {
        let Some(seat) = shard.groups.seats.of_partition(partition) else {
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
