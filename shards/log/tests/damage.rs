//! Bit flips, cut and missing files: what is sound stays readable, what is not is cut off or made
//! anew, and nothing panics.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};

use common::*;
use log::{AppendError, Log, LogConfig, LogError, OpenHint};

const BATCHES: u64 = 60;
const PRODUCER: i64 = 77;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 12_000, index_interval_bytes: 400, ..LogConfig::default() }
}

/// The n-th batch: one record, sequence n, time NOW_MS + n.
fn nth(n: u64) -> Vec<u8> {
    let mut builder = wire::records::BatchBuilder::new().producer(PRODUCER, 0, n as i32);
    builder.append(NOW_MS + n as i64, None, Some(&value(n, 400)));
    builder.build().unwrap()
}

/// A log of 60 batches in three segments, closed or left as by a crash.
fn written(path: PathBuf, close: bool) {
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, config()).await;
        for n in 0..BATCHES {
            append(&log, &nth(n)).await;
        }
        log.acknowledged(BATCHES as i64).await.unwrap();
        if close {
            log.close().await.unwrap();
        }
    });
}

fn expected(end: i64) -> Vec<(i64, Vec<u8>)> {
    (0..end).map(|n| (n, value(n as u64, 400))).collect()
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(suffix))
        .collect();
    paths.sort();
    paths
}

fn flip(path: &Path, at: usize, bit: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    std::fs::write(path, bytes).unwrap();
}

/// A folder with copies of a log, one for each experiment.
struct Bench {
    dir: tempfile::TempDir,
    count: usize,
}

impl Bench {
    fn new(close: bool) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path().join("original"), close);
        Bench { dir, count: 0 }
    }

    fn original(&self) -> PathBuf {
        self.dir.path().join("original")
    }

    fn copy(&mut self) -> PathBuf {
        self.count += 1;
        let path = self.dir.path().join(format!("copy-{}", self.count));
        copy_dir(&self.original(), &path);
        path
    }
}

/// Opens, reads everything, appends one batch and reads it too. Returns where the log ended.
fn end_after(path: PathBuf, clean: bool) -> i64 {
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let hint = OpenHint { clean, ..OpenHint::default() };
        let (log, recovered) = Log::open(&memory, path, config(), hint, NOW_MS).await.unwrap();
        let end = recovered.log_end_offset;
        assert_eq!(read_all(&log, 1_000).await, expected(end));
        check_producer(&log, end).await;
        log.close().await.unwrap();
        end
    })
}

/// The producer's last batch is known, and the next one is taken.
async fn check_producer(log: &Log, end: i64) {
    if end > 0 {
        let again = append(log, &nth(end as u64 - 1)).await;
        assert!(again.duplicate, "batch {} is forgotten", end - 1);
    }
    let gap = nth(end as u64 + 5);
    if end > 0 {
        assert!(matches!(log.append(&view(&gap), 0, NOW_MS), Err(AppendError::Producer(_))));
    }
    let next = append(log, &nth(end as u64)).await;
    assert_eq!((next.base_offset, next.duplicate), (end, false));
    log.acknowledged(end + 1).await.unwrap();
    let read = read_from(log, end, 1_000).await;
    assert_eq!(read, [(end, value(end as u64, 400))]);
}

#[test]
fn a_flipped_bit_ends_an_unclean_log_at_its_batch() {
    let mut bench = Bench::new(false);
    let size = nth(0).len();
    let segments = files(&bench.original(), ".log");
    assert!(segments.len() >= 3);
    let active = segments.last().unwrap().file_name().unwrap().to_owned();
    let base: i64 = active.to_str().unwrap()[..20].parse().unwrap();
    // Of the fields outside of the checksum the leader epoch (12..16) cannot be checked.
    let in_batch = [0, 7, 8, 11, 16, 17, 22, 24, 30, 40, 45, 58, 61, 70, 200, size - 1];
    for (i, at) in in_batch.into_iter().enumerate() {
        for batch in [0, 3] {
            let path = bench.copy();
            flip(&path.join(&active), batch * size + at, (i % 8) as u8);
            assert_eq!(end_after(path, false), base + batch as i64, "byte {at} of batch {batch}");
        }
    }
}

#[test]
fn a_flip_in_an_older_segment_that_is_not_safe_yet_takes_what_follows() {
    let mut bench = Bench::new(false);
    let path = bench.copy();
    for checkpoint in files(&path, "checkpoint") {
        std::fs::remove_file(checkpoint).unwrap();
    }
    for snapshot in files(&path, ".snapshot") {
        std::fs::remove_file(snapshot).unwrap();
    }
    let size = nth(0).len();
    let logs = files(&path, ".log");
    let kept: Vec<Vec<u8>> = logs[2..].iter().map(|path| std::fs::read(path).unwrap()).collect();
    flip(&logs[1], 2 * size + 100, 3);
    let base = BATCHES as i64 / 60 * 25;
    let ended = end_after(path.clone(), false);
    assert!(ended >= 20 && ended <= base + 5, "{ended}");
    assert_eq!(files(&path, ".log").len(), 2);
    // Nobody knows that they were safe: they are kept all the same, as they were.
    let aside = files(&path, &format!(".log.aside-{NOW_MS}"));
    let aside: Vec<Vec<u8>> = aside.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!kept.is_empty() && aside == kept, "{} of {} are kept", aside.len(), kept.len());
}

#[test]
fn a_cut_segment_keeps_the_batches_that_are_whole() {
    let mut bench = Bench::new(false);
    let size = nth(0).len() as u64;
    let active = files(&bench.original(), ".log").pop().unwrap();
    let name = active.file_name().unwrap().to_owned();
    let base: i64 = name.to_str().unwrap()[..20].parse().unwrap();
    for len in [0, 1, 60, 61, size - 1, size, size + 1, 3 * size - 1, 3 * size, 4096, 4097] {
        let path = bench.copy();
        std::fs::File::options().write(true).open(path.join(&name)).unwrap().set_len(len).unwrap();
        assert_eq!(end_after(path, false), base + (len / size) as i64, "cut to {len}");
    }
}

#[test]
fn damaged_or_missing_indexes_change_no_answer() {
    for close in [true, false] {
        let mut bench = Bench::new(close);
        for suffix in [".index", ".timeindex"] {
            let count = files(&bench.original(), suffix).len();
            for which in 0..count {
                let len =
                    std::fs::metadata(&files(&bench.original(), suffix)[which]).unwrap().len();
                let damages = (0..len).step_by(3).map(Some).chain([None]);
                for (i, damage) in damages.enumerate() {
                    let path = bench.copy();
                    let file = files(&path, suffix)[which].clone();
                    match damage {
                        Some(at) => flip(&file, at as usize, (i % 8) as u8),
                        None => std::fs::remove_file(file).unwrap(),
                    }
                    check_answers(path.clone(), close);
                    std::fs::remove_dir_all(path).unwrap();
                }
            }
        }
    }
}

/// Reads at every offset and looks for every time.
fn check_answers(path: PathBuf, clean: bool) {
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let hint = OpenHint { clean, ..OpenHint::default() };
        let (log, _) = Log::open(&memory, path, config(), hint, NOW_MS).await.unwrap();
        assert_eq!(log.log_end_offset(), BATCHES as i64);
        for offset in (0..BATCHES as i64).rev() {
            let plan = log.plan_read(offset, i64::MAX, 1, true).unwrap();
            let bytes = plan.execute().await.unwrap().concat();
            assert_eq!(view(&bytes).header().base_offset, offset);
        }
        for n in (0..BATCHES as i64).step_by(7) {
            let found = log.offset_for_timestamp(NOW_MS + n, i64::MAX).await.unwrap();
            assert_eq!(found.map(|f| f.offset), Some(n), "time {n}");
        }
    });
}

#[test]
fn a_damaged_snapshot_costs_a_longer_walk_and_no_sequence() {
    for clean in [true, false] {
        let mut bench = Bench::new(clean);
        let snapshots = files(&bench.original(), ".snapshot");
        for (i, snapshot) in snapshots.iter().enumerate() {
            for at in [0, 3, 12, 30, 55] {
                let path = bench.copy();
                let file = path.join(snapshot.file_name().unwrap());
                flip(&file, at, i as u8);
                assert_eq!(end_after(path, clean), BATCHES as i64);
            }
        }
        let path = bench.copy();
        for snapshot in files(&path, ".snapshot") {
            std::fs::remove_file(snapshot).unwrap();
        }
        assert_eq!(end_after(path, clean), BATCHES as i64);
    }
}

#[test]
fn unreadable_checkpoints_are_no_obstacle() {
    for clean in [true, false] {
        let mut bench = Bench::new(clean);
        for bytes in [&b""[..], b"\xff\xfe", b"7\n", b"0\n5\n0 0\n"] {
            let path = bench.copy();
            for checkpoint in files(&path, "checkpoint") {
                std::fs::write(checkpoint, bytes).unwrap();
            }
            assert_eq!(end_after(path, clean), BATCHES as i64);
        }
    }
}

#[test]
fn an_unclean_log_that_claims_to_be_clean_is_recovered_all_the_same() {
    let mut bench = Bench::new(false);
    let path = bench.copy();
    assert_eq!(end_after(path, true), BATCHES as i64);
}

#[test]
fn a_log_that_must_be_whole_is_not_cut_below_its_recovery_point() {
    let mut bench = Bench::new(true);
    let refused = |path: PathBuf| {
        on_uring(move || async move {
            let hint = OpenHint { whole: true, ..OpenHint::default() };
            let opened = Log::open(&shared(1 << 20), path, config(), hint, NOW_MS).await;
            matches!(opened, Err(LogError::Corrupt { .. }))
        })
    };
    assert!(!refused(bench.copy()), "nothing is missing");
    let path = bench.copy();
    let last = files(&path, ".log").pop().unwrap();
    let half = std::fs::read(&last).unwrap();
    let half = half[..half.len() / 2].to_vec();
    std::fs::write(&last, &half).unwrap();
    assert!(refused(path.clone()), "half of the last segment is missing");
    assert_eq!(std::fs::read(&last).unwrap(), half, "the file is left as it was");
    for segment in files(&path, ".log") {
        std::fs::remove_file(segment).unwrap();
    }
    assert!(refused(path.clone()), "every segment is missing");
    assert!(files(&path, ".log").is_empty());
}

/// A crash cuts the last write short and leaves nothing whole behind it; anything else is damage.
#[test]
fn a_log_that_must_be_whole_is_cut_only_where_a_crash_may_have_torn_it() {
    let mut bench = Bench::new(false);
    let size = nth(0).len();
    let opened = |path: PathBuf| {
        on_uring(move || async move {
            let hint = OpenHint { whole: true, ..OpenHint::default() };
            let opened = Log::open(&shared(1 << 20), path, config(), hint, NOW_MS).await;
            opened.map(|(_, recovered)| recovered.log_end_offset).map_err(|e| e.to_string())
        })
    };
    let original = bench.original();
    let last = files(&original, ".log").pop().unwrap();
    let base: usize = last.file_name().unwrap().to_str().unwrap()[..20].parse().unwrap();
    let batches = BATCHES as usize - base;
    assert!(batches > 3, "the last segment has batches to damage");
    for damaged in 0..batches {
        let path = bench.copy();
        let file = path.join(last.file_name().unwrap());
        flip(&file, damaged * size + 100, 3);
        let before = std::fs::read(&file).unwrap();
        let opened = opened(path);
        if damaged + 1 == batches {
            assert_eq!(opened, Ok(BATCHES as i64 - 1), "the last batch may have been torn");
        } else {
            let error = opened.unwrap_err();
            assert!(error.contains("a whole batch at position"), "{error}");
            assert_eq!(std::fs::read(&file).unwrap(), before, "the file is left as it was");
        }
    }
}

/// A segment file that somebody shortens under a running broker is an error of the reads that need
/// what is missing; the others go on.
#[test]
fn a_file_that_gets_shorter_while_it_is_served_fails_only_its_readers() {
    let mut bench = Bench::new(true);
    let path = bench.copy();
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let hint = OpenHint { clean: true, ..OpenHint::default() };
        let (log, _) = Log::open(&memory, path.clone(), config(), hint, NOW_MS).await.unwrap();
        let first = files(&path, ".log").remove(0);
        let file = std::fs::OpenOptions::new().write(true).open(first).unwrap();
        for length in [5_000, 1_000, 70, 0] {
            file.set_len(length).unwrap();
            let end = log.visible_end_offset();
            for from in 0..end {
                let plan = log.plan_read(from, end, 1_000, true).unwrap();
                // An error or whole batches, never a panic.
                if let Ok(batches) = plan.execute().await {
                    assert!(wire::records::batches(&batches.concat()).all(|b| b.is_ok()));
                }
            }
            let last = log.plan_read(end - 1, end, 1_000, true).unwrap();
            assert!(!last.execute().await.unwrap().is_empty(), "other segments are served");
        }
    });
}

/// Whatever bit of a sealed segment flips: a reader gets what was written or an error that says
/// where, and only the damaged batch and those up to the next index entry are out of reach.
#[test]
fn a_flipped_bit_is_never_served_and_the_rest_stays_readable() {
    let mut bench = Bench::new(true);
    let size = nth(0).len();
    // Every field of a batch that is not its leader epoch, and payload; in the first batch of a
    // segment, in one that has an index entry, and in one that has none.
    let in_batch = [0, 5, 6, 7, 8, 11, 16, 17, 22, 24, 30, 40, 45, 58, 61, 70, 200, size - 1];
    for (i, at) in in_batch.into_iter().enumerate() {
        for batch in [0, 4, 5] {
            for bit in [i % 8, (i + 3) % 8] {
                let path = bench.copy();
                let file = files(&path, ".log")[0].clone();
                flip(&file, batch * size + at, bit as u8);
                check_damaged(path.clone(), batch as i64, format!("bit {bit} of {batch}+{at}"));
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}

fn check_damaged(path: PathBuf, damaged: i64, what: String) {
    on_uring(move || async move {
        let memory = shared(1 << 20);
        let hint = OpenHint { clean: true, ..OpenHint::default() };
        let (log, _) = Log::open(&memory, path, config(), hint, NOW_MS).await.unwrap();
        let end = log.log_end_offset();
        assert_eq!(end, BATCHES as i64, "{what}");
        // Backwards first, so that the index leads; then on from where the last read ended.
        for pass in 0..2 {
            let mut refused = Vec::new();
            for n in 0..end {
                let offset = if pass == 0 { end - 1 - n } else { n };
                let plan = log.plan_read(offset, i64::MAX, 3_000, true).unwrap();
                match plan.execute().await {
                    Ok(parts) => check_served(&parts.concat(), offset, &what),
                    Err(LogError::Corrupt { file, position, .. }) => {
                        assert!(file.ends_with("00000000000000000000.log"), "{what}: {file}");
                        assert!(position <= 12_000, "{what}: {position}");
                        refused.push(offset);
                    }
                    Err(error) => panic!("{what}, offset {offset}: {error}"),
                }
            }
            assert!(refused.contains(&damaged), "{what}: the damage was not found");
            let near = refused.iter().all(|offset| (damaged - 1..damaged + 3).contains(offset));
            assert!(near && refused.len() <= 3, "{what}: {refused:?} are out of reach");
        }
        log.close().await.unwrap();
    });
}

/// Whole batches from the one with `offset` on, as they were written.
fn check_served(bytes: &[u8], offset: i64, what: &str) {
    let mut next = offset;
    for batch in wire::records::batches(bytes) {
        let batch = batch.unwrap_or_else(|error| panic!("{what}, offset {next}: {error}"));
        let mut written = nth(next as u64);
        written[..8].copy_from_slice(&next.to_be_bytes());
        assert_eq!(batch.bytes()[16..], written[16..], "{what}: offset {next} is another record");
        assert_eq!(batch.header().base_offset, next, "{what}");
        next += 1;
    }
    assert!(next > offset, "{what}: nothing at {offset}");
}

/// A flipped digit in a checkpoint must not cut the log, at either end.
#[test]
fn a_flipped_bit_in_a_checkpoint_takes_no_records() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("topic-0");
    let path = original.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, config()).await;
        for n in 0..BATCHES {
            append(&log, &nth(n)).await;
        }
        log.acknowledged(BATCHES as i64).await.unwrap();
        log.advance_log_start(7).await.unwrap();
        log.close().await.unwrap();
    });
    let mut count = 0;
    for file in ["log-start-offset-checkpoint", "corelane.checkpoint"] {
        let length = std::fs::metadata(original.join(file)).unwrap().len() as usize;
        for at in (0..length).step_by(length.div_ceil(60)) {
            for bit in [0, 1, 3, 6] {
                count += 1;
                let path = dir.path().join(format!("copy-{count}"));
                copy_dir(&original, &path);
                flip(&path.join(file), at, bit);
                let copy = path.clone();
                on_uring(move || async move {
                    // The data folder's checkpoint knows the start too.
                    let hint =
                        OpenHint { log_start_offset: 7, clean: at % 2 == 0, ..OpenHint::default() };
                    let opened = Log::open(&shared(1 << 20), copy, config(), hint, NOW_MS).await;
                    let (log, _) = opened.unwrap();
                    assert_eq!(log.log_start_offset(), 7, "bit {bit} of byte {at} of {file}");
                    assert_eq!(log.log_end_offset(), BATCHES as i64);
                    assert_eq!(read_all(&log, 5_000).await.len() as u64, BATCHES - 7);
                    log.close().await.unwrap();
                });
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}
