//! The memory of one shard for reading what is no longer in the tails, and what lies in it.
//!
//! Owns: one number of bytes, given out as [`Grant`]s that live as long as the bytes they paid for
//! (in an answer that a client has not taken, too), and the pieces of segment files that were read
//! lately or ahead. Lives on one shard; only the counter may be touched from elsewhere. It never
//! takes memory from a tail, and never decides what to read.
//!
//! A piece lies on a grid of [`PIECE`] bytes, so readers of the same place share it. Reading ahead
//! takes free memory and pieces that were used already; a reader that waits takes any, the one used
//! longest ago first, and waits its turn in line while all is in answers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use reactor::sync::Notify;
use reactor::{AlignedBuf, Class, File};

use crate::core::Core;
use crate::error::LogError;
use crate::tail::block_ceiling;

/// Bytes of one read of a reader that goes on in order.
pub(crate) const PIECE: u32 = 256 << 10;

/// Which piece: the number of the segment's file and the place on the grid.
pub(crate) type Key = (u64, u32);

pub(crate) struct Backfill {
    meter: Arc<Meter>,
    pieces: RefCell<HashMap<Key, Rc<Piece>>>,
    /// By when they were touched last.
    order: RefCell<BTreeMap<u64, Key>>,
    next_touch: Cell<u64>,
}

/// The one number, and who waits for it to fall.
struct Meter {
    limit: usize,
    used: AtomicUsize,
    /// In the order of arrival; bounded by the reads under way.
    line: Mutex<VecDeque<(u64, Option<Waker>)>>,
}

/// Bytes taken from the budget; dropping it gives them back.
pub(crate) struct Grant {
    meter: Arc<Meter>,
    bytes: usize,
}

pub(crate) struct Piece {
    /// Where the file ended, for this read.
    pub(crate) end: u32,
    result: RefCell<Option<Result<Bytes, LogError>>>,
    done: Notify,
    /// Somebody was served from it.
    served: Cell<bool>,
    touched: Cell<u64>,
}

/// Bytes with the grant that pays for them.
struct Held {
    buf: AlignedBuf,
    _grant: Grant,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.buf
    }
}

/// Makes shared bytes of a buffer; the grant goes back with the last of them.
pub(crate) fn hold(buf: AlignedBuf, grant: Grant) -> Bytes {
    Bytes::from_owner(Held { buf, _grant: grant })
}

impl Backfill {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        let meter = Meter { limit, used: AtomicUsize::new(0), line: Mutex::default() };
        Rc::new(Backfill {
            meter: Arc::new(meter),
            pieces: RefCell::default(),
            order: RefCell::default(),
            next_touch: Cell::new(0),
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.meter.used.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> usize {
        self.meter.limit
    }

    /// Whether a read waits for memory that answers hold.
    pub(crate) fn is_scarce(&self) -> bool {
        !self.meter.line().is_empty()
    }

    /// Memory for a read that somebody waits for. Call it holding no other grant: those who held
    /// some and waited for more would wait for each other.
    pub(crate) async fn grant(self: &Rc<Self>, bytes: usize) -> Grant {
        if let Some(grant) = self.try_grant(bytes) {
            return grant;
        }
        let mut place = Place::join(Rc::clone(self));
        poll_fn(|cx| {
            let first = place.is_first();
            if first && let Some(grant) = self.take(bytes, true) {
                place.leave();
                return Poll::Ready(grant);
            }
            place.wake_with(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// As [`Backfill::grant`], if nobody has to wait for it.
    pub(crate) fn try_grant(&self, bytes: usize) -> Option<Grant> {
        if self.is_scarce() { None } else { self.take(bytes, true) }
    }

    /// Memory over the limit, for the rest of a read that has begun: at most a batch a reader.
    pub(crate) fn overdraw(&self, bytes: usize) -> Grant {
        while self.used() + bytes > self.meter.limit && self.evict(false) {}
        self.meter.used.fetch_add(bytes, Ordering::Relaxed);
        Grant { meter: Arc::clone(&self.meter), bytes }
    }

    /// Memory for reading ahead: what is free or was used already.
    pub(crate) fn spare_grant(&self, bytes: usize) -> Option<Grant> {
        if self.is_scarce() { None } else { self.take(bytes, false) }
    }

    /// The first in line may take more than there is when nothing else is taken, or a batch
    /// larger than the whole budget would wait for ever.
    fn take(&self, bytes: usize, any: bool) -> Option<Grant> {
        let fits = |used: usize| used + bytes <= self.meter.limit;
        while !fits(self.used()) && self.evict(any) {}
        if !fits(self.used()) && self.used() > 0 {
            return None;
        }
        self.meter.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Grant { meter: Arc::clone(&self.meter), bytes })
    }

    /// Lets go of the piece that was touched longest ago; `any`: even if nobody has used it yet.
    fn evict(&self, any: bool) -> bool {
        let found = {
            let (order, pieces) = (self.order.borrow(), self.pieces.borrow());
            let free = |key: &Key| {
                let piece = pieces.get(key);
                piece.is_none_or(|p| p.is_read() && (any || p.served.get()))
            };
            order.iter().find(|(_, key)| free(key)).map(|(touch, key)| (*touch, *key))
        };
        let Some((touch, key)) = found else { return false };
        self.order.borrow_mut().remove(&touch);
        let gone = self.pieces.borrow_mut().remove(&key);
        drop(gone);
        true
    }

    /// The piece at a place of the grid, if it reaches `end`.
    pub(crate) fn piece(&self, key: Key, end: u32) -> Option<Rc<Piece>> {
        let piece = self.pieces.borrow().get(&key).map(Rc::clone)?;
        (piece.end >= end).then_some(piece)
    }

    /// Whether the piece that holds a position is here or on its way.
    pub(crate) fn has(&self, file: u64, position: u32) -> bool {
        self.piece((file, position / PIECE), position.saturating_add(1)).is_some()
    }

    /// Starts to read the piece at a place of the grid, up to `end`.
    pub(crate) fn start(
        self: &Rc<Self>,
        core: &Rc<Core>,
        file: File,
        key: Key,
        end: u32,
        grant: Grant,
    ) -> Rc<Piece> {
        let piece = Rc::new(Piece {
            end,
            result: RefCell::new(None),
            done: Notify::new(),
            served: Cell::new(false),
            touched: Cell::new(0),
        });
        let old = self.pieces.borrow_mut().insert(key, Rc::clone(&piece));
        if let Some(old) = old {
            self.order.borrow_mut().remove(&old.touched.get());
        }
        self.touch(key, &piece);
        let (reading, core, all) = (Rc::clone(&piece), Rc::clone(core), Rc::clone(self));
        let read = async move {
            let start = key.1 * PIECE;
            let buf = AlignedBuf::with_capacity(block_ceiling(end - start) as usize);
            let (result, mut buf) = file.read_at(buf, u64::from(start)).await;
            let result = match result {
                Ok(n) => {
                    buf.set_len(n.min((end - start) as usize));
                    Ok(hold(buf, grant))
                }
                Err(error) => Err(core.storage_error("reading a segment", error).into()),
            };
            if result.is_err() {
                all.forget(key, &reading);
            }
            reading.result.replace(Some(result));
            reading.done.notify_all();
            // From now on it may have to go for whoever waits for memory.
            all.meter.wake_first();
        };
        reactor::spawn_in(Class::Backfill, read).detach();
        piece
    }

    fn forget(&self, key: Key, piece: &Rc<Piece>) {
        let mut pieces = self.pieces.borrow_mut();
        if pieces.get(&key).is_some_and(|known| Rc::ptr_eq(known, piece)) {
            pieces.remove(&key);
            self.order.borrow_mut().remove(&piece.touched.get());
        }
    }

    fn touch(&self, key: Key, piece: &Piece) {
        let touch = self.next_touch.get();
        self.next_touch.set(touch + 1);
        let mut order = self.order.borrow_mut();
        order.remove(&piece.touched.replace(touch));
        order.insert(touch, key);
    }

    /// The bytes of a piece, once they are there.
    pub(crate) async fn bytes_of(&self, key: Key, piece: &Rc<Piece>) -> Result<Bytes, LogError> {
        loop {
            let wait = {
                if let Some(result) = &*piece.result.borrow() {
                    piece.served.set(true);
                    if result.is_ok() && self.piece(key, 0).is_some_and(|p| Rc::ptr_eq(&p, piece)) {
                        self.touch(key, piece);
                    }
                    return result.clone();
                }
                piece.done.notified()
            };
            wait.await;
        }
    }
}

impl Piece {
    fn is_read(&self) -> bool {
        self.result.borrow().is_some()
    }
}

impl Meter {
    fn line(&self) -> MutexGuard<'_, VecDeque<(u64, Option<Waker>)>> {
        // Nothing panics while it holds the lock, so poison carries no information.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_first(&self) {
        let waker = self.line().front_mut().and_then(|(_, waker)| waker.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.meter.wake_first();
    }
}

/// A place in the line for memory.
struct Place {
    backfill: Rc<Backfill>,
    number: u64,
}

impl Place {
    fn join(backfill: Rc<Backfill>) -> Place {
        let mut line = backfill.meter.line();
        let number = line.back().map_or(0, |(last, _)| last + 1);
        line.push_back((number, None));
        drop(line);
        Place { backfill, number }
    }

    fn is_first(&self) -> bool {
        self.backfill.meter.line().front().is_some_and(|(number, _)| *number == self.number)
    }

    fn wake_with(&self, waker: &Waker) {
        let mut line = self.backfill.meter.line();
        if let Some((_, mine)) = line.iter_mut().find(|(number, _)| *number == self.number) {
            *mine = Some(waker.clone());
        }
    }

    fn leave(&mut self) {
        let left = {
            let mut line = self.backfill.meter.line();
            let before = line.len();
            line.retain(|(number, _)| *number != self.number);
            line.len() < before
        };
        if left {
            self.backfill.meter.wake_first();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
