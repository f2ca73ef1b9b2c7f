//! Random producers in virtual time: instances of two transactional ids add, write, end, lose
//! answers, stall and come back as zombies; leaders fail markers; the coordinator dies at any
//! moment and reads what is durable, or more. With KIP-890 requests may also come late and twice;
//! before it nothing but the connection kept such copies away, so the model does.
//!
//! What must hold, whatever happens:
//! - a marker leaves only when the decision that it tells is durable;
//! - a transaction has one outcome, on all its partitions, and the one that its owner was told;
//!   what its owner never committed is never committed;
//! - epochs never go back, a producer id is never given again, two instances never have one epoch;
//! - once another instance has taken over, a producer changes nothing;
//! - a coordinator that reads the log knows what this one does;
//! - once markers succeed nothing is stuck: every id comes to rest, no partition has anything open.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod txn_support;

use std::collections::{BTreeMap, BTreeSet};

use coord::txn::{
    Marker, Origin, TransactionVersion, TxnDecision, TxnRecord, TxnReply, TxnRequest,
};
use coord::{Producer, Token};
use txn_support::leaders::{Label, Leader};
use txn_support::{NOBODY, Rig, TIMEOUT_MS, code, next_random};
use wire::messages as m;
use wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use wire::{ErrorCode, IntoOwned};

const IDS: [&str; 2] = ["one", "two"];
const PARTITIONS: i32 = 4;
const STEPS: usize = 3_000;
const SEEDS: u64 = 20;
/// Steps after which a client takes an answer for lost.
const PATIENCE: usize = 60;

type Value = m::TransactionLogValue<'static>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Old,
    New,
    Mixed,
}

#[derive(Clone, Debug)]
enum Asked {
    Init(m::InitProducerIdRequest<'static>),
    Add(AddPartitionsToTxnTransaction<'static>),
    End(m::EndTxnRequest<'static>),
}

/// Who waits for a coordinator's answer.
#[derive(Clone, Copy, Debug)]
enum Asker {
    Client {
        at: usize,
        turn: u64,
    },
    /// A leader that has a write in hand until it knows that the transaction is open.
    Leader {
        write: Write,
        guard: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Write {
    at: usize,
    turn: u64,
    label: Label,
    producer: Producer,
    partition: i32,
    new: bool,
    reign: u64,
}

#[derive(Clone, Debug)]
enum Message {
    Ask { asker: Asker, asked: Asked, version: i16, reign: u64 },
    Answer { asker: Asker, reply: TxnReply },
    Write(Write),
    Written { at: usize, turn: u64, code: ErrorCode },
    Marker { marker: Marker, partition: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Init,
    Begin,
    Add,
    Write(usize),
    End,
    Dead,
}

#[derive(Clone, Debug)]
struct Client {
    id: &'static str,
    new: bool,
    producer: Producer,
    /// Of which takeover of the id its producer is.
    reign: u64,
    phase: Phase,
    serial: u64,
    partitions: Vec<i32>,
    commit: bool,
    turn: u64,
    /// Since when it waits for the answer of this turn.
    waits: Option<usize>,
    stalled_until: usize,
}

#[derive(Clone, Copy)]
enum Hasty {
    Replies,
    Markers,
}

struct HeldBack {
    replies: Vec<(Token, TxnReply)>,
    markers: Vec<Marker>,
}

#[derive(Default)]
struct Told {
    commit_sent: bool,
    outcome: Option<bool>,
}

struct Model {
    rig: Rig,
    clients: Clients,
    seed: u64,
    step: usize,
    /// How much of the log is durable.
    durable: usize,
    /// What leaves once all that was appended up to now is durable.
    held_back: Vec<HeldBack>,
    askers: BTreeMap<Token, Asker>,
    tokens: u64,
    messages: Vec<Message>,
    instances: Vec<Client>,
    leaders: Vec<Leader>,
    told: BTreeMap<Label, Told>,
    /// Takeovers of each id, with the length of the log after them.
    reigns: BTreeMap<&'static str, Vec<(usize, u64)>>,
    reign_count: u64,
    /// Which takeover a producer was given for.
    granted: BTreeMap<(i64, i16), u64>,
    /// Who has it.
    given: BTreeMap<(i64, i16), usize>,
    /// The last that the log says about each id, and all producer ids in it.
    last: BTreeMap<String, Value>,
    seen: BTreeSet<i64>,
    trouble: bool,
    /// Answers, or markers, do not wait until all is durable: what a caller must not do.
    hasty: Option<Hasty>,
}

impl Model {
    fn new(seed: u64, clients: Clients) -> Self {
        let mut rig = Rig::new(TransactionVersion::V2);
        rig.leaders_answer = false;
        let leaders = (0..PARTITIONS).map(|_| Leader::default()).collect();
        // The epochs of one id are about to be used up.
        let old = m::TransactionLogValue {
            producer_id: 7,
            producer_epoch: i16::MAX - 12,
            transaction_timeout_ms: TIMEOUT_MS,
            transaction_last_update_timestamp_ms: rig.now_ms,
            transaction_start_timestamp_ms: -1,
            transaction_partitions: None,
            ..Default::default()
        };
        let key = m::TransactionLogKey { transactional_id: IDS[1].into() };
        let (key, value) = TxnRecord { key, value: Some(old), version: 0 }.to_bytes().unwrap();
        rig.coordinator.replay(&key, value.as_deref()).unwrap();
        rig.log.push((key, value));
        let mut model = Model {
            rig,
            clients,
            seed,
            step: 0,
            durable: 1,
            held_back: Vec::new(),
            askers: BTreeMap::new(),
            tokens: 0,
            messages: Vec::new(),
            instances: Vec::new(),
            leaders,
            told: BTreeMap::new(),
            reigns: BTreeMap::new(),
            reign_count: 0,
            granted: BTreeMap::new(),
            given: BTreeMap::new(),
            last: BTreeMap::new(),
            seen: BTreeSet::new(),
            trouble: true,
            hasty: None,
        };
        model.read_last();
        model
    }

    fn below(&mut self, n: u64) -> u64 {
        next_random(&mut self.seed) % n
    }

    fn step(&mut self) {
        self.step += 1;
        match self.below(100) {
            0..=44 => self.deliver(),
            45..=64 => self.acknowledge(),
            65..=91 => self.act(),
            92..=96 => self.pass(),
            97 => self.spawn(),
            98 => self.disturb(),
            _ => self.check_log(),
        }
    }

    fn spawn(&mut self) {
        let alive = self.instances.iter().filter(|it| it.phase != Phase::Dead).count();
        if alive >= 5 {
            return;
        }
        let new = match self.clients {
            Clients::Old => false,
            Clients::New => true,
            Clients::Mixed => self.below(2) == 0,
        };
        let id = IDS[self.below(2) as usize];
        self.instances.push(Client {
            id,
            new,
            producer: NOBODY,
            reign: 0,
            phase: Phase::Init,
            serial: 0,
            partitions: Vec::new(),
            commit: false,
            turn: 0,
            waits: None,
            stalled_until: 0,
        });
    }

    fn disturb(&mut self) {
        match self.below(7) {
            0 | 1 => self.crash(),
            2 if self.clients != Clients::New => {
                self.rig.level = TransactionVersion(self.below(3) as i16);
            }
            3 => {
                let left = if self.below(2) == 0 { 0 } else { u64::MAX };
                self.rig.cluster.ids_left.set(left);
            }
            4 if !self.instances.is_empty() => {
                let at = self.below(self.instances.len() as u64) as usize;
                let stall = self.below(1_000) as usize;
                self.instances[at].stalled_until = self.step + stall;
            }
            _ => {}
        }
    }

    fn pass(&mut self) {
        self.rig.now_ms += self.below(4_000) as i64;
        let now_ms = self.rig.now_ms;
        while self.rig.coordinator.next_deadline().is_some_and(|due_ms| due_ms <= now_ms) {
            let decision = self.rig.with(|coordinator, ctx| coordinator.on_time(ctx));
            self.append(decision);
        }
    }

    /// Appends, and holds back what must wait for that to be durable.
    fn append(&mut self, decision: TxnDecision) {
        let (replies, markers) = (decision.replies.clone(), decision.markers.clone());
        for record in &decision.records {
            self.note(record);
        }
        self.rig.take_in(decision);
        self.rig.markers.clear();
        let mut early = HeldBack { replies: Vec::new(), markers: Vec::new() };
        let mut late = HeldBack { replies, markers };
        match self.hasty {
            Some(Hasty::Replies) => std::mem::swap(&mut early.replies, &mut late.replies),
            Some(Hasty::Markers) => std::mem::swap(&mut early.markers, &mut late.markers),
            None => {}
        }
        self.held_back.push(late);
        self.release(early);
    }

    fn acknowledge(&mut self) {
        self.durable = self.rig.log.len();
        for held in std::mem::take(&mut self.held_back) {
            self.release(held);
        }
    }

    fn release(&mut self, HeldBack { replies, markers }: HeldBack) {
        for (token, reply) in replies {
            let asker = self.askers.remove(&token).expect("asked, and not answered");
            self.messages.push(Message::Answer { asker, reply });
        }
        for marker in markers {
            self.check_marker(&marker);
            for (_, partition) in marker.partitions.iter() {
                let marker = marker.clone();
                self.messages.push(Message::Marker { marker, partition });
            }
        }
    }

    /// The coordinator is gone, and with it what was not durable, or some of it.
    fn crash(&mut self) {
        let lost = (self.rig.log.len() - self.durable) as u64;
        let kept = self.durable + self.below(lost + 1) as usize;
        self.rig.log.truncate(kept);
        self.durable = kept;
        self.held_back.clear();
        self.askers.clear();
        for reigns in self.reigns.values_mut() {
            reigns.retain(|(length, _)| *length <= kept);
        }
        self.read_last();
        self.rig.coordinator_epoch += 1;
        self.rig.coordinator = self.rig.read_log();
        self.rig.coordinator.loaded(self.rig.now_ms);
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.below(self.messages.len() as u64) as usize;
        let message = self.messages[at].clone();
        let late = self.trouble && self.clients == Clients::New && self.below(12) == 0;
        let may_repeat = matches!(message, Message::Ask { .. } | Message::Write(_));
        if !(late && may_repeat) {
            self.messages.swap_remove(at);
        }
        let is_lost = self.trouble && self.below(20) == 0;
        match message {
            Message::Marker { marker, partition } => self.mark(&marker, partition),
            _ if is_lost => {}
            Message::Ask { asker, asked, version, reign } => {
                self.ask(asker, &asked, version, reign);
            }
            Message::Answer { asker: Asker::Client { at, turn }, reply } => {
                self.answered(at, turn, &reply);
            }
            Message::Answer { asker: Asker::Leader { write, guard }, reply } => {
                self.verified(&write, guard, &reply);
            }
            Message::Write(write) => self.write(&write),
            Message::Written { at, turn, code } => self.written(at, turn, code),
        }
    }

    /// The coordinator decides.
    fn ask(&mut self, asker: Asker, asked: &Asked, version: i16, reign: u64) {
        let request = match asked {
            Asked::Init(request) => TxnRequest::InitProducerId(request),
            Asked::Add(request) => TxnRequest::AddPartitions(request),
            Asked::End(request) => TxnRequest::EndTxn(request),
        };
        let id = *IDS.iter().find(|id| request.transactional_id() == Some(**id)).unwrap();
        self.tokens += 1;
        let token = Token(self.tokens);
        let origin = Origin { token, version };
        let decision = self.rig.with(|coordinator, ctx| coordinator.handle(request, origin, ctx));
        let takes_over = matches!(asked, Asked::Init(request) if request.producer_id == -1);
        let last = self.reigns.get(id).and_then(|reigns| reigns.last()).map_or(0, |it| it.1);
        if !takes_over && reign != last {
            assert!(decision.records.is_empty(), "fenced, and changes something: {asked:?}");
        }
        let given = match &decision.replies[0].1 {
            TxnReply::InitProducerId(reply) if takes_over && reply.error_code == 0 => {
                Some((reply.producer_id, reply.producer_epoch))
            }
            _ => None,
        };
        self.askers.insert(token, asker);
        self.append(decision);
        if let Some(producer) = given {
            self.reign_count += 1;
            let length = self.rig.log.len();
            self.reigns.entry(id).or_default().push((length, self.reign_count));
            self.granted.insert(producer, self.reign_count);
        }
    }

    /// A client does what comes next.
    fn act(&mut self) {
        let places = self.instances.iter().enumerate();
        let places: Vec<usize> =
            places.filter(|(_, it)| it.phase != Phase::Dead).map(|(at, _)| at).collect();
        if places.is_empty() {
            return self.spawn();
        }
        let at = places[self.below(places.len() as u64) as usize];
        let client = &mut self.instances[at];
        if client.stalled_until > self.step {
            return;
        }
        if let Some(since) = client.waits {
            if self.step - since < PATIENCE {
                return;
            }
            client.waits = None;
            if self.clients != Clients::New {
                self.forget(at);
            }
        }
        if self.instances[at].phase == Phase::Begin {
            self.begin(at);
        }
        let client = &mut self.instances[at];
        client.turn += 1;
        client.waits = Some(self.step);
        let (turn, label) = (client.turn, (at, client.serial));
        let Client { producer, new, reign, .. } = *client;
        let asker = Asker::Client { at, turn };
        let message = match client.phase {
            Phase::Init => {
                let request = m::InitProducerIdRequest {
                    transactional_id: Some(client.id.into()),
                    transaction_timeout_ms: TIMEOUT_MS,
                    producer_id: producer.id,
                    producer_epoch: producer.epoch,
                    ..Default::default()
                };
                Message::Ask { asker, asked: Asked::Init(request), version: 5, reign }
            }
            Phase::Add => {
                let asked = Asked::Add(addition(client.id, producer, &client.partitions, false));
                Message::Ask { asker, asked, version: 3, reign }
            }
            Phase::Write(nth) => {
                let partition = client.partitions[nth];
                Message::Write(Write { at, turn, label, producer, partition, new, reign })
            }
            Phase::End => {
                let request = m::EndTxnRequest {
                    transactional_id: client.id.into(),
                    producer_id: producer.id,
                    producer_epoch: producer.epoch,
                    committed: client.commit,
                };
                let version = if new { 5 } else { 4 };
                self.told.entry(label).or_default().commit_sent |= client.commit;
                Message::Ask { asker, asked: Asked::End(request), version, reign }
            }
            Phase::Begin | Phase::Dead => return,
        };
        self.messages.push(message);
    }

    /// The connection is closed: nothing that was asked on it comes to pass any more.
    fn forget(&mut self, client: usize) {
        self.messages.retain(|message| match message {
            Message::Ask { asker: Asker::Client { at, .. }, .. } => *at != client,
            Message::Write(write) => write.at != client,
            _ => true,
        });
    }

    fn begin(&mut self, at: usize) {
        let mask = 1 + self.below((1 << PARTITIONS) - 1);
        let commit = self.below(3) > 0;
        let client = &mut self.instances[at];
        client.serial += 1;
        client.partitions =
            (0..PARTITIONS).filter(|partition| mask >> partition & 1 == 1).collect();
        client.commit = commit;
        client.phase = if client.new { Phase::Write(0) } else { Phase::Add };
    }

    fn is_turn(&self, at: usize, turn: u64) -> bool {
        let client = &self.instances[at];
        client.turn == turn && client.waits.is_some() && client.phase != Phase::Dead
    }

    fn answered(&mut self, at: usize, turn: u64, reply: &TxnReply) {
        if !self.is_turn(at, turn) {
            return;
        }
        let (code, producer) = match reply {
            TxnReply::InitProducerId(reply) => {
                (code(reply.error_code), (reply.producer_id, reply.producer_epoch))
            }
            TxnReply::AddPartitions(_) => (added(reply), (-1, -1)),
            TxnReply::EndTxn(reply) => {
                (code(reply.error_code), (reply.producer_id, reply.producer_epoch))
            }
            other => panic!("{other:?}"),
        };
        self.instances[at].waits = None;
        match code {
            ErrorCode::None => {}
            ErrorCode::ConcurrentTransactions | ErrorCode::CoordinatorLoadInProgress => return,
            _ => return self.fail(at),
        }
        if producer != (-1, -1) {
            let owner = *self.given.entry(producer).or_insert(at);
            assert_eq!(owner, at, "two instances have {producer:?}");
            let client = &mut self.instances[at];
            if client.producer == NOBODY {
                client.reign = self.granted[&producer];
            }
            client.producer = Producer { id: producer.0, epoch: producer.1 };
        }
        let label = (at, self.instances[at].serial);
        let client = &mut self.instances[at];
        client.phase = match client.phase {
            Phase::Init => Phase::Begin,
            Phase::Add => Phase::Write(0),
            Phase::End => {
                self.told.entry(label).or_default().outcome = Some(client.commit);
                Phase::Begin
            }
            other => panic!("no answer belongs to {other:?}"),
        };
    }

    /// An error that a client does not get over: it goes on with another epoch, or gives up.
    fn fail(&mut self, at: usize) {
        let goes_on = self.below(3) == 0;
        let client = &mut self.instances[at];
        let may = client.producer != NOBODY && client.phase != Phase::Init;
        client.phase = if goes_on && may { Phase::Init } else { Phase::Dead };
    }

    /// A write reaches the leader of its partition.
    fn write(&mut self, write: &Write) {
        let leader = &mut self.leaders[write.partition as usize];
        let guard = match leader.write(write.producer, write.label) {
            Ok(code) => return self.tell(write, code),
            Err(guard) => guard,
        };
        let asker = Asker::Leader { write: *write, guard };
        let id = self.instances[write.at].id;
        let asked = Asked::Add(addition(id, write.producer, &[write.partition], !write.new));
        self.messages.push(Message::Ask { asker, asked, version: 5, reign: write.reign });
    }

    /// The leader knows whether the transaction is open.
    fn verified(&mut self, write: &Write, guard: u64, reply: &TxnReply) {
        let leader = &mut self.leaders[write.partition as usize];
        let code = leader.verified(write.producer, write.label, guard, added(reply));
        self.tell(write, code);
    }

    fn tell(&mut self, write: &Write, code: ErrorCode) {
        let Write { at, turn, .. } = *write;
        self.messages.push(Message::Written { at, turn, code });
    }

    fn written(&mut self, at: usize, turn: u64, code: ErrorCode) {
        if !self.is_turn(at, turn) {
            return;
        }
        let aborts = self.below(2) == 0;
        let client = &mut self.instances[at];
        client.waits = None;
        let Phase::Write(nth) = client.phase else { return };
        match code {
            ErrorCode::None if nth + 1 < client.partitions.len() => {
                client.phase = Phase::Write(nth + 1);
            }
            ErrorCode::None => client.phase = Phase::End,
            ErrorCode::ConcurrentTransactions => {}
            _ if aborts => {
                client.commit = false;
                client.phase = Phase::End;
            }
            _ => self.fail(at),
        }
    }

    /// A marker reaches a leader, or does not, or its answer gets lost; until then it is out.
    fn mark(&mut self, marker: &Marker, partition: i32) {
        let roll = if self.trouble { self.below(10) } else { 9 };
        let code = match roll {
            0 | 1 => ErrorCode::NotLeaderOrFollower,
            2 => {
                self.leaders[partition as usize].end(marker);
                ErrorCode::RequestTimedOut
            }
            3 => {
                let marker = marker.clone();
                return self.messages.push(Message::Marker { marker, partition });
            }
            _ => self.leaders[partition as usize].end(marker),
        };
        // It may be for a coordinator that is gone; then it must count for nothing.
        let decision = self.rig.with(|coordinator, ctx| {
            let results = [("t", partition, code)];
            coordinator.markers_written(&marker.transactional_id, marker.round, results, ctx)
        });
        self.append(decision);
    }

    fn check_marker(&self, marker: &Marker) {
        let decided = &self.last[&*marker.transactional_id];
        let status = if marker.commit { 2 } else { 3 };
        assert_eq!(decided.transaction_status, status, "{marker:?}");
        let producer = Producer { id: decided.producer_id, epoch: decided.producer_epoch };
        assert_eq!(marker.producer, producer);
    }

    /// A record gets into the log.
    fn note(&mut self, record: &TxnRecord<'_>) {
        let id = record.key.transactional_id.to_string();
        let next = record.value.clone().unwrap().into_owned();
        match self.last.get(&id).filter(|last| last.producer_id == next.producer_id) {
            Some(last) => {
                assert!(last.producer_epoch <= next.producer_epoch, "{id}: {last:?}, {next:?}");
            }
            None => assert!(self.seen.insert(next.producer_id), "given again: {next:?}"),
        }
        self.last.insert(id, next);
    }

    fn read_last(&mut self) {
        self.last.clear();
        self.seen.clear();
        for (key, value) in &self.rig.log {
            let record = TxnRecord::read(key, value.as_deref()).unwrap().unwrap();
            let id = record.key.transactional_id.to_string();
            let value = record.value.unwrap().into_owned();
            self.seen.insert(value.producer_id);
            self.last.insert(id, value);
        }
    }

    /// A coordinator that reads the log knows what this one does.
    fn check_log(&mut self) {
        let live = IDS.map(|id| self.rig.describe(id));
        let fresh = self.rig.read_log();
        assert_eq!(fresh.id_count(), self.rig.coordinator.id_count());
        let own = std::mem::replace(&mut self.rig.coordinator, fresh);
        let read = IDS.map(|id| self.rig.describe(id));
        self.rig.coordinator = own;
        for (mut live, mut read) in live.into_iter().zip(read) {
            if live.transaction_state.starts_with("Prepare") {
                // How far the markers have come is not in the log.
                live.topics = Default::default();
                read.topics = Default::default();
            }
            assert_eq!(live, read);
        }
    }

    /// Nobody asks for anything any more, and markers get through: all must come to rest.
    fn settle(&mut self) {
        self.trouble = false;
        self.rig.cluster.ids_left.set(u64::MAX);
        for client in &mut self.instances {
            client.phase = Phase::Dead;
        }
        for _ in 0..2 * TIMEOUT_MS / 4_000 {
            while !self.messages.is_empty() || !self.held_back.is_empty() {
                self.deliver();
                self.acknowledge();
            }
            self.rig.now_ms += 4_000;
            self.pass();
        }
        while !self.messages.is_empty() || !self.held_back.is_empty() {
            self.deliver();
            self.acknowledge();
        }
        for (id, last) in &self.last {
            assert!([0, 4, 5].contains(&last.transaction_status), "{id} is stuck: {last:?}");
        }
        self.check_outcomes();
        self.trouble = true;
    }

    fn check_outcomes(&self) {
        let mut outcomes: BTreeMap<Label, BTreeSet<bool>> = BTreeMap::new();
        for (partition, leader) in self.leaders.iter().enumerate() {
            for (id, there) in &leader.producers {
                assert!(there.open.is_empty(), "{partition} has {id} open: {there:?}");
            }
            for (label, seen) in &leader.outcomes {
                outcomes.entry(*label).or_default().extend(seen);
            }
        }
        for (label, seen) in &outcomes {
            assert_eq!(seen.len(), 1, "{label:?} is torn");
            let committed = seen.contains(&true);
            let told = self.told.get(label);
            if committed {
                assert!(told.is_some_and(|told| told.commit_sent), "{label:?} was not committed");
            }
            if let Some(outcome) = told.and_then(|told| told.outcome) {
                assert_eq!(outcome, committed, "{label:?}: its owner was told otherwise");
            }
        }
    }
}

fn addition(
    id: &'static str,
    producer: Producer,
    partitions: &[i32],
    verify_only: bool,
) -> AddPartitionsToTxnTransaction<'static> {
    AddPartitionsToTxnTransaction {
        transactional_id: id.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        verify_only,
        topics: vec![AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: partitions.to_vec().into(),
        }]
        .into(),
    }
}

/// The one answer to all partitions.
fn added(reply: &TxnReply) -> ErrorCode {
    let TxnReply::AddPartitions(reply) = reply else { panic!("{reply:?}") };
    let topic = reply.topic_results.first().unwrap();
    code(topic.results_by_partition.first().unwrap().partition_error_code)
}

fn run(clients: Clients) {
    let only = std::env::var("COORD_SEED").ok().and_then(|seed| seed.parse().ok());
    let many = std::env::var("COORD_SEEDS").ok().and_then(|many| many.parse().ok());
    let seeds = only.map_or(0..many.unwrap_or(SEEDS), |seed| seed..seed + 1);
    let (mut committed, mut aborted) = (0, 0);
    for seed in seeds {
        let mut model = Model::new(seed, clients);
        for _ in 0..3 {
            // Where it breaks is said even if the panic is not.
            let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..STEPS {
                    model.step();
                }
                model.settle();
            }));
            assert!(lived.is_ok(), "COORD_SEED={seed} {clients:?}");
        }
        for told in model.told.values() {
            committed += usize::from(told.outcome == Some(true));
            aborted += usize::from(told.outcome == Some(false));
        }
    }
    assert!(committed > 0 && aborted > 0, "{committed} commits, {aborted} aborts");
    eprintln!("{clients:?}: {committed} commits, {aborted} aborts");
}

#[test]
fn transactions_before_kip_890_survive_anything() {
    run(Clients::Old);
}

#[test]
fn transactions_with_kip_890_survive_anything() {
    run(Clients::New);
}

#[test]
fn both_protocols_survive_anything_while_the_feature_changes() {
    run(Clients::Mixed);
}

/// That the rules can be broken, and the model sees it.
#[test]
fn what_leaves_before_it_is_durable_is_found_out() {
    for hasty in [Hasty::Replies, Hasty::Markers] {
        let found = (0..10 * SEEDS).find(|seed| {
            let mut model = Model::new(*seed, Clients::Mixed);
            model.hasty = Some(hasty);
            let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (0..STEPS).for_each(|_| model.step());
                model.settle();
            }));
            lived.is_err()
        });
        assert!(found.is_some());
    }
}
