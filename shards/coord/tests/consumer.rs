//! Lives of consumer groups: who gets what, in which order, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use coord::{Config, GroupConfig};
use support::{
    BEAT, Beat, COMMIT, Commit, FIRST_BEAT, JOIN, Join, Rig, TXN_COMMIT, TxnCommit, table,
};
use wire::messages as m;
use wire::{ErrorCode, Uuid};

type HeartbeatResponse = m::ConsumerGroupHeartbeatResponse<'static>;

/// Assigns at once, so that tests need not wait.
fn hasty() -> Config {
    Config { assignment_interval_ms: 0, ..Config::default() }
}

fn parts(reply: &HeartbeatResponse) -> Vec<(Uuid, Vec<i32>)> {
    let assignment = reply.assignment.as_ref().expect("an assignment");
    assignment.topic_partitions.iter().map(|it| (it.topic_id, it.partitions.to_vec())).collect()
}

fn good(reply: HeartbeatResponse) -> HeartbeatResponse {
    assert_eq!(reply.error_code, 0, "{reply:?}");
    reply
}

#[test]
fn the_first_member_gets_everything() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    let reply = good(rig.beat(&FIRST_BEAT));
    assert_eq!((reply.member_epoch, reply.heartbeat_interval_ms), (2, 5_000));
    assert_eq!(parts(&reply), [(t, vec![0, 1, 2, 3])]);
    assert_eq!(rig.consumers().group_state, "Stable");
    let reply = good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    assert_eq!(reply.assignment, None, "nothing new");
    let all = [(t, vec![0, 1, 2, 3])];
    let full = Beat { epoch: 2, owned: Some(&all), ..FIRST_BEAT };
    assert_eq!(parts(&good(rig.beat(&full))), all, "one that says all is told all");
}

#[test]
fn a_partition_changes_hands_only_when_it_was_given_up() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    rig.beat(&FIRST_BEAT);
    let second = good(rig.beat(&Beat { member: "m2", ..FIRST_BEAT }));
    assert_eq!((second.member_epoch, parts(&second)), (3, vec![]), "all is still with the first");
    let asked = good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    assert_eq!((asked.member_epoch, parts(&asked)), (2, vec![(t, vec![0, 1])]));
    assert_eq!(rig.consumers().group_state, "Reconciling");
    let still = [(t, vec![0, 1, 2, 3])];
    let reply = good(rig.beat(&Beat { epoch: 2, owned: Some(&still), ..BEAT }));
    assert_eq!(reply.member_epoch, 2, "it has not given up yet");
    rig.reload();
    let waiting = good(rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT }));
    assert_eq!(waiting.assignment, None);
    let less = [(t, vec![0, 1])];
    let done = good(rig.beat(&Beat { epoch: 2, owned: Some(&less), ..BEAT }));
    assert_eq!(done.member_epoch, 3);
    let given = good(rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT }));
    assert_eq!(parts(&given), [(t, vec![2, 3])]);
    assert_eq!(rig.consumers().group_state, "Stable");
}

#[test]
fn a_member_that_does_not_give_up_in_time_is_fenced() {
    let mut rig = Rig::new(hasty());
    let t = rig.topics.topics["t"].id;
    rig.beat(&Beat { rebalance_ms: 20_000, ..FIRST_BEAT });
    rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    rig.beat(&Beat { epoch: 2, ..BEAT });
    for _ in 0..3 {
        rig.pass(5_000);
        rig.beat(&Beat { epoch: 2, ..BEAT });
        rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT });
    }
    rig.pass(5_000);
    let late = rig.beat(&Beat { epoch: 2, ..BEAT });
    assert_eq!(support::code(late.error_code), ErrorCode::UnknownMemberId);
    let heir = good(rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT }));
    let heir = match heir.assignment {
        Some(_) => heir,
        None => good(rig.beat(&Beat { member: "m2", epoch: heir.member_epoch, ..BEAT })),
    };
    assert_eq!(parts(&heir), [(t, vec![0, 1, 2, 3])]);
}

#[test]
fn a_silent_member_is_gone_after_its_session() {
    let mut rig = Rig::new(hasty());
    rig.beat(&FIRST_BEAT);
    rig.coordinator.set_group_config(
        support::GROUP,
        Some(GroupConfig {
            session_timeout_ms: Some(60_000),
            heartbeat_interval_ms: Some(9_000),
            assignment_interval_ms: None,
        }),
    );
    let reply = good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    assert_eq!(reply.heartbeat_interval_ms, 9_000, "the group's own setting");
    rig.pass(59_999);
    assert_eq!(rig.consumers().members.len(), 1);
    rig.pass(1);
    let group = rig.consumers();
    assert_eq!((&*group.group_state, group.group_epoch, group.assignment_epoch), ("Empty", 3, 3));
    rig.reload();
    assert_eq!(rig.consumers(), group);
}

#[test]
fn a_member_leaves_and_the_others_take_over() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    rig.beat(&FIRST_BEAT);
    rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    let left = good(rig.beat(&Beat { epoch: -1, ..BEAT }));
    assert_eq!((left.member_epoch, left.member_id.as_deref()), (-1, Some("m1")));
    let reply = good(rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT }));
    assert_eq!((reply.member_epoch, parts(&reply)), (4, vec![(t, vec![0, 1, 2, 3])]));
}

#[test]
fn a_static_member_is_away_for_a_while_and_gets_its_own_back() {
    let mut rig = Rig::or_broker(hasty());
    let first = Beat { instance: Some("i1"), ..FIRST_BEAT };
    let before = good(rig.beat(&first));
    rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    let unreleased = rig.beat(&Beat { member: "m9", ..first.clone() });
    assert_eq!(support::code(unreleased.error_code), ErrorCode::UnreleasedInstanceId);
    let away = good(rig.beat(&Beat { epoch: -2, instance: Some("i1"), ..BEAT }));
    assert_eq!(away.member_epoch, -2);
    rig.reload();
    let epoch = rig.consumers().group_epoch;
    let back = good(rig.beat(&Beat { member: "m9", ..first.clone() }));
    assert_eq!(back.member_epoch, 3, "it holds nothing yet, so there is nothing to give up");
    assert_eq!(rig.consumers().group_epoch, epoch, "no rebalance");
    let kept: usize = parts(&back).iter().map(|(_, parts)| parts.len()).sum();
    assert_eq!((kept, parts(&before)[0].1.len()), (2, 4));
    let fenced = rig.beat(&Beat { epoch: 3, instance: Some("i1"), ..BEAT });
    assert_eq!(support::code(fenced.error_code), ErrorCode::FencedInstanceId);
}

#[test]
fn epochs_are_checked() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    rig.beat(&FIRST_BEAT);
    rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
    let some = [(t, vec![0])];
    let foreign = [(Uuid([5; 16]), vec![0])];
    type Owned<'a> = Option<&'a [(Uuid, Vec<i32>)]>;
    let cases: [(i32, Owned<'_>, ErrorCode); 6] = [
        (3, None, ErrorCode::None),
        (4, None, ErrorCode::FencedMemberEpoch),
        (2, Some(&some), ErrorCode::None),
        (2, Some(&foreign), ErrorCode::FencedMemberEpoch),
        (2, None, ErrorCode::FencedMemberEpoch),
        (-3, None, ErrorCode::InvalidRequest),
    ];
    for (epoch, owned, expected) in cases {
        let reply = rig.beat(&Beat { epoch, owned, ..BEAT });
        assert_eq!(support::code(reply.error_code), expected, "{epoch} {owned:?}");
    }
    assert_eq!(good(rig.beat(&FIRST_BEAT)).member_epoch, 4, "a fenced member may begin anew");
}

#[test]
fn what_is_not_a_heartbeat_is_refused() {
    const TABLE: &str = "
        no group        => GROUP_ID_NOT_FOUND Consumer group g not found.
        no timeout      => INVALID_REQUEST RebalanceTimeoutMs must be provided in first request.
        no owned        => INVALID_REQUEST TopicPartitions must be empty when (re-)joining.
        owned           => INVALID_REQUEST TopicPartitions must be empty when (re-)joining.
        no topics       => INVALID_REQUEST Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.
        no instance     => INVALID_REQUEST InstanceId can't be null.
        empty instance  => INVALID_REQUEST InstanceId can't be empty.
        empty rack      => INVALID_REQUEST RackId can't be empty.
        no member       => INVALID_REQUEST MemberId can't be empty.
        no name         => INVALID_REQUEST MemberId can't be empty.
        assignor        => UNSUPPORTED_ASSIGNOR ServerAssignor best is not supported. Supported assignors: uniform, range.
        regex           => INVALID_REGULAR_EXPRESSION SubscribedTopicRegex `(` is not a valid regular expression:
        leave nothing   => GROUP_ID_NOT_FOUND Group g not found.
    ";
    let owned = [(Uuid([1; 16]), vec![0])];
    for (case, expected) in table(TABLE) {
        for before in [Before::Nothing, Before::Simple, Before::Empty, Before::Joining] {
            refused_heartbeat(case, expected, before, &owned);
        }
    }
}

/// What a refused heartbeat finds, and must leave as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Nothing,
    /// Offsets that nobody's member committed.
    Simple,
    /// A classic group that its members left, with offsets.
    Empty,
    /// A classic group with a member, and another one that waits to join.
    Joining,
}

impl Before {
    /// Returns the join that waits, and how the group is described.
    fn make(self, rig: &mut Rig) -> Option<coord::Token> {
        if self == Before::Nothing {
            return None;
        }
        if self == Before::Simple {
            rig.commit(&COMMIT);
            return None;
        }
        let token = rig.join(&Join { version: 3, ..JOIN });
        rig.pass(10_000);
        let id = rig.join_reply(token).member_id.into_owned();
        rig.sync(&id, None, 1, &[]);
        rig.commit(&Commit { member: &id, generation: 1, ..COMMIT });
        rig.replies.clear();
        if self == Before::Joining {
            return Some(rig.join(&Join { version: 3, ..JOIN }));
        }
        assert_eq!(rig.leave(&id, None), ErrorCode::None);
        None
    }
}

fn refused_heartbeat(case: &str, expected: &str, before: Before, owned: &[(Uuid, Vec<i32>)]) {
    let beat = match case.trim() {
        "no group" => Beat { epoch: 6, ..BEAT },
        "no timeout" => Beat { rebalance_ms: -1, ..FIRST_BEAT },
        "no owned" => Beat { owned: None, ..FIRST_BEAT },
        "owned" => Beat { owned: Some(owned), ..FIRST_BEAT },
        "no topics" => Beat { topics: None, ..FIRST_BEAT },
        "no instance" => Beat { epoch: -2, ..BEAT },
        "empty instance" => Beat { instance: Some(""), ..FIRST_BEAT },
        "empty rack" => Beat { rack: Some(""), ..FIRST_BEAT },
        "no member" => Beat { member: "", epoch: 2, ..BEAT },
        "no name" => Beat { member: "", ..FIRST_BEAT },
        "assignor" => Beat { assignor: Some("best"), ..FIRST_BEAT },
        "regex" => Beat { regex: Some("("), ..FIRST_BEAT },
        "leave nothing" => Beat { epoch: -1, ..BEAT },
        other => panic!("no case {other}"),
    };
    let mut rig = match before {
        Before::Nothing => Rig::or_broker(hasty()),
        _ => Rig::new(hasty()),
    };
    let waits = before.make(&mut rig);
    let (state, groups, records) = (rig.state(), rig.coordinator.group_count(), rig.log.len());
    let reply = rig.beat(&beat);
    let message = rig.plain(reply.error_message.as_deref().unwrap_or_default());
    // What is wrong with an expression is said in the words of who reads it.
    let message = match message.find("regular expression: ") {
        Some(at) => &message[..at + "regular expression:".len()],
        None => &message,
    };
    let code = support::code(reply.error_code);
    if before == Before::Nothing {
        assert_eq!(format!("{} {message}", code.name()), expected);
    } else {
        // Of a group that is there some are told another message.
        assert!(expected.starts_with(code.name()), "{case} {before:?}: {code:?} {message}");
    }
    assert_eq!(rig.coordinator.group_count(), groups, "{case} {before:?}: as it was");
    assert_eq!(rig.log.len(), records, "{case} {before:?}");
    assert_eq!(rig.state(), state, "{case} {before:?}");
    if before != Before::Nothing {
        assert_eq!(rig.fetch("t", 0, false), (5, ErrorCode::None), "{case} {before:?}");
    }
    if let Some(token) = waits {
        assert!(rig.waits(token), "{case}: the join still waits");
    }
}

/// A join by the other protocol that is refused leaves an empty consumer group as it is.
#[test]
fn a_refused_classic_join_leaves_an_empty_consumer_group() {
    let mut rig = Rig::new(hasty());
    rig.beat(&FIRST_BEAT);
    rig.commit(&Commit { member: "m1", generation: 2, ..COMMIT });
    rig.beat(&Beat { epoch: -1, ..BEAT });
    let (group, records) = (rig.consumers(), rig.log.len());
    assert_eq!(group.group_state, "Empty");
    let stale = rig.joined(&Join { member: "long-gone", ..JOIN });
    assert_eq!(support::code(stale.error_code), ErrorCode::UnknownMemberId);
    let eager = rig.joined(&Join { session_ms: 1, ..JOIN });
    assert_eq!(support::code(eager.error_code), ErrorCode::InvalidSessionTimeout);
    assert_eq!((rig.consumers(), rig.log.len()), (group, records));
    assert_eq!(rig.fetch("t", 0, false), (5, ErrorCode::None));
    // One that is not refused takes its place, and the offsets stay.
    let joined = rig.joined(&JOIN);
    assert_eq!(support::code(joined.error_code), ErrorCode::MemberIdRequired);
    assert_eq!(rig.state(), "Empty");
    assert_eq!(rig.fetch("t", 0, false), (5, ErrorCode::None));
}

/// Epochs of a commit, against since when the member holds the partition (KIP-1251), within a
/// transaction and without.
#[test]
fn commits_with_old_epochs_count_for_what_was_held_since() {
    // The member is in epoch 4; it got t in epoch 2 and u in epoch 3.
    const TABLE: &str = "
        t 4 => NONE NONE NONE
        t 3 => NONE NONE NONE
        t 2 => NONE NONE NONE
        t 1 => STALE_MEMBER_EPOCH ILLEGAL_GENERATION STALE_MEMBER_EPOCH
        t 5 => STALE_MEMBER_EPOCH ILLEGAL_GENERATION STALE_MEMBER_EPOCH
        u 4 => NONE NONE NONE
        u 3 => NONE NONE NONE
        u 2 => STALE_MEMBER_EPOCH ILLEGAL_GENERATION STALE_MEMBER_EPOCH
        v 4 => NONE NONE NONE
        v 3 => STALE_MEMBER_EPOCH ILLEGAL_GENERATION STALE_MEMBER_EPOCH
        # A topic that is not there is none of the group's business, nor is one partition of it.
        w 4 => UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
        w 2 => UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
    ";
    let mut rig = Rig::new(hasty());
    rig.topics.set("v", 1);
    rig.beat(&FIRST_BEAT);
    rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
    // One that nobody has: another epoch, and nothing new for the member.
    let reply = good(rig.beat(&Beat { epoch: 3, topics: Some(&["t", "u", "x"]), ..BEAT }));
    assert_eq!(reply.member_epoch, 4);
    for (case, expected) in table(TABLE) {
        let (topic, epoch) = case.trim().split_once(' ').unwrap();
        let (member, generation) = ("m1", epoch.parse().unwrap());
        let plain = rig.commit(&Commit { member, generation, topic, ..COMMIT });
        let older = TxnCommit { member, generation, topic, ..TXN_COMMIT };
        let topic_id = rig.topics.topics.get(topic).map_or(Uuid([9; 16]), |it| it.id);
        let newer = TxnCommit { topic: "", topic_id, version: 6, ..older.clone() };
        let codes = [plain, rig.txn_commit(&older), rig.txn_commit(&newer)];
        assert_eq!(codes.map(|code| code.name()).join(" "), expected, "{case}");
    }
}

/// A partition that went to another member is the other's, whatever a producer thinks that began
/// its transaction before.
#[test]
fn a_transaction_of_an_old_epoch_does_not_write_over_the_next_owner() {
    let mut rig = Rig::new(hasty());
    rig.beat(&FIRST_BEAT);
    rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    let t = rig.topics.topics["t"].id;
    let kept = [(t, vec![0, 1])];
    good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    let moved = good(rig.beat(&Beat { epoch: 2, owned: Some(&kept), ..BEAT }));
    assert_eq!(moved.member_epoch, 3);
    let heir = good(rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT }));
    assert_eq!(parts(&heir), [(t, vec![2, 3])]);
    let theirs = Commit { member: "m2", generation: 3, partition: 2, offset: 70, ..COMMIT };
    assert_eq!(rig.commit(&theirs), ErrorCode::None);
    let late = TxnCommit { member: "m1", generation: 2, partition: 2, offset: 9, ..TXN_COMMIT };
    assert_eq!(rig.txn_commit(&late), ErrorCode::IllegalGeneration);
    let own = TxnCommit { partition: 1, ..late };
    assert_eq!(rig.txn_commit(&own), ErrorCode::None);
    rig.marker(1, true);
    assert_eq!(rig.fetch("t", 2, true), (70, ErrorCode::None));
    assert_eq!(rig.fetch("t", 1, true), (9, ErrorCode::None));
}

/// One unknown topic does not make the group refuse the others.
#[test]
fn the_group_is_not_asked_about_topics_that_do_not_exist() {
    let mut rig = Rig::new(hasty());
    rig.beat(&FIRST_BEAT);
    rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
    let codes = rig.commit_topics("m1", 2, &[("t", 0), ("gone", 0), ("t", 99)]);
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes, [ErrorCode::None, unknown, unknown]);
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    let codes = rig.commit_topics("m1", 2, &[("t", 0), ("u", 0), ("gone", 0)]);
    let stale = ErrorCode::StaleMemberEpoch;
    assert_eq!(codes, [stale, stale, unknown], "one that it may not commit spoils all");
}

/// What one member says must fit into the log, and is refused before it changes anything.
#[test]
fn a_member_that_says_too_much_is_refused() {
    let config = Config { record_bytes_max: 2_000, ..hasty() };
    let mut rig = Rig::new(config);
    rig.commit(&COMMIT);
    let names: Vec<String> = (0..200).map(|n| format!("a-topic-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (records, state) = (rig.log.len(), rig.state());
    let refused = rig.beat(&Beat { topics: Some(&names), ..FIRST_BEAT });
    assert_eq!(support::code(refused.error_code), ErrorCode::UnknownServerError);
    assert_eq!((rig.log.len(), rig.state()), (records, state));
    good(rig.beat(&FIRST_BEAT));
    let refused = rig.beat(&Beat { epoch: 2, topics: Some(&names), ..BEAT });
    assert_eq!(support::code(refused.error_code), ErrorCode::UnknownServerError);
    assert_eq!(good(rig.beat(&Beat { epoch: 2, ..BEAT })).member_epoch, 2, "it is as it was");
}

/// A decision that cannot be cut and fits into no batch is an error for who brought it about; the group
/// is as it was, and goes on as soon as the decision would fit.
#[test]
fn an_assignment_that_fits_into_no_batch_is_refused_and_wedges_nobody() {
    let mut rig = Rig::new(Config { batch_bytes_max: 1_000, ..hasty() });
    good(rig.beat(&FIRST_BEAT));
    rig.topics.set("t", 400);
    rig.pass(10_000);
    let (records, state) = (rig.log.len(), rig.state());
    for again in 0..3 {
        let refused = rig.beat(&Beat { epoch: 2, ..BEAT });
        assert_eq!(support::code(refused.error_code), ErrorCode::UnknownServerError, "{again}");
        assert_eq!((rig.log.len(), rig.state()), (records, state.clone()), "{again}");
    }
    rig.reload();
    let refused = rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    assert_eq!(support::code(refused.error_code), ErrorCode::UnknownServerError);
    rig.topics.set("t", 20);
    assert_eq!(good(rig.beat(&Beat { epoch: 2, ..BEAT })).member_epoch, 3);
    rig.topics.set("t", 400);
    rig.pass(10_000);
    good(rig.beat(&Beat { epoch: -1, ..BEAT }));
}

#[test]
fn the_assignor_that_most_want_is_used() {
    let mut rig = Rig::or_broker(hasty());
    rig.beat(&FIRST_BEAT);
    assert_eq!(rig.consumers().assignor_name, "uniform");
    rig.beat(&Beat { member: "m2", assignor: Some("range"), ..FIRST_BEAT });
    let group = rig.consumers();
    assert_eq!(group.assignor_name, "range");
    let target = |id: &str| {
        let member = group.members.iter().find(|it| it.member_id == id).unwrap();
        member.target_assignment.topic_partitions.first().unwrap().partitions.to_vec()
    };
    assert_eq!((target("m1"), target("m2")), (vec![0, 1], vec![2, 3]));
}

#[test]
fn expressions_follow_the_clusters_topics() {
    let mut rig = Rig::new(hasty());
    let t = rig.topics.topics["t"].id;
    let first = Beat { topics: None, regex: Some("t|logs-.*"), ..FIRST_BEAT };
    let reply = good(rig.beat(&first));
    assert_eq!(parts(&reply), [(t, vec![0, 1, 2, 3])]);
    let logs = rig.topics.set("logs-a", 1);
    rig.pass(10_000);
    let reply = good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    assert_eq!(reply.member_epoch, 3);
    assert!(parts(&reply).contains(&(logs, vec![0])));
    rig.reload();
    assert!(good(rig.beat(&Beat { epoch: 3, ..BEAT })).assignment.is_none());
    let reply = good(rig.beat(&Beat { epoch: 3, regex: Some(""), topics: Some(&["u"]), ..BEAT }));
    let u = rig.topics.topics["u"].id;
    assert_eq!(parts(&reply), [], "the old ones are to be given up first");
    let reply = good(rig.beat(&Beat { epoch: reply.member_epoch, owned: Some(&[]), ..BEAT }));
    assert_eq!(parts(&reply), [(u, vec![0, 1])]);
}

#[test]
fn topics_that_grow_come_or_go_are_assigned_anew() {
    let mut rig = Rig::new(hasty());
    let t = rig.topics.topics["t"].id;
    let reply = good(rig.beat(&Beat { topics: Some(&["t", "later"]), ..FIRST_BEAT }));
    assert_eq!(reply.member_epoch, 2);
    rig.topics.set("other", 3);
    assert_eq!(good(rig.beat(&Beat { epoch: 2, ..BEAT })).member_epoch, 2, "not one of its own");
    rig.topics.set("t", 5);
    let reply = good(rig.beat(&Beat { epoch: 2, ..BEAT }));
    assert_eq!((reply.member_epoch, parts(&reply)), (3, vec![(t, vec![0, 1, 2, 3, 4])]));
    let later = rig.topics.set("later", 1);
    let reply = good(rig.beat(&Beat { epoch: 3, ..BEAT }));
    assert!(parts(&reply).contains(&(later, vec![0])));
    rig.topics.topics.remove("t");
    rig.topics.version += 1;
    let reply = good(rig.beat(&Beat { epoch: 4, ..BEAT }));
    assert_eq!(parts(&reply), [(later, vec![0])]);
}

#[test]
fn a_topic_that_a_member_turns_away_from_is_taken_at_once() {
    let mut rig = Rig::new(Config::default());
    let (t, u) = (rig.topics.topics["t"].id, rig.topics.topics["u"].id);
    rig.beat(&Beat { topics: Some(&["t", "u"]), ..FIRST_BEAT });
    // Too soon for a new target assignment, but what is not wanted need not wait for one.
    let reply = good(rig.beat(&Beat { epoch: 2, topics: Some(&["u"]), ..BEAT }));
    assert_eq!((reply.member_epoch, parts(&reply)), (2, vec![(u, vec![0, 1])]));
    assert_eq!(rig.consumers().members.first().unwrap().assignment.topic_partitions.len(), 1);
    rig.pass(1_000);
    let both = [(t, vec![0, 1, 2, 3]), (u, vec![0, 1])];
    let still = good(rig.beat(&Beat { epoch: 2, owned: Some(&both), ..BEAT }));
    assert_eq!(still.member_epoch, 2);
    let done = good(rig.beat(&Beat { epoch: 2, owned: Some(&both[1..]), ..BEAT }));
    assert_eq!(done.member_epoch, 3);
}

#[test]
fn expressions_are_resolved_again_but_not_all_the_time() {
    let mut rig = Rig::new(hasty());
    let first = Beat { topics: None, regex: Some("logs-.*"), ..FIRST_BEAT };
    assert_eq!(parts(&good(rig.beat(&first))), []);
    rig.topics.set("logs-a", 1);
    assert_eq!(
        good(rig.beat(&Beat { epoch: 2, ..BEAT })).member_epoch,
        2,
        "not within ten seconds"
    );
    rig.pass(10_000);
    assert_eq!(good(rig.beat(&Beat { epoch: 2, ..BEAT })).member_epoch, 3);
}

#[test]
fn assignments_keep_a_distance() {
    let mut rig = Rig::new(Config::default());
    rig.beat(&FIRST_BEAT);
    rig.pass(500);
    let second = good(rig.beat(&Beat { member: "m2", ..FIRST_BEAT }));
    assert_eq!((second.member_epoch, parts(&second)), (2, vec![]));
    assert_eq!(rig.consumers().group_state, "Assigning");
    rig.pass(500);
    let second = good(rig.beat(&Beat { member: "m2", epoch: 2, ..BEAT }));
    assert_eq!(second.member_epoch, 3);
    assert_eq!(rig.consumers().group_state, "Reconciling");
}

#[test]
fn a_full_group_takes_nobody_in() {
    let mut rig = Rig::new(Config { consumer_members_max: 1, ..hasty() });
    rig.beat(&FIRST_BEAT);
    let refused = rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
    assert_eq!(support::code(refused.error_code), ErrorCode::GroupMaxSizeReached);
    good(rig.beat(&FIRST_BEAT));
}

#[test]
fn offsets_are_committed_by_epoch() {
    let mut rig = Rig::or_broker(hasty());
    rig.beat(&FIRST_BEAT);
    let commit = Commit { member: "m1", generation: 2, ..COMMIT };
    let cases = [
        (commit.clone(), ErrorCode::None),
        (Commit { generation: 3, ..commit.clone() }, ErrorCode::StaleMemberEpoch),
        (Commit { generation: 0, ..commit.clone() }, ErrorCode::StaleMemberEpoch),
        (Commit { member: "m7", ..commit.clone() }, ErrorCode::UnknownMemberId),
        (Commit { version: 8, ..commit.clone() }, ErrorCode::UnsupportedVersion),
        (COMMIT, ErrorCode::UnknownMemberId),
    ];
    for (commit, expected) in cases {
        assert_eq!(rig.commit(&commit), expected, "{commit:?}");
    }
    // A new epoch does not take away what the member has held since before.
    rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
    assert_eq!(rig.commit(&commit), ErrorCode::None);
    let newer = Commit { topic: "u", ..commit.clone() };
    assert_eq!(rig.commit(&newer), ErrorCode::StaleMemberEpoch, "it had no part of that then");
    assert_eq!(rig.commit(&Commit { generation: 3, ..newer }), ErrorCode::None);
}

#[test]
fn offsets_of_topics_in_use_are_not_deleted_and_the_group_is_not_either() {
    let mut rig = Rig::or_broker(hasty());
    rig.beat(&FIRST_BEAT);
    for topic in ["t", "u"] {
        rig.commit(&Commit { member: "m1", generation: 2, topic, ..COMMIT });
    }
    assert_eq!(rig.delete_offset("t"), ErrorCode::GroupSubscribedToTopic);
    assert_eq!(rig.delete_offset("u"), ErrorCode::None);
    assert_eq!(rig.delete_group(), ErrorCode::NonEmptyGroup);
    rig.beat(&Beat { epoch: -1, ..BEAT });
    assert_eq!(rig.delete_group(), ErrorCode::None);
    for _ in 0..2 {
        assert_eq!((rig.coordinator.group_count(), rig.coordinator.offset_count()), (0, 0));
        rig.reload();
    }
}

#[test]
fn a_lost_answer_is_made_up_for() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    rig.beat(&FIRST_BEAT);
    // The answer with the next epoch is lost; the client sends all it knows, with the one before.
    rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
    let owned = [(t, vec![0, 1, 2, 3])];
    let full = Beat { epoch: 2, topics: Some(&["t", "u"]), owned: Some(&owned), ..FIRST_BEAT };
    let reply = good(rig.beat(&full));
    assert_eq!(reply.member_epoch, 3);
    assert_eq!(parts(&reply).len(), 2);
}

/// A static member that is away for a while has nothing to give up: it stays until its session
/// ends, and a new coordinator sees it the same way.
#[test]
fn a_member_that_is_away_is_not_fenced_for_what_it_had_to_give_up() {
    for reload in [false, true] {
        let mut rig = Rig::new(hasty());
        rig.beat(&Beat { instance: Some("i1"), rebalance_ms: 20_000, ..FIRST_BEAT });
        rig.beat(&Beat { member: "m2", ..FIRST_BEAT });
        // It is asked to give up two partitions, and goes.
        rig.beat(&Beat { epoch: 2, instance: Some("i1"), ..BEAT });
        let away = good(rig.beat(&Beat { epoch: -2, instance: Some("i1"), ..BEAT }));
        assert_eq!(away.member_epoch, -2);
        if reload {
            rig.reload();
        }
        for _ in 0..4 {
            rig.pass(10_000);
            rig.beat(&Beat { member: "m2", epoch: 3, ..BEAT });
        }
        assert_eq!(rig.consumers().members.len(), 2, "its rebalance timeout is long over");
        rig.pass(10_000);
        assert_eq!(rig.consumers().members.len(), 1, "its session is");
    }
}

/// A group that another broker wrote may have expressions that are none here: they go on standing
/// for what they stood for, and keep nobody from joining.
#[test]
fn a_foreign_expression_keeps_nobody_out() {
    let mut rig = Rig::new(hasty());
    let u = rig.topics.topics["u"].id;
    let foreign = "u(?=.)|u";
    let (group_id, member_id) = (support::GROUP, "theirs");
    let records = [
        coord::Record::ConsumerMember(
            m::ConsumerGroupMemberMetadataKey {
                group_id: group_id.into(),
                member_id: member_id.into(),
            },
            Some(m::ConsumerGroupMemberMetadataValue {
                instance_id: None,
                rack_id: None,
                server_assignor: None,
                classic_member_metadata: None,
                subscribed_topic_regex: Some(foreign.into()),
                rebalance_timeout_ms: 60_000,
                ..Default::default()
            }),
        ),
        coord::Record::ConsumerRegex(
            m::ConsumerGroupRegularExpressionKey {
                group_id: group_id.into(),
                regular_expression: foreign.into(),
            },
            Some(m::ConsumerGroupRegularExpressionValue {
                topics: vec!["u".into()].into(),
                version: 7,
                timestamp: 1,
            }),
        ),
    ];
    for record in records {
        let (key, value) = record.to_bytes().unwrap();
        rig.coordinator.replay(&key, value.as_deref(), None).unwrap();
        rig.log.push((key, value, None));
    }
    rig.reload();
    let joined = good(rig.beat(&Beat { topics: None, regex: Some("t"), ..FIRST_BEAT }));
    rig.topics.set("t2", 1);
    rig.pass(20_000);
    good(rig.beat(&Beat { epoch: joined.member_epoch, ..BEAT }));
    let group = rig.consumers();
    let theirs = group.members.iter().find(|it| it.member_id == member_id).unwrap();
    let target = theirs.target_assignment.topic_partitions.iter();
    assert_eq!(target.map(|it| it.topic_id).collect::<Vec<_>>(), [u]);
    let refused =
        rig.beat(&Beat { member: "new", topics: None, regex: Some(foreign), ..FIRST_BEAT });
    assert_eq!(support::code(refused.error_code), ErrorCode::InvalidRegularExpression);
}
