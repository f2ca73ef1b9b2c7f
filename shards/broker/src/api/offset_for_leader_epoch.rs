//! OffsetForLeaderEpoch (23): where an epoch ended, so that a reader can tell a truncated log.

use wire::ErrorCode;
use wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition,
};
use wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::fetch_session::TopicRef;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: OffsetForLeaderEpochRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut topics = Vec::with_capacity(body.topics.len());
    for topic in body.topics.iter() {
        let topic_ref = TopicRef::Name(topic.topic.as_ref().into());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions.iter() {
            let mut response = EpochEndOffset { partition: asked.partition, ..Default::default() };
            match find(&request, &topic_ref, &asked).await {
                Ok((epoch, end_offset)) => {
                    (response.leader_epoch, response.end_offset) = (epoch, end_offset);
                }
                Err(error) => response.error_code = error.code(),
            }
            partitions.push(response);
        }
        topics
            .push(OffsetForLeaderTopicResult { topic: topic.topic, partitions: partitions.into() });
    }
    request.reply(&OffsetForLeaderEpochResponse { topics: topics.into(), ..Default::default() })
}

async fn find(
    request: &Request,
    topic: &TopicRef,
    asked: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ErrorCode> {
    let partition = request
        .shard
        .partition_when_open(topic, asked.partition)
        .await
        .map_err(|not_here| not_here.error)?;
    partition.check_leader_epoch(asked.current_leader_epoch)?;
    Ok(partition.end_offset_for_epoch(asked.leader_epoch))
}
