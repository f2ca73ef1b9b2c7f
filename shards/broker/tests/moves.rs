//! Moves in the simulator: between disks under load, with a crash at any point; and from core to
//! core. A failing seed is added to `SEEDS_KEPT`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Crash, Delay, Outcome, World, with_faults};
use support::{BASE_PORT, Client, batch, directory_id, start_on, values};
use wire::ApiKey;
use wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::messages::alter_replica_log_dirs_response::AlterReplicaLogDirsResponse;
use wire::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use wire::messages::describe_log_dirs_response::DescribeLogDirsResponse;
use wire::records::BatchBuilder;

const DIRS: [&str; 2] = ["/disk1", "/disk2"];
const TOPIC: &str = "t";
const SMALL_SEGMENTS: [(&str, &str); 1] = [("internal.segment.bytes", "20000")];
const SEEDS_KEPT: [u64; 0] = [];
/// Seeds of one test; `SIM_SEEDS` asks for more.
const SEEDS: u64 = 16;

crate::response!(Altered, AlterReplicaLogDirsResponse, borrows);
crate::response!(Described, DescribeLogDirsResponse, borrows);

type Acknowledged = Rc<RefCell<Vec<(i64, Vec<u8>)>>>;

async fn start(shards: u16) -> Vec<Client> {
    for dir in DIRS {
        reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
    }
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_on(shards, BASE_PORT, &DIRS, &[]);
    started.ready().await;
    let mut clients = Vec::new();
    for address in &started.addresses {
        clients.push(Client::connect(*address).await.unwrap());
    }
    std::mem::forget(started);
    clients
}

async fn alter(client: &mut Client, dir: &str, partition: i32) -> i16 {
    let topic = AlterReplicaLogDirTopic { name: TOPIC.into(), partitions: vec![partition].into() };
    let dir = AlterReplicaLogDir { path: dir.to_owned().into(), topics: vec![topic].into() };
    let request = AlterReplicaLogDirsRequest { dirs: vec![dir].into() };
    let answer: AlterReplicaLogDirsResponse<'static> =
        client.call::<_, Altered>(ApiKey::AlterReplicaLogDirs, 2, &request).await.unwrap();
    let topic = answer.results.first().unwrap();
    topic.partitions.first().unwrap().error_code
}

/// Where partition 0 is, and where a copy is being made.
async fn place(client: &mut Client) -> (Option<String>, Option<String>) {
    let request = DescribeLogDirsRequest { topics: None };
    let answer: DescribeLogDirsResponse<'static> =
        client.call::<_, Described>(ApiKey::DescribeLogDirs, 4, &request).await.unwrap();
    let mut place = (None, None);
    for dir in answer.results.iter() {
        for topic in dir.topics.iter() {
            for partition in topic.partitions.iter().filter(|p| p.partition_index == 0) {
                let known = if partition.is_future_key { &mut place.1 } else { &mut place.0 };
                assert_eq!(known.replace(dir.log_dir.to_string()), None, "told twice");
            }
        }
    }
    place
}

/// Produces until told to stop; a refusal that clients retry is tried again.
async fn produce_on(seed: u64, acknowledged: Acknowledged) {
    let address = support::addresses(1, BASE_PORT)[0];
    let mut client = Client::connect(address).await.unwrap();
    for number in 0.. {
        let mut value = format!("{seed}/{number}/").into_bytes();
        value.resize(value.len() + (number * 37) % 3000, b'v');
        let bytes = batch(&[&value], reactor::wall_clock_ms());
        loop {
            match client.produce(TOPIC, 0, &bytes).await.unwrap() {
                (0, offset) => {
                    acknowledged.borrow_mut().push((offset, value));
                    break;
                }
                // Between closing and opening.
                (6, _) => reactor::sleep(Duration::from_millis(1)).await,
                (error, _) => panic!("produce answered {error}"),
            }
        }
    }
}

async fn everything(client: &mut Client) -> Vec<(i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut next = 0;
    loop {
        let (error, end, bytes) = client.fetch(TOPIC, 0, next, 0).await.unwrap();
        if error == 6 {
            reactor::sleep(Duration::from_millis(1)).await;
            continue;
        }
        assert_eq!(error, 0, "from {next}");
        let records = values(&bytes);
        let Some((last, _)) = records.last() else {
            assert_eq!(next, end);
            return all;
        };
        next = last + 1;
        all.extend(records);
    }
}

fn check(acknowledged: &Acknowledged, records: &[(i64, Vec<u8>)]) {
    for (offset, value) in acknowledged.borrow().iter() {
        let found = records.get(*offset as usize).map(|(_, value)| value);
        assert!(found == Some(value), "offset {offset} of {}", records.len());
    }
    let offsets: Vec<i64> = records.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..records.len() as i64).collect::<Vec<_>>(), "no gaps");
}

/// Moves the partition to and fro under load.
async fn move_to_and_fro(acknowledged: Acknowledged, moves: usize) {
    let mut client = start(1).await.remove(0);
    let created = client.create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap();
    assert!(created == 0 || created == 36);
    let producing = reactor::spawn(produce_on(reactor::random_u64(), acknowledged.clone()));
    for _ in 0..moves {
        let more = acknowledged.borrow().len() + 40;
        while acknowledged.borrow().len() < more {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let (Some(from), _) = place(&mut client).await else { panic!("it is nowhere") };
        let to = DIRS.into_iter().find(|dir| *dir != from).unwrap();
        assert_eq!(alter(&mut client, to, 0).await, 0);
        while place(&mut client).await != (Some(to.to_owned()), None) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(producing);
    let records = everything(&mut client).await;
    check(&acknowledged, &records);
}

#[test]
fn a_partition_moves_between_disks_under_load() {
    for seed in 0..2 {
        let acknowledged = Acknowledged::default();
        let ours = acknowledged.clone();
        let outcome = World::new(seed).run(move || move_to_and_fro(ours, 4));
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
        assert!(acknowledged.borrow().len() > 150);
    }
}

/// The folders that hold something of the partition, by disk.
fn folders(world: &mut World) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for (path, _) in world.disk().files() {
        let folder = path.parent().unwrap().to_path_buf();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("t-0") && !name.ends_with("-delete") && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Returns how many of the crashes left a copy that was being made.
fn crash_while_moving(seed: u64, kind: Crash) -> usize {
    let mut amid = 0;
    let mut world = World::new(seed);
    let acknowledged = Acknowledged::default();
    for run in 0..3 {
        world.crash_after(150 + (seed * 7919 + run * 131) % 1900, kind);
        let ours = acknowledged.clone();
        let crashed = world.run(move || move_to_and_fro(ours, usize::MAX));
        assert!(matches!(crashed, Outcome::Crashed(_)), "seed {seed} run {run}: {crashed:?}");
        let is_copy = |path: &PathBuf| path.to_string_lossy().ends_with("-future");
        amid += usize::from(folders(&mut world).iter().any(is_copy));
        let read = world.run(|| async {
            let mut client = start(1).await.remove(0);
            match client.fetch(TOPIC, 0, 0, 0).await.unwrap().0 {
                // The crash came before the topic was created.
                3 => Vec::new(),
                _ => everything(&mut client).await,
            }
        });
        let Outcome::Finished(records) = read else { panic!("seed {seed} run {run}: {read:?}") };
        // A power cut may take what was not synced; what is there is whole and in order.
        if kind == Crash::Process {
            check(&acknowledged, &records);
        } else {
            acknowledged.borrow_mut().retain(|(offset, _)| (*offset as usize) < records.len());
            check(&acknowledged, &records);
        }
        let folders = folders(&mut world);
        assert!(folders.len() <= 1, "seed {seed} run {run}: {folders:?}");
    }
    amid
}

/// Whether it is still there.
async fn move_and_leave_the_old_folder() -> bool {
    let mut client = start(1).await.remove(0);
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    let bytes = batch(&[b"v"], reactor::wall_clock_ms());
    assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap(), (0, 0));
    let from = place(&mut client).await.0.unwrap();
    let to = DIRS.into_iter().find(|dir| *dir != from).unwrap();
    with_faults(|faults| faults.disk.stuck_names.insert(from.clone().into()));
    assert_eq!(alter(&mut client, to, 0).await, 0);
    while place(&mut client).await != (Some(to.to_owned()), None) {
        reactor::sleep(Duration::from_millis(10)).await;
    }
    reactor::fs::exists(&Path::new(&from).join("t-0")).await.unwrap()
}

/// What a crash leaves that comes after the move was recorded: the old folder, which says so
/// itself.
#[test]
fn the_old_folder_of_a_move_that_was_cut_short_is_removed_by_the_next_start() {
    for spoilt in [false, true] {
        // A rename that fails may have happened, and then there is nothing left.
        let left = (0..64).find_map(|seed| {
            let mut world = World::new(seed);
            let ran = world.run(move_and_leave_the_old_folder);
            let Outcome::Finished(left) = ran else { panic!("seed {seed}: {ran:?}") };
            left.then_some(world)
        });
        let mut world = left.expect("one that did not happen");
        world.faults().disk.stuck_names.clear();
        assert_eq!(folders(&mut world).len(), 2);
        let ran = world.run(move || async move {
            if spoilt {
                // Where it went to it is not whole: the old one may be all there is.
                for dir in DIRS.map(|dir| Path::new(dir).join("t-0")) {
                    let moved = reactor::fs::exists(&dir.join("corelane.moved")).await.unwrap();
                    if !moved {
                        let metadata = dir.join("partition.metadata");
                        reactor::fs::remove_file(&metadata).await.unwrap();
                    }
                }
            }
            let mut client = start(1).await.remove(0);
            assert_eq!(everything(&mut client).await.len(), 1);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
        let stray = |path: &PathBuf| path.to_string_lossy().ends_with("-stray");
        let left = folders(&mut world);
        assert_eq!(left.iter().any(stray), spoilt, "{left:?}");
        assert_eq!(left.len(), 1 + usize::from(spoilt), "{left:?}");
    }
}

fn seeds() -> u64 {
    std::env::var("SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn a_crash_at_any_point_of_a_move_leaves_one_good_copy() {
    let seeds = SEEDS_KEPT.into_iter().chain(0..seeds());
    let amid: usize = seeds.map(|seed| crash_while_moving(seed, Crash::Process)).sum();
    assert!(amid > 3, "only {amid} crashes came amid a move");
}

#[test]
fn a_power_cut_at_any_point_of_a_move_leaves_one_good_copy() {
    let amid: usize = (1000..1000 + seeds()).map(|s| crash_while_moving(s, Crash::Power)).sum();
    assert!(amid > 3, "only {amid} power cuts came amid a move");
}

async fn refusals() {
    let mut client = start(1).await.remove(0);
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    assert_eq!(alter(&mut client, "/nowhere", 0).await, 57);
    assert_eq!(alter(&mut client, "/disk1", 5).await, 9, "no such partition");
    let (here, _) = place(&mut client).await;
    assert_eq!(alter(&mut client, &here.unwrap(), 0).await, 0, "it is there already");
    with_faults(|faults| faults.disk.broken.insert("/disk2".into()));
    let begin = reactor::now();
    while alter(&mut client, "/disk2", 0).await != 56 {
        assert!(reactor::now() - begin < Duration::from_secs(60));
        reactor::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(client.delete_topic(TOPIC).await.unwrap(), 0);
}

#[test]
fn what_cannot_be_moved_is_refused_as_kafka_does() {
    let outcome = World::new(2).run(refusals);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// The topic goes while its partition is on its way; another of its name begins empty.
async fn delete_while_moving(after: u64) {
    let mut client = start(1).await.remove(0);
    assert_eq!(client.create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap(), 0);
    let value = vec![b'v'; 10_000];
    for _ in 0..30 {
        let bytes = batch(&[&value], reactor::wall_clock_ms());
        assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap().0, 0);
    }
    let (from, _) = place(&mut client).await;
    let to = DIRS.into_iter().find(|dir| Some(*dir) != from.as_deref()).unwrap();
    assert_eq!(alter(&mut client, to, 0).await, 0);
    reactor::sleep(Duration::from_micros(after)).await;
    assert_eq!(client.delete_topic(TOPIC).await.unwrap(), 0);
    assert_eq!(client.create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap(), 0);
    let bytes = batch(&[b"new"], reactor::wall_clock_ms());
    assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap(), (0, 0));
    assert_eq!(everything(&mut client).await, [(0, b"new".to_vec())]);
}

#[test]
fn a_topic_can_be_deleted_while_it_moves() {
    for after in (0..60).map(|step| step * 300) {
        let outcome = World::new(after).run(move || delete_while_moving(after));
        assert!(matches!(outcome, Outcome::Finished(())), "after {after} us: {outcome:?}");
    }
}

/// A copy is made whole at a disk that is slow, and the partition is out of service for so long:
/// nobody who deletes its topic meanwhile waits for that.
async fn delete_amid_a_slow_end() {
    let mut client = start(1).await.remove(0);
    assert_eq!(client.create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap(), 0);
    let bytes = batch(&[&[b'v'; 10_000]], reactor::wall_clock_ms());
    for _ in 0..30 {
        assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap().0, 0);
    }
    // The metadata log is on the first.
    if place(&mut client).await.0.as_deref() != Some(DIRS[0]) {
        assert_eq!(alter(&mut client, DIRS[0], 0).await, 0);
        while place(&mut client).await != (Some(DIRS[0].to_owned()), None) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
    }
    let second = Delay::exactly(Duration::from_secs(1));
    with_faults(|faults| faults.disk.slow.insert(DIRS[1].into(), second));
    assert_eq!(alter(&mut client, DIRS[1], 0).await, 0);
    let begin = reactor::now();
    loop {
        let mut other = Client::connect(support::addresses(1, BASE_PORT)[0]).await.unwrap();
        let produced =
            reactor::timeout(Duration::from_millis(500), other.produce(TOPIC, 0, &bytes));
        if produced.await.is_err() {
            break;
        }
        assert!(reactor::now() - begin < Duration::from_secs(3600), "it is never closed");
        reactor::sleep(Duration::from_secs(2)).await;
    }
    // The first one may have been idle for too long.
    let mut client = Client::connect(support::addresses(1, BASE_PORT)[0]).await.unwrap();
    let deleted = reactor::now();
    assert_eq!(client.delete_topic(TOPIC).await.unwrap(), 0);
    assert_eq!(client.create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap(), 0);
    while client.produce(TOPIC, 0, &bytes).await.unwrap() != (0, 0) {
        reactor::sleep(Duration::from_millis(100)).await;
    }
    let took = reactor::now() - deleted;
    // Its own folder and its first write are eight operations of a second each; the copy is many.
    assert!(took < Duration::from_secs(10), "a new topic of the name waits {took:?}");
}

#[test]
fn a_topic_can_be_deleted_while_its_copy_is_made_whole_at_a_slow_disk() {
    let outcome = World::new(12).run(delete_amid_a_slow_end);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// Something has the partition's name where it should go: it stays where it is, with all it holds.
async fn move_into_an_occupied_place() {
    let mut client = start(1).await.remove(0);
    assert_eq!(client.create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    let bytes = batch(&[b"v"], reactor::wall_clock_ms());
    assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap(), (0, 0));
    let (from, _) = place(&mut client).await;
    let to = DIRS.into_iter().find(|dir| Some(*dir) != from.as_deref()).unwrap();
    let other = Path::new(to).join(format!("{TOPIC}-0"));
    reactor::fs::create_dir_all(&other).await.unwrap();
    reactor::fs::write_atomic(&other.join("of-another"), b"x".to_vec()).await.unwrap();
    assert_eq!(alter(&mut client, to, 0).await, 0);
    let begin = reactor::now();
    while place(&mut client).await.1.is_some() {
        assert!(reactor::now() - begin < Duration::from_secs(60));
        reactor::sleep(Duration::from_millis(10)).await;
    }
    while reactor::now() - begin < Duration::from_secs(20) {
        reactor::sleep(Duration::from_secs(1)).await;
        assert_eq!(place(&mut client).await, (from.clone(), None));
    }
    assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap(), (0, 1));
    assert_eq!(everything(&mut client).await.len(), 2);
}

#[test]
fn a_move_into_an_occupied_place_is_given_up() {
    let outcome = World::new(6).run(move_into_an_occupied_place);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

async fn reassign(client: &mut Client, replicas: Option<Vec<i32>>) -> i16 {
    client.reassign(TOPIC, 0, replicas).await.unwrap()
}

async fn from_core_to_core() {
    let mut clients = start(2).await;
    assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    let bytes = batch(&[b"v"], reactor::wall_clock_ms());
    let mut leader = match clients[0].produce(TOPIC, 0, &bytes).await.unwrap() {
        (0, 0) => 0,
        (6, _) => {
            assert_eq!(clients[1].produce(TOPIC, 0, &bytes).await.unwrap(), (0, 0));
            1
        }
        other => panic!("{other:?}"),
    };
    for number in 1..6i64 {
        let other = 1 - leader;
        let node = 1000 + other as i32;
        assert_eq!(reassign(&mut clients[leader], Some(vec![node])).await, 0);
        assert_eq!(clients[leader].produce(TOPIC, 0, &bytes).await.unwrap().0, 6);
        assert_eq!(clients[other].produce(TOPIC, 0, &bytes).await.unwrap(), (0, number));
        leader = other;
    }
    let client = &mut clients[leader];
    assert_eq!(everything(client).await.len(), 6);
    assert_eq!(reassign(client, Some(vec![1000 + leader as i32])).await, 0, "nothing to do");
    assert_eq!(reassign(client, None).await, 85, "nothing to give up");
    assert_eq!(reassign(client, Some(vec![7000])).await, 39, "no such node");
    assert_eq!(reassign(client, Some(vec![1000, 1001])).await, 38, "another factor");
    assert_eq!(reassign(client, Some(vec![])).await, 38);
}

#[test]
fn a_partition_moves_from_core_to_core() {
    let outcome = World::new(4).run(from_core_to_core);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
    assert_ne!(directory_id(0), directory_id(1));
}

/// A batch of an idempotent producer.
fn sequenced(number: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(4_711, 0, number);
    builder.append(reactor::wall_clock_ms(), None, Some(&number.to_be_bytes()));
    builder.build().unwrap()
}

/// A client that got no answer to five requests in flight sends all of them again, wherever the
/// partition went meanwhile: none is taken twice or refused.
async fn repeat_after_moves() {
    let mut clients = start(2).await;
    assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    let mut leader = 0;
    for round in 0..4 {
        for number in 0..7 {
            let next = round * 7 + number;
            let (shard, offset) = produce_anywhere(&mut clients, &sequenced(next)).await;
            assert_eq!(offset, i64::from(next));
            leader = shard;
        }
        if round % 2 == 0 {
            let node = 1000 + 1 - leader as i32;
            assert_eq!(reassign(&mut clients[leader], Some(vec![node])).await, 0);
        } else {
            let (Some(from), _) = place(&mut clients[leader]).await else { panic!("nowhere") };
            let to = DIRS.into_iter().find(|dir| *dir != from).unwrap();
            assert_eq!(alter(&mut clients[leader], to, 0).await, 0);
            while place(&mut clients[leader]).await != (Some(to.to_owned()), None) {
                reactor::sleep(Duration::from_millis(1)).await;
            }
        }
        let end = (round + 1) * 7;
        for number in end - 5..end {
            let (shard, offset) = produce_anywhere(&mut clients, &sequenced(number)).await;
            assert_eq!(offset, i64::from(number), "in round {round}");
            assert_eq!(shard == leader, round % 2 == 1);
        }
        let (shard, _) = produce_anywhere(&mut clients, &sequenced(end - 1)).await;
        leader = shard;
        assert_eq!(everything(&mut clients[leader]).await.len() as i32, end);
    }
}

#[test]
fn batches_that_are_repeated_after_a_move_get_their_first_answer() {
    let outcome = World::new(9).run(repeat_after_moves);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// The leader of partition 0 among the shards, and the offset that it gave to the batch.
async fn produce_anywhere(clients: &mut [Client], bytes: &[u8]) -> (usize, i64) {
    let begin = reactor::now();
    loop {
        for (shard, client) in clients.iter_mut().enumerate() {
            match client.produce(TOPIC, 0, bytes).await.unwrap() {
                (0, offset) => return (shard, offset),
                // It is elsewhere, or offline for a while.
                (6 | 56, _) => {}
                other => panic!("produce answered {other:?}"),
            }
        }
        assert!(reactor::now() - begin < Duration::from_secs(300), "it is served nowhere");
        reactor::sleep(Duration::from_millis(100)).await;
    }
}

/// A copy that cannot get the partition's name, and a new leader on another core meanwhile: what it
/// opens is the partition with all it holds, or nothing.
async fn reassign_amid_a_stuck_move(after: u64) {
    let mut clients = start(2).await;
    assert_eq!(clients[0].create_topic(TOPIC, 1, &SMALL_SEGMENTS).await.unwrap(), 0);
    let bytes = batch(&[&[b'v'; 5000]], reactor::wall_clock_ms());
    let mut written = 0;
    let mut leader = 0;
    while written < 12 {
        let (shard, offset) = produce_anywhere(&mut clients, &bytes).await;
        assert_eq!(offset, written);
        (leader, written) = (shard, written + 1);
    }
    let (Some(from), _) = place(&mut clients[leader]).await else { panic!("it is nowhere") };
    let to = DIRS.into_iter().find(|dir| *dir != from).unwrap();
    with_faults(|faults| faults.disk.stuck_names.insert(to.into()));
    assert_eq!(alter(&mut clients[leader], to, 0).await, 0);
    reactor::sleep(Duration::from_micros(after)).await;
    let node = 1000 + 1 - leader as i32;
    assert_eq!(reassign(&mut clients[leader], Some(vec![node])).await, 0);
    // Long enough for whoever leads it now to open something.
    reactor::sleep(Duration::from_secs(1)).await;
    with_faults(|faults| faults.disk.stuck_names.clear());
    let (shard, offset) = produce_anywhere(&mut clients, &bytes).await;
    assert_eq!((shard, offset), (1 - leader, written), "an offset was given twice");
    assert_eq!(everything(&mut clients[shard]).await.len() as i64, written + 1);
}

#[test]
fn a_copy_that_lost_its_race_with_a_reassignment_is_found_by_the_new_leader() {
    for after in (200..600).map(|step| step * 100) {
        let outcome = World::new(after).run(move || reassign_amid_a_stuck_move(after));
        assert!(matches!(outcome, Outcome::Finished(())), "after {after} us: {outcome:?}");
    }
}

/// Whether a directory is one that works.
async fn works(client: &mut Client, dir: &str) -> bool {
    let request = DescribeLogDirsRequest { topics: None };
    let answer: DescribeLogDirsResponse<'static> =
        client.call::<_, Described>(ApiKey::DescribeLogDirs, 4, &request).await.unwrap();
    answer.results.iter().any(|result| result.log_dir == dir && result.error_code == 0)
}

/// What fails while a core lets go of a partition is what would fail for the next one: a probe
/// tells whether it is the disk, and nothing acknowledged is lost.
async fn reassign_with_a_close_that_fails(all_of_it: bool) {
    let mut clients = start(2).await;
    assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
    let bytes = batch(&[&[b'v'; 5000]], reactor::wall_clock_ms());
    let mut leader = 0;
    for written in 0..10 {
        let (shard, offset) = produce_anywhere(&mut clients, &bytes).await;
        assert_eq!(offset, written);
        leader = shard;
    }
    let (Some(dir), _) = place(&mut clients[leader]).await else { panic!("it is nowhere") };
    with_faults(|faults| {
        let broken = match all_of_it {
            true => vec!["t-0"],
            false => vec!["t-0/00000000000000000000.index", PROBES[0], PROBES[1]],
        };
        faults.disk.broken.extend(broken.into_iter().map(|name| Path::new(&dir).join(name)));
    });
    let node = 1000 + 1 - leader as i32;
    assert_eq!(reassign(&mut clients[leader], Some(vec![node])).await, 0);
    let new = &mut clients[1 - leader];
    let begin = reactor::now();
    while works(new, &dir).await != all_of_it
        || new.produce(TOPIC, 0, &bytes).await.unwrap().0 != 56
    {
        assert!(reactor::now() - begin < Duration::from_secs(60), "nobody looked at the disk");
        reactor::sleep(Duration::from_millis(100)).await;
    }
    with_faults(|faults| faults.disk.broken.clear());
    assert_eq!(produce_anywhere(&mut clients, &bytes).await, (1 - leader, 10));
    assert_eq!(everything(&mut clients[1 - leader]).await.len(), 11);
}

const PROBES: [&str; 2] = ["corelane-probe-0.tmp", "corelane-probe-1.tmp"];

#[test]
fn a_close_that_fails_on_the_way_to_another_core_loses_nothing() {
    for all_of_it in [true, false] {
        let outcome = World::new(8).run(move || reassign_with_a_close_that_fails(all_of_it));
        assert!(matches!(outcome, Outcome::Finished(())), "{all_of_it}: {outcome:?}");
    }
}
