//! Offsets of one topic: a list while they are few, which is the rule and costs least; a tree when
//! they are many, so that taking them out one by one stays linear.

use std::collections::BTreeMap;

use super::Committed;

/// More partitions of a topic than this are kept in a tree.
const FEW: usize = 64;

#[derive(Clone, Debug)]
pub(crate) enum ByPartition {
    /// Ascending.
    Few(Vec<(i32, Committed)>),
    Many(BTreeMap<i32, Committed>),
}

impl Default for ByPartition {
    fn default() -> Self {
        ByPartition::Few(Vec::with_capacity(1))
    }
}

impl PartialEq for ByPartition {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ByPartition {}

impl ByPartition {
    pub fn len(&self) -> usize {
        match self {
            ByPartition::Few(list) => list.len(),
            ByPartition::Many(tree) => tree.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, partition: i32) -> Option<&Committed> {
        match self {
            ByPartition::Few(list) => {
                let at = list.binary_search_by_key(&partition, |(part, _)| *part).ok()?;
                list.get(at).map(|(_, committed)| committed)
            }
            ByPartition::Many(tree) => tree.get(&partition),
        }
    }

    pub fn put(&mut self, partition: i32, committed: Committed) {
        match self {
            ByPartition::Few(list) => {
                match list.binary_search_by_key(&partition, |(part, _)| *part) {
                    Ok(found) => list[found].1 = committed,
                    Err(gap) => list.insert(gap, (partition, committed)),
                }
                if list.len() > FEW {
                    *self = ByPartition::Many(std::mem::take(list).into_iter().collect());
                }
            }
            ByPartition::Many(tree) => drop(tree.insert(partition, committed)),
        }
    }

    pub fn remove(&mut self, partition: i32) {
        match self {
            ByPartition::Few(list) => list.retain(|(part, _)| *part != partition),
            ByPartition::Many(tree) => drop(tree.remove(&partition)),
        }
    }

    /// By ascending partition.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &Committed)> {
        let (few, many) = match self {
            ByPartition::Few(list) => (Some(list), None),
            ByPartition::Many(tree) => (None, Some(tree)),
        };
        let few = few.into_iter().flatten().map(|(partition, committed)| (*partition, committed));
        few.chain(many.into_iter().flatten().map(|(partition, committed)| (*partition, committed)))
    }
}

impl IntoIterator for ByPartition {
    type Item = (i32, Committed);
    type IntoIter = std::iter::Chain<
        std::vec::IntoIter<(i32, Committed)>,
        std::collections::btree_map::IntoIter<i32, Committed>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let (few, many) = match self {
            ByPartition::Few(list) => (list, BTreeMap::new()),
            ByPartition::Many(tree) => (Vec::new(), tree),
        };
        few.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Uuid;

    fn committed(offset: i64) -> Committed {
        Committed {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
            commit_ms: 0,
            expire_ms: -1,
            topic_id: Uuid::ZERO,
            sequence: 0,
        }
    }

    #[test]
    fn few_or_many_are_the_same() {
        let mut all = ByPartition::default();
        let mut oracle = BTreeMap::new();
        for n in 0..1_000i64 {
            // Out of order, with repetitions, and a third of them taken out again.
            let partition = ((n * 7_919) % 301) as i32;
            all.put(partition, committed(n));
            oracle.insert(partition, n);
            if n % 3 == 0 {
                all.remove(partition / 2);
                oracle.remove(&(partition / 2));
            }
            assert_eq!(all.get(partition).map(|it| it.offset), oracle.get(&partition).copied());
            assert_eq!(all.len(), oracle.len());
        }
        assert!(matches!(all, ByPartition::Many(_)));
        let found: Vec<(i32, i64)> = all.iter().map(|(part, it)| (part, it.offset)).collect();
        assert!(found.iter().copied().eq(oracle.iter().map(|(part, at)| (*part, *at))));
        let taken: Vec<i32> = all.clone().into_iter().map(|(partition, _)| partition).collect();
        for partition in taken {
            all.remove(partition);
        }
        assert!(all.is_empty() && all == ByPartition::default());
    }
}
