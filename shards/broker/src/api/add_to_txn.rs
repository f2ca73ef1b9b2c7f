//! AddPartitionsToTxn (24) and AddOffsetsToTxn (25): what a transaction will write to, told to its
//! coordinator by clients of the old protocol, or by leaders.

use coord::txn::{TxnReply, TxnRequest, join_add_partitions, split_add_partitions};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::messages::{AddOffsetsToTxnRequest, AddPartitionsToTxnRequest};

use super::find_coordinator::{COORDINATOR_PARTITIONS, create_internal_topic};
use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, other_transaction_kind};
use crate::coordinators::partition_of;
use crate::reply::Handled;
use crate::transactions;

pub(crate) async fn handle_partitions(request: Request) -> Handled {
    let body: AddPartitionsToTxnRequest<'_> = request.body()?;
    let parts = split_add_partitions(&body, request.version);
    let topics = parts.iter().flat_map(|part| part.topics.iter());
    let items = parts.len().saturating_add(items_in(topics.map(|topic| topic.partitions.len())));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let mut results = Vec::with_capacity(parts.len());
    for part in &parts {
        let asked = TxnRequest::AddPartitions(part);
        match transactions::ask(&request.shard, request.version, asked).await {
            TxnReply::AddPartitions(result) => results.push(result),
            other => return other_transaction_kind(&other),
        }
    }
    request.reply(&join_add_partitions(results, request.version))
}

pub(crate) async fn handle_offsets(request: Request) -> Handled {
    let body: AddOffsetsToTxnRequest<'_> = request.body()?;
    create_internal_topic(&request.shard, GROUP_OFFSETS_TOPIC).await;
    let partitions = {
        let image = request.shard.image();
        let topic = image.topic_by_name(GROUP_OFFSETS_TOPIC);
        topic.map_or(COORDINATOR_PARTITIONS as usize, |topic| topic.partitions.len())
    };
    let partition = partition_of(&body.group_id, partitions);
    let asked = TxnRequest::AddOffsets { request: &body, partition };
    match transactions::ask(&request.shard, request.version, asked).await {
        TxnReply::AddOffsets(response) => request.reply(&response),
        other => other_transaction_kind(&other),
    }
}
