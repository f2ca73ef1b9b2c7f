//! A small cluster for tests of the managers: an image, a configuration, and a log of every record.

// Each test file uses its own part of this.
#![allow(dead_code)]
// A test stops at the first surprise.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use meta::config::{BrokerConfig, StaticConfig};
use meta::controller::{CreateTopic, Registration, Restart};
use meta::{Changes, Controller, Decision, Delta, Endpoint, Image, MetadataRecord, NodeId};
use wire::Uuid;

pub struct Cluster {
    pub image: Image,
    pub config: BrokerConfig,
    pub fixed: StaticConfig,
    pub log: Vec<MetadataRecord>,
    pub last_changes: Changes,
    seed: u64,
}

impl Cluster {
    /// One broker with this many shards, and static settings as in a file.
    pub fn single(shards: u16, properties: &str) -> Self {
        let mut cluster = Cluster::empty(properties);
        cluster.register(0, shards, None, Restart::Clean);
        cluster
    }

    pub fn empty(properties: &str) -> Self {
        let fixed = StaticConfig::parse_properties(properties).unwrap();
        Cluster {
            image: Image::new("cluster"),
            config: BrokerConfig::from_static(&fixed).unwrap(),
            fixed,
            log: Vec::new(),
            last_changes: Changes::default(),
            seed: 1,
        }
    }

    pub fn controller(&self) -> Controller<'_> {
        let node = NodeId(0);
        Controller { image: &self.image, config: &self.config, fixed: &self.fixed, node }
    }

    /// Runs a decision and commits its records.
    pub fn decide<T>(
        &mut self,
        decide: impl FnOnce(Controller<'_>, &mut dyn FnMut() -> u64) -> Decision<T>,
    ) -> T {
        let mut seed = self.seed;
        let decision = decide(self.controller(), &mut || next_random(&mut seed));
        self.seed = seed;
        self.commit(decision.records);
        decision.outcome
    }

    pub fn commit(&mut self, records: Vec<MetadataRecord>) {
        // Through bytes, as the log has them.
        let records: Vec<MetadataRecord> = records
            .iter()
            .map(|record| MetadataRecord::from_bytes(&record.to_bytes().unwrap()).unwrap())
            .collect();
        self.log.extend(records.iter().cloned());
        let delta = Delta { base_offset: self.image.offset() + 1, records: Arc::from(records) };
        self.last_changes = self.image.apply_delta(&delta).unwrap();
    }

    pub fn register(&mut self, broker: i32, shards: u16, rack: Option<&str>, restart: Restart) {
        let registration = registration(broker, shards, rack, restart);
        self.decide(|c, _| c.register_broker(&registration)).unwrap();
    }

    /// Creates a topic that must succeed.
    pub fn create(&mut self, name: &str, partitions: i32, factor: i16) -> Uuid {
        let request = CreateTopic {
            num_partitions: partitions,
            replication_factor: factor,
            ..CreateTopic::with_defaults(name)
        };
        let outcome = self.decide(|c, entropy| c.create_topics(&[request], false, entropy));
        outcome.into_iter().next().unwrap().1.unwrap().id
    }

    /// Leaders of a topic's partitions, by node id.
    pub fn leaders(&self, topic: &str) -> Vec<i32> {
        let topic = self.image.topic_by_name(topic).unwrap();
        topic.partitions.iter().map(|partition| partition.leader.0).collect()
    }

    pub fn replicas(&self, topic: &str) -> Vec<Vec<i32>> {
        let topic = self.image.topic_by_name(topic).unwrap();
        let ids = |p: &meta::Partition| p.replicas.iter().map(|node| node.0).collect();
        topic.partitions.iter().map(ids).collect()
    }
}

pub fn registration(
    broker: i32,
    shards: u16,
    rack: Option<&str>,
    restart: Restart,
) -> Registration {
    let endpoint = |shard: u16| Endpoint {
        listener: "PLAINTEXT".into(),
        host: format!("host-{broker}"),
        port: 9092 + shard,
        protocol: 0,
    };
    Registration {
        broker_id: broker,
        incarnation: Uuid([broker as u8 + 1; 16]),
        rack: rack.map(String::from),
        shards: (0..shards).map(|shard| vec![endpoint(shard)]).collect(),
        restart,
    }
}

/// Splitmix64: enough randomness for ids and starts.
pub fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Lines of a text table without blanks and comments, split at ` => `.
pub fn table(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("no => in {line}")))
}

/// A failure as the tables write it.
pub fn shown(failure: &meta::Failure) -> String {
    format!("{} {}", failure.code.name(), failure.message)
}
