//! The part of a shard that other threads may touch: its inbox of wakes and finished jobs.
//!
//! Contract: who pushes to the inbox sets `pending`, fences, and wakes the shard only if it is
//! `parked`; the shard publishes `parked`, fences, and looks at `pending` once more before it
//! sleeps. One of the two always sees the other, so no wake is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context;
use super::task::TaskRef;
use crate::uring::JobDone;

/// How a parked shard is woken from another thread.
pub(crate) trait Unpark: Send + Sync {
    fn unpark(&self);
}

pub(crate) struct ShardShared {
    id: u64,
    parked: AtomicBool,
    pending: AtomicBool,
    inbox: Mutex<Inbox>,
    unpark: Box<dyn Unpark>,
}

/// Bounded by the shard's own tasks (each is queued at most once) and its operations in flight.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) tasks: Vec<Arc<TaskRef>>,
    pub(crate) jobs: Vec<JobDone>,
    closed: bool,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl ShardShared {
    pub(crate) fn new(unpark: Box<dyn Unpark>) -> Arc<Self> {
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            parked: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            inbox: Mutex::new(Inbox::default()),
            unpark,
        })
    }

    /// Process-wide identity, never 0, never reused.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn push_task(self: &Arc<Self>, task: Arc<TaskRef>) {
        let mut inbox = self.lock();
        if inbox.closed {
            drop(inbox);
            return;
        }
        inbox.tasks.push(task);
        drop(inbox);
        self.announce();
    }

    pub(crate) fn push_job(self: &Arc<Self>, job: JobDone) {
        let mut inbox = self.lock();
        if inbox.closed {
            drop(inbox);
            return;
        }
        inbox.jobs.push(job);
        drop(inbox);
        self.announce();
    }

    fn announce(self: &Arc<Self>) {
        self.pending.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::AcqRel) {
            self.unpark.unpark();
        }
    }

    /// Is there something in the inbox? Cheap enough for a spin loop.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Moves the inbox into `tasks` and `jobs`.
    pub(crate) fn take(&self, tasks: &mut Vec<Arc<TaskRef>>, jobs: &mut Vec<JobDone>) {
        if !self.has_pending() {
            return;
        }
        self.pending.store(false, Ordering::Relaxed);
        let mut inbox = self.lock();
        tasks.append(&mut inbox.tasks);
        jobs.append(&mut inbox.jobs);
    }

    /// Publishes that the shard is about to sleep; false = something arrived, do not.
    pub(crate) fn prepare_park(&self) -> bool {
        self.parked.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.has_pending() {
            self.parked.store(false, Ordering::Release);
            return false;
        }
        true
    }

    pub(crate) fn finish_park(&self) {
        self.parked.store(false, Ordering::Release);
    }

    /// Refuses further wakes and drops those that wait: the shard is gone.
    pub(crate) fn close(&self) {
        let mut inbox = self.lock();
        inbox.closed = true;
        let tasks = std::mem::take(&mut inbox.tasks);
        let jobs = std::mem::take(&mut inbox.jobs);
        drop(inbox);
        drop((tasks, jobs));
    }

    /// Is the calling thread the one that runs this shard?
    pub(crate) fn is_local(&self) -> bool {
        context::is_current(self.id)
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // Nothing panics while it holds the lock, so poison carries no information.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
