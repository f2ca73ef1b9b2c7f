//! Bytes that lie: cut short, flipped, random, or claiming gigabytes. Nothing panics, nothing
//! allocates, and what does decode can be walked.

use wire::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use wire::{DecodeError, Message, Reader, frame};

use crate::golden::{Line, lines};
use crate::probe::{PROBES, probe};
use crate::property::Random;

/// Transcripts longer than this are cut at some lengths only: the work is quadratic.
const CUT_EVERYWHERE_BYTES: usize = 600;
const MUTATIONS: usize = 12;
const RANDOM_FRAMES: usize = 60;

fn messages() -> impl Iterator<Item = Line> {
    lines().filter(|line| !line.name.ends_with("Header"))
}

#[test]
fn every_truncation_is_an_error() {
    for line in messages() {
        let decode = probe(&line.name).decode;
        let step = 1 + line.bytes.len() / CUT_EVERYWHERE_BYTES * 7;
        for length in (0..line.bytes.len()).step_by(step) {
            let cut = decode(line.version, &line.bytes[..length]);
            let context = (&line.name, line.version, &line.variant, length);
            assert!(cut.is_err(), "{context:?} decodes without its end");
        }
    }
}

#[test]
fn mutated_transcripts_never_panic_nor_allocate() {
    let mut random = Random(4);
    for line in messages().filter(|line| !line.bytes.is_empty()) {
        let decode = probe(&line.name).decode;
        for _ in 0..MUTATIONS {
            let mut bytes = line.bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = match random.below(3) {
                    0 => 0xff,
                    1 => bytes[at] ^ 1 << random.below(8),
                    _ => random.next() as u8,
                };
            }
            let cost = allocation_counter::measure(|| {
                decode(line.version, &bytes).ok();
            });
            assert_eq!(cost.count_total, 0, "{} {} {bytes:?}", line.name, line.version);
            // What decodes can be walked, compared, cloned and written.
            if let Ok(seen) = (probe(&line.name).recode)(line.version, &bytes) {
                assert_eq!(seen.bytes, seen.owned_bytes);
            }
        }
    }
}

#[test]
fn random_bytes_never_panic_nor_allocate() {
    let mut random = Random(5);
    for probe in PROBES {
        for round in 0..RANDOM_FRAMES {
            let length = random.below(80);
            let bytes: Vec<u8> = (0..length)
                .map(|_| match round % 3 {
                    0 => random.next() as u8,
                    // Small numbers pass as counts and lengths and get deeper.
                    1 => random.below(4) as u8,
                    _ => [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6)],
                })
                .collect();
            for version in -1..20 {
                let cost = allocation_counter::measure(|| {
                    (probe.decode)(version, &bytes).ok();
                });
                assert_eq!(cost.count_total, 0, "{} {version} {bytes:?}", probe.name);
            }
        }
    }
}

#[test]
fn versions_outside_the_schema_are_errors() {
    let zeros = [0; 64];
    let refused = ProduceRequest::decode(&mut Reader::new(&zeros), 2);
    assert_eq!(refused, Err(DecodeError::Version { message: "ProduceRequest", version: 2 }));
    for version in [i16::MIN, -1, 14, i16::MAX] {
        let refused = ProduceRequest::decode(&mut Reader::new(&zeros), version);
        assert_eq!(refused, Err(DecodeError::Version { message: "ProduceRequest", version }));
    }
}

/// A frame of about thirty bytes whose array claims two thousand million elements.
#[test]
fn a_small_frame_asking_for_gigabytes_is_refused() {
    let header = [0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff];
    let body = [0xff, 0xff, 0, 1, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff, 0, 1, b't', 0, 0, 0, 0];
    let bytes = [&header[..], &body[..]].concat();
    let mut r = Reader::new(&bytes);
    assert_eq!(frame::decode_request_header(&mut r).unwrap().api_version, 3);
    let produce = ProduceRequest::decode(&mut r, 3);
    assert_eq!(produce, Err(DecodeError::Count { count: 0x7fff_ffff, remaining: 7 }));

    let compact = [0xff, 0xff, 0xff, 0xff, 0x07, 1, 1, 1, 1, 1, 1, 1];
    let metadata = MetadataRequest::decode(&mut Reader::new(&compact), 12);
    assert_eq!(metadata, Err(DecodeError::Count { count: 0x7fff_fffe, remaining: 7 }));
}

#[test]
fn a_nested_count_is_held_to_what_remains() {
    // One topic, whose partitions claim one more than the remaining bytes could hold.
    let mut bytes = vec![0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't'];
    bytes.extend([0, 0, 0, 3]);
    bytes.extend([0; 23]);
    let produce = ProduceRequest::decode(&mut Reader::new(&bytes), 3);
    assert_eq!(produce, Err(DecodeError::Count { count: 3, remaining: 23 }));
}

#[test]
fn lying_lengths_of_records_and_tags_are_refused() {
    let mut bytes = vec![0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1];
    bytes.extend([0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3]);
    let produce = ProduceRequest::decode(&mut Reader::new(&bytes), 3);
    assert_eq!(produce, Err(DecodeError::Truncated { needed: 0x7fff_ffff, remaining: 3 }));

    // Fetch 12: cluster id (tag 0) whose size says more than its text, then less than it.
    let start = [&[0xff, 0xff, 0xff, 0xff][..], &[0; 4], &[0; 4], &[0; 4], &[0]].concat();
    let middle = [&[0; 4][..], &[0; 4], &[1, 1, 1]].concat();
    let fetch = |tags: &[u8]| {
        let bytes = [&start[..], &middle, tags].concat();
        FetchRequest::decode(&mut Reader::new(&bytes), 12).map(|fetch| fetch.cluster_id.is_some())
    };
    assert_eq!(fetch(&[1, 0, 3, 3, b'i', b'd']), Ok(true));
    assert_eq!(fetch(&[1, 0, 4, 3, b'i', b'd', 0]), Err(DecodeError::Trailing(1)));
    assert_eq!(fetch(&[1, 0, 2, 3, b'i']), Err(DecodeError::Truncated { needed: 2, remaining: 1 }));
    assert_eq!(fetch(&[2, 0, 1, 0, 0, 1, 0]), Err(DecodeError::TagOrder));
}

#[test]
fn deep_varints_are_refused_wherever_they_stand() {
    let deep = [0x80; 12];
    let metadata = MetadataRequest::decode(&mut Reader::new(&deep), 12);
    assert_eq!(metadata, Err(DecodeError::Varint));
    let header = [&[0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff][..], &deep].concat();
    let refused = frame::decode_request_header(&mut Reader::new(&header));
    assert_eq!(refused, Err(DecodeError::Varint));
}

#[test]
fn headers_cut_anywhere_or_random_never_panic() {
    let header = [0, 3, 0, 12, 0, 0, 0, 1, 0, 1, b'c', 1, 5, 2, 0, 0];
    for length in 0..header.len() {
        assert!(frame::decode_request_header(&mut Reader::new(&header[..length])).is_err());
    }
    let mut random = Random(6);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
        frame::decode_request_header(&mut Reader::new(&bytes)).ok();
    }
}
