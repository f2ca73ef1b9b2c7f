//! When records are due: fixed in advance by rate and seed, whatever the broker does meanwhile.
//!
//! A schedule knows no clock. Times are nanoseconds since the start of a load.

use serde::{Deserialize, Serialize};

const SECOND_NS: f64 = 1e9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// As of many that know nothing of each other: exponential distances.
    Poisson,
}

/// The moments at which records are due, without end.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrivals: Arrivals,
    first: f64,
    interval: f64,
    /// Of the moments so far.
    count: u64,
    next: f64,
    dice: Dice,
}

impl Schedule {
    /// Lane `lane` of `lanes` that share `per_second` records a second. At constant distances the
    /// lanes take turns, so that all of them together are as even as one would be.
    pub fn new(arrivals: Arrivals, per_second: f64, seed: u64, lane: usize, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        let all = SECOND_NS / per_second;
        let interval = all * lanes as f64;
        let seed = seed.wrapping_add((lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let first = all * lane as f64;
        let mut schedule =
            Schedule { arrivals, first, interval, count: 0, next: first, dice: Dice::new(seed) };
        if arrivals == Arrivals::Poisson {
            schedule.next = schedule.gap();
        }
        schedule
    }

    /// The next moment.
    pub fn due(&self) -> u64 {
        self.next as u64
    }

    /// Goes on to the one after it.
    pub fn advance(&mut self) {
        self.count += 1;
        self.next = match self.arrivals {
            // No sum, whose errors would add up.
            Arrivals::Constant => self.first + self.interval * self.count as f64,
            Arrivals::Poisson => self.next + self.gap(),
        };
    }

    /// Of those so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn gap(&mut self) -> f64 {
        -self.interval * self.dice.unit().ln()
    }
}

/// Numbers that a seed decides; not for anything secret.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// SplitMix64.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, each as likely but for what does not matter here; 0 if the limit is.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(limit)) >> 64) as u64
    }

    /// Above 0, up to 1.
    pub fn unit(&mut self) -> f64 {
        ((self.roll() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut schedule: Schedule, count: usize) -> Vec<u64> {
        let next = |_| {
            let due = schedule.due();
            schedule.advance();
            due
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn constant_distances_do_not_drift() {
        let last =
            *moments(Schedule::new(Arrivals::Constant, 3.0, 1, 0, 1), 3_000_001).last().unwrap();
        assert_eq!(last, 1_000_000 * 1_000_000_000);
    }

    #[test]
    fn lanes_together_are_as_even_as_one() {
        let one = moments(Schedule::new(Arrivals::Constant, 1000.0, 1, 0, 1), 300);
        let lanes = (0..3)
            .flat_map(|lane| moments(Schedule::new(Arrivals::Constant, 1000.0, 1, lane, 3), 100));
        let mut all: Vec<u64> = lanes.collect();
        all.sort_unstable();
        assert_eq!(all, one);
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread() {
        for (lane, lanes) in [(0, 1), (1, 4)] {
            let count = 200_000;
            let schedule = Schedule::new(Arrivals::Poisson, 1000.0, 7, lane, lanes);
            let moments = moments(schedule, count);
            let mean_ns = *moments.last().unwrap() as f64 / count as f64;
            let expected = 1e6 * lanes as f64;
            assert!((mean_ns / expected - 1.0).abs() < 0.02, "{mean_ns}");
            let gaps: Vec<f64> = moments.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
            let variance =
                gaps.iter().map(|gap| (gap - mean_ns).powi(2)).sum::<f64>() / gaps.len() as f64;
            // Of an exponential distribution the deviation is the mean.
            assert!((variance.sqrt() / mean_ns - 1.0).abs() < 0.02, "{variance}");
            assert!(moments.is_sorted());
        }
    }

    #[test]
    fn a_seed_decides_everything_and_another_one_differs() {
        let of = |seed, lane| moments(Schedule::new(Arrivals::Poisson, 10.0, seed, lane, 2), 100);
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
    }

    #[test]
    fn dice_stay_below_their_limit() {
        let mut dice = Dice::new(3);
        assert!((0..10_000).all(|_| dice.below(7) < 7));
        assert_eq!(dice.below(0), 0);
        assert!((0..10_000).map(|_| dice.unit()).all(|unit| unit > 0.0 && unit <= 1.0));
    }
}
