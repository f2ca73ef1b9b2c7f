//! The coordinator of one partition: its groups, their offsets, and what falls due.
//!
//! Every change of what the log holds goes through `apply` (replay.rs), whether the record was just
//! made or is read from the log. What is not in the log (who waits for an answer, deadlines) is
//! lost with the coordinator, as clients expect: they come again.

use ahash::AHashMap;
use wire::ErrorCode;

use crate::Name;
use crate::classic::{ClassicGroup, Step};
use crate::config::{Config, GroupConfig};
use crate::consumer::ConsumerGroup;
use crate::context::{Context, Topics};
use crate::error::Refusal;
use crate::offsets::{Deleted, Offsets, Retention};
use crate::record::{Record, record_bytes};
use crate::request::{Decision, Request};
use crate::sweep::Sweep;
use crate::timers::{Key, Kind, Timers};

#[derive(Debug)]
pub(crate) enum Group {
    Classic(Box<ClassicGroup>),
    Consumer(Box<ConsumerGroup>),
}

impl Group {
    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Group::Classic(group) => group.is_empty(),
            Group::Consumer(group) => group.is_empty(),
        }
    }

    pub fn state(&self) -> &'static str {
        match self {
            Group::Classic(group) => group.state.name(),
            Group::Consumer(group) => group.state(),
        }
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Group::Classic(group) => group.is_subscribed_to(topic),
            Group::Consumer(group) => group.is_subscribed_to(topic),
        }
    }

    pub fn may_delete_offsets(&self) -> Result<(), Refusal> {
        match self {
            Group::Classic(group) => group.may_delete_offsets(),
            Group::Consumer(_) => Ok(()),
        }
    }

    pub fn retention(&self) -> Retention {
        match self {
            Group::Classic(group) => group.retention(),
            Group::Consumer(group) => group.retention(),
        }
    }

    /// The records by which the group is gone.
    pub fn tombstones(&self, id: &str, records: &mut Vec<Record<'static>>) {
        match self {
            Group::Classic(_) => records.push(ClassicGroup::tombstone(id)),
            Group::Consumer(group) => group.tombstones(id, records),
        }
    }
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct Coordinator {
    pub(crate) config: Config,
    pub(crate) group_configs: AHashMap<String, GroupConfig>,
    pub(crate) groups: AHashMap<Name, Group>,
    pub(crate) offsets: Offsets,
    pub(crate) timers: Timers,
    pub(crate) sweep: Sweep,
    pub(crate) deleted: Deleted,
    /// The log has been read: what comes now is our own.
    pub(crate) loaded: bool,
    /// How far the wall clock is ahead of that of the deadlines.
    pub(crate) wall_ahead_ms: i64,
}

impl Coordinator {
    /// A coordinator that has not read its log yet: [`replay`](Self::replay) it, then say
    /// [`loaded`](Self::loaded).
    pub fn new(config: Config) -> Self {
        Coordinator {
            config,
            group_configs: AHashMap::new(),
            groups: AHashMap::new(),
            offsets: Offsets::default(),
            timers: Timers::default(),
            sweep: Sweep::default(),
            deleted: Deleted::default(),
            loaded: false,
            wall_ahead_ms: 0,
        }
    }

    /// Decides on a request. See [`Decision`] for what to do with it.
    pub fn handle(&mut self, request: Request<'_, '_>, ctx: &Context<'_>) -> Decision {
        let mut out = Decision::default();
        self.wall_ahead_ms = ctx.wall_ms.saturating_sub(ctx.now_ms);
        match request {
            Request::JoinGroup(request) => self.join_group(request, ctx, &mut out),
            Request::SyncGroup(request) => self.sync_group(request, ctx, &mut out),
            Request::Heartbeat(request) => self.heartbeat(request, ctx, &mut out),
            Request::LeaveGroup(request) => self.leave_group(request, ctx, &mut out),
            Request::OffsetCommit(request) => self.offset_commit(request, ctx, &mut out),
            Request::TxnOffsetCommit(request) => self.txn_offset_commit(request, ctx, &mut out),
            Request::OffsetFetch { group, require_stable } => {
                self.offset_fetch(group, require_stable, ctx, &mut out);
            }
            Request::OffsetDelete(request) => self.offset_delete(request, ctx, &mut out),
            Request::DescribeGroup(id) => self.describe_group(id, ctx, &mut out),
            Request::ListGroups(request) => self.list_groups(request, ctx, &mut out),
            Request::DeleteGroup(id) => self.delete_group(id, ctx, &mut out),
            Request::ConsumerGroupHeartbeat(request) => {
                self.consumer_group_heartbeat(request, ctx, &mut out);
            }
            Request::ConsumerGroupDescribe(id) => self.consumer_group_describe(id, ctx, &mut out),
        }
        self.apply_new(&mut out, ctx.now_ms);
        out
    }

    /// When [`on_time`](Self::on_time) has something to do, at the earliest.
    pub fn next_deadline(&mut self) -> Option<i64> {
        let due = [self.timers.next_due(), self.sweep.due_ms(), self.deleted.due_ms()];
        due.into_iter().flatten().min()
    }

    /// Does some of what has fallen due; [`next_deadline`](Self::next_deadline) tells whether more
    /// has. The clocks are those of a [`Context`].
    pub fn on_time(&mut self, now_ms: i64, wall_ms: i64, topics: &dyn Topics) -> Decision {
        let mut out = Decision::default();
        self.wall_ahead_ms = wall_ms.saturating_sub(now_ms);
        for _ in 0..TIMERS_PER_CALL_MAX {
            let Some(key) = self.timers.pop_due(now_ms) else { break };
            self.time_out(&key, topics, now_ms, &mut out);
            self.apply_new(&mut out, now_ms);
            out.cut();
        }
        self.bury_deleted(topics, &mut out);
        self.apply_new(&mut out, now_ms);
        self.sweep(now_ms, &mut out);
        self.apply_new(&mut out, now_ms);
        out
    }

    fn time_out(&mut self, key: &Key, topics: &dyn Topics, now_ms: i64, out: &mut Decision) {
        if matches!(self.groups.get(&key.group), Some(Group::Consumer(_))) {
            let Some(member) = &key.member else { return };
            return self.fence(&key.group, member, topics, now_ms, out);
        }
        let Some((group, mut step)) = self.classic(&key.group, now_ms, out) else { return };
        match (key.kind, &key.member) {
            (Kind::Join, _) => group.join_timeout(&mut step),
            (Kind::Sync, _) => group.sync_timeout(&mut step),
            (Kind::Session, Some(member)) => group.session_timeout(member, &mut step),
            _ => {}
        }
    }

    /// The settings from now on.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// What a group sets for itself from now on; `None` takes it back.
    pub fn set_group_config(&mut self, group: &str, config: Option<GroupConfig>) {
        match config {
            Some(config) => self.group_configs.insert(String::from(group), config),
            None => self.group_configs.remove(group),
        };
    }

    /// Number of groups.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Number of committed offsets.
    pub fn offset_count(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn session_timeout_ms(&self, group: &str) -> i32 {
        let own = self.group_configs.get(group).and_then(|config| config.session_timeout_ms);
        own.unwrap_or(self.config.consumer_session_timeout_ms)
    }

    pub(crate) fn heartbeat_interval_ms(&self, group: &str) -> i32 {
        let own = self.group_configs.get(group).and_then(|config| config.heartbeat_interval_ms);
        own.unwrap_or(self.config.consumer_heartbeat_interval_ms)
    }

    pub(crate) fn assignment_interval_ms(&self, group: &str) -> i64 {
        let own = self.group_configs.get(group).and_then(|config| config.assignment_interval_ms);
        i64::from(own.unwrap_or(self.config.assignment_interval_ms))
    }

    /// A classic group, and what its machine works with.
    pub(crate) fn classic<'a>(
        &'a mut self,
        id: &str,
        now_ms: i64,
        out: &'a mut Decision,
    ) -> Option<(&'a mut ClassicGroup, Step<'a>)> {
        let name = self.groups.get_key_value(id)?.0.clone();
        let Some(Group::Classic(group)) = self.groups.get_mut(id) else { return None };
        let (config, timers) = (&self.config, &mut self.timers);
        let wall_ms = now_ms.saturating_add(self.wall_ahead_ms);
        Some((group, Step { id: name, now_ms, wall_ms, config, timers, out }))
    }

    /// The same, made if it is not there.
    pub(crate) fn classic_or_new<'a>(
        &'a mut self,
        id: &str,
        now_ms: i64,
        out: &'a mut Decision,
    ) -> Option<(&'a mut ClassicGroup, Step<'a>)> {
        if !self.groups.contains_key(id) {
            let wall_ms = now_ms.saturating_add(self.wall_ahead_ms);
            let group = Group::Classic(Box::new(ClassicGroup::new(Some(wall_ms))));
            self.groups.insert(Name::from(id), group);
        }
        self.classic(id, now_ms, out)
    }

    /// A decision that cannot be divided is appended as one batch: what would not fit is refused
    /// before it is applied, with the error that Kafka has then.
    pub(crate) fn fits_in_a_batch(&self, records: &[Record<'static>]) -> Result<(), Refusal> {
        let too_large = Err(ErrorCode::UnknownServerError.into());
        let mut all = 0usize;
        for record in records {
            let bytes = record_bytes(record);
            // What a member says of itself, or all members of a classic group together.
            let of_clients =
                matches!(record, Record::ConsumerMember(..) | Record::GroupMetadata(..));
            if of_clients && bytes > self.config.record_bytes_max {
                return too_large;
            }
            all = all.saturating_add(bytes);
        }
        if all > self.config.batch_bytes_max { too_large } else { Ok(()) }
    }

    /// Removes an empty group to make room for one of the other kind; its offsets stay.
    pub(crate) fn drop_group(&mut self, id: &str, now_ms: i64, out: &mut Decision) {
        if let Some(group) = self.groups.get(id) {
            group.tombstones(id, &mut out.records);
        }
        self.apply_new(out, now_ms);
    }
}

/// Deadlines handled in one call, so that many at once do not hold up the shard.
const TIMERS_PER_CALL_MAX: usize = 256;
