//! Clients that ask for long answers and read none, over many connections, in the simulator: what they
//! do not take stays within its budget, all others are served, and in the end they are closed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::TcpStream;
use reactor::sim::World;
use support::{BASE_PORT, Client, batch, start_shards};
use wire::ApiKey;
use wire::messages as m;
use wire::messages::{offset_commit_request as commit, offset_fetch_request as fetch};

const DATA_DIR: &str = "/data";
const GROUP: &str = "readers";
const TOPIC: &str = "orders";
const ADMIN_PORT: u16 = 19_999;
const PARTITIONS: i32 = 200;
/// With this for each partition the answer has 0.8 MB, and what it answers is a few bytes.
const METADATA_BYTES: usize = 4_000;
const ANSWER_BYTES: f64 = 200.0 * 4_000.0;
const SILENT: usize = 200;
const ASKED_BY_EACH: usize = 8;

fn all_offsets() -> m::OffsetFetchRequest<'static> {
    let group = fetch::OffsetFetchRequestGroup {
        group_id: GROUP.into(),
        topics: None,
        member_epoch: -1,
        ..Default::default()
    };
    m::OffsetFetchRequest { groups: vec![group].into(), ..Default::default() }
}

async fn commit(client: &mut Client) {
    let metadata = "m".repeat(METADATA_BYTES);
    let partitions = (0..PARTITIONS).map(|index| commit::OffsetCommitRequestPartition {
        partition_index: index,
        committed_offset: 1,
        committed_metadata: Some(metadata.as_str().into()),
        ..Default::default()
    });
    let topic = commit::OffsetCommitRequestTopic {
        name: TOPIC.into(),
        partitions: partitions.collect(),
        ..Default::default()
    };
    let request = m::OffsetCommitRequest {
        group_id: GROUP.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic].into(),
        ..Default::default()
    };
    client.send(ApiKey::OffsetCommit, 9, &request).await.unwrap();
    client.receive().await.unwrap();
    let committed = client.committed(GROUP).await.unwrap();
    assert_eq!((committed.0, committed.1.len()), (0, PARTITIONS as usize));
}

/// One figure of what the shard tells.
async fn metric(series: &str) -> f64 {
    let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], ADMIN_PORT))).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(vec![Bytes::from_static(request)]).await.unwrap();
    let mut text = BytesMut::new();
    loop {
        text.reserve(64 * 1024);
        let (read, buffer) = stream.read(text).await;
        text = buffer;
        if read.unwrap() == 0 {
            break;
        }
    }
    let text = String::from_utf8(text.to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series}")).trim().parse().unwrap()
}

async fn held() -> f64 {
    metric("corelane_memory_used_bytes{shard=\"0\",pool=\"answers\"}").await
}

async fn silent_clients() {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let admin = format!("admin.port={ADMIN_PORT}");
    let settings = ["offsets.topic.num.partitions=1", admin.as_str()];
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &settings);
    shards.ready().await;
    let address = shards.addresses[0];
    let mut client = Client::connect(address).await.unwrap();
    assert_eq!(client.create_topic(TOPIC, PARTITIONS, &[]).await.unwrap(), 0);
    assert_eq!(client.coordinator(GROUP).await.unwrap().0, 0);
    client.groups_loaded().await.unwrap();
    commit(&mut client).await;

    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let mut client = Client::connect(address).await.unwrap();
        for _ in 0..ASKED_BY_EACH {
            client.send(ApiKey::OffsetFetch, 9, &all_offsets()).await.unwrap();
        }
        silent.push(client);
    }
    let limit = metric("corelane_memory_limit_bytes{shard=\"0\",pool=\"answers\"}").await;
    // What was made before it was known how long they are.
    let most = limit + 8.0 * ANSWER_BYTES;
    assert!(SILENT as f64 * 2.0 * ANSWER_BYTES > 10.0 * most, "they would hold much more");
    let (mut seen, begin) = (0.0f64, reactor::now());
    for round in 0..200 {
        // Nobody else waits for them.
        let asked = reactor::now();
        let bytes = batch(&[b"v"], reactor::wall_clock_ms());
        assert_eq!(client.produce(TOPIC, 0, &bytes).await.unwrap(), (0, round));
        assert_eq!(client.fetch(TOPIC, 0, round, 0).await.unwrap().0, 0);
        assert_eq!(client.list_groups().await.unwrap().1.len(), 1, "a list of another kind");
        assert!(reactor::now() - asked < Duration::from_secs(1), "they hold up others");
        let held = held().await;
        assert!(held <= most, "{held} bytes in answers that nobody reads, of {most}");
        seen = seen.max(held);
        reactor::sleep(Duration::from_millis(100)).await;
    }
    assert!(seen >= limit / 3.0, "{seen} of {limit}: they have asked for less than there is");
    // One more of the kind that the silent ones ask for is answered once they have gone.
    let fetched = client.committed(GROUP).await.unwrap();
    assert_eq!((fetched.0, fetched.1.len()), (0, PARTITIONS as usize));
    let closed = metric("corelane_connections_unread_closed_total{shard=\"0\"}").await;
    assert!(closed >= SILENT as f64 / 2.0, "{closed} closed");
    assert!(reactor::now() - begin < Duration::from_secs(1_800), "it waited for an hour");
    drop(silent);
}

#[test]
fn answers_that_nobody_reads_hold_up_nobody_and_stay_within_their_budget() {
    assert!(World::new(1).run(silent_clients).finished().is_some());
}
