//! OffsetCommit (8): positions of a group, acknowledged like a produce with acks=all.

use coord::{Reply as Answer, Request as Asked};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::messages::offset_commit_request::OffsetCommitRequest;
use wire::messages::offset_commit_response::{OffsetCommitResponse, OffsetCommitResponsePartition};
use wire::{ErrorCode, Uuid};

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
    let answer =
        match records_bytes(&request.shard, body.group_id.len(), committed_topics(&body)) > most {
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

/// A topic of a commit, as far as the size of its records goes.
pub(super) struct CommittedTopic {
    pub id: Uuid,
    pub name_bytes: usize,
    /// Of each partition.
    pub metadata_bytes: Vec<usize>,
}

/// Of the records that the coordinator would make: none for an unknown topic, or metadata that is too
/// long, which are refused one by one.
pub(super) fn records_bytes(
    shard: &Shard,
    group_bytes: usize,
    topics: impl Iterator<Item = CommittedTopic>,
) -> usize {
    let metadata_max = shard.config().groups.offset_metadata_max as usize;
    let image = shard.image();
    let of_topic = |topic: CommittedTopic| {
        let name = match topic.id.is_zero() {
            true => topic.name_bytes,
            false => image.topic_by_id(topic.id).map_or(0, |topic| topic.name.len()),
        };
        let each = group_bytes + name + RECORD_BYTES;
        let recorded = topic.metadata_bytes.iter().filter(|length| **length <= metadata_max);
        recorded.map(|length| each + length).sum::<usize>()
    };
    topics.map(of_topic).sum()
}

fn committed_topics<'a>(
    body: &'a OffsetCommitRequest<'_>,
) -> impl Iterator<Item = CommittedTopic> + 'a {
    body.topics.iter().map(|topic| CommittedTopic {
        id: topic.topic_id,
        name_bytes: topic.name.len(),
        metadata_bytes: topic
            .partitions
            .iter()
            .map(|part| part.committed_metadata.map_or(0, |text| text.len()))
            .collect(),
    })
}

fn committed(response: &OffsetCommitResponse<'_>) -> usize {
    let done = |p: &OffsetCommitResponsePartition| p.error_code == ErrorCode::None.code();
    response.topics.iter().map(|topic| topic.partitions.iter().filter(done).count()).sum()
}
