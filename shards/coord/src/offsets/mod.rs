//! Committed offsets by group, topic and partition, and those of open transactions.
//!
//! Changed only by replaying records and transaction markers. A transaction's offsets are kept
//! apart until its marker comes; a later plain commit of the same partition wins over them, which
//! is what the sequence number is for: records in log order get ascending ones.

mod by_partition;
mod commit;
mod expire;
mod fetch;

use ahash::{AHashMap, AHashSet};
use wire::Uuid;
use wire::messages as m;

pub(crate) use by_partition::ByPartition;
pub(crate) use commit::Committer;
pub(crate) use expire::{Deleted, Retention};

use crate::Name;
use crate::record::Record;

/// What stands in the log for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub offset: i64,
    /// Epoch of the record before the offset, or -1.
    pub leader_epoch: i32,
    pub metadata: Box<str>,
    pub commit_ms: i64,
    /// When the client of an old version wanted it gone, or -1.
    pub expire_ms: i64,
    /// Which topic of that name it was; zero where an older log does not say.
    pub topic_id: Uuid,
    sequence: u64,
}

impl Committed {
    /// Whether the offset belongs to an earlier topic of the same name.
    pub fn is_of_another(&self, topic: Uuid) -> bool {
        !self.topic_id.is_zero() && !topic.is_zero() && self.topic_id != topic
    }
}

/// Offsets of one group; few topics as a rule, so a sorted list rather than a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupOffsets {
    topics: Vec<(Name, ByPartition)>,
}

impl GroupOffsets {
    pub fn get(&self, topic: &str, partition: i32) -> Option<&Committed> {
        self.partitions(topic)?.get(partition)
    }

    pub fn topics(&self) -> impl Iterator<Item = (&Name, &ByPartition)> {
        self.topics.iter().map(|(topic, parts)| (topic, parts))
    }

    fn partitions(&self, topic: &str) -> Option<&ByPartition> {
        let at = self.find(topic).ok()?;
        self.topics.get(at).map(|(_, parts)| parts)
    }

    fn find(&self, topic: &str) -> Result<usize, usize> {
        self.topics.binary_search_by(|(name, _)| (**name).cmp(topic))
    }

    fn put(&mut self, topic: &Name, partition: i32, committed: Committed) {
        let at = match self.find(topic) {
            Ok(at) => at,
            Err(at) => {
                self.topics.insert(at, (topic.clone(), ByPartition::default()));
                at
            }
        };
        if let Some((_, parts)) = self.topics.get_mut(at) {
            parts.put(partition, committed);
        }
    }

    fn remove(&mut self, topic: &str, partition: i32) {
        let Ok(at) = self.find(topic) else { return };
        let Some((_, parts)) = self.topics.get_mut(at) else { return };
        parts.remove(partition);
        if parts.is_empty() {
            self.topics.remove(at);
        }
    }
}

/// The open transactions of one group.
#[derive(Debug, Default)]
struct Open {
    producers: AHashSet<i64>,
    /// How many of them hold an offset of a partition, by topic.
    holders: AHashMap<Name, AHashMap<i32, u32>>,
}

impl Open {
    fn add(&mut self, topic: &Name, partition: i32) {
        *self.holders.entry(topic.clone()).or_default().entry(partition).or_default() += 1;
    }

    /// One holder less, or none at all.
    fn take(&mut self, topic: &str, partition: i32, all: bool) {
        let Some(parts) = self.holders.get_mut(topic) else { return };
        if let Some(count) = parts.get_mut(&partition) {
            *count = if all { 0 } else { count.saturating_sub(1) };
            if *count == 0 {
                parts.remove(&partition);
            }
        }
        if parts.is_empty() {
            self.holders.remove(topic);
        }
    }

    fn holds(&self, topic: &str, partition: i32) -> bool {
        self.holders.get(topic).is_some_and(|parts| parts.contains_key(&partition))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    groups: AHashMap<Name, GroupOffsets>,
    /// By producer id: what its open transaction would commit.
    pending: AHashMap<i64, AHashMap<Name, GroupOffsets>>,
    /// By group: its open transactions.
    open: AHashMap<Name, Open>,
    names: AHashSet<Name>,
    sequence: u64,
}

impl Offsets {
    pub fn group(&self, group: &str) -> Option<&GroupOffsets> {
        self.groups.get(group)
    }

    pub fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&Committed> {
        self.groups.get(group)?.get(topic, partition)
    }

    /// What is held of a partition: the offset that is committed, and those that open transactions
    /// would commit.
    fn held<'a>(
        &'a self,
        group: &'a str,
        topic: &'a str,
        partition: i32,
    ) -> impl Iterator<Item = &'a Committed> {
        let pending =
            self.pending_in(group).filter_map(move |offsets| offsets.get(topic, partition));
        self.get(group, topic, partition).into_iter().chain(pending)
    }

    /// What each open transaction holds of a group.
    fn pending_in<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a GroupOffsets> {
        let producers = self.open.get(group).into_iter().flat_map(|open| &open.producers);
        producers.filter_map(move |producer| self.pending.get(producer)?.get(group))
    }

    /// Groups with offsets, some of them perhaps twice.
    fn group_names(&self) -> Vec<Name> {
        self.groups.keys().chain(self.open.keys()).cloned().collect()
    }

    /// Whether an open transaction holds an offset of the partition.
    pub fn is_pending(&self, group: &str, topic: &str, partition: i32) -> bool {
        self.open.get(group).is_some_and(|open| open.holds(topic, partition))
    }

    /// Whether any transaction of the group is open.
    pub fn has_open(&self, group: &str) -> bool {
        self.open.contains_key(group)
    }

    /// The partitions of a group that open transactions hold offsets of.
    pub fn pending_of(&self, group: &str) -> Vec<(Name, i32)> {
        let topics = self.open.get(group).into_iter().flat_map(|open| &open.holders);
        let parts = topics
            .flat_map(|(topic, parts)| parts.keys().map(|partition| (topic.clone(), *partition)));
        parts.collect()
    }

    /// Number of committed offsets.
    pub fn len(&self) -> usize {
        self.groups.values().flat_map(|g| g.topics.iter()).map(|(_, parts)| parts.len()).sum()
    }

    /// Replays a record of an offset; `producer` if it lies in a transactional batch.
    pub fn replay(
        &mut self,
        key: &m::OffsetCommitKey<'_>,
        value: Option<&m::OffsetCommitValue<'_>>,
        producer: Option<i64>,
    ) {
        let Some(value) = value else { return self.remove(&key.group, &key.topic, key.partition) };
        self.sequence += 1;
        let committed = Committed {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: Box::from(&*value.metadata),
            commit_ms: value.commit_timestamp,
            expire_ms: value.expire_timestamp,
            topic_id: value.topic_id,
            sequence: self.sequence,
        };
        let group = self.name(&key.group);
        let topic = self.name(&key.topic);
        let offsets = match producer {
            None => self.groups.entry(group).or_default(),
            Some(producer) => {
                let open = self.open.entry(group.clone()).or_default();
                open.producers.insert(producer);
                let offsets = self.pending.entry(producer).or_default().entry(group).or_default();
                if offsets.get(&topic, key.partition).is_none() {
                    open.add(&topic, key.partition);
                }
                offsets
            }
        };
        offsets.put(&topic, key.partition, committed);
    }

    /// Replays the end of a producer's transaction.
    pub fn replay_marker(&mut self, producer: i64, commit: bool) {
        for (group, offsets) in self.pending.remove(&producer).unwrap_or_default() {
            if let Some(open) = self.open.get_mut(&group) {
                open.producers.remove(&producer);
                for (topic, parts) in offsets.topics() {
                    parts.iter().for_each(|(partition, _)| open.take(topic, partition, false));
                }
                if open.producers.is_empty() {
                    self.open.remove(&group);
                }
            }
            if !commit || offsets.topics.is_empty() {
                continue;
            }
            let kept = self.groups.entry(group).or_default();
            for (topic, parts) in offsets.topics {
                for (partition, committed) in parts {
                    let newer = kept
                        .get(&topic, partition)
                        .is_none_or(|other| other.sequence < committed.sequence);
                    if newer {
                        kept.put(&topic, partition, committed);
                    }
                }
            }
        }
    }

    fn remove(&mut self, group: &str, topic: &str, partition: i32) {
        if let Some(offsets) = self.groups.get_mut(group) {
            offsets.remove(topic, partition);
            if offsets.topics.is_empty() {
                self.groups.remove(group);
            }
        }
        let Some(open) = self.open.get_mut(group) else { return };
        if !open.holds(topic, partition) {
            return;
        }
        open.take(topic, partition, true);
        for producer in &open.producers {
            let pending = self.pending.get_mut(producer).and_then(|groups| groups.get_mut(group));
            if let Some(offsets) = pending {
                offsets.remove(topic, partition);
            }
        }
    }

    /// The shared copy of a name.
    fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        self.names.insert(name.clone());
        name
    }

    /// Forgets names that nothing uses any more.
    fn drop_unused_names(&mut self) {
        self.names.retain(|name| std::sync::Arc::strong_count(name) > 1);
    }
}

/// The record that an offset is gone.
pub(crate) fn tombstone(group: &str, topic: &str, partition: i32) -> Record<'static> {
    let key = m::OffsetCommitKey {
        group: String::from(group).into(),
        topic: String::from(topic).into(),
        partition,
    };
    Record::OffsetCommit(key, None)
}
