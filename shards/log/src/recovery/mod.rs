//! Opening a log: from files to state, after a clean shutdown or a crash.
//!
//! Owns: the decision what to trust, what to read again and what to cut off.
//!
//! | found | done |
//! |---|---|
//! | a segment that the checkpoint lists is missing or short | the log is not opened, nothing is touched |
//! | the last segment ends where the checkpoint says | nothing is read, whatever the shutdown |
//! | clean shutdown, no such checkpoint | only the end of the last segment is walked, from its last index entry |
//! | crash | everything from the recovery point (or the producer snapshot before it) is read |
//! | bad checksum, wrong offset, zeros, half a batch | the log ends there; later segments go |
//! | the same below the recovery point | likewise, with an error that says how much was lost; what is whole behind it is set aside |
//! | it ends before what is known from outside to be safe | not opened, unless damage was cut or there is no checkpoint (`reached`) |
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

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::sync::Permit;
use reactor::{Either, File, OpenOptions, fs, race};
use wire::Uuid;

use crate::aside::Aside;
use crate::cancel::Cancel;
use crate::checkpoints::{GIVEN_UP, LOG_START_OFFSETS, RECOVERY_POINTS};
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
use inventory::OnDisk;
use reached::Safe;

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
    safe: Safe,
}

impl Opening {
    async fn run(&mut self, hint: OpenHint) -> Result<State, LogError> {
        let mut inventory = self.take_inventory(hint.expected).await?;
        if let Some(data_dir) = self.dir.parent() {
            let watched = self.shared.group_syncs().watch(data_dir).await;
            watched.map_err(|error| self.fail("watching a disk", error))?;
        }
        self.aside = std::mem::take(&mut inventory.aside);
        let checkpoint = self.saved_checkpoint(&inventory).await?;
        let saved_start = self.saved_offset(LOG_START_OFFSETS, inventory.has.log_start).await?;
        if let Some(known) = &checkpoint {
            self.check_listed(&inventory, known, saved_start, &hint)?;
        }
        let mut inventory = self.clear_up(inventory).await?;
        let mut checkpoint = self.check_topic(&hint, &inventory, checkpoint).await?;
        if let Some(known) = &mut checkpoint {
            self.listed = std::mem::take(&mut known.segments);
            self.earlier = std::mem::take(&mut known.earlier);
        }
        let known = checkpoint.as_ref();
        // The partition's own files are written before the data folder's, and have a checksum.
        let vouched_start = Some(hint.vouched.log_start).filter(|start| *start > 0);
        let known_start = saved_start.max(known.map(|c| c.log_start));
        let own_start = known_start.max(vouched_start);
        let log_start = own_start.unwrap_or(hint.log_start_offset);
        self.remove_below(&mut inventory, own_start.unwrap_or(0)).await?;
        let own_point = self.saved_offset(RECOVERY_POINTS, inventory.has.recovery_point).await?;
        let checkpointed = known.map(|c| c.recovery_point);
        let own_point = own_point.max(checkpointed);
        let recovery_point = hint.recovery_point.max(own_point.unwrap_or(0));
        let given_up = self.saved_offset(GIVEN_UP, inventory.has.given_up).await?;
        self.safe = Safe { checkpointed, ..Safe::new(&hint, given_up, log_start) };
        let safe_to = self.safe.to;
        self.cleaner_point = self.saved_cleaner_point(&inventory, hint.cleaner_point).await?;
        if hint.whole && inventory.segments.is_empty() && recovery_point > 0 {
            return Err(self.incomplete(0, 0, "every segment is missing", ""));
        }
        let mut opened = self.open_untouched(&inventory, known, hint.clean).await?;
        let untouched = opened.is_some();
        if opened.is_none() {
            self.epochs = self.saved_epochs(inventory.has.epochs, known).await?;
            opened = if hint.clean { self.open_clean(&inventory).await? } else { None };
        }
        let (segments, synced) = match opened {
            Some(segments) => (segments, true),
            None => {
                let from = (recovery_point, known);
                (self.open_unclean(&inventory, from, hint.whole).await?, false)
            }
        };
        self.check_reached(&segments, &inventory, false).await?;
        let (segments, log_start) = self.start_at(segments, log_start, &inventory).await?;
        let mut state = State::new(self.config.clone(), segments);
        let known = self.drop_unreached(checkpoint, &state).await?;
        let known = known.as_ref();
        // Opened again by whoever needs it: ten thousand idle logs hold no file.
        if let Some(active) = state.segments.back_mut() {
            active.file = None;
        }
        for segment in &mut state.segments {
            if segment.aborted.is_unknown() && !inventory.txn_indexes.contains(&segment.base) {
                segment.aborted = Aborted::default();
            }
        }
        let end = state.log_end();
        // All below a snapshot was synced when it was written, as far as anybody still knows.
        let snapshot = inventory.snapshots.first().copied().unwrap_or(0);
        let safe_end = recovery_point.max(snapshot).max(safe_to);
        if end < safe_end {
            tracing::error!(log = %self.name, end, safe_end,
                "damage below the recovery point: offsets from {end} on are lost");
        }
        state.log_start = log_start;
        state.cleaner_point = self.cleaner_point;
        state.saved_start = saved_start.unwrap_or(0);
        state.topic_id = hint.topic_id.or(known.map(|c| c.topic_id)).unwrap_or(Uuid::ZERO);
        state.checkpointed = known.map_or(-1, |c| c.recovery_point).min(end);
        // A folder that is there may be one that an earlier process made and never synced: only a
        // sync of its parent, when something in it must last, makes sure.
        state.dir_name_unsynced = !untouched;
        // A crash may have come between the making of a file and the sync of its name.
        // One without a batch also before the checkpoint was written.
        state.names_unsynced = !synced || state.segments.back().is_some_and(|s| s.size == 0);
        self.epochs.truncate_end(end);
        state.epochs = std::mem::take(&mut self.epochs);
        state.producers = std::mem::take(&mut self.producers);
        state.recovery_point =
            if synced { end } else { recovery_point.clamp(log_start.min(end), end) };
        // Without a checkpoint that fits, the next opening would have to look as closely again.
        let unknown = !untouched && end > log_start;
        state.changed_since_flush = state.recovery_point < end || unknown;
        if untouched && (self.is_partly_listed(&state) || vouched_start > known_start) {
            // The next flush lists what is there, and says where it starts.
            state.changed_since_flush = true;
            state.checkpointed = -1;
        }
        state.epochs_changed = !synced;
        state.flushed_snapshots = self.remove_stray_snapshots(&inventory, &state).await?;
        self.tell_aside();
        state.aside = std::mem::take(&mut self.aside);
        Ok(state)
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
    fn incomplete(&self, base: i64, position: u32, problem: &str, remedy: &str) -> LogError {
        let file = file_path(&self.dir, FileKind::Log, base);
        let or = if remedy.is_empty() { "" } else { ", or, " };
        let problem =
            format!("{problem}, though more was written; put it back from a copy{or}{remedy}");
        LogError::Corrupt { file: file.display().to_string(), position: position.into(), problem }
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
