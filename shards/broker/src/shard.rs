//! The shard: what one core owns and what its requests share. Never leaves its thread.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use log::{Failing, LogShared};
use meta::config::{BrokerConfig, Layers, StaticConfig, TopicConfig};
use meta::controller::{GROUP_VERSION, ProducerIdBlock};
use meta::{Failure, Image, NodeId};
use reactor::sync::{Notified, Notify, OneshotSender, oneshot};
use reactor::{Instant, Mesh};
use wire::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use wire::{ErrorCode, Uuid};

use crate::ShardStart;
use crate::answers::AnswerBudget;
use crate::cleaner::Cleaner;
use crate::control::{ControlReply, ControlRequest};
use crate::controller::{Job, Leaving, ReplyTo};
use crate::data_dirs::moves::Moves;
use crate::data_dirs::{DataDirs, DirState};
use crate::fetch_session::{FetchSessions, TopicRef};
use crate::frame_reader::RequestBudget;
use crate::groups::Groups;
use crate::listener::Connections;
use crate::mesh::{FoundLog, ShardMessage};
use crate::metrics::Metrics;
use crate::partition::Partition;
use crate::partitions::{LocalPartitions, Slot};
use crate::settings::{self, PartitionLimits};
use crate::transactions::Transactions;

/// The shard that runs the controller.
pub(crate) const CONTROLLER_SHARD: usize = 0;
/// A request waits so long for a partition that is opening: less than clients wait for the answer.
pub(crate) const OPENING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where clients reach a shard node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub node_id: i32,
    pub host: Rc<str>,
    pub port: u16,
    pub rack: Option<Rc<str>>,
}

/// The leader that a client should have asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaderHint {
    pub node_id: i32,
    pub epoch: i32,
}

/// Why a partition cannot be served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotHere {
    pub error: ErrorCode,
    pub leader: Option<LeaderHint>,
    opening: bool,
}

impl NotHere {
    fn because(error: ErrorCode) -> Self {
        NotHere { error, leader: None, opening: false }
    }

    /// It is ours and will be served as soon as it is open.
    pub fn is_opening(&self) -> bool {
        self.opening
    }
}

/// The feature levels that ApiVersions tells.
pub(crate) struct Features {
    pub supported: Vec<SupportedFeatureKey<'static>>,
    pub finalized: Vec<FinalizedFeatureKey<'static>>,
    pub finalized_epoch: i64,
}

/// Producer ids that a coordinator may need before more can be asked for.
const PRODUCER_IDS_HELD: i64 = 4;

pub(crate) struct Shard {
    id: usize,
    node_id: i32,
    cluster_id: String,
    pub dirs: Rc<DataDirs>,
    pub moves: Moves,
    static_config: Arc<StaticConfig>,
    config: RefCell<Rc<BrokerConfig>>,
    image: RefCell<Image>,
    pub partitions: LocalPartitions,
    topic_configs: RefCell<AHashMap<Box<str>, Weak<TopicConfig>>>,
    last_name: RefCell<Rc<str>>,
    pub found: RefCell<BTreeMap<String, FoundLog>>,
    pub fetch_sessions: RefCell<FetchSessions>,
    pub request_budget: Rc<RequestBudget>,
    pub answers: Rc<AnswerBudget>,
    pub log_shared: LogShared,
    pub cleaner: Cleaner,
    pub groups: Groups,
    pub transactions: Transactions,
    pub connections: Connections,
    pub metrics: Metrics,
    pub mesh: Mesh<ShardMessage>,
    /// Requests to the controller that wait for its reply, by token.
    calls: RefCell<HashMap<u64, OneshotSender<ControlReply>>>,
    next_token: Cell<u64>,
    /// The controller's queue, on shard 0 only.
    pub controller: RefCell<Option<reactor::sync::Sender<Job>>>,
    /// Deleted topics whose folders still have their names; kept on shard 0.
    pub leaving: Leaving,
    /// Producer ids granted to this shard and not handed out yet.
    producer_ids: RefCell<ProducerIdBlock>,
    /// Produce requests whose acknowledgement is still to come.
    pub produces_waiting: Rc<Cell<usize>>,
    stopping: Cell<bool>,
    stop_asked: Notify,
}

impl Shard {
    pub fn new(start: ShardStart) -> Rc<Self> {
        let config = Rc::new((*start.config).clone());
        let memory = settings::Memory::split(start.memory_bytes, usize::from(start.shards));
        let slots = config.fetch_session_slots as usize / usize::from(start.shards);
        let fetch_sessions = FetchSessions::new(slots.max(1), memory.sessions_bytes);
        let dirs = Rc::new(DataDirs::new(start.data_dirs));
        let log_shared = settings::log_shared(&memory);
        log_shared.on_failure(failure_listener(&dirs));
        Rc::new(Shard {
            id: usize::from(start.shard),
            node_id: NodeId::of(start.broker_id, start.shard).0,
            partitions: LocalPartitions::new(dirs.len()),
            dirs,
            topic_configs: RefCell::default(),
            last_name: RefCell::new("".into()),
            moves: Moves::default(),
            static_config: start.static_config,
            config: RefCell::new(config),
            image: RefCell::new(Image::new(start.cluster_id.as_str())),
            cluster_id: start.cluster_id,
            found: RefCell::default(),
            fetch_sessions: RefCell::new(fetch_sessions),
            request_budget: Rc::new(RequestBudget::new(memory.requests_bytes)),
            answers: AnswerBudget::new(memory.answers_bytes),
            log_shared,
            cleaner: Cleaner::new(memory.cleaner_bytes),
            groups: Groups::default(),
            transactions: Transactions::default(),
            connections: Connections::default(),
            metrics: Metrics::default(),
            mesh: start.mesh,
            calls: RefCell::default(),
            next_token: Cell::new(0),
            controller: RefCell::new(None),
            leaving: Leaving::default(),
            producer_ids: RefCell::new(ProducerIdBlock::EMPTY),
            produces_waiting: Rc::default(),
            stopping: Cell::new(false),
            stop_asked: Notify::new(),
        })
    }

    pub fn id(&self) -> usize {
        self.id
    }

    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    pub fn broker_id(&self) -> i32 {
        NodeId(self.node_id).broker()
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub fn data_dirs(&self) -> &[PathBuf] {
        self.dirs.paths()
    }

    pub fn static_config(&self) -> &StaticConfig {
        &self.static_config
    }

    pub fn config(&self) -> Rc<BrokerConfig> {
        self.config.borrow().clone()
    }

    pub fn set_config(&self, config: BrokerConfig) {
        self.forget_topic_configs();
        self.config.replace(Rc::new(config));
    }

    pub fn image(&self) -> Ref<'_, Image> {
        self.image.borrow()
    }

    /// The image changes only here and only by what the metadata log holds.
    pub fn change_image<T>(&self, change: impl FnOnce(&mut Image) -> T) -> T {
        change(&mut self.image.borrow_mut())
    }

    /// Every shard node of the cluster, in order of node id.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.image().nodes().filter_map(endpoint_of).collect()
    }

    pub fn endpoint(&self, node_id: i32) -> Option<Endpoint> {
        self.image().node(NodeId(node_id)).and_then(endpoint_of)
    }

    /// The node that clients are told to send topic changes to.
    pub fn controller_node_id(&self) -> i32 {
        NodeId::of(NodeId(self.node_id).broker(), 0).0
    }

    pub fn leader_of(&self, topic: &str, partition: i32) -> Option<i32> {
        let image = self.image();
        let leader = image.partition(topic, partition)?.leader;
        (leader != meta::NO_LEADER).then_some(leader.0)
    }

    /// Those of the replicas whose node is not there, or whose data directory cannot be used.
    pub fn offline_replicas(&self, partition: &meta::Partition) -> Vec<i32> {
        let image = self.image();
        let no_disk = |node: &NodeId| {
            let directory = partition.directory_on(node.broker());
            node.broker() == self.broker_id()
                && directory.is_some_and(|id| self.dirs.usable_with_id(id).is_err())
        };
        let replicas = partition.replicas.iter();
        let gone = replicas.filter(|node| !image.is_alive(**node) || no_disk(node));
        gone.map(|node| node.0).collect()
    }

    pub fn data_dir_state(&self, number: usize) -> DirState {
        self.dirs.state(number)
    }

    /// Whether members may use the KIP-848 protocol.
    pub fn offers_consumer_groups(&self) -> bool {
        let level = self.image().features().get(GROUP_VERSION.0).copied().unwrap_or(0);
        level >= GROUP_VERSION.1 && self.config().groups.consumer_protocol
    }

    pub fn features(&self) -> Features {
        settings::features(&self.image())
    }

    /// The settings of a topic, which its partitions share.
    pub fn topic_config(&self, topic: &str) -> Rc<TopicConfig> {
        if let Some(known) = self.topic_configs.borrow().get(topic).and_then(Weak::upgrade) {
            return known;
        }
        let image = self.image();
        let config = Rc::new(TopicConfig::resolve(self.layers(&image), topic));
        self.topic_configs.borrow_mut().insert(topic.into(), Rc::downgrade(&config));
        config
    }

    /// The broker's settings have changed, and with them those of every topic.
    fn forget_topic_configs(&self) {
        self.topic_configs.borrow_mut().clear();
        self.last_name.replace("".into());
    }

    /// The topic has other settings, or is gone. What others share stays known.
    pub fn forget_topic_config(&self, topic: &str) {
        self.topic_configs.borrow_mut().remove(topic);
        self.last_name.replace("".into());
    }

    /// A topic's name, which the partitions of one topic share as they come one after the other.
    pub fn topic_name(&self, name: &str) -> Rc<str> {
        let mut last = self.last_name.borrow_mut();
        if **last != *name {
            *last = name.into();
        }
        last.clone()
    }

    /// The layers of configuration as this node sees them.
    pub fn layers<'a>(&'a self, image: &'a Image) -> Layers<'a> {
        image.layers(&self.static_config, NodeId(self.node_id))
    }

    pub fn partition_limits(&self) -> PartitionLimits {
        PartitionLimits {
            producer_id_expiration_ms: self.config().producer_id_expiration_ms,
            decompressed_bytes_max: self.request_budget.capacity(),
        }
    }

    pub fn open_partitions(&self) -> Vec<Rc<Partition>> {
        self.partitions.online()
    }

    /// The partition, if this shard leads it and it is open.
    pub fn partition(&self, topic: &TopicRef, index: i32) -> Result<Rc<Partition>, NotHere> {
        let Some(id) = self.topic_id(topic) else {
            return Err(NotHere::because(ErrorCode::UnknownTopicOrPartition));
        };
        self.partitions.with_slot(&(id, index), |slot| match slot {
            Some(Slot::Online(partition)) => Ok(partition.clone()),
            Some(Slot::Opening(_)) => {
                Err(NotHere { opening: true, ..NotHere::because(ErrorCode::NotLeaderOrFollower) })
            }
            Some(Slot::Offline(_)) => Err(NotHere::because(ErrorCode::KafkaStorageError)),
            None => Err(self.elsewhere(id, index)),
        })
    }

    fn topic_id(&self, topic: &TopicRef) -> Option<Uuid> {
        match topic {
            TopicRef::Id(id) => Some(*id),
            TopicRef::Name(name) => self.image().topic_by_name(name).map(|topic| topic.id),
        }
    }

    fn elsewhere(&self, topic_id: Uuid, index: i32) -> NotHere {
        let image = self.image();
        let Some(topic) = image.topic_by_id(topic_id) else {
            return NotHere::because(ErrorCode::UnknownTopicId);
        };
        let Some(partition) = topic.partition(index) else {
            return NotHere::because(ErrorCode::UnknownTopicOrPartition);
        };
        let hint = LeaderHint { node_id: partition.leader.0, epoch: partition.leader_epoch };
        let leader = (partition.leader != meta::NO_LEADER).then_some(hint);
        let opening = hint.node_id == self.node_id && self.partitions.registered().is_some();
        NotHere { leader, opening, ..NotHere::because(ErrorCode::NotLeaderOrFollower) }
    }

    /// Waits while the partition is opening, at most until the given time.
    pub async fn wait_until_open(&self, topic: &TopicRef, index: i32, until: Instant) {
        if !self.partitions.are_opening() {
            return;
        }
        let Some(id) = self.topic_id(topic) else { return };
        while let Some(ended) = self.opening(id, index) {
            if reactor::timeout(until - reactor::now(), ended).await.is_err() {
                return;
            }
        }
    }

    /// If the partition is opening, or will be in a moment: resolves when there is more to know.
    fn opening(&self, topic_id: Uuid, index: i32) -> Option<Notified> {
        let key = (topic_id, index);
        let opening = self.partitions.ask_for(&key);
        if opening.is_some() || self.partitions.with_slot(&key, |slot| slot.is_some()) {
            return opening;
        }
        self.elsewhere(topic_id, index).opening.then(|| self.partitions.registered()).flatten()
    }

    /// The partition; one that is opening for long is answered as if it were led elsewhere, so that
    /// the client asks again.
    pub async fn partition_when_open(
        &self,
        topic: &TopicRef,
        index: i32,
    ) -> Result<Rc<Partition>, NotHere> {
        self.wait_until_open(topic, index, reactor::now() + OPENING_WAIT_MAX).await;
        self.partition(topic, index)
    }

    /// Asks the controller, wherever it runs.
    ///
    /// The reply is `Failed` if the decision could not be made durable or the broker stops.
    pub async fn control(&self, request: ControlRequest) -> ControlReply {
        let (sender, receiver) = oneshot();
        let local = self.controller.borrow().clone();
        let sent = match local {
            Some(queue) => {
                let job = Job { request, reply_to: ReplyTo::Here(sender) };
                queue.send(job).await.is_ok()
            }
            None => {
                let token = self.next_token.get();
                self.next_token.set(token + 1);
                self.calls.borrow_mut().insert(token, sender);
                let message = ShardMessage::Control { token, request: Box::new(request) };
                self.mesh.send(CONTROLLER_SHARD, message).await.is_ok()
            }
        };
        let stopping = || {
            let message = "the broker is shutting down";
            ControlReply::Failed(Failure::new(ErrorCode::BrokerNotAvailable, message))
        };
        if !sent {
            return stopping();
        }
        receiver.await.unwrap_or_else(|_| stopping())
    }

    /// Hands a reply of the controller to the request that waits for it.
    pub fn finish_call(&self, token: u64, reply: ControlReply) {
        if let Some(sender) = self.calls.borrow_mut().remove(&token) {
            // The requester may have left.
            let _ = sender.send(reply);
        }
    }

    /// A producer id that was never given out before and never will be again.
    pub async fn next_producer_id(&self) -> Result<i64, ErrorCode> {
        loop {
            if let Some(id) = self.producer_ids.borrow_mut().take() {
                return Ok(id);
            }
            let request = ControlRequest::AllocateProducerIds { node: NodeId(self.node_id) };
            let block = self.control(request).await.producer_ids().map_err(|f| f.code)?;
            // Two requests may have asked at once; the block of the later one stays unused.
            let mut current = self.producer_ids.borrow_mut();
            if current.remaining() == 0 {
                *current = block;
            }
        }
    }

    /// A producer id of the block that this shard holds, if one is left.
    pub fn producer_id_at_hand(&self) -> Option<i64> {
        self.producer_ids.borrow_mut().take()
    }

    /// Sees to it that a few producer ids are at hand.
    pub async fn hold_producer_ids(&self) -> Result<(), ErrorCode> {
        if self.producer_ids.borrow().remaining() < PRODUCER_IDS_HELD {
            let request = ControlRequest::AllocateProducerIds { node: NodeId(self.node_id) };
            let block = self.control(request).await.producer_ids().map_err(|f| f.code)?;
            // What is left of the one before stays unused.
            self.producer_ids.replace(block);
        }
        Ok(())
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub fn ask_to_stop(&self) {
        self.stopping.set(true);
        self.stop_asked.notify_all();
    }

    pub async fn stop_asked(&self) {
        while !self.stopping.get() {
            self.stop_asked.notified().await;
        }
    }
}

/// What the logs call when a write or a sync has failed: the disk may be the reason.
fn failure_listener(dirs: &Rc<DataDirs>) -> impl Fn(&Path, &std::io::Error, Failing) + 'static {
    let dirs = dirs.clone();
    move |log_dir: &Path, error: &std::io::Error, failing: Failing| {
        let Some(number) = dirs.holding(log_dir) else { return };
        match failing {
            _ if log::is_out_of_space(error) => dirs.note_full(number),
            Failing::Writing => dirs.suspect(number),
            Failing::Reading => dirs.suspect_reading(number),
        }
    }
}

/// A shard has one listener for now; a node that registered none cannot be reached.
fn endpoint_of(node: &meta::Node) -> Option<Endpoint> {
    let endpoint = node.endpoints.first()?;
    Some(Endpoint {
        node_id: node.id.0,
        host: endpoint.host.as_str().into(),
        port: endpoint.port,
        rack: node.rack.as_deref().map(Rc::from),
    })
}
