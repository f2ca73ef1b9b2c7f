//! Reading ahead of readers that go through old segments in order.
//!
//! Owns: how far ahead. A reader that goes on where it stopped gets a window that doubles with each
//! step, from [`FIRST`] to [`MOST`]; one that jumps has none. Windows are filled with pieces (see
//! `backfill.rs`) as far as there is memory that nobody needs more, over the end of a segment into
//! the next one, never into what a tail has. A piece that nobody fetches costs memory, never a
//! wrong answer.

use std::ops::Range;
use std::rc::Rc;

use reactor::{Class, File};

use crate::backfill::PIECE;
use crate::core::{Core, Reader};
use crate::error::LogError;
use crate::files;
use crate::span::Span;
use crate::tail::block_ceiling;

/// Bytes ahead of a reader that has just shown that it goes on.
const FIRST: u32 = 256 << 10;
/// The most, and no more than this part of the whole budget.
const MOST: u32 = 4 << 20;
const PART: usize = 4;

/// The window after one more step in order.
pub(crate) fn grow(window: u32) -> u32 {
    window.saturating_mul(2).clamp(FIRST, MOST)
}

/// Bytes of a segment from its pieces: all that lie in the range, but where memory is short only as
/// many as there is room for; `None` if that is none and it may not wait for the first.
pub(crate) async fn read(
    core: &Rc<Core>,
    (segment, number): (i64, u64),
    file: &File,
    range: Range<u32>,
    waits: bool,
) -> Result<Option<Span>, LogError> {
    let backfill = core.shared.backfill();
    let mut wanted = Vec::new();
    let mut short = false;
    for place in range.start / PIECE..range.end.div_ceil(PIECE) {
        let key = (number, place);
        // What an earlier read took as the end of the file may have moved.
        let least = range.end.min((place + 1).saturating_mul(PIECE));
        let piece = match backfill.piece(key, least) {
            Some(piece) => piece,
            None => {
                let end = readable(core, segment, number).min((place + 1).saturating_mul(PIECE));
                if end <= place * PIECE {
                    break;
                }
                let size = block_ceiling(end - place * PIECE) as usize;
                let grant = match backfill.try_grant(size) {
                    Some(grant) => grant,
                    // It holds nothing yet, so it may wait; later ones come with the next read.
                    None if wanted.is_empty() && waits => backfill.grant(size).await,
                    None => {
                        short = true;
                        break;
                    }
                };
                backfill.start(core, file.clone(), key, end, grant)
            }
        };
        wanted.push((key, piece));
    }
    if wanted.is_empty() && short {
        return Ok(None);
    }
    let mut span = Span::default();
    for (key, piece) in wanted {
        let bytes = backfill.bytes_of(key, &piece).await?;
        let whole = bytes.len() as u32 == piece.end - key.1 * PIECE;
        span.push(key.1 * PIECE, bytes);
        if !whole {
            break;
        }
    }
    Ok(Some(span))
}

fn readable(core: &Rc<Core>, segment: i64, number: u64) -> u32 {
    let state = core.state.borrow();
    state.segment(segment).filter(|s| s.number == number).map_or(0, |s| s.readable())
}

/// Fills the window of a reader that stopped here.
pub(crate) fn start(core: &Rc<Core>, reader: Reader) {
    let part = u32::try_from(core.shared.backfill().limit() / PART).unwrap_or(MOST);
    let left = reader.ahead.min(part);
    if left < FIRST {
        return;
    }
    let missing = missing(core, reader, left);
    if missing.is_empty() {
        return;
    }
    let core = Rc::clone(core);
    reactor::spawn_in(Class::Backfill, fill(core, missing)).detach();
}

/// A piece that is to be read: of which segment, where, up to where.
struct Missing {
    segment: i64,
    key: (u64, u32),
    end: u32,
}

/// The pieces that lie in a window and are not here.
fn missing(core: &Rc<Core>, reader: Reader, window: u32) -> Vec<Missing> {
    let state = core.state.borrow();
    let backfill = core.shared.backfill();
    let mut out = Vec::new();
    let Some(place) = state.place_of(reader.segment).filter(|_| state.is_online()) else {
        return out;
    };
    let (mut at, mut left) = (reader.position, window);
    for segment in state.segments.range(place..) {
        let end = segment.readable().min(segment.tail.cached_from());
        while at < end && left > 0 {
            let grid = at / PIECE;
            let piece_end = (grid + 1).saturating_mul(PIECE).min(segment.readable());
            let key = (segment.number, grid);
            if backfill.piece(key, piece_end.min(end)).is_none() {
                out.push(Missing { segment: segment.base, key, end: piece_end });
            }
            let step = piece_end - at;
            left = left.saturating_sub(step);
            at = piece_end;
        }
        if left == 0 || end < segment.readable() {
            break;
        }
        at = 0;
    }
    out
}

async fn fill(core: Rc<Core>, missing: Vec<Missing>) {
    let backfill = core.shared.backfill();
    for Missing { segment, key, end } in missing {
        // Its reader, or another one, was faster.
        if backfill.piece(key, end).is_some() {
            continue;
        }
        let size = block_ceiling(end - key.1 * PIECE) as usize;
        let Ok(file) = files::for_reading(&core, segment).await else { return };
        let same = core.state.borrow().segment(segment).is_some_and(|s| s.number == key.0);
        if !same || backfill.piece(key, end).is_some() {
            continue;
        }
        let Some(grant) = backfill.spare_grant(size) else { return };
        drop(backfill.start(&core, file, key, end, grant));
    }
}
