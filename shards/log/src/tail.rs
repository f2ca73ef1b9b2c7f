//! The newest bytes of one segment, in memory.
//!
//! Owns: chunks of aligned memory that lie over consecutive positions of the segment file, and the
//! look at batch headers inside them. A batch is copied in once; writes to the device and answers
//! to readers share that memory. It never reads or writes a file and never decides what to evict.
//!
//! ```text
//! file     0 ........ evicted ........ |  chunk  |     chunk     | chunk .. |
//!                                      ^ cached_from                   ^ end
//! ```
//! A chunk starts at a multiple of the block, so its memory can be written directly. Without any
//! chunk, `seed` keeps the bytes of the last partial block, which the next write has to repeat.

use std::collections::VecDeque;

use reactor::{ALIGN, AlignedBuf, Chunk, ChunkSlice, WriteBuf};
use smallvec::SmallVec;
use wire::records::BatchHeader;
use wire::records::header::HEADER_BYTES;

use crate::budget::Charge;

pub(crate) const BLOCK: u32 = ALIGN as u32;

pub(crate) fn block_floor(position: u32) -> u32 {
    position - position % BLOCK
}

pub(crate) fn block_ceiling(position: u32) -> u32 {
    position.next_multiple_of(BLOCK)
}

struct Piece {
    /// Position of the chunk's first byte; a multiple of [`BLOCK`].
    start: u32,
    chunk: Chunk,
    charge: Charge,
}

impl Piece {
    fn end(&self) -> u32 {
        self.start + self.chunk.len() as u32
    }
}

#[derive(Default)]
pub(crate) struct Tail {
    pieces: VecDeque<Piece>,
    seed: Vec<u8>,
    end: u32,
    /// A position in the cache where a batch is known to start.
    anchor: Option<u32>,
}

impl Tail {
    /// The tail of a file that ends at `end` and whose last partial block holds `seed`.
    pub(crate) fn after(end: u32, seed: Vec<u8>) -> Self {
        assert_eq!(seed.len() as u32, end - block_floor(end));
        Tail { pieces: VecDeque::new(), seed, end, anchor: None }
    }

    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Positions from here on are in memory.
    pub(crate) fn cached_from(&self) -> u32 {
        self.pieces.front().map_or(self.end, |piece| piece.start)
    }

    pub(crate) fn anchor(&self) -> Option<u32> {
        self.anchor
    }

    /// Bytes that fit before another chunk is needed.
    pub(crate) fn room(&self) -> usize {
        self.pieces.back().map_or(0, |piece| piece.chunk.remaining())
    }

    /// Bytes of the next chunk that will be taken by the last partial block.
    pub(crate) fn carried(&self) -> usize {
        if self.pieces.is_empty() { self.seed.len() } else { 0 }
    }

    /// Adds memory behind the current chunk, which must be full.
    pub(crate) fn push_chunk(&mut self, charge: Charge) {
        let mut chunk = Chunk::new(charge.bytes());
        let start = match self.pieces.back() {
            Some(last) => {
                assert_eq!(last.chunk.remaining(), 0, "only a full chunk gets a successor");
                last.end()
            }
            None => {
                chunk.append(&self.seed);
                self.seed = Vec::new();
                block_floor(self.end)
            }
        };
        self.pieces.push_back(Piece { start, chunk, charge });
    }

    /// Says that the byte appended next starts a batch.
    pub(crate) fn batch_starts(&mut self) {
        self.anchor.get_or_insert(self.end);
    }

    /// Copies as much of `data` as the current chunk holds; returns how much.
    pub(crate) fn fill(&mut self, data: &[u8]) -> usize {
        let Some(piece) = self.pieces.back_mut() else { return 0 };
        let n = data.len().min(piece.chunk.remaining());
        let part = data.get(..n).unwrap_or_default();
        piece.chunk.append(part);
        self.end += n as u32;
        n
    }

    /// The header of the batch at a cached position.
    pub(crate) fn header_at(&self, position: u32) -> Option<BatchHeader> {
        if position < self.cached_from() || position >= self.end {
            return None;
        }
        let piece = self.pieces.get(self.piece_of(position)?)?;
        let at = (position - piece.start) as usize;
        if let Some(bytes) = piece.chunk.written().get(at..at + HEADER_BYTES) {
            return BatchHeader::parse(bytes).ok();
        }
        let mut copy = [0; HEADER_BYTES];
        let mut filled = 0;
        while filled < HEADER_BYTES {
            let from = position + filled as u32;
            let piece = self.pieces.get(self.piece_of(from)?)?;
            let part = piece.chunk.written().get((from - piece.start) as usize..)?;
            let n = part.len().min(HEADER_BYTES - filled);
            copy.get_mut(filled..filled + n)?.copy_from_slice(part.get(..n)?);
            filled += n;
        }
        BatchHeader::parse(&copy).ok()
    }

    /// Handles on the bytes of cached positions.
    pub(crate) fn slices(&self, from: u32, to: u32) -> SmallVec<[ChunkSlice; 2]> {
        assert!(self.cached_from() <= from && from <= to && to <= self.end);
        let first = self.piece_of(from).unwrap_or(0);
        let mut out = SmallVec::new();
        for piece in self.pieces.iter().skip(first).take_while(|piece| piece.start < to) {
            let start = from.max(piece.start) - piece.start;
            let end = to.min(piece.end()) - piece.start;
            if start < end {
                out.push(piece.chunk.slice(start as usize..end as usize));
            }
        }
        out
    }

    /// What to hand to the device to bring it from block `from` to `to`: whole blocks as they lie
    /// here, the last partial one as a copy padded with zeros, because the memory behind `to` may
    /// be appended to while the device reads.
    pub(crate) fn write_bufs(&self, from: u32, to: u32) -> SmallVec<[WriteBuf; 2]> {
        assert!(from.is_multiple_of(BLOCK) && from < to);
        let whole = block_floor(to);
        let mut bufs: SmallVec<[WriteBuf; 2]> =
            self.slices(from, whole.max(from)).into_iter().map(WriteBuf::Chunk).collect();
        if to > whole {
            let mut last = AlignedBuf::zeroed(ALIGN);
            let mut at = 0;
            for part in self.slices(whole, to) {
                let part = part.as_ref();
                if let Some(space) = last.get_mut(at..at + part.len()) {
                    space.copy_from_slice(part);
                }
                at += part.len();
            }
            bufs.push(WriteBuf::Aligned(last));
        }
        bufs
    }

    /// Whether `chunk` is the oldest and all of it is on the device (`written` and before). The
    /// current chunk goes only if `even_current`.
    pub(crate) fn can_evict(&self, chunk: u64, written: u32, even_current: bool) -> bool {
        let oldest = self.pieces.front().filter(|piece| piece.charge.chunk() == chunk);
        let current = self.pieces.len() == 1;
        oldest.is_some_and(|piece| piece.end() <= written) && (even_current || !current)
    }

    /// Where memory will start once the oldest chunk is gone.
    pub(crate) fn cached_from_after_eviction(&self) -> u32 {
        self.pieces.get(1).map_or(self.end, |piece| piece.start)
    }

    /// Frees the oldest chunk; of the current one the last partial block is kept. `anchor` is the
    /// first batch start in what is left.
    pub(crate) fn evict(&mut self, anchor: Option<u32>) {
        if self.pieces.len() == 1
            && let Some(current) = self.pieces.front()
        {
            let keep = (self.end % BLOCK) as usize;
            let bytes = current.chunk.written();
            self.seed = bytes.get(bytes.len() - keep..).unwrap_or_default().to_vec();
        }
        if let Some(Piece { chunk, charge, .. }) = self.pieces.pop_front() {
            charge.retire(chunk);
        }
        self.anchor = anchor;
    }

    /// The bytes of the last partial block.
    pub(crate) fn partial_block(&self) -> Vec<u8> {
        if self.pieces.is_empty() {
            return self.seed.clone();
        }
        self.slices(block_floor(self.end), self.end)
            .iter()
            .flat_map(|s| s.as_ref())
            .copied()
            .collect()
    }

    /// Nothing will be appended any more.
    pub(crate) fn forget_seed(&mut self) {
        self.seed = Vec::new();
    }

    /// Gives up what was never written: the log is offline and nobody may read it.
    /// Returns the bytes of memory freed.
    pub(crate) fn drop_unwritten(&mut self, written: u32) -> usize {
        let mut freed = 0;
        while let Some(piece) = self.pieces.pop_back_if(|piece| piece.start >= written) {
            freed += piece.charge.bytes();
        }
        freed
    }

    fn piece_of(&self, position: u32) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.start <= position).checked_sub(1)
    }
}
