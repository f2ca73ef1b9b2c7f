//! Records of a consumer group: made from members and read back into them.

use wire::messages as m;
use wire::messages::consumer_group_current_member_assignment_value::TopicPartitions;
use wire::messages::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use wire::messages::consumer_group_target_assignment_member_value::TopicPartition;
use wire::{Array, Text};

use super::{ClassicFace, ConsumerGroup, Held, Member, MemberState, Resolved};
use crate::Name;
use crate::parts::Parts;
use crate::record::Record;

fn text(text: &str) -> Text<'static> {
    String::from(text).into()
}

fn optional(name: &Option<Name>) -> Option<Text<'static>> {
    name.as_deref().map(text)
}

/// What the member says of itself.
pub(crate) fn member(group: &str, member: &Member) -> Record<'static> {
    let classic = member.classic.as_ref().map(|face| ClassicMemberMetadata {
        session_timeout_ms: face.session_timeout_ms,
        supported_protocols: face
            .protocols
            .iter()
            .map(|(name, metadata)| ClassicProtocol {
                name: text(name),
                metadata: metadata.to_vec().into(),
            })
            .collect(),
    });
    let value = m::ConsumerGroupMemberMetadataValue {
        instance_id: optional(&member.instance),
        rack_id: optional(&member.rack),
        client_id: text(&member.client_id),
        client_host: text(&member.client_host),
        subscribed_topic_names: member.topics.iter().map(|topic| text(topic)).collect(),
        // Kafka writes no expression as an empty one.
        subscribed_topic_regex: Some(text(member.regex.as_deref().unwrap_or_default())),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        server_assignor: optional(&member.assignor),
        classic_member_metadata: classic,
    };
    Record::ConsumerMember(member_key(group, &member.id), Some(value))
}

/// Epoch, state and partitions of a member.
pub(crate) fn current(group: &str, member: &Member) -> Record<'static> {
    let value = m::ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: member.epoch,
        previous_member_epoch: member.previous_epoch,
        state: member.state.code(),
        assigned_partitions: held(&member.assigned),
        partitions_pending_revocation: held(&member.revoking),
    };
    Record::ConsumerCurrent(current_key(group, &member.id), Some(value))
}

fn held(held: &Held) -> Array<'static, TopicPartitions<'static>> {
    let topics =
        held.by_topic().into_iter().map(|(topic_id, (partitions, epochs))| TopicPartitions {
            topic_id,
            partitions: partitions.into(),
            assignment_epochs: Some(epochs.into()),
        });
    topics.collect()
}

pub(crate) fn target(group: &str, member: &str, parts: &Parts) -> Record<'static> {
    let topic_partitions = parts.topics().map(|(topic_id, partitions)| TopicPartition {
        topic_id,
        partitions: partitions.to_vec().into(),
    });
    let value = m::ConsumerGroupTargetAssignmentMemberValue {
        topic_partitions: topic_partitions.collect(),
    };
    Record::ConsumerTarget(target_key(group, member), Some(value))
}

pub(crate) fn target_epoch(group: &str, epoch: i32, now_ms: i64) -> Record<'static> {
    let value = m::ConsumerGroupTargetAssignmentMetadataValue {
        assignment_epoch: epoch,
        assignment_timestamp: now_ms,
    };
    let key = m::ConsumerGroupTargetAssignmentMetadataKey { group_id: text(group) };
    Record::ConsumerTargetEpoch(key, Some(value))
}

pub(crate) fn epoch(group: &str, epoch: i32, metadata_hash: i64) -> Record<'static> {
    let value = m::ConsumerGroupMetadataValue { epoch, metadata_hash };
    Record::ConsumerGroup(m::ConsumerGroupMetadataKey { group_id: text(group) }, Some(value))
}

pub(crate) fn regex(group: &str, regex: &str, resolved: &Resolved) -> Record<'static> {
    let value = m::ConsumerGroupRegularExpressionValue {
        topics: resolved.topics.iter().map(|topic| text(topic)).collect(),
        version: resolved.version,
        timestamp: resolved.resolved_ms,
    };
    Record::ConsumerRegex(regex_key(group, regex), Some(value))
}

pub(crate) fn no_regex(group: &str, regex: &str) -> Record<'static> {
    Record::ConsumerRegex(regex_key(group, regex), None)
}

/// A member is gone: in this order, as each record relies on the one before.
pub(crate) fn no_member(group: &str, member: &str, records: &mut Vec<Record<'static>>) {
    records.push(Record::ConsumerCurrent(current_key(group, member), None));
    records.push(Record::ConsumerTarget(target_key(group, member), None));
    records.push(Record::ConsumerMember(member_key(group, member), None));
}

fn member_key(group: &str, member: &str) -> m::ConsumerGroupMemberMetadataKey<'static> {
    m::ConsumerGroupMemberMetadataKey { group_id: text(group), member_id: text(member) }
}

fn current_key(group: &str, member: &str) -> m::ConsumerGroupCurrentMemberAssignmentKey<'static> {
    m::ConsumerGroupCurrentMemberAssignmentKey { group_id: text(group), member_id: text(member) }
}

fn target_key(group: &str, member: &str) -> m::ConsumerGroupTargetAssignmentMemberKey<'static> {
    m::ConsumerGroupTargetAssignmentMemberKey { group_id: text(group), member_id: text(member) }
}

fn regex_key(group: &str, regex: &str) -> m::ConsumerGroupRegularExpressionKey<'static> {
    m::ConsumerGroupRegularExpressionKey { group_id: text(group), regular_expression: text(regex) }
}

impl ConsumerGroup {
    /// The group and everything in it is gone.
    pub fn tombstones(&self, group: &str, records: &mut Vec<Record<'static>>) {
        for id in self.members.keys() {
            records.push(Record::ConsumerCurrent(current_key(group, id), None));
        }
        let targets = self.members.keys().chain(self.targets.keys());
        let targets: std::collections::BTreeSet<&Name> = targets.collect();
        for id in targets {
            records.push(Record::ConsumerTarget(target_key(group, id), None));
        }
        let key = m::ConsumerGroupTargetAssignmentMetadataKey { group_id: text(group) };
        records.push(Record::ConsumerTargetEpoch(key, None));
        for id in self.members.keys() {
            records.push(Record::ConsumerMember(member_key(group, id), None));
        }
        for regex in self.regexes.keys() {
            records.push(no_regex(group, regex));
        }
        let key = m::ConsumerGroupPartitionMetadataKey { group_id: text(group) };
        records.push(Record::ConsumerPartitions(key, None));
        let key = m::ConsumerGroupMetadataKey { group_id: text(group) };
        records.push(Record::ConsumerGroup(key, None));
    }

    /// The records that make the group what it is.
    pub fn records(&self, group: &str, records: &mut Vec<Record<'static>>) {
        records.extend(self.members.values().map(|it| member(group, it)));
        records.push(epoch(group, self.epoch, self.metadata_hash));
        records.extend(self.targets.iter().map(|(id, parts)| target(group, id, parts)));
        records.push(target_epoch(group, self.assignment_epoch, self.assignment_ms));
        records.extend(self.members.values().map(|it| current(group, it)));
    }
}

impl Member {
    pub fn read(&mut self, value: &m::ConsumerGroupMemberMetadataValue<'_>) {
        let name = |text: &Option<Text<'_>>| text.as_deref().map(Name::from);
        self.instance = name(&value.instance_id);
        self.rack = name(&value.rack_id);
        self.client_id = Box::from(&*value.client_id);
        self.client_host = Box::from(&*value.client_host);
        self.topics = value.subscribed_topic_names.iter().map(|it| Name::from(&*it)).collect();
        self.regex = name(&value.subscribed_topic_regex).filter(|regex| !regex.is_empty());
        self.rebalance_timeout_ms = value.rebalance_timeout_ms;
        self.assignor = name(&value.server_assignor);
        self.classic = value.classic_member_metadata.as_ref().map(|face| ClassicFace {
            session_timeout_ms: face.session_timeout_ms,
            protocols: face
                .supported_protocols
                .iter()
                .map(|it| (Name::from(&*it.name), Box::from(&*it.metadata)))
                .collect(),
        });
    }

    pub fn read_current(&mut self, value: &m::ConsumerGroupCurrentMemberAssignmentValue<'_>) {
        self.epoch = value.member_epoch;
        self.previous_epoch = value.previous_member_epoch;
        self.state = MemberState::from_code(value.state);
        self.assigned = read_held(&value.assigned_partitions, value.member_epoch);
        self.revoking = read_held(&value.partitions_pending_revocation, value.member_epoch);
    }
}

/// Logs of before Kafka 4.4 do not say since when: then it is the member's epoch.
fn read_held(topics: &Array<'_, TopicPartitions<'_>>, epoch: i32) -> Held {
    let mut held = Held::default();
    for topic in topics {
        let epochs = topic.assignment_epochs.map(|epochs| epochs.to_vec()).unwrap_or_default();
        let complete = epochs.len() == topic.partitions.len();
        for (at, partition) in topic.partitions.iter().enumerate() {
            let since = epochs.get(at).copied().filter(|_| complete).unwrap_or(epoch);
            held.insert(topic.topic_id, partition, since);
        }
    }
    held
}

pub(crate) fn read_target(value: &m::ConsumerGroupTargetAssignmentMemberValue<'_>) -> Parts {
    Parts::from_lists(value.topic_partitions.iter().map(|it| (it.topic_id, it.partitions)))
}
