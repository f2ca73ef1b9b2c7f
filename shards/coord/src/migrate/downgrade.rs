//! A consumer group whose members all speak the classic protocol becomes a classic group.

use super::embedded::write_assignment;
use crate::classic::{ClassicGroup, Member, State};
use crate::consumer::ConsumerGroup;
use crate::context::Topics;
use crate::coordinator::{Coordinator, Group};
use crate::request::Decision;
use crate::{CONSUMER_PROTOCOL, Name};

impl Coordinator {
    /// Turns a consumer group without consumers of its own protocol into a classic one that
    /// rebalances, if that may be.
    pub(crate) fn downgrade(
        &mut self,
        id: &str,
        topics: &dyn Topics,
        now_ms: i64,
        out: &mut Decision,
    ) {
        let Some((name, Group::Consumer(group))) = self.groups.get_key_value(id) else { return };
        let (name, members) = (name.clone(), group.members.len());
        let all_classic = members > 0 && group.classic_members() == members;
        let may = self.config.migration.may_downgrade();
        if !all_classic || !may || members > self.config.classic_members_max {
            return;
        }
        let wall_ms = now_ms.saturating_add(self.wall_ahead_ms);
        let converted = convert(group, topics, wall_ms);
        let ids: Vec<Name> = group.members.keys().cloned().collect();
        let mut records = Vec::new();
        group.tombstones(&name, &mut records);
        records.push(converted.record(&name));
        if self.fits_in_a_batch(&records).is_err() {
            // Its members are as well off where they are.
            return;
        }
        out.cut();
        out.records.append(&mut records);
        self.apply_new(out, now_ms);
        // What the members know beyond the one protocol in the record.
        self.groups.insert(name.clone(), Group::Classic(Box::new(converted)));
        for member in &ids {
            self.cancel_member(&name, member);
        }
        let Some((group, mut step)) = self.classic(&name, now_ms, out) else { return };
        for member in &ids {
            group.prolong(member, &mut step);
        }
        group.prepare(&mut step);
    }

    /// A member of a consumer group is out of time.
    pub(crate) fn fence(
        &mut self,
        id: &Name,
        member: &Name,
        topics: &dyn Topics,
        now_ms: i64,
        out: &mut Decision,
    ) {
        let known = match self.groups.get(id) {
            Some(Group::Consumer(group)) => group.members.contains_key(member),
            _ => false,
        };
        if known {
            self.remove_members(id, std::slice::from_ref(member), topics, now_ms, out);
            self.downgrade(id, topics, now_ms, out);
        }
    }
}

fn convert(group: &ConsumerGroup, topics: &dyn Topics, wall_ms: i64) -> ClassicGroup {
    let protocol_type = Name::from(CONSUMER_PROTOCOL);
    let mut converted = ClassicGroup::new(Some(wall_ms));
    converted.generation = group.epoch;
    converted.state = State::Stable;
    for member in group.members.values() {
        let Some(face) = &member.classic else { continue };
        let subscription = face.protocols.first().map(|(_, metadata)| &**metadata);
        let parts = member.assigned.parts();
        converted.add(Member {
            id: member.id.clone(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: face.session_timeout_ms,
            protocol_type: protocol_type.clone(),
            protocols: face.protocols.clone(),
            assignment: write_assignment(&parts, subscription.unwrap_or_default(), topics)
                .into_boxed_slice(),
            join: None,
            sync: None,
            version: 0,
            is_new: false,
            arrival: 0,
        });
    }
    converted.protocol = converted.elect_protocol();
    converted.read_topics();
    converted
}
