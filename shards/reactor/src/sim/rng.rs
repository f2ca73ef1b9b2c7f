//! The dice of a simulation: small, fast, the same on every machine.

/// SplitMix64. Everything random in a run comes from one of these, so a seed is a whole history.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `bound`, 0 if that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// True once in a million divided by `per_million`. Rolls nothing if that is zero, so that a
    /// fault that is off changes no schedule.
    pub(super) fn hits(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }
}

/// What a test chooses by itself, beside the simulation: from a seed that it keeps.
#[derive(Clone, Debug)]
pub struct Choices(pub u64);

impl Choices {
    pub fn roll(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `bound`, 0 if that is 0. What a seed that a test keeps stands for hangs on
    /// this.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
