//! Records of `__consumer_offsets`: to bytes and from bytes, as Kafka 4.4 writes and reads them.
//!
//! ```text
//! key    | type i16    | fields of that key, never flexible |
//! value  | version i16 | fields of that version             |    null: the fact is gone
//! ```
//!
//! Types 0 and 1 are offsets, 2 a classic group, 3 to 8 and 16 a consumer group. Records of share
//! and streams groups are left alone: neither read nor rewritten.

use wire::messages as m;
use wire::{IntoOwned, Message, Reader, Writer};

use crate::error::CoordError;

macro_rules! records {
    ($($variant:ident($key:ident, $value:ident $(<$life:lifetime>)?) = $version:expr,)+) => {
        /// A fact about a group or one of its offsets; no value means that it is gone.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Record<'a> {
            $($variant(m::$key<'a>, Option<m::$value $(<$life>)?>),)+
        }

        impl<'a> Record<'a> {
            /// Reads a record; `None` for a type that is not ours to understand.
            pub fn read(key: &'a [u8], value: Option<&'a [u8]>) -> Result<Option<Self>, CoordError> {
                let mut reader = Reader::new(key);
                let kind = reader.i16()?;
                if kind == 0 {
                    return Self::read_legacy(reader, value).map(Some);
                }
                $(if Some(kind) == <m::$key<'_> as Message<'_>>::API_KEY {
                    let key = m::$key::decode(&mut reader, 0)?;
                    finished(&reader)?;
                    let value = value.map(|bytes| read_value::<m::$value $(<$life>)?>(bytes)).transpose()?;
                    return Ok(Some(Record::$variant(key, value)));
                })+
                Ok(None)
            }

            /// The key and, unless the fact is gone, the value.
            pub fn to_bytes(&self) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError> {
                match self {
                    $(Record::$variant(key, value) => {
                        let kind = <m::$key<'_> as Message<'_>>::API_KEY.unwrap_or(i16::MAX);
                        let version = |value: &m::$value $(<$life>)?| -> i16 { ($version)(value) };
                        let value = value.as_ref().map(|value| write(version(value), version(value), value));
                        Ok((write(kind, 0, key)?, value.transpose()?))
                    })+
                }
            }

            /// The same, without borrows.
            pub fn into_owned(self) -> Record<'static> {
                match self {
                    $(Record::$variant(key, value) =>
                        Record::$variant(key.into_owned(), value.into_owned()),)+
                }
            }

            /// Kafka's name of the record's key.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Record::$variant(..) => <m::$key<'_> as Message<'_>>::NAME,)+
                }
            }
        }
    };
}

records! {
    OffsetCommit(OffsetCommitKey, OffsetCommitValue<'a>) =
        |value: &m::OffsetCommitValue<'_>| if value.expire_timestamp < 0 { 4 } else { 1 },
    GroupMetadata(GroupMetadataKey, GroupMetadataValue<'a>) = |_: &m::GroupMetadataValue<'_>| 3,
    ConsumerGroup(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue) = |_: &_| 0,
    ConsumerPartitions(
        ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue<'a>
    ) = |_: &_| 0,
    ConsumerMember(
        ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue<'a>
    ) = |_: &_| 0,
    ConsumerTargetEpoch(
        ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
    ) = |_: &_| 0,
    ConsumerTarget(
        ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue<'a>
    ) = |_: &_| 0,
    ConsumerCurrent(
        ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue<'a>
    ) = |_: &_| 0,
    ConsumerRegex(
        ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue<'a>
    ) = |_: &_| 0,
}

impl<'a> Record<'a> {
    /// Offsets under the key of before 2012: read, never written.
    fn read_legacy(mut reader: Reader<'a>, value: Option<&'a [u8]>) -> Result<Self, CoordError> {
        let m::LegacyOffsetCommitKey { group, topic, partition } =
            m::LegacyOffsetCommitKey::decode(&mut reader, 0)?;
        finished(&reader)?;
        let value = value.map(read_value::<m::OffsetCommitValue<'_>>).transpose()?;
        Ok(Record::OffsetCommit(m::OffsetCommitKey { group, topic, partition }, value))
    }
}

/// What a record takes in the log at most; without bound if it cannot be written at all.
pub(crate) fn record_bytes(record: &Record<'_>) -> usize {
    record.to_bytes().map_or(usize::MAX, |(key, value)| {
        key.len() + value.map_or(0, |value| value.len()) + FRAME_BYTES_MAX
    })
}

/// A record's lengths, attributes and deltas, each as long as it gets.
const FRAME_BYTES_MAX: usize = 40;

pub(crate) fn read_value<'a, V: Message<'a>>(bytes: &'a [u8]) -> Result<V, CoordError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    let value = V::decode(&mut reader, version)?;
    finished(&reader)?;
    Ok(value)
}

pub(crate) fn finished(reader: &Reader<'_>) -> Result<(), CoordError> {
    match reader.remaining() {
        0 => Ok(()),
        left => Err(CoordError::Trailing(left)),
    }
}

pub(crate) fn write<'a, M: Message<'a>>(
    head: i16,
    version: i16,
    body: &M,
) -> Result<Vec<u8>, CoordError> {
    let mut writer = Writer::new();
    writer.i16(head);
    body.encode(&mut writer, version)?;
    Ok(writer.finish().bytes.to_vec())
}
