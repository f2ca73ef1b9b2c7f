//! DescribeConfigs (32): every key of a resource with its value, where that comes from, its type
//! and its documentation, from the one registry table.

use std::collections::HashSet;

use meta::Failure;
use meta::config::{self, Entry, ResourceKind};
use wire::ErrorCode;
use wire::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeConfigsSynonym,
};

use super::{DESCRIBED_ITEMS_MAX, Request, check_items, owned};
use crate::reply::Handled;
use crate::shard::Shard;

/// What the client wants besides the values.
#[derive(Clone, Copy)]
struct Wants {
    synonyms: bool,
    documentation: bool,
}

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeConfigsRequest<'_> = request.body()?;
    check_items(body.resources.len(), DESCRIBED_ITEMS_MAX)?;
    let wants =
        Wants { synonyms: body.include_synonyms, documentation: body.include_documentation };
    // A resource named a thousand times is answered once, or a small request could ask for an
    // answer of any size.
    let mut seen = HashSet::new();
    let results: Vec<DescribeConfigsResult<'_>> = body
        .resources
        .iter()
        .filter(|resource| seen.insert((resource.resource_type, resource.resource_name.clone())))
        .map(|resource| describe(&request.shard, resource, wants))
        .collect();
    request.reply(&DescribeConfigsResponse { results: results.into(), ..Default::default() })
}

fn describe<'a>(
    shard: &Shard,
    resource: DescribeConfigsResource<'a>,
    wants: Wants,
) -> DescribeConfigsResult<'a> {
    let mut result = DescribeConfigsResult {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..Default::default()
    };
    match entries(shard, resource.resource_type, &resource.resource_name) {
        Ok(entries) => {
            // Null and empty both ask for every key.
            let keys = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
            let asked =
                |entry: &Entry| keys.is_none_or(|keys| keys.iter().any(|key| key == entry.name));
            let configs: Vec<_> = entries
                .into_iter()
                .filter(asked)
                .map(|entry| config_result(entry, wants))
                .collect();
            result.configs = configs.into();
        }
        Err(failure) => {
            result.error_code = failure.code.code();
            result.error_message = Some(failure.message.into());
        }
    }
    result
}

fn entries(shard: &Shard, kind: i8, name: &str) -> Result<Vec<Entry>, Failure> {
    let image = shard.image();
    let layers = shard.layers(&image);
    match ResourceKind::from_code(kind) {
        Some(ResourceKind::Topic) => {
            if let Some(problem) = meta::controller::topic_name_problem(name) {
                return Err(Failure::new(ErrorCode::InvalidTopicException, problem));
            }
            if image.topic_by_name(name).is_none() {
                let message = format!("the topic '{name}' does not exist");
                return Err(Failure::new(ErrorCode::UnknownTopicOrPartition, message));
            }
            Ok(config::resolve_topic(layers, name))
        }
        Some(ResourceKind::Broker) if name.is_empty() => {
            Ok(config::resolve_cluster_default(image.overrides()))
        }
        Some(ResourceKind::Broker) => match name.parse::<i32>() {
            Ok(node) if node == shard.node_id() => Ok(config::resolve_broker(layers)),
            Ok(node) => {
                let message =
                    format!("unexpected broker id, expected {} but got {node}", shard.node_id());
                Err(Failure::new(ErrorCode::InvalidRequest, message))
            }
            Err(_) => {
                let message = format!("broker id must be an integer, but it is '{name}'");
                Err(Failure::new(ErrorCode::InvalidRequest, message))
            }
        },
        Some(ResourceKind::Group) if name.is_empty() => {
            Err(Failure::new(ErrorCode::InvalidRequest, "Group name must not be empty"))
        }
        Some(ResourceKind::Group) => Ok(config::resolve_group(layers, name)),
        Some(_) | None => {
            let message = format!("configurations of resource type {kind} cannot be described");
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn config_result(entry: Entry, wants: Wants) -> DescribeConfigsResourceResult<'static> {
    let visible = |value: Option<String>| match entry.sensitive {
        true => None,
        false => value.map(std::borrow::Cow::Owned),
    };
    let synonyms: Vec<DescribeConfigsSynonym<'_>> = if wants.synonyms {
        let synonyms = entry.synonyms.into_iter().map(|synonym| DescribeConfigsSynonym {
            name: synonym.name,
            value: visible(synonym.value),
            source: synonym.source.code(),
        });
        synonyms.collect()
    } else {
        Vec::new()
    };
    DescribeConfigsResourceResult {
        name: entry.name.clone(),
        value: visible(entry.value.clone()),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: entry.sensitive,
        synonyms: synonyms.into(),
        config_type: entry.key.kind.code(),
        documentation: wants.documentation.then(|| owned(entry.key.doc)),
    }
}
