//! Fetch (1): whole batches from the tail cache or the disk, waiting for data where there is none.
//!
//! Every round is planned in one go without awaiting: the visible ends are read, the plans made and
//! the listeners for the next change registered, so that nothing can slip in between. Only then
//! the reads are executed, on owned handles. Record bytes go out as they are stored.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use log::ReadPlan;
use wire::messages::fetch_request::FetchRequest;
use wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use wire::{ApiKey, ErrorCode, Records, Uuid};

use super::aborted::aborted;
use super::{REQUEST_ITEMS_MAX, Request, check_items, owned};
use crate::fetch_session::{self, Context, Told, TopicRef, Wanted};
use crate::metrics::TopicTraffic;
use crate::partition::Partition;
use crate::reply::Handled;
use crate::shard::{OPENING_WAIT_MAX, Shard};

/// From this version on topics are named by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
const LEADER_HINT_VERSION: i16 = 12;
const NODE_ENDPOINTS_VERSION: i16 = 16;
const READ_COMMITTED: i8 = 1;
/// What one answer reads from the disk, the first whole batch aside: these bytes are not the cache's,
/// and a client that asks for more than it takes must not fill the memory with them.
const COLD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A fetch never waits longer than this, whatever the client asks.
const WAIT_MS_MAX: i32 = 10 * 60 * 1000;

/// Reads of the device that one fetch has on the way at a time.
const READS_AT_ONCE: usize = 16;

/// One partition of one round.
struct Planned {
    error: ErrorCode,
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
    diverging: Option<(i32, i64)>,
    leader: Option<(i32, i32)>,
    plan: Option<ReadPlan>,
    /// Where the bytes are counted that leave.
    traffic: Option<Rc<TopicTraffic>>,
    bytes: usize,
}

impl Planned {
    fn failed(error: ErrorCode) -> Self {
        Planned {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            leader: None,
            plan: None,
            traffic: None,
            bytes: 0,
        }
    }
}

/// How much of an answer is spoken for.
#[derive(Default)]
struct Taken {
    bytes: usize,
    cold_bytes: usize,
}

impl Taken {
    fn add(&mut self, planned: &Planned) {
        self.bytes += planned.bytes;
        if planned.plan.as_ref().is_some_and(|plan| !plan.is_cached()) {
            self.cold_bytes += planned.bytes;
        }
    }
}

/// What bounds one answer.
#[derive(Clone, Copy)]
struct Limits {
    bytes_max: usize,
    bytes_min: usize,
    read_committed: bool,
}

pub(crate) async fn handle(request: Request) -> Handled {
    let shard = request.shard.clone();
    let body: FetchRequest<'_> = request.body()?;
    let items = body.topics.iter().map(|topic| topic.partitions.len()).sum();
    check_items(items, REQUEST_ITEMS_MAX)?;
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
    let planned = plan_or_wait(&shard, &wanted, limits, wait).await;
    answer(&request, context, &wanted, planned, limits).await
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

/// Plans rounds until one is worth answering or the time is up.
async fn plan_or_wait(
    shard: &Rc<Shard>,
    wanted: &[Wanted],
    limits: Limits,
    wait: Duration,
) -> Vec<Planned> {
    let deadline = reactor::now() + wait;
    loop {
        let planned = plan(shard, wanted, limits);
        let bytes: usize = planned.iter().map(|p| p.bytes).sum();
        let must_answer = planned.iter().any(|p| p.error != ErrorCode::None)
            || planned.iter().any(|p| p.diverging.is_some());
        if must_answer || bytes >= limits.bytes_min || wanted.is_empty() {
            return planned;
        }
        if reactor::now() >= deadline {
            return planned;
        }
        // Registered before anything else runs on this core: no change can be missed.
        let changes = wanted.iter().filter_map(|w| shard.partition(&w.topic, w.partition).ok());
        let changed = AnyOf(changes.map(change).collect());
        drop(planned);
        let left = deadline - reactor::now();
        if reactor::timeout(left, changed).await.is_err() {
            return plan(shard, wanted, limits);
        }
    }
}

type Change = Pin<Box<dyn Future<Output = ()>>>;

fn change(partition: Rc<Partition>) -> Change {
    Box::pin(async move { partition.changed().await })
}

/// Ready when any of its futures is.
struct AnyOf(Vec<Change>);

impl Future for AnyOf {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let mut ready = false;
        for change in &mut self.0 {
            ready |= change.as_mut().poll(context).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn plan(shard: &Rc<Shard>, wanted: &[Wanted], limits: Limits) -> Vec<Planned> {
    let mut taken = Taken::default();
    wanted
        .iter()
        .map(|wanted| {
            let planned = plan_partition(shard, wanted, limits, &taken);
            taken.add(&planned);
            planned
        })
        .collect()
}

fn plan_partition(shard: &Shard, wanted: &Wanted, limits: Limits, taken: &Taken) -> Planned {
    let partition = match shard.partition(&wanted.topic, wanted.partition) {
        Ok(partition) => partition,
        Err(not_here) => {
            let leader = not_here.leader.map(|leader| (leader.node_id, leader.epoch));
            return Planned { leader, ..Planned::failed(not_here.error) };
        }
    };
    if let Err(error) = partition.check_leader_epoch(wanted.current_leader_epoch) {
        let leader = Some((shard.node_id(), partition.leader_epoch()));
        return Planned { leader, ..Planned::failed(error) };
    }
    let high_watermark = partition.high_watermark();
    let last_stable_offset = partition.last_stable_offset();
    let mut planned = Planned {
        error: ErrorCode::None,
        high_watermark,
        last_stable_offset,
        log_start_offset: partition.log.log_start_offset(),
        diverging: None,
        leader: None,
        plan: None,
        traffic: None,
        bytes: 0,
    };
    match partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) {
        Ok(None) => {}
        Ok(diverging) => return Planned { diverging, ..planned },
        Err(error) => return Planned::failed(error),
    }
    let upper = if limits.read_committed { last_stable_offset } else { high_watermark };
    let room = limits.bytes_max.saturating_sub(taken.bytes).min(wanted.max_bytes.max(0) as usize);
    let is_first = taken.bytes == 0;
    if !is_first && room == 0 {
        return planned;
    }
    let read = |room| partition.log.plan_read(wanted.fetch_offset, upper, room, is_first);
    let cold_room = COLD_BYTES_MAX.saturating_sub(taken.cold_bytes);
    let plan = match read(room) {
        Ok(plan) if !plan.is_cached() && plan.len_hint() > cold_room => read(cold_room),
        plan => plan,
    };
    match plan {
        Ok(plan) => {
            planned.bytes = plan.len_hint();
            planned.plan = Some(plan);
            planned.traffic = Some(partition.traffic.clone());
            planned
        }
        Err(error) => {
            let log_start_offset = planned.log_start_offset;
            Planned { log_start_offset, ..Planned::failed(crate::errors::of_read(&error)) }
        }
    }
}

async fn answer(
    request: &Request,
    context: Context,
    wanted: &[Wanted],
    planned: Vec<Planned>,
    limits: Limits,
) -> Handled {
    let mut topics: Vec<(TopicRef, Vec<PartitionData<'static>>)> = Vec::new();
    let mut pieces: Vec<Vec<Bytes>> = Vec::new();
    let mut leaders: Vec<i32> = Vec::new();
    let mut planned = planned;
    let read = read_all(&mut planned).await;
    for ((wanted, mut planned), mut records) in wanted.iter().zip(planned).zip(read) {
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

/// Executes the plans, in order, those that read the device side by side.
async fn read_all(planned: &mut [Planned]) -> Vec<Vec<Bytes>> {
    let mut all = Vec::with_capacity(planned.len());
    for some in planned.chunks_mut(READS_AT_ONCE) {
        let first = all.len();
        let mut cold: Vec<(usize, Reading<'_>)> = Vec::new();
        for (place, planned) in (first..).zip(some) {
            if planned.plan.as_ref().is_none_or(ReadPlan::is_cached) {
                all.push(read(planned).await);
            } else {
                all.push(Vec::new());
                cold.push((place, Box::pin(read(planned))));
            }
        }
        poll_fn(|context| {
            cold.retain_mut(|(place, reading)| match reading.as_mut().poll(context) {
                Poll::Ready(records) => {
                    if let Some(room) = all.get_mut(*place) {
                        *room = records;
                    }
                    false
                }
                Poll::Pending => true,
            });
            if cold.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    all
}

type Reading<'a> = Pin<Box<dyn Future<Output = Vec<Bytes>> + 'a>>;

/// Executes a plan; a read that fails becomes the partition's error.
async fn read(planned: &mut Planned) -> Vec<Bytes> {
    let Some(plan) = planned.plan.take() else { return Vec::new() };
    if planned.bytes == 0 {
        return Vec::new();
    }
    match plan.execute().await {
        Ok(records) => records,
        Err(error) => {
            planned.error = crate::errors::of_log(&error);
            Vec::new()
        }
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
