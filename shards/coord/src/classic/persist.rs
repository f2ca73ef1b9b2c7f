//! The one record of a classic group, and the group it makes.

use wire::messages as m;
use wire::messages::group_metadata_value::MemberMetadata;

use super::{ClassicGroup, Member, State};
use crate::Name;
use crate::record::Record;

impl ClassicGroup {
    /// The group as it is: generation, protocol, leader, members and their assignments.
    pub fn record(&self, id: &str) -> Record<'static> {
        let protocol = self.protocol.as_deref();
        let members = self.members.values().map(|member| MemberMetadata {
            member_id: String::from(&*member.id).into(),
            group_instance_id: member.instance.as_deref().map(|it| String::from(it).into()),
            client_id: String::from(&*member.client_id).into(),
            client_host: String::from(&*member.client_host).into(),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.metadata(protocol.unwrap_or_default()).to_vec().into(),
            assignment: member.assignment.to_vec().into(),
        });
        let value = m::GroupMetadataValue {
            protocol_type: String::from(self.protocol_type.as_deref().unwrap_or_default()).into(),
            generation: self.generation,
            protocol: protocol.map(|it| String::from(it).into()),
            leader: self.leader.as_deref().map(|it| String::from(it).into()),
            current_state_timestamp: self.since_ms.unwrap_or(-1),
            members: members.collect(),
        };
        Record::GroupMetadata(key(id), Some(value))
    }

    /// That the group exists, before it has had a generation.
    pub fn record_without_members(&self, id: &str) -> Record<'static> {
        let value = m::GroupMetadataValue {
            protocol_type: "".into(),
            generation: 0,
            protocol: None,
            leader: None,
            current_state_timestamp: self.since_ms.unwrap_or(-1),
            members: Default::default(),
        };
        Record::GroupMetadata(key(id), Some(value))
    }

    pub fn tombstone(id: &str) -> Record<'static> {
        Record::GroupMetadata(key(id), None)
    }

    /// The group that a record describes.
    pub fn from_record(value: &m::GroupMetadataValue<'_>) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| Name::from(text));
        let mut group = ClassicGroup::new(None);
        group.generation = value.generation;
        group.since_ms = Some(value.current_state_timestamp).filter(|ms| *ms >= 0);
        group.protocol = value.protocol.as_deref().map(Name::from);
        group.leader = value.leader.as_deref().map(Name::from);
        let protocol = group.protocol.clone().unwrap_or_else(|| Name::from(""));
        let protocol_type = Name::from(&*value.protocol_type);
        for member in &value.members {
            let rebalance_timeout_ms = match member.rebalance_timeout {
                -1 => member.session_timeout,
                timeout_ms => timeout_ms,
            };
            group.add(Member {
                id: Name::from(&*member.member_id),
                instance: member.group_instance_id.as_deref().map(Name::from),
                client_id: Box::from(&*member.client_id),
                client_host: Box::from(&*member.client_host),
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout,
                protocol_type: protocol_type.clone(),
                protocols: vec![(protocol.clone(), Box::from(&*member.subscription))],
                assignment: Box::from(&*member.assignment),
                join: None,
                sync: None,
                version: 0,
                is_new: false,
                arrival: 0,
            });
        }
        if !group.members.is_empty() {
            group.state = State::Stable;
        }
        group.protocol_type = some(&value.protocol_type);
        group.subscribed = group.read_subscriptions();
        group
    }

    /// A record of our own comes back: it says what we know, and that the leader's assignment is in
    /// the log, which makes the group stable.
    pub fn confirm(&mut self, value: &m::GroupMetadataValue<'_>, wall_ms: i64) {
        let same = value.generation == self.generation && !value.members.is_empty();
        if same && self.state == State::Completing {
            self.turn(State::Stable, wall_ms);
        }
    }
}

fn key(id: &str) -> m::GroupMetadataKey<'static> {
    m::GroupMetadataKey { group: String::from(id).into() }
}
