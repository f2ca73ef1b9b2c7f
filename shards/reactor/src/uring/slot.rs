//! One operation in the kernel: its owned value, the scratch space the kernel reads and writes,
//! its submission entry, and what its result means.
//!
//! A slot is boxed and stays where it is from `prepare` until `finish`; every pointer in an entry
//! leads into the slot or into heap memory that the operation owns.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use bytes::{Buf, BytesMut};
use io_uring::{opcode, squeue, types};

use super::sockets;
use crate::driver::Completion;
use crate::file::Allocate;
use crate::fs::Metadata;
use crate::net::VECTORS_MAX;
use crate::op::Op;

/// Most bytes one read or write may ask for (the kernel's own limit, down to a block).
const TRANSFER_MAX: usize = 0x7fff_f000;

/// Since Linux 6.17.
const FALLOC_FL_WRITE_ZEROES: i32 = 0x80;

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const CURRENT_DIRECTORY: types::Fd = types::Fd(libc::AT_FDCWD);
/// Offset that means "wherever the stream is".
const AT_CURSOR: u64 = u64::MAX;
const STDIN: types::Fd = types::Fd(0);
const STDOUT: types::Fd = types::Fd(1);

pub(super) struct Slot {
    op: Option<Op>,
    pub(super) generation: u32,
    scratch: Scratch,
}

/// What the kernel reads and writes beside the operation's own buffers.
struct Scratch {
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
    address: libc::sockaddr_storage,
    address_len: libc::socklen_t,
    /// Made when first needed: few slots ever are asked for metadata.
    stat: Option<Box<libc::statx>>,
    word: [u8; 8],
}

impl Slot {
    pub(super) fn new() -> Box<Self> {
        // SAFETY: both are plain C structures for which zeros are valid.
        let (message, address) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let scratch = Scratch {
            vectors: Vec::new(),
            message,
            address,
            address_len: 0,
            stat: None,
            word: [0; 8],
        };
        Box::new(Self { op: None, generation: 0, scratch })
    }

    pub(super) fn op(&self) -> Option<&Op> {
        self.op.as_ref()
    }

    pub(super) fn occupy(&mut self, op: Op) {
        debug_assert!(self.op.is_none());
        self.op = Some(op);
        self.generation = self.generation.wrapping_add(1) & super::driver::GENERATION_MASK;
    }

    /// The submission entry for the operation in this slot. `Termination` needs a descriptor from
    /// outside, everything else has its own.
    pub(super) fn prepare(&mut self, signal_event: i32) -> squeue::Entry {
        let Some(op) = &mut self.op else { unreachable!("an empty slot is never submitted") };
        let scratch = &mut self.scratch;
        let entry = file_entry(op, scratch)
            .or_else(|| name_entry(op, scratch))
            .or_else(|| socket_entry(op, scratch))
            .or_else(|| stream_entry(op, scratch, signal_event));
        match entry {
            Some(entry) => entry,
            None => unreachable!("a job for the helper thread is never submitted to the ring"),
        }
    }

    /// Empties the slot: the kernel is done with it, with this result.
    pub(super) fn finish(&mut self, result: i32) -> Completion {
        let Some(mut op) = self.op.take() else { unreachable!("an empty slot cannot complete") };
        self.scratch.vectors.clear();
        let mut result = result;
        if result >= 0 {
            match &mut op {
                Op::Receive { buf, .. } | Op::Input { buf } => {
                    let len = buf.len() + result as usize;
                    assert!(len <= buf.capacity(), "the kernel wrote more than it was given");
                    // SAFETY: the kernel filled exactly that many bytes of the spare capacity.
                    unsafe { buf.set_len(len) };
                }
                Op::Read { buf, filled, .. } => {
                    let len = *filled + result as usize;
                    buf.set_len(len.max(buf.len()));
                }
                Op::Accept { peer, .. } => *peer = sockets::decode(&self.scratch.address),
                Op::StatFile { out, .. } | Op::StatPath { out, .. } => {
                    *out = self.scratch.stat.as_deref().map(metadata);
                }
                Op::Termination => result = super::signals::last(),
                _ => {}
            }
        }
        Completion { result, op }
    }

    /// Takes the operation out without a result of the kernel.
    pub(super) fn take(&mut self) -> Option<Op> {
        self.scratch.vectors.clear();
        self.op.take()
    }
}

fn file_entry(op: &mut Op, scratch: &mut Scratch) -> Option<squeue::Entry> {
    Some(match op {
        Op::Read { file, buf, filled, offset } => {
            let room = (buf.capacity() - *filled).min(TRANSFER_MAX) as u32;
            // SAFETY: `filled` is below the capacity.
            let at = unsafe { buf.start().add(*filled) };
            opcode::Read::new(types::Fd(file.raw()), at, room).offset(*offset).build()
        }
        Op::Write { file, bufs, done, offset, sync } => {
            let fd = types::Fd(file.raw());
            let flags = if *sync { libc::RWF_DSYNC } else { 0 };
            gather(&mut scratch.vectors, bufs.iter().map(AsRef::as_ref), *done);
            match scratch.vectors.as_slice() {
                [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
                many => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Op::Sync { file, data_only } => {
            let flags = match data_only {
                true => types::FsyncFlags::DATASYNC,
                false => types::FsyncFlags::empty(),
            };
            opcode::Fsync::new(types::Fd(file.raw())).flags(flags).build()
        }
        Op::SetLen { file, len } => opcode::Ftruncate::new(types::Fd(file.raw()), *len).build(),
        Op::Allocate { file, offset, len, mode } => {
            let mode = match mode {
                Allocate::KeepSize => libc::FALLOC_FL_KEEP_SIZE,
                Allocate::Extend => 0,
                Allocate::WriteZeroes => FALLOC_FL_WRITE_ZEROES,
            };
            opcode::Fallocate::new(types::Fd(file.raw()), *len).offset(*offset).mode(mode).build()
        }
        Op::StatFile { file, .. } => {
            let fd = types::Fd(file.raw());
            stat(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, &mut scratch.stat)
        }
        Op::Close { handle } => opcode::Close::new(types::Fd(*handle)).build(),
        _ => return None,
    })
}

fn name_entry(op: &Op, scratch: &mut Scratch) -> Option<squeue::Entry> {
    let here = CURRENT_DIRECTORY;
    Some(match op {
        Op::Open { path, options } => opcode::OpenAt::new(here, path.as_c_str().as_ptr())
            .flags(open_flags(options))
            .mode(FILE_MODE)
            .build(),
        Op::OpenDir { path } => opcode::OpenAt::new(here, path.as_c_str().as_ptr())
            .flags(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
            .build(),
        Op::StatPath { path, .. } => stat(here, path.as_c_str().as_ptr(), 0, &mut scratch.stat),
        Op::Rename { from, to } => {
            let (from, to) = (from.as_c_str().as_ptr(), to.as_c_str().as_ptr());
            opcode::RenameAt::new(here, from, here, to).build()
        }
        Op::Remove { path, directory } => {
            let flags = if *directory { libc::AT_REMOVEDIR } else { 0 };
            opcode::UnlinkAt::new(here, path.as_c_str().as_ptr()).flags(flags).build()
        }
        Op::MakeDir { path } => {
            opcode::MkDirAt::new(here, path.as_c_str().as_ptr()).mode(DIRECTORY_MODE).build()
        }
        _ => return None,
    })
}

fn socket_entry(op: &mut Op, scratch: &mut Scratch) -> Option<squeue::Entry> {
    Some(match op {
        Op::Accept { listener, .. } => {
            scratch.address_len = mem::size_of_val(&scratch.address) as libc::socklen_t;
            let address = (&raw mut scratch.address).cast();
            opcode::Accept::new(types::Fd(listener.raw()), address, &mut scratch.address_len)
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Op::Connect { socket, addr } => {
            let len = sockets::encode(addr, &mut scratch.address);
            let address = (&raw const scratch.address).cast();
            opcode::Connect::new(types::Fd(socket.raw()), address, len).build()
        }
        Op::Receive { socket, buf } => {
            let (at, room) = spare(buf);
            opcode::Recv::new(types::Fd(socket.raw()), at, room).build()
        }
        Op::Send { socket, bufs, done } => {
            let fd = types::Fd(socket.raw());
            // The kernel goes on after a partial send by itself; what it still leaves over (more
            // than its limit of vectors, an interruption) the caller continues.
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            gather(&mut scratch.vectors, bufs.iter().map(AsRef::as_ref), *done);
            match scratch.vectors.as_mut_slice() {
                [one] => opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32)
                    .flags(flags)
                    .build(),
                many => {
                    scratch.message.msg_iov = many.as_mut_ptr();
                    scratch.message.msg_iovlen = many.len() as _;
                    opcode::SendMsg::new(fd, &scratch.message).flags(flags as u32).build()
                }
            }
        }
        Op::Readable { socket } => {
            let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
            opcode::PollAdd::new(types::Fd(socket.raw()), events).build()
        }
        _ => return None,
    })
}

fn stream_entry(op: &mut Op, scratch: &mut Scratch, signal_event: i32) -> Option<squeue::Entry> {
    Some(match op {
        Op::Input { buf } => {
            let (at, room) = spare(buf);
            opcode::Read::new(STDIN, at, room).offset(AT_CURSOR).build()
        }
        Op::Output { buf, done } => {
            let rest = &buf[*done..];
            let len = rest.len().min(TRANSFER_MAX) as u32;
            opcode::Write::new(STDOUT, rest.as_ptr(), len).offset(AT_CURSOR).build()
        }
        Op::Termination => {
            let (at, len) = (scratch.word.as_mut_ptr(), scratch.word.len() as u32);
            opcode::Read::new(types::Fd(signal_event), at, len).build()
        }
        _ => return None,
    })
}

fn open_flags(options: &crate::file::OpenOptions) -> i32 {
    let mut flags = libc::O_CLOEXEC;
    flags |= match (options.read, options.write) {
        (_, false) => libc::O_RDONLY,
        (false, true) => libc::O_WRONLY,
        (true, true) => libc::O_RDWR,
    };
    let optional = [
        (options.create, libc::O_CREAT),
        (options.create_new, libc::O_CREAT | libc::O_EXCL),
        (options.truncate, libc::O_TRUNC),
        (options.direct, libc::O_DIRECT),
    ];
    optional.iter().filter(|(on, _)| *on).fold(flags, |all, (_, flag)| all | flag)
}

/// Lists the memory of `parts` without its first `done` bytes, as far as one call may carry.
fn gather<'a>(vectors: &mut Vec<libc::iovec>, parts: impl Iterator<Item = &'a [u8]>, done: usize) {
    vectors.clear();
    let mut done = done;
    let mut room = TRANSFER_MAX;
    for mut part in parts {
        let skipped = done.min(part.len());
        part.advance(skipped);
        done -= skipped;
        if part.is_empty() {
            continue;
        }
        let len = part.len().min(room);
        vectors.push(libc::iovec { iov_base: part.as_ptr() as *mut c_void, iov_len: len });
        room -= len;
        if room == 0 || vectors.len() == VECTORS_MAX {
            return;
        }
    }
    if vectors.is_empty() {
        vectors.push(libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 });
    }
}

fn spare(buf: &mut BytesMut) -> (*mut u8, u32) {
    let spare = buf.spare_capacity_mut();
    (spare.as_mut_ptr().cast(), spare.len().min(TRANSFER_MAX) as u32)
}

fn stat(
    directory: types::Fd,
    path: *const libc::c_char,
    flags: i32,
    out: &mut Option<Box<libc::statx>>,
) -> squeue::Entry {
    // SAFETY: an all-zero statx is valid.
    let out = out.get_or_insert_with(|| Box::new(unsafe { mem::zeroed() }));
    let out: *mut libc::statx = &mut **out;
    opcode::Statx::new(directory, path, out.cast())
        .flags(flags)
        .mask(libc::STATX_TYPE | libc::STATX_SIZE | libc::STATX_MTIME)
        .build()
}

fn metadata(stat: &libc::statx) -> Metadata {
    Metadata {
        size: stat.stx_size,
        is_dir: u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR,
        modified_ms: stat.stx_mtime.tv_sec * 1_000 + i64::from(stat.stx_mtime.tv_nsec / 1_000_000),
    }
}
