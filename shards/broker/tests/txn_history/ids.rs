//! Transactional ids over their whole life: one whose epochs run out while the broker is restarted,
//! and thousands that come, are listed, survive a restart and are forgotten.

use std::time::Duration;

use coord::txn::TxnRecord;
use log::{Log, LogConfig, LogShared, OpenHint, SharedOptions};
use reactor::sim::{Outcome, World};
use wire::hash::coordinator_partition;
use wire::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest,
    ListTransactionsResponse, TransactionLogKey, TransactionLogValue,
};
use wire::records::{BatchBuilder, BatchView};
use wire::{ApiKey, Text};

use super::calls::{Call, Caller, TIMEOUT_MS};
use super::producer::{LONG, Producer, start, until_stable};
use crate::support::Client;

crate::response!(Initialised, InitProducerIdResponse);
crate::response!(Listed, ListTransactionsResponse, borrows);

const DIR: &str = "/data";
const PARTITIONS: usize = 2;
const SETTINGS: [&str; 1] = ["transaction.state.log.num.partitions=2"];
/// The last epoch that an owner is given.
const LAST: i16 = i16::MAX - 1;
const INVALID_TXN_STATE: i16 = 48;
/// By which a producer learns that its id and epoch are not the current ones.
const OLD: [i16; 3] = [47, 49, 90];

#[track_caller]
fn finished<T: std::fmt::Debug>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Finished(value) => value,
        other => panic!("{other:?}"),
    }
}

/// As a log may say after thirty thousand endings; no broker is at work.
async fn write_epoch(id: &'static str, producer_id: i64, producer_epoch: i16) {
    let shared = LogShared::new(SharedOptions::default());
    let partition = coordinator_partition(id, PARTITIONS as i32);
    let dir = format!("{DIR}/__transaction_state-{partition}");
    let now_ms = reactor::wall_clock_ms();
    let (config, hint) = (LogConfig::default(), OpenHint::default());
    let (log, _) = Log::open(&shared, dir.into(), config, hint, now_ms).await.unwrap();
    let value = TransactionLogValue {
        producer_id,
        previous_producer_id: producer_id,
        next_producer_id: -1,
        producer_epoch,
        next_producer_epoch: -1,
        transaction_timeout_ms: TIMEOUT_MS,
        transaction_status: 0,
        transaction_last_update_timestamp_ms: now_ms,
        transaction_start_timestamp_ms: -1,
        ..Default::default()
    };
    let key = TransactionLogKey { transactional_id: id.into() };
    let (key, value) = TxnRecord { key, value: Some(value), version: 1 }.to_bytes().unwrap();
    let mut batch = BatchBuilder::new();
    batch.append(now_ms, Some(&key), value.as_deref());
    let bytes = batch.build().unwrap();
    let appended = log.append(&BatchView::parse(&bytes).unwrap(), 0, now_ms).unwrap();
    log.acknowledged(appended.last_offset + 1).await.unwrap();
    log.close().await.unwrap();
}

/// The broker knows the id with the epoch before the last one.
fn before_the_last_epoch(new: bool) -> (World, i64) {
    let mut world = World::new(11);
    let producer_id = finished(world.run(move || async move {
        start(&[DIR], &SETTINGS).await;
        let mut owner = Producer::new("t", new);
        assert_eq!(owner.init().await, 0);
        owner.caller.producer.0
    }));
    finished(world.run(move || write_epoch("t", producer_id, LAST - 1)));
    (world, producer_id)
}

fn instance(caller: Caller) -> Producer {
    let mut producer = Producer::new(caller.id, caller.new);
    producer.caller = caller;
    producer
}

/// With the last epoch nothing works any more that was asked for by its owner of before.
async fn is_out(old: Caller) {
    let mut zombie = instance(old);
    assert!(OLD.contains(&zombie.write(1, b"late").await.0));
    assert!(OLD.contains(&zombie.write_only(0, b"late").await.0));
    assert_eq!(zombie.ask(&Call::Init).await.code, 90);
}

/// Of the old protocol the owner keeps the last epoch as long as it lives, over a restart with a
/// transaction open; who takes over has another producer id.
#[test]
fn the_last_epoch_of_the_old_protocol_survives_a_restart() {
    let (mut world, producer_id) = before_the_last_epoch(false);
    let caller = finished(world.run(|| async {
        let mut clients = start(&[DIR], &SETTINGS).await;
        let mut owner = Producer::new("t", false);
        assert_eq!(owner.init().await, 0);
        assert_eq!(owner.write(0, b"v").await.0, 0);
        assert_eq!(owner.end(true).await, 0);
        until_stable(&mut clients, 0).await;
        assert_eq!(owner.write(1, b"open").await.0, 0);
        owner.caller
    }));
    assert_eq!(caller.producer, (producer_id, LAST));
    finished(world.run(move || async move {
        let mut clients = start(&[DIR], &SETTINGS).await;
        let mut owner = instance(caller);
        assert_eq!(owner.end(true).await, 0);
        // Its answer may have been lost.
        assert_eq!(owner.end(true).await, 0);
        until_stable(&mut clients, 1).await;
        let mut next = Producer::new("t", false);
        assert_eq!(next.init().await, 0);
        let (id, epoch) = next.caller.producer;
        assert!(id != producer_id && epoch == 0, "{:?}", next.caller);
        is_out(caller).await;
        assert!(OLD.contains(&owner.end(true).await));
        assert_eq!(next.write(0, b"v").await.0, 0);
        assert_eq!(next.end(true).await, 0);
        until_stable(&mut clients, 0).await;
    }));
}

/// With KIP-890 the ending itself brings the other producer id, also to who has to ask again after
/// a restart.
#[test]
fn an_ending_that_uses_the_epochs_up_is_repeated_after_a_restart() {
    for commit in [true, false] {
        let (mut world, producer_id) = before_the_last_epoch(true);
        let (before, after) = finished(world.run(move || async move {
            start(&[DIR], &SETTINGS).await;
            let mut owner = Producer::new("t", true);
            assert_eq!(owner.init().await, 0);
            assert_eq!(owner.write(0, b"v").await.0, 0);
            let before = owner.caller;
            assert_eq!(owner.end(commit).await, 0);
            (before, owner.caller)
        }));
        assert_eq!(before.producer, (producer_id, LAST));
        assert!(after.producer.0 != producer_id && after.producer.1 == 0, "{after:?}");
        finished(world.run(move || async move {
            let mut clients = start(&[DIR], &SETTINGS).await;
            let mut owner = instance(before);
            let other = owner.ask(&Call::End { commit: !commit }).await.code;
            assert_eq!(other, INVALID_TXN_STATE, "not the other way round");
            assert_eq!(owner.end(commit).await, 0);
            assert_eq!(owner.caller.producer, after.producer, "the same answer");
            until_stable(&mut clients, 0).await;
            assert_eq!(owner.write(0, b"v").await.0, 0);
            assert_eq!(owner.end(true).await, 0);
            until_stable(&mut clients, 0).await;
            is_out(before).await;
        }));
    }
}

const MANY: usize = 3_000;
const EXPIRATION_MS: u64 = 60_000;

fn many_settings() -> [&'static str; 3] {
    [
        SETTINGS[0],
        "transactional.id.expiration.ms=60000",
        "transaction.remove.expired.transaction.cleanup.interval.ms=1000",
    ]
}

/// InitProducerId of each, from whichever shard coordinates it.
async fn init_many(clients: &mut [Client]) {
    for number in 0..MANY {
        let id = format!("id-{number}");
        let begin = reactor::now();
        'answered: loop {
            for client in clients.iter_mut() {
                let request = InitProducerIdRequest {
                    transactional_id: Some(Text::from(id.clone())),
                    transaction_timeout_ms: TIMEOUT_MS,
                    ..Default::default()
                };
                let call = client.call::<_, Initialised>(ApiKey::InitProducerId, 4, &request);
                if call.await.unwrap().error_code == 0 {
                    break 'answered;
                }
            }
            assert!(reactor::now() - begin < LONG, "{id} gets no producer id");
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How many ids are listed, of those that match.
async fn listed(clients: &mut [Client], pattern: &'static str) -> usize {
    let mut all = Vec::new();
    for client in clients {
        let begin = reactor::now();
        loop {
            let request = ListTransactionsRequest {
                duration_filter: -1,
                transactional_id_pattern: Some(pattern.into()),
                ..Default::default()
            };
            let api = ApiKey::ListTransactions;
            let answer = client.call::<_, Listed>(api, 2, &request).await.unwrap();
            if answer.error_code == 0 {
                let ids = answer.transaction_states.iter();
                all.extend(ids.map(|it| it.transactional_id.to_string()));
                break;
            }
            assert_eq!(answer.error_code, 14, "still loading");
            assert!(reactor::now() - begin < LONG, "it is loading for good");
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }
    let told = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), told, "an id is told twice");
    told
}

#[test]
fn thousands_of_ids_are_listed_survive_a_restart_and_are_forgotten() {
    let mut world = World::new(12);
    world.limit_time(Duration::from_secs(7_200));
    finished(world.run(|| async {
        let mut clients = start(&[DIR], &many_settings()).await;
        init_many(&mut clients).await;
        assert_eq!(listed(&mut clients, "id-.*").await, MANY);
        assert_eq!(listed(&mut clients, "id-7..").await, 100);
    }));
    finished(world.run(|| async {
        let mut clients = start(&[DIR], &many_settings()).await;
        assert_eq!(listed(&mut clients, "id-.*").await, MANY);
        // One goes on; the others are not heard of again.
        let mut kept = Producer::new("id-7", true);
        for _ in 0..2 {
            reactor::sleep(Duration::from_millis(EXPIRATION_MS * 2 / 3)).await;
            assert_eq!(kept.init().await, 0);
        }
        let begin = reactor::now();
        while listed(&mut clients, "id-.*").await > 1 {
            assert!(reactor::now() - begin < LONG, "they are not forgotten");
            reactor::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(listed(&mut clients, "id-7").await, 1);
    }));
    // Nor do they come back.
    finished(world.run(|| async {
        let mut clients = start(&[DIR], &many_settings()).await;
        assert!(listed(&mut clients, "id-.*").await <= 1);
    }));
}
