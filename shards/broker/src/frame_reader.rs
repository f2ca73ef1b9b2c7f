//! Cuts one connection's byte stream into request frames, without trusting what the bytes claim.
//!
//! A frame is an i32 size and that many bytes. A claimed size is checked first; memory is charged to
//! the shard's request budget as the bytes arrive, so that half a frame holds only what was sent.

use bytes::{Buf, Bytes, BytesMut};
use reactor::TcpStream;
use reactor::sync::{ByteBudget, Permit};

/// What a connection that may stay idle holds in memory while it waits.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The most that one read asks for ahead of what the current frame needs.
const READ_BYTES_MAX: usize = 256 * 1024;
/// A frame up to this size is given its whole buffer at once; a larger one grows as bytes come.
const FRAME_BYTES_AT_ONCE: usize = 1024 * 1024 + 64 * 1024;
/// Frames up to this size never wait for the budget, so that a shard full of large requests still
/// answers the small ones; connections times this is the most they can add.
const SMALL_FRAME_BYTES: usize = 16 * 1024;
const SIZE_BYTES: usize = 4;

/// Why a connection's input ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("request of {size} bytes is over socket.request.max.bytes ({limit})")]
    TooLarge { size: i64, limit: usize },
    #[error("the bytes look like TLS, but this listener speaks PLAINTEXT")]
    LooksLikeTls,
    #[error("connection ended in the middle of a request")]
    Truncated,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// One request as it arrived, with the memory it was granted until its reply has left.
pub(crate) struct Frame {
    pub bytes: Bytes,
    /// `None` for a small frame that came when the budget was used up.
    pub permit: Option<Permit>,
}

pub(crate) struct FrameReader {
    stream: TcpStream,
    buffer: BytesMut,
    read_bytes: usize,
    frame_bytes_max: usize,
    budget: ByteBudget,
}

impl FrameReader {
    pub fn new(stream: TcpStream, frame_bytes_max: usize, budget: ByteBudget) -> Self {
        FrameReader {
            stream,
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            frame_bytes_max,
            budget,
        }
    }

    /// The next whole frame; `None` when the client closed between two frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        while self.buffer.len() < SIZE_BYTES {
            if self.fill(SIZE_BYTES).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
        let size = self.checked_size()?;
        let mut charge = Charge { permit: None, bytes: 0, may_wait: size > SMALL_FRAME_BYTES };
        loop {
            let arrived = (self.buffer.len() - SIZE_BYTES).min(size);
            charge.grow(&self.budget, arrived).await;
            if arrived == size {
                break;
            }
            if self.fill(SIZE_BYTES + size).await? == 0 {
                return Err(FrameError::Truncated);
            }
        }
        self.buffer.advance(SIZE_BYTES);
        let bytes = self.buffer.split_to(size).freeze();
        Ok(Some(Frame { bytes, permit: charge.permit }))
    }

    fn checked_size(&self) -> Result<usize, FrameError> {
        let prefix = (&self.buffer[..]).get_i32();
        match usize::try_from(prefix) {
            Ok(size) if size <= self.frame_bytes_max => Ok(size),
            // A TLS ClientHello starts with 0x16 0x03: no plain request can be that large.
            _ if prefix >> 16 == 0x1603 => Err(FrameError::LooksLikeTls),
            _ => Err(FrameError::TooLarge { size: prefix.into(), limit: self.frame_bytes_max }),
        }
    }

    /// Reads once towards a buffer of `target` bytes; returns the bytes read, 0 at the end.
    async fn fill(&mut self, target: usize) -> Result<usize, FrameError> {
        let missing = target.saturating_sub(self.buffer.len());
        let trusted = if target <= FRAME_BYTES_AT_ONCE {
            missing
        } else {
            missing.min(self.buffer.len().max(READ_BYTES_MAX))
        };
        let want = trusted.max(self.read_bytes);
        self.buffer.reserve(want);
        let room = self.buffer.capacity() - self.buffer.len();
        let (result, buffer) = self.stream.read(std::mem::take(&mut self.buffer)).await;
        self.buffer = buffer;
        let read = result?;
        if read == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read * 4 < self.read_bytes {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
        Ok(read)
    }
}

/// What a frame has been granted of the shard's request budget: the bytes that have arrived, not
/// those that its size promises.
struct Charge {
    permit: Option<Permit>,
    bytes: usize,
    may_wait: bool,
}

impl Charge {
    async fn grow(&mut self, budget: &ByteBudget, bytes: usize) {
        let more = bytes - self.bytes;
        let granted = match budget.try_acquire(more) {
            Some(permit) => permit,
            None if self.may_wait => budget.acquire(more).await,
            None => return,
        };
        self.bytes = bytes;
        match &mut self.permit {
            Some(permit) => permit.merge(granted),
            None => self.permit = Some(granted),
        }
    }
}
