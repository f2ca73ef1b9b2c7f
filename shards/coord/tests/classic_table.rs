//! Every state of a classic group against every request, as Apache Kafka answers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use coord::{Config, Request};
use support::kafka::Kafka;
use support::{COMMIT, Commit, JOIN, Join, Rig, table};
use wire::ErrorCode;
use wire::messages as m;

/// A group in some state, with a leader, a follower and a static member if it has members.
struct Scene {
    rig: Rig,
    leader: String,
    follower: String,
    fixed: String,
    generation: i32,
}

const FIXED: Option<&str> = Some("inst");

fn scene(state: &str) -> Scene {
    scene_at(state, None)
}

/// At a broker, if its address is given.
fn scene_at(state: &str, broker: Option<&str>) -> Scene {
    let mut rig = Rig::new(Config::default());
    rig.kafka = broker.map(Kafka::new);
    let blank = String::new;
    if state == "none" {
        return Scene { rig, leader: blank(), follower: blank(), fixed: blank(), generation: 0 };
    }
    // Version 3 takes members without the detour.
    let leader = rig.join(&Join { version: 3, ..JOIN });
    let follower = rig.join(&Join { version: 3, ..JOIN });
    let fixed = rig.join(&Join { instance: FIXED, ..JOIN });
    rig.pass(10_000);
    let leader = rig.join_reply(leader).member_id.into_owned();
    let follower = rig.join_reply(follower).member_id.into_owned();
    let fixed = rig.join_reply(fixed);
    let generation = fixed.generation_id;
    let mut scene =
        Scene { rig, leader, follower, fixed: fixed.member_id.into_owned(), generation };
    if state == "completing" {
        return scene;
    }
    let (leader, follower, fixed) =
        (scene.leader.clone(), scene.follower.clone(), scene.fixed.clone());
    let parts: [(&str, &[u8]); 2] = [(&leader, b"L"), (&follower, b"F")];
    scene.rig.sync(&leader, None, generation, &parts);
    scene.rig.sync(&follower, None, generation, &[]);
    scene.rig.sync(&fixed, FIXED, generation, &[]);
    match state {
        "stable" => {}
        "preparing" => {
            scene.rig.join(&Join { version: 3, ..JOIN });
        }
        "empty" => {
            for (member, instance) in [(&leader, None), (&follower, None), (&fixed, FIXED)] {
                assert_eq!(scene.rig.leave(member, instance), ErrorCode::None);
            }
            scene.generation += 1;
        }
        other => panic!("no such state: {other}"),
    }
    scene.rig.replies.clear();
    scene
}

impl Scene {
    /// What the request gets: an error's name, NONE, or that it waits.
    fn ask(&mut self, request: &str) -> String {
        let Scene { rig, leader, follower, fixed, generation } = self;
        let (leader, follower, fixed, generation) =
            (leader.as_str(), follower.as_str(), fixed.as_str(), *generation);
        let other: &[(&str, &[&str])] = &[("range", &["t", "u"])];
        let foreign: &[(&str, &[&str])] = &[("sticky", &["t"])];
        let words: Vec<&str> = request.split(' ').collect();
        let join = match words[..] {
            ["join", "new"] => JOIN,
            ["join", "new", "v3"] => Join { version: 3, ..JOIN },
            ["join", "new", "static"] => Join { instance: Some("other"), ..JOIN },
            ["join", "known", "static"] => Join { instance: FIXED, ..JOIN },
            ["join", "unknown"] => Join { member: "nobody", ..JOIN },
            ["join", "fenced"] => Join { member: "nobody", instance: FIXED, ..JOIN },
            ["join", "follower"] => Join { member: follower, ..JOIN },
            ["join", "follower", "other"] => Join { member: follower, protocols: other, ..JOIN },
            ["join", "leader"] => Join { member: leader, ..JOIN },
            ["join", "foreign"] => Join { version: 3, protocols: foreign, ..JOIN },
            ["join", "type"] => Join { version: 3, protocol_type: "connect", ..JOIN },
            ["join", "nothing"] => Join { version: 3, protocols: &[], ..JOIN },
            ["join", "hasty"] => Join { session_ms: 10, ..JOIN },
            ["join", "nameless"] => Join { group: "", ..JOIN },
            _ => return self.ask_other(&words),
        };
        let _ = (fixed, generation);
        let token = rig.join(&join);
        match rig.replies.remove(&token) {
            None => "waits".into(),
            Some(coord::Reply::JoinGroup(reply)) => support::code(reply.error_code).name().into(),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn ask_other(&mut self, words: &[&str]) -> String {
        let (leader, follower) = (self.leader.clone(), self.follower.clone());
        let (fixed, generation) = (self.fixed.clone(), self.generation);
        let rig = &mut self.rig;
        let token = match words {
            ["sync", "follower"] => rig.sync(&follower, None, generation, &[]),
            ["sync", "leader"] => rig.sync(&leader, None, generation, &[]),
            ["sync", "protocol"] => {
                let request = m::SyncGroupRequest {
                    group_id: support::GROUP.into(),
                    generation_id: generation,
                    member_id: follower.into(),
                    protocol_type: Some("consumer".into()),
                    protocol_name: Some("sticky".into()),
                    ..Default::default()
                };
                rig.send(Request::SyncGroup(&request), 5)
            }
            ["sync", "nameless"] => {
                let request = m::SyncGroupRequest {
                    group_id: support::GROUP.into(),
                    generation_id: generation,
                    member_id: follower.into(),
                    ..Default::default()
                };
                rig.send(Request::SyncGroup(&request), 5)
            }
            ["sync", "old"] => rig.sync(&follower, None, generation - 1, &[]),
            ["sync", "unknown"] => rig.sync("nobody", None, generation, &[]),
            ["sync", "fenced"] => rig.sync("nobody", FIXED, generation, &[]),
            _ => return self.ask_at_once(words).name().into(),
        };
        let _ = fixed;
        match rig.replies.remove(&token) {
            None => "waits".into(),
            Some(coord::Reply::SyncGroup(reply)) => support::code(reply.error_code).name().into(),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn ask_at_once(&mut self, words: &[&str]) -> ErrorCode {
        let (follower, generation) = (self.follower.clone(), self.generation);
        let fixed = self.fixed.clone();
        let rig = &mut self.rig;
        let commit = Commit { member: &follower, generation, ..COMMIT };
        match words {
            ["heartbeat", "member"] => rig.heartbeat(&follower, None, generation),
            ["heartbeat", "static"] => rig.heartbeat(&fixed, FIXED, generation),
            ["heartbeat", "old"] => rig.heartbeat(&follower, None, generation - 1),
            ["heartbeat", "unknown"] => rig.heartbeat("nobody", None, generation),
            ["heartbeat", "fenced"] => rig.heartbeat("nobody", FIXED, generation),
            ["leave", "member"] => rig.leave(&follower, None),
            ["leave", "unknown"] => rig.leave("nobody", None),
            ["leave", "instance"] => rig.leave("", FIXED),
            ["leave", "fenced"] => rig.leave("nobody", FIXED),
            ["commit", "member"] => rig.commit(&commit),
            ["commit", "old"] => rig.commit(&Commit { generation: generation - 1, ..commit }),
            ["commit", "unknown"] => rig.commit(&Commit { member: "nobody", ..commit }),
            ["commit", "fenced"] => {
                rig.commit(&Commit { member: "nobody", instance: FIXED, ..commit })
            }
            ["commit", "simple"] => rig.commit(&COMMIT),
            ["commit", "v8"] => rig.commit(&Commit { version: 8, ..commit }),
            ["commit", "large"] => rig.commit(&Commit { metadata: &"x".repeat(4097), ..commit }),
            ["commit", "topic"] => rig.commit(&Commit { topic: "no", ..commit }),
            ["fetch"] => rig.fetch("t", 0, false).1,
            ["offset-delete", "subscribed"] => rig.delete_offset("t"),
            ["offset-delete", "other"] => rig.delete_offset("u"),
            ["offset-delete", "unknown"] => rig.delete_offset("no"),
            ["delete"] => rig.delete_group(),
            ["describe"] => support::code(rig.described().error_code),
            other => panic!("no such request: {other:?}"),
        }
    }
}

/// Columns: no group, Empty, PreparingRebalance, CompletingRebalance, Stable.
const TABLE: &str = "
    join new              => MEMBER_ID_REQUIRED MEMBER_ID_REQUIRED MEMBER_ID_REQUIRED MEMBER_ID_REQUIRED MEMBER_ID_REQUIRED
    join new v3           => waits waits waits waits waits
    join new static       => waits waits waits waits waits
    join known static     => waits waits waits waits NONE
    join unknown          => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    join fenced           => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID
    join follower         => MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID waits NONE NONE
    join follower other   => MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID waits waits waits
    join leader           => MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID waits NONE waits
    join foreign          => waits waits INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL
    join type             => waits waits INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL
    join nothing          => INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL
    join hasty            => INVALID_SESSION_TIMEOUT INVALID_SESSION_TIMEOUT INVALID_SESSION_TIMEOUT INVALID_SESSION_TIMEOUT INVALID_SESSION_TIMEOUT
    join nameless         => INVALID_GROUP_ID INVALID_GROUP_ID INVALID_GROUP_ID INVALID_GROUP_ID INVALID_GROUP_ID
    sync follower         => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS waits NONE
    sync leader           => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS NONE NONE
    sync old              => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID ILLEGAL_GENERATION ILLEGAL_GENERATION ILLEGAL_GENERATION
    sync protocol         => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL
    sync nameless         => INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_GROUP_PROTOCOL
    sync unknown          => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    sync fenced           => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID
    heartbeat member      => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS NONE NONE
    heartbeat static      => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS NONE NONE
    heartbeat old         => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID ILLEGAL_GENERATION ILLEGAL_GENERATION ILLEGAL_GENERATION
    heartbeat unknown     => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    heartbeat fenced      => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID
    leave member          => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID NONE NONE NONE
    leave unknown         => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    leave instance        => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID NONE NONE NONE
    leave fenced          => UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID
    commit member         => GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID NONE REBALANCE_IN_PROGRESS NONE
    commit v8             => ILLEGAL_GENERATION UNKNOWN_MEMBER_ID NONE REBALANCE_IN_PROGRESS NONE
    commit old            => NONE UNKNOWN_MEMBER_ID ILLEGAL_GENERATION ILLEGAL_GENERATION ILLEGAL_GENERATION
    commit unknown        => GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    commit fenced         => GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID FENCED_INSTANCE_ID
    commit simple         => NONE NONE UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID
    commit large          => GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID OFFSET_METADATA_TOO_LARGE REBALANCE_IN_PROGRESS OFFSET_METADATA_TOO_LARGE
    commit topic          => UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION
    fetch                 => NONE NONE NONE NONE NONE
    offset-delete subscribed => GROUP_ID_NOT_FOUND NONE GROUP_SUBSCRIBED_TO_TOPIC GROUP_SUBSCRIBED_TO_TOPIC GROUP_SUBSCRIBED_TO_TOPIC
    offset-delete other   => GROUP_ID_NOT_FOUND NONE NONE NONE NONE
    offset-delete unknown => GROUP_ID_NOT_FOUND UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION
    delete                => GROUP_ID_NOT_FOUND NONE NON_EMPTY_GROUP NON_EMPTY_GROUP NON_EMPTY_GROUP
    describe              => GROUP_ID_NOT_FOUND NONE NONE NONE NONE
";

#[test]
fn every_state_answers_every_request_as_kafka_does() {
    let states = ["none", "empty", "preparing", "completing", "stable"];
    let mut wrong = Vec::new();
    for (request, answers) in table(TABLE) {
        let answers: Vec<&str> = answers.split_whitespace().collect();
        assert_eq!(answers.len(), states.len(), "{request}");
        for (state, expected) in states.iter().zip(answers) {
            let got = scene(state).ask(request.trim());
            if got != expected {
                wrong.push(format!("{state}: {}: {got}, not {expected}", request.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table itself against a broker, if `COORD_KAFKA` names one (see `support/kafka.rs`).
#[test]
#[ignore = "needs a broker: COORD_KAFKA=host:port, and --include-ignored"]
fn a_broker_answers_the_table_too() {
    let broker = std::env::var("COORD_KAFKA").expect("COORD_KAFKA=host:port");
    Kafka::new(&broker).warm_up();
    let states = ["none", "empty", "preparing", "completing", "stable"];
    let mut cases = Vec::new();
    for (request, answers) in table(TABLE) {
        for (state, expected) in states.iter().zip(answers.split_whitespace()) {
            cases.push((request.trim(), *state, expected));
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((request, state, expected)) = cases.get(at) else { return };
                    let got = scene_at(state, Some(&broker)).ask(request);
                    if got != *expected {
                        let line = format!("{state}: {request}: {got}, not {expected}");
                        wrong.lock().unwrap().push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_states_are_what_they_are_called() {
    let names = [
        ("none", "Dead"),
        ("empty", "Empty"),
        ("preparing", "PreparingRebalance"),
        ("completing", "CompletingRebalance"),
        ("stable", "Stable"),
    ];
    for (state, name) in names {
        assert_eq!(scene(state).rig.state(), name);
    }
}
