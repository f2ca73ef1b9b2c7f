//! A transactional id's state and the steps from one state to the next, as values.
//!
//! ```text
//!             partitions                EndTxn             all markers written
//!   Empty ──────────────► Ongoing ─┬──► PrepareCommit ───► CompleteCommit ─┐
//!     ▲                      ▲     └──► PrepareAbort ────► CompleteAbort ──┤
//!     │                      │            ▲  KIP-890: an abort of nothing  │
//!     │                      │            └────────────────────────────────┤
//!     │ InitProducerId       │ partitions                                  │
//!     └──────────────────────┴─────────────────────────────────────────────┘
//! ```
//! Kafka's PrepareEpochFence is an Ongoing one that is being aborted with a new epoch; here both
//! are one step. Its Dead is the moment between a tombstone and its end; here the id is gone at
//! once. Neither is ever in the log.

use wire::messages as m;
use wire::messages::transaction_log_value::PartitionsSchema;
use wire::{ErrorCode, Text};

use super::context::TransactionVersion;
use super::partitions::Partitions;
use crate::error::CoordError;
use crate::request::Producer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty = 0,
    Ongoing = 1,
    PrepareCommit = 2,
    PrepareAbort = 3,
    CompleteCommit = 4,
    CompleteAbort = 5,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Empty,
        State::Ongoing,
        State::PrepareCommit,
        State::PrepareAbort,
        State::CompleteCommit,
        State::CompleteAbort,
    ];

    /// As Kafka's tools show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
        }
    }

    /// Whether the outcome is decided and its markers are under way.
    pub fn is_prepared(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }

    /// Whether nothing is open.
    pub fn is_at_rest(self) -> bool {
        matches!(self, State::Empty | State::CompleteCommit | State::CompleteAbort)
    }

    pub fn commits(self) -> bool {
        matches!(self, State::PrepareCommit | State::CompleteCommit)
    }
}

/// No producer id, no epoch.
pub(crate) const NO_ID: i64 = -1;
pub(crate) const NO_EPOCH: i16 = -1;

/// Clients never get the last epoch, so that there always is one to fence them with.
pub(crate) fn is_exhausted(epoch: i16) -> bool {
    epoch >= i16::MAX - 1
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Txn {
    pub producer: Producer,
    /// The producer id before the last step; the same one unless that step changed it.
    pub previous_id: i64,
    /// The producer id that takes over when the transaction is complete.
    pub next_id: i64,
    /// The epoch before, if its owner may ask again for what it has missed. Never logged.
    pub last_epoch: i16,
    pub timeout_ms: i32,
    pub state: State,
    pub partitions: Partitions,
    pub started_ms: i64,
    pub updated_ms: i64,
    /// The protocol that the last step was taken in.
    pub protocol: TransactionVersion,
}

impl Txn {
    /// A transactional id that nobody has used.
    pub fn new(producer_id: i64, timeout_ms: i32, now_ms: i64) -> Self {
        Txn {
            producer: Producer { id: producer_id, epoch: NO_EPOCH },
            previous_id: NO_ID,
            next_id: NO_ID,
            last_epoch: NO_EPOCH,
            timeout_ms,
            state: State::Empty,
            partitions: Partitions::default(),
            started_ms: -1,
            updated_ms: now_ms,
            protocol: TransactionVersion::V0,
        }
    }

    /// The same id at its next step.
    fn step(&self, state: State, now_ms: i64) -> Txn {
        let mut next = self.clone();
        next.state = state;
        next.previous_id = self.producer.id;
        next.next_id = NO_ID;
        next.updated_ms = now_ms;
        next
    }

    fn emptied(&self, timeout_ms: i32, now_ms: i64) -> Txn {
        let mut next = self.step(State::Empty, now_ms);
        next.timeout_ms = timeout_ms;
        next.partitions = Partitions::default();
        next.started_ms = -1;
        next
    }

    /// The next epoch for whoever owns the id now. `expected` is the epoch of a producer that goes
    /// on after an error (KIP-360): the current one, or the one before if it missed the answer.
    pub fn with_next_epoch(
        &self,
        expected: Option<i16>,
        timeout_ms: i32,
        now_ms: i64,
    ) -> Result<Txn, ErrorCode> {
        let current = self.producer.epoch;
        let mut next = self.emptied(timeout_ms, now_ms);
        match expected {
            Some(epoch) if current != NO_EPOCH && epoch != current => {
                // The last epoch is for fencing; see `is_exhausted`.
                if epoch != self.last_epoch || current == i16::MAX {
                    return Err(ErrorCode::ProducerFenced);
                }
            }
            _ => {
                next.producer.epoch = current.saturating_add(1);
                next.last_epoch = if expected.is_some() { current } else { NO_EPOCH };
            }
        }
        Ok(next)
    }

    /// Another producer id, since the epochs of this one are used up.
    pub fn with_producer_id(&self, id: i64, goes_on: bool, timeout_ms: i32, now_ms: i64) -> Txn {
        let mut next = self.emptied(timeout_ms, now_ms);
        next.producer = Producer { id, epoch: 0 };
        next.last_epoch = if goes_on { self.producer.epoch } else { NO_EPOCH };
        next
    }

    pub fn with_partitions(
        &self,
        added: &Partitions,
        protocol: TransactionVersion,
        now_ms: i64,
    ) -> Txn {
        let mut next = self.step(State::Ongoing, now_ms);
        if self.state.is_at_rest() {
            next.started_ms = now_ms;
        }
        next.partitions.add_all(added);
        next.protocol = protocol;
        next
    }

    /// The outcome is decided. `next_id` is set if the epochs are used up; `empty` if there was no
    /// transaction to end.
    pub fn prepared(
        &self,
        commit: bool,
        protocol: TransactionVersion,
        next_id: i64,
        empty: bool,
        now_ms: i64,
    ) -> Txn {
        let state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        let mut next = self.step(state, now_ms);
        if protocol.bumps_epochs() {
            next.producer.epoch = self.producer.epoch.saturating_add(1);
            next.last_epoch = self.producer.epoch;
        }
        if empty {
            next.started_ms = now_ms;
        }
        next.next_id = next_id;
        next.protocol = protocol;
        next
    }

    /// The decision to abort without the owner, who is fenced by a new epoch.
    pub fn fenced(&self, protocol: TransactionVersion, next_id: i64, now_ms: i64) -> Txn {
        if protocol.bumps_epochs() {
            return self.prepared(false, protocol, next_id, false, now_ms);
        }
        let mut next = self.prepared(false, TransactionVersion::V0, NO_ID, false, now_ms);
        next.producer.epoch = self.producer.epoch.saturating_add(1);
        next.last_epoch = NO_EPOCH;
        next
    }

    /// All markers are written.
    pub fn completed(&self, now_ms: i64) -> Txn {
        let commit = self.state.commits();
        let state = if commit { State::CompleteCommit } else { State::CompleteAbort };
        let mut next = self.step(state, now_ms);
        next.producer = self.handed_on();
        next.partitions = Partitions::default();
        next
    }

    /// The producer that goes on once the transaction is complete.
    pub fn handed_on(&self) -> Producer {
        if self.protocol.bumps_epochs() && self.next_id != NO_ID {
            return Producer { id: self.next_id, epoch: 0 };
        }
        self.producer
    }

    /// When it is aborted unless it has ended; two-phase commits wait for ever.
    pub fn deadline_ms(&self) -> Option<i64> {
        let waits = self.state == State::Ongoing && self.timeout_ms != i32::MAX;
        // Kafka wants more time to have passed, not as much.
        waits.then(|| self.started_ms.saturating_add(i64::from(self.timeout_ms)).saturating_add(1))
    }

    pub fn to_value(&self, version: i16) -> m::TransactionLogValue<'static> {
        let tags = version >= 1;
        let partitions = self.partitions.topics().map(|(topic, parts)| PartitionsSchema {
            topic: Text::from(String::from(topic)),
            partition_ids: parts.to_vec().into(),
        });
        m::TransactionLogValue {
            producer_id: self.producer.id,
            previous_producer_id: if tags { self.previous_id } else { NO_ID },
            next_producer_id: if tags { self.next_id } else { NO_ID },
            producer_epoch: self.producer.epoch,
            next_producer_epoch: NO_EPOCH,
            transaction_timeout_ms: self.timeout_ms,
            transaction_status: self.state as i8,
            transaction_partitions: (self.state != State::Empty).then(|| partitions.collect()),
            transaction_last_update_timestamp_ms: self.updated_ms,
            transaction_start_timestamp_ms: self.started_ms,
            client_transaction_version: if tags { self.protocol.0 } else { 0 },
        }
    }

    pub fn from_value(id: &str, value: &m::TransactionLogValue<'_>) -> Result<Self, CoordError> {
        let status = value.transaction_status;
        let state = State::ALL.into_iter().find(|state| *state as i8 == status);
        let state = state.ok_or_else(|| CoordError::Status { id: id.into(), status })?;
        let topics: Vec<_> = value.transaction_partitions.iter().flatten().collect();
        let partitions = Partitions::from_iter(topics.iter().flat_map(|topic| {
            topic.partition_ids.iter().map(|partition| (&*topic.topic, partition))
        }));
        Ok(Txn {
            producer: Producer { id: value.producer_id, epoch: value.producer_epoch },
            previous_id: value.previous_producer_id,
            next_id: value.next_producer_id,
            last_epoch: NO_EPOCH,
            timeout_ms: value.transaction_timeout_ms,
            state,
            partitions,
            started_ms: value.transaction_start_timestamp_ms,
            updated_ms: value.transaction_last_update_timestamp_ms,
            protocol: TransactionVersion(value.client_transaction_version),
        })
    }
}
