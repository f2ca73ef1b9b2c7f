//! Space that is reserved for topics that do not sync: how much, when it is given back, what it costs
//! after a crash, and file systems that have none to reserve.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use log::{Log, LogConfig, LogShared};
use reactor::sim::Delay;
use reactor::{Class, fs};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const BATCH: usize = 100_000;

async fn fill(log: &Log, bytes: u64) {
    for n in 0..bytes / BATCH as u64 {
        append(log, &batch(&[value(n, BATCH)], NOW_MS)).await;
        log.acknowledged(log.log_end_offset()).await.unwrap();
    }
    // What is made ahead is made in the background.
    reactor::sleep(Duration::from_millis(20)).await;
}

/// The sizes of the segments' files.
async fn sizes(dir: &Path) -> Vec<u64> {
    let mut sizes = Vec::new();
    let entries = fs::read_dir(dir).await.unwrap();
    for entry in entries.iter().filter(|e| e.name.ends_with(".log")) {
        sizes.push(fs::metadata(&dir.join(&entry.name)).await.unwrap().size);
    }
    sizes
}

async fn fall_idle(shared: &LogShared) {
    for _ in 0..3 {
        shared.cool_idle();
        reactor::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn what_is_reserved_is_a_part_of_the_data_and_goes_when_the_log_is_idle() {
    let ran = reactor::sim::World::new(1).run(|| async {
        let dir = PathBuf::from("/data/topic-0");
        let shared = shared(8 << 20);
        let (log, _) = open(&shared, dir.clone(), LogConfig::default()).await;
        fill(&log, MIB / 2).await;
        assert!(sizes(&dir).await.iter().sum::<u64>() < MIB, "small logs stay small");
        let mut reserved = 0;
        for _ in 0..12 {
            fill(&log, MIB).await;
            let (size, data) = (sizes(&dir).await[0], log.size_bytes());
            assert!(size <= data + data / 4 + BLOCK, "{size} for {data}");
            reserved = reserved.max(size - data);
        }
        assert!(reserved > 1 << 20, "{reserved}");
        fall_idle(&shared).await;
        assert_eq!(sizes(&dir).await, [log.size_bytes()]);
        // It goes on, reserves again, and a flush before it falls idle changes nothing.
        fill(&log, MIB).await;
        assert!(sizes(&dir).await[0] > log.size_bytes() + BLOCK);
        log.flush().await.unwrap();
        fall_idle(&shared).await;
        assert_eq!(sizes(&dir).await, [log.size_bytes()]);
        let end = log.log_end_offset();
        drop(log);
        let (log, recovered) = open(&shared, dir.clone(), LogConfig::default()).await;
        assert_eq!((log.log_end_offset(), recovered.bytes_scanned), (end, 0));
        assert_eq!(read_all(&log, 1 << 20).await.len() as i64, end);
    });
    assert!(ran.finished().is_some());
}

/// Bytes that went to the disk: of batches, and of what was made ready for them.
fn written() -> (u64, u64) {
    let disks = reactor::usage().disks;
    let of = |class| disks.iter().filter(|d| d.class == class).map(|d| d.bytes).sum();
    (of(Class::Produce), of(Class::TailFetch))
}

#[test]
fn small_writes_find_zeros_in_the_space_that_is_reserved() {
    let ran = reactor::sim::World::new(1).run(|| async {
        let dir = PathBuf::from("/data/topic-0");
        let shared = shared(8 << 20);
        let (log, _) = open(&shared, dir.clone(), LogConfig::default()).await;
        let mut zeros = Vec::new();
        // The zeros end with the small writes and come back with them.
        for (batch_bytes, mebibytes) in [(10_000, 8), (BATCH, 8), (10_000, 8)] {
            let before = written();
            for n in 0..mebibytes * MIB / batch_bytes as u64 {
                append(&log, &batch(&[value(n, batch_bytes)], NOW_MS)).await;
                log.acknowledged(log.log_end_offset()).await.unwrap();
            }
            reactor::sleep(Duration::from_millis(20)).await;
            zeros.push((written().1 - before.1) / MIB);
            let (size, data) = (sizes(&dir).await[0], log.size_bytes());
            assert!(size <= data + data / 4 + BLOCK, "{size} for {data}");
        }
        assert!(zeros[0] >= 6 && zeros[2] >= 4, "{zeros:?} of 8 MiB each");
        assert!(zeros[1] <= 2, "{zeros:?}: too much to write twice");
        fall_idle(&shared).await;
        assert_eq!(sizes(&dir).await, [log.size_bytes()]);
        let end = log.log_end_offset();
        drop(log);
        let (log, _) = open(&shared, dir, LogConfig::default()).await;
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(read_all(&log, 1 << 20).await.len() as i64, end);
    });
    assert!(ran.finished().is_some());
}

/// More logs at once than one sweep gives their space back, and more than may be open.
/// The first space that a log gets ahead of its writes, and the first after it was idle.
#[test]
fn no_write_waits_until_the_first_space_is_ready() {
    const OPERATION: Duration = Duration::from_millis(100);
    let mut world = reactor::sim::World::new(1);
    world.faults().disk.latency = Delay::exactly(OPERATION);
    let ran = world.run(|| async {
        let shared = shared(8 << 20);
        let (log, _) = open(&shared, PathBuf::from("/data/topic-0"), LogConfig::default()).await;
        for n in 0..300 {
            let begin = reactor::now();
            append(&log, &batch(&[value(n, 10_000)], NOW_MS)).await;
            log.acknowledged(log.log_end_offset()).await.unwrap();
            let took = reactor::now() - begin;
            // The first one makes the file.
            assert!(n == 0 || took < OPERATION * 2, "write {n} took {took:?}");
            if n == 200 {
                fall_idle(&shared).await;
                reactor::sleep(OPERATION * 20).await;
            }
        }
        assert!(written().1 > MIB / 2, "there were zeros ahead");
    });
    assert!(ran.finished().is_some());
}

#[test]
fn every_idle_log_gives_back_what_it_reserved() {
    let ran = reactor::sim::World::new(1).run(|| async {
        let options =
            log::SharedOptions { cache_bytes: 8 << 20, written_files: 20, ..Default::default() };
        let shared = LogShared::new(options);
        let mut logs = Vec::new();
        for n in 0..70 {
            let dir = PathBuf::from(format!("/data/topic-{n}"));
            let (log, _) = open(&shared, dir.clone(), LogConfig::default()).await;
            fill(&log, MIB + MIB / 4).await;
            logs.push((log, dir));
        }
        fall_idle(&shared).await;
        for (log, dir) in &logs {
            assert_eq!(sizes(dir).await, [log.size_bytes()], "{}", dir.display());
        }
    });
    assert!(ran.finished().is_some());
}

/// Appends that come while the space is given back.
#[test]
fn nothing_is_lost_while_space_is_given_back() {
    for seed in 0..40 {
        let ran = reactor::sim::World::new(seed).run(move || async move {
            let dir = PathBuf::from("/data/topic-0");
            let shared = shared(8 << 20);
            let (log, _) = open(&shared, dir.clone(), LogConfig::default()).await;
            fill(&log, 2 * MIB).await;
            for n in 0..20 {
                shared.cool_idle();
                shared.cool_idle();
                reactor::sleep(Duration::from_micros(seed * 13 + n * 7)).await;
                append(&log, &batch(&[value(n, 5_000)], NOW_MS)).await;
                log.acknowledged(log.log_end_offset()).await.unwrap();
                reactor::sleep(Duration::from_micros(n * 100)).await;
            }
            let end = log.log_end_offset();
            reactor::sleep(Duration::from_secs(1)).await;
            drop(log);
            // As after the end of the process, from the files alone.
            let (log, _) = open(&shared, dir, LogConfig::default()).await;
            assert_eq!(log.log_end_offset(), end);
            assert_eq!(read_all(&log, 1 << 20).await.len() as i64, end);
        });
        assert!(ran.finished().is_some(), "seed {seed}");
    }
}

#[test]
fn a_file_system_without_reserving_is_asked_once() {
    let mut world = reactor::sim::World::new(1);
    world.faults().disk.cannot_reserve = true;
    let ran = world.run(|| async {
        let config = LogConfig { segment_bytes: 2 << 20, ..LogConfig::default() };
        let shared = shared(8 << 20);
        let dir = PathBuf::from("/data/topic-0");
        let (log, _) = open(&shared, dir.clone(), config.clone()).await;
        fill(&log, MIB + MIB / 2).await;
        // If it were asked again, it would do so.
        reactor::sim::with_faults(|faults| faults.disk.cannot_reserve = false);
        fill(&log, 2 * MIB).await;
        let total = |sizes: Vec<u64>| sizes.iter().sum::<u64>();
        assert!(total(sizes(&dir).await) <= log.size_bytes() + 2 * BLOCK);
        shared.forget_disk(Path::new("/data"));
        let dir = PathBuf::from("/data/topic-1");
        let (log, _) = open(&shared, dir.clone(), config).await;
        fill(&log, MIB + MIB / 4).await;
        assert!(total(sizes(&dir).await) > log.size_bytes() + 2 * BLOCK);
    });
    assert!(ran.finished().is_some());
}

/// Of the reserved end only the beginning is read; all of it goes.
#[test]
fn after_a_crash_the_reserved_end_is_not_read() {
    let (_guard, dir) = {
        let guard = tempfile::tempdir().unwrap();
        let dir = guard.path().join("topic-0");
        (guard, dir)
    };
    let path = dir.clone();
    let (end, size) = on_uring(move || async move {
        let (log, _) = open(&shared(8 << 20), path, LogConfig::default()).await;
        fill(&log, 12 * MIB).await;
        log.flush().await.unwrap();
        (log.log_end_offset(), log.size_bytes())
    });
    let file = dir.join(format!("{:020}.log", 0));
    // A mark that is told of if it is met.
    let bytes = std::fs::read(&file).unwrap();
    let far = size as usize + MIB as usize;
    let mut marked = bytes;
    marked.resize(marked.len().max(far + 10), 0);
    marked[far] = 7;
    std::fs::write(&file, marked).unwrap();
    let path = dir.clone();
    on_uring(move || async move {
        let (log, recovered) = open(&shared(8 << 20), path, LogConfig::default()).await;
        assert_eq!((log.log_end_offset(), recovered.bytes_scanned), (end, 0));
        assert_eq!(recovered.truncated_bytes, 0);
    });
    assert_eq!(std::fs::metadata(&file).unwrap().len(), size);
}
