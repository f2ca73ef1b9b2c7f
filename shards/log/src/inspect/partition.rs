//! Checking the folder of one partition: every segment in order, then the small files.
//!
//! One pass over the batches; what it learns of producers, transactions and epochs is what the
//! snapshots, transaction indexes and checkpoints are held against.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use reactor::fs;
use wire::Uuid;

use super::replay::Replay;
use super::segment::{self, SegmentContext};
use super::{Batches, FileName, Findings, Severity, Step};
use crate::checkpoint::{self, Checkpoint};
use crate::checkpoints::{
    CLEANER_POINTS, GIVEN_UP, LEADER_EPOCHS, LOG_START_OFFSETS, PARTITION_METADATA,
    RECOVERY_POINTS, decode_epochs, decode_offsets, decode_partition_metadata, read_if_there,
    read_own_offset,
};
use crate::config::Vouched;
use crate::epochs::LeaderEpochs;
use crate::listed::Unmet;
use crate::names::{self, FileKind, file_path};
use crate::producer_state::ProducerStates;

/// What the data folder's checkpoints say of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartitionContext {
    pub recovery_point: Option<i64>,
    /// What is known from outside of the folder of how far the partition has gone.
    pub vouched: Vouched,
    /// Another broker may have had the folder since: our own checkpoints in it count only if they are
    /// of its topic, as it is now.
    pub foreign: bool,
}

/// What a partition's folder holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartitionSummary {
    pub segments: usize,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    /// Offset of the first segment.
    pub start: i64,
    /// The offset behind the last batch that can be read.
    pub end: i64,
    /// Nothing below may be read, by the partition's own checkpoints.
    pub log_start: i64,
    /// The latest leader epoch of its batches, -1 for none.
    pub leader_epoch: i32,
    pub topic_id: Option<Uuid>,
}

/// What the folder lists.
#[derive(Default)]
struct Listed {
    segments: Vec<i64>,
    snapshots: Vec<(i64, PathBuf)>,
    /// Files that belong to a segment, by its base.
    of_segments: Vec<(i64, PathBuf)>,
}

/// Walks a partition's folder and tells everything that does not fit.
///
/// # Errors
/// The folder or a file of it could not be read.
pub async fn verify_partition(
    dir: &Path,
    context: PartitionContext,
    findings: &mut Findings<'_>,
) -> io::Result<PartitionSummary> {
    let listed = list(dir, findings).await?;
    let topic_id = topic_id(dir, findings).await?;
    let epochs = epochs(dir, findings).await?;
    let own = Own::read(dir, topic_id, context.foreign, findings).await?;
    let mut replay = replay_from(dir, &listed, &epochs).await?;
    let mut summary = PartitionSummary { topic_id, ..PartitionSummary::default() };
    for (i, base) in listed.segments.iter().enumerate() {
        let segment = SegmentContext {
            dir,
            base: *base,
            next_base: listed.segments.get(i + 1).copied(),
            recovery_point: context.recovery_point.unwrap_or(0).max(own.point.unwrap_or(0)),
            aborted_saved_to: own.point.unwrap_or(i64::MAX),
        };
        let counted = segment::verify(&segment, &mut replay, findings).await?;
        summary.segments += 1;
        summary.batches += counted.batches;
        summary.records += counted.records;
        summary.bytes += counted.bytes;
        // A segment without batches still says where the log goes on.
        replay.next = Some(replay.next.unwrap_or(*base).max(*base));
    }
    summary.start = replay.first_base;
    summary.leader_epoch = replay.last_epoch;
    summary.log_start = own.start.unwrap_or(0).max(summary.start);
    summary.end = replay.next.unwrap_or(0);
    segment::pass_snapshots(&mut replay, summary.end, findings).await?;
    for (at, path) in &replay.snapshots {
        let text = format!("it is of offset {at}, but the log ends at {}", summary.end);
        findings.tell(Severity::Repairable, path, None, text);
    }
    check_epochs(dir, &epochs, summary.end, findings);
    own.check(dir, summary.end, findings).await?;
    check_vouched(dir, &context.vouched, &summary, findings).await?;
    for (base, path) in listed.of_segments {
        if !listed.segments.contains(&base) {
            findings.tell(Severity::Note, &path, None, "it belongs to no segment");
        }
    }
    Ok(summary)
}

/// What the partition's own checkpoints say of it.
struct Own {
    /// Where it is of this topic, or nobody else may have had the folder since.
    checkpoint: Option<Checkpoint>,
    is_other: bool,
    point: Option<i64>,
    start: Option<i64>,
}

impl Own {
    async fn read(
        dir: &Path,
        topic_id: Option<Uuid>,
        foreign: bool,
        findings: &mut Findings<'_>,
    ) -> io::Result<Own> {
        let read = own_checkpoint(dir, findings).await?;
        let other = read.as_ref().map(|own| own.topic_id).filter(|id| is_other(*id, topic_id));
        if let Some(id) = other {
            let severity = if foreign { Severity::Note } else { Severity::Damage };
            let text = format!("it is of topic {id}, the partition is not");
            findings.tell(severity, &dir.join(checkpoint::FILE), None, text);
            if foreign {
                return Ok(Own { checkpoint: None, is_other: true, point: None, start: None });
            }
        }
        let point = own_offset(dir, RECOVERY_POINTS, findings).await?;
        let start = own_offset(dir, LOG_START_OFFSETS, findings).await?;
        Ok(Own {
            point: point.max(read.as_ref().map(|own| own.recovery_point)),
            start: start.max(read.as_ref().map(|own| own.log_start)),
            checkpoint: read,
            is_other: other.is_some(),
        })
    }

    async fn check(self, dir: &Path, end: i64, findings: &mut Findings<'_>) -> io::Result<()> {
        let file = if self.checkpoint.is_some() { checkpoint::FILE } else { RECOVERY_POINTS };
        for (file, offset) in [(file, self.point), (LOG_START_OFFSETS, self.start)] {
            if let Some(offset) = offset.filter(|offset| *offset > end) {
                let text = format!("offset {offset} lies beyond the end of the log at {end}");
                findings.tell(Severity::Damage, &dir.join(file), None, text);
            }
        }
        match self.checkpoint.filter(|_| !self.is_other) {
            Some(own) => check_listed(dir, own, self.start.unwrap_or(0), findings).await,
            None => Ok(()),
        }
    }
}

/// The state with which the walk over the segments begins.
async fn replay_from(dir: &Path, listed: &Listed, epochs: &[EpochLine]) -> io::Result<Replay> {
    let first_base = listed.segments.first().copied().unwrap_or(0);
    let (producers, from_snapshot) = producers_at(dir, first_base).await?;
    Ok(Replay {
        producers,
        complete: from_snapshot || first_base == 0,
        holes: false,
        next: None,
        first_base,
        last_epoch: -1,
        epochs: LeaderEpochs::from_entries(epochs.iter().map(|(_, entry)| *entry)),
        unknown_epoch_told: false,
        snapshots: listed.snapshots.clone(),
    })
}

/// Holds the end of the log against what is vouched for from outside: an opening would refuse it.
async fn check_vouched(
    dir: &Path,
    vouched: &Vouched,
    summary: &PartitionSummary,
    findings: &mut Findings<'_>,
) -> io::Result<()> {
    let path = dir.join(GIVEN_UP);
    let settled = match read_if_there(&path).await? {
        Some(bytes) if bytes.trim_ascii().is_empty() => {
            let text = "the next opening gives up what is missing";
            findings.tell(Severity::Note, &path, None, text);
            return Ok(());
        }
        Some(_) => read_own_offset(dir, GIVEN_UP).await?.unwrap_or(0),
        None => 0,
    };
    let safe_to = vouched.synced_end.max(vouched.written_end);
    let end = if summary.bytes > 0 { summary.end } else { 0 };
    if safe_to > end.max(settled).max(summary.log_start).max(vouched.log_start) {
        let text = format!("the log ends at {end}, but {safe_to} was safe");
        findings.tell(Severity::Damage, dir, None, text);
    }
    Ok(())
}

/// Holds the folder against what its checkpoint vouches for: an opening would refuse it. What a running
/// broker changes meanwhile is no finding.
async fn check_listed(
    dir: &Path,
    mut own: Checkpoint,
    mut log_start: i64,
    findings: &mut Findings<'_>,
) -> io::Result<()> {
    loop {
        let mut sizes = HashMap::new();
        for listed in &own.segments {
            match fs::metadata(&file_path(dir, FileKind::Log, listed.base)).await {
                Ok(file) => drop(sizes.insert(listed.base, file.size)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let unmet: Vec<Unmet> = own.unmet(log_start, |base| sizes.get(&base).copied()).collect();
        if unmet.is_empty() {
            return Ok(());
        }
        let now = read_if_there(&dir.join(checkpoint::FILE)).await?;
        let now = now.and_then(|bytes| Checkpoint::decode(&bytes).ok());
        let start = read_own_offset(dir, LOG_START_OFFSETS).await?.unwrap_or(0);
        if now.as_ref() == Some(&own) && start <= log_start {
            for unmet in unmet {
                let path = file_path(dir, FileKind::Log, unmet.base);
                findings.tell(Severity::Damage, &path, unmet.found, unmet.problem());
            }
            return Ok(());
        }
        let Some(now) = now else { return Ok(()) };
        own = now;
        log_start = log_start.max(start);
    }
}

/// No epoch starts behind the end of the log.
fn check_epochs(dir: &Path, epochs: &[EpochLine], end: i64, findings: &mut Findings<'_>) {
    for (position, entry) in epochs.iter().filter(|(_, entry)| entry.start_offset > end) {
        let text = format!(
            "epoch {} starts at {}, but the log ends at {end}",
            entry.epoch, entry.start_offset
        );
        let path = dir.join(LEADER_EPOCHS);
        findings.tell(Severity::Repairable, &path, Some(*position), text);
    }
}

async fn list(dir: &Path, findings: &mut Findings<'_>) -> io::Result<Listed> {
    let mut listed = Listed::default();
    for entry in fs::read_dir(dir).await? {
        let path = dir.join(&entry.name);
        match FileName::of(&entry.name) {
            _ if entry.is_dir => {
                findings.tell(Severity::Note, &path, None, "a folder within a partition");
            }
            FileName::Segment(base) => listed.segments.push(base),
            FileName::Snapshot(at) => listed.snapshots.push((at, path)),
            FileName::OffsetIndex(base) | FileName::TimeIndex(base) | FileName::TxnIndex(base) => {
                listed.of_segments.push((base, path));
            }
            FileName::Leftover => {
                let text = "a leftover that the next opening removes or finishes";
                findings.tell(Severity::Note, &path, None, text);
            }
            FileName::Other if is_known(&entry.name) => {}
            FileName::Other if names::parse_aside(&entry.name).is_some() => {
                let text = "records that were set aside when the log was found damaged before them";
                findings.tell(Severity::Note, &path, None, text);
            }
            FileName::Other => {
                findings.tell(Severity::Note, &path, None, "not a file of a partition");
            }
        }
    }
    listed.segments.sort_unstable();
    listed.snapshots.sort_unstable_by(|a, b| b.cmp(a));
    Ok(listed)
}

fn is_known(name: &str) -> bool {
    let files = [checkpoint::FILE, LEADER_EPOCHS, PARTITION_METADATA];
    files.contains(&name)
        || [RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_POINTS, GIVEN_UP].contains(&name)
        || ["quorum-state", "corelane.moved"].contains(&name)
        || name.ends_with(".checkpoint")
}

async fn topic_id(dir: &Path, findings: &mut Findings<'_>) -> io::Result<Option<Uuid>> {
    let path = dir.join(PARTITION_METADATA);
    let Some(bytes) = read_if_there(&path).await? else { return Ok(None) };
    match decode_partition_metadata(&bytes) {
        Ok(id) => Ok(Some(id)),
        Err(damage) => {
            findings.tell(Severity::Damage, &path, Some(0), damage.to_string());
            Ok(None)
        }
    }
}

type EpochLine = (u64, crate::epochs::EpochStart);

/// The entries, each with the position of its line.
async fn epochs(dir: &Path, findings: &mut Findings<'_>) -> io::Result<Vec<EpochLine>> {
    let path = dir.join(LEADER_EPOCHS);
    let read = read_if_there(&path).await?.filter(|bytes| !bytes.is_empty());
    let Some(bytes) = read else { return Ok(Vec::new()) };
    let entries = match decode_epochs(&bytes) {
        Ok(entries) => entries,
        Err(damage) => {
            findings.tell(Severity::Repairable, &path, Some(0), damage.to_string());
            return Ok(Vec::new());
        }
    };
    let mut lines = Vec::with_capacity(entries.len());
    // Two lines lead.
    let mut starts = line_starts(&bytes).skip(2);
    let mut last: Option<crate::epochs::EpochStart> = None;
    for entry in entries {
        let position = starts.next().unwrap_or(0);
        let grows = last
            .is_none_or(|last| entry.epoch > last.epoch && entry.start_offset > last.start_offset);
        if !grows || entry.epoch < 0 || entry.start_offset < 0 {
            let text = format!("epoch {} from {} does not grow", entry.epoch, entry.start_offset);
            findings.tell(Severity::Damage, &path, Some(position), text);
        }
        last = Some(entry);
        lines.push((position, entry));
    }
    Ok(lines)
}

fn line_starts(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let after = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    std::iter::once(0).chain(after.map(|(at, _)| at as u64 + 1))
}

/// The offset of one of the partition's own checkpoints.
async fn own_offset(
    dir: &Path,
    file: &str,
    findings: &mut Findings<'_>,
) -> io::Result<Option<i64>> {
    let path = dir.join(file);
    let read = read_if_there(&path).await?.filter(|bytes| !bytes.is_empty());
    let Some(bytes) = read else { return Ok(None) };
    match decode_offsets(&bytes) {
        Ok(lines) => Ok(lines.first().map(|line| line.offset)),
        Err(damage) => {
            findings.tell(Severity::Repairable, &path, Some(0), damage.to_string());
            Ok(None)
        }
    }
}

/// Our own checkpoint of a partition, if there is one that can be read.
async fn own_checkpoint(dir: &Path, findings: &mut Findings<'_>) -> io::Result<Option<Checkpoint>> {
    let path = dir.join(checkpoint::FILE);
    let Some(bytes) = read_if_there(&path).await? else { return Ok(None) };
    match Checkpoint::decode(&bytes) {
        Ok(own) => Ok(Some(own)),
        Err(damage) => {
            findings.tell(Severity::Repairable, &path, Some(0), damage.to_string());
            Ok(None)
        }
    }
}

/// Whether a checkpoint is of another topic than the folder.
fn is_other(id: Uuid, topic_id: Option<Uuid>) -> bool {
    !id.is_zero() && topic_id.is_some_and(|known| known != id)
}

/// What `corelane.checkpoint` says, in names and numbers.
///
/// # Errors
/// Why it cannot be read.
pub fn describe_checkpoint(bytes: &[u8]) -> Result<CheckpointView, String> {
    let own = Checkpoint::decode(bytes).map_err(|damage| damage.to_string())?;
    Ok(CheckpointView {
        topic_id: own.topic_id,
        log_start: own.log_start,
        recovery_point: own.recovery_point,
        segment: own.end.base,
        position: own.end.position,
        newest_timestamp: own.end.newest.timestamp,
        index_entries: own.end.entries.offsets,
        time_index_entries: own.end.entries.times,
        epochs: own.epochs,
        listed_segments: own.segments.len(),
        listed_bytes: own.segments.iter().map(|listed| u64::from(listed.bytes)).sum(),
        earlier_batches_bytes: own.earlier.len(),
    })
}

/// The fields of `corelane.checkpoint` that say something to a reader.
#[derive(Clone, Debug)]
pub struct CheckpointView {
    pub topic_id: Uuid,
    pub log_start: i64,
    pub recovery_point: i64,
    /// Base offset of the last segment.
    pub segment: i64,
    /// Where the recovery point lies in it.
    pub position: u32,
    pub newest_timestamp: i64,
    pub index_entries: usize,
    pub time_index_entries: usize,
    pub epochs: Vec<crate::epochs::EpochStart>,
    /// Segments that it vouches for, and the bytes in them.
    pub listed_segments: usize,
    pub listed_bytes: u64,
    /// Bytes of what it keeps of producers besides their last batches.
    pub earlier_batches_bytes: usize,
}

/// Producers as of the first segment, if a snapshot says; and whether one does.
async fn producers_at(dir: &Path, base: i64) -> io::Result<(ProducerStates, bool)> {
    let bytes = read_if_there(&file_path(dir, FileKind::Snapshot, base)).await?;
    match bytes.as_deref().map(ProducerStates::decode) {
        Some(Ok(producers)) => Ok((producers, true)),
        _ => Ok((ProducerStates::default(), false)),
    }
}

/// Walks a file of metadata records (a snapshot of the metadata log, or what a format wrote).
pub async fn verify_metadata_snapshot(path: &Path, findings: &mut Findings<'_>) -> io::Result<()> {
    let mut batches = Batches::open(path).await?;
    let mut next = None;
    loop {
        match batches.next().await? {
            Step::Batch(batch) => {
                let position = Some(u64::from(batch.position));
                if !batch.valid {
                    let text = "the checksum of a batch is wrong";
                    findings.tell(Severity::Damage, path, position, text);
                }
                if next.is_some_and(|next| batch.header.base_offset < next) {
                    let text = format!("offset {} does not grow", batch.header.base_offset);
                    findings.tell(Severity::Damage, path, position, text);
                }
                next = Some(batch.header.next_offset());
            }
            Step::End => return Ok(()),
            Step::Zeros { .. } => {
                let text = "zeros where a batch should be";
                findings.tell(Severity::Damage, path, Some(batches.position()), text);
                return Ok(());
            }
            Step::Damage(problem) => {
                findings.tell(Severity::Damage, path, Some(batches.position()), problem);
                return Ok(());
            }
        }
    }
}
