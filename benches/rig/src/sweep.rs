//! Whether every partition answers a Produce and a Fetch, however many there are.
//!
//! A probe is a thread with one connection and some partitions of one leader. It sends one record
//! to each of them, then fetches from their starts, in requests of a bounded number of partitions,
//! and repeats whatever is refused. The end that a fetch tells must not lie below what was
//! acknowledged before: a broker that forgot something ends the run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use wire::messages::fetch_request::{FetchPartition, FetchTopic};
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::messages::{FetchRequest, FetchResponse, ProduceRequest, ProduceResponse};
use wire::{ErrorCode, Records};

use crate::cluster::{Topic, look_up_all};
use crate::connection::Connection;
use crate::consume::{FETCH_VERSION, NO_SESSION_EPOCH};
use crate::error::{Error, Result};
use crate::payload::{ACKS, Batch, PRODUCE_VERSION, TIMEOUT_MS};

/// Probes of one leader, if it has as many partitions.
const PROBES: usize = 8;
const PARTITIONS_A_REQUEST: usize = 250;
/// Short against what is measured, long enough not to take the processor from a starting broker.
const KNOCK_EVERY: Duration = Duration::from_millis(1);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);
const USABLE_WITHIN: Duration = Duration::from_secs(240);
/// A fetch is asked for little: at least the first partition with records gives a batch.
const FETCH_BYTES: i32 = 64 << 10;

/// Time since some moment until partitions had answered both requests.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    pub first: Duration,
    pub all: Duration,
}

#[derive(Debug)]
pub struct Sweep<'a> {
    pub topics: &'a [Topic],
    /// Sent to each partition.
    pub batch: &'a Batch,
    /// Where each partition must end at least, once the batch is in it.
    pub least_end: i64,
}

/// Knocks until a starting broker knows a leader for every partition of these topics.
pub fn await_known(at: SocketAddr, names: &[String], since: Instant) -> Result<Vec<Topic>> {
    loop {
        let error = match look_up_all(at, names) {
            Ok(topics) => return Ok(topics),
            Err(error) => error,
        };
        // Once it answers, the answer may be long.
        let pause = if matches!(error, Error::Io { .. }) { KNOCK_EVERY } else { ASK_AGAIN_AFTER };
        give_up(since, error)?;
        thread::sleep(pause);
    }
}

fn give_up(since: Instant, last: Error) -> Result<()> {
    if since.elapsed() < USABLE_WITHIN {
        return Ok(());
    }
    let what = "the broker does not serve every partition".to_owned();
    Err(Error::TooLate { what, within: USABLE_WITHIN, last: last.to_string() })
}

impl Sweep<'_> {
    pub fn run(&self, since: Instant) -> Result<Reached> {
        let probes = self.probes();
        let outcomes: Vec<Result<Reached>> = thread::scope(|scope| {
            let threads: Vec<_> =
                probes.into_iter().map(|probe| scope.spawn(move || probe.run(since))).collect();
            let end = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect()
        });
        let mut reached = Reached { first: Duration::MAX, all: Duration::ZERO };
        for outcome in outcomes {
            let probe = outcome?;
            reached.first = reached.first.min(probe.first);
            reached.all = reached.all.max(probe.all);
        }
        Ok(reached)
    }

    fn probes(&self) -> Vec<Probe<'_>> {
        let mut leaders: Vec<(SocketAddr, Vec<Place>)> = Vec::new();
        for (topic, it) in self.topics.iter().enumerate() {
            for (partition, &leader) in (0..).zip(&it.leaders) {
                let place = Place { topic, partition };
                match leaders.iter_mut().find(|(known, _)| *known == leader) {
                    Some((_, places)) => places.push(place),
                    None => leaders.push((leader, vec![place])),
                }
            }
        }
        let mut probes = Vec::new();
        for (leader, places) in leaders {
            let share = places.len().div_ceil(PROBES).max(1);
            let probe = |places: &[Place]| Probe { sweep: self, leader, places: places.to_vec() };
            probes.extend(places.chunks(share).map(probe));
        }
        probes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// In the sweep's list.
    topic: usize,
    partition: i32,
}

struct Probe<'a> {
    sweep: &'a Sweep<'a>,
    leader: SocketAddr,
    places: Vec<Place>,
}

/// Error codes of an answer, by topic id and partition.
type Codes = HashMap<([u8; 16], i32), i16>;

/// What one request did for its partitions.
#[derive(Default)]
struct Outcome {
    again: Vec<Place>,
    refusal: Option<Error>,
}

impl Probe<'_> {
    fn run(&self, since: Instant) -> Result<Reached> {
        let mut first = None;
        let mut connection = None;
        for chunk in self.places.chunks(PARTITIONS_A_REQUEST) {
            self.until_done(since, &mut connection, chunk, Self::produce)?;
            self.until_done(since, &mut connection, chunk, Self::fetch)?;
            first = first.or(Some(since.elapsed()));
        }
        let all = since.elapsed();
        Ok(Reached { first: first.unwrap_or(all), all })
    }

    /// Repeats a request for whatever was refused; a broken connection is made anew.
    fn until_done(
        &self,
        since: Instant,
        connection: &mut Option<Connection>,
        chunk: &[Place],
        ask: impl Fn(&Self, &mut Connection, &[Place]) -> Result<Outcome>,
    ) -> Result<()> {
        let mut places = chunk.to_vec();
        loop {
            let mut open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(self.leader),
            };
            let asked = open.as_mut().map_err(|error| Error::Usage(error.to_string()));
            let failure = match asked.and_then(|open| ask(self, open, &places)) {
                Ok(outcome) => {
                    *connection = open.ok();
                    places = outcome.again;
                    outcome.refusal
                }
                Err(lost @ Error::Lost { .. }) => return Err(lost),
                Err(error) => Some(error),
            };
            match failure {
                None if places.is_empty() => return Ok(()),
                None => give_up(since, Error::Unreadable("a partition's answer".to_owned()))?,
                Some(failure) => give_up(since, failure)?,
            }
            thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    fn produce(&self, connection: &mut Connection, places: &[Place]) -> Result<Outcome> {
        let records = Some(Records::Borrowed(&self.sweep.batch.bytes));
        let topic_data = self.by_topic(places, |topic, partitions| TopicProduceData {
            topic_id: topic.id,
            partition_data: partitions
                .iter()
                .map(|&index| PartitionProduceData { index, records: records.clone() })
                .collect::<Vec<_>>()
                .into(),
            ..TopicProduceData::default()
        });
        let request = ProduceRequest {
            transactional_id: None,
            acks: ACKS,
            timeout_ms: TIMEOUT_MS,
            topic_data: topic_data.into(),
        };
        let reply = connection.call(&request, PRODUCE_VERSION)?;
        let answer: ProduceResponse<'_> = reply.decode()?;
        let mut codes = Codes::with_capacity(places.len());
        for topic in &answer.responses {
            for data in &topic.partition_responses {
                codes.insert((topic.topic_id.0, data.index), data.error_code);
            }
        }
        self.outcome(places, &codes, "produce")
    }

    fn fetch(&self, connection: &mut Connection, places: &[Place]) -> Result<Outcome> {
        let topics = self.by_topic(places, |topic, partitions| FetchTopic {
            topic_id: topic.id,
            partitions: partitions
                .iter()
                .map(|&partition| FetchPartition {
                    partition,
                    partition_max_bytes: FETCH_BYTES,
                    ..FetchPartition::default()
                })
                .collect::<Vec<_>>()
                .into(),
            ..FetchTopic::default()
        });
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            session_epoch: NO_SESSION_EPOCH,
            topics: topics.into(),
            ..FetchRequest::default()
        };
        let reply = connection.call(&request, FETCH_VERSION)?;
        let answer: FetchResponse<'_> = reply.decode()?;
        Error::check(|| "fetch".to_owned(), answer.error_code)?;
        let (mut codes, mut bytes) = (Codes::with_capacity(places.len()), 0);
        for topic in &answer.responses {
            for data in &topic.partitions {
                codes.insert((topic.topic_id.0, data.partition_index), data.error_code);
                bytes += data.records.as_ref().map_or(0, Records::len);
                let (end, due) = (data.high_watermark, self.sweep.least_end);
                if ErrorCode::from_code(data.error_code) == Some(ErrorCode::None) && end < due {
                    return Err(Error::Lost { partition: data.partition_index, end, due });
                }
            }
        }
        let outcome = self.outcome(places, &codes, "fetch")?;
        if outcome.again.is_empty() && bytes == 0 {
            return Err(Error::Unreadable("an empty answer to a fetch".to_owned()));
        }
        Ok(outcome)
    }

    /// An answer may have its partitions in any order; one that lacks some is not to be believed.
    fn outcome(&self, places: &[Place], codes: &Codes, what: &str) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for place in places {
            let Place { topic, partition } = *place;
            let code = self.sweep.topics.get(topic).and_then(|t| codes.get(&(t.id.0, partition)));
            let Some(&code) = code else {
                return Err(Error::Unreadable(format!("{what}: no answer for {partition}")));
            };
            if let Err(refusal) = Error::check(|| format!("{what} partition {partition}"), code) {
                outcome.again.push(*place);
                outcome.refusal = Some(refusal);
            }
        }
        Ok(outcome)
    }

    /// Places of one topic lie side by side.
    fn by_topic<T>(&self, places: &[Place], make: impl Fn(&Topic, &[i32]) -> T) -> Vec<T> {
        let groups = places.chunk_by(|a, b| a.topic == b.topic);
        let groups = groups.filter_map(|group| {
            let topic = self.sweep.topics.get(group.first()?.topic)?;
            let partitions: Vec<i32> = group.iter().map(|place| place.partition).collect();
            Some(make(topic, &partitions))
        });
        groups.collect()
    }
}

#[cfg(test)]
mod tests {
    use wire::Uuid;

    use super::*;

    fn topic(ports: &[u16]) -> Topic {
        let leaders = ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        Topic {
            name: "t".to_owned(),
            id: Uuid::ZERO,
            leaders,
            produce_version: crate::payload::PRODUCE_VERSION,
        }
    }

    #[test]
    fn probes_cover_every_partition_once() {
        let topics = [topic(&[1; 20]), topic(&[2, 1, 2])];
        let batch = Batch::build(1, 1).unwrap();
        let sweep = Sweep { topics: &topics, batch: &batch, least_end: 1 };
        let probes = sweep.probes();
        assert!(probes.iter().filter(|probe| probe.leader.port() == 1).count() <= PROBES);
        let mut places: Vec<(usize, i32)> = probes
            .iter()
            .flat_map(|probe| probe.places.iter().map(|place| (place.topic, place.partition)))
            .collect();
        places.sort_unstable();
        let expected: Vec<(usize, i32)> =
            (0..20).map(|index| (0, index)).chain((0..3).map(|index| (1, index))).collect();
        assert_eq!(places, expected);
    }

    #[test]
    fn refused_partitions_are_asked_again_and_missing_answers_are_an_error() {
        let topics = [topic(&[1; 3])];
        let batch = Batch::build(1, 1).unwrap();
        let sweep = Sweep { topics: &topics, batch: &batch, least_end: 1 };
        let places = [0, 1, 2].map(|partition| Place { topic: 0, partition });
        let probe = Probe { sweep: &sweep, leader: topics[0].leaders[0], places: Vec::new() };
        let not_leader = ErrorCode::NotLeaderOrFollower.code();
        let key = |partition| (Uuid::ZERO.0, partition);
        let mut codes = Codes::from([(key(2), 0), (key(1), not_leader), (key(0), 0)]);
        let partly = probe.outcome(&places, &codes, "fetch").unwrap();
        assert_eq!(partly.again, [places[1]]);
        assert!(partly.refusal.is_some());
        codes.remove(&key(2));
        assert!(probe.outcome(&places, &codes, "fetch").is_err());
    }
}
