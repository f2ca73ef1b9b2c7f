//! The transaction index of a segment, in Kafka's `.txnindex` format.
//!
//! Owns: the entries of aborted transactions whose marker lies in a segment: in memory while they
//! are new, their file, its check, its making anew, and the look-up for readers that want committed
//! records only. The file is made with the first entry; most segments never have one. Lives on the
//! log's shard. Unlike the other indexes a damaged file would show aborted records, so entries are
//! synced before the recovery point passes them, and recovery reads them out of the batches again.
//!
//! ```text
//! 34 bytes an entry, big-endian; last offsets strictly growing
//! 0         2            10             18            26                   34
//! | version | producerId | first offset | last offset | last stable offset |
//!   i16 = 0   i64          i64            i64           i64
//!   first offset       = of the transaction's first batch, maybe in an earlier segment
//!   last offset        = of the abort marker
//!   last stable offset = first offset of what was open after it, or the offset behind the marker
//! ```

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;
use thiserror::Error;

use crate::core::Core;
use crate::error::LogError;
use crate::files;
use crate::files::remove_if_there;
use crate::names::{FileKind, file_path};
use crate::producer_state::{EndedTransaction, ProducerStates};
use crate::scan::{Found, Scanner};
use crate::segment::Segment;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;
/// Entries of a segment that stay in memory though the file has them: what readers at the end of
/// the log ask for.
const RECENT: usize = 256;
/// Entries in memory only that make a flush worth it.
pub(crate) const FLUSH_AT: usize = 4096;
/// Entries that one read of a file takes.
const READ_AT_ONCE: usize = 1024;

/// A transaction that was aborted, as readers of committed records must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    /// The offset of the abort marker.
    pub last_offset: i64,
    /// Where the undecided part of the log began behind the marker.
    pub last_stable_offset: i64,
}

/// Why a transaction index cannot be used; the remedy is to make it anew from the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TxnIndexDamage {
    #[error("its {0} bytes are not whole entries")]
    Size(u64),
    #[error("entry {entry} has the unknown version {version}")]
    Version { entry: usize, version: i16 },
    #[error("entry {0} does not fit the one before it or its segment")]
    Order(usize),
}

impl AbortedTxn {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_be_bytes());
        for field in
            [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset]
        {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }

    /// The version and the entry; `None` if there are too few bytes.
    fn decode(bytes: &[u8]) -> Option<(i16, AbortedTxn)> {
        let (version, rest) = bytes.split_first_chunk::<2>()?;
        let (producer_id, rest) = rest.split_first_chunk::<8>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (last, rest) = rest.split_first_chunk::<8>()?;
        let stable = rest.first_chunk::<8>()?;
        let entry = AbortedTxn {
            producer_id: i64::from_be_bytes(*producer_id),
            first_offset: i64::from_be_bytes(*first),
            last_offset: i64::from_be_bytes(*last),
            last_stable_offset: i64::from_be_bytes(*stable),
        };
        Some((i16::from_be_bytes(*version), entry))
    }

    fn overlaps(&self, from: i64, upper: i64) -> bool {
        self.last_offset >= from && self.first_offset < upper
    }
}

/// The entry of an ended transaction, if it was aborted.
pub(crate) fn entry_of(ended: &EndedTransaction) -> Option<AbortedTxn> {
    (!ended.committed).then_some(AbortedTxn {
        producer_id: ended.producer_id,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: ended.last_stable_offset,
    })
}

/// The bytes of a `.txnindex` file.
pub fn encode(entries: &[AbortedTxn]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        entry.encode(&mut bytes);
    }
    bytes
}

/// Reads the bytes of a `.txnindex` file of the segment that starts at `base`.
pub fn decode(bytes: &[u8], base: i64) -> Result<Vec<AbortedTxn>, TxnIndexDamage> {
    if !bytes.len().is_multiple_of(ENTRY_BYTES) {
        return Err(TxnIndexDamage::Size(bytes.len() as u64));
    }
    let mut check = Check::of(base);
    bytes.chunks_exact(ENTRY_BYTES).map(|bytes| check.entry(bytes)).collect()
}

/// Takes entries one by one and holds each against the one before it.
pub(crate) struct Check {
    base: i64,
    entries: usize,
    last: Option<AbortedTxn>,
}

impl Check {
    pub(crate) fn of(base: i64) -> Check {
        Check { base, entries: 0, last: None }
    }

    pub(crate) fn entry(&mut self, bytes: &[u8]) -> Result<AbortedTxn, TxnIndexDamage> {
        let place = self.entries;
        let Some((version, entry)) = AbortedTxn::decode(bytes) else {
            return Err(TxnIndexDamage::Size(bytes.len() as u64));
        };
        if version != VERSION {
            return Err(TxnIndexDamage::Version { entry: place, version });
        }
        let grows = self.last.is_none_or(|last| {
            entry.last_offset > last.last_offset
                && entry.last_stable_offset >= last.last_stable_offset
        });
        let fits = entry.producer_id >= 0
            && (0..=entry.last_offset).contains(&entry.first_offset)
            && entry.last_offset >= self.base
            && entry.last_stable_offset >= 0
            && entry.last_stable_offset <= entry.last_offset.saturating_add(1);
        if !(grows && fits) {
            return Err(TxnIndexDamage::Order(place));
        }
        self.entries += 1;
        self.last = Some(entry);
        Ok(entry)
    }
}

/// The entries of the segment that starts at `base`; none if it has no file.
///
/// # Errors
/// `InvalidData` for a damaged file.
pub async fn load(dir: &Path, base: i64) -> io::Result<Vec<AbortedTxn>> {
    read(dir, base).await?.map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage))
}

/// Replaces the file of a segment, synced; without entries there is none.
pub async fn replace(dir: &Path, base: i64, entries: &[AbortedTxn]) -> io::Result<()> {
    let path = file_path(dir, FileKind::TxnIndex, base);
    if entries.is_empty() {
        return remove_if_there(&path).await;
    }
    fs::write_atomic(&path, encode(entries)).await
}

async fn read(dir: &Path, base: i64) -> io::Result<Result<Vec<AbortedTxn>, TxnIndexDamage>> {
    let bytes =
        crate::checkpoints::read_if_there(&file_path(dir, FileKind::TxnIndex, base)).await?;
    Ok(decode(&bytes.unwrap_or_default(), base))
}

/// What a segment knows of its transaction index.
#[derive(Debug)]
pub(crate) struct Aborted {
    /// The newest entries, oldest first; the last `unsaved` are not in the file.
    recent: VecDeque<AbortedTxn>,
    unsaved: usize,
    file: InFile,
    /// Every entry whose marker is at or behind this offset is in `recent`.
    complete_from: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFile {
    /// Not looked at since the log was opened.
    Unknown,
    /// That many entries, all checked.
    Entries(usize),
}

impl Default for Aborted {
    /// Of a segment without any.
    fn default() -> Self {
        let file = InFile::Entries(0);
        Aborted { recent: VecDeque::new(), unsaved: 0, file, complete_from: i64::MIN }
    }
}

impl Aborted {
    /// Of a segment whose file was not looked at.
    pub(crate) fn unknown() -> Self {
        Aborted { file: InFile::Unknown, complete_from: i64::MAX, ..Aborted::default() }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.file == InFile::Unknown
    }

    pub(crate) fn unsaved(&self) -> usize {
        self.unsaved
    }

    pub(crate) fn push(&mut self, entry: AbortedTxn) {
        self.complete_from = self.complete_from.min(entry.last_offset);
        self.recent.push_back(entry);
        self.unsaved += 1;
    }

    fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.file == InFile::Entries(0)
    }

    fn note_saved(&mut self, entries: usize) {
        let before = match self.file {
            InFile::Entries(before) => before,
            InFile::Unknown => 0,
        };
        self.file = InFile::Entries(before + entries);
        self.unsaved = self.unsaved.saturating_sub(entries);
        self.trim(RECENT);
    }

    /// Lets go of what the file has, but for `keep` entries.
    fn trim(&mut self, keep: usize) {
        while self.recent.len() > self.unsaved.max(keep) {
            let Some(gone) = self.recent.pop_front() else { return };
            self.complete_from = self.complete_from.max(gone.last_offset.saturating_add(1));
        }
    }

    /// The file holds `entries`, checked; what is unsaved stays.
    fn note_checked(&mut self, entries: usize) {
        self.file = InFile::Entries(entries);
        if entries == 0 && self.recent.len() == self.unsaved {
            self.complete_from = i64::MIN;
        }
    }
}

/// Whether any segment from the one that holds `from` on may have entries.
pub(crate) fn may_overlap(core: &Core, from: i64) -> bool {
    !matches!(next_with_entries(core, from, None), Ok(None))
}

/// Every aborted transaction that has records in `from..upper`, by growing marker.
pub(crate) async fn overlapping(
    core: &Rc<Core>,
    from: i64,
    upper: i64,
) -> Result<Vec<AbortedTxn>, LogError> {
    let mut found = Vec::new();
    let Some(mut base) = next_with_entries(core, from, None)? else { return Ok(found) };
    loop {
        if in_segment(core, base, from, upper, &mut found).await? {
            return Ok(found);
        }
        match next_with_entries(core, from, Some(base))? {
            Some(next) => base = next,
            None => return Ok(found),
        }
    }
}

/// The first segment that may have entries, from the one that holds `from` on or behind `after`.
fn next_with_entries(core: &Core, from: i64, after: Option<i64>) -> Result<Option<i64>, LogError> {
    let state = core.state.borrow();
    let place = match after {
        Some(after) => state.segments.partition_point(|s| s.base <= after),
        None => state
            .place_of(from)
            .ok_or(LogError::Trimmed { offset: from, start: state.log_start })?,
    };
    Ok(state.segments.range(place..).find(|s| !s.aborted.is_empty()).map(|s| s.base))
}

/// Adds what a segment has; `true` if nothing behind can overlap.
async fn in_segment(
    core: &Rc<Core>,
    base: i64,
    from: i64,
    upper: i64,
    found: &mut Vec<AbortedTxn>,
) -> Result<bool, LogError> {
    let needs_look =
        |segment: &Segment| segment.aborted.is_unknown() && from < segment.aborted.complete_from;
    if core.state.borrow().segment(base).is_some_and(needs_look) {
        let _alone = core.making.acquire(1).await;
        look_at_file(core, base).await?;
    }
    let (in_file, in_memory) = {
        let state = core.state.borrow();
        let Some(segment) = state.segment(base) else {
            return Err(LogError::Trimmed { offset: from, start: state.log_start });
        };
        let aborted = &segment.aborted;
        let whole = from >= aborted.complete_from;
        let in_file = match aborted.file {
            InFile::Entries(entries) if !whole => entries,
            _ => 0,
        };
        let skip = if whole { 0 } else { aborted.recent.len() - aborted.unsaved };
        let start = aborted.recent.partition_point(|entry| entry.last_offset < from).max(skip);
        let in_memory: Vec<AbortedTxn> = aborted.recent.range(start..).copied().collect();
        (in_file, in_memory)
    };
    if in_file > 0 && search(core, base, in_file, from, upper, found).await? {
        return Ok(true);
    }
    Ok(take_overlapping(in_memory, from, upper, found))
}

fn take_overlapping(
    entries: impl IntoIterator<Item = AbortedTxn>,
    from: i64,
    upper: i64,
    found: &mut Vec<AbortedTxn>,
) -> bool {
    for entry in entries {
        if entry.overlaps(from, upper) {
            found.push(entry);
        }
        if entry.last_stable_offset >= upper {
            return true;
        }
    }
    false
}

/// Looks in the first `count` entries of a file, which are in order.
async fn search(
    core: &Rc<Core>,
    base: i64,
    count: usize,
    from: i64,
    upper: i64,
    found: &mut Vec<AbortedTxn>,
) -> Result<bool, LogError> {
    let path = file_path(&core.dir(), FileKind::TxnIndex, base);
    let searched = async {
        let file = {
            let _alone = core.swapping.acquire(1).await;
            File::open(&path, OpenOptions::for_reading()).await?
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match entries_at(&file, middle, 1).await?.first() {
                Some(entry) if entry.last_offset < from => low = middle + 1,
                Some(_) => high = middle,
                None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        }
        while low < count {
            let entries = entries_at(&file, low, READ_AT_ONCE.min(count - low)).await?;
            if entries.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            low += entries.len();
            if take_overlapping(entries, from, upper, found) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    searched.await.map_err(|error: io::Error| {
        let state = core.state.borrow();
        if error.kind() == io::ErrorKind::NotFound && state.segment(base).is_none() {
            return LogError::Trimmed { offset: from, start: state.log_start };
        }
        core.storage_error("reading a transaction index", error).into()
    })
}

async fn entries_at(file: &File, place: usize, count: usize) -> io::Result<Vec<AbortedTxn>> {
    let wanted = count * ENTRY_BYTES;
    let buf = AlignedBuf::with_capacity(wanted);
    let (result, buf) = file.read_at(buf, (place * ENTRY_BYTES) as u64).await;
    result?;
    let bytes = buf.get(..wanted.min(buf.len())).unwrap_or_default();
    Ok(bytes.chunks_exact(ENTRY_BYTES).filter_map(AbortedTxn::decode).map(|(_, e)| e).collect())
}

/// Checks a file that was not looked at yet and makes it anew if it is damaged. Whoever calls this
/// holds `Core::making`.
async fn look_at_file(core: &Rc<Core>, base: i64) -> Result<(), LogError> {
    let alone = core.swapping.acquire(1).await;
    let replaced = core.replaced();
    if !core.state.borrow().segment(base).is_some_and(|s| s.aborted.is_unknown()) {
        return Ok(());
    }
    let dir = core.dir();
    let fail = |error| LogError::from(core.storage_error("reading a transaction index", error));
    let entries = match count_entries(&dir, base).await.map_err(fail)? {
        Ok(entries) => entries,
        Err(damage) => {
            tracing::warn!(log = %core.name, segment = base,
                "transaction index made anew: {damage}");
            drop(alone);
            let entries = rebuild(core, base).await?;
            let _alone = core.swapping.acquire(1).await;
            // The segment was replaced, and its index with it: whoever asked asks again.
            if core.replaced() != replaced {
                return Ok(());
            }
            replace(&dir, base, &entries).await.map_err(fail)?;
            entries.len()
        }
    };
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.aborted.note_checked(entries);
    }
    Ok(())
}

async fn count_entries(dir: &Path, base: i64) -> io::Result<Result<usize, TxnIndexDamage>> {
    let path = file_path(dir, FileKind::TxnIndex, base);
    let file = match File::open(&path, OpenOptions::for_reading()).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(0)),
        Err(error) => return Err(error),
    };
    let size = file.size().await?;
    if !size.is_multiple_of(ENTRY_BYTES as u64) {
        return Ok(Err(TxnIndexDamage::Size(size)));
    }
    let mut check = Check::of(base);
    let count = size as usize / ENTRY_BYTES;
    while check.entries < count {
        let wanted = READ_AT_ONCE.min(count - check.entries) * ENTRY_BYTES;
        let at = (check.entries * ENTRY_BYTES) as u64;
        let (result, buf) = file.read_at(AlignedBuf::with_capacity(wanted), at).await;
        result?;
        let bytes = buf.get(..wanted).ok_or(io::ErrorKind::UnexpectedEof)?;
        for bytes in bytes.chunks_exact(ENTRY_BYTES) {
            if let Err(damage) = check.entry(bytes) {
                return Ok(Err(damage));
            }
        }
    }
    Ok(Ok(count))
}

/// Reads the entries of a segment out of its batches, with the producers as of its start. What is
/// in memory only is left out.
async fn rebuild(core: &Rc<Core>, base: i64) -> Result<Vec<AbortedTxn>, LogError> {
    let (segments, below) = {
        let state = core.state.borrow();
        let upto = state.segments.partition_point(|s| s.base <= base);
        let segments: Vec<(i64, u32)> =
            state.segments.range(..upto).map(|s| (s.base, s.written)).collect();
        let first_unsaved = state.segment(base).and_then(|s| {
            s.aborted.recent.get(s.aborted.recent.len() - s.aborted.unsaved).map(|e| e.last_offset)
        });
        (segments, first_unsaved.unwrap_or(i64::MAX))
    };
    let (first, mut producers) = producers_before(core, &segments).await?;
    let mut entries = Vec::new();
    for (segment, size) in segments.get(first..).unwrap_or_default() {
        let file = files::for_reading(core, *segment).await?;
        let mut scanner = Scanner::new(file, 0, *size);
        let fail = |error| core.storage_error("reading a segment for its transactions", error);
        while let Found::Batch(header, position) = scanner.next(false).await.map_err(fail)? {
            let ended = scanner.replay_producer(&header, position, &mut producers).await;
            let entry = ended.map_err(fail)?.as_ref().and_then(entry_of);
            entries.extend(entry.filter(|e| *segment == base && e.last_offset < below));
        }
    }
    Ok(entries)
}

/// The newest producer snapshot at the start of one of `segments`, and which one that is.
async fn producers_before(
    core: &Rc<Core>,
    segments: &[(i64, u32)],
) -> Result<(usize, ProducerStates), LogError> {
    for (place, (base, _)) in segments.iter().enumerate().rev() {
        let path = file_path(&core.dir(), FileKind::Snapshot, *base);
        let bytes = crate::checkpoints::read_if_there(&path)
            .await
            .map_err(|error| core.storage_error("reading a producer snapshot", error))?;
        if let Some(Ok(producers)) = bytes.as_deref().map(ProducerStates::decode) {
            return Ok((place, producers));
        }
    }
    Ok((0, ProducerStates::default()))
}

/// Writes the entries that the files lack, of every segment that starts below `end`; synced, so
/// that the recovery point may pass them.
pub(crate) async fn save(core: &Rc<Core>, end: i64) -> io::Result<()> {
    let behind: Vec<i64> = {
        let state = core.state.borrow();
        let lacks = |s: &&Segment| s.base < end && s.aborted.unsaved > 0;
        state.segments.iter().filter(lacks).map(|s| s.base).collect()
    };
    for base in behind {
        let _alone = core.making.acquire(1).await;
        look_at_file(core, base).await.map_err(|error| io::Error::other(error.to_string()))?;
        let taken = {
            let state = core.state.borrow();
            state.segment(base).and_then(|segment| {
                let aborted = &segment.aborted;
                let InFile::Entries(at) = aborted.file else { return None };
                let skip = aborted.recent.len() - aborted.unsaved;
                Some((at, aborted.recent.range(skip..).copied().collect::<Vec<_>>()))
            })
        };
        let Some((at, entries)) = taken else { continue };
        extend(&core.dir(), base, at, &entries).await?;
        if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
            segment.aborted.note_saved(entries.len());
        }
    }
    Ok(())
}

async fn extend(dir: &Path, base: i64, at: usize, entries: &[AbortedTxn]) -> io::Result<()> {
    let path = file_path(dir, FileKind::TxnIndex, base);
    let fresh = at == 0;
    let options =
        OpenOptions { write: true, create: true, truncate: fresh, ..OpenOptions::default() };
    let file = File::open(&path, options).await?;
    let bufs = smallvec![WriteBuf::Bytes(Bytes::from(encode(entries)))];
    file.write_at(bufs, (at * ENTRY_BYTES) as u64, Durability::Written).await?;
    file.sync_data().await?;
    file.close().await?;
    if fresh { fs::sync_dir(dir).await } else { Ok(()) }
}

/// Brings the file of a segment that recovery has read in line with its batches: of what was there
/// only markers below `replayed_from` count, the others were read again.
pub(crate) async fn settle(
    dir: &Path,
    segment: &mut Segment,
    replayed_from: i64,
) -> io::Result<()> {
    let base = segment.base;
    let before = match read(dir, base).await? {
        Ok(entries) => entries,
        Err(damage) => {
            tracing::warn!(dir = %dir.display(), segment = base,
                "transaction index will be made anew: {damage}");
            segment.aborted = Aborted::unknown();
            return Ok(());
        }
    };
    let end = replayed_from.min(segment.next_offset);
    let mut entries: Vec<AbortedTxn> =
        before.iter().copied().filter(|entry| entry.last_offset < end).collect();
    entries.extend(segment.aborted.recent.drain(..));
    segment.aborted = Aborted::default();
    let saved = entries == before;
    let written = match saved {
        true => Ok(()),
        false => replace(dir, base, &entries).await,
    };
    let count = entries.len();
    for entry in entries {
        segment.aborted.push(entry);
    }
    segment.aborted.complete_from = i64::MIN;
    match written {
        Ok(()) => segment.aborted.note_saved(count),
        // A full disk must not keep a log from opening: the next flush writes all of them.
        Err(error) => {
            tracing::warn!(dir = %dir.display(), segment = base,
                "transaction index not written: {error}");
        }
    }
    Ok(())
}

/// Lets go of the entries in memory that the file of a full segment has.
pub(crate) fn cool(segment: &mut Segment) {
    segment.aborted.trim(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: 7,
            first_offset: first,
            last_offset: last,
            last_stable_offset: stable,
        }
    }

    #[test]
    fn entries_are_kafkas_bytes() {
        let bytes = encode(&[entry(3, 9, 5)]);
        let expected: Vec<u8> = [0u8, 0]
            .into_iter()
            .chain(7i64.to_be_bytes())
            .chain(3i64.to_be_bytes())
            .chain(9i64.to_be_bytes())
            .chain(5i64.to_be_bytes())
            .collect();
        assert_eq!(bytes, expected);
        assert_eq!(bytes.len(), ENTRY_BYTES);
        assert_eq!(decode(&bytes, 0), Ok(vec![entry(3, 9, 5)]));
    }

    #[test]
    fn damage_is_told_from_entries() {
        let good = encode(&[entry(0, 4, 5), entry(6, 9, 6), entry(6, 12, 13)]);
        assert_eq!(decode(&good, 4).map(|e| e.len()), Ok(3));
        assert_eq!(decode(&good[..40], 0), Err(TxnIndexDamage::Size(40)));
        let mut version = good.clone();
        version[ENTRY_BYTES + 1] = 1;
        assert_eq!(decode(&version, 0), Err(TxnIndexDamage::Version { entry: 1, version: 1 }));
        for bad in [
            vec![entry(0, 4, 5), entry(0, 4, 5)],
            vec![entry(5, 4, 5)],
            vec![entry(0, 4, 6)],
            vec![entry(-1, 4, 5)],
            vec![entry(0, 4, 5), entry(5, 9, 4)],
        ] {
            let place = bad.len() - 1;
            assert_eq!(decode(&encode(&bad), 0), Err(TxnIndexDamage::Order(place)), "{bad:?}");
        }
        assert_eq!(decode(&good, 5), Err(TxnIndexDamage::Order(0)));
    }

    #[test]
    fn what_is_saved_leaves_memory_and_is_known_to_have_left() {
        let mut aborted = Aborted::default();
        let count = RECENT as i64 + 10;
        for n in 0..count {
            aborted.push(entry(n * 2, n * 2 + 1, n * 2 + 2));
        }
        assert_eq!((aborted.unsaved(), aborted.complete_from), (RECENT + 10, i64::MIN));
        aborted.note_saved(RECENT + 10);
        assert_eq!((aborted.unsaved(), aborted.recent.len()), (0, RECENT));
        assert_eq!(aborted.complete_from, 2 * 9 + 2);
        aborted.trim(0);
        assert!(aborted.recent.is_empty() && !aborted.is_empty());
        assert_eq!(aborted.complete_from, 2 * count);
    }

    #[test]
    fn an_unknown_file_hides_only_what_is_older_than_the_first_entry_in_memory() {
        let mut aborted = Aborted::unknown();
        assert!(!aborted.is_empty());
        aborted.push(entry(10, 20, 21));
        assert_eq!(aborted.complete_from, 20);
        aborted.note_checked(0);
        assert_eq!(aborted.complete_from, i64::MIN);
    }
}
