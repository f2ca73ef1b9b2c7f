//! Transactions on this shard: a coordinator (`coord::txn`) for each partition of
//! `__transaction_state` that is led and open here (`coordinators`), and the leaders' side of it.
//!
//! Owns: the way of a request to the coordinator of its transactional id, what coordinators and
//! leaders on different cores ask of each other (`between`), the markers that end a transaction at
//! its partitions, and the leader's question whether a batch belongs to a transaction (`verify`).
//!
//! ```text
//! client ──► coordinator ──► decision appended, acknowledged ──► answer
//!                                          └─► markers ──► leaders of the partitions (`markers`)
//!                                                              └──► markers_written ──► completed
//! client ──► leader of a partition ── is it part of the transaction? ──► coordinator
//! ```

mod between;
mod machine;
mod metrics;
mod verify;

use std::cell::Ref;
use std::rc::Rc;

use coord::txn::{Cluster, Origin, TransactionVersion, TxnConfig, TxnContext};
use coord::txn::{TxnCoordinator, TxnReply, TxnRequest};
use meta::Image;
use meta::controller::{TRANSACTION_STATE_TOPIC, TRANSACTION_VERSION};
use wire::ErrorCode;
use wire::messages::{ListTransactionsRequest, ListTransactionsResponse};

pub use between::{Asked, ShardAsk};
pub(crate) use between::{Asks, serve};
pub(crate) use metrics::samples;
pub(crate) use verify::{Question, verify};

use metrics::{Cause, Counted};

use crate::coordinators::{self, Answer, HandedIn, Seat, Seats};
use crate::shard::Shard;

/// What a record takes beside the partitions of its transaction, at most.
const RECORD_BYTES: usize = 4 << 10;

/// The transactions of one shard.
#[derive(Default)]
pub(crate) struct Transactions {
    seats: Seats<TxnCoordinator>,
    /// Questions to other shards that wait for an answer.
    pub asks: Asks,
    counted: Counted,
}

/// Gives each open partition of `__transaction_state` its coordinator, for as long as the shard
/// runs.
pub(crate) fn start(shard: &Rc<Shard>) {
    coordinators::start::<TxnCoordinator>(shard);
}

/// The broker's settings have changed.
pub(crate) fn reconfigure(shard: &Shard) {
    for seat in shard.transactions.seats.all() {
        seat.set(|machine| machine.set_config(config(shard)));
    }
}

fn config(shard: &Shard) -> TxnConfig {
    let most = shard.topic_config(TRANSACTION_STATE_TOPIC).max_message_bytes as usize;
    let transactions = &shard.config().transactions;
    TxnConfig {
        timeout_max_ms: transactions.timeout_max_ms,
        id_expiration_ms: transactions.id_expiration_ms,
        expiry_check_interval_ms: transactions.expiry_check_interval_ms,
        partitions_bytes_max: most.saturating_sub(RECORD_BYTES),
    }
}

/// The level of the feature that is finalised.
fn version(shard: &Shard) -> TransactionVersion {
    let level = shard.image().features().get(TRANSACTION_VERSION.0).copied();
    TransactionVersion(level.unwrap_or(0))
}

/// The image as it stands; dropped before anything is awaited.
struct ImageCluster<'a> {
    shard: &'a Shard,
    image: Ref<'a, Image>,
}

impl<'a> ImageCluster<'a> {
    fn new(shard: &'a Shard) -> Self {
        ImageCluster { shard, image: shard.image() }
    }
}

impl Cluster for ImageCluster<'_> {
    fn has_partition(&self, topic: &str, partition: i32) -> bool {
        self.image.partition(topic, partition).is_some()
    }

    fn fresh_producer_id(&self) -> Option<i64> {
        self.shard.producer_id_at_hand()
    }
}

/// Calls `decide` with what holds now.
fn with_context<T>(shard: &Shard, now_ms: i64, decide: impl FnOnce(&TxnContext<'_>) -> T) -> T {
    let (transaction_version, cluster) = (version(shard), ImageCluster::new(shard));
    decide(&TxnContext { now_ms, transaction_version, cluster: &cluster })
}

/// Asks the coordinator of the transactional id, and waits for its answer.
pub(crate) async fn ask(shard: &Rc<Shard>, version: i16, request: TxnRequest<'_, '_>) -> TxnReply {
    let id = request.transactional_id().unwrap_or_default();
    loop {
        let seat = match shard.transactions.seats.of_key(shard, id) {
            Ok(seat) => seat,
            Err(code) => return request.refused(code),
        };
        if !matches!(request, TxnRequest::Describe(_)) && seat.is_out_of_space(shard) {
            return request.refused(ErrorCode::CoordinatorNotAvailable);
        }
        match hand_in(shard, &seat, version, request) {
            HandedIn::Now(answer) => return answer.unwrap_or_else(|code| request.refused(code)),
            HandedIn::Later(receiver) => {
                // A coordinator that goes answers first; one that is simply dropped has stopped.
                let answer: Answer<TxnReply> =
                    receiver.await.unwrap_or(Err(ErrorCode::NotCoordinator));
                return answer.unwrap_or_else(|code| request.refused(code));
            }
            HandedIn::Full(room) => room.await,
        }
    }
}

/// The transactions of every coordinator of this shard, in pieces: others run in between. One that
/// goes elsewhere meanwhile is left out.
///
/// # Errors
/// `COORDINATOR_LOAD_IN_PROGRESS` while a coordinator is still to come, or has not read its log.
pub(crate) async fn list(
    shard: &Rc<Shard>,
    version: i16,
    request: &ListTransactionsRequest<'_>,
) -> Result<Vec<ListTransactionsResponse<'static>>, ErrorCode> {
    let seats = &shard.transactions.seats;
    if seats.some_are_coming(shard) {
        return Err(ErrorCode::CoordinatorLoadInProgress);
    }
    let mut pieces = Vec::new();
    for seat in seats.all() {
        let mut after = None;
        loop {
            let asked = TxnRequest::List { request, after: after.as_deref() };
            let answer = coordinators::ask_one(&seat, |seat| hand_in(shard, seat, version, asked));
            let (list, goes_on_after) = match answer.await {
                Ok(TxnReply::List { list, goes_on_after }) => (list, goes_on_after),
                Ok(_) => unreachable!("a coordinator answers a request with its own kind"),
                Err(ErrorCode::NotCoordinator) => break,
                Err(code) => return Err(code),
            };
            pieces.push(list);
            reactor::yield_if_due().await;
            match goes_on_after {
                Some(last) => after = Some(last),
                None => break,
            }
        }
    }
    Ok(pieces)
}

fn hand_in(
    shard: &Shard,
    seat: &Seat<TxnCoordinator>,
    version: i16,
    request: TxnRequest<'_, '_>,
) -> HandedIn<TxnReply> {
    seat.hand_in(shard, |machine, token, now_ms| {
        let origin = Origin { token, version };
        let decision =
            with_context(shard, now_ms, |context| machine.handle(request, origin, context));
        shard.transactions.counted.note(&decision, Cause::Request);
        decision.into()
    })
}
