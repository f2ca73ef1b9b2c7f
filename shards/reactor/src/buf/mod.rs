//! Memory for input and output: aligned, pooled per thread, owned by whoever uses it.

mod aligned;
mod chunk;
mod pool;

pub use aligned::AlignedBuf;
pub use chunk::{Chunk, ChunkSlice};
pub use pool::{RETAINED_BYTES_MAX, release, retain_at_most, retained_bytes, unused_bytes};

/// Alignment, in memory and on disk, of everything that direct I/O touches.
pub const ALIGN: usize = 4096;
