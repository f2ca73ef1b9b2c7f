//! What must hold for any bytes taken as record batches or compressed blocks.
//!
//! The fuzz targets run these over inputs they invent; `shards/wire/tests/records/fuzz.rs` runs
//! them over recorded batches and seeded mutations of them.

use wire::records::header::{CRC_AT, CRC_START};
use wire::records::validate::{Accepted, Rules, TopicCompression, validate};
use wire::records::walk::walk;
use wire::records::{
    BatchBuilder, BatchError, BatchView, Codec, TimestampType, batches, codec, decompress,
};

/// Most decompressed bytes of one input.
pub const LIMIT: usize = 1 << 20;
const NOW: i64 = 1_700_000_000_000;

/// Views, lazily read records and the check-only walk agree on any bytes, and what can be read can
/// be built again.
pub fn record_batches(data: &[u8]) {
    let mut seen = 0;
    let mut walk_batches = batches(data);
    for batch in walk_batches.by_ref() {
        let Ok(batch) = batch else { break };
        seen += batch.bytes().len();
        let _ = batch.verify_crc();
        one_batch(&batch);
    }
    assert_eq!(seen, walk_batches.position());
    assert!(seen <= data.len());
}

fn one_batch(batch: &BatchView<'_>) {
    let read = read_all(batch);
    let mut walked = Vec::new();
    let outcome = walk(batch, LIMIT, |shape| {
        let timestamp = batch.header().base_timestamp.wrapping_add(shape.timestamp_delta);
        walked.push((shape.offset_delta, shape.has_key, timestamp));
    });
    if batch.codec() == Ok(Codec::Zstd) && read.is_ok() != outcome.is_ok() {
        // See `compressed_block`.
        return;
    }
    assert_eq!(read.is_ok(), outcome.is_ok(), "{read:?} but {outcome:?}");
    let Ok((seen, rebuilt)) = read else { return };
    assert_eq!(seen.len(), walked.len());
    let append_time = batch.header().attributes.timestamp_type() == TimestampType::LogAppend;
    for ((offset, key, timestamp), (delta, has_key, walked_time)) in seen.iter().zip(&walked) {
        let expected = batch.header().base_offset.wrapping_add(i64::from(*delta));
        assert_eq!((*offset, *key), (expected, *has_key));
        assert!(append_time || timestamp == walked_time);
    }
    // A builder takes growing offsets only.
    if let Ok(rebuilt) = rebuilt {
        let again = BatchView::parse(&rebuilt).expect("a built batch parses");
        again.verify_crc().expect("a built batch has its checksum");
        let again = read_all(&again).expect("a built batch reads").0;
        assert_eq!(again.len(), seen.len());
        for (one, other) in again.iter().zip(&seen) {
            assert_eq!((one.1, one.2), (other.1, other.2));
        }
    }
}

type Seen = Vec<(i64, bool, i64)>;

fn read_all(batch: &BatchView<'_>) -> Result<(Seen, Result<Vec<u8>, BatchError>), BatchError> {
    let records = batch.records(LIMIT)?;
    let mut seen = Vec::new();
    let mut builder = BatchBuilder::new();
    for record in &records {
        let record = record?;
        assert_eq!(record.headers.iter().count(), record.headers.len());
        let delta = record.offset.wrapping_sub(batch.header().base_offset);
        builder.append_record(i32::try_from(delta).unwrap_or(i32::MAX), &record);
        seen.push((record.offset, record.key.is_some(), record.timestamp));
    }
    Ok((seen, builder.build()))
}

/// What validation accepts keeps every rule that a log relies on. The checksum is made right, so
/// that inputs reach what lies behind it.
pub fn produce_validation(data: &[u8]) {
    let mut payload = data.to_vec();
    let size = payload.get(8..12).and_then(|field| field.first_chunk()).map_or(0, |length| {
        usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0).saturating_add(12)
    });
    if let Some(covered) = payload.get(CRC_START..size) {
        let crc = crc32c::crc32c(covered);
        payload[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    }
    let choice = data.last().copied().unwrap_or(0);
    let compression = match choice & 7 {
        bits @ 0..=4 => TopicCompression::Codec(Codec::ALL[usize::from(bits)], None),
        _ => TopicCompression::Producer,
    };
    let timestamp_type =
        if choice & 8 == 0 { TimestampType::Create } else { TimestampType::LogAppend };
    for strict in [false, true] {
        let rules = Rules {
            compression,
            timestamp_type,
            compacted: choice & 16 != 0,
            strict,
            decompressed_limit: LIMIT,
            ..Rules::default()
        };
        let Ok(validated) = validate(&payload, &rules, NOW) else { continue };
        let view = validated.view().expect("what is accepted parses");
        view.verify_crc().expect("what is accepted has its checksum");
        let header = view.header();
        assert!(view.bytes().len() <= rules.max_message_bytes);
        assert_eq!(header.base_offset, 0);
        assert_eq!(header.last_offset_delta, header.record_count - 1);
        assert!(!header.attributes.is_control());
        assert_eq!(header.attributes.timestamp_type(), timestamp_type);
        assert_eq!(validated.log_append_time.is_some(), timestamp_type == TimestampType::LogAppend);
        if let TopicCompression::Codec(codec, _) = compression {
            assert_eq!(view.codec(), Ok(codec));
        }
        let opened = strict || matches!(validated.batch, Accepted::Rewritten(_) if rules.compacted);
        if opened || view.codec() == Ok(Codec::None) {
            let Ok(records) = view.records(LIMIT) else {
                // See `compressed_block`.
                assert_eq!(view.codec(), Ok(Codec::Zstd), "what was looked at reads");
                continue;
            };
            let deltas: Vec<i64> =
                records.iter().map(|record| record.expect("each record reads").offset).collect();
            assert!(deltas.iter().copied().eq(0..i64::from(header.record_count)));
        }
    }
}

/// Decompressing whole and piece by piece give the same, within the limit.
pub fn compressed_block(codec: Codec, data: &[u8]) {
    let whole = decompress(codec, data, LIMIT);
    let pieces = in_pieces(codec, data);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert!(whole.len() <= LIMIT && whole.capacity() <= LIMIT.max(whole.len()));
            assert_eq!(whole, pieces);
        }
        (Err(_), Err(_)) => {}
        // The library itself judges damaged frames differently: only a stream needs the window that
        // a frame declares, and only a stream takes an empty last block of any type.
        _ if codec == Codec::Zstd => {}
        _ => panic!("{codec}: {:?} but {:?}", whole.map(|w| w.len()), pieces.map(|p| p.len())),
    }
}

fn in_pieces(codec: Codec, data: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut decoder = codec::Decoder::new(codec, data, LIMIT)?;
    let mut out = Vec::new();
    let mut piece = [0; 777];
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(out),
            read => out.extend_from_slice(&piece[..read]),
        }
        assert!(out.len() <= LIMIT);
    }
}
