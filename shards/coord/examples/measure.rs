//! What a coordinator costs: loading, memory, heartbeats, commits, a large rebalance.
//!
//! ```text
//! cargo run --release -p corelane-coord --example measure
//! ```

use std::fmt::Debug;
use std::time::{Duration, Instant};

use coord::{
    Config, Context, Coordinator, Decision, Record, Reply, Request, Token, TopicInfo, Topics,
};
use wire::messages as m;
use wire::{Message, Uuid, Writer};

struct OneTopic {
    partitions: i32,
}

const TOPIC: Uuid = Uuid([7; 16]);

impl Topics for OneTopic {
    fn by_name(&self, name: &str) -> Option<TopicInfo> {
        let info = TopicInfo { id: TOPIC, partitions: self.partitions, racks: Vec::new() };
        (name == "topic").then_some(info)
    }
    fn name_of(&self, id: Uuid) -> Option<String> {
        (id == TOPIC).then(|| "topic".into())
    }
    fn id_of(&self, name: &str) -> Option<Uuid> {
        (name == "topic").then_some(TOPIC)
    }
    fn each_name(&self, call: &mut dyn FnMut(&str)) {
        call("topic");
    }
    fn version(&self) -> i64 {
        1
    }
}

struct Bench {
    coordinator: Coordinator,
    topics: OneTopic,
    now_ms: i64,
    tokens: u64,
}

impl Bench {
    fn new(partitions: i32) -> Self {
        let mut coordinator = Coordinator::new(Config::default());
        coordinator.loaded(1_000_000, 1_000_000);
        Bench { coordinator, topics: OneTopic { partitions }, now_ms: 1_000_000, tokens: 0 }
    }

    fn send(&mut self, request: Request<'_, '_>, version: i16) -> Decision {
        self.tokens += 1;
        let mut id = [0; 16];
        id[8..].copy_from_slice(&self.tokens.to_be_bytes());
        let ctx = Context {
            now_ms: self.now_ms,
            wall_ms: self.now_ms,
            token: Token(self.tokens),
            version,
            client_id: "client",
            client_host: "/127.0.0.1",
            fresh_id: Uuid(id),
            topics: &self.topics,
        };
        self.coordinator.handle(request, &ctx)
    }
}

fn main() {
    load();
    commits();
    classic_rebalance(100, 1_000);
    consumer_rebalance(100, 1_000);
    quiet_heartbeats(1_000);
}

fn say(what: &str, took: Duration, times: usize) {
    let each = took.as_secs_f64() * 1e6 / times as f64;
    println!("{what}: {:.1} ms, {each:.2} us each", took.as_secs_f64() * 1e3);
}

fn good<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

/// 10,000 groups: their last generation, now empty, and four offsets each.
fn load() {
    const GROUPS: usize = 10_000;
    let mut log = Vec::new();
    for at in 0..GROUPS {
        let group = format!("consumer-group-{at}");
        let value = m::GroupMetadataValue {
            protocol_type: "consumer".into(),
            generation: 7,
            protocol: None,
            leader: None,
            current_state_timestamp: 1_000,
            members: Default::default(),
        };
        let key = m::GroupMetadataKey { group: group.clone().into() };
        log.push(Record::GroupMetadata(key, Some(value)));
        for partition in 0..4 {
            let key = m::OffsetCommitKey {
                group: group.clone().into(),
                topic: format!("topic-{}", at % 100).into(),
                partition,
            };
            let value = m::OffsetCommitValue {
                offset: 1_000_000,
                leader_epoch: 3,
                commit_timestamp: 1_000,
                topic_id: TOPIC,
                ..Default::default()
            };
            log.push(Record::OffsetCommit(key, Some(value)));
        }
    }
    let log: Vec<_> = log.iter().map(|record| good(record.to_bytes())).collect();
    let read = |log: &[(Vec<u8>, Option<Vec<u8>>)]| {
        let mut coordinator = Coordinator::new(Config::default());
        for (key, value) in log {
            good(coordinator.replay(key, value.as_deref(), None));
        }
        coordinator.loaded(1_000_000, 1_000_000);
        coordinator
    };
    let start = Instant::now();
    let coordinator = read(&log);
    say("load 10,000 groups with 40,000 offsets, per record", start.elapsed(), log.len());
    let held = allocation_counter::measure(|| std::mem::forget(read(&log)));
    println!(
        "memory: {} bytes an idle group with four offsets",
        held.bytes_current / GROUPS as i64
    );
    assert_eq!(coordinator.group_count(), GROUPS);
}

fn commits() {
    const COMMITS: usize = 100_000;
    let mut bench = Bench::new(100);
    let partition = m::offset_commit_request::OffsetCommitRequestPartition {
        partition_index: 5,
        committed_offset: 77,
        committed_leader_epoch: -1,
        committed_metadata: Some("".into()),
    };
    let topic = m::offset_commit_request::OffsetCommitRequestTopic {
        name: "topic".into(),
        topic_id: Uuid::ZERO,
        partitions: vec![partition].into(),
    };
    let request = m::OffsetCommitRequest {
        group_id: "group".into(),
        generation_id_or_member_epoch: -1,
        member_id: "".into(),
        group_instance_id: None,
        retention_time_ms: -1,
        topics: vec![topic].into(),
    };
    let start = Instant::now();
    for _ in 0..COMMITS {
        let decision = bench.send(Request::OffsetCommit(&request), 9);
        for record in &decision.records {
            std::hint::black_box(good(record.to_bytes()));
        }
    }
    say("commit one offset, with its record's bytes", start.elapsed(), COMMITS);
}

fn subscription() -> Vec<u8> {
    let subscription = m::ConsumerProtocolSubscription {
        topics: vec!["topic".into()].into(),
        ..Default::default()
    };
    let mut writer = Writer::new();
    writer.i16(1);
    good(subscription.encode(&mut writer, 1));
    writer.finish().bytes.to_vec()
}

/// All members join, the leader assigns, all are told.
fn classic_rebalance(members: usize, partitions: i32) {
    let mut bench = Bench::new(partitions);
    let protocol = m::join_group_request::JoinGroupRequestProtocol {
        name: "range".into(),
        metadata: subscription().into(),
    };
    let request = m::JoinGroupRequest {
        group_id: "group".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: "".into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![protocol].into(),
        reason: None,
    };
    let start = Instant::now();
    for _ in 0..members {
        bench.send(Request::JoinGroup(&request), 3);
    }
    let mut replies = Vec::new();
    while replies.is_empty() {
        bench.now_ms = bench.coordinator.next_deadline().unwrap_or(bench.now_ms);
        replies = bench.coordinator.on_time(bench.now_ms, bench.now_ms, &bench.topics).replies;
    }
    let joined: Vec<_> = replies
        .into_iter()
        .filter_map(|(_, reply)| match reply {
            Reply::JoinGroup(reply) => Some(reply),
            _ => None,
        })
        .collect();
    assert_eq!(joined.len(), members);
    let assignment = vec![1; 4 * partitions as usize / members];
    let assignments = joined.iter().map(|it| m::sync_group_request::SyncGroupRequestAssignment {
        member_id: it.member_id.clone(),
        assignment: assignment.clone().into(),
    });
    let assignments: Vec<_> = assignments.collect();
    let mut answers = 0;
    for member in &joined {
        let leads = member.leader == member.member_id;
        let request = m::SyncGroupRequest {
            group_id: "group".into(),
            generation_id: member.generation_id,
            member_id: member.member_id.clone(),
            group_instance_id: None,
            assignments: if leads { assignments.clone().into() } else { Default::default() },
            ..Default::default()
        };
        answers += bench.send(Request::SyncGroup(&request), 3).replies.len();
    }
    assert_eq!(answers, members);
    say(
        "classic rebalance, 100 members and 1,000 partitions, per member",
        start.elapsed(),
        members,
    );
}

struct Beats {
    ids: Vec<String>,
    epochs: Vec<i32>,
    owned: Vec<Vec<i32>>,
}

/// One round of heartbeats; whether anything changed.
fn round(bench: &mut Bench, beats: &mut Beats) -> bool {
    let mut changed = false;
    for at in 0..beats.ids.len() {
        let joins = beats.epochs[at] == 0;
        let owned = m::consumer_group_heartbeat_request::TopicPartitions {
            topic_id: TOPIC,
            partitions: beats.owned[at].clone().into(),
        };
        let owned = if beats.owned[at].is_empty() { vec![] } else { vec![owned] };
        let request = m::ConsumerGroupHeartbeatRequest {
            group_id: "group".into(),
            member_id: beats.ids[at].clone().into(),
            member_epoch: beats.epochs[at],
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec!["topic".into()].into()),
            topic_partitions: Some(owned.into()),
            instance_id: None,
            rack_id: None,
            subscribed_topic_regex: None,
            server_assignor: None,
        };
        let decision = bench.send(Request::ConsumerGroupHeartbeat(&request), 1);
        let Some((_, Reply::ConsumerGroupHeartbeat(reply))) = decision.replies.into_iter().next()
        else {
            panic!("no answer");
        };
        assert_eq!(reply.error_code, 0, "{reply:?}");
        changed |= reply.member_epoch != beats.epochs[at] || reply.assignment.is_some();
        beats.epochs[at] = reply.member_epoch;
        if let Some(assignment) = reply.assignment {
            let parts = assignment.topic_partitions.iter().flat_map(|it| it.partitions.to_vec());
            beats.owned[at] = parts.collect();
        }
    }
    changed
}

/// All members join one after the other, until all have what they should.
fn consumer_rebalance(members: usize, partitions: i32) {
    let mut bench = Bench::new(partitions);
    let mut beats = Beats {
        ids: (0..members).map(|at| format!("member-{at}")).collect(),
        epochs: vec![0; members],
        owned: vec![Vec::new(); members],
    };
    let start = Instant::now();
    let mut rounds = 0;
    while round(&mut bench, &mut beats) {
        bench.now_ms += 5_000;
        rounds += 1;
    }
    say(
        "consumer rebalance, 100 members and 1,000 partitions, per member",
        start.elapsed(),
        members,
    );
    println!("  in {rounds} rounds of heartbeats");
    assert!(beats.owned.iter().all(|owned| owned.len() == partitions as usize / members));
}

fn quiet_heartbeats(members: usize) {
    const ROUNDS: usize = 20;
    let mut bench = Bench::new(1_000);
    let mut beats = Beats {
        ids: (0..members).map(|at| format!("member-{at}")).collect(),
        epochs: vec![0; members],
        owned: vec![Vec::new(); members],
    };
    while round(&mut bench, &mut beats) {
        bench.now_ms += 5_000;
    }
    let start = Instant::now();
    for _ in 0..ROUNDS {
        bench.now_ms += 5_000;
        round(&mut bench, &mut beats);
    }
    say("quiet consumer heartbeat in a group of 1,000", start.elapsed(), ROUNDS * members);
}
