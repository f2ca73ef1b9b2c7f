//! Transactional clients as state machines that outlive the broker: what each has asked for and not been
//! answered is sent again, whatever happened in between.
//!
//! ```text
//! take the id over ──► (the group's position) ──► a transaction: add, write, offsets, end ──► the next
//!        ▲                                            │ refused: abort, or go on with another epoch,
//!        └── another instance, also beside this one ◄─┘ or do one thing more as a zombie, or go
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::Choices as Dice;

use super::calls::{Answer, Call, Caller, ELSEWHERE, Links, NOBODY, SHARDS, TIMEOUT_MS};
use super::history::{Event, Instance, Label, TxnNumber, What};
use crate::support::batch_within;

pub const PARTITIONS: usize = 3;
/// Errors that a client answers by asking again.
const TRY_AGAIN: [i16; 10] = [3, 5, 7, 14, 15, 19, 20, 51, 56, 88];
/// Errors by which a client learns that its epoch, or its transaction, is not the current one any more:
/// 45 a sequence, 46 a repetition, 47 and 90 the epoch, 48 and 120 the transaction, 49 the producer id.
const REFUSALS: [i16; 7] = [45, 46, 47, 48, 49, 90, 120];
/// Of these, those that say that the epoch or the producer id is an old one.
const FENCED: [i16; 3] = [47, 49, 90];
/// A client that is told to try again for so long has found something that is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// A copy that waits for its epoch to become an old one is lost after so long.
const STAYS_AWAY: Duration = Duration::from_secs(8);

/// What all clients share, and what outlives a crash.
pub struct Shared {
    pub dice: Dice,
    pub history: Vec<Event>,
    pub clients: Vec<Client>,
    /// The last stable position of the group that anybody was told.
    pub position: i64,
    /// Which protocols new instances speak: 0 the old one, 1 KIP-890, 2 either.
    pub protocols: u64,
    /// No new transactions and no new instances.
    pub is_over: bool,
    pub transactions: usize,
    /// Requests that were refused for good, by code.
    pub refused: BTreeMap<i16, usize>,
    /// The newest producer id and epoch that anybody was told for a transactional id.
    newest: BTreeMap<&'static str, (i64, i16)>,
    /// Copies of requests that came when their epoch was an old one, and were refused.
    pub late: usize,
}

pub type Everything = Rc<RefCell<Shared>>;

/// One instance.
pub struct Client {
    id: &'static str,
    new: bool,
    /// It consumes what it produces from.
    consumes: bool,
    producer: (i64, i16),
    /// The next sequence of each partition, in this epoch.
    sequences: BTreeMap<usize, i32>,
    /// Where it consumes next; none if it has to ask.
    position: Option<i64>,
    txn: Option<TxnNumber>,
    steps: VecDeque<Step>,
    /// Sent, and not answered.
    pending: Option<Pending>,
    /// How many more refusals it goes on after.
    tries_left: u64,
    /// A write of this epoch has failed, or nobody knows: before another transaction of the old protocol it
    /// takes another epoch.
    is_unsure: bool,
    pub is_gone: bool,
}

/// What comes next.
#[derive(Clone, Debug)]
enum Step {
    Add(Vec<usize>),
    Write {
        partition: usize,
        label: Label,
    },
    AddGroup,
    Offsets {
        upto: i64,
    },
    /// For so many milliseconds nothing is heard of it.
    Stall(u64),
    End {
        commit: bool,
    },
    /// InitProducerId with its own id and epoch (KIP-360).
    GoOn,
}

#[derive(Clone)]
struct Pending {
    caller: Caller,
    call: Call,
    whats: Vec<What>,
    attempts: u64,
    /// The length of the history when it was asked for the first time.
    sent: usize,
}

impl Client {
    fn new(id: &'static str, new: bool) -> Self {
        Client {
            id,
            new,
            consumes: id == "consumes",
            producer: NOBODY,
            sequences: BTreeMap::new(),
            position: None,
            txn: None,
            steps: VecDeque::new(),
            pending: None,
            tries_left: 4,
            is_unsure: false,
            is_gone: false,
        }
    }

    fn caller(&self) -> Caller {
        Caller { id: self.id, producer: self.producer, new: self.new }
    }

    /// It has another epoch: sequences begin anew.
    fn take(&mut self, producer: (i64, i16)) {
        if producer != self.producer {
            self.producer = producer;
            self.sequences.clear();
        }
        self.is_unsure = false;
    }
}

impl Shared {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let protocols = dice.below(3);
        Shared {
            dice,
            history: Vec::new(),
            clients: Vec::new(),
            position: 0,
            protocols,
            is_over: false,
            transactions: 0,
            refused: BTreeMap::new(),
            newest: BTreeMap::new(),
            late: 0,
        }
    }

    fn note_newest(&mut self, id: &'static str, producer: (i64, i16)) {
        let newest = self.newest.entry(id).or_insert(NOBODY);
        *newest = (*newest).max(producer);
    }

    /// Whether somebody was told a newer epoch of the id.
    fn is_old(&self, caller: Caller) -> bool {
        self.newest.get(caller.id).is_some_and(|newest| *newest > caller.producer)
    }

    /// Another instance of a transactional id.
    pub fn add_instance(&mut self, id: &'static str) -> Instance {
        let new = match self.protocols {
            2 => self.dice.one_in(2),
            protocol => protocol == 1,
        };
        let instance = self.clients.len();
        self.clients.push(Client::new(id, new));
        instance
    }

    /// Makes the next request of an instance, if it has one.
    fn next(&mut self, at: Instance) -> Next {
        let is_over = self.is_over;
        let client = &mut self.clients[at];
        if client.is_gone || (is_over && client.pending.is_none() && client.steps.is_empty()) {
            return Next::Nothing;
        }
        if client.pending.is_some() {
            return Next::Ask;
        }
        let (caller, mut whats) = (client.caller(), Vec::new());
        let call = if client.producer == NOBODY {
            Call::Init
        } else if client.consumes && client.txn.is_none() && client.position.is_none() {
            Call::Position
        } else if client.steps.is_empty() && client.is_unsure {
            Call::Init
        } else {
            if client.steps.is_empty() {
                self.begin(at);
            }
            let client = &mut self.clients[at];
            let Some(step) = client.steps.pop_front() else { return Next::Nothing };
            match step {
                Step::Stall(ms) => return Next::Sleep(ms),
                Step::GoOn => Call::Init,
                Step::Add(partitions) => {
                    whats = partitions.iter().map(|n| What::Add { partition: *n }).collect();
                    Call::Add(partitions)
                }
                Step::AddGroup => {
                    whats.push(What::AddGroup);
                    Call::AddGroup
                }
                Step::Offsets { upto } => {
                    whats.push(What::Offsets { upto });
                    Call::Offsets { upto }
                }
                Step::Write { partition, label } => {
                    whats.push(What::Write { partition, label });
                    Call::Write { partition, batch: batch(client, partition, label) }
                }
                Step::End { commit } => {
                    whats.push(What::End { commit });
                    Call::End { commit }
                }
            }
        };
        let sent = self.history.len();
        self.clients[at].pending = Some(Pending { caller, call, whats, attempts: 0, sent });
        Next::Ask
    }

    /// Plans a transaction.
    fn begin(&mut self, at: Instance) {
        let txn = self.transactions;
        self.transactions += 1;
        let dice = &mut self.dice;
        let client = &mut self.clients[at];
        let mut partitions: Vec<usize> = (0..PARTITIONS).filter(|_| dice.one_in(2)).collect();
        if partitions.is_empty() {
            partitions.push(dice.below(PARTITIONS as u64) as usize);
        }
        let count = (1 + dice.below(3)) as u32;
        let mut steps: Vec<Step> = (0..count)
            .flat_map(|round| partitions.iter().map(move |partition| (round, *partition)))
            .enumerate()
            .map(|(record, (_, partition))| {
                let input = client.position.filter(|_| client.consumes);
                let input = input.map(|from| from + record as i64);
                Step::Write { partition, label: Label { txn, record: record as u32, input } }
            })
            .collect();
        if let Some(from) = client.position.filter(|_| client.consumes) {
            let upto = from + steps.len() as i64;
            // Before or after the output, or in between.
            let place = dice.below(steps.len() as u64 + 1) as usize;
            steps.insert(place, Step::Offsets { upto });
            if !client.new {
                steps.insert(place, Step::AddGroup);
            }
        }
        if !client.new {
            steps.insert(0, Step::Add(partitions));
        }
        if dice.one_in(12) {
            let place = dice.below(steps.len() as u64 + 1) as usize;
            steps.insert(place, Step::Stall(dice.below(2 * TIMEOUT_MS as u64)));
        }
        steps.push(Step::End { commit: !dice.one_in(4) });
        client.steps = steps.into();
        client.txn = Some(txn);
        let (id, producer, bumps) = (client.id, client.producer, client.new);
        self.history.push(Event::Began { txn, id, instance: at, producer, bumps });
    }

    fn note_sent(&mut self, at: Instance) {
        let client = &mut self.clients[at];
        let Some(pending) = &mut client.pending else { return };
        pending.attempts += 1;
        if let Some(txn) = client.txn {
            self.history.extend(pending.whats.iter().map(|what| Event::Sent { txn, what: *what }));
        }
    }

    /// The request is answered for good.
    fn take_in(&mut self, at: Instance, answer: Answer, known: i64) {
        let client = &mut self.clients[at];
        let Some(pending) = client.pending.take() else { return };
        let result = if answer.code == 0 { Ok(answer.offset) } else { Err(answer.code) };
        if let Some(txn) = client.txn {
            let told = |what: &What| Event::Told { txn, what: *what, answer: result };
            self.history.extend(pending.whats.iter().map(told));
        }
        if answer.code != 0 {
            *self.refused.entry(answer.code).or_default() += 1;
            return self.refuse(at, &pending.call, answer.code);
        }
        let id = client.id;
        if matches!(pending.call, Call::Init) {
            self.note_newest(id, answer.producer);
        }
        let client = &mut self.clients[at];
        match pending.call {
            Call::Init => {
                client.take(answer.producer);
                client.txn = None;
                client.position = None;
                self.history.push(match pending.caller.producer {
                    NOBODY => Event::Took { id, instance: at },
                    _ => Event::WentOn { id, instance: at, sent: pending.sent },
                });
            }
            Call::Position => {
                client.position = Some(answer.offset);
                self.position = self.position.max(answer.offset);
                self.history.push(Event::Position { at: answer.offset, known });
            }
            Call::Write { partition, .. } => {
                let next = client.sequences.entry(partition).or_default();
                *next = if *next == i32::MAX { 0 } else { *next + 1 };
            }
            Call::Offsets { upto } => client.position = Some(upto),
            Call::End { commit } => {
                if client.new && answer.producer != NOBODY {
                    client.take(answer.producer);
                }
                // What it knows of the position is true only if that was committed.
                if commit && let Some(upto) = client.position {
                    self.position = self.position.max(upto);
                }
                if !commit || self.dice.one_in(2) {
                    client.position = None;
                }
                client.txn = None;
            }
            Call::Add(_) | Call::AddGroup => {}
        }
    }

    /// A refusal: it is no use to try again.
    fn refuse(&mut self, at: Instance, call: &Call, code: i16) {
        let dice = &mut self.dice;
        let client = &mut self.clients[at];
        client.is_unsure = true;
        client.steps.clear();
        client.position = None;
        let tries_left = client.tries_left;
        client.tries_left = tries_left.saturating_sub(1);
        if tries_left == 0 || matches!(call, Call::Init) || dice.one_in(5) {
            client.is_gone = true;
            return;
        }
        match dice.below(3) {
            // A zombie that does not understand: it begins another transaction with the epoch that is not
            // its own any more.
            0 if FENCED.contains(&code) => {
                client.txn = None;
                client.is_unsure = false;
            }
            1 if !matches!(call, Call::End { .. }) => {
                client.steps.push_back(Step::End { commit: false });
            }
            _ => {
                client.txn = None;
                client.steps.push_back(Step::GoOn);
            }
        }
    }
}

/// The same record always in the same bytes.
fn batch(client: &Client, partition: usize, label: Label) -> Vec<u8> {
    let sequence = client.sequences.get(&partition).copied().unwrap_or(0);
    batch_within(client.producer, sequence, &label.to_bytes())
}

enum Next {
    Ask,
    Sleep(u64),
    Nothing,
}

/// The life of one instance while the broker runs.
pub async fn live(everything: Everything, at: Instance) {
    let mut links = Links::default();
    let mut shard = at % usize::from(SHARDS);
    let mut trying_since = reactor::now();
    loop {
        let next = everything.borrow_mut().next(at);
        match next {
            Next::Nothing => break,
            Next::Sleep(ms) => {
                reactor::sleep(Duration::from_millis(ms)).await;
                trying_since = reactor::now();
                continue;
            }
            Next::Ask => {}
        }
        let (pending, known, patient) = {
            let mut shared = everything.borrow_mut();
            shared.note_sent(at);
            let known = shared.position;
            let patient = shared.is_over || !shared.dice.one_in(12);
            let Some(pending) = shared.clients[at].pending.clone() else { break };
            haunt(&mut shared.dice, &pending);
            if shared.dice.one_in(12) {
                come_too_late(everything.clone(), &mut shared.dice, &pending);
            }
            (pending, known, patient)
        };
        let asked = links.ask(shard, pending.caller, &pending.call, patient).await;
        let wait_ms = match asked {
            Ok(answer) if ELSEWHERE.contains(&answer.code) => {
                shard = (shard + 1) % usize::from(SHARDS);
                4
            }
            Ok(answer) if TRY_AGAIN.contains(&answer.code) => 40,
            Ok(answer) => {
                let code = answer.code;
                assert!(
                    code == 0 || REFUSALS.contains(&code),
                    "instance {at} is told {code} to {:?}",
                    pending.whats
                );
                everything.borrow_mut().take_in(at, answer, known);
                trying_since = reactor::now();
                continue;
            }
            Err(_) => 20,
        };
        let (wait_ms, comes_back) = {
            let shared = &mut *everything.borrow_mut();
            (1 + shared.dice.below(wait_ms), asked.is_ok() || !shared.dice.one_in(40))
        };
        if !comes_back {
            everything.borrow_mut().clients[at].is_gone = true;
            break;
        }
        assert!(
            reactor::now() - trying_since < PATIENCE,
            "instance {at} gets no answer to {:?}, attempt {}: {asked:?}",
            pending.whats,
            pending.attempts
        );
        reactor::sleep(Duration::from_millis(wait_ms)).await;
    }
}

/// Now and then a copy of a request is on its way for long. With the old protocol nothing but the connection
/// keeps a late copy from ending, or joining, the next transaction; a late batch is told by its sequence.
fn haunt(dice: &mut Dice, pending: &Pending) {
    let may_come_late = match pending.call {
        Call::Write { .. } => true,
        Call::Offsets { .. } | Call::End { .. } => pending.caller.new,
        Call::Init | Call::Add(_) | Call::AddGroup | Call::Position => false,
    };
    if !may_come_late || !dice.one_in(8) {
        return;
    }
    let (delay, first) = (dice.below(2_000), dice.below(2) as usize);
    let (caller, call) = (pending.caller, pending.call.clone());
    reactor::spawn(async move {
        reactor::sleep(Duration::from_millis(delay)).await;
        let mut links = Links::default();
        for shard in [first, 1 - first] {
            let _ = links.ask(shard, caller, &call, true).await;
        }
    })
    .detach();
}

/// A copy of a request stays on its way until its epoch is an old one: somebody has taken the id
/// over, or gone on with the next epoch. Then nothing may come of it, whatever the protocol. What
/// the coordinator is asked it refuses; offsets may still be taken by a leader that the last marker
/// has not reached, and end with that.
fn come_too_late(everything: Everything, dice: &mut Dice, pending: &Pending) {
    let is_refused = match pending.call {
        Call::Add(_) | Call::AddGroup => true,
        // With KIP-890 it is the repetition of an ending, if that is what has moved the epoch.
        Call::End { .. } => !pending.caller.new,
        Call::Offsets { .. } => false,
        Call::Init | Call::Write { .. } | Call::Position => return,
    };
    let (delay, first) = (dice.below(300), dice.below(2) as usize);
    let (caller, call) = (pending.caller, pending.call.clone());
    reactor::spawn(async move {
        let begin = reactor::now();
        while !everything.borrow().is_old(caller) {
            if reactor::now() - begin > STAYS_AWAY {
                return;
            }
            reactor::sleep(Duration::from_millis(50)).await;
        }
        reactor::sleep(Duration::from_millis(delay)).await;
        let mut links = Links::default();
        for shard in [first, 1 - first] {
            let Ok(answer) = links.ask(shard, caller, &call, true).await else { continue };
            assert!(!is_refused || answer.code != 0, "{caller:?} came too late with {call:?}");
            let is_told = FENCED.contains(&answer.code);
            everything.borrow_mut().late += usize::from(is_told);
        }
    })
    .detach();
}
