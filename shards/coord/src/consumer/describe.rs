//! ConsumerGroupDescribe.

use wire::messages::consumer_group_describe_response as answer;

use super::{ConsumerGroup, Member};
use crate::assign::Assignor;
use crate::context::Context;
use crate::parts::Parts;

/// Kinds of member, in version 1.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

impl ConsumerGroup {
    pub fn describe(
        &self,
        id: &str,
        offered: &[Assignor],
        ctx: &Context<'_>,
    ) -> answer::DescribedGroup<'static> {
        let view = super::subscription::View::of(self);
        let assignor = super::target::preferred(&view, offered);
        answer::DescribedGroup {
            group_id: String::from(id).into(),
            group_state: self.state().into(),
            group_epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            assignor_name: assignor.name().into(),
            members: self.members.values().map(|it| self.describe_member(it, ctx)).collect(),
            ..Default::default()
        }
    }

    fn describe_member(&self, member: &Member, ctx: &Context<'_>) -> answer::Member<'static> {
        let text = |text: &str| String::from(text).into();
        let nothing = Parts::default();
        let target = self.targets.get(&member.id).unwrap_or(&nothing);
        answer::Member {
            member_id: text(&member.id),
            instance_id: member.instance.as_deref().map(text),
            rack_id: member.rack.as_deref().map(text),
            member_epoch: member.epoch,
            client_id: text(&member.client_id),
            client_host: text(&member.client_host),
            subscribed_topic_names: member.topics.iter().map(|topic| text(topic)).collect(),
            subscribed_topic_regex: Some(text(member.regex.as_deref().unwrap_or_default())),
            assignment: described(&member.assigned.parts(), ctx),
            target_assignment: described(target, ctx),
            // Version 0 has no such field, and says -1 where it must say something.
            member_type: match (ctx.version, &member.classic) {
                (0, _) => -1,
                (_, Some(_)) => CLASSIC_MEMBER,
                (_, None) => CONSUMER_MEMBER,
            },
        }
    }
}

/// Partitions of topics that still exist.
fn described(parts: &Parts, ctx: &Context<'_>) -> answer::Assignment<'static> {
    let topics = parts.topics().filter_map(|(topic_id, partitions)| {
        Some(answer::TopicPartitions {
            topic_id,
            topic_name: ctx.topics.name_of(topic_id)?.into(),
            partitions: partitions.to_vec().into(),
        })
    });
    answer::Assignment { topic_partitions: topics.collect() }
}
