//! The rig's one error type. Every message names the thing that failed.

use std::time::Duration;

use wire::ErrorCode;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[cfg(feature = "compare")]
    #[error(transparent)]
    Harness(#[from] corelane_tests::Error),
    #[error("the broker's answer does not decode: {0}")]
    Decode(#[from] wire::DecodeError),
    #[error("a request does not encode: {0}")]
    Encode(#[from] wire::EncodeError),
    #[error("a batch does not build or read: {0}")]
    Batch(String),
    #[error("{what}: the broker answers {code:?}")]
    Refused { what: String, code: ErrorCode },
    #[error("{what}: the broker answers with unknown code {code}")]
    UnknownCode { what: String, code: i16 },
    #[error("the broker closed the connection")]
    Closed,
    #[error("the broker answers request {answered} where {expected} was due")]
    OutOfTurn { expected: i32, answered: i32 },
    #[error("{what} within {within:?}; last: {last}")]
    TooLate { what: String, within: Duration, last: String },
    #[error("{requests} requests are unanswered: the broker does not keep up with the rate")]
    FallsBehind { requests: u64 },
    #[error(
        "partition {partition} ends at offset {end} where {due} was due: the broker lost records"
    )]
    Lost { partition: i32, end: i64, due: i64 },
    #[error(
        "partition {partition} was given to member {} while member {} had it", owners[1], owners[0]
    )]
    TwoOwners { partition: i32, owners: [usize; 2] },
    #[error("group {group} has {committed:?} committed where {due} was: the broker lost a commit")]
    LostCommit { group: String, committed: Option<i64>, due: i64 },
    #[error(
        "the batch of producer {producer} at offset {first} was taken again, as {again}: the broker forgot it"
    )]
    Forgotten { producer: i64, first: i64, again: i64 },
    #[cfg(feature = "compare")]
    #[error("NATS says {0}")]
    Peer(String),
    #[error("{0} has no leader yet")]
    NoLeader(String),
    #[error("{0} does not read as expected")]
    Unreadable(String),
    #[error("{0}")]
    Usage(String),
}

impl Error {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// An error code of an answer, as a result.
    pub fn check(what: impl FnOnce() -> String, code: i16) -> Result<()> {
        match ErrorCode::from_code(code) {
            Some(ErrorCode::None) => Ok(()),
            Some(code) => Err(Self::Refused { what: what(), code }),
            None => Err(Self::UnknownCode { what: what(), code }),
        }
    }
}
