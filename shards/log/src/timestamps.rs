//! From timestamps to offsets.
//!
//! Owns: the search of ListOffsets by time. It narrows down by the largest timestamps of the
//! segments and their time indexes, then reads batches like any consumer and looks into the
//! records of one of them. It never reads past the bound the caller gives.

use std::rc::Rc;

use wire::records::{BatchHeader, BatchView, TimestampType, batches};

use crate::core::Core;
use crate::error::{LogError, ReadError};
use crate::indexes;
use crate::segment::NO_TIMESTAMP;

/// Bytes read at a time while looking for a batch.
const SEARCH_READ: usize = 256 << 10;
/// Bound of one batch's records when decompressed; beyond it the batch's first record answers.
const DECOMPRESSED_LIMIT: usize = 64 << 20;

/// A record found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAt {
    pub offset: i64,
    pub timestamp: i64,
    /// Leader epoch of its batch.
    pub epoch: i32,
}

pub(crate) async fn first_at_or_after(
    core: &Rc<Core>,
    timestamp: i64,
    upper: i64,
) -> Result<Option<OffsetAt>, LogError> {
    loop {
        let replaced = core.replaced();
        let found = first_once(core, timestamp, upper).await;
        // A segment that was joined to another one may have been left out.
        if core.replaced() == replaced {
            return found;
        }
    }
}

async fn first_once(
    core: &Rc<Core>,
    timestamp: i64,
    upper: i64,
) -> Result<Option<OffsetAt>, LogError> {
    let bases: Vec<i64> = core.state.borrow().segments.iter().map(|s| s.base).collect();
    for base in bases {
        let newest = match indexes::newest(core, base).await {
            Ok(newest) => newest.map_or(NO_TIMESTAMP, |n| n.timestamp),
            Err(LogError::Trimmed { .. }) => continue,
            Err(error) => return Err(error),
        };
        if newest < timestamp {
            continue;
        }
        let start = start_of_search(core, base, timestamp).await?;
        let wanted = |batch: &BatchView<'_>| batch.header().max_timestamp >= timestamp;
        let bounds = Bounds { start, upper, deleted: false };
        let found = search(core, bounds, wanted, |batch, from| {
            first_record(batch, |offset, time| offset >= from && time >= timestamp)
        });
        if let Some(found) = found.await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Where to start looking in a segment: what its time index says, if the batch that the entry
/// names agrees; an index that lies is made anew.
async fn start_of_search(core: &Rc<Core>, base: i64, timestamp: i64) -> Result<i64, LogError> {
    for _ in 0..2 {
        let indexes = indexes::load(core, base).await?;
        let Some(entry) = indexes.times.entry_before(timestamp) else { return Ok(base) };
        let offset = base + i64::from(entry.offset);
        if offset < core.state.borrow().log_start {
            return Ok(offset);
        }
        let Ok(plan) = core.plan_read(offset, i64::MAX, 1, true) else { return Ok(base) };
        let batch = join(&plan.execute().await?);
        let named = batches(&batch).next().and_then(Result::ok).map(|b| *b.header());
        let agrees =
            |h: &BatchHeader| h.last_offset() == offset && h.max_timestamp == entry.timestamp;
        // A batch that is not visible yet cannot be asked.
        if batch.is_empty() || named.as_ref().is_some_and(agrees) {
            return Ok(offset);
        }
        indexes::renew(core, base).await?;
    }
    Ok(base)
}

/// The first record with the largest timestamp. As in Kafka, one that DeleteRecords has taken away
/// still counts while its segment is there.
pub(crate) async fn of_newest(core: &Rc<Core>, upper: i64) -> Result<Option<OffsetAt>, LogError> {
    loop {
        let replaced = core.replaced();
        let found = newest_once(core, upper).await;
        if core.replaced() == replaced {
            return found;
        }
    }
}

async fn newest_once(core: &Rc<Core>, upper: i64) -> Result<Option<OffsetAt>, LogError> {
    let bases: Vec<i64> = core.state.borrow().segments.iter().map(|s| s.base).collect();
    let mut newest: Option<crate::segment::Newest> = None;
    for base in bases {
        let candidate = match indexes::newest(core, base).await {
            Ok(Some(candidate)) => candidate,
            Ok(None) | Err(LogError::Trimmed { .. }) => continue,
            Err(error) => return Err(error),
        };
        if newest.is_none_or(|n| candidate.timestamp > n.timestamp) {
            newest = Some(candidate);
        }
    }
    let Some(newest) = newest.filter(|n| n.timestamp != NO_TIMESTAMP) else { return Ok(None) };
    let wanted = |batch: &BatchView<'_>| batch.header().max_timestamp == newest.timestamp;
    search(core, Bounds { start: newest.offset, upper, deleted: true }, wanted, |batch, _| {
        first_record(batch, |_, time| time == newest.timestamp)
    })
    .await
}

/// What is searched: from one offset to another, records that were deleted in front of the log's
/// start but are still in its files among them or not.
#[derive(Clone, Copy)]
struct Bounds {
    start: i64,
    upper: i64,
    deleted: bool,
}

/// Reads from the first offset on until a batch is `wanted` and `record` finds what it looks for in
/// it.
async fn search(
    core: &Rc<Core>,
    Bounds { start, upper, deleted }: Bounds,
    wanted: impl Fn(&BatchView<'_>) -> bool,
    record: impl Fn(&BatchView<'_>, i64) -> Option<(i64, i64)>,
) -> Result<Option<OffsetAt>, LogError> {
    let mut from = start;
    loop {
        let log_start = core.state.borrow().log_start;
        let planned = if deleted {
            core.plan_read_of_files(from, upper, SEARCH_READ)
        } else {
            from = from.max(log_start);
            core.plan_read(from, upper, SEARCH_READ, true)
        };
        let plan = match planned {
            Ok(plan) if !plan.is_empty() => plan,
            Ok(_) | Err(ReadError::OutOfRange { .. }) => return Ok(None),
        };
        let parts = plan.execute().await?;
        let joined = join(&parts);
        let before = from;
        for batch in batches(&joined).map_while(Result::ok) {
            from = batch.header().next_offset();
            if !wanted(&batch) {
                continue;
            }
            if let Some((offset, timestamp)) = record(&batch, log_start)
                && offset < upper
            {
                let epoch = batch.header().partition_leader_epoch;
                return Ok(Some(OffsetAt { offset, timestamp, epoch }));
            }
        }
        if from == before {
            return Ok(None);
        }
    }
}

/// A batch may lie over two chunks; records are looked at in one piece.
fn join(parts: &[bytes::Bytes]) -> bytes::Bytes {
    match parts {
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

fn first_record(batch: &BatchView<'_>, matches: impl Fn(i64, i64) -> bool) -> Option<(i64, i64)> {
    let header = batch.header();
    let stamped = header.attributes.timestamp_type() == TimestampType::LogAppend;
    // Where compaction has taken records out, an offset of the batch may be none of a record.
    let is_dense = header.record_count == header.last_offset_delta.saturating_add(1);
    if stamped && is_dense {
        let time = header.max_timestamp;
        let mut offsets = header.base_offset..=header.last_offset();
        return offsets.find(|offset| matches(*offset, time)).map(|offset| (offset, time));
    }
    let records = match batch.records(DECOMPRESSED_LIMIT) {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!("records of a batch at {} cannot be read: {error}", header.base_offset);
            return Some((header.base_offset, header.max_timestamp));
        }
    };
    records
        .iter()
        .map_while(Result::ok)
        .map(|record| {
            (record.offset, if stamped { header.max_timestamp } else { record.timestamp })
        })
        .find(|(offset, time)| matches(*offset, *time))
}
