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

use wire::Uuid;

use super::{Committed, tombstone};
use crate::Name;
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

/// Groups looked at, and records made, in one step of a sweep: keeps one batch and one step short.
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
        for _ in 0..SWEEP_GROUPS_MAX {
            let Some(group) = self.sweep.left.pop() else { break };
            self.expire_group(&group, now_ms, out);
            if out.records.len() >= SWEEP_RECORDS_MAX {
                break;
            }
        }
        if self.sweep.left.is_empty() {
            self.offsets.drop_unused_names();
            self.sweep.start(now_ms + self.config.offsets_check_interval_ms);
        }
    }

    /// Tombstones for a group's expired offsets, and for the group if nothing of it is left.
    fn expire_group(&mut self, id: &Name, now_ms: i64, out: &mut Decision) {
        let Some(group) = self.groups.get(id) else { return };
        let retention = group.retention();
        let mut all_gone = true;
        if let Some(offsets) = self.offsets.group(id) {
            for (topic, parts) in offsets.topics() {
                let subscribed = group.is_subscribed_to(topic);
                for (partition, committed) in parts.iter() {
                    let gone = !subscribed
                        && is_expired(
                            committed,
                            retention,
                            now_ms,
                            self.config.offsets_retention_ms,
                        )
                        && !self.offsets.is_pending(id, topic, partition);
                    if gone {
                        out.records.push(tombstone(id, topic, partition));
                    }
                    all_gone &= gone;
                }
            }
        }
        if all_gone && !self.offsets.has_open(id) && group.is_empty() {
            group.tombstones(id, &mut out.records);
        }
    }

    /// The offsets of deleted topics go, whoever committed them. Each tombstone stands for itself: the
    /// caller may append them in as many batches as it likes.
    pub fn topics_deleted(&mut self, topics: &[(String, Uuid)], now_ms: i64) -> Decision {
        let mut out = Decision::default();
        for (group, offsets) in &self.offsets.groups {
            for (topic, id) in topics {
                for (partition, committed) in
                    offsets.partitions(topic).into_iter().flat_map(|it| it.iter())
                {
                    if !committed.is_of_another(*id) {
                        out.records.push(tombstone(group, topic, partition));
                    }
                }
            }
        }
        for groups in self.offsets.pending.values() {
            for (group, offsets) in groups {
                for (topic, _) in topics {
                    for (partition, _) in
                        offsets.partitions(topic).into_iter().flat_map(|it| it.iter())
                    {
                        if self.offsets.get(group, topic, partition).is_none() {
                            out.records.push(tombstone(group, topic, partition));
                        }
                    }
                }
            }
        }
        self.apply_new(&mut out, now_ms);
        out
    }
}

fn is_expired(committed: &Committed, retention: Retention, now_ms: i64, retention_ms: i64) -> bool {
    let from_ms = match retention {
        Retention::Kept => return false,
        Retention::FromCommit | Retention::FromEmpty(None) => committed.commit_ms,
        Retention::FromEmpty(Some(empty_ms)) => empty_ms,
    };
    match committed.expire_ms {
        ..0 => now_ms.saturating_sub(from_ms) >= retention_ms,
        // Only old clients say when, and then that counts and nothing else.
        expire_ms => now_ms >= expire_ms,
    }
}
