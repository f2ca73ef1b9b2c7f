//! What a shard does on its own now and then: retention, checkpoints.

use std::rc::Rc;
use std::time::Duration;

use tracing::{info, warn};

use crate::disk::Checkpoints;
use crate::mesh::ShardMessage;
use crate::settings;
use crate::shard::{CONTROLLER_SHARD, Shard};

/// Periods below this would keep an idle core awake.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// Starts the periodic work; it ends with the shard.
pub(crate) fn start(shard: &Rc<Shard>, checkpoints: Option<Rc<Checkpoints>>) {
    reactor::spawn(retention(shard.clone())).detach();
    reactor::spawn(checkpoint(shard.clone(), checkpoints)).detach();
}

async fn retention(shard: Rc<Shard>) {
    loop {
        reactor::sleep(period(shard.config().log_retention_check_interval_ms)).await;
        for partition in shard.open_partitions() {
            if shard.is_stopping() {
                return;
            }
            match partition.log.enforce_retention(reactor::wall_clock_ms()).await {
                Ok(outcome) if outcome.segments_deleted > 0 => info!(
                    topic = %partition.topic, partition = partition.index, ?outcome, "retention"
                ),
                Ok(_) => {}
                Err(error) => warn!(
                    topic = %partition.topic, partition = partition.index,
                    "retention failed: {error}"
                ),
            }
            // Requests come first.
            reactor::yield_now().await;
        }
    }
}

/// Flushes what is due and reports recovery points; shard 0 writes the files.
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
