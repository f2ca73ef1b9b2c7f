//! Helpers of the log's tests: batches, reading everything, a shard on a temporary folder.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code)]

use std::path::PathBuf;

/// A test's choices depend on its seed alone.
#[allow(unused_imports, reason = "not every test draws")]
pub use reactor::sim::Choices as Dice;

use log::{Log, LogConfig, LogShared, OpenHint, Recovered, SharedOptions};
use reactor::{ShardSpec, uring};
use wire::records::{BatchBuilder, BatchView, batches};

pub const NOW_MS: i64 = 1_700_000_000_000;

/// A batch of records with these values; timestamps count up from `timestamp`.
pub fn batch(values: &[Vec<u8>], timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (i, value) in values.iter().enumerate() {
        builder.append(timestamp + i as i64, None, Some(value));
    }
    builder.build().unwrap()
}

pub fn producer_batch(values: &[Vec<u8>], id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence);
    for value in values {
        builder.append(NOW_MS, None, Some(value));
    }
    builder.build().unwrap()
}

pub fn view(bytes: &[u8]) -> BatchView<'_> {
    BatchView::parse(bytes).unwrap()
}

pub fn value(n: u64, len: usize) -> Vec<u8> {
    let mut value = format!("value-{n}-").into_bytes();
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while value.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        value.extend_from_slice(&x.to_le_bytes());
    }
    value.truncate(len.max(1));
    value
}

/// Appends, waiting for room when the memory is full.
pub async fn append(log: &Log, bytes: &[u8]) -> log::Appended {
    loop {
        match log.append(&view(bytes), 0, NOW_MS) {
            Ok(appended) => return appended,
            Err(log::AppendError::Full) => log.room().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every visible record: offset and value. Checks on the way that batches are whole, sound and in
/// order.
pub async fn read_all(log: &Log, max_bytes: usize) -> Vec<(i64, Vec<u8>)> {
    read_from(log, log.log_start_offset(), max_bytes).await
}

pub async fn read_from(log: &Log, from: i64, max_bytes: usize) -> Vec<(i64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut next = from;
    while next < log.visible_end_offset() {
        let plan = log.plan_read(next, i64::MAX, max_bytes, true).unwrap();
        let bytes = plan.execute().await.unwrap().concat();
        assert!(!bytes.is_empty(), "nothing at {next} of {}", log.visible_end_offset());
        let mut whole = 0;
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            whole += batch.bytes().len();
            assert!(batch.header().last_offset() >= next, "the first batch holds the offset");
            for record in &batch.records(64 << 20).unwrap() {
                let record = record.unwrap();
                if record.offset >= from {
                    out.push((record.offset, record.value.unwrap().to_vec()));
                }
            }
            next = batch.header().next_offset();
        }
        assert_eq!(whole, bytes.len(), "only whole batches come");
    }
    out
}

pub fn shared(cache_bytes: usize) -> LogShared {
    LogShared::new(SharedOptions { cache_bytes, ..SharedOptions::default() })
}

pub async fn open(shared: &LogShared, dir: PathBuf, config: LogConfig) -> (Log, Recovered) {
    Log::open(shared, dir, config, OpenHint::default(), NOW_MS).await.unwrap()
}

pub async fn open_clean(shared: &LogShared, dir: PathBuf, config: LogConfig) -> (Log, Recovered) {
    let hint = OpenHint { clean: true, ..OpenHint::default() };
    Log::open(shared, dir, config, hint, NOW_MS).await.unwrap()
}

/// Runs `main` as a shard on io_uring.
pub fn on_uring<F, Fut, T>(main: F) -> T
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    uring::run(&ShardSpec::default(), main).unwrap()
}
