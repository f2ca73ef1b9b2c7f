//! What operators are told about groups.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::metrics::Samples;
use crate::shard::Shard;

/// Counted since the start.
#[derive(Default)]
pub(super) struct Counted {
    commits: Cell<u64>,
}

impl Counted {
    /// Offsets of that many partitions were committed and acknowledged.
    pub fn note_commits(&self, partitions: usize) {
        self.commits.set(self.commits.get().wrapping_add(partitions as u64));
    }
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let mut states: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let (mut active, mut loading, mut offsets) = (0, 0, 0);
    for seat in shard.groups.seats.all() {
        loading += usize::from(seat.is_loading());
        seat.look(|coordinator| {
            active += 1;
            offsets += coordinator.offset_count();
            for (state, groups) in coordinator.group_states() {
                *states.entry(state).or_default() += groups;
            }
        });
    }
    for ((kind, state), groups) in states {
        let labels = [("type", kind), ("state", state)];
        out.gauge("corelane_groups", "Groups, by type and state.", &labels, groups as f64);
    }
    let help = "Partitions of __consumer_offsets by the state of their coordinator.";
    let name = "corelane_group_coordinators";
    out.gauge(name, help, &[("state", "active")], f64::from(active));
    out.gauge(name, help, &[("state", "loading")], loading as f64);
    let help = "Committed offsets that coordinators hold.";
    out.gauge("corelane_group_offsets", help, &[], offsets as f64);
    let counted = &shard.groups.counted;
    let help = "Offsets that were committed, one a partition.";
    out.counter("corelane_group_offset_commits_total", help, &[], counted.commits.get() as f64);
    let loads = &shard.groups.seats.counted;
    let help = "Coordinators that were loaded from their logs.";
    out.counter("corelane_group_loads_total", help, &[], loads.count.get() as f64);
    let help = "Records that were read for it.";
    let records = loads.records.get() as f64;
    out.counter("corelane_group_loaded_records_total", help, &[], records);
    let help = "Time that it took, summed over the coordinators.";
    let seconds = loads.took.get().as_secs_f64();
    out.counter("corelane_group_load_seconds_total", help, &[], seconds);
}
