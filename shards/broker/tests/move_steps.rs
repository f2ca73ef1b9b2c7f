//! One move between disks in the simulator, with one file operation of the whole machine failing at
//! every step of it in turn, all others working: a copy, a sync, a rename, the metadata.
//!
//! Whatever fails, the partition takes records again by itself, in one of the two directories, with
//! all that was acknowledged; after a restart too. A broker whose metadata log fails ends, and says
//! so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Outcome, World, with_faults};
use support::{BASE_PORT, Client, Gone, Shards, batch, start_on, values};
use wire::ApiKey;
use wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::messages::alter_replica_log_dirs_response::AlterReplicaLogDirsResponse;

const DIRS: [&str; 2] = ["/disk1", "/disk2"];
const TOPIC: &str = "t";
const RECORDS: usize = 12;
const LONG: Duration = Duration::from_secs(600);

crate::response!(Altered, AlterReplicaLogDirsResponse, borrows);

async fn start() -> (Shards, Client) {
    for dir in DIRS {
        reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
    }
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_on(1, BASE_PORT, &DIRS, &[]);
    started.ready().await;
    let client = Client::connect(started.addresses[0]).await.unwrap();
    (started, client)
}

/// Asks for the move; what is answered does not matter.
async fn move_to(client: &mut Client, dir: &str) -> Result<(), Gone> {
    let topic = AlterReplicaLogDirTopic { name: TOPIC.into(), partitions: vec![0].into() };
    let dir = AlterReplicaLogDir { path: dir.to_owned().into(), topics: vec![topic].into() };
    let request = AlterReplicaLogDirsRequest { dirs: vec![dir].into() };
    let _: AlterReplicaLogDirsResponse<'static> =
        client.call::<_, Altered>(ApiKey::AlterReplicaLogDirs, 2, &request).await?;
    Ok(())
}

/// Until the partition takes it; refusals that clients retry are tried again.
async fn produce(client: &mut Client, value: &[u8]) -> Result<i64, Gone> {
    let bytes = batch(&[value], reactor::wall_clock_ms());
    let begin = reactor::now();
    loop {
        match client.produce(TOPIC, 0, &bytes).await? {
            (0, offset) => return Ok(offset),
            (6 | 56, _) => {}
            other => panic!("produce answered {other:?}"),
        }
        assert!(reactor::now() - begin < LONG, "it takes no records any more");
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

async fn everything(client: &mut Client) -> Result<Vec<Vec<u8>>, Gone> {
    let (mut all, mut next) = (Vec::new(), 0);
    let begin = reactor::now();
    loop {
        let (error, end, bytes) = client.fetch(TOPIC, 0, next, 0).await?;
        if matches!(error, 6 | 56) {
            assert!(reactor::now() - begin < LONG, "it cannot be read any more");
            reactor::sleep(Duration::from_millis(20)).await;
            continue;
        }
        assert_eq!(error, 0, "from {next}");
        let records = values(&bytes);
        let Some((last, _)) = records.last() else {
            assert_eq!(next, end);
            return Ok(all);
        };
        next = last + 1;
        all.extend(records.into_iter().map(|(_, value)| value));
    }
}

fn value(n: usize) -> Vec<u8> {
    let mut value = format!("{n}/").into_bytes();
    value.resize(value.len() + 2_000, b'v');
    value
}

/// Acknowledged records are there in order; one whose answer was an error may be there as well.
fn check(records: &[Vec<u8>], acknowledged: usize, when: &str) {
    let mut wanted = (0..acknowledged).map(value).peekable();
    for record in records {
        wanted.next_if_eq(record);
    }
    let missing = wanted.next().map(|value| value.len());
    assert!(missing.is_none(), "{when}: of {acknowledged} not all are there: {}", records.len());
}

/// Moves the partition while the operation after `step` others fails. Returns whether it came to
/// that.
async fn moved(step: u64, acknowledged: Rc<Cell<usize>>) -> Result<bool, Gone> {
    let (started, mut client) = start().await;
    let small = [("internal.segment.bytes", "8000")];
    assert_eq!(client.create_topic(TOPIC, 1, &small).await?, 0);
    for n in 0..RECORDS {
        produce(&mut client, &value(n)).await?;
        acknowledged.set(n + 1);
    }
    let first = Path::new(DIRS[0]).join("t-0");
    let is_in_first = reactor::fs::exists(&first).await.unwrap();
    let to = DIRS[usize::from(is_in_first)];
    with_faults(|faults| faults.disk.eio_once = Some(step));
    move_to(&mut client, to).await?;
    // Longer than a move takes, and than it takes to open a partition again.
    for n in RECORDS..2 * RECORDS {
        reactor::sleep(Duration::from_millis(500)).await;
        produce(&mut client, &value(n)).await?;
        acknowledged.set(n + 1);
    }
    let struck = with_faults(|faults| faults.disk.eio_once.take()).flatten().is_none();
    check(&everything(&mut client).await?, acknowledged.get(), "before the restart");
    let dirs = (DIRS[usize::from(!is_in_first)], to);
    move_again((&started, &mut client), dirs, step).await?;
    Ok(struck)
}

/// What was left of the first move is not in the way of the next one.
async fn move_again(
    (started, client): (&Shards, &mut Client),
    (from, to): (&'static str, &'static str),
    step: u64,
) -> Result<(), Gone> {
    let is_in = |dir: &'static str| async move {
        reactor::fs::exists(&Path::new(dir).join("t-0")).await.unwrap()
    };
    let has_moved = is_in(to).await && !is_in(from).await;
    let (from, to) = if has_moved { (to, from) } else { (from, to) };
    let begin = reactor::now();
    while !is_in(to).await || is_in(from).await {
        if started.tasks.iter().any(reactor::Task::is_finished) {
            return Err(Gone("the broker has ended".to_owned()));
        }
        move_to(client, to).await?;
        assert!(
            reactor::now() - begin < Duration::from_secs(30),
            "step {step}: it cannot be moved any more"
        );
        reactor::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

#[test]
fn whatever_fails_in_a_move_the_partition_stays_whole() {
    let (mut ended, mut steps) = (0, 0);
    for step in 0.. {
        let mut world = World::new(step);
        let acknowledged = Rc::new(Cell::new(0));
        let ours = acknowledged.clone();
        let ran = world.run(move || moved(step, ours));
        let Outcome::Finished(ran) = ran else { panic!("step {step}: {ran:?}") };
        world.faults().disk.eio_once = None;
        let read = world.run(|| async {
            let (_started, mut client) = start().await;
            let records = everything(&mut client).await.unwrap();
            produce(&mut client, b"more").await.unwrap();
            records
        });
        let Outcome::Finished(records) = read else { panic!("step {step}: {read:?}") };
        check(&records, acknowledged.get(), &format!("step {step}, after a restart"));
        match ran {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => ended += 1,
        }
        steps += 1;
    }
    assert!(steps > 100, "only {steps} steps");
    assert!(ended < steps / 4, "the broker ended {ended} times in {steps} steps");
}
