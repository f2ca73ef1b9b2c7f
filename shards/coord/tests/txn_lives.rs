//! Lives of transactional ids: what a producer is told from its first request to its last, under
//! every level of `transaction.version`. Those that neither turn the clock nor restart run against
//! a broker too (see `txn_support/kafka.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod txn_support;

use coord::Producer;
use coord::txn::{TransactionVersion, TxnRecord, TxnReply, TxnRequest};
use txn_support::{ADD, Add, ID, INIT, Init, NOBODY, Rig, at_epoch};
use wire::ErrorCode::*;
use wire::messages as m;

const V0: TransactionVersion = TransactionVersion::V0;
const V1: TransactionVersion = TransactionVersion::V1;
const V2: TransactionVersion = TransactionVersion::V2;
const LEVELS: [TransactionVersion; 3] = [V0, V1, V2];
/// Versions of EndTxn of the two protocols.
const OLD: i16 = 4;
const NEW: i16 = 5;

fn ended(commit: bool) -> &'static str {
    if commit { "CompleteCommit" } else { "CompleteAbort" }
}

#[test]
fn with_kip_890_every_ending_gives_the_next_epoch() {
    let mut rig = Rig::or_broker(V2);
    let mut owner = rig.owner();
    assert_eq!(owner.epoch, 0);
    for commit in [true, false, true] {
        rig.must_add(owner, "t", 0, 5);
        rig.must_add(owner, "t", 1, 5);
        assert_eq!(rig.state(), "Ongoing");
        let next = at_epoch(owner, owner.epoch + 1);
        assert_eq!(rig.end(owner, commit, NEW), (None, next));
        assert_eq!(rig.settle(ended(commit)), next);
        // The answer was lost: the owner asks again, and then for something else.
        assert_eq!(rig.end(owner, commit, NEW), (None, next));
        assert_eq!(rig.end(owner, !commit, NEW), (InvalidTxnState, NOBODY));
        owner = next;
    }
    // It was not sure that anything was open.
    let next = at_epoch(owner, owner.epoch + 1);
    assert_eq!(rig.end(owner, true, NEW), (InvalidTxnState, NOBODY));
    assert_eq!(rig.end(owner, false, NEW), (None, next));
    assert_eq!(rig.settle("CompleteAbort"), next);
    assert_eq!(rig.add(&Add { producer: owner, ..ADD }), [ProducerFenced]);
    rig.must_add(next, "t", 3, 5);
    if rig.kafka.is_none() {
        let commits = [true, true, false, false, true, true];
        let seen: Vec<bool> = rig.written.iter().map(|it| it.3).collect();
        assert_eq!(seen, commits, "two partitions each, and none for the ending of nothing");
        assert_eq!(rig.written[0].2.epoch, 1, "a marker has the epoch that comes next");
    }
}

#[test]
fn before_kip_890_the_epoch_stays() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = rig.owner();
        for commit in [true, false, true] {
            rig.must_add(owner, "t", 0, 3);
            assert_eq!(rig.end(owner, commit, OLD), (None, NOBODY));
            assert_eq!(rig.settle(ended(commit)), owner);
            assert_eq!(rig.end(owner, commit, OLD), (None, NOBODY));
            assert_eq!(rig.end(owner, !commit, OLD), (InvalidTxnState, NOBODY));
        }
        let next = at_epoch(owner, owner.epoch + 1);
        assert_eq!(rig.owner(), next);
        assert_eq!(rig.end(next, false, OLD), (InvalidTxnState, NOBODY));
    }
}

#[test]
fn another_instance_aborts_and_fences() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let first = rig.owner();
        rig.must_add(first, "t", 0, 3);
        assert_eq!(rig.init(&INIT), (ConcurrentTransactions, NOBODY));
        // One epoch ends the transaction, one more is the new instance's.
        assert_eq!(rig.settle("CompleteAbort"), at_epoch(first, 1));
        let second = rig.owner();
        assert_eq!(second, at_epoch(first, 2));
        assert_eq!(rig.state(), "Empty");
        assert_eq!(rig.add(&Add { producer: first, version: 3, ..ADD }), [ProducerFenced]);
        assert_eq!(rig.add(&Add { producer: first, version: 1, ..ADD }), [InvalidProducerEpoch]);
        assert_eq!(rig.add(&Add { producer: first, verify: true, ..ADD }), [ProducerFenced]);
        assert_eq!(rig.add_offsets(first, 4), ProducerFenced);
        assert_eq!(rig.end(first, true, OLD), (ProducerFenced, NOBODY));
        assert_eq!(rig.end(first, true, 1), (InvalidProducerEpoch, NOBODY));
        let resume = Init { expected: first, ..INIT };
        assert_eq!(rig.init(&resume), (ProducerFenced, NOBODY));
        assert_eq!(rig.init(&Init { version: 3, ..resume }), (InvalidProducerEpoch, NOBODY));
        rig.must_add(second, "t", 0, 3);
        assert_eq!(rig.state(), "Ongoing");
    }
}

#[test]
fn a_producer_goes_on_after_an_error() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = rig.owner();
        let resume = Init { expected: owner, ..INIT };
        let next = at_epoch(owner, 1);
        assert_eq!(rig.init(&resume), (None, next));
        assert_eq!(rig.init(&resume), (None, next), "the answer was lost");
        assert_eq!(rig.init(&Init { expected: next, ..INIT }), (None, at_epoch(owner, 2)));
        assert_eq!(rig.init(&resume), (ProducerFenced, NOBODY), "a copy that comes late");
        assert_eq!(rig.owner(), at_epoch(owner, 3));
        // A new instance has come: whoever had the epoch before may not go on.
        let late = Init { expected: at_epoch(owner, 2), ..INIT };
        assert_eq!(rig.init(&late), (ProducerFenced, NOBODY));
    }
}

#[test]
fn an_abort_with_kip_890_lets_the_owner_go_on() {
    let mut rig = Rig::or_broker(V2);
    let owner = rig.owner();
    rig.must_add(owner, "t", 0, 5);
    assert_eq!(rig.init(&Init { expected: owner, ..INIT }), (ConcurrentTransactions, NOBODY));
    let next = rig.settle("CompleteAbort");
    assert_eq!(next, at_epoch(owner, 1));
    assert_eq!(rig.end(owner, true, NEW), (InvalidTxnState, NOBODY));
    assert_eq!(rig.end(owner, false, NEW), (None, next));
    assert_eq!(rig.init(&Init { expected: owner, ..INIT }), (None, next));
}

/// Brings the id to the last epoch that clients get.
fn last_epoch(rig: &mut Rig) -> Producer {
    let mut owner = rig.owner();
    while owner.epoch < i16::MAX - 1 {
        let (code, next) = rig.init(&INIT);
        assert_eq!((code, next), (None, at_epoch(owner, owner.epoch + 1)));
        owner = next;
    }
    owner
}

#[test]
fn used_up_epochs_bring_another_producer_id() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = last_epoch(&mut rig);
        let resume = Init { expected: owner, ..INIT };
        let (code, next) = rig.init(&resume);
        assert_eq!((code, next.epoch), (None, 0));
        assert_ne!(next.id, owner.id);
        assert_eq!(rig.init(&resume), (None, next), "the answer was lost");
        assert_eq!(rig.end(owner, false, OLD), (InvalidProducerIdMapping, NOBODY));
        rig.must_add(next, "t", 0, 3);
    }
}

#[test]
fn an_ending_that_uses_up_the_epochs_hands_on_to_another_producer_id() {
    let mut rig = Rig::or_broker(V2);
    let owner = last_epoch(&mut rig);
    rig.must_add(owner, "t", 0, 5);
    let (code, next) = rig.end(owner, true, NEW);
    assert_eq!((code, next.epoch), (None, 0));
    assert_ne!(next.id, owner.id);
    assert_eq!(rig.settle("CompleteCommit"), next);
    assert_eq!(rig.end(owner, true, NEW), (None, next), "the answer was lost");
    assert_eq!(rig.end(owner, false, NEW), (InvalidTxnState, NOBODY));
    assert_eq!(rig.init(&Init { expected: owner, ..INIT }), (None, next));
    rig.must_add(next, "t", 0, 5);
    assert_eq!(rig.end(next, true, NEW), (None, at_epoch(next, 1)));
    if rig.kafka.is_none() {
        let marker = &rig.written[0].2;
        assert_eq!(*marker, at_epoch(owner, i16::MAX), "the transaction ends as what it was");
    }
}

#[test]
fn fencing_at_the_last_epoch() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = last_epoch(&mut rig);
        rig.must_add(owner, "t", 0, 3);
        assert_eq!(rig.init(&INIT), (ConcurrentTransactions, NOBODY));
        let after = rig.settle("CompleteAbort");
        let next = rig.owner();
        assert_ne!(next.id, owner.id);
        if level == V2 {
            assert_eq!((after, next.epoch), (at_epoch(next, 0), 1), "handed on by the abort");
        } else {
            assert_eq!((after, next.epoch), (at_epoch(owner, i16::MAX), 0));
        }
    }
}

#[test]
fn offsets_are_part_of_a_transaction() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = rig.owner();
        assert_eq!(rig.add_offsets(owner, 3), None);
        let described = rig.describe(ID);
        let topic = described.topics.first().unwrap();
        assert_eq!((&*topic.topic, topic.partitions.to_vec()), ("__consumer_offsets", vec![0]));
        assert_eq!(rig.end(owner, true, OLD), (None, NOBODY));
        assert_eq!(rig.settle("CompleteCommit"), owner);
    }
}

#[test]
fn what_the_tools_see() {
    for level in LEVELS {
        let mut rig = Rig::or_broker(level);
        let owner = rig.owner();
        let empty = rig.describe(ID);
        assert_eq!((empty.transaction_start_time_ms, empty.topics.len()), (-1, 0));
        assert_eq!(empty.transaction_timeout_ms, txn_support::TIMEOUT_MS);
        for partition in [2, 0] {
            rig.must_add(owner, "t", partition, 3);
        }
        let open = rig.describe(ID);
        assert_eq!((open.producer_id, open.producer_epoch), (owner.id, owner.epoch));
        assert!(open.transaction_start_time_ms > 0);
        let mut partitions = open.topics.first().unwrap().partitions.to_vec();
        partitions.sort();
        assert_eq!(partitions, [0, 2]);

        let all = m::ListTransactionsRequest {
            duration_filter: -1,
            transactional_id_pattern: Some(ID.into()),
            ..Default::default()
        };
        let found = |rig: &mut Rig, list: m::ListTransactionsRequest<'_>| {
            let listed = rig.list(&list);
            assert_eq!(listed.error_code, 0);
            let ids: Vec<i64> = listed.transaction_states.iter().map(|it| it.producer_id).collect();
            (ids, listed.unknown_state_filters.iter().map(|it| it.into_owned()).collect::<Vec<_>>())
        };
        let named = |names: &[&'static str]| m::ListTransactionsRequest {
            state_filters: names.iter().map(|name| wire::Text::from(*name)).collect(),
            ..all.clone()
        };
        let nothing = Vec::<String>::new();
        assert_eq!(found(&mut rig, all.clone()), (vec![owner.id], nothing.clone()));
        assert_eq!(found(&mut rig, named(&["Ongoing"])), (vec![owner.id], nothing.clone()));
        let rest = named(&["Empty", "Dead", "PrepareEpochFence"]);
        assert_eq!(found(&mut rig, rest), (vec![], nothing.clone()));
        let odd = named(&["ongoing", "Open"]);
        assert_eq!(found(&mut rig, odd), (vec![], vec!["ongoing".into(), "Open".into()]));
        let by_id =
            |id| m::ListTransactionsRequest { producer_id_filters: vec![id].into(), ..all.clone() };
        assert_eq!(found(&mut rig, by_id(owner.id)).0, [owner.id]);
        assert_eq!(found(&mut rig, by_id(owner.id + 1)).0, []);
        let older = m::ListTransactionsRequest { duration_filter: 3_600_000, ..all.clone() };
        assert_eq!(found(&mut rig, older).0, []);
        if rig.kafka.is_none() {
            rig.pass(5);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let younger = m::ListTransactionsRequest { duration_filter: 1, ..all.clone() };
        assert_eq!(found(&mut rig, younger).0, [owner.id]);
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_its_owner_fenced() {
    for level in LEVELS {
        let mut rig = Rig::new(level);
        let owner = rig.owner();
        rig.must_add(owner, "t", 0, 3);
        rig.pass(30_000);
        rig.must_add(owner, "t", 1, 3);
        rig.pass(30_000);
        assert_eq!(rig.state(), "Ongoing", "Kafka wants more than the timeout to pass");
        rig.pass(1);
        assert_eq!(rig.settle("CompleteAbort"), at_epoch(owner, 1));
        assert_eq!(rig.written.len(), 2);
        assert!(rig.written.iter().all(|it| !it.3 && it.2 == at_epoch(owner, 1)));
        assert_eq!(rig.end(owner, true, OLD), (ProducerFenced, NOBODY));
        assert_eq!(rig.add(&Add { producer: owner, version: 3, ..ADD }), [ProducerFenced]);
        // Nothing is open, so time does nothing any more.
        let records = rig.log.len();
        rig.pass(3_000_000);
        assert_eq!(rig.log.len(), records);
    }
}

/// Its markers may take as long as they like, and nobody takes the outcome back.
#[test]
fn time_ends_nothing_that_is_decided() {
    for level in LEVELS {
        let mut rig = Rig::new(level);
        rig.leaders_answer = false;
        let owner = rig.owner();
        rig.must_add(owner, "t", 0, 3);
        assert_eq!(rig.end(owner, true, OLD).0, None);
        rig.pass(3_000_000);
        assert_eq!(rig.state(), "PrepareCommit");
        let [marker] = &rig.markers[..] else { panic!("{:?}", rig.markers) };
        assert!(marker.commit);
        let marker = marker.clone();
        rig.answer(&marker, None);
        assert_eq!(rig.settle("CompleteCommit").id, owner.id);
    }
}

#[test]
fn markers_are_written_again_until_all_partitions_have_them() {
    let mut rig = Rig::new(V2);
    rig.leaders_answer = false;
    let owner = rig.owner();
    for partition in 0..4 {
        rig.must_add(owner, "t", partition, 5);
    }
    assert_eq!(rig.end(owner, true, NEW).0, None);
    let first = rig.markers.pop().unwrap();
    assert_eq!((first.partitions.iter().count(), first.transaction_version), (4, 2));
    assert_eq!((first.producer, first.coordinator_epoch), (at_epoch(owner, 1), 1));
    let results = [("t", 0, None), ("t", 1, NotLeaderOrFollower), ("t", 2, RequestTimedOut)];
    rig.answer_with(&first, &results);
    assert!(rig.markers.is_empty(), "the fourth is under way, the failed wait");
    rig.pass(20);
    let again = rig.markers.pop().unwrap();
    assert_eq!(again.partitions.iter().collect::<Vec<_>>(), [("t", 1), ("t", 2)]);
    // Only what is out can be answered, and only once.
    rig.answer_with(&again, &[("t", 0, NotLeaderOrFollower), ("u", 7, None)]);
    rig.answer_with(&again, &[("t", 1, None), ("t", 2, NotLeaderOrFollower)]);
    rig.answer_with(&again, &[("t", 2, None)]);
    assert_eq!(rig.state(), "PrepareCommit");
    let left = rig.describe(ID).topics.first().unwrap().partitions.to_vec();
    assert_eq!(left, [2, 3]);
    rig.pass(39);
    assert!(rig.markers.is_empty(), "the wait has doubled");
    rig.pass(1);
    let last = rig.markers.pop().unwrap();
    rig.answer_with(&last, &[("t", 2, None)]);
    rig.answer_with(&first, &[("t", 3, UnknownTopicOrPartition)]);
    assert_eq!(rig.state(), "PrepareCommit", "the partition exists: its leader does not know yet");
    // Now it is deleted.
    rig.cluster.topics.insert("t".into(), 3);
    rig.pass(10_000);
    assert!(rig.markers.is_empty());
    assert_eq!(rig.settle("CompleteCommit"), at_epoch(owner, 1));
}

#[test]
fn answers_to_other_endings_change_nothing() {
    let mut rig = Rig::new(V1);
    rig.leaders_answer = false;
    let owner = rig.owner();
    rig.must_add(owner, "t", 0, 3);
    assert_eq!(rig.end(owner, true, OLD).0, None);
    let first = rig.markers.pop().unwrap();
    rig.answer(&first, None);
    rig.must_add(owner, "t", 0, 3);
    assert_eq!(rig.end(owner, false, OLD).0, None);
    let second = rig.markers.pop().unwrap();
    assert_eq!(second.producer, first.producer, "nothing but the round tells them apart");
    rig.answer(&first, None);
    assert_eq!(rig.state(), "PrepareAbort");
    rig.answer(&second, None);
    assert_eq!(rig.settle("CompleteAbort"), owner);
    rig.answer(&second, None);
    assert_eq!(rig.log.len(), 7);
}

#[test]
fn what_is_nothing_to_wait_for() {
    let codes = [UnsupportedForMessageFormat, UnsupportedVersion, InvalidProducerEpoch];
    for code in codes {
        let mut rig = Rig::new(V2);
        rig.leaders_answer = false;
        let owner = rig.owner();
        rig.must_add(owner, "t", 0, 5);
        rig.end(owner, true, NEW);
        let marker = rig.markers.pop().unwrap();
        rig.answer(&marker, code);
        assert_eq!(rig.state(), "CompleteCommit", "{code:?}");
    }
    for code in [TransactionCoordinatorFenced, KafkaStorageError, UnknownServerError] {
        let mut rig = Rig::new(V2);
        rig.leaders_answer = false;
        let owner = rig.owner();
        rig.must_add(owner, "t", 0, 5);
        rig.end(owner, true, NEW);
        let marker = rig.markers.pop().unwrap();
        rig.answer(&marker, code);
        rig.pass(1_000);
        assert_eq!((rig.markers.len(), &*rig.state()), (1, "PrepareCommit"), "{code:?}");
    }
}

#[test]
fn a_decided_transaction_is_ended_by_the_next_coordinator() {
    for (level, version) in [(V0, OLD), (V1, OLD), (V2, OLD), (V2, NEW)] {
        for commit in [true, false] {
            let mut rig = Rig::new(level);
            rig.leaders_answer = false;
            let owner = rig.owner();
            rig.must_add(owner, "t", 0, version.min(3));
            rig.must_add(owner, "t", 1, version.min(3));
            let (_, next) = rig.end(owner, commit, version);
            let lost = rig.markers.pop().unwrap();
            rig.reload();
            let marker = rig.markers.pop().unwrap();
            assert_eq!((marker.commit, marker.coordinator_epoch), (commit, 2));
            assert_eq!((&marker.partitions, marker.producer), (&lost.partitions, lost.producer));
            assert_eq!(rig.state(), if commit { "PrepareCommit" } else { "PrepareAbort" });
            rig.answer(&marker, None);
            let expected = if version == NEW { next } else { owner };
            assert_eq!(rig.settle(ended(commit)), expected);
        }
    }
}

#[test]
fn what_comes_after_used_up_epochs_survives_the_coordinator() {
    let mut rig = Rig::new(V2);
    rig.leaders_answer = false;
    let owner = last_epoch(&mut rig);
    rig.must_add(owner, "t", 0, 5);
    let (_, next) = rig.end(owner, true, NEW);
    rig.reload();
    let marker = rig.markers.pop().unwrap();
    assert_eq!(marker.producer, at_epoch(owner, i16::MAX));
    assert_eq!(rig.add(&Add { producer: next, ..ADD }), [ConcurrentTransactions]);
    rig.answer(&marker, None);
    rig.reload();
    assert_eq!(rig.settle("CompleteCommit"), next);
    assert_eq!(rig.end(owner, true, NEW), (None, next), "the answer was lost with the coordinator");
    // What the epoch before was is not in the log.
    assert_eq!(rig.init(&Init { expected: owner, ..INIT }), (ProducerFenced, NOBODY));
    rig.must_add(next, "t", 0, 5);
}

#[test]
fn an_open_transaction_times_out_with_the_next_coordinator() {
    let mut rig = Rig::new(V2);
    let owner = rig.owner();
    rig.must_add(owner, "t", 0, 5);
    rig.pass(59_000);
    rig.reload();
    assert_eq!(rig.state(), "Ongoing");
    rig.pass(1_001);
    assert_eq!(rig.settle("CompleteAbort"), at_epoch(owner, 1));
}

#[test]
fn ids_that_nobody_uses_are_forgotten() {
    let mut rig = Rig::new(V2);
    rig.leaders_answer = false;
    let owner = rig.owner();
    let open = Init { id: "decided", ..INIT };
    let (_, other) = rig.init(&open);
    rig.add(&Add { id: "decided", producer: other, ..ADD });
    let end = m::EndTxnRequest {
        transactional_id: "decided".into(),
        producer_id: other.id,
        producer_epoch: other.epoch,
        committed: true,
    };
    rig.ask(TxnRequest::EndTxn(&end), NEW);
    rig.pass(rig.config.id_expiration_ms - 3_600_000);
    rig.init(&Init { id: "younger", ..INIT });
    rig.pass(2 * 3_600_000);
    assert_eq!(rig.describe(ID).error_code, TransactionalIdNotFound.code());
    assert_eq!(&*rig.describe("decided").transaction_state, "PrepareCommit");
    assert_eq!(&*rig.describe("younger").transaction_state, "Empty");
    assert_eq!(rig.log.iter().filter(|(_, value)| value.is_none()).count(), 1);
    rig.reload();
    assert_eq!(rig.coordinator.id_count(), 2);
    // Whoever comes back is known by what it has, as in Kafka.
    let (code, again) = rig.init(&Init { expected: owner, ..INIT });
    assert_eq!((code, again.epoch), (None, 0));
    assert_ne!(again.id, owner.id);
}

#[test]
fn the_feature_changes_while_transactions_are_open() {
    for from in LEVELS {
        for to in LEVELS {
            for (add, end) in [(3, OLD), (3, NEW), (5, NEW), (5, OLD)] {
                let mut rig = Rig::new(from);
                rig.leaders_answer = false;
                let owner = rig.owner();
                rig.must_add(owner, "t", 0, add);
                rig.level = to;
                rig.reload();
                rig.must_add(owner, "t", 1, add);
                let (code, next) = rig.end(owner, true, end);
                assert_eq!(code, None);
                let bumped = end == NEW;
                assert_eq!(next, if bumped { at_epoch(owner, 1) } else { NOBODY });
                // And once more before it is complete.
                rig.level = from;
                rig.reload();
                let marker = rig.markers.pop().unwrap();
                rig.answer(&marker, None);
                let owner = rig.settle("CompleteCommit");
                assert_eq!(owner.epoch, i16::from(bumped));
                let next = rig.owner();
                assert_eq!(next, at_epoch(owner, owner.epoch + 1));
                rig.must_add(next, "t", 0, add);
            }
        }
    }
}

#[test]
fn records_of_old_clusters_have_no_room_for_what_comes_next() {
    let mut rig = Rig::new(V0);
    let owner = last_epoch(&mut rig);
    rig.must_add(owner, "t", 0, 5);
    let (code, next) = rig.end(owner, true, NEW);
    assert_eq!((code, next.epoch), (None, 0));
    assert_eq!(rig.settle("CompleteCommit"), next);
    assert!(rig.log.iter().all(|(_, value)| value.as_ref().unwrap()[..2] == [0, 0]));
    // A coordinator that dies before all markers are written takes it along.
    rig.leaders_answer = false;
    let owner = last_epoch(&mut rig);
    rig.must_add(owner, "t", 0, 5);
    let (code, next) = rig.end(owner, true, NEW);
    assert_eq!((code, next.epoch), (None, 0));
    rig.reload();
    let marker = rig.markers.pop().unwrap();
    rig.answer(&marker, None);
    assert_eq!(rig.settle("CompleteCommit"), at_epoch(owner, i16::MAX));
    assert_eq!(rig.add(&Add { producer: next, ..ADD }), [InvalidProducerIdMapping]);
    assert_eq!(rig.owner().epoch, 0);
}

#[test]
fn a_transaction_has_as_many_partitions_as_a_record_holds() {
    let mut rig = Rig::new(V2);
    rig.config.partitions_bytes_max = 1_000;
    let config = rig.config.clone();
    rig.coordinator.set_config(config);
    rig.cluster.topics.insert("many".into(), 1_000);
    let owner = rig.owner();
    let partitions: Vec<(&str, i32)> = (0..500).map(|partition| ("many", partition)).collect();
    let all = Add { producer: owner, partitions: &partitions, ..ADD };
    assert!(rig.add(&all).iter().all(|code| *code == UnknownServerError));
    let long = "x".repeat(1_001);
    assert_eq!(rig.init(&Init { id: &long, ..INIT }), (UnknownServerError, NOBODY));
    let some = Add { partitions: &partitions[..200], ..all };
    assert!(rig.add(&some).iter().all(|code| *code == None));
    assert_eq!(rig.end(owner, true, NEW).0, None);
}

/// Whatever falls due at once, a decision is one batch, and a batch that is too large costs all ids
/// of the partition their coordinator.
#[test]
fn much_that_falls_due_at_once_is_done_in_batches() {
    const IDS: usize = 100;
    const MOST: usize = 9 << 17;
    let mut rig = Rig::new(V2);
    rig.config.partitions_bytes_max = 64 << 10;
    let config = rig.config.clone();
    rig.coordinator.set_config(config);
    rig.cluster.topics.insert("many".into(), 10_000);
    let partitions: Vec<(&str, i32)> = (0..10_000).map(|partition| ("many", partition)).collect();
    let ids: Vec<String> = (0..IDS).map(|n| format!("{n:03}{}", "x".repeat(16 << 10))).collect();
    for id in &ids {
        let (code, producer) = rig.init(&Init { id, ..INIT });
        assert_eq!(code, None);
        rig.add(&Add { id, producer, partitions: &partitions, ..ADD });
    }
    let begun = rig.log.len();
    // They time out; long after their end the ids are forgotten.
    for after_ms in [120_000, rig.config.id_expiration_ms + 3_600_000] {
        rig.now_ms += after_ms;
        let before = rig.log.len();
        while rig.coordinator.next_deadline().is_some_and(|due_ms| due_ms <= rig.now_ms) {
            let decision = rig.with(|coordinator, ctx| coordinator.on_time(ctx));
            let bytes = decision.records.iter().map(|record| {
                let (key, value) = record.to_bytes().unwrap();
                key.len() + value.map_or(0, |value| value.len())
            });
            assert!(bytes.sum::<usize>() < MOST);
            let marked = decision.markers.iter().map(|marker| marker.partitions.iter().count());
            assert!(4 * marked.sum::<usize>() < MOST);
            rig.take_in(decision);
        }
        assert!(rig.log.len() >= before + IDS);
    }
    assert_eq!(rig.log.len(), begun + 3 * IDS, "ended by two records, forgotten by one");
    assert_eq!(rig.coordinator.id_count(), 0);
}

#[test]
fn without_producer_ids_at_hand() {
    let mut rig = Rig::new(V2);
    rig.cluster.ids_left.set(0);
    assert_eq!(rig.init(&INIT), (CoordinatorLoadInProgress, NOBODY));
    assert!(rig.log.is_empty() && rig.coordinator.id_count() == 0);
    rig.cluster.ids_left.set(1);
    let owner = last_epoch(&mut rig);
    assert_eq!(rig.init(&INIT), (CoordinatorLoadInProgress, NOBODY));
    rig.must_add(owner, "t", 0, 5);
    assert_eq!(rig.end(owner, true, NEW), (CoordinatorLoadInProgress, NOBODY));
    assert_eq!(rig.init(&INIT), (CoordinatorLoadInProgress, NOBODY));
    rig.now_ms += 120_000;
    let decision = rig.with(|coordinator, ctx| coordinator.on_time(ctx));
    assert!(decision.is_read_only() && decision.lacks_producer_id, "{decision:?}");
    assert_eq!(rig.state(), "Ongoing", "the abort of what timed out waits");
    rig.cluster.ids_left.set(1);
    rig.pass(1_000);
    assert_eq!(rig.settle("CompleteAbort").epoch, 0);
    assert_eq!(rig.written.len(), 1);
}

#[test]
fn requests_that_no_coordinator_looked_at() {
    let init = m::InitProducerIdRequest::default();
    let add = m::AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID.into(),
        v3_and_below_topics: vec![m::add_partitions_to_txn_request::AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: vec![0, 1].into(),
        }]
        .into(),
        ..Default::default()
    };
    let transactions = coord::txn::split_add_partitions(&add, 3);
    let offsets = m::AddOffsetsToTxnRequest::default();
    let end = m::EndTxnRequest::default();
    let list = m::ListTransactionsRequest::default();
    let requests = [
        TxnRequest::InitProducerId(&init),
        TxnRequest::AddPartitions(&transactions[0]),
        TxnRequest::AddOffsets { request: &offsets, partition: 0 },
        TxnRequest::EndTxn(&end),
        TxnRequest::Describe(ID),
        TxnRequest::List { request: &list, after: Option::None },
    ];
    for request in requests {
        let reply = request.refused(NotCoordinator);
        txn_support::encodes(&reply, 0);
        let codes = match reply {
            TxnReply::InitProducerId(reply) => vec![reply.error_code],
            TxnReply::AddPartitions(reply) => {
                let whole = coord::txn::join_add_partitions(vec![reply], 3);
                let topic = whole.results_by_topic_v3_and_below.first().unwrap();
                topic.results_by_partition.iter().map(|it| it.partition_error_code).collect()
            }
            TxnReply::AddOffsets(reply) => vec![reply.error_code],
            TxnReply::EndTxn(reply) => vec![reply.error_code],
            TxnReply::Describe(reply) => vec![reply.error_code],
            TxnReply::List { list, .. } => vec![list.error_code],
        };
        assert!(!codes.is_empty() && codes.iter().all(|code| *code == NotCoordinator.code()));
    }
}

#[test]
fn the_last_epoch_is_nobodys() {
    let mut rig = Rig::new(V1);
    let owner = last_epoch(&mut rig);
    rig.must_add(owner, "t", 0, 5);
    rig.pass(60_001);
    assert_eq!(rig.settle("CompleteAbort"), at_epoch(owner, i16::MAX));
    assert_eq!(rig.end(owner, false, NEW), (ProducerFenced, NOBODY));
    assert_eq!(rig.init(&Init { expected: owner, ..INIT }), (ProducerFenced, NOBODY));
    // Kafka 4.1 and before could write that an abort with KIP-890 ended there.
    let (key, value) = rig.log.pop().unwrap();
    let mut record = TxnRecord::read(&key, value.as_deref()).unwrap().unwrap();
    record.value.as_mut().unwrap().client_transaction_version = 2;
    let bytes = record.to_bytes().unwrap();
    rig.log.push(bytes);
    rig.reload();
    assert_eq!(rig.end(owner, false, NEW), (None, NOBODY), "aborted, and nothing to go on with");
    let next = rig.owner();
    assert_eq!(next.epoch, 0);
    assert_ne!(next.id, owner.id);
}

#[test]
fn a_fenced_producer_is_not_given_the_epoch_of_who_took_over() {
    for commit in [true, false] {
        let mut rig = Rig::new(V2);
        let fenced = rig.owner();
        let owner = rig.owner();
        assert_eq!(owner, at_epoch(fenced, fenced.epoch + 1));
        rig.must_add(owner, "t", 0, 3);
        rig.end(owner, commit, OLD);
        assert_eq!(rig.settle(ended(commit)), owner);
        assert_eq!(rig.end(fenced, commit, NEW), (ProducerFenced, NOBODY));
    }
}
