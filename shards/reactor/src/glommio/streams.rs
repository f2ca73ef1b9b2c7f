//! Descriptors that glommio has no type for: standard input and output, and the event that a signal
//! raises. A buffered file over a copy of the descriptor reads and writes them through glommio's ring.

use std::future::Future;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use glommio::io::BufferedFile;
use rustix::fs::{SeekFrom, seek};

use super::files::{Answer, Errno, Running, errno, errno_of};
use crate::uring::signals;

const STDIN: i32 = 0;
const STDOUT: i32 = 1;
/// Offset that means "wherever the stream is".
const AT_CURSOR: u64 = u64::MAX;

fn copy_of(raw: i32) -> Result<BufferedFile, Errno> {
    // SAFETY: these descriptors stay open as long as the process.
    let copy = unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned();
    // SAFETY: the copy is ours and given up here.
    Ok(unsafe { BufferedFile::from_raw_fd(copy.map_err(|e| errno(&e))?.into_raw_fd()) })
}

pub(super) fn input(room: usize) -> Result<Running, Errno> {
    let file = copy_of(STDIN)?;
    // SAFETY: as in `copy_of`.
    let stdin = unsafe { BorrowedFd::borrow_raw(STDIN) };
    // A pipe has no position and takes any.
    let at = seek(stdin, SeekFrom::Current(0)).unwrap_or(0);
    Ok(Box::pin(async move { Answer::Bytes(file.read_at(at, room).await.map_err(errno_of)) }))
}

/// glommio reads at a position and leaves the stream's own where it was.
pub(super) fn advance_input(n: usize) {
    // SAFETY: as in `copy_of`.
    let stdin = unsafe { BorrowedFd::borrow_raw(STDIN) };
    // Fails for what has no position.
    let _ = seek(stdin, SeekFrom::Current(n as i64));
}

pub(super) fn output(bytes: &[u8]) -> Result<Running, Errno> {
    let file = copy_of(STDOUT)?;
    let bytes = bytes.to_vec();
    Ok(Box::pin(async move {
        let written = file.write_at(bytes, AT_CURSOR).await;
        Answer::Number(written.map(|n| n as u32).map_err(errno_of))
    }))
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), Errno>>>>;

/// The wait for SIGTERM and SIGINT. It outlives the operations that ask for it, so that a signal that
/// comes while one of them is given up is there for the next.
#[derive(Default)]
pub(super) struct Signal {
    waiting: Option<Waiting>,
}

impl Signal {
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        if self.waiting.is_some() {
            return Ok(());
        }
        let event = copy_of(signals::event().map_err(|e| errno(&e))?)?;
        self.waiting =
            Some(Box::pin(async move { event.read_at(0, 8).await.map(drop).map_err(errno_of) }));
        Ok(())
    }

    /// The number of the signal that came.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        let Some(waiting) = &mut self.waiting else { return Poll::Pending };
        let polled = waiting.as_mut().poll(cx);
        polled.map(|came| {
            self.waiting = None;
            came.map_or_else(|errno| errno, |()| signals::last())
        })
    }

    /// Ends the wait; a signal that came is left for whoever waits next in this process.
    pub(super) fn disarm(&mut self) {
        let came = self.poll(&mut Context::from_waker(Waker::noop()));
        if matches!(came, Poll::Ready(n) if n > 0) {
            signals::repeat();
        }
        self.waiting = None;
    }
}
