//! Two thousand partitions on real files: made, written, left by a crash, served again, deleted;
//! and what that costs in open files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use reactor::{ShardSpec, uring};
use support::{Client, batch, start_shards, values};
use wire::ApiKey;
use wire::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::messages::metadata_response::MetadataResponse;

response!(Metadata, MetadataResponse, borrows);

const TOPIC: &str = "many";
const PARTITIONS: i32 = 2_000;
const SHARDS: u16 = 2;
const BASE_PORT: u16 = 21_140;
/// What a broker without a partition has open, with the partitions that may be opening now.
const FILES_BESIDE: usize = 250;

/// Which shard leads each partition.
async fn leaders(client: &mut Client) -> Vec<usize> {
    let topic = MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic].into()), ..Default::default() };
    let answer = client.call::<_, Metadata>(ApiKey::Metadata, 9, &request).await.expect("metadata");
    let topic = answer.topics.first().expect("the topic").clone();
    let mut leaders = vec![0; PARTITIONS as usize];
    for partition in topic.partitions.iter() {
        leaders[partition.partition_index as usize] = (partition.leader_id % 1000) as usize;
    }
    leaders
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

fn value(partition: i32) -> Vec<u8> {
    format!("of {partition}").into_bytes()
}

/// The folders of the topic's partitions.
fn folders(data: &Path) -> usize {
    let is_partition = |name: &str| log::parse_partition_dir_name(name).is_some();
    let entries = std::fs::read_dir(data).expect("the data folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(TOPIC) && is_partition(name)).count()
}

#[test]
fn two_thousand_partitions_are_made_written_recovered_and_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_string_lossy().into_owned();
    let path = data.clone();
    uring::run(&ShardSpec::default(), || async move {
        let mut broker = start_shards(SHARDS, BASE_PORT, &path, &[]);
        broker.ready().await;
        let mut clients = Vec::new();
        for address in &broker.addresses {
            clients.push(Client::connect(*address).await.expect("connect"));
        }
        assert_eq!(clients[0].create_topic(TOPIC, PARTITIONS, &[]).await.expect("create"), 0);
        let leaders = leaders(&mut clients[0]).await;
        assert!(leaders.contains(&0) && leaders.contains(&1), "both shards lead some");
        // The first answer of each waits until it is open.
        for (partition, leader) in (0..).zip(&leaders) {
            let bytes = batch(&[&value(partition)], reactor::wall_clock_ms());
            let told = clients[*leader].produce(TOPIC, partition, &bytes).await.expect("produce");
            assert_eq!(told, (0, 0), "partition {partition}");
        }
        assert_eq!(folders(Path::new(&path)), PARTITIONS as usize);
        // Here the shards end as in a crash: nothing is closed, flushed or said.
    })
    .expect("io_uring works here");
    let path = data.clone();
    uring::run(&ShardSpec::default(), || async move {
        let before = open_files();
        let mut broker = start_shards(SHARDS, BASE_PORT + 4, &path, &[]);
        broker.ready().await;
        let mut clients = Vec::new();
        for address in &broker.addresses {
            clients.push(Client::connect(*address).await.expect("connect"));
        }
        let leaders = leaders(&mut clients[0]).await;
        // From the end, where the queue is not yet.
        for partition in (0..PARTITIONS).rev() {
            let leader = &leaders[partition as usize];
            let (error, end, bytes) =
                clients[*leader].fetch(TOPIC, partition, 0, 0).await.expect("fetch");
            assert_eq!((error, end), (0, 1), "partition {partition}");
            assert_eq!(values(&bytes), [(0, value(partition))]);
            if partition == PARTITIONS / 2 {
                let open = open_files() - before;
                let read = (PARTITIONS / 2) as usize;
                assert!(open < read + FILES_BESIDE, "{open} files, most partitions were not read");
            }
        }
        assert_eq!(clients[1].delete_topic(TOPIC).await.expect("delete"), 0);
        for client in &mut clients {
            let (error, ..) = client.fetch(TOPIC, 0, 0, 0).await.expect("an answer");
            assert_eq!(error, 3, "it is out of service when the answer comes");
        }
        // At once, though the old folders may still be there under the same names, and on other
        // shards than the new ones.
        let again = PARTITIONS / 2 + 1;
        assert_eq!(clients[1].create_topic(TOPIC, again, &[]).await.expect("create again"), 0);
        let leaders = self::leaders(&mut clients[0]).await;
        for partition in [0, 1, again / 2, again - 1] {
            let bytes = batch(&[b"new"], reactor::wall_clock_ms());
            let leader = &mut clients[leaders[partition as usize]];
            let told = leader.produce(TOPIC, partition, &bytes).await.expect("produce");
            assert_eq!(told, (0, 0), "partition {partition} begins afresh");
        }
        assert!(folders(Path::new(&path)) <= again as usize, "the old ones have other names");
        let aside = std::fs::read_dir(&path).expect("the data folder");
        let aside = aside.filter(|e| {
            e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().ends_with("-stray"))
        });
        assert_eq!(aside.count(), 0, "none is taken for somebody else's");
    })
    .expect("io_uring works here");
    // Closed cleanly or not, a partition that nobody asks for has no open file.
    let path = data;
    uring::run(&ShardSpec::default(), || async move {
        let before = open_files();
        let mut broker = start_shards(SHARDS, BASE_PORT + 8, &path, &[]);
        broker.ready().await;
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("idle", PARTITIONS, &[]).await.expect("create"), 0);
        let answer = client.create_topic("idle", 1, &[]).await.expect("answer");
        assert_eq!(answer, 36, "it is there");
        let open = open_files() - before;
        assert!(open < FILES_BESIDE, "{open} files are open though nothing was written");
    })
    .expect("io_uring works here");
}
