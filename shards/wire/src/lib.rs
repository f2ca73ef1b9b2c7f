//! The Kafka protocol: framing, generated codec, record batches, compression, error codes.

pub mod errors;
pub mod hash;
pub mod records;

pub use errors::ErrorCode;
