//! A checked cursor over received bytes. Every read may fail; none panics, none allocates.

use super::error::DecodeError;

/// Longest text the protocol allows, in bytes (a length is an int16 before flexible versions).
pub(crate) const TEXT_BYTES_MAX: usize = i16::MAX as usize;

#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

macro_rules! fixed {
    ($($name:ident $type:ty),*) => {$(
        #[inline]
        pub fn $name(&mut self) -> Result<$type, DecodeError> {
            Ok(<$type>::from_be_bytes(self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, position: 0 }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// What has not been read yet, without moving.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The bytes read since `start`, an earlier [`position`](Self::position).
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.position).unwrap_or_default()
    }

    /// Refuses bytes after the value; for callers to whom the reader is the whole value.
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest().get(..length).ok_or_else(|| self.truncated(length))?;
        self.position += length;
        Ok(taken)
    }

    #[inline]
    pub fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        self.take(length).map(|_| ())
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = *self.rest().first_chunk::<N>().ok_or_else(|| self.truncated(N))?;
        self.position += N;
        Ok(bytes)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { needed, remaining: self.remaining() }
    }

    fixed!(u8 u8, i8 i8, u16 u16, i16 i16, u32 u32, i32 i32, u64 u64, i64 i64, f64 f64);

    /// Sixteen raw bytes.
    #[inline]
    pub fn uuid(&mut self) -> Result<super::Uuid, DecodeError> {
        self.array().map(super::Uuid)
    }

    /// Unsigned base-128, at most 5 bytes (the lengths, counts and tags of flexible versions).
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u32::from(first));
        }
        let wide = self.groups(first, 5)?;
        u32::try_from(wide).map_err(|_| DecodeError::Varint)
    }

    /// Unsigned base-128, at most 10 bytes.
    pub fn uvarlong(&mut self) -> Result<u64, DecodeError> {
        let first = self.u8()?;
        self.groups(first, 10)
    }

    /// Zig-zag base-128, at most 5 bytes (lengths inside records).
    #[inline]
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let raw = self.uvarint()?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// Zig-zag base-128, at most 10 bytes (timestamps inside records).
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let raw = self.uvarlong()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn groups(&mut self, first: u8, bytes_max: u32) -> Result<u64, DecodeError> {
        let mut value = u64::from(first & 0x7f);
        let mut group = first;
        let mut count = 1;
        while group >= 0x80 {
            if count == bytes_max {
                return Err(DecodeError::Varint);
            }
            group = self.u8()?;
            let bits = u64::from(group & 0x7f);
            let shift = 7 * count;
            if (bits << shift) >> shift != bits {
                return Err(DecodeError::Varint);
            }
            value |= bits << shift;
            count += 1;
        }
        Ok(value)
    }

    /// The length of a nullable array or byte string: int32, or compact (N + 1) if `flexible`.
    #[inline]
    pub fn nullable_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_length();
        }
        signed_length(i64::from(self.i32()?))
    }

    #[inline]
    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        // Kafka's lengths are int32; a longer claim could not be in a frame either.
        match self.uvarint()?.checked_sub(1) {
            Some(length) if length > i32::MAX as u32 => Err(DecodeError::Length(length.into())),
            length => Ok(length.map(|length| length as usize)),
        }
    }

    #[inline]
    pub fn nullable_text(&mut self, flexible: bool) -> Result<Option<&'a str>, DecodeError> {
        let length = match flexible {
            true => self.compact_length()?,
            false => signed_length(i64::from(self.i16()?))?,
        };
        let Some(length) = length else { return Ok(None) };
        if length > TEXT_BYTES_MAX {
            return Err(DecodeError::Length(length as i64));
        }
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::Utf8)
    }

    #[inline]
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.nullable_length(flexible)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses an element count that the remaining bytes cannot hold, before anything is done
    /// with it. `element_bytes_min` is at least 1 for every type of the schema.
    #[inline]
    pub fn check_count(&self, count: usize, element_bytes_min: usize) -> Result<(), DecodeError> {
        let needed = count.checked_mul(element_bytes_min.max(1));
        match needed.is_some_and(|needed| needed <= self.remaining()) {
            true => Ok(()),
            false => Err(DecodeError::Count { count: count as u64, remaining: self.remaining() }),
        }
    }

    /// Opens a section of tagged fields: how many follow. Each takes two bytes or more.
    #[inline]
    pub fn tag_count(&mut self) -> Result<usize, DecodeError> {
        let count = self.uvarint()? as usize;
        self.check_count(count, 2)?;
        Ok(count)
    }

    /// The next tagged field: its tag, and a reader over its bytes alone. `previous` is the tag
    /// before it; tags ascend (KIP-482), so a repeated one cannot overwrite the first.
    pub fn tagged(&mut self, previous: &mut Option<u32>) -> Result<(u32, Self), DecodeError> {
        let tag = self.uvarint()?;
        if previous.is_some_and(|previous| previous >= tag) {
            return Err(DecodeError::TagOrder);
        }
        *previous = Some(tag);
        let size = self.uvarint()? as usize;
        Ok((tag, Reader::new(self.take(size)?)))
    }

    /// Passes over a section of tagged fields of which none is known.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        let mut previous = None;
        for _ in 0..self.tag_count()? {
            self.tagged(&mut previous)?;
        }
        Ok(())
    }
}

/// -1 is null; any other negative length is nonsense.
#[inline]
fn signed_length(length: i64) -> Result<Option<usize>, DecodeError> {
    match length {
        -1 => Ok(None),
        0.. => Ok(Some(length as usize)),
        _ => Err(DecodeError::Length(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zig_zag_vectors() {
        let vectors: [(i32, &[u8]); 8] = [
            (0, &[0x00]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (300, &[0xd8, 0x04]),
            (-300, &[0xd7, 0x04]),
        ];
        for (value, bytes) in vectors {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
            assert_eq!(Reader::new(bytes).varlong(), Ok(i64::from(value)));
        }
    }

    #[test]
    fn extremes_of_variable_length_integers() {
        let most = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(Reader::new(&most).uvarint(), Ok(u32::MAX));
        assert_eq!(Reader::new(&most).varint(), Ok(i32::MIN));
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader::new(&longest).uvarlong(), Ok(u64::MAX));
        assert_eq!(Reader::new(&longest).varlong(), Ok(i64::MIN));
    }

    #[test]
    fn overlong_variable_length_integers_are_refused() {
        for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]] {
            assert_eq!(Reader::new(bytes).uvarint(), Err(DecodeError::Varint));
            assert_eq!(Reader::new(bytes).varint(), Err(DecodeError::Varint));
        }
        let mut eleven = [0x80; 11];
        eleven[10] = 0;
        assert_eq!(Reader::new(&eleven).uvarlong(), Err(DecodeError::Varint));
        let mut overflowing = [0xff; 10];
        overflowing[9] = 0x02;
        assert_eq!(Reader::new(&overflowing).varlong(), Err(DecodeError::Varint));
    }

    #[test]
    fn null_empty_and_nonsense_lengths() {
        assert_eq!(Reader::new(&[0xff, 0xff]).nullable_text(false), Ok(None));
        assert_eq!(Reader::new(&[0, 0]).nullable_text(false), Ok(Some("")));
        assert_eq!(Reader::new(&[0]).nullable_text(true), Ok(None));
        assert_eq!(Reader::new(&[1]).nullable_text(true), Ok(Some("")));
        let negative = Reader::new(&[0xff, 0xfe]).nullable_text(false);
        assert_eq!(negative, Err(DecodeError::Length(-2)));
        let huge = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).nullable_length(true);
        assert_eq!(huge, Err(DecodeError::Length(i64::from(u32::MAX - 1))));
        let long = [&[0x81, 0x80, 0x02][..], &[b'a'; 0x8000]].concat();
        assert_eq!(Reader::new(&long).nullable_text(true), Err(DecodeError::Length(0x8000)));
    }

    #[test]
    fn unknown_tags_are_passed_over_and_order_is_kept() {
        let mut reader = Reader::new(&[2, 0, 1, 0xaa, 5, 0, 0x77]);
        assert_eq!(reader.skip_tags(), Ok(()));
        assert_eq!(reader.u8(), Ok(0x77));
        assert_eq!(Reader::new(&[2, 5, 0, 5, 0]).skip_tags(), Err(DecodeError::TagOrder));
        assert_eq!(Reader::new(&[2, 5, 0, 4, 0]).skip_tags(), Err(DecodeError::TagOrder));
        let beyond = Reader::new(&[1, 0, 9, 1]).skip_tags();
        assert_eq!(beyond, Err(DecodeError::Truncated { needed: 9, remaining: 1 }));
        let many = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).skip_tags();
        assert_eq!(many, Err(DecodeError::Count { count: u64::from(u32::MAX), remaining: 2 }));
    }
}
