//! Reading batches: a plan made under a borrow, executed on owned handles.
//!
//! Owns: which bytes answer a read. From memory they are handles on chunks; what is not there any
//! more is read by `cold.rs`. A read starts at the batch that contains the offset (in a hole: at the
//! one behind it), holds whole batches of one segment, and never passes the visible end. Nothing
//! here waits for data: long polls wait on `Log::changed`.

use std::rc::Rc;

use bytes::Bytes;
use reactor::ChunkSlice;
use smallvec::SmallVec;

use crate::cold::{ColdRead, Ended};
use crate::core::{Bookmark, Core, State};
use crate::error::{LogError, ReadError};
use crate::segment::Segment;
use crate::shared::Failing;

/// What to read. Holds its memory and its log; may be executed at any later time.
pub struct ReadPlan(Plan);

enum Plan {
    Empty,
    Cached {
        slices: SmallVec<[ChunkSlice; 2]>,
        bytes: usize,
    },
    /// Boxed: most plans are none, and they are moved about.
    Cold(Box<ColdRead>),
}

impl ReadPlan {
    /// Bytes that will come. For a cold read only what there is at most in the segment and the
    /// limits (but for a large first batch): what comes may be less, even nothing, or more where
    /// the segment ends in a hole; never more than was asked for.
    pub fn len_hint(&self) -> usize {
        match &self.0 {
            Plan::Empty => 0,
            Plan::Cached { bytes, .. } => *bytes,
            Plan::Cold(cold) => cold.max_bytes.min(cold.at_most),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.0, Plan::Empty)
    }

    /// Whether `execute` will touch no device.
    pub fn is_cached(&self) -> bool {
        !matches!(self.0, Plan::Cold(_))
    }

    /// The batches, back to back over the parts. A cold read waits for memory: whoever executes
    /// several plans and keeps what came lets only the first one wait.
    pub async fn execute(self) -> Result<Vec<Bytes>, LogError> {
        self.run(true).await
    }

    /// As [`ReadPlan::execute`], but nothing comes where the memory for it is in use.
    pub async fn execute_if_room(self) -> Result<Vec<Bytes>, LogError> {
        self.run(false).await
    }

    async fn run(self, waits: bool) -> Result<Vec<Bytes>, LogError> {
        let mut plan = self.0;
        loop {
            let cold = match plan {
                Plan::Empty => return Ok(Vec::new()),
                Plan::Cached { slices, .. } => {
                    return Ok(slices.iter().map(ChunkSlice::to_bytes).collect());
                }
                Plan::Cold(cold) => cold,
            };
            let (core, upper) = (Rc::clone(&cold.core), cold.upper);
            let (max_bytes, whole_first_batch) = (cold.max_bytes, cold.whole_first_batch);
            let ended = cold.execute(waits).await;
            if let Err(LogError::Storage(error)) = &ended {
                core.shared.note_failure(&core.dir(), &error.cause, Failing::Reading);
            }
            match ended? {
                Ended::With(batches) => return Ok(batches),
                Ended::GoOnAt(from) => {
                    match core.plan_read(from, upper, max_bytes, whole_first_batch) {
                        Ok(next) => plan = next.0,
                        // The log has lost what lies behind the hole since.
                        Err(ReadError::OutOfRange { .. }) => return Ok(Vec::new()),
                    }
                }
            }
        }
    }
}

impl Core {
    pub(crate) fn plan_read(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
        whole_first_batch: bool,
    ) -> Result<ReadPlan, ReadError> {
        let start = self.state.borrow().log_start;
        self.plan_read_behind(start, from, upper, max_bytes, whole_first_batch)
    }

    /// As [`Core::plan_read`], of all that the files have: records that were deleted, too, as long
    /// as their segment is there.
    pub(crate) fn plan_read_of_files(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
    ) -> Result<ReadPlan, ReadError> {
        let first = self.state.borrow().segments.front().map_or(i64::MAX, |segment| segment.base);
        self.plan_read_behind(first, from, upper, max_bytes, true)
    }

    fn plan_read_behind(
        &self,
        start: i64,
        from: i64,
        upper: i64,
        max_bytes: usize,
        whole_first_batch: bool,
    ) -> Result<ReadPlan, ReadError> {
        let mut state = self.state.borrow_mut();
        let end = state.log_end();
        if from < start || from > end {
            return Err(ReadError::OutOfRange { offset: from, start, end });
        }
        let upper = upper.min(state.visible_end);
        if from >= upper {
            return Ok(ReadPlan(Plan::Empty));
        }
        let limits = Limits { from, upper, max_bytes, whole_first_batch };
        if let Some(plan) = state.plan_cached(limits) {
            return Ok(ReadPlan(plan));
        }
        let Some(core) = self.me.upgrade() else { return Ok(ReadPlan(Plan::Empty)) };
        Ok(ReadPlan(state.plan_cold(core, limits)))
    }
}

#[derive(Clone, Copy)]
struct Limits {
    from: i64,
    upper: i64,
    max_bytes: usize,
    whole_first_batch: bool,
}

impl State {
    /// The place of the segment that answers a read from `from`: where a reader is known to have
    /// seen all of a segment, or nothing is left of it, that is the one behind. Compaction leaves
    /// such holes, and an answer without a batch would leave the reader where it is for good.
    pub(crate) fn place_to_read(&self, from: i64) -> Option<usize> {
        let mut place = self.place_of(from)?;
        while let Some(segment) = self.segments.get(place)
            && place + 1 < self.segments.len()
            && segment.full
            && (segment.size == 0 || self.stopped_at(from, segment) == Some(segment.size))
        {
            place += 1;
        }
        Some(place)
    }

    /// Where in a segment a reader has stopped that wants `from` next.
    fn stopped_at(&self, from: i64, segment: &Segment) -> Option<u32> {
        let reader = self.reader_at(from).filter(|reader| reader.file == segment.number);
        reader.map(|reader| reader.position).or_else(|| self.bookmark(from, segment.base))
    }

    /// A plan from memory; `None` if the first batch is not there.
    fn plan_cached(&mut self, limits: Limits) -> Option<Plan> {
        let segment = self.segments.get(self.place_to_read(limits.from)?)?;
        let bookmark = self.bookmark(limits.from, segment.base);
        let hint = bookmark.filter(|at| *at >= segment.tail.cached_from());
        let start = segment.cached_position_of(limits.from, hint)?;
        let bound = if limits.upper >= self.visible_end {
            segment.visible
        } else {
            segment.cached_end_before(start, limits.upper).min(segment.visible)
        };
        if bound <= start {
            return Some(Plan::Empty);
        }
        let mut end = bound;
        if (bound - start) as usize > limits.max_bytes {
            end = segment.cached_boundary(start, start + limits.max_bytes as u32);
            if end == start {
                if !limits.whole_first_batch {
                    return Some(Plan::Empty);
                }
                end = start + segment.tail.header_at(start)?.size_in_bytes() as u32;
            }
        }
        let slices = segment.tail.slices(start, end);
        let next = if end == segment.size {
            segment.next_offset
        } else {
            segment.tail.header_at(end)?.base_offset
        };
        let segment = segment.base;
        self.remember(Bookmark { offset: next, segment, position: end });
        Some(Plan::Cached { slices, bytes: (end - start) as usize })
    }

    fn plan_cold(&self, core: Rc<Core>, limits: Limits) -> Plan {
        let place = self.place_to_read(limits.from).unwrap_or(0);
        let Some(segment) = self.segments.get(place) else { return Plan::Empty };
        let known = match self.stopped_at(limits.from, segment) {
            // Its first batch is at or behind the offset.
            _ if segment.base >= limits.from => Some(0),
            known => known,
        };
        let start = known.or_else(|| {
            let indexes = segment.indexes.as_ref()?;
            Some(indexes.offsets.position_for(segment.relative(limits.from)))
        });
        let reader = self.reader_at(limits.from).map(|reader| reader.ahead);
        Plan::Cold(Box::new(ColdRead {
            core,
            segment: segment.base,
            file: segment.number,
            position: known,
            goes_on: reader.or(known.filter(|at| *at > 0).map(|_| 0)),
            renewed: false,
            from: limits.from,
            upper: limits.upper,
            max_bytes: limits.max_bytes,
            whole_first_batch: limits.whole_first_batch,
            at_most: segment.readable().saturating_sub(start.unwrap_or(0)) as usize,
        }))
    }
}
