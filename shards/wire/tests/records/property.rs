//! Batches go through the encoder and decoder of the `kafka-protocol` crate and back unchanged.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as theirs;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::records::walk::walk;
use wire::records::{BatchBuilder, BatchView, Codec};

const LIMIT: usize = 1 << 24;

#[derive(Clone, Debug, PartialEq)]
struct Plain {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    /// Their records hold headers in a map, so keys are unique here.
    headers: BTreeMap<String, Option<Vec<u8>>>,
}

#[derive(Clone, Debug)]
struct Batch {
    codec: Codec,
    base_offset: i64,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    records: Vec<Plain>,
}

fn content() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::weighted(
        0.9,
        prop_oneof![
            4 => vec(any::<u8>(), 0..80),
            2 => (any::<u8>(), 0..5000usize).prop_map(|(byte, length)| vec![byte; length]),
            1 => vec(any::<u8>(), 60..70),
        ],
    )
}

fn record() -> impl Strategy<Value = Plain> {
    let time = prop_oneof![1_600_000_000_000..1_800_000_000_000i64, Just(0), Just(-1)];
    let headers = proptest::collection::btree_map("[a-z]{0,12}", content(), 0..4);
    (time, content(), content(), headers).prop_map(|(timestamp, key, value, headers)| Plain {
        timestamp,
        key,
        value,
        headers,
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    let codec = prop::sample::select(Codec::ALL.to_vec());
    let producer = option::of((0..i64::MAX, 0..i16::MAX, 0..i32::MAX - 100));
    (codec, 0..1i64 << 40, producer, any::<bool>(), vec(record(), 1..40)).prop_map(
        |(codec, base_offset, producer, transactional, records)| Batch {
            codec,
            base_offset,
            producer,
            transactional: transactional && producer.is_some(),
            records,
        },
    )
}

fn build(batch: &Batch) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .codec(batch.codec, None)
        .base_offset(batch.base_offset)
        .leader_epoch(9)
        .transactional(batch.transactional);
    if let Some((id, epoch, sequence)) = batch.producer {
        builder = builder.producer(id, epoch, sequence);
    }
    for record in &batch.records {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        builder.append_with_headers(
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    builder.build().unwrap()
}

fn read(bytes: &[u8]) -> Vec<(i64, Plain)> {
    let view = BatchView::parse(bytes).unwrap();
    assert_eq!(view.verify_crc(), Ok(()));
    let records = view.records(LIMIT).unwrap();
    records
        .iter()
        .map(|record| {
            let record = record.unwrap();
            let headers = record.headers.iter().map(|header| {
                let key = String::from_utf8(header.key.to_vec()).unwrap();
                (key, header.value.map(<[u8]>::to_vec))
            });
            let plain = Plain {
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: headers.collect(),
            };
            (record.offset, plain)
        })
        .collect()
}

fn their_compression(codec: Codec) -> theirs::Compression {
    match codec {
        Codec::None => theirs::Compression::None,
        Codec::Gzip => theirs::Compression::Gzip,
        Codec::Snappy => theirs::Compression::Snappy,
        Codec::Lz4 => theirs::Compression::Lz4,
        Codec::Zstd => theirs::Compression::Zstd,
    }
}

fn their_record(batch: &Batch, index: usize, record: &Plain) -> theirs::Record {
    let (producer_id, producer_epoch, sequence) = batch.producer.unwrap_or((-1, -1, -1));
    let index = i64::try_from(index).unwrap();
    theirs::Record {
        transactional: batch.transactional,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 9,
        producer_id,
        producer_epoch,
        timestamp_type: theirs::TimestampType::Creation,
        offset: batch.base_offset + index,
        sequence: if sequence < 0 { -1 } else { sequence + i32::try_from(index).unwrap() },
        timestamp: record.timestamp,
        key: record.key.clone().map(Bytes::from),
        value: record.value.clone().map(Bytes::from),
        headers: record
            .headers
            .iter()
            .map(|(key, value)| {
                (StrBytes::from_string(key.clone()), value.clone().map(Bytes::from))
            })
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn what_we_write_they_read(batch in batch()) {
        let mut bytes = Bytes::from(build(&batch));
        let set = theirs::RecordBatchDecoder::decode(&mut bytes).unwrap();
        prop_assert!(!bytes.has_remaining());
        prop_assert_eq!(set.records.len(), batch.records.len());
        for (index, (read, record)) in set.records.iter().zip(&batch.records).enumerate() {
            let mut expected = their_record(&batch, index, record);
            // They count on from -1 where there is no producer.
            if batch.producer.is_none() {
                expected.sequence = read.sequence;
            }
            prop_assert_eq!(read, &expected);
        }
    }

    #[test]
    fn what_they_write_we_read(batch in batch()) {
        let records: Vec<theirs::Record> = batch
            .records
            .iter()
            .enumerate()
            .map(|(index, record)| their_record(&batch, index, record))
            .collect();
        let options = theirs::RecordEncodeOptions {
            version: 2,
            compression: their_compression(batch.codec),
        };
        let mut bytes = BytesMut::new();
        theirs::RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
        let mut seen = Vec::new();
        for view in wire::records::batches(&bytes) {
            let view = view.unwrap();
            let (id, epoch, _) = batch.producer.unwrap_or((-1, -1, -1));
            prop_assert_eq!(view.header().producer_id, id);
            prop_assert_eq!(view.header().producer_epoch, epoch);
            prop_assert_eq!(view.header().attributes.is_transactional(), batch.transactional);
            prop_assert_eq!(view.codec(), Ok(batch.codec));
            seen.extend(read(view.bytes()));
        }
        let expected: Vec<_> = (batch.base_offset..).zip(batch.records.clone()).collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn what_we_write_we_read(batch in batch()) {
        let bytes = build(&batch);
        let view = BatchView::parse(&bytes).unwrap();
        let header = view.header();
        let count = i32::try_from(batch.records.len()).unwrap();
        prop_assert_eq!(header.record_count, count);
        prop_assert_eq!(header.last_offset_delta, count - 1);
        let latest = batch.records.iter().map(|record| record.timestamp).max();
        prop_assert_eq!(Some(header.max_timestamp), latest);
        let expected: Vec<_> = (batch.base_offset..).zip(batch.records.clone()).collect();
        prop_assert_eq!(read(&bytes), expected);

        let mut keyed = Vec::new();
        walk(&view, LIMIT, |shape| keyed.push(shape.has_key)).unwrap();
        let expected: Vec<_> = batch.records.iter().map(|record| record.key.is_some()).collect();
        prop_assert_eq!(keyed, expected);
    }
}
