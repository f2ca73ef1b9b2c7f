//! DescribeProducers (61): what the leader of a partition remembers of its producers, above all who has a
//! transaction open and since which offset.

use log::ProducerView;
use wire::ErrorCode;
use wire::messages::describe_producers_request::DescribeProducersRequest;
use wire::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::fetch_session::TopicRef;
use crate::reply::Handled;

/// In place of the first offset of a transaction where none is open.
const NONE_OPEN: i64 = -1;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeProducersRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partition_indexes.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut topics = Vec::with_capacity(body.topics.len());
    let mut listed = 0;
    for topic in body.topics.iter() {
        let topic_ref = TopicRef::Name(topic.name.as_ref().into());
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in topic.partition_indexes.iter() {
            let described = describe(&request, &topic_ref, partition_index).await;
            let (error_code, producers) = match described {
                Ok(producers) => (0, producers),
                Err(error) => (error.code(), Vec::new()),
            };
            listed += producers.len();
            check_items(listed, REQUEST_ITEMS_MAX)?;
            partitions.push(PartitionResponse {
                partition_index,
                error_code,
                active_producers: producers.into(),
                ..Default::default()
            });
        }
        topics.push(TopicResponse { name: topic.name, partitions: partitions.into() });
    }
    request.reply(&DescribeProducersResponse { topics: topics.into(), ..Default::default() })
}

async fn describe(
    request: &Request,
    topic: &TopicRef,
    index: i32,
) -> Result<Vec<ProducerState>, ErrorCode> {
    let open = request.shard.partition_when_open(topic, index).await;
    let partition = open.map_err(|not_here| not_here.error)?;
    Ok(partition.log.producers().into_iter().map(state_of).collect())
}

fn state_of(producer: ProducerView) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch.into(),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.open_since.unwrap_or(NONE_OPEN),
    }
}
