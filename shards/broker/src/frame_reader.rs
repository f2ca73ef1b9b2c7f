//! Cuts one connection's byte stream into request frames, without trusting what the bytes claim.
//!
//! A frame is an i32 size and that many bytes. A claimed size is checked first, then granted from the
//! shard's request budget, and memory is taken only as the bytes arrive. A client that holds a grant
//! others need and sends nothing, or next to nothing, is closed by the listener's sweep.
//!
//! ```text
//! a frame of                          waits behind
//! up to 16 KiB                        nobody, if its connection has no other that did not wait
//! up to 1 MiB                         all others
//! up to 40 % of the budget            those over 1 MiB, which have 75 % of it
//! more                                its likes, which have 35 % of it, and then those
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use reactor::sync::{ByteBudget, Notify, Permit};
use reactor::{Either, Instant, race};

use crate::connection::ConnectionState;

/// What a connection that may stay idle holds in memory while it waits.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The most that one read asks for ahead of what the current frame needs.
const READ_BYTES_MAX: usize = 256 * 1024;
/// What a connection may hold of requests that it has read ahead of their turn, beside the budget.
const AHEAD_BYTES_MAX: usize = 2 * READ_BYTES_MAX;
/// What is left of a request while its reply waits is not paid for up to this size. Times
/// `PENDING_REPLIES_MAX` it is the most of a connection.
const SMALL_BYTES: usize = 8 * 1024;
/// Connections keep receive buffers between requests, idle ones too, in at most this share of the
/// budget, in percent and on top of it: a busy one reads into memory that is in the processor's cache.
const KEPT_PERCENT: usize = 6;
/// A frame up to this size is copied out of the buffer, which then serves the next one, however long the
/// request waits.
const COPIED_BYTES_MAX: usize = 512;
/// A frame up to this size is given its whole buffer at once; a larger one grows as bytes come.
const FRAME_BYTES_AT_ONCE: usize = 1024 * 1024 + 64 * 1024;
/// One frame up to this size of each connection does not wait for the budget, so that a shard full of
/// large requests still answers the small ones; connections times this is the most they can add.
pub(crate) const SMALL_FRAME_BYTES: usize = 16 * 1024;
/// Frames over [`FRAME_BYTES_AT_ONCE`] have this share of the budget, in percent: clients that begin
/// such requests and do not end them leave the rest to those that everybody sends.
const LARGE_PERCENT: usize = 75;
/// Of these, frames that do not fit into what this leaves of the large ones' share have this share: a
/// record of some megabytes does not wait behind requests of a hundred.
const HUGE_PERCENT: usize = 35;
pub(crate) const SIZE_BYTES: usize = 4;
/// Who sends a request slower than this is closed while others wait for the memory.
const SLOWEST_BYTES_PER_SECOND: u64 = 256 * 1024;

/// Why a connection's input ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("request of {size} bytes is over socket.request.max.bytes ({limit})")]
    TooLarge { size: i64, limit: usize },
    #[error("the bytes look like TLS, but this listener speaks PLAINTEXT")]
    LooksLikeTls,
    #[error("connection ended in the middle of a request")]
    Truncated,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// One request as it arrived, with the memory it was granted: until its reply has left, or until what
/// is left of it pays for itself ([`FrameReader::let_go`]).
pub(crate) struct Frame {
    pub bytes: Bytes,
    pub grant: Grant,
}

/// What a request may hold in memory; given back on drop.
pub(crate) enum Grant {
    OfBudget {
        bytes: Permit,
        large: Option<Permit>,
        huge: Option<Permit>,
    },
    /// A small frame that came when the budget was used up.
    Exempt(Rc<Exemption>),
}

impl Grant {
    /// Gives back all but `bytes`.
    fn shrink_to(&mut self, bytes: usize) {
        if let Grant::OfBudget { bytes: all, large, huge } = self {
            all.shrink_to(bytes);
            for share in [large, huge].into_iter().flatten() {
                share.shrink_to(bytes);
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Grant::Exempt(exemption) = self {
            exemption.taken.set(false);
            exemption.freed.notify_all();
        }
    }
}

/// A connection's right to one small frame beside the budget.
#[derive(Default)]
pub(crate) struct Exemption {
    taken: Cell<bool>,
    freed: Notify,
}

impl Exemption {
    fn take(self: &Rc<Self>) -> Option<Grant> {
        (!self.taken.replace(true)).then(|| Grant::Exempt(self.clone()))
    }
}

/// The memory of one shard for requests that are being received or answered.
pub(crate) struct RequestBudget {
    bytes: ByteBudget,
    large: ByteBudget,
    huge: ByteBudget,
    /// Larger frames are huge.
    middle_max: usize,
    waiting: Cell<usize>,
    /// Bytes of receive buffers that connections keep.
    kept: Cell<usize>,
    kept_max: usize,
}

/// A frame that is being received.
#[derive(Clone, Copy)]
pub(crate) struct Receiving {
    /// When it was granted.
    since: Instant,
    /// When the last bytes of it came.
    last: Instant,
    bytes: usize,
}

impl Receiving {
    /// Whether its client holds up others: it sends nothing, or so little that the rest would take for
    /// ever.
    pub fn is_stalled(&self, now: Instant, patience: Duration) -> bool {
        let held = now - self.since;
        let least = held.as_secs().saturating_mul(SLOWEST_BYTES_PER_SECOND);
        now - self.last >= patience || (held >= patience && (self.bytes as u64) < least)
    }
}

impl RequestBudget {
    pub fn new(bytes: usize) -> Self {
        RequestBudget {
            bytes: ByteBudget::new(bytes),
            large: ByteBudget::new(bytes / 100 * LARGE_PERCENT),
            huge: ByteBudget::new(bytes / 100 * HUGE_PERCENT),
            middle_max: bytes / 100 * (LARGE_PERCENT - HUGE_PERCENT),
            waiting: Cell::new(0),
            kept: Cell::new(0),
            kept_max: bytes / 100 * KEPT_PERCENT,
        }
    }

    /// Lets a connection keep a buffer while it waits for its next request, if there is room.
    fn keep(self: &Rc<Self>, bytes: usize) -> Option<Kept> {
        let kept = self.kept.get() + bytes;
        (kept <= self.kept_max).then(|| {
            self.kept.set(kept);
            Kept { budget: self.clone(), bytes }
        })
    }

    /// Bytes in all.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes granted now.
    pub fn used(&self) -> usize {
        self.bytes.capacity() - self.bytes.available()
    }

    /// Whether a request waits for memory that others hold.
    pub fn is_scarce(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Grants a whole frame: frames that each held a part and waited for more would wait for ever.
    async fn grant(&self, size: usize, exemption: &Rc<Exemption>) -> Grant {
        if size > FRAME_BYTES_AT_ONCE {
            return self.grant_large(size).await;
        }
        let of_budget = |bytes| Grant::OfBudget { bytes, large: None, huge: None };
        if let Some(bytes) = self.bytes.try_acquire(size) {
            return of_budget(bytes);
        }
        if size > SMALL_FRAME_BYTES {
            let _waiting = Waiting::new(&self.waiting);
            return of_budget(self.bytes.acquire(size).await);
        }
        let mut waiting = None;
        loop {
            let freed = exemption.freed.notified();
            if let Some(grant) = exemption.take() {
                return grant;
            }
            waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
            if let Either::Left(bytes) = race(self.bytes.acquire(size), freed).await {
                return of_budget(bytes);
            }
        }
    }

    async fn grant_large(&self, size: usize) -> Grant {
        let _waiting = Waiting::new(&self.waiting);
        let (mut share, mut huge) = (size, None);
        if size > self.middle_max {
            // More than all there is waits for all there is.
            share = size.min(self.huge.capacity());
            huge = Some(self.huge.acquire(share).await);
        }
        let large = Some(self.large.acquire(share).await);
        let bytes = self.bytes.acquire(share).await;
        Grant::OfBudget { bytes, large, huge }
    }
}

struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The right to keep a receive buffer; given back on drop.
struct Kept {
    budget: Rc<RequestBudget>,
    bytes: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.kept.set(self.budget.kept.get() - self.bytes);
    }
}

pub(crate) struct FrameReader {
    state: Rc<ConnectionState>,
    /// What has come and is in no frame yet, at the front of the memory that is read into.
    buffer: BytesMut,
    /// All of that memory, frames that were cut from it included.
    allocated: usize,
    kept: Option<Kept>,
    read_bytes: usize,
    frame_bytes_max: usize,
    budget: Rc<RequestBudget>,
    exemption: Rc<Exemption>,
}

impl FrameReader {
    pub fn new(
        state: Rc<ConnectionState>,
        frame_bytes_max: usize,
        budget: Rc<RequestBudget>,
    ) -> Self {
        FrameReader {
            state,
            buffer: BytesMut::new(),
            allocated: 0,
            kept: None,
            read_bytes: READ_BYTES_MIN,
            frame_bytes_max,
            budget,
            exemption: Rc::default(),
        }
    }

    /// The next whole frame; `None` when the client closed between two frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        self.settle();
        while self.buffer.len() < SIZE_BYTES {
            if self.fill(SIZE_BYTES).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
        let size = self.checked_size()?;
        let grant = self.budget.grant(size, &self.exemption).await;
        let since = reactor::now();
        let before = self.buffer.len();
        while self.buffer.len() < SIZE_BYTES + size {
            let bytes = self.buffer.len() - before;
            self.state.receiving.set(Some(Receiving { since, last: reactor::now(), bytes }));
            if self.fill(SIZE_BYTES + size).await? == 0 {
                return Err(FrameError::Truncated);
            }
        }
        self.state.receiving.set(None);
        self.buffer.advance(SIZE_BYTES);
        Ok(Some(Frame { bytes: self.cut(size), grant }))
    }

    fn cut(&mut self, size: usize) -> Bytes {
        if size > COPIED_BYTES_MAX {
            return self.buffer.split_to(size).freeze();
        }
        let frame = Bytes::copy_from_slice(&self.buffer[..size]);
        self.buffer.advance(size);
        frame
    }

    fn checked_size(&self) -> Result<usize, FrameError> {
        let prefix = (&self.buffer[..]).get_i32();
        match usize::try_from(prefix) {
            Ok(size) if size <= self.frame_bytes_max => Ok(size),
            // A TLS ClientHello starts with 0x16 0x03: no plain request can be that large.
            _ if prefix >> 16 == 0x1603 => Err(FrameError::LooksLikeTls),
            _ => Err(FrameError::TooLarge { size: prefix.into(), limit: self.frame_bytes_max }),
        }
    }

    /// The latest frame, of `size` bytes, is gone, and `held` bytes wait in its place for their reply:
    /// `grant` becomes one for these, or `None` if they are few. To wait for that memory it gives back
    /// all it had, or two could wait for each other.
    pub async fn let_go(&mut self, mut grant: Grant, size: usize, held: usize) -> Option<Grant> {
        self.settle();
        let held = held + self.uncovered();
        if held <= SMALL_BYTES {
            return None;
        }
        if held <= size {
            grant.shrink_to(held);
            return Some(grant);
        }
        drop(grant);
        Some(self.budget.grant(held, &self.exemption).await)
    }

    /// Bytes of the buffer beyond what is meant for it.
    fn uncovered(&self) -> usize {
        match self.kept {
            None if self.allocated > AHEAD_BYTES_MAX => self.allocated,
            _ => 0,
        }
    }

    /// Between two requests: a buffer beyond what any connection may hold is kept as far as the shard
    /// has room for that. Else what has come of the next requests moves out of it.
    fn settle(&mut self) {
        if self.allocated <= READ_BYTES_MIN || self.kept.is_some() {
            return;
        }
        self.kept = self.budget.keep(self.allocated);
        // More than half of it in use is not worth the copy.
        if self.kept.is_none() && self.buffer.len() <= self.allocated / 2 {
            self.buffer = BytesMut::from(&self.buffer[..]);
            self.allocated = self.buffer.capacity();
        }
    }

    /// Makes room for `want` bytes more: in the memory at hand if the frames that were cut from it are
    /// gone, else in new memory.
    fn make_room(&mut self, want: usize) {
        if self.buffer.is_empty()
            && self.allocated >= want
            && self.buffer.try_reclaim(self.allocated)
            || self.buffer.try_reclaim(want)
        {
            return;
        }
        self.kept = None;
        if self.buffer.len() > FRAME_BYTES_AT_ONCE {
            // Growing in place saves the copy, and a second buffer of that size.
            self.buffer.reserve(want);
        } else {
            let mut fresh = BytesMut::with_capacity(self.buffer.len() + want);
            fresh.extend_from_slice(&self.buffer);
            self.buffer = fresh;
        }
        self.allocated = self.buffer.capacity();
    }

    /// Reads once towards a buffer of `target` bytes; returns the bytes read, 0 at the end.
    async fn fill(&mut self, target: usize) -> Result<usize, FrameError> {
        let missing = target.saturating_sub(self.buffer.len());
        let trusted = if target <= FRAME_BYTES_AT_ONCE {
            missing
        } else {
            missing.min(self.buffer.len().max(READ_BYTES_MAX))
        };
        let want = trusted.max(self.read_bytes);
        self.make_room(want);
        let room = self.buffer.capacity() - self.buffer.len();
        let (result, buffer) = self.state.stream.read(std::mem::take(&mut self.buffer)).await;
        self.buffer = buffer;
        let read = result?;
        if read == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read * 4 < self.read_bytes {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use reactor::sim::World;
    use reactor::{TcpListener, TcpStream};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn now<F: Future>(future: F) -> Option<F::Output> {
        match poll(pin!(future)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn buffers_are_kept_as_far_as_there_is_room() {
        let budget = Rc::new(RequestBudget::new(1 << 20));
        let share = (1 << 20) / 100 * KEPT_PERCENT;
        let first = budget.keep(share - 10).unwrap();
        assert!(budget.keep(11).is_none());
        let second = budget.keep(10).unwrap();
        drop(first);
        assert!(budget.keep(share - 10).is_some());
        drop(second);
        assert_eq!(budget.kept.get(), 0);
    }

    #[test]
    fn a_connection_has_one_small_frame_beside_a_used_up_budget() {
        let budget = RequestBudget::new(1 << 20);
        let (one, other) = (Rc::<Exemption>::default(), Rc::<Exemption>::default());
        let all = now(budget.grant(1 << 20, &one)).unwrap();
        let first = now(budget.grant(SMALL_FRAME_BYTES, &one)).unwrap();
        assert!(matches!(first, Grant::Exempt(_)));
        let mut second = pin!(budget.grant(SMALL_FRAME_BYTES, &one));
        assert!(poll(second.as_mut()).is_pending(), "64 of them would be a megabyte");
        assert!(budget.is_scarce());
        assert!(now(budget.grant(SMALL_FRAME_BYTES, &other)).is_some());
        assert!(now(budget.grant(SMALL_FRAME_BYTES + 1, &other)).is_none());
        drop(first);
        let Poll::Ready(second) = poll(second.as_mut()) else {
            panic!("its own frame is answered")
        };
        assert!(matches!(second, Grant::Exempt(_)));
        let mut third = pin!(budget.grant(SMALL_FRAME_BYTES, &one));
        assert!(poll(third.as_mut()).is_pending());
        drop(all);
        let Poll::Ready(third) = poll(third.as_mut()) else { panic!("there is memory again") };
        assert!(matches!(third, Grant::OfBudget { .. }));
        assert!(!budget.is_scarce());
    }

    const PORT: u16 = 9_000;

    /// A reader of what the bytes' sender sends, and the budget it has.
    async fn reader_of(
        bytes: Vec<u8>,
        budget: usize,
    ) -> (FrameReader, Rc<RequestBudget>, TcpStream) {
        let address = SocketAddr::from(([10, 0, 0, 1], PORT));
        let listener = TcpListener::bind(address, 1).unwrap();
        let connecting = reactor::spawn(TcpStream::connect(address));
        let (stream, peer) = listener.accept().await.unwrap();
        let client = connecting.await.unwrap();
        let sender = client.clone();
        reactor::spawn(async move { sender.write_all(vec![bytes.into()]).await }).detach();
        let state = ConnectionState {
            stream,
            peer,
            last_active: Cell::new(reactor::now()),
            outstanding: Cell::new(0),
            receiving: Cell::new(None),
            sending: Cell::new(None),
            unsent_bytes: Cell::new(0),
        };
        let budget = Rc::new(RequestBudget::new(budget));
        (FrameReader::new(Rc::new(state), 100 << 20, budget.clone()), budget, client)
    }

    fn framed(size: usize) -> Vec<u8> {
        let prefix = i32::try_from(size).unwrap().to_be_bytes();
        [&prefix[..], &vec![7; size]].concat()
    }

    /// With nothing behind it, with the begin of another, and with small ones that were read with it.
    #[test]
    fn the_memory_of_a_frame_that_is_gone_is_free_before_its_grant_is() {
        const SIZE: usize = 6 << 20;
        for behind in [vec![], vec![0, 0], framed(10).repeat(10)] {
            let outcome = World::new(1).run(move || async move {
                let bytes = [framed(SIZE), behind.clone()].concat();
                let (mut reader, budget, _client) = reader_of(bytes, 64 << 20).await;
                let frame = reader.next().await.unwrap().unwrap();
                assert_eq!((frame.bytes.len(), budget.used()), (SIZE, SIZE));
                drop(frame.bytes);
                assert!(reader.let_go(frame.grant, SIZE, 100).await.is_none());
                assert!(reader.allocated <= READ_BYTES_MAX, "{} bytes", reader.allocated);
                assert_eq!(budget.used(), 0);
                for _ in 0..behind.len() / 14 {
                    let next = reader.next().await.unwrap().unwrap();
                    assert_eq!(next.bytes, [7; 10][..]);
                }
            });
            assert!(outcome.finished().is_some());
        }
    }

    #[test]
    fn what_is_left_of_a_frame_is_paid_for_with_as_much_as_it_is() {
        const SIZE: usize = 100_000;
        let outcome = World::new(1).run(|| async {
            let (mut reader, budget, _client) = reader_of(framed(SIZE).repeat(3), 1 << 20).await;
            let mut waiting = Vec::new();
            for held in [SMALL_BYTES, SIZE / 2, 5 * SIZE] {
                let frame = reader.next().await.unwrap().unwrap();
                drop(frame.bytes);
                waiting.extend(reader.let_go(frame.grant, SIZE, held).await);
            }
            assert_eq!(waiting.len(), 2);
            assert_eq!(budget.used(), SIZE / 2 + 5 * SIZE);
            drop(waiting);
            assert_eq!(budget.used(), 0);
        });
        assert!(outcome.finished().is_some());
    }
}
