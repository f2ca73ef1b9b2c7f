//! Every state of a transactional id against every request, as Apache Kafka answers.
//!
//! `e` is the epoch that the coordinator has. Answers are error codes. One that names a producer
//! shows its epoch against `e`: `ok+1` is the same producer id with the next epoch, `ok=0` a new
//! one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod txn_support;

use coord::Producer;
use coord::txn::TransactionVersion;
use txn_support::kafka::Kafka;
use txn_support::{ADD, Add, HELD, ID, INIT, Init, NOBODY, Rig, at_epoch, code};
use wire::ErrorCode;
use wire::messages as m;

/// A transactional id in some state.
struct Scene {
    rig: Rig,
    /// What the coordinator has.
    producer: Producer,
    /// The topic that is part of the transaction, if one is open or ending.
    topic: &'static str,
}

/// The versions of AddPartitionsToTxn and EndTxn that the owner speaks.
#[derive(Clone, Copy)]
struct Speaks {
    add: i16,
    end: i16,
}

const NEW: Speaks = Speaks { add: 5, end: 5 };
const OLD: Speaks = Speaks { add: 3, end: 4 };
const STATES: [&str; 7] = [
    "none",
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
];

fn scene(state: &str, speaks: Speaks, broker: Option<&str>) -> Scene {
    let mut rig = Rig::new(TransactionVersion::V2);
    rig.kafka = broker.map(Kafka::new);
    let topic = if state.starts_with("Prepare") { HELD } else { "t" };
    if state == "none" {
        return Scene { rig, producer: Producer { id: 99_999, epoch: 5 }, topic };
    }
    let mut producer = rig.owner();
    for _ in 0..4 {
        producer = rig.owner();
    }
    if state != "Empty" {
        rig.must_add(producer, topic, 0, speaks.add);
    }
    if !["Empty", "Ongoing"].contains(&state) {
        let (code, _) = rig.end(producer, state.ends_with("Commit"), speaks.end);
        assert_eq!(code, ErrorCode::None);
    }
    let producer = rig.settle(state);
    Scene { rig, producer, topic }
}

impl Scene {
    fn ask(&mut self, request: &str) -> String {
        let words: Vec<&str> = request.split(' ').collect();
        match words[0] {
            "init" => self.ask_init(&words[1..]),
            "add" | "verify" | "offsets" => self.ask_to_add(&words),
            "end" => self.ask_to_end(&words[1..]),
            "describe" => {
                let described = self.rig.describe(if words.len() > 1 { "" } else { ID });
                shown(described.error_code, &described.transaction_state)
            }
            "list" => {
                let pattern = if words.len() > 1 { "(" } else { ID };
                let request = m::ListTransactionsRequest {
                    transactional_id_pattern: Some(pattern.into()),
                    duration_filter: -1,
                    ..Default::default()
                };
                let listed = self.rig.list(&request);
                let found = listed.transaction_states.first();
                let state = found.map(|it| it.transaction_state.into_owned());
                shown(listed.error_code, &state.unwrap_or_default())
            }
            other => panic!("no such request: {other:?}"),
        }
    }

    /// The producer that a request claims to come from.
    fn claimed(&self, word: &str) -> Producer {
        let Producer { id, epoch } = self.producer;
        match word {
            "e" => self.producer,
            "e-1" => at_epoch(self.producer, epoch - 1),
            "e-2" => at_epoch(self.producer, epoch - 2),
            "e+1" => at_epoch(self.producer, epoch + 1),
            "other" => Producer { id: id + 10_000, epoch },
            "half" => Producer { id, epoch: -1 },
            other => panic!("no such producer: {other}"),
        }
    }

    fn with_producer(&self, (code, producer): (ErrorCode, Producer)) -> String {
        let steps = producer.epoch.wrapping_sub(self.producer.epoch);
        match producer {
            NOBODY => short(code),
            _ if self.producer.id == 99_999 => format!("{}={}", short(code), producer.epoch),
            _ if producer.id != self.producer.id => format!("{}*", short(code)),
            _ => format!("{}+{steps}", short(code)),
        }
    }

    fn ask_init(&mut self, words: &[&str]) -> String {
        let init = match words {
            [] => INIT,
            ["nameless"] => Init { id: "", ..INIT },
            ["hasty"] => Init { timeout_ms: 0, ..INIT },
            ["slow"] => Init { timeout_ms: 900_001, ..INIT },
            [claim] => Init { expected: self.claimed(claim), ..INIT },
            [claim, "v3"] => Init { expected: self.claimed(claim), version: 3, ..INIT },
            other => panic!("no such request: {other:?}"),
        };
        let answer = self.rig.init(&init);
        self.with_producer(answer)
    }

    fn ask_to_add(&mut self, words: &[&str]) -> String {
        let producer = self.claimed(words[1]);
        if words[0] == "offsets" {
            let version = words.get(2).map_or(4, |version| version[1..].parse().unwrap());
            return short(self.rig.add_offsets(producer, version));
        }
        let verify = words[0] == "verify";
        let topic = self.topic;
        let same = [(topic, 0)];
        let add = Add { producer, verify, partitions: &[("t", 1)], ..ADD };
        let add = match words[2..] {
            [] => add,
            ["same"] => Add { partitions: &same, ..add },
            ["both"] => Add { partitions: &[("t", 1), ("t", 0)], ..add },
            ["unknown"] => Add { partitions: &[("t", 1), ("no", 0)], ..add },
            ["nameless"] => Add { id: "", ..add },
            ["v3"] => Add { version: 3, ..add },
            ["v3", "unknown"] => Add { version: 3, partitions: &[("t", 1), ("t", 9)], ..add },
            ["v1"] => Add { version: 1, ..add },
            ref other => panic!("no such request: {other:?}"),
        };
        let codes = self.rig.add(&add);
        let names: Vec<String> = codes.into_iter().map(short).collect();
        names.join("/")
    }

    fn ask_to_end(&mut self, words: &[&str]) -> String {
        let commit = words[0] == "commit";
        let version = words.get(2).map_or(5, |version| version[1..].parse().unwrap());
        let answer = self.rig.end(self.claimed(words[1]), commit, version);
        self.with_producer(answer)
    }
}

fn short(code: ErrorCode) -> String {
    match code {
        ErrorCode::None => "ok".into(),
        error => error.code().to_string(),
    }
}

fn shown(error: i16, state: &str) -> String {
    match code(error) {
        ErrorCode::None if state.is_empty() => "nothing".into(),
        ErrorCode::None => state.into(),
        error => short(error),
    }
}

/// Asks each request in each state; gives what differs from the table. An answer of the form
/// `ours|theirs` is one of the differences that coord's README lists.
fn differences(table: &str, speaks: Speaks, broker: Option<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let (request, answers) = line.split_once("=>").unwrap();
        let answers: Vec<&str> = answers.split_whitespace().collect();
        let got: Vec<String> =
            STATES.iter().map(|state| scene(state, speaks, broker).ask(request.trim())).collect();
        let expected = answers.iter().map(|answer| {
            let (ours, theirs) = answer.split_once('|').unwrap_or((answer, answer));
            if broker.is_some() { theirs } else { ours }
        });
        if !expected.eq(got.iter()) {
            wrong.push(format!("    {:<18} => {}", request.trim(), got.join(" ")));
        }
    }
    wrong
}

#[test]
fn every_state_answers_every_request_as_kafka_does() {
    let wrong = differences(NEW_TABLE, NEW, None);
    assert!(wrong.is_empty(), "it is:\n{}", wrong.join("\n"));
}

#[test]
fn every_state_of_the_old_protocol_too() {
    let wrong = differences(OLD_TABLE, OLD, None);
    assert!(wrong.is_empty(), "it is:\n{}", wrong.join("\n"));
}

/// The tables themselves against a broker, if `COORD_KAFKA` names one (see `txn_support/kafka.rs`).
#[test]
#[ignore = "needs a broker: COORD_KAFKA=host:port, and --include-ignored"]
fn a_broker_answers_the_tables_too() {
    let broker = std::env::var("COORD_KAFKA").expect("COORD_KAFKA=host:port");
    let mut wrong = differences(NEW_TABLE, NEW, Some(&broker));
    wrong.push("old:".into());
    wrong.extend(differences(OLD_TABLE, OLD, Some(&broker)));
    assert!(wrong.len() == 1, "it is:\n{}", wrong.join("\n"));
}

/// Columns: no such id, Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort;
/// with KIP-890: the partition was added by its leader, the transaction ended with version 5.
const NEW_TABLE: &str = "
    init                => ok=0    ok+1    51      51      51      ok+1    ok+1
    init e              => ok=0    ok+1    51      51      51      ok+1    ok+1
    init e-1            => ok=0    90      90|51   51      51      ok+0    ok+0
    init e-1 v3         => ok=0    47      47|51   51      51      ok+0    ok+0
    init e-2            => ok=0    90      90|51   51      51      90      90
    init e+1            => ok=0    90      90|51   51      51      90      90
    init other          => ok=0    90      90      51      51      90      90
    init half           => 42      42      42      42      42      42      42
    init nameless       => 42      42      42      42      42      42      42
    init hasty          => 50      50      50      50      50      50      50
    init slow           => 50      50      50      50      50      50      50
    add e               => 49      ok      ok      51      51      ok      ok
    add e same          => 49      ok      ok      51      51      ok      ok
    add e both          => 49/49   ok/ok   ok/ok   51/51   51/51   ok/ok   ok/ok
    add e unknown       => 3/55    3/55    3/55    3/55    3/55    3/55    3/55
    add e nameless      => 42      42      42      42      42      42      42
    add e-1             => 49      90      90      51      51      90      90
    add e+1             => 49      90      90      51      51      90      90
    add other           => 49      49      49      51      51      49      49
    add e v3            => 49      ok      ok      51      51      ok      ok
    add e v3 unknown    => 3/55    3/55    3/55    3/55    3/55    3/55    3/55
    add e-1 v3          => 49      90      90      51      51      90      90
    add e-1 v1          => 49      47      47      51      51      47      47
    verify e            => 49      120     120     51      51      120     120
    verify e same       => 49      120     ok      51      51      120     120
    verify e both       => 49/49   120/120 ok/120  51/51   51/51   120/120 120/120
    verify e-1          => 49      90      90      90      90      90      90
    verify e+1          => 49      90      90      90      90      90      90
    verify other        => 49      49      49      49      49      49      49
    offsets e           => 49      ok      ok      51      51      ok      ok
    offsets e-1         => 49      90      90      51      51      90      90
    offsets e-1 v1      => 49      47      47      51      51      47      47
    offsets other       => 49      49      49      51      51      49      49
    end commit e        => 49      48      ok+1    51      51      48      48
    end abort e         => 49      ok+1    ok+1    51      51      ok+1    ok+1
    end commit e-1      => 49      90      90      51      51      ok+0    48
    end abort e-1       => 49      90      90      51      51      48      ok+0
    end commit e-2      => 49      90      90      51      51      90      90
    end abort e-2       => 49      90      90      51      51      90      90
    end abort e+1       => 49      90      90      51      51      90      90
    end commit other    => 49      49      49      51      51      49      49
    end abort other     => 49      49      49      51      51      49      49
    end commit e v4     => 49      48      ok      51      51      ok      48
    end abort e v4      => 49      48      ok      51      51      48      ok
    end commit e-1 v4   => 49      90      90      90      90      90      90
    end abort e-1 v4    => 49      90      90      90      90      90      90
    end abort e+1 v4    => 49      90      90      90      90      90      90
    end abort e-1 v1    => 49      47      47      47      47      47      47
    end commit other v4 => 49      49      49      49      49      49      49
    describe            => 105            Empty          Ongoing        PrepareCommit  PrepareAbort   CompleteCommit CompleteAbort
    describe nameless   => 42      42      42      42      42      42      42
    list                => nothing        Empty          Ongoing        PrepareCommit  PrepareAbort   CompleteCommit CompleteAbort
    list pattern        => 128     128     128     128     128     128     128
";

/// Columns: no such id, Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort;
/// before KIP-890: the client added the partition, the transaction ended with version 4.
const OLD_TABLE: &str = "
    init                => ok=0    ok+1    51      51      51      ok+1    ok+1
    init e              => ok=0    ok+1    51      51      51      ok+1    ok+1
    init e-1            => ok=0    90      90|51   51      51      90      90
    init e-1 v3         => ok=0    47      47|51   51      51      47      47
    init e-2            => ok=0    90      90|51   51      51      90      90
    init e+1            => ok=0    90      90|51   51      51      90      90
    init other          => ok=0    90      90      51      51      90      90
    init half           => 42      42      42      42      42      42      42
    init nameless       => 42      42      42      42      42      42      42
    init hasty          => 50      50      50      50      50      50      50
    init slow           => 50      50      50      50      50      50      50
    add e               => 49      ok      ok      51      51      ok      ok
    add e same          => 49      ok      ok      51      51      ok      ok
    add e both          => 49/49   ok/ok   ok/ok   51/51   51/51   ok/ok   ok/ok
    add e unknown       => 3/55    3/55    3/55    3/55    3/55    3/55    3/55
    add e nameless      => 42      42      42      42      42      42      42
    add e-1             => 49      90      90      51      51      90      90
    add e+1             => 49      90      90      51      51      90      90
    add other           => 49      49      49      51      51      49      49
    add e v3            => 49      ok      ok      51      51      ok      ok
    add e v3 unknown    => 3/55    3/55    3/55    3/55    3/55    3/55    3/55
    add e-1 v3          => 49      90      90      51      51      90      90
    add e-1 v1          => 49      47      47      51      51      47      47
    verify e            => 49      120     120     51      51      120     120
    verify e same       => 49      120     ok      51      51      120     120
    verify e both       => 49/49   120/120 ok/120  51/51   51/51   120/120 120/120
    verify e-1          => 49      90      90      90      90      90      90
    verify e+1          => 49      90      90      90      90      90      90
    verify other        => 49      49      49      49      49      49      49
    offsets e           => 49      ok      ok      51      51      ok      ok
    offsets e-1         => 49      90      90      51      51      90      90
    offsets e-1 v1      => 49      47      47      51      51      47      47
    offsets other       => 49      49      49      51      51      49      49
    end commit e        => 49      48      ok+1    51      51      48      48
    end abort e         => 49      ok+1    ok+1    51      51      ok+1    ok+1
    end commit e-1      => 49      90      90      51      51      90|ok+0 90|48
    end abort e-1       => 49      90      90      51      51      90|48   90|ok+0
    end commit e-2      => 49      90      90      51      51      90      90
    end abort e-2       => 49      90      90      51      51      90      90
    end abort e+1       => 49      90      90      51      51      90      90
    end commit other    => 49      49      49      51      51      49      49
    end abort other     => 49      49      49      51      51      49      49
    end commit e v4     => 49      48      ok      51      51      ok      48
    end abort e v4      => 49      48      ok      51      51      48      ok
    end commit e-1 v4   => 49      90      90      90      90      90      90
    end abort e-1 v4    => 49      90      90      90      90      90      90
    end abort e+1 v4    => 49      90      90      90      90      90      90
    end abort e-1 v1    => 49      47      47      47      47      47      47
    end commit other v4 => 49      49      49      49      49      49      49
    describe            => 105            Empty          Ongoing        PrepareCommit  PrepareAbort   CompleteCommit CompleteAbort
    describe nameless   => 42      42      42      42      42      42      42
    list                => nothing        Empty          Ongoing        PrepareCommit  PrepareAbort   CompleteCommit CompleteAbort
    list pattern        => 128     128     128     128     128     128     128
";
