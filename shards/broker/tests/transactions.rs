//! Transactions at the leader of a partition, asked by raw requests in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use reactor::sim::{Outcome, World};
use support::{BASE_PORT, Client, batch, start_shards};
use wire::messages::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use wire::messages::describe_producers_response::{DescribeProducersResponse, ProducerState};
use wire::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use wire::messages::write_txn_markers_response::WriteTxnMarkersResponse;
use wire::{ApiKey, ErrorCode};

const DATA_DIR: &str = "/data";
const TOPIC: &str = "t";

crate::response!(Markers, WriteTxnMarkersResponse, borrows);
crate::response!(Producers, DescribeProducersResponse, borrows);

async fn start() -> Client {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    let mut started = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    started.ready().await;
    let mut client = Client::connect(started.addresses[0]).await.unwrap();
    assert_eq!(client.create_topic(TOPIC, 2, &[]).await.unwrap(), 0);
    std::mem::forget(started);
    client
}

fn marker(producer_epoch: i16, coordinator_epoch: i32, version: i8) -> WritableTxnMarker<'static> {
    let topic = WritableTxnMarkerTopic { name: TOPIC.into(), partition_indexes: vec![0, 7].into() };
    WritableTxnMarker {
        producer_id: 9,
        producer_epoch,
        coordinator_epoch,
        transaction_version: version,
        topics: vec![topic].into(),
        ..Default::default()
    }
}

/// The answers for partitions 0, which is there, and 7, which is not.
async fn write(client: &mut Client, marker: WritableTxnMarker<'_>) -> [i16; 2] {
    let request = WriteTxnMarkersRequest { markers: vec![marker].into() };
    let answer = client.call::<_, Markers>(ApiKey::WriteTxnMarkers, 2, &request).await.unwrap();
    let result = answer.markers.first().unwrap();
    assert_eq!(result.producer_id, 9);
    let partitions = result.topics.first().unwrap().partitions.to_vec();
    [partitions[0].error_code, partitions[1].error_code]
}

async fn producers(client: &mut Client, partition: i32) -> (i16, Vec<ProducerState>) {
    let topic = TopicRequest { name: TOPIC.into(), partition_indexes: vec![partition].into() };
    let request = DescribeProducersRequest { topics: vec![topic].into() };
    let answer = client.call::<_, Producers>(ApiKey::DescribeProducers, 0, &request).await.unwrap();
    let topic = answer.topics.first().unwrap();
    let partition = topic.partitions.first().unwrap();
    (partition.error_code, partition.active_producers.to_vec())
}

/// As an admin client that ends a transaction which hangs, and as a coordinator that was replaced.
#[test]
fn markers_take_an_offset_and_late_ones_are_refused() {
    let outcome = World::new(1).run(|| async {
        let mut client = start().await;
        let now_ms = reactor::wall_clock_ms();
        assert_eq!(client.produce(TOPIC, 0, &batch(&[b"v"], now_ms)).await.unwrap(), (0, 0));
        assert_eq!(producers(&mut client, 0).await, (0, vec![]));
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        assert_eq!(write(&mut client, marker(3, 5, 2)).await, [0, unknown]);
        // Again: nothing is open that it could end wrongly.
        assert_eq!(write(&mut client, marker(3, 5, 2)).await, [0, unknown]);
        let fenced = ErrorCode::TransactionCoordinatorFenced.code();
        assert_eq!(write(&mut client, marker(3, 4, 2)).await, [fenced, unknown]);
        let late = ErrorCode::InvalidProducerEpoch.code();
        assert_eq!(write(&mut client, marker(2, 5, 0)).await, [late, unknown]);
        let (error, known) = producers(&mut client, 0).await;
        assert_eq!((error, known.len()), (0, 1));
        let known = &known[0];
        assert_eq!((known.producer_id, known.producer_epoch, known.coordinator_epoch), (9, 3, 5));
        assert_eq!((known.last_sequence, known.current_txn_start_offset), (-1, -1));
        assert_eq!(producers(&mut client, 7).await.0, unknown);
        // Two markers lie between the records.
        assert_eq!(client.produce(TOPIC, 0, &batch(&[b"v"], now_ms)).await.unwrap(), (0, 3));
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
