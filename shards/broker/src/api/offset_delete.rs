//! OffsetDelete (47): a group forgets positions of topics that nobody in it reads.

use coord::{Reply as Answer, Request as Asked};
use wire::messages::offset_delete_request::OffsetDeleteRequest;

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::groups::ask;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetDeleteRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    match ask(&request, Asked::OffsetDelete(&body)).await {
        Answer::OffsetDelete(response) => request.reply(&response),
        other => other_kind(&other),
    }
}
