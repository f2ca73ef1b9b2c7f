//! SipHash-2-4 with 128 bits of output: a keyed hash under which nobody who does not know the key
//! can make two record keys collide, and 128 bits are enough that none do by chance.
//!
//! Pure. The algorithm is that of Aumasson and Bernstein's reference; its vectors are the tests.

/// The secret of one map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipKey(pub(crate) u64, pub(crate) u64);

struct State([u64; 4]);

impl State {
    fn rounds(&mut self, n: usize) {
        let [a, b, c, d] = &mut self.0;
        for _ in 0..n {
            *a = a.wrapping_add(*b);
            *b = b.rotate_left(13) ^ *a;
            *a = a.rotate_left(32);
            *c = c.wrapping_add(*d);
            *d = d.rotate_left(16) ^ *c;
            *a = a.wrapping_add(*d);
            *d = d.rotate_left(21) ^ *a;
            *c = c.wrapping_add(*b);
            *b = b.rotate_left(17) ^ *c;
            *c = c.rotate_left(32);
        }
    }

    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.rounds(2);
        self.0[0] ^= word;
    }

    fn fold(&self) -> u64 {
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }
}

pub(crate) fn hash(key: SipKey, data: &[u8]) -> [u64; 2] {
    let SipKey(k0, k1) = key;
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let mut last = (data.len() as u64) << 56;
    for (i, byte) in rest.iter().enumerate() {
        last |= u64::from(*byte) << (8 * i);
    }
    state.absorb(last);
    state.0[2] ^= 0xee;
    state.rounds(4);
    let first = state.fold();
    state.0[1] ^= 0xdd;
    state.rounds(4);
    [first, state.fold()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation: key 00..0f, data 00, 01, 02 ... of growing length.
    #[test]
    fn the_reference_vectors_hold() {
        let key = SipKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let vectors =
            [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")];
        for (len, expected) in vectors {
            let data: Vec<u8> = (0..len).collect();
            let [a, b] = hash(key, &data);
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected, "{len} bytes");
        }
    }

    #[test]
    fn length_and_secret_count() {
        let key = SipKey(1, 2);
        assert_ne!(hash(key, b""), hash(key, b"\0"));
        assert_ne!(hash(key, b"\0"), hash(key, b"\0\0"));
        assert_ne!(hash(key, b"abcdefgh"), hash(key, b"abcdefgh\0"));
        assert_ne!(hash(key, b"abc"), hash(SipKey(1, 3), b"abc"));
    }
}
