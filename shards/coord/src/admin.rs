//! DescribeGroups, ListGroups, DeleteGroups and ConsumerGroupDescribe, one group at a time.

use std::collections::BTreeMap;

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::consumer_group_describe_response as consumer_answer;
use wire::messages::delete_groups_response::DeletableGroupResult;
use wire::messages::describe_groups_response as answer;
use wire::messages::list_groups_response::ListedGroup;

use crate::classic::{ClassicGroup, State};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::request::{Decision, Reply};
use crate::{CONSUMER_PROTOCOL, Name};

/// From this version on a group that does not exist is an error rather than a dead group.
const NOT_FOUND_FROM: i16 = 6;

impl Coordinator {
    pub(crate) fn describe_group(&self, id: &str, ctx: &Context<'_>, out: &mut Decision) {
        let missing = match self.groups.get(id) {
            Some(Group::Classic(group)) => {
                return out.reply(ctx.token, Reply::DescribeGroup(describe_classic(id, group)));
            }
            Some(Group::Consumer(_)) => format!("Group {id} is not a classic group."),
            None => format!("Group {id} not found."),
        };
        let mut described = answer::DescribedGroup {
            group_id: String::from(id).into(),
            group_state: "Dead".into(),
            ..Default::default()
        };
        if ctx.version >= NOT_FOUND_FROM {
            described.error_code = ErrorCode::GroupIdNotFound.code();
            described.error_message = Some(missing.into());
        }
        out.reply(ctx.token, Reply::DescribeGroup(described));
    }

    pub(crate) fn consumer_group_describe(&self, id: &str, ctx: &Context<'_>, out: &mut Decision) {
        let refuse = |code: ErrorCode, message: String| consumer_answer::DescribedGroup {
            group_id: String::from(id).into(),
            error_code: code.code(),
            error_message: Some(message.into()),
            ..Default::default()
        };
        let described = match self.groups.get(id) {
            _ if id.is_empty() => {
                let code = ErrorCode::InvalidGroupId;
                refuse(code, code.message().into())
            }
            Some(Group::Consumer(group)) => group.describe(id, &self.config.assignors, ctx),
            Some(Group::Classic(_)) => {
                refuse(ErrorCode::GroupIdNotFound, format!("Group {id} is not a consumer group."))
            }
            None => refuse(ErrorCode::GroupIdNotFound, format!("Group {id} not found.")),
        };
        out.reply(ctx.token, Reply::ConsumerGroupDescribe(described));
    }

    pub(crate) fn list_groups(
        &self,
        request: &m::ListGroupsRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let lower = |names: &wire::Array<'_, wire::Text<'_>>| -> Vec<String> {
            names.iter().map(|name| name.to_lowercase()).collect()
        };
        let states = lower(&request.states_filter);
        let types = lower(&request.types_filter);
        let wanted = |filter: &[String], value: &str| {
            filter.is_empty() || filter.iter().any(|it| *it == value.to_lowercase())
        };
        let listed = self.groups.iter().filter_map(|(id, group)| {
            let (state, group_type) = (group.state(), group.group_type());
            (wanted(&states, state) && wanted(&types, group_type)).then(|| ListedGroup {
                group_id: String::from(&**id).into(),
                protocol_type: String::from(group.protocol_type()).into(),
                group_state: state.into(),
                group_type: group_type.into(),
            })
        });
        let groups = listed.collect();
        let reply = m::ListGroupsResponse { groups, ..Default::default() };
        out.reply(ctx.token, Reply::ListGroups(reply));
    }

    /// A group without members goes, and its offsets with it.
    pub(crate) fn delete_group(&mut self, id: &str, ctx: &Context<'_>, out: &mut Decision) {
        let code = match self.groups.get(id) {
            None => ErrorCode::GroupIdNotFound,
            Some(group) if !group.is_empty() => ErrorCode::NonEmptyGroup,
            Some(group) => {
                for (topic, parts) in self.offsets.group(id).into_iter().flat_map(|it| it.topics())
                {
                    for (partition, _) in parts.iter() {
                        out.bury(id, topic, partition);
                    }
                }
                for (topic, partition) in self.offsets.pending_of(id) {
                    out.bury(id, &topic, partition);
                }
                group.tombstones(id, &mut out.records);
                ErrorCode::None
            }
        };
        let message = match code {
            ErrorCode::None => None,
            ErrorCode::GroupIdNotFound => Some(format!("Group {id} not found.").into()),
            code => Some(code.message().into()),
        };
        let result = DeletableGroupResult {
            group_id: String::from(id).into(),
            error_code: code.code(),
            error_message: message,
        };
        out.reply(ctx.token, Reply::DeleteGroup(result));
    }
}

impl Group {
    fn group_type(&self) -> &'static str {
        match self {
            Group::Classic(_) => "Classic",
            Group::Consumer(_) => "Consumer",
        }
    }

    fn protocol_type(&self) -> &str {
        match self {
            Group::Classic(group) => group.protocol_type.as_deref().unwrap_or_default(),
            Group::Consumer(_) => CONSUMER_PROTOCOL,
        }
    }
}

fn describe_classic(id: &str, group: &ClassicGroup) -> answer::DescribedGroup<'static> {
    let text = |text: &str| String::from(text).into();
    // Only of a stable group it is known which metadata and assignment hold.
    let stable = group.state == State::Stable;
    let protocol = group.protocol.as_deref().filter(|_| stable).unwrap_or_default();
    let members = group.members.values().map(|member| answer::DescribedGroupMember {
        member_id: text(&member.id),
        group_instance_id: member.instance.as_deref().map(text),
        client_id: text(&member.client_id),
        client_host: text(&member.client_host),
        member_metadata: match stable {
            true => member.metadata(protocol).to_vec().into(),
            false => Default::default(),
        },
        member_assignment: match stable {
            true => member.assignment.to_vec().into(),
            false => Default::default(),
        },
    });
    answer::DescribedGroup {
        group_id: text(id),
        group_state: group.state.name().into(),
        protocol_type: text(group.protocol_type.as_deref().unwrap_or_default()),
        protocol_data: text(protocol),
        members: members.collect(),
        ..Default::default()
    }
}

/// For metrics, tests and tools.
impl Coordinator {
    /// Number of groups by type and state.
    pub fn group_states(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut states = BTreeMap::new();
        for group in self.groups.values() {
            *states.entry((group.group_type(), group.state())).or_default() += 1;
        }
        states
    }

    /// The ids of all groups, ascending.
    pub fn group_ids(&self) -> Vec<String> {
        let mut ids: Vec<&Name> = self.groups.keys().collect();
        ids.sort_unstable();
        ids.into_iter().map(|id| String::from(&**id)).collect()
    }
}
