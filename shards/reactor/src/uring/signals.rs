//! SIGTERM and SIGINT as a descriptor that a shard can read.
//!
//! A handler rather than a signalfd: a signal may reach any thread of the process, also those that
//! were started before anyone asked and have nothing blocked.

use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

static EVENT: AtomicI32 = AtomicI32::new(-1);
static LAST: AtomicI32 = AtomicI32::new(0);

/// The descriptor that becomes readable with each signal. Installs the handler the first time.
pub(crate) fn event() -> io::Result<RawFd> {
    static INSTALLED: OnceLock<Result<RawFd, i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| install().map_err(|e| e.raw_os_error().unwrap_or(libc::EIO)))
        .map_err(io::Error::from_raw_os_error)
}

/// Number of the last signal that came.
pub(crate) fn last() -> i32 {
    LAST.load(Ordering::Acquire)
}

/// Makes the descriptor readable again for the last signal.
pub(crate) fn repeat() {
    strike();
}

fn strike() {
    let one = 1u64.to_ne_bytes();
    // SAFETY: write is async-signal-safe and the descriptor is never closed.
    unsafe { libc::write(EVENT.load(Ordering::Acquire), one.as_ptr().cast(), one.len()) };
}

fn install() -> io::Result<RawFd> {
    let raw = eventfd(0, EventfdFlags::CLOEXEC)?.into_raw_fd();
    EVENT.store(raw, Ordering::Release);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: an all-zero sigaction is valid; it is filled in before use.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only does what is allowed in one (atomics and write).
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(raw)
}

extern "C" fn on_signal(signal: libc::c_int) {
    LAST.store(signal, Ordering::Release);
    // SAFETY: errno belongs to the code we interrupt and is put back.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        strike();
        *errno = saved;
    }
}
