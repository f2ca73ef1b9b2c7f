//! What the leader remembers of the producers of one partition.
//!
//! Owns: the last five batches of each producer and the decision whether a batch is the next one, a
//! repetition or out of order (KIP-98); open transactions and what they hold back; expiry. Pure: the
//! time is an argument, the file is `producer_snapshot`'s matter. It never looks at records.
//!
//! | known of the producer    | a batch of the client                          | answer            |
//! |--------------------------|------------------------------------------------|-------------------|
//! | nothing                  | any sequence: the log may have been trimmed    | next              |
//! | a higher epoch           |                                                | invalid epoch     |
//! | a lower epoch            | sequence 0, else ...                           | next, out of order|
//! | this epoch, some batches | first and last sequence of one of the last five| duplicate         |
//! |                          | the sequence after the last one, else ...      | next, out of order|
//! | this epoch, no batches   | sequence 0, else ... (a marker set the epoch)  | next, out of order|
//! | an open transaction      | a next batch outside of one                    | not transactional |
//! | none open, of too many   | a next batch inside of one                     | too many          |

use std::collections::BTreeMap;
use std::rc::Rc;

use smallvec::SmallVec;
use thiserror::Error;

use crate::producer_map::{Page, ProducerMap};

/// Kafka's clients keep at most five produce requests in flight, so a retry is among these.
pub const BATCHES_KEPT: usize = 5;
/// Most producers remembered of one partition; beyond, those silent longest go. About 16 MiB if each
/// has written one batch, 40 MiB if each has written many.
pub const MAX_PRODUCERS: usize = 131_072;
/// What goes at once then, so that the search for the oldest is paid for by many newcomers.
const EVICTED_AT_ONCE: usize = MAX_PRODUCERS / 8;
/// Transactions that clients may have open. Their producers cannot go, so there is always room for what
/// goes at once.
const OPEN_MAX: usize = MAX_PRODUCERS - EVICTED_AT_ONCE;
/// Pages of producers that are looked through for expired ones in one step.
const EXPIRED_AT_ONCE_PAGES: usize = 64;
/// Before any epoch or coordinator epoch.
pub(crate) const NONE: i32 = -1;

/// The producer's part of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    pub producer_id: i64,
    pub epoch: i16,
    /// -1 for batches of the broker itself, which have no sequence.
    pub first_sequence: i32,
    /// Wraps from `i32::MAX` to 0.
    pub last_sequence: i32,
    pub base_offset: i64,
    pub last_offset: i64,
    pub max_timestamp: i64,
    pub transactional: bool,
}

/// The end of a producer's transaction, as a control batch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub producer_id: i64,
    pub epoch: i16,
    pub coordinator_epoch: i32,
    pub committed: bool,
    /// The offset of the marker itself.
    pub offset: i64,
    pub timestamp: i64,
    /// The coordinator raises the epoch with every marker (transaction.version 2, KIP-890), so one
    /// that does not is late. Not known when reading a log, where `false` is right.
    pub raises_epoch: bool,
}

/// A batch as remembered: enough to answer its repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMeta {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: i64,
    pub last_offset: i64,
    pub timestamp: i64,
}

/// A batch that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    Next,
    /// Taken before: answer with what was answered then.
    Duplicate(BatchMeta),
}

/// A transaction that a marker ended: a line of the transaction index if it was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    /// The marker's.
    pub last_offset: i64,
    pub committed: bool,
    /// Where the open part of the log begins now, whatever the high watermark.
    pub last_stable_offset: i64,
}

/// Why a batch or marker is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProducerRejection {
    #[error(
        "producer {producer_id} sent sequence {got} where {expected} is next; it lost a batch and must reset"
    )]
    OutOfOrder { producer_id: i64, expected: i32, got: i32 },
    #[error(
        "producer {producer_id} sent epoch {got} but epoch {current} is known; a newer instance took over"
    )]
    InvalidEpoch { producer_id: i64, current: i16, got: i16 },
    #[error(
        "producer {producer_id} has a transaction open since offset {since} but wrote outside of it; it must end it first"
    )]
    NotTransactional { producer_id: i64, since: i64 },
    #[error(
        "producer {producer_id} would begin a transaction where {open} are open already; it must wait until some have ended"
    )]
    TooManyOpen { producer_id: i64, open: usize },
    #[error(
        "the marker for producer {producer_id} is of coordinator epoch {got} but {current} is known; a newer coordinator took over"
    )]
    CoordinatorFenced { producer_id: i64, current: i32, got: i32 },
    #[error(
        "only its coordinator may end a transaction of producer {producer_id} like this; by hand it can be aborted, in the epochs that DescribeProducers tells"
    )]
    OnlyByCoordinator { producer_id: i64 },
}

/// Who wants a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// An administrator, by hand: aborts what is open, in epochs that are known here already.
    /// Whatever could keep a coordinator from its own markers later is refused; where nothing is
    /// open nothing is written.
    Admin,
    /// A coordinator, which may have been replaced: the highest epoch that was seen is right.
    Coordinator,
    /// The coordinator that the cluster has now: no other ever had a higher epoch, whatever the log
    /// says.
    CurrentCoordinator,
}

/// One producer, as listings show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerView {
    pub producer_id: i64,
    pub epoch: i16,
    /// -1 if no batch of this epoch is known.
    pub last_sequence: i32,
    /// Of its last batch; -1 if none of this epoch is known.
    pub last_offset: i64,
    /// Offsets of its last batch beyond the first.
    pub last_offset_delta: i32,
    pub last_timestamp: i64,
    /// -1 if no transaction was ended yet.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub open_since: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    /// The oldest first. Many producers only ever write one.
    batches: SmallVec<[BatchMeta; 1]>,
    pub(crate) last_timestamp: i64,
    pub(crate) coordinator_epoch: i32,
    pub(crate) open_since: Option<i64>,
}

/// Every producer of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    pub(crate) producers: ProducerMap,
    /// Open transactions: first offset to producer.
    open: BTreeMap<i64, i64>,
    /// Ended transactions whose marker may not be visible yet: first offset to the marker's.
    ended: BTreeMap<i64, i64>,
}

impl ProducerStates {
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// About the memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let transactions = self.open.len() + self.ended.len();
        self.producers.memory_bytes() + transactions * 2 * size_of::<(i64, i64)>()
    }

    pub fn iter(&self) -> impl Iterator<Item = ProducerView> + '_ {
        self.producers.iter().map(|(producer_id, producer)| producer.view(producer_id))
    }

    /// All of them as they are now, however long it takes to look at them: in pages that are copied
    /// only where they change meanwhile.
    pub(crate) fn snapshot_views(&self) -> impl Iterator<Item = ProducerView> + use<> {
        let pages = self.producers.pages().to_vec();
        let of_page = |page: Rc<Page>| {
            let views = page.iter().map(|(id, producer)| producer.view(*id));
            views.collect::<Vec<ProducerView>>()
        };
        pages.into_iter().flat_map(of_page)
    }

    /// One producer, if it is known.
    pub fn view(&self, producer_id: i64) -> Option<ProducerView> {
        self.producers.get(producer_id).map(|producer| producer.view(producer_id))
    }

    /// Whether a client's `batch` may be appended. Offsets of `batch` are not looked at.
    pub fn check(&self, batch: &ProducerBatch) -> Result<Sequenced, ProducerRejection> {
        let producer_id = batch.producer_id;
        let Some(known) = self.producers.get(producer_id) else {
            return self.check_open(batch);
        };
        if let Some(meta) = known.repeated(batch) {
            return Ok(Sequenced::Duplicate(meta));
        }
        if batch.epoch < known.epoch {
            let (current, got) = (known.epoch, batch.epoch);
            return Err(ProducerRejection::InvalidEpoch { producer_id, current, got });
        }
        let expected = match known.last() {
            Some(last) if batch.epoch == known.epoch => next_sequence(last.last_sequence),
            _ => 0,
        };
        if batch.first_sequence != expected && batch.first_sequence != NONE {
            let got = batch.first_sequence;
            return Err(ProducerRejection::OutOfOrder { producer_id, expected, got });
        }
        match known.open_since {
            Some(since) if !batch.transactional => {
                Err(ProducerRejection::NotTransactional { producer_id, since })
            }
            Some(_) => Ok(Sequenced::Next),
            None => self.check_open(batch),
        }
    }

    /// Whether a producer without a transaction may begin one. What coordinators of groups append has no
    /// sequence: they ask before, a decision cannot be taken back.
    fn check_open(&self, batch: &ProducerBatch) -> Result<Sequenced, ProducerRejection> {
        let begins = batch.transactional && batch.first_sequence != NONE;
        if begins && !self.may_open_transaction() {
            let (producer_id, open) = (batch.producer_id, self.open.len());
            return Err(ProducerRejection::TooManyOpen { producer_id, open });
        }
        Ok(Sequenced::Next)
    }

    pub fn may_open_transaction(&self) -> bool {
        self.open.len() < OPEN_MAX
    }

    /// Remembers a batch that was appended, or that recovery or replication read.
    pub fn update(&mut self, batch: &ProducerBatch) {
        let producer = self.entry(batch.producer_id, batch.epoch);
        producer.take_epoch(batch.epoch);
        producer.push(BatchMeta {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence,
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            timestamp: batch.max_timestamp,
        });
        producer.last_timestamp = batch.max_timestamp;
        if batch.transactional && producer.open_since.is_none() {
            producer.open_since = Some(batch.base_offset);
            self.open.insert(batch.base_offset, batch.producer_id);
        }
    }

    /// Whether the producer has a transaction open.
    pub fn is_open(&self, producer_id: i64) -> bool {
        self.producers.get(producer_id).is_some_and(|known| known.open_since.is_some())
    }

    /// Whether a `marker` may be appended.
    pub fn check_marker(&self, marker: &Marker, by: EndedBy) -> Result<(), ProducerRejection> {
        let producer_id = marker.producer_id;
        let refused = ProducerRejection::OnlyByCoordinator { producer_id };
        if by == EndedBy::Admin && marker.committed {
            return Err(refused);
        }
        let Some(known) = self.producers.get(producer_id) else { return Ok(()) };
        let late = marker.epoch < known.epoch
            // The same marker once more is harmless: the transaction is not open any longer.
            || marker.raises_epoch && marker.epoch == known.epoch && known.open_since.is_some();
        if late {
            let (current, got) = (known.epoch, marker.epoch);
            return Err(ProducerRejection::InvalidEpoch { producer_id, current, got });
        }
        let is_older = marker.coordinator_epoch < known.coordinator_epoch;
        if is_older && by != EndedBy::CurrentCoordinator {
            let (current, got) = (known.coordinator_epoch, marker.coordinator_epoch);
            return Err(ProducerRejection::CoordinatorFenced { producer_id, current, got });
        }
        // Tools send 0 where no coordinator is known: none has less.
        let is_unheard_of =
            marker.epoch > known.epoch || marker.coordinator_epoch > known.coordinator_epoch.max(0);
        if by == EndedBy::Admin && is_unheard_of {
            return Err(refused);
        }
        Ok(())
    }

    /// Remembers a marker that was appended or read. Tells what it ended, if anything was open.
    pub fn end_transaction(&mut self, marker: &Marker) -> Option<EndedTransaction> {
        let producer = self.entry(marker.producer_id, marker.epoch);
        producer.take_epoch(marker.epoch);
        producer.coordinator_epoch = marker.coordinator_epoch;
        producer.last_timestamp = marker.timestamp;
        let first_offset = producer.open_since.take()?;
        self.open.remove(&first_offset);
        self.ended.insert(first_offset, marker.offset);
        let open_from = self.open.keys().next().copied();
        Some(EndedTransaction {
            producer_id: marker.producer_id,
            first_offset,
            last_offset: marker.offset,
            committed: marker.committed,
            last_stable_offset: open_from.unwrap_or_else(|| marker.offset.saturating_add(1)),
        })
    }

    /// The first offset whose fate is not visible yet: the last stable offset is the lower of this
    /// and the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        let open = self.open.keys().next();
        let ended = self.ended.keys().next();
        open.into_iter().chain(ended).min().copied()
    }

    /// The transaction that is open from the lowest offset on: where, and whose.
    pub fn oldest_open(&self) -> Option<(i64, i64)> {
        self.open.first_key_value().map(|(offset, producer_id)| (*offset, *producer_id))
    }

    /// Everything below `offset` is visible (or gone, when the log start moves): transactions whose
    /// marker lies there hold nothing back any longer.
    pub fn advance_high_watermark(&mut self, offset: i64) {
        if self.ended.is_empty() {
            return;
        }
        self.ended.retain(|_, marker| *marker >= offset);
    }

    /// Forgets producers that were silent for `expiration_ms` and have no open transaction.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let (mut expired, mut page) = (0, Some(0));
        while let Some(from) = page {
            let some;
            (some, page) = self.expire_some(from, now_ms, expiration_ms);
            expired += some;
        }
        expired
    }

    /// The same for some of them: those of a few pages. Begin with page 0 and go on where it says, as
    /// long as it does.
    pub(crate) fn expire_some(
        &mut self,
        from: usize,
        now_ms: i64,
        expiration_ms: i64,
    ) -> (usize, Option<usize>) {
        let stays = |_: i64, producer: &Producer| {
            producer.open_since.is_some()
                || now_ms.saturating_sub(producer.last_timestamp) < expiration_ms
        };
        let to = from + EXPIRED_AT_ONCE_PAGES;
        let expired = (from..to).map(|page| self.producers.retain_page(page, stays)).sum();
        let more = to < self.producers.pages().len();
        if !more {
            self.producers.give_back();
        }
        (expired, more.then_some(to))
    }

    /// A producer as a snapshot has it.
    pub(crate) fn restore(&mut self, producer_id: i64, producer: Producer) {
        if let Some(first_offset) = producer.open_since {
            self.open.insert(first_offset, producer_id);
        }
        self.producers.insert(producer_id, producer);
    }

    fn entry(&mut self, producer_id: i64, epoch: i16) -> &mut Producer {
        if self.producers.len() >= MAX_PRODUCERS && !self.producers.contains(producer_id) {
            self.evict();
        }
        self.producers.or_insert_with(producer_id, || Producer::new(epoch))
    }

    /// Makes room. Producers inside a transaction stay.
    fn evict(&mut self) {
        let idle = |producer: &Producer| producer.open_since.is_none();
        let producers = self.producers.iter().filter(|(_, producer)| idle(producer));
        // The id decides between equal times, so that every replica and run forgets the same ones.
        let mut silence: Vec<(i64, i64)> =
            producers.map(|(id, producer)| (producer.last_timestamp, id)).collect();
        // A snapshot of Kafka's may have had more.
        let too_many = self.producers.len().saturating_sub(MAX_PRODUCERS) + EVICTED_AT_ONCE;
        let Some(last) = silence.len().min(too_many).checked_sub(1) else { return };
        let (_, until, _) = silence.select_nth_unstable(last);
        let until = *until;
        self.producers
            .retain(|id, producer| !idle(producer) || (producer.last_timestamp, id) > until);
    }
}

impl Producer {
    pub(crate) fn new(epoch: i16) -> Self {
        Producer {
            epoch,
            batches: SmallVec::new(),
            last_timestamp: i64::from(NONE),
            coordinator_epoch: NONE,
            open_since: None,
        }
    }

    fn view(&self, producer_id: i64) -> ProducerView {
        let last = self.last();
        let delta = |meta: &BatchMeta| meta.last_offset.saturating_sub(meta.base_offset);
        ProducerView {
            producer_id,
            epoch: self.epoch,
            last_sequence: last.map_or(NONE, |meta| meta.last_sequence),
            last_offset: last.map_or(i64::from(NONE), |meta| meta.last_offset),
            last_offset_delta: last.map_or(0, |meta| delta(meta) as i32),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            open_since: self.open_since,
        }
    }

    pub(crate) fn last(&self) -> Option<&BatchMeta> {
        self.batches().last()
    }

    pub(crate) fn push(&mut self, meta: BatchMeta) {
        if self.batches.len() == BATCHES_KEPT {
            self.batches.remove(0);
        }
        if self.batches.len() == self.batches.capacity() {
            self.batches.reserve_exact(BATCHES_KEPT - self.batches.len());
        }
        self.batches.push(meta);
    }

    /// The oldest first.
    pub(crate) fn batches(&self) -> &[BatchMeta] {
        &self.batches
    }

    /// Bytes that it holds elsewhere.
    pub(crate) fn bytes_beside(&self) -> usize {
        if self.batches.spilled() { self.batches.capacity() * size_of::<BatchMeta>() } else { 0 }
    }

    /// Batches of another epoch answer no repetition.
    fn take_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.forget_batches();
        }
    }

    pub(crate) fn forget_batches(&mut self) {
        self.batches.clear();
    }

    fn repeated(&self, batch: &ProducerBatch) -> Option<BatchMeta> {
        if batch.epoch != self.epoch || batch.first_sequence == NONE {
            return None;
        }
        let same = |meta: &&BatchMeta| {
            meta.first_sequence == batch.first_sequence && meta.last_sequence == batch.last_sequence
        };
        self.batches().iter().rev().find(same).copied()
    }
}

fn next_sequence(sequence: i32) -> i32 {
    if sequence == i32::MAX { 0 } else { sequence + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer_map::PAGE_FILL;

    fn batch(id: i64, epoch: i16, first: i32, last: i32, offset: i64) -> ProducerBatch {
        let count = (i64::from(last) - i64::from(first)).rem_euclid(1 << 31);
        ProducerBatch {
            producer_id: id,
            epoch,
            first_sequence: first,
            last_sequence: last,
            base_offset: offset,
            last_offset: offset + count,
            max_timestamp: 1_000 + offset,
            transactional: false,
        }
    }

    fn within(id: i64, first: i32, offset: i64) -> ProducerBatch {
        ProducerBatch { transactional: true, ..batch(id, 0, first, first, offset) }
    }

    fn marker(id: i64, epoch: i16, offset: i64) -> Marker {
        Marker {
            producer_id: id,
            epoch,
            coordinator_epoch: 3,
            committed: true,
            offset,
            timestamp: 1_000 + offset,
            raises_epoch: false,
        }
    }

    #[test]
    fn sequences_follow_on_and_repetitions_get_the_first_answer() {
        let mut states = ProducerStates::default();
        for i in 0..7 {
            let next = batch(1, 0, i * 10, i * 10 + 9, i64::from(i) * 10);
            assert_eq!(states.check(&next), Ok(Sequenced::Next));
            states.update(&next);
        }
        match states.check(&batch(1, 0, 30, 39, 999)) {
            Ok(Sequenced::Duplicate(meta)) => {
                assert_eq!((meta.base_offset, meta.last_offset, meta.timestamp), (30, 39, 1_030));
            }
            other => panic!("{other:?}"),
        }
        // A repetition of more than five batches ago, a gap, and a part of a known batch.
        for (first, last) in [(0, 9), (71, 79), (60, 64)] {
            let expected =
                ProducerRejection::OutOfOrder { producer_id: 1, expected: 70, got: first };
            assert_eq!(states.check(&batch(1, 0, first, last, 0)), Err(expected));
        }
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 0, i32::MAX - 1, i32::MAX, 0));
        assert_eq!(states.check(&batch(1, 0, 0, 4, 2)), Ok(Sequenced::Next));
        let mut states = ProducerStates::default();
        let wrapping = batch(1, 0, i32::MAX, 1, 0);
        states.update(&wrapping);
        assert_eq!(states.check(&batch(1, 0, 2, 2, 3)), Ok(Sequenced::Next));
        let read = ProducerStates::decode(&states.encode()).unwrap();
        assert!(matches!(read.check(&wrapping), Ok(Sequenced::Duplicate(_))));
    }

    #[test]
    fn epochs_fence_and_start_anew() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 3, 0, 9, 0));
        let fenced = ProducerRejection::InvalidEpoch { producer_id: 1, current: 3, got: 2 };
        assert_eq!(states.check(&batch(1, 2, 10, 19, 0)), Err(fenced));
        let not_zero = ProducerRejection::OutOfOrder { producer_id: 1, expected: 0, got: 10 };
        assert_eq!(states.check(&batch(1, 4, 10, 19, 0)), Err(not_zero));
        assert_eq!(states.check(&batch(1, 4, 0, 9, 0)), Ok(Sequenced::Next));
        states.update(&batch(1, 4, 0, 4, 10));
        assert_eq!(states.check(&batch(1, 4, 5, 9, 15)), Ok(Sequenced::Next));
        assert_eq!(states.check(&batch(2, 0, 77, 78, 0)), Ok(Sequenced::Next));
    }

    #[test]
    fn after_a_marker_raised_the_epoch_sequences_start_at_zero() {
        let mut states = ProducerStates::default();
        states.update(&within(1, 0, 0));
        states.end_transaction(&marker(1, 1, 1));
        let in_epoch = |first| batch(1, 1, first, first, 2);
        let not_zero = ProducerRejection::OutOfOrder { producer_id: 1, expected: 0, got: 1 };
        assert_eq!(states.check(&in_epoch(1)), Err(not_zero));
        assert_eq!(states.check(&in_epoch(0)), Ok(Sequenced::Next));
    }

    #[test]
    fn open_transactions_hold_back_until_their_marker_is_visible() {
        let mut states = ProducerStates::default();
        assert_eq!(states.first_unstable_offset(), None);
        states.update(&within(1, 0, 10));
        states.update(&within(2, 0, 11));
        states.update(&within(1, 1, 12));
        assert_eq!(states.first_unstable_offset(), Some(10));
        let outside = ProducerRejection::NotTransactional { producer_id: 1, since: 10 };
        assert_eq!(states.check(&batch(1, 0, 2, 2, 13)), Err(outside));

        let ended = states.end_transaction(&marker(1, 0, 13)).unwrap();
        assert_eq!((ended.first_offset, ended.last_offset), (10, 13));
        assert_eq!(ended.last_stable_offset, 11);
        assert_eq!(states.first_unstable_offset(), Some(10));
        states.advance_high_watermark(13);
        assert_eq!(states.first_unstable_offset(), Some(10));
        states.advance_high_watermark(14);
        assert_eq!(states.first_unstable_offset(), Some(11));
        assert_eq!(states.end_transaction(&marker(1, 0, 14)), None);
        let ended = states.end_transaction(&marker(2, 0, 15)).unwrap();
        assert_eq!(ended.last_stable_offset, 16);
        states.advance_high_watermark(16);
        assert_eq!(states.first_unstable_offset(), None);
    }

    #[test]
    fn late_markers_and_old_coordinators_are_refused() {
        let mut states = ProducerStates::default();
        states.update(&ProducerBatch { transactional: true, ..batch(1, 5, 0, 0, 0) });
        let late = ProducerRejection::InvalidEpoch { producer_id: 1, current: 5, got: 4 };
        assert_eq!(states.check_marker(&marker(1, 4, 1), EndedBy::Coordinator), Err(late));
        assert_eq!(states.check_marker(&marker(1, 5, 1), EndedBy::Coordinator), Ok(()));
        let raising = |epoch| Marker { raises_epoch: true, ..marker(1, epoch, 1) };
        let late = ProducerRejection::InvalidEpoch { producer_id: 1, current: 5, got: 5 };
        assert_eq!(states.check_marker(&raising(5), EndedBy::Coordinator), Err(late));
        assert_eq!(states.check_marker(&raising(6), EndedBy::Coordinator), Ok(()));
        states.end_transaction(&raising(6));
        assert_eq!(
            states.check_marker(&raising(6), EndedBy::Coordinator),
            Ok(()),
            "the same marker once more"
        );
        let old = Marker { coordinator_epoch: 2, ..raising(7) };
        let fenced = ProducerRejection::CoordinatorFenced { producer_id: 1, current: 3, got: 2 };
        assert_eq!(states.check_marker(&old, EndedBy::Coordinator), Err(fenced));
        assert_eq!(
            states.check_marker(&marker(9, 0, 1), EndedBy::Coordinator),
            Ok(()),
            "an unknown producer"
        );
    }

    #[test]
    fn silent_producers_are_forgotten_unless_in_a_transaction() {
        let mut states = ProducerStates::default();
        states.update(&batch(1, 0, 0, 0, 0));
        states.update(&batch(2, 0, 0, 0, 500));
        states.update(&within(3, 0, 1));
        assert_eq!(states.expire(2_000, 600), 1);
        assert_eq!(states.check(&batch(1, 0, 5, 5, 0)), Ok(Sequenced::Next));
        assert!(states.check(&batch(2, 0, 5, 5, 0)).is_err());
        assert!(states.check(&within(3, 5, 0)).is_err());
    }

    #[test]
    fn memory_is_bounded_and_the_most_silent_go_first() {
        let mut states = ProducerStates::default();
        states.update(&within(i64::MAX, 0, -999));
        for id in 0..2 * MAX_PRODUCERS as i64 {
            states.update(&batch(id, 0, 0, 0, id));
            assert!(states.len() <= MAX_PRODUCERS);
        }
        assert!(states.len() > MAX_PRODUCERS - EVICTED_AT_ONCE - 1);
        assert!(states.memory_bytes() < 64 << 20, "{}", states.memory_bytes());
        let newest = 2 * MAX_PRODUCERS as i64 - 1;
        assert!(states.check(&batch(newest, 0, 5, 5, 0)).is_err());
        assert!(states.check(&within(i64::MAX, 5, 0)).is_err(), "its transaction is open");
        assert_eq!(states.check(&batch(0, 0, 5, 5, 0)), Ok(Sequenced::Next));
    }

    #[test]
    fn so_many_transactions_may_be_open_and_no_more() {
        let mut states = ProducerStates::default();
        let mut taken = 0;
        for id in 0..2 * MAX_PRODUCERS as i64 {
            let next = within(id, 0, id);
            match states.check(&next) {
                Ok(_) => {
                    states.update(&next);
                    taken += 1;
                }
                Err(refused) => {
                    let expected = ProducerRejection::TooManyOpen { producer_id: id, open: taken };
                    assert_eq!(refused, expected);
                }
            }
        }
        assert_eq!((taken, states.len()), (OPEN_MAX, OPEN_MAX));
        // Others come and go, and who has one open goes on.
        for id in 0..2 * MAX_PRODUCERS as i64 {
            states.update(&batch(-1 - id, 0, 0, 0, id));
            assert!(states.len() <= MAX_PRODUCERS);
        }
        assert_eq!(states.check(&within(7, 1, 0)), Ok(Sequenced::Next));
        let known = batch(-2 * MAX_PRODUCERS as i64, 0, 1, 1, 0);
        assert_eq!(states.check(&known), Ok(Sequenced::Next));
        let begins = ProducerBatch { transactional: true, ..known };
        assert!(matches!(states.check(&begins), Err(ProducerRejection::TooManyOpen { .. })));
        states.end_transaction(&marker(7, 0, 9));
        assert_eq!(states.check(&begins), Ok(Sequenced::Next));
    }

    #[test]
    fn many_expire_a_few_pages_at_a_time() {
        let mut states = ProducerStates::default();
        let old = 50_000;
        for id in 0..old {
            states.update(&batch(id, 0, 0, 0, 0));
        }
        states.update(&batch(old, 0, 0, 0, 9_000));
        let (mut page, mut expired, mut steps) = (Some(0), 0, 0);
        while let Some(from) = page {
            let (some, next) = states.expire_some(from, 10_000, 5_000);
            // The pages of a step, twice as full as they are on average.
            assert!(some <= 2 * PAGE_FILL * EXPIRED_AT_ONCE_PAGES, "{some}");
            (expired, page, steps) = (expired + some, next, steps + 1);
        }
        assert_eq!((expired, states.len()), (old as usize, 1));
        assert!(steps > 5, "{steps}");
    }

    #[test]
    fn a_producer_of_one_batch_is_small() {
        let mut states = ProducerStates::default();
        for id in 0..10_000 {
            states.update(&batch(id, 0, 0, 0, 0));
        }
        let one = states.memory_bytes() / 10_000;
        assert!(one < 140, "{one}");
        for id in 0..10_000 {
            states.update(&batch(id, 0, 1, 1, 1));
        }
        let more = states.memory_bytes() / 10_000;
        assert!(more < 310 && more > one, "{more}");
    }

    #[test]
    fn batches_without_a_sequence_are_taken() {
        let mut states = ProducerStates::default();
        let own = ProducerBatch { transactional: true, ..batch(1, 2, -1, -1, 5) };
        assert_eq!(states.check(&own), Ok(Sequenced::Next));
        states.update(&own);
        assert_eq!(states.check(&own), Ok(Sequenced::Next));
        assert_eq!(states.first_unstable_offset(), Some(5));
    }
}
