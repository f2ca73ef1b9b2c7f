//! Recovering a partition that is brought in: what an earlier life of its folder left in it does not
//! count, and nothing is cut off but a torn end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use broker::adopt::recover_partition;
use log::{Log, LogConfig, LogShared, OpenHint, SharedOptions};
use reactor::fs;
use reactor::sim::{Outcome, World};
use wire::Uuid;
use wire::records::{BatchBuilder, BatchView};

const DIR: &str = "/kafka/orders-0";
const SEGMENT: &str = "/kafka/orders-0/00000000000000000000.log";
const ID: Uuid = Uuid([7; 16]);
const RECORDS: i64 = 20;

async fn open(hint: OpenHint) -> Log {
    let shared = LogShared::new(SharedOptions::default());
    Log::open(&shared, PathBuf::from(DIR), LogConfig::default(), hint, 0).await.unwrap().0
}

async fn append(log: &Log, count: i64) {
    for n in 0..count {
        let mut batch = BatchBuilder::new();
        batch.append(n, Some(b"key"), Some(&[b'x'; 200]));
        let bytes = batch.build().unwrap();
        log.append(&BatchView::parse(&bytes).unwrap(), 3, 0).unwrap();
    }
    log.flush().await.unwrap();
}

async fn write_source() {
    fs::create_dir_all(Path::new(DIR)).await.unwrap();
    let log = open(OpenHint { topic_id: Some(ID), ..OpenHint::default() }).await;
    append(&log, RECORDS).await;
    log.close().await.unwrap();
}

/// A source, and something done to it, in a world whose disk is left.
fn source(seed: u64) -> World {
    let mut world = World::new(seed);
    assert!(matches!(world.run(write_source), Outcome::Finished(())));
    world
}

#[test]
fn a_damaged_batch_that_others_follow_is_not_cut_off() {
    for position in [100u64, 2_000, 4_000] {
        let mut world = source(position);
        world.corrupt(Path::new(SEGMENT), position, 1).unwrap();
        let before = world.disk().read(Path::new(SEGMENT));
        let ran = world.run(|| async { recover_partition(Path::new(DIR), (0, 0), ID).await.err() });
        let Outcome::Finished(Some(error)) = ran else { panic!("{position}: {ran:?}") };
        assert!(error.to_string().contains("is damaged at position"), "{error}");
        assert_eq!(world.disk().read(Path::new(SEGMENT)), before, "it was changed");
    }
}

#[test]
fn a_torn_end_is_cut_off_whatever_a_checkpoint_says() {
    let mut world = source(1);
    let size = world.disk().read(Path::new(SEGMENT)).unwrap().len() as u64;
    world.corrupt(Path::new(SEGMENT), size - 10, 1).unwrap();
    let ran = world.run(|| async {
        assert!(fs::exists(&Path::new(DIR).join("corelane.checkpoint")).await.unwrap());
        recover_partition(Path::new(DIR), (0, 0), ID).await.unwrap()
    });
    let Outcome::Finished(adopted) = ran else { panic!("{ran:?}") };
    assert_eq!(adopted.log_end_offset, RECORDS - 1);
    assert!(adopted.truncated_bytes > 0);
    assert_eq!(adopted.leader_epoch, 3);
}

/// The folder was ours once, with a start of its own; another broker has moved the start since.
#[test]
fn an_old_start_in_the_folder_gives_way_to_the_one_of_the_import() {
    for (start, expected) in [(15, 15), (0, 0)] {
        let ran = World::new(2).run(move || async move {
            write_source().await;
            let log = open(OpenHint { topic_id: Some(ID), ..OpenHint::default() }).await;
            log.advance_log_start(5).await.unwrap();
            log.close().await.unwrap();
            let adopted = recover_partition(Path::new(DIR), (0, start), ID).await.unwrap();
            // Cut off and done again, the start is still known.
            let again = open(OpenHint::default()).await;
            (adopted.log_start_offset, again.log_start_offset())
        });
        let Outcome::Finished(starts) = ran else { panic!("{ran:?}") };
        assert_eq!(starts, (expected, expected));
    }
}

/// A topic that was here, went further and is gone, comes again with the same id from elsewhere.
#[test]
fn what_the_data_directory_knew_of_a_topic_that_is_brought_in_again_does_not_count() {
    let ran = World::new(3).run(|| async {
        let data = Path::new("/data");
        fs::create_dir_all(data).await.unwrap();
        let line = |line: String| format!("{line} {:08x}\n", crc32c::crc32c(line.as_bytes()));
        let of = |id: Uuid, end: i64| line(format!("at {id} 0 0 {end} {end}"));
        let text = of(ID, 90) + &of(Uuid([8; 16]), 70);
        let file = data.join(broker::offsets::FILE);
        fs::write_atomic(&file, text.into_bytes()).await.unwrap();
        assert_eq!(broker::offsets::read(data).await.unwrap().len(), 2);
        broker::offsets::forget(data, &[ID]).await.unwrap();
        let left = broker::offsets::read(data).await.unwrap();
        assert_eq!(left.keys().collect::<Vec<_>>(), [&(Uuid([8; 16]), 0)]);
        left.values().next().map(|vouched| vouched.synced_end)
    });
    assert!(matches!(ran, Outcome::Finished(Some(70))), "{ran:?}");
}
