//! Lives of classic groups: joins, rebalances, static members, what runs out, what a restart keeps.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use coord::{Config, Reply, Request};
use support::{COMMIT, Commit, JOIN, Join, Rig};
use wire::ErrorCode;
use wire::messages as m;

/// A stable group of some dynamic members, the first of which leads.
fn stable(rig: &mut Rig, count: usize) -> Vec<String> {
    let tokens: Vec<_> = (0..count).map(|_| rig.join(&Join { version: 3, ..JOIN })).collect();
    rig.pass(10_000);
    let joined: Vec<_> = tokens.into_iter().map(|token| rig.join_reply(token)).collect();
    let ids: Vec<String> = joined.iter().map(|it| it.member_id.clone().into_owned()).collect();
    let parts: Vec<(&str, &[u8])> = ids.iter().map(|id| (&**id, id.as_bytes())).collect();
    let generation = joined[0].generation_id;
    for id in ids.iter().rev() {
        rig.sync(id, None, generation, &parts);
    }
    rig.replies.clear();
    assert_eq!(rig.state(), "Stable");
    ids
}

#[test]
fn a_first_join_is_told_its_id_and_the_second_waits_for_others() {
    let mut rig = Rig::or_broker(Config::default());
    let first = rig.joined(&JOIN);
    assert_eq!(support::code(first.error_code), ErrorCode::MemberIdRequired);
    let id = first.member_id.into_owned();
    assert!(id.starts_with("client-") && id.len() == "client-".len() + 36, "{id}");
    let waiting = rig.join(&Join { member: &id, ..JOIN });
    rig.pass(2_999);
    assert!(!rig.replies.contains_key(&waiting), "the initial delay is not over");
    rig.pass(1);
    let joined = rig.join_reply(waiting);
    assert_eq!((joined.generation_id, &*joined.leader), (1, &*id));
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(joined.members.len(), 1);
    assert!(!joined.skip_assignment);
}

#[test]
fn newcomers_put_off_the_first_generation_up_to_the_rebalance_timeout() {
    let mut rig = Rig::new(Config::default());
    let join = Join { version: 3, rebalance_ms: 7_000, ..JOIN };
    let first = rig.join(&join);
    for _ in 0..2 {
        rig.pass(2_500);
        rig.join(&join);
    }
    // Steps end at 3 s and 6 s; what is left to the timeout of 7 s is one more second.
    rig.pass(1_999);
    assert!(!rig.replies.contains_key(&first));
    rig.pass(1);
    assert_eq!(rig.join_reply(first).members.len(), 3);
}

#[test]
fn the_protocol_that_most_want_wins() {
    let mut rig = Rig::or_broker(Config::default());
    let topics: &[&str] = &["t"];
    let votes: [&[(&str, &[&str])]; 3] = [
        &[("roundrobin", topics), ("range", topics), ("own", topics)],
        &[("range", topics), ("roundrobin", topics)],
        &[("range", topics), ("roundrobin", topics), ("own", topics)],
    ];
    let tokens = votes.map(|protocols| rig.join(&Join { protocols, version: 3, ..JOIN }));
    rig.pass(10_000);
    for token in tokens {
        assert_eq!(rig.join_reply(token).protocol_name.as_deref(), Some("range"));
    }
}

#[test]
fn a_leader_that_assigns_badly_harms_nobody_else() {
    let mut rig = Rig::or_broker(Config::default());
    let tokens = [0, 1].map(|_| rig.join(&Join { version: 3, ..JOIN }));
    rig.pass(10_000);
    let [leader, follower] = tokens.map(|token| rig.join_reply(token).member_id.into_owned());
    let waiting = rig.sync(&follower, None, 1, &[]);
    let own = rig.sync(&leader, None, 1, &[("invented", b"x"), (&leader, b"garbage")]);
    assert_eq!(&*rig.sync_reply(own).assignment, b"garbage");
    let reply = rig.sync_reply(waiting);
    assert_eq!((reply.error_code, &*reply.assignment), (0, &b""[..]), "forgotten, so empty");
    assert_eq!(rig.described().members.len(), 2, "nobody was invented");
    rig.reload();
    assert_eq!(rig.state(), "Stable");
    assert_eq!(rig.heartbeat(&follower, None, 1), ErrorCode::None);
}

#[test]
fn stragglers_are_left_behind_at_the_rebalance_timeout() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 3);
    let newcomer = rig.join(&Join { version: 3, ..JOIN });
    // One comes again, one only says that it lives, one is silent.
    let again = rig.join(&Join { member: &ids[1], version: 3, ..JOIN });
    for _ in 0..12 {
        rig.pass(5_000);
        rig.heartbeat(&ids[0], None, 1);
    }
    let again = rig.join_reply(again);
    assert_eq!(again.generation_id, 2);
    assert_eq!(&*again.leader, &*ids[1], "the leader did not come, the first who did leads");
    assert_eq!(again.members.len(), 2);
    assert_eq!(rig.join_reply(newcomer).generation_id, 2);
    assert_eq!(rig.heartbeat(&ids[0], None, 1), ErrorCode::UnknownMemberId);
}

#[test]
fn members_that_never_sync_are_thrown_out() {
    let mut rig = Rig::new(Config::default());
    let tokens = [0, 1].map(|_| rig.join(&Join { version: 3, rebalance_ms: 9_000, ..JOIN }));
    rig.pass(9_000);
    let [leader, follower] = tokens.map(|token| rig.join_reply(token).member_id.into_owned());
    let waiting = rig.sync(&follower, None, 1, &[]);
    rig.pass(5_000);
    rig.heartbeat(&leader, None, 1);
    rig.pass(4_000);
    let reply = rig.sync_reply(waiting);
    assert_eq!(support::code(reply.error_code), ErrorCode::RebalanceInProgress);
    assert_eq!(rig.heartbeat(&leader, None, 1), ErrorCode::UnknownMemberId);
    assert_eq!(rig.heartbeat(&follower, None, 1), ErrorCode::RebalanceInProgress);
    let again = rig.join(&Join { member: &follower, version: 3, ..JOIN });
    assert_eq!(&*rig.join_reply(again).leader, &*follower);
}

#[test]
fn a_session_that_runs_out_starts_a_rebalance() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 2);
    rig.pass(6_000);
    assert_eq!(rig.heartbeat(&ids[0], None, 1), ErrorCode::None);
    rig.pass(5_000);
    assert_eq!(rig.state(), "PreparingRebalance");
    assert_eq!(rig.heartbeat(&ids[1], None, 1), ErrorCode::UnknownMemberId);
    rig.pass(10_000);
    assert_eq!(rig.state(), "Empty", "the other one was silent too");
    rig.reload();
    assert_eq!(rig.state(), "Empty");
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 1);
    for _ in 0..5 {
        rig.pass(9_000);
        let commit = Commit { member: &ids[0], generation: 1, ..COMMIT };
        assert_eq!(rig.commit(&commit), ErrorCode::None);
    }
    rig.pass(10_000);
    assert_eq!(rig.state(), "Empty");
}

#[test]
fn an_id_that_was_asked_for_and_not_used_is_forgotten() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 1);
    let asked = rig.joined(&JOIN).member_id.into_owned();
    let again = rig.join(&Join { member: &ids[0], version: 3, ..JOIN });
    assert!(!rig.replies.contains_key(&again), "the one that asked is waited for");
    rig.pass(10_000);
    assert_eq!(rig.join_reply(again).generation_id, 2);
    let late = rig.joined(&Join { member: &asked, ..JOIN });
    assert_eq!(support::code(late.error_code), ErrorCode::UnknownMemberId);
}

/// A stable group of static members i0, i1, ...; the first leads.
fn fixed(rig: &mut Rig, count: usize) -> Vec<(String, String)> {
    let names: Vec<String> = (0..count).map(|at| format!("i{at}")).collect();
    let tokens: Vec<_> =
        names.iter().map(|name| rig.join(&Join { instance: Some(name), ..JOIN })).collect();
    rig.pass(10_000);
    let ids = tokens.into_iter().map(|token| rig.join_reply(token).member_id.into_owned());
    let members: Vec<(String, String)> = names.into_iter().zip(ids.collect::<Vec<_>>()).collect();
    let parts: Vec<(&str, &[u8])> =
        members.iter().map(|(name, id)| (&**id, name.as_bytes())).collect();
    for (name, id) in members.iter().rev() {
        rig.sync(id, Some(name), 1, &parts);
    }
    rig.replies.clear();
    members
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut rig = Rig::or_broker(Config::default());
    let members = fixed(&mut rig, 2);
    for (version, skips) in [(9, false), (5, false)] {
        let (name, old) = &members[1];
        let back = rig.joined(&Join { instance: Some(name), version, ..JOIN });
        let id = back.member_id.clone().into_owned();
        assert_ne!(id, *old);
        assert!(id.starts_with("i1-"));
        assert_eq!((back.error_code, back.generation_id), (0, 1));
        assert_eq!(back.skip_assignment, skips);
        assert!(back.members.is_empty());
        assert_eq!(rig.heartbeat(old, Some(name), 1), ErrorCode::FencedInstanceId);
        assert_eq!(rig.heartbeat(&id, Some(name), 1), ErrorCode::None);
        rig.reload();
        assert_eq!(rig.heartbeat(old, Some(name), 1), ErrorCode::FencedInstanceId, "persisted");
        let token = rig.sync(&id, Some(name), 1, &[]);
        assert_eq!(&*rig.sync_reply(token).assignment, b"i1", "it has what it had");
    }
    assert_eq!(rig.state(), "Stable");
}

#[test]
fn a_static_leader_that_comes_back_is_told_to_leave_the_assignment() {
    let mut rig = Rig::or_broker(Config::default());
    let members = fixed(&mut rig, 2);
    let (name, old) = &members[0];
    let back = rig.joined(&Join { instance: Some(name), version: 9, ..JOIN });
    assert!(back.skip_assignment);
    assert_eq!(back.leader, back.member_id);
    assert_eq!(back.members.len(), 2, "so that it can watch the topics of all");
    // A client that does not know that must not think that it leads.
    let again = rig.joined(&Join { instance: Some(name), version: 8, ..JOIN });
    assert!(!again.skip_assignment);
    assert_eq!(again.leader, back.member_id);
    assert_ne!(again.leader, again.member_id);
    assert_ne!(again.leader, *old);
}

#[test]
fn a_static_member_that_changes_what_it_wants_does_rebalance() {
    let mut rig = Rig::or_broker(Config::default());
    let members = fixed(&mut rig, 1);
    let (name, _) = &members[0];
    let topics: &[&str] = &["t"];
    let protocols: &[(&str, &[&str])] = &[("sticky", topics), ("range", topics)];
    // The group's protocol has one supporter now, who prefers another.
    let back = rig.join(&Join { instance: Some(name), protocols, ..JOIN });
    let back = rig.join_reply(back);
    assert_eq!((back.generation_id, back.protocol_name.as_deref()), (2, Some("sticky")));
}

#[test]
fn static_members_stay_through_a_rebalance_they_miss() {
    let mut rig = Rig::new(Config::default());
    let members = fixed(&mut rig, 2);
    let again = rig.join(&Join { member: &members[0].1, instance: Some("i0"), ..JOIN });
    for _ in 0..10 {
        rig.pass(6_000);
        // A heartbeat keeps it, though it does not join.
        rig.heartbeat(&members[1].1, Some("i1"), 1);
    }
    let again = rig.join_reply(again);
    assert_eq!((again.generation_id, again.members.len()), (2, 2));
}

#[test]
fn waiting_requests_of_a_replaced_static_member_are_fenced() {
    let mut rig = Rig::or_broker(Config::default());
    let first = rig.join(&Join { instance: Some("i"), ..JOIN });
    let second = rig.join(&Join { instance: Some("i"), ..JOIN });
    let fenced = rig.join_reply(first);
    assert_eq!(support::code(fenced.error_code), ErrorCode::FencedInstanceId);
    rig.pass(10_000);
    assert_eq!(rig.join_reply(second).error_code, 0);
}

#[test]
fn a_full_group_takes_nobody_in() {
    let mut rig = Rig::new(Config { classic_members_max: 2, ..Config::default() });
    let ids = stable(&mut rig, 2);
    let refused = rig.joined(&Join { version: 3, ..JOIN });
    assert_eq!(support::code(refused.error_code), ErrorCode::GroupMaxSizeReached);
    assert_eq!(rig.state(), "Stable");
    // The limit is lowered and the coordinator moves: who comes first may stay.
    rig.config.classic_members_max = 1;
    rig.reload();
    assert_eq!(rig.state(), "PreparingRebalance");
    let first = rig.join(&Join { member: &ids[1], version: 3, ..JOIN });
    let second = rig.joined(&Join { member: &ids[0], version: 3, ..JOIN });
    assert_eq!(support::code(second.error_code), ErrorCode::GroupMaxSizeReached);
    assert_eq!(rig.join_reply(first).members.len(), 1);
}

#[test]
fn a_batch_leaves_with_an_answer_each() {
    let mut rig = Rig::or_broker(Config::default());
    let members = fixed(&mut rig, 3);
    let identity = |member: &str, instance: Option<&str>| m::leave_group_request::MemberIdentity {
        member_id: String::from(member).into(),
        group_instance_id: instance.map(|it| String::from(it).into()),
        reason: None,
    };
    let request = m::LeaveGroupRequest {
        group_id: support::GROUP.into(),
        members: vec![
            identity("", Some("i0")),
            identity("nobody", None),
            identity(&members[1].1, Some("i1")),
            identity("wrong", Some("i2")),
        ]
        .into(),
        ..Default::default()
    };
    let token = rig.send(Request::LeaveGroup(&request), 5);
    let Reply::LeaveGroup(reply) = rig.reply(token) else { panic!("not a leave") };
    let codes: Vec<_> = reply.members.iter().map(|it| support::code(it.error_code)).collect();
    use ErrorCode::{FencedInstanceId, None as Good, UnknownMemberId};
    assert_eq!(codes, [Good, UnknownMemberId, Good, FencedInstanceId]);
    assert_eq!(rig.described().members.len(), 1);
    assert_eq!(rig.state(), "PreparingRebalance");
}

#[test]
fn old_versions_get_old_shapes() {
    let mut rig = Rig::or_broker(Config::default());
    let refused = rig.joined(&Join { version: 5, protocols: &[], ..JOIN });
    assert_eq!(refused.protocol_name.as_deref(), Some(""), "not null before version 7");
    let ids = stable(&mut rig, 1);
    let request = m::LeaveGroupRequest {
        group_id: support::GROUP.into(),
        member_id: String::from(&*ids[0]).into(),
        ..Default::default()
    };
    let token = rig.send(Request::LeaveGroup(&request), 1);
    let Reply::LeaveGroup(reply) = rig.reply(token) else { panic!("not a leave") };
    assert_eq!((reply.error_code, reply.members.len()), (0, 0));
}

#[test]
fn a_restart_keeps_generation_members_and_assignments() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 3);
    let before = rig.described();
    rig.reload();
    assert_eq!(rig.described(), before);
    for id in &ids {
        assert_eq!(rig.heartbeat(id, None, 1), ErrorCode::None);
        let token = rig.sync(id, None, 1, &[]);
        assert_eq!(&*rig.sync_reply(token).assignment, id.as_bytes());
    }
    // In the midst of a rebalance what holds is the generation before.
    rig.join(&Join { version: 3, ..JOIN });
    rig.reload();
    assert_eq!(rig.state(), "Stable");
    assert_eq!(rig.heartbeat(&ids[0], None, 1), ErrorCode::None);
}

#[test]
fn a_join_that_is_sent_twice_gets_two_answers() {
    let mut rig = Rig::new(Config::default());
    let ids = stable(&mut rig, 2);
    let join = Join { member: &ids[1], version: 3, protocols: &[("range", &["u"])], ..JOIN };
    let first = rig.join(&join);
    let second = rig.join(&join);
    let first = rig.join_reply(first);
    assert_eq!(support::code(first.error_code), ErrorCode::RebalanceInProgress);
    rig.join(&Join { member: &ids[0], version: 3, ..JOIN });
    assert_eq!(rig.join_reply(second).generation_id, 2);
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut rig = Rig::new(Config::default());
    stable(&mut rig, 1);
    let mut list = |states: &[&str], types: &[&str]| {
        let words = |words: &[&str]| words.iter().map(|it| String::from(*it).into()).collect();
        let request =
            m::ListGroupsRequest { states_filter: words(states), types_filter: words(types) };
        let token = rig.send(Request::ListGroups(&request), 5);
        let Reply::ListGroups(reply) = rig.reply(token) else { panic!("not a list") };
        let groups = reply.groups.iter();
        let shown =
            groups.map(|it| format!("{} {} {}", it.group_id, it.group_state, it.group_type));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(list(&[], &[]), ["g Stable Classic"]);
    assert_eq!(list(&["stable"], &["CLASSIC"]), ["g Stable Classic"]);
    assert!(list(&["Empty"], &[]).is_empty());
    assert!(list(&[], &["consumer"]).is_empty());
}

/// Each join and each sync may be small enough while the group as a whole fits into no record: then
/// its members are told, and nobody else notices.
#[test]
fn a_group_that_no_record_could_hold_is_refused_at_its_sync() {
    let mut rig = Rig::new(Config { record_bytes_max: 1_000, ..Config::default() });
    let tokens = [0, 1].map(|_| rig.join(&Join { version: 3, ..JOIN }));
    rig.pass(10_000);
    let replies = tokens.map(|token| rig.join_reply(token));
    let leader = replies[0].leader.to_string();
    let other = replies.iter().map(|it| it.member_id.to_string()).find(|id| *id != leader).unwrap();
    let records = rig.log.len();
    let large = [9; 400];
    let parked = rig.sync(&other, None, 1, &[]);
    let brought = rig.sync(&leader, None, 1, &[(&leader, &large), (&other, &large)]);
    for token in [brought, parked] {
        let code = support::code(rig.sync_reply(token).error_code);
        assert_eq!(code, ErrorCode::UnknownServerError);
    }
    assert_eq!((rig.log.len(), &*rig.state()), (records, "PreparingRebalance"));
    // They try again with less.
    let again = [&leader, &other].map(|id| rig.join(&Join { member: id, version: 3, ..JOIN }));
    for token in again {
        assert_eq!(rig.join_reply(token).generation_id, 2);
    }
    let brought = rig.sync(&leader, None, 2, &[(&leader, &[1]), (&other, &[2])]);
    assert_eq!(&*rig.sync_reply(brought).assignment, [1]);
    assert_eq!(rig.state(), "Stable");
}

/// The same where a static member comes back under another id, which is a record of its own.
#[test]
fn a_static_member_comes_back_only_if_the_record_holds_it() {
    let mut rig = Rig::new(Config { record_bytes_max: 600, ..Config::default() });
    let join = Join { instance: Some("i1"), ..JOIN };
    let token = rig.join(&join);
    rig.pass(10_000);
    let id = rig.join_reply(token).member_id.into_owned();
    let part = [7; 100];
    rig.sync(&id, Some("i1"), 1, &[(&id, &part)]);
    let (group, records) = (rig.described(), rig.log.len());
    let names: Vec<String> = (0..30).map(|n| format!("a-topic-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = rig.joined(&Join { protocols: &[("range", &names)], ..join.clone() });
    assert_eq!(support::code(refused.error_code), ErrorCode::UnknownServerError);
    assert_eq!((rig.described(), rig.log.len()), (group, records));
    assert_eq!(rig.heartbeat(&id, Some("i1"), 1), ErrorCode::None, "who was there still is");
    let back = rig.joined(&join);
    assert_eq!((back.error_code, rig.log.len()), (0, records + 1));
    assert_eq!(rig.heartbeat(&id, Some("i1"), 1), ErrorCode::FencedInstanceId);
}

/// Leaders go one after the other, the oldest next, also once a static one has another id.
#[test]
fn the_oldest_leads_next() {
    let mut rig = Rig::new(Config::default());
    let joins = [None, Some("i1"), None].map(|instance| {
        let token = rig.join(&Join { instance, version: 5, member: "", ..JOIN });
        match instance {
            Some(_) => token,
            None => {
                let id = rig.join_reply(token).member_id.into_owned();
                rig.join(&Join { member: &id, version: 5, ..JOIN })
            }
        }
    });
    rig.pass(10_000);
    let ids = joins.map(|token| rig.join_reply(token).member_id.into_owned());
    rig.sync(&ids[0], None, 1, &[]);
    rig.sync(&ids[1], Some("i1"), 1, &[]);
    rig.sync(&ids[2], None, 1, &[]);
    let back = rig.joined(&Join { instance: Some("i1"), version: 9, ..JOIN });
    assert_eq!(back.leader, ids[0]);
    assert_eq!(rig.leave(&ids[0], None), ErrorCode::None);
    let renamed = back.member_id.into_owned();
    let last = rig.join(&Join { member: &ids[2], version: 5, ..JOIN });
    rig.join(&Join { member: &renamed, instance: Some("i1"), version: 5, ..JOIN });
    assert_eq!(rig.join_reply(last).leader, renamed);
}
