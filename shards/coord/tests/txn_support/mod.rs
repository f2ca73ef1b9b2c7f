//! A transaction coordinator with a log, a clock, a cluster and leaders of its own, and requests
//! that are short to write.

// Each test file uses its own part of this.
#![allow(dead_code)]
// A test stops at the first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod kafka;
pub mod leaders;

use std::cell::Cell;
use std::collections::BTreeMap;

use coord::txn::{
    Cluster, IdPattern, Marker, Origin, TransactionVersion, TxnConfig, TxnContext, TxnCoordinator,
    TxnDecision, TxnRecord, TxnReply, TxnRequest,
};
use coord::{Producer, Token};
use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use wire::messages::describe_transactions_response::TransactionState;
use wire::{ErrorCode, Message, Writer};

pub const ID: &str = "tx";
pub const TIMEOUT_MS: i32 = 60_000;
/// Its leader never writes a marker.
pub const HELD: &str = "held";
/// The partition of `__consumer_offsets` that every group is in.
pub const OFFSETS_PARTITION: i32 = 0;

pub struct TestCluster {
    pub topics: BTreeMap<String, i32>,
    pub next_id: Cell<i64>,
    /// How many producer ids are at hand.
    pub ids_left: Cell<u64>,
}

impl Default for TestCluster {
    fn default() -> Self {
        let topics = [("t", 4), (HELD, 1), ("__consumer_offsets", 1)];
        TestCluster {
            topics: topics.map(|(name, partitions)| (name.into(), partitions)).into(),
            next_id: Cell::new(1_000),
            ids_left: Cell::new(u64::MAX),
        }
    }
}

impl Cluster for TestCluster {
    fn has_partition(&self, topic: &str, partition: i32) -> bool {
        self.topics.get(topic).is_some_and(|count| (0..*count).contains(&partition))
    }
    fn fresh_producer_id(&self) -> Option<i64> {
        self.ids_left.set(self.ids_left.get().checked_sub(1)?);
        Some(self.next_id.replace(self.next_id.get() + 1))
    }
}

pub type LogEntry = (Vec<u8>, Option<Vec<u8>>);

pub struct Rig {
    pub coordinator: TxnCoordinator,
    pub config: TxnConfig,
    pub cluster: TestCluster,
    pub level: TransactionVersion,
    pub log: Vec<LogEntry>,
    pub now_ms: i64,
    pub coordinator_epoch: i32,
    /// Sent, and not answered.
    pub markers: Vec<Marker>,
    /// Written by the leaders: what each partition saw.
    pub written: Vec<(String, i32, Producer, bool)>,
    /// Leaders answer at once, but for the held topic's.
    pub leaders_answer: bool,
    tokens: u64,
    /// A broker that is asked instead of the coordinator.
    pub kafka: Option<kafka::Kafka>,
}

impl Rig {
    pub fn new(level: TransactionVersion) -> Self {
        let config = TxnConfig::default();
        let mut coordinator = TxnCoordinator::new(config.clone(), 1);
        coordinator.loaded(1_000);
        Rig {
            coordinator,
            config,
            cluster: TestCluster::default(),
            level,
            log: Vec::new(),
            now_ms: 1_000,
            coordinator_epoch: 1,
            markers: Vec::new(),
            written: Vec::new(),
            leaders_answer: true,
            tokens: 0,
            kafka: None,
        }
    }

    /// The same, or a broker in its place if `COORD_KAFKA` names one with that level
    /// finalised (`COORD_KAFKA_LEVEL`, or 2): for lives that neither turn the
    /// clock nor restart anything.
    pub fn or_broker(level: TransactionVersion) -> Self {
        let mut rig = Rig::new(level);
        let finalised = std::env::var("COORD_KAFKA_LEVEL").map_or(2, |text| text.parse().unwrap());
        if let Ok(broker) = std::env::var("COORD_KAFKA")
            && level.0 == finalised
        {
            rig.kafka = Some(kafka::Kafka::new(&broker));
        }
        rig
    }

    pub fn with<T>(&mut self, call: impl FnOnce(&mut TxnCoordinator, &TxnContext<'_>) -> T) -> T {
        let ctx = TxnContext {
            now_ms: self.now_ms,
            transaction_version: self.level,
            cluster: &self.cluster,
        };
        call(&mut self.coordinator, &ctx)
    }

    pub fn ask(&mut self, request: TxnRequest<'_, '_>, version: i16) -> TxnReply {
        if let Some(kafka) = &mut self.kafka {
            return kafka.ask(request, version);
        }
        self.tokens += 1;
        let origin = Origin { token: Token(self.tokens), version };
        let decision = self.with(|coordinator, ctx| coordinator.handle(request, origin, ctx));
        let [(token, reply)] = &decision.replies[..] else { panic!("{decision:?}") };
        assert_eq!(*token, origin.token);
        let reply = reply.clone();
        encodes(&reply, version);
        self.take_in(decision);
        reply
    }

    pub fn take_in(&mut self, decision: TxnDecision) {
        for record in &decision.records {
            let (key, value) = record.to_bytes().unwrap();
            let back = TxnRecord::read(&key, value.as_deref()).unwrap().unwrap();
            assert_eq!(&back, record, "a record reads as it was written");
            self.log.push((key, value));
        }
        self.markers.extend(decision.markers);
        if self.leaders_answer {
            let (held, due) = std::mem::take(&mut self.markers)
                .into_iter()
                .partition(|it: &Marker| it.partitions.contains(HELD, 0));
            self.markers = held;
            for marker in due {
                self.answer(&marker, ErrorCode::None);
            }
        }
    }

    /// The leaders of all of a marker's partitions answer the same.
    pub fn answer(&mut self, marker: &Marker, code: ErrorCode) {
        let results: Vec<(&str, i32, ErrorCode)> =
            marker.partitions.iter().map(|(topic, partition)| (topic, partition, code)).collect();
        self.answer_with(marker, &results);
    }

    pub fn answer_with(&mut self, marker: &Marker, results: &[(&str, i32, ErrorCode)]) {
        for (topic, partition, code) in results {
            if *code == ErrorCode::None {
                let commit = marker.commit;
                self.written.push(((*topic).into(), *partition, marker.producer, commit));
            }
        }
        let (id, round) = (marker.transactional_id.clone(), marker.round);
        let results = results.iter().copied();
        let decision =
            self.with(|coordinator, ctx| coordinator.markers_written(&id, round, results, ctx));
        self.take_in(decision);
    }

    /// Time passes, and what falls due is done when it does.
    pub fn pass(&mut self, ms: i64) {
        let end = self.now_ms + ms;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| *due <= end) {
            self.now_ms = self.now_ms.max(due);
            let decision = self.with(|coordinator, ctx| coordinator.on_time(ctx));
            self.take_in(decision);
        }
        self.now_ms = end;
    }

    /// Another coordinator reads the log; markers under way are lost.
    pub fn reload(&mut self) {
        self.markers.clear();
        self.coordinator_epoch += 1;
        self.coordinator = self.read_log();
        self.coordinator.loaded(self.now_ms);
        let decision = self.with(|coordinator, ctx| coordinator.on_time(ctx));
        self.take_in(decision);
    }

    pub fn read_log(&self) -> TxnCoordinator {
        let mut fresh = TxnCoordinator::new(self.config.clone(), self.coordinator_epoch);
        for (key, value) in &self.log {
            fresh.replay(key, value.as_deref()).unwrap();
        }
        fresh
    }

    pub fn init(&mut self, init: &Init<'_>) -> (ErrorCode, Producer) {
        let request = m::InitProducerIdRequest {
            transactional_id: Some(String::from(init.id).into()),
            transaction_timeout_ms: init.timeout_ms,
            producer_id: init.expected.id,
            producer_epoch: init.expected.epoch,
            ..Default::default()
        };
        match self.ask(TxnRequest::InitProducerId(&request), init.version) {
            TxnReply::InitProducerId(reply) => {
                let producer = Producer { id: reply.producer_id, epoch: reply.producer_epoch };
                (code(reply.error_code), producer)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The producer of a fresh instance, however long the end of what was open takes.
    pub fn owner(&mut self) -> Producer {
        for _ in 0..500 {
            match self.init(&INIT) {
                (ErrorCode::None, producer) => return producer,
                // A broker may have no producer ids at hand.
                (ErrorCode::ConcurrentTransactions | ErrorCode::CoordinatorLoadInProgress, _) => {
                    self.moment();
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("the transactional id is stuck");
    }

    /// A broker needs real time; the coordinator none.
    pub fn moment(&mut self) {
        if self.kafka.is_some() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub fn add(&mut self, add: &Add<'_>) -> Vec<ErrorCode> {
        let topics = add.partitions.iter().map(|(topic, partition)| AddPartitionsToTxnTopic {
            name: String::from(*topic).into(),
            partitions: vec![*partition].into(),
        });
        let request = AddPartitionsToTxnTransaction {
            transactional_id: String::from(add.id).into(),
            producer_id: add.producer.id,
            producer_epoch: add.producer.epoch,
            verify_only: add.verify,
            topics: topics.collect(),
        };
        match self.ask(TxnRequest::AddPartitions(&request), add.version) {
            TxnReply::AddPartitions(reply) => {
                let mut codes = Vec::new();
                for topic in &reply.topic_results {
                    for it in &topic.results_by_partition {
                        codes.push(code(it.partition_error_code));
                    }
                }
                codes.sort();
                codes
            }
            other => panic!("{other:?}"),
        }
    }

    /// As the protocol says: the client itself, or the partition's leader for it.
    pub fn must_add(&mut self, producer: Producer, topic: &str, partition: i32, version: i16) {
        let add = Add { producer, version, partitions: &[(topic, partition)], ..ADD };
        assert_eq!(self.add(&add), [ErrorCode::None]);
    }

    pub fn add_offsets(&mut self, producer: Producer, version: i16) -> ErrorCode {
        let request = m::AddOffsetsToTxnRequest {
            transactional_id: ID.into(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            group_id: "g".into(),
        };
        let asked = TxnRequest::AddOffsets { request: &request, partition: OFFSETS_PARTITION };
        match self.ask(asked, version) {
            TxnReply::AddOffsets(reply) => code(reply.error_code),
            other => panic!("{other:?}"),
        }
    }

    pub fn end(&mut self, producer: Producer, commit: bool, version: i16) -> (ErrorCode, Producer) {
        let request = m::EndTxnRequest {
            transactional_id: ID.into(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            committed: commit,
        };
        match self.ask(TxnRequest::EndTxn(&request), version) {
            TxnReply::EndTxn(reply) => {
                let producer = Producer { id: reply.producer_id, epoch: reply.producer_epoch };
                (code(reply.error_code), producer)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn describe(&mut self, id: &str) -> TransactionState<'static> {
        match self.ask(TxnRequest::Describe(id), 0) {
            TxnReply::Describe(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn list(
        &mut self,
        list: &m::ListTransactionsRequest<'_>,
    ) -> m::ListTransactionsResponse<'static> {
        let pattern = match list.transactional_id_pattern.as_deref().map(IdPattern::new).transpose()
        {
            Ok(pattern) => pattern,
            Err(code) => {
                let error_code = code.code();
                return m::ListTransactionsResponse { error_code, ..Default::default() };
            }
        };
        let (mut pieces, mut after) = (Vec::new(), None);
        loop {
            let asked = TxnRequest::List { request: list, after: after.as_deref() };
            let TxnReply::List { list, goes_on_after } = self.ask(asked, 2) else { panic!() };
            pieces.push(list);
            after = goes_on_after;
            if after.is_none() {
                break;
            }
        }
        let theirs = pieces.last().map(|piece| piece.unknown_state_filters.clone());
        let mut whole = coord::txn::join_lists(list, pieces);
        if let (Some(_), Some(theirs)) = (&self.kafka, theirs) {
            whole.unknown_state_filters = theirs;
        }
        let is_wanted = |id: &str| {
            self.kafka.is_some() || pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
        };
        let states = whole.transaction_states.into_vec().into_iter();
        let wanted: Vec<_> = states.filter(|it| is_wanted(&it.transactional_id)).collect();
        whole.transaction_states = wanted.into();
        whole
    }

    pub fn state(&mut self) -> String {
        let described = self.describe(ID);
        assert_eq!(code(described.error_code), ErrorCode::None);
        described.transaction_state.into_owned()
    }

    /// Waits, at a broker, until the id is in that state.
    pub fn settle(&mut self, state: &str) -> Producer {
        for _ in 0..500 {
            let described = self.describe(ID);
            if *described.transaction_state == *state {
                return Producer { id: described.producer_id, epoch: described.producer_epoch };
            }
            assert!(self.kafka.is_some(), "{described:?}, not {state}");
            self.moment();
        }
        panic!("never {state}");
    }
}

pub struct Init<'a> {
    pub id: &'a str,
    pub version: i16,
    pub timeout_ms: i32,
    pub expected: Producer,
}

pub const NOBODY: Producer = Producer { id: -1, epoch: -1 };
pub const INIT: Init<'static> =
    Init { id: ID, version: 5, timeout_ms: TIMEOUT_MS, expected: NOBODY };

pub struct Add<'a> {
    pub id: &'a str,
    pub version: i16,
    pub producer: Producer,
    pub partitions: &'a [(&'a str, i32)],
    pub verify: bool,
}

pub const ADD: Add<'static> =
    Add { id: ID, version: 5, producer: NOBODY, partitions: &[("t", 0)], verify: false };

pub fn at_epoch(producer: Producer, epoch: i16) -> Producer {
    Producer { epoch, ..producer }
}

pub fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).expect("a code that Kafka has")
}

/// Every answer must be one that can be sent.
pub fn encodes(reply: &TxnReply, version: i16) {
    let mut writer = Writer::new();
    match reply {
        TxnReply::InitProducerId(reply) => reply.encode(&mut writer, version),
        TxnReply::AddPartitions(reply) => {
            let whole = coord::txn::join_add_partitions(vec![reply.clone()], version);
            whole.encode(&mut writer, version)
        }
        TxnReply::AddOffsets(reply) => reply.encode(&mut writer, version),
        TxnReply::EndTxn(reply) => reply.encode(&mut writer, version),
        TxnReply::Describe(reply) => m::DescribeTransactionsResponse {
            throttle_time_ms: 0,
            transaction_states: vec![reply.clone()].into(),
        }
        .encode(&mut writer, version),
        TxnReply::List { list, .. } => list.encode(&mut writer, version),
    }
    .unwrap();
}

/// The next number of a sequence (SplitMix64).
pub fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
