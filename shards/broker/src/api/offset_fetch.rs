//! OffsetFetch (9): what groups have committed, one group a request or, from version 8 on, many.

use std::collections::HashSet;

use coord::{Reply as Answer, Request as Asked};
use wire::ErrorCode;
use wire::messages::offset_fetch_request::OffsetFetchRequest;
use wire::messages::offset_fetch_response::OffsetFetchResponseGroup;

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::groups::ask_each;
use crate::reply::Handled;

/// Offsets that the answer for several groups may hold. One group alone may have more.
const FETCHED_MAX: usize = 1_000_000;
/// Groups that are asked for before that is looked at.
const ASKED_AT_ONCE: usize = 64;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetFetchRequest<'_> = request.body()?;
    check_items(body.groups.len(), REQUEST_ITEMS_MAX)?;
    let mut groups = coord::split_fetch(&body, request.version);
    let topics = groups.iter().flat_map(|group| group.topics.iter().flatten());
    let items = items_in(topics.map(|topic| topic.partition_indexes.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    // All of a group are answered once, or a small request could ask for an answer of any size.
    let mut seen = HashSet::new();
    groups.retain(|group| group.topics.is_some() || seen.insert(group.group_id.clone()));
    let require_stable = body.require_stable;
    let asked: Vec<Asked<'_, '_>> =
        groups.iter().map(|group| Asked::OffsetFetch { group, require_stable }).collect();
    match fetch(&request, &asked).await {
        Ok(fetched) => request.reply(&coord::join_fetch(&body, fetched, request.version)),
        Err(other) => other_kind(&other),
    }
}

/// Whether the answer has every offset of a group.
pub(super) fn asks_for_all(request: &Request) -> bool {
    let Ok(body) = request.body::<OffsetFetchRequest<'_>>() else { return false };
    coord::split_fetch(&body, request.version).iter().any(|group| group.topics.is_none())
}

/// Groups whose offsets do not fit into one answer with those before them are refused.
async fn fetch(
    request: &Request,
    asked: &[Asked<'_, '_>],
) -> Result<Vec<OffsetFetchResponseGroup<'static>>, Answer> {
    let mut fetched = Vec::with_capacity(asked.len());
    let mut left = if asked.len() > DESCRIBED_ITEMS_MAX { 0 } else { FETCHED_MAX };
    for some in asked.chunks(ASKED_AT_ONCE) {
        let refuse =
            |asked: &Asked<'_, '_>| asked.refused(ErrorCode::InvalidRequest, request.version);
        let answers = match left {
            0 => some.iter().map(refuse).collect(),
            _ => ask_each(request, some).await,
        };
        for (one, answer) in some.iter().zip(answers) {
            let Answer::OffsetFetch(group) = answer else { return Err(answer) };
            let offsets = group.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>();
            if offsets > left && asked.len() > 1 {
                left = 0;
                let Answer::OffsetFetch(group) = refuse(one) else { continue };
                fetched.push(group);
                continue;
            }
            left = left.saturating_sub(offsets);
            fetched.push(group);
        }
    }
    Ok(fetched)
}
