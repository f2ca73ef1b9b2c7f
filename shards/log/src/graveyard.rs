//! Folders of deleted partitions on their way out.
//!
//! Owns: which folders go when, over all logs of a shard, and the one task that removes them, one
//! after the other and only while there are any: ten thousand partitions that are deleted at once
//! must not keep the device from its readers. What a crash leaves is removed by the next start.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::sync::Notify;
use reactor::{Class, Either, Instant, fs, race};

use crate::names::deleted_dir_name;
use crate::shared::LogShared;

/// By the data folder, the time of the removal and a number that makes the key unique.
type Key = (PathBuf, Instant, u64);

#[derive(Default)]
pub(crate) struct Graveyard {
    due: RefCell<BTreeMap<Key, PathBuf>>,
    next: Cell<u64>,
    changed: Notify,
    /// Data folders with a task: a disk that hangs holds up its own only.
    running: RefCell<BTreeSet<PathBuf>>,
}

impl Graveyard {
    /// What goes next from a data folder: its number, its time and its path.
    fn first_of(&self, data_dir: &Path) -> Option<(u64, Instant, PathBuf)> {
        let due = self.due.borrow();
        let from = (data_dir.to_path_buf(), Instant::from_nanos(0), 0);
        let ((of, at, number), dir) = due.range(from..).next()?;
        (of == data_dir).then(|| (*number, *at, dir.clone()))
    }
}

/// Renames the folder of a deleted partition, so that its name is free at once, and removes it
/// after `delay`. The new name is not synced. Returns it.
pub(crate) async fn bury(shared: &LogShared, dir: &Path, delay: Duration) -> io::Result<PathBuf> {
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or("partition");
    let unique = [reactor::random_u64(), reactor::random_u64()];
    let to = dir.with_file_name(deleted_dir_name(name, unique));
    fs::rename(dir, &to).await?;
    remove_later(shared, to.clone(), delay);
    Ok(to)
}

/// Removes a folder after `delay`.
pub(crate) fn remove_later(shared: &LogShared, dir: PathBuf, delay: Duration) {
    let graves = shared.graveyard();
    let data_dir = dir.parent().map(Path::to_path_buf).unwrap_or_default();
    let number = graves.next.get();
    graves.next.set(number + 1);
    let key = (data_dir.clone(), reactor::now() + delay, number);
    graves.due.borrow_mut().insert(key, dir);
    graves.changed.notify_all();
    if graves.running.borrow_mut().insert(data_dir.clone()) {
        reactor::spawn_in(Class::Background, run(shared.clone(), data_dir)).detach();
    }
}

async fn run(shared: LogShared, data_dir: PathBuf) {
    let graves = shared.graveyard();
    loop {
        let changed = graves.changed.notified();
        let Some(key) = graves.first_of(&data_dir) else { break };
        let left = key.1.saturating_duration_since(reactor::now());
        if let Either::Right(()) = race(shared.delete_delay(&key.2, left), changed).await {
            // What came may have to go earlier.
            continue;
        }
        let Some(dir) = graves.due.borrow_mut().remove(&(data_dir.clone(), key.1, key.0)) else {
            continue;
        };
        if let Err(error) = fs::remove_dir_all(&dir).await {
            tracing::warn!("{} was not removed: {error}", dir.display());
        }
    }
    graves.running.borrow_mut().remove(&data_dir);
}
