//! Records of the metadata log, owned, in Kafka's own framing.
//!
//! ```text
//! +---------------+-------------+-------------+------------------+
//! | frame version | record type | version     | body, as in the  |
//! | uvarint = 1   | uvarint     | uvarint     | message schema   |
//! +---------------+-------------+-------------+------------------+
//! ```
//!
//! `kafka-dump-log --cluster-metadata-decoder` reads these. Only the types that Corelane writes are
//! known; any other means that the log was written by something newer, and starting would lose it.

use wire::messages as m;
use wire::{IntoOwned, Message, Reader, Writer};

use crate::error::MetaError;

const FRAME_VERSION: u32 = 1;

macro_rules! records {
    ($($variant:ident($type:ident $(<$life:lifetime>)?),)+) => {
        /// One record of the metadata log.
        #[derive(Clone, Debug, PartialEq)]
        pub enum MetadataRecord {
            $($variant(m::$type $(<$life>)?),)+
        }

        impl MetadataRecord {
            /// Reads one record. Bytes after it are an error: a record is the whole value of a log
            /// entry.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetaError> {
                let mut reader = Reader::new(bytes);
                let frame = reader.uvarint()?;
                if frame != FRAME_VERSION {
                    return Err(MetaError::FrameVersion(frame));
                }
                let kind = reader.uvarint()?;
                let version = reader.uvarint()?;
                // No schema has versions beyond int16; the codec refuses the number.
                let version = i16::try_from(version).unwrap_or(i16::MAX);
                let record = match i16::try_from(kind).ok() {
                    $(Some(key) if Some(key) == <m::$type $(<$life>)? as Message<'_>>::API_KEY => {
                        MetadataRecord::$variant(m::$type::decode(&mut reader, version)?.into_owned())
                    })+
                    _ => return Err(MetaError::RecordType(kind)),
                };
                match reader.remaining() {
                    0 => Ok(record),
                    left => Err(MetaError::Trailing(left)),
                }
            }

            /// Writes the record at the lowest version that holds all its fields.
            pub fn to_bytes(&self) -> Result<Vec<u8>, MetaError> {
                let mut writer = Writer::new();
                writer.uvarint(FRAME_VERSION);
                match self {
                    $(MetadataRecord::$variant(record) => {
                        let version = self.version();
                        writer.uvarint(record_type(<m::$type $(<$life>)? as Message<'_>>::API_KEY));
                        writer.uvarint(u32::from(version.unsigned_abs()));
                        record.encode(&mut writer, version)?;
                    })+
                }
                Ok(writer.finish().bytes.to_vec())
            }

            /// Kafka's name of the record type.
            pub fn name(&self) -> &'static str {
                match self {
                    $(MetadataRecord::$variant(_) => <m::$type $(<$life>)? as Message<'_>>::NAME,)+
                }
            }
        }

        $(impl From<m::$type $(<$life>)?> for MetadataRecord {
            fn from(record: m::$type $(<$life>)?) -> Self {
                MetadataRecord::$variant(record)
            }
        })+
    };
}

records! {
    RegisterBroker(RegisterBrokerRecord<'static>),
    UnregisterBroker(UnregisterBrokerRecord),
    Topic(TopicRecord<'static>),
    Partition(PartitionRecord<'static>),
    Config(ConfigRecord<'static>),
    PartitionChange(PartitionChangeRecord<'static>),
    FenceBroker(FenceBrokerRecord),
    UnfenceBroker(UnfenceBrokerRecord),
    RemoveTopic(RemoveTopicRecord),
    FeatureLevel(FeatureLevelRecord<'static>),
    ProducerIds(ProducerIdsRecord),
    NoOp(NoOpRecord),
}

impl MetadataRecord {
    fn version(&self) -> i16 {
        match self {
            MetadataRecord::RegisterBroker(r) if r.cordoned_log_dirs.is_some() => 4,
            MetadataRecord::RegisterBroker(_) => 3,
            MetadataRecord::Partition(r)
                if r.eligible_leader_replicas.is_some() || r.last_known_elr.is_some() =>
            {
                2
            }
            MetadataRecord::Partition(r) if !r.directories.is_empty() => 1,
            MetadataRecord::PartitionChange(r)
                if r.eligible_leader_replicas.is_some() || r.last_known_elr.is_some() =>
            {
                2
            }
            MetadataRecord::PartitionChange(r) if r.directories.is_some() => 1,
            _ => 0,
        }
    }
}

fn record_type(key: Option<i16>) -> u32 {
    // Every record type has a key; a missing one would be a fault of the generated code.
    key.map_or(u32::MAX, |key| u32::from(key.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Uuid;

    #[test]
    fn the_frame_is_kafkas() {
        let record =
            MetadataRecord::from(m::TopicRecord { name: "ab".into(), topic_id: Uuid([7; 16]) });
        let mut expected = vec![1, 2, 0, 3, b'a', b'b'];
        expected.extend([7; 16]);
        expected.push(0);
        assert_eq!(record.to_bytes().unwrap(), expected);
        assert_eq!(MetadataRecord::from_bytes(&expected).unwrap(), record);
        assert_eq!(record.name(), "TopicRecord");
    }

    #[test]
    fn versions_follow_the_fields() {
        let mut record = m::PartitionRecord {
            partition_id: 0,
            replicas: vec![1].into(),
            isr: vec![1].into(),
            leader: 1,
            ..Default::default()
        };
        let version = |record: &m::PartitionRecord<'static>| {
            let bytes = MetadataRecord::from(record.clone()).to_bytes().unwrap();
            assert_eq!(MetadataRecord::from_bytes(&bytes).unwrap(), record.clone().into());
            bytes[2]
        };
        assert_eq!(version(&record), 0);
        record.directories = vec![Uuid([1; 16])].into();
        assert_eq!(version(&record), 1);
        record.eligible_leader_replicas = Some(vec![2].into());
        assert_eq!(version(&record), 2);
    }

    #[test]
    fn what_is_not_a_known_record_is_refused() {
        let errors: [(&[u8], MetaError); 4] = [
            (&[2, 2, 0], MetaError::FrameVersion(2)),
            (&[1, 99, 0], MetaError::RecordType(99)),
            (&[1, 0xff, 0xff, 0xff, 0x7f, 0], MetaError::RecordType(0x0fff_ffff)),
            (&[1, 20, 0, 0, 5], MetaError::Trailing(1)),
        ];
        for (bytes, error) in errors {
            assert_eq!(MetadataRecord::from_bytes(bytes), Err(error));
        }
        for bytes in [&[][..], &[1], &[1, 2], &[1, 2, 99, 0], &[1, 2, 0, 3, b'a']] {
            let error = MetadataRecord::from_bytes(bytes).unwrap_err();
            assert!(matches!(error, MetaError::Decode(_)), "{error}");
        }
    }
}
