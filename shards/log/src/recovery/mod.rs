//! Opening a log: from files to state, after a clean shutdown or a crash.
//!
//! Owns: the decision what to trust, what to read again and what to cut off.
//!
//! | found | done |
//! |---|---|
//! | a segment that the checkpoint lists is missing or short | not opened, nothing is touched, unless an operator has given it up |
//! | the last segment ends where the checkpoint says | nothing is read, whatever the shutdown |
//! | clean shutdown, no such checkpoint | only the end of the last segment is walked, from its last index entry |
//! | crash | everything from the recovery point (or the producer snapshot before it) is read |
//! | bad checksum, wrong offset, zeros, half a batch | the log ends there; later segments go |
//! | the same below the recovery point | likewise, with an error that says how much was lost; what is whole behind it is set aside |
//! | it ends before what is known from outside to be safe | likewise, unless damage was cut (`reached`) |
//! | index missing or damaged | made anew, now if the segment is read anyway, else when needed |
//! | snapshot damaged | the next older one and a longer walk |
//!
//! Damage in segments that are not read here is not looked for.

mod aside;
mod clean;
mod inventory;
mod reached;
mod settle;
mod unclean;
mod untouched;
mod walk;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::sync::Permit;
use reactor::{Either, File, OpenOptions, fs, race};
use wire::Uuid;

use crate::aside::Aside;
use crate::cancel::Cancel;
use crate::checkpoint::Checkpoint;
use crate::checkpoints::{LOG_START_OFFSETS, RECOVERY_POINTS};
use crate::config::{LogConfig, OpenHint, Recovered};
use crate::core::{Core, State};
use crate::epochs::LeaderEpochs;
use crate::error::{LogError, StorageError};
use crate::listed::{self, Listed, SEGMENTS_MAX};
use crate::names::{self, FileKind, file_path};
use crate::producer_state::ProducerStates;
use crate::segment::Segment;
use crate::shared::LogShared;
use crate::txn_index::Aborted;
use inventory::{Inventory, OnDisk};
use reached::{GivenUp, Lack, Safe};

pub(crate) async fn open(
    shared: &LogShared,
    dir: PathBuf,
    config: LogConfig,
    hint: OpenHint,
    now_ms: i64,
    cancel: Cancel,
) -> Result<(Rc<Core>, Recovered), LogError> {
    let name = Rc::from(dir.display().to_string());
    let mut opening = Opening {
        shared: shared.clone(),
        cancel,
        dir,
        name,
        config,
        now_ms,
        epochs: LeaderEpochs::default(),
        producers: ProducerStates::default(),
        report: Recovered::default(),
        cleaner_point: None,
        listed: Vec::new(),
        earlier: Vec::new(),
        aside: Vec::new(),
        given_up: GivenUp::Nothing,
        safe: Safe::default(),
    };
    let state = opening.run(hint).await?;
    opening.report.log_end_offset = state.log_end();
    let core = Core::new(shared, &opening.dir, state);
    Ok((core, opening.report))
}

struct Opening {
    shared: LogShared,
    cancel: Cancel,
    dir: PathBuf,
    name: Rc<str>,
    config: LogConfig,
    now_ms: i64,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    report: Recovered,
    /// Below it compaction may have left holes.
    cleaner_point: Option<i64>,
    /// What the checkpoint vouches for, as long as it is there.
    listed: Vec<Listed>,
    /// Batches of producers that no snapshot has.
    earlier: Vec<u8>,
    /// What was set aside, now or before.
    aside: Vec<Aside>,
    given_up: GivenUp,
    safe: Safe,
}

/// What is known of a log before its segments are opened.
struct Known {
    inventory: Inventory,
    checkpoint: Option<Checkpoint>,
    /// Where the log starts, by the file that says only that.
    saved_start: Option<i64>,
    /// The same by any of the partition's own files.
    own_start: Option<i64>,
    log_start: i64,
    /// Everything below was synced.
    recovery_point: i64,
}

/// How the segments were opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The checkpoint had it all.
    Untouched,
    /// After a clean shutdown.
    Clean,
    Scanned,
}

impl Opening {
    async fn run(&mut self, hint: OpenHint) -> Result<State, LogError> {
        let inventory = self.take_inventory(hint.expected).await?;
        if let Some(data_dir) = self.dir.parent() {
            let watched = self.shared.group_syncs().watch(data_dir).await;
            watched.map_err(|error| self.fail("watching a disk", error))?;
        }
        let mut known = self.identify(inventory, &hint).await?;
        self.place(&mut known, &hint).await?;
        let (segments, way) = self.open_segments(&known, &hint).await?;
        self.check_reached(&segments, Lack::Short).await?;
        let (segments, wanted) = self.without_given_up(segments, known.log_start);
        let (segments, log_start) = self.start_at(segments, wanted, &known.inventory).await?;
        known.log_start = log_start;
        self.settle_given_up(&segments, &hint).await?;
        let mut state = State::new(self.config.clone(), segments);
        known.checkpoint = self.drop_unreached(known.checkpoint.take(), &state).await?;
        self.settle_witness(&mut known).await?;
        self.complete(&mut state, &known, way, &hint).await?;
        self.tell_aside();
        state.aside = std::mem::take(&mut self.aside);
        Ok(state)
    }

    /// Whose folder it is and what its own files say. Refuses one that lacks what its checkpoint vouches
    /// for before anything is touched.
    async fn identify(
        &mut self,
        mut inventory: Inventory,
        hint: &OpenHint,
    ) -> Result<Known, LogError> {
        self.aside = std::mem::take(&mut inventory.aside);
        let checkpoint = self.saved_checkpoint(&inventory).await?;
        let saved_start = self.saved_offset(LOG_START_OFFSETS, inventory.has.log_start).await?;
        self.given_up = self.saved_given_up(&inventory).await?;
        let mut lacks = false;
        if let Some(known) = &checkpoint {
            lacks = self.lacks_listed(&inventory, known, saved_start, hint)?;
        }
        // The partition's own files are written before the data folder's, and have a checksum.
        let own_start = saved_start.max(checkpoint.as_ref().map(|c| c.log_start));
        inventory.find_witness(own_start.unwrap_or(0), checkpoint.is_some());
        let inventory = self.clear_up(inventory).await?;
        let mut checkpoint = self.check_topic(hint, &inventory, checkpoint).await?;
        let witnessed = inventory.witness.as_ref().and(inventory.segments.first());
        let own_start = saved_start.max(checkpoint.as_ref().map(|c| c.log_start));
        let own_start = own_start.max(witnessed.map(|first| first.base));
        if lacks {
            // It would be missed again.
            self.remove_checkpoint().await?;
            checkpoint = None;
        }
        if let Some(known) = &mut checkpoint {
            self.listed = std::mem::take(&mut known.segments);
            self.earlier = std::mem::take(&mut known.earlier);
        }
        let (log_start, recovery_point) = (0, 0);
        Ok(Known { inventory, checkpoint, saved_start, own_start, log_start, recovery_point })
    }

    /// Where the log starts, and how far it was synced; removes what lies below the start.
    async fn place(&mut self, known: &mut Known, hint: &OpenHint) -> Result<(), LogError> {
        let vouched_start = Some(hint.vouched.log_start).filter(|start| *start > 0);
        let own_start = known.own_start.max(vouched_start);
        known.log_start = own_start.unwrap_or(hint.log_start_offset);
        let checkpoint = known.checkpoint.as_ref();
        self.remove_below(&mut known.inventory, own_start.unwrap_or(0), checkpoint).await?;
        let has = known.inventory.has;
        let own_point = self.saved_offset(RECOVERY_POINTS, has.recovery_point).await?;
        let checkpointed = known.checkpoint.as_ref().map(|c| c.recovery_point);
        let own_point = own_point.max(checkpointed);
        known.recovery_point = hint.recovery_point.max(own_point.unwrap_or(0));
        self.safe = Safe::new(hint, self.given_up, known.log_start, checkpointed);
        self.cleaner_point = self.saved_cleaner_point(&known.inventory, hint.cleaner_point).await?;
        if hint.whole && known.inventory.segments.is_empty() && known.recovery_point > 0 {
            return Err(self.incomplete(0, 0, "every segment is missing"));
        }
        Ok(())
    }

    /// By the cheapest way that what is known allows.
    async fn open_segments(
        &mut self,
        known: &Known,
        hint: &OpenHint,
    ) -> Result<(VecDeque<Segment>, Way), LogError> {
        let (inventory, checkpoint) = (&known.inventory, known.checkpoint.as_ref());
        if let Some(segments) = self.open_untouched(inventory, checkpoint, hint.clean).await? {
            return Ok((segments, Way::Untouched));
        }
        self.epochs = self.saved_epochs(inventory.has.epochs, checkpoint).await?;
        if hint.clean
            && let Some(segments) = self.open_clean(inventory).await?
        {
            return Ok((segments, Way::Clean));
        }
        let from = (known.recovery_point, checkpoint);
        Ok((self.open_unclean(inventory, from, hint.whole).await?, Way::Scanned))
    }

    /// What the log knows besides its segments.
    async fn complete(
        &mut self,
        state: &mut State,
        known: &Known,
        way: Way,
        hint: &OpenHint,
    ) -> Result<(), LogError> {
        let checkpoint = known.checkpoint.as_ref();
        // Opened again by whoever needs it: ten thousand idle logs hold no file.
        if let Some(active) = state.segments.back_mut() {
            active.file = None;
        }
        for segment in &mut state.segments {
            if segment.aborted.is_unknown() && !known.inventory.txn_indexes.contains(&segment.base)
            {
                segment.aborted = Aborted::default();
            }
        }
        let (end, log_start) = (state.log_end(), known.log_start);
        // All below a snapshot was synced when it was written, as far as anybody still knows.
        let snapshot = known.inventory.snapshots.first().copied().unwrap_or(0);
        let safe_end = known.recovery_point.max(snapshot).max(self.safe.to);
        if end < safe_end {
            tracing::error!(log = %self.name, end, safe_end,
                "damage below the recovery point: offsets from {end} on are lost");
        }
        state.log_start = log_start;
        state.cleaner_point = self.cleaner_point;
        state.saved_start = known.saved_start.unwrap_or(0);
        state.topic_id = hint.topic_id.or(checkpoint.map(|c| c.topic_id)).unwrap_or(Uuid::ZERO);
        state.checkpointed = checkpoint.map_or(-1, |c| c.recovery_point).min(end);
        let synced = way != Way::Scanned;
        // A folder that is there may be one that an earlier process made and never synced: only a
        // sync of its parent, when something in it must last, makes sure.
        state.dir_name_unsynced = way != Way::Untouched;
        // A crash may have come between the making of a file and the sync of its name.
        // One without a batch also before the checkpoint was written.
        state.names_unsynced = !synced || state.segments.back().is_some_and(|s| s.size == 0);
        self.epochs.truncate_end(end);
        state.epochs = std::mem::take(&mut self.epochs);
        state.producers = std::mem::take(&mut self.producers);
        state.recovery_point =
            if synced { end } else { known.recovery_point.clamp(log_start.min(end), end) };
        // Without a checkpoint that fits, the next opening would have to look as closely again.
        let lags = end > log_start || (end > 0 && state.checkpointed < end);
        let unknown = way != Way::Untouched && lags;
        state.changed_since_flush = state.recovery_point < end || unknown;
        let moved = hint.vouched.log_start > known.own_start.unwrap_or(0);
        if way == Way::Untouched && (self.is_partly_listed(state) || moved) {
            // The next flush lists what is there, and says where it starts.
            state.changed_since_flush = true;
            state.checkpointed = -1;
        }
        state.epochs_changed = !synced;
        state.flushed_snapshots = self.remove_stray_snapshots(&known.inventory, state).await?;
        Ok(())
    }

    fn fail(&self, during: &'static str, cause: io::Error) -> LogError {
        StorageError { dir: self.name.clone(), during, cause: Rc::new(cause) }.into()
    }

    /// Ends the opening if it is not wanted any more.
    fn check_wanted(&self) -> Result<(), LogError> {
        match self.cancel.is_cancelled() {
            true => Err(LogError::Closed(self.name.clone())),
            false => Ok(()),
        }
    }

    /// Waits until few enough logs are scanned.
    async fn scan_turn(&self) -> Result<Permit, LogError> {
        let cancelled = self.cancel.changed();
        self.check_wanted()?;
        match race(self.shared.scan_turn(&self.dir), cancelled).await {
            Either::Left(permit) => Ok(permit),
            Either::Right(()) => Err(LogError::Closed(self.name.clone())),
        }
    }

    /// The log lacks what it must have; nothing of it was touched.
    fn incomplete(&self, base: i64, position: u32, problem: &str) -> LogError {
        let problem = format!("{problem}, though more was written; put it back from a copy");
        self.refused(base, position.into(), problem)
    }

    fn refused(&self, base: i64, position: u64, problem: String) -> LogError {
        let file = file_path(&self.dir, FileKind::Log, base).display().to_string();
        LogError::Corrupt { file, position, problem }
    }

    /// A segment that nothing is read of.
    fn sealed(&self, found: OnDisk, next_base: i64) -> Segment {
        let mut segment = Segment::on_disk(found.base, next_base, found.size);
        let listed = listed::find(&self.listed, found.base);
        segment.newest = listed.filter(|s| s.bytes == found.size).and_then(|s| s.newest);
        segment
    }

    /// Whether there is a segment that the checkpoint does not vouch for: an earlier release wrote it, or
    /// compaction has replaced the segment since.
    fn is_partly_listed(&self, state: &State) -> bool {
        let newest = state.segments.iter().rev().take(SEGMENTS_MAX);
        newest.into_iter().any(|s| {
            let listed = listed::find(&self.listed, s.base);
            s.size > 0 && listed.is_none_or(|listed| listed.bytes == 0)
        })
    }

    /// Whether the checkpoint vouches for more of a segment than this.
    fn is_listed_beyond(&self, base: i64, bytes: u32) -> bool {
        listed::find(&self.listed, base).is_some_and(|listed| listed.bytes > bytes)
    }

    async fn open_file(&self, base: i64, create: bool) -> Result<File, LogError> {
        let options =
            OpenOptions { read: true, write: true, create, direct: true, ..OpenOptions::default() };
        File::open(&file_path(&self.dir, FileKind::Log, base), options)
            .await
            .map_err(|error| self.fail("opening a segment", error))
    }
}

/// Removes the folders of deleted partitions that a data folder still holds.
pub async fn remove_deleted_dirs(data_dir: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(data_dir).await? {
        if entry.is_dir && names::is_deleted_dir_name(&entry.name) {
            fs::remove_dir_all(&data_dir.join(&entry.name)).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
