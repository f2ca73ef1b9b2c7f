//! Taking a batch: sequence check, offset, roll, one copy into memory.
//!
//! Owns: everything that happens between a produce request and the wake of the appender. It is
//! synchronous, touches no file, and allocates nothing but now and then a chunk. A batch is taken
//! whole or not at all: memory is secured before the first byte is copied.

use std::rc::{Rc, Weak};

use smallvec::SmallVec;
use wire::records::control::EndTransaction;
use wire::records::{BatchHeader, BatchView};

use crate::budget::{Charge, Evict};
use crate::config::Promise;
use crate::core::{Core, LogState, Mark, State};
use crate::error::AppendError;
use crate::keeper;
use crate::producer_state::{
    BatchMeta, EndedBy, Marker, ProducerBatch, ProducerRejection, Sequenced,
};
use crate::segment::Segment;
use crate::txn_index::{self, AbortedTxn, FLUSH_AT};

/// Chunks grow from the first to the second size with the traffic of the partition, so that an
/// idle one costs little and a busy one gets long writes.
const FIRST_CHUNK: usize = 8 << 10;
const LARGEST_CHUNK: usize = 2 << 20;
/// A larger one is only for a partition that has filled a chunk of this size.
const LARGE_CHUNK: usize = 1 << 20;
const CHUNK_GROWTH: usize = 4;
/// Of what has no records.
const NO_TIMESTAMP: i64 = -1;
/// Distance of the marks where a long backlog may be cut into writes.
const MARK_EVERY: u32 = 1 << 20;

/// A batch that was taken, or was taken before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    /// The producer repeated itself: the offsets are those of the first time. Of a marker that has
    /// nothing to end: those of the last record.
    pub duplicate: bool,
    pub log_start_offset: i64,
    pub max_timestamp: i64,
}

/// The end of a transaction, as its coordinator wants it written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub end: EndTransaction,
    /// The coordinator has raised the producer's epoch for it (transaction.version 2, KIP-890).
    pub raises_epoch: bool,
    pub by: EndedBy,
}

/// The producer's part of a header; `None` for producers without idempotence.
pub(crate) fn producer_batch(header: &BatchHeader) -> Option<ProducerBatch> {
    let idempotent = header.has_producer() && !header.attributes.is_control();
    idempotent.then(|| ProducerBatch {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        first_sequence: header.base_sequence,
        last_sequence: header.last_sequence(),
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        transactional: header.attributes.is_transactional(),
    })
}

/// What a control batch ends; `None` for other batches and for markers that cannot be read.
/// `header` is the batch's as it is stored, `bytes` may not be stamped yet.
pub(crate) fn marker(header: &BatchHeader, bytes: &[u8]) -> Option<Marker> {
    if !(header.has_producer() && header.attributes.is_control()) {
        return None;
    }
    let batch = BatchView::parse(bytes).ok()?;
    let end = EndTransaction::read(&batch).ok()??;
    Some(Marker {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        coordinator_epoch: end.coordinator_epoch,
        committed: end.committed,
        offset: header.base_offset,
        timestamp: header.max_timestamp,
        raises_epoch: false,
    })
}

impl Core {
    pub(crate) fn append_marker(
        &self,
        marker: TransactionMarker,
        epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let TransactionMarker { producer_id, producer_epoch, end, raises_epoch, by } = marker;
        let checked = Marker {
            producer_id,
            epoch: producer_epoch,
            coordinator_epoch: end.coordinator_epoch,
            committed: end.committed,
            offset: self.state.borrow().log_end(),
            timestamp: now_ms,
            raises_epoch,
        };
        let state = self.state.borrow();
        state.producers.check_marker(&checked, by)?;
        if by == EndedBy::Admin && !state.producers.is_open(producer_id) {
            return Ok(state.is_ended());
        }
        drop(state);
        let bytes = end.batch(producer_id, producer_epoch, now_ms)?;
        self.append(&BatchView::parse(&bytes)?, epoch, now_ms)
    }

    pub(crate) fn append(
        &self,
        batch: &BatchView<'_>,
        epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let (header, roll, segment) = {
            let state = self.state.borrow();
            self.check_writable(&state)?;
            let header = state.stamped(batch.header(), epoch)?;
            if let Some(repeated) = state.repeated(&header)? {
                return Ok(repeated);
            }
            let roll = state.must_roll(&header, now_ms);
            let base = if roll { header.base_offset } else { state.active_base() };
            (header, roll, base)
        };
        let charges = self.secure_memory(batch.bytes().len(), roll, segment)?;
        let mut state = self.state.borrow_mut();
        if roll {
            state.roll(now_ms);
        }
        let start_appender = state.take_batch(&header, batch.bytes(), charges);
        self.shared.budget().note_unwritten(batch.bytes().len());
        let appended = Appended {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            duplicate: false,
            log_start_offset: state.log_start,
            max_timestamp: header.max_timestamp,
        };
        let flush = state.holds_many_aborted(&header);
        drop(state);
        if flush && let Some(core) = self.me.upgrade() {
            keeper::start_flush(&core);
        }
        if start_appender && let Some(core) = self.me.upgrade() {
            reactor::spawn_in(reactor::Class::Produce, crate::appender::run(core)).detach();
        }
        Ok(appended)
    }

    fn check_writable(&self, state: &State) -> Result<(), AppendError> {
        match &state.phase {
            LogState::Online if !state.closing => Ok(()),
            LogState::Poisoned(error) => Err(error.clone().into()),
            LogState::Online | LogState::Closed => Err(AppendError::Closed(self.name.clone())),
        }
    }

    /// Takes from the budget what a batch needs beyond the current chunk.
    fn secure_memory(
        &self,
        bytes: usize,
        roll: bool,
        segment: i64,
    ) -> Result<SmallVec<[Charge; 2]>, AppendError> {
        let (mut missing, mut size) = {
            let state = self.state.borrow();
            let active = state.segments.back().filter(|_| !roll);
            let room = active.map_or(0, |s| s.tail.room());
            if room >= bytes {
                return Ok(SmallVec::new());
            }
            let carried = active.map_or(0, |s| s.tail.carried());
            (bytes - room + carried, state.chunk_bytes)
        };
        let Some(me) = self.me.upgrade() else {
            return Err(AppendError::Closed(self.name.clone()));
        };
        let owner: Rc<dyn Evict> = me;
        let owner: Weak<dyn Evict> = Rc::downgrade(&owner);
        self.pinned.set(true);
        let mut charges = SmallVec::new();
        while missing > 0 {
            size = next_chunk(size, missing, self.shared.budget().limit());
            let Some(charge) = self.shared.budget().take(size, owner.clone(), segment) else {
                self.pinned.set(false);
                return Err(AppendError::Full);
            };
            charges.push(charge);
            missing = missing.saturating_sub(size);
        }
        self.pinned.set(false);
        Ok(charges)
    }
}

/// The next chunk is larger than the last, and large enough for what waits for it if it may be.
fn next_chunk(last: usize, missing: usize, limit: usize) -> usize {
    let largest = if last < LARGE_CHUNK { LARGE_CHUNK } else { LARGEST_CHUNK };
    let largest = largest.min((limit / 8).next_power_of_two()).max(FIRST_CHUNK);
    let grown = if last == 0 { FIRST_CHUNK } else { last * CHUNK_GROWTH };
    grown.max(missing.next_multiple_of(FIRST_CHUNK)).min(largest)
}

impl State {
    fn active_base(&self) -> i64 {
        self.segments.back().map_or(self.log_start, |s| s.base)
    }

    /// The header as it will be stored.
    fn stamped(&self, header: &BatchHeader, epoch: i32) -> Result<BatchHeader, AppendError> {
        let end = self.log_end();
        let mut header = *header;
        header.base_offset = end;
        header.partition_leader_epoch = epoch;
        let (size, segment_bytes) = (header.size_in_bytes(), self.config.segment_bytes);
        if size > segment_bytes as usize || size > i32::MAX as usize {
            return Err(AppendError::LargerThanSegment { size, segment_bytes });
        }
        match end.checked_add(i64::from(header.last_offset_delta)) {
            Some(last) if last < i64::MAX && header.last_offset_delta >= 0 => Ok(header),
            _ => Err(AppendError::OffsetsExhausted(end)),
        }
    }

    /// The answer to a marker that has nothing to end: true as soon as all that is there is safe.
    fn is_ended(&self) -> Appended {
        let last_offset = self.log_end() - 1;
        Appended {
            base_offset: last_offset,
            last_offset,
            duplicate: true,
            log_start_offset: self.log_start,
            max_timestamp: NO_TIMESTAMP,
        }
    }

    fn repeated(&self, header: &BatchHeader) -> Result<Option<Appended>, AppendError> {
        let Some(batch) = producer_batch(header) else { return Ok(None) };
        match self.producers.check(&batch)? {
            Sequenced::Next => self.check_first(&batch).map(|()| None),
            Sequenced::Duplicate(BatchMeta { base_offset, last_offset, timestamp, .. }) => {
                Ok(Some(Appended {
                    base_offset,
                    last_offset,
                    duplicate: true,
                    log_start_offset: self.log_start,
                    max_timestamp: timestamp,
                }))
            }
        }
    }

    /// A producer that is not known may begin with any sequence, but not behind one that waits for
    /// its coordinator's answer.
    fn check_first(&self, batch: &ProducerBatch) -> Result<(), AppendError> {
        let (producer_id, got) = (batch.producer_id, batch.first_sequence);
        match self.verifying.first_sequence(producer_id, batch.epoch, got) {
            Some(expected) if self.producers.view(producer_id).is_none() => {
                Err(ProducerRejection::OutOfOrder { producer_id, expected, got }.into())
            }
            _ => Ok(()),
        }
    }

    fn must_roll(&self, header: &BatchHeader, now_ms: i64) -> bool {
        self.segments.back().is_none_or(|s| s.must_roll(header, &self.config, now_ms))
    }

    /// Starts a new segment at the end of the log. The old one is sealed later, by the keeper.
    pub(crate) fn roll(&mut self, now_ms: i64) {
        let base = self.log_end();
        if let Some(old) = self.segments.back_mut() {
            assert!(old.size > 0, "an empty segment is never rolled");
            old.full = true;
            old.finish_times();
        }
        let jitter = match self.config.segment_jitter_ms {
            0 => 0,
            most => (reactor::random_u64() % (most as u64).saturating_add(1)) as i64,
        };
        let mut segment = Segment::new(base, now_ms, jitter);
        segment.snapshot = Some(self.producers.producers.clone());
        self.segments.push_back(segment);
    }

    /// Copies the batch into the tail. Returns whether an appender must be started.
    fn take_batch(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        charges: SmallVec<[Charge; 2]>,
    ) -> bool {
        let interval = self.config.index_interval_bytes;
        let last_mark = self.marks.back().copied();
        if let Some(charge) = charges.last() {
            self.chunk_bytes = charge.bytes();
        }
        let Some(segment) = self.segments.back_mut() else { return false };
        let start = segment.size;
        segment.tail.batch_starts();
        copy_stamped(segment, header, bytes, charges);
        segment.size = segment.tail.end();
        assert_eq!(segment.size - start, bytes.len() as u32, "a batch is copied whole");
        segment.note_batch(header, start, interval);
        let since = last_mark.filter(|m| m.segment == segment.base).map_or(0, |m| m.position);
        if segment.size - since.max(segment.written) >= MARK_EVERY {
            self.marks.push_back(Mark {
                segment: segment.base,
                position: segment.size,
                next_offset: segment.next_offset,
            });
        }
        if let Some(batch) = producer_batch(header) {
            self.producers.update(&batch);
            if batch.transactional {
                self.verifying.void(batch.producer_id);
            }
        } else if let Some(marker) = marker(header, bytes) {
            self.verifying.void(marker.producer_id);
            let ended = self.producers.end_transaction(&marker);
            self.producers.advance_high_watermark(self.visible_end);
            self.note_aborted(ended.as_ref().and_then(txn_index::entry_of));
        }
        if self.epochs.assign(header.partition_leader_epoch, header.base_offset) {
            self.epochs_changed = true;
        }
        self.changed_since_flush = true;
        if self.promise() == Promise::Memory {
            self.make_visible_in_memory();
        }
        !std::mem::replace(&mut self.appender_runs, true)
    }

    fn note_aborted(&mut self, entry: Option<AbortedTxn>) {
        if let (Some(entry), Some(segment)) = (entry, self.segments.back_mut()) {
            segment.aborted.push(entry);
        }
    }

    /// Whether a flush is due because too many aborted transactions are in memory only.
    fn holds_many_aborted(&self, header: &BatchHeader) -> bool {
        let unsaved = self.segments.back().map_or(0, |s| s.aborted.unsaved());
        header.attributes.is_control() && unsaved > 0 && unsaved.is_multiple_of(FLUSH_AT)
    }

    /// `write.caching`: whatever is in memory may be read and is acknowledged.
    pub(crate) fn make_visible_in_memory(&mut self) {
        for segment in self.segments.iter_mut().rev() {
            if segment.visible == segment.size && segment.full {
                break;
            }
            segment.visible = segment.size;
        }
        self.visible_end = self.log_end();
        self.wait_visible.wake_reached(self.visible_end);
        self.note_change();
    }
}

/// Copies a batch with the two fields that the leader decides: base offset and leader epoch.
fn copy_stamped(
    segment: &mut Segment,
    header: &BatchHeader,
    bytes: &[u8],
    charges: SmallVec<[Charge; 2]>,
) {
    let mut stamp = [0; 16];
    let (offset, rest) = stamp.split_at_mut(8);
    let (length, epoch) = rest.split_at_mut(4);
    offset.copy_from_slice(&header.base_offset.to_be_bytes());
    length.copy_from_slice(&header.batch_length.to_be_bytes());
    epoch.copy_from_slice(&header.partition_leader_epoch.to_be_bytes());
    let mut charges = charges.into_iter();
    for part in [&stamp[..], bytes.get(16..).unwrap_or_default()] {
        let mut done = 0;
        while done < part.len() {
            let n = segment.tail.fill(part.get(done..).unwrap_or_default());
            done += n;
            if n == 0 {
                let Some(charge) = charges.next() else { return };
                segment.tail.push_chunk(charge);
            }
        }
    }
}
