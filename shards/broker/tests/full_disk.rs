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
use wire::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use wire::messages::delete_records_response::DeleteRecordsResponse;

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

async fn start() -> Client {
    reactor::fs::create_dir_all(Path::new(DIR)).await.unwrap();
    let mut started = start_on(1, BASE_PORT, &[DIR], &SETTINGS);
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
