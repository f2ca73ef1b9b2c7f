//! What time ends: transactions open for longer than they said, and ids that nobody uses.

use wire::messages::TransactionLogKey;

use super::context::TxnContext;
use super::record::TxnRecord;
use super::request::TxnDecision;
use super::state::State;
use super::{BYTES_PER_CALL_MAX, Due, RECORD_BYTES, TxnCoordinator};
use crate::Name;

/// Ids looked at in one step of a sweep; what its tombstones may take is bounded as well.
const SWEEP_IDS_MAX: usize = 1_000;
/// How long an abort waits that has no producer id to go on with.
const PRODUCER_ID_WAIT_MS: i64 = 1_000;

impl TxnCoordinator {
    pub(super) fn time_out(&mut self, id: &Name, ctx: &TxnContext<'_>, out: &mut TxnDecision) {
        let Some(entry) = self.entries.get(id) else { return };
        if entry.txn.state == State::Ongoing && self.abort_and_fence(id, ctx, out).is_err() {
            out.lacks_producer_id = true;
            let due_ms = ctx.now_ms.saturating_add(PRODUCER_ID_WAIT_MS);
            self.timers.set(Due::Timeout(id.clone()), due_ms);
        }
    }

    /// Goes on with the search for ids that nobody has used for long, if it is time.
    pub(super) fn expire(&mut self, now_ms: i64, out: &mut TxnDecision) {
        if !self.sweep.is_due(now_ms) {
            return;
        }
        if self.sweep.left.is_empty() {
            self.sweep.left = self.entries.keys().cloned().collect();
        }
        for _ in 0..SWEEP_IDS_MAX {
            if out.bytes >= BYTES_PER_CALL_MAX {
                break;
            }
            let Some(id) = self.sweep.left.pop() else { break };
            self.expire_id(&id, now_ms, out);
        }
        if self.sweep.left.is_empty() {
            self.sweep.start(now_ms.saturating_add(self.config.expiry_check_interval_ms));
        }
    }

    fn expire_id(&mut self, id: &Name, now_ms: i64, out: &mut TxnDecision) {
        let Some(entry) = self.entries.get(id) else { return };
        let kept_since_ms = now_ms.saturating_sub(self.config.id_expiration_ms);
        if !entry.txn.state.is_at_rest() || entry.txn.updated_ms > kept_since_ms {
            return;
        }
        self.apply(id, None);
        let key = TransactionLogKey { transactional_id: String::from(&**id).into() };
        out.records.push(TxnRecord { key, value: None, version: 0 });
        out.bytes += id.len() + RECORD_BYTES;
    }
}
