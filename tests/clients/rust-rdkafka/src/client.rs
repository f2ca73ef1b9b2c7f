//! One scenario's clients: topic administration, a producer call that waits for every outcome, and
//! consumers assigned by hand. Owns all use of rdkafka; asserts nothing beyond what a call means.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_executor::block_on;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic,
    ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, ClientContext, Message as _, Offset, Statistics, TopicPartitionList};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bounds one request and its answer.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// Bounds the reading of records that are known to be there.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Bounds waits for the cluster's state: a loaded Kafka takes its time over 1,000 partitions.
const STATE_LIMIT: Duration = Duration::from_secs(45);
const POLL_EVERY: Duration = Duration::from_millis(50);
const STATISTICS_EVERY_MS: &str = "100";

/// A record to produce, or one that came back. `None` is null on the wire, empty is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub partition: i32,
    /// Where it was acknowledged or found; -1 while unknown.
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
}

#[derive(Debug, PartialEq)]
pub struct Config {
    pub value: String,
    pub is_default: bool,
}

impl Config {
    pub fn new(value: &str, is_default: bool) -> Self {
        Self { value: value.to_owned(), is_default }
    }
}

pub struct Client {
    pub topic: String,
    pub bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
    /// Asks for metadata and offsets; consumes nothing. Unlike a producer it never creates topics.
    probe: BaseConsumer,
}

impl Client {
    pub fn open(bootstrap: &str, scenario: &str) -> Result<Self> {
        Self::of_topic(bootstrap, &format!("{scenario}-rust-rdkafka-{:08x}", random_u64() >> 32))
    }

    pub fn of_topic(bootstrap: &str, topic: &str) -> Result<Self> {
        let config = settings(bootstrap);
        Ok(Self {
            topic: topic.to_owned(),
            bootstrap: bootstrap.to_owned(),
            admin: config.create()?,
            probe: config.create()?,
        })
    }

    /// Creates the topic and waits until it can be used.
    pub fn create(&self, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        self.try_create(partitions, configs)?;
        self.await_topic(partitions)
    }

    pub fn try_create(&self, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        let mut topic = NewTopic::new(&self.topic, partitions, TopicReplication::Fixed(1));
        for (key, value) in configs {
            topic = topic.set(key, value);
        }
        topic_result(block_on(self.admin.create_topics(&[topic], &admin_options()))?)
    }

    /// Waits until every partition has a leader and a sample of the leaders serves: a broker may
    /// list a leader before that one has taken up its partition.
    pub fn await_topic(&self, partitions: i32) -> Result<()> {
        eventually(|| {
            let metadata = self.probe.fetch_metadata(Some(&self.topic), CALL_LIMIT)?;
            let found = metadata.topics().first().ok_or("no topic in the answer")?;
            if let Some(error) = found.error() {
                return Err(KafkaError::MetadataFetch(error.into()).into());
            }
            let mut ids: Vec<i32> = found.partitions().iter().map(|p| p.id()).collect();
            ids.sort_unstable();
            if ids != (0..partitions).collect::<Vec<_>>() {
                return Err(format!("{} of {partitions} partitions listed", ids.len()).into());
            }
            let ready = |p: &rdkafka::metadata::MetadataPartition| {
                p.leader() >= 0 && !p.replicas().is_empty() && !p.isr().is_empty()
            };
            match found.partitions().iter().find(|p| !ready(p)) {
                Some(p) => Err(format!("partition {} has no leader or replicas", p.id()).into()),
                None => Ok(()),
            }
        })?;
        let step = (partitions / crate::scenarios::SAMPLE).max(1);
        (0..partitions)
            .step_by(step as usize)
            .try_for_each(|partition| eventually(|| self.span(partition).map(drop)))
    }

    pub fn delete(&self) -> Result<()> {
        topic_result(block_on(self.admin.delete_topics(&[&self.topic], &admin_options()))?)
    }

    /// The error that asking for the topic gives, if any.
    pub fn topic_error(&self) -> Result<Option<RDKafkaErrorCode>> {
        let metadata = self.probe.fetch_metadata(Some(&self.topic), CALL_LIMIT)?;
        let topic = metadata.topics().first().ok_or("no topic in the answer")?;
        Ok(topic.error().map(RDKafkaErrorCode::from))
    }

    pub fn topic_is_listed(&self) -> Result<bool> {
        let metadata = self.probe.fetch_metadata(None, CALL_LIMIT)?;
        Ok(metadata.topics().iter().any(|t| t.name() == self.topic))
    }

    /// The cluster's id and how many nodes it has.
    pub fn cluster(&self) -> Result<(String, usize)> {
        let id = self.probe.client().fetch_cluster_id(CALL_LIMIT).ok_or("no cluster id")?;
        Ok((id, self.probe.fetch_metadata(None, CALL_LIMIT)?.brokers().len()))
    }

    /// The offsets at which a partition begins and ends.
    pub fn span(&self, partition: i32) -> Result<(i64, i64)> {
        Ok(self.probe.fetch_watermarks(&self.topic, partition, CALL_LIMIT)?)
    }

    /// The first offset at or after a time; `Offset::End` if there is none.
    pub fn offset_after(&self, partition: i32, timestamp_ms: i64) -> Result<Offset> {
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(&self.topic, partition, Offset::Offset(timestamp_ms))?;
        let found = self.probe.offsets_for_times(times, CALL_LIMIT)?;
        let found = found.find_partition(&self.topic, partition).ok_or("no answer")?;
        found.error()?;
        Ok(found.offset())
    }

    pub fn config(&self, key: &str) -> Result<Config> {
        let resource = ResourceSpecifier::Topic(&self.topic);
        let mut described = block_on(self.admin.describe_configs([&resource], &admin_options()))?;
        let described = described.pop().ok_or("no resource in the answer")?.map_err(admin_error)?;
        let entry = described.get(key).ok_or(format!("no config {key}"))?;
        let value = entry.value.clone().ok_or(format!("config {key} is null"))?;
        Ok(Config { value, is_default: entry.source == ConfigSource::Default })
    }

    /// Replaces all of the topic's settings: rdkafka has no incremental call.
    pub fn set_configs(&self, configs: &[(&str, &str)]) -> Result<()> {
        let mut alter = AlterConfig::new(ResourceSpecifier::Topic(&self.topic));
        for (key, value) in configs {
            alter = alter.set(key, value);
        }
        let mut altered = block_on(self.admin.alter_configs([&alter], &admin_options()))?;
        altered.pop().ok_or("no resource in the answer")?.map_err(|(_, code)| admin_error(code))?;
        Ok(())
    }

    pub fn create_partitions(&self, count: usize) -> Result<()> {
        let grown = NewPartitions::new(&self.topic, count);
        topic_result(block_on(self.admin.create_partitions([&grown], &admin_options()))?)
    }

    pub fn delete_records(&self, partition: i32, before: i64) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(&self.topic, partition, Offset::Offset(before))?;
        let deleted = block_on(self.admin.delete_records(&offsets, &admin_options()))?;
        Ok(deleted.find_partition(&self.topic, partition).ok_or("no answer")?.error()?)
    }

    pub fn producer(&self, extra: &[(&str, &str)]) -> Result<Producer> {
        let mut config = settings(&self.bootstrap);
        config.set("acks", "all").set("linger.ms", "20");
        config.set("statistics.interval.ms", STATISTICS_EVERY_MS);
        for (key, value) in extra {
            config.set(*key, *value);
        }
        let inner = config.create_with_context(Watch::default())?;
        Ok(Producer { inner, topic: self.topic.clone() })
    }

    /// A member of the group that is named as the topic.
    pub fn member(&self, protocol: &[(&str, &str)]) -> Result<BaseConsumer> {
        let mut config = settings(&self.bootstrap);
        config
            .set("group.id", &self.topic)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest");
        for (key, value) in protocol {
            config.set(*key, *value);
        }
        let member: BaseConsumer = config.create()?;
        member.subscribe(&[&self.topic])?;
        Ok(member)
    }

    /// What that group has committed, by partition.
    pub fn committed(&self, partitions: i32) -> Result<Vec<Offset>> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.topic, 0, partitions - 1);
        let mut config = settings(&self.bootstrap);
        let asker: BaseConsumer = config.set("group.id", &self.topic).create()?;
        let found = asker.committed_offsets(asked, CALL_LIMIT)?;
        Ok((0..partitions)
            .filter_map(|partition| found.find_partition(&self.topic, partition))
            .map(|found| found.offset())
            .collect())
    }

    pub fn group_is_listed(&self) -> Result<bool> {
        let listed = self.probe.fetch_group_list(None, CALL_LIMIT)?;
        Ok(listed.groups().iter().any(|group| group.name() == self.topic))
    }

    /// The refusal, if it was refused.
    pub fn delete_group(&self) -> Result<Option<RDKafkaErrorCode>> {
        let mut results = block_on(self.admin.delete_groups(&[&self.topic], &admin_options()))?;
        Ok(results.pop().ok_or("no result")?.err().map(|(_, code)| code))
    }

    pub fn consumer(&self, starts: &[(i32, Offset)]) -> Result<Consumer> {
        self.consumer_at(starts, "read_committed") // the library's default
    }

    pub fn consumer_at(&self, starts: &[(i32, Offset)], isolation: &str) -> Result<Consumer> {
        let mut config = settings(&self.bootstrap);
        config
            .set("group.id", "unused") // assigning needs a name; nothing joins or commits
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "500")
            .set("fetch.min.bytes", "1")
            .set("isolation.level", isolation)
            .set("topic.metadata.propagation.max.ms", "1000") // then an unknown topic is an error
            .set("statistics.interval.ms", STATISTICS_EVERY_MS);
        let inner: BaseConsumer<Watch> = config.create_with_context(Watch::default())?;
        let mut partitions = TopicPartitionList::new();
        for (partition, offset) in starts {
            partitions.add_partition_offset(&self.topic, *partition, *offset)?;
        }
        inner.assign(&partitions)?;
        Ok(Consumer { inner, topic: self.topic.clone() })
    }
}

pub struct Producer {
    pub inner: BaseProducer<Watch>,
    topic: String,
}

impl Producer {
    /// Hands all records over without waiting, then waits for every outcome and notes the offsets.
    /// Gives one outcome a record.
    pub fn outcomes(&self, records: &mut [Record]) -> Result<Vec<Option<RDKafkaErrorCode>>> {
        for (index, record) in records.iter().enumerate() {
            let mut message = BaseRecord::with_opaque_to(&self.topic, Box::new(index))
                .partition(record.partition)
                .headers(headers_of(record));
            message.key = record.key.as_ref();
            message.payload = record.value.as_ref();
            message.timestamp = record.timestamp_ms;
            self.inner.send(message).map_err(|(error, _)| error)?;
        }
        // Not `flush`, which looks only every 100 ms.
        let end = Instant::now() + WAIT_LIMIT;
        while self.inner.context().lock().deliveries.len() < records.len() {
            if Instant::now() > end {
                return Err("not every record has an outcome".into());
            }
            self.inner.poll(Duration::from_millis(1));
        }
        let mut outcomes = vec![None; records.len()];
        let delivered = std::mem::take(&mut self.inner.context().lock().deliveries);
        for (index, result) in delivered {
            match result {
                Ok(offset) => records[index].offset = offset,
                Err(code) => outcomes[index] = Some(code),
            }
        }
        Ok(outcomes)
    }

    pub fn send(&self, records: &mut [Record]) -> Result<()> {
        match self.outcomes(records)?.into_iter().flatten().next() {
            Some(code) => Err(KafkaError::MessageProduction(code).into()),
            None => Ok(()),
        }
    }

    /// Bytes sent to brokers so far, from statistics made after this call.
    pub fn bytes_sent(&self) -> Result<i64> {
        self.inner.context().lock().statistics = None;
        eventually(|| {
            self.inner.poll(Duration::ZERO);
            let seen = self.inner.context().lock().statistics.clone();
            Ok(seen.ok_or("no statistics came")?.tx_bytes)
        })
    }
}

pub struct Consumer {
    inner: BaseConsumer<Watch>,
    topic: String,
}

impl Consumer {
    /// The next record, or none within the time.
    pub fn next(&self, within: Duration) -> Result<Option<Record>> {
        self.inner.poll(within).transpose().map(|m| m.map(|m| received(&m))).map_err(Into::into)
    }

    pub fn take(&self, count: usize) -> Result<Vec<Record>> {
        let end = Instant::now() + WAIT_LIMIT;
        let mut got = Vec::new();
        while got.len() < count {
            if Instant::now() > end {
                return Err(format!("{} of {count} records came", got.len()).into());
            }
            got.extend(self.next(POLL_EVERY)?);
        }
        Ok(got)
    }

    pub fn seek(&self, partition: i32, offset: i64) -> Result<()> {
        Ok(self.inner.seek(&self.topic, partition, Offset::Offset(offset), CALL_LIMIT)?)
    }

    /// Waits until the consumer fetches, which it does once its start has become an offset; gives
    /// it. Its statistics say "active" a moment before they have the offset, so two of them have to
    /// agree.
    pub fn settled(&self, partition: i32) -> Result<i64> {
        let mut before = None;
        eventually(|| {
            if let Some(record) = self.next(Duration::ZERO)? {
                return Err(format!("a record came meanwhile: {record:?}").into());
            }
            let seen = self.inner.context().lock().statistics.clone().unwrap_or_default();
            let topic = seen.topics.get(&self.topic).ok_or("no statistics of the topic")?;
            let state = topic.partitions.get(&partition).ok_or("no statistics of the partition")?;
            match state.fetch_state.as_str() {
                "active" => match before.replace((seen.ts, state.next_offset)) {
                    Some((ts, offset)) if ts != seen.ts && offset == state.next_offset => {
                        Ok(offset)
                    }
                    _ => Err("one look is not enough".into()),
                },
                other => Err(format!("the fetcher is {other}").into()),
            }
        })
    }

    /// Fetch requests sent, as of the last statistics. The caller keeps calling `next` for them.
    pub fn fetches(&self) -> i64 {
        let seen = self.inner.context().lock().statistics.clone().unwrap_or_default();
        seen.brokers.values().filter_map(|broker| broker.req.get("Fetch")).sum()
    }
}

/// What librdkafka tells a client on its own account.
#[derive(Default)]
pub struct Watch(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    statistics: Option<Statistics>,
    /// By the index the record was handed over with.
    deliveries: Vec<(usize, std::result::Result<i64, RDKafkaErrorCode>)>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Watch {
    fn stats(&self, statistics: Statistics) {
        self.lock().statistics = Some(statistics);
    }
}

impl ConsumerContext for Watch {}

impl ProducerContext for Watch {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        self.lock().deliveries.push((*index, outcome));
    }
}

fn settings(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("client.id", "corelane-rust-rdkafka");
    config
}

fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(CALL_LIMIT)).operation_timeout(Some(CALL_LIMIT))
}

fn admin_error(code: RDKafkaErrorCode) -> KafkaError {
    KafkaError::AdminOp(code)
}

fn topic_result(mut results: Vec<rdkafka::admin::TopicResult>) -> Result<()> {
    let result = results.pop().ok_or("no topic in the answer")?;
    Ok(result.map(drop).map_err(|(_, code)| admin_error(code))?)
}

fn headers_of(record: &Record) -> OwnedHeaders {
    record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: value.as_ref() })
    })
}

fn received(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
        timestamp_ms: message.timestamp().to_millis(),
    }
}

/// Tries until the call succeeds, and gives its last error when the time is up.
pub fn eventually<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + STATE_LIMIT;
    loop {
        match call() {
            Err(_) if Instant::now() < end => std::thread::sleep(POLL_EVERY),
            outcome => return outcome,
        }
    }
}

/// The standard library seeds each `RandomState` anew.
pub fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = random_u64() | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut step).flatten().take(count).collect()
}
