//! Requests that name more than is answered, over the wire in the simulator: where the answer has a
//! place for an error of the whole there is one and the connection goes on, elsewhere it closes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::path::Path;

use reactor::sim::World;
use support::{BASE_PORT, Client, start_shards};
use wire::messages as m;
use wire::{ApiKey, Message, Reader, frame};

const DATA_DIR: &str = "/data";
const GROUP: &str = "readers";
/// More than any request may name.
const MANY: usize = 200_001;
/// More groups than are described in one answer.
const MANY_GROUPS: usize = 10_001;
const INVALID_REQUEST: i16 = 42;

fn run<F: Future<Output = ()> + 'static>(seed: u64, test: impl FnOnce(Client) -> F + 'static) {
    let outcome = World::new(seed).run(move || async move {
        reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
        reactor::fs::sync_dir(Path::new("/")).await.unwrap();
        let settings = ["group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1"];
        let mut shards = start_shards(1, BASE_PORT, DATA_DIR, &settings);
        shards.ready().await;
        let mut client = Client::connect(shards.addresses[0]).await.unwrap();
        assert_eq!(client.coordinator(GROUP).await.unwrap().0, 0);
        client.groups_loaded().await.unwrap();
        test(client).await;
    });
    assert!(outcome.finished().is_some());
}

/// Sends the request and decodes its answer.
macro_rules! ask {
    ($client:ident, $api:ident $version:literal, $request:expr, $response:ident) => {{
        $client.send(ApiKey::$api, $version, &$request).await.unwrap();
        let answer = $client.receive().await.expect(stringify!($api));
        let mut reader = Reader::new(&answer);
        frame::decode_response_header(&mut reader, ApiKey::$api, $version).unwrap();
        m::$response::decode(&mut reader, $version).map(|answer| answer.error_code).unwrap()
    }};
}

fn many<T: Clone + Default>() -> Vec<T> {
    vec![T::default(); MANY]
}

#[test]
fn too_many_items_are_an_error_where_the_answer_has_a_place_for_it() {
    run(1, |mut client| async move {
        let codes = [
            ask!(
                client,
                SyncGroup 5,
                m::SyncGroupRequest { assignments: many().into(), ..Default::default() },
                SyncGroupResponse
            ),
            ask!(
                client,
                LeaveGroup 5,
                m::LeaveGroupRequest { members: many().into(), ..Default::default() },
                LeaveGroupResponse
            ),
            ask!(
                client,
                ConsumerGroupHeartbeat 1,
                m::ConsumerGroupHeartbeatRequest {
                    subscribed_topic_names: Some(many().into()),
                    ..Default::default()
                },
                ConsumerGroupHeartbeatResponse
            ),
            ask!(
                client,
                OffsetDelete 0,
                m::OffsetDeleteRequest { topics: many().into(), ..Default::default() },
                OffsetDeleteResponse
            ),
            ask!(
                client,
                OffsetFetch 7,
                m::OffsetFetchRequest { topics: Some(many().into()), ..Default::default() },
                OffsetFetchResponse
            ),
            ask!(
                client,
                ListGroups 5,
                m::ListGroupsRequest { states_filter: many().into(), ..Default::default() },
                ListGroupsResponse
            ),
            ask!(
                client,
                ListTransactions 1,
                m::ListTransactionsRequest { state_filters: many().into(), ..Default::default() },
                ListTransactionsResponse
            ),
            ask!(
                client,
                Fetch 12,
                m::FetchRequest { topics: many().into(), ..Default::default() },
                FetchResponse
            ),
            ask!(
                client,
                Metadata 13,
                m::MetadataRequest { topics: Some(many().into()), ..Default::default() },
                MetadataResponse
            ),
            ask!(
                client,
                DescribeLogDirs 4,
                m::DescribeLogDirsRequest { topics: Some(many().into()) },
                DescribeLogDirsResponse
            ),
            ask!(
                client,
                UpdateFeatures 2,
                m::UpdateFeaturesRequest { feature_updates: many().into(), ..Default::default() },
                UpdateFeaturesResponse
            ),
            ask!(
                client,
                AlterPartitionReassignments 1,
                m::AlterPartitionReassignmentsRequest { topics: many().into(), ..Default::default() },
                AlterPartitionReassignmentsResponse
            ),
            ask!(
                client,
                ListPartitionReassignments 0,
                m::ListPartitionReassignmentsRequest {
                    topics: Some(many().into()),
                    ..Default::default()
                },
                ListPartitionReassignmentsResponse
            ),
        ];
        assert_eq!(codes, [INVALID_REQUEST; 13]);
        // There is no place for it in the answer to these.
        let topics = many().into();
        let commit = m::OffsetCommitRequest { topics, ..Default::default() };
        client.send(ApiKey::OffsetCommit, 9, &commit).await.unwrap();
        assert!(client.receive().await.is_err(), "the connection goes on");
    });
}

fn join(protocols: &[(String, Vec<u8>)]) -> m::JoinGroupRequest<'_> {
    let protocols =
        protocols.iter().map(|(name, metadata)| m::join_group_request::JoinGroupRequestProtocol {
            name: name.as_str().into(),
            metadata: metadata.as_slice().into(),
        });
    m::JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: protocols.collect(),
        ..Default::default()
    }
}

/// Apache Kafka 4.4.0 answers each of these with an id for the new member (79).
#[test]
fn a_join_with_many_protocols_is_answered() {
    const MEMBER_ID_REQUIRED: i16 = 79;
    const UNKNOWN_SERVER_ERROR: i16 = -1;
    let protocols = |count: usize, name_bytes: usize| -> Vec<(String, Vec<u8>)> {
        (0..count).map(|at| (format!("{at:0name_bytes$}"), vec![0; 2])).collect()
    };
    run(2, move |mut client| async move {
        let table = [
            (101, 3, MEMBER_ID_REQUIRED),
            (1_000, 1_000, MEMBER_ID_REQUIRED),
            (1_000, 1_100, UNKNOWN_SERVER_ERROR),
            (1_001, 4, INVALID_REQUEST),
            (100_000, 6, INVALID_REQUEST),
        ];
        for (count, name_bytes, expected) in table {
            let protocols = protocols(count, name_bytes);
            let code = ask!(client, JoinGroup 9, join(&protocols), JoinGroupResponse);
            assert_eq!(code, expected, "{count} of {name_bytes} bytes");
            let code = ask!(client, JoinGroup 5, join(&protocols), JoinGroupResponse);
            assert_eq!(code, expected, "{count} of {name_bytes} bytes, version 5");
        }
    });
}

#[test]
fn more_groups_than_fit_into_an_answer_are_each_refused() {
    let names: Vec<String> = (0..MANY_GROUPS).map(|at| format!("g{at}")).collect();
    run(3, move |mut client| async move {
        for (names, expected) in [(&names[..], INVALID_REQUEST), (&names[..2], 0)] {
            let groups = || names.iter().map(|name| name.as_str().into());
            let request =
                m::DescribeGroupsRequest { groups: groups().collect(), ..Default::default() };
            client.send(ApiKey::DescribeGroups, 5, &request).await.unwrap();
            let answer = client.receive().await.expect("described");
            let mut reader = Reader::new(&answer);
            frame::decode_response_header(&mut reader, ApiKey::DescribeGroups, 5).unwrap();
            let described = m::DescribeGroupsResponse::decode(&mut reader, 5).unwrap();
            assert!(described.groups.iter().all(|group| group.error_code == expected));
            assert_eq!(described.groups.len(), names.len());
            let of_each =
                names.iter().map(|name| m::offset_fetch_request::OffsetFetchRequestGroup {
                    group_id: name.as_str().into(),
                    member_epoch: -1,
                    ..Default::default()
                });
            let request = m::OffsetFetchRequest { groups: of_each.collect(), ..Default::default() };
            client.send(ApiKey::OffsetFetch, 9, &request).await.unwrap();
            let answer = client.receive().await.expect("fetched");
            let mut reader = Reader::new(&answer);
            frame::decode_response_header(&mut reader, ApiKey::OffsetFetch, 9).unwrap();
            let fetched = m::OffsetFetchResponse::decode(&mut reader, 9).unwrap();
            assert!(fetched.groups.iter().all(|group| group.error_code == expected));
            assert_eq!(fetched.groups.len(), names.len());
        }
    });
}

/// As a group is: one that is named ten thousand times is answered once.
#[test]
fn a_transaction_that_is_named_often_is_described_once() {
    run(4, move |mut client| async move {
        let ids = vec![wire::Text::from("payments"); MANY_GROUPS];
        let request = m::DescribeTransactionsRequest { transactional_ids: ids.into() };
        client.send(ApiKey::DescribeTransactions, 0, &request).await.unwrap();
        let answer = client.receive().await.expect("described");
        let mut reader = Reader::new(&answer);
        frame::decode_response_header(&mut reader, ApiKey::DescribeTransactions, 0).unwrap();
        let described = m::DescribeTransactionsResponse::decode(&mut reader, 0).unwrap();
        let codes: Vec<i16> =
            described.transaction_states.iter().map(|state| state.error_code).collect();
        assert!(matches!(codes[..], [code] if code != INVALID_REQUEST), "{codes:?}");
    });
}
