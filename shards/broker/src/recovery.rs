//! Tells operators how far the opening of the partitions is: in the log while it goes on, once more
//! when it is done, and in metrics.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use log::Recovered;
use tracing::info;

use crate::metrics::Samples;
use crate::shard::Shard;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What opening partitions has found since the start.
#[derive(Default)]
pub(crate) struct Recovery {
    opened: Cell<u64>,
    scanned_bytes: Cell<u64>,
    truncated_bytes: Cell<u64>,
    /// Set when all that were there at the start are open.
    took: Cell<Option<Duration>>,
}

impl Recovery {
    pub fn note(&self, recovered: &Recovered) {
        let add = |counter: &Cell<u64>, more| counter.set(counter.get() + more);
        add(&self.opened, 1);
        add(&self.scanned_bytes, recovered.bytes_scanned);
        add(&self.truncated_bytes, recovered.truncated_bytes);
    }
}

/// Watches the opening of the partitions that are there at the start.
pub(crate) fn watch(shard: &Rc<Shard>) {
    let total = shard.partitions.opening();
    if total > 0 {
        reactor::spawn(tell(shard.clone(), total)).detach();
    }
}

async fn tell(shard: Rc<Shard>, total: usize) {
    let began = reactor::now();
    let mut before = 0;
    while reactor::timeout(TELL_EVERY, shard.partitions.settled()).await.is_err() {
        if shard.is_stopping() {
            return;
        }
        let scanned = shard.log_shared.scanned_bytes();
        info!(
            "shard {}: {} of {total} partitions are open, {} MB scanned, {} MB/s",
            shard.id(),
            total.saturating_sub(shard.partitions.opening()),
            scanned / 1_000_000,
            (scanned - before) / 1_000_000
        );
        before = scanned;
    }
    let took = began.elapsed();
    let recovery = &shard.partitions.recovery;
    recovery.took.set(Some(took));
    let counts = shard.partitions.counts();
    info!(
        "shard {}: {} partitions are open and {} offline after {} ms; {} bytes scanned, {} cut off",
        shard.id(),
        counts.online,
        counts.offline,
        took.as_millis(),
        shard.log_shared.scanned_bytes(),
        recovery.truncated_bytes.get()
    );
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let recovery = &shard.partitions.recovery;
    let help = "Partitions opened since the start.";
    out.counter("corelane_partitions_opened_total", help, &[], recovery.opened.get() as f64);
    let help = "Bytes of logs read and checked by recovery since the start.";
    let scanned = shard.log_shared.scanned_bytes();
    out.counter("corelane_recovery_scanned_bytes_total", help, &[], scanned as f64);
    let help = "Bytes of torn or damaged batches that recovery cut off since the start.";
    let truncated = recovery.truncated_bytes.get();
    out.counter("corelane_recovery_truncated_bytes_total", help, &[], truncated as f64);
    let number = shard.id().to_string();
    if let Some(took) = recovery.took.get() {
        let help = "Time from the start until every partition of the shard was open.";
        let labels = [("shard", number.as_str())];
        out.gauge("corelane_recovery_seconds", help, &labels, took.as_secs_f64());
    }
    let help = "Segment files that are open to be written.";
    let files = shard.log_shared.written_files();
    out.gauge("corelane_log_written_files", help, &[("shard", &number)], files as f64);
}
