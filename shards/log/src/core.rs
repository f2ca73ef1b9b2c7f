//! The state of one log and the cell it lives in.
//!
//! Owns: [`LogState`] (segments, offsets, epochs, producers, who waits) and `Core`, which every
//! handle and background task of the log shares. Lives on one shard. A borrow of the state never
//! lives across an await: operations plan under the borrow and execute on what they took out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use reactor::sync::{Notify, Semaphore};
use wire::Uuid;

use crate::aside::Aside;
use crate::budget::Evict;
use crate::config::{LogConfig, Promise};
use crate::epochs::LeaderEpochs;
use crate::error::{LogError, StorageError};
use crate::prepare::NextFile;
use crate::producer_state::ProducerStates;
use crate::retention::Hold;
use crate::segment::Segment;
use crate::shared::{Failing, LogShared};
use crate::undecided::Held;
use crate::verifying::Verifying;
use crate::waiters::Waiters;

/// Whether a log can be written.
#[derive(Clone, Debug)]
pub enum LogState {
    Online,
    /// A write or a sync failed. Durable data can still be read.
    Poisoned(StorageError),
    Closed,
}

/// A batch boundary inside what is not yet written, so that a write can end there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) segment: i64,
    pub(crate) position: u32,
    pub(crate) next_offset: i64,
}

/// Where a reader stopped, so that it can go on without the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bookmark {
    pub(crate) offset: i64,
    pub(crate) segment: i64,
    pub(crate) position: u32,
}

/// Where a reader of old segments stopped, and how far was read ahead of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub(crate) offset: i64,
    pub(crate) segment: i64,
    /// Number of the segment's file: a position is worth nothing in another one.
    pub(crate) file: u64,
    pub(crate) position: u32,
    pub(crate) ahead: u32,
}

/// Places remembered per log where readers in memory stopped.
const BOOKMARKS: usize = 8;
/// Readers of old segments remembered per log.
const READERS: usize = 16;

pub(crate) struct State {
    pub(crate) config: LogConfig,
    /// By base offset; the last one is written. Never empty.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) log_start: i64,
    /// Offsets below are in files.
    pub(crate) written_end: i64,
    /// Offsets below are as durable as the topic promises.
    pub(crate) visible_end: i64,
    /// Offsets below are synced.
    pub(crate) synced_end: i64,
    /// The start that the partition's own checkpoint has.
    pub(crate) saved_start: i64,
    /// Segment and position of the damage that a reader met last.
    pub(crate) damage: Option<(i64, u32)>,
    /// What keeps the oldest segment longer than its age would.
    pub(crate) hold: Option<Hold>,
    /// What a transaction that is open keeps from retention and compaction.
    pub(crate) undecided: Held,
    pub(crate) recovery_point: i64,
    pub(crate) epochs: LeaderEpochs,
    /// The checkpoint file lags behind.
    pub(crate) epochs_changed: bool,
    pub(crate) producers: ProducerStates,
    pub(crate) verifying: Verifying,
    pub(crate) phase: LogState,
    /// The name of the folder itself is not known to be synced.
    pub(crate) dir_name_unsynced: bool,
    /// Names of segment files are not synced.
    pub(crate) names_unsynced: bool,
    /// Counts them: a sync that began before one was made does not cover it.
    pub(crate) names_made: u64,
    /// Batches that were appended since the log was opened or flushed.
    pub(crate) changed_since_flush: bool,
    pub(crate) marks: VecDeque<Mark>,
    bookmarks: [Option<Bookmark>; BOOKMARKS],
    next_bookmark: usize,
    readers: [Option<Reader>; READERS],
    next_reader: usize,
    /// Capacity of the chunk allocated last.
    pub(crate) chunk_bytes: usize,
    pub(crate) appender_runs: bool,
    pub(crate) keeper_runs: bool,
    /// A pass of compaction is going on.
    pub(crate) cleaning: bool,
    /// It waits for other upkeep to end, and does nothing in the folder meanwhile.
    pub(crate) cleaning_waits: bool,
    /// Copies for another disk in the making: nothing is compacted meanwhile.
    pub(crate) copies: usize,
    /// Grows when segments are replaced: what was known of positions before may be wrong then.
    pub(crate) replaced: u64,
    /// Below this offset compaction has looked at every key; `None` if it never ran.
    pub(crate) cleaner_point: Option<i64>,
    /// No batch is taken any more; the log is about to close.
    pub(crate) closing: bool,
    /// Many close at once: a sync of the whole disk serves all of them.
    pub(crate) closing_with_many: bool,
    /// Snapshots that are not at the start of a segment, the newest first: a second one only until a flush
    /// has made the newest durable.
    pub(crate) flushed_snapshots: Vec<i64>,
    /// Files of records that lay behind damage.
    pub(crate) aside: Vec<Aside>,
    pub(crate) next_file: NextFile,
    /// Bytes of a write, as they mostly were lately.
    pub(crate) usual_write: u32,
    /// Writes since the log was opened or fell idle.
    pub(crate) writes: u64,
    /// Bytes written since the last flush.
    pub(crate) bytes_since_flush: u64,
    /// What the last sweep of idle tails found.
    pub(crate) swept: Swept,
    /// Its file was written or opened to read since somebody last looked.
    pub(crate) used_lately: bool,
    /// The offset that the partition's checkpoint has, -1 if it has none.
    pub(crate) checkpointed: i64,
    /// Zero if nobody said.
    pub(crate) topic_id: Uuid,
    /// A flush by `flush.ms` is scheduled.
    pub(crate) flush_scheduled: bool,
    /// Grows with every change that a long poll waits for.
    pub(crate) version: u64,
    pub(crate) wait_visible: Waiters,
    pub(crate) wait_written: Waiters,
    pub(crate) wait_change: Waiters,
}

/// Whether a log was written between two sweeps.
#[derive(Clone, Copy)]
pub(crate) struct Swept {
    round: u64,
    end: i64,
    idle: bool,
}

impl Default for Swept {
    fn default() -> Self {
        Swept { round: 0, end: -1, idle: false }
    }
}

pub(crate) struct Core {
    pub(crate) shared: LogShared,
    pub(crate) dir: RefCell<PathBuf>,
    /// The folder as errors name it.
    pub(crate) name: Rc<str>,
    pub(crate) state: RefCell<State>,
    /// An append is choosing memory: the current chunk must stay.
    pub(crate) pinned: Cell<bool>,
    /// Held by whoever seals, flushes, deletes or closes: one at a time.
    pub(crate) upkeep: Semaphore,
    /// Held by whoever opens or makes the file of a segment to write it.
    pub(crate) making: Semaphore,
    /// Held while files of segments take other names, and by whoever opens one by its name.
    pub(crate) swapping: Semaphore,
    /// A piece of a file was made ahead, or a background task ended.
    pub(crate) filled: Notify,
    pub(crate) me: Weak<Core>,
}

impl Core {
    pub(crate) fn new(shared: &LogShared, dir: &Path, state: State) -> Rc<Core> {
        Rc::new_cyclic(|me| Core {
            shared: shared.clone(),
            dir: RefCell::new(dir.to_path_buf()),
            name: Rc::from(dir.display().to_string()),
            state: RefCell::new(state),
            pinned: Cell::new(false),
            upkeep: Semaphore::new(1),
            making: Semaphore::new(1),
            swapping: Semaphore::new(1),
            filled: Notify::new(),
            me: me.clone(),
        })
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.borrow().clone()
    }

    pub(crate) fn storage_error(
        &self,
        during: &'static str,
        cause: std::io::Error,
    ) -> StorageError {
        StorageError { dir: self.name.clone(), during, cause: Rc::new(cause) }
    }

    /// Takes the log out of service and tells everyone who waits.
    pub(crate) fn poison(&self, error: StorageError) {
        let mut state = self.state.borrow_mut();
        if !matches!(state.phase, LogState::Online) {
            return;
        }
        tracing::error!(log = %self.name, "{error}; it is offline until it is opened anew");
        let cause = Rc::clone(&error.cause);
        state.phase = LogState::Poisoned(error);
        self.abandon_unwritten(&mut state);
        drop(state);
        self.shared.note_failure(&self.dir(), &cause, Failing::Writing);
    }

    /// Ends service: what is not in the file is given up, nobody waits any longer.
    pub(crate) fn abandon_unwritten(&self, state: &mut State) {
        let unwritten: usize = state.segments.iter().map(|s| (s.size - s.written) as usize).sum();
        let mut freed = 0;
        for segment in &mut state.segments {
            freed += segment.tail.drop_unwritten(segment.written);
            segment.visible = segment.visible.min(segment.written);
        }
        tracing::debug!(log = %self.name, unwritten, freed, "gave up what was not written");
        state.visible_end = state.visible_end.min(state.written_end);
        self.shared.budget().note_settled(unwritten);
        state.wake_everyone();
    }

    /// Until no task of this log writes to its files any more. Whoever opens the folder next must
    /// not find one still at work.
    pub(crate) async fn background_ended(&self) {
        loop {
            let wait = {
                let state = self.state.borrow();
                let making = matches!(state.next_file, NextFile::Making);
                let filling = state.segments.iter().any(|s| s.filling);
                let cleaning = state.cleaning && !state.cleaning_waits;
                if !(state.appender_runs || making || filling || cleaning) {
                    return;
                }
                self.filled.notified()
            };
            wait.await;
        }
    }

    pub(crate) fn reconfigure(&self, config: LogConfig) {
        let mut state = self.state.borrow_mut();
        state.config = config;
        if state.is_online() && state.promise() == Promise::Memory {
            state.make_visible_in_memory();
        }
    }

    /// See [`State::replaced`].
    pub(crate) fn replaced(&self) -> u64 {
        self.state.borrow().replaced
    }

    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        match &self.state.borrow().phase {
            LogState::Online => Ok(()),
            LogState::Poisoned(error) => Err(error.clone().into()),
            LogState::Closed => Err(LogError::Closed(self.name.clone())),
        }
    }
}

impl Evict for Core {
    fn evict(&self, segment: i64, chunk: u64) -> bool {
        let Ok(mut state) = self.state.try_borrow_mut() else { return false };
        let active = state.segments.back().map(|s| s.base);
        let Some(segment) = state.segment_mut(segment) else { return false };
        let even_current = Some(segment.base) != active || !self.pinned.get();
        segment.evict(chunk, even_current)
    }

    fn evict_idle(&self, segment: i64, chunk: u64, round: u64) -> bool {
        let idle = {
            let Ok(mut state) = self.state.try_borrow_mut() else { return false };
            let end = state.log_end();
            // The log's first chunk of a round finds out, the others of it follow.
            if state.swept.round != round {
                let idle = state.swept.end == end;
                state.swept = Swept { round, end, idle };
            }
            state.swept.idle && state.swept.end == end
        };
        idle && self.evict(segment, chunk)
    }
}

impl State {
    pub(crate) fn new(config: LogConfig, segments: VecDeque<Segment>) -> State {
        let end = segments.back().map_or(0, |s| s.next_offset);
        State {
            config,
            log_start: segments.front().map_or(0, |s| s.base),
            segments,
            written_end: end,
            visible_end: end,
            synced_end: end,
            saved_start: 0,
            damage: None,
            hold: None,
            undecided: Held::default(),
            recovery_point: end,
            epochs: LeaderEpochs::default(),
            epochs_changed: false,
            producers: ProducerStates::default(),
            verifying: Verifying::default(),
            phase: LogState::Online,
            dir_name_unsynced: false,
            names_unsynced: false,
            names_made: 0,
            changed_since_flush: false,
            marks: VecDeque::new(),
            bookmarks: [None; BOOKMARKS],
            next_bookmark: 0,
            readers: [None; READERS],
            next_reader: 0,
            chunk_bytes: 0,
            appender_runs: false,
            keeper_runs: false,
            cleaning: false,
            cleaning_waits: false,
            copies: 0,
            replaced: 0,
            cleaner_point: None,
            closing: false,
            closing_with_many: false,
            flushed_snapshots: Vec::new(),
            aside: Vec::new(),
            next_file: NextFile::None,
            usual_write: 0,
            writes: 0,
            bytes_since_flush: 0,
            swept: Swept::default(),
            used_lately: false,
            checkpointed: -1,
            topic_id: Uuid::ZERO,
            flush_scheduled: false,
            version: 0,
            wait_visible: Waiters::default(),
            wait_written: Waiters::default(),
            wait_change: Waiters::default(),
        }
    }

    pub(crate) fn log_end(&self) -> i64 {
        self.segments.back().map_or(self.log_start, |s| s.next_offset)
    }

    /// A file in the folder got its name.
    pub(crate) fn note_new_name(&mut self) {
        self.names_unsynced = true;
        self.names_made += 1;
    }

    pub(crate) fn promise(&self) -> Promise {
        self.config.promise()
    }

    /// The place of the segment that holds `offset`: the last one that starts at or before it.
    pub(crate) fn place_of(&self, offset: i64) -> Option<usize> {
        self.segments.partition_point(|s| s.base <= offset).checked_sub(1)
    }

    pub(crate) fn segment(&self, base: i64) -> Option<&Segment> {
        self.segments.get(self.place_of(base)?).filter(|s| s.base == base)
    }

    pub(crate) fn segment_mut(&mut self, base: i64) -> Option<&mut Segment> {
        let place = self.place_of(base)?;
        self.segments.get_mut(place).filter(|s| s.base == base)
    }

    pub(crate) fn bookmark(&self, offset: i64, segment: i64) -> Option<u32> {
        let hit = |b: &&Bookmark| b.offset == offset && b.segment == segment;
        self.bookmarks.iter().flatten().find(hit).map(|b| b.position)
    }

    /// Forgets readers that stopped in one of these segments.
    pub(crate) fn forget_bookmarks(&mut self, segments: &[i64]) {
        for slot in &mut self.bookmarks {
            *slot = slot.filter(|bookmark| !segments.contains(&bookmark.segment));
        }
    }

    pub(crate) fn remember(&mut self, bookmark: Bookmark) {
        let known = self.bookmarks.iter().flatten();
        if known.into_iter().any(|b| b.offset == bookmark.offset) {
            return;
        }
        if let Some(slot) = self.bookmarks.get_mut(self.next_bookmark) {
            *slot = Some(bookmark);
        }
        self.next_bookmark = (self.next_bookmark + 1) % BOOKMARKS;
    }

    /// A reader of old segments that stopped exactly here.
    pub(crate) fn reader_at(&self, offset: i64) -> Option<Reader> {
        self.readers.iter().flatten().find(|reader| reader.offset == offset).copied()
    }

    /// The reader that was at `from` is where `reader` says now.
    pub(crate) fn note_reader(&mut self, from: i64, reader: Reader) {
        let known = self.readers.iter().position(|r| r.is_some_and(|r| r.offset == from));
        let place = known.unwrap_or_else(|| {
            let place = self.next_reader;
            self.next_reader = (self.next_reader + 1) % READERS;
            place
        });
        if let Some(slot) = self.readers.get_mut(place) {
            *slot = Some(reader);
        }
    }

    /// Tells long polls that something they watch has changed.
    pub(crate) fn note_change(&mut self) {
        self.version += 1;
        self.wait_change.wake_all();
    }

    pub(crate) fn wake_everyone(&mut self) {
        self.wait_visible.wake_all();
        self.wait_written.wake_all();
        self.note_change();
    }
}
