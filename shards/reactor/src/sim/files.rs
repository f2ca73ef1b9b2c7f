//! File operations on the simulated disk: how long they take, what they do, and what becomes of
//! them if the machine stops while they are in flight.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::content::SECTOR;
use super::disk::{Errno, Ino};
use super::state::{Flight, OpenFile, State};
use crate::buf::{ALIGN, AlignedBuf};
use crate::driver::Token;
use crate::file::{Allocate, WriteBuf};
use crate::fs::Space;
use crate::op::{Handle, Op};

/// Size of the disk where no capacity is set.
const UNLIMITED: u64 = 1 << 50;

pub(super) fn is_file_op(op: &Op) -> bool {
    !matches!(
        op,
        Op::Resolve { .. }
            | Op::Accept { .. }
            | Op::Connect { .. }
            | Op::Receive { .. }
            | Op::Send { .. }
            | Op::Readable { .. }
            | Op::Input { .. }
            | Op::Output { .. }
            | Op::Termination
    )
}

pub(super) fn latency(state: &mut State, op: &Op) -> Duration {
    let mut latency = state.draw(state.faults.disk.latency);
    if matches!(op, Op::Sync { .. } | Op::SyncDisk { .. } | Op::Write { sync: true, .. }) {
        latency += state.draw(state.faults.disk.sync_latency);
    }
    if !state.faults.disk.slow.is_empty() {
        let places = places(state, op);
        let slow = &state.faults.disk.slow;
        let delay = slow.iter().find(|(dir, _)| places.iter().any(|path| path.starts_with(dir)));
        if let Some(delay) = delay.map(|(_, delay)| *delay) {
            latency += state.draw(delay);
        }
    }
    latency
}

/// A sync covers what was complete when it started.
pub(super) fn sync_points(state: &State, op: &Op) -> Vec<(Ino, u64)> {
    let inos = match op {
        Op::Sync { file, .. } => {
            state.files.get(&file.raw()).map(|open| open.ino).into_iter().collect()
        }
        Op::SyncDisk { .. } => state.disk.inos(),
        _ => Vec::new(),
    };
    let point = |ino| Some((ino, state.disk.sync_point(ino).ok()?));
    inos.into_iter().filter_map(point).collect()
}

/// The operation takes effect; returns its result as the kernel would.
pub(super) fn perform(state: &mut State, token: Token) -> i32 {
    let Some(mut flight) = state.take_flight(token) else { return -libc::EBADF };
    let result = if broken(state, &flight.op) {
        fate(state, &flight);
        if matches!(flight.op, Op::Sync { .. } | Op::SyncDisk { .. }) {
            let lost: Vec<PathBuf> =
                places(state, &flight.op).into_iter().map(Path::to_path_buf).collect();
            state.failed_syncs.extend(lost);
        }
        Err(libc::EIO)
    } else {
        apply(state, &mut flight)
    };
    state.put_flight(token, flight);
    result.unwrap_or_else(|errno| -errno)
}

/// Does the device fail this operation?
fn broken(state: &mut State, op: &Op) -> bool {
    if let Some(left) = &mut state.faults.disk.eio_after {
        if *left == 0 {
            return !matches!(op, Op::Close { .. });
        }
        *left -= 1;
    }
    match &mut state.faults.disk.eio_once {
        _ if matches!(op, Op::Close { .. }) => {}
        once @ Some(0) => {
            *once = None;
            return true;
        }
        Some(left) => *left -= 1,
        None => {}
    }
    let gone = |path: &Path| state.faults.disk.broken.iter().any(|dir| path.starts_with(dir));
    if !state.faults.disk.broken.is_empty() && places(state, op).into_iter().any(gone) {
        return true;
    }
    if let Op::Rename { from, to } = op {
        let stuck = &state.faults.disk.stuck_names;
        let of = |path: &Path| path.parent().is_some_and(|dir| stuck.contains(dir));
        if of(from.as_path()) || of(to.as_path()) {
            return true;
        }
    }
    let per_million = match op {
        Op::Read { .. } | Op::Write { .. } => state.faults.disk.eio_per_million,
        _ => 0,
    };
    state.dice.hits(per_million)
}

/// The paths an operation concerns.
fn places<'a>(state: &'a State, op: &'a Op) -> Vec<&'a Path> {
    match op {
        Op::Open { path, .. }
        | Op::OpenDir { path }
        | Op::StatPath { path, .. }
        | Op::Remove { path, .. }
        | Op::MakeDir { path }
        | Op::ReadDir { path, .. }
        | Op::Space { path, .. }
        | Op::SyncDisk { path, .. }
        | Op::Lock { path } => vec![path.as_path()],
        Op::Rename { from, to } => vec![from.as_path(), to.as_path()],
        Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::Sync { file, .. }
        | Op::SetLen { file, .. }
        | Op::Allocate { file, .. }
        | Op::StatFile { file, .. } => {
            opened(state, file).map(|open| vec![open.path.as_path()]).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn apply(state: &mut State, flight: &mut Flight) -> Result<i32, Errno> {
    let now_ms = state.wall_clock_ms();
    match &mut flight.op {
        Op::Read { file, buf, filled, offset } => read(state, file, buf, *filled, *offset),
        Op::Write { file, bufs, done, offset, sync } => {
            write(state, file, joined(bufs, *done), bufs, *offset, *sync)
        }
        Op::Sync { file, .. } => {
            let path = opened(state, file)?.path.clone();
            sync(state, &path, &flight.sync_points)
        }
        Op::SyncDisk { path, watch } => {
            let ino = state.disk.lookup(path.as_path())?;
            if !state.disk.metadata(ino)?.is_dir {
                return Err(libc::ENOTDIR);
            }
            sync(state, path.as_path(), &flight.sync_points)?;
            match watch {
                Some(watch) => tell_lost(state, watch),
                None => Ok(0),
            }
        }
        Op::SetLen { file, len } => {
            let ino = opened(state, file)?.ino;
            state.disk.set_len(ino, *len, now_ms).map(|()| 0)
        }
        Op::Allocate { .. } if state.faults.disk.cannot_reserve => Err(libc::EOPNOTSUPP),
        Op::Allocate { mode: Allocate::WriteZeroes, .. } => Err(libc::EOPNOTSUPP),
        Op::Allocate { file, offset, len, mode } => {
            let (ino, path) = opened(state, file).map(|open| (open.ino, open.path.clone()))?;
            reserve(state, &path, state.disk.growth(ino, *offset, *len))?;
            let keep_size = *mode == Allocate::KeepSize;
            state.disk.allocate(ino, *offset + *len, keep_size).map(|()| 0)
        }
        Op::StatFile { file, out } => {
            *out = Some(state.disk.metadata(opened(state, file)?.ino)?);
            Ok(0)
        }
        Op::Close { handle } => {
            state.close(*handle);
            Ok(0)
        }
        op => apply_to_names(state, op, now_ms),
    }
}

fn apply_to_names(state: &mut State, op: &mut Op, now_ms: i64) -> Result<i32, Errno> {
    match op {
        Op::Open { path, options } => {
            let ino = state.disk.open(path.as_path(), options, now_ms)?;
            let (read, write) = (options.read || !options.write, options.write);
            let (path, direct) = (path.as_path().to_path_buf(), options.direct);
            let told = state.failed_syncs.len();
            Ok(register(state, OpenFile { ino, path, read, write, direct, told }))
        }
        Op::OpenDir { path } => {
            let ino = state.disk.lookup(path.as_path())?;
            if !state.disk.metadata(ino)?.is_dir {
                return Err(libc::ENOTDIR);
            }
            let path = path.as_path().to_path_buf();
            let told = state.failed_syncs.len();
            let (read, write, direct) = (true, false, false);
            Ok(register(state, OpenFile { ino, path, read, write, direct, told }))
        }
        Op::StatPath { path, out } => {
            *out = Some(state.disk.metadata(state.disk.lookup(path.as_path())?)?);
            Ok(0)
        }
        Op::Rename { from, to } => state.disk.rename(from.as_path(), to.as_path()).map(|()| 0),
        Op::Remove { path, directory } => state.disk.remove(path.as_path(), *directory).map(|()| 0),
        Op::MakeDir { path } => state.disk.make_dir(path.as_path()).map(|()| 0),
        Op::ReadDir { path, out } => {
            *out = state.disk.list(path.as_path())?;
            Ok(0)
        }
        Op::Space { path, out } => {
            state.disk.lookup(path.as_path())?;
            let total = state.faults.disk.capacity.unwrap_or(UNLIMITED);
            let available = match is_full(state, path.as_path()) {
                true => 0,
                false => total.saturating_sub(state.disk.used()),
            };
            *out = Some(Space { total, available });
            Ok(0)
        }
        Op::Lock { path } => {
            let options = crate::file::OpenOptions::for_writing();
            let ino = state.disk.open(path.as_path(), &options, now_ms)?;
            if state.locks.contains_key(&ino) {
                return Err(libc::EWOULDBLOCK);
            }
            let path = path.as_path().to_path_buf();
            let told = state.failed_syncs.len();
            let file = OpenFile { ino, path, read: true, write: true, direct: false, told };
            let raw = register(state, file);
            state.locks.insert(ino, raw);
            Ok(raw)
        }
        _ => Err(libc::ENOSYS),
    }
}

fn sync(state: &mut State, path: &Path, points: &[(Ino, u64)]) -> Result<i32, Errno> {
    if state.faults.disk.no_room_for_names.contains(path) {
        return Err(libc::ENOSPC);
    }
    let fails = state.dice.hits(state.faults.disk.sync_eio_per_million);
    if fails {
        state.failed_syncs.push(path.to_path_buf());
    }
    for &(ino, point) in points {
        // Nothing is wrong with what was removed meanwhile.
        let _ = state.disk.sync(ino, point, fails);
    }
    if fails { Err(libc::EIO) } else { Ok(0) }
}

/// Fails if a sync below the opened directory has failed that this descriptor was not told of.
fn tell_lost(state: &mut State, watch: &Handle) -> Result<i32, Errno> {
    let open = opened(state, watch)?;
    let (dir, told) = (open.path.clone(), open.told);
    let lost = state.failed_syncs.iter().skip(told).any(|path| path.starts_with(&dir));
    let now = state.failed_syncs.len();
    if let Some(open) = state.files.get_mut(&watch.raw()) {
        open.told = now;
    }
    if lost { Err(libc::EIO) } else { Ok(0) }
}

fn read(
    state: &mut State,
    file: &Handle,
    buf: &mut AlignedBuf,
    filled: usize,
    offset: u64,
) -> Result<i32, Errno> {
    let open = opened(state, file)?;
    if !open.read {
        return Err(libc::EBADF);
    }
    let (ino, direct) = (open.ino, open.direct);
    let room = buf.capacity() - filled;
    if direct && !aligned(offset, room) {
        return Err(libc::EINVAL);
    }
    let room = shortened(state, room, direct);
    if state.dice.hits(state.faults.disk.rot_per_million) {
        let (place, bit) = (state.dice.below(room as u64), state.dice.below(8));
        state.disk.corrupt(ino, offset + place, 1 << bit)?;
    }
    let n = state.disk.read(ino, offset, &mut buf.whole_mut()[filled..filled + room])?;
    buf.set_len(buf.len().max(filled + n));
    Ok(n as i32)
}

/// Writes `data`, which is what is left of `bufs`.
fn write(
    state: &mut State,
    file: &Handle,
    data: Bytes,
    bufs: &[WriteBuf],
    offset: u64,
    sync: bool,
) -> Result<i32, Errno> {
    let now_ms = state.wall_clock_ms();
    let open = opened(state, file)?;
    if !open.write {
        return Err(libc::EBADF);
    }
    let (ino, direct, path) = (open.ino, open.direct, open.path.clone());
    let in_place = bufs.iter().all(|b| memory_aligned(b.as_ref()));
    if direct && !(in_place && aligned(offset, data.len())) {
        return Err(libc::EINVAL);
    }
    let data = data.slice(..shortened(state, data.len(), direct));
    reserve(state, &path, state.disk.growth(ino, offset, data.len() as u64))?;
    let n = data.len() as i32;
    let fails = sync && state.dice.hits(state.faults.disk.sync_eio_per_million);
    state.disk.write(ino, offset, data, sync && !fails, now_ms)?;
    if fails {
        // The device lost it together with everything else that it had not written yet.
        let point = state.disk.sync_point(ino)?;
        state.disk.sync(ino, point, true)?;
    }
    Ok(n)
}

/// What becomes of an operation that the machine does not finish: changes to names and sizes
/// happen or not, a write may also land in part.
pub(super) fn fate(state: &mut State, flight: &Flight) {
    let now_ms = state.wall_clock_ms();
    // Errors here are those the operation would have had: then it changes nothing.
    match &flight.op {
        Op::Write { file, bufs, done, offset, .. } => {
            let Ok(open) = opened(state, file) else { return };
            let (ino, writable) = (open.ino, open.write);
            let data = joined(bufs, *done);
            let lands = match state.dice.below(3) {
                0 => 0,
                1 => data.len(),
                _ => {
                    let sectors = state.dice.below((data.len() / SECTOR) as u64 + 1);
                    sectors as usize * SECTOR
                }
            };
            if writable && lands > 0 {
                let _ = state.disk.write(ino, *offset, data.slice(..lands), false, now_ms);
            }
        }
        Op::SetLen { file, len } => {
            if state.dice.coin()
                && let Ok(open) = opened(state, file)
            {
                let _ = state.disk.set_len(open.ino, *len, now_ms);
            }
        }
        Op::Rename { from, to } if state.dice.coin() => {
            let _ = state.disk.rename(from.as_path(), to.as_path());
        }
        Op::Remove { path, directory } if state.dice.coin() => {
            let _ = state.disk.remove(path.as_path(), *directory);
        }
        Op::MakeDir { path } if state.dice.coin() => {
            let _ = state.disk.make_dir(path.as_path());
        }
        Op::Open { path, options } if state.dice.coin() => {
            let _ = state.disk.open(path.as_path(), options, now_ms);
        }
        Op::Allocate { file, offset, len, mode } if state.dice.coin() => {
            if let Ok(open) = opened(state, file) {
                let keep_size = *mode == Allocate::KeepSize;
                let _ = state.disk.allocate(open.ino, *offset + *len, keep_size);
            }
        }
        _ => {}
    }
}

fn register(state: &mut State, file: OpenFile) -> i32 {
    let raw = state.descriptor();
    state.files.insert(raw, file);
    raw
}

fn is_full(state: &State, path: &Path) -> bool {
    state.faults.disk.full.iter().any(|dir| path.starts_with(dir))
}

fn opened<'s>(state: &'s State, file: &Handle) -> Result<&'s OpenFile, Errno> {
    state.files.get(&file.raw()).ok_or(libc::EBADF)
}

fn reserve(state: &State, path: &Path, growth: u64) -> Result<(), Errno> {
    if growth > 0 && is_full(state, path) {
        return Err(libc::ENOSPC);
    }
    match state.faults.disk.capacity {
        Some(capacity) if growth > 0 && state.disk.used() + growth > capacity => Err(libc::ENOSPC),
        _ => Ok(()),
    }
}

/// How much of a transfer happens at once.
fn shortened(state: &mut State, len: usize, direct: bool) -> usize {
    if len < 2 || !state.dice.hits(state.faults.disk.short_per_million) {
        return len;
    }
    let unit = if direct { SECTOR } else { 1 };
    let units = len / unit;
    // At least one unit: nothing at all would mean the end of the file.
    ((1 + state.dice.below(units.max(1) as u64) as usize) * unit).min(len)
}

fn aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(ALIGN as u64) && len.is_multiple_of(ALIGN)
}

fn memory_aligned(part: &[u8]) -> bool {
    (part.as_ptr() as usize).is_multiple_of(ALIGN) && part.len().is_multiple_of(ALIGN)
}

fn joined(bufs: &[WriteBuf], done: usize) -> Bytes {
    let mut all = BytesMut::with_capacity(bufs.iter().map(|b| b.as_ref().len()).sum());
    bufs.iter().for_each(|b| all.extend_from_slice(b.as_ref()));
    all.freeze().slice(done..)
}
