//! What a partition's folder holds, and the small files in it.
//!
//! Owns: the listing of the folder, the removal of what a crash left half made, the choice of a
//! producer snapshot, and the reading of the partition's own checkpoints.

use std::io;

use reactor::fs;

use super::Opening;
use crate::checkpoints::{LEADER_EPOCHS, decode_epochs, read_if_there, read_own_offset};
use crate::core::State;
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::files::remove_if_there;
use crate::names::{self, FileKind, Found as Name, file_path};
use crate::producer_state::ProducerStates;

/// A segment file that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnDisk {
    pub(super) base: i64,
    pub(super) size: u32,
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
}

impl Opening {
    /// Lists the folder and removes what a crash left half made or half deleted.
    pub(super) async fn take_inventory(&self) -> Result<Inventory, LogError> {
        let list = async {
            let mut inventory = Inventory::default();
            for entry in fs::read_dir(&self.dir).await? {
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
                    Name::Leftover => remove_if_there(&self.dir.join(&entry.name)).await?,
                    Name::Of(..) | Name::Other => {}
                }
            }
            inventory.segments.sort_unstable_by_key(|s| s.base);
            inventory.snapshots.sort_unstable_by(|a, b| b.cmp(a));
            Ok(inventory)
        };
        list.await.map_err(|error| self.fail("listing a partition", error))
    }

    /// Removes the segments below the start of the log: a power cut may bring back the names of some
    /// that were removed, with gaps between them.
    pub(super) async fn remove_below(
        &self,
        inventory: &mut Inventory,
        log_start: i64,
    ) -> Result<(), LogError> {
        let behind = inventory.segments.partition_point(|s| s.base <= log_start);
        for segment in inventory.segments.drain(..behind.saturating_sub(1)) {
            for kind in FileKind::OF_SEGMENT {
                remove_if_there(&file_path(&self.dir, kind, segment.base))
                    .await
                    .map_err(|error| self.fail("removing a segment", error))?;
            }
        }
        Ok(())
    }

    /// An offset that this partition's own checkpoint has, 0 if none.
    pub(super) async fn saved_offset(&self, file: &str) -> Result<i64, LogError> {
        let read = read_own_offset(&self.dir, file).await;
        read.map_err(|error| self.fail("reading a checkpoint of a partition", error))
    }

    pub(super) async fn saved_epochs(&self) -> Result<LeaderEpochs, LogError> {
        let read = read_if_there(&self.dir.join(LEADER_EPOCHS)).await;
        let bytes = read.map_err(|error| self.fail("reading the leader epochs", error))?;
        match bytes.as_deref().map(decode_epochs) {
            None => Ok(LeaderEpochs::default()),
            Some(Ok(entries)) => Ok(LeaderEpochs::from_entries(entries)),
            Some(Err(damage)) => {
                tracing::warn!(log = %self.name, "{LEADER_EPOCHS} not used: {damage}");
                Ok(LeaderEpochs::default())
            }
        }
    }

    /// Loads the newest usable snapshot at or below `limit`; its offset.
    pub(super) async fn load_snapshot(
        &mut self,
        inventory: &Inventory,
        limit: i64,
    ) -> Result<Option<i64>, LogError> {
        for at in inventory.snapshots.iter().copied().filter(|at| *at <= limit) {
            let path = file_path(&self.dir, FileKind::Snapshot, at);
            let bytes = fs::read(&path).await;
            let bytes = bytes.map_err(|error| self.fail("reading a producer snapshot", error))?;
            match ProducerStates::decode(&bytes) {
                Ok(producers) => {
                    self.producers = producers;
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

    /// Keeps the snapshots at the starts of segments and the newest other one, which is returned.
    pub(super) async fn remove_stray_snapshots(
        &self,
        inventory: &Inventory,
        state: &State,
    ) -> Result<Option<i64>, LogError> {
        let mut newest = None;
        for at in inventory.snapshots.iter().copied() {
            if state.segment(at).is_some() {
                continue;
            }
            if newest.is_none() && (state.log_start..=state.log_end()).contains(&at) {
                newest = Some(at);
                continue;
            }
            remove_if_there(&file_path(&self.dir, FileKind::Snapshot, at))
                .await
                .map_err(|error| self.fail("removing a snapshot", error))?;
        }
        Ok(newest)
    }
}
