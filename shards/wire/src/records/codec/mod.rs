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
pub fn compress(codec: Codec, _level: Option<i32>, data: &[u8]) -> Result<Vec<u8>, BatchError> {
    match codec {
        Codec::None => Ok(data.to_vec()),
        codec => Err(BatchError::Compress { codec, reason: "not supported yet".to_owned() }),
    }
}

/// Decompresses a block into at most `limit` bytes.
pub fn decompress(codec: Codec, data: &[u8], limit: usize) -> Result<Vec<u8>, BatchError> {
    match codec {
        Codec::None if data.len() <= limit => Ok(data.to_vec()),
        Codec::None => Err(BatchError::TooLarge { limit }),
        codec => Err(BatchError::Decompress { codec, reason: "not supported yet".to_owned() }),
    }
}
