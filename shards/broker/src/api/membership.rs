//! JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13): the classic protocol of
//! group members. A join or sync may wait for the others; until it is answered nothing else of its
//! connection is. It gives its memory back before it waits: many of them must not keep others from
//! theirs for minutes.

use coord::{Reply as Answer, Request as Asked};
use meta::controller::GROUP_OFFSETS_TOPIC;
use wire::ErrorCode;
use wire::messages::heartbeat_request::HeartbeatRequest;
use wire::messages::join_group_request::JoinGroupRequest;
use wire::messages::leave_group_request::LeaveGroupRequest;
use wire::messages::sync_group_request::SyncGroupRequest;

use super::{DESCRIBED_ITEMS_MAX, REQUEST_ITEMS_MAX, Request, check_items, other_kind};
use crate::groups::{Begun, ask, begin};
use crate::reply::Handled;

/// Protocols that a member offers at most. Clients offer a handful, Apache Kafka takes any number;
/// each is looked for in those of all other members.
const PROTOCOLS_MAX: usize = 1_000;
/// A dash and a random id.
const MEMBER_ID_SUFFIX: usize = 37;

pub(crate) async fn handle_join(mut request: Request) -> Handled {
    let (begun, member_id) = {
        let body: JoinGroupRequest<'_> = request.body()?;
        check_items(body.protocols.len(), PROTOCOLS_MAX)?;
        let asked = Asked::JoinGroup(&body);
        let bytes = body.protocols.iter().map(|it| it.name.len() + it.metadata.len()).sum();
        let instance = body.group_instance_id.as_deref().unwrap_or_default();
        let fits = fits_in_a_record(&request, bytes)
            && can_be_named_after(&request.client_id())
            && can_be_named_after(instance);
        let begun = match fits {
            true => begin(&request, asked).await,
            false => refused(asked, &request),
        };
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
        let asked = Asked::SyncGroup(&body);
        let assignments = body.assignments.iter().map(|member| member.assignment.len()).sum();
        match fits_in_a_record(&request, assignments) {
            true => begin(&request, asked).await,
            false => refused(asked, &request),
        }
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

/// Whether so much can be part of a group's record: one that is too large for the topic would cost
/// all groups of its partition their coordinator.
fn fits_in_a_record(request: &Request, bytes: usize) -> bool {
    bytes <= request.shard.topic_config(GROUP_OFFSETS_TOPIC).max_message_bytes as usize
}

/// Member ids are made of the client's name and 37 characters more, and have to fit in answers of
/// all versions.
fn can_be_named_after(name: &str) -> bool {
    name.len() + MEMBER_ID_SUFFIX <= i16::MAX as usize
}

/// As Kafka answers when a record is too large.
fn refused(asked: Asked<'_, '_>, request: &Request) -> Begun {
    Begun::Answered(asked.refused(ErrorCode::UnknownServerError, request.version))
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
