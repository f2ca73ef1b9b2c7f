//! The producers: what each sends, what it knows to be acknowledged, and what may have happened.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use corelane_tests::Broker;
use wire::records::{BatchBuilder, Codec};

use crate::client::Client;
use crate::{Dice, address_of};

/// Keys of a compacted topic, few enough that most records are superseded.
pub const KEYS: u64 = 50;
/// NOT_LEADER_OR_FOLLOWER: the partition is still being opened.
const NOT_LEADER: i16 = 6;

/// What a topic promises and how its log is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A suffix, as retention leaves it.
    Newest,
    /// The newest value of every key.
    NewestOfKeys,
    /// Acknowledged from memory: a kill may take the end of it.
    Prefix,
}

#[derive(Debug)]
pub struct Topic {
    pub name: &'static str,
    pub partitions: i32,
    pub configs: &'static [(&'static str, &'static str)],
    pub idempotent: bool,
    pub codec: Codec,
    pub kept: Kept,
}

const SMALL: (&str, &str) = ("segment.bytes", "1048576");
/// So that hundreds of kills do not fill the disk.
const BOUNDED: (&str, &str) = ("retention.bytes", "33554432");

pub static TOPICS: &[Topic] = &[
    Topic {
        name: "written",
        partitions: 2,
        configs: &[SMALL, BOUNDED],
        idempotent: true,
        codec: Codec::None,
        kept: Kept::Newest,
    },
    Topic {
        name: "synced",
        partitions: 2,
        configs: &[SMALL, BOUNDED, ("flush.messages", "1")],
        idempotent: true,
        codec: Codec::Lz4,
        kept: Kept::Newest,
    },
    Topic {
        name: "unnumbered",
        partitions: 1,
        configs: &[SMALL, BOUNDED],
        idempotent: false,
        codec: Codec::Snappy,
        kept: Kept::Newest,
    },
    Topic {
        name: "retained",
        partitions: 2,
        configs: &[SMALL, ("retention.bytes", "3145728")],
        idempotent: true,
        codec: Codec::None,
        kept: Kept::Newest,
    },
    Topic {
        name: "compacted",
        partitions: 2,
        configs: &[
            SMALL,
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("segment.ms", "1000"),
        ],
        idempotent: true,
        codec: Codec::Zstd,
        kept: Kept::NewestOfKeys,
    },
    Topic {
        name: "cached",
        partitions: 1,
        configs: &[SMALL, BOUNDED, ("write.caching", "true")],
        idempotent: false,
        codec: Codec::Gzip,
        kept: Kept::Prefix,
    },
];

/// A batch: the numbers of its records, and its bytes if it may have to be sent again.
#[derive(Debug, Clone)]
pub struct Sent {
    pub first: u64,
    pub count: u64,
    pub bytes: Vec<u8>,
}

/// Sends to one partition, one batch at a time.
#[derive(Debug)]
pub struct Producer {
    pub topic: &'static Topic,
    pub partition: i32,
    pub number: u64,
    id: Option<i64>,
    /// The number of the next record, which is its sequence number too.
    next: u64,
    /// Sent, and no answer came.
    pub pending: Option<Sent>,
    /// Numbers of records whose fate nobody knows (without idempotence they cannot be repeated).
    pub unknown: Vec<(u64, u64)>,
    /// By base offset: number of the first record, and how many.
    pub acked: BTreeMap<i64, (u64, u64)>,
    /// Records acknowledged in all.
    pub acknowledged: u64,
    dice: Dice,
}

impl Producer {
    pub fn new(topic: &'static Topic, partition: i32, number: u64, id: Option<i64>) -> Self {
        Producer {
            topic,
            partition,
            number,
            id,
            next: 0,
            pending: None,
            unknown: Vec::new(),
            acked: BTreeMap::new(),
            acknowledged: 0,
            dice: Dice(number),
        }
    }

    fn batch(&mut self) -> Sent {
        let (first, count) = (self.next, 1 + self.dice.below(8));
        let mut builder = BatchBuilder::new().codec(self.topic.codec, None);
        if let Some(id) = self.id {
            builder = builder.producer(id, 0, i32::try_from(first).unwrap());
        }
        // Of now: records of old are retention's, and forgotten with their producers.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now_ms = i64::try_from(now.as_millis()).unwrap();
        for n in first..first + count {
            let value = value(self.number, n);
            let key = key(n);
            builder.append(now_ms, Some(key.as_bytes()), Some(&value));
        }
        self.next += count;
        Sent { first, count, bytes: builder.build().unwrap() }
    }

    /// Sends until the broker is gone.
    fn run(&mut self, broker: &Address) {
        while let Ok(mut client) = Client::connect(broker.0) {
            loop {
                let sent = match self.pending.take() {
                    Some(sent) => sent,
                    None => self.batch(),
                };
                self.pending = Some(sent.clone());
                match client.produce(self.topic.name, self.partition, &sent.bytes) {
                    Ok((0, base)) => {
                        self.pending = None;
                        self.acknowledged += sent.count;
                        let known = self.acked.insert(base, (sent.first, sent.count));
                        let new = (sent.first, sent.count);
                        assert!(known.is_none_or(|known| known == new), "offset {base} twice");
                    }
                    // Refused whole: it can be sent again by anybody.
                    Ok((NOT_LEADER, _)) => std::thread::sleep(Duration::from_millis(5)),
                    Ok((error, _)) => panic!("{}: error {error}", self.topic.name),
                    Err(_) => break,
                }
            }
            if self.id.is_none()
                && let Some(sent) = self.pending.take()
            {
                self.unknown.push((sent.first, sent.count));
            }
        }
    }
}

pub struct Address(std::net::SocketAddr);

/// The key of a record by its number: some are hot.
pub fn key(n: u64) -> String {
    format!("key-{}", n.wrapping_mul(n) % KEYS)
}

/// A value says whose it is and which, and no two are alike.
pub fn value(producer: u64, n: u64) -> Vec<u8> {
    let mut dice = Dice(producer << 32 | n);
    let mut value = [producer.to_be_bytes(), n.to_be_bytes()].concat();
    for _ in 0..dice.below(300) {
        value.extend_from_slice(&dice.below(u64::MAX).to_be_bytes());
    }
    value
}

/// Lets every producer send until the broker is killed after `moment`.
pub fn run(broker: &mut Broker, producers: Vec<Producer>, moment: Duration) -> Vec<Producer> {
    let mut client = Client::connect(broker.address()).expect("a connection");
    let threads: Vec<_> = producers
        .into_iter()
        .map(|mut producer| {
            let leaders = client.leaders(producer.topic.name).expect("metadata");
            let leader = leaders[usize::try_from(producer.partition).unwrap()];
            let address = Address(address_of(broker, leader));
            std::thread::spawn(move || {
                producer.run(&address);
                producer
            })
        })
        .collect();
    std::thread::sleep(moment);
    broker.kill();
    threads.into_iter().map(|thread| thread.join().expect("a producer")).collect()
}
