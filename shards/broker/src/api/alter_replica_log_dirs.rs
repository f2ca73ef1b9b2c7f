//! AlterReplicaLogDirs (34): moves partitions of this shard to other data directories.
//!
//! Answered as soon as the moves are begun; DescribeLogDirs shows how far they are.

use wire::ErrorCode;
use wire::messages::alter_replica_log_dirs_request::AlterReplicaLogDirsRequest;
use wire::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::data_dirs::moves;
use crate::fetch_session::TopicRef;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: AlterReplicaLogDirsRequest<'_> = request.body()?;
    let topics = |dir: &wire::messages::alter_replica_log_dirs_request::AlterReplicaLogDir<'_>| {
        items_in(dir.topics.iter().map(|topic| topic.partitions.len()))
    };
    check_items(items_in(body.dirs.iter().map(|dir| topics(&dir))), REQUEST_ITEMS_MAX)?;
    let mut results = Vec::new();
    for dir in body.dirs.iter() {
        for topic in dir.topics.iter() {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for index in topic.partitions.iter() {
                let begun = begin(&request, &dir.path, &topic.name, index).await;
                partitions.push(AlterReplicaLogDirPartitionResult {
                    partition_index: index,
                    error_code: begun.err().unwrap_or(ErrorCode::None).code(),
                });
            }
            results.push(AlterReplicaLogDirTopicResult {
                topic_name: topic.name.to_string().into(),
                partitions: partitions.into(),
            });
        }
    }
    request.reply(&AlterReplicaLogDirsResponse { results: results.into(), ..Default::default() })
}

async fn begin(request: &Request, path: &str, topic: &str, index: i32) -> Result<(), ErrorCode> {
    let shard = &request.shard;
    let topic = TopicRef::Name(topic.into());
    let partition = match shard.partition_when_open(&topic, index).await {
        Ok(partition) => Some(Ok(partition)),
        Err(not_here) if not_here.error == ErrorCode::KafkaStorageError => {
            Some(Err(not_here.error))
        }
        Err(_) => None,
    };
    moves::begin(shard, path, partition)
}
