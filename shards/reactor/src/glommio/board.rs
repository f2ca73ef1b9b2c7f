//! Who was woken: the only part of this backend that other threads touch.
//!
//! glommio completes an operation by waking what polled it last. Each operation has a waker of its own,
//! which notes the operation's number here and wakes the one glommio task that is the shard. (Handing
//! out that task's own waker would not do: glommio counts its clones in 16 bits.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::exec::shared::Unpark;

#[derive(Default)]
pub(super) struct Board {
    /// Numbers of operations to poll, each at most once.
    woken: Mutex<Vec<usize>>,
    any: AtomicBool,
    /// The glommio task of the shard, while there is one.
    shard: Mutex<Option<Waker>>,
}

impl Board {
    pub(super) fn attach(&self, shard: Waker) {
        *lock(&self.shard) = Some(shard);
    }

    /// After this no wake reaches glommio any more; its executor may end.
    pub(super) fn detach(&self) {
        let shard = lock(&self.shard).take();
        drop(shard);
    }

    pub(super) fn has_woken(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Moves what was woken behind `into`.
    pub(super) fn take(&self, into: &mut Vec<usize>) {
        if self.any.swap(false, Ordering::AcqRel) {
            into.append(&mut lock(&self.woken));
        }
    }

    fn wake_shard(&self) {
        if let Some(shard) = &*lock(&self.shard) {
            shard.wake_by_ref();
        }
    }
}

/// The waker of the operation in one slot.
pub(super) struct OpWaker {
    board: Arc<Board>,
    number: usize,
    queued: AtomicBool,
}

impl OpWaker {
    pub(super) fn new(board: &Arc<Board>, number: usize) -> Arc<Self> {
        Arc::new(Self { board: Arc::clone(board), number, queued: AtomicBool::new(false) })
    }

    /// The operation is about to be polled: what happens from now on wakes it again.
    pub(super) fn clear(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for OpWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        lock(&self.board.woken).push(self.number);
        self.board.any.store(true, Ordering::Release);
        self.board.wake_shard();
    }
}

/// Wakes the sleeping shard from another thread, through glommio's own queue of foreign wakes.
pub(super) struct Bell(pub(super) Arc<Board>);

impl Unpark for Bell {
    fn unpark(&self) {
        self.0.wake_shard();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these, so poison carries no information.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
