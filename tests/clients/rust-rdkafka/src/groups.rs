//! Consumer groups: a life with members that come and go, by each protocol that librdkafka has.
//!
//! Each member lives on a thread of its own, as it would in a program; the scenario looks at what it
//! notes and never calls it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use crate::client::{Client, Record, Result, eventually};

const PARTITIONS: usize = 4;
const CLASSIC: &[(&str, &str)] =
    &[("partition.assignment.strategy", "range"), ("heartbeat.interval.ms", "500")];
const COOPERATIVE: &[(&str, &str)] =
    &[("partition.assignment.strategy", "cooperative-sticky"), ("heartbeat.interval.ms", "500")];
const NEXT_GEN: &[(&str, &str)] = &[("group.protocol", "consumer")];
const POLL: Duration = Duration::from_millis(100);
const CALL_LIMIT: Duration = Duration::from_secs(20);

pub fn classic(client: &Client) -> Result<()> {
    life(client, CLASSIC)
}

pub fn cooperative(client: &Client) -> Result<()> {
    life(client, COOPERATIVE)
}

pub fn next_gen(client: &Client) -> Result<()> {
    life(client, NEXT_GEN)
}

/// Members come and go one after the other while records are written.
fn life(client: &Client, protocol: &[(&str, &str)]) -> Result<()> {
    let mut group = Group::new(client)?;
    group.write(200)?;
    let first = group.join(protocol)?;
    group.settle(&[4])?;
    group.read_all()?;

    let second = group.join(protocol)?;
    group.settle(&[2, 2])?;
    group.write(200)?;
    group.read_all()?;

    let third = group.join(protocol)?;
    group.settle(&[1, 1, 2])?;
    group.write(200)?;
    group.leave(second)?;
    group.settle(&[2, 2])?;
    group.read_all()?;

    group.leave(first)?;
    group.leave(third)?;
    group.notes.lock().unwrap_or_else(PoisonError::into_inner).seen = Default::default();
    group.write(40)?;
    group.join(protocol)?;
    eventually(|| {
        let notes = group.checked()?;
        let counts = notes.seen.each_ref().map(BTreeSet::len);
        if counts.iter().any(|count| *count < 10) {
            return Err(format!("{counts:?} records came").into());
        }
        Ok(())
    })?;
    for offsets in &group.checked()?.seen {
        if !offsets.iter().copied().eq(150..160) {
            return Err(format!("a new member read {offsets:?}").into());
        }
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Notes {
    seen: [BTreeSet<i64>; PARTITIONS],
    wrong: Option<String>,
}

struct Member {
    number: usize,
    stop: Arc<AtomicBool>,
    partitions: Arc<Mutex<Vec<i32>>>,
    thread: Option<JoinHandle<()>>,
}

/// Whatever has happened, nobody stays.
impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the notes: what it had to read was not read.
            let _ = thread.join();
        }
    }
}

struct Group<'a> {
    client: &'a Client,
    notes: Arc<Mutex<Notes>>,
    members: Vec<Member>,
    joined: usize,
    written: usize,
}

impl<'a> Group<'a> {
    fn new(client: &'a Client) -> Result<Self> {
        client.create(PARTITIONS as i32, &[])?;
        Ok(Group { client, notes: Arc::default(), members: Vec::new(), joined: 0, written: 0 })
    }

    /// Returns the member's number.
    fn join(&mut self, protocol: &[(&str, &str)]) -> Result<usize> {
        let consumer = self.client.member(protocol)?;
        let (stop, partitions) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<i32>>>::default());
        let (notes, topic) = (self.notes.clone(), self.client.topic.clone());
        let (stopped, noted) = (stop.clone(), partitions.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = read_once(&consumer, &topic, &notes) {
                    lock(&notes).wrong = Some(error.to_string());
                    return;
                }
                let assigned = consumer.assignment().map(|list| {
                    list.elements().iter().map(|element| element.partition()).collect()
                });
                *lock(&noted) = assigned.unwrap_or_default();
            }
        });
        self.joined += 1;
        let number = self.joined;
        self.members.push(Member { number, stop, partitions, thread: Some(thread) });
        Ok(number)
    }

    fn leave(&mut self, number: usize) -> Result<()> {
        self.members.retain(|member| member.number != number);
        self.checked().map(drop)
    }

    fn write(&mut self, count: usize) -> Result<()> {
        let mut records: Vec<Record> = (self.written..self.written + count)
            .map(|index| Record {
                partition: (index % PARTITIONS) as i32,
                offset: -1,
                key: Some(format!("key-{index:06}").into_bytes()),
                value: Some(value(index as i64).into_bytes()),
                ..Record::default()
            })
            .collect();
        self.written += count;
        self.client.producer(&[])?.send(&mut records)
    }

    fn checked(&self) -> Result<Notes> {
        let notes = lock(&self.notes).clone();
        notes.wrong.clone().map_or(Ok(notes), |wrong| Err(wrong.into()))
    }

    fn settle(&self, shares: &[usize]) -> Result<()> {
        eventually(|| {
            self.checked()?;
            let owned: Vec<Vec<i32>> =
                self.members.iter().map(|member| lock(&member.partitions).clone()).collect();
            let mut counts: Vec<usize> = owned.iter().map(Vec::len).collect();
            counts.sort_unstable();
            let all: BTreeSet<i32> = owned.into_iter().flatten().collect();
            if counts != shares || all.len() != PARTITIONS {
                return Err(format!("members have {counts:?}, expected {shares:?}").into());
            }
            Ok(())
        })
    }

    fn read_all(&self) -> Result<()> {
        let each = (self.written / PARTITIONS) as i64;
        eventually(|| {
            let counts = self.checked()?.seen.each_ref().map(|offsets| offsets.len() as i64);
            if counts != [each; PARTITIONS] {
                return Err(format!("{counts:?} of {each} records came").into());
            }
            let committed = self.client.committed(PARTITIONS as i32)?;
            if committed != [Offset::Offset(each); PARTITIONS] {
                return Err(format!("committed is {committed:?}").into());
            }
            Ok(())
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn value(index: i64) -> String {
    format!("value-{index:06}")
}

/// Polls until nothing more is there at once, notes what came and commits it.
fn read_once(consumer: &BaseConsumer, topic: &str, notes: &Mutex<Notes>) -> Result<()> {
    let mut next = BTreeMap::new();
    let mut wait = POLL;
    while let Some(message) = consumer.poll(wait) {
        let message = message?;
        let (partition, offset) = (message.partition(), message.offset());
        let expected = value(offset * PARTITIONS as i64 + i64::from(partition));
        let mut notes = lock(notes);
        if message.payload() != Some(expected.as_bytes()) {
            notes.wrong = Some(format!("{partition}:{offset} does not hold {expected}"));
        }
        if let Some(seen) = notes.seen.get_mut(partition as usize) {
            seen.insert(offset);
        }
        next.insert(partition, offset + 1);
        wait = Duration::ZERO;
    }
    if next.is_empty() {
        return Ok(());
    }
    let mut commits = TopicPartitionList::new();
    for (partition, offset) in next {
        commits.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    }
    match consumer.commit(&commits, CommitMode::Sync) {
        // The partitions went to another member, which reads these records again.
        Err(KafkaError::ConsumerCommit(
            Code::IllegalGeneration | Code::RebalanceInProgress | Code::StaleMemberEpoch,
        )) => Ok(()),
        done => Ok(done?),
    }
}

pub fn admin(client: &Client) -> Result<()> {
    let mut group = Group::new(client)?;
    group.write(40)?;
    for protocol in [CLASSIC, NEXT_GEN] {
        let member = group.join(protocol)?;
        group.settle(&[4])?;
        group.read_all()?;
        if !client.group_is_listed()? {
            return Err("the group is not listed".into());
        }
        if client.delete_group()? != Some(Code::NonEmptyGroup) {
            return Err("a group in use was not refused to be deleted".into());
        }
        group.leave(member)?;
        if let Some(code) = client.delete_group()? {
            return Err(format!("delete group: {code:?}").into());
        }
        if client.group_is_listed()? {
            return Err("the deleted group is listed".into());
        }
        group.notes = Arc::default();
    }
    Ok(())
}
