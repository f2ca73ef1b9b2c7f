//! DescribeTopicPartitions (75): topics page by page, in name order, with a cursor between pages.

use wire::ErrorCode;
use wire::messages::describe_topic_partitions_request::DescribeTopicPartitionsRequest;
use wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};

use super::metadata::{leader, node_ids};
use super::{Request, owned};
use crate::reply::Handled;
use crate::shard::Shard;

/// Where a page starts: everything before this topic, and this partition of it, was sent.
struct From {
    topic: String,
    partition: i32,
}

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeTopicPartitionsRequest<'_> = request.body()?;
    let from = body.cursor.as_ref().map(|cursor| From {
        topic: cursor.topic_name.to_string(),
        partition: cursor.partition_index,
    });
    if from.as_ref().is_some_and(|from| from.partition < 0) {
        return request.reply(&DescribeTopicPartitionsResponse::default());
    }
    let page_max = request.shard.config().max_request_partition_size_limit as usize;
    let limit = (body.response_partition_limit.max(1) as usize).min(page_max);
    let mut names: Vec<String> = if body.topics.is_empty() {
        request.shard.image().topics().map(|topic| topic.name.to_string()).collect()
    } else {
        body.topics.iter().map(|topic| topic.name.to_string()).collect()
    };
    drop(body);
    names.sort();
    names.dedup();
    if let Some(from) = &from {
        names.retain(|name| *name >= from.topic);
    }
    let page = fill(&request.shard, &names, from, limit);
    request.reply(&page)
}

fn fill(
    shard: &Shard,
    names: &[String],
    from: Option<From>,
    limit: usize,
) -> DescribeTopicPartitionsResponse<'static> {
    let image = shard.image();
    let mut topics = Vec::new();
    let mut next_cursor = None;
    let mut room = limit;
    for name in names {
        let Some(topic) = image.topic_by_name(name) else {
            topics.push(missing(name));
            continue;
        };
        let first = match &from {
            Some(from) if from.topic == *name => from.partition,
            Some(_) | None => 0,
        };
        if room == 0 {
            next_cursor = Some(Cursor { topic_name: owned(name), partition_index: first });
            break;
        }
        let mut partitions = Vec::new();
        let numbered = (0i32..).zip(&topic.partitions);
        for (index, partition) in numbered.filter(|(index, _)| *index >= first) {
            if room == 0 {
                next_cursor = Some(Cursor { topic_name: owned(name), partition_index: index });
                break;
            }
            room -= 1;
            partitions.push(described(shard, index, partition));
        }
        topics.push(DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(owned(name)),
            topic_id: topic.id,
            is_internal: meta::controller::is_internal(name),
            partitions: partitions.into(),
            ..Default::default()
        });
        if next_cursor.is_some() {
            break;
        }
    }
    DescribeTopicPartitionsResponse { topics: topics.into(), next_cursor, ..Default::default() }
}

fn missing(name: &str) -> DescribeTopicPartitionsResponseTopic<'static> {
    let error = match meta::controller::topic_name_problem(name) {
        None => ErrorCode::UnknownTopicOrPartition,
        Some(_) => ErrorCode::InvalidTopicException,
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(owned(name)),
        ..Default::default()
    }
}

fn described(
    shard: &Shard,
    index: i32,
    partition: &meta::Partition,
) -> DescribeTopicPartitionsResponsePartition<'static> {
    let offline = shard.offline_replicas(partition);
    let (leader_id, error) = leader(partition, &offline);
    DescribeTopicPartitionsResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id,
        leader_epoch: partition.leader_epoch,
        replica_nodes: node_ids(&partition.replicas).into(),
        isr_nodes: node_ids(&partition.isr).into(),
        eligible_leader_replicas: Some(Vec::new().into()),
        last_known_elr: Some(Vec::new().into()),
        offline_replicas: offline.into(),
    }
}
