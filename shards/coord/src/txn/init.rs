//! InitProducerId: the id and epoch that the owner of a transactional id writes with from now on.

use wire::ErrorCode;
use wire::messages as m;

use super::TxnCoordinator;
use super::context::TxnContext;
use super::refuse::{fenced_before, init_reply};
use super::request::{TxnDecision, TxnReply};
use super::state::{NO_EPOCH, NO_ID, State, Txn, is_exhausted};
use crate::request::Producer;

/// From this version on clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

impl TxnCoordinator {
    pub(super) fn init_producer_id(
        &mut self,
        request: &m::InitProducerIdRequest<'_>,
        version: i16,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> TxnReply {
        let result = self.initialise(request, ctx, out);
        init_reply(result.map_err(|code| fenced_before(FENCED_FROM, version, code)))
    }

    fn initialise(
        &mut self,
        request: &m::InitProducerIdRequest<'_>,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> Result<Producer, ErrorCode> {
        let expected = expected(request)?;
        let fresh_id =
            || ctx.cluster.fresh_producer_id().ok_or(ErrorCode::CoordinatorLoadInProgress);
        let Some(id) = request.transactional_id.as_deref() else {
            return Ok(Producer { id: fresh_id()?, epoch: 0 });
        };
        self.check_settings(id, request)?;
        let timeout_ms = request.transaction_timeout_ms;
        let txn = match self.entries.get(id) {
            Some(entry) => entry.txn.clone(),
            None => Txn::new(fresh_id()?, timeout_ms, ctx.now_ms),
        };
        if txn.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        if expected.is_some_and(|expected| !may_go_on(&txn, expected)) {
            return Err(ErrorCode::ProducerFenced);
        }
        let name = self.name(id);
        if txn.state == State::Ongoing {
            // Kafka aborts it whatever epoch is expected, so that a producer fenced long ago, or a
            // request delayed for long, ends a transaction that is not its own.
            if expected.is_some_and(|expected| expected.epoch != txn.producer.epoch) {
                return Err(ErrorCode::ProducerFenced);
            }
            self.abort_and_fence(&name, ctx, out)?;
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let epoch = txn.producer.epoch;
        let used_up = is_exhausted(epoch) && expected.is_none_or(|it| it.epoch == epoch);
        let next = if used_up {
            txn.with_producer_id(fresh_id()?, expected.is_some(), timeout_ms, ctx.now_ms)
        } else {
            txn.with_next_epoch(expected.map(|it| it.epoch), timeout_ms, ctx.now_ms)?
        };
        let producer = next.producer;
        self.take(&name, next, ctx, out);
        Ok(producer)
    }

    fn check_settings(
        &self,
        id: &str,
        request: &m::InitProducerIdRequest<'_>,
    ) -> Result<(), ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        if id.len() > self.config.partitions_bytes_max {
            return Err(ErrorCode::UnknownServerError);
        }
        if request.enable2_pc {
            // `transaction.two.phase.commit.enable` is off, and this is how Kafka says so.
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        if request.keep_prepared_txn {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if !(1..=self.config.timeout_max_ms).contains(&request.transaction_timeout_ms) {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        Ok(())
    }
}

/// The id and epoch of a producer that goes on after an error: both or neither.
fn expected(request: &m::InitProducerIdRequest<'_>) -> Result<Option<Producer>, ErrorCode> {
    match (request.producer_id, request.producer_epoch) {
        (NO_ID, NO_EPOCH) => Ok(None),
        (NO_ID, _) | (_, NO_EPOCH) => Err(ErrorCode::InvalidRequest),
        (id, epoch) => Ok(Some(Producer { id, epoch })),
    }
}

/// Whether the producer owns the id, as far as its producer id tells: it has the current one, or
/// the one before whose epochs were used up, or nobody has been here since the id was forgotten.
fn may_go_on(txn: &Txn, expected: Producer) -> bool {
    txn.producer.epoch == NO_EPOCH
        || expected.id == txn.producer.id
        || (expected.id == txn.previous_id && is_exhausted(expected.epoch))
}
