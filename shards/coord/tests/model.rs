//! Random groups in virtual time: members of both protocols join, leave, die, are fenced, commit
//! and stall, and the coordinator dies at any moment, with or without its last decision.
//!
//! What must hold, whatever happens:
//! - no two living members think that they own one partition in one generation or at one time;
//! - what was committed and acknowledged, in a transaction or not, is what is fetched;
//! - once everyone behaves, the group settles within its timeouts, with all partitions owned.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;

use coord::{Config, Reply, Token};
use support::{
    BEAT, Beat, COMMIT, Commit, FIRST_BEAT, JOIN, Join, Rig, TXN_COMMIT, TxnCommit, assignment,
    next_random,
};
use wire::messages as m;
use wire::{ErrorCode, Message, Reader, Uuid};

const PARTITIONS: i32 = 7;
const STEP_MS: i64 = 500;
const HEARTBEAT_MS: i64 = 2_000;
const SEEDS: u64 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocols {
    Classic,
    Consumer,
    Mixed,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Out,
    Joining(Token),
    Syncing(Token),
    In,
}

#[derive(Clone, Debug)]
struct Client {
    classic: bool,
    instance: Option<String>,
    member: String,
    /// Generation or member epoch.
    epoch: i32,
    phase: Phase,
    owned: BTreeSet<i32>,
    /// A consumer's assignment that it has not taken on yet.
    wanted: Option<BTreeSet<i32>>,
    next_ms: i64,
}

struct Model {
    rig: Rig,
    topic: Uuid,
    clients: Vec<Client>,
    seed: u64,
    names: u64,
    protocols: Protocols,
    /// Last acknowledged offset by partition.
    committed: Vec<i64>,
    next_offset: i64,
    /// Commits that were accepted, outside of transactions and in one.
    accepted: [usize; 2],
}

impl Model {
    fn new(seed: u64, protocols: Protocols) -> Self {
        let mut rig = Rig::new(Config { initial_rebalance_delay_ms: 1_000, ..Config::default() });
        let topic = rig.topics.set("t", PARTITIONS);
        Model {
            rig,
            topic,
            clients: Vec::new(),
            seed,
            names: 0,
            protocols,
            committed: vec![-1; PARTITIONS as usize],
            next_offset: 0,
            accepted: [0; 2],
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        next_random(&mut self.seed) % n
    }

    fn step(&mut self) {
        self.rig.pass(STEP_MS);
        for at in 0..self.clients.len() {
            if at < self.clients.len() {
                self.act(at);
            }
        }
        self.check_owners();
        if self.below(40) == 0 {
            self.check_log();
        }
    }

    /// A coordinator that reads the log knows what this one does.
    fn check_log(&mut self) {
        let live = self.look(|rig| (rig.consumers(), rig.described()));
        let fresh = self.rig.replayed();
        assert_eq!(fresh.offset_count(), self.rig.coordinator.offset_count());
        assert_eq!(fresh.group_ids(), self.rig.coordinator.group_ids());
        let own = std::mem::replace(&mut self.rig.coordinator, fresh);
        let read = self.look(|rig| (rig.consumers(), rig.described()));
        self.rig.coordinator = own;
        assert_eq!(read.0, live.0);
        // A classic group between generations is in the log as it was before.
        if ["Stable", "Empty"].contains(&&*live.1.group_state) {
            assert_eq!(read.1, live.1);
        }
    }

    /// A random disturbance, or none.
    fn disturb(&mut self) {
        match self.below(24) {
            0 | 1 if self.clients.len() < 6 => self.spawn(),
            2 if !self.clients.is_empty() => self.depart(),
            3 if !self.clients.is_empty() => {
                // Dies without a word; a static one may come back in another shape.
                let at = self.below(self.clients.len() as u64) as usize;
                self.clients.remove(at);
            }
            4 => self.rig.reload(),
            5 => self.rig.lose_next = true,
            6 if !self.clients.is_empty() => {
                // Stalls, maybe longer than its session.
                let stall = self.below(60_000) as i64;
                let at = self.below(self.clients.len() as u64) as usize;
                self.clients[at].next_ms = self.rig.now_ms + stall;
            }
            7..=12 => self.commit(),
            _ => {}
        }
    }

    fn spawn(&mut self) {
        self.names += 1;
        let classic = match self.protocols {
            Protocols::Classic => true,
            Protocols::Consumer => false,
            Protocols::Mixed => self.below(2) == 0,
        };
        let free = ["i1", "i2"].into_iter().find(|instance| {
            self.clients.iter().all(|client| client.instance.as_deref() != Some(*instance))
        });
        let instance = free.filter(|_| self.below(2) == 0).map(String::from);
        let member = if classic { String::new() } else { format!("c{}", self.names) };
        self.clients.push(Client {
            classic,
            instance,
            member,
            epoch: 0,
            phase: Phase::Out,
            owned: BTreeSet::new(),
            wanted: None,
            next_ms: self.rig.now_ms,
        });
    }

    fn depart(&mut self) {
        let at = self.below(self.clients.len() as u64) as usize;
        let client = self.clients.remove(at);
        let instance = client.instance.as_deref();
        if client.classic {
            if !client.member.is_empty() && instance.is_none() {
                self.attempt(|rig| rig.send_leave(&client.member, None));
            }
        } else if client.phase == Phase::In {
            let epoch = if instance.is_some() { -2 } else { -1 };
            let beat = Beat { member: &client.member, epoch, instance, ..BEAT };
            self.attempt(|rig| rig.send_beat(&beat));
        }
    }

    /// Sends a request; its answer may be lost with the coordinator.
    fn attempt(&mut self, send: impl FnOnce(&mut Rig) -> Token) -> Option<Reply> {
        let token = send(&mut self.rig);
        let reply = self.rig.replies.remove(&token);
        assert!(reply.is_some() || !self.rig.waits(token), "this has an answer at once");
        reply
    }

    /// Looks, without the chance of losing what it sees.
    fn look<T>(&mut self, look: impl FnOnce(&mut Rig) -> T) -> T {
        let lose = std::mem::take(&mut self.rig.lose_next);
        let seen = look(&mut self.rig);
        self.rig.lose_next = lose;
        seen
    }

    fn commit(&mut self) {
        let owners: Vec<(usize, i32)> = self
            .clients
            .iter()
            .enumerate()
            .filter(|(_, client)| client.phase == Phase::In)
            .flat_map(|(at, client)| client.owned.iter().map(move |part| (at, *part)))
            .collect();
        if owners.is_empty() {
            return;
        }
        let (at, partition) = owners[self.below(owners.len() as u64) as usize];
        let client = self.clients[at].clone();
        self.next_offset += 1;
        let offset = self.next_offset;
        let transactional = self.below(3) == 0;
        let counts = match transactional {
            true => self.commit_in_transaction(&client, partition, offset),
            false => self.commit_plainly(&client, partition, offset),
        };
        if counts {
            self.committed[partition as usize] = offset;
        }
        let expected = self.committed[partition as usize];
        let fetched = self.look(|rig| rig.fetch("t", partition, true));
        assert_eq!(fetched, (expected, ErrorCode::None));
    }

    fn commit_plainly(&mut self, client: &Client, partition: i32, offset: i64) -> bool {
        let commit = Commit {
            member: &client.member,
            instance: client.instance.as_deref(),
            generation: client.epoch,
            partition,
            offset,
            ..COMMIT
        };
        let reply = self.attempt(|rig| rig.send_commit(&commit));
        let done = matches!(&reply, Some(Reply::OffsetCommit(reply))
            if support::commit_code(reply) == ErrorCode::None);
        self.accepted[0] += usize::from(done);
        done
    }

    /// A transaction of its own, which ends one way or the other.
    fn commit_in_transaction(&mut self, client: &Client, partition: i32, offset: i64) -> bool {
        let commit = TxnCommit {
            producer: offset,
            member: &client.member,
            generation: client.epoch,
            partition,
            offset,
            ..TXN_COMMIT
        };
        let reply = self.attempt(|rig| rig.send_txn_commit(&commit, 1));
        let done = matches!(&reply, Some(Reply::TxnOffsetCommit(reply))
            if reply.topics.iter().all(|topic| topic.partitions.iter().all(|it| it.error_code == 0)));
        let commits = self.below(2) == 0;
        if done {
            let fetched = self.look(|rig| rig.fetch("t", partition, true));
            assert_eq!(fetched, (-1, ErrorCode::UnstableOffsetCommit));
            if self.below(4) == 0 {
                self.rig.reload();
            }
            self.rig.marker(offset, commits);
            self.accepted[1] += 1;
        }
        done && commits
    }

    fn act(&mut self, at: usize) {
        let client = self.clients[at].clone();
        match client.phase {
            Phase::Joining(token) => self.classic_joined(at, token),
            Phase::Syncing(token) => self.classic_synced(at, token),
            Phase::Out | Phase::In if client.next_ms > self.rig.now_ms => {}
            Phase::Out if client.classic => self.classic_join(at),
            Phase::In if client.classic => self.classic_heartbeat(at),
            Phase::Out | Phase::In => self.consumer_beat(at),
        }
    }

    fn out(&mut self, at: usize, forget: bool) {
        let client = &mut self.clients[at];
        client.phase = Phase::Out;
        client.owned.clear();
        client.wanted = None;
        client.next_ms = self.rig.now_ms + STEP_MS;
        if forget && client.classic {
            client.member.clear();
        }
        client.epoch = 0;
    }

    fn classic_join(&mut self, at: usize) {
        let client = self.clients[at].clone();
        let join = Join {
            member: &client.member,
            instance: client.instance.as_deref(),
            rebalance_ms: 15_000,
            ..JOIN
        };
        let token = self.rig.join(&join);
        self.clients[at].phase = Phase::Joining(token);
        self.classic_joined(at, token);
    }

    fn classic_joined(&mut self, at: usize, token: Token) {
        let Some(Reply::JoinGroup(reply)) = self.rig.replies.remove(&token) else {
            if !self.rig.waits(token) {
                self.out(at, false);
            }
            return;
        };
        match support::code(reply.error_code) {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                self.clients[at].member = reply.member_id.into_owned();
                return self.classic_join(at);
            }
            ErrorCode::UnknownMemberId => return self.out(at, true),
            ErrorCode::FencedInstanceId => {
                self.clients.remove(at);
                return;
            }
            ErrorCode::RebalanceInProgress => return self.out(at, false),
            other => panic!("{other:?}"),
        }
        let client = &mut self.clients[at];
        client.member = reply.member_id.clone().into_owned();
        client.epoch = reply.generation_id;
        let leads = reply.leader == reply.member_id && !reply.skip_assignment;
        let (member, instance) = (client.member.clone(), client.instance.clone());
        let generation = client.epoch;
        let ids: Vec<String> = reply.members.iter().map(|it| it.member_id.into_owned()).collect();
        let count = ids.len() as i32;
        let shares: Vec<(String, Vec<u8>)> = ids
            .into_iter()
            .enumerate()
            .map(|(place, id)| {
                let parts = (0..PARTITIONS).filter(|part| part % count == place as i32).collect();
                (id, assignment(&[("t", parts)]))
            })
            .collect();
        let parts: Vec<(&str, &[u8])> =
            shares.iter().map(|(id, share)| (&**id, share.as_slice())).collect();
        let parts = if leads { &parts[..] } else { &[] };
        let token = self.rig.sync(&member, instance.as_deref(), generation, parts);
        self.clients[at].phase = Phase::Syncing(token);
        self.classic_synced(at, token);
    }

    fn classic_synced(&mut self, at: usize, token: Token) {
        let Some(Reply::SyncGroup(reply)) = self.rig.replies.remove(&token) else {
            if !self.rig.waits(token) {
                self.out(at, false);
            }
            return;
        };
        match support::code(reply.error_code) {
            ErrorCode::None => {
                let client = &mut self.clients[at];
                client.phase = Phase::In;
                client.next_ms = self.rig.now_ms + HEARTBEAT_MS;
                client.owned = read(&reply.assignment);
            }
            ErrorCode::RebalanceInProgress => self.out(at, false),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => self.out(at, true),
            ErrorCode::FencedInstanceId => {
                self.clients.remove(at);
            }
            other => panic!("{other:?}"),
        }
    }

    fn classic_heartbeat(&mut self, at: usize) {
        let client = self.clients[at].clone();
        self.clients[at].next_ms = self.rig.now_ms + HEARTBEAT_MS;
        let instance = client.instance.as_deref();
        let beaten = self.attempt(|rig| rig.send_heartbeat(&client.member, instance, client.epoch));
        let Some(Reply::Heartbeat(reply)) = beaten else { return };
        match support::code(reply.error_code) {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress => self.out(at, false),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => self.out(at, true),
            ErrorCode::FencedInstanceId => {
                self.clients.remove(at);
            }
            other => panic!("{other:?}"),
        }
    }

    fn consumer_beat(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.next_ms = self.rig.now_ms + HEARTBEAT_MS;
        if let Some(wanted) = client.wanted.take() {
            client.owned = wanted;
        }
        let client = client.clone();
        let owned: Vec<(Uuid, Vec<i32>)> = match client.owned.is_empty() {
            true => vec![],
            false => vec![(self.topic, client.owned.iter().copied().collect())],
        };
        let instance = client.instance.as_deref();
        let beat = match client.phase {
            Phase::Out => Beat { rebalance_ms: 15_000, ..FIRST_BEAT },
            _ => Beat { epoch: client.epoch, owned: Some(&owned), ..BEAT },
        };
        let beat = Beat { member: &client.member, instance, ..beat };
        let beaten = self.attempt(|rig| rig.send_beat(&beat));
        let Some(Reply::ConsumerGroupHeartbeat(reply)) = beaten else { return };
        match support::code(reply.error_code) {
            ErrorCode::None => {}
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => return self.out(at, true),
            ErrorCode::UnreleasedInstanceId => return self.out(at, false),
            ErrorCode::GroupIdNotFound => return self.out(at, false),
            ErrorCode::FencedInstanceId => {
                self.clients.remove(at);
                return;
            }
            other => panic!("{other:?} {:?}", reply.error_message),
        }
        let takes_its_time = self.below(2) == 0;
        let client = &mut self.clients[at];
        client.phase = Phase::In;
        client.epoch = reply.member_epoch;
        if let Some(assignment) = reply.assignment {
            let parts = assignment.topic_partitions.iter().flat_map(|it| it.partitions.to_vec());
            let parts: BTreeSet<i32> = parts.collect();
            match takes_its_time {
                true => client.wanted = Some(parts),
                false => client.owned = parts,
            }
        }
    }

    /// Among those that the coordinator would still listen to, nothing is owned twice.
    fn check_owners(&mut self) {
        let group = self.look(Rig::consumers);
        if group.error_code == 0 {
            let mut seen = BTreeSet::new();
            for member in &group.members {
                let topics = member.assignment.topic_partitions.iter();
                for part in topics.flat_map(|it| it.partitions.to_vec()) {
                    assert!(seen.insert(part), "{part} is assigned twice: {group:?}");
                }
            }
            let known: Vec<String> =
                group.members.iter().map(|it| it.member_id.into_owned()).collect();
            self.check_clients(|client| known.contains(&client.member));
        } else {
            let generations: BTreeSet<i32> = self.clients.iter().map(|it| it.epoch).collect();
            for generation in generations {
                self.check_clients(|client| client.classic && client.epoch == generation);
            }
        }
    }

    fn check_clients(&self, counts: impl Fn(&Client) -> bool) {
        let mut seen = BTreeSet::new();
        for client in self.clients.iter().filter(|it| it.phase == Phase::In && counts(it)) {
            for part in &client.owned {
                assert!(seen.insert(*part), "{part} is owned twice: {:#?}", self.clients);
            }
        }
    }

    /// Everyone behaves from now on: the group must come to rest.
    fn settle(&mut self) {
        self.rig.lose_next = false;
        for client in &mut self.clients {
            client.next_ms = client.next_ms.min(self.rig.now_ms + HEARTBEAT_MS);
        }
        // The longest that anything may take: sessions of the dead, then two rebalances.
        for _ in 0..(45_000 + 4 * 15_000 + 30_000) / STEP_MS {
            self.step();
        }
        let state = match self.look(Rig::consumers) {
            group if group.error_code == 0 => group.group_state.into_owned(),
            _ => self.rig.state(),
        };
        if self.clients.is_empty() {
            assert!(["Empty", "Dead"].contains(&&*state), "{state}");
            return;
        }
        let all = || format!("{:#?}\n{:#?}", self.clients, self.rig.coordinator);
        assert_eq!(state, "Stable", "{}", all());
        assert!(self.clients.iter().all(|client| client.phase == Phase::In), "{}", all());
        let epochs: BTreeSet<i32> = self.clients.iter().map(|client| client.epoch).collect();
        assert_eq!(epochs.len(), 1, "{}", all());
        let owned: usize = self.clients.iter().map(|client| client.owned.len()).sum();
        assert_eq!(owned, PARTITIONS as usize, "{}", all());
        for (partition, offset) in self.committed.clone().into_iter().enumerate() {
            assert_eq!(self.rig.fetch("t", partition as i32, true), (offset, ErrorCode::None));
        }
    }
}

fn read(bytes: &[u8]) -> BTreeSet<i32> {
    if bytes.is_empty() {
        return BTreeSet::new();
    }
    let mut reader = Reader::new(bytes);
    let version = reader.i16().unwrap();
    let read = m::ConsumerProtocolAssignment::decode(&mut reader, version).unwrap();
    read.assigned_partitions.iter().flat_map(|it| it.partitions.to_vec()).collect()
}

fn run(protocols: Protocols) {
    let only = std::env::var("COORD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let mut accepted = [0; 2];
    for seed in seeds {
        let mut model = Model::new(seed, protocols);
        for _ in 0..3 {
            for _ in 0..200 {
                model.disturb();
                model.step();
            }
            // Where it breaks is said even if the panic is not.
            let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.settle()));
            assert!(settled.is_ok(), "COORD_SEED={seed} {protocols:?}");
        }
        accepted.iter_mut().zip(model.accepted).for_each(|(sum, more)| *sum += more);
    }
    assert!(accepted.iter().all(|count| *count > 50) || only.is_some(), "{accepted:?}");
}

#[test]
fn classic_groups_survive_anything() {
    run(Protocols::Classic);
}

#[test]
fn consumer_groups_survive_anything() {
    run(Protocols::Consumer);
}

#[test]
fn mixed_groups_survive_anything() {
    run(Protocols::Mixed);
}
