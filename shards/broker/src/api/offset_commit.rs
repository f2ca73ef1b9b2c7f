//! OffsetCommit (8): positions of a group, acknowledged like a produce with acks=all.

use coord::{Reply as Answer, Request as Asked};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::messages::offset_commit_request::{OffsetCommitRequest, OffsetCommitRequestTopic};
use wire::messages::offset_commit_response::{OffsetCommitResponse, OffsetCommitResponsePartition};
use wire::{ErrorCode, Text};

use super::{REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::{ask, note_commits};
use crate::reply::Handled;

/// What a record takes at most beside its names and metadata, in bytes.
const RECORD_BYTES: usize = 64;
/// The longest name that a topic can have; what stands for it in a request may be its id.
const TOPIC_NAME_BYTES: usize = 249;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetCommitRequest<'_> = request.body()?;
    let items = body.topics.iter().map(|topic| topic.partitions.len()).sum();
    check_items(items, REQUEST_ITEMS_MAX)?;
    let asked = Asked::OffsetCommit(&body);
    let most = request.shard.topic_config(GROUP_OFFSETS_TOPIC).max_message_bytes as usize;
    // Each record repeats the names, so a small request may ask for records of any size.
    let answer = match records_bytes(&body) > most {
        true => asked.refused(ErrorCode::UnknownServerError, request.version),
        false => ask(&request, asked).await,
    };
    match answer {
        Answer::OffsetCommit(response) => {
            note_commits(&request.shard, committed(&response));
            request.reply(&response)
        }
        other => other_kind(&other),
    }
}

fn records_bytes(body: &OffsetCommitRequest<'_>) -> usize {
    let of_topic = |topic: OffsetCommitRequestTopic<'_>| {
        let name = if topic.topic_id.is_zero() { topic.name.len() } else { TOPIC_NAME_BYTES };
        let names = body.group_id.len() + name;
        let partitions = topic.partitions.iter();
        let metadata = |text: Option<Text<'_>>| text.map_or(0, |text| text.len());
        partitions.map(|p| names + metadata(p.committed_metadata) + RECORD_BYTES).sum::<usize>()
    };
    body.topics.iter().map(of_topic).sum()
}

fn committed(response: &OffsetCommitResponse<'_>) -> usize {
    let done = |p: &OffsetCommitResponsePartition| p.error_code == ErrorCode::None.code();
    response.topics.iter().map(|topic| topic.partitions.iter().filter(done).count()).sum()
}
