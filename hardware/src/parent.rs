//! A process that ends with the one that started it.
//!
//! Owns the wish to the kernel. Never: ends anything itself.

use std::io;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has the kernel send SIGTERM to this process when the one with this number, its parent, ends,
/// however it ends.
///
/// # Errors
/// `NotFound` if that one is not the parent, or no more.
pub fn end_with_parent(pid: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before the kernel was asked.
    let parent = getppid().map(Pid::as_raw_nonzero).map(std::num::NonZeroI32::get);
    match parent.and_then(|parent| u32::try_from(parent).ok()) == Some(pid) {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}
