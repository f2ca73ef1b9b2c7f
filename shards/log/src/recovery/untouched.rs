//! Opening a log whose files end where its checkpoint says: nothing of them is read.

use std::collections::VecDeque;

use super::Opening;
use super::inventory::Inventory;
use crate::checkpoint::Checkpoint;
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::producer_state::ProducerStates;
use crate::segment::Segment;
use crate::txn_index::{self, Aborted};

impl Opening {
    /// The segments, if all there is to know is in the checkpoint. A file that ends exactly at the
    /// recovery point has nothing behind it that a crash could have torn.
    pub(super) async fn open_untouched(
        &mut self,
        inventory: &Inventory,
        checkpoint: Option<&Checkpoint>,
        clean: bool,
    ) -> Result<Option<VecDeque<Segment>>, LogError> {
        let Some((last, sealed)) = inventory.segments.split_last() else { return Ok(None) };
        let fits = |c: &&Checkpoint| (c.end.base, c.end.position) == (last.base, last.size);
        let Some(checkpoint) = checkpoint.filter(fits) else { return Ok(None) };
        if !self.take_producers(inventory, checkpoint).await? {
            return Ok(None);
        }
        self.epochs = LeaderEpochs::from_entries(checkpoint.epochs.iter().copied());
        let next_bases = inventory.segments.iter().skip(1).map(|s| s.base);
        let mut segments: VecDeque<Segment> =
            sealed.iter().zip(next_bases).map(|(s, next)| self.sealed(*s, next)).collect();
        let mut active = Segment::new(last.base, self.now_ms, 0);
        active.resume(checkpoint);
        active.close_at(last.size, checkpoint.end.seed.clone());
        active.aborted = Aborted::unknown();
        // After a crash its file may tell of more than the log holds.
        if !clean && inventory.txn_indexes.contains(&last.base) {
            txn_index::settle(&self.dir, &mut active, checkpoint.recovery_point)
                .await
                .map_err(|error| self.fail("reading a transaction index", error))?;
        }
        segments.push_back(active);
        Ok(Some(segments))
    }

    /// The producers as of the recovery point. `false`: they are nowhere to be read.
    pub(super) async fn take_producers(
        &mut self,
        inventory: &Inventory,
        checkpoint: &Checkpoint,
    ) -> Result<bool, LogError> {
        match checkpoint.producers.as_deref().map(ProducerStates::decode) {
            Some(Ok(producers)) => {
                self.producers = producers;
                self.producers.restore_earlier(&self.earlier);
                Ok(true)
            }
            Some(Err(_)) | None => {
                let at = checkpoint.recovery_point;
                Ok(self.load_snapshot(inventory, at).await? == Some(at))
            }
        }
    }
}
