//! What the log alone takes on this disk: acknowledgements a second and their latency.
//!
//! `cargo run --release -p corelane-log --example append -- DIR [SECONDS]`
//!
//! One line per promise, preparation, batch size and number of producers, each of which waits for
//! its acknowledgement before it sends the next batch.
#![allow(clippy::unwrap_used, reason = "a measuring tool may panic")]

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use log::{AppendError, Log, LogConfig, LogShared, OpenHint, Preallocate, SharedOptions};
use reactor::{ShardSpec, uring};
use wire::records::{BatchBuilder, BatchView};

#[derive(Clone)]
struct Case {
    name: &'static str,
    config: LogConfig,
    batch_bytes: usize,
    producers: usize,
    partitions: usize,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "log-bench".to_owned()));
    let seconds: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(2);
    println!(
        "promise/preparation  batch  producers  partitions    acks/s    MB/s   p50 us   p99 us"
    );
    for case in cases() {
        let (dir, shown) = (dir.clone(), case.clone());
        let mut times =
            uring::run(&ShardSpec::default(), move || measure(dir, case, seconds)).unwrap();
        times.sort_unstable();
        let rate = times.len() as f64 / seconds as f64;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
        println!(
            "{:<19} {:>7} {:>10} {:>11} {:>9.0} {:>7.0} {:>8} {:>8}",
            shown.name,
            shown.batch_bytes,
            shown.producers,
            shown.partitions,
            rate,
            rate * shown.batch_bytes as f64 / 1e6,
            at(0.5),
            at(0.99)
        );
    }
}

fn cases() -> Vec<Case> {
    let written = |preallocate| LogConfig { preallocate, ..LogConfig::default() };
    let synced = |preallocate| LogConfig { preallocate, flush_messages: 1, ..LogConfig::default() };
    let kinds = [
        ("memory", LogConfig { write_caching: true, ..LogConfig::default() }),
        ("written/off", written(Preallocate::Off)),
        ("written/reserve", written(Preallocate::Reserve)),
        ("written/zeros", written(Preallocate::ZeroFill)),
        ("synced/off", synced(Preallocate::Off)),
        ("synced/zeros", synced(Preallocate::ZeroFill)),
    ];
    let loads =
        [(1_000, 1, 1), (1_000, 64, 1), (16 << 10, 1, 1), (16 << 10, 64, 1), (1_000, 64, 16)];
    let mut cases = Vec::new();
    for (name, config) in kinds {
        for (batch_bytes, producers, partitions) in loads {
            cases.push(Case { name, config: config.clone(), batch_bytes, producers, partitions });
        }
    }
    cases
}

async fn measure(dir: PathBuf, case: Case, seconds: u64) -> Vec<Duration> {
    let shared =
        LogShared::new(SharedOptions { cache_bytes: 256 << 20, ..SharedOptions::default() });
    let now_ms = reactor::wall_clock_ms();
    let mut logs = Vec::new();
    for p in 0..case.partitions {
        let path = dir.join(log::partition_dir_name("bench", p as i32));
        let hint = OpenHint::default();
        logs.push(Log::open(&shared, path, case.config.clone(), hint, now_ms).await.unwrap().0);
    }
    let mut builder = BatchBuilder::new();
    builder.append(now_ms, None, Some(&vec![b'x'; case.batch_bytes - 61 - 16]));
    let bytes: Rc<[u8]> = builder.build().unwrap().into();
    let times = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
    let end = reactor::now() + Duration::from_secs(seconds);
    let producers = (0..case.producers).map(|i| {
        let (log, bytes, times) = (logs[i % logs.len()].clone(), bytes.clone(), times.clone());
        reactor::spawn(async move {
            while reactor::now() < end {
                let start = reactor::now();
                let batch = BatchView::parse(&bytes).unwrap();
                let appended = match log.append(&batch, 0, now_ms) {
                    Ok(appended) => appended,
                    Err(AppendError::Full) => {
                        log.room().await;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                log.acknowledged(appended.last_offset + 1).await.unwrap();
                times.borrow_mut().push(reactor::now() - start);
                if case.config.write_caching {
                    reactor::yield_now().await;
                }
            }
        })
    });
    reactor::join_all(producers.collect::<Vec<_>>()).await;
    for log in logs {
        let path = log.dir();
        log.close().await.unwrap();
        reactor::fs::remove_dir_all(&path).await.unwrap();
    }
    Rc::try_unwrap(times).unwrap().into_inner()
}
