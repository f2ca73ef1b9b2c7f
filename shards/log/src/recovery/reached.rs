//! Whether a log that was opened goes as far as something outside of its folder says.
//!
//! Owns: telling an emptied folder, or an older copy of it, from a log that damage has shortened; and
//! remembering that a shorter log was taken as it is, so that nobody misses the rest again.
//!
//! | it ends before what was safe, and | then |
//! |---|---|
//! | nothing was cut off, its checkpoint is there | not opened: an older copy |
//! | its checkpoint does not go as far either | likewise, whatever was cut off |
//! | there is no segment | not opened: an emptied folder |
//! | damage was cut off | opened, and told |
//! | its checkpoint is not there | opened, and told: an operator has removed it |

use std::collections::VecDeque;

use reactor::fs;

use super::Opening;
use super::inventory::Inventory;
use crate::checkpoint;
use crate::checkpoints::{GIVEN_UP, encode_own_offset};
use crate::config::OpenHint;
use crate::error::LogError;
use crate::names::{FileKind, file_name};
use crate::segment::Segment;

/// What is known from outside of the folder, and still counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Safe {
    /// Below this everything was synced.
    pub(super) to: i64,
    /// Below this everything was written, on this start of the machine.
    pub(super) written: i64,
    /// How far the partition's own checkpoint goes, if there is one.
    pub(super) checkpointed: Option<i64>,
}

impl Safe {
    /// What was given up once, or lies below the start, need not be there.
    pub(super) fn new(hint: &OpenHint, given_up: Option<i64>, log_start: i64) -> Self {
        let excused = given_up.unwrap_or(0).max(log_start);
        let counts = |offset: i64| if offset > excused { offset } else { 0 };
        let to = hint.recovery_point.max(hint.vouched.synced_end);
        let (to, written) = (counts(to), counts(hint.vouched.written_end));
        Safe { to, written, checkpointed: None }
    }
}

impl Opening {
    /// Before anything is cut off, and again when all is read. `cuts`: more than zeros lies behind the end.
    pub(super) async fn check_reached(
        &mut self,
        segments: &VecDeque<Segment>,
        inventory: &Inventory,
        cuts: bool,
    ) -> Result<(), LogError> {
        let end = segments.back().map_or(0, |segment| segment.next_offset);
        // What was written and not synced goes with the power only: all of it is not gone.
        let is_empty = segments.iter().all(|segment| segment.size == 0);
        let safe = self.safe;
        let safe_to = if is_empty { safe.to.max(safe.written) } else { safe.to };
        if end >= safe_to {
            return Ok(());
        }
        let is_older = safe.checkpointed.is_some_and(|point| point < safe_to);
        let base = segments.back().map_or(0, |segment| segment.base);
        let position = segments.back().map_or(0, |segment| segment.size);
        let problem = format!("it ends at {end}, but {safe_to} was safe");
        if inventory.segments.is_empty() {
            let file = self.dir.join(file_name(FileKind::Log, safe_to));
            let remedy = format!("to go on without what is lost, make an empty {}", file.display());
            return Err(self.incomplete(base, position, &problem, &remedy));
        }
        if inventory.has.checkpoint && (is_older || !cuts) {
            let checkpoint = self.dir.join(checkpoint::FILE);
            let remedy = format!("to go on without what is lost, remove {}", checkpoint.display());
            return Err(self.incomplete(base, position, &problem, &remedy));
        }
        tracing::error!(log = %self.name, "{problem}; it goes on there");
        let bytes = encode_own_offset(&self.dir, safe_to);
        let written = fs::write_atomic(&self.dir.join(GIVEN_UP), bytes).await;
        written.map_err(|error| self.fail("writing down what is lost", error))?;
        self.safe = Safe::default();
        Ok(())
    }
}
