//! Produce requests made once and sent many times.
//!
//! The client must cost little beside the broker, so a load has one batch, whose checksum does not
//! cover the offset that the broker assigns, and for each partition the few bytes before and after
//! it. Only the correlation id changes from one sending to the next.

use std::time::{SystemTime, UNIX_EPOCH};

use wire::frame::{self, SIZE_BYTES};
use wire::messages::ProduceRequest;
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::records::BatchBuilder;
use wire::{ApiKey, Message, Piece, Records, Uuid};

use crate::cluster::Topic;
use crate::connection::CLIENT_ID;
use crate::error::{Error, Result};

pub const PRODUCE_VERSION: i16 = 13;
/// The first version of Produce that has topics' ids.
const FIRST_BY_ID: i16 = 13;
/// acks=all.
pub const ACKS: i16 = -1;
pub const TIMEOUT_MS: i32 = 30_000;
/// Size, api key, version.
const CORRELATION_AT: usize = SIZE_BYTES + 4;
/// Lengths, offset and timestamp around a value; an upper bound.
const RECORD_OVERHEAD_BYTES: usize = 12;

/// A load's one batch, uncompressed.
#[derive(Debug, Clone)]
pub struct Batch {
    pub bytes: Vec<u8>,
    pub records: u64,
    /// Of the records' values: what rates are counted in.
    pub value_bytes: u64,
}

impl Batch {
    /// Records with values of `record_bytes` and no keys, as many as fit into `batch_bytes`.
    pub fn build(record_bytes: usize, batch_bytes: usize) -> Result<Self> {
        let count = (batch_bytes / (record_bytes + RECORD_OVERHEAD_BYTES)).max(1);
        Self::of(count, record_bytes, false)
    }

    /// So many records with values of `record_bytes`, each with a key of eight bytes.
    pub fn keyed(count: usize, record_bytes: usize) -> Result<Self> {
        Self::of(count, record_bytes, true)
    }

    fn of(count: usize, record_bytes: usize, keyed: bool) -> Result<Self> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let mut builder = BatchBuilder::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut value = vec![0; record_bytes];
        for _ in 0..count {
            for byte in &mut value {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (seed >> 56) as u8;
            }
            let key = seed.to_be_bytes();
            builder.append(now_ms, keyed.then_some(key.as_slice()), Some(&value));
        }
        let bytes = builder.build().map_err(|error| Error::Batch(error.to_string()))?;
        let value_bytes = (count * record_bytes) as u64;
        Ok(Batch { bytes, records: count as u64, value_bytes })
    }
}

/// What surrounds the batch in a request to one partition.
#[derive(Debug, Clone)]
pub struct Envelope {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Envelope {
    pub fn build(topic: &Topic, partition: i32, batch: &Batch) -> Result<Self> {
        let records = Some(Records::Detached(batch.bytes.len()));
        let data = PartitionProduceData { index: partition, records };
        let version = topic.produce_version;
        let by_id = version >= FIRST_BY_ID;
        let data = TopicProduceData {
            name: if by_id { "" } else { topic.name.as_str() }.into(),
            topic_id: if by_id { topic.id } else { Uuid::ZERO },
            partition_data: vec![data].into(),
        };
        let request = ProduceRequest {
            transactional_id: None,
            acks: ACKS,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![data].into(),
        };
        let mut writer = frame::begin_request(ApiKey::Produce, version, 0, Some(CLIENT_ID))?;
        request.encode(&mut writer, version)?;
        let pieces = frame::finish_request(writer).into_pieces();
        match pieces.as_slice() {
            [Piece::Written(head), Piece::Splice(_), Piece::Written(tail)] => {
                Ok(Envelope { head: head.to_vec(), tail: tail.to_vec() })
            }
            _ => Err(Error::Batch("a request has no place for its batch".to_owned())),
        }
    }

    pub fn set_correlation(&mut self, id: i32) {
        let at = CORRELATION_AT..CORRELATION_AT + size_of::<i32>();
        if let Some(room) = self.head.get_mut(at) {
            room.copy_from_slice(&id.to_be_bytes());
        }
    }

    /// The request, in order.
    pub fn parts<'a>(&'a self, batch: &'a Batch) -> [&'a [u8]; 3] {
        [&self.head, &batch.bytes, &self.tail]
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use wire::Reader;
    use wire::records::BatchView;

    use super::*;

    #[test]
    fn a_request_reads_back_with_its_correlation_id_and_a_sound_batch() {
        let leader = SocketAddr::from(([127, 0, 0, 1], 9092));
        let topic = Topic {
            name: "t".to_owned(),
            id: Uuid([7; 16]),
            leaders: vec![leader; 4],
            produce_version: crate::payload::PRODUCE_VERSION,
        };
        let batch = Batch::build(100, 16 << 10).unwrap();
        assert!(batch.bytes.len() <= 16 << 10 && batch.bytes.len() > 14 << 10);
        let mut envelope = Envelope::build(&topic, 3, &batch).unwrap();
        envelope.set_correlation(77);
        let bytes = envelope.parts(&batch).concat();
        let size = i32::try_from(bytes.len() - SIZE_BYTES).unwrap();
        assert_eq!(bytes[..SIZE_BYTES], size.to_be_bytes());

        let mut reader = Reader::new(&bytes[SIZE_BYTES..]);
        let header = frame::decode_request_header(&mut reader).unwrap();
        assert_eq!((header.api_key, header.correlation_id), (0, 77));
        let request = ProduceRequest::decode(&mut reader, header.api_version).unwrap();
        assert_eq!(request.acks, -1);
        let data = request.topic_data.first().unwrap();
        assert_eq!(data.topic_id, topic.id);
        let data = data.partition_data.first().unwrap();
        assert_eq!(data.index, 3);
        let records = data.records.unwrap();
        let view = BatchView::parse(records.bytes().unwrap()).unwrap();
        view.verify_crc().unwrap();
        assert_eq!(u64::try_from(view.header().record_count), Ok(batch.records));
        assert_eq!(batch.value_bytes, 100 * batch.records);
    }

    #[test]
    fn an_older_broker_is_told_the_topics_name() {
        let leader = SocketAddr::from(([127, 0, 0, 1], 9092));
        let (id, leaders) = (Uuid([7; 16]), vec![leader; 4]);
        let topic = Topic { name: "t".to_owned(), id, leaders, produce_version: 11 };
        let batch = Batch::build(100, 1000).unwrap();
        let bytes = Envelope::build(&topic, 3, &batch).unwrap().parts(&batch).concat();
        let mut reader = Reader::new(&bytes[SIZE_BYTES..]);
        let header = frame::decode_request_header(&mut reader).unwrap();
        assert_eq!(header.api_version, 11);
        let request = ProduceRequest::decode(&mut reader, 11).unwrap();
        assert_eq!(&*request.topic_data.first().unwrap().name, "t");
    }

    #[test]
    fn keyed_records_have_keys() {
        let batch = Batch::keyed(10, 100).unwrap();
        assert_eq!((batch.records, batch.value_bytes), (10, 1000));
        let view = BatchView::parse(&batch.bytes).unwrap();
        let mut keys: Vec<_> = Vec::new();
        let mut records = view.records(1 << 20).unwrap();
        while let Some(record) = records.next_record().unwrap() {
            keys.push(record.key.unwrap().to_vec());
        }
        keys.dedup();
        assert_eq!(keys.len(), 10);
        assert!(keys.iter().all(|key| key.len() == 8));
    }

    #[test]
    fn a_record_larger_than_the_batch_goes_alone() {
        assert_eq!(Batch::build(1000, 10).unwrap().records, 1);
    }
}
