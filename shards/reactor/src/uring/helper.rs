//! Helper threads for the few calls that the ring does not have: listing a directory, free space,
//! syncing a whole disk, locking, name resolution, truncation on old kernels.
//!
//! One lane per process for files and one for names (a slow name server must not hold up a directory
//! listing). A lane starts its first thread when it is needed, and another when the ones it has are
//! all stuck: a disk that hangs takes a thread with it, not the other disks. A job owns all it needs; its result goes to the
//! inbox of the shard that asked.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::driver::{Completion, Token};
use crate::exec::shared::ShardShared;
use crate::fs::{DirEntry, Space};
use crate::op::{Handle, Op, OpPath};

/// Jobs that may wait for one helper thread; more fail with EBUSY.
const JOBS_MAX: usize = 16_384;

/// Threads of one lane: more disks than that do not hang at once.
const THREADS_MAX: usize = 16;
/// A lane that took no job for so long, though one waits, has every thread stuck.
const STUCK: Duration = Duration::from_millis(50);

pub(crate) enum Job {
    ReadDir(OpPath),
    Space(OpPath),
    /// With a descriptor of its own for what watches the disk: a shard that stops does not wait for this.
    SyncDisk(OpPath, Option<io::Result<OwnedFd>>),
    Lock(OpPath),
    /// The descriptor stays open: its handle is in the shard's slot until the job is done.
    SetLen(RawFd, u64),
    Resolve(String, u16),
}

impl Job {
    /// What goes to a helper thread instead of the ring, which may lack truncation.
    pub(crate) fn of(op: &Op, ring_truncates: bool) -> Option<Job> {
        match op {
            Op::ReadDir { path, .. } => Some(Job::ReadDir(path.clone())),
            Op::Space { path, .. } => Some(Job::Space(path.clone())),
            Op::SyncDisk { path, watch } => {
                // SAFETY: the handle in the operation keeps the descriptor open.
                let borrowed = |w: &Handle| unsafe { BorrowedFd::borrow_raw(w.raw()) };
                // A copy has the same open file, and what the file remembers of losses.
                let own = watch.as_ref().map(|w| borrowed(w).try_clone_to_owned());
                Some(Job::SyncDisk(path.clone(), own))
            }
            Op::Lock { path } => Some(Job::Lock(path.clone())),
            Op::Resolve { host, port, .. } => Some(Job::Resolve(host.clone(), *port)),
            Op::SetLen { file, len } if !ring_truncates => Some(Job::SetLen(file.raw(), *len)),
            _ => None,
        }
    }

    /// Whether the operation is done on a helper thread, and there needs nothing of the shard's.
    pub(crate) fn is_independent(op: &Op) -> bool {
        matches!(
            op,
            Op::ReadDir { .. }
                | Op::Space { .. }
                | Op::SyncDisk { .. }
                | Op::Lock { .. }
                | Op::Resolve { .. }
        )
    }
}

pub(crate) enum JobOutput {
    Nothing,
    Entries(Vec<DirEntry>),
    Space(Space),
    Descriptor(OwnedFd),
    Addresses(Vec<SocketAddr>),
}

/// A finished job on its way back to its shard.
pub(crate) struct JobDone {
    pub(crate) token: Token,
    pub(crate) generation: u32,
    pub(crate) result: io::Result<JobOutput>,
}

pub(crate) struct Request {
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) token: Token,
    pub(crate) generation: u32,
    pub(crate) job: Job,
}

static FILES: Lane = Lane::new("corelane-files");
static NAMES: Lane = Lane::new("corelane-names");

/// Queues the job; false = too many wait already.
pub(crate) fn submit(request: Request) -> bool {
    match request.job {
        Job::Resolve(..) => NAMES.push(request),
        _ => FILES.push(request),
    }
}

struct Lane {
    name: &'static str,
    queue: Mutex<Queue>,
    filled: Condvar,
}

struct Queue {
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    /// When a thread last took a job.
    taken: Option<Instant>,
    requests: VecDeque<Request>,
}

impl Lane {
    const fn new(name: &'static str) -> Self {
        let queue = Queue { threads: 0, idle: 0, taken: None, requests: VecDeque::new() };
        Self { name, queue: Mutex::new(queue), filled: Condvar::new() }
    }

    fn push(&'static self, request: Request) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stuck = queue.idle == 0 && queue.taken.is_none_or(|at| at.elapsed() > STUCK);
        if queue.threads == 0 || (is_stuck && queue.threads < THREADS_MAX) {
            let thread = thread::Builder::new().name(self.name.to_owned());
            if let Err(e) = thread.spawn(move || self.work()) {
                tracing::error!(error = %e, "cannot start the helper thread");
                // Those that are there will come to it.
                if queue.threads == 0 {
                    return false;
                }
            } else {
                queue.threads += 1;
                queue.taken = Some(Instant::now());
            }
        }
        if queue.requests.len() >= JOBS_MAX {
            return false;
        }
        queue.requests.push_back(request);
        drop(queue);
        self.filled.notify_one();
        true
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let request = loop {
                if let Some(request) = queue.requests.pop_front() {
                    break request;
                }
                queue.idle += 1;
                queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            };
            queue.taken = Some(Instant::now());
            drop(queue);
            let Request { shared, token, generation, job } = request;
            shared.push_job(JobDone { token, generation, result: perform(job) });
        }
    }
}

/// Puts the result of a job into the operation that asked for it.
pub(crate) fn conclude(op: Op, result: io::Result<JobOutput>) -> Completion {
    let mut op = op;
    let result = match (result, &mut op) {
        (Ok(JobOutput::Entries(entries)), Op::ReadDir { out, .. }) => {
            *out = entries;
            0
        }
        (Ok(JobOutput::Space(space)), Op::Space { out, .. }) => {
            *out = Some(space);
            0
        }
        (Ok(JobOutput::Addresses(addresses)), Op::Resolve { out, .. }) => {
            *out = addresses;
            0
        }
        (Ok(JobOutput::Descriptor(file)), Op::Lock { .. }) => file.into_raw_fd(),
        (Ok(_), _) => 0,
        (Err(e), _) => -e.raw_os_error().unwrap_or(match e.kind() {
            io::ErrorKind::InvalidData => libc::EILSEQ,
            _ => libc::EIO,
        }),
    };
    Completion { result, op }
}

fn perform(job: Job) -> io::Result<JobOutput> {
    match job {
        Job::ReadDir(path) => read_dir(&path).map(JobOutput::Entries),
        Job::Space(path) => {
            let stat = rustix::fs::statvfs(path.as_c_str())?;
            Ok(JobOutput::Space(Space {
                total: stat.f_blocks.saturating_mul(stat.f_frsize),
                available: stat.f_bavail.saturating_mul(stat.f_frsize),
            }))
        }
        Job::SyncDisk(path, watch) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(path.as_c_str(), flags, Mode::empty())?;
            rustix::fs::syncfs(&dir)?;
            // Fails if anything was lost since it was opened: that, the new one does not know.
            if let Some(watch) = watch {
                rustix::fs::syncfs(watch?)?;
            }
            Ok(JobOutput::Nothing)
        }
        Job::Lock(path) => {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let file = rustix::fs::open(path.as_c_str(), flags, Mode::from_raw_mode(0o644))?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(JobOutput::Descriptor(file))
        }
        Job::SetLen(raw, len) => {
            // SAFETY: the handle in the shard's slot keeps the descriptor open until we answer.
            let file = unsafe { BorrowedFd::borrow_raw(raw) };
            rustix::fs::ftruncate(file, len)?;
            Ok(JobOutput::Nothing)
        }
        Job::Resolve(host, port) => {
            let found = (host.as_str(), port).to_socket_addrs()?.collect();
            Ok(JobOutput::Addresses(found))
        }
    }
}

fn read_dir(path: &OpPath) -> io::Result<Vec<DirEntry>> {
    std::fs::read_dir(path.as_path())?
        .map(|entry| {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                tracing::warn!(name = %name.to_string_lossy(), "file name is not UTF-8");
                io::Error::from(io::ErrorKind::InvalidData)
            })?;
            Ok(DirEntry { name, is_dir: entry.file_type()?.is_dir() })
        })
        .collect()
}
