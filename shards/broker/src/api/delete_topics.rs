//! DeleteTopics (20): by name, or by id from version 6 on. The names are free again when the
//! answer leaves.

use meta::controller::DeleteTopic;
use wire::messages::delete_topics_request::DeleteTopicsRequest;
use wire::messages::delete_topics_response::{DeletableTopicResult, DeleteTopicsResponse};
use wire::{ErrorCode, Uuid};

use super::{REQUEST_ITEMS_MAX, Request, check_items};
use crate::control::ControlRequest;
use crate::reply::Handled;

/// From this version on a topic is named by name or by id, and a result may lack the name.
const SELECTOR_VERSION: i16 = 6;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DeleteTopicsRequest<'_> = request.body()?;
    check_items(body.topics.len() + body.topic_names.len(), REQUEST_ITEMS_MAX)?;
    let topics: Vec<DeleteTopic> = if request.version >= SELECTOR_VERSION {
        let all = body.topics.iter();
        all.map(|t| DeleteTopic { name: t.name.map(|n| n.into_owned()), id: t.topic_id }).collect()
    } else {
        let all = body.topic_names.iter();
        all.map(|name| DeleteTopic { name: Some(name.into_owned()), id: Uuid::ZERO }).collect()
    };
    drop(body);
    let asked = topics.clone();
    let outcomes = request.shard.control(ControlRequest::DeleteTopics { topics }).await.deleted();
    let outcomes = outcomes.unwrap_or_else(|failure| vec![Err(failure); asked.len()]);
    let results: Vec<DeletableTopicResult<'_>> = asked
        .into_iter()
        .zip(outcomes)
        .map(|(asked, outcome)| match outcome {
            Ok(topic) => DeletableTopicResult {
                name: Some(topic.name.into()),
                topic_id: topic.id,
                error_code: ErrorCode::None.code(),
                error_message: None,
            },
            Err(failure) => DeletableTopicResult {
                name: match asked.name {
                    None if request.version < SELECTOR_VERSION => Some("".into()),
                    name => name.map(Into::into),
                },
                topic_id: asked.id,
                error_code: failure.code.code(),
                error_message: Some(failure.message.into()),
            },
        })
        .collect();
    request.reply(&DeleteTopicsResponse { responses: results.into(), ..Default::default() })
}
