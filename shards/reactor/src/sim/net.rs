//! The simulated network: listeners, connections, bytes on their way.
//!
//! Knows no time: the driver carries packets (a [`Packet`] each) from one end to the other after
//! whatever delay it likes, in order. Bytes a sender has handed over count against the
//! connection's room until the receiver reads them, so a slow reader stops its sender.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{Buf, Bytes};

use super::disk::Errno;
use crate::driver::Token;

pub(super) type Socket = i32;

const FIRST_EPHEMERAL_PORT: u16 = 20_000;

#[derive(Default)]
pub(super) struct Network {
    listeners: BTreeMap<Socket, Listener>,
    streams: BTreeMap<Socket, Stream>,
    next_port: u16,
}

struct Listener {
    addr: SocketAddr,
    limit: usize,
    backlog: VecDeque<Socket>,
    accepting: VecDeque<Token>,
}

pub(super) struct Stream {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The port of the listener this connection was made through.
    pub(super) server_port: u16,
    /// Absent before the connection is made and after the other end is closed.
    peer: Option<Socket>,
    received: VecDeque<Bytes>,
    /// Bytes received or on their way to here.
    held: usize,
    ended: bool,
    reset: bool,
    sent_end: bool,
    receiving: Option<Token>,
    polling: Option<Token>,
    sending: Option<Token>,
}

/// What travels from one end to the other.
pub(super) enum Packet {
    Data(Bytes),
    End,
    Reset,
}

/// What became of an attempt to receive or send.
pub(super) enum Step<T> {
    Done(T),
    Fails(Errno),
    Waits,
}

impl Network {
    pub(super) fn listen(
        &mut self,
        socket: Socket,
        addr: SocketAddr,
        backlog: u32,
    ) -> Result<SocketAddr, Errno> {
        let mut addr = addr;
        if addr.port() == 0 {
            addr.set_port(self.ephemeral_port());
        }
        let overlaps = |l: &Listener| {
            l.addr.port() == addr.port()
                && (l.addr.ip() == addr.ip()
                    || l.addr.ip().is_unspecified()
                    || addr.ip().is_unspecified())
        };
        if self.listeners.values().any(overlaps) {
            return Err(libc::EADDRINUSE);
        }
        let limit = backlog.max(1) as usize;
        let (backlog, accepting) = Default::default();
        self.listeners.insert(socket, Listener { addr, limit, backlog, accepting });
        Ok(addr)
    }

    fn ephemeral_port(&mut self) -> u16 {
        self.next_port = self.next_port.wrapping_add(1).max(FIRST_EPHEMERAL_PORT);
        self.next_port
    }

    pub(super) fn add_socket(&mut self, socket: Socket) {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        self.streams.insert(socket, Stream::new(nowhere, nowhere));
    }

    pub(super) fn stream(&self, socket: Socket) -> Option<&Stream> {
        self.streams.get(&socket)
    }

    pub(super) fn local_addr(&self, socket: Socket) -> Option<SocketAddr> {
        let listener = self.listeners.get(&socket).map(|l| l.addr);
        listener.or_else(|| self.streams.get(&socket).map(|s| s.local))
    }

    /// Connects `socket` to the listener at `addr`, whose end becomes `server`. Gives the
    /// accepting operation that can now end.
    pub(super) fn connect(
        &mut self,
        socket: Socket,
        addr: SocketAddr,
        server: Socket,
    ) -> Result<Option<Token>, Errno> {
        let local = SocketAddr::new(addr.ip(), self.ephemeral_port());
        let matches = |l: &&mut Listener| {
            l.addr.port() == addr.port()
                && (l.addr.ip() == addr.ip() || l.addr.ip().is_unspecified())
        };
        let listener = self.listeners.values_mut().find(matches).ok_or(libc::ECONNREFUSED)?;
        if listener.backlog.len() >= listener.limit {
            return Err(libc::ETIMEDOUT);
        }
        let client = self.streams.get_mut(&socket).ok_or(libc::EBADF)?;
        listener.backlog.push_back(server);
        (client.local, client.remote) = (local, addr);
        (client.peer, client.server_port) = (Some(server), addr.port());
        let mut accepted = Stream::new(addr, local);
        (accepted.peer, accepted.server_port) = (Some(socket), addr.port());
        self.streams.insert(server, accepted);
        Ok(listener.accepting.pop_front())
    }

    /// The next connection that waits at `listener`.
    pub(super) fn accept(&mut self, listener: Socket, token: Token) -> Step<(Socket, SocketAddr)> {
        let Some(listener) = self.listeners.get_mut(&listener) else {
            return Step::Fails(libc::EBADF);
        };
        while let Some(socket) = listener.backlog.pop_front() {
            if let Some(stream) = self.streams.get(&socket) {
                return Step::Done((socket, stream.remote));
            }
        }
        listener.accepting.push_back(token);
        Step::Waits
    }

    /// Up to `room` bytes that have arrived; none = the peer has ended.
    pub(super) fn receive(
        &mut self,
        socket: Socket,
        room: usize,
        token: Token,
    ) -> Step<Vec<Bytes>> {
        let Some(stream) = self.streams.get_mut(&socket) else { return Step::Fails(libc::EBADF) };
        if stream.received.is_empty() {
            return match stream {
                s if s.reset => Step::Fails(libc::ECONNRESET),
                s if s.ended => Step::Done(Vec::new()),
                s if s.peer.is_none() => Step::Fails(libc::ENOTCONN),
                s => {
                    s.receiving = Some(token);
                    Step::Waits
                }
            };
        }
        let mut room = room;
        let mut taken = Vec::new();
        while room > 0
            && let Some(first) = stream.received.front_mut()
        {
            let part = first.split_to(first.len().min(room));
            room -= part.len();
            stream.held -= part.len();
            if first.is_empty() {
                stream.received.pop_front();
            }
            taken.push(part);
        }
        Step::Done(taken)
    }

    /// The sender that waits for room at the other end of `socket`.
    pub(super) fn waiting_sender(&mut self, socket: Socket) -> Option<Token> {
        let peer = self.streams.get(&socket)?.peer?;
        self.streams.get_mut(&peer)?.sending.take()
    }

    pub(super) fn poll(&mut self, socket: Socket, token: Token) -> Step<()> {
        let Some(stream) = self.streams.get_mut(&socket) else { return Step::Fails(libc::EBADF) };
        if !stream.received.is_empty() || stream.ended || stream.reset {
            return Step::Done(());
        }
        stream.polling = Some(token);
        Step::Waits
    }

    /// How many bytes the connection takes now, at most `len`.
    pub(super) fn send(
        &mut self,
        socket: Socket,
        len: usize,
        limit: usize,
        token: Token,
    ) -> Step<(Socket, usize)> {
        let Some(stream) = self.streams.get_mut(&socket) else { return Step::Fails(libc::EBADF) };
        if stream.reset {
            return Step::Fails(libc::ECONNRESET);
        }
        if stream.sent_end {
            return Step::Fails(libc::EPIPE);
        }
        let Some(peer) = stream.peer else { return Step::Fails(libc::EPIPE) };
        let Some(target) = self.streams.get_mut(&peer) else {
            return Step::Fails(libc::ECONNRESET);
        };
        let n = limit.saturating_sub(target.held).min(len);
        if n > 0 {
            target.held += n;
            return Step::Done((peer, n));
        }
        if let Some(stream) = self.streams.get_mut(&socket) {
            stream.sending = Some(token);
        }
        Step::Waits
    }

    /// A packet reaches `socket`; gives the operations there that can now go on.
    pub(super) fn arrive(&mut self, socket: Socket, packet: Packet) -> Vec<Token> {
        let Some(stream) = self.streams.get_mut(&socket) else { return Vec::new() };
        let mut woken = Vec::new();
        match packet {
            Packet::Data(bytes) => stream.received.push_back(bytes),
            Packet::End => stream.ended = true,
            Packet::Reset => {
                stream.reset = true;
                stream.received.clear();
                woken.extend(stream.sending.take());
            }
        }
        woken.extend(stream.receiving.take());
        woken.extend(stream.polling.take());
        woken
    }

    /// Ends our direction; gives the peer that must hear of it.
    pub(super) fn end_writes(&mut self, socket: Socket) -> Option<Socket> {
        let stream = self.streams.get_mut(&socket)?;
        if stream.sent_end {
            return None;
        }
        stream.sent_end = true;
        stream.peer
    }

    /// Ends the other direction: reads here see the end at once. Gives what can go on.
    pub(super) fn end_reads(&mut self, socket: Socket) -> Vec<Token> {
        self.arrive(socket, Packet::End)
    }

    /// Closes a socket. Gives the peer with what it must hear: an end, or a reset if it sent
    /// bytes that nobody read.
    pub(super) fn close(&mut self, socket: Socket) -> Vec<(Socket, Packet)> {
        if let Some(listener) = self.listeners.remove(&socket) {
            return listener.backlog.into_iter().flat_map(|waiting| self.close(waiting)).collect();
        }
        let Some(stream) = self.streams.remove(&socket) else { return Vec::new() };
        let Some(peer) = stream.peer else { return Vec::new() };
        if stream.held > 0 && !stream.reset {
            return vec![(peer, Packet::Reset)];
        }
        if stream.sent_end || stream.reset { Vec::new() } else { vec![(peer, Packet::End)] }
    }

    /// Both ends of the connection at `socket`.
    pub(super) fn ends(&self, socket: Socket) -> Vec<Socket> {
        let peer = self.streams.get(&socket).and_then(|s| s.peer);
        std::iter::once(socket).chain(peer).collect()
    }

    /// All connections made through that port.
    pub(super) fn through(&self, port: u16) -> Vec<Socket> {
        let matching = self.streams.iter().filter(|(_, s)| s.server_port == port);
        matching.map(|(socket, _)| *socket).collect()
    }

    /// Forgets that `token` waits anywhere; true = it did.
    pub(super) fn forget(&mut self, token: Token) -> bool {
        for listener in self.listeners.values_mut() {
            if let Some(at) = listener.accepting.iter().position(|t| *t == token) {
                listener.accepting.remove(at);
                return true;
            }
        }
        for stream in self.streams.values_mut() {
            for place in [&mut stream.receiving, &mut stream.polling, &mut stream.sending] {
                if *place == Some(token) {
                    *place = None;
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn clear(&mut self) {
        self.listeners.clear();
        self.streams.clear();
    }
}

impl Stream {
    fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            server_port: 0,
            peer: None,
            received: VecDeque::new(),
            held: 0,
            ended: false,
            reset: false,
            sent_end: false,
            receiving: None,
            polling: None,
            sending: None,
        }
    }
}

/// The next `n` bytes of `bufs` after the first `done`, shared, not copied.
pub(super) fn cut(bufs: &[Bytes], done: usize, n: usize) -> Vec<Bytes> {
    let (mut skip, mut left) = (done, n);
    let mut parts = Vec::new();
    for buf in bufs {
        let mut part = buf.clone();
        let skipped = skip.min(part.len());
        part.advance(skipped);
        skip -= skipped;
        part.truncate(left);
        left -= part.len();
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}
