//! Snappy as Java writes it (a xerial stream), and raw snappy as some C clients do.
//!
//! ```text
//! 82 'SNAPPY' 00 | i32 version 1 | i32 compatible version 1 | { i32 length | snappy block } ...
//! ```
//!
//! A block without that magic is one raw snappy block. A stream may be followed by another one,
//! header included. Like Java's reader, only a version below 1 is refused.

use super::{BlockSource, Fault, reserve};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const STREAM_HEADER_BYTES: usize = 16;
const VERSION: i32 = 1;
/// Uncompressed bytes per block, as Java writes them.
const BLOCK_BYTES: usize = 32 * 1024;
/// Most bytes that come out of one: a 3-byte copy yields 64.
const MAX_EXPANSION: usize = 22;

pub(super) fn compress(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(STREAM_HEADER_BYTES + data.len() / 2);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(BLOCK_BYTES.min(data.len()))];
    for chunk in data.chunks(BLOCK_BYTES) {
        let written = encoder.compress(chunk, &mut block).map_err(|e| e.to_string())?;
        let written = block.get(..written).unwrap_or_default();
        out.extend_from_slice(&(written.len() as u32).to_be_bytes());
        out.extend_from_slice(written);
    }
    Ok(out)
}

/// The blocks of either form.
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    raw: bool,
    decoder: snap::raw::Decoder,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(data: &'a [u8]) -> Result<Self, Fault> {
        let raw = !data.starts_with(&MAGIC);
        let mut blocks = Blocks { rest: data, raw, decoder: snap::raw::Decoder::new() };
        if !raw {
            blocks.stream_header()?;
        }
        Ok(blocks)
    }

    fn stream_header(&mut self) -> Result<(), Fault> {
        let (header, rest) = self
            .rest
            .split_first_chunk::<STREAM_HEADER_BYTES>()
            .ok_or_else(|| Fault::bad("stream header is cut off"))?;
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
        if i32::from_be_bytes([a, b, c, d]) < VERSION {
            return Err(Fault::bad("stream is of an incompatible version"));
        }
        self.rest = rest;
        Ok(())
    }

    /// The next compressed block.
    fn compressed(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        if self.raw {
            self.raw = false;
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        while self.rest.starts_with(&MAGIC) {
            self.stream_header()?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let cut_off = || Fault::bad("block is cut off");
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| Fault::bad("block length is negative"))?;
        let (block, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(Some(block))
    }
}

impl BlockSource for Blocks<'_> {
    fn next_block(&mut self, out: &mut Vec<u8>, room: usize) -> Result<bool, Fault> {
        let Some(block) = self.compressed()? else {
            return Ok(false);
        };
        let size = snap::raw::decompress_len(block).map_err(Fault::bad)?;
        if size > block.len().saturating_mul(MAX_EXPANSION) {
            return Err(Fault::bad("declared size is more than the block can hold"));
        }
        if size > room {
            return Err(Fault::TooLarge);
        }
        let start = out.len();
        reserve(out, size, room);
        out.resize(start + size, 0);
        let written = self
            .decoder
            .decompress(block, out.get_mut(start..).unwrap_or_default())
            .map_err(Fault::bad)?;
        out.truncate(start + written);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Codec, compress, decompress};
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn reads_both_forms() {
        let data = b"raw and xerial ".repeat(10_000);
        let raw = snap::raw::Encoder::new().compress_vec(&data).unwrap();
        assert_eq!(decompress(Codec::Snappy, &raw, LIMIT).unwrap(), data);
        let stream = compress(Codec::Snappy, None, &data).unwrap();
        assert_eq!(stream[..8], MAGIC);
        assert_eq!(decompress(Codec::Snappy, &stream, LIMIT).unwrap(), data);
        let twice = [stream.clone(), stream].concat();
        assert_eq!(decompress(Codec::Snappy, &twice, LIMIT).unwrap(), data.repeat(2));
    }

    #[test]
    fn a_lying_size_is_refused_before_allocating() {
        // Varint 0xffff_fff: 256 MiB out of one literal byte.
        let lie = [0xff, 0xff, 0xff, 0x7f, 0x00, b'x'];
        let error = decompress(Codec::Snappy, &lie, usize::MAX).unwrap_err();
        assert!(error.to_string().contains("more than the block can hold"), "{error}");
    }

    #[test]
    fn streams_of_no_version_are_refused() {
        let mut stream = compress(Codec::Snappy, None, b"x").unwrap();
        stream[11] = 0;
        assert!(decompress(Codec::Snappy, &stream, LIMIT).is_err());
        assert!(decompress(Codec::Snappy, &stream[..12], LIMIT).is_err());
    }
}
