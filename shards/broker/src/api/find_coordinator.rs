//! FindCoordinator (10): which shard node a group, transaction or share key belongs to.
//!
//! Answers in shard nodes: the key's partition of the internal topic is led by its shard. The
//! topics of group offsets and of transactions are made when the first group, or transactional id,
//! is asked for. While that of share groups does not exist, the partition's number modulo the
//! shards answers.

use meta::controller::{GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC};
use tracing::warn;
use wire::hash;
use wire::messages::find_coordinator_request::FindCoordinatorRequest;
use wire::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use wire::{ErrorCode, Uuid};

use super::{REQUEST_ITEMS_MAX, Request, check_items, owned};
use crate::control::ControlRequest;
use crate::reply::Handled;
use crate::shard::{Endpoint, Shard};

/// From this version on many keys are asked at once.
const BATCH_VERSION: i16 = 4;
const KEY_TYPE_GROUP: i8 = 0;
const KEY_TYPE_TRANSACTION: i8 = 1;
const KEY_TYPE_SHARE: i8 = 2;
/// Partitions of an internal topic that does not exist yet (Kafka's default for all of them).
pub(super) const COORDINATOR_PARTITIONS: i32 = 50;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: FindCoordinatorRequest<'_> = request.body()?;
    check_items(body.coordinator_keys.len(), REQUEST_ITEMS_MAX)?;
    match body.key_type {
        KEY_TYPE_GROUP => create_internal_topic(&request.shard, GROUP_OFFSETS_TOPIC).await,
        KEY_TYPE_TRANSACTION => {
            create_internal_topic(&request.shard, TRANSACTION_STATE_TOPIC).await;
        }
        _ => {}
    }
    if request.version >= BATCH_VERSION {
        let coordinators = find_each(&request, &body).await;
        let response =
            FindCoordinatorResponse { coordinators: coordinators.into(), ..Default::default() };
        return request.reply(&response);
    }
    let response = match find(&request, body.key_type, &body.key) {
        Ok(node) => FindCoordinatorResponse {
            node_id: node.node_id,
            host: owned(&node.host),
            port: node.port.into(),
            ..Default::default()
        },
        Err((error, message)) => FindCoordinatorResponse {
            error_code: error.code(),
            error_message: Some(message.into()),
            node_id: -1,
            port: -1,
            ..Default::default()
        },
    };
    request.reply(&response)
}

/// For many keys this takes long: others run in between.
async fn find_each<'a>(
    request: &Request,
    body: &FindCoordinatorRequest<'a>,
) -> Vec<Coordinator<'a>> {
    let mut coordinators = Vec::with_capacity(body.coordinator_keys.len());
    for key in body.coordinator_keys.iter() {
        coordinators.push(match find(request, body.key_type, &key) {
            Ok(node) => Coordinator {
                node_id: node.node_id,
                host: owned(&node.host),
                port: node.port.into(),
                key,
                ..Default::default()
            },
            Err((error, message)) => Coordinator {
                node_id: -1,
                port: -1,
                error_code: error.code(),
                error_message: Some(message.into()),
                key,
                ..Default::default()
            },
        });
        reactor::yield_if_due().await;
    }
    coordinators
}

fn find(request: &Request, key_type: i8, key: &str) -> Result<Endpoint, (ErrorCode, &'static str)> {
    let topic = match key_type {
        KEY_TYPE_GROUP => GROUP_OFFSETS_TOPIC,
        KEY_TYPE_TRANSACTION => TRANSACTION_STATE_TOPIC,
        KEY_TYPE_SHARE if is_share_key(key) => "__share_group_state",
        KEY_TYPE_SHARE => {
            return Err((ErrorCode::InvalidRequest, "a share key is group:topic-id:partition"));
        }
        _ => return Err((ErrorCode::InvalidRequest, "unknown coordinator key type")),
    };
    let not_available = |why| (ErrorCode::CoordinatorNotAvailable, why);
    let partitions = {
        let image = request.shard.image();
        let existing = image.topic_by_name(topic).map(|topic| topic.partitions.len());
        existing.and_then(|n| i32::try_from(n).ok()).unwrap_or(COORDINATOR_PARTITIONS)
    };
    let partition = hash::coordinator_partition(key, partitions);
    let by_number = || {
        let nodes = request.shard.endpoints();
        let count = nodes.len().max(1);
        nodes.get(partition as usize % count).cloned()
    };
    let leader = request.shard.leader_of(topic, partition);
    let leader = leader.and_then(|node_id| request.shard.endpoint(node_id));
    match key_type {
        KEY_TYPE_GROUP | KEY_TYPE_TRANSACTION => {
            leader.ok_or(not_available("The coordinator is not available."))
        }
        _ => leader.or_else(by_number).ok_or(not_available("no broker node is known yet")),
    }
}

/// Makes the topic if it is not there. One that cannot be made now is tried again with the next
/// request: clients come back.
pub(super) async fn create_internal_topic(shard: &Shard, topic: &str) {
    if shard.image().topic_by_name(topic).is_some() {
        return;
    }
    let control = ControlRequest::AutoCreate { names: vec![topic.to_owned()] };
    let failure = match shard.control(control).await.created() {
        Ok(outcomes) => outcomes.into_iter().find_map(|(_, outcome)| outcome.err()),
        Err(failure) => Some(failure),
    };
    if let Some(failure) = failure {
        warn!("{topic} cannot be created: {}", failure.message);
    }
}

fn is_share_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let partition = parts.next().is_some_and(|p| p.parse::<u32>().is_ok());
    let topic_id = parts.next().is_some_and(|id| id.parse::<Uuid>().is_ok());
    partition && topic_id && parts.next().is_some_and(|group| !group.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_keys_name_group_topic_and_partition() {
        assert!(is_share_key("group:AAAAAAAAAAAAAAAAAAAAAQ:3"));
        assert!(is_share_key("a:b:AAAAAAAAAAAAAAAAAAAAAQ:0"), "a group may hold colons");
        assert!(!is_share_key(":AAAAAAAAAAAAAAAAAAAAAQ:0"));
        assert!(!is_share_key("group:AAAAAAAAAAAAAAAAAAAAAQ"));
        assert!(!is_share_key("group:topic:0"));
        assert!(!is_share_key("group:AAAAAAAAAAAAAAAAAAAAAQ:-1"));
    }
}
