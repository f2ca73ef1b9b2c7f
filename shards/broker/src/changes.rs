//! What a shard does when the metadata changes: opens, deletes, reconfigures its own partitions.

use std::rc::Rc;

use meta::config::{BrokerConfig, ResourceKind};
use meta::{Changes, Delta, Image, MetaError, NodeId};
use tracing::warn;
use wire::Uuid;

use crate::groups;
use crate::mesh::{Boot, FoundLog, ShardMessage};
use crate::partition::Partition;
use crate::partitions::Assignment;
use crate::recovery;
use crate::shard::{CONTROLLER_SHARD, Shard};
use crate::transactions;

/// Records that are applied to the image without a break for requests.
const RECORDS_AT_ONCE: usize = 256;

/// Applies a delta to the image and to the local logs. Returns once new partitions are known as
/// opening and deleted ones are out of service; opening and deleting go on in the background.
pub(crate) async fn apply(shard: &Rc<Shard>, delta: &Delta) {
    // From the moment the image names a new partition, a request for it waits until it has its
    // slot.
    let registering = shard.partitions.register();
    let changes = match take_in(shard, delta).await {
        Ok(changes) => changes,
        // The controller's image took the same records; the two can only differ by a fault of
        // ours, and a shard that serves from a wrong image is worse than none.
        Err(error) => panic!("metadata at offset {} cannot be applied: {error}", delta.base_offset),
    };
    reconfigure(shard, &changes);
    groups::take_in(shard, &changes);
    let of_topic = |topic: &meta::Topic| {
        let id = topic.id;
        (0i32..).take(topic.partitions.len()).map(move |index| (id, index))
    };
    if !changes.deleted.is_empty() {
        let deleted = changes.deleted.iter().flat_map(of_topic);
        delete(shard, deleted, delta.base_offset).await;
    }
    for (topic_id, index) in &changes.leadership {
        lead_or_release(shard, *topic_id, *index).await;
        reactor::yield_if_due().await;
    }
    open_all(shard, changes.created.iter().copied(), |_| true).await;
    drop(registering);
}

/// The image takes all of a delta at once. A large one is applied step by step to a copy, which
/// shares what does not change.
async fn take_in(shard: &Shard, delta: &Delta) -> Result<Changes, MetaError> {
    let count = delta.records.len();
    if count <= RECORDS_AT_ONCE {
        return shard.change_image(|image| image.apply_delta(delta));
    }
    let mut next: Image = shard.image().clone();
    let mut changes = Changes::default();
    for start in (0..count).step_by(RECORDS_AT_ONCE) {
        let end = count.min(start + RECORDS_AT_ONCE);
        next.apply_part(delta, start..end, &mut changes)?;
        reactor::yield_if_due().await;
    }
    changes.settle();
    shard.change_image(|image| *image = next);
    Ok(changes)
}

/// Takes the partitions out of service; their logs are deleted in the background. The controller is
/// told when their folders' names are free.
async fn delete(
    shard: &Rc<Shard>,
    partitions: impl Iterator<Item = (Uuid, i32)>,
    base_offset: i64,
) {
    let mut withdrawn = Vec::new();
    for key in partitions {
        withdrawn.extend(shard.partitions.withdraw(key));
        reactor::yield_if_due().await;
    }
    let deleting = shard.partitions.deleting();
    let shard = shard.clone();
    reactor::spawn(async move {
        shard.partitions.delete(&shard, withdrawn).await;
        if shard.id() == CONTROLLER_SHARD {
            shard.leaving.note(base_offset);
        } else {
            let message = ShardMessage::Cleared { base_offset };
            // A closed mesh means that the process ends.
            let _ = shard.mesh.send(CONTROLLER_SHARD, message).await;
        }
        drop(deleting);
    })
    .detach();
}

/// Takes over the metadata as it stands at start. From here on requests can be answered; those for
/// partitions wait until [`open_everything`] comes to them.
pub(crate) fn take_over(shard: &Rc<Shard>, boot: &Boot) {
    shard.change_image(|image| *image = boot.image.clone());
    for (number, reason) in &boot.failed {
        shard.dirs.fail(*number, reason);
    }
    groups::take_over(shard, &boot.deleted);
    refresh_broker_config(shard);
}

/// Begins to open every partition that this shard leads.
pub(crate) async fn open_everything(shard: &Rc<Shard>, boot: &Boot) {
    let registering = shard.partitions.register();
    for (name, found) in &boot.found {
        shard.found.borrow_mut().insert(name.clone(), *found);
        reactor::yield_if_due().await;
    }
    let everything = boot
        .image
        .topics()
        .flat_map(|topic| (0i32..).take(topic.partitions.len()).map(|i| (topic.id, i)));
    let looked_everywhere = boot.failed.is_empty();
    let may_begin = |name: &str| looked_everywhere && !boot.lost.contains(name);
    open_all(shard, everything, may_begin).await;
    drop(registering);
    // The rest are other shards' partitions: once one of those comes here, or another topic of its
    // name, what was found at the start says nothing any more.
    shard.found.borrow_mut().clear();
    recovery::watch(shard);
}

/// Opens those of the partitions that this shard leads. Those that may begin are made if they are
/// not there.
async fn open_all(
    shard: &Rc<Shard>,
    partitions: impl Iterator<Item = (Uuid, i32)>,
    may_begin: impl Fn(&str) -> bool,
) {
    for (topic_id, index) in partitions {
        if let Some(assignment) = assignment(shard, topic_id, index) {
            if may_begin(&assignment.dir_name()) {
                shard.partitions.note_unmade((topic_id, index));
            }
            shard.partitions.open(shard, assignment);
        }
        reactor::yield_if_due().await;
    }
}

/// What opening the partition takes, if this shard leads it.
pub(crate) fn assignment(shard: &Rc<Shard>, topic_id: Uuid, index: i32) -> Option<Assignment> {
    let image = shard.image();
    let topic = image.topic_by_id(topic_id)?;
    let state = topic.partition(index)?;
    if state.leader != NodeId(shard.node_id()) {
        return None;
    }
    let name = shard.topic_name(&topic.name);
    // What was found belongs to the topic of that time; a new topic starts afresh.
    let found = shard.found.borrow_mut().remove(&log::partition_dir_name(&name, index));
    let home = home(shard, state, found);
    // A copy elsewhere than where it is recorded does not count.
    let found = found.filter(|found| home == Ok(found.dir_number));
    Some(Assignment { topic_id, topic: name, index, leader_epoch: state.leader_epoch, found, home })
}

/// The data directory of a partition: the recorded one, or none. One that is not recorded and was
/// not found may be in a directory that cannot be used.
fn home(shard: &Shard, state: &meta::Partition, found: Option<FoundLog>) -> Result<usize, String> {
    match (state.directory_on(shard.broker_id()), found) {
        (Some(id), _) => shard.dirs.usable_with_id(id),
        (None, Some(found)) => Ok(found.dir_number),
        (None, None) => Err("it is in none of the data directories that can be used".to_owned()),
    }
}

async fn lead_or_release(shard: &Rc<Shard>, topic_id: Uuid, index: i32) {
    let here = shard.partitions.with_slot(&(topic_id, index), |slot| slot.is_some());
    match (assignment(shard, topic_id, index), here) {
        (Some(assignment), true) => {
            if let Some(partition) = shard.partitions.get(&(topic_id, index)) {
                partition.become_leader(assignment.leader_epoch);
            }
        }
        (Some(assignment), false) => shard.partitions.open(shard, assignment),
        (None, true) => shard.partitions.release(shard, (topic_id, index)).await,
        (None, false) => {}
    }
}

fn reconfigure(shard: &Rc<Shard>, changes: &Changes) {
    for topic in &changes.deleted {
        shard.forget_topic_config(&topic.name);
    }
    for resource in changes.configs.iter().filter(|it| it.kind == ResourceKind::Topic) {
        shard.forget_topic_config(&resource.name);
    }
    if changes.configs.is_empty() {
        return;
    }
    let broker_changed =
        changes.configs.iter().any(|resource| resource.kind == ResourceKind::Broker);
    if broker_changed {
        refresh_broker_config(shard);
    }
    let touched = match broker_changed {
        true => shard.open_partitions(),
        false => of_topics(shard, changes),
    };
    for partition in touched {
        partition.reconfigure(shard.topic_config(&partition.topic), shard.partition_limits());
    }
}

/// The open partitions of topics whose settings have changed.
fn of_topics(shard: &Rc<Shard>, changes: &Changes) -> Vec<Rc<Partition>> {
    let image = shard.image();
    let named = changes.configs.iter().filter(|resource| resource.kind == ResourceKind::Topic);
    let topics = named.filter_map(|resource| image.topic_by_name(&resource.name));
    let keys = topics
        .flat_map(|topic| (0i32..).take(topic.partitions.len()).map(|index| (topic.id, index)));
    keys.filter_map(|key| shard.partitions.get(&key)).collect()
}

fn refresh_broker_config(shard: &Rc<Shard>) {
    let resolved = {
        let image = shard.image();
        BrokerConfig::resolve(shard.layers(&image))
    };
    match resolved {
        Ok(config) => {
            shard.set_config(config);
            groups::reconfigure(shard);
            transactions::reconfigure(shard);
        }
        // Checked when it was set; what cannot be read changes nothing.
        Err(error) => warn!("keeping the broker configuration as it is: {error}"),
    }
}
