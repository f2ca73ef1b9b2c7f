//! What makes a load: every knob with its default, checked before anything is sent.
//!
//! Defaults are those of Kafka's own clients where they have one, so that a workload says only what
//! it is about. Sizes in bytes, times in the unit that the name ends with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::records::Codec;

use super::schedule::Arrivals;
use crate::error::{Error, Result};

/// What the first bytes of a stamped value hold: when it was due.
pub const STAMP_BYTES: usize = 8;
pub const PRODUCERS_MAX: usize = 5_000;
pub const CONSUMERS_MAX: usize = 5_000;
/// Members of groups have a thread each for their heartbeats.
pub const MEMBERS_MAX: usize = 1_000;
/// Of one producer and partition each, over all producers.
pub const PAIRS_MAX: usize = 2_000_000;
/// Of one topic: Kafka takes no more than 10,000 metadata records a request.
pub const PARTITIONS_MAX: usize = 5_000;
pub const RECORD_BYTES_MAX: usize = 64 << 20;
pub const SECONDS_MAX: f64 = 86_400.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Producers alone.
    Produce,
    /// Consumers alone, over a log that was written before.
    Consume,
    /// Producers, and consumers at the end of the log; latency until a record is consumed.
    EndToEnd,
    /// The same beside readers of a log that was written before.
    Mixed,
}

impl Kind {
    pub fn produces(self) -> bool {
        self != Kind::Consume
    }

    /// Consumers follow what is produced.
    pub fn follows(self) -> bool {
        matches!(self, Kind::EndToEnd | Kind::Mixed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    Uniform,
    /// A few keys get most of the records.
    Zipf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Does not compress.
    Random,
    /// Words of which few are frequent; compresses as text does.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// Partitions are dealt out by the tool.
    None,
    Classic,
    /// KIP-848.
    Consumer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Workload {
    pub name: String,
    pub title: String,
    pub kind: Kind,
    pub rate: Rates,
    pub arrivals: Arrivals,
    pub seed: u64,
    pub topics: usize,
    pub partitions: i32,
    pub replication_factor: i16,
    pub topic_config: BTreeMap<String, String>,
    pub producers: usize,
    pub groups: usize,
    pub consumers: usize,
    pub group_protocol: Membership,
    pub record_bytes: Sizes,
    pub keys: u64,
    pub key_bytes: usize,
    pub key_spread: Spread,
    pub value: Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_file: Option<PathBuf>,
    #[serde(with = "codec_name")]
    pub codec: Codec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec_level: Option<i32>,
    pub linger_ms: f64,
    pub batch_bytes: usize,
    pub request_bytes: usize,
    pub buffer_bytes: usize,
    pub in_flight: usize,
    pub acks: Acks,
    pub idempotence: bool,
    pub transaction_records: usize,
    pub fetch_max_bytes: i32,
    pub fetch_partition_bytes: i32,
    pub fetch_min_bytes: i32,
    pub fetch_max_wait_ms: i32,
    pub check_crc: bool,
    pub backlog_mib: u64,
    pub backlog_readers: usize,
    pub warmup_seconds: f64,
    pub seconds: f64,
    pub repeats: usize,
    pub threads: usize,
    pub slip_ms: f64,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            name: "custom".to_owned(),
            title: String::new(),
            kind: Kind::Produce,
            rate: Rates(Vec::new()),
            arrivals: Arrivals::Constant,
            seed: 1,
            topics: 1,
            partitions: 1,
            replication_factor: 1,
            topic_config: BTreeMap::new(),
            producers: 1,
            groups: 1,
            consumers: 1,
            group_protocol: Membership::None,
            record_bytes: Sizes { least: 1024, most: 1024 },
            keys: 0,
            key_bytes: 8,
            key_spread: Spread::Uniform,
            value: Content::Random,
            payload_file: None,
            codec: Codec::None,
            codec_level: None,
            linger_ms: 5.0,
            batch_bytes: 16 << 10,
            request_bytes: 1 << 20,
            buffer_bytes: 32 << 20,
            in_flight: 5,
            acks: Acks::All,
            idempotence: true,
            transaction_records: 0,
            fetch_max_bytes: 50 << 20,
            fetch_partition_bytes: 1 << 20,
            fetch_min_bytes: 1,
            fetch_max_wait_ms: 500,
            check_crc: true,
            backlog_mib: 128,
            backlog_readers: 1,
            warmup_seconds: 2.0,
            seconds: 10.0,
            repeats: 1,
            threads: 0,
            slip_ms: 5.0,
        }
    }
}

impl Workload {
    /// Whether values carry when they were due.
    pub fn stamps(&self) -> bool {
        self.kind.follows() && !self.rate.is_max()
    }

    pub fn transactional(&self) -> bool {
        self.transaction_records > 0
    }

    pub fn producer_count(&self) -> usize {
        if self.kind.produces() { self.producers * self.topics } else { 0 }
    }

    pub fn consumer_count(&self) -> usize {
        let each = self.groups * self.consumers * self.topics;
        if self.kind == Kind::Produce { 0 } else { each }
    }

    pub fn linger(&self) -> Duration {
        Duration::from_secs_f64(self.linger_ms / 1e3)
    }

    pub fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.threads == 0 { (cores / 2).max(1) } else { self.threads };
        wanted.min(self.producer_count().max(self.consumer_count())).max(1)
    }

    /// What a title says if the workload has none.
    pub fn shown(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }

    /// # Errors
    /// The first thing that cannot be, and what would be.
    pub fn check(&self) -> Result<()> {
        let no = |what: String| Err(Error::Usage(format!("workload {}: {what}", self.name)));
        let within = |name: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let what = format!("{name} is {value}; it may be {least} to {most}");
            Err(Error::Usage(format!("workload {}: {what}", self.name)))
        };
        within("topics", self.topics, 1, 1_000)?;
        within("partitions", usize::try_from(self.partitions).unwrap_or(0), 1, PARTITIONS_MAX)?;
        within("producers of all topics", self.producers * self.topics, 1, PRODUCERS_MAX)?;
        within("consumers of all groups and topics", self.consumer_count(), 0, CONSUMERS_MAX)?;
        if self.kind != Kind::Produce {
            within("groups", self.groups, 1, CONSUMERS_MAX)?;
            within("consumers", self.consumers, 1, CONSUMERS_MAX)?;
        }
        if self.group_protocol != Membership::None {
            within("members of groups", self.consumer_count(), 0, MEMBERS_MAX)?;
        }
        let pairs = self.producer_count() * usize::try_from(self.partitions).unwrap_or(0);
        within("producers times partitions", pairs, 0, PAIRS_MAX)?;
        within("record-bytes", self.record_bytes.most, 0, RECORD_BYTES_MAX)?;
        within("key-bytes", self.key_bytes, 1, 1 << 20)?;
        within("batch-bytes", self.batch_bytes, 128, 64 << 20)?;
        within("request-bytes", self.request_bytes, 128, 64 << 20)?;
        within("buffer-bytes", self.buffer_bytes, self.batch_bytes, 4 << 30)?;
        let in_flight_most = if self.idempotence { 5 } else { 1_000 };
        within("in-flight", self.in_flight, 1, in_flight_most)?;
        within("repeats", self.repeats, 1, 1_000)?;
        within("threads", self.threads, 0, 256)?;
        within("backlog-mib", usize::try_from(self.backlog_mib).unwrap_or(0), 1, 1 << 24)?;
        within("backlog-readers", self.backlog_readers, 0, CONSUMERS_MAX)?;
        if self.stamps() && self.record_bytes.least < STAMP_BYTES {
            return no(format!(
                "record-bytes below {STAMP_BYTES} have no room for the moment at which they were due"
            ));
        }
        if self.kind == Kind::Consume && !self.rate.is_max() {
            return no("consume has no rate: it reads as fast as it can; see kind".to_owned());
        }
        if self.idempotence && self.acks != Acks::All {
            return no("idempotence needs acks = \"all\"".to_owned());
        }
        if self.transactional() && !self.idempotence {
            return no("transactions need idempotence".to_owned());
        }
        let times = [
            ("seconds", self.seconds, 0.1),
            ("warmup-seconds", self.warmup_seconds, 0.0),
            ("linger-ms", self.linger_ms, 0.0),
            ("slip-ms", self.slip_ms, 0.001),
        ];
        for (name, value, least) in times {
            if !(least..=SECONDS_MAX).contains(&value) {
                return no(format!("{name} is {value}; it may be {least} to {SECONDS_MAX}"));
            }
        }
        Ok(())
    }
}

/// Records a second over all producers; none is as many as go through.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates(pub Vec<f64>);

impl Rates {
    pub fn is_max(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Word(String),
    One(f64),
    Many(Vec<f64>),
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let expected = "records a second, a list of such, or \"max\"";
        let rates = match OneOrMany::deserialize(deserializer) {
            Ok(OneOrMany::Word(word)) if word == "max" => return Ok(Rates(Vec::new())),
            Ok(OneOrMany::Word(word)) => {
                return Err(D::Error::invalid_value(Unexpected::Str(&word), &expected));
            }
            Ok(OneOrMany::One(rate)) => vec![rate],
            Ok(OneOrMany::Many(rates)) => rates,
            Err(_) => return Err(D::Error::custom(format!("expected {expected}"))),
        };
        match rates.iter().find(|rate| !(0.001..=1e9).contains(*rate)) {
            Some(rate) => Err(D::Error::invalid_value(Unexpected::Float(*rate), &expected)),
            None if rates.is_empty() => Err(D::Error::custom(format!("expected {expected}"))),
            None => Ok(Rates(rates)),
        }
    }
}

impl Serialize for Rates {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [] => "max".serialize(serializer),
            [one] => one.serialize(serializer),
            many => many.serialize(serializer),
        }
    }
}

/// `1024`, or `"100-2000"` for anything between, each as likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub least: usize,
    pub most: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(usize),
    Text(String),
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let parsed = match NumberOrText::deserialize(deserializer) {
            Ok(NumberOrText::Number(size)) => Some(Sizes { least: size, most: size }),
            Ok(NumberOrText::Text(text)) => text.split_once('-').and_then(|(least, most)| {
                let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
                (least <= most).then_some(Sizes { least, most })
            }),
            Err(_) => None,
        };
        parsed.ok_or_else(|| D::Error::custom("expected bytes, as 1024 or \"100-2000\""))
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.least == self.most {
            true => self.least.serialize(serializer),
            false => format!("{}-{}", self.least, self.most).serialize(serializer),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

impl Acks {
    pub fn code(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Acks::None => "0",
            Acks::Leader => "1",
            Acks::All => "all",
        }
    }
}

impl<'de> Deserialize<'de> for Acks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer) {
            Ok(NumberOrText::Number(0)) => Ok(Acks::None),
            Ok(NumberOrText::Number(1)) => Ok(Acks::Leader),
            Ok(NumberOrText::Text(text)) if text == "0" => Ok(Acks::None),
            Ok(NumberOrText::Text(text)) if text == "1" => Ok(Acks::Leader),
            Ok(NumberOrText::Text(text)) if text == "all" => Ok(Acks::All),
            _ => Err(D::Error::custom("expected 0, 1 or \"all\"")),
        }
    }
}

impl Serialize for Acks {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.name().serialize(serializer)
    }
}

mod codec_name {
    use super::{Codec, Deserialize, Deserializer, Serializer};
    use serde::de::Error as _;

    pub fn serialize<S: Serializer>(codec: &Codec, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(codec.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Codec, D::Error> {
        let name = String::deserialize(from)?;
        let expected = || D::Error::custom("expected none, gzip, snappy, lz4 or zstd");
        Codec::from_name(&name).ok_or_else(expected)
    }
}
