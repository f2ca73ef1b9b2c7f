//! Which cells are measured, for how long, on how large a file. Pure.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// At most this part of what is free is written to, so that no broker beside runs into its marks.
const FREE_PART: u64 = 8;
/// Smaller files fit into the cache of any device.
const LEAST_FILE: u64 = 64 * MIB;
/// More would take minutes to fill; what is asked for by hand may be larger.
const USUAL_FILE: u64 = 16 * GIB;
/// Requests are at most this large; the file is a multiple of it.
pub const LARGEST_REQUEST: u64 = MIB;

#[derive(Debug, Clone)]
pub struct Plan {
    pub sizes: Vec<u64>,
    pub depths: Vec<u32>,
    pub cell: Duration,
    /// For synced appends: enough of them for the last percentiles.
    pub synced: Duration,
    /// Filling the file ends then; the file is as large as it has become.
    pub fill: Duration,
    /// `None` chooses it.
    pub file_bytes: Option<u64>,
}

/// Requests of synced appends and random reads.
pub const SMALL: u64 = 4 * KIB;

impl Plan {
    pub fn full(cell: Duration) -> Self {
        Plan {
            sizes: vec![4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB],
            depths: vec![1, 2, 4, 8, 16, 32],
            cell,
            synced: cell * 10,
            fill: Duration::from_secs(30),
            file_bytes: None,
        }
    }

    pub fn quick(cell: Duration) -> Self {
        Plan {
            sizes: vec![4 * KIB, 64 * KIB, MIB],
            depths: vec![1, 8, 32],
            synced: cell * 4,
            fill: Duration::from_secs(5),
            ..Plan::full(cell)
        }
    }

    /// How large the file may become where so much is free; `None` where that is too little.
    pub fn file_bytes(&self, free: u64) -> Option<u64> {
        let most = free / FREE_PART;
        let wanted = self.file_bytes.unwrap_or(USUAL_FILE).min(most);
        let whole = wanted / LARGEST_REQUEST * LARGEST_REQUEST;
        (whole >= LEAST_FILE).then_some(whole)
    }

    /// Depths of reads and writes that run together: so many of each.
    pub fn mixed(&self) -> Vec<(u64, u32)> {
        let table = [(SMALL, 16), (64 * KIB, 8), (MIB, 4)];
        table.into_iter().filter(|(size, _)| self.sizes.contains(size)).collect()
    }

    /// Cells in all, for those who wait.
    pub fn cells(&self) -> usize {
        2 * self.sizes.len() * self.depths.len() + self.depths.len() + self.mixed().len() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_never_takes_more_than_a_part_of_what_is_free() {
        let mut plan = Plan::full(Duration::from_secs(1));
        assert_eq!(plan.file_bytes(1 << 40), Some(USUAL_FILE));
        assert_eq!(plan.file_bytes(GIB), Some(128 * MIB));
        assert_eq!(plan.file_bytes(GIB + 5), Some(128 * MIB));
        assert_eq!(plan.file_bytes(256 * MIB), None);
        assert_eq!(plan.file_bytes(0), None);
        plan.file_bytes = Some(100 * GIB);
        assert_eq!(plan.file_bytes(80 * GIB), Some(10 * GIB));
        plan.file_bytes = Some(100 * MIB + 1);
        assert_eq!(plan.file_bytes(80 * GIB), Some(100 * MIB));
    }

    #[test]
    fn every_cell_is_counted() {
        let plan = Plan::full(Duration::from_secs(1));
        assert_eq!(plan.cells(), 60 + 6 + 3 + 1);
        assert!(plan.sizes.iter().all(|size| LARGEST_REQUEST.is_multiple_of(*size)));
    }
}
