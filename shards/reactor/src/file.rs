//! Files: owned buffers in, owned buffers out, whole reads and whole writes.
//!
//! Lives on the shard that opened it. Never blocks the shard; a dropped future leaves the
//! operation (and its buffers) to finish in the background. After an error of a synced write or a
//! sync the data must be taken for lost: repeating the call would not bring it back.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::buf::{ALIGN, AlignedBuf, ChunkSlice};
use crate::op::{Handle, Op, OpPath, run};

/// The smallest unit a block device transfers; a direct read whose length is no multiple of it
/// has met the end of the file.
const SECTOR: usize = 512;

/// Direct writes in a row that may end inside their first block before we give up.
const STALLS_MAX: u32 = 100;

/// How to open a file. Everything is off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    pub read: bool,
    pub write: bool,
    pub create: bool,
    /// Fail with AlreadyExists if the file is there.
    pub create_new: bool,
    pub truncate: bool,
    /// Past the page cache: offsets, lengths and memory must be multiples of [`ALIGN`].
    pub direct: bool,
}

/// What a completed write promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The kernel has it: survives any crash of the process.
    Written,
    /// The device has it: survives a power cut.
    Synced,
}

/// What [`File::allocate`] does besides reserving space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    KeepSize,
    /// The size grows to the end of the range.
    Extend,
    /// As `Extend`, and the range is written with zeros, so that later writes into it change no
    /// metadata. An Unsupported error where kernel, file system or device do not offer it.
    WriteZeroes,
}

/// Bytes to write, owned.
#[derive(Debug)]
pub enum WriteBuf {
    Chunk(ChunkSlice),
    Aligned(AlignedBuf),
    Bytes(Bytes),
}

impl AsRef<[u8]> for WriteBuf {
    fn as_ref(&self) -> &[u8] {
        match self {
            WriteBuf::Chunk(slice) => slice.as_ref(),
            WriteBuf::Aligned(buf) => buf,
            WriteBuf::Bytes(bytes) => bytes,
        }
    }
}

/// An open file; clones share the descriptor.
#[derive(Clone)]
pub struct File {
    handle: Handle,
    state: Rc<State>,
}

struct State {
    direct: bool,
    /// A sync failed: what it covered may be gone, and a later sync may wrongly report success.
    sync_failed: Cell<bool>,
}

impl File {
    pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
        let (result, _) = run(Op::Open { path: OpPath::new(path)?, options }).await;
        let handle = Handle::of_file(result? as i32);
        let state = State { direct: options.direct, sync_failed: Cell::new(false) };
        Ok(File { handle, state: Rc::new(state) })
    }

    /// Fills `buf` up to its capacity from `offset` on and sets its length to what was read,
    /// which is less than the capacity only at the end of the file.
    pub async fn read_at(&self, buf: AlignedBuf, offset: u64) -> (io::Result<usize>, AlignedBuf) {
        let mut buf = buf;
        buf.set_len(0);
        let mut filled = 0;
        while filled < buf.capacity() {
            let at = offset + filled as u64;
            let op = Op::Read { file: self.handle.clone(), buf, filled, offset: at };
            let (result, op) = run(op).await;
            let Op::Read { buf: back, .. } = op else { unreachable!("a read stays a read") };
            buf = back;
            let n = match result {
                Ok(n) => n as usize,
                Err(e) => {
                    buf.set_len(0);
                    return (Err(e), buf);
                }
            };
            let end = filled + n;
            buf.set_len(buf.len().max(end));
            // A direct read must go on at a block boundary, so a torn last block is read again.
            let next = if self.state.direct { end - end % ALIGN } else { end };
            if n == 0 || (self.state.direct && !end.is_multiple_of(SECTOR)) {
                break;
            }
            if next == filled {
                // Less than a block: the end of the file, or a short read in the middle of it.
                match self.size().await {
                    Ok(size) if offset + end as u64 >= size => break,
                    Ok(_) => {}
                    Err(e) => return (Err(e), buf),
                }
            }
            filled = next;
        }
        (Ok(buf.len()), buf)
    }

    /// Writes all of `bufs` back to back from `offset` on. Short writes are continued; with
    /// [`Durability::Synced`] every byte is on the device when this returns.
    pub async fn write_at(
        &self,
        bufs: SmallVec<[WriteBuf; 2]>,
        offset: u64,
        durability: Durability,
    ) -> io::Result<()> {
        let sync = durability == Durability::Synced;
        if sync {
            self.refuse_after_failed_sync()?;
        }
        let total: usize = bufs.iter().map(|b| b.as_ref().len()).sum();
        let mut bufs = bufs;
        let mut done = 0;
        let mut stalls = 0;
        while done < total {
            let at = offset + done as u64;
            let op = Op::Write { file: self.handle.clone(), bufs, done, offset: at, sync };
            let (result, op) = run(op).await;
            let Op::Write { bufs: back, .. } = op else { unreachable!("a write stays a write") };
            bufs = back;
            let end = match result {
                Ok(n) => done + n as usize,
                Err(e) => {
                    if sync && !refused_before_writing(&e) {
                        self.state.sync_failed.set(true);
                    }
                    return Err(e);
                }
            };
            // A direct write goes on at a block boundary: a torn block is written again.
            let next = if self.state.direct && end < total { end - end % ALIGN } else { end };
            stalls = if next > done { 0 } else { stalls + 1 };
            if stalls > STALLS_MAX || end == done {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done = next;
        }
        Ok(())
    }

    /// Makes every write that was complete before this call durable (not the file's times). Writes
    /// still in flight are not covered: await them first.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    /// As [`File::sync_data`], with all metadata of the file.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        self.refuse_after_failed_sync()?;
        let (result, _) = run(Op::Sync { file: self.handle.clone(), data_only }).await;
        if result.is_err() {
            self.state.sync_failed.set(true);
        }
        result.map(drop)
    }

    /// The kernel reports a lost write once and forgets it: success after that would be a lie.
    fn refuse_after_failed_sync(&self) -> io::Result<()> {
        if self.state.sync_failed.get() {
            return Err(io::Error::other("an earlier sync of this file failed; its data is lost"));
        }
        Ok(())
    }

    pub async fn set_len(&self, n: u64) -> io::Result<()> {
        run(Op::SetLen { file: self.handle.clone(), len: n }).await.0.map(drop)
    }

    /// Reserves space for `len` bytes from `offset` on; they read as zeros.
    pub async fn allocate(&self, offset: u64, len: u64, mode: Allocate) -> io::Result<()> {
        run(Op::Allocate { file: self.handle.clone(), offset, len, mode }).await.0.map(drop)
    }

    pub async fn size(&self) -> io::Result<u64> {
        let (result, op) = run(Op::StatFile { file: self.handle.clone(), out: None }).await;
        result?;
        match op {
            Op::StatFile { out: Some(metadata), .. } => Ok(metadata.size),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Closes the file and reports the error of that, if any. With other clones alive or
    /// operations in flight it is closed when the last of them is gone.
    pub async fn close(self) -> io::Result<()> {
        match self.handle.into_raw() {
            Some(handle) => run(Op::Close { handle }).await.0.map(drop),
            None => Ok(()),
        }
    }
}

/// Errors of a write that never reached the device, so that nothing is lost by them.
fn refused_before_writing(e: &io::Error) -> bool {
    let refusals =
        [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EINVAL, libc::EBADF, libc::ENOBUFS];
    e.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
}

/// Ordinary options, spelled out once.
impl OpenOptions {
    pub fn for_reading() -> Self {
        Self { read: true, ..Self::default() }
    }

    /// Create if absent, keep what is there, read and write.
    pub fn for_writing() -> Self {
        Self { read: true, write: true, create: true, ..Self::default() }
    }
}
