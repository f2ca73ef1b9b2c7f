//! Who is measured: Corelane, Apache Kafka, their twins that flush every batch, and other brokers.
//!
//! Says of each what its acknowledgement means, how it is told to, and whose promise is the same,
//! so that equal durability stands beside equal durability. Starts nothing.

use corelane_tests::Target;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    Kafka,
    /// A broker of its own, whose default for every topic is to flush each batch.
    KafkaFlush,
    Nats,
    NatsFlush,
    Tansu,
    Corelane,
    CorelaneFlush,
}

use Contender::{Corelane, CorelaneFlush, Kafka, KafkaFlush, Nats, NatsFlush, Tansu};

/// In the order of columns and of the first pass: Kafka, which sets the pace, first.
pub const ALL: [Contender; 7] =
    [Kafka, KafkaFlush, Nats, NatsFlush, Tansu, CorelaneFlush, Corelane];

/// The second of each is held against the first: both promise the same, or the second promises
/// more, where the first has nothing in between.
pub const PAIRS: [(Contender, Contender); 5] = [
    (Kafka, Corelane),
    (KafkaFlush, CorelaneFlush),
    (Nats, Corelane),
    (NatsFlush, CorelaneFlush),
    (Tansu, Corelane),
];

const FLUSH: [(&str, &str); 1] = [("log.flush.interval.messages", "1")];
const SYNC_ALWAYS: [(&str, &str); 1] = [("sync_interval", "always")];
const LIBSQL: [(&str, &str); 1] = [("storage-engine", "sqlite://tansu.db (libSQL)")];

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Kafka => "Apache Kafka",
            KafkaFlush => "Apache Kafka, flushing",
            Nats => "NATS JetStream",
            NatsFlush => "NATS JetStream, syncing",
            Tansu => "Tansu",
            Corelane => "Corelane",
            CorelaneFlush => "Corelane, flushing",
        }
    }

    /// Fit for a file name.
    pub fn id(self) -> &'static str {
        match self {
            Kafka => "kafka",
            KafkaFlush => "kafka-flush",
            Nats => "nats",
            NatsFlush => "nats-sync",
            Tansu => "tansu",
            Corelane => "corelane",
            CorelaneFlush => "corelane-flush",
        }
    }

    /// Of those that the harness starts; the others are peers.
    pub fn target(self) -> Option<Target> {
        match self {
            Kafka | KafkaFlush => Some(Target::ApacheKafka),
            Corelane | CorelaneFlush => Some(Target::Corelane),
            Nats | NatsFlush | Tansu => None,
        }
    }

    /// Whose maximum sets the rate of its open loops: Kafka's for Corelane's too, its own for
    /// what cannot be expected to keep up with it.
    pub fn pacemaker(self) -> Self {
        match self {
            Kafka | Corelane => Kafka,
            KafkaFlush | CorelaneFlush => KafkaFlush,
            Nats | NatsFlush | Tansu => self,
        }
    }

    /// Whether an acknowledgement waits for the device's own cache.
    pub fn flushes(self) -> bool {
        matches!(self, KafkaFlush | CorelaneFlush | NatsFlush)
    }

    /// On top of those that all have.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            KafkaFlush | CorelaneFlush => &FLUSH,
            NatsFlush => &SYNC_ALWAYS,
            Tansu => &LIBSQL,
            Kafka | Corelane | Nats => &[],
        }
    }

    /// What an acknowledgement means.
    pub fn durability(self) -> &'static str {
        match self {
            KafkaFlush | CorelaneFlush => {
                "acks=all: on the device and its cache flushed (flush.messages=1)"
            }
            Kafka => {
                "acks=all: in the page cache, written to the device later; a crash of the process \
                 loses nothing, one of the machine may"
            }
            Corelane => {
                "acks=all: written to the device by direct I/O, the device's own cache not flushed; a \
                 crash of the process loses nothing, a loss of power may"
            }
            Nats => {
                "acknowledged message by message: in the page cache, synced every two minutes \
                 (sync_interval, its default); a crash of the process loses nothing, one of the \
                 machine may"
            }
            NatsFlush => {
                "acknowledged message by message: on the device and its cache flushed \
                 (sync_interval: always)"
            }
            Tansu => {
                "acks=all: committed to SQLite (write-ahead log, synchronous=normal): in the page cache, \
                 synced at checkpoints; a crash of the process loses nothing, one of the machine may"
            }
        }
    }
}

impl From<Target> for Contender {
    fn from(target: Target) -> Self {
        match target {
            Target::ApacheKafka => Kafka,
            Target::Corelane => Corelane,
        }
    }
}

/// As the command line has them.
impl std::str::FromStr for Contender {
    type Err = String;

    fn from_str(id: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|contender| contender.id() == id);
        found.ok_or_else(|| {
            let known: Vec<_> = ALL.into_iter().map(Contender::id).collect();
            format!("one of {}", known.join(", "))
        })
    }
}
