//! What can be wrong with a record batch.

use super::codec::Codec;
use thiserror::Error;

/// Why bytes are not a record batch, or why its records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Fewer bytes than the batch header, or than the length it declares.
    #[error("batch needs {needed} bytes but only {available} are there")]
    Truncated { needed: usize, available: usize },
    /// A declared batch length that no batch can have.
    #[error("batch length {0} is not possible")]
    Length(i32),
    /// A message format other than v2.
    #[error("message format {0} is not supported, only 2 is")]
    Magic(i8),
    /// The checksum in the header differs from that of the bytes.
    #[error("checksum of the batch is {computed:#010x} but its header says {stored:#010x}")]
    Checksum { stored: u32, computed: u32 },
    /// Attribute bits name a codec that does not exist.
    #[error("compression codec {0} does not exist")]
    UnknownCodec(u8),
    /// Record lengths, counts or integers that contradict the bytes.
    #[error("record {index} is malformed: {reason}")]
    Record { index: i32, reason: &'static str },
    /// Bytes are left after the last record.
    #[error("bytes are left over after the last of {count} records")]
    TrailingBytes { count: i32 },
    /// A record count that is negative or larger than the bytes could hold.
    #[error("record count {0} is not possible")]
    Count(i32),
    /// The decompressed records would be larger than the caller allows.
    #[error("records are larger than {limit} bytes when decompressed")]
    TooLarge { limit: usize },
    /// The compressed block cannot be read.
    #[error("{codec} block cannot be decompressed: {reason}")]
    Decompress { codec: Codec, reason: String },
    /// The codec's library refused to compress.
    #[error("cannot compress with {codec}: {reason}")]
    Compress { codec: Codec, reason: String },
    /// A batch that cannot be built from what was given.
    #[error("batch cannot be built: {0}")]
    Build(&'static str),
}
