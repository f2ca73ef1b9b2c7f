//! Whether a log is worth a pass, and what the pass may touch.
//!
//! Owns: the first dirty offset (the cleaner point, if it still makes sense), the bound behind which
//! nothing is cleaned, and the ratio that decides between logs.
//!
//! ```text
//! log start        cleaner point                 clean end             end
//!     | ... clean ... | ........ dirty ............ | ... not yet ....... |
//!                     keys are not looked at yet      active segment, undecided
//!                                                     transactions, younger than
//!                                                     min.compaction.lag.ms, not sealed
//! ```

use std::rc::Rc;

use reactor::{ALIGN, AlignedBuf};
use wire::records::BatchHeader;

use crate::core::{Core, State};
use crate::error::LogError;
use crate::files;
use crate::indexes;
use crate::segment::{NO_TIMESTAMP, Segment};
use crate::undecided::Kept;

/// What a pass over a log would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleanable {
    /// From here on keys were not looked at yet.
    pub first_dirty: i64,
    /// Batches from here on stay as they are.
    pub clean_end: i64,
    pub clean_bytes: u64,
    pub dirty_bytes: u64,
    /// The oldest dirty record is older than `max.compaction.lag.ms`.
    pub overdue: bool,
    /// `min.cleanable.dirty.ratio` of the topic.
    pub threshold: f64,
}

impl Cleanable {
    /// Dirty bytes among all that would be read: what decides between logs.
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.dirty_bytes;
        if total == 0 { 0.0 } else { self.dirty_bytes as f64 / total as f64 }
    }

    /// Whether a pass is worth it now.
    pub fn is_due(&self) -> bool {
        (self.overdue && self.dirty_bytes > 0) || self.ratio() > self.threshold
    }
}

/// `None` for a log that is not compacted, or not now because it is being copied.
pub(crate) async fn look(core: &Rc<Core>, now_ms: i64) -> Result<Option<Cleanable>, LogError> {
    core.check_open()?;
    let (config, first_dirty, end) = {
        let mut state = core.state.borrow_mut();
        if !state.config.compact || state.copies > 0 {
            return Ok(None);
        }
        let first_dirty = state.first_dirty(&core.name);
        let held = state.sealed_undecided();
        state.note_undecided(&core.name, Kept::FromCompaction(held), now_ms);
        (state.config.clone(), first_dirty, state.decided_end())
    };
    let lag_ms = config.min_compaction_lag_ms.max(0);
    let young = if lag_ms > 0 { now_ms.saturating_sub(lag_ms) } else { i64::MAX };
    let clean_end = end_before_young(core, first_dirty, end, young).await?;
    let overdue = match config.max_compaction_lag_ms.max(0) {
        i64::MAX => false,
        lag_ms => {
            let old = now_ms.saturating_sub(lag_ms);
            first_dirty_time(core, first_dirty).await?.is_some_and(|time| time < old)
        }
    };
    let state = core.state.borrow();
    let cleanable = state.segments.iter().filter(|s| s.next_offset <= clean_end);
    let (dirty, clean): (Vec<&Segment>, Vec<&Segment>) =
        cleanable.partition(|s| s.next_offset > first_dirty);
    let bytes = |segments: Vec<&Segment>| segments.iter().map(|s| u64::from(s.size)).sum();
    Ok(Some(Cleanable {
        first_dirty,
        clean_end: clean_end.max(first_dirty),
        clean_bytes: bytes(clean),
        dirty_bytes: bytes(dirty),
        overdue,
        threshold: config.min_cleanable_dirty_ratio,
    }))
}

impl State {
    /// The cleaner point, or the start of the log if that is not in the log any longer.
    fn first_dirty(&mut self, name: &str) -> i64 {
        let (start, end) = (self.log_start, self.log_end());
        match self.cleaner_point {
            Some(point) if (start..=end).contains(&point) => point,
            Some(point) => {
                // Retention moves the start of a log with both policies all the time.
                if point > end || !self.config.delete {
                    tracing::warn!(log = %name, point, start, end,
                        "the cleaner point is not in the log: all of it is dirty");
                }
                self.cleaner_point = Some(start);
                start
            }
            None => start,
        }
    }

    /// Where the sealed segments end whose transactions are all decided, and which a crash would
    /// not read again.
    fn decided_end(&mut self) -> i64 {
        let visible_end = self.visible_end;
        self.producers.advance_high_watermark(visible_end);
        let unstable = self.producers.first_unstable_offset().unwrap_or(i64::MAX);
        let stable = unstable.min(visible_end).min(self.recovery_point);
        let sealed = self.segments.iter().take_while(|s| s.sealed && s.next_offset <= stable);
        let active = self.segments.back().map(|s| s.base);
        sealed
            .take_while(|s| Some(s.base) != active)
            .last()
            .map_or(self.log_start, |s| s.next_offset)
    }
}

impl State {
    /// How many sealed segments compaction could look at but for transactions that are open.
    fn sealed_undecided(&self) -> usize {
        let unstable = self.producers.first_unstable_offset().unwrap_or(i64::MAX);
        let closed = self.segments.len().saturating_sub(1);
        let sealed = self.segments.iter().take(closed).filter(|s| s.sealed);
        sealed.filter(|s| s.next_offset > unstable && s.next_offset <= self.recovery_point).count()
    }
}

/// `end`, or the base of the first dirty segment before it that holds something younger than
/// `young`.
async fn end_before_young(
    core: &Rc<Core>,
    first_dirty: i64,
    end: i64,
    young: i64,
) -> Result<i64, LogError> {
    if young == i64::MAX {
        return Ok(end);
    }
    let dirty: Vec<i64> = {
        let state = core.state.borrow();
        let dirty = |s: &&Segment| s.next_offset > first_dirty && s.next_offset <= end;
        state.segments.iter().filter(dirty).map(|s| s.base).collect()
    };
    for base in dirty {
        let newest = match indexes::newest(core, base).await {
            Ok(newest) => newest.map_or(NO_TIMESTAMP, |newest| newest.timestamp),
            Err(LogError::Trimmed { .. }) => continue,
            Err(error) => return Err(error),
        };
        if newest > young {
            return Ok(base);
        }
    }
    Ok(end)
}

/// The time of the oldest dirty segment that is not written any more: that of its first batch.
async fn first_dirty_time(core: &Rc<Core>, first_dirty: i64) -> Result<Option<i64>, LogError> {
    let dirty: Vec<(i64, i64)> = {
        let state = core.state.borrow();
        let closed = state.segments.len().saturating_sub(1);
        let dirty = |s: &&Segment| s.next_offset > first_dirty && s.size > 0 && s.sealed;
        let times = |s: &Segment| (s.base, s.first_timestamp);
        state.segments.iter().take(closed).filter(dirty).map(times).collect()
    };
    let mut oldest: Option<i64> = None;
    for (base, known) in dirty {
        let time = match known {
            NO_TIMESTAMP => match first_timestamp(core, base).await {
                Ok(time) => time,
                Err(LogError::Trimmed { .. }) => continue,
                Err(error) => return Err(error),
            },
            known => known,
        };
        if time > 0 {
            oldest = Some(oldest.map_or(time, |oldest| oldest.min(time)));
        }
    }
    Ok(oldest)
}

/// Reads the time of a segment's first batch, and remembers it.
async fn first_timestamp(core: &Rc<Core>, base: i64) -> Result<i64, LogError> {
    let file = files::for_reading(core, base).await?;
    let (result, block) = file.read_at(AlignedBuf::with_capacity(ALIGN), 0).await;
    result.map_err(|error| core.storage_error("reading a segment", error))?;
    let time = BatchHeader::parse(&block).map_or(NO_TIMESTAMP, |header| header.max_timestamp);
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.first_timestamp = time;
    }
    Ok(time)
}
