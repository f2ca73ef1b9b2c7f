//! AlterPartitionReassignments (45): puts partitions on other nodes; on one host, on other cores.
//!
//! Answered when it is done: a hand-over takes milliseconds.

use meta::Failure;
use meta::controller::{Reassign, ReassignPartition};
use wire::ErrorCode;
use wire::messages::alter_partition_reassignments_request::AlterPartitionReassignmentsRequest;
use wire::messages::alter_partition_reassignments_response::{
    AlterPartitionReassignmentsResponse, ReassignablePartitionResponse, ReassignableTopicResponse,
};

use super::{DESCRIBED_ITEMS_MAX, Request, check_items, items_in};
use crate::control::ControlRequest;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: AlterPartitionReassignmentsRequest<'_> = request.body()?;
    let items = items_in(body.topics.iter().map(|topic| topic.partitions.len()));
    check_items(items, DESCRIBED_ITEMS_MAX)?;
    let allow_replication_factor_change = body.allow_replication_factor_change;
    let mut partitions = Vec::with_capacity(items);
    let mut asked: Vec<(String, Vec<i32>)> = Vec::new();
    for topic in body.topics.iter() {
        let name = topic.name.to_string();
        for partition in topic.partitions.iter() {
            partitions.push(ReassignPartition {
                topic: name.clone(),
                partition: partition.partition_index,
                replicas: partition.replicas.map(|nodes| nodes.to_vec()),
            });
        }
        asked.push((name, topic.partitions.iter().map(|p| p.partition_index).collect()));
    }
    drop(body);
    let reassign = Reassign { allow_replication_factor_change, partitions };
    let control = ControlRequest::Reassign(reassign);
    let (error, outcomes) = match request.shard.control(control).await.reassigned() {
        Ok(outcomes) => (None, outcomes),
        Err(failure) => (Some(failure), Vec::new()),
    };
    let mut outcomes = outcomes.into_iter();
    let responses: Vec<ReassignableTopicResponse<'_>> = asked
        .into_iter()
        .map(|(name, indexes)| ReassignableTopicResponse {
            name: name.into(),
            partitions: indexes
                .into_iter()
                .map(|index| answer(index, outcomes.next().unwrap_or(Ok(())).err()))
                .collect::<Vec<_>>()
                .into(),
        })
        .collect();
    let response = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change,
        error_code: error.as_ref().map_or(ErrorCode::None, |failure| failure.code).code(),
        error_message: error.map(|failure| failure.message.into()),
        responses: responses.into(),
        ..Default::default()
    };
    request.reply(&response)
}

fn answer(index: i32, failure: Option<Failure>) -> ReassignablePartitionResponse<'static> {
    ReassignablePartitionResponse {
        partition_index: index,
        error_code: failure.as_ref().map_or(ErrorCode::None, |failure| failure.code).code(),
        error_message: failure.map(|failure| failure.message.into()),
    }
}
