//! Groups with nothing but committed offsets: made by the thousand, and asked for what they have.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};

use super::coordinators;
use crate::cluster::Topic;
use crate::connection::Connection;
use crate::error::{Error, Result};

const COMMIT_VERSION: i16 = 10;
const FETCH_VERSION: i16 = 10;
/// In an answer for a partition without one.
pub const NOTHING: i64 = -1;
/// Groups that one OffsetFetch asks for.
const GROUPS_A_REQUEST: usize = 250;
/// Connections that make groups.
const MAKERS: usize = 8;
/// Short against what is measured, long enough not to take the processor from a starting broker.
const KNOCK_EVERY: Duration = Duration::from_millis(1);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);
const ANSWERED_WITHIN: Duration = Duration::from_secs(240);

/// On whose behalf a commit is made.
#[derive(Debug, Clone, Copy)]
pub struct Committer<'a> {
    pub member: &'a str,
    /// The generation or the member's epoch.
    pub epoch: i32,
}

/// A consumer that is in no group but uses its name.
pub const SIMPLE: Committer<'static> = Committer { member: "", epoch: -1 };

/// Commits one offset to each of a topic's first partitions.
pub fn commit(
    connection: &mut Connection,
    group: &str,
    who: Committer<'_>,
    topic: &Topic,
    (partitions, offset): (i32, i64),
) -> Result<()> {
    let partitions = (0..partitions).map(|partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: offset,
        committed_metadata: Some("".into()),
        ..OffsetCommitRequestPartition::default()
    });
    let topic = OffsetCommitRequestTopic {
        topic_id: topic.id,
        partitions: partitions.collect(),
        ..OffsetCommitRequestTopic::default()
    };
    let request = m::OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: who.epoch,
        member_id: who.member.into(),
        topics: vec![topic].into(),
        ..m::OffsetCommitRequest::default()
    };
    let reply = connection.call(&request, COMMIT_VERSION)?;
    let answer: m::OffsetCommitResponse<'_> = reply.decode()?;
    let mut answered = 0;
    for topic in &answer.topics {
        for partition in &topic.partitions {
            Error::check(|| format!("commit of {group}"), partition.error_code)?;
            answered += 1;
        }
    }
    match answered {
        0 => Err(Error::Unreadable("an empty answer to a commit".to_owned())),
        _ => Ok(()),
    }
}

/// What groups have for each of a topic's partitions; the error of a group for itself.
pub fn committed(
    connection: &mut Connection,
    groups: &[String],
    topic: &Topic,
) -> Result<Vec<(String, Result<Vec<i64>>)>> {
    let indexes: Vec<i32> = (0..).take(topic.leaders.len()).collect();
    let asked = groups.iter().map(|group| {
        let topic = OffsetFetchRequestTopics {
            topic_id: topic.id,
            partition_indexes: indexes.clone().into(),
            ..OffsetFetchRequestTopics::default()
        };
        OffsetFetchRequestGroup {
            group_id: group.as_str().into(),
            member_epoch: -1,
            topics: Some(vec![topic].into()),
            ..OffsetFetchRequestGroup::default()
        }
    });
    let request =
        m::OffsetFetchRequest { groups: asked.collect(), ..m::OffsetFetchRequest::default() };
    let reply = connection.call(&request, FETCH_VERSION)?;
    let answer: m::OffsetFetchResponse<'_> = reply.decode()?;
    let groups = answer.groups.iter().map(|group| {
        let name = group.group_id.to_string();
        let what = || format!("offsets of {name}");
        let offsets = Error::check(what, group.error_code).and_then(|()| {
            let partitions = group.topics.iter().flat_map(|topic| topic.partitions.to_vec());
            let offset =
                |partition: m::offset_fetch_response::OffsetFetchResponsePartitions<'_>| {
                    Error::check(what, partition.error_code).map(|()| partition.committed_offset)
                };
            partitions.map(offset).collect()
        });
        (name, offsets)
    });
    Ok(groups.collect())
}

/// Groups that are alike: `<name>-0` and on, with an offset for every partition of the topic.
#[derive(Debug)]
pub struct Many<'a> {
    pub names: Vec<String>,
    pub topic: &'a Topic,
}

impl<'a> Many<'a> {
    pub fn new(name: &str, count: usize, topic: &'a Topic) -> Self {
        Many { names: (0..count).map(|number| format!("{name}-{number}")).collect(), topic }
    }

    /// That each has committed: its own number, so that a mix-up shows.
    fn offset(number: usize) -> i64 {
        i64::try_from(number).unwrap_or(i64::MAX)
    }

    pub fn make(&self, at: SocketAddr) -> Result<()> {
        let begun = Instant::now();
        let coordinators = coordinators(at, &self.names)?;
        let partitions = i32::try_from(self.topic.leaders.len()).unwrap_or(i32::MAX);
        let work: Vec<_> = self.names.iter().zip(&coordinators).enumerate().collect();
        let share = work.len().div_ceil(MAKERS).max(1);
        let make = |share: &[(usize, (&String, &SocketAddr))]| {
            let mut connections = HashMap::new();
            for &(number, (group, &coordinator)) in share {
                let connection = match connections.entry(coordinator) {
                    std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
                    std::collections::hash_map::Entry::Vacant(none) => {
                        none.insert(Connection::open(coordinator)?)
                    }
                };
                let what = (partitions, Self::offset(number));
                // The internal topic may have been made just now.
                let mut make = || commit(connection, group, SIMPLE, self.topic, what);
                while let Err(error) = make() {
                    if !is_loading(&error) {
                        return Err(error);
                    }
                    give_up(begun, error)?;
                    thread::sleep(ASK_AGAIN_AFTER);
                }
            }
            Ok(())
        };
        in_threads(work.chunks(share).map(|share| move || make(share)))?;
        Ok(())
    }

    /// Knocks until a starting broker names the coordinators, and asks each of them until every one
    /// of its groups has answered with what it had committed.
    pub fn await_answers(&self, at: SocketAddr, since: Instant) -> Result<Reached> {
        let mut reached = None;
        let coordinators = loop {
            match coordinators(at, &self.names) {
                Ok(found) => break found,
                Err(error) => {
                    // Any answer at all.
                    if !matches!(error, Error::Io { .. } | Error::Closed) {
                        reached.get_or_insert(since.elapsed());
                    }
                    give_up(since, error)?;
                }
            }
            thread::sleep(KNOCK_EVERY);
        };
        let answered = reached.unwrap_or_else(|| since.elapsed());
        let mut asked: HashMap<SocketAddr, Vec<usize>> = HashMap::new();
        for (number, coordinator) in coordinators.into_iter().enumerate() {
            asked.entry(coordinator).or_default().push(number);
        }
        let asked: Vec<_> = asked.into_iter().collect();
        let threads = asked.iter().map(|(at, numbers)| move || self.ask(*at, numbers, since));
        let times = in_threads(threads)?;
        Ok(Reached {
            answered,
            first: times.iter().map(|time| time[0]).min().unwrap_or_default(),
            all: times.iter().map(|time| time[1]).max().unwrap_or_default(),
        })
    }

    /// When a first of these groups had answered, and when all had.
    fn ask(&self, at: SocketAddr, numbers: &[usize], since: Instant) -> Result<[Duration; 2]> {
        let mut open: Vec<usize> = numbers.to_vec();
        let mut first = None;
        let mut connection = Connection::open(at)?;
        while !open.is_empty() {
            let mut again = Vec::new();
            let mut last = None;
            for numbers in open.chunks(GROUPS_A_REQUEST) {
                let names: Vec<_> =
                    numbers.iter().filter_map(|&number| self.names.get(number).cloned()).collect();
                let answers = committed(&mut connection, &names, self.topic)?;
                let mut answers: HashMap<_, _> = answers.into_iter().collect();
                for (&number, name) in numbers.iter().zip(&names) {
                    match answers.remove(name) {
                        Some(Ok(offsets)) => {
                            check(name, &offsets, Self::offset(number), self.topic)?
                        }
                        Some(Err(error)) if is_loading(&error) => {
                            again.push(number);
                            last = Some(error);
                        }
                        Some(Err(error)) => return Err(error),
                        None => return Err(Error::Unreadable(format!("no answer for {name}"))),
                    }
                }
                if again.len() < numbers.len() {
                    first.get_or_insert(since.elapsed());
                }
            }
            open = again;
            if let Some(error) = last {
                give_up(since, error)?;
                thread::sleep(ASK_AGAIN_AFTER);
            }
        }
        Ok([first.unwrap_or_default(), since.elapsed()])
    }
}

/// Since some moment.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    /// The broker has answered something.
    pub answered: Duration,
    /// A group has told its offsets.
    pub first: Duration,
    pub all: Duration,
}

fn check(group: &str, offsets: &[i64], due: i64, topic: &Topic) -> Result<()> {
    let wrong = offsets.iter().copied().find(|&offset| offset != due);
    if wrong.is_none() && offsets.len() == topic.leaders.len() {
        return Ok(());
    }
    Err(Error::LostCommit { group: group.to_owned(), committed: wrong, due })
}

fn is_loading(error: &Error) -> bool {
    use ErrorCode::{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator};
    let Error::Refused { code, .. } = error else { return false };
    matches!(code, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator)
}

fn give_up(since: Instant, last: Error) -> Result<()> {
    if since.elapsed() < ANSWERED_WITHIN {
        return Ok(());
    }
    let what = "the broker does not answer for every group".to_owned();
    Err(Error::TooLate { what, within: ANSWERED_WITHIN, last: last.to_string() })
}

/// Runs each in a thread and waits for all.
pub fn in_threads<T: Send>(
    work: impl Iterator<Item = impl FnOnce() -> Result<T> + Send>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = work.map(|work| scope.spawn(work)).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(end).collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use wire::Uuid;

    use super::*;

    #[test]
    fn a_lost_or_foreign_commit_is_found() {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let topic = Topic {
            name: "t".to_owned(),
            id: Uuid::ZERO,
            leaders: vec![at; 2],
            produce_version: crate::payload::PRODUCE_VERSION,
        };
        check("g", &[7, 7], 7, &topic).unwrap();
        for offsets in [&[7, NOTHING][..], &[7], &[6, 7]] {
            let lost = check("g", offsets, 7, &topic);
            assert!(matches!(lost, Err(Error::LostCommit { .. })), "{offsets:?}");
        }
    }

    #[test]
    fn only_a_coordinator_that_is_not_there_yet_is_asked_again() {
        let refused = |code| Error::Refused { what: String::new(), code };
        assert!(is_loading(&refused(ErrorCode::CoordinatorLoadInProgress)));
        assert!(!is_loading(&refused(ErrorCode::GroupIdNotFound)));
    }
}
