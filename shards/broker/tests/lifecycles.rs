//! Topics that come and go, in the simulator: what one of them leaves behind is not another's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::time::Duration;

use reactor::sim::World;
use support::{BASE_PORT, Client, Fetch, Shards, batch, start_shards, values};
use wire::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use wire::messages::delete_records_response::DeleteRecordsResponse;
use wire::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use wire::messages::delete_topics_response::DeleteTopicsResponse;
use wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::messages::incremental_alter_configs_response::IncrementalAlterConfigsResponse;
use wire::{ApiKey, Records};

response!(DeleteRecords, DeleteRecordsResponse, borrows);
response!(DeleteTopics, DeleteTopicsResponse, borrows);
response!(Altered, IncrementalAlterConfigsResponse, borrows);

const DATA_DIR: &str = "/data";
const TOPIC: &str = "again";
const OFTEN: &str = "log.flush.offset.checkpoint.interval.ms=1000";

async fn broker() -> (Shards, Client) {
    let dir = Path::new(DATA_DIR);
    reactor::fs::create_dir_all(dir).await.expect("the disk works");
    let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &[OFTEN]);
    shards.ready().await;
    let client = Client::connect(shards.addresses[0]).await.expect("connect");
    (shards, client)
}

async fn produce(client: &mut Client, partition: i32, value: &[u8]) -> (i16, i64) {
    let bytes = batch(&[value], reactor::wall_clock_ms());
    client.produce(TOPIC, partition, &bytes).await.expect("produce")
}

async fn delete_records(client: &mut Client, offset: i64) {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let topic = DeleteRecordsTopic { name: TOPIC.into(), partitions: vec![partition].into() };
    let request = DeleteRecordsRequest { topics: vec![topic].into(), timeout_ms: 30_000 };
    let answer = client.call::<_, DeleteRecords>(ApiKey::DeleteRecords, 2, &request).await;
    let topics = answer.expect("delete records").topics;
    let partition = topics.first().unwrap().partitions.first().unwrap();
    assert_eq!((partition.error_code, partition.low_watermark), (0, offset));
}

async fn delete_topic(client: &mut Client) {
    let topic = DeleteTopicState { name: Some(TOPIC.into()), ..Default::default() };
    let request = DeleteTopicsRequest {
        topics: vec![topic].into(),
        timeout_ms: 30_000,
        ..Default::default()
    };
    let answer = client.call::<_, DeleteTopics>(ApiKey::DeleteTopics, 6, &request).await;
    assert_eq!(answer.expect("delete").responses.first().unwrap().error_code, 0);
}

/// The checkpoint files still have the lines of the first topic when the process is killed.
#[test]
fn a_topic_made_again_keeps_its_records_whatever_the_checkpoints_say_of_the_old_one() {
    let mut world = World::new(11);
    let ran = world.run(|| async {
        let (_shards, mut client) = broker().await;
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        for _ in 0..20 {
            assert_eq!(produce(&mut client, 0, b"old").await.0, 0);
        }
        delete_records(&mut client, 15).await;
        reactor::sleep(Duration::from_millis(1500)).await;
        let file = Path::new(DATA_DIR).join("log-start-offset-checkpoint");
        let lines = reactor::fs::read(&file).await.expect("written by now");
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains("again 0 15"), "{lines}");
        delete_topic(&mut client).await;
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create again"), 0);
        for number in 0..3 {
            assert_eq!(produce(&mut client, 0, b"new").await, (0, number));
        }
    });
    ran.finished().expect("the first run ends by itself");
    let found = world.run(|| async {
        let (_shards, mut client) = broker().await;
        let (error, end, bytes) = client.fetch(TOPIC, 0, 0, 0).await.expect("fetch");
        (error, end, values(&bytes).len())
    });
    assert_eq!(found.finished(), Some((0, 3, 3)));
}

#[test]
fn a_setting_changed_while_partitions_are_opening_reaches_them_all() {
    const PARTITIONS: i32 = 100;
    let ran = World::new(12).run(|| async {
        let (_shards, mut client) = broker().await;
        assert_eq!(client.create_topic(TOPIC, PARTITIONS, &[]).await.expect("create"), 0);
        let config = AlterableConfig {
            name: "max.message.bytes".into(),
            config_operation: 0,
            value: Some("100".into()),
        };
        let resource = AlterConfigsResource {
            resource_type: 2,
            resource_name: TOPIC.into(),
            configs: vec![config].into(),
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource].into(),
            validate_only: false,
        };
        let api = ApiKey::IncrementalAlterConfigs;
        let answer = client.call::<_, Altered>(api, 1, &request).await.expect("alter");
        assert_eq!(answer.responses.first().unwrap().error_code, 0);
        for partition in 0..PARTITIONS {
            let (error, _) = produce(&mut client, partition, &[b'x'; 200]).await;
            assert_eq!(error, wire::ErrorCode::MessageTooLarge.code(), "partition {partition}");
        }
    });
    ran.finished().expect("nothing crashes");
}

/// More partitions than a fetch reads from the device at a time, and after the restart none of them
/// is in memory but the one that was written again.
#[test]
fn a_fetch_of_many_partitions_on_the_device_answers_each_with_its_own_records() {
    const PARTITIONS: i32 = 40;
    const WRITTEN_AGAIN: i32 = 17;
    let mut world = World::new(13);
    let value = |partition: i32| format!("of {partition}").into_bytes();
    let ran = world.run(move || async move {
        let (_shards, mut client) = broker().await;
        assert_eq!(client.create_topic(TOPIC, PARTITIONS, &[]).await.expect("create"), 0);
        for partition in 0..PARTITIONS {
            assert_eq!(produce(&mut client, partition, &value(partition)).await, (0, 0));
        }
    });
    ran.finished().expect("the first run ends by itself");
    let found = world.run(move || async move {
        let (_shards, mut client) = broker().await;
        assert_eq!(produce(&mut client, WRITTEN_AGAIN, b"new").await, (0, 1));
        let wanted = (0..PARTITIONS).map(|partition| FetchPartition {
            partition,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        });
        let topic = FetchTopic {
            topic: TOPIC.into(),
            partitions: wanted.collect::<Vec<_>>().into(),
            ..FetchTopic::default()
        };
        let request = FetchRequest {
            max_bytes: 64 << 20,
            session_epoch: -1,
            topics: vec![topic].into(),
            ..FetchRequest::default()
        };
        let answer = client.call::<_, Fetch>(ApiKey::Fetch, 12, &request).await.expect("fetch");
        let partitions = answer.responses.first().unwrap().partitions.to_vec();
        assert_eq!(partitions.len(), PARTITIONS as usize);
        for (data, partition) in partitions.into_iter().zip(0..) {
            let bytes = data.records.as_ref().and_then(Records::bytes).unwrap();
            let mut expected = vec![(0, value(partition))];
            if partition == WRITTEN_AGAIN {
                expected.push((1, b"new".to_vec()));
            }
            assert_eq!((data.partition_index, data.error_code), (partition, 0));
            assert_eq!(values(bytes), expected, "partition {partition}");
        }
    });
    found.finished().expect("the second run ends by itself");
}

/// Partitions that were left by a crash, each with one record.
const LEFT: i32 = 150;

async fn leave_by_a_crash() {
    let (_shards, mut client) = broker().await;
    assert_eq!(client.create_topic(TOPIC, LEFT, &[]).await.expect("create"), 0);
    for partition in 0..LEFT {
        assert_eq!(produce(&mut client, partition, b"old").await, (0, 0));
    }
}

#[test]
fn a_partition_that_is_asked_for_is_served_while_others_are_still_recovering() {
    let mut world = World::new(14);
    world.run(leave_by_a_crash).finished().expect("the first run ends by itself");
    let found = world.run(|| async {
        let (_shards, mut client) = broker().await;
        let mut all = Vec::new();
        for partition in (0..LEFT).rev() {
            let (error, end, bytes) = client.fetch(TOPIC, partition, 0, 0).await.expect("fetch");
            all.push((error, end, values(&bytes).len()));
        }
        all
    });
    let all = found.finished().expect("the second run ends by itself");
    assert!(all.iter().all(|answer| *answer == (0, 1, 1)), "{all:?}");
}

#[test]
fn a_topic_is_deleted_while_its_partitions_are_recovering() {
    for seed in 15..18 {
        let mut world = World::new(seed);
        world.run(leave_by_a_crash).finished().expect("the first run ends by itself");
        let found = world.run(|| async {
            let (_shards, mut client) = broker().await;
            delete_topic(&mut client).await;
            // Waits until the names are free.
            assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create again"), 0);
            let entries = reactor::fs::read_dir(Path::new(DATA_DIR)).await.expect("it is there");
            let here = entries.iter().filter(|e| log::parse_partition_dir_name(&e.name).is_some());
            let here: Vec<&str> = here
                .map(|entry| entry.name.as_str())
                .filter(|name| name.starts_with(TOPIC))
                .collect();
            assert!(here.len() <= 1, "the old ones are out of the way: {here:?}");
            delete_topic(&mut client).await;
            assert_eq!(client.create_topic(TOPIC, LEFT, &[]).await.expect("once more"), 0);
            for partition in 0..LEFT {
                assert_eq!(produce(&mut client, partition, b"new").await, (0, 0));
            }
        });
        found.finished().unwrap_or_else(|| panic!("seed {seed}: the second run ends by itself"));
        let found = world.run(|| async {
            let (_shards, mut client) = broker().await;
            let (error, end, bytes) = client.fetch(TOPIC, LEFT - 1, 0, 0).await.expect("fetch");
            (error, end, values(&bytes))
        });
        let expected = (0, 1, vec![(0, b"new".to_vec())]);
        assert_eq!(found.finished(), Some(expected), "seed {seed}");
    }
}

/// The core that leads the partition, and the offset that a record got there.
async fn produce_somewhere(clients: &mut [Client]) -> (usize, i64) {
    for (core, client) in clients.iter_mut().enumerate() {
        match produce(client, 0, b"v").await {
            (0, offset) => return (core, offset),
            (error, _) => assert_eq!(error, wire::ErrorCode::NotLeaderOrFollower.code()),
        }
    }
    panic!("no core leads the partition");
}

async fn two_cores() -> (Shards, Vec<Client>) {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.expect("the disk works");
    let mut shards = start_shards(2, BASE_PORT, DATA_DIR, &[OFTEN]);
    shards.ready().await;
    let mut clients = Vec::new();
    for address in &shards.addresses {
        clients.push(Client::connect(*address).await.expect("connect"));
    }
    (shards, clients)
}

/// After a clean shutdown the checkpoints are believed, by every core. The topic that they tell of
/// goes, and another one of its name comes to the other core.
#[test]
fn a_topic_made_again_on_another_core_begins_at_its_beginning() {
    let mut world = World::new(19);
    world.terminate_after(Duration::from_secs(10));
    let ran = world.run(|| async {
        let (shards, mut clients) = two_cores().await;
        assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        let (core, _) = produce_somewhere(&mut clients).await;
        for _ in 1..20 {
            assert_eq!(produce(&mut clients[core], 0, b"old").await.0, 0);
        }
        delete_records(&mut clients[core], 15).await;
        for task in shards.tasks {
            task.await.expect("a clean end");
        }
        core
    });
    let old_core = ran.finished().expect("the first run ends by itself");
    assert!(world.disk().read(&Path::new(DATA_DIR).join(".kafka_cleanshutdown")).is_some());
    world.terminate_after(Duration::from_secs(3600));
    let ran = world.run(move || async move {
        let (_shards, mut clients) = two_cores().await;
        for attempt in 0..20 {
            delete_topic(&mut clients[0]).await;
            // Takes the place of the one that went.
            let filler = format!("filler-{attempt}");
            for name in [filler.as_str(), TOPIC] {
                assert_eq!(clients[0].create_topic(name, 1, &[]).await.expect("create"), 0);
            }
            let (core, offset) = produce_somewhere(&mut clients).await;
            assert_eq!(offset, 0, "attempt {attempt} on core {core}");
            if core != old_core {
                return;
            }
        }
        panic!("it always came to the same core");
    });
    ran.finished().expect("the second run ends by itself");
}
