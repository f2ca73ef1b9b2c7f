//! ConsumerGroupHeartbeat (68): all that a member of a KIP-848 group ever says about its
//! membership.

use coord::{Reply as Answer, Request as Asked};
use wire::ErrorCode;
use wire::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, other_kind};
use crate::groups::ask;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: ConsumerGroupHeartbeatRequest<'_> = request.body()?;
    let topics = body.subscribed_topic_names.as_ref().map_or(0, |names| names.len());
    let owned = body.topic_partitions.iter().flatten().map(|topic| topic.partitions.len());
    check_items(topics.saturating_add(items_in(owned)), REQUEST_ITEMS_MAX)?;
    let asked = Asked::ConsumerGroupHeartbeat(&body);
    let answer = match request.shard.offers_consumer_groups() {
        true => ask(&request, asked).await,
        false => asked.refused(ErrorCode::UnsupportedVersion, request.version),
    };
    match answer {
        Answer::ConsumerGroupHeartbeat(response) => request.reply(&response),
        other => other_kind(&other),
    }
}
