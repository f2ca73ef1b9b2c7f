//! Whether a log that was opened goes as far as something outside of its folder says.
//!
//! Owns: telling an emptied folder, an older copy of it, or a segment that something has shortened, from
//! a log that damage has shortened; and what an operator has given up (`given-up-offset-checkpoint`).
//!
//! | it ends before what was safe, and | then |
//! |---|---|
//! | where it ends, a file or a name is all that is missing | not opened |
//! | damage lies there, with whole batches behind it | opened, and told; what is whole is set aside |
//! | the same, but its checkpoint does not go as far either | not opened: an older copy, or damage that also took the checkpoint back |
//! | the operator's file is there, empty | opened, and told |
//!
//! Safe is what was synced, and, on the start of the machine on which it was, what was written: no end of
//! the process takes a write that was complete. A segment without a batch holds nothing: only the
//! offsets that the log's start has passed need not be there.
//!
//! The operator's file counts for one opening, which writes into it below which offset nothing is missed
//! any more, or removes it where nothing is missing. It goes when the log has grown past what is vouched
//! for from outside.

use std::collections::VecDeque;

use reactor::fs;

use super::Opening;
use super::inventory::{Inventory, OnDisk};
use super::walk::Ending;
use crate::checkpoints::{GIVEN_UP, encode_own_offset, read_if_there};
use crate::config::OpenHint;
use crate::error::LogError;
use crate::files::remove_if_there;
use crate::scan;
use crate::segment::Segment;

/// What of a log was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Nothing,
    /// Whatever is missing now: the word of an operator that no opening has settled yet.
    Missing,
    /// All below, by an opening that has settled it.
    Below(i64),
}

/// What is known from outside of the folder, and still counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Safe {
    /// Below this everything was synced.
    pub(super) to: i64,
    /// Below this everything was written, on this start of the machine.
    pub(super) written: i64,
    /// Of `to`, what does not count a segment without a batch as an end: it is vouched for by id.
    vouched: i64,
    /// How far the partition's own checkpoint goes, if there is one.
    checkpointed: Option<i64>,
    /// An operator's word was needed: below this nothing is missed from now on.
    gave_up: Option<i64>,
}

impl Safe {
    /// What was given up once, or lies below the start, need not be there.
    pub(super) fn new(
        hint: &OpenHint,
        given_up: GivenUp,
        log_start: i64,
        checkpointed: Option<i64>,
    ) -> Self {
        let given_up = match given_up {
            GivenUp::Below(offset) => offset,
            GivenUp::Nothing | GivenUp::Missing => 0,
        };
        let excused = given_up.max(log_start);
        let counts = |offset: i64| if offset > excused { offset } else { 0 };
        let synced = hint.vouched.synced_end;
        Safe {
            to: counts(hint.recovery_point.max(synced)),
            written: counts(hint.vouched.written_end),
            vouched: counts(synced.max(hint.vouched.written_end)),
            checkpointed,
            gave_up: None,
        }
    }

    /// What is missing of a log that ends here, if anything.
    fn missed(&self, end: i64, is_empty: bool) -> Option<i64> {
        let safe_to = self.to.max(self.written);
        match is_empty {
            true if self.vouched > 0 => Some(safe_to),
            _ => Some(safe_to).filter(|safe_to| end < *safe_to),
        }
    }
}

/// What a log ends at that does not go on.
#[derive(Clone, Copy)]
pub(super) enum Lack<'a> {
    /// At the end of its last file.
    Short,
    /// At something in this segment that is no batch; these come after it.
    At { segment: OnDisk, ending: &'a Ending, later: &'a [OnDisk] },
}

impl Opening {
    /// Before anything is cut off, and again when all is read.
    pub(super) async fn check_reached(
        &mut self,
        segments: &VecDeque<Segment>,
        lack: Lack<'_>,
    ) -> Result<(), LogError> {
        let (end, is_empty) = (self.end_of(segments), is_empty(segments));
        let Some(safe_to) = self.safe.missed(end, is_empty) else { return Ok(()) };
        let problem = match is_empty {
            true => format!("no record is there, but all below {safe_to} was safe"),
            false => format!("it ends at {end}, but {safe_to} was safe"),
        };
        if self.given_up == GivenUp::Missing {
            tracing::error!(log = %self.name, "{problem}; it goes on without what is lost");
            self.safe = Safe { gave_up: Some(safe_to), ..Safe::default() };
            return Ok(());
        }
        let is_behind = self.safe.checkpointed.is_some_and(|point| point < self.safe.to);
        if is_behind || !self.is_damaged(segments, lack).await? {
            let (base, position) = segments.back().map_or((0, 0), |s| (s.base, s.size));
            let problem = format!("{problem}; {}", self.remedy());
            return Err(self.refused(base, position.into(), problem));
        }
        tracing::error!(log = %self.name, "{problem}; it goes on there");
        self.write_given_up(safe_to).await?;
        self.safe = Safe::default();
        Ok(())
    }

    /// What to do about a log that is not opened.
    pub(super) fn remedy(&self) -> String {
        let file = self.dir.join(GIVEN_UP);
        let file = file.display();
        format!("put it back from a copy, or, to go on without what is lost, make an empty {file}")
    }

    pub(super) async fn saved_given_up(&self, inventory: &Inventory) -> Result<GivenUp, LogError> {
        if !inventory.has.given_up {
            return Ok(GivenUp::Nothing);
        }
        let read = read_if_there(&self.dir.join(GIVEN_UP)).await;
        let bytes = read.map_err(|error| self.fail("reading what was given up", error))?;
        if bytes.is_some_and(|bytes| bytes.trim_ascii().is_empty()) {
            return Ok(GivenUp::Missing);
        }
        let settled = self.saved_offset(GIVEN_UP, true).await?;
        Ok(settled.map_or(GivenUp::Nothing, GivenUp::Below))
    }

    /// Where a log starts, and its segments. One of which all was given up begins anew: no offset is given
    /// out twice.
    pub(super) fn without_given_up(
        &self,
        segments: VecDeque<Segment>,
        log_start: i64,
    ) -> (VecDeque<Segment>, i64) {
        match self.safe.gave_up.filter(|_| is_empty(&segments)) {
            Some(below) => (VecDeque::new(), log_start.max(below)),
            None => (segments, log_start),
        }
    }

    /// The log stands as it is served: the operator's word is used up.
    pub(super) async fn settle_given_up(
        &self,
        segments: &VecDeque<Segment>,
        hint: &OpenHint,
    ) -> Result<(), LogError> {
        let vouched = hint.vouched.synced_end.max(hint.vouched.written_end);
        let known = vouched.max(hint.recovery_point);
        let is_past = known > 0 && known <= self.end_of(segments) && !is_empty(segments);
        let is_done = match (self.given_up, self.safe.gave_up) {
            (GivenUp::Missing, Some(below)) => return self.write_given_up(below).await,
            (GivenUp::Missing, None) => true,
            (GivenUp::Below(_), _) => is_past,
            (GivenUp::Nothing, _) => false,
        };
        if !is_done {
            return Ok(());
        }
        tracing::info!(log = %self.name, "{GIVEN_UP} removed: nothing is missed by it any more");
        let removed = async {
            remove_if_there(&self.dir.join(GIVEN_UP)).await?;
            fs::sync_dir(&self.dir).await
        };
        removed.await.map_err(|error| self.fail("settling what was given up", error))
    }

    async fn write_given_up(&self, below: i64) -> Result<(), LogError> {
        let bytes = encode_own_offset(&self.dir, below);
        let written = fs::write_atomic(&self.dir.join(GIVEN_UP), bytes).await;
        written.map_err(|error| self.fail("writing down what is lost", error))
    }

    /// The end of the last batch. Where compaction leaves no holes, a file without one behind a hole is
    /// nothing that this log has made.
    fn end_of(&self, segments: &VecDeque<Segment>) -> i64 {
        let filled = segments.iter().rposition(|segment| segment.size > 0);
        let mut end = segments.back().map_or(0, |segment| segment.next_offset);
        if let Some(place) = filled
            && let (Some(last), Some(behind)) = (segments.get(place), segments.get(place + 1))
            && !self.config.compact
            && self.cleaner_point.is_none_or(|point| point <= last.base)
            && last.next_offset < behind.base
        {
            end = last.next_offset;
        }
        end
    }

    /// Whether records are there that cannot be read, and not only less of a file, or a file less.
    async fn is_damaged(
        &self,
        segments: &VecDeque<Segment>,
        lack: Lack<'_>,
    ) -> Result<bool, LogError> {
        let Lack::At { segment, ending, later } = lack else { return Ok(false) };
        let Some(read) = segments.back() else { return Ok(false) };
        let Some(file) = &read.file else { return Ok(false) };
        let looked = async {
            if scan::find_batch(file, read.size, segment.size, read.next_offset).await?.is_some() {
                return Ok(true);
            }
            let is_followed = later.iter().any(|segment| segment.size > 0);
            let is_cut = matches!(ending, Ending::Cut(_)) && read.size < segment.size;
            Ok(is_followed
                && is_cut
                && scan::holds_something(file, read.size, segment.size).await?)
        };
        looked.await.map_err(|error| self.fail("reading the end of a segment", error))
    }
}

fn is_empty(segments: &VecDeque<Segment>) -> bool {
    segments.iter().all(|segment| segment.size == 0)
}
