//! OffsetFetch (9): what groups have committed, one group a request or, from version 8 on, many.

use std::collections::HashSet;

use coord::{Reply as Answer, Request as Asked};
use wire::messages::offset_fetch_request::OffsetFetchRequest;

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::groups::ask_each;
use crate::reply::Handled;

/// Offsets that the answer for several groups may hold. One group alone may have more.
const FETCHED_MAX: usize = 1_000_000;
/// Groups that are asked for before that is looked at.
const ASKED_AT_ONCE: usize = 64;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetFetchRequest<'_> = request.body()?;
    let mut groups = coord::split_fetch(&body, request.version);
    check_items(groups.len(), DESCRIBED_ITEMS_MAX)?;
    let topics = groups.iter().flat_map(|group| group.topics.iter().flatten());
    let items = items_in(topics.map(|topic| topic.partition_indexes.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    // All of a group are answered once, or a small request could ask for an answer of any size.
    let mut seen = HashSet::new();
    groups.retain(|group| group.topics.is_some() || seen.insert(group.group_id.clone()));
    let require_stable = body.require_stable;
    let asked: Vec<Asked<'_, '_>> =
        groups.iter().map(|group| Asked::OffsetFetch { group, require_stable }).collect();
    let mut fetched = Vec::with_capacity(groups.len());
    let mut offsets = 0;
    for some in asked.chunks(ASKED_AT_ONCE) {
        for answer in ask_each(&request, some).await {
            let Answer::OffsetFetch(group) = answer else { return other_kind(&answer) };
            offsets += group.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>();
            fetched.push(group);
        }
        if fetched.len() > 1 {
            check_items(offsets, FETCHED_MAX)?;
        }
    }
    request.reply(&coord::join_fetch(&body, fetched, request.version))
}
