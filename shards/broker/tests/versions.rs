//! Every version that ApiVersions advertises gets an answer that fits it: each API is asked
//! something that fills its response, in every version of the table.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use reactor::ShardSpec;
use support::{Client, Response, batch, start_shards};
use wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
    ApiVersionsRequest, ApiVersionsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    FetchRequest, FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, InitProducerIdRequest,
    InitProducerIdResponse, ListConfigResourcesRequest, ListConfigResourcesResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, MetadataRequest, MetadataResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse,
    alter_configs_request, alter_partition_reassignments_request, alter_replica_log_dirs_request,
    create_partitions_request, create_topics_request, delete_records_request,
    delete_topics_request, describe_configs_request, describe_topic_partitions_request,
    fetch_request, incremental_alter_configs_request, list_offsets_request, metadata_request,
    offset_for_leader_epoch_request, produce_request,
};
use wire::{ApiKey, Message, Records, Uuid};

response!(AlterConfigs, AlterConfigsResponse, borrows);
response!(ApiVersions, ApiVersionsResponse, borrows);
response!(CreatePartitions, CreatePartitionsResponse, borrows);
response!(CreateTopics, CreateTopicsResponse, borrows);
response!(DeleteRecords, DeleteRecordsResponse, borrows);
response!(DeleteTopics, DeleteTopicsResponse, borrows);
response!(DescribeCluster, DescribeClusterResponse, borrows);
response!(DescribeConfigs, DescribeConfigsResponse, borrows);
response!(AlterReplicaLogDirs, AlterReplicaLogDirsResponse, borrows);
response!(AlterPartitionReassignments, AlterPartitionReassignmentsResponse, borrows);
response!(DescribeLogDirs, DescribeLogDirsResponse, borrows);
response!(DescribeTopicPartitions, DescribeTopicPartitionsResponse, borrows);
response!(Fetch, FetchResponse, borrows);
response!(FindCoordinator, FindCoordinatorResponse, borrows);
response!(IncrementalAlterConfigs, IncrementalAlterConfigsResponse, borrows);
response!(InitProducerId, InitProducerIdResponse);
response!(ListConfigResources, ListConfigResourcesResponse, borrows);
response!(ListOffsets, ListOffsetsResponse, borrows);
response!(ListPartitionReassignments, ListPartitionReassignmentsResponse, borrows);
response!(Metadata, MetadataResponse, borrows);
response!(OffsetForLeaderEpoch, OffsetForLeaderEpochResponse, borrows);
response!(Produce, ProduceResponse, borrows);

const TOPIC: &str = "versions";
const BASE_PORT: u16 = 21_800;

/// One broker, one connection, and the APIs that were asked so far.
struct Asker {
    client: Client,
    topic_id: Uuid,
    asked: Vec<ApiKey>,
}

impl Asker {
    /// Asks in every version of the table; `request` may leave out what a version lacks.
    async fn every<'q, Q, R>(
        &mut self,
        api: ApiKey,
        request: impl Fn(i16) -> Q,
        check: impl Fn(i16, R::Static),
    ) where
        Q: Message<'q>,
        R: Response,
    {
        let support = broker::api_table().iter().find(|support| support.key == api);
        let support = support.expect("an API of the table");
        for version in support.min..=support.max {
            let answer = self.client.call::<_, R>(api, version, &request(version)).await;
            match answer {
                Ok(response) => check(version, response),
                Err(gone) => panic!("{} version {version}: {}", api.name(), gone.0),
            }
        }
        self.asked.push(api);
    }
}

#[test]
fn every_advertised_version_is_answered() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_string_lossy().into_owned();
    reactor::uring::run(&ShardSpec::default(), || async move {
        let mut broker = start_shards(1, BASE_PORT, &path, &["auto.create.topics.enable=false"]);
        broker.ready().await;
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic(TOPIC, 2, &[]).await.expect("create"), 0);
        let mut asker = Asker { client, topic_id: Uuid::ZERO, asked: Vec::new() };
        describe(&mut asker).await;
        read_and_write(&mut asker).await;
        change(&mut asker).await;
        let table: Vec<ApiKey> = broker::api_table().iter().map(|api| api.key).collect();
        let missed: Vec<_> = table.iter().filter(|key| !asker.asked.contains(key)).collect();
        assert!(missed.is_empty(), "APIs that this test does not ask: {missed:?}");
    })
    .expect("io_uring works here");
}

async fn describe(asker: &mut Asker) {
    let request = |_| ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };
    let check = |_, r: ApiVersionsResponse<'_>| assert_eq!(r.error_code, 0);
    asker.every::<_, ApiVersions>(ApiKey::ApiVersions, request, check).await;

    let id = std::cell::Cell::new(Uuid::ZERO);
    let request = |version: i16| MetadataRequest {
        topics: Some(
            ["versions", "not-there"]
                .map(|name| metadata_request::MetadataRequestTopic {
                    name: Some(name.into()),
                    ..Default::default()
                })
                .to_vec()
                .into(),
        ),
        allow_auto_topic_creation: version < 4,
        ..Default::default()
    };
    let check = |version: i16, r: MetadataResponse<'_>| {
        assert_eq!((r.brokers.len(), r.topics.len()), (1, 2));
        let topic = r.topics.first().expect("the topic");
        assert_eq!((topic.error_code, topic.partitions.len()), (0, 2), "version {version}");
        if version >= 10 {
            id.set(topic.topic_id);
        }
    };
    asker.every::<_, Metadata>(ApiKey::Metadata, request, check).await;
    assert_ne!(id.get(), Uuid::ZERO);
    asker.topic_id = id.get();

    let request = |_| DescribeClusterRequest::default();
    let check = |_, r: DescribeClusterResponse<'_>| assert_eq!(r.brokers.len(), 1);
    asker.every::<_, DescribeCluster>(ApiKey::DescribeCluster, request, check).await;

    let request = |_| DescribeTopicPartitionsRequest {
        topics: vec![describe_topic_partitions_request::TopicRequest { name: TOPIC.into() }].into(),
        response_partition_limit: 1,
        ..Default::default()
    };
    let check = |_, r: DescribeTopicPartitionsResponse<'_>| {
        assert_eq!(r.topics.first().expect("topic").partitions.len(), 1);
        let cursor = r.next_cursor.expect("there is a second page");
        assert_eq!((cursor.topic_name.as_ref(), cursor.partition_index), (TOPIC, 1));
    };
    asker
        .every::<_, DescribeTopicPartitions>(ApiKey::DescribeTopicPartitions, request, check)
        .await;

    let request = |version: i16| FindCoordinatorRequest {
        key: if version < 4 { "group".into() } else { "".into() },
        coordinator_keys: if version < 4 { vec![].into() } else { vec!["group".into()].into() },
        ..Default::default()
    };
    let check = |version: i16, r: FindCoordinatorResponse<'_>| {
        let error = r.coordinators.first().map_or(r.error_code, |c| c.error_code);
        assert_eq!(error, 0, "version {version}");
    };
    asker.every::<_, FindCoordinator>(ApiKey::FindCoordinator, request, check).await;

    let request = |_| ListConfigResourcesRequest::default();
    let check = |version: i16, r: ListConfigResourcesResponse<'_>| {
        assert_eq!(r.error_code, 0);
        assert_eq!(r.config_resources.is_empty(), version == 0, "version {version}");
    };
    asker.every::<_, ListConfigResources>(ApiKey::ListConfigResources, request, check).await;

    let request = |version: i16| DescribeConfigsRequest {
        resources: [(2, TOPIC), (4, "1000"), (2, "not-there")]
            .map(|(kind, name)| describe_configs_request::DescribeConfigsResource {
                resource_type: kind,
                resource_name: name.into(),
                configuration_keys: None,
            })
            .to_vec()
            .into(),
        include_synonyms: true,
        include_documentation: version >= 3,
    };
    let check = |_, r: DescribeConfigsResponse<'_>| {
        let errors: Vec<i16> = r.results.iter().map(|result| result.error_code).collect();
        assert_eq!(errors, [0, 0, 3]);
        assert!(r.results.iter().take(2).all(|result| result.configs.len() > 20));
    };
    asker.every::<_, DescribeConfigs>(ApiKey::DescribeConfigs, request, check).await;

    let request = |_| DescribeLogDirsRequest { topics: None };
    let check = |_, r: DescribeLogDirsResponse<'_>| {
        let dir = r.results.first().expect("one directory");
        assert_eq!(dir.topics.first().expect("the topic").partitions.len(), 2);
    };
    asker.every::<_, DescribeLogDirs>(ApiKey::DescribeLogDirs, request, check).await;

    let request = |_| AlterReplicaLogDirsRequest {
        dirs: vec![alter_replica_log_dirs_request::AlterReplicaLogDir {
            path: "/nowhere".into(),
            topics: vec![alter_replica_log_dirs_request::AlterReplicaLogDirTopic {
                name: TOPIC.into(),
                partitions: vec![0].into(),
            }]
            .into(),
        }]
        .into(),
    };
    let check = |_, r: AlterReplicaLogDirsResponse<'_>| {
        let topic = r.results.first().expect("the topic");
        assert_eq!(topic.partitions.first().expect("the partition").error_code, 57);
    };
    asker.every::<_, AlterReplicaLogDirs>(ApiKey::AlterReplicaLogDirs, request, check).await;

    let request = |_| AlterPartitionReassignmentsRequest {
        timeout_ms: 1000,
        allow_replication_factor_change: true,
        topics: vec![alter_partition_reassignments_request::ReassignableTopic {
            name: TOPIC.into(),
            partitions: vec![alter_partition_reassignments_request::ReassignablePartition {
                partition_index: 0,
                replicas: None,
            }]
            .into(),
        }]
        .into(),
    };
    let check = |_, r: AlterPartitionReassignmentsResponse<'_>| {
        let topic = r.responses.first().expect("the topic");
        assert_eq!(topic.partitions.first().expect("the partition").error_code, 85);
    };
    let key = ApiKey::AlterPartitionReassignments;
    asker.every::<_, AlterPartitionReassignments>(key, request, check).await;

    let request = |_| ListPartitionReassignmentsRequest::default();
    let check = |_, r: ListPartitionReassignmentsResponse<'_>| assert_eq!(r.error_code, 0);
    asker
        .every::<_, ListPartitionReassignments>(ApiKey::ListPartitionReassignments, request, check)
        .await;
}

async fn read_and_write(asker: &mut Asker) {
    let request = |_| InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 1000,
        ..Default::default()
    };
    let check = |_, r: InitProducerIdResponse| assert_eq!(r.error_code, 0);
    asker.every::<_, InitProducerId>(ApiKey::InitProducerId, request, check).await;

    let bytes = batch(&[b"value"], reactor::wall_clock_ms());
    let topic_id = asker.topic_id;
    // One partition that works and one that does not exist.
    let request = |version: i16| ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        transactional_id: None,
        topic_data: vec![produce_request::TopicProduceData {
            name: if version < 13 { TOPIC.into() } else { "".into() },
            topic_id: if version < 13 { Uuid::ZERO } else { topic_id },
            partition_data: [0, 99]
                .map(|index| produce_request::PartitionProduceData {
                    index,
                    records: Some(Records::Borrowed(&bytes)),
                })
                .to_vec()
                .into(),
        }]
        .into(),
    };
    let check = |version: i16, r: ProduceResponse<'_>| {
        let topic = r.responses.first().expect("topic");
        let errors: Vec<i16> = topic.partition_responses.iter().map(|p| p.error_code).collect();
        assert_eq!(errors, [0, 3], "version {version}");
    };
    asker.every::<_, Produce>(ApiKey::Produce, request, check).await;

    let request = |version: i16| FetchRequest {
        max_bytes: 1 << 20,
        topics: vec![fetch_request::FetchTopic {
            topic: if version < 13 { TOPIC.into() } else { "".into() },
            topic_id: if version < 13 { Uuid::ZERO } else { topic_id },
            partitions: [0, 99]
                .map(|partition| fetch_request::FetchPartition {
                    partition,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                })
                .to_vec()
                .into(),
        }]
        .into(),
        isolation_level: 1,
        ..Default::default()
    };
    let check = |version: i16, r: FetchResponse<'_>| {
        let partitions = r.responses.first().expect("topic").partitions.to_vec();
        let errors: Vec<i16> = partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(errors, [0, 3], "version {version}");
        assert!(partitions[0].records.as_ref().is_some_and(|r| r.len() >= bytes.len()));
    };
    asker.every::<_, Fetch>(ApiKey::Fetch, request, check).await;

    let request = |_| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![list_offsets_request::ListOffsetsTopic {
            name: TOPIC.into(),
            partitions: vec![list_offsets_request::ListOffsetsPartition {
                timestamp: -1,
                ..Default::default()
            }]
            .into(),
        }]
        .into(),
        ..Default::default()
    };
    let check = |version: i16, r: ListOffsetsResponse<'_>| {
        let partition = r.topics.first().expect("topic").partitions.to_vec()[0].clone();
        assert_eq!((partition.error_code, partition.offset), (0, 11), "version {version}");
    };
    asker.every::<_, ListOffsets>(ApiKey::ListOffsets, request, check).await;

    let request = |_| OffsetForLeaderEpochRequest {
        topics: vec![offset_for_leader_epoch_request::OffsetForLeaderTopic {
            topic: TOPIC.into(),
            partitions: vec![offset_for_leader_epoch_request::OffsetForLeaderPartition {
                leader_epoch: 0,
                ..Default::default()
            }]
            .into(),
        }]
        .into(),
        ..Default::default()
    };
    let check = |version: i16, r: OffsetForLeaderEpochResponse<'_>| {
        let partition = r.topics.first().expect("topic").partitions.to_vec()[0].clone();
        assert_eq!((partition.error_code, partition.end_offset), (0, 11), "version {version}");
    };
    asker.every::<_, OffsetForLeaderEpoch>(ApiKey::OffsetForLeaderEpoch, request, check).await;

    let request = |version: i16| DeleteRecordsRequest {
        topics: vec![delete_records_request::DeleteRecordsTopic {
            name: TOPIC.into(),
            partitions: vec![delete_records_request::DeleteRecordsPartition {
                partition_index: 0,
                offset: i64::from(version) + 1,
            }]
            .into(),
        }]
        .into(),
        timeout_ms: 1000,
    };
    let check = |version: i16, r: DeleteRecordsResponse<'_>| {
        let partition = r.topics.first().expect("topic").partitions.to_vec()[0].clone();
        let expected = (0, i64::from(version) + 1);
        assert_eq!((partition.error_code, partition.low_watermark), expected);
    };
    asker.every::<_, DeleteRecords>(ApiKey::DeleteRecords, request, check).await;
}

async fn change(asker: &mut Asker) {
    let name = |version: i16| format!("created-by-{version}");
    let request = |version: i16| CreateTopicsRequest {
        topics: vec![create_topics_request::CreatableTopic {
            name: name(version).into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }]
        .into(),
        timeout_ms: 1000,
        ..Default::default()
    };
    let check = |version: i16, r: CreateTopicsResponse<'_>| {
        let topic = r.topics.first().expect("topic");
        assert_eq!(topic.error_code, 0, "version {version}: {:?}", topic.error_message);
    };
    asker.every::<_, CreateTopics>(ApiKey::CreateTopics, request, check).await;

    let request = |version: i16| CreatePartitionsRequest {
        topics: vec![create_partitions_request::CreatePartitionsTopic {
            name: name(2).into(),
            count: i32::from(version) + 2,
            assignments: None,
        }]
        .into(),
        timeout_ms: 1000,
        validate_only: false,
    };
    let check = |version: i16, r: CreatePartitionsResponse<'_>| {
        let result = r.results.first().expect("result");
        assert_eq!(result.error_code, 0, "version {version}: {:?}", result.error_message);
    };
    asker.every::<_, CreatePartitions>(ApiKey::CreatePartitions, request, check).await;

    let request = |_| AlterConfigsRequest {
        resources: vec![alter_configs_request::AlterConfigsResource {
            resource_type: 2,
            resource_name: TOPIC.into(),
            configs: vec![alter_configs_request::AlterableConfig {
                name: "retention.ms".into(),
                value: Some("60000".into()),
            }]
            .into(),
        }]
        .into(),
        validate_only: false,
    };
    let check = |_, r: AlterConfigsResponse<'_>| {
        assert_eq!(r.responses.first().expect("response").error_code, 0);
    };
    asker.every::<_, AlterConfigs>(ApiKey::AlterConfigs, request, check).await;

    // An operation that exists and one that does not.
    let request = |_| IncrementalAlterConfigsRequest {
        resources: [(TOPIC, 1), ("created-by-2", 9)]
            .map(|(topic, config_operation)| {
                incremental_alter_configs_request::AlterConfigsResource {
                    resource_type: 2,
                    resource_name: topic.into(),
                    configs: vec![incremental_alter_configs_request::AlterableConfig {
                        name: "retention.ms".into(),
                        config_operation,
                        value: None,
                    }]
                    .into(),
                }
            })
            .to_vec()
            .into(),
        validate_only: false,
    };
    let check = |_, r: IncrementalAlterConfigsResponse<'_>| {
        let errors: Vec<i16> = r.responses.iter().map(|response| response.error_code).collect();
        assert_eq!(errors, [0, 42]);
    };
    asker
        .every::<_, IncrementalAlterConfigs>(ApiKey::IncrementalAlterConfigs, request, check)
        .await;

    let request = |version: i16| DeleteTopicsRequest {
        topics: match version {
            6.. => [name(version), "not-there".to_owned()]
                .map(|name| delete_topics_request::DeleteTopicState {
                    name: Some(name.into()),
                    topic_id: Uuid::ZERO,
                })
                .to_vec()
                .into(),
            _ => Vec::new().into(),
        },
        topic_names: match version {
            6.. => Vec::new().into(),
            _ => vec![name(version.max(2)).into(), "not-there".into()].into(),
        },
        timeout_ms: 1000,
    };
    let check = |version: i16, r: DeleteTopicsResponse<'_>| {
        let errors: Vec<i16> = r.responses.iter().map(|response| response.error_code).collect();
        // Version 1 deletes the topic of version 2.
        assert_eq!(errors, [if version == 2 { 3 } else { 0 }, 3], "version {version}");
    };
    asker.every::<_, DeleteTopics>(ApiKey::DeleteTopics, request, check).await;
}
