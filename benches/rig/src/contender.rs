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
    Corelane,
    CorelaneFlush,
}

use Contender::{Corelane, CorelaneFlush, Kafka, KafkaFlush};

/// In the order of columns.
pub const ALL: [Contender; 4] = [Kafka, KafkaFlush, CorelaneFlush, Corelane];

/// The second of each is held against the first: both promise the same, or the second promises
/// more, where the first has nothing in between.
pub const PAIRS: [(Contender, Contender); 2] = [(Kafka, Corelane), (KafkaFlush, CorelaneFlush)];

const FLUSH: [(&str, &str); 1] = [("log.flush.interval.messages", "1")];

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Kafka => "Apache Kafka",
            KafkaFlush => "Apache Kafka, flushing",
            Corelane => "Corelane",
            CorelaneFlush => "Corelane, flushing",
        }
    }

    /// Fit for a file name.
    pub fn id(self) -> &'static str {
        match self {
            Kafka => "kafka",
            KafkaFlush => "kafka-flush",
            Corelane => "corelane",
            CorelaneFlush => "corelane-flush",
        }
    }

    pub fn target(self) -> Target {
        match self {
            Kafka | KafkaFlush => Target::ApacheKafka,
            Corelane | CorelaneFlush => Target::Corelane,
        }
    }

    /// Whether an acknowledgement waits for the device's own cache.
    pub fn flushes(self) -> bool {
        matches!(self, KafkaFlush | CorelaneFlush)
    }

    /// On top of those that all have.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        if self.flushes() { &FLUSH } else { &[] }
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
