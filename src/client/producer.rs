//! Sends records: gathers them into one batch a partition, sends to all leaders at the same time,
//! and repeats what failed in a way that writes nothing twice.
//!
//! Owns the pending records (bounded by `PENDING_BYTES`) and, where the cluster gives one, the
//! producer id with a sequence for each partition. One batch of a partition is in flight at a time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse,
};
use wire::records::{BatchBuilder, Codec};
use wire::{ErrorCode, Records, hash};

use super::connection::Connection;
use super::error::ClientError;
use super::{Backoff, Cluster};
use crate::cli::record_input::NewRecord;

/// Version 13 names topics by id; 12 says the same by name to any cluster.
const PRODUCE_VERSIONS: RangeInclusive<i16> = 3..=12;
/// zstd needs version 7, which no broker that knows it lacks.
const PRODUCE_ZSTD_VERSIONS: RangeInclusive<i16> = 7..=12;
const INIT_PRODUCER_ID_VERSIONS: RangeInclusive<i16> = 0..=4;
/// A batch is sent when it has grown to this; well below any sensible `max.message.bytes`.
const BATCH_BYTES: usize = 64 << 10;
/// All batches are sent when together they have grown to this.
const PENDING_BYTES: usize = 4 << 20;
/// Lengths, offsets and timestamps around a record's key and value.
const RECORD_OVERHEAD_BYTES: usize = 32;

#[derive(Debug, Clone)]
pub struct ProducerOptions {
    pub topic: String,
    /// 0, 1 or -1 for all.
    pub acks: i16,
    pub codec: Codec,
    pub partition: Option<i32>,
}

pub struct Producer {
    options: ProducerOptions,
    slots: BTreeMap<i32, Slot>,
    identity: Option<(i64, i16)>,
    /// The partition that records without a key go to until its batch is sent.
    turn: usize,
    pending_bytes: usize,
    acknowledged: u64,
}

/// One partition.
#[derive(Debug, Default)]
struct Slot {
    leader: Option<i32>,
    pending: Vec<NewRecord>,
    pending_bytes: usize,
    next_sequence: i32,
}

/// A batch on its way.
struct Batch {
    partition: i32,
    records: Vec<NewRecord>,
    bytes: Vec<u8>,
}

impl Producer {
    /// Looks the topic up and asks for a producer id.
    pub async fn open(
        cluster: &mut Cluster,
        options: ProducerOptions,
    ) -> Result<Self, ClientError> {
        let mut producer = Producer {
            options,
            slots: BTreeMap::new(),
            identity: None,
            turn: 0,
            pending_bytes: 0,
            acknowledged: 0,
        };
        let topic = producer.options.topic.clone();
        let metadata = cluster.wait_for_topic(&topic, true).await?;
        for partition in &metadata.partitions {
            let slot = Slot { leader: partition.leader, ..Slot::default() };
            producer.slots.insert(partition.index, slot);
        }
        producer.turn = reactor::random_u64() as usize;
        // Less than "all" makes no promise that a sequence could keep.
        if producer.options.acks == -1 {
            producer.identity = cluster.retrying(init_producer_id).await?;
        }
        Ok(producer)
    }

    /// Records that the cluster has acknowledged (with acks=0: that were sent).
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Takes a record; sends when enough have gathered.
    pub async fn push(
        &mut self,
        cluster: &mut Cluster,
        record: NewRecord,
    ) -> Result<(), ClientError> {
        let partition = self.choose(&record)?;
        let topic = &self.options.topic;
        let slot = self.slots.get_mut(&partition).ok_or_else(|| {
            let code = ErrorCode::UnknownTopicOrPartition.code();
            let message = Some("the topic has no such partition");
            ClientError::broker(format!("{topic}-{partition}"), code, message)
        })?;
        let bytes = size_of(&record);
        slot.pending_bytes += bytes;
        self.pending_bytes += bytes;
        slot.pending.push(record);
        if slot.pending_bytes >= BATCH_BYTES || self.pending_bytes >= PENDING_BYTES {
            self.flush(cluster).await?;
        }
        Ok(())
    }

    fn choose(&self, record: &NewRecord) -> Result<i32, ClientError> {
        if let Some(partition) = self.options.partition.or(record.partition) {
            return Ok(partition);
        }
        let count = self.slots.len();
        let none = || ClientError::Request(format!("{} has no partitions", self.options.topic));
        if let (Some(key), Ok(count)) = (&record.key, i32::try_from(count)) {
            return Ok(hash::partition_for_key(key, count));
        }
        let at = self.turn.checked_rem(count).ok_or_else(none)?;
        self.slots.keys().nth(at).copied().ok_or_else(none)
    }

    /// Sends all that is pending and returns when it is acknowledged.
    pub async fn flush(&mut self, cluster: &mut Cluster) -> Result<(), ClientError> {
        let mut waiting: Vec<(i32, Vec<NewRecord>)> = Vec::new();
        for (&partition, slot) in &mut self.slots {
            if !slot.pending.is_empty() {
                slot.pending_bytes = 0;
                waiting.push((partition, std::mem::take(&mut slot.pending)));
            }
        }
        self.pending_bytes = 0;
        self.turn = self.turn.wrapping_add(1);
        let mut backoff = Backoff::new(cluster.patience());
        while !waiting.is_empty() {
            let failed = self.round(cluster, &mut waiting).await?;
            let Some(error) = failed else { continue };
            tracing::debug!("sending again: {error}");
            if !backoff.wait().await {
                return Err(error);
            }
            self.look_up_leaders(cluster).await?;
        }
        Ok(())
    }

    /// Sends the first waiting batch of every partition. What is acknowledged leaves `waiting`;
    /// an error that may pass is returned, one that will not ends it all.
    async fn round(
        &mut self,
        cluster: &mut Cluster,
        waiting: &mut Vec<(i32, Vec<NewRecord>)>,
    ) -> Result<Option<ClientError>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<Batch>> = BTreeMap::new();
        let mut later = Vec::new();
        let mut failed = None;
        let mut seen = Vec::new();
        for (partition, records) in std::mem::take(waiting) {
            let leader = self.slots.get(&partition).and_then(|slot| slot.leader);
            match leader {
                // Halves of a batch that was too large follow one another.
                _ if seen.contains(&partition) => later.push((partition, records)),
                Some(leader) => {
                    let batch = self.build(partition, records)?;
                    by_leader.entry(leader).or_default().push(batch);
                }
                None => {
                    let code = ErrorCode::LeaderNotAvailable.code();
                    let what = format!("{}-{partition}", self.options.topic);
                    failed = Some(ClientError::broker(what, code, None));
                    later.push((partition, records));
                }
            }
            seen.push(partition);
        }
        let mut sends = Vec::new();
        for (leader, batches) in by_leader {
            match cluster.take(leader).await {
                Ok(connection) => {
                    let wait = cluster.request_wait();
                    sends.push(send(self.options.clone(), leader, connection, batches, wait));
                }
                Err(error) if error.retriable() => {
                    failed = Some(error);
                    later.extend(batches.into_iter().map(|b| (b.partition, b.records)));
                }
                Err(error) => return Err(error),
            }
        }
        let mut first = Vec::new();
        for (leader, connection, results) in reactor::join_all(sends).await {
            if let Some(connection) = connection {
                cluster.give_back(leader, connection);
            }
            for (batch, result) in results {
                match self.settle(batch, result)? {
                    Settled::Done => {}
                    Settled::Again(batch, error) => {
                        failed = error.or(failed);
                        first.extend(batch);
                    }
                }
            }
        }
        first.append(&mut later);
        *waiting = first;
        Ok(failed)
    }

    fn build(&self, partition: i32, records: Vec<NewRecord>) -> Result<Batch, ClientError> {
        let mut builder = BatchBuilder::new().codec(self.options.codec, None);
        if let (Some((id, epoch)), Some(slot)) = (self.identity, self.slots.get(&partition)) {
            builder = builder.producer(id, epoch, slot.next_sequence);
        }
        let now = reactor::wall_clock_ms();
        for record in &records {
            let headers: Vec<(&str, Option<&[u8]>)> =
                record.headers.iter().map(|(n, v)| (n.as_str(), v.as_deref())).collect();
            let timestamp = record.timestamp.unwrap_or(now);
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append_with_headers(timestamp, key, value, &headers);
        }
        let bytes = builder.build().map_err(|error| ClientError::Request(error.to_string()))?;
        Ok(Batch { partition, records, bytes })
    }

    fn settle(
        &mut self,
        batch: Batch,
        result: Result<(), ClientError>,
    ) -> Result<Settled, ClientError> {
        let code = result.as_ref().err().and_then(ClientError::code);
        match result {
            Err(_) if code == Some(ErrorCode::DuplicateSequenceNumber) => {}
            Err(_) if code == Some(ErrorCode::MessageTooLarge) && batch.records.len() > 1 => {
                let mut head = batch.records;
                let tail = head.split_off(head.len() / 2);
                let halves = vec![(batch.partition, head), (batch.partition, tail)];
                return Ok(Settled::Again(halves, None));
            }
            Err(error) if error.retriable() => {
                return Ok(Settled::Again(vec![(batch.partition, batch.records)], Some(error)));
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let count = batch.records.len();
        if let Some(slot) = self.slots.get_mut(&batch.partition) {
            let sequence = i64::from(slot.next_sequence) + count as i64;
            // Sequences run from 0 to 2^31 - 1 and then start again.
            slot.next_sequence = (sequence % (1 << 31)) as i32;
        }
        self.acknowledged += count as u64;
        Ok(Settled::Done)
    }

    async fn look_up_leaders(&mut self, cluster: &mut Cluster) -> Result<(), ClientError> {
        match cluster.topic(&self.options.topic).await {
            Ok(metadata) => {
                for partition in &metadata.partitions {
                    if let Some(slot) = self.slots.get_mut(&partition.index) {
                        slot.leader = partition.leader;
                    }
                }
                Ok(())
            }
            // The next round fails as well and waits again.
            Err(error) if error.retriable() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

enum Settled {
    Done,
    /// To be sent again, or in parts; with the error that made it so.
    Again(Vec<(i32, Vec<NewRecord>)>, Option<ClientError>),
}

type Sent = (i32, Option<Connection>, Vec<(Batch, Result<(), ClientError>)>);

/// One request to one leader. The connection comes back unless it failed.
async fn send(
    options: ProducerOptions,
    leader: i32,
    mut connection: Connection,
    batches: Vec<Batch>,
    wait: std::time::Duration,
) -> Sent {
    let versions =
        if options.codec == Codec::Zstd { PRODUCE_ZSTD_VERSIONS } else { PRODUCE_VERSIONS };
    let data = batches.iter().map(|batch| PartitionProduceData {
        index: batch.partition,
        records: Some(Records::Borrowed(&batch.bytes)),
    });
    let request = ProduceRequest {
        acks: options.acks,
        timeout_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
        topic_data: vec![TopicProduceData {
            name: options.topic.as_str().into(),
            partition_data: data.collect(),
            ..TopicProduceData::default()
        }]
        .into(),
        ..ProduceRequest::default()
    };
    if options.acks == 0 {
        let told = connection.tell(&request, versions, wait).await;
        drop(request);
        let connection = told.is_ok().then_some(connection);
        return (leader, connection, same_for_all(batches, told));
    }
    let reply = connection.call(&request, versions, wait).await;
    drop(request);
    let answered = match reply {
        Ok(reply) => match reply.decode::<ProduceResponse<'_>>() {
            Ok(response) => Ok(read_results(&options.topic, &response)),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match answered {
        Err(error) => (leader, None, same_for_all(batches, Err(error))),
        Ok(mut results) => {
            let missing = |partition| {
                let what = format!("produce to {}-{partition}", options.topic);
                Err(ClientError::broker(what, ErrorCode::UnknownServerError.code(), None))
            };
            let settled = batches.into_iter().map(|batch| {
                let result = results.remove(&batch.partition);
                let result = result.unwrap_or_else(|| missing(batch.partition));
                (batch, result)
            });
            (leader, Some(connection), settled.collect())
        }
    }
}

fn same_for_all(
    batches: Vec<Batch>,
    result: Result<(), ClientError>,
) -> Vec<(Batch, Result<(), ClientError>)> {
    batches.into_iter().map(|batch| (batch, result.clone())).collect()
}

fn read_results(
    topic: &str,
    response: &ProduceResponse<'_>,
) -> BTreeMap<i32, Result<(), ClientError>> {
    let parts = response.responses.iter().flat_map(|topic| topic.partition_responses.to_vec());
    let result = parts.map(|part| {
        let what = format!("produce to {topic}-{}", part.index);
        let first = part.record_errors.first().and_then(|e| e.batch_index_error_message);
        let message = part.error_message.or(first);
        (part.index, ClientError::check(what, part.error_code, message.as_deref()))
    });
    result.collect()
}

/// A producer id for retries that write nothing twice; `None` where the cluster grants none.
async fn init_producer_id(cluster: &mut Cluster) -> Result<Option<(i64, i16)>, ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..InitProducerIdRequest::default()
    };
    let reply = match cluster.call_controller(&request, INIT_PRODUCER_ID_VERSIONS).await {
        Ok(reply) => reply,
        Err(ClientError::Version { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let response: InitProducerIdResponse = reply.decode()?;
    match ErrorCode::from_code(response.error_code) {
        Some(ErrorCode::None) => Ok(Some((response.producer_id, response.producer_epoch))),
        Some(ErrorCode::ClusterAuthorizationFailed) => Ok(None),
        _ => Err(ClientError::broker("ask for a producer id", response.error_code, None)),
    }
}

fn size_of(record: &NewRecord) -> usize {
    let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers: usize =
        record.headers.iter().map(|(n, v)| n.len() + length(v) + RECORD_OVERHEAD_BYTES / 4).sum();
    RECORD_OVERHEAD_BYTES + length(&record.key) + length(&record.value) + headers
}
