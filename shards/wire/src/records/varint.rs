//! Variable-length integers of the record format: zig-zag, then base 128, low groups first.
//!
//! At most 5 bytes for 32 bits and 10 for 64; longer input, and input whose last byte has bits that
//! do not fit, is refused rather than wrapped.

/// Longest encoding of an `i32`.
pub const MAX_BYTES_32: usize = 5;
/// Longest encoding of an `i64`.
pub const MAX_BYTES_64: usize = 10;

/// Why an integer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end inside the integer.
    Truncated,
    /// More bytes or bits than the type has.
    OverLong,
}

/// Reads an `i32` from the front; returns it and the bytes it took.
pub fn read_i32(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    // One byte is the common case: lengths below 64, small deltas, null markers.
    match bytes.first() {
        Some(byte) if byte & 0x80 == 0 => return Ok((unzigzag_32(u32::from(*byte)), 1)),
        _ => {}
    }
    let (raw, used) = read_groups(bytes, MAX_BYTES_32)?;
    match u32::try_from(raw) {
        Ok(raw) => Ok((unzigzag_32(raw), used)),
        Err(_) => Err(VarintError::OverLong),
    }
}

/// Reads an `i64` from the front; returns it and the bytes it took.
pub fn read_i64(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    let (raw, used) = read_groups(bytes, MAX_BYTES_64)?;
    match u64::try_from(raw) {
        Ok(raw) => Ok((((raw >> 1) as i64) ^ -((raw & 1) as i64), used)),
        Err(_) => Err(VarintError::OverLong),
    }
}

pub fn write_i32(out: &mut Vec<u8>, value: i32) {
    write_i64(out, i64::from(value));
}

pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut raw = zigzag_64(value);
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Bytes that [`write_i32`] takes.
pub fn size_i32(value: i32) -> usize {
    size_i64(i64::from(value))
}

/// Bytes that [`write_i64`] takes.
pub fn size_i64(value: i64) -> usize {
    let bits = 64 - (zigzag_64(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn zigzag_64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag_32(raw: u32) -> i32 {
    ((raw >> 1) as i32) ^ -((raw & 1) as i32)
}

/// The groups as one number; wide enough that the caller can see bits beyond its type.
fn read_groups(bytes: &[u8], max: usize) -> Result<(u128, usize), VarintError> {
    let mut raw = 0u128;
    for (i, byte) in bytes.iter().take(max).enumerate() {
        raw |= u128::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((raw, i + 1));
        }
    }
    Err(if bytes.len() < max { VarintError::Truncated } else { VarintError::OverLong })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: &[(i32, &[u8])] = &[
        (0, &[0x00]),
        (-1, &[0x01]),
        (1, &[0x02]),
        (63, &[0x7e]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (300, &[0xd8, 0x04]),
        (-300, &[0xd7, 0x04]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ];

    #[test]
    fn vectors_both_ways() {
        for (value, bytes) in VECTORS {
            let mut out = Vec::new();
            write_i32(&mut out, *value);
            assert_eq!(&out, bytes, "{value}");
            assert_eq!(read_i32(bytes), Ok((*value, bytes.len())));
            assert_eq!(read_i64(bytes), Ok((i64::from(*value), bytes.len())));
            assert_eq!(size_i32(*value), bytes.len());
        }
    }

    #[test]
    fn over_long_input_is_refused() {
        // A sixth byte, a fifth byte with bits past 32, endless continuation.
        assert_eq!(read_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(VarintError::OverLong));
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(VarintError::OverLong));
        assert_eq!(read_i32(&[0xff; 64]), Err(VarintError::OverLong));
        let mut ten = [0xff; 10];
        ten[9] = 0x02;
        assert_eq!(read_i64(&ten), Err(VarintError::OverLong));
        ten[9] = 0x01;
        assert_eq!(read_i64(&ten), Ok((i64::MIN, 10)));
        assert_eq!(read_i64(&[0x80; 11]), Err(VarintError::OverLong));
    }

    #[test]
    fn truncated_input_is_refused() {
        assert_eq!(read_i32(&[]), Err(VarintError::Truncated));
        assert_eq!(read_i32(&[0x80]), Err(VarintError::Truncated));
        assert_eq!(read_i64(&[0x80; 9]), Err(VarintError::Truncated));
    }

    proptest! {
        #[test]
        fn i64_round_trips(value in any::<i64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            write_i64(&mut out, value);
            prop_assert_eq!(out.len(), size_i64(value));
            prop_assert_eq!(read_i64(&out), Ok((value, out.len())));
        }

        #[test]
        fn any_bytes_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            if let Ok((_, used)) = read_i32(&bytes) {
                prop_assert!(used <= MAX_BYTES_32.min(bytes.len()));
            }
            if let Ok((_, used)) = read_i64(&bytes) {
                prop_assert!(used <= MAX_BYTES_64.min(bytes.len()));
            }
        }
    }
}
