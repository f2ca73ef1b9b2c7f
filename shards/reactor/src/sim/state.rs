//! Everything that is true of a simulated machine at one moment, and how it moves on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::disk::{Disk, Errno, Ino, PowerCut};
use super::faults::{Delay, Faults};
use super::net::{Network, Packet, Socket, Step, cut};
use super::rng::Dice;
use super::{Crash, files};
use crate::driver::{Completion, Half, Token};
use crate::op::Op;
use crate::time::Instant;

/// Virtual time of one poll of a task and of one turn of the driver.
const POLL_TIME: Duration = Duration::from_nanos(200);
const TURN_TIME: Duration = Duration::from_nanos(500);

const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Wall clock of a fresh world: 2025-01-01.
const EPOCH_MS: i64 = 1_735_689_600_000;
/// How long a restart takes.
const REBOOT: Duration = Duration::from_secs(1);
/// How often a packet knocks at a black hole.
const RETRANSMIT: Duration = Duration::from_millis(50);
const LOCAL_DELAY: Delay = Delay::between(Duration::ZERO, Duration::from_micros(3));

pub(super) struct State {
    pub(super) faults: Faults,
    pub(super) disk: Disk,
    pub(super) net: Network,
    pub(super) dice: Dice,
    pub(super) clock: Instant,
    pub(super) trace: u64,
    /// Power cuts so far.
    boots: u128,
    pub(super) file_ops: u64,
    pub(super) crashed: Option<Crash>,
    pub(super) halted: bool,
    pub(super) time_limit: Duration,
    pub(super) terminate_after: Option<Duration>,
    pub(super) stdin: Vec<u8>,
    pub(super) stdout: Vec<u8>,
    pub(super) files: BTreeMap<i32, OpenFile>,
    /// What was to be synced when that failed, in order.
    pub(super) failed_syncs: Vec<PathBuf>,
    pub(super) locks: BTreeMap<Ino, i32>,
    flights: BTreeMap<Token, Flight>,
    events: BinaryHeap<Reverse<Event>>,
    next_event: u64,
    next_flight: u64,
    next_descriptor: i32,
    /// Names of the directories that count as disks.
    devices: Vec<OsString>,
    started: Instant,
    crash_at: Option<(u64, Crash)>,
    /// Arrival of the last packet by destination: packets stay in order.
    last_arrival: BTreeMap<Socket, Instant>,
    terminating: Option<Token>,
    pub(super) terminated: bool,
}

pub(super) struct OpenFile {
    pub(super) ino: Ino,
    /// Where it was when it was opened.
    pub(super) path: PathBuf,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) direct: bool,
    /// How many of the failed syncs were before it was opened, or were told to it.
    pub(super) told: usize,
}

/// An operation in flight.
pub(super) struct Flight {
    pub(super) op: Op,
    /// Tells it from a later operation with the same token.
    serial: u64,
    cancelled: bool,
    /// For a sync: which changes to what it covers.
    pub(super) sync_points: Vec<(Ino, u64)>,
    /// For a send: what is under way of it already.
    sent: usize,
}

struct Event {
    at: Instant,
    serial: u64,
    what: Happening,
}

/// One operation, by token and serial.
type Target = (Token, u64);

enum Happening {
    /// A file operation takes effect and ends.
    File(Target),
    /// A network operation is tried (again).
    Net(Target),
    /// An operation ends with this result.
    End(Target, i32),
    Arrive(Socket, Packet),
    Terminate,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            faults: Faults::default(),
            disk: Disk::new(),
            net: Network::default(),
            dice: Dice::new(seed),
            clock: Instant::from_nanos(1_000_000_000),
            trace: 0xcbf2_9ce4_8422_2325,
            boots: 0,
            file_ops: 0,
            crashed: None,
            halted: false,
            time_limit: DEFAULT_TIME_LIMIT,
            terminate_after: None,
            stdin: Vec::new(),
            stdout: Vec::new(),
            files: BTreeMap::new(),
            failed_syncs: Vec::new(),
            locks: BTreeMap::new(),
            flights: BTreeMap::new(),
            events: BinaryHeap::new(),
            next_event: 0,
            next_flight: 0,
            next_descriptor: 3,
            devices: Vec::new(),
            started: Instant::default(),
            crash_at: None,
            last_arrival: BTreeMap::new(),
            terminating: None,
            terminated: false,
        }
    }

    // Runs.

    pub(super) fn start(&mut self, faults: &Faults) {
        self.faults = faults.clone();
        self.started = self.clock;
        self.crashed = None;
        self.halted = false;
        self.terminated = false;
        if let Some(after) = self.terminate_after.take() {
            self.schedule(after, Happening::Terminate);
        }
    }

    /// Gives back the faults as the run left them.
    pub(super) fn end(&mut self) -> Faults {
        self.events.clear();
        self.flights.clear();
        self.files.clear();
        self.failed_syncs.clear();
        self.locks.clear();
        self.net.clear();
        self.last_arrival.clear();
        self.terminating = None;
        self.disk.forget_unreachable();
        self.clock += REBOOT;
        self.faults.clone()
    }

    pub(super) fn plan_crash(&mut self, ops: u64, kind: Crash) {
        self.crash_at = Some((self.file_ops + ops.max(1), kind));
    }

    /// Everything in flight meets its fate; nothing happens any more in this run.
    fn crash(&mut self, kind: Crash) {
        self.note(0xC4A5);
        self.crash_at = None;
        self.crashed = Some(kind);
        self.halted = true;
        let flights = std::mem::take(&mut self.flights);
        for flight in flights.values() {
            files::fate(self, flight);
        }
        self.flights = flights;
        if kind == Crash::Power {
            let disk = &self.faults.disk;
            let cut =
                PowerCut { sector_bytes: disk.sector_bytes, unordered_names: disk.unordered_names };
            self.disk.power_cut(&mut self.dice, cut);
            self.boots += 1;
        }
    }

    /// The program ended by itself: file operations in flight run to their end, as on a real
    /// machine. Gives everything back.
    pub(super) fn drain(&mut self, out: &mut Vec<(Token, Completion)>) {
        if !self.halted {
            let tokens: Vec<Token> = self.flights.keys().copied().collect();
            for token in tokens {
                if self.flights.get(&token).is_some_and(|f| files::is_file_op(&f.op)) {
                    let result = files::perform(self, token);
                    self.finish(token, result, out);
                }
            }
        }
        for (token, flight) in std::mem::take(&mut self.flights) {
            out.push((token, Completion { result: -libc::ECANCELED, op: flight.op }));
        }
    }

    pub(super) fn descriptor(&mut self) -> i32 {
        self.next_descriptor += 1;
        self.next_descriptor
    }

    /// Each directory below the root is a disk of its own, the root itself another.
    pub(super) fn device(&mut self, raw: i32) -> u64 {
        let Some(open) = self.files.get(&raw) else { return 0 };
        let is_dir = self.disk.metadata(open.ino).is_ok_and(|m| m.is_dir);
        let mut names = open.path.iter().filter(|name| *name != "/");
        let (Some(first), true) = (names.next(), is_dir || names.next().is_some()) else {
            return 0;
        };
        let known = self.devices.iter().position(|name| name == first);
        let at = known.unwrap_or_else(|| {
            self.devices.push(first.to_owned());
            self.devices.len() - 1
        });
        at as u64 + 1
    }

    pub(super) fn wall_clock_ms(&self) -> i64 {
        EPOCH_MS + (self.clock.as_nanos() / 1_000_000) as i64
    }

    pub(super) fn boot_id(&self) -> [u8; 16] {
        self.boots.to_be_bytes()
    }

    /// Mixes a fact into the trace.
    pub(super) fn note(&mut self, fact: u64) {
        self.trace = (self.trace.rotate_left(5) ^ fact).wrapping_mul(0x0000_0100_0000_01B3);
    }

    pub(super) fn pick(&mut self, ready: usize) -> usize {
        self.clock += POLL_TIME;
        self.dice.below(ready as u64) as usize
    }

    // Operations.

    pub(super) fn submit(&mut self, token: Token, op: Op) {
        self.next_flight += 1;
        let target = (token, self.next_flight);
        let flight =
            Flight { op, serial: target.1, cancelled: false, sync_points: Vec::new(), sent: 0 };
        if self.halted {
            self.flights.insert(token, flight);
            return;
        }
        let op = &flight.op;
        let is_file = files::is_file_op(op);
        let sync_points = files::sync_points(self, op);
        let latency = if is_file { files::latency(self, op) } else { self.draw(LOCAL_DELAY) };
        let interrupted = self.interrupted(op, is_file);
        let connects = matches!(op, Op::Connect { .. });
        self.flights.insert(token, Flight { sync_points, ..flight });
        match interrupted {
            Some(errno) => self.schedule(latency, Happening::End(target, -errno)),
            None if is_file => self.schedule(latency, Happening::File(target)),
            None if connects => {
                let delay = self.draw(self.faults.net.delay);
                self.schedule(delay * 2, Happening::Net(target));
            }
            None => self.schedule(latency, Happening::Net(target)),
        }
    }

    fn interrupted(&mut self, op: &Op, is_file: bool) -> Option<Errno> {
        let per_million = match op {
            Op::Read { .. } | Op::Write { .. } | Op::Open { .. } => {
                self.faults.disk.interrupt_per_million
            }
            Op::Accept { .. } | Op::Receive { .. } | Op::Send { .. } if !is_file => {
                self.faults.net.interrupt_per_million
            }
            _ => 0,
        };
        if !self.dice.hits(per_million) {
            return None;
        }
        Some(if self.dice.coin() { libc::EINTR } else { libc::EAGAIN })
    }

    pub(super) fn cancel(&mut self, token: Token) {
        let terminating = self.terminating.take_if(|t| *t == token).is_some();
        let waits = self.net.forget(token) || terminating;
        let Some(flight) = self.flights.get_mut(&token) else { return };
        flight.cancelled = true;
        let target = (token, flight.serial);
        if waits {
            self.schedule(Duration::ZERO, Happening::End(target, -libc::ECANCELED));
        }
    }

    pub(super) fn close(&mut self, raw: i32) {
        if self.halted {
            return;
        }
        self.note(raw as u64);
        if self.files.remove(&raw).is_some() {
            self.locks.retain(|_, holder| *holder != raw);
            return;
        }
        for (peer, packet) in self.net.close(raw) {
            self.send_packet(peer, packet);
        }
    }

    pub(super) fn shutdown(&mut self, socket: Socket, half: Half) {
        if let Some(peer) = self.net.end_writes(socket) {
            self.send_packet(peer, Packet::End);
        }
        if half == Half::Both {
            let woken = self.net.end_reads(socket);
            self.retry(woken);
        }
    }

    pub(super) fn cut(&mut self, port: u16) {
        for socket in self.net.through(port) {
            self.reset(socket);
        }
    }

    fn reset(&mut self, socket: Socket) {
        for end in self.net.ends(socket) {
            let woken = self.net.arrive(end, Packet::Reset);
            self.retry(woken);
        }
    }

    fn retry(&mut self, tokens: Vec<Token>) {
        for token in tokens {
            if let Some(flight) = self.flights.get(&token) {
                let target = (token, flight.serial);
                self.schedule(Duration::ZERO, Happening::Net(target));
            }
        }
    }

    fn send_packet(&mut self, to: Socket, packet: Packet) {
        let delay = self.draw(self.faults.net.delay);
        let earliest = self.last_arrival.get(&to).copied().unwrap_or_default();
        let at = (self.clock + delay).max(earliest);
        self.last_arrival.insert(to, at);
        self.schedule(at - self.clock, Happening::Arrive(to, packet));
    }

    // Time.

    fn schedule(&mut self, after: Duration, what: Happening) {
        self.next_event += 1;
        let at = self.clock + after;
        self.events.push(Reverse(Event { at, serial: self.next_event, what }));
    }

    pub(super) fn draw(&mut self, delay: Delay) -> Duration {
        let span = delay.max.saturating_sub(delay.min).as_nanos() as u64;
        delay.min + Duration::from_nanos(self.dice.below(span + 1))
    }

    /// Lets happen what is due; if nothing is and `wait` allows, jumps to what comes next.
    pub(super) fn turn(
        &mut self,
        wait: Option<Option<Instant>>,
        out: &mut Vec<(Token, Completion)>,
    ) {
        self.clock += TURN_TIME;
        if self.clock - self.started > self.time_limit {
            self.halted = true;
            return;
        }
        self.happen(out);
        let Some(deadline) = wait else { return };
        while out.is_empty() && !self.halted {
            let next = self.events.peek().map(|e| e.0.at);
            match (next, deadline) {
                (None, None) => {
                    self.halted = true;
                    return;
                }
                (None, Some(deadline)) => {
                    self.clock = self.clock.max(deadline);
                    return;
                }
                (Some(at), Some(deadline)) if deadline < at => {
                    self.clock = self.clock.max(deadline);
                    return;
                }
                (Some(at), _) => {
                    self.clock = self.clock.max(at);
                    self.happen(out);
                }
            }
            if self.clock - self.started > self.time_limit {
                self.halted = true;
            }
        }
    }

    fn happen(&mut self, out: &mut Vec<(Token, Completion)>) {
        while !self.halted
            && self.events.peek().is_some_and(|e| e.0.at <= self.clock)
            && let Some(Reverse(event)) = self.events.pop()
        {
            match event.what {
                Happening::File(target) if self.is_live(target) => self.file_op(target.0, out),
                Happening::Net(target) if self.is_live(target) => self.net_op(target.0, out),
                Happening::End(target, result) if self.is_live(target) => {
                    self.finish(target.0, result, out);
                }
                Happening::File(_) | Happening::Net(_) | Happening::End(..) => {}
                Happening::Arrive(socket, packet) => self.arrive(socket, packet),
                Happening::Terminate => match self.terminating.take() {
                    Some(token) => self.finish(token, libc::SIGTERM, out),
                    None => self.terminated = true,
                },
            }
        }
    }

    fn is_live(&self, (token, serial): Target) -> bool {
        self.flights.get(&token).is_some_and(|flight| flight.serial == serial)
    }

    fn file_op(&mut self, token: Token, out: &mut Vec<(Token, Completion)>) {
        self.file_ops += 1;
        if let Some((at, kind)) = self.crash_at
            && self.file_ops >= at
        {
            self.crash(kind);
            return;
        }
        let result = files::perform(self, token);
        self.finish(token, result, out);
    }

    fn finish(&mut self, token: Token, result: i32, out: &mut Vec<(Token, Completion)>) {
        let Some(flight) = self.flights.remove(&token) else { return };
        self.note(u64::from(token.raw()) << 32 | u64::from(result as u32));
        self.note(self.clock.as_nanos());
        out.push((token, Completion { result, op: flight.op }));
    }

    pub(super) fn take_flight(&mut self, token: Token) -> Option<Flight> {
        self.flights.remove(&token)
    }

    pub(super) fn put_flight(&mut self, token: Token, flight: Flight) {
        self.flights.insert(token, flight);
    }

    // The network.

    fn arrive(&mut self, socket: Socket, packet: Packet) {
        let port = self.net.stream(socket).map(|s| s.server_port);
        if port.is_some_and(|port| self.faults.net.blackholes.contains(&port)) {
            // Whatever follows must not overtake it.
            self.last_arrival.insert(socket, self.clock + RETRANSMIT);
            self.schedule(RETRANSMIT, Happening::Arrive(socket, packet));
            return;
        }
        let woken = self.net.arrive(socket, packet);
        self.retry(woken);
    }

    fn net_op(&mut self, token: Token, out: &mut Vec<(Token, Completion)>) {
        let Some(mut flight) = self.take_flight(token) else { return };
        let result = match flight.cancelled {
            true => Some(-libc::ECANCELED),
            false => self.attempt(token, &mut flight),
        };
        self.put_flight(token, flight);
        if let Some(result) = result {
            self.finish(token, result, out);
        }
    }

    /// Tries a network operation; `None` = it waits.
    fn attempt(&mut self, token: Token, flight: &mut Flight) -> Option<i32> {
        let sent = flight.sent;
        match &mut flight.op {
            Op::Accept { listener, peer } => match self.net.accept(listener.raw(), token) {
                Step::Done((socket, remote)) => {
                    *peer = Some(remote);
                    Some(socket)
                }
                Step::Fails(errno) => Some(-errno),
                Step::Waits => None,
            },
            Op::Connect { socket, addr } => Some(self.connect(socket.raw(), *addr)),
            Op::Receive { socket, buf } => self.receive(token, socket.raw(), buf),
            Op::Readable { socket } => match self.net.poll(socket.raw(), token) {
                Step::Done(()) => Some(1),
                Step::Fails(errno) => Some(-errno),
                Step::Waits => None,
            },
            Op::Send { socket, bufs, done } => {
                let socket = socket.raw();
                let (sent, result) = self.send(token, socket, bufs, *done, sent);
                flight.sent = sent;
                result
            }
            Op::Input { buf } => {
                let n = self.stdin.len().min(buf.capacity() - buf.len());
                buf.extend_from_slice(&self.stdin[..n]);
                self.stdin.drain(..n);
                Some(n as i32)
            }
            Op::Output { buf, done } => {
                self.stdout.extend_from_slice(&buf[*done..]);
                Some((buf.len() - *done) as i32)
            }
            Op::Resolve { host, port, out } => {
                if host != "localhost" {
                    return Some(-libc::ENOENT);
                }
                out.push(SocketAddr::from(([127, 0, 0, 1], *port)));
                Some(0)
            }
            Op::Termination if self.terminated => {
                self.terminated = false;
                Some(libc::SIGTERM)
            }
            Op::Termination => {
                self.terminating = Some(token);
                None
            }
            _ => Some(-libc::ENOSYS),
        }
    }

    fn receive(&mut self, token: Token, socket: Socket, buf: &mut BytesMut) -> Option<i32> {
        let mut room = buf.capacity() - buf.len();
        if self.dice.hits(self.faults.net.short_per_million) {
            room = 1 + self.dice.below(room as u64) as usize;
        }
        match self.net.receive(socket, room, token) {
            Step::Done(parts) => {
                let n: usize = parts.iter().map(Bytes::len).sum();
                parts.iter().for_each(|part| buf.extend_from_slice(part));
                let sender = self.net.waiting_sender(socket);
                self.retry(sender.into_iter().collect());
                Some(n as i32)
            }
            Step::Fails(errno) => Some(-errno),
            Step::Waits => None,
        }
    }

    fn connect(&mut self, socket: Socket, addr: SocketAddr) -> i32 {
        if self.faults.net.blackholes.contains(&addr.port()) {
            return -libc::ETIMEDOUT;
        }
        let server = self.descriptor();
        match self.net.connect(socket, addr, server) {
            Ok(accepting) => {
                self.retry(accepting.into_iter().collect());
                0
            }
            Err(errno) => -errno,
        }
    }

    /// Sends what there is room for, after the `sent` bytes of this operation that are under way.
    fn send(
        &mut self,
        token: Token,
        socket: Socket,
        bufs: &[Bytes],
        done: usize,
        sent: usize,
    ) -> (usize, Option<i32>) {
        if self.dice.hits(self.faults.net.reset_per_million) {
            self.reset(socket);
            return (sent, Some(-libc::ECONNRESET));
        }
        let total: usize = bufs.iter().map(Bytes::len).sum::<usize>() - done;
        let limit = self.faults.net.socket_bytes;
        let mut sent = sent;
        loop {
            match self.net.send(socket, total - sent, limit, token) {
                Step::Done((peer, n)) => {
                    for part in cut(bufs, done + sent, n) {
                        self.send_packet(peer, Packet::Data(part));
                    }
                    sent += n;
                    if sent == total {
                        return (sent, Some(sent as i32));
                    }
                }
                Step::Fails(_) if sent > 0 => return (sent, Some(sent as i32)),
                Step::Fails(errno) => return (sent, Some(-errno)),
                Step::Waits => return (sent, None),
            }
        }
    }
}
