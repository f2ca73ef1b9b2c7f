//! The partitions of one topic, in pieces that copies of an image share until one of them changes.
//!
//! Owns: how a copy of a topic with ten thousand partitions costs a few dozen counters, and a
//! change after it one piece.

use std::sync::Arc;

use super::topics::Partition;

/// Partitions of one piece.
const PIECE: usize = 128;

/// Partitions by number, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// All but the last one are full.
    pieces: Vec<Arc<Vec<Partition>>>,
    len: usize,
}

impl Partitions {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, at: usize) -> Option<&Partition> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    pub fn first(&self) -> Option<&Partition> {
        self.get(0)
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter { partitions: self, at: 0 }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Partition> {
        Arc::make_mut(self.pieces.get_mut(at / PIECE)?).get_mut(at % PIECE)
    }

    pub(super) fn push(&mut self, partition: Partition) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => Arc::make_mut(last).push(partition),
            _ => self.pieces.push(Arc::new(vec![partition])),
        }
        self.len += 1;
    }
}

/// Goes over partitions in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    partitions: &'a Partitions,
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Partition;

    fn next(&mut self) -> Option<&'a Partition> {
        let partition = self.partitions.get(self.at)?;
        self.at += 1;
        Some(partition)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.partitions.len - self.at;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Partitions {
    type Item = &'a Partition;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    fn partition(leader: i32) -> Partition {
        Partition {
            replicas: [NodeId(leader)].into_iter().collect(),
            isr: [NodeId(leader)].into_iter().collect(),
            adding: Default::default(),
            removing: Default::default(),
            directories: Default::default(),
            leader: NodeId(leader),
            leader_epoch: 0,
            partition_epoch: 0,
        }
    }

    #[test]
    fn a_change_copies_one_piece_and_leaves_other_copies_as_they_were() {
        let mut one = Partitions::default();
        for leader in 0..1000 {
            one.push(partition(leader));
        }
        let before = one.clone();
        one.get_mut(500).expect("it is there").leader_epoch = 7;
        one.push(partition(1000));
        assert_eq!((before.len(), one.len()), (1000, 1001));
        assert_eq!(before.get(500).map(|p| p.leader_epoch), Some(0));
        assert_eq!(one.get(500).map(|p| p.leader_epoch), Some(7));
        let leaders: Vec<i32> = one.iter().map(|p| p.leader.0).collect();
        assert_eq!(leaders, (0..1001).collect::<Vec<i32>>());
        assert!(one.get(1001).is_none() && before.get(1000).is_none());
        let shared = before.pieces.iter().zip(&one.pieces).filter(|(a, b)| Arc::ptr_eq(a, b));
        // Those with partition 500 and with the end are copies.
        assert_eq!(shared.count(), 1000_usize.div_ceil(PIECE) - 2);
    }
}
