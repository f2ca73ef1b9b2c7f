//! Takes in what other shards say, in order, and acts on it.

use std::rc::Rc;

use reactor::spawn;
use reactor::sync::OneshotSender;

use crate::control::ControlRequest;
use crate::controller::{Job, Progress, ReplyTo};
use crate::data_dirs::health;
use crate::mesh::{Boot, CheckpointEntry, Closed, ShardMessage};
use crate::shard::{CONTROLLER_SHARD, Shard};
use crate::{BrokerError, changes, metrics, transactions};

/// What shard 0 collects while the broker stops.
pub(crate) type Stopped = (Vec<CheckpointEntry>, Closed);

/// The ends of the pump that only some shards have.
#[derive(Default)]
pub(crate) struct Ends {
    /// Shards other than 0 wait for their metadata here.
    pub boot: Option<OneshotSender<std::sync::Arc<Boot>>>,
    /// Shard 0 only.
    pub progress: Option<Rc<Progress>>,
    pub checkpoints: Option<Rc<crate::disk::Checkpoints>>,
    pub stopped: Option<reactor::sync::Sender<Stopped>>,
}

/// Runs until the mesh closes.
pub(crate) async fn run(shard: Rc<Shard>, mut ends: Ends) -> Result<(), BrokerError> {
    while let Some((from, message)) = shard.mesh.recv().await {
        match message {
            ShardMessage::Boot(boot) => {
                if let Some(sender) = ends.boot.take() {
                    // The receiver is the start of this very shard.
                    let _ = sender.send(boot);
                }
            }
            ShardMessage::Delta(delta) => {
                let shard = shard.clone();
                // The controller sends the next delta only after this one's reply.
                spawn(async move {
                    changes::apply(&shard, &delta).await;
                    let applied = ShardMessage::Applied { offset: shard.image().offset() };
                    answer(&shard, CONTROLLER_SHARD, applied).await;
                })
                .detach();
            }
            ShardMessage::Applied { offset } => {
                if let Some(progress) = &ends.progress {
                    progress.note(from, offset);
                }
            }
            ShardMessage::Cleared { base_offset } => shard.leaving.note(base_offset),
            ShardMessage::Control { token, request } => {
                pass_on(&shard, *request, ReplyTo::Shard { shard: from, token });
            }
            ShardMessage::ControlReply { token, reply } => shard.finish_call(token, *reply),
            ShardMessage::Checkpoint(entries) => {
                if let Some(checkpoints) = &ends.checkpoints {
                    checkpoints.note(from, entries);
                }
            }
            ShardMessage::Sample { token } => {
                let shard = shard.clone();
                spawn(async move {
                    let samples = Box::new(metrics::sample(&shard));
                    answer(&shard, from, ShardMessage::Samples { token, samples }).await;
                })
                .detach();
            }
            ShardMessage::Samples { token, samples } => shard.metrics.finish(token, *samples),
            ShardMessage::Ask { token, ask } => {
                let shard = shard.clone();
                spawn(async move {
                    let codes = transactions::serve(&shard, *ask).await;
                    answer(&shard, from, ShardMessage::Answer { token, codes }).await;
                })
                .detach();
            }
            ShardMessage::Answer { token, codes } => shard.transactions.asks.finish(token, codes),
            ShardMessage::DataDir { number, news } => health::take_in(&shard, number, news),
            ShardMessage::Stop => shard.ask_to_stop(),
            ShardMessage::Stopped { entries, closed } => {
                if let Some(stopped) = &ends.stopped {
                    // The receiver counts one message a shard.
                    let _ = stopped.send((entries, closed)).await;
                }
            }
        }
    }
    Err(BrokerError::MeshClosed)
}

async fn answer(shard: &Shard, to: usize, message: ShardMessage) {
    // A closed mesh means that the process ends.
    let _ = shard.mesh.send(to, message).await;
}

/// Shard 0: gives the controller something to do.
fn pass_on(shard: &Shard, request: ControlRequest, reply_to: ReplyTo) {
    let Some(queue) = shard.controller.borrow().clone() else { return };
    spawn(async move {
        // A closed queue means that the broker stops; the caller stops too.
        let _ = queue.send(Job { request, reply_to }).await;
    })
    .detach();
}
