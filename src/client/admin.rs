//! Topics and their settings: one function a request, outcomes as owned values.
//!
//! Owns how requests are filled and answers read. Retries and printing are the caller's.

use std::ops::RangeInclusive;

use wire::messages::create_partitions_request::CreatePartitionsTopic;
use wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use wire::messages::describe_configs_request::DescribeConfigsResource;
use wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use wire::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::Cluster;
use super::error::ClientError;

const CREATE_TOPICS_VERSIONS: RangeInclusive<i16> = 2..=7;
/// Version 6 names topics in another field; by name, 5 says all there is to say.
const DELETE_TOPICS_VERSIONS: RangeInclusive<i16> = 1..=5;
const CREATE_PARTITIONS_VERSIONS: RangeInclusive<i16> = 0..=3;
const DESCRIBE_CONFIGS_VERSIONS: RangeInclusive<i16> = 1..=4;
const ALTER_CONFIGS_VERSIONS: RangeInclusive<i16> = 0..=1;

const RESOURCE_TOPIC: i8 = 2;
const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;
/// "the cluster's default", since version 4 of CreateTopics.
const CLUSTER_DEFAULT: i16 = -1;
const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;

/// What happened to one topic of a request.
pub type Outcome = (String, Result<(), ClientError>);

/// A topic to be made.
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    pub name: String,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
    pub configs: Vec<(String, String)>,
}

/// One setting of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    /// `None` if it is secret or has none.
    pub value: Option<String>,
    /// Set on the topic itself.
    pub own: bool,
    /// Kafka's own default, set nowhere.
    pub default: bool,
}

pub async fn create_topics(
    cluster: &mut Cluster,
    topics: &[NewTopic],
    validate_only: bool,
) -> Result<Vec<Outcome>, ClientError> {
    let creatable = topics.iter().map(|topic| CreatableTopic {
        name: topic.name.as_str().into(),
        num_partitions: topic.partitions.unwrap_or(i32::from(CLUSTER_DEFAULT)),
        replication_factor: topic.replication_factor.unwrap_or(CLUSTER_DEFAULT),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
            })
            .collect(),
        ..CreatableTopic::default()
    });
    let request = CreateTopicsRequest {
        topics: creatable.collect(),
        timeout_ms: wait_ms(cluster),
        validate_only,
    };
    let reply = cluster.call_controller(&request, CREATE_TOPICS_VERSIONS).await?;
    let response: CreateTopicsResponse<'_> = reply.decode()?;
    let outcomes = response.topics.iter().map(|topic| {
        outcome("create", &topic.name, topic.error_code, topic.error_message.as_deref())
    });
    Ok(outcomes.collect())
}

pub async fn delete_topics(
    cluster: &mut Cluster,
    names: &[String],
) -> Result<Vec<Outcome>, ClientError> {
    let request = DeleteTopicsRequest {
        topic_names: names.iter().map(|name| name.as_str().into()).collect(),
        timeout_ms: wait_ms(cluster),
        ..DeleteTopicsRequest::default()
    };
    let reply = cluster.call_controller(&request, DELETE_TOPICS_VERSIONS).await?;
    let response: DeleteTopicsResponse<'_> = reply.decode()?;
    let outcomes = response.responses.iter().map(|topic| {
        let name = topic.name.unwrap_or_default();
        outcome("delete", &name, topic.error_code, topic.error_message.as_deref())
    });
    Ok(outcomes.collect())
}

pub async fn create_partitions(
    cluster: &mut Cluster,
    topic: &str,
    count: i32,
) -> Result<(), ClientError> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: topic.into(),
            count,
            // An empty list would mean "no new partition gets a replica".
            assignments: None,
        }]
        .into(),
        timeout_ms: wait_ms(cluster),
        validate_only: false,
    };
    let reply = cluster.call_controller(&request, CREATE_PARTITIONS_VERSIONS).await?;
    let response: CreatePartitionsResponse<'_> = reply.decode()?;
    for result in response.results.iter() {
        let what = format!("add partitions to {topic}");
        ClientError::check(what, result.error_code, result.error_message.as_deref())?;
    }
    Ok(())
}

/// Sets where there is a value, takes back to the default where there is none.
pub async fn alter_configs(
    cluster: &mut Cluster,
    topic: &str,
    changes: &[(String, Option<String>)],
) -> Result<(), ClientError> {
    let changes = changes.iter().map(|(name, value)| AlterableConfig {
        name: name.as_str().into(),
        config_operation: if value.is_some() { OPERATION_SET } else { OPERATION_DELETE },
        value: value.as_deref().map(Into::into),
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: RESOURCE_TOPIC,
            resource_name: topic.into(),
            configs: changes.collect(),
        }]
        .into(),
        validate_only: false,
    };
    let reply = cluster.call_controller(&request, ALTER_CONFIGS_VERSIONS).await?;
    let response: IncrementalAlterConfigsResponse<'_> = reply.decode()?;
    for result in response.responses.iter() {
        let what = format!("change settings of {topic}");
        ClientError::check(what, result.error_code, result.error_message.as_deref())?;
    }
    Ok(())
}

/// The settings of each topic, by name.
pub async fn describe_configs(
    cluster: &mut Cluster,
    topics: &[&str],
) -> Result<Vec<(String, Vec<Setting>)>, ClientError> {
    let resources = topics.iter().map(|topic| DescribeConfigsResource {
        resource_type: RESOURCE_TOPIC,
        resource_name: (*topic).into(),
        configuration_keys: None,
    });
    let request = DescribeConfigsRequest {
        resources: resources.collect(),
        ..DescribeConfigsRequest::default()
    };
    let reply = cluster.call_controller(&request, DESCRIBE_CONFIGS_VERSIONS).await?;
    let response: DescribeConfigsResponse<'_> = reply.decode()?;
    let mut described = Vec::new();
    for result in response.results.iter() {
        let what = format!("settings of {}", result.resource_name);
        ClientError::check(what, result.error_code, result.error_message.as_deref())?;
        let mut settings: Vec<Setting> = result
            .configs
            .iter()
            .map(|config| Setting {
                name: config.name.into_owned(),
                value: config.value.map(|value| value.into_owned()),
                own: config.config_source == SOURCE_TOPIC,
                default: config.config_source == SOURCE_DEFAULT,
            })
            .collect();
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        described.push((result.resource_name.into_owned(), settings));
    }
    Ok(described)
}

fn outcome(what: &str, name: &str, code: i16, message: Option<&str>) -> Outcome {
    (name.to_owned(), ClientError::check(format!("{what} {name}"), code, message))
}

/// How long the broker may take; it must answer before the client gives up.
fn wait_ms(cluster: &Cluster) -> i32 {
    let half = cluster.request_wait() / 2;
    i32::try_from(half.as_millis()).unwrap_or(i32::MAX)
}
