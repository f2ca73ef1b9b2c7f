//! Which data directory a new partition gets. Pure.
//!
//! The directory with the most free bytes for each partition that the same node has there, the new
//! one counted; of equals, for each partition at all. So every core spreads its partitions over all
//! disks: disks of one size get equally many, a larger or emptier one gets more, and one that is
//! almost full gets nothing as long as another has room.

use std::collections::BTreeMap;

use meta::NodeId;
use wire::Uuid;

/// One directory that could take partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub id: Uuid,
    pub free_bytes: u64,
    /// Partitions recorded there, by node.
    pub partitions: BTreeMap<NodeId, u32>,
}

impl Candidate {
    fn share(&self, node: NodeId) -> (u64, u64) {
        let of_node = self.partitions.get(&node).copied().unwrap_or(0);
        let all: u64 = self.partitions.values().map(|count| u64::from(*count)).sum();
        (self.free_bytes / (u64::from(of_node) + 1), self.free_bytes / (all + 1))
    }
}

/// Takes turns among the candidates.
pub(crate) struct Placer(Vec<Candidate>);

impl Placer {
    pub fn new(candidates: Vec<Candidate>) -> Self {
        Placer(candidates)
    }

    /// The directory for the next partition of a node; `None` if there is none at all.
    pub fn next(&mut self, node: NodeId) -> Option<Uuid> {
        // The first of equals, so that the same disks give the same places.
        let best = self.0.iter_mut().rev().max_by_key(|dir| dir.share(node))?;
        *best.partitions.entry(node).or_default() += 1;
        Some(best.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1000);
    const OTHER: NodeId = NodeId(1001);

    fn dir(n: u8, free_bytes: u64, partitions: u32) -> Candidate {
        let partitions = BTreeMap::from([(NODE, partitions)]);
        Candidate { id: Uuid([n; 16]), free_bytes, partitions }
    }

    fn places(candidates: &[Candidate], nodes: &[NodeId]) -> Vec<u8> {
        let mut placer = Placer::new(candidates.to_vec());
        nodes.iter().filter_map(|node| placer.next(*node)).map(|id| id.0[0]).collect()
    }

    #[test]
    fn equal_disks_get_equally_many() {
        assert_eq!(places(&[dir(1, 1000, 0), dir(2, 1000, 0)], &[NODE; 4]), [1, 2, 1, 2]);
        // The second has two fewer.
        assert_eq!(places(&[dir(1, 1000, 2), dir(2, 1000, 0)], &[NODE; 4]), [2, 2, 1, 2]);
    }

    #[test]
    fn as_many_cores_as_disks_do_not_mean_a_disk_for_each_core() {
        let nodes = [NODE, OTHER, NODE, OTHER, NODE, OTHER, NODE, OTHER];
        let placed = places(&[dir(1, 1000, 0), dir(2, 1000, 0)], &nodes);
        for node in [NODE, OTHER] {
            let own = placed.iter().zip(&nodes).filter(|(_, n)| **n == node);
            let first = own.filter(|(place, _)| **place == 1).count();
            assert_eq!(first, 2, "{node} in {placed:?}");
        }
    }

    #[test]
    fn a_disk_with_three_times_the_room_gets_three_times_as_many() {
        let placed = places(&[dir(1, 1000, 0), dir(2, 3000, 0)], &[NODE; 400]);
        let second = placed.iter().filter(|n| **n == 2).count();
        assert!((295..=305).contains(&second), "{second} of 400");
    }

    #[test]
    fn without_any_directory_there_is_no_place() {
        assert_eq!(places(&[], &[NODE]), []);
    }
}
