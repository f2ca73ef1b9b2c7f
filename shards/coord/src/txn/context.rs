//! What a transaction coordinator knows beside the request itself: settings, the time, the cluster.

use crate::context::Token;

/// Times in milliseconds, under Kafka's names and with Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnConfig {
    /// `transaction.max.timeout.ms`
    pub timeout_max_ms: i32,
    /// `transactional.id.expiration.ms`
    pub id_expiration_ms: i64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`
    pub expiry_check_interval_ms: i64,
    /// Most bytes of a transaction's id and partitions in a record: what the partition's
    /// `max.message.bytes` leaves room for.
    pub partitions_bytes_max: usize,
}

impl Default for TxnConfig {
    fn default() -> Self {
        TxnConfig {
            timeout_max_ms: 900_000,
            id_expiration_ms: 604_800_000,
            expiry_check_interval_ms: 3_600_000,
            partitions_bytes_max: 900_000,
        }
    }
}

/// The cluster as this node knows it.
pub trait Cluster {
    /// Whether the partition exists. A partition that does not is left out of a transaction's end
    /// for good, so "no" must be certain: the image of the cluster is complete.
    fn has_partition(&self, topic: &str, partition: i32) -> bool;
    /// A producer id that nobody ever had; none while no block of them is at hand.
    fn fresh_producer_id(&self) -> Option<i64>;
}

/// A level of the feature `transaction.version`, or the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionVersion(pub i16);

impl TransactionVersion {
    /// The first protocol, and the record format from before tagged fields.
    pub const V0: Self = TransactionVersion(0);
    /// The first protocol, records with tagged fields.
    pub const V1: Self = TransactionVersion(1);
    /// KIP-890: a new epoch with every transaction.
    pub const V2: Self = TransactionVersion(2);

    /// The protocol of a client whose request says whether it knows KIP-890.
    pub(crate) fn spoken(knows_epoch_bumps: bool) -> Self {
        if knows_epoch_bumps { Self::V2 } else { Self::V0 }
    }

    pub(crate) fn bumps_epochs(self) -> bool {
        self >= Self::V2
    }

    pub(crate) fn record_version(self) -> i16 {
        i16::from(self >= Self::V1)
    }
}

/// What holds at the moment of a decision.
#[derive(Clone, Copy)]
pub struct TxnContext<'a> {
    /// Wall clock, milliseconds since 1970.
    pub now_ms: i64,
    /// What the cluster has finalised.
    pub transaction_version: TransactionVersion,
    pub cluster: &'a dyn Cluster,
}

/// Where an answer goes, and the version that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub token: Token,
    pub version: i16,
}
