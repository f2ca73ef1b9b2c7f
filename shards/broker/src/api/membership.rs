//! JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13): the classic protocol of group
//! members. A join or sync may wait for the others; until it is answered nothing else of its
//! connection is. It gives its memory back before it waits: many of them must not keep others from
//! theirs for minutes.

use coord::{Reply as Answer, Request as Asked};
use wire::messages::heartbeat_request::HeartbeatRequest;
use wire::messages::join_group_request::JoinGroupRequest;
use wire::messages::leave_group_request::LeaveGroupRequest;
use wire::messages::sync_group_request::SyncGroupRequest;

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::{Begun, ask, begin};
use crate::reply::Handled;

pub(crate) async fn handle_join(mut request: Request) -> Handled {
    let (begun, member_id) = {
        let body: JoinGroupRequest<'_> = request.body()?;
        check_items(body.protocols.len(), DESCRIBED_ITEMS_MAX)?;
        let begun = begin(&request, Asked::JoinGroup(&body)).await;
        (begun, body.member_id.into_owned())
    };
    let answer = match begun {
        Begun::Answered(answer) => answer,
        Begun::Waits(waiting) => {
            request.let_go();
            waiting.answer().await.unwrap_or_else(|code| {
                let member_id = member_id.into();
                let refused = JoinGroupRequest { member_id, ..Default::default() };
                Asked::JoinGroup(&refused).refused(code, request.version)
            })
        }
    };
    match answer {
        Answer::JoinGroup(response) => request.reply(&response),
        other => other_kind(&other),
    }
}

pub(crate) async fn handle_sync(mut request: Request) -> Handled {
    let begun = {
        let body: SyncGroupRequest<'_> = request.body()?;
        check_items(body.assignments.len(), REQUEST_ITEMS_MAX)?;
        begin(&request, Asked::SyncGroup(&body)).await
    };
    let answer = match begun {
        Begun::Answered(answer) => answer,
        Begun::Waits(waiting) => {
            request.let_go();
            waiting.answer().await.unwrap_or_else(|code| {
                Asked::SyncGroup(&SyncGroupRequest::default()).refused(code, request.version)
            })
        }
    };
    match answer {
        Answer::SyncGroup(response) => request.reply(&response),
        other => other_kind(&other),
    }
}

pub(crate) async fn handle_heartbeat(request: Request) -> Handled {
    let body: HeartbeatRequest<'_> = request.body()?;
    match ask(&request, Asked::Heartbeat(&body)).await {
        Answer::Heartbeat(response) => request.reply(&response),
        other => other_kind(&other),
    }
}

pub(crate) async fn handle_leave(request: Request) -> Handled {
    let body: LeaveGroupRequest<'_> = request.body()?;
    check_items(body.members.len(), DESCRIBED_ITEMS_MAX)?;
    match ask(&request, Asked::LeaveGroup(&body)).await {
        Answer::LeaveGroup(response) => request.reply(&response),
        other => other_kind(&other),
    }
}
