//! CreatePartitions (37): adds partitions to topics; what is there stays as it is.

use meta::Failure;
use meta::controller::CreatePartitions;
use wire::ErrorCode;
use wire::messages::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use wire::messages::create_partitions_response::{
    CreatePartitionsResponse, CreatePartitionsTopicResult,
};

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::control::ControlRequest;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: CreatePartitionsRequest<'_> = request.body()?;
    let assignments = |topic: CreatePartitionsTopic<'_>| topic.assignments.map_or(0, |it| it.len());
    check_items(body.topics.len(), DESCRIBED_ITEMS_MAX)?;
    check_items(items_in(body.topics.iter().map(assignments)), REQUEST_ITEMS_MAX)?;
    let validate_only = body.validate_only;
    let topics: Vec<CreatePartitions> = body
        .topics
        .iter()
        .map(|topic| CreatePartitions {
            topic: topic.name.to_string(),
            count: topic.count,
            assignments: topic
                .assignments
                .as_ref()
                .map(|all| all.iter().map(|one| one.broker_ids.to_vec()).collect()),
        })
        .collect();
    drop(body);
    let asked: Vec<String> = topics.iter().map(|topic| topic.topic.clone()).collect();
    let control = ControlRequest::CreatePartitions { topics, validate_only };
    let outcomes = request.shard.control(control).await.partitions_created();
    let outcomes = outcomes.unwrap_or_else(|failure| {
        asked.into_iter().map(|name| (name, Err(failure.clone()))).collect()
    });
    let results: Vec<CreatePartitionsTopicResult<'_>> =
        outcomes.into_iter().map(|(name, outcome)| result(name, outcome.err())).collect();
    request.reply(&CreatePartitionsResponse { results: results.into(), ..Default::default() })
}

fn result(name: String, failure: Option<Failure>) -> CreatePartitionsTopicResult<'static> {
    let (error, message) = match failure {
        None => (ErrorCode::None, None),
        Some(failure) => (failure.code, Some(failure.message.into())),
    };
    CreatePartitionsTopicResult {
        name: name.into(),
        error_code: error.code(),
        error_message: message,
    }
}
