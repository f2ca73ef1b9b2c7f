//! Every version that ApiVersions advertises gets an answer that fits it: each API is asked
//! something that fills its response, in every version of the table.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use reactor::ShardSpec;
use support::{Client, Response, batch, start_shards};
use wire::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, DescribeTransactionsResponse,
    EndTxnResponse, ListTransactionsResponse, TxnOffsetCommitResponse,
};
use wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
    ApiVersionsRequest, ApiVersionsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeProducersResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, FetchRequest, FetchResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, MetadataRequest,
    MetadataResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest,
    ProduceResponse, UpdateFeaturesResponse, WriteTxnMarkersResponse, alter_configs_request,
    alter_partition_reassignments_request, alter_replica_log_dirs_request,
    create_partitions_request, create_topics_request, delete_records_request,
    delete_topics_request, describe_configs_request, describe_topic_partitions_request,
    fetch_request, incremental_alter_configs_request, list_offsets_request, metadata_request,
    offset_for_leader_epoch_request, produce_request,
};
use wire::messages::{
    join_group_request, leave_group_request, offset_commit_request, offset_delete_request,
    offset_fetch_request, sync_group_request,
};
use wire::{ApiKey, Message, Records, Uuid, messages as m};
use wire_groups::{
    ConsumerDescribe, ConsumerHeartbeat, DeleteGroups, DescribeGroups, FindCoordinator, Heartbeat,
    JoinGroup, LeaveGroup, ListGroups, OffsetCommit, OffsetDelete, OffsetFetch, SyncGroup,
};

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
response!(DescribeProducers, DescribeProducersResponse, borrows);
response!(DescribeTopicPartitions, DescribeTopicPartitionsResponse, borrows);
response!(Fetch, FetchResponse, borrows);
response!(IncrementalAlterConfigs, IncrementalAlterConfigsResponse, borrows);
response!(InitProducerId, InitProducerIdResponse);
response!(ListConfigResources, ListConfigResourcesResponse, borrows);
response!(ListOffsets, ListOffsetsResponse, borrows);
response!(ListPartitionReassignments, ListPartitionReassignmentsResponse, borrows);
response!(Metadata, MetadataResponse, borrows);
response!(OffsetForLeaderEpoch, OffsetForLeaderEpochResponse, borrows);
response!(Produce, ProduceResponse, borrows);
response!(AddPartitionsToTxn, AddPartitionsToTxnResponse, borrows);
response!(AddOffsetsToTxn, AddOffsetsToTxnResponse);
response!(EndTxn, EndTxnResponse);
response!(TxnOffsetCommit, TxnOffsetCommitResponse, borrows);
response!(DescribeTransactions, DescribeTransactionsResponse, borrows);
response!(ListTransactions, ListTransactionsResponse, borrows);
response!(WriteTxnMarkers, WriteTxnMarkersResponse, borrows);
response!(UpdateFeatures, UpdateFeaturesResponse, borrows);

const TOPIC: &str = "versions";
const BASE_PORT: u16 = 21_800;
const SETTINGS: [&str; 2] =
    ["auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0"];

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
        let mut broker = start_shards(1, BASE_PORT, &path, &SETTINGS);
        broker.ready().await;
        let mut client = Client::connect(broker.addresses[0]).await.expect("connect");
        assert_eq!(client.create_topic(TOPIC, 2, &[]).await.expect("create"), 0);
        let mut asker = Asker { client, topic_id: Uuid::ZERO, asked: Vec::new() };
        describe(&mut asker).await;
        read_and_write(&mut asker).await;
        groups(&mut asker).await;
        transactions(&mut asker).await;
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

    let request = |_| m::DescribeProducersRequest {
        topics: vec![m::describe_producers_request::TopicRequest {
            name: TOPIC.into(),
            partition_indexes: vec![0, 9].into(),
        }]
        .into(),
    };
    let check = |_, r: m::DescribeProducersResponse<'_>| {
        let topic = r.topics.first().expect("topic");
        let errors: Vec<i16> = topic.partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(errors, [0, 3]);
    };
    asker.every::<_, DescribeProducers>(ApiKey::DescribeProducers, request, check).await;

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
        let topic = dir.topics.iter().find(|topic| topic.name == TOPIC).expect("the topic");
        assert_eq!(topic.partitions.len(), 2);
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

    let request = |_| m::WriteTxnMarkersRequest {
        markers: vec![m::write_txn_markers_request::WritableTxnMarker {
            producer_id: 1 << 40,
            topics: vec![m::write_txn_markers_request::WritableTxnMarkerTopic {
                name: TOPIC.into(),
                partition_indexes: vec![1, 99].into(),
            }]
            .into(),
            ..Default::default()
        }]
        .into(),
    };
    let check = |version: i16, r: m::WriteTxnMarkersResponse<'_>| {
        let marker = r.markers.first().expect("marker");
        let topic = marker.topics.first().expect("topic");
        let errors: Vec<i16> = topic.partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(errors, [0, 3], "version {version}");
    };
    asker.every::<_, WriteTxnMarkers>(ApiKey::WriteTxnMarkers, request, check).await;
}

/// A group of its own for each version.
async fn groups(asker: &mut Asker) {
    asker.client.groups_loaded().await.expect("groups are loaded");
    let group = |version: i16| wire::Text::from(format!("group-{version}"));
    let topic_id = asker.topic_id;
    let name = |version: i16| if version < 10 { TOPIC } else { "" };
    let id = |version: i16| if version < 10 { Uuid::ZERO } else { topic_id };

    let request = |version: i16| m::OffsetCommitRequest {
        group_id: group(version),
        topics: vec![offset_commit_request::OffsetCommitRequestTopic {
            name: name(version).into(),
            topic_id: id(version),
            partitions: vec![offset_commit_request::OffsetCommitRequestPartition {
                committed_offset: 5,
                committed_metadata: Some("metadata".into()),
                ..Default::default()
            }]
            .into(),
        }]
        .into(),
        ..Default::default()
    };
    let check = |version: i16, r: m::OffsetCommitResponse<'_>| {
        let topic = r.topics.first().expect("topic");
        assert_eq!((topic.name.as_ref(), topic.topic_id), (name(version), id(version)));
        assert_eq!(topic.partitions.to_vec()[0].error_code, 0, "version {version}");
    };
    asker.every::<_, OffsetCommit>(ApiKey::OffsetCommit, request, check).await;

    let many = |version: i16| {
        let topic = offset_fetch_request::OffsetFetchRequestTopics {
            name: name(version).into(),
            topic_id: id(version),
            partition_indexes: vec![0].into(),
        };
        let group = offset_fetch_request::OffsetFetchRequestGroup {
            group_id: group(version),
            topics: Some(vec![topic].into()),
            ..Default::default()
        };
        m::OffsetFetchRequest { groups: vec![group].into(), ..Default::default() }
    };
    let one = |version: i16| m::OffsetFetchRequest {
        group_id: group(version.max(2)),
        topics: Some(
            vec![offset_fetch_request::OffsetFetchRequestTopic {
                name: TOPIC.into(),
                partition_indexes: vec![0].into(),
            }]
            .into(),
        ),
        ..Default::default()
    };
    let request = |version: i16| if version < 8 { one(version) } else { many(version) };
    let check = |version: i16, r: m::OffsetFetchResponse<'_>| {
        let offset = match version < 8 {
            true => {
                let topic = r.topics.first().expect("topic");
                topic.partitions.first().expect("partition").committed_offset
            }
            false => {
                let topic = r.groups.first().expect("group").topics.to_vec()[0].clone();
                assert_eq!((topic.name.as_ref(), topic.topic_id), (name(version), id(version)));
                topic.partitions.first().expect("partition").committed_offset
            }
        };
        assert_eq!(offset, 5, "version {version}");
    };
    asker.every::<_, OffsetFetch>(ApiKey::OffsetFetch, request, check).await;

    classic_members(asker).await;
    consumer_members(asker).await;

    let request = |_| m::ListGroupsRequest::default();
    let check = |version: i16, r: m::ListGroupsResponse<'_>| {
        assert_eq!(r.error_code, 0);
        let group = r.groups.iter().find(|group| group.group_id == "group-2").expect("group");
        assert_eq!(group.group_state == "Empty", version >= 4, "version {version}");
        assert_eq!(group.group_type == "Classic", version >= 5, "version {version}");
    };
    asker.every::<_, ListGroups>(ApiKey::ListGroups, request, check).await;

    let request = |_| m::OffsetDeleteRequest {
        group_id: "group-2".into(),
        topics: vec![offset_delete_request::OffsetDeleteRequestTopic {
            name: TOPIC.into(),
            partitions: vec![offset_delete_request::OffsetDeleteRequestPartition {
                partition_index: 0,
            }]
            .into(),
        }]
        .into(),
    };
    let check = |_, r: m::OffsetDeleteResponse<'_>| {
        let topic = r.topics.first().expect("topic");
        assert_eq!((r.error_code, topic.partitions.to_vec()[0].error_code), (0, 0));
    };
    asker.every::<_, OffsetDelete>(ApiKey::OffsetDelete, request, check).await;

    let names = |version: i16| [group(version + 3), "not-there".into()].to_vec();
    let request = |version: i16| m::DeleteGroupsRequest { groups_names: names(version).into() };
    let check = |version: i16, r: m::DeleteGroupsResponse<'_>| {
        let errors: Vec<i16> = r.results.iter().map(|result| result.error_code).collect();
        assert_eq!(errors, [0, 69], "version {version}");
    };
    asker.every::<_, DeleteGroups>(ApiKey::DeleteGroups, request, check).await;
}

async fn classic_members(asker: &mut Asker) {
    let group = |version: i16| wire::Text::from(format!("members-{version}"));
    let request = |version: i16| m::JoinGroupRequest {
        group_id: group(version),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        // A static member joins at once in every version that knows such.
        group_instance_id: (version >= 5).then(|| "static".into()),
        protocol_type: "consumer".into(),
        protocols: vec![join_group_request::JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: (&b"metadata"[..]).into(),
        }]
        .into(),
        ..Default::default()
    };
    let members = std::cell::RefCell::new(std::collections::BTreeMap::new());
    let check = |version: i16, r: m::JoinGroupResponse<'_>| {
        let needs_id = version == 4;
        assert_eq!(r.error_code, if needs_id { 79 } else { 0 }, "version {version}");
        assert_eq!(r.members.len(), usize::from(!needs_id), "version {version}");
        members.borrow_mut().insert(version, r.member_id.to_string());
    };
    asker.every::<_, JoinGroup>(ApiKey::JoinGroup, request, check).await;

    let member = |version: i16| members.borrow().get(&version).cloned().unwrap_or_default();
    let joined = |version: i16| if version < 4 { version } else { version + 1 };
    let request = |version: i16| m::SyncGroupRequest {
        group_id: group(joined(version)),
        generation_id: 1,
        member_id: member(joined(version)).into(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![sync_group_request::SyncGroupRequestAssignment {
            member_id: member(joined(version)).into(),
            assignment: (&b"assignment"[..]).into(),
        }]
        .into(),
        ..Default::default()
    };
    let check = |version: i16, r: m::SyncGroupResponse<'_>| {
        assert_eq!((r.error_code, r.assignment.to_vec()), (0, b"assignment".to_vec()));
        assert_eq!(r.protocol_name.is_some(), version >= 5, "version {version}");
    };
    asker.every::<_, SyncGroup>(ApiKey::SyncGroup, request, check).await;

    let request = |version: i16| m::HeartbeatRequest {
        group_id: group(joined(version)),
        generation_id: 1,
        member_id: member(joined(version)).into(),
        ..Default::default()
    };
    let check = |version: i16, r: m::HeartbeatResponse| {
        assert_eq!(r.error_code, 0, "version {version}");
    };
    asker.every::<_, Heartbeat>(ApiKey::Heartbeat, request, check).await;

    let request = |version: i16| m::DescribeGroupsRequest {
        groups: [group(0), "not-there".into()].to_vec().into(),
        include_authorized_operations: version >= 3,
    };
    let check = |version: i16, r: m::DescribeGroupsResponse<'_>| {
        let described = r.groups.first().expect("group");
        assert_eq!((described.error_code, described.group_state.as_ref()), (0, "Stable"));
        let member = described.members.first().expect("member");
        assert_eq!(member.member_assignment.to_vec(), b"assignment");
        assert_eq!(described.authorized_operations > 0, version >= 3, "version {version}");
        let missing = r.groups.to_vec()[1].error_code;
        assert_eq!(missing, if version >= 6 { 69 } else { 0 }, "version {version}");
    };
    asker.every::<_, DescribeGroups>(ApiKey::DescribeGroups, request, check).await;

    let request = |version: i16| {
        let id = member(joined(version));
        let identity = leave_group_request::MemberIdentity {
            member_id: id.clone().into(),
            ..Default::default()
        };
        m::LeaveGroupRequest {
            group_id: group(joined(version)),
            member_id: if version < 3 { id.into() } else { "".into() },
            members: if version < 3 { vec![].into() } else { vec![identity].into() },
        }
    };
    let check = |version: i16, r: m::LeaveGroupResponse<'_>| {
        assert_eq!(r.error_code, 0, "version {version}");
        assert!(r.members.iter().all(|member| member.error_code == 0), "version {version}");
        assert_eq!(r.members.len(), usize::from(version >= 3), "version {version}");
    };
    asker.every::<_, LeaveGroup>(ApiKey::LeaveGroup, request, check).await;
}

async fn consumer_members(asker: &mut Asker) {
    let request = |version: i16| m::ConsumerGroupHeartbeatRequest {
        group_id: format!("consumers-{version}").into(),
        member_id: if version == 0 { "".into() } else { "mine".into() },
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec![TOPIC.into()].into()),
        topic_partitions: Some(vec![].into()),
        ..Default::default()
    };
    let check = |version: i16, r: m::ConsumerGroupHeartbeatResponse<'_>| {
        assert_eq!(r.error_code, 0, "version {version}: {:?}", r.error_message);
        assert_eq!(r.assignment.expect("an assignment").topic_partitions.len(), 1);
    };
    asker.every::<_, ConsumerHeartbeat>(ApiKey::ConsumerGroupHeartbeat, request, check).await;

    let request = |_| m::ConsumerGroupDescribeRequest {
        group_ids: vec!["consumers-1".into(), "not-there".into()].into(),
        include_authorized_operations: true,
    };
    let check = |_, r: m::ConsumerGroupDescribeResponse<'_>| {
        let described = r.groups.first().expect("group");
        assert_eq!((described.error_code, described.members.len()), (0, 1));
        assert!(described.authorized_operations > 0);
        assert_eq!(r.groups.to_vec()[1].error_code, 69);
    };
    asker.every::<_, ConsumerDescribe>(ApiKey::ConsumerGroupDescribe, request, check).await;
}

/// The id and epoch of a transactional producer, once its coordinator is there.
async fn init_transactions(client: &mut Client, id: &str) -> (i64, i16) {
    const NOT_YET: [i16; 3] = [14, 15, 16];
    loop {
        let request = FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![id.into()].into(),
            ..Default::default()
        };
        let found = client.call::<_, FindCoordinator>(ApiKey::FindCoordinator, 4, &request).await;
        let found = found.expect("an answer").coordinators.first().expect("one").error_code;
        let request = InitProducerIdRequest {
            transactional_id: Some(id.into()),
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        let answer = client.call::<_, InitProducerId>(ApiKey::InitProducerId, 4, &request).await;
        let answer = answer.expect("an answer");
        if answer.error_code == 0 {
            return (answer.producer_id, answer.producer_epoch);
        }
        assert!(NOT_YET.contains(&answer.error_code) && (found == 0 || NOT_YET.contains(&found)));
        reactor::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// One transaction, with each of its requests in every version.
async fn transactions(asker: &mut Asker) {
    const ID: &str = "versions-tx";
    const GROUP: &str = "versions-tx-group";
    let producer = init_transactions(&mut asker.client, ID).await;
    let topic = || m::add_partitions_to_txn_request::AddPartitionsToTxnTopic {
        name: TOPIC.into(),
        partitions: vec![0].into(),
    };
    let request = |version: i16| match version {
        0..=3 => m::AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: ID.into(),
            v3_and_below_producer_id: producer.0,
            v3_and_below_producer_epoch: producer.1,
            v3_and_below_topics: vec![topic()].into(),
            ..Default::default()
        },
        _ => m::AddPartitionsToTxnRequest {
            transactions: vec![m::add_partitions_to_txn_request::AddPartitionsToTxnTransaction {
                transactional_id: ID.into(),
                producer_id: producer.0,
                producer_epoch: producer.1,
                verify_only: true,
                topics: vec![topic()].into(),
            }]
            .into(),
            ..Default::default()
        },
    };
    let check = |version: i16, r: AddPartitionsToTxnResponse<'_>| {
        let topics = match version {
            0..=3 => r.results_by_topic_v3_and_below,
            _ => r.results_by_transaction.first().expect("a transaction").topic_results,
        };
        let results = topics.first().expect("topic").results_by_partition;
        let codes: Vec<i16> = results.iter().map(|it| it.partition_error_code).collect();
        assert_eq!(codes, [0], "version {version}");
    };
    asker.every::<_, AddPartitionsToTxn>(ApiKey::AddPartitionsToTxn, request, check).await;

    let request = |_| m::AddOffsetsToTxnRequest {
        transactional_id: ID.into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        group_id: GROUP.into(),
    };
    let check = |_, r: AddOffsetsToTxnResponse| assert_eq!(r.error_code, 0);
    asker.every::<_, AddOffsetsToTxn>(ApiKey::AddOffsetsToTxn, request, check).await;

    let topic_id = asker.topic_id;
    let request = |version: i16| m::TxnOffsetCommitRequest {
        transactional_id: ID.into(),
        group_id: GROUP.into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        generation_id_or_member_epoch: -1,
        topics: vec![m::txn_offset_commit_request::TxnOffsetCommitRequestTopic {
            name: if version < 6 { TOPIC.into() } else { "".into() },
            topic_id: if version < 6 { Uuid::ZERO } else { topic_id },
            partitions: vec![m::txn_offset_commit_request::TxnOffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: 1,
                ..Default::default()
            }]
            .into(),
        }]
        .into(),
        ..Default::default()
    };
    let check = |version: i16, r: TxnOffsetCommitResponse<'_>| {
        let topic = r.topics.first().expect("topic");
        let codes: Vec<i16> = topic.partitions.iter().map(|it| it.error_code).collect();
        assert_eq!(codes, [0], "version {version}");
    };
    asker.every::<_, TxnOffsetCommit>(ApiKey::TxnOffsetCommit, request, check).await;

    let request = |_| m::DescribeTransactionsRequest {
        transactional_ids: vec![ID.into(), "nobody".into()].into(),
    };
    let check = |_, r: DescribeTransactionsResponse<'_>| {
        let known = r.transaction_states.first().expect("a state");
        assert_eq!((known.error_code, &*known.transaction_state), (0, "Ongoing"));
        let codes: Vec<i16> = r.transaction_states.iter().map(|it| it.error_code).collect();
        assert_eq!(codes, [0, 105]);
    };
    asker.every::<_, DescribeTransactions>(ApiKey::DescribeTransactions, request, check).await;

    let request = |_| m::ListTransactionsRequest { duration_filter: -1, ..Default::default() };
    let check = |_, r: ListTransactionsResponse<'_>| {
        assert_eq!((r.error_code, r.transaction_states.len()), (0, 1));
    };
    asker.every::<_, ListTransactions>(ApiKey::ListTransactions, request, check).await;

    let request = |_| m::EndTxnRequest {
        transactional_id: ID.into(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        committed: true,
    };
    // The first one commits; the others repeat it, or come while its markers are written.
    let check = |version: i16, r: EndTxnResponse| match version {
        0 => assert_eq!(r.error_code, 0),
        1..5 => assert!([0, 51].contains(&r.error_code), "version {version}: {r:?}"),
        _ => assert!([0, 48, 51].contains(&r.error_code), "version {version}: {r:?}"),
    };
    asker.every::<_, EndTxn>(ApiKey::EndTxn, request, check).await;
}

async fn change(asker: &mut Asker) {
    let request = |version: i16| m::UpdateFeaturesRequest {
        feature_updates: vec![m::update_features_request::FeatureUpdateKey {
            feature: "group.version".into(),
            max_version_level: 1,
            ..Default::default()
        }]
        .into(),
        validate_only: version >= 1,
        ..Default::default()
    };
    let check = |version: i16, r: m::UpdateFeaturesResponse<'_>| {
        assert_eq!((r.error_code, r.results.len()), (0, usize::from(version < 2)));
    };
    asker.every::<_, UpdateFeatures>(ApiKey::UpdateFeatures, request, check).await;

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
