//! The way of a request to the coordinator of its group, and of the answer back.

use std::net::{IpAddr, SocketAddr};

use coord::{Context, Coordinator, Reply, Request};
use reactor::sync::OneshotReceiver;
use wire::{ErrorCode, Uuid};

use super::topics::ImageTopics;
use crate::api;
use crate::coordinators::{Answer, HandedIn, Seat};
use crate::shard::Shard;

/// Groups of one request that are asked for at the same time.
const ASKED_AT_ONCE: usize = 64;

/// What became of a request so far.
pub(crate) enum Begun {
    Answered(Reply),
    Waits(Waiting),
}

/// An answer that comes with a later decision of the coordinator.
pub(crate) struct Waiting(OneshotReceiver<Answer<Reply>>);

impl Waiting {
    /// # Errors
    /// The code to refuse the request with.
    pub async fn answer(self) -> Result<Reply, ErrorCode> {
        // A coordinator that goes answers first; one that is simply dropped has stopped.
        self.0.await.unwrap_or(Err(ErrorCode::NotCoordinator))
    }
}

/// Asks the coordinator of the group, and waits for its answer however long that takes.
pub(crate) async fn ask(from: &api::Request, request: Request<'_, '_>) -> Reply {
    match begin(from, request).await {
        Begun::Answered(reply) => reply,
        Begun::Waits(waiting) => {
            let answer = waiting.answer().await;
            answer.unwrap_or_else(|code| request.refused(code, from.version))
        }
    }
}

/// Hands a request to the coordinator of its group. After that the request itself is needed no
/// more.
pub(crate) async fn begin(from: &api::Request, request: Request<'_, '_>) -> Begun {
    let refused = |code| Begun::Answered(request.refused(code, from.version));
    let group = request.group().unwrap_or_default();
    if let Some(code) = needs_a_name(&request).filter(|_| group.is_empty()) {
        return refused(code);
    }
    loop {
        let seat = match from.shard.groups.seats.of_key(&from.shard, group) {
            Ok(seat) => seat,
            Err(code) => return refused(code),
        };
        if may_write(&request) && seat.is_out_of_space(&from.shard) {
            return refused(ErrorCode::CoordinatorNotAvailable);
        }
        match hand_in(&seat, from, &request) {
            HandedIn::Now(answer) => return answer.map_or_else(refused, Begun::Answered),
            HandedIn::Later(receiver) => return Begun::Waits(Waiting(receiver)),
            // While it waited its transaction could end, which was asked about just now.
            HandedIn::Full(_) if matches!(request, Request::TxnOffsetCommit(_)) => {
                return refused(ErrorCode::CoordinatorLoadInProgress);
            }
            HandedIn::Full(room) => room.await,
        }
    }
}

/// Asks for several groups, each of its own coordinator. The answers come in the order of the
/// requests.
pub(crate) async fn ask_each(from: &api::Request, requests: &[Request<'_, '_>]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(requests.len());
    for some in requests.chunks(ASKED_AT_ONCE) {
        replies.extend(reactor::join_all(some.iter().map(|request| ask(from, *request))).await);
    }
    replies
}

/// Asks every coordinator of this shard. While some are still to come, that is the only answer.
pub(crate) async fn ask_all(from: &api::Request, request: Request<'_, '_>) -> Vec<Reply> {
    let seats = &from.shard.groups.seats;
    let answers = seats.ask_all(&from.shard, |seat| hand_in(seat, from, &request)).await;
    let refused = |code| request.refused(code, from.version);
    answers.into_iter().map(|answer| answer.unwrap_or_else(refused)).collect()
}

fn hand_in(
    seat: &Seat<Coordinator>,
    from: &api::Request,
    request: &Request<'_, '_>,
) -> HandedIn<Reply> {
    let client_id = from.client_id();
    let client_host = host(from.peer);
    let mut fresh_id = [0; 16];
    reactor::fill_random(&mut fresh_id);
    let shard: &Shard = &from.shard;
    seat.hand_in(shard, |machine, token, now_ms| {
        let context = Context {
            now_ms,
            wall_ms: reactor::wall_clock_ms(),
            token,
            version: from.version,
            client_id: &client_id,
            client_host: &client_host,
            fresh_id: Uuid(fresh_id),
            topics: &ImageTopics::new(shard),
        };
        machine.handle(*request, &context).into()
    })
}

/// What is answered, whoever is asked, where a group has no name: committed offsets may be kept
/// under the empty name, and it may be looked at.
fn needs_a_name(request: &Request<'_, '_>) -> Option<ErrorCode> {
    match request {
        Request::JoinGroup(_)
        | Request::SyncGroup(_)
        | Request::Heartbeat(_)
        | Request::LeaveGroup(_)
        | Request::ConsumerGroupDescribe(_) => Some(ErrorCode::InvalidGroupId),
        Request::ConsumerGroupHeartbeat(_) => Some(ErrorCode::InvalidRequest),
        Request::OffsetCommit(_)
        | Request::TxnOffsetCommit(_)
        | Request::OffsetFetch { .. }
        | Request::OffsetDelete(_)
        | Request::DescribeGroup(_)
        | Request::ListGroups(_)
        | Request::DeleteGroup(_) => None,
    }
}

/// Whether the answer may take a record: on a disk without space it is refused, so that all others
/// go on.
fn may_write(request: &Request<'_, '_>) -> bool {
    !matches!(
        request,
        Request::Heartbeat(_)
            | Request::OffsetFetch { .. }
            | Request::DescribeGroup(_)
            | Request::ConsumerGroupDescribe(_)
            | Request::ListGroups(_)
    )
}

/// The peer's address as Java writes it, which is how tools show it.
fn host(peer: SocketAddr) -> String {
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let groups: Vec<String> =
                address.segments().iter().map(|segment| format!("{segment:x}")).collect();
            format!("/{}", groups.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_java_writes_them() {
        for (peer, text) in [
            ("127.0.0.1:1", "/127.0.0.1"),
            ("[::1]:1", "/0:0:0:0:0:0:0:1"),
            ("[fe80::1:ab]:1", "/fe80:0:0:0:0:0:1:ab"),
            ("[::ffff:10.0.0.7]:1", "/10.0.0.7"),
        ] {
            assert_eq!(host(peer.parse().unwrap_or_else(|_| unreachable!())), text);
        }
    }
}
