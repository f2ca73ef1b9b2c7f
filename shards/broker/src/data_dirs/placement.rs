//! Which data directory a new partition gets. Pure.
//!
//! The directory with the most free bytes for each partition that it holds, the new one counted: disks
//! of one size get equally many, a larger or emptier one gets more, and one that is almost full gets
//! nothing as long as another has room.

use wire::Uuid;

/// One directory that could take partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub id: Uuid,
    pub free_bytes: u64,
    /// Partitions recorded there.
    pub partitions: u64,
}

/// Takes turns among the candidates.
pub(crate) struct Placer(Vec<Candidate>);

impl Placer {
    pub fn new(candidates: Vec<Candidate>) -> Self {
        Placer(candidates)
    }

    /// The directory for the next partition; `None` if there is none at all.
    pub fn next(&mut self) -> Option<Uuid> {
        let share = |dir: &Candidate| dir.free_bytes / (dir.partitions + 1);
        // The first of equals, so that the same disks give the same places.
        let best = self.0.iter_mut().rev().max_by_key(|dir| share(dir))?;
        best.partitions += 1;
        Some(best.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(n: u8, free_bytes: u64, partitions: u64) -> Candidate {
        Candidate { id: Uuid([n; 16]), free_bytes, partitions }
    }

    fn places(candidates: &[Candidate], count: usize) -> Vec<u8> {
        let mut placer = Placer::new(candidates.to_vec());
        (0..count).filter_map(|_| placer.next()).map(|id| id.0[0]).collect()
    }

    #[test]
    fn equal_disks_get_equally_many() {
        assert_eq!(places(&[dir(1, 1000, 0), dir(2, 1000, 0)], 4), [1, 2, 1, 2]);
        // The second has two fewer.
        assert_eq!(places(&[dir(1, 1000, 2), dir(2, 1000, 0)], 4), [2, 2, 1, 2]);
    }

    #[test]
    fn a_disk_with_three_times_the_room_gets_three_times_as_many() {
        let placed = places(&[dir(1, 1000, 0), dir(2, 3000, 0)], 400);
        let second = placed.iter().filter(|n| **n == 2).count();
        assert!((295..=305).contains(&second), "{second} of 400");
    }

    #[test]
    fn without_any_directory_there_is_no_place() {
        assert_eq!(places(&[], 1), []);
    }
}
