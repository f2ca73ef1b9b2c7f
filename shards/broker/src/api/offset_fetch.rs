//! OffsetFetch (9): what groups have committed, one group a request or, from version 8 on, many.

use coord::{Reply as Answer, Request as Asked};
use wire::messages::offset_fetch_request::OffsetFetchRequest;

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::ask_each;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetFetchRequest<'_> = request.body()?;
    let groups = coord::split_fetch(&body, request.version);
    check_items(groups.len(), DESCRIBED_ITEMS_MAX)?;
    let items = groups.iter().map(|group| {
        let topics = group.topics.iter().flatten();
        topics.map(|topic| topic.partition_indexes.len()).sum::<usize>()
    });
    check_items(items.sum(), REQUEST_ITEMS_MAX)?;
    let require_stable = body.require_stable;
    let asked: Vec<Asked<'_, '_>> =
        groups.iter().map(|group| Asked::OffsetFetch { group, require_stable }).collect();
    let mut fetched = Vec::with_capacity(groups.len());
    for answer in ask_each(&request, &asked).await {
        match answer {
            Answer::OffsetFetch(group) => fetched.push(group),
            other => return other_kind(&other),
        }
    }
    request.reply(&coord::join_fetch(&body, fetched, request.version))
}
