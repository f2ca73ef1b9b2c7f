//! What a shard does on its own now and then: retention, checkpoints, a look at the disks' space.

use std::rc::Rc;
use std::time::Duration;

use tracing::{info, warn};

use crate::disk::Checkpoints;
use crate::mesh::ShardMessage;
use crate::partition::Partition;
use crate::settings;
use crate::shard::{CONTROLLER_SHARD, Shard};

/// Periods below this would keep an idle core awake.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// How often the free space of the data directories is looked at.
const SPACE_CHECK: Duration = Duration::from_secs(2);
/// What is kept free in a data directory for the broker's own needs; of a small disk a part.
const SPACE_RESERVE_BYTES: u64 = 64 * 1024 * 1024;
const SPACE_RESERVE_PART: u64 = 20;

/// Starts the periodic work; it ends with the shard.
pub(crate) fn start(shard: &Rc<Shard>, checkpoints: Option<Rc<Checkpoints>>) {
    reactor::spawn(retention(shard.clone())).detach();
    reactor::spawn(checkpoint(shard.clone(), checkpoints)).detach();
    reactor::spawn(watch_space(shard.clone())).detach();
}

async fn retention(shard: Rc<Shard>) {
    loop {
        reactor::sleep(period(shard.config().log_retention_check_interval_ms)).await;
        for partition in shard.open_partitions() {
            if shard.is_stopping() {
                return;
            }
            retain(&partition).await;
        }
    }
}

async fn retain(partition: &Partition) {
    match partition.log.enforce_retention(reactor::wall_clock_ms()).await {
        Ok(outcome) if outcome.segments_deleted > 0 => {
            partition.traffic.note_retention(outcome.segments_deleted, outcome.bytes_deleted);
            info!(topic = %partition.topic, partition = partition.index, ?outcome, "retention");
        }
        Ok(_) => {}
        Err(error) => warn!(
            topic = %partition.topic, partition = partition.index, "retention failed: {error}"
        ),
    }
    // Requests come first.
    reactor::yield_now().await;
}

/// Looks at the free space of each data directory. A directory that is almost full refuses producers
/// (with an error that they retry) before a write can fail, and its retention runs at once; what had
/// failed for lack of space is opened again when there is some.
async fn watch_space(shard: Rc<Shard>) {
    loop {
        reactor::sleep(SPACE_CHECK).await;
        for (number, dir) in shard.data_dirs().iter().enumerate() {
            if shard.is_stopping() {
                return;
            }
            let Ok(space) = reactor::fs::space(dir).await else { continue };
            let reserve = SPACE_RESERVE_BYTES.min(space.total / SPACE_RESERVE_PART);
            let is_full = space.available < reserve;
            if shard.full_dirs.set(number, is_full) {
                let (dir, free) = (dir.display(), space.available);
                match is_full {
                    true => warn!("{dir} is almost full ({free} bytes free): producers must wait"),
                    false => info!("{dir} has space again ({free} bytes free)"),
                }
            }
            let here = shard.open_partitions();
            for partition in here.iter().filter(|partition| partition.dir_number == number) {
                if is_full {
                    retain(partition).await;
                } else if partition.ran_out_of_space() {
                    shard.partitions.reopen(&shard, partition).await;
                }
            }
        }
    }
}

/// Reports recovery points; shard 0 writes the files.
async fn checkpoint(shard: Rc<Shard>, checkpoints: Option<Rc<Checkpoints>>) {
    loop {
        reactor::sleep(period(shard.config().log_flush_offset_checkpoint_interval_ms)).await;
        if shard.is_stopping() {
            return;
        }
        let entries = shard.partitions.checkpoint_entries();
        match &checkpoints {
            Some(checkpoints) => {
                checkpoints.note(shard.id(), entries);
                checkpoints.write(shard.data_dirs()).await;
            }
            None => {
                let message = ShardMessage::Checkpoint(entries);
                if shard.mesh.send(CONTROLLER_SHARD, message).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn period(ms: i64) -> Duration {
    settings::interval(ms).unwrap_or(Duration::MAX).max(PERIOD_MIN)
}
