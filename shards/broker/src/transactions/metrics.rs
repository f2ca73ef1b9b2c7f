//! What operators are told about transactions: of the coordinators on this shard, and of the
//! leaders.

use std::cell::Cell;
use std::collections::BTreeMap;

use coord::txn::TxnDecision;

use crate::metrics::Samples;
use crate::shard::Shard;

/// Counted since the start.
#[derive(Default)]
pub(super) struct Counted {
    committed: Cell<u64>,
    aborted: Cell<u64>,
    timed_out: Cell<u64>,
    markers_written: Cell<u64>,
    markers_retried: Cell<u64>,
}

/// What made a coordinator decide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Of a client, or the answer to a marker.
    Request,
    Time,
}

impl Counted {
    pub fn note(&self, decision: &TxnDecision, cause: Cause) {
        for commits in decision.records.iter().filter_map(|record| record.decides()) {
            add(if commits { &self.committed } else { &self.aborted }, 1);
            if cause == Cause::Time {
                add(&self.timed_out, 1);
            }
        }
        add(&self.markers_retried, decision.markers_failed);
    }

    /// That many partitions have written the marker they were sent.
    pub fn note_markers(&self, written: usize) {
        add(&self.markers_written, written);
    }
}

fn add(cell: &Cell<u64>, more: usize) {
    cell.set(cell.get().wrapping_add(more as u64));
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    coordinators(shard, out);
    leaders(shard, out);
    let counted = &shard.transactions.counted;
    let counters = [
        (
            "corelane_transactions_committed_total",
            "Transactions that were decided to be committed.",
            &counted.committed,
        ),
        (
            "corelane_transactions_aborted_total",
            "Transactions that were decided to be aborted, by whomever.",
            &counted.aborted,
        ),
        (
            "corelane_transactions_timed_out_total",
            "Of those that were aborted, the ones that were open for too long.",
            &counted.timed_out,
        ),
        (
            "corelane_transaction_markers_written_total",
            "Partitions that wrote the marker of a transaction's end, as coordinators had them.",
            &counted.markers_written,
        ),
        (
            "corelane_transaction_markers_retried_total",
            "Markers that could not be written and were to be sent again.",
            &counted.markers_retried,
        ),
    ];
    for (name, help, cell) in counters {
        out.counter(name, help, &[], cell.get() as f64);
    }
    let loads = &shard.transactions.seats.counted;
    let help = "Coordinators of transactions that were loaded from their logs.";
    out.counter("corelane_transaction_loads_total", help, &[], loads.count.get() as f64);
    let help = "Records that were read for it.";
    let records = loads.records.get() as f64;
    out.counter("corelane_transaction_loaded_records_total", help, &[], records);
    let help = "Time that it took, summed over the coordinators.";
    let seconds = loads.took.get().as_secs_f64();
    out.counter("corelane_transaction_load_seconds_total", help, &[], seconds);
}

fn coordinators(shard: &Shard, out: &mut Samples) {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut active, mut loading, mut oldest_ms) = (0, 0, None);
    for seat in shard.transactions.seats.all() {
        loading += usize::from(seat.is_loading());
        seat.look(|coordinator| {
            active += 1;
            for (state, ids) in coordinator.states() {
                *states.entry(state).or_default() += ids;
            }
            oldest_ms = [oldest_ms, coordinator.oldest_open_ms()].into_iter().flatten().min();
        });
    }
    for (state, ids) in states {
        let help = "Transactional ids, by state.";
        out.gauge("corelane_transactional_ids", help, &[("state", state)], ids as f64);
    }
    let help = "Partitions of __transaction_state by the state of their coordinator.";
    let name = "corelane_transaction_coordinators";
    out.gauge(name, help, &[("state", "active")], f64::from(active));
    out.gauge(name, help, &[("state", "loading")], loading as f64);
    let age_ms = oldest_ms.map_or(0, |since_ms| reactor::wall_clock_ms().saturating_sub(since_ms));
    out.gauge(
        "corelane_transaction_oldest_open_seconds",
        "For how long the oldest transaction has been open that the shard coordinates; 0 if none is.",
        &[("shard", &shard.id().to_string())],
        age_ms.max(0) as f64 / 1e3,
    );
}

fn leaders(shard: &Shard, out: &mut Samples) {
    let (mut verifying, mut producers, mut bytes) = (0usize, 0, 0);
    for partition in shard.open_partitions() {
        verifying += usize::from(partition.log.is_verifying());
        producers += partition.log.producer_count();
        bytes += partition.log.producer_bytes();
    }
    let help = "Partitions where a batch waits for a coordinator to say whether it is part of a \
                transaction.";
    out.gauge("corelane_transaction_verifying_partitions", help, &[], verifying as f64);
    let help = "Producer ids that leaders remember, one a partition that the producer writes to.";
    out.gauge("corelane_producer_ids", help, &[], producers as f64);
    let help = "About the memory that these take.";
    out.gauge("corelane_producer_state_bytes", help, &[], bytes as f64);
}
