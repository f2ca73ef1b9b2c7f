//! A broker on several disks in the simulator: one fails, comes back, hangs or is missing, and the
//! others do not notice.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::sim::{Crash, Delay, Outcome, World, with_faults};
use support::{BASE_PORT, Client, batch, start_on, values};
use wire::ApiKey;
use wire::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use wire::messages::describe_log_dirs_response::DescribeLogDirsResponse;
use wire::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use wire::messages::list_offsets_response::ListOffsetsResponse;
use wire::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::messages::metadata_response::MetadataResponse;

const DIRS: [&str; 2] = ["/disk1", "/disk2"];
const TOPIC: &str = "t";
const PARTITIONS: i32 = 6;
const STORAGE_ERROR: i16 = 56;
const LEADER_NOT_AVAILABLE: i16 = 5;
/// The timestamp that asks for the end.
const LATEST: i64 = -1;
/// Longer than anything here takes by itself.
const LONG: Duration = Duration::from_secs(300);

crate::response!(Metadata, MetadataResponse, borrows);
crate::response!(Listed, ListOffsetsResponse, borrows);
crate::response!(DescribeLogDirs, DescribeLogDirsResponse, borrows);

/// Makes the directories, as the process does before the shards start.
async fn format() {
    for dir in DIRS {
        // One that is broken now was made before.
        let _ = reactor::fs::create_dir_all(Path::new(dir)).await;
    }
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
}

async fn start(dirs: &[&str], shards: u16) -> Client {
    format().await;
    let mut started = start_on(shards, BASE_PORT, dirs, &[]);
    started.ready().await;
    let client = Client::connect(started.addresses[0]).await.unwrap();
    std::mem::forget(started);
    client
}

/// The partitions on each disk, as the directories have them.
fn placed(world: &mut World) -> Vec<Vec<i32>> {
    let files = world.disk().files();
    let on = |dir: &str| {
        let has = |n: &i32| {
            let folder = PathBuf::from(format!("{dir}/{TOPIC}-{n}"));
            files.iter().any(|(path, _)| path.starts_with(&folder))
        };
        (0..PARTITIONS).filter(has).collect()
    };
    DIRS.into_iter().map(on).collect()
}

/// Log directories with their error codes and the partitions they tell.
async fn described(client: &mut Client) -> Vec<(String, i16, Vec<i32>)> {
    let request = DescribeLogDirsRequest { topics: None };
    let answer: DescribeLogDirsResponse<'static> =
        client.call::<_, DescribeLogDirs>(ApiKey::DescribeLogDirs, 4, &request).await.unwrap();
    let of = |dir: &wire::messages::describe_log_dirs_response::DescribeLogDirsResult<'_>| {
        let topics = dir.topics.iter();
        let partitions =
            topics.flat_map(|t| t.partitions.iter().map(|p| p.partition_index).collect::<Vec<_>>());
        (dir.log_dir.to_string(), dir.error_code, partitions.collect())
    };
    answer.results.iter().map(|dir| of(&dir)).collect()
}

/// What Metadata says of each partition: error, leader, offline replicas.
async fn leaders(client: &mut Client) -> Vec<(i16, i32, Vec<i32>)> {
    let topic = MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic].into()), ..Default::default() };
    let answer: MetadataResponse<'static> =
        client.call::<_, Metadata>(ApiKey::Metadata, 12, &request).await.unwrap();
    let mut partitions: Vec<_> = answer.topics.first().unwrap().partitions.iter().collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    let told = partitions.into_iter().map(|partition| {
        let offline = partition.offline_replicas.iter().collect();
        (partition.error_code, partition.leader_id, offline)
    });
    told.collect()
}

async fn produce(client: &mut Client, partition: i32, value: &str) -> (i16, i64) {
    let bytes = batch(&[value.as_bytes()], reactor::wall_clock_ms());
    client.produce(TOPIC, partition, &bytes).await.unwrap()
}

async fn read(client: &mut Client, partition: i32) -> (i16, Vec<String>) {
    let (error, _, bytes) = client.fetch(TOPIC, partition, 0, 0).await.unwrap();
    let texts = values(&bytes).into_iter().map(|(_, v)| String::from_utf8(v).unwrap());
    (error, texts.collect())
}

/// Until a produce to this partition is answered with this code.
async fn until(client: &mut Client, partition: i32, code: i16) -> i64 {
    let begin = reactor::now();
    loop {
        let (error, offset) = produce(client, partition, "again").await;
        if error == code {
            return offset;
        }
        assert!(reactor::now() - begin < LONG, "partition {partition} still answers {error}");
        reactor::sleep(Duration::from_millis(500)).await;
    }
}

/// A topic spread over both disks with one record in each partition. Returns which partitions are on
/// the first and on the second.
async fn topic_on_both(client: &mut Client) -> (Vec<i32>, Vec<i32>) {
    assert_eq!(client.create_topic(TOPIC, PARTITIONS, &[]).await.unwrap(), 0);
    for partition in 0..PARTITIONS {
        assert_eq!(produce(client, partition, "first").await, (0, 0));
    }
    let dirs = described(client).await;
    let on = |dir: &str| dirs.iter().find(|(path, ..)| path == dir).unwrap().2.clone();
    (on(DIRS[0]), on(DIRS[1]))
}

async fn one_disk_breaks_and_comes_back() {
    let mut client = start(&DIRS, 1).await;
    let (first, second) = topic_on_both(&mut client).await;
    assert_eq!((first.len(), second.len()), (3, 3), "equal disks get equally many");
    with_faults(|faults| faults.disk.broken.insert(DIRS[1].into()));
    for partition in &second {
        assert_eq!(produce(&mut client, *partition, "lost").await.0, STORAGE_ERROR);
    }
    // The second disk's partitions are offline, reading too, and that is told.
    let begin = reactor::now();
    while described(&mut client).await[1].1 != STORAGE_ERROR {
        assert!(reactor::now() - begin < LONG, "the disk is not told to have failed");
        reactor::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(described(&mut client).await[1].2, [] as [i32; 0]);
    for partition in &second {
        assert_eq!(read(&mut client, *partition).await.0, STORAGE_ERROR);
    }
    // Nobody leads them, as in Apache Kafka: clients wait until somebody does.
    for (partition, told) in (0..).zip(leaders(&mut client).await) {
        let expected = match second.contains(&partition) {
            true => (LEADER_NOT_AVAILABLE, -1, vec![1000]),
            false => (0, 1000, vec![]),
        };
        assert_eq!(told, expected, "partition {partition}");
    }
    // The first disk's are not.
    assert_eq!(described(&mut client).await[0].1, 0);
    for partition in &first {
        assert_eq!(produce(&mut client, *partition, "second").await, (0, 1));
        assert_eq!(read(&mut client, *partition).await, (0, vec!["first".into(), "second".into()]));
    }
    // New partitions go where they can.
    assert_eq!(client.create_topic("new", 3, &[]).await.unwrap(), 0);
    let bytes = batch(&[b"v"], reactor::wall_clock_ms());
    for partition in 0..3 {
        assert_eq!(client.produce("new", partition, &bytes).await.unwrap(), (0, 0));
    }
    with_faults(|faults| faults.disk.broken.clear());
    for partition in &second {
        until(&mut client, *partition, 0).await;
        let (error, mut records) = read(&mut client, *partition).await;
        // A write that was answered with an error may have reached the disk nevertheless.
        records.retain(|record| record != "lost");
        assert_eq!((error, records), (0, vec!["first".to_owned(), "again".to_owned()]));
    }
    assert!(described(&mut client).await.iter().all(|(_, error, _)| *error == 0));
    assert_eq!(leaders(&mut client).await, vec![(0, 1000, vec![]); PARTITIONS as usize]);
}

#[test]
fn a_broken_disk_takes_its_own_partitions_only_and_brings_them_back() {
    for seed in 0..20 {
        let outcome = World::new(seed).run(one_disk_breaks_and_comes_back);
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}

/// Both shards have partitions on both disks; only one of them notices.
async fn the_other_shard_hears_of_it() {
    format().await;
    let mut shards = start_on(2, BASE_PORT, &DIRS, &[]);
    shards.ready().await;
    let mut first = Client::connect(shards.addresses[0]).await.unwrap();
    let mut second = Client::connect(shards.addresses[1]).await.unwrap();
    assert_eq!(first.create_topic(TOPIC, PARTITIONS, &[]).await.unwrap(), 0);
    let failing = described(&mut first).await[1].2.clone();
    with_faults(|faults| faults.disk.broken.insert(DIRS[1].into()));
    until(&mut first, failing[0], STORAGE_ERROR).await;
    let begin = reactor::now();
    while described(&mut second).await[1].1 != STORAGE_ERROR {
        assert!(reactor::now() - begin < LONG);
        reactor::sleep(Duration::from_millis(10)).await;
    }
    with_faults(|faults| faults.disk.broken.clear());
    let begin = reactor::now();
    while described(&mut second).await[1].1 != 0 {
        assert!(reactor::now() - begin < LONG);
        reactor::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn what_one_shard_finds_the_others_know() {
    let outcome = World::new(3).run(the_other_shard_hears_of_it);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

async fn one_disk_hangs() {
    let mut client = start(&DIRS, 1).await;
    let (first, second) = topic_on_both(&mut client).await;
    let hour = Delay::exactly(Duration::from_secs(3600));
    with_faults(|faults| faults.disk.slow.insert(DIRS[1].into(), hour));
    let begin = reactor::now();
    while reactor::now() - begin < Duration::from_secs(120) {
        let asked = reactor::now();
        for partition in &first {
            assert_eq!(produce(&mut client, *partition, "on").await.0, 0);
            assert_eq!(read(&mut client, *partition).await.0, 0);
        }
        assert!(reactor::now() - asked < Duration::from_secs(1), "the healthy disk waits");
        reactor::sleep(Duration::from_secs(1)).await;
    }
    let dirs = described(&mut client).await;
    assert_eq!((dirs[0].1, dirs[1].1), (0, STORAGE_ERROR), "the hanging disk is given up");
    assert_eq!(produce(&mut client, second[0], "x").await.0, STORAGE_ERROR);
    // Topics can be made and deleted all the same.
    assert_eq!(client.create_topic("new", 2, &[]).await.unwrap(), 0);
    assert_eq!(client.delete_topic("new").await.unwrap(), 0);
    assert_eq!(client.delete_topic(TOPIC).await.unwrap(), 0);
}

/// What is in memory can still be read, and a look tells nothing.
async fn a_disk_hangs_for_writes() {
    let mut client = start(&DIRS, 1).await;
    let (first, second) = topic_on_both(&mut client).await;
    with_faults(|faults| {
        let hour = Delay::exactly(Duration::from_secs(3600));
        let names = second.iter().map(|partition| format!("{TOPIC}-{partition}"));
        for name in names.chain(["corelane-probe-0.tmp".to_owned()]) {
            faults.disk.slow.insert(Path::new(DIRS[1]).join(name), hour);
        }
    });
    let mut hanging = Client::connect(([127, 0, 0, 1], BASE_PORT).into()).await.unwrap();
    let partition = second[0];
    let asked = reactor::spawn(async move { produce(&mut hanging, partition, "x").await });
    let begin = reactor::now();
    while described(&mut client).await[1].1 != STORAGE_ERROR {
        let waited = reactor::now() - begin;
        assert!(waited < Duration::from_secs(45), "nobody has found out in {waited:?}");
        assert_eq!(produce(&mut client, first[0], "on").await.0, 0);
        reactor::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(asked.await.0, STORAGE_ERROR);
}

#[test]
fn a_disk_that_hangs_for_writes_only_is_found_out_about() {
    let outcome = World::new(17).run(a_disk_hangs_for_writes);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

#[test]
fn a_disk_that_hangs_holds_up_nobody_else() {
    let outcome = World::new(11).run(one_disk_hangs);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// Whose free bytes a look can tell without asking the device, and which has too few of them: retention that
/// hangs there must not keep the watch from finding out.
async fn a_disk_with_little_space_hangs() {
    const MANY: i32 = 60;
    with_faults(|faults| faults.disk.capacity = Some(64 << 20));
    let mut client = start(&DIRS, 1).await;
    assert_eq!(client.create_topic(TOPIC, MANY, &[]).await.unwrap(), 0);
    for partition in 0..MANY {
        assert_eq!(produce(&mut client, partition, "first").await, (0, 0));
    }
    let here = described(&mut client).await[1].2.clone();
    assert!(here.len() > 20);
    let space = reactor::fs::space(Path::new(DIRS[0])).await.unwrap();
    let filler = vec![7; (space.available - space.total / 12) as usize];
    reactor::fs::write_atomic(Path::new("/filler"), filler).await.unwrap();
    // Until the watch has noticed.
    reactor::sleep(Duration::from_secs(5)).await;
    with_faults(|faults| {
        let hour = Delay::exactly(Duration::from_secs(3600));
        let mut hangs = |name: String| {
            faults.disk.slow.insert(Path::new(DIRS[1]).join(name), hour);
        };
        here.iter().for_each(|partition| hangs(format!("{TOPIC}-{partition}")));
        hangs("corelane-probe-0.tmp".to_owned());
    });
    let begin = reactor::now();
    while described(&mut client).await[1].1 != STORAGE_ERROR {
        let waited = reactor::now() - begin;
        assert!(waited < Duration::from_secs(45), "nobody has found out in {waited:?}");
        reactor::sleep(Duration::from_millis(500)).await;
    }
}

#[test]
fn a_disk_that_hangs_is_found_out_about_though_it_has_little_space() {
    let outcome = World::new(13).run(a_disk_with_little_space_hangs);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

async fn make_topic() {
    let mut client = start(&DIRS, 1).await;
    topic_on_both(&mut client).await;
}

/// With one of the directories not named, or broken: its partitions are offline, not empty.
async fn start_with(dirs: &'static [&'static str], offline: Vec<i32>) {
    let mut client = start(dirs, 1).await;
    for partition in 0..PARTITIONS {
        let expected = match offline.contains(&partition) {
            true => (STORAGE_ERROR, vec![]),
            false => (0, vec!["first".to_owned()]),
        };
        assert_eq!(read(&mut client, partition).await, expected, "partition {partition}");
    }
    // Producers are refused in a way that they retry, and nobody is told that the log is empty.
    for partition in &offline {
        for _ in 0..3 {
            assert_eq!(produce(&mut client, *partition, "refused").await.0, STORAGE_ERROR);
        }
        assert_eq!(end_of(&mut client, *partition).await, (STORAGE_ERROR, -1));
    }
    for (partition, told) in (0..).zip(leaders(&mut client).await) {
        let expected = match offline.contains(&partition) {
            true => (LEADER_NOT_AVAILABLE, -1, vec![1000]),
            false => (0, 1000, vec![]),
        };
        assert_eq!(told, expected, "partition {partition}");
    }
}

/// What ListOffsets says of the partition's end: error and offset.
async fn end_of(client: &mut Client, partition: i32) -> (i16, i64) {
    let wanted = ListOffsetsPartition {
        partition_index: partition,
        current_leader_epoch: -1,
        timestamp: LATEST,
    };
    let topic = ListOffsetsTopic { name: TOPIC.into(), partitions: vec![wanted].into() };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![topic].into(),
        ..ListOffsetsRequest::default()
    };
    let answer: ListOffsetsResponse<'static> =
        client.call::<_, Listed>(ApiKey::ListOffsets, 7, &request).await.unwrap();
    let told = answer.topics.first().unwrap().partitions.first().unwrap();
    (told.error_code, told.offset)
}

/// Nothing of what was refused is there, and the records go on behind those that were.
async fn goes_on() {
    let mut client = start(&DIRS, 1).await;
    for partition in 0..PARTITIONS {
        assert_eq!(end_of(&mut client, partition).await, (0, 1));
        assert_eq!(produce(&mut client, partition, "second").await, (0, 1));
        let both = vec!["first".to_owned(), "second".to_owned()];
        assert_eq!(read(&mut client, partition).await, (0, both));
    }
}

#[test]
fn a_partition_whose_directory_is_missing_is_offline_and_never_begun_empty() {
    let mut world = World::new(5);
    assert!(world.run(make_topic).finished().is_some());
    let on_second = placed(&mut world)[1].clone();
    assert_eq!(on_second.len(), 3);
    let missing = on_second.clone();
    assert!(world.run(move || start_with(&["/disk1"], missing)).finished().is_some());
    // Broken at the start is the same, and it starts.
    world.faults().disk.broken.insert("/disk2".into());
    let broken = on_second.clone();
    assert!(world.run(move || start_with(&DIRS, broken)).finished().is_some());
    world.faults().disk.broken.clear();
    // In whatever order they are named, everything is there again.
    assert!(world.run(|| start_with(&DIRS, vec![])).finished().is_some());
    assert!(world.run(goes_on).finished().is_some());
    assert_eq!(placed(&mut world)[1], on_second, "nothing was moved or made anew");
}

#[test]
fn without_the_directory_of_the_metadata_it_does_not_start() {
    let mut world = World::new(6);
    assert!(world.run(make_topic).finished().is_some());
    world.faults().disk.broken.insert("/disk1".into());
    let outcome = world.run(|| async {
        let mut shards = start_on(1, BASE_PORT, &DIRS, &[]);
        shards.tasks.remove(0).await.unwrap_err().to_string()
    });
    let text = outcome.finished().unwrap();
    assert!(text.contains("/disk1") && text.contains("__cluster_metadata-0"), "{text}");
}

/// A crash while a disk is broken loses nothing that was acknowledged on either.
#[test]
fn a_crash_with_a_broken_disk_keeps_what_both_have() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        assert!(world.run(make_topic).finished().is_some());
        world.faults().disk.broken.insert("/disk2".into());
        world.crash_after(60 + seed * 7, Crash::Process);
        let crashed = world.run(|| async {
            let mut client = start(&DIRS, 1).await;
            loop {
                for partition in 0..PARTITIONS {
                    produce(&mut client, partition, "more").await;
                }
            }
        });
        assert!(matches!(crashed, Outcome::Crashed(_)), "seed {seed}");
        world.faults().disk.broken.clear();
        let read = world.run(|| async {
            let mut client = start(&DIRS, 1).await;
            for partition in 0..PARTITIONS {
                let (error, records) = read(&mut client, partition).await;
                assert_eq!((error, records.first().map(String::as_str)), (0, Some("first")));
            }
        });
        assert!(matches!(read, Outcome::Finished(())), "seed {seed}: {read:?}");
    }
}

/// Until a fetch from the beginning of this partition is answered with this code.
async fn until_read(client: &mut Client, partition: i32, code: i16) {
    let begin = reactor::now();
    while read(client, partition).await.0 != code {
        assert!(reactor::now() - begin < LONG, "partition {partition} is never answered {code}");
        reactor::sleep(Duration::from_millis(100)).await;
    }
}

/// Records that are in no memory any more cannot be read: of one file, then of the whole disk. Nobody
/// writes, so only the reads can tell.
async fn reads_fail(partitions: (Vec<i32>, Vec<i32>)) {
    let (first, second) = partitions;
    let mut client = start(&DIRS, 1).await;
    let (bad, other) = (second[0], second[1]);
    let file = format!("{}/{TOPIC}-{bad}/00000000000000000000.log", DIRS[1]);
    assert_eq!(read(&mut client, bad).await.0, 0, "all is well");
    with_faults(|faults| faults.disk.broken.insert(file.into()));
    assert_eq!(read(&mut client, bad).await.0, STORAGE_ERROR);
    // Long enough for the probe: the disk works, and so does everything else on it.
    for _ in 0..10 {
        reactor::sleep(Duration::from_secs(1)).await;
        assert_eq!(read(&mut client, bad).await.0, STORAGE_ERROR);
        assert_eq!(read(&mut client, other).await.0, 0);
        assert!(described(&mut client).await.iter().all(|(_, error, _)| *error == 0));
    }
    with_faults(|faults| faults.disk.broken.clear());
    until_read(&mut client, bad, 0).await;
    // The disk gives back nothing: neither its records nor what the probe wrote.
    with_faults(|faults| faults.disk.broken.insert(DIRS[1].into()));
    assert_eq!(read(&mut client, bad).await.0, STORAGE_ERROR);
    let begin = reactor::now();
    while described(&mut client).await[1].1 != STORAGE_ERROR {
        assert!(reactor::now() - begin < LONG, "the disk is not told to have failed");
        reactor::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(read(&mut client, first[0]).await.0, 0);
    with_faults(|faults| faults.disk.broken.clear());
    for partition in &second {
        until_read(&mut client, *partition, 0).await;
        assert_eq!(read(&mut client, *partition).await.1.len(), 4);
    }
}

#[test]
fn reads_that_fail_are_told_and_the_disk_is_looked_at() {
    let mut world = World::new(31);
    let ran = world.run(|| async {
        let mut client = start(&DIRS, 1).await;
        let placed = topic_on_both(&mut client).await;
        for _ in 0..3 {
            for partition in 0..PARTITIONS {
                let value = "x".repeat(10_000);
                assert_eq!(produce(&mut client, partition, &value).await.0, 0);
            }
        }
        placed
    });
    let placed = ran.finished().expect("the first run ends");
    let ran = world.run(move || reads_fail(placed));
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
}

const ADMIN_PORT: u16 = 9999;

/// What the admin listener answers, from the status on.
async fn scrape(path: &str) -> String {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], ADMIN_PORT));
    let stream = reactor::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(vec![request.into()]).await.unwrap();
    let mut answer = bytes::BytesMut::new();
    loop {
        answer.reserve(64 * 1024);
        let (read, back) = stream.read(answer).await;
        answer = back;
        if !matches!(read, Ok(more) if more > 0) {
            return String::from_utf8(answer.to_vec()).unwrap();
        }
    }
}

fn sample(text: &str, name: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap() as usize
}

/// A partition whose log has failed counts as offline at once, and the broker stays ready.
#[test]
fn what_takes_no_records_is_counted_and_told_and_the_broker_stays_ready() {
    let outcome = World::new(9).run(|| async {
        format().await;
        let settings = format!("admin.port={ADMIN_PORT}");
        let mut started = start_on(1, BASE_PORT, &DIRS, &[&settings]);
        started.ready().await;
        let mut client = Client::connect(started.addresses[0]).await.unwrap();
        let (first, _) = topic_on_both(&mut client).await;
        assert!(scrape("/ready").await.ends_with("\r\n\r\nready\n"));
        let folder = Path::new(DIRS[0]).join(format!("{TOPIC}-{}", first[0]));
        with_faults(|faults| faults.disk.broken.insert(folder));
        assert_eq!(produce(&mut client, first[0], "lost").await.0, STORAGE_ERROR);
        for _ in 0..200 {
            let text = scrape("/metrics").await;
            let offline = sample(&text, "corelane_partitions_offline");
            assert_eq!(offline + sample(&text, "corelane_partitions_opening"), 1);
            assert_eq!(sample(&text, "corelane_partitions_online"), PARTITIONS as usize - 1);
            reactor::sleep(Duration::from_millis(10)).await;
        }
        loop {
            let ready = scrape("/ready").await;
            if ready.starts_with("HTTP/1.1 200 ") {
                assert!(ready.contains("ready, but 1 partitions are offline"), "{ready}");
                break;
            }
            reactor::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// A stop waits for a disk that hangs a minute with its logs and half of one with its checkpoints, closes
/// all that is elsewhere, and says how many partitions were not closed.
#[test]
fn a_stop_does_not_wait_for_a_disk_that_hangs() {
    let mut world = World::new(17);
    world.terminate_after(Duration::from_secs(20));
    let outcome = world.run(|| async {
        let begin = reactor::now();
        format().await;
        let mut started = start_on(1, BASE_PORT, &DIRS, &[]);
        started.ready().await;
        let mut client = Client::connect(started.addresses[0]).await.unwrap();
        let (_, second) = topic_on_both(&mut client).await;
        let hour = Delay::exactly(Duration::from_secs(3600));
        reactor::sleep_until(begin + Duration::from_millis(19_900)).await;
        with_faults(|faults| faults.disk.slow.insert(DIRS[1].into(), hour));
        // What is on its way there when the stop comes.
        for partition in &second {
            let bytes = batch(&[b"w"], 0);
            let _ = reactor::timeout(
                Duration::from_millis(10),
                client.produce(TOPIC, *partition, &bytes),
            )
            .await;
        }
        let mut ends = Vec::new();
        for task in started.tasks {
            ends.push(task.await.map_err(|error| error.to_string()));
        }
        (ends, second.len(), reactor::now() - begin)
    });
    let Outcome::Finished((ends, second, took)) = outcome else { panic!("{outcome:?}") };
    let [Err(error)] = &ends[..] else { panic!("{ends:?}") };
    let failed: usize = error.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=second).contains(&failed), "{error}, {second} are there");
    let [come, logs, checkpoints, rest] = [20, 60, 30, 10].map(Duration::from_secs);
    assert!(took < come + logs + checkpoints + rest, "{took:?}");
}

/// Neither for one whose write hangs, nor for one that waits until a topic of that name is gone.
#[test]
fn a_stop_does_not_wait_for_a_change_of_metadata_that_hangs() {
    for (hangs, deletes) in [(DIRS[0], false), (DIRS[1], true)] {
        let mut world = World::new(18);
        world.terminate_after(Duration::from_secs(20));
        let outcome = world.run(move || async move {
            let begin = reactor::now();
            format().await;
            let mut started = start_on(1, BASE_PORT, &DIRS, &[]);
            started.ready().await;
            let mut client = Client::connect(started.addresses[0]).await.unwrap();
            topic_on_both(&mut client).await;
            let hour = Delay::exactly(Duration::from_secs(3600));
            reactor::sleep_until(begin + Duration::from_millis(19_800)).await;
            with_faults(|faults| faults.disk.slow.insert(hangs.into(), hour));
            let moment = Duration::from_millis(50);
            let mut name = "another";
            if deletes {
                name = TOPIC;
                let deleted = reactor::timeout(moment, client.delete_topic(TOPIC)).await;
                assert!(matches!(deleted, Ok(Ok(0))), "{deleted:?}");
            }
            let created = reactor::timeout(moment, client.create_topic(name, 1, &[])).await;
            assert!(created.is_err(), "it was not under way: {created:?}");
            let mut ends = Vec::new();
            for task in started.tasks {
                ends.push(task.await.map_err(|error| error.to_string()));
            }
            (ends, reactor::now() - begin)
        });
        let Outcome::Finished((ends, took)) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(&ends[..], [Err(_)]), "{hangs}: {ends:?}");
        assert!(took < Duration::from_secs(400), "{hangs}: {took:?}");
    }
}
