//! How fast a log that was not closed is scanned, and what its partitions cost when they are idle.
//!
//! `cargo run --release -p corelane-log --example recover -- <folder> <MiB> [<partitions>]`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "an example prints and may panic"
)]

use std::path::PathBuf;
use std::time::Instant;

use log::{Log, LogConfig, LogShared, OpenHint, SharedOptions};
use reactor::{ShardSpec, uring};
use wire::records::{BatchBuilder, BatchView};

const NOW_MS: i64 = 1_700_000_000_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("a folder"));
    let mib: usize = args.next().expect("a size in MiB").parse().unwrap();
    let partitions: usize = args.next().map_or(0, |n| n.parse().unwrap());
    let spec = ShardSpec::default();
    let big = dir.join("big-0");
    let path = big.clone();
    uring::run(&spec, move || async move { write(path, mib << 20).await }).unwrap();
    let path = big.clone();
    uring::run(&spec, move || async move { scan(path).await }).unwrap();
    if partitions > 0 {
        uring::run(&spec, move || async move { open_many(dir, partitions).await }).unwrap();
    }
}

fn shared() -> LogShared {
    LogShared::new(SharedOptions { cache_bytes: 128 << 20, ..SharedOptions::default() })
}

async fn write(path: PathBuf, bytes: usize) {
    let (log, _) = Log::open(&shared(), path, LogConfig::default(), OpenHint::default(), NOW_MS)
        .await
        .unwrap();
    let mut builder = BatchBuilder::new();
    let value = vec![b'v'; 1000];
    for _ in 0..16 {
        builder.append(NOW_MS, None, Some(&value));
    }
    let batch = builder.build().unwrap();
    let view = BatchView::parse(&batch).unwrap();
    let mut done = 0;
    while done < bytes {
        match log.append(&view, 0, NOW_MS) {
            Ok(_) => done += batch.len(),
            Err(log::AppendError::Full) => log.room().await,
            Err(error) => panic!("{error}"),
        }
    }
    log.acknowledged(log.log_end_offset()).await.unwrap();
}

async fn scan(path: PathBuf) {
    // As if no checkpoint had been written.
    let _ = std::fs::remove_file(path.join("corelane.checkpoint"));
    let (began, cpu) = (Instant::now(), cpu_ms());
    let (_log, recovered) =
        Log::open(&shared(), path, LogConfig::default(), OpenHint::default(), NOW_MS)
            .await
            .unwrap();
    let (wall, cpu) = (began.elapsed().as_secs_f64(), (cpu_ms() - cpu) as f64 / 1000.0);
    let mb = recovered.bytes_scanned as f64 / 1e6;
    println!(
        "scanned {mb:.0} MB in {wall:.2} s: {:.0} MB/s, {:.0} MB/s of CPU time",
        mb / wall,
        mb / cpu
    );
}

async fn open_many(dir: PathBuf, partitions: usize) {
    let shared = shared();
    let (before, began) = (resident_kib(), Instant::now());
    let mut logs = Vec::new();
    for n in 0..partitions {
        let path = dir.join(format!("many-{n}"));
        let hint = OpenHint { clean: true, ..OpenHint::default() };
        logs.push(Log::open(&shared, path, LogConfig::default(), hint, NOW_MS).await.unwrap().0);
    }
    let used = (resident_kib() - before) * 1024 / partitions as i64;
    println!(
        "{partitions} logs open in {:.2} s, {used} bytes resident each",
        began.elapsed().as_secs_f64()
    );
    for log in logs {
        log.close().await.unwrap();
    }
}

fn cpu_ms() -> i64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<i64>().unwrap() + fields[12].parse::<i64>().unwrap()) * 10
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
