//! Segments that are missing, empty or too short: the log does not open over them and touches nothing,
//! unless they went by a way that the log knows of.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::*;
use log::inspect::{
    Finding, Findings, PartitionContext, Severity, describe_checkpoint, verify_partition,
};
use log::{CleanOptions, Log, LogConfig, LogError, OpenHint, Vouched};
use wire::records::BatchBuilder;

const BATCHES: u64 = 60;
const CHECKPOINT: &str = "corelane.checkpoint";
const GIVEN_UP: &str = "given-up-offset-checkpoint";

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 6_000,
        index_interval_bytes: 400,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

async fn append_some(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        append(log, &batch(&[value(n, 400)], NOW_MS + n as i64)).await;
    }
    log.acknowledged(log.log_end_offset()).await.unwrap();
}

/// A log of 60 batches in several segments: closed, or flushed and left as by a crash.
fn write(path: &Path, close: bool) {
    let path = path.to_path_buf();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), path, config()).await;
        append_some(&log, 0..BATCHES).await;
        match close {
            true => drop(log.close().await.unwrap()),
            false => log.flush().await.unwrap(),
        }
    });
}

/// Names and bytes of all files.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let name = |e: &std::fs::DirEntry| e.file_name().into_string().unwrap();
    entries.map(|e| (name(&e), std::fs::read(e.path()).unwrap())).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = contents(dir).into_keys().filter(|name| name.ends_with(".log"));
    names.map(|name| dir.join(name)).collect()
}

fn base_of(segment: &Path) -> i64 {
    segment.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// Where the log ends, or why it does not open.
fn end_of(path: &Path, hint: OpenHint) -> Result<i64, LogError> {
    let path = path.to_path_buf();
    on_uring(move || async move {
        let (log, _) = Log::open(&shared(1 << 20), path, config(), hint, NOW_MS).await?;
        let end = log.log_end_offset();
        log.close().await?;
        Ok(end)
    })
}

fn damage_of(path: &Path) -> Vec<Finding> {
    damage_by(path, Vouched::default())
}

fn damage_by(path: &Path, vouched: Vouched) -> Vec<Finding> {
    let path = path.to_path_buf();
    on_uring(move || async move {
        let mut found = Vec::new();
        let mut sink = |finding: Finding| found.push(finding);
        let mut findings = Findings::new(&mut sink);
        let context = PartitionContext { vouched, ..PartitionContext::default() };
        verify_partition(&path, context, &mut findings).await.unwrap();
        found.retain(|finding| finding.severity == Severity::Damage);
        found
    })
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    Removed,
    Emptied,
    Shortened,
}

impl Loss {
    /// `bytes` of the file are batches.
    fn befall(self, file: &Path, bytes: u64) {
        let cut = |len| std::fs::File::options().write(true).open(file).unwrap().set_len(len);
        match self {
            Loss::Removed => std::fs::remove_file(file).unwrap(),
            Loss::Emptied => cut(0).unwrap(),
            Loss::Shortened => cut(bytes - 1).unwrap(),
        }
    }
}

#[test]
fn a_log_whose_segment_is_missing_or_short_does_not_open_and_is_left_alone() {
    for close in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        write(&path, close);
        std::fs::write(path.join("leftover.tmp"), b"x").unwrap();
        let sound = contents(&path);
        let all = segments(&path);
        assert!(all.len() >= 4, "{all:?}");
        for file in [&all[0], &all[1], &all[all.len() - 2], &all[all.len() - 1]] {
            for loss in [Loss::Removed, Loss::Emptied, Loss::Shortened] {
                let what = format!("{loss:?} {}, closed {close}", file.display());
                let name = file.file_name().unwrap().to_str().unwrap();
                let next = all.iter().map(|file| base_of(file)).find(|base| *base > base_of(file));
                let batches = next.unwrap_or(BATCHES as i64) - base_of(file);
                let bytes = batches as u64 * batch(&[value(0, 400)], NOW_MS).len() as u64;
                loss.befall(file, bytes);
                let damaged = contents(&path);
                for clean in [true, false] {
                    for recovery_point in [0, BATCHES as i64] {
                        let hint = OpenHint { clean, recovery_point, ..OpenHint::default() };
                        let error = end_of(&path, hint).expect_err(&what);
                        assert!(matches!(error, LogError::Corrupt { .. }), "{what}: {error}");
                        let text = error.to_string();
                        let told = [name, &bytes.to_string(), "from a copy", GIVEN_UP];
                        assert!(told.iter().all(|told| text.contains(told)), "{what}: {text}");
                        assert!(contents(&path) == damaged, "{what}: the folder was touched");
                    }
                }
                let told = |f: &Finding| f.file == *file && f.text.contains(&bytes.to_string());
                let found = damage_of(&path);
                assert!(found.iter().any(told), "{what}: {found:?}");
                std::fs::write(file, &sound[name]).unwrap();
            }
        }
        assert_eq!(damage_of(&path), []);
        assert_eq!(end_of(&path, OpenHint::default()).unwrap(), BATCHES as i64);
    }
}

/// A producer that waits for each answer fills a segment before the next one is begun.
#[test]
fn full_segments_are_vouched_for_without_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    let written = path.clone();
    let recovery_point = on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), written, config()).await;
        for n in 0..BATCHES {
            append_some(&log, n..n + 1).await;
        }
        // The last segment but one is sealed in the background.
        loop {
            let bytes = std::fs::read(log.dir().join(CHECKPOINT)).unwrap_or_default();
            match describe_checkpoint(&bytes) {
                Ok(known) if known.recovery_point + 15 > log.log_end_offset() => {
                    break known.recovery_point;
                }
                _ => reactor::sleep(std::time::Duration::from_millis(1)).await,
            }
        }
    });
    let all = segments(&path);
    assert_eq!(recovery_point, base_of(&all[all.len() - 1]));
    Loss::Removed.befall(&all[all.len() - 2], 0);
    assert!(matches!(end_of(&path, OpenHint::default()), Err(LogError::Corrupt { .. })));
}

/// Only what lies behind the recovery point may be torn by a crash.
#[test]
fn what_lies_behind_the_recovery_point_may_be_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    write(&path, false);
    let checkpoint = std::fs::read(path.join(CHECKPOINT)).unwrap();
    let written = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), written, config()).await;
        append_some(&log, BATCHES..BATCHES + 40).await;
        log.close().await.unwrap();
    });
    std::fs::write(path.join(CHECKPOINT), checkpoint).unwrap();
    let lost = segments(&path).into_iter().filter(|file| base_of(file) > BATCHES as i64);
    let lost: Vec<PathBuf> = lost.collect();
    assert!(lost.len() > 2);
    // As a power cut leaves it that came before their snapshots.
    for name in contents(&path).into_keys().filter(|name| name.ends_with(".snapshot")) {
        if base_of(Path::new(&name)) > BATCHES as i64 {
            std::fs::remove_file(path.join(name)).unwrap();
        }
    }
    for file in &lost {
        Loss::Emptied.befall(file, 0);
    }
    let end = end_of(&path, OpenHint::default()).unwrap();
    assert_eq!(end, base_of(&lost[0]));
}

/// As an operator does it who has no copy.
fn give_up(path: &Path) {
    std::fs::write(path.join(GIVEN_UP), b"").unwrap();
}

/// Where what is missing was given up there is what there is. That the checkpoint is gone says nothing.
#[test]
fn what_was_given_up_is_not_missed_and_nothing_that_was_safe_is_removed() {
    // As the data folder's checkpoints have it, or, after a crash, from the snapshots.
    for (clean, recovery_point, has_snapshots) in
        [(true, 60, true), (false, 60, true), (false, 60, false), (false, 0, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        write(&path, true);
        let sound = contents(&path);
        let all = segments(&path);
        let hint = OpenHint { clean, recovery_point, ..OpenHint::default() };
        let last = &all[all.len() - 1];
        // The last one, then one in the middle, then zeros instead of one.
        let losses = [(all.len() - 1, false), (1, false), (1, true), (0, true)];
        for ((place, zeros), keeps_checkpoint) in
            losses.into_iter().flat_map(|loss| [(loss, false), (loss, true)])
        {
            std::fs::remove_dir_all(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            for (name, bytes) in &sound {
                if has_snapshots || !name.ends_with(".snapshot") {
                    std::fs::write(path.join(name), bytes).unwrap();
                }
            }
            if !keeps_checkpoint {
                std::fs::remove_file(path.join(CHECKPOINT)).unwrap();
            }
            match zeros {
                true => {
                    let len = std::fs::metadata(&all[place]).unwrap().len();
                    std::fs::write(&all[place], vec![0; len as usize]).unwrap();
                }
                false => Loss::Removed.befall(&all[place], 0),
            }
            let what = format!(
                "{hint:?}, {has_snapshots}, place {place}, zeros {zeros}, {keeps_checkpoint}"
            );
            // Only what is walked is looked at.
            let walked = (recovery_point == 0 || !has_snapshots) && !keeps_checkpoint;
            let is_last = all[place] == *last;
            let is_known = (keeps_checkpoint && !zeros)
                || (recovery_point == 60 && (is_last || (zeros && walked)));
            if is_known {
                let error = end_of(&path, hint).expect_err(&what).to_string();
                assert!(error.contains(GIVEN_UP), "{what}: {error}");
            }
            give_up(&path);
            let end = end_of(&path, hint).unwrap();
            match (is_last, zeros && walked) {
                (true, _) => assert_eq!(end, base_of(last), "{what}"),
                (false, false) => assert_eq!(end, BATCHES as i64, "{what}"),
                // Nothing is left: it begins behind what is known to have been there.
                (false, true) if place == 0 => assert_eq!(end, recovery_point, "{what}"),
                // The log ends where a walk meets the zeros.
                (false, true) => assert_eq!(end, base_of(&all[place]), "{what}"),
            }
            let left: Vec<Vec<u8>> = contents(&path).into_values().collect();
            for (i, file) in all.iter().enumerate().filter(|(i, _)| *i != place) {
                let bytes = &sound[file.file_name().unwrap().to_str().unwrap()];
                assert!(left.contains(bytes), "{what}: segment {i} is gone");
            }
            // Said once: it is not missed again, and the next loss is.
            assert_eq!(end_of(&path, hint).unwrap(), end, "{what}");
            let settled = std::fs::read(path.join(GIVEN_UP)).ok();
            let begins_anew = place == 0 && zeros && walked && recovery_point > 0;
            let is_missed = recovery_point > end || begins_anew;
            let expected = is_missed.then_some(recovery_point.to_string());
            assert_eq!(settled.is_some(), expected.is_some(), "{what}");
            let settled = String::from_utf8(settled.unwrap_or_default()).unwrap();
            assert!(settled.contains(&expected.unwrap_or_default()), "{what}: {settled}");
            let first = segments(&path).remove(0);
            if base_of(&first) < end {
                Loss::Removed.befall(&first, 0);
                assert!(end_of(&path, hint).is_err(), "{what}: the next loss");
            }
        }
    }
}

/// What the log itself has removed is not missed, whenever it is killed.
#[test]
fn retention_and_deleted_records_leave_nothing_to_miss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    write(&path, true);
    let checkpoint = std::fs::read(path.join(CHECKPOINT)).unwrap();
    let all = segments(&path);
    let opened = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), opened, config()).await;
        log.advance_log_start(30).await.unwrap();
        append_some(&log, BATCHES..BATCHES + 30).await;
        log.reconfigure(LogConfig { retention_bytes: 7_000, ..config() });
        let outcome = log.enforce_retention(NOW_MS).await.unwrap();
        assert!(outcome.segments_deleted > 2);
        log.advance_log_start(log.log_end_offset()).await.unwrap();
    });
    assert!(!all.iter().any(|file| file.exists()), "all that the old checkpoint names is gone");
    // The checkpoint of before, as if no later one had been written.
    std::fs::write(path.join(CHECKPOINT), checkpoint).unwrap();
    assert_eq!(end_of(&path, OpenHint::default()).unwrap(), BATCHES as i64 + 30);
    assert_eq!(damage_of(&path), []);
}

/// The checkpoint as earlier releases wrote it: without the list, and without batches of producers.
fn of_version_1(mut checkpoint: Vec<u8>) -> Vec<u8> {
    let known = describe_checkpoint(&checkpoint).unwrap();
    let more = 4 + 24 * known.listed_segments + 4 + known.earlier_batches_bytes;
    checkpoint.truncate(checkpoint.len() - more);
    checkpoint[4..6].copy_from_slice(&1u16.to_be_bytes());
    let crc = crc32c::crc32c(&checkpoint[10..]);
    checkpoint[6..10].copy_from_slice(&crc.to_be_bytes());
    checkpoint
}

/// A log that an earlier release closed is vouched for once it was opened and closed, or idle.
#[test]
fn a_checkpoint_of_an_earlier_release_is_read_and_replaced_by_one_that_lists() {
    for close in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        write(&path, true);
        let file = path.join(CHECKPOINT);
        let new = std::fs::read(&file).unwrap();
        std::fs::write(&file, of_version_1(new.clone())).unwrap();
        let opened = path.clone();
        on_uring(move || async move {
            let hint = OpenHint { clean: true, ..OpenHint::default() };
            let memory = shared(1 << 20);
            let (log, recovered) =
                Log::open(&memory, opened, config(), hint, NOW_MS).await.unwrap();
            assert_eq!((recovered.bytes_scanned, log.recovery_point()), (0, BATCHES as i64));
            match close {
                true => drop(log.close().await.unwrap()),
                false => log.flush().await.unwrap(),
            }
        });
        // The largest times come from index files, and are not vouched for.
        let known = |bytes: &[u8]| {
            let known = describe_checkpoint(bytes).unwrap();
            (known.listed_segments, known.listed_bytes, known.recovery_point)
        };
        assert_eq!(known(&std::fs::read(&file).unwrap()), known(&new), "closed {close}");
        Loss::Removed.befall(&segments(&path)[1], 0);
        assert!(end_of(&path, OpenHint::default()).is_err());
    }
}

/// Compaction replaces listed segments: the list gets smaller before, and whole again with the next
/// flush.
#[test]
fn compaction_leaves_nothing_to_miss() {
    for close in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys-0");
        let config =
            LogConfig { compact: true, delete: false, min_cleanable_dirty_ratio: 0.0, ..config() };
        let (cleaned, settings) = (path.clone(), config.clone());
        on_uring(move || async move {
            let (log, _) = open(&shared(1 << 20), cleaned, settings).await;
            for n in 0..120u64 {
                let key = format!("k{}", n % 7);
                let mut batch = BatchBuilder::new();
                batch.append(NOW_MS, Some(key.as_bytes()), Some(&value(n, 400)));
                append(&log, &batch.build().unwrap()).await;
            }
            log.flush().await.unwrap();
            let found = log.cleanable(NOW_MS).await.unwrap().unwrap();
            let outcome = log.clean(&found, &CleanOptions::default(), NOW_MS).await.unwrap();
            assert!(outcome.bytes_after < outcome.bytes_before / 2, "{outcome:?}");
            if close {
                log.close().await.unwrap();
            }
        });
        assert_eq!(damage_of(&path), [], "closed {close}");
        if close {
            let filled = |file: &PathBuf| std::fs::metadata(file).unwrap().len() > 0;
            let all: Vec<PathBuf> = segments(&path).into_iter().filter(filled).collect();
            assert!(all.len() > 1);
            for file in all {
                let bytes = std::fs::read(&file).unwrap();
                Loss::Removed.befall(&file, 0);
                let opened = end_of(&path, OpenHint::default());
                assert!(opened.is_err(), "{} is not vouched for", file.display());
                std::fs::write(file, bytes).unwrap();
            }
        }
        assert_eq!(end_of(&path, OpenHint::default()).unwrap(), 120);
    }
}

/// Names and bytes, as a copy of the folder keeps them.
fn put_back(path: &Path, copy: &BTreeMap<String, Vec<u8>>) {
    std::fs::remove_dir_all(path).unwrap();
    std::fs::create_dir(path).unwrap();
    for (name, bytes) in copy {
        std::fs::write(path.join(name), bytes).unwrap();
    }
}

/// As a crash leaves it.
fn write_more(path: &Path, numbers: std::ops::Range<u64>, hint: OpenHint) {
    let path = path.to_path_buf();
    on_uring(move || async move {
        let opened = Log::open(&shared(1 << 20), path, config(), hint, NOW_MS).await;
        let (log, _) = opened.unwrap();
        append_some(&log, numbers).await;
        log.flush().await.unwrap();
    });
}

fn vouched_for(synced_end: i64, written_end: i64) -> OpenHint {
    let vouched = Vouched { log_start: 0, synced_end, written_end };
    OpenHint { vouched, ..OpenHint::default() }
}

#[test]
fn an_older_copy_of_a_folder_is_not_taken_for_all_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    write(&path, false);
    let older = contents(&path);
    write_more(&path, BATCHES..BATCHES + 30, OpenHint::default());
    let end = BATCHES as i64 + 30;
    assert_eq!(end_of(&path, vouched_for(end, end)).unwrap(), end);
    // Also one whose end is torn, as of a folder that was written meanwhile, or without its checkpoint.
    let mut torn = older.clone();
    let last = torn.keys().filter(|name| name.ends_with(".log")).max().cloned().unwrap();
    torn.get_mut(&last).unwrap().extend_from_slice(&[7; 300]);
    let mut bare = older.clone();
    bare.remove(CHECKPOINT);
    for copy in [&older, &torn, &bare] {
        // What was only written counts as long as the machine runs.
        for hint in [vouched_for(end, 0), vouched_for(0, end), vouched_for(60, end)] {
            put_back(&path, copy);
            let error = end_of(&path, hint).expect_err("it is older").to_string();
            let told = ["ends at 60", "90 was safe", "from a copy", GIVEN_UP];
            assert!(told.iter().all(|told| error.contains(told)), "{error}");
            let found = damage_by(&path, hint.vouched);
            assert!(found.iter().any(|f| f.text.contains("90 was safe")), "{found:?}");
            let left = contents(&path).into_iter().filter(|(name, _)| name.ends_with(".log"));
            let was = copy.clone().into_iter().filter(|(name, _)| name.ends_with(".log"));
            assert!(left.eq(was), "the folder was touched");
        }
    }
    // Who has nothing newer says so, once: it is not missed again, however often it crashes.
    put_back(&path, &older);
    give_up(&path);
    assert_eq!(damage_by(&path, vouched_for(end, end).vouched), []);
    write_more(&path, 200..205, vouched_for(end, end));
    assert_eq!(damage_by(&path, vouched_for(end, end).vouched), []);
    assert_ne!(std::fs::read(path.join(GIVEN_UP)).unwrap(), b"");
    assert_eq!(end_of(&path, vouched_for(end, end)).unwrap(), BATCHES as i64 + 5);
    assert!(end_of(&path, vouched_for(end + 1, 0)).is_err(), "something else is missing now");
    // Once the log is past what was lost, whatever is missing is missed again.
    write_more(&path, 205..235, vouched_for(end, end));
    let end = BATCHES as i64 + 35;
    assert_eq!(end_of(&path, vouched_for(end, end)).unwrap(), end);
    assert!(!path.join(GIVEN_UP).exists());
    put_back(&path, &older);
    assert!(end_of(&path, vouched_for(end, end)).is_err());
}

/// What was written is there after the process was killed, flushed or not: less of a file, or a file less,
/// is not taken for what a crash may leave.
#[test]
fn what_was_written_behind_the_recovery_point_is_missed_while_the_machine_runs() {
    // The last one has never been rolled or flushed: it has no checkpoint.
    for (segment_bytes, flushed) in [(6_000, 20), (1 << 20, 20), (1 << 20, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        let settings = LogConfig { segment_bytes, ..config() };
        let opened = path.clone();
        on_uring(move || async move {
            let (log, _) = open(&shared(1 << 20), opened, settings).await;
            append_some(&log, 0..flushed).await;
            if flushed > 0 {
                log.flush().await.unwrap();
            }
            append_some(&log, flushed..BATCHES).await;
        });
        let hint = vouched_for(flushed as i64, BATCHES as i64);
        let all = segments(&path);
        let sound = contents(&path);
        let bytes = batch(&[value(0, 400)], NOW_MS).len();
        let of_last = (BATCHES as i64 - base_of(&all[all.len() - 1])) as usize;
        let file = all[all.len() - 1].clone();
        let name = file.file_name().unwrap().to_str().unwrap();
        let whole = sound[name].clone();
        let at = (of_last - 2) * bytes;
        let padded = [&whole[..at], &[0; 4_096][..]].concat();
        let half = [&whole[..at + 100], &[0; 4_096][..]].concat();
        let nothing = vec![0; whole.len()];
        for short in [&whole[..at], &whole[..at + 100], &padded, &half, &nothing, &[]] {
            put_back(&path, &sound);
            std::fs::write(&file, short).unwrap();
            let what = format!("{} of {} bytes, {flushed} flushed", short.len(), whole.len());
            for lost in ["", CHECKPOINT] {
                let _ = std::fs::remove_file(path.join(lost));
                let error = end_of(&path, hint).expect_err(&what).to_string();
                let is_told = ["60 was safe", "below 60 was safe", "of it were safe"];
                assert!(is_told.iter().any(|told| error.contains(told)), "{what}: {error}");
                assert!(error.contains(GIVEN_UP), "{error}");
                assert_eq!(std::fs::read(&file).unwrap(), short, "{what}: it was touched");
            }
            // After a power cut that is what there is.
            let end = end_of(&path, vouched_for(flushed as i64, 0));
            if flushed > 0 && of_last == BATCHES as usize && short[..].iter().all(|b| *b == 0) {
                assert!(end.is_err(), "{what}: what was synced is gone");
            } else {
                let end = end.unwrap();
                assert!((flushed as i64..BATCHES as i64).contains(&end), "{what}: {end}");
            }
        }
        if all.len() > 2 {
            put_back(&path, &sound);
            Loss::Removed.befall(&all[all.len() - 2], 0);
            std::fs::remove_file(path.join(CHECKPOINT)).unwrap();
            for name in sound.keys().filter(|name| name.ends_with(".snapshot")) {
                std::fs::remove_file(path.join(name)).unwrap();
            }
            assert!(end_of(&path, hint).is_err(), "without {}", all[all.len() - 2].display());
        }
        // A batch that is there and cannot be read is damage, which is cut off and told.
        put_back(&path, &sound);
        let mut flipped = whole.clone();
        flipped[at - bytes + 200] ^= 4;
        std::fs::write(&file, flipped).unwrap();
        for _ in 0..2 {
            assert_eq!(end_of(&path, hint).unwrap(), BATCHES as i64 - 3);
        }
        assert!(contents(&path).keys().any(|name| name.contains(".aside-")));
    }
}

/// Neither a file without a batch nor an operator's word of which there was no need gives anything up.
#[test]
fn an_empty_segment_holds_nothing_and_a_word_without_need_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    write(&path, false);
    let sound = contents(&path);
    let all = segments(&path);
    give_up(&path);
    assert_eq!(end_of(&path, vouched_for(60, 60)).unwrap(), 60);
    assert!(!path.join(GIVEN_UP).exists());
    // The last segment is gone, and something empty says that the log went on behind it.
    for hint in [vouched_for(60, 60), vouched_for(0, 60)] {
        for name in ["00000000000000000060.log", "00000000000000000099.log"] {
            put_back(&path, &sound);
            std::fs::remove_file(path.join(CHECKPOINT)).unwrap();
            for name in sound.keys().filter(|name| name.ends_with(".snapshot")) {
                std::fs::remove_file(path.join(name)).unwrap();
            }
            Loss::Removed.befall(&all[all.len() - 1], 0);
            std::fs::write(path.join(name), b"").unwrap();
            assert!(end_of(&path, hint).is_err(), "{hint:?} {name}");
        }
    }
}

#[test]
fn an_emptied_folder_is_not_begun_anew_after_a_crash() {
    for (synced_end, written_end) in [(60, 60), (0, 60), (60, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-0");
        write(&path, false);
        for name in contents(&path).into_keys().filter(|name| name != "partition.metadata") {
            std::fs::remove_file(path.join(name)).unwrap();
        }
        let hint = vouched_for(synced_end, written_end);
        let error = end_of(&path, hint).expect_err("it is empty").to_string();
        assert!(error.contains("60 was safe") && error.contains(GIVEN_UP), "{error}");
        for name in ["00000000000000000000.log", "00000000000000000060.log"] {
            std::fs::write(path.join(name), b"").unwrap();
            assert!(end_of(&path, hint).is_err(), "with an empty {name}");
        }
        // The documented way on without what is lost: no offset is given out twice.
        give_up(&path);
        assert_eq!(end_of(&path, hint).unwrap(), 60);
        // Also where the folder itself is gone.
        std::fs::remove_dir_all(&path).unwrap();
        let expected = OpenHint { expected: true, ..hint };
        assert!(matches!(end_of(&path, expected), Err(LogError::Missing(_))));
        std::fs::create_dir(&path).unwrap();
        assert!(end_of(&path, expected).is_err());
        give_up(&path);
        assert_eq!(end_of(&path, expected).unwrap(), 60);
        assert_eq!(end_of(&path, hint).unwrap(), 60);
        write_more(&path, 100..103, hint);
        assert_eq!(end_of(&path, hint).unwrap(), 63);
    }
}

/// The start of the log comes from outside where neither of the partition's own checkpoints has it.
#[test]
fn the_start_of_a_log_outlasts_the_loss_of_both_its_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    write(&path, false);
    let before = std::fs::read(path.join(CHECKPOINT)).unwrap();
    let opened = path.clone();
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), opened, config()).await;
        log.advance_log_start(33).await.unwrap();
    });
    let sound = contents(&path);
    let vouched = Vouched { log_start: 33, ..Vouched::default() };
    let hint = OpenHint { vouched, ..OpenHint::default() };
    let start_of = |hint: OpenHint| {
        let path = path.clone();
        on_uring(move || async move {
            let opened = Log::open(&shared(1 << 20), path, config(), hint, NOW_MS).await;
            opened.map(|(log, _)| log.log_start_offset())
        })
    };
    let damaged = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>();
    let start = "log-start-offset-checkpoint";
    type Lose<'l> = &'l dyn Fn(&Path);
    let remove: Lose<'_> = &|file| std::fs::remove_file(file).unwrap();
    let flip: Lose<'_> =
        &|file| std::fs::write(file, damaged(&std::fs::read(file).unwrap())).unwrap();
    for (lose_start, lose_checkpoint) in
        [(remove, None), (flip, None), (remove, Some(remove)), (flip, Some(flip))]
    {
        put_back(&path, &sound);
        // Of before the deletion: it names segments that are gone.
        std::fs::write(path.join(CHECKPOINT), &before).unwrap();
        lose_start(&path.join(start));
        if let Some(lose) = lose_checkpoint {
            lose(&path.join(CHECKPOINT));
        }
        assert_eq!(start_of(hint).unwrap(), 33);
    }
}

/// Damage that recovery cuts off below what was safe: what is whole behind it is kept, for as long as
/// the topic keeps records, and the log goes on however often it crashes.
#[test]
fn what_is_whole_behind_damage_is_set_aside_until_its_time_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders-0");
    let large = LogConfig { segment_bytes: 1 << 20, retention_ms: 1_000, ..config() };
    let (written, settings) = (path.clone(), large.clone());
    on_uring(move || async move {
        let (log, _) = open(&shared(1 << 20), written, settings).await;
        append_some(&log, 0..BATCHES).await;
        log.flush().await.unwrap();
    });
    // Both the checkpoint and a batch are damaged: all is read, and ends in the middle.
    let file = segments(&path).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let batch_bytes = batch(&[value(0, 400)], NOW_MS).len();
    bytes[20 * batch_bytes + 200] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    std::fs::write(path.join(CHECKPOINT), b"damaged").unwrap();
    for name in contents(&path).into_keys().filter(|name| name.ends_with(".snapshot")) {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    let hint = vouched_for(BATCHES as i64, BATCHES as i64);
    let open_and = |path: PathBuf, now_ms: i64, config: LogConfig| {
        on_uring(move || async move {
            let (log, _) = Log::open(&shared(1 << 20), path, config, hint, now_ms).await.unwrap();
            log.enforce_retention(now_ms).await.unwrap();
            (log.log_end_offset(), log.set_aside_bytes())
        })
    };
    let keeping = LogConfig { retention_ms: -1, ..large.clone() };
    let rest = (39 * batch_bytes) as u64;
    for _ in 0..2 {
        let (end, aside) = open_and(path.clone(), NOW_MS, keeping.clone());
        assert_eq!(end, 20);
        assert!((rest..rest + 4096).contains(&aside), "{aside} of {rest}");
    }
    // As a segment of its own it is read.
    let is_aside = |name: &String| name.contains(".log.aside-");
    let names: Vec<String> = contents(&path).into_keys().filter(is_aside).collect();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let other = dir.path().join("kept-0");
    std::fs::create_dir(&other).unwrap();
    let segment = name.split_once(".aside").unwrap().0;
    assert_eq!(segment, "00000000000000000021.log");
    std::fs::copy(path.join(name), other.join(segment)).unwrap();
    assert_eq!(end_of(&other, OpenHint::default()).unwrap(), BATCHES as i64);
    assert!(damage_of(&path).is_empty(), "{:?}", damage_of(&path));
    // It goes when records of its time would have gone.
    assert!(open_and(path.clone(), NOW_MS + 1_000, large.clone()).1 > 0);
    assert_eq!(open_and(path.clone(), NOW_MS + 1_001, large).1, 0);
    assert!(!contents(&path).into_keys().any(|name| is_aside(&name)));
}
