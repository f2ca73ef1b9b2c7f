//! Walking the batches of a segment file with large direct reads.
//!
//! Owns: the window of bytes in memory and the judgement whether the next bytes are a batch.
//! Used by recovery and when an index is made anew. A batch may be larger than the window: its
//! checksum is computed over several. It never changes the file.

use std::io;

use reactor::{ALIGN, AlignedBuf, File};
use wire::records::BatchHeader;
use wire::records::header::{CRC_START, HEADER_BYTES};

use crate::append::{marker, producer_batch};
use crate::producer_state::{EndedTransaction, ProducerStates};

/// Large enough that the device is busy, small enough that many logs can recover at once.
const WINDOW: usize = 1 << 20;
/// What is read again whole, as control batches are; with the start of its block it fits in the
/// window, whatever the window's size.
const SMALL_BATCH: usize = ALIGN;

/// What lies at the scanner's position.
#[derive(Debug)]
pub(crate) enum Found {
    /// A batch that starts at this position; its checksum is right if that was asked for.
    Batch(BatchHeader, u32),
    /// The end of the file, exactly.
    End,
    /// Zeros where a header should be: prepared space, or blocks that were never written.
    Zeros,
    /// Something else.
    Damage(String),
}

pub(crate) struct Scanner {
    file: File,
    position: u64,
    end: u64,
    /// `None` while the device fills it.
    window: Option<AlignedBuf>,
    window_start: u64,
}

impl Scanner {
    /// Walks the positions from `start` (a batch boundary) to `end`.
    pub(crate) fn new(file: File, start: u32, end: u32) -> Self {
        let size = WINDOW.min((end.saturating_sub(start) as usize + ALIGN).next_multiple_of(ALIGN));
        Scanner {
            file,
            position: u64::from(start),
            end: u64::from(end),
            window: Some(AlignedBuf::with_capacity(size)),
            window_start: 0,
        }
    }

    /// Where the next batch starts: the end of the last good one.
    pub(crate) fn position(&self) -> u32 {
        self.position as u32
    }

    pub(crate) async fn next(&mut self, verify: bool) -> io::Result<Found> {
        let left = self.end - self.position;
        if left == 0 {
            return Ok(Found::End);
        }
        let head = self.read(self.position, HEADER_BYTES.min(left as usize)).await?;
        if head.iter().all(|b| *b == 0) {
            return Ok(Found::Zeros);
        }
        let header = match BatchHeader::parse(head) {
            Ok(header) => header,
            Err(error) => return Ok(Found::Damage(error.to_string())),
        };
        let size = header.size_in_bytes() as u64;
        if size > left {
            let problem = format!("a batch of {size} bytes does not fit in {left} left");
            return Ok(Found::Damage(problem));
        }
        if header.last_offset_delta < 0 || header.base_offset < 0 {
            return Ok(Found::Damage("a batch has a negative offset".to_owned()));
        }
        if verify {
            let crc = self.checksum(self.position + CRC_START as u64, self.position + size).await?;
            if crc != header.crc {
                let stored = header.crc;
                let problem = format!("checksum {crc:#010x} of a batch is not its {stored:#010x}");
                return Ok(Found::Damage(problem));
            }
        }
        let at = self.position as u32;
        self.position += size;
        Ok(Found::Batch(header, at))
    }

    /// The bytes of a batch found before; `None` if it is no small one.
    pub(crate) async fn small_batch(
        &mut self,
        header: &BatchHeader,
        position: u32,
    ) -> io::Result<Option<&[u8]>> {
        let size = header.size_in_bytes();
        if size > SMALL_BATCH {
            return Ok(None);
        }
        Ok(self.read(u64::from(position), size).await?.get(..size))
    }

    /// Tells the producers what a batch found before says of them, and what it ended.
    pub(crate) async fn replay_producer(
        &mut self,
        header: &BatchHeader,
        position: u32,
        producers: &mut ProducerStates,
    ) -> io::Result<Option<EndedTransaction>> {
        if let Some(batch) = producer_batch(header) {
            producers.update(&batch);
        } else if header.attributes.is_control() {
            let bytes = self.small_batch(header, position).await?;
            let marker = bytes.and_then(|bytes| marker(header, bytes));
            return Ok(marker.and_then(|marker| producers.end_transaction(&marker)));
        }
        Ok(None)
    }

    /// The position after the last byte that is not zero, from here to the end.
    pub(crate) async fn last_nonzero(&mut self) -> io::Result<u64> {
        let (mut at, mut last) = (self.position, self.position);
        while at < self.end {
            let bytes = self.read(at, 1).await?;
            let n = bytes.len() as u64;
            if let Some(place) = bytes.iter().rposition(|b| *b != 0) {
                last = at + place as u64 + 1;
            }
            at += n;
        }
        Ok(last.min(self.end))
    }

    async fn checksum(&mut self, from: u64, to: u64) -> io::Result<u32> {
        let (mut at, mut crc) = (from, 0);
        while at < to {
            let bytes = self.read(at, 1).await?;
            let n = (to - at).min(bytes.len() as u64);
            crc = crc32c::crc32c_append(crc, bytes.get(..n as usize).unwrap_or_default());
            at += n;
        }
        Ok(crc)
    }

    /// The bytes in memory from `at` on, at least `least` of them.
    async fn read(&mut self, at: u64, least: usize) -> io::Result<&[u8]> {
        let wanted = at + least as u64;
        if !(at >= self.window_start && wanted <= self.window_end()) {
            let block = ALIGN as u64;
            let start = at - at % block;
            let window = self.window.take().unwrap_or_else(|| AlignedBuf::with_capacity(WINDOW));
            let (result, window) = self.file.read_at(window, start).await;
            self.window = Some(window);
            self.window_start = start;
            result?;
            if wanted > self.window_end() {
                let problem = format!("the file ends before position {wanted}");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
            }
        }
        let skip = (at - self.window_start) as usize;
        Ok(self.window.as_ref().and_then(|w| w.get(skip..)).unwrap_or_default())
    }

    fn window_end(&self) -> u64 {
        self.window_start + self.window.as_ref().map_or(0, |w| w.len() as u64)
    }
}
