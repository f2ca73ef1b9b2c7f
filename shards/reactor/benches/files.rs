//! Direct writes and reads of one zero-filled file, beside plain blocking calls on the same file:
//! compare within one run only. With the feature `glommio` both backends are measured, A B B A. CPU is
//! the whole process's, with the kernel's and the backend's own threads.
//!
//! `cargo bench -p corelane-reactor --bench files [--features glommio] [-- ops [directory]]`
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reactor::{
    AlignedBuf, Backend, Chunk, Durability, File, OpenOptions, ShardSpec, WriteBuf, join_all, spawn,
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
    println!("{ops} operations each, in each of its legs; µs");
    println!("{:<44} {:>8} {:>8} {:>8} {:>10}", "", "p50", "p99", "MB/s", "cpu µs/op");
    let both = [Backend::Uring, Backend::Glommio, Backend::Glommio, Backend::Uring];
    let legs = if Backend::Glommio.is_in() { &both[..] } else { &both[..1] };
    for block in [4 << 10, 64 << 10, 256 << 10] {
        for work in [Work::Write, Work::SyncedWrite, Work::Read] {
            let what = format!("{} KiB {}", block >> 10, work.name());
            report(&format!("{what}: blocking"), block, blocking(&path, block, work, ops));
            measure(legs, &what, block, |backend| sharded(backend, &path, block, work, ops, 1));
        }
    }
    for depth in [4, 16] {
        let what = format!("4 KiB write, {depth} at once");
        let block = 4 << 10;
        measure(legs, &what, block, |b| sharded(b, &path, block, Work::Write, ops, depth));
    }
    std::fs::remove_file(&path).unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Write,
    SyncedWrite,
    Read,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Write => "write",
            Work::SyncedWrite => "write, synced",
            Work::Read => "read",
        }
    }
}

#[derive(Default)]
struct Measured {
    latencies: Vec<Duration>,
    wall: Duration,
    cpu: Duration,
}

/// Runs the legs and prints a line for each backend among them.
fn measure(legs: &[Backend], what: &str, block: usize, run: impl Fn(Backend) -> Measured) {
    let mut all: Vec<(Backend, Measured)> = Vec::new();
    for &backend in legs {
        let leg = run(backend);
        match all.iter_mut().find(|(of, _)| *of == backend) {
            None => all.push((backend, leg)),
            Some((_, sum)) => {
                sum.latencies.extend(leg.latencies);
                sum.wall += leg.wall;
                sum.cpu += leg.cpu;
            }
        }
    }
    for (backend, sum) in all {
        report(&format!("{what}: {}", backend.name()), block, sum);
    }
}

fn report(name: &str, block: usize, mut m: Measured) {
    m.latencies.sort_unstable();
    let at = |q: usize| m.latencies[m.latencies.len() * q / 100].as_secs_f64() * 1e6;
    let n = m.latencies.len();
    let rate = (block * n) as f64 / m.wall.as_secs_f64() / 1e6;
    let cpu = m.cpu.as_secs_f64() * 1e6 / n as f64;
    println!("{name:<44} {:>8.1} {:>8.1} {rate:>8.1} {cpu:>10.1}", at(50), at(99));
}

fn process_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn fill(path: &Path) {
    std::fs::write(path, vec![0; SIZE as usize]).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

fn blocking(path: &Path, block: usize, work: Work, ops: u64) -> Measured {
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let file = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let mut data = AlignedBuf::zeroed(block);
    let (start, cpu) = (Instant::now(), process_cpu());
    let latencies = (0..ops).map(|i| {
        let begun = Instant::now();
        let offset = i * block as u64 % SIZE;
        let n = if work == Work::Read {
            rustix::io::pread(file.as_fd(), &mut data[..], offset).unwrap()
        } else {
            let synced = work == Work::SyncedWrite;
            let flags = if synced { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let data = [std::io::IoSlice::new(&data)];
            rustix::io::pwritev2(file.as_fd(), &data, offset, flags).unwrap()
        };
        assert_eq!(n, block);
        begun.elapsed()
    });
    let latencies = latencies.collect();
    Measured { latencies, wall: start.elapsed(), cpu: process_cpu() - cpu }
}

fn sharded(
    backend: Backend,
    path: &Path,
    block: usize,
    work: Work,
    ops: u64,
    depth: u64,
) -> Measured {
    let path = path.to_path_buf();
    let shard = async move || {
        let options = OpenOptions { read: true, write: true, direct: true, ..Default::default() };
        let file = File::open(&path, options).await.unwrap();
        let mut chunk = Chunk::new(block);
        chunk.append(&vec![0; block]);
        let (start, cpu) = (Instant::now(), process_cpu());
        let workers = (0..depth).map(|worker| {
            let (file, data) = (file.clone(), chunk.slice(0..block));
            spawn(async move {
                let mut latencies = Vec::new();
                let mut buf = AlignedBuf::with_capacity(block);
                for i in (worker..ops).step_by(depth as usize) {
                    let begun = Instant::now();
                    let offset = i * block as u64 % SIZE;
                    let durability = match work {
                        Work::SyncedWrite => Durability::Synced,
                        _ => Durability::Written,
                    };
                    if work == Work::Read {
                        let (n, back) = file.read_at(buf, offset).await;
                        assert_eq!(n.unwrap(), block);
                        buf = back;
                    } else {
                        let bufs = smallvec![WriteBuf::Chunk(data.clone())];
                        file.write_at(bufs, offset, durability).await.unwrap();
                    }
                    latencies.push(begun.elapsed());
                }
                latencies
            })
        });
        let latencies = join_all(workers).await.into_iter().flatten().collect();
        Measured { latencies, wall: start.elapsed(), cpu: process_cpu() - cpu }
    };
    backend.run(&ShardSpec::default(), move || async move { shard().await }).unwrap()
}
