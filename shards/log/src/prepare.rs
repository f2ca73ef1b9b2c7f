//! Making room in segment files ahead of the writes, off the request path.
//!
//! Owns: the zero-filled or reserved stretch behind the end of the active segment, and the file
//! that waits for the next roll. A synced write into zeros that are on the device already costs
//! one transfer; into a growing file it costs the file system's journal as well. And the kernel makes
//! no write without waiting that grows a file, or that begins in a block that holds data (as all do but
//! those that follow a batch that ends with a block) and goes on into space that is only reserved: io_uring
//! hands each to a worker thread, which takes more processor time and another wait. So a segment with
//! some traffic has its space reserved, at most a quarter of what it holds, given back when the log falls
//! idle; and where writes are small and many the space gets zeros too, in few large writes.
//!
//! A stretch that is being zero-filled is never written by the appender, nor the other way round:
//! the appender waits for the piece at hand, or claims what it writes beforehand. The first piece begins
//! some way behind the writes, and while space is reserved nobody waits. Steps double
//! with the segment, so a small log stays a small file. Failure to prepare is no failure: the file
//! then grows with the writes.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reactor::{Allocate, Class, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;

use crate::config::{Preallocate, Promise};
use crate::core::{Core, State};
use crate::files;
use crate::names::PREPARED_FILE;
use crate::tail::{block_ceiling, block_floor};

const FIRST_STEP: u32 = 64 << 10;
const LARGEST_STEP: u32 = 32 << 20;
/// An append may soon wait for what is prepared, but must not wait behind it at the disk.
const CLASS: Class = Class::TailFetch;
/// One write of zeros: what an append may have to wait for.
const PIECE: u32 = 256 << 10;
/// Without syncs nothing is made ahead of a segment below this size: most logs are small.
const RESERVE_FROM: u32 = 1 << 20;
/// Without syncs a file is longer than its data by at most one part in so many, or [`FIRST_STEP`].
const RESERVED_PART: u32 = 4;
/// The longest stretch of zeros behind the writes where space is reserved first.
const ZEROS_AHEAD: u32 = 1 << 20;
/// Writes up to this size, as they mostly were lately, are worth the zeros: the bytes are written twice.
const SMALL_WRITE: u32 = 64 << 10;
/// And only in a log that has as many of them: a batch now and then is not worth it.
const MANY_WRITES: u64 = 64;
/// The first zeros of a stretch begin so far behind the writes: none has to wait for them.
const SLACK: u32 = 128 << 10;
/// Zeros at the front of a file that waits for a roll.
const NEXT_FILE_BYTES: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nothing,
    Zeros,
    Reserve,
    /// From [`RESERVE_FROM`] on, in relation to the data.
    ReserveLater,
    /// The same, with zeros.
    ZerosLater,
}

fn mode(state: &State) -> Mode {
    let config = &state.config;
    match config.preallocate {
        Preallocate::Off => Mode::Nothing,
        Preallocate::ZeroFill => Mode::Zeros,
        Preallocate::Reserve => Mode::Reserve,
        Preallocate::Auto if config.promise() == Promise::Synced => Mode::Zeros,
        Preallocate::Auto if state.usual_write <= SMALL_WRITE && state.writes >= MANY_WRITES => {
            Mode::ZerosLater
        }
        Preallocate::Auto => Mode::ReserveLater,
    }
}

/// The file for the next roll.
#[derive(Default)]
pub(crate) enum NextFile {
    #[default]
    None,
    Making,
    Ready(File, u32),
}

/// Waits until nobody else writes below `end`, and claims the positions below it.
pub(crate) async fn make_way(core: &Rc<Core>, segment: i64, end: u32) {
    loop {
        let wait = {
            let mut state = core.state.borrow_mut();
            let Some(segment) = state.segment_mut(segment) else { return };
            if !segment.filling || segment.passable || end <= segment.prepared_end {
                segment.prepared_end = segment.prepared_end.max(end);
                return;
            }
            core.filled.notified()
        };
        wait.await;
    }
}

/// Waits until nobody extends the file; nobody will once the segment is full or the log closes.
pub(crate) async fn quiesce(core: &Rc<Core>, segment: i64) {
    loop {
        let wait = {
            let state = core.state.borrow();
            if !state.segment(segment).is_some_and(|s| s.filling) {
                return;
            }
            core.filled.notified()
        };
        wait.await;
    }
}

/// Starts to extend the file if the writes come near the end of what is prepared, and to make the
/// next file if the segment is half full.
pub(crate) fn look_ahead(core: &Rc<Core>, segment: i64) {
    let mut state = core.state.borrow_mut();
    let mode = mode(&state);
    if mode == Mode::Nothing || !state.is_online() || state.closing {
        return;
    }
    // What many logs make ahead is more than a disk with little space has.
    if core.shared.is_short_of_space(&core.dir.borrow()) {
        return;
    }
    if mode != Mode::Zeros && core.shared.cannot_reserve(&core.dir.borrow()) {
        return;
    }
    let most = block_ceiling(state.config.segment_bytes);
    let Some(active) = state.segments.back_mut().filter(|s| s.base == segment) else { return };
    let half_full = active.written > most / 2;
    let later = matches!(mode, Mode::ReserveLater | Mode::ZerosLater);
    let (step, to) = if later {
        let most = if mode == Mode::ZerosLater { ZEROS_AHEAD } else { LARGEST_STEP };
        let step = reserved_at_most(active.written).min(most);
        (step, active.written.saturating_add(step))
    } else {
        let step = next_step(active.prepared_end);
        (step, active.prepared_end.saturating_add(step))
    };
    let to = block_floor(to).min(most);
    let near = active.prepared_end.saturating_sub(active.written) < step / 2;
    let small = later && active.written < RESERVE_FROM;
    let extend =
        near && !small && to > active.prepared_end && !active.filling && !active.fill_refused;
    if extend {
        (active.filling, active.passable) = (true, true);
    }
    let make_next = half_full && mode == Mode::Zeros && matches!(state.next_file, NextFile::None);
    if make_next {
        state.next_file = NextFile::Making;
    }
    drop(state);
    if extend {
        reactor::spawn_in(CLASS, fill(Rc::clone(core), segment, to, mode)).detach();
    }
    if make_next {
        reactor::spawn_in(CLASS, make_next_file(Rc::clone(core), most)).detach();
    }
}

fn next_step(prepared: u32) -> u32 {
    prepared.next_power_of_two().clamp(FIRST_STEP, LARGEST_STEP)
}

fn reserved_at_most(written: u32) -> u32 {
    (written / RESERVED_PART).clamp(FIRST_STEP, LARGEST_STEP)
}

/// Extends a segment up to `to`, piece by piece. `filling` is set by the caller.
async fn fill(core: Rc<Core>, segment: i64, to: u32, mode: Mode) {
    let extended = match mode {
        Mode::Zeros => fill_with_synced_zeros(&core, segment, to).await,
        Mode::ZerosLater => reserve_with_zeros(&core, segment, to).await.map(drop),
        Mode::Reserve | Mode::ReserveLater | Mode::Nothing => reserve(&core, segment, to).await,
    };
    if let Some(segment) = core.state.borrow_mut().segment_mut(segment) {
        (segment.filling, segment.passable) = (false, false);
        segment.fill_refused |= extended.is_err();
    }
    core.filled.notify_all();
    if let Err(error) = extended {
        if error.kind() == io::ErrorKind::Unsupported && mode != Mode::Zeros {
            core.shared.note_cannot_reserve(&core.dir.borrow(), &error);
            return;
        }
        tracing::warn!(log = %core.name, segment, "no room was made ahead: {error}");
    }
}

async fn fill_with_synced_zeros(core: &Rc<Core>, base: i64, to: u32) -> io::Result<()> {
    let reserves = !core.shared.cannot_reserve(&core.dir.borrow());
    let mut filled = Ok(None);
    if reserves {
        filled = reserve_with_zeros(core, base, to).await;
    }
    let refused = matches!(&filled, Err(error) if error.kind() == io::ErrorKind::Unsupported);
    if !reserves || refused {
        filled = fill_with_zeros(core, base, to).await;
    }
    match filled? {
        Some(file) => file.sync_data().await,
        None => Ok(()),
    }
}

/// Reserved first, the file is as long as it gets when the zeros are written: no write of batches, of
/// which there are many meanwhile, meets one that changes the file's length.
async fn reserve_with_zeros(core: &Rc<Core>, base: i64, to: u32) -> io::Result<Option<File>> {
    let Some((file, from)) = next_piece(core, base, to) else { return Ok(None) };
    let reserved = {
        let state = core.state.borrow();
        let most = block_ceiling(state.config.segment_bytes);
        let segment = state.segment(base);
        segment.filter(|s| s.reserved_end < to).map(|s| {
            let end = s.written.saturating_add(reserved_at_most(s.written)).min(most);
            (s.reserved_end.max(from), block_floor(end).max(to))
        })
    };
    if let Some((from, end)) = reserved {
        file.allocate(u64::from(from), u64::from(end - from), Allocate::Extend).await?;
        if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
            segment.reserved_end = end;
            let behind = block_ceiling(segment.size).saturating_add(SLACK);
            segment.prepared_end = segment.prepared_end.max(behind.min(end));
        }
    }
    fill_with_zeros(core, base, to).await
}

/// Gives the file if anything was written.
async fn fill_with_zeros(core: &Rc<Core>, base: i64, to: u32) -> io::Result<Option<File>> {
    let mut last = None;
    while let Some((file, from)) = next_piece(core, base, to) {
        let piece = PIECE.min(to - from);
        set_passable(core, base, false);
        let written = write_zeros(core, &file, from, piece).await;
        set_passable(core, base, true);
        if let Some(segment) = core.state.borrow_mut().segment_mut(base).filter(|_| written.is_ok())
        {
            segment.prepared_end = segment.prepared_end.max(from + piece);
        }
        core.filled.notify_all();
        written?;
        last = Some(file);
    }
    Ok(last)
}

fn set_passable(core: &Core, base: i64, passable: bool) {
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.passable = passable;
    }
}

/// Where the next zeros go, if they are still wanted.
fn next_piece(core: &Rc<Core>, base: i64, to: u32) -> Option<(File, u32)> {
    let state = core.state.borrow();
    let segment = state.segment(base).filter(|_| state.is_online() && !state.closing)?;
    let from = segment.prepared_end;
    if segment.full || from >= to {
        return None;
    }
    Some((segment.file.clone()?, from))
}

async fn write_zeros(core: &Core, file: &File, from: u32, len: u32) -> io::Result<()> {
    let zeros = core.shared.zeros(PIECE as usize).slice(0..len as usize);
    file.write_at(smallvec![WriteBuf::Chunk(zeros)], u64::from(from), Durability::Written).await
}

async fn reserve(core: &Rc<Core>, base: i64, to: u32) -> io::Result<()> {
    let Some((file, from)) = next_piece(core, base, to) else { return Ok(()) };
    let len = to - from;
    file.allocate(u64::from(from), u64::from(len), Allocate::Extend).await?;
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.prepared_end = segment.prepared_end.max(to);
    }
    Ok(())
}

impl State {
    /// Whether the active segment has space reserved that an idle log has no use for.
    pub(crate) fn holds_reserved(&self) -> bool {
        let active = self.segments.back().filter(|s| !s.full && s.exists);
        let longer = active.is_some_and(|s| s.is_longer_than(block_ceiling(s.size)));
        let later = matches!(mode(self), Mode::ReserveLater | Mode::ZerosLater);
        longer && self.is_online() && later
    }
}

/// Cuts what was reserved behind the end of a log that nobody writes. The upkeep is the caller's. An
/// append that comes meanwhile waits, as for a piece of zeros; the cut needs no sync, as zeros that
/// a power cut brings back are no more than they were.
pub(crate) async fn give_back(core: &Rc<Core>) {
    let idle = {
        let mut state = core.state.borrow_mut();
        let holds = state.holds_reserved() && !state.appender_runs && !state.closing;
        let active = state.segments.back_mut().filter(|s| holds && s.is_at_rest());
        active.map(|active| {
            active.filling = true;
            active.note_cut(active.size);
            (active.base, active.size)
        })
    };
    let Some((base, size)) = idle else { return };
    core.state.borrow_mut().writes = 0;
    let cut = match files::for_appending(core, base).await {
        Ok(file) => file.set_len(u64::from(size)).await,
        Err(error) => Err(io::Error::other(error.to_string())),
    };
    if let Some(segment) = core.state.borrow_mut().segment_mut(base) {
        segment.filling = false;
    }
    core.filled.notify_all();
    if let Err(error) = cut {
        tracing::warn!(log = %core.name, segment = base, "reserved space was not given back: {error}");
    }
}

fn next_path(core: &Core) -> PathBuf {
    core.dir().join(PREPARED_FILE)
}

async fn make_next_file(core: Rc<Core>, most: u32) {
    let len = NEXT_FILE_BYTES.min(most);
    let made = async {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            truncate: true,
            direct: true,
            ..OpenOptions::default()
        };
        let file = File::open(&next_path(&core), options).await?;
        let mut at = 0;
        while at < len {
            write_zeros(&core, &file, at, PIECE.min(len - at)).await?;
            at += PIECE.min(len - at);
        }
        file.sync_all().await?;
        fs::sync_dir(&core.dir()).await?;
        Ok::<File, io::Error>(file)
    };
    let next = match made.await {
        Ok(file) => NextFile::Ready(file, len),
        Err(error) => {
            tracing::warn!(log = %core.name, "the next segment was not made ahead: {error}");
            NextFile::None
        }
    };
    core.state.borrow_mut().next_file = next;
    core.filled.notify_all();
}

/// Gives the file that was made for this roll its name; `None` if none is ready.
pub(crate) async fn take(core: &Rc<Core>, path: &Path) -> Option<(File, u32)> {
    let (file, len) = {
        let mut state = core.state.borrow_mut();
        match std::mem::take(&mut state.next_file) {
            NextFile::Ready(file, len) => (file, len),
            making @ NextFile::Making => {
                state.next_file = making;
                return None;
            }
            NextFile::None => return None,
        }
    };
    match fs::rename(&next_path(core), path).await {
        Ok(()) => Some((file, len)),
        Err(error) => {
            tracing::warn!(log = %core.name, "the next segment was not taken: {error}");
            None
        }
    }
}

/// Removes a file that was made ahead and is not needed. Nobody makes one now.
pub(crate) async fn discard(core: &Rc<Core>) {
    let waits = !matches!(core.state.borrow().next_file, NextFile::None);
    if waits && let Err(error) = files::remove_if_there(&next_path(core)).await {
        tracing::warn!(log = %core.name, "a file made ahead was not removed: {error}");
    }
    core.state.borrow_mut().next_file = NextFile::None;
}
