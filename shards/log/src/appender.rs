//! Bringing a log's tail to its file: one task per log with unwritten batches, one write at a time.
//!
//! Owns: the choice of the next write, its durability, and the moment a batch becomes visible and
//! acknowledged. Whatever is appended while a write is in flight joins the next one: that is the
//! group commit. A write covers whole blocks, from the block that holds the end of the last write
//! to the end of the last batch; the partial last block is written from a copy and written again
//! next time. It never appends, and after an error it never goes on.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Class, Durability, File};

use crate::config::Promise;
use crate::core::{Core, LogState, State};
use crate::error::StorageError;
use crate::group_sync::Covers;
use crate::tail::{block_ceiling, block_floor};
use crate::{files, keeper, prepare};

/// A backlog longer than this is written in pieces, so that its first waiters do not wait for all
/// of it.
const LONGEST_WRITE: u32 = 4 << 20;

/// Bytes after which a log is flushed on its own: what a crash may leave to be scanned.
const FLUSH_EVERY: u64 = 256 << 20;

/// One write: the bytes from `from` to `to` of a segment, which end at a batch boundary.
#[derive(Clone, Copy, Debug)]
struct Job {
    segment: i64,
    from: u32,
    to: u32,
    next_offset: i64,
}

/// Runs until nothing is left to write.
pub(crate) async fn run(core: Rc<Core>) {
    loop {
        let job = {
            let mut state = core.state.borrow_mut();
            let job = state.next_job();
            state.appender_runs = job.is_some();
            job
        };
        let Some(job) = job else {
            core.filled.notify_all();
            return;
        };
        if let Err(error) = perform(&core, job).await {
            core.poison(error);
        }
    }
}

async fn perform(core: &Rc<Core>, job: Job) -> Result<(), StorageError> {
    let file = files::for_appending(core, job.segment).await?;
    prepare::make_way(core, job.segment, block_ceiling(job.to)).await;
    let (bufs, durability) = {
        let state = core.state.borrow();
        let Some(segment) = state.segment(job.segment).filter(|_| state.is_online()) else {
            return Ok(());
        };
        (segment.tail.write_bufs(job.from, job.to), state.durability())
    };
    // The topic may have begun to ask for syncs after the file was made.
    if matches!(durability, Durability::Synced) && core.state.borrow().has_unsynced_names() {
        files::sync_names(core).await?;
    }
    file.write_at(bufs, u64::from(job.from), durability)
        .await
        .map_err(|error| core.storage_error("writing a segment", error))?;
    if note_written(core, job, durability) {
        sync(core).await?;
    }
    publish(core, job);
    Ok(())
}

/// Books a completed write. Returns whether a sync has to follow before it counts.
fn note_written(core: &Rc<Core>, job: Job, durability: Durability) -> bool {
    let mut state = core.state.borrow_mut();
    if !state.is_online() {
        return false;
    }
    let Some(segment) = state.segment_mut(job.segment) else { return false };
    assert!(segment.written < job.to && job.to <= segment.size);
    let settled = (job.to - segment.written) as usize;
    segment.written = job.to;
    if matches!(durability, Durability::Synced) {
        segment.synced = job.to;
    }
    while state.marks.pop_front_if(|m| (m.segment, m.position) <= (job.segment, job.to)).is_some() {
    }
    state.written_end = job.next_offset;
    state.used_lately = true;
    state.note_write(block_ceiling(job.to) - job.from);
    state.bytes_since_flush += settled as u64;
    if matches!(durability, Durability::Synced) {
        state.synced_end = job.next_offset;
    }
    state.wait_written.wake_reached(job.next_offset);
    let due = state.sync_is_due();
    drop(state);
    core.shared.budget().note_settled(settled);
    due
}

/// Syncs all that was written and named by a sync of the whole disk, which others share.
pub(crate) async fn sync_with_disk(core: &Rc<Core>) -> Result<(), StorageError> {
    let (segments, end) = {
        let state = core.state.borrow();
        let behind = state.segments.iter().filter(|s| s.synced < s.written);
        (behind.map(|s| (s.base, s.written)).collect::<Vec<_>>(), state.written_end)
    };
    let dir = core.dir();
    let data_dir = dir.parent().unwrap_or(&dir);
    let synced = core.shared.group_syncs().sync(data_dir, Covers::Disk).await;
    synced.map_err(|error| core.storage_error("syncing the disk", error))?;
    let mut state = core.state.borrow_mut();
    for (base, written) in segments {
        if let Some(segment) = state.segment_mut(base) {
            segment.synced = segment.synced.max(written);
        }
    }
    state.synced_end = state.synced_end.max(end);
    // Nothing gets a new name in a log that closes.
    state.names_unsynced = false;
    state.dir_name_unsynced = false;
    Ok(())
}

/// Syncs every file with written bytes that are not synced. What is written meanwhile may or may
/// not be covered and is not counted.
pub(crate) async fn sync(core: &Rc<Core>) -> Result<(), StorageError> {
    let (files, end) = {
        let state = core.state.borrow();
        let behind = state
            .segments
            .iter()
            .rev()
            .take_while(|s| s.base >= state.synced_end || s.synced < s.written);
        let files: Vec<(i64, u32, Option<File>)> = behind
            .filter(|s| s.synced < s.written)
            .map(|s| (s.base, s.written, s.file.clone()))
            .collect();
        (files, state.written_end)
    };
    for (base, written, file) in files.into_iter().rev() {
        let file = match file {
            Some(file) => file,
            None => files::for_appending(core, base).await?,
        };
        file.sync_data().await.map_err(|error| core.storage_error("syncing a segment", error))?;
        if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
            segment.synced = segment.synced.max(written);
        }
    }
    if core.state.borrow().has_unsynced_names() {
        files::sync_names(core).await?;
    }
    let mut state = core.state.borrow_mut();
    state.synced_end = state.synced_end.max(end);
    Ok(())
}

fn publish(core: &Rc<Core>, job: Job) {
    let mut state = core.state.borrow_mut();
    if !state.is_online() {
        return;
    }
    let Some(segment) = state.segment_mut(job.segment) else { return };
    segment.visible = segment.visible.max(job.to);
    let is_full = segment.full && segment.written == segment.size;
    if state.visible_end < job.next_offset {
        state.visible_end = job.next_offset;
        state.wait_visible.wake_reached(job.next_offset);
        state.note_change();
    }
    // One that was written before it was full had nobody to start the keeper.
    let before = state.segments.iter().rev().nth(1);
    let seal = is_full || before.is_some_and(|s| s.full && !s.sealed && s.written == s.size);
    let flush_later = state.schedule_flush();
    let flush_now = state.bytes_since_flush >= FLUSH_EVERY;
    if flush_now {
        state.bytes_since_flush = 0;
    }
    drop(state);
    if flush_now {
        keeper::start_flush(core);
    }
    if let Some(delay) = flush_later {
        reactor::spawn_in(Class::Background, flush_after(Rc::clone(core), delay)).detach();
    }
    if seal {
        keeper::start(core);
    }
    prepare::look_ahead(core, job.segment);
}

/// `flush.ms`: syncs what was written up to then, whether or not more came.
async fn flush_after(core: Rc<Core>, delay: Duration) {
    reactor::sleep(delay).await;
    core.state.borrow_mut().flush_scheduled = false;
    let online = core.state.borrow().is_online();
    if online && let Err(error) = sync(&core).await {
        core.poison(error);
    }
}

impl State {
    pub(crate) fn is_online(&self) -> bool {
        matches!(self.phase, LogState::Online)
    }

    /// An eighth of what it was makes way for the newest.
    fn note_write(&mut self, bytes: u32) {
        self.usual_write = self.usual_write - self.usual_write / 8 + bytes / 8;
        self.writes += 1;
    }

    /// A power cut may still take the file that is written, or the folder.
    fn has_unsynced_names(&self) -> bool {
        self.names_unsynced || self.dir_name_unsynced
    }

    fn next_job(&self) -> Option<Job> {
        if !self.is_online() {
            return None;
        }
        let segment = self.segments.iter().rev().take_while(|s| s.written < s.size).last()?;
        let mut job = Job {
            segment: segment.base,
            from: block_floor(segment.written),
            to: segment.size,
            next_offset: segment.next_offset,
        };
        if segment.size - segment.written > LONGEST_WRITE {
            let cut = self.marks.iter().find(|m| {
                m.segment == segment.base && m.position - segment.written >= LONGEST_WRITE
            });
            if let Some(mark) = cut {
                job.to = mark.position;
                job.next_offset = mark.next_offset;
            }
        }
        Some(job)
    }

    /// A synced write covers only itself, so it is enough only if nothing before it is unsynced.
    fn durability(&self) -> Durability {
        if self.promise() == Promise::Synced && self.synced_end == self.written_end {
            Durability::Synced
        } else {
            Durability::Written
        }
    }

    fn sync_is_due(&self) -> bool {
        let behind = self.written_end.saturating_sub(self.synced_end);
        behind > 0 && behind.unsigned_abs() >= self.config.flush_messages
    }

    /// How long from now the sync that `flush.ms` asks for is due, if one must be scheduled.
    fn schedule_flush(&mut self) -> Option<Duration> {
        /// Beyond this (100 days) it is Kafka's "never".
        const NEVER_MS: u64 = 100 * 24 * 3600 * 1000;
        let wanted = self.config.flush_ms < NEVER_MS && self.synced_end < self.written_end;
        if !wanted || std::mem::replace(&mut self.flush_scheduled, true) {
            return None;
        }
        Some(Duration::from_millis(self.config.flush_ms))
    }
}
