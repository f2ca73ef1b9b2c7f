//! Checking a partition's files: nothing is said of sound ones, and a flipped bit anywhere is
//! either told or changes nothing that a reader gets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};

use common::*;
use log::inspect::{
    Finding, Findings, PartitionContext, PartitionSummary, Severity, verify_partition,
};
use log::{AbortedTxn, LogConfig};
use wire::records::control::EndTransaction;
use wire::records::{BatchBuilder, Codec};

fn config() -> LogConfig {
    LogConfig { segment_bytes: 6_000, index_interval_bytes: 400, ..LogConfig::default() }
}

/// Transactions, idempotent and plain producers, every codec, several epochs and segments.
async fn write(dir: &Path) {
    let (log, _) = open(&shared(1 << 20), dir.to_path_buf(), config()).await;
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    for n in 0..120i64 {
        let epoch = (n / 50) as i32;
        let codec = codecs[n as usize % codecs.len()];
        let producer = n % 4;
        let mut builder = BatchBuilder::new().codec(codec, None);
        if producer > 0 {
            builder = builder.producer(producer, 0, (n / 4) as i32 * 2);
            builder = builder.transactional(producer > 1);
        }
        builder.append(NOW_MS + n * 10 - (n % 7) * 30, Some(b"key"), Some(&value(n as u64, 120)));
        builder.append(NOW_MS + n * 10, None, None);
        log.append(&view(&builder.build().unwrap()), epoch, NOW_MS).unwrap();
        if producer > 1 && n % 3 == 0 {
            let end = EndTransaction { committed: n % 2 == 0, coordinator_epoch: 1 };
            let bytes = end.batch(producer, 0, NOW_MS + n * 10).unwrap();
            log.append(&view(&bytes), epoch, NOW_MS).unwrap();
        }
        log.acknowledged(log.log_end_offset()).await.unwrap();
    }
    assert!(log.segment_count() > 3);
    log.close().await.unwrap();
}

async fn verify(dir: &Path) -> (PartitionSummary, Vec<Finding>) {
    let mut found = Vec::new();
    let mut sink = |finding| found.push(finding);
    let mut findings = Findings::new(&mut sink);
    let summary = verify_partition(dir, PartitionContext::default(), &mut findings).await.unwrap();
    (summary, found)
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

type Seen = (Vec<(i64, Vec<u8>)>, Vec<AbortedTxn>, Vec<Option<i64>>, i64, usize);

/// All that a reader gets of a log.
async fn seen(dir: &Path) -> Seen {
    let (log, _) = open_clean(&shared(1 << 20), dir.to_path_buf(), config()).await;
    let mut batches = Vec::new();
    let mut next = log.log_start_offset();
    while next < log.visible_end_offset() {
        let plan = log.plan_read(next, i64::MAX, 1, true).unwrap();
        let bytes = plan.execute().await.unwrap().concat();
        next = view(&bytes).header().next_offset();
        batches.push((next, bytes));
    }
    let aborted = log.aborted_transactions(log.log_start_offset(), i64::MAX).await.unwrap();
    let mut times = Vec::new();
    for n in (0..1_300).step_by(45) {
        let found = log.offset_for_timestamp(NOW_MS + n, i64::MAX).await.unwrap();
        times.push(found.map(|at| at.offset));
    }
    let rest = (log.last_stable_offset(), log.producer_count());
    log.close().await.unwrap();
    (batches, aborted, times, rest.0, rest.1)
}

#[test]
fn sound_files_are_not_complained_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    on_uring(move || async move {
        write(&path).await;
        let (summary, found) = verify(&path).await;
        assert_eq!(found, []);
        assert!(summary.segments > 3 && summary.records > 240, "{summary:?}");
        assert_eq!((summary.start, summary.leader_epoch), (0, 2));
    });
}

#[test]
fn a_flipped_bit_is_told_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, bad) = (dir.path().join("sound/t-0"), dir.path().join("bad/t-0"));
    std::fs::create_dir_all(sound.parent().unwrap()).unwrap();
    let flips = std::env::var("CORELANE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    on_uring(move || async move {
        write(&sound).await;
        let expected = seen(&{
            copy(&sound, &bad);
            bad.clone()
        })
        .await;
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&sound).unwrap().map(|e| e.unwrap().path()).collect();
        files.retain(|file| std::fs::metadata(file).unwrap().len() > 0);
        files.sort();
        let mut x = 7u64;
        let mut told = 0;
        for n in 0..flips {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let file = &files[n % files.len()];
            let mut bytes = std::fs::read(file).unwrap();
            let bit = (x >> 33) as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            copy(&sound, &bad);
            let name = file.file_name().unwrap();
            std::fs::write(bad.join(name), bytes).unwrap();
            let (_, found) = verify(&bad).await;
            if found.is_empty() {
                // The topic's id is held against other files only.
                if name != "partition.metadata" {
                    assert!(seen(&bad).await == expected, "bit {bit} of {name:?} is not told of");
                }
                continue;
            }
            told += 1;
            let in_segment = name.to_str().unwrap().ends_with(".log");
            let at = |f: &Finding| f.file.file_name() == Some(name) && f.position.is_some();
            if in_segment {
                let near = found.iter().filter(|f| at(f)).filter_map(|f| f.position);
                let near = near.min().unwrap_or_else(|| panic!("bit {bit} of {name:?}: {found:?}"));
                let behind = (bit / 8) as i64 - near as i64;
                assert!(behind.abs() < 1_000, "bit {bit} of {name:?} told at {near}");
            }
        }
        assert!(told > flips / 2, "only {told} of {flips} were told");
    });
}

#[test]
fn each_kind_of_damage_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, bad) = (dir.path().join("sound/t-0"), dir.path().join("bad/t-0"));
    std::fs::create_dir_all(sound.parent().unwrap()).unwrap();
    on_uring(move || async move {
        write(&sound).await;
        let first = "00000000000000000000";
        let last = std::fs::read_dir(&sound)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".log"))
            .max()
            .unwrap();
        type Change = fn(&mut Vec<u8>);
        let table: &[(String, Change, Severity, Option<u64>, &str)] = &[
            (format!("{first}.log"), |b| b[100] ^= 1, Severity::Damage, Some(0), "checksum"),
            (format!("{first}.log"), |b| b[16] = 1, Severity::Damage, Some(0), "format 1"),
            (format!("{first}.log"), |b| b[7] = 9, Severity::Damage, None, "offset"),
            (last.clone(), |b| b.extend([0; 5_000]), Severity::Note, None, "zeros to the end"),
            (last.clone(), |b| b.extend([7; 70]), Severity::Repairable, None, "format 7"),
            (format!("{first}.index"), |b| b[3] ^= 1, Severity::Repairable, Some(0), "ends at"),
            (
                format!("{first}.index"),
                |b| b[7] ^= 1,
                Severity::Repairable,
                Some(0),
                "no batch starts",
            ),
            (format!("{first}.index"), |b| b.push(1), Severity::Repairable, None, "whole entries"),
            (format!("{first}.timeindex"), |b| b[7] ^= 1, Severity::Repairable, Some(0), "largest"),
            (
                format!("{first}.timeindex"),
                |b| b.truncate(12),
                Severity::Repairable,
                None,
                "missing",
            ),
            (format!("{first}.txnindex"), |b| b[9] ^= 1, Severity::Damage, Some(0), "stands for"),
            (format!("{first}.txnindex"), |b| b[1] = 1, Severity::Damage, Some(0), "version"),
            (
                "leader-epoch-checkpoint".into(),
                |b| b[2] = b'x',
                Severity::Repairable,
                Some(0),
                "how many",
            ),
            ("partition.metadata".into(), |b| b.clear(), Severity::Damage, Some(0), "topic_id"),
            (
                "corelane.checkpoint".into(),
                |b| b[20] ^= 1,
                Severity::Repairable,
                Some(0),
                "checksum",
            ),
        ];
        for (name, change, severity, position, words) in table {
            copy(&sound, &bad);
            let path = bad.join(name);
            let mut bytes = std::fs::read(&path).unwrap_or_default();
            change(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
            let (_, found) = verify(&bad).await;
            let fits = |f: &&Finding| {
                f.file == path
                    && f.severity == *severity
                    && f.text.to_lowercase().contains(words)
                    && (position.is_none() || f.position == *position)
            };
            assert!(found.iter().any(|f| fits(&f)), "{name} {words}: {found:#?}");
        }
        copy(&sound, &bad);
        for file in std::fs::read_dir(&bad).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "snapshot") {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[5] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                let (_, found) = verify(&bad).await;
                let told = |f: &&Finding| f.file == path && f.text.contains("checksum");
                assert!(found.iter().any(|f| told(&f)), "{found:#?}");
                break;
            }
        }
    });
}
