//! Everything that is no file of batches: indexes, snapshots, checkpoints and other text.

use std::path::Path;

use log::checkpoints::{
    self, LEADER_EPOCHS, OWN_CHECKSUM, PARTITION_METADATA, decode_epochs, decode_offsets,
    decode_partition_metadata,
};
use log::inspect::{Entries, OWN_CHECKPOINT, describe_checkpoint, offset_entry, time_entry};
use log::producer_state::ProducerStates;
use log::txn_index;
use reactor::fs;

use super::line::Line;
use super::{Failed, Output};

fn position(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

fn damage(problem: impl std::fmt::Display) -> Line {
    let mut line = Line::new("damage");
    line.text("problem", problem);
    line
}

async fn remainder<const N: usize>(
    entries: &Entries<N>,
    output: &mut Output,
) -> Result<(), Failed> {
    if entries.remainder() > 0 {
        let problem = format!("{} bytes at the end are no whole entry", entries.remainder());
        output.line(&damage(problem)).await?;
    }
    Ok(())
}

pub(super) async fn offset_index(
    path: &Path,
    base: i64,
    output: &mut Output,
) -> Result<(), Failed> {
    let Some(mut entries) = Entries::<8>::open(path).await? else { return Ok(()) };
    while let Some((_, bytes)) = entries.next().await? {
        let (offset, at) = offset_entry(bytes);
        let mut line = Line::new("index");
        line.number("offset", base.saturating_add(offset.into())).number("position", at);
        output.line(&line).await?;
    }
    remainder(&entries, output).await
}

pub(super) async fn time_index(path: &Path, base: i64, output: &mut Output) -> Result<(), Failed> {
    let Some(mut entries) = Entries::<12>::open(path).await? else { return Ok(()) };
    while let Some((_, bytes)) = entries.next().await? {
        let (timestamp, offset) = time_entry(bytes);
        let mut line = Line::new("timeindex");
        line.number("timestamp", timestamp).number("offset", base.saturating_add(offset.into()));
        output.line(&line).await?;
    }
    remainder(&entries, output).await
}

pub(super) async fn txn_index(path: &Path, base: i64, output: &mut Output) -> Result<(), Failed> {
    let Some(mut entries) = Entries::<{ txn_index::ENTRY_BYTES }>::open(path).await? else {
        return Ok(());
    };
    while let Some((at, bytes)) = entries.next().await? {
        let line = match txn_index::decode(&bytes, base).as_deref() {
            Ok([txn]) => {
                let mut line = Line::new("txnindex");
                line.number("version", 0)
                    .number("producerId", txn.producer_id)
                    .number("firstOffset", txn.first_offset)
                    .number("lastOffset", txn.last_offset)
                    .number("lastStableOffset", txn.last_stable_offset);
                line
            }
            Ok(_) => continue,
            Err(problem) => {
                let mut line = damage(problem);
                line.number("damageAt", position(at));
                line
            }
        };
        output.line(&line).await?;
    }
    remainder(&entries, output).await
}

pub(super) async fn snapshot(path: &Path, output: &mut Output) -> Result<(), Failed> {
    let bytes = fs::read(path).await?;
    let producers = match ProducerStates::decode(&bytes) {
        Ok(producers) => producers,
        Err(problem) => return Ok(output.line(&damage(problem)).await?),
    };
    let mut all: Vec<_> = producers.iter().collect();
    all.sort_unstable_by_key(|producer| producer.producer_id);
    for producer in all {
        let mut line = Line::new("producer");
        let first_sequence = match producer.last_sequence {
            -1 => -1,
            last => last.wrapping_sub(producer.last_offset_delta),
        };
        line.number("producerId", producer.producer_id)
            .number("producerEpoch", producer.epoch)
            .number("coordinatorEpoch", producer.coordinator_epoch)
            .maybe("currentTxnFirstOffset", producer.open_since)
            .number("lastTimestamp", producer.last_timestamp)
            .number("firstSequence", first_sequence)
            .number("lastSequence", producer.last_sequence)
            .number("lastOffset", producer.last_offset)
            .number("offsetDelta", producer.last_offset_delta);
        output.line(&line).await?;
    }
    Ok(())
}

/// Checkpoints line by line, other text as it is; of anything else only its size.
pub(super) async fn text_file(path: &Path, name: &str, output: &mut Output) -> Result<(), Failed> {
    let size = fs::metadata(path).await?.size;
    if size > TEXT_BYTES_MAX {
        return Ok(output.line(&size_line(size)).await?);
    }
    let bytes = fs::read(path).await?;
    match name {
        LEADER_EPOCHS => match decode_epochs(&bytes) {
            Ok(entries) => {
                for entry in entries {
                    let mut line = Line::new("epoch");
                    line.number("epoch", entry.epoch).number("startOffset", entry.start_offset);
                    output.line(&line).await?;
                }
            }
            Err(problem) => output.line(&damage(problem)).await?,
        },
        name if is_offset_checkpoint(name) => match decode_offsets(&bytes) {
            Ok(entries) => {
                // The second line of a partition's own file is no topic.
                let is_own = matches!(entries.as_slice(), [_, sum] if sum.topic == OWN_CHECKSUM);
                for entry in entries {
                    let line = match is_own && entry.topic == OWN_CHECKSUM {
                        true => {
                            let mut line = Line::new("checksum");
                            line.number(OWN_CHECKSUM, entry.offset);
                            line
                        }
                        false => {
                            let mut line = Line::new("checkpoint");
                            line.text("topic", entry.topic)
                                .number("partition", entry.partition)
                                .number("offset", entry.offset);
                            line
                        }
                    };
                    output.line(&line).await?;
                }
            }
            Err(problem) => output.line(&damage(problem)).await?,
        },
        OWN_CHECKPOINT => output.line(&own_checkpoint(&bytes)).await?,
        PARTITION_METADATA => {
            let line = match decode_partition_metadata(&bytes) {
                Ok(topic_id) => {
                    let mut line = Line::new("metadata");
                    line.number("version", 0).text("topicId", topic_id);
                    line
                }
                Err(problem) => damage(problem),
            };
            output.line(&line).await?;
        }
        _ => match std::str::from_utf8(&bytes) {
            Ok(text) if !text.contains('\0') => {
                for text in text.lines() {
                    let mut line = Line::titled("text", text.to_owned());
                    line.text("line", text);
                    output.line(&line).await?;
                }
            }
            _ => output.line(&size_line(size)).await?,
        },
    }
    Ok(())
}

fn own_checkpoint(bytes: &[u8]) -> Line {
    let own = match describe_checkpoint(bytes) {
        Ok(own) => own,
        Err(problem) => return damage(problem),
    };
    let epochs: Vec<String> = own
        .epochs
        .iter()
        .map(|epoch| format!("{} from {}", epoch.epoch, epoch.start_offset))
        .collect();
    let mut line = Line::new("partition-checkpoint");
    line.text("topicId", own.topic_id)
        .number("logStartOffset", own.log_start)
        .number("recoveryPoint", own.recovery_point)
        .number("segment", own.segment)
        .number("position", own.position)
        .number("newestTimestamp", own.newest_timestamp)
        .number("indexEntries", position(own.index_entries as u64))
        .number("timeIndexEntries", position(own.time_index_entries as u64))
        .text("epochs", epochs.join(", "))
        .number("listedSegments", position(own.listed_segments as u64))
        .number("listedBytes", position(own.listed_bytes))
        .number("earlierBatchesBytes", position(own.earlier_batches_bytes as u64));
    line
}

/// Largest file that is taken for text.
const TEXT_BYTES_MAX: u64 = 64 << 20;

fn size_line(size: u64) -> Line {
    let mut line = Line::new("bytes");
    line.number("size", position(size));
    line
}

pub(super) fn is_offset_checkpoint(name: &str) -> bool {
    [
        checkpoints::RECOVERY_POINTS,
        checkpoints::LOG_START_OFFSETS,
        checkpoints::HIGH_WATERMARKS,
        "cleaner-offset-checkpoint",
    ]
    .contains(&name)
}
