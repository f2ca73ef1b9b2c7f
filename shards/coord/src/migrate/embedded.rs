//! What Kafka's consumers put into the classic protocol's opaque bytes: version i16, then a
//! subscription or an assignment.

use std::collections::BTreeSet;

use wire::messages as m;
use wire::{Message, Reader, Writer};

use crate::Name;
use crate::context::Topics;
use crate::parts::Parts;

/// The newest version that is known; newer ones begin like it.
const VERSION_MAX: i16 = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Subscription {
    pub topics: BTreeSet<Name>,
    pub owned: Parts,
    pub rack: Option<Name>,
}

/// Reads a subscription; owned partitions of topics that do not exist are left out.
pub(super) fn read_subscription(bytes: &[u8], topics: &dyn Topics) -> Option<Subscription> {
    let mut reader = Reader::new(bytes);
    let version = version(&mut reader)?;
    let read = m::ConsumerProtocolSubscription::decode(&mut reader, version).ok()?;
    let owned = read.owned_partitions.iter().filter_map(|it| {
        let id = topics.id_of(&it.topic)?;
        Some((id, it.partitions))
    });
    Some(Subscription {
        topics: read.topics.iter().map(|topic| Name::from(&*topic)).collect(),
        owned: Parts::from_lists(owned),
        rack: read.rack_id.as_deref().filter(|rack| !rack.is_empty()).map(Name::from),
    })
}

/// Reads an assignment, and whether it holds data of a custom assignor. No bytes are no partitions.
pub(super) fn read_assignment(bytes: &[u8], topics: &dyn Topics) -> Option<(Parts, bool)> {
    if bytes.is_empty() {
        return Some((Parts::default(), false));
    }
    let mut reader = Reader::new(bytes);
    let version = version(&mut reader)?;
    let read = m::ConsumerProtocolAssignment::decode(&mut reader, version).ok()?;
    let parts = read.assigned_partitions.iter().filter_map(|it| {
        let id = topics.id_of(&it.topic)?;
        Some((id, it.partitions))
    });
    let custom = read.user_data.is_some_and(|data| !data.is_empty());
    Some((Parts::from_lists(parts), custom))
}

/// Writes an assignment in the version that the member's subscription has.
pub(super) fn write_assignment(parts: &Parts, subscription: &[u8], topics: &dyn Topics) -> Vec<u8> {
    let version = version(&mut Reader::new(subscription)).unwrap_or(0);
    let assigned = parts.topics().filter_map(|(id, partitions)| {
        Some(m::consumer_protocol_assignment::TopicPartition {
            topic: topics.name_of(id)?.into(),
            partitions: partitions.to_vec().into(),
        })
    });
    let assignment =
        m::ConsumerProtocolAssignment { assigned_partitions: assigned.collect(), user_data: None };
    let mut writer = Writer::new();
    writer.i16(version);
    match assignment.encode(&mut writer, version) {
        Ok(()) => writer.finish().bytes.to_vec(),
        // More partitions than the format can count: as good as none.
        Err(_) => Vec::new(),
    }
}

fn version(reader: &mut Reader<'_>) -> Option<i16> {
    let version = reader.i16().ok()?;
    (version >= 0).then(|| version.min(VERSION_MAX))
}
