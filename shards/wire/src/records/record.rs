//! The records inside a batch.
//!
//! ```text
//! varint length | i8 attributes (unused) | varlong timestamp delta | varint offset delta
//! | varint key length (-1 null) | key | varint value length (-1 null) | value
//! | varint header count | { varint key length | key | varint value length (-1 null) | value } ...
//! ```
//!
//! A record is checked whole when it is reached, so what it hands out cannot fail again. Keys and
//! values borrow from the batch, or from the decompressed block that the iterator owns.

use super::BatchError;
use super::header::{BatchHeader, TimestampType};
use super::varint::{self, VarintError};
use std::borrow::Cow;
use std::fmt;

/// The least a record can take: seven one-byte fields.
pub const MIN_RECORD_BYTES: usize = 7;
/// The least a record header can take: an empty key and an empty or null value.
const MIN_HEADER_BYTES: usize = 2;

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unused by Kafka, always zero so far.
    pub attributes: i8,
    /// Milliseconds; the batch's maximum if the broker set the time.
    pub timestamp: i64,
    pub offset: i64,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record, in order; keys may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// UTF-8 by convention; not enforced by any broker.
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The records of one batch, over bytes that are borrowed (no codec) or owned (decompressed).
///
/// Every record borrows from the iterator, so it lends rather than being an `Iterator`:
/// `while let Some(record) = records.next_record()? {}`, or `for record in &records {}`, which
/// starts at the first record each time.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    data: Cow<'a, [u8]>,
    frame: Frame,
    cursor: Cursor,
}

/// What a batch header says about its records.
#[derive(Clone, Copy, Debug)]
struct Frame {
    base_offset: i64,
    base_timestamp: i64,
    /// Set if every record has this timestamp.
    append_time: Option<i64>,
    count: i32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    position: usize,
    index: i32,
}

impl<'a> RecordIter<'a> {
    /// Over `data`, the records of a batch with this header, no longer compressed.
    pub fn new(header: &BatchHeader, data: Cow<'a, [u8]>) -> Result<Self, BatchError> {
        let count = header.record_count;
        match usize::try_from(count) {
            Ok(n) if n.saturating_mul(MIN_RECORD_BYTES) <= data.len() => {}
            _ => return Err(BatchError::Count(count)),
        }
        let frame = Frame {
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: match header.attributes.timestamp_type() {
                TimestampType::Create => None,
                TimestampType::LogAppend => Some(header.max_timestamp),
            },
            count,
        };
        Ok(RecordIter { data, frame, cursor: Cursor::default() })
    }

    /// The next record; `None` after the last one if no bytes are left over.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, BatchError> {
        next(&self.data, self.frame, &mut self.cursor).transpose()
    }

    /// How many records the batch header declares.
    pub fn count(&self) -> i32 {
        self.frame.count
    }

    /// From the first record on, whatever has been read so far.
    pub fn iter(&self) -> Iter<'_> {
        Iter { data: &self.data, frame: self.frame, cursor: Cursor::default() }
    }
}

impl<'r> IntoIterator for &'r RecordIter<'_> {
    type Item = Result<Record<'r>, BatchError>;
    type IntoIter = Iter<'r>;

    fn into_iter(self) -> Iter<'r> {
        self.iter()
    }
}

/// See [`RecordIter::iter`]. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Iter<'r> {
    data: &'r [u8],
    frame: Frame,
    cursor: Cursor,
}

impl<'r> Iterator for Iter<'r> {
    type Item = Result<Record<'r>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        next(self.data, self.frame, &mut self.cursor)
    }
}

/// One step; an error moves the cursor past everything, so that the walk ends there.
fn next<'r>(
    data: &'r [u8],
    frame: Frame,
    cursor: &mut Cursor,
) -> Option<Result<Record<'r>, BatchError>> {
    let rest = data.get(cursor.position..).unwrap_or_default();
    if cursor.index >= frame.count {
        if rest.is_empty() {
            return None;
        }
        cursor.position = data.len();
        return Some(Err(BatchError::TrailingBytes { count: frame.count }));
    }
    match parse_record(rest, frame) {
        Ok((record, used)) => {
            cursor.position += used;
            cursor.index += 1;
            Some(Ok(record))
        }
        Err(reason) => {
            let index = cursor.index;
            *cursor = Cursor { position: data.len(), index: frame.count };
            Some(Err(BatchError::Record { index, reason }))
        }
    }
}

/// The record at the front of `bytes`, and the bytes it takes with its length field.
fn parse_record(bytes: &[u8], frame: Frame) -> Result<(Record<'_>, usize), &'static str> {
    let mut outer = Fields { rest: bytes };
    let length = outer.length("record length")?.ok_or("negative record length")?;
    let prefix = bytes.len() - outer.rest.len();
    let mut fields = Fields { rest: outer.take(length, "record is longer than its batch")? };
    let attributes = fields.byte()?;
    let timestamp_delta = fields.varlong()?;
    let offset_delta = fields.varint()?;
    let key = fields.nullable_bytes("key is longer than its record")?;
    let value = fields.nullable_bytes("value is longer than its record")?;
    let count = fields.length("header count")?.ok_or("negative header count")?;
    let headers = Headers { count, bytes: fields.rest };
    headers.check()?;
    let timestamp =
        frame.append_time.unwrap_or_else(|| frame.base_timestamp.wrapping_add(timestamp_delta));
    let offset = frame.base_offset.wrapping_add(i64::from(offset_delta));
    Ok((Record { attributes, timestamp, offset, key, value, headers }, prefix + length))
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter { left: self.count, fields: Fields { rest: self.bytes } }
    }

    /// The encoded headers without their count, to copy a record as it is.
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Walks all headers, so that iterating cannot fail and the record has no bytes left over.
    fn check(&self) -> Result<(), &'static str> {
        if self.count > self.bytes.len() / MIN_HEADER_BYTES {
            return Err("more headers than the record has room for");
        }
        let mut fields = Fields { rest: self.bytes };
        for _ in 0..self.count {
            fields.header()?;
        }
        if fields.rest.is_empty() { Ok(()) } else { Err("record is longer than its fields") }
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Iterates headers that were checked with their record.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    left: usize,
    fields: Fields<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.fields.header().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// A checked reader of record fields; its errors are the reasons of [`BatchError::Record`].
#[derive(Clone, Debug)]
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Result<i8, &'static str> {
        let (byte, rest) = self.rest.split_first().ok_or("record ends inside a field")?;
        self.rest = rest;
        Ok(*byte as i8)
    }

    fn varint(&mut self) -> Result<i32, &'static str> {
        let (value, used) = varint::read_i32(self.rest).map_err(reason)?;
        self.rest = self.rest.get(used..).unwrap_or_default();
        Ok(value)
    }

    fn varlong(&mut self) -> Result<i64, &'static str> {
        let (value, used) = varint::read_i64(self.rest).map_err(reason)?;
        self.rest = self.rest.get(used..).unwrap_or_default();
        Ok(value)
    }

    /// A length or count: `None` for any negative number.
    fn length(&mut self, what: &'static str) -> Result<Option<usize>, &'static str> {
        match varint::read_i32(self.rest) {
            Ok((value, used)) => {
                self.rest = self.rest.get(used..).unwrap_or_default();
                Ok(usize::try_from(value).ok())
            }
            // An integer cut off or too long is told by the field it belongs to.
            Err(_) => Err(what),
        }
    }

    fn take(&mut self, length: usize, too_long: &'static str) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(too_long)?;
        self.rest = rest;
        Ok(taken)
    }

    fn nullable_bytes(&mut self, too_long: &'static str) -> Result<Option<&'a [u8]>, &'static str> {
        match self.length("length of a key or value")? {
            Some(length) => self.take(length, too_long).map(Some),
            None => Ok(None),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, &'static str> {
        let length = self.length("length of a header key")?.ok_or("null header key")?;
        let key = self.take(length, "header key is longer than its record")?;
        let value = self.nullable_bytes("header value is longer than its record")?;
        Ok(Header { key, value })
    }
}

fn reason(error: VarintError) -> &'static str {
    match error {
        VarintError::Truncated => "record ends inside an integer",
        VarintError::OverLong => "integer is too long",
    }
}
