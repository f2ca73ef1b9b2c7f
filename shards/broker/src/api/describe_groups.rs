//! DescribeGroups (15) and ConsumerGroupDescribe (69): members and assignments of groups of either
//! protocol.

use std::collections::HashSet;

use coord::{Reply as Answer, Request as Asked};
use wire::ErrorCode;
use wire::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use wire::messages::consumer_group_describe_response::ConsumerGroupDescribeResponse;
use wire::messages::describe_groups_request::DescribeGroupsRequest;
use wire::messages::describe_groups_response::DescribeGroupsResponse;
use wire::{Array, Text};

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::ask_each;
use crate::reply::Handled;

/// Everything that may be done with a group, as bits of Kafka's operations: read (3), delete (6),
/// describe (8), describe configs (10), alter configs (11). Nobody is kept from anything yet.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;
/// The client has not asked.
const NOT_ASKED: i32 = i32::MIN;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeGroupsRequest<'_> = request.body()?;
    let names = distinct(&body.groups)?;
    let asked: Vec<Asked<'_, '_>> = names.iter().map(|name| Asked::DescribeGroup(name)).collect();
    let operations = operations(body.include_authorized_operations);
    let mut groups = Vec::with_capacity(names.len());
    for answer in ask_each_or_none(&request, &asked).await {
        match answer {
            Answer::DescribeGroup(mut group) => {
                if group.error_code == ErrorCode::None.code() {
                    group.authorized_operations = operations;
                }
                groups.push(group);
            }
            other => return other_kind(&other),
        }
    }
    request.reply(&DescribeGroupsResponse { groups: groups.into(), ..Default::default() })
}

pub(crate) async fn handle_consumer(request: Request) -> Handled {
    let body: ConsumerGroupDescribeRequest<'_> = request.body()?;
    let names = distinct(&body.group_ids)?;
    let asked: Vec<Asked<'_, '_>> =
        names.iter().map(|name| Asked::ConsumerGroupDescribe(name)).collect();
    let operations = operations(body.include_authorized_operations);
    let answers = match request.shard.offers_consumer_groups() {
        true => ask_each_or_none(&request, &asked).await,
        false => {
            let code = ErrorCode::UnsupportedVersion;
            asked.iter().map(|asked| asked.refused(code, request.version)).collect()
        }
    };
    let mut groups = Vec::with_capacity(names.len());
    for answer in answers {
        match answer {
            Answer::ConsumerGroupDescribe(mut group) => {
                if group.error_code == ErrorCode::None.code() {
                    group.authorized_operations = operations;
                }
                groups.push(group);
            }
            other => return other_kind(&other),
        }
    }
    request.reply(&ConsumerGroupDescribeResponse { groups: groups.into(), ..Default::default() })
}

fn operations(asked: bool) -> i32 {
    if asked { GROUP_OPERATIONS } else { NOT_ASKED }
}

/// Each name once: a group named a thousand times is answered once, or a small request could ask
/// for an answer of any size.
pub(super) fn distinct<'a>(
    names: &Array<'a, Text<'a>>,
) -> Result<Vec<Text<'a>>, crate::reply::Close> {
    check_items(names.len(), REQUEST_ITEMS_MAX)?;
    let mut seen = HashSet::new();
    Ok(names.iter().filter(|name| seen.insert(name.clone())).collect())
}

/// Asks for each group, or refuses each where they are too many for one answer.
pub(super) async fn ask_each_or_none(request: &Request, asked: &[Asked<'_, '_>]) -> Vec<Answer> {
    if asked.len() <= DESCRIBED_ITEMS_MAX {
        return ask_each(request, asked).await;
    }
    let code = ErrorCode::InvalidRequest;
    asked.iter().map(|asked| asked.refused(code, request.version)).collect()
}
