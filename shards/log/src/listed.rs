//! The segments that a checkpoint vouches for.
//!
//! Owns: the list in `corelane.checkpoint` of the segments that were there, and how long, when the
//! recovery point was moved; and what of it a folder does not keep. Pure. An opening that finds
//! less than the list says refuses the folder. So whoever removes or shortens a segment takes it
//! off the list first, durably; but what lies wholly below the start of the log may go as it is.
//!
//! ```text
//! 0      8            12                 20                              24
//! | base | bytes u32 | newest timestamp | its offset - base u32, all ones: not known |
//! ```
//! `bytes` of 0 claim nothing: the segment has been replaced since, and its base only says where
//! the one before it ends.

use bytes::{Buf, BufMut, TryGetError};

use crate::checkpoint::Checkpoint;
use crate::segment::Newest;

/// Segments that a checkpoint lists, the newest: 384 KiB. Those before them are not vouched for.
pub(crate) const SEGMENTS_MAX: usize = 16 << 10;

const NOT_KNOWN: u32 = u32::MAX;

/// One segment of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) base: i64,
    /// At least so many are in its file.
    pub(crate) bytes: u32,
    /// Of the whole segment, where it has exactly so many.
    pub(crate) newest: Option<Newest>,
}

/// A segment that is not as the list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    pub(crate) base: i64,
    pub(crate) bytes: u32,
    /// `None`: there is no such file.
    pub(crate) found: Option<u64>,
}

impl Unmet {
    pub(crate) fn problem(&self) -> String {
        let bytes = self.bytes;
        match self.found {
            None => format!("it is missing, but {bytes} bytes of it were safe"),
            Some(found) => format!("it has {found} bytes, but {bytes} bytes of it were safe"),
        }
    }
}

impl Listed {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let relative = |newest: Newest| u32::try_from(newest.offset.checked_sub(self.base)?).ok();
        let newest = self.newest.and_then(|newest| Some((newest.timestamp, relative(newest)?)));
        let (timestamp, offset) = newest.unwrap_or((0, NOT_KNOWN));
        out.put_i64(self.base);
        out.put_u32(self.bytes);
        out.put_i64(timestamp);
        out.put_u32(offset);
    }

    pub(crate) fn decode(input: &mut &[u8]) -> Result<Self, TryGetError> {
        let (base, bytes) = (input.try_get_i64()?, input.try_get_u32()?);
        let (timestamp, offset) = (input.try_get_i64()?, input.try_get_u32()?);
        let known = (offset != NOT_KNOWN).then_some(i64::from(offset));
        let newest = known.map(|offset| Newest { timestamp, offset: base.saturating_add(offset) });
        Ok(Listed { base, bytes, newest })
    }
}

/// The segment of this base, if it is listed.
pub(crate) fn find(segments: &[Listed], base: i64) -> Option<&Listed> {
    let place = segments.binary_search_by_key(&base, |listed| listed.base).ok()?;
    segments.get(place)
}

impl Checkpoint {
    /// What of the list a folder does not keep whose log starts at `log_start`; `size_of` tells the
    /// size of the file of a segment.
    pub(crate) fn unmet(
        &self,
        log_start: i64,
        size_of: impl Fn(i64) -> Option<u64>,
    ) -> impl Iterator<Item = Unmet> {
        let ends = self.segments.iter().skip(1).map(|s| s.base).chain([self.recovery_point]);
        let claims = self.segments.iter().zip(ends);
        claims.filter(move |(_, end)| *end > log_start).filter_map(move |(listed, _)| {
            let (base, bytes) = (listed.base, listed.bytes);
            let found = size_of(base);
            (found.unwrap_or(0) < u64::from(bytes)).then_some(Unmet { base, bytes, found })
        })
    }

    /// Claims nothing of these segments any longer. Returns whether it did.
    pub(crate) fn unlist(&mut self, bases: &[i64]) -> bool {
        let mut did = false;
        for listed in self.segments.iter_mut().filter(|listed| bases.contains(&listed.base)) {
            did |= listed.bytes > 0;
            (listed.bytes, listed.newest) = (0, None);
        }
        did
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::sample;

    fn listing(segments: &[(i64, u32)]) -> Checkpoint {
        let listed =
            |(base, bytes): &(i64, u32)| Listed { base: *base, bytes: *bytes, newest: None };
        Checkpoint { segments: segments.iter().map(listed).collect(), ..sample() }
    }

    #[test]
    fn what_is_missing_or_too_short_is_told_unless_it_lies_below_the_start() {
        let checkpoint = listing(&[(0, 50), (40, 70), (100, 4_101)]);
        assert_eq!(checkpoint.recovery_point, 120);
        let whole = |base| Some(if base == 100 { 5_000 } else { 70 });
        assert_eq!(checkpoint.unmet(0, whole).count(), 0, "longer ones are fine");
        let missing = |at| checkpoint.unmet(at, |_| None).map(|u| u.base).collect::<Vec<_>>();
        for (log_start, expected) in [
            (0, &[0, 40, 100][..]),
            (39, &[0, 40, 100]),
            (40, &[40, 100]),
            (99, &[40, 100]),
            (100, &[100]),
            (119, &[100]),
            (120, &[]),
        ] {
            assert_eq!(missing(log_start), expected, "start {log_start}");
        }
        let short = |base| Some(if base == 40 { 69 } else { 5_000 });
        let unmet: Vec<Unmet> = checkpoint.unmet(0, short).collect();
        assert_eq!(unmet, [Unmet { base: 40, bytes: 70, found: Some(69) }]);
        assert!(unmet[0].problem().contains("it has 69 bytes, but 70"));
    }

    #[test]
    fn what_was_unlisted_is_not_missed_and_still_ends_the_one_before() {
        let mut checkpoint = listing(&[(0, 50), (40, 70), (60, 70), (100, 5)]);
        assert!(checkpoint.unlist(&[40, 60]));
        assert!(!checkpoint.unlist(&[40, 60, 77]));
        let missing = |at| checkpoint.unmet(at, |_| None).map(|u| u.base).collect::<Vec<_>>();
        assert_eq!(missing(0), [0, 100]);
        assert_eq!(missing(40), [100]);
        let bytes = |base| find(&checkpoint.segments, base).map(|listed| listed.bytes);
        assert_eq!((bytes(60), bytes(61), bytes(100)), (Some(0), None, Some(5)));
    }

    #[test]
    fn the_newest_timestamp_reads_back_where_it_fits() {
        let newest = |offset| Some(Newest { timestamp: -1, offset });
        for (written, read) in [
            (newest(10), newest(10)),
            (newest(10 + i64::from(u32::MAX) - 1), newest(10 + i64::from(u32::MAX) - 1)),
            (newest(10 + i64::from(u32::MAX)), None),
            (newest(9), None),
            (None, None),
        ] {
            let mut bytes = Vec::new();
            Listed { base: 10, bytes: 7, newest: written }.encode(&mut bytes);
            let expected = Listed { base: 10, bytes: 7, newest: read };
            assert_eq!(Listed::decode(&mut &bytes[..]).unwrap(), expected);
        }
    }
}
