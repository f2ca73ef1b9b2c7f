//! Decompressing piece by piece, for walks that look at records without keeping them.
//!
//! Holds one block of the codec at a time (gzip 32 KiB of window, LZ4 and snappy one block, zstd
//! its window), each within the limit or a fixed small bound.

use super::{BlockSource, Codec, Fault, gzip, lz4, snappy, zstd};
use crate::records::BatchError;

/// A bounded stream of decompressed bytes.
pub struct Decoder<'a> {
    source: Source<'a>,
    codec: Codec,
    limit: usize,
    /// Bytes that may still come out.
    room: usize,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Gzip(Box<gzip::Reader<'a>>),
    Snappy(Blockwise<Box<snappy::Blocks<'a>>>),
    Lz4(Blockwise<Box<lz4::Blocks<'a>>>),
    Zstd(Box<zstd::Reader<'a>>),
    Whole { data: Vec<u8>, position: usize },
}

impl<'a> Decoder<'a> {
    /// Over a block of this codec; more than `limit` bytes out of it are an error.
    pub fn new(codec: Codec, data: &'a [u8], limit: usize) -> Result<Self, BatchError> {
        let source = Source::new(codec, data, limit).map_err(|fault| fault.of(codec, limit))?;
        Ok(Decoder { source, codec, limit, room: limit })
    }

    /// Fills a part of `out`; 0 only at the end or if `out` is empty.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        self.step(out).map_err(|fault| fault.of(self.codec, self.limit))
    }

    fn step(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        if self.room == 0 && !out.is_empty() {
            return match self.source.read(&mut [0], 0)? {
                0 => Ok(0),
                _ => Err(Fault::TooLarge),
            };
        }
        let length = out.len().min(self.room);
        let (out, _) = out.split_at_mut(length);
        let read = self.source.read(out, self.room)?;
        self.room -= read;
        Ok(read)
    }
}

impl<'a> Source<'a> {
    fn new(codec: Codec, data: &'a [u8], limit: usize) -> Result<Self, Fault> {
        Ok(match codec {
            Codec::None => Source::Plain(data),
            Codec::Gzip => Source::Gzip(Box::new(gzip::Reader::new(data))),
            Codec::Snappy => Source::Snappy(Blockwise::new(Box::new(snappy::Blocks::new(data)?))),
            Codec::Lz4 => Source::Lz4(Blockwise::new(Box::new(lz4::Blocks::new(data)?))),
            Codec::Zstd => match zstd::Reader::new(data)? {
                Some(reader) => Source::Zstd(Box::new(reader)),
                None => Source::Whole { data: zstd::decompress(data, limit)?, position: 0 },
            },
        })
    }

    fn read(&mut self, out: &mut [u8], room: usize) -> Result<usize, Fault> {
        match self {
            Source::Plain(rest) => {
                let length = copy(rest, out);
                *rest = rest.get(length..).unwrap_or_default();
                Ok(length)
            }
            Source::Gzip(reader) => reader.read(out),
            Source::Snappy(blocks) => blocks.read(out, room),
            Source::Lz4(blocks) => blocks.read(out, room),
            Source::Zstd(reader) => reader.read(out),
            Source::Whole { data, position } => {
                let rest = data.get(*position..).unwrap_or_default();
                let length = copy(rest, out);
                *position += length;
                Ok(length)
            }
        }
    }
}

/// Serves pieces of one decompressed block at a time.
struct Blockwise<B> {
    blocks: B,
    block: Vec<u8>,
    position: usize,
}

impl<B: BlockSource> Blockwise<Box<B>> {
    fn new(blocks: Box<B>) -> Self {
        Blockwise { blocks, block: Vec::new(), position: 0 }
    }

    fn read(&mut self, out: &mut [u8], room: usize) -> Result<usize, Fault> {
        if out.is_empty() {
            return Ok(0);
        }
        // Blocks may be empty, so more than one may be needed for a byte.
        while self.position >= self.block.len() {
            self.block.clear();
            self.position = 0;
            if !self.blocks.next_block(&mut self.block, room)? {
                return Ok(0);
            }
        }
        let rest = self.block.get(self.position..).unwrap_or_default();
        let length = copy(rest, out);
        self.position += length;
        Ok(length)
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..length), to.get_mut(..length)) {
        to.copy_from_slice(from);
    }
    length
}
