//! What a shard asks its host directly, because the answer never waits: clocks, random numbers, which
//! disk a descriptor is on. Shared by the backends that run on a real kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::Instant;

const RANDOM_CACHE_BYTES: usize = 512;
/// The kernel makes one at each start.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub(crate) fn monotonic_now() -> Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

pub(crate) fn wall_clock_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

pub(crate) fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    let id = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(id.to_be_bytes())
}

/// The number of the device that holds what `raw` has open.
pub(crate) fn device(raw: i32) -> u64 {
    // SAFETY: the caller has just opened it and holds it.
    let file = unsafe { BorrowedFd::borrow_raw(raw) };
    // Where the kernel cannot say, the file shares a queue with others of that kind.
    rustix::fs::fstat(file).map_or(0, |stat| stat.st_dev)
}

/// The system's random bytes, taken in pieces.
#[derive(Default)]
pub(crate) struct Random(Vec<u8>);

impl Random {
    pub(crate) fn fill(&mut self, b: &mut [u8]) {
        for byte in b {
            if self.0.is_empty() {
                self.0.resize(RANDOM_CACHE_BYTES, 0);
                system_random(&mut self.0);
            }
            *byte = self.0.pop().unwrap_or_default();
        }
    }
}

fn system_random(b: &mut [u8]) {
    let mut filled = 0;
    while filled < b.len() {
        let rest = &mut b[filled..];
        // SAFETY: the pointer and length describe `rest`.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => filled += n,
            // Identifiers must not be guessable: without entropy the process cannot go on.
            Err(_) if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                panic!("the system gives no random bytes: {}", io::Error::last_os_error())
            }
            Err(_) => {}
        }
    }
}
