//! What a partition's folder holds, and the small files in it.
//!
//! Owns: the listing of the folder, the look whether it holds what its checkpoint vouches for, the
//! removal of what a crash left half made, the choice of a producer snapshot, and the reading of the
//! partition's own checkpoints.

use std::io;

use reactor::fs;
use wire::Uuid;

use super::Opening;
use super::reached::GivenUp;
use super::walk::reaches;
use crate::aside::Aside;
use crate::checkpoint::{self, Checkpoint};
use crate::checkpoints::{
    self, CLEANER_POINTS, CheckpointError, GIVEN_UP, LEADER_EPOCHS, LOG_START_OFFSETS,
    PARTITION_METADATA, RECOVERY_POINTS, decode_epochs, encode_partition_metadata, read_if_there,
    read_own_offset,
};
use crate::compaction::swap;
use crate::config::OpenHint;
use crate::core::State;
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::files::{self, remove_if_there};
use crate::names::{self, FileKind, Found as Name, file_name, file_path};
use crate::producer_snapshot::{Decoder, SnapshotDamage};
use crate::producer_state::ProducerStates;

/// Snapshots that are kept besides those at the starts of segments.
const FLUSHED_SNAPSHOTS: usize = 2;

/// A segment file that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnDisk {
    pub(super) base: i64,
    pub(super) size: u32,
}

/// Which of the small files are there, so that none is looked for in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmallFiles {
    pub(super) checkpoint: bool,
    pub(super) log_start: bool,
    pub(super) recovery_point: bool,
    pub(super) epochs: bool,
    pub(super) metadata: bool,
    pub(super) cleaner_point: bool,
    pub(super) given_up: bool,
}

/// With breaks for requests to other partitions: there may be many.
pub(super) async fn read_producers(bytes: &[u8]) -> Result<ProducerStates, SnapshotDamage> {
    let mut decoder = Decoder::new(bytes)?;
    while decoder.step()? {
        reactor::yield_if_due().await;
    }
    Ok(decoder.finish())
}

impl SmallFiles {
    fn note(&mut self, name: &str) {
        match name {
            checkpoint::FILE => self.checkpoint = true,
            LOG_START_OFFSETS => self.log_start = true,
            RECOVERY_POINTS => self.recovery_point = true,
            LEADER_EPOCHS => self.epochs = true,
            PARTITION_METADATA => self.metadata = true,
            CLEANER_POINTS => self.cleaner_point = true,
            GIVEN_UP => self.given_up = true,
            _ => {}
        }
    }
}

/// What the folder holds.
#[derive(Default)]
pub(super) struct Inventory {
    /// By growing base offset.
    pub(super) segments: Vec<OnDisk>,
    /// Newest first.
    pub(super) snapshots: Vec<i64>,
    /// Segments that have aborted transactions.
    pub(super) txn_indexes: Vec<i64>,
    pub(super) has: SmallFiles,
    /// What an earlier opening has set aside.
    pub(super) aside: Vec<Aside>,
    /// Half made or half deleted.
    leftovers: Vec<String>,
    /// Of these, what tells that retention has removed what lies before the first segment, for which no
    /// other file has room.
    pub(super) witness: Option<String>,
    /// A swap of segments was not finished.
    swapping: bool,
}

impl Inventory {
    /// Looks for what tells that the first segment is where retention has left the log, though the start
    /// that was written down lies before that: on a disk too full to write it again. Before such a removal
    /// the checkpoint goes; with one, only what lies behind the start can be told.
    pub(super) fn find_witness(&mut self, written_start: i64, is_checkpointed: bool) {
        let Some(first) = self.segments.first().map(|s| s.base) else { return };
        let from = if is_checkpointed { written_start } else { 0 };
        let is_needed = written_start < first;
        let removed = |name: &&String| {
            names::parse_deleted(name).is_some_and(|at| is_needed && (from..first).contains(&at))
        };
        let last = self.leftovers.iter().filter(removed);
        self.witness = last.max_by_key(|name| names::parse_deleted(name)).cloned();
    }

    /// The segment that a checkpoint ends in, or the one that begins there if that is gone.
    fn position_of(&self, checkpoint: &Checkpoint) -> Option<usize> {
        let end = self.segments.iter().position(|s| reaches(*s, checkpoint));
        end.or_else(|| self.segments.iter().position(|s| s.base == checkpoint.recovery_point))
    }
}

impl Opening {
    /// Lists the folder. One that is not there is made, unless it was there before. The name of a new
    /// folder is synced when something in it must last.
    pub(super) async fn take_inventory(&self, expected: bool) -> Result<Inventory, LogError> {
        let failed = |error| self.fail("listing a partition", error);
        // Most that may be new are: then nothing has to be listed.
        if !expected && fs::create_dir(&self.dir).await.is_ok() {
            return Ok(Inventory::default());
        }
        let entries = match fs::read_dir(&self.dir).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound && expected => {
                return Err(LogError::Missing(self.name.clone()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.dir).await.map_err(failed)?;
                Vec::new()
            }
            listed => listed.map_err(failed)?,
        };
        self.sort_out(entries).await.map_err(failed)
    }

    /// Removes or finishes what a crash left half made or half deleted. The inventory of what is there
    /// then.
    pub(super) async fn clear_up(&self, mut inventory: Inventory) -> Result<Inventory, LogError> {
        let cleared = async {
            if inventory.swapping {
                swap::finish(&self.dir).await?;
                inventory = self.sort_out(fs::read_dir(&self.dir).await?).await?;
            }
            for name in std::mem::take(&mut inventory.leftovers) {
                if inventory.witness.as_ref() != Some(&name) {
                    remove_if_there(&self.dir.join(name)).await?;
                }
            }
            Ok(inventory)
        };
        cleared.await.map_err(|error| self.fail("clearing up a partition", error))
    }

    async fn sort_out(&self, entries: Vec<fs::DirEntry>) -> io::Result<Inventory> {
        let mut inventory = Inventory::default();
        for entry in entries {
            match names::classify(&entry.name) {
                Name::Of(FileKind::Log, base) => {
                    let size = fs::metadata(&self.dir.join(&entry.name)).await?.size;
                    let size = u32::try_from(size).map_err(|_| {
                        io::Error::other(format!("{} is larger than a segment", entry.name))
                    })?;
                    inventory.segments.push(OnDisk { base, size });
                }
                Name::Of(FileKind::Snapshot, at) => inventory.snapshots.push(at),
                Name::Of(FileKind::TxnIndex, base) => inventory.txn_indexes.push(base),
                Name::Leftover => inventory.leftovers.push(entry.name),
                Name::Of(..) => {}
                Name::Other if names::parse_aside(&entry.name).is_some() => {
                    let bytes = fs::metadata(&self.dir.join(&entry.name)).await?.size;
                    inventory.aside.extend(Aside::of(&entry.name, bytes));
                }
                Name::Other => {
                    inventory.swapping |= entry.name.ends_with(names::SWAP_SUFFIX);
                    inventory.has.note(&entry.name);
                }
            }
        }
        inventory.segments.sort_unstable_by_key(|s| s.base);
        inventory.snapshots.sort_unstable_by(|a, b| b.cmp(a));
        Ok(inventory)
    }

    /// Removes the segments below the start of the log: a power cut may bring back the names of some
    /// that were removed, with gaps between them. Not those from the end of the checkpoint on, which say
    /// what producers have written since: it goes before any of these does (`retention`).
    pub(super) async fn remove_below(
        &self,
        inventory: &mut Inventory,
        log_start: i64,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<(), LogError> {
        let behind = inventory.segments.partition_point(|s| s.base <= log_start);
        let needed = checkpoint.and_then(|c| inventory.position_of(c)).unwrap_or(usize::MAX);
        for segment in inventory.segments.drain(..needed.min(behind.saturating_sub(1))) {
            for kind in FileKind::OF_SEGMENT {
                remove_if_there(&file_path(&self.dir, kind, segment.base))
                    .await
                    .map_err(|error| self.fail("removing a segment", error))?;
            }
            // Its snapshot went with it.
            inventory.snapshots.retain(|at| *at != segment.base);
        }
        Ok(())
    }

    /// Whether the folder lacks what its checkpoint vouches for, which an operator has given up; refuses
    /// it if none has. What lies below the start of the log may be gone.
    pub(super) fn lacks_listed(
        &self,
        inventory: &Inventory,
        known: &Checkpoint,
        saved_start: Option<i64>,
        hint: &OpenHint,
    ) -> Result<bool, LogError> {
        if hint.topic_id.is_some_and(|id| id != known.topic_id && !known.topic_id.is_zero()) {
            return Ok(false);
        }
        let mut log_start = known.log_start.max(saved_start.unwrap_or(0));
        log_start = log_start.max(hint.vouched.log_start);
        if saved_start.is_none() {
            log_start = log_start.max(hint.log_start_offset);
        }
        if inventory.has.log_start && saved_start.is_none() {
            // Damaged, it may have said that what is missing at the start was removed.
            let oldest = inventory.segments.first().map_or(0, |s| s.base);
            log_start = log_start.max(oldest);
        }
        let size_of = |base| {
            let place = inventory.segments.binary_search_by_key(&base, |s| s.base).ok()?;
            inventory.segments.get(place).map(|s| u64::from(s.size))
        };
        let Some(unmet) = known.unmet(log_start, size_of).next() else { return Ok(false) };
        let problem = unmet.problem();
        if self.given_up == GivenUp::Missing {
            let file = file_name(FileKind::Log, unmet.base);
            tracing::error!(log = %self.name, "{file}: {problem}; it goes on without");
            return Ok(true);
        }
        let problem = format!("{problem}; {}", self.remedy());
        Err(self.refused(unmet.base, unmet.found.unwrap_or(0), problem))
    }

    /// The partition's checkpoint, if it has one that can be used.
    pub(super) async fn saved_checkpoint(
        &self,
        inventory: &Inventory,
    ) -> Result<Option<Checkpoint>, LogError> {
        if !inventory.has.checkpoint {
            return Ok(None);
        }
        let read = read_if_there(&self.dir.join(checkpoint::FILE)).await;
        let bytes =
            read.map_err(|error| self.fail("reading a checkpoint of a partition", error))?;
        match bytes.as_deref().map(Checkpoint::decode) {
            None => Ok(None),
            Some(Ok(checkpoint)) => Ok(Some(checkpoint)),
            Some(Err(damage)) => {
                tracing::warn!(log = %self.name, "{} not used: {damage}", checkpoint::FILE);
                Ok(None)
            }
        }
    }

    /// Refuses the folder of another topic and marks a new one. Returns the checkpoint if it is of
    /// this topic.
    pub(super) async fn check_topic(
        &self,
        hint: &OpenHint,
        inventory: &Inventory,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Option<Checkpoint>, LogError> {
        let Some(expected) = hint.topic_id else { return Ok(checkpoint) };
        if checkpoint.as_ref().is_some_and(|c| c.topic_id == expected) {
            return Ok(checkpoint);
        }
        let mut found = None;
        if inventory.has.metadata {
            match checkpoints::read_partition_metadata(&self.dir).await {
                Ok(read) => found = read,
                Err(CheckpointError::Io(error)) => {
                    return Err(self.fail("reading partition.metadata", error));
                }
                // Made just before a power cut: the name is all there is to go by.
                Err(CheckpointError::Damaged { .. }) => {}
            }
        }
        let of_checkpoint = checkpoint.as_ref().map(|c| c.topic_id).filter(|id| !id.is_zero());
        match found.or(of_checkpoint) {
            Some(found) if found != expected => {
                Err(LogError::Foreign { dir: self.name.clone(), found, expected })
            }
            Some(_) => Ok(checkpoint.filter(|c| c.topic_id.is_zero())),
            None => {
                self.mark(expected, inventory.has.metadata).await?;
                Ok(checkpoint)
            }
        }
    }

    /// Says whose folder it is. A first file that a crash cuts is as good as none: it is written anew.
    async fn mark(&self, topic_id: Uuid, replaces: bool) -> Result<(), LogError> {
        let path = self.dir.join(PARTITION_METADATA);
        let bytes = encode_partition_metadata(topic_id);
        let written = match replaces {
            true => files::replace_small(&path, bytes, false).await,
            false => files::write_small(&path, bytes, false).await,
        };
        written.map_err(|error| self.fail("writing partition.metadata", error))
    }

    /// An offset that this partition's own checkpoint has.
    pub(super) async fn saved_offset(
        &self,
        file: &str,
        there: bool,
    ) -> Result<Option<i64>, LogError> {
        if !there {
            return Ok(None);
        }
        let read = read_own_offset(&self.dir, file).await;
        read.map_err(|error| self.fail("reading a checkpoint of a partition", error))
    }

    /// Where compaction stood. The partition's own checkpoint knows better than the hint.
    pub(super) async fn saved_cleaner_point(
        &self,
        inventory: &Inventory,
        hint: Option<i64>,
    ) -> Result<Option<i64>, LogError> {
        if !inventory.has.cleaner_point {
            return Ok(hint);
        }
        let read = read_own_offset(&self.dir, CLEANER_POINTS).await;
        let read = read.map_err(|error| self.fail("reading a checkpoint of a partition", error))?;
        Ok(read.or(hint))
    }

    pub(super) async fn saved_epochs(
        &self,
        there: bool,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<LeaderEpochs, LogError> {
        let known = || checkpoint.map(|c| c.epochs.iter().copied()).into_iter().flatten();
        if !there {
            return Ok(LeaderEpochs::from_entries(known()));
        }
        let read = read_if_there(&self.dir.join(LEADER_EPOCHS)).await;
        let bytes = read.map_err(|error| self.fail("reading the leader epochs", error))?;
        match bytes.as_deref().map(decode_epochs) {
            None => Ok(LeaderEpochs::from_entries(known())),
            Some(Ok(entries)) => Ok(LeaderEpochs::from_entries(entries)),
            Some(Err(damage)) => {
                tracing::warn!(log = %self.name, "{LEADER_EPOCHS} not used: {damage}");
                Ok(LeaderEpochs::from_entries(known()))
            }
        }
    }

    /// Loads the newest usable snapshot at or below `limit`; its offset. One of before the oldest segment
    /// knows nothing of batches that are gone: who wrote them would be told that others are missing.
    pub(super) async fn load_snapshot(
        &mut self,
        inventory: &Inventory,
        limit: i64,
    ) -> Result<Option<i64>, LogError> {
        let oldest = inventory.segments.first().map_or(0, |segment| segment.base);
        let usable = |at: &i64| (oldest..=limit).contains(at);
        for at in inventory.snapshots.iter().copied().filter(usable) {
            let path = file_path(&self.dir, FileKind::Snapshot, at);
            let bytes = fs::read(&path).await;
            let bytes = bytes.map_err(|error| self.fail("reading a producer snapshot", error))?;
            match read_producers(&bytes).await {
                Ok(producers) => {
                    self.producers = producers;
                    self.producers.restore_earlier(&self.earlier);
                    return Ok(Some(at));
                }
                Err(damage) => {
                    tracing::warn!(log = %self.name, offset = at, "snapshot removed: {damage}");
                    let removed = remove_if_there(&path).await;
                    removed.map_err(|error| self.fail("removing a snapshot", error))?;
                }
            }
        }
        self.producers = ProducerStates::default();
        Ok(None)
    }

    /// Keeps the snapshots at the starts of segments and the newest two others, which are returned, the
    /// newest first: that one may be of a close, and not be durable.
    pub(super) async fn remove_stray_snapshots(
        &self,
        inventory: &Inventory,
        state: &State,
    ) -> Result<Vec<i64>, LogError> {
        let mut newest = Vec::new();
        for at in inventory.snapshots.iter().copied() {
            if state.segment(at).is_some() {
                continue;
            }
            let is_within = (state.log_start..=state.log_end()).contains(&at);
            if newest.len() < FLUSHED_SNAPSHOTS && is_within {
                newest.push(at);
                continue;
            }
            remove_if_there(&file_path(&self.dir, FileKind::Snapshot, at))
                .await
                .map_err(|error| self.fail("removing a snapshot", error))?;
        }
        Ok(newest)
    }
}
