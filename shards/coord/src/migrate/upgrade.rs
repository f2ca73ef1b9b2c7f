//! A classic group becomes a consumer group, its members classic ones inside it.

use wire::ErrorCode;

use super::embedded::{read_assignment, read_subscription};
use crate::classic::ClassicGroup;
use crate::consumer::{ClassicFace, ConsumerGroup, Member};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::request::Decision;
use crate::timers::{Key, Kind};

impl Coordinator {
    /// What a classic group with members would be as a consumer group, if that may be.
    pub(crate) fn upgraded(
        &self,
        id: &str,
        group: &ClassicGroup,
        joining: &str,
        ctx: &Context<'_>,
    ) -> Result<ConsumerGroup, Refusal> {
        let refuse = |reason: &str| {
            Refusal::new(
                ErrorCode::GroupIdNotFound,
                format!("Cannot upgrade classic group {id} to consumer group because {reason}."),
            )
        };
        if !self.config.migration.may_upgrade() {
            return Err(refuse("online upgrade is disabled"));
        }
        if !group.uses_consumer_protocol() {
            return Err(refuse("the group does not use the consumer embedded protocol"));
        }
        let limit = self.config.consumer_members_max;
        if group.members.len() > limit
            || group.members.len() == limit && !group.members.contains_key(joining)
        {
            return Err(refuse("the group size exceeds the consumer group maximum size"));
        }
        convert(group, ctx).map_err(refuse)
    }

    /// The classic group is gone, and its records say so: those who wait in it are told to join
    /// again, and its deadlines become those of its members.
    pub(crate) fn take_over_classic(
        &mut self,
        id: &str,
        converted: &ConsumerGroup,
        now_ms: i64,
        out: &mut Decision,
    ) {
        let Some((name, Group::Classic(_))) = self.groups.get_key_value(id) else { return };
        let name = name.clone();
        if let Some(Group::Classic(group)) = self.groups.get_mut(id) {
            group.answer_all(ErrorCode::RebalanceInProgress, out);
        }
        for kind in [Kind::Join, Kind::Sync] {
            self.timers.cancel(&Key::group(kind, &name));
        }
        for member in converted.members.values() {
            let timeout_ms = member.classic.as_ref().map_or(0, |face| face.session_timeout_ms);
            let due_ms = now_ms + i64::from(timeout_ms);
            self.timers.set(Key::member(Kind::Session, &name, &member.id), due_ms);
        }
    }
}

/// The same members with the same partitions, in the epoch of their generation.
fn convert(group: &ClassicGroup, ctx: &Context<'_>) -> Result<ConsumerGroup, &'static str> {
    const MALFORMED: &str = "the embedded consumer protocol is malformed";
    let mut converted = ConsumerGroup {
        epoch: group.generation,
        assignment_epoch: group.generation,
        ..Default::default()
    };
    for member in group.members.values() {
        let (protocol, _) = member.protocols.first().ok_or(MALFORMED)?;
        let protocol = group.protocol.as_ref().unwrap_or(protocol);
        let subscription =
            read_subscription(member.metadata(protocol), ctx.topics).ok_or(MALFORMED)?;
        let (parts, custom) = read_assignment(&member.assignment, ctx.topics).ok_or(MALFORMED)?;
        if custom {
            return Err(
                "an unsupported custom assignor is in use. Please refer to the documentation or \
                 switch to a default assignor before re-attempting the upgrade",
            );
        }
        // A broken leader may have given one partition twice; here nobody may share.
        let parts: crate::parts::Parts = parts
            .iter()
            .filter(|(topic, partition)| converted.owner(*topic, *partition).is_none())
            .collect();
        let mut new = Member::new(member.id.clone());
        new.instance = member.instance.clone();
        new.rack = subscription.rack;
        new.client_id = member.client_id.clone();
        new.client_host = member.client_host.clone();
        new.topics = subscription.topics;
        new.rebalance_timeout_ms = member.rebalance_timeout_ms;
        new.epoch = group.generation;
        new.previous_epoch = group.generation;
        new.assigned = parts.iter().map(|(it, part)| (it, part, group.generation)).collect();
        new.classic = Some(ClassicFace {
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.clone(),
        });
        converted.targets.insert(member.id.clone(), parts);
        converted.put_member(new);
    }
    Ok(converted)
}
