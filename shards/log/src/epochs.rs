//! Leader epochs of one log: which leader wrote from which offset on.
//!
//! Owns: the entries in memory, the questions followers and consumers ask of them (KIP-101,
//! KIP-279), and their truncation with the log. Pure; the file is `checkpoints`' matter.

/// One leader's reign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    pub epoch: i32,
    /// The first offset written under this epoch.
    pub start_offset: i64,
}

/// "No such epoch" and "no such offset" in answers.
pub const UNDEFINED_EPOCH: i32 = -1;
pub const UNDEFINED_OFFSET: i64 = -1;

/// Entries by growing epoch and growing start offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
}

impl LeaderEpochs {
    /// Takes entries as a file has them; those that break the order lose to later ones.
    pub fn from_entries(entries: impl IntoIterator<Item = EpochStart>) -> Self {
        let mut epochs = LeaderEpochs::default();
        for entry in entries {
            epochs.assign(entry.epoch, entry.start_offset);
        }
        epochs
    }

    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` writes from `start_offset` on. Returns whether anything changed.
    ///
    /// What lies ahead of it goes: entries of its epoch or later ones, and entries that start at
    /// its offset or beyond. They wrote nothing, or what they wrote is overwritten.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 {
            return false;
        }
        let goes_on = |last: &EpochStart| last.epoch == epoch && last.start_offset <= start_offset;
        if self.entries.last().is_some_and(goes_on) {
            return false;
        }
        self.entries.retain(|e| e.epoch < epoch && e.start_offset < start_offset);
        self.entries.push(EpochStart { epoch, start_offset });
        true
    }

    /// As [`assign`](Self::assign) for an epoch later than all, else nothing: for batches that are
    /// read again, whose epochs may be known already with all that followed.
    pub fn replay(&mut self, epoch: i32, start_offset: i64) -> bool {
        let later = self.entries.last().is_none_or(|last| last.epoch < epoch);
        later && self.assign(epoch, start_offset)
    }

    /// Where the latest epoch at or below the asked one ends: `(that epoch, its end offset)`.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> (i32, i64) {
        if epoch < 0 || self.entries.is_empty() {
            return (UNDEFINED_EPOCH, UNDEFINED_OFFSET);
        }
        let above = self.entries.partition_point(|e| e.epoch <= epoch);
        let floor = above.checked_sub(1).and_then(|i| self.entries.get(i));
        match (floor, self.entries.get(above)) {
            (Some(floor), None) if floor.epoch == epoch => (epoch, log_end_offset),
            (_, None) => (UNDEFINED_EPOCH, UNDEFINED_OFFSET),
            (Some(floor), Some(next)) => (floor.epoch, next.start_offset),
            (None, Some(first)) => (epoch, first.start_offset),
        }
    }

    /// The epoch under which `offset` was written; [`UNDEFINED_EPOCH`] below the first entry.
    pub fn epoch_of(&self, offset: i64) -> i32 {
        let above = self.entries.partition_point(|e| e.start_offset <= offset);
        above.checked_sub(1).and_then(|i| self.entries.get(i)).map_or(UNDEFINED_EPOCH, |e| e.epoch)
    }

    /// The log now ends at `end_offset`. Returns whether anything changed.
    pub fn truncate_end(&mut self, end_offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|e| e.start_offset < end_offset);
        self.entries.len() != before
    }

    /// The log now starts at `start_offset`: the covering entry stays, with its start clamped.
    pub fn truncate_start(&mut self, start_offset: i64) -> bool {
        let above = self.entries.partition_point(|e| e.start_offset <= start_offset);
        let Some(covering) = above.checked_sub(1) else { return false };
        let mut changed = covering > 0;
        self.entries.drain(..covering);
        if let Some(first) = self.entries.first_mut() {
            changed |= first.start_offset != start_offset;
            first.start_offset = start_offset;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(i32, i64)]) -> LeaderEpochs {
        LeaderEpochs::from_entries(
            entries.iter().map(|&(epoch, start_offset)| EpochStart { epoch, start_offset }),
        )
    }

    #[test]
    fn answers_where_an_epoch_ends() {
        let epochs = of(&[(2, 0), (5, 100), (7, 250)]);
        let table = [
            (-1, (-1, -1)),
            (0, (0, 0)),
            (2, (2, 100)),
            (3, (2, 100)),
            (5, (5, 250)),
            (6, (5, 250)),
            (7, (7, 400)),
            (8, (-1, -1)),
        ];
        for (epoch, expected) in table {
            assert_eq!(epochs.end_offset_for(epoch, 400), expected, "epoch {epoch}");
        }
        assert_eq!(LeaderEpochs::default().end_offset_for(0, 400), (-1, -1));
    }

    #[test]
    fn answers_who_wrote_an_offset() {
        let epochs = of(&[(2, 10), (5, 100)]);
        let table = [(9, -1), (10, 2), (99, 2), (100, 5), (1_000, 5)];
        for (offset, epoch) in table {
            assert_eq!(epochs.epoch_of(offset), epoch, "offset {offset}");
        }
    }

    #[test]
    fn an_epoch_that_wrote_nothing_is_replaced() {
        let mut epochs = of(&[(1, 0)]);
        assert!(epochs.assign(2, 50));
        assert!(epochs.assign(4, 50));
        assert!(!epochs.assign(4, 60));
        assert_eq!(epochs, of(&[(1, 0), (4, 50)]));
        assert!(epochs.assign(3, 60), "a log that goes back to an older epoch is followed");
        assert_eq!(epochs, of(&[(1, 0), (3, 60)]));
        assert!(epochs.assign(3, 40), "an epoch began earlier than noted");
        assert_eq!(epochs, of(&[(1, 0), (3, 40)]));
        assert!(!epochs.assign(-1, 80));
    }

    #[test]
    fn reading_the_log_again_changes_nothing() {
        let mut epochs = of(&[(1, 0), (4, 50)]);
        for (epoch, start) in [(1, 0), (1, 30), (4, 50), (4, 60), (-1, 70)] {
            assert!(!epochs.replay(epoch, start), "{epoch} from {start}");
        }
        assert_eq!(epochs, of(&[(1, 0), (4, 50)]));
        assert!(epochs.replay(5, 80));
        assert_eq!(epochs, of(&[(1, 0), (4, 50), (5, 80)]));
    }

    #[test]
    fn truncation_follows_the_log() {
        let mut epochs = of(&[(1, 0), (2, 50), (3, 90)]);
        assert!(epochs.truncate_end(90));
        assert!(!epochs.truncate_end(90));
        assert_eq!(epochs, of(&[(1, 0), (2, 50)]));
        assert!(epochs.truncate_start(60));
        assert_eq!(epochs, of(&[(2, 60)]));
        assert!(!epochs.truncate_start(60));
        assert!(!of(&[(1, 10)]).truncate_start(5));
    }

    /// The epoch of every offset of a log, and what follows from that alone.
    #[derive(Clone, Debug, Default)]
    struct Offsets {
        first: i64,
        epochs: Vec<i32>,
    }

    impl Offsets {
        fn end(&self) -> i64 {
            self.first + self.epochs.len() as i64
        }

        fn index(&self, offset: i64) -> usize {
            usize::try_from(offset - self.first).unwrap_or(0).min(self.epochs.len())
        }

        fn epoch_of(&self, offset: i64) -> i32 {
            let past_the_end = self.epochs.last().copied();
            let at = self.epochs.get(self.index(offset)).copied().or(past_the_end);
            if offset < self.first { -1 } else { at.unwrap_or(-1) }
        }

        fn end_offset_for(&self, epoch: i32) -> (i32, i64) {
            let Some(latest) = self.epochs.last() else { return (-1, -1) };
            match epoch {
                _ if epoch < 0 || epoch > *latest => (-1, -1),
                _ if epoch == *latest => (epoch, self.end()),
                _ => {
                    let until = self.epochs.iter().position(|e| *e > epoch).unwrap_or(0);
                    let floor = self.epochs.iter().filter(|e| **e <= epoch).max();
                    (floor.copied().unwrap_or(epoch), self.first + until as i64)
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn answers_are_those_of_the_log_itself(
            operations in proptest::collection::vec((0u8..8, 0i32..4, 1i64..30), 1..60)
        ) {
            let (mut epochs, mut log, mut current) =
                (LeaderEpochs::default(), Offsets::default(), 0);
            for (kind, step, length) in operations {
                match kind {
                    0..=4 => {
                        current += step;
                        epochs.assign(current, log.end());
                        log.epochs.extend(vec![current; length as usize]);
                    }
                    // Truncation leaves at least one record: an empty log keeps its last epoch.
                    5 if log.epochs.len() > 1 => {
                        let end = (log.end() - length).max(log.first + 1);
                        epochs.truncate_end(end);
                        log.epochs.truncate(log.index(end));
                    }
                    6 if log.epochs.len() > 1 => {
                        let start = (log.first + length).min(log.end() - 1);
                        epochs.truncate_start(start);
                        log.epochs.drain(..log.index(start));
                        log.first = start;
                    }
                    _ => {
                        // Recovery reads everything again.
                        for (index, epoch) in log.epochs.iter().enumerate() {
                            epochs.replay(*epoch, log.first + index as i64);
                        }
                    }
                }
                current = log.epochs.last().copied().unwrap_or(current);
                for offset in log.first - 2..log.end() + 2 {
                    proptest::prop_assert_eq!(epochs.epoch_of(offset), log.epoch_of(offset));
                }
                for epoch in -1..current + 3 {
                    let answer = epochs.end_offset_for(epoch, log.end());
                    proptest::prop_assert_eq!(answer, log.end_offset_for(epoch), "{}", epoch);
                }
            }
        }
    }
}
