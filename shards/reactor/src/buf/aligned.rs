//! A uniquely owned aligned buffer.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::pool::Block;

/// Aligned memory with one owner: capacity is fixed, the length says how much of it counts.
/// Dereferences to the first `len` bytes. Every byte up to the capacity is initialised.
pub struct AlignedBuf {
    block: Block,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of zeros. The capacity is `capacity` rounded up to [`super::ALIGN`], the length is
    /// the capacity.
    pub fn zeroed(capacity: usize) -> Self {
        let block = Block::take(capacity, true);
        let len = block.capacity();
        Self { block, len }
    }

    /// A buffer of length 0 whose contents are old bytes of this process: for reading into,
    /// without the cost of zeroing.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { block: Block::take(capacity, false), len: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Sets the length; more than the capacity is a programmer error.
    pub fn set_len(&mut self, n: usize) {
        assert!(n <= self.capacity(), "length {n} beyond capacity {}", self.capacity());
        self.len = n;
    }

    /// Turns the first `len` bytes into shared immutable bytes, without a copy.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.block.start()
    }

    /// All of the memory, whatever the length.
    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block is uniquely ours, initialised, and `capacity` bytes long.
        unsafe { std::slice::from_raw_parts_mut(self.block.start(), self.block.capacity()) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: len <= capacity, the memory is initialised and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.block.start(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.whole_mut()[..len]
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {})", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ALIGN, retain_at_most, retained_bytes};
    use super::AlignedBuf;

    #[test]
    fn a_buffer_is_aligned_and_zero_even_when_reused() {
        for _ in 0..3 {
            let mut b = AlignedBuf::zeroed(5000);
            assert_eq!(b.capacity(), 8192);
            assert_eq!(b.len(), 8192);
            assert_eq!(b.start() as usize % ALIGN, 0);
            assert!(b.iter().all(|&x| x == 0));
            b.fill(0xAA);
        }
    }

    #[test]
    fn the_pool_keeps_no_more_than_it_may() {
        std::thread::spawn(|| {
            retain_at_most(3 * ALIGN);
            let many: Vec<_> = (0..10).map(|_| AlignedBuf::with_capacity(ALIGN)).collect();
            drop(many);
            assert_eq!(retained_bytes(), 3 * ALIGN);
            let one = AlignedBuf::with_capacity(1);
            assert_eq!(retained_bytes(), 2 * ALIGN);
            let frozen = {
                let mut one = one;
                one.set_len(4);
                one.copy_from_slice(b"abcd");
                one.freeze()
            };
            assert_eq!(&frozen[..], b"abcd");
            drop(frozen);
            assert_eq!(retained_bytes(), 3 * ALIGN);
        })
        .join()
        .unwrap();
    }

    #[test]
    #[should_panic(expected = "beyond capacity")]
    fn a_length_beyond_the_capacity_is_refused() {
        AlignedBuf::zeroed(1).set_len(ALIGN + 1);
    }
}
