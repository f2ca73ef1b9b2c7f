//! Which old segments become one new one.
//!
//! Pure. Neighbours go together while their batches, their indexes and their span of offsets fit
//! into one segment, judged by what they take now: cleaning only makes them smaller.

use std::ops::Range;

/// An old segment, as far as grouping asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) base: i64,
    /// The base of the segment behind it.
    pub(crate) next: i64,
    pub(crate) bytes: u64,
    pub(crate) offset_index_bytes: u64,
    pub(crate) time_index_bytes: u64,
}

/// `segment.bytes` and `segment.index.bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) segment_bytes: u64,
    pub(crate) index_bytes: u64,
}

/// Ranges over `pieces`, which lie back to back; each becomes one segment.
pub(crate) fn groups(pieces: &[Piece], most: Most) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sum: Option<Piece> = None;
    for (at, piece) in pieces.iter().enumerate() {
        let joined = sum.map(|sum| sum.with(piece)).filter(|joined| joined.fits(most));
        match (joined, groups.last_mut()) {
            (Some(joined), Some(group)) => {
                group.end = at + 1;
                sum = Some(joined);
            }
            _ => {
                groups.push(at..at + 1);
                sum = Some(*piece);
            }
        }
    }
    groups
}

impl Piece {
    fn with(self, behind: &Piece) -> Piece {
        Piece {
            base: self.base,
            next: behind.next,
            bytes: self.bytes + behind.bytes,
            offset_index_bytes: self.offset_index_bytes + behind.offset_index_bytes,
            time_index_bytes: self.time_index_bytes + behind.time_index_bytes,
        }
    }

    fn fits(&self, most: Most) -> bool {
        self.bytes <= most.segment_bytes
            && self.offset_index_bytes <= most.index_bytes
            && self.time_index_bytes <= most.index_bytes
            && self.next - 1 - self.base <= i64::from(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `base:bytes/offset index/time index`, the end of the last one; the groups, by base offset.
    const TABLE: &str = "
        0:10/1/1 5:10/1/1 9:10/1/1 | 20 | 0,5,9
        0:50/1/1 5:50/1/1 9:1/1/1 | 20 | 0,5 9
        0:60/1/1 5:50/1/1 9:50/1/1 | 20 | 0 5,9
        0:500/1/1 5:1/1/1 | 20 | 0 5
        0:1/6/1 5:1/5/1 9:1/5/1 | 20 | 0 5,9
        0:1/1/6 5:1/1/5 9:1/1/5 | 20 | 0 5,9
        0:0/0/0 5:0/0/0 9:90/1/1 | 20 | 0,5,9
        0:1/1/1 5:1/1/1 9:1/1/1 | 2147483648 | 0,5,9
        0:1/1/1 5:1/1/1 9:1/1/1 | 2147483649 | 0,5 9
        0:1/1/1 3000000000:1/1/1 3000000005:1/1/1 | 3000000009 | 0 3000000000,3000000005
        7:1/1/1 | 9 | 7";

    #[test]
    fn neighbours_go_together_while_they_fit() {
        let most = Most { segment_bytes: 100, index_bytes: 10 };
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut columns = line.split('|').map(str::trim);
            let mut column = || columns.next().unwrap();
            let mut pieces: Vec<Piece> = column().split(' ').map(piece).collect();
            let end = column().parse().unwrap();
            let nexts: Vec<i64> = pieces.iter().skip(1).map(|p| p.base).chain([end]).collect();
            for (piece, next) in pieces.iter_mut().zip(nexts) {
                piece.next = next;
            }
            let names = groups(&pieces, most).into_iter().map(|group| {
                let bases = pieces[group].iter().map(|p| p.base.to_string());
                bases.collect::<Vec<_>>().join(",")
            });
            assert_eq!(names.collect::<Vec<_>>().join(" "), column(), "{line}");
        }
        assert!(groups(&[], most).is_empty());
    }

    fn piece(text: &str) -> Piece {
        let (base, rest) = text.split_once(':').unwrap();
        let sizes: Vec<u64> = rest.split('/').map(|n| n.parse().unwrap()).collect();
        Piece {
            base: base.parse().unwrap(),
            next: 0,
            bytes: sizes[0],
            offset_index_bytes: sizes[1],
            time_index_bytes: sizes[2],
        }
    }
}
