//! Requests of producers as plain data: they outlive a crash of the broker, and are sent again with the same
//! bytes.

use std::time::Duration;

use wire::ApiKey;
use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use wire::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use wire::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use super::history::ProducerEpoch;
use crate::support::{self, BASE_PORT, Client, Gone};

crate::response!(Initialised, InitProducerIdResponse);
crate::response!(Added, AddPartitionsToTxnResponse, borrows);
crate::response!(AddedGroup, AddOffsetsToTxnResponse);
crate::response!(Produced, ProduceResponse, borrows);
crate::response!(Committed, TxnOffsetCommitResponse, borrows);
crate::response!(Ended, EndTxnResponse);
crate::response!(Positions, OffsetFetchResponse, borrows);

use m::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, EndTxnResponse, InitProducerIdResponse,
    OffsetFetchResponse, ProduceResponse, TxnOffsetCommitResponse,
};

pub const SHARDS: u16 = 2;
pub const TOPIC: &str = "out";
/// What the group consumes; only its name and number are needed.
pub const INPUT: &str = "in";
pub const GROUP: &str = "g";
/// Virtual time that a transaction may be open.
pub const TIMEOUT_MS: i32 = 3_000;
/// A client that got no answer for so long sends again.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// An impatient client leaves before the broker has begun, or answered, or in between.
const LOST_WITHIN_US: u64 = 2_000;
/// The other shard is asked.
pub const ELSEWHERE: [i16; 2] = [6, 16];

pub const NOBODY: ProducerEpoch = (-1, -1);

/// Whose request it is, and in which protocol.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub id: &'static str,
    pub producer: ProducerEpoch,
    /// KIP-890.
    pub new: bool,
}

#[derive(Clone, Debug)]
pub enum Call {
    /// With the caller's id and epoch if it goes on (KIP-360).
    Init,
    Add(Vec<usize>),
    AddGroup,
    Write {
        partition: usize,
        batch: Vec<u8>,
    },
    Offsets {
        upto: i64,
    },
    End {
        commit: bool,
    },
    /// Where the group's next input is, once nothing of it is open.
    Position,
}

#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub code: i16,
    /// Of a write, or of the group's position.
    pub offset: i64,
    pub producer: ProducerEpoch,
}

impl Answer {
    fn code(code: i16) -> Self {
        Answer { code, offset: 0, producer: NOBODY }
    }
}

/// A client's connections.
#[derive(Default)]
pub struct Links {
    clients: [Option<Client>; SHARDS as usize],
}

impl Links {
    /// Asks one shard. Without patience the connection is dropped when the request is just under way: the
    /// answer is lost. It is dropped after an error too.
    pub async fn ask(
        &mut self,
        shard: usize,
        caller: Caller,
        call: &Call,
        patient: bool,
    ) -> Result<Answer, Gone> {
        let mut client = match self.clients[shard].take() {
            Some(client) => client,
            None => Client::connect(support::addresses(SHARDS, BASE_PORT)[shard]).await?,
        };
        let wait = match patient {
            true => ANSWER_WAIT,
            false => Duration::from_micros(reactor::random_u64() % LOST_WITHIN_US),
        };
        let asked = reactor::timeout(wait, ask(&mut client, caller, call)).await;
        let answer = asked.map_err(|_| Gone("no answer in time".to_owned()))??;
        self.clients[shard] = Some(client);
        Ok(answer)
    }
}

/// The versions of a client of the old protocol and of one of KIP-890.
fn version(api: ApiKey, new: bool) -> i16 {
    match (api, new) {
        (ApiKey::Produce, true) => 12,
        (ApiKey::Produce, false) => 11,
        (ApiKey::EndTxn | ApiKey::TxnOffsetCommit, true) => 5,
        (ApiKey::EndTxn | ApiKey::TxnOffsetCommit, false) => 4,
        (ApiKey::OffsetFetch, _) => 9,
        (ApiKey::InitProducerId, _) => 4,
        _ => 3,
    }
}

async fn ask(client: &mut Client, caller: Caller, call: &Call) -> Result<Answer, Gone> {
    let of = |api| (api, version(api, caller.new));
    let none = || Gone("an answer without what was asked for".to_owned());
    match call {
        Call::Init => {
            let (api, version) = of(ApiKey::InitProducerId);
            let answer = client.call::<_, Initialised>(api, version, &init(caller)).await?;
            let producer = (answer.producer_id, answer.producer_epoch);
            Ok(Answer { producer, ..Answer::code(answer.error_code) })
        }
        Call::Add(partitions) => {
            let (api, version) = of(ApiKey::AddPartitionsToTxn);
            let answer = client.call::<_, Added>(api, version, &add(caller, partitions)).await?;
            let topic = answer.results_by_topic_v3_and_below.first().ok_or_else(none)?;
            let codes = topic.results_by_partition.iter().map(|it| it.partition_error_code);
            Ok(Answer::code(codes.max().ok_or_else(none)?))
        }
        Call::AddGroup => {
            let (api, version) = of(ApiKey::AddOffsetsToTxn);
            let answer = client.call::<_, AddedGroup>(api, version, &add_group(caller)).await?;
            Ok(Answer::code(answer.error_code))
        }
        Call::Write { partition, batch } => {
            let (api, version) = of(ApiKey::Produce);
            let place = (TOPIC, *partition as i32);
            let request = support::to_produce_within(caller.id, place, batch);
            let answer = client.call::<_, Produced>(api, version, &request).await?;
            let topic = answer.responses.first().ok_or_else(none)?;
            let written = topic.partition_responses.first().ok_or_else(none)?;
            Ok(Answer { offset: written.base_offset, ..Answer::code(written.error_code) })
        }
        Call::Offsets { upto } => {
            let (api, version) = of(ApiKey::TxnOffsetCommit);
            let answer = client.call::<_, Committed>(api, version, &offsets(caller, *upto)).await?;
            let topic = answer.topics.first().ok_or_else(none)?;
            Ok(Answer::code(topic.partitions.iter().next().ok_or_else(none)?.error_code))
        }
        Call::End { commit } => {
            let (api, version) = of(ApiKey::EndTxn);
            let answer = client.call::<_, Ended>(api, version, &end(caller, *commit)).await?;
            let producer = (answer.producer_id, answer.producer_epoch);
            Ok(Answer { producer, ..Answer::code(answer.error_code) })
        }
        Call::Position => {
            let (api, version) = of(ApiKey::OffsetFetch);
            let answer = client.call::<_, Positions>(api, version, &position()).await?;
            let group = answer.groups.first().ok_or_else(none)?;
            if group.error_code != 0 {
                return Ok(Answer::code(group.error_code));
            }
            let topic = group.topics.first().ok_or_else(none)?;
            let part = topic.partitions.iter().next().ok_or_else(none)?;
            Ok(Answer { offset: part.committed_offset.max(0), ..Answer::code(part.error_code) })
        }
    }
}

fn init(caller: Caller) -> m::InitProducerIdRequest<'static> {
    m::InitProducerIdRequest {
        transactional_id: Some(caller.id.into()),
        transaction_timeout_ms: TIMEOUT_MS,
        producer_id: caller.producer.0,
        producer_epoch: caller.producer.1,
        ..Default::default()
    }
}

fn add(caller: Caller, partitions: &[usize]) -> m::AddPartitionsToTxnRequest<'static> {
    let indexes: Vec<i32> = partitions.iter().map(|partition| *partition as i32).collect();
    let topic = AddPartitionsToTxnTopic { name: TOPIC.into(), partitions: indexes.into() };
    m::AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: caller.id.into(),
        v3_and_below_producer_id: caller.producer.0,
        v3_and_below_producer_epoch: caller.producer.1,
        v3_and_below_topics: vec![topic].into(),
        ..Default::default()
    }
}

fn add_group(caller: Caller) -> m::AddOffsetsToTxnRequest<'static> {
    m::AddOffsetsToTxnRequest {
        transactional_id: caller.id.into(),
        producer_id: caller.producer.0,
        producer_epoch: caller.producer.1,
        group_id: GROUP.into(),
    }
}

fn offsets(caller: Caller, upto: i64) -> m::TxnOffsetCommitRequest<'static> {
    let partition =
        TxnOffsetCommitRequestPartition { committed_offset: upto, ..Default::default() };
    let topic = TxnOffsetCommitRequestTopic {
        name: INPUT.into(),
        partitions: vec![partition].into(),
        ..Default::default()
    };
    m::TxnOffsetCommitRequest {
        transactional_id: caller.id.into(),
        group_id: GROUP.into(),
        producer_id: caller.producer.0,
        producer_epoch: caller.producer.1,
        topics: vec![topic].into(),
        ..Default::default()
    }
}

fn end(caller: Caller, committed: bool) -> m::EndTxnRequest<'static> {
    m::EndTxnRequest {
        transactional_id: caller.id.into(),
        producer_id: caller.producer.0,
        producer_epoch: caller.producer.1,
        committed,
    }
}

fn position() -> m::OffsetFetchRequest<'static> {
    let topic = OffsetFetchRequestTopics {
        name: INPUT.into(),
        partition_indexes: vec![0].into(),
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: GROUP.into(),
        topics: Some(vec![topic].into()),
        ..Default::default()
    };
    m::OffsetFetchRequest { groups: vec![group].into(), require_stable: true, ..Default::default() }
}
