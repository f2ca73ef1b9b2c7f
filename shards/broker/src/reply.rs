//! What a request turns into: bytes to send now, an answer that waits, nothing, or a closed door.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::api::produce::ProducePending;

/// The finished answer to one request.
pub(crate) enum Reply {
    /// An acks=0 produce: not a byte goes back.
    Nothing,
    /// The pieces of the response in order: encoded parts, of so many bytes, and untouched record bytes.
    Send { pieces: SmallVec<[Bytes; 4]>, encoded: usize },
}

impl Reply {
    /// A response that is encoded as a whole.
    pub fn encoded(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let encoded = bytes.len();
        Reply::Send { pieces: smallvec![bytes], encoded }
    }
}

/// Why the connection has to end (the protocol has no answer to give).
#[derive(Debug, thiserror::Error)]
pub(crate) enum Close {
    #[error("malformed request: {0}")]
    Malformed(#[from] wire::DecodeError),
    #[error("unsupported api key {api_key} version {api_version}")]
    Unsupported { api_key: i16, api_version: i16 },
    #[error("request names {items} items, at most {most} are answered")]
    TooManyItems { items: usize, most: usize },
    #[error("the broker is shutting down")]
    Stopping,
    #[error("acks=0 produce failed: {0:?}")]
    UnacknowledgedFailure(wire::ErrorCode),
    #[error("response could not be encoded: {0}")]
    Unencodable(#[from] wire::EncodeError),
}

pub(crate) type Handled = Result<Reply, Close>;

/// A request that was taken in; its place in the reply order is held by this value.
pub(crate) enum Pending {
    Ready(Handled),
    /// Appended already; the acknowledgement waits for the device.
    Produce(Box<ProducePending>),
    /// Runs when every earlier reply has left (requests of one connection take effect in order).
    Later(Pin<Box<dyn Future<Output = Handled>>>),
}

impl Pending {
    pub async fn finish(self) -> Handled {
        match self {
            Pending::Ready(handled) => handled,
            Pending::Produce(pending) => pending.finish().await,
            Pending::Later(future) => future.await,
        }
    }
}
