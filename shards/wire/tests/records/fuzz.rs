//! The bodies of the fuzz targets over recorded batches and seeded mutations of them.

// Clippy lets tests expect, but does not see that the bodies are tests too.
#[allow(clippy::expect_used)]
#[path = "../../../../tests/fuzz/bodies/records.rs"]
mod bodies;

use crate::golden;
use wire::records::{Codec, batches, compress};

/// Mutations of each seed; a few seconds in all without optimisation.
const ROUNDS: u64 = 400;
const VALUES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, 0x20];

/// A small generator: the same inputs on every run and machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// One to four small changes, more often near the front, where the lengths are.
pub fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        let reach = if random.below(2) == 0 { bytes.len() } else { bytes.len().min(96) };
        let at = random.below(reach);
        match (random.below(6), bytes.get_mut(at)) {
            (0 | 1, Some(byte)) => *byte ^= 1 << random.below(8),
            (2, Some(byte)) => *byte = VALUES[random.below(VALUES.len())],
            (3, Some(_)) => drop(bytes.remove(at)),
            (4, _) => bytes.insert(at, VALUES[random.below(VALUES.len())]),
            (5, _) => bytes.truncate(at),
            _ => {}
        }
    }
    bytes
}

/// Every batch of our recorded content, small ones only.
fn seeds() -> Vec<Vec<u8>> {
    let all = Codec::ALL.into_iter().map(golden::built);
    let small = all.flat_map(|file| {
        batches(&file).map(|batch| batch.unwrap().bytes().to_vec()).collect::<Vec<_>>()
    });
    small.filter(|batch| batch.len() < 1000).collect()
}

#[test]
fn record_batches_hold() {
    for (number, mut seed) in (1u64..).zip(seeds()) {
        bodies::record_batches(&seed);
        let mut random = Random(number);
        for _ in 0..ROUNDS {
            bodies::record_batches(&mutate(&seed, &mut random));
        }
        seed.extend(seed.clone());
        for _ in 0..ROUNDS / 8 {
            bodies::record_batches(&mutate(&seed, &mut random));
        }
    }
}

#[test]
fn produce_validation_holds() {
    for (number, mut seed) in (100u64..).zip(seeds()) {
        seed[..8].fill(0);
        let mut random = Random(number);
        for choice in 0..32 {
            let chosen = [&seed[..], &[choice]].concat();
            bodies::produce_validation(&chosen);
            for _ in 0..ROUNDS / 32 {
                bodies::produce_validation(&mutate(&chosen, &mut random));
            }
        }
    }
}

#[test]
fn compressed_blocks_hold() {
    let text = b"a block of text with some repetition, repetition and more ".repeat(40);
    let noise: Vec<u8> = (0..3000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
    for codec in Codec::ALL {
        let mut random = Random(codec.bits().into());
        for data in [&text[..], &noise, b"", b"x", &[0; 100_000]] {
            let block = compress(codec, None, data).unwrap();
            bodies::compressed_block(codec, &block);
            for _ in 0..ROUNDS {
                bodies::compressed_block(codec, &mutate(&block, &mut random));
            }
        }
    }
}
