//! Opening a log that was closed: the end of its last segment is looked at, nothing is scanned.

use std::collections::VecDeque;

use super::Opening;
use super::inventory::{Inventory, OnDisk};
use super::walk::{Ending, Trust};
use crate::config::Recovered;
use crate::error::LogError;
use crate::segment::Segment;
use crate::txn_index::Aborted;

impl Opening {
    /// After a clean shutdown. `None` if the last segment contradicts that.
    pub(super) async fn open_clean(
        &mut self,
        inventory: &Inventory,
    ) -> Result<Option<VecDeque<Segment>>, LogError> {
        let Some((last, sealed)) = inventory.segments.split_last() else {
            return Ok(Some(VecDeque::new()));
        };
        let trust = Trust { verify: false, holes: true, producers_from: i64::MAX };
        let start = self.trusted_start(*last, i64::MAX).await?;
        let (mut active, ending) = self.walk(*last, start, trust).await?;
        active.aborted = Aborted::unknown();
        if !matches!(ending, Ending::Complete) {
            tracing::warn!(log = %self.name, segment = last.base, size = last.size,
                position = active.size, "recovering after all, the shutdown was not clean");
            self.report = Recovered::default();
            return Ok(None);
        }
        self.report.bytes_scanned = 0;
        let next_bases = inventory.segments.iter().skip(1).map(|s| s.base);
        let mut segments: VecDeque<Segment> =
            sealed.iter().zip(next_bases).map(|(s, next)| self.sealed(*s, next)).collect();
        let end = active.next_offset;
        segments.push_back(active);
        let from = self.load_snapshot(inventory, end).await?;
        self.replay(&inventory.segments, from.unwrap_or(0), end).await?;
        Ok(Some(segments))
    }

    /// Reads headers from `from` on to complete the producer state.
    pub(super) async fn replay(
        &mut self,
        segments: &[OnDisk],
        from: i64,
        end: i64,
    ) -> Result<(), LogError> {
        if from >= end {
            return Ok(());
        }
        let first = segments.partition_point(|s| s.base <= from).saturating_sub(1);
        let trust = Trust { verify: false, holes: true, producers_from: from };
        for segment in segments.iter().skip(first) {
            let start = self.trusted_start(*segment, from).await?;
            self.walk(*segment, start, trust).await?;
        }
        Ok(())
    }
}
