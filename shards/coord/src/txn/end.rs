//! EndTxn, and endings without the owner: the outcome of a transaction is decided.
//!
//! With KIP-890 every ending gives the owner a new epoch, so that a request says by its epoch which
//! transaction it means. `e` is the epoch of the id, `n` any other:
//!
//! | | abort `e` | commit `e` | abort `e-1` | commit `e-1` | `n` |
//! |---|---|---|---|---|---|
//! | Ongoing | ends | ends | 90 | 90 | 90 |
//! | PrepareCommit, PrepareAbort | 51 | 51 | 51 | 51 | 51 |
//! | Empty | ends nothing | 48 | 90 | 90 | 90 |
//! | CompleteAbort | ends nothing | 48 | done | 48 | 90 |
//! | CompleteCommit | ends nothing | 48 | 48 | done | 90 |
//! | either, without KIP-890 | ends nothing | 48 | 90 | 90 | 90 |
//!
//! Before it the epoch stays, and the same request may be a late copy:
//!
//! | | abort `e` | commit `e` | `n` |
//! |---|---|---|---|
//! | Ongoing | ends | ends | 90 |
//! | PrepareCommit, PrepareAbort | 51 | 51 | 90 |
//! | Empty | 48 | 48 | 90 |
//! | CompleteAbort | done | 48 | 90 |
//! | CompleteCommit | 48 | done | 90 |

use wire::ErrorCode;
use wire::messages as m;

use super::TxnCoordinator;
use super::add::owned_by;
use super::context::{TransactionVersion, TxnContext};
use super::refuse::{end_reply, fenced_before};
use super::request::{TxnDecision, TxnReply};
use super::state::{NO_EPOCH, NO_ID, State, Txn, is_exhausted};
use crate::Name;
use crate::request::Producer;

/// From these versions on clients know PRODUCER_FENCED, and KIP-890.
const FENCED_FROM: i16 = 2;
const EPOCH_BUMPS_FROM: i16 = 5;

const NOBODY: Producer = Producer { id: NO_ID, epoch: NO_EPOCH };

/// What an EndTxn asks for, if it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It ends the transaction.
    Now,
    /// There is no transaction, and the owner was not sure of that.
    OfNothing,
    /// It has ended it before.
    Done,
}

impl TxnCoordinator {
    pub(super) fn end_txn(
        &mut self,
        request: &m::EndTxnRequest<'_>,
        version: i16,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> TxnReply {
        let protocol = TransactionVersion::spoken(version >= EPOCH_BUMPS_FROM);
        let result = self
            .end(request, protocol, ctx, out)
            .map(|producer| if protocol.bumps_epochs() { producer } else { NOBODY });
        end_reply(result.map_err(|code| fenced_before(FENCED_FROM, version, code)))
    }

    /// Ends the transaction; gives the producer that goes on.
    fn end(
        &mut self,
        request: &m::EndTxnRequest<'_>,
        protocol: TransactionVersion,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> Result<Producer, ErrorCode> {
        let (id, commit) = (&*request.transactional_id, request.committed);
        let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
        let txn = self.known(id)?;
        let ending = match protocol.bumps_epochs() {
            true => ending(txn, producer, commit)?,
            false => old_ending(txn, producer, commit)?,
        };
        if ending == Ending::Done {
            // With the last epoch nobody could be fenced any more, so nobody gets it: the owner
            // learns the outcome, and asks for another id.
            let is_last = txn.producer.epoch == i16::MAX;
            return Ok(if is_last { NOBODY } else { txn.producer });
        }
        let next_id = next_producer_id(txn, protocol, ctx)?;
        let empty = ending == Ending::OfNothing;
        let next = txn.prepared(commit, protocol, next_id, empty, ctx.now_ms);
        let goes_on = next.handed_on();
        let name = self.name(id);
        self.take(&name, next, ctx, out);
        self.send_markers(&name, ctx, out);
        Ok(goes_on)
    }

    /// Aborts an open transaction without its owner, whose epoch is worth nothing from now on.
    pub(super) fn abort_and_fence(
        &mut self,
        id: &Name,
        ctx: &TxnContext<'_>,
        out: &mut TxnDecision,
    ) -> Result<(), ErrorCode> {
        // Nobody asked, so it is the cluster's protocol that counts.
        let protocol = ctx.transaction_version;
        let Some(entry) = self.entries.get(id) else { return Ok(()) };
        let next_id = next_producer_id(&entry.txn, protocol, ctx)?;
        let next = entry.txn.fenced(protocol, next_id, ctx.now_ms);
        self.take(id, next, ctx, out);
        self.send_markers(id, ctx, out);
        Ok(())
    }
}

/// The producer id that takes over after this ending, if the epochs are used up with it.
fn next_producer_id(
    txn: &Txn,
    protocol: TransactionVersion,
    ctx: &TxnContext<'_>,
) -> Result<i64, ErrorCode> {
    if !protocol.bumps_epochs() || !is_exhausted(txn.producer.epoch) {
        return Ok(NO_ID);
    }
    ctx.cluster.fresh_producer_id().ok_or(ErrorCode::CoordinatorLoadInProgress)
}

fn ending(txn: &Txn, producer: Producer, commit: bool) -> Result<Ending, ErrorCode> {
    // Before the epoch is looked at: the producer may already have the one that comes next.
    if txn.state.is_prepared() {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    let epoch = i32::from(txn.producer.epoch);
    // The ending that used up the epochs gave the owner another id.
    let over_the_end =
        producer.id == txn.previous_id && producer.epoch == i16::MAX - 1 && txn.producer.epoch == 0;
    // Only an ending that brought the epoch tells that it was this producer's. One of the old
    // protocol may be another instance's, which took over with that epoch.
    let bumped = txn.protocol.bumps_epochs() && i32::from(producer.epoch) + 1 == epoch;
    let again = over_the_end || bumped;
    if txn.producer.id != producer.id && !over_the_end {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let is_current = producer.epoch == txn.producer.epoch;
    let may_repeat = matches!(txn.state, State::CompleteCommit | State::CompleteAbort);
    if !(is_current || may_repeat && again) {
        return Err(ErrorCode::ProducerFenced);
    }
    match txn.state {
        State::Ongoing => Ok(Ending::Now),
        _ if again && commit == txn.state.commits() && may_repeat => Ok(Ending::Done),
        _ if again || commit => Err(ErrorCode::InvalidTxnState),
        _ => Ok(Ending::OfNothing),
    }
}

fn old_ending(txn: &Txn, producer: Producer, commit: bool) -> Result<Ending, ErrorCode> {
    owned_by(txn, producer)?;
    match txn.state {
        State::Ongoing => Ok(Ending::Now),
        State::PrepareCommit | State::PrepareAbort => Err(ErrorCode::ConcurrentTransactions),
        State::CompleteCommit if commit => Ok(Ending::Done),
        State::CompleteAbort if !commit => Ok(Ending::Done),
        State::Empty | State::CompleteCommit | State::CompleteAbort => {
            Err(ErrorCode::InvalidTxnState)
        }
    }
}
