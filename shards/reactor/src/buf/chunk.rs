//! Append-only aligned memory: one writer, any number of readers of what is written already.
//!
//! The writer only ever touches bytes past `len`; slices cover only bytes before the `len` at the
//! time they were made. The two never overlap, so readers need no lock, on any thread.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::pool::Block;

/// The writer's end of a chunk.
pub struct Chunk {
    block: Arc<Block>,
    len: usize,
}

impl Chunk {
    /// An empty chunk; the capacity is rounded up to [`super::ALIGN`].
    pub fn new(capacity: usize) -> Self {
        Self { block: Arc::new(Block::take(capacity, false)), len: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn remaining(&self) -> usize {
        self.capacity() - self.len
    }

    /// Copies `data` behind what is there and returns where it landed. More than
    /// [`Chunk::remaining`] bytes is a programmer error.
    pub fn append(&mut self, data: &[u8]) -> Range<usize> {
        assert!(
            data.len() <= self.remaining(),
            "{} bytes do not fit in {} remaining",
            data.len(),
            self.remaining()
        );
        let start = self.len;
        // SAFETY: the bytes past `len` belong to this writer alone (slices end at or before
        // `len`), the range is inside the block, and `data` cannot overlap it for that reason.
        unsafe {
            self.block.start().add(start).copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        self.len += data.len();
        start..self.len
    }

    /// A handle to written bytes. A range beyond [`Chunk::len`] is a programmer error.
    pub fn slice(&self, r: Range<usize>) -> ChunkSlice {
        assert!(
            r.start <= r.end && r.end <= self.len,
            "slice {r:?} of a chunk with {} bytes",
            self.len
        );
        ChunkSlice { block: Arc::clone(&self.block), start: r.start, len: r.end - r.start }
    }

    /// Whether slices of it are alive.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.block) > 1
    }

    /// All written bytes.
    pub fn written(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised and never written again.
        unsafe { std::slice::from_raw_parts(self.block.start(), self.len) }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} of {})", self.len, self.capacity())
    }
}

/// Immutable bytes of a chunk; keeps the memory alive, may go to and be dropped on any thread.
#[derive(Clone)]
pub struct ChunkSlice {
    block: Arc<Block>,
    start: usize,
    len: usize,
}

impl ChunkSlice {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of this slice.
    pub fn slice(&self, r: Range<usize>) -> ChunkSlice {
        assert!(r.start <= r.end && r.end <= self.len, "slice {r:?} of {} bytes", self.len);
        ChunkSlice {
            block: Arc::clone(&self.block),
            start: self.start + r.start,
            len: r.end - r.start,
        }
    }

    /// The same bytes as [`Bytes`], without a copy.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for ChunkSlice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was written before this slice was made and is never written again.
        unsafe { std::slice::from_raw_parts(self.block.start().add(self.start), self.len) }
    }
}

impl fmt::Debug for ChunkSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkSlice({}+{})", self.start, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::Chunk;

    #[test]
    fn slices_stay_while_the_writer_goes_on() {
        let mut chunk = Chunk::new(4096);
        let first = chunk.append(b"first");
        let slice = chunk.slice(first);
        let reader = std::thread::spawn({
            let slice = slice.clone();
            move || slice.to_bytes()
        });
        let second = chunk.append(b"second");
        assert_eq!(second, 5..11);
        assert_eq!(&reader.join().unwrap()[..], b"first");
        assert_eq!(chunk.slice(0..11).slice(3..8).as_ref(), b"stsec");
        drop(chunk);
        assert_eq!(slice.as_ref(), b"first");
    }

    #[test]
    #[should_panic(expected = "of a chunk with")]
    fn bytes_not_written_yet_cannot_be_shared() {
        let mut chunk = Chunk::new(4096);
        chunk.append(b"x");
        let _ = chunk.slice(0..2);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn an_append_beyond_the_capacity_is_refused() {
        Chunk::new(1).append(&[0; 4097]);
    }
}
