//! Reads partitions: one task for each leader fetches ahead, the caller takes what comes in.
//!
//! Owns the positions, the tasks and their recovery (a leader moved, a connection broke): all tasks
//! end, leaders are looked up again, and reading goes on where the caller had got to. Bounded by
//! `AHEAD` answers waiting. Decoding is `decode.rs`'s.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use reactor::Task;
use reactor::sync::{Receiver, Sender, channel};
use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::{FetchRequest, FetchResponse};
use wire::records::batches;
use wire::{ErrorCode, Records};

use super::connection::Connection;
use super::error::ClientError;
use super::offsets::{EARLIEST, Isolation, by_leader, offsets_at};
use super::{Backoff, Cluster};

/// Version 13 names topics by id; 12 says the same by name to any cluster.
const VERSIONS: RangeInclusive<i16> = 4..=12;
const MAX_WAIT: Duration = Duration::from_millis(500);
/// On top of what the broker waits for records.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const MAX_BYTES: i32 = 8 << 20;
const PARTITION_MAX_BYTES: i32 = 1 << 20;
/// Answers that wait for the caller.
const AHEAD: usize = 4;
const CONSUMER: i32 = -1;
const NO_SESSION: i32 = -1;

/// What to read.
#[derive(Debug, Clone)]
pub struct Reading {
    pub topic: String,
    /// Next offset of each partition.
    pub positions: BTreeMap<i32, i64>,
    /// Where each partition ends; one that is missing is read for ever.
    pub ends: BTreeMap<i32, i64>,
    pub isolation: Isolation,
}

/// Batches of one partition, as received.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub partition: i32,
    /// The first batch may begin before this offset.
    pub from: i64,
    /// The offset after the last batch.
    pub next: i64,
    pub records: Bytes,
    /// (producer id, first offset) of transactions that were aborted in here.
    pub aborted: Vec<(i64, i64)>,
}

enum Event {
    Data(Fetched),
    Failed(ClientError),
}

pub struct Consumer {
    reading: Reading,
    events: Receiver<Event>,
    /// Dropping a task ends it.
    tasks: Vec<Task<()>>,
    backoff: Option<Backoff>,
}

impl Consumer {
    pub fn new(reading: Reading) -> Self {
        let (_, events) = channel(AHEAD);
        Consumer { reading, events, tasks: Vec::new(), backoff: None }
    }

    /// The next batches, or `None` when every partition has reached its end.
    pub async fn next(&mut self, cluster: &mut Cluster) -> Result<Option<Fetched>, ClientError> {
        loop {
            if self.finished() {
                return Ok(None);
            }
            if self.tasks.is_empty()
                && let Err(error) = self.start(cluster).await
            {
                self.recover(cluster, error).await?;
                continue;
            }
            match self.events.recv().await {
                Some(Event::Data(fetched)) => {
                    self.backoff = None;
                    self.reading.positions.insert(fetched.partition, fetched.next);
                    return Ok(Some(fetched));
                }
                Some(Event::Failed(error)) => self.recover(cluster, error).await?,
                // Every task has ended on its own: what it had to read is read.
                None => self.tasks.clear(),
            }
        }
    }

    /// Drops what is on its way: reading goes on where the caller has got to. To be called when a
    /// future of [`next`](Self::next) was dropped.
    pub fn begin_again(&mut self) {
        self.tasks.clear();
    }

    fn finished(&self) -> bool {
        self.reading.positions.iter().all(|(partition, &next)| {
            self.reading.ends.get(partition).is_some_and(|&end| next >= end)
        })
    }

    async fn start(&mut self, cluster: &mut Cluster) -> Result<(), ClientError> {
        let metadata = cluster.topic(&self.reading.topic).await?;
        let open: Vec<i32> = self.reading.positions.keys().copied().collect();
        let (sender, events) = channel(AHEAD);
        self.events = events;
        for (leader, partitions) in by_leader(&metadata, &open)? {
            let connection = cluster.take(leader).await?;
            let mut reading = self.reading.clone();
            reading.positions.retain(|partition, _| partitions.contains(partition));
            self.tasks.push(reactor::spawn(fetch_loop(connection, reading, sender.clone())));
        }
        Ok(())
    }

    /// Waits and lets everything start anew, or returns what cannot be helped.
    async fn recover(
        &mut self,
        cluster: &mut Cluster,
        error: ClientError,
    ) -> Result<(), ClientError> {
        self.tasks.clear();
        if error.code() == Some(ErrorCode::OffsetOutOfRange) {
            return self.skip_deleted(cluster, error).await;
        }
        if !error.retriable() {
            return Err(error);
        }
        tracing::debug!("reading again: {error}");
        let backoff = self.backoff.get_or_insert_with(|| Backoff::new(cluster.patience()));
        if backoff.wait().await { Ok(()) } else { Err(error) }
    }

    /// Retention may overtake a slow reader: go on at the first record that is left.
    async fn skip_deleted(
        &mut self,
        cluster: &mut Cluster,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let partitions: Vec<i32> = self.reading.positions.keys().copied().collect();
        let (topic, isolation) = (self.reading.topic.clone(), self.reading.isolation);
        let starts = cluster
            .retrying(async |cluster| {
                offsets_at(cluster, &topic, &partitions, EARLIEST, isolation).await
            })
            .await?;
        let mut skipped = false;
        for (partition, start) in starts {
            let Some(next) = self.reading.positions.get_mut(&partition) else { continue };
            if let Some(start) = start.filter(|start| start > next) {
                tracing::warn!("{topic}-{partition}: records {next} to {start} are gone by now");
                *next = start;
                skipped = true;
            }
        }
        if skipped { Ok(()) } else { Err(error) }
    }
}

/// Fetches from one leader until its partitions have reached their ends or something fails.
async fn fetch_loop(mut connection: Connection, mut reading: Reading, sender: Sender<Event>) {
    loop {
        let Reading { positions, ends, .. } = &mut reading;
        positions.retain(|partition, next| ends.get(partition).is_none_or(|end| *next < *end));
        if positions.is_empty() {
            return;
        }
        let events = match fetch(&mut connection, &mut reading).await {
            Ok(fetched) => fetched.into_iter().map(Event::Data).collect(),
            Err(error) => vec![Event::Failed(error)],
        };
        for event in events {
            let failed = matches!(event, Event::Failed(_));
            if sender.send(event).await.is_err() || failed {
                return;
            }
        }
    }
}

/// One request. Moves the positions.
async fn fetch(
    connection: &mut Connection,
    reading: &mut Reading,
) -> Result<Vec<Fetched>, ClientError> {
    let partitions = reading.positions.iter().map(|(&partition, &next)| FetchPartition {
        partition,
        fetch_offset: next,
        partition_max_bytes: PARTITION_MAX_BYTES,
        ..FetchPartition::default()
    });
    let request = FetchRequest {
        replica_id: CONSUMER,
        max_wait_ms: MAX_WAIT.as_millis() as i32,
        min_bytes: 1,
        max_bytes: MAX_BYTES,
        isolation_level: reading.isolation.code(),
        session_epoch: NO_SESSION,
        topics: vec![FetchTopic {
            topic: reading.topic.as_str().into(),
            partitions: partitions.collect(),
            ..FetchTopic::default()
        }]
        .into(),
        ..FetchRequest::default()
    };
    let reply = connection.call(&request, VERSIONS, MAX_WAIT + ANSWER_WAIT).await?;
    let response: FetchResponse<'_> = reply.decode()?;
    ClientError::check(format!("fetch from {}", reading.topic), response.error_code, None)?;
    let mut fetched = Vec::new();
    for part in response.responses.iter().flat_map(|topic| topic.partitions.to_vec()) {
        let what = format!("{}-{}", reading.topic, part.partition_index);
        ClientError::check(format!("fetch from {what}"), part.error_code, None)?;
        let Some(position) = reading.positions.get_mut(&part.partition_index) else { continue };
        let records = match &part.records {
            Some(Records::Borrowed(bytes)) if !bytes.is_empty() => reply.keep(bytes),
            _ => continue,
        };
        let next = next_offset(&records).map_err(|reason| ClientError::Garbled {
            peer: connection.peer().to_owned(),
            reason: format!("{what} at {position}: {reason}"),
        })?;
        let from = *position;
        // A broker may answer with batches that end before the asked offset, after compaction.
        *position = next.max(from);
        let aborted = part.aborted_transactions.unwrap_or_default();
        let aborted = aborted.iter().map(|a| (a.producer_id, a.first_offset)).collect();
        let partition = part.partition_index;
        fetched.push(Fetched { partition, from, next: *position, records, aborted });
    }
    Ok(fetched)
}

/// The offset after the last whole batch; a cut one may follow it.
fn next_offset(records: &[u8]) -> Result<i64, String> {
    let mut next = None;
    for batch in batches(records) {
        match batch {
            Ok(batch) => next = Some(batch.header().next_offset()),
            Err(error) if next.is_none() => return Err(error.to_string()),
            Err(_) => break,
        }
    }
    next.ok_or_else(|| "not one whole batch".to_owned())
}
