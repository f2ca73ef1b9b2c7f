//! The small text files around the segments, in Kafka's formats.
//!
//! Owns: the formats of the offset checkpoints of a data folder, of the leader-epoch checkpoint
//! and of `partition.metadata`, and the few asynchronous helpers that read and replace them.
//! A file is replaced as a whole: written beside, synced, renamed, the folder synced.
//!
//! ```text
//! 0                         version
//! 2                         how many lines follow
//! orders 0 1207             topic partition offset    (in leader-epoch-checkpoint: epoch offset)
//! orders 1 1193
//! ```

use std::path::Path;

use reactor::fs;
use thiserror::Error;
use wire::Uuid;

use crate::epochs::EpochStart;
use crate::names::parse_partition_dir_name;

/// Offsets below which everything is on the device: what a crash need not look at again.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// First offsets that clients may read, after DeleteRecords and retention.
pub const LOG_START_OFFSETS: &str = "log-start-offset-checkpoint";
/// Offsets below which compaction has looked at every key.
pub const CLEANER_POINTS: &str = "cleaner-offset-checkpoint";
/// High watermarks.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// In a partition's folder: it was opened although it ended before this offset, which was safe
/// once. Whoever vouches for what lies below is not believed any longer.
pub const GIVEN_UP: &str = "given-up-offset-checkpoint";
/// In a partition's folder.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// In a partition's folder.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Written last by a clean shutdown, removed first by a start.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// More lines than a machine can hold partitions: a larger count is damage.
const MAX_LINES: usize = 10_000_000;

/// One line of an offset checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionOffset {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum CheckpointDamage {
    #[error("it is not text")]
    NotText,
    #[error("its first line `{0}` is no version this program knows (0)")]
    Version(String),
    #[error("its second line should say how many lines follow")]
    Count,
    #[error("it announces {announced} lines but has {found}")]
    Lines { announced: usize, found: usize },
    #[error("line `{0}` cannot be read")]
    Line(String),
}

/// A checkpoint that could not be read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{file} is damaged: {damage}; it may be removed, at the price of a full recovery")]
    Damaged { file: String, damage: CheckpointDamage },
}

pub fn encode_offsets<'a>(lines: impl IntoIterator<Item = (&'a str, i32, i64)>) -> Vec<u8> {
    encode_lines(
        lines.into_iter().map(|(topic, partition, offset)| format!("{topic} {partition} {offset}")),
    )
}

pub fn decode_offsets(bytes: &[u8]) -> Result<Vec<PartitionOffset>, CheckpointDamage> {
    decode_lines(bytes, |line| {
        let mut fields = line.split(' ');
        let topic = fields.next().filter(|t| !t.is_empty())?.to_owned();
        let partition = fields.next()?.parse().ok()?;
        let offset = fields.next()?.parse().ok()?;
        fields.next().is_none().then_some(PartitionOffset { topic, partition, offset })
    })
}

pub fn encode_epochs(entries: &[EpochStart]) -> Vec<u8> {
    encode_lines(entries.iter().map(|e| format!("{} {}", e.epoch, e.start_offset)))
}

pub fn decode_epochs(bytes: &[u8]) -> Result<Vec<EpochStart>, CheckpointDamage> {
    decode_lines(bytes, |line| {
        let (epoch, start) = line.split_once(' ')?;
        Some(EpochStart { epoch: epoch.parse().ok()?, start_offset: start.parse().ok()? })
    })
}

pub fn encode_partition_metadata(topic_id: Uuid) -> Vec<u8> {
    format!("version: 0\ntopic_id: {topic_id}\n").into_bytes()
}

pub fn decode_partition_metadata(bytes: &[u8]) -> Result<Uuid, CheckpointDamage> {
    let text = std::str::from_utf8(bytes).map_err(|_| CheckpointDamage::NotText)?;
    let mut topic_id = None;
    for line in text.lines() {
        match line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("version", "0")) => {}
            Some(("version", other)) => return Err(CheckpointDamage::Version(other.to_owned())),
            Some(("topic_id", id)) => topic_id = id.parse().ok(),
            _ => return Err(CheckpointDamage::Line(line.to_owned())),
        }
    }
    topic_id.ok_or_else(|| CheckpointDamage::Line("topic_id".to_owned()))
}

/// Reads an offset checkpoint of a data folder; a missing file is an empty one.
pub async fn read_offsets(
    data_dir: &Path,
    file: &str,
) -> Result<Vec<PartitionOffset>, CheckpointError> {
    match read_if_there(&data_dir.join(file)).await? {
        None => Ok(Vec::new()),
        Some(bytes) => decode_offsets(&bytes).map_err(|d| damaged(data_dir, file, d)),
    }
}

/// Replaces an offset checkpoint of a data folder; it is durable when this returns.
pub async fn write_offsets<'a>(
    data_dir: &Path,
    file: &str,
    lines: impl IntoIterator<Item = (&'a str, i32, i64)>,
) -> std::io::Result<()> {
    fs::write_atomic(&data_dir.join(file), encode_offsets(lines)).await
}

/// The topic id a partition's folder was made for; `None` if it has no such file.
pub async fn read_partition_metadata(dir: &Path) -> Result<Option<Uuid>, CheckpointError> {
    match read_if_there(&dir.join(PARTITION_METADATA)).await? {
        None => Ok(None),
        Some(bytes) => decode_partition_metadata(&bytes)
            .map(Some)
            .map_err(|d| damaged(dir, PARTITION_METADATA, d)),
    }
}

pub async fn write_partition_metadata(dir: &Path, topic_id: Uuid) -> std::io::Result<()> {
    fs::write_atomic(&dir.join(PARTITION_METADATA), encode_partition_metadata(topic_id)).await
}

/// One line in the format of a data folder's checkpoint, for the partition's own folder: what must
/// be there on its own, whoever writes the file of the whole data folder, and when. A second line
/// has the checksum of the first: a flipped digit must not move the start of a log.
pub(crate) fn encode_own_offset(dir: &Path, offset: i64) -> Vec<u8> {
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let (topic, partition) = parse_partition_dir_name(name).unwrap_or((name.to_owned(), 0));
    let sum = own_checksum(&topic, partition, offset);
    encode_offsets([(topic.as_str(), partition, offset), (OWN_CHECKSUM, 0, sum)])
}

/// Writes the start of a log into its own folder; durable when this returns. For a log that is not
/// open.
pub async fn write_own_log_start(dir: &Path, offset: i64) -> std::io::Result<()> {
    fs::write_atomic(&dir.join(LOG_START_OFFSETS), encode_own_offset(dir, offset)).await
}

/// Stands for the topic in the line that has the checksum, in the file of a partition's own folder.
pub const OWN_CHECKSUM: &str = "crc32c";

fn own_checksum(topic: &str, partition: i32, offset: i64) -> i64 {
    crc32c::crc32c(format!("{topic} {partition} {offset}").as_bytes()).into()
}

/// The offset of a partition's own checkpoint, if there is one that can be read.
pub(crate) async fn read_own_offset(dir: &Path, file: &str) -> std::io::Result<Option<i64>> {
    let lines = match read_offsets(dir, file).await {
        Ok(lines) => lines,
        Err(CheckpointError::Io(error)) => return Err(error),
        Err(damaged @ CheckpointError::Damaged { .. }) => {
            tracing::warn!("{damaged}");
            return Ok(None);
        }
    };
    match lines.as_slice() {
        [] => Ok(None),
        // As earlier versions wrote it.
        [line] => Ok(Some(line.offset)),
        [line, sum, ..] if sum.offset == own_checksum(&line.topic, line.partition, line.offset) => {
            Ok(Some(line.offset))
        }
        _ => {
            tracing::warn!("{} is not used: its checksum is wrong", dir.join(file).display());
            Ok(None)
        }
    }
}

/// Leaves the mark of a clean shutdown; the last thing a shutdown writes to a data folder.
pub async fn write_clean_shutdown(data_dir: &Path, broker_epoch: i64) -> std::io::Result<()> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    fs::write_atomic(&data_dir.join(CLEAN_SHUTDOWN), text.into_bytes()).await
}

/// Whether the last shutdown was clean. Removes the mark, durably: a crash from now on is one.
pub async fn take_clean_shutdown(data_dir: &Path) -> std::io::Result<bool> {
    let path = data_dir.join(CLEAN_SHUTDOWN);
    if !fs::exists(&path).await? {
        return Ok(false);
    }
    fs::remove_file(&path).await?;
    fs::sync_dir(data_dir).await?;
    Ok(true)
}

pub(crate) async fn read_if_there(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match fs::read(path).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn damaged(dir: &Path, file: &str, damage: CheckpointDamage) -> CheckpointError {
    CheckpointError::Damaged { file: dir.join(file).display().to_string(), damage }
}

fn encode_lines(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let lines: Vec<String> = lines.collect();
    let mut text = format!("0\n{}\n", lines.len());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text.into_bytes()
}

fn decode_lines<T>(
    bytes: &[u8],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, CheckpointDamage> {
    let text = std::str::from_utf8(bytes).map_err(|_| CheckpointDamage::NotText)?;
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default();
    if version.trim() != "0" {
        return Err(CheckpointDamage::Version(version.to_owned()));
    }
    let announced = lines
        .next()
        .and_then(|line| line.trim().parse::<usize>().ok())
        .filter(|n| *n <= MAX_LINES)
        .ok_or(CheckpointDamage::Count)?;
    let mut out = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        out.push(parse(line.trim()).ok_or_else(|| CheckpointDamage::Line(line.to_owned()))?);
    }
    if out.len() != announced {
        return Err(CheckpointDamage::Lines { announced, found: out.len() });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_written_as_kafka_writes_them() {
        let bytes = encode_offsets([("orders", 0, 1207), ("orders", 1, 1193)]);
        assert_eq!(bytes, b"0\n2\norders 0 1207\norders 1 1193\n");
        let read = decode_offsets(&bytes).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[1].topic.as_str(), read[1].partition, read[1].offset),
            ("orders", 1, 1193)
        );
        assert_eq!(decode_offsets(b"0\n0\n").unwrap(), []);
    }

    #[test]
    fn damage_is_named() {
        use CheckpointDamage as D;
        let table: [(&[u8], D); 7] = [
            (b"", D::Version(String::new())),
            (b"1\n0\n", D::Version("1".into())),
            (b"0\nx\n", D::Count),
            (b"0\n2\na 0 1\n", D::Lines { announced: 2, found: 1 }),
            (b"0\n1\na 0\n", D::Line("a 0".into())),
            (b"0\n1\na 0 1 2\n", D::Line("a 0 1 2".into())),
            (b"0\n1\n\xff 0 1\n", D::NotText),
        ];
        for (bytes, expected) in table {
            assert_eq!(decode_offsets(bytes), Err(expected));
        }
    }

    #[test]
    fn epochs_and_metadata_read_back() {
        let entries =
            [(0, 0), (3, 120)].map(|(epoch, start_offset)| EpochStart { epoch, start_offset });
        let bytes = encode_epochs(&entries);
        assert_eq!(bytes, b"0\n2\n0 0\n3 120\n");
        assert_eq!(decode_epochs(&bytes).unwrap(), entries);
        let id = Uuid([7; 16]);
        let text = encode_partition_metadata(id);
        assert_eq!(decode_partition_metadata(&text).unwrap(), id);
        assert!(decode_partition_metadata(b"version: 0\n").is_err());
        assert!(decode_partition_metadata(b"version: 1\ntopic_id: x\n").is_err());
    }
}
