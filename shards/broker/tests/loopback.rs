//! A whole broker over loopback sockets: the protocol's edges that client libraries do not reach.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use reactor::{Class, ShardSpec};
use support::{Client, Gone, Shards, batch, start_shards, values};
use wire::messages::api_versions_request::ApiVersionsRequest;
use wire::messages::api_versions_response::ApiVersionsResponse;
use wire::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use wire::messages::describe_configs_response::DescribeConfigsResponse;
use wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::messages::fetch_response::FetchResponse;
use wire::messages::init_producer_id_request::InitProducerIdRequest;
use wire::messages::init_producer_id_response::InitProducerIdResponse;
use wire::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use wire::messages::list_offsets_response::ListOffsetsResponse;
use wire::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::messages::metadata_response::MetadataResponse;
use wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::messages::produce_response::ProduceResponse;
use wire::records::BatchBuilder;
use wire::{ApiKey, ErrorCode, Message, Reader, Records, frame};

response!(Metadata, MetadataResponse, borrows);
response!(ApiVersions, ApiVersionsResponse, borrows);
response!(DescribeConfigs, DescribeConfigsResponse, borrows);
response!(InitProducerId, InitProducerIdResponse);
response!(ListOffsets, ListOffsetsResponse, borrows);
response!(Produce, ProduceResponse, borrows);
response!(Fetch, FetchResponse, borrows);

/// Tests run at the same time; each takes its own run of ports.
static NEXT_PORT: AtomicU16 = AtomicU16::new(21_000);
const PORTS_PER_TEST: u16 = 8;

/// Runs a test against a broker of `shards` shards in a fresh directory.
fn with_broker<F, Fut>(shards: u16, settings: &'static [&'static str], test: F)
where
    F: FnOnce(Rc<Shards>) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_string_lossy().into_owned();
    let base_port = NEXT_PORT.fetch_add(PORTS_PER_TEST, Ordering::SeqCst);
    reactor::uring::run(&ShardSpec::default(), || async move {
        let mut broker = start_shards(shards, base_port, &path, settings);
        broker.ready().await;
        let broker = Rc::new(broker);
        test(broker.clone()).await;
    })
    .expect("io_uring works here");
}

async fn metadata(client: &mut Client, topic: &str) -> MetadataResponse<'static> {
    let topic = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some(vec![topic].into()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    client.call::<_, Metadata>(ApiKey::Metadata, 12, &request).await.expect("metadata")
}

/// The shard (by number) that leads a partition.
async fn leader(client: &mut Client, topic: &str, partition: i32) -> usize {
    let response = metadata(client, topic).await;
    let topic = response.topics.first().expect("the topic asked for");
    let all = topic.partitions.to_vec();
    let found = all.iter().find(|p| p.partition_index == partition).expect("the partition");
    (found.leader_id % 1000) as usize
}

#[test]
fn partitions_spread_over_shards_and_the_wrong_shard_names_the_leader() {
    with_broker(4, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("spread", 8, &[]).await.expect("create"), 0);
        let response = metadata(&mut client, "spread").await;
        assert_eq!(response.brokers.len(), 4, "every shard is a broker");
        let mut counts = [0; 4];
        for partition in response.topics.first().expect("topic").partitions.iter() {
            counts[(partition.leader_id % 1000) as usize] += 1;
        }
        assert_eq!(counts, [2, 2, 2, 2]);
        let right = leader(&mut client, "spread", 0).await;
        let wrong = (right + 1) % 4;
        let mut wrong = Client::connect(broker.addresses[wrong]).await.expect("connect");
        let bytes = batch(&[b"x"], reactor::wall_clock_ms());
        let request = produce_request("spread", 0, &bytes, -1);
        let response =
            wrong.call::<_, Produce>(ApiKey::Produce, 10, &request).await.expect("produce");
        let topic = response.responses.first().expect("topic");
        let partition = topic.partition_responses.first().expect("partition");
        assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower.code());
        assert_eq!(partition.current_leader.leader_id, 1000 + right as i32);
        let endpoint = response.node_endpoints.first().expect("the leader's endpoint");
        assert_eq!(endpoint.port, i32::from(broker.addresses[right].port()));
    });
}

/// The hints of newer versions must not make older ones unanswerable.
#[test]
fn a_fetch_from_the_wrong_shard_is_answered_in_every_version() {
    with_broker(2, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("elsewhere", 1, &[]).await.expect("create"), 0);
        let response = metadata(&mut client, "elsewhere").await;
        let topic_id = response.topics.first().expect("topic").topic_id;
        let right = leader(&mut client, "elsewhere", 0).await;
        let mut wrong = Client::connect(broker.addresses[1 - right]).await.expect("connect");
        for version in ApiKey::Fetch.schema_versions() {
            let mut topic = FetchTopic {
                partitions: vec![FetchPartition {
                    partition_max_bytes: 1024,
                    ..Default::default()
                }]
                .into(),
                ..Default::default()
            };
            match version {
                ..=12 => topic.topic = "elsewhere".into(),
                _ => topic.topic_id = topic_id,
            }
            let request = FetchRequest { topics: vec![topic].into(), ..Default::default() };
            let response = wrong.call::<_, Fetch>(ApiKey::Fetch, version, &request).await;
            let response = response.unwrap_or_else(|e| panic!("version {version}: {e:?}"));
            let topic = response.responses.first().expect("topic");
            let partition = topic.partitions.first().expect("partition");
            assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower.code());
            let hint = if version >= 12 { 1000 + right as i32 } else { -1 };
            assert_eq!(partition.current_leader.leader_id, hint, "version {version}");
            assert_eq!(response.node_endpoints.len(), usize::from(version >= 16));
        }
    });
}

/// A small request must not be able to ask for an answer of any size.
#[test]
fn what_is_named_many_times_is_answered_once() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("once", 1, &[]).await.expect("create"), 0);
        let too_long = "x".repeat(i16::MAX as usize);
        let names = ["once", "nowhere", "once", &too_long, "nowhere", "once"];
        let topics = names
            .map(|name| MetadataRequestTopic { name: Some(name.into()), ..Default::default() });
        let request = MetadataRequest {
            topics: Some(topics.to_vec().into()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let response: MetadataResponse<'_> =
            client.call::<_, Metadata>(ApiKey::Metadata, 12, &request).await.expect("metadata");
        let mut answered: Vec<String> =
            response.topics.iter().filter_map(|topic| Some(topic.name?.to_string())).collect();
        answered.sort();
        assert_eq!(answered, ["nowhere", "once", &too_long]);
        let resources = names.map(|name| DescribeConfigsResource {
            resource_type: 2,
            resource_name: name.into(),
            ..Default::default()
        });
        let request =
            DescribeConfigsRequest { resources: resources.to_vec().into(), ..Default::default() };
        let response: DescribeConfigsResponse<'_> = client
            .call::<_, DescribeConfigs>(ApiKey::DescribeConfigs, 4, &request)
            .await
            .expect("an answer, though the message quotes the longest name there can be");
        let errors: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        assert_eq!(errors, [0, unknown, ErrorCode::InvalidTopicException.code()]);
    });
}

fn produce_request<'a>(
    topic: &'a str,
    partition: i32,
    batch: &'a [u8],
    acks: i16,
) -> ProduceRequest<'a> {
    let data = PartitionProduceData { index: partition, records: Some(Records::Borrowed(batch)) };
    let topic = TopicProduceData {
        name: topic.into(),
        partition_data: vec![data].into(),
        ..Default::default()
    };
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![topic].into(),
        ..Default::default()
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_and_appended_in_order() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("ordered", 1, &[]).await.expect("create"), 0);
        for number in 0..200 {
            let value = format!("value-{number}");
            let bytes = batch(&[value.as_bytes()], reactor::wall_clock_ms());
            let request = produce_request("ordered", 0, &bytes, -1);
            client.send(ApiKey::Produce, 9, &request).await.expect("send");
        }
        for number in 0..200i64 {
            let bytes = client.receive().await.expect("a response each");
            let mut reader = Reader::new(&bytes);
            let id = frame::decode_response_header(&mut reader, ApiKey::Produce, 9).expect("id");
            assert_eq!(i64::from(id), number + 2, "the order of the requests");
            let response = ProduceResponse::decode(&mut reader, 9).expect("response");
            let topic = response.responses.first().expect("topic");
            let partition = topic.partition_responses.first().expect("partition");
            assert_eq!((partition.error_code, partition.base_offset), (0, number));
        }
        let (_, end, bytes) = client.fetch("ordered", 0, 0, 0).await.expect("fetch");
        assert_eq!(end, 200);
        let expected: Vec<(i64, Vec<u8>)> =
            (0..200).map(|n| (n, format!("value-{n}").into_bytes())).collect();
        assert_eq!(values(&bytes), expected);
    });
}

#[test]
fn a_waiting_fetch_is_woken_by_an_append_and_by_its_deadline() {
    with_broker(1, &[], |broker| async move {
        let mut reader = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(reader.create_topic("tail", 1, &[]).await.expect("create"), 0);
        let (error, end, bytes) = reader.fetch("tail", 0, 0, 50).await.expect("fetch");
        assert_eq!((error, end, bytes.len()), (0, 0, 0), "nothing came in time");
        let address = broker.addresses[0];
        let producer = reactor::spawn(async move {
            reactor::sleep(Duration::from_millis(30)).await;
            let mut client = Client::connect(address).await.expect("connect");
            let bytes = batch(&[b"late"], reactor::wall_clock_ms());
            client.produce("tail", 0, &bytes).await.expect("produce")
        });
        // Far longer than the suite may take: only the append can end this wait.
        let (error, end, bytes) = reader.fetch("tail", 0, 0, 300_000).await.expect("fetch");
        assert_eq!((error, end), (0, 1));
        assert_eq!(values(&bytes), [(0, b"late".to_vec())]);
        assert_eq!(producer.await, (0, 0));
    });
}

#[test]
fn api_versions_answers_versions_from_the_future_in_the_oldest_layout() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        // Size, key 18, version 99, correlation id 7, null client id, one stray byte.
        let frame = [0, 0, 0, 11, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0];
        client.send_bytes(&frame).await.expect("send");
        let bytes = client.receive().await.expect("an answer");
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.i32().expect("correlation id"), 7);
        let response = ApiVersionsResponse::decode(&mut reader, 0).expect("version 0 layout");
        assert_eq!(response.error_code, ErrorCode::UnsupportedVersion.code());
        let own = response.api_keys.first().expect("its own range");
        assert_eq!((own.api_key, own.min_version, own.max_version), (18, 0, 5));
        let request = ApiVersionsRequest {
            client_software_name: "test".into(),
            client_software_version: "1".into(),
            ..Default::default()
        };
        let response =
            client.call::<_, ApiVersions>(ApiKey::ApiVersions, 5, &request).await.expect("v5");
        let keys = response.api_keys.to_vec();
        assert_eq!(keys.len(), broker::api_table().len());
        let produce = keys.iter().find(|api| api.api_key == 0).expect("produce");
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
    });
}

/// Sends bytes and expects the broker to close, while another connection goes on working.
fn closes_on(bytes: &'static [u8]) {
    with_broker(1, &[], move |broker| async move {
        let mut other = Client::connect(broker.addresses[0]).await.expect("connect");
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        client.send_bytes(bytes).await.expect("send");
        let answer = reactor::timeout(Duration::from_secs(60), client.receive()).await;
        assert!(matches!(answer, Ok(Err(Gone(_)))), "the connection is closed: {answer:?}");
        assert_eq!(metadata(&mut other, "nothing").await.brokers.len(), 1);
    });
}

#[test]
fn a_negative_size_closes_the_connection() {
    closes_on(&[0xff, 0xff, 0xff, 0xff, 0, 3, 0, 1]);
}

#[test]
fn a_giant_size_closes_the_connection() {
    closes_on(&[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 1]);
}

#[test]
fn a_tls_hello_closes_the_connection() {
    closes_on(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01]);
}

#[test]
fn an_unknown_api_closes_the_connection() {
    closes_on(&[0, 0, 0, 10, 0x03, 0xe7, 0, 0, 0, 0, 0, 1, 0xff, 0xff]);
}

#[test]
fn an_unsupported_version_closes_the_connection() {
    closes_on(&[0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff]);
}

#[test]
fn a_giant_array_in_a_small_frame_closes_the_connection() {
    // Metadata v1 with two thousand million topics.
    closes_on(&[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
}

#[test]
fn an_empty_frame_closes_the_connection() {
    closes_on(&[0, 0, 0, 0]);
}

#[test]
fn half_a_frame_keeps_nobody_else_waiting() {
    with_broker(1, &[], |broker| async move {
        let mut half = Client::connect(broker.addresses[0]).await.expect("connect");
        half.send_bytes(&[0, 0x10, 0, 0, 0, 0, 0, 9]).await.expect("send");
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("whole", 1, &[]).await.expect("create"), 0);
        let bytes = batch(&[b"x"], reactor::wall_clock_ms());
        assert_eq!(client.produce("whole", 0, &bytes).await.expect("produce"), (0, 0));
        drop(half);
    });
}

#[test]
fn a_failed_produce_without_acknowledgement_closes_the_connection() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("quiet", 1, &[]).await.expect("create"), 0);
        let bytes = batch(&[b"x"], reactor::wall_clock_ms());
        let fine = produce_request("quiet", 0, &bytes, 0);
        client.send(ApiKey::Produce, 9, &fine).await.expect("send");
        // The next answer is that of the metadata request: the produce had none.
        assert_eq!(metadata(&mut client, "quiet").await.topics.len(), 1);
        let lost = produce_request("nowhere", 0, &bytes, 0);
        client.send(ApiKey::Produce, 9, &lost).await.expect("send");
        assert!(client.receive().await.is_err());
    });
}

#[test]
fn idempotent_batches_are_stored_once_and_gaps_are_refused() {
    with_broker(2, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        let created = client.create_topic("once", 1, &[]).await.expect("create");
        assert_eq!(created, 0);
        let shard = leader(&mut client, "once", 0).await;
        let mut client = Client::connect(broker.addresses[shard]).await.expect("connect");
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 1000,
            ..Default::default()
        };
        let first = client
            .call::<_, InitProducerId>(ApiKey::InitProducerId, 4, &request)
            .await
            .expect("init");
        let second = client
            .call::<_, InitProducerId>(ApiKey::InitProducerId, 4, &request)
            .await
            .expect("init");
        assert_eq!((first.error_code, second.error_code), (0, 0));
        assert_ne!(first.producer_id, second.producer_id);
        let numbered = |sequence: i32| {
            let mut builder = BatchBuilder::new().producer(first.producer_id, 0, sequence);
            builder.append(reactor::wall_clock_ms(), None, Some(b"v"));
            builder.build().expect("batch")
        };
        for (sequence, expected) in [
            (0, (0, 0)),
            (1, (0, 1)),
            (0, (0, 0)),
            (1, (0, 1)),
            (3, (ErrorCode::OutOfOrderSequenceNumber.code(), -1)),
            (2, (0, 2)),
        ] {
            let bytes = numbered(sequence);
            let answer = client.produce("once", 0, &bytes).await.expect("produce");
            assert_eq!(answer, expected, "sequence {sequence}");
        }
    });
}

#[test]
fn broken_batches_are_refused_one_by_one() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("strict", 1, &[]).await.expect("create"), 0);
        let good = batch(&[b"x", b"y"], reactor::wall_clock_ms());
        let mut flipped = good.clone();
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        let mut old_magic = good.clone();
        old_magic[16] = 1;
        let twice = [good.clone(), good.clone()].concat();
        let mut transaction = BatchBuilder::new().producer(1, 0, 0).transactional(true);
        transaction.append(reactor::wall_clock_ms(), None, Some(b"never ends"));
        let transaction = transaction.build().expect("batch");
        for (bytes, error) in [
            (transaction, ErrorCode::TransactionalIdAuthorizationFailed),
            (flipped, ErrorCode::CorruptMessage),
            (old_magic, ErrorCode::InvalidRecord),
            (twice, ErrorCode::InvalidRecord),
            (Vec::new(), ErrorCode::InvalidRecord),
            (good[..good.len() - 3].to_vec(), ErrorCode::InvalidRecord),
        ] {
            let (code, offset) = client.produce("strict", 0, &bytes).await.expect("produce");
            assert_eq!(
                (ErrorCode::from_code(code), offset),
                (Some(error), -1),
                "{} bytes",
                bytes.len()
            );
        }
        assert_eq!(client.produce("strict", 0, &good).await.expect("produce"), (0, 0));
    });
}

#[test]
fn a_fetch_session_answers_only_what_changed() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("session", 3, &[]).await.expect("create"), 0);
        let wanted = |offset| -> Vec<FetchPartition> {
            let partition = |partition| FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            };
            (0..3).map(partition).collect()
        };
        let request = |id, epoch, partitions: Vec<FetchPartition>| FetchRequest {
            max_bytes: 1 << 20,
            session_id: id,
            session_epoch: epoch,
            topics: match partitions.is_empty() {
                true => Vec::new().into(),
                false => vec![FetchTopic {
                    topic: "session".into(),
                    partitions: partitions.into(),
                    ..Default::default()
                }]
                .into(),
            },
            ..Default::default()
        };
        let full = client
            .call::<_, Fetch>(ApiKey::Fetch, 12, &request(0, 0, wanted(0)))
            .await
            .expect("full");
        let id = full.session_id;
        assert_ne!(id, 0);
        assert_eq!(full.responses.first().expect("topic").partitions.len(), 3);
        let bytes = batch(&[b"x"], reactor::wall_clock_ms());
        assert_eq!(client.produce("session", 1, &bytes).await.expect("produce"), (0, 0));
        let next = client
            .call::<_, Fetch>(ApiKey::Fetch, 12, &request(id, 1, Vec::new()))
            .await
            .expect("incremental");
        let partitions = next.responses.first().expect("topic").partitions.to_vec();
        assert_eq!(partitions.len(), 1, "only the partition with data");
        assert_eq!(partitions[0].partition_index, 1);
        let wrong = client
            .call::<_, Fetch>(ApiKey::Fetch, 12, &request(id, 7, Vec::new()))
            .await
            .expect("wrong epoch");
        assert_eq!(wrong.error_code, ErrorCode::InvalidFetchSessionEpoch.code());
    });
}

#[test]
fn offsets_outside_the_log_are_refused() {
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("range", 1, &[]).await.expect("create"), 0);
        let out_of_range = ErrorCode::OffsetOutOfRange.code();
        for offset in [-1, 1, i64::MAX] {
            let (error, _, bytes) = client.fetch("range", 0, offset, 0).await.expect("fetch");
            assert_eq!((error, bytes.len()), (out_of_range, 0), "offset {offset}");
        }
        let asked = ListOffsetsPartition { timestamp: -3, ..Default::default() };
        let topic = ListOffsetsTopic { name: "range".into(), partitions: vec![asked].into() };
        let request = ListOffsetsRequest { topics: vec![topic].into(), ..Default::default() };
        let too_old = client
            .call::<_, ListOffsets>(ApiKey::ListOffsets, 6, &request)
            .await
            .expect("list offsets");
        let partition = too_old.topics.first().expect("topic").partitions.to_vec()[0].clone();
        assert_eq!(partition.error_code, ErrorCode::UnsupportedVersion.code());
        let empty = client
            .call::<_, ListOffsets>(ApiKey::ListOffsets, 7, &request)
            .await
            .expect("list offsets");
        let partition = empty.topics.first().expect("topic").partitions.to_vec()[0].clone();
        assert_eq!((partition.error_code, partition.offset), (0, -1));
    });
}

/// Each frame alone is larger than what a shard of four gives to requests (16 MiB), and each is
/// half there when the other one comes.
#[test]
fn requests_that_need_each_others_memory_are_answered_all_the_same() {
    const SIZE: usize = 20 * 1024 * 1024;
    with_broker(4, &[], |broker| async move {
        let payload: &'static [u8] = vec![0; SIZE].leak();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let address = broker.addresses[0];
            tasks.push(reactor::spawn(async move {
                let mut client = Client::connect(address).await.expect("connect");
                let request = produce_request("nowhere", 0, payload, 1);
                client.send(ApiKey::Produce, 9, &request).await.expect("send");
                let bytes = client.receive().await.expect("an answer");
                let mut reader = Reader::new(&bytes);
                frame::decode_response_header(&mut reader, ApiKey::Produce, 9).expect("header");
                let answer = ProduceResponse::decode(&mut reader, 9).expect("body");
                let topic = answer.responses.first().expect("topic");
                topic.partition_responses.first().expect("partition").error_code
            }));
        }
        for task in tasks {
            assert_eq!(task.await, ErrorCode::UnknownTopicOrPartition.code());
        }
    });
}

/// Records must not wait behind thousands of partitions that are looked up.
#[test]
fn lookups_have_a_small_share_of_the_core() {
    const LOOKUPS: u64 = 20;
    const PARTITIONS: i32 = 100;
    with_broker(1, &[], |broker| async move {
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic("wide", PARTITIONS, &[]).await.expect("create"), 0);
        let polls = |class: Class| {
            let of_class = reactor::usage().classes.into_iter().find(|usage| usage.class == class);
            of_class.expect("all are there").polls
        };
        let before = polls(Class::Replication);
        for _ in 0..LOOKUPS / 2 {
            let request = MetadataRequest { topics: None, ..Default::default() };
            client.send(ApiKey::Metadata, 9, &request).await.expect("send");
            let asked = (0..PARTITIONS).map(|partition_index| ListOffsetsPartition {
                partition_index,
                timestamp: -1,
                ..Default::default()
            });
            let topic = ListOffsetsTopic { name: "wide".into(), partitions: asked.collect() };
            let request = ListOffsetsRequest { topics: vec![topic].into(), ..Default::default() };
            client.send(ApiKey::ListOffsets, 6, &request).await.expect("send");
        }
        for _ in 0..LOOKUPS {
            client.receive().await.expect("an answer");
        }
        assert!(polls(Class::Replication) >= before + LOOKUPS, "each has run in its class");
    });
}
