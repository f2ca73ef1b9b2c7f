//! Reading batches: a plan made under a borrow, executed on owned handles.
//!
//! Owns: which bytes answer a read. From memory they are handles on chunks; from a file they are
//! one or two aligned direct reads, cut to whole batches. A read starts at the batch that contains
//! the offset, holds whole batches of one segment, and never passes the visible end. What comes from a
//! file is checked (`sound.rs`) before it is served; the memory of the tail is trusted. Nothing here
//! waits for data: long polls wait on `Log::changed`.

use std::rc::Rc;

use bytes::Bytes;
use reactor::{AlignedBuf, ChunkSlice};
use smallvec::SmallVec;
use wire::records::BatchHeader;
use wire::records::header::HEADER_BYTES;

use crate::ahead;
use crate::core::{Bookmark, Core, State};
use crate::error::{LogError, ReadError};
use crate::files;
use crate::indexes;
use crate::sound::{self, Place, Verdict};
use crate::tail::{block_ceiling, block_floor};

/// The longest direct read but for a single batch that is larger.
const LONGEST_READ: usize = 1 << 20;
/// What a cold read takes beyond the bytes asked for, to find the batch after an index entry.
const SEARCH_BYTES: usize = 8 << 10;

/// What to read. Holds its memory and its log; may be executed at any later time.
pub struct ReadPlan(Plan);

enum Plan {
    Empty,
    Cached { slices: SmallVec<[ChunkSlice; 2]>, bytes: usize },
    Cold(ColdRead),
}

struct ColdRead {
    core: Rc<Core>,
    /// As it was when the segment and the bookmark were found: see `State::replaced`.
    replaced: u64,
    segment: i64,
    /// Where a reader before this one stopped: the start of the wanted batch.
    bookmark: Option<u32>,
    /// The index of the segment was made anew for this read.
    renewed: bool,
    from: i64,
    /// Batches that start here or later are left out.
    upper: i64,
    max_bytes: usize,
    whole_first_batch: bool,
    /// Upper bound of what may come.
    at_most: usize,
}

impl ReadPlan {
    /// Bytes that will come; for a cold read an upper bound (but for a large first batch).
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

    /// The batches, back to back over the parts.
    pub async fn execute(self) -> Result<Vec<Bytes>, LogError> {
        match self.0 {
            Plan::Empty => Ok(Vec::new()),
            Plan::Cached { slices, .. } => Ok(slices.iter().map(ChunkSlice::to_bytes).collect()),
            Plan::Cold(cold) => cold.execute().await,
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
        let mut state = self.state.borrow_mut();
        let (start, end) = (state.log_start, state.log_end());
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
    fn place_to_read(&self, from: i64) -> Option<usize> {
        let mut place = self.place_of(from)?;
        while let Some(segment) = self.segments.get(place)
            && place + 1 < self.segments.len()
            && segment.full
            && (segment.size == 0 || self.bookmark(from, segment.base) == Some(segment.size))
        {
            place += 1;
        }
        Some(place)
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
        let bookmark = self.bookmark(limits.from, segment.base);
        let start = bookmark.or_else(|| {
            let indexes = segment.indexes.as_ref()?;
            Some(indexes.offsets.position_for(segment.relative(limits.from)))
        });
        Plan::Cold(ColdRead {
            core,
            replaced: self.replaced,
            segment: segment.base,
            bookmark,
            renewed: false,
            from: limits.from,
            upper: limits.upper,
            max_bytes: limits.max_bytes,
            whole_first_batch: limits.whole_first_batch,
            at_most: (segment.readable() - start.unwrap_or(0).min(segment.readable())) as usize,
        })
    }
}

enum Searched {
    Found(Vec<Bytes>),
    Nothing,
    /// With whether the index may be at fault.
    Failed(LogError, bool),
}

/// Whole batches found in a window of a file.
enum Picked {
    /// From and to, as offsets in the window, and the offset behind.
    Range(usize, usize, i64),
    /// The batch that is wanted starts at this file position and is not whole in the window.
    Need {
        position: u32,
        bytes: usize,
        expected: Option<i64>,
    },
    /// The segment has no such batch: the offset lies in a hole at its end.
    Nothing,
    Corrupt {
        position: u32,
        problem: String,
    },
    /// The index led to a batch behind the wanted one.
    Misled,
}

impl ColdRead {
    async fn execute(mut self) -> Result<Vec<Bytes>, LogError> {
        loop {
            if self.core.replaced() != self.replaced {
                self.find_anew()?;
            }
            let file = match files::for_reading(&self.core, self.segment).await {
                Err(LogError::Trimmed { .. }) if self.core.replaced() != self.replaced => continue,
                file => file?,
            };
            let start = self.start().await;
            // What was opened and what was looked up may be of two different files.
            if self.core.replaced() != self.replaced {
                continue;
            }
            let (start, ends_with) = start?;
            let Some((limit, next_segment)) = self.bounds() else {
                let start = self.core.state.borrow().log_start;
                return Err(LogError::Trimmed { offset: self.from, start });
            };
            let bytes = self.max_bytes.min(LONGEST_READ) + SEARCH_BYTES;
            let window = Window { start, bytes, limit, ends_with };
            match self.search(&file, window).await? {
                Searched::Found(batches) => return Ok(batches),
                Searched::Nothing => {
                    // Compaction may leave nothing between the offset and the end of its segment.
                    let Some(next) = next_segment.filter(|next| *next < self.upper) else {
                        return Ok(Vec::new());
                    };
                    // What is there may be in memory only: plan anew.
                    let (upper, max, whole) = (self.upper, self.max_bytes, self.whole_first_batch);
                    let plan = self.core.plan_read(next, upper, max, whole);
                    let plan = plan.map_err(|ReadError::OutOfRange { start, .. }| {
                        LogError::Trimmed { offset: next, start }
                    });
                    return Box::pin(plan?.execute()).await;
                }
                Searched::Failed(error, by_index) => {
                    if !by_index || self.renewed || self.is_known_damage() {
                        self.note_damage(start, &error);
                        return Err(error);
                    }
                    indexes::renew(&self.core, self.segment).await?;
                    self.renewed = true;
                }
            }
        }
    }

    /// Segments were replaced since the plan was made.
    fn find_anew(&mut self) -> Result<(), LogError> {
        let state = self.core.state.borrow();
        let place = state.place_to_read(self.from).filter(|_| self.from >= state.log_start);
        let Some(segment) = place.and_then(|place| state.segments.get(place)) else {
            return Err(LogError::Trimmed { offset: self.from, start: state.log_start });
        };
        self.segment = segment.base;
        self.bookmark = None;
        self.replaced = state.replaced;
        Ok(())
    }

    /// A batch start at or before the wanted one, and the last offset of that batch if the index
    /// says so.
    async fn start(&self) -> Result<(u32, Option<i64>), LogError> {
        if let Some(start) = self.bookmark {
            return Ok((start, None));
        }
        let indexes = indexes::load(&self.core, self.segment).await?;
        let relative = self.from.saturating_sub(self.segment).clamp(0, u32::MAX.into());
        let entry = indexes.offsets.entry_for(relative as u32);
        Ok(entry.map_or((0, None), |entry| {
            (entry.position, Some(self.segment + i64::from(entry.offset)))
        }))
    }

    async fn search(&self, file: &reactor::File, mut window: Window) -> Result<Searched, LogError> {
        let mut expected = self.expected_at(window.start);
        if let Some((window, buf)) = ahead::take(&self.core, self.segment, window.start).await
            && let Picked::Range(from, to, next) = self.pick(&buf, &window, expected)
        {
            return Ok(Searched::Found(self.finish(buf, from, to, &window, next)));
        }
        loop {
            let buf = window.read(&self.core, file).await?;
            match self.pick(&buf, &window, expected) {
                Picked::Range(from, to, next) => {
                    return Ok(Searched::Found(self.finish(buf, from, to, &window, next)));
                }
                Picked::Need { position, bytes, expected: next } => {
                    let at_start = position <= window.start;
                    if at_start && bytes <= window.bytes {
                        let problem = "the file ends before the batch does".to_owned();
                        return Ok(Searched::Failed(self.corrupt(position, problem), false));
                    }
                    let bytes = self.max_bytes.min(LONGEST_READ).max(bytes);
                    let ends_with = window.ends_with.filter(|_| at_start);
                    window = Window { start: position, bytes, limit: window.limit, ends_with };
                    expected = next;
                }
                Picked::Nothing => return Ok(Searched::Nothing),
                Picked::Corrupt { position, problem } => {
                    let by_index = window.ends_with.is_some() && position == window.start;
                    return Ok(Searched::Failed(self.corrupt(position, problem), by_index));
                }
                Picked::Misled => {
                    let problem = format!("the index leads past offset {}", self.from);
                    return Ok(Searched::Failed(self.corrupt(window.start, problem), true));
                }
            }
        }
    }

    /// How far the segment may be read, and the segment after it.
    fn bounds(&self) -> Option<(u32, Option<i64>)> {
        let state = self.core.state.borrow();
        let place = state.place_of(self.segment)?;
        let segment = state.segments.get(place).filter(|s| s.base == self.segment)?;
        Some((segment.readable(), state.segments.get(place + 1).map(|s| s.base)))
    }

    fn pick(&self, buf: &AlignedBuf, window: &Window, expected: Option<i64>) -> Picked {
        let skip = window.skip();
        let have = buf.len().min((window.limit - block_floor(window.start)) as usize);
        let bytes = buf.get(..have).unwrap_or_default();
        let position = |at: usize| window.start + (at - skip) as u32;
        let mut expected = expected;
        let (mut at, mut first) = (skip, None);
        loop {
            let taken = first.map_or(0, |first| at - first);
            let header = match bytes.get(at..at + HEADER_BYTES).map(BatchHeader::parse) {
                Some(Ok(header)) => header,
                Some(Err(error)) if first.is_none() => {
                    return Picked::Corrupt { position: position(at), problem: error.to_string() };
                }
                Some(Err(_)) => break,
                None if first.is_some() => break,
                None if position(at) >= window.limit => return Picked::Nothing,
                None => return self.need_whole(position(at), HEADER_BYTES, expected, window),
            };
            let size = header.size_in_bytes();
            if at == skip && window.ends_with.is_some() && header.base_offset > self.from {
                return Picked::Misled;
            }
            let is_before = first.is_none() && header.last_offset() < self.from;
            let ends_with = window.ends_with.filter(|_| at == skip);
            let place = Place { expected, ends_with, following: None };
            let is_last = position(at) as usize + size >= window.limit as usize;
            let rest = bytes.get(at..).unwrap_or_default();
            match (sound::check(&header, rest, place, is_last, !is_before), first) {
                (Verdict::Sound, _) => {}
                (Verdict::Need(more), None) => {
                    return self.need_whole(position(at), more, expected, window);
                }
                (Verdict::Unsound(problem), None) => {
                    return Picked::Corrupt { position: position(at), problem };
                }
                (Verdict::Need(_) | Verdict::Unsound(_), Some(_)) => break,
            }
            if is_before {
                if is_last && position(at) as usize + size > window.limit as usize {
                    let problem = format!("a batch of {size} bytes passes the end of the segment");
                    return Picked::Corrupt { position: position(at), problem };
                }
                at += size;
                expected = Some(header.next_offset());
                continue;
            }
            if header.base_offset >= self.upper {
                break;
            }
            let fits = taken + size <= self.max_bytes;
            if !fits && (first.is_some() || !self.whole_first_batch) {
                break;
            }
            if at + size > bytes.len() {
                if first.is_some() {
                    break;
                }
                return self.need_whole(position(at), size, expected, window);
            }
            first.get_or_insert(at);
            at += size;
            expected = Some(header.next_offset());
        }
        let next = expected.unwrap_or(self.from);
        Picked::Range(first.unwrap_or(at), at, next)
    }

    fn need_whole(
        &self,
        position: u32,
        size: usize,
        expected: Option<i64>,
        window: &Window,
    ) -> Picked {
        if u64::from(position) + size as u64 > u64::from(window.limit) {
            let problem = format!("a batch of {size} bytes passes the end of the segment");
            return Picked::Corrupt { position, problem };
        }
        Picked::Need { position, bytes: size, expected }
    }

    /// The lowest offset that a batch at this position may have.
    fn expected_at(&self, position: u32) -> Option<i64> {
        match self.bookmark {
            _ if position == 0 => Some(self.segment),
            Some(bookmark) if bookmark == position => Some(self.from),
            _ => None,
        }
    }

    fn is_known_damage(&self) -> bool {
        let state = self.core.state.borrow();
        state.damage.is_some_and(|(segment, _)| segment == self.segment)
    }

    /// Says once where the damage is; a reader asks again and again.
    fn note_damage(&self, start: u32, error: &LogError) {
        let LogError::Corrupt { position, .. } = error else { return };
        let at = (self.segment, u32::try_from(*position).unwrap_or(start));
        if self.core.state.borrow_mut().damage.replace(at) != Some(at) {
            tracing::error!(log = %self.core.name, offset = self.from, "not served: {error}");
        }
    }

    fn finish(
        &self,
        mut buf: AlignedBuf,
        from: usize,
        to: usize,
        window: &Window,
        next: i64,
    ) -> Vec<Bytes> {
        if from == to {
            return Vec::new();
        }
        buf.set_len(to);
        // Positions in a file that was replaced meanwhile say nothing of the new one.
        if self.core.replaced() != self.replaced {
            return vec![buf.freeze().slice(from..to)];
        }
        let position = block_floor(window.start) + to as u32;
        self.core.state.borrow_mut().remember(Bookmark {
            offset: next,
            segment: self.segment,
            position,
        });
        if self.bookmark.is_some() {
            let bytes = self.max_bytes.min(LONGEST_READ) + SEARCH_BYTES;
            ahead::start(&self.core, self.segment, position, bytes);
        }
        vec![buf.freeze().slice(from..to)]
    }

    fn corrupt(&self, position: u32, problem: String) -> LogError {
        let file = format!("{}/{:020}.log", self.core.name, self.segment);
        LogError::Corrupt { file, position: u64::from(position), problem }
    }
}

/// A stretch of a file that starts at a batch and is read block by block.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) start: u32,
    pub(crate) bytes: usize,
    /// No byte from here on counts.
    pub(crate) limit: u32,
    /// That a batch starts at `start` is known from the index alone, and that it ends with this
    /// offset.
    pub(crate) ends_with: Option<i64>,
}

impl Window {
    fn skip(&self) -> usize {
        (self.start - block_floor(self.start)) as usize
    }

    pub(crate) async fn read(
        &self,
        core: &Rc<Core>,
        file: &reactor::File,
    ) -> Result<AlignedBuf, LogError> {
        let end = (u64::from(self.start) + self.bytes as u64).min(u64::from(self.limit)) as u32;
        let from = block_floor(self.start);
        let buf = AlignedBuf::with_capacity((block_ceiling(end.max(from + 1)) - from) as usize);
        let (result, buf) = file.read_at(buf, u64::from(from)).await;
        result.map_err(|error| core.storage_error("reading a segment", error))?;
        Ok(buf)
    }
}
