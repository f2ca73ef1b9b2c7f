//! The four compression codecs of Kafka, each with a limit on what comes out.
//!
//! | bits | codec  | block                                                        |
//! |------|--------|--------------------------------------------------------------|
//! | 0    | none   |                                                              |
//! | 1    | gzip   | RFC 1952 members                                             |
//! | 2    | snappy | xerial stream of blocks; raw snappy is read too              |
//! | 3    | lz4    | LZ4 frame, independent blocks                                |
//! | 4    | zstd   | zstd frames                                                  |
//!
//! The decompressed size is nowhere declared in a batch, so every reader is given a limit and
//! stops there.

mod gzip;
mod lz4;
mod snappy;
mod stream;
mod zstd;

pub use stream::Decoder;

use super::BatchError;
use std::fmt;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// From the low three attribute bits.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    pub const fn bits(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Kafka's name, as in `compression.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compresses a block; `level` as in `compression.*.level`, `None` for Kafka's default.
///
/// LZ4 and snappy have one level here: what any level writes is read by every client.
pub fn compress(codec: Codec, level: Option<i32>, data: &[u8]) -> Result<Vec<u8>, BatchError> {
    let written = match codec {
        Codec::None => return Ok(data.to_vec()),
        Codec::Gzip => gzip::compress(level, data),
        Codec::Snappy => snappy::compress(data),
        Codec::Lz4 => lz4::compress(data),
        Codec::Zstd => zstd::compress(level, data),
    };
    written.map_err(|reason| BatchError::Compress { codec, reason })
}

/// Decompresses a block into at most `limit` bytes.
///
/// Allocates at most `limit` plus a few times the input, and the codec's own state; an input that
/// lies about its size costs no more.
pub fn decompress(codec: Codec, data: &[u8], limit: usize) -> Result<Vec<u8>, BatchError> {
    let read = match codec {
        Codec::None if data.len() <= limit => return Ok(data.to_vec()),
        Codec::None => Err(Fault::TooLarge),
        Codec::Gzip => gzip::decompress(data, limit),
        Codec::Snappy => snappy::Blocks::new(data)
            .and_then(|blocks| all_blocks(blocks, first_guess(data, limit), limit)),
        Codec::Lz4 => lz4::Blocks::new(data)
            .and_then(|blocks| all_blocks(blocks, first_guess(data, limit), limit)),
        Codec::Zstd => zstd::decompress(data, limit),
    };
    read.map_err(|fault| fault.of(codec, limit))
}

/// What stops a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    TooLarge,
    Bad(String),
}

impl Fault {
    fn bad(reason: impl fmt::Display) -> Self {
        Fault::Bad(reason.to_string())
    }

    fn of(self, codec: Codec, limit: usize) -> BatchError {
        match self {
            Fault::TooLarge => BatchError::TooLarge { limit },
            Fault::Bad(reason) => BatchError::Decompress { codec, reason },
        }
    }
}

/// A codec whose data comes in blocks that are decompressed whole.
trait BlockSource {
    /// Appends the next block, of at most `room` bytes, to `out`; false at the end.
    fn next_block(&mut self, out: &mut Vec<u8>, room: usize) -> Result<bool, Fault>;
}

fn all_blocks(mut blocks: impl BlockSource, out: Vec<u8>, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut out = out;
    loop {
        let room = limit - out.len();
        if !blocks.next_block(&mut out, room)? {
            return Ok(out);
        }
    }
}

/// Most outputs fit in a few times the input; a larger one costs one more allocation.
fn first_guess(data: &[u8], limit: usize) -> Vec<u8> {
    const TIMES: usize = 4;
    const LEAST_BYTES: usize = 16 * 1024;
    Vec::with_capacity(data.len().saturating_mul(TIMES).max(LEAST_BYTES).min(limit))
}

/// Makes room for `more` of the `room` bytes that may still come. An output that has outgrown its
/// first guess gets all of its room at once: doubling would hold up to three times the limit.
fn reserve(out: &mut Vec<u8>, more: usize, room: usize) {
    if out.capacity() - out.len() < more {
        out.reserve_exact(if out.is_empty() { more } else { room.max(more) });
    }
}
