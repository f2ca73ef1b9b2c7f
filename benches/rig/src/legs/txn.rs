//! Transactions: how many a second, how long they take, what idempotence costs; and on a broker of
//! its own, what a hundred thousand producer ids cost and how soon it is back with them after a
//! restart.

use std::thread;
use std::time::Duration;

use corelane_tests::{Broker, Target};

use super::{Leg, MEBIBYTE, MEMORY, create, on_new_broker, pid};
use crate::cluster::{self, Topic};
use crate::error::Result;
use crate::payload::Batch;
use crate::results::{
    BYTES, CPU_MICROS, CPU_SECONDS, LIVE_HEAP, MEBIBYTES, OTHER_CORES, P50, P99, SECONDS, Section,
    TRANSACTIONS, TRIED_AGAIN,
};
use crate::sample::{Mark, Progress, Windows};
use crate::scale::{CONNECTIONS, IN_FLIGHT, MANY, Scale, Workload};
use crate::txn::ids::{MAKERS, Made};
use crate::txn::rates::{self, Pace};
use crate::txn::{Content, Producer, Protocol, idempotent, ids};
use crate::{disk, first, procfs};

const RECORD_BYTES: usize = 100;
/// Records of a transaction.
const RECORDS: [usize; 3] = [1, 10, 100];
/// Of the rows in which the number is not what is looked at.
const USUAL_RECORDS: usize = 10;
pub const WITH: &str = "idempotent";
pub const WITHOUT: &str = "not idempotent";

impl Leg<'_> {
    pub fn transactions(&mut self) -> Result<()> {
        on_new_broker(self.target, MEMORY, |broker| self.commits_of_many(broker))
    }

    pub fn producer_ids(&mut self) -> Result<()> {
        on_new_broker(self.target, MEMORY, |broker| self.ids_and_back(broker))
    }

    fn commits_of_many(&mut self, broker: &Broker) -> Result<()> {
        let scale = self.scale.txn;
        let topic = create(broker, "written", MANY, &[])?;
        self.say("transactions, warming up");
        let mut warm = open(broker, &topic, Protocol::New, scale.ids, "warm")?;
        let windows = Windows { warmup: scale.unmeasured, length: Duration::ZERO, count: 0 };
        rates::run_windows(&mut warm, &content(USUAL_RECORDS), pid(broker)?, &windows)?;
        drop(warm);
        for protocol in [Protocol::New, Protocol::Old] {
            for count in [1, scale.ids] {
                for records in RECORDS {
                    if protocol == Protocol::New || records == USUAL_RECORDS {
                        self.closed(broker, &topic, protocol, count, records)?;
                    }
                }
            }
        }
        self.paced(broker, &topic)?;
        self.say("produce with and without idempotence");
        for workload in [Scale::usual(), Workload { partitions: 1, ..Scale::usual() }] {
            self.idempotence(broker, &workload)?;
        }
        Ok(())
    }

    /// One transaction after the other, as fast as the answers come.
    fn closed(
        &mut self,
        broker: &Broker,
        topic: &Topic,
        protocol: Protocol,
        count: usize,
        records: usize,
    ) -> Result<()> {
        disk::drain();
        let row = format!("{protocol}, {}, {}", of_ids(count), of_records(records));
        self.say(&row);
        let name = format!("{}-{count}-{records}", protocol == Protocol::New);
        let mut producers = open(broker, topic, protocol, count, &name)?;
        let (content, windows) = (content(records), self.scale.txn.windows);
        let figures = rates::run_windows(&mut producers, &content, pid(broker)?, &windows)?;
        for sample in &figures.samples {
            let cpu = sample.broker_cpu_seconds * 1e6 / sample.records;
            self.add(Section::Transactions, &row, TRANSACTIONS, sample.records_per_second());
            self.add(Section::Transactions, &row, CPU_MICROS, cpu);
            self.add(Section::Transactions, &row, OTHER_CORES, sample.other_cores());
        }
        self.add(Section::Transactions, &row, TRIED_AGAIN, figures.tried_again);
        let whole = format!("{row}: one whole, closed loop");
        let commit = format!("{row}: its EndTxn alone, closed loop");
        for (row, times) in [(whole, figures.whole), (commit, figures.commit)] {
            for (measure, quantile) in [(P50, 0.5), (P99, 0.99)] {
                let millis = times.value_at_quantile(quantile) as f64 / 1e3;
                self.add(Section::Transactions, &row, measure, millis);
            }
        }
        Ok(())
    }

    /// At a fixed rate, from the moment at which each was due.
    fn paced(&mut self, broker: &Broker, topic: &Topic) -> Result<()> {
        disk::drain();
        let scale = self.scale.txn;
        let rate = scale.paced_per_second;
        let (ids, records) = (of_ids(scale.ids), of_records(USUAL_RECORDS));
        let row =
            format!("{rate} transactions/s over {ids}, {records}: until committed, open loop");
        self.say(&row);
        let mut producers = open(broker, topic, Protocol::New, scale.ids, "paced")?;
        let pace =
            Pace { per_second: rate, warmup: scale.paced_warmup, length: scale.paced_length };
        let idle = Progress::default();
        let from = Mark::now(&idle, pid(broker)?)?;
        let times = rates::run_paced(&mut producers, &content(USUAL_RECORDS), &pace)?;
        let spent = from.until(&Mark::now(&idle, pid(broker)?)?);
        self.add_latencies(Section::Transactions, &row, &times);
        self.add(Section::Transactions, &row, OTHER_CORES, spent.other_cores());
        Ok(())
    }

    /// Without, with, with, without: a drift of the machine hits both.
    fn idempotence(&mut self, broker: &Broker, workload: &Workload) -> Result<()> {
        let batch = Batch::build(workload.record_bytes, workload.batch_bytes)?;
        for (number, idempotent) in [false, true, true, false].into_iter().enumerate() {
            disk::drain();
            let name = format!("idempotence-{}-{number}", workload.partitions);
            let topic = create(broker, &name, workload.partitions, &[])?;
            let load = idempotent::Load {
                topic: &topic,
                batch: &batch,
                connections: CONNECTIONS,
                in_flight: IN_FLIGHT,
                idempotent,
            };
            let windows = &self.scale.txn.produce_windows;
            let samples = idempotent::run_windows(&load, pid(broker)?, windows)?;
            let which = if idempotent { WITH } else { WITHOUT };
            let row = format!("produce, {}: {which}", workload.title());
            self.results.add_samples(self.target, Section::Transactions, &row, &samples);
            super::delete(broker, &topic)?;
        }
        Ok(())
    }

    fn ids_and_back(&mut self, broker: &mut Broker) -> Result<()> {
        let count = self.scale.txn.producer_ids;
        let few = create(broker, "few", 1, &[])?;
        let many = create(broker, "many", 1, &[])?;
        self.say(&format!("{count} batches of {MAKERS} producers, twice"));
        // The first time for what a broker needs when it works at all.
        ids::make_by_few(&few, count)?;
        let before = self.held(broker)?;
        ids::make_by_few(&few, count)?;
        let without = self.held(broker)?;
        self.say(&format!("{count} batches of as many producers"));
        let made = ids::make(&many, count)?;
        let with = self.held(broker)?;
        self.growth(&format!("memory growth over {count} batches of {MAKERS} producers"), {
            [before, without]
        });
        let row = format!("memory growth over {count} batches of as many producers");
        self.growth(&row, [without, with]);
        self.state_of_ids(count, [before, without, with]);
        let some = ids::some_of(&made)?;
        ids::check_known(&many, &some)?;

        self.say("restart after SIGKILL");
        broker.kill();
        self.back_with_ids(broker, &many, &some, "SIGKILL")?;
        self.say("clean stop and restart");
        broker.stop()?;
        self.back_with_ids(broker, &many, &some, "a clean stop")
    }

    /// What the process holds when nothing goes on.
    fn held(&self, broker: &Broker) -> Result<Held> {
        thread::sleep(self.scale.txn.idle);
        let pid = pid(broker)?;
        let resident = procfs::memory(pid)?.now;
        let live_heap = match self.target {
            Target::ApacheKafka => procfs::live_heap(pid),
            Target::Corelane => None,
        };
        Ok(Held { resident, live_heap })
    }

    fn growth(&mut self, row: &str, [from, to]: [Held; 2]) {
        let resident = (to.resident - from.resident) / MEBIBYTE;
        self.add(Section::Transactions, row, MEBIBYTES, resident);
        if let (Some(from), Some(to)) = (from.live_heap, to.live_heap) {
            self.add(Section::Transactions, row, LIVE_HEAP, (to - from) / MEBIBYTE);
        }
    }

    /// What the ids took beyond the batches. Kafka's resident memory grows by garbage and shrinks
    /// by its own rules, so that its live heap is what counts, where it can be had.
    fn state_of_ids(&mut self, count: usize, [before, without, with]: [Held; 3]) {
        let beyond = |of: fn(&Held) -> Option<f64>| {
            Some((of(&with)? - of(&without)?) - (of(&without)? - of(&before)?))
        };
        let bytes = match self.target {
            Target::ApacheKafka => beyond(|held| held.live_heap),
            Target::Corelane => beyond(|held| Some(held.resident)),
        };
        let Some(bytes) = bytes else { return };
        let row = format!("what {count} producer ids take beyond their batches");
        self.add(Section::Transactions, &row, MEBIBYTES, bytes / MEBIBYTE);
        self.add(Section::Transactions, &format!("{row}: each"), BYTES, bytes / count as f64);
    }

    fn back_with_ids(
        &mut self,
        broker: &mut Broker,
        topic: &Topic,
        some: &[Made],
        end: &str,
    ) -> Result<()> {
        let launched = broker.launch()?;
        let accepted = first::accepted_produces(broker.address(), &topic.name, launched)?;
        let [took, _] = accepted.map(|time| time.as_secs_f64());
        let cpu = procfs::cpu_seconds(pid(broker)?)?;
        let count = self.scale.txn.producer_ids;
        let row = format!("start after {end} with {count} producer ids: first accepted produce");
        self.add(Section::Transactions, &row, SECONDS, took);
        self.add(Section::Transactions, &row, CPU_SECONDS, cpu);
        let topic = cluster::await_leaders(broker.address(), &topic.name, 1)?;
        ids::check_known(&topic, some)
    }
}

/// Memory of a broker at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    resident: f64,
    live_heap: Option<f64>,
}

fn content(records: usize) -> Content {
    Content { records, record_bytes: RECORD_BYTES }
}

fn open(
    broker: &Broker,
    topic: &Topic,
    protocol: Protocol,
    count: usize,
    name: &str,
) -> Result<Vec<Producer>> {
    let producer = |number: usize| {
        let id = format!("{name}-{number}");
        let producer = Producer::open(broker.address(), &id, topic, protocol)?;
        Ok(producer.starting_at(number))
    };
    (0..count).map(producer).collect()
}

fn of_ids(count: usize) -> String {
    match count {
        1 => "1 transactional id".to_owned(),
        count => format!("{count} transactional ids"),
    }
}

fn of_records(count: usize) -> String {
    match count {
        1 => format!("1 record of {RECORD_BYTES} B each"),
        count => format!("{count} records of {RECORD_BYTES} B each"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{BROKER_CPU, RECORDS as RECORDS_A_SECOND, Results};
    use crate::scale::TxnScale;

    /// Every step of the legs against Corelane, with a handful of everything.
    #[test]
    fn the_legs_measure_everything_of_a_few_transactions() {
        let scale = Scale { txn: TxnScale::smoke(), ..Scale::quick() };
        let mut results = Results::default();
        let mut leg = Leg { target: Target::Corelane, scale: &scale, results: &mut results };
        leg.transactions().unwrap();
        leg.producer_ids().unwrap();
        let has = |row: &str, measure| {
            let line = results.lines.iter().find(|l| l.row == row && l.measure == measure);
            let line = line.unwrap_or_else(|| panic!("no line {row}"));
            assert!(line.of(Target::Corelane).iter().all(|value| value.is_finite()), "{line:?}");
            line.of(Target::Corelane).len()
        };
        let windows = scale.txn.windows.count;
        for ids in ["1 transactional id", "3 transactional ids"] {
            for records in ["1 record", "10 records", "100 records"] {
                let row = format!("KIP-890, {ids}, {records} of 100 B each");
                assert_eq!(has(&row, TRANSACTIONS), windows);
                assert_eq!(has(&row, CPU_MICROS), windows);
                assert_eq!(has(&format!("{row}: one whole, closed loop"), P99), 1);
                assert_eq!(has(&format!("{row}: its EndTxn alone, closed loop"), P50), 1);
            }
            let old = format!("old protocol, {ids}, 10 records of 100 B each");
            assert_eq!(has(&old, TRANSACTIONS), windows);
        }
        let paced = "20 transactions/s over 3 transactional ids, 10 records of 100 B each: until \
                     committed, open loop";
        assert_eq!(has(paced, P99), 1);
        for partitions in ["1 partition", "12 partitions"] {
            for which in [WITH, WITHOUT] {
                let row = format!("produce, 1 KiB records, 16 KiB batches, {partitions}: {which}");
                assert_eq!(has(&row, BROKER_CPU), 2);
                assert_eq!(has(&row, RECORDS_A_SECOND), 2);
            }
        }
        assert_eq!(has("memory growth over 400 batches of as many producers", MEBIBYTES), 1);
        assert_eq!(has("what 400 producer ids take beyond their batches: each", BYTES), 1);
        for end in ["SIGKILL", "a clean stop"] {
            let row = format!("start after {end} with 400 producer ids: first accepted produce");
            assert_eq!(has(&row, SECONDS), 1);
        }
        assert!(results.failures.is_empty(), "{:?}", results.failures);
    }
}
