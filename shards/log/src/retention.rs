//! Letting go of the oldest: retention by time and size, DeleteRecords, expired producers.
//!
//! Owns: which segments may go (whole ones, oldest first, without a gap, never the active one
//! unless it is rolled first, never above the visible end, and by age or size never of a transaction
//! that is open) and how they go: out of the log, the files renamed to `.deleted`, unlinked after `file.delete.delay.ms`. A reader with an open file
//! goes on.
//!
//! A segment is as old as its newest record, but a record cannot claim to be from later than
//! `message.timestamp.after.max.ms` after it was appended: one from next year would keep the log
//! from ever shrinking. What still holds a segment longer than its age in the log is reported.
//!
//! The start of the log is written to a checkpoint in the partition's folder before any file goes:
//! names may come back after a power cut, in any order, and an opening removes those below. On a disk
//! that is too full for that, files go all the same, one segment after the other, and before them the
//! checkpoint that vouches for them.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use reactor::sync::{Permit, oneshot};
use reactor::{Class, File, OpenOptions, fs};
use wire::records::batches;

use crate::aside;
use crate::checkpoints::write_own_log_start;
use crate::config::LogConfig;
use crate::core::{Core, LogState, State};
use crate::error::{LogError, is_out_of_space};
use crate::files;
use crate::indexes;
use crate::keeper;
use crate::names::{self, FileKind, deleted_path, file_path};
use crate::segment::{Newest, Segment};
use crate::shared::Failing;
use crate::undecided::Kept;

/// Bytes since the last flush that make another one worth its sync: what many slow partitions may
/// each leave to be scanned after a crash.
const WORTH_A_FLUSH: u64 = 1 << 20;

/// How long removed files may take to give their space back.
const ROOM_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1)];

/// What one round of retention did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionOutcome {
    pub segments_deleted: usize,
    pub bytes_deleted: u64,
    pub producers_expired: usize,
    pub log_start_offset: i64,
}

/// A record whose timestamp keeps a segment, and so all behind it, longer than their age would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Base offset of the segment.
    pub segment: i64,
    /// Last offset of the batch that has the timestamp.
    pub offset: i64,
    pub timestamp: i64,
    /// Segments that would be gone without it.
    pub segments: usize,
}

pub(crate) async fn enforce(core: &Rc<Core>, now_ms: i64) -> Result<RetentionOutcome, LogError> {
    let permit = core.upkeep.acquire(1).await;
    let ours = Rc::clone(core);
    let outcome = to_the_end(core, permit, async move { enforce_held(&ours, now_ms).await }).await;
    let worth_a_flush = {
        let state = core.state.borrow();
        state.is_online() && state.bytes_since_flush >= WORTH_A_FLUSH
    };
    if worth_a_flush {
        keeper::start_flush(core);
    }
    outcome
}

/// With breaks for requests: there may be many.
async fn expire_producers(core: &Rc<Core>, now_ms: i64) -> usize {
    let (mut expired, mut page) = (0, Some(0));
    while let Some(from) = page {
        let some;
        (some, page) = {
            let mut state = core.state.borrow_mut();
            let expiration_ms = state.config.producer_id_expiration_ms;
            state.producers.expire_some(from, now_ms, expiration_ms)
        };
        expired += some;
        reactor::yield_if_due().await;
    }
    expired
}

async fn enforce_held(core: &Rc<Core>, now_ms: i64) -> Result<RetentionOutcome, LogError> {
    // A full disk may have taken the log offline: retention is what makes room again.
    if let LogState::Closed = core.state.borrow().phase {
        return Err(LogError::Closed(core.name.clone()));
    }
    {
        let mut state = core.state.borrow_mut();
        let expiration_ms = state.config.producer_id_expiration_ms;
        state.verifying.expire(now_ms, expiration_ms);
    }
    let producers_expired = expire_producers(core, now_ms).await;
    aside::remove_expired(core, now_ms).await;
    let (by_time, hold) = expired_by_time(core, now_ms).await?;
    let (by_size, below) = {
        let state = core.state.borrow();
        (state.expired_by_size(), state.below_start())
    };
    let undecided = core.state.borrow_mut().before_open_transactions();
    let count = by_time.max(by_size).min(undecided).max(below);
    let held = by_time.max(by_size).saturating_sub(count);
    {
        let mut state = core.state.borrow_mut();
        state.note_undecided(&core.name, Kept::FromRetention(held), now_ms);
        if !state.config.compact {
            // It may have been, when compaction looked last.
            state.note_undecided(&core.name, Kept::FromCompaction(0), now_ms);
        }
    }
    note_hold(core, hold.filter(|_| count == by_time));
    let (segments_deleted, bytes_deleted) = remove_oldest(core, count, now_ms).await?;
    let log_start_offset = core.state.borrow().log_start;
    Ok(RetentionOutcome { segments_deleted, bytes_deleted, producers_expired, log_start_offset })
}

pub(crate) async fn advance_log_start(core: &Rc<Core>, to: i64) -> Result<(), LogError> {
    let permit = core.upkeep.acquire(1).await;
    let ours = Rc::clone(core);
    to_the_end(core, permit, async move { advance_held(&ours, to).await }).await
}

/// Goes on even if nobody waits any longer, a client that has left or a watch that has lost its
/// patience: of segments that are out of the log, somebody must rename and unlink the files.
async fn to_the_end<T: 'static>(
    core: &Core,
    permit: Permit,
    work: impl Future<Output = Result<T, LogError>> + 'static,
) -> Result<T, LogError> {
    let (done, outcome) = oneshot();
    reactor::spawn(async move {
        let result = work.await;
        drop(permit);
        // Whoever asked may be gone.
        let _ = done.send(result);
    })
    .detach();
    outcome.await.unwrap_or_else(|_| Err(LogError::Closed(core.name.clone())))
}

async fn advance_held(core: &Rc<Core>, to: i64) -> Result<(), LogError> {
    core.check_open()?;
    let (start, end) = {
        let state = core.state.borrow();
        (state.log_start, state.visible_end)
    };
    if to > end {
        return Err(LogError::BeyondEnd { offset: to, end });
    }
    if to <= start {
        return Ok(());
    }
    // A start beyond what a crash would leave of the log must not outlive the crash.
    core.written(to).await?;
    // The next opening removes what lies below, whether or not we come to it.
    let below = core.state.borrow().below(to);
    keep_producers(core, below).await?;
    if let Err(error) = write_start(core, to).await {
        let witness = make_room_below(core, to, error).await?;
        let written = write_start_soon(core, to).await;
        written.map_err(|error| core.storage_error("writing the start of the log", error))?;
        if let Some(witness) = witness {
            remove_or_warn(core, &witness).await;
        }
    }
    // The folder's own name too: nobody may have synced it yet.
    files::sync_names(core).await?;
    {
        let mut state = core.state.borrow_mut();
        state.log_start = state.log_start.max(to);
        state.saved_start = state.saved_start.max(to);
        state.epochs_changed |= state.epochs.truncate_start(to);
        state.note_change();
    }
    let count = core.state.borrow().below(to);
    remove_oldest(core, count, 0).await?;
    Ok(())
}

async fn write_start(core: &Rc<Core>, start: i64) -> io::Result<()> {
    let dir = core.dir();
    write_own_log_start(&dir, start).await
}

/// What was removed may still be open somewhere for a moment, and takes its space until then.
async fn write_start_soon(core: &Rc<Core>, start: i64) -> io::Result<()> {
    for pause in ROOM_PAUSES {
        match write_start(core, start).await {
            Err(error) if is_out_of_space(&error) => reactor::sleep(pause).await,
            written => return written,
        }
    }
    write_start(core, start).await
}

/// On a disk that is too full to write down where the log is to start: what lies below goes at once,
/// in order, so that a crash leaves no gap; but for the name of a file, which is given back: until the
/// start is written, it tells a crash that these records were removed.
async fn make_room_below(
    core: &Rc<Core>,
    to: i64,
    error: io::Error,
) -> Result<Option<PathBuf>, LogError> {
    let count = core.state.borrow().below(to);
    if !is_out_of_space(&error) || count == 0 {
        return Err(core.storage_error("writing the start of the log", error).into());
    }
    core.shared.note_failure(&core.dir(), &error, Failing::Writing);
    let removed = take_oldest(core, count, 0).await?;
    let (paths, witness) = without_witness(removed.files);
    for path in &paths {
        remove_or_warn(core, path).await;
    }
    if let Some(witness) = &witness
        && let Err(error) = make_empty(witness).await
    {
        tracing::warn!(log = %core.name, "{} not made empty: {error}", witness.display());
    }
    // The room is there once the file system has written down that it is.
    let synced = fs::sync_dir(&core.dir()).await;
    synced.map_err(|error| core.storage_error("syncing the folder of a partition", error))?;
    Ok(witness)
}

/// Its bytes may be all the room there is.
async fn make_empty(path: &Path) -> io::Result<()> {
    let file = File::open(path, OpenOptions { write: true, ..OpenOptions::default() }).await?;
    file.set_len(0).await?;
    file.close().await
}

async fn remove_or_warn(core: &Core, path: &Path) {
    if let Err(error) = files::remove_if_there(path).await {
        tracing::warn!(log = %core.name, "{} not removed: {error}", path.display());
    }
}

/// How many of the oldest segments hold only records older than `retention.ms`, and what keeps the
/// next one if it is not its age.
async fn expired_by_time(core: &Rc<Core>, now_ms: i64) -> Result<(usize, Option<Hold>), LogError> {
    let (bases, visible_end, age) = {
        let state = core.state.borrow();
        if !state.config.delete || state.config.retention_ms < 0 {
            return Ok((0, None));
        }
        let filled = state.segments.iter().filter(|s| s.size > 0).map(|s| s.base);
        let age = Age { now_ms, config: state.config.clone() };
        (filled.collect::<Vec<_>>(), state.visible_end, age)
    };
    for (count, base) in bases.iter().copied().enumerate() {
        let next = core.state.borrow().segment(base).map(|s| s.next_offset);
        if next.is_none_or(|next| next > visible_end) {
            return Ok((count, None));
        }
        let Some(newest) = indexes::newest(core, base).await? else { return Ok((count, None)) };
        match age.judge(core, base, newest).await? {
            Verdict::Expired => {
                let newest = confirmed(core, base, newest).await?;
                if !matches!(age.judge(core, base, newest).await?, Verdict::Expired) {
                    return Ok((count, None));
                }
            }
            Verdict::Young => return Ok((count, None)),
            Verdict::Held => {
                let Newest { offset, timestamp } = newest;
                let behind = bases.get(count + 1..).unwrap_or_default();
                let segments = 1 + age.expired_of(core, behind).await?;
                return Ok((count, Some(Hold { segment: base, offset, timestamp, segments })));
            }
        }
    }
    Ok((bases.len(), None))
}

/// What retention thinks of one segment.
enum Verdict {
    Expired,
    Young,
    /// It would be expired if its newest record had the time at which it was appended.
    Held,
}

struct Age {
    now_ms: i64,
    config: LogConfig,
}

impl Age {
    async fn judge(&self, core: &Rc<Core>, base: i64, newest: Newest) -> Result<Verdict, LogError> {
        if newest.timestamp >= 0 && self.is_over(newest.timestamp) {
            return Ok(Verdict::Expired);
        }
        // A file changes when records are appended, and once more when it is closed.
        let appended = modified_ms(core, base, self.now_ms).await?;
        let latest = appended.saturating_add(self.config.timestamp_after_max_ms.max(0));
        let timestamp = if newest.timestamp < 0 { appended } else { newest.timestamp };
        Ok(match (self.is_over(timestamp.min(latest)), self.is_over(appended)) {
            (true, _) => Verdict::Expired,
            (false, true) => Verdict::Held,
            (false, false) => Verdict::Young,
        })
    }

    fn is_over(&self, timestamp: i64) -> bool {
        self.now_ms.saturating_sub(timestamp) > self.config.retention_ms
    }

    /// How many of the segments, one after the other, would be expired.
    async fn expired_of(&self, core: &Rc<Core>, bases: &[i64]) -> Result<usize, LogError> {
        for (count, base) in bases.iter().copied().enumerate() {
            let Some(newest) = indexes::newest(core, base).await? else { return Ok(count) };
            if matches!(self.judge(core, base, newest).await?, Verdict::Young) {
                return Ok(count);
            }
        }
        Ok(bases.len())
    }
}

/// The newest timestamp of a segment that is about to go, checked against the batch that has it: a
/// damaged time index must not delete records.
async fn confirmed(core: &Rc<Core>, base: i64, newest: Newest) -> Result<Newest, LogError> {
    let is_indexed = core.state.borrow().segment(base).is_some_and(|s| s.sealed);
    let upper = newest.offset.saturating_add(1);
    let Ok(plan) = core.plan_read(newest.offset, upper, 1, true) else { return Ok(newest) };
    if !is_indexed || newest.timestamp < 0 {
        return Ok(newest);
    }
    // What cannot be read may go: it is of no use to anybody.
    let Ok(parts) = plan.execute().await else { return Ok(newest) };
    let bytes = parts.concat();
    let header = batches(&bytes).next().and_then(Result::ok).map(|batch| *batch.header());
    let is_true = header.is_some_and(|header| {
        header.max_timestamp == newest.timestamp && header.last_offset() == newest.offset
    });
    if is_true || header.is_none() {
        return Ok(newest);
    }
    indexes::renew(core, base).await?;
    Ok(indexes::newest(core, base).await?.unwrap_or(newest))
}

/// Keeps what holds the log for metrics, and says so once.
fn note_hold(core: &Core, hold: Option<Hold>) {
    let known = std::mem::replace(&mut core.state.borrow_mut().hold, hold);
    let Some(hold) = hold else { return };
    if known.is_some_and(|known| (known.segment, known.offset) == (hold.segment, hold.offset)) {
        return;
    }
    let Hold { segment, offset, timestamp, segments } = hold;
    tracing::warn!(log = %core.name, segment, offset, timestamp, segments,
        "a record's timestamp keeps segments past retention.ms: lower \
         message.timestamp.after.max.ms of the topic, or delete its records up to offset {}",
        offset.saturating_add(1));
}

/// When a segment's file was last changed; one that is not there yet is changed now.
async fn modified_ms(core: &Rc<Core>, base: i64, now_ms: i64) -> Result<i64, LogError> {
    let path = file_path(&core.dir(), FileKind::Log, base);
    match fs::metadata(&path).await {
        Ok(metadata) => Ok(metadata.modified_ms),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(now_ms),
        Err(error) => Err(core.storage_error("looking at a segment", error).into()),
    }
}

impl State {
    /// How many of the oldest segments can go without the log falling below `retention.bytes`.
    fn expired_by_size(&self) -> usize {
        let Ok(keep) = u64::try_from(self.config.retention_bytes) else { return 0 };
        if !self.config.delete {
            return 0;
        }
        let mut total: u64 = self.segments.iter().map(|s| u64::from(s.size)).sum();
        let mut count = 0;
        for segment in self.segments.iter().filter(|segment| segment.size > 0) {
            let rest = total.checked_sub(u64::from(segment.size)).filter(|rest| *rest >= keep);
            match rest {
                Some(rest) if segment.next_offset <= self.visible_end => total = rest,
                _ => break,
            }
            count += 1;
        }
        count
    }

    /// How many of the oldest segments hold nothing that a transaction which is open may still commit, nor
    /// lie behind it. DeleteRecords alone takes those.
    fn before_open_transactions(&mut self) -> usize {
        self.producers.advance_high_watermark(self.visible_end);
        let Some(open) = self.producers.first_unstable_offset() else { return self.segments.len() };
        self.segments.iter().take_while(|s| s.next_offset <= open).count()
    }

    /// How many of the oldest segments lie wholly below the start of the log.
    fn below_start(&self) -> usize {
        self.below(self.log_start)
    }

    /// How many of the oldest segments lie wholly below the offset; never the active one.
    fn below(&self, offset: i64) -> usize {
        let closed = self.segments.len().saturating_sub(1);
        self.segments.iter().take(closed).take_while(|s| s.next_offset <= offset).count()
    }

    /// Whether the checkpoint goes as far as the oldest `count` segments do: it has what is known of those
    /// who wrote them.
    fn is_checkpointed_without(&self, count: usize) -> bool {
        self.segments.get(count).is_none_or(|s| s.base <= self.checkpointed)
    }

    /// How many of the oldest segments lie before the one in which the checkpoint ends.
    fn before_checkpoint(&self) -> usize {
        self.segments.partition_point(|s| s.base <= self.checkpointed).saturating_sub(1)
    }

    /// How many of the oldest segments may go if `count` should: none that is not wholly written,
    /// and never the active one, which is rolled first if it should go too.
    fn removable(&mut self, count: usize, now_ms: i64) -> usize {
        let written = self.segments.iter().take_while(|s| s.written == s.size).count();
        let count = count.min(written);
        let active_too = count == self.segments.len();
        if active_too && self.is_online() && self.segments.back().is_some_and(|s| s.size > 0) {
            self.roll(now_ms);
        }
        count.min(self.segments.len().saturating_sub(1))
    }

    /// Takes the oldest `count` segments out of the log.
    fn detach_oldest(&mut self, count: usize) -> Vec<Segment> {
        let gone: Vec<Segment> = self.segments.drain(..count).collect();
        if let Some(first) = self.segments.front() {
            self.log_start = self.log_start.max(first.base);
        }
        if !gone.is_empty() {
            self.epochs_changed |= self.epochs.truncate_start(self.log_start);
            self.recovery_point = self.recovery_point.max(self.log_start);
            self.note_change();
        }
        gone
    }
}

async fn remove_oldest(
    core: &Rc<Core>,
    count: usize,
    now_ms: i64,
) -> Result<(usize, u64), LogError> {
    let removed = take_oldest(core, count, now_ms).await?;
    if !removed.files.is_empty() {
        unlink_later(core, removed.files, removed.start_is_unsaved);
    }
    Ok((removed.segments, removed.bytes))
}

/// Segments that are out of the log, and their files, which have other names now.
#[derive(Default)]
struct Removed {
    segments: usize,
    bytes: u64,
    files: Vec<PathBuf>,
    /// The log's start could not be written down.
    start_is_unsaved: bool,
}

async fn take_oldest(core: &Rc<Core>, count: usize, now_ms: i64) -> Result<Removed, LogError> {
    if count == 0 {
        return Ok(Removed::default());
    }
    let count = core.state.borrow_mut().removable(count, now_ms);
    keep_end(core).await?;
    let count = count.min(keep_producers(core, count).await?);
    let start_is_saved = save_start(core, count).await;
    let is_behind = !core.state.borrow().is_checkpointed_without(count);
    if count > 0 && (!start_is_saved || is_behind) {
        // It would be missed that what it lists is gone, and segments whose names a power cut brings back
        // would be taken for those that follow it.
        let forgotten = keeper::forget_checkpoint(core).await;
        forgotten.map_err(|error| core.storage_error("removing a checkpoint", error))?;
    }
    let gone = core.state.borrow_mut().detach_oldest(count);
    let bytes = gone.iter().map(|s| u64::from(s.size)).sum();
    let bases: Vec<i64> = gone.iter().map(|s| s.base).collect();
    drop(gone);
    let segments = bases.len();
    tracing::info!(log = %core.name, segments, bytes, "removed the oldest segments");
    let files = rename_away(core, &bases, !start_is_saved).await;
    Ok(Removed { segments, bytes, files, start_is_unsaved: !start_is_saved })
}

/// The active segment's file must be there before older ones go: its name remembers the offset at
/// which an empty log goes on.
async fn keep_end(core: &Rc<Core>) -> Result<(), LogError> {
    let missing = {
        let state = core.state.borrow();
        state.segments.back().filter(|s| !s.exists).map(|s| s.base)
    };
    if let Some(base) = missing {
        files::for_appending(core, base).await?;
        files::sync_names(core).await?;
    }
    Ok(())
}

/// What was known of producers where a segment starts is written when the one before it is sealed: before
/// that one goes. Whoever repeats a batch after a crash would be taken for new otherwise. Returns how
/// many of the oldest segments may go: on a disk that is too full to seal more those that are sealed,
/// which makes the room for it.
async fn keep_producers(core: &Rc<Core>, count: usize) -> Result<usize, LogError> {
    loop {
        match keeper::seal_next(core).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if keeper::waits_for_room(core, &error) => {
                return Ok(core.state.borrow().segments.iter().take_while(|s| s.sealed).count());
            }
            Err(error) => {
                core.poison(error.clone());
                return Err(error.into());
            }
        }
    }
    // What an opening after a crash has sealed, or for what there was no room.
    if core.state.borrow().is_checkpointed_without(count) || core.check_open().is_err() {
        return Ok(count);
    }
    match keeper::flush_held(core).await {
        Ok(_) => Ok(count),
        Err(error) => {
            tracing::warn!(log = %core.name, "producers not written before segments go: {error}");
            let before = core.state.borrow().before_checkpoint();
            Ok(if before > 0 { before } else { count })
        }
    }
}

/// Writes down where the log starts without its oldest `count` segments. A disk that is too full for
/// that is the reason why they must go, so that `false` is no reason to keep them.
async fn save_start(core: &Rc<Core>, count: usize) -> bool {
    let start = {
        let state = core.state.borrow();
        let first = state.segments.get(count).map(|s| s.base);
        first.filter(|first| *first > state.saved_start)
    };
    let Some(start) = start else { return true };
    match write_start(core, start).await {
        Ok(()) => {
            core.state.borrow_mut().saved_start = start;
            true
        }
        Err(error) => {
            tracing::warn!(log = %core.name, start, "start of the log not written: {error}");
            false
        }
    }
}

/// Renames the files of segments to `.deleted`. What fails is found again at the next opening. With
/// `in_order` no segment goes before the loss of the one before it is durable: what a power cut
/// brings back must not have gaps.
async fn rename_away(core: &Rc<Core>, bases: &[i64], in_order: bool) -> Vec<PathBuf> {
    let dir = core.dir();
    let mut renamed = Vec::new();
    for base in bases {
        for kind in FileKind::OF_SEGMENT {
            let from = file_path(&dir, kind, *base);
            let to = deleted_path(&from);
            match fs::rename(&from, &to).await {
                Ok(()) => renamed.push(to),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(log = %core.name, segment = base, "not renamed: {error}");
                }
            }
        }
        if in_order && let Err(error) = fs::sync_dir(&dir).await {
            tracing::warn!(log = %core.name, segment = base, "names not synced: {error}");
        }
    }
    renamed
}

/// Unlinks files after the configured delay, and with `save_start` then writes down where the log
/// starts, for which there was no room before: of an empty log, nothing else says that its records
/// were removed and are not missing.
pub(crate) fn unlink_later(core: &Rc<Core>, paths: Vec<PathBuf>, save_start: bool) {
    let delay = Duration::from_millis(core.state.borrow().config.file_delete_delay_ms);
    let name = Rc::clone(&core.name);
    let weak = core.me.clone();
    let (shared, dir) = (core.shared.clone(), core.dir());
    let unlink = async move {
        shared.delete_delay(&dir, delay).await;
        // Until that is written, a crash must leave something that tells it of a log without a record.
        let is_filled = |core: Rc<Core>| core.state.borrow().segments.iter().any(|s| s.written > 0);
        let is_needed = save_start && !weak.upgrade().is_some_and(is_filled);
        let (paths, witness) = if is_needed { without_witness(paths) } else { (paths, None) };
        if let Some(witness) = &witness
            && let Err(error) = make_empty(witness).await
        {
            tracing::warn!(log = %name, "{} not made empty: {error}", witness.display());
        }
        for path in paths {
            // The folder may have been renamed meanwhile; then its own removal takes the file.
            let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            match fs::remove_file(&path).await {
                Err(error) if !gone(&error) => {
                    tracing::warn!(log = %name, "{} not removed: {error}", path.display());
                }
                _ => {}
            }
        }
        let Some(core) = weak.upgrade().filter(|_| save_start) else { return };
        if save_start_now(&core).await
            && let Some(witness) = witness
            && let Err(error) = files::remove_if_there(&witness).await
        {
            tracing::warn!(log = %name, "{} not removed: {error}", witness.display());
        }
    };
    reactor::spawn_in(Class::Background, unlink).detach();
}

/// One of the last segment's files, which stays for now: an index, if it has one, as that is small.
fn without_witness(mut paths: Vec<PathBuf>) -> (Vec<PathBuf>, Option<PathBuf>) {
    let last = file_offset(paths.last());
    let is_small = |path: &PathBuf| {
        let name = path.to_string_lossy();
        file_offset(Some(path)) == last && !name.ends_with(".log.deleted")
    };
    let place = paths.iter().position(is_small).or(paths.len().checked_sub(1));
    let witness = place.map(|place| paths.remove(place));
    (paths, witness)
}

fn file_offset(path: Option<&PathBuf>) -> Option<i64> {
    names::parse_deleted(path?.file_name()?.to_str()?)
}

/// Whether it is written down where the log starts.
async fn save_start_now(core: &Rc<Core>) -> bool {
    let _permit = core.upkeep.acquire(1).await;
    let start = {
        let state = core.state.borrow();
        let first = state.segments.front().map(|s| s.base);
        first.filter(|first| *first > state.saved_start && !matches!(state.phase, LogState::Closed))
    };
    let Some(start) = start else { return !matches!(core.state.borrow().phase, LogState::Closed) };
    match write_start_soon(core, start).await {
        Ok(()) => {
            let mut state = core.state.borrow_mut();
            state.saved_start = state.saved_start.max(start);
            true
        }
        Err(error) => {
            tracing::warn!(log = %core.name, start, "start of the log not written: {error}");
            false
        }
    }
}
