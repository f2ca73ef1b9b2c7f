//! What a shard does when the metadata changes: opens, deletes, reconfigures its own partitions.

use std::rc::Rc;

use meta::config::{BrokerConfig, ResourceKind};
use meta::{Changes, Delta, NodeId};
use tracing::warn;
use wire::Uuid;

use crate::mesh::{Boot, FoundLog};
use crate::partition::Partition;
use crate::partitions::Assignment;
use crate::recovery;
use crate::shard::Shard;

/// Applies a delta to the image and to the local logs. Returns once the deleted partitions'
/// directories are out of the way; new partitions go on opening in the background.
pub(crate) async fn apply(shard: &Rc<Shard>, delta: &Delta) {
    let changes = match shard.change_image(|image| image.apply_delta(delta)) {
        Ok(changes) => changes,
        // The controller's image took the same records; the two can only differ by a fault of
        // ours, and a shard that serves from a wrong image is worse than none.
        Err(error) => panic!("metadata at offset {} cannot be applied: {error}", delta.base_offset),
    };
    reconfigure(shard, &changes);
    let of_topic = |topic: &meta::Topic| {
        let id = topic.id;
        (0i32..).take(topic.partitions.len()).map(move |index| (id, index))
    };
    let deleted: Vec<(Uuid, i32)> = changes.deleted.iter().flat_map(of_topic).collect();
    shard.partitions.delete(shard, &deleted).await;
    for (topic_id, index) in &changes.leadership {
        lead_or_release(shard, *topic_id, *index).await;
    }
    open_all(shard, changes.created.iter().copied());
}

/// Takes over the metadata as it stands at start.
pub(crate) fn boot(shard: &Rc<Shard>, boot: &Boot) {
    shard.change_image(|image| *image = boot.image.clone());
    shard.found.replace(boot.found.clone());
    for (number, reason) in &boot.failed {
        shard.dirs.fail(*number, reason);
    }
    refresh_broker_config(shard);
    let everything: Vec<(Uuid, i32)> = {
        let image = shard.image();
        let all = image
            .topics()
            .flat_map(|topic| (0i32..).take(topic.partitions.len()).map(|i| (topic.id, i)));
        all.collect()
    };
    open_all(shard, everything.into_iter());
    // The rest are other shards' partitions: once one of those comes here, or another topic of its
    // name, what was found at the start says nothing any more.
    shard.found.borrow_mut().clear();
    recovery::watch(shard);
}

/// Opens those of the partitions that this shard leads.
fn open_all(shard: &Rc<Shard>, partitions: impl Iterator<Item = (Uuid, i32)>) {
    for (topic_id, index) in partitions {
        if let Some(assignment) = assignment(shard, topic_id, index) {
            shard.partitions.open(shard, assignment);
        }
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
    if !changes.configs.is_empty() || !changes.deleted.is_empty() {
        shard.forget_topic_configs();
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
        partition.reconfigure(shard.topic_config(&partition.topic));
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
        Ok(config) => shard.set_config(config),
        // Checked when it was set; what cannot be read changes nothing.
        Err(error) => warn!("keeping the broker configuration as it is: {error}"),
    }
}
