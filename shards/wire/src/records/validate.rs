//! What a leader checks before it appends what a producer sent, in Kafka's order.
//!
//! Lives on every core; pure: the time is an argument. It decides from one partition's `records`
//! field and the topic's rules; sequence numbers and transactions are the log's.
//!
//! | step | check                                                             | error |
//! |------|-------------------------------------------------------------------|-------|
//! | 1    | a whole batch is there                                            | 87    |
//! | 2    | its length and format can be a batch's                            | 2     |
//! | 3    | format v2                                                         | 87    |
//! | 4    | codec exists; zstd only from Produce v7                           | 76    |
//! | 5    | no second batch                                                   | 87    |
//! | 6    | base offset 0                                                     | 87    |
//! | 7    | size within `max.message.bytes`                                   | 10    |
//! | 8    | checksum                                                          | 2     |
//! | 9    | count = last offset delta + 1 > 0, no control bit, producer whole | 87    |
//! | 10   | block decompresses (2), within the broker's limit (10)            | 2, 10 |
//! | 11   | records add up, offsets 0, 1, 2 ..., keys on compacted topics     | 87    |
//! | 12   | timestamps in range, no LogAppendTime from producers              | 32    |
//! | 13   | size within `max.message.bytes` after recompression               | 10    |
//!
//! Uncompressed records are always walked. A compressed block is opened if the topic is compacted,
//! asks for another codec, bounds record sizes or timestamps from below, if the mode is strict, or if the header
//! promises a fault that only the records can be blamed for; else it is stored unseen.
//! Kafka opens each one and answers -1 for some of what is 2, 76 or 87 here.

use super::BatchError;
use super::batch::BatchView;
use super::builder::BatchBuilder;
use super::codec::Codec;
use super::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    MAGIC_AT, MAX_TIMESTAMP_AT, NO_TIMESTAMP, TimestampType,
};
use super::record::RecordIter;
use super::walk::{Shape, walk, walk_decompressed};
use crate::ErrorCode;
use std::borrow::Cow;

/// Records named in one rejection; more than that are counted in the message only.
pub const MAX_RECORD_ERRORS: usize = 10_000;
/// Kafka's default and maximum of `max.decompressed.message.bytes`: no limit.
pub const UNLIMITED_RECORD_BYTES: i32 = i32::MAX - 8;
/// First Produce version that may carry zstd.
const ZSTD_SINCE_VERSION: i16 = 7;
/// The least that Kafka takes for the length of any batch or message, old formats included.
const LEAST_LENGTH: i32 = 14;

/// What the topic asks of a batch, and how far the broker goes to check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `max.message.bytes`: most bytes of a batch as it comes and as it is stored.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    pub compression: TopicCompression,
    /// `cleanup.policy` has `compact`: every record needs a key.
    pub compacted: bool,
    /// Look at every record of compressed batches too.
    pub strict: bool,
    /// Version of the Produce request.
    pub produce_version: i16,
    /// Most bytes that a compressed batch may have once decompressed: the broker's own bound.
    pub decompressed_limit: usize,
    /// `max.decompressed.message.bytes`: most bytes of one record out of a compressed batch.
    pub max_record_bytes: i32,
}

impl Default for Rules {
    /// Kafka's topic defaults, for the newest Produce version.
    fn default() -> Self {
        Rules {
            max_message_bytes: 1024 * 1024 + 12,
            timestamp_type: TimestampType::Create,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            compression: TopicCompression::Producer,
            compacted: false,
            strict: false,
            produce_version: i16::MAX,
            decompressed_limit: 64 * 1024 * 1024,
            max_record_bytes: UNLIMITED_RECORD_BYTES,
        }
    }
}

/// `compression.type` of a topic with its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicCompression {
    /// Keep what the producer chose.
    #[default]
    Producer,
    /// Store with this codec; `None` level for Kafka's default.
    Codec(Codec, Option<i32>),
}

/// What to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated<'a> {
    pub batch: Accepted<'a>,
    /// For the response: the time the broker gave the batch, if the topic asks for that.
    pub log_append_time: Option<i64>,
}

/// The bytes to append: the producer's own, or new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted<'a> {
    AsSent(BatchView<'a>),
    Rewritten(Vec<u8>),
}

impl Validated<'_> {
    /// The batch to append, whichever bytes it is in.
    pub fn view(&self) -> Result<BatchView<'_>, BatchError> {
        match &self.batch {
            Accepted::AsSent(view) => Ok(*view),
            Accepted::Rewritten(bytes) => BatchView::parse(bytes),
        }
    }
}

/// Why nothing is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub error: ErrorCode,
    pub message: String,
    /// Index in the batch and reason, of exactly the records at fault (up to
    /// [`MAX_RECORD_ERRORS`]); empty if the batch as a whole is.
    pub record_errors: Vec<(i32, String)>,
}

/// Checks one partition's `records` field against the topic's rules.
pub fn validate<'a>(
    payload: &'a [u8],
    rules: &Rules,
    now_ms: i64,
) -> Result<Validated<'a>, Rejection> {
    let batch = only_batch(payload, rules.produce_version)?;
    check_batch(&batch, rules)?;
    let codec = batch.codec().map_err(reject)?;
    let target = match rules.compression {
        TopicCompression::Producer => None,
        TopicCompression::Codec(target, level) => Some((target, level)),
    };
    let recompress = target.filter(|(target, _)| *target != codec);
    let accepted = match recompress {
        Some((target, level)) => {
            let records = batch.decompressed(rules.decompressed_limit).map_err(reject)?;
            check_records(&batch, Some(&records), rules, now_ms)?;
            Accepted::Rewritten(recompressed(&batch, records, (target, level), rules, now_ms)?)
        }
        None => {
            let opened = codec == Codec::None || must_open(&batch, rules, now_ms);
            let max_timestamp = if opened {
                check_records(&batch, None, rules, now_ms)?
            } else {
                batch.header().max_timestamp
            };
            match rules.timestamp_type {
                TimestampType::LogAppend => retimed(batch, TimestampType::LogAppend, now_ms),
                TimestampType::Create => retimed(batch, TimestampType::Create, max_timestamp),
            }
        }
    };
    let log_append_time = (rules.timestamp_type == TimestampType::LogAppend).then_some(now_ms);
    Ok(Validated { batch: accepted, log_append_time })
}

/// Steps 1 to 5: the one batch of the payload. Bytes behind it that are no whole batch are ignored.
fn only_batch(payload: &[u8], version: i16) -> Result<BatchView<'_>, Rejection> {
    let Some(bytes) = next_bytes(payload)? else {
        return Err(invalid("the partition carries no record batch"));
    };
    if bytes.get(MAGIC_AT).is_none_or(|magic| *magic as i8 != MAGIC) {
        return Err(invalid("record batches must have message format 2"));
    }
    let batch = BatchView::parse(bytes).map_err(reject)?;
    let codec = batch.codec().map_err(reject)?;
    if codec == Codec::Zstd && version < ZSTD_SINCE_VERSION {
        return Err(rejection(
            ErrorCode::UnsupportedCompressionType,
            format!("zstd needs version {ZSTD_SINCE_VERSION} of Produce or later"),
        ));
    }
    let behind = payload.get(bytes.len()..).unwrap_or_default();
    if next_bytes(behind)?.is_some() {
        return Err(invalid("the partition carries more than one record batch"));
    }
    Ok(batch)
}

/// The bytes of the batch or message at the front, whatever its format, if all of it is there.
fn next_bytes(bytes: &[u8]) -> Result<Option<&[u8]>, Rejection> {
    let Some(length) = bytes.get(8..LENGTH_PREFIX_BYTES).and_then(|field| field.first_chunk())
    else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    if length < LEAST_LENGTH {
        return Err(reject(BatchError::Length(length)));
    }
    match bytes.get(MAGIC_AT) {
        None => return Ok(None),
        Some(magic) if !(0..=MAGIC).contains(&(*magic as i8)) => {
            return Err(rejection(
                ErrorCode::CorruptMessage,
                BatchError::Magic(*magic as i8).to_string(),
            ));
        }
        Some(_) => {}
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(LENGTH_PREFIX_BYTES);
    Ok(bytes.get(..size))
}

/// Steps 6 to 9: what the header says.
fn check_batch(batch: &BatchView<'_>, rules: &Rules) -> Result<(), Rejection> {
    let header = batch.header();
    if header.base_offset != 0 {
        return Err(invalid(format!("base offset must be 0 but is {}", header.base_offset)));
    }
    check_size(batch.bytes().len(), rules)?;
    batch.verify_crc().map_err(reject)?;
    let (count, delta) = (header.record_count, header.last_offset_delta);
    if count <= 0 || i64::from(delta) + 1 != i64::from(count) {
        return Err(invalid(format!(
            "record count {count} and last offset delta {delta} contradict each other"
        )));
    }
    if header.attributes.is_control() {
        return Err(invalid("clients may not write control batches"));
    }
    if header.has_producer() && (header.base_sequence < 0 || header.producer_epoch < 0) {
        return Err(invalid(format!(
            "producer {} sent sequence {} and epoch {}, both must be 0 or more",
            header.producer_id, header.base_sequence, header.producer_epoch
        )));
    }
    if header.attributes.is_transactional() && !header.has_producer() {
        return Err(invalid("a transactional batch needs a producer id"));
    }
    Ok(())
}

fn check_size(bytes: usize, rules: &Rules) -> Result<(), Rejection> {
    if bytes <= rules.max_message_bytes {
        return Ok(());
    }
    Err(rejection(
        ErrorCode::MessageTooLarge,
        format!(
            "batch has {bytes} bytes, max.message.bytes allows {}; send smaller batches",
            rules.max_message_bytes
        ),
    ))
}

/// Whether the records of a compressed batch must be looked at although its bytes are kept.
fn must_open(batch: &BatchView<'_>, rules: &Rules, now_ms: i64) -> bool {
    let header = batch.header();
    let bounded_below =
        rules.timestamp_type == TimestampType::Create && rules.before_max_ms != i64::MAX;
    rules.strict
        || rules.compacted
        || bounded_below
        || rules.max_record_bytes < UNLIMITED_RECORD_BYTES
        || time_fault(header, header.base_timestamp, rules, now_ms).is_some()
        || time_fault(header, header.max_timestamp, rules, now_ms).is_some()
}

/// Steps 10 to 12, over `records` if they are decompressed already; returns the largest timestamp.
fn check_records(
    batch: &BatchView<'_>,
    records: Option<&[u8]>,
    rules: &Rules,
    now_ms: i64,
) -> Result<i64, Rejection> {
    let seen = Seen::of(batch, records, rules)?;
    if batch.codec() != Ok(Codec::None) && seen.largest > rules.max_record_bytes {
        return Err(invalid(format!(
            "a record has {} bytes decompressed, max.decompressed.message.bytes allows {}",
            seen.largest, rules.max_record_bytes
        )));
    }
    if seen.is_suspicious(batch.header(), rules, now_ms) {
        find_faults(batch, records, rules, now_ms)?;
    }
    Ok(seen.last.max(NO_TIMESTAMP))
}

fn each_record(
    batch: &BatchView<'_>,
    records: Option<&[u8]>,
    rules: &Rules,
    look: impl FnMut(Shape),
) -> Result<(), Rejection> {
    let walked = match records {
        Some(records) => walk_decompressed(records, batch.header().record_count, look),
        None => walk(batch, rules.decompressed_limit, look),
    };
    walked.map_err(reject)
}

/// The time of every record, if the broker gave one to all of them.
fn append_time(header: &BatchHeader) -> Option<i64> {
    match header.attributes.timestamp_type() {
        TimestampType::Create => None,
        TimestampType::LogAppend => Some(header.max_timestamp),
    }
}

/// What a look at all records finds out without judging each: as long as nothing is wrong, that is
/// all that has to be known.
struct Seen {
    in_order: bool,
    keyed: bool,
    first: i64,
    last: i64,
    largest: i32,
}

impl Seen {
    fn of(batch: &BatchView<'_>, records: Option<&[u8]>, rules: &Rules) -> Result<Seen, Rejection> {
        let base = batch.header().base_timestamp;
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let (mut in_order, mut keyed, mut largest) = (true, true, 0);
        each_record(batch, records, rules, |shape| {
            in_order &= shape.offset_delta == shape.index;
            keyed &= shape.has_key;
            let timestamp = base.wrapping_add(shape.timestamp_delta);
            first = first.min(timestamp);
            last = last.max(timestamp);
            largest = largest.max(shape.bytes);
        })?;
        if let Some(time) = append_time(batch.header()) {
            (first, last) = (time, time);
        }
        Ok(Seen { in_order, keyed, first, last, largest })
    }

    /// Whether a record may be at fault. Times between two that are in range are in range, but for
    /// "none", which is among no others, and for those so far off that differences wrap.
    fn is_suspicious(&self, header: &BatchHeader, rules: &Rules, now_ms: i64) -> bool {
        const FAR: i64 = 1 << 61;
        let (first, last) = (self.first, self.last);
        !self.in_order
            || (rules.compacted && !self.keyed)
            || first < -FAR
            || last > FAR
            || (first <= NO_TIMESTAMP && first != last)
            || time_fault(header, first, rules, now_ms).is_some()
            || time_fault(header, last, rules, now_ms).is_some()
    }
}

/// Looks at each record by itself and lists those at fault, if there are any.
fn find_faults(
    batch: &BatchView<'_>,
    records: Option<&[u8]>,
    rules: &Rules,
    now_ms: i64,
) -> Result<(), Rejection> {
    let header = batch.header();
    let append_time = append_time(header);
    let mut faults = Faults::default();
    each_record(batch, records, rules, |shape| {
        let timestamp = append_time
            .unwrap_or_else(|| header.base_timestamp.wrapping_add(shape.timestamp_delta));
        if rules.compacted && !shape.has_key {
            faults.add(shape.index, false, || "a compacted topic needs a key".to_owned());
        } else if shape.offset_delta != shape.index {
            faults.add(shape.index, false, || {
                format!("offset delta is {}, not {}", shape.offset_delta, shape.index)
            });
        } else if let Some(fault) = time_fault(header, timestamp, rules, now_ms) {
            faults.add(shape.index, true, || fault.describe(timestamp, rules, now_ms));
        }
    })?;
    faults.result()
}

/// Records at fault, as they are found.
#[derive(Default)]
struct Faults {
    total: usize,
    any_timestamp: bool,
    listed: Vec<(i32, String)>,
}

impl Faults {
    fn add(&mut self, index: i32, timestamp: bool, describe: impl FnOnce() -> String) {
        self.total += 1;
        self.any_timestamp |= timestamp;
        if self.listed.len() < MAX_RECORD_ERRORS {
            self.listed.push((index, describe()));
        }
    }

    fn result(self) -> Result<(), Rejection> {
        if self.total == 0 {
            return Ok(());
        }
        // One bad timestamp decides the code of the whole batch.
        let error =
            if self.any_timestamp { ErrorCode::InvalidTimestamp } else { ErrorCode::InvalidRecord };
        let first = self.listed.first().map(|(_, reason)| reason.as_str()).unwrap_or_default();
        let message = format!("{} of the batch's records are refused, first: {first}", self.total);
        Err(Rejection { error, message, record_errors: self.listed })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeFault {
    OutOfRange,
    BrokersOwn,
}

impl TimeFault {
    fn describe(self, timestamp: i64, rules: &Rules, now_ms: i64) -> String {
        match self {
            TimeFault::BrokersOwn => "producers may not set LogAppendTime".to_owned(),
            TimeFault::OutOfRange => format!(
                "timestamp {timestamp} is not between {} and {}",
                now_ms.saturating_sub(rules.before_max_ms),
                now_ms.saturating_add(rules.after_max_ms)
            ),
        }
    }
}

/// A producer's LogAppendTime bit passes, and is taken off again, where a topic keeps the
/// producer's times and the time is in range: so does Kafka.
fn time_fault(
    header: &BatchHeader,
    timestamp: i64,
    rules: &Rules,
    now_ms: i64,
) -> Option<TimeFault> {
    if rules.timestamp_type == TimestampType::Create && timestamp != NO_TIMESTAMP {
        let age = now_ms.wrapping_sub(timestamp);
        let out = age > rules.before_max_ms || age.wrapping_neg() > rules.after_max_ms;
        return out.then_some(TimeFault::OutOfRange);
    }
    let brokers_own = header.attributes.timestamp_type() == TimestampType::LogAppend;
    brokers_own.then_some(TimeFault::BrokersOwn)
}

/// The batch with this timestamp type and maximum: as it is if it has them, else a patched copy.
fn retimed(batch: BatchView<'_>, kind: TimestampType, max_timestamp: i64) -> Accepted<'_> {
    let header = batch.header();
    let attributes = header.attributes.with_timestamp_type(kind);
    if attributes == header.attributes && header.max_timestamp == max_timestamp {
        return Accepted::AsSent(batch);
    }
    let mut bytes = batch.bytes().to_vec();
    put(&mut bytes, ATTRIBUTES_AT, &attributes.known_bits().0.to_be_bytes());
    put(&mut bytes, MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
    // Carrying the old checksum over costs more than computing it anew, up to 200 KiB.
    let crc = crc32c::crc32c(bytes.get(CRC_START..).unwrap_or_default());
    put(&mut bytes, CRC_AT, &crc.to_be_bytes());
    Accepted::Rewritten(bytes)
}

/// `bytes` is a parsed batch and `at` in its header.
fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    assert!(bytes.len() >= HEADER_BYTES, "only a parsed batch may be patched");
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// The same records with another codec, and step 13.
fn recompressed(
    batch: &BatchView<'_>,
    records: Cow<'_, [u8]>,
    (target, level): (Codec, Option<i32>),
    rules: &Rules,
    now_ms: i64,
) -> Result<Vec<u8>, Rejection> {
    let header = batch.header();
    let mut builder = BatchBuilder::new()
        .codec(target, level)
        .leader_epoch(header.partition_leader_epoch)
        .producer(header.producer_id, header.producer_epoch, header.base_sequence)
        .transactional(header.attributes.is_transactional());
    if rules.timestamp_type == TimestampType::LogAppend {
        builder = builder.log_append_time(now_ms);
    }
    let mut records = RecordIter::new(header, records).map_err(reject)?;
    let mut offset_delta = 0;
    while let Some(record) = records.next_record().map_err(reject)? {
        builder.append_record(offset_delta, &record);
        offset_delta += 1;
    }
    let bytes = builder.build().map_err(reject)?;
    check_size(bytes.len(), rules)?;
    Ok(bytes)
}

/// The code a producer gets for what is wrong with its bytes.
fn reject(error: BatchError) -> Rejection {
    let code = match &error {
        BatchError::Truncated { .. }
        | BatchError::Length(_)
        | BatchError::Checksum { .. }
        | BatchError::Decompress { .. } => ErrorCode::CorruptMessage,
        BatchError::Magic(_)
        | BatchError::Record { .. }
        | BatchError::TrailingBytes { .. }
        | BatchError::Count(_) => ErrorCode::InvalidRecord,
        BatchError::UnknownCodec(_) => ErrorCode::UnsupportedCompressionType,
        BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        BatchError::Compress { .. } | BatchError::Build(_) => ErrorCode::UnknownServerError,
    };
    rejection(code, error.to_string())
}

fn invalid(message: impl Into<String>) -> Rejection {
    rejection(ErrorCode::InvalidRecord, message.into())
}

fn rejection(error: ErrorCode, message: String) -> Rejection {
    Rejection { error, message, record_errors: Vec::new() }
}
