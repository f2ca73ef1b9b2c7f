//! ListOffsets (2): offsets by timestamp, or by one of the special timestamps.

use std::collections::HashSet;

use reactor::{Class, with_class};
use wire::ErrorCode;
use wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest};
use wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::fetch_session::TopicRef;
use crate::partition::Partition;
use crate::reply::Handled;

const READ_COMMITTED: i8 = 1;
/// From this version on an answer has the epoch of its offset.
const LEADER_EPOCH_VERSION: i16 = 4;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// An answer of one partition: offset, timestamp, leader epoch.
type Found = (i64, i64, i32);
const NOTHING: Found = (-1, -1, -1);

pub(crate) async fn handle(request: Request) -> Handled {
    let body: ListOffsetsRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut topics = Vec::with_capacity(body.topics.len());
    let mut seen = HashSet::new();
    for topic in body.topics.iter() {
        let topic_ref = TopicRef::Name(topic.name.as_ref().into());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions.iter() {
            let result = if seen.insert((topic_ref.clone(), asked.partition_index)) {
                find(&request, &topic_ref, &asked, body.isolation_level).await
            } else {
                Err(ErrorCode::InvalidRequest)
            };
            let mut response = ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                ..Default::default()
            };
            match result {
                Ok((offset, timestamp, epoch)) => {
                    (response.offset, response.timestamp) = (offset, timestamp);
                    if request.version >= LEADER_EPOCH_VERSION {
                        response.leader_epoch = epoch;
                    }
                }
                Err(error) => response.error_code = error.code(),
            }
            partitions.push(response);
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name, partitions: partitions.into() });
    }
    request.reply(&ListOffsetsResponse { topics: topics.into(), ..Default::default() })
}

/// The first request version that knows a special timestamp.
fn version_of(timestamp: i64) -> Option<i16> {
    match timestamp {
        LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        EARLIEST_PENDING_UPLOAD => Some(11),
        at if at >= 0 => Some(1),
        _ => None,
    }
}

async fn find(
    request: &Request,
    topic: &TopicRef,
    asked: &ListOffsetsPartition,
    isolation: i8,
) -> Result<Found, ErrorCode> {
    if version_of(asked.timestamp).is_none_or(|version| request.version < version) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let partition = request
        .shard
        .partition_when_open(topic, asked.partition_index)
        .await
        .map_err(|not_here| not_here.error)?;
    partition.check_leader_epoch(asked.current_leader_epoch)?;
    let upper = if isolation == READ_COMMITTED {
        partition.last_stable_offset()
    } else {
        partition.high_watermark()
    };
    look_up(&partition, asked.timestamp, upper).await
}

async fn look_up(partition: &Partition, timestamp: i64, upper: i64) -> Result<Found, ErrorCode> {
    let log = &partition.log;
    match timestamp {
        LATEST => Ok((upper, -1, partition.leader_epoch())),
        EARLIEST | EARLIEST_LOCAL => {
            let start = log.log_start_offset();
            Ok((start, -1, log.epoch_of_offset(start)))
        }
        // Nothing is tiered here: there is no such offset.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(NOTHING),
        MAX_TIMESTAMP => {
            let found = with_class(Class::Backfill, log.offset_of_max_timestamp(upper)).await;
            found_at(found.map_err(|error| crate::errors::of_log(&error))?)
        }
        at => {
            let found = with_class(Class::Backfill, log.offset_for_timestamp(at, upper)).await;
            found_at(found.map_err(|error| crate::errors::of_log(&error))?)
        }
    }
}

fn found_at(found: Option<log::OffsetAt>) -> Result<Found, ErrorCode> {
    Ok(found.map_or(NOTHING, |at| (at.offset, at.timestamp, at.epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_special_timestamp_has_its_first_version() {
        let table = [(0, 1), (1, 1), (-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)];
        for (timestamp, version) in table {
            assert_eq!(version_of(timestamp), Some(version), "timestamp {timestamp}");
        }
        assert_eq!(version_of(-7), None);
    }
}
