//! Who has which partition of the topic, as the members of one group say themselves.
//!
//! A partition that is claimed while another has it ends the run: no broker may give it twice.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// A member, by the order in which it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(pub usize);

#[derive(Debug)]
pub struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    owners: Vec<Option<Seat>>,
    /// By seat.
    counts: Vec<usize>,
    /// When something was claimed last.
    claimed: Instant,
    failure: Option<Error>,
}

impl Board {
    pub fn new(partitions: usize) -> Self {
        let state = State {
            owners: vec![None; partitions],
            counts: Vec::new(),
            claimed: Instant::now(),
            failure: None,
        };
        Board { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The member has these from now on, beside what it has.
    pub fn claim(&self, seat: Seat, partitions: &[i32]) -> Result<()> {
        let mut state = self.lock();
        for &partition in partitions {
            let place = usize::try_from(partition).ok();
            let owner = place.and_then(|place| state.owners.get_mut(place));
            let owner = owner.ok_or(Error::Unreadable(format!("partition {partition}")))?;
            if let Some(other) = owner.replace(seat) {
                return Err(Error::TwoOwners { partition, owners: [other.0, seat.0] });
            }
        }
        *state.count(seat) += partitions.len();
        state.claimed = Instant::now();
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The member has given these up.
    pub fn release(&self, seat: Seat, partitions: &[i32]) {
        let mut state = self.lock();
        for &partition in partitions {
            let place = usize::try_from(partition).ok();
            if let Some(owner) = place.and_then(|place| state.owners.get_mut(place)) {
                debug_assert_eq!(*owner, Some(seat), "a member gives up what is its own");
                *owner = None;
            }
        }
        *state.count(seat) -= partitions.len();
    }

    /// A member cannot go on.
    pub fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Waits until so many members share all partitions evenly; gives the moment at which they did.
    pub fn settled(&self, members: usize, within: Duration) -> Result<Instant> {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            if state.even(members) {
                return Ok(state.claimed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("{members} members do not share all partitions");
                return Err(Error::TooLate { what, within, last: state.describe() });
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What made a member end, if that was not told yet.
    pub fn failure(&self) -> Result<()> {
        self.lock().failure.take().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A member that panics ends the whole run when its thread is joined.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, seat: Seat) -> &mut usize {
        let Seat(seat) = seat;
        if self.counts.len() <= seat {
            self.counts.resize(seat + 1, 0);
        }
        &mut self.counts[seat]
    }

    fn even(&self, members: usize) -> bool {
        let least = self.owners.len() / members.max(1);
        let most = self.owners.len().div_ceil(members.max(1));
        let mut holders = self.counts.iter().filter(|&&count| count > 0);
        self.owners.iter().all(Option::is_some)
            && holders.clone().count() == members.min(self.owners.len())
            && holders.all(|count| (least..=most).contains(count))
    }

    fn describe(&self) -> String {
        let free = self.owners.iter().filter(|owner| owner.is_none()).count();
        let counts: Vec<usize> = self.counts.iter().copied().filter(|&count| count > 0).collect();
        format!("{free} partitions are free, {} members have {counts:?}", counts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn settled_is_everything_once_and_evenly() {
        let board = Board::new(5);
        let (a, b) = (Seat(0), Seat(7));
        board.claim(a, &[0, 1, 2, 3]).unwrap();
        board.claim(b, &[4]).unwrap();
        assert!(board.settled(2, NOW).is_err());
        board.release(a, &[3]);
        assert!(board.settled(2, NOW).is_err());
        board.claim(b, &[3]).unwrap();
        assert!(board.settled(2, NOW).is_ok());
        assert!(board.settled(1, NOW).is_err());
        assert!(board.settled(3, NOW).is_err());
    }

    #[test]
    fn a_partition_has_one_owner() {
        let board = Board::new(2);
        board.claim(Seat(0), &[1]).unwrap();
        let twice = board.claim(Seat(1), &[0, 1]);
        assert!(matches!(twice, Err(Error::TwoOwners { partition: 1, .. })), "{twice:?}");
    }

    #[test]
    fn a_failed_member_ends_the_waiting() {
        let board = Board::new(1);
        board.fail(Error::Closed);
        assert!(matches!(board.settled(1, Duration::from_secs(60)), Err(Error::Closed)));
    }
}
