//! What goes into a transaction coordinator and what comes out.
//!
//! A decision's records are already part of the coordinator's state. The caller appends them as one
//! batch; its answers **and its markers** leave once everything appended so far is acknowledged. So
//! no marker is ever written for an outcome that could be forgotten.

use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;
use wire::messages::add_partitions_to_txn_response::AddPartitionsToTxnResult;
use wire::messages::describe_transactions_response::TransactionState;

use super::partitions::Partitions;
use super::record::TxnRecord;
use crate::Name;
use crate::context::Token;
use crate::request::Producer;

/// A request for a transactional id of this partition. Those that the protocol lets name several
/// come one by one.
#[derive(Clone, Copy, Debug)]
pub enum TxnRequest<'r, 'a> {
    InitProducerId(&'r m::InitProducerIdRequest<'a>),
    /// One transaction of the request; see [`split_add_partitions`](super::split_add_partitions).
    AddPartitions(&'r AddPartitionsToTxnTransaction<'a>),
    AddOffsets {
        request: &'r m::AddOffsetsToTxnRequest<'a>,
        /// The partition of `__consumer_offsets` that has the group.
        partition: i32,
    },
    EndTxn(&'r m::EndTxnRequest<'a>),
    Describe(&'r str),
    /// One piece of the list. A pattern of ids is not looked at: to many ids it takes time, which
    /// is the caller's to give ([`IdPattern`](super::IdPattern)).
    List {
        request: &'r m::ListTransactionsRequest<'a>,
        /// Where the piece before ended; `None` for the first one.
        after: Option<&'r str>,
    },
}

/// The answer to a request, in the shape of the version it came in.
#[derive(Clone, Debug, PartialEq)]
pub enum TxnReply {
    InitProducerId(m::InitProducerIdResponse),
    AddPartitions(AddPartitionsToTxnResult<'static>),
    AddOffsets(m::AddOffsetsToTxnResponse),
    EndTxn(m::EndTxnResponse),
    Describe(TransactionState<'static>),
    List {
        list: m::ListTransactionsResponse<'static>,
        /// If ids are left to be looked at: those after this one.
        goes_on_after: Option<Name>,
    },
}

/// One ending by one coordinator, told from all others, also those of former coordinators of the
/// same partition: an answer that comes late counts for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Round {
    pub(super) coordinator_epoch: i32,
    pub(super) loaded_ms: i64,
    pub(super) number: u64,
}

/// The outcome of a transaction, to be written to each of these partitions by its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub transactional_id: Name,
    /// For the answer.
    pub round: Round,
    pub producer: Producer,
    pub coordinator_epoch: i32,
    pub commit: bool,
    /// The protocol of the transaction, by which a leader checks the epoch (KIP-1228).
    pub transaction_version: i16,
    pub partitions: Partitions,
}

/// What to append, and what may leave once it is acknowledged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TxnDecision {
    pub records: Vec<TxnRecord<'static>>,
    pub replies: Vec<(Token, TxnReply)>,
    pub markers: Vec<Marker>,
    /// An id whose epochs are used up had to wait: see to it that [`Cluster::fresh_producer_id`]
    /// has one.
    ///
    /// [`Cluster::fresh_producer_id`]: super::Cluster::fresh_producer_id
    pub lacks_producer_id: bool,
    /// What the records and markers take, about.
    pub(super) bytes: usize,
    /// Partitions whose marker could not be written and is sent again, later.
    pub markers_failed: usize,
}

impl TxnDecision {
    pub(crate) fn reply(&mut self, token: Token, reply: TxnReply) {
        self.replies.push((token, reply));
    }

    /// Whether there is nothing to append.
    pub fn is_read_only(&self) -> bool {
        self.records.is_empty()
    }
}
