//! The latest offset of every key that a pass has seen, in bounded memory.
//!
//! Owns: an open-addressed table of 24-byte slots, 128 bits of a keyed hash and an offset. It grows
//! by doubling up to its bound, so few keys cost little. Pure: the hash's secret is an argument.
//! Keys themselves are not kept: two keys with equal hashes would lose one of them, which 128 bits
//! under a secret rule out for practical purposes.

use super::sip::{self, SipKey};

/// Slots of the smallest table.
const FEWEST_SLOTS: usize = 64;
const EMPTY: i64 = -1;
const SLOT_BYTES: usize = size_of::<Slot>();

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    offset: i64,
}

/// There is no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

pub(crate) struct KeyMap {
    secret: SipKey,
    slots: Vec<Slot>,
    used: usize,
    most_slots: usize,
    load_factor: f64,
    /// The offset behind the last record that was looked at: what lies there and behind says
    /// nothing about older records yet.
    end: i64,
}

impl KeyMap {
    /// A map of at most `bytes`, that looks at records from offset `from` on.
    pub(crate) fn new(bytes: usize, load_factor: f64, secret: SipKey, from: i64) -> Self {
        // While it grows the old table is there as well, half as large.
        let most_slots = (bytes / (SLOT_BYTES + SLOT_BYTES / 2)).max(FEWEST_SLOTS);
        let doublings = (most_slots / FEWEST_SLOTS).ilog2();
        let slots = most_slots >> doublings;
        KeyMap {
            secret,
            slots: vec![Slot { hash: [0; 2], offset: EMPTY }; slots],
            used: 0,
            most_slots: slots << doublings,
            load_factor: load_factor.clamp(0.1, 0.95),
            end: from,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Records at this offset and behind are not known to the map.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// Everything below `end` has been looked at.
    pub(crate) fn reach(&mut self, end: i64) {
        self.end = self.end.max(end);
    }

    /// Notes a record; offsets come in order.
    pub(crate) fn put(&mut self, key: &[u8], offset: i64) -> Result<(), Full> {
        assert!(offset >= self.end, "offsets are noted in order");
        let hash = sip::hash(self.secret, key);
        let mut place = self.place_of(hash);
        if self.is_empty_at(place) {
            if self.used + 1 > self.limit() {
                if !self.grow() {
                    return Err(Full);
                }
                place = self.place_of(hash);
            }
            self.used += 1;
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Slot { hash, offset };
        }
        self.end = offset + 1;
        Ok(())
    }

    /// The latest offset of a key, if the map has it.
    pub(crate) fn latest(&self, key: &[u8]) -> Option<i64> {
        let place = self.place_of(sip::hash(self.secret, key));
        self.slots.get(place).map(|slot| slot.offset).filter(|offset| *offset != EMPTY)
    }

    fn limit(&self) -> usize {
        let most = (self.slots.len() as f64 * self.load_factor) as usize;
        most.clamp(1, self.slots.len() - 1)
    }

    fn is_empty_at(&self, place: usize) -> bool {
        self.slots.get(place).is_none_or(|slot| slot.offset == EMPTY)
    }

    /// Where this hash is, or where it would go. Ends because a slot is always empty.
    fn place_of(&self, hash: [u64; 2]) -> usize {
        let slots = self.slots.len();
        let mut place = ((u128::from(hash[0]) * slots as u128) >> 64) as usize;
        while let Some(slot) = self.slots.get(place) {
            if slot.offset == EMPTY || slot.hash == hash {
                break;
            }
            place = if place + 1 == slots { 0 } else { place + 1 };
        }
        place
    }

    fn grow(&mut self) -> bool {
        if self.slots.len() >= self.most_slots {
            return false;
        }
        let larger = self.slots.len() * 2;
        let fresh = vec![Slot { hash: [0; 2], offset: EMPTY }; larger];
        let old = std::mem::replace(&mut self.slots, fresh);
        for slot in old.into_iter().filter(|slot| slot.offset != EMPTY) {
            let place = self.place_of(slot.hash);
            if let Some(free) = self.slots.get_mut(place) {
                *free = slot;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn map(bytes: usize) -> KeyMap {
        KeyMap::new(bytes, 0.9, SipKey(7, 11), 0)
    }

    #[test]
    fn the_latest_offset_counts() {
        let mut map = map(1 << 20);
        map.put(b"a", 0).unwrap();
        map.put(b"b", 1).unwrap();
        map.put(b"a", 5).unwrap();
        assert_eq!(
            (map.latest(b"a"), map.latest(b"b"), map.latest(b"c")),
            (Some(5), Some(1), None)
        );
        assert_eq!((map.len(), map.end()), (2, 6));
        map.reach(10);
        map.reach(3);
        assert_eq!(map.end(), 10);
    }

    #[test]
    fn a_full_map_says_so_and_still_takes_keys_it_knows() {
        let mut map = map(0);
        let mut taken = 0;
        while map.put(format!("key {taken}").as_bytes(), taken).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, (FEWEST_SLOTS as f64 * 0.9) as i64);
        assert_eq!(map.end(), taken);
        map.put(b"key 0", taken).unwrap();
        assert_eq!(map.latest(b"key 0"), Some(taken));
        assert_eq!(map.latest(format!("key {taken}").as_bytes()), None);
    }

    #[test]
    fn memory_stays_within_the_bound_while_it_grows() {
        for bytes in [10_000, 100_000, 1 << 20] {
            let mut map = map(bytes);
            let (mut n, mut peak, mut before) = (0, 0, map.slots.capacity());
            while map.put(&n.to_string().into_bytes(), n).is_ok() {
                n += 1;
                if map.slots.capacity() != before {
                    peak = peak.max((before + map.slots.capacity()) * SLOT_BYTES);
                    before = map.slots.capacity();
                }
            }
            assert!(peak <= bytes, "{peak} of {bytes}");
            assert!(n as usize * 42 > bytes, "{n} keys in {bytes}");
            assert!((0..n).all(|i| map.latest(&i.to_string().into_bytes()) == Some(i)));
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_map(keys in proptest::collection::vec(0u16..500, 0..2_000)) {
            let mut map = map(1 << 20);
            let mut plain = HashMap::new();
            for (offset, key) in keys.iter().enumerate() {
                map.put(&key.to_be_bytes(), offset as i64).unwrap();
                plain.insert(*key, offset as i64);
            }
            prop_assert_eq!(map.len(), plain.len());
            for key in 0u16..500 {
                prop_assert_eq!(map.latest(&key.to_be_bytes()), plain.get(&key).copied());
            }
        }
    }
}
