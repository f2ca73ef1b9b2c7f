//! Why a message could not be read or written.
//!
//! Names no Kafka error code: a frame that does not decode ends its connection, so none is sent.

use thiserror::Error;

/// Bytes that are not a well-formed message. Counts and lengths are as claimed by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{needed} more bytes needed, {remaining} remain")]
    Truncated { needed: usize, remaining: usize },
    #[error("variable-length integer is longer than its type allows")]
    Varint,
    #[error("length {0} is negative or over the limit of its type")]
    Length(i64),
    #[error("array of {count} elements cannot fit in the {remaining} bytes that remain")]
    Count { count: u64, remaining: usize },
    #[error("text is not UTF-8")]
    Utf8,
    #[error("null where the version does not allow it")]
    Null,
    #[error("tagged fields are not in ascending order")]
    TagOrder,
    #[error("{0} bytes left over after the value")]
    Trailing(usize),
    #[error("{message} has no version {version}")]
    Version { message: &'static str, version: i16 },
    #[error("api key {0} is not known")]
    ApiKey(i16),
    #[error("frame of {size} bytes, the limit is {limit}")]
    FrameSize { size: i32, limit: usize },
    #[error("uuid is not 22 characters of URL-safe base64")]
    Uuid,
}

/// A value that the chosen version of a message cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    #[error("{message} has no version {version}")]
    Version { message: &'static str, version: i16 },
    #[error("version {version} lacks {field}, which is set and may not be dropped")]
    Field { field: &'static str, version: i16 },
    #[error("{field} is null, which version {version} does not allow")]
    Null { field: &'static str, version: i16 },
    #[error("{0} elements or bytes are over the limit of their type")]
    Length(usize),
}
