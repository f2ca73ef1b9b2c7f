//! CreateTopics (19): the controller decides, every shard knows before the answer leaves.

use meta::Failure;
use meta::controller::{CreateTopic, CreatedTopic};
use wire::ErrorCode;
use wire::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::control::ControlRequest;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: CreateTopicsRequest<'_> = request.body()?;
    check_items(body.topics.len(), DESCRIBED_ITEMS_MAX)?;
    let said = body.topics.iter().map(|topic| topic.assignments.len() + topic.configs.len());
    check_items(items_in(said), REQUEST_ITEMS_MAX)?;
    let validate_only = body.validate_only;
    let topics: Vec<CreateTopic> = body.topics.iter().map(|topic| to_create(&topic)).collect();
    drop(body);
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let control = ControlRequest::CreateTopics { topics, validate_only };
    let results: Vec<CreatableTopicResult<'_>> =
        match request.shard.control(control).await.created() {
            Ok(outcomes) => outcomes
                .into_iter()
                .map(|(name, outcome)| match outcome {
                    Ok(topic) => created(name, topic),
                    Err(failure) => failed(name, failure),
                })
                .collect(),
            Err(failure) => names.into_iter().map(|name| failed(name, failure.clone())).collect(),
        };
    request.reply(&CreateTopicsResponse { topics: results.into(), ..Default::default() })
}

fn to_create(topic: &CreatableTopic<'_>) -> CreateTopic {
    CreateTopic {
        name: topic.name.to_string(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| (assignment.partition_index, assignment.broker_ids.to_vec()))
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| (config.name.to_string(), config.value.map(|v| v.into_owned())))
            .collect(),
    }
}

fn failed(name: String, failure: Failure) -> CreatableTopicResult<'static> {
    CreatableTopicResult {
        name: name.into(),
        error_code: failure.code.code(),
        error_message: Some(failure.message.into()),
        num_partitions: -1,
        replication_factor: -1,
        configs: None,
        ..Default::default()
    }
}

fn created(name: String, topic: CreatedTopic) -> CreatableTopicResult<'static> {
    let configs: Vec<CreatableTopicConfigs<'_>> = topic
        .configs
        .into_iter()
        .map(|entry| CreatableTopicConfigs {
            name: entry.name,
            value: entry.value.map(Into::into),
            read_only: entry.read_only,
            config_source: entry.source.code(),
            is_sensitive: entry.sensitive,
        })
        .collect();
    CreatableTopicResult {
        name: name.into(),
        topic_id: topic.id,
        error_code: ErrorCode::None.code(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        configs: Some(configs.into()),
        ..Default::default()
    }
}
