//! One partition led by this shard: its log, its epoch and the rules its topic sets for producers.
//!
//! Lives on the shard's core and is shared by the requests at hand. With one replica the high
//! watermark is the log's visible end: what is as durable as the topic promises.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use log::{Log, LogState};
use meta::config::TopicConfig;
use wire::records::validate::Rules;
use wire::{ErrorCode, Uuid};

use crate::metrics::TopicTraffic;
use crate::settings::{self, PartitionLimits};

/// The leader epoch that says "do not check".
const NO_EPOCH: i32 = -1;

pub(crate) struct Partition {
    pub topic_id: Uuid,
    pub topic: Rc<str>,
    pub index: i32,
    pub is_internal: bool,
    /// Which of the shard's data directories holds it.
    pub dir_number: usize,
    pub log: Log,
    pub traffic: Rc<TopicTraffic>,
    /// The last round of retention failed.
    pub retention_fails: Cell<bool>,
    leader_epoch: Cell<i32>,
    config: RefCell<Rc<TopicConfig>>,
    limits: Cell<PartitionLimits>,
}

impl Partition {
    pub fn new(
        (topic_id, topic, index): (Uuid, Rc<str>, i32),
        dir_number: usize,
        log: Log,
        leader_epoch: i32,
        config: Rc<TopicConfig>,
        (limits, traffic): (PartitionLimits, Rc<TopicTraffic>),
    ) -> Self {
        let is_internal = meta::controller::is_internal(&topic);
        Partition {
            topic_id,
            topic,
            index,
            is_internal,
            dir_number,
            log,
            traffic,
            retention_fails: Cell::new(false),
            leader_epoch: Cell::new(leader_epoch),
            config: RefCell::new(config),
            limits: Cell::new(limits),
        }
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch.get()
    }

    pub fn become_leader(&self, epoch: i32) {
        self.leader_epoch.set(epoch);
    }

    /// Readers of `read_uncommitted` see everything below.
    pub fn high_watermark(&self) -> i64 {
        self.log.visible_end_offset()
    }

    /// Readers of `read_committed` see everything below.
    pub fn last_stable_offset(&self) -> i64 {
        self.log.last_stable_offset().min(self.high_watermark())
    }

    /// Resolves when more may be visible, or the log's start or state has changed, from this call on.
    pub fn changed(&self) -> impl Future<Output = ()> + Unpin + use<> {
        self.log.changed()
    }

    /// Checks the leader epoch that a client believes in.
    ///
    /// # Errors
    /// `FENCED_LEADER_EPOCH` (74) for an older, `UNKNOWN_LEADER_EPOCH` (75) for a newer one.
    pub fn check_leader_epoch(&self, claimed: i32) -> Result<(), ErrorCode> {
        let current = self.leader_epoch.get();
        match claimed {
            NO_EPOCH => Ok(()),
            older if older < current => Err(ErrorCode::FencedLeaderEpoch),
            newer if newer > current => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }

    /// The end of an epoch as a reader should see it: the current one ends at the log's end.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        if epoch == self.leader_epoch.get() {
            return (epoch, self.log.log_end_offset());
        }
        self.log.end_offset_for_epoch(epoch)
    }

    /// Where a reader's history parts from ours, if it does (KIP-595).
    ///
    /// # Errors
    /// `OFFSET_OUT_OF_RANGE` (1) if its epoch is none that this log ever had.
    pub fn diverging_epoch(
        &self,
        last_fetched_epoch: i32,
        fetch_offset: i64,
    ) -> Result<Option<(i32, i64)>, ErrorCode> {
        if last_fetched_epoch == NO_EPOCH {
            return Ok(None);
        }
        let (epoch, end_offset) = self.end_offset_for_epoch(last_fetched_epoch);
        if epoch == NO_EPOCH || end_offset < 0 {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let diverges = epoch < last_fetched_epoch || end_offset < fetch_offset;
        Ok(diverges.then_some((epoch, end_offset)))
    }

    /// What a produced batch is checked against.
    pub fn produce_rules(&self, produce_version: i16) -> Rules {
        settings::produce_rules(&self.config.borrow(), &self.limits.get(), produce_version)
    }

    /// DeleteRecords is refused where the topic keeps the latest value of every key for good.
    pub fn may_delete_records(&self) -> bool {
        let config = self.config.borrow();
        config.delete || !config.compact
    }

    pub fn is_compacted(&self) -> bool {
        self.config.borrow().compact
    }

    /// Both policies: the latest value of every key, and only for a time.
    pub fn is_compacted_and_deleted(&self) -> bool {
        let config = self.config.borrow();
        config.compact && config.delete
    }

    /// Whether a failed write was one for which the disk had no space: such a log is whole and can
    /// go on as soon as there is some. `None`: no write has failed.
    pub fn ran_out_of_space(&self) -> Option<bool> {
        match self.log.state() {
            LogState::Poisoned(error) => Some(log::is_out_of_space(&error.cause)),
            LogState::Online | LogState::Closed => None,
        }
    }

    /// A write or a sync failed: it takes no records until it is opened again.
    pub fn has_failed(&self) -> bool {
        matches!(self.log.state(), LogState::Poisoned(_))
    }

    /// Takes over changed settings of the topic, and what the broker sets for it.
    pub fn reconfigure(&self, config: Rc<TopicConfig>, limits: PartitionLimits) {
        self.log.reconfigure(settings::log_config(&config, &limits));
        self.limits.set(limits);
        self.config.replace(config);
    }
}
