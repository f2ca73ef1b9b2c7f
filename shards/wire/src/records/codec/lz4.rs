//! LZ4 frames, written as Java writes them and read as strictly as Java reads them.
//!
//! ```text
//! 04 22 4D 18 | FLG | BD | [i64 content size] | header checksum
//! { u32 LE length (top bit: stored as is) | block | [u32 LE checksum] } ...
//! u32 0 | [u32 LE content checksum]
//! ```
//!
//! Blocks must be independent and there must be no dictionary: Java's consumers can read nothing
//! else, so nothing else is let in. Bytes behind the end mark are ignored.

use super::{BlockSource, Fault, reserve};

const MAGIC: u32 = 0x184d_2204;
const VERSION_BITS: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED_FLG: u8 = 0b11;
const RESERVED_BD: u8 = 0b1000_1111;
const STORED: u32 = 1 << 31;

/// Uncompressed bytes per block, as Java writes them: the smallest that frames know.
const BLOCK_BYTES: usize = 64 * 1024;
const BLOCK_SIZE_CODE: u8 = 4;
/// Most bytes that come out of one: each byte of a length adds 255.
const MAX_EXPANSION: usize = 256;

pub(super) fn compress(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(16 + data.len() / 2);
    let descriptor = [VERSION_1 | INDEPENDENT, BLOCK_SIZE_CODE << 4];
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&descriptor);
    out.push(descriptor_checksum(&descriptor));
    let bound = lz4_flex::block::get_maximum_output_size(BLOCK_BYTES.min(data.len()));
    let mut block = vec![0; bound];
    for chunk in data.chunks(BLOCK_BYTES) {
        let written =
            lz4_flex::block::compress_into(chunk, &mut block).map_err(|e| e.to_string())?;
        match block.get(..written) {
            Some(packed) if packed.len() < chunk.len() => {
                out.extend_from_slice(&(packed.len() as u32).to_le_bytes());
                out.extend_from_slice(packed);
            }
            _ => {
                out.extend_from_slice(&(chunk.len() as u32 | STORED).to_le_bytes());
                out.extend_from_slice(chunk);
            }
        }
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    Ok(out)
}

/// The blocks of one frame.
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    block_max: usize,
    block_checksum: bool,
    /// What the content checksum is kept over, if the frame has one.
    content: Option<Xxh32>,
    ended: bool,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(data: &'a [u8]) -> Result<Self, Fault> {
        let mut rest = data;
        if word(&mut rest)? != MAGIC {
            return Err(Fault::bad("not an LZ4 frame"));
        }
        let descriptor = rest;
        let (flg, bd) = match descriptor {
            [flg, bd, ..] => (*flg, *bd),
            _ => return Err(cut_off()),
        };
        if flg & VERSION_BITS != VERSION_1 || flg & RESERVED_FLG != 0 || bd & RESERVED_BD != 0 {
            return Err(Fault::bad("frame is of an unknown version"));
        }
        if flg & INDEPENDENT == 0 {
            return Err(Fault::bad("blocks that depend on each other are not supported"));
        }
        let length = if flg & CONTENT_SIZE == 0 { 2 } else { 10 };
        let (descriptor, tail) = descriptor.split_at_checked(length).ok_or_else(cut_off)?;
        let (checksum, rest) = tail.split_first().ok_or_else(cut_off)?;
        if *checksum != descriptor_checksum(descriptor) {
            return Err(Fault::bad("frame header checksum is wrong"));
        }
        let block_max = match bd >> 4 {
            code @ 4..=7 => 1 << (8 + 2 * u32::from(code)),
            _ => return Err(Fault::bad("block size is not one of the format")),
        };
        Ok(Blocks {
            rest,
            block_max,
            block_checksum: flg & BLOCK_CHECKSUM != 0,
            content: (flg & CONTENT_CHECKSUM != 0).then(Xxh32::new),
            ended: false,
        })
    }

    fn end(&mut self) -> Result<bool, Fault> {
        self.ended = true;
        match self.content.take() {
            Some(content) if word(&mut self.rest)? != content.finish() => {
                Err(Fault::bad("content checksum is wrong"))
            }
            _ => Ok(false),
        }
    }

    fn unpack(
        &self,
        block: &[u8],
        stored: bool,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Result<(), Fault> {
        let start = out.len();
        if stored {
            if block.len() > room {
                return Err(Fault::TooLarge);
            }
            reserve(out, block.len(), room);
            out.extend_from_slice(block);
            return Ok(());
        }
        let possible = block.len().saturating_mul(MAX_EXPANSION).min(self.block_max);
        let size = possible.min(room);
        reserve(out, size, room);
        out.resize(start + size, 0);
        let slot = out.get_mut(start..).unwrap_or_default();
        match lz4_flex::block::decompress_into(block, slot) {
            Ok(written) => {
                out.truncate(start + written);
                Ok(())
            }
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < possible => {
                Err(Fault::TooLarge)
            }
            Err(error) => Err(Fault::bad(error)),
        }
    }
}

impl BlockSource for Blocks<'_> {
    fn next_block(&mut self, out: &mut Vec<u8>, room: usize) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        let length = word(&mut self.rest)?;
        if length == 0 {
            return self.end();
        }
        let size = (length & !STORED) as usize;
        if size > self.block_max {
            return Err(Fault::bad("block is larger than the frame allows"));
        }
        let (block, rest) = self.rest.split_at_checked(size).ok_or_else(cut_off)?;
        self.rest = rest;
        if self.block_checksum && word(&mut self.rest)? != Xxh32::of(block) {
            return Err(Fault::bad("block checksum is wrong"));
        }
        let start = out.len();
        self.unpack(block, length & STORED != 0, out, room)?;
        if let Some(content) = &mut self.content {
            content.update(out.get(start..).unwrap_or_default());
        }
        Ok(true)
    }
}

fn cut_off() -> Fault {
    Fault::bad("frame is cut off")
}

fn word(rest: &mut &[u8]) -> Result<u32, Fault> {
    let (word, tail) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
    *rest = tail;
    Ok(u32::from_le_bytes(*word))
}

fn descriptor_checksum(descriptor: &[u8]) -> u8 {
    (Xxh32::of(descriptor) >> 8) as u8
}

const PRIME_1: u32 = 0x9e37_79b1;
const PRIME_2: u32 = 0x85eb_ca77;
const PRIME_3: u32 = 0xc2b2_ae3d;
const PRIME_4: u32 = 0x27d4_eb2f;
const PRIME_5: u32 = 0x1656_67b1;

/// xxHash32 with seed 0, fed in pieces.
struct Xxh32 {
    lanes: [u32; 4],
    pending: [u8; 16],
    total: usize,
}

impl Xxh32 {
    fn new() -> Self {
        let lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0u32.wrapping_sub(PRIME_1)];
        Xxh32 { lanes, pending: [0; 16], total: 0 }
    }

    fn of(data: &[u8]) -> u32 {
        let mut hash = Self::new();
        hash.update(data);
        hash.finish()
    }

    fn update(&mut self, mut data: &[u8]) {
        let held = self.total % 16;
        self.total += data.len();
        if held > 0 {
            let (_, gap) = self.pending.split_at_mut(held);
            let (head, tail) = data.split_at(gap.len().min(data.len()));
            gap.iter_mut().zip(head).for_each(|(slot, byte)| *slot = *byte);
            if head.len() < gap.len() {
                return;
            }
            self.stripe(&self.pending.clone());
            data = tail;
        }
        let (stripes, tail) = data.as_chunks::<16>();
        for stripe in stripes {
            self.stripe(stripe);
        }
        self.pending.iter_mut().zip(tail).for_each(|(slot, byte)| *slot = *byte);
    }

    fn stripe(&mut self, stripe: &[u8; 16]) {
        for (lane, word) in self.lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
            let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_2));
            *lane = mixed.rotate_left(13).wrapping_mul(PRIME_1);
        }
    }

    fn finish(&self) -> u32 {
        let mut hash = if self.total < 16 {
            PRIME_5
        } else {
            let turns = [1, 7, 12, 18];
            self.lanes
                .iter()
                .zip(turns)
                .fold(0u32, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)))
        };
        hash = hash.wrapping_add(self.total as u32);
        let (held, _) = self.pending.split_at(self.total % 16);
        let (words, tail) = held.as_chunks::<4>();
        for word in words {
            hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_3));
            hash = hash.rotate_left(17).wrapping_mul(PRIME_4);
        }
        for byte in tail {
            hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIME_5));
            hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        }
        hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
        hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
        hash ^ (hash >> 16)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Codec, compress, decompress};
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn xxh32_vectors() {
        assert_eq!(Xxh32::of(b""), 0x02cc_5d05);
        assert_eq!(Xxh32::of(b"a"), 0x550d_7456);
        assert_eq!(Xxh32::of(b"abc"), 0x32d1_53ff);
        assert_eq!(Xxh32::of(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
    }

    #[test]
    fn xxh32_in_pieces_is_the_same() {
        let data: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for step in [1, 3, 15, 16, 17, 100] {
            let mut hash = Xxh32::new();
            data.chunks(step).for_each(|piece| hash.update(piece));
            assert_eq!(hash.finish(), Xxh32::of(&data), "{step}");
        }
    }

    #[test]
    fn writes_the_frame_java_writes() {
        let frame = compress(Codec::Lz4, None, b"").unwrap();
        assert_eq!(frame, [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0]);
        // Too short to compress: stored, with the top bit of the length set.
        let frame = compress(Codec::Lz4, None, b"abc").unwrap();
        assert_eq!(frame[7..], [3, 0, 0, 0x80, b'a', b'b', b'c', 0, 0, 0, 0]);
    }

    /// A frame with every option that a reader must know.
    fn full_frame(data: &[u8]) -> Vec<u8> {
        let flg = VERSION_1 | INDEPENDENT | BLOCK_CHECKSUM | CONTENT_SIZE | CONTENT_CHECKSUM;
        let mut descriptor = vec![flg, 7 << 4];
        descriptor.extend_from_slice(&(data.len() as u64).to_le_bytes());
        let mut frame = MAGIC.to_le_bytes().to_vec();
        frame.extend_from_slice(&descriptor);
        frame.push(descriptor_checksum(&descriptor));
        for chunk in data.chunks(100_000) {
            let block = lz4_flex::block::compress(chunk);
            frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
            frame.extend_from_slice(&block);
            frame.extend_from_slice(&Xxh32::of(&block).to_le_bytes());
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&Xxh32::of(data).to_le_bytes());
        frame
    }

    #[test]
    fn reads_every_option_and_checks_every_checksum() {
        let data = b"checksums everywhere ".repeat(20_000);
        let good = full_frame(&data);
        assert_eq!(decompress(Codec::Lz4, &good, LIMIT).unwrap(), data);
        for (at, what) in [
            (14, "header checksum"),
            (19, ""),
            (good.len() - 1, "content checksum"),
            (good.len() - 9, "block checksum"),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let error = decompress(Codec::Lz4, &bad, LIMIT).unwrap_err().to_string();
            assert!(error.contains(what), "{at}: {error}");
        }
    }

    #[test]
    fn refuses_what_java_cannot_read() {
        for flg in [VERSION_1, INDEPENDENT, VERSION_1 | INDEPENDENT | 1] {
            let descriptor = [flg, 4 << 4];
            let mut frame = MAGIC.to_le_bytes().to_vec();
            frame.extend_from_slice(&descriptor);
            frame.push(descriptor_checksum(&descriptor));
            frame.extend_from_slice(&[0; 4]);
            assert!(decompress(Codec::Lz4, &frame, LIMIT).is_err(), "{flg:#x}");
        }
    }
}
