//! Whether bytes that came from a device are the batch that belongs there.
//!
//! Owns: the judgement on one batch before it is served from a file. The checksum covers neither
//! the base offset nor the length of a batch; a wrong length breaks the checksum, and for the
//! offset the neighbours must vouch: it never falls, and where it leaves a hole (compaction does)
//! the batch behind must begin after this one ends. Pure.

use wire::records::BatchHeader;
use wire::records::header::{CRC_START, HEADER_BYTES};

use crate::span::Span;

/// What is known of the place where a batch lies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The batch before ends here: this one cannot begin lower.
    pub(crate) expected: Option<i64>,
    /// The index says that the batch ends with this offset.
    pub(crate) ends_with: Option<i64>,
    /// The next batch, or the end of the segment, begins here. Only asked for behind a hole.
    pub(crate) following: Option<i64>,
}

/// The judgement on one batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// So many bytes from its start on are needed to tell.
    Need(usize),
    Unsound(String),
}

/// Judges the batch with this header that starts at `at`. `is_last`: nothing follows it in its
/// segment. Its checksum is looked at if it is `wanted` and whole in the span.
pub(crate) fn check(
    header: &BatchHeader,
    (span, at): (&Span, u32),
    place: Place,
    is_last: bool,
    wanted: bool,
) -> Verdict {
    let size = header.size_in_bytes();
    let mut place = place;
    if place.expected.is_some_and(|expected| header.base_offset > expected) && !is_last {
        let Some(next) = span.header_at(at.saturating_add(size as u32)) else {
            return Verdict::Need(size + HEADER_BYTES);
        };
        // What follows may be damaged itself; then it vouches for nothing.
        place.following = next.ok().map(|next| next.base_offset);
    }
    let end = at.saturating_add(size as u32);
    let sum = wanted.then(|| span.checksum(at.saturating_add(CRC_START as u32), end)).flatten();
    let sum = sum.map_or(Ok(()), |sum| check_sum(header, sum));
    match check_offsets(header, place).and(sum) {
        Ok(()) => Verdict::Sound,
        Err(problem) => Verdict::Unsound(problem),
    }
}

/// Checks the offsets of a batch against its place.
fn check_offsets(header: &BatchHeader, place: Place) -> Result<(), String> {
    let (base, last) = (header.base_offset, header.last_offset());
    if base < 0 || header.last_offset_delta < 0 {
        return Err(format!("a batch has the offsets {base} to {last}"));
    }
    if let Some(expected) = place.expected.filter(|expected| base < *expected) {
        return Err(format!("a batch has offset {base} where {expected} is next"));
    }
    if let Some(ends_with) = place.ends_with.filter(|ends_with| last != *ends_with) {
        return Err(format!("a batch ends with offset {last}, its index says {ends_with}"));
    }
    if let Some(following) = place.following.filter(|following| last >= *following) {
        return Err(format!(
            "a batch ends with offset {last} before one that starts at {following}"
        ));
    }
    Ok(())
}

/// Checks the checksum of a whole batch.
fn check_sum(header: &BatchHeader, sum: u32) -> Result<(), String> {
    if sum == header.crc {
        return Ok(());
    }
    let stored = header.crc;
    Err(format!(
        "checksum {sum:#010x} of the batch at offset {} is not its {stored:#010x}",
        header.base_offset
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64) -> Vec<u8> {
        let mut builder = wire::records::BatchBuilder::new().base_offset(base);
        for _ in 0..10 {
            builder.append(1, None, Some(b"x"));
        }
        builder.build().unwrap_or_default()
    }

    fn header(base: i64) -> BatchHeader {
        BatchHeader::parse(&batch(base)).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn neighbours_and_index_vouch_for_an_offset() {
        let place = |expected, ends_with, following| Place { expected, ends_with, following };
        let table = [
            (100, place(None, None, None), true),
            (100, place(Some(100), Some(109), Some(110)), true),
            (100, place(Some(90), None, Some(110)), true),
            (100, place(Some(101), None, None), false),
            (101, place(None, Some(109), None), false),
            (612, place(Some(100), None, Some(110)), false),
            (-100, place(None, None, None), false),
        ];
        for (base, place, sound) in table {
            assert_eq!(check_offsets(&header(base), place).is_ok(), sound, "{base} {place:?}");
        }
    }
    #[test]
    fn a_hole_is_believed_when_the_next_batch_begins_behind() {
        let expected = Place { expected: Some(100), ..Place::default() };
        let judge = |bytes: &[u8], is_last, wanted| {
            let header = BatchHeader::parse(bytes).unwrap_or_else(|error| panic!("{error}"));
            let span = Span::of(0, bytes.to_vec().into());
            check(&header, (&span, 0), expected, is_last, wanted)
        };
        let one = batch(120);
        assert_eq!(judge(&one, false, true), Verdict::Need(one.len() + HEADER_BYTES));
        assert_eq!(judge(&one, true, true), Verdict::Sound);
        assert_eq!(judge(&[one.clone(), batch(130)].concat(), false, true), Verdict::Sound);
        let overtaken = [one, batch(110)].concat();
        assert!(matches!(judge(&overtaken, false, true), Verdict::Unsound(_)));
        let mut flipped = batch(100);
        flipped[80] ^= 4;
        assert!(matches!(judge(&flipped, false, true), Verdict::Unsound(_)));
        assert_eq!(judge(&flipped, false, false), Verdict::Sound, "not served, only passed");
    }
}
