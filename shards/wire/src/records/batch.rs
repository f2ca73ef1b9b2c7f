//! One record batch seen in place, and batches laid back to back.
//!
//! A view is made by checking lengths and magic only; checksum and records are asked for. It never
//! copies and never writes.

use super::BatchError;
use super::codec::{Codec, decompress};
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};
use super::record::RecordIter;
use std::borrow::Cow;

/// A whole batch in someone's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// A view of the batch that starts at the first byte; bytes behind it are left alone.
    ///
    /// Checks the lengths and the magic, nothing else.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let size = header.size_in_bytes();
        match bytes.get(..size) {
            Some(bytes) => Ok(BatchView { header, bytes }),
            None => Err(BatchError::Truncated { needed: size, available: bytes.len() }),
        }
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records as they lie: one compressed block if the batch has a codec.
    pub fn records_payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default()
    }

    pub fn codec(&self) -> Result<Codec, BatchError> {
        self.header.attributes.codec()
    }

    /// The checksum of the bytes as they are.
    pub fn compute_crc(&self) -> u32 {
        crc32c::crc32c(self.bytes.get(CRC_START..).unwrap_or_default())
    }

    /// Compares the checksum in the header with that of the bytes.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let computed = self.compute_crc();
        if computed == self.header.crc {
            Ok(())
        } else {
            Err(BatchError::Checksum { stored: self.header.crc, computed })
        }
    }

    /// The records' bytes, decompressed into at most `limit`; borrowed if there is no codec.
    pub fn decompressed(&self, limit: usize) -> Result<Cow<'a, [u8]>, BatchError> {
        match self.codec()? {
            Codec::None => Ok(Cow::Borrowed(self.records_payload())),
            codec => decompress(codec, self.records_payload(), limit).map(Cow::Owned),
        }
    }

    /// The records, decompressed into at most `limit` bytes; borrowed if there is no codec.
    pub fn records(&self, limit: usize) -> Result<RecordIter<'a>, BatchError> {
        RecordIter::new(&self.header, self.decompressed(limit)?)
    }
}

/// Walks batches laid back to back, as in a segment or in a fetch response.
///
/// Ends without an error at the end of the bytes, at a tail shorter than its batch (a fetch may cut
/// the last one) and at zeros (the prepared part of a segment); ends after the first error.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { rest: bytes, position: 0 }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    position: usize,
}

impl Batches<'_> {
    /// Bytes of the whole batches returned so far: where the next one starts.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let fixed = self.rest.get(..HEADER_BYTES)?;
        if fixed.iter().all(|byte| *byte == 0) {
            return None;
        }
        match BatchView::parse(self.rest) {
            Ok(view) => {
                let size = view.bytes().len();
                self.rest = self.rest.get(size..).unwrap_or_default();
                self.position += size;
                Some(Ok(view))
            }
            Err(BatchError::Truncated { .. }) => {
                self.rest = &[];
                None
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

impl std::iter::FusedIterator for Batches<'_> {}

#[cfg(test)]
mod tests {
    use super::super::builder::BatchBuilder;
    use super::*;

    fn batch(values: &[&str]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for value in values {
            builder.append(1000, None, Some(value.as_bytes()));
        }
        builder.build().unwrap()
    }

    #[test]
    fn parses_what_is_there_and_no_more() {
        let one = batch(&["a", "b"]);
        let mut two = one.clone();
        two.extend_from_slice(b"trailing");
        let view = BatchView::parse(&two).unwrap();
        assert_eq!(view.bytes(), one);
        assert_eq!(view.records_payload(), &one[61..]);
        assert_eq!(view.verify_crc(), Ok(()));
        for cut in 0..one.len() {
            assert!(
                matches!(BatchView::parse(&one[..cut]), Err(BatchError::Truncated { .. })),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_under_the_checksum_is_seen() {
        let good = batch(&["value"]);
        for byte in CRC_START..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                let view = BatchView::parse(&bad).unwrap();
                assert!(view.verify_crc().is_err(), "byte {byte} bit {bit}");
            }
        }
    }

    #[test]
    fn walks_back_to_back_batches_to_a_clean_end() {
        let (first, second) = (batch(&["a"]), batch(&["b", "c", "d"]));
        let mut bytes = [first.clone(), second.clone()].concat();
        let whole = bytes.len();
        for tail in [&[][..], &[0; 7], &[0; 200], &first[..30], &first[..first.len() - 1]] {
            bytes.truncate(whole);
            bytes.extend_from_slice(tail);
            let mut walk = batches(&bytes);
            let seen: Vec<_> = walk.by_ref().map(|b| b.unwrap().bytes().to_vec()).collect();
            assert_eq!(seen, [first.clone(), second.clone()]);
            assert_eq!(walk.position(), whole);
            assert!(walk.next().is_none());
        }
    }

    #[test]
    fn stops_after_the_first_error() {
        let good = batch(&["a"]);
        let mut bytes = [good.clone(), good.clone(), good.clone()].concat();
        bytes[good.len() + 16] = 1;
        let mut walk = batches(&bytes);
        assert!(walk.next().unwrap().is_ok());
        assert_eq!(walk.next(), Some(Err(BatchError::Magic(1))));
        assert_eq!(walk.next(), None);
        assert_eq!(walk.position(), good.len());
    }
}
