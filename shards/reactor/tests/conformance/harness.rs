//! Running one async test on every backend.

use std::path::PathBuf;

use reactor::sim::{Outcome, World};
use reactor::{Backend, ShardSpec};

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
macro_rules! every {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                $crate::harness::on(reactor::Backend::Uring, super::$name);
            }

            #[cfg(feature = "glommio")]
            #[test]
            fn glommio() {
                $crate::harness::on(reactor::Backend::Glommio, super::$name);
            }

            #[test]
            fn sim() {
                $crate::harness::on_sim(super::$name);
            }
        }
    )+};
}

/// Defines a test per backend on a real kernel from a function of [`Backend`].
macro_rules! on_real_ones {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                super::$name(reactor::Backend::Uring);
            }

            #[cfg(feature = "glommio")]
            #[test]
            fn glommio() {
                super::$name(reactor::Backend::Glommio);
            }
        }
    )+};
}

pub fn on<Fut: Future<Output = ()> + 'static>(backend: Backend, test: impl FnOnce(Env) -> Fut) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let env = Env { dir: dir.path().to_path_buf(), seed: 1, simulated: false };
    backend.run(&ShardSpec::default(), || test(env)).unwrap();
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
