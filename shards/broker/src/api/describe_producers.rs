//! DescribeProducers (61): what the leader of a partition remembers of its producers, above all who
//! has a transaction open and since which offset.
//!
//! Producers may be too many for one answer. Who asks for many partitions looks for transactions
//! that hang: from then on the idle ones are left out, and a partition whose open transactions have
//! no room either is answered as if it were led elsewhere, so that clients ask for it again, beside
//! fewer others.

use log::ProducerView;
use log::producer_state::MAX_PRODUCERS;
use wire::ErrorCode;
use wire::messages::describe_producers_request::DescribeProducersRequest;
use wire::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::fetch_session::TopicRef;
use crate::reply::Handled;

/// Producers in one answer. The first partition of a request always has room.
const LISTED_MAX: usize = REQUEST_ITEMS_MAX;
const _: () = assert!(LISTED_MAX >= MAX_PRODUCERS);
/// Producers looked at for one answer; what is left of the request is to be asked for again.
const LOOKED_AT_MAX: usize = 8 * LISTED_MAX;

/// Producers looked at without a break for others.
const AT_ONCE: usize = 256;

/// In place of the first offset of a transaction where none is open.
const NONE_OPEN: i64 = -1;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeProducersRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partition_indexes.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut topics = Vec::with_capacity(body.topics.len());
    let (mut listed, mut looked_at) = (0, 0);
    for topic in body.topics.iter() {
        let topic_ref = TopicRef::Name(topic.name.as_ref().into());
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in topic.partition_indexes.iter() {
            let described = match looked_at < LOOKED_AT_MAX {
                true => describe(&request, &topic_ref, partition_index).await,
                false => Err(ErrorCode::NotLeaderOrFollower),
            };
            looked_at += described.as_ref().map_or(0, Vec::len);
            let fitting = described.and_then(|all| fitting(all, LISTED_MAX - listed));
            let (error_code, producers) = match fitting {
                Ok(producers) => (0, producers),
                Err(error) => (error.code(), Vec::new()),
            };
            listed += producers.len();
            reactor::yield_if_due().await;
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
    let mut all = Vec::with_capacity(partition.log.producer_count());
    for producer in partition.log.producers() {
        all.push(state_of(producer));
        if all.len().is_multiple_of(AT_ONCE) {
            reactor::yield_if_due().await;
        }
    }
    Ok(all)
}

/// What there is room for: all, or at least every open transaction.
fn fitting(mut all: Vec<ProducerState>, room: usize) -> Result<Vec<ProducerState>, ErrorCode> {
    if all.len() > room {
        all.retain(|producer| producer.current_txn_start_offset != NONE_OPEN);
    }
    if all.len() > room { Err(ErrorCode::NotLeaderOrFollower) } else { Ok(all) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn producers(open: usize, idle: usize) -> Vec<ProducerState> {
        let offsets = (0..open as i64).chain(std::iter::repeat_n(NONE_OPEN, idle));
        let with = |current_txn_start_offset| ProducerState {
            current_txn_start_offset,
            ..Default::default()
        };
        offsets.map(with).collect()
    }

    #[test]
    fn open_transactions_are_told_before_idle_producers_and_never_left_out() {
        assert_eq!(fitting(producers(3, 4), 7).map(|all| all.len()), Ok(7));
        assert_eq!(fitting(producers(3, 4), 6), Ok(producers(3, 0)));
        assert_eq!(fitting(producers(3, 4), 3), Ok(producers(3, 0)));
        assert_eq!(fitting(producers(3, 4), 2), Err(ErrorCode::NotLeaderOrFollower));
        assert_eq!(fitting(producers(0, 4), 0), Ok(Vec::new()));
    }
}
