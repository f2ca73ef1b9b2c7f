//! Transactions: what is committed, aborted, fenced and timed out, and a pipeline from topic to
//! topic whose transactions hold the offsets of what it read.

use std::ops::Range;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use crate::client::{Client, Producer, Record, Result, eventually, random_u64};
use crate::groups::CLASSIC;

const PARTITIONS: i32 = 4;
const PIPELINE_PARTITIONS: i32 = 2;
/// Records in one transaction of a pipeline.
const CHUNK: usize = 10;
const POLL: Duration = Duration::from_millis(100);
const CALL_LIMIT: Duration = Duration::from_secs(20);
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// How long a reader looks for what it must not see.
const OPEN_FOR: Duration = Duration::from_secs(1);
const LONG_MS: u32 = 60_000;
const SHORT_MS: u32 = 3_000;
const FENCED: [Code; 3] = [Code::Fenced, Code::ProducerFenced, Code::InvalidProducerEpoch];

macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+).into());
        }
    };
}

/// A producer with a transactional id, initialised.
struct Transactor {
    producer: Producer,
}

impl Transactor {
    fn new(client: &Client, id: &str, timeout_ms: u32) -> Result<Self> {
        let producer = client.producer(&[
            ("transactional.id", id),
            ("transaction.timeout.ms", &timeout_ms.to_string()),
            ("linger.ms", "0"),
            // By default it bootstraps again when all brokers are away, and may then wait forever
            // at sending offsets to a transaction.
            ("metadata.recovery.strategy", "none"),
        ])?;
        let transactor = Self { producer };
        transactor.call(|| transactor.producer.inner.init_transactions(CALL_LIMIT))?;
        Ok(transactor)
    }

    /// What can be tried again is, as the library asks for.
    fn call(&self, call: impl Fn() -> KafkaResult<()>) -> Result<()> {
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            match call() {
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < end => {}
                done => return Ok(done?),
            }
        }
    }

    fn begin(&self) -> Result<()> {
        self.call(|| self.producer.inner.begin_transaction())
    }

    fn send(&self, range: Range<usize>) -> Result<()> {
        self.producer.send(&mut records(range, PARTITIONS))
    }

    fn end(&self, commit: bool) -> Result<()> {
        let inner = &self.producer.inner;
        if commit {
            self.call(|| inner.commit_transaction(CALL_LIMIT))
        } else {
            self.call(|| inner.abort_transaction(CALL_LIMIT))
        }
    }

    fn transact(&self, commit: bool, range: Range<usize>) -> Result<()> {
        self.begin()?;
        self.send(range)?;
        self.end(commit)
    }

    /// Whether this failure says that the id is another producer's by now.
    fn is_fenced(&self, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else { return Err("no error, expected to be fenced".into()) };
        let code = error.downcast_ref::<KafkaError>().and_then(KafkaError::rdkafka_error_code);
        let fatal = self.producer.inner.client().fatal_error().map(|(code, _)| code);
        match code.into_iter().chain(fatal).any(|code| FENCED.contains(&code)) {
            true => Ok(()),
            false => Err(format!("expected to be fenced, got {error} ({fatal:?})").into()),
        }
    }
}

fn values(ranges: &[Range<usize>]) -> Vec<String> {
    ranges.iter().cloned().flatten().map(|index| format!("value-{index:06}")).collect()
}

/// Evenly over the partitions.
fn records(range: Range<usize>, partitions: i32) -> Vec<Record> {
    let record = |index: usize| Record {
        partition: index as i32 % partitions,
        key: Some(format!("key-{index:06}").into_bytes()),
        value: Some(format!("value-{index:06}").into_bytes()),
        ..Record::default()
    };
    range.map(record).collect()
}

fn starts(partitions: i32) -> Vec<(i32, Offset)> {
    (0..partitions).map(|partition| (partition, Offset::Beginning)).collect()
}

/// The values in front of records that are written now, without a transaction: whoever comes to
/// them has seen all that is decided.
fn seen(client: &Client, partitions: i32, isolation: &str) -> Result<Vec<String>> {
    let mark = format!("mark-{:016x}", random_u64());
    let mut marks: Vec<Record> = (0..partitions)
        .map(|partition| Record {
            partition,
            value: Some(mark.clone().into_bytes()),
            ..Record::default()
        })
        .collect();
    client.producer(&[])?.send(&mut marks)?;
    let consumer = client.consumer_at(&starts(partitions), isolation)?;
    let (mut found, mut left) = (Vec::new(), partitions);
    let end = Instant::now() + WAIT_LIMIT;
    while left > 0 {
        ensure!(Instant::now() < end, "{left} marks did not come ({isolation})");
        let Some(record) = consumer.next(POLL)? else { continue };
        let value = String::from_utf8(record.value.unwrap_or_default())?;
        if value == mark {
            left -= 1;
        } else if !value.starts_with("mark-") {
            found.push(value);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn same(what: &str, mut expected: Vec<String>, seen: &[String]) -> Result<()> {
    expected.sort_unstable();
    let missing: Vec<_> = expected.iter().filter(|value| !seen.contains(value)).collect();
    let more: Vec<_> = seen.iter().filter(|value| !expected.contains(value)).collect();
    let (count, wanted) = (seen.len(), expected.len());
    ensure!(
        expected == seen,
        "{what}: {count} of {wanted} values, missing {missing:.20?}, too much {more:.20?}"
    );
    Ok(())
}

fn check(client: &Client, committed: Vec<String>, all: Vec<String>) -> Result<()> {
    same("committed", committed, &seen(client, PARTITIONS, "read_committed")?)?;
    same("all", all, &seen(client, PARTITIONS, "read_uncommitted")?)
}

/// All can be read, and nobody who wants what is committed gets it.
fn hidden(client: &Client, hidden: &[String]) -> Result<()> {
    let all = seen(client, PARTITIONS, "read_uncommitted")?;
    ensure!(hidden.iter().all(|value| all.contains(value)), "not all records can be read");
    let consumer = client.consumer_at(&starts(PARTITIONS), "read_committed")?;
    let end = Instant::now() + OPEN_FOR;
    while Instant::now() < end {
        let Some(record) = consumer.next(POLL)? else { continue };
        let value = String::from_utf8(record.value.unwrap_or_default())?;
        ensure!(!hidden.contains(&value), "{value} of an open transaction was seen");
    }
    Ok(())
}

pub fn commit_abort(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let transactor = Transactor::new(client, &client.topic, LONG_MS)?;
    transactor.begin()?;
    transactor.send(0..100)?;
    hidden(client, &values(&[0..100]))?;
    transactor.end(true)?;
    check(client, values(&[0..100]), values(&[0..100]))?;
    transactor.transact(false, 100..200)?;
    check(client, values(&[0..100]), values(&[0..200]))?;
    let mut committed = values(&[0..100]);
    for number in 0..20 {
        let range = 200 + 8 * number..208 + 8 * number;
        let commit = number % 3 != 2;
        transactor.transact(commit, range.clone())?;
        if commit {
            committed.extend(values(&[range]));
        }
    }
    check(client, committed.clone(), values(&[0..360]))?;
    // Another's open transaction holds back what is committed behind it.
    let other = Transactor::new(client, &format!("{}-other", client.topic), LONG_MS)?;
    other.begin()?;
    other.send(360..364)?;
    transactor.transact(true, 364..368)?;
    hidden(client, &values(&[360..368]))?;
    other.end(false)?;
    committed.extend(values(&[364..368]));
    check(client, committed, values(&[0..368]))
}

pub fn fencing(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let zombie = Transactor::new(client, &client.topic, LONG_MS)?;
    zombie.transact(true, 0..40)?;
    zombie.begin()?;
    zombie.send(40..80)?;
    let heir = Transactor::new(client, &client.topic, LONG_MS)?;
    check(client, values(&[0..40]), values(&[0..80]))?;
    zombie.is_fenced(zombie.send(80..120).and_then(|()| zombie.end(true)))?;
    heir.begin()?;
    heir.send(120..160)?;
    zombie.is_fenced(zombie.transact(true, 160..200))?;
    heir.end(true)?;
    let committed = values(&[0..40, 120..160]);
    same("committed", committed, &seen(client, PARTITIONS, "read_committed")?)?;
    // One that is fenced between transactions learns it when it goes on.
    let third = Transactor::new(client, &client.topic, LONG_MS)?;
    heir.is_fenced(heir.transact(true, 200..240))?;
    third.transact(true, 240..280)?;
    let committed = values(&[0..40, 120..160, 240..280]);
    same("committed", committed, &seen(client, PARTITIONS, "read_committed")?)
}

pub fn timeout(client: &Client) -> Result<()> {
    client.create(PARTITIONS, &[])?;
    let silent = Transactor::new(client, &client.topic, SHORT_MS)?;
    silent.begin()?;
    silent.send(0..40)?;
    // The marks in it come only when what is in front of them is decided.
    check(client, Vec::new(), values(&[0..40]))?;
    ensure!(silent.end(true).is_err(), "what was aborted can be committed");
    Transactor::new(client, &client.topic, LONG_MS)?.transact(true, 40..80)?;
    check(client, values(&[40..80]), values(&[0..80]))
}

/// Copies a topic to another.
struct Pipeline<'a> {
    source: &'a Client,
    sink: Client,
    count: usize,
    rounds: usize,
    aborts: usize,
}

impl<'a> Pipeline<'a> {
    fn filled(source: &'a Client, count: usize) -> Result<Self> {
        let sink = Client::of_topic(&source.bootstrap, &format!("{}-out", source.topic))?;
        for client in [source, &sink] {
            client.create(PIPELINE_PARTITIONS, &[])?;
        }
        source.producer(&[])?.send(&mut records(0..count, PIPELINE_PARTITIONS))?;
        Ok(Self { source, sink, count, rounds: 0, aborts: 0 })
    }

    /// The sum of the group's offsets.
    fn committed(&self) -> Result<usize> {
        let offsets = eventually(|| self.source.committed(PIPELINE_PARTITIONS))?;
        Ok(offsets.into_iter().filter_map(Offset::to_raw).filter(|raw| *raw > 0).sum::<i64>()
            as usize)
    }

    /// Goes on until so many are committed; `before` says of each round whether to commit it.
    fn until(&mut self, count: usize, mut before: impl FnMut(usize) -> bool) -> Result<()> {
        while self.committed()? < count {
            // It waits for the end of what the one before it left, so that a member finds all that
            // was committed.
            let transactor = eventually(|| Transactor::new(&self.sink, &self.sink.topic, LONG_MS))?;
            let member = self.source.member(CLASSIC)?;
            if let Err(error) = self.turn(&transactor, &member, count, &mut before) {
                eprintln!("begins again after {error}");
            }
        }
        Ok(())
    }

    fn turn(
        &mut self,
        transactor: &Transactor,
        member: &BaseConsumer,
        count: usize,
        before: &mut impl FnMut(usize) -> bool,
    ) -> Result<()> {
        let mut done = self.committed()?;
        while done < count {
            let (mut chunk, next) = poll(member)?;
            if chunk.is_empty() {
                continue;
            }
            while !self.transaction(transactor, member, &mut chunk, &next, before)? {
                self.aborts += 1;
            }
            done += chunk.len();
        }
        Ok(())
    }

    /// Whether it was committed.
    fn transaction(
        &mut self,
        transactor: &Transactor,
        member: &BaseConsumer,
        chunk: &mut [Record],
        next: &[(i32, i64)],
        before: &mut impl FnMut(usize) -> bool,
    ) -> Result<bool> {
        transactor.begin()?;
        transactor.producer.send(chunk)?;
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in next {
            offsets.add_partition_offset(
                &self.source.topic,
                *partition,
                Offset::Offset(*offset),
            )?;
        }
        let group = member.group_metadata().ok_or("the member has no group")?;
        let inner = &transactor.producer.inner;
        transactor.call(|| inner.send_offsets_to_transaction(&offsets, &group, CALL_LIMIT))?;
        self.rounds += 1;
        let commit = before(self.rounds);
        transactor.end(commit)?;
        Ok(commit)
    }

    fn check(&self) -> Result<()> {
        let output = seen(&self.sink, PIPELINE_PARTITIONS, "read_committed")?;
        same("output", values(&[0..self.count]), &output)?;
        let committed = self.committed()?;
        ensure!(committed == self.count, "{committed} of {} are committed", self.count);
        Ok(())
    }
}

/// What is there for one transaction, and where each partition goes on behind it.
fn poll(member: &BaseConsumer) -> Result<(Vec<Record>, Vec<(i32, i64)>)> {
    let (mut chunk, mut next) = (Vec::new(), vec![None; PIPELINE_PARTITIONS as usize]);
    let mut wait = POLL;
    while chunk.len() < CHUNK
        && let Some(message) = member.poll(wait)
    {
        let message = message?;
        next[message.partition() as usize] = Some(message.offset() + 1);
        chunk.push(Record {
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            ..Record::default()
        });
        wait = Duration::ZERO;
    }
    let next = (0..).zip(next).filter_map(|(partition, offset)| Some((partition, offset?)));
    Ok((chunk, next.collect()))
}

pub fn consume_transform(client: &Client) -> Result<()> {
    let mut pipeline = Pipeline::filled(client, 600)?;
    // The second life goes on where the first ended.
    for count in [300, 600] {
        pipeline.until(count, |round| round % 3 != 1)?;
    }
    pipeline.check()?;
    let written = seen(&pipeline.sink, PIPELINE_PARTITIONS, "read_uncommitted")?.len();
    let aborts = pipeline.aborts;
    ensure!(aborts >= 10 && written > 600, "{aborts} rounds were aborted, {written} written");
    Ok(())
}

pub fn broker_kill(client: &Client) -> Result<()> {
    let mut pipeline = Pipeline::filled(client, 600)?;
    pipeline.until(600, |round| {
        // Here the transaction has its records and offsets.
        if round == 30 {
            println!("kill broker");
        }
        round % 5 != 4
    })?;
    pipeline.check()
}
