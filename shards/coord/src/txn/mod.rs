//! Transactions: the coordinator of one partition of `__transaction_state`.
//!
//! Every change of what the log holds goes through `apply`, whether the record was just made or is
//! read from the log. What is not in the log is how far the markers of an ending transaction have
//! come, and the epoch a producer had before (and with the records of `transaction.version` 0, all
//! that has tags in later ones): the first starts anew with the next coordinator, the rest is
//! forgotten, as in Kafka.

mod add;
mod admin;
mod census;
mod context;
mod end;
mod expire;
mod init;
mod markers;
mod partitions;
mod record;
mod refuse;
mod request;
mod state;

use std::collections::BTreeMap;
use std::ops::Bound;

use wire::messages::TransactionLogKey;

pub use admin::IdPattern;
pub use context::{Cluster, Origin, TransactionVersion, TxnConfig, TxnContext};
pub use partitions::Partitions;
pub use record::TxnRecord;
pub use refuse::{join_add_partitions, join_lists, split_add_partitions};
pub use request::{Marker, Round, TxnDecision, TxnReply, TxnRequest};

use crate::Name;
use crate::error::CoordError;
use crate::sweep::Sweep;
use crate::timers::Timers;
use census::{Begun, Census};
use markers::Sending;
use state::Txn;

/// What falls due for a transactional id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    /// The transaction has been open for too long.
    Timeout(Name),
    /// Markers that could not be written, or that a former coordinator may not have sent.
    Markers(Name),
}

#[derive(Debug)]
struct Entry {
    txn: Txn,
    /// Of a prepared transaction.
    sending: Sending,
}

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Debug)]
pub struct TxnCoordinator {
    config: TxnConfig,
    coordinator_epoch: i32,
    /// In order, so that a list of them can be made in pieces.
    entries: BTreeMap<Name, Box<Entry>>,
    census: Census,
    /// How far the open transactions of the log have been taken up, if not all are.
    taking_up: Option<Begun>,
    timers: Timers<Due>,
    sweep: Sweep,
    /// The last ending begun by this coordinator.
    last_round: Round,
}

/// Deadlines handled in one call, so that many at once do not hold up the shard.
const TIMERS_PER_CALL_MAX: usize = 256;
/// What a call's records and markers may take before the next one goes on: its batch, which one
/// record more may overshoot, must be one that can be appended and read.
const BYTES_PER_CALL_MAX: usize = 1 << 20;
/// What a record takes beside its id and partitions, about.
const RECORD_BYTES: usize = 128;
/// Transactions that were open when the log was read, taken up in one call.
const TAKEN_UP_PER_CALL_MAX: usize = 1_000;

impl TxnCoordinator {
    /// A coordinator that has not read its log yet: [`replay`](Self::replay) it, then say
    /// [`loaded`](Self::loaded). `coordinator_epoch` is the partition's leader epoch.
    pub fn new(config: TxnConfig, coordinator_epoch: i32) -> Self {
        TxnCoordinator {
            config,
            coordinator_epoch,
            entries: BTreeMap::new(),
            census: Census::default(),
            taking_up: None,
            timers: Timers::default(),
            sweep: Sweep::default(),
            last_round: Round { coordinator_epoch, ..Round::default() },
        }
    }

    /// Reads one record of the log, in its order. Records of other types are passed over.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), CoordError> {
        let Some(TxnRecord { key, value, .. }) = TxnRecord::read(key, value)? else {
            return Ok(());
        };
        let id = &*key.transactional_id;
        let txn = value.map(|value| Txn::from_value(id, &value)).transpose()?;
        self.apply(id, txn);
        Ok(())
    }

    /// The log has been read: open transactions may time out from now on, and decided ones are due
    /// to be ended by [`on_time`](Self::on_time) at once.
    pub fn loaded(&mut self, now_ms: i64) {
        self.last_round.loaded_ms = now_ms;
        self.sweep.start(now_ms.saturating_add(self.config.expiry_check_interval_ms));
        self.taking_up = Some(Begun::before_all());
        self.take_up(now_ms);
    }

    /// Goes on with the transactions that were open when the log was read: some at a time, so that
    /// many do not hold up the shard. One that a request has moved on meanwhile is as it has to be.
    fn take_up(&mut self, now_ms: i64) {
        let Some(done) = self.taking_up.take() else { return };
        let rest = self.census.open.range((Bound::Excluded(done), Bound::Unbounded));
        let some: Vec<Begun> = rest.take(TAKEN_UP_PER_CALL_MAX).cloned().collect();
        for Begun { id, .. } in &some {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            if let Some(due_ms) = entry.txn.deadline_ms() {
                self.timers.set(Due::Timeout(id.clone()), due_ms);
            }
            if entry.txn.state.is_prepared() && !entry.sending.is_begun() {
                self.last_round.number += 1;
                let partitions = entry.txn.partitions.clone();
                entry.sending = Sending::unsent(self.last_round, partitions);
                self.timers.set(Due::Markers(id.clone()), now_ms);
            }
        }
        if some.len() == TAKEN_UP_PER_CALL_MAX {
            self.taking_up = some.last().cloned();
        }
    }

    /// Decides on a request, at once. See [`TxnDecision`] for what to do with it.
    pub fn handle(
        &mut self,
        request: TxnRequest<'_, '_>,
        origin: Origin,
        ctx: &TxnContext<'_>,
    ) -> TxnDecision {
        let mut out = TxnDecision::default();
        let reply = match request {
            TxnRequest::InitProducerId(request) => {
                self.init_producer_id(request, origin.version, ctx, &mut out)
            }
            TxnRequest::AddPartitions(request) => {
                self.add_partitions(request, origin.version, ctx, &mut out)
            }
            TxnRequest::AddOffsets { request, partition } => {
                self.add_offsets(request, partition, origin.version, ctx, &mut out)
            }
            TxnRequest::EndTxn(request) => self.end_txn(request, origin.version, ctx, &mut out),
            TxnRequest::Describe(id) => self.describe(id),
            TxnRequest::List { request, after } => self.list(request, after, ctx.now_ms),
        };
        out.reply(origin.token, reply);
        out
    }

    /// When [`on_time`](Self::on_time) has something to do, at the earliest.
    pub fn next_deadline(&mut self) -> Option<i64> {
        if self.taking_up.is_some() {
            return Some(self.last_round.loaded_ms);
        }
        match (self.timers.next_due(), self.sweep.due_ms()) {
            (Some(timer), Some(sweep)) => Some(timer.min(sweep)),
            (timer, sweep) => timer.or(sweep),
        }
    }

    /// Does some of what has fallen due; [`next_deadline`](Self::next_deadline) tells whether more
    /// has.
    pub fn on_time(&mut self, ctx: &TxnContext<'_>) -> TxnDecision {
        let mut out = TxnDecision::default();
        self.take_up(ctx.now_ms);
        for _ in 0..TIMERS_PER_CALL_MAX {
            if out.bytes >= BYTES_PER_CALL_MAX {
                return out;
            }
            match self.timers.pop_due(ctx.now_ms) {
                Some(Due::Timeout(id)) => self.time_out(&id, ctx, &mut out),
                Some(Due::Markers(id)) => self.send_unsent(&id, ctx, &mut out),
                None => break,
            }
        }
        self.expire(ctx.now_ms, &mut out);
        out
    }

    /// The settings from now on.
    pub fn set_config(&mut self, config: TxnConfig) {
        self.config = config;
    }

    /// Number of transactional ids.
    pub fn id_count(&self) -> usize {
        self.entries.len()
    }

    /// How many transactional ids are in each state, by Kafka's name for it.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.census.states()
    }

    /// When the transaction began that has been open longest, milliseconds since 1970.
    pub fn oldest_open_ms(&self) -> Option<i64> {
        self.census.open.first().map(|begun| begun.started_ms)
    }

    /// Takes a step: makes its record, and applies it.
    fn take(&mut self, id: &Name, next: Txn, ctx: &TxnContext<'_>, out: &mut TxnDecision) {
        let version = ctx.transaction_version.record_version();
        let value = Some(next.to_value(version));
        let key = TransactionLogKey { transactional_id: String::from(&**id).into() };
        out.records.push(TxnRecord { key, value, version });
        out.bytes += id.len() + next.partitions.bytes() + RECORD_BYTES;
        match next.deadline_ms() {
            Some(due_ms) => self.timers.set(Due::Timeout(id.clone()), due_ms),
            None => self.timers.cancel(&Due::Timeout(id.clone())),
        }
        self.apply(id, Some(next));
    }

    fn apply(&mut self, id: &str, txn: Option<Txn>) {
        let name = self.name(id);
        if let Some(entry) = self.entries.get(&name) {
            self.census.leave(&name, &entry.txn);
        }
        let Some(txn) = txn else {
            self.entries.remove(&name);
            return;
        };
        self.census.enter(&name, &txn);
        match self.entries.get_mut(&name) {
            Some(entry) => entry.txn = txn,
            None => {
                let sending = Sending::default();
                self.entries.insert(name, Box::new(Entry { txn, sending }));
            }
        }
    }

    fn name(&self, id: &str) -> Name {
        self.entries.get_key_value(id).map_or_else(|| Name::from(id), |(name, _)| name.clone())
    }
}
