//! Records of internal topics in words and as JSON: group offsets, transactions, cluster metadata,
//! and control records of any topic. The messages are those of `wire`, the names in JSON those of
//! Kafka's schemas.
//!
//! ```json
//! {"type": "OffsetCommitKey", "version": 1, "data": {"group": "g", "topic": "t", "partition": 3}}
//! {"version": 99, "base64": "AGN4"}                         a version that is not known, or damage
//! ```

use std::fmt::Debug;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value as Json, json};
use wire::messages as m;
use wire::records::Record;
use wire::records::control::ControlType;
use wire::{DecodeError, Message, Reader, Show, Shown};

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

    /// Key and value of a record; `None` for what is to be shown as bytes.
    pub fn decode(self, record: &Record<'_>) -> Option<(Shape, Shape)> {
        match self {
            Topic::Plain => None,
            Topic::Metadata => Some((Shape::bytes(record.key), metadata_record(record.value))),
            Topic::GroupOffsets => Some(group_record(record.key, record.value)),
            Topic::Transactions => Some(transaction_record(record.key, record.value)),
        }
    }

    /// Key and value of a control record.
    pub fn decode_control(record: &Record<'_>) -> Option<(Shape, Shape)> {
        let key = record.key?;
        let kind = ControlType::from_key(key)?;
        let (name, text) = match kind {
            ControlType::Abort => ("ABORT".to_owned(), "endTxnMarker ABORT".to_owned()),
            ControlType::Commit => ("COMMIT".to_owned(), "endTxnMarker COMMIT".to_owned()),
            other => (format!("{other:?}"), format!("{other:?}")),
        };
        let version = version_of(key).unwrap_or(0);
        let json = json!({"type": "ControlRecord", "version": version, "data": {"control": name}});
        let key = Shape { text: Text::Words(text), json };
        let value = match (kind, record.value) {
            (ControlType::Abort | ControlType::Commit, Some(value)) => {
                let epoch = i32::from_be_bytes(*value.get(2..6)?.first_chunk::<4>()?);
                let text = Text::Words(format!("coordinatorEpoch {epoch}"));
                let version = version_of(value).unwrap_or(0);
                let data = json!({"coordinatorEpoch": epoch});
                let json = json!({"type": "EndTxnMarker", "version": version, "data": data});
                Shape { text, json }
            }
            (_, Some(value)) => {
                let text = Text::Words(format!("{} bytes", value.len()));
                Shape { text, ..Shape::bytes(Some(value)) }
            }
            (_, None) => Shape::bytes(None),
        };
        Some((key, value))
    }
}

/// A key or a value, as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub text: Text,
    pub json: Json,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    Words(String),
    /// It was not understood.
    Bytes(Vec<u8>),
}

impl Shape {
    /// What is not understood; nothing is null.
    fn bytes(bytes: Option<&[u8]>) -> Shape {
        let Some(bytes) = bytes else {
            return Shape { text: Text::Words("null".to_owned()), json: Json::Null };
        };
        let mut json = json!({"base64": BASE64.encode(bytes)});
        if let (Some(version), Some(fields)) = (version_of(bytes), json.as_object_mut()) {
            fields.insert("version".to_owned(), version.into());
        }
        Shape { text: Text::Bytes(bytes.to_vec()), json }
    }

    /// A message whose version is shown beside it. `None` if it cannot be read, or more follows.
    fn message<'a, T: Message<'a> + Show + Debug>(
        mut reader: Reader<'a>,
        (version, shown_version): (i16, i16),
        decode: Decode<'a, T>,
    ) -> Option<Shape> {
        let number = T::version(version)?;
        let message = decode(&mut reader, version).ok()?;
        let data = json_of(message.show(number));
        let json = json!({"type": T::NAME, "version": shown_version, "data": data});
        (reader.remaining() == 0).then(|| Shape { text: Text::Words(format!("{message:?}")), json })
    }

    /// A key: what its version says is its type, the key itself is always of version 0.
    fn key<'a, T: Message<'a> + Show + Debug>(
        bytes: &'a [u8],
        decode: Decode<'a, T>,
    ) -> Option<Shape> {
        let (number, body) = bytes.split_first_chunk::<2>()?;
        Shape::message(Reader::new(body), (0, i16::from_be_bytes(*number)), decode)
    }

    /// A value: a version, then the message at that version.
    fn value<'a, T: Message<'a> + Show + Debug>(
        bytes: &'a [u8],
        decode: Decode<'a, T>,
    ) -> Option<Shape> {
        let (number, body) = bytes.split_first_chunk::<2>()?;
        let version = i16::from_be_bytes(*number);
        Shape::message(Reader::new(body), (version, version), decode)
    }
}

type Decode<'a, T> = fn(&mut Reader<'a>, i16) -> Result<T, DecodeError>;

fn version_of(bytes: &[u8]) -> Option<i16> {
    Some(i16::from_be_bytes(*bytes.first_chunk::<2>()?))
}

fn json_of(shown: Shown) -> Json {
    match shown {
        Shown::Null => Json::Null,
        Shown::Flag(flag) => flag.into(),
        Shown::Number(number) => number.into(),
        Shown::Float(number) => number.into(),
        Shown::Text(text) => text.into(),
        Shown::Bytes(bytes) => BASE64.encode(bytes).into(),
        Shown::List(items) => items.into_iter().map(json_of).collect(),
        Shown::Fields(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), json_of(value)));
            Json::Object(fields.collect())
        }
    }
}

/// What the version of a key stands for.
macro_rules! kinds {
    ($key:expr, $value:expr, $($number:literal => $k:ident, $v:ident;)+) => {{
        let (key, value): (Option<&[u8]>, Option<&[u8]>) = ($key, $value);
        let shapes = match key.and_then(version_of) {
            $(Some($number) => (
                key.and_then(|key| Shape::key(key, m::$k::decode)),
                value.and_then(|value| Shape::value(value, m::$v::decode)),
            ),)+
            _ => (None, None),
        };
        (
            shapes.0.unwrap_or_else(|| Shape::bytes(key)),
            shapes.1.unwrap_or_else(|| Shape::bytes(value)),
        )
    }};
}

fn group_record(key: Option<&[u8]>, value: Option<&[u8]>) -> (Shape, Shape) {
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
        23 => StreamsGroupTopologyKey, StreamsGroupTopologyValue;
    }
}

fn transaction_record(key: Option<&[u8]>, value: Option<&[u8]>) -> (Shape, Shape) {
    kinds! { key, value, 0 => TransactionLogKey, TransactionLogValue; }
}

/// A record of the metadata log: a frame version, the type and the version, each a varint.
fn metadata_record(value: Option<&[u8]>) -> Shape {
    value.and_then(known_metadata_record).unwrap_or_else(|| unknown_metadata_record(value))
}

fn metadata_header(value: &[u8]) -> Option<(Reader<'_>, i16, i16)> {
    const FRAME_VERSION: u32 = 1;
    let mut reader = Reader::new(value);
    if reader.uvarint().ok()? != FRAME_VERSION {
        return None;
    }
    let mut number = || i16::try_from(reader.uvarint().ok()?).ok();
    let (kind, version) = (number()?, number()?);
    Some((reader, kind, version))
}

fn known_metadata_record(value: &[u8]) -> Option<Shape> {
    let (reader, kind, version) = metadata_header(value)?;
    macro_rules! of_kind {
        ($($record:ident)+) => {
            match Some(kind) {
                $(key if key == m::$record::API_KEY => {
                    Shape::message(reader, (version, version), m::$record::decode)
                })+
                _ => None,
            }
        };
    }
    of_kind! {
        RegisterBrokerRecord UnregisterBrokerRecord TopicRecord PartitionRecord ConfigRecord
        PartitionChangeRecord FenceBrokerRecord UnfenceBrokerRecord RemoveTopicRecord
        DelegationTokenRecord UserScramCredentialRecord FeatureLevelRecord ClientQuotaRecord
        ProducerIdsRecord BrokerRegistrationChangeRecord AccessControlEntryRecord
        RemoveAccessControlEntryRecord NoOpRecord ZkMigrationStateRecord
        RemoveUserScramCredentialRecord BeginTransactionRecord EndTransactionRecord
        AbortTransactionRecord RemoveDelegationTokenRecord RegisterControllerRecord ClearElrRecord
        UnregisterControllerRecord
    }
}

fn unknown_metadata_record(value: Option<&[u8]>) -> Shape {
    let mut shape = Shape::bytes(value);
    if let Some(value) = value {
        shape.json = match metadata_header(value) {
            Some((_, kind, version)) => {
                json!({"type": kind, "version": version, "base64": BASE64.encode(value)})
            }
            None => json!({"base64": BASE64.encode(value)}),
        };
    }
    shape
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

    fn words(shape: &Shape) -> &str {
        match &shape.text {
            Text::Words(words) => words,
            Text::Bytes(bytes) => panic!("not understood: {bytes:?}"),
        }
    }

    fn decode(topic: Topic, key: &[u8], value: Option<&[u8]>) -> Option<(Shape, Shape)> {
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
        let (k, v) = (words(&k), words(&v));
        assert!(k.contains("OffsetCommitKey") && k.contains("partition: 3"), "{k}");
        assert!(v.contains("offset: 42"), "{v}");
        assert_eq!(words(&decode(Topic::GroupOffsets, &key, None).unwrap().1), "null");
        let key = m::TransactionLogKey { transactional_id: "x".into() };
        let value = m::TransactionLogValue { producer_id: 7, ..Default::default() };
        let (key, value) = (bytes(0, &key, 0), bytes(1, &value, 1));
        let (k, v) = decode(Topic::Transactions, &key, Some(&value)).unwrap();
        let (k, v) = (words(&k), words(&v));
        assert!(k.contains("\"x\"") && v.contains("producer_id: 7"), "{k} {v}");
    }

    #[test]
    fn what_is_not_understood_is_left_as_bytes() {
        let table = [
            (&b""[..], json!({"base64": ""})),
            (b"\0", json!({"base64": "AA=="})),
            (b"\0\x63x", json!({"version": 99, "base64": "AGN4"})),
            (b"\0\x01x", json!({"version": 1, "base64": "AAF4"})),
        ];
        for (key, json) in table {
            let (shape, value) = decode(Topic::GroupOffsets, key, Some(b"\0\x07v")).unwrap();
            assert_eq!(shape, Shape { text: Text::Bytes(key.to_vec()), json }, "{key:?}");
            assert_eq!(value.json, json!({"version": 7, "base64": "AAd2"}), "{key:?}");
        }
        assert_eq!(decode(Topic::Plain, b"\0\x01", Some(b"v")), None);
        let of_metadata = |value: &[u8]| metadata_record(Some(value)).json;
        assert_eq!(
            of_metadata(b"\x01\x63\x02x"),
            json!({"type": 99, "version": 2, "base64": "AWMCeA=="})
        );
        assert_eq!(
            of_metadata(b"\x01\x02\x07x"),
            json!({"type": 2, "version": 7, "base64": "AQIHeA=="})
        );
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
