//! Making record batches: for our own clients, for recompression, for control batches, for tests.
//!
//! Records are written into the batch as they come; without a codec, building is filling in the
//! header. A builder is used once and knows no offsets but those it is given.

use super::BatchError;
use super::codec::{Codec, compress};
use super::header::{
    Attributes, BatchHeader, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType,
};
use super::record::Record;
use super::varint;

/// A batch in the making.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    /// Room for the header, then the records, not yet compressed.
    bytes: Vec<u8>,
    header: BatchHeader,
    codec: Codec,
    level: Option<i32>,
    append_time: Option<i64>,
    /// A last offset delta beyond that of the last record.
    reach: Option<i32>,
    /// One record's fields behind its length.
    scratch: Vec<u8>,
    misfit: Option<&'static str>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch at offset 0, without codec, producer or leader epoch.
    pub fn new() -> Self {
        BatchBuilder {
            bytes: vec![0; HEADER_BYTES],
            header: BatchHeader {
                base_offset: 0,
                batch_length: 0,
                partition_leader_epoch: NO_LEADER_EPOCH,
                magic: MAGIC,
                crc: 0,
                attributes: Attributes::default(),
                last_offset_delta: -1,
                base_timestamp: NO_TIMESTAMP,
                max_timestamp: NO_TIMESTAMP,
                producer_id: NO_PRODUCER_ID,
                producer_epoch: NO_PRODUCER_EPOCH,
                base_sequence: NO_SEQUENCE,
                record_count: 0,
            },
            codec: Codec::None,
            level: None,
            append_time: None,
            reach: None,
            scratch: Vec::new(),
            misfit: None,
        }
    }

    pub fn base_offset(mut self, offset: i64) -> Self {
        self.header.base_offset = offset;
        self
    }

    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.header.partition_leader_epoch = epoch;
        self
    }

    /// `level` as in the topic configs `compression.*.level`; `None` for Kafka's default.
    pub fn codec(mut self, codec: Codec, level: Option<i32>) -> Self {
        self.codec = codec;
        self.level = level;
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    pub fn transactional(mut self, on: bool) -> Self {
        self.header.attributes = self.header.attributes.with_transactional(on);
        self
    }

    pub fn control(mut self, on: bool) -> Self {
        self.header.attributes = self.header.attributes.with_control(on);
        self
    }

    /// The broker's time, which then holds for every record.
    pub fn log_append_time(mut self, time_ms: i64) -> Self {
        self.append_time = Some(time_ms);
        self
    }

    /// The time after which tombstones in here may go; set before the first record, whose
    /// timestamps are then relative to it.
    pub fn delete_horizon(mut self, time_ms: i64) -> Self {
        self.header.attributes = self.header.attributes.with_delete_horizon(true);
        self.header.base_timestamp = time_ms;
        self
    }

    /// Makes the batch reach up to this offset delta although its last records are gone.
    pub fn reach(mut self, last_offset_delta: i32) -> Self {
        self.reach = Some(last_offset_delta);
        self
    }

    /// Adds a record right after the last one.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> &mut Self {
        self.append_with_headers(timestamp, key, value, &[])
    }

    /// Adds a record with headers right after the last one.
    pub fn append_with_headers(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> &mut Self {
        let mut encoded = Vec::new();
        for (name, value) in headers {
            let name = name.as_bytes();
            put_length(&mut encoded, name.len(), &mut self.misfit);
            encoded.extend_from_slice(name);
            put_nullable(&mut encoded, *value, &mut self.misfit);
        }
        let delta = self.header.last_offset_delta.saturating_add(1);
        let count = headers.len();
        self.put(delta, timestamp, key, value, count, &encoded)
    }

    /// Adds a copy of a record of another batch at this offset delta, which must grow.
    pub fn append_record(&mut self, offset_delta: i32, record: &Record<'_>) -> &mut Self {
        let (count, encoded) = (record.headers.len(), record.headers.encoded());
        self.put(offset_delta, record.timestamp, record.key, record.value, count, encoded)
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        usize::try_from(self.header.record_count).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Bytes the batch would have if built now without a codec.
    pub fn uncompressed_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Compresses, fills in the header and returns the batch.
    pub fn build(self) -> Result<Vec<u8>, BatchError> {
        if let Some(reason) = self.misfit {
            return Err(BatchError::Build(reason));
        }
        let mut bytes = self.bytes;
        let mut header = self.header;
        // Kafka writes an empty batch without a codec: there is no block to compress.
        let codec = if header.record_count == 0 { Codec::None } else { self.codec };
        if codec != Codec::None {
            let block = compress(codec, self.level, bytes.get(HEADER_BYTES..).unwrap_or_default())?;
            bytes.truncate(HEADER_BYTES);
            bytes.extend_from_slice(&block);
        }
        header.attributes = header.attributes.with_codec(codec);
        if let Some(time) = self.append_time {
            header.attributes = header.attributes.with_timestamp_type(TimestampType::LogAppend);
            header.max_timestamp = time;
        }
        if let Some(reach) = self.reach {
            if reach < header.last_offset_delta {
                return Err(BatchError::Build("it reaches less far than its records"));
            }
            header.last_offset_delta = reach;
        }
        header.batch_length = i32::try_from(bytes.len() - LENGTH_PREFIX_BYTES)
            .map_err(|_| BatchError::Build("it is larger than 2 GiB"))?;
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        header.crc = crc32c::crc32c(&bytes[CRC_START..]);
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(bytes)
    }

    /// A batch without records that keeps its offsets, producer fields and time in the log: what
    /// compaction leaves of a batch that must not vanish.
    pub fn build_empty(
        mut self,
        last_offset_delta: i32,
        max_timestamp: i64,
    ) -> Result<Vec<u8>, BatchError> {
        if self.header.record_count > 0 {
            return Err(BatchError::Build("it has records"));
        }
        self.header.max_timestamp = max_timestamp;
        self.reach = Some(last_offset_delta);
        self.build()
    }

    fn put(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        header_count: usize,
        headers: &[u8],
    ) -> &mut Self {
        if offset_delta <= self.header.last_offset_delta || offset_delta == i32::MAX {
            self.misfit = Some("its offsets do not grow");
            return self;
        }
        if self.header.record_count == 0 && !self.header.attributes.has_delete_horizon() {
            self.header.base_timestamp = timestamp;
        }
        self.header.record_count += 1;
        self.header.last_offset_delta = offset_delta;
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.push(0);
        varint::write_i64(scratch, timestamp.wrapping_sub(self.header.base_timestamp));
        varint::write_i32(scratch, offset_delta);
        put_nullable(scratch, key, &mut self.misfit);
        put_nullable(scratch, value, &mut self.misfit);
        put_length(scratch, header_count, &mut self.misfit);
        scratch.extend_from_slice(headers);
        put_length(&mut self.bytes, scratch.len(), &mut self.misfit);
        self.bytes.extend_from_slice(scratch);
        self
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>, misfit: &mut Option<&'static str>) {
    match bytes {
        None => varint::write_i32(out, -1),
        Some(bytes) => {
            put_length(out, bytes.len(), misfit);
            out.extend_from_slice(bytes);
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize, misfit: &mut Option<&'static str>) {
    match i32::try_from(length) {
        Ok(length) => varint::write_i32(out, length),
        Err(_) => *misfit = Some("a record is larger than 2 GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::BatchView;
    use super::*;

    fn times_and_offsets(bytes: &[u8]) -> Vec<(i64, i64)> {
        let records = BatchView::parse(bytes).unwrap().records(1 << 20).unwrap();
        records.iter().map(|record| record.unwrap()).map(|r| (r.timestamp, r.offset)).collect()
    }

    #[test]
    fn holes_are_kept_and_the_reach_goes_beyond_the_last_record() {
        let mut whole = BatchBuilder::new().base_offset(100);
        for i in 0..6 {
            whole.append(1_000 + i, Some(b"k"), None);
        }
        let whole = whole.build().unwrap();
        let mut left = BatchBuilder::new().base_offset(100).codec(Codec::Zstd, Some(1)).reach(5);
        for record in &BatchView::parse(&whole).unwrap().records(1 << 20).unwrap() {
            let record = record.unwrap();
            if record.offset % 3 == 0 {
                left.append_record(i32::try_from(record.offset - 100).unwrap(), &record);
            }
        }
        assert_eq!((left.len(), left.is_empty()), (2, false));
        let left = left.build().unwrap();
        assert_eq!(times_and_offsets(&left), [(1_002, 102), (1_005, 105)]);
        let header = *BatchView::parse(&left).unwrap().header();
        assert_eq!((header.record_count, header.last_offset()), (2, 105));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1_002, 1_005));
    }

    #[test]
    fn timestamps_are_relative_to_a_delete_horizon() {
        let mut batch = BatchBuilder::new().delete_horizon(5_000);
        batch.append(1_000, Some(b"k"), None).append(9_000, Some(b"l"), None);
        let bytes = batch.build().unwrap();
        let header = *BatchView::parse(&bytes).unwrap().header();
        assert!(header.attributes.has_delete_horizon());
        assert_eq!(header.base_timestamp, 5_000);
        assert_eq!(times_and_offsets(&bytes), [(1_000, 0), (9_000, 1)]);
    }

    #[test]
    fn what_contradicts_itself_is_not_built() {
        let mut source = BatchBuilder::new();
        source.append(0, None, Some(b"v"));
        let source = source.build().unwrap();
        let records = BatchView::parse(&source).unwrap().records(100).unwrap();
        let record = records.iter().next().unwrap().unwrap();

        let mut backwards = BatchBuilder::new();
        backwards.append_record(4, &record).append_record(4, &record);
        assert_eq!(backwards.build(), Err(BatchError::Build("its offsets do not grow")));
        let mut short = BatchBuilder::new().reach(3);
        short.append_record(4, &record);
        assert!(short.build().is_err());
        let mut full = BatchBuilder::new();
        full.append(0, None, None);
        assert_eq!(full.build_empty(9, 0), Err(BatchError::Build("it has records")));
    }
}
