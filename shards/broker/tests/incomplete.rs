//! Partitions that lack a segment that was safe, in the simulator: offline, never served short, and
//! served again without a restart once the file is back or its loss accepted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::fs;
use reactor::sim::{Outcome, World};
use support::{BASE_PORT, Client, Shards, batch, start_on, values};

const DIR: &str = "/data";
const TOPIC: &str = "t";
const GROUP: &str = "readers";
const NOBODY: (&str, i32) = ("", -1);
const RECORDS: i64 = 40;
const STORAGE_ERROR: i16 = 56;

async fn start() -> (Shards, Client) {
    fs::create_dir_all(Path::new(DIR)).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_on(1, BASE_PORT, &[DIR], &[]);
    started.ready().await;
    let client = Client::connect(started.addresses[0]).await.unwrap();
    (started, client)
}

/// Records in two partitions and a committed offset; then a clean end, or a crash.
fn first_run(world: &mut World, clean: bool) {
    let end = Duration::from_secs(if clean { 30 } else { 3_600 });
    world.terminate_after(end);
    let ran = world.run(move || async move {
        let (started, mut client) = start().await;
        let small = [("internal.segment.bytes", "20000")];
        assert_eq!(client.create_topic(TOPIC, 2, &small).await.unwrap(), 0);
        for offset in 0..RECORDS {
            for partition in 0..2 {
                let bytes = batch(&[&[b'v'; 3_000]], reactor::wall_clock_ms());
                assert_eq!(client.produce(TOPIC, partition, &bytes).await.unwrap(), (0, offset));
            }
        }
        // Asking for the coordinator makes its topic.
        client.coordinator(GROUP).await.unwrap();
        reactor::sleep(Duration::from_secs(1)).await;
        client.groups_loaded().await.unwrap();
        assert_eq!(client.commit(GROUP, NOBODY, (TOPIC, 0), 17).await.unwrap(), 0);
        match clean {
            true => {
                for task in started.tasks {
                    task.await.expect("a clean end");
                }
            }
            false => reactor::sleep(Duration::from_secs(5)).await,
        }
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
    world.terminate_after(Duration::from_secs(36_000));
}

/// The segments in a folder that have anything in them.
fn segments(world: &mut World, folder: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for (path, size) in world.disk().files() {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if is_log && size > 0 && path.parent().unwrap().ends_with(folder) {
            found.push(path);
        }
    }
    found.sort();
    found
}

async fn read(client: &mut Client, partition: i32, from: i64) -> (i16, Vec<i64>) {
    let (error, _, bytes) = client.fetch(TOPIC, partition, from, 0).await.unwrap();
    (error, values(&bytes).into_iter().map(|(offset, _)| offset).collect())
}

/// Until the partition takes a record; its offset.
async fn produce_again(client: &mut Client) -> i64 {
    let begin = reactor::now();
    loop {
        let bytes = batch(&[b"new"], reactor::wall_clock_ms());
        match client.produce(TOPIC, 0, &bytes).await.unwrap() {
            (0, offset) => return offset,
            (STORAGE_ERROR | 6, _) => {}
            other => panic!("produce answered {other:?}"),
        }
        assert!(reactor::now() - begin < Duration::from_secs(1_200), "it stays offline");
        reactor::sleep(Duration::from_millis(500)).await;
    }
}

#[test]
fn a_partition_without_one_of_its_segments_is_offline_until_that_is_back_or_given_up() {
    for (clean, put_back) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::new(3);
        first_run(&mut world, clean);
        let all = segments(&mut world, "t-0");
        assert!(all.len() > 4, "{all:?}");
        // After a crash the last one may be torn.
        let lost = all[all.len() - 2].clone();
        let after: i64 = all[all.len() - 1].file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let before: i64 = lost.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let ran = world.run(move || async move {
            let kept = Path::new(DIR).join("kept");
            fs::rename(&lost, &kept).await.unwrap();
            let (_started, mut client) = start().await;
            reactor::sleep(Duration::from_secs(90)).await;
            let bytes = batch(&[b"new"], reactor::wall_clock_ms());
            let answer = client.produce(TOPIC, 0, &bytes).await.unwrap();
            assert_eq!(answer.0, STORAGE_ERROR, "clean {clean}, {lost:?}: {answer:?}");
            assert_eq!(read(&mut client, 0, 0).await, (STORAGE_ERROR, Vec::new()));
            // Others go on.
            assert_eq!(client.produce(TOPIC, 1, &bytes).await.unwrap(), (0, RECORDS));
            match put_back {
                true => fs::rename(&kept, &lost).await.unwrap(),
                false => {
                    let word = lost.with_file_name("given-up-offset-checkpoint");
                    fs::write_atomic(&word, Vec::new()).await.unwrap();
                }
            }
            assert_eq!(produce_again(&mut client).await, RECORDS);
            let mut offsets = Vec::new();
            while offsets.last() != Some(&RECORDS) {
                let next = offsets.last().map_or(0, |last| last + 1);
                let (error, read) = read(&mut client, 0, next).await;
                assert_eq!(error, 0, "from {next}");
                offsets.extend(read);
            }
            let gone = if put_back { 0..0 } else { before..after };
            let expected: Vec<i64> = (0..=RECORDS).filter(|n| !gone.contains(n)).collect();
            assert_eq!(offsets, expected);
        });
        assert!(matches!(ran, Outcome::Finished(())), "clean {clean}: {ran:?}");
    }
}

#[test]
fn commits_do_not_go_silently_with_the_segment_that_has_them() {
    let mut world = World::new(4);
    first_run(&mut world, true);
    let offsets = world.disk().files().into_iter().filter(|(path, size)| {
        let path = path.to_str().unwrap();
        *size > 0 && path.contains("__consumer_offsets-") && path.ends_with(".log")
    });
    let offsets: Vec<PathBuf> = offsets.map(|(path, _)| path).collect();
    let [lost] = &offsets[..] else { panic!("{offsets:?}") };
    let lost = lost.clone();
    let ran = world.run(move || async move {
        let bytes = fs::read(&lost).await.unwrap();
        let empty = reactor::File::open(&lost, reactor::OpenOptions::for_writing()).await.unwrap();
        empty.set_len(0).await.unwrap();
        let (_started, mut client) = start().await;
        reactor::sleep(Duration::from_secs(30)).await;
        let (error, committed) = client.committed(GROUP).await.unwrap();
        assert!(error != 0, "the group has no offsets: {committed:?}");
        fs::write_atomic(&lost, bytes).await.unwrap();
        let begin = reactor::now();
        loop {
            match client.committed(GROUP).await.unwrap() {
                (0, committed) => {
                    assert_eq!(committed, [(TOPIC.to_owned(), 0, 17)]);
                    break;
                }
                _ => reactor::sleep(Duration::from_secs(1)).await,
            }
            assert!(reactor::now() - begin < Duration::from_secs(1_200), "it stays offline");
        }
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
}
