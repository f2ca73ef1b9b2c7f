//! The markers of decided transactions: sent, sent again where that failed, and counted.
//!
//! A marker is out until its answer is in, so that a partition never has two of one ending under
//! way at once: before KIP-890 the second could end the transaction after.
//!
//! | a partition's answer | |
//! |---|---|
//! | NONE | written |
//! | UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_VERSION | nothing of a transaction can be there |
//! | INVALID_PRODUCER_EPOCH | the partition has seen a later epoch: nothing of this one is open |
//! | UNKNOWN_TOPIC_OR_PARTITION, and it does not exist | deleted: there is nothing to end |
//! | anything else | again, later |

use wire::ErrorCode;

use super::context::TxnContext;
use super::partitions::Partitions;
use super::request::{Marker, Round, TxnDecision};
use super::{Due, TxnCoordinator};
use crate::Name;

/// How far the markers of a prepared transaction have come.
#[derive(Debug, Default)]
pub(super) struct Sending {
    round: Round,
    /// Sent, and not answered.
    out: Partitions,
    /// To be sent.
    unsent: Partitions,
    /// How long the next failed ones wait.
    backoff_ms: i64,
}

/// Least and most time between a failed marker and the next attempt.
const BACKOFF_MIN_MS: i64 = 20;
const BACKOFF_MAX_MS: i64 = 1_000;

impl Sending {
    pub fn unsent(round: Round, partitions: Partitions) -> Self {
        let out = Partitions::default();
        Sending { round, out, unsent: partitions, backoff_ms: BACKOFF_MIN_MS }
    }

    /// Whether this coordinator has taken it up.
    pub fn is_begun(&self) -> bool {
        self.round != Round::default()
    }

    /// The partitions whose marker is not known to be written.
    pub fn left(&self) -> Partitions {
        let mut left = self.out.clone();
        left.add_all(&self.unsent);
        left
    }

    fn is_done(&self) -> bool {
        self.out.is_empty() && self.unsent.is_empty()
    }
}

impl TxnCoordinator {
    /// The transaction has just been decided: sends its markers, or completes it if it has none.
    pub(super) fn send_markers(&mut self, id: &Name, ctx: &TxnContext<'_>, out: &mut TxnDecision) {
        self.last_round.number += 1;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.sending = Sending::unsent(self.last_round, entry.txn.partitions.clone());
        }
        self.send_unsent(id, ctx, out);
    }

    /// Sends the markers that are due.
    pub(super) fn send_unsent(&mut self, id: &Name, ctx: &TxnContext<'_>, out: &mut TxnDecision) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if !entry.txn.state.is_prepared() {
            return;
        }
        let sending = &mut entry.sending;
        let mut due = std::mem::take(&mut sending.unsent);
        due.retain(|topic, partition| ctx.cluster.has_partition(topic, partition));
        if !due.is_empty() {
            sending.out.add_all(&due);
            out.bytes += due.bytes();
            out.markers.push(Marker {
                transactional_id: id.clone(),
                round: sending.round,
                coordinator_epoch: self.coordinator_epoch,
                producer: entry.txn.producer,
                commit: entry.txn.state.commits(),
                transaction_version: entry.txn.protocol.0,
                partitions: due,
            });
        }
        self.complete_if_done(id, ctx, out);
    }

    /// What became of a marker at some of its partitions. Each is answered once; an answer to a
    /// marker of another round changes nothing.
    pub fn markers_written<'r>(
        &mut self,
        transactional_id: &str,
        round: Round,
        results: impl IntoIterator<Item = (&'r str, i32, ErrorCode)>,
        ctx: &TxnContext<'_>,
    ) -> TxnDecision {
        let mut out = TxnDecision::default();
        let id = self.name(transactional_id);
        let Some(entry) = self.entries.get_mut(&id) else { return out };
        if !entry.txn.state.is_prepared() || entry.sending.round != round {
            return out;
        }
        let sending = &mut entry.sending;
        let answered: Vec<_> = results
            .into_iter()
            .filter(|(topic, partition, _)| sending.out.contains(topic, *partition))
            .collect();
        let failed = answered.iter().filter(|(topic, n, code)| !is_settled(topic, *n, *code, ctx));
        let failed = Partitions::from_iter(failed.map(|(topic, n, _)| (*topic, *n)));
        out.markers_failed = failed.iter().count();
        sending.unsent.add_all(&failed);
        let answered = Partitions::from_iter(answered.iter().map(|(topic, n, _)| (*topic, *n)));
        sending.out.retain(|topic, partition| !answered.contains(topic, partition));
        if !sending.unsent.is_empty() {
            let due_ms = ctx.now_ms.saturating_add(sending.backoff_ms);
            sending.backoff_ms = (sending.backoff_ms * 2).min(BACKOFF_MAX_MS);
            self.timers.set_if_absent(Due::Markers(id.clone()), due_ms);
        }
        self.complete_if_done(&id, ctx, &mut out);
        out
    }

    fn complete_if_done(&mut self, id: &Name, ctx: &TxnContext<'_>, out: &mut TxnDecision) {
        let Some(entry) = self.entries.get(id) else { return };
        if entry.sending.is_done() {
            let next = entry.txn.completed(ctx.now_ms);
            self.take(id, next, ctx, out);
        }
    }
}

/// Whether nothing of the transaction is left open at the partition.
fn is_settled(topic: &str, partition: i32, code: ErrorCode, ctx: &TxnContext<'_>) -> bool {
    match code {
        ErrorCode::None
        | ErrorCode::UnsupportedForMessageFormat
        | ErrorCode::UnsupportedVersion
        | ErrorCode::InvalidProducerEpoch => true,
        ErrorCode::UnknownTopicOrPartition => !ctx.cluster.has_partition(topic, partition),
        _ => false,
    }
}
