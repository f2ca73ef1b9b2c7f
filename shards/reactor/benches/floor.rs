//! The least a produce or a fetch can cost: frames over loopback through the reactor, with nothing of
//! Kafka. `discard` receives frames and answers each with 64 bytes, `store` also writes each with a
//! direct write before it answers, `source` answers each request of 64 bytes with a frame from memory.
//! CPU is the server's, the kernel's threads of its ring included: a broker's figure for the same bytes
//! cannot be below it.
//!
//! `cargo bench -p corelane-reactor --bench floor [--features glommio] [-- MiB [directory]]`
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reactor::{
    Backend, Chunk, Durability, File, OpenOptions, ShardSpec, TcpListener, TcpStream, WriteBuf,
    spawn,
};
use smallvec::smallvec;

const SMALL: usize = 64;
const CONNECTIONS: usize = 2;
const IN_FLIGHT: usize = 5;
/// As many as the partitions of the rig's usual topic.
const FILES: usize = 12;
const FILE_BYTES: u64 = 64 << 20;
const RECEIVE_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Discard,
    Store,
    Source,
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let mebibytes: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(512);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let paths: Vec<PathBuf> = (0..FILES)
        .map(|i| dir.join(format!("corelane-floor-{}-{i}", std::process::id())))
        .collect();
    paths.iter().for_each(|path| fill(path));
    println!(
        "{CONNECTIONS} connections, {IN_FLIGHT} frames on the way on each, {mebibytes} MiB a leg"
    );
    println!("{:<40} {:>8} {:>10} {:>10}", "", "MB/s", "CPU s/GB", "µs/frame");
    let both = [Backend::Uring, Backend::Glommio, Backend::Glommio, Backend::Uring];
    let legs = if Backend::Glommio.is_in() { &both[..] } else { &both[..1] };
    for work in [Work::Discard, Work::Store, Work::Source] {
        for frame in [16 << 10, 256 << 10, 1 << 20] {
            for &backend in legs {
                leg(backend, work, frame, mebibytes << 20, &paths);
            }
        }
    }
    paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..FILE_BYTES >> 20).for_each(|_| file.write_all(&zeros).unwrap());
    file.sync_all().unwrap();
}

fn process_cpu() -> Duration {
    cpu(rustix::time::ClockId::ProcessCPUTime)
}

fn cpu(of: rustix::time::ClockId) -> Duration {
    let t = rustix::time::clock_gettime(of);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn leg(backend: Backend, work: Work, frame: usize, bytes: u64, paths: &[PathBuf]) {
    let (sender, receiver) = mpsc::channel::<SocketAddr>();
    let paths = paths.to_vec();
    let server = backend
        .spawn_shard(
            ShardSpec { name: "floor".into(), ..ShardSpec::default() },
            move || async move {
                let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 128).unwrap();
                sender.send(listener.local_addr()).unwrap();
                let mut files = Vec::new();
                for path in &paths {
                    let options =
                        OpenOptions { write: true, direct: true, ..OpenOptions::default() };
                    files.push(File::open(path, options).await.unwrap());
                }
                let files = Rc::new(files);
                let mut serving = Vec::new();
                for number in 0..CONNECTIONS {
                    let (stream, _) = listener.accept().await.unwrap();
                    serving.push(match work {
                        Work::Source => spawn(give(stream, frame)),
                        _ => spawn(take(stream, frame, work, number, files.clone())),
                    });
                }
                for task in serving {
                    task.await;
                }
            },
        )
        .unwrap();
    let addr = receiver.recv().unwrap();
    let frames = bytes / frame as u64 / CONNECTIONS as u64;
    let (start, before) = (Instant::now(), process_cpu());
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| thread::spawn(move || client(addr, work, frame, frames)))
        .collect();
    let of_clients: Duration = clients.into_iter().map(|c| c.join().unwrap()).sum();
    let (wall, spent) = (start.elapsed(), process_cpu() - before - of_clients);
    server.join().unwrap().unwrap();
    let all = (frames * CONNECTIONS as u64) as f64;
    let gigabytes = all * frame as f64 / 1e9;
    println!(
        "{:<40} {:>8.0} {:>10.3} {:>10.1}",
        format!("{work:?}, {} KiB: {}", frame >> 10, backend.name()),
        gigabytes * 1e3 / wall.as_secs_f64(),
        spent.as_secs_f64() / gigabytes,
        spent.as_secs_f64() * 1e6 / all
    );
}

/// The frames of one connection, as they come; up to [`IN_FLIGHT`] are being written at once.
async fn take(stream: TcpStream, frame: usize, work: Work, number: usize, files: Rc<Vec<File>>) {
    let mut buf = BytesMut::new();
    let mut chunk = Chunk::new(frame);
    chunk.append(&vec![0; frame]);
    let (mut got, mut turn) = (0, number);
    let mut writing = std::collections::VecDeque::new();
    loop {
        buf.clear();
        buf.reserve(RECEIVE_BYTES);
        let (n, back) = stream.read(buf).await;
        buf = back;
        let n = n.unwrap();
        if n == 0 {
            return;
        }
        got += n;
        let whole = got / frame;
        got %= frame;
        if work == Work::Store {
            for _ in 0..whole {
                let (files, data) = (files.clone(), chunk.slice(0..frame));
                let at = (turn / FILES * frame) as u64 % FILE_BYTES;
                let file = turn % FILES;
                turn += CONNECTIONS;
                writing.push_back(spawn(async move {
                    let bufs = smallvec![WriteBuf::Chunk(data)];
                    files[file].write_at(bufs, at, Durability::Written).await.unwrap();
                }));
            }
            for task in writing.drain(..) {
                task.await;
            }
        }
        if whole > 0 {
            stream.write_all(vec![Bytes::from(vec![0; SMALL * whole])]).await.unwrap();
        }
    }
}

async fn give(stream: TcpStream, frame: usize) {
    let data = Bytes::from(vec![7; frame]);
    let mut buf = BytesMut::new();
    loop {
        buf.clear();
        buf.reserve(4096);
        let (n, back) = stream.read(buf).await;
        buf = back;
        let n = n.unwrap();
        if n == 0 {
            return;
        }
        let answers = vec![data.clone(); n / SMALL];
        stream.write_all(answers).await.unwrap();
    }
}

fn client(addr: SocketAddr, work: Work, frame: usize, frames: u64) -> Duration {
    let mut stream = StdStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    let (ask, answer) = if work == Work::Source { (SMALL, frame) } else { (frame, SMALL) };
    let out = vec![0; ask];
    let mut room = vec![0; RECEIVE_BYTES];
    let (mut sent, mut got) = (0, 0);
    while got < frames * answer as u64 {
        while sent < frames && sent < got / answer as u64 + IN_FLIGHT as u64 {
            stream.write_all(&out).unwrap();
            sent += 1;
        }
        got += stream.read(&mut room).unwrap() as u64;
    }
    cpu(rustix::time::ClockId::ThreadCPUTime)
}
