//! Opening, creating and naming the segment files of a log.
//!
//! Owns: which handles are open. A handle is opened when it is first needed; those of sealed
//! segments are let go again within the shard's bound, and so are those of idle logs
//! (`open_files`). All `.log` files are opened for direct I/O.

use std::io;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use reactor::{Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;

use crate::config::Promise;
use crate::core::Core;
use crate::error::{LogError, StorageError};
use crate::group_sync::Covers;
use crate::names::{FileKind, TMP_SUFFIX, file_path};
use crate::prepare;

/// The file of the segment that is written; made if it is not there yet.
pub(crate) async fn for_appending(core: &Rc<Core>, base: i64) -> Result<File, StorageError> {
    if let Some(file) = open_handle(core, base) {
        return Ok(file);
    }
    // Making a file cuts what is in it: two tasks at it at once would lose the first one's writes.
    let _alone = core.making.acquire(1).await;
    if let Some(file) = open_handle(core, base) {
        return Ok(file);
    }
    let (exists, synced) = {
        let state = core.state.borrow();
        let exists = state.segment(base).is_some_and(|s| s.exists);
        (exists, state.promise() == Promise::Synced)
    };
    let path = file_path(&core.dir(), FileKind::Log, base);
    let made = if exists { None } else { prepare::take(core, &path).await };
    let (file, prepared_end) = match made {
        Some(made) => made,
        // A file that should not exist may hold old batches with valid checksums: cut it.
        None => (open_segment(core, &path, !exists).await?, 0),
    };
    if !exists {
        core.state.borrow_mut().note_new_name();
    }
    if synced {
        sync_names(core).await?;
    }
    let mut state = core.state.borrow_mut();
    if let Some(segment) = state.segment_mut(base) {
        segment.file = Some(file.clone());
        segment.exists = true;
        segment.prepared_end = segment.prepared_end.max(prepared_end);
    }
    drop(state);
    core.shared.open_files().note(core.me.clone(), base);
    Ok(file)
}

fn open_handle(core: &Core, base: i64) -> Option<File> {
    core.state.borrow().segment(base).and_then(|s| s.file.clone())
}

/// Makes the names of new segment files durable, and that of a new folder.
pub(crate) async fn sync_names(core: &Rc<Core>) -> Result<(), StorageError> {
    let (unsynced, new_dir, made) = {
        let state = core.state.borrow();
        (state.names_unsynced, state.dir_name_unsynced, state.names_made)
    };
    let dir = core.dir();
    let synced = async {
        if unsynced {
            fs::sync_dir(&dir).await?;
        }
        match dir.parent().filter(|_| new_dir) {
            Some(parent) => core.shared.group_syncs().sync(parent, Covers::Names).await,
            None => Ok(()),
        }
    };
    synced.await.map_err(|error| core.storage_error("syncing the folder of a segment", error))?;
    let mut state = core.state.borrow_mut();
    if state.names_made == made {
        state.names_unsynced &= !unsynced;
    }
    state.dir_name_unsynced &= !new_dir;
    Ok(())
}

async fn open_segment(core: &Rc<Core>, path: &Path, fresh: bool) -> Result<File, StorageError> {
    let options = OpenOptions {
        read: true,
        write: true,
        create: fresh,
        truncate: fresh,
        direct: true,
        ..OpenOptions::default()
    };
    File::open(path, options).await.map_err(|error| core.storage_error("opening a segment", error))
}

/// The file of a segment for reading. Fails with `Trimmed` if retention took the segment.
pub(crate) async fn for_reading(core: &Rc<Core>, base: i64) -> Result<File, LogError> {
    {
        let state = core.state.borrow();
        match state.segment(base) {
            Some(segment) => {
                if let Some(file) = segment.file.clone() {
                    return Ok(file);
                }
            }
            None => return Err(LogError::Trimmed { offset: base, start: state.log_start }),
        }
    }
    // The file of that name must not become another one before it is known whose it is.
    let _alone = core.swapping.acquire(1).await;
    if core.state.borrow().segment(base).is_none() {
        return Err(LogError::Trimmed { offset: base, start: core.state.borrow().log_start });
    }
    let path = file_path(&core.dir(), FileKind::Log, base);
    let options = OpenOptions { read: true, write: true, direct: true, ..OpenOptions::default() };
    let file = File::open(&path, options).await.map_err(|error| {
        let start = core.state.borrow().log_start;
        match error.kind() {
            io::ErrorKind::NotFound if start > base => LogError::Trimmed { offset: base, start },
            _ => core.storage_error("opening a segment to read", error).into(),
        }
    })?;
    let sealed = {
        let mut state = core.state.borrow_mut();
        match state.segment_mut(base) {
            Some(segment) => {
                segment.file = Some(file.clone());
                let sealed = segment.sealed;
                state.used_lately |= !sealed;
                sealed
            }
            None => return Ok(file),
        }
    };
    match sealed {
        true => core.shared.note_warm(core.me.clone(), base, 0, true),
        false => core.shared.open_files().note(core.me.clone(), base),
    }
    Ok(file)
}

/// What of a small file is written at once: a snapshot of a hundred thousand producers has 5 MB.
const PIECE_BYTES: usize = 256 << 10;

/// Writes a small file. Unsynced, a power cut may lose or damage it: for what costs time then, not
/// data.
pub(crate) async fn write_small(path: &Path, bytes: Vec<u8>, synced: bool) -> io::Result<()> {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let file = File::open(path, options).await?;
    let mut left = Bytes::from(bytes);
    let mut at = 0;
    // The kernel copies a piece while the shard waits.
    while !left.is_empty() {
        let piece = left.split_to(left.len().min(PIECE_BYTES));
        let end = at + piece.len() as u64;
        file.write_at(smallvec![WriteBuf::Bytes(piece)], at, Durability::Written).await?;
        at = end;
    }
    if synced {
        file.sync_data().await?;
    }
    file.close().await
}

/// Writes a small file so that a crash of the process leaves the old bytes or the new. Its name is
/// not synced.
pub(crate) async fn replace_small(path: &Path, bytes: Vec<u8>, synced: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(TMP_SUFFIX);
    write_small(Path::new(&beside), bytes, synced).await?;
    fs::rename(Path::new(&beside), path).await
}

/// Fails as on a full disk if `bytes` more would leave less than `keep_free` bytes: what can wait
/// does not take the space that others need.
pub(crate) async fn check_room(dir: &Path, bytes: u64, keep_free: u64) -> io::Result<()> {
    if keep_free == 0 {
        return Ok(());
    }
    let available = fs::space(dir).await?.available;
    if available.saturating_sub(bytes) >= keep_free {
        return Ok(());
    }
    let reason = format!("{available} bytes are free, and {keep_free} are left to others");
    Err(io::Error::new(io::ErrorKind::StorageFull, reason))
}

/// Removes a file; that it is gone already is fine.
pub(crate) async fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
