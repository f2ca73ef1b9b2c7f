//! Records of internal topics in words: group offsets, transactions, cluster metadata, and control
//! records of any topic. The messages are those of `wire`.

use std::path::Path;

use meta::MetadataRecord;
use wire::messages as m;
use wire::records::Record;
use wire::records::control::ControlType;
use wire::{Message, Reader};

/// Whose records a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Plain,
    GroupOffsets,
    Transactions,
    Metadata,
}

impl Topic {
    /// By the name of the folder that a segment is in.
    pub fn of_folder(segment: &Path) -> Topic {
        let folder = segment.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let topic =
            folder.as_deref().and_then(|name| name.rsplit_once('-')).map(|(topic, _)| topic);
        match topic {
            Some(meta::controller::GROUP_OFFSETS_TOPIC) => Topic::GroupOffsets,
            Some(meta::controller::TRANSACTION_STATE_TOPIC) => Topic::Transactions,
            Some(meta::controller::CLUSTER_METADATA_TOPIC) => Topic::Metadata,
            _ => Topic::Plain,
        }
    }

    /// Key and value in words; `None` for what is to be shown as bytes.
    pub fn decode(self, record: &Record<'_>) -> Option<(String, String)> {
        match self {
            Topic::Plain => None,
            Topic::Metadata => {
                let value = record.value?;
                let words = match MetadataRecord::from_bytes(value) {
                    Ok(record) => format!("{record:?}"),
                    Err(error) => format!("{error} ({} bytes)", value.len()),
                };
                Some(("null".to_owned(), words))
            }
            Topic::GroupOffsets => group_record(record.key?, record.value),
            Topic::Transactions => transaction_record(record.key?, record.value),
        }
    }

    /// A control record in words.
    pub fn decode_control(record: &Record<'_>) -> Option<(String, String)> {
        let kind = ControlType::from_key(record.key?)?;
        let value = match (kind, record.value) {
            (ControlType::Abort | ControlType::Commit, Some(value)) => {
                let epoch = value.get(2..6)?.first_chunk::<4>()?;
                format!("coordinatorEpoch {}", i32::from_be_bytes(*epoch))
            }
            (_, Some(value)) => format!("{} bytes", value.len()),
            (_, None) => "null".to_owned(),
        };
        let name = match kind {
            ControlType::Abort => "endTxnMarker ABORT".to_owned(),
            ControlType::Commit => "endTxnMarker COMMIT".to_owned(),
            other => format!("{other:?}"),
        };
        Some((name, value))
    }
}

/// A key or value: a version, then the message at that version.
fn versioned<'a, T: std::fmt::Debug>(
    bytes: &'a [u8],
    version: Option<i16>,
    decode: impl FnOnce(&mut Reader<'a>, i16) -> Result<T, wire::DecodeError>,
) -> Option<String> {
    let (stored, body) = bytes.split_first_chunk::<2>()?;
    let version = version.unwrap_or(i16::from_be_bytes(*stored));
    let mut reader = Reader::new(body);
    let message = decode(&mut reader, version).ok()?;
    (reader.remaining() == 0).then(|| format!("{message:?}"))
}

/// The version of a key says which kind it is; the key itself is always of version 0.
macro_rules! kinds {
    ($key:expr, $value:expr, $($number:literal => $k:ident, $v:ident;)+) => {{
        let (number, _) = $key.split_first_chunk::<2>()?;
        match i16::from_be_bytes(*number) {
            $($number => {
                let key = versioned($key, Some(0), m::$k::decode)?;
                let value = match $value {
                    None => "null".to_owned(),
                    Some(value) => versioned(value, None, m::$v::decode)?,
                };
                Some((key, value))
            })+
            _ => None,
        }
    }};
}

fn group_record(key: &[u8], value: Option<&[u8]>) -> Option<(String, String)> {
    kinds! { key, value,
        0 => LegacyOffsetCommitKey, OffsetCommitValue;
        1 => OffsetCommitKey, OffsetCommitValue;
        2 => GroupMetadataKey, GroupMetadataValue;
        3 => ConsumerGroupMetadataKey, ConsumerGroupMetadataValue;
        4 => ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue;
        5 => ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue;
        6 => ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue;
        7 => ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue;
        8 => ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue;
        10 => ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue;
        11 => ShareGroupMetadataKey, ShareGroupMetadataValue;
        12 => ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue;
        13 => ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue;
        14 => ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue;
        15 => ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue;
        16 => ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue;
        17 => StreamsGroupMetadataKey, StreamsGroupMetadataValue;
        19 => StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue;
        20 => StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue;
        21 => StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue;
        22 => StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue;
    }
}

fn transaction_record(key: &[u8], value: Option<&[u8]>) -> Option<(String, String)> {
    kinds! { key, value, 0 => TransactionLogKey, TransactionLogValue; }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::records::{BatchBuilder, BatchView};
    use wire::{Message, Writer};

    fn bytes<'a, T: Message<'a>>(prefix: i16, message: &T, version: i16) -> Vec<u8> {
        let mut writer = Writer::new();
        message.encode(&mut writer, version).unwrap();
        let mut bytes = prefix.to_be_bytes().to_vec();
        bytes.extend_from_slice(&writer.finish().bytes);
        bytes
    }

    fn decode(topic: Topic, key: &[u8], value: Option<&[u8]>) -> Option<(String, String)> {
        let mut builder = BatchBuilder::new();
        builder.append(0, Some(key), value);
        let batch = builder.build().unwrap();
        let mut records = BatchView::parse(&batch).unwrap().records(1 << 20).unwrap();
        topic.decode(&records.next_record().unwrap().unwrap())
    }

    #[test]
    fn group_offsets_and_transactions_are_said_in_words() {
        let key = m::OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
        let value = m::OffsetCommitValue { offset: 42, ..Default::default() };
        let (key, value) = (bytes(1, &key, 0), bytes(3, &value, 3));
        let (k, v) = decode(Topic::GroupOffsets, &key, Some(&value)).unwrap();
        assert!(k.contains("OffsetCommitKey") && k.contains("partition: 3"), "{k}");
        assert!(v.contains("offset: 42"), "{v}");
        assert_eq!(decode(Topic::GroupOffsets, &key, None).unwrap().1, "null");
        let key = m::TransactionLogKey { transactional_id: "x".into() };
        let value = m::TransactionLogValue { producer_id: 7, ..Default::default() };
        let (key, value) = (bytes(0, &key, 0), bytes(1, &value, 1));
        let (k, v) = decode(Topic::Transactions, &key, Some(&value)).unwrap();
        assert!(k.contains("\"x\"") && v.contains("producer_id: 7"), "{k} {v}");
    }

    #[test]
    fn what_is_not_understood_is_left_as_bytes() {
        for (key, value) in
            [(&b""[..], None), (b"\0", None), (b"\0\x63x", None), (b"\0\x01x", None)]
        {
            assert_eq!(decode(Topic::GroupOffsets, key, value), None, "{key:?}");
        }
        assert_eq!(decode(Topic::Plain, b"\0\x01", Some(b"v")), None);
    }

    #[test]
    fn a_folder_says_whose_records_it_has() {
        let of = |folder: &str| Topic::of_folder(&Path::new(folder).join("0.log"));
        assert_eq!(of("/d/__consumer_offsets-12"), Topic::GroupOffsets);
        assert_eq!(of("/d/__transaction_state-0"), Topic::Transactions);
        assert_eq!(of("/d/__cluster_metadata-0"), Topic::Metadata);
        assert_eq!(of("/d/orders-0"), Topic::Plain);
    }
}
