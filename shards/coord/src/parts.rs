//! Sets of partitions by topic id: assignments and what they differ by.

use std::collections::BTreeMap;

use wire::{Array, Uuid};

/// Partitions by topic, ascending, no topic without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(BTreeMap<Uuid, Vec<i32>>);

impl Parts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, topic: Uuid, partition: i32) -> bool {
        self.0.get(&topic).is_some_and(|parts| parts.binary_search(&partition).is_ok())
    }

    pub fn iter(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        self.0.iter().flat_map(|(topic, parts)| parts.iter().map(move |part| (*topic, *part)))
    }

    pub fn topics(&self) -> impl Iterator<Item = (Uuid, &[i32])> + '_ {
        self.0.iter().map(|(topic, parts)| (*topic, parts.as_slice()))
    }

    pub fn is_subset_of(&self, other: &Parts) -> bool {
        self.iter().all(|(topic, part)| other.contains(topic, part))
    }

    /// From any of the generated lists of topics with partitions.
    pub fn from_lists<'a>(lists: impl Iterator<Item = (Uuid, Array<'a, i32>)>) -> Self {
        let mut all = Parts::default();
        for (topic, list) in lists {
            let mut parts = list.to_vec();
            parts.extend(all.0.remove(&topic).unwrap_or_default());
            parts.sort_unstable();
            parts.dedup();
            if !parts.is_empty() {
                all.0.insert(topic, parts);
            }
        }
        all
    }
}

impl FromIterator<(Uuid, i32)> for Parts {
    fn from_iter<I: IntoIterator<Item = (Uuid, i32)>>(items: I) -> Self {
        let mut all: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in items {
            all.entry(topic).or_default().push(partition);
        }
        for parts in all.values_mut() {
            parts.sort_unstable();
            parts.dedup();
        }
        Parts(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid([1; 16]);
    const B: Uuid = Uuid([2; 16]);

    #[test]
    fn sets_of_partitions() {
        let all: Parts = [(A, 2), (A, 1), (B, 0), (A, 1)].into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), [(A, 1), (A, 2), (B, 0)]);
        assert!(all.contains(A, 2) && !all.contains(B, 2));
        let some: Parts = [(A, 1)].into_iter().collect();
        assert!(some.is_subset_of(&all) && !all.is_subset_of(&some));
        let lists = [(A, vec![2].into()), (B, vec![].into()), (A, vec![1, 1].into())];
        let read = Parts::from_lists(lists.into_iter());
        assert_eq!(read.topics().collect::<Vec<_>>(), [(A, &[1, 2][..])]);
    }
}
