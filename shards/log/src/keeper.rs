//! The upkeep of a log, off the request path: sealing full segments, flushing, closing, deleting.
//!
//! Owns: every write that is not a batch: index files, producer snapshots, the epoch checkpoint,
//! trims and renames. One upkeep runs at a time per log (`Core::upkeep`). The order inside is what
//! makes the recovery point true: data and names synced, then indexes and snapshot written, then
//! the point moves. Indexes and snapshots are not synced: each is checked when it is read, and a
//! bad one costs a longer walk. A failure with data takes the log offline; a failure with the rest
//! is a warning, and the recovery point stays.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Class, fs};

use crate::appender;
use crate::checkpoint::{self, Checkpoint, SegmentEnd};
use crate::checkpoints::{LEADER_EPOCHS, encode_epochs};
use crate::config::ClosedAt;
use crate::core::{Core, LogState, State};
use crate::earlier::ProducersAt;
use crate::error::{LogError, StorageError, is_out_of_space};
use crate::files;
use crate::graveyard;
use crate::indexes;
use crate::listed::SEGMENTS_MAX;
use crate::names::{FileKind, file_path};
use crate::open_files;
use crate::prepare;
use crate::producer_map::ProducerMap;
use crate::producer_snapshot::Encoder;
use crate::segment::{Entries, NO_TIMESTAMP, Newest, Segment};
use crate::shared::Failing;
use crate::tail::block_floor;
use crate::txn_index;

/// What is being done when the data of a full segment is synced.
const SYNCING_FULL: &str = "syncing a full segment";

/// Whether a seal failed for want of space alone, which is told to the listener: it is tried again. What
/// a failed sync of data has lost, no room brings back.
pub(crate) fn waits_for_room(core: &Core, error: &StorageError) -> bool {
    if !is_out_of_space(&error.cause) || error.during == SYNCING_FULL {
        return false;
    }
    tracing::warn!(log = %core.name, "a full segment is not sealed yet: {error}");
    core.shared.note_failure(&core.dir(), &error.cause, Failing::Writing);
    true
}

/// Seals in the background what is full and written.
pub(crate) fn start(core: &Rc<Core>) {
    if std::mem::replace(&mut core.state.borrow_mut().keeper_runs, true) {
        return;
    }
    let core = Rc::clone(core);
    reactor::spawn_in(Class::Background, async move {
        loop {
            let permit = core.upkeep.acquire(1).await;
            let sealed = seal_next(&core).await;
            drop(permit);
            match sealed {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if waits_for_room(&core, &error) => break,
                Err(error) => {
                    core.poison(error);
                    break;
                }
            }
        }
        core.state.borrow_mut().keeper_runs = false;
    })
    .detach();
}

/// Seals the oldest segment that waits for it. `false` if none does.
pub(crate) async fn seal_next(core: &Rc<Core>) -> Result<bool, StorageError> {
    let next = {
        let state = core.state.borrow();
        let ready = |s: &&Segment| s.full && !s.sealed && s.written == s.size;
        match state.segments.iter().rev().take_while(|s| !s.sealed).filter(ready).last() {
            Some(segment) if state.is_online() => (segment.base, segment.size, segment.next_offset),
            _ => return Ok(false),
        }
    };
    let (base, size, next_offset) = next;
    let file = files::for_appending(core, base).await?;
    prepare::quiesce(core, base).await;
    file.set_len(u64::from(size))
        .await
        .map_err(|error| core.storage_error("trimming a full segment", error))?;
    file.sync_all().await.map_err(|error| core.storage_error(SYNCING_FULL, error))?;
    files::sync_names(core).await?;
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.synced = size;
        segment.note_cut(size);
        segment.sealed = true;
    }
    {
        let mut state = core.state.borrow_mut();
        state.synced_end = state.synced_end.max(next_offset);
    }
    match save_state_up_to(core, next_offset).await {
        Ok(checkpoint) => note_recovery_point(core, next_offset, checkpoint).await,
        Err(error) => tracing::warn!(log = %core.name, segment = base,
            "recovery point not moved, state of a full segment not written: {error}"),
    }
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        txn_index::cool(segment);
    }
    let index_bytes = {
        let mut state = core.state.borrow_mut();
        state.segment_mut(base).map_or(0, Segment::settle_indexes)
    };
    core.shared.note_warm(core.me.clone(), base, index_bytes, true);
    Ok(true)
}

/// Writes indexes, snapshot and epochs for everything below `end`, where a segment starts and below
/// which data is synced.
async fn save_state_up_to(core: &Rc<Core>, end: i64) -> io::Result<Option<Checkpoint>> {
    let dir = core.dir();
    save_indexes(core, end).await?;
    txn_index::save(core, end).await?;
    let snapshot = {
        let mut state = core.state.borrow_mut();
        state.segment_mut(end).and_then(|s| s.snapshot.take())
    };
    let mut checkpoint = None;
    if let Some(producers) = snapshot {
        let producers = encode_producers(producers).await;
        checkpoint = core.state.borrow().checkpoint_at_start(end);
        checkpoint = checkpoint.map(|checkpoint| checkpoint.with_producers(&producers));
        let path = file_path(&dir, FileKind::Snapshot, end);
        files::replace_small(&path, producers.snapshot, true).await?;
    }
    save_epochs(core).await?;
    Ok(checkpoint)
}

/// Whether snapshots and recovery points are synced. Not at a close, which has many at once: a
/// power cut right after a clean shutdown then costs a walk from the flush before.
fn lasting(core: &Core) -> bool {
    !core.state.borrow().closing
}

/// Moves the recovery point. The partition's own checkpoint may lag behind: that costs time after
/// a crash, nothing else.
async fn note_recovery_point(core: &Rc<Core>, to: i64, checkpoint: Option<Checkpoint>) {
    {
        let mut state = core.state.borrow_mut();
        if to < state.recovery_point || to <= state.checkpointed {
            return;
        }
        // Another sync failed meanwhile, and ours may have passed over what that one lost.
        if !state.is_online() {
            return;
        }
        state.recovery_point = to;
    }
    let Some(checkpoint) = checkpoint else { return };
    let (path, bytes) = (core.dir().join(checkpoint::FILE), checkpoint.encode());
    let written = match lasting(core) {
        true => fs::write_atomic(&path, bytes).await,
        false => files::replace_small(&path, bytes, false).await,
    };
    if let Err(error) = written {
        tracing::warn!(log = %core.name, "recovery point {to} not written: {error}");
        return;
    }
    core.state.borrow_mut().checkpointed = to;
}

/// Removes the checkpoint, so that it vouches for nothing any longer; the next flush writes another.
/// Needs no space.
pub(crate) async fn forget_checkpoint(core: &Core) -> io::Result<()> {
    let dir = core.dir();
    {
        let mut state = core.state.borrow_mut();
        state.checkpointed = -1;
        state.changed_since_flush = true;
    }
    files::remove_if_there(&dir.join(checkpoint::FILE)).await?;
    fs::sync_dir(&dir).await
}

/// Appends the index entries that the files lack, of every segment that starts below `end`.
async fn save_indexes(core: &Rc<Core>, end: i64) -> io::Result<()> {
    let behind: Vec<i64> = {
        let state = core.state.borrow();
        let lacks = |s: &&Segment| s.base < end && s.exists && s.lacks_index_files();
        state.segments.iter().filter(lacks).map(|s| s.base).collect()
    };
    for base in behind {
        let taken = {
            let state = core.state.borrow();
            state.segment(base).and_then(|s| Some((s.unsaved()?, s.full)))
        };
        let Some((unsaved, full)) = taken else { continue };
        indexes::save(&core.dir(), &unsaved, full).await?;
        if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
            segment.saved = unsaved.total();
        }
    }
    Ok(())
}

async fn save_epochs(core: &Rc<Core>) -> io::Result<()> {
    let bytes = {
        let mut state = core.state.borrow_mut();
        if !std::mem::take(&mut state.epochs_changed) {
            return Ok(());
        }
        encode_epochs(state.epochs.entries())
    };
    let result = fs::write_atomic(&core.dir().join(LEADER_EPOCHS), bytes).await;
    if result.is_err() {
        core.state.borrow_mut().epochs_changed = true;
    }
    result
}

/// The same without a sync of the folder: the one that makes the segments' names durable follows.
async fn save_epochs_at_close(core: &Rc<Core>) -> io::Result<()> {
    let bytes = {
        let mut state = core.state.borrow_mut();
        if !std::mem::take(&mut state.epochs_changed) {
            return Ok(());
        }
        state.note_new_name();
        encode_epochs(state.epochs.entries())
    };
    let result = files::replace_small(&core.dir().join(LEADER_EPOCHS), bytes, true).await;
    if result.is_err() {
        core.state.borrow_mut().epochs_changed = true;
    }
    result
}

/// Flushes in the background.
pub(crate) fn start_flush(core: &Rc<Core>) {
    let core = Rc::clone(core);
    let flush = async move {
        let _turn = core.shared.flush_turn(&core.dir()).await;
        if let Err(error) = flush(&core).await {
            note_unflushed(&core, &error);
        }
    };
    reactor::spawn_in(Class::Background, flush).detach();
}

/// Flushes a log that fell idle in the background, so that nothing of it stays in memory, open or
/// reserved.
pub(crate) fn start_idle_flush(core: &Rc<Core>) {
    let core = Rc::clone(core);
    let flush = async move {
        let _turn = core.shared.flush_turn(&core.dir()).await;
        match flush_idle(&core).await {
            Ok(_) => open_files::cool(&core),
            Err(error) => note_unflushed(&core, &error),
        }
    };
    reactor::spawn_in(Class::Background, flush).detach();
}

async fn flush_idle(core: &Rc<Core>) -> Result<i64, LogError> {
    let _permit = core.upkeep.acquire(1).await;
    prepare::give_back(core).await;
    flush_held(core).await
}

fn note_unflushed(core: &Core, error: &LogError) {
    // Whoever closed it has flushed it, or knows better.
    if !matches!(error, LogError::Closed(_)) {
        tracing::warn!(log = %core.name, "recovery point not moved: {error}");
    }
}

/// Everything appended before the call is synced and need not be recovered.
pub(crate) async fn flush(core: &Rc<Core>) -> Result<i64, LogError> {
    let permit = core.upkeep.acquire(1).await;
    let done = flush_held(core).await;
    drop(permit);
    done
}

/// The same for whoever holds the upkeep.
pub(crate) async fn flush_held(core: &Rc<Core>) -> Result<i64, LogError> {
    core.check_open()?;
    let (target, producers, checkpoint) = {
        let mut state = core.state.borrow_mut();
        if !std::mem::take(&mut state.changed_since_flush) {
            return Ok(state.recovery_point);
        }
        state.bytes_since_flush = 0;
        let checkpoint = state.checkpoint();
        (state.log_end(), state.producers.producers.clone(), checkpoint)
    };
    let producers = encode_producers(producers).await;
    let checkpoint = checkpoint.map(|checkpoint| checkpoint.with_producers(&producers));
    let flushed = flush_to(core, target, producers.snapshot, checkpoint).await;
    if flushed.is_err() {
        core.state.borrow_mut().changed_since_flush = true;
    }
    flushed
}

/// Producers as of the moment at which the copy was made, with breaks for requests.
async fn encode_producers(producers: ProducerMap) -> ProducersAt {
    let mut encoder = Encoder::new(producers);
    while encoder.step() {
        reactor::yield_if_due().await;
    }
    encoder.finish()
}

async fn flush_to(
    core: &Rc<Core>,
    target: i64,
    snapshot: Vec<u8>,
    checkpoint: Option<Checkpoint>,
) -> Result<i64, LogError> {
    core.written(target).await?;
    loop {
        match seal_next(core).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(fail(core, error)),
        }
    }
    if !lasting(core) {
        let saved = save_epochs_at_close(core).await;
        saved.map_err(|error| core.storage_error("writing the leader epochs", error))?;
    }
    let with_many = core.state.borrow().closing_with_many;
    let synced = async {
        if with_many {
            return appender::sync_with_disk(core).await;
        }
        appender::sync(core).await?;
        files::sync_names(core).await
    };
    if let Err(error) = synced.await {
        return Err(fail(core, error));
    }
    let saved = save_flushed(core, target, snapshot).await;
    saved.map_err(|error| core.storage_error("writing indexes and snapshot", error))?;
    note_recovery_point(core, target, checkpoint).await;
    // Only now: the checkpoint's folder was synced, and with it the name of the new one.
    let removed = remove_old_snapshots(core, target).await;
    removed.map_err(|error| core.storage_error("removing an old snapshot", error))?;
    Ok(core.state.borrow().recovery_point)
}

impl State {
    /// What a checkpoint says of the log as it stands, once all of it is written and synced; but for
    /// the producers.
    fn checkpoint(&self) -> Option<Checkpoint> {
        let active = self.segments.back()?;
        if active.size == 0 && active.base > 0 {
            return self.checkpoint_at_start(active.base);
        }
        let held = active.indexes.as_ref()?;
        let entries = active.unsaved()?.total();
        let seed = active.tail.partial_block();
        assert_eq!(seed.len() as u32, active.size - block_floor(active.size));
        let end = SegmentEnd {
            base: active.base,
            position: active.size,
            newest: active.newest?,
            first_timestamp: active.first_timestamp,
            bytes_since_entry: active.bytes_since_entry,
            entries,
            last_offset_entry: held.offsets.last(),
            last_time_entry: held.times.last(),
            seed,
        };
        Some(self.checkpoint_with(active.next_offset, end))
    }

    /// The same for the start of a segment, whatever was appended behind it since.
    fn checkpoint_at_start(&self, base: i64) -> Option<Checkpoint> {
        self.segment(base)?;
        let end = SegmentEnd {
            base,
            position: 0,
            newest: Newest { timestamp: NO_TIMESTAMP, offset: base },
            first_timestamp: NO_TIMESTAMP,
            bytes_since_entry: 0,
            entries: Entries::default(),
            last_offset_entry: None,
            last_time_entry: None,
            seed: Vec::new(),
        };
        Some(self.checkpoint_with(base, end))
    }

    /// All that is listed is synced, size and name, before such a checkpoint is written.
    fn checkpoint_with(&self, to: i64, end: SegmentEnd) -> Checkpoint {
        let below = self.epochs.entries().iter().filter(|e| e.start_offset < to);
        let count = self.segments.partition_point(|s| s.base < to);
        let newest = self.segments.range(count.saturating_sub(SEGMENTS_MAX)..count);
        let bytes = |s: &Segment| if s.base == end.base { end.position } else { s.size };
        let segments = newest.map(|s| s.listed(bytes(s))).collect();
        Checkpoint {
            topic_id: self.topic_id,
            log_start: self.log_start.min(to),
            recovery_point: to,
            end,
            epochs: below.copied().collect(),
            producers: None,
            segments,
            earlier: Vec::new(),
        }
    }
}

async fn save_flushed(core: &Rc<Core>, target: i64, snapshot: Vec<u8>) -> io::Result<()> {
    let dir = core.dir();
    save_indexes(core, target).await?;
    txn_index::save(core, target).await?;
    let path = file_path(&dir, FileKind::Snapshot, target);
    files::replace_small(&path, snapshot, lasting(core)).await?;
    save_epochs(core).await
}

/// Snapshots are kept at the starts of segments; of those a flush made, only the newest. A close does
/// not make its own durable, and leaves the one before it.
async fn remove_old_snapshots(core: &Rc<Core>, newest: i64) -> io::Result<()> {
    let old: Vec<i64> = {
        let mut state = core.state.borrow_mut();
        if state.closing {
            return Ok(());
        }
        let old = std::mem::replace(&mut state.flushed_snapshots, vec![newest]);
        old.into_iter().filter(|at| *at != newest && state.segment(*at).is_none()).collect()
    };
    for at in old {
        files::remove_if_there(&file_path(&core.dir(), FileKind::Snapshot, at)).await?;
    }
    Ok(())
}

fn fail(core: &Rc<Core>, error: StorageError) -> LogError {
    core.poison(error.clone());
    error.into()
}

/// Flushes, trims the active segment and lets go of everything. A log that is offline is let go
/// of as it is: its next opening recovers it.
pub(crate) async fn close(core: &Rc<Core>) -> Result<ClosedAt, LogError> {
    let permit = core.upkeep.acquire(1).await;
    let closed = close_held(core).await;
    take_out_of_service(core, &mut core.state.borrow_mut());
    core.background_ended().await;
    prepare::discard(core).await;
    let mut state = core.state.borrow_mut();
    for segment in &mut state.segments {
        segment.file = None;
        segment.tail = Default::default();
    }
    drop(state);
    drop(permit);
    closed
}

fn take_out_of_service(core: &Core, state: &mut State) {
    match std::mem::replace(&mut state.phase, LogState::Closed) {
        LogState::Online => core.abandon_unwritten(state),
        // What was unwritten was given up already.
        LogState::Poisoned(_) | LogState::Closed => state.wake_everyone(),
    }
}

async fn close_held(core: &Rc<Core>) -> Result<ClosedAt, LogError> {
    core.check_open()?;
    let end = {
        let mut state = core.state.borrow_mut();
        state.closing = true;
        if state.changed_since_flush
            && let Some(active) = state.segments.back_mut()
        {
            active.finish_times();
        }
        state.log_end()
    };
    core.written(end).await?;
    trim_active(core).await?;
    flush_held(core).await?;
    let state = core.state.borrow();
    Ok(ClosedAt {
        log_start_offset: state.log_start,
        log_end_offset: state.log_end(),
        recovery_point: state.recovery_point,
    })
}

/// Cuts what was prepared behind the end. The sync that follows makes the new size durable too.
async fn trim_active(core: &Rc<Core>) -> Result<(), LogError> {
    let active = core.state.borrow().segments.back().map(|s| s.base);
    let Some(base) = active else { return Ok(()) };
    prepare::quiesce(core, base).await;
    let padded = {
        let state = core.state.borrow();
        let padded = state.segment(base).filter(|s| s.is_longer_than(s.size) || s.fill_refused);
        padded.filter(|s| s.exists).map(|s| s.size)
    };
    let Some(size) = padded else { return Ok(()) };
    let file = files::for_appending(core, base).await?;
    let trimmed = file.set_len(u64::from(size)).await;
    trimmed.map_err(|error| fail(core, core.storage_error("trimming a segment", error)))?;
    let mut state = core.state.borrow_mut();
    state.changed_since_flush = true;
    if let Some(segment) = state.segment_mut(base) {
        segment.note_cut(size);
        // The new size is not synced, whatever was before.
        segment.synced = segment.synced.min(size.saturating_sub(1));
    }
    Ok(())
}

/// Takes the log out of service, renames its folder and removes it after the configured delay. The
/// new name is not synced.
pub(crate) async fn delete(core: &Rc<Core>) -> Result<(), LogError> {
    let permit = core.upkeep.acquire(1).await;
    let delay = {
        let mut state = core.state.borrow_mut();
        take_out_of_service(core, &mut state);
        Duration::from_millis(state.config.file_delete_delay_ms)
    };
    core.background_ended().await;
    let renamed = graveyard::bury(&core.shared, &core.dir(), delay).await;
    let to = renamed.map_err(|error| core.storage_error("renaming a deleted partition", error))?;
    *core.dir.borrow_mut() = to;
    drop(permit);
    Ok(())
}
