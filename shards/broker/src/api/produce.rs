//! Produce (0): validate, append, acknowledge when the record is as durable as its topic promises.
//!
//! Two steps, so that one connection's requests overlap without losing their order: `take` appends
//! while the request is read (one copy, from the frame to the log's tail); `finish` waits for the
//! device and answers. Partitions of a request succeed or fail on their own.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use ahash::AHashSet;
use coord::Producer;
use log::{AppendError, ProducerView};
use smallvec::SmallVec;
use wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    ProduceResponse, TopicProduceResponse,
};
use wire::records::validate::{MAX_RECORD_ERRORS, Rejection, validate};
use wire::records::{BatchHeader, BatchView};
use wire::{ApiKey, ErrorCode, Records};

use super::{REQUEST_ITEMS_MAX, Request, check_items, items_in, owned};
use crate::data_dirs::health;
use crate::fetch_session::TopicRef;
use crate::partition::Partition;
use crate::reply::{Close, Handled, Pending, Reply};
use crate::shard::NotHere;
use crate::transactions::{self, Question};

/// From this version on a NOT_LEADER answer names the leader (KIP-951).
const LEADER_HINT_VERSION: i16 = 10;
/// From this version on topics are named by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// From this version on a client leaves it to the leader to make a partition part of its transaction
/// (KIP-890).
const ADDS_FROM: i16 = 12;
/// From this version on clients know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;
/// A topic's list of partitions up to this long is searched for repetitions; for a longer one a set
/// is made, or a hostile request would cost the square of its length.
const SEARCHED_MAX: usize = 32;

/// What an `Rc` keeps beside its value.
const RC_COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// Refused records that one answer names, over all its partitions; the messages count the others.
const NAMED_RECORDS_MAX: usize = MAX_RECORD_ERRORS;

/// What became of one partition of the request.
struct Outcome {
    partition: i32,
    result: Result<Accepted, Refused>,
}

struct Accepted {
    owner: Rc<Partition>,
    base_offset: i64,
    /// The acknowledgement waits until everything below this offset is durable.
    next_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
}

struct Refused {
    error: ErrorCode,
    message: Option<String>,
    record_errors: Vec<(i32, String)>,
    leader: Option<(i32, i32)>,
}

impl Refused {
    fn code(error: ErrorCode) -> Self {
        Refused { error, message: None, record_errors: Vec::new(), leader: None }
    }

    fn because(error: ErrorCode, message: String) -> Self {
        Refused { message: Some(message), ..Refused::code(error) }
    }

    /// Names at most `room` records; returns how many it does.
    fn name_at_most(&mut self, room: usize) -> usize {
        if self.record_errors.len() > room {
            self.record_errors.truncate(room);
            self.record_errors.shrink_to_fit();
        }
        self.record_errors.len()
    }

    /// Bytes on the heap.
    fn held_bytes(&self) -> usize {
        let named = self.record_errors.iter().map(|(_, message)| message.capacity()).sum::<usize>();
        let list = self.record_errors.capacity() * size_of::<(i32, String)>();
        list + named + self.message.as_ref().map_or(0, String::capacity)
    }
}

impl From<NotHere> for Refused {
    fn from(not_here: NotHere) -> Self {
        let leader = not_here.leader.map(|leader| (leader.node_id, leader.epoch));
        Refused { leader, ..Refused::code(not_here.error) }
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Refused {
            error: rejection.error,
            message: Some(rejection.message),
            record_errors: rejection.record_errors,
            leader: None,
        }
    }
}

/// A request whose batches are in the log; its reply waits for the device. The frame is gone: its
/// memory, still in the processor's cache, receives the connection's next request. What is held here is
/// paid for beyond what is small (`FrameReader::let_go`).
pub(crate) struct ProducePending {
    request: Request,
    acks: i16,
    /// In the order of the request, each with how many of the outcomes are its own.
    topics: SmallVec<[(TopicRef, usize); 1]>,
    outcomes: SmallVec<[Outcome; 1]>,
    /// A broker that stops waits for these.
    _waiting: Waiting,
}

/// Counts a produce whose acknowledgement is still to come.
struct Waiting(Rc<Cell<usize>>);

impl Waiting {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Waiting(count.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Appends every batch of the request.
pub(crate) async fn take(mut request: Request) -> Result<Pending, Close> {
    let body: ProduceRequest<'_> = request.body()?;
    let items = items_in(body.topic_data.iter().map(|topic| topic.partition_data.len()));
    check_items(items, REQUEST_ITEMS_MAX)?;
    let acks = body.acks;
    let acks_are_known = (-1..=1).contains(&acks);
    let mut topics: SmallVec<[(TopicRef, usize); 1]> = SmallVec::new();
    let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
    let mut named = 0;
    for topic in body.topic_data.iter() {
        let topic_ref = topic_ref(&topic, request.version);
        let first = outcomes.len();
        let mut seen = (topic.partition_data.len() > SEARCHED_MAX).then(AHashSet::new);
        for data in topic.partition_data.iter() {
            let repeated = match &mut seen {
                Some(seen) => !seen.insert(data.index),
                None => outcomes.iter().skip(first).any(|o| o.partition == data.index),
            };
            let mut result = if !acks_are_known {
                Err(Refused::code(ErrorCode::InvalidRequiredAcks))
            } else if repeated {
                let message = "the request names this partition twice".to_owned();
                Err(Refused::because(ErrorCode::InvalidRequest, message))
            } else {
                append(&request, &topic_ref, &data, body.transactional_id.as_deref()).await
            };
            if let Err(refused) = &mut result {
                named += refused.name_at_most(NAMED_RECORDS_MAX - named);
            }
            outcomes.push(Outcome { partition: data.index, result });
        }
        topics.push((topic_ref, outcomes.len() - first));
    }
    drop(body);
    request.let_go();
    let _waiting = Waiting::new(&request.shard.produces_waiting);
    Ok(Pending::Produce(Box::new(ProducePending { request, acks, topics, outcomes, _waiting })))
}

fn topic_ref(topic: &TopicProduceData<'_>, version: i16) -> TopicRef {
    if version >= TOPIC_ID_VERSION {
        TopicRef::Id(topic.topic_id)
    } else {
        TopicRef::Name(topic.name.as_ref().into())
    }
}

async fn append(
    request: &Request,
    topic: &TopicRef,
    data: &PartitionProduceData<'_>,
    transactional_id: Option<&str>,
) -> Result<Accepted, Refused> {
    let shard = &request.shard;
    let payload = match &data.records {
        Some(Records::Borrowed(payload)) => *payload,
        Some(Records::Owned(payload)) => payload.as_ref(),
        // Null records are as wrong as no batch; detached ones exist in responses only.
        Some(Records::Detached(_)) | None => &[],
    };
    let owner = match shard.partition(topic, data.index) {
        Ok(owner) => owner,
        Err(not_here) if not_here.is_opening() => {
            shard.partition_when_open(topic, data.index).await?
        }
        Err(not_here) => return Err(not_here.into()),
    };
    if owner.is_internal {
        return Err(Refused::code(ErrorCode::InvalidTopicException));
    }
    health::arrives(shard, owner.dir_number, payload.len()).await;
    if shard.dirs.is_full(owner.dir_number) {
        let message = "the disk of this partition is almost full".to_owned();
        return Err(Refused::because(ErrorCode::KafkaStorageError, message));
    }
    let now_ms = reactor::wall_clock_ms();
    let rules = owner.produce_rules(request.version);
    let validated = validate(payload, &rules, now_ms)?;
    let log_append_time_ms = validated.log_append_time.unwrap_or(-1);
    let batch = validated
        .view()
        .map_err(|error| Refused::because(ErrorCode::UnknownServerError, error.to_string()))?;
    // The batch decides, not the request: a transaction that nobody can end would hold back every
    // read_committed consumer for good.
    let transaction = match (batch.header().attributes.is_transactional(), transactional_id) {
        (false, _) => None,
        (true, Some(id)) => Some(Transaction { request, id, header: batch.header() }),
        (true, None) => {
            let message = "a transactional batch needs a transactional id".to_owned();
            return Err(Refused::because(ErrorCode::TransactionalIdAuthorizationFailed, message));
        }
    };
    let (base_offset, next_offset, log_start_offset, log_append_time_ms) =
        put(&owner, &batch, now_ms, log_append_time_ms, transaction).await?;
    owner.traffic.note_produced(batch.header().size_in_bytes(), batch.header().record_count);
    Ok(Accepted { owner, base_offset, next_offset, log_append_time_ms, log_start_offset })
}

/// Appends, waiting for memory where the log has none left: the client's socket is not read
/// meanwhile, which is the back-pressure it sees.
async fn put(
    owner: &Rc<Partition>,
    batch: &BatchView<'_>,
    now_ms: i64,
    log_append_time_ms: i64,
    transaction: Option<Transaction<'_>>,
) -> Result<(i64, i64, i64, i64), Refused> {
    loop {
        if let Some(transaction) = &transaction {
            transaction.begins_or_goes_on(owner).await?;
        }
        match owner.log.append(batch, owner.leader_epoch(), now_ms) {
            Ok(done) => {
                // A repeated batch is answered with what its first arrival was given.
                let time = if done.duplicate && log_append_time_ms >= 0 {
                    done.max_timestamp
                } else {
                    log_append_time_ms
                };
                return Ok((done.base_offset, done.last_offset + 1, done.log_start_offset, time));
            }
            Err(AppendError::Full) => owner.log.room().await,
            Err(error) => {
                let code = crate::errors::of_append(&error);
                return Err(Refused::because(code, error.to_string()));
            }
        }
    }
}

/// The transaction that a batch is to be part of.
struct Transaction<'a> {
    request: &'a Request,
    id: &'a str,
    header: &'a BatchHeader,
}

impl Transaction<'_> {
    /// Returns when the batch may be appended, in this very turn: the partition is part of the producer's
    /// transaction, or has just become so.
    async fn begins_or_goes_on(&self, owner: &Partition) -> Result<(), Refused> {
        let (shard, version) = (&self.request.shard, self.request.version);
        let producer = Producer { id: self.header.producer_id, epoch: self.header.producer_epoch };
        let adds = version >= ADDS_FROM;
        loop {
            let known = owner.log.producer(producer.id);
            let goes_on =
                |known: ProducerView| known.open_since.is_some() && known.epoch == producer.epoch;
            if known.is_some_and(goes_on) {
                return Ok(());
            }
            if adds && known.is_none() && self.header.base_sequence != 0 {
                // The epoch is new, so this is not the first batch of it.
                let message = "a batch before this one is missing".to_owned();
                return Err(Refused::because(ErrorCode::OutOfOrderSequenceNumber, message));
            }
            if !adds && !shard.config().transactions.verify_partitions {
                return Ok(());
            }
            let question = Question {
                transactional_id: self.id,
                producer,
                topic: &owner.topic,
                partition: owner.index,
                adds,
                knows_abortable: version >= ABORTABLE_FROM,
            };
            let first = (producer.epoch, self.header.base_sequence);
            let now_ms = reactor::wall_clock_ms();
            let verification = owner.log.begin_verification(producer.id, first, now_ms);
            if let Err(code) = transactions::verify(shard, &question).await {
                let message = "the partition is not part of the producer's transaction".to_owned();
                return Err(Refused::because(code, message));
            }
            if verification.holds() {
                return Ok(());
            }
        }
    }
}

impl ProducePending {
    /// Bytes of memory in all.
    pub fn held_bytes(&self) -> usize {
        let names = self.topics.iter().map(|(topic, _)| match topic {
            TopicRef::Name(name) => RC_COUNTS_BYTES + name.len(),
            TopicRef::Id(_) => 0,
        });
        let refusals = self.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err());
        let lists = self.topics.capacity() * size_of::<(TopicRef, usize)>()
            + self.outcomes.capacity() * size_of::<Outcome>();
        size_of::<Self>()
            + lists
            + names.sum::<usize>()
            + refusals.map(Refused::held_bytes).sum::<usize>()
    }

    /// Waits for the promised durability and answers.
    pub async fn finish(mut self) -> Handled {
        if self.acks == 0 {
            self.note_errors();
            let failed = self.outcomes.iter().find_map(|o| o.result.as_ref().err());
            return match failed {
                Some(refused) => Err(Close::UnacknowledgedFailure(refused.error)),
                None => Ok(Reply::Nothing),
            };
        }
        for outcome in &mut self.outcomes {
            if let Ok(accepted) = &outcome.result
                && let Err(error) = accepted.owner.log.acknowledged(accepted.next_offset).await
            {
                let code = crate::errors::of_log(&error);
                outcome.result = Err(Refused::because(code, error.to_string()));
            }
        }
        self.answer()
    }

    fn answer(&self) -> Handled {
        self.note_errors();
        let mut outcomes = self.outcomes.iter();
        let mut leaders: SmallVec<[i32; 2]> = SmallVec::new();
        let mut responses = Vec::with_capacity(self.topics.len());
        for (topic, count) in &self.topics {
            let partition_responses: Vec<_> =
                outcomes.by_ref().take(*count).map(|o| self.partition(o, &mut leaders)).collect();
            let mut response = TopicProduceResponse {
                partition_responses: partition_responses.into(),
                ..TopicProduceResponse::default()
            };
            match topic {
                TopicRef::Name(name) => response.name = Cow::Borrowed(&**name),
                TopicRef::Id(id) => response.topic_id = *id,
            }
            responses.push(response);
        }
        let node_endpoints: Vec<NodeEndpoint<'_>> = leaders
            .iter()
            .filter_map(|node_id| self.request.shard.endpoint(*node_id))
            .map(|node| NodeEndpoint {
                node_id: node.node_id,
                host: owned(&node.host),
                port: node.port.into(),
                rack: None,
            })
            .collect();
        self.request.reply(&ProduceResponse {
            responses: responses.into(),
            throttle_time_ms: 0,
            node_endpoints: node_endpoints.into(),
        })
    }

    fn note_errors(&self) {
        let traffic = &self.request.shard.metrics.traffic;
        for refused in self.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
            traffic.note_error(ApiKey::Produce, refused.error);
        }
    }

    fn partition<'a>(
        &self,
        outcome: &'a Outcome,
        leaders: &mut SmallVec<[i32; 2]>,
    ) -> PartitionProduceResponse<'a> {
        let mut response = PartitionProduceResponse {
            index: outcome.partition,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            ..Default::default()
        };
        match &outcome.result {
            Ok(accepted) => {
                response.base_offset = accepted.base_offset;
                response.log_append_time_ms = accepted.log_append_time_ms;
                response.log_start_offset = accepted.log_start_offset;
            }
            Err(refused) => {
                response.error_code = refused.error.code();
                response.error_message = refused.message.as_deref().map(Cow::Borrowed);
                let errors = refused.record_errors.iter().map(|(index, message)| {
                    BatchIndexAndErrorMessage {
                        batch_index: *index,
                        batch_index_error_message: Some(Cow::Borrowed(message.as_str())),
                    }
                });
                response.record_errors = errors.collect::<Vec<_>>().into();
                if let Some((leader_id, leader_epoch)) = refused.leader
                    && self.request.version >= LEADER_HINT_VERSION
                {
                    response.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
                    if !leaders.contains(&leader_id) {
                        leaders.push(leader_id);
                    }
                }
            }
        }
        response
    }
}
