//! Where a search over all groups, or all transactional ids, stands: it looks at some at a time.

use crate::Name;

#[derive(Debug, Default)]
pub(crate) struct Sweep {
    due_ms: Option<i64>,
    /// Those still to be looked at in this round.
    pub left: Vec<Name>,
}

impl Sweep {
    pub fn start(&mut self, due_ms: i64) {
        self.due_ms = Some(due_ms);
    }

    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    pub fn is_due(&self, now_ms: i64) -> bool {
        self.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }
}
