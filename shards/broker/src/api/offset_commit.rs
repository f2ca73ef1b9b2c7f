//! OffsetCommit (8): positions of a group, acknowledged like a produce with acks=all.

use coord::{Reply as Answer, Request as Asked};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::messages::offset_commit_request::{OffsetCommitRequest, OffsetCommitRequestTopic};
use wire::messages::offset_commit_response::{OffsetCommitResponse, OffsetCommitResponsePartition};
use wire::{ErrorCode, Text};

use super::{REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::{ask, note_commits};
use crate::reply::Handled;
use crate::shard::Shard;

/// What a record takes at most beside its names and metadata, in bytes.
const RECORD_BYTES: usize = 64;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetCommitRequest<'_> = request.body()?;
    let items = body.topics.iter().map(|topic| topic.partitions.len()).sum();
    check_items(items, REQUEST_ITEMS_MAX)?;
    let asked = Asked::OffsetCommit(&body);
    let most = request.shard.topic_config(GROUP_OFFSETS_TOPIC).max_message_bytes as usize;
    // Each record repeats the names, so a small request may ask for records of any size.
    let answer = match records_bytes(&body, &request.shard) > most {
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

/// Of the records that the coordinator would make: none for an unknown topic, or metadata that is too
/// long, which are refused one by one.
fn records_bytes(body: &OffsetCommitRequest<'_>, shard: &Shard) -> usize {
    let metadata_max = shard.config().groups.offset_metadata_max as usize;
    let image = shard.image();
    let of_topic = |topic: OffsetCommitRequestTopic<'_>| {
        let name = match topic.topic_id.is_zero() {
            true => topic.name.len(),
            false => image.topic_by_id(topic.topic_id).map_or(0, |topic| topic.name.len()),
        };
        let names = body.group_id.len() + name;
        let metadata = topic.partitions.iter().map(|p| p.committed_metadata);
        let lengths = metadata.map(|text: Option<Text<'_>>| text.map_or(0, |text| text.len()));
        let recorded = lengths.filter(|length| *length <= metadata_max);
        recorded.map(|length| names + length + RECORD_BYTES).sum::<usize>()
    };
    body.topics.iter().map(of_topic).sum()
}

fn committed(response: &OffsetCommitResponse<'_>) -> usize {
    let done = |p: &OffsetCommitResponsePartition| p.error_code == ErrorCode::None.code();
    response.topics.iter().map(|topic| topic.partitions.iter().filter(done).count()).sum()
}
