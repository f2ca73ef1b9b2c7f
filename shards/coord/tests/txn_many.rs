//! A log with thousands of open transactions: the coordinator that is loaded from it takes them up
//! some at a time, and none is forgotten or done twice.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod txn_support;

use std::collections::BTreeSet;

use coord::Producer;
use coord::txn::{TransactionVersion, TxnRecord, TxnReply, TxnRequest};
use txn_support::{ADD, Add, Rig};
use wire::ErrorCode;
use wire::messages as m;
use wire::messages::transaction_log_value::PartitionsSchema;

const ONGOING: i8 = 1;
const PREPARE_COMMIT: i8 = 2;
const EACH: i64 = 2_500;
/// Deadlines that one call handles, at most.
const A_CALL: usize = 256;

fn name(number: i64) -> String {
    format!("id-{number}")
}

/// Ids with even numbers are open, the others are decided and not ended.
fn entry(number: i64) -> (Vec<u8>, Option<Vec<u8>>) {
    let open = number % 2 == 0;
    let value = m::TransactionLogValue {
        producer_id: number,
        previous_producer_id: number,
        next_producer_id: -1,
        producer_epoch: 3,
        next_producer_epoch: -1,
        transaction_timeout_ms: 60_000,
        transaction_status: if open { ONGOING } else { PREPARE_COMMIT },
        transaction_partitions: Some(
            vec![PartitionsSchema { topic: "t".into(), partition_ids: vec![0].into() }].into(),
        ),
        transaction_last_update_timestamp_ms: 1_000,
        // Many begin at the same time.
        transaction_start_timestamp_ms: 1_000 + number / 100,
        client_transaction_version: 2,
    };
    let key = m::TransactionLogKey { transactional_id: name(number).into() };
    TxnRecord { key, value: Some(value), version: 1 }.to_bytes().unwrap()
}

fn loaded() -> Rig {
    let mut rig = Rig::new(TransactionVersion::V2);
    rig.leaders_answer = false;
    rig.log = (0..2 * EACH).map(entry).collect();
    rig.now_ms = 2_000;
    rig.coordinator = rig.read_log();
    rig.coordinator.loaded(rig.now_ms);
    rig
}

fn count(rig: &Rig, state: &str) -> usize {
    rig.coordinator.states().find(|(name, _)| *name == state).unwrap().1
}

/// All that is due now; gives how many markers each call sent.
fn catch_up(rig: &mut Rig) -> Vec<usize> {
    let mut calls = Vec::new();
    while rig.coordinator.next_deadline().is_some_and(|due| due <= rig.now_ms) {
        let decision = rig.with(|coordinator, ctx| coordinator.on_time(ctx));
        calls.push(decision.markers.len());
        rig.take_in(decision);
    }
    calls
}

#[test]
fn each_call_does_a_part_and_together_they_do_all() {
    let mut rig = loaded();
    let all = usize::try_from(EACH).unwrap();
    assert_eq!((count(&rig, "Ongoing"), count(&rig, "PrepareCommit")), (all, all));
    assert_eq!(rig.coordinator.oldest_open_ms(), Some(1_000));
    let calls = catch_up(&mut rig);
    assert!(calls.iter().all(|sent| *sent <= A_CALL), "{calls:?}");
    let sent: BTreeSet<&str> = rig.markers.iter().map(|it| &*it.transactional_id).collect();
    assert_eq!((rig.markers.len(), sent.len()), (all, all), "each once");
    for marker in std::mem::take(&mut rig.markers) {
        rig.answer(&marker, ErrorCode::None);
    }
    assert_eq!(count(&rig, "CompleteCommit"), all);
    // The open ones have their time still.
    rig.now_ms += 61_000;
    assert!(catch_up(&mut rig).iter().all(|sent| *sent <= A_CALL));
    assert_eq!((count(&rig, "Ongoing"), count(&rig, "PrepareAbort")), (0, all));
    assert_eq!(rig.markers.len(), all);
}

#[test]
fn a_list_is_made_in_pieces_and_none_is_left_out_or_told_twice() {
    let mut rig = loaded();
    let filters: [(&[&'static str], i64); 3] =
        [(&[], 2 * EACH), (&["Ongoing"], EACH), (&["Empty", "Odd"], 0)];
    for (states, count) in filters {
        let request = m::ListTransactionsRequest {
            state_filters: states.iter().map(|name| wire::Text::from(*name)).collect(),
            duration_filter: -1,
            ..Default::default()
        };
        let (mut ids, mut after, mut pieces) = (Vec::new(), None, 0);
        loop {
            let asked = TxnRequest::List { request: &request, after: after.as_deref() };
            let TxnReply::List { list, goes_on_after } = rig.ask(asked, 2) else { panic!() };
            assert!(list.transaction_states.len() <= 1_000);
            assert!(list.unknown_state_filters.is_empty(), "that is told once, not in each piece");
            ids.extend(list.transaction_states.iter().map(|it| it.transactional_id.into_owned()));
            pieces += 1;
            let Some(last) = goes_on_after else { break };
            // What goes in between is not told, and nothing else is lost by it.
            after = Some(last);
        }
        assert_eq!(pieces, 5);
        let whole = rig.list(&request);
        let unknown = whole.unknown_state_filters.iter().map(|it| it.into_owned());
        let expected: &[&str] = if states.contains(&"Odd") { &["Odd"] } else { &[] };
        assert!(unknown.eq(expected.iter().copied()));
        assert!(ids.is_sorted());
        ids.dedup();
        assert_eq!(ids.len(), usize::try_from(count).unwrap(), "{states:?}");
    }
}

#[test]
fn requests_come_between_and_what_they_did_is_not_done_again() {
    let mut rig = loaded();
    let last = 2 * EACH - 2;
    let producer = Producer { id: last, epoch: 3 };
    // The last one is still to be taken up.
    assert!(rig.coordinator.next_deadline().unwrap() <= rig.now_ms);
    let id = name(last);
    let add = Add { id: &id, producer, version: 5, partitions: &[("t", 1)], ..ADD };
    assert_eq!(rig.add(&add), [ErrorCode::None]);
    let request = m::EndTxnRequest {
        transactional_id: id.as_str().into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        committed: true,
    };
    let TxnReply::EndTxn(reply) = rig.ask(TxnRequest::EndTxn(&request), 5) else { panic!() };
    assert_eq!(reply.error_code, 0);
    let of_it = |rig: &Rig| rig.markers.iter().filter(|it| *it.transactional_id == *id).count();
    assert_eq!(of_it(&rig), 1);
    catch_up(&mut rig);
    assert_eq!(of_it(&rig), 1);
    rig.now_ms += 61_000;
    catch_up(&mut rig);
    assert_eq!(of_it(&rig), 1, "it does not time out");
}
