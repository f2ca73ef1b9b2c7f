//! What the data directories tell metrics. The disks are the host's: shard 0 speaks for them; each
//! shard counts its own partitions.

use std::collections::BTreeMap;

use super::space::Level;
use crate::metrics::Samples;
use crate::shard::{CONTROLLER_SHARD, Shard};

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let mut online: BTreeMap<usize, usize> = BTreeMap::new();
    for partition in shard.open_partitions() {
        *online.entry(partition.dir_number).or_default() += 1;
    }
    for number in 0..shard.dirs.len() {
        let path = shard.dirs.path(number).map(|path| path.display().to_string());
        let path = path.unwrap_or_default();
        let labels = [("dir", path.as_str())];
        let mut gauge = |name, help, value: u64| out.gauge(name, help, &labels, value as f64);
        let help = "Partitions of the data directory that are open.";
        let open = online.get(&number).copied().unwrap_or(0) as u64;
        gauge("corelane_data_dir_partitions", help, open);
        if shard.id() == CONTROLLER_SHARD {
            of_disk(shard, number, &labels, out);
        }
    }
    let help = "Partitions that are being moved between data directories.";
    out.gauge("corelane_data_dir_moves", help, &[], shard.moves.count() as f64);
    let help = "Moves between data directories that are done.";
    out.counter("corelane_data_dir_moves_total", help, &[], shard.moves.finished.get() as f64);
    let help = "Moves between data directories that failed; the broker's log says why.";
    let failed = shard.moves.failed.get() as f64;
    out.counter("corelane_data_dir_move_failures_total", help, &[], failed);
}

fn of_disk(shard: &Shard, number: usize, labels: &[(&'static str, &str)], out: &mut Samples) {
    let flag = |is: bool| f64::from(u8::from(is));
    let dirs = &shard.dirs;
    let help = "Whether the data directory can be used.";
    out.gauge("corelane_data_dir_online", help, labels, flag(!dirs.is_failed(number)));
    let help = "Whether producers are refused because the disk is almost full.";
    out.gauge("corelane_data_dir_full", help, labels, flag(dirs.is_full(number)));
    let help = "Whether retention runs all the time because the disk has little space.";
    out.gauge("corelane_data_dir_low", help, labels, flag(dirs.level(number) > Level::Ample));
    let help = "Times the data directory has failed since the start.";
    out.counter("corelane_data_dir_failures_total", help, labels, dirs.failures(number) as f64);
    if let Some(space) = dirs.space(number) {
        let help = "Size of the data directory's file system.";
        out.gauge("corelane_data_dir_total_bytes", help, labels, space.total as f64);
        let help = "Free space of the data directory's file system.";
        out.gauge("corelane_data_dir_free_bytes", help, labels, space.available as f64);
    }
}
