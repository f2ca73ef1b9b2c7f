//! Segments and other files of batches: a line a batch, with `--records` a line a record too.

use std::path::Path;

use log::inspect::{BATCH_BYTES_MAX, BatchAt, Batches, Step};
use wire::records::header::TimestampType;
use wire::records::{BatchView, Codec, Record};

use super::internal::Topic;
use super::line::Line;
use super::{Failed, Output};

pub(super) async fn dump(
    path: &Path,
    base: Option<i64>,
    records: bool,
    output: &mut Output,
) -> Result<(), Failed> {
    let mut batches = Batches::open(path).await?;
    if let Some(base) = base {
        let mut line = Line::new("segment");
        line.number("Log starting offset", base);
        output.line(&line).await?;
    }
    let topic = match base {
        Some(_) => Topic::of_folder(path),
        None => Topic::Metadata,
    };
    loop {
        match batches.next().await? {
            Step::Batch(batch) => {
                output.line(&batch_line(&batch)).await?;
                if records {
                    dump_records(&mut batches, &batch, topic, output).await?;
                }
            }
            Step::End => return Ok(()),
            Step::Zeros { last_nonzero } => {
                let mut line = Line::new("zeros");
                line.number("zerosFrom", as_i64(batches.position()));
                line.number("to", as_i64(batches.size()));
                let only = last_nonzero <= batches.position();
                line.flag("onlyZeros", only);
                output.line(&line).await?;
                return Ok(());
            }
            Step::Damage(problem) => {
                let mut line = Line::new("damage");
                line.number("damageAt", as_i64(batches.position())).text("problem", problem);
                output.line(&line).await?;
                return Ok(());
            }
        }
    }
}

fn as_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn batch_line(batch: &BatchAt) -> Line {
    let header = &batch.header;
    let attributes = header.attributes;
    let time = match attributes.timestamp_type() {
        TimestampType::Create => "CreateTime",
        TimestampType::LogAppend => "LogAppendTime",
    };
    let horizon = attributes.has_delete_horizon().then_some(header.base_timestamp);
    let mut line = Line::new("batch");
    line.number("baseOffset", header.base_offset)
        .number("lastOffset", header.last_offset())
        .number("count", header.record_count)
        .number("baseSequence", header.base_sequence)
        .number("lastSequence", header.last_sequence())
        .number("producerId", header.producer_id)
        .number("producerEpoch", header.producer_epoch)
        .number("partitionLeaderEpoch", header.partition_leader_epoch)
        .flag("isTransactional", attributes.is_transactional())
        .flag("isControl", attributes.is_control())
        .maybe("deleteHorizonMs", horizon)
        .number("position", batch.position)
        .number(time, header.max_timestamp)
        .number("size", as_i64(header.size_in_bytes() as u64))
        .number("magic", header.magic)
        .text("compresscodec", codec_name(attributes.codec().ok()))
        .number("crc", header.crc)
        .flag("isvalid", batch.valid);
    line
}

fn codec_name(codec: Option<Codec>) -> &'static str {
    match codec {
        Some(Codec::None) => "none",
        Some(Codec::Gzip) => "gzip",
        Some(Codec::Snappy) => "snappy",
        Some(Codec::Lz4) => "lz4",
        Some(Codec::Zstd) => "zstd",
        None => "unknown",
    }
}

async fn dump_records(
    batches: &mut Batches,
    batch: &BatchAt,
    topic: Topic,
    output: &mut Output,
) -> Result<(), Failed> {
    let bytes = batches.bytes(batch).await?;
    let parsed = BatchView::parse(&bytes).and_then(|view| view.records(BATCH_BYTES_MAX));
    let mut records = match parsed {
        Ok(records) => records,
        Err(error) => return unreadable_records(batch, &error.to_string(), output).await,
    };
    let mut index = 0;
    loop {
        match records.next_record() {
            Ok(Some(record)) => output.line(&record_line(batch, &record, index, topic)).await?,
            Ok(None) => return Ok(()),
            Err(error) => return unreadable_records(batch, &error.to_string(), output).await,
        }
        index += 1;
    }
}

async fn unreadable_records(
    batch: &BatchAt,
    problem: &str,
    output: &mut Output,
) -> Result<(), Failed> {
    let mut line = Line::led("damage", "| ");
    line.number("damageAt", batch.position).text("problem", problem);
    Ok(output.line(&line).await?)
}

fn record_line(batch: &BatchAt, record: &Record<'_>, index: i32, topic: Topic) -> Line {
    let header = &batch.header;
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| as_i64(bytes.len() as u64));
    let time = match header.attributes.timestamp_type() {
        TimestampType::Create => "CreateTime",
        TimestampType::LogAppend => "LogAppendTime",
    };
    let sequence = match header.base_sequence {
        -1 => -1,
        base => wire::records::header::add_sequence(base, index),
    };
    let mut line = Line::led("record", "| ");
    line.number("offset", record.offset)
        .number(time, record.timestamp)
        .number("keySize", size(record.key))
        .number("valueSize", size(record.value))
        .number("sequence", sequence)
        .text("headerKeys", header_keys(record));
    let decoded = match header.attributes.is_control() {
        true => Topic::decode_control(record),
        false => topic.decode(record),
    };
    match decoded {
        Some((key, value)) => {
            line.shape("key", key).shape("payload", value);
        }
        None => {
            line.bytes("key", record.key).bytes("payload", record.value);
        }
    }
    if !record.headers.is_empty() {
        line.text("headers", headers(record));
    }
    line
}

fn header_keys(record: &Record<'_>) -> String {
    let keys = record.headers.iter().map(|header| String::from_utf8_lossy(header.key));
    format!("[{}]", keys.collect::<Vec<_>>().join(","))
}

fn headers(record: &Record<'_>) -> String {
    let pairs = record.headers.iter().map(|header| {
        let value = header.value.map_or("null".into(), String::from_utf8_lossy);
        format!("{}={value}", String::from_utf8_lossy(header.key))
    });
    pairs.collect::<Vec<_>>().join(",")
}
