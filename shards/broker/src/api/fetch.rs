//! Fetch (1): whole batches from the tail cache or the disk, waiting for data where there is none.
//!
//! Here: the session, what is asked for and how it is answered. What is read, and when there is
//! enough to answer, is in `fetch_round.rs`. Record bytes go out as they are stored.

use std::time::Duration;

use bytes::Bytes;
use reactor::{Class, with_class};
use wire::messages::fetch_request::FetchRequest;
use wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use wire::{ApiKey, ErrorCode, Records, Uuid};

use super::aborted::aborted;
use super::fetch_round::{Limits, Planned, Round};
use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, owned};
use crate::fetch_session::{self, Context, Told, TopicRef, Wanted};
use crate::reply::Handled;
use crate::shard::{OPENING_WAIT_MAX, Shard};

/// From this version on topics are named by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
const LEADER_HINT_VERSION: i16 = 12;
const NODE_ENDPOINTS_VERSION: i16 = 16;
const READ_COMMITTED: i8 = 1;
/// A fetch never waits longer than this, whatever the client asks.
const WAIT_MS_MAX: i32 = 10 * 60 * 1000;

pub(crate) async fn handle(request: Request) -> Handled {
    with_class(Class::TailFetch, serve(request)).await
}

async fn serve(request: Request) -> Handled {
    let shard = request.shard.clone();
    let body: FetchRequest<'_> = request.body()?;
    let asked = body.topics.iter().map(|topic| topic.partitions.len());
    let forgotten = body.forgotten_topics_data.iter().map(|topic| topic.partitions.len());
    check_items(items_in(asked.chain(forgotten)), REQUEST_ITEMS_MAX)?;
    let (context, wanted) = match begin_session(&request, &body) {
        Ok(begun) => begun,
        Err(error) => return request.reply(&session_error(error)),
    };
    let limits = Limits {
        bytes_max: (body.max_bytes.max(0) as usize).min(shard.config().fetch_max_bytes as usize),
        bytes_min: body.min_bytes.max(0) as usize,
        read_committed: body.isolation_level == READ_COMMITTED,
    };
    let wait = Duration::from_millis(body.max_wait_ms.clamp(0, WAIT_MS_MAX) as u64);
    drop(body);
    let until = reactor::now() + OPENING_WAIT_MAX;
    for partition in &wanted {
        shard.wait_until_open(&partition.topic, partition.partition, until).await;
    }
    let read = Round { shard: &shard, wanted: &wanted, limits }.read(wait).await;
    answer(&request, context, &wanted, read, limits).await
}

fn begin_session(
    request: &Request,
    body: &FetchRequest<'_>,
) -> Result<(Context, Vec<Wanted>), ErrorCode> {
    let uses_topic_ids = request.version >= TOPIC_ID_VERSION;
    let topic_ref = |name: &str, id: Uuid| {
        if uses_topic_ids { TopicRef::Id(id) } else { TopicRef::Name(name.into()) }
    };
    let mut wanted = Vec::new();
    for topic in body.topics.iter() {
        let topic_ref = topic_ref(&topic.topic, topic.topic_id);
        for partition in topic.partitions.iter() {
            wanted.push(Wanted {
                topic: topic_ref.clone(),
                partition: partition.partition,
                current_leader_epoch: partition.current_leader_epoch,
                fetch_offset: partition.fetch_offset,
                last_fetched_epoch: partition.last_fetched_epoch,
                max_bytes: partition.partition_max_bytes,
            });
        }
    }
    let mut forgotten = Vec::new();
    for topic in body.forgotten_topics_data.iter() {
        let topic_ref = topic_ref(&topic.topic, topic.topic_id);
        forgotten.extend(topic.partitions.iter().map(|index| (topic_ref.clone(), index)));
    }
    let mut random = reactor::random_u64;
    let session = fetch_session::Request {
        session_id: body.session_id,
        epoch: body.session_epoch,
        uses_topic_ids,
        now_ms: reactor::wall_clock_ms(),
        random: &mut random,
    };
    request.shard.fetch_sessions.borrow_mut().begin(session, wanted, forgotten)
}

fn session_error(error: ErrorCode) -> FetchResponse<'static> {
    FetchResponse { error_code: error.code(), ..Default::default() }
}

async fn answer(
    request: &Request,
    context: Context,
    wanted: &[Wanted],
    (planned, records): (Vec<Planned>, Vec<Vec<Bytes>>),
    limits: Limits,
) -> Handled {
    let mut topics: Vec<(TopicRef, Vec<PartitionData<'static>>)> = Vec::new();
    let mut pieces: Vec<Vec<Bytes>> = Vec::new();
    let mut leaders: Vec<i32> = Vec::new();
    for ((wanted, mut planned), mut records) in wanted.iter().zip(planned).zip(records) {
        let aborted = match limits.read_committed {
            true => aborted_of(&request.shard, wanted, &mut planned, &mut records).await,
            false => Vec::new(),
        };
        let has_data = !records.is_empty();
        let told = Told {
            high_watermark: planned.high_watermark,
            log_start_offset: planned.log_start_offset,
            has_data,
            must_answer: planned.error != ErrorCode::None || planned.diverging.is_some(),
        };
        let mut sessions = request.shard.fetch_sessions.borrow_mut();
        if !sessions.tell(context, &wanted.topic, wanted.partition, told) {
            continue;
        }
        drop(sessions);
        note_traffic(request, &planned, &records);
        if let Some((leader, _)) = planned.leader
            && request.version >= NODE_ENDPOINTS_VERSION
            && !leaders.contains(&leader)
        {
            leaders.push(leader);
        }
        let mut data = partition_data(request.version, wanted, &planned, &records);
        data.aborted_transactions = limits.read_committed.then(|| aborted.into());
        if has_data {
            pieces.push(records);
        }
        match topics.last_mut() {
            Some((topic, partitions)) if *topic == wanted.topic => partitions.push(data),
            _ => topics.push((wanted.topic.clone(), vec![data])),
        }
    }
    let response = FetchResponse {
        session_id: context.session_id(),
        responses: topics.into_iter().map(topic_response).collect::<Vec<_>>().into(),
        node_endpoints: endpoints(&request.shard, &leaders).into(),
        ..Default::default()
    };
    request.reply_with_records(&response, pieces)
}

fn note_traffic(request: &Request, planned: &Planned, records: &[Bytes]) {
    request.shard.metrics.traffic.note_error(ApiKey::Fetch, planned.error);
    if let Some(traffic) = &planned.traffic {
        traffic.note_fetched(records.iter().map(Bytes::len).sum());
    }
}

/// The aborted transactions of what was read. Without them the records must not go out.
async fn aborted_of(
    shard: &Shard,
    wanted: &Wanted,
    planned: &mut Planned,
    records: &mut Vec<Bytes>,
) -> Vec<AbortedTransaction> {
    let found = match shard.partition(&wanted.topic, wanted.partition) {
        Ok(partition) => aborted(partition, wanted.fetch_offset, records).await,
        Err(not_here) => Err(not_here.error),
    };
    found.unwrap_or_else(|error| {
        if !records.is_empty() {
            planned.error = error;
            records.clear();
        }
        Vec::new()
    })
}

fn partition_data(
    version: i16,
    wanted: &Wanted,
    planned: &Planned,
    records: &[Bytes],
) -> PartitionData<'static> {
    let mut data = PartitionData {
        partition_index: wanted.partition,
        error_code: planned.error.code(),
        high_watermark: planned.high_watermark,
        last_stable_offset: planned.last_stable_offset,
        log_start_offset: planned.log_start_offset,
        records: Some(match records.iter().map(Bytes::len).sum() {
            0 => Records::Borrowed(&[]),
            bytes => Records::Detached(bytes),
        }),
        ..Default::default()
    };
    if let Some((epoch, end_offset)) = planned.diverging {
        data.diverging_epoch = EpochEndOffset { epoch, end_offset };
    }
    if let Some((leader_id, leader_epoch)) = planned.leader
        && version >= LEADER_HINT_VERSION
    {
        data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
    }
    data
}

fn topic_response(
    (topic, partitions): (TopicRef, Vec<PartitionData<'static>>),
) -> FetchableTopicResponse<'static> {
    let mut response =
        FetchableTopicResponse { partitions: partitions.into(), ..Default::default() };
    match topic {
        TopicRef::Name(name) => response.topic = owned(&name),
        TopicRef::Id(id) => response.topic_id = id,
    }
    response
}

fn endpoints(shard: &Shard, leaders: &[i32]) -> Vec<NodeEndpoint<'static>> {
    leaders
        .iter()
        .filter_map(|node_id| shard.endpoint(*node_id))
        .map(|node| NodeEndpoint {
            node_id: node.node_id,
            host: owned(&node.host),
            port: node.port.into(),
            rack: None,
        })
        .collect()
}
