//! Walking the batches of a segment file with large direct reads.
//!
//! Owns: the windows of bytes in memory, the reads ahead of them, and the judgement whether the next
//! bytes are a batch. Used by recovery and when an index is made anew. A batch may be larger than a
//! window: its checksum is computed over several. It never changes the file.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use reactor::{ALIGN, AlignedBuf, File, Task};
use wire::records::BatchHeader;
use wire::records::header::{CRC_START, HEADER_BYTES};

use crate::append::{marker, producer_batch};
use crate::producer_state::{EndedTransaction, ProducerStates};

/// Large enough that the device is busy, small enough that many logs can recover at once.
const WINDOW: usize = 1 << 20;
/// Windows that are read while one is looked at, so that neither the device nor the core waits.
const READ_AHEAD: usize = 2;
/// Where a batch says of which format it is, and what it says.
const MAGIC_AT: usize = 16;
const MAGIC: u8 = 2;
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

/// Bytes of the file in memory.
struct Window {
    start: u64,
    buf: AlignedBuf,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }
}

/// A window on its way from the device.
type Reading = Task<(io::Result<usize>, AlignedBuf)>;

pub(crate) struct Scanner {
    file: File,
    position: u64,
    end: u64,
    window_bytes: usize,
    /// Back to back, the oldest first; what lies before a batch that may be asked for again goes.
    windows: VecDeque<Window>,
    /// Windows behind those, the next one first.
    coming: VecDeque<(u64, Reading)>,
    /// Windows to be used again: fresh memory costs more than the checksum of what is read into it.
    spare: Vec<AlignedBuf>,
    /// Bytes that lie in two windows, put together.
    joined: Vec<u8>,
}

impl Scanner {
    /// Walks the positions from `start` (a batch boundary) to `end`.
    pub(crate) fn new(file: File, start: u32, end: u32) -> Self {
        let size = (end.saturating_sub(start) as usize + ALIGN).next_multiple_of(ALIGN);
        Scanner {
            file,
            position: u64::from(start),
            end: u64::from(end),
            window_bytes: WINDOW.min(size),
            windows: VecDeque::new(),
            coming: VecDeque::new(),
            spare: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Where the next batch starts: the end of the last good one.
    pub(crate) fn position(&self) -> u32 {
        self.position as u32
    }

    pub(crate) async fn next(&mut self, verify: bool) -> io::Result<Found> {
        // The batch returned last may still be asked for, if it is a small one.
        self.forget_below(self.position.saturating_sub(SMALL_BATCH as u64));
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

    /// Goes on behind damage: at the next sound batch that starts with an offset of the range. `false`
    /// if there is none.
    pub(crate) async fn resync(&mut self, offsets: Range<i64>) -> io::Result<bool> {
        while self.end - self.position > HEADER_BYTES as u64 {
            self.position += 1;
            if self.position.is_multiple_of(ALIGN as u64) {
                self.forget_below(self.position);
            }
            let head = self.read(self.position, HEADER_BYTES).await?;
            let (base, is_magic) = match (head.first_chunk::<8>(), head.get(MAGIC_AT)) {
                (Some(base), Some(byte)) => (i64::from_be_bytes(*base), *byte == MAGIC),
                _ => return Ok(false),
            };
            if !is_magic || !offsets.contains(&base) {
                continue;
            }
            let at = self.position;
            let found = self.next(true).await?;
            self.position = at;
            if matches!(found, Found::Batch(..)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the checksum of a batch found before is right.
    pub(crate) async fn checksum_fits(
        &mut self,
        header: &BatchHeader,
        position: u32,
    ) -> io::Result<bool> {
        let start = u64::from(position);
        let end = start + header.size_in_bytes() as u64;
        Ok(self.checksum(start + CRC_START as u64, end).await? == header.crc)
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
            self.forget_below(at);
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
            if to - from > SMALL_BATCH as u64 {
                self.forget_below(at);
            }
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
        while self.windows.back().is_none_or(|last| wanted > last.end()) {
            self.next_window(at, wanted).await?;
        }
        let holding = self.windows.partition_point(|w| w.start <= at).saturating_sub(1);
        let first = self.windows.get(holding).filter(|w| wanted > w.end());
        if first.is_none() {
            let window = self.windows.get(holding);
            let bytes = window.and_then(|w| w.buf.get((at - w.start) as usize..));
            return Ok(bytes.unwrap_or_default());
        }
        self.joined.clear();
        for window in self.windows.iter().skip(holding) {
            let from = at.max(window.start).min(window.end()) - window.start;
            let to = wanted.min(window.end()) - window.start;
            self.joined
                .extend_from_slice(window.buf.get(from as usize..to as usize).unwrap_or_default());
        }
        Ok(&self.joined)
    }

    /// Adds the window behind the last one, the first of all at `at`, and has those that follow
    /// read meanwhile.
    async fn next_window(&mut self, at: u64, wanted: u64) -> io::Result<()> {
        let block = ALIGN as u64;
        let start = self.windows.back().map_or(at - at % block, Window::end);
        if !start.is_multiple_of(block) || start >= self.end {
            let problem = format!("the file ends before position {wanted}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        let reading = match self.coming.pop_front() {
            Some((there, reading)) if there == start => reading,
            _ => {
                self.coming.clear();
                self.start_reading(start)
            }
        };
        // Behind the first window there may be no more than reserved space.
        let ahead = if self.windows.is_empty() { 0 } else { READ_AHEAD };
        let mut next = self.coming.back().map_or(start, |(last, _)| *last);
        while self.coming.len() < ahead {
            next += self.window_bytes as u64;
            if next >= self.end {
                break;
            }
            let reading = self.start_reading(next);
            self.coming.push_back((next, reading));
        }
        let (result, buf) = reading.await;
        result?;
        if buf.is_empty() {
            let problem = format!("the file ends before position {wanted}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        self.windows.push_back(Window { start, buf });
        // Requests come first.
        reactor::yield_now().await;
        Ok(())
    }

    fn start_reading(&mut self, start: u64) -> Reading {
        let buf = self.spare.pop().unwrap_or_else(|| AlignedBuf::with_capacity(self.window_bytes));
        let file = self.file.clone();
        reactor::spawn(async move { file.read_at(buf, start).await })
    }

    /// Lets go of windows that end at or before `position`.
    fn forget_below(&mut self, position: u64) {
        while self.windows.len() > 1
            && let Some(window) = self.windows.pop_front_if(|w| w.end() <= position)
        {
            self.spare.push(window.buf);
        }
    }
}

/// Whether something lies at a position, whatever it is, that the end of the file does not cut off.
pub(crate) async fn holds_something(file: &File, at: u32, end: u32) -> io::Result<bool> {
    let left = u64::from(end.saturating_sub(at));
    if left < HEADER_BYTES as u64 {
        return Ok(false);
    }
    let mut scanner = Scanner::new(file.clone(), at, end);
    let head = scanner.read(at.into(), HEADER_BYTES).await?;
    let head = head.get(..HEADER_BYTES).unwrap_or_default();
    if head.iter().all(|byte| *byte == 0) {
        return Ok(false);
    }
    Ok(BatchHeader::parse(head).map_or(true, |header| header.size_in_bytes() as u64 <= left))
}

/// Where the first whole batch of an offset from `offset` on starts behind `from`, at any byte. Slow:
/// it is for a log of which nothing may be lost.
pub(crate) async fn find_batch(
    file: &File,
    from: u32,
    end: u32,
    offset: i64,
) -> io::Result<Option<u32>> {
    let mut scanner = Scanner::new(file.clone(), from, end);
    let (mut at, end) = (u64::from(from) + 1, u64::from(end));
    while at + HEADER_BYTES as u64 <= end {
        scanner.forget_below(at);
        let bytes = scanner.read(at, HEADER_BYTES).await?;
        let places = bytes.len().min((end - at) as usize) + 1 - HEADER_BYTES;
        let candidates: Vec<u64> = bytes
            .windows(HEADER_BYTES)
            .take(places)
            .enumerate()
            .filter(|(_, head)| {
                // The magic first: it sorts out almost everything.
                head.get(MAGIC_AT) == Some(&MAGIC)
                    && BatchHeader::parse(head).is_ok_and(|h| h.base_offset >= offset)
            })
            .map(|(place, _)| at + place as u64)
            .collect();
        for candidate in candidates {
            let mut one = Scanner::new(file.clone(), candidate as u32, end as u32);
            if matches!(one.next(true).await?, Found::Batch(..)) {
                return Ok(Some(candidate as u32));
            }
        }
        at += places as u64;
    }
    Ok(None)
}
