//! Giving up an opening that is no longer wanted.
//!
//! Owns: one flag with those who wait for it. Lives on one shard; clones are the same flag.

use std::cell::Cell;
use std::rc::Rc;

use reactor::sync::{Notified, Notify};

/// Tells the opening of a log that its result is not wanted any more. It then ends with
/// [`LogError::Closed`](crate::LogError::Closed), before it reads or changes anything more.
#[derive(Clone, Default)]
pub struct Cancel(Rc<Inner>);

#[derive(Default)]
struct Inner {
    asked: Cell<bool>,
    changed: Notify,
}

impl Cancel {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn cancel(&self) {
        self.0.asked.set(true);
        self.0.changed.notify_all();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.asked.get()
    }

    /// Resolves when it is asked for.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            self.changed().await;
        }
    }

    pub(crate) fn changed(&self) -> Notified {
        self.0.changed.notified()
    }
}
