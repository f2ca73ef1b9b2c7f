//! OffsetCommit (8): positions of a group, acknowledged like a produce with acks=all.

use coord::{Reply as Answer, Request as Asked};
use wire::ErrorCode;
use wire::messages::offset_commit_request::OffsetCommitRequest;
use wire::messages::offset_commit_response::{OffsetCommitResponse, OffsetCommitResponsePartition};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::groups::{ask, note_commits};
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetCommitRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    match ask(&request, Asked::OffsetCommit(&body)).await {
        Answer::OffsetCommit(response) => {
            note_commits(&request.shard, committed(&response));
            request.reply(&response)
        }
        other => other_kind(&other),
    }
}

fn committed(response: &OffsetCommitResponse<'_>) -> usize {
    let done = |p: &OffsetCommitResponsePartition| p.error_code == ErrorCode::None.code();
    response.topics.iter().map(|topic| topic.partitions.iter().filter(done).count()).sum()
}
