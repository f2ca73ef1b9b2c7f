//! What the batches of a partition say, gathered while they are walked, to hold the small files
//! against: producers, transactions, leader epochs, holes.

use std::path::PathBuf;

use wire::records::BatchHeader;

use super::{Findings, Severity};
use crate::epochs::{LeaderEpochs, UNDEFINED_EPOCH};
use crate::producer_state::{ProducerStates, ProducerView};

/// The walk's memory.
pub(crate) struct Replay {
    pub(crate) producers: ProducerStates,
    /// The producers are known from the start of the log, or from a snapshot there.
    pub(crate) complete: bool,
    /// Offsets are missing between batches: the log was compacted.
    pub(crate) holes: bool,
    /// The offset behind the last batch.
    pub(crate) next: Option<i64>,
    /// Base offset of the first segment.
    pub(crate) first_base: i64,
    pub(crate) last_epoch: i32,
    /// From the checkpoint.
    pub(crate) epochs: LeaderEpochs,
    pub(crate) unknown_epoch_told: bool,
    /// Snapshots not reached yet, the newest first.
    pub(crate) snapshots: Vec<(i64, PathBuf)>,
}

impl Replay {
    /// Holds the snapshots that a batch at `offset` passes against the producers as they are.
    /// `bytes` reads a file.
    pub(crate) fn snapshots_up_to(&mut self, offset: i64) -> Vec<(i64, PathBuf)> {
        let mut reached = Vec::new();
        while self.snapshots.last().is_some_and(|(at, _)| *at <= offset) {
            reached.extend(self.snapshots.pop());
        }
        reached
    }

    /// Says what of a snapshot contradicts the batches below it.
    pub(crate) fn compare(&self, at: i64, snapshot: &ProducerStates) -> Vec<String> {
        // What compaction removed is not there to be held against.
        if self.holes || !self.complete || self.next.is_some_and(|next| next != at) {
            return Vec::new();
        }
        let mut problems = Vec::new();
        for theirs in snapshot.iter() {
            match self.producers.view(theirs.producer_id) {
                Some(ours) if same(&ours, &theirs) => {}
                Some(ours) => problems.push(format!(
                    "producer {} is at {} here but at {} by its batches",
                    theirs.producer_id,
                    words(&theirs),
                    words(&ours)
                )),
                None => problems
                    .push(format!("producer {} wrote no batch below {at}", theirs.producer_id)),
            }
        }
        problems
    }

    /// Checks a batch's leader epoch against the one before and the checkpoint.
    pub(crate) fn check_epoch(
        &mut self,
        header: &BatchHeader,
        file: &std::path::Path,
        findings: &mut Findings<'_>,
        position: u64,
    ) {
        let epoch = header.partition_leader_epoch;
        if epoch < 0 {
            return;
        }
        if epoch < self.last_epoch {
            let text = format!("leader epoch {epoch} after epoch {}", self.last_epoch);
            findings.tell(Severity::Damage, file, Some(position), text);
            return;
        }
        self.last_epoch = epoch;
        let Some(latest) = self.epochs.latest() else { return };
        let known = self.epochs.epoch_of(header.base_offset);
        if known == UNDEFINED_EPOCH || known == epoch {
            return;
        }
        if epoch > latest.epoch {
            if !std::mem::replace(&mut self.unknown_epoch_told, true) {
                let text = format!("leader epoch {epoch} is not in the checkpoint (yet)");
                findings.tell(Severity::Note, file, Some(position), text);
            }
            return;
        }
        let text = format!(
            "leader epoch {epoch} at offset {}, where the checkpoint has {known}",
            header.base_offset
        );
        findings.tell(Severity::Damage, file, Some(position), text);
    }
}

fn same(ours: &ProducerView, theirs: &ProducerView) -> bool {
    (ours.epoch, ours.last_sequence, ours.last_offset, ours.open_since, ours.coordinator_epoch)
        == (
            theirs.epoch,
            theirs.last_sequence,
            theirs.last_offset,
            theirs.open_since,
            theirs.coordinator_epoch,
        )
}

fn words(view: &ProducerView) -> String {
    let open = view.open_since.map_or(String::new(), |since| format!(", open since {since}"));
    format!(
        "epoch {}, sequence {}, offset {}, coordinator epoch {}{open}",
        view.epoch, view.last_sequence, view.last_offset, view.coordinator_epoch
    )
}
