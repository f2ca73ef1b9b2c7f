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

    pub fn insert(&mut self, topic: &str, partition: i32) {
        match self.at(topic) {
            Ok(at) => {
                let parts = &mut self.0[at].1;
                if let Err(gap) = parts.binary_search(&partition) {
                    parts.insert(gap, partition);
                }
            }
            Err(gap) => self.0.insert(gap, (Name::from(topic), vec![partition])),
        }
    }

    /// Whether it was there.
    pub fn remove(&mut self, topic: &str, partition: i32) -> bool {
        let Ok(at) = self.at(topic) else { return false };
        let parts = &mut self.0[at].1;
        let Ok(found) = parts.binary_search(&partition) else { return false };
        parts.remove(found);
        if parts.is_empty() {
            self.0.remove(at);
        }
        true
    }

    pub fn contains_all(&self, other: &Partitions) -> bool {
        other.iter().all(|(topic, partition)| self.contains(topic, partition))
    }

    pub fn add_all(&mut self, other: &Partitions) {
        for (topic, partition) in other.iter() {
            self.insert(topic, partition);
        }
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
    fn from_iter<I: IntoIterator<Item = (&'a str, i32)>>(items: I) -> Self {
        let mut all = Partitions::default();
        for (topic, partition) in items {
            all.insert(topic, partition);
        }
        all
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
        assert!(parts.remove("a", 0) && !parts.remove("a", 0) && !parts.remove("t", 3));
        assert_eq!(parts.topics().collect::<Vec<_>>(), [("t", &[1, 2][..])]);
        parts.retain(|_, partition| partition == 2);
        assert_eq!(parts, Partitions::from_iter([("t", 2)]));
        parts.retain(|_, _| false);
        assert!(parts.is_empty());
    }
}
