//! Looking at a log's files without a log: for `corelane dump` and `corelane import`.
//!
//! Owns: walking the batches of a segment file whoever wrote it, reading files of fixed-size
//! entries, and the findings of a check ([`verify_partition`]). Everything is streamed through
//! bounded buffers and parsed by the same code that serves the log. Files are opened for reading
//! only, through the page cache, and never changed; they may be those of a running broker.

mod partition;
mod replay;
mod segment;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use reactor::{AlignedBuf, File, OpenOptions};
use wire::records::BatchHeader;

pub use partition::{
    CheckpointView, PartitionContext, PartitionSummary, describe_checkpoint,
    verify_metadata_snapshot, verify_partition,
};

use crate::names;
use crate::scan::{Found, Scanner};

/// A batch is read whole only up to this size; the walk itself has no such bound.
pub const BATCH_BYTES_MAX: usize = 256 << 20;
/// One read of a file of entries.
const ENTRIES_READ_BYTES: usize = 64 << 10;
/// Findings told of one file; what is wrong with all of it need not be said a million times.
const FINDINGS_PER_FILE: u32 = 100;

/// What a file in a partition's folder is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileName {
    Segment(i64),
    OffsetIndex(i64),
    TimeIndex(i64),
    TxnIndex(i64),
    Snapshot(i64),
    /// Half made or half deleted; the next opening removes it.
    Leftover,
    Other,
}

impl FileName {
    pub fn of(name: &str) -> FileName {
        match names::classify(name) {
            names::Found::Of(names::FileKind::Log, base) => FileName::Segment(base),
            names::Found::Of(names::FileKind::OffsetIndex, base) => FileName::OffsetIndex(base),
            names::Found::Of(names::FileKind::TimeIndex, base) => FileName::TimeIndex(base),
            names::Found::Of(names::FileKind::TxnIndex, base) => FileName::TxnIndex(base),
            names::Found::Of(names::FileKind::Snapshot, at) => FileName::Snapshot(at),
            names::Found::Leftover => FileName::Leftover,
            names::Found::Other => FileName::Other,
        }
    }
}

/// The name of our own checkpoint in a partition's folder.
pub const OWN_CHECKPOINT: &str = crate::checkpoint::FILE;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but someone who looks should know.
    Note,
    /// Wrong, and made good by the next opening without a loss of what was safe.
    Repairable,
    Damage,
}

/// Something found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub file: PathBuf,
    /// The byte where it is, if it is at one.
    pub position: Option<u64>,
    pub text: String,
}

/// Where findings go; at most [`FINDINGS_PER_FILE`] of each file.
pub struct Findings<'a> {
    sink: &'a mut dyn FnMut(Finding),
    told: HashMap<PathBuf, u32>,
    worst: Option<Severity>,
}

impl<'a> Findings<'a> {
    pub fn new(sink: &'a mut dyn FnMut(Finding)) -> Self {
        Findings { sink, told: HashMap::new(), worst: None }
    }

    /// The worst so far.
    pub fn worst(&self) -> Option<Severity> {
        self.worst
    }

    pub fn tell(
        &mut self,
        severity: Severity,
        file: &Path,
        position: Option<u64>,
        text: impl Into<String>,
    ) {
        self.worst = self.worst.max(Some(severity));
        let told = self.told.entry(file.to_path_buf()).or_default();
        *told += 1;
        let (severity, position, text) = match (*told).cmp(&FINDINGS_PER_FILE) {
            std::cmp::Ordering::Less => (severity, position, text.into()),
            std::cmp::Ordering::Equal => {
                (Severity::Note, None, "there is more; it is left out".to_owned())
            }
            std::cmp::Ordering::Greater => return,
        };
        (self.sink)(Finding { severity, file: file.to_path_buf(), position, text });
    }
}

/// A batch of a segment file.
#[derive(Clone, Copy, Debug)]
pub struct BatchAt {
    pub header: BatchHeader,
    pub position: u32,
    /// The checksum fits the bytes.
    pub valid: bool,
}

/// What lies next in a segment file.
#[derive(Debug)]
pub enum Step {
    Batch(BatchAt),
    /// The end of the file.
    End,
    /// Zeros where a batch could start, and the position behind the last byte that is none: that of
    /// the zeros themselves if nothing else follows.
    Zeros {
        last_nonzero: u64,
    },
    /// Bytes that are no batch; what follows cannot be told apart.
    Damage(String),
}

/// Walks the batches of a segment file, or of any file of batches.
pub struct Batches {
    scanner: Scanner,
    file: File,
    size: u64,
}

impl Batches {
    pub async fn open(path: &Path) -> io::Result<Batches> {
        let file = File::open(path, OpenOptions::for_reading()).await?;
        let size = file.size().await?;
        let end = u32::try_from(size).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "it is larger than a segment can be")
        })?;
        Ok(Batches { scanner: Scanner::new(file.clone(), 0, end), file, size })
    }

    /// Bytes of the file when it was opened; what is appended later is not looked at.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the next batch starts, or what is no batch.
    pub fn position(&self) -> u64 {
        u64::from(self.scanner.position())
    }

    pub async fn next(&mut self) -> io::Result<Step> {
        Ok(match self.scanner.next(false).await? {
            Found::Batch(header, position) => {
                let valid = self.scanner.checksum_fits(&header, position).await?;
                Step::Batch(BatchAt { header, position, valid })
            }
            Found::End => Step::End,
            Found::Zeros => Step::Zeros { last_nonzero: self.scanner.last_nonzero().await? },
            Found::Damage(problem) => Step::Damage(problem),
        })
    }

    /// The bytes of a batch found before.
    ///
    /// # Errors
    /// `InvalidData` for one larger than [`BATCH_BYTES_MAX`].
    pub async fn bytes(&self, batch: &BatchAt) -> io::Result<Vec<u8>> {
        let size = batch.header.size_in_bytes();
        if size > BATCH_BYTES_MAX {
            let problem = format!("a batch of {size} bytes is too large to be looked into");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let buf = AlignedBuf::with_capacity(size);
        let (result, buf) = self.file.read_at(buf, u64::from(batch.position)).await;
        result?;
        let bytes = buf.get(..size).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(bytes.to_vec())
    }

    pub(crate) fn scanner(&mut self) -> &mut Scanner {
        &mut self.scanner
    }
}

/// Reads a file of entries of `N` bytes. Zeros at the end (Kafka sizes an active index ahead) are
/// no entries.
pub struct Entries<const N: usize> {
    file: File,
    size: u64,
    /// Where the zeros at the end begin.
    used: u64,
    at: u64,
    window: AlignedBuf,
    window_start: u64,
}

impl<const N: usize> Entries<N> {
    /// `None` if there is no such file.
    pub async fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path, OpenOptions::for_reading()).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let size = file.size().await?;
        let window = AlignedBuf::with_capacity(ENTRIES_READ_BYTES);
        let mut entries = Entries { file, size, used: 0, at: 0, window, window_start: 0 };
        entries.find_used().await?;
        Ok(Some(entries))
    }

    async fn find_used(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.size {
            let bytes = self.read(at, 1).await?;
            let n = bytes.len() as u64;
            if let Some(place) = bytes.iter().rposition(|b| *b != 0) {
                self.used = (at + place as u64 + 1).next_multiple_of(N as u64);
            }
            at += n;
        }
        Ok(())
    }

    /// Bytes at the end that are no whole entry.
    pub fn remainder(&self) -> u64 {
        self.size % N as u64
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next entry and its position.
    pub async fn next(&mut self) -> io::Result<Option<(u64, [u8; N])>> {
        let at = self.at;
        if at + N as u64 > self.used.min(self.size) {
            return Ok(None);
        }
        let entry = self.read(at, N).await?.first_chunk::<N>().copied();
        let entry = entry.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.at += N as u64;
        Ok(Some((at, entry)))
    }

    /// At least `least` bytes from `at` on.
    async fn read(&mut self, at: u64, least: usize) -> io::Result<&[u8]> {
        let end = self.window_start + self.window.len() as u64;
        if at < self.window_start || at + least as u64 > end {
            let window = std::mem::replace(&mut self.window, AlignedBuf::with_capacity(0));
            let (result, window) = self.file.read_at(window, at).await;
            self.window = window;
            self.window_start = at;
            result?;
            if self.window.len() < least {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let skip = (at - self.window_start) as usize;
        let rest = self.window.get(skip..).unwrap_or_default();
        // A file that grows meanwhile ends where it did at first.
        let left = (self.size - at).min(rest.len() as u64) as usize;
        Ok(rest.get(..left).unwrap_or_default())
    }
}

/// An entry of an offset index: last offset of a batch relative to the segment's base, and where
/// the batch starts.
pub fn offset_entry(bytes: [u8; 8]) -> (i32, i32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]))
}

/// An entry of a time index: timestamp and relative offset.
pub fn time_entry(bytes: [u8; 12]) -> (i64, i32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    (i64::from_be_bytes([a, b, c, d, e, f, g, h]), i32::from_be_bytes([i, j, k, l]))
}
