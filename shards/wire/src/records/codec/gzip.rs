//! gzip: one or more RFC 1952 members.
//!
//! Like Java's reader, bytes behind a member that do not start another one are ignored.

use super::{Fault, first_guess, reserve};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

const MEMBER_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Bytes read at a time when the size is not known.
const STEP_BYTES: usize = 16 * 1024;

pub(super) fn compress(level: Option<i32>, data: &[u8]) -> Result<Vec<u8>, String> {
    let level = match level {
        Some(level @ 1..=9) => Compression::new(level.unsigned_abs()),
        _ => Compression::default(),
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(data.len() / 2), level);
    encoder.write_all(data).and_then(|()| encoder.finish()).map_err(|e| e.to_string())
}

pub(super) fn decompress(data: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    let mut reader = Reader::new(data);
    let mut out = first_guess(data, limit);
    while out.len() < limit {
        let (start, room) = (out.len(), limit - out.len());
        reserve(&mut out, 1, room);
        let step = STEP_BYTES.max(start).min(out.capacity() - start).min(room);
        out.resize(start + step, 0);
        let read = reader.read(out.get_mut(start..).unwrap_or_default())?;
        out.truncate(start + read);
        if read == 0 {
            return Ok(out);
        }
    }
    if reader.read(&mut [0])? == 0 { Ok(out) } else { Err(Fault::TooLarge) }
}

/// Reads member after member.
pub(super) struct Reader<'a> {
    member: GzDecoder<&'a [u8]>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Reader { member: GzDecoder::new(data) }
    }

    /// Fills a part of `out`; 0 only at the end or if `out` is empty.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let read = self.member.read(out).map_err(Fault::bad)?;
            if read > 0 {
                return Ok(read);
            }
            let rest: &'a [u8] = self.member.get_ref();
            if !rest.starts_with(&MEMBER_MAGIC) {
                return Ok(0);
            }
            self.member = GzDecoder::new(rest);
        }
    }
}
