//! What a shard does on its own now and then: retention, checkpoints.

use std::rc::Rc;
use std::time::Duration;

use log::LogError;
use reactor::{Class, buf, spawn_in};
use tracing::{debug, info, warn};

use crate::cleaner;
use crate::data_dirs::health;
use crate::disk::Checkpoints;
use crate::mesh::ShardMessage;
use crate::partition::Partition;
use crate::settings;
use crate::shard::{CONTROLLER_SHARD, Shard};

/// Periods below this would keep an idle core awake.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// A log that was not written from one look to the next is idle.
const COOL_EVERY: Duration = Duration::from_secs(30);

/// Memory given back to the kernel without a break.
const RELEASE_STEP: usize = 2 << 20;

/// Starts the periodic work; it ends with the shard.
pub(crate) fn start(shard: &Rc<Shard>, checkpoints: Option<Rc<Checkpoints>>) {
    for number in 0..shard.dirs.len() {
        spawn_in(Class::Background, retention(shard.clone(), number)).detach();
    }
    spawn_in(Class::Background, checkpoint(shard.clone(), checkpoints)).detach();
    spawn_in(Class::Background, cool(shard.clone())).detach();
    health::start(shard);
    cleaner::start(shard);
}

/// One task for each data directory: one that hangs must not end the others' retention.
async fn retention(shard: Rc<Shard>, dir_number: usize) {
    loop {
        reactor::sleep(period(shard.config().log_retention_check_interval_ms)).await;
        let open = shard.open_partitions();
        for partition in open.iter().filter(|partition| partition.dir_number == dir_number) {
            if shard.is_stopping() {
                return;
            }
            retain(partition).await;
        }
    }
}

pub(crate) async fn retain(partition: &Partition) {
    let retained = partition.log.enforce_retention(reactor::wall_clock_ms()).await;
    // Said once, however often it is tried.
    let failed_before = partition.retention_fails.replace(retained.is_err());
    match retained {
        Ok(outcome) if outcome.segments_deleted > 0 => {
            partition.traffic.note_retention(outcome.segments_deleted, outcome.bytes_deleted);
            info!(topic = %partition.topic, partition = partition.index, ?outcome, "retention");
        }
        Ok(_) => {}
        // It moves, or is about to be opened again.
        Err(LogError::Closed(_)) => {}
        Err(error) if failed_before => debug!(
            topic = %partition.topic, partition = partition.index, "retention still fails: {error}"
        ),
        Err(error) => warn!(
            topic = %partition.topic, partition = partition.index, "retention failed: {error}"
        ),
    }
    // Requests come first.
    reactor::yield_now().await;
}

/// Reports recovery points; shard 0 writes the files.
async fn checkpoint(shard: Rc<Shard>, checkpoints: Option<Rc<Checkpoints>>) {
    let mut told = Vec::new();
    loop {
        reactor::sleep(period(shard.config().log_flush_offset_checkpoint_interval_ms)).await;
        if shard.is_stopping() {
            return;
        }
        let entries = shard.partitions.checkpoint_entries().await;
        // Where nothing was written and nothing trimmed, the files are as they should be.
        let is_news = entries != told;
        if is_news {
            told.clone_from(&entries);
        }
        match &checkpoints {
            Some(checkpoints) => {
                if is_news {
                    checkpoints.note(shard.id(), entries);
                }
                checkpoints.write_if_changed(&shard).await;
            }
            None if !is_news => {}
            None => {
                let message = ShardMessage::Checkpoint(entries);
                if shard.mesh.send(CONTROLLER_SHARD, message).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Lets go of files and index entries of logs that were not written for a while.
async fn cool(shard: Rc<Shard>) {
    while !shard.is_stopping() {
        reactor::sleep(COOL_EVERY).await;
        shard.log_shared.cool_idle();
        shard.log_shared.free_idle_tails().await;
        release_memory().await;
    }
}

/// Gives back what tails of logs once needed and nobody has asked for since the last call.
async fn release_memory() {
    let mut unused = buf::unused_bytes();
    while unused > 0 {
        let released = buf::release(unused.min(RELEASE_STEP));
        if released == 0 {
            return;
        }
        unused = unused.saturating_sub(released);
        reactor::yield_if_due().await;
    }
}

fn period(ms: i64) -> Duration {
    settings::interval(ms).unwrap_or(Duration::MAX).max(PERIOD_MIN)
}
