//! One cell: requests of one kind and size, a fixed number of them in flight, for some time.
//!
//! Lives on one shard. A closed loop: the next request of a lane leaves when its last one is done,
//! so rates are ceilings and latencies are those at that depth.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use reactor::{AlignedBuf, Durability, Instant, spawn};
use rig::report::histogram;

use crate::stop::Stop;
use crate::target::Target;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    SequentialWrite,
    SequentialRead,
    RandomRead,
    /// One after the other, each on the device before the next, over blocks that are there: what the
    /// log does in segments made ahead. A growing file's appends are slower.
    SyncedOverwrite,
}

/// What came of a cell.
#[derive(Debug, Clone)]
pub struct Figures {
    pub request_bytes: u64,
    pub depth: u32,
    pub seconds: f64,
    pub requests: u64,
    /// Of the thread that asked; the kernel's own work for it included as far as it runs there.
    pub cpu_seconds: f64,
    /// Nanoseconds.
    pub latency: Histogram<u64>,
}

impl Figures {
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub fn megabytes_per_second(&self) -> f64 {
        self.per_second() * self.request_bytes as f64 / 1e6
    }

    pub fn cpu_percent(&self) -> f64 {
        self.cpu_seconds / self.seconds * 100.0
    }

    pub fn micros(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1e3
    }

    pub fn max_micros(&self) -> f64 {
        self.latency.max() as f64 / 1e3
    }
}

/// What the lanes of one kind share.
struct Lanes {
    kind: Kind,
    request_bytes: u64,
    /// Of the file, in requests.
    requests: u64,
    next: Cell<u64>,
    done: Cell<u64>,
    random: Cell<u64>,
    latency: RefCell<Histogram<u64>>,
    deadline: Instant,
    stop: Stop,
}

impl Lanes {
    fn new(kind: Kind, bytes: u64, target: &Target, deadline: Instant, stop: &Stop) -> Rc<Self> {
        Rc::new(Lanes {
            kind,
            request_bytes: bytes,
            requests: target.bytes / bytes,
            next: Cell::new(0),
            done: Cell::new(0),
            random: Cell::new(reactor::random_u64() | 1),
            latency: RefCell::new(histogram::new()),
            deadline,
            stop: stop.clone(),
        })
    }

    /// Where the next request goes.
    fn offset(&self) -> u64 {
        let number = match self.kind {
            Kind::RandomRead => {
                // xorshift64: spread evenly enough, and cheap.
                let mut x = self.random.get();
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                self.random.set(x);
                x
            }
            _ => self.next.replace(self.next.get() + 1),
        };
        number % self.requests * self.request_bytes
    }

    async fn lane(self: Rc<Self>, target: Rc<Target>) -> io::Result<()> {
        let mut buffer = AlignedBuf::with_capacity(self.request_bytes as usize);
        loop {
            let began = reactor::now();
            if began >= self.deadline || self.stop.requested() {
                return Ok(());
            }
            let (offset, bytes) = (self.offset(), self.request_bytes);
            match self.kind {
                Kind::SequentialWrite => target.write(offset, bytes).await?,
                Kind::SyncedOverwrite => {
                    target.write_with(offset, bytes, Durability::Synced).await?;
                }
                Kind::SequentialRead | Kind::RandomRead => {
                    let (read, back) = target.file.read_at(buffer, offset).await;
                    buffer = back;
                    if read? as u64 != bytes {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
            let nanos = (reactor::now() - began).as_nanos() as u64;
            self.latency.borrow_mut().saturating_record(nanos.max(1));
            self.done.set(self.done.get() + 1);
        }
    }

    fn figures(&self, depth: u32, seconds: f64, cpu_seconds: f64) -> Figures {
        Figures {
            request_bytes: self.request_bytes,
            depth,
            seconds,
            requests: self.done.get(),
            cpu_seconds,
            latency: self.latency.borrow().clone(),
        }
    }
}

/// Runs one kind.
pub async fn run(
    target: &Rc<Target>,
    kind: Kind,
    bytes: u64,
    depth: u32,
    time: Duration,
    stop: &Stop,
) -> io::Result<Figures> {
    let mut figures = run_all(target, &[(kind, depth)], bytes, time, stop).await?;
    figures.pop().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Runs several kinds at the same time, each at its depth. The processor time is that of all.
pub async fn run_all(
    target: &Rc<Target>,
    kinds: &[(Kind, u32)],
    bytes: u64,
    time: Duration,
    stop: &Stop,
) -> io::Result<Vec<Figures>> {
    let (began, cpu) = (reactor::now(), thread_seconds());
    let deadline = began + time;
    let mut groups = Vec::new();
    let mut tasks = Vec::new();
    for &(kind, depth) in kinds {
        let lanes = Lanes::new(kind, bytes, target, deadline, stop);
        for _ in 0..depth {
            tasks.push(spawn(Rc::clone(&lanes).lane(Rc::clone(target))));
        }
        groups.push((lanes, depth));
    }
    for task in tasks {
        task.await?;
    }
    let seconds = (reactor::now() - began).as_secs_f64();
    let cpu = thread_seconds() - cpu;
    Ok(groups.iter().map(|(lanes, depth)| lanes.figures(*depth, seconds, cpu)).collect())
}

/// Processor time of this thread so far.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
