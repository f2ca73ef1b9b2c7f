//! Free space: the watermarks of a directory, and what is done when one is passed.
//!
//! | level | free | what happens |
//! |---|---|---|
//! | `Ample` | | the reserve file is there |
//! | `Low` | under a tenth, at most 1 GiB | retention at every look; deleted files are unlinked at once |
//! | `Full` | under a twentieth, at most 512 MiB | producers get a retriable error as well |
//! | | under half of the reserve | the reserve file is cut to its last piece: what is left is the broker's own |
//!
//! What the broker does on its own does not make a disk full: compaction and copies for a move end,
//! and remove what they have written, before less is free than the mark of `Full`. Below it, where
//! compaction may be what makes room and producers are refused anyway, compaction goes on down to a
//! quarter of that.
//!
//! Reading, deleting, retention and metadata go on at every level. The space is looked at now and
//! then, and when producers have sent half of what was left above the mark: they are refused before
//! a write fails. Where somebody else fills the disk one may fail; then the level is `Full` from
//! that moment on.

use reactor::fs::Space;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Close to the mark, producers may send this much between two looks.
const ROOM_MIN: u64 = 256 << 10;
/// What is kept of the reserve for changes of metadata alone: many times what a deletion takes.
const LAST_RESERVE: u64 = 256 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Ample,
    Low,
    Full,
}

/// The marks of one disk, in bytes that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub low: u64,
    pub full: u64,
    /// Size of the reserve file.
    pub reserve: u64,
}

impl Marks {
    pub fn of(total: u64) -> Self {
        Marks {
            low: (total / 10).min(GIB),
            full: (total / 20).min(GIB / 2),
            reserve: (total / 64).min(16 * MIB) / BLOCK * BLOCK,
        }
    }

    /// A level is left only when there is clearly more than it asks for, or producers would be let
    /// in and refused in turn.
    pub fn level(self, available: u64, before: Level) -> Level {
        let raised = |mark: u64, level: Level| match before >= level {
            true => mark + mark / 8,
            false => mark,
        };
        if available < raised(self.full, Level::Full) {
            Level::Full
        } else if available < raised(self.low, Level::Low) {
            Level::Low
        } else {
            Level::Ample
        }
    }

    /// What the producers of one of so many shards may send before the space is looked at again.
    pub fn room(self, space: Space, shards: usize) -> u64 {
        let left = space.available.saturating_sub(self.full) / 2;
        (left / shards.max(1) as u64).max(ROOM_MIN)
    }

    /// What compaction leaves free at this level.
    pub fn kept_by_compaction(self, level: Level) -> u64 {
        match level {
            Level::Ample | Level::Low => self.full,
            Level::Full => self.full / 4,
        }
    }

    /// The reserve is needed now.
    pub fn is_exhausted(self, space: Space) -> bool {
        space.available < self.reserve / 2
    }

    /// The piece of the reserve that is kept when the rest is let go.
    pub fn last_reserve(self) -> u64 {
        (self.reserve / 4).min(LAST_RESERVE) / BLOCK * BLOCK
    }

    /// There is room to make the reserve again without touching the marks.
    pub fn may_reserve(self, space: Space) -> bool {
        space.available > self.low + self.reserve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_parts_of_a_small_disk_and_fixed_on_a_large_one() {
        let small = Marks::of(64 * MIB);
        assert_eq!(small, Marks { low: 6_710_886, full: 3_355_443, reserve: MIB });
        let large = Marks::of(4096 * GIB);
        assert_eq!(large, Marks { low: GIB, full: GIB / 2, reserve: 16 * MIB });
        for total in [0, 4096, 10 * MIB, GIB, 100 * GIB] {
            let marks = Marks::of(total);
            assert!(marks.reserve <= marks.full && marks.full <= marks.low, "{marks:?}");
            // Compaction never takes what would cost the reserve.
            let kept = marks.kept_by_compaction(Level::Full);
            assert!(kept <= marks.full && kept >= marks.reserve / 2, "{marks:?}");
        }
    }

    #[test]
    fn the_shards_together_send_half_of_what_is_left_at_most() {
        let marks = Marks::of(GIB);
        let space = |available| Space { total: GIB, available };
        let left = 500 * MIB;
        assert_eq!(marks.room(space(marks.full + left), 2), left / 4);
        assert_eq!(marks.room(space(marks.full), 2), ROOM_MIN);
        assert_eq!(marks.room(space(0), 0), ROOM_MIN);
    }

    #[test]
    fn a_level_is_left_later_than_it_is_entered() {
        let marks = Marks { low: 800, full: 400, reserve: 100 };
        let table = [
            (1000, Level::Ample, Level::Ample),
            (799, Level::Ample, Level::Low),
            (800, Level::Low, Level::Low),
            (900, Level::Low, Level::Ample),
            (399, Level::Low, Level::Full),
            (449, Level::Full, Level::Full),
            (450, Level::Full, Level::Low),
            (899, Level::Full, Level::Low),
            (0, Level::Ample, Level::Full),
        ];
        for (available, before, after) in table {
            assert_eq!(marks.level(available, before), after, "{available} from {before:?}");
        }
    }
}
