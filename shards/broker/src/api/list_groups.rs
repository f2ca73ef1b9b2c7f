//! ListGroups (16): the groups that this shard node coordinates, and no others: clients ask every
//! node.

use coord::{Reply as Answer, Request as Asked};
use wire::ErrorCode;
use wire::messages::list_groups_request::ListGroupsRequest;
use wire::messages::list_groups_response::ListGroupsResponse;

use super::{DESCRIBED_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::ask_all;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: ListGroupsRequest<'_> = request.body()?;
    check_items(body.states_filter.len() + body.types_filter.len(), DESCRIBED_ITEMS_MAX)?;
    let mut groups = Vec::new();
    for answer in ask_all(&request, Asked::ListGroups(&body)).await {
        match answer {
            Answer::ListGroups(listed) if listed.error_code != ErrorCode::None.code() => {
                return request.reply(&listed);
            }
            Answer::ListGroups(listed) => groups.extend(listed.groups.into_vec()),
            other => return other_kind(&other),
        }
    }
    request.reply(&ListGroupsResponse { groups: groups.into(), ..Default::default() })
}
