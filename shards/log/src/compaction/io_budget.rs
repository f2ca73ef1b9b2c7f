//! What all passes of one shard may read and write in a time
//! (`log.cleaner.io.max.bytes.per.second`).
//!
//! Owns: the moment from which the next byte is free of debt. Lives on one shard. What was moved
//! is paid for afterwards, by sleeping: a pass never runs ahead by more than one transfer.

use std::cell::Cell;
use std::time::Duration;

use reactor::Instant;

/// Debts below this are not worth a timer.
const WORTH_A_SLEEP: Duration = Duration::from_millis(2);
/// One sleep: a pass that was asked to stop notices it after this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

pub struct IoBudget {
    bytes_per_second: Cell<f64>,
    /// Everything moved so far is paid for at this time.
    paid_at: Cell<Option<Instant>>,
}

impl IoBudget {
    pub fn unlimited() -> Self {
        IoBudget::new(f64::INFINITY)
    }

    pub fn new(bytes_per_second: f64) -> Self {
        let budget = IoBudget { bytes_per_second: Cell::new(0.0), paid_at: Cell::new(None) };
        budget.set(bytes_per_second);
        budget
    }

    /// At least one byte a second, or nothing would ever end.
    pub fn set(&self, bytes_per_second: f64) {
        self.bytes_per_second.set(bytes_per_second.max(1.0));
    }

    /// Notes bytes that were moved.
    pub(crate) fn spend(&self, bytes: usize, now: Instant) {
        let seconds = bytes as f64 / self.bytes_per_second.get();
        let cost = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let from = self.paid_at.get().map_or(now, |paid| paid.max(now));
        self.paid_at.set(Some(from + cost));
    }

    /// How long to sleep now; `None` if there is no debt to speak of.
    pub(crate) fn debt(&self, now: Instant) -> Option<Duration> {
        let left = self.paid_at.get()?.saturating_duration_since(now);
        (left >= WORTH_A_SLEEP).then(|| left.min(LONGEST_SLEEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_is_paid_for_in_time() {
        let start = Instant::default();
        let budget = IoBudget::new(1_000_000.0);
        assert_eq!(budget.debt(start), None);
        budget.spend(100_000, start);
        assert_eq!(budget.debt(start), Some(Duration::from_millis(100)));
        let later = start + Duration::from_millis(60);
        assert_eq!(budget.debt(later), Some(Duration::from_millis(40)));
        budget.spend(60_000, later);
        assert_eq!(budget.debt(later), Some(Duration::from_millis(100)));
        assert_eq!(budget.debt(start + Duration::from_millis(161)), None);
        // A quiet time is not saved up.
        let quiet = start + Duration::from_secs(100);
        budget.spend(1_000_000, quiet);
        assert_eq!(budget.debt(quiet), Some(LONGEST_SLEEP));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let start = Instant::default();
        let budget = IoBudget::unlimited();
        budget.spend(usize::MAX, start);
        assert_eq!(budget.debt(start), None);
    }
}
