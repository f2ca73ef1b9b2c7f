//! What can be wrong with the log of a coordinator, and how a request is refused.

use wire::{DecodeError, EncodeError, ErrorCode};

/// A record of `__consumer_offsets` or `__transaction_state` that cannot be read or written: a
/// damaged or foreign log.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CoordError {
    #[error("coordinator's record cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("coordinator's record cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("coordinator's record has {0} bytes after its end")]
    Trailing(usize),
    #[error("transaction {id} has a state that is never logged: {status}")]
    Status { id: String, status: i8 },
}

/// Why a request was refused. The message is for clients whose protocol carries one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: ErrorCode,
    pub message: Option<String>,
}

/// A message quotes what the client sent, which may be as long as the protocol's strings get.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push_str("...");
        }
        Refusal { code, message: Some(message) }
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Refusal { code, message: None }
    }
}
