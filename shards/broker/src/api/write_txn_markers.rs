//! WriteTxnMarkers (27): ends transactions in the partitions that are led here. Admin clients send
//! it to end one that hangs, and may end nothing else: coordinators here have a way of their own,
//! and nobody is known yet by whom a marker may come as from a coordinator (Kafka:
//! `ClusterAction`).
//!
//! | a client's marker | answer |
//! |---|---|
//! | aborts what is open, in the epochs that DescribeProducers tells | NONE, written |
//! | nothing is open | NONE, not written |
//! | an older epoch of producer, coordinator | INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED |
//! | commits, or has an epoch that is not known there | CLUSTER_AUTHORIZATION_FAILED |

use log::{EndedBy, TransactionMarker};
use wire::messages::write_txn_markers_request::{WritableTxnMarker, WriteTxnMarkersRequest};
use wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
};
use wire::records::control::EndTransaction;

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, owned};
use crate::fetch_session::TopicRef;
use crate::markers::{self, RAISES_EPOCH, WRITTEN_AT_ONCE};
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: WriteTxnMarkersRequest<'_> = request.body()?;
    let of_marker = |marker: WritableTxnMarker<'_>| {
        items_in(marker.topics.iter().map(|topic| topic.partition_indexes.len()))
    };
    check_items(items_in(body.markers.iter().map(of_marker)), REQUEST_ITEMS_MAX)?;
    let mut results = Vec::with_capacity(body.markers.len());
    for marker in body.markers.iter() {
        results.push(write(&request, &marker).await);
    }
    request.reply(&WriteTxnMarkersResponse { markers: results.into() })
}

async fn write(
    request: &Request,
    asked: &WritableTxnMarker<'_>,
) -> WritableTxnMarkerResult<'static> {
    let marker = TransactionMarker {
        producer_id: asked.producer_id,
        producer_epoch: asked.producer_epoch,
        end: EndTransaction {
            committed: asked.transaction_result,
            coordinator_epoch: asked.coordinator_epoch,
        },
        raises_epoch: i16::from(asked.transaction_version) >= RAISES_EPOCH,
        by: EndedBy::Admin,
    };
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in asked.topics.iter() {
        let topic_ref = TopicRef::Name(topic.name.as_ref().into());
        let indexes: Vec<i32> = topic.partition_indexes.iter().collect();
        let mut partitions = Vec::with_capacity(indexes.len());
        for some in indexes.chunks(WRITTEN_AT_ONCE) {
            let writes = some.iter().map(|index| {
                let topic_ref = &topic_ref;
                async move {
                    let written = markers::write(&request.shard, topic_ref, *index, marker).await;
                    WritableTxnMarkerPartitionResult {
                        partition_index: *index,
                        error_code: written.err().map_or(0, |error| error.code()),
                    }
                }
            });
            partitions.extend(reactor::join_all(writes).await);
        }
        let name = owned(topic.name.as_ref());
        topics.push(WritableTxnMarkerTopicResult { name, partitions: partitions.into() });
    }
    WritableTxnMarkerResult { producer_id: asked.producer_id, topics: topics.into() }
}
