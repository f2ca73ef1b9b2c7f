//! What clients did and were told, in the order in which it happened, and what the broker has in
//! the end.
//!
//! Pure data. The place of an event in the history is its time: a request that was sent for the
//! first time behind an answer was sent after it.

use std::fmt;

/// One life of a client. Several have the same transactional id, one after the other or at once.
pub type Instance = usize;
/// A transaction as its client counts them, over all instances.
pub type TxnNumber = usize;
pub type ProducerEpoch = (i64, i16);

/// The value of a record says whose it is; no two records have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    pub txn: TxnNumber,
    /// Number in the transaction.
    pub record: u32,
    /// What was consumed to produce it, if anything was.
    pub input: Option<i64>,
}

impl Label {
    pub fn to_bytes(self) -> Vec<u8> {
        format!("{}/{}/{}", self.txn, self.record, self.input.unwrap_or(-1)).into_bytes()
    }

    pub fn read(bytes: &[u8]) -> Option<Label> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split('/');
        let txn = parts.next()?.parse().ok()?;
        let record = parts.next()?.parse().ok()?;
        let input: i64 = parts.next()?.parse().ok()?;
        Some(Label { txn, record, input: (input >= 0).then_some(input) })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of transaction {}", self.record, self.txn)
    }
}

/// What a client asks for within a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Write {
        partition: usize,
        label: Label,
    },
    /// The old protocol's AddPartitionsToTxn, of one partition.
    Add {
        partition: usize,
    },
    /// The old protocol's AddOffsetsToTxn.
    AddGroup,
    /// The position of the group: all inputs below are consumed.
    Offsets {
        upto: i64,
    },
    End {
        commit: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// InitProducerId was answered: whoever had the id before is fenced.
    Took { id: &'static str, instance: Instance },
    /// The same for an instance that had the id and goes on with another epoch (KIP-360); `sent`:
    /// when it asked for the first time.
    WentOn { id: &'static str, instance: Instance, sent: usize },
    Began {
        txn: TxnNumber,
        id: &'static str,
        instance: Instance,
        producer: ProducerEpoch,
        /// Its ending brings the next epoch (KIP-890).
        bumps: bool,
    },
    /// Also of a repetition.
    Sent { txn: TxnNumber, what: What },
    /// Offset of a write (0 for what has none), or the error. No answer is no event.
    Told { txn: TxnNumber, what: What, answer: Result<i64, i16> },
    /// A read_committed reader came to this record.
    Saw { partition: usize, offset: i64, label: Label },
    /// A client was told the stable position of the group; `known`: the last that anybody had been
    /// told when it asked.
    Position { at: i64, known: i64 },
}

/// An entry of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub offset: i64,
    pub producer: ProducerEpoch,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data(Label),
    Marker { commit: bool },
}

/// A partition when all is over.
#[derive(Clone, Debug, Default)]
pub struct PartitionEnd {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// As read with read_uncommitted.
    pub log: Vec<Entry>,
    /// As a read_committed consumer sees it.
    pub committed: Vec<(i64, Label)>,
    /// Producers with an open transaction, by DescribeProducers.
    pub open: Vec<i64>,
    /// How far the reader that ran beside has come.
    pub read_up_to: i64,
}

/// What the broker has when all clients are silent and the last timeout has passed.
#[derive(Clone, Debug, Default)]
pub struct End {
    pub partitions: Vec<PartitionEnd>,
    /// The group's stable position; 0 if it has none.
    pub position: i64,
    /// Partitions of the groups' topic with something open.
    pub groups_open: Vec<i64>,
    /// Transactional ids and their states.
    pub states: Vec<(String, String)>,
}

/// The anomalies that are looked for, by the names that published analyses gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// A read_committed reader saw what was aborted, or never committed.
    AbortedRead,
    /// An acknowledged record is gone, or a committed one is hidden.
    LostWrite,
    /// A part of a transaction is committed, another is not.
    Torn,
    /// A producer that was fenced changed something all the same.
    OutlivedFencing,
    /// A request that was repeated took effect twice, or got another answer.
    Duplicate,
    /// The commit was acknowledged, and the transaction is aborted.
    CommitLost,
    /// A transaction stays open: readers wait for good.
    StuckLso,
    /// A partition became part of a transaction that its producer never asked for, or could not ask
    /// for any more.
    ZombieAdd,
    /// The position of the group and the output of its transactions disagree.
    OffsetsApart,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub anomaly: Anomaly,
    pub text: String,
}
