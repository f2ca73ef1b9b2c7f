//! Groups that change protocol while they run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use coord::{Config, Migration};
use support::{BEAT, Beat, COMMIT, Commit, FIRST_BEAT, JOIN, Join, Rig, assignment};
use wire::messages as m;
use wire::{ErrorCode, Message, Reader, Uuid};

fn hasty() -> Config {
    Config { assignment_interval_ms: 0, ..Config::default() }
}

/// A stable classic group of two, each with two partitions of t.
fn classic(rig: &mut Rig) -> [String; 2] {
    let tokens = [0, 1].map(|_| rig.join(&Join { version: 3, ..JOIN }));
    rig.pass(10_000);
    let ids = tokens.map(|token| rig.join_reply(token).member_id.into_owned());
    let first = assignment(&[("t", vec![0, 1])]);
    let second = assignment(&[("t", vec![2, 3])]);
    rig.sync(&ids[1], None, 1, &[]);
    rig.sync(&ids[0], None, 1, &[(&ids[0], &first), (&ids[1], &second)]);
    rig.replies.clear();
    assert_eq!(rig.state(), "Stable");
    rig.commit(&Commit { member: &ids[0], generation: 1, ..COMMIT });
    ids
}

fn owned(reply: &m::ConsumerGroupHeartbeatResponse<'static>) -> Vec<(Uuid, Vec<i32>)> {
    let assignment = reply.assignment.as_ref().expect("an assignment");
    assignment.topic_partitions.iter().map(|it| (it.topic_id, it.partitions.to_vec())).collect()
}

/// What a classic member reads from its SyncGroup answer.
fn synced(rig: &mut Rig, member: &str, generation: i32) -> Vec<i32> {
    let token = rig.sync(member, None, generation, &[]);
    let reply = rig.sync_reply(token);
    assert_eq!(reply.error_code, 0);
    let mut reader = Reader::new(&reply.assignment);
    let version = reader.i16().unwrap();
    let read = m::ConsumerProtocolAssignment::decode(&mut reader, version).unwrap();
    read.assigned_partitions.iter().flat_map(|it| it.partitions.to_vec()).collect()
}

fn rejoin(rig: &mut Rig, member: &str) -> i32 {
    let reply = rig.joined(&Join { member, version: 3, ..JOIN });
    assert_eq!(reply.error_code, 0, "{reply:?}");
    assert_eq!(reply.protocol_name.as_deref(), Some("range"));
    assert_eq!((&*reply.leader, reply.members.len()), ("", 0), "the coordinator assigns");
    reply.generation_id
}

#[test]
fn a_classic_group_is_taken_over_by_the_first_consumer() {
    let mut rig = Rig::or_broker(hasty());
    let t = rig.topics.topics["t"].id;
    let ids = classic(&mut rig);
    let joined = rig.beat(&Beat { member: "new", ..FIRST_BEAT });
    assert_eq!((joined.error_code, joined.member_epoch, owned(&joined)), (0, 2, vec![]));
    let group = rig.consumers();
    assert_eq!(group.members.len(), 3);
    let classics = group.members.iter().filter(|it| it.member_type == 0).count();
    assert_eq!(classics, 2);
    rig.reload();
    assert_eq!(rig.consumers(), group);
    assert_eq!(rig.fetch("t", 0, false).0, 5, "offsets stay");

    // The classic members hear of it, join again, and give up what is not theirs any more.
    for id in &ids {
        assert_eq!(rig.heartbeat(id, None, 1), ErrorCode::RebalanceInProgress);
    }
    let mut kept = Vec::new();
    for id in &ids {
        let generation = rejoin(&mut rig, id);
        kept.extend(synced(&mut rig, id, generation));
        let code = rig.heartbeat(id, None, generation);
        assert!(matches!(code, ErrorCode::None | ErrorCode::RebalanceInProgress));
    }
    let token = rig.beat(&Beat { member: "new", epoch: 2, ..BEAT });
    let mut epoch = token.member_epoch;
    let mut new = token.assignment.map(|it| it.topic_partitions.to_vec());
    for _ in 0..3 {
        let reply = rig.beat(&Beat { member: "new", epoch, ..BEAT });
        epoch = reply.member_epoch;
        new = reply.assignment.map(|it| it.topic_partitions.to_vec()).or(new);
    }
    let new: Vec<i32> = new.unwrap().iter().flat_map(|it| it.partitions.to_vec()).collect();
    assert!(!new.is_empty(), "{t}");
    kept.extend(new);
    kept.sort_unstable();
    assert_eq!(kept, [0, 1, 2, 3], "every partition has one owner");
}

#[test]
fn the_last_consumer_that_goes_leaves_a_classic_group() {
    let mut rig = Rig::new(hasty());
    let ids = classic(&mut rig);
    rig.beat(&Beat { member: "new", ..FIRST_BEAT });
    let left = rig.beat(&Beat { member: "new", epoch: -1, ..BEAT });
    assert_eq!(left.error_code, 0);
    assert_eq!(rig.state(), "PreparingRebalance");
    assert_eq!(rig.described().members.len(), 2);
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    let tokens = [0, 1].map(|at| rig.join(&Join { member: &ids[at], version: 3, ..JOIN }));
    let replies = tokens.map(|token| rig.join_reply(token));
    assert_eq!(replies[0].generation_id, replies[1].generation_id);
    assert!(replies[0].generation_id > 1);
    rig.reload();
    assert_eq!(rig.state(), "Stable", "as the log has it");
    assert_eq!(rig.described().members.len(), 2);
}

#[test]
fn classic_members_join_a_consumer_group() {
    let mut rig = Rig::or_broker(hasty());
    rig.beat(&FIRST_BEAT);
    let first = rig.joined(&JOIN);
    assert_eq!(support::code(first.error_code), ErrorCode::MemberIdRequired);
    let id = first.member_id.into_owned();
    let generation = rejoin(&mut rig, &id);
    assert_eq!(generation, 3);
    assert!(synced(&mut rig, &id, generation).is_empty(), "all is with the consumer still");
    let reply = rig.beat(&Beat { epoch: 2, ..BEAT });
    let kept = owned(&reply);
    rig.beat(&Beat { epoch: 2, owned: Some(&kept), ..BEAT });
    assert_eq!(rig.heartbeat(&id, None, 3), ErrorCode::RebalanceInProgress, "come and get it");
    let generation = rejoin(&mut rig, &id);
    assert_eq!(synced(&mut rig, &id, generation).len(), 2);
    assert_eq!(rig.heartbeat(&id, None, generation), ErrorCode::None);
    assert_eq!(rig.heartbeat(&id, None, generation + 1), ErrorCode::IllegalGeneration);
    assert_eq!(rig.heartbeat("m1", None, 3), ErrorCode::UnknownMemberId, "no classic member");
    let commit = Commit { member: &id, generation, ..COMMIT };
    assert_eq!(rig.commit(&commit), ErrorCode::None);
    assert_eq!(rig.commit(&Commit { version: 7, ..commit.clone() }), ErrorCode::None);
    let newer = Commit { generation: generation + 1, ..commit };
    assert_eq!(rig.commit(&newer), ErrorCode::IllegalGeneration);
    assert_eq!(rig.leave(&id, None), ErrorCode::None);
    assert_eq!(rig.consumers().members.len(), 1);
    assert_eq!(rig.leave("nobody", None), ErrorCode::UnknownMemberId);
    assert_eq!(rig.leave("m1", None), ErrorCode::None, "an administrator may send a consumer away");
    assert!(rig.consumers().members.is_empty());
}

#[test]
fn a_classic_member_that_does_not_join_or_sync_is_fenced() {
    for syncs in [false, true] {
        let mut rig = Rig::new(hasty());
        rig.beat(&FIRST_BEAT);
        let member = rig.joined(&JOIN).member_id.into_owned();
        let join = Join { member: &member, version: 3, rebalance_ms: 20_000, ..JOIN };
        let generation = rig.joined(&join).generation_id;
        if syncs {
            synced(&mut rig, &member, generation);
            // A new rebalance, which it does not take part in.
            rig.beat(&Beat { epoch: 2, topics: Some(&["t", "u"]), ..BEAT });
            let code = rig.heartbeat(&member, None, generation);
            assert_eq!(code, ErrorCode::RebalanceInProgress);
        }
        for _ in 0..4 {
            rig.pass(5_000);
            rig.heartbeat(&member, None, generation);
            let epoch = rig.consumers().members.iter().find(|it| it.member_id == "m1");
            rig.beat(&Beat { epoch: epoch.unwrap().member_epoch, ..BEAT });
        }
        assert_eq!(rig.heartbeat(&member, None, generation), ErrorCode::UnknownMemberId);
    }
}

#[test]
fn a_static_member_changes_protocol_in_its_place() {
    let mut rig = Rig::or_broker(hasty());
    let token = rig.join(&Join { instance: Some("i"), ..JOIN });
    rig.pass(10_000);
    let old = rig.join_reply(token).member_id.into_owned();
    let all = assignment(&[("t", vec![0, 1, 2, 3])]);
    rig.sync(&old, Some("i"), 1, &[(&old, &all)]);
    let reply = rig.beat(&Beat { member: "new", instance: Some("i"), ..FIRST_BEAT });
    assert_eq!(reply.error_code, 0, "{reply:?}");
    assert_eq!(owned(&reply)[0].1, [0, 1, 2, 3]);
    assert_eq!(rig.consumers().members.len(), 1);
    assert_eq!(rig.heartbeat(&old, Some("i"), 1), ErrorCode::FencedInstanceId);
    // And back: the last consumer is replaced by a classic member.
    let back = rig.joined(&Join { instance: Some("i"), ..JOIN });
    assert_eq!(back.error_code, 0, "{back:?}");
    assert_eq!(rig.described().protocol_type, "consumer");
    let id = back.member_id.into_owned();
    let token = rig.join(&Join { member: &id, instance: Some("i"), ..JOIN });
    let again = rig.join_reply(token);
    assert_eq!(again.error_code, 0);
    assert_eq!(again.leader, again.member_id);
}

#[test]
fn what_may_not_be_converted_is_not() {
    const REFUSED: &str = "Cannot upgrade classic group g to consumer group because";
    let limited = Config { consumer_members_max: 2, ..hasty() };
    let closed = Config { migration: Migration::Downgrade, ..hasty() };
    let cases = [
        (closed, "online upgrade is disabled."),
        (limited, "the group size exceeds the consumer group maximum size."),
    ];
    for (config, reason) in cases {
        let mut rig = Rig::new(config);
        classic(&mut rig);
        let refused = rig.beat(&Beat { member: "new", ..FIRST_BEAT });
        assert_eq!(support::code(refused.error_code), ErrorCode::GroupIdNotFound);
        assert_eq!(refused.error_message.as_deref().unwrap(), format!("{REFUSED} {reason}"));
        assert_eq!(rig.state(), "Stable");
    }
    let mut rig = Rig::new(hasty());
    let token = rig.join(&Join { version: 3, protocol_type: "connect", ..JOIN });
    rig.pass(10_000);
    rig.join_reply(token);
    let refused = rig.beat(&Beat { member: "new", ..FIRST_BEAT });
    let reason = "the group does not use the consumer embedded protocol.";
    assert_eq!(refused.error_message.as_deref().unwrap(), format!("{REFUSED} {reason}"));

    // Nor do classic members get into a consumer group then.
    let mut rig = Rig::new(Config { migration: Migration::Disabled, ..hasty() });
    rig.beat(&FIRST_BEAT);
    let refused = rig.joined(&JOIN);
    assert_eq!(support::code(refused.error_code), ErrorCode::InconsistentGroupProtocol);

    // Downgrades that are not wanted leave a consumer group of classic members.
    let mut rig = Rig::new(Config { migration: Migration::Upgrade, ..hasty() });
    classic(&mut rig);
    rig.beat(&Beat { member: "new", ..FIRST_BEAT });
    rig.beat(&Beat { member: "new", epoch: -1, ..BEAT });
    assert_eq!(rig.consumers().members.len(), 2);
}

#[test]
fn empty_groups_change_kind_freely() {
    let mut rig = Rig::new(hasty());
    rig.commit(&COMMIT);
    assert_eq!(rig.beat(&FIRST_BEAT).error_code, 0, "a simple group becomes a consumer group");
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    rig.beat(&Beat { epoch: -1, ..BEAT });
    let token = rig.join(&Join { version: 3, ..JOIN });
    rig.pass(10_000);
    assert_eq!(rig.join_reply(token).generation_id, 1, "and an empty one a classic group");
    for _ in 0..2 {
        assert_eq!(rig.fetch("t", 0, false).0, 5);
        assert_eq!(rig.coordinator.group_ids(), ["g"]);
        rig.reload();
    }
}

/// A group that would not fit into the one record of a classic group stays what it is.
#[test]
fn a_group_too_large_for_one_record_is_not_downgraded() {
    let mut rig = Rig::new(hasty());
    let ids = classic(&mut rig);
    rig.beat(&Beat { member: "new", ..FIRST_BEAT });
    let config = Config { record_bytes_max: 300, ..hasty() };
    rig.coordinator.set_config(config.clone());
    assert_eq!(rig.beat(&Beat { member: "new", epoch: -1, ..BEAT }).error_code, 0);
    let group = rig.consumers();
    assert_eq!((group.error_code, group.members.len()), (0, 2));
    assert_eq!(rig.heartbeat(&ids[0], None, 1), ErrorCode::RebalanceInProgress);
    assert!(rejoin(&mut rig, &ids[0]) > 1, "its members go on");
}

/// Those who leave together go in pieces that fit into a batch, each of which leaves the group
/// whole.
#[test]
fn many_that_leave_at_once_go_in_pieces() {
    const MEMBERS: usize = 300;
    let mut rig = Rig::new(Config { record_bytes_max: 10_000, ..hasty() });
    let ids: Vec<String> = (0..MEMBERS).map(|n| format!("member-{n}")).collect();
    for id in &ids {
        assert_eq!(rig.beat(&Beat { member: id, ..FIRST_BEAT }).error_code, 0);
    }
    let members = ids.iter().chain(&ids[..1]).map(|id| m::leave_group_request::MemberIdentity {
        member_id: id.as_str().into(),
        group_instance_id: None,
        reason: None,
    });
    let request = m::LeaveGroupRequest {
        group_id: support::GROUP.into(),
        members: members.collect(),
        ..Default::default()
    };
    rig.largest_piece = 0;
    let token = rig.send(coord::Request::LeaveGroup(&request), 5);
    let coord::Reply::LeaveGroup(reply) = rig.reply(token) else { panic!("not a leave") };
    assert_eq!(reply.members.len(), MEMBERS + 1);
    assert!(reply.members.iter().all(|member| member.error_code == 0));
    assert!((4..200).contains(&rig.largest_piece), "{}", rig.largest_piece);
    let group = rig.consumers();
    assert_eq!((&*group.group_state, group.members.len()), ("Empty", 0));
    rig.reload();
    assert_eq!(rig.consumers(), group);
}
