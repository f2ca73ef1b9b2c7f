//! Round trips: 64-byte echo over loopback, and one message across the mesh, sleeping and
//! spinning, beside the same echo from a plain blocking thread: compare within one run only. With the
//! feature `glommio` both backends are measured, in the order A B B A.
//!
//! `cargo bench -p corelane-reactor --bench echo [--features glommio] [-- ops]`
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use reactor::{Backend, ShardSpec, TcpListener, mesh, spawn};

const FRAME: usize = 64;

fn main() {
    let ops = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(100_000);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores, {ops} operations each, in each of its legs; µs");
    println!("{:<44} {:>8} {:>8} {:>10} {:>10}", "", "p50", "p99", "ops/s", "cpu µs/op");
    report("echo, 1 connection, blocking thread", blocking_echo(ops, cores));
    let mut rows: BTreeMap<(usize, String), Measured> = BTreeMap::new();
    for backend in legs() {
        let mut add = |number, name: &str, measured| {
            let name = format!("{name}: {}", backend.name());
            rows.entry((number, name)).or_default().add(measured);
        };
        for (block, spin_us) in [(0, 0), (10, 50)] {
            let spin = Duration::from_micros(spin_us);
            for connections in [1, 16] {
                let name = format!("echo, {connections} connections, spin {spin_us}");
                add(
                    block + connections.min(2),
                    &name,
                    echo(backend, spin, connections, ops, cores),
                );
            }
            let name = format!("mesh round trip, spin {spin_us}");
            add(block + 3, &name, across(backend, spin, ops, cores));
        }
    }
    rows.into_iter().for_each(|((_, name), measured)| report(&name, measured));
}

fn legs() -> Vec<Backend> {
    match Backend::Glommio.is_in() {
        true => vec![Backend::Uring, Backend::Glommio, Backend::Glommio, Backend::Uring],
        false => vec![Backend::Uring],
    }
}

#[derive(Default)]
struct Measured {
    latencies: Vec<Duration>,
    wall: Duration,
    cpu: Duration,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.latencies.extend(other.latencies);
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

fn report(name: &str, mut m: Measured) {
    m.latencies.sort_unstable();
    let at = |q: usize| m.latencies[m.latencies.len() * q / 100].as_secs_f64() * 1e6;
    let n = m.latencies.len() as f64;
    println!(
        "{name:<44} {:>8.2} {:>8.2} {:>10.0} {:>10.2}",
        at(50),
        at(99),
        n / m.wall.as_secs_f64(),
        m.cpu.as_secs_f64() * 1e6 / n
    );
}

fn spec(spin: Duration, cpu: usize) -> ShardSpec {
    ShardSpec { name: "bench".into(), cpu: Some(cpu), spin, ring_entries: 1024 }
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The server is a shard on core 0, the clients one blocking thread on the last core, which goes
/// round its connections: all write, then all read.
fn echo(
    backend: Backend,
    spin: Duration,
    connections: usize,
    ops: usize,
    cores: usize,
) -> Measured {
    let (sender, receiver) = mpsc::channel::<SocketAddr>();
    let server = backend
        .spawn_shard(spec(spin, 0), move || async move {
            let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 128).unwrap();
            sender.send(listener.local_addr()).unwrap();
            let start = thread_cpu();
            let mut serving = Vec::new();
            for _ in 0..connections {
                let (stream, _) = listener.accept().await.unwrap();
                serving.push(spawn(async move {
                    let mut buf = BytesMut::new();
                    loop {
                        buf.reserve(4096);
                        let (n, back) = stream.read(buf).await;
                        buf = back;
                        if n.unwrap() == 0 {
                            return;
                        }
                        stream.write_all(vec![buf.split().freeze()]).await.unwrap();
                    }
                }));
            }
            for task in serving {
                task.await;
            }
            thread_cpu() - start
        })
        .unwrap();
    let addr = receiver.recv().unwrap();
    let (latencies, wall) = client(addr, connections, ops, cores - 1).join().unwrap();
    Measured { latencies, wall, cpu: server.join().unwrap().unwrap() }
}

/// What the kernel's sockets cost by themselves.
fn blocking_echo(ops: usize, cores: usize) -> Measured {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        pin(0);
        let start = thread_cpu();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buf = [0; 4096];
        loop {
            match stream.read(&mut buf).unwrap() {
                0 => return thread_cpu() - start,
                n => stream.write_all(&buf[..n]).unwrap(),
            }
        }
    });
    let (latencies, wall) = client(addr, 1, ops, cores - 1).join().unwrap();
    Measured { latencies, wall, cpu: server.join().unwrap() }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

type Client = thread::JoinHandle<(Vec<Duration>, Duration)>;

fn client(addr: SocketAddr, connections: usize, ops: usize, cpu: usize) -> Client {
    thread::spawn(move || {
        pin(cpu);
        let mut streams: Vec<_> = (0..connections)
            .map(|_| {
                let stream = StdStream::connect(addr).unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            })
            .collect();
        let mut frame = [7; FRAME];
        let mut latencies = Vec::with_capacity(ops);
        let start = Instant::now();
        for _ in 0..ops / connections {
            let sent = Instant::now();
            for stream in &mut streams {
                stream.write_all(&frame).unwrap();
            }
            for stream in &mut streams {
                stream.read_exact(&mut frame).unwrap();
                latencies.push(sent.elapsed());
            }
        }
        (latencies, start.elapsed())
    })
}

fn across(backend: Backend, spin: Duration, ops: usize, cores: usize) -> Measured {
    let mut ends = mesh::<u64>(2, 64).into_iter();
    let (a, b) = (ends.next().unwrap(), ends.next().unwrap());
    let echo = backend
        .spawn_shard(spec(spin, cores - 1), move || async move {
            while let Some((from, i)) = b.recv().await {
                if b.send(from, i).await.is_err() {
                    return;
                }
            }
        })
        .unwrap();
    let ping = backend
        .spawn_shard(spec(spin, 0), move || async move {
            let a = Rc::new(a);
            let mut latencies = Vec::with_capacity(ops);
            let (start, cpu) = (Instant::now(), thread_cpu());
            for i in 0..ops as u64 {
                let sent = Instant::now();
                a.send(1, i).await.unwrap();
                a.recv().await.unwrap();
                latencies.push(sent.elapsed());
            }
            Measured { latencies, wall: start.elapsed(), cpu: thread_cpu() - cpu }
        })
        .unwrap();
    let measured = ping.join().unwrap().unwrap();
    echo.join().unwrap().unwrap();
    measured
}
