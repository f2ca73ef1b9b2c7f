//! Core time, disk operations and waits by scheduling class, and stalls.

use super::Samples;
use crate::shard::Shard;

pub(super) fn samples(shard: &Shard, out: &mut Samples) {
    let shard = shard.id().to_string();
    let usage = reactor::usage();
    let help = "Polls that kept everything else on the shard's core waiting for 50 ms or longer; \
                the broker's log names the task.";
    out.counter("corelane_reactor_stalls_total", help, &[("shard", &shard)], usage.stalls as f64);
    let help = "The longest time that one poll took.";
    let longest = usage.longest_stall.as_secs_f64();
    out.gauge("corelane_reactor_longest_stall_seconds", help, &[("shard", &shard)], longest);
    let help = "Calls into the kernel by which the shard submits, collects or sleeps.";
    out.counter("corelane_reactor_enters_total", help, &[("shard", &shard)], usage.enters as f64);
    for class in &usage.classes {
        let labels = [("shard", shard.as_str()), ("class", class.class.name())];
        let help = "Core time that tasks took, by scheduling class.";
        let busy = class.busy.as_secs_f64();
        out.counter("corelane_core_busy_seconds_total", help, &labels, busy);
    }
    for (device, bytes) in usage.bulk_windows {
        let device = name_of(device);
        let labels = [("shard", shard.as_str()), ("device", device.as_str())];
        let help = "Bytes of backfill and background work that may be on their way to or from a \
                    device while producers write to it; follows how long their writes take.";
        out.gauge("corelane_disk_bulk_window_bytes", help, &labels, bytes as f64);
    }
    for disk in usage.disks.iter().filter(|disk| disk.ops > 0) {
        let device = name_of(disk.device);
        let class = disk.class.name();
        let labels = [("shard", shard.as_str()), ("device", device.as_str()), ("class", class)];
        let help = "File operations, by device number and scheduling class.";
        out.counter("corelane_disk_operations_total", help, &labels, disk.ops as f64);
        let help = "Bytes that file operations were admitted for, a small one counting as 16 KiB.";
        out.counter("corelane_disk_admitted_bytes_total", help, &labels, disk.bytes as f64);
        let help = "Time that file operations took from their admission to their end.";
        let took = disk.took.as_secs_f64();
        out.counter("corelane_disk_operation_seconds_total", help, &labels, took);
        let help = "File operations that had to wait in the shard for others.";
        out.counter("corelane_disk_delayed_operations_total", help, &labels, disk.delayed as f64);
        let help = "File operations that wait in the shard now.";
        out.gauge("corelane_disk_waiting_operations", help, &labels, disk.waiting as f64);
        let help = "File operations that the kernel has now.";
        out.gauge("corelane_disk_operations_in_flight", help, &labels, disk.in_flight as f64);
    }
}

fn name_of(device: Option<u64>) -> String {
    device.map_or_else(|| "none".to_owned(), |number| number.to_string())
}
