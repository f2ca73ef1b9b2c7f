//! Record batches (format v2): views over received bytes, records inside them, building, codecs.
//!
//! Lives on every core; pure. A batch is parsed where it lies and stored as it came: nothing here
//! copies a batch unless the topic asks for other bytes (recompression, LogAppendTime). It never
//! assigns offsets (the log does) and never knows topics, producers' histories or clocks.
//!
//! - [`header`]: the 61 bytes in front of every batch, and the 12 of them a leader stamps
//! - [`batch`]: one batch as a view, and walking batches laid back to back
//! - [`record`]: the records of a batch, decompressed within a limit, iterated lazily
//! - [`varint`]: zig-zag variable-length integers
//! - [`walk`]: looking at all records without keeping any
//! - [`validate`]: what a leader checks before it appends
//! - [`builder`]: making batches (clients, recompression, control batches)
//! - [`control`]: transaction markers and their like
//! - [`codec`]: gzip, snappy, LZ4 and zstd, each bounded and streaming

pub mod batch;
pub mod builder;
pub mod codec;
pub mod control;
mod error;
pub mod header;
pub mod record;
pub mod validate;
pub mod varint;
pub mod walk;

pub use batch::{BatchView, batches};
pub use builder::BatchBuilder;
pub use codec::{Codec, compress, decompress};
pub use control::ControlType;
pub use error::BatchError;
pub use header::{Attributes, BatchHeader, TimestampType, stamp};
pub use record::{Header, Headers, Record, RecordIter};
