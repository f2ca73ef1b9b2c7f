//! A whole shard in the simulator: produce, crash the disk at a random point, recover, and every
//! acknowledged record is there; the same seed gives the same trace.
//!
//! A failing seed is added to `SEEDS_KEPT`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Choices, Crash, Outcome, World};
use support::{BASE_PORT, Client, Gone, batch, start_shards, values};

const DATA_DIR: &str = "/data";
const TOPIC: &str = "t";
const PARTITIONS: i32 = 3;
/// Seeds that have failed once.
const SEEDS_KEPT: [u64; 2] = [1010, 1095];
/// Seeds of one test; `SIM_SEEDS` asks for more.
const SEEDS: u64 = 20;
const RUNS_PER_SEED: usize = 3;

/// Acknowledged records: partition, offset and value.
type Acknowledged = Rc<RefCell<Vec<(i32, i64, Vec<u8>)>>>;

#[derive(Clone, Copy)]
struct Case {
    crash: Crash,
    settings: &'static [(&'static str, &'static str)],
}

/// At the default level any crash of the process is survived.
const PROCESS: Case =
    Case { crash: Crash::Process, settings: &[("internal.segment.bytes", "20000")] };
/// With every write synced a power cut is survived too.
const POWER: Case = Case {
    crash: Crash::Power,
    settings: &[("flush.messages", "1"), ("internal.segment.bytes", "20000")],
};

/// The data directory as the process makes it before the shards start.
async fn format() {
    let dir = Path::new(DATA_DIR);
    reactor::fs::create_dir_all(dir).await.expect("the disk works");
    reactor::fs::sync_dir(Path::new("/")).await.expect("the disk works");
}

async fn produce_forever(seed: u64, acknowledged: Acknowledged, case: Case) {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let Ok(mut client) = Client::connect(shards.addresses[0]).await else { return };
    let created = client.create_topic(TOPIC, PARTITIONS, case.settings).await.expect("create");
    assert!(created == 0 || created == 36, "create answered {created}");
    let mut choices = Choices(seed);
    for number in 0.. {
        let partition = choices.below(PARTITIONS as u64) as i32;
        let count = 1 + choices.below(4);
        let mut payloads = Vec::new();
        for record in 0..count {
            let size = choices.below(3000) as usize;
            let mut value = format!("{number}/{record}/").into_bytes();
            value.resize(value.len() + size, b'a' + (number % 26) as u8);
            payloads.push(value);
        }
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let bytes = batch(&slices, reactor::wall_clock_ms());
        let (error, base) = client.produce(TOPIC, partition, &bytes).await.expect("produce");
        assert_eq!(error, 0);
        let mut acknowledged = acknowledged.borrow_mut();
        for (offset, value) in (base..).zip(payloads) {
            acknowledged.push((partition, offset, value));
        }
    }
}

async fn read_everything() -> Vec<Vec<(i64, Vec<u8>)>> {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let mut client = Client::connect(shards.addresses[0]).await.expect("connect");
    let mut partitions = Vec::new();
    for partition in 0..PARTITIONS {
        let mut all = Vec::new();
        let mut next = 0;
        loop {
            let (error, end, bytes) = client.fetch(TOPIC, partition, next, 0).await.expect("fetch");
            if error == 3 {
                // The crash came before the topic was created.
                break;
            }
            assert_eq!(error, 0, "partition {partition} from {next}");
            let records = values(&bytes);
            let Some((last, _)) = records.last() else {
                assert_eq!(next, end, "everything below the high watermark can be read");
                break;
            };
            next = last + 1;
            all.extend(records);
        }
        partitions.push(all);
    }
    partitions
}

/// One seed: some runs that end in a crash, each followed by a check. Returns the trace.
fn history(seed: u64, case: Case) -> u64 {
    let mut world = World::new(seed);
    let mut choices = Choices(seed ^ 0x5eed);
    let acknowledged: Acknowledged = Rc::default();
    for run in 0..RUNS_PER_SEED {
        world.crash_after(40 + choices.below(1500), case.crash);
        let produced = acknowledged.clone();
        let choice = choices.roll();
        let outcome = world.run(move || produce_forever(choice, produced, case));
        assert!(matches!(outcome, Outcome::Crashed(_)), "seed {seed} run {run}: {outcome:?}");
        let Outcome::Finished(partitions) = world.run(read_everything) else {
            panic!("seed {seed} run {run}: the broker did not come back");
        };
        for (partition, offset, value) in acknowledged.borrow().iter() {
            let records = &partitions[*partition as usize];
            let found = records.iter().find(|(at, _)| at == offset).map(|(_, value)| value);
            assert!(
                found == Some(value),
                "seed {seed} run {run}: partition {partition} offset {offset} was acknowledged, of {} \
                 there are {}",
                value.len(),
                records.len()
            );
        }
        for records in &partitions {
            let offsets: Vec<i64> = records.iter().map(|(offset, _)| *offset).collect();
            assert_eq!(offsets, (0..records.len() as i64).collect::<Vec<_>>(), "no gaps");
        }
    }
    world.trace_hash()
}

fn seeds() -> u64 {
    std::env::var("SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn acknowledged_records_survive_a_crash_of_the_process() {
    for seed in SEEDS_KEPT.into_iter().chain(0..seeds()) {
        history(seed, PROCESS);
    }
}

#[test]
fn synced_records_survive_a_power_cut() {
    for seed in SEEDS_KEPT.into_iter().chain(1000..1000 + seeds()) {
        history(seed, POWER);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [7, 8, 9] {
        assert_eq!(history(seed, PROCESS), history(seed, PROCESS), "seed {seed}");
    }
    assert_ne!(history(7, PROCESS), history(8, PROCESS), "the trace depends on the seed");
}

/// Forty clients send a part of a large request and stop: they hold most of the shard's memory for
/// requests (64 of 256 MiB), and wait for more.
async fn produce_beside_half_requests() -> Result<(i16, i64), Gone> {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let address = shards.addresses[0];
    let begin = reactor::now();
    let sent = Rc::new(Cell::new(0usize));
    let mut halves = Vec::new();
    for _ in 0..40 {
        let mut half = Client::connect(address).await?;
        half.send_bytes(&(64i32 << 20).to_be_bytes()).await?;
        let sent = sent.clone();
        halves.push(reactor::spawn(async move {
            let chunk = vec![0; 1 << 20];
            for _ in 0..20 {
                half.send_bytes(&chunk).await?;
                sent.set(sent.get() + chunk.len());
            }
            half.receive().await
        }));
    }
    while sent.get() < 20 << 20 {
        reactor::sleep(Duration::from_millis(1)).await;
    }
    let mut client = Client::connect(address).await?;
    // Small requests pass all the same.
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await?, 0);
    let value = vec![b'v'; 500_000];
    let bytes = batch(&[&value], reactor::wall_clock_ms());
    let before = reactor::now();
    let answer = client.produce(TOPIC, 0, &bytes).await?;
    assert!(
        reactor::now() - before < Duration::from_secs(1),
        "it waited for somebody to be closed"
    );
    // A large one waits for its turn.
    let large = Client::connect(address).await?;
    let large = reactor::spawn(async move {
        let mut large = large;
        let value = vec![b'v'; 2 << 20];
        let bytes = batch(&[&value], reactor::wall_clock_ms());
        large.produce(TOPIC, 0, &bytes).await
    });
    // Whichever held the memory was closed for it, long before it would have been idle.
    while !halves.iter().any(|half| half.is_finished()) {
        assert!(reactor::now() - begin < Duration::from_secs(60), "nobody was closed");
        reactor::sleep(Duration::from_secs(1)).await;
    }
    // Larger than the topic takes, but read and answered.
    assert_eq!(large.await?.0, 10);
    Ok(answer)
}

#[test]
fn half_requests_that_use_up_the_memory_are_closed_in_the_end() {
    let outcome = World::new(1).run(produce_beside_half_requests);
    assert!(matches!(outcome, Outcome::Finished(Ok((0, 0)))), "{outcome:?}");
}

/// A record of five megabytes beside requests of a hundred that come in drops: it does not wait for them,
/// and in the end they are closed, though they never stop.
async fn produce_beside_trickles() -> Result<(), Gone> {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let address = shards.addresses[0];
    let begin = reactor::now();
    let mut trickles = Vec::new();
    for _ in 0..20 {
        let mut trickle = Client::connect(address).await?;
        trickle.send_bytes(&(100i32 << 20).to_be_bytes()).await?;
        trickles.push(reactor::spawn(async move {
            loop {
                if let Err(gone) = trickle.send_bytes(&[0; 1024]).await {
                    break gone;
                }
                reactor::sleep(Duration::from_secs(1)).await;
            }
        }));
    }
    reactor::sleep(Duration::from_millis(500)).await;
    let mut client = Client::connect(address).await?;
    let large = [("max.message.bytes", "8000000")];
    assert_eq!(client.create_topic(TOPIC, 1, &large).await?, 0);
    let value = vec![b'v'; 5 << 20];
    let bytes = batch(&[&value], reactor::wall_clock_ms());
    let before = reactor::now();
    assert_eq!(client.produce(TOPIC, 0, &bytes).await?, (0, 0));
    assert!(reactor::now() - before < Duration::from_secs(1), "it waited for the trickles");
    while !trickles.iter().any(|trickle| trickle.is_finished()) {
        assert!(reactor::now() - begin < Duration::from_secs(60), "nobody was closed");
        reactor::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

#[test]
fn a_large_record_does_not_wait_for_requests_that_come_in_drops() {
    let outcome = World::new(2).run(produce_beside_trickles);
    assert!(matches!(outcome, Outcome::Finished(Ok(()))), "{outcome:?}");
}

/// Fills a small disk, then makes it larger: producers are refused meanwhile and nothing else is.
async fn produce_through_a_full_disk() {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let mut client = Client::connect(shards.addresses[0]).await.expect("connect");
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
    let value = vec![b'v'; 100_000];
    let bytes = batch(&[&value], reactor::wall_clock_ms());
    let mut acknowledged = 0;
    let refused = loop {
        match client.produce(TOPIC, 0, &bytes).await.expect("produce") {
            (0, offset) => {
                assert_eq!(offset, acknowledged);
                acknowledged += 1;
            }
            (error, _) => break error,
        }
        assert!(acknowledged < 1000, "the disk is never full");
        reactor::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(refused, 56, "a storage error, which clients retry");
    assert!(acknowledged > 0);
    let (error, end, records) = client.fetch(TOPIC, 0, 0, 0).await.expect("fetch");
    assert_eq!((error, end), (0, acknowledged), "reading goes on");
    assert_eq!(values(&records).first(), Some(&(0, value)));
    reactor::sim::with_faults(|faults| faults.disk.capacity = Some(256 << 20));
    let begin = reactor::now();
    loop {
        if let (0, offset) = client.produce(TOPIC, 0, &bytes).await.expect("produce") {
            assert_eq!(offset, acknowledged, "no offset was used up by what was refused");
            break;
        }
        assert!(reactor::now() - begin < Duration::from_secs(60), "producing never went on");
        reactor::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn a_full_disk_refuses_producers_until_there_is_space() {
    for capacity in [4 << 20, 9_000_000, 16 << 20] {
        let mut world = World::new(capacity);
        world.faults().disk.capacity = Some(capacity);
        let outcome = world.run(produce_through_a_full_disk);
        assert!(matches!(outcome, Outcome::Finished(())), "{capacity} bytes: {outcome:?}");
    }
}

/// The same without the watermark's help: the disk fills faster than anyone looks at it.
async fn produce_into_a_failing_write() {
    format().await;
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    shards.ready().await;
    let mut client = Client::connect(shards.addresses[0]).await.expect("connect");
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
    let value = vec![b'v'; 100_000];
    let bytes = batch(&[&value], reactor::wall_clock_ms());
    let mut acknowledged = 0;
    while let (0, _) = client.produce(TOPIC, 0, &bytes).await.expect("produce") {
        acknowledged += 1;
        assert!(acknowledged < 1000, "the disk is never full");
    }
    reactor::sim::with_faults(|faults| faults.disk.capacity = Some(256 << 20));
    let begin = reactor::now();
    while client.produce(TOPIC, 0, &bytes).await.expect("produce") != (0, acknowledged) {
        assert!(reactor::now() - begin < Duration::from_secs(60), "the log was never opened again");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    let (error, end, _) = client.fetch(TOPIC, 0, 0, 0).await.expect("fetch");
    assert_eq!((error, end), (0, acknowledged + 1));
}

#[test]
fn a_log_that_ran_out_of_space_is_opened_again() {
    let mut world = World::new(5);
    world.faults().disk.capacity = Some(6 << 20);
    let outcome = world.run(produce_into_a_failing_write);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
