//! What can be wrong with metadata records: all of them mean a damaged or foreign metadata log.

use wire::{DecodeError, EncodeError, Uuid};

/// A record that cannot be read, written or applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetaError {
    #[error("metadata record cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("metadata record cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("metadata record has frame version {0}, only 1 is known")]
    FrameVersion(u32),
    #[error("metadata record has type {0}, which this version does not know; upgrade Corelane")]
    RecordType(u32),
    #[error("metadata record has {0} bytes after its end")]
    Trailing(usize),
    #[error("metadata names topic {0}, which does not exist")]
    NoTopic(Uuid),
    #[error("metadata creates topic {name} ({id}), but its name or id is taken")]
    TopicTaken { name: String, id: Uuid },
    #[error("metadata names partition {partition} of topic {topic}, which has {count}")]
    NoPartition { topic: Uuid, partition: i32, count: usize },
    #[error("metadata names node {0}, which is not registered")]
    NoNode(i32),
    #[error("metadata has settings for resource type {0}, which is not known")]
    ResourceType(i8),
    #[error("metadata delta begins at offset {found}, but the next offset is {expected}")]
    Gap { expected: i64, found: i64 },
}
