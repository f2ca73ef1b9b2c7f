//! Which records of a batch stay, and the batch that is left of it.
//!
//! Pure; the rules are those of Kafka's record filter.
//!
//! | of a batch | stays |
//! |---|---|
//! | a record at or behind the end of the key map | always |
//! | a record whose key has a later record in the map | never |
//! | the latest record of its key, with a value | always |
//! | the latest record of its key, a tombstone | until the batch's delete horizon has passed |
//! | a record without key | never |
//! | all records of an aborted transaction | never |
//! | a batch that is too large to be opened | all of it, and every tombstone behind it |
//! | a marker | until nothing is left of its transaction and its horizon has passed |
//!
//! A batch without any record left goes, unless it is the last batch of a producer that is still
//! known, or the last batch of what is cleaned: those stay empty, so that sequences and offsets
//! stay known. A batch with a tombstone, or a marker of an empty transaction, gets its horizon the
//! first time it is seen here.

use std::borrow::Cow;
use std::cell::Cell;

use wire::records::{BatchBuilder, BatchError, BatchHeader, BatchView, RecordIter, TimestampType};

use super::key_map::KeyMap;
use crate::producer_map::ProducerMap;

/// The last batch of a producer that is still known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastBatch {
    pub(crate) epoch: i16,
    /// `None`: only a marker of this epoch was seen.
    pub(crate) last_offset: Option<i64>,
}

/// The last batch of every producer: they stay in the log even if they become empty.
#[derive(Default)]
pub(crate) struct LastBatches(pub(crate) ProducerMap);

impl LastBatches {
    fn of(&self, producer_id: i64) -> Option<LastBatch> {
        let producer = self.0.get(producer_id)?;
        let last_offset = producer.last().map(|meta| meta.last_offset);
        Some(LastBatch { epoch: producer.epoch, last_offset })
    }
}

/// What decides over all batches of a pass.
pub(crate) struct Rules {
    pub(crate) map: KeyMap,
    pub(crate) producers: LastBatches,
    /// Where the part of the log that may be cleaned ends.
    pub(crate) clean_end: i64,
    pub(crate) now_ms: i64,
    pub(crate) delete_retention_ms: i64,
    /// Bytes that one batch may have when decompressed.
    pub(crate) batch_bytes: usize,
    /// Batches met so far that have more: nobody knows what keys they hold. A tombstone behind one
    /// may be all that hides a value in it.
    pub(crate) unopened: Cell<u64>,
}

/// What the walk so far says of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its keys decide.
    ByKey,
    /// Data of an aborted transaction.
    Aborted,
    /// A control batch of which something must stay.
    Marker,
    /// A control batch whose transaction has nothing left.
    MarkerOfNothing,
}

/// What is left of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it, byte for byte.
    Whole,
    /// A new batch.
    Part(Vec<u8>),
    Nothing,
}

/// Counts of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) kept: u64,
    /// Dropped because they had no key.
    pub(crate) keyless: u64,
}

impl Rules {
    pub(crate) fn rewrite(
        &self,
        batch: &BatchView<'_>,
        fate: Fate,
    ) -> Result<(Left, Counts), BatchError> {
        let header = batch.header();
        let records = u64::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        let mut counts = Counts { records, ..Counts::default() };
        let horizon = header.attributes.has_delete_horizon().then_some(header.base_timestamp);
        let passed = horizon.is_some_and(|horizon| horizon <= self.now_ms);
        let all_go = match fate {
            Fate::ByKey | Fate::Marker => false,
            Fate::Aborted => true,
            Fate::MarkerOfNothing => passed,
        };
        if all_go || records == 0 {
            return Ok((self.without_records(header)?, counts));
        }
        let opened = match open(batch, self.batch_bytes) {
            Err(BatchError::TooLarge { .. }) => {
                self.unopened.set(self.unopened.get() + 1);
                counts.kept = records;
                return Ok((Left::Whole, counts));
            }
            opened => opened?,
        };
        let chosen = self.choose(&opened, fate, passed, &mut counts)?;
        if counts.kept == 0 {
            return Ok((self.without_records(header)?, counts));
        }
        let sets_horizon = horizon.is_none() && (chosen.tombstone || fate == Fate::MarkerOfNothing);
        if counts.kept == records && !sets_horizon {
            return Ok((Left::Whole, counts));
        }
        let new_horizon = self.now_ms.saturating_add(self.delete_retention_ms);
        let horizon = if sets_horizon { Some(new_horizon) } else { horizon };
        Ok((Left::Part(rebuilt(batch, &opened, &chosen.stays, horizon)?), counts))
    }

    fn choose(
        &self,
        records: &RecordIter<'_>,
        fate: Fate,
        horizon_passed: bool,
        counts: &mut Counts,
    ) -> Result<Chosen, BatchError> {
        let mut chosen = Chosen::default();
        for record in records {
            let record = record?;
            let is_latest = match record.key {
                _ if fate != Fate::ByKey || record.offset >= self.map.end() => true,
                Some(key) => {
                    let latest = self.map.latest(key).is_none_or(|last| record.offset >= last);
                    let may_go = horizon_passed && self.unopened.get() == 0;
                    latest && (record.value.is_some() || !may_go)
                }
                None => {
                    counts.keyless += 1;
                    false
                }
            };
            chosen.stays.push(is_latest);
            chosen.tombstone |= is_latest && record.value.is_none();
            counts.kept += u64::from(is_latest);
        }
        Ok(chosen)
    }

    /// What stays of a batch that has no record left.
    fn without_records(&self, header: &BatchHeader) -> Result<Left, BatchError> {
        if !self.must_stay(header) {
            return Ok(Left::Nothing);
        }
        if header.record_count == 0 {
            return Ok(Left::Whole);
        }
        let empty = builder(header)
            .producer(header.producer_id, header.producer_epoch, header.base_sequence)
            .build_empty(header.last_offset_delta, header.max_timestamp)?;
        Ok(Left::Part(empty))
    }

    fn must_stay(&self, header: &BatchHeader) -> bool {
        if header.next_offset() == self.clean_end {
            return true;
        }
        let known = self.producers.of(header.producer_id).filter(|_| header.has_producer());
        known.is_some_and(|known| match known.last_offset {
            Some(last) => last == header.last_offset(),
            None => header.attributes.is_control() && known.epoch == header.producer_epoch,
        })
    }
}

#[derive(Default)]
struct Chosen {
    stays: Vec<bool>,
    tombstone: bool,
}

/// A builder with everything of a batch but its records.
fn builder(header: &BatchHeader) -> BatchBuilder {
    let builder = BatchBuilder::new()
        .base_offset(header.base_offset)
        .leader_epoch(header.partition_leader_epoch)
        .producer(header.producer_id, header.producer_epoch, header.base_sequence)
        .transactional(header.attributes.is_transactional())
        .control(header.attributes.is_control());
    match header.attributes.timestamp_type() {
        TimestampType::Create => builder,
        TimestampType::LogAppend => builder.log_append_time(header.max_timestamp),
    }
}

fn rebuilt(
    batch: &BatchView<'_>,
    records: &RecordIter<'_>,
    stays: &[bool],
    horizon: Option<i64>,
) -> Result<Vec<u8>, BatchError> {
    let header = batch.header();
    let mut builder = builder(header).codec(batch.codec()?, None).reach(header.last_offset_delta);
    if let Some(horizon) = horizon {
        builder = builder.delete_horizon(horizon);
    }
    for (record, stays) in records.iter().zip(stays) {
        let record = record?;
        if *stays {
            let delta = i32::try_from(record.offset - header.base_offset)
                .map_err(|_| BatchError::Build("its offsets do not fit"))?;
            builder.append_record(delta, &record);
        }
    }
    builder.build()
}

/// Decompresses a batch: what [`Rules::rewrite`] and the map of keys look into.
pub(crate) fn open<'a>(batch: &BatchView<'a>, most: usize) -> Result<RecordIter<'a>, BatchError> {
    let records: Cow<'a, [u8]> = batch.decompressed(most)?;
    RecordIter::new(batch.header(), records)
}

#[cfg(test)]
#[path = "rewrite_tests.rs"]
mod tests;
