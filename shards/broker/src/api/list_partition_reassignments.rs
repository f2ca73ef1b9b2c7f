//! ListPartitionReassignments (46): the moves under way between nodes, for tools that wait for
//! them.

use wire::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use wire::messages::list_partition_reassignments_response::{
    ListPartitionReassignmentsResponse, OngoingPartitionReassignment, OngoingTopicReassignment,
};

use super::metadata::node_ids;
use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: ListPartitionReassignmentsRequest<'_> = request.body()?;
    let image = request.shard.image();
    let mut topics = Vec::new();
    match &body.topics {
        None => {
            for topic in image.topics() {
                let all = (0i32..).take(topic.partitions.len());
                topics.extend(ongoing(topic, all));
            }
        }
        Some(asked) => {
            let items = items_in(asked.iter().map(|topic| topic.partition_indexes.len()));
            check_items(items, REQUEST_ITEMS_MAX)?;
            for one in asked.iter() {
                if let Some(topic) = image.topic_by_name(&one.name) {
                    topics.extend(ongoing(topic, one.partition_indexes.iter()));
                }
            }
        }
    }
    request
        .reply(&ListPartitionReassignmentsResponse { topics: topics.into(), ..Default::default() })
}

fn ongoing(
    topic: &meta::Topic,
    indexes: impl Iterator<Item = i32>,
) -> Option<OngoingTopicReassignment<'static>> {
    let partitions: Vec<OngoingPartitionReassignment<'static>> = indexes
        .filter_map(|index| Some((index, topic.partition(index)?)))
        .filter(|(_, partition)| partition.is_reassigning())
        .map(|(index, partition)| {
            let mut replicas = node_ids(&partition.replicas);
            replicas.extend(node_ids(&partition.adding));
            OngoingPartitionReassignment {
                partition_index: index,
                replicas: replicas.into(),
                adding_replicas: node_ids(&partition.adding).into(),
                removing_replicas: node_ids(&partition.removing).into(),
            }
        })
        .collect();
    let name = topic.name.to_string().into();
    (!partitions.is_empty())
        .then(|| OngoingTopicReassignment { name, partitions: partitions.into() })
}
