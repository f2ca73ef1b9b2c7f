//! The controller: the only writer of cluster metadata. Runs on shard 0, one request at a time.
//!
//! A request is decided by meta's pure managers, made durable in the metadata log, applied to the
//! image here, published to every other shard, and answered once every shard has applied it: a
//! client that was told of a new topic finds it on any shard. A change for which the disk has no
//! space is refused with a retriable error and changes nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use meta::controller::Reassign;
use meta::{Delta, Failure, Image, MetadataRecord, NodeId};
use reactor::sync::{Notify, OneshotSender, Receiver};
use reactor::{Either, race};
use tracing::{debug, warn};
use wire::{ErrorCode, Uuid};

use crate::control::{ControlReply, ControlRequest};
use crate::data_dirs::placement::Placer;
use crate::mesh::ShardMessage;
use crate::metadata_log::MetadataLog;
use crate::shard::Shard;
use crate::{BrokerError, changes};

/// Requests that may wait for the controller; then their senders wait.
pub(crate) const CONTROLLER_QUEUE: usize = 256;

/// How often it is tried to write what found no space.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// A request with the way back to who asked.
pub(crate) struct Job {
    pub request: ControlRequest,
    pub reply_to: ReplyTo,
}

pub(crate) enum ReplyTo {
    Here(OneshotSender<ControlReply>),
    Shard { shard: usize, token: u64 },
}

/// How far each shard has applied the metadata log.
pub(crate) struct Progress {
    applied: RefCell<Vec<i64>>,
    changed: Notify,
}

impl Progress {
    pub fn new(shards: usize) -> Self {
        Progress { applied: RefCell::new(vec![-1; shards]), changed: Notify::new() }
    }

    pub fn note(&self, shard: usize, offset: i64) {
        if let Some(applied) = self.applied.borrow_mut().get_mut(shard) {
            *applied = offset;
        }
        self.changed.notify_all();
    }

    /// The other shards have stopped and apply nothing any more: whoever waits for them is let go.
    pub fn end(&self) {
        self.applied.borrow_mut().fill(i64::MAX);
        self.changed.notify_all();
    }

    /// Resolves when every shard but the controller's own has applied up to the offset.
    pub async fn reached(&self, offset: i64) {
        let behind = || self.applied.borrow().iter().skip(1).any(|applied| *applied < offset);
        while behind() {
            self.changed.notified().await;
        }
    }
}

/// Deleted topics whose folders still have their names on some shard. A new topic of such a name
/// waits: its partitions may be led by other shards than the old ones were.
#[derive(Default)]
pub(crate) struct Leaving {
    /// By the offset of the delta: the names, and how many shards are still at it.
    deltas: RefCell<BTreeMap<i64, (HashSet<String>, usize)>>,
    changed: Notify,
}

impl Leaving {
    fn begin(&self, base_offset: i64, names: HashSet<String>, shards: usize) {
        self.deltas.borrow_mut().insert(base_offset, (names, shards));
    }

    /// One more shard is done with that delta.
    pub fn note(&self, base_offset: i64) {
        let mut deltas = self.deltas.borrow_mut();
        let Some((_, shards)) = deltas.get_mut(&base_offset) else { return };
        *shards -= 1;
        if *shards == 0 {
            deltas.remove(&base_offset);
            self.changed.notify_all();
        }
    }

    /// Until none of the names is in use any more.
    async fn gone<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) {
        let in_use = || {
            let deltas = self.deltas.borrow();
            let mut leaving = deltas.values();
            leaving.any(|(left, _)| names.clone().any(|name| left.contains(name)))
        };
        while in_use() {
            self.changed.notified().await;
        }
    }
}

pub(crate) struct Controller {
    pub shard: Rc<Shard>,
    pub log: MetadataLog,
    pub progress: Rc<Progress>,
}

impl Controller {
    /// Serves until the queue closes; hands the metadata log back for closing.
    ///
    /// # Errors
    /// A change could not be made durable, or not on every shard: nobody knows any more what holds,
    /// so the process has to end and read its log again.
    pub async fn run(self, mut queue: Receiver<Job>) -> Result<MetadataLog, BrokerError> {
        while let Some(job) = self.next(&mut queue).await? {
            let (reply, failed) = match self.serve(job.request).await {
                Ok(reply) => (reply, None),
                Err(error) => {
                    let code = ErrorCode::KafkaStorageError;
                    let failure = Failure::new(code, error.to_string());
                    let stays = error.is_out_of_space();
                    if stays {
                        warn!("a change of metadata was refused: {error}");
                    }
                    (ControlReply::Failed(failure), Some(error).filter(|_| !stays))
                }
            };
            match job.reply_to {
                // The requester may have left; the decision stands.
                ReplyTo::Here(sender) => drop(sender.send(reply)),
                ReplyTo::Shard { shard, token } => {
                    let message = ShardMessage::ControlReply { token, reply: Box::new(reply) };
                    // A closed mesh means that the process ends.
                    let _ = self.shard.mesh.send(shard, message).await;
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(self.log)
    }

    /// The next request. Meanwhile what is only in memory is written as soon as there is space.
    async fn next(&self, queue: &mut Receiver<Job>) -> Result<Option<Job>, BrokerError> {
        while self.log.has_kept() {
            match race(queue.recv(), reactor::sleep(TRY_EVERY)).await {
                Either::Left(job) => return Ok(job),
                Either::Right(()) => match self.log.write_kept(reactor::wall_clock_ms()).await {
                    Err(error) if error.is_out_of_space() => debug!("metadata: {error}"),
                    written => written?,
                },
            }
        }
        Ok(queue.recv().await)
    }

    async fn serve(&self, request: ControlRequest) -> Result<ControlReply, BrokerError> {
        if let Some(reply) = self.no_room(&request) {
            return Ok(reply);
        }
        let request = match request {
            ControlRequest::Reassign(request) => return self.reassign(request).await,
            request => request,
        };
        match &request {
            ControlRequest::CreateTopics { topics, .. } => {
                self.shard.leaving.gone(topics.iter().map(|topic| topic.name.as_str())).await;
            }
            ControlRequest::AutoCreate { names } => {
                self.shard.leaving.gone(names.iter().map(String::as_str)).await;
            }
            _ => {}
        }
        let (mut records, reply) = self.decide(request);
        reactor::yield_if_due().await;
        self.choose_directories(&mut records);
        reactor::yield_if_due().await;
        if !records.is_empty() {
            let base_offset = self.log.commit(&records, reactor::wall_clock_ms()).await?;
            self.publish(base_offset, records).await?;
        }
        Ok(reply)
    }

    /// Moves partitions from core to core: first nobody leads them, so that the log is closed where
    /// it was; when every shard has done that, the new one does and opens it.
    async fn reassign(&self, request: Reassign) -> Result<ControlReply, BrokerError> {
        let (release, lead, outcome) = {
            let image = self.shard.image();
            let config = self.shard.config();
            let manager = meta::Controller {
                image: &image,
                config: &config,
                fixed: self.shard.static_config(),
                node: NodeId(self.shard.node_id()),
            };
            let decided = manager.reassign(&request);
            (decided.release, decided.lead, decided.outcome)
        };
        let now_ms = reactor::wall_clock_ms();
        if !release.is_empty() {
            let base_offset = self.log.commit(&release, now_ms).await?;
            self.publish(base_offset, release).await?;
        }
        if !lead.is_empty() {
            // Somebody must lead them again, whether or not there is space to write down who.
            let base_offset = self.log.commit_or_keep(&lead, now_ms).await?;
            self.publish(base_offset, lead).await?;
        }
        Ok(ControlReply::Reassigned(outcome))
    }

    /// New partitions need a data directory that works and is not full. One that nobody could
    /// produce to is better refused than made.
    fn no_room(&self, request: &ControlRequest) -> Option<ControlReply> {
        let adds_partitions = matches!(
            request,
            ControlRequest::CreateTopics { .. }
                | ControlRequest::AutoCreate { .. }
                | ControlRequest::CreatePartitions { .. }
        );
        if !adds_partitions || !self.shard.dirs.candidates(&self.shard.image()).is_empty() {
            return None;
        }
        let message = "Every data directory is almost full or has failed.";
        Some(ControlReply::Failed(Failure::new(ErrorCode::KafkaStorageError, message)))
    }

    /// Writes into the records of new partitions which data directory each gets.
    fn choose_directories(&self, records: &mut [MetadataRecord]) {
        let mut placer = Placer::new(self.shard.dirs.candidates(&self.shard.image()));
        for record in records {
            let MetadataRecord::Partition(new) = record else { continue };
            let broker_id = self.shard.broker_id();
            let own = new.replicas.iter().find(|node| NodeId(*node).broker() == broker_id);
            let Some(own) = own.filter(|_| new.directories.is_empty()) else { continue };
            let Some(id) = placer.next(NodeId(own)) else { return };
            let directories = new.replicas.iter().map(|n| if n == own { id } else { Uuid::ZERO });
            new.directories = directories.collect();
        }
    }

    fn decide(&self, request: ControlRequest) -> (Vec<MetadataRecord>, ControlReply) {
        let image = self.shard.image();
        let config = self.shard.config();
        let manager = meta::Controller {
            image: &image,
            config: &config,
            fixed: self.shard.static_config(),
            node: NodeId(self.shard.node_id()),
        };
        let entropy = &mut reactor::random_u64;
        match request {
            ControlRequest::CreateTopics { topics, validate_only } => {
                let decision = manager.create_topics(&topics, validate_only, entropy);
                (decision.records, ControlReply::Created(decision.outcome))
            }
            ControlRequest::AutoCreate { names } => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let decision = manager.auto_create(&names, entropy);
                (decision.records, ControlReply::Created(decision.outcome))
            }
            ControlRequest::DeleteTopics { topics } => {
                let decision = manager.delete_topics(&topics);
                (decision.records, ControlReply::Deleted(decision.outcome))
            }
            ControlRequest::CreatePartitions { topics, validate_only } => {
                let decision = manager.create_partitions(&topics, validate_only, entropy);
                (decision.records, ControlReply::PartitionsCreated(decision.outcome))
            }
            ControlRequest::AlterConfigs { resources, validate_only } => {
                let decision = manager.alter_configs(&resources, validate_only);
                (decision.records, ControlReply::ConfigsAltered(decision.outcome))
            }
            ControlRequest::IncrementalAlterConfigs { resources, validate_only } => {
                let decision = manager.incremental_alter_configs(&resources, validate_only);
                (decision.records, ControlReply::ConfigsAltered(decision.outcome))
            }
            ControlRequest::UpdateFeatures { updates, validate_only } => {
                let decision = manager.update_features(&updates, validate_only);
                (decision.records, ControlReply::FeaturesUpdated(decision.outcome))
            }
            ControlRequest::AllocateProducerIds { node } => {
                let decision = manager.allocate_producer_ids(node);
                (decision.records, ControlReply::ProducerIds(decision.outcome))
            }
            ControlRequest::AssignDirectory { topic_id, partition, partition_epoch, directory } => {
                let same = |p: &meta::Partition| p.partition_epoch == partition_epoch;
                let topic = image.topic_by_id(topic_id);
                let topic = topic.filter(|t| t.partition(partition).is_some_and(same));
                let Some(topic) = topic else {
                    let message = "the partition has changed or is gone";
                    let gone = Failure::new(ErrorCode::UnknownTopicOrPartition, message);
                    return (Vec::new(), ControlReply::DirectoryAssigned(Err(gone)));
                };
                let broker_id = self.shard.broker_id();
                let record =
                    meta::controller::assign_directory(topic, partition, broker_id, directory);
                (record.into_iter().collect(), ControlReply::DirectoryAssigned(Ok(())))
            }
            ControlRequest::Reassign(_) => unreachable!("served in two steps"),
        }
    }

    /// Makes committed records true on every shard.
    async fn publish(
        &self,
        base_offset: i64,
        records: Vec<MetadataRecord>,
    ) -> Result<(), BrokerError> {
        let last = base_offset + records.len() as i64 - 1;
        let deleted = deleted_names(&self.shard.image(), &records);
        if !deleted.is_empty() {
            self.shard.leaving.begin(base_offset, deleted, self.shard.mesh.shards());
        }
        let delta = Delta { base_offset, records: records.into() };
        for shard in 1..self.shard.mesh.shards() {
            let message = ShardMessage::Delta(delta.clone());
            self.shard.mesh.send(shard, message).await.map_err(|_| BrokerError::MeshClosed)?;
        }
        changes::apply(&self.shard, &delta).await;
        self.progress.reached(last).await;
        let every = self.shard.config().metadata_snapshot_bytes;
        self.log.snapshot_if_due(&self.shard.image(), every);
        Ok(())
    }
}

/// The topics that the records delete.
fn deleted_names(image: &Image, records: &[MetadataRecord]) -> HashSet<String> {
    let deleted = records.iter().filter_map(|record| match record {
        MetadataRecord::RemoveTopic(r) => image.topic_by_id(r.topic_id),
        _ => None,
    });
    deleted.map(|topic| topic.name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_when_every_shard_has_renamed_its_folders() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let leaving = Rc::new(Leaving::default());
            leaving.begin(7, ["a".to_owned(), "b".to_owned()].into(), 2);
            leaving.begin(9, ["a".to_owned()].into(), 2);
            leaving.gone(["c"].into_iter()).await;
            let waiting = leaving.clone();
            let new = reactor::spawn(async move { waiting.gone(["c", "a"].into_iter()).await });
            for base_offset in [7, 9, 9] {
                leaving.note(base_offset);
                reactor::yield_now().await;
                reactor::yield_now().await;
                assert!(!new.is_finished(), "shards are still at it");
            }
            leaving.note(7);
            new.await;
            assert!(leaving.deltas.borrow().is_empty());
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn a_change_under_way_ends_when_the_other_shards_have_stopped() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let progress = Rc::new(Progress::new(3));
            let waiting = progress.clone();
            let change = reactor::spawn(async move { waiting.reached(7).await });
            progress.note(1, 7);
            reactor::yield_now().await;
            assert!(!change.is_finished(), "shard 2 has not applied it");
            progress.end();
            change.await;
        });
        assert!(ran.finished().is_some());
    }
}
