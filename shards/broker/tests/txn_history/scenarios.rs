//! What is better told as a story than drawn by dice: transactions that hang, levels of the feature, a
//! coordinator whose log is opened again, and a full disk.

use std::time::Duration;

use log::{EndedBy, Log, LogConfig, LogShared, OpenHint, SharedOptions, TransactionMarker};
use reactor::sim::{Delay, Outcome, World, with_faults};
use wire::ApiKey;
use wire::hash::coordinator_partition;
use wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use wire::messages::write_txn_markers_request::WritableTxnMarker;
use wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, IncrementalAlterConfigsResponse,
    UpdateFeaturesResponse,
};

use wire::records::control::EndTransaction;

use super::calls::{Call, TIMEOUT_MS, TOPIC};
use super::producer::{
    COMMITTED, LONG, Producer, UNCOMMITTED, abort, latest, producers, send_marker, start, state,
    until_stable,
};
use crate::support::{Client, batch};

crate::response!(Features, ApiVersionsResponse, borrows);
crate::response!(Updated, UpdateFeaturesResponse, borrows);
crate::response!(Altered, IncrementalAlterConfigsResponse, borrows);

const DIR: &str = "/data";

fn run<F, Fut>(seed: u64, main: F)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let outcome = World::new(seed).run(main);
    assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
}

async fn sleep_ms(ms: u64) {
    reactor::sleep(Duration::from_millis(ms)).await;
}

/// A transaction that no coordinator knows, as brokers before the verification of partitions could leave
/// behind: it is there to be found, holds back readers for good, and an admin ends it.
#[test]
fn a_hanging_transaction_is_found_and_ended_by_an_admin() {
    run(1, || async {
        let unverified = "transaction.partition.verification.enable=false";
        let mut clients = start(&[DIR], &[unverified]).await;
        let mut lost = Producer::new("lost", false);
        assert_eq!(lost.init().await, 0);
        assert_eq!(lost.write_only(0, b"hangs").await, (0, 0));
        let mut other = Producer::new("other", true);
        assert_eq!(other.init().await, 0);
        assert_eq!(other.write(0, b"waits").await, (0, 1));
        assert_eq!(other.end(true).await, 0);
        // Long after every timeout.
        sleep_ms(10 * TIMEOUT_MS as u64).await;
        assert_eq!(state(&mut clients, "lost").await, (0, "Empty".to_owned()));
        assert_eq!(latest(&mut clients, 0, UNCOMMITTED).await, 3);
        assert_eq!(latest(&mut clients, 0, COMMITTED).await, 0);
        let found = producers(&mut clients, 0).await;
        let hangs = found.iter().find(|it| it.current_txn_start_offset >= 0).unwrap();
        assert_eq!(hangs.producer_id, lost.caller.producer.0);
        assert_eq!((hangs.current_txn_start_offset, hangs.coordinator_epoch), (0, -1));
        let (id, epoch) = (hangs.producer_id, hangs.producer_epoch as i16);
        // Not another producer's, and not one of before.
        assert_eq!(abort(&mut clients, 0, (id, epoch - 1), -1).await, 47);
        assert_eq!(abort(&mut clients, 0, (id, epoch), hangs.coordinator_epoch).await, 0);
        until_stable(&mut clients, 0).await;
        assert_eq!(latest(&mut clients, 0, COMMITTED).await, 4);
        assert!(producers(&mut clients, 0).await.iter().all(|it| it.current_txn_start_offset < 0));
        // Its producer goes on, and so does a coordinator after the admin's marker.
        assert_eq!(lost.write(0, b"again").await, (0, 4));
        assert_eq!(lost.end(true).await, 0);
        until_stable(&mut clients, 0).await;
        // From now on a real coordinator is known there: who claims less is refused.
        let known = producers(&mut clients, 0).await;
        let known = known.iter().find(|it| it.producer_id == id).unwrap();
        assert!(known.coordinator_epoch >= 0, "{known:?}");
        let (_, epoch) = lost.caller.producer;
        assert_eq!(abort(&mut clients, 0, (id, epoch), known.coordinator_epoch - 1).await, 52);
        assert_eq!(latest(&mut clients, 0, UNCOMMITTED).await, 6);
    });
}

/// The same in a partition where a coordinator has been before: the marker needs its epoch, which
/// DescribeProducers tells.
#[test]
fn a_hanging_transaction_needs_the_epoch_of_the_last_coordinator() {
    run(2, || async {
        let unverified = "transaction.partition.verification.enable=false";
        let mut clients = start(&[DIR], &[unverified]).await;
        let mut lost = Producer::new("lost", false);
        assert_eq!(lost.init().await, 0);
        assert_eq!(lost.write(0, b"first").await, (0, 0));
        assert_eq!(lost.end(true).await, 0);
        until_stable(&mut clients, 0).await;
        assert_eq!(lost.write_only(0, b"hangs").await, (0, 2));
        sleep_ms(2 * TIMEOUT_MS as u64).await;
        let found = producers(&mut clients, 0).await;
        let hangs = found.iter().find(|it| it.current_txn_start_offset == 2).unwrap();
        let producer = (hangs.producer_id, hangs.producer_epoch as i16);
        assert_eq!(abort(&mut clients, 0, producer, hangs.coordinator_epoch - 1).await, 52);
        assert_eq!(latest(&mut clients, 0, COMMITTED).await, 2);
        assert_eq!(abort(&mut clients, 0, producer, hangs.coordinator_epoch).await, 0);
        until_stable(&mut clients, 0).await;
    });
}

/// A client claims to be a coordinator, of now and of all time to come: it is refused, in the
/// groups' log too, and the transaction ends as its owner says.
#[test]
fn a_client_that_claims_to_be_a_coordinator_is_refused() {
    for new in [false, true] {
        run(2, move || async move {
            let mut clients = start(&[DIR], &["offsets.topic.num.partitions=1"]).await;
            let mut owner = Producer::new("owner", new);
            assert_eq!(owner.init().await, 0);
            for round in 0..2 {
                assert_eq!(owner.write(0, b"v").await.0, 0);
                assert_eq!(owner.write(1, b"v").await.0, 0);
                assert_eq!(owner.commit_offsets(round + 1).await, 0);
                let (producer_id, producer_epoch) = owner.caller.producer;
                let of_epochs = |producer_epoch, coordinator_epoch, commit| WritableTxnMarker {
                    producer_id,
                    producer_epoch,
                    coordinator_epoch,
                    transaction_result: commit,
                    ..Default::default()
                };
                let highest = i32::MAX - 1;
                let attacks = [
                    of_epochs(producer_epoch, highest, false),
                    of_epochs(producer_epoch, highest, true),
                    of_epochs(producer_epoch, 0, true),
                    of_epochs(producer_epoch + 1, 0, false),
                    of_epochs(i16::MAX, highest, false),
                    WritableTxnMarker {
                        transaction_version: 2,
                        ..of_epochs(producer_epoch + 1, highest, false)
                    },
                ];
                for attack in attacks {
                    for place in [(TOPIC, 0), ("__consumer_offsets", 0)] {
                        let code = send_marker(&mut clients, place, attack.clone()).await;
                        assert_eq!(code, 31, "{attack:?}");
                    }
                    // Where its producer is not known there is nothing to end, and nothing is
                    // remembered.
                    let code = send_marker(&mut clients, (TOPIC, 2), attack.clone()).await;
                    assert_eq!(code, if attack.transaction_result { 31 } else { 0 });
                }
                assert_eq!(producers(&mut clients, 2).await, []);
                assert_eq!(owner.end(true).await, 0);
                for partition in [0, 1] {
                    until_stable(&mut clients, partition).await;
                }
                assert_eq!(owner.position().await, round + 1);
                assert_eq!(state(&mut clients, "owner").await, (0, "CompleteCommit".to_owned()));
            }
            // Two records and two markers: nothing of the attacks.
            assert_eq!(latest(&mut clients, 0, UNCOMMITTED).await, 4);
        });
    }
}

/// The same claim where it stands in a log already, from a time when it was taken: the coordinator
/// of now is not held up by it.
#[test]
fn an_epoch_that_no_coordinator_had_does_not_hold_the_coordinator_up() {
    let mut world = World::new(3);
    let outcome = world.run(|| async {
        let mut clients = start(&[DIR], &[]).await;
        let mut owner = Producer::new("owner", true);
        assert_eq!(owner.init().await, 0);
        for partition in [0, 1] {
            assert_eq!(owner.write(partition, b"v").await.0, 0);
        }
        assert_eq!(state(&mut clients, "owner").await, (0, "Ongoing".to_owned()));
        owner.caller
    });
    let Outcome::Finished(caller) = outcome else { panic!("{outcome:?}") };
    let outcome = world.run(move || async move {
        end_in_log(&format!("{DIR}/{TOPIC}-0"), caller.producer).await;
        let mut clients = start(&[DIR], &[]).await;
        let known = producers(&mut clients, 0).await;
        assert_eq!(known[0].coordinator_epoch, i32::MAX - 1);
        let mut owner = Producer::new("owner", true);
        owner.caller = caller;
        assert_eq!(owner.end(true).await, 0);
        until_stable(&mut clients, 1).await;
        let begin = reactor::now();
        while state(&mut clients, "owner").await.1 != "CompleteCommit" {
            assert!(reactor::now() - begin < LONG, "its markers are refused for good");
            sleep_ms(20).await;
        }
        // Of one that is not of now nothing remains.
        assert!(producers(&mut clients, 0).await[0].coordinator_epoch < 100);
        assert_eq!(owner.write(0, b"v").await.0, 0);
        assert_eq!(owner.end(true).await, 0);
        until_stable(&mut clients, 0).await;
    });
    assert!(matches!(outcome, Outcome::Finished(())), "{outcome:?}");
}

/// Ends a transaction where no broker is at work.
async fn end_in_log(dir: &str, (producer_id, producer_epoch): (i64, i16)) {
    let shared = LogShared::new(SharedOptions::default());
    let (config, hint) = (LogConfig::default(), OpenHint::default());
    let now_ms = reactor::wall_clock_ms();
    let (log, _) = Log::open(&shared, dir.into(), config, hint, now_ms).await.unwrap();
    let marker = TransactionMarker {
        producer_id,
        producer_epoch,
        end: EndTransaction { committed: false, coordinator_epoch: i32::MAX - 1 },
        raises_epoch: false,
        by: EndedBy::Coordinator,
    };
    let ended = log.append_marker(marker, 0, now_ms).unwrap();
    log.acknowledged(ended.last_offset + 1).await.unwrap();
    log.close().await.unwrap();
}

/// Raises or lowers `transaction.version`.
async fn set_level(client: &mut Client, level: i16, upgrade_type: i8) -> i16 {
    let update = FeatureUpdateKey {
        feature: "transaction.version".into(),
        max_version_level: level,
        upgrade_type,
        ..Default::default()
    };
    let request =
        UpdateFeaturesRequest { feature_updates: vec![update].into(), ..Default::default() };
    let call = client.call::<_, Updated>(ApiKey::UpdateFeatures, 2, &request);
    call.await.unwrap().error_code
}

async fn level(client: &mut Client) -> i16 {
    let request = ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };
    let answer = client.call::<_, Features>(ApiKey::ApiVersions, 4, &request).await.unwrap();
    let mut features = answer.finalized_features.iter();
    let found = features.find(|it| it.name == "transaction.version");
    found.map_or(0, |feature| feature.max_version_level)
}

/// Commits and aborts, with offsets, and checks what came of it. `seen`: what the partition's readers have.
async fn transacts(clients: &mut [Client], producer: &mut Producer, position: &mut i64) {
    let epoch = producer.caller.producer.1;
    for commit in [true, false] {
        for partition in [0, 1] {
            assert_eq!(producer.write(partition, b"v").await.0, 0);
        }
        assert_eq!(producer.commit_offsets(*position + 1).await, 0);
        assert_eq!(producer.end(commit).await, 0);
        *position += i64::from(commit);
        assert_eq!(producer.position().await, *position);
    }
    for partition in [0, 1] {
        until_stable(clients, partition).await;
    }
    let bumps = if producer.caller.new { 2 } else { 0 };
    assert_eq!(producer.caller.producer.1, epoch + bumps);
}

/// `transaction.version` from 2 down to 0 and up again, with clients of both protocols that were there before,
/// that come meanwhile, and with a transaction of each that is open while the level changes.
#[test]
fn both_protocols_work_at_every_level_and_across_its_changes() {
    const UPGRADE: i8 = 1;
    const SAFE_DOWNGRADE: i8 = 2;
    const UNSAFE_DOWNGRADE: i8 = 3;
    for seed in 0..4 {
        run(seed, || async {
            let mut clients = start(&[DIR], &[]).await;
            assert_eq!(level(&mut clients[0]).await, 2);
            let mut position = 0;
            let (mut old, mut new) = (Producer::new("old", false), Producer::new("new", true));
            for producer in [&mut old, &mut new] {
                assert_eq!(producer.init().await, 0);
                transacts(&mut clients, producer, &mut position).await;
            }
            let fresh = ["fresh 0", "fresh 1", "fresh 2", "fresh 3"];
            for (to, id) in [0, 1, 2, 0].into_iter().zip(fresh) {
                // Open across the change.
                for producer in [&mut old, &mut new] {
                    assert_eq!(producer.write(2, b"across").await.0, 0);
                }
                let before = level(&mut clients[0]).await;
                let kinds = match to > before {
                    true => vec![UPGRADE],
                    false => vec![SAFE_DOWNGRADE, UNSAFE_DOWNGRADE],
                };
                let mut codes = Vec::new();
                for kind in kinds {
                    codes.push(set_level(&mut clients[0], to, kind).await);
                }
                assert!(codes.contains(&0), "from {before} to {to}: {codes:?}");
                while level(&mut clients[1]).await != to {
                    sleep_ms(5).await;
                }
                for producer in [&mut old, &mut new] {
                    assert_eq!(producer.end(true).await, 0, "across {before} to {to}");
                    transacts(&mut clients, producer, &mut position).await;
                }
                until_stable(&mut clients, 2).await;
                // Who comes now, and who takes over.
                for speaks_new in [false, true] {
                    let mut one = Producer::new(id, speaks_new);
                    assert_eq!(one.init().await, 0);
                    transacts(&mut clients, &mut one, &mut position).await;
                    assert_eq!(one.write(2, b"left open").await.0, 0);
                }
                let mut next = Producer::new(id, false);
                assert_eq!(next.init().await, 0);
                until_stable(&mut clients, 2).await;
                transacts(&mut clients, &mut next, &mut position).await;
            }
        });
    }
}

/// An old client at level 0 whose transaction times out is fenced, and one that is a zombie as well.
#[test]
fn at_level_zero_timeouts_and_takeovers_fence() {
    run(3, || async {
        let mut clients = start(&[DIR], &[]).await;
        assert_eq!(set_level(&mut clients[0], 0, 3).await, 0);
        let mut late = Producer::new("late", false);
        assert_eq!(late.init().await, 0);
        assert_eq!(late.write(0, b"v").await, (0, 0));
        sleep_ms(3 * TIMEOUT_MS as u64).await;
        until_stable(&mut clients, 0).await;
        assert_eq!(state(&mut clients, "late").await, (0, "CompleteAbort".to_owned()));
        assert_eq!(late.write(0, b"v").await.0, 90, "by the coordinator");
        assert_eq!(late.write_only(0, b"v").await.0, 47, "by the leader");
        assert_eq!(late.end(true).await, 90);
        let mut next = Producer::new("late", false);
        assert_eq!(next.init().await, 0);
        assert_eq!(next.write(0, b"v").await.0, 0);
        let mut other = Producer::new("late", false);
        assert_eq!(other.init().await, 0);
        until_stable(&mut clients, 0).await;
        assert_eq!(next.write_only(0, b"v").await.0, 47);
        assert_eq!(next.end(true).await, 90);
        assert_eq!(other.write(0, b"v").await.0, 0);
        assert_eq!(other.end(true).await, 0);
        until_stable(&mut clients, 0).await;
    });
}

/// ListOffsets, by isolation: behind what is open, and what is just ending.
#[test]
fn the_latest_offset_depends_on_the_isolation() {
    run(4, || async {
        let mut clients = start(&[DIR], &[]).await;
        let mut producer = Producer::new("one", true);
        assert_eq!(producer.init().await, 0);
        for (n, commit) in [(0, true), (1, false)] {
            assert_eq!(producer.write(0, b"v").await, (0, 2 * n));
            assert_eq!(latest(&mut clients, 0, UNCOMMITTED).await, 2 * n + 1);
            assert_eq!(latest(&mut clients, 0, COMMITTED).await, 2 * n);
            assert_eq!(producer.end(commit).await, 0);
            until_stable(&mut clients, 0).await;
            assert_eq!(latest(&mut clients, 0, COMMITTED).await, 2 * n + 2);
        }
    });
}

/// `producer.id.expiration.ms` holds for partitions that are open when it is changed.
#[test]
fn silent_producers_are_forgotten_when_the_setting_says_so() {
    run(5, || async {
        let mut clients = start(&[DIR], &["log.retention.check.interval.ms=1000"]).await;
        let mut silent = Producer::new("silent", true);
        assert_eq!(silent.init().await, 0);
        assert_eq!(silent.write(0, b"v").await.0, 0);
        assert_eq!(silent.end(true).await, 0);
        until_stable(&mut clients, 0).await;
        sleep_ms(60_000).await;
        assert_eq!(producers(&mut clients, 0).await.len(), 1);
        let config = AlterableConfig {
            name: "producer.id.expiration.ms".into(),
            value: Some("5000".into()),
            ..Default::default()
        };
        let broker = AlterConfigsResource {
            resource_type: 4,
            resource_name: "".into(),
            configs: vec![config].into(),
        };
        let request =
            IncrementalAlterConfigsRequest { resources: vec![broker].into(), ..Default::default() };
        let api = ApiKey::IncrementalAlterConfigs;
        let altered = clients[0].call::<_, Altered>(api, 1, &request).await.unwrap();
        assert_eq!(altered.responses.first().unwrap().error_code, 0);
        sleep_ms(10_000).await;
        assert_eq!(producers(&mut clients, 0).await, []);
        // One that is inside a transaction stays, and goes on.
        assert_eq!(silent.write(0, b"v").await.0, 0);
        sleep_ms(TIMEOUT_MS as u64 - 500).await;
        assert_eq!(producers(&mut clients, 0).await.len(), 1);
        assert_eq!(silent.end(true).await, 0);
    });
}

/// A transactional id whose coordinator is in this partition of two.
fn id_in(partition: i32) -> &'static str {
    let ids = ["a", "b", "c", "d", "e", "f"];
    ids.into_iter().find(|id| coordinator_partition(id, 2) == partition).unwrap()
}

fn other_id_in(partition: i32, but: &str) -> &'static str {
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut here = ids.into_iter().filter(|id| coordinator_partition(id, 2) == partition);
    here.find(|id| *id != but).unwrap()
}

/// The coordinator's log fails and is opened again, under the same leader epoch, while a marker of the
/// former coordinator is on its way: the next one does not begin before that has arrived. A second marker on
/// the way could end the transaction after.
#[test]
fn a_coordinator_that_is_opened_again_waits_for_the_markers_of_the_former() {
    for partition in [0, 1] {
        run(6, move || async move {
            let mut clients = start(&[DIR], &["transaction.state.log.num.partitions=2"]).await;
            let id = id_in(partition);
            let mut producer = Producer::new(id, false);
            assert_eq!(producer.init().await, 0);
            let mut beside = Producer::new(other_id_in(partition, id), false);
            assert_eq!(producer.write(0, b"v").await, (0, 0));
            // The marker takes its time; the answer does not wait for it.
            let slow = Delay::exactly(Duration::from_secs(40));
            with_faults(|faults| faults.disk.slow.insert(format!("{DIR}/out-0").into(), slow));
            assert_eq!(producer.end(true).await, 0);
            sleep_ms(100).await;
            with_faults(|faults| faults.disk.slow.clear());
            assert_eq!(latest(&mut clients, 0, UNCOMMITTED).await, 1, "the marker is on its way");
            let state = format!("{DIR}/__transaction_state-{partition}");
            with_faults(|faults| faults.disk.broken.insert(state.into()));
            let failed = beside.ask_once(&Call::Init).await.code;
            assert!([14, 15, 16].contains(&failed), "{failed}");
            sleep_ms(100).await;
            with_faults(|faults| faults.disk.broken.clear());
            let begin = reactor::now();
            let mut loads = 0;
            loop {
                let code = beside.ask_once(&Call::Init).await.code;
                let end = latest(&mut clients, 0, UNCOMMITTED).await;
                if code == 0 {
                    assert!(end >= 2, "it began before the marker was there");
                    break;
                }
                assert!([14, 15, 16].contains(&code), "{code}");
                loads += usize::from(code == 14);
                assert!(reactor::now() - begin < LONG, "there is no coordinator any more");
                sleep_ms(100).await;
            }
            assert!(loads > 100, "it was opened again in no time, or not at all: {loads}");
            assert_eq!(producer.write(0, b"v").await.0, 0);
            assert_eq!(producer.end(true).await, 0);
            until_stable(&mut clients, 0).await;
        });
    }
}

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 64 * MIB;

/// From now on the disk has no byte left, not even when the broker gives up what it holds back.
async fn take_every_byte() {
    let space = reactor::fs::space(std::path::Path::new(DIR)).await.unwrap();
    let used = space.total - space.available;
    with_faults(|faults| faults.disk.capacity = Some(used - 2 * MIB));
}

/// Until this is answered with one of these codes.
async fn until(producer: &mut Producer, call: &Call, codes: &[i16]) -> i16 {
    let begin = reactor::now();
    loop {
        let code = producer.ask_once(call).await.code;
        if codes.contains(&code) {
            return code;
        }
        assert!(reactor::now() - begin < LONG, "{call:?} is still answered {code}");
        sleep_ms(200).await;
    }
}

/// Without space nothing can be decided: clients are told to try again, and nothing is lost of what was
/// decided before. With space again all ends, by itself where its owner is gone.
#[test]
fn a_full_disk_holds_transactions_up_and_no_longer() {
    for seed in 0..6 {
        run(seed, || async {
            with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
            let mut clients = start(&[DIR], &["log.segment.bytes=1048576"]).await;
            assert_eq!(clients[0].create_topic("big", 1, &[]).await.unwrap(), 0);
            fill(&mut clients).await;
            let mut waits = Producer::new("waits", true);
            let mut gone = Producer::new("gone", false);
            for (n, producer) in [&mut waits, &mut gone].into_iter().enumerate() {
                assert_eq!(producer.init().await, 0);
                assert_eq!(producer.write(n, b"v").await.0, 0);
            }
            take_every_byte().await;
            // Until the next look at the disk there seems to be some.
            sleep_ms(2_500).await;
            let mut fresh = Producer::new("fresh", true);
            // Kafka's retriable answers.
            let told = until(&mut fresh, &Call::Init, &[15, 16]).await;
            assert!([15, 16].contains(&told));
            let end = Call::End { commit: true };
            assert!([15, 16].contains(&until(&mut waits, &end, &[15, 16]).await));
            // The timeouts fall due, and cannot be decided either.
            sleep_ms(4 * TIMEOUT_MS as u64).await;
            for partition in [0, 1] {
                assert_eq!(latest(&mut clients, partition, COMMITTED).await, 0);
            }
            let ended = waits.ask_once(&end).await.code;
            assert!([14, 15, 16].contains(&ended), "{ended}");
            with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
            // It asked in time, or the timeout was faster: one of both, for all.
            let ended = until(&mut waits, &end, &[0, 47, 90]).await;
            assert_eq!(fresh.init().await, 0);
            for partition in [0, 1] {
                until_stable(&mut clients, partition).await;
            }
            let (_, first) = state(&mut clients, "waits").await;
            let expected = if ended == 0 { "CompleteCommit" } else { "CompleteAbort" };
            assert_eq!(first, expected);
            assert_eq!(state(&mut clients, "gone").await.1, "CompleteAbort");
            assert_eq!(fresh.write(0, b"v").await.0, 0);
            assert_eq!(fresh.end(true).await, 0);
            until_stable(&mut clients, 0).await;
        });
    }
}

/// A marker is on its way when the last byte goes: what its answer brings about is not written
/// before there is space again, and the coordinator is there all the time.
#[test]
fn an_answer_to_a_marker_waits_for_space() {
    run(7, || async {
        with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
        let mut clients = start(&[DIR], &["log.segment.bytes=1048576"]).await;
        assert_eq!(clients[0].create_topic("big", 1, &[]).await.unwrap(), 0);
        fill(&mut clients).await;
        let mut owner = Producer::new("owner", true);
        assert_eq!(owner.init().await, 0);
        assert_eq!(owner.write(0, b"v").await, (0, 0));
        let slow = Delay::exactly(Duration::from_secs(5));
        with_faults(|faults| faults.disk.slow.insert(format!("{DIR}/out-0").into(), slow));
        assert_eq!(owner.end(true).await, 0);
        sleep_ms(100).await;
        with_faults(|faults| faults.disk.slow.clear());
        take_every_byte().await;
        let begin = reactor::now();
        while latest(&mut clients, 0, COMMITTED).await < 2 {
            assert!(reactor::now() - begin < LONG, "the marker is lost");
            sleep_ms(100).await;
        }
        for _ in 0..20 {
            let told = state(&mut clients, "owner").await;
            assert_eq!(told, (0, "PrepareCommit".to_owned()), "it is at work, and waits");
            sleep_ms(200).await;
        }
        with_faults(|faults| faults.disk.capacity = Some(CAPACITY));
        let begin = reactor::now();
        while state(&mut clients, "owner").await != (0, "CompleteCommit".to_owned()) {
            assert!(reactor::now() - begin < LONG, "it waits for good");
            sleep_ms(100).await;
        }
    });
}

/// The topic `big` takes 8 MiB.
async fn fill(clients: &mut [Client]) {
    let bytes = batch(&[&[7; 100 << 10]], reactor::wall_clock_ms());
    for _ in 0..80 {
        let mut codes = Vec::new();
        for client in clients.iter_mut() {
            codes.push(client.produce("big", 0, &bytes).await.unwrap().0);
        }
        assert!(codes.contains(&0), "{codes:?}");
    }
}
