//! Sockets: listen, accept, connect, read into owned buffers, send whole vectors.
//!
//! Lives on the shard that made it. Two futures per stream, one reading and one writing, may be
//! in flight at once. Dropping one cancels it, which may lose bytes on the way: the stream is only
//! good for closing then.

use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use crate::driver::Half;
use crate::exec::context;
use crate::op::{Handle, Op, run};

/// Spare room made before a read if the buffer has none at all.
const READ_RESERVE_BYTES: usize = 4096;

/// Buffers one send may carry (the kernel's own limit).
pub(crate) const VECTORS_MAX: usize = 1024;

pub struct TcpListener {
    handle: Handle,
    local_addr: SocketAddr,
}

impl TcpListener {
    /// Listens at `addr`. A port in use is an error, whoever uses it.
    pub fn bind(addr: SocketAddr, backlog: u32) -> io::Result<Self> {
        let (handle, local_addr) =
            context::with(|rt| rt.driver.borrow_mut().listen(addr, backlog))?;
        Ok(Self { handle, local_addr })
    }

    /// The next connection. An error (descriptors used up, say) leaves the listener as it was:
    /// pause before trying again, or it comes back at once.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let op = Op::Accept { listener: self.handle.clone(), peer: None };
            let (result, op) = run(op).await;
            let raw = match result {
                Ok(raw) => raw as i32,
                // The peer was gone before we looked: not the listener's fault.
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(e) => return Err(e),
            };
            let handle = context::with(|rt| rt.driver.borrow_mut().adopt(raw));
            let Op::Accept { peer: Some(peer), .. } = op else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            return Ok((TcpStream { handle, peer }, peer));
        }
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

/// A connection, with Nagle's delay off; clones share it.
#[derive(Clone)]
pub struct TcpStream {
    handle: Handle,
    peer: SocketAddr,
}

impl TcpStream {
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let handle = context::with(|rt| rt.driver.borrow_mut().socket(&addr))?;
        run(Op::Connect { socket: handle.clone(), addr }).await.0?;
        Ok(Self { handle, peer: addr })
    }

    /// Appends what arrives to `buf`, at most its spare capacity; 0 = the peer is done sending.
    pub async fn read(&self, buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        let mut buf = buf;
        if buf.capacity() == buf.len() {
            buf.reserve(READ_RESERVE_BYTES);
        }
        let (result, op) = run(Op::Receive { socket: self.handle.clone(), buf }).await;
        let Op::Receive { buf, .. } = op else { unreachable!("a receive stays a receive") };
        (result.map(|n| n as usize), buf)
    }

    /// Resolves once a read would not wait: lets an idle connection wait without a buffer.
    pub async fn readable(&self) -> io::Result<()> {
        run(Op::Readable { socket: self.handle.clone() }).await.0.map(drop)
    }

    /// Sends all of `bufs` in order. Keep one in flight per connection. A peer that is gone is
    /// BrokenPipe or ConnectionReset, never a signal.
    pub async fn write_all(&self, bufs: Vec<Bytes>) -> io::Result<()> {
        let total: usize = bufs.iter().map(Bytes::len).sum();
        let mut bufs = bufs;
        let mut done = 0;
        while done < total {
            let op = Op::Send { socket: self.handle.clone(), bufs, done };
            let (result, op) = run(op).await;
            let Op::Send { bufs: back, .. } = op else { unreachable!("a send stays a send") };
            bufs = back;
            let n = result? as usize;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += n;
        }
        Ok(())
    }

    /// Ends both directions: reads on either side see the end, the descriptor closes with the
    /// last clone.
    pub fn shutdown(&self) {
        self.end(Half::Both);
    }

    /// Ends our direction only; the peer reads the end of the stream and may still send.
    pub fn finish_writes(&self) {
        self.end(Half::Write);
    }

    fn end(&self, half: Half) {
        // An error means that the connection is gone already.
        let _ = context::try_with(|rt| rt.driver.borrow_mut().shutdown(&self.handle, half));
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        context::with(|rt| rt.driver.borrow_mut().local_addr(&self.handle))
    }
}

/// Addresses of `host`, by the system's resolver (on a helper thread).
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let op = Op::Resolve { host: host.to_owned(), port, out: Vec::new() };
    match run(op).await {
        (Ok(_), Op::Resolve { out, .. }) if !out.is_empty() => Ok(out),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, format!("no address for host {host}"))),
    }
}
