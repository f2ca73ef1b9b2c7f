//! A broker on a disk without one free byte, in the simulator: it starts, serves readers, deletes, and
//! goes on by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::path::Path;
use std::time::Duration;

use reactor::sim::{Outcome, World, with_faults};
use support::{BASE_PORT, Client, batch, start_on, values};
use wire::ApiKey;
use wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::messages::alter_replica_log_dirs_response::AlterReplicaLogDirsResponse;
use wire::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use wire::messages::delete_records_response::DeleteRecordsResponse;
use wire::records::BatchBuilder;

const DIR: &str = "/disk";
const MIB: u64 = 1 << 20;
/// Of the disk, while there is room.
const CAPACITY: u64 = 64 * MIB;
/// What the broker gives up when it needs space, and more.
const GIVEN_UP: u64 = 2 * MIB;
const SETTINGS: [&str; 3] = [
    "log.segment.bytes=1048576",
    "log.retention.ms=600000",
    "log.retention.check.interval.ms=300000",
];
const STORAGE_ERROR: i16 = 56;
const UNKNOWN_TOPIC: i16 = 3;
const NOT_AVAILABLE: i16 = 15;
const RECORD_BYTES: usize = 100 << 10;
/// Records of the topic that takes the space: eight segments and more.
const RECORDS: i64 = 90;
/// Longer than anything here takes by itself.
const LONG: Duration = Duration::from_secs(120);

crate::response!(DeleteRecords, DeleteRecordsResponse, borrows);
crate::response!(Altered, AlterReplicaLogDirsResponse, borrows);

async fn start() -> Client {
    start_with(&[DIR], &SETTINGS).await
}

async fn start_with(dirs: &[&str], settings: &[&str]) -> Client {
    for dir in dirs {
        reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
    }
    let mut started = start_on(1, BASE_PORT, dirs, settings);
    started.ready().await;
    let client = Client::connect(started.addresses[0]).await.unwrap();
    std::mem::forget(started);
    client
}

async fn produce(client: &mut Client, topic: &str, value: &[u8]) -> i16 {
    let bytes = batch(&[value], reactor::wall_clock_ms());
    client.produce(topic, 0, &bytes).await.unwrap().0
}

async fn read_first(client: &mut Client, topic: &str, from: i64) -> (i16, Option<(i64, Vec<u8>)>) {
    let (error, _, bytes) = client.fetch(topic, 0, from, 0).await.unwrap();
    (error, values(&bytes).into_iter().find(|(offset, _)| *offset >= from))
}

async fn delete_records(client: &mut Client, topic: &str, offset: i64) -> (i16, i64) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }].into();
    let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }].into();
    let request = DeleteRecordsRequest { topics, timeout_ms: 30_000 };
    let answer: DeleteRecordsResponse<'static> =
        client.call::<_, DeleteRecords>(ApiKey::DeleteRecords, 2, &request).await.unwrap();
    let topic = answer.topics.first().unwrap();
    let partition = topic.partitions.first().unwrap();
    (partition.error_code, partition.low_watermark)
}

/// Until a produce is answered with this code.
async fn until_produce(client: &mut Client, topic: &str, code: i16) {
    let begin = reactor::now();
    loop {
        let error = produce(client, topic, b"again").await;
        if error == code {
            return;
        }
        assert!(reactor::now() - begin < LONG, "{topic} still answers {error}, not {code}");
        reactor::sleep(Duration::from_millis(200)).await;
    }
}

/// Topics `kept`, `gone` and `big`, the last of which has most of what is on the disk.
async fn fill() -> Client {
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let mut client = start().await;
    for topic in ["kept", "gone", "big"] {
        assert_eq!(client.create_topic(topic, 1, &[]).await.unwrap(), 0);
        assert_eq!(produce(&mut client, topic, b"first").await, 0);
    }
    for n in 1..RECORDS {
        assert_eq!(produce(&mut client, "big", &[n as u8; RECORD_BYTES]).await, 0);
    }
    client
}

/// From now on the disk has no byte left, not even when the broker gives up what it holds back.
async fn take_every_byte() {
    let space = reactor::fs::space(Path::new(DIR)).await.unwrap();
    let used = space.total - space.available;
    with_faults(|faults| faults.disk.capacity = Some(used - GIVEN_UP));
}

async fn deletes_make_room() {
    let mut client = fill().await;
    take_every_byte().await;
    until_produce(&mut client, "kept", STORAGE_ERROR).await;
    // A write that found no space has taken this one out of service.
    until_produce(&mut client, "big", STORAGE_ERROR).await;
    assert_eq!(read_first(&mut client, "kept", 0).await, (0, Some((0, b"first".to_vec()))));
    assert_eq!(client.create_topic("more", 1, &[]).await.unwrap(), STORAGE_ERROR);
    assert_eq!(client.delete_topic("gone").await.unwrap(), 0);
    let to = RECORDS - 5;
    assert_eq!(delete_records(&mut client, "big", to).await, (0, to));
    let (error, first) = read_first(&mut client, "big", to).await;
    assert_eq!((error, first.map(|(offset, _)| offset)), (0, Some(to)));
    until_produce(&mut client, "kept", 0).await;
    until_produce(&mut client, "big", 0).await;
}

#[test]
fn deleting_works_without_one_free_byte_and_producers_go_on() {
    for seed in 0..10 {
        let outcome = World::new(seed).run(deletes_make_room);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Somebody else fills the disk between two looks. What the broker holds back is let go before its
/// metadata is written, and not because a write has failed: a failed one takes the log out of
/// service.
async fn metadata_is_written() -> u64 {
    let mut client = fill().await;
    let space = reactor::fs::space(Path::new(DIR)).await.unwrap();
    with_faults(|faults| faults.disk.capacity = Some(space.total - space.available));
    assert_eq!(client.delete_topic("gone").await.unwrap(), 0);
    // After a write that failed for want of space producers are refused from that moment on.
    assert_eq!(produce(&mut client, "kept", b"x").await, 0);
    let path = Path::new(DIR).join("corelane.reserve");
    reactor::fs::metadata(&path).await.map_or(0, |found| found.size)
}

#[test]
fn metadata_has_its_reserve_before_a_write_fails() {
    for seed in 0..10 {
        let outcome = World::new(seed).run(metadata_is_written);
        let Outcome::Finished(left) = outcome else { panic!("seed {seed}: {outcome:?}") };
        assert!(left > 0, "a piece is enough, and the last one stays");
    }
}

async fn retention_makes_room() {
    let mut client = fill().await;
    take_every_byte().await;
    until_produce(&mut client, "kept", STORAGE_ERROR).await;
    reactor::sleep(Duration::from_secs(601)).await;
    until_produce(&mut client, "kept", 0).await;
    until_produce(&mut client, "big", 0).await;
}

#[test]
fn retention_works_without_one_free_byte() {
    let outcome = World::new(1).run(retention_makes_room);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// The broker cannot even write down that it is there.
async fn starts_full() {
    let mut client = start().await;
    assert_eq!(read_first(&mut client, "kept", 0).await, (0, Some((0, b"first".to_vec()))));
    assert_eq!(produce(&mut client, "kept", b"x").await, STORAGE_ERROR);
    // Refused with an error that clients retry; nothing has happened.
    assert_eq!(client.delete_topic("gone").await.unwrap(), STORAGE_ERROR);
    assert_eq!(read_first(&mut client, "gone", 0).await, (0, Some((0, b"first".to_vec()))));
    let to = RECORDS - 5;
    assert_eq!(delete_records(&mut client, "big", to).await, (0, to));
    let begin = reactor::now();
    while client.delete_topic("gone").await.unwrap() != 0 {
        assert!(reactor::now() - begin < LONG, "the topic cannot be deleted");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    until_produce(&mut client, "kept", 0).await;
    assert_eq!(client.create_topic("more", 1, &[]).await.unwrap(), 0);
}

async fn starts_again() {
    let mut client = start().await;
    assert_eq!(read_first(&mut client, "kept", 0).await, (0, Some((0, b"first".to_vec()))));
    assert_eq!(read_first(&mut client, "gone", 0).await.0, UNKNOWN_TOPIC);
    let (error, first) = read_first(&mut client, "big", RECORDS - 5).await;
    assert_eq!((error, first.map(|(offset, _)| offset)), (0, Some(RECORDS - 5)));
    assert_eq!(produce(&mut client, "more", b"x").await, 0);
}

#[test]
fn it_starts_without_one_free_byte_and_writes_what_it_owes_when_there_is_space() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        assert!(world.run(|| async { drop(fill().await) }).finished().is_some());
        let held: u64 = world.disk().files().iter().map(|(_, size)| size).sum();
        world.faults().disk.capacity = Some(held - GIVEN_UP);
        let outcome = world.run(starts_full);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
        let outcome = world.run(starts_again);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Whoever fills what is left between two looks at the disk is refused all the same before a write fails.
async fn is_refused_in_time() {
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let mut client = start().await;
    assert_eq!(client.create_topic("fast", 1, &[]).await.unwrap(), 0);
    let begin = reactor::now();
    let mut taken: i64 = 0;
    while produce(&mut client, "fast", &[7; RECORD_BYTES]).await == 0 {
        taken += 1;
    }
    assert!(reactor::now() - begin < Duration::from_millis(1900), "not fast enough for this test");
    let space = reactor::fs::space(Path::new(DIR)).await.unwrap();
    assert!(space.available > 2 * MIB, "{} bytes were left after {taken} records", space.available);
    assert_eq!(read_first(&mut client, "fast", taken - 1).await.0, 0);
}

#[test]
fn a_producer_that_is_faster_than_the_looks_is_refused_before_a_write_fails() {
    for seed in 0..10 {
        let outcome = World::new(seed).run(is_refused_in_time);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Groups go on reading: what they committed, and that they are members.
async fn groups_are_there_without_space() {
    let mut client = fill().await;
    while client.coordinator("g").await.unwrap().0 != 0 {
        reactor::sleep(Duration::from_millis(10)).await;
    }
    client.groups_loaded().await.unwrap();
    assert_eq!(client.commit("g", ("", -1), ("kept", 0), 7).await.unwrap(), 0);
    take_every_byte().await;
    // Until the next look at the disk a commit is taken: nothing of it needs to be written yet.
    let begin = reactor::now();
    while client.commit("g", ("", -1), ("kept", 0), 8).await.unwrap() != NOT_AVAILABLE {
        assert!(reactor::now() - begin < LONG, "a full disk takes commits");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    let (error, offsets) = client.committed("g").await.unwrap();
    assert_eq!((error, offsets.len()), (0, 1));
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let begin = reactor::now();
    while client.commit("g", ("", -1), ("kept", 0), 9).await.unwrap() != 0 {
        assert!(reactor::now() - begin < LONG, "commits stay refused");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(client.committed("g").await.unwrap().1, [("kept".to_owned(), 0, 9)]);
}

/// A topic may go while its offsets are on a disk that takes no tombstones: they go when there is space,
/// and until then its groups go on reading.
async fn a_topic_goes_without_space() {
    let mut client = fill().await;
    while client.coordinator("g").await.unwrap().0 != 0 {
        reactor::sleep(Duration::from_millis(10)).await;
    }
    client.groups_loaded().await.unwrap();
    assert_eq!(client.create_topic("goes", 1, &[]).await.unwrap(), 0);
    for topic in ["goes", "kept"] {
        assert_eq!(client.commit("g", ("", -1), (topic, 0), 7).await.unwrap(), 0);
    }
    take_every_byte().await;
    let begin = reactor::now();
    while client.commit("g", ("", -1), ("kept", 0), 7).await.unwrap() != NOT_AVAILABLE {
        assert!(reactor::now() - begin < LONG, "a full disk takes commits");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(client.delete_topic("goes").await.unwrap(), 0);
    // Longer than a coordinator waits between two looks for space.
    for _ in 0..10 {
        reactor::sleep(Duration::from_millis(200)).await;
        assert_eq!(client.committed("g").await.unwrap().0, 0, "its coordinator is there");
    }
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let begin = reactor::now();
    while client.committed("g").await.unwrap() != (0, vec![("kept".to_owned(), 0, 7)]) {
        assert!(reactor::now() - begin < LONG, "the offsets stay");
        reactor::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn a_topic_that_goes_without_one_free_byte_costs_no_coordinator() {
    let outcome = World::new(1).run(a_topic_goes_without_space);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// A topic goes while its offsets cannot be buried, and the broker ends before they can.
async fn a_topic_goes_and_the_broker_with_it() {
    let mut client = fill().await;
    while client.coordinator("g").await.unwrap().0 != 0 {
        reactor::sleep(Duration::from_millis(10)).await;
    }
    client.groups_loaded().await.unwrap();
    for topic in ["gone", "kept"] {
        assert_eq!(client.commit("g", ("", -1), (topic, 0), 7).await.unwrap(), 0);
    }
    // What the broker holds back for its metadata is there.
    let space = reactor::fs::space(Path::new(DIR)).await.unwrap();
    with_faults(|faults| faults.disk.capacity = Some(space.total - space.available));
    let begin = reactor::now();
    while client.commit("g", ("", -1), ("kept", 0), 7).await.unwrap() != NOT_AVAILABLE {
        assert!(reactor::now() - begin < LONG, "a full disk takes commits");
        reactor::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(client.delete_topic("gone").await.unwrap(), 0);
    let both = [("gone".to_owned(), 0, 7), ("kept".to_owned(), 0, 7)];
    assert_eq!(client.committed("g").await.unwrap(), (0, both.to_vec()), "nothing is buried");
}

async fn the_next_one_buries_them() {
    let mut client = start().await;
    assert_eq!(read_first(&mut client, "gone", 0).await.0, UNKNOWN_TOPIC);
    client.groups_loaded().await.unwrap();
    let begin = reactor::now();
    while client.committed("g").await.unwrap() != (0, vec![("kept".to_owned(), 0, 7)]) {
        assert!(reactor::now() - begin < LONG, "the offsets stay");
        reactor::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn offsets_of_a_topic_that_went_just_before_the_end_go_with_the_next_start() {
    let mut world = World::new(3);
    let outcome = world.run(a_topic_goes_and_the_broker_with_it);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
    world.faults().disk.capacity = Some(CAPACITY);
    let outcome = world.run(the_next_one_buries_them);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

#[test]
fn groups_read_without_one_free_byte_and_commit_again_by_themselves() {
    let outcome = World::new(1).run(groups_are_there_without_space);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// Free bytes below which producers are refused.
const FULL_MARK: u64 = CAPACITY / 20;

async fn available() -> u64 {
    reactor::fs::space(Path::new("/")).await.unwrap().available
}

/// Somebody else takes all but so many bytes.
async fn leave(bytes: u64) {
    let taken = vec![7; (available().await - bytes) as usize];
    reactor::fs::write_atomic(Path::new("/taken"), taken).await.unwrap();
}

/// The fewest bytes that were free in so much time.
async fn fewest_in(time: Duration) -> u64 {
    let begin = reactor::now();
    let mut fewest = u64::MAX;
    while reactor::now() - begin < time {
        fewest = fewest.min(available().await);
        reactor::sleep(Duration::from_millis(10)).await;
    }
    fewest
}

async fn produce_keyed(client: &mut Client, key: u32) -> i16 {
    let mut batch = BatchBuilder::new();
    let value = vec![key as u8; RECORD_BYTES];
    batch.append(reactor::wall_clock_ms(), Some(&key.to_be_bytes()), Some(&value));
    client.produce("keys", 0, &batch.build().unwrap()).await.unwrap().0
}

/// A compacted topic with a segment of 16 MiB that is sealed, and is cleaned in half a minute.
async fn compacted(keys: u32) -> Client {
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let settings = [
        "log.segment.bytes=16777216",
        "log.cleaner.backoff.ms=500",
        // Slow enough to be watched.
        "log.cleaner.io.max.bytes.per.second=4194304",
    ];
    let mut client = start_with(&[DIR], &settings).await;
    let compacted = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.compaction.lag.ms", "30000"),
    ];
    assert_eq!(client.create_topic("keys", 1, &compacted).await.unwrap(), 0);
    assert_eq!(client.create_topic("kept", 1, &[]).await.unwrap(), 0);
    for n in 0..170 {
        assert_eq!(produce_keyed(&mut client, n % keys).await, 0);
    }
    client
}

/// Of what is cleaned nearly everything stays: the new segment would take all that is left.
async fn compaction_leaves_space() {
    let mut client = compacted(150).await;
    leave(FULL_MARK + 2 * MIB).await;
    let fewest = fewest_in(Duration::from_secs(60)).await;
    assert!(fewest < FULL_MARK + MIB * 3 / 2, "nothing was cleaned");
    assert!(fewest >= FULL_MARK, "compaction leaves {fewest} bytes");
    assert_eq!(produce(&mut client, "kept", b"x").await, 0);
    // It is not given up for good.
    reactor::fs::remove_file(Path::new("/taken")).await.unwrap();
    let before = available().await;
    let begin = reactor::now();
    while available().await < before + MIB {
        assert!(reactor::now() - begin < Duration::from_secs(1200), "it is never cleaned");
        reactor::sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn compaction_is_not_what_fills_a_disk() {
    for seed in 0..3 {
        let outcome = World::new(seed).run(compaction_leaves_space);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Nothing but compaction can make room.
async fn compaction_makes_room() {
    let mut client = compacted(2).await;
    leave(FULL_MARK - MIB).await;
    until_produce(&mut client, "kept", STORAGE_ERROR).await;
    until_produce(&mut client, "kept", 0).await;
    assert!(available().await > 10 * MIB);
}

#[test]
fn compaction_makes_room_on_a_full_disk() {
    for seed in 0..3 {
        let outcome = World::new(seed).run(compaction_makes_room);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

const DIRS: [&str; 2] = [DIR, "/other"];

async fn move_to(client: &mut Client, dir: &str) -> i16 {
    let topic = AlterReplicaLogDirTopic { name: "big".into(), partitions: vec![0].into() };
    let dir = AlterReplicaLogDir { path: dir.to_owned().into(), topics: vec![topic].into() };
    let request = AlterReplicaLogDirsRequest { dirs: vec![dir].into() };
    let answer: AlterReplicaLogDirsResponse<'static> =
        client.call::<_, Altered>(ApiKey::AlterReplicaLogDirs, 2, &request).await.unwrap();
    answer.results.first().unwrap().partitions.first().unwrap().error_code
}

/// Folders of the partition in a directory, by name.
async fn folders(dir: &str) -> Vec<String> {
    let entries = reactor::fs::read_dir(Path::new(dir)).await.unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with("big-0")).collect()
}

/// Topic `big` has so many records; returns where it is and where it is not.
async fn big_on_two(records: usize) -> (Client, &'static str, &'static str) {
    with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
    let slowly = "replica.alter.log.dirs.io.max.bytes.per.second=1048576";
    let mut client = start_with(&DIRS, &[SETTINGS[0], slowly]).await;
    assert_eq!(client.create_topic("big", 1, &[]).await.unwrap(), 0);
    for _ in 0..records {
        assert_eq!(produce(&mut client, "big", &[7; RECORD_BYTES]).await, 0);
    }
    match folders(DIRS[0]).await.is_empty() {
        true => (client, DIRS[1], DIRS[0]),
        false => (client, DIRS[0], DIRS[1]),
    }
}

async fn too_large_a_move() {
    let (mut client, from, to) = big_on_two(330).await;
    // Where the space is known from the last look.
    reactor::sleep(Duration::from_secs(5)).await;
    let before = available().await;
    assert_eq!(move_to(&mut client, to).await, STORAGE_ERROR);
    assert_eq!(move_to(&mut client, from).await, 0, "it is there");
    let fewest = fewest_in(Duration::from_secs(10)).await;
    assert!(fewest >= before, "{fewest} of {before} are left");
    assert_eq!(produce(&mut client, "big", b"x").await, 0);
}

#[test]
fn a_move_that_would_fill_a_disk_is_refused() {
    let outcome = World::new(1).run(too_large_a_move);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

async fn others_take_the_space_of_a_move() {
    let (mut client, from, to) = big_on_two(200).await;
    assert_eq!(move_to(&mut client, to).await, 0);
    reactor::sleep(Duration::from_secs(3)).await;
    leave(FULL_MARK + 4 * MIB).await;
    let copies = folders(to).await;
    assert!(matches!(copies.as_slice(), [copy] if copy.ends_with("-future")), "{copies:?}");
    let fewest = fewest_in(Duration::from_secs(20)).await;
    assert!(fewest >= FULL_MARK, "the copy leaves {fewest} bytes");
    assert_eq!((folders(from).await, folders(to).await), (vec!["big-0".to_owned()], vec![]));
    assert_eq!(produce(&mut client, "big", b"x").await, 0);
}

#[test]
fn a_copy_that_meets_the_mark_is_given_up() {
    for seed in 0..3 {
        let outcome = World::new(seed).run(others_take_the_space_of_a_move);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}
