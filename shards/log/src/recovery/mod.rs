//! Opening a log: from files to state, after a clean shutdown or a crash.
//!
//! Owns: the decision what to trust, what to read again and what to cut off.
//!
//! | found | done |
//! |---|---|
//! | clean shutdown | only the end of the last segment is walked, from its last index entry |
//! | crash | everything from the recovery point (or the producer snapshot before it) is read |
//! | bad checksum, wrong offset, zeros, half a batch | the log ends there; later segments go |
//! | the same below the recovery point | likewise, with an error that says how much was lost |
//! | index missing or damaged | made anew, now if the segment is read anyway, else when needed |
//! | snapshot damaged | the next older one and a longer walk |
//!
//! Damage in segments that are not read here is not looked for.

mod clean;
mod inventory;
mod settle;
mod unclean;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::{File, OpenOptions, fs};

use crate::checkpoints::{LOG_START_OFFSETS, RECOVERY_POINTS};
use crate::config::{LogConfig, OpenHint, Recovered};
use crate::core::{Core, State};
use crate::epochs::LeaderEpochs;
use crate::error::{LogError, StorageError};
use crate::names::{self, FileKind, file_path};
use crate::producer_state::ProducerStates;
use crate::shared::LogShared;
use crate::txn_index::Aborted;

pub(crate) async fn open(
    shared: &LogShared,
    dir: PathBuf,
    config: LogConfig,
    hint: OpenHint,
    now_ms: i64,
) -> Result<(Rc<Core>, Recovered), LogError> {
    let name = Rc::from(dir.display().to_string());
    let mut opening = Opening {
        dir,
        name,
        config,
        now_ms,
        epochs: LeaderEpochs::default(),
        producers: ProducerStates::default(),
        report: Recovered::default(),
    };
    let state = opening.run(hint).await?;
    opening.report.log_end_offset = state.log_end();
    let core = Core::new(shared, &opening.dir, state);
    Ok((core, opening.report))
}

struct Opening {
    dir: PathBuf,
    name: Rc<str>,
    config: LogConfig,
    now_ms: i64,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    report: Recovered,
}

impl Opening {
    async fn run(&mut self, hint: OpenHint) -> Result<State, LogError> {
        self.create_dir().await?;
        let mut inventory = self.take_inventory().await?;
        let saved_start = self.saved_offset(LOG_START_OFFSETS).await?;
        let log_start = hint.log_start_offset.max(saved_start);
        self.remove_below(&mut inventory, log_start).await?;
        let recovery_point = hint.recovery_point.max(self.saved_offset(RECOVERY_POINTS).await?);
        self.epochs = self.saved_epochs().await?;
        if hint.whole && inventory.segments.is_empty() && recovery_point > 0 {
            return Err(self.incomplete(0, 0, "every segment is missing"));
        }
        let clean = if hint.clean { self.open_clean(&inventory).await? } else { None };
        let (segments, synced) = match clean {
            Some(segments) => (segments, true),
            None => (self.open_unclean(&inventory, recovery_point, hint.whole).await?, false),
        };
        let (segments, log_start) = self.start_at(segments, log_start, &inventory).await?;
        let mut state = State::new(self.config.clone(), segments);
        for segment in &mut state.segments {
            if segment.aborted.is_unknown() && !inventory.txn_indexes.contains(&segment.base) {
                segment.aborted = Aborted::default();
            }
        }
        let end = state.log_end();
        state.log_start = log_start;
        state.saved_start = saved_start;
        // A folder that is there may be one that an earlier process made and never synced: only a
        // sync of its parent, when something in it must last, makes sure.
        state.dir_name_unsynced = true;
        // A crash may have come between the making of a file and the sync of its name.
        state.names_unsynced = !synced;
        self.epochs.truncate_end(end);
        state.epochs = std::mem::take(&mut self.epochs);
        state.producers = std::mem::take(&mut self.producers);
        state.recovery_point =
            if synced { end } else { recovery_point.clamp(log_start.min(end), end) };
        state.changed_since_flush = state.recovery_point < end;
        state.epochs_changed = !synced;
        state.flushed_snapshot = self.remove_stray_snapshots(&inventory, &state).await?;
        Ok(state)
    }

    fn fail(&self, during: &'static str, cause: io::Error) -> LogError {
        StorageError { dir: self.name.clone(), during, cause: Rc::new(cause) }.into()
    }

    /// The name of a new folder is synced when something in it must last.
    async fn create_dir(&self) -> Result<(), LogError> {
        let created = async {
            if !fs::exists(&self.dir).await? {
                fs::create_dir_all(&self.dir).await?;
            }
            Ok(())
        };
        created.await.map_err(|error| self.fail("creating the folder of a partition", error))
    }

    /// The log lacks what it must have; nothing of it was touched.
    fn incomplete(&self, base: i64, position: u32, problem: &str) -> LogError {
        let file = file_path(&self.dir, FileKind::Log, base);
        let problem = format!("{problem}, though more was written; put it back from a copy");
        LogError::Corrupt { file: file.display().to_string(), position: position.into(), problem }
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
