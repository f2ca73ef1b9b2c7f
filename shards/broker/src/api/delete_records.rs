//! DeleteRecords (21): moves a partition's log start offset up, durably.

use wire::ErrorCode;
use wire::messages::delete_records_request::DeleteRecordsRequest;
use wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::fetch_session::TopicRef;
use crate::reply::Handled;

/// Asks for everything below the high watermark.
const UP_TO_HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DeleteRecordsRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut topics = Vec::with_capacity(body.topics.len());
    for topic in body.topics.iter() {
        let topic_ref = TopicRef::Name(topic.name.as_ref().into());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions.iter() {
            let mut result = DeleteRecordsPartitionResult {
                partition_index: asked.partition_index,
                low_watermark: -1,
                ..Default::default()
            };
            match delete(&request, &topic_ref, asked.partition_index, asked.offset).await {
                Ok(low_watermark) => result.low_watermark = low_watermark,
                Err(error) => result.error_code = error.code(),
            }
            partitions.push(result);
        }
        topics.push(DeleteRecordsTopicResult { name: topic.name, partitions: partitions.into() });
    }
    request.reply(&DeleteRecordsResponse { topics: topics.into(), ..Default::default() })
}

async fn delete(
    request: &Request,
    topic: &TopicRef,
    index: i32,
    offset: i64,
) -> Result<i64, ErrorCode> {
    let shard = &request.shard;
    let open = || shard.partition_when_open(topic, index);
    let mut partition = open().await.map_err(|not_here| not_here.error)?;
    if partition.ran_out_of_space() == Some(true) {
        // Deleting is what makes room again, and it needs a log that can be written.
        shard.partitions.reopen(shard, &partition);
        partition = open().await.map_err(|not_here| not_here.error)?;
    }
    if partition.is_internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    if !partition.may_delete_records() {
        return Err(ErrorCode::PolicyViolation);
    }
    let high_watermark = partition.high_watermark();
    let target = if offset == UP_TO_HIGH_WATERMARK { high_watermark } else { offset };
    if !(0..=high_watermark).contains(&target) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let log = &partition.log;
    if target > log.log_start_offset() {
        log.advance_log_start(target).await.map_err(|error| crate::errors::of_log(&error))?;
    }
    Ok(log.log_start_offset())
}
