//! Bytes that mean harm: cut short, lying about lengths and counts, or far larger than they look.

use allocation_counter::measure;
use std::io::Write;
use wire::ErrorCode;
use wire::records::header::{CRC_AT, CRC_START, HEADER_BYTES};
use wire::records::validate::{Rules, validate};
use wire::records::walk::walk;
use wire::records::{BatchBuilder, BatchError, BatchView, Codec, compress, decompress};

const NOW: i64 = 1_700_000_000_000;
const LIMIT: usize = 1 << 20;
/// What a reader may hold beside its output: the codec's tables, blocks and buffers.
const STATE_BYTES: u64 = 512 * 1024;
const BOMB_BYTES: usize = 24 << 20;

fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new().codec(codec, None);
    let headers = [("name", Some(&b"value"[..])), ("null", None)];
    builder.append(NOW, Some(b"key"), Some(b"a value that repeats, a value that repeats"));
    builder.append_with_headers(NOW + 1, None, Some(&[b'x'; 300]), &headers);
    builder.append(NOW + 2, Some(b""), None);
    builder.build().unwrap()
}

/// A batch around any block, with lengths and checksum that fit.
fn around(codec: Codec, count: i32, block: &[u8]) -> Vec<u8> {
    let mut bytes = batch(codec);
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(block);
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    seal(bytes)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[CRC_START..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn strict() -> Rules {
    Rules { strict: true, decompressed_limit: LIMIT, ..Rules::default() }
}

fn refused(bytes: &[u8]) -> Option<ErrorCode> {
    validate(bytes, &strict(), NOW).err().map(|rejection| rejection.error)
}

fn read_all(bytes: &[u8]) -> Result<usize, BatchError> {
    let view = BatchView::parse(bytes)?;
    let records = view.records(LIMIT)?;
    let mut count = 0;
    for record in &records {
        record?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn cut_at_every_length() {
    for codec in Codec::ALL {
        let whole = batch(codec);
        assert_eq!(read_all(&whole), Ok(3), "{codec}");
        for length in 0..whole.len() {
            // As it came off the wire, and with a header that covers the cut up.
            assert!(read_all(&whole[..length]).is_err(), "{codec} at {length}");
            assert!(refused(&whole[..length]).is_some(), "{codec} at {length}");
            if length >= HEADER_BYTES {
                let sealed = seal(whole[..length].to_vec());
                let view = BatchView::parse(&sealed).unwrap();
                assert_eq!(view.verify_crc(), Ok(()));
                assert!(read_all(&sealed).is_err(), "{codec} sealed at {length}");
                assert!(walk(&view, LIMIT, |_| {}).is_err(), "{codec} sealed at {length}");
                assert!(refused(&sealed).is_some(), "{codec} sealed at {length}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_under_a_right_checksum() {
    for codec in Codec::ALL {
        let whole = batch(codec);
        for at in CRC_START..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let flipped = seal(flipped);
                let read = read_all(&flipped);
                let view = BatchView::parse(&flipped).unwrap();
                let walked = walk(&view, LIMIT, |_| {});
                assert_eq!(read.is_ok(), walked.is_ok(), "{codec} {at}.{bit}: {read:?} {walked:?}");
                let _ = refused(&flipped);
            }
        }
    }
}

#[test]
fn lengths_and_counts_that_lie_cost_nothing() {
    const HUGE: [u8; 5] = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let lies: [(&str, Vec<u8>); 6] = [
        ("record", HUGE.to_vec()),
        ("key", [&[20, 0, 0, 0][..], &HUGE, &[1, 0]].concat()),
        ("value", [&[20, 0, 0, 0, 1][..], &HUGE, &[0]].concat()),
        ("headers", [&[20, 0, 0, 0, 1, 1][..], &HUGE].concat()),
        ("header key", [&[24, 0, 0, 0, 1, 1, 2][..], &HUGE].concat()),
        ("header value", [&[26, 0, 0, 0, 1, 1, 2, 0][..], &HUGE].concat()),
    ];
    for codec in Codec::ALL {
        for (what, payload) in &lies {
            let bytes = around(codec, 1, &compress(codec, None, payload).unwrap());
            let cost = measure(|| {
                assert!(read_all(&bytes).is_err(), "{codec} {what}");
                assert_eq!(refused(&bytes), Some(ErrorCode::InvalidRecord), "{codec} {what}");
            });
            assert!(cost.bytes_max < STATE_BYTES, "{codec} {what}: {}", cost.bytes_max);
        }
        for count in [4, 1000, i32::MAX] {
            let whole = batch(codec);
            let bytes = around(codec, count, &whole[HEADER_BYTES..]);
            let cost = measure(|| {
                assert!(read_all(&bytes).is_err(), "{codec} {count}");
                assert_eq!(refused(&bytes), Some(ErrorCode::InvalidRecord), "{codec} {count}");
            });
            assert!(cost.bytes_max < STATE_BYTES, "{codec} {count}: {}", cost.bytes_max);
        }
    }
}

/// One record whose value is all zeros.
fn bomb(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new().codec(codec, None);
    builder.append(NOW, Some(b"k"), Some(&vec![0; BOMB_BYTES]));
    let bytes = builder.build().unwrap();
    assert!(bytes.len() < BOMB_BYTES / 10, "{codec} is no bomb: {}", bytes.len());
    bytes
}

#[test]
fn bombs_stop_at_the_limit() {
    for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::None) {
        let bytes = bomb(codec);
        let view = BatchView::parse(&bytes).unwrap();
        let too_large = BatchError::TooLarge { limit: LIMIT };
        let cost = measure(|| {
            assert_eq!(decompress(codec, view.records_payload(), LIMIT), Err(too_large.clone()));
        });
        let most = (LIMIT + 4 * bytes.len()) as u64 + STATE_BYTES;
        assert!(cost.bytes_max < most, "{codec}: {}", cost.bytes_max);
        let cost = measure(|| {
            assert_eq!(walk(&view, LIMIT, |_| {}), Err(too_large.clone()), "{codec}");
        });
        assert!(cost.bytes_max < STATE_BYTES, "{codec} walk: {}", cost.bytes_max);
        let rules = Rules { max_message_bytes: bytes.len(), ..strict() };
        let rejection = validate(&bytes, &rules, NOW).unwrap_err();
        assert_eq!(rejection.error, ErrorCode::MessageTooLarge, "{codec}");
    }
}

/// The check-only walk passes by what the limit allows without holding it.
#[test]
fn walks_hold_a_small_part_of_what_they_see() {
    for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::None) {
        let bytes = bomb(codec);
        let view = BatchView::parse(&bytes).unwrap();
        let mut seen = 0;
        let cost = measure(|| walk(&view, 2 * BOMB_BYTES, |_| seen += 1).unwrap());
        assert_eq!(seen, 1);
        assert!(cost.bytes_max < STATE_BYTES, "{codec}: {}", cost.bytes_max);
    }
}

/// A bomb in a bomb is still one: the limit holds for what comes out, not for what goes in.
#[test]
fn many_small_frames_count_together() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Zstd] {
        let piece = compress(codec, None, &vec![0; LIMIT / 4]).unwrap();
        let four = piece.repeat(4);
        assert_eq!(decompress(codec, &four, LIMIT).map(|out| out.len()), Ok(LIMIT), "{codec}");
        let five = piece.repeat(5);
        assert_eq!(decompress(codec, &five, LIMIT), Err(BatchError::TooLarge { limit: LIMIT }));
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&five).unwrap();
        let nested = encoder.finish().unwrap();
        assert_eq!(decompress(Codec::Gzip, &nested, LIMIT).unwrap(), five);
    }
}

/// Rejections name every bad record, but no more than a response can hold.
#[test]
fn record_errors_are_bounded() {
    let mut builder = BatchBuilder::new().codec(Codec::Zstd, None);
    for _ in 0..50_000 {
        builder.append(NOW, None, None);
    }
    let bytes = builder.build().unwrap();
    let rules = Rules { compacted: true, ..strict() };
    let rejection = validate(&bytes, &rules, NOW).unwrap_err();
    assert_eq!(rejection.error, ErrorCode::InvalidRecord);
    assert_eq!(rejection.record_errors.len(), wire::records::validate::MAX_RECORD_ERRORS);
    assert!(rejection.message.starts_with("50000 "), "{}", rejection.message);
}
