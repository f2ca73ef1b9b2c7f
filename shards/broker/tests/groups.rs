//! Consumer groups over the wire, in the simulator: whole lives of groups of both protocols, who
//! coordinates which, the order of a connection's answers, and what a restart or a crash leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/groups.rs"]
mod wire_groups;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Crash, Outcome, World};
use support::{BASE_PORT, Client, Gone, Shards, start_shards};
use wire::ApiKey;
use wire::messages as m;
use wire_groups::{Member, NOT_COORDINATOR, assigned};

const DATA_DIR: &str = "/data";
const TOPIC: &str = "t";
const GROUP: &str = "readers";
/// Who commits without being a member.
const NOBODY: (&str, i32) = ("", -1);

/// Starts a broker; groups do not wait for more members.
async fn broker(shards: u16) -> Shards {
    broker_with(shards, &["group.initial.rebalance.delay.ms=0"]).await
}

async fn broker_with(shards: u16, settings: &[&str]) -> Shards {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.expect("the disk works");
    reactor::fs::sync_dir(Path::new("/")).await.expect("the disk works");
    let mut shards = start_shards(shards, BASE_PORT, DATA_DIR, settings);
    shards.ready().await;
    shards
}

async fn connect(shards: &Shards, shard: usize) -> Client {
    Client::connect(shards.addresses[shard]).await.expect("connect")
}

/// A connection to the coordinator of a group, which has read its log.
async fn coordinator(shards: &Shards, group: &str) -> Client {
    let mut client = connect(shards, 0).await;
    let (error, node) = client.coordinator(group).await.expect("find");
    assert_eq!(error, 0);
    let mut client = connect(shards, node as usize % 1000).await;
    client.groups_loaded().await.expect("list");
    client
}

/// Every member joins at once; returns them as they are told.
async fn all_join(clients: &mut [Client], ids: &[String]) -> Vec<Member> {
    let joins = clients.iter_mut().zip(ids).map(|(client, id)| client.join(GROUP, id));
    let joined = reactor::join_all(joins).await;
    joined
        .into_iter()
        .map(|answer| {
            let (error, member) = answer.expect("join");
            assert_eq!(error, 0);
            member
        })
        .collect()
}

async fn all_sync(clients: &mut [Client], members: &[Member]) {
    let syncs = clients.iter_mut().zip(members).map(|(client, member)| client.sync(GROUP, member));
    for (answer, member) in reactor::join_all(syncs).await.into_iter().zip(members) {
        assert_eq!(answer.expect("sync"), (0, member.id.clone().into_bytes()));
    }
}

fn run<F: Future<Output = ()> + 'static>(seed: u64, test: impl FnOnce() -> F + 'static) {
    let outcome = World::new(seed).run(test);
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

#[test]
fn every_shard_names_the_same_coordinator_and_only_that_one_serves() {
    run(1, || async {
        let shards = broker(3).await;
        let mut clients = Vec::new();
        for shard in 0..3 {
            clients.push(connect(&shards, shard).await);
        }
        let mut led = [0; 3];
        for number in 0..20 {
            let group = format!("group-{number}");
            let mut nodes = Vec::new();
            for client in &mut clients {
                let (error, node) = client.coordinator(&group).await.expect("find");
                assert_eq!(error, 0);
                nodes.push(node);
            }
            assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
            let shard = nodes[0] as usize % 1000;
            led[shard] += 1;
            for (number, client) in clients.iter_mut().enumerate() {
                client.groups_loaded().await.expect("list");
                let (error, _) = client.committed(&group).await.expect("fetch");
                assert_eq!(error, if number == shard { 0 } else { NOT_COORDINATOR });
            }
        }
        assert!(led.iter().all(|groups| *groups > 0), "{led:?}");
    });
}

#[test]
fn a_classic_group_lives_over_the_wire() {
    run(2, || async {
        let shards = broker(2).await;
        let mut admin = coordinator(&shards, GROUP).await;
        assert_eq!(admin.create_topic(TOPIC, 4, &[]).await.expect("create"), 0);
        let mut clients = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..3 {
            let mut client = coordinator(&shards, GROUP).await;
            ids.push(client.new_member(GROUP).await.expect("join"));
            clients.push(client);
        }
        let (first, _) = clients.split_at_mut(1);
        let members = all_join(first, &ids[..1]).await;
        all_sync(first, &members).await;
        assert_eq!(clients[0].heartbeat(GROUP, &members[0]).await.expect("heartbeat"), 0);

        // The others come; the first one learns of it by its heartbeat.
        clients[1].send_join(GROUP, &ids[1]).await.expect("join");
        while clients[0].heartbeat(GROUP, &members[0]).await.expect("heartbeat") != 27 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let mut second = clients.remove(1);
        let mut others = vec![clients.remove(0), clients.remove(0)];
        let joined = all_join(&mut others, &[ids[0].clone(), ids[2].clone()]).await;
        second.receive().await.expect("the parked join is answered");
        assert_eq!(joined[0].generation, 2);
        let leader = joined.iter().find(|member| !member.members.is_empty()).expect("a leader");
        assert_eq!(leader.members.len(), 3);
        all_sync(&mut others, &joined).await;

        let member = (joined[0].id.as_str(), 2);
        for (partition, offset) in [(0, 7), (3, 9)] {
            let done = others[0].commit(GROUP, member, (TOPIC, partition), offset).await;
            assert_eq!(done.expect("commit"), 0);
        }
        let stale = others[0].commit(GROUP, (member.0, 1), (TOPIC, 0), 1).await;
        assert_eq!(stale.expect("commit"), 22, "an older generation is refused");
        let unknown = others[0].commit(GROUP, NOBODY, (TOPIC, 0), 1).await;
        assert_eq!(unknown.expect("commit"), 25, "the group has members");
        let committed = admin.committed(GROUP).await.expect("fetch");
        assert_eq!(committed, (0, vec![(TOPIC.into(), 0, 7), (TOPIC.into(), 3, 9)]));

        let (error, state, described) = admin.describe_group(GROUP).await.expect("describe");
        assert_eq!((error, state.as_str(), described.len()), (0, "Stable", 3));
        assert!(described.iter().all(|(_, host)| host == "/127.0.0.1"), "{described:?}");
        assert_eq!(admin.delete_group(GROUP).await.expect("delete"), 68, "it has members");
        for id in &ids {
            assert_eq!(admin.leave(GROUP, id).await.expect("leave"), 0);
        }
        let listed = admin.list_groups().await.expect("list");
        assert_eq!(listed, (0, vec![(GROUP.into(), "Empty".into())]));
        assert_eq!(admin.delete_group(GROUP).await.expect("delete"), 0);
        assert_eq!(admin.committed(GROUP).await.expect("fetch"), (0, vec![]));
        assert_eq!(admin.list_groups().await.expect("list"), (0, vec![]));
    });
}

#[test]
fn a_member_that_falls_silent_is_dropped_and_the_others_go_on() {
    run(3, || async {
        // Both are there before the first generation is made.
        let shards = broker_with(1, &["group.initial.rebalance.delay.ms=1000"]).await;
        let mut clients =
            vec![coordinator(&shards, GROUP).await, coordinator(&shards, GROUP).await];
        let ids = [
            clients[0].new_member(GROUP).await.expect("join"),
            clients[1].new_member(GROUP).await.expect("join"),
        ];
        let members = all_join(&mut clients, &ids).await;
        all_sync(&mut clients, &members).await;
        let silent = clients.pop().expect("the second");
        drop(silent);
        let begin = reactor::now();
        while clients[0].heartbeat(GROUP, &members[0]).await.expect("heartbeat") == 0 {
            assert!(reactor::now() - begin < Duration::from_secs(60), "the other never went");
            reactor::sleep(Duration::from_secs(1)).await;
        }
        assert!(reactor::now() - begin >= Duration::from_secs(9), "it had ten seconds");
        let (error, alone) = clients[0].join(GROUP, &ids[0]).await.expect("join");
        assert_eq!((error, alone.members.len()), (0, 1));
    });
}

#[test]
fn a_consumer_group_lives_over_the_wire() {
    run(4, || async {
        let shards = broker(2).await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 4, &[]).await.expect("create"), 0);
        let none = || Some(Vec::new());
        let beat = client
            .consumer_heartbeat(GROUP, ("a", 0), Some(&[TOPIC]), none())
            .await
            .expect("heartbeat");
        assert_eq!(beat.error_code, 0);
        let mut a_epoch = beat.member_epoch;
        let mut a_owns = assigned(&beat).expect("an assignment");
        assert_eq!(a_owns[0].1, [0, 1, 2, 3]);
        let topic = a_owns[0].0;

        // The second member gets what the first one gives up, and no earlier.
        let beat = client
            .consumer_heartbeat(GROUP, ("b", 0), Some(&[TOPIC]), none())
            .await
            .expect("heartbeat");
        assert_eq!(beat.error_code, 0);
        let (mut b_epoch, mut b_owns) = (beat.member_epoch, Vec::new());
        for _ in 0..10 {
            let beat = client
                .consumer_heartbeat(GROUP, ("a", a_epoch), None, Some(a_owns.clone()))
                .await
                .expect("heartbeat");
            assert_eq!(beat.error_code, 0, "{:?}", beat.error_message);
            a_owns = assigned(&beat).unwrap_or(a_owns);
            a_epoch = beat.member_epoch;
            let beat = client
                .consumer_heartbeat(GROUP, ("b", b_epoch), None, Some(b_owns.clone()))
                .await
                .expect("heartbeat");
            assert_eq!(beat.error_code, 0, "{:?}", beat.error_message);
            b_owns = assigned(&beat).unwrap_or(b_owns);
            b_epoch = beat.member_epoch;
            let both: Vec<i32> =
                a_owns.iter().chain(&b_owns).flat_map(|(_, parts)| parts.clone()).collect();
            let distinct: std::collections::BTreeSet<i32> = both.iter().copied().collect();
            assert_eq!(distinct.len(), both.len(), "nothing is owned twice: {a_owns:?} {b_owns:?}");
            // A new assignment is made at most once a second.
            reactor::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!((a_owns[0].1.len(), b_owns[0].1.len()), (2, 2));
        assert_eq!((a_owns[0].0, b_owns[0].0), (topic, topic));

        let done = client.commit(GROUP, ("a", a_epoch), (TOPIC, 0), 5).await.expect("commit");
        assert_eq!(done, 0);
        let old = client.commit(GROUP, ("a", 0), (TOPIC, 0), 6).await.expect("commit");
        assert_eq!(old, 113, "an older epoch is stale");
        let (_, state, _) = client.describe_group(GROUP).await.expect("describe");
        assert_eq!(state, "Dead", "it is no classic group");
        let listed = client.list_groups().await.expect("list");
        assert_eq!(listed.1, [(GROUP.into(), "Stable".into())]);
        for member in ["a", "b"] {
            let left = client.consumer_heartbeat(GROUP, (member, -1), None, None).await;
            assert_eq!(left.expect("leave").error_code, 0);
        }
        assert_eq!(client.committed(GROUP).await.expect("fetch").1, [(TOPIC.into(), 0, 5)]);
        assert_eq!(client.delete_group(GROUP).await.expect("delete"), 0);
    });
}

#[test]
fn a_parked_join_holds_up_its_connection_and_nobody_else() {
    run(5, || async {
        let shards = broker_with(1, &["group.initial.rebalance.delay.ms=3000"]).await;
        let mut client = coordinator(&shards, GROUP).await;
        let id = client.new_member(GROUP).await.expect("join");
        let begin = reactor::now();
        client.send_join(GROUP, &id).await.expect("join");
        let waits = reactor::spawn(async move {
            let first = client.receive().await.expect("the join's answer");
            let at = reactor::now();
            (first, at, client)
        });
        let mut other = connect(&shards, 0).await;
        for _ in 0..10 {
            assert_eq!(other.committed(GROUP).await.expect("fetch").0, 0);
        }
        assert!(reactor::now() - begin < Duration::from_secs(1), "others are served meanwhile");
        let (_, at, _client) = waits.await;
        assert!(at - begin >= Duration::from_secs(3), "the group waits for more members");
    });
}

#[test]
fn parked_joins_hold_no_memory_that_other_requests_wait_for() {
    run(9, || async {
        // Sixteen shards have 4 MiB each for requests; the joins take 8 together.
        let shards = broker_with(16, &["group.initial.rebalance.delay.ms=60000"]).await;
        let mut client = coordinator(&shards, GROUP).await;
        let mut members = Vec::new();
        for _ in 0..16 {
            let mut member = coordinator(&shards, GROUP).await;
            let id = member.new_member(GROUP).await.expect("join");
            member.send_large_join(GROUP, &id, 500_000).await.expect("join");
            members.push(member);
        }
        let begin = reactor::now();
        while client.describe_group(GROUP).await.expect("describe").2.len() < members.len() {
            reactor::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.create_topic(TOPIC, 64, &[]).await.expect("create"), 0);
        let bytes = support::batch(&[&vec![b'v'; 900_000]], reactor::wall_clock_ms());
        let mut produced = 0;
        for partition in 0..64 {
            let (error, _) = client.produce(TOPIC, partition, &bytes).await.expect("produce");
            produced += usize::from(error == 0);
        }
        assert!(produced > 0, "the coordinator's shard leads some");
        assert!(reactor::now() - begin < Duration::from_secs(30), "nobody waited for the joins");
        for member in &mut members {
            member.receive().await.expect("the join is answered");
        }
    });
}

/// It could not be kept, and refusing it late would cost all groups of the partition their
/// coordinator.
#[test]
fn a_join_that_no_record_could_hold_is_refused_and_nobody_else_notices() {
    run(10, || async {
        let shards = broker(1).await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        assert_eq!(client.commit("other", NOBODY, (TOPIC, 0), 3).await.expect("commit"), 0);
        let mut member = coordinator(&shards, GROUP).await;
        let id = member.new_member(GROUP).await.expect("join");
        member.send_large_join(GROUP, &id, 2_000_000).await.expect("join");
        let answer = member.receive().await.expect("an answer");
        // Correlation id, tags, throttle time, then the error.
        assert_eq!(i16::from_be_bytes([answer[9], answer[10]]), -1);
        assert_eq!(client.committed("other").await.expect("fetch").0, 0);
        assert_eq!(client.commit("other", NOBODY, (TOPIC, 0), 4).await.expect("commit"), 0);
    });
}

#[test]
fn the_offsets_of_a_deleted_topic_go_with_it() {
    run(6, || async {
        let shards = broker(1).await;
        let mut client = coordinator(&shards, GROUP).await;
        for topic in [TOPIC, "stays"] {
            assert_eq!(client.create_topic(topic, 1, &[]).await.expect("create"), 0);
            let done = client.commit(GROUP, NOBODY, (topic, 0), 3).await;
            assert_eq!(done.expect("commit"), 0);
        }
        assert_eq!(client.delete_topic(TOPIC).await.expect("delete"), 0);
        assert_eq!(client.committed(GROUP).await.expect("fetch").1, [("stays".into(), 0, 3)]);
    });
}

/// As Apache Kafka answers: what makes no record counts for nothing, and one batch takes a whole
/// commit.
#[test]
fn a_commit_is_as_large_as_its_records_and_no_larger_than_a_batch() {
    const UNKNOWN_SERVER_ERROR: i16 = -1;
    const METADATA_TOO_LARGE: i16 = 12;
    run(9, || async {
        let shards = broker(1).await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 5_000, &[]).await.expect("create"), 0);
        let mut other = coordinator(&shards, "other").await;
        let beat = other.consumer_heartbeat("other", ("a", 0), Some(&[TOPIC]), Some(vec![])).await;
        let id = assigned(&beat.expect("heartbeat")).expect("an assignment")[0].0;
        for (what, expected) in [
            ((200, 4_000), 0),
            ((260, 4_000), UNKNOWN_SERVER_ERROR),
            ((400, 4_097), METADATA_TOO_LARGE),
            // More than a batch holds if each topic had the longest name there is.
            ((5_000, 1), 0),
            ((3, 4_000), 0),
        ] {
            let errors = client.commit_many(GROUP, id, what).await.expect("commit");
            assert_eq!(errors, [expected], "{what:?}");
        }
        let (error, committed) = client.committed(GROUP).await.expect("fetch");
        assert_eq!((error, committed.len()), (0, 5_000));
    });
}

/// Metadata that is too long in bytes may be short enough in Java's characters; its records count.
#[test]
fn a_commit_of_long_characters_costs_nobody_their_coordinator() {
    const UNKNOWN_SERVER_ERROR: i16 = -1;
    run(10, || async {
        let shards = broker(1).await;
        let group = "g".repeat(30_000);
        let mut client = coordinator(&shards, &group).await;
        let partition = |group: &str| wire::hash::coordinator_partition(group, 50);
        let mut names = (0..5_000).map(|number| format!("neighbour-{number}"));
        let neighbour = names.find(|name| partition(name) == partition(&group));
        let neighbour = neighbour.expect("a group beside it");
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        let done = client.commit(&neighbour, NOBODY, (TOPIC, 0), 3).await;
        assert_eq!(done.expect("commit"), 0);
        let metadata = "\u{20ac}".repeat(2_000);
        for (times, expected) in [(10, 0), (500, UNKNOWN_SERVER_ERROR), (10, 0)] {
            let done = client.commit_often(&group, TOPIC, (times, &metadata)).await;
            assert_eq!(done.expect("commit"), [expected], "{times} times");
            let found = client.committed(&neighbour).await.expect("fetch");
            assert_eq!(found, (0, vec![(TOPIC.into(), 0, 3)]), "its coordinator is there");
        }
    });
}

/// What a request names without anything in it is answered too, and what it names twice costs
/// nothing.
#[test]
fn what_a_request_names_bounds_its_answer() {
    const MANY: usize = 200_001;
    run(11, || async {
        let shards = broker(1).await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        let other = "other";
        for group in [GROUP, other] {
            assert_eq!(client.commit(group, NOBODY, (TOPIC, 0), 3).await.expect("commit"), 0);
        }
        let mut asked = vec![GROUP; 1_000];
        asked.push(other);
        let found = client.committed_by(&asked).await.expect("fetch");
        assert_eq!(found, [(GROUP.to_owned(), 1), (other.to_owned(), 1)]);
        let gone = client.delete_groups(&[other, other]).await.expect("delete");
        assert_eq!(gone, [(other.to_owned(), 0)]);
        for api in EMPTY_TOPICS {
            let mut client = connect(&shards, 0).await;
            let answer = send_empty_topics(&mut client, api, MANY).await;
            let has_place = api == ApiKey::OffsetDelete;
            assert_eq!(answer.is_ok(), has_place, "{api:?}: a list of {MANY} empty topics");
            let mut client = connect(&shards, 0).await;
            let answer = send_empty_topics(&mut client, api, 10).await;
            assert!(answer.is_ok(), "{api:?}: ten of them: {answer:?}");
        }
    });
}

const EMPTY_TOPICS: [ApiKey; 7] = [
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::OffsetDelete,
    ApiKey::TxnOffsetCommit,
    ApiKey::ListOffsets,
    ApiKey::DeleteRecords,
    ApiKey::OffsetForLeaderEpoch,
];

/// Sends topics without partitions, and waits for the answer.
async fn send_empty_topics(client: &mut Client, api: ApiKey, count: usize) -> Result<(), Gone> {
    match api {
        ApiKey::OffsetCommit => {
            let topics = vec![m::offset_commit_request::OffsetCommitRequestTopic::default(); count];
            let topics = topics.into();
            let request = m::OffsetCommitRequest { topics, ..Default::default() };
            client.send(api, 9, &request).await?;
        }
        ApiKey::OffsetFetch => {
            let topics = vec![m::offset_fetch_request::OffsetFetchRequestTopics::default(); count];
            let topics = Some(topics.into());
            let group =
                m::offset_fetch_request::OffsetFetchRequestGroup { topics, ..Default::default() };
            let groups = vec![group].into();
            let request = m::OffsetFetchRequest { groups, ..Default::default() };
            client.send(api, 9, &request).await?;
        }
        ApiKey::OffsetDelete => {
            let topics = vec![m::offset_delete_request::OffsetDeleteRequestTopic::default(); count];
            let topics = topics.into();
            let request = m::OffsetDeleteRequest { topics, ..Default::default() };
            client.send(api, 0, &request).await?;
        }
        ApiKey::TxnOffsetCommit => {
            let topic = m::txn_offset_commit_request::TxnOffsetCommitRequestTopic::default();
            let topics = vec![topic; count].into();
            let request = m::TxnOffsetCommitRequest { topics, ..Default::default() };
            client.send(api, 5, &request).await?;
        }
        ApiKey::ListOffsets => {
            let topics = vec![m::list_offsets_request::ListOffsetsTopic::default(); count];
            let topics = topics.into();
            let request = m::ListOffsetsRequest { topics, ..Default::default() };
            client.send(api, 7, &request).await?;
        }
        ApiKey::DeleteRecords => {
            let topics = vec![m::delete_records_request::DeleteRecordsTopic::default(); count];
            let topics = topics.into();
            let request = m::DeleteRecordsRequest { topics, ..Default::default() };
            client.send(api, 2, &request).await?;
        }
        _ => {
            let topic = m::offset_for_leader_epoch_request::OffsetForLeaderTopic::default();
            let topics = vec![topic; count].into();
            let request = m::OffsetForLeaderEpochRequest { topics, ..Default::default() };
            client.send(api, 4, &request).await?;
        }
    }
    client.receive().await.map(drop)
}

/// A coordinator that is still reading its log when a topic goes is told when it has read it.
#[test]
fn the_offsets_of_a_topic_that_goes_while_groups_are_loaded_go_with_it() {
    let groups: Vec<String> = (0..40).map(|number| format!("group-{number}")).collect();
    let mut missed = 0;
    for seed in 0..6 {
        let mut world = World::new(seed);
        let names = groups.clone();
        let outcome = world.run(move || async move {
            let shards = broker(1).await;
            let mut client = coordinator(&shards, GROUP).await;
            for topic in [TOPIC, "stays"] {
                assert_eq!(client.create_topic(topic, 1, &[]).await.expect("create"), 0);
                for group in &names {
                    let done = client.commit(group, NOBODY, (topic, 0), 3).await;
                    assert_eq!(done.expect("commit"), 0);
                }
            }
        });
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
        let names = groups.clone();
        let outcome = world.run(move || async move {
            let shards = broker(1).await;
            let mut client = connect(&shards, 0).await;
            let loading = client.list_groups().await.expect("list").0 != 0;
            assert_eq!(client.delete_topic(TOPIC).await.expect("delete"), 0);
            client.groups_loaded().await.expect("list");
            for group in &names {
                let found = client.committed(group).await.expect("fetch");
                assert_eq!(found, (0, vec![("stays".into(), 0, 3)]), "{group}");
            }
            loading
        });
        let Outcome::Finished(loading) = outcome else { panic!("seed {seed}: {outcome:?}") };
        missed += usize::from(loading);
    }
    assert!(missed > 0, "every coordinator was there before the topic went");
}

/// Groups on a disk that fails are refused with what makes clients come again, those on others are
/// served; when the disk is back, what was acknowledged is there.
#[test]
fn a_failed_disk_stops_its_own_groups_until_it_is_back() {
    const DIRS: [&str; 2] = ["/data", "/more"];
    run(8, || async {
        for dir in DIRS {
            reactor::fs::create_dir_all(Path::new(dir)).await.expect("the disk works");
        }
        let mut shards = support::start_on(1, BASE_PORT, &DIRS, &[]);
        shards.ready().await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 1, &[]).await.expect("create"), 0);
        let groups: Vec<String> = (0..12).map(|number| format!("group-{number}")).collect();
        for group in &groups {
            let done = client.commit(group, NOBODY, (TOPIC, 0), 1).await;
            assert_eq!(done.expect("commit"), 0);
        }
        // A member whose join is parked when the disk fails.
        let parked = client.new_member(GROUP).await.expect("join");
        let mut waiting = coordinator(&shards, GROUP).await;
        waiting.send_join(GROUP, &parked).await.expect("join");

        reactor::sim::with_faults(|faults| faults.disk.broken.insert(DIRS[1].into()));
        let mut stopped = Vec::new();
        let begin = reactor::now();
        while stopped.is_empty() || reactor::now() - begin < Duration::from_secs(10) {
            for group in &groups {
                let error = client.commit(group, NOBODY, (TOPIC, 0), 2).await.expect("commit");
                assert!(error == 0 || error == NOT_COORDINATOR, "{group}: {error}");
                if error != 0 && !stopped.contains(group) {
                    stopped.push(group.clone());
                }
            }
            assert!(reactor::now() - begin < Duration::from_secs(120), "no group noticed");
            reactor::sleep(Duration::from_secs(1)).await;
        }
        assert!(stopped.len() < groups.len(), "groups on the other disk go on");
        waiting.receive().await.expect("the parked join is answered, whichever disk it is on");

        reactor::sim::with_faults(|faults| faults.disk.broken.clear());
        let begin = reactor::now();
        for group in &groups {
            while client.commit(group, NOBODY, (TOPIC, 0), 3).await.expect("commit") != 0 {
                assert!(
                    reactor::now() - begin < Duration::from_secs(120),
                    "{group} never came back"
                );
                // What is there meanwhile is what was acknowledged, or nothing is told.
                let (error, committed) = client.committed(group).await.expect("fetch");
                assert!(error != 0 || committed[0].2 >= 1, "{group}: {committed:?}");
                reactor::sleep(Duration::from_secs(1)).await;
            }
            let found = client.committed(group).await.expect("fetch");
            assert_eq!(found, (0, vec![(TOPIC.into(), 0, 3)]));
        }
    });
}

/// Producers fill the shard's memory for logs, so that decisions of the group have to wait for
/// room.
#[test]
fn commits_wait_for_memory_and_keep_their_order() {
    run(7, || async {
        // Sixteen shards have 8 MiB each for the tails of their logs.
        let shards = broker(16).await;
        let mut client = coordinator(&shards, GROUP).await;
        assert_eq!(client.create_topic(TOPIC, 64, &[]).await.expect("create"), 0);
        let (_, node) = client.coordinator(GROUP).await.expect("find");
        let address = shards.addresses[node as usize % 1000];
        let slow =
            reactor::sim::Delay { min: Duration::from_millis(20), max: Duration::from_millis(200) };
        reactor::sim::with_faults(|faults| faults.disk.latency = slow);
        let value = vec![b'v'; 900_000];
        let bytes = support::batch(&[&value], reactor::wall_clock_ms());
        let stop = Rc::new(std::cell::Cell::new(false));
        let small = support::batch(&[b"v"], reactor::wall_clock_ms());
        let mut led = Vec::new();
        for partition in 0..64 {
            let (error, _) = client.produce(TOPIC, partition, &small).await.expect("produce");
            led.extend((error == 0).then_some(partition));
        }
        assert!(!led.is_empty(), "the coordinator's shard leads some");
        let mut producing = Vec::new();
        for partition in led.into_iter().cycle().take(16) {
            let (bytes, stop) = (bytes.clone(), stop.clone());
            producing.push(reactor::spawn(async move {
                let mut producer = Client::connect(address).await.expect("connect");
                while !stop.get() {
                    // Without an answer to wait for, only memory holds them up.
                    producer.send_unacknowledged(TOPIC, partition, &bytes).await.expect("produce");
                }
            }));
        }
        let mut committing = Vec::new();
        for partition in 0..16 {
            committing.push(reactor::spawn(async move {
                let mut client = Client::connect(address).await.expect("connect");
                for offset in 1..=40 {
                    let done = client.commit(GROUP, NOBODY, (TOPIC, partition), offset).await;
                    assert_eq!(done.expect("commit"), 0);
                    let (_, all) = client.committed(GROUP).await.expect("fetch");
                    let own = all.iter().find(|(_, at, _)| *at == partition).expect("committed");
                    assert_eq!(own.2, offset, "an answer tells of what was committed before");
                }
            }));
        }
        for committing in committing {
            committing.await;
        }
        stop.set(true);
        for producing in producing {
            producing.await;
        }
    });
}

/// What was acknowledged: group, partition, offset.
type Acknowledged = Rc<RefCell<Vec<(String, i32, i64)>>>;

/// Commits for some groups, one after the other, until the disk ends it.
async fn commit_forever(begin: i64, acknowledged: Acknowledged) {
    let shards = broker(2).await;
    let mut clients = Vec::new();
    for number in 0..5 {
        let group = format!("group-{number}");
        clients.push((coordinator(&shards, &group).await, group));
    }
    let created = clients[0].0.create_topic(TOPIC, 2, &[]).await.expect("create");
    assert!(created == 0 || created == 36, "create answered {created}");
    for offset in begin.. {
        for (client, group) in &mut clients {
            let partition = (offset % 2) as i32;
            let done = client.commit(group, NOBODY, (TOPIC, partition), offset).await;
            assert_eq!(done.expect("commit"), 0);
            let mut acknowledged = acknowledged.borrow_mut();
            acknowledged.retain(|(g, p, _)| (g, *p) != (group, partition));
            acknowledged.push((group.clone(), partition, offset));
        }
    }
}

async fn read_commits() -> Vec<(String, i32, i64)> {
    let shards = broker(2).await;
    let mut all = Vec::new();
    for number in 0..5 {
        let group = format!("group-{number}");
        let mut client = coordinator(&shards, &group).await;
        let (error, committed) = client.committed(&group).await.expect("fetch");
        assert_eq!(error, 0);
        all.extend(
            committed.into_iter().map(|(_, partition, offset)| (group.clone(), partition, offset)),
        );
    }
    all
}

#[test]
fn acknowledged_commits_survive_a_crash() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        let acknowledged: Acknowledged = Rc::default();
        for run in 0..3 {
            world.crash_after(700 + 97 * seed + 311 * run, Crash::Process);
            let noted = acknowledged.clone();
            let begin = 1 + 1_000_000 * i64::try_from(run).expect("small");
            let outcome = world.run(move || commit_forever(begin, noted));
            assert!(matches!(outcome, Outcome::Crashed(_)), "seed {seed} run {run}: {outcome:?}");
            let Outcome::Finished(found) = world.run(read_commits) else {
                panic!("seed {seed} run {run}: the broker did not come back");
            };
            for (group, partition, offset) in acknowledged.borrow().iter() {
                let kept = found.iter().find(|(g, p, _)| (g, p) == (group, partition));
                let kept = kept.map(|(_, _, kept)| *kept);
                // One that was on its way when the crash came may be there as well.
                let is_there = kept.is_some_and(|kept| kept >= *offset);
                assert!(is_there, "seed {seed} run {run}: {group} {partition} {offset}: {kept:?}");
            }
        }
        assert!(!acknowledged.borrow().is_empty(), "seed {seed}: nothing was committed");
    }
}

#[test]
fn members_and_generation_are_there_after_a_crash() {
    let mut world = World::new(11);
    let kept: Rc<RefCell<Option<Member>>> = Rc::default();
    let noted = kept.clone();
    let outcome = world.run(move || async move {
        let shards = broker(1).await;
        let mut clients = [coordinator(&shards, GROUP).await];
        let ids = [clients[0].new_member(GROUP).await.expect("join")];
        let mut members = all_join(&mut clients, &ids).await;
        all_sync(&mut clients, &members).await;
        noted.replace(members.pop());
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
    let outcome = world.run(move || async move {
        let shards = broker(1).await;
        let mut client = coordinator(&shards, GROUP).await;
        let member = kept.take().expect("noted above");
        assert_eq!(client.heartbeat(GROUP, &member).await.expect("heartbeat"), 0);
        let (_, state, members) = client.describe_group(GROUP).await.expect("describe");
        assert_eq!((state.as_str(), members.len()), ("Stable", 1));
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}
