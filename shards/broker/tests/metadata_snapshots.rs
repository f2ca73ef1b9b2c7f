//! The metadata log is cut behind snapshots, in the simulator: whatever moment a crash or a power
//! cut comes at, every topic that was acknowledged is there, and none that was deleted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use reactor::sim::{Crash, Outcome, World};
use support::{BASE_PORT, Client, Shards, start_shards};
use wire::ApiKey;
use wire::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use wire::messages::delete_topics_response::DeleteTopicsResponse;
use wire::messages::metadata_request::MetadataRequest;
use wire::messages::metadata_response::MetadataResponse;

response!(DeleteTopics, DeleteTopicsResponse, borrows);
response!(Metadata, MetadataResponse, borrows);

const DATA_DIR: &str = "/data";
const METADATA_DIR: &str = "/data/__cluster_metadata-0";
/// A snapshot after every few topics.
const OFTEN: &str = "metadata.log.max.record.bytes.between.snapshots=600";
const SEEDS: u64 = 10;

async fn broker() -> (Shards, Client) {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.expect("the disk works");
    reactor::fs::sync_dir(Path::new("/")).await.expect("the disk works");
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[OFTEN]);
    shards.ready().await;
    let client = Client::connect(shards.addresses[0]).await.expect("connect");
    (shards, client)
}

/// What clients were told: topics that are there, and the one being changed, which may be or not.
#[derive(Default)]
struct Told {
    there: BTreeSet<String>,
    under_way: Option<String>,
}

async fn delete(client: &mut Client, name: &str) -> i16 {
    let topic = DeleteTopicState { name: Some(name.to_owned().into()), ..Default::default() };
    let request = DeleteTopicsRequest {
        topics: vec![topic].into(),
        timeout_ms: 30_000,
        ..Default::default()
    };
    let answer = client.call::<_, DeleteTopics>(ApiKey::DeleteTopics, 6, &request).await;
    answer.expect("delete").responses.first().unwrap().error_code
}

/// Makes topics and deletes every third again, until the crash.
async fn change_forever(told: Rc<RefCell<Told>>, from: usize) {
    let (_shards, mut client) = broker().await;
    for number in from.. {
        let name = format!("topic-{number}");
        told.borrow_mut().under_way = Some(name.clone());
        assert_eq!(client.create_topic(&name, 2, &[]).await.expect("create"), 0);
        told.borrow_mut().there.insert(name);
        if number % 3 == 0 {
            let oldest = told.borrow().there.first().cloned().expect("one was made");
            {
                let mut told = told.borrow_mut();
                told.there.remove(&oldest);
                told.under_way = Some(oldest.clone());
            }
            assert_eq!(delete(&mut client, &oldest).await, 0);
        }
        told.borrow_mut().under_way = None;
    }
}

async fn topics() -> BTreeSet<String> {
    let (_shards, mut client) = broker().await;
    let request = MetadataRequest { topics: None, ..Default::default() };
    let answer = client.call::<_, Metadata>(ApiKey::Metadata, 9, &request).await.expect("metadata");
    answer.topics.iter().map(|topic| topic.name.clone().unwrap().into_owned()).collect()
}

async fn names_in(dir: &str) -> Vec<String> {
    let entries = reactor::fs::read_dir(Path::new(dir)).await.expect("the folder is there");
    entries.into_iter().map(|entry| entry.name).collect()
}

fn history(seed: u64, crash: Crash) -> bool {
    let mut world = World::new(seed);
    let told: Rc<RefCell<Told>> = Rc::default();
    let mut cut = false;
    for run in 0..3 {
        world.crash_after(60 + (seed * 131 + run * 977) % 2500, crash);
        let (here, from) = (told.clone(), 1 + run as usize * 10_000);
        let outcome = world.run(move || change_forever(here, from));
        assert!(matches!(outcome, Outcome::Crashed(_)), "seed {seed} run {run}: {outcome:?}");
        let Outcome::Finished(mut found) = world.run(topics) else {
            panic!("seed {seed} run {run}: the broker did not come back");
        };
        let mut told = told.borrow_mut();
        if let Some(name) = told.under_way.take() {
            // Nobody was told: either is right from now on.
            match found.contains(&name) {
                true => drop(told.there.insert(name)),
                false => drop(told.there.remove(&name)),
            }
        }
        found.retain(|name| name.starts_with("topic-"));
        assert_eq!(found, told.there, "seed {seed} run {run}");
        let Outcome::Finished(files) = world.run(|| names_in(METADATA_DIR)) else {
            panic!("the folder can be listed");
        };
        let snapshots = files.iter().filter(|name| name.contains("-0000000001.checkpoint"));
        cut |= snapshots.count() >= 2;
    }
    cut
}

#[test]
fn topics_survive_a_crash_at_any_moment_of_a_snapshot() {
    let cut = (0..SEEDS).filter(|seed| history(*seed, Crash::Process)).count();
    assert!(cut > 0, "no run got as far as to two snapshots");
}

#[test]
fn topics_survive_a_power_cut_at_any_moment_of_a_snapshot() {
    let cut = (0..SEEDS).filter(|seed| history(1000 + seed, Crash::Power)).count();
    assert!(cut > 0, "no run got as far as to two snapshots");
}

/// The newest snapshot is damaged: the older one and the log behind it say the same.
#[test]
fn a_damaged_snapshot_costs_a_longer_replay_and_no_topic() {
    let mut world = World::new(3);
    let made = world.run(|| async {
        let (_shards, mut client) = broker().await;
        for number in 0..60 {
            let name = format!("topic-{number:02}");
            assert_eq!(client.create_topic(&name, 2, &[]).await.expect("create"), 0);
        }
        reactor::sleep(std::time::Duration::from_secs(1)).await;
        let files = names_in(METADATA_DIR).await;
        let snapshots: Vec<&String> =
            files.iter().filter(|name| name.contains("-0000000001.checkpoint")).collect();
        assert_eq!(snapshots.len(), 2, "{files:?}");
        let newest = Path::new(METADATA_DIR).join(snapshots[1]);
        let mut bytes = reactor::fs::read(&newest).await.expect("the disk works");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        reactor::fs::write_atomic(&newest, bytes).await.expect("the disk works");
    });
    made.finished().expect("the first run ends by itself");
    let found = world.run(topics).finished().expect("the second run ends by itself");
    assert_eq!(found.len(), 60);
    let files = world.run(|| names_in(METADATA_DIR)).finished().expect("it can be listed");
    let aside = files.iter().filter(|name| name.ends_with(".checkpoint.damaged"));
    assert_eq!(aside.count(), 1, "it does not count as one that is kept: {files:?}");
}
