//! DeleteGroups (42): groups without members go, and their offsets with them.

use coord::{Reply as Answer, Request as Asked};
use wire::messages::delete_groups_request::DeleteGroupsRequest;
use wire::messages::delete_groups_response::DeleteGroupsResponse;

use super::describe_groups::{ask_each_or_none, distinct};
use super::{Request, other_kind};
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DeleteGroupsRequest<'_> = request.body()?;
    let names = distinct(&body.groups_names)?;
    let asked: Vec<Asked<'_, '_>> = names.iter().map(|name| Asked::DeleteGroup(name)).collect();
    let mut results = Vec::with_capacity(names.len());
    for answer in ask_each_or_none(&request, &asked).await {
        match answer {
            Answer::DeleteGroup(result) => results.push(result),
            other => return other_kind(&other),
        }
    }
    request.reply(&DeleteGroupsResponse { results: results.into(), ..Default::default() })
}
