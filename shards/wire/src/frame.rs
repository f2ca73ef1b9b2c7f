//! Frames and their headers: int32 size, header, body.
//!
//! Request header: api key, version, correlation id, client id (never compact), and from the
//! API's first flexible version on tagged fields. Response header: correlation id, and with a
//! flexible response tagged fields, except for ApiVersions, whose client does not know yet.

use std::borrow::Cow;

use crate::api::ApiKey;
use crate::codec::{DecodeError, EncodeError, Output, Reader, Writer};

/// Bytes of the size before each frame.
pub const SIZE_BYTES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Cow<'a, str>>,
}

/// The size a frame announces, refused if negative or over the limit.
pub fn decode_size(prefix: [u8; SIZE_BYTES], limit: usize) -> Result<usize, DecodeError> {
    let size = i32::from_be_bytes(prefix);
    match usize::try_from(size) {
        Ok(bytes) if bytes <= limit => Ok(bytes),
        _ => Err(DecodeError::FrameSize { size, limit }),
    }
}

/// Reads the header of a request; the body follows in the reader. The version is not checked
/// against the schema, since ApiVersions answers unknown ones; an unknown API is an error, as the
/// layout of the rest is unknown too.
pub fn decode_request_header<'a>(r: &mut Reader<'a>) -> Result<RequestHeader<'a>, DecodeError> {
    let api_key = r.i16()?;
    let api_version = r.i16()?;
    let correlation_id = r.i32()?;
    let api = ApiKey::from_code(api_key).ok_or(DecodeError::ApiKey(api_key))?;
    let client_id = r.nullable_text(false)?.map(Cow::Borrowed);
    if api.request_header_version(api_version) >= 2 {
        r.skip_tags()?;
    }
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id })
}

/// What most responses fit in.
const RESPONSE_BYTES: usize = 256;

/// Starts a response frame: room for the size, then the header.
pub fn begin_response(api: ApiKey, version: i16, correlation_id: i32) -> Writer {
    let mut w = Writer::with_capacity(RESPONSE_BYTES);
    w.i32(0);
    w.i32(correlation_id);
    if api.response_header_version(version) >= 1 {
        w.no_tags();
    }
    w
}

pub fn finish_response(w: Writer) -> Output {
    finish(w)
}

/// Starts a request frame: room for the size, then the header.
pub fn begin_request(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Writer, EncodeError> {
    let mut w = Writer::new();
    w.i32(0);
    w.i16(api.code());
    w.i16(version);
    w.i32(correlation_id);
    w.nullable_text(client_id, false)?;
    if api.request_header_version(version) >= 2 {
        w.no_tags();
    }
    Ok(w)
}

pub fn finish_request(w: Writer) -> Output {
    finish(w)
}

/// Reads the header of a response to a request of `version`: its correlation id.
pub fn decode_response_header(
    r: &mut Reader<'_>,
    api: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = r.i32()?;
    if api.response_header_version(version) >= 1 {
        r.skip_tags()?;
    }
    Ok(correlation_id)
}

/// Sizes are int32, and every producer of frames here bounds them far below.
fn finish(mut w: Writer) -> Output {
    let size = w.total_len() - SIZE_BYTES;
    assert!(size <= i32::MAX as usize, "a frame of {size} bytes has no int32 size");
    w.patch_i32(0, size as i32);
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Splice;

    #[test]
    fn sizes_over_the_limit_and_negative_ones_are_refused() {
        assert_eq!(decode_size([0, 0, 1, 0], 256), Ok(256));
        let refused = |size| Err(DecodeError::FrameSize { size, limit: 256 });
        assert_eq!(decode_size([0, 0, 1, 1], 256), refused(257));
        assert_eq!(decode_size([0xff; 4], 256), refused(-1));
    }

    #[test]
    fn request_headers_of_both_layouts_read_back() {
        for (version, tags) in [(8, &[][..]), (9, &[0][..])] {
            for client_id in [None, Some(""), Some("a client")] {
                let w = begin_request(ApiKey::Produce, version, 7, client_id).unwrap();
                let mut r = Reader::new(&w.written()[SIZE_BYTES..]);
                let header = decode_request_header(&mut r).unwrap();
                assert_eq!(r.end(), Ok(()));
                assert!(w.written().ends_with(tags));
                assert_eq!((header.api_key, header.api_version), (0, version));
                assert_eq!(header.correlation_id, 7);
                assert_eq!(header.client_id.as_deref(), client_id);
            }
        }
    }

    #[test]
    fn request_header_bytes() {
        let classic = [0, 3, 0, 1, 0, 0, 0, 9, 0, 1, b'c', 0xee];
        let mut r = Reader::new(&classic);
        assert_eq!(decode_request_header(&mut r).unwrap().client_id.as_deref(), Some("c"));
        assert_eq!(r.rest(), [0xee]);
        let flexible = [0, 3, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 1, 4, 2, 0xaa, 0xbb, 0xee];
        let mut r = Reader::new(&flexible);
        assert_eq!(decode_request_header(&mut r).unwrap().client_id, None);
        assert_eq!(r.rest(), [0xee]);
    }

    #[test]
    fn unknown_and_retired_apis_are_refused() {
        for (high, low, code) in [(0, 4, 4), (0, 7, 7), (3, 0xe8, 1000), (0xff, 0xff, -1)] {
            let bytes = [high, low, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            let header = decode_request_header(&mut Reader::new(&bytes));
            assert_eq!(header, Err(DecodeError::ApiKey(code)));
        }
    }

    #[test]
    fn an_unknown_version_of_api_versions_still_has_a_header() {
        let bytes = [0, 18, 0, 99, 0, 0, 0, 5, 0, 1, b'x', 0];
        let header = decode_request_header(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (99, 5));
    }

    #[test]
    fn response_headers() {
        let bytes = |api, version| begin_response(api, version, 5).finish().bytes.to_vec();
        assert_eq!(bytes(ApiKey::Metadata, 8), [0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(bytes(ApiKey::Metadata, 9), [0, 0, 0, 0, 0, 0, 0, 5, 0]);
        assert_eq!(bytes(ApiKey::ApiVersions, 3), [0, 0, 0, 0, 0, 0, 0, 5]);
        let mut r = Reader::new(&[0, 0, 0, 5, 1, 7, 0]);
        assert_eq!(decode_response_header(&mut r, ApiKey::Metadata, 9), Ok(5));
        assert_eq!(r.end(), Ok(()));
    }

    #[test]
    fn the_size_counts_detached_records() {
        let mut w = begin_response(ApiKey::Fetch, 4, 1);
        w.splice(1000);
        w.u8(3);
        let output = finish_response(w);
        assert_eq!(output.bytes[..4], 1005_i32.to_be_bytes());
        assert_eq!(output.splices, [Splice { at: 8, len: 1000 }]);
    }
}
