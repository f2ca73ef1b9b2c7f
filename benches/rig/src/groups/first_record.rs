//! How long a member that is alone in its group waits from its join to its first record.
//!
//! Its connections are open and it knows topic and coordinator; what is timed is join, the look for
//! committed offsets (there are none), the look for the earliest offset, and the first fetch.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::messages as m;
use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};

use super::{Group, Protocol, classic, consumer, idle};
use crate::connection::Connection;
use crate::consume::{FETCH_VERSION, MAX_WAIT_MS, NO_SESSION_EPOCH};
use crate::error::{Error, Result};
use crate::latency;

const LIST_VERSION: i16 = 10;
const EARLIEST: i64 = -2;
const LIST_TIMEOUT_MS: i32 = 30_000;
const BYTES_MAX: i32 = 1 << 20;

/// One new group after the other; gives microseconds.
pub fn run(groups: &[Group], protocol: Protocol) -> Result<Histogram<u64>> {
    let mut histogram = latency::new_histogram()?;
    for group in groups {
        let took = one(group, protocol)?;
        histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
    Ok(histogram)
}

fn one(group: &Group, protocol: Protocol) -> Result<Duration> {
    match protocol {
        Protocol::Classic => {
            let mut member = classic::Member::open(group)?;
            let mut reader = Reader::open(group)?;
            let begun = Instant::now();
            let partitions = member.join()?;
            reader.first_record(&partitions)?;
            let took = begun.elapsed();
            member.leave()?;
            Ok(took)
        }
        Protocol::Consumer => {
            let mut member = consumer::Member::open(group)?;
            let mut reader = Reader::open(group)?;
            let begun = Instant::now();
            while member.heartbeat()?.got.is_empty() {
                thread::sleep(member.interval);
            }
            reader.first_record(member.owned())?;
            let took = begun.elapsed();
            member.leave()?;
            Ok(took)
        }
    }
}

/// What a member needs to read one of its partitions.
struct Reader<'a> {
    group: &'a Group,
    coordinator: Connection,
    leader: Connection,
}

impl<'a> Reader<'a> {
    fn open(group: &'a Group) -> Result<Self> {
        let leader = group.topic.leaders.first();
        let leader = leader.ok_or_else(|| Error::NoLeader(group.topic.name.clone()))?;
        Ok(Reader {
            group,
            coordinator: Connection::open(group.coordinator)?,
            leader: Connection::open(*leader)?,
        })
    }

    /// From partition 0.
    fn first_record(&mut self, partitions: &[i32]) -> Result<()> {
        if partitions.len() != self.group.topic.leaders.len() {
            return Err(Error::Unreadable(format!("the only member's {partitions:?}")));
        }
        let names = [self.group.name.clone()];
        for (_, committed) in idle::committed(&mut self.coordinator, &names, &self.group.topic)? {
            let none = committed?.iter().all(|offset| *offset == idle::NOTHING);
            if !none {
                return Err(Error::Unreadable("the offsets of a new group".to_owned()));
            }
        }
        let fetch_offset = self.earliest()?;
        let partition = FetchPartition {
            partition: 0,
            fetch_offset,
            partition_max_bytes: BYTES_MAX,
            ..FetchPartition::default()
        };
        let topic = FetchTopic {
            topic_id: self.group.topic.id,
            partitions: vec![partition].into(),
            ..FetchTopic::default()
        };
        let request = m::FetchRequest {
            max_wait_ms: MAX_WAIT_MS,
            min_bytes: 1,
            max_bytes: BYTES_MAX,
            session_epoch: NO_SESSION_EPOCH,
            topics: vec![topic].into(),
            ..m::FetchRequest::default()
        };
        let reply = self.leader.call(&request, FETCH_VERSION)?;
        let answer: m::FetchResponse<'_> = reply.decode()?;
        Error::check(|| "fetch".to_owned(), answer.error_code)?;
        let data = answer.responses.first().and_then(|topic| topic.partitions.first());
        let data = data.ok_or_else(|| Error::Unreadable("a fetch answer".to_owned()))?;
        Error::check(|| "fetch".to_owned(), data.error_code)?;
        match data.records.as_ref().and_then(wire::Records::bytes) {
            Some(bytes) if !bytes.is_empty() => Ok(()),
            _ => Err(Error::Unreadable("a fetch of a partition with records".to_owned())),
        }
    }

    fn earliest(&mut self) -> Result<i64> {
        let partition = ListOffsetsPartition {
            partition_index: 0,
            timestamp: EARLIEST,
            ..ListOffsetsPartition::default()
        };
        let topic = ListOffsetsTopic {
            name: self.group.topic.name.as_str().into(),
            partitions: vec![partition].into(),
        };
        let request = m::ListOffsetsRequest {
            replica_id: -1,
            topics: vec![topic].into(),
            timeout_ms: LIST_TIMEOUT_MS,
            ..m::ListOffsetsRequest::default()
        };
        let reply = self.leader.call(&request, LIST_VERSION)?;
        let answer: m::ListOffsetsResponse<'_> = reply.decode()?;
        let found = answer.topics.first().and_then(|topic| topic.partitions.first());
        let found = found.ok_or_else(|| Error::Unreadable("a list of offsets".to_owned()))?;
        Error::check(|| "list offsets".to_owned(), found.error_code)?;
        Ok(found.offset)
    }
}
