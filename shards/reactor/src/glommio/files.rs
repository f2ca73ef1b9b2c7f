//! Files and names through glommio: each operation as a future that owns all it works on.
//!
//! Every transfer is copied once, because glommio reads and writes only buffers that it allocated
//! itself. What it does not offer is done on its pool of blocking threads, or, where it cannot wait,
//! directly: README.md has the list.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File as StdFile;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use bytes::Buf;
use glommio::GlommioError;
use glommio::io::{BufferedFile, Directory, DmaFile, ReadResult};
use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::sockets::Connected;
use crate::buf::ALIGN;
use crate::file::{Allocate, OpenOptions, WriteBuf};
use crate::fs::Metadata;
use crate::op::OpPath;

/// Most bytes one read or write may ask for; the caller goes on behind it.
const TRANSFER_MAX: usize = 1 << 30;

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Since Linux 6.17.
const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;

/// A negated errno on the way to the executor.
pub(super) type Errno = i32;

/// What an operation brings back from glommio, before it is put into the operation.
pub(super) enum Answer {
    Number(Result<u32, Errno>),
    Bytes(Result<ReadResult, Errno>),
    Opened(Result<File, Errno>),
    Connected(Result<Connected, Errno>),
    Metadata(Result<Metadata, Errno>),
}

pub(super) type Running = Pin<Box<dyn Future<Output = Answer>>>;

/// An open file or directory; clones share it.
#[derive(Clone)]
pub(super) enum File {
    Direct(Rc<DmaFile>),
    Buffered(Rc<BufferedFile>),
    Directory(Rc<Directory>),
}

impl File {
    pub(super) fn raw(&self) -> RawFd {
        match self {
            File::Direct(file) => file.as_raw_fd(),
            File::Buffered(file) => file.as_raw_fd(),
            File::Directory(directory) => directory.as_raw_fd(),
        }
    }
}

/// Devices for which glommio has learnt on this shard whether they can be polled.
pub(super) type Settled = Rc<RefCell<HashSet<u64>>>;

pub(super) fn open(path: &OpPath, options: OpenOptions, settled: &Settled) -> Running {
    let path = path.as_path().to_path_buf();
    let settled = Rc::clone(settled);
    Box::pin(async move { Answer::Opened(open_file(&path, options, &settled).await) })
}

async fn open_file(path: &Path, options: OpenOptions, settled: &Settled) -> Result<File, Errno> {
    // glommio resolves no path relative to the working directory.
    let path = std::path::absolute(path).map_err(|e| errno(&e))?;
    let optional = [
        (options.create, libc::O_CREAT),
        (options.create_new, libc::O_CREAT | libc::O_EXCL),
        (options.truncate, libc::O_TRUNC),
    ];
    let flags = optional.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
    let mut wanted = glommio::io::OpenOptions::new();
    wanted
        .read(options.read || !options.write)
        .write(options.write)
        .custom_flags(flags)
        .mode(FILE_MODE);
    if options.direct {
        settle(&path, settled).await;
        let file = wanted.dma_open(&path).await.map_err(errno_of)?;
        Ok(File::Direct(Rc::new(file)))
    } else {
        let file = wanted.buffered_open(&path).await.map_err(errno_of)?;
        Ok(File::Buffered(Rc::new(file)))
    }
}

/// Lets glommio learn about the device of `path` from a file that has a block. At the first file of a
/// device it reads one, to see whether that works without interrupts; from an empty file it learns
/// wrongly that it does, and later reads fail.
async fn settle(path: &Path, settled: &Settled) {
    let Some(parent) = path.parent() else { return };
    let Ok(found) = rustix::fs::stat(parent) else { return };
    if settled.borrow().contains(&found.st_dev) {
        return;
    }
    let parent = parent.to_path_buf();
    let sentinel = blocking(move || sentinel(&parent)).await;
    let opened = match &sentinel {
        // The file has no name but this one.
        Ok(file) => DmaFile::open(format!("/proc/self/fd/{}", file.as_raw_fd())).await,
        Err(e) => {
            tracing::debug!(error = %e, "cannot make the file that tells glommio of a device");
            return;
        }
    };
    match opened {
        Ok(file) => {
            settled.borrow_mut().insert(found.st_dev);
            let _ = file.close().await;
        }
        Err(e) => tracing::debug!(error = %e, "glommio could not look at a device"),
    }
}

fn sentinel(parent: &Path) -> io::Result<StdFile> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = StdFile::from(rustix::fs::open(parent, flags, Mode::from_raw_mode(FILE_MODE))?);
    rustix::io::pwrite(&file, &[0; ALIGN], 0)?;
    file.sync_all()?;
    Ok(file)
}

pub(super) fn open_directory(path: &OpPath) -> Running {
    let path = path.as_path().to_path_buf();
    Box::pin(async move {
        let opened = match std::path::absolute(&path) {
            Ok(path) => Directory::open(path).await.map_err(errno_of),
            Err(e) => Err(errno(&e)),
        };
        Answer::Opened(opened.map(|directory| File::Directory(Rc::new(directory))))
    })
}

pub(super) fn close(file: File) -> Running {
    Box::pin(async move {
        let closed = match file {
            File::Direct(file) => match Rc::try_unwrap(file) {
                Ok(file) => file.close().await,
                Err(_) => Ok(()),
            },
            File::Buffered(file) => match Rc::try_unwrap(file) {
                Ok(file) => file.close().await,
                Err(_) => Ok(()),
            },
            File::Directory(directory) => match Rc::try_unwrap(directory) {
                Ok(directory) => directory.close().await,
                Err(_) => Ok(()),
            },
        };
        done(closed)
    })
}

/// Reads up to `room` bytes.
pub(super) fn read(file: File, offset: u64, room: usize) -> Running {
    let room = room.min(TRANSFER_MAX);
    Box::pin(async move {
        let read = match &file {
            _ if room == 0 => Ok(ReadResult::default()),
            File::Direct(file) => file.read_at_aligned(offset, room).await,
            File::Buffered(file) => file.read_at(offset, room).await,
            File::Directory(_) => return Answer::Bytes(Err(-libc::EISDIR)),
        };
        Answer::Bytes(read.map_err(errno_of))
    })
}

/// Writes `bufs` without their first `done` bytes.
pub(super) fn write(
    file: File,
    bufs: &[WriteBuf],
    done: usize,
    offset: u64,
    sync: bool,
) -> Running {
    let total: usize = bufs.iter().map(|b| b.as_ref().len()).sum();
    let len = total.saturating_sub(done).min(TRANSFER_MAX);
    if len == 0 {
        return Box::pin(async { Answer::Number(Ok(0)) });
    }
    let parts = bufs.iter().map(AsRef::as_ref);
    match file {
        File::Direct(file) => {
            let mut buffer = file.alloc_dma_buffer(len);
            gather(buffer.as_bytes_mut(), parts, done);
            Box::pin(async move {
                let written = file.write_at(buffer, offset).await;
                let synced = if sync && written.is_ok() { file.fdatasync().await } else { Ok(()) };
                Answer::Number(outcome(written, synced))
            })
        }
        File::Buffered(file) => {
            let mut buffer = vec![0; len];
            gather(&mut buffer, parts, done);
            Box::pin(async move {
                let written = file.write_at(buffer, offset).await;
                let synced = if sync && written.is_ok() { file.fdatasync().await } else { Ok(()) };
                Answer::Number(outcome(written, synced))
            })
        }
        File::Directory(_) => Box::pin(async { Answer::Number(Err(-libc::EBADF)) }),
    }
}

fn outcome<T>(
    written: Result<usize, GlommioError<T>>,
    synced: Result<(), GlommioError<T>>,
) -> Result<u32, Errno> {
    let n = written.map_err(errno_of)? as u32;
    // No room at the sync is not a write that was refused: what it covered is lost.
    synced.map_err(errno_of).map_err(|e| if e == -libc::ENOSPC { -libc::EIO } else { e })?;
    Ok(n)
}

/// Fills `into` from `parts` without their first `skip` bytes.
pub(super) fn gather<'a>(into: &mut [u8], parts: impl Iterator<Item = &'a [u8]>, skip: usize) {
    let (mut skip, mut at) = (skip, 0);
    for mut part in parts {
        let skipped = skip.min(part.len());
        part.advance(skipped);
        skip -= skipped;
        let n = part.len().min(into.len() - at);
        into[at..at + n].copy_from_slice(&part[..n]);
        at += n;
    }
}

pub(super) fn sync(file: File, data_only: bool) -> Running {
    Box::pin(async move {
        match &file {
            File::Direct(dma) if data_only => done(dma.fdatasync().await),
            File::Buffered(buffered) if data_only => done(buffered.fdatasync().await),
            // glommio has no fsync, and a sync of data only may leave out the names in a directory.
            _ => Answer::Number(on_descriptor(&file, |fd| rustix::fs::fsync(fd)).await),
        }
    })
}

pub(super) fn set_len(file: File, len: u64) -> Running {
    Box::pin(async move {
        match &file {
            File::Direct(file) => done(file.truncate(len).await),
            File::Buffered(file) => done(file.truncate(len).await),
            File::Directory(_) => Answer::Number(Err(-libc::EISDIR)),
        }
    })
}

pub(super) fn allocate(file: File, offset: u64, len: u64, mode: Allocate) -> Running {
    let flags = match mode {
        Allocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Allocate::Extend => FallocateFlags::empty(),
        Allocate::WriteZeroes => FallocateFlags::from_bits_retain(FALLOC_FL_WRITE_ZEROES),
    };
    let keep_size = mode == Allocate::KeepSize;
    Box::pin(async move {
        match &file {
            File::Direct(file) if offset == 0 && mode != Allocate::WriteZeroes => {
                done(file.pre_allocate(len, keep_size).await)
            }
            File::Buffered(file) if offset == 0 && mode != Allocate::WriteZeroes => {
                done(file.pre_allocate(len, keep_size).await)
            }
            _ => {
                let allocate =
                    move |fd: BorrowedFd<'_>| rustix::fs::fallocate(fd, flags, offset, len);
                Answer::Number(on_descriptor(&file, allocate).await)
            }
        }
    })
}

/// glommio asks by name, which is another file, or none, once this one was renamed or removed.
pub(super) fn stat_file(file: &File) -> Answer {
    // SAFETY: the file is held for the length of this call.
    let fd = unsafe { BorrowedFd::borrow_raw(file.raw()) };
    let found = rustix::fs::fstat(fd).map_err(|e| -e.raw_os_error());
    Answer::Metadata(found.map(|stat| Metadata {
        size: stat.st_size as u64,
        is_dir: stat.st_mode & libc::S_IFMT == libc::S_IFDIR,
        modified_ms: stat.st_mtime * 1_000 + stat.st_mtime_nsec as i64 / 1_000_000,
    }))
}

pub(super) fn stat_path(path: &OpPath) -> Running {
    let path = path.as_path().to_path_buf();
    Box::pin(async move {
        let found = blocking(move || std::fs::metadata(path)).await;
        Answer::Metadata(found.map_err(|e| errno(&e)).map(|found| Metadata {
            size: found.len(),
            is_dir: found.is_dir(),
            modified_ms: found.modified().map_or(0, milliseconds),
        }))
    })
}

fn milliseconds(time: std::time::SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

pub(super) fn rename(from: &OpPath, to: &OpPath) -> Running {
    let (from, to) = (from.as_path().to_path_buf(), to.as_path().to_path_buf());
    Box::pin(async move { done(glommio::io::rename(from, to).await) })
}

pub(super) fn remove(path: &OpPath, directory: bool) -> Running {
    let path: PathBuf = path.as_path().to_path_buf();
    Box::pin(async move {
        if directory {
            return settled_by(blocking(move || std::fs::remove_dir(path)).await);
        }
        done(glommio::io::remove(path).await)
    })
}

/// glommio's own way takes a directory that is there already for made.
pub(super) fn make_directory(path: &OpPath) -> Running {
    let path = path.as_path().to_path_buf();
    Box::pin(async move {
        let mode = Mode::from_raw_mode(DIRECTORY_MODE);
        settled_by(blocking(move || Ok(rustix::fs::mkdir(path, mode)?)).await)
    })
}

/// Runs a call that may wait on glommio's pool of threads.
fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    glommio::executor().spawn_blocking(call)
}

async fn on_descriptor(
    file: &File,
    call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<()> + Send + 'static,
) -> Result<u32, Errno> {
    let raw = file.raw();
    // SAFETY: the caller's future owns the file and is never dropped before this has ended.
    let called = blocking(move || Ok(call(unsafe { BorrowedFd::borrow_raw(raw) })?)).await;
    called.map(|()| 0).map_err(|e| errno(&e))
}

fn settled_by(result: io::Result<()>) -> Answer {
    Answer::Number(result.map(|()| 0).map_err(|e| errno(&e)))
}

fn done<T>(result: Result<(), GlommioError<T>>) -> Answer {
    Answer::Number(result.map(|()| 0).map_err(errno_of))
}

pub(super) fn errno(e: &io::Error) -> Errno {
    -e.raw_os_error().unwrap_or(libc::EIO)
}

pub(super) fn errno_of<T>(e: GlommioError<T>) -> Errno {
    -e.raw_os_error().unwrap_or(libc::EIO)
}
