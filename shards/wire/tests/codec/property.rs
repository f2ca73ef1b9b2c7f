//! Random values of every message in every version, encoded by the model and by the codec.

use proptest::prelude::*;

use crate::model::{Filler, Model};
use crate::probe::probe;

/// Each case goes through every message and version, so a few are a long way.
const CASES: u32 = 12;

/// A stream of choices drawn from one seed (splitmix64), so that a failing case is one number.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

impl Filler for Random {
    fn null(&mut self) -> bool {
        self.below(4) == 0
    }

    fn keep_default(&mut self) -> bool {
        self.below(4) == 0
    }

    fn count(&mut self) -> usize {
        [0, 1, 1, 2, 3][self.below(5)]
    }

    fn word(&mut self, _: &str) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 63 | 1 << 31 | 1 << 15 | 1 << 7,
            3 => !(1 << 63 | 1 << 31 | 1 << 15 | 1 << 7),
            _ => self.next(),
        }
    }

    fn length(&mut self, _: u64) -> usize {
        match self.below(24) {
            0 => 126 + self.below(4),
            1 => 16_382 + self.below(4),
            small => small % 7,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn every_message_and_version_reads_and_writes_like_the_model(seed in any::<u64>()) {
        let mut random = Random(seed);
        for typed in Model::read().all() {
            let (name, version) = (&typed.message.name, typed.version);
            let value = typed.fill(&mut random);
            let bytes = typed.encode(&value);
            let seen = (probe(name).recode)(version, &bytes);
            let seen = seen.map_err(|e| TestCaseError::fail(format!("{name} {version}: {e}")))?;
            prop_assert_eq!(seen.left, 0, "{} {}", name, version);
            prop_assert_eq!(&seen.debug, &typed.debug(&value), "{} {}", name, version);
            prop_assert!(seen.bytes == bytes, "{} {} encodes otherwise", name, version);
            prop_assert!(seen.owned_bytes == bytes, "{} {} owned encodes otherwise", name, version);
        }
    }

    #[test]
    fn unknown_tagged_fields_are_dropped(seed in any::<u64>(), unknown in 1..4_usize) {
        let mut random = Random(seed);
        for typed in Model::read().all().filter(|typed| typed.flexible) {
            let (name, version) = (&typed.message.name, typed.version);
            let fields = &typed.message.fields;
            if fields.iter().any(|field| field.tag.is_some()) {
                continue;
            }
            let value = typed.fill(&mut random);
            let bytes = typed.encode(&value);
            // The message's own section of tagged fields is its last byte: none.
            let mut extended = bytes[..bytes.len() - 1].to_vec();
            extended.push(unknown as u8);
            for tag in 0..unknown {
                extended.extend([100 + tag as u8, 3, 0xff, 0xff, 0xff]);
            }
            let seen = (probe(name).recode)(version, &extended);
            let seen = seen.map_err(|e| TestCaseError::fail(format!("{name} {version}: {e}")))?;
            prop_assert_eq!(seen.left, 0, "{} {}", name, version);
            prop_assert!(seen.bytes == bytes, "{} {} keeps unknown fields", name, version);
        }
    }
}
