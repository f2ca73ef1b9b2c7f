//! The index files of a log: reading, checking, making anew, writing.
//!
//! Owns: the way of both indexes of a segment between memory and disk. An index is a help, never
//! the truth: whatever is missing or damaged is made anew from the segment, and a failure to write
//! one costs a warning. Those of full segments are synced: half a file would pass for a whole one.
//! A segment that is still written is walked from its last entry on whenever it is opened.

use std::io;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use reactor::{ALIGN, AlignedBuf, Durability, File, OpenOptions, WriteBuf};
use smallvec::smallvec;
use wire::records::BatchHeader;

use crate::checkpoints::read_if_there;
use crate::core::Core;
use crate::error::LogError;
use crate::files;
use crate::index::{self, IndexDamage, OffsetIndex};
use crate::names::{FileKind, file_path};
use crate::scan::{Found, Scanner};
use crate::segment::{Entries, Indexes, Newest, Segment, Unsaved};
use crate::time_index::{self, TimeIndex};

/// The indexes of a segment, from memory or disk.
pub(crate) async fn load(core: &Rc<Core>, base: i64) -> Result<Rc<Indexes>, LogError> {
    if let Some(segment) = core.state.borrow().segment(base)
        && let Some(indexes) = segment.indexes.as_ref().filter(|_| segment.is_wholly_indexed())
    {
        return Ok(Rc::clone(indexes));
    }
    loop {
        let replaced = core.replaced();
        let loaded = load_once(core, base).await;
        // Files of a segment that was replaced meanwhile are of no use, nor is a failure with them.
        if core.replaced() == replaced {
            return loaded;
        }
    }
}

async fn load_once(core: &Rc<Core>, base: i64) -> Result<Rc<Indexes>, LogError> {
    let alone = core.swapping.acquire(1).await;
    let replaced = core.replaced();
    let sealed = {
        let state = core.state.borrow();
        let Some(segment) = state.segment(base) else {
            return Err(LogError::Trimmed { offset: base, start: state.log_start });
        };
        if let Some(indexes) = segment.indexes.as_ref().filter(|_| segment.is_wholly_indexed()) {
            return Ok(Rc::clone(indexes));
        }
        let whole_files = segment.sealed && segment.is_wholly_indexed();
        whole_files.then_some((segment.size, segment.next_offset))
    };
    let Some((size, next_offset)) = sealed else {
        drop(alone);
        return load_unsealed(core, base).await;
    };
    let read = read(&core.dir(), base, size, next_offset)
        .await
        .map_err(|error| core.storage_error("reading an index", error))?;
    let indexes = match read {
        Ok(indexes) => Rc::new(indexes),
        Err(damage) => {
            tracing::warn!(log = %core.name, segment = base, "index made anew: {damage}");
            drop(alone);
            let indexes = rebuild(core, base, size).await?;
            keep(core, base, &indexes, replaced).await;
            return Ok(indexes);
        }
    };
    hold(core, base, &indexes, false);
    Ok(indexes)
}

/// Writes indexes that were made anew, and holds them, unless their segment was replaced.
async fn keep(core: &Rc<Core>, base: i64, indexes: &Rc<Indexes>, replaced: u64) {
    let _alone = core.swapping.acquire(1).await;
    if core.replaced() == replaced {
        save_all(core, base, indexes).await;
        hold(core, base, indexes, true);
    }
}

/// The indexes of a segment that is still written, part of which are in its files only.
async fn load_unsealed(core: &Rc<Core>, base: i64) -> Result<Rc<Indexes>, LogError> {
    let read = read_first(core, base).await?;
    let (joined, written) = {
        let mut state = core.state.borrow_mut();
        let start = state.log_start;
        let Some(segment) = state.segment_mut(base) else {
            return Err(LogError::Trimmed { offset: base, start });
        };
        let whole = segment.below == Entries::default();
        let joined = whole || read.as_ref().is_ok_and(|read| segment.restore_entries(read));
        (joined, segment.written)
    };
    if !joined {
        let damage = read.err().map_or("they do not fit".to_owned(), |damage| damage.to_string());
        tracing::warn!(log = %core.name, segment = base, "index made anew: {damage}");
        let read = rebuild(core, base, written).await?;
        if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
            segment.replace_indexes(&read, written);
        }
    }
    let held = core.state.borrow().segment(base).and_then(|s| s.indexes.clone());
    Ok(held.unwrap_or_default())
}

/// Those entries of the files of a segment that is still written which are not in memory.
async fn read_first(core: &Rc<Core>, base: i64) -> Result<Result<Indexes, IndexDamage>, LogError> {
    let known = core.state.borrow().segment(base).map(|s| (s.below, s.size, s.next_offset));
    let Some((below, size, next_offset)) = known else { return Ok(Err(IndexDamage::Missing)) };
    let dir = core.dir();
    let files = async {
        let offsets = read_if_there(&file_path(&dir, FileKind::OffsetIndex, base)).await?;
        let times = read_if_there(&file_path(&dir, FileKind::TimeIndex, base)).await?;
        Ok((offsets, times))
    };
    let (mut offsets, mut times) =
        files.await.map_err(|error| core.storage_error("reading an index", error))?;
    // Behind these lie entries that memory has as well.
    if let Some(bytes) = &mut offsets {
        bytes.truncate(below.offsets * index::ENTRY_BYTES);
    }
    if let Some(bytes) = &mut times {
        bytes.truncate(below.times * time_index::ENTRY_BYTES);
    }
    Ok(decode(offsets, times, base, size, next_offset))
}

/// Cuts the index files of a segment to what a checkpoint knows of. `false`: they hold less.
pub(crate) async fn cut(dir: &Path, base: i64, entries: Entries) -> io::Result<bool> {
    let offsets = entries.offsets * index::ENTRY_BYTES;
    let times = entries.times * time_index::ENTRY_BYTES;
    Ok(cut_file(&file_path(dir, FileKind::OffsetIndex, base), offsets).await?
        && cut_file(&file_path(dir, FileKind::TimeIndex, base), times).await?)
}

async fn cut_file(path: &Path, len: usize) -> io::Result<bool> {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = match File::open(path, options).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(len == 0),
        Err(error) => return Err(error),
    };
    let size = file.size().await?;
    if size > len as u64 {
        file.set_len(len as u64).await?;
    }
    file.close().await?;
    Ok(size >= len as u64)
}

/// Makes the indexes of a segment anew because they contradict its batches. Of a segment that is
/// still written only what is in the file is read; entries made since then are kept.
pub(crate) async fn renew(core: &Rc<Core>, base: i64) -> Result<(), LogError> {
    let known = core.state.borrow().segment(base).map(|s| (s.written, s.sealed));
    let Some((written, sealed)) = known else { return Ok(()) };
    let replaced = core.replaced();
    tracing::warn!(log = %core.name, segment = base, "index made anew: it contradicts its segment");
    let read = rebuild(core, base, written).await?;
    if sealed {
        keep(core, base, &read, replaced).await;
        return Ok(());
    }
    let mut state = core.state.borrow_mut();
    if let Some(segment) = state.segment_mut(base) {
        segment.replace_indexes(&read, written);
    }
    Ok(())
}

/// `made_anew`: they come from the batches, not from the files.
fn hold(core: &Rc<Core>, base: i64, indexes: &Rc<Indexes>, made_anew: bool) {
    let mut state = core.state.borrow_mut();
    if let Some(segment) = state.segment_mut(base) {
        segment.indexes = Some(Rc::clone(indexes));
        segment.below = Entries::default();
        // What the batches have said counts more than what a file says.
        if made_anew || segment.newest.is_none() || segment.newest_is_indexed {
            segment.newest = newest_of(segment, indexes);
            segment.newest_is_indexed = !made_anew;
        }
    }
    drop(state);
    core.shared.note_warm(core.me.clone(), base, indexes.memory_bytes(), false);
}

/// Entries at the end of a time index that are read to learn the last one.
const LAST_ENTRIES: usize = ALIGN / time_index::ENTRY_BYTES;

/// The largest timestamp of a segment, from memory or the end of its time index: a look-up by time
/// asks every segment, and the whole indexes of a large log are gigabytes.
pub(crate) async fn newest(core: &Rc<Core>, base: i64) -> Result<Option<Newest>, LogError> {
    if let Some(segment) = core.state.borrow().segment(base)
        && segment.newest.is_some()
    {
        return Ok(segment.newest);
    }
    if last_entry(core, base).await?.is_none() {
        load(core, base).await?;
    }
    Ok(core.state.borrow().segment(base).and_then(|s| s.newest))
}

/// Reads the last entry of a sealed segment's time index, and remembers it. `None`: nothing there
/// looks like one, and the indexes have to be read as a whole.
async fn last_entry(core: &Rc<Core>, base: i64) -> Result<Option<Newest>, LogError> {
    let _alone = core.swapping.acquire(1).await;
    let span = {
        let state = core.state.borrow();
        let Some(segment) = state.segment(base) else {
            return Err(LogError::Trimmed { offset: base, start: state.log_start });
        };
        if !segment.sealed || !segment.is_wholly_indexed() {
            return Ok(None);
        }
        u32::try_from(segment.next_offset.saturating_sub(base)).unwrap_or(u32::MAX)
    };
    let path = file_path(&core.dir(), FileKind::TimeIndex, base);
    let bytes = match last_bytes(&path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| core.storage_error("reading an index", error))?,
    };
    let last = TimeIndex::decode(&bytes, span).ok().and_then(|times| times.last());
    let Some(entry) = last else { return Ok(None) };
    let newest = Newest { timestamp: entry.timestamp, offset: base + i64::from(entry.offset) };
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.newest = Some(newest);
        segment.newest_is_indexed = true;
    }
    Ok(Some(newest))
}

/// The last entries of a time index, or less than one entry if it is no such file.
async fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path, OpenOptions::for_reading()).await?;
    let size = file.size().await?;
    let most = (LAST_ENTRIES * time_index::ENTRY_BYTES) as u64;
    let whole = size.is_multiple_of(time_index::ENTRY_BYTES as u64);
    let (read, mut bytes) = match whole {
        true => file.read_at(AlignedBuf::with_capacity(ALIGN), size.saturating_sub(most)).await,
        false => (Ok(0), AlignedBuf::with_capacity(ALIGN)),
    };
    let read = read?;
    file.close().await?;
    bytes.set_len(read);
    Ok(bytes.to_vec())
}

fn newest_of(segment: &Segment, indexes: &Indexes) -> Option<Newest> {
    let base = segment.base;
    let last = indexes.times.last();
    Some(last.map_or(Newest { timestamp: crate::segment::NO_TIMESTAMP, offset: base }, |entry| {
        Newest { timestamp: entry.timestamp, offset: base + i64::from(entry.offset) }
    }))
}

/// Reads both files of a segment and says whether they can be trusted.
pub(crate) async fn read(
    dir: &Path,
    base: i64,
    segment_bytes: u32,
    next_offset: i64,
) -> io::Result<Result<Indexes, IndexDamage>> {
    let offsets = read_if_there(&file_path(dir, FileKind::OffsetIndex, base)).await?;
    let times = read_if_there(&file_path(dir, FileKind::TimeIndex, base)).await?;
    Ok(decode(offsets, times, base, segment_bytes, next_offset))
}

fn decode(
    offsets: Option<Vec<u8>>,
    times: Option<Vec<u8>>,
    base: i64,
    segment_bytes: u32,
    next_offset: i64,
) -> Result<Indexes, IndexDamage> {
    let span = u32::try_from(next_offset.saturating_sub(base)).unwrap_or(u32::MAX);
    let offsets = OffsetIndex::decode(&offsets.ok_or(IndexDamage::Missing)?, segment_bytes)?;
    if offsets.last().is_some_and(|entry| entry.offset >= span) {
        return Err(IndexDamage::Bounds(offsets.len()));
    }
    let times = TimeIndex::decode(&times.ok_or(IndexDamage::Missing)?, span)?;
    Ok(Indexes { offsets, times })
}

/// Makes the indexes of what a segment's file holds up to `size`. Damaged batches are left out;
/// what lies behind them stays within reach.
async fn rebuild(core: &Rc<Core>, base: i64, size: u32) -> Result<Rc<Indexes>, LogError> {
    let file = files::for_reading(core, base).await?;
    let (interval, end) = {
        let state = core.state.borrow();
        let end = state.segment(base).map_or(i64::MAX, |s| s.next_offset);
        (state.config.index_interval_bytes, end)
    };
    let mut rebuilt = Rebuilt { segment: Segment::new(base, 0, 0), last: None, interval };
    let mut scanner = Scanner::new(file, 0, size);
    let failed = |error| core.storage_error("reading a segment for its index", error);
    loop {
        match scanner.next(true).await.map_err(failed)? {
            Found::Batch(header, position) => rebuilt.note(header, position, end),
            Found::End => break,
            found @ (Found::Zeros | Found::Damage(_)) => {
                let position = scanner.position();
                let goes_on = scanner.resync(rebuilt.next_offset()..end).await.map_err(failed)?;
                let next = if goes_on { scanner.position() } else { size };
                tracing::warn!(log = %core.name, segment = base, position,
                    "{} bytes of a segment cannot be read: {found:?}", next - position);
                if !goes_on {
                    break;
                }
            }
        }
    }
    Ok(rebuilt.finish())
}

/// Indexes in the making. A batch is noted when the next one shows that its offset, which no
/// checksum covers, is right.
struct Rebuilt {
    segment: Segment,
    last: Option<(BatchHeader, u32)>,
    interval: u32,
}

impl Rebuilt {
    fn next_offset(&self) -> i64 {
        self.segment.next_offset
    }

    fn note(&mut self, header: BatchHeader, position: u32, end: i64) {
        if header.base_offset < self.next_offset() || header.next_offset() > end {
            return;
        }
        if let Some((last, position)) = self.last.take()
            && last.next_offset() <= header.base_offset
        {
            self.segment.note_batch(&last, position, self.interval);
        }
        self.last = Some((header, position));
    }

    fn finish(mut self) -> Rc<Indexes> {
        if let Some((last, position)) = self.last.take() {
            self.segment.note_batch(&last, position, self.interval);
        }
        self.segment.finish_times();
        self.segment.indexes.take().unwrap_or_default()
    }
}

async fn save_all(core: &Rc<Core>, base: i64, indexes: &Indexes) {
    let nothing = Entries::default();
    let held = Rc::new(indexes.clone());
    let unsaved = Unsaved { base, held, below: nothing, saved: nothing };
    if let Err(error) = save(&core.dir(), &unsaved, true).await {
        tracing::warn!(log = %core.name, segment = base, "index not written: {error}");
    }
}

/// Writes the entries that the files do not hold yet; from 0 on, the files are made anew.
pub(crate) async fn save(dir: &Path, unsaved: &Unsaved, synced: bool) -> io::Result<()> {
    let Unsaved { base, held, below, saved } = unsaved;
    let offsets = held.offsets.encode_from(saved.offsets.saturating_sub(below.offsets));
    let at = saved.offsets * index::ENTRY_BYTES;
    extend(&file_path(dir, FileKind::OffsetIndex, *base), at, offsets, synced).await?;
    let times = held.times.encode_from(saved.times.saturating_sub(below.times));
    let at = saved.times * time_index::ENTRY_BYTES;
    extend(&file_path(dir, FileKind::TimeIndex, *base), at, times, synced).await
}

async fn extend(path: &Path, at: usize, bytes: Vec<u8>, synced: bool) -> io::Result<()> {
    if at > 0 && bytes.is_empty() {
        return Ok(());
    }
    let fresh = at == 0;
    let options =
        OpenOptions { write: true, create: true, truncate: fresh, ..OpenOptions::default() };
    let file = File::open(path, options).await?;
    if !bytes.is_empty() {
        let bufs = smallvec![WriteBuf::Bytes(Bytes::from(bytes))];
        file.write_at(bufs, at as u64, Durability::Written).await?;
    }
    if synced {
        file.sync_data().await?;
    }
    file.close().await
}
