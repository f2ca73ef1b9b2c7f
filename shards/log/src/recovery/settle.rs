//! Making the files agree with what was found good: cutting, syncing, removing, the log's start.

use std::collections::VecDeque;

use reactor::fs;

use super::inventory::{Inventory, OnDisk};
use super::walk::Ending;
use super::{Known, Opening};
use crate::checkpoint::{self, Checkpoint};
use crate::checkpoints::{read_if_there, write_own_log_start};
use crate::core::State;
use crate::error::{LogError, is_out_of_space};
use crate::files::{self, remove_if_there};
use crate::indexes;
use crate::names::{FileKind, file_path};
use crate::producer_state::ProducerStates;
use crate::scan::Scanner;
use crate::segment::Segment;
use crate::tail::Tail;
use crate::txn_index;

/// Of what begins with zeros behind the end of a log, so much is read.
const ZEROS_READ: u32 = 256 << 10;

impl Opening {
    /// Cuts the file of the segment that was just read to what is good, and syncs it.
    pub(super) async fn settle(
        &mut self,
        segments: &mut VecDeque<Segment>,
        on_disk: OnDisk,
        ending: Ending,
        seal: bool,
    ) -> Result<(), LogError> {
        let Some(segment) = segments.back_mut() else { return Ok(()) };
        let Some(file) = segment.file.clone() else { return Ok(()) };
        if self.is_listed_beyond(segment.base, segment.size) {
            self.forget_list().await?;
        }
        if segment.size < on_disk.size {
            // Zeros mostly are what was reserved, megabytes in each of thousands of logs. What is looked
            // for is only told: whatever it is, it goes.
            let to = match ending {
                Ending::Zeros => on_disk.size.min(segment.size.saturating_add(ZEROS_READ)),
                _ => on_disk.size,
            };
            let mut rest = Scanner::new(file.clone(), segment.size, to);
            let last = rest.last_nonzero().await;
            let last = last.map_err(|error| self.fail("reading the end of a segment", error))?;
            let lost = last - u64::from(segment.size);
            self.report.truncated_bytes += lost;
            if lost > 0 {
                tracing::warn!(log = %self.name, segment = segment.base, position = segment.size,
                    next_offset = segment.next_offset, lost, "cut the end of a segment: {}", ending.problem());
            }
            file.set_len(u64::from(segment.size))
                .await
                .map_err(|error| self.fail("trimming a segment", error))?;
        }
        file.sync_all().await.map_err(|error| self.fail("syncing a recovered segment", error))?;
        if seal {
            segment.full = true;
            segment.finish_times();
            if let Some(unsaved) = segment.unsaved() {
                // Not written, they stay in memory: a full disk must not keep a log from opening.
                match indexes::save(&self.dir, &unsaved, true).await {
                    Ok(()) => {
                        segment.saved = unsaved.total();
                        segment.settle_indexes();
                    }
                    Err(error) => tracing::warn!(log = %self.name, segment = segment.base,
                        "index not written: {error}"),
                }
                self.report.indexes_rebuilt += 1;
            }
            segment.tail = Tail::after(0, Vec::new());
            segment.file = None;
            segment.sealed = true;
            txn_index::cool(segment);
        }
        Ok(())
    }

    /// Removes the segments behind the one where the log now ends. Those that were safe once are only
    /// set aside: something else than a crash came between, and somebody may still want them. Nobody may
    /// know any more that one was: so is one that begins with a sound batch. Without `safe_end` nobody
    /// wants them.
    pub(super) async fn remove_later(
        &mut self,
        later: &[OnDisk],
        safe_end: Option<i64>,
        segments: &VecDeque<Segment>,
    ) -> Result<(), LogError> {
        let end = segments.back().map_or(0, |s| s.next_offset);
        let bytes: u64 = later.iter().map(|s| u64::from(s.size)).sum();
        if !later.is_empty() {
            tracing::warn!(log = %self.name, end, segments = later.len(), bytes,
                "removed segments behind the end of the log");
        }
        if later.iter().any(|s| self.is_listed_beyond(s.base, 0)) {
            self.forget_list().await?;
        }
        for segment in later {
            self.report.segments_removed += 1;
            self.report.truncated_bytes += u64::from(segment.size);
            let is_wanted = match safe_end {
                Some(safe_end) => segment.base < safe_end || self.begins_sound(*segment).await?,
                None => false,
            };
            if segment.size > 0 && is_wanted {
                self.set_aside(*segment).await?;
            }
            for kind in FileKind::OF_SEGMENT {
                remove_if_there(&file_path(&self.dir, kind, segment.base))
                    .await
                    .map_err(|error| self.fail("removing a segment", error))?;
            }
        }
        if !later.is_empty() {
            // A power cut must not bring them back behind records that are written anew.
            let synced = fs::sync_dir(&self.dir).await;
            synced.map_err(|error| self.fail("syncing the folder of a partition", error))?;
        }
        Ok(())
    }

    /// Writes down where the log starts, if nothing but a file on its way out says it; then that goes. On a
    /// disk that is still too full it stays, without its bytes.
    pub(super) async fn settle_witness(&self, known: &mut Known) -> Result<(), LogError> {
        let Some(witness) = known.inventory.witness.take() else { return Ok(()) };
        let path = self.dir.join(witness);
        let settled = async {
            files::write_small(&path, Vec::new(), false).await?;
            match write_own_log_start(&self.dir, known.log_start).await {
                Err(error) if is_out_of_space(&error) => return Ok(None),
                written => written?,
            }
            remove_if_there(&path).await?;
            Ok(Some(known.log_start))
        };
        let settled = settled.await;
        let saved = settled.map_err(|error| self.fail("writing the start of the log", error))?;
        known.saved_start = saved.or(known.saved_start);
        Ok(())
    }

    /// Before something goes that the checkpoint vouches for: the next opening would miss it. How far
    /// everything was safe is kept, as long as there is more to be done.
    async fn forget_list(&mut self) -> Result<(), LogError> {
        let path = self.dir.join(checkpoint::FILE);
        let shortened = async {
            let known = read_if_there(&path).await?.and_then(|b| Checkpoint::decode(&b).ok());
            let Some(mut known) = known else { return Ok(()) };
            known.segments.clear();
            fs::write_atomic(&path, known.encode()).await
        };
        if let Err(error) = shortened.await {
            tracing::debug!(log = %self.name, "checkpoint removed, not written: {error}");
            self.remove_checkpoint().await?;
        }
        self.listed.clear();
        Ok(())
    }

    pub(super) async fn remove_checkpoint(&self) -> Result<(), LogError> {
        let removed = async {
            remove_if_there(&self.dir.join(checkpoint::FILE)).await?;
            fs::sync_dir(&self.dir).await
        };
        removed.await.map_err(|error| self.fail("removing a checkpoint", error))
    }

    /// Removes a checkpoint that claims more than the log still holds: once the log has grown past
    /// its position again, the next opening would begin to read in the middle of another batch.
    pub(super) async fn drop_unreached(
        &self,
        checkpoint: Option<Checkpoint>,
        state: &State,
    ) -> Result<Option<Checkpoint>, LogError> {
        let Some(known) = checkpoint else { return Ok(None) };
        let is_short = |s: &Segment| s.size < known.end.position;
        if known.recovery_point <= state.log_end()
            && !state.segment(known.end.base).is_some_and(is_short)
        {
            return Ok(Some(known));
        }
        self.remove_checkpoint().await?;
        Ok(None)
    }

    /// Applies the start of the log; makes a first segment where there is none.
    pub(super) async fn start_at(
        &mut self,
        mut segments: VecDeque<Segment>,
        wanted: i64,
        inventory: &Inventory,
    ) -> Result<(VecDeque<Segment>, i64), LogError> {
        let end = segments.back().map(|s| s.next_offset);
        if end.is_none_or(|end| end < wanted) {
            if !inventory.segments.is_empty() {
                tracing::warn!(log = %self.name, end, wanted,
                    "the log ends before its start: it goes on, empty, at its start");
                self.remove_later(&inventory.segments, None, &segments).await?;
            }
            segments.clear();
            self.producers = ProducerStates::default();
            let mut first = Segment::new(wanted, self.now_ms, 0);
            if wanted > 0 {
                // The name of the file is what remembers the offset.
                let file = self.open_file(wanted, true).await?;
                let synced = async {
                    file.sync_all().await?;
                    fs::sync_dir(&self.dir).await
                };
                synced.await.map_err(|error| self.fail("making a segment", error))?;
                first.file = Some(file);
                first.exists = true;
            }
            segments.push_back(first);
        }
        let oldest = segments.front().map_or(wanted, |s| s.base);
        let log_start = wanted.max(oldest);
        Ok((segments, log_start))
    }
}
