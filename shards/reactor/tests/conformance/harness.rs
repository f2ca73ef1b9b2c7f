//! Running one async test on both backends.

use std::path::PathBuf;

use reactor::sim::{Outcome, World};
use reactor::{ShardSpec, uring};

const SEEDS: u64 = 12;

/// What a test gets.
#[derive(Clone)]
pub struct Env {
    /// An empty directory of its own.
    pub dir: PathBuf,
    pub seed: u64,
    pub simulated: bool,
}

impl Env {
    /// Fewer rounds where each seed runs twice.
    pub fn rounds(&self, real: usize, simulated: usize) -> usize {
        if self.simulated { simulated } else { real }
    }
}

/// Defines a test per backend from an async function of [`Env`].
macro_rules! both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                $crate::harness::on_uring(super::$name);
            }

            #[test]
            fn sim() {
                $crate::harness::on_sim(super::$name);
            }
        }
    )+};
}

pub fn on_uring<Fut: Future<Output = ()> + 'static>(test: impl FnOnce(Env) -> Fut) {
    on_uring_with(&ShardSpec::default(), test);
}

pub fn on_uring_with<Fut: Future<Output = T> + 'static, T: 'static>(
    spec: &ShardSpec,
    test: impl FnOnce(Env) -> Fut,
) -> T {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let env = Env { dir: dir.path().to_path_buf(), seed: 1, simulated: false };
    uring::run(spec, || test(env)).unwrap()
}

pub fn on_sim<Fut: Future<Output = ()> + 'static>(test: impl Fn(Env) -> Fut) {
    for seed in 0..SEEDS {
        let run = || {
            let mut world = World::new(seed);
            let faults = world.faults();
            if seed % 2 == 1 {
                faults.disk.short_per_million = 100_000;
                faults.disk.interrupt_per_million = 50_000;
                faults.net.short_per_million = 100_000;
                faults.net.interrupt_per_million = 50_000;
            }
            let env = Env { dir: PathBuf::from("/"), seed, simulated: true };
            let outcome = world.run(|| test(env));
            assert_eq!(outcome, Outcome::Finished(()), "seed {seed}");
            world.trace_hash()
        };
        assert_eq!(run(), run(), "seed {seed} gave two histories");
    }
}

/// The tests' own dice.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound.max(1)
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(n + 8);
        while all.len() < n {
            all.extend_from_slice(&self.next().to_le_bytes());
        }
        all.truncate(n);
        all
    }
}
