//! Consumer groups: a life with members that come and go, by each protocol that librdkafka has.
//!
//! Each member lives on a thread of its own, as it would in a program; the scenario looks at what
//! it notes and never calls it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Message as _, Offset};

use crate::client::{Client, Record, Result, eventually};

const PARTITIONS: usize = 4;
const ROLLING_PARTITIONS: usize = 8;
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// A member that says nothing for this long is given up: the least that brokers allow.
const SESSION_MS: (&str, &str) = ("session.timeout.ms", "6000");
const HEARTBEAT_MS: (&str, &str) = ("heartbeat.interval.ms", "500");
pub const CLASSIC: &[(&str, &str)] =
    &[("partition.assignment.strategy", "range"), HEARTBEAT_MS, SESSION_MS];
const COOPERATIVE: &[(&str, &str)] =
    &[("partition.assignment.strategy", "cooperative-sticky"), HEARTBEAT_MS, SESSION_MS];
const NEXT_GEN: &[(&str, &str)] = &[("group.protocol", "consumer")];
const POLL: Duration = Duration::from_millis(100);

pub fn classic(client: &Client) -> Result<()> {
    life(client, CLASSIC)
}

pub fn cooperative(client: &Client) -> Result<()> {
    life(client, COOPERATIVE)
}

pub fn next_gen(client: &Client) -> Result<()> {
    life(client, NEXT_GEN)
}

pub fn rolling_classic(client: &Client) -> Result<()> {
    rolling(client, "classic")
}

pub fn rolling_cooperative(client: &Client) -> Result<()> {
    rolling(client, "cooperative")
}

pub fn rolling_next_gen(client: &Client) -> Result<()> {
    rolling(client, "consumer")
}

fn protocol_named(name: &str) -> Result<&'static [(&'static str, &'static str)]> {
    match name {
        "classic" => Ok(CLASSIC),
        "cooperative" => Ok(COOPERATIVE),
        "consumer" => Ok(NEXT_GEN),
        other => Err(format!("no protocol is called {other}").into()),
    }
}

/// Members come, go and die, several at a time, while records are written all along.
fn rolling(client: &Client, name: &str) -> Result<()> {
    let protocol = protocol_named(name)?;
    let mut group = Group::with_partitions(client, ROLLING_PARTITIONS)?;
    lock(&group.notes).watched = true;
    let writer = Writer::start(client, &group)?;
    let (a, b, c) = (group.join(protocol)?, group.spawn(name)?, group.join(protocol)?);
    group.settle(&[2, 3, 3])?;
    group.join(protocol)?;
    let e = group.spawn(name)?;
    group.settle(&[1, 1, 2, 2, 2])?;
    group.leave(b)?;
    group.leave(a)?;
    group.settle(&[2, 3, 3])?;
    // In the middle of the rebalance that the newcomer brings about.
    group.join(protocol)?;
    group.leave(e)?;
    group.settle(&[2, 3, 3])?;
    group.leave(c)?;
    group.join(protocol)?;
    group.join(protocol)?;
    group.settle(&[2, 2, 2, 2])?;
    group.written = writer.end()?;
    group.read_all()
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
    *lock(&group.notes) = Notes::of(PARTITIONS);
    group.write(40)?;
    group.join(protocol)?;
    eventually(|| {
        let notes = group.checked()?;
        let counts: Vec<usize> = notes.seen.iter().map(BTreeSet::len).collect();
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
    /// By partition.
    seen: Vec<BTreeSet<i64>>,
    wrong: Option<String>,
    /// What is committed must not go back; what it was at the last look.
    watched: bool,
    committed: Vec<i64>,
}

impl Notes {
    fn of(partitions: usize) -> Self {
        Notes { seen: vec![BTreeSet::new(); partitions], ..Notes::default() }
    }

    fn note(&mut self, partition: i32, offset: i64, value: Option<&[u8]>) {
        let expected = value_of(offset * self.seen.len() as i64 + i64::from(partition));
        if value != Some(expected.as_bytes()) {
            self.wrong = Some(format!("{partition}:{offset} does not hold {expected}"));
        }
        if let Some(seen) = self.seen.get_mut(partition as usize) {
            seen.insert(offset);
        }
    }
}

struct Member {
    number: usize,
    stop: Arc<AtomicBool>,
    partitions: Arc<Mutex<Vec<i32>>>,
    thread: Option<JoinHandle<()>>,
    /// A member that is a process of its own, see `serve`; it leaves only by being killed.
    process: Option<Child>,
}

/// Whatever has happened, nobody stays.
impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(process) = &mut self.process {
            // Errors mean that it is already gone.
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the notes: what it had to read was not read.
            let _ = thread.join();
        }
    }
}

struct Group<'a> {
    client: &'a Client,
    partitions: usize,
    notes: Arc<Mutex<Notes>>,
    members: Vec<Member>,
    joined: usize,
    written: usize,
}

impl<'a> Group<'a> {
    fn new(client: &'a Client) -> Result<Self> {
        Self::with_partitions(client, PARTITIONS)
    }

    fn with_partitions(client: &'a Client, partitions: usize) -> Result<Self> {
        client.create(partitions as i32, &[])?;
        let notes = Arc::new(Mutex::new(Notes::of(partitions)));
        Ok(Group { client, partitions, notes, members: Vec::new(), joined: 0, written: 0 })
    }

    /// Returns the member's number.
    fn join(&mut self, protocol: &[(&str, &str)]) -> Result<usize> {
        let consumer = self.client.member(protocol)?;
        let (stop, partitions) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<i32>>>::default());
        let notes = self.notes.clone();
        let (stopped, noted) = (stop.clone(), partitions.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let note = |partition, offset, value: Option<&[u8]>| {
                    lock(&notes).note(partition, offset, value);
                    Ok(())
                };
                let read = read_once(&consumer, note);
                if let Err(error) = read.and_then(|()| commit(&consumer)) {
                    lock(&notes).wrong = Some(error.to_string());
                    return;
                }
                let assigned = consumer.assignment().map(|list| {
                    list.elements().iter().map(|element| element.partition()).collect()
                });
                *lock(&noted) = assigned.unwrap_or_default();
            }
        });
        Ok(self.add(Member { number: 0, stop, partitions, thread: Some(thread), process: None }))
    }

    fn add(&mut self, mut member: Member) -> usize {
        self.joined += 1;
        member.number = self.joined;
        self.members.push(member);
        self.joined
    }

    /// Has a member join as a process of its own. Returns its number.
    fn spawn(&mut self, protocol: &str) -> Result<usize> {
        let (stop, partitions) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<i32>>>::default());
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--bootstrap", &self.client.bootstrap])
            .args(["--member", &format!("{},{protocol}", self.client.topic)])
            .stdout(Stdio::piped())
            .spawn()?;
        let out = process.stdout.take().ok_or("a member's process has no stdout")?;
        let (notes, stopped, noted) = (self.notes.clone(), stop.clone(), partitions.clone());
        let thread = std::thread::spawn(move || {
            if let Err(error) = listen(BufReader::new(out), &notes, &noted) {
                lock(&notes).wrong = Some(error.to_string());
            }
            lock(&noted).clear();
            if !stopped.load(Ordering::Relaxed) {
                lock(&notes).wrong.get_or_insert("a member's process has ended".to_owned());
            }
        });
        let member =
            Member { number: 0, stop, partitions, thread: Some(thread), process: Some(process) };
        Ok(self.add(member))
    }

    fn leave(&mut self, number: usize) -> Result<()> {
        self.members.retain(|member| member.number != number);
        self.checked().map(drop)
    }

    fn write(&mut self, count: usize) -> Result<()> {
        let mut records = records(self.written, count, self.partitions);
        self.written += count;
        self.client.producer(&[])?.send(&mut records)
    }

    fn watch(&self) -> Result<()> {
        let now = self.client.committed(self.partitions as i32)?;
        let now: Vec<i64> = now.iter().map(|offset| offset.to_raw().unwrap_or(-1)).collect();
        let mut notes = lock(&self.notes);
        for (partition, (before, now)) in notes.committed.iter().zip(&now).enumerate() {
            if now < before {
                let wrong = format!("committed of {partition} went from {before} to {now}");
                notes.wrong = Some(wrong);
                break;
            }
        }
        notes.committed = now;
        Ok(())
    }

    fn checked(&self) -> Result<Notes> {
        if lock(&self.notes).watched {
            self.watch()?;
        }
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
            if counts != shares || all.len() != self.partitions {
                return Err(format!("members have {counts:?}, expected {shares:?}").into());
            }
            Ok(())
        })
    }

    fn read_all(&self) -> Result<()> {
        let each = (self.written / self.partitions) as i64;
        eventually(|| {
            let notes = self.checked()?;
            let counts: Vec<i64> = notes.seen.iter().map(|offsets| offsets.len() as i64).collect();
            if counts.iter().any(|count| *count != each) {
                return Err(format!("{counts:?} of {each} records came").into());
            }
            let committed = self.client.committed(self.partitions as i32)?;
            if committed.iter().any(|offset| *offset != Offset::Offset(each)) {
                return Err(format!("committed is {committed:?}").into());
            }
            Ok(())
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn value_of(index: i64) -> String {
    format!("value-{index:06}")
}

fn records(first: usize, count: usize, partitions: usize) -> Vec<Record> {
    let record = |index: usize| Record {
        partition: (index % partitions) as i32,
        offset: -1,
        key: Some(format!("key-{index:06}").into_bytes()),
        value: Some(value_of(index as i64).into_bytes()),
        ..Record::default()
    };
    (first..first + count).map(record).collect()
}

/// Writes all the time, on a thread of its own.
struct Writer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<std::result::Result<usize, String>>,
}

impl Writer {
    fn start(client: &Client, group: &Group<'_>) -> Result<Self> {
        let over = Arc::<AtomicBool>::default();
        let (ends, producer, partitions) = (over.clone(), client.producer(&[])?, group.partitions);
        let thread = std::thread::spawn(move || {
            let mut written = 0;
            while !ends.load(Ordering::Relaxed) {
                let sent = producer.send(&mut records(written, 2 * partitions, partitions));
                sent.map_err(|error| error.to_string())?;
                written += 2 * partitions;
                std::thread::sleep(WRITE_EVERY);
            }
            Ok(written)
        });
        Ok(Writer { over, thread })
    }

    /// How many records there are.
    fn end(self) -> Result<usize> {
        self.over.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the producer panicked")??)
    }
}

/// A member as a process of its own, to be killed: it says on stdout what it reads, before it
/// commits that, and what it has.
pub fn serve(bootstrap: &str, topic: &str, protocol: &str) -> Result<()> {
    let client = Client::of_topic(bootstrap, topic)?;
    let consumer = client.member(protocol_named(protocol)?)?;
    let mut out = std::io::stdout().lock();
    loop {
        read_once(&consumer, |partition, offset, value| {
            let value = value.map(String::from_utf8_lossy).unwrap_or_default();
            writeln!(out, "read {partition} {offset} {value}").map_err(Into::into)
        })?;
        out.flush()?;
        commit(&consumer)?;
        let has: Vec<String> = consumer
            .assignment()?
            .elements()
            .iter()
            .map(|element| element.partition().to_string())
            .collect();
        writeln!(out, "has {}", has.join(" "))?;
        out.flush()?;
    }
}

/// What such a process says.
fn listen(mut out: impl BufRead, notes: &Mutex<Notes>, has: &Mutex<Vec<i32>>) -> Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        // What it was about to say when it was killed is no line.
        if out.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["has", ref partitions @ ..] => {
                let parsed: std::result::Result<_, _> =
                    partitions.iter().map(|partition| partition.parse()).collect();
                *lock(has) = parsed?;
            }
            ["read", partition, offset, value] => {
                lock(notes).note(partition.parse()?, offset.parse()?, Some(value.as_bytes()));
            }
            _ => return Err(format!("a member says {line:?}").into()),
        }
    }
}

/// Polls until nothing more is there at once and hands over what came.
fn read_once(
    consumer: &BaseConsumer,
    mut note: impl FnMut(i32, i64, Option<&[u8]>) -> Result<()>,
) -> Result<()> {
    let mut wait = POLL;
    while let Some(message) = consumer.poll(wait) {
        let message = message?;
        note(message.partition(), message.offset(), message.payload())?;
        wait = Duration::ZERO;
    }
    Ok(())
}

/// What was read of the partitions that are still ours and is not committed yet.
fn commit(consumer: &BaseConsumer) -> Result<()> {
    match consumer.commit_consumer_state(CommitMode::Sync) {
        // Refused during a rebalance: what stays is committed the next time, the rest is read again
        // by another member.
        Err(KafkaError::ConsumerCommit(
            Code::NoOffset
            | Code::IllegalGeneration
            | Code::RebalanceInProgress
            | Code::StaleMemberEpoch,
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
        *lock(&group.notes) = Notes::of(PARTITIONS);
    }
    Ok(())
}
