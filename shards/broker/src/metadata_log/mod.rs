//! The durable log of cluster metadata: `__cluster_metadata-0` in the first data directory.
//!
//! An ordinary log with `flush.messages=1`, owned by shard 0, whose records are Kafka's metadata
//! records, so that `kafka-dump-log --cluster-metadata-decoder` reads it. With a single voter the
//! log is the whole consensus: what is synced here has happened. Now and then a snapshot
//! (`snapshot`) takes the place of what lies below.
//!
//! Before a write that would find no space a piece of the directory's reserve is let go. One that
//! finds none even so takes the log out of service like any other; it is opened again at once,
//! without what was not written, and what is left of the reserve is given up. If that does not
//! help, the caller is told, or what must hold nevertheless is kept in memory: it is the first to
//! be written when there is space, and nothing is written before it.

mod snapshot;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use log::{AppendError, Log, LogConfig, LogError, LogShared, LogState, OpenHint, Recovered};
use meta::{Delta, Image, MetadataRecord};
use reactor::Class;
use tracing::{debug, info, warn};
use wire::Uuid;
use wire::records::{BatchBuilder, BatchView};

use crate::BrokerError;
use crate::data_dirs::reserve;
use crate::groups::MISSED_MAX;

pub(crate) const DIR_NAME: &str = "__cluster_metadata-0";
/// The epoch of the single voter.
const EPOCH: i32 = 1;
const SEGMENT_BYTES: u32 = 64 * 1024 * 1024;
/// What one batch of metadata may be decompressed into. Ours are not compressed, and Kafka's hold 8 MiB.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
/// One read of the replay at start.
const REPLAY_READ_BYTES: usize = 1024 * 1024;
/// What a write takes beside its records: the last block again, and the file system's own notes.
const ROOM_BYTES: u64 = 64 << 10;
/// How long a change waits to be told how much space there is.
const SPACE_WAIT: Duration = Duration::from_millis(200);
/// The reserve is let go in so many pieces.
const RESERVE_PIECES: usize = 2;
/// The most records that one batch carries (they take effect together).
const BATCH_RECORDS_MAX: usize = 1_000_000;

pub(crate) struct MetadataLog {
    shared: LogShared,
    data_dir: PathBuf,
    log: RefCell<Log>,
    /// What was committed ends here.
    end: Cell<i64>,
    /// Records that hold already but are not in the log yet: what a start, or the second half of a
    /// change, found no space for.
    kept: RefCell<VecDeque<Rc<[MetadataRecord]>>>,
    /// Bytes of records behind the newest snapshot.
    behind: Cell<u64>,
    writing: Rc<Cell<bool>>,
    /// The last of the topics that records behind the snapshot of the start deleted.
    deleted: RefCell<Vec<(String, Uuid)>>,
}

impl MetadataLog {
    /// Opens the log, creating it on the first start, and reads back what it adds up to.
    pub async fn open(
        shared: &LogShared,
        data_dir: &Path,
        cluster_id: &str,
        now_ms: i64,
    ) -> Result<(Self, Image), BrokerError> {
        let dir = data_dir.join(DIR_NAME);
        let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
        let snapshots = snapshot::list(&dir).await.map_err(in_dir)?;
        let snapshot = snapshot::load(&dir, &snapshots, cluster_id).await?;
        let (log, recovered) = open_log(shared, data_dir, 0, now_ms).await?;
        if recovered.truncated_bytes > 0 {
            warn!(
                "{}: the last {} bytes were a write that a crash cut short; they were never \
                 acknowledged and are gone",
                dir.display(),
                recovered.truncated_bytes
            );
        }
        let metadata = MetadataLog {
            shared: shared.clone(),
            data_dir: data_dir.to_owned(),
            end: Cell::new(log.log_end_offset()),
            log: RefCell::new(log),
            kept: RefCell::default(),
            behind: Cell::new(0),
            writing: Rc::default(),
            deleted: RefCell::default(),
        };
        let mut image = snapshot.unwrap_or_else(|| Image::new(cluster_id));
        metadata.replay(&mut image).await?;
        Ok((metadata, image))
    }

    /// Applies what the log holds behind the image.
    async fn replay(&self, image: &mut Image) -> Result<(), BrokerError> {
        let log = self.log.borrow().clone();
        let (start, end) = (log.log_start_offset(), log.visible_end_offset());
        let mut next = image.offset() + 1;
        if start > next || next > end {
            let reason = format!(
                "the records from offset {next} on are missing, the log holds {start} to {end}; \
                 put its folder back from a copy"
            );
            return Err(BrokerError::DataDirs(format!("metadata log: {reason}")));
        }
        while next < end {
            let read = read_records(&log, next, end).await?;
            self.behind.set(self.behind.get() + read.bytes);
            self.note_deleted(&read.records, image);
            image.apply_delta(&Delta { base_offset: next, records: read.records.into() })?;
            next = read.next;
        }
        Ok(())
    }

    /// Notes the topics that records delete which the image does not know yet. What comes and goes within
    /// one delta is no change to the image, so it is the records that are looked at.
    fn note_deleted(&self, records: &[MetadataRecord], image: &Image) {
        let mut made: HashMap<Uuid, &str> = HashMap::new();
        let mut deleted = self.deleted.borrow_mut();
        for record in records {
            match record {
                MetadataRecord::Topic(topic) => drop(made.insert(topic.topic_id, &topic.name)),
                MetadataRecord::RemoveTopic(removed) => {
                    let id = removed.topic_id;
                    let known = image.topic_by_id(id).map(|topic| &*topic.name);
                    let name = made.get(&id).copied().or(known);
                    deleted.extend(name.map(|name| (name.to_owned(), id)));
                }
                _ => {}
            }
        }
        let too_many = deleted.len().saturating_sub(MISSED_MAX);
        deleted.drain(..too_many);
    }

    /// Topics, by name and id, that were deleted by records behind the snapshot that this began with: the
    /// broker may have ended before everybody heard of it. Said once.
    pub fn take_deleted(&self) -> Vec<(String, Uuid)> {
        self.deleted.take()
    }

    /// The topics that were deleted, as far back as the log tells.
    pub async fn deleted_topics(&self) -> Result<HashSet<Uuid>, BrokerError> {
        let log = self.log.borrow().clone();
        let (mut next, end) = (log.log_start_offset(), log.visible_end_offset());
        let mut deleted = HashSet::new();
        while next < end {
            let read = read_records(&log, next, end).await?;
            deleted.extend(read.records.iter().filter_map(|record| match record {
                MetadataRecord::RemoveTopic(removed) => Some(removed.topic_id),
                _ => None,
            }));
            next = read.next;
        }
        Ok(deleted)
    }

    /// Starts to write a snapshot of the image if more than `every` bytes of records have gathered
    /// since the last one; then the log below can go. Costs one copy of the image here, the rest is
    /// done in the background. A failure is a warning: the log stays as it is.
    pub fn snapshot_if_due(&self, image: &Image, every: u64) {
        // The image is ahead of the log while something is kept.
        if self.behind.get() < every || self.has_kept() || self.writing.replace(true) {
            return;
        }
        self.behind.set(0);
        let log = self.log.borrow().clone();
        let (image, writing) = (image.clone(), self.writing.clone());
        reactor::spawn_in(Class::Background, async move {
            if let Err(error) = write_snapshot(&image, &log).await {
                warn!("no snapshot of the metadata: {error}");
            }
            writing.set(false);
        })
        .detach();
    }

    /// Makes the records durable, all or none; returns the offset of the first. After an error for
    /// which [`BrokerError::is_out_of_space`] none of them is, and the log can go on.
    pub async fn commit(
        &self,
        records: &[MetadataRecord],
        now_ms: i64,
    ) -> Result<i64, BrokerError> {
        self.write_kept(now_ms).await?;
        self.write(records, now_ms).await
    }

    /// As [`commit`](Self::commit); without space the records are kept in memory and count as well.
    pub async fn commit_or_keep(
        &self,
        records: &[MetadataRecord],
        now_ms: i64,
    ) -> Result<i64, BrokerError> {
        match self.commit(records, now_ms).await {
            Err(error) if error.is_out_of_space() => {
                if !self.has_kept() {
                    warn!(
                        "{} has no space for metadata: what changed is kept in memory and written \
                         when there is some; until then nothing else can be changed. Free space \
                         there",
                        self.data_dir.display()
                    );
                }
                let mut kept = self.kept.borrow_mut();
                let before: usize = kept.iter().map(|records| records.len()).sum();
                kept.push_back(records.into());
                Ok(self.end.get() + before as i64)
            }
            committed => committed,
        }
    }

    pub fn has_kept(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// Writes what found no space before.
    pub async fn write_kept(&self, now_ms: i64) -> Result<(), BrokerError> {
        while let Some(records) = self.first_kept() {
            self.write(&records, now_ms).await?;
            self.kept.borrow_mut().pop_front();
            if !self.has_kept() {
                info!("{} has space for metadata again", self.data_dir.display());
            }
        }
        Ok(())
    }

    fn first_kept(&self) -> Option<Rc<[MetadataRecord]>> {
        self.kept.borrow().front().cloned()
    }

    async fn write(&self, records: &[MetadataRecord], now_ms: i64) -> Result<i64, BrokerError> {
        assert!(!records.is_empty() && records.len() <= BATCH_RECORDS_MAX);
        let mut builder = BatchBuilder::new();
        for record in records {
            builder.append(now_ms, None, Some(&record.to_bytes()?));
            reactor::yield_if_due().await;
        }
        let bytes = builder.build().map_err(corrupt)?;
        let base_offset = self.end.get();
        let next = base_offset + records.len() as i64;
        let state = self.log.borrow().state();
        let reopens = match state {
            LogState::Online => false,
            LogState::Poisoned(error) => log::is_out_of_space(&error.cause),
            // A reopening found no space either.
            LogState::Closed => true,
        };
        if reopens && self.reopen_somehow(now_ms).await? != base_offset {
            return Err(self.unknown_end());
        }
        self.make_room(bytes.len()).await;
        while let Err(error) = self.append(&bytes, now_ms).await {
            if !error.is_out_of_space() {
                return Err(error);
            }
            match self.reopen_somehow(now_ms).await? {
                // It is in the file, whole, and synced: it has happened.
                end if end == next => break,
                end if end != base_offset => return Err(self.unknown_end()),
                _ => {}
            }
            if !reserve::give_up_some(&self.data_dir).await {
                return Err(error);
            }
        }
        self.end.set(next);
        self.behind.set(self.behind.get() + bytes.len() as u64);
        Ok(base_offset)
    }

    /// Where a write would find no space: lets go of a piece of the reserve before it, so that the
    /// log stays in service. Others may have filled the disk since it was last looked at.
    async fn make_room(&self, bytes: usize) {
        let wanted = bytes as u64 + ROOM_BYTES;
        for _ in 0..RESERVE_PIECES {
            // A disk that does not answer says so when it is written. The question may also wait
            // behind those about another one.
            let space = reactor::timeout(SPACE_WAIT, reactor::fs::space(&self.data_dir)).await;
            let Ok(Ok(space)) = space else { return };
            if space.available >= wanted || !reserve::give_up_some(&self.data_dir).await {
                return;
            }
        }
    }

    /// Opens the log again; if even that takes space, with what the reserve has.
    async fn reopen_somehow(&self, now_ms: i64) -> Result<i64, BrokerError> {
        loop {
            match self.reopen(now_ms).await {
                Err(error) if error.is_out_of_space() => {
                    if !reserve::give_up_some(&self.data_dir).await {
                        return Err(error);
                    }
                }
                reopened => return reopened,
            }
        }
    }

    async fn append(&self, bytes: &[u8], now_ms: i64) -> Result<(), BrokerError> {
        let batch = BatchView::parse(bytes).map_err(corrupt)?;
        let log = self.log.borrow().clone();
        let appended = loop {
            match log.append(&batch, EPOCH, now_ms) {
                Ok(appended) => break appended,
                Err(AppendError::Full) => log.room().await,
                Err(AppendError::Poisoned(error)) => return Err(LogError::from(error).into()),
                Err(error) => return Err(BrokerError::MetadataLog(error.to_string())),
            }
        };
        if appended.base_offset != self.end.get() {
            return Err(self.unknown_end());
        }
        Ok(log.acknowledged(appended.last_offset + 1).await?)
    }

    /// Opens the log again after a write that failed. Returns where it ends now.
    async fn reopen(&self, now_ms: i64) -> Result<i64, BrokerError> {
        let log = self.log.borrow().clone();
        let recovery_point = log.recovery_point();
        // What could not be written is gone with the close; whoever asked for it is told so.
        if let Err(error) = log.close().await {
            debug!("{}: closed: {error}", self.data_dir.display());
        }
        let (log, recovered) =
            open_log(&self.shared, &self.data_dir, recovery_point, now_ms).await?;
        // The file that holds the end may have been made by the write that failed.
        let dir = log.dir();
        let synced = reactor::fs::sync_dir(&dir).await;
        synced.map_err(|source| BrokerError::DataDir { dir, source })?;
        self.log.replace(log);
        Ok(recovered.log_end_offset)
    }

    /// The log is not where it was left: only reading it anew tells what holds.
    fn unknown_end(&self) -> BrokerError {
        BrokerError::MetadataLog(format!(
            "it ended at offset {} and does no longer after a write that failed",
            self.end.get()
        ))
    }

    /// Returns whether everything that holds is in the log, and it was closed cleanly.
    pub async fn close(self) -> Result<bool, BrokerError> {
        let written = match self.write_kept(reactor::wall_clock_ms()).await {
            Ok(()) => self.log.into_inner().close().await.map(drop).map_err(BrokerError::from),
            Err(error) => Err(error),
        };
        match written {
            Err(error) if error.is_out_of_space() => {
                warn!("the metadata log was not closed cleanly: {error}");
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }
}

async fn open_log(
    shared: &LogShared,
    data_dir: &Path,
    recovery_point: i64,
    now_ms: i64,
) -> Result<(Log, Recovered), BrokerError> {
    let config = LogConfig {
        segment_bytes: SEGMENT_BYTES,
        flush_messages: 1,
        retention_ms: -1,
        retention_bytes: -1,
        max_message_bytes: SEGMENT_BYTES,
        ..LogConfig::default()
    };
    // Without some of its metadata the broker would set topics aside and create them anew.
    let hint = OpenHint { leader_epoch: EPOCH, recovery_point, whole: true, ..OpenHint::default() };
    Ok(Log::open(shared, data_dir.join(DIR_NAME), config, hint, now_ms).await?)
}

async fn write_snapshot(image: &Image, log: &Log) -> Result<(), BrokerError> {
    let dir = log.dir();
    let in_dir = |source| BrokerError::DataDir { dir: dir.clone(), source };
    snapshot::write(&dir, image, EPOCH, reactor::wall_clock_ms()).await?;
    if let Some(end) = snapshot::prune(&dir).await.map_err(in_dir)? {
        log.advance_log_start(end).await?;
        info!("the metadata log begins at offset {}", log.log_start_offset());
    }
    Ok(())
}

/// Some records of the log, from one offset on.
struct ReadRecords {
    records: Vec<MetadataRecord>,
    bytes: u64,
    /// Where to go on.
    next: i64,
}

async fn read_records(log: &Log, from: i64, end: i64) -> Result<ReadRecords, BrokerError> {
    let plan = log.plan_read(from, end, REPLAY_READ_BYTES, true)?;
    let bytes = plan.execute().await?.concat();
    let mut read = ReadRecords { records: Vec::new(), bytes: 0, next: from };
    for batch in wire::records::batches(&bytes) {
        let batch = batch.map_err(corrupt)?;
        read.bytes += batch.bytes().len() as u64;
        let mut all = batch.records(DECOMPRESSED_BYTES_MAX).map_err(corrupt)?;
        while let Some(record) = all.next_record().map_err(corrupt)? {
            if record.offset < from {
                continue;
            }
            let value = record.value.unwrap_or_default();
            read.records.push(MetadataRecord::from_bytes(value).map_err(corrupt)?);
            reactor::yield_if_due().await;
        }
        read.next = batch.header().last_offset() + 1;
    }
    match read.next == from {
        true => Err(corrupt("a read returned no batch")),
        false => Ok(read),
    }
}

fn corrupt(reason: impl std::fmt::Display) -> BrokerError {
    BrokerError::DataDirs(format!("metadata log: unreadable record: {reason}"))
}
