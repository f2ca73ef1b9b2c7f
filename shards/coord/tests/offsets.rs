//! Offsets: committed, fetched, deleted, expired, and those of transactions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use coord::{Config, Reply, Request};
use support::{COMMIT, Commit, GROUP, JOIN, Join, Rig, TXN_COMMIT, TxnCommit};
use wire::messages as m;
use wire::{ErrorCode, Uuid};

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

fn txn_commit(rig: &mut Rig, producer: i64, offset: i64, generation: i32) -> ErrorCode {
    rig.txn_commit(&TxnCommit { producer, offset, generation, ..TXN_COMMIT })
}

#[test]
fn commits_are_there_after_a_restart() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.fetch("t", 0, false), (-1, ErrorCode::None));
    for (partition, offset) in [(0, 5), (1, 6), (0, 7)] {
        let commit = Commit { partition, offset, ..COMMIT };
        assert_eq!(rig.commit(&commit), ErrorCode::None);
    }
    for _ in 0..2 {
        assert_eq!(rig.fetch("t", 0, false), (7, ErrorCode::None));
        assert_eq!(rig.fetch("t", 1, true), (6, ErrorCode::None));
        assert_eq!(rig.fetch("u", 0, false), (-1, ErrorCode::None));
        assert_eq!(rig.coordinator.offset_count(), 2);
        rig.reload();
    }
}

/// Nobody could read what is committed for it, and nothing would bound it.
#[test]
fn a_partition_that_does_not_exist_is_not_committed() {
    let mut rig = Rig::new(Config::default());
    let count = rig.topics.topics["t"].partitions;
    for partition in [-1, count, i32::MAX] {
        let commit = Commit { partition, ..COMMIT };
        assert_eq!(rig.commit(&commit), ErrorCode::UnknownTopicOrPartition, "{partition}");
    }
    assert_eq!(rig.commit(&Commit { partition: count - 1, ..COMMIT }), ErrorCode::None);
    assert_eq!(rig.coordinator.offset_count(), 1);
}

#[test]
fn all_offsets_of_a_group_are_fetched_by_name_or_by_id() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    rig.commit(&Commit { topic: "u", offset: 9, ..COMMIT });
    let all = |rig: &mut Rig, version| {
        let group = m::offset_fetch_request::OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            member_id: None,
            member_epoch: -1,
            topics: None,
        };
        let token =
            rig.send(Request::OffsetFetch { group: &group, require_stable: false }, version);
        let Reply::OffsetFetch(reply) = rig.reply(token) else { panic!("not a fetch") };
        let topics = reply.topics.iter();
        topics.map(|it| (it.name.into_owned(), it.topic_id)).collect::<Vec<_>>()
    };
    let (t, u) = (rig.topics.topics["t"].id, rig.topics.topics["u"].id);
    assert_eq!(all(&mut rig, 9), [("t".into(), Uuid::ZERO), ("u".into(), Uuid::ZERO)]);
    assert_eq!(all(&mut rig, 10), [(String::new(), t), (String::new(), u)]);
    rig.topics.topics.remove("u");
    assert_eq!(all(&mut rig, 10), [(String::new(), t)], "what has no id cannot be told");
    assert_eq!(all(&mut rig, 9).len(), 2);
}

#[test]
fn a_fetch_of_old_versions_is_taken_apart_and_put_together() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    let topic = m::offset_fetch_request::OffsetFetchRequestTopic {
        name: "t".into(),
        partition_indexes: vec![0, 1].into(),
    };
    let request = m::OffsetFetchRequest {
        group_id: GROUP.into(),
        topics: Some(vec![topic].into()),
        ..Default::default()
    };
    for version in 1..8 {
        let groups = coord::split_fetch(&request, version);
        assert_eq!(groups.len(), 1);
        let asked = Request::OffsetFetch { group: &groups[0], require_stable: false };
        let Reply::OffsetFetch(refused) = asked.refused(ErrorCode::NotCoordinator, version) else {
            panic!("not a fetch")
        };
        let token = rig.send(asked, 8);
        let Reply::OffsetFetch(reply) = rig.reply(token) else { panic!("not a fetch") };
        let response = coord::join_fetch(&request, vec![reply], version);
        let parts = response.topics.first().unwrap().partitions.to_vec();
        assert_eq!((parts[0].committed_offset, parts[1].committed_offset), (5, -1));
        let refused = coord::join_fetch(&request, vec![refused], version);
        let at_partitions = refused.topics.iter().flat_map(|it| it.partitions.to_vec());
        let at_partitions: Vec<i16> = at_partitions.map(|it| it.error_code).collect();
        match version {
            1 => assert_eq!((refused.error_code, at_partitions), (0, vec![16, 16])),
            _ => assert_eq!((refused.error_code, at_partitions), (16, vec![])),
        }
        let mut writer = wire::Writer::new();
        wire::Message::encode(&refused, &mut writer, version).unwrap();
        wire::Message::encode(&response, &mut writer, version).unwrap();
    }
}

#[test]
fn topics_by_id_that_do_not_exist_are_told_so() {
    let mut rig = Rig::new(Config::default());
    let mut commit = |topic_id: Uuid| {
        let partition = m::offset_commit_request::OffsetCommitRequestPartition {
            partition_index: 1,
            committed_offset: 3,
            committed_leader_epoch: -1,
            committed_metadata: None,
        };
        let topic = m::offset_commit_request::OffsetCommitRequestTopic {
            name: "".into(),
            topic_id,
            partitions: vec![partition].into(),
        };
        let request = m::OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let token = rig.send(Request::OffsetCommit(&request), 10);
        let Reply::OffsetCommit(reply) = rig.reply(token) else { panic!("not a commit") };
        let topic = reply.topics.first().unwrap();
        assert_eq!(topic.topic_id, topic_id);
        support::code(topic.partitions.first().unwrap().error_code)
    };
    assert_eq!(commit(Uuid([9; 16])), ErrorCode::UnknownTopicId);
    let hash = wire::hash::java_string_hash("t").to_be_bytes();
    let mut id = [7; 16];
    id[..4].copy_from_slice(&hash);
    assert_eq!(commit(Uuid(id)), ErrorCode::None);
    assert_eq!(rig.fetch("t", 1, false).0, 3);
}

#[test]
fn a_topic_made_anew_starts_clean() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    let info = rig.topics.topics.get_mut("t").unwrap();
    let old = std::mem::replace(&mut info.id, Uuid([9; 16]));
    assert_eq!(rig.fetch("t", 0, false), (-1, ErrorCode::None));
    rig.commit(&Commit { offset: 1, ..COMMIT });
    // News of the deletion comes late: what was committed since stays.
    let records = rig.log.len();
    rig.coordinator.topics_deleted(&[("t".into(), old)]);
    rig.pass(0);
    assert_eq!(rig.log.len(), records);
    assert_eq!(rig.fetch("t", 0, false), (1, ErrorCode::None));
}

#[test]
fn offsets_of_a_deleted_topic_go() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    rig.commit(&Commit { topic: "u", ..COMMIT });
    txn_commit(&mut rig, 1, 50, -1);
    rig.delete_topic("t");
    rig.pass(0);
    for _ in 0..2 {
        assert_eq!(rig.fetch("t", 0, true), (-1, ErrorCode::None));
        assert_eq!(rig.fetch("u", 0, false), (5, ErrorCode::None));
        rig.reload();
    }
}

#[test]
fn a_transactions_offsets_show_with_its_commit() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    assert_eq!(txn_commit(&mut rig, 1, 50, -1), ErrorCode::None);
    assert_eq!(rig.log.last().unwrap().2, Some(1), "in a batch of the producer");
    for _ in 0..2 {
        assert_eq!(rig.fetch("t", 0, false), (5, ErrorCode::None));
        assert_eq!(rig.fetch("t", 0, true), (-1, ErrorCode::UnstableOffsetCommit));
        assert_eq!(rig.fetch("t", 1, true), (-1, ErrorCode::None), "another partition is stable");
        rig.reload();
    }
    rig.marker(1, true);
    assert_eq!(rig.fetch("t", 0, true), (50, ErrorCode::None));
    txn_commit(&mut rig, 2, 60, -1);
    rig.marker(2, false);
    assert_eq!(rig.fetch("t", 0, true), (50, ErrorCode::None), "aborted");
}

#[test]
fn a_commit_after_the_transactions_wins_over_it() {
    let mut rig = Rig::new(Config::default());
    txn_commit(&mut rig, 1, 50, -1);
    rig.commit(&Commit { offset: 70, ..COMMIT });
    rig.marker(1, true);
    assert_eq!(rig.fetch("t", 0, true), (70, ErrorCode::None));
}

#[test]
fn a_transaction_is_checked_against_the_group() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(txn_commit(&mut rig, 1, 50, 3), ErrorCode::IllegalGeneration);
    let token = rig.join(&Join { version: 3, ..JOIN });
    rig.pass(10_000);
    rig.join_reply(token);
    // Without member and generation a transaction may commit to any group.
    assert_eq!(txn_commit(&mut rig, 1, 50, -1), ErrorCode::None);
    assert_eq!(txn_commit(&mut rig, 1, 50, 1), ErrorCode::UnknownMemberId);
}

#[test]
fn a_deleted_group_leaves_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    txn_commit(&mut rig, 1, 50, -1);
    assert_eq!(rig.delete_group(), ErrorCode::None);
    for _ in 0..2 {
        assert_eq!(rig.delete_group(), ErrorCode::GroupIdNotFound);
        assert_eq!(rig.fetch("t", 0, true), (-1, ErrorCode::None));
        assert_eq!(rig.coordinator.group_count(), 0);
        rig.reload();
    }
    rig.marker(1, true);
    assert_eq!(rig.coordinator.offset_count(), 0);
}

#[test]
fn offsets_of_a_simple_group_expire_a_week_after_their_commit() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    rig.pass(WEEK_MS / 2);
    rig.commit(&Commit { partition: 1, ..COMMIT });
    rig.pass(WEEK_MS / 2 + 600_000);
    assert_eq!(rig.fetch("t", 0, false).0, -1);
    assert_eq!(rig.fetch("t", 1, false).0, 5);
    rig.reload();
    assert_eq!(rig.fetch("t", 0, false).0, -1);
    rig.pass(WEEK_MS);
    assert_eq!(rig.coordinator.group_count(), 0, "the group went with its last offset");
    rig.reload();
    assert_eq!(rig.coordinator.group_count(), 0);
}

#[test]
fn offsets_of_a_group_with_members_stay_until_a_week_after_they_left() {
    let mut rig = Rig::new(Config::default());
    let token = rig.join(&Join { version: 3, session_ms: 1_800_000, ..JOIN });
    rig.pass(10_000);
    let id = rig.join_reply(token).member_id.into_owned();
    rig.sync(&id, None, 1, &[]);
    let commit = Commit { member: &id, generation: 1, ..COMMIT };
    rig.commit(&commit);
    rig.commit(&Commit { topic: "u", ..commit });
    for _ in 0..2 * WEEK_MS / 1_800_000 {
        rig.pass(1_800_000 - 1);
        assert_eq!(rig.heartbeat(&id, None, 1), ErrorCode::None);
    }
    assert_eq!(rig.fetch("t", 0, false).0, 5, "subscribed");
    assert_eq!(rig.fetch("u", 0, false).0, -1, "not subscribed, and old");
    assert_eq!(rig.leave(&id, None), ErrorCode::None);
    rig.pass(WEEK_MS - 600_000);
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    rig.reload();
    rig.pass(1_300_000);
    assert_eq!(rig.fetch("t", 0, false).0, -1, "the time it became empty is in the log");
    assert_eq!(rig.coordinator.group_count(), 0);
}

#[test]
fn an_offset_with_an_open_transaction_does_not_expire() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    txn_commit(&mut rig, 1, 50, -1);
    rig.pass(2 * WEEK_MS);
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    rig.marker(1, false);
    rig.pass(600_000);
    assert_eq!(rig.fetch("t", 0, false).0, -1);
}

/// Metadata is as long as Java says. The records of one request are bounded, whatever it consists
/// of: each repeats the names of group and topic.
#[test]
fn a_commit_takes_as_much_of_the_log_as_one_batch_may() {
    let config = Config { record_bytes_max: 200_000, ..Config::default() };
    // Bytes of three: too many bytes, but no more UTF-16 units than are allowed.
    let long = "\u{20ac}".repeat(4_096);
    assert_eq!((long.len(), long.encode_utf16().count()), (12_288, 4_096));
    let too_long = "\u{20ac}".repeat(4_097);
    let plain = "x".repeat(4_096);
    let cases = [
        (&*long, 16, ErrorCode::None),
        (&*long, 17, ErrorCode::UnknownServerError),
        (&*plain, 47, ErrorCode::None),
        (&*plain, 49, ErrorCode::UnknownServerError),
        // Refused one by one, so they take nothing.
        (&*too_long, 1_000, ErrorCode::OffsetMetadataTooLarge),
    ];
    for (metadata, times, expected) in cases {
        for transactional in [false, true] {
            let mut rig = Rig::new(config.clone());
            let codes = match transactional {
                false => rig.commit_often(&Commit { metadata, ..COMMIT }, times),
                true => rig.txn_commit_often(&TxnCommit { metadata, ..TXN_COMMIT }, times),
            };
            assert_eq!(codes, vec![expected; times], "{times} times {}", metadata.len());
            let records = if expected == ErrorCode::None { times } else { 0 };
            assert_eq!(rig.log.len(), records);
            let bytes: usize = rig
                .log
                .iter()
                .map(|(key, value, _)| key.len() + value.as_ref().map_or(0, Vec::len))
                .sum();
            assert!(bytes <= config.record_bytes_max, "{bytes}");
        }
    }
}

/// Topics by id: a zero id is an id that no topic has.
#[test]
fn no_id_is_no_topic() {
    let mut rig = Rig::new(Config::default());
    rig.commit(&COMMIT);
    for id in [Uuid::ZERO, Uuid([9; 16])] {
        let commit = Commit { topic: "", topic_id: id, version: 10, ..COMMIT };
        assert_eq!(rig.commit(&commit), ErrorCode::UnknownTopicId);
        let txn = TxnCommit { topic: "", topic_id: id, version: 6, ..TXN_COMMIT };
        assert_eq!(rig.txn_commit(&txn), ErrorCode::UnknownTopicId);
        assert_eq!(rig.fetch_by_id(id, 0), (-1, ErrorCode::UnknownTopicId));
    }
    let id = rig.topics.topics["t"].id;
    assert_eq!(rig.fetch_by_id(id, 0), (5, ErrorCode::None));
}

#[test]
fn who_knows_newer_errors_is_told_them_in_a_transaction_too() {
    let mut rig = Rig::new(Config::default());
    let id = rig.topics.topics["t"].id;
    let commit = TxnCommit { generation: 3, ..TXN_COMMIT };
    assert_eq!(rig.txn_commit(&commit), ErrorCode::IllegalGeneration);
    let newer = TxnCommit { topic: "", topic_id: id, version: 6, ..commit };
    assert_eq!(rig.txn_commit(&newer), ErrorCode::GroupIdNotFound);
}

/// A deletion that a coordinator hears of late says nothing about the topic of that name that came
/// since.
#[test]
fn late_news_of_a_deletion_leaves_the_next_topic_alone() {
    let mut rig = Rig::new(Config::default());
    let old = rig.topics.topics["t"].id;
    rig.commit(&COMMIT);
    rig.commit(&Commit { partition: 1, ..COMMIT });
    txn_commit(&mut rig, 7, 8, -1);
    rig.topics.topics.get_mut("t").unwrap().id = Uuid([9; 16]);
    // Of the new topic: one in a transaction, and one by a log of before topic ids.
    txn_commit(&mut rig, 1, 50, -1);
    rig.replay_commit("nameless", "t", 3, 33, Uuid::ZERO);
    rig.reload();
    rig.coordinator.topics_deleted(&[("t".into(), old)]);
    rig.pass(0);
    for _ in 0..2 {
        assert_eq!(rig.fetch("t", 1, false), (-1, ErrorCode::None));
        assert_eq!(rig.coordinator.offset_count(), 2, "one of the old topic is gone");
        rig.reload();
    }
    assert_eq!(rig.fetch("t", 0, true), (-1, ErrorCode::UnstableOffsetCommit));
    rig.marker(1, true);
    rig.marker(7, true);
    assert_eq!(rig.fetch("t", 0, true), (50, ErrorCode::None));
    // Once the topic is gone by name, what does not say which it was goes too.
    rig.delete_topic("t");
    rig.pass(0);
    assert_eq!(rig.coordinator.offset_count(), 0);
}

/// What goes at once goes in bounded steps and batches: expired, deleted with its group or its
/// topic.
#[test]
fn a_group_of_many_offsets_goes_in_pieces() {
    const OFFSETS: i32 = 5_000;
    let fill = || {
        let mut rig = Rig::new(Config::default());
        rig.topics.set("t", OFFSETS);
        let id = rig.topics.topics["t"].id;
        for partition in 0..OFFSETS {
            rig.replay_commit(GROUP, "t", partition, 5, id);
        }
        rig
    };
    let mut rig = fill();
    rig.now_ms = 2 * WEEK_MS;
    let mut most = 0;
    while rig.coordinator.next_deadline().is_some_and(|due| due <= rig.now_ms) {
        let decision = rig.on_time();
        most = most.max(decision.records.len());
        rig.take_in(decision);
    }
    assert_eq!((rig.coordinator.group_count(), rig.coordinator.offset_count()), (0, 0));
    assert!(most <= 2_000, "{most} records in one step");

    let mut rig = fill();
    rig.delete_topic("t");
    let mut most = 0;
    while rig.coordinator.next_deadline().is_some_and(|due| due <= rig.now_ms) {
        let decision = rig.on_time();
        most = most.max(decision.records.len());
        rig.take_in(decision);
    }
    assert_eq!(rig.coordinator.offset_count(), 0);
    assert!(most <= 2_000, "{most} records in one step");

    let mut rig = fill();
    rig.largest_piece = 0;
    assert_eq!(rig.delete_group(), ErrorCode::None);
    assert_eq!((rig.coordinator.group_count(), rig.coordinator.offset_count()), (0, 0));
    assert_eq!(rig.largest_piece, 1, "each stands for itself");
}

#[test]
fn many_groups_expire_in_steps() {
    let mut rig = Rig::new(Config::default());
    for at in 0..3_000 {
        let record = coord::Record::OffsetCommit(
            m::OffsetCommitKey { group: format!("g{at}").into(), topic: "t".into(), partition: 0 },
            Some(m::OffsetCommitValue { commit_timestamp: 1, ..Default::default() }),
        );
        let (key, value) = record.to_bytes().unwrap();
        rig.coordinator.replay(&key, value.as_deref(), None).unwrap();
    }
    rig.now_ms = 2 * WEEK_MS;
    let mut most = 0;
    while rig.coordinator.next_deadline().is_some_and(|due| due <= rig.now_ms) {
        let decision = rig.on_time();
        most = most.max(decision.records.len());
        rig.take_in(decision);
    }
    assert_eq!((rig.coordinator.group_count(), rig.coordinator.offset_count()), (0, 0));
    assert!(most <= 2_000, "{most} records in one step");
}

/// A clock that is set changes nothing for members and their rebalances; what is written down is
/// told and compared by the wall clock.
#[test]
fn a_wall_clock_that_is_set_ends_no_session_and_no_retention() {
    const YEAR_MS: i64 = 365 * 24 * 3_600_000;
    let mut rig = Rig::new(Config::default());
    let token = rig.join(&Join { version: 3, ..JOIN });
    // A join waits for others three seconds, though the clock is set back by a year.
    rig.wall_ahead_ms = -YEAR_MS;
    rig.pass(3_000);
    let id = rig.join_reply(token).member_id.into_owned();
    rig.sync(&id, None, 1, &[]);
    rig.wall_ahead_ms = YEAR_MS;
    rig.pass(9_999);
    assert_eq!(rig.heartbeat(&id, None, 1), ErrorCode::None, "its session is not over");
    rig.commit(&Commit { member: &id, generation: 1, ..COMMIT });
    assert_eq!(rig.leave(&id, None), ErrorCode::None);
    // The week counts from when the group became empty by the clock that holds now, also after a
    // restart whose clock of deadlines begins there.
    rig.now_ms += rig.wall_ahead_ms;
    rig.wall_ahead_ms = 0;
    rig.reload();
    rig.pass(WEEK_MS - 600_000);
    assert_eq!(rig.fetch("t", 0, false).0, 5);
    rig.pass(1_300_000);
    assert_eq!(rig.fetch("t", 0, false).0, -1);
}
