//! Going through the whole batches of a segment file with large direct reads.
//!
//! Owns: the window of bytes in memory. Unlike recovery's scanner it hands out each batch in one
//! piece, checked against its checksum, and refuses batches beyond a bound. It never writes.

use std::io;

use reactor::{ALIGN, AlignedBuf, File};
use wire::records::header::HEADER_BYTES;
use wire::records::{BatchHeader, BatchView};

/// One read, unless a batch is larger.
const WINDOW: usize = 1 << 20;

/// Why the next batch cannot be had.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Damaged { position: u64, problem: String },
}

pub(crate) struct Batches {
    file: File,
    position: u64,
    end: u64,
    /// A larger batch is refused.
    most: usize,
    window: AlignedBuf,
    window_start: u64,
    read: usize,
}

impl Batches {
    /// From `start`, where a batch starts, to `end`.
    pub(crate) fn new(file: File, start: u32, end: u32, most: usize) -> Self {
        let window = AlignedBuf::with_capacity(0);
        Batches {
            file,
            position: start.into(),
            end: end.into(),
            most,
            window,
            window_start: 0,
            read: 0,
        }
    }

    /// Bytes that were read since the last call.
    pub(crate) fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.read)
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<BatchView<'_>>, Fault> {
        let (start, left) = (self.position, self.end - self.position);
        if left == 0 {
            return Ok(None);
        }
        let damaged = |problem| Fault::Damaged { position: start, problem };
        let head = self.bytes(start, HEADER_BYTES.min(left as usize)).await?;
        if head.iter().all(|byte| *byte == 0) {
            return self.only_zeros(start).await;
        }
        let header = BatchHeader::parse(head).map_err(|error| damaged(error.to_string()))?;
        let size = header.size_in_bytes();
        if size as u64 > left {
            return Err(damaged(format!("a batch of {size} bytes does not fit in {left} left")));
        }
        if size > self.most {
            let most = self.most;
            return Err(damaged(format!("a batch of {size} bytes is larger than {most}")));
        }
        self.position += size as u64;
        let bytes = self.bytes(start, size).await?;
        let batch = BatchView::parse(bytes).map_err(|error| damaged(error.to_string()))?;
        batch.verify_crc().map_err(|error| damaged(error.to_string()))?;
        Ok(Some(batch))
    }

    /// A crash may have kept a full segment from its trim: zeros to its end are no batches.
    async fn only_zeros(&mut self, from: u64) -> Result<Option<BatchView<'_>>, Fault> {
        let mut at = from;
        while at < self.end {
            let n = (self.end - at).min(ALIGN as u64) as usize;
            if self.bytes(at, n).await?.iter().any(|byte| *byte != 0) {
                let problem = "zeros where a batch should be".to_owned();
                return Err(Fault::Damaged { position: from, problem });
            }
            at += n as u64;
        }
        self.position = self.end;
        Ok(None)
    }

    /// `len` bytes from `at` on.
    async fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8], Fault> {
        let window_end = self.window_start + self.window.len() as u64;
        if at < self.window_start || at + len as u64 > window_end {
            let start = at - at % ALIGN as u64;
            let skip = (at - start) as usize;
            let left = (self.end - start) as usize;
            let size = WINDOW.min(left).max(skip + len);
            let buf = AlignedBuf::with_capacity(size);
            let (result, buf) = self.file.read_at(buf, start).await;
            self.read += result.map_err(Fault::Io)?;
            self.window = buf;
            self.window_start = start;
        }
        let skip = (at - self.window_start) as usize;
        self.window.get(skip..skip + len).ok_or(Fault::Damaged {
            position: at,
            problem: "the file is shorter than its segment".to_owned(),
        })
    }
}
