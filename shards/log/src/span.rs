//! Bytes of a segment file that lie in several parts of memory, looked at as one.
//!
//! Owns: handles on the parts, in order and without gaps. Pure.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::records::BatchError;
use wire::records::BatchHeader;
use wire::records::header::HEADER_BYTES;

#[derive(Default)]
pub(crate) struct Span {
    /// Each with the file position of its first byte.
    parts: SmallVec<[(u32, Bytes); 6]>,
    end: u32,
}

impl Span {
    pub(crate) fn of(start: u32, bytes: Bytes) -> Span {
        let mut span = Span::default();
        span.push(start, bytes);
        span
    }

    /// Adds the part that starts where the last one ends.
    pub(crate) fn push(&mut self, start: u32, bytes: Bytes) {
        assert!(self.parts.is_empty() || start == self.end, "parts follow each other");
        self.end = start + bytes.len() as u32;
        self.parts.push((start, bytes));
    }

    /// The position behind the last byte.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The batch header at a position; `None` if not all of it is here.
    pub(crate) fn header_at(&self, position: u32) -> Option<Result<BatchHeader, BatchError>> {
        let at = self.parts.iter().rposition(|(start, _)| *start <= position)?;
        let (start, bytes) = self.parts.get(at)?;
        let skip = (position - start) as usize;
        if let Some(header) = bytes.get(skip..skip + HEADER_BYTES) {
            return Some(BatchHeader::parse(header));
        }
        let mut copy = [0; HEADER_BYTES];
        let mut filled = 0;
        let mut skip = skip;
        for (_, bytes) in self.parts.get(at..)? {
            let part = bytes.get(skip..).unwrap_or_default();
            let n = part.len().min(HEADER_BYTES - filled);
            copy.get_mut(filled..filled + n)?.copy_from_slice(part.get(..n)?);
            filled += n;
            skip = 0;
        }
        (filled == HEADER_BYTES).then(|| BatchHeader::parse(&copy))
    }

    /// The checksum of the bytes from one position to another, if all of them are here.
    pub(crate) fn checksum(&self, from: u32, to: u32) -> Option<u32> {
        let start = self.parts.first().map(|(start, _)| *start)?;
        if from < start || from > to || to > self.end {
            return None;
        }
        let sum = |sum, part: &[u8]| crc32c::crc32c_append(sum, part);
        Some(self.parts_between(from, to).fold(0, sum))
    }

    fn parts_between(&self, from: u32, to: u32) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().filter_map(move |(start, bytes)| {
            let (from, to) = (from.max(*start), to.min(start + bytes.len() as u32));
            (from < to).then(|| bytes.get((from - start) as usize..(to - start) as usize))?
        })
    }

    /// Handles on the bytes from one position to another.
    pub(crate) fn slices(&self, from: u32, to: u32) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(self.parts.len());
        for (start, bytes) in &self.parts {
            let end = start + bytes.len() as u32;
            let (from, to) = (from.max(*start), to.min(end));
            if from < to {
                out.push(bytes.slice((from - start) as usize..(to - start) as usize));
            }
        }
        out
    }
}
