//! The same requests against a broker that runs, to see that the expectations are Kafka's.
//!
//! `COORD_KAFKA=host:port cargo test -p corelane-coord -- --include-ignored`, with a broker that
//! has the topics t (4 partitions) and u (2), `group.initial.rebalance.delay.ms=2000` and
//! `group.consumer.assignment.interval.ms=0`. One connection a request, as a parked one would hold
//! up the next.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coord::{Reply, Request, Token};
use wire::messages as m;
use wire::{ApiKey, IntoOwned, Message, Reader, Uuid, frame};

use super::GROUP;

pub struct Kafka {
    address: String,
    /// Every rig has a group of its own.
    group: String,
    open: HashMap<Token, (TcpStream, ApiKey, i16)>,
}

static GROUPS: AtomicU64 = AtomicU64::new(0);

/// How long an answer that comes at once may take; less than any delay that parks one.
const PATIENCE: Duration = Duration::from_millis(400);

impl Kafka {
    pub fn new(address: &str) -> Self {
        let stamp = std::time::SystemTime::now();
        let stamp = stamp.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let group = format!("g-{stamp}-{}", GROUPS.fetch_add(1, Ordering::Relaxed));
        Kafka { address: address.into(), group, open: HashMap::new() }
    }

    /// Sends, and gives the answer if it comes at once.
    pub fn send(&mut self, token: Token, request: Request<'_, '_>, version: i16) -> Option<Reply> {
        let (api, frame) = self.frame(request, version);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(&frame).unwrap();
        self.open.insert(token, (stream, api, version));
        self.wait(token, PATIENCE)
    }

    pub fn wait(&mut self, token: Token, patience: Duration) -> Option<Reply> {
        let (stream, api, version) = self.open.get_mut(&token)?;
        stream.set_read_timeout(Some(patience)).unwrap();
        let mut size = [0; 4];
        match stream.read_exact(&mut size) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return None;
            }
            read => read.unwrap(),
        }
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut body).unwrap();
        let reply = decode(*api, *version, &body);
        self.open.remove(&token);
        Some(reply)
    }

    pub fn group(&self) -> &str {
        &self.group
    }

    /// The ids of the broker's topics.
    pub fn topic_ids(&self) -> Vec<(String, Uuid)> {
        let request = m::MetadataRequest { topics: None, ..Default::default() };
        let mut writer = frame::begin_request(ApiKey::Metadata, 12, 1, None).unwrap();
        request.encode(&mut writer, 12).unwrap();
        let body = self.exchange(&frame::finish_request(writer).bytes);
        let mut reader = Reader::new(&body);
        frame::decode_response_header(&mut reader, ApiKey::Metadata, 12).unwrap();
        let response = m::MetadataResponse::decode(&mut reader, 12).unwrap();
        let topics = response.topics.iter();
        topics.map(|it| (it.name.unwrap_or_default().into_owned(), it.topic_id)).collect()
    }

    fn exchange(&self, frame: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(frame).unwrap();
        let mut size = [0; 4];
        stream.read_exact(&mut size).unwrap();
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        stream.read_exact(&mut body).unwrap();
        body
    }

    /// Waits for the coordinator to be there.
    pub fn warm_up(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let request = m::FindCoordinatorRequest {
                key_type: 0,
                coordinator_keys: vec![self.group.clone().into()].into(),
                ..Default::default()
            };
            let mut writer = frame::begin_request(ApiKey::FindCoordinator, 4, 1, None).unwrap();
            request.encode(&mut writer, 4).unwrap();
            let body = self.exchange(&frame::finish_request(writer).bytes);
            let mut reader = Reader::new(&body);
            frame::decode_response_header(&mut reader, ApiKey::FindCoordinator, 4).unwrap();
            let response = m::FindCoordinatorResponse::decode(&mut reader, 4).unwrap();
            let known = response.coordinators.first().unwrap().error_code == 0;
            if known && !self.is_loading() {
                return;
            }
            assert!(Instant::now() < end, "no coordinator");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A coordinator that is known may still read its log.
    fn is_loading(&mut self) -> bool {
        let asked = Request::DescribeGroup(GROUP);
        match self.send(Token(0), asked, 6) {
            Some(Reply::DescribeGroup(group)) => (14..=16).contains(&group.error_code),
            _ => true,
        }
    }

    fn frame(&self, request: Request<'_, '_>, version: i16) -> (ApiKey, Vec<u8>) {
        let name = |id: &str| -> wire::Text<'static> {
            // What is not the rig's own group is meant as it stands.
            if id == GROUP { self.group.clone().into() } else { String::from(id).into() }
        };
        macro_rules! framed {
            ($api:ident, $message:expr) => {{
                let mut writer =
                    frame::begin_request(ApiKey::$api, version, 1, Some("client")).unwrap();
                $message.encode(&mut writer, version).unwrap();
                (ApiKey::$api, frame::finish_request(writer).bytes.to_vec())
            }};
        }
        macro_rules! renamed {
            ($api:ident, $request:expr) => {{
                let mut message = $request.clone().into_owned();
                message.group_id = name(&message.group_id);
                framed!($api, message)
            }};
        }
        match request {
            Request::JoinGroup(request) => renamed!(JoinGroup, request),
            Request::SyncGroup(request) => renamed!(SyncGroup, request),
            Request::Heartbeat(request) => renamed!(Heartbeat, request),
            Request::LeaveGroup(request) => renamed!(LeaveGroup, request),
            Request::OffsetCommit(request) => renamed!(OffsetCommit, request),
            Request::OffsetDelete(request) => renamed!(OffsetDelete, request),
            Request::ConsumerGroupHeartbeat(request) => renamed!(ConsumerGroupHeartbeat, request),
            Request::OffsetFetch { group, require_stable } => {
                let mut group = group.clone().into_owned();
                group.group_id = name(&group.group_id);
                let groups = vec![group].into();
                framed!(
                    OffsetFetch,
                    m::OffsetFetchRequest { groups, require_stable, ..Default::default() }
                )
            }
            Request::DescribeGroup(id) => framed!(
                DescribeGroups,
                m::DescribeGroupsRequest {
                    groups: vec![name(id)].into(),
                    include_authorized_operations: false,
                }
            ),
            Request::DeleteGroup(id) => framed!(
                DeleteGroups,
                m::DeleteGroupsRequest { groups_names: vec![name(id)].into() }
            ),
            Request::ConsumerGroupDescribe(id) => {
                framed!(
                    ConsumerGroupDescribe,
                    m::ConsumerGroupDescribeRequest {
                        group_ids: vec![name(id)].into(),
                        include_authorized_operations: false,
                    }
                )
            }
            other => panic!("not asked of a broker: {other:?}"),
        }
    }
}

fn decode(api: ApiKey, version: i16, body: &[u8]) -> Reply {
    let mut reader = Reader::new(body);
    frame::decode_response_header(&mut reader, api, version).unwrap();
    macro_rules! read {
        ($message:ident) => {
            m::$message::decode(&mut reader, version).unwrap().into_owned()
        };
    }
    match api {
        ApiKey::JoinGroup => Reply::JoinGroup(read!(JoinGroupResponse)),
        ApiKey::SyncGroup => Reply::SyncGroup(read!(SyncGroupResponse)),
        ApiKey::Heartbeat => Reply::Heartbeat(read!(HeartbeatResponse)),
        ApiKey::LeaveGroup => Reply::LeaveGroup(read!(LeaveGroupResponse)),
        ApiKey::OffsetCommit => Reply::OffsetCommit(read!(OffsetCommitResponse)),
        ApiKey::OffsetDelete => Reply::OffsetDelete(read!(OffsetDeleteResponse)),
        ApiKey::ConsumerGroupHeartbeat => {
            Reply::ConsumerGroupHeartbeat(read!(ConsumerGroupHeartbeatResponse))
        }
        ApiKey::OffsetFetch => {
            Reply::OffsetFetch(read!(OffsetFetchResponse).groups.first().unwrap())
        }
        ApiKey::DescribeGroups => {
            Reply::DescribeGroup(read!(DescribeGroupsResponse).groups.first().unwrap())
        }
        ApiKey::DeleteGroups => {
            Reply::DeleteGroup(read!(DeleteGroupsResponse).results.first().unwrap())
        }
        ApiKey::ConsumerGroupDescribe => Reply::ConsumerGroupDescribe(
            read!(ConsumerGroupDescribeResponse).groups.first().unwrap(),
        ),
        other => panic!("no answer of {other:?}"),
    }
}
