//! AlterConfigs (33), which replaces everything, and IncrementalAlterConfigs (44), which does not.

use meta::controller::{AlterConfigs, ConfigOp, IncrementalAlter, OpKind};
use meta::{Failure, Outcome};
use wire::ErrorCode;
use wire::messages::alter_configs_request::AlterConfigsRequest;
use wire::messages::alter_configs_response::{
    AlterConfigsResourceResponse as Replaced, AlterConfigsResponse,
};
use wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, IncrementalAlterConfigsRequest,
};
use wire::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse as Altered, IncrementalAlterConfigsResponse,
};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in};
use crate::control::ControlRequest;
use crate::reply::Handled;

pub(crate) async fn handle_replace(request: Request) -> Handled {
    let body: AlterConfigsRequest<'_> = request.body()?;
    let items = items_in(body.resources.iter().map(|resource| resource.configs.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let validate_only = body.validate_only;
    let resources: Vec<AlterConfigs> = body
        .resources
        .iter()
        .map(|resource| AlterConfigs {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.to_string(),
            configs: resource
                .configs
                .iter()
                .map(|config| (config.name.to_string(), config.value.map(|v| v.into_owned())))
                .collect(),
        })
        .collect();
    drop(body);
    let asked = names(resources.iter().map(|r| (r.resource_type, r.resource_name.as_str())));
    let control = ControlRequest::AlterConfigs { resources, validate_only };
    let outcomes = request.shard.control(control).await.configs_altered();
    let outcomes = outcomes.unwrap_or_else(|failure| vec![Err(failure); asked.len()]);
    let responses: Vec<Replaced<'_>> = asked
        .into_iter()
        .zip(outcomes)
        .map(|((resource_type, resource_name), outcome)| {
            let (error_code, error_message) = code_and_message(outcome);
            Replaced {
                error_code,
                error_message: error_message.map(Into::into),
                resource_type,
                resource_name: resource_name.into(),
            }
        })
        .collect();
    request.reply(&AlterConfigsResponse { responses: responses.into(), ..Default::default() })
}

pub(crate) async fn handle_incremental(request: Request) -> Handled {
    let body: IncrementalAlterConfigsRequest<'_> = request.body()?;
    let items = items_in(body.resources.iter().map(|resource| resource.configs.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let validate_only = body.validate_only;
    let asked = {
        let resources = body.resources.to_vec();
        names(resources.iter().map(|r| (r.resource_type, r.resource_name.as_ref())))
    };
    let parsed: Vec<Result<IncrementalAlter, Failure>> =
        body.resources.iter().map(to_alter).collect();
    drop(body);
    let resources: Vec<IncrementalAlter> = parsed.iter().flatten().cloned().collect();
    let known = resources.len();
    let control = ControlRequest::IncrementalAlterConfigs { resources, validate_only };
    let outcomes = request.shard.control(control).await.configs_altered();
    let mut outcomes = outcomes.unwrap_or_else(|failure| vec![Err(failure); known]).into_iter();
    let responses: Vec<Altered<'_>> = asked
        .into_iter()
        .zip(parsed)
        .map(|((resource_type, resource_name), parsed)| {
            let outcome = parsed.and_then(|_| outcomes.next().unwrap_or_else(unanswered));
            let (error_code, error_message) = code_and_message(outcome);
            Altered {
                error_code,
                error_message: error_message.map(Into::into),
                resource_type,
                resource_name: resource_name.into(),
            }
        })
        .collect();
    let response =
        IncrementalAlterConfigsResponse { responses: responses.into(), ..Default::default() };
    request.reply(&response)
}

/// # Errors
/// `INVALID_REQUEST` if an operation has a code that does not exist.
fn to_alter(resource: AlterConfigsResource<'_>) -> Result<IncrementalAlter, Failure> {
    let mut ops = Vec::with_capacity(resource.configs.len());
    for config in resource.configs.iter() {
        let Some(kind) = OpKind::from_code(config.config_operation) else {
            let message = format!("Unknown operation type {}", config.config_operation);
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        };
        let value = config.value.map(|value| value.into_owned());
        ops.push(ConfigOp { key: config.name.into_owned(), kind, value });
    }
    Ok(IncrementalAlter {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.into_owned(),
        ops,
    })
}

/// The controller answers every resource; one without an answer was not changed.
fn unanswered() -> Outcome<()> {
    let message = "the controller has not answered for this resource";
    Err(Failure::new(ErrorCode::UnknownServerError, message))
}

fn names<'a>(resources: impl Iterator<Item = (i8, &'a str)>) -> Vec<(i8, String)> {
    resources.map(|(kind, name)| (kind, name.to_owned())).collect()
}

fn code_and_message(outcome: Outcome<()>) -> (i16, Option<String>) {
    match outcome {
        Ok(()) => (ErrorCode::None.code(), None),
        Err(failure) => (failure.code.code(), Some(failure.message)),
    }
}
