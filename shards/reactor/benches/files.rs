//! Direct writes and reads of one zero-filled file, beside plain blocking calls on the same file:
//! compare within one run only.
//!
//! `cargo bench -p corelane-reactor --bench files [-- ops [directory]]`
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reactor::{
    AlignedBuf, Chunk, Durability, File, OpenOptions, ShardSpec, WriteBuf, spawn, uring,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;
use smallvec::smallvec;

const SIZE: u64 = 64 << 20;

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let ops: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(2_000);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = dir.join(format!("corelane-bench-{}", std::process::id()));
    fill(&path);
    println!("{ops} operations each; µs");
    println!("{:<44} {:>8} {:>8} {:>8}", "", "p50", "p99", "MB/s");
    for block in [4 << 10, 64 << 10, 256 << 10] {
        for sync in [false, true] {
            let what = format!("{} KiB write{}", block >> 10, if sync { ", synced" } else { "" });
            report(&format!("{what}: blocking"), block, blocking(&path, block, sync, ops));
            report(&format!("{what}: shard"), block, sharded(&path, block, sync, ops, 1));
        }
    }
    for depth in [4, 16] {
        let what = format!("4 KiB write, {depth} at once: shard");
        report(&what, 4 << 10, sharded(&path, 4 << 10, false, ops, depth));
    }
    std::fs::remove_file(&path).unwrap();
}

fn report(name: &str, block: usize, (mut latencies, wall): (Vec<Duration>, Duration)) {
    latencies.sort_unstable();
    let at = |q: usize| latencies[latencies.len() * q / 100].as_secs_f64() * 1e6;
    let rate = (block * latencies.len()) as f64 / wall.as_secs_f64() / 1e6;
    println!("{name:<44} {:>8.1} {:>8.1} {rate:>8.1}", at(50), at(99));
}

fn fill(path: &Path) {
    std::fs::write(path, vec![0; SIZE as usize]).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

fn blocking(path: &Path, block: usize, sync: bool, ops: u64) -> (Vec<Duration>, Duration) {
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let file = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let data = AlignedBuf::zeroed(block);
    let start = Instant::now();
    let latencies = (0..ops).map(|i| {
        let begun = Instant::now();
        let offset = i * block as u64 % SIZE;
        let flags = if sync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let data = [std::io::IoSlice::new(&data)];
        let n = rustix::io::pwritev2(file.as_fd(), &data, offset, flags).unwrap();
        assert_eq!(n, block);
        begun.elapsed()
    });
    (latencies.collect(), start.elapsed())
}

fn sharded(
    path: &Path,
    block: usize,
    sync: bool,
    ops: u64,
    depth: u64,
) -> (Vec<Duration>, Duration) {
    let path = path.to_path_buf();
    uring::run(&ShardSpec::default(), move || async move {
        let options = OpenOptions { read: true, write: true, direct: true, ..Default::default() };
        let file = File::open(&path, options).await.unwrap();
        let durability = if sync { Durability::Synced } else { Durability::Written };
        let mut chunk = Chunk::new(block);
        chunk.append(&vec![0; block]);
        let start = Instant::now();
        let writers: Vec<_> = (0..depth)
            .map(|writer| {
                let (file, data) = (file.clone(), chunk.slice(0..block));
                spawn(async move {
                    let mut latencies = Vec::new();
                    for i in (writer..ops).step_by(depth as usize) {
                        let begun = Instant::now();
                        let bufs = smallvec![WriteBuf::Chunk(data.clone())];
                        let offset = i * block as u64 % SIZE;
                        file.write_at(bufs, offset, durability).await.unwrap();
                        latencies.push(begun.elapsed());
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = Vec::new();
        for writer in writers {
            latencies.extend(writer.await);
        }
        (latencies, start.elapsed())
    })
    .unwrap()
}
