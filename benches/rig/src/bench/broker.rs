//! What a broker tells of itself: versions of its APIs, its nodes, the settings that bear on
//! figures.
//!
//! No API of the protocol has a name for the software. Corelane is known by a setting that only it
//! has, Apache Kafka by its metadata.version; everything else is "unknown".

use std::net::SocketAddr;

use wire::ApiKey;
use wire::messages::describe_configs_request::DescribeConfigsResource;
use wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    MetadataRequest, MetadataResponse,
};

use super::workload::{Acks, Workload};
use crate::cluster;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::report::{Broker, Named};

const FEATURES_VERSION: i16 = 3;
const METADATA_VERSION: i16 = 9;
const CONFIGS_VERSION: i16 = 1;
const TOPIC_RESOURCE: i8 = 2;
const BROKER_RESOURCE: i8 = 4;
/// The last ones that are spoken here.
const PRODUCE_MAX: i16 = 13;
const FETCH_MAX: i16 = 17;
/// The first ones with batches of today's format.
const PRODUCE_MIN: i16 = 3;
const FETCH_MIN: i16 = 4;
/// Transactions are those of KIP-890.
const PRODUCE_OF_TRANSACTIONS: i16 = 12;
const END_OF_TRANSACTIONS: i16 = 5;
/// What only Corelane has.
const OWN_KEY: &str = "log.write.caching";
const BROKER_KEYS: [&str; 10] = [
    OWN_KEY,
    "shards",
    "memory.bytes",
    "default.replication.factor",
    "min.insync.replicas",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "num.io.threads",
    "num.network.threads",
    "log.dirs",
];
const TOPIC_KEYS: [&str; 6] = [
    "flush.messages",
    "flush.ms",
    "write.caching",
    "min.insync.replicas",
    "compression.type",
    "record.validation",
];

/// A cluster as a load needs to know it.
#[derive(Debug, Clone)]
pub struct Known {
    pub at: SocketAddr,
    pub produce_version: i16,
    pub fetch_version: i16,
    pub transactions: bool,
    pub broker: Broker,
}

impl Known {
    pub fn ask(at: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(at)?;
        let reply = connection.call(&ApiVersionsRequest::default(), 0)?;
        let answer: ApiVersionsResponse<'_> = reply.decode()?;
        Error::check(|| "versions of APIs".to_owned(), answer.error_code)?;
        let max = |api: ApiKey| {
            let found = answer.api_keys.iter().find(|one| one.api_key == api.code());
            found.map_or(-1, |one| one.max_version)
        };
        let produce_version = max(ApiKey::Produce).min(PRODUCE_MAX);
        let fetch_version = max(ApiKey::Fetch).min(FETCH_MAX);
        if produce_version < PRODUCE_MIN || fetch_version < FETCH_MIN {
            let what = format!("{at} speaks no Produce {PRODUCE_MIN} or no Fetch {FETCH_MIN}");
            return Err(Error::Usage(what));
        }
        let transactions = produce_version >= PRODUCE_OF_TRANSACTIONS
            && max(ApiKey::EndTxn) >= END_OF_TRANSACTIONS;
        let level = match max(ApiKey::ApiVersions) >= FEATURES_VERSION {
            true => metadata_level(&mut connection)?,
            false => None,
        };
        let broker = describe(&mut connection, level)?;
        Ok(Known { at, produce_version, fetch_version, transactions, broker })
    }
}

fn metadata_level(connection: &mut Connection) -> Result<Option<i16>> {
    let request = ApiVersionsRequest {
        client_software_name: "corelane-bench".into(),
        client_software_version: env!("CARGO_PKG_VERSION").into(),
        ..ApiVersionsRequest::default()
    };
    let reply = connection.call(&request, FEATURES_VERSION)?;
    let answer: ApiVersionsResponse<'_> = reply.decode()?;
    let features = answer.finalized_features.iter();
    let mut levels = features.filter(|feature| feature.name.as_ref() == "metadata.version");
    Ok(levels.next().map(|feature| feature.max_version_level))
}

fn describe(connection: &mut Connection, level: Option<i16>) -> Result<Broker> {
    let request = MetadataRequest {
        topics: Some(Vec::new().into()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let reply = connection.call(&request, METADATA_VERSION)?;
    let answer: MetadataResponse<'_> = reply.decode()?;
    let mut broker = Broker { id: "broker".to_owned(), ..Broker::default() };
    let mut first = None;
    for node in &answer.brokers {
        first.get_or_insert((node.node_id, cluster::address(&node.host, node.port)));
        broker.addresses.push(format!("{}:{}", node.host, node.port));
    }
    let version = level.map(|level| format!("metadata.version {level}"));
    broker.name = if level.is_some() { "Apache Kafka" } else { "unknown" }.to_owned();
    broker.version = version;
    // A broker answers for its own settings only.
    if let Some((node, Ok(address))) = first
        && let Ok(mut own) = Connection::open(address)
        && let Ok(found) = configs(&mut own, BROKER_RESOURCE, &node.to_string(), &BROKER_KEYS)
    {
        if found.iter().any(|config| config.name == OWN_KEY) {
            broker.name = "Corelane".to_owned();
            broker.version = None;
        }
        broker.configs = found;
    }
    Ok(broker)
}

/// Of a topic, those that say what an acknowledgement means.
pub fn topic_configs(at: SocketAddr, topic: &str) -> Result<Vec<Named>> {
    configs(&mut Connection::open(at)?, TOPIC_RESOURCE, topic, &TOPIC_KEYS)
}

fn configs(connection: &mut Connection, kind: i8, name: &str, keys: &[&str]) -> Result<Vec<Named>> {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        // All of them: a key that a broker does not know may be an error to it.
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource].into(),
        ..DescribeConfigsRequest::default()
    };
    let reply = connection.call(&request, CONFIGS_VERSION)?;
    let answer: DescribeConfigsResponse<'_> = reply.decode()?;
    let mut found = Vec::new();
    for result in &answer.results {
        Error::check(|| format!("settings of {name}"), result.error_code)?;
        for config in &result.configs {
            if keys.contains(&config.name.as_ref()) {
                let value = config.value.as_ref().map(ToString::to_string);
                found.push(Named::new(config.name.to_string(), value.unwrap_or_default()));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// What an acknowledgement means, in plain words.
pub fn durability(broker: &Broker, topic: &[Named], workload: &Workload) -> String {
    let value = |key: &str| topic.iter().find(|one| one.name == key).map(|one| one.value.as_str());
    let replicas = match workload.replication_factor {
        1 => "one replica".to_owned(),
        many => {
            let least = value("min.insync.replicas").unwrap_or("an unknown number");
            format!("{many} replicas, of which {least} have to be in sync")
        }
    };
    let who = match workload.acks {
        Acks::None => {
            return format!(
                "acks=0: nothing is acknowledged; a record counts as sent when the client's kernel \
                 has it; {replicas}"
            );
        }
        Acks::Leader => "acks=1: the leader has it",
        Acks::All => "acks=all: every in-sync replica has it",
    };
    let synced = value("flush.messages") == Some("1");
    let cached = value("write.caching") == Some("true");
    let corelane = broker.name == "Corelane";
    let kafka = broker.name == "Apache Kafka";
    let has = match (synced, cached) {
        (true, _) if corelane || kafka => "on the device and its cache flushed (flush.messages=1)",
        (false, true) if corelane => {
            "in the broker's memory only (write.caching=true): a crash of the process loses it"
        }
        (false, _) if corelane => {
            "written to the device by direct I/O, the device's own cache not flushed: a crash of the \
             process loses nothing, a loss of power may"
        }
        (false, _) if kafka => {
            "in the page cache, written to the device later: a crash of the process loses nothing, one \
             of the machine may"
        }
        _ => "as this broker understands it",
    };
    format!("{who}, {has}; {replicas}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_said_in_words() {
        let broker = |name: &str| Broker { name: name.to_owned(), ..Broker::default() };
        let (own, kafka) = (broker("Corelane"), broker("Apache Kafka"));
        let with = |key: &str, value: &str| [Named::new(key, value)];
        let workload = Workload::default();
        let text = durability(&own, &with("flush.messages", "1"), &workload);
        assert_eq!(
            text,
            "acks=all: every in-sync replica has it, on the device and its cache flushed \
             (flush.messages=1); one replica"
        );
        assert!(durability(&own, &[], &workload).contains("direct I/O"));
        assert!(durability(&kafka, &[], &workload).contains("page cache"));
        assert!(
            durability(&own, &with("write.caching", "true"), &workload).contains("memory only")
        );
        let none = Workload { acks: Acks::None, replication_factor: 3, ..Workload::default() };
        let text = durability(&kafka, &with("min.insync.replicas", "2"), &none);
        assert!(text.starts_with("acks=0: nothing") && text.contains("3 replicas"), "{text}");
    }
}
