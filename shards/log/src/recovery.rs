//! Opening a log: from files to state, after a clean shutdown or a crash.
//!
//! Owns: the decision what to trust, what to read again and what to cut off.
//!
//! | found | done |
//! |---|---|
//! | clean shutdown | only the end of the last segment is walked, from its last index entry |
//! | crash | everything from the recovery point (or the producer snapshot before it) is read |
//! | bad checksum, wrong offset, zeros, half a batch | the log ends there; later segments go |
//! | the same below the recovery point | likewise, with an error that says how much was lost |
//! | index missing or damaged | made anew, now if the segment is read anyway, else when needed |
//! | snapshot damaged | the next older one and a longer walk |
//!
//! Damage in segments that are not read here is not looked for.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::{ALIGN, AlignedBuf, File, OpenOptions, fs};
use wire::records::BatchHeader;

use crate::append::{marker, producer_batch};
use crate::checkpoints::{
    LEADER_EPOCHS, LOG_START_OFFSETS, RECOVERY_POINTS, decode_epochs, read_if_there,
    read_own_offset,
};
use crate::config::{LogConfig, OpenHint, Recovered};
use crate::core::{Core, State};
use crate::epochs::LeaderEpochs;
use crate::error::{LogError, StorageError};
use crate::files::remove_if_there;
use crate::indexes;
use crate::names::{self, FileKind, Found as Name, file_path};
use crate::producer_state::ProducerStates;
use crate::scan::{Found, Scanner};
use crate::segment::{Indexes, Newest, Segment};
use crate::shared::LogShared;
use crate::tail::{BLOCK, Tail, block_floor};

pub(crate) async fn open(
    shared: &LogShared,
    dir: PathBuf,
    config: LogConfig,
    hint: OpenHint,
    now_ms: i64,
) -> Result<(Rc<Core>, Recovered), LogError> {
    let name = Rc::from(dir.display().to_string());
    let mut opening = Opening {
        dir,
        name,
        config,
        now_ms,
        epochs: LeaderEpochs::default(),
        producers: ProducerStates::default(),
        report: Recovered::default(),
    };
    let state = opening.run(hint).await?;
    opening.report.log_end_offset = state.log_end();
    let core = Core::new(shared, &opening.dir, state);
    Ok((core, opening.report))
}

struct Opening {
    dir: PathBuf,
    name: Rc<str>,
    config: LogConfig,
    now_ms: i64,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    report: Recovered,
}

/// A segment file that was found.
#[derive(Clone, Copy, Debug)]
struct OnDisk {
    base: i64,
    size: u32,
}

/// What the folder holds.
#[derive(Default)]
struct Inventory {
    /// By growing base offset.
    segments: Vec<OnDisk>,
    /// Newest first.
    snapshots: Vec<i64>,
}

/// How a walk through a segment ended.
enum Ending {
    /// Exactly at the end of the file.
    Complete,
    /// At zeros: the prepared end of the last segment, or of one that a crash kept from its trim.
    Zeros,
    /// At something else that is no batch of this log.
    Cut(String),
}

/// What a walk takes for granted.
#[derive(Clone, Copy)]
struct Trust {
    /// Check the checksum of every batch.
    verify: bool,
    /// Offsets may leave holes (compaction).
    holes: bool,
    /// Batches that start below are part of the loaded producer state.
    producers_from: i64,
}

impl Opening {
    async fn run(&mut self, hint: OpenHint) -> Result<State, LogError> {
        self.create_dir().await?;
        let inventory = self.take_inventory().await?;
        let log_start = hint.log_start_offset.max(self.saved_offset(LOG_START_OFFSETS).await?);
        let recovery_point = hint.recovery_point.max(self.saved_offset(RECOVERY_POINTS).await?);
        self.epochs = self.saved_epochs().await?;
        if hint.whole && inventory.segments.is_empty() && recovery_point > 0 {
            return Err(self.incomplete(0, 0, "every segment is missing"));
        }
        let clean = if hint.clean { self.open_clean(&inventory).await? } else { None };
        let (segments, synced) = match clean {
            Some(segments) => (segments, true),
            None => (self.open_unclean(&inventory, recovery_point, hint.whole).await?, false),
        };
        let (segments, log_start) = self.start_at(segments, log_start, &inventory).await?;
        let mut state = State::new(self.config.clone(), segments);
        let end = state.log_end();
        state.log_start = log_start;
        // A folder that is there may be one that an earlier process made and never synced: only a
        // sync of its parent, when something in it must last, makes sure.
        state.dir_name_unsynced = true;
        // A crash may have come between the making of a file and the sync of its name.
        state.names_unsynced = !synced;
        self.epochs.truncate_end(end);
        state.epochs = std::mem::take(&mut self.epochs);
        state.producers = std::mem::take(&mut self.producers);
        state.recovery_point =
            if synced { end } else { recovery_point.clamp(log_start.min(end), end) };
        state.changed_since_flush = state.recovery_point < end;
        state.epochs_changed = !synced;
        state.flushed_snapshot = self.remove_stray_snapshots(&inventory, &state).await?;
        Ok(state)
    }

    fn fail(&self, during: &'static str, cause: io::Error) -> LogError {
        StorageError { dir: self.name.clone(), during, cause: Rc::new(cause) }.into()
    }

    /// The name of a new folder is synced when something in it must last.
    async fn create_dir(&self) -> Result<(), LogError> {
        let created = async {
            if !fs::exists(&self.dir).await? {
                fs::create_dir_all(&self.dir).await?;
            }
            Ok(())
        };
        created.await.map_err(|error| self.fail("creating the folder of a partition", error))
    }

    /// The log lacks what it must have; nothing of it was touched.
    fn incomplete(&self, base: i64, position: u32, problem: &str) -> LogError {
        let file = file_path(&self.dir, FileKind::Log, base);
        let problem = format!("{problem}, though more was written; put it back from a copy");
        LogError::Corrupt { file: file.display().to_string(), position: position.into(), problem }
    }

    /// Lists the folder and removes what a crash left half made or half deleted.
    async fn take_inventory(&self) -> Result<Inventory, LogError> {
        let list = async {
            let mut inventory = Inventory::default();
            for entry in fs::read_dir(&self.dir).await? {
                match names::classify(&entry.name) {
                    Name::Of(FileKind::Log, base) => {
                        let size = fs::metadata(&self.dir.join(&entry.name)).await?.size;
                        let size = u32::try_from(size).map_err(|_| {
                            io::Error::other(format!("{} is larger than a segment", entry.name))
                        })?;
                        inventory.segments.push(OnDisk { base, size });
                    }
                    Name::Of(FileKind::Snapshot, at) => inventory.snapshots.push(at),
                    Name::Leftover => remove_if_there(&self.dir.join(&entry.name)).await?,
                    Name::Of(..) | Name::Other => {}
                }
            }
            inventory.segments.sort_unstable_by_key(|s| s.base);
            inventory.snapshots.sort_unstable_by(|a, b| b.cmp(a));
            Ok(inventory)
        };
        list.await.map_err(|error| self.fail("listing a partition", error))
    }

    /// An offset that this partition's own checkpoint has, 0 if none.
    async fn saved_offset(&self, file: &str) -> Result<i64, LogError> {
        let read = read_own_offset(&self.dir, file).await;
        read.map_err(|error| self.fail("reading a checkpoint of a partition", error))
    }

    async fn saved_epochs(&self) -> Result<LeaderEpochs, LogError> {
        let read = read_if_there(&self.dir.join(LEADER_EPOCHS)).await;
        let bytes = read.map_err(|error| self.fail("reading the leader epochs", error))?;
        match bytes.as_deref().map(decode_epochs) {
            None => Ok(LeaderEpochs::default()),
            Some(Ok(entries)) => Ok(LeaderEpochs::from_entries(entries)),
            Some(Err(damage)) => {
                tracing::warn!(log = %self.name, "{LEADER_EPOCHS} not used: {damage}");
                Ok(LeaderEpochs::default())
            }
        }
    }

    /// After a clean shutdown. `None` if the last segment contradicts that.
    async fn open_clean(
        &mut self,
        inventory: &Inventory,
    ) -> Result<Option<VecDeque<Segment>>, LogError> {
        let Some((last, sealed)) = inventory.segments.split_last() else {
            return Ok(Some(VecDeque::new()));
        };
        let trust = Trust { verify: false, holes: true, producers_from: i64::MAX };
        let start = self.trusted_start(*last, i64::MAX).await?;
        let (active, ending) = self.walk(*last, start, trust).await?;
        if !matches!(ending, Ending::Complete) {
            tracing::warn!(log = %self.name, segment = last.base, size = last.size,
                position = active.size, "recovering after all, the shutdown was not clean");
            self.report = Recovered::default();
            return Ok(None);
        }
        self.report.bytes_scanned = 0;
        let next_bases = inventory.segments.iter().skip(1).map(|s| s.base);
        let mut segments: VecDeque<Segment> = sealed
            .iter()
            .zip(next_bases)
            .map(|(s, next)| Segment::on_disk(s.base, next, s.size))
            .collect();
        let end = active.next_offset;
        segments.push_back(active);
        let from = self.load_snapshot(inventory, end).await?;
        self.replay(&inventory.segments, from.unwrap_or(0), end).await?;
        Ok(Some(segments))
    }

    /// Reads headers from `from` on to complete the producer state.
    async fn replay(&mut self, segments: &[OnDisk], from: i64, end: i64) -> Result<(), LogError> {
        if from >= end {
            return Ok(());
        }
        let first = segments.partition_point(|s| s.base <= from).saturating_sub(1);
        let trust = Trust { verify: false, holes: true, producers_from: from };
        for segment in segments.iter().skip(first) {
            let start = self.trusted_start(*segment, from).await?;
            self.walk(*segment, start, trust).await?;
        }
        Ok(())
    }

    async fn open_unclean(
        &mut self,
        inventory: &Inventory,
        recovery_point: i64,
        whole: bool,
    ) -> Result<VecDeque<Segment>, LogError> {
        let on_disk = &inventory.segments;
        let mut segments = VecDeque::new();
        let Some(oldest) = on_disk.first() else { return Ok(segments) };
        let from_snapshot = self.load_snapshot(inventory, recovery_point).await?;
        let from = recovery_point.min(from_snapshot.unwrap_or(oldest.base)).max(oldest.base);
        let first = on_disk.partition_point(|s| s.base <= from).saturating_sub(1);
        for (i, segment) in on_disk.iter().enumerate() {
            let next = on_disk.get(i + 1).copied();
            if i < first {
                let next_base = next.map_or(segment.base, |n| n.base);
                segments.push_back(Segment::on_disk(segment.base, next_base, segment.size));
                continue;
            }
            let old = next.is_some_and(|n| n.base <= recovery_point);
            let trust = Trust {
                verify: true,
                holes: self.config.compact || old,
                producers_from: from_snapshot.unwrap_or(oldest.base),
            };
            let start = match i == first {
                true => self.trusted_start(*segment, from).await?,
                false => Start::beginning(segment.base),
            };
            let (read, ending) = self.walk(*segment, start, trust).await?;
            let ending = ending.before(&read, next, trust.holes);
            let complete = matches!(ending, Ending::Complete);
            let is_end = !complete || next.is_none();
            if whole && is_end && read.next_offset < recovery_point {
                return Err(self.incomplete(segment.base, read.size, ending.problem()));
            }
            segments.push_back(read);
            self.settle(&mut segments, *segment, ending, next.is_some() && complete).await?;
            if !complete {
                let later = on_disk.get(i + 1..).unwrap_or_default();
                self.remove_later(later, recovery_point, &segments).await?;
                break;
            }
        }
        Ok(segments)
    }

    /// Cuts the file of the segment that was just read to what is good, and syncs it.
    async fn settle(
        &mut self,
        segments: &mut VecDeque<Segment>,
        on_disk: OnDisk,
        ending: Ending,
        seal: bool,
    ) -> Result<(), LogError> {
        let Some(segment) = segments.back_mut() else { return Ok(()) };
        let Some(file) = segment.file.clone() else { return Ok(()) };
        if segment.size < on_disk.size {
            let mut rest = Scanner::new(file.clone(), segment.size, on_disk.size);
            let last = rest.last_nonzero().await;
            let last = last.map_err(|error| self.fail("reading the end of a segment", error))?;
            let lost = last - u64::from(segment.size);
            self.report.truncated_bytes += lost;
            if lost > 0 {
                tracing::warn!(log = %self.name, segment = segment.base, position = segment.size,
                    next_offset = segment.next_offset, lost, "cut the end of a segment: {}", ending.problem());
            }
            file.set_len(u64::from(segment.size))
                .await
                .map_err(|error| self.fail("trimming a segment", error))?;
        }
        file.sync_all().await.map_err(|error| self.fail("syncing a recovered segment", error))?;
        if seal {
            segment.full = true;
            segment.finish_times();
            if let Some(indexes) = &segment.indexes {
                // Not written, they stay in memory: a full disk must not keep a log from opening.
                if let Err(error) =
                    indexes::save(&self.dir, segment.base, indexes, 0, 0, true).await
                {
                    tracing::warn!(log = %self.name, segment = segment.base,
                        "index not written: {error}");
                }
                self.report.indexes_rebuilt += 1;
            }
            segment.tail = Tail::after(0, Vec::new());
            segment.file = None;
            segment.sealed = true;
        }
        Ok(())
    }

    /// Removes the segments behind the one where the log now ends.
    async fn remove_later(
        &mut self,
        later: &[OnDisk],
        recovery_point: i64,
        segments: &VecDeque<Segment>,
    ) -> Result<(), LogError> {
        let end = segments.back().map_or(0, |s| s.next_offset);
        let bytes: u64 = later.iter().map(|s| u64::from(s.size)).sum();
        if end < recovery_point {
            tracing::error!(log = %self.name, end, recovery_point, segments = later.len(), bytes,
                "damage below the recovery point: offsets from {end} on are lost");
        } else if !later.is_empty() {
            tracing::warn!(log = %self.name, end, segments = later.len(), bytes,
                "removed segments behind the end of the log");
        }
        for segment in later {
            self.report.segments_removed += 1;
            self.report.truncated_bytes += u64::from(segment.size);
            for kind in FileKind::OF_SEGMENT {
                remove_if_there(&file_path(&self.dir, kind, segment.base))
                    .await
                    .map_err(|error| self.fail("removing a segment", error))?;
            }
        }
        Ok(())
    }

    /// Applies the start of the log; makes a first segment where there is none.
    async fn start_at(
        &mut self,
        mut segments: VecDeque<Segment>,
        wanted: i64,
        inventory: &Inventory,
    ) -> Result<(VecDeque<Segment>, i64), LogError> {
        let end = segments.back().map(|s| s.next_offset);
        if end.is_none_or(|end| end < wanted) {
            if let Some(end) = end {
                tracing::warn!(log = %self.name, end, wanted,
                    "the log ends before its start: it goes on, empty, at its start");
                self.remove_later(&inventory.segments, i64::MIN, &segments).await?;
            }
            segments.clear();
            self.producers = ProducerStates::default();
            let mut first = Segment::new(wanted, self.now_ms, 0);
            if wanted > 0 {
                // The name of the file is what remembers the offset.
                let file = self.open_file(wanted, true).await?;
                let synced = async {
                    file.sync_all().await?;
                    fs::sync_dir(&self.dir).await
                };
                synced.await.map_err(|error| self.fail("making a segment", error))?;
                first.file = Some(file);
                first.exists = true;
            }
            segments.push_back(first);
        }
        let oldest = segments.front().map_or(wanted, |s| s.base);
        let log_start = wanted.max(oldest);
        Ok((segments, log_start))
    }

    /// Loads the newest usable snapshot at or below `limit`; its offset.
    async fn load_snapshot(
        &mut self,
        inventory: &Inventory,
        limit: i64,
    ) -> Result<Option<i64>, LogError> {
        for at in inventory.snapshots.iter().copied().filter(|at| *at <= limit) {
            let path = file_path(&self.dir, FileKind::Snapshot, at);
            let bytes = fs::read(&path).await;
            let bytes = bytes.map_err(|error| self.fail("reading a producer snapshot", error))?;
            match ProducerStates::decode(&bytes) {
                Ok(producers) => {
                    self.producers = producers;
                    return Ok(Some(at));
                }
                Err(damage) => {
                    tracing::warn!(log = %self.name, offset = at, "snapshot removed: {damage}");
                    let removed = remove_if_there(&path).await;
                    removed.map_err(|error| self.fail("removing a snapshot", error))?;
                }
            }
        }
        self.producers = ProducerStates::default();
        Ok(None)
    }

    /// Keeps the snapshots at the starts of segments and the newest other one, which is returned.
    async fn remove_stray_snapshots(
        &self,
        inventory: &Inventory,
        state: &State,
    ) -> Result<Option<i64>, LogError> {
        let mut newest = None;
        for at in inventory.snapshots.iter().copied() {
            if state.segment(at).is_some() {
                continue;
            }
            if newest.is_none() && (state.log_start..=state.log_end()).contains(&at) {
                newest = Some(at);
                continue;
            }
            remove_if_there(&file_path(&self.dir, FileKind::Snapshot, at))
                .await
                .map_err(|error| self.fail("removing a snapshot", error))?;
        }
        Ok(newest)
    }

    async fn open_file(&self, base: i64, create: bool) -> Result<File, LogError> {
        let options =
            OpenOptions { read: true, write: true, create, direct: true, ..OpenOptions::default() };
        File::open(&file_path(&self.dir, FileKind::Log, base), options)
            .await
            .map_err(|error| self.fail("opening a segment", error))
    }
}

/// Where a walk through a segment starts, with what is known of the part before.
struct Start {
    position: u32,
    /// The offset of the batch there, if it must be that one.
    expected: Option<i64>,
    indexes: Indexes,
}

impl Start {
    fn beginning(base: i64) -> Start {
        Start { position: 0, expected: Some(base), indexes: Indexes::default() }
    }
}

impl Ending {
    fn problem(&self) -> &str {
        match self {
            Ending::Complete => "nothing is wrong",
            Ending::Zeros => "zeros where a batch should be",
            Ending::Cut(problem) => problem,
        }
    }

    /// A segment is complete only if the next one goes on where it ends.
    fn before(self, read: &Segment, next: Option<OnDisk>, holes: bool) -> Ending {
        let Some(next) = next else { return self };
        let end = read.next_offset;
        match self {
            Ending::Zeros if end == next.base => Ending::Complete,
            Ending::Complete if end == next.base || (holes && end < next.base) => self,
            Ending::Complete | Ending::Zeros => Ending::Cut(format!(
                "it ends at offset {end} but the next segment starts at {}",
                next.base
            )),
            Ending::Cut(_) => self,
        }
    }
}

impl Opening {
    /// The last index entry for batches below `limit`, if the files can be trusted that far.
    async fn trusted_start(&self, segment: OnDisk, limit: i64) -> Result<Start, LogError> {
        let beginning = Start::beginning(segment.base);
        let read = indexes::read(&self.dir, segment.base, segment.size, i64::MAX).await;
        let read = read.map_err(|error| self.fail("reading an index", error))?;
        let mut indexes = match read {
            Ok(indexes) => indexes,
            Err(damage) => {
                if segment.size > 0 {
                    tracing::debug!(log = %self.name, segment = segment.base,
                        "index not used: {damage}");
                }
                return Ok(beginning);
            }
        };
        let span = u32::try_from(limit.saturating_sub(segment.base).max(0)).unwrap_or(u32::MAX);
        indexes.offsets.truncate_offsets(span);
        let Some(entry) = indexes.offsets.last() else { return Ok(beginning) };
        indexes.times.truncate(entry.offset + 1);
        let file = self.open_file(segment.base, false).await?;
        let mut scanner = Scanner::new(file, entry.position, segment.size);
        let found = scanner.next(false).await;
        let found = found.map_err(|error| self.fail("reading a segment", error))?;
        match found {
            Found::Batch(header, position)
                if header.last_offset() - segment.base == i64::from(entry.offset) =>
            {
                Ok(Start { position, expected: None, indexes })
            }
            _ => {
                tracing::warn!(log = %self.name, segment = segment.base,
                    "index not used: its last entry does not point at its batch");
                Ok(beginning)
            }
        }
    }

    /// Reads batches from `start` to the end of the file or of what is good.
    async fn walk(
        &mut self,
        on_disk: OnDisk,
        start: Start,
        trust: Trust,
    ) -> Result<(Segment, Ending), LogError> {
        let file = self.open_file(on_disk.base, false).await?;
        let mut segment = Segment::new(on_disk.base, self.now_ms, 0);
        if let Some(entry) = start.indexes.times.last() {
            let offset = segment.base + i64::from(entry.offset);
            segment.newest = Some(Newest { timestamp: entry.timestamp, offset });
        }
        segment.indexes = Some(Rc::new(start.indexes));
        if start.position > 0 {
            segment.first_timestamp = self.first_timestamp(&file, on_disk.size).await?;
        }
        let mut scanner = Scanner::new(file.clone(), start.position, on_disk.size);
        let mut expected = start.expected;
        let ending = loop {
            let found = scanner.next(trust.verify).await;
            let found = found.map_err(|error| self.fail("reading a segment", error))?;
            let (header, position) = match found {
                Found::Batch(header, position) => (header, position),
                Found::End => break Ending::Complete,
                Found::Zeros => break Ending::Zeros,
                Found::Damage(problem) => break Ending::Cut(problem),
            };
            let base = header.base_offset;
            let follows = expected.is_none_or(|e| base == e || (trust.holes && base > e));
            let span = header.last_offset() - segment.base;
            if !follows || !(0..=i64::from(i32::MAX)).contains(&span) {
                let expected = expected.unwrap_or(segment.base);
                break Ending::Cut(format!("a batch has offset {base} where {expected} is next"));
            }
            segment.note_batch(&header, position, self.config.index_interval_bytes);
            segment.size = position + header.size_in_bytes() as u32;
            expected = Some(header.next_offset());
            if base >= trust.producers_from {
                self.replay_producer(&header, position, &mut scanner).await?;
            }
            self.epochs.replay(header.partition_leader_epoch, base);
        };
        self.report.bytes_scanned += u64::from(segment.size.max(start.position) - start.position);
        let size = segment.size.max(start.position);
        segment.size = size;
        segment.written = size;
        segment.visible = size;
        segment.synced = size;
        segment.prepared_end = size;
        segment.exists = true;
        segment.tail = Tail::after(size, self.last_block(&file, size).await?);
        segment.file = Some(file);
        Ok((segment, ending))
    }

    /// What a batch read again says of its producer.
    async fn replay_producer(
        &mut self,
        header: &BatchHeader,
        position: u32,
        scanner: &mut Scanner,
    ) -> Result<(), LogError> {
        if let Some(batch) = producer_batch(header) {
            self.producers.update(&batch);
        } else if header.attributes.is_control() {
            let bytes = scanner.small_batch(header, position).await;
            let bytes = bytes.map_err(|error| self.fail("reading a segment", error))?;
            if let Some(marker) = bytes.and_then(|bytes| marker(header, bytes)) {
                self.producers.end_transaction(&marker);
            }
        }
        Ok(())
    }

    /// The timestamp from which the segment's age counts.
    async fn first_timestamp(&self, file: &File, size: u32) -> Result<i64, LogError> {
        let mut scanner = Scanner::new(file.clone(), 0, size.min(2 * BLOCK));
        match scanner.next(false).await {
            Ok(Found::Batch(header, _)) => Ok(header.max_timestamp),
            Ok(_) => Ok(crate::segment::NO_TIMESTAMP),
            Err(error) => Err(self.fail("reading a segment", error)),
        }
    }

    /// The bytes of the last partial block, which the next write repeats.
    async fn last_block(&self, file: &File, size: u32) -> Result<Vec<u8>, LogError> {
        let from = block_floor(size);
        if from == size {
            return Ok(Vec::new());
        }
        let (result, buf) = file.read_at(AlignedBuf::with_capacity(ALIGN), u64::from(from)).await;
        result.map_err(|error| self.fail("reading the last block of a segment", error))?;
        match buf.get(..(size - from) as usize) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => {
                let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                Err(self.fail("reading the last block of a segment", short))
            }
        }
    }
}

/// Removes the folders of deleted partitions that a data folder still holds.
pub async fn remove_deleted_dirs(data_dir: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(data_dir).await? {
        if entry.is_dir && names::is_deleted_dir_name(&entry.name) {
            fs::remove_dir_all(&data_dir.join(&entry.name)).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
