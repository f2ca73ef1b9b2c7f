//! Reads of what is no longer in memory: aligned direct reads, cut to whole batches.
//!
//! Owns: finding a batch in a segment file and the bytes that answer a read. A reader that comes
//! for the first time gets one read of its own; one that goes on where it stopped is served from
//! pieces that were read ahead of it (`ahead.rs`). What comes from a file is checked (`sound.rs`)
//! before it is served. The start comes from where a reader stopped or
//! from the index, which is checked against the batch it leads to and made anew if it lies. All
//! memory is granted by the shard's budget for backfill before it is taken.

use std::rc::Rc;

use bytes::Bytes;
use reactor::{AlignedBuf, File};
use wire::records::header::HEADER_BYTES;

use crate::ahead;
use crate::backfill::{Grant, hold};
use crate::core::{Core, Reader};
use crate::error::LogError;
use crate::files;
use crate::indexes;
use crate::sound::{self, Verdict};
use crate::span::Span;
use crate::tail::{block_ceiling, block_floor};

/// The longest read but for a single batch that is larger.
const LONGEST_READ: usize = 1 << 20;
/// What a read takes beyond the bytes asked for, to find the batch after an index entry.
const SEARCH_BYTES: usize = 8 << 10;

pub(crate) struct ColdRead {
    pub(crate) core: Rc<Core>,
    pub(crate) segment: i64,
    /// Number of its file when the position was found.
    pub(crate) file: u64,
    /// The start of the wanted batch, where it is known.
    pub(crate) position: Option<u32>,
    /// Someone stopped exactly here before, and was read ahead of by so many bytes.
    pub(crate) goes_on: Option<u32>,
    /// The index of the segment was made anew for this read.
    pub(crate) renewed: bool,
    pub(crate) from: i64,
    /// Batches that start here or later are left out.
    pub(crate) upper: i64,
    pub(crate) max_bytes: usize,
    pub(crate) whole_first_batch: bool,
    /// Bytes between the start and the end of the segment.
    pub(crate) at_most: usize,
}

/// How a cold read ended.
pub(crate) enum Ended {
    With(Vec<Bytes>),
    /// The segment has nothing at or behind the offset: go on at the next one.
    GoOnAt(i64),
}

enum Searched {
    Found(Vec<Bytes>),
    Nothing,
    /// With whether the index may be at fault.
    Failed(LogError, bool),
    /// Compaction put another file in its place meanwhile.
    Replaced,
}

/// Whole batches found in what was read.
enum Picked {
    /// Positions from and to, and the offset behind.
    Range(u32, u32, i64),
    /// The batch that is wanted starts here and is not whole in what was read.
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

/// The segment as it is when the read starts.
#[derive(Clone, Copy)]
struct Place {
    /// Number of its file.
    file: u64,
    /// How far it may be read.
    limit: u32,
    next_segment: Option<i64>,
}

impl ColdRead {
    pub(crate) async fn execute(mut self, waits: bool) -> Result<Ended, LogError> {
        loop {
            let Some(place) = self.place() else {
                self.find_anew()?;
                continue;
            };
            if std::mem::replace(&mut self.file, place.file) != place.file {
                self.forget_position();
            }
            let file = files::for_reading(&self.core, self.segment).await;
            let start = self.start().await;
            // Compaction puts other files in the place of old ones: what was opened and what was
            // looked up may be of two different files.
            if !self.is_still(place) {
                self.forget_position();
                continue;
            }
            let (file, (start, ends_with)) = (file?, start?);
            match self.search(&file, place, (start, ends_with), waits).await? {
                Searched::Found(batches) => return Ok(Ended::With(batches)),
                Searched::Nothing => {
                    // Compaction may leave nothing between the offset and the end of its segment,
                    // and a damaged file nothing at all.
                    return Ok(match place.next_segment.filter(|next| *next < self.upper) {
                        Some(next) => Ended::GoOnAt(next.max(self.from)),
                        None => Ended::With(Vec::new()),
                    });
                }
                Searched::Failed(error, by_index) => {
                    if !by_index || self.renewed || self.is_known_damage() {
                        self.note_damage(start, &error);
                        return Err(error);
                    }
                    indexes::renew(&self.core, self.segment).await?;
                    self.renewed = true;
                }
                Searched::Replaced => self.forget_position(),
            }
        }
    }

    /// The segment is no longer there; another one may have its offsets now.
    fn find_anew(&mut self) -> Result<(), LogError> {
        let state = self.core.state.borrow();
        let place = state.place_to_read(self.from).filter(|_| self.from >= state.log_start);
        let Some(segment) = place.and_then(|place| state.segments.get(place)) else {
            return Err(LogError::Trimmed { offset: self.from, start: state.log_start });
        };
        self.segment = segment.base;
        drop(state);
        self.forget_position();
        Ok(())
    }

    fn forget_position(&mut self) {
        self.position = None;
        self.goes_on = None;
    }

    fn is_still(&self, place: Place) -> bool {
        self.place().is_some_and(|now| now.file == place.file)
    }

    fn place(&self) -> Option<Place> {
        let state = self.core.state.borrow();
        let place = state.place_of(self.segment)?;
        let segment = state.segments.get(place).filter(|s| s.base == self.segment)?;
        Some(Place {
            file: segment.number,
            limit: segment.readable(),
            next_segment: state.segments.get(place + 1).map(|s| s.base),
        })
    }

    /// A batch start at or before the wanted one, and the last offset of that batch if the index
    /// says so.
    async fn start(&self) -> Result<(u32, Option<i64>), LogError> {
        if let Some(start) = self.position {
            return Ok((start, None));
        }
        let indexes = indexes::load(&self.core, self.segment).await?;
        let relative = self.from.saturating_sub(self.segment).clamp(0, u32::MAX.into());
        let entry = indexes.offsets.entry_for(relative as u32);
        Ok(entry.map_or((0, None), |entry| {
            (entry.position, Some(self.segment + i64::from(entry.offset)))
        }))
    }

    async fn search(
        &self,
        file: &File,
        place: Place,
        (start, ends_with): (u32, Option<i64>),
        waits: bool,
    ) -> Result<Searched, LogError> {
        let backfill = self.core.shared.backfill();
        let ahead = self.goes_on.is_some() || backfill.has(place.file, start);
        let bytes = self.max_bytes.min(LONGEST_READ) + if ahead { 0 } else { SEARCH_BYTES };
        let mut window = Window { start, bytes, limit: place.limit, ends_with };
        let mut expected = self.expected_at(start);
        let mut alone = !ahead;
        let first = match ahead {
            true => {
                let range = start..window.end();
                ahead::read(&self.core, (self.segment, place.file), file, range, waits).await?
            }
            false => window.read(&self.core, file, waits).await?,
        };
        let Some(mut span) = first else { return Ok(Searched::Found(Vec::new())) };
        loop {
            if !self.is_still(place) {
                return Ok(Searched::Replaced);
            }
            match self.pick(&span, &window, expected) {
                Picked::Range(from, to, next) => {
                    return Ok(Searched::Found(self.finish(&span, place, from, to, next)));
                }
                Picked::Need { position, bytes, expected: next } => {
                    let at_start = position <= window.start;
                    if alone && at_start && bytes <= window.bytes {
                        let problem = "the file ends before the batch does".to_owned();
                        return Ok(Searched::Failed(self.corrupt(position, problem), false));
                    }
                    alone = true;
                    drop(std::mem::take(&mut span));
                    let ends_with = window.ends_with.filter(|_| at_start);
                    window = Window { start: position, bytes, limit: window.limit, ends_with };
                    expected = next;
                    let most = self.max_bytes.min(LONGEST_READ);
                    span = window.read_anyway(&self.core, file, most).await?;
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

    fn pick(&self, span: &Span, window: &Window, expected: Option<i64>) -> Picked {
        let mut expected = expected;
        let (mut at, mut first) = (window.start, None);
        let end = span.end().min(window.limit);
        loop {
            let taken = first.map_or(0, |first| (at - first) as usize);
            let header = match span.header_at(at).filter(|_| at < end) {
                Some(Ok(header)) => header,
                Some(Err(error)) if first.is_none() => {
                    return Picked::Corrupt { position: at, problem: error.to_string() };
                }
                Some(Err(_)) => break,
                None if first.is_some() => break,
                None if at >= window.limit => return Picked::Nothing,
                None => return self.need_whole(at, HEADER_BYTES, expected, window),
            };
            let size = header.size_in_bytes();
            let after = at.saturating_add(size as u32);
            if at == window.start && window.ends_with.is_some() && header.base_offset > self.from {
                return Picked::Misled;
            }
            let is_before = first.is_none() && header.last_offset() < self.from;
            let ends_with = window.ends_with.filter(|_| at == window.start);
            let place = sound::Place { expected, ends_with, following: None };
            let is_last = after >= window.limit;
            match (sound::check(&header, (span, at), place, is_last, !is_before), first) {
                (Verdict::Sound, _) => {}
                (Verdict::Need(more), None) => return self.need_whole(at, more, expected, window),
                (Verdict::Unsound(problem), None) => {
                    return Picked::Corrupt { position: at, problem };
                }
                (Verdict::Need(_) | Verdict::Unsound(_), Some(_)) => break,
            }
            if is_before {
                if after > window.limit {
                    let problem = format!("a batch of {size} bytes passes the end of the segment");
                    return Picked::Corrupt { position: at, problem };
                }
                at = after;
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
            if after > end {
                if first.is_some() {
                    break;
                }
                return self.need_whole(at, size, expected, window);
            }
            first.get_or_insert(at);
            at = after;
            expected = Some(header.next_offset());
        }
        Picked::Range(first.unwrap_or(at), at, expected.unwrap_or(self.from))
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
        match self.position {
            _ if position == 0 => Some(self.segment),
            Some(known) if known == position => Some(self.from),
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

    fn finish(&self, span: &Span, place: Place, from: u32, to: u32, next: i64) -> Vec<Bytes> {
        if from == to {
            return Vec::new();
        }
        let ahead = self.goes_on.map_or(0, ahead::grow);
        let reader =
            Reader { offset: next, segment: self.segment, file: place.file, position: to, ahead };
        self.core.state.borrow_mut().note_reader(self.from, reader);
        ahead::start(&self.core, reader);
        span.slices(from, to)
    }

    fn corrupt(&self, position: u32, problem: String) -> LogError {
        let file = format!("{}/{:020}.log", self.core.name, self.segment);
        LogError::Corrupt { file, position: u64::from(position), problem }
    }
}

/// A stretch of a file that starts at a batch and is read block by block.
#[derive(Clone, Copy)]
struct Window {
    start: u32,
    bytes: usize,
    /// No byte from here on counts.
    limit: u32,
    /// That a batch starts at `start` is known from the index alone, and that it ends with this
    /// offset.
    ends_with: Option<i64>,
}

impl Window {
    fn end(&self) -> u32 {
        (u64::from(self.start) + self.bytes as u64).min(u64::from(self.limit)) as u32
    }

    /// `None` if there is no memory and it may not wait for it.
    async fn read(
        &self,
        core: &Rc<Core>,
        file: &File,
        waits: bool,
    ) -> Result<Option<Span>, LogError> {
        let backfill = core.shared.backfill();
        let grant = match waits {
            true => backfill.grant(self.size()).await,
            false => match backfill.try_grant(self.size()) {
                Some(grant) => grant,
                None => return Ok(None),
            },
        };
        self.read_with(core, file, grant).await.map(Some)
    }

    /// The rest of a read that has begun does not wait: it may hold what others wait for.
    /// Where there is room it takes up to `most` bytes.
    async fn read_anyway(
        &mut self,
        core: &Rc<Core>,
        file: &File,
        most: usize,
    ) -> Result<Span, LogError> {
        let backfill = core.shared.backfill();
        let whole = Window { bytes: self.bytes.max(most), ..*self };
        let grant = match backfill.try_grant(whole.size()) {
            Some(grant) => {
                *self = whole;
                grant
            }
            None => backfill.overdraw(self.size()),
        };
        self.read_with(core, file, grant).await
    }

    fn size(&self) -> usize {
        let from = block_floor(self.start);
        (block_ceiling(self.end().max(from + 1)) - from) as usize
    }

    async fn read_with(
        &self,
        core: &Rc<Core>,
        file: &File,
        grant: Grant,
    ) -> Result<Span, LogError> {
        let (from, size) = (block_floor(self.start), self.size());
        let (result, buf) = file.read_at(AlignedBuf::with_capacity(size), u64::from(from)).await;
        result.map_err(|error| core.storage_error("reading a segment", error))?;
        Ok(Span::of(from, hold(buf, grant)))
    }
}
