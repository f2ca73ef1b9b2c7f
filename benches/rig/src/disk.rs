//! What the disk itself can do, on the same file system and day: the ceiling for the brokers.
//!
//! Three probes on a file of their own: large sequential direct writes from several threads, reads
//! of what they wrote, and small direct writes that wait for the device to have them, one after the
//! other. Not a broker's pattern, only what a broker's figures are to be held against.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, open};
use rustix::io::{ReadWriteFlags, pread, pwrite, pwritev2};

use crate::error::{Error, Result};
use crate::{latency, procfs};

const ALIGN: usize = 4096;
const LARGE_BYTES: usize = 512 << 10;
const SMALL_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 1 << 20;
/// Threads that write, and then threads that read.
const WRITERS: u64 = 4;
/// Each of them goes round in a region of its own.
const REGION_BYTES: u64 = 256 << 20;
/// Of the one stream: more than a host's disk keeps in its own memory while it is overwritten.
const STREAM_BYTES: u64 = 1 << 30;
const FILES_MAX: usize = 5_000;

#[derive(Debug, Clone, Copy)]
pub struct Ceiling {
    pub large_megabytes_per_second: f64,
    pub read_megabytes_per_second: f64,
    pub small_synced_p50_micros: f64,
    pub small_synced_p99_micros: f64,
}

pub fn measure(folder: &Path, length: Duration) -> Result<Ceiling> {
    let path = folder.join("disk-probe");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map(File::from).map_err(io(&path))?;
    fallocate(&file, FallocateFlags::empty(), 0, WRITERS * REGION_BYTES).map_err(io(&path))?;
    let ceiling = probe(&file, length).map_err(io(&path));
    drop(file);
    std::fs::remove_file(&path).map_err(Error::io(format!("remove {}", path.display())))?;
    ceiling
}

/// MB/s of one sequential stream of direct writes with `depth` of `bytes` on the way, over a file
/// that was written before: what a broker's one log could at most get.
pub fn sequential(folder: &Path, bytes: usize, depth: u64, length: Duration) -> Result<f64> {
    let path = folder.join("disk-stream");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map(File::from).map_err(io(&path))?;
    let rate = fallocate(&file, FallocateFlags::empty(), 0, STREAM_BYTES)
        .and_then(|()| stream(&file, bytes, depth, None))
        .and_then(|_| stream(&file, bytes, depth, Some(length)))
        .map_err(io(&path));
    drop(file);
    std::fs::remove_file(&path).map_err(Error::io(format!("remove {}", path.display())))?;
    rate
}

/// Once over the region, or round and round for so long. Each thread takes the stream's next write.
fn stream(
    file: &File,
    size: usize,
    depth: u64,
    length: Option<Duration>,
) -> rustix::io::Result<f64> {
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let written = |_| {
        let buffer = vec![0x5a; size + ALIGN];
        let data = aligned(&buffer, size);
        let mut bytes = 0;
        loop {
            let at = next.fetch_add(size as u64, Ordering::Relaxed);
            if length.is_none() && at >= STREAM_BYTES {
                return Ok(bytes);
            }
            bytes += pwrite(file, data, at % STREAM_BYTES)? as u64;
            if length.is_some_and(|length| started.elapsed() >= length) {
                return Ok(bytes);
            }
        }
    };
    rate_of(depth, written)
}

fn io(path: &Path) -> impl FnOnce(rustix::io::Errno) -> Error {
    let what = format!("probe the disk with {}", path.display());
    move |error| Error::Io { what, source: error.into() }
}

fn probe(file: &File, length: Duration) -> rustix::io::Result<Ceiling> {
    let large = rate_of_all(|number| write_large(file, number, length))?;
    let read = rate_of_all(|number| read_large(file, number, length))?;
    let small = write_small(file, length)?;
    Ok(Ceiling {
        large_megabytes_per_second: large,
        read_megabytes_per_second: read,
        small_synced_p50_micros: small.value_at_quantile(0.5) as f64,
        small_synced_p99_micros: small.value_at_quantile(0.99) as f64,
    })
}

/// MB/s of several threads together, each of which says how many bytes it has moved.
fn rate_of_all(one: impl Fn(u64) -> rustix::io::Result<u64> + Sync) -> rustix::io::Result<f64> {
    rate_of(WRITERS, one)
}

fn rate_of(
    threads: u64,
    one: impl Fn(u64) -> rustix::io::Result<u64> + Sync,
) -> rustix::io::Result<f64> {
    let started = Instant::now();
    let moved: rustix::io::Result<Vec<u64>> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || one(n))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(end).collect()
    });
    let bytes: u64 = moved?.iter().sum();
    Ok(bytes as f64 / 1e6 / started.elapsed().as_secs_f64())
}

/// Reads the region of the writer with this number, over and over.
fn read_large(file: &File, number: u64, length: Duration) -> rustix::io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES + ALIGN];
    let skip = buffer.as_ptr().align_offset(ALIGN);
    let data = buffer.get_mut(skip..skip + READ_BYTES).unwrap_or_default();
    let end = Instant::now() + length;
    let (mut bytes, mut at) = (0, 0);
    while Instant::now() < end {
        bytes += pread(file, &mut *data, number * REGION_BYTES + at)? as u64;
        at = (at + READ_BYTES as u64) % REGION_BYTES;
    }
    Ok(bytes)
}

fn write_large(file: &File, number: u64, length: Duration) -> rustix::io::Result<u64> {
    let buffer = vec![0x5a; LARGE_BYTES + ALIGN];
    let data = aligned(&buffer, LARGE_BYTES);
    let end = Instant::now() + length;
    let (mut bytes, mut at) = (0, 0);
    while Instant::now() < end {
        let count = pwrite(file, data, number * REGION_BYTES + at)? as u64;
        bytes += count;
        at = (at + LARGE_BYTES as u64) % REGION_BYTES;
    }
    Ok(bytes)
}

fn write_small(file: &File, length: Duration) -> rustix::io::Result<Histogram<u64>> {
    let buffer = vec![0xa5; SMALL_BYTES + ALIGN];
    let data = [std::io::IoSlice::new(aligned(&buffer, SMALL_BYTES))];
    let mut histogram = latency::new_histogram().map_err(|_| rustix::io::Errno::INVAL)?;
    let end = Instant::now() + length;
    let mut at = 0;
    while Instant::now() < end {
        let started = Instant::now();
        pwritev2(file, &data, at, ReadWriteFlags::DSYNC)?;
        histogram.saturating_record(started.elapsed().as_micros() as u64);
        at = (at + SMALL_BYTES as u64) % REGION_BYTES;
    }
    Ok(histogram)
}

/// `length` bytes of the buffer that start at a multiple of `ALIGN`.
fn aligned(buffer: &[u8], length: usize) -> &[u8] {
    let skip = buffer.as_ptr().align_offset(ALIGN);
    buffer.get(skip..skip + length).unwrap_or_default()
}

/// Everything written so far by anyone to the file system of the brokers' data goes to the device, so
/// that one broker's backlog is not another's load; gives the seconds that took. Other file
/// systems are left alone: they may hang, and are no broker's.
pub fn drain() -> f64 {
    let started = Instant::now();
    sync(&data_folder());
    started.elapsed().as_secs_f64()
}

/// On the file system of the brokers' data.
fn data_folder() -> PathBuf {
    std::env::var_os("CORELANE_RUN_DIR").map_or_else(|| ".".into(), PathBuf::from)
}

/// What the kernel has counted of the data's device so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    pub bytes_written: f64,
    /// With at least one request on the way.
    pub busy_seconds: f64,
}

/// `None` where there is no such device, as on a file system over several.
pub fn counted() -> Option<Counted> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let folder = std::fs::canonicalize(data_folder()).ok()?;
        let number = procfs::mount_of(&folder)?.number;
        Some(PathBuf::from(format!("/sys/dev/block/{number}/stat")))
    };
    let file = FILE.get_or_init(find).as_ref()?;
    parse_counted(&std::fs::read_to_string(file).ok()?)
}

/// Reads, merged, sectors, ms; writes, merged, sectors, ms; on the way, ms busy, ...
fn parse_counted(text: &str) -> Option<Counted> {
    let fields: Vec<f64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let (&sectors, &busy_ms) = (fields.get(6)?, fields.get(9)?);
    Some(Counted { bytes_written: sectors * 512.0, busy_seconds: busy_ms / 1e3 })
}

fn sync(folder: &Path) {
    let synced = File::open(folder).is_ok_and(|folder| rustix::fs::syncfs(folder).is_ok());
    if !synced {
        rustix::fs::sync();
    }
}

/// Takes every file under `folder` out of the page cache.
pub fn forget_cached(folder: &Path) -> Result<()> {
    sync(folder);
    Files::under(folder, |_| true)?.forget();
    Ok(())
}

/// Files held open so that they can be taken out of the page cache again and again.
#[derive(Debug)]
pub struct Files(Vec<File>);

impl Files {
    /// Those under the folders in `folder` whose names are wanted, and those in `folder` itself.
    pub fn under(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Self> {
        let mut folders = vec![folder.to_path_buf()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let io = || Error::io(format!("read folder {}", folder.display()));
            for entry in std::fs::read_dir(&folder).map_err(io())? {
                let entry = entry.map_err(io())?;
                let path = entry.path();
                if entry.file_type().map_err(io())?.is_dir() {
                    if wanted(&entry.file_name().to_string_lossy()) {
                        folders.push(path);
                    }
                    continue;
                }
                if files.len() == FILES_MAX {
                    return Err(Error::Usage(format!("over {FILES_MAX} files to drop from cache")));
                }
                let open = File::open(&path);
                files.push(open.map_err(Error::io(format!("open {}", path.display())))?);
            }
        }
        Ok(Files(files))
    }

    /// What is not written yet stays.
    pub fn forget(&self) {
        for file in &self.0 {
            // Advice only: a kernel that does not follow it is seen in the figures.
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
    }
}

/// Bytes that anyone may still write to the file system of `folder`.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    let free = rustix::fs::statvfs(folder).map_err(|error| Error::Io {
        what: format!("look at the file system of {}", folder.display()),
        source: error.into(),
    })?;
    Ok(free.f_bavail * free.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_wrote_and_how_long_it_was_busy() {
        let text = "  100  2  800  30  200  5  4000  90  0  1500  120  0  0  0  0  3  4\n";
        let expected = Counted { bytes_written: 2_048_000.0, busy_seconds: 1.5 };
        assert_eq!(parse_counted(text), Some(expected));
        assert_eq!(parse_counted("1 2 3"), None);
    }

    #[test]
    fn a_buffer_is_aligned_inside_its_allocation() {
        let buffer = vec![1; SMALL_BYTES + ALIGN];
        let data = aligned(&buffer, SMALL_BYTES);
        assert_eq!((data.len(), data.as_ptr().align_offset(ALIGN)), (SMALL_BYTES, 0));
    }
}
