//! Connections through glommio: receive and send are polled on its streams, which try the system call
//! first and wait for readiness where that would block.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use glommio::net::{AcceptedTcpStream, TcpListener, TcpStream};

use super::files::{Answer, Errno, Running, errno, errno_of, gather};

/// glommio sends one buffer a call: smaller ones are copied together up to here, a larger one goes alone.
const SEND_TOGETHER_BYTES: usize = 64 << 10;

/// The most that one receive takes. glommio wants initialised memory, which is written twice then.
const RECEIVE_BYTES_MAX: usize = 64 << 10;

pub(super) struct Stream(RefCell<TcpStream>);

impl Stream {
    pub(super) fn new(stream: TcpStream) -> Rc<Self> {
        Rc::new(Self(RefCell::new(stream)))
    }

    /// Appends what is there to `buf`, at most its spare capacity.
    pub(super) fn receive(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
    ) -> Poll<Result<u32, Errno>> {
        let before = buf.len();
        buf.resize(before + (buf.capacity() - before).min(RECEIVE_BYTES_MAX), 0);
        let mut stream = self.0.borrow_mut();
        let read = Pin::new(&mut *stream).poll_read(cx, &mut buf[before..]);
        let n = match &read {
            Poll::Ready(Ok(n)) => *n,
            _ => 0,
        };
        assert!(n <= buf.len() - before, "more was read than there was room for");
        buf.truncate(before + n);
        read.map(|read| read.map(|n| n as u32).map_err(|e| errno(&e)))
    }

    /// Sends `bufs` from `done` on. What went out before an error or a full socket is in `sent`.
    pub(super) fn send(
        &self,
        cx: &mut Context<'_>,
        bufs: &[Bytes],
        done: usize,
        sent: &Cell<usize>,
    ) -> Poll<Result<u32, Errno>> {
        let total: usize = bufs.iter().map(Bytes::len).sum();
        let mut stream = self.0.borrow_mut();
        let mut together = Vec::new();
        loop {
            let at = done + sent.get();
            if at >= total {
                return Poll::Ready(Ok(sent.get() as u32));
            }
            let piece = next_piece(bufs, at, &mut together);
            match Pin::new(&mut *stream).poll_write(cx, piece) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(sent.get() as u32)),
                Poll::Ready(Ok(n)) => sent.set(sent.get() + n),
                Poll::Ready(Err(_)) if sent.get() > 0 => return Poll::Ready(Ok(sent.get() as u32)),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(errno(&e))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// What the next call sends: the rest of one buffer, or several small ones copied together.
fn next_piece<'a>(bufs: &'a [Bytes], at: usize, together: &'a mut Vec<u8>) -> &'a [u8] {
    let mut skip = at;
    let mut rest = bufs;
    while let Some((first, others)) = rest.split_first() {
        if skip < first.len() {
            break;
        }
        skip -= first.len();
        rest = others;
    }
    let Some((first, others)) = rest.split_first() else { return &[] };
    let alone = &first[skip..];
    if others.is_empty() || alone.len() >= SEND_TOGETHER_BYTES / 2 {
        return alone;
    }
    let left: usize = rest.iter().map(Bytes::len).sum::<usize>() - skip;
    together.resize(left.min(SEND_TOGETHER_BYTES), 0);
    gather(together, rest.iter().map(AsRef::as_ref), skip);
    together
}

/// Resolves when a read would not wait. glommio can look at a stream only while nobody else uses it, so
/// this looks through a copy of the descriptor.
pub(super) fn readable(raw: RawFd) -> Result<Running, Errno> {
    // SAFETY: the operation holds the handle of this descriptor.
    let copy = unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned();
    let copy = copy.map_err(|e| errno(&e))?;
    // SAFETY: the copy is ours and given up here.
    let stream = unsafe { TcpStream::from_raw_fd(copy.into_raw_fd()) };
    Ok(Box::pin(async move {
        // An error is for the read to tell.
        let _ = stream.peek(&mut [0]).await;
        Answer::Number(Ok(1))
    }))
}

type Accepting = Pin<Box<dyn Future<Output = Result<AcceptedTcpStream, Errno>>>>;

pub(super) struct Listener {
    listener: Rc<TcpListener>,
    /// Kept when the wait for it is given up: a connection that comes meanwhile is for the next wait.
    accepting: RefCell<Option<Accepting>>,
}

impl Listener {
    /// Takes over a listening socket. We make it ourselves: glommio's own would share its port.
    pub(super) fn new(raw: RawFd) -> Rc<Self> {
        // SAFETY: the caller gives the descriptor up.
        let listener = Rc::new(unsafe { TcpListener::from_raw_fd(raw) });
        Rc::new(Self { listener, accepting: RefCell::new(None) })
    }

    pub(super) fn accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(TcpStream, SocketAddr), Errno>> {
        let mut accepting = self.accepting.borrow_mut();
        let waiting = accepting.get_or_insert_with(|| {
            let listener = Rc::clone(&self.listener);
            Box::pin(async move { listener.shared_accept().await.map_err(errno_of) })
        });
        let Poll::Ready(accepted) = waiting.as_mut().poll(cx) else { return Poll::Pending };
        *accepting = None;
        Poll::Ready(accepted.and_then(take_in))
    }

    /// Is there a wait that must end before the socket is gone?
    pub(super) fn is_accepting(&self) -> bool {
        self.accepting.borrow().is_some()
    }
}

fn take_in(accepted: AcceptedTcpStream) -> Result<(TcpStream, SocketAddr), Errno> {
    // A peer that is gone has no address; glommio has closed the connection then.
    let peer = accepted.peer_addr().map_err(|_| -libc::ECONNABORTED)?;
    let stream = accepted.bind_to_executor();
    // SAFETY: the stream is held for the length of these calls.
    let fd = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    let closed_on_exec = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
    closed_on_exec.map_err(|e| -e.raw_os_error())?;
    Ok((stream, peer))
}

/// A connection that glommio has made, with a socket of its own.
pub(super) struct Connected(TcpStream);

pub(super) fn connect(addr: SocketAddr) -> Running {
    Box::pin(async move {
        Answer::Connected(TcpStream::connect(addr).await.map(Connected).map_err(errno_of))
    })
}

impl Connected {
    /// Puts the connection in the place of the socket that its future's handle names.
    pub(super) fn settle_at(self, raw: RawFd) -> Result<Rc<Stream>, Errno> {
        // SAFETY: both descriptors are open; `raw` belongs to a handle that lives on and changes meaning.
        if unsafe { libc::dup3(self.0.as_raw_fd(), raw, libc::O_CLOEXEC) } < 0 {
            return Err(errno(&io::Error::last_os_error()));
        }
        drop(self);
        // SAFETY: the driver closes `raw` through this stream only.
        let stream = unsafe { TcpStream::from_raw_fd(raw) };
        stream.set_nodelay(true).map_err(errno_of)?;
        Ok(Stream::new(stream))
    }
}
