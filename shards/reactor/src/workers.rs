//! The kernel's worker threads of a shard, where operations go that must block.
//!
//! All rings of a thread share them, whatever disk an operation is for, and on a disk that hangs every
//! operation in flight keeps one. There have to be more of them than a few such disks can take, or
//! the healthy disks of the shard hang as well. The kernel makes them as they are needed and lets idle
//! ones go after some seconds.

use io_uring::IoUring;

use crate::disk_queue::OPS_MAX;

/// Disks that may hang at once, the queue of names outside of any disk being one, while others go on.
const HANGING_MAX: u32 = 4;
/// For what hangs nowhere.
const SPARE: u32 = 16;
/// For operations on anything but files; ours wait for readiness, not in a worker.
const OTHERS: u32 = 8;

/// For the thread that made `ring`.
pub(crate) fn allow(ring: &IoUring) {
    let mut most = [HANGING_MAX * OPS_MAX + SPARE, OTHERS];
    // Refused by kernels before 5.15 only, which are too old for us anyway.
    let _ = ring.submitter().register_iowq_max_workers(&mut most);
}

/// For this thread, whose rings are another's.
#[cfg(feature = "glommio")]
pub(crate) fn allow_here() -> std::io::Result<()> {
    allow(&IoUring::new(2)?);
    Ok(())
}
