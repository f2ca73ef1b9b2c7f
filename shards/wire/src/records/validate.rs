//! What a leader checks before it appends what a producer sent, in Kafka's order.
//!
//! Lives on every core; pure: the time is an argument. It decides from one partition's `records`
//! field and the topic's rules; sequence numbers and transactions are the log's.

use super::BatchError;
use super::batch::BatchView;
use super::codec::Codec;
use super::header::TimestampType;
use crate::ErrorCode;

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
    /// Most bytes that a compressed batch may have once decompressed.
    pub decompressed_limit: usize,
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
    /// Index in the batch and reason, of exactly the records at fault.
    pub record_errors: Vec<(i32, String)>,
}

/// Checks one partition's `records` field against the topic's rules.
pub fn validate<'a>(
    payload: &'a [u8],
    rules: &Rules,
    now_ms: i64,
) -> Result<Validated<'a>, Rejection> {
    let _ = now_ms;
    let batch = BatchView::parse(payload).map_err(|error| Rejection {
        error: ErrorCode::CorruptMessage,
        message: error.to_string(),
        record_errors: Vec::new(),
    })?;
    if batch.bytes().len() > rules.max_message_bytes {
        return Err(Rejection {
            error: ErrorCode::MessageTooLarge,
            message: ErrorCode::MessageTooLarge.message().to_owned(),
            record_errors: Vec::new(),
        });
    }
    batch.verify_crc().map_err(|error| Rejection {
        error: ErrorCode::CorruptMessage,
        message: error.to_string(),
        record_errors: Vec::new(),
    })?;
    Ok(Validated { batch: Accepted::AsSent(batch), log_append_time: None })
}
