//! Snapshots of the metadata: files that hold what the metadata log added up to at an offset, so
//! that the log below can go. Runs on shard 0, in the background.
//!
//! Kafka's own format, which `kafka-dump-log --cluster-metadata-decoder` reads: a file
//! `<end offset>-<epoch>.checkpoint` of record batches, the first and the last of them control
//! batches.
//!
//! ```text
//! | batch of a SnapshotHeader record | batches of metadata records ... | batch of a SnapshotFooter |
//! header value: i16 0 | i64 time of the last record | u8 0        footer value: i16 0 | u8 0
//! ```
//! A file has its name only once it is whole and synced. Two are kept, and the log is cut at the
//! older one's end: one that cannot be read costs a longer replay, nothing else.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use meta::{Image, MetadataRecord};
use reactor::{Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;
use tracing::{info, warn};
use wire::records::BatchBuilder;
use wire::records::control::ControlType;

use crate::BrokerError;

/// Records of one batch of a snapshot: what is encoded without a break for requests.
const BATCH_RECORDS: usize = 500;
/// Snapshots that are kept.
const KEPT: usize = 2;
const SUFFIX: &str = ".checkpoint";
/// Of one that could not be read: kept for whoever wants to look, and not counted.
const DAMAGED_SUFFIX: &str = ".damaged";
const PART_SUFFIX: &str = ".checkpoint.part";
const OFFSET_DIGITS: usize = 20;
const EPOCH_DIGITS: usize = 10;
const RECORD_VERSION: [u8; 2] = [0, 0];
/// An empty set of tagged fields.
const NO_TAGS: u8 = 0;

/// Which snapshot: everything below `end` of the log, whose last record was of `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SnapshotId {
    pub end: i64,
    pub epoch: i32,
}

impl SnapshotId {
    fn file_name(self) -> String {
        format!(
            "{:0offset$}-{:0epoch$}{SUFFIX}",
            self.end,
            self.epoch,
            offset = OFFSET_DIGITS,
            epoch = EPOCH_DIGITS
        )
    }

    fn parse(name: &str) -> Option<Self> {
        let (end, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|digit| digit.is_ascii_digit())
        };
        if !digits(end, OFFSET_DIGITS) || !digits(epoch, EPOCH_DIGITS) {
            return None;
        }
        Some(SnapshotId { end: end.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

/// The snapshots of a folder, newest first; none if the folder is not there yet. Removes what was
/// left half written.
pub(super) async fn list(dir: &Path) -> io::Result<Vec<SnapshotId>> {
    let entries = match fs::read_dir(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for entry in entries {
        if entry.name.ends_with(PART_SUFFIX) {
            fs::remove_file(&dir.join(&entry.name)).await?;
        }
        found.extend(SnapshotId::parse(&entry.name));
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The image of the newest snapshot that can be read.
pub(super) async fn load(
    dir: &Path,
    snapshots: &[SnapshotId],
    cluster_id: &str,
) -> Result<Option<Image>, BrokerError> {
    for id in snapshots {
        let path = dir.join(id.file_name());
        let in_dir = |source| BrokerError::DataDir { dir: dir.to_path_buf(), source };
        let bytes = fs::read(&path).await.map_err(in_dir)?;
        let read = decode(&bytes).and_then(|records| {
            Image::from_snapshot(cluster_id, id.end - 1, &records).map_err(|e| e.to_string())
        });
        match read {
            Ok(image) => return Ok(Some(image)),
            Err(damage) => {
                warn!("{} is not used: {damage}", path.display());
                set_aside(&path).await;
            }
        }
    }
    Ok(None)
}

/// It must not count as one of those that are kept. What fails is tried again at the next start.
async fn set_aside(path: &Path) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(DAMAGED_SUFFIX);
    if let Err(error) = fs::rename(path, Path::new(&aside)).await {
        warn!("{} could not be renamed: {error}", path.display());
    }
}

/// The records of a snapshot's bytes, if it is whole.
fn decode(bytes: &[u8]) -> Result<Vec<MetadataRecord>, String> {
    let mut records = Vec::new();
    let mut seen = (false, false);
    for batch in wire::records::batches(bytes) {
        let batch = batch.map_err(|e| e.to_string())?;
        batch.verify_crc().map_err(|e| e.to_string())?;
        let is_control = batch.header().attributes.is_control();
        let mut all = batch.records(super::DECOMPRESSED_BYTES_MAX).map_err(|e| e.to_string())?;
        while let Some(record) = all.next_record().map_err(|e| e.to_string())? {
            if is_control {
                match ControlType::from_key(record.key.unwrap_or_default()) {
                    Some(ControlType::SnapshotHeader) => seen.0 = true,
                    Some(ControlType::SnapshotFooter) => seen.1 = true,
                    _ => {}
                }
                continue;
            }
            let value = record.value.unwrap_or_default();
            records.push(MetadataRecord::from_bytes(value).map_err(|e| e.to_string())?);
        }
    }
    match seen {
        (true, true) => Ok(records),
        (false, _) => Err("it does not begin with the header of a snapshot".to_owned()),
        (_, false) => Err("it does not end with the footer of a snapshot".to_owned()),
    }
}

/// Writes the snapshot of an image; it is durable when this returns.
pub(super) async fn write(
    dir: &Path,
    image: &Image,
    epoch: i32,
    now_ms: i64,
) -> Result<SnapshotId, BrokerError> {
    let in_dir = |source| BrokerError::DataDir { dir: dir.to_path_buf(), source };
    let id = SnapshotId { end: image.offset() + 1, epoch };
    let part = dir.join(id.file_name() + ".part");
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let file = File::open(&part, options).await.map_err(in_dir)?;
    let mut out = Output { file, at: 0, next_offset: 0, epoch };
    let mut header = RECORD_VERSION.to_vec();
    header.extend_from_slice(&now_ms.to_be_bytes());
    header.push(NO_TAGS);
    out.control(ControlType::SnapshotHeader, &header, now_ms).await?.map_err(in_dir)?;
    let mut records = image.record_iter().peekable();
    while records.peek().is_some() {
        let mut builder = out.batch();
        for record in records.by_ref().take(BATCH_RECORDS) {
            builder.append(now_ms, None, Some(&record.to_bytes()?));
        }
        out.write(builder).await?.map_err(in_dir)?;
        // Requests come first.
        reactor::yield_now().await;
    }
    let footer = [&RECORD_VERSION[..], &[NO_TAGS]].concat();
    out.control(ControlType::SnapshotFooter, &footer, now_ms).await?.map_err(in_dir)?;
    let name = dir.join(id.file_name());
    finish(out.file, &part, &name).await.map_err(in_dir)?;
    info!("metadata up to offset {} is in {} ({} bytes)", image.offset(), name.display(), out.at);
    Ok(id)
}

async fn finish(file: File, part: &Path, name: &Path) -> io::Result<()> {
    file.sync_all().await?;
    file.close().await?;
    fs::rename(part, name).await?;
    match name.parent() {
        Some(dir) => fs::sync_dir(dir).await,
        None => Ok(()),
    }
}

/// The file that is written, batch behind batch.
struct Output {
    file: File,
    at: u64,
    next_offset: i64,
    epoch: i32,
}

impl Output {
    fn batch(&self) -> BatchBuilder {
        BatchBuilder::new().base_offset(self.next_offset).leader_epoch(self.epoch)
    }

    async fn control(
        &mut self,
        kind: ControlType,
        value: &[u8],
        now_ms: i64,
    ) -> Result<io::Result<()>, BrokerError> {
        let mut builder = self.batch().control(true);
        builder.append(now_ms, Some(&kind.key()), Some(value));
        self.write(builder).await
    }

    async fn write(&mut self, builder: BatchBuilder) -> Result<io::Result<()>, BrokerError> {
        let count = builder.len() as i64;
        let bytes = builder.build().map_err(|e| BrokerError::MetadataLog(e.to_string()))?;
        let len = bytes.len() as u64;
        let bufs = smallvec![WriteBuf::Bytes(Bytes::from(bytes))];
        let written = self.file.write_at(bufs, self.at, Durability::Written).await;
        self.at += len;
        self.next_offset += count;
        Ok(written)
    }
}

/// Removes snapshots beyond those that are kept. Returns where the oldest that is kept ends, if
/// there are as many as should be: the log below can go.
pub(super) async fn prune(dir: &Path) -> io::Result<Option<i64>> {
    let all = list(dir).await?;
    for id in all.iter().skip(KEPT) {
        fs::remove_file(&path_of(dir, *id)).await?;
    }
    Ok(all.get(KEPT - 1).map(|oldest| oldest.end))
}

fn path_of(dir: &Path, id: SnapshotId) -> PathBuf {
    dir.join(id.file_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas_and_read_back() {
        let id = SnapshotId { end: 4711, epoch: 1 };
        assert_eq!(id.file_name(), "00000000000000004711-0000000001.checkpoint");
        assert_eq!(SnapshotId::parse(&id.file_name()), Some(id));
        for name in ["corelane.checkpoint", "4711-1.checkpoint", "leader-epoch-checkpoint"] {
            assert_eq!(SnapshotId::parse(name), None, "{name}");
        }
        assert_eq!(SnapshotId::parse(&(id.file_name() + ".part")), None);
    }

    #[test]
    fn a_batch_that_swells_is_refused() {
        let mut batch = BatchBuilder::new().codec(wire::records::Codec::Zstd, Some(1));
        let zeros = vec![0; super::super::DECOMPRESSED_BYTES_MAX / 4];
        for _ in 0..4 {
            batch.append(0, None, Some(&zeros));
        }
        let bytes = batch.build().expect("a batch");
        assert!(bytes.len() < 1 << 20, "it is small as it lies");
        let refused = decode(&bytes).expect_err("it is larger than any batch of metadata");
        assert!(refused.contains("bytes"), "{refused}");
    }

    #[test]
    fn a_snapshot_reads_back_and_half_of_one_is_refused() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let dir = Path::new("/m");
            fs::create_dir_all(dir).await.expect("the disk works");
            let mut image = Image::new("c");
            for n in 0..(2 * BATCH_RECORDS as i64 + 7) {
                let name = format!("feature-{n}").into();
                let level = wire::messages::feature_level_record::FeatureLevelRecord {
                    name,
                    feature_level: 1,
                };
                image.apply(&level.into()).expect("a feature");
            }
            let id = write(dir, &image, 1, 5).await.expect("the disk works");
            assert_eq!(id.end, image.offset() + 1);
            let found = list(dir).await.expect("the disk works");
            assert_eq!(found, [id]);
            let read = load(dir, &found, "c").await.expect("it can be read");
            assert_eq!(read.as_ref(), Some(&image));
            let bytes = fs::read(&path_of(dir, id)).await.expect("the disk works");
            for cut in [0, 60, bytes.len() / 2, bytes.len() - 1] {
                assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            let mut flipped = bytes.clone();
            flipped[bytes.len() / 2] ^= 1;
            assert!(decode(&flipped).is_err());
        });
        assert!(ran.finished().is_some());
    }
}
