//! Looking at every record of a batch without keeping any of it.
//!
//! Checks the whole structure and tells, per record, the few things produce validation asks. Over
//! uncompressed records it reads in place; over a compressed block it decompresses through a small
//! buffer and forgets keys, values and headers as they pass.

use super::BatchError;
use super::batch::BatchView;
use super::codec::{Codec, Decoder};

/// Decompressed bytes held at a time, beside the codec's own block or window.
const BUFFER_BYTES: usize = 8 * 1024;

/// What a walk tells about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Position in the batch, from 0.
    pub index: i32,
    /// Bytes after the record's length field.
    pub bytes: i32,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

/// Walks the records of a batch; `each` sees them in order. More than `limit` decompressed bytes,
/// a structure that does not add up or bytes left over are errors, as is an error of `each`.
pub fn walk(
    batch: &BatchView<'_>,
    limit: usize,
    mut each: impl FnMut(Shape),
) -> Result<(), BatchError> {
    let (payload, count) = (batch.records_payload(), batch.header().record_count);
    match batch.codec()? {
        Codec::None => walk_decompressed(payload, count, each),
        codec => {
            let decoder = Decoder::new(codec, payload, limit)?;
            let buffer = vec![0; BUFFER_BYTES];
            records(&mut Stream { decoder, buffer, from: 0, to: 0, failed: None }, count, &mut each)
        }
    }
}

/// The same over the bytes of `count` records that are not, or no longer, compressed.
pub fn walk_decompressed(
    payload: &[u8],
    count: i32,
    mut each: impl FnMut(Shape),
) -> Result<(), BatchError> {
    records(&mut Slice(payload), count, &mut each)
}

fn records(
    input: &mut impl Input,
    count: i32,
    each: &mut impl FnMut(Shape),
) -> Result<(), BatchError> {
    if count < 0 {
        return Err(BatchError::Count(count));
    }
    for index in 0..count {
        if let Some(shape) = input.plain_record(index) {
            each(shape);
            continue;
        }
        match record(input, index) {
            Ok(shape) => each(shape),
            Err(reason) => {
                return Err(input.failure().unwrap_or(BatchError::Record { index, reason }));
            }
        }
    }
    match input.at_end() {
        true => input.failure().map_or(Ok(()), Err),
        false => Err(BatchError::TrailingBytes { count }),
    }
}

/// Why a record is malformed. Small, because every byte is read through a `Result` of it.
type Reason = &'static str;

fn record(input: &mut impl Input, index: i32) -> Result<Shape, Reason> {
    // The length field itself lies outside the length.
    let mut unbounded = u64::MAX;
    let length = varint(input, &mut unbounded)?;
    let mut left = u64::try_from(length).map_err(|_| "negative record length")?;
    byte(input, &mut left)?;
    let timestamp_delta = varlong(input, &mut left)?;
    let offset_delta = varint(input, &mut left)?;
    let has_key = nullable(input, &mut left, "key is longer than its record")?;
    nullable(input, &mut left, "value is longer than its record")?;
    let headers = varint(input, &mut left)?;
    let headers = u64::try_from(headers).map_err(|_| "negative header count")?;
    // A header takes two bytes at least, so this bounds the loop by the bytes that are there.
    if headers > left / 2 {
        return Err("more headers than the record has room for");
    }
    for _ in 0..headers {
        if !nullable(input, &mut left, "header key is longer than its record")? {
            return Err("null header key");
        }
        nullable(input, &mut left, "header value is longer than its record")?;
    }
    if left > 0 {
        return Err("record is longer than its fields");
    }
    Ok(Shape { index, bytes: length, timestamp_delta, offset_delta, has_key })
}

/// Passes a nullable run of bytes by; tells whether it was there.
#[inline]
fn nullable(input: &mut impl Input, left: &mut u64, too_long: Reason) -> Result<bool, Reason> {
    let Ok(length) = u64::try_from(varint(input, left)?) else {
        return Ok(false);
    };
    *left = left.checked_sub(length).ok_or(too_long)?;
    // A record length is an `i32`, and so is what lies inside it.
    input.skip(length as usize)?;
    Ok(true)
}

#[inline]
fn byte(input: &mut impl Input, left: &mut u64) -> Result<u8, Reason> {
    *left = left.checked_sub(1).ok_or("record ends inside a field")?;
    input.byte()
}

#[inline]
fn varint(input: &mut impl Input, left: &mut u64) -> Result<i32, Reason> {
    let first = byte(input, left)?;
    let mut raw = u32::from(first & 0x7f);
    // One byte is the common case: lengths below 64, small deltas, null markers.
    if first & 0x80 != 0 {
        raw = more_groups(input, left, raw)?;
    }
    Ok(((raw >> 1) as i32) ^ -((raw & 1) as i32))
}

fn more_groups(input: &mut impl Input, left: &mut u64, mut raw: u32) -> Result<u32, Reason> {
    for shift in [7, 14, 21, 28] {
        let next = byte(input, left)?;
        if shift == 28 && next > 0x0f {
            break;
        }
        raw |= u32::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(raw);
        }
    }
    Err("integer is too long")
}

#[inline]
fn varlong(input: &mut impl Input, left: &mut u64) -> Result<i64, Reason> {
    let mut raw = 0u64;
    for shift in (0..70).step_by(7) {
        let next = byte(input, left)?;
        if shift == 63 && next > 1 {
            break;
        }
        raw |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64));
        }
    }
    Err("integer is too long")
}

/// A whole record without headers whose integers are short, and what follows it: what nearly every
/// record is, at a fraction of the cost of reading it byte by byte. `None` says nothing about the record.
#[inline(always)]
fn plain(bytes: &[u8], index: i32) -> Option<(Shape, &[u8])> {
    let mut at = 0;
    let length = short(bytes, &mut at)?;
    let end = at + usize::try_from(length).ok()?;
    // The attributes say nothing.
    at += 1;
    let timestamp_delta = i64::from(short(bytes, &mut at)?);
    let offset_delta = short(bytes, &mut at)?;
    let key_bytes = short(bytes, &mut at)?;
    at += key_bytes.max(0) as usize;
    let value_bytes = short(bytes, &mut at)?;
    at += value_bytes.max(0) as usize;
    // The last byte is the number of headers. That it is the last one says that all else lay before it.
    if at + 1 != end || bytes.get(at) != Some(&0) {
        return None;
    }
    let has_key = key_bytes >= 0;
    let shape = Shape { index, bytes: length, timestamp_delta, offset_delta, has_key };
    Some((shape, bytes.get(end..)?))
}

/// An integer of at most three bytes, if four are there.
#[inline(always)]
fn short(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let four = u32::from_le_bytes(*bytes.get(*at..)?.first_chunk()?);
    let raw = if four & 0x80 == 0 {
        *at += 1;
        four & 0x7f
    } else if four & 0x8000 == 0 {
        *at += 2;
        (four & 0x7f) | (four >> 1 & 0x3f80)
    } else if four & 0x80_0000 == 0 {
        *at += 3;
        (four & 0x7f) | (four >> 1 & 0x3f80) | (four >> 2 & 0x1f_c000)
    } else {
        return None;
    };
    Some(((raw >> 1) as i32) ^ -((raw & 1) as i32))
}

const ENDS_EARLY: Reason = "records end before the last one";

/// Bytes that pass by.
trait Input {
    /// Passes the next record by at once, if that can be done.
    fn plain_record(&mut self, _index: i32) -> Option<Shape> {
        None
    }
    fn byte(&mut self) -> Result<u8, Reason>;
    fn skip(&mut self, length: usize) -> Result<(), Reason>;
    fn at_end(&mut self) -> bool;
    /// What stopped the bytes themselves, if it is not the records that are at fault.
    fn failure(&mut self) -> Option<BatchError>;
}

struct Slice<'a>(&'a [u8]);

impl Input for Slice<'_> {
    #[inline(always)]
    fn plain_record(&mut self, index: i32) -> Option<Shape> {
        let (shape, behind) = plain(self.0, index)?;
        self.0 = behind;
        Some(shape)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Reason> {
        let (byte, rest) = self.0.split_first().ok_or(ENDS_EARLY)?;
        self.0 = rest;
        Ok(*byte)
    }

    #[inline]
    fn skip(&mut self, length: usize) -> Result<(), Reason> {
        self.0 = self.0.get(length..).ok_or(ENDS_EARLY)?;
        Ok(())
    }

    fn at_end(&mut self) -> bool {
        self.0.is_empty()
    }

    fn failure(&mut self) -> Option<BatchError> {
        None
    }
}

struct Stream<'a> {
    decoder: Decoder<'a>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    failed: Option<BatchError>,
}

impl Stream<'_> {
    /// Makes at least one byte available; false at the end and at a failure.
    fn fill(&mut self) -> bool {
        self.from = 0;
        self.to = 0;
        match self.decoder.read(&mut self.buffer) {
            Ok(read) => self.to = read,
            Err(error) => self.failed = Some(error),
        }
        self.to > 0
    }
}

impl Input for Stream<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Reason> {
        if self.from == self.to && !self.fill() {
            return Err(ENDS_EARLY);
        }
        let byte = self.buffer.get(self.from).copied().ok_or(ENDS_EARLY)?;
        self.from += 1;
        Ok(byte)
    }

    #[inline]
    fn skip(&mut self, mut length: usize) -> Result<(), Reason> {
        loop {
            let passed = length.min(self.to - self.from);
            self.from += passed;
            length -= passed;
            if length == 0 {
                return Ok(());
            }
            if !self.fill() {
                return Err(ENDS_EARLY);
            }
        }
    }

    fn at_end(&mut self) -> bool {
        self.from == self.to && !self.fill()
    }

    fn failure(&mut self) -> Option<BatchError> {
        self.failed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::BatchBuilder;
    use super::*;
    use proptest::prelude::*;

    const BUFFER: i32 = BUFFER_BYTES as i32;

    fn shapes(bytes: &[u8], limit: usize) -> Result<Vec<Shape>, BatchError> {
        let mut seen = Vec::new();
        walk(&BatchView::parse(bytes)?, limit, |shape| seen.push(shape))?;
        Ok(seen)
    }

    fn batch(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new().codec(codec, None);
        let large = vec![b'v'; 3 * BUFFER_BYTES];
        let headers = [("a", Some(&b"1"[..])), ("b", None)];
        builder.append(100, Some(b"key"), Some(b"value"));
        builder.append_with_headers(90, None, Some(&large), &headers);
        builder.append(1_000_000, Some(&large), None);
        builder.build().unwrap()
    }

    #[test]
    fn tells_the_same_for_every_codec() {
        for codec in Codec::ALL {
            let shapes = shapes(&batch(codec), 1 << 20).unwrap();
            let expected = [
                (0, 14, 0, 0, true),
                (1, 3 * BUFFER + 15, -10, 1, false),
                (2, 3 * BUFFER + 10, 999_900, 2, true),
            ];
            let expected =
                expected.map(|(index, bytes, timestamp_delta, offset_delta, has_key)| Shape {
                    index,
                    bytes,
                    timestamp_delta,
                    offset_delta,
                    has_key,
                });
            assert_eq!(shapes, expected, "{codec}");
        }
    }

    /// A slice that is read byte by byte only.
    struct Slowly<'a>(Slice<'a>);

    impl Input for Slowly<'_> {
        fn byte(&mut self) -> Result<u8, Reason> {
            self.0.byte()
        }
        fn skip(&mut self, length: usize) -> Result<(), Reason> {
            self.0.skip(length)
        }
        fn at_end(&mut self) -> bool {
            self.0.at_end()
        }
        fn failure(&mut self) -> Option<BatchError> {
            None
        }
    }

    fn agree(payload: &[u8], count: i32) {
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        let at_once = walk_decompressed(payload, count, |shape| fast.push(shape));
        let slowly = records(&mut Slowly(Slice(payload)), count, &mut |shape| slow.push(shape));
        assert_eq!((at_once, fast), (slowly, slow), "{payload:?}");
    }

    proptest! {
        #[test]
        fn reading_at_once_tells_the_same_as_byte_by_byte(
            sizes in prop::collection::vec((0usize..300, 0usize..20_000, 0i64..1 << 36), 1..8),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut builder = BatchBuilder::new();
            for (key, value, time) in &sizes {
                let (key, value) = (vec![1; *key], vec![2; *value]);
                let key = (key.len() % 3 != 0).then_some(&key[..]);
                builder.append(*time, key, Some(&value));
            }
            let bytes = builder.build().unwrap();
            let whole = BatchView::parse(&bytes).unwrap().records_payload().to_vec();
            agree(&whole, sizes.len() as i32);
            agree(&whole[..cut.index(whole.len() + 1)], sizes.len() as i32);
            let mut damaged = whole.clone();
            for (at, bits) in &flips {
                let at = at.index(damaged.len());
                damaged[at] ^= bits;
            }
            agree(&damaged, sizes.len() as i32);
        }

        #[test]
        fn short_damaged_records_are_told_alike(bytes in prop::collection::vec(0u8..20, 0..40)) {
            agree(&bytes, 3);
        }
    }

    #[test]
    fn stops_at_the_limit() {
        for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::None) {
            let bytes = batch(codec);
            let size = BatchView::parse(&bytes).unwrap().records(1 << 20).unwrap();
            assert_eq!(size.count(), 3);
            let error = shapes(&bytes, 20_000).unwrap_err();
            assert_eq!(error, BatchError::TooLarge { limit: 20_000 }, "{codec}");
        }
    }
}
