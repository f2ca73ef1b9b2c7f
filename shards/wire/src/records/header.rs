//! The fixed part of a record batch, and the bytes of it that a leader may write.
//!
//! ```text
//!  0        8      12    16 17   21 23   27        35        43        51  53    57    61
//!  | base   | batch| lead|m| crc |at| last| base    | max     | producer| ep| base| rec |
//!  | offset | len  | ep. |2|     |tr| dlt | timest. | timest. | id      |   | seq | cnt |
//!  '------ stamped -----'        '------------- covered by the CRC, to the end ----------
//! ```
//!
//! All big-endian. The first 12 + 4 bytes lie outside the checksum, so a leader assigns offsets and
//! its epoch without reading the rest. Nothing here checks a checksum or looks at records.

use super::BatchError;
use super::codec::Codec;

/// Bytes in front of the records.
pub const HEADER_BYTES: usize = 61;
/// Bytes in front of what `batch_length` counts.
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// First byte that the checksum covers.
pub const CRC_START: usize = 21;
pub const MAGIC: i8 = 2;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_TIMESTAMP: i64 = -1;
pub const NO_LEADER_EPOCH: i32 = -1;

pub(super) const LEADER_EPOCH_AT: usize = 12;
pub const MAGIC_AT: usize = 16;
pub const CRC_AT: usize = 17;
pub(super) const ATTRIBUTES_AT: usize = 21;
pub(super) const MAX_TIMESTAMP_AT: usize = 35;

/// Who set the timestamps of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer.
    #[default]
    Create,
    /// The broker, when it appended; every record then has the batch's maximum timestamp.
    LogAppend,
}

/// The attribute bits of a batch.
///
/// Bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon; the rest zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    pub fn codec(self) -> Result<Codec, BatchError> {
        let bits = (self.0 & Self::CODEC) as u8;
        Codec::from_bits(bits).ok_or(BatchError::UnknownCodec(bits))
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::Create
        } else {
            TimestampType::LogAppend
        }
    }

    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp holds the time after which tombstones may go.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    pub fn with_codec(self, codec: Codec) -> Self {
        Attributes((self.0 & !Self::CODEC) | i16::from(codec.bits()))
    }

    pub fn with_timestamp_type(self, kind: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, kind == TimestampType::LogAppend)
    }

    pub fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    pub fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    pub fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }

    /// Without bits that have no meaning yet, as a broker that writes attributes leaves them.
    pub fn known_bits(self) -> Self {
        Attributes(self.0 & 0x7f)
    }

    fn with(self, bit: i16, on: bool) -> Self {
        Attributes(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// The header of a batch, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after this field; the whole batch is 12 longer.
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    /// Milliseconds; what the records' timestamps are relative to (or the delete horizon).
    pub base_timestamp: i64,
    /// Milliseconds; -1 for none.
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the fixed fields and checks that magic and length can be those of a v2 batch.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(short_header(bytes));
        };
        let header = Self::decode(fixed);
        if header.magic != MAGIC {
            return Err(BatchError::Magic(header.magic));
        }
        if header.batch_length < (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err(BatchError::Length(header.batch_length));
        }
        Ok(header)
    }

    fn decode(b: &[u8; HEADER_BYTES]) -> Self {
        fn at<const N: usize>(b: &[u8; HEADER_BYTES], from: usize) -> [u8; N] {
            let mut field = [0; N];
            field.copy_from_slice(&b[from..from + N]);
            field
        }
        BatchHeader {
            base_offset: i64::from_be_bytes(at(b, 0)),
            batch_length: i32::from_be_bytes(at(b, 8)),
            partition_leader_epoch: i32::from_be_bytes(at(b, LEADER_EPOCH_AT)),
            magic: i8::from_be_bytes(at(b, MAGIC_AT)),
            crc: u32::from_be_bytes(at(b, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(at(b, ATTRIBUTES_AT))),
            last_offset_delta: i32::from_be_bytes(at(b, 23)),
            base_timestamp: i64::from_be_bytes(at(b, 27)),
            max_timestamp: i64::from_be_bytes(at(b, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(at(b, 43)),
            producer_epoch: i16::from_be_bytes(at(b, 51)),
            base_sequence: i32::from_be_bytes(at(b, 53)),
            record_count: i32::from_be_bytes(at(b, 57)),
        }
    }

    /// The header as it stands on the wire. `crc` is written as it is, not computed.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        b[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        b[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        b[16] = self.magic as u8;
        b[17..21].copy_from_slice(&self.crc.to_be_bytes());
        b[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        b[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        b[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        b[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        b[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        b[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        b[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        b[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        b
    }

    /// Size of the whole batch, header included.
    pub fn size_in_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + usize::try_from(self.batch_length).unwrap_or(0)
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after the batch. Not `base + count`: compaction leaves holes.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Sequence of the last record; after 2147483647 comes 0. -1 if the batch has none.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        add_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// `sequence + n` in the producers' arithmetic, where 0 follows 2147483647.
pub fn add_sequence(sequence: i32, n: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(n);
    if sum > i64::from(i32::MAX) { (sum - (1 << 31)) as i32 } else { sum as i32 }
}

/// Writes base offset and leader epoch into a batch: the 12 bytes a leader decides.
///
/// Panics if `batch` is shorter than a header: it must have been parsed before.
pub fn stamp(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    assert!(batch.len() >= HEADER_BYTES, "only a parsed batch may be stamped");
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// A short prefix of an old-format message is told by its magic, if that far.
fn short_header(bytes: &[u8]) -> BatchError {
    match bytes.get(MAGIC_AT) {
        Some(magic) if *magic as i8 != MAGIC => BatchError::Magic(*magic as i8),
        _ => BatchError::Truncated { needed: HEADER_BYTES, available: bytes.len() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn sample() -> BatchHeader {
        BatchHeader {
            base_offset: 0x0102_0304_0506_0708,
            batch_length: 49,
            partition_leader_epoch: 0x1112_1314,
            magic: MAGIC,
            crc: 0xdead_beef,
            attributes: Attributes(0x0014),
            last_offset_delta: 6,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: 1_700_000_000_005,
            producer_id: 4000,
            producer_epoch: 3,
            base_sequence: i32::MAX - 2,
            record_count: 7,
        }
    }

    #[test]
    fn encodes_and_parses_every_field() {
        let header = sample();
        let bytes = header.encode();
        assert_eq!(BatchHeader::parse(&bytes), Ok(header));
        assert_eq!(&bytes[0..12], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 49]);
        assert_eq!(header.size_in_bytes(), 61);
        assert_eq!(header.last_offset(), 0x0102_0304_0506_070e);
        assert_eq!(header.attributes.codec(), Ok(Codec::Zstd));
        assert!(header.attributes.is_transactional());
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(sample().last_sequence(), 3);
        assert_eq!(add_sequence(i32::MAX, 1), 0);
        assert_eq!(add_sequence(5, 4), 9);
        let none = BatchHeader { base_sequence: NO_SEQUENCE, ..sample() };
        assert_eq!(none.last_sequence(), NO_SEQUENCE);
    }

    #[test]
    fn refuses_impossible_headers() {
        let short = BatchHeader { batch_length: 48, ..sample() }.encode();
        assert_eq!(BatchHeader::parse(&short), Err(BatchError::Length(48)));
        let negative = BatchHeader { batch_length: -1, ..sample() }.encode();
        assert_eq!(BatchHeader::parse(&negative), Err(BatchError::Length(-1)));
        let old = BatchHeader { magic: 1, ..sample() }.encode();
        assert_eq!(BatchHeader::parse(&old), Err(BatchError::Magic(1)));
        assert_eq!(BatchHeader::parse(&old[..17]), Err(BatchError::Magic(1)));
        assert_eq!(
            BatchHeader::parse(&sample().encode()[..60]),
            Err(BatchError::Truncated { needed: 61, available: 60 })
        );
    }

    #[test]
    fn stamp_touches_only_its_bytes() {
        let mut bytes = sample().encode();
        stamp(&mut bytes, 42, 7);
        let expected = BatchHeader { base_offset: 42, partition_leader_epoch: 7, ..sample() };
        assert_eq!(bytes, expected.encode());
    }

    #[test]
    fn attribute_bits() {
        let all = Attributes::default()
            .with_codec(Codec::Lz4)
            .with_timestamp_type(TimestampType::LogAppend)
            .with_transactional(true)
            .with_control(true)
            .with_delete_horizon(true);
        assert_eq!(all.0, 0b111_1011);
        assert_eq!(all.with_timestamp_type(TimestampType::Create).0, 0b111_0011);
        assert!(all.is_control() && all.has_delete_horizon());
        assert_eq!(Attributes(5).codec(), Err(BatchError::UnknownCodec(5)));
    }
}
