//! Offsets that nobody needs: those past their retention, those of deleted topics, and groups left
//! with nothing.
//!
//! | group | an offset's retention counts from |
//! |---|---|
//! | simple: never had members | its commit |
//! | classic, Empty | when the group became empty |
//! | classic consumers, Stable | its commit, for topics that nobody subscribes to |
//! | classic, other states and other protocols | not at all |
//! | consumer | its commit, for topics that nobody subscribes to |

use ahash::AHashMap;
use wire::Uuid;

use super::{Committed, Offsets};
use crate::Name;
use crate::context::Topics;
use crate::coordinator::Coordinator;
use crate::request::Decision;

/// From when the retention of a group's offsets counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    FromCommit,
    /// From this moment, or from the commit where an old log does not know it.
    FromEmpty(Option<i64>),
    Kept,
}

/// Groups looked at, and records made, in one step of a sweep: keeps it short, whatever the groups
/// hold.
const SWEEP_GROUPS_MAX: usize = 1_000;
const SWEEP_RECORDS_MAX: usize = 2_000;

impl Coordinator {
    /// Goes on with the search for expired offsets, if it is time.
    pub(crate) fn sweep(&mut self, now_ms: i64, out: &mut Decision) {
        if !self.sweep.is_due(now_ms) {
            return;
        }
        if self.sweep.left.is_empty() {
            self.sweep.left = self.groups.keys().cloned().collect();
        }
        let wall_ms = now_ms.saturating_add(self.wall_ahead_ms);
        for _ in 0..SWEEP_GROUPS_MAX {
            let Some(group) = self.sweep.left.pop() else { break };
            let done = self.expire_group(&group, wall_ms, out);
            if !done {
                self.sweep.left.push(group);
            }
            if !done || out.records.len() >= SWEEP_RECORDS_MAX {
                break;
            }
        }
        if self.sweep.left.is_empty() {
            self.offsets.drop_unused_names();
            self.sweep.start(now_ms + self.config.offsets_check_interval_ms);
        }
    }

    /// Tombstones for a group's expired offsets, and for the group if nothing of it is left.
    /// Returns false if there may be more of them.
    fn expire_group(&mut self, id: &Name, wall_ms: i64, out: &mut Decision) -> bool {
        let Some(group) = self.groups.get(id) else { return true };
        let retention = group.retention();
        let retention_ms = self.config.offsets_retention_ms;
        let mut all_gone = true;
        if let Some(offsets) = self.offsets.group(id) {
            for (topic, parts) in offsets.topics() {
                let subscribed = group.is_subscribed_to(topic);
                for (partition, committed) in parts.iter() {
                    let gone = !subscribed
                        && is_expired(committed, retention, wall_ms, retention_ms)
                        && !self.offsets.is_pending(id, topic, partition);
                    if gone && out.records.len() >= SWEEP_RECORDS_MAX {
                        return false;
                    }
                    if gone {
                        out.bury(id, topic, partition);
                    }
                    all_gone &= gone;
                }
            }
        }
        if all_gone && !self.offsets.has_open(id) && group.is_empty() {
            group.tombstones(id, &mut out.records);
            out.cut();
        }
        true
    }

    /// The offsets of deleted topics go, whoever committed them: with the next calls of
    /// [`on_time`](Self::on_time), some at a time.
    pub fn topics_deleted(&mut self, topics: &[(String, Uuid)]) {
        for (topic, id) in topics {
            self.deleted.topics.entry(topic.clone()).or_default().push(*id);
        }
        self.deleted.left = self.offsets.group_names();
    }

    /// Goes on with the offsets of deleted topics.
    pub(crate) fn bury_deleted(&mut self, topics: &dyn Topics, out: &mut Decision) {
        let Coordinator { deleted, offsets, .. } = self;
        let Deleted { topics: gone, left } = deleted;
        let is_gone = |topic: &str, committed: &Committed| match gone.get(topic) {
            None => false,
            // An older record does not say which topic of that name it was.
            Some(_) if committed.topic_id.is_zero() => topics.id_of(topic).is_none(),
            Some(ids) => ids.contains(&committed.topic_id),
        };
        for _ in 0..SWEEP_GROUPS_MAX {
            if out.records.len() >= SWEEP_RECORDS_MAX {
                return;
            }
            let Some(group) = left.pop() else { break };
            if !offsets.bury(&group, &is_gone, out) {
                left.push(group);
            }
        }
        if left.is_empty() {
            gone.clear();
        }
    }
}

/// Topics that are gone, and the groups that are still to be looked at for their offsets.
#[derive(Debug, Default)]
pub(crate) struct Deleted {
    /// Ids by name.
    topics: AHashMap<String, Vec<Uuid>>,
    left: Vec<Name>,
}

impl Deleted {
    /// At once, if there is something to do.
    pub fn due_ms(&self) -> Option<i64> {
        (!self.topics.is_empty()).then_some(0)
    }
}

impl Offsets {
    /// Tombstones for a group's offsets that are gone, those of open transactions included. One
    /// takes all that is held of its partition, so what is gone stays where something else is not.
    /// Returns false if there may be more of them.
    fn bury(
        &self,
        group: &Name,
        is_gone: &dyn Fn(&str, &Committed) -> bool,
        out: &mut Decision,
    ) -> bool {
        for offsets in self.group(group).into_iter().chain(self.pending_in(group)) {
            for (topic, parts) in offsets.topics() {
                for (partition, _) in parts.iter().filter(|(_, it)| is_gone(topic, it)) {
                    if out.records.len() >= SWEEP_RECORDS_MAX {
                        return false;
                    }
                    if self.held(group, topic, partition).all(|it| is_gone(topic, it)) {
                        out.bury(group, topic, partition);
                    }
                }
            }
        }
        true
    }
}

fn is_expired(
    committed: &Committed,
    retention: Retention,
    wall_ms: i64,
    retention_ms: i64,
) -> bool {
    let from_ms = match retention {
        Retention::Kept => return false,
        Retention::FromCommit | Retention::FromEmpty(None) => committed.commit_ms,
        Retention::FromEmpty(Some(empty_ms)) => empty_ms,
    };
    match committed.expire_ms {
        ..0 => wall_ms.saturating_sub(from_ms) >= retention_ms,
        // Only old clients say when, and then that counts and nothing else.
        expire_ms => wall_ms >= expire_ms,
    }
}
