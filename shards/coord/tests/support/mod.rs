//! A coordinator with a log, a clock and topics of its own, and requests that are short to write.

// Each test file uses its own part of this.
#![allow(dead_code)]
// A test stops at the first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod kafka;

use std::collections::{BTreeMap, HashMap};

use coord::{
    Config, Context, Coordinator, Decision, Record, Reply, Request, Token, TopicInfo, Topics,
};
use wire::messages as m;
use wire::{ErrorCode, Message, Uuid, Writer};

pub struct TestTopics {
    pub topics: BTreeMap<String, TopicInfo>,
    pub version: i64,
}

impl TestTopics {
    pub fn set(&mut self, name: &str, partitions: i32) -> Uuid {
        let hash = wire::hash::java_string_hash(name).to_be_bytes();
        let mut id = [7; 16];
        id[..4].copy_from_slice(&hash);
        let info = TopicInfo { id: Uuid(id), partitions, racks: Vec::new() };
        self.topics.insert(name.into(), info);
        self.version += 1;
        Uuid(id)
    }
}

impl Topics for TestTopics {
    fn by_name(&self, name: &str) -> Option<TopicInfo> {
        self.topics.get(name).cloned()
    }
    fn name_of(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, info)| info.id == id).map(|(name, _)| name.clone())
    }
    fn id_of(&self, name: &str) -> Option<Uuid> {
        self.topics.get(name).map(|info| info.id)
    }
    fn each_name(&self, call: &mut dyn FnMut(&str)) {
        self.topics.keys().for_each(|name| call(name));
    }
    fn version(&self) -> i64 {
        self.version
    }
}

/// Key, value, and the producer of a transactional batch. A marker has no key, and whether it
/// commits as its value.
pub type LogEntry = (Vec<u8>, Option<Vec<u8>>, Option<i64>);

pub struct Rig {
    pub coordinator: Coordinator,
    pub config: Config,
    pub topics: TestTopics,
    pub log: Vec<LogEntry>,
    pub now_ms: i64,
    /// How far the wall clock is ahead.
    pub wall_ahead_ms: i64,
    pub replies: HashMap<Token, Reply>,
    versions: HashMap<Token, i16>,
    tokens: u64,
    /// Most records that a decision wanted to be together.
    pub largest_piece: usize,
    /// The next decision is lost with the coordinator: neither appended nor answered.
    pub lose_next: bool,
    /// A broker that is asked instead of the coordinator.
    pub kafka: Option<kafka::Kafka>,
}

pub const GROUP: &str = "g";

impl Rig {
    pub fn new(config: Config) -> Self {
        let mut topics = TestTopics { topics: BTreeMap::new(), version: 0 };
        topics.set("t", 4);
        topics.set("u", 2);
        let mut coordinator = Coordinator::new(config.clone());
        assert!(coordinator.loaded(1_000, 1_000).records.is_empty());
        Rig {
            coordinator,
            config,
            topics,
            log: Vec::new(),
            now_ms: 1_000,
            wall_ahead_ms: 0,
            replies: HashMap::new(),
            versions: HashMap::new(),
            tokens: 0,
            largest_piece: 0,
            lose_next: false,
            kafka: None,
        }
    }

    /// The same, or a broker in its place if `COORD_KAFKA` names one: for lives that neither turn
    /// the clock nor restart anything.
    pub fn or_broker(config: Config) -> Self {
        let mut rig = Rig::new(config);
        if let Ok(broker) = std::env::var("COORD_KAFKA") {
            let mut kafka = kafka::Kafka::new(&broker);
            kafka.warm_up();
            for (name, id) in kafka.topic_ids() {
                if let Some(info) = rig.topics.topics.get_mut(&name) {
                    info.id = id;
                }
            }
            rig.kafka = Some(kafka);
        }
        rig
    }

    /// A message without the name that a broker knows the group by.
    pub fn plain(&self, message: &str) -> String {
        match &self.kafka {
            Some(kafka) => message.replace(kafka.group(), GROUP),
            None => message.into(),
        }
    }

    pub fn fresh_token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    pub fn take_in(&mut self, decision: Decision) {
        if std::mem::take(&mut self.lose_next) {
            return self.reload();
        }
        let producer = decision.producer.map(|it| it.id);
        let ends = decision.cuts.iter().copied().chain([decision.records.len()]);
        let mut begin = 0;
        for end in ends {
            assert!((begin..=decision.records.len()).contains(&end), "{:?}", decision.cuts);
            self.largest_piece = self.largest_piece.max(end - begin);
            begin = end;
        }
        for record in &decision.records {
            let (key, value) = record.to_bytes().unwrap();
            let back = Record::read(&key, value.as_deref()).unwrap().unwrap();
            assert_eq!(&back, record, "a record reads as it was written");
            self.log.push((key, value, producer));
        }
        for (token, reply) in decision.replies {
            let version = self.versions.remove(&token).expect("a request that waits");
            encodes(&reply, version);
            assert!(self.replies.insert(token, reply).is_none(), "answered twice");
        }
    }

    pub fn send(&mut self, request: Request<'_, '_>, version: i16) -> Token {
        self.send_as(request, version, "client")
    }

    pub fn send_as(&mut self, request: Request<'_, '_>, version: i16, client: &str) -> Token {
        let token = self.fresh_token();
        if let Some(kafka) = &mut self.kafka {
            if let Some(reply) = kafka.send(token, request, version) {
                self.replies.insert(token, reply);
            }
            return token;
        }
        self.versions.insert(token, version);
        let mut id = [0; 16];
        id[8..].copy_from_slice(&token.0.to_be_bytes());
        let ctx = Context {
            now_ms: self.now_ms,
            wall_ms: self.now_ms + self.wall_ahead_ms,
            token,
            version,
            client_id: client,
            client_host: "/127.0.0.1",
            fresh_id: Uuid(id),
            topics: &self.topics,
        };
        let decision = self.coordinator.handle(request, &ctx);
        self.take_in(decision);
        token
    }

    /// The answer to a request that must have one.
    pub fn reply(&mut self, token: Token) -> Reply {
        if let (Some(kafka), false) = (&mut self.kafka, self.replies.contains_key(&token)) {
            return kafka.wait(token, std::time::Duration::from_secs(30)).expect("an answer");
        }
        self.replies.remove(&token).expect("an answer")
    }

    /// Lets time pass, and what falls due happen when it does.
    pub fn pass(&mut self, ms: i64) {
        if self.kafka.is_some() {
            // There time passes by itself, while an answer is waited for.
            return;
        }
        let end = self.now_ms + ms;
        let mut rounds = 0;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| *due <= end) {
            self.now_ms = self.now_ms.max(due);
            let decision = self.on_time();
            self.take_in(decision);
            rounds += 1;
            assert!(rounds < 100_000, "deadlines that do not end");
        }
        self.now_ms = end;
    }

    /// One step of what has fallen due.
    pub fn on_time(&mut self) -> Decision {
        let wall_ms = self.now_ms + self.wall_ahead_ms;
        self.coordinator.on_time(self.now_ms, wall_ms, &self.topics)
    }

    /// The coordinator dies; another one reads the log.
    pub fn reload(&mut self) {
        if self.kafka.is_some() {
            return;
        }
        self.coordinator = self.replayed();
        let decision = self.coordinator.loaded(self.now_ms, self.now_ms + self.wall_ahead_ms);
        self.take_in(decision);
        self.replies.clear();
        self.versions.clear();
    }

    /// A coordinator that has read the log.
    pub fn replayed(&self) -> Coordinator {
        let mut fresh = Coordinator::new(self.config.clone());
        for (key, value, producer) in &self.log {
            match producer {
                Some(producer) if key.is_empty() => {
                    fresh.replay_marker(*producer, value.as_deref() == Some(&[1]));
                }
                _ => fresh.replay(key, value.as_deref(), *producer).unwrap(),
            }
        }
        fresh
    }

    /// Whether a request has no answer yet.
    pub fn waits(&self, token: Token) -> bool {
        self.versions.contains_key(&token)
    }

    pub fn marker(&mut self, producer: i64, commit: bool) {
        self.coordinator.replay_marker(producer, commit);
        self.log.push((Vec::new(), Some(vec![u8::from(commit)]), Some(producer)));
    }

    pub fn join(&mut self, join: &Join<'_>) -> Token {
        let protocols = join.protocols.iter().map(|(name, topics)| {
            m::join_group_request::JoinGroupRequestProtocol {
                name: (*name).into(),
                metadata: subscription(topics).into(),
            }
        });
        let request = m::JoinGroupRequest {
            group_id: join.group.into(),
            session_timeout_ms: join.session_ms,
            rebalance_timeout_ms: join.rebalance_ms,
            member_id: join.member.into(),
            group_instance_id: join.instance.map(Into::into),
            protocol_type: join.protocol_type.into(),
            protocols: protocols.collect(),
            reason: None,
        };
        self.send(Request::JoinGroup(&request), join.version)
    }

    /// The answer to a join that gets one at once.
    pub fn joined(&mut self, join: &Join<'_>) -> m::JoinGroupResponse<'static> {
        let token = self.join(join);
        self.join_reply(token)
    }

    pub fn join_reply(&mut self, token: Token) -> m::JoinGroupResponse<'static> {
        match self.reply(token) {
            Reply::JoinGroup(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn sync(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        parts: &[(&str, &[u8])],
    ) -> Token {
        let assignments =
            parts.iter().map(|(member, part)| m::sync_group_request::SyncGroupRequestAssignment {
                member_id: (*member).into(),
                assignment: (*part).into(),
            });
        let request = m::SyncGroupRequest {
            group_id: GROUP.into(),
            generation_id: generation,
            member_id: member.into(),
            group_instance_id: instance.map(Into::into),
            assignments: assignments.collect(),
            ..Default::default()
        };
        self.send(Request::SyncGroup(&request), 4)
    }

    pub fn sync_reply(&mut self, token: Token) -> m::SyncGroupResponse<'static> {
        match self.reply(token) {
            Reply::SyncGroup(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn heartbeat(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> ErrorCode {
        let token = self.send_heartbeat(member, instance, generation);
        match self.reply(token) {
            Reply::Heartbeat(reply) => code(reply.error_code),
            other => panic!("{other:?}"),
        }
    }

    pub fn send_heartbeat(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Token {
        let request = m::HeartbeatRequest {
            group_id: GROUP.into(),
            generation_id: generation,
            member_id: member.into(),
            group_instance_id: instance.map(Into::into),
        };
        self.send(Request::Heartbeat(&request), 4)
    }

    /// Leaves as one of a batch of one.
    pub fn leave(&mut self, member: &str, instance: Option<&str>) -> ErrorCode {
        let token = self.send_leave(member, instance);
        match self.reply(token) {
            Reply::LeaveGroup(reply) => match reply.members.first() {
                Some(member) => code(member.error_code),
                None => code(reply.error_code),
            },
            other => panic!("{other:?}"),
        }
    }

    pub fn send_leave(&mut self, member: &str, instance: Option<&str>) -> Token {
        let identity = m::leave_group_request::MemberIdentity {
            member_id: member.into(),
            group_instance_id: instance.map(Into::into),
            reason: None,
        };
        let request = m::LeaveGroupRequest {
            group_id: GROUP.into(),
            members: vec![identity].into(),
            ..Default::default()
        };
        self.send(Request::LeaveGroup(&request), 5)
    }

    pub fn commit(&mut self, commit: &Commit<'_>) -> ErrorCode {
        let token = self.send_commit(commit);
        match self.reply(token) {
            Reply::OffsetCommit(reply) => commit_code(&reply),
            other => panic!("{other:?}"),
        }
    }

    pub fn send_commit(&mut self, commit: &Commit<'_>) -> Token {
        self.send_commit_often(commit, 1)
    }

    /// Commits the same several times in one request; returns all codes.
    pub fn commit_often(&mut self, commit: &Commit<'_>, times: usize) -> Vec<ErrorCode> {
        let token = self.send_commit_often(commit, times);
        let Reply::OffsetCommit(reply) = self.reply(token) else { panic!("not a commit") };
        let partitions = reply.topics.iter().flat_map(|topic| topic.partitions.to_vec());
        partitions.map(|partition| code(partition.error_code)).collect()
    }

    /// Commits offset 5 of partitions of these topics in one request; returns all codes.
    pub fn commit_topics(
        &mut self,
        member: &str,
        generation: i32,
        parts: &[(&str, i32)],
    ) -> Vec<ErrorCode> {
        let topics = parts.iter().map(|(topic, partition)| {
            let partition = m::offset_commit_request::OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: 5,
                committed_leader_epoch: -1,
                committed_metadata: None,
            };
            m::offset_commit_request::OffsetCommitRequestTopic {
                name: (*topic).into(),
                topic_id: Uuid::ZERO,
                partitions: vec![partition].into(),
            }
        });
        let request = m::OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: generation,
            member_id: member.into(),
            retention_time_ms: -1,
            topics: topics.collect(),
            ..Default::default()
        };
        let token = self.send(Request::OffsetCommit(&request), 9);
        let Reply::OffsetCommit(reply) = self.reply(token) else { panic!("not a commit") };
        let partitions = reply.topics.iter().flat_map(|topic| topic.partitions.to_vec());
        partitions.map(|partition| code(partition.error_code)).collect()
    }

    fn send_commit_often(&mut self, commit: &Commit<'_>, times: usize) -> Token {
        let partition = m::offset_commit_request::OffsetCommitRequestPartition {
            partition_index: commit.partition,
            committed_offset: commit.offset,
            committed_leader_epoch: -1,
            committed_metadata: Some(commit.metadata.into()),
        };
        let topic = m::offset_commit_request::OffsetCommitRequestTopic {
            name: commit.topic.into(),
            topic_id: commit.topic_id,
            partitions: vec![partition; times].into(),
        };
        let request = m::OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: commit.generation,
            member_id: commit.member.into(),
            group_instance_id: commit.instance.map(Into::into),
            retention_time_ms: -1,
            topics: vec![topic].into(),
        };
        self.send(Request::OffsetCommit(&request), commit.version)
    }

    pub fn txn_commit(&mut self, commit: &TxnCommit<'_>) -> ErrorCode {
        self.txn_commit_often(commit, 1)[0]
    }

    pub fn txn_commit_often(&mut self, commit: &TxnCommit<'_>, times: usize) -> Vec<ErrorCode> {
        let token = self.send_txn_commit(commit, times);
        let Reply::TxnOffsetCommit(reply) = self.reply(token) else { panic!("not a commit") };
        let partitions = reply.topics.iter().flat_map(|topic| topic.partitions.to_vec());
        partitions.map(|partition| code(partition.error_code)).collect()
    }

    pub fn send_txn_commit(&mut self, commit: &TxnCommit<'_>, times: usize) -> Token {
        let partition = m::txn_offset_commit_request::TxnOffsetCommitRequestPartition {
            partition_index: commit.partition,
            committed_offset: commit.offset,
            committed_leader_epoch: -1,
            committed_metadata: Some(commit.metadata.into()),
        };
        let topic = m::txn_offset_commit_request::TxnOffsetCommitRequestTopic {
            name: commit.topic.into(),
            topic_id: commit.topic_id,
            partitions: vec![partition; times].into(),
        };
        let request = m::TxnOffsetCommitRequest {
            transactional_id: "x".into(),
            group_id: GROUP.into(),
            producer_id: commit.producer,
            producer_epoch: 0,
            generation_id_or_member_epoch: commit.generation,
            member_id: commit.member.into(),
            topics: vec![topic].into(),
            ..Default::default()
        };
        self.send(Request::TxnOffsetCommit(&request), commit.version)
    }

    /// An offset that stands in the log, committed when time began.
    pub fn replay_commit(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        offset: i64,
        topic_id: Uuid,
    ) {
        let key = m::OffsetCommitKey {
            group: group.to_owned().into(),
            topic: topic.to_owned().into(),
            partition,
        };
        let value =
            m::OffsetCommitValue { offset, commit_timestamp: 1, topic_id, ..Default::default() };
        let (key, value) = Record::OffsetCommit(key, Some(value)).to_bytes().unwrap();
        self.coordinator.replay(&key, value.as_deref(), None).unwrap();
        self.log.push((key, value, None));
    }

    /// The topic is gone, and the coordinator hears of it.
    pub fn delete_topic(&mut self, name: &str) {
        let info = self.topics.topics.remove(name).unwrap();
        self.topics.version += 1;
        self.coordinator.topics_deleted(&[(name.into(), info.id)]);
    }

    /// The committed offset, or the error, of one partition.
    pub fn fetch(&mut self, topic: &str, partition: i32, stable: bool) -> (i64, ErrorCode) {
        let topics = m::offset_fetch_request::OffsetFetchRequestTopics {
            name: topic.into(),
            topic_id: Uuid::ZERO,
            partition_indexes: vec![partition].into(),
        };
        let group = m::offset_fetch_request::OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![topics].into()),
        };
        let token = self.send(Request::OffsetFetch { group: &group, require_stable: stable }, 9);
        match self.reply(token) {
            Reply::OffsetFetch(reply) if reply.error_code != 0 => (-1, code(reply.error_code)),
            Reply::OffsetFetch(reply) => {
                let partition = reply.topics.first().unwrap().partitions.first().unwrap();
                (partition.committed_offset, code(partition.error_code))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The same by the topic's id, in the version that has no names any more.
    pub fn fetch_by_id(&mut self, topic_id: Uuid, partition: i32) -> (i64, ErrorCode) {
        let topics = m::offset_fetch_request::OffsetFetchRequestTopics {
            name: "".into(),
            topic_id,
            partition_indexes: vec![partition].into(),
        };
        let group = m::offset_fetch_request::OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![topics].into()),
        };
        let token = self.send(Request::OffsetFetch { group: &group, require_stable: false }, 10);
        let Reply::OffsetFetch(reply) = self.reply(token) else { panic!("not a fetch") };
        let partition = reply.topics.first().unwrap().partitions.first().unwrap();
        (partition.committed_offset, code(partition.error_code))
    }

    pub fn delete_group(&mut self) -> ErrorCode {
        let token = self.send(Request::DeleteGroup(GROUP), 2);
        match self.reply(token) {
            Reply::DeleteGroup(reply) => code(reply.error_code),
            other => panic!("{other:?}"),
        }
    }

    pub fn delete_offset(&mut self, topic: &str) -> ErrorCode {
        let partition =
            m::offset_delete_request::OffsetDeleteRequestPartition { partition_index: 0 };
        let topic = m::offset_delete_request::OffsetDeleteRequestTopic {
            name: topic.into(),
            partitions: vec![partition].into(),
        };
        let request = m::OffsetDeleteRequest { group_id: GROUP.into(), topics: vec![topic].into() };
        let token = self.send(Request::OffsetDelete(&request), 0);
        match self.reply(token) {
            Reply::OffsetDelete(reply) if reply.error_code != 0 => code(reply.error_code),
            Reply::OffsetDelete(reply) => {
                code(reply.topics.first().unwrap().partitions.first().unwrap().error_code)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The group as DescribeGroups shows it.
    pub fn described(&mut self) -> m::describe_groups_response::DescribedGroup<'static> {
        let token = self.send(Request::DescribeGroup(GROUP), 6);
        match self.reply(token) {
            Reply::DescribeGroup(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&mut self) -> String {
        self.described().group_state.into_owned()
    }

    pub fn beat(&mut self, beat: &Beat<'_>) -> m::ConsumerGroupHeartbeatResponse<'static> {
        let token = self.send_beat(beat);
        match self.reply(token) {
            Reply::ConsumerGroupHeartbeat(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn send_beat(&mut self, beat: &Beat<'_>) -> Token {
        let request = m::ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: beat.member.into(),
            member_epoch: beat.epoch,
            instance_id: beat.instance.map(Into::into),
            rack_id: beat.rack.map(Into::into),
            rebalance_timeout_ms: beat.rebalance_ms,
            subscribed_topic_names: beat
                .topics
                .map(|topics| topics.iter().map(|topic| (*topic).into()).collect()),
            subscribed_topic_regex: beat.regex.map(Into::into),
            server_assignor: beat.assignor.map(Into::into),
            topic_partitions: beat.owned.map(|owned| {
                owned
                    .iter()
                    .map(|(id, parts)| m::consumer_group_heartbeat_request::TopicPartitions {
                        topic_id: *id,
                        partitions: parts.clone().into(),
                    })
                    .collect()
            }),
        };
        self.send(Request::ConsumerGroupHeartbeat(&request), 1)
    }

    /// The group as ConsumerGroupDescribe shows it.
    pub fn consumers(&mut self) -> m::consumer_group_describe_response::DescribedGroup<'static> {
        let token = self.send(Request::ConsumerGroupDescribe(GROUP), 1);
        match self.reply(token) {
            Reply::ConsumerGroupDescribe(reply) => reply,
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Join<'a> {
    pub group: &'a str,
    pub member: &'a str,
    pub instance: Option<&'a str>,
    pub protocol_type: &'a str,
    /// Name, and the topics subscribed to in it.
    pub protocols: &'a [(&'a str, &'a [&'a str])],
    pub session_ms: i32,
    pub rebalance_ms: i32,
    pub version: i16,
}

pub const JOIN: Join<'static> = Join {
    group: GROUP,
    member: "",
    instance: None,
    protocol_type: "consumer",
    protocols: &[("range", &["t"])],
    session_ms: 10_000,
    rebalance_ms: 60_000,
    version: 9,
};

#[derive(Clone, Debug)]
pub struct Commit<'a> {
    pub member: &'a str,
    pub instance: Option<&'a str>,
    pub generation: i32,
    pub topic: &'a str,
    pub topic_id: Uuid,
    pub partition: i32,
    pub offset: i64,
    pub metadata: &'a str,
    pub version: i16,
}

pub const COMMIT: Commit<'static> = Commit {
    member: "",
    instance: None,
    generation: -1,
    topic: "t",
    topic_id: Uuid::ZERO,
    partition: 0,
    offset: 5,
    metadata: "",
    version: 9,
};

/// Offsets of a transaction.
#[derive(Clone, Debug)]
pub struct TxnCommit<'a> {
    pub producer: i64,
    pub member: &'a str,
    pub generation: i32,
    pub topic: &'a str,
    pub topic_id: Uuid,
    pub partition: i32,
    pub offset: i64,
    pub metadata: &'a str,
    pub version: i16,
}

pub const TXN_COMMIT: TxnCommit<'static> = TxnCommit {
    producer: 1,
    member: "",
    generation: -1,
    topic: "t",
    topic_id: Uuid::ZERO,
    partition: 0,
    offset: 5,
    metadata: "",
    version: 5,
};

#[derive(Clone, Debug)]
pub struct Beat<'a> {
    pub member: &'a str,
    pub epoch: i32,
    pub instance: Option<&'a str>,
    pub rack: Option<&'a str>,
    pub rebalance_ms: i32,
    pub topics: Option<&'a [&'a str]>,
    pub regex: Option<&'a str>,
    pub assignor: Option<&'a str>,
    pub owned: Option<&'a [(Uuid, Vec<i32>)]>,
}

/// A heartbeat that changes nothing.
pub const BEAT: Beat<'static> = Beat {
    member: "m1",
    epoch: 0,
    instance: None,
    rack: None,
    rebalance_ms: -1,
    topics: None,
    regex: None,
    assignor: None,
    owned: None,
};

/// A heartbeat that joins.
pub const FIRST_BEAT: Beat<'static> =
    Beat { rebalance_ms: 60_000, topics: Some(&["t"]), owned: Some(&[]), ..BEAT };

/// The code of the first partition.
pub fn commit_code(reply: &m::OffsetCommitResponse<'_>) -> ErrorCode {
    code(reply.topics.first().unwrap().partitions.first().unwrap().error_code)
}

pub fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap()
}

/// A consumer's subscription, version 1, that owns nothing.
pub fn subscription(topics: &[&str]) -> Vec<u8> {
    owning_subscription(topics, &[])
}

pub fn owning_subscription(topics: &[&str], owned: &[(&str, Vec<i32>)]) -> Vec<u8> {
    let subscription = m::ConsumerProtocolSubscription {
        topics: topics.iter().map(|topic| (*topic).into()).collect(),
        owned_partitions: owned
            .iter()
            .map(|(topic, parts)| m::consumer_protocol_subscription::TopicPartition {
                topic: (*topic).into(),
                partitions: parts.clone().into(),
            })
            .collect(),
        ..Default::default()
    };
    let mut writer = Writer::new();
    writer.i16(1);
    subscription.encode(&mut writer, 1).unwrap();
    writer.finish().bytes.to_vec()
}

/// A consumer's assignment, version 1.
pub fn assignment(parts: &[(&str, Vec<i32>)]) -> Vec<u8> {
    let assignment = m::ConsumerProtocolAssignment {
        assigned_partitions: parts
            .iter()
            .map(|(topic, parts)| m::consumer_protocol_assignment::TopicPartition {
                topic: (*topic).into(),
                partitions: parts.clone().into(),
            })
            .collect(),
        user_data: None,
    };
    let mut writer = Writer::new();
    writer.i16(1);
    assignment.encode(&mut writer, 1).unwrap();
    writer.finish().bytes.to_vec()
}

/// Splitmix64: enough randomness for models.
pub fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Lines of a text table without blanks and comments, split at ` => `.
pub fn table(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("no => in {line}")))
}

/// An answer must fit the version that was asked in.
fn encodes(reply: &Reply, version: i16) {
    let mut writer = Writer::new();
    let encoded = match reply.clone() {
        Reply::JoinGroup(reply) => reply.encode(&mut writer, version),
        Reply::SyncGroup(reply) => reply.encode(&mut writer, version),
        Reply::Heartbeat(reply) => reply.encode(&mut writer, version),
        Reply::LeaveGroup(reply) => reply.encode(&mut writer, version),
        Reply::OffsetCommit(reply) => reply.encode(&mut writer, version),
        Reply::TxnOffsetCommit(reply) => reply.encode(&mut writer, version),
        Reply::OffsetDelete(reply) => reply.encode(&mut writer, version),
        Reply::ListGroups(reply) => reply.encode(&mut writer, version),
        Reply::ConsumerGroupHeartbeat(reply) => reply.encode(&mut writer, version),
        Reply::OffsetFetch(group) => {
            let groups = vec![group].into();
            m::OffsetFetchResponse { groups, ..Default::default() }.encode(&mut writer, version)
        }
        Reply::DescribeGroup(group) => {
            let groups = vec![group].into();
            m::DescribeGroupsResponse { groups, ..Default::default() }.encode(&mut writer, version)
        }
        Reply::DeleteGroup(result) => {
            let results = vec![result].into();
            m::DeleteGroupsResponse { results, ..Default::default() }.encode(&mut writer, version)
        }
        Reply::ConsumerGroupDescribe(group) => {
            let groups = vec![group].into();
            m::ConsumerGroupDescribeResponse { groups, ..Default::default() }
                .encode(&mut writer, version)
        }
    };
    encoded.unwrap_or_else(|error| panic!("version {version}: {error}: {reply:?}"));
}
