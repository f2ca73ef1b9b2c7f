//! SIGKILL at random moments, under load, on real files: everything that was acknowledged is there
//! afterwards, once, in order and at its offset.
//!
//! Producers with and without idempotence write to topics of different durability, codec and
//! cleanup while segments roll, retention deletes and the cleaner compacts. The broker is killed at
//! some moment, sometimes while it is still starting, and started again; then every partition is
//! read. `CORELANE_KILLS=n` kills n times, `CORELANE_SEED=n` chooses other moments.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;
mod load;
mod verify;

use std::net::SocketAddr;
use std::time::Duration;

use client::Client;
use corelane_tests::{Broker, BrokerOptions, Target};
use load::{Producer, TOPICS, Topic};

/// How the tests go when nobody says otherwise.
const KILLS_SHORT: u64 = 10;
const KILLS_LONG: u64 = 300;
const SHARDS: u16 = 2;
/// One in so many kills comes while the broker starts.
const KILLED_AT_START: u64 = 4;

/// A small generator: a seed is a run, as far as a machine allows.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn start() -> Broker {
    let options = BrokerOptions { shards: SHARDS, ..BrokerOptions::new(Target::Corelane) }
        .with("log.retention.check.interval.ms", 200)
        .with("log.segment.delete.delay.ms", 100)
        .with("log.flush.offset.checkpoint.interval.ms", 500);
    Broker::start_new(options).expect("the broker starts")
}

pub fn address_of(broker: &Broker, shard: usize) -> SocketAddr {
    let base = broker.address();
    SocketAddr::new(base.ip(), base.port() + u16::try_from(shard).unwrap())
}

fn kill_again_and_again(kills: u64) {
    let seed = number("CORELANE_SEED", 1);
    let mut dice = Dice(seed);
    let mut broker = start();
    let mut producers = prepare(&broker);
    for kill in 0..kills {
        let moment = Duration::from_millis(30 + dice.below(900));
        producers = load::run(&mut broker, producers, moment);
        if dice.below(KILLED_AT_START) == 0 {
            broker.launch().expect("the broker is launched");
            std::thread::sleep(Duration::from_millis(dice.below(150)));
            broker.kill();
        }
        broker.start().unwrap_or_else(|error| panic!("seed {seed}, kill {kill}: {error}"));
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            verify::everything(&broker, &mut producers);
        }));
        if checked.is_err() {
            let kept = broker.keep();
            panic!("seed {seed}: kill {kill} lost something; see {}", kept.display());
        }
    }
    let records: u64 = producers.iter().map(|producer| producer.acknowledged).sum();
    assert!(records > kills * 20, "only {records} records were acknowledged: no load");
}

fn prepare(broker: &Broker) -> Vec<Producer> {
    let mut client = Client::connect(broker.address()).expect("a connection");
    let mut producers = Vec::new();
    for topic in TOPICS {
        let Topic { name, partitions, configs, .. } = topic;
        assert_eq!(
            client.create_topic(name, *partitions, configs).expect("an answer"),
            0,
            "{name}"
        );
        for partition in 0..*partitions {
            let id = topic.idempotent.then(|| client.producer_id().expect("a producer id"));
            producers.push(Producer::new(topic, partition, producers.len() as u64, id));
        }
    }
    producers
}

#[test]
fn nothing_acknowledged_is_lost_by_ten_kills() {
    kill_again_and_again(number("CORELANE_KILLS", KILLS_SHORT));
}

#[test]
#[ignore = "takes many minutes; the short form runs always"]
fn nothing_acknowledged_is_lost_by_hundreds_of_kills() {
    kill_again_and_again(number("CORELANE_KILLS", KILLS_LONG));
}
