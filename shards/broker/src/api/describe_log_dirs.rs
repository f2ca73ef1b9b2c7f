//! DescribeLogDirs (35): this shard's partitions, per data directory, with sizes.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

use reactor::fs::Space;

use wire::ErrorCode;
use wire::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, owned};
use crate::data_dirs::DirState;
use crate::reply::Handled;
use crate::shard::{OPENING_WAIT_MAX, Shard};

/// How long a disk may take to tell its free space.
const SPACE_WAIT: Duration = Duration::from_secs(5);

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeLogDirsRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().flatten().map(|topic| topic.partitions.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let asked: Option<HashSet<(String, i32)>> = body.topics.as_ref().map(|topics| {
        let mut asked = HashSet::new();
        for topic in topics.iter() {
            let name = topic.topic.as_ref();
            asked.extend(topic.partitions.iter().map(|index| (name.to_owned(), index)));
        }
        asked
    });
    drop(body);
    let shard = &request.shard;
    // A partition that was just created has a size as soon as it is open; one that takes longer is
    // left out.
    let _ = reactor::timeout(OPENING_WAIT_MAX, shard.partitions.settled()).await;
    let mut results = Vec::new();
    for (number, path) in shard.data_dirs().iter().enumerate() {
        let space = match shard.data_dir_state(number) {
            DirState::Failed(_) => None,
            DirState::Online | DirState::Full => space(path).await,
        };
        let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
        for partition in shard.open_partitions().iter().filter(|p| p.dir_number == number) {
            let name = partition.topic.to_string();
            let key = (name, partition.index);
            if asked.as_ref().is_some_and(|asked| !asked.contains(&key)) {
                continue;
            }
            topics.entry(key.0).or_default().push(DescribeLogDirsPartition {
                partition_index: partition.index,
                partition_size: i64::try_from(partition.log.size_bytes()).unwrap_or(i64::MAX),
                offset_lag: 0,
                is_future_key: false,
            });
        }
        for (name, future) in futures(shard, number) {
            if asked.as_ref().is_none_or(|a| a.contains(&(name.clone(), future.partition_index))) {
                topics.entry(name).or_default().push(future);
            }
        }
        let topics: Vec<DescribeLogDirsTopic<'_>> = topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic {
                name: name.into(),
                partitions: partitions.into(),
            })
            .collect();
        let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        results.push(DescribeLogDirsResult {
            error_code: match space {
                Some(_) => ErrorCode::None.code(),
                None => ErrorCode::KafkaStorageError.code(),
            },
            log_dir: owned(&path.to_string_lossy()),
            topics: topics.into(),
            total_bytes: space.as_ref().map_or(-1, |space| bytes(space.total)),
            usable_bytes: space.as_ref().map_or(-1, |space| bytes(space.available)),
            is_cordoned: false,
        });
    }
    request.reply(&DescribeLogDirsResponse { results: results.into(), ..Default::default() })
}

/// The copies that are being made in a directory.
fn futures(shard: &Shard, dir_number: usize) -> Vec<(String, DescribeLogDirsPartition)> {
    let open = shard.open_partitions();
    let moving = open.iter().filter_map(|partition| {
        let moving = shard.moves.of((partition.topic_id, partition.index))?;
        (moving.target == dir_number).then(|| {
            let size = moving.copied_bytes.get();
            let lag = partition.log.log_end_offset() - moving.next_offset.get();
            let future = DescribeLogDirsPartition {
                partition_index: partition.index,
                partition_size: i64::try_from(size).unwrap_or(i64::MAX),
                offset_lag: lag.max(0),
                is_future_key: true,
            };
            (partition.topic.to_string(), future)
        })
    });
    moving.collect()
}

/// A directory that does not answer cannot be used, whatever it is.
async fn space(path: &Path) -> Option<Space> {
    reactor::timeout(SPACE_WAIT, reactor::fs::space(path)).await.ok()?.ok()
}
