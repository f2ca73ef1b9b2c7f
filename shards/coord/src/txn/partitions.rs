//! The partitions of a transaction.

use crate::Name;

/// Partitions by topic, both ascending, no topic without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions(Vec<(Name, Vec<i32>)>);

impl Partitions {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, topic: &str, partition: i32) -> bool {
        self.at(topic).is_ok_and(|at| self.0[at].1.binary_search(&partition).is_ok())
    }

    pub fn topics(&self) -> impl Iterator<Item = (&str, &[i32])> + '_ {
        self.0.iter().map(|(topic, parts)| (&**topic, parts.as_slice()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i32)> + '_ {
        self.topics().flat_map(|(topic, parts)| parts.iter().map(move |part| (topic, *part)))
    }

    pub fn contains_all(&self, other: &Partitions) -> bool {
        other.iter().all(|(topic, partition)| self.contains(topic, partition))
    }

    /// Linear in both, as all that is done to many partitions at once: a request names as many as
    /// it likes.
    pub fn add_all(&mut self, other: &Partitions) {
        let mine = std::mem::take(&mut self.0);
        let mut theirs = other.0.iter().peekable();
        self.0.reserve(mine.len() + other.0.len());
        for (topic, mut parts) in mine {
            while let Some(before) = theirs.next_if(|(name, _)| *name < topic) {
                self.0.push(before.clone());
            }
            if let Some((_, added)) = theirs.next_if(|(name, _)| *name == topic) {
                parts.extend(added);
                // Two runs in order, which this sort only merges.
                parts.sort();
                parts.dedup();
            }
            self.0.push((topic, parts));
        }
        self.0.extend(theirs.cloned());
    }

    /// Keeps those that the question is answered yes for.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str, i32) -> bool) {
        for (topic, parts) in &mut self.0 {
            parts.retain(|part| keep(topic, *part));
        }
        self.0.retain(|(_, parts)| !parts.is_empty());
    }

    /// Bytes that they take in a record, at most.
    pub(crate) fn bytes(&self) -> usize {
        self.topics().map(|(topic, parts)| topic.len() + TOPIC_BYTES + 4 * parts.len()).sum()
    }

    fn at(&self, topic: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(topic))
    }
}

/// What a topic takes in a record beside its name and its partitions.
const TOPIC_BYTES: usize = 8;

impl<'a> FromIterator<(&'a str, i32)> for Partitions {
    /// In any order, with repetitions.
    fn from_iter<I: IntoIterator<Item = (&'a str, i32)>>(items: I) -> Self {
        let mut items: Vec<(&str, i32)> = items.into_iter().collect();
        items.sort_unstable();
        items.dedup();
        let topics = items.chunk_by(|(topic, _), (next, _)| topic == next);
        let topics = topics.filter_map(|of_topic| {
            let (topic, _) = of_topic.first()?;
            Some((Name::from(*topic), of_topic.iter().map(|(_, part)| *part).collect()))
        });
        Partitions(topics.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_by_topic() {
        let mut parts = Partitions::from_iter([("t", 2), ("a", 0), ("t", 1), ("t", 2)]);
        assert_eq!(parts.iter().collect::<Vec<_>>(), [("a", 0), ("t", 1), ("t", 2)]);
        assert!(parts.contains("t", 1) && !parts.contains("t", 0) && !parts.contains("u", 1));
        assert!(parts.contains_all(&Partitions::from_iter([("t", 1)])));
        assert!(!parts.contains_all(&Partitions::from_iter([("t", 1), ("u", 0)])));
        parts.retain(|topic, _| topic != "a");
        assert_eq!(parts.topics().collect::<Vec<_>>(), [("t", &[1, 2][..])]);
        parts.retain(|_, partition| partition == 2);
        assert_eq!(parts, Partitions::from_iter([("t", 2)]));
        parts.retain(|_, _| false);
        assert!(parts.is_empty());
    }

    #[test]
    fn a_union_has_what_either_has() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for n in 0..2_000i32 {
            // Out of order, with repetitions, some of both.
            let item = (["a", "b", "c", "d", "e"][(n * 13 % 5) as usize], n * 7_919 % 301);
            if n % 3 != 0 && item.0 != "a" {
                one.push(item);
            }
            if n % 2 == 0 && item.0 != "d" {
                other.push(item);
            }
        }
        let expected: std::collections::BTreeSet<_> = one.iter().chain(&other).copied().collect();
        let other = Partitions::from_iter(other);
        for mut all in [Partitions::from_iter(one), Partitions::from_iter(expected.clone())] {
            all.add_all(&other);
            assert!(all.iter().eq(expected.iter().copied()));
            assert!(all.contains_all(&other));
        }
        let mut none = Partitions::default();
        none.add_all(&other);
        assert_eq!(none, other);
    }

    /// As many as a request may name, each out of order: a minute and more where each is put in its
    /// place one after the other.
    #[test]
    fn many_out_of_order_are_no_work() {
        const MANY: i32 = 200_000;
        let names: Vec<String> = (0..MANY).rev().map(|n| format!("{n:06}")).collect();
        let mut all = Partitions::from_iter(names.iter().map(|name| (name.as_str(), 0)));
        assert_eq!(all.topics().count(), names.len());
        all.add_all(&Partitions::from_iter((0..MANY).rev().map(|n| ("100000", n))));
        assert_eq!(all.iter().count(), 2 * names.len() - 1);
    }
}
