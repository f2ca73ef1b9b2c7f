//! Opening a log after a crash: everything from the recovery point on is read and checked.

use std::collections::VecDeque;

use super::Opening;
use super::inventory::{Inventory, OnDisk};
use super::reached::Lack;
use super::walk::{Ending, Start, Trust, reaches};
use crate::checkpoint::Checkpoint;
use crate::error::LogError;
use crate::scan;
use crate::segment::Segment;
use crate::txn_index;

impl Opening {
    pub(super) async fn open_unclean(
        &mut self,
        inventory: &Inventory,
        (recovery_point, checkpoint): (i64, Option<&Checkpoint>),
        whole: bool,
    ) -> Result<VecDeque<Segment>, LogError> {
        let on_disk = &inventory.segments;
        let mut segments = VecDeque::new();
        let Some(oldest) = on_disk.first() else { return Ok(segments) };
        let (usable, from_snapshot) =
            self.take_known(inventory, *oldest, (recovery_point, checkpoint)).await?;
        let from = recovery_point.min(from_snapshot.unwrap_or(oldest.base)).max(oldest.base);
        let first = on_disk.partition_point(|s| s.base <= from).saturating_sub(1);
        // A snapshot is written when all below it is synced: it tells where nobody knows the recovery point.
        let snapshot = inventory.snapshots.first().copied().unwrap_or(0);
        let safe_end = recovery_point.max(snapshot).max(self.safe.to);
        // What was written on this start of the machine is not torn by a crash of the process.
        let kept_end = safe_end.max(self.safe.written);
        for (i, segment) in on_disk.iter().enumerate() {
            let next = on_disk.get(i + 1).copied();
            if i < first {
                let next_base = next.map_or(segment.base, |n| n.base);
                segments.push_back(self.sealed(*segment, next_base));
                continue;
            }
            let old = next.is_some_and(|n| n.base <= safe_end);
            let trust = Trust {
                verify: true,
                holes: self.config.compact || old || self.cleaner_point > Some(segment.base),
                producers_from: from_snapshot.unwrap_or(oldest.base),
            };
            let known = usable.filter(|c| c.recovery_point == from);
            let start = match self.checkpointed_start(*segment, known).await {
                Some(start) => start,
                None if i == first => self.trusted_start(*segment, from).await?,
                None => Start::beginning(segment.base),
            };
            let (mut read, ending) = self.walk(*segment, start, trust).await?;
            let ending = ending.before(&read, next, trust.holes);
            let complete = matches!(ending, Ending::Complete);
            let is_end = !complete || next.is_none();
            if whole && is_end && read.next_offset < recovery_point {
                return Err(self.incomplete(segment.base, read.size, ending.problem()));
            }
            if whole && !complete {
                let later = on_disk.get(i + 1..).unwrap_or_default();
                self.refuse_if_followed(*segment, &read, &ending, later).await?;
            }
            txn_index::settle(&self.dir, &mut read, trust.producers_from)
                .await
                .map_err(|error| self.fail("reading a transaction index", error))?;
            segments.push_back(read);
            if !complete {
                // Before the cut: after a crash between the two the damage is met again.
                let later = on_disk.get(i + 1..).unwrap_or_default();
                let ended = Lack::At { segment: *segment, ending: &ending, later };
                self.check_reached(&segments, ended).await?;
                self.keep_rest(&segments, *segment, kept_end).await?;
                self.remove_later(later, Some(kept_end), &segments).await?;
            }
            self.settle(&mut segments, *segment, ending, next.is_some() && complete).await?;
            if !complete {
                break;
            }
        }
        Ok(segments)
    }

    /// Producers as of the checkpoint or a snapshot, and the offset of that; the checkpoint, where it is of
    /// use for these segments.
    async fn take_known<'c>(
        &mut self,
        inventory: &Inventory,
        oldest: OnDisk,
        (recovery_point, checkpoint): (i64, Option<&'c Checkpoint>),
    ) -> Result<(Option<&'c Checkpoint>, Option<i64>), LogError> {
        // What it ends in may have gone with retention, up to there.
        let is_end = |s: &OnDisk, c: &Checkpoint| reaches(*s, c) || s.base == c.recovery_point;
        let usable = checkpoint.filter(|c| inventory.segments.iter().any(|s| is_end(s, c)));
        let mut from_snapshot = None;
        if let Some(checkpoint) = usable
            && self.take_producers(inventory, checkpoint).await?
        {
            from_snapshot = Some(checkpoint.recovery_point);
        }
        if from_snapshot.is_none() {
            // The one at the start of the oldest segment was written before what was below it went.
            let limit = recovery_point.max(oldest.base);
            from_snapshot = self.load_snapshot(inventory, limit).await?;
        }
        Ok((usable, from_snapshot))
    }

    /// A crash leaves nothing whole behind the write that it cut short. Batches behind a damaged one
    /// mean that something else did it, and cutting them off would lose what was acknowledged.
    async fn refuse_if_followed(
        &self,
        segment: OnDisk,
        read: &Segment,
        ending: &Ending,
        later: &[OnDisk],
    ) -> Result<(), LogError> {
        let followed = match (later.iter().find(|s| s.size > 0), read.file.clone()) {
            (Some(later), _) => Some(format!("a segment that starts at offset {}", later.base)),
            (None, Some(file)) => {
                let found = scan::find_batch(&file, read.size, segment.size, read.next_offset);
                let found = found.await.map_err(|error| self.fail("reading a segment", error))?;
                found.map(|position| format!("a whole batch at position {position}"))
            }
            (None, None) => None,
        };
        match followed {
            Some(what) => {
                let problem = format!("{}, and {what} follows", ending.problem());
                Err(self.incomplete(segment.base, read.size, &problem))
            }
            None => Ok(()),
        }
    }
}
