//! Growing output of one message. Record batches that the caller holds elsewhere are not copied
//! in: the writer notes where they belong and counts their bytes (a splice).

use bytes::{BufMut, Bytes, BytesMut};

use super::error::EncodeError;
use super::reader::TEXT_BYTES_MAX;

#[derive(Debug, Default)]
pub struct Writer {
    bytes: BytesMut,
    splices: Vec<Splice>,
}

/// `len` bytes that the caller sends itself before the byte at `at` of the written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    pub at: usize,
    pub len: usize,
}

#[derive(Debug)]
pub struct Output {
    pub bytes: BytesMut,
    pub splices: Vec<Splice>,
}

/// What to send, in order: written bytes, or the next splice's bytes from the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Written(Bytes),
    Splice(usize),
}

/// An open section of tagged fields; see [`Writer::begin_tags`].
#[must_use]
#[derive(Debug)]
pub struct Tags {
    count_at: usize,
    count: u8,
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Writer { bytes: BytesMut::with_capacity(capacity), splices: Vec::new() }
    }

    pub fn finish(self) -> Output {
        Output { bytes: self.bytes, splices: self.splices }
    }

    /// Bytes written so far, without those of splices.
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the whole output, splices included.
    pub fn total_len(&self) -> usize {
        self.bytes.len() + self.splices.iter().map(|splice| splice.len).sum::<usize>()
    }

    #[inline]
    pub fn slice(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes.put_u8(value);
    }

    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.bytes.put_i8(value);
    }

    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes.put_u16(value);
    }

    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.bytes.put_i16(value);
    }

    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.put_u32(value);
    }

    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.bytes.put_i32(value);
    }

    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.put_u64(value);
    }

    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.bytes.put_i64(value);
    }

    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.bytes.put_f64(value);
    }

    #[inline]
    pub fn uvarint(&mut self, value: u32) {
        self.uvarlong(u64::from(value));
    }

    #[inline]
    pub fn uvarlong(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    #[inline]
    pub fn varint(&mut self, value: i32) {
        self.uvarint(((value << 1) ^ (value >> 31)) as u32);
    }

    #[inline]
    pub fn varlong(&mut self, value: i64) {
        self.uvarlong(((value << 1) ^ (value >> 63)) as u64);
    }

    /// The length of a nullable array or byte string: int32, or compact (N + 1) if `flexible`.
    pub fn nullable_length(
        &mut self,
        length: Option<usize>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        let signed = match length {
            Some(length) => i32::try_from(length).map_err(|_| EncodeError::Length(length))?,
            None => -1,
        };
        match flexible {
            true => self.uvarint((i64::from(signed) + 1) as u32),
            false => self.i32(signed),
        }
        Ok(())
    }

    pub fn nullable_text(&mut self, text: Option<&str>, flexible: bool) -> Result<(), EncodeError> {
        let Some(text) = text else {
            match flexible {
                true => self.u8(0),
                false => self.i16(-1),
            }
            return Ok(());
        };
        if text.len() > TEXT_BYTES_MAX {
            return Err(EncodeError::Length(text.len()));
        }
        match flexible {
            true => self.uvarint(text.len() as u32 + 1),
            false => self.i16(text.len() as i16),
        }
        self.slice(text.as_bytes());
        Ok(())
    }

    pub fn nullable_bytes(
        &mut self,
        bytes: Option<&[u8]>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        self.nullable_length(bytes.map(<[u8]>::len), flexible)?;
        self.slice(bytes.unwrap_or_default());
        Ok(())
    }

    /// Leaves room for `length` bytes that the caller sends itself.
    pub fn splice(&mut self, length: usize) {
        self.splices.push(Splice { at: self.bytes.len(), len: length });
    }

    /// Overwrites four bytes written before, such as a length known only at the end.
    ///
    /// # Panics
    /// If the four bytes at `at` have not been written: a mistake of the caller.
    pub fn patch_i32(&mut self, at: usize, value: i32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Opens a section of tagged fields. Tags follow in ascending order, then [`end_tags`].
    ///
    /// [`end_tags`]: Self::end_tags
    pub fn begin_tags(&mut self) -> Tags {
        let count_at = self.bytes.len();
        self.u8(0);
        Tags { count_at, count: 0 }
    }

    /// Opens one tagged field; the result goes to [`end_tag`](Self::end_tag).
    pub fn begin_tag(&mut self, tags: &mut Tags, tag: u32) -> usize {
        tags.count += 1;
        self.uvarint(tag);
        self.u8(0);
        self.bytes.len()
    }

    /// Closes a tagged field: its size goes before it, moving it if the size takes over a byte.
    pub fn end_tag(&mut self, start: usize) {
        let spliced = self.splices.iter().filter(|splice| splice.at >= start);
        let size = self.bytes.len() - start + spliced.map(|splice| splice.len).sum::<usize>();
        let shift = uvarint_len(size) - 1;
        let end = self.bytes.len();
        self.bytes.resize(end + shift, 0);
        self.bytes.copy_within(start..end, start + shift);
        let mut rest = size;
        for group in &mut self.bytes[start - 1..start + shift] {
            *group = rest as u8 | 0x80;
            rest >>= 7;
        }
        self.bytes[start + shift - 1] &= 0x7f;
        for splice in self.splices.iter_mut().filter(|splice| splice.at >= start) {
            splice.at += shift;
        }
    }

    pub fn end_tags(&mut self, tags: Tags) {
        // The schema is far from 128 tags a struct, so the count stays one byte.
        assert!(tags.count < 0x80, "a section of tagged fields holds at most 127");
        self.bytes[tags.count_at] = tags.count;
    }

    /// A section of tagged fields without any.
    pub fn no_tags(&mut self) {
        self.u8(0);
    }
}

impl Output {
    /// Cuts the output at its splices.
    pub fn into_pieces(self) -> Vec<Piece> {
        let mut rest = self.bytes.freeze();
        let mut pieces = Vec::with_capacity(2 * self.splices.len() + 1);
        let mut sent = 0;
        for splice in self.splices {
            if splice.at > sent {
                pieces.push(Piece::Written(rest.split_to(splice.at - sent)));
                sent = splice.at;
            }
            pieces.push(Piece::Splice(splice.len));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Written(rest));
        }
        pieces
    }
}

fn uvarint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::super::reader::Reader;
    use super::*;

    #[test]
    fn variable_length_integers_read_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let mut writer = Writer::new();
            writer.uvarint(value);
            writer.varint(value as i32);
            writer.varlong(i64::MIN + i64::from(value));
            let mut reader = Reader::new(writer.written());
            assert_eq!(reader.uvarint(), Ok(value));
            assert_eq!(reader.varint(), Ok(value as i32));
            assert_eq!(reader.varlong(), Ok(i64::MIN + i64::from(value)));
            assert_eq!(reader.end(), Ok(()));
            assert_eq!(uvarint_len(value as usize), {
                let mut alone = Writer::new();
                alone.uvarint(value);
                alone.written().len()
            });
        }
    }

    #[test]
    fn tagged_sizes_of_one_two_and_three_bytes() {
        for size in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let mut writer = Writer::new();
            let mut tags = writer.begin_tags();
            let start = writer.begin_tag(&mut tags, 3);
            writer.slice(&vec![0x5a; size]);
            writer.end_tag(start);
            writer.end_tags(tags);
            let mut reader = Reader::new(writer.written());
            assert_eq!(reader.tag_count(), Ok(1));
            let (tag, field) = reader.tagged(&mut None).unwrap();
            assert_eq!((tag, field.rest()), (3, &vec![0x5a; size][..]));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_splice_inside_a_tagged_field_counts_and_moves_with_it() {
        let mut writer = Writer::new();
        let mut tags = writer.begin_tags();
        let start = writer.begin_tag(&mut tags, 0);
        writer.u8(9);
        writer.splice(200);
        writer.end_tag(start);
        writer.end_tags(tags);
        let output = writer.finish();
        assert_eq!(&output.bytes[..], &[1, 0, 0xc9, 0x01, 9]);
        assert_eq!(output.splices, [Splice { at: 5, len: 200 }]);
    }

    #[test]
    fn output_is_cut_at_its_splices() {
        let mut writer = Writer::new();
        writer.splice(7);
        writer.slice(b"ab");
        writer.splice(8);
        writer.splice(9);
        writer.slice(b"c");
        assert_eq!(writer.total_len(), 27);
        let pieces = writer.finish().into_pieces();
        let written = |bytes: &'static [u8]| Piece::Written(Bytes::from_static(bytes));
        let expected =
            [Piece::Splice(7), written(b"ab"), Piece::Splice(8), Piece::Splice(9), written(b"c")];
        assert_eq!(pieces, expected);
    }
}
