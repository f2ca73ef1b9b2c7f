//! The Kafka protocol: framing, generated codec, record batches, compression, error codes.
//!
//! Pure: no clock, socket, file, executor or random numbers. Bytes in, values out, and back.

#![forbid(unsafe_code)]

mod api;
mod codec;
pub mod errors;
pub mod frame;
pub mod hash;
pub mod messages;
pub mod records;

pub use api::ApiKey;
pub use codec::{
    Array, Blob, DecodeError, EncodeError, Field, IntoOwned, Iter, Message, Nullable, Output,
    Piece, Reader, Records, Show, Shown, Splice, Tags, Text, Uuid, Version, View, Writer,
};
pub use errors::ErrorCode;
