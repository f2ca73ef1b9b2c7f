//! Thousands of partitions made and deleted, by the requests that a client would send.
//!
//! Apache Kafka takes at most 10,000 metadata records a request, so neither broker is asked for
//! more at once: a topic with more partitions is created with a part of them and then grown, topics
//! by the thousand come in several requests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::messages::create_partitions_request::CreatePartitionsTopic;
use wire::messages::create_topics_request::CreatableTopic;
use wire::messages::delete_topics_request::DeleteTopicState;
use wire::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
};

use crate::cluster::{ADMIN_TIMEOUT_MS, CREATE_VERSION, DELETE_VERSION, Topic, look_up_all};
use crate::connection::Connection;
use crate::error::{Error, Result};

/// Partitions that one request creates.
const PARTITIONS_A_REQUEST: i32 = 5_000;
const CREATE_PARTITIONS_VERSION: i16 = 3;
const LEADERS_WITHIN: Duration = Duration::from_secs(120);
/// Kafka deletes 10,000 partitions for minutes.
const GONE_WITHIN: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Topics that are alike: `count` of them, `<name>-0` and on.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub count: i32,
    /// Of each topic.
    pub partitions: i32,
}

impl Layout {
    pub fn title(self) -> String {
        match self.count {
            1 => format!("1 topic of {} partitions", self.partitions),
            count => format!("{count} topics of {} partitions", self.partitions),
        }
    }

    pub fn names(self, name: &str) -> Vec<String> {
        (0..self.count).map(|number| format!("{name}-{number}")).collect()
    }
}

/// Creates the topics; returns when the last request is answered.
pub fn create(at: SocketAddr, name: &str, layout: Layout) -> Result<()> {
    let first = layout.partitions.min(PARTITIONS_A_REQUEST);
    let names = layout.names(name);
    let topics_a_request = usize::try_from(PARTITIONS_A_REQUEST / first.max(1)).unwrap_or(1);
    let mut connection = Connection::open(at)?;
    for names in names.chunks(topics_a_request.max(1)) {
        create_topics(&mut connection, names, first)?;
    }
    let mut partitions = first;
    while partitions < layout.partitions {
        partitions = layout.partitions.min(partitions + PARTITIONS_A_REQUEST);
        for name in &names {
            grow(&mut connection, name, partitions)?;
        }
    }
    Ok(())
}

fn create_topics(connection: &mut Connection, names: &[String], partitions: i32) -> Result<()> {
    let topics = names.iter().map(|name| CreatableTopic {
        name: name.as_str().into(),
        num_partitions: partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    });
    let request = CreateTopicsRequest {
        topics: topics.collect::<Vec<_>>().into(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        validate_only: false,
    };
    let reply = connection.call(&request, CREATE_VERSION)?;
    let answer: CreateTopicsResponse<'_> = reply.decode()?;
    for topic in &answer.topics {
        Error::check(|| format!("create topic {}", &*topic.name), topic.error_code)?;
    }
    Ok(())
}

fn grow(connection: &mut Connection, name: &str, count: i32) -> Result<()> {
    let topic = CreatePartitionsTopic { name: name.into(), count, assignments: None };
    let request = CreatePartitionsRequest {
        topics: vec![topic].into(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        validate_only: false,
    };
    let reply = connection.call(&request, CREATE_PARTITIONS_VERSION)?;
    let answer: CreatePartitionsResponse<'_> = reply.decode()?;
    for result in &answer.results {
        Error::check(|| format!("grow topic {name} to {count}"), result.error_code)?;
    }
    Ok(())
}

/// Waits until every partition of every topic has a leader.
pub fn await_leaders(at: SocketAddr, name: &str, layout: Layout) -> Result<Vec<Topic>> {
    let names = layout.names(name);
    let wanted = usize::try_from(layout.partitions).unwrap_or(0);
    let deadline = Instant::now() + LEADERS_WITHIN;
    loop {
        let last = match look_up_all(at, &names) {
            Ok(topics) if topics.iter().all(|topic| topic.leaders.len() == wanted) => {
                return Ok(topics);
            }
            Ok(_) => "some topic has fewer partitions than wanted".to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            let what = format!("the topics {name} have no leaders");
            return Err(Error::TooLate { what, within: LEADERS_WITHIN, last });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Deletes topics in one request; returns when it is answered.
pub fn delete(at: SocketAddr, topics: &[Topic]) -> Result<()> {
    let state = |topic: &Topic| DeleteTopicState { name: None, topic_id: topic.id };
    let request = DeleteTopicsRequest {
        topics: topics.iter().map(state).collect::<Vec<_>>().into(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        ..DeleteTopicsRequest::default()
    };
    let reply = Connection::open(at)?.call(&request, DELETE_VERSION)?;
    let answer: DeleteTopicsResponse<'_> = reply.decode()?;
    for result in &answer.responses {
        Error::check(|| "delete a topic".to_owned(), result.error_code)?;
    }
    Ok(())
}

/// What is left of deleted topics in a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No folder has a partition's name any more; renamed ones may wait for their end.
    Renamed,
    Nothing,
}

pub fn await_gone(data_dir: &Path, name: &str, left: Left) -> Result<()> {
    let prefix = format!("{name}-");
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let entries = std::fs::read_dir(data_dir);
        let entries = entries.map_err(Error::io(format!("read {}", data_dir.display())))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let count = names.filter(|entry| is_left(entry, &prefix, left)).count();
        if count == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            let what = format!("the folders of topics {name} are not gone");
            let last = format!("{count} folders");
            return Err(Error::TooLate { what, within: GONE_WITHIN, last });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn is_left(entry: &str, prefix: &str, left: Left) -> bool {
    let partition = || entry.rsplit_once('-').is_some_and(|(_, last)| last.parse::<u32>().is_ok());
    entry.starts_with(prefix) && (left == Left::Nothing || partition())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_folders_do_not_count_as_partitions() {
        let left = |entry, left| is_left(entry, "many-", left);
        assert!(left("many-0-17", Left::Renamed) && left("many-0-17", Left::Nothing));
        assert!(!left("many-0-17.0af3-delete", Left::Renamed));
        assert!(left("many-0-17.0af3-delete", Left::Nothing));
        assert!(!left("other-0-17", Left::Nothing));
    }

    #[test]
    fn topics_are_named_by_number() {
        let layout = Layout { count: 2, partitions: 3 };
        assert_eq!(layout.names("t"), ["t-0", "t-1"]);
        assert_eq!(layout.title(), "2 topics of 3 partitions");
    }
}
