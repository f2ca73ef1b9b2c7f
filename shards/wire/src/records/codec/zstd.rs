//! zstd frames.
//!
//! A frame names the window its reader must keep, up to 2 GiB. Whole blocks are therefore
//! decompressed straight into their destination, which needs none; streams keep at most
//! [`STREAM_WINDOW_LOG`], and a frame that wants more is decompressed whole within the limit.

use super::Fault;
use std::io::Read;
use zstd::zstd_safe::{self, DCtx};

/// Largest window of a stream: 8 MiB, what every zstd reader should have. Kafka's producers use
/// 2 MiB at the default level and more only from level 20 on.
pub(super) const STREAM_WINDOW_LOG: u32 = 23;
const DEFAULT_LEVEL: i32 = 3;
const FRAME_MAGIC: u32 = 0xfd2f_b528;
/// First guess at the size of a frame that does not tell it, as a multiple of the block.
const EXPANSION_GUESS: usize = 6;
const LEAST_GUESS_BYTES: usize = 64 * 1024;

pub(super) fn compress(level: Option<i32>, data: &[u8]) -> Result<Vec<u8>, String> {
    zstd::bulk::compress(data, level.unwrap_or(DEFAULT_LEVEL)).map_err(|e| e.to_string())
}

pub(super) fn decompress(data: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    if data.is_empty() {
        return Err(Fault::bad("incomplete frame"));
    }
    let declared = zstd_safe::get_frame_content_size(data).ok().flatten();
    let mut capacity = match declared.map(usize::try_from) {
        Some(Ok(size)) if size <= limit => size,
        Some(_) => return Err(Fault::TooLarge),
        None => data.len().saturating_mul(EXPANSION_GUESS).max(LEAST_GUESS_BYTES).min(limit),
    };
    let mut context = DCtx::create();
    loop {
        let mut out = Vec::with_capacity(capacity);
        match context.decompress(&mut out, data) {
            Ok(_) => return Ok(out),
            Err(code) if !is_too_small(code) => {
                return Err(Fault::bad(zstd_safe::get_error_name(code)));
            }
            Err(_) if capacity >= limit => return Err(Fault::TooLarge),
            Err(_) => capacity = capacity.max(LEAST_GUESS_BYTES).saturating_mul(4).min(limit),
        }
    }
}

/// Reads frame after frame with a bounded window.
pub(super) struct Reader<'a> {
    inner: zstd::stream::read::Decoder<'static, &'a [u8]>,
    /// What must come out, if every frame says so: the library's streams overlook a frame that ends
    /// early with an empty block, and then the same bytes could not be decompressed whole.
    declared: Option<u64>,
    read: u64,
}

impl<'a> Reader<'a> {
    /// `None` if the first frame wants a larger window than streams keep.
    pub(super) fn new(data: &'a [u8]) -> Result<Option<Self>, Fault> {
        if window(data).is_some_and(|bytes| bytes > 1 << STREAM_WINDOW_LOG) {
            return Ok(None);
        }
        let mut inner = zstd::stream::read::Decoder::with_buffer(data).map_err(Fault::bad)?;
        inner.window_log_max(STREAM_WINDOW_LOG).map_err(Fault::bad)?;
        Ok(Some(Reader { inner, declared: declared(data), read: 0 }))
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        let read = self.inner.read(out).map_err(Fault::bad)?;
        self.read += read as u64;
        if read == 0 && !out.is_empty() && self.declared.is_some_and(|size| size != self.read) {
            return Err(Fault::bad("frame is shorter than it declares"));
        }
        Ok(read)
    }
}

/// The window that the frame at the front asks for; `None` if that cannot be told.
fn window(frame: &[u8]) -> Option<u64> {
    let (magic, rest) = frame.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*magic) != FRAME_MAGIC {
        return None;
    }
    let (descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if single_segment {
        return zstd_safe::get_frame_content_size(frame).ok().flatten();
    }
    let window = rest.first()?;
    let base = 1u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}

/// The sum of the frames' content sizes; `None` if one does not tell.
fn declared(mut frames: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    while !frames.is_empty() {
        sum = sum.checked_add(zstd_safe::get_frame_content_size(frames).ok()??)?;
        let length = zstd_safe::find_frame_compressed_size(frames).ok()?;
        frames = frames.get(length.max(1)..)?;
    }
    Some(sum)
}

fn is_too_small(code: usize) -> bool {
    const TOO_SMALL: usize =
        zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize;
    code.wrapping_neg() == TOO_SMALL
}

#[cfg(test)]
mod tests {
    use super::super::{Codec, Decoder};
    use super::*;
    use std::io::Write;

    /// A frame as streaming producers write it: no content size, the level's own window.
    fn streamed(level: i32, data: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).unwrap();
        encoder.write_all(data).unwrap();
        // The encoder must not learn the size before it writes the frame header.
        encoder.flush().unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn frames_without_a_size_grow_to_the_limit_and_no_further() {
        let data = vec![7u8; 3_000_000];
        let frame = streamed(3, &data);
        assert_eq!(decompress(&frame, data.len()).unwrap(), data);
        assert_eq!(decompress(&frame, data.len() - 1), Err(Fault::TooLarge));
    }

    #[test]
    fn a_declared_size_past_the_limit_is_refused_at_once() {
        let frame = compress(None, &[1; 100_000]).unwrap();
        assert_eq!(decompress(&frame, 99_999), Err(Fault::TooLarge));
        assert_eq!(decompress(&frame, 100_000).unwrap().capacity(), 100_000);
    }

    #[test]
    fn windows_are_read_from_the_header() {
        assert_eq!(window(&streamed(3, b"abc")), Some(1 << 21));
        assert_eq!(window(&streamed(22, b"abc")), Some(1 << 27));
        assert_eq!(window(&compress(None, &[1; 1000]).unwrap()), Some(1000));
        assert_eq!(window(b"nope"), None);
    }

    #[test]
    fn a_frame_that_ends_before_its_size_is_refused_either_way() {
        // Declares 4352 bytes, then one empty last block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x10, 0x01, 0x00, 0x00];
        assert!(matches!(decompress(&frame, 1 << 20), Err(Fault::Bad(_))));
        let mut decoder = Decoder::new(Codec::Zstd, &frame, 1 << 20).unwrap();
        assert!(decoder.read(&mut [0; 8]).is_err());
    }

    #[test]
    fn sizes_of_frames_add_up() {
        let one = compress(None, &[1; 1000]).unwrap();
        assert_eq!(declared(&one.repeat(3)), Some(3000));
        assert_eq!(declared(&[one, streamed(3, b"abc")].concat()), None);
        assert_eq!(declared(b""), Some(0));
    }

    #[test]
    fn a_large_window_falls_back_to_the_whole() {
        let frame = streamed(22, b"small but from a high level");
        let mut decoder = Decoder::new(Codec::Zstd, &frame, 1000).unwrap();
        let mut out = [0; 100];
        let read = decoder.read(&mut out).unwrap();
        assert_eq!(&out[..read], b"small but from a high level");
        assert_eq!(decoder.read(&mut out), Ok(0));
    }
}
